"""`rageval resume JOURNAL`: continue the run that wrote a journal."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_rageval._internal.redaction import HIDDEN
from langchain_rageval.cli import ci, evaluate
from langchain_rageval.cli import run as run_command
from langchain_rageval.cli.arguments import PIPE
from langchain_rageval.cli.imported_object import search_in_folder
from langchain_rageval.cli.recorded_command import COMMAND
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.journal import Journal


def add_to(commands: Any) -> None:
    """Add the command `rageval resume` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "resume", help="continue an interrupted `rageval evaluate`, `rageval ci` or `rageval run` with --journal"
    )
    parser.set_defaults(run=run)
    parser.add_argument("journal", help="file that was given to --journal")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="options of the command that replace the original ones"
    )


def run(options: argparse.Namespace) -> int:
    """Repeat the command that is recorded in the journal; its scores or answers are reused."""
    if not Path(options.journal).is_file():
        raise ConfigError(f"{options.journal} is not a file; pass the file that was given to --journal")
    with closing(Journal(options.journal)) as journal:
        recorded = journal.get(COMMAND)
    if recorded is None:
        raise ConfigError(f"{options.journal} contains no command; run the command with --journal again")
    command = json.loads(recorded)
    if command["words"][0] == "requests":
        raise ConfigError(
            f"{options.journal} was written by `rageval requests`; continue with `rageval replies FILE --journal "
            f"{options.journal}`"
        )
    parser = argparse.ArgumentParser(prog="rageval")
    commands = parser.add_subparsers()
    evaluate.add_to(commands)
    ci.add_to(commands)
    run_command.add_to(commands)
    repeated = parser.parse_args([*command["words"], *options.options])
    _check_complete(repeated, options.journal)
    folder = Path(command["folder"])
    search_in_folder(folder)  # for metrics and chains of the user
    for option in ("file", "out", "html", "qrels", "topics", "baseline", "markdown", "junit"):
        path = getattr(repeated, option, None)
        if path not in (None, PIPE):
            setattr(repeated, option, str(folder / path))
    repeated.journal = options.journal
    repeated.words = None
    return int(repeated.run(repeated))


def _check_complete(repeated: argparse.Namespace, journal: str) -> None:
    """Check that no option is needed whose secret was not stored.

    Raises:
        ConfigError: if there is one.
    """
    for name, value in vars(repeated).items():
        if isinstance(value, str) and HIDDEN in value:
            option = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{journal} does not store the key in {option} {value!r}; add {option} with the full value"
            )
