#!/bin/bash
# What a site does with the packages, in a fresh Debian 12: installs them, stores a first file by a gateway and by a
# mount, upgrades while clients write, removes and purges.
#
#   tests/package/package_test.sh build/packages       (as root; ./dev package-test makes what it needs)
#
# There has to be one version and a second that is higher.
set -euo pipefail

here=$(realpath "$(dirname "$0")")
. "$here/fresh_root.sh"
packages=$(realpath "${1:?which directory has the packages?}")
mapfile -t versions < <(ls "$packages"/pinstriped_*.deb | sed 's/.*pinstriped_\(.*\)_.*/\1/' | sort -V)
[ ${#versions[@]} -eq 2 ] || {
  echo "package_test: $packages has ${#versions[@]} versions of pinstriped, and an upgrade needs 2: ${versions[*]}" >&2
  exit 1
}
[ -e /dev/fuse ] || {
  echo "SKIP package_test: /dev/fuse is missing: this machine cannot mount"
  exit 77
}

work=$(mktemp -d /tmp/pinstripe-package.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
make_fresh_root "$work/root" "$packages" "$here/inside.sh"
cp -r "$here/../../debian/tests" "$work/root/tests"
run_in_fresh_root "$work/root" "${versions[@]}"
