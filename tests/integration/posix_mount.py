#!/usr/bin/python3
"""What programs expect of a directory, tried on a mount. Each test is a function whose name says what
must be true; it works in a directory of its own.

usage: posix_mount.py MOUNTPOINT [TEST...]
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import shutil
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import threading

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32
libc = ctypes.CDLL(None, use_errno=True)


def fails_with(code, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        assert error.errno == code, f"{os.strerror(error.errno)} instead of {os.strerror(code)}"
        return
    raise AssertionError(f"succeeded instead of: {os.strerror(code)}")


def write(path, data, mode="wb"):
    with open(path, mode) as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def rename2(source, target, flags):
    if libc.renameat2(-100, source.encode(), -100, target.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def child(function, *arguments):
    """Whether it says so in another process."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if function(*arguments) else 1)
        except BaseException as error:  # whatever it is, this process ends here
            print(error, file=sys.stderr)
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1), code
    return code == 0


# --- files ---

def test_what_was_written_is_read():
    data = random.randbytes(3_000_001)
    write("f", data)
    assert read("f") == data
    assert os.stat("f").st_size == len(data)


def test_a_new_file_is_empty_and_has_the_mode_that_was_asked_for():
    os.umask(0o027)
    os.close(os.open("f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    info = os.stat("f")
    assert stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) == 0o640, oct(info.st_mode)
    assert info.st_size == 0 and info.st_nlink == 1
    assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid())
    assert read("f") == b""


def test_exclusive_creation_fails_when_the_name_is_taken():
    write("f", b"x")
    fails_with(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_appending_goes_to_the_end_whoever_does_it():
    write("f", b"start\n")
    def append(letter):
        with open("f", "ab", buffering=0) as file:
            for _ in range(50):
                file.write(letter * 9 + b"\n")
    threads = [threading.Thread(target=append, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = read("f").split(b"\n")
    assert lines[0] == b"start" and len(lines) == 152, len(lines)
    assert all(lines.count(letter * 9) == 50 for letter in (b"a", b"b", b"c"))


def test_truncation_cuts_and_extends_with_zeros():
    write("f", b"x" * 200_000)
    os.truncate("f", 100_000)
    os.truncate("f", 150_000)
    assert read("f") == b"x" * 100_000 + bytes(50_000)
    with open("f", "r+b") as file:
        file.truncate(10)
        assert os.stat("f").st_size == 10
    write("f", b"short")  # O_TRUNC
    assert read("f") == b"short"


def test_holes_read_as_zeros():
    with open("f", "wb") as file:
        file.seek(10 << 20)
        file.write(b"end")
    data = read("f")
    assert len(data) == (10 << 20) + 3 and data.count(0) == 10 << 20 and data.endswith(b"end")
    assert os.stat("f").st_blocks * 512 < 10 << 20


def test_overwriting_the_middle_leaves_the_rest():
    data = bytearray(random.randbytes(9_000_000))
    write("f", data)
    dice = random.Random(5)
    with open("f", "r+b", buffering=0) as file:
        for _ in range(40):
            offset, piece = dice.randrange(9_000_000 - 70_000), dice.randbytes(dice.randrange(1, 70_000))
            os.pwrite(file.fileno(), piece, offset)
            data[offset:offset + len(piece)] = piece
    assert read("f") == data


def test_other_handles_see_a_write_at_once():
    writer = os.open("f", os.O_CREAT | os.O_RDWR)
    reader = os.open("f", os.O_RDONLY)
    os.pwrite(writer, b"hello", 3)
    assert os.pread(reader, 100, 0) == bytes(3) + b"hello"
    assert os.fstat(reader).st_size == 8 and os.stat("f").st_size == 8
    os.ftruncate(writer, 4)
    assert os.pread(reader, 100, 0) == bytes(3) + b"h"
    os.close(writer)
    os.close(reader)


def test_fsync_works_on_files_and_directories():
    with open("f", "wb") as file:
        file.write(b"safe")
        file.flush()
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def test_an_unlinked_file_stays_readable_through_its_handle():
    with open("f", "w+b") as file:
        file.write(b"still here")
        file.flush()
        os.unlink("f")
        assert not os.path.exists("f") and os.listdir(".") == []
        file.seek(0)
        assert file.read() == b"still here"
        file.write(b", and growing")
        file.flush()
        assert os.fstat(file.fileno()).st_size == 23


def test_shared_memory_maps_are_the_file():
    write("f", b"a" * 20_000)
    with open("f", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[5_000:5_003] = b"xyz"
        memory.flush()
    assert read("f")[4_999:5_004] == b"axyza"


def test_private_memory_maps_leave_the_file_alone():
    write("f", b"a" * 20_000)
    with open("f", "r+b") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as memory:
        memory[5_000:5_003] = b"xyz"
        assert memory[4_999:5_004] == b"axyza"
    assert read("f") == b"a" * 20_000


def test_direct_and_ordinary_handles_see_the_same():
    data = mmap.mmap(-1, 1 << 20)  # aligned memory
    data.write(random.randbytes(1 << 20))
    direct = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    ordinary = os.open("f", os.O_RDWR)
    assert os.pwritev(direct, [data], 4096) == 1 << 20
    assert os.pread(ordinary, 2 << 20, 0) == bytes(4096) + data[:]
    os.pwrite(ordinary, b"ordinary", 8192 + 5)
    back = mmap.mmap(-1, 8192)
    assert os.preadv(direct, [back], 8192) == 8192
    assert back[5:13] == b"ordinary" and back[13:] == data[4096 + 13:4096 + 8192]
    os.ftruncate(direct, 10_000)
    assert os.preadv(direct, [back], 8192) == 10_000 - 8192
    os.close(direct)
    os.close(ordinary)


def test_synchronous_writes_work():
    for flag in (os.O_SYNC, os.O_DSYNC):
        file = os.open("f", os.O_CREAT | os.O_WRONLY | os.O_APPEND | flag)
        assert os.write(file, b"safe ") == 5
        os.close(file)
    assert read("f") == b"safe safe "


def test_holes_are_punched_and_ranges_zeroed():
    data = bytearray(random.randbytes(20 << 20))
    write("f", data)
    blocks = os.stat("f").st_blocks
    with open("f", "r+b", buffering=0) as file:
        def change(mode, offset, length):
            fallocate(file.fileno(), mode, offset, length)
            until = offset + length if not mode & KEEP_SIZE else min(offset + length, len(data))
            data.extend(bytes(max(0, until - len(data))))
            data[offset:until] = bytes(max(0, until - offset))
            assert file.seek(0, os.SEEK_END) == len(data) and read("f") == data
        change(PUNCH_HOLE | KEEP_SIZE, 100, 5_000)
        change(PUNCH_HOLE | KEEP_SIZE, 1 << 20, 10 << 20)
        change(ZERO_RANGE | KEEP_SIZE, 11_999_999, 1_000_001)
        change(PUNCH_HOLE | KEEP_SIZE, 19 << 20, 5 << 20)
        change(ZERO_RANGE, (20 << 20) - 7, 500)
        fails_with(errno.EOPNOTSUPP, fallocate, file.fileno(), PUNCH_HOLE, 0, 4096)
        fails_with(errno.EOPNOTSUPP, fallocate, file.fileno(), COLLAPSE_RANGE, 0, 4096)
        fails_with(errno.EOPNOTSUPP, fallocate, file.fileno(), INSERT_RANGE, 0, 4096)
        fails_with(errno.EINVAL, fallocate, file.fileno(), 0, 0, 0)
    assert os.stat("f").st_blocks * 512 < blocks * 512 - (11 << 20), "a hole takes space"
    assert read("f") == data
    with open("f", "rb") as file:
        fails_with(errno.EBADF, fallocate, file.fileno(), 0, 0, 4096)


def test_allocating_makes_a_file_longer_as_far_as_there_is_room():
    write("f", b"some")
    with open("f", "r+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 5_000_000)
        assert os.stat("f").st_size == 5_000_000 and read("f") == b"some" + bytes(4_999_996)
        fallocate(file.fileno(), KEEP_SIZE, 0, 9_000_000)
        assert os.stat("f").st_size == 5_000_000
        room = os.statvfs(".").f_bavail * 4096
        fails_with(errno.ENOSPC, os.posix_fallocate, file.fileno(), 0, 2 * room + (1 << 40))
    assert os.stat("f").st_size == 5_000_000


def test_seeking_finds_data_and_holes():
    with open("f", "w+b", buffering=0) as file:
        fails_with(errno.ENXIO, file.seek, 0, os.SEEK_DATA)
        os.pwrite(file.fileno(), b"x" * 100, 12 << 20)
        os.ftruncate(file.fileno(), 40 << 20)
        for committed in (False, True):
            data = file.seek(0, os.SEEK_DATA)
            hole = file.seek(12 << 20, os.SEEK_HOLE)
            assert 0 < data <= 12 << 20 and (12 << 20) + 100 <= hole < 40 << 20, (data, hole)
            assert file.seek(5, os.SEEK_HOLE) == 5 and file.seek(hole, os.SEEK_HOLE) == hole
            fails_with(errno.ENXIO, file.seek, hole, os.SEEK_DATA)
            fails_with(errno.ENXIO, file.seek, 40 << 20, os.SEEK_HOLE)
            os.fsync(file.fileno())
    write("full", b"x" * 10)
    with open("full", "rb") as file:
        assert file.seek(3, os.SEEK_DATA) == 3 and file.seek(3, os.SEEK_HOLE) == 10


def test_a_hole_in_the_middle_of_a_block_is_found_and_takes_no_space():
    data = bytearray(random.randbytes(4 << 20))
    write("f", data)
    first, end = 1_000_000, 2_000_000
    in_pages = [(first + 4095) // 4096 * 4096, end // 4096 * 4096]
    def found(fd):
        return [os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, in_pages[0], os.SEEK_DATA)]
    with open("f", "r+b", buffering=0) as file:
        fallocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, first, end - first)
        data[first:end] = bytes(end - first)
        for committed in (False, True):
            assert found(file.fileno()) == in_pages, (committed, found(file.fileno()))
            os.fsync(file.fileno())
    assert os.stat("f").st_blocks * 512 == len(data) - (in_pages[1] - in_pages[0])
    assert read("f") == data
    with open("f", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"in the hole", 1_500_000)
    data[1_500_000:1_500_011] = b"in the hole"
    assert read("f") == data
    # What was written here and there takes what was written.
    with open("g", "wb", buffering=0) as file:
        for at in range(0, 16 << 20, 1 << 20):
            os.pwrite(file.fileno(), b"x" * 4096, at)
    assert os.stat("g").st_blocks * 512 == 16 * 4096, os.stat("g").st_blocks
    assert read("g") == (b"x" * 4096 + bytes((1 << 20) - 4096)) * 15 + b"x" * 4096


def test_ranges_are_copied_from_file_to_file():
    data = random.randbytes(9_000_000)
    write("f", data)
    write("g", b"-" * 100)
    def copy(source, target, *arguments):
        with open(source, "rb") as one, open(target, "r+b") as other:
            return os.copy_file_range(one.fileno(), other.fileno(), *arguments)
    assert copy("f", "g", 10**7, 1_000, 50) == len(data) - 1_000
    assert read("g") == b"-" * 50 + data[1_000:]
    assert copy("f", "g", 100, len(data), 0) == 0
    assert copy("g", "g", 50, 0, 50) == 50
    assert read("g") == b"-" * 100 + data[1_050:]
    fails_with(errno.EINVAL, copy, "g", "g", 100, 0, 99)


def test_sizes_have_an_end():
    most = 1 << 53
    write("f", b"x")
    write("source", b"four")
    with open("f", "r+b", buffering=0) as file, open("source", "rb") as source:
        fd = file.fileno()
        for far in (most + 1, 1 << 62, (1 << 63) - 5):
            fails_with(errno.EFBIG, os.pwrite, fd, b"y", far)
            fails_with(errno.EFBIG, os.ftruncate, fd, far)
            fails_with(errno.EFBIG, os.truncate, "f", far)
            fails_with(errno.EFBIG, fallocate, fd, 0, far, 1)
            fails_with(errno.EFBIG, fallocate, fd, ZERO_RANGE, far, 1)
            fails_with(errno.EFBIG, os.copy_file_range, source.fileno(), fd, 4, 0, far)
        assert os.stat("f").st_size == 1
        # What fits is written, and the next byte is not.
        assert os.pwrite(fd, b"ends", most - 2) == 2
        fails_with(errno.EFBIG, os.pwrite, fd, b"ends", most)
    assert os.stat("f").st_size == most
    os.truncate("f", 1)
    assert read("f") == b"x"


def test_sparse_files_stay_sparse_in_copies_and_archives():
    with open("f", "wb") as file:
        file.write(b"begin")
        file.seek(30 << 20)
        file.write(b"end")
    os.truncate("f", 50 << 20)
    stored = os.stat("f").st_blocks * 512
    assert stored <= 2 * 4096, stored
    copies = {
        "auto": ["cp", "--sparse=auto", "f", "auto"],
        "always": ["cp", "--sparse=always", "f", "always"],
        "reflink": ["cp", "--reflink=auto", "f", "reflink"],
        "rsync": ["rsync", "-aS", "f", "rsync"],
        "tar": ["sh", "-c", "mkdir d && tar -Scf t f && tar -xf t -C d && mv d/f tar"],
        "dug": ["sh", "-c", "cp --sparse=never f dug && fallocate -d dug"],
    }
    for name, command in copies.items():
        subprocess.check_call(command)
        subprocess.check_call(["cmp", "f", name])
        takes = os.stat(name).st_blocks * 512
        # What was written and dug out again keeps the page that has some bytes.
        assert takes <= (2 * 4096 if name == "dug" else stored), f"{name} takes {takes} bytes, the file {stored}"
    assert subprocess.run(["cp", "--reflink=always", "f", "shared"], stderr=subprocess.DEVNULL).returncode != 0


def test_locks_hold_among_the_processes_of_a_mount():
    write("f", b"x" * 100)
    def gets(lock, kind, *arguments):
        with open("f", "r+b") as file:
            try:
                lock(file, kind | fcntl.LOCK_NB, *arguments)
                return True
            except BlockingIOError:
                return False
    for lock in (fcntl.flock, fcntl.lockf):
        with open("f", "r+b") as file:
            lock(file, fcntl.LOCK_EX)
            assert not child(gets, lock, fcntl.LOCK_EX) and not child(gets, lock, fcntl.LOCK_SH)
            lock(file, fcntl.LOCK_SH)
            assert not child(gets, lock, fcntl.LOCK_EX) and child(gets, lock, fcntl.LOCK_SH)
            lock(file, fcntl.LOCK_UN)
            assert child(gets, lock, fcntl.LOCK_EX)
    with open("f", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)
        assert not child(gets, fcntl.lockf, fcntl.LOCK_EX, 5, 25)
        assert child(gets, fcntl.lockf, fcntl.LOCK_EX, 20, 0) and child(gets, fcntl.lockf, fcntl.LOCK_EX, 5, 30)
    assert child(gets, fcntl.lockf, fcntl.LOCK_EX)  # it went with the handle


def test_poll_and_ioctl_answer_as_for_any_file():
    write("f", b"some")
    with open("f", "r+b", buffering=0) as file:
        poll = select.poll()
        poll.register(file, select.POLLIN | select.POLLOUT)
        assert poll.poll(10_000) == [(file.fileno(), select.POLLIN | select.POLLOUT)]
        fails_with(errno.ENOTTY, fcntl.ioctl, file.fileno(), 0x5401, bytes(64))  # TCGETS
        fails_with(errno.ENOTTY, fcntl.ioctl, file.fileno(), 0x80086601, bytes(8))  # FS_IOC_GETFLAGS


def test_who_may_do_what_goes_by_mode_and_owner():
    write("f", b"x")
    os.chmod("f", 0o640)
    assert os.access("f", os.R_OK | os.W_OK) and not os.access("f", os.X_OK)
    if os.geteuid() != 0:
        return
    os.chmod(".", 0o755)
    os.chown("f", 1234, 4321)
    def may(user, groups, what):
        return subprocess.run(["setpriv", f"--reuid={user}", "--regid=99", groups, "test", what, "f"]).returncode == 0
    if not may(1234, "--clear-groups", "-e"):
        return  # mounted without allow_other
    assert may(1234, "--clear-groups", "-w") and not may(1234, "--clear-groups", "-x")
    assert may(77, "--groups=4321", "-r") and not may(77, "--groups=4321", "-w")
    assert not may(77, "--clear-groups", "-r")


def link_open(fd, name):
    """Gives the open file that name. (Only with a descriptor Python follows the link in /proc.)"""
    root = os.open("/", os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{fd}", os.path.abspath(name), src_dir_fd=root)
    finally:
        os.close(root)


def test_a_file_without_a_name_is_gone_when_it_is_closed_or_gets_one():
    os.mkdir("unnamed")
    fd = os.open("unnamed", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"x" * 300000)
    os.fsync(fd)
    assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == 300000
    assert os.listdir("unnamed") == []
    os.fchmod(fd, 0o600)
    write("unnamed/taken", b"by another")
    fails_with(errno.EEXIST, link_open, fd, "unnamed/taken")
    link_open(fd, "unnamed/named")
    assert os.fstat(fd).st_nlink == 1 and stat.S_IMODE(os.stat("unnamed/named").st_mode) == 0o600
    os.pwrite(fd, b"later", 5)
    os.close(fd)
    assert read("unnamed/named") == b"xxxxxlater" + b"x" * 299990
    for flags in (os.O_TMPFILE | os.O_RDWR, os.O_TMPFILE | os.O_WRONLY | os.O_EXCL):
        fd = os.open("unnamed", flags, 0o600)
        os.write(fd, b"y" * 5000000)
        if flags & os.O_EXCL:
            fails_with(errno.ENOENT, link_open, fd, "unnamed/never")
        os.close(fd)
    assert sorted(os.listdir("unnamed")) == ["named", "taken"]
    assert read("unnamed/taken") == b"by another"


def test_a_database_with_a_write_ahead_log_works_among_processes():
    def open_it():
        database = sqlite3.connect("db", timeout=60, isolation_level=None)
        assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        return database
    database = open_it()
    database.execute("CREATE TABLE t (who INTEGER, n INTEGER)")
    def fill(who):
        mine = open_it()
        for n in range(25):
            mine.execute("BEGIN IMMEDIATE")
            mine.execute("INSERT INTO t SELECT ?, count(*) FROM t", (who,))
            mine.execute("COMMIT")
        return True
    threads = [threading.Thread(target=lambda who=who: child(fill, who)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(n for (n,) in database.execute("SELECT n FROM t")) == list(range(75))
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    assert os.listdir(".") == ["db"]


def test_a_repository_of_git_works():
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", "-c", "init.defaultBranch=main", "-C", "r",
                        *arguments], check=True, capture_output=True)
    os.makedirs("r/d")
    git("init")
    for i in range(30):
        write(f"r/d/f{i}", random.randbytes(3_000))
        if i % 10 == 9:
            git("add", ".")
            git("commit", "-m", str(i))
    git("gc", "--prune=now")
    git("fsck", "--strict")
    subprocess.run(["git", "clone", "-q", "r", "s"], check=True)
    subprocess.check_call(["diff", "-r", "r/d", "s/d"])
    git("checkout", "-q", "HEAD~2")
    assert len(os.listdir("r/d")) == 10


def test_a_program_on_the_mount_can_be_run():
    shutil.copy("/bin/true", "program")
    assert subprocess.run(["./program"]).returncode == 0


def test_opening_a_directory_for_writing_fails():
    os.mkdir("d")
    fails_with(errno.EISDIR, os.open, "d", os.O_WRONLY)


# --- attributes ---

def test_modes_owners_and_times_are_kept():
    write("f", b"x")
    os.chmod("f", 0o4751)
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o4751
    if os.geteuid() == 0:
        os.chown("f", 1234, 4321)
        assert (os.stat("f").st_uid, os.stat("f").st_gid) == (1234, 4321)
    os.utime("f", ns=(1_000_000_000_123_456_789, 1_500_000_000_987_654_321))
    info = os.stat("f")
    assert info.st_atime_ns == 1_000_000_000_123_456_789
    assert info.st_mtime_ns == 1_500_000_000_987_654_321
    os.utime("f")
    assert os.stat("f").st_mtime_ns > 1_700_000_000_000_000_000


def test_times_can_be_now_or_left_alone():
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    def set_times(accessed, modified):
        times = (ctypes.c_long * 4)(*accessed, *modified)
        assert libc.utimensat(-100, b"f", times, 0) == 0, os.strerror(ctypes.get_errno())
    write("f", b"x")
    set_times((1000, 1), (2000, 2))
    changed = os.stat("f").st_ctime_ns
    set_times((0, omit), (3000, 3))
    info = os.stat("f")
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_000_000_000_001, 3_000_000_000_003)
    assert info.st_ctime_ns > changed
    set_times((0, now), (0, omit))
    info = os.stat("f")
    assert info.st_atime_ns > 10**18 and info.st_mtime_ns == 3_000_000_000_003


def test_fifos_and_sockets_work_and_devices_are_kept():
    os.mkfifo("fifo", 0o600)
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    write("fifo", b"through it")
    assert os.read(reader, 100) == b"through it"
    os.close(reader)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("socket")
        server.listen()
        client.connect("socket")
    kinds = {entry.name: stat.S_IFMT(entry.stat().st_mode) for entry in os.scandir(".")}
    assert kinds == {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}
    if os.geteuid() == 0:
        os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 300))
        info = os.stat("null")
        assert stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(1, 300)
    os.mknod("plain", 0o640 | stat.S_IFREG)
    assert read("plain") == b""


def test_a_set_group_directory_hands_its_group_down():
    if os.geteuid() != 0:
        return
    os.mkdir("d")
    os.chown("d", 0, 4321)
    os.chmod("d", 0o2775)
    os.mkdir("d/e")
    write("d/e/f", b"")
    assert os.stat("d/e").st_gid == os.stat("d/e/f").st_gid == 4321
    assert os.stat("d/e").st_mode & stat.S_ISGID


def test_a_time_that_cannot_be_kept_becomes_the_nearest_that_can():
    write("f", b"x")
    os.utime("f", (10_413_792_000, -20_000_000_000))  # in 2300 and in 1336
    info = os.stat("f")
    assert (info.st_atime_ns, info.st_mtime_ns) == (9_223_372_036 * 10**9, -9_223_372_036 * 10**9)


def test_a_write_moves_the_modification_time():
    write("f", b"x")
    os.utime("f", ns=(0, 0))
    write("f", b"y", "ab")
    assert os.stat("f").st_mtime_ns > 0


def test_the_parents_time_moves_with_its_entries():
    os.mkdir("d")
    for change in (lambda: write("d/f", b""), lambda: os.rename("d/f", "d/g"), lambda: os.unlink("d/g"),
                   lambda: os.mkdir("d/s"), lambda: os.rmdir("d/s")):
        os.utime("d", ns=(0, 0))
        change()
        assert os.stat("d").st_mtime_ns > 0


def test_extended_attributes_are_kept():
    write("f", b"x")
    value = bytes(range(256)) * 40
    os.setxattr("f", "user.a", value)
    os.setxattr("f", "user.empty", b"")
    assert b"needed, on the drives" in os.getxattr("f", "user.pinstripe.why")
    fails_with(errno.EPERM, os.setxattr, "f", "user.pinstripe.why", b"x")
    assert os.getxattr("f", "user.a") == value and os.getxattr("f", "user.empty") == b""
    assert sorted(os.listxattr("f")) == ["user.a", "user.empty"]
    fails_with(errno.EEXIST, os.setxattr, "f", "user.a", b"1", os.XATTR_CREATE)
    fails_with(errno.ENODATA, os.setxattr, "f", "user.b", b"1", os.XATTR_REPLACE)
    fails_with(errno.ENODATA, os.getxattr, "f", "user.b")
    fails_with(errno.ENODATA, os.removexattr, "f", "user.b")
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", tag, 6, -1) for tag in (1, 4, 32))
    os.setxattr("f", "system.posix_acl_access", acl)  # no more than a mode
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o666 and sorted(os.listxattr("f")) == ["user.a", "user.empty"]
    fails_with(errno.ENOTSUP, os.setxattr, "f", "system.other", acl)
    largest = os.urandom(65536)
    os.setxattr("f", "user.b", largest)
    assert os.getxattr("f", "user.b") == largest
    fails_with(errno.ENOSPC, os.setxattr, "f", "user.c", largest)
    os.removexattr("f", "user.b")
    fails_with(errno.E2BIG, os.setxattr, "f", "user.b", b"x" * 65537)
    os.setxattr("f", "user.a", b"new", os.XATTR_REPLACE)
    os.rename("f", "g")
    assert os.getxattr("g", "user.a") == b"new"
    os.removexattr("g", "user.a")
    assert os.listxattr("g") == ["user.empty"]
    os.mkdir("d")
    os.setxattr("d", "user.d", b"1")
    assert os.listxattr("d") == ["user.d"] and os.listdir("d") == []
    subprocess.check_call(["cp", "-a", "g", "copy"])
    assert os.getxattr("copy", "user.empty") == b""


def test_a_directory_hands_its_layout_on():
    name = "user.pinstripe.layout"
    os.mkdir("d")
    assert b"4+2 " in os.getxattr("d", name) and os.listxattr("d") == []
    os.setxattr("d", name, b"1+0 inline=0")
    assert os.listxattr("d") == [name]
    os.mkdir("d/e")
    write("d/e/f", b"x" * 3_000_000)
    assert os.getxattr("d/e/f", name) == b"1+0 shard=1MiB copies=1 inline=0 replicate=64KiB"
    assert read("d/e/f") == b"x" * 3_000_000
    fails_with(errno.ENOTEMPTY, os.setxattr, "d/e/f", name, b"4+2")
    fails_with(errno.EINVAL, os.setxattr, "d", name, b"70+1")
    subprocess.run(["cp", "-a", "d", "copy"], check=True)
    assert read("copy/e/f") == b"x" * 3_000_000 and os.getxattr("copy", name) == os.getxattr("d", name)
    os.removexattr("d", name)
    assert b"4+2 " in os.getxattr("d", name)


def test_who_may_run_a_file_as_another_is_cleared_by_who_writes_or_owns():
    if os.geteuid() != 0:
        return
    somebody = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
    others_may_come = subprocess.run([*somebody, "test", "-d", os.getcwd()]).returncode == 0
    def mode_after(*program):
        write("f", b"x")
        os.chown("f", 0, 0)
        os.chmod("f", 0o6777)
        os.chmod(".", 0o777)
        subprocess.check_call(program)
        return stat.S_IMODE(os.stat("f").st_mode)
    assert mode_after("true") == 0o6777
    if others_may_come:  # mounted with allow_other
        assert mode_after(*somebody, "sh", "-c", "echo y >> f") == 0o777
        assert mode_after(*somebody, "truncate", "-s", "0", "f") == 0o777
    assert mode_after("chown", "4321", "f") == 0o777
    assert mode_after("chmod", "0755", "f") == 0o755
    write("program", b"x")
    os.setxattr("program", "security.capability", struct.pack("<5I", 0x02000000, 1 << 13, 0, 0, 0))
    assert "security.capability" in os.listxattr("program")
    write("program", b"x", "ab")
    assert "security.capability" not in os.listxattr("program")


def test_inode_numbers_stay_with_the_file():
    write("f", b"x")
    number = os.stat("f").st_ino
    os.rename("f", "g")
    assert os.stat("g").st_ino == number
    assert next(os.scandir(".")).inode() == number


def test_space_is_told():
    info = os.statvfs(".")
    assert 0 < info.f_bavail <= info.f_blocks and info.f_namemax == 255


# --- names ---

def test_names_are_any_bytes():
    names = [b"a", b"a:b", b"~", b"_", b"%2f", "größe".encode(), b"\xff\xfe\x80", b" ", b"\n", b"-rf",
             b"ab", b"a" * 255, b"."[:0] + b"...", b"\x01"]
    for name in names:
        write(name, name)
    assert sorted(os.listdir(b".")) == sorted(names)
    for name in names:
        assert read(name) == name
    fails_with(errno.ENAMETOOLONG, os.open, b"a" * 256, os.O_CREAT | os.O_WRONLY)


def test_names_that_are_not_there_are_not_found():
    for function in (os.stat, os.unlink, os.rmdir, os.listdir):
        fails_with(errno.ENOENT, function, "nothing")
    write("f", b"")
    for path in ("f/x", "f/x/y"):
        fails_with(errno.ENOTDIR, os.stat, path)
    fails_with(errno.ENOENT, os.open, "no/f", os.O_CREAT | os.O_WRONLY)


def test_directories_are_made_and_removed():
    os.mkdir("d", 0o750)
    info = os.stat("d")
    assert stat.S_ISDIR(info.st_mode)
    fails_with(errno.EEXIST, os.mkdir, "d")
    write("d/f", b"")
    fails_with(errno.ENOTEMPTY, os.rmdir, "d")
    fails_with(errno.EISDIR, os.unlink, "d")
    fails_with(errno.ENOTDIR, os.rmdir, "d/f")
    os.unlink("d/f")
    os.rmdir("d")
    fails_with(errno.ENOENT, os.stat, "d")


def test_rename_replaces_as_it_should():
    write("a", b"a")
    write("b", b"b")
    os.rename("a", "b")
    assert read("b") == b"a" and os.listdir(".") == ["b"]
    os.mkdir("d")
    os.mkdir("e")
    fails_with(errno.EISDIR, os.rename, "b", "d")
    fails_with(errno.ENOTDIR, os.rename, "d", "b")
    os.rename("d", "e")  # an empty directory
    assert sorted(os.listdir(".")) == ["b", "e"]
    os.rename("b", "e/b")
    os.mkdir("f")
    fails_with(errno.ENOTEMPTY, os.rename, "f", "e")
    fails_with(errno.EINVAL, os.rename, "e", "e/inside")
    os.rename("e", "f/e")
    assert read("f/e/b") == b"a"
    os.rename("f/e/b", "f/e/b")  # onto itself
    assert read("f/e/b") == b"a"
    assert os.stat("f/e/..").st_ino == os.stat("f").st_ino


def test_rename_without_replacing():
    write("a", b"a")
    write("b", b"b")
    fails_with(errno.EEXIST, rename2, "a", "b", RENAME_NOREPLACE)
    rename2("a", "c", RENAME_NOREPLACE)
    assert sorted(os.listdir(".")) == ["b", "c"]
    fails_with(errno.ENOENT, rename2, "b", "none", RENAME_EXCHANGE)
    fails_with(errno.EINVAL, rename2, "b", "c", RENAME_EXCHANGE | RENAME_NOREPLACE)


def test_two_names_are_exchanged():
    os.makedirs("p/d/below")
    os.makedirs("q")
    write("q/f", b"f")
    write("q/g", b"g")
    rename2("q/f", "q/g", RENAME_EXCHANGE)
    assert read("q/f") == b"g" and read("q/g") == b"f"
    rename2("q/f", "p/d", RENAME_EXCHANGE)
    assert read("p/d") == b"g" and os.listdir("q/f") == ["below"]
    assert os.path.samefile("q/f/..", "q")
    fails_with(errno.EINVAL, rename2, "q/f", "q/f/below", RENAME_EXCHANGE)


def test_an_open_file_follows_its_rename():
    with open("a", "wb") as file:
        file.write(b"before ")
        os.rename("a", "b")
        file.write(b"after")
    assert read("b") == b"before after"


# --- links ---

def test_symbolic_links_lead_where_they_say():
    os.makedirs("a/b")
    write("a/b/f", b"found")
    os.symlink("../a/b", "a/l")
    os.symlink("none", "nothing")
    os.symlink("loop", "loop")
    assert read("a/l/f") == b"found" and os.readlink("a/l") == "../a/b"
    info = os.lstat("a/l")
    assert stat.S_ISLNK(info.st_mode) and info.st_size == 6
    assert os.path.samefile("a/l/..", "a")
    fails_with(errno.ENOENT, os.stat, "nothing")
    fails_with(errno.ELOOP, os.stat, "loop")
    fails_with(errno.EEXIST, os.symlink, "x", "loop")
    fails_with(errno.ELOOP, os.open, "a/l", os.O_RDONLY | os.O_NOFOLLOW)
    write("nothing", b"made through the link")
    assert read("none") == b"made through the link" and os.path.islink("nothing")
    os.symlink("x" * 4095, "long")
    assert os.readlink("long") == "x" * 4095
    os.rename("a/l", "l")
    os.utime("l", ns=(1, 2), follow_symlinks=False)
    assert os.lstat("l").st_mtime_ns == 2
    os.unlink("l")
    assert sorted(os.listdir(".")) == ["a", "long", "loop", "none", "nothing"] and os.listdir("a/b") == ["f"]


def test_directories_count_their_subdirectories():
    def links(path):
        return os.stat(path).st_nlink
    before = links(".")
    os.makedirs("a/b")
    os.mkdir("a/c")
    write("a/file", b"")
    os.mkdir("d")
    assert (links("."), links("a"), links("a/b"), links("d")) == (before + 2, 4, 2, 2)
    os.rename("a/b", "d/b")
    assert (links("a"), links("d")) == (3, 3)
    os.rename("a/c", "d/b")
    assert (links("a"), links("d")) == (2, 3)
    os.rmdir("d/b")
    assert (links("."), links("d")) == (before + 2, 2)


def test_hard_links_are_names_of_one_file():
    write("a", b"x")
    os.mkdir("d")
    os.link("a", "d/b")
    os.link("d/b", "c")
    assert os.stat("a").st_nlink == 3 and os.path.samefile("a", "d/b")
    write("d/b", b"y", "ab")
    assert read("a") == read("c") == b"xy"
    os.rename("a", "c")  # two names of one file: nothing happens
    assert sorted(os.listdir(".")) == ["a", "c", "d"]
    with open("a", "rb") as file:
        os.unlink("a")
        os.unlink("c")
        assert os.fstat(file.fileno()).st_nlink == 1 == os.stat("d/b").st_nlink
        os.unlink("d/b")
        assert os.fstat(file.fileno()).st_nlink == 0 and file.read() == b"xy"
    write("a", b"x")
    fails_with(errno.EEXIST, os.link, "a", "a")
    fails_with(errno.EPERM, os.link, "d", "e")
    fails_with(errno.ENOENT, os.link, "none", "e")


# --- listings ---

def test_a_large_directory_is_listed_once_each():
    names = {f"entry-{i:05}-{'x' * (i % 50)}" for i in range(1500)}
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    assert sorted(os.listdir(".")) == sorted(names)
    assert {entry.name for entry in os.scandir(".") if entry.is_file()} == names
    assert len(subprocess.check_output(["ls", "-l"]).splitlines()) == 1501


def test_entries_that_stay_are_listed_once_while_others_come_and_go():
    stay = {f"stay{i:04}" for i in range(0, 600)}
    for name in stay:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    for i in range(0, 600, 3):
        os.close(os.open(f"go{i:04}", os.O_CREAT | os.O_WRONLY))
    seen = []
    for number, entry in enumerate(os.scandir(".")):
        seen.append(entry.name)
        if entry.name.startswith("go"):
            os.unlink(entry.name)
        if number % 5 == 0:
            os.close(os.open(f"zz{number:04}", os.O_CREAT | os.O_WRONLY))
    assert [name for name in seen if name in stay] == sorted(stay) and len(set(seen)) == len(seen)


def test_a_listing_goes_on_where_telldir_was():
    libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
    for function in (libc.readdir, libc.closedir, libc.telldir):
        function.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    libc.telldir.restype = ctypes.c_long
    for i in range(300):
        os.close(os.open(f"f{i:03}", os.O_CREAT | os.O_WRONLY))

    def next_name():
        entry = libc.readdir(directory)
        return ctypes.string_at(entry + 19).decode() if entry else None  # d_name of struct dirent

    directory = libc.opendir(b".")
    names, positions = [], []
    while True:
        position = libc.telldir(directory)
        name = next_name()
        if name is None:
            break
        names.append(name)
        positions.append(position)
    assert len(names) == 302
    for i in range(0, 290, 2):
        os.unlink(f"f{i:03}")
    for at in (0, 1, 2, 150, 280):
        libc.seekdir(directory, positions[at])
        left = [name for name in names[at:] if name.startswith(".") or os.path.exists(name)]
        found = []
        while (name := next_name()) is not None:
            found.append(name)
        assert found == left, f"from {at}: {found[:3]} instead of {left[:3]}"
    libc.closedir(directory)


def test_a_tree_survives_copy_and_comparison():
    os.makedirs("source/a/b/c")
    dice = random.Random(3)
    for i in range(60):
        write(f"source/{dice.choice(['', 'a/', 'a/b/', 'a/b/c/'])}f{i}", dice.randbytes(dice.randrange(100_000)))
    subprocess.check_call(["cp", "-r", "source", "copy"])
    subprocess.check_call(["diff", "-r", "source", "copy"])
    with tempfile.TemporaryDirectory() as local:
        subprocess.check_call(["cp", "-r", "source", local])
        subprocess.check_call(["diff", "-r", local + "/source", "copy"])
        subprocess.check_call(["rsync", "-a", local + "/source/", "synced"])
        subprocess.check_call(["diff", "-r", local + "/source", "synced"])
        changes = subprocess.check_output(["rsync", "-anci", "--delete", local + "/source/", "synced"])
        assert changes == b"", changes
    subprocess.check_call(["tar", "-cf", "all.tar", "source"])
    os.mkdir("unpacked")
    subprocess.check_call(["tar", "-xpf", "all.tar", "-C", "unpacked"])
    subprocess.check_call(["tar", "-df", "all.tar", "-C", "unpacked"])
    subprocess.check_call(["diff", "-r", "unpacked/source", "copy"])
    for name in ("all.tar", "unpacked", "synced"):
        subprocess.check_call(["rm", "-r", name])
    shutil.rmtree("source")
    assert os.listdir(".") == ["copy"]


def run(mount_point, names):
    tests = {name: function for name, function in globals().items() if name.startswith("test_")}
    failed = []
    for name in names or tests:
        sentence = name.removeprefix("test_").replace("_", " ")
        directory = tempfile.mkdtemp(prefix="posix-", dir=mount_point)
        os.umask(0o022)
        os.chdir(directory)
        try:
            tests[name]()
            print(f"ok    {sentence}", flush=True)
            os.chdir(mount_point)
            shutil.rmtree(directory)
        except Exception as error:  # whatever a test meets is its result
            line = error.__traceback__
            while line.tb_next is not None:
                line = line.tb_next
            print(f"FAIL  {sentence}: {type(error).__name__} {error} (line {line.tb_lineno})", flush=True)
            failed.append(name)
            os.chdir("/")
    print(f"{len(names or tests) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(run(os.path.abspath(sys.argv[1]), sys.argv[2:]))
