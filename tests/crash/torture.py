#!/usr/bin/python3
"""Tortures a development cluster: mounts that write, overwrite, cut, replace and read files of all sizes
and layouts and clone parts of them, while drives are killed, paused, slowed, filled, rotted, replaced by empty ones,
drained and taken back, mounts are killed, and repairs run. Every byte that is read is compared with what must be there.

What a mount wrote since the last fsync or close may be lost with it, and then all of it; if it was killed
during one, the file is as before or as after. No more than `--away` drives lack something at any time: what
rot or an empty drive took is restored before the next are harmed. Nothing that a program asks for fails
meanwhile, as it may wait. Now and then the world stands still: everything is repaired, `pinstripe verify`
must call it whole, and each file is read by every mount.

usage: torture.py --build BUILD --cluster DIR [--time SECONDS] [--seed N] [--sabotage]
"""

import argparse
import collections
import concurrent.futures
import errno
import glob
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from crash_meta import MAY_HAVE_HAPPENED, Mount, Violation
from health import drives_are_well

FILES = 5             # of each client
REDIS_CAPACITY = 2 << 30  # of a redis-server: more than it ever needs
SABOTAGED_BYTES = 64 << 20  # that are written before anything is ruined
LARGEST = 24 << 20
LAYOUTS = [None, "1+{m}", "2+{m} shard=64KiB replicate=1MiB", "{k}+{m} shard=64KiB inline=0"]


# A process of its own starts all others: who forks with a file open commits it, as the child closes it.
starter = None
background = None  # another one, for a command that takes its time
mounts = {}  # there: the directories' mounts


def start_mount(build, config, directory, environment=None):
    if directory not in mounts:
        mounts[directory] = Mount(build, config, directory, environment)
    mounts[directory].start()
    return mounts[directory].process.pid


def end_mount(directory, by_force):
    if by_force:
        mounts[directory].kill()
        mounts[directory].wait_for_end()
    else:
        mounts[directory].stop()


def run_command(words, environment=None):
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    return done.returncode, done.stdout, done.stderr


def new_starter():
    one = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    one.submit(os.getpid).result()  # it starts with the first that it is given
    return one


def elsewhere(function, *arguments):
    return starter.submit(function, *arguments).result()


def first_difference(found, expected):
    if len(found) != len(expected):
        return f"{len(found)} bytes instead of {len(expected)}"
    for at in range(0, len(found), 4096):
        if found[at:at + 4096] != expected[at:at + 4096]:
            byte = next(i for i in range(at, len(found)) if found[i] != expected[i])
            return f"byte {byte} of {len(found)} is {found[byte]} instead of {expected[byte]}"
    return "no difference"


def block_bytes(layout):
    """Of the user.pinstripe.layout of a file, such as "4+2 shard=1MiB copies=3"."""
    data, shard = re.match(r"([0-9]+)\+[0-9]+ shard=([0-9]+[KM])iB", layout).groups()
    return int(data) * int(shard[:-1]) << (20 if shard[-1] == "M" else 10)


def put(contents, at, data):
    """Of a bytearray: as a write changes it."""
    if data and at > len(contents):
        contents.extend(bytes(at - len(contents)))
    contents[at:at + len(data)] = data
    return contents


class File:
    """What may be there: `committed`, and as long as a commit is not known to have happened or not, `maybe`."""

    def __init__(self, name):
        self.name = name
        self.descriptor = None
        self.life = 0               # of the mount, when it was opened
        self.now = bytearray()      # what its own mount sees
        self.committed = b""
        self.maybe = []
        self.history = collections.deque(maxlen=20)

    def note(self, *words):
        self.history.append(f"{time.monotonic():.2f} {' '.join(map(str, words))}, life {self.life}")

    def allowed(self):
        return [self.committed, *self.maybe]

    def close(self):
        """Whatever close(2) says, the number may be another file's afterwards."""
        descriptor, self.descriptor = self.descriptor, None
        os.close(descriptor)


class Client(threading.Thread):
    """Works through one mount on files of its own."""

    def __init__(self, number, directory, options, turnstile):
        super().__init__(daemon=True)
        self.number, self.directory, self.turnstile = number, directory, turnstile
        self.random = random.Random(f"{options.seed}-{number}")
        self.noise = self.random.randbytes(4 << 20)
        self.files = [File(f"d{i % len(LAYOUTS)}/c{number}-{i}") for i in range(FILES)]
        self.dead = False
        self.life = 0  # how often its mount was killed
        self.bytes = self.operations = 0
        self.rest = getattr(options, "rest", 0)  # seconds, after each operation
        self.on_engine = getattr(options, "engine", False)
        self.violation = None

    def path(self, file):
        return os.path.join(self.directory, file.name)

    def run(self):
        while self.turnstile.pass_through(self):
            try:
                self.try_step(self.random.choice(self.files))
                self.operations += 1
                time.sleep(self.rest)
            except Violation as violation:
                self.violation = str(violation)
            except OSError as error:
                self.violation = f"{type(error).__name__} {error}"
            if self.violation:
                self.turnstile.leave(self)
                return

    def try_step(self, file):
        life = self.life
        try:
            self.step(file)
        except OSError as error:
            if not self.may_be_gone(file, life, error):
                raise Violation(f"{file.name}: {error}, in life {self.life}, after\n  " + "\n  ".join(file.history)) from error
            self.forget(file)

    def may_be_gone(self, file, life, error):
        """An error that is no wonder, as the mount was killed since; its directory may be empty then."""
        killed = self.dead or self.life != life or file.life != self.life
        return killed and error.errno in MAY_HAVE_HAPPENED | {errno.ENOENT, errno.EBADF}

    def forget(self, file):
        """What was not committed went with the mount."""
        if file.descriptor is not None:
            try:
                file.close()
            except OSError:
                pass
        found = None
        while found is None and self.turnstile.wait_for_mount(self):
            if not self.on_engine or self.settle(file):
                found = self.whole(file, self)
        if found is not None:
            file.committed, file.maybe = found, []
            file.now = bytearray(found)
            file.note("found", len(found), "after the mount was killed")

    def settle(self, file):
        """What the mount had asked an engine for may happen as long as the engine is at it, until somebody has changed the file.
        Whether it was changed now."""
        try:
            os.utime(self.path(file))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return True
            if error.errno not in MAY_HAVE_HAPPENED:
                raise
            time.sleep(0.1)
            return False
        return True

    def whole(self, file, reader):
        """What another client's mount has that opens the file now, which has to be what may be there. None: it
        was killed meanwhile."""
        life = reader.life
        try:
            with open(os.path.join(reader.directory, file.name), "rb", buffering=0) as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                found = b"".join(iter(lambda: opened.read(1 << 20), b""))
        except OSError as error:
            if (reader.dead or reader.life != life) and error.errno in MAY_HAVE_HAPPENED | {errno.ENOENT}:
                return None
            if error.errno != errno.ENOENT:
                raise
            found = b""
        if found not in file.allowed():
            raise Violation(f"{file.name} through {reader.directory}: "
                            f"{first_difference(found, file.committed)}; {len(file.maybe)} others were possible\n"
                            f"at {time.monotonic():.2f} in life {reader.life}, after\n  " + "\n  ".join(file.history))
        return found

    def step(self, file):
        if file.descriptor is None:
            file.life = -1 if self.dead else self.life  # while it is being killed nobody knows which
            file.descriptor = os.open(self.path(file), os.O_RDWR | os.O_CREAT, 0o644)
            file.block = block_bytes(os.getxattr(file.descriptor, "user.pinstripe.layout").decode())
        action = self.random.random()
        if action < 0.44:
            self.write(file)
        elif action < 0.5:
            self.clone(file)
        elif action < 0.6:
            self.truncate(file)
        elif action < 0.8:
            self.read(file)
        elif action < 0.9:
            self.commit(file, lambda: os.fsync(file.descriptor))
        elif action < 0.97:
            self.close(file)
        else:
            self.replace(file)

    def write(self, file):
        size = int(2 ** self.random.uniform(0, 22))
        end = len(file.now)
        at = self.random.choice([end, end, self.random.randrange(end + 1), self.random.randrange(LARGEST)])
        size = min(size, LARGEST - at)
        start = self.random.randrange(len(self.noise) - size + 1)
        data = self.noise[start:start + size]
        done = 0
        while done < size:
            done += os.pwrite(file.descriptor, data[done:], at + done)
        if at > end:
            file.now.extend(bytes(at - end))
        file.now[at:at + size] = data
        self.bytes += size
        file.note("wrote", size, "at", at, "now", len(file.now))

    def clone(self, file):
        """Of a part of another file, or of this one, into this one."""
        sources = [one for one in self.files if one.descriptor is not None and one.life == file.life]
        whole_blocks = self.random.random() < 0.6  # which are shared within a layout
        if whole_blocks:
            sources = [one for one in sources if one.block == file.block]
        source = self.random.choice(sources)
        begin = self.random.randrange(len(source.now) + 1)
        size = min(int(2 ** self.random.uniform(0, 23)), len(source.now) - begin)
        end = len(file.now)
        at = self.random.choice([begin, end, self.random.randrange(end + 1)])
        if whole_blocks:
            begin, at = (offset - offset % file.block for offset in (begin, min(at, end)))
            size = len(source.now) - begin
        size = min(size, LARGEST - at)
        if source is file and abs(at - begin) < size:
            size = abs(at - begin)  # what overlaps is refused
        data = bytes(source.now[begin:begin + size])
        # What shares blocks commits both files, before and after.
        source.maybe.append(bytes(source.now))
        file.maybe.append(bytes(file.now))
        done = 0
        while done < size:
            file.maybe.append(bytes(put(bytearray(file.now), at + done, data[done:])))
            shared = (size - done) // file.block * file.block
            file.maybe.append(bytes(put(bytearray(file.now), at + done, data[done:done + shared])))
            copied = os.copy_file_range(source.descriptor, file.descriptor, size - done, begin + done, at + done)
            if copied == 0:
                raise Violation(f"{source.name} ends at {begin + done} of {len(source.now)}, or cannot be cloned\n  "
                                + "\n  ".join(source.history))
            put(file.now, at + done, data[done:done + copied])
            done += copied
            file.maybe.append(bytes(file.now))
        if size == 0:
            return
        self.bytes += size
        file.note("cloned", size, "at", at, "from", begin, "of", source.name, "now", len(file.now))

    def truncate(self, file):
        size = self.random.choice([0, self.random.randrange(len(file.now) + 1), self.random.randrange(LARGEST)])
        os.ftruncate(file.descriptor, size)
        file.now = bytearray(file.now[:size].ljust(size, b"\0"))
        file.note("truncated to", size)

    def read(self, file):
        os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        at = self.random.randrange(len(file.now) + 1)
        size = int(2 ** self.random.uniform(0, 22))
        expected = bytes(file.now[at:at + size])
        found = b""
        while len(found) < len(expected):
            more = os.pread(file.descriptor, size - len(found), at + len(found))
            if not more:
                break
            found += more
        if found != expected:
            raise Violation(f"{file.name} from {at} of {len(file.now)}: {first_difference(found, expected)}\n"
                            f"at {time.monotonic():.2f} in life {self.life}, after\n  " + "\n  ".join(file.history))

    def commit(self, file, how):
        file.maybe.append(bytes(file.now))
        file.note("commits", len(file.now))
        how()
        file.committed, file.maybe = bytes(file.now), []
        file.note("committed", len(file.now))

    def close(self, file):
        self.commit(file, file.close)
        self.whole(file, self.random.choice(self.turnstile.clients))

    def replace(self, file):
        """As editors and rsync do it."""
        start = self.random.randrange(1 << 20)
        data = self.noise[start:start + int(2 ** self.random.uniform(0, 21))]
        name = self.path(file)
        if file.descriptor is not None:
            self.commit(file, file.close)
        with open(name + ".new", "wb", buffering=0) as new:
            done = 0
            while done < len(data):
                done += new.write(data[done:])
            os.fsync(new.fileno())
        file.maybe.append(data)
        os.rename(name + ".new", name)
        file.committed, file.maybe = data, []
        file.now = bytearray(data)
        file.note("replaced by", len(data))


class Turnstile:
    """Lets all clients through, or none."""

    def __init__(self):
        self.condition = threading.Condition()
        self.open, self.ended, self.inside = True, False, set()
        self.clients = []

    def pass_through(self, client):
        with self.condition:
            self.leave(client)
            self.condition.wait_for(lambda: self.open or self.ended)
            if self.ended:
                return False
            self.inside.add(client)
            return True

    def leave(self, client):
        with self.condition:
            self.inside.discard(client)
            self.condition.notify_all()

    def wait_for_mount(self, client):
        with self.condition:
            self.condition.wait_for(lambda: not client.dead or self.ended)
            return not self.ended

    def stop_all(self):
        with self.condition:
            self.open = False
            self.condition.wait_for(lambda: not self.inside, 300)

    def go_on(self, ended=False):
        with self.condition:
            self.open, self.ended = True, self.ended or ended
            self.condition.notify_all()


class Campaign:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.pinstripe = os.path.join(options.build, "tools", "pinstripe")
        self.config = os.path.join(options.cluster, "cluster.toml")
        self.turnstile = Turnstile()
        self.clients = [Client(number, f"{options.cluster}-torture-{number}", options, self.turnstile)
                        for number in range(options.clients)]
        self.mounted = []
        self.turnstile.clients = self.clients
        self.done = {}
        self.looks = 0

    def command(self, *words, codes=(0,), environment=None):
        code, said, errors = elsewhere(run_command, [self.pinstripe, *map(str, words)], environment)
        if code not in codes:
            raise Violation(f"pinstripe {' '.join(map(str, words))}: exit {code}\n{said[-3000:]}{errors[-2000:]}")
        return code

    def mount(self, client):
        elsewhere(start_mount, self.options.build, self.config, client.directory)

    def some_drives(self):
        count = self.random.randint(1, self.options.away)
        return self.random.sample(range(1, self.options.drives + 1), count)

    def pid_of(self, drive):
        with open(os.path.join(self.options.cluster, "dev.json"), encoding="utf-8") as file:
            for daemon in json.load(file)["daemons"]:
                if any(one["id"] == drive for one in daemon["drives"]):
                    return daemon["process"]["pid"]
        raise Violation(f"there is no drive {drive}")

    def wait_until_healthy(self):
        begin = time.monotonic()
        while not elsewhere(drives_are_well, self.pinstripe, self.config):
            if time.monotonic() > begin + 60:
                _, said, _ = elsewhere(run_command, [self.pinstripe, "status", self.config])
                raise Violation(f"the drives do not come back:\n{said}")
            time.sleep(0.1 if time.monotonic() < begin + 2 else 0.5)

    # --- harm ---

    def kill_drives(self):
        drives = self.some_drives()
        self.command("dev", "kill", self.options.cluster, *drives)
        time.sleep(self.random.random() * self.random.choice([0.5, 8]))
        self.command("dev", "start", self.options.cluster, *drives)
        self.wait_until_healthy()

    def pause_drives(self):
        pids = [self.pid_of(drive) for drive in self.some_drives()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.random.random() * self.random.choice([0.5, 8]))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.wait_until_healthy()

    def slow_drives(self):
        self.run_slowly([self.pid_of(drive) for drive in self.some_drives()], self.random.random() * 5)

    def run_slowly(self, pids, seconds):
        """At a twentieth of their speed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(0.095)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.005)
        self.wait_until_healthy()

    def fill_drives(self):
        """They have no room for anything new, until their owner gives them some."""
        drives = self.some_drives()
        limits = [self.set_capacity(drive, 16 << 20) for drive in drives]
        time.sleep(self.random.random() * self.random.choice([0.5, 8]))
        for drive, limit in zip(drives, limits):
            self.set_capacity(drive, limit)
        self.until_whole("repair")

    def set_capacity(self, drive, limit):
        """Returns what it was before."""
        if self.is_redis(drive):
            self.ask_redis(drive, "CONFIG", "SET", "maxmemory", limit)
            return REDIS_CAPACITY
        name = os.path.join(self.options.cluster, f"pinstriped-{drive}.toml")
        with open(name, encoding="utf-8") as file:
            text = file.read()
        before = re.search(r"capacity = (\d+)", text)[1]
        self.command("dev", "kill", self.options.cluster, drive)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text.replace(f"capacity = {before}", f"capacity = {limit}"))
        self.command("dev", "start", self.options.cluster, drive)
        return before

    def drain_and_expand(self):
        """A drive is drained, by a command that dies at first, while a mount is killed; then it is taken back."""
        drive = self.random.randint(1, self.options.drives)
        words = ["timeout", "--signal=KILL", str(self.random.uniform(0.1, 10)), self.pinstripe, "drain", self.config, str(drive)]
        begun = background.submit(run_command, words)
        self.kill_mount()
        begun.result()
        self.command("drain", self.config, drive, codes=(0, 3))
        self.command("expand", self.config, drive, codes=(0, 3))
        self.until_whole("repair")

    def kill_mount(self, client=None):
        client = client or self.random.choice(self.clients)
        with self.turnstile.condition:
            client.dead = True
            client.life += 1
        elsewhere(end_mount, client.directory, True)
        self.mount(client)
        with self.turnstile.condition:
            client.dead = False
            self.turnstile.condition.notify_all()

    def is_redis(self, drive):
        return drive > self.options.drives - self.options.redis

    def ask_redis(self, drive, *words):
        """What a redis-server answers to one command."""
        with open(os.path.join(self.options.cluster, f"redis-{drive}.conf"), encoding="utf-8") as file:
            port = int(re.search(r"^port (\d+)", file.read(), re.M)[1])
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        with socket.create_connection(("127.0.0.1", port)) as server, server.makefile("rb") as answer:
            server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            line = answer.readline().rstrip()
            if line[:1] == b"-":
                raise Violation(f"drive {drive}: {words[0].decode()}: {line.decode()}")
            return answer.read(int(line[1:])) if line[:1] == b"$" and line != b"$-1" else line[1:]

    def rot_redis(self, drive):
        for _ in range(20):
            key = self.ask_redis(drive, "RANDOMKEY")
            if not key.startswith(b"pinstripe:r:"):
                continue
            # Unless it is removed meanwhile.
            text = """local size = redis.call('STRLEN', KEYS[1])
                      if size > 0 then redis.call('SETRANGE', KEYS[1], ARGV[1] % size, ARGV[2]) end"""
            self.ask_redis(drive, "EVAL", text, 1, key, self.random.randrange(1 << 20), bytes([self.random.randrange(256)]))

    def rot(self):
        """Bits turn over on the disks of drives that run; a scrub has to find and mend them."""
        for drive in self.some_drives():
            if self.is_redis(drive):
                self.rot_redis(drive)
            for name in glob.glob(os.path.join(self.options.cluster, "drives", str(drive), "segments", "*.log")):
                used = os.stat(name).st_blocks * 512
                with open(name, "r+b") as file:
                    for _ in range(20):
                        at = self.random.randrange(max(used // 2, 1))
                        file.seek(at)
                        byte = file.read(1)
                        if byte:
                            file.seek(at)
                            file.write(bytes([byte[0] ^ 1 << self.random.randrange(8)]))
        self.until_whole("scrub")

    def replace_drive(self):
        drive = self.random.randint(1, self.options.drives)
        self.command("dev", "kill", self.options.cluster, drive)
        directory = os.path.join(self.options.cluster, "drives", str(drive))
        shutil.rmtree(directory)
        os.mkdir(directory)
        daemon = os.path.join(self.options.build, "daemon", "pinstriped")
        if not self.is_redis(drive):
            code, said, why = elsewhere(run_command, [daemon, "--init", directory])
            if code != 0:
                raise Violation(f"pinstriped --init {directory}: exit {code}: {said}{why}")
        self.command("dev", "start", self.options.cluster, drive)
        self.command("rebuild", self.config, drive, codes=(0, 3))
        self.until_whole("repair")

    def repair(self):
        self.command(self.random.choice(["repair", "scrub"]), self.config, codes=(0, 3))

    def pack(self):
        """All that is small at this moment, whoever writes to it; and what little is used again. It may be killed."""
        words = ["timeout", "-s", "KILL", str(self.random.choice([0.2, 1, 60]))] if self.random.random() < 0.5 else []
        command = [self.pinstripe, "pack", self.config, "--older-than", "0s", "--least", "1", "--no-wait"]
        code, said, why = elsewhere(run_command, words + command)
        if code not in (0, 137, -9):
            raise Violation(f"pinstripe pack: exit {code}: {said}{why}")

    def until_whole(self, how):
        """Others write meanwhile, so that once may not be enough."""
        self.wait_until_healthy()
        for _ in range(5):
            if self.command(how, self.config, codes=(0, 3)) == 0:
                return
        self.turnstile.stop_all()
        self.command(how, self.config)
        self.turnstile.go_on()

    # --- looking ---

    def look(self):
        self.calm_down()
        self.command("repair", self.config)
        if self.options.sabotage and self.is_enough():
            self.harm_too_much()
        self.command("verify", self.config)
        self.read_everything(self.clients)
        if self.random.random() < 0.3:
            self.command("collect", "--older-than", "1h", self.config)
        self.looks += 1
        self.turnstile.go_on()

    def calm_down(self):
        """Nobody does anything, and everything is committed."""
        self.turnstile.stop_all()
        self.see_violations()
        self.wait_until_healthy()
        for client in self.clients:  # what is dirty in a mount is nothing that drives could lack
            for file in client.files:
                if file.descriptor is not None:
                    try:
                        client.commit(file, lambda fd=file.descriptor: os.fsync(fd))
                    except OSError as error:
                        if not client.may_be_gone(file, client.life, error):
                            raise Violation(f"fsync of {file.name}: {error}") from error
                        client.forget(file)

    def read_everything(self, readers):
        for client in self.clients:
            for file in client.files:
                for reader in readers:
                    client.whole(file, reader)

    def harm_too_much(self):
        """One drive's records vanish, and nobody is told."""
        self.command("dev", "kill", self.options.cluster, 1)
        directory = os.path.join(self.options.cluster, "drives", "1")
        segments = sorted(glob.glob(os.path.join(directory, "segments", "*.log")))
        for name in segments:
            with open(name, "r+b") as file:
                size = os.path.getsize(name)
                for at in range(4096, size, 1 << 16):
                    file.seek(at)
                    file.write(b"\xff" * 16)
        self.command("dev", "start", self.options.cluster, 1)
        self.wait_until_healthy()

    def is_enough(self):
        """What is to be noticed has to be there first, however slow the machine is."""
        written = sum(client.bytes for client in self.clients)
        return time.monotonic() >= self.end and (not self.options.sabotage or written >= SABOTAGED_BYTES)

    def see_violations(self):
        for client in self.clients:
            if client.violation:
                raise Violation(client.violation)

    def run(self):
        for client in self.clients:
            self.mount(client)
            self.mounted.append(client)
        for number, layout in enumerate(LAYOUTS):
            directory = os.path.join(self.clients[0].directory, f"d{number}")
            os.mkdir(directory)
            if layout:
                text = layout.format(k=self.options.data, m=self.options.away)
                os.setxattr(directory, "user.pinstripe.layout", text.encode())
        for client in self.clients:
            client.start()
        harm = [self.kill_drives, self.kill_drives, self.pause_drives, self.slow_drives, self.fill_drives, self.kill_mount,
                self.kill_mount, self.rot, self.replace_drive, self.repair, self.pack, self.pack]
        if self.options.time >= 60:
            harm.append(self.drain_and_expand)  # it takes its time
        self.end = time.monotonic() + self.options.time
        next_word = 0
        while not self.is_enough():
            # Each kind before any comes again, in an order of its own.
            for what in self.random.sample(harm, len(harm)):
                time.sleep(self.random.random() * 2)  # work goes on for a while
                what()
                self.done[what.__name__] = self.done.get(what.__name__, 0) + 1
                self.see_violations()
                if self.is_enough():
                    break
            self.look()
            if time.monotonic() >= next_word:
                print(self.summary(), flush=True)
                next_word = time.monotonic() + 60

    def summary(self):
        done = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(self.done.items()))
        return (f"{sum(c.operations for c in self.clients)} operations, "
                f"{sum(c.bytes for c in self.clients) >> 20} MiB written; {done}; {self.looks} looks at everything")

    def stop(self):
        self.turnstile.go_on(ended=True)
        for client in self.clients:
            if client.is_alive():
                client.join(20)
            for file in client.files:
                if file.descriptor is not None:
                    try:
                        file.close()
                    except OSError:
                        pass
        for client in self.mounted:
            elsewhere(end_mount, client.directory, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--cluster", required=True, help="an empty development cluster that runs")
    parser.add_argument("--time", type=float, default=60, help="seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--data", type=int, default=4, help="k of the cluster's layout")
    parser.add_argument("--away", type=int, default=2, help="drives that may be away at once: m")
    parser.add_argument("--redis", type=int, default=0, help="how many of the drives, the last ones, are redis-servers")
    parser.add_argument("--engine", action="store_true", help="names are on an engine")
    parser.add_argument("--sabotage", action="store_true", help="ruin a drive unrepaired, which has to be noticed")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    global starter, background
    starter, background = new_starter(), new_starter()
    campaign = Campaign(options)
    try:
        campaign.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)
        return 1
    finally:
        campaign.stop()
    print(campaign.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
