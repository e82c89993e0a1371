#!/usr/bin/env python3
"""How fast files are read, and how many bytes drives send for it: 4+2 on 8 drives, all on this machine.

    bench/run-reading.py BUILD [OTHER_BUILD] [--mib 1024] [--rounds 3] [--memory '64 MiB'] [--json FILE]

Through a mount and through an xrootd gateway of each build, in turn, on the same drives and the same file:
all of it, all of it again, and here and there. The kernel's page cache is emptied of the file before each
reading, and each mount and gateway starts with an empty memory. A ratio is of the other build to the first.
"""

import argparse
import mmap
import os
import random
import re
import shutil
import subprocess
import tempfile
import time

from common import MIB, Cluster, Report, XrootdServer, add_options, cpu_seconds, received, run, set_memory
from page import table


class Mount:
    def __init__(self, build, config, work, size):
        self.point, self.size = os.path.join(work, "mount"), size
        os.makedirs(self.point, exist_ok=True)
        self.process = subprocess.Popen([f"{build}/fuse/pinstripe-fuse", "-f", config, self.point],
                                        stderr=subprocess.DEVNULL)
        while not os.path.ismount(self.point):
            time.sleep(0.05)
            assert self.process.poll() is None, "the mount does not start"
        self.pid = self.process.pid
        self.path = os.path.join(self.point, "file")

    def read_all(self):
        file = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        done, buffer = 0, bytearray(MIB)
        while count := os.readv(file, [buffer]):
            done += count
        os.close(file)
        assert done == self.size

    def read_here_and_there(self, bytes_each, count):
        file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, bytes_each)
        chance = random.Random(bytes_each)
        for _ in range(count):
            at = chance.randrange(self.size // bytes_each) * bytes_each
            assert os.preadv(file, [buffer], at) == bytes_each
        os.close(file)

    def stop(self):
        run("fusermount3", "-u", self.point)
        self.process.wait()


class Gateway(XrootdServer):
    """The development cluster's gateway over again, with the plugin of a build."""

    def __init__(self, build, cluster, work):
        plugin = f"{build}/plugin/libXrdOssPinstripe.so"
        super().__init__(cluster, work, change=lambda line: re.sub(r"\S*libXrdOssPinstripe\S*", plugin, line))

    def read_all(self):
        run("xrdcp", "--nopbar", "-f", f"{self.url}/file", "/dev/null")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("builds", nargs="+")
    parser.add_argument("--mib", type=int, default=1024)
    add_options(parser)
    parser.add_argument("--memory", help="`memory` in cluster.toml, such as '64 MiB'")
    arguments = parser.parse_args()
    builds = [os.path.realpath(build) for build in arguments.builds]
    size = arguments.mib * MIB
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    cluster = None
    try:
        names = [f"build {number + 1}" for number in range(len(builds))]
        report = Report("reading", work, f"Layout 4+2 on 8 drives; one file of {arguments.mib} MiB.",
                        [(name, names[0]) for name in names[1:]])
        cluster = Cluster(builds[0], f"{work}/cluster", "--layout", "4+2", "--drives", "8")
        if arguments.memory:
            set_memory(cluster.config, arguments.memory)
        config = cluster.config
        ports = cluster.drive_ports()
        mount = Mount(builds[0], config, work, size)
        with open("/dev/urandom", "rb") as source, open(mount.path, "wb") as target:
            for _ in range(arguments.mib):
                target.write(source.read(MIB))
        os.chmod(mount.path, 0o644)
        mount.stop()

        def measure(host, build, what, wanted, action):
            came, cpu, begin = received(host.pid, ports), cpu_seconds(host.pid), time.monotonic()
            action()
            seconds = time.monotonic() - begin
            variant = names[builds.index(build)]
            report.add(what, variant, "MB/s", wanted / 1e6 / seconds)
            report.add(f"{what}: drive bytes per byte", variant, "bytes", (received(host.pid, ports) - came) / wanted, "less")
            report.add(f"{what}: CPU", variant, "s/GB", (cpu_seconds(host.pid) - cpu) / (wanted / 1e9), "less")

        for _ in report.rounds(arguments.rounds, arguments.minutes):
            for build in builds:
                mount = Mount(build, config, work, size)
                measure(mount, build, "mount, all of it", size, mount.read_all)
                measure(mount, build, "mount, again", size, mount.read_all)
                mount.stop()
                for each, count in ((4096, 2000), (65536, 1000)):
                    mount = Mount(build, config, work, size)
                    measure(mount, build, f"mount, {each >> 10} KiB here and there", each * count,
                            lambda: mount.read_here_and_there(each, count))
                    mount.stop()
                gateway = Gateway(build, cluster, work)
                measure(gateway, build, "xrdcp, all of it", size, gateway.read_all)
                measure(gateway, build, "xrdcp, again", size, gateway.read_all)
                gateway.stop()
        print(table(report.content()))
        report.write(arguments.json)
    finally:
        if cluster:
            cluster.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
