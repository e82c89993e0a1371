#!/usr/bin/python3
"""What drills.sh asks, and what it does with the chapter.

    drills.py rules FILE FACTOR         the alert rules, which wait FACTOR times shorter (standard output)
    drills.py alerts URL RULES FACTOR   what a Prometheus says of alerts, a line for each
    drills.py woken URL RULES FACTOR    which critical alerts would have fired with the rules as they are
    drills.py console URL SINCE         what a console says of health and alarms, a line for each; nothing, when it has
                                        not looked since then (seconds since 1970)
    drills.py commands CHAPTER STEP     what the chapter tells to type: lines "host# command"
    drills.py compare CHAPTER OUTPUT    whether the chapter tells what the drills have seen
    drills.py write CHAPTER OUTPUT      has it tell that

The chapter has blocks that begin with a comment: `<!-- typed: STEP -->` before commands with what they print, and
`<!-- seen: DRILL -->` before the table of who says what. OUTPUT has a file for each of them, typed.STEP and seen.DRILL.
"""
import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request

import yaml

BLOCK = re.compile(r"<!-- (typed|seen): (\S+) -->\n\n(.*?)(?=\n\n|\Z)", re.S)
PROMPT = re.compile(r"^    (\w+#) (.*)$")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text):
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def rules(file, factor):
    text = pathlib.Path(file).read_text()
    print(re.sub(r"(\bfor: )(\w+)", lambda found: f"{found[1]}{max(1, round(seconds(found[2]) / int(factor)))}s", text))


def ask(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def waits_of(file):
    return {rule["alert"]: seconds(str(rule.get("for", "0s")))
            for group in yaml.safe_load(pathlib.Path(file).read_text())["groups"]
            for rule in group["rules"] if "alert" in rule}


def woken(url, file, factor):
    waits = waits_of(file)
    query = urllib.parse.quote('count_over_time(ALERTS{alertstate="firing",severity="critical"}[1h])')
    for one in ask(f"{url}/api/v1/query?query={query}")["data"]["result"]:
        name = one["metric"]["alertname"]
        # It is evaluated once a second.
        if int(one["value"][1]) > waits[name] - waits[name] / int(factor):
            print(name)


def alerts(url, file, factor):
    waits = waits_of(file)
    for alert in ask(url + "/api/v1/alerts")["data"]["alerts"]:
        if alert["state"] != "firing":
            continue
        wait = waits[alert["labels"]["alertname"]]
        print(f"{wait - round(wait / int(factor))}\t{alert['labels']['severity']} {alert['labels']['alertname']}: "
              f"{alert['annotations']['summary']}")


def console(url, since):
    status = ask(url + "/api/v1/status")
    if status["taken_at"] / 1000 < float(since):
        return
    print(status.get("survey", {}).get("health", {}).get("text", status.get("error")))
    for alarm in status["alarms"]:
        print(f"{alarm['severity']}: {alarm['what']} {alarm['way_out']}")


def commands(chapter, step):
    for kind, name, body in BLOCK.findall(pathlib.Path(chapter).read_text()):
        if (kind, name) == ("typed", step):
            found = [PROMPT.match(line) for line in body.splitlines()]
            print(*[f"{each[1]} {each[2]}" for each in found if each], sep="\n")


def words(table):
    """The rows of a table, without what differs from run to run: numbers, and who was first to see something."""
    rows = [" ".join(row.split("|")[1:3]) for row in table.splitlines()[2:]]
    for pattern, word in ((r"(xrootd|pinstripe-fuse) on \w+", "PROGRAM"), (r"drives? \d+(, \d+)*", "drives N"),
                          (r"\d+(\.\d+)*", "N")):
        rows = [re.sub(pattern, word, row) for row in rows]
    return [row[:80] for row in rows]


def compare(chapter, output):
    blocks = {f"{kind}.{name}": body for kind, name, body in BLOCK.findall(pathlib.Path(chapter).read_text())}
    differ = False
    for file in sorted(pathlib.Path(output).iterdir()):
        if file.name not in blocks:
            print(f"{chapter} has no block for {file.name}")
            differ = True
        elif file.name.startswith("seen.") and words(file.read_text()) != words(blocks[file.name]):
            print(f"{chapter} tells otherwise than what was seen ({file.name}):\n{file.read_text()}")
            differ = True
    return differ


def write(chapter, output):
    page = pathlib.Path(chapter)

    def replaced(found):
        file = pathlib.Path(output) / f"{found[1]}.{found[2]}"
        body = file.read_text().rstrip("\n") if file.exists() else found[3]
        return f"<!-- {found[1]}: {found[2]} -->\n\n{body}"

    page.write_text(BLOCK.sub(replaced, page.read_text()))


if __name__ == "__main__":
    sys.exit(1 if {"rules": rules, "alerts": alerts, "woken": woken, "console": console,
                   "commands": commands, "compare": compare, "write": write}[sys.argv[1]](*sys.argv[2:]) else 0)
