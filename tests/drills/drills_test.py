"""Whether docs/drills.md and the drills have the same parts, and whether drills.py finds a page that tells otherwise."""
import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import drills

HERE = pathlib.Path(__file__).parent
CHAPTER = HERE.parent.parent / "docs/drills.md"

PAGE = """# Drills

<!-- seen: host -->

| who | says | after |
|---|---|---|
| status | degraded: all 3 drives of store2 are down | 5 s |
| events | warning drives 4, 5 cannot be reached, as xrootd on gate1 (process 7) saw | 19 s |

Words in between.

<!-- typed: host-see -->

    admin# pinstripe status c.toml
    health    degraded
    store2# systemctl start pinstriped

The end.
"""
TABLE = """| who | says | after |
|---|---|---|
| status | degraded: all 3 drives of store2 are down | 7 s |
| events | warning drive 6 cannot be reached, as pinstripe-fuse on work1 (process 88) saw | 11 s |
"""


def quietly(function, *arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = function(*arguments)
    return result, said.getvalue()


class Drills(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.page = pathlib.Path(directory.name) / "page"
        self.page.write_text(PAGE)
        self.output = pathlib.Path(directory.name) / "output"
        self.output.mkdir()

    def differs(self, name, text):
        (self.output / name).write_text(text)
        return quietly(drills.compare, self.page, self.output)[0]

    def test_numbers_and_who_saw_it_first_may_differ(self):
        self.assertFalse(self.differs("seen.host", TABLE))

    def test_words_may_not(self):
        self.assertTrue(self.differs("seen.host", TABLE.replace("degraded", "damaged")))

    def test_nor_rows(self):
        self.assertTrue(self.differs("seen.host", "\n".join(TABLE.splitlines()[:-1])))

    def test_nor_may_a_block_be_lacking(self):
        self.assertTrue(self.differs("typed.host-other", "    admin# true\n"))

    def test_commands_are_those_with_a_host_before_them(self):
        said = quietly(drills.commands, self.page, "host-see")[1]
        self.assertEqual(said, "admin# pinstripe status c.toml\nstore2# systemctl start pinstriped\n")

    def test_only_what_was_seen_is_replaced(self):
        (self.output / "seen.host").write_text(TABLE)
        drills.write(self.page, self.output)
        head, rest = PAGE.split("| who")
        self.assertEqual(self.page.read_text(), head + TABLE + rest[rest.index("\nWords"):])

    def test_alerts_wait_shorter(self):
        self.page.write_text("  for: 10m\n  expr: rate(x[10m])\n  for: 1h\n  for: 2s\n")
        self.assertEqual(quietly(drills.rules, self.page, "20")[1],
                         "  for: 30s\n  expr: rate(x[10m])\n  for: 180s\n  for: 1s\n\n")

    def test_the_chapter_has_what_the_drills_type_and_see(self):
        typed, seen = set(), set()
        for name, body in re.findall(r"^drill_(\w+)\(\) \{\n(.*?)^\}", (HERE / "inside.sh").read_text(), re.M | re.S):
            seen.add(name)
            typed |= {f"{name}-{step}" for step in re.findall(r"\btype_in (\w+)", body)}
        self.assertGreater(len(seen), 7)
        blocks = drills.BLOCK.findall(CHAPTER.read_text())
        self.assertEqual({name for kind, name, _ in blocks if kind == "typed"}, typed)
        self.assertEqual({name for kind, name, _ in blocks if kind == "seen"}, seen)
        for kind, name, body in blocks:
            self.assertRegex(body, r"(?m)^    \w+# " if kind == "typed" else r"^\| who \| says \| after \|", name)


if __name__ == "__main__":
    unittest.main()
