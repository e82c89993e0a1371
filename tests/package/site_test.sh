#!/bin/bash
# A site from the packages alone, in a fresh Debian 12: four hosts with three disks each, two gateways and a mount, each
# with a network and a name of its own, over TLS. From nothing to a first file as docs/operations.md says it.
#
#   tests/package/site_test.sh build/packages       (as root; ./dev site-test makes what it needs)
set -euo pipefail

here=$(realpath "$(dirname "$0")")
. "$here/fresh_root.sh"
packages=$(realpath "${1:?which directory has the packages?}")
version=$(ls "$packages"/pinstriped_*.deb | sed 's/.*pinstriped_\(.*\)_.*/\1/' | sort -V | head -n 1)
for needed in /dev/fuse /dev/loop-control; do
  [ -e $needed ] || {
    echo "SKIP site_test: $needed is missing: this machine cannot mount"
    exit 77
  }
done

work=$(mktemp -d /tmp/pinstripe-site.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
make_fresh_root "$work/root" "$packages" "$here/site_inside.sh"
run_in_fresh_root "$work/root" "$version"
