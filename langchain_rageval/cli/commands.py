"""Parser of the command line, built from the table of commands in `commands.yaml`.

The module of a command is imported only when the command runs, so that help and wrong options need no slow imports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from textwrap import TextWrapper
from typing import Any

from langchain_rageval._internal.files import load_yaml

_TYPES: Mapping[str, type] = {"int": int, "float": float}


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    text = (files("langchain_rageval.cli") / "commands.yaml").read_text(encoding="utf-8")
    table: Mapping[str, Mapping[str, Any]] = load_yaml(text)
    return table


def load_commands() -> Mapping[str, Mapping[str, Any]]:
    """Return a mapping from each command to its help, module, options, examples and JSON keys."""
    return _table()["commands"]


class _HelpAll(argparse.Action):
    """Option that shows the whole help: every command, or the rare options and the JSON keys of one command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        sys.stdout.write(whole_help(parser))
        parser.exit()


def whole_help(parser: argparse.ArgumentParser) -> str:
    """Return the text that `--help-all` prints."""
    for part in (parser, *parser._actions):
        vars(part).update(getattr(part, "whole", {}))
    return parser.format_help()


def build_parser(names: Iterable[str] | None = None, **settings: Any) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    The parsed options have the attribute `run`, the function of the command, which takes the options and returns the
    exit code, and `paths`, the names of the options whose values are paths of files.

    Args:
        names: names of the commands to accept; None for all commands.
        settings: arguments of the parser class.
    """
    shape: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="rageval", **shape, **settings)
    short, whole = (f"{_list_commands(is_whole)}\n\n{parser.epilog or ''}" for is_whole in (False, True))
    _add_whole_help(parser, "describe all commands", short, whole)
    subparsers = parser.add_subparsers(prog="rageval", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    for name in names or load_commands():
        command = load_commands()[name]
        one = subparsers.add_parser(name, description=command["help"], **shape)
        _add_whole_help(one, "show all options and the keys of --json", *_epilogs(command))
        _add_options(one, one.add_argument, command["options"], {})
        paths = [action.dest for action in one._actions if action.metavar in _PATHS]
        one.set_defaults(run=partial(_run, command["module"], name), paths=paths)
        positionals = (action for action in one._actions if not action.option_strings)
        words = [_USAGE[action.nargs].format(action.metavar or action.dest.upper()) for action in positionals]
        one.usage = " ".join(["%(prog)s", *words, "[options]"])
    return parser


_PATHS = ("FILE", "REPORT", "TESTSET", "QUESTIONS")
"""Placeholders of options whose values are paths of files."""
_USAGE: Mapping[Any, str] = {None: "{0}", "?": "[{0}]", "+": "{0} [{0} ...]", "...": "[{0} ...]"}
"""Words of the usage line by `nargs` of a positional argument."""


def _add_whole_help(parser: argparse.ArgumentParser, help_text: str, short: str, whole: str) -> None:
    parser.epilog = short
    vars(parser)["whole"] = {"epilog": whole}
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help=help_text)


def _list_commands(is_whole: bool) -> str:
    """Return the commands by group; only those of the first group have a description, unless the list is whole."""
    lines = []
    for number, (group, names) in enumerate(_table()["groups"].items()):
        if not number or is_whole:
            lines += ["", f"{group}:", *(_describe(name) for name in names)]
        else:
            lines += [""] * (number == 1) + [f"{group}: {', '.join(names)}"]
    return "\n".join(lines).strip()


def _describe(name: str) -> str:
    wrapper = TextWrapper(78, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16)
    return wrapper.fill(load_commands()[name]["help"])


def _add_options(
    parser: argparse.ArgumentParser, add: Callable[..., Any], options: Sequence[Any], groups: dict[str, Any]
) -> None:
    """Add options.

    Args:
        parser: parser of the command.
        add: function that adds an option to the parser or to a group of it.
        options: an option by its name, a group of options by its title, or a list that several commands share.
        groups: groups of the parser by title; new ones are added.
    """
    for item in options:
        if isinstance(item, list):
            _add_options(parser, add, item, groups)
            continue
        ((name, settings),) = item.items()
        if isinstance(settings, list):
            if name not in groups:
                groups[name] = parser.add_argument_group(name)
            _add_options(parser, groups[name].add_argument, settings, groups)
            continue
        action = add(name, **_settings(settings))
        if settings.get("rare"):
            action.whole, action.help = {"help": action.help}, argparse.SUPPRESS


def _settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an entry of the table."""
    settings = {name: value for name, value in entry.items() if name not in ("flag", "repeated", "rare")}
    if "flag" in entry:
        settings["action"] = "store_true"
    if "repeated" in entry:
        settings.update(action="append", default=[])
    if "type" in entry:
        settings["type"] = _TYPES[entry["type"]]
    if isinstance(entry.get("metavar"), list):
        settings["metavar"] = tuple(entry["metavar"])
    return settings


def _epilogs(command: Mapping[str, Any]) -> tuple[str, str]:
    """Return the examples of a command, without and with the keys of its JSON object."""
    examples = command["examples"]
    lines = ["example:" if len(examples) == 1 else "examples:", *(f"  {example}" for example in examples)]
    wrapper = TextWrapper(78, initial_indent="  ", subsequent_indent="    ")
    keys = [line for key in command.get("keys", ()) for line in wrapper.wrap(key)]
    return "\n".join(lines), "\n".join([*lines, *(["", "keys of --json:"] if keys else []), *keys])


def _run(module: str, name: str, options: argparse.Namespace) -> int:
    run = getattr(import_module(f"langchain_rageval.cli.{module}"), f"run_{name.replace('-', '_')}")
    return int(run(options))


def named_options(words: Sequence[str]) -> set[str]:
    """Return the names of the options that the user typed, such as `--metrics`."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}
