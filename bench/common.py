"""What the scripts of this directory share: processes and their CPU, clusters of development, servers of XRootD."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time

MIB = 1 << 20


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:8])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def cpu_seconds(*pids):
    """User and system time of these processes, together."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def received(pid, ports):
    """Bytes that came to a process from these ports, by the counts of TCP."""
    total, wanted = 0, False
    for line in run("ss", "-tinpH").splitlines():
        if not line.startswith((" ", "\t")):
            peer = line.split()[4]
            wanted = f"pid={pid}," in line and int(peer.rsplit(":", 1)[1]) in ports
        elif wanted:
            found = re.search(r"bytes_received:(\d+)", line)
            total += int(found.group(1)) if found else 0
    return total


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def size_of(text):
    """Bytes of a size such as 64MiB; without "i" they count as well, the sizes are powers of two."""
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]?)i?B?", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def set_memory(config, memory):
    """`memory` in [limits] of a cluster.toml."""
    with open(config) as text:
        lines = [line for line in text if not line.startswith("memory")]
    new = f'memory = "{memory}"\n'
    if "[limits]\n" in lines:
        lines.insert(lines.index("[limits]\n") + 1, new)
    else:
        lines += ["\n[limits]\n", new]
    with open(config, "w") as text:
        text.writelines(lines)


class Cluster:
    """One of `pinstripe dev up`, with a gateway."""

    def __init__(self, build, directory, *options):
        self.pinstripe, self.directory = f"{build}/tools/pinstripe", directory
        self.config = f"{directory}/cluster.toml"
        run(self.pinstripe, "dev", "up", directory, *options)
        self.user = self.status()["gateway"]["user"]

    def status(self):  # which exits with 1 when a drive is dead
        said = subprocess.run([self.pinstripe, "dev", "status", "--json", self.directory],
                              capture_output=True, text=True)
        return json.loads(said.stdout)

    def drive_ports(self):
        with open(self.config) as text:
            return {int(port) for port in re.findall(r'address = ".*:(\d+)"', text.read())}

    def kill(self, *names):
        run(self.pinstripe, "dev", "kill", self.directory, *names)

    def start(self, *names):
        run(self.pinstripe, "dev", "start", self.directory, *names)

    def down(self):
        subprocess.run([self.pinstripe, "dev", "down", "--delete", self.directory], capture_output=True)


class XrootdServer:
    """A cluster's gateway over again on a port of its own: with other lines instead of some of its configuration."""

    def __init__(self, cluster, work, without=(), more=(), change=lambda line: line):
        self.place = tempfile.mkdtemp(dir=work)
        self.port = free_port()
        with open(f"{cluster.directory}/gateway/xrootd.cfg") as config:
            lines = config.read().splitlines()
        gone = ("xrd.port", "all.adminpath", "all.pidpath", *without)
        lines = [change(line) for line in lines if not line.startswith(gone)]
        lines += [f"xrd.port {self.port}", f"all.adminpath {self.place}", f"all.pidpath {self.place}"]
        lines += [line.replace("PLACE", self.place) for line in more]
        with open(f"{self.place}/cfg", "w") as config:
            config.write("\n".join(lines) + "\n")
        os.mkdir(f"{self.place}/data")
        as_user = []
        if os.getuid() == 0:
            run("chown", "-R", f"{cluster.user}:", self.place)
            group = run("id", "-g", cluster.user).strip()
            as_user = ["setpriv", f"--reuid={cluster.user}", f"--regid={group}", "--clear-groups"]
        with open(f"{self.place}/log", "w") as log:
            self.process = subprocess.Popen([*as_user, "xrootd", "-c", f"{self.place}/cfg", "-I", "v4"],
                                            cwd=self.place, stdout=log, stderr=log)
        while "initialization completed" not in self.log():
            time.sleep(0.05)
            assert self.process.poll() is None, self.log()
        self.pid = self.process.pid
        self.url = f"root://127.0.0.1:{self.port}/"

    def log(self):
        with open(f"{self.place}/log") as log:
            return log.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()
