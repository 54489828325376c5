"""Entry point of `rageval`: parses the command line, runs the command and returns the exit code.

Exit codes: 0 for success; 1 if a threshold or requirement is not met; 2 for wrong usage, invalid input, or if nothing
could be scored; 130 if interrupted.

The parser is built from the table of commands in `commands.yaml`. The module of a command is imported only when the
command runs, so that help and wrong options need no slow imports.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from textwrap import TextWrapper
from typing import Any, NoReturn

from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval._version import __version__
from langchain_rageval.cli.terminal import PIPE, check_writable, printable_warnings, write_message
from langchain_rageval.errors import MAY_BE_MEANT, BelowThreshold, ConfigError, RagevalError


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `rageval`.

    Args:
        arguments: words of the command line after the program name; None takes those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser(whole=any(word.startswith("--help-") for word in words)).parse_args(words)
    options.words = words
    options.named = named_options(options.words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the encoding of a pipe may lack characters of a sample
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        raw = _MayClose(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.stdout.encoding, "replace", line_buffering=raw.isatty()
        )
    try:
        with printable_warnings():
            options.run(options)
        sys.stdout.flush()
        return 0
    except BelowThreshold as error:
        meant = [code for code in error.codes if code in MAY_BE_MEANT]
        condition = f"if {' and '.join(meant)} {'is' if len(meant) == 1 else 'are'} meant to be so in this application"
        return _report_error(1, f"{error}; {condition}, add --allow {','.join(meant)}" if meant else str(error))
    except RagevalError as error:
        from langchain_rageval.cli.report_view import hint_for  # takes time that only failures may cost

        return _report_error(2, f"{error}{hint_for(getattr(error, 'failure', None))}")
    except KeyboardInterrupt:
        return _report_error(130, "interrupted")
    except Exception as error:
        return _report_error(2, f"unexpected {type(error).__name__}: {error}")


class _MayClose(io.FileIO):
    """Raw stream of a file descriptor that drops what is written after its reader has gone, as `head` does.

    The command goes on: files are still written, and gates still decide the exit code.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


class _Parser(argparse.ArgumentParser):
    """Parser of options whose errors show no secrets."""

    def error(self, message: str) -> NoReturn:
        super().error(redact_secrets(message, os.environ))


def _report_error(code: int, message: str) -> int:
    write_message(redact_secrets(message, os.environ))
    return code


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    text = (files("langchain_rageval.cli") / "commands.yaml").read_text(encoding="utf-8")
    table: Mapping[str, Mapping[str, Any]] = load_yaml(text)
    return table


def load_commands() -> Mapping[str, Mapping[str, Any]]:
    """Return a mapping from each command to its help, module, options, examples and JSON keys."""
    return _table()["commands"]


def build_parser(names: Iterable[str] | None = None, *, whole: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    The parsed options have the attribute `run`, the function of the command, which takes the options, and `paths`, the
    names of the options whose values are paths of files.

    Args:
        names: names of the commands to accept; None for all commands.
        whole: True if the help describes every command, and the rare options and the JSON keys of each command.
    """
    shape: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = _Parser(
        prog="rageval",
        usage="rageval [--help] [--help-all] [--version] COMMAND ...",
        description="Evaluate RAG systems with an LLM judge.",
        epilog=f"{_list_commands(whole)}\n\n{_EPILOG}",
        **shape,
    )
    parser.add_argument("--help-all", action="help", help="describe all commands")
    parser.add_argument("--version", action="version", version=f"rageval {__version__}")
    subparsers = parser.add_subparsers(prog="rageval", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    for name in names or load_commands():
        command = load_commands()[name]
        one = subparsers.add_parser(name, description=command["help"], epilog=_epilog(command, whole), **shape)
        one.add_argument("--help-all", action="help", help="show all options and the keys of --json")
        groups: dict[str, Any] = {"": one}
        for group, option, settings in _options_in(command["options"]):
            if group not in groups:
                groups[group] = one.add_argument_group(group)
            groups[group].add_argument(option, **_settings(settings, whole))
        paths = [action.dest for action in one._actions if action.metavar in _PATHS]
        positionals = [action for action in one._actions if not action.option_strings]
        outputs = [action.dest for action in one._actions if {*action.option_strings} & _OUTPUTS]
        run = partial(_run, command["module"], name, outputs, [action.dest for action in positionals])
        one.set_defaults(run=run, paths=paths)
        words = [_USAGE[action.nargs].format(action.metavar or action.dest.upper()) for action in positionals]
        one.usage = " ".join(["%(prog)s", *words, "[options]"])
    return parser


_EPILOG = "To start: rageval demo. Options and examples: rageval COMMAND --help. All commands: rageval --help-all"
_PATHS = ("FILE", "REPORT", "TESTSET", "QUESTIONS")
"""Placeholders of options whose values are paths of files."""
_OUTPUTS = {"--out", "--html", "--markdown", "--junit", "--report"}
"""Options that name a file to write."""
_PIPED = {("evaluate", "out"), ("run", "out"), ("generate", "out"), ("replies", "report")}
"""Commands and their options that write to stdout for `-` or `/dev/stdout`; the tables are then written to stderr."""
_USAGE: Mapping[Any, str] = {None: "{0}", "?": "[{0}]", "+": "{0} [{0} ...]", "...": "[{0} ...]"}
"""Words of the usage line by `nargs` of a positional argument."""


def _list_commands(whole: bool) -> str:
    """Return the commands by group; only those of the first group have a description, unless the list is whole."""
    lines = []
    for number, (group, names) in enumerate(_table()["groups"].items()):
        if not number or whole:
            lines += ["", f"{group}:"]
            for name in names:
                wrapper = TextWrapper(78, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16)
                lines.append(wrapper.fill(load_commands()[name]["help"]))
        else:
            lines += [""] * (number == 1) + [f"{group}: {', '.join(names)}"]
    return "\n".join(lines).strip()


def _options_in(items: Iterable[Any], group: str = "") -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the title of the group ("" if there is none), the name and the settings of each option.

    An item is an option by its name, a group of options by its title, or a list that several commands share.
    """
    for item in items:
        if isinstance(item, list):
            yield from _options_in(item, group)
            continue
        ((name, settings),) = item.items()
        if isinstance(settings, list):
            yield from _options_in(settings, name)
        else:
            yield group, name, settings


def _settings(entry: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an entry of the table; only the whole help shows rare options."""
    settings = {name: value for name, value in entry.items() if name not in ("flag", "repeated", "rare")}
    if "rare" in entry and not whole:
        settings["help"] = argparse.SUPPRESS
    if "flag" in entry:
        settings["action"] = "store_true"
    if "repeated" in entry:
        settings.update(action="append", default=[])
    if "type" in entry:
        settings["type"] = {"int": int, "float": float}[entry["type"]]
    if isinstance(entry.get("metavar"), list):
        settings["metavar"] = tuple(entry["metavar"])
    return settings


def _epilog(command: Mapping[str, Any], whole: bool) -> str:
    """Return the examples of a command; in the whole help, also the keys of its JSON object."""
    examples = command["examples"]
    lines = ["example:" if len(examples) == 1 else "examples:", *(f"  {example}" for example in examples)]
    if whole and "keys" in command:
        wrapper = TextWrapper(78, initial_indent="  ", subsequent_indent="    ")
        lines += ["", "keys of --json:", *map(wrapper.fill, command["keys"])]
    return "\n".join(lines)


def _run(module: str, name: str, outputs: Iterable[str], inputs: Iterable[str], options: argparse.Namespace) -> None:
    """Check that the files to write can be written before anything is computed, and run a command."""
    given = vars(options)
    sources = [
        path for name in inputs for path in ([given[name]] if isinstance(given[name], str) else given[name] or [])
    ]
    for output in outputs:
        if given[output] in (PIPE, "/dev/stdout"):
            given[output] = PIPE
            if (name, output) not in _PIPED:
                raise ConfigError(f"rageval {name} writes --{output} to a file, not to stdout; use a file name")
            if given.get("json"):
                raise ConfigError(f"--json and --{output} - both write to stdout; use --{output} with a file name")
        check_writable(f"--{output}", given[output], *sources)
    getattr(import_module(f"langchain_rageval.cli.{module}"), f"run_{name.replace('-', '_')}")(options)


def named_options(words: Sequence[str]) -> set[str]:
    """Return the names of the options that the user typed, such as `--metrics`."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}
