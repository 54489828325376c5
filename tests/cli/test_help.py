"""`--help` of every command: it has examples, and they are real."""

import argparse
import shlex

from helpers.each import each

from langchain_rageval.cli import main
from langchain_rageval.cli.commands import load_commands

EXAMPLES = {name: command["examples"] for name, command in load_commands().items()}


def commands():
    (found,) = (part for part in main._parser()._actions if isinstance(part, argparse._SubParsersAction))
    return found.choices


def test_every_command_has_examples():
    assert commands().keys() == EXAMPLES.keys()


@each("command", EXAMPLES)
def test_its_examples_are_shown_whole_and_parse(rageval, command):
    code, told, _ = rageval(command, "--help")
    assert code == 0
    for line in EXAMPLES[command]:
        assert f"\n  {line}\n" in told
        assert len(line) <= 78
        name, *words = shlex.split(line)
        assert name == "rageval"
        assert words[0] == command
        assert callable(main._parser().parse_args(words).run)


def test_a_command_that_shows_progress_can_be_quiet():
    assert {name for name, parser in commands().items() if "--quiet" in parser.format_help()} >= {
        "evaluate",
        "generate",
        "demo",
    }
