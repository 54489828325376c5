"""`rageval report REPORT`: what a report says, in the terminal or as an HTML page."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import Any

from langchain_rageval.cli.evaluate import check_writable
from langchain_rageval.cli.json_output import add_json_option, told_of_report, write_json
from langchain_rageval.errors import ConfigError


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="show a report that `rageval evaluate --out` wrote, or make an HTML page of it"
    )
    parser.set_defaults(run=run)
    parser.add_argument("report", help="the report, as JSON lines")
    parser.add_argument("--html", metavar="PATH", help="write it there as one HTML page that needs no network")
    parser.add_argument("--open", action="store_true", help="open the page in a browser; without --html, beside REPORT")
    parser.add_argument("--baseline", metavar="REPORT", help="an earlier report over the same samples to compare with")
    parser.add_argument("--margin", type=float, default=0.0, help="of the comparison (default: %(default)s)")
    parser.add_argument(
        "--allow-different-instruments",
        action="store_true",
        help="compare also what different judges, prompts, options or versions have scored",
    )
    parser.add_argument(
        "--language", choices=("auto", "en", "ru"), default="auto", help="of the page (default: that of most questions)"
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the report, and write the page if one is asked for."""
    from langchain_rageval.cli.tables import console, show_diagnosis, show_report
    from langchain_rageval.report.report import Report

    page = options.html or (str(Path(options.report).with_suffix(".html")) if options.open else None)
    if options.baseline and not page:
        raise ConfigError("--baseline is for the page, name it with --html; in the terminal: rageval compare")
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
        write_json(told_of_report(report))
    else:
        show_report(report, console(), written=page)
        show_diagnosis(report)
    if page and options.open:
        show_page(page)
    return 0


def show_page(path: str) -> None:
    """Open a page in the reader's browser."""
    webbrowser.open(Path(path).resolve().as_uri())
