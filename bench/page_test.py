#!/usr/bin/env python3
"""The page is what page.py makes of the results, and the results have the form that common.py describes."""

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
import common
import page
import run
import scale_page


def results(**changes):
    content = {
        "question": "copy", "command": "bench/run-xrootd.py build", "date": "2026-11-25T12:00:00Z", "rounds": 3, "load": [1.0, 2.5],
        "machine": {"cores": 2, "processor": "P", "memory_gib": 8.0, "kernel": "6.1", "disk": "ext4 on /dev/x, 10 GiB",
                    "versions": {"xrootd": "5"}},
        "about": "About.", "ratios": [["ours", "plain"]],
        "results": [{"what": "upload", "variant": "plain", "unit": "MB/s", "better": "more", "samples": [100.0, 200.0, 400.0]},
                    {"what": "upload", "variant": "ours", "unit": "MB/s", "better": "more", "samples": [50.0, 200.0, 100.0]},
                    {"what": "CPU", "variant": "ours", "unit": "s/GB", "better": "less", "samples": [1.0, 1.5, 1.25]}]}
    return {**content, **changes}


class ThePage(unittest.TestCase):
    def test_is_what_the_script_makes_of_the_results(self):
        self.assertEqual(page.differences(page.HERE, page.made_from(page.HERE)), [], "run bench/page.py")

    def test_has_a_section_for_each_question_that_can_be_measured(self):
        with open(f"{page.HERE}/template.md") as file:
            self.assertEqual(page.questions(file.read()), list(run.QUESTIONS))

    def test_every_file_of_results_has_the_common_form(self):
        for question, content in page.read_results(f"{page.HERE}/results").items():
            with self.subTest(question):
                self.assertEqual(set(content), set(results()))
                self.assertEqual(content["question"], question)
                self.assertGreaterEqual(content["rounds"], common.FEWEST_ROUNDS)
                self.assertRegex(content["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
                for row in content["results"]:
                    self.assertEqual(set(row), {"what", "variant", "unit", "better", "samples"})
                    self.assertEqual(len(row["samples"]), content["rounds"], row["what"])
                self.assertTrue(any(page.Results(content).ratios(row["what"], pair)
                                    for row in content["results"] for pair in content["ratios"]), "nothing is compared")


class Tables(unittest.TestCase):
    def test_show_ratios_first_round_by_round(self):
        # 50/100, 200/200, 100/400: the median is that of the ratios, not the ratio of the medians (1/2).
        row = page.table(results()).splitlines()[2]
        self.assertEqual(row, "| upload | 0.50 (0.25 to 1.00) | 200 (100 to 400) | 100 (50 to 200) | MB/s |")

    def test_leave_empty_what_was_not_measured_and_say_where_less_is_better(self):
        self.assertEqual(page.table(results()).splitlines()[3], "| CPU |  |  | 1.25 (1.00 to 1.50) | s/GB, less is better |")

    def test_have_no_ratio_where_a_round_was_too_short_for_the_clock(self):
        content = results()
        content["results"][0]["samples"] = [100.0, 0.0, 400.0]
        self.assertEqual(page.Results(content).ratios("upload", ("ours", "plain")), [])
        self.assertEqual(page.Results(content).ratios("upload", ("plain", "ours")), [])

    def test_have_three_digits_and_ratios_two(self):
        self.assertEqual([page.shown_ratio(x) for x in (0.0213, 0.213, 21.3)], ["0.021", "0.21", "21.30"])
        self.assertEqual([page.shown(x) for x in (0, 0.0123, 1, 12.34, 123.4, 1234567)], ["0", "0.0123", "1.00", "12.3", "123", "1234567"])


class Making(unittest.TestCase):
    def test_the_same_results_make_the_same_bytes(self):
        self.assertEqual(page.make("@copy@\n", {"copy": results()}), page.make("@copy@\n", {"copy": results()}))

    def test_a_question_without_results_says_so(self):
        self.assertIn("./dev bench copy", page.make("@copy@\n", {})["README.md"])

    def test_plots_are_xml_with_a_dot_for_each_ratio_and_one_for_the_legend(self):
        drawn = xml.etree.ElementTree.fromstring(page.plot(results(about="<&>")))
        self.assertEqual(len(drawn.findall("{http://www.w3.org/2000/svg}circle")), 2)
        self.assertIsNone(page.plot(results(ratios=[])))

    def test_a_change_by_hand_is_found_and_undone_and_old_plots_go(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(f"{directory}/results")
            for name, text in (("template.md", "# T\n\n@copy@\n"), ("results/copy.json", json.dumps(results()))):
                with open(f"{directory}/{name}", "w") as file:
                    file.write(text)
            page.write(directory)
            self.assertEqual(page.differences(directory, page.made_from(directory)), [])
            with open(f"{directory}/README.md", "a") as file:
                file.write("We are twice as fast.\n")
            with open(f"{directory}/plots/old.svg", "w") as file:
                file.write("<svg/>")
            self.assertEqual(page.differences(directory, page.made_from(directory)), ["README.md", "plots/old.svg"])
            page.write(directory)
            self.assertEqual(page.differences(directory, page.made_from(directory)), [])


class ThePageOfScale(unittest.TestCase):
    def test_has_the_tables_that_the_results_make(self):
        self.assertFalse(scale_page.differs(), "run bench/scale_page.py")

    def test_tables_take_the_place_of_those_below_their_marks_alone(self):
        text = "before\n<!-- measured: a -->\n| old |\n| old |\n\n| stays |\n"
        self.assertEqual(scale_page.with_tables(text, {"a": "| new |"}), "before\n<!-- measured: a -->\n| new |\n\n| stays |\n")


class Reports(unittest.TestCase):
    def report(self):
        return common.Report("copy", "/", "About.", [("ours", "plain")])

    def rounds(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()):
            return list(self.report().rounds(*arguments))

    def test_make_three_rounds_whatever_the_time_and_no_more_than_asked_for(self):
        self.assertEqual(self.rounds(20, 1e-9), [0, 1, 2])
        self.assertEqual(self.rounds(20, 0), [0, 1, 2])  # what is left when others took longer
        self.assertEqual(self.rounds(5, 60), [0, 1, 2, 3, 4])
        self.assertEqual(self.rounds(5), [0, 1, 2, 3, 4])

    def test_are_read_again_as_they_were_written(self):
        report = self.report()
        with contextlib.redirect_stderr(io.StringIO()):
            for _ in report.rounds(3):
                report.add("upload", "ours", "MB/s", 123.456)
        with tempfile.TemporaryDirectory() as directory:
            report.write(f"{directory}/copy.json")
            self.assertEqual(os.listdir(directory), ["copy.json"])
            content = page.read_results(directory)["copy"]
        self.assertEqual(set(content), set(results()))
        self.assertEqual(content["results"][0]["samples"], [123.46] * 3)
        self.assertEqual(content["machine"]["cores"], os.cpu_count())


class Running(unittest.TestCase):
    def answer(self, code, limit=None):
        """What a script of this text leaves where there was a result before."""
        with tempfile.TemporaryDirectory() as directory:
            with open(f"{directory}/copy.json", "w") as file:
                file.write("old")
            with open(f"{directory}/script.py", "w") as file:
                file.write(code)
            wrong = run.answer("copy", [os.path.relpath(f"{directory}/script.py", run.HERE)], 1, directory, limit)
            with open(f"{directory}/copy.json") as file:
                return wrong, file.read()

    def test_a_failed_script_leaves_the_old_result(self):
        self.assertEqual(self.answer("raise SystemExit(3)")[1], "old")
        self.assertIn("ended with 3", self.answer("raise SystemExit(3)")[0])

    def test_a_script_that_writes_no_results_leaves_the_old_one(self):
        for code in ("", "import sys; open(sys.argv[-1], 'w').write('{')", "import sys; open(sys.argv[-1], 'w').write('{}')"):
            wrong, kept = self.answer(code)
            self.assertIn("no results that can be read", wrong)
            self.assertEqual(kept, "old")

    def test_a_script_that_hangs_is_ended_and_may_clean_up(self):
        with tempfile.TemporaryDirectory() as directory:
            code = f"""
import time
try:
    open("{directory}/begun", "w").close()
    time.sleep(1000)
finally:
    open("{directory}/cleaned", "w").close()
"""
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background
            try:
                wrong, kept = self.answer(code, 3)
            finally:
                signal.signal(signal.SIGINT, before)
            self.assertIn("took more than", wrong)
            self.assertEqual(kept, "old")
            # On a machine that is too busy to begin it in time there is nothing to clean up.
            self.assertEqual(os.path.exists(f"{directory}/cleaned"), os.path.exists(f"{directory}/begun"))

    def test_a_script_that_succeeds_replaces_it(self):
        text = json.dumps(results())
        self.assertEqual(self.answer(f"import sys; open(sys.argv[-1], 'w').write({text!r})"), (None, text))

    def test_every_question_asks_for_options_that_its_script_has(self):
        for question, (_, command) in run.QUESTIONS.items():
            for minutes in (0.1, 1, 5, 60):
                words = command("build", "python", minutes)
                with open(f"{run.HERE}/{words[0]}") as file, open(common.__file__) as shared:
                    has = set(re.findall(r'"(--[a-z-]+)"', file.read() + shared.read()))
                asked = {word for word in words if word.startswith("--")}
                self.assertLessEqual(asked | {"--rounds", "--minutes", "--json"}, has, question)


if __name__ == "__main__":
    unittest.main()
