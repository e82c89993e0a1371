#!/bin/bash
# Random creates, writes, appends, truncates and reads through XRootD's Python binding match plain bytes, and
# every operation of XRootD's clients does what they expect: where XRootD's own storage does the same, its
# server passes the same tests.
. "$(dirname "$0")/lib.sh"

cluster_up random --layout 4+2 --drives 8 --one-process --share-connections
# XRootD takes our CRC32C for that of uploads instead of its own.
is_taken() {
  local library
  library=$(grep -o '/.*libPinstripeCrc32c.so' "/proc/$(gateway_pid)/maps" | sort -u) || return 1
  # The linker says what becomes of each name; all of that first, so that nobody is cut off.
  LD_BIND_NOW=1 LD_DEBUG=bindings LD_PRELOAD=$library xrootd -v >"$work/bindings" 2>&1
  grep -q "libXrdUtils.* to .*libPinstripeCrc32c.so .*symbol .*crc32c" "$work/bindings"
}
check "checksums of uploads are computed by libPinstripeCrc32c" is_taken
has_jemalloc() {
  grep -q '/.*libjemalloc.so.2' "/proc/$(gateway_pid)/maps" || return 1
  # The options are those that etc/ has.
  local options
  options=$(sed -n 's/^Environment=MALLOC_CONF=//p' "$project/etc/xrootd-pinstripe.conf")
  [ -n "$options" ] && tr '\0' '\n' <"/proc/$(gateway_pid)/environ" | grep -qx "MALLOC_CONF=$options"
}
# No sanitizer, and nobody who has other wishes.
if ldd "$pinstripe" | grep -q libjemalloc && [ -z "${MALLOC_CONF:-}" ]; then
  check "the gateway has the allocator that the sample gives it" has_jemalloc
fi
xrdfs "$url" mkdir /random && xrdfs "$url" mkdir /operations || give_up "mkdir"
seed=$(seed_of)
check "random operations match plain bytes (SEED=$seed)" \
  timeout 240 /usr/bin/python3 -B "$(dirname "$0")/xrootd_random.py" "$url/random" "$seed" "${OPERATIONS:-1500}"
port=${url##*:}
check "a page that arrives damaged is wanted again, and nothing is committed without it" \
  timeout 120 /usr/bin/python3 -B "$(dirname "$0")/xrootd_pages.py" 127.0.0.1 "${port%%/*}" //random/pages
check "clients find what they expect" timeout 240 /usr/bin/python3 -B "$(dirname "$0")/xrootd_operations.py" "$url/operations"

read -r plain_port < <(free_ports 1)
sample plain xrootd-pinstripe.cfg -e "s/1094/$plain_port/; s,^ofs.osslib.*,oss.localroot $work/plain/files,"
mkdir "$work/plain/files"
give_to_gateway "$work/plain/files"
serve plain xrootd xrootd-pinstripe.cfg
check "and what a plain server does as well" \
  timeout 240 /usr/bin/python3 -B "$(dirname "$0")/xrootd_operations.py" --plain root://localhost:$plain_port//operations
finish
