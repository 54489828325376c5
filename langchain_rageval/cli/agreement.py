"""`rageval agreement REPORT LABELS`: how far the judge agrees with people."""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "agreement", help="say how far the scores of a report agree with the labels of people"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report that `rageval evaluate --out` wrote")
    parser.add_argument("labels", help="sheet of `rageval label`, filled in; or a CSV file with columns id and label")
    parser.add_argument("--metric", help="whose scores to compare; needed when the report has several")
    parser.add_argument(
        "--kind",
        choices=["binary", "ordinal"],
        default="binary",
        help="what the labels are: yes or no, or grades (default: %(default)s)",
    )
    parser.add_argument(
        "--threshold", type=float, default=0.5, help="least score that says yes, for binary (default: %(default)s)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        nargs=2,
        metavar=("LEAST", "GREATEST"),
        help="grades that scores of 0 and 1 stand for, for ordinal",
    )


def run(options: argparse.Namespace) -> int:
    """Compare, and show each statistic with its interval."""
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.printable import printable
    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.labelling import load_labels
    from langchain_rageval.report.report import Report
    from langchain_rageval.trust.agreement import HEADINGS, agreement

    scores = Report.load(options.report, lazy=True).scores(options.metric)
    scale = tuple(options.scale) if options.scale else None
    found = agreement(scores, load_labels(options.labels), options.kind, threshold=options.threshold, scale=scale)
    table = Table(title=found.title, title_justify="left", title_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("value", "95% interval") else "left")
    for cells in found.cells():
        table.add_row(*(escape(printable(cell)) for cell in cells))
    out = console()
    out.print(table)
    show_notes(found.notes, out)
    return 0
