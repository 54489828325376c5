"""`rageval agreement REPORT LABELS`: compute the agreement of scores with human labels."""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command `rageval agreement` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "agreement", help="compute how well the scores of a report agree with human labels"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report written by `rageval evaluate --out`")
    parser.add_argument("labels", help="completed sheet of `rageval label`, or any CSV file with columns id and label")
    parser.add_argument("--metric", help="metric to compare; required if the report has several")
    parser.add_argument(
        "--kind",
        choices=["binary", "ordinal"],
        default="binary",
        help="kind of labels: binary (yes or no) or ordinal (grades) (default: %(default)s)",
    )
    parser.add_argument(
        "--threshold", type=float, default=0.5, help="lowest score that means yes, for binary (default: %(default)s)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="lowest and highest grade, which correspond to scores of 0 and 1, for ordinal",
    )
    parser.add_argument(
        "--raw-grades",
        action="store_true",
        help="the scores are grades from LOWEST to HIGHEST already, not from 0 to 1",
    )


def run(options: argparse.Namespace) -> int:
    """Compare scores and labels, and show each statistic with its interval."""
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.labelling import load_labels
    from langchain_rageval.report.report import Report
    from langchain_rageval.trust.agreement import HEADINGS, agreement

    scores = Report.load(options.report, lazy=True).scores(options.metric)
    scale = tuple(options.scale) if options.scale else None
    result = agreement(
        scores,
        load_labels(options.labels),
        options.kind,
        threshold=options.threshold,
        scale=scale,
        raw_grades=options.raw_grades,
    )
    table = Table(title=result.title, title_justify="left", title_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("value", "95% interval") else "left")
    for cells in result.cells():
        table.add_row(*(escape(cell) for cell in cells))
    out = console()
    out.print(table)
    show_notes(result.notes, out)
    return 0
