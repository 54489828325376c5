"""Qualification: what `qualify_judge` found, step by step, and which metrics the judge is fit for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from langchain_rageval.report.html_table import html_table
from langchain_rageval.statistics import bounded_mean_interval

Fitness = Literal["unfit", "cannot tell", "fit with care", "fit"]

STEP_HEADINGS = (
    "step",
    "verdict",
    "right",
    "interval",
    "unread",
    "words",
    "cited",
    "shown",
    "flips",
    "order",
    "length",
)
COST_HEADINGS = ("step", "rung", "valid at once", "answered", "calls", "tokens", "seconds")
METRIC_HEADINGS = ("metric", "verdict", "why")
LEGEND = (
    "Right: of the labelled verdicts, with the 95% interval. Unread: as many are right by one answer to everything, or "
    "by a guess. Words: by word overlap. Cited: citations to the point. Shown: right verdicts with one. Flips, order, "
    "length: verdicts that change when asked again, in reverse order, with a needless sentence in each chunk."
)
_NONE = "–"


@dataclass(frozen=True)
class Share:
    """A share of a count, with its 95% interval.

    Attributes:
        hits: that count; a part of one where several asks are averaged.
        of: how many there are.
        value: hits / of, from 0 to 1; None when there are none.
        low: lower end of the interval; None without a value.
        high: its upper end.
    """

    hits: float
    of: int
    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def over(cls, values: Sequence[float]) -> Share:
        """The mean of values from 0 to 1, each of which counts as one."""
        if not values:
            return cls(0, 0, None, None, None)
        low, high = bounded_mean_interval(values)
        return cls(sum(values), len(values), sum(values) / len(values), low, high)

    def __str__(self) -> str:
        """Counts, the share and its interval."""
        return _NONE if self.value is None else f"{self.hits:.3g} of {self.of}, {self.percent} {self.interval}"

    @property
    def percent(self) -> str:
        """The share alone."""
        return _NONE if self.value is None else f"{self.value:.0%}"

    @property
    def interval(self) -> str:
        """The interval alone."""
        return _NONE if self.low is None else f"[{self.low:.0%}, {self.high:.0%}]"

    @property
    def rest(self) -> Share:
        """The share of the others."""
        if self.value is None or self.low is None or self.high is None:
            return self
        return Share(self.of - self.hits, self.of, 1 - self.value, 1 - self.high, 1 - self.low)


@dataclass(frozen=True)
class Citations:
    """How well right verdicts are shown.

    Attributes:
        precision: of the sentences cited for a verdict, the share that decides it; a mean over verdicts.
        recall: of the right verdicts that owe a citation, the share with one that decides it.
        first: of the sentences cited, the share that stands in the first chunk.
        due_first: that share, if each verdict cited what decides it.
    """

    precision: Share
    recall: Share
    first: Share
    due_first: float


@dataclass(frozen=True)
class StepQualification:
    """What was found of one step. Shares that do not apply to it have no value.

    Attributes:
        step: its name.
        verdict: "fit", "fit with care", "unfit" or "cannot tell"; the worst that any figure says.
        reasons: the figures that decided it, the worst first.
        rung: by which most readable replies came; None for embeddings.
        valid: questions that were answered wholly at once, of those that were answered by the judge at all.
        answered: questions that had an answer in the end, of the same.
        right: verdicts of the first ask that are right, of those that there are.
        unread: the share of these that the best judge with one answer to everything, or for embeddings a guess, would
            have right.
        words: the share of all labelled verdicts that word overlap has right: the offline judge, or its embeddings.
        said: how often each verdict came, in the first ask.
        flips: verdicts that another ask of the same question changes; without a value when nothing is asked twice.
        citations: how well verdicts are shown; None where nothing is cited.
        order_bias: verdicts that change when the chunks, or the statements, stand in reverse order.
        length_bias: verdicts that change when a needless sentence stands at the end of each chunk.
        calls: of the model.
        tokens: read and written; None when the model reports none.
        seconds: spent in these calls, added up over calls side by side.
        lost: questions that the transport lost.
        error: the first error of these.
    """

    step: str
    verdict: Fitness
    reasons: Sequence[str]
    rung: str | None
    valid: Share
    answered: Share
    right: Share
    unread: float
    words: float
    said: Mapping[str, int]
    flips: Share
    citations: Citations | None
    order_bias: Share
    length_bias: Share
    calls: int
    tokens: int | None
    seconds: float
    lost: int = 0
    error: str = ""


@dataclass(frozen=True)
class Qualification:
    """Whether a judge can be believed, in one language.

    Attributes:
        judge: which model.
        language: of the labelled items.
        repeats: how often each question was asked as it is.
        steps: step to what was found of it.
        verdict: metric to "fit", "fit with care", "unfit" or "cannot tell": the worst of its steps.
        reasons: metric to the figures that say so.
        notes: what a reader of the figures should know.
    """

    judge: str
    language: str
    repeats: int
    steps: Mapping[str, StepQualification]
    verdict: Mapping[str, Fitness]
    reasons: Mapping[str, str]
    notes: Sequence[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Who was asked what."""
        asked = "once" if self.repeats == 1 else f"{self.repeats} times"
        return f"{self.judge} in {self.language!r}, each question asked {asked}"

    def step_cells(self) -> Iterator[list[str]]:
        """A text for each of `STEP_HEADINGS`, step by step."""
        for step in self.steps.values():
            right, citations = step.right, step.citations
            yield [
                step.step,
                step.verdict,
                f"{right.hits:.0f}/{right.of}",
                _NONE if right.low is None else f"{right.low:.0%}–{right.high:.0%}",
                f"{step.unread:.0%}",
                f"{step.words:.0%}",
                citations.precision.percent if citations else _NONE,
                citations.recall.percent if citations else _NONE,
                *(share.percent for share in (step.flips, step.order_bias, step.length_bias)),
            ]

    def cost_cells(self) -> Iterator[list[str]]:
        """A text for each of `COST_HEADINGS`, step by step."""
        for step in self.steps.values():
            tokens = _NONE if step.tokens is None else f"{step.tokens:,}"
            shares = (step.valid.percent, step.answered.percent)
            yield [step.step, step.rung or _NONE, *shares, str(step.calls), tokens, f"{step.seconds:.1f}"]

    def metric_cells(self) -> Iterator[list[str]]:
        """A text for each of `METRIC_HEADINGS`, metric by metric."""
        yield from ([metric, verdict, self.reasons[metric]] for metric, verdict in self.verdict.items())

    def __str__(self) -> str:
        """The verdicts with their reasons."""
        lines = [f"{metric}: {verdict}. {reason}" for metric, verdict, reason in self.metric_cells()]
        return "\n".join([self.title, *lines, *self.notes])

    def _repr_html_(self) -> str:
        """Both tables, for a notebook."""
        steps = html_table(self.title, STEP_HEADINGS, self.step_cells(), [LEGEND])
        cost = html_table("Replies and cost", COST_HEADINGS, self.cost_cells())
        return steps + cost + html_table("Fit for", METRIC_HEADINGS, self.metric_cells(), self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON takes it."""
        return asdict(self)

    def to_json(self, path: str | Path) -> None:
        """Write everything to a file."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=2)
        Path(path).write_text(text + "\n", encoding="utf-8")
