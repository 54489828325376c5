"""`rageval demo`: score the bundled Russian and English answers."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import add_judge_options, add_quiet_option, check_writable
from langchain_rageval.cli.browser import open_page
from langchain_rageval.cli.failures import check_not_all_failed, warn_about_failures
from langchain_rageval.cli.inputs import build_metrics
from langchain_rageval.cli.metric_selection import drop_embedding_metrics, parse_metric_names

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Row

PAGE = "rageval-demo.html"
"""File that --open writes, in the current folder."""

METRICS = "faithfulness,context_precision,context_recall,answer_similarity,answer_correctness"
"""Metrics of the demo, as for --metrics."""

KINDS = {
    "its own": "the right answer",
    "another question's": "answer to another question",
    "a refusal": "refusal to answer",
}
"""Headings of the kinds of answers in the bundled samples."""

SHOWN = ("rurag-392", "clapnq-34740418")
"""Ids of the samples that are shown with their evidence: a right answer and a wrong one."""

NEXT_COMMANDS = {
    "See every sample:": "rageval demo --open",
    "Score your own:": "rageval evaluate answers.jsonl --judge openai:gpt-4o-mini",
}
"""Commands to try after the demo, by what they are for."""


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
    """Score the bundled samples; show the diagnosis, the means, two samples with their evidence, and what to try."""
    from langchain_rageval.cli.report_view import comparison_table, show_diagnosis, show_sample
    from langchain_rageval.cli.tables import console, show_notes
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
        slices.setdefault(KINDS[row.sample.metadata["answer_is"]], []).append(row)
    out = console()
    out.print(f"[bold]{len(report)} answers to questions over Wikipedia, in Russian and English.[/bold]")
    show_diagnosis(report, out)
    out.print()
    out.print(comparison_table("Mean score for", slices))
    for row in report.rows:
        if row.sample.id in SHOWN:
            show_sample(row, row.scores["faithfulness"], out)
    show_notes([" ".join(report.notes)] if report.notes else [], out)
    for title, command in NEXT_COMMANDS.items():
        out.print(f"[bold]{title}[/bold] {command}", soft_wrap=True)
    warn_about_failures(report)
    if options.open:
        report.to_html(PAGE)
        out.print(f"\nReport written to {PAGE}", soft_wrap=True)
        open_page(PAGE)
    return 0
