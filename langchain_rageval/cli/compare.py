"""`rageval compare BASELINE CANDIDATE`: whether a change made it better."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.machine import add_json_option, told_of_comparison, write_json
from langchain_rageval.cli.text import printable
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.report.comparison import Comparison

_COLOURS = {"better": "green", "worse": "red", "no worse": "green", "inconclusive": "yellow"}


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare", help="say for each metric whether one report is better than another over the same samples"
    )
    parser.set_defaults(run=run)
    parser.add_argument("baseline", help="report that `rageval evaluate --out` wrote before the change")
    parser.add_argument("candidate", help="report after it; samples are paired by id")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        help="by how much a metric may be worse and still be no worse (default: %(default)s)",
    )
    parser.add_argument("--cluster", metavar="PATH", help="what ties samples together, such as metadata.document")
    parser.add_argument(
        "--allow-different-instruments",
        action="store_true",
        help="compare also what different judges, prompts, options or versions have scored",
    )
    parser.add_argument("--fail-if-worse", action="store_true", help="exit 1 when a metric is worse")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Compare, show the verdicts, and let a worse metric fail if that is asked."""
    from langchain_rageval.report.report import Report

    baseline, candidate = Report.load(options.baseline), Report.load(options.candidate)
    if not set(_metrics(baseline)) & set(_metrics(candidate)):
        raise ConfigError(
            f"{options.baseline} and {options.candidate} have no metric in common: "
            f"{', '.join(_metrics(baseline)) or 'none'}; {', '.join(_metrics(candidate)) or 'none'}"
        )
    comparison = candidate.compare(
        baseline, options.margin, options.cluster or None, options.allow_different_instruments
    )
    if options.json:
        write_json(told_of_comparison(comparison))
    else:
        _show(comparison)
    worse = [str(metric) for metric in comparison.values() if metric.verdict == "worse"]
    if worse and options.fail_if_worse:
        sys.stderr.write(f"rageval: {printable('; '.join(worse))}\n")
        return 1
    return 0


def _metrics(report: Any) -> list[str]:
    return list(report.summary())


def _show(comparison: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.comparison import COMPARISON_HEADINGS, comparison_cells

    table = Table(title=escape(comparison.title), title_justify="left", title_style="bold", caption_justify="left")
    for heading in COMPARISON_HEADINGS:
        words = heading in ("metric", "verdict")
        table.add_column(heading, justify="left" if words else "right")
    table.caption = "+ and −: pairs in which the candidate is better, worse"
    for metric in comparison.values():
        name, verdict, *numbers = (escape(printable(cell)) for cell in comparison_cells(metric))
        colour = _COLOURS.get(verdict, "default")
        table.add_row(name, f"[{colour}]{verdict}[/{colour}]", *numbers)
    out = console()
    out.print(table)
    show_notes(comparison.notes, out)
