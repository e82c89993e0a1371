#!/usr/bin/python3
"""Cuts the power of drives in the middle of changes of the name space, again and again, and looks
whether what docs/semantics.md promises of names holds.

The drives of a development cluster are served by lossy_daemon: pinstriped on disks that lose what
was not synced. Each process is a host with one or several drives on one disk. Mounts (pinstripe-fuse)
make, replace, link, rename, exchange and remove files, symbolic links and directories of their own,
and take part in a brawl over names that they share. Now and then they fsync a file or a directory. The
power fails of

  everything   all hosts, and the machines of the mounts
  a part       some hosts, and the machines of the mounts
  a host       with no more drives than may be away; the mounts go on

and sometimes once more while what was forgotten is decided anew. In a campaign of five minutes or
more the mounts also go on, now and then, when any hosts lose their power, until the drives are
compared. Then everything stands still and is looked at. A client knows of each name what it may stand
for: now, and after a loss of power. What was synced, renamed or exchanged has happened; of the rest
each change has happened or has not, a rename with both its names; and what has a name that nobody
removed is somewhere. `pinstripe repair` must leave nothing that `pinstripe check` calls an error.

usage: cut_power.py --build BUILD --cluster DIR [--time SECONDS] [--cuts N] [--seed N] [--clients N]
                    [--lie | --disk-lies]
"""

import argparse
import collections
import concurrent.futures
import ctypes
import errno
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time

from crash_meta import MAY_HAVE_HAPPENED, Mount, Pause, Violation, Worker

AWAY = 2  # drives that may forget, and all that was answered is remembered
LONG_UP, JUST_UP = 100, 0  # seconds that a machine says to be up
FILES, DIRECTORIES, SHARED = 5, 2, 4
UNREADABLE = b"(unreadable)"
ABSENT = None

libc = ctypes.CDLL(None, use_errno=True)


def exchange(first, second):
    at_fdcwd, rename_exchange = -100, 2
    if libc.renameat2(at_fdcwd, first.encode(), at_fdcwd, second.encode(), rename_exchange) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), first)


class File:
    """What is under a name: one that is a file. It is written once."""

    def __init__(self, content):
        self.content = content
        self.written = self.synced = False
        self.vague = False  # it may be empty, or unreadable
        self.rooted = False  # it was synced while it had a name that was synced

    def lose_power(self):
        self.vague = self.vague or not self.synced

    def matches(self, found):
        if found is None or found.kind != "file":
            return False
        if found.content == self.content:
            return True
        return (found.content == b"" and not self.written) or \
            (self.vague and found.content in (b"", UNREADABLE))

    def __str__(self):
        word = "synced" if self.synced else "vague" if self.vague else "written" if self.written else "new"
        return f"file {self.content[:12]!r} ({len(self.content)} bytes, {word})"


class Symlink:
    def __init__(self, target):
        self.content = target
        self.rooted = False

    synced = True

    def lose_power(self):
        pass

    def matches(self, found):
        return found is not None and found.kind == "symlink" and found.content == self.content

    def __str__(self):
        return f"link to {self.content!r}"


class Directory:
    """One with at most one file in it, by which it is known."""

    def __init__(self):
        self.inside = Name()
        self.rooted = False

    synced = True

    def lose_power(self):
        self.inside.lose_power()

    def matches(self, found):
        return found is not None and found.kind == "directory" and self.inside.allows(found.inside)

    def __str__(self):
        return f"directory with {' or '.join(map(shown, self.inside.now))}"


class Found:
    def __init__(self, kind, content=b"", about=None, inside=None):
        self.kind, self.content, self.about, self.inside = kind, content, about, inside

    def __str__(self):
        what = f" with {shown(self.inside)}" if self.kind == "directory" else \
            f" {self.content[:12]!r} ({len(self.content)} bytes)"
        return self.kind + what


def shown(value):
    return "absent" if value is None else str(value)


class Name:
    """What a name may stand for: now, and when the power has failed."""

    def __init__(self):
        self.now, self.after = {ABSENT}, {ABSENT}

    def allows(self, found):
        return any(found is None if value is ABSENT else value.matches(found) for value in self.now)

    def is_certain(self):
        return len(self.now) == 1

    def value(self):
        return next(iter(self.now))

    def may_become(self, value):
        self.now = self.now | {value}
        self.after = self.after | {value}

    def has_become(self, value, safe):
        self.now = {value}
        self.after = {value} if safe else self.after | {value}

    def is_safe(self):
        self.after = set(self.now)

    def lose_power(self):
        self.now = set(self.after)
        for value in self.now:
            if value is not ABSENT:
                value.lose_power()


class Pending:
    """A change of several names that has happened with all of them, or with none."""

    def __init__(self, names, before, outcome):
        self.names, self.outcome = names, outcome
        self.before = [set(name.now) for name in before]
        self.before_after = [set(name.after) for name in before]

    def lose_power(self):
        self.before = self.before_after

    def allows(self, found):
        def fits(value, what):
            return what is None if value is ABSENT else value.matches(what)
        return all(fits(value, what) for value, what in zip(self.outcome, found)) or \
            all(any(fits(value, what) for value in values) for values, what in zip(self.before, found))


class Client(Worker):
    """Works through one mount."""

    def __init__(self, number, mount, root, options, pause):
        super().__init__(number, mount, root, options.seed, pause)
        self.lies = options.lie
        self.names = {}
        self.pending = []
        self.story = collections.deque(maxlen=60)  # the last changes, for who reads of a violation
        self.syncs = self.failed_syncs = 0
        self.calm = False

    def name(self, name):
        return self.names.setdefault(name, Name())

    def own(self):
        return f"{self.random.choice('pq')}/c{self.number}-f{self.random.randrange(FILES)}"

    def own_directory(self):
        return f"{self.random.choice('pq')}/c{self.number}-d{self.random.randrange(DIRECTORIES)}"

    def temporary(self):
        self.versions += 1
        return f"{self.random.choice('pq')}/c{self.number}-t{self.versions}"

    def certain(self, name, kinds):
        """What it stands for, if that is known and of these kinds; else False."""
        state = self.name(name)
        if not state.is_certain():
            return False
        value = state.value()
        return value if value is not ABSENT and isinstance(value, kinds) else False

    def is_gone(self, name):
        return self.name(name).now == {ABSENT}

    # --- how operations end ---

    def might_have_happened(self, error, life):
        # Between two mounts there is an empty directory.
        is_between = error.errno == errno.ENOENT and (self.dead or self.lives != life)
        return error.errno in MAY_HAVE_HAPPENED or is_between

    def attempt(self, operation, changes, safe=False):
        """`changes`: of each name what it is after the operation. `safe`: it is so, once it is answered,
        also after a loss of power."""
        states = [key if isinstance(key, Name) else self.name(key) for key in changes]
        words = ", ".join(f"{key if isinstance(key, str) else 'inside'} := {shown(value)}"
                          for key, value in changes.items())
        self.story.append(f"? {words}")
        self.pending = [one for one in self.pending if not set(map(id, one.names)) & set(map(id, states))]
        pending = Pending(states, states, list(changes.values()))
        before = [(set(state.now), set(state.after)) for state in states]
        for state, value in zip(states, changes.values()):
            state.may_become(value)
        life = self.lives
        try:
            operation()
        except OSError as error:
            if self.might_have_happened(error, life):
                self.uncertain += 1
                if len(states) > 1:
                    self.pending.append(pending)
                return False
            for state, (now, after) in zip(states, before):  # it says that nothing happened
                state.now, state.after = now, after
            self.story[-1] = f"no, {error}: {words}"
            raise
        self.story[-1] = f"done {words}"
        for state, value in zip(states, changes.values()):
            state.has_become(value, safe or self.lies)
        self.acknowledged += 1
        return True

    def try_sync(self, operation):
        self.syncs += 1
        life = self.lives
        try:
            if not self.lies:
                operation()
            self.story.append("synced")
        except OSError as error:
            if not self.might_have_happened(error, life):
                raise
            self.failed_syncs += 1
            return False
        return True

    # --- operations ---

    def content(self):
        self.versions += 1
        text = f"{self.number}:{self.versions};".encode()
        return text * self.random.choice([1, 1, 10, 1000, 9000])

    def make_file(self, path, state):
        """The new file, or None if it may not be as it should."""
        file = File(self.content())
        descriptor = []
        if not self.attempt(lambda: descriptor.append(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
                            {state: file}):
            file.vague = True
            return None
        life = self.lives
        try:
            try:
                os.write(descriptor[0], file.content)
                synced = self.random.random() < (0.05 if self.calm else 0.6) and \
                    self.try_sync(lambda: os.fsync(descriptor[0]))
            finally:
                os.close(descriptor[0])
        except OSError as error:
            if not self.might_have_happened(error, life):
                raise
            file.vague = True
            self.uncertain += 1
            return None
        file.written = True
        if synced:
            file.synced = True  # with its name
            state.is_safe()
        return file

    def replace(self):
        temporary = self.temporary()
        file = self.make_file(self.path(temporary), self.name(temporary))
        if file is not None:
            self.rename_to(temporary, self.own(), file)

    def make(self):
        name = self.own()
        if self.is_gone(name):
            self.make_file(self.path(name), self.name(name))

    def replace_by_symlink(self):
        link = Symlink(f"anywhere/{self.versions}".encode())
        temporary = self.temporary()
        if self.attempt(lambda: os.symlink(link.content, self.path(temporary).encode()), {temporary: link}):
            self.rename_to(temporary, self.own(), link)

    def may_be_directory(self, name):
        return any(isinstance(value, Directory) for value in self.name(name).now)

    def rename_to(self, source, target, value):
        if self.may_be_directory(target):
            return
        self.attempt(lambda: os.rename(self.path(source), self.path(target)), {source: ABSENT, target: value},
                     safe=True)

    def remove(self):
        name = self.own()
        if ABSENT not in self.name(name).now and not self.may_be_directory(name):
            self.attempt(lambda: os.unlink(self.path(name)), {name: ABSENT})

    def move(self):
        source, target = self.own(), self.own()
        value = self.certain(source, (File, Symlink))
        # Of two names of one file: rename does nothing.
        if value and source != target and value not in self.name(target).now:
            self.rename_to(source, target, value)

    def link(self):
        source, target = self.own(), self.own()
        value = self.certain(source, (File, Symlink))
        if value and self.is_gone(target):
            self.attempt(lambda: os.link(self.path(source), self.path(target), follow_symlinks=False),
                         {target: value})

    def exchange(self):
        first, second = [self.random.choice([self.own, self.own, self.own_directory])() for _ in range(2)]
        kinds = (File, Symlink, Directory)
        one, other = self.certain(first, kinds), self.certain(second, kinds)
        if one and other and one is not other:
            self.attempt(lambda: exchange(self.path(first), self.path(second)), {first: other, second: one},
                         safe=True)

    def make_directory(self):
        name = self.own_directory()
        if not self.is_gone(name):
            return
        directory = Directory()
        if self.attempt(lambda: os.mkdir(self.path(name)), {name: directory}) and self.random.random() < 0.8:
            self.make_file(self.path(f"{name}/inside"), directory.inside)

    def remove_directory(self):
        name = self.random.choice([self.own_directory, self.own])()
        directory = self.certain(name, Directory)
        if not directory or not directory.inside.is_certain():
            return
        if directory.inside.value() is not ABSENT and not self.attempt(
                lambda: os.unlink(self.path(f"{name}/inside")), {directory.inside: ABSENT}):
            return
        self.attempt(lambda: os.rmdir(self.path(name)), {name: ABSENT})

    def move_directory(self):
        source, target = self.own_directory(), self.own_directory()
        directory = self.certain(source, Directory)
        if directory and source != target and self.is_gone(target):
            self.rename_to(source, target, directory)

    def sync_directory(self):
        def sync():
            descriptor = os.open(self.path(self.random.choice("pq")), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

        if self.try_sync(sync):
            self.everything_is_safe()

    def everything_is_safe(self):
        for state in self.names.values():
            self.is_safe(state)
            for value in state.now:
                if isinstance(value, Directory):
                    self.is_safe(value.inside)
        for one in self.pending:
            one.before_after = one.before

    @staticmethod
    def is_safe(state):
        state.is_safe()
        if state.is_certain() and state.value() is not ABSENT and state.value().synced:
            state.value().rooted = True

    def brawl(self):
        names = [f"{self.random.choice('pq')}/x{self.random.randrange(SHARED)}" for _ in range(2)]
        paths = [self.path(name) for name in names]
        action = self.random.randrange(7)
        if action == 0:
            with open(paths[0], "wb") as file:
                file.write(b"brawl")
        elif action == 1:
            os.unlink(paths[0])
        elif action == 2:
            os.rename(*paths)
        elif action == 3:
            os.link(*paths)
        elif action == 4:
            os.mkdir(paths[0])
        elif action == 5:
            os.rmdir(paths[0])
        else:
            exchange(*paths)

    def step(self):
        if self.random.random() < 0.02:
            self.calm = not self.calm
        if self.lies or self.calm:  # nothing that makes something safe by the way
            self.random.choices([self.make, self.remove, self.make_directory, self.sync_directory],
                                weights=[4, 3, 2, 1 if self.lies else 0.2])[0]()
            return
        self.random.choices(
            [self.replace, self.make, self.replace_by_symlink, self.remove, self.move, self.link, self.exchange,
             self.make_directory, self.remove_directory, self.move_directory, self.sync_directory],
            weights=[4, 3, 1, 3, 3, 3, 3, 3, 2, 2, 1])[0]()
        if self.random.random() < 0.3:
            try:
                self.brawl()
            except OSError:
                pass  # others were faster, or the power has failed

    # --- looking ---

    def find(self, path):
        for _ in range(100):
            try:
                about = os.lstat(path)
                if stat.S_ISLNK(about.st_mode):
                    return Found("symlink", os.readlink(path.encode()), about)
                if stat.S_ISDIR(about.st_mode):
                    return Found("directory", about=about, inside=self.find(f"{path}/inside"))
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    # To its end: where only its beginning can be read the kernel gives that first, and then fails.
                    content = b""
                    while part := os.read(descriptor, 1 << 20):
                        content += part
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    content = UNREADABLE
                finally:
                    os.close(descriptor)
                return Found("file", content, about)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                # A rename that was cut short takes place when somebody looks: here, in between.
                if error.errno not in (errno.EINVAL, errno.ELOOP, errno.ESTALE, errno.EISDIR):
                    raise Violation(f"{path}: {error}") from error
        raise Violation(f"{path} is something else each time")

    def lose_power(self):
        self.story.append("power lost")
        for state in self.names.values():
            state.lose_power()
        for one in self.pending:
            one.lose_power()

    def look(self, what_is_known, settled, repaired):
        """`what_is_known`: of each name that was certain what it stood for before the power failed.
        `settled`: no request from before is under way."""
        for name in self.names:  # what was cut short is brought to its end
            self.find(self.path(name))
        found = {name: self.find(self.path(name)) for name in self.names}
        for name, state in sorted(self.names.items()):
            if not state.allows(found[name]):
                raise Violation(f"{name} is {shown(found[name])}; it may be "
                                + " or ".join(shown(value) for value in state.now))
        self.look_at_pairs(found)
        self.look_for_lost(found, what_is_known)
        self.look_at_links(found)
        self.look_for_strangers()
        if settled:
            self.settle(found, repaired)

    def look_at_pairs(self, found):
        names_of = {id(state): name for name, state in self.names.items()}
        for one in self.pending:
            names = [names_of.get(id(state)) for state in one.names]
            if None not in names and not one.allows([found[name] for name in names]):
                raise Violation(f"a change of {' and '.join(names)} has happened in part: "
                                + "; ".join(shown(found[name]) for name in names))

    def look_for_lost(self, found, what_is_known):
        for name, value in what_is_known.items():
            if value is not ABSENT and value.rooted and not isinstance(value, Directory) and \
                    not any(value.matches(what) for what in found.values()):
                raise Violation(f"{value} was {name}, and is nowhere")

    def look_at_links(self, found):
        count, about = {}, {}
        for name, what in found.items():
            if what is not None and what.kind != "directory":
                count.setdefault(what.about.st_ino, []).append(name)
                about[what.about.st_ino] = what.about
        for inode, names in count.items():
            if about[inode].st_nlink < len(names):
                raise Violation(f"{' and '.join(names)} are one file, which counts {about[inode].st_nlink} names")

    def look_for_strangers(self):
        for directory in "pq":
            for entry in os.listdir(self.path(directory)):
                name = f"{directory}/{entry}"
                if entry.startswith(f"c{self.number}-") and name not in self.names and \
                        self.find(self.path(name)) is not None:
                    raise Violation(f"{name} is there; it was removed or never made")

    def settle(self, found, repaired):
        """What was found stays."""
        self.pending = []
        for name, state in list(self.names.items()):
            fits = {value for value in state.now
                    if (found[name] is None if value is ABSENT else value.matches(found[name]))}
            may_get_it_again = not repaired and fits == {ABSENT} and \
                any(isinstance(value, Directory) for value in state.now)
            if may_get_it_again:
                continue
            state.now = fits
            for value in fits:
                if isinstance(value, Directory):
                    inside = found[name].inside
                    value.inside.now = {each for each in value.inside.now
                                        if (inside is None if each is ABSENT else each.matches(inside))}
            if found[name] is None and "-t" in name and state.after == {ABSENT}:
                del self.names[name]  # it is never used again


class Host:
    """A process of lossy_daemon, with its drives on one disk."""

    def __init__(self, program, directory, drives, lies):
        self.program, self.directory, self.drives, self.lies = program, directory, set(drives), lies
        self.log = f"{directory}.log"
        self.process = None
        self.just_up = False  # since it lost its power: not compared for a while

    def start(self, seed, boot, up):
        environment = dict(os.environ, PINSTRIPE_BOOT_ID=boot, PINSTRIPE_UPTIME_SECONDS=str(up))
        with open(self.log, "ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                [self.program, self.directory, str(seed), *(["--disk-lies"] if self.lies else []),
                 "--config", f"{self.directory}.toml"], env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_until_ready(self):
        said = self.process.stdout.readline()
        with open(self.log, encoding="utf-8", errors="replace") as log:
            log.seek(self.logged)
            text = log.read()
        if said != "ready\n" or "cannot be served" in text:
            raise Violation(f"a host does not serve its drives any more: {text.strip()[-600:]}")

    def cut_power(self):
        self.process.send_signal(signal.SIGUSR1)

    def wait_for_end(self):
        self.process.wait()
        self.process.stdout.close()


class Campaign:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.pinstripe = os.path.join(options.build, "tools", "pinstripe")
        self.config = os.path.join(options.cluster, "cluster.toml")
        self.pause = Pause()
        self.boots = self.cuts = self.cuts_of_all = self.cuts_of_parts = self.cuts_of_hosts = 0
        self.cuts_for_long = 0
        self.looks = self.repairs = self.mended = 0
        root = f"power-{time.time_ns()}"
        self.clients = [
            Client(n, Mount(options.build, self.config, f"{options.cluster}-power-{n}"), root, options, self.pause)
            for n in range(options.clients)]
        self.hosts = []
        self.uncompared = set()  # drives that may have forgotten something, as far as is known
        self.commands_log = f"{options.cluster}-commands.log"
        self.logs = dict.fromkeys([self.commands_log, *(f"{c.mount.directory}.log" for c in self.clients)], 0)

    # --- machines ---

    def take_over(self):
        """The cluster's daemons end; hosts with lossy disks take their places, with a cluster of few
        groups, so that there is little to compare."""
        with open(os.path.join(self.options.cluster, "dev.json"), encoding="utf-8") as file:
            daemons = json.load(file)["daemons"]
        for daemon in daemons:
            drives = daemon["drives"]
            self.must("dev", "kill", self.options.cluster, str(drives[0]["id"]))
            directory = os.path.join(self.options.cluster, f"host-{drives[0]['id']}")
            with open(daemon["process"]["command"][2], encoding="utf-8") as file:
                text = file.read()
            for drive in drives:
                place = os.path.join(directory, str(drive["id"]))
                os.makedirs(place)
                subprocess.run([daemon["process"]["command"][0], "--init", place], check=True, stdout=subprocess.DEVNULL)
                text = text.replace(f'"{drive["path"]}"', f'"{place}"')
            with open(f"{directory}.toml", "w", encoding="utf-8") as file:
                file.write(text)
            self.hosts.append(Host(os.path.join(self.options.build, "tests", "crash", "lossy_daemon"),
                                   directory, [drive["id"] for drive in drives], self.options.disk_lies))
        with open(self.config, "a", encoding="utf-8") as file:
            file.write("\n[registers]\ngroups = 32\n")
        self.start_hosts(self.hosts, LONG_UP)
        self.must("format", self.config)

    def must(self, *arguments):
        done = subprocess.run([self.pinstripe, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Violation(f"pinstripe {' '.join(arguments)}: {done.stderr.strip()}")

    def start_hosts(self, hosts, up):
        for host in hosts:
            self.boots += 1
            host.start(self.random.randrange(1 << 32), f"boot-{self.boots}", up)
        for host in hosts:
            host.wait_until_ready()
            host.just_up = up == JUST_UP

    def cut(self, hosts, with_mounts):
        """At nearly the same moment, in any order."""
        victims = [host.cut_power for host in hosts]
        if with_mounts:
            for client in self.clients:
                client.dead = True
                client.lives += 1
                victims.append(client.mount.kill)
        self.random.shuffle(victims)
        for victim in victims:
            victim()
        for host in hosts:
            host.wait_for_end()
        if with_mounts:
            for client in self.clients:
                client.mount.wait_for_end()
        self.all_are_compared()
        self.uncompared.update(*(host.drives for host in hosts))
        self.cuts += 1

    def all_are_compared(self):
        """Whoever has compared a drive has said so."""
        for log, known in self.logs.items():
            if os.path.exists(log):
                with open(log, "rb") as file:
                    file.seek(known)
                    text = file.read()
                self.logs[log] += len(text)
                for drive in re.findall(rb"forgotten changes has been compared .*drive=(\d+)", text):
                    self.uncompared.discard(int(drive))
        return not self.uncompared

    def start_mounts(self):
        # One after the other as a rule: who finds another one comparing the drives waits for 2 seconds.
        if self.random.random() < 0.1:
            with concurrent.futures.ThreadPoolExecutor() as together:
                list(together.map(lambda client: client.mount.start(), self.clients))
        else:
            for client in self.clients:
                client.mount.start()
        with self.pause.condition:
            for client in self.clients:
                client.dead = False
            self.pause.condition.notify_all()

    def wait_for_names(self):
        deadline = time.monotonic() + 120
        for client in self.clients:
            for directory in "pq":
                while True:
                    # No listing: what one has brought is used for a second, and not looked up.
                    try:
                        os.lstat(client.path(f"{directory}/nothing"))
                    except FileNotFoundError:
                        break
                    except OSError as error:
                        if error.errno not in MAY_HAVE_HAPPENED or time.monotonic() > deadline:
                            raise Violation(f"a mount does not recover: {error}") from error

    # --- rounds ---

    def work(self, longest):
        time.sleep(self.random.random() * longest)  # clients are at it meanwhile

    def cut_host(self):
        """No more drives than may forget: everything goes on, and nothing is forgotten."""
        forgetful = [host for host in self.hosts if host.just_up]
        hosts = forgetful or [self.random.choice([host for host in self.hosts if len(host.drives) <= AWAY])]
        self.cut(hosts, with_mounts=False)
        self.cuts_of_hosts += 1
        if self.random.random() < 0.3:
            self.work(0.2)  # while they are away
        self.start_hosts(hosts, JUST_UP)

    def cut_with_mounts(self, all_compared):
        """Whether all hosts were cut, and whether more may be forgotten than nothing."""
        hosts = list(self.hosts)
        if self.random.random() < 0.35:
            some = self.random.sample(hosts, self.random.randint(1, len(hosts) - 1))
            hosts = [host for host in self.hosts if host in some or host.just_up]
        everything = len(hosts) == len(self.hosts)
        self.cut(hosts, with_mounts=True)
        if everything:
            self.cuts_of_all += 1
        else:
            self.cuts_of_parts += 1
        self.start_hosts(hosts, LONG_UP)
        forgets = not all_compared or sum(len(host.drives) for host in hosts) > AWAY
        return everything, forgets

    def long_round(self):
        """Drives lose their power, the mounts go on, and it is waited until the drives are compared: no
        sooner than nobody counts what they had said before, 35 seconds."""
        self.work(0.4)
        hosts = self.random.sample(self.hosts, self.random.randint(1, len(self.hosts)))
        self.cut(hosts, with_mounts=False)
        self.cuts_for_long += 1
        self.start_hosts(hosts, JUST_UP)
        forgets = sum(len(host.drives) for host in hosts) > AWAY
        if forgets:
            self.pause.stop_all(self.clients)
            what_is_known = self.what_is_known()
            for client in self.clients:
                client.lose_power()
        deadline = time.monotonic() + 180
        while not self.all_are_compared():
            if time.monotonic() > deadline:
                raise Violation(f"drives {sorted(self.uncompared)} are not compared")
            time.sleep(0.1)
        for host in hosts:
            host.just_up = False
        self.repair()
        if forgets:
            self.wait_for_names()
            self.look(what_is_known, settled=False, repaired=True)
            self.check()
            self.pause.go_on()

    def what_is_known(self):
        return [{name: state.value() for name, state in client.names.items() if state.is_certain()}
                for client in self.clients]

    def look(self, what_is_known, settled, repaired):
        for client, known in zip(self.clients, what_is_known):
            if client.violation:
                raise Violation(client.violation)
            try:
                client.look(known, settled, repaired)
            except Violation as violation:
                raise Violation("\n".join([str(violation), *client.story])) from violation
        self.looks += 1

    def round(self):
        self.work(0.4)
        all_compared = self.all_are_compared()
        if all_compared:
            for _ in range(self.random.choice([0, 0, 1, 1, 2])):
                self.cut_host()
                self.work(0.3)
            if self.random.random() < 0.4:
                self.pause.stop_all(self.clients)
                self.look(self.what_is_known(), settled=False, repaired=False)
                self.pause.go_on()
        all_compared = self.all_are_compared()
        everything, forgets = self.cut_with_mounts(all_compared)
        self.pause.stop_all(self.clients)
        what_is_known = self.what_is_known()
        if forgets:
            for client in self.clients:
                client.lose_power()
        while self.random.random() < 0.06:  # once more, in the middle of the recovery
            with_mounts = self.random.random() < 0.7
            if with_mounts:
                self.start_mounts()
            else:
                # Whatever opens the cluster compares its drives.
                with open(self.commands_log, "ab") as log:
                    check = subprocess.Popen([self.pinstripe, "check", "--names-only", self.config],
                                             stdout=subprocess.DEVNULL, stderr=log)
            self.work(0.6)
            if not with_mounts:
                check.kill()
                check.wait()
            again, _ = self.cut_with_mounts(False)
            everything = everything or again
            if not forgets:
                for client in self.clients:
                    client.lose_power()
                forgets = True
        self.start_mounts()
        self.wait_for_names()
        repaired = self.random.random() < 0.6
        if repaired:
            self.repair()
        self.look(what_is_known, everything, repaired)
        if repaired:
            self.check()
            if self.random.random() < 0.15 and self.all_are_compared():
                self.collect()
        if self.random.random() < 0.6:
            for client in self.clients:
                client.sync_directory()
        self.pause.go_on()

    def run_pinstripe(self, *arguments):
        done = subprocess.run([self.pinstripe, *arguments, self.config], capture_output=True, text=True,
                              check=False, timeout=300)
        with open(self.commands_log, "a", encoding="utf-8") as log:
            log.write(done.stderr)
        return done

    def repair(self):
        self.repairs += 1
        done = self.run_pinstripe("repair")
        if done.returncode not in (0, 1, 3):  # 1: what nobody has synced is lost
            raise Violation(f"repair: exit {done.returncode}\n{done.stdout}{done.stderr}")
        self.repaired_with = done.stdout + done.stderr
        self.mended += self.repaired_with.count("it has its name '")

    def check(self):
        done = self.run_pinstripe("check", "--names-only")
        if done.returncode != 0:
            raise Violation(f"check after repair: exit {done.returncode}\n{done.stdout}{done.stderr}"
                            f"repair said:\n{self.repaired_with}")

    def collect(self):
        """What the dead have left would fill the drives, which are copied at each cut."""
        done = self.run_pinstripe("collect", "--older-than", "1s")
        if done.returncode != 0:
            raise Violation(f"collect: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def run(self):
        self.take_over()
        for client in self.clients:
            client.mount.start()
        for directory in "pq":
            os.makedirs(self.clients[0].path(directory), exist_ok=True)
        for client in self.clients:
            client.sync_directory()
            client.start()
        end = time.monotonic() + self.options.time
        next_word = 0
        while time.monotonic() < end or self.cuts < self.options.cuts:
            if self.options.time >= 300 and self.random.random() < 0.01 and self.all_are_compared():
                self.long_round()
            self.round()
            if time.monotonic() >= next_word:
                print(self.summary(), flush=True)
                next_word = time.monotonic() + 30

    def summary(self):
        return (f"{self.cuts} power cuts: {self.cuts_of_all} of everything, {self.cuts_of_parts} of a part with "
                f"all mounts, {self.cuts_of_hosts} of a host, {self.cuts_for_long} of any until it is compared; "
                f"{sum(c.acknowledged for c in self.clients)} changes acknowledged, "
                f"{sum(c.uncertain for c in self.clients)} uncertain; "
                f"{sum(c.syncs for c in self.clients)} syncs, {sum(c.failed_syncs for c in self.clients)} failed; "
                f"{self.looks} looks, {self.repairs} repairs, {self.mended} directories got their names again")

    def stop(self):
        self.pause.go_on(ended=True)
        for client in self.clients:
            if client.mount.process:
                client.mount.stop()
        for host in self.hosts:
            if host.process and host.process.poll() is None:
                host.process.kill()
                host.wait_for_end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--cluster", required=True, help="a development cluster that runs")
    parser.add_argument("--time", type=float, default=60, help="seconds")
    parser.add_argument("--cuts", type=int, default=1, help="at least so many")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--lie", action="store_true",
                        help="clients take everything for synced that was answered, and sync nothing")
    parser.add_argument("--disk-lies", action="store_true", help="disks only say that they have synced")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending what was started
    campaign = Campaign(options)
    try:
        campaign.run()
    except Violation as violation:
        print(f"{campaign.summary()}\nVIOLATION: {violation}", file=sys.stderr)
        return 1
    finally:
        campaign.stop()
    print(campaign.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
