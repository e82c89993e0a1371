#!/usr/bin/env python3
"""What the shells complete for `pinstripe` is what its commands' --help tells: no more and no less.

    tests/tools/completion_test.py build/release/tools

bash and fish are asked as a person asks them. zsh's function is run with others in the places of _arguments and
_describe, which say what they were given.
"""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

TOOLS = Path(sys.argv.pop(1)).resolve()


def output_of(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def read_help(path):
    """The options and the commands below, as the help of that command lists them."""
    options, commands, part = set(), [], ""
    for line in output_of(TOOLS / "pinstripe", *path, "--help").splitlines():
        if re.fullmatch(r"\w+:", line):
            part = line
        elif line and not line.startswith("  "):
            part = ""
        elif match := re.match(r"  (\S+)", line):
            if part == "Options:":
                options |= {re.sub(r"\{.*", "", name) for name in match[1].split(",")}
            elif part == "Subcommands:":
                commands.append(match[1])
    return options, commands


def all_commands(path=()):
    options, commands = read_help(path)
    if path:
        options |= {"-v", "--verbose", "--progress"}  # those of `pinstripe` itself may stand behind a command
    found = {path: (options, set(commands))}
    for one in commands:
        found |= all_commands((*path, one))
    return found


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = all_commands()

    def test_help_was_understood(self):
        self.assertIn(("dev", "up"), self.commands)
        self.assertLessEqual({"--gateway", "--no-gateway", "-h", "--help"}, self.commands["dev", "up"][0])
        self.assertIn("status", self.commands[()][1])

    def compare(self, offered):
        """OFFERED(path, beginning) is what a shell completes the beginning of a word after that command to."""
        for path, (options, commands) in self.commands.items():
            with self.subTest(command=" ".join(path)):
                self.assertEqual(offered(path, "-"), options)
                if commands:
                    self.assertEqual(offered(path, ""), commands)

    def test_bash(self):
        def offered(path, beginning):
            script = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pinstripe
                        printf '%s\\n' "${COMPREPLY[@]}" """
            words = output_of("bash", "-c", script, "bash", TOOLS / "completion.bash", "pinstripe", *path, beginning)
            return set(words.split())

        self.compare(offered)
        self.assertEqual(offered(("-v",), "stat"), {"status"})  # flags may come before the command
        self.assertEqual(offered(("dev", "up", "--mount"), "-"), set())  # a value: files
        self.assertEqual(offered(("status",), ""), set())

    def test_fish(self):
        self.assertIsNotNone(shutil.which("fish"), "fish is not installed: ./dev setup does it")

        def offered(path, beginning):
            line = " ".join(("pinstripe", *path, beginning))
            script = 'source $argv[1]; complete -C "$argv[2]"'
            lines = output_of("fish", "--no-config", "-c", script, TOOLS / "completion.fish", line).splitlines()
            return {line.split("\t")[0] for line in lines}

        self.compare(lambda path, beginning: offered(path, beginning) | (offered(path, "--") if beginning else set()))

    def test_zsh(self):
        self.assertIsNotNone(shutil.which("zsh"), "zsh is not installed: ./dev setup does it")

        def offered(path, beginning):
            script = """_arguments() { (( wanted == 0 )) && print -l -- "$@"; state=$go; line=($next) }
                        _describe() { print -l -- "${commands[@]}" }
                        compdef() {}
                        source "$1"; shift
                        wanted=0 go=$1 next=; shift
                        ${(j:_:)${(@)argv//-/_}} """
            function = ("_pinstripe", *path)
            said = output_of("zsh", "-f", "-c", script, "zsh", TOOLS / "completion.zsh", "command", *function)
            if beginning:
                return set(re.findall(r"^\([^)]*\)(--?[\w-]+?)[+=]?\[", said, re.M))
            return set(re.findall(r"^([a-z-]+):", said, re.M))

        self.compare(offered)

    def test_zsh_knows_the_values_of_a_choice(self):
        text = (TOOLS / "completion.zsh").read_text()
        self.assertIn(":TEXT:(auto redrawn lines json none)'", text)
        self.assertNotRegex(text, r":\{")

    def test_zsh_goes_from_command_to_command(self):
        text = (TOOLS / "completion.zsh").read_text()
        for path in self.commands:
            if path:
                self.assertIn(f"{path[-1]}) _pinstripe_{'_'.join(path).replace('-', '_')} ;;", text)


if __name__ == "__main__":
    unittest.main()
