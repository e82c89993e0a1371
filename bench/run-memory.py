#!/usr/bin/env python3
"""How much memory programs take at most: a gateway beside plain xrootd, a mount, and drives, one or many in a process.

    bench/run-memory.py BUILD [--mib 256] [--memory '64 MiB'] [--drives 36] [--rounds 3] [--json FILE]

It is the peak of resident memory, as the kernel counts it, after each did its work: 8 files of --mib together come and go at
once through a gateway, one is written and read through a mount, and each drive has puts, gets and GETNEXTs of 1 KiB.
Programs start afresh in each round. Everything is made in $TMPDIR and removed again.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from common import MIB, Cluster, Report, XrootdServer, add_options, free_port, make_drives, run, set_memory
from page import table

OURS, PLAIN, ONE = "Pinstripe", "plain xrootd", "1 drive"
AT_ONCE = 8


def mebibytes(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no {name}")


def come_and_go(url, source):
    """All at once."""
    for way in ("up", "down"):
        copies = [subprocess.Popen(["xrdcp", "--nopbar", "--silent", "-f",
                                    *((source, f"{url}//memory-{i}") if way == "up" else (f"{url}//memory-{i}", "/dev/null"))])
                  for i in range(AT_ONCE)]
        if any([copy.wait() for copy in copies]):  # a list: all of them are waited for
            sys.exit("run-memory: an xrdcp failed")


def through_a_mount(build, cluster, work, mib):
    point = f"{work}/mount"
    os.makedirs(point, exist_ok=True)
    process = subprocess.Popen([f"{build}/fuse/pinstripe-fuse", "-f", cluster.config, point], stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(point):
            if process.poll() is not None:
                sys.exit("run-memory: the mount does not start")
            time.sleep(0.05)
        idle = mebibytes(process.pid, "VmHWM")
        block = os.urandom(MIB)
        with open(f"{point}/memory", "wb", buffering=0) as file:
            for _ in range(mib):
                file.write(block)
        with open(f"{point}/memory", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(MIB):
                pass
        return idle, mebibytes(process.pid, "VmHWM")
    finally:
        subprocess.run(["fusermount3", "-u", point], check=False)
        process.wait()


def of_drives(build, directory, count):
    """MiB at the start, and at most."""
    work = tempfile.mkdtemp(dir=directory)
    ports = []
    while len(ports) < count:
        port = free_port()
        if port not in ports:
            ports.append(port)
    with open(f"{work}/pinstriped.toml", "w") as config:
        config.write('[daemon]\nlisten = "127.0.0.1"\n')
        config.write("".join(f'[[drive]]\npath = "{work}/{port}"\nport = {port}\n' for port in ports))
    make_drives(f"{build}/daemon/pinstriped", *(f"{work}/{port}" for port in ports))
    daemon = subprocess.Popen([f"{build}/daemon/pinstriped", "--config", f"{work}/pinstriped.toml", "--log-level", "error"],
                              stdout=subprocess.PIPE, text=True)
    try:
        if daemon.stdout.readline() != "ready\n":
            sys.exit("run-memory: the daemon did not start")
        idle = mebibytes(daemon.pid, "VmHWM")
        for port in ports:
            run(f"{build}/tools/pinstripe", "bench", "drive", "--url", f"127.0.0.1:{port}", "--op", "put,get,next", "--value",
                "1KiB", "--keys", "rand", "--depth", "32", "--records", "20000", "--seconds", "0.2")
        return idle, mebibytes(daemon.pid, "VmHWM")
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--drives", type=int, default=36, help="in one process")
    parser.add_argument("--memory", default="64 MiB", help="of gateway and mount (cluster.toml)")
    add_options(parser)
    options = parser.parse_args()
    build, many = os.path.realpath(options.build), f"{options.drives} drives"
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    cluster, plain = None, None
    try:
        cluster = Cluster(build, f"{work}/cluster", "--layout", "4+2", "--drives", "8")
        set_memory(cluster.config, options.memory)
        source = f"{work}/source"
        with open(source, "wb") as file:
            file.write(os.urandom(options.mib * MIB // AT_ONCE))
        report = Report("memory", work, f"Layout 4+2 on 8 drives, with a `memory` of {options.memory}.",
                        [(OURS, PLAIN), (many, ONE)])
        for _ in report.rounds(options.rounds, options.minutes):
            plain = XrootdServer(cluster, work, without=("ofs.osslib",), more=("oss.localroot PLACE/data",))
            cluster.kill("gateway")
            cluster.start("gateway")
            gateway = cluster.status()["gateway"]
            for variant, pid, url in ((PLAIN, plain.pid, plain.url), (OURS, gateway["pid"], gateway["url"])):
                report.add("server, idle", variant, "MiB", mebibytes(pid, "VmHWM"), "less")
                come_and_go(url.rstrip("/"), source)
                report.add(f"server, {AT_ONCE} copies at once", variant, "MiB", mebibytes(pid, "VmHWM"), "less")
            plain.stop()
            plain = None
            for state, amount in zip(("idle", "a file written and read"), through_a_mount(build, cluster, work, options.mib)):
                report.add(f"mount, {state}", OURS, "MiB", amount, "less")
            for variant, count in ((ONE, 1), (many, options.drives)):
                for state, amount in zip(("idle", "after puts and gets"), of_drives(build, work, count)):
                    report.add(f"pinstriped, {state}", variant, "MiB", amount, "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        if plain:
            plain.stop()
        if cluster:
            cluster.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
