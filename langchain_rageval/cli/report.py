"""`rageval report REPORT`: show a saved report in the terminal or as an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from langchain_rageval.cli.arguments import check_writable
from langchain_rageval.cli.browser import open_page
from langchain_rageval.cli.json_output import add_json_option, report_object, write_json
from langchain_rageval.errors import ConfigError


def add_to(commands: Any) -> None:
    """Add the command `rageval report` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="show a report written by `rageval evaluate --out`, or convert it to an HTML page"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="report file (JSON lines)")
    parser.add_argument("--html", metavar="FILE", help="write the report as a self-contained HTML page")
    parser.add_argument(
        "--open", action="store_true", help="open the page in a browser; without --html it is written next to REPORT"
    )
    parser.add_argument(
        "--baseline", metavar="REPORT", help="earlier report over the same samples, for a comparison on the page"
    )
    parser.add_argument("--margin", type=float, default=0.0, help="margin of the comparison (default: %(default)s)")
    parser.add_argument(
        "--allow-different-instruments",
        action="store_true",
        help="also compare scores of different judges, prompts, options or versions",
    )
    parser.add_argument(
        "--language",
        choices=("auto", "en", "ru"),
        default="auto",
        help="language of the page (default: the language of most questions)",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the report; write and open the page if requested."""
    from langchain_rageval.cli.report_view import show_report
    from langchain_rageval.cli.tables import console
    from langchain_rageval.report.report import Report

    page = options.html or (str(Path(options.report).with_suffix(".html")) if options.open else None)
    if options.baseline and not page:
        raise ConfigError("--baseline needs --html or --open; to compare in the terminal, use rageval compare")
    check_writable("--html", page, options.report)
    report = Report.load(options.report)
    if page:
        report.to_html(
            page,
            baseline=Report.load(options.baseline) if options.baseline else None,
            margin=options.margin,
            allow_different_instruments=options.allow_different_instruments,
            language=options.language,
        )
    if options.json:
        write_json(report_object(report))
    else:
        show_report(report, console(), written=page)
    if page and options.open:
        open_page(page)
    return 0
