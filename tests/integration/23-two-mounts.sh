#!/bin/bash
# Two mounts change the same files: the outcomes are those of docs/semantics.md, "Two writers".
. "$(dirname "$0")/lib.sh"

needs_fuse
cluster_up two --layout 4+2 --drives 8 --no-gateway
for name in async a b; do
  mkdir "$work/mount-$name"
  # Only root may let others in without asking the machine's configuration.
  options=$([ "$(id -u)" = 0 ] && echo "allow_other,")
  [ $name != async ] || options+=dirops=async
  "$build/fuse/pinstripe-fuse" "$config" "$work/mount-$name" -o "$options" || give_up "cannot mount"
done
check "one whose new files appear later keeps its promises" timeout 100 /usr/bin/python3 -B \
  "$(dirname "$0")/two_mounts.py" "$work/mount-async" "$work/mount-a" async
rm -rf "$work"/mount-a/*
check "and is what programs expect" timeout 240 /usr/bin/python3 -B "$(dirname "$0")/posix_mount.py" "$work/mount-async"
check "both see what is promised" timeout 200 /usr/bin/python3 -B "$(dirname "$0")/two_mounts.py" \
  "$work/mount-a" "$work/mount-b"
check "and everything is in order" says 0 "everything is in order" check "$config"
finish
