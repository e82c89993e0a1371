"""What 43-metrics.sh asks about metrics.

    metrics.py panels PROJECT URL        whether a Prometheus finds something for every panel and rule
    metrics.py reference PROJECT PAGE... whether docs/reference/metrics.md lists what pages have, and no more
    metrics.py clients CLIENTS TOP MOUNT whether what `pinstripe` says of clients names a gateway and a mount
"""
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

PATIENCE = 120  # seconds, until everything was seen


def ask(url, query):
    """What Prometheus answers to a query: its results, or a sentence."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        try:
            return json.load(error).get("error", str(error))
        except json.JSONDecodeError:  # while it starts it says so in plain words
            return str(error)


def expressions(project):
    """All that is to be evaluated: (where, expression, whether it has to find something)."""
    for file in sorted((project / "etc/grafana").glob("*.json")):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$instance", ".*")
                yield f"{board['title']}, {panel['title']}", expression, True
    rules = yaml.safe_load((project / "etc/prometheus/pinstripe-rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"], "record" in rule


def panels(project, url):
    waiting = list(expressions(pathlib.Path(project)))
    count = len(waiting)
    end = time.monotonic() + PATIENCE
    while True:
        left = []
        for where, expression, must_find in waiting:
            try:
                found = ask(url, expression)
            except OSError as error:  # it starts
                found = f"{error}"
            if isinstance(found, str) or (must_find and not found):
                left.append((where, expression, must_find, found))
        waiting = [each[:3] for each in left]
        if not left or time.monotonic() > end:
            break
        time.sleep(0.5)
    for where, expression, _, found in left:
        print(f"  {where}: {found or 'nothing'}: {expression}")
    print(f"  {count} expressions, {len(left)} of them without an answer")
    return count > 50 and not left


def documented(page):
    """Names and kinds in the tables that have a column of kinds."""
    names = {}
    in_table = False
    for line in page.read_text().splitlines():
        if line.startswith("| name |"):
            in_table = line.startswith("| name | kind |")
        row = re.match(r"\| `(\w+)` \| (counter|gauge|histogram)", line)
        if not row or not in_table:
            continue
        name, kind = row.groups()
        prefix = "" if name.startswith(("pinstripe_", "process_")) else "pinstripe_mount_"
        names[prefix + name] = kind
    return names


def reference(project, *pages):
    listed = documented(pathlib.Path(project) / "docs/reference/metrics.md")
    served = {}
    for page in pages:
        text = pathlib.Path(page).read_text()
        served.update(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.M))
    wrong = {name for name in listed.keys() & served.keys() if listed[name] != served[name]}
    print("  not in the reference:", *sorted(served.keys() - listed.keys()))
    print("  served by nobody:", *sorted(listed.keys() - served.keys()))
    print("  of another kind:", *sorted(wrong))
    return len(listed) > 60 and listed == served


def clients(first, second, mount):
    known = {one["program"]: one for one in json.loads(pathlib.Path(first).read_text())["clients"]}
    pictures = [json.loads(line) for line in pathlib.Path(second).read_text().splitlines()]
    fuse, gateway = known["pinstripe-fuse"], known["xrootd-pinstripe"]
    in_use = [one for one in json.loads(pathlib.Path(first).read_text())["clients"] if one["detail"] == mount]
    print("  ", fuse, gateway, sep="\n  ")
    return (len(in_use) == 1 and in_use[0]["drives"] == [1, 2, 3, 4] and gateway["connections"] == 4 and
            gateway["requests"] > 0 and gateway["identities"] == [1] and len(pictures) == 2 and
            all(len(one["drives"]) == 4 and one["clients"] for one in pictures) and
            sum(drive["requests_per_second"] for drive in pictures[1]["drives"]) > 0)


if __name__ == "__main__":
    sys.exit(0 if {"panels": panels, "reference": reference, "clients": clients}[sys.argv[1]](*sys.argv[2:]) else 1)
