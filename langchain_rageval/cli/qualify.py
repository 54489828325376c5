"""`rageval qualify`: test a judge on labelled questions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import (
    add_judge_options,
    add_price_option,
    add_quiet_option,
    parse_pairs,
    parse_prices,
)
from langchain_rageval.cli.inputs import build_embeddings, build_judge
from langchain_rageval.cli.json_output import add_json_option, write_json
from langchain_rageval.errors import BelowThreshold, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_rageval.trust.qualification import Fitness, Qualification

_LEVELS: Mapping[str, Sequence[Fitness]] = {"fit": ["fit"], "care": ["fit", "fit with care"]}


def add_to(commands: Any) -> None:
    """Add the command `rageval qualify` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "qualify", help="test a judge on labelled questions: which metrics is it fit for?"
    )
    parser.set_defaults(run=run)
    add_judge_options(
        parser, language="ru", language_help="language of the labelled questions: ru or en (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=2, help="how often each question is asked unchanged (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="METRIC=LEVEL",
        help="exit with 1 unless the judge is fit for the metric (LEVEL fit), or at least fit with care (care); may be "
        "repeated",
    )
    add_price_option(parser)
    add_quiet_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Check all options before the first call, then test the judge, write and show the results."""
    from langchain_rageval.cli.tables import show_qualification
    from langchain_rageval.trust.qualify_judge import qualify_judge

    required = _parse_requirements(options.require)
    if options.out and not (Path(options.out).resolve().parent.is_dir() and not Path(options.out).is_dir()):
        raise ConfigError(f"--out {options.out}: a file cannot be written there; choose another path")
    qualification = qualify_judge(
        build_judge(options),
        build_embeddings(options),
        options.language,
        repeats=options.repeats,
        max_concurrency=options.max_concurrency,
        price=parse_prices(options),
        timeout=options.timeout,
        progress=not options.quiet,
    )
    if options.out:
        qualification.to_json(options.out)
    if options.json:
        write_json(qualification.to_dict())
    else:
        show_qualification(qualification, written=options.out)
    _check(qualification, required)
    return 0


def _parse_requirements(items: Sequence[str]) -> dict[str, str]:
    from langchain_rageval.trust.fitness import STEPS_OF

    required = dict(parse_pairs(items, "--require"))
    for metric, level in required.items():
        if metric not in STEPS_OF:
            raise ConfigError(f"--require {metric}: unknown metric; use one of {', '.join(STEPS_OF)}")
        if level not in _LEVELS:
            accepted = "METRIC=fit (the judge must be fit) or METRIC=care (fit, or fit with care)"
            raise ConfigError(f"--require takes {accepted}, got {metric}={level}")
    return required


def _check(qualification: Qualification, required: Mapping[str, str]) -> None:
    verdicts = qualification.verdict
    missed = [metric for metric, level in required.items() if verdicts[metric] not in _LEVELS[level]]
    if missed:
        levels = {metric: " or ".join(_LEVELS[required[metric]]) for metric in missed}
        problems = (f"{metric}: required {levels[metric]}, got {verdicts[metric]}" for metric in missed)
        raise BelowThreshold("; ".join(problems))
