#!/bin/bash
# Bad input is refused with file, line and reason, or answered cleanly; nothing of it harms a running
# cluster.
. "$(dirname "$0")/lib.sh"

cluster_up config --layout 4+2 --drives 8
port_of() { sed -n "s/.*127.0.0.1:\([0-9]*\).*/\1/p" "$config" | sed -n "$1p"; }

# --- configuration ---

bad=$work/bad
fresh_config() {
  rm -rf "$bad"
  mkdir "$bad"
  cp "$config" "$cluster/credentials.toml" "$bad/"
  chmod 600 "$bad/credentials.toml"
  printf '\n[limits]\ndrive_timeout = "3 s"\nopen_timeout = "3 s"\n' >>"$bad/cluster.toml"
}
# The command fails at once, with one line that contains every WORD.
refused() {  # COMMAND -- WORD...
  local command=() said code=0 word
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  said=$(timeout 30 "${command[@]}" 2>&1 >/dev/null) || code=$?
  if [ $code -eq 0 ] || [ $code -ge 124 ]; then
    echo "  ${command[*]} ended with $code: $said"
    return 1
  fi
  for word in "$@"; do
    case $said in
      *"$word"*) ;;
      *) echo "  it does not say \"$word\": $said"; return 1 ;;
    esac
  done
}
line_of() { grep -n -m 1 "$1" "$bad/cluster.toml" | cut -d: -f1; }

fresh_config
is_accepted() { "$pinstripe" config "$bad/cluster.toml" >/dev/null; }
check "the configuration is fine to begin with" is_accepted

fresh_config
sed -i 's/^data_shards = 4/data_shards = 4\ncolour = "blue"/' "$bad/cluster.toml"
check "an unknown key is refused, with its line" refused "$pinstripe" config "$bad/cluster.toml" -- \
  "cluster.toml:$(line_of colour)" colour

fresh_config
sed -i 's/^data_shards = 4/data_shards = 9/' "$bad/cluster.toml"
check "more shards than drives are refused, with the line" refused "$pinstripe" config \
  "$bad/cluster.toml" -- "cluster.toml:$(line_of data_shards)" "11 drives" "only 8"

fresh_config
sed -i 's/^id = 3/id = 2/' "$bad/cluster.toml"
check "an id used twice is refused, with the line" refused "$pinstripe" config "$bad/cluster.toml" -- \
  "cluster.toml:" "two drives have the id 2"

fresh_config
echo 'this is = not [toml' >>"$bad/cluster.toml"
check "what is not TOML is refused" refused "$pinstripe" config "$bad/cluster.toml" -- "cluster.toml"

fresh_config
chmod 644 "$bad/credentials.toml"
check "credentials that others may read are refused" refused "$pinstripe" config "$bad/cluster.toml" -- \
  "credentials.toml" "0644" "chmod"

fresh_config
sed -i 's/^drive_timeout = .*/drive_timeout = 5/' "$bad/cluster.toml"
check "a time without a unit is refused, with the line" refused "$pinstripe" config "$bad/cluster.toml" -- \
  "cluster.toml:$(line_of drive_timeout)" drive_timeout unit

fresh_config
: >"$bad/credentials.toml"
warns_of_factory_key() {
  local said
  said=$("$pinstripe" config "$bad/cluster.toml" 2>&1 >/dev/null) || return 1
  case $said in *"8 of 8 drives have the factory's key"*) ;; *) echo "  $said"; return 1 ;; esac
}
check "the factory's key is warned of, also where no key is given" warns_of_factory_key

fresh_config
rm "$bad/credentials.toml"
check "missing credentials are named" refused "$pinstripe" config "$bad/cluster.toml" -- \
  "credentials.toml"

# A store that is there for comparison is served by no pinstriped that people run.
mkdir "$work/other"
printf '[daemon]\nlisten = "127.0.0.1"\n[[drive]]\npath = "%s"\nport = 0\nstore = "leveldb"\n' \
  "$work/other" >"$work/other.toml"
check "a drive with a store for comparison is refused, with the way out" \
  refused "$build/daemon/pinstriped" --config "$work/other.toml" -- comparison 'store = "log"' COMPARE_STORES
nothing_was_made() { [ -z "$(ls -A "$work/other")" ]; }
check "and nothing is made in its directory" nothing_was_made

# Whoever comes first would own a drive that listens to others with the key that everybody knows.
mkdir "$work/factory"
"$build/daemon/pinstriped" --init "$work/factory" >"$work/said" || flunk "a drive is made"
printf '[daemon]\nlisten = "0.0.0.0"\n[[drive]]\npath = "%s"\nport = 0\n' "$work/factory" >"$work/factory.toml"
check "the factory's key is refused where others could come, with the way out" \
  refused "$build/daemon/pinstriped" --config "$work/factory.toml" -- "factory's key" "$work/factory" credentials 'factory_key = "allow"'

# --- identities ---

fresh_config
sed -i "s/127.0.0.1:$(port_of 2)/localhost:$(port_of 1)/" "$bad/cluster.toml"
check "two addresses that reach one drive cannot be formatted" refused "$pinstripe" format --force \
  "$bad/cluster.toml" -- "drive"
check "and the cluster is as it was" is_healthy

fresh_config
one=$(port_of 1) two=$(port_of 2)
sed -i "s/127.0.0.1:$one/127.0.0.1:swap/; s/127.0.0.1:$two/127.0.0.1:$one/; s/127.0.0.1:swap/127.0.0.1:$two/" \
  "$bad/cluster.toml"
swapped_is_noticed() {
  local said
  said=$("$pinstripe" status "$bad/cluster.toml" 2>&1)
  [ $? -ne 0 ] && case $said in *"it is drive 2 "*) ;; *) echo "  $said"; return 1 ;; esac
}
check "swapped drives are noticed" swapped_is_noticed

fresh_config
sed -i 's/^parity_shards = 2/parity_shards = 1/' "$bad/cluster.toml"
check "a file with another layout is told so" \
  says 0 "layout.parity_shards is 1 in the file and 2 in the cluster" status "$bad/cluster.toml"
check "the cluster keeps what is applied" \
  says 0 "layout.parity_shards: 1 instead of 2" config --apply "$bad/cluster.toml"
check "and the other file is the one that differs" \
  says 0 "layout.parity_shards is 2 in the file and 1 in the cluster" status "$config"
check "which is taken back" says 0 "layout.parity_shards: 2 instead of 1" config --apply "$config"
check "two drives may be stopped" says 0 "^yes: drives 1, 2" ok-to-stop "$config" 1 2
check "three may not" says 1 "^no: drives 1, 2, 3" ok-to-stop "$config" 1 2 3
check "and of none that is not there anything is known" says 2 "no such drive" ok-to-stop "$config" 99

check "format refuses drives that belong to a cluster, and names it" refused "$pinstripe" format \
  "$config" -- "belongs to" dev "--force"
fresh_config
sed -i 's/^name = "dev"/name = "other"/' "$bad/cluster.toml"
other_name() {
  local said
  said=$("$pinstripe" status "$bad/cluster.toml" 2>&1)
  [ $? -eq 2 ] && case $said in *"it is empty"*) false ;; *"the cluster 'dev'"*) ;; *) false ;; esac && return 0
  echo "  $said"
  return 1
}
check "a wrong name of the cluster is answered with the right one" other_name

# --- the wire ---

fresh_config
sed -i 's/^key = .*/key = "wrong"/' "$bad/credentials.toml"
wrong_key() {
  local said
  said=$("$pinstripe" status "$bad/cluster.toml" 2>&1)
  [ $? -eq 2 ] && echo "$said" | grep -q "wrong key"
}
check "a wrong HMAC key is refused and called that" wrong_key

garbage() {  # PORT: bytes that are no frame, a frame that is too long, one that is cut off
  local port=$1 kind
  for kind in noise long cut unknown; do
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
    case $kind in
      noise) head -c 100000 /dev/urandom >&3 ;;
      long) printf 'F\377\377\377\377\377\377\377\377' >&3 ;;
      cut) printf 'F\000\000\001\000\000\000\000\000abc' >&3 ;;
      unknown) printf 'F\000\000\000\004\000\000\000\000\377\377\377\377' >&3 ;;
    esac 2>/dev/null
    exec 3>&-
  done
}
serves_on() {
  local before after
  before=$(drive_processes)
  garbage "$(port_of 1)" || return 1
  is_healthy || return 1
  after=$(drive_processes)
  [ "$before" = "$after" ]
}
drive_processes() { "$pinstripe" dev status --json "$cluster" | grep '"pid"'; }
check "garbage on a drive's port leaves the daemon serving" serves_on 2>/dev/null
make_file "$work/file" 5000000
check "and files can be written" upload "$work/file" /file
check "and read" holds /file "$(sum_of "$work/file")"

# --- all drives down ---

dev kill gateway $(seq 1 8)
fails_soon() {
  local begin=$SECONDS said
  if said=$("$pinstripe" dev start "$cluster" gateway 2>&1); then
    echo "  it started"
    return 1
  fi
  if [ $((SECONDS - begin)) -gt 20 ]; then
    echo "  only after $((SECONDS - begin)) s"
    return 1
  fi
  case $said in *drive*) ;; *) echo "  $said"; return 1 ;; esac
}
check "with all drives down xrootd says so and does not start, within seconds" fails_soon
down_is_shown() {
  local said
  said=$(timeout 60 "$pinstripe" status "$config" 2>&1)
  [ $? -eq 2 ] && [ "$(echo "$said" | grep -c DOWN)" -eq 8 ] && echo "$said" | grep -q unavailable
}
check "status shows every drive as down" down_is_shown
dev start $(seq 1 8) gateway
check "and when they are back the file is there" holds /file "$(sum_of "$work/file")"
finish
