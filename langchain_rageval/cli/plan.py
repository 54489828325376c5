"""`rageval plan FILE`: estimate the cost of `rageval evaluate FILE`."""

from __future__ import annotations

import argparse
from typing import Any

from langchain_rageval.cli.arguments import add_audit_options, add_input_options, add_judge_options
from langchain_rageval.cli.evaluate import parse_gates, stopping_rule
from langchain_rageval.cli.inputs import build_audit, load_inputs
from langchain_rageval.cli.json_output import add_json_option, plan_object, write_json


def add_to(commands: Any) -> None:
    """Add the command `rageval plan` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan", help="estimate the calls and tokens of `rageval evaluate`, without any call or from a pilot"
    )
    parser.set_defaults(run=run)
    add_input_options(parser)
    add_judge_options(parser)
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
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Estimate the cost and show it."""
    from langchain_rageval.cli.tables import show_plan
    from langchain_rageval.evaluation.batch import Batch
    from langchain_rageval.evaluation.planning import plan

    samples, metrics = load_inputs(options)
    gates = parse_gates(options)
    estimate = plan(
        samples,
        metrics,
        journal=options.journal,
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
