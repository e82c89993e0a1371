#!/bin/bash
# Our client against the Kinetic Java simulator, Seagate's own implementation of the drive's side: each operation on
# one; a 4+2 cluster on six of them behind a real xrootd, with an upload, two of them killed, and a degraded read;
# and a cluster in which they are mixed with pinstriped.

. "$(dirname "$0")/lib.sh"

need_simulator

# --- one ---

free_port
first=$port
start_simulator "$first"
wait_for_simulator "$first"
measured() {  # VALUE OPTION...: the benchmark checks what it is answered
  timeout 120 "$pinstripe" bench drive --url "127.0.0.1:$first" --records 100 --seconds 0.3 --value "$@" \
    >"$work/bench" 2>&1 || { sed 's/^/  /' "$work/bench"; return 1; }
}
for value in 0B 120B 4KiB 1MiB; do
  check "each operation works on a simulator, with values of $value" measured $value \
    --op put,get,missing,head,next,previous,range,delete
done
check "and with durable changes" measured 64KiB --op put,get,delete --sync write-through

# --- clusters ---

# A development cluster gives us the gateway and the files. Its drives are emptied, or become a simulator at PORT
# instead, and are formatted anew; never by force, so that nobody else's drive can be harmed.
cluster_on() {  # NAME PORT|own...
  cluster_up "$1" --layout 4+2 --drives 6
  dev kill gateway 1 2 3 4 5 6
  sed -i "s/^name = .*/name = \"$1\"/" "$config"
  shift
  local id=0
  for port in "$@"; do
    id=$((id + 1))
    if [ "$port" = own ]; then
      new_disk $id
      dev start $id
    else
      sed -i "/^id = $id\$/,/^address/s/^address = .*/address = \"127.0.0.1:$port\"/" "$config"
    fi
  done
  timeout 120 "$pinstripe" format "$config" >"$work/format" 2>&1 || give_up "format: $(cat "$work/format")"
  dev start gateway
  wait_until_healthy
}

start_simulators() {  # COUNT: sets `ports` and `simulators`
  ports=()
  simulators=()
  while [ ${#ports[@]} -lt "$1" ]; do
    free_port
    start_simulator "$port"
    ports+=("$port")
    simulators+=("$simulator")
  done
  for port in "${ports[@]}"; do wait_for_simulator "$port"; done
}

kill_simulator "$simulator"
start_simulators 6
cluster_on foreign "${ports[@]}"
pass "six simulators make a healthy cluster of 4+2"
make_file "$work/large" 50000001
make_file "$work/small" 300
large=$(sum_of "$work/large")
small=$(sum_of "$work/small")
check "xrdcp uploads to them" upload "$work/large" /large
check "and a small file" upload "$work/small" /small
check "what was uploaded is there" holds /large "$large"
kill_simulator "${simulators[1]}" "${simulators[4]}"
check "it is there with two simulators killed" holds /large "$large"
check "and so is the small file" holds /small "$small"
check "an upload goes on without them" upload "$work/small" /later
check "and is there" holds /later "$small"
cluster_down
kill_simulator "${simulators[0]}" "${simulators[2]}" "${simulators[3]}" "${simulators[5]}"

start_simulators 3
cluster_on mixed "${ports[0]}" own "${ports[1]}" own "${ports[2]}" own
pass "three simulators and three pinstriped make one"
check "xrdcp uploads to both kinds" upload "$work/large" /large
check "what was uploaded is there" holds /large "$large"
kill_simulator "${simulators[0]}"
dev kill 2
check "it is there without one of each" holds /large "$large"

finish
