#!/bin/bash
# A drive that serves clients of the Redis protocol, beside its cluster: redis-cli, redis-benchmark, python3-redis and
# node-redis, unchanged; TLS; kill -9 under load; what the cluster sees of it.
. "$(dirname "$0")/lib.sh"

cluster_up resp --layout 2+1 --drives 4
make_certificates
read -r port tls_port safe_port other_port < <(free_ports 4)
here=$project/tests/integration
file=$cluster/pinstriped-1.toml
sed -i "s,^\[daemon\],&\ntls_certificate = \"$work/hostcert.pem\"\ntls_key = \"$work/hostkey.pem\",
  s/^port = .*/&\nresp_port = $port\nresp_tls_port = $tls_port/" "$file"
sed -i "s/^port = .*/&\nresp_port = $safe_port\nresp_sync = \"write-through\"/" "$cluster/pinstriped-2.toml"
dev kill 1 2
dev start 1 2

cli() { redis-cli --no-auth-warning -p "$port" -a 1:asdfasdf "$@" >"$work/cli" 2>&1; }
answers() {  # WORDS COMMAND...: redis-cli prints them
  local words=$1
  shift
  cli "$@" && grep -qx -e "$words" "$work/cli" && return 0
  sed 's/^/  /' "$work/cli"
  return 1
}
check "redis-cli sets" answers OK set key value
check "and gets" answers value get key
check "and lists" answers key zrange pinstripe:keys - + BYLEX
check "and reads lines from its input" diff <(printf 'set a 1\nincr a\nget a\n' | redis-cli --no-auth-warning -p "$port" -a 1:asdfasdf) <(printf 'OK\n2\n2\n')
check "and waits until it is safe" answers 1 waitaof 1 0 0
check "and mass-inserts" grep -q "errors: 0, replies: 1000" <(for ((i = 0; i < 1000; i++)); do printf 'SET pipe%d %d\r\n' $i $i; done | redis-cli --no-auth-warning -p "$port" -a 1:asdfasdf --pipe)
check "and scans" [ "$(redis-cli --no-auth-warning -p "$port" -a 1:asdfasdf --scan --pattern 'pipe*' | sort -u | wc -l)" -eq 1000 ]
check "nobody is in without a key" grep -q NOAUTH <(redis-cli -p "$port" get key)
check "TLS is served" grep -qx value <(redis-cli --tls --cacert "$work/ca.pem" -p "$tls_port" --no-auth-warning -a 1:asdfasdf get key)
check "and hangs up on who has none" grep -q "closed\|reset" <(timeout 20 redis-cli -p "$tls_port" get key 2>&1)
check "python3-redis has what it needs" /usr/bin/python3 "$here/resp_client.py" use "$port"
check "also where changes are written through" /usr/bin/python3 "$here/resp_client.py" use "$safe_port"
check "and node-redis" env NODE_PATH=/usr/share/nodejs node "$here/resp_client.js" "$port"
redis-server --port "$other_port" --bind 127.0.0.1 --save "" --dir "$work" >/dev/null &
servers[redis]=$!
check "a redis-server starts" wait_until 30 redis-cli -p "$other_port" ping
cli flushall
check "whose answers are the same" /usr/bin/python3 "$here/resp_client.py" compare "$port" "$other_port"
benchmark() {  # PORT OPTIONS...: it ends well, and has measured something
  redis-benchmark -p "$1" -a 1:asdfasdf -q "${@:2}" >"$work/benchmark" 2>&1 &&
    ! grep -qi error "$work/benchmark" && grep -q "requests per second" "$work/benchmark" && return 0
  tail -n 5 "$work/benchmark" | sed 's/^/  /'
  return 1
}
check "redis-benchmark runs" benchmark "$port" -n 5000 -t ping,set,get,incr,hset,mset
check "with a pipeline and many keys" benchmark "$port" -n 20000 -P 16 -r 10000 -d 1024 -t set,get
check "with threads" benchmark "$port" -n 20000 --threads 2 -t set,get
check "and written through" benchmark "$safe_port" -n 300 -r 1000 -t set,get

# --- kill -9 under load

killed_and_back() {  # DRIVE PORT
  /usr/bin/python3 "$here/resp_client.py" load "$2" "$work/load-$1" &
  local loader=$!
  confirmed() { [ "$(wc -l <"$work/load-$1")" -ge 300 ]; }
  wait_until 60 confirmed "$1" || return 1
  dev kill "$1"
  wait $loader || return 1
  dev start "$1"
  /usr/bin/python3 "$here/resp_client.py" verify "$2" "$work/load-$1"
}
check "what was confirmed is there after kill -9" killed_and_back 1 "$port"
check "also where it is written through" killed_and_back 2 "$safe_port"

# --- and the cluster

make_file "$work/file" 3000003
sum=$(sum_of "$work/file")
upload "$work/file" /file || give_up "upload"
check "the cluster is in order" says 0 "everything is in order" check "$config"
check "a collection leaves these keys alone" says 0 "" collect "$config"
check "so they are all there" /usr/bin/python3 "$here/resp_client.py" verify "$port" "$work/load-1"
check "removing all keys" answers OK flushall
check "leaves the cluster alone" says 0 "everything is in order" check "$config"

# --- configurations

clear_keys() { sed 's/^listen = .*/listen = "0.0.0.0"/; s/^\[daemon\]/&\nfactory_key = "allow"/' "$file"; }
clear_keys >"$work/clear.toml"
check "keys in clear text are for this machine" grep -q 'clear_keys = "allow"' <("$build/daemon/pinstriped" --config "$work/clear.toml" 2>&1)
finish
