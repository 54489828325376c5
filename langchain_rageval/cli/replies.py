"""`rageval replies FILE`: read replies to requests of `rageval requests`; write the next requests or the report."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.html import pluralize
from langchain_rageval.cli import requests
from langchain_rageval.cli.arguments import add_quiet_option, check_writable
from langchain_rageval.cli.evaluate import add_gate_options, finish, parse_gates
from langchain_rageval.cli.failures import check_not_all_failed
from langchain_rageval.cli.imported_object import search_in_folder
from langchain_rageval.cli.json_output import add_json_option, write_json
from langchain_rageval.cli.messages import write_message
from langchain_rageval.cli.recorded_command import COMMAND
from langchain_rageval.cli.requests import describe_wave, score_as_far_as_possible
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.journal import Journal

if TYPE_CHECKING:
    from langchain_rageval.run.batch.wave_files import RepliesRead


def add_to(commands: Any) -> None:
    """Add the command `rageval replies` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "replies", help="read the replies to a file of `rageval requests`; write the next requests, or the report"
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="replies in OpenAI's batch format, as `vllm run-batch` writes them"
    )
    parser.add_argument(
        "--journal",
        default="run.db",
        metavar="FILE",
        help="file that was given to `rageval requests` (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file for the next requests, if there are any (default: that of the last wave with the next number)",
    )
    parser.add_argument("--report", metavar="FILE", help="write the finished report as JSON lines")
    parser.add_argument("--html", metavar="FILE", help="write the finished report as a self-contained HTML page")
    add_gate_options(parser)
    add_json_option(parser)
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read the replies; write the next requests, or write and show the report."""
    from langchain_rageval.run.batch.wave_files import WaveFile, read_replies

    if not Path(options.journal).is_file():
        raise ConfigError(
            f"{options.journal} is not a file; pass the file that was given to `rageval requests --journal`"
        )
    repeated = _recorded_options(options.journal)
    options.metrics = repeated.metrics
    gates = parse_gates(options)
    for option in ("out", "report", "html"):
        for file in options.files:
            check_writable(f"--{option}", getattr(options, option), file)
    with closing(Journal(options.journal)) as journal:
        _warn_about(read_replies(list(map(Path, options.files)), journal), " and ".join(options.files))
    result = score_as_far_as_possible(repeated, Path(options.out) if options.out else None)
    if isinstance(result, WaveFile):
        if options.json:
            write_json({"wave": result.number, "requests": len(result.owners), "files": result.paths})
        elif not options.quiet:
            write_message(describe_wave(result, options.journal))
        return 0
    report = replace(result, name=Path(repeated.file).stem)
    check_not_all_failed(report)
    options.out = options.report
    return finish(report, options, gates)


def _recorded_options(path: str) -> argparse.Namespace:
    """Return the options of the `rageval requests` that wrote a journal."""
    with closing(Journal(path)) as journal:
        recorded = journal.get(COMMAND)
    command = json.loads(recorded or "{}")
    if command.get("words", [""])[0] != "requests":
        raise ConfigError(
            f"{path} was not written by `rageval requests`; pass the file that was given to its --journal"
        )
    parser = argparse.ArgumentParser(prog="rageval")
    requests.add_to(parser.add_subparsers())
    repeated = parser.parse_args(command["words"])
    folder = Path(command["folder"])
    search_in_folder(folder)
    for option in ("file", "qrels", "topics"):
        if getattr(repeated, option) is not None:
            setattr(repeated, option, str(folder / getattr(repeated, option)))
    repeated.journal = path
    return repeated


def _warn_about(read: RepliesRead, file: str) -> None:
    """Write to stderr how many requests have no reply."""
    total = pluralize(len(read.wave.owners), "request")
    if read.missing:
        write_message(
            f"{read.missing:,} of the {total} of wave {read.wave.number} have no line in {file}; they are asked again "
            "in the next wave. If the file was cut off on the way, copy it again and repeat the command"
        )
    if read.failed:
        write_message(
            f"{read.failed:,} of the {total} of wave {read.wave.number} failed on the server; they are asked again in "
            "the next wave"
        )
