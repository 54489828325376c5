"""`rageval label REPORT`: draw samples for human labelling into a CSV sheet."""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command `rageval label` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "label", help="draw samples of a report for human labelling, as a CSV sheet"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report written by `rageval evaluate --out`")
    parser.add_argument("--n", type=int, default=100, help="number of samples (default: %(default)s)")
    parser.add_argument("--metric", help="metric that the labels are for; required if the report has several")
    parser.add_argument("--out", default="labels.csv", metavar="FILE", help="CSV file to write (default: %(default)s)")
    parser.add_argument(
        "--semicolons", action="store_true", help="separate columns by semicolons, for spreadsheets with decimal commas"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draw (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Draw the samples, write the sheet, and explain the next step."""
    from rich.markup import escape

    from langchain_rageval.cli.printable import printable
    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.report import Report

    sheet = Report.load(options.report, lazy=True).to_label(options.n, options.metric, seed=options.seed)
    sheet.to_csv(options.out, delimiter=";" if options.semicolons else ",")
    out = console()
    message = f"{len(sheet)} samples to label for {sheet.metric}, written to {options.out}: fill in the column 'label'"
    out.print(escape(printable(message)), soft_wrap=True)
    show_notes(sheet.notes, out)
    return 0
