"""Scores, rows and reports without a run: plain ones, ones with all kinds of findings, and a rewritten question."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import chain, repeat
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


def row(index: int, *scores: Score, **fields: Any) -> Row:
    """Return a row with these scores; keyword arguments are fields of the row, such as `time`, or of the sample."""
    own = {name: fields.pop(name) for name in Row.model_fields.keys() & fields.keys()}
    given = {"id": f"q-{index}", "question": "When was Munich founded?", "answer": "In 1158.", **fields}
    return Row(index=index, sample=Sample(**given), scores={score.metric: score for score in scores}, **own)


def over(report: Report, **fields: Any) -> Report:
    """Return a report whose rows, or their samples, have these fields; of a function, what it returns for the row."""
    rows = []
    for one in report.rows:
        own = {name: value(one) if callable(value) else value for name, value in fields.items()}
        of_sample = {name: own.pop(name) for name in Sample.model_fields.keys() & own.keys()}
        rows.append(one.model_copy(update={"sample": one.sample.model_copy(update=of_sample), **own}))
    return Report(rows)


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
            fields = {"id": f"{day}-{number}", "time": START + timedelta(days=day, minutes=number)}
            fields |= {"question": question, "tags": {"version": more.get("version", "1" if day < 10 else "2")}}
            rows.append(row(len(rows), scored(float(rng.random() < (mean or 0))), *noise, **fields))
    return Report(rows)


def paid(calls: int, read: int | None, written: int | None, seconds: float) -> Usage:
    """Return the usage of a score."""
    return Usage(calls=calls, input_tokens=read, output_tokens=written, seconds=seconds)


HOSTILE = "<script>alert('1')</script> & \"quotes\" <img src=x onerror=y>"

CONTEXTS = ["Munich is the capital of Bavaria. It lies on the Isar.", "The Elbe flows through Dresden.", ""]


def statement(number, text, verdict, cites=(), kind="statement"):
    return Finding(kind=kind, number=number, text=text, verdict=verdict, reason=f"why {verdict}", cites=list(cites))


FINDINGS = [
    statement(1, "Munich lies on the Isar.", "supported", ["1.2"]),
    statement(2, "It lies in Saxony.", "contradicted", ["1.1", "2.1"]),
    statement(3, "It is old.", "absent"),
]


def sample(number, **others):
    defaults = {"id": f"sample-{number}", "question": f"Question {number}?", "answer": f"Answer {number} with Ёлка"}
    return Sample(**defaults | {"contexts": CONTEXTS, "references": ["It is on the Isar."]} | others)


def score(value, metric="faithfulness", **others):
    defaults = {"aspect": "grounding", "reason": "1 of 3.", "findings": FINDINGS, "instrument": INSTRUMENT}
    return Score(metric=metric, value=value, **defaults | others)


def report(values, **others):
    """Return a report with a row for each value; claim_noise fails in row 0 and is unscored in row 1."""
    noise = {"metric": "claim_noise", "direction": "lower", "instrument": INSTRUMENT}
    failure = Failure(error="JudgeOutputError", message="no JSON", step="verify_statements", raw_output="<oops>")
    noises = chain([failed(**noise, failure=failure), unscored(**noise)], repeat(scored(0.25, **noise)))
    rows = [
        Row(index=place, sample=sample(place), scores={"faithfulness": score(value), "claim_noise": other})
        for place, (value, other) in enumerate(zip(values, noises, strict=False))
    ]
    return Report(rows, **others)


HISTORY = [("user", "Кто основал Мюнхен?"), ("assistant", "Генрих Лев.")]
QUESTION = "А когда он умер?"
STANDALONE = "Когда умер Генрих Лев?"


def judged_as(text, verdict="rewritten", reason="он — это Генрих Лев"):
    """Return the finding about the question of a conversation."""
    return Finding(kind="standalone_question", number=1, text=text, verdict=verdict, reason=reason)


def turn_row(*findings, question=QUESTION, history=HISTORY, reason="1 of 3."):
    """Return a row with a history whose two scores have these findings."""
    names = ("faithfulness", "answer_relevance")
    scores = {name: score(0.5, name, findings=list(findings), reason=reason) for name in names}
    return Row(index=0, sample=sample(0, question=question, history=history), scores=scores)


class Tags(HTMLParser):
    """Tags and texts of HTML, whose tags have no other attributes than these."""

    def __init__(self, html, attributes=("style",)):
        super().__init__()
        self.opened, self.closed, self.texts, self.attributes = [], [], [], {*attributes}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        assert {name for name, _ in attrs} <= self.attributes

    def handle_endtag(self, tag):
        self.closed.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def comparable(report):
    """Return the scores without what depends on the address of the server and on which metric asks first."""
    return {
        (row.sample.id, name): score.model_dump(exclude={"usage", "instrument"})
        for row in report.rows
        for name, score in row.scores.items()
    }
