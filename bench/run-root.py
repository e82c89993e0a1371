#!/usr/bin/env python3
"""A ROOT job that reads a TTree through a gateway of Pinstripe, and through the same xrootd on a plain directory.

    bench/run-root.py BUILD [--entries 3000000] [--rounds 3] [--python ~/.cache/pinstripe-root/bin/python3] [--json FILE]

The job has a TTreeCache of 30 MB and adds up doubles that do not compress, in a process of its own each time: of all
entries, of half of them (five stretches in turn with five that are left out), of one stretch, and of two columns of twelve.
In each round, in turn: plain, Pinstripe with an empty memory, Pinstripe with two of eight drives dead. `./dev root`
fetches ROOT. The MB/s are of what the job read; drive bytes are what came to the gateway for each of its bytes.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile

from common import Cluster, Report, XrootdServer, add_options, cpu_seconds, received, run
from page import table

COLUMNS = 12
# What is read: stretches of ten, and columns.
JOBS = {"everything, in order": (10, COLUMNS), "half of the entries": (5, COLUMNS), "a tenth of the entries": (1, COLUMNS),
        "2 of 12 columns": (10, 2)}
DEAD = ("1", "2")
PLAIN, OURS, TWO_DEAD = "plain xrootd", "Pinstripe", "two drives dead"

CODE = """
#include <TFile.h>
#include <TStopwatch.h>
#include <TTree.h>
#include <memory>
double Value(ULong64_t entry, int column) {
  ULong64_t x = entry * 0x9e3779b97f4a7c15ull + (column + 1) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 29; x *= 0x94d049bb133111ebull; x ^= x >> 32;
  return x * 0x1p-64;
}
void Make(const char* path, Long64_t entries) {
  TFile file(path, "recreate");
  TTree tree("tree", "");
  std::vector<double> values(COLUMNS);
  for (int c = 0; c < COLUMNS; ++c) tree.Branch(Form("c%d", c), &values[c]);
  for (Long64_t i = 0; i < entries; ++i) {
    for (int c = 0; c < COLUMNS; ++c) values[c] = Value(i, c);
    tree.Fill();
  }
  tree.Write();
}
std::string Job(const char* url, int stretches, int columns) {
  TStopwatch watch;
  std::unique_ptr<TFile> file(TFile::Open(url));
  auto* tree = file->Get<TTree>("tree");
  tree->SetCacheSize(30000000);
  tree->SetBranchStatus("*", 0);
  std::vector<double> values(COLUMNS);
  for (int c = 0; c < columns; ++c) {
    tree->SetBranchStatus(Form("c%d", c), 1);
    tree->SetBranchAddress(Form("c%d", c), &values[c]);
    tree->AddBranchToCache(Form("c%d", c));
  }
  tree->StopCacheLearningPhase();
  const int order[] = {0, 5, 1, 6, 2, 7, 3, 8, 4, 9};
  double sum = 0;
  for (Long64_t i = 0, n = tree->GetEntries(); i < n; ++i) {
    if (order[i * 10 / n] >= stretches) continue;
    tree->GetEntry(i);
    for (int c = 0; c < columns; ++c) sum += values[c];
  }
  watch.Stop();
  return Form("{\\"sum\\": %.17g, \\"real\\": %f, \\"cpu\\": %f, \\"bytes\\": %lld, \\"calls\\": %d}", sum,
              watch.RealTime(), watch.CpuTime(), file->GetBytesRead(), file->GetReadCalls());
}
""".replace("COLUMNS", str(COLUMNS))


def in_root(verb, arguments):
    """What a process with ROOT does for us."""
    import ROOT

    ROOT.gInterpreter.Declare(CODE)
    if verb == "make":
        ROOT.Make(arguments[0], int(arguments[1]))
    else:
        print(ROOT.Job(arguments[0], int(arguments[1]), int(arguments[2])))


class Bench:
    def __init__(self, work, arguments):
        self.python, self.sums, self.plain = os.path.expanduser(arguments.python), {}, None
        source = f"{work}/tree.root"
        self.root("make", source, str(arguments.entries))
        self.size = os.path.getsize(source)
        self.cluster = Cluster(arguments.build, f"{work}/cluster", "--layout", "4+2", "--drives", "8")
        self.ports = self.cluster.drive_ports()
        self.report = Report("root", work, f"A TTree of {COLUMNS} columns of doubles, {self.size / 1e6:.0f} MB, "
                             "and a TTreeCache of 30 MB; layout 4+2 on 8 drives.", [(OURS, PLAIN), (TWO_DEAD, OURS)])
        self.plain = XrootdServer(self.cluster, work, without=("ofs.osslib",), more=("oss.localroot PLACE/data",))
        for url in (self.plain.url, self.cluster.status()["gateway"]["url"]):
            run("xrdcp", "--nopbar", "-f", source, url.rstrip("/") + "//tree.root")

    def root(self, *arguments):
        return run(self.python, __file__, "in-root", *arguments)

    def job(self, name, variant):
        server, url = self.plain.pid, self.plain.url
        if variant != PLAIN:  # with an empty memory
            self.cluster.kill("gateway")
            self.cluster.start("gateway")
            gateway = self.cluster.status()["gateway"]
            server, url = gateway["pid"], gateway["url"]
        came, cpu = received(server, self.ports), cpu_seconds(server)
        said = self.root("job", url.rstrip("/") + "//tree.root", *map(str, JOBS[name]))
        result = json.loads(said.strip().splitlines()[-1])
        assert self.sums.setdefault(name, result["sum"]) == result["sum"], f"{name}: another sum with {variant}"
        megabytes = result["bytes"] / 1e6
        came, cpu = received(server, self.ports) - came, cpu_seconds(server) - cpu
        self.report.add(name, variant, "MB/s", megabytes / result["real"])
        self.report.add(f"{name}: the job's CPU time per time", variant, "s/s", result["cpu"] / result["real"])
        self.report.add(f"{name}: the server's CPU", variant, "s/GB", cpu / megabytes * 1e3, "less")
        if variant != PLAIN:
            self.report.add(f"{name}: drive bytes per byte", variant, "bytes", came / result["bytes"], "less")

    def round(self):
        for variant in (PLAIN, OURS, TWO_DEAD):
            if variant == TWO_DEAD:
                self.cluster.kill(*DEAD)
            for name in JOBS:
                self.job(name, variant)
        self.cluster.start(*DEAD)

    def stop(self):
        if self.plain:
            self.plain.stop()
        self.cluster.down()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--entries", type=int, default=3_000_000)
    parser.add_argument("--python", default="~/.cache/pinstripe-root/bin/python3", help="that has ROOT")
    add_options(parser)
    arguments = parser.parse_args()
    if not os.path.exists(os.path.expanduser(arguments.python)):
        sys.exit(f"run-root: there is no {arguments.python}: `./dev root` fetches ROOT")
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    try:
        bench = Bench(work, arguments)
        try:
            for _ in bench.report.rounds(arguments.rounds, arguments.minutes):
                bench.round()
        finally:
            bench.stop()
        print(table(bench.report.content()))
        bench.report.write(arguments.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["in-root"]:
        in_root(sys.argv[2], sys.argv[3:])
    else:
        main()
