# lib.sh: what the integration scripts share. Sourced by bash; each script runs alone:
#
#   PINSTRIPE_BUILD=build/dev tests/integration/10-round-trip.sh
#
# A script states what must be true with `check WHAT COMMAND...` or `pass`/`flunk`, prints PASS and FAIL
# lines, and ends with `finish`. Whatever happens, its clusters are stopped and its files removed.

set -uo pipefail
unset http_proxy https_proxy all_proxy
export XRD_CONNECTIONRETRY=2 XRD_CONNECTIONWINDOW=5 XRD_STREAMERRORWINDOW=5 XRD_REQUESTTIMEOUT=60

project=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath "${PINSTRIPE_BUILD:-$project/build/release}")
pinstripe=$build/tools/pinstripe
script=$(basename "$0" .sh)
failures=0
clusters=()

if [ ! -x "$pinstripe" ]; then
  echo "$script: $pinstripe is not built; set PINSTRIPE_BUILD to a build directory" >&2
  exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-$script.XXXXXX")
chmod 755 "$work"  # the gateway runs as somebody else

clean_up() {
  trap - EXIT
  for one in "${clusters[@]}"; do
    "$pinstripe" dev down --delete "$one" >/dev/null ||
      echo "$script: $one could not be cleared" >&2
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

pass() { echo "PASS $script: $*"; }
flunk() { echo "FAIL $script: $*"; failures=$((failures + 1)); }
give_up() {
  flunk "$*"
  for one in "${clusters[@]}"; do
    tail -n 3 "$one"/pinstriped-*.log 2>/dev/null | sed 's/^/  /'
  done
  exit 1
}
# For `check`: what the administrator's command says and how it ends. Its words stay in $work/said.
says() {  # EXIT-CODE WORDS COMMAND...
  local expected=$1 words=$2
  shift 2
  "$pinstripe" "$@" >"$work/said" 2>&1
  local code=$?
  if [ $code -eq "$expected" ] && grep -q "$words" "$work/said"; then return 0; fi
  sed "s/^/  exit code $code: /" "$work/said"
  return 1
}
check() {  # WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then pass "$what"; else flunk "$what"; fi
}
finish() {
  if [ $failures -ne 0 ]; then
    echo "$script: $failures of its checks failed"
    for one in "${clusters[@]}"; do
      tail -n 25 "$one/gateway/log" 2>/dev/null | sed 's/^/  gateway: /'
    done
    exit 1
  fi
  echo "$script: all checks passed"
  exit 0
}

# --- clusters ---

# Makes a cluster: sets `cluster` (its directory), `config` and `url`.
cluster_up() {  # NAME, then options of `pinstripe dev up`
  cluster=$work/cluster-$1
  config=$cluster/cluster.toml
  shift
  clusters+=("$cluster")
  "$pinstripe" dev up "$cluster" "$@" >"$cluster.up" 2>&1 ||
    give_up "the cluster cannot be made: $(cat "$cluster.up")"
  url=$(sed -n 's/^ *gateway  *\(root:.*\)/\1/p' "$cluster.up")
}
cluster_down() {
  "$pinstripe" dev down --delete "$cluster" >/dev/null || give_up "$cluster cannot be stopped"
  local kept=()
  for one in "${clusters[@]}"; do [ "$one" = "$cluster" ] || kept+=("$one"); done
  clusters=("${kept[@]}")
}
dev() {  # kill|start NAME...
  local verb=$1
  shift
  "$pinstripe" dev "$verb" "$cluster" "$@" >"$cluster.$verb" 2>&1 ||
    give_up "dev $verb $*: $(cat "$cluster.$verb")"
}
# A gateway that has nothing of what was read or written before in its memory.
empty_gateway() {
  dev kill gateway
  dev start gateway
}
gateway_log() { echo "$cluster/gateway/log"; }

# --- waiting ---

wait_until() {  # SECONDS COMMAND...: asks again and again
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $deadline ]; then return 1; fi
    sleep 0.1
  done
}
has_read() {  # PID BYTES: a client, or the one it started, is in the middle of its file
  local pid
  for pid in "$1" $(pgrep -P "$1"); do
    awk -v least="$2" '/^rchar:/ { exit !($2 >= least) }' "/proc/$pid/io" && return 0
  done
  return 1
}
is_healthy() { "$pinstripe" status "$config" >/dev/null 2>&1; }
wait_until_healthy() { wait_until 30 is_healthy || give_up "the cluster does not become healthy: $("$pinstripe" status "$config" 2>&1)"; }

# The gateway connects to its drives again in its own time, up to a second later than `status`. PATH is
# best a file of many blocks, which are on all drives.
wait_until_readable() {  # PATH
  wait_until 30 timeout 20 xrdcp --nopbar -f "$url$1" "$work/readable" ||
    flunk "$1 cannot be read again"
  rm -f "$work/readable"
}

# --- files ---

make_file() {  # FILE BYTES: random, so that no two pieces are alike
  head -c "$2" /dev/urandom >"$1"
}
sum_of() { b2sum <"$1" | cut -d' ' -f1; }
upload() { timeout 300 xrdcp --nopbar -f "$1" "$url$2" 2>"$work/xrdcp.err"; }
download() { timeout 300 xrdcp --nopbar -f "$url$1" "$2" 2>"$work/xrdcp.err"; }

# Downloads PATH and compares its checksum with SUM.
holds() {  # PATH SUM
  local copy=$work/copy
  rm -f "$copy"
  if ! download "$1" "$copy"; then
    echo "  download of $1: $(tail -n 1 "$work/xrdcp.err")"
    return 1
  fi
  local got
  got=$(sum_of "$copy")
  rm -f "$copy"
  [ "$got" = "$2" ] && return 0
  echo "  $1: BLAKE2 is $got instead of $2"
  return 1
}

# Files that a script puts, and looks at again and again: `sums` has their names.
declare -A sums
put() {  # NAME BYTES
  make_file "$work/file" "$2"
  sums[$1]=$(sum_of "$work/file")
  upload "$work/file" "/$1" || give_up "upload of /$1: $(tail -n 1 "$work/xrdcp.err")"
}
all_hold() {  # on the drives
  local name
  empty_gateway
  for name in "${!sums[@]}"; do holds "/$name" "${sums[$name]}" || return 1; done
}
# All of them, with each of these pairs of drives dead. A pair comes back whatever was found.
any_two_may_die() {  # PAIR...: "1 2"
  local pair held
  for pair in "$@"; do
    dev kill $pair
    all_hold
    held=$?
    dev start $pair
    wait_until_healthy
    [ $held -eq 0 ] || return 1
  done
}
exists() { timeout 60 xrdfs "$url" stat "$1" >/dev/null 2>&1; }
