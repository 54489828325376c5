"""Parser of the command line, built from the table of commands in `commands.yaml`.

The module of a command is imported when the command runs, so that help and a wrong option need no heavy imports.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from textwrap import TextWrapper
from typing import Any

import yaml

_TYPES: Mapping[str, type] = {"int": int, "float": float}


@cache
def load_commands() -> Mapping[str, Mapping[str, Any]]:
    """Return the help, module, options, examples and JSON keys of each command by its name."""
    text = (files("langchain_rageval.cli") / "commands.yaml").read_text(encoding="utf-8")
    commands: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)["commands"]
    return commands


def build_parser(names: Iterable[str] | None = None, **settings: Any) -> argparse.ArgumentParser:
    """Return a parser; the options that it parses have the function `run`, which takes them and returns the exit code.

    Args:
        names: commands that it accepts; None for all.
        settings: of the parser.
    """
    parser = argparse.ArgumentParser(prog="rageval", **settings)
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in names or load_commands():
        command = load_commands()[name]
        formatter = argparse.RawDescriptionHelpFormatter
        one = subparsers.add_parser(name, help=command["help"], epilog=_epilog(command), formatter_class=formatter)
        one.set_defaults(run=partial(_run, command["module"], name))
        _add_options(one.add_argument, command["options"])
        if "generation" in command:
            group = one.add_argument_group("generation of a test set")
            _add_options(group.add_argument, command["generation"])
    return parser


def _add_options(add: Callable[..., Any], options: Sequence[Any]) -> None:
    """Add options; a list among them holds options that several commands share."""
    for item in options:
        if isinstance(item, list):
            _add_options(add, item)
            continue
        ((name, settings),) = item.items()
        settings = dict(settings)
        if settings.pop("flag", False):
            settings["action"] = "store_true"
        if settings.pop("repeated", False):
            settings.update(action="append", default=[])
        if "type" in settings:
            settings["type"] = _TYPES[settings["type"]]
        for several in {"metavar", "choices"} & settings.keys():
            if isinstance(settings[several], list):
                settings[several] = tuple(settings[several])
        add(name, **settings)


def _epilog(command: Mapping[str, Any]) -> str:
    examples = command["examples"]
    lines = ["example:" if len(examples) == 1 else "examples:", *(f"  {example}" for example in examples)]
    if "keys" in command:
        wrapper = TextWrapper(78, initial_indent="  ", subsequent_indent="    ")
        lines += ["", "keys of --json:", *(line for key in command["keys"] for line in wrapper.wrap(key))]
    return "\n".join(lines)


def _run(module: str, name: str, options: argparse.Namespace) -> int:
    run = getattr(import_module(f"langchain_rageval.cli.{module}"), f"run_{name.replace('-', '_')}")
    return int(run(options))


def named_options(words: Sequence[str]) -> set[str]:
    """Return the options that a command was typed with, apart from those that have their default."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}
