"""Recorded command lines in journals, and `rageval resume`, which repeats the recorded command."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_rageval._internal.redaction import HIDDEN, redact_secrets
from langchain_rageval.cli.main import build_parser, named_options
from langchain_rageval.cli.selection import search_in_folder
from langchain_rageval.cli.terminal import PIPE
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.journal import Journal

COMMAND = "command"
"""Key under which a journal holds the command line that wrote it."""


def run_resume(options: argparse.Namespace) -> None:
    """Repeat the command that a journal records; the scores or answers in the journal are reused."""
    command = recorded_command(options.journal)
    if not command:
        raise ConfigError(f"{options.journal} contains no command; run the command with --journal again")
    if command["words"][0] == "requests":
        raise ConfigError(
            f"{options.journal} was written by `rageval requests`; continue with `rageval replies FILE --journal "
            f"{options.journal}`"
        )
    command["words"] += options.options
    repeated = repeated_options(command, options.journal)
    for name, value in vars(repeated).items():
        if isinstance(value, str) and HIDDEN in value:
            option = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{options.journal} does not store the key in {option} {value!r}; add {option} with the full value"
            )
    repeated.resume = repeated.retry_failed = True  # of `rageval run`
    repeated.words, repeated.named = None, named_options(command["words"])
    repeated.run(repeated)


def recorded_command(journal: str, given: str = "--journal") -> dict[str, Any]:
    """Return the command line in a journal, as `words` and working `folder`; {} if it holds no command line.

    Raises:
        ConfigError: if the file does not exist; the message names the option `given`.
    """
    if not Path(journal).is_file():
        raise ConfigError(f"{journal} is not a file; pass the file that was given to {given}")
    with closing(Journal(journal)) as opened:
        command: dict[str, Any] = json.loads(opened.get(COMMAND) or "{}")
    return command


def repeated_options(command: Mapping[str, Any], journal: str) -> argparse.Namespace:
    """Return the options of a recorded command, ready to run in the current folder.

    Relative paths are resolved against the folder in which the command ran. This folder is also searched for modules.

    Args:
        command: words and folder of the command, as `recorded_command` returns them.
        journal: path of the journal; replaces the path in the command.
    """
    repeated = build_parser(["evaluate", "ci", "run", "requests"]).parse_args(command["words"])
    folder = Path(command["folder"])
    search_in_folder(folder)  # for metrics and chains of the user
    for option in repeated.paths:
        path = getattr(repeated, option)
        is_chain = option == "file" and getattr(repeated, "questions", None)
        if path not in (None, PIPE) and not is_chain:
            setattr(repeated, option, str(folder / path))
    repeated.journal = journal
    return repeated


def record_command(options: argparse.Namespace) -> None:
    """Store the command line, without secrets in addresses, in the journal that the options name, if any."""
    if options.journal and options.words is not None:
        words = [redact_secrets(word, word) for word in options.words]
        with closing(Journal(options.journal)) as journal:
            journal.put(COMMAND, json.dumps({"words": words, "folder": str(Path.cwd())}))
