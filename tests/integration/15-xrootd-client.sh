#!/bin/bash
# Random creates, writes, appends, truncates and reads through XRootD's Python binding match plain bytes, and
# every operation of XRootD's clients does what they expect.
. "$(dirname "$0")/lib.sh"

cluster_up random --layout 4+2 --drives 8 --one-process
xrdfs "$url" mkdir /random && xrdfs "$url" mkdir /operations || give_up "mkdir"
seed=${SEED:-$RANDOM}
check "random operations match plain bytes (SEED=$seed)" \
  timeout 240 /usr/bin/python3 -B "$(dirname "$0")/xrootd_random.py" "$url/random" "$seed" "${OPERATIONS:-1500}"
check "clients find what they expect" timeout 240 /usr/bin/python3 -B "$(dirname "$0")/xrootd_operations.py" "$url/operations"
finish
