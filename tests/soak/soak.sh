#!/bin/bash
# A gateway under 64 clients while drives die and come back: no byte is wrong, nothing fails, and neither its memory
# nor its threads grow. SOAK_SECONDS says how long, SOAK_CLIENTS how many.
. "$(dirname "$0")/../integration/lib.sh"

cluster_up soak --layout 4+2 --drives 8
# A cache that is full soon, so that growth is growth.
printf '\n[limits]\nmemory = "256 MiB"\n' >>"$config"
empty_gateway
xrdfs "$url" mkdir /soak || give_up "mkdir"
check "for ${SOAK_SECONDS:-600} s nothing is wrong, and nothing grows" /usr/bin/python3 -B "$(dirname "$0")/soak.py" \
  "$pinstripe" "$cluster" "${url%/}" "${SOAK_SECONDS:-600}" "${SOAK_CLIENTS:-64}"
dev start $(seq 1 8)
wait_until_healthy
is_whole() { "$pinstripe" repair "$config" >"$work/said" 2>&1 && "$pinstripe" verify "$config" >"$work/said" 2>&1 || { tail -n 5 "$work/said"; return 1; }; }
check "and after a repair the cluster is whole" is_whole
finish
