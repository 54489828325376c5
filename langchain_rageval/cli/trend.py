"""`rageval trend LIVE`: means by day, week or version, and an alarm if they fall below a baseline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import check_writable
from langchain_rageval.cli.browser import open_page
from langchain_rageval.cli.json_output import add_json_option, trend_object, write_json

if TYPE_CHECKING:
    from langchain_rageval.report.trend import Trend


def add_to(commands: Any) -> None:
    """Add the command `rageval trend` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trend", help="show means by day, week or version, with an alarm if they fall below a baseline"
    )
    parser.set_defaults(run=run)
    parser.add_argument("live", help="report with times: a file of a SqliteSink or JsonlSink, also while it is written")
    parser.add_argument("--baseline", metavar="REPORT", help="report of a run that is as good as it should be")
    parser.add_argument("--by", default="day", help="day, week or the name of a tag (default: %(default)s)")
    parser.add_argument(
        "--margin", type=float, default=0.0, help="by how much a mean may be worse (default: %(default)s)"
    )
    parser.add_argument(
        "--error",
        type=float,
        default=0.05,
        help="probability of an alarm without drift, over the whole watch (default: %(default)s)",
    )
    parser.add_argument(
        "--adjust", metavar="PATH", help="compare each row with the baseline's rows of its slice, such as language"
    )
    parser.add_argument(
        "--allow-different-instruments",
        action="store_true",
        help="also compare scores of different judges, prompts, options or versions",
    )
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML page with curves and worst samples")
    parser.add_argument(
        "--open", action="store_true", help="open the page in a browser; without --html it is written next to LIVE"
    )
    parser.add_argument(
        "--language",
        choices=("auto", "en", "ru"),
        default="auto",
        help="language of the page (default: the language of most questions)",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the trend, and write and open the page if requested; raise the error of a drift: the exit code is then 1."""
    from langchain_rageval.report.report import Report
    from langchain_rageval.report.trend import trend

    page = options.html or (str(Path(options.live).with_suffix(".html")) if options.open else None)
    for source in filter(None, (options.live, options.baseline)):
        check_writable("--html", page, source)
    found = trend(
        Report.load(options.live),
        None if options.baseline is None else Report.load(options.baseline),
        options.by,
        margin=options.margin,
        error=options.error,
        adjust=options.adjust or None,
        allow_different_instruments=options.allow_different_instruments,
    )
    if page:
        found.to_html(page, language=options.language)
    if options.json:
        write_json(trend_object(found))
    else:
        _show(found, page)
    if page and options.open:
        open_page(page)
    found.check()
    return 0


def _show(found: Trend, page: str | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval._internal.printable import printable
    from langchain_rageval.cli.tables import console, show_notes

    table = Table(title="Means with 95% intervals", title_justify="left", title_style="bold")
    for number, heading in enumerate(("period", "samples", *found.metrics)):
        table.add_column(escape(heading), justify="right" if number else "left")
    for cells in found.cells():
        table.add_row(*map(escape, cells))
    out = console()
    out.print(table)
    changes = [str(change) for changes in found.changes.values() for change in changes]
    show_notes([*changes, *found.notes], out)
    if page:
        out.print(f"\nTrend written to {escape(printable(page))}", soft_wrap=True)
