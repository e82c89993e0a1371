#!/usr/bin/python3
"""The console in a real browser, over a real cluster: ./dev console-test [PICTURES].

What the page says is compared with the cluster and with the command; each view is looked at as a screen
reader, a keyboard and somebody with weak eyes would. With a directory as its argument it leaves pictures there; Console.NAME is one of the tests alone.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.realpath(os.environ.get("PINSTRIPE_BUILD", os.path.join(ROOT, "build/release")))
PINSTRIPE = os.path.join(BUILD, "tools/pinstripe")
TOKEN = "0123456789abcdef0123456789abcdef"
HOSTILE = "<img src=x onerror=alert(1)>.txt"
PICTURES = None
VIEWS = ["overview", "drives", "drives/3", "files", "files/data", "files/data/big.root", "work", "events"]

# What of a view is wrong for whoever cannot see it, or sees badly. Contrast as WCAG 2 computes it.
LOOK = """
const wrong = [];
const visible = (node) => node.getClientRects().length > 0 && getComputedStyle(node).visibility === "visible";
const nameOf = (node) => {
  const labels = [...(node.labels ?? [])].map((label) => label.textContent).join(" ");
  const title = node.querySelector(":scope > title")?.textContent ?? "";
  return (node.getAttribute("aria-label") ?? "") + labels + title + (node.matches("input, select") ? "" : node.textContent);
};
for (const node of document.querySelectorAll(
    "button, a[href], input, select, meter, progress, [role=img], [role=region], nav, section")) {
  if (visible(node) && nameOf(node).trim() === "") wrong.push(`no name: ${node.outerHTML.slice(0, 100)}`);
}
for (const one of ["main", "nav[aria-label=Views]", "header", "h1"]) {
  if (document.querySelectorAll(one).length !== 1) wrong.push(`${one} is there ${document.querySelectorAll(one).length} times`);
}
if (document.documentElement.lang === "") wrong.push("no language");
if (document.querySelector("[aria-live]") === null) wrong.push("nothing is said aloud");
if (document.querySelectorAll("nav [aria-current=page]").length < 1) wrong.push("no link is the current one");
for (const node of document.querySelectorAll("[tabindex]")) {
  if (node.tabIndex > 0) wrong.push("an order of its own for the keyboard");
}
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) wrong.push(`two are ${id}`);
for (const table of document.querySelectorAll("table")) {
  if (table.caption === null) wrong.push("a table without a caption");
}
const levels = [...document.querySelectorAll("h1, h2, h3")].map((node) => Number(node.tagName[1]));
levels.forEach((level, i) => { if (level > (levels[i - 1] ?? 0) + 1) wrong.push(`heading ${level} after ${levels[i - 1]}`); });
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const over = (top, below) => {
  const a = top[3] ?? 1;
  return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
};
const behind = (node) => {
  const layers = [];
  for (let one = node; one !== null; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
for (const node of document.body.querySelectorAll("*")) {
  const hasText = [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim() !== "");
  if (!hasText || !visible(node) || node.closest(".visually-hidden, .skip, noscript, svg, [disabled]")) continue;
  const ground = behind(node);
  const [a, b] = [light(over(parse(getComputedStyle(node).color), ground)), light(ground)].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) wrong.push(`contrast ${contrast.toFixed(1)}: ${node.outerHTML.slice(0, 100)}`);
}
if (document.documentElement.scrollWidth > innerWidth) wrong.push(`wider than the window: ${document.documentElement.scrollWidth}`);
return wrong;
"""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def start_browser(work):
    options = Options()
    for argument in ["--headless=new", "--no-sandbox", "--no-proxy-server", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--window-size=1280,900", "--user-data-dir=" + os.path.join(work, "browser")]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def ready(process):
    line = process.stdout.readline()
    if not line.startswith("ready "):
        raise AssertionError("it does not start: " + line)
    return line.split()[1]


class Console(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="pinstripe-console.")
        os.chmod(cls.work, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.cluster = os.path.join(cls.work, "cluster")
        cls.config = os.path.join(cls.cluster, "cluster.toml")
        cls.addClassCleanup(subprocess.run, [PINSTRIPE, "dev", "down", "--delete", cls.cluster], capture_output=True)
        up = run(PINSTRIPE, "dev", "up", cls.cluster, "--drives", "8", "--layout", "4+2")
        gateway = next(line.split()[1] for line in up.splitlines() if line.strip().startswith("gateway"))
        big = os.path.join(cls.work, "big")
        with open(big, "wb") as out:
            out.write(os.urandom(20 << 20))
        for name in ["big.root", HOSTILE]:
            run("xrdcp", "--nopbar", big if name == "big.root" else "/etc/hostname", gateway + "/data/" + name)
        tokens = os.path.join(cls.work, "tokens")
        with open(os.open(tokens, os.O_WRONLY | os.O_CREAT, 0o600), "w") as out:
            out.write(f"anna {TOKEN}\n")
        cls.console = subprocess.Popen(
            [os.path.join(BUILD, "console/pinstripe-console"), cls.config, "--listen", "127.0.0.1:0", "--page",
             os.path.join(ROOT, "console/page"), "--program", PINSTRIPE, "--token-file", tokens, "--log-level", "error"],
            stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.end_console)
        cls.url = ready(cls.console)
        cls.browser = start_browser(cls.work)
        cls.addClassCleanup(cls.browser.quit)

    @classmethod
    def end_console(cls):
        cls.console.terminate()
        code = cls.console.wait(30)
        cls.console.stdout.close()
        assert code == 0, f"the console ends with {code}"

    def setUp(self):
        # Every test finds all drives up.
        run(PINSTRIPE, "dev", "up", self.cluster)
        self.size(1280, 900)
        self.scheme("light")
        self.go("overview")
        self.until(lambda: self.text("#health .word") == "healthy", 60)
        self.browser.get_log("browser")

    # --- Helpers ---

    def go(self, view, url=None):
        self.browser.get("about:blank")
        self.browser.get((url or self.url) + "#" + view)
        self.until(lambda: self.find("#view > *"), 20)

    def find(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        try:
            found = self.find(selector)
            return found[0].text if found else ""
        except StaleElementReferenceException:  # it was drawn anew
            return ""

    def until(self, condition, seconds):
        return WebDriverWait(self.browser, seconds, 0.1).until(lambda _: condition())

    def size(self, width, height):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def scheme(self, name):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                     {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def click(self, selector):
        self.browser.execute_script("document.querySelector(arguments[0]).click()", selector)

    def picture(self, name):
        if PICTURES is not None:
            self.browser.save_screenshot(os.path.join(PICTURES, name + ".png"))

    def complaints(self):
        # What the browser itself has to say, such as of a script that it did not let run.
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]

    # --- Tests ---

    def test_says_within_five_seconds_that_a_drive_is_killed(self):
        self.go("drives")
        self.until(lambda: len(self.find("button.drive.good")) == 8, 10)
        run(PINSTRIPE, "dev", "kill", self.cluster, "3")
        began = time.monotonic()
        self.until(lambda: "down" in self.browser.execute_script(
            "return document.querySelector('[data-key=drive-3]').getAttribute('aria-label')"), 10)
        self.assertLess(time.monotonic() - began, 5)
        self.assertIn("drive 3", self.browser.execute_script(
            "return document.getElementById('announcement').textContent"))
        self.go("overview")
        self.until(lambda: self.text("#health .word") == "degraded", 5)
        status = subprocess.run([PINSTRIPE, "status", self.config, "--json"], capture_output=True, text=True)
        self.assertEqual(json.loads(status.stdout)["health"]["state"], "degraded")
        self.assertIn("rebuild", self.text("ul.alarms"))
        run(PINSTRIPE, "dev", "start", self.cluster, "3")
        self.until(lambda: self.text("#health .word") == "healthy", 30)
        self.assertEqual(self.complaints(), [])

    def test_tells_what_drives_do_and_who_does_not_tell(self):
        panel = "section[aria-label='Throughput and latency']"
        self.go("overview")
        self.until(lambda: "Of drives, in" in self.text(panel) and "not tell" not in self.text(panel), 40)
        self.assertIn("read", self.text(panel))
        self.go("drives/3")
        self.until(lambda: "/s" in self.text("#drive-details"), 10)
        run(PINSTRIPE, "dev", "kill", self.cluster, "3")
        self.until(lambda: "not known" in self.text("#drive-details"), 15)
        self.assertNotIn("/s", self.text("#drive-details"))
        self.go("overview")
        self.until(lambda: "1 drive does not tell: 3" in self.text(panel), 10)
        run(PINSTRIPE, "dev", "start", self.cluster, "3")
        self.until(lambda: "not tell" not in self.text(panel) and "Of drives" in self.text(panel), 40)
        self.assertEqual(self.complaints(), [])

    def test_the_picture_of_a_file_agrees_with_the_command(self):
        for lost in [None, "5"]:
            if lost:
                run(PINSTRIPE, "dev", "kill", self.cluster, lost)
            self.go("files/data/big.root")
            self.until(lambda: self.find("#stripes"), 20)
            if lost:
                self.until(lambda: self.text("#verdict .word") == "short", 10)
            said = subprocess.run([PINSTRIPE, "why", self.config, "/data/big.root", "--json"], capture_output=True, text=True)
            why = json.loads(said.stdout)
            self.assertEqual(self.text("#verdict .word"), why["state"])
            self.assertIn(f"any {why['margin']} drive", self.text("#verdict .why"))
            blocks = next(part for part in why["parts"] if part["what"] == "blocks")
            drawn = self.browser.execute_script("""
              const rows = [...document.querySelectorAll("#stripes tbody tr")];
              const drives = [...document.querySelectorAll("#stripes thead tr:last-child th")].map((th) => th.textContent);
              const count = {};
              for (const row of rows) [...row.children].forEach((cell, i) => {
                if (cell.querySelector(".shard")) count[drives[i]] = (count[drives[i]] ?? 0) + 1;
              });
              return {rows: rows.length, count, away: document.querySelectorAll("#stripes .away").length};""")
            self.assertEqual(drawn["rows"], blocks["count"])
            self.assertEqual(drawn["count"], blocks["shards_by_drive"])
            self.assertEqual(drawn["away"], blocks["shards_by_drive"].get("5", 0) if lost else 0)
            if lost:
                self.picture("console-file")
        self.assertEqual(self.complaints(), [])

    def test_names_are_text_and_nothing_else(self):
        self.go("files/data")
        self.until(lambda: HOSTILE in self.text("#view"), 10)
        self.assertEqual(self.find("#view img"), [])
        link = next(one for one in self.find("#view td a") if one.text == HOSTILE)
        link.click()
        self.until(lambda: self.text("#verdict .word") == "whole", 10)
        self.assertIn(HOSTILE, self.text("nav[aria-label=Path]"))
        self.assertEqual(self.find("#view img"), [])
        self.go("files/data/none")
        self.until(lambda: self.find("[role=alert]"), 10)
        self.assertNotEqual(self.text("[role=alert]"), "")

    def test_an_operator_starts_work_and_sees_it_end(self):
        self.go("work")
        self.until(lambda: self.find("#token"), 10)
        self.find("#token")[0].send_keys("not an operator's token\n")
        self.until(lambda: "no operator" in self.text(".said"), 10)
        self.find("#token")[0].clear()
        self.find("#token")[0].send_keys(TOKEN + "\n")
        self.until(lambda: self.find("#kind"), 10)
        Select(self.find("#kind")[0]).select_by_value("repair")
        self.click("[data-key=start]")
        self.until(lambda: "repair, by anna" in self.text("#view"), 10)
        self.until(lambda: "done: all is in order" in self.text("#view"), 60)
        self.assertEqual(self.text(".said"), "")

    def test_each_view_is_for_everybody(self):
        for scheme in ["light", "dark"]:
            self.scheme(scheme)
            for width in [1280, 360]:
                self.size(width, 800)
                for view in VIEWS:
                    with self.subTest(view=view, scheme=scheme, width=width):
                        self.go(view)
                        if view.startswith("files/data/"):
                            self.until(lambda: self.find("#stripes"), 10)
                        self.assertEqual(self.browser.execute_script(LOOK), [])
        self.assertEqual(self.complaints(), [])

    # What the test above looks for is found.
    def test_finds_what_keeps_people_out(self):
        for change, word in [
                ("document.querySelector('nav').removeAttribute('aria-label')", "nav[aria-label=Views]"),
                ("document.body.append(document.createElement('button'))", "no name"),
                ("document.querySelector('h1').style.color = 'rgb(200, 200, 200)'", "contrast"),
                ("document.querySelector('h1').style.width = '3000px'", "wider"),
                ("document.querySelector('h1').tabIndex = 3", "keyboard"),
                ("document.querySelector('h1').id = 'main'", "two are main"),
                ("document.querySelector('main').append(document.createElement('table'))", "caption")]:
            self.go("overview")
            self.browser.execute_script(change)
            self.assertIn(word, " ".join(self.browser.execute_script(LOOK)))

    def test_the_keyboard_is_enough(self):
        self.go("drives")
        self.until(lambda: self.find("button.drive"), 10)
        reached = []
        for _ in range(20):
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
            reached.append(self.browser.execute_script("""
              const node = document.activeElement;
              const style = getComputedStyle(node);
              return [node.textContent.trim() || node.id, style.outlineStyle, parseFloat(style.outlineWidth)];"""))
        names = [name for name, _, _ in reached]
        self.assertEqual(names[:6], ["Skip to the contents", "Overview", "Drives", "Files", "Work", "Events"])
        self.assertIn("3", names)
        for name, style, width in reached[:14]:
            self.assertNotEqual(style, "none", name)
            self.assertGreaterEqual(width, 2, name)

    def test_is_drawn_within_a_second_with_two_hundred_drives(self):
        fake = subprocess.Popen([os.path.join(BUILD, "tests/console/fake_console"), "200"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        try:
            url = ready(fake)
            took = []
            for _ in range(3):
                self.browser.get("about:blank")
                self.browser.get(url + "#drives")
                took.append(self.browser.execute_async_script("""
                  const done = arguments[0];
                  const look = () => document.querySelectorAll("button.drive").length === 200
                    ? done(performance.now()) : requestAnimationFrame(look);
                  look();"""))
            self.assertLess(min(took), 1000, took)
            self.assertEqual(self.browser.execute_script(LOOK), [])
            self.picture("console-drives")
            self.go("overview", url)
            self.until(lambda: self.text("#health .word") != "", 10)
            self.picture("console-overview")
            self.go("drives", url)
            self.scheme("dark")
            self.assertEqual(self.browser.execute_script(LOOK), [])
            self.size(360, 740)
            self.go("overview", url)
            self.until(lambda: self.text("#health .word") != "", 10)
            self.go("files", url)
            self.until(lambda: len(self.find("#view tbody tr")) == 200, 10)
            self.click("[data-key=more]")
            self.until(lambda: len(self.find("#view tbody tr")) == 400, 10)
        finally:
            fake.stdin.close()
            fake.wait(20)
            fake.stdout.close()


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith(("-", "Console.")):
        PICTURES = os.path.realpath(sys.argv.pop(1))
        os.makedirs(PICTURES, exist_ok=True)
    unittest.main(verbosity=2)
