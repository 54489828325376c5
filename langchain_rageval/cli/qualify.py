"""`rageval qualify`: whether a judge can be believed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.evaluate import add_judge_options, embeddings_of, judge_of, pairs_in
from langchain_rageval.errors import BelowThreshold, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_rageval.trust.qualification import Fitness, Qualification

_LEVELS: Mapping[str, Sequence[Fitness]] = {"fit": ["fit"], "care": ["fit", "fit with care"]}


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "qualify", help="put labelled questions to a judge: which metrics is it fit for?"
    )
    parser.set_defaults(run=run)
    add_judge_options(parser, language="ru", of="of the labelled questions: ru or en (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=2, help="how often each question is asked as it is (default: %(default)s)"
    )
    parser.add_argument("--out", help="write everything there, as JSON")
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="METRIC=LEVEL",
        help="exit 1 unless the judge is fit for it (LEVEL fit), or at least with care (care); may be repeated",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(options: argparse.Namespace) -> int:
    """Check everything that can be checked before the first call, then ask, write and show."""
    from langchain_rageval.cli.tables import show_qualification
    from langchain_rageval.trust.qualify_judge import qualify_judge

    required = _required(options.require)
    if options.out and not (Path(options.out).resolve().parent.is_dir() and not Path(options.out).is_dir()):
        raise ConfigError(f"--out {options.out} is no place for a file; choose another")
    found = qualify_judge(
        judge_of(options),
        embeddings_of(options),
        options.language,
        repeats=options.repeats,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        progress=not options.quiet,
    )
    if options.out:
        found.to_json(options.out)
    show_qualification(found, written=options.out)
    _check(found, required)
    return 0


def _required(given: Sequence[str]) -> dict[str, str]:
    from langchain_rageval.trust.fitness import STEPS_OF

    required = dict(pairs_in(given, "--require"))
    for metric, level in required.items():
        if metric not in STEPS_OF:
            raise ConfigError(f"--require {metric}: verdicts are given on {', '.join(STEPS_OF)}")
        if level not in _LEVELS:
            raise ConfigError(f"--require takes METRIC=fit or METRIC=care, got {metric}={level}")
    return required


def _check(found: Qualification, required: Mapping[str, str]) -> None:
    missed = [metric for metric, level in required.items() if found.verdict[metric] not in _LEVELS[level]]
    if missed:
        told = "; ".join(
            f"{metric} is required to be {required[metric]}, it is {found.verdict[metric]}" for metric in missed
        )
        raise BelowThreshold(told)
