"""`rageval rubric-study SHEETS`: which judge, scale and examples grade well enough for their price."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_rageval.cli.evaluate import pairs_in
from langchain_rageval.cli.printable import printable
from langchain_rageval.errors import ConfigError

_SCALE = re.compile(r"(-?\d+)-(-?\d+)")
_WIDTH = 160  # of a pipe, so that no number is cut
_EXAMPLES = {"per_grade": "examples", "none": "no examples"}


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "rubric-study", help="grade the same answers by several judges, scales, with and without graded examples"
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", help="samples with answers; metadata.model says whose answer it is")
    parser.add_argument(
        "--judge", action="append", help="as for `rageval evaluate`; may be repeated (default: offline)", default=[]
    )
    parser.add_argument("--base-url", help="address of the judges' server")
    parser.add_argument("--temperature", type=float, default=0.1, help="of the judges (default: %(default)s)")
    parser.add_argument(
        "--scale", action="append", default=[], metavar="LOW-HIGH", help="may be repeated (default: 0-3)"
    )
    parser.add_argument(
        "--examples", choices=("both", *_EXAMPLES), default="both", help="graded answers shown (default: %(default)s)"
    )
    parser.add_argument("--labels", metavar="KEY", help="of the metadata: people's grades by criterion, or one number")
    parser.add_argument("--label-scale", default="0-3", metavar="LOW-HIGH", help="of the labels (default: %(default)s)")
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="JUDGE=READ,WRITTEN",
        help="of a million tokens",
    )
    parser.add_argument("--max-concurrency", type=int, default=16, help="model calls at a time (default: %(default)s)")
    parser.add_argument("--journal", help="keep finished grades in this SQLite file, and do not pay for them again")
    parser.add_argument("--out", help="write the report with all grades there, as JSON lines")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(options: argparse.Namespace) -> int:
    """Study, and show the table."""
    from langchain_rageval.cli.evaluate import refuse_all_failed, warn_of_failures
    from langchain_rageval.data.loading import load_samples
    from langchain_rageval.models.loading import load_judge
    from langchain_rageval.trust.rubric_study import rubric_study

    judges = {
        name: load_judge(name, base_url=options.base_url, temperature=options.temperature)
        for name in options.judge or ["offline"]
    }
    sheets = list(load_samples(options.file))
    if not sheets:
        raise ConfigError(f"{options.file} holds no samples")
    labels = None
    if options.labels:
        labels = {s.id: s.metadata[options.labels] for s in sheets if s.metadata.get(options.labels) is not None}
        if not labels:
            raise ConfigError(f"--labels {options.labels}: no sample has it in its metadata")
    study = rubric_study(
        judges,
        _rubrics(options.scale or ["0-3"], options.examples),
        sheets,
        labels,
        {name: _price(name, told) for name, told in pairs_in(options.price, "--price").items()},
        label_scale=_scale(options.label_scale, "--label-scale"),
        max_concurrency=options.max_concurrency,
        journal=options.journal,
        progress=not options.quiet,
    )
    refuse_all_failed(study.report)
    if options.out:
        study.report.to_jsonl(options.out)
    _show(study)
    warn_of_failures(study.report)
    return 0


def _rubrics(scales: Sequence[str], examples: str) -> Mapping[str, Mapping[str, Any]]:
    shown = _EXAMPLES if examples == "both" else {examples: _EXAMPLES[examples]}
    return {
        f"{scale}, {told}": {"scale": _scale(scale, "--scale"), "examples": choice}
        for scale in scales
        for choice, told in shown.items()
    }


def _scale(given: str, option: str) -> tuple[int, int]:
    match = _SCALE.fullmatch(given.strip())
    if not match:
        raise ConfigError(f"{option} takes LOW-HIGH, such as 0-3, got {given!r}")
    return int(match[1]), int(match[2])


def _price(judge: str, given: str) -> tuple[float, float]:
    try:
        read, written = map(float, given.split(","))
    except ValueError:
        raise ConfigError(f"--price takes JUDGE=READ,WRITTEN, such as {judge}=2.5,10, got {judge}={given}") from None
    return read, written


def _show(study: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.trust.rubric_study import HEADINGS, cells

    table = Table(title=escape(study.title), title_justify="left", title_style="bold")
    for heading in HEADINGS:
        named = heading in ("judge", "rubric")
        table.add_column(heading, justify="left" if named else "right", no_wrap=named)
    for row in study:
        table.add_row(*(escape(printable(cell)) for cell in cells(row)))
    out = console()
    if not out.is_terminal:
        out.width = _WIDTH
    out.print(table)
    show_notes(study.notes, out)
