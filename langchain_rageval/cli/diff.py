"""`rageval diff OLD NEW`: compare two test sets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.json_output import add_json_option, write_json
from langchain_rageval.errors import BelowThreshold

if TYPE_CHECKING:
    from langchain_rageval.testset.diff import TestsetDiff

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def add_to(commands: Any) -> None:
    """Add the command `rageval diff` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff", help="compare two test sets: rows added, rows dropped, and changed fields"
    )
    parser.set_defaults(run=run)
    parser.add_argument("old", help="earlier test set, written by `rageval generate` or `Testset.to_jsonl`")
    parser.add_argument("new", help="later test set; rows are paired by id or question")
    parser.add_argument("--fail-if-changed", action="store_true", help="exit with 1 if the test sets differ")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Compare the test sets and show the differences; with --fail-if-changed, raise BelowThreshold if there are any."""
    from langchain_rageval.testset.testset import Testset

    difference = Testset.load(options.old).diff(Testset.load(options.new))
    if options.json:
        write_json(difference.to_dict())
    else:
        _show(difference)
    if options.fail_if_changed and difference:
        raise BelowThreshold(f"{options.old} and {options.new} differ: {difference.title}")
    return 0


def _show(difference: TestsetDiff) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval._internal.printable import printable
    from langchain_rageval.cli.tables import console

    out = console()
    out.print(f"[bold]{escape(difference.title)}[/bold]", soft_wrap=True)
    if not difference:
        return
    table = Table()
    table.add_column("")
    table.add_column("row, then field and its change")
    for sign, what in difference.lines():
        table.add_row(f"[{_COLOURS[sign]}]{sign}[/{_COLOURS[sign]}]", escape(printable(what)))
    out.print(table)
