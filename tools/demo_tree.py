#!/usr/bin/python3
"""The physicist of the demo: makes a ROOT file, and computes a histogram from one.

usage: demo_tree.py make FILE          a TTree of some 200 MB that no compression makes smaller
       demo_tree.py histogram WHERE    of the first column of numbers; WHERE: a file or root:// URL
       demo_tree.py adler32 FILE       as `xrdfs query checksum` prints it
"""

import hashlib
import sys
import zlib

ENTRIES_AT_ONCE = 1_000_000
TIMES = 6


def make(path):
    import numpy
    import uproot

    dice = numpy.random.default_rng(20260101)
    with uproot.recreate(path, compression=None) as file:
        columns = {"px": "f8", "py": "f8", "pz": "f8", "energy": "f8", "run": "i4"}
        tree = file.mktree("events", columns)
        for _ in range(TIMES):
            tree.extend({
                "px": dice.normal(size=ENTRIES_AT_ONCE),
                "py": dice.normal(size=ENTRIES_AT_ONCE),
                "pz": dice.normal(size=ENTRIES_AT_ONCE),
                "energy": dice.exponential(size=ENTRIES_AT_ONCE),
                "run": dice.integers(0, 1 << 30, ENTRIES_AT_ONCE).astype("i4"),
            })


def number_column(file):
    """The first column of plain numbers in any tree of the file: its name and its values."""
    import uproot

    for key in file.keys(filter_classname="TTree"):
        for branch in file[key].branches:
            if isinstance(branch.interpretation, uproot.AsDtype) and branch.num_entries > 0:
                values = branch.array(library="np")
                if values.ndim == 1 and values.dtype.kind in "iuf":
                    return f"{key} {branch.name}", values
    sys.exit("there is no column of plain numbers in it")


def histogram(where):
    import numpy
    import uproot

    with uproot.open(where) as file:
        name, values = number_column(file)
        width = max(float(values.max()) - float(values.min()), 1.0)
        edges = float(values.min()) + width * numpy.arange(101) / 100
        counts, edges = numpy.histogram(values, bins=edges)
        digest = hashlib.sha256(counts.tobytes() + edges.tobytes()).hexdigest()[:16]
        print(f"{name}: {len(values)} entries, mean {values.mean():.6f}, "
              f"deviation {values.std():.6f}, histogram {digest}")


def adler32(path):
    value = 1
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            value = zlib.adler32(piece, value)
    print(f"{value:08x}")


if __name__ == "__main__":
    commands = {"make": make, "histogram": histogram, "adler32": adler32}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](sys.argv[2])
