#!/bin/bash
# Access control lists on a mount: setfacl, getfacl, chmod, new files, copies and users do what they do on a local file
# system, and two mounts and the gateway go by the same lists.
. "$(dirname "$0")/lib.sh"
needs_fuse

mount=$work/mount
cluster_up acls --layout 4+2 --drives 8 --mount "$mount"
beside=$work/beside
mkdir "$beside"
setfacl -m u:77:r "$beside" 2>/dev/null && setfacl -b "$beside" || {
  echo "SKIP 38-acls: $work is on a file system without ACLs, so there is nothing to compare with"
  exit 77
}

says_and_code() { "$@" 2>&1 | sed 's/^[a-z/]*setfacl: /setfacl: /'; echo "-> ${PIPESTATUS[0]} of: $*"; }
show() {
  for one in "$@"; do
    stat -c '%n %A' "$one"
    getfacl -n "$one" | grep -v '^#'
    getfattr -h --absolute-names -m - -d -e hex "$one" | grep -v '^#' | grep -v '^security.selinux'
  done
}
link_unnamed() {  # FILE: made without a name, and then given that one
  /usr/bin/python3 - "$1" <<'END'
import os, sys
root = os.open("/", os.O_RDONLY)
fd = os.open(os.path.dirname(sys.argv[1]), os.O_TMPFILE | os.O_RDWR, 0o664)
os.link(f"/proc/self/fd/{fd}", os.path.abspath(sys.argv[1]), src_dir_fd=root)
END
}
# The same commands wherever they are done.
lists() (
  cd "$1" && umask 027
  echo x >file
  setfacl -m u:77:rw,g:5:r file && show file
  chmod 604 file && show file
  chmod 4670 file && show file
  setfacl -m m::r file && show file
  setfacl -m u::rwx,o::x file && show file
  setfacl -x u:77 file && show file
  setfacl -b file && show file
  setfacl -m u:77:rw file && setfattr -x system.posix_acl_access file && show file
  says_and_code setfattr -x system.posix_acl_access file
  says_and_code setfattr -x system.posix_acl_default file
  says_and_code setfacl -d -m u:77:rw file
  says_and_code setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff file
  says_and_code setfattr -n system.posix_acl_access -v 0x03000000 file
  show file
  ln -s file link && says_and_code setfattr -h -n system.posix_acl_access -v 0x02000000 link
  setfacl -m "$(for id in $(seq 1000 1400); do printf 'u:%s:r,' "$id"; done)m::rwx" file && getfacl -n file | sha256sum
  setfacl -b file
)
inheritance() (
  cd "$1" && umask 077
  mkdir d && setfacl -d -m u:77:rwx,g:5:r-x d && show d
  mkdir d/e && mkdir -m 705 d/e/f && echo x >d/e/f/file && mkfifo d/fifo && mkfifo -m 640 d/other && ln -s x d/link
  show d/e d/e/f d/e/f/file d/fifo d/other
  /usr/bin/python3 - <<'END'
import os, socket
os.close(os.open("d/executable", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o751))
socket.socket(socket.AF_UNIX).bind("d/socket")
os.mknod("d/plain", 0o100666)
END
  link_unnamed d/unnamed
  show d/executable d/socket d/plain d/unnamed
  mv d/plain . && show plain
  setfacl -k d && show d && mkdir d/g && echo x >d/h && mkfifo d/i && link_unnamed d/j && show d/g d/h d/i d/j
  mkdir simple && setfacl -d -m u::rwx,g::rx,o::- simple && echo x >simple/file && mkdir simple/d && show simple/file simple/d
  mkdir group && chown 0:5 group && chmod 2775 group && setfacl -d -m g:6:rwx group && mkdir group/d && show group/d
)
copies() (
  cd "$1" && umask 022
  mkdir tree && setfacl -m u:77:rwx -m d:u:78:rx tree && echo x >tree/file && setfacl -m g:5:rw tree/file
  cp -a tree copied && cp --preserve=mode tree/file single && show copied copied/file single
  rsync -aA tree/ synced && show synced synced/file
  rsync -aAnci tree/ synced
  tar --acls -cf tree.tar tree && mkdir unpacked && tar --acls -xpf tree.tar -C unpacked && show unpacked/tree unpacked/tree/file
  getfacl -Rn tree >saved && setfacl -Rb tree && setfacl --restore=saved && show tree tree/file
)
as() {  # USER GROUP GROUPS COMMAND...
  local user=$1 group=$2 groups=$3
  shift 3
  setpriv --reuid="$user" --regid="$group" "$groups" -- "$@" >/dev/null 2>&1
  echo "$user $group $groups $*: $?"
}
users() (
  cd "$1" && umask 022 && chmod 755 .
  echo x >file && chown 1234:4321 file && chmod 600 file && setfacl -m u:77:rw,u:78:-,g:5:r,g:6:rw,m::rw file
  mkdir room && chmod 700 room && setfacl -m u:77:rwx,g:5:x room && echo y >room/file && chmod 644 room/file
  for who in "77 99 --clear-groups" "78 99 --clear-groups" "79 99 --clear-groups" "79 5 --clear-groups" "79 99 --groups=6" \
    "79 99 --groups=5,6" "78 99 --groups=6" "79 4321 --clear-groups" "1234 99 --clear-groups"; do
    # shellcheck disable=SC2086
    for do in "cat file" "truncate -s 2 file" "cat room/file" "ls room" "touch room/new" "rm room/new" "setfacl -m u:79:r file"; do
      as $who $do
    done
  done
  setfacl -m m::r file && as 77 99 --clear-groups truncate -s 2 file
  chmod g-r file && as 77 99 --clear-groups cat file
  setfacl -b room && as 77 99 --clear-groups cat room/file
  # Who is in the group keeps the set-group-id bit, others lose it.
  for who in "1234 99 --clear-groups" "1234 4321 --clear-groups" "1234 99 --groups=7,4321"; do
    chmod 2755 file
    # shellcheck disable=SC2086
    as $who setfacl -m u:77:rx file
    show file
  done
)
# Who has a list is shown by a "+", and nobody else.
marks() (
  mkdir "$1/marks" && cd "$1/marks" && umask 022
  echo x >marked && echo x >plain && mkdir room && mkfifo pipe && ln -s plain to
  listing() { ls -l | awk 'NR > 1 {print $1, $9}'; }
  listing
  getfattr -n system.posix_acl_access plain 2>&1 | sed 's,^/.*/,,'
  setfacl -m u:77:rw marked && setfacl -m d:u:77:rw room && listing
  cp -a marked copied && chmod 600 marked && mkdir room/new && mv copied room && listing && ls -l room | awk 'NR > 1 {print $1, $9}'
  getfattr --absolute-names -n system.posix_acl_access -e hex marked
  getfacl -n plain marked room
)
# Once the kernel has forgotten what it was told of them with their lists.
forgets_marks() {
  setfacl -b "$mount/marks/marked" "$mount/marks/room" && wait_until 30 has_no_mark
}
has_no_mark() { [ "$(ls -l "$mount/marks" | grep -c '^[-drwxsp]*+')" = 0 ]; }
the_same() {  # STORY
  "$1" "$beside" >"$work/$1.local" 2>&1
  "$1" "$mount" >"$work/$1.mount" 2>&1
  [ "$(wc -l <"$work/$1.local")" -gt 20 ] && diff "$work/$1.local" "$work/$1.mount"
}
check "lists are set, changed by modes, and removed, as elsewhere" the_same lists
check "what is made in a directory inherits as elsewhere" the_same inheritance
check "copies keep them as elsewhere" the_same copies
check "a listing shows who has one, as elsewhere" the_same marks
check "and a while after it was removed that there is none" forgets_marks

others_may_come() { setpriv --reuid=77 --regid=99 --clear-groups -- test -d "$1"; }
if [ "$(id -u)" = 0 ] && others_may_come "$beside"; then
  fusermount3 -u "$mount"
  mounted() { "$build/fuse/pinstripe-fuse" "$config" "$1" -o "allow_other${2:-}"; }
  mounted "$mount" || give_up "it cannot be mounted for others"
  check "users may do what they may elsewhere" the_same users

  other=$work/other
  mkdir "$other"
  mounted "$other" || give_up "there is no second mount"
  echo x >"$mount/shared" && chmod 600 "$mount/shared"
  may_read() { setpriv --reuid=77 --regid=99 --clear-groups -- cat "$1" >/dev/null 2>&1; }
  allowed_there() {
    may_read "$other/shared" && return 1
    setfacl -m u:77:r "$mount/shared" && wait_until 5 may_read "$other/shared" && may_read "$mount/shared"
  }
  check "another mount goes by a list that was set here" allowed_there
  may_not_read() { ! may_read "$1"; }
  refused_there() { setfacl -b "$mount/shared" && wait_until 5 may_not_read "$other/shared"; }
  check "and by its end" refused_there
  setfacl -m u:77:r "$mount/shared"
  fusermount3 -u "$other"

  mounted "$other" ,noacl || give_up "there is no mount without lists"
  without() {
    ! may_read "$other/shared" && ! setfacl -m u:78:r "$other/shared" 2>"$work/said" && grep -q "not supported" "$work/said" &&
      getfattr -m - -d "$other/shared" >"$work/said" && [ ! -s "$work/said" ] && chmod 640 "$other/shared" &&
      getfacl -pn "$mount/shared" | grep -q '^user:77:r--'
  }
  check "with noacl they are neither seen nor set, and do not count" without
  fusermount3 -u "$other"
else
  echo "SKIP 38-acls: what users may do: only root can try it, in a directory that all may enter"
fi

make_file "$work/file" 100000
uploads_inherit() {
  mkdir "$mount/uploads" && setfacl -m u::rwx,g::rwx,o::rwx -d -m u:77:rw "$mount/uploads" && chmod 777 "$mount/uploads" &&
    upload "$work/file" /uploads/file && getfacl -pn "$mount/uploads/file" >"$work/said" &&
    grep -q '^user:77:rw-' "$work/said" && setfacl -m u:78:r "$mount/uploads/file" &&
    upload "$work/file" /uploads/file && getfacl -pn "$mount/uploads/file" | grep -q '^user:78:r--'
}
check "uploads inherit, and replace files with their lists" uploads_inherit
finish
