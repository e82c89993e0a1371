#!/usr/bin/env python3
"""What connections cost where each drive of a pinstriped has one of its own, and where they share one.

    bench/run-connections.py BUILD [--drives 36] [--clients 20] [--file-mib 256] [--rounds 3] [--json FILE]

One pinstriped serves all drives. First many clients that ask nothing are connected, with TLS and without; then one
moves contents, in a cluster of 8 such drives with layout 4+2.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile

from common import MIB, Cluster, Report, add_options, cpu_seconds, free_port, make_drives, run
from page import table

WAYS = {"own": "one to each drive", "shared": "one for all drives"}


class Daemon:
    def __init__(self, build, work, drives):
        self.place = tempfile.mkdtemp(dir=work)
        ports = set()
        while len(ports) < 2 * drives:
            ports.add(free_port())
        self.ports = {"plain": sorted(ports)[:drives], "tls": sorted(ports)[drives:]}
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-keyout", f"{self.place}/tls.key", "-out", f"{self.place}/tls.crt")
        os.chmod(f"{self.place}/tls.key", 0o600)
        with open(f"{self.place}/pinstriped.toml", "w") as config:
            config.write('[daemon]\nlisten = "127.0.0.1"\nstrangers = 10000\nstrangers_per_address = 10000\n'
                         'connections_per_address = 10000\ntls_certificate = "tls.crt"\ntls_key = "tls.key"\n')
            for number, (plain, tls) in enumerate(zip(self.ports["plain"], self.ports["tls"])):
                config.write(f'[[drive]]\npath = "{self.place}/{number}"\nport = {plain}\ntls_port = {tls}\n')
        daemon = f"{build}/daemon/pinstriped"
        make_drives(daemon, *(f"{self.place}/{number}" for number in range(drives)))
        self.process = subprocess.Popen([daemon, "--config", f"{self.place}/pinstriped.toml", "--log-level", "error"],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", "the daemon did not start"

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024

    def sockets(self):
        names = os.listdir(f"/proc/{self.process.pid}/fd")
        return sum(os.readlink(f"/proc/{self.process.pid}/fd/{name}").startswith("socket") for name in names)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def idle(build, report, work, drives, clients, security):
    """What each client costs that is connected to all drives. A daemon of its own for each way: memory is not given back."""
    for way, variant in WAYS.items():
        daemon = Daemon(build, work, drives)
        try:
            memory, sockets, cpu = daemon.resident(), daemon.sockets(), cpu_seconds(daemon.process.pid)
            ports = [str(port) for port in daemon.ports[security]]
            client = subprocess.Popen([f"{build}/bench/connections_bench", str(clients), security, way, *ports],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            said = {row["what"]: row["value"] for row in (json.loads(client.stdout.readline()) for _ in range(2))}
            title = "with TLS" if security == "tls" else "plain"
            figures = [
                ("sockets at each end", "", daemon.sockets() - sockets),
                ("memory of pinstriped", "KiB", (daemon.resident() - memory) / 1024),
                ("memory of the client", "KiB", said["memory of the clients"] / 1024),
                ("CPU of pinstriped to connect it", "ms", 1e3 * (cpu_seconds(daemon.process.pid) - cpu)),
                ("CPU of the client to connect", "ms", 1e3 * said["CPU of the clients"])]
            for what, unit, value in figures:
                report.add(f"{title}: {what}", variant, unit or "in number", value / clients, "less")
            client.stdin.close()
            client.wait()
        finally:
            daemon.stop()
            shutil.rmtree(daemon.place)


def moved(build, report, cluster, shared, file_mib):
    for way, variant in WAYS.items():
        config = shared if way == "shared" else cluster.config
        said = json.loads(run(f"{build}/tools/pinstripe", "bench", "data", config, "--json", "--pattern", "read,read-64k,small-4k",
                              "--file-bytes", str(file_mib * MIB)))
        for row in said:
            name = row["pattern"]
            report.add(f"{name}: MB/s", variant, "MB/s", row["bytes"] / row["seconds"] / 1e6)
            cpu = row["client_cpu_seconds"] + row["daemons_cpu_seconds"]
            report.add(f"{name}: CPU of both sides for each GB", variant, "s", cpu / row["bytes"] * 1e9, "less")


def share(cluster):
    name = f"{cluster.directory}/shared.toml"
    with open(cluster.config) as config:
        text = config.read()
    changed = re.sub(r"^\[limits\]$", "[limits]\nshare_connections = true", text, flags=re.M)
    if changed == text:
        changed = text + "\n[limits]\nshare_connections = true\n"
    with open(name, "w") as config:
        config.write(changed)
    return name


def measure(options):
    build = os.path.realpath(options.build)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    cluster = Cluster(build, f"{work}/cluster", "--drives", "8", "--one-process", "--no-gateway")
    try:
        about = (f"One pinstriped. First {options.clients} clients in turn that are connected to {options.drives} drives and ask "
                 "nothing; figures are those of each. Then one client, 8 drives, layout 4+2, plain connections.")
        report = Report("connections", work, about, [(WAYS["shared"], WAYS["own"])])
        shared = share(cluster)
        for _ in report.rounds(options.rounds, options.minutes):
            for security in ("plain", "tls"):
                idle(build, report, work, options.drives, options.clients, security)
            moved(build, report, cluster, shared, options.file_mib)
        print(table(report.content()))
        report.write(options.json)
    finally:
        cluster.down()
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--drives", type=int, default=36, help="of the pinstriped (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=20, help="that are connected (default: %(default)s)")
    parser.add_argument("--file-mib", type=int, default=256, help="of the file that is moved (default: %(default)s)")
    add_options(parser)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
