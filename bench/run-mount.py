#!/usr/bin/env python3
"""A mount beside others on the same disk: a plain directory, bindfs, which passes everything through FUSE to a directory,
and GlusterFS, disperse 4+2.

    bench/run-mount.py BUILD DIRECTORY [--mib 2048] [--files 10000] [--rounds 3] [--systems "directory;Pinstripe;bindfs"]
                       [--json FILE]

As root: the kernel's caches are dropped, and GlusterFS wants it. Everything is made in DIRECTORY and removed again.
What is not installed is left out, and that is said. CPU is of all processes of a system, but the kernel's own.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import common
from common import MIB, Report, add_options, cpu_seconds
from page import table

TREE = "/usr/include"  # what is unpacked


def run(*command):
    return common.run(*(str(one) for one in command))


def processes_below(words):
    """Of all processes whose command line has one of these words: pid -> CPU seconds."""
    found = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                line = file.read().decode(errors="replace").replace("\0", " ")
            if any(word in line for word in words):
                found[int(entry)] = cpu_seconds(int(entry))
    return found


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Directory:
    lose_two = None

    def __init__(self, _, work):
        self.mount, self.words = work / "mount", ["no process serves it"]
        self.mount.mkdir()

    def up(self):
        pass

    def down(self):
        pass

    def remove(self):
        pass

    @staticmethod
    def lacks():
        return None


class Pinstripe:
    HOW = ()

    def __init__(self, build, work):
        self.pinstripe, self.fuse = build / "tools/pinstripe", build / "fuse/pinstripe-fuse"
        self.cluster, self.mount = work / "cluster", work / "mount"
        self.words = [str(work)]
        run(self.pinstripe, "dev", "up", self.cluster, "--layout", "4+2", "--drives", "6", "--no-gateway", *self.HOW)
        self.mount.mkdir()

    def up(self):
        run(self.fuse, self.cluster / "cluster.toml", self.mount)

    def down(self):
        run("fusermount3", "-u", self.mount)

    def lose_two(self):
        run(self.pinstripe, "dev", "kill", self.cluster, "1", "2")

    def remove(self):
        run(self.pinstripe, "dev", "down", "--delete", self.cluster)

    @staticmethod
    def lacks():
        return None


class PinstripeInOne(Pinstripe):
    """All drives in one pinstriped, as in one box."""

    HOW = ("--one-process",)
    lose_two = None


class Bindfs:
    lose_two = None

    def __init__(self, _, work):
        self.below, self.mount = work / "below", work / "mount"
        self.words = [str(work)]
        self.below.mkdir()
        self.mount.mkdir()

    def up(self):
        run("bindfs", "--multithreaded", self.below, self.mount)

    def down(self):
        run("fusermount3", "-u", self.mount)

    def remove(self):
        pass

    @staticmethod
    def lacks():
        return None if shutil.which("bindfs") else "bindfs"


class Gluster:
    VOLUME = "run-mount"

    def __init__(self, _, work):
        self.mount, self.words = work / "mount", [str(work), "gluster"]
        self.mount.mkdir()
        self.daemon = None
        if not processes_below(["/glusterd", "glusterd "]):
            self.daemon = subprocess.Popen(["glusterd", "--no-daemon"], stderr=subprocess.DEVNULL)
            while subprocess.run(["gluster", "volume", "info"], capture_output=True).returncode != 0:
                if self.daemon.poll() is not None:
                    sys.exit("run-mount: glusterd does not start")
        self.host = run("hostname", "-I").split()[0]  # it takes no loopback address
        bricks = [f"{self.host}:{work}/brick{i}" for i in range(6)]
        run("gluster", "--mode=script", "volume", "create", self.VOLUME, "disperse", 6, "redundancy", 2, *bricks, "force")
        run("gluster", "--mode=script", "volume", "start", self.VOLUME)

    def up(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # bricks may not listen yet
            if subprocess.run(["mount", "-t", "glusterfs", f"{self.host}:/{self.VOLUME}", self.mount]).returncode == 0:
                with contextlib.suppress(OSError):
                    probe = self.mount / "probe"
                    probe.write_text("x")
                    probe.unlink()
                    return
                subprocess.run(["umount", self.mount])
        sys.exit("run-mount: the volume cannot be mounted")

    def down(self):
        run("umount", self.mount)

    def lose_two(self):
        for brick in ("brick0", "brick1"):
            for pid in processes_below([f"{brick}-", f"/{brick} "]):
                with open(f"/proc/{pid}/cmdline") as file:
                    if "glusterfsd" in file.read():
                        os.kill(pid, 9)

    def remove(self):
        run("gluster", "--mode=script", "volume", "stop", self.VOLUME, "force")
        run("gluster", "--mode=script", "volume", "delete", self.VOLUME)
        if self.daemon:
            for pid in processes_below([self.VOLUME]):  # bricks, and who mends them
                with contextlib.suppress(OSError):
                    if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("gluster"):
                        os.kill(pid, 15)
            self.daemon.terminate()
            self.daemon.wait()

    @staticmethod
    def lacks():
        return None if shutil.which("glusterd") else "glusterfs-server"


SYSTEMS = {"directory": Directory, "Pinstripe": Pinstripe, "Pinstripe, one process": PinstripeInOne, "bindfs": Bindfs,
           "gluster": Gluster}
RANDOM_READS = {4 << 10: 2000, 64 << 10: 1000}  # bytes of each -> how many


def write_file(path, mib):
    block = random.randbytes(MIB)
    with open(path, "wb", buffering=0) as file:
        for i in range(mib):
            file.write(i.to_bytes(8, "little") + block[8:])
        os.fsync(file.fileno())


def read_file(path, mib):
    buffer = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        for i in range(mib):
            if file.readinto(buffer) != MIB or int.from_bytes(buffer[:8], "little") != i:
                sys.exit(f"run-mount: {path} has other contents")


def read_at_random(path, mib, size, count):
    chance = random.Random(1)
    with open(path, "rb", buffering=0) as file:
        for _ in range(count):
            os.pread(file.fileno(), size, chance.randrange(mib * MIB // size) * size)


def make_files(directory, count, size):
    directory.mkdir()
    data = random.randbytes(size)
    for i in range(count):
        with open(f"{directory}/f{i}", "wb", buffering=0) as file:
            if data:
                file.write(data)


def list_files(directory):
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries)


def read_files(directory, count):
    for i in range(count):
        with open(f"{directory}/f{i}", "rb", buffering=0) as file:
            file.read()


def append_to_files(directory, count):
    for i in range(count):
        with open(f"{directory}/f{i}", "ab", buffering=0) as file:
            file.write(b"a line of a log\n")


def link_files(directory, links, count):
    links.mkdir()
    for i in range(count):
        os.link(f"{directory}/f{i}", f"{links}/l{i}")


def list_at_random(directory, count):
    """So many times: to the place of some entry, and what getdents answers from there on."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("opendir", "readdir"):
        getattr(libc, name).restype = ctypes.c_void_p
    libc.telldir.restype = ctypes.c_long
    libc.opendir.argtypes = [ctypes.c_char_p]
    libc.readdir.argtypes = libc.telldir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    opened, places, chance = libc.opendir(str(directory).encode()), [], random.Random(1)
    while True:
        places.append(libc.telldir(opened))
        if not libc.readdir(opened):
            break
    for _ in range(count):
        libc.seekdir(opened, chance.choice(places[:-1]))
        if not libc.readdir(opened):
            sys.exit(f"run-mount: {directory} has no entry where it had one")
    libc.closedir(opened)


def remove_files(directory, count):
    for i in range(count):
        os.unlink(f"{directory}/f{i}")


def measure_system(name, options, archive, members, report):
    """A sample for each operation: how much of it in a second, and the CPU for each."""
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"run-mount-{name.split(',')[0]}.", dir=options.directory))
    system = SYSTEMS[name](options.build, work)

    def measure(what, amount, unit, function, variant=name):
        before, start = processes_below(system.words), time.monotonic()
        function()
        took, after = time.monotonic() - start, processes_below(system.words)
        report.add(what, variant, f"{unit}/s", amount / took)
        if name != "directory":
            cpu = sum(after[pid] - before.get(pid, 0) for pid in after)
            report.add(f"CPU of {what}", variant, f"ms/{unit.removesuffix('s')}", cpu / amount * 1e3, "less")

    def again():
        system.down()
        drop_caches()
        system.up()

    try:
        system.up()
        big, mib, count = system.mount / "big", options.mib, options.files
        measure("write", mib / 1024, "GiB", lambda: write_file(big, mib))
        again()
        measure("read", mib / 1024, "GiB", lambda: read_file(big, mib))
        measure("read again", mib / 1024, "GiB", lambda: read_file(big, mib))
        for size, reads in RANDOM_READS.items():
            again()
            measure(f"{size >> 10} KiB here and there", reads, "reads", lambda s=size, n=reads: read_at_random(big, mib, s, n))
        small = system.mount / "small"
        for size, what in ((0, "empty files"), (20000, "files of 20 000 bytes")):
            measure(f"create {what}", count, "files", lambda s=size: make_files(system.mount / f"of-{s}", count, s))
        measure("open, append, close", count, "files", lambda: append_to_files(system.mount / "of-20000", count))
        measure("make hard links", count, "links", lambda: link_files(system.mount / "of-0", system.mount / "links", count))
        measure("create files of 4 KiB", count, "files", lambda: make_files(small, count, 4096))
        again()
        measure("list files of 4 KiB", count, "files", lambda: list_files(small))
        measure("read files of 4 KiB", count, "files", lambda: read_files(small, count))
        measure("list from random places", count, "places", lambda: list_at_random(small, count))
        measure("remove files of 4 KiB", count, "files", lambda: remove_files(small, count))
        tree = system.mount / "tree"
        tree.mkdir()
        measure("unpack a tree", members, "files", lambda: run("tar", "-C", tree, "-xf", archive))
        if system.lose_two:
            system.lose_two()
            again()
            measure("read", mib / 1024, "GiB", lambda: read_file(big, mib), f"{name}, two drives dead")
        system.down()
    finally:
        subprocess.run(["umount", "-l", system.mount], stderr=subprocess.DEVNULL, check=False)
        system.remove()
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--tree", default=TREE, help="a directory, which is unpacked (default: %(default)s)")
    parser.add_argument("--systems", default=";".join(SYSTEMS))
    add_options(parser)
    options = parser.parse_args()
    options.build = options.build.resolve()
    if os.getuid() != 0:
        sys.exit("run-mount: only root may drop the kernel's caches")
    wanted = []
    for name in options.systems.split(";"):
        lacks = SYSTEMS[name].lacks()
        if lacks:
            print(f"run-mount: {name} is left out: {lacks} is not installed", file=sys.stderr)
        else:
            wanted.append(name)
    about = (f"Layout 4+2 on 6 drives; a file of {options.mib} MiB and {options.files} small ones. The large file is synced at "
             "its end, and each reading but \"again\" begins with empty caches.")
    ratios = [("Pinstripe", other) for other in wanted if not other.startswith("Pinstripe")]
    ratios += [(f"{name}, two drives dead", name) for name in wanted if name == "Pinstripe"]
    report = Report("mount", options.directory, about, ratios)
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        archive = f"{scratch}/tree.tar"
        run("tar", "-C", options.tree, "-cf", archive, ".")
        members = len(run("tar", "-tf", archive).splitlines())
        for _ in report.rounds(options.rounds, options.minutes):
            for name in wanted:
                measure_system(name, options, archive, members, report)
    print(table(report.content()))
    report.write(options.json)


if __name__ == "__main__":
    main()
