"""`rageval label REPORT`: which samples people should label, as a sheet to fill in."""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "label", help="draw samples of a report for people to label, as a sheet that a spreadsheet opens"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report that `rageval evaluate --out` wrote")
    parser.add_argument("--n", type=int, default=100, help="how many samples (default: %(default)s)")
    parser.add_argument("--metric", help="whose scores the labels are for; needed when the report has several")
    parser.add_argument("--out", default="labels.csv", help="file for the sheet (default: %(default)s)")
    parser.add_argument("--semicolons", action="store_true", help="for a spreadsheet that takes commas for decimals")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Draw, write, and say what to do next."""
    from rich.markup import escape

    from langchain_rageval.cli.printable import printable
    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.report import Report

    sheet = Report.load(options.report, lazy=True).to_label(options.n, options.metric, seed=options.seed)
    sheet.to_csv(options.out, delimiter=";" if options.semicolons else ",")
    out = console()
    told = f"{len(sheet)} samples to label for {sheet.metric}, written to {options.out}: fill in the column 'label'"
    out.print(escape(printable(told)), soft_wrap=True)
    show_notes(sheet.notes, out)
    return 0
