#!/bin/bash
# demo.sh BUILD: a real ROOT file through xrootd onto 4+2 drives, read back after two of them were
# killed. `./dev demo` builds what it needs and runs it. Prints each step; ends with one line of success,
# or with the reason of the failure, and leaves nothing running either way.
set -euo pipefail

build=$(realpath "${1:?usage: demo.sh BUILD_DIRECTORY}")
project=$(realpath "$(dirname "$0")/..")
pinstripe=$build/tools/pinstripe
python=$project/.venv/bin/python
step=0
doing="start"
base=

say() { printf '\n\033[1m%d. %s\033[0m\n' $((++step)) "$1"; doing=$1; }
fail() { echo "demo: $*" >&2; exit 1; }
run() { echo "\$ $*"; "$@"; }

tear_down() {
  if [ -n "$base" ]; then
    if [ -e "$base/cluster/dev.json" ]; then "$pinstripe" dev down --delete "$base/cluster"; fi
    rm -rf "$base"
  fi
}
at_exit() {
  local code=$?
  trap - EXIT
  if [ $code -ne 0 ]; then
    echo
    echo "The gateway's last words:"
    tail -n 15 "$base/cluster/gateway/log" 2>/dev/null || true
  fi
  tear_down || code=1
  if [ $code -ne 0 ]; then echo "DEMO FAILED at: $doing" >&2; fi
  exit $code
}
trap at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

same() {  # WHAT A B
  if [ "$2" != "$3" ]; then fail "$1 differs: $2 and $3"; fi
  echo "$1: $2, the same"
}
sum() { sha256sum "$1" | cut -d' ' -f1; }

# --- what it takes ---

[ -x "$pinstripe" ] || fail "$pinstripe is not built; run ./dev demo"
for tool in xrootd xrdcp xrdfs fusermount3 sha256sum; do
  [ -n "$(type -P "$tool")" ] ||
    fail "$tool is missing: apt install xrootd-server xrootd-client fuse3 coreutils"
done
/usr/bin/python3 -c 'import XRootD, venv' 2>/dev/null ||
  fail "Python's part is missing: apt install python3-venv python3-xrootd"
[ -e /dev/fuse ] || fail "/dev/fuse is missing: this kernel or container has no FUSE"

base=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-demo.XXXXXX")
chmod 755 "$base"  # the gateway's user must come through
cluster=$base/cluster
mount=$base/mount

say "Python with uproot, in .venv"
if ! "$python" -c 'import uproot, fsspec_xrootd, XRootD' 2>/dev/null; then
  # The system's packages are seen for XRootD's own binding, which fsspec-xrootd works with; without
  # --no-deps pip would build another one.
  run /usr/bin/python3 -m venv --system-site-packages "$project/.venv"
  run "$project/.venv/bin/pip" install -q --disable-pip-version-check \
    'uproot>=5.6,<6' 'awkward>=2.7,<3' 'numpy>=2,<3' 'fsspec>=2025.3'
  run "$project/.venv/bin/pip" install -q --disable-pip-version-check --no-deps 'fsspec-xrootd>=0.5,<0.6'
  "$python" -c 'import uproot, fsspec_xrootd, XRootD' || fail "uproot cannot be used from .venv"
fi
"$python" -c 'import uproot, XRootD; print("uproot", uproot.__version__, "with", XRootD.__file__)'

say "A cluster: 8 drives, 4+2, an xrootd gateway, a mount"
run "$pinstripe" dev up "$cluster" --mount "$mount"
url=$("$pinstripe" dev status --json "$cluster" | sed -n 's/.*"url": "\(.*\)".*/\1/p')
[ -n "$url" ] || fail "the gateway has no URL"
run "$pinstripe" status "$cluster/cluster.toml"

say "A ROOT file of some 200 MB"
file=$base/events.root
run "$python" -B "$project/tools/demo_tree.py" make "$file"
ls -l "$file"

say "Upload"
run xrdcp --nopbar "$file" "$url/data/events.root"

say "List and stat"
run xrdfs "$url" ls -l /data
run xrdfs "$url" stat /data/events.root
same "size of events.root" "$(stat -c %s "$file")" \
  "$(xrdfs "$url" stat /data/events.root | sed -n 's/^Size: *//p')"
same "adler32 of events.root" "$("$python" -B "$project/tools/demo_tree.py" adler32 "$file")" \
  "$(xrdfs "$url" query checksum /data/events.root | cut -d' ' -f2)"

say "The same file through the mount"
run ls -l "$mount/data"
run cmp "$file" "$mount/data/events.root" || fail "the mount shows other bytes"

say "Kill two drives with SIGKILL"
run "$pinstripe" dev kill "$cluster" 3 6
code=0
run "$pinstripe" status "$cluster/cluster.toml" || code=$?
[ $code -eq 1 ] || fail "with two drives down the cluster must be degraded, not more nor less"

say "Download without them"
run xrdcp --nopbar "$url/data/events.root" "$base/copy.root"
same "sha256 of events.root" "$(sum "$file")" "$(sum "$base/copy.root")"

say "Analyse over root://, still without them"
original=$("$python" -B "$project/tools/demo_tree.py" histogram "$file")
remote=$("$python" -B "$project/tools/demo_tree.py" histogram "$url/data/events.root")
same "histogram of events.root" "$original" "$remote"

say "Start the drives again"
run "$pinstripe" dev start "$cluster" 3 6
run "$pinstripe" status "$cluster/cluster.toml" || fail "the cluster is not healthy again"

say "Tear down"
tear_down
trap - EXIT
echo
echo "DEMO SUCCEEDED: with two of eight drives killed, every byte came back."
