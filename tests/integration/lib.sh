# lib.sh: what the integration scripts share. Sourced by bash; each script runs alone:
#
#   PINSTRIPE_BUILD=build/dev tests/integration/10-round-trip.sh
#
# A script states what must be true with `check WHAT COMMAND...` or `pass`/`flunk`, prints PASS and FAIL
# lines, and ends with `finish`. Whatever happens, its clusters are stopped and its files removed.

set -uo pipefail
unset http_proxy https_proxy all_proxy
export XRD_NETWORKSTACK=IPv4 XRD_CONNECTIONRETRY=2 XRD_CONNECTIONWINDOW=5 XRD_STREAMERRORWINDOW=5 XRD_REQUESTTIMEOUT=60

project=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath "${PINSTRIPE_BUILD:-$project/build/release}")
pinstripe=$build/tools/pinstripe
script=$(basename "$0" .sh)
failures=0
failed=()  # what each was
clusters=()
declare -A servers  # process ids of what `serve` has started

if [ ! -x "$pinstripe" ]; then
  echo "$script: $pinstripe is not built; set PINSTRIPE_BUILD to a build directory" >&2
  exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-$script.XXXXXX")
chmod 755 "$work"  # the gateway runs as somebody else

# Of file systems, the dead ones, too.
mounts_in_work() { awk -v below="$work/" 'index($5, below) == 1 {print $5}' /proc/self/mountinfo; }

clean_up() {
  trap - EXIT
  for one in "${servers[@]}"; do kill "$one" 2>/dev/null; done
  for one in $(mounts_in_work); do fusermount3 -u -q -z "$one"; done
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
flunk() { echo "FAIL $script: $*"; failures=$((failures + 1)); failed+=("$*"); }
give_up() {
  flunk "$*"
  for one in "${clusters[@]}"; do
    tail -n 3 "$one"/pinstriped-*.log 2>/dev/null | sed 's/^/  /'
  done
  exit 1
}
needs_fuse() {
  [ ! -e /dev/fuse ] || return 0
  echo "SKIP $script: /dev/fuse is missing: this machine cannot mount"
  exit 77
}
# Chance: SEED; else another one each time in a campaign, which somebody has given a time; and else the same for everybody,
# so that a failure is the fault of the change at hand.
seed_of() {  # [TIME]
  if [ -n "${SEED:-}" ]; then echo "$SEED"; elif [ -n "${1:-}" ]; then echo $((RANDOM * 32768 + RANDOM)); else echo 1; fi
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
show_logs() {  # CLUSTER
  tail -n 25 "$1/gateway/log" 2>/dev/null | sed 's/^/  gateway: /'
  grep -hE ' (warning|error) ' "$1"/pinstriped-*.log 2>/dev/null | tail -n 12 | sed 's/^/  drives: /'
}
finish() {
  if [ $failures -ne 0 ]; then
    for one in "${clusters[@]}"; do show_logs "$one"; done
    echo "$script: $failures of its checks failed:"  # at the end, where a build server that shows a part shows it
    printf '  %s\n' "${failed[@]}"
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
  [ $failures -eq 0 ] || show_logs "$cluster"  # which go with it
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
new_disk() {  # DRIVE: an empty one in the place of what was there
  local place=$cluster/drives/$1
  rm -rf "$place"
  mkdir "$place"
  "$build/daemon/pinstriped" --init "$place" >"$cluster.init" 2>&1 || give_up "new disk $1: $(cat "$cluster.init")"
}
unlist() {  # DRIVE: takes it out of cluster.toml
  /usr/bin/python3 - "$config" "$1" <<'END'
import re, sys
name, drive = sys.argv[1:]
head, *drives = open(name).read().split("[[drive]]")
left = [one for one in drives if not re.search(rf"^id = {drive}$", one, re.M)]
open(name, "w").write("[[drive]]".join([head, *left]))
END
}
# A gateway that has nothing of what was read or written before in its memory.
empty_gateway() {
  dev kill gateway
  dev start gateway
}
gateway_log() { echo "$cluster/gateway/log"; }
gateway_pid() { "$pinstripe" dev status --json "$cluster" | /usr/bin/python3 -c "import json, sys; print(json.load(sys.stdin)['gateway']['pid'])"; }

# --- servers of XRootD, besides the cluster's gateway ---

# Each is given once: one whose server is down, or not up yet, looks free. What `dev up` takes is taken elsewhere.
if [ -n "${PINSTRIPE_PORTS:-}" ]; then
  last_port=${PINSTRIPE_PORTS#*-}
  server_ports=$((last_port - 149))-$last_port
  export PINSTRIPE_PORTS=${PINSTRIPE_PORTS%-*}-$((last_port - 150))
fi
free_ports() {  # COUNT
  PINSTRIPE_PORTS=${server_ports:-} /usr/bin/python3 - "$1" "$work/ports" <<'END'
import os, random, socket, sys
with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
    end = int(file.read().split()[0])  # from here on the kernel takes ports for connections
ports = range(10000, end if end > 11000 else 32768)
if os.environ["PINSTRIPE_PORTS"]:
    first, last = os.environ["PINSTRIPE_PORTS"].split("-")
    ports = range(int(first), int(last) + 1)
kept = []
given = set(open(sys.argv[2]).read().split()) if os.path.exists(sys.argv[2]) else set()
for port in random.sample(ports, min(len(ports), 200)):
    if str(port) in given:
        continue
    one = socket.socket()
    try:
        one.bind(("", port))
    except OSError:
        continue
    kept.append((one, port))
    if len(kept) == int(sys.argv[1]):
        break
print(*[port for _, port in kept])
with open(sys.argv[2], "a") as file:
    print(*[port for _, port in kept], file=file)
END
}

# Configurations as they are in etc/, for this machine: with the cluster's files, the ports given, and
# directories and further files in $work/NAME.
sample() {  # NAME FILE [SED-EXPRESSION...]
  local name=$1 home=$work/$1 plugin
  local file=$home/$2
  plugin=$(sed -n 's/^ofs.osslib.* \([^ ]*libXrdOssPinstripe.so\) .*/\1/p' "$cluster/gateway/xrootd.cfg")
  mkdir -p "$home/admin" "$home/run"
  give_to_gateway "$home/admin" "$home/run"
  sed -e "s,libXrdOssPinstripe.so,$plugin,; s,/etc/pinstripe/cluster.toml,$config,; s,/var/spool/xrootd,$home/admin,
    s,/run/xrootd,$home/run,; s,/etc/xrootd/,$home/,g; s,/etc/grid-security/,$work/,g; s,/usr/libexec/pinstripe,$project/etc," \
    "${@:3}" "$project/etc/$2" >"$file"
  # Names of this machine may not resolve.
  grep -q '^xrd.port\|^all.manager' "$file" && echo "xrd.network dnr norpipa" >>"$file"
  chmod 644 "$file"
}

give_to_gateway() {  # FILE...: to the user that it runs as
  [ "$(id -u)" -ne 0 ] || chown --reference "$cluster/gateway" "$@"
}

# Starts a server as the gateway's user; its log is $work/NAME/PROGRAM.log.
serve() {  # NAME PROGRAM FILE
  try_to_serve "$@" || give_up "$2 of $1 does not start: $(tail -n 3 "$work/$1/$2.log")"
}
try_to_serve() {
  local home=$work/$1 log=$work/$1/$2.log command=("$2" -c "$work/$1/$3" -I v4) user
  user=$(stat -c '--reuid=%u --regid=%g' "$cluster/gateway")
  # shellcheck disable=SC2086
  [ "$(id -u)" -ne 0 ] || command=(setpriv $user --clear-groups "${command[@]}")
  if ! getent hosts "$(hostname)" >/dev/null; then
    command=(unshare --uts $([ "$(id -u)" -eq 0 ] || echo "--user --map-current-user --keep-caps") sh -c 'hostname localhost; exec "$@"' sh "${command[@]}")
  fi
  : >"$log"
  (cd "$home" && exec "${command[@]}") >"$log" 2>&1 &
  servers[$1-$2]=$!
  wait_until 30 is_serving "$1" "$2" && ! grep -q '^------.*initialization failed' "$log" && kill -0 "${servers[$1-$2]}"
}
is_serving() { grep -q '^------ [a-z]* [^ ]*@[^ ]* initialization \|^------.*initialization failed' "$work/$1/$2.log" || ! kill -0 "${servers[$1-$2]}"; }
stop() {  # NAME PROGRAM
  local pid=${servers[$1-$2]}
  kill "$pid"
  wait "$pid" 2>/dev/null
  unset "servers[$1-$2]"
}

# --- certificates ---

# An authority and a certificate of this machine, as XRootD wants to have them: $work/ca.pem,
# $work/certificates, $work/hostcert.pem and $work/hostkey.pem.
make_certificates() {
  local names="subjectAltName=DNS:localhost,IP:127.0.0.1"
  {
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=Authority of a test" -keyout "$work/ca.key" \
      -out "$work/ca.pem" &&
      openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout "$work/hostkey.pem" -out "$work/host.csr" &&
      openssl x509 -req -in "$work/host.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 30 \
        -extfile <(echo "$names") -out "$work/hostcert.pem" &&
      mkdir "$work/certificates" && cp "$work/ca.pem" "$work/certificates/" && openssl rehash "$work/certificates"
  } >"$work/openssl" 2>&1 || give_up "no certificates: $(tail -n 3 "$work/openssl")"
  chmod 400 "$work/hostkey.pem"
  give_to_gateway "$work/hostkey.pem"
  export X509_CERT_DIR=$work/certificates
}

# --- waiting ---

wait_until() {  # SECONDS COMMAND...: asks again and again, and after a while less often, as asking costs those beside it
  local begin=$SECONDS deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $deadline ]; then return 1; fi
    if [ $SECONDS -gt $((begin + 2)) ]; then sleep 0.5; else sleep 0.1; fi
  done
}
has_read() {  # PID BYTES: a client, or the one it started, is in the middle of its file
  local pid
  for pid in "$1" $(pgrep -P "$1"); do
    awk -v least="$2" '/^rchar:/ { exit !($2 >= least) }' "/proc/$pid/io" && return 0
  done
  return 1
}
# As far as the drives go: what is on them `status` knows from the last who looked.
is_healthy() {
  local status
  status=$("$pinstripe" status --json "$config" 2>&1)
  [[ $status == *'"drives_down": 0,'* && $status != *'"unavailable"'* && $status != *'"no_say"'* ]]
}
wait_until_healthy() { wait_until 90 is_healthy || give_up "the cluster does not become healthy: $("$pinstripe" status "$config" 2>&1)"; }

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
