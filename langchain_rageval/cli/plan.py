"""`rageval plan`: estimate the cost of an evaluation, or of a generated test set."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from langchain_rageval.cli.evaluate import parse_gates, stopping_rule
from langchain_rageval.cli.inputs import build_audit, load_inputs, parse_prices
from langchain_rageval.cli.json_output import generation_plan_object, plan_object, write_json
from langchain_rageval.cli.terminal import console, show_notes, table_of
from langchain_rageval.cli.testsets import check_documents, parse_distribution, parse_focus
from langchain_rageval.data.documents import load_documents
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.options import Batch
from langchain_rageval.evaluation.planning import Plan, plan, plan_table
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.loading import load_judge
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.rehearsal import GenerationPlan, generation_table

_OF_AN_EVALUATION = ("audit", "batch", "fail_under", "journal", "no_worse", "pilot", "until_decided")


def run_plan(options: argparse.Namespace) -> int:
    """Estimate the cost and show it."""
    if options.generate:
        for name in _OF_AN_EVALUATION:
            if getattr(options, name):
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is for the plan of an evaluation: omit it, or omit --generate")
        generation_plan = _plan_generation(options)
        if options.json:
            write_json(generation_plan_object(generation_plan))
        else:
            _show(generation_plan, *generation_table(generation_plan))
        return 0
    if Path(options.file).is_dir():
        raise ConfigError(f"{options.file} is a folder: add --generate to estimate a test set from its documents")
    samples, metrics = load_inputs(options)
    gates = parse_gates(options)
    estimate = plan(
        samples,
        metrics,
        journal=options.journal,
        price=parse_prices(options),
        until=stopping_rule(options, gates),
        batch=Batch() if options.batch else None,
        audit=build_audit(options),
        pilot=options.pilot,
        no_worse=options.no_worse,
    )
    if options.json:
        write_json(plan_object(estimate))
    else:
        _show(estimate, *plan_table(estimate))
    return 0


def _plan_generation(options: argparse.Namespace) -> GenerationPlan:
    check_documents(options.file)
    judge = load_judge(options.judge, base_url=options.base_url, temperature=options.temperature, mode=options.mode)
    generator = TestsetGenerator(
        judge,
        embeddings=HashingEmbeddings(),  # no text is embedded
        distribution=parse_distribution(options.distribution, options.persona),
        size=options.size,
        seed=options.seed,
        tree=options.tree,
        closed_book=judge if options.closed_book else None,
        focus=parse_focus(options.focus),
        stratify=options.stratify,
        language=options.language,
        price=parse_prices(options),
    )
    return generator.plan(list(load_documents(options.file)))


def _show(plan: Plan | GenerationPlan, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the expected cost of each metric, or of each step of a generation, and the total."""
    out = console()
    out.print(table_of(headings, rows, title=plan.title, total=True))
    show_notes(plan.notes, out)
