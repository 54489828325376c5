"""`rageval demo`: score the Russian and English answers that come with the package."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files

from langchain_rageval.cli.inputs import build_metrics
from langchain_rageval.cli.report_view import (
    check_not_all_failed,
    comparison_table,
    show_diagnosis,
    show_sample,
    warn_about_failures,
)
from langchain_rageval.cli.selection import parse_metric_names
from langchain_rageval.cli.terminal import check_writable, console, open_page, show_notes
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Row
from langchain_rageval.evaluation.api import evaluate

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


def run_demo(options: argparse.Namespace) -> None:
    """Score the samples of the demo; print the diagnosis, the means, two samples with evidence, and next steps."""
    with as_file(files("langchain_rageval.cli") / "demo_data" / "samples.jsonl") as path:
        samples = list(load_samples(path))
    if options.open:
        check_writable("--open", PAGE)
    names = parse_metric_names(METRICS)
    metrics = build_metrics(options, names, names)
    report = evaluate(
        samples, metrics, max_concurrency=options.max_concurrency, timeout=options.timeout, progress=not options.quiet
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
