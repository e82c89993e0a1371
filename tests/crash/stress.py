#!/usr/bin/python3
"""Does the same to a mount and to a directory on a local disk, and compares what comes of it.

Several processes work on one mount at once, each in a directory of its own: they make, write, cut, map,
rename, link, remove and list files, with all forms of the calls that there are, and do every step in the
reference as well. Answers must agree (errno, contents, attributes), and so must the trees when a round is
over. In the second half of the time drives are killed and restored meanwhile; nothing may fail that does
not fail in the reference. In a file that they all share each writes places of its own and counts under
locks. At the end another mount has to show the same trees.

usage: stress.py --build BUILD --cluster DIR --reference DIR [--time SECONDS] [--seed N] [--workers N]
       stress.py ... --round SEED      one round of one process alone, as a failure names it
"""

import argparse
import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
sys.dont_write_bytecode = True
import posix_mount as posix  # noqa: E402
from crash_meta import Mount  # noqa: E402
from health import drives_are_well  # noqa: E402

STEPS = 250  # of a round
NAMES = ["a", "b", "c", "d", "e", "long-" + "n" * 100, "ünïcode", " with blanks\n"]
DIRECTORIES = ["", "p", "q", "p/r"]
ATTRIBUTES = ["user.one", "user.two", "user.three"]
MOST_BYTES = 3 << 20
SHARED_SLOT = 5000


class Violation(Exception):
    pass


def short(value):
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."


class Pair:
    """A file that is open in both places."""

    def __init__(self, mounted, reference, flags):
        self.fds, self.flags = (mounted, reference), flags

    def close(self):
        for fd in self.fds:
            os.close(fd)


class Round:
    """What one process does with a directory of its own."""

    def __init__(self, seed, mounted, reference, sabotage=False, careful=False):
        self.random = random.Random(seed)
        # What leads out of its home by a symbolic link stays in what is its own: other processes work beside it.
        self.seed, self.own = seed, (mounted, reference)
        self.roots = tuple(os.path.join(root, "home") for root in self.own)
        self.open, self.log, self.sabotage, self.careful = [], [], sabotage, careful
        for root in self.own + self.roots:
            os.mkdir(root)

    # --- doing the same twice ---

    def both(self, what, function, arguments, normal=lambda result: result):
        """Calls the function with the arguments for each place; what comes of it, if it agrees."""
        self.log.append(what)
        results = []
        for place in (0, 1):
            try:
                results.append((None, function(*arguments(place))))
            except OSError as error:
                results.append((errno.errorcode.get(error.errno, error.errno), None))
        (bad, got), (expected_bad, expected) = results
        if bad != expected_bad:
            raise Violation(f"{what}: {bad or 'succeeded'} instead of {expected_bad or 'success'}")
        if bad is None and normal(got) != normal(expected):
            raise Violation(f"{what}: {short(normal(got))} instead of {short(normal(expected))}")
        return results if bad is None else None

    def on_path(self, name, function, *more, normal=lambda result: result):
        path = self.path()
        return self.both(f"{name} {path!r} {short(more) if more else ''}", function,
                         lambda place: (self.at(place, path), *more), normal)

    def on_two(self, name, function, *more):
        first, second = self.path(), self.path()
        return self.both(f"{name} {first!r} {second!r} {more or ''}", function,
                         lambda place: (self.at(place, first), self.at(place, second), *more))

    def on_file(self, name, function, *more, normal=lambda result: result):
        if not self.open:
            return self.open_file()
        pair = self.random.choice(self.open)
        return self.both(f"{name} {self.open.index(pair)} {short(more) if more else ''}", function,
                         lambda place: (pair.fds[place], *more), normal)

    def at(self, place, path):
        return os.path.join(self.roots[place], path)

    def path(self):
        if self.random.random() < 0.04:
            return self.random.choice([
                "none/a", "a/b", "p/../a", "p/.", "p/r/..", "n" * 256, "a/", "p//b", "q/", "link", "p/r/link"])
        if self.random.random() < 0.1:
            return self.random.choice(DIRECTORIES[1:])
        return os.path.join(self.random.choice(DIRECTORIES), self.random.choice(NAMES))

    def data(self, size=None):
        if size is None:
            size = self.size()
        return self.random.randbytes(size) if self.random.random() < 0.9 else bytes(size)

    def size(self):
        most = self.random.choice([1, 100, 5000, 70000, 300000, 1200000])
        return self.random.randrange(most + 1)

    def offset(self):
        near = self.random.choice([0, 4096, 65536, 1 << 20, 2 << 20, self.random.randrange(MOST_BYTES)])
        return max(0, near + self.random.choice([0, 0, -1, 1, 37, -4000]))

    # --- steps ---

    def open_file(self):
        if len(self.open) >= 6:
            return self.close_file()
        flags = self.random.choice([os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR, os.O_WRONLY])
        for flag, chance in ((os.O_CREAT, 0.7), (os.O_EXCL, 0.1), (os.O_TRUNC, 0.15), (os.O_APPEND, 0.15),
                             (os.O_SYNC, 0.03), (os.O_NOFOLLOW, 0.1), (os.O_DIRECTORY, 0.03)):
            if self.random.random() < chance and not (flag == os.O_DIRECTORY and flags & os.O_CREAT):
                flags |= flag
        mode, path = self.random.choice([0o644, 0o600, 0o666]), self.path()
        # On the mount alone: what local disks want aligned for it is theirs. The kernel refuses it for directories.
        direct = os.O_DIRECT if self.random.random() < 0.1 and not os.path.isdir(self.at(1, path)) else 0
        opened = self.both(f"open {path!r} {flags:#o} {mode:#o}{' direct' if direct else ''}", os.open,
                           lambda place: (self.at(place, path), flags | (0 if place else direct), mode),
                           normal=lambda fd: None)
        if opened:
            self.open.append(Pair(opened[0][1], opened[1][1], flags))

    def close_file(self):
        if self.open:
            pair = self.open.pop(self.random.randrange(len(self.open)))
            self.log.append("close")
            pair.close()

    def write_at(self):
        self.on_file("pwrite", os.pwrite, self.data(), self.offset())

    def write_on(self):
        self.on_file("lseek", os.lseek, self.offset(), os.SEEK_SET)
        self.on_file("write", os.write, self.data())

    def write_vector(self):
        self.on_file("pwritev", os.pwritev, [self.data(self.random.randrange(9000)) for _ in range(4)], self.offset())

    def read_at(self):
        self.on_file("pread", os.pread, self.size(), self.offset())

    def read_all(self):
        self.on_path("read", posix.read)

    def replace(self):
        self.on_path("write whole", posix.write, self.data())

    def truncate(self):
        self.on_path("truncate", os.truncate, self.offset())

    def truncate_open(self):
        self.on_file("ftruncate", os.ftruncate, self.offset())

    def sync(self):
        self.on_file("fsync", self.random.choice([os.fsync, os.fdatasync]))

    def allocate(self):
        mode = self.random.choice([0, posix.KEEP_SIZE, posix.PUNCH_HOLE | posix.KEEP_SIZE, posix.ZERO_RANGE,
                                   posix.ZERO_RANGE | posix.KEEP_SIZE, posix.PUNCH_HOLE])
        self.on_file("fallocate", posix.fallocate, mode, self.offset(), self.size())

    def seek(self):
        """Holes may be where the reference has none, and the other way round; they read as zeros."""
        if not self.open:
            return
        pair = self.random.choice(self.open)
        before = os.lseek(pair.fds[0], 0, os.SEEK_CUR)
        self.look_for_holes(pair)
        os.lseek(pair.fds[0], before, os.SEEK_SET)

    def look_for_holes(self, pair):
        offset = self.offset()
        size = os.fstat(pair.fds[1]).st_size
        self.log.append(f"seek {self.open.index(pair)} {offset}")
        if not stat.S_ISREG(os.fstat(pair.fds[1]).st_mode):
            return
        try:
            hole = os.lseek(pair.fds[0], offset, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO or offset < size:
                raise Violation(f"SEEK_HOLE {offset} of {size}: {error}") from None
            return
        if not offset <= hole <= size:
            raise Violation(f"SEEK_HOLE {offset} of {size} is {hole}")
        try:
            end = os.lseek(pair.fds[0], offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise Violation(f"SEEK_DATA {offset} of {size}: {error}") from None
            end = size
        if pair.flags & 3 != os.O_WRONLY and any(os.pread(pair.fds[1], end - offset, offset)):
            raise Violation(f"SEEK_DATA {offset} of {size} passes over data, to {end}")

    def map(self):
        pairs = [pair for pair in self.open if pair.flags & 3 == os.O_RDWR
                 and stat.S_ISREG(os.fstat(pair.fds[1]).st_mode) and os.fstat(pair.fds[1]).st_size > 0]
        if not pairs:
            return
        pair = self.random.choice(pairs)
        size = os.fstat(pair.fds[1]).st_size
        kind = self.random.choice([mmap.MAP_SHARED, mmap.MAP_SHARED, mmap.MAP_PRIVATE])
        changes = []
        for _ in range(self.random.randrange(5)):
            at = self.random.randrange(size)
            changes.append((at, self.data(min(size - at, self.size()))))

        def use(fd):
            with mmap.mmap(fd, size, kind) as mapped:
                for at, data in changes:
                    mapped[at:at + len(data)] = data
                if self.log and len(changes) % 2:
                    mapped.flush()
                return mapped[:]
        self.both(f"mmap {self.open.index(pair)} {'shared' if kind == mmap.MAP_SHARED else 'private'} "
                  f"{[(at, len(data)) for at, data in changes]}", use, lambda place: (pair.fds[place],))

    def copy(self):
        if len(self.open) < 2:
            return self.open_file()
        source, target = self.random.choice(self.open), self.random.choice(self.open)
        size, start, to = self.size(), self.offset(), self.offset()
        if self.random.random() < 0.4:  # the whole, whose blocks may be shared
            size, start, to = MOST_BYTES, 0, 0

        def whole(source_fd, target_fd):
            done = 0
            while done < size:  # a call may copy less
                more = os.copy_file_range(source_fd, target_fd, size - done, start + done, to + done)
                if more == 0:
                    break
                done += more
            return done
        if source is target and abs(start - to) < size:
            return
        self.both(f"copy_file_range {self.open.index(source)} {start} {self.open.index(target)} {to} {size}",
                  whole, lambda place: (source.fds[place], target.fds[place]))

    def temporary(self):
        """A file without a name, which may get one."""
        directory, path, data = self.random.choice(DIRECTORIES), self.path(), self.data()
        named, size = self.random.random() < 0.5, self.size()

        def use(directory, path):
            fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o640)
            try:
                os.write(fd, data)
                os.ftruncate(fd, size)
                if named:
                    posix.link_open(fd, path)
                    os.pwrite(fd, b"named", 3)
                return os.fstat(fd).st_nlink, os.pread(fd, len(data), 0)
            finally:
                os.close(fd)
        self.both(f"O_TMPFILE in {directory!r}{f', named {path!r}' if named else ''} {len(data)} {size}", use,
                  lambda place: (self.at(place, directory) or ".", self.at(place, path)))

    def make_directory(self):
        if self.random.random() < 0.6:
            path = self.random.choice(DIRECTORIES[1:])
            self.both(f"mkdir {path!r}", os.mkdir, lambda place: (self.at(place, path),))
        else:
            self.on_path("mkdir", os.mkdir)

    def make_node(self):
        self.on_path("mknod", os.mknod, self.random.choice([stat.S_IFSOCK, stat.S_IFREG]) | 0o640)

    def remove_directory(self):
        self.on_path("rmdir", os.rmdir)

    def remove(self):
        self.on_path("unlink", os.unlink)

    def rename(self):
        self.on_two("rename", os.rename)

    def rename_otherwise(self):
        flags = self.random.choice([posix.RENAME_NOREPLACE, posix.RENAME_EXCHANGE])
        self.on_two("renameat2", posix.rename2, flags)

    def link(self):
        self.on_two("link", lambda source, target: os.link(source, target, follow_symlinks=False))

    def symlink(self):
        target = self.random.choice(["a", "b", "../c", "p", "r", "none", "q/d", "t" * 300])
        path = os.path.join(self.random.choice(DIRECTORIES), self.random.choice(NAMES + ["link"]))
        self.both(f"symlink {short(target)} {path!r}", os.symlink, lambda place: (target, self.at(place, path)))
        self.on_path("readlink", os.readlink)

    def attribute(self):
        name = self.random.choice(ATTRIBUTES)
        kind = self.random.randrange(4)
        if kind == 0:
            flags = self.random.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])
            self.on_path("setxattr", os.setxattr, name, self.data(self.random.randrange(200)), flags)
        elif kind == 1:
            self.on_path("getxattr", os.getxattr, name)
        elif kind == 2:
            self.on_path("removexattr", os.removexattr, name)
        else:
            self.on_path("listxattr", os.listxattr, normal=lambda names: sorted(
                one for one in names if one.startswith("user.")))

    def change_mode(self):
        self.on_path("chmod", os.chmod, self.random.choice([0o644, 0o755, 0o600, 0o4711, 0o2755, 0o1777]))

    def change_owner(self):
        if os.geteuid() == 0:
            self.on_path("lchown", os.lchown, self.random.choice([-1, 0, 1000]), self.random.choice([-1, 0, 2000]))

    def set_times(self):
        path = self.path()
        times = (self.random.randrange(1 << 60), self.random.randrange(1 << 60))
        self.both(f"utimens {path!r} {times}", lambda one: os.utime(one, ns=times, follow_symlinks=False),
                  lambda place: (self.at(place, path),))
        self.both(f"times of {path!r}", os.lstat, lambda place: (self.at(place, path),),
                  normal=lambda about: about.st_mtime_ns)

    def look(self):
        self.on_path("lstat", os.lstat, normal=self.about)
        self.on_path("access", os.access, self.random.choice([os.F_OK, os.R_OK, os.W_OK, os.X_OK]))

    def look_at_open(self):
        self.on_file("fstat", os.fstat, normal=self.about)

    def list(self):
        self.on_path("readdir", os.listdir, normal=sorted)

    def locks(self):
        """Nobody else has any; they only must not be refused."""
        self.on_file("flock", fcntl.flock, self.random.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN]) | fcntl.LOCK_NB)
        self.on_file("lockf", fcntl.lockf, fcntl.LOCK_UN, 10, self.random.randrange(100))

    counts_directories = True  # their subdirectories, as the reference does

    @staticmethod
    def about(about):
        directory = stat.S_ISDIR(about.st_mode)
        return {"mode": oct(about.st_mode), "owner": (about.st_uid, about.st_gid),
                "links": None if directory and not Round.counts_directories else about.st_nlink,
                "size": about.st_size if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode) else None}

    STEPS = {open_file: 12, close_file: 6, write_at: 14, write_on: 4, write_vector: 3, read_at: 8, read_all: 4,
             replace: 4, truncate: 3, truncate_open: 4, sync: 2, allocate: 6, seek: 4, map: 6, copy: 4, temporary: 3,
             make_directory: 4, make_node: 1, remove_directory: 2, remove: 4, rename: 6, rename_otherwise: 4,
             link: 3, symlink: 3, attribute: 4, change_mode: 2, change_owner: 1, set_times: 2, look: 4,
             look_at_open: 3, list: 3, locks: 1}

    def run(self, steps):
        kinds, weights = list(self.STEPS), list(self.STEPS.values())
        try:
            for step in range(steps):
                self.random.choices(kinds, weights)[0](self)
                if self.careful:
                    self.compare()
            while self.open:
                self.close_file()
            if self.sabotage:
                posix.write(self.at(0, "sabotage"), b"")
            self.compare()
        except Violation as violation:
            last = "\n".join(f"    {line}" for line in self.log[-80:])
            raise Violation(f"{violation}\n  in --round {self.seed}, after\n{last}") from None
        except OSError as error:
            last = "\n".join(f"    {line}" for line in self.log[-20:])
            raise Violation(f"{error}\n  in --round {self.seed}, after\n{last}") from None

    def compare(self):
        compare(*self.own)


def compare(mounted, reference):
    """Everything that must agree in two trees."""
    names = sorted(os.listdir(reference))
    if sorted(os.listdir(mounted)) != names:
        raise Violation(f"{mounted} lists {sorted(os.listdir(mounted))} instead of {names}")
    for name in names:
        ours, theirs = os.path.join(mounted, name), os.path.join(reference, name)
        about, expected = os.lstat(ours), os.lstat(theirs)
        if Round.about(about) != Round.about(expected):
            raise Violation(f"{ours}: {Round.about(about)} instead of {Round.about(expected)}")
        if stat.S_ISDIR(about.st_mode):
            compare(ours, theirs)
        elif stat.S_ISLNK(about.st_mode):
            if os.readlink(ours) != os.readlink(theirs):
                raise Violation(f"{ours} leads to {os.readlink(ours)} instead of {os.readlink(theirs)}")
            continue
        elif stat.S_ISREG(about.st_mode):
            got, wanted = posix.read(ours), posix.read(theirs)
            if got != wanted:
                at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
                raise Violation(f"{ours} ({len(got)} bytes, {len(wanted)} expected) is another from {at} on")
        attributes = [{one: os.getxattr(path, one) for one in os.listxattr(path) if one.startswith("user.")}
                      for path in (ours, theirs)]
        if attributes[0] != attributes[1]:
            raise Violation(f"{ours} has the attributes {attributes[0]} instead of {attributes[1]}")


class Worker:
    """A process that goes through rounds, and has places in the shared file."""

    def __init__(self, number, options, directory):
        self.number, self.options, self.directory = number, options, directory
        self.shared = random.Random(f"{options.seed}-shared-{number}")

    def run(self, deadline):
        rounds = 0
        while time.monotonic() < deadline:
            seed = f"{self.options.seed}-{self.number}-{rounds}"
            one = Round(seed, os.path.join(self.directory, f"w{self.number}-{rounds}"),
                        os.path.join(self.options.reference, f"w{self.number}-{rounds}"), self.options.sabotage)
            one.run(STEPS)
            self.share(rounds)
            if rounds >= 2:  # the last ones are left for the other mount
                for root in (self.directory, self.options.reference):
                    shutil.rmtree(os.path.join(root, f"w{self.number}-{rounds - 2}"))
            rounds += 1
        return rounds

    def share(self, rounds):
        place = rounds * self.options.workers + self.number
        data = self.shared.randbytes(self.shared.randrange(1, SHARED_SLOT))
        for root in (self.directory, self.options.reference):
            fd = os.open(os.path.join(root, "shared"), os.O_RDWR | os.O_CREAT, 0o644)
            os.pwrite(fd, data, place * SHARED_SLOT)
            os.close(fd)
            with open(os.path.join(root, "counter"), "a+b") as counter:
                fcntl.lockf(counter, fcntl.LOCK_EX)
                counter.seek(0)
                value = int(counter.read() or b"0") + 1
                counter.truncate(0)
                counter.write(b"%d" % value)
                counter.flush()
                fcntl.lockf(counter, fcntl.LOCK_UN)


class Drives(threading.Thread):
    """Kills some, as many as may be away, and brings them back, from a time on."""

    def __init__(self, options, begin, end):
        super().__init__(daemon=True)
        self.options, self.begin, self.end = options, begin, end
        self.random = random.Random(f"{options.seed}-drives")
        self.kills, self.failure = 0, None

    def run(self):
        pinstripe = os.path.join(self.options.build, "tools", "pinstripe")

        def command(*arguments):
            subprocess.run([pinstripe, *arguments], check=True, capture_output=True)
        try:
            time.sleep(max(0, self.begin - time.monotonic()))
            while time.monotonic() < self.end:
                drives = self.random.sample(range(1, self.options.drives + 1), self.random.randint(1, self.options.away))
                command("dev", "kill", self.options.cluster, *map(str, drives))
                self.kills += len(drives)
                time.sleep(self.random.uniform(0.2, 3))
                command("dev", "start", self.options.cluster, *map(str, drives))
                deadline = time.monotonic() + 30
                while not drives_are_well(pinstripe, os.path.join(self.options.cluster, "cluster.toml")):
                    if time.monotonic() > deadline:
                        raise Violation(f"the drives {drives} do not come back")
                    time.sleep(0.1)
                time.sleep(2)  # until mounts have noticed (docs/operations.md, "Upgrade and restart")
        except (Violation, subprocess.CalledProcessError) as failure:
            self.failure = failure


def campaign(options):
    config = os.path.join(options.cluster, "cluster.toml")
    mount = Mount(options.build, config, os.path.abspath(options.cluster) + "-stress")
    mount.start()
    violations = []
    try:
        begin = time.monotonic()
        end = begin + options.time
        drives = Drives(options, begin + options.time / 2, end) if options.away > 0 else None
        processes = []
        for number in range(options.workers):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.umask(0o022)
                try:
                    rounds = Worker(number, options, mount.directory).run(end)
                    os.write(writing, f"{rounds}".encode())
                    os._exit(0)
                except Violation as violation:
                    os.write(writing, str(violation).encode(errors="surrogateescape")[:60000])
                except BaseException as error:  # whatever it is, this process ends here
                    os.write(writing, f"{type(error).__name__}: {error}".encode(errors="replace")[:60000])
                os._exit(1)
            os.close(writing)
            processes.append((pid, reading))
        if drives is not None:
            drives.start()
        rounds = 0
        for pid, reading in processes:
            said = b""
            while more := os.read(reading, 65536):
                said += more
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
                rounds += int(said)
            else:
                violations.append(said.decode(errors="replace"))
        if drives is not None:
            drives.join()
            if drives.failure is not None:
                violations.append(str(drives.failure))
        if not violations:
            compare(mount.directory, options.reference)
            mount.stop()
            mount.start()  # with nothing in memory
            compare(mount.directory, options.reference)
            count = int(posix.read(os.path.join(mount.directory, "counter")))
            if count != rounds:
                violations.append(f"they counted {rounds} rounds under locks, and got {count}")
        print(f"seed {options.seed}: {rounds} rounds of {STEPS} steps in {options.workers} processes, "
              f"{drives.kills if drives else 0} drives killed")
    except Violation as violation:
        violations.append(str(violation))
    finally:
        mount.stop()
    for violation in violations:
        print(f"VIOLATION: {violation}")
    return 1 if violations else 0


def one_round(options):
    mount = Mount(options.build, os.path.join(options.cluster, "cluster.toml"),
                  os.path.abspath(options.cluster) + "-stress")
    mount.start()
    os.umask(0o022)
    try:
        Round(options.round, os.path.join(mount.directory, "round"), os.path.join(options.reference, "round"),
              careful=options.careful).run(STEPS)
    except Violation as violation:
        print(f"VIOLATION: {violation}")
        return 1
    finally:
        mount.stop()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--cluster", required=True, help="directory of a development cluster that is up")
    parser.add_argument("--reference", required=True, help="an empty directory on a local disk")
    parser.add_argument("--time", type=float, default=20)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(1 << 32)))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--away", type=int, default=2, help="drives that may be away at once; 0: none is killed")
    parser.add_argument("--round")
    parser.add_argument("--careful", action="store_true", help="compare after each step of the round")
    parser.add_argument("--sabotage", action="store_true", help="make a file behind the reference's back")
    options = parser.parse_args()
    Round.counts_directories = os.stat(options.reference).st_nlink > 1  # Btrfs does not
    return one_round(options) if options.round else campaign(options)


if __name__ == "__main__":
    sys.exit(main())
