"""`rageval plan FILE`: estimate the cost of `rageval evaluate FILE`."""

from __future__ import annotations

import argparse
from typing import Any

from langchain_rageval.cli.arguments import add_input_options, add_judge_options, add_price_option, parse_prices
from langchain_rageval.cli.inputs import load_inputs
from langchain_rageval.cli.json_output import add_json_option, plan_object, write_json


def add_to(commands: Any) -> None:
    """Add the command `rageval plan` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan", help="estimate the calls and tokens of `rageval evaluate` without any call"
    )
    parser.set_defaults(run=run)
    add_input_options(parser)
    add_judge_options(parser)
    add_price_option(parser)
    parser.add_argument("--journal", metavar="FILE", help="journal of the run; scores in it cost nothing")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Estimate the cost and show it."""
    from langchain_rageval.cli.tables import show_plan
    from langchain_rageval.evaluation.planning import plan

    samples, metrics = load_inputs(options)
    estimate = plan(samples, metrics, journal=options.journal, price=parse_prices(options))
    if options.json:
        write_json(plan_object(estimate))
    else:
        show_plan(estimate)
    return 0
