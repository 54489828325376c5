"""`rageval rubric-study SHEETS`: compare judges, scales and examples for grading by a rubric."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_rageval.cli.arguments import add_quiet_option, parse_pairs
from langchain_rageval.errors import ConfigError

_SCALE = re.compile(r"(-?\d+)-(-?\d+)")
_WIDTH = 160  # columns of a pipe, so that no number is cut
_EXAMPLES = {"per_grade": "examples", "none": "no examples"}


def add_to(commands: Any) -> None:
    """Add the command `rageval rubric-study` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "rubric-study", help="grade the same answers with several judges and scales, with and without graded examples"
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", help="samples with answers; metadata.model names the model that answered")
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        help="judge as for `rageval evaluate`; may be repeated (default: offline)",
    )
    parser.add_argument("--base-url", metavar="URL", help="address of the judges")
    parser.add_argument(
        "--temperature", type=float, default=0.1, help="temperature of the judges (default: %(default)s)"
    )
    parser.add_argument(
        "--scale",
        action="append",
        default=[],
        metavar="LOW-HIGH",
        help="lowest and highest grade; may be repeated (default: 0-3)",
    )
    parser.add_argument(
        "--examples",
        choices=("both", *_EXAMPLES),
        default="both",
        help="graded example answers in the prompt: one per grade, none, or a study of both (default: %(default)s)",
    )
    parser.add_argument("--labels", metavar="KEY", help="metadata key of human grades, by criterion or as one number")
    parser.add_argument(
        "--label-scale", default="0-3", metavar="LOW-HIGH", help="scale of the human grades (default: %(default)s)"
    )
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="JUDGE=INPUT,OUTPUT",
        help="price of a million input and output tokens; may be repeated",
    )
    parser.add_argument(
        "--max-concurrency",
        type=int,
        default=16,
        help="maximum number of concurrent model calls (default: %(default)s)",
    )
    parser.add_argument("--journal", metavar="FILE", help="SQLite file for finished grades, which are not paid again")
    parser.add_argument("--out", metavar="FILE", help="write the report with all grades as JSON lines")
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the study and show the table."""
    from langchain_rageval.cli.failures import check_not_all_failed, warn_about_failures
    from langchain_rageval.data.loading import load_samples
    from langchain_rageval.models.loading import load_judge
    from langchain_rageval.trust.rubric_study import rubric_study

    judges = {
        name: load_judge(name, base_url=options.base_url, temperature=options.temperature)
        for name in options.judge or ["offline"]
    }
    sheets = list(load_samples(options.file))
    if not sheets:
        raise ConfigError(f"{options.file} contains no samples")
    labels = None
    if options.labels:
        labels = {s.id: s.metadata[options.labels] for s in sheets if s.metadata.get(options.labels) is not None}
        if not labels:
            raise ConfigError(f"--labels {options.labels}: no sample has this key in its metadata")
    study = rubric_study(
        judges,
        _rubrics(options.scale or ["0-3"], options.examples),
        sheets,
        labels,
        price={name: _parse_price(name, price) for name, price in parse_pairs(options.price, "--price").items()},
        label_scale=_parse_scale(options.label_scale, "--label-scale"),
        max_concurrency=options.max_concurrency,
        journal=options.journal,
        progress=not options.quiet,
    )
    check_not_all_failed(study.report)
    if options.out:
        study.report.to_jsonl(options.out)
    _show(study)
    warn_about_failures(study.report)
    return 0


def _rubrics(scales: Sequence[str], examples: str) -> Mapping[str, Mapping[str, Any]]:
    choices = _EXAMPLES if examples == "both" else {examples: _EXAMPLES[examples]}
    return {
        f"{scale}, {label}": {"scale": _parse_scale(scale, "--scale"), "examples": choice}
        for scale in scales
        for choice, label in choices.items()
    }


def _parse_scale(text: str, option: str) -> tuple[int, int]:
    match = _SCALE.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{option} takes LOW-HIGH, such as 0-3, got {text!r}")
    return int(match[1]), int(match[2])


def _parse_price(judge: str, text: str) -> tuple[float, float]:
    try:
        input_price, output_price = map(float, text.split(","))
    except ValueError:
        raise ConfigError(f"--price takes JUDGE=INPUT,OUTPUT, such as {judge}=2.5,10, got {judge}={text}") from None
    return input_price, output_price


def _show(study: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.trust.study_row import HEADINGS, study_cells

    table = Table(title=escape(study.title), title_justify="left", title_style="bold")
    for heading in HEADINGS:
        is_text = heading in ("judge", "rubric")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=is_text)
    for row in study:
        table.add_row(*(escape(cell) for cell in study_cells(row)))
    out = console()
    if not out.is_terminal:
        out.width = _WIDTH
    out.print(table)
    show_notes(study.notes, out)
