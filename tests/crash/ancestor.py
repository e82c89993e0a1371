"""Those defects of the ancestor (docs/testing.md) that show on real processes within seconds and that no script of
tests/integration has, tried one after the other on a cluster at rest. Each is a function that raises a Violation."""

import errno
import os
import time

import torture
from crash_meta import Violation


class World:
    """Two mounts of one cluster, and who can kill and start its drives."""

    def __init__(self, chaos, directory, second):
        self.chaos, self.directory, self.second = chaos, directory, second

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, size):
        data = self.chaos.random.randbytes(size)
        with open(self.path(name), "wb", buffering=0) as file:
            if file.write(data) != size:
                raise Violation(f"a part of {name} was written")
        return data

    def dev(self, verb, drives):
        self.chaos.command("dev", verb, self.chaos.options.cluster, *drives)

    def pinstripe(self, *words, codes=(0,)):
        return self.chaos.command(*words, self.chaos.config, codes=codes)


def read(path, size=None, at=0):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if size is None:
            size = os.fstat(descriptor).st_size
        found = b""
        while len(found) < size:
            more = os.pread(descriptor, size - len(found), at + len(found))
            if not more:
                break
            found += more
        return found
    finally:
        os.close(descriptor)


def same(what, found, expected):
    if found != expected:
        words = torture.first_difference(found, expected) if isinstance(expected, bytes) else f"{found} instead of {expected}"
        raise Violation(f"{what}: {words}")


def repair_while_a_drive_is_down(world):
    """3. A repair while drives are down leaves what lies on spares, and any m drives may be lost after the next one."""
    drives = world.chaos.away
    world.dev("kill", drives)
    data = world.write("spared", 9000001)
    world.pinstripe("repair", codes=(2,))
    same("what was written while drives were down", read(world.second + "/spared"), data)
    world.dev("start", drives)
    world.chaos.wait_until_healthy()
    world.pinstripe("repair")
    others = [drive for drive in range(1, world.chaos.options.drives + 1) if drive not in drives][:len(drives)]
    world.dev("kill", others)
    same("what was on spares", read(world.path("spared")), data)
    world.dev("start", others)


def lost_stripes(world):
    """4. A stripe that too many drives lack is an error, never zeros, and no repair takes away what is left of it."""
    data = world.write("lost", 5000000)
    options = world.chaos.options
    gone = list(range(1, options.drives - options.data + 2))  # k - 1 are left
    file = os.open(world.second + "/lost", os.O_RDONLY)
    world.dev("kill", gone)
    try:
        # All of it: one shard may be on a drive that is left, and what is in it can be read.
        at = 0
        while piece := os.pread(file, 1 << 20, at):
            same("what is read of a stripe that is away", piece, data[at:at + len(piece)])
            at += len(piece)
    except OSError as error:
        same("what is told of a stripe that is away", errno.errorcode[error.errno], "EIO")
    else:
        raise Violation("a stripe that is away can be read")
    finally:
        os.close(file)
    # It waits for registers, and may be stopped at any time.
    code, said, _ = torture.elsewhere(torture.run_command, ["timeout", "--signal=KILL", "5", world.chaos.pinstripe, "repair", world.chaos.config])
    if code == 0:
        raise Violation(f"a repair calls whole what is not there: {said}")
    world.dev("start", gone)
    world.chaos.wait_until_healthy()
    world.pinstripe("repair")
    same("a stripe that was away", read(world.second + "/lost"), data)


def sizes(world):
    """6. Sizes are right on more than k+m drives."""
    for size in (0, 1, 4096, 65536, 65537, 4 << 20, (4 << 20) + 1, 9999999):
        world.write("sized", size)
        same("the size", os.stat(world.second + "/sized").st_size, size)
        os.unlink(world.path("sized"))


def stat_through_a_second_handle(world):
    """7. To look at a file through another handle leaves what a writer has not stored yet."""
    data = world.chaos.random.randbytes(300000)
    with open(world.path("looked-at"), "wb", buffering=0) as writer:
        for at in range(0, len(data), 10000):
            writer.write(data[at:at + 10000])
            with open(world.path("looked-at"), "rb") as other:
                same("the size while it is written", os.fstat(other.fileno()).st_size, at + 10000)
    same("a file that was looked at", read(world.second + "/looked-at"), data)


def bytes_never_written(world):
    """8. Bytes that were never written are zeros, whatever the memory held before."""
    world.write("noise", 6000000)
    with open(world.path("holes"), "wb", buffering=0) as file:
        for at in (70000, 1234567, 5000001):
            file.seek(at)
            file.write(b"x")
    expected = bytearray(5000002)
    expected[70000] = expected[1234567] = expected[5000001] = ord("x")
    same("a file with holes", read(world.second + "/holes"), bytes(expected))


def truncations(world):
    """9. Truncations count, in whatever order with writes and through whichever handle."""
    path = world.path("cut")
    data = world.write("cut", 3000000)
    with open(path, "r+b", buffering=0) as first, open(path, "r+b", buffering=0) as other:
        first.truncate(1000001)
        other.seek(2000000)
        other.write(b"end")
        other.truncate(2000002)
        first.truncate(2500000)
    expected = data[:1000001] + bytes(999999) + b"en" + bytes(499998)
    same("what was cut", read(world.second + "/cut"), expected)


def strange_names(world):
    """13. Strange names are names like others."""
    names = [b"a|b", b"a%2Fb", b"..x", b"-", b" ", b"\n", b"\xff\xfe", "ünï".encode(), b"A", b"a", b"n" * 255, b"*", b"a\\b", b"\x01"]
    directory = os.fsencode(world.path("names"))
    os.makedirs(directory, exist_ok=True)
    for name in names:
        with open(os.path.join(directory, name), "wb") as file:
            file.write(name)
    there = os.fsencode(world.second + "/names")
    same("a listing", sorted(os.listdir(there)), sorted(names))
    for name in names:
        same(f"the file {name}", read(os.path.join(there, name)), name)


def modes_times_and_space(world):
    """14. Modes, times and space are real."""
    before = os.statvfs(world.directory)
    begin = time.time()
    world.write("timed", 8 << 20)
    os.chmod(world.path("timed"), 0o640)
    found = os.stat(world.second + "/timed")
    same("the mode", found.st_mode & 0o7777, 0o640)
    if not begin - 1 <= found.st_mtime <= time.time() + 1:
        raise Violation(f"mtime is {found.st_mtime} at {time.time()}")
    same("the blocks", found.st_blocks * 512 >= 8 << 20, True)
    options = world.chaos.options
    gross = sum(drive["capacity_bytes"] for drive in world.chaos.drives_told())
    net = before.f_blocks * before.f_frsize
    if net > gross * options.data / (options.data + options.away) * 1.01:
        raise Violation(f"{net} bytes of {gross} are said to be for files: parity is ignored")


def errors_in_the_background(world):
    """15. (and 12.) What could not be stored with redundancy is told at the latest by close, and no part of it is visible."""
    data = world.write("behind", 100000)
    drives = range(1, world.chaos.options.drives + 1)
    gone = list(drives)[:len(drives) - world.chaos.options.data]  # k are left: there would be no redundancy
    file = os.open(world.path("behind"), os.O_RDWR)
    written = bytes(5000000)
    os.pwrite(file, written, 0)
    world.dev("kill", gone)
    try:
        os.close(file)
    except OSError as error:
        if error.errno != errno.EIO:
            raise Violation(f"close without drives: {error}") from error
        failed = True
    else:
        failed = False
    world.dev("start", gone)
    world.chaos.wait_until_healthy()
    if failed:
        # The mount may have stored all of the data before the drives were killed. Then only the commit had too few
        # drives, which "may have happened" (docs/semantics.md). Nothing but the old or the new file is right.
        found = read(world.second + "/behind")
        if found not in (data, written):
            raise Violation(f"a file whose close has failed: {len(found)} bytes, neither what was there nor what was written")
    else:
        raise Violation("close has succeeded while no more than k drives were there")


DEFECTS = {function.__name__.replace("_", " "): function for function in (
    repair_while_a_drive_is_down, lost_stripes, sizes, stat_through_a_second_handle, bytes_never_written, truncations,
    strange_names, modes_times_and_space, errors_in_the_background)}
