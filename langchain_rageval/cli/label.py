"""`rageval label REPORT`: draw samples for human labelling, into a CSV sheet or onto an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from langchain_rageval.cli.arguments import check_writable
from langchain_rageval.cli.browser import add_no_open_option, open_if_possible
from langchain_rageval.errors import ConfigError


def add_to(commands: Any) -> None:
    """Add the command `rageval label` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "label", help="draw samples of a report for human labelling, as a CSV sheet or an HTML page"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report written by `rageval evaluate --out`")
    parser.add_argument("--n", type=int, default=100, help="number of samples (default: %(default)s)")
    parser.add_argument("--metric", help="metric that the labels are for; required if the report has several")
    parser.add_argument("--out", metavar="FILE", help="CSV file to write (default: labels.csv, or none with --html)")
    parser.add_argument(
        "--semicolons", action="store_true", help="separate columns by semicolons, for spreadsheets with decimal commas"
    )
    parser.add_argument(
        "--html",
        nargs="?",
        const="labels.html",
        metavar="FILE",
        help="write a page for labelling with the keyboard, and open it in a browser; it saves the CSV file "
        "(default name: %(const)s)",
    )
    parser.add_argument(
        "--scale",
        type=int,
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="lowest and highest grade on the page, from 0 to 9 (default: yes or no)",
    )
    parser.add_argument(
        "--instruction", metavar="TEXT", help="what to decide about each sample on the page (default: by the metric)"
    )
    parser.add_argument(
        "--language",
        choices=("auto", "en", "ru"),
        default="auto",
        help="language of the page (default: the language of most questions)",
    )
    add_no_open_option(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draw (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Draw the samples, write the sheet or the page, and explain the next step."""
    from rich.markup import escape

    from langchain_rageval._internal.printable import printable
    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.report import Report

    if not options.html and (options.scale or options.instruction):
        raise ConfigError("--scale and --instruction belong to the page: add --html")
    check_writable("--html", options.html, options.report)
    sheet = Report.load(options.report, lazy=True).to_label(options.n, options.metric, seed=options.seed)
    out = console()
    count = f"{len(sheet)} samples to label for {sheet.metric}, written to"
    if options.out or not options.html:
        path = options.out or "labels.csv"
        sheet.to_csv(path, delimiter=";" if options.semicolons else ",")
        out.print(escape(printable(f"{count} {path}: fill in the column 'label'")), soft_wrap=True)
    if options.html:
        scale = tuple(options.scale) if options.scale else None
        sheet.to_html(options.html, scale=scale, instruction=options.instruction, language=options.language)
        saved = f"{Path(options.html).stem}.csv"
        message = f"{count} {options.html}: open it in a browser; it saves {saved}, for rageval agreement"
        out.print(escape(printable(message)), soft_wrap=True)
    show_notes(sheet.notes, out)
    if options.html:
        open_if_possible(options.html, options)
    return 0
