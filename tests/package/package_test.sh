#!/bin/bash
# What a site does with the packages, in a fresh Debian 12: installs them, stores a first file by a gateway and by a
# mount, upgrades while clients write, removes and purges.
#
#   tests/package/package_test.sh build/packages       (as root; ./dev package-test makes what it needs)
#
# There has to be one version and a second that is higher. The fresh root has process and mount namespaces of its own, which take all
# that was started with them. No systemd runs in it: the daemons are started by the lines of their units.
set -euo pipefail

here=$(realpath "$(dirname "$0")")
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
root=$work/root
if [ -n "${DEBIAN_TAR:-}" ]; then  # one that was made before, for who works on this test
  mkdir "$root"
  tar -C "$root" --exclude='./dev/*' -xf "$DEBIAN_TAR"
else
  mmdebstrap --quiet --variant=apt bookworm "$root"
fi
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages/"
cp "$here/inside.sh" "$root/inside.sh"
cp -r "$here/../../debian/tests" "$root/tests"
cp /etc/resolv.conf "$root/etc/resolv.conf"
unshare --mount --pid --fork --uts --kill-child bash -euc '
  root=$1
  shift
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  hostname localhost
  exec chroot "$root" env -u LD_PRELOAD PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 bash /inside.sh "$@"
' _ "$root" "${versions[@]}"
