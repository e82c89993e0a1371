#!/usr/bin/env python3
"""Names on the drives, on etcd and on PostgreSQL: how many a second, and what they cost.

    bench/run-engines.py BUILD DIRECTORY [--files 300] [--rounds 3] [--minutes N] [--json FILE]

Three clusters of 4+2 on 8 drives on one disk. The first keeps names on its drives (r = 5), the second on an etcd of three
members, the third on a PostgreSQL with a standby that it waits for. Hosts make, look at, list, rename and remove empty files,
each with one operation at a time, one host and 16. CPU is that of hosts, drives and engine together. Everything is made below
DIRECTORY and removed again.
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from common import Cluster, Report, add_options, cpu_seconds, free_port, run
from page import table

DRIVES, ETCD, POSTGRES = "drives", "etcd", "PostgreSQL"
LAYOUT = ("--drives", "8", "--layout", "4+2", "--no-gateway")
OPERATIONS = {"create": "made", "stat": "looked at", "list": "listed", "rename": "renamed", "delete": "removed"}


def wait_until(what, is_so):
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    sys.exit(f"run-engines: {what}")


class Etcd:
    def __init__(self, place):
        ports = [free_port() for _ in range(6)]
        members = ",".join(f"m{i}=http://127.0.0.1:{ports[2 * i + 1]}" for i in range(3))
        self.endpoints = [f"http://127.0.0.1:{ports[2 * i]}" for i in range(3)]
        self.processes = []
        for i, endpoint in enumerate(self.endpoints):
            peer = f"http://127.0.0.1:{ports[2 * i + 1]}"
            self.processes.append(subprocess.Popen(
                ["etcd", "--name", f"m{i}", "--data-dir", f"{place}/m{i}", "--listen-client-urls", endpoint,
                 "--advertise-client-urls", endpoint, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", members, "--quota-backend-bytes", str(8 << 30), "--logger", "zap", "--log-level", "error"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until("etcd does not serve", lambda: self.ctl("endpoint", "health").returncode == 0)

    def ctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", ",".join(self.endpoints), *words], capture_output=True, text=True,
                              env={**os.environ, "ETCDCTL_API": "3"})

    def settings(self):
        return ['engine = "etcd"', f"endpoints = {json.dumps(self.endpoints)}"]

    def cpu(self):
        return cpu_seconds(*[process.pid for process in self.processes])

    def stored_bytes(self):
        """By one member, without the history, which is compacted first."""
        status = json.loads(self.ctl("endpoint", "status", "--write-out", "json").stdout)
        self.ctl("compact", "--physical", str(status[0]["Status"]["header"]["revision"]))
        status = json.loads(self.ctl("endpoint", "status", "--write-out", "json").stdout)
        return status[0]["Status"]["dbSizeInUse"]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Postgres:
    def __init__(self, place):
        self.programs = max(glob.glob("/usr/lib/postgresql/*/bin"))
        self.as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.geteuid() == 0 else []
        self.ports, self.places = [free_port(), free_port()], [f"{place}/s0", f"{place}/s1"]
        os.chmod(place, 0o755)
        for one in self.places:
            os.mkdir(one)
            if self.as_user:
                shutil.chown(one, "postgres")
        self.call("initdb", "-D", f"{self.places[0]}/data", "-U", "keeper", "--auth", "trust")
        self.start(0)
        self.call("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "keeper", "-D", f"{self.places[1]}/data",
                  "-R", "-c", "fast")
        self.start(1)
        self.sql("alter system set synchronous_standby_names = 's1'")
        self.sql("select pg_reload_conf()")

    def call(self, program, *words):
        run(*self.as_user, f"{self.programs}/{program}", *words)

    def start(self, server):
        options = (f"-c port={self.ports[server]} -c listen_addresses=127.0.0.1 -c unix_socket_directories= "
                   f"-c cluster_name=s{server}")
        self.call("pg_ctl", "-D", f"{self.places[server]}/data", "-l", f"{self.places[server]}/log", "-w", "-o", options, "start")

    def sql(self, text):
        return subprocess.run([*self.as_user, f"{self.programs}/psql", "-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "keeper",
                               "-d", "postgres", "-Atqc", text], capture_output=True, text=True, check=True).stdout.strip()

    def settings(self):
        return ['engine = "postgresql"', 'connection = "host=127.0.0.1,127.0.0.1 port=%d,%d user=keeper dbname=postgres"'
                % tuple(self.ports)]

    def cpu(self):
        """Of both servers. Each has a process for each connection; those that have ended count for their parent."""
        tops = [open(f"{one}/data/postmaster.pid").readline().strip() for one in self.places]
        ticks = 0
        for stat in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(stat) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            is_top = stat.split("/")[2] in tops
            if is_top or fields[1] in tops:
                ticks += sum(int(field) for field in fields[11:15 if is_top else 13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stored_bytes(self):
        self.sql("vacuum full")
        return int(self.sql("select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = "
                            "c.relnamespace where n.nspname like 'pinstripe%' and c.relkind = 'r'"))

    def stop(self):
        for one in reversed(self.places):
            subprocess.run([*self.as_user, f"{self.programs}/pg_ctl", "-D", f"{one}/data", "-m", "immediate", "stop"],
                           capture_output=True)


class Names:
    """A cluster whose names are on the engine, if one is given."""

    def __init__(self, build, place, engine=None):
        self.engine, self.cluster = engine, Cluster(build, f"{place}/cluster", *LAYOUT)
        if engine:
            with open(self.cluster.config, "a") as config:
                config.write("\n".join(["", "[metadata]", *engine.settings(), ""]))
            run(self.cluster.pinstripe, "format", "--force", self.cluster.config)

    def bench(self, clients, files, *options):
        """Results of `pinstripe bench names`, and the CPU of the engine meanwhile."""
        before = self.cpu()
        said = subprocess.run([self.cluster.pinstripe, "bench", "names", self.cluster.config, "--clients", str(clients), "--files",
                               str(files), "--file-bytes", "0", "--json", *options], capture_output=True, text=True, check=True)
        return json.loads(said.stdout), self.cpu() - before

    def cpu(self):
        return self.engine.cpu() if self.engine else 0.0

    def down(self):
        self.cluster.down()
        if self.engine:
            self.engine.stop()


def compare(variant, names, report, files):
    for clients in (1, 16):
        results, cpu = names.bench(clients, files)
        hosts = "one host" if clients == 1 else f"{clients} hosts"
        total = sum(result["operations"] for result in results)
        for result in results:
            report.add(f"{OPERATIONS[result['op']]} by {hosts}", variant, "1/s", result["operations"] / result["seconds"])
            cpu += result["client_cpu_seconds"] + result["drives_cpu_seconds"]
        report.add(f"CPU of each of these, {hosts}", variant, "us", cpu / total * 1e6, "less")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--files", type=int, default=300)
    add_options(parser)
    options = parser.parse_args()
    build = os.path.realpath(options.build)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.", dir=options.directory)
    os.chmod(work, 0o755)
    all_of_them = {}
    try:
        for variant, make in ((DRIVES, None), (ETCD, Etcd), (POSTGRES, Postgres)):
            place = f"{work}/{variant}"
            os.mkdir(place)
            engine = None
            if make:
                os.mkdir(f"{place}/engine")
                engine = make(f"{place}/engine")
            all_of_them[variant] = Names(build, place, engine)
        report = Report("engines", work, f"4+2 on 8 drives, {options.files} empty files of each host; an etcd of three members, a "
                        "PostgreSQL with a synchronous standby.", [(ETCD, DRIVES), (POSTGRES, DRIVES)])
        for _ in report.rounds(options.rounds, options.minutes):
            for variant, names in all_of_them.items():
                compare(variant, names, report, options.files)
            for variant in (ETCD, POSTGRES):
                names, count = all_of_them[variant], 16 * options.files
                before = names.engine.stored_bytes()
                names.bench(16, options.files, "--keep")
                report.add("stored for each file, in one copy", variant, "B", (names.engine.stored_bytes() - before) / count,
                           "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        for names in all_of_them.values():
            names.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
