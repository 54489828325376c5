"""`--help` of every command: it has examples, and they are real."""

import argparse
import re
import shlex

from helpers.each import each

from langchain_rageval.cli.main import build_parser, load_commands

EXAMPLES = {name: command["examples"] for name, command in load_commands().items()}
HELPS = ("--help", "--help-all")


def commands():
    (found,) = (part for part in build_parser()._actions if isinstance(part, argparse._SubParsersAction))
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
        assert callable(build_parser().parse_args(words).run)


def test_the_first_screen_has_the_daily_commands_and_names_the_others(rageval):
    code, short, _ = rageval("--help")
    assert code == 0
    assert len(short.splitlines()) <= 24
    described = {line.split()[0] for line in short.splitlines() if line.startswith("  ") and line[2].isalpha()}
    assert described == {"evaluate", "run", "compare", "ci", "generate"}
    whole = rageval("--help-all")[1]
    for name, command in load_commands().items():
        assert re.search(rf"\b{name}\b", short)
        assert command["help"].split()[0] in whole.partition(f"\n  {name} ")[2].splitlines()[0]


def test_rare_options_and_keys_are_shown_by_help_all_alone(rageval):
    parser = commands()["evaluate"]
    options = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    short, whole = (re.findall(r"^  (?:-h, )?(--[a-z-]+)", rageval("evaluate", how)[1], re.M) for how in HELPS)
    assert set(short) < set(whole) == options
    assert len(short) <= 25
    titles = ["samples and metrics:", "judge:", "results:", "gates:", "cost:"]
    for how in HELPS:
        lines = rageval("evaluate", how)[1].splitlines()
        assert [line for line in lines if line in titles] == titles
        assert ("keys of --json:" in lines) == (how == "--help-all")
