#!/usr/bin/env python3
"""A mount beside others on the same disk: GlusterFS, disperse 4+2, and bindfs, which passes everything through FUSE to a directory.

    bench/run-mount.py BUILD DIRECTORY [--mib 2048] [--files 10000] [--rounds 1] [--systems "pinstripe;bindfs;gluster"]

As root: the kernel's caches are dropped, and GlusterFS wants it. Everything is made in DIRECTORY and removed again.
What is not installed is left out, and that is said. Prints a table, rounds side by side; see bench/README.md.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import common
from common import MIB, cpu_seconds

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


SYSTEMS = {"pinstripe": Pinstripe, "pinstripe, one process": PinstripeInOne, "bindfs": Bindfs, "gluster": Gluster}


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


def make_files(directory, count):
    directory.mkdir()
    data = random.randbytes(4096)
    for i in range(count):
        with open(f"{directory}/f{i}", "wb", buffering=0) as file:
            file.write(data)


def list_files(directory):
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries)


def read_files(directory, count):
    for i in range(count):
        with open(f"{directory}/f{i}", "rb", buffering=0) as file:
            file.read()


def remove_files(directory, count):
    for i in range(count):
        os.unlink(f"{directory}/f{i}")


def measure_system(name, options, archive, members):
    """A row for each operation: (what, unit, amount for each second, CPU seconds for each unit's thousand)."""
    rows = {}
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"run-mount-{name.split(',')[0]}.", dir=options.directory))
    system = SYSTEMS[name](options.build, work)

    def measure(what, amount, unit, function):
        print(f"{name}: {what}", file=sys.stderr, flush=True)
        before, start = processes_below(system.words), time.monotonic()
        function()
        took, after = time.monotonic() - start, processes_below(system.words)
        cpu = sum(after[pid] - before.get(pid, 0) for pid in after)
        rows[what] = (unit, amount / took, cpu / amount)

    def again():
        system.down()
        drop_caches()
        system.up()

    try:
        system.up()
        big, small, mib = system.mount / "big", system.mount / "small", options.mib
        measure("write", mib / 1024, "GiB", lambda: write_file(big, mib))
        again()
        measure("read", mib / 1024, "GiB", lambda: read_file(big, mib))
        measure("read again", mib / 1024, "GiB", lambda: read_file(big, mib))
        again()
        measure("4 KiB here and there", 2000, "read", lambda: read_at_random(big, mib, 4 << 10, 2000))
        again()
        measure("64 KiB here and there", 1000, "read", lambda: read_at_random(big, mib, 64 << 10, 1000))
        count = options.files
        measure("create 4 KiB files", count, "file", lambda: make_files(small, count))
        again()
        measure("list them", count, "file", lambda: list_files(small))
        measure("read them", count, "file", lambda: read_files(small, count))
        measure("remove them", count, "file", lambda: remove_files(small, count))
        tree = system.mount / "tree"
        tree.mkdir()
        measure("unpack a tree", members, "file", lambda: run("tar", "-C", tree, "-xf", archive))
        if system.lose_two:
            system.lose_two()
            again()
            measure("read without two drives", mib / 1024, "GiB", lambda: read_file(big, mib))
        system.down()
    finally:
        subprocess.run(["umount", "-l", system.mount], stderr=subprocess.DEVNULL, check=False)
        system.remove()
        shutil.rmtree(work)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--systems", default=";".join(SYSTEMS))
    options = parser.parse_args()
    options.build = options.build.resolve()
    wanted = []
    for name in options.systems.split(";"):
        lacks = SYSTEMS[name].lacks()
        if lacks:
            print(f"run-mount: {name} is left out: {lacks} is not installed", file=sys.stderr)
        else:
            wanted.append(name)
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        archive = f"{scratch}/tree.tar"
        run("tar", "-C", TREE, "-cf", archive, ".")
        members = len(run("tar", "-tf", archive).splitlines())
        results = [{name: measure_system(name, options, archive, members) for name in wanted} for _ in range(options.rounds)]
    print(f"| operation | unit | {' | '.join(f'{name}: per second' for name in wanted)} | "
          f"{' | '.join(f'{name}: CPU ms per unit' for name in wanted)} |")
    print("|---|---|" + "---|" * 2 * len(wanted))
    for what in results[0][wanted[0]]:
        cells = [[one[name].get(what) for one in results] for name in wanted]
        unit = next(cell[0] for row in cells for cell in row if cell)
        rates = [", ".join(f"{cell[1]:.{2 if unit == 'GiB' else 0}f}" if cell else "-" for cell in row) for row in cells]
        costs = [", ".join(f"{cell[2] * 1e3:.{0 if unit == 'GiB' else 2}f}" if cell else "-" for cell in row) for row in cells]
        print(f"| {what} | {unit} | {' | '.join(rates)} | {' | '.join(costs)} |")


if __name__ == "__main__":
    main()
