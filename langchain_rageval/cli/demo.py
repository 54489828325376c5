"""`rageval demo`: the bundled Russian and English answers, scored."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import Any

from langchain_rageval.cli.evaluate import add_judge_options, judge_of, refuse_all_failed, warn_of_failures


def add_to(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="score the bundled Russian and English answers; needs no key and no network by default"
    )
    parser.set_defaults(run=run)
    add_judge_options(parser)


def run(options: argparse.Namespace) -> int:
    """Score the bundled samples, and show the table and some samples with their evidence."""
    from langchain_rageval.cli.tables import console, show_notes, show_sample, summary_table
    from langchain_rageval.evaluation import evaluate
    from langchain_rageval.loading import load_samples
    from langchain_rageval.metrics.faithfulness import faithfulness

    with as_file(files("langchain_rageval") / "demo_data" / "samples.jsonl") as path:
        samples = list(load_samples(path))
    report = evaluate(
        samples, faithfulness(judge_of(options)), max_concurrency=options.max_concurrency, timeout=options.timeout
    )
    refuse_all_failed(report)
    slices: dict[str, list[Any]] = {}
    for row in report.rows:
        slices.setdefault(f"{row.sample.metadata['language']}, {row.sample.metadata['answer_is']}", []).append(row)
    out = console()
    out.print(summary_table(f"{len(report)} answers to questions over Wikipedia, in Russian and English", slices))
    for rows in slices.values():
        show_sample(rows[0], rows[0].scores["faithfulness"], out)
    show_notes(report.notes, out)
    warn_of_failures(report)
    return 0
