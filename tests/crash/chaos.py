#!/usr/bin/python3
"""Lets a development cluster of real processes live through everything that may happen to it, one trial after
the other, while mounts and a gateway write, read, clone, rename and remove files, and compares every byte with
what must be there.

Each round has all trials (`--list` says what each proves), in an order of its own; all chance is that of the seed, and what is done is
printed. A trial harms no more drives than the layout has parity shards, so nothing that anybody asks for may fail meanwhile, but
of what goes through a process that is killed. Where a trial takes more away than that, it says so, and works on files of its own. After
each trial the world stands still: `pinstripe repair` must leave nothing to do for `pinstripe check` and `pinstripe verify`, and a mount that
was started afresh must have everything that was acknowledged.

Mounts and gateway come to their drives through a proxy (proxy.py), but for the first mount and the commands. Drives, mounts and
commands have a library in them that spoils their disks and clocks when it is told to (faults.cc).

usage: chaos.py --build BUILD --cluster DIR [--time SECONDS] [--seed N] [--only TRIAL,...] [--lie byte|file]
"""

import argparse
import contextlib
import glob
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings

sys.dont_write_bytecode = True
import ancestor  # noqa: E402
import proxy  # noqa: E402
import torture  # noqa: E402
from crash_meta import Violation  # noqa: E402
from flood import Connection, Flood, NOOP  # noqa: E402
from torture import elsewhere  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
starter = None  # of what goes through the gateway, which may have to wait
PATIENCE = 180  # seconds, in which everybody whom nothing keeps from it must have got something done
HOUR = 3600
GATEWAY_FILES = 6
# An XRootD client waits for a gateway that stands still.
XROOTD = {"XRD_CONNECTIONWINDOW": "3", "XRD_CONNECTIONRETRY": "100", "XRD_STREAMERRORWINDOW": "3", "XRD_REQUESTTIMEOUT": "240",
          "XRD_STREAMTIMEOUT": "240"}


def wait_until(what, true, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise Violation(f"after {seconds} s it is still not so: {what}")
        time.sleep(0.05)


def free_port():
    """One that the kernel gives to no connection while nobody listens there."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        end = int(file.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, end if end > 11000 else 32768)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Faults:
    """What faults.cc does in one process."""

    ORDERS = ["clock", "slowness", "failing_reads", "failing_writes", "failing_syncs", "partial"]
    COUNTS = ["clocks_changed", "slowed", "failed", "cut"]

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(8 * len(self.ORDERS + self.COUNTS)))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def order(self, **orders):
        for name, value in orders.items():
            struct.pack_into("<q", self.map, 8 * self.ORDERS.index(name), value)

    def count(self, name):
        return struct.unpack_from("<q", self.map, 8 * (self.ORDERS + self.COUNTS).index(name))[0]

    def environment(self, build):
        return {"LD_PRELOAD": os.path.join(build, "tests/crash/libfaults.so"), "PINSTRIPE_FAULTS": self.path}


class GatewayClient(threading.Thread):
    """Uploads, downloads, moves and removes files with the programs of XRootD, and knows what each name may stand for."""

    def __init__(self, url, directory, options, turnstile):
        super().__init__(daemon=True)
        self.url, self.directory, self.turnstile, self.rest = url, directory, turnstile, options.rest
        self.random = random.Random(f"{options.seed}-gateway")
        self.allowed = {}  # name -> contents, None for absent; more than one: nobody knows
        self.fresh = 0
        self.life, self.dead = 0, False
        self.operations = self.bytes = 0
        self.violation = None
        os.makedirs(directory)

    def run(self):
        while self.turnstile.pass_through(self):
            try:
                self.step()
                self.operations += 1
                time.sleep(self.rest)
            except (Violation, OSError) as error:
                self.violation = f"gateway: {error}"
                self.turnstile.leave(self)
                return

    def ask(self, *words):
        """Whether it was done. Only a gateway that was killed meanwhile may have failed. Then nobody knows: XRootD's client
        says that a file was closed when the connection ended between its last write and that."""
        life, dead = self.life, self.dead
        code, said, errors = starter.submit(torture.run_command, ["timeout", "300", *words], XROOTD).result()
        if dead or self.dead or life != self.life:
            return False
        if code == 0:
            return True
        raise Violation(f"{' '.join(words)}: exit {code}\n{said[-1000:]}{errors[-1000:]}")

    def step(self):
        self.turnstile.wait_for_mount(self)
        known = [name for name, may_be in self.allowed.items() if may_be not in ([None], [])]
        certain = [name for name in known if len(self.allowed[name]) == 1]
        action = self.random.random()
        if action < 0.4 or not known:
            self.upload(self.random.choice(known) if len(known) >= GATEWAY_FILES else self.new_name())
        elif action < 0.75 or not certain:
            self.download(self.random.choice(known))
        elif action < 0.9:
            self.rename(self.random.choice(certain))
        elif len(certain) > 2:
            name = self.random.choice(certain)
            self.change({name: None}, "xrdfs", self.url, "rm", "/" + name)

    def new_name(self):
        self.fresh += 1
        return f"gateway-{self.fresh}"

    def change(self, after, *words):
        before = {name: self.allowed.get(name, [None]) for name in after}
        self.allowed.update({name: before[name] + [contents] for name, contents in after.items()})
        if self.ask(*words):
            self.allowed.update({name: [contents] for name, contents in after.items()})
            return True
        return False

    def upload(self, name):
        data = self.random.randbytes(int(2 ** self.random.uniform(0, 22)))
        path = os.path.join(self.directory, "up")
        with open(path, "wb") as file:
            file.write(data)
        self.change({name: data}, "xrdcp", "--nopbar", "-f", path, f"{self.url}/{name}")
        self.bytes += len(data)

    def download(self, name):
        path = os.path.join(self.directory, "down")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if None in self.allowed[name]:
            return  # a fresh mount will say
        if self.ask("xrdcp", "--nopbar", "-f", f"{self.url}/{name}", path):
            with open(path, "rb") as file:
                self.compare(name, file.read(), "the gateway")

    def rename(self, name):
        new = self.new_name()
        data = self.allowed[name][0]
        self.change({name: None, new: data}, "xrdfs", self.url, "mv", "/" + name, "/" + new)

    def compare(self, name, found, where):
        if found not in self.allowed[name]:
            expected = next((one for one in self.allowed[name] if one is not None), b"")
            raise Violation(f"{name} through {where}: {'it is gone' if found is None else torture.first_difference(found, expected)}")

    def compare_all(self, directory):
        """Through a mount."""
        for name, may_be in self.allowed.items():
            try:
                with open(os.path.join(directory, name), "rb") as file:
                    found = file.read()
            except FileNotFoundError:
                found = None
            self.compare(name, found, directory)


class Chaos(torture.Campaign):
    def __init__(self, options):
        super().__init__(options)
        self.proxied, self.config = self.config, os.path.join(options.cluster, "direct.toml")
        self.faults = {}  # by drive, by client, and of the commands
        self.pids = {}  # of mounts, by client
        self.away = []  # the drives that the trial at hand may harm
        self.length = max(3, min(60, options.time / 12))
        self.begun = time.monotonic()
        self.took = {}
        self.others = []  # what else is at work
        self.stopped = []  # processes
        self.gateway = None
        self.proxy = self.fresh = None

    # --- the world ---

    def command(self, *words, codes=(0,), environment=None):
        begin = time.monotonic()
        try:
            return super().command(*words, codes=codes, environment=environment)
        finally:
            if time.monotonic() > begin + 10:
                self.say(f"pinstripe {words[0]} took {time.monotonic() - begin:.0f} s")

    def say(self, text):
        print(f"{time.monotonic() - self.begun:7.1f} s  {text}", flush=True)

    def prepare(self):
        self.proxy = proxy.Handle(subprocess.Popen([sys.executable, os.path.join(HERE, "proxy.py"), str(self.options.seed)],
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        drives = range(1, self.options.drives + 1)
        os.makedirs(self.options.cluster + "-faults")
        for one in [*drives, *self.clients, "command", "fresh"]:
            name = f"mount-{one.number}" if isinstance(one, torture.Client) else str(one)
            self.faults[one] = Faults(f"{self.options.cluster}-faults/{name}")
        self.command("dev", "kill", self.options.cluster, "gateway", *drives)
        state = os.path.join(self.options.cluster, "dev.json")
        with open(state, encoding="utf-8") as file:
            dev = json.load(file)
        for daemon in dev["daemons"]:
            environment = self.faults[daemon["drives"][0]["id"]].environment(self.options.build)
            daemon["process"]["preload"] = environment.pop("LD_PRELOAD")
            daemon["process"]["environment"] = [f"{name}={value}" for name, value in environment.items()]
        with open(state, "w", encoding="utf-8") as file:
            json.dump(dev, file)
        with open(self.proxied, encoding="utf-8") as file:
            text = file.read() + '\n[limits]\nmemory = "128 MiB"\n'
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        for daemon in dev["daemons"]:
            for drive in daemon["drives"]:
                port = self.proxy(drive["id"], to=drive["port"])["port"]
                text = text.replace(f'127.0.0.1:{drive["port"]}"', f'127.0.0.1:{port}"')
        with open(self.proxied, "w", encoding="utf-8") as file:
            file.write(text)
        self.ports = {drive["id"]: drive["port"] for daemon in dev["daemons"] for drive in daemon["drives"]}
        self.command("dev", "start", self.options.cluster, *drives, "gateway")
        url = f"root://127.0.0.1:{dev['gateway']['port']}/"
        self.gateway = GatewayClient(url, self.options.cluster + "-gateway", self.options, self.turnstile)

    def begin(self):
        self.prepare()
        for client in self.clients:
            self.mounted.append(client)
            self.mount(client)
        # All drives were killed. One whose page of starts the kernel dropped meanwhile is compared first, and counts as one that is away.
        self.wait_until_healthy()
        first = self.clients[0].directory
        for number, layout in enumerate(torture.LAYOUTS):
            directory = os.path.join(first, f"d{number}")
            os.mkdir(directory)
            if layout:
                text = layout.format(k=self.options.data, m=self.options.away)
                os.setxattr(directory, "user.pinstripe.layout", text.encode())
        os.mkdir(os.path.join(first, "own"))
        os.chmod(first, 0o777)  # the gateway is somebody else
        for client in self.loads():
            client.start()

    def mount(self, client):
        config = self.proxied if client.number else self.config
        self.pids[client] = elsewhere(torture.start_mount, self.options.build, config, client.directory,
                                      self.faults[client].environment(self.options.build))

    @contextlib.contextmanager
    def mount_of(self, config, name):
        """Another one, which knows nothing; its directory."""
        directory = f"{self.options.cluster}-{name}"
        elsewhere(torture.start_mount, self.options.build, config, directory)
        try:
            yield directory
        finally:
            elsewhere(torture.end_mount, directory, False)

    def loads(self):
        return [*self.clients, self.gateway]

    def see_violations(self):
        for client in [*self.loads(), *self.others]:
            if client.violation:
                raise Violation(client.violation)

    def some_drives(self):
        return self.random.sample(self.away, self.random.randint(1, len(self.away)))

    def meanwhile(self, seconds, without=()):
        """Lets everybody work for so long. All get something done, but those `without`."""
        before = {client: client.operations for client in [*self.loads(), *self.others] if client not in without}
        end = time.monotonic() + seconds
        while True:
            self.see_violations()
            idle = [client for client, count in before.items() if client.operations < count + 3]
            if time.monotonic() >= end and not idle:
                return
            if time.monotonic() > end + PATIENCE:
                raise Violation(f"{getattr(idle[0], 'directory', '')} has got nothing done in {seconds + PATIENCE:.0f} s")
            time.sleep(0.05)

    def goes_on_until(self, what, number):
        """Clients go on until a fault was met: how soon that is depends on what they happen to read."""
        end = time.monotonic() + PATIENCE
        while not number() and time.monotonic() < end:
            self.meanwhile(0.1)
        self.must_have_done(what, number())

    def must_have_done(self, what, number):
        if not number:
            raise Violation(f"the trial has tried nothing: {what}")

    def gateway_pid(self):
        with open(os.path.join(self.options.cluster, "dev.json"), encoding="utf-8") as file:
            return json.load(file)["gateway"]["process"]["pid"]

    def kill_gateway(self):
        with self.turnstile.condition:
            self.gateway.dead = True
            self.gateway.life += 1
        self.command("dev", "kill", self.options.cluster, "gateway")
        self.command("dev", "start", self.options.cluster, "gateway")
        with self.turnstile.condition:
            self.gateway.dead = False
            self.turnstile.condition.notify_all()

    @contextlib.contextmanager
    def killing(self, drive):
        """A drive is killed again and again meanwhile."""
        ended = threading.Event()
        chance = random.Random(self.random.random())
        failed = []

        def kill():
            try:
                while not ended.wait(chance.uniform(0.2, 2)):
                    self.command("dev", "kill", self.options.cluster, drive)
                    self.done["kill_drive"] = self.done.get("kill_drive", 0) + 1
                    ended.wait(chance.uniform(0, 2))
                    self.command("dev", "start", self.options.cluster, drive)
            except Violation as violation:
                failed.append(violation)
        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if failed:
            raise failed[0]

    @contextlib.contextmanager
    def standing_still(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.stopped.extend(pids)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
                self.stopped.remove(pid)

    def status(self, config=None):
        """What is wrong with the drives: number -> words."""
        return {drive["id"]: drive["reason"] for drive in self.drives_told(config) if not drive["up"]}

    def drives_told(self, config=None):
        _, said, _ = elsewhere(torture.run_command, [self.pinstripe, "status", "--json", config or self.config])
        return json.loads(said)["drives"]

    # --- trials ---

    def slow_disk(self):
        """A disk that takes a hundred times as long, and a process that gets a twentieth of its time, slow nobody down for good."""
        slow, killed = self.away
        self.say(f"the disk of drive {slow} takes 100 times as long; drive {killed} is killed now and then")
        self.faults[slow].order(slowness=100)
        with self.killing(killed):
            self.meanwhile(self.length)
        self.faults[slow].order(slowness=0)
        self.must_have_done("slow calls", self.faults[slow].count("slowed"))
        self.say(f"the process of drive {slow} gets a twentieth of its time")
        self.run_slowly([self.pid_of(slow)], self.length / 3)
        self.wait_until_healthy()
        self.meanwhile(0)

    def bad_disk(self):
        """Reads and writes that do a part of what was asked are gone on with; those that fail are somebody else's turn, and a drive that cannot write says so."""
        bad, killed = self.away
        faults = self.faults[bad]
        self.say(f"drive {bad}: every third read or write of segments does a part only")
        faults.order(partial=300)
        self.meanwhile(self.length / 3)
        self.goes_on_until("parts", lambda: faults.count("cut"))
        if self.status():
            raise Violation(f"parts are taken for failures: {self.status()}")
        self.say(f"drive {bad}: every fifth read fails with EIO; drive {killed} is killed now and then")
        faults.order(failing_reads=200)
        with self.killing(killed):
            self.meanwhile(self.length / 3)
        self.goes_on_until("failing reads", lambda: faults.count("failed"))
        faults.order(partial=0, failing_reads=0, failing_writes=1000)
        self.say(f"drive {bad}: each write fails with EIO")
        self.meanwhile(self.length / 3)
        faults.order(failing_writes=0, failing_syncs=1000)
        self.say(f"drive {bad}: each sync fails with EIO")
        wait_until(f"drive {bad} says that it has failed", lambda: bad in self.status())
        self.meanwhile(self.length / 3)
        faults.order(failing_syncs=0)
        self.command("dev", "kill", self.options.cluster, bad)
        self.command("dev", "start", self.options.cluster, bad)
        self.wait_until_healthy()

    def rotten_disks(self):
        """What turned over or was cut off on the disks of drives that stood still, or that run, is found and mended."""
        self.say(f"drives {self.away} are stopped, and lose bits and the ends of segments; then bits of them turn over while they run")
        self.command("dev", "kill", self.options.cluster, *self.away)
        for drive in self.away:
            segments = sorted(glob.glob(os.path.join(self.options.cluster, "drives", str(drive), "segments", "*.log")))
            cut = self.random.choice(segments)
            size = os.path.getsize(cut)
            os.truncate(cut, size - min(size, self.random.randrange(1, 200000)))
        self.command("dev", "start", self.options.cluster, *self.away)
        self.rot()

    def lines(self):
        """Connections that stall, crawl, come late, end in the middle of a frame or in one direction cost nobody a byte."""
        end = time.monotonic() + 2 * self.length
        modes = [mode for mode in proxy.MODES if mode != "pass"]
        left = []
        drives = range(1, self.options.drives + 1)
        cuts = sum(self.proxy(drive)["cuts"] for drive in drives)
        while time.monotonic() < end or left:
            for drive in self.away:
                left = left or self.random.sample(modes, len(modes))
                mode = left.pop()
                self.say(f"the line to drive {drive}: {mode}, {proxy.MODES[mode]}")
                self.proxy(drive, mode=mode, seconds=self.random.choice([0.01, 0.1, 1]), cut=self.random.random() < 0.3)
            for drive in set(drives) - set(self.away):
                self.proxy(drive, mode=self.random.choice(["pass", "pass", "delay"]), seconds=0.005)
            self.meanwhile(2 * self.length / len(modes))
        for drive in drives:
            self.proxy(drive, mode="pass", cut=drive in self.away)
        self.must_have_done("cuts", sum(self.proxy(drive)["cuts"] for drive in drives) - cuts)
        self.meanwhile(0)

    def packets(self):
        """Packets that are lost, doubled, late and out of order change nothing but the time."""
        if os.environ.get("CHAOS_NETEM"):
            self.say("2 % of all packets are lost, 1 % come twice, and a quarter out of order")
            netem = ["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms", "2ms", "loss", "2%", "duplicate", "1%",
                     "reorder", "25%", "limit", "10000"]
            code, _, errors = elsewhere(torture.run_command, netem)
            if code:
                raise Violation(f"{' '.join(netem)}: {errors}")
            self.meanwhile(self.length)
            elsewhere(torture.run_command, ["tc", "qdisc", "del", "dev", "lo", "root"])
            return
        self.say("this kernel has no netem: no packet is lost, instead pieces on all lines are held back")
        for drive in range(1, self.options.drives + 1):
            self.proxy(drive, mode="jitter", seconds=0.05)
        self.meanwhile(self.length)
        for drive in range(1, self.options.drives + 1):
            self.proxy(drive, mode="pass")

    def stops(self):
        """Processes that stand still, a drive, a mount and a gateway, keep nobody else from work, and go on as if nothing had been."""
        seconds = max(12, self.length)
        drive, killed = self.away
        client = self.random.choice(self.clients)
        self.say(f"drive {drive}, the mount {client.number} and the gateway stand still for {seconds:.0f} s; drive {killed} is killed now and then")
        # Who reads what another mount has would wait for it: nobody does any more, when all have begun with something else.
        self.turnstile.clients = [one for one in self.clients if one is not client]
        self.meanwhile(0)
        with self.standing_still([self.pid_of(drive), self.pids[client], self.gateway_pid()]), self.killing(killed):
            self.meanwhile(seconds, without={client, self.gateway})
        self.turnstile.clients = self.clients
        self.wait_until_healthy()
        self.meanwhile(0)

    def clocks(self):
        """Clocks of a drive, a mount and commands that jump by hours, back and forth, mean nothing."""
        drive, killed = self.away
        client = self.random.choice(self.clients)
        for hours, words in ((5, ["check"]), (-7, ["repair"]), (26, ["collect", "--older-than", "1000h"])):
            self.say(f"the clocks of drive {drive}, the mount {client.number} and the commands are {hours} hours ahead")
            for one in (drive, client, "command"):
                self.faults[one].order(clock=hours * HOUR * 10**9)
            with self.killing(killed):
                self.meanwhile(self.length / 3)
            self.command(*words, self.config, codes=(0, 2, 3), environment=self.faults["command"].environment(self.options.build))
        for one in (drive, client, "command"):
            self.must_have_done(f"a wrong clock of {one}", self.faults[one].count("clocks_changed"))
            self.faults[one].order(clock=0)
        self.meanwhile(0)

    def two_clusters(self):
        """Two clusters on the same drives, whose names begin alike, do not notice each other."""
        other = os.path.join(self.options.cluster, "other.toml")
        is_new = not os.path.exists(other)
        if is_new:
            with open(self.config, encoding="utf-8") as file:
                text = file.read()
            with open(other, "w", encoding="utf-8") as file:
                file.write(re.sub(r'name = "(.*)"', r'name = "\g<1>2"', text, count=1))
            # By force, as the drives are not empty; it takes away what a cluster of this name has there, and nothing else.
            self.command("format", "--force", other)
        self.say("another cluster is at work on the same drives")
        client = torture.Client(100 + self.looks, f"{self.options.cluster}-other", self.options, torture.Turnstile())
        client.turnstile.clients = [client]
        with self.mount_of(other, "other"):
            for number in range(len(torture.LAYOUTS)):
                os.makedirs(os.path.join(client.directory, f"d{number}"), exist_ok=True)
            self.others.append(client)
            client.start()
            try:
                with self.killing(self.away[0]):
                    self.meanwhile(self.length)
            finally:
                client.turnstile.go_on(ended=True)
                client.join(60)
                self.others.remove(client)
            if client.violation:
                raise Violation(f"the other cluster: {client.violation}")
            for file in client.files:
                if file.descriptor is not None:
                    client.commit(file, file.close)
        self.wait_until_healthy()
        self.command("repair", other)
        for look in ("check", "verify"):
            self.command(look, other)
        with self.mount_of(other, "other-fresh") as directory:
            reader = torture.Client(0, directory, self.options, None)
            for file in client.files:
                client.whole(file, reader)

    def flood(self):
        """Whoever sends a drive very many requests and reads no answers gets all of them in the end, costs the drive little memory and nobody else the service."""
        count = self.options.flood
        drive, killed = self.away
        self.say(f"{count} tiny requests on one connection to drive {drive}, whose answers nobody reads; drive {killed} is killed now and then")
        pid = self.pid_of(drive)

        def memory():
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) >> 10
        before, most = memory(), 0
        flood = Flood(self.ports[drive], count)
        ended = threading.Event()

        def measure():
            nonlocal most
            while not ended.wait(0.02):
                most = max(most, memory())
        meter = threading.Thread(target=measure, daemon=True)
        meter.start()

        def unread():
            begin = time.monotonic()
            other = Connection(self.ports[drive])
            other.socket.sendall(other.request(1, NOOP))
            other.socket.settimeout(30)
            other.answer()
            other.close()
            self.say(f"it took {flood.stopped_at} of them; somebody else is answered in {time.monotonic() - begin:.3f} s")
            with self.killing(killed):
                self.meanwhile(self.length / 2)
        try:
            flood.run(unread)
        except OSError as error:
            raise Violation(f"flood of drive {drive}: {error}") from error
        finally:
            ended.set()
            meter.join()
        self.say(f"all are answered, with {flood.connection.bytes >> 20} MiB; its memory went from {before} to {most} MiB")
        if flood.stopped_at == count:
            raise Violation(f"drive {drive} takes {count} requests though nobody reads its answers")
        # What waits of one connection may be 32 MiB (docs/protocol.md, "Limits"); everybody else's work takes memory, too.
        if most > before + 64:
            raise Violation(f"the memory of drive {drive} went from {before} to {most} MiB")

    def kills(self):
        """Drives, mounts and gateways that are killed, all at once, take nothing along that was acknowledged."""
        self.say(f"drives {self.away}, mounts and the gateway are killed again and again")
        end = time.monotonic() + self.length
        with self.killing(self.away[0]), self.killing(self.away[1]):
            while time.monotonic() < end:
                self.kill_mount(self.random.choice(self.clients))
                self.kill_gateway()
                self.done["kill_mount"] = self.done.get("kill_mount", 0) + 1
                self.meanwhile(self.random.random())

    def wrong_peers(self):
        """A drive whose certificate has expired, is for another name or by another authority, or that offers less than TLS 1.2, is away, loudly, and is sent nothing."""
        self.calm_down()
        with Vouched(self) as cluster:
            cluster.run()
        self.turnstile.go_on()

    def ancestors(self):
        """The defects of the ancestor, as far as they show in seconds and no script has them."""
        self.calm_down()
        self.wait_until_healthy()
        with self.mount_of(self.config, "ancestor") as directory, self.mount_of(self.config, "ancestor-2") as second:
            for name, defect in ancestor.DEFECTS.items():
                self.say(f"{name}: {defect.__doc__.splitlines()[0]}")
                defect(ancestor.World(self, os.path.join(directory, "own"), os.path.join(second, "own")))
                self.wait_until_healthy()
        self.turnstile.go_on()

    TRIALS = {name.replace("_", "-"): name for name in (
        "slow_disk", "bad_disk", "rotten_disks", "lines", "packets", "stops", "clocks", "two_clusters", "flood", "kills",
        "wrong_peers", "ancestors")}

    # --- looking ---

    def look(self):
        self.calm_down()
        self.wait_until_healthy()
        self.command("repair", self.config)
        self.command("check", self.config)
        self.command("verify", self.config)
        with self.mount_of(self.config, "fresh") as directory:
            if self.options.lie and time.monotonic() >= self.end:
                self.lie(directory)
            self.read_everything([*self.clients, torture.Client(0, directory, self.options, None)])
            self.gateway.compare_all(directory)
        self.looks += 1
        self.turnstile.go_on()

    def lie(self, directory):
        """Behind the back of everybody."""
        file = next(file for client in self.clients for file in client.files if len(file.committed) > 1)
        path = os.path.join(directory, file.name)
        if self.options.lie == "file":
            os.unlink(path)
            return
        with open(path, "r+b", buffering=0) as opened:
            byte = opened.read(1)
            opened.seek(0)
            opened.write(bytes([byte[0] ^ 1]))

    def run(self):
        self.end = time.monotonic() + self.options.time
        self.begin()
        names = self.options.only or list(self.TRIALS)
        while True:
            for name in self.random.sample(names, len(names)):
                begin = time.monotonic()
                self.away = self.random.sample(range(1, self.options.drives + 1), 2)
                getattr(self, self.TRIALS[name])()
                self.look()
                self.took.setdefault(name, []).append(time.monotonic() - begin)
                self.say(f"{name}: everything is there ({self.took[name][-1]:.1f} s)")
                if time.monotonic() > self.end and len(self.took) == len(names):
                    return

    def tell_logs(self):
        """What the mounts said last."""
        for path in sorted(glob.glob(f"{self.options.cluster}-*.log")):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file.readlines()[-12:]:
                    print(f"  {os.path.basename(path)}: {line.rstrip()}", file=sys.stderr)

    def summary(self):
        times = ", ".join(f"{name} {len(took)} times, {sum(took) / len(took):.1f} s each" for name, took in sorted(self.took.items()))
        return f"{super().summary()}\n{self.gateway.operations} operations through the gateway\n{times}"

    def stop(self):
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        if self.gateway and self.gateway.is_alive():
            self.turnstile.go_on(ended=True)
            self.gateway.join(20)
        super().stop()
        if self.proxy:
            self.proxy.stop()


class Vouched:
    """A small cluster that speaks TLS and believes one authority, and the peers that come in the place of its drives."""

    DRIVES = 6
    MARK = b"Nobody but a drive of the cluster may see this. "

    def __init__(self, chaos):
        self.chaos = chaos
        self.directory = f"{chaos.options.cluster}-tls"
        self.config = os.path.join(self.directory, "cluster.toml")
        self.files = {}
        self.recordings = 0

    def __enter__(self):
        self.chaos.command("dev", "up", self.directory, "--layout", "2+2", "--drives", self.DRIVES, "--no-gateway")
        return self

    def __exit__(self, *_):
        self.chaos.command("dev", "down", "--delete", self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def openssl(self, *words, days_ahead=0):
        faults = self.chaos.faults["command"]
        faults.order(clock=days_ahead * 24 * HOUR * 10**9)
        code, _, errors = elsewhere(torture.run_command, ["openssl", *words], faults.environment(self.chaos.options.build))
        faults.order(clock=0)
        if code:
            raise Violation(f"openssl {' '.join(words)}: {errors}")

    def certify(self, name, host="IP:127.0.0.1", authority="ca", days_ahead=0):
        with open(self.path(name + ".ext"), "w", encoding="utf-8") as file:
            file.write(f"subjectAltName={host}\n")
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", self.path(name + ".key"),
                     "-out", self.path(name + ".csr"))
        self.openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path(authority + ".crt"), "-CAkey",
                     self.path(authority + ".key"), "-CAcreateserial", "-days", "30", "-extfile", self.path(name + ".ext"), "-out",
                     self.path(name + ".crt"), days_ahead=days_ahead)

    def prepare(self):
        for authority in ("ca", "other-ca"):
            self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3000", "-subj", f"/CN={authority}", "-keyout",
                         self.path(authority + ".key"), "-out", self.path(authority + ".crt"), days_ahead=-1000)
        self.certify("good")
        self.certify("expired", days_ahead=-60)
        self.certify("too-early", days_ahead=60)
        self.certify("other-name", host="DNS:elsewhere.example.org")
        self.certify("other-authority", authority="other-ca")
        self.chaos.command("dev", "kill", self.directory, *range(1, self.DRIVES + 1))
        with open(self.config, encoding="utf-8") as file:
            text = file.read().replace("[cluster]\n", '[cluster]\ntls = true\nca = "ca.crt"\n')
        self.plain, self.tls = {}, {}
        for drive in range(1, self.DRIVES + 1):
            name = self.path(f"pinstriped-{drive}.toml")
            with open(name, encoding="utf-8") as file:
                daemon = file.read()
            self.plain[drive] = int(re.search(r"port = (\d+)", daemon)[1])
            self.tls[drive] = free_port()
            daemon = daemon.replace("port = ", f"tls_port = {self.tls[drive]}\nport = ")
            daemon = daemon.replace("[daemon]\n", f'[daemon]\ntls_certificate = "{drive}.crt"\ntls_key = "{drive}.key"\n')
            with open(name, "w", encoding="utf-8") as file:
                file.write(daemon)
            port = self.chaos.proxy(f"tls-{drive}", to=self.tls[drive])["port"]
            text = text.replace(f'127.0.0.1:{self.plain[drive]}"', f'127.0.0.1:{port}"')
            self.show(drive, "good")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        self.chaos.command("dev", "start", self.directory, *range(1, self.DRIVES + 1))

    def show(self, drive, certificate):
        for kind in ("crt", "key"):
            shutil.copy(self.path(f"{certificate}.{kind}"), self.path(f"{drive}.{kind}"))

    def write(self, mount, name):
        data = (self.MARK * 60000)[:self.chaos.random.randrange(100, 2500000)]
        with open(os.path.join(mount, name), "wb") as file:
            file.write(data)
        self.files[name] = data

    def read(self, mount):
        for name, data in self.files.items():
            with open(os.path.join(mount, name), "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                found = file.read()
            if found != data:
                raise Violation(f"{name} of the cluster with TLS: {torture.first_difference(found, data)}")

    def wrong_certificate(self, drive, certificate):
        self.chaos.command("dev", "kill", self.directory, drive)
        self.show(drive, certificate)
        self.chaos.command("dev", "start", self.directory, drive)

    def run(self):
        self.prepare()
        chaos = self.chaos
        with chaos.mount_of(self.config, "vouched") as mount, Outdated() as outdated:
            outdated.try_it()
            self.write(mount, "before")
            peers = {name: lambda drive, name=name: self.wrong_certificate(drive, name)
                     for name in ("expired", "too-early", "other-name", "other-authority")}
            peers["TLS 1.1"] = lambda drive: chaos.proxy(f"tls-{drive}", to=outdated.port, cut=True)
            peers["no TLS"] = lambda drive: chaos.proxy(f"tls-{drive}", to=self.plain[drive], cut=True)
            names = chaos.random.sample(list(peers), len(peers))
            while names:
                drives = chaos.random.sample(range(1, self.DRIVES + 1), 2)
                self.meet(mount, {drive: (names.pop(), peers) for drive in drives})
        chaos.command("repair", self.config)
        chaos.command("verify", self.config)
        with chaos.mount_of(self.config, "vouched-fresh") as mount:
            self.read(mount)

    def meet(self, mount, wrong):
        chaos = self.chaos
        log = mount + ".log"
        told = os.path.getsize(log)
        records = {}
        for drive, (name, peers) in wrong.items():
            chaos.say(f"TLS: drive {drive} shows: {name}")
            self.recordings += 1
            records[drive] = self.path(f"sent-{self.recordings}")
            peers[name](drive)
            # Now no connection from before is left.
            chaos.proxy(f"tls-{drive}", record=records[drive], cut=True)
        said = {}

        def are_refused():
            said.update(chaos.status(self.config))
            return all(re.search("TLS|not believed", said.get(drive, "")) for drive in wrong)
        wait_until("status says what is wrong with the certificates", are_refused)
        for drive in wrong:
            chaos.say(f"TLS: drive {drive} is away: {said[drive]}")
        self.write(mount, f"with-{'-'.join(map(str, wrong))}-{self.recordings}")
        self.read(mount)
        wait_until("the mount's log tells of it", lambda: self.tells(log, told, wrong))
        for drive, record in records.items():
            sent = glob.glob(record + ".*")
            chaos.must_have_done(f"nobody has come to the wrong drive {drive}", len(sent))
            for one in sent:
                with open(one, "rb") as file:
                    data = file.read()
                # A hello and an alert at most.
                if len(data) > 2048 or self.MARK[:16] in data or (data and data[0] != 0x16):
                    raise Violation(f"{len(data)} bytes were sent to drive {drive}, which is a wrong one: {data[:80]!r}")
        for drive in wrong:
            chaos.proxy(f"tls-{drive}", to=self.tls[drive], record="", cut=True)
            self.wrong_certificate(drive, "good")
        wait_until("all drives are up again", lambda: not chaos.status(self.config))

    def tells(self, log, begin, wrong):
        with open(log, encoding="utf-8") as file:
            file.seek(begin)
            text = file.read()
        return all(re.search(rf"drive[= ]{drive}\b.*(TLS|certificate)", text) for drive in wrong)


class Outdated:
    """A server that speaks TLS 1.1 and nothing else."""

    def __enter__(self):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = self.context.maximum_version = ssl.TLSVersion.TLSv1_1
        self.context.set_ciphers("ALL:@SECLEVEL=0")
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listening.close()

    def serve(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.speak, args=(connection,), daemon=True).start()

    def speak(self, connection):
        with contextlib.suppress(OSError), self.context.wrap_socket(connection, server_side=True) as spoken:
            while spoken.recv(1 << 16):
                pass

    def try_it(self):
        """That somebody could speak to it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", self.port)) as plain, context.wrap_socket(plain) as spoken:
            if spoken.version() != "TLSv1.1":
                raise Violation(f"the server of an outdated TLS speaks {spoken.version()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="say what each trial proves")
    if "--list" in sys.argv:
        for name, function in Chaos.TRIALS.items():
            print(f"{name:14} {getattr(Chaos, function).__doc__}")
        return 0
    parser.add_argument("--build", required=True)
    parser.add_argument("--cluster", required=True, help="a development cluster with a gateway that nobody has used")
    parser.add_argument("--time", type=float, default=60, help="seconds; all trials are done once at least")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="these trials")
    parser.add_argument("--clients", type=int, default=3, help="mounts")
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--data", type=int, default=4, help="k of the cluster's layout")
    parser.add_argument("--away", type=int, default=2, help="its m: 2 or more")
    parser.set_defaults(redis=0)  # of the drives: its trials are for drives of ours
    parser.add_argument("--flood", type=int, default=1000000, help="requests")
    parser.add_argument("--rest", type=float, default=0, help="seconds that each client rests after each operation")
    parser.add_argument("--lie", choices=["byte", "file"], help="what is made wrong at the end, which has to be noticed")
    options = parser.parse_args()
    for name in options.only:
        if name not in Chaos.TRIALS:
            parser.error(f"no trial '{name}', but {', '.join(Chaos.TRIALS)}")
    print(f"seed {options.seed}", flush=True)
    warnings.simplefilter("ignore", DeprecationWarning)  # an outdated TLS is wanted
    options.build = os.path.realpath(options.build)
    torture.LARGEST = 4 << 20
    global starter
    starter, torture.starter, torture.background = (torture.new_starter() for _ in range(3))
    chaos = Chaos(options)
    try:
        chaos.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)
        chaos.tell_logs()
        return 1
    finally:
        chaos.stop()
        for one in (starter, torture.starter, torture.background):
            one.shutdown()
    print(chaos.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
