"""`rageval plan FILE`: estimate the cost of `rageval evaluate FILE`, or of `rageval generate FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import (
    add_audit_options,
    add_input_options,
    add_judge_options,
    add_price_option,
    parse_prices,
)
from langchain_rageval.cli.evaluate import parse_gates, stopping_rule
from langchain_rageval.cli.generate import add_row_options, check_documents, parse_distribution, parse_focus
from langchain_rageval.cli.inputs import build_audit, load_inputs
from langchain_rageval.cli.json_output import add_json_option, generation_plan_object, plan_object, write_json
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.testset.generation_plan import GenerationPlan


_OF_AN_EVALUATION = ("audit", "batch", "fail_under", "journal", "pilot", "until_decided")


def add_to(commands: Any) -> None:
    """Add the command `rageval plan` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="estimate the calls and tokens of `rageval evaluate` or `rageval generate`, without calls or from a pilot",
    )
    parser.set_defaults(run=run)
    add_input_options(parser)
    add_judge_options(parser)
    add_price_option(parser)
    add_audit_options(parser)
    parser.add_argument(
        "--fail-under", action="append", default=[], metavar="METRIC=NUMBER", help="gate of the run; may be repeated"
    )
    parser.add_argument(
        "--until-decided",
        action="store_true",
        help="the run stops when every --fail-under is decided; --pilot estimates when that is",
    )
    parser.add_argument("--batch", action="store_true", help="show the number of waves through a batch API")
    parser.add_argument(
        "--pilot",
        type=int,
        metavar="N",
        help="score N samples in earnest, such as 20, and estimate from their cost, and for --until-decided from their "
        "scores; --journal stores the scores for the run",
    )
    parser.add_argument("--journal", metavar="FILE", help="journal of the run; scores in it cost nothing")
    generation = parser.add_argument_group("generation of a test set")
    generation.add_argument(
        "--generate",
        action="store_true",
        help="FILE is a file or folder of documents: estimate `rageval generate` with --judge as writer and critic; "
        "--json then has questions and steps in place of samples and metrics, with most_calls and most_tokens",
    )
    add_row_options(generation)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Estimate the cost and show it."""
    from langchain_rageval.cli.tables import show_generation_plan, show_plan
    from langchain_rageval.evaluation.batch import Batch
    from langchain_rageval.evaluation.planning import plan

    if options.generate:
        for name in _OF_AN_EVALUATION:
            if getattr(options, name):
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is for the plan of an evaluation: omit it, or omit --generate")
        generation_plan = _plan_generation(options)
        if options.json:
            write_json(generation_plan_object(generation_plan))
        else:
            show_generation_plan(generation_plan)
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
    )
    if options.json:
        write_json(plan_object(estimate))
    else:
        show_plan(estimate)
    return 0


def _plan_generation(options: argparse.Namespace) -> GenerationPlan:
    from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
    from langchain_rageval.models.loading import load_judge
    from langchain_rageval.testset.generator import TestsetGenerator
    from langchain_rageval.testset.readers import load_documents

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
