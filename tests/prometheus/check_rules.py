"""Whether etc/prometheus is right: promtool says so, every alert has a test, a severity, a sentence, and a
section of the documents that exists.

    check_rules.py PROJECT
"""
import pathlib
import re
import subprocess
import sys

import yaml

SEVERITIES = {"critical", "warning", "info"}


def anchors(page):
    """What a link into a page of Markdown may name."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def complaints_of(alert, root, tested):
    """What is wrong with one alert, as sentences."""
    name = alert["alert"]
    if alert.get("labels", {}).get("severity") not in SEVERITIES:
        yield f"{name} has no severity of {sorted(SEVERITIES)}"
    summary = alert.get("annotations", {}).get("summary", "")
    if not re.fullmatch(r"\S.*[.]", summary):
        yield f"{name} has no sentence"
    path, _, anchor = alert.get("annotations", {}).get("section", "").partition("#")
    page = root / path
    if not path or not page.is_file() or anchor not in anchors(page):
        yield f"{name} names no section of the documents: {path}#{anchor}"
    if name not in tested:
        yield f"tests/prometheus/alerts_test.yml never has {name} fire"


def main():
    root = pathlib.Path(sys.argv[1])
    etc = root / "etc/prometheus"
    for arguments in (["check", "config", etc / "prometheus.yml"],
                      ["check", "rules", etc / "pinstripe-rules.yml"],
                      ["test", "rules", root / "tests/prometheus/alerts_test.yml"]):
        subprocess.run(["promtool", *arguments], check=True)
    rules = yaml.safe_load((etc / "pinstripe-rules.yml").read_text())
    cases = yaml.safe_load((root / "tests/prometheus/alerts_test.yml").read_text())
    tested = {one["alertname"] for case in cases["tests"] for one in case["alert_rule_test"] if one["exp_alerts"]}
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    complaints = [each for alert in alerts for each in complaints_of(alert, root, tested)]
    print(f"{len(alerts)} alerts", *complaints, sep="\n")
    return 1 if complaints or not alerts else 0


if __name__ == "__main__":
    sys.exit(main())
