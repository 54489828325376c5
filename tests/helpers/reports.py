"""Builders of scores, rows and reports without a run."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_rageval import Finding, Report, Row, Sample, Score
from langchain_rageval.data.schema import Failure, Usage

FACTLESS = "the answer states no facts"
INSTRUMENT = "0123456789abcdef.fedcba9876543210"
LOST = Failure(error="APIConnectionError", message="Connection error.", step="verify_statements")
STATEMENT = Finding(kind="statement", number=1, text="Munich is old.", verdict="supported", cites=["1.1"])


def scored(value: float, metric: str = "faithfulness", **more: Any) -> Score:
    """Return a score with a value and, unless given, the same known instrument for all."""
    return Score(**{"metric": metric, "aspect": "grounding", "value": value, "instrument": INSTRUMENT, **more})


def unscored(why: str = FACTLESS, metric: str = "faithfulness", **more: Any) -> Score:
    """Return an unscored score."""
    return Score(**{"metric": metric, "aspect": "grounding", "unscored": why, **more})


def failed(metric: str = "faithfulness", **more: Any) -> Score:
    """Return a failed score."""
    return Score(**{"metric": metric, "aspect": "grounding", "failure": LOST, **more})


def row(index: int, *scores: Score, **sample: Any) -> Row:
    """Return a row with these scores; keyword arguments are fields of the sample."""
    given = {"id": f"q-{index}", "question": "When was Munich founded?", "answer": "In 1158.", **sample}
    return Row(index=index, sample=Sample(**given), scores={score.metric: score for score in scores})


def report_of(*scores: Score | Sequence[Score], notes: Sequence[str] = ()) -> Report:
    """Return a report with a row for each score, or for each list of scores."""
    given = [[part] if isinstance(part, Score) else part for part in scores]
    return Report([row(index, *part) for index, part in enumerate(given)], list(notes))


START = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday


def stream(means: Sequence[float | None], per_day: int = 50, seed: int = 1, **more: Any) -> Report:
    """Return a report of days with these means of faithfulness; a day without a mean has no rows.

    Args:
        means: mean of each day.
        per_day: number of rows of a day.
        seed: seed of the values.
        more: `noise`, True for a second metric; `question`, the beginning of the questions; `version`, a tag.
    """
    rng, rows = random.Random(seed), []
    for day, mean in enumerate(means):
        for number in range(per_day if mean is not None else 0):
            noise = [scored(number % 5 / 10, "noise", direction="lower")] if more.get("noise") else []
            question = f"{more.get('question', 'Q')}, {day} {number}?"
            one = row(
                len(rows), scored(float(rng.random() < (mean or 0))), *noise, id=f"{day}-{number}", question=question
            )
            tags = {"version": more.get("version", "1" if day < 10 else "2")}
            rows.append(one.model_copy(update={"time": START + timedelta(days=day, minutes=number), "tags": tags}))
    return Report(rows)


def paid(calls: int, read: int | None, written: int | None, seconds: float) -> Usage:
    """Return the usage of a score."""
    return Usage(calls=calls, input_tokens=read, output_tokens=written, seconds=seconds)
