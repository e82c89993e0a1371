#!/bin/bash
# Drills at a site of four hosts with three disks each, two gateways, a mount, a console and Debian's Prometheus, over
# TLS, each machine with a network and a name of its own. What is away or broken is really so. While clients read and
# write, the drill types what docs/drills.md tells to type, and fails where that page and the programs disagree.
#
#   tests/drills/drills.sh BUILD [--write] [DRILL...]    (as root; ./dev drills builds before)
#
# --write has the page tell what was seen. The drills are the functions drill_* of inside.sh.
set -euo pipefail

project=$(realpath "$(dirname "$0")/../..")
[ "${1:-}" != unshared ] || {
  # The packages' files over a copy of this system, which nobody else sees: what is written there goes to memory.
  work=$2
  mount --make-rprivate /
  mkdir "$work/memory" "$work/root"
  mount -t tmpfs tmpfs "$work/memory"
  mkdir "$work/memory/work"
  cp -a "$work/installed" "$work/memory/upper"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/memory/upper,workdir=$work/memory/work" "$work/root"
  mkdir "$work/root/machines" "$work/root/drills" "$work/root/checkout"
  mount --bind "$work/machines" "$work/root/machines"
  mount --bind "$work/drills" "$work/root/drills"
  mount --bind "$project" "$work/root/checkout"
  mount -t tmpfs tmpfs "$work/root/tmp"
  cp "$project"/tests/package/{checks,machines}.sh "$project/tests/drills/inside.sh" "$work/root/"
  . "$project/tests/package/fresh_root.sh"
  run_in_fresh_root "$work/root" "${@:3}"
  exit
}

build=$(realpath "${1:?which directory has the build?}")
shift
for needed in /dev/fuse /dev/loop-control; do
  [ -e $needed ] || { echo "SKIP drills: $needed is missing: this machine cannot mount"; exit 77; }
done
write=no
[ "${1:-}" != --write ] || { write=yes; shift; }
work=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-drills.XXXXXX")
status=1
leave() {  # what explains a failure stays
  if [ $status -ne 0 ] && [ -e "$work/drills/logs" ]; then
    rm -rf "${TMPDIR:-/tmp}/pinstripe-drills-logs"
    mv "$work/drills/logs" "${TMPDIR:-/tmp}/pinstripe-drills-logs"
    echo "drills: the logs are in ${TMPDIR:-/tmp}/pinstripe-drills-logs"
  fi
  rm -rf --one-file-system "$work"
}
trap leave EXIT
mkdir -p "$work/machines" "$work/drills/output" "$work/drills/logs"
DESTDIR=$work/installed cmake --install "$build" --strip >"$work/install.log" || { tail "$work/install.log"; exit 1; }
status=0
unshare --mount --net bash "$0" unshared "$work" "$@" || status=$?
chapter=$project/docs/drills.md
if [ $write = yes ]; then
  "$project/tests/drills/drills.py" write "$chapter" "$work/drills/output"
else
  "$project/tests/drills/drills.py" compare "$chapter" "$work/drills/output" || status=1
fi
exit $status
