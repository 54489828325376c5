"""`rageval plan FILE`: what `rageval evaluate FILE` would cost."""

from __future__ import annotations

import argparse
from typing import Any

from langchain_rageval.cli import evaluate
from langchain_rageval.cli.json_output import add_json_option, told_of_plan, write_json


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan", help="calls and tokens that `rageval evaluate` would take, without a call"
    )
    parser.set_defaults(run=run)
    evaluate.add_input_options(parser)
    evaluate.add_judge_options(parser)
    parser.add_argument("--journal", help="of the run; what it holds costs nothing")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Rehearse, and show the table."""
    from langchain_rageval.cli.tables import show_plan
    from langchain_rageval.evaluation.planning import plan

    samples, metrics = evaluate.asked(options)
    planned = plan(samples, metrics, journal=options.journal)
    if options.json:
        write_json(told_of_plan(planned))
    else:
        show_plan(planned)
    return 0
