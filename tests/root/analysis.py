"""What an analysis does: writes a TTree and an RNTuple, or reads one of them with ROOT and with uproot and prints
what it computed, exactly, as JSON.

usage: analysis.py make DIRECTORY
       analysis.py root|uproot URL-OR-DIRECTORY
"""

import json
import sys

ENTRIES = 400_000
COLUMNS = 12  # of a double each, besides an event number and a vector


def make(directory):
    import ROOT

    # Values that do not compress, and are the same whenever this is run.
    ROOT.gInterpreter.Declare("""
        double Value(ULong64_t entry, int column) {
          ULong64_t x = entry * 0x9e3779b97f4a7c15ull + (column + 1) * 0xbf58476d1ce4e5b9ull;
          x ^= x >> 29; x *= 0x94d049bb133111ebull; x ^= x >> 32;
          return x * 0x1p-64;
        }
        ROOT::RVecF Hits(ULong64_t entry) {
          ROOT::RVecF hits(entry % 5);
          for (size_t i = 0; i < hits.size(); ++i) hits[i] = Value(entry, 100 + i);
          return hits;
        }""")
    frame = ROOT.RDataFrame(ENTRIES).Define("event", "rdfentry_").Define("hits", "Hits(rdfentry_)")
    for column in range(COLUMNS):
        frame = frame.Define(f"c{column}", f"Value(rdfentry_, {column})")
    options = ROOT.RDF.RSnapshotOptions()
    frame.Snapshot("tree", f"{directory}/tree.root", "", options)
    options.fOutputFormat = ROOT.RDF.ESnapshotOutputFormat.kRNTuple
    frame.Snapshot("ntuple", f"{directory}/ntuple.root", "", options)


def columns():
    return [f"c{column}" for column in range(COLUMNS)]


# Sums in the order of the entries, so that equal bytes give equal bits.
def with_root(name, url, every):
    import ROOT

    if name == "tree":
        file = ROOT.TFile.Open(url)  # kept open until the frame is done
        tree = file.Get(name)
        tree.SetCacheSize(30_000_000)
        frame = ROOT.RDataFrame(tree)
    else:
        frame = ROOT.RDF.FromRNTuple(name, url)
    frame = frame.Filter(f"event % {every} == 0")
    results = {column: frame.Sum(column) for column in columns()}
    results["hits"] = frame.Define("all_hits", "Sum(hits)").Sum("all_hits")
    count = frame.Count()
    return {"entries": count.GetValue()} | {one: float(result.GetValue()).hex() for one, result in results.items()}


def with_uproot(name, url, every):
    import numpy
    import uproot

    sums = {}
    with uproot.open(url) as file:
        for column in ["event"] + columns():
            array = file[name][column].array(library="np" if name == "tree" else "ak")
            sums[column] = float(numpy.sum(numpy.asarray(array)[::every])).hex()
    return sums


def read(reader, place):
    for name in ("tree", "ntuple"):
        for every in (1, 2):
            results = reader(name, f"{place}/{name}.root", every)
            print(json.dumps([name, f"{100 // every} %", reader.__name__, results], sort_keys=True), flush=True)


if __name__ == "__main__":
    # ROOT and uproot have a client of XRootD each: both in one process crash.
    verbs = {"make": make, "root": lambda place: read(with_root, place), "uproot": lambda place: read(with_uproot, place)}
    if len(sys.argv) != 3 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](sys.argv[2])
