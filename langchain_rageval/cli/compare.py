"""`rageval compare BASELINE CANDIDATE`: compare two reports over the same samples."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.json_output import add_json_option, comparison_object, write_json
from langchain_rageval.cli.runs import path_of_run
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.slices import AUTO

if TYPE_CHECKING:
    from langchain_rageval.report.comparison import Comparison

_COLOURS = {"better": "green", "worse": "red", "no worse": "green", "inconclusive": "yellow"}


def add_to(commands: Any) -> None:
    """Add the command `rageval compare` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare", help="compare two reports over the same samples, metric by metric"
    )
    parser.set_defaults(run=run)
    parser.add_argument("baseline", help="report before the change, written by `rageval evaluate --out`")
    parser.add_argument("candidate", help="report after the change; samples are paired by id or question")
    parser.add_argument(
        "--runs", metavar="FOLDER", help="folder of the reports, which are then named as in `rageval runs FOLDER`"
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        help='largest deterioration that still counts as "no worse" (default: %(default)s)',
    )
    parser.add_argument(
        "--cluster",
        metavar="PATH",
        default=AUTO,
        help="field that groups dependent samples, such as metadata.document; by default the turns of a conversation "
        'are grouped, and "" groups nothing',
    )
    parser.add_argument(
        "--allow-different-instruments",
        action="store_true",
        help="also compare scores of different judges, prompts, options or versions",
    )
    parser.add_argument(
        "--rare-losses",
        action="store_true",
        help="wider intervals that hold also if a few samples lose nearly everything while most gain a little",
    )
    parser.add_argument(
        "--unpaired",
        action="store_true",
        help="compare the means of runs over different samples, such as production with development",
    )
    parser.add_argument(
        "--reweight",
        metavar="PATH",
        help="with --unpaired: compare at the baseline's shares of this field, such as language or metadata.topic",
    )
    parser.add_argument(
        "--fail-if-worse",
        action="store_true",
        help="exit with 1 if a metric is worse, has too few pairs to decide, or lost coverage; with 2 if nothing was "
        "compared",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Compare the reports and show the verdicts; with --fail-if-worse, raise the error of a comparison that fails."""
    from langchain_rageval.report.report import Report

    paths = (path_of_run(name, options.runs) for name in (options.baseline, options.candidate))
    baseline, candidate = map(Report.load, paths)
    if not set(_metrics(baseline)) & set(_metrics(candidate)):
        raise ConfigError(
            f"{options.baseline} and {options.candidate} have no metric in common: "
            f"{', '.join(_metrics(baseline)) or 'none'}; {', '.join(_metrics(candidate)) or 'none'}"
        )
    comparison = candidate.compare(
        baseline,
        options.margin,
        options.cluster or None,
        options.allow_different_instruments,
        rare_losses=options.rare_losses,
        paired=not options.unpaired,
        reweight=options.reweight or None,
    )
    if options.json:
        write_json(comparison_object(comparison))
    else:
        _show(comparison)
    if options.fail_if_worse:
        comparison.check()
    return 0


def _metrics(report: Any) -> list[str]:
    return list(report.summary())


def _show(comparison: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.report.comparison import comparison_cells

    table = Table(title=escape(comparison.title), title_justify="left", title_style="bold", caption_justify="left")
    for heading in comparison.headings:
        is_text = heading in ("metric", "verdict")
        table.add_column(heading, justify="left" if is_text else "right")
    is_paired = all(metric.samples is None for metric in comparison.values())
    counted = "+ and −: number of pairs in which the candidate is better or worse"
    table.caption = counted if is_paired else "samples: scored samples of candidate / baseline"
    for metric in comparison.values():
        name, verdict, *numbers = (escape(cell) for cell in comparison_cells(metric))
        colour = _COLOURS.get(verdict, "default")
        table.add_row(name, f"[{colour}]{verdict}[/{colour}]", *numbers)
    out = console()
    out.print(table)
    show_notes(comparison.notes, out)
