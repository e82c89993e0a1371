#!/bin/bash
# fio writes in every way that it knows, reads back, and verifies every block: FIO_MEGABYTES (24) for each way.
. "$(dirname "$0")/lib.sh"

needs_fuse
fuse=$build/fuse/pinstripe-fuse
cluster_up fio --layout 4+2 --drives 8 --no-gateway
mount=$work/mount
mkdir "$mount"
"$fuse" "$config" "$mount" || give_up "mounting"

verified() {  # NAME OPTIONS...
  local name=$1
  shift
  timeout 200 fio --directory="$mount" --size="${FIO_MEGABYTES:-24}m" --name="$name" --verify=crc32c --verify_fatal=1 \
    --do_verify=1 --verify_state_save=0 --output="$work/$name.fio" "$@" && return 0
  tail -n 20 "$work/$name.fio" | sed 's/^/  /'
  return 1
}
check "sequential" verified sequential --rw=write --bs=1m --ioengine=psync --end_fsync=1
check "random, in blocks of many sizes" verified random --rw=randwrite --bsrange=512-256k --ioengine=psync --size=12m
check "random, of 4 KiB, four files at once" verified small --rw=randwrite --bs=4k --ioengine=psync --size=2m --numjobs=4
check "through memory maps" verified mapped --rw=randwrite --bs=4k --ioengine=mmap --size=12m
check "past the page cache" verified direct --rw=randwrite --bs=64k --ioengine=psync --direct=1
check "past the page cache, with 16 on their way" verified queued --rw=randwrite --bs=128k --ioengine=libaio --iodepth=16 --direct=1
check "reading between writing" verified mixed --rw=randrw --bs=16k --ioengine=psync --size=12m
check "with fsync after every eighth" verified synced --rw=randwrite --bs=16k --ioengine=psync --fsync=8 --size=4m

# A mount with nothing in memory finds what the ones before have written, with two drives dead.
fusermount3 -u "$mount" && "$fuse" "$config" "$mount" || give_up "mounting again"
dev kill 1 2
check "and all of it is there after a restart, with two drives dead" verified sequential --rw=write --bs=1m --ioengine=psync \
  --verify_only --do_verify=1
finish
