#!/bin/bash
# Seagate's Java client against pinstriped: JavaClient.java has the promises.

. "$(dirname "$0")/lib.sh"

need_simulator
java --list-modules | grep -q '^jdk.compiler' ||
  skip "this java cannot run a source file; openjdk-17-jdk-headless can"

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$work/tls.key" -out "$work/tls.crt" 2>"$work/openssl" || give_up "no certificate: $(cat "$work/openssl")"
chmod 600 "$work/tls.key"
free_port
first=$port
free_port
secure=$port
free_port
second=$port
cat >"$work/pinstriped.toml" <<CONFIG
[daemon]
listen = "127.0.0.1"
erase_without_pin = "allow"
tls_certificate = "tls.crt"
tls_key = "tls.key"
[[drive]]
path = "one"
port = $first
tls_port = $secure
[[drive]]
path = "two"
port = $second
CONFIG
mkdir "$work/one" "$work/two"
"$build/daemon/pinstriped" --init "$work/one" "$work/two" >"$work/pinstriped.log" 2>&1 || give_up "no drives: $(cat "$work/pinstriped.log")"
"$build/daemon/pinstriped" --config "$work/pinstriped.toml" >"$work/pinstriped.log" 2>&1 &
processes+=($!)
free_port
start_simulator "$port"
wait_until 20 answers "$secure" || give_up "pinstriped does not listen: $(tail -n 3 "$work/pinstriped.log")"
wait_for_simulator "$port"

timeout 200 java "${opens[@]}" -cp "$jars/*" "$(dirname "$0")/JavaClient.java" \
  "$first" "$secure" "$second" "$port" 2>"$work/java.log"
status=$?
[ $status = 0 ] || tail -n 20 "$work/java.log" >&2
exit $status
