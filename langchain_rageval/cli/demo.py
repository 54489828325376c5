"""`rageval demo`: score the bundled Russian and English answers."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import add_judge_options, add_quiet_option, check_writable
from langchain_rageval.cli.failures import check_not_all_failed, warn_about_failures
from langchain_rageval.cli.inputs import build_metrics
from langchain_rageval.cli.metric_selection import drop_embedding_metrics, parse_metric_names
from langchain_rageval.cli.report import open_page

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Row

PAGE = "rageval-demo.html"
"""File that --open writes, in the current folder."""

METRICS = (
    "faithfulness,answer_relevance,context_precision,context_recall,context_relevance,answer_similarity,"
    "answer_correctness,aspect_critique"
)
"""Metrics of the demo, as for --metrics."""


def add_to(commands: Any) -> None:
    """Add the command `rageval demo` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="score the bundled Russian and English answers; by default without a key and a network"
    )
    parser.set_defaults(run=run)
    add_judge_options(parser)
    parser.add_argument("--open", action="store_true", help=f"write the report to {PAGE} and open it in a browser")
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Score the bundled samples; show the summary and one sample of each kind with its evidence."""
    from langchain_rageval.cli.tables import comparison_table, console, show_notes, show_sample
    from langchain_rageval.data.loading import load_samples
    from langchain_rageval.evaluation.api import evaluate

    with as_file(files("langchain_rageval.cli") / "demo_data" / "samples.jsonl") as path:
        samples = list(load_samples(path))
    if options.open:
        check_writable("--open", PAGE, "")
    names = parse_metric_names(METRICS)
    if options.embeddings is None and options.judge != "offline":
        names = drop_embedding_metrics(names)
    metrics = build_metrics(options, names)
    report = evaluate(
        samples,
        metrics,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        progress=not options.quiet,
    )
    check_not_all_failed(report)
    slices: dict[str, list[Row]] = {}
    for row in report.rows:
        slices.setdefault(f"{row.sample.metadata['language']}: {row.sample.metadata['answer_is']}", []).append(row)
    out = console()
    out.print(comparison_table(f"{len(report)} answers to questions over Wikipedia, in Russian and English", slices))
    for rows in slices.values():
        show_sample(rows[0], rows[0].scores["faithfulness"], out)
    show_notes(report.notes, out)
    warn_about_failures(report)
    if options.open:
        report.to_html(PAGE)
        out.print(f"\nReport written to {PAGE}", soft_wrap=True)
        open_page(PAGE)
    return 0
