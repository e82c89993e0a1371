#!/bin/bash
# A gateway and a mount that show a directory of the cluster as if it were all of it. What somebody who may write there has
# laid to lead others out of it, leads nobody out.
. "$(dirname "$0")/lib.sh"

cluster_up part --layout 4+2 --drives 8 --one-process
read -r port < <(free_ports 1)
make_file "$work/file" 5000001
sum=$(sum_of "$work/file")
whole=$url
xrdfs "$whole" mkdir /part || give_up "mkdir"
upload "$work/file" /outside || give_up "upload"

exports() { sample "$1" xrootd-pinstripe.cfg -e "s/1094/$port/; s,cluster.toml.*,&$2,"; }
refuses() {  # NAME DIRECTORY WORDS
  exports "$1" "$2"
  ! try_to_serve "$1" xrootd xrootd-pinstripe.cfg && grep -q "$3" "$work/$1/xrootd.log"
}
check "a directory that is not there keeps the server from starting" refuses no-place " /none" "directory to be exported"
check "so does a file" refuses no-directory " /outside" "is not a directory"
check "and a path that is none" refuses relative " part" "begin with"
exports part " /part/"
serve part xrootd xrootd-pinstripe.cfg
url=root://localhost:$port/

ask() { timeout 60 xrdfs "$@" >"$work/said" 2>&1; }
check "an upload goes into the directory" upload "$work/file" /deep/file
check "and comes back" holds /deep/file "$sum"
lists_only() { ask "$url" ls / && [ "$(cat "$work/said")" = /deep ]; }
check "nothing else is seen" lists_only
is_not_reached() { ! ask "$url" stat /outside && ! ask "$url" stat /part && ! ask "$url" stat /../outside; }
check "nor reached" is_not_reached
has_sum() { ask "$url" query checksum /deep/file && grep -q "$(xrdadler32 "$work/file" | cut -d' ' -f1)" "$work/said"; }
check "its checksum is told" has_sum
check "attributes are set" ask "$url" xattr /deep/file set colour=red
check "it is renamed" ask "$url" mv /deep/file /new/file
url=$whole
check "in the whole cluster it is where it should be" holds /part/new/file "$sum"
has_attribute() { ask "$url" xattr /part/new/file get colour && grep -q red "$work/said"; }
check "with its attribute" has_attribute
url=root://localhost:$port/
check "it is removed" ask "$url" rm /new/file
check "with its directory" ask "$url" rmdir /new

if [ ! -e /dev/fuse ]; then
  echo "SKIP 29-exported-part: links that lead out of it: /dev/fuse is missing, and without a mount nobody can make any"
  finish
fi

# --- Ways out, with a mount of the whole cluster to lay them, and to see what came of it ---

all=$work/all
mkdir "$all"
"$build/fuse/pinstripe-fuse" "$config" "$all" || give_up "the cluster cannot be mounted"
echo "do not show" >"$all/secret"
mkdir "$all/away" && echo "do not show" >"$all/away/secret"
mkdir -p "$all/part/in/deep" && echo shown >"$all/part/in/deep/file" && echo shown >"$all/part/only" || give_up "files"
lay() { ln -s "$2" "$all/part/$1" || give_up "link $1"; }
climb=$(printf '../%.0s' $(seq 300))
lay absolute /secret
lay named /part/../secret
lay up ../secret
lay in/up ../../secret
lay in/deep/up "${climb}secret"
lay away /away
lay in/away ../../away
lay chain in/chain
lay in/chain ../absolute
lay root /
lay above ..
lay in/above ../..
lay down /in/deep
lay new /created
lay in/new "${climb}created-too"

shows() {  # PATH: the file of the part
  rm -f "$work/got"
  timeout 60 xrdcp --nopbar -f "$url$1" "$work/got" 2>/dev/null && [ "$(cat "$work/got")" = shown ]
}
# Whatever a client asks of these, nothing outside answers.
finds_nothing() {  # PATH...
  local path
  for path in "$@"; do
    ! ask "$url" stat "$path" && ! ask "$url" ls "$path" && ! timeout 60 xrdcp --nopbar -f "$url$path" "$work/got" 2>/dev/null &&
      ! ask "$url" query checksum "$path" && ! ask "$url" xattr "$path" set a=b && ! ask "$url" chmod "$path" rwx------ &&
      ! ask "$url" truncate "$path" 1 && continue
    echo "  $path: $(cat "$work/said")"
    return 1
  done
}
check "links to files outside lead to nothing" finds_nothing /absolute /named /up /in/up /in/deep/up /chain /in/chain //absolute
check "so do links to directories, and what is behind them" finds_nothing /away /in/away /away/secret /in/away/secret /away//secret
check "however they are combined" finds_nothing /root/root/absolute /above/above/secret /in/above/secret /root/in/above/away/secret
check "links within the part lead where they should" shows /down/file
check "and those that would leave it stay at its root" shows /above/above/only
check "in any order" shows /in/above/root/above/in/above/only
lists_the_part() { ask "$url" ls "$1" && grep -q "/only$" "$work/said" && ! grep -q "secret\|/part$" "$work/said"; }
check "a listing of its root by a link is one of the part" lists_the_part /above
check "by an absolute one, too" lists_the_part /root/
has_no_dots() { ! ask "$url" stat "/in/../../secret" && ! ask "$url" stat "/../secret" && ! ask "$url" stat "/in/.."; }
check "a client that sends '..' gets nothing" has_no_dots
untouched() {
  [ "$(cat "$all/secret")" = "do not show" ] && [ "$(cat "$all/away/secret")" = "do not show" ] && [ "$(ls "$all/away")" = secret ] &&
    [ ! -e "$all/created" ] && [ ! -e "$all/created-too" ]
}
makes_inside() {
  upload "$work/file" /new && holds /created "$sum" && upload "$work/file" /in/new && holds /created-too "$sum" &&
    [ -f "$all/part/created" ] && [ -f "$all/part/created-too" ]
}
check "an upload through a link to nothing stays in the part" makes_inside
makes_nothing() {
  ! upload "$work/file" /away/secret && ! upload "$work/file" /away/new && ! upload "$work/file" /in/away/x/new &&
    ! ask "$url" mkdir -p /in/away/x/y && ! ask "$url" mkdir /away/x
}
check "nothing is uploaded or made behind a link that leads outside" makes_nothing
check "so what is outside stays as it was" untouched
parents_are_inside() {
  ! ask "$url" rm /above/secret && ! ask "$url" rm /away/secret && ! ask "$url" rmdir /above/away && ! ask "$url" mv /above/secret /stolen &&
    ! ask "$url" mv /away/secret /stolen && ask "$url" mv /in/deep/file /above/above/moved && [ -f "$all/part/moved" ] &&
    ask "$url" mv /root/moved /in/deep/file && [ -f "$all/part/in/deep/file" ] && ask "$url" mkdir /above/made && [ -d "$all/part/made" ] &&
    ask "$url" rmdir /above/made && ask "$url" rm /absolute && [ ! -L "$all/part/absolute" ]
}
check "renames and removals take nothing from outside and put nothing there" parents_are_inside
check "and what is outside stays as it was" untouched
lists_quietly() { ask "$url" ls -l / && grep -q only "$work/said" && ! grep -q "away\|up$\|named" "$work/said"; }
check "a listing with attributes leaves links that lead nowhere out" lists_quietly

# A directory goes out and comes back while somebody goes up from it.
lay in/deep/race ../../secret
lay in/deep/race-too ../../../secret
move_about() {
  while [ ! -e "$work/enough" ]; do
    mv "$all/part/in/deep" "$all/away/" && mv "$all/away/deep" "$all/part/in/" || return 1
  done
}
move_about &
mover=$!
stays_inside() {
  for _ in $(seq 40); do
    ! ask "$url" cat /in/deep/race && ! ask "$url" cat /in/deep/race-too || return 1
  done
}
check "a directory that is moved out meanwhile takes nobody along" stays_inside
touch "$work/enough"
check "it was moved all the time" wait "$mover"

# --- A way to the part that somebody else may change ---

stop part xrootd
ln -s ../away "$all/part/export"
check "a part that a link leads to is not exported" refuses by-link " /part/export" "is a symbolic link"
mount=$work/mount
mkdir "$mount"
is_not_mounted() { ! "$build/fuse/pinstripe-fuse" "$config" "$mount" -o subdir=part/export 2>"$work/said" && grep -q "is a symbolic link" "$work/said"; }
check "nor mounted" is_not_mounted

# --- The same on a mount, where the kernel follows links ---

"$build/fuse/pinstripe-fuse" "$config" "$mount" -o subdir=/part || give_up "the part cannot be mounted"
echo "of this host" >"$work/secret"
kernel_follows() {
  local path
  [ "$(readlink "$mount/named")" = /part/../secret ] && [ "$(cat "$mount/down/file" 2>/dev/null)" != shown ] || return 1
  # One that climbs out of the mount is on this host, and never in the cluster.
  [ "$(cat "$mount/up")" = "of this host" ] && [ "$(cat "$mount/in/up")" = "of this host" ] || return 1
  for path in named in/deep/up chain away/secret in/away/secret root/secret; do
    ! grep -qs "do not show" "$mount/$path" || { echo "  $path"; return 1; }
  done
}
check "links are followed on this host, not in the cluster" kernel_follows
dots_stay() {
  [ "$(stat -c %i "$mount/..")" = "$(stat -c %i "$work")" ] && [ "$(cd -P "$mount/in/deep/../../.." && pwd -P)" = "$(realpath "$work")" ] &&
    [ "$(ls -ai "$mount" | awk '$2 == ".." {print $1}')" != "$(stat -c %i "$all")" ]
}
check "and '..' of its root is where it is mounted" dots_stay
opens_nothing_by_number() {
  /usr/bin/python3 - "$mount" "$all" <<'END'
import ctypes, errno, os, sys
mount, everything = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]
def handle_of(path):
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount_id), 0) != 0:
        sys.exit(f"name_to_handle_at {path}: {os.strerror(ctypes.get_errno())}")
    return handle
root = os.open(mount, os.O_RDONLY)
def failure_of(handle):
    fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0
# The mount opens again what it knows. By a number from another mount, nobody finds what he was not shown.
assert failure_of(handle_of(mount + "/in/deep")) == 0
for path in "/secret", "/away", "/away/secret":
    failed = failure_of(handle_of(everything + path))
    assert failed == errno.ESTALE, (path, failed)
# Who is in a directory when it is moved out of the part goes up to where he came from.
inside = os.open(mount + "/in/deep", os.O_RDONLY)
os.rename(everything + "/part/in/deep", everything + "/away/deep")
try:
    try:
        names = os.listdir(os.open("..", os.O_RDONLY, dir_fd=inside))
        assert "secret" not in names, names
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.ESTALE), error
    assert "file" in os.listdir(inside)
finally:
    os.rename(everything + "/away/deep", everything + "/part/in/deep")
END
}
if [ "$(id -u)" = 0 ]; then check "a number from outside opens nothing, nor does '..' lead there" opens_nothing_by_number; fi
links_nothing() { ! ln "$all/secret" "$mount/stolen" 2>/dev/null && [ ! -e "$mount/stolen" ]; }
check "what another mount shows cannot be given a name in it" links_nothing
for one in "$mount" "$all"; do fusermount3 -u "$one" || flunk "unmounting $one"; done
finish
