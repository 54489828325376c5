"""`rageval resume JOURNAL`: go on with the run that wrote a journal."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from langchain_rageval.cli import evaluate
from langchain_rageval.cli.json_output import PIPE
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.journal import Journal


def add_to(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "resume", help="go on with the `rageval evaluate --journal` that was broken off"
    )
    parser.set_defaults(run=run)
    parser.add_argument("journal", help="what was given to --journal")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="options of `rageval evaluate`, in place of those it had"
    )


def run(options: argparse.Namespace) -> int:
    """Do again what the journal says was asked; what is in it is not paid for again."""
    if not Path(options.journal).is_file():
        raise ConfigError(f"{options.journal} is no file; name what was given to --journal")
    told = Journal(options.journal).get(evaluate.COMMAND)
    if told is None:
        raise ConfigError(f"{options.journal} names no command; start it again with `rageval evaluate --journal`")
    command = json.loads(told)
    parser = argparse.ArgumentParser(prog="rageval")
    evaluate.add_to(parser.add_subparsers())
    again = parser.parse_args([*command["words"], *options.options])
    folder = Path(command["folder"])
    for option in ("file", "out", "html", "qrels", "topics"):
        named = getattr(again, option)
        setattr(again, option, named if named in (None, PIPE) else str(folder / named))
    again.journal = options.journal
    again.words = None
    return int(again.run(again))
