#!/usr/bin/python3
"""Kills mounts and drives in the middle of changes of the name space, again and again, and looks
whether what was acknowledged is there and everything fits together.

Several mounts (pinstripe-fuse processes) work on one development cluster at once, every other one with
dirops=async. Each makes, replaces, renames, links and removes files, directories and symbolic links of
its own, and takes part in a brawl over a few names that all share. Now and then a mount is killed
(SIGKILL) in the middle of it, or up to as many drives as may be away. An operation that failed then may
have happened or not, and may still happen until something else has changed the same name; everything
else must be as it was acknowledged. After every few kills the world stands still and everything is
looked at, by `pinstripe check` as well.

usage: crash_meta.py --build BUILD --cluster DIR [--time SECONDS] [--seed N] [--clients N] [--sabotage]
"""

import argparse
import errno
import os
import random
import stat
import subprocess
import sys
import threading
import time

from health import drives_are_well

MAY_HAVE_HAPPENED = {errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EINTR,
                     errno.ETIMEDOUT, errno.ESTALE}
ABSENT = None
FILES, DIRECTORIES, SHARED = 6, 3, 4


class Violation(Exception):
    pass


class Mount:
    """One client: a pinstripe-fuse process and the directory that it serves."""

    def __init__(self, build, config, directory, environment=None, options=()):
        self.program = os.path.join(build, "fuse", "pinstripe-fuse")
        self.config, self.directory, self.options = config, directory, options
        self.environment = {**os.environ, **(environment or {})}
        self.process = None
        os.makedirs(directory, exist_ok=True)

    def start(self):
        deadline = time.monotonic() + 60
        while True:
            subprocess.run(["fusermount3", "-u", "-q", "-z", self.directory], check=False)
            with open(f"{self.directory}.log", "ab") as log:
                self.process = subprocess.Popen([self.program, self.config, self.directory, "-f", *self.options],
                                                stdout=log, stderr=log, env=self.environment)
            while self.process.poll() is None:
                if os.path.ismount(self.directory):
                    return
                time.sleep(0.005)
            if time.monotonic() > deadline:
                raise Violation(f"the mount cannot be started again: exit {self.process.returncode}")

    def kill(self):
        self.process.kill()

    def wait_for_end(self):
        self.process.wait()

    def stop(self):
        subprocess.run(["fusermount3", "-u", "-q", self.directory], check=False)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait_for_end()
            subprocess.run(["fusermount3", "-u", "-q", "-z", self.directory], check=False)


class Worker(threading.Thread):
    """Makes one step() after the other through one mount, and stands still when a Pause wants it."""

    def __init__(self, number, mount, root, seed, pause):
        super().__init__(daemon=True)
        self.number, self.mount, self.root, self.pause = number, mount, root, pause
        self.random = random.Random(f"{seed}-{number}")
        self.versions = 0
        self.acknowledged = self.uncertain = 0
        self.dead = False   # its mount was killed; whoever did that starts it again
        self.lives = 1
        self.violation = None

    def path(self, name):
        return os.path.join(self.mount.directory, self.root, name)

    def run(self):
        while not self.pause.ended:
            self.pause.wait_at_barrier(self)
            if self.pause.ended:
                return
            try:
                self.step()
            except OSError as error:
                self.violation = f"client {self.number}: {error}"
                return


class Client(Worker):
    """Works through one mount, and knows what each of its names may stand for.

    A name is changed as a whole, by renaming something new over it or by removing it, so that an
    acknowledged change ends whatever was uncertain about it before."""

    def __init__(self, number, mount, root, seed, pause):
        super().__init__(number, mount, root, seed, pause)
        self.expected = {}  # relative path -> set of what may be there; absent: {ABSENT}

    def own(self):
        directory = self.random.choice(["p", "q"])
        return f"{directory}/c{self.number}-f{self.random.randrange(FILES)}"

    def temporary(self):
        self.versions += 1
        return f"p/c{self.number}-t{self.versions}"

    def may_be(self, name):
        return self.expected.setdefault(name, {ABSENT})

    def attempt(self, operation, changes):
        """`changes`: what the names are after the operation. Until it is acknowledged, either."""
        before = {name: set(self.may_be(name)) for name in changes}
        for name, value in changes.items():
            self.expected[name] = before[name] | {value}
        life = self.lives
        try:
            operation()
        except OSError as error:
            # Between two mounts there is an empty directory.
            is_between = error.errno == errno.ENOENT and (self.dead or self.lives != life)
            if error.errno in MAY_HAVE_HAPPENED or is_between:
                self.uncertain += 1
                return False
            self.expected.update(before)  # it says that nothing happened
            raise
        for name, value in changes.items():
            self.expected[name] = {value}
        self.acknowledged += 1
        return True

    def write_new(self, value):
        """A new file under a name that is never used again. None when it may not be there."""
        name = self.temporary()

        def make():
            with open(self.path(name), "wb") as file:
                file.write(value)

        if self.random.randrange(2) == 0:
            # With dirops=async it appears when it is closed, or empty when that takes long.
            self.expected[name] = {ABSENT, b""}
            return name if self.attempt(make, {name: value}) else None
        # It appears empty, and has its contents when it is closed.
        if not self.attempt(lambda: os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL)),
                            {name: b""}):
            return None

        def write():
            with open(self.path(name), "r+b") as file:
                file.write(value)

        return name if self.attempt(write, {name: value}) else None

    def content(self):
        self.versions += 1
        text = f"{self.number}:{self.versions};".encode()
        return text * self.random.choice([1, 10, 1000, 9000])

    # --- operations ---

    def replace(self):
        value = self.content()
        temporary = self.write_new(value)
        if temporary is None:
            return
        name = self.own()
        self.attempt(lambda: os.rename(self.path(temporary), self.path(name)),
                     {name: value, temporary: ABSENT})

    def replace_by_symlink(self):
        target = f"anywhere/{self.versions}".encode()
        temporary = self.temporary()
        if not self.attempt(lambda: os.symlink(target, self.path(temporary).encode()),
                            {temporary: b"->" + target}):
            return
        name = self.own()
        self.attempt(lambda: os.rename(self.path(temporary), self.path(name)),
                     {name: b"->" + target, temporary: ABSENT})

    def remove(self):
        name = self.own()
        if ABSENT in self.may_be(name):
            return
        self.attempt(lambda: os.unlink(self.path(name)), {name: ABSENT})

    def move(self):
        source, target = self.own(), self.own()
        if source == target or len(self.may_be(source)) != 1 or self.may_be(source) == {ABSENT}:
            return
        if len(self.may_be(target)) != 1 or self.may_be(source) == self.may_be(target):
            return  # two names of one file: rename does nothing
        value = next(iter(self.may_be(source)))
        self.attempt(lambda: os.rename(self.path(source), self.path(target)),
                     {target: value, source: ABSENT})

    def link(self):
        source = self.own()
        if len(self.may_be(source)) != 1 or self.may_be(source) == {ABSENT}:
            return
        value = next(iter(self.may_be(source)))
        temporary = self.temporary()
        if not self.attempt(lambda: os.link(self.path(source), self.path(temporary),
                                            follow_symlinks=False), {temporary: value}):
            return
        self.attempt(lambda: os.unlink(self.path(temporary)), {temporary: ABSENT})

    def directories(self):
        """Of these it is only asked that they are somewhere whole, which `check` tells."""
        name = f"c{self.number}-d{self.random.randrange(DIRECTORIES)}"
        other = f"c{self.number}-d{self.random.randrange(DIRECTORIES)}"
        action = self.random.randrange(4)
        where, there = self.random.sample(["p", "q"], 2)
        if action == 0:
            os.mkdir(self.path(f"{where}/{name}"))
        elif action == 1:
            os.rmdir(self.path(f"{where}/{name}"))
        elif action == 2:
            os.rename(self.path(f"{where}/{name}"), self.path(f"{there}/{other}"))
        else:
            with open(self.path(f"{where}/{name}/inside"), "wb") as file:
                file.write(b"x")

    def brawl(self):
        names = [f"{self.random.choice('pq')}/x{self.random.randrange(SHARED)}" for _ in range(2)]
        action = self.random.randrange(6)
        if action == 0:
            with open(self.path(names[0]), "wb") as file:
                file.write(b"brawl")
        elif action == 1:
            os.unlink(self.path(names[0]))
        elif action == 2:
            os.rename(self.path(names[0]), self.path(names[1]))
        elif action == 3:
            os.link(self.path(names[0]), self.path(names[1]))
        elif action == 4:
            os.mkdir(self.path(names[0]))
        else:
            os.rmdir(self.path(names[0]))

    def step(self):
        action = self.random.choices(
            [self.replace, self.replace_by_symlink, self.remove, self.move, self.link],
            weights=[4, 1, 2, 3, 2])[0]
        action()
        for other in (self.directories, self.brawl):
            try:
                other()
            except OSError:
                pass  # others were faster, or it was killed

    # --- looking ---

    @staticmethod
    def found_at(path):
        while True:
            try:
                if stat.S_ISLNK(os.lstat(path).st_mode):
                    return b"->" + os.readlink(path.encode())
                with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return ABSENT
            except OSError as error:
                # A rename that was cut short takes place when somebody looks: here, in between, so
                # that it is a link no more, or has become one.
                if error.errno not in (errno.EINVAL, errno.ELOOP):
                    raise Violation(f"{path}: {error}") from error

    def look(self):
        for name, allowed in sorted(self.expected.items()):
            found = self.found_at(self.path(name))
            if found not in allowed:
                raise Violation(f"{name} is {shown(found)}; it may be "
                                + " or ".join(shown(value) for value in allowed))
        # Names that are certainly gone, and never used again, need not be looked at for ever.
        self.expected = {name: allowed for name, allowed in self.expected.items()
                         if allowed != {ABSENT} or "-t" not in name}


def shown(value):
    return "absent" if value is ABSENT else f"{value[:20]!r} ({len(value)} bytes)"


class Pause:
    """Holds all clients still, between two of their steps."""

    def __init__(self):
        self.condition = threading.Condition()
        self.wanted = self.ended = False
        self.still = set()

    def wait_at_barrier(self, client):
        with self.condition:
            self.still.add(client)
            self.condition.notify_all()
            while (self.wanted or client.dead) and not self.ended:
                self.condition.wait()
            self.still.discard(client)

    def stop_all(self, clients):
        with self.condition:
            self.wanted = True
            while not all(client in self.still or not client.is_alive() for client in clients):
                self.condition.wait(1)

    def go_on(self, ended=False):
        with self.condition:
            self.wanted, self.ended = False, ended
            self.condition.notify_all()


class Campaign:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.pinstripe = os.path.join(options.build, "tools", "pinstripe")
        self.config = os.path.join(options.cluster, "cluster.toml")
        self.pause = Pause()
        self.kills_of_clients = self.kills_of_drives = self.checks = 0
        self.sabotaged = False
        root = f"campaign-{time.time_ns()}"
        self.clients = [
            Client(n, Mount(options.build, self.config, f"{options.cluster}-mount-{n}",
                            options=["-o", f"dirops={'async' if n % 2 else 'sync'}"]), root,
                   options.seed, self.pause)
            for n in range(options.clients)]

    def dev(self, *arguments):
        done = subprocess.run([self.pinstripe, "dev", arguments[0], self.options.cluster, *arguments[1:]],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Violation(f"pinstripe dev {' '.join(arguments)}: {done.stderr.strip()}")

    def kill_some(self):
        if self.random.random() < 0.6:
            client = self.random.choice(self.clients)
            client.dead = True
            client.lives += 1
            client.mount.kill()
            client.mount.wait_for_end()
            client.mount.start()
            with self.pause.condition:
                client.dead = False
                self.pause.condition.notify_all()
            self.kills_of_clients += 1
            return
        drives = self.random.sample(range(1, self.options.drives + 1), self.random.randint(1, self.options.away))
        names = [str(drive) for drive in drives]
        self.dev("kill", *names)
        time.sleep(self.random.random() * 0.5)  # how long they are away
        self.dev("start", *names)
        self.kills_of_drives += len(drives)

    def look(self):
        self.pause.stop_all(self.clients)
        for client in self.clients:
            if client.violation:
                raise Violation(client.violation)
        self.wait_until_healthy()
        if self.options.sabotage:
            self.remove_something()
        for client in self.clients:
            client.look()
        check = self.patiently("check", self.config)
        if check.returncode not in (0, 3):  # 3: drives were away, and shards are missing
            raise Violation(f"check: exit {check.returncode}\n{check.stdout}{check.stderr}")
        if self.random.random() < 0.2:
            collect = self.patiently("collect", "--older-than", "1s", self.config)
            if collect.returncode != 0:
                raise Violation(f"collect: {collect.stdout}{collect.stderr}")
        self.checks += 1
        self.pause.go_on()

    def patiently(self, *words):
        """A command; again where an engine keeps names, and its server was being killed at that moment."""
        for _ in range(20):
            done = subprocess.run([self.pinstripe, *words], capture_output=True, text=True, check=False)
            if done.returncode not in (1, 2) or "the engine of names" not in done.stdout + done.stderr:
                break
        return done

    def remove_something(self):
        client = self.clients[0]
        for name, allowed in client.expected.items():
            if ABSENT not in allowed:
                os.unlink(self.clients[1].path(name))
                self.sabotaged = True
                return

    def wait_until_healthy(self):
        deadline = time.monotonic() + 60
        while not drives_are_well(self.pinstripe, self.config):
            if time.monotonic() > deadline:
                raise Violation("the cluster does not become healthy")
        # Mounts connect again in their own time.
        for client in self.clients:
            while True:
                try:
                    os.listdir(client.path("p"))
                    os.listdir(client.path("q"))
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise Violation(f"a mount does not recover: {error}") from error

    def run(self):
        for client in self.clients:
            client.mount.start()
        for directory in ("p", "q"):
            os.makedirs(self.clients[0].path(directory), exist_ok=True)
        for client in self.clients:
            client.start()
        end = time.monotonic() + self.options.time
        next_word = 0
        # What is to be noticed has to happen first, however slow the machine is.
        while (time.monotonic() < end or (self.options.sabotage and not self.sabotaged)
               or min(self.kills_of_clients, self.kills_of_drives) == 0):
            for _ in range(self.random.randint(1, 6)):
                time.sleep(self.random.random() * 0.4)  # work goes on for a while
                self.kill_some()
            self.look()
            if time.monotonic() >= next_word:
                print(self.summary(), flush=True)
                next_word = time.monotonic() + 30
        self.look()

    def summary(self):
        return (f"{self.kills_of_clients} kills of mounts, {self.kills_of_drives} of drives; "
                f"{sum(c.acknowledged for c in self.clients)} changes acknowledged, "
                f"{sum(c.uncertain for c in self.clients)} uncertain; {self.checks} checks")

    def stop(self):
        self.pause.go_on(ended=True)
        for client in self.clients:
            if client.mount.process:
                client.mount.stop()
            client.join(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--cluster", required=True, help="a development cluster that runs")
    parser.add_argument("--time", type=float, default=60, help="seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--away", type=int, default=2, help="drives that may be away at once")
    parser.add_argument("--sabotage", action="store_true",
                        help="remove a file behind the campaign's back, which it has to notice")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    campaign = Campaign(options)
    try:
        campaign.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)
        return 1
    finally:
        campaign.stop()
    print(campaign.summary())
    if min(campaign.kills_of_clients, campaign.kills_of_drives, campaign.checks) == 0:
        print("too short: not everything was killed once", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
