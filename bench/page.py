#!/usr/bin/env python3
"""Makes README.md of this directory and plots/*.svg from template.md and results/*.json.

    bench/page.py            write them
    bench/page.py --check    say what differs from what would be written, and exit with 1 if anything does

A line `@QUESTION@` of the template becomes the table, the plot and the circumstances of results/QUESTION.json.
Nothing is measured here, and the same results make the same bytes.
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import xml.sax.saxutils

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = re.compile(r"^@([a-z-]+)@$", re.MULTILINE)
SHORT = {"MB/s": 0, "GiB/s": 2}  # decimals that a unit deserves, where three digits are not it


# ---- Figures

def shown(value, unit=""):
    """With three digits, and never in powers of ten."""
    if unit in SHORT and value >= 10 ** (1 - SHORT[unit]):
        return f"{value:.{SHORT[unit]}f}"
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 4)}f}"


def shown_ratio(value):
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def with_spread(values, form):
    """The median; the lowest and the highest in brackets."""
    middle = form(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form(min(values))} to {form(max(values))})"


class Results:
    """What one file of results says, by row and variant."""

    def __init__(self, content):
        self.content = content
        self.rows, self.variants, self.samples = {}, [], {}  # what -> (unit, better), in their order
        for row in content["results"]:
            self.rows.setdefault(row["what"], (row["unit"], row["better"]))
            if row["variant"] not in self.variants:
                self.variants.append(row["variant"])
            self.samples[row["what"], row["variant"]] = row["samples"]
        self.rows = dict(sorted(self.rows.items(), key=lambda row: row[1][1] == "less"))  # speeds, then costs

    def ratios(self, what, pair):
        """Round by round, as the load of the machine changes from one to the next. None where the clock of a round saw nothing."""
        above, below = (self.samples.get((what, variant), []) for variant in pair)
        return [a / b for a, b in zip(above, below)] if all(above) and all(below) else []

    def pairs(self):
        return [tuple(pair) for pair in self.content["ratios"]]


def table(content):
    """Ratios first, then what was measured; medians, with the lowest and highest round in brackets."""
    results = Results(content)
    heads = ["", *[f"{above} / {below}" for above, below in results.pairs()], *results.variants, "unit"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for what, (unit, better) in results.rows.items():
        cells = [what]
        for pair in results.pairs():
            values = results.ratios(what, pair)
            cells.append(with_spread(values, shown_ratio) if values else "")
        for variant in results.variants:
            values = results.samples.get((what, variant))
            cells.append(with_spread(values, lambda value, unit=unit: shown(value, unit)) if values else "")
        cells.append(unit + (", less is better" if better == "less" else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def circumstances(content):
    """When, how often, on what and by which command."""
    machine, load, rounds = content["machine"], content["load"], content["rounds"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"{content['about']}",
        f"{rounds} round{'s' if rounds != 1 else ''} on {content['date'].replace('T', ' ').removesuffix('Z')} UTC; "
        f"load {load[0]} to {load[1]} on {machine['cores']} cores, this run's own included.",
        f"{machine['processor']}, {machine['memory_gib']} GiB of memory, Linux {machine['kernel']}, {machine['disk']}.",
        f"Versions: {versions}.",
        f"`{content['command']}`",
    ]
    return "\n".join("* " + line for line in lines)


# ---- Plots

COLOURS = ("#1f6f8b", "#c8553d", "#5b8c3a", "#7b5ea7")
ROW, RIGHT, TOP, PLOT = 20, 90, 46, 420
CHARACTER = 6.6  # of text, in pixels, with something to spare


def plot(content):
    """A dot for the median of each ratio and a line from its lowest to its highest round, on a scale of powers of two. Dots
    are hollow where less is better."""
    results = Results(content)
    drawn = [(what, number, results.ratios(what, pair)) for what in results.rows
             for number, pair in enumerate(results.pairs()) if [x for x in results.ratios(what, pair) if x > 0]]
    if not drawn:
        return None
    values = [value for _, _, ratios in drawn for value in ratios if value > 0]
    low = min(-1, math.floor(math.log2(min(values))))
    high = max(1, math.ceil(math.log2(max(values))))
    hollow = any(results.rows[what][1] == "less" for what, _, _ in drawn)
    left = math.ceil(max(len(what) for what, _, _ in drawn) * CHARACTER) + 20
    width, height = left + PLOT + RIGHT, TOP + ROW * len(drawn) + 34 + 16 * (len(results.pairs()) + hollow)

    def place(ratio):
        return f"{left + PLOT * (math.log2(ratio) - low) / (high - low):.1f}"

    def dot(x, y, colour, better):
        return f'<circle cx="{x}" cy="{y}" r="5" fill="{colour if better == "more" else "#fff"}" stroke="{colour}" stroke-width="2"/>'

    def text(x, y, words, more=""):
        return f'<text x="{x}" y="{y}"{more}>{xml.sax.saxutils.escape(words)}</text>'

    bottom = TOP + ROW * len(drawn)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" fill="#222">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(left, 18, "Ratios: the median, and from the lowest to the highest round", ' font-weight="bold"')]
    for power in range(low, high + 1, max(1, (high - low) // 8)):
        x, label = place(2.0 ** power), f"{2 ** power}" if power >= 0 else f"1/{2 ** -power}"
        out.append(f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{bottom}" stroke="#ddd"/>')
        out.append(text(x, TOP - 10, label, ' text-anchor="middle" fill="#666"'))
    out.append(f'<line x1="{place(1)}" y1="{TOP - 6}" x2="{place(1)}" y2="{bottom}" stroke="#444"/>')
    before = None
    for number, (what, pair, ratios) in enumerate(drawn):
        y = TOP + ROW * number + ROW // 2
        colour = COLOURS[pair % len(COLOURS)]
        if what != before:
            out.append(text(left - 10, y + 4, what, ' text-anchor="end"'))
            before = what
        positive = [ratio for ratio in ratios if ratio > 0]
        middle = statistics.median(positive)
        out.append(f'<line x1="{place(min(positive))}" y1="{y}" x2="{place(max(positive))}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
        out.append(dot(place(middle), y, colour, results.rows[what][1]))
        out.append(text(left + PLOT + 14, y + 4, shown_ratio(middle)))
    for number, (above, below) in enumerate(results.pairs()):
        y = bottom + 24 + 16 * number
        out.append(dot(left, y - 4, COLOURS[number % len(COLOURS)], "more"))
        out.append(text(left + 12, y, f"{above} / {below}"))
    if hollow:
        y = bottom + 24 + 16 * len(results.pairs())
        out.append(dot(left, y - 4, "#666", "less"))
        out.append(text(left + 12, y, "hollow: less is better"))
    return "\n".join([*out, "</svg>"]) + "\n"


# ---- The page

def questions(template):
    return MARK.findall(template)


def make(template, contents):
    """path in this directory -> text, of the page and its plots. `contents`: question -> what its file says."""
    files = {}

    def section(match):
        question = match.group(1)
        if question not in contents:
            return f"Nobody has measured this yet: `./dev bench {question}` does."
        content, drawing = contents[question], plot(contents[question])
        parts = [table(content)]
        if drawing:
            files[f"plots/{question}.svg"] = drawing
            parts.append(f"![The same ratios, drawn](plots/{question}.svg)")
        return "\n\n".join([*parts, circumstances(content)])

    files["README.md"] = MARK.sub(section, template)
    return files


def read_results(directory):
    contents = {}
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if name.endswith(".json"):
            with open(f"{directory}/{name}") as file:
                contents[name.removesuffix(".json")] = json.load(file)
    return contents


def made_from(directory):
    with open(f"{directory}/template.md") as file:
        return make(file.read(), read_results(f"{directory}/results"))


def differences(directory, files):
    """Of what is there from what `files` says: the paths."""
    there = {"README.md"} | {f"plots/{name}" for name in os.listdir(f"{directory}/plots")} if os.path.isdir(
        f"{directory}/plots") else {"README.md"}
    found = []
    for path in sorted(there | set(files)):
        full, text = f"{directory}/{path}", None
        if os.path.exists(full):
            with open(full) as file:
                text = file.read()
        if text != files.get(path):
            found.append(path)
    return found


def write(directory):
    """The page and its plots; a plot that no result has any more goes."""
    files = made_from(directory)
    os.makedirs(f"{directory}/plots", exist_ok=True)
    for path in differences(directory, files):
        if path not in files:
            os.remove(f"{directory}/{path}")
            continue
        with open(f"{directory}/{path}.new", "w") as file:
            file.write(files[path])
        os.replace(f"{directory}/{path}.new", f"{directory}/{path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        write(HERE)
        return
    wrong = differences(HERE, made_from(HERE))
    if wrong:
        sys.exit(f"bench/page.py: not what the results say: {', '.join(wrong)}. Run bench/page.py")


if __name__ == "__main__":
    main()
