#!/bin/bash
# Three independent clients, each against a Kinetic simulator and against pinstriped: the same calls in the same order,
# and each field of each answer is compared. What may differ, and why, is the table in compare_answers.py.

. "$(dirname "$0")/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
check "the comparison finds what it has to find" "$here/compare_answers.py" --test
need_simulator

# A device of each kind that nobody has used before, and a pinstriped to which both can push: sets `foreign`, `own` (plain
# port and TLS port) and `peer`.
new_devices() {  # NAME
  free_port
  peer=$port
  free_port
  local first=$port
  free_port
  own=($first "$port")
  mkdir "$work/$1"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$work/$1/tls.key" \
    -out "$work/$1/tls.crt" 2>"$work/openssl" || give_up "no certificate: $(cat "$work/openssl")"
  chmod 600 "$work/$1/tls.key"
  cat >"$work/$1/pinstriped.toml" <<CONFIG
[daemon]
listen = "127.0.0.1"
erase_without_pin = "allow"
tls_certificate = "tls.crt"
tls_key = "tls.key"
[[drive]]
path = "one"
port = ${own[0]}
tls_port = ${own[1]}
[[drive]]
path = "peer"
port = $peer
CONFIG
  mkdir "$work/$1/one" "$work/$1/peer"
  "$build/daemon/pinstriped" --init "$work/$1/one" "$work/$1/peer" >"$work/$1/pinstriped.log" 2>&1 || give_up "no drives: $(cat "$work/$1/pinstriped.log")"
  "$build/daemon/pinstriped" --config "$work/$1/pinstriped.toml" >"$work/$1/pinstriped.log" 2>&1 &
  processes+=($!)
  free_port
  start_simulator "$port"
  foreign=("$port" $((port + 1500)))
  wait_until 20 answers "${own[1]}" || give_up "pinstriped does not listen: $(tail -n 3 "$work/$1/pinstriped.log")"
  wait_for_simulator "${foreign[0]}"
  wait_for_simulator_tls
}
wait_for_simulator_tls() { wait_until 60 answers "${foreign[1]}" || give_up "the simulator does not listen for TLS"; }

makes_calls() {  # FILE COMMAND...
  local file=$1
  shift
  timeout 300 "$@" >"$file" 2>"$file.err" || {
    tail -n 5 "$file.err" | sed 's/^/  /'
    return 1
  }
}
says_the_same() {  # NAME
  "$here/compare_answers.py" "$1" "$work/$1.simulator" "$work/$1.pinstriped"
}
compare() {  # NAME WHAT COMMAND...: which gets PORT TLS-PORT PEER-PORT
  local name=$1 what=$2
  shift 2
  new_devices "$name"
  check "$what goes through all calls on a simulator" makes_calls "$work/$name.simulator" "$@" "${foreign[@]}" "$peer"
  check "and through the same on pinstriped" makes_calls "$work/$name.pinstriped" "$@" "${own[@]}" "$peer"
  check "and is answered the same, but for what is known" says_the_same "$name"
  kill_simulator "$simulator"
}

lacking=
lacks() {
  echo "SKIP $script: $*"
  lacking=yes
}

# --- ours, written anew

if command -v node >/dev/null; then
  compare wire "a client in Node" node "$here/wire_client.mjs"
else
  lacks "the client in Node: no node; Debian's package nodejs has it"
fi

# --- Seagate's, in Java

if java --list-modules | grep -q '^jdk.compiler'; then
  compare java "Seagate's Java client" java "${opens[@]}" -cp "$jars/*" "$here/JavaAnswers.java"
else
  lacks "the Java client: this java cannot run a source file; openjdk-17-jdk-headless can"
fi

# --- that of PyPI

python2=
for candidate in "${PYTHON2:-}" python2.7 "$HOME"/.pyenv/versions/2.7*/bin/python2.7; do
  [ -n "$candidate" ] && "$candidate" -c 'import pip' 2>/dev/null && python2=$candidate && break
done
packages=$cache/kinetic-python-0.9.1
if [ -z "$python2" ]; then
  lacks "the Python client: it was written for Python 2, which Debian 12 does not have; PYTHON2 may name one with pip"
elif [ ! -e "$packages/complete" ] && ! {
  timeout 300 "$python2" -m pip install -q --disable-pip-version-check --no-warn-script-location --target "$packages" \
    kinetic==0.9.1 protobuf==3.17.3 eventlet==0.33.3 >"$work/pip.log" 2>&1 && touch "$packages/complete"
}; then
  lacks "the Python client: pip cannot fetch it: $(grep -m 1 -i 'error' "$work/pip.log")"
else
  compare python "the Python client" "$python2" "$here/python_answers.py" "$packages"
fi

if [ -n "$lacking" ] && [ $failures = 0 ]; then exit 77; fi
finish
