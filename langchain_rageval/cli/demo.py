"""`rageval demo`: the bundled Russian and English answers, scored."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.evaluate import (
    add_judge_options,
    add_quiet_option,
    check_writable,
    metrics_of,
    refuse_all_failed,
    warn_of_failures,
)
from langchain_rageval.cli.metric_selection import names_in, without_embeddings
from langchain_rageval.cli.report import show_page

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Row

PAGE = "rageval-demo.html"
METRICS = (
    "faithfulness,answer_relevance,context_precision,context_recall,context_relevance,answer_similarity,"
    "answer_correctness,aspect_critique"
)


def add_to(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="score the bundled Russian and English answers; needs no key and no network by default"
    )
    parser.set_defaults(run=run)
    add_judge_options(parser)
    parser.add_argument("--open", action="store_true", help=f"write the report to {PAGE} and open it in a browser")
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Score the bundled samples, and show the table and some samples with their evidence."""
    from langchain_rageval.cli.tables import comparison_table, console, show_notes, show_sample
    from langchain_rageval.data.loading import load_samples
    from langchain_rageval.evaluation.api import evaluate

    with as_file(files("langchain_rageval.cli") / "demo_data" / "samples.jsonl") as path:
        samples = list(load_samples(path))
    if options.open:
        check_writable("--open", PAGE, "")
    names = names_in(METRICS)
    if options.embeddings is None and options.judge != "offline":
        names = without_embeddings(names)
    metrics = metrics_of(options, names)
    report = evaluate(
        samples,
        metrics,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        progress=not options.quiet,
    )
    refuse_all_failed(report)
    slices: dict[str, list[Row]] = {}
    for row in report.rows:
        slices.setdefault(f"{row.sample.metadata['language']}: {row.sample.metadata['answer_is']}", []).append(row)
    out = console()
    out.print(comparison_table(f"{len(report)} answers to questions over Wikipedia, in Russian and English", slices))
    for rows in slices.values():
        show_sample(rows[0], rows[0].scores["faithfulness"], out)
    show_notes(report.notes, out)
    warn_of_failures(report)
    if options.open:
        report.to_html(PAGE)
        out.print(f"\nReport written to {PAGE}", soft_wrap=True)
        show_page(PAGE)
    return 0
