"""`rageval demo`: score the Russian and English answers that come with the package."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.resources import as_file, files

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_rageval._internal.page import pluralize
from langchain_rageval.cli.inputs import build_metrics
from langchain_rageval.cli.report_view import check_not_all_failed, show_diagnosis, warn_about_failures
from langchain_rageval.cli.selection import parse_metric_names
from langchain_rageval.cli.terminal import check_writable, console, open_page, print_indented, shorten, show_notes
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Row, Score
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.report.summary import summarise
from langchain_rageval.report.tables import number_text

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


COLOURS = {"supported": "green", "contradicted": "red", "absent": "yellow"}
"""Colours of the verdicts on the statements of an answer."""


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
    out = console()
    out.print(f"[bold]{len(report)} answers to questions over Wikipedia, in Russian and English.[/bold]")
    show_diagnosis(report, out)
    out.print()
    out.print(_means_by_kind(report.rows))
    for row in report.rows:
        if row.sample.id in SHOWN:
            _show_sample(row, row.scores["faithfulness"], out)
    show_notes([" ".join(report.notes)] if report.notes else [], out)
    for title, command in NEXT_COMMANDS.items():
        out.print(f"[bold]{title}[/bold] {command}", soft_wrap=True)
    warn_about_failures(report)
    if options.open:
        report.to_html(PAGE)
        out.print(f"\nReport written to {PAGE}", soft_wrap=True)
        open_page(PAGE)


def _means_by_kind(rows: Iterable[Row]) -> Table:
    """Return a table of the mean of each metric for each kind of answer, and the cost of the run."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(KINDS[row.sample.metadata["answer_is"]], []).append(row)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title_justify="left", caption_justify="left")
    table.add_column("Mean score for", no_wrap=True)
    for heading in kinds:
        table.add_column(heading, justify="right", max_width=17)
    summaries = [summarise(of_kind) for of_kind in kinds.values()]
    whole = summarise([row for of_kind in kinds.values() for row in of_kind])
    for name in whole:
        table.add_row(name, *(number_text(summary[name].mean) for summary in summaries))
    cost = f"{pluralize(whole.usage.calls, 'call')}, {whole.usage.tokens or 0:,} tokens"
    table.caption = f"– no score applies. {cost}, {sum(metric.failed for metric in whole.values())} failed."
    return table


def _show_sample(row: Row, score: Score, out: Console) -> None:
    """Print a sample, its score, and each statement with verdict and cited sentences; without them, the reason."""
    sentences = NumberedContexts.of(row.sample.contexts or []).sentences
    out.print()
    print_indented(out, "[bold]Question[/bold] ", f"[bold]{escape(shorten(row.sample.question))}[/bold]")
    print_indented(out, "  Answer ", escape(shorten(row.sample.answer or "")))
    value = "–" if score.value is None else f"{score.value:.2f}"
    comment = "" if score.findings else escape(shorten(score.comment))
    print_indented(out, f"  {score.metric} [bold]{value}[/bold] ", comment, indent=4)
    for finding in score.findings:
        colour = COLOURS.get(finding.verdict, "default")
        verdict = f"    [{colour}]{escape(shorten(finding.verdict))}[/{colour}] "
        print_indented(out, verdict, escape(shorten(finding.text)), indent=6)
        for number in [n for n in finding.cites if n in sentences]:
            print_indented(out, "      ", f"[dim]{escape(shorten(f'[{number}] {sentences[number]}'))}[/dim]")
