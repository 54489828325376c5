"""Stopping rules: `Decided` and `Precise` end an evaluation when its samples, in random order, suffice."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, Self

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.inputs import AnyMetric, Drawn
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.report.files import Decision, Outcome
from langchain_rageval.report.gates import AGAINST_BASELINE
from langchain_rageval.report.report import Report
from langchain_rageval.statistics.confidence_sequence import ConfidenceSequence


@dataclass(frozen=True)
class Decided:
    """Rule to stop as soon as it is decided for every gate whether the mean over all samples reaches its threshold.

    Samples are asked about in random order. The answer to "may we stop?" is checked after each of them by confidence
    sequences, so looking often does not cause wrong decisions. `report.decisions` has the verdicts.

    Args:
        gates: name of a metric to its threshold, the lowest accepted mean, or the highest if lower is better.
        error: probability of a wrong decision about any of the gates, between 0 and 1.
        seed: seed of the random order.

    Raises:
        ConfigError: if there are no gates, or a threshold or the error is not a number in its range.
    """

    gates: Mapping[str, float]
    error: float = 0.05
    seed: int = 0
    _baseline: Report | None = field(default=None, repr=False)
    _margin: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        """Validate the options."""
        _check_error(self.error)
        _check_seed(self.seed)
        if self._baseline is None and (not isinstance(self.gates, Mapping) or not self.gates):
            raise ConfigError(
                f'Decided takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {self.gates!r}'
            )
        for name, threshold in self.gates.items():
            if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not isfinite(threshold):
                raise ConfigError(f"the threshold of {name} must be a number, got {threshold!r}")

    @classmethod
    def against(cls, report: Report, margin: float = 0.02, *, error: float = 0.05, seed: int = 0) -> Self:
        """Return the rule to stop as soon as the run is known to be better, no worse or worse than a baseline.

        Samples are paired by id. "No worse" means that the mean falls by at most the margin. While the mean gain so far
        is above the margin, a run that is no worse goes on until it is known to be better.

        Args:
            report: the baseline; every metric that both runs have is compared.
            margin: in the units of the metrics, at least 0.
            error: probability of a wrong decision about any of the metrics, between 0 and 1.
            seed: seed of the random order.

        Raises:
            ConfigError: if there is no report, or the margin or the error is not a number in its range.
        """
        if not isinstance(report, Report):
            raise ConfigError(f"Decided.against takes a report, got {type(report).__name__}; Report.load reads one")
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
            raise ConfigError(f"margin must be a number of at least 0, in the metrics' units, got {margin!r}")
        return cls({}, error, seed, report, margin)

    def _questions(self, metrics: Mapping[str, _Bounds], size: int) -> list[_Question]:
        if unknown := [name for name in self.gates if name not in metrics]:
            raise ConfigError(f"no metric of this run is called {unknown[0]!r}; it has {', '.join(metrics)}")
        compared = {} if self._baseline is None else self._compared(self._baseline, metrics)
        error = self.error / (len(self.gates) + len(compared))
        gates = [_Gate(name, metrics[name], size, error, threshold) for name, threshold in self.gates.items()]
        paired = [
            _PairedGate(name, metrics[name], size, error, self._margin, scores) for name, scores in compared.items()
        ]
        for question in paired:
            if question.metric in self.gates:
                question.key = f"{question.metric}{AGAINST_BASELINE}"
        return [*gates, *paired]

    def _compared(self, baseline: Report, metrics: Mapping[str, _Bounds]) -> dict[str, Mapping[str, Score]]:
        """Return the baseline's scores, by sample id, of the metrics that are compared with it."""
        measured = {name for row in baseline.rows for name in row.scores}
        shared = {name: bounds for name, bounds in metrics.items() if name in measured}
        if not shared:
            raise ConfigError(
                f"the baseline has none of the metrics {', '.join(metrics)}; it has {', '.join(measured) or 'none'}"
            )
        for name, bounds in shared.items():
            known = {bounds.instrument, *(score.instrument for score in baseline.scores(name).values())}
            if len(known) > 1 and not any("unknown" in instrument or not instrument for instrument in known):
                raise ConfigError(
                    f"another instrument (judge, prompts, options or version) scored {name} in the baseline: the "
                    "difference cannot be attributed to the systems; score both alike"
                )
        return {name: baseline.scores(name) for name in shared}


@dataclass(frozen=True)
class Precise:
    """Rule to stop as soon as the interval of every metric is narrow enough.

    Args:
        half_width: half of the accepted width of the interval, in the units of the metrics.
        error: probability that any of the intervals misses its mean, between 0 and 1.
        seed: seed of the random order of the samples.

    Raises:
        ConfigError: if an option is not a number in its range.
    """

    half_width: float
    error: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the options."""
        _check_error(self.error)
        _check_seed(self.seed)
        width = self.half_width
        if isinstance(width, bool) or not isinstance(width, int | float) or not isfinite(width) or width <= 0:
            raise ConfigError(f"half_width must be a number above 0, got {width!r}")

    def _questions(self, metrics: Mapping[str, _Bounds], size: int) -> list[_Question]:
        error = self.error / len(metrics)
        return [_Precision(name, bounds, size, error, self.half_width) for name, bounds in metrics.items()]


Until = Decided | Precise

_ENDLESS = 10**9  # samples


class _Bounds(NamedTuple):
    """Range, direction and configuration of a metric.

    Attributes:
        low: lowest value.
        high: highest value.
        direction: which values are better.
        instrument: identifies the configuration.
        audited: share of the samples that a strong judge scores, too; None if the metric is not audited.
    """

    low: float
    high: float
    direction: Direction
    instrument: str
    audited: float | None = None


class _Question(ABC):
    """A question about the mean of one metric, with the key of its decision; subclasses say when it is answered."""

    required = ""

    def __init__(self, metric: str, low: float, high: float, size: int, error: float, watched: Sequence[float]) -> None:
        self.metric = self.key = metric
        self.sequence = ConfidenceSequence(size, error, low=low, high=high, watched=watched)

    def add(self, row: Row, *, is_audited: bool) -> None:
        """Take the next row of the random order into account; without a score, which the budget left out, ignore it."""
        if self.metric in row.scores:
            self._count(row.scores[self.metric], row, is_audited)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the mean."""
        return self.sequence.interval

    @property
    def note(self) -> Note | None:
        """Note for the report; None if there is nothing to say."""
        return None

    @abstractmethod
    def _count(self, score: Score, row: Row, is_audited: bool) -> None:
        """Add the value of a score to the sequence, or take a sample without one out of the set."""

    @abstractmethod
    def verdict(self) -> Outcome:
        """Return the answer."""

    def is_answered(self) -> bool:
        """Return True if no further samples are needed."""
        return self.verdict() != "undecided"


class _MeanQuestion(_Question):
    """A question about the mean of a metric, or, if it is audited, about the strong judge's mean.

    The value of an audited metric is the cheap judge's, corrected where the strong judge scored: by their difference
    over the share of the audit. Its expectation is the strong judge's mean, its range is wider, and the values are
    draws from a set without end, because the strong judge's are unknown for most samples.

    Where the strong judge should have given a score and gave none, the lower end of the interval assumes the lowest
    value, and the upper end the highest one.
    """

    def __init__(self, metric: str, bounds: _Bounds, size: int, error: float, watched: Sequence[float]) -> None:
        self._limits, self._share = (bounds.low, bounds.high), bounds.audited
        low, high = self._limits
        if self._share is not None:
            width, size = (high - low) / self._share, _ENDLESS
            low, high = high - width, low + width
        super().__init__(metric, low, high, size, error, watched)
        self._highest = self.sequence  # a sequence of its own as soon as a value is unknown
        self._unknown = 0
        self._whose = "" if self._share is None else " of the strong judge's mean"

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the mean, within the range of the metric."""
        (low, _), (_, high) = self.sequence.interval, self._highest.interval
        return max(low, self._limits[0]), min(high, self._limits[1])

    @property
    def note(self) -> Note | None:
        """Note on audited samples without a score of the strong judge; None if there are none."""
        return Note("audit-without-score", metric=self.metric, count=self._unknown) if self._unknown else None

    def _count(self, score: Score, row: Row, is_audited: bool) -> None:
        if score.value is None:
            self._skip()
        elif self._share is None or not is_audited:
            self._add(score.value, score.value)
        else:
            strong = row.audit[self.metric].value if self.metric in row.audit else None
            self._unknown += strong is None
            ends = self._limits if strong is None else (strong, strong)
            lowest, highest = (score.value + (end - score.value) / self._share for end in ends)
            self._add(lowest, highest)

    def _add(self, lowest: float, highest: float) -> None:
        if lowest != highest and self._highest is self.sequence:
            self._highest = deepcopy(self.sequence)
        self.sequence.add(lowest)
        if self._highest is not self.sequence:
            self._highest.add(highest)

    def _skip(self) -> None:
        self.sequence.skip()
        if self._highest is not self.sequence:
            self._highest.skip()


class _Gate(_MeanQuestion):
    def __init__(self, metric: str, bounds: _Bounds, size: int, error: float, threshold: float) -> None:
        super().__init__(metric, bounds, size, error, [threshold])
        self._threshold, self._direction = threshold, bounds.direction
        least = "least" if bounds.direction == "higher" else "most"
        self.required = f"at {least} {threshold:g} is required{self._whose}"

    def verdict(self) -> Outcome:
        above, below = self.sequence.exceeds(self._threshold), self._highest.stays_below(self._threshold)
        if not (above or below):
            return "undecided"
        return "passed" if above == (self._direction == "higher") else "failed"


class _PairedGate(_Question):
    """Question about the mean gain over the baseline, which is positive if this run is better."""

    def __init__(
        self, metric: str, bounds: _Bounds, size: int, error: float, margin: float, baseline: Mapping[str, Score]
    ) -> None:
        width = bounds.high - bounds.low
        super().__init__(metric, -width, width, size, error, [0.0, -margin])
        self._margin, self._sign, self._baseline = margin, 1 if bounds.direction == "higher" else -1, baseline
        self.required = f"gain over the baseline, at least {-margin:g} is no worse"

    def _count(self, score: Score, row: Row, is_audited: bool) -> None:
        other = self._baseline.get(row.sample.id)
        if score.value is None or other is None or other.value is None:
            self.sequence.skip()
        else:
            self.sequence.add(self._sign * (score.value - other.value))

    def verdict(self) -> Outcome:
        low, _ = self.sequence.interval
        if low > 0:
            return "better"
        if self.sequence.exceeds(-self._margin):
            return "no worse"
        return "worse" if self.sequence.stays_below(-self._margin) else "undecided"

    def is_answered(self) -> bool:
        """Return False also for a run that is no worse if it may soon be known to be better."""
        verdict, mean = self.verdict(), self.sequence.mean
        return verdict != "undecided" and not (verdict == "no worse" and mean is not None and mean > self._margin)


class _Precision(_MeanQuestion):
    def __init__(self, metric: str, bounds: _Bounds, size: int, error: float, half_width: float) -> None:
        super().__init__(metric, bounds, size, error, [])
        self._half_width = half_width
        self.required = f"at most ±{half_width:g} is required{self._whose}"

    def verdict(self) -> Outcome:
        low, high = self.interval
        return "precise" if high - low <= 2 * self._half_width else "undecided"


class SequentialRun:
    """The samples of a run in random order, until its stopping rule is satisfied.

    Rows count in the order in which their samples were drawn, whichever is finished first: fast samples may differ from
    slow ones. While a slow sample delays the count, at most `lead` samples are drawn from it on.

    Args:
        until: the rule.
        samples: all samples.
        metrics: metrics of the run, without those of an audit.
        lead: maximum number of samples that are drawn and not counted yet, at least 1.
        audited: names of the metrics that a strong judge audits.
        share: share of the samples that it scores; None if there is no audit.

    Raises:
        ConfigError: if the rule names another metric, or a metric has no finite range.
    """

    def __init__(
        self,
        until: Until,
        samples: Sequence[Any],
        metrics: Sequence[AnyMetric],
        lead: int,
        audited: Collection[str] = (),
        share: float | None = None,
    ) -> None:
        self._until = until
        self._samples = samples
        self._lead = lead
        self._order = random.Random(until.seed).sample(range(len(samples)), len(samples))
        self._place = {index: place for place, index in enumerate(self._order)}
        self._drawn = self._left_out = 0
        self._waiting: dict[int, tuple[Row, bool]] = {}
        self._counted = 0
        self._names = [name for metric in metrics for name in names_of(metric)]
        bounds = {
            name: one._replace(audited=share) if name in audited else one for name, one in _bounds_of(metrics).items()
        }
        self._questions = until._questions(bounds, len(samples)) if samples else []
        self._ended = False
        self._counting, self._was_counted = threading.Condition(), asyncio.Event()

    def __len__(self) -> int:
        """Return the number of all samples."""
        return len(self._samples)

    def __iter__(self) -> Iterator[Drawn]:
        """Yield samples until the rule is satisfied, in a worker thread."""
        for index in self._order:
            with self._counting:
                self._counting.wait_for(self._may_continue)
            if self._ended:
                return
            yield self._draw(index)

    async def __aiter__(self) -> AsyncIterator[Drawn]:
        """Yield samples until the rule is satisfied, on the event loop on which they are scored."""
        for index in self._order:
            while not self._may_continue():
                self._was_counted.clear()
                await self._was_counted.wait()
            if self._ended:
                return
            yield self._draw(index)

    def _may_continue(self) -> bool:
        return self._ended or self._drawn - self._counted < self._lead

    def _draw(self, index: int) -> Drawn:
        self._drawn += 1
        return Drawn(index, self._samples[index])

    def add(self, row: Row, *, is_audited: bool | None = None) -> None:
        """Count a finished row as soon as all that were drawn before it are finished.

        Args:
            row: the row.
            is_audited: True if the strong judge should have scored it; by default, if it has.
        """
        with self._counting:
            self._waiting[self._place[row.index]] = row, bool(row.audit) if is_audited is None else is_audited
            while self._counted in self._waiting:
                counted, by_both = self._waiting.pop(self._counted)
                for question in self._questions:
                    question.add(counted, is_audited=by_both)
                self._counted += 1
                self._left_out += not counted.scores
                self._ended |= all(question.is_answered() for question in self._questions)
            self._counting.notify_all()
        self._was_counted.set()

    def end(self) -> None:
        """Draw no more samples."""
        with self._counting:
            self._ended = True
            self._counting.notify_all()

    @property
    def left_out(self) -> list[tuple[int, str]]:
        """Index of the sample and name of the metric of each score that was not needed."""
        return [(index, name) for index in self._order[self._drawn :] for name in self._names]

    @property
    def decisions(self) -> dict[str, Decision]:
        """Decision about each metric that the rule names."""
        error = self._until.error
        return {
            question.key: Decision(
                question.verdict(), *question.interval, question.sequence.count, error, question.required
            )
            for question in self._questions
        }

    @property
    def notes(self) -> list[str]:
        """Notes for the report."""
        if not self._questions:
            return []
        decisions = [f"{name} {decision}" for name, decision in self.decisions.items()]
        drawn, count, error = self._drawn - self._left_out, len(self._samples), self._until.error
        first = Note("sequential", drawn=drawn, count=count, decisions=decisions, error=error)
        return [first, *filter(None, (question.note for question in self._questions))]


def _bounds_of(metrics: Sequence[AnyMetric]) -> dict[str, _Bounds]:
    """Return the range and direction of each metric; (0, 1) and "higher" for a Runnable that declares none."""
    parts = {part.name: part for metric in metrics for part in metrics_in(metric)}
    bounds = {}
    for name in (name for metric in metrics for name in names_of(metric)):
        part = parts.get(name)
        low, high = getattr(part, "range", (0.0, 1.0))
        if not (isfinite(low) and isfinite(high)):
            raise ConfigError(f"until= needs metrics with a finite range; that of {name} is {low:g} to {high:g}")
        direction: Direction = getattr(part, "direction", "higher")
        instrument = str(getattr(part, "instrument", "unknown"))
        bounds[name] = _Bounds(low, high, direction, instrument)
    return bounds


def _check_error(error: Any) -> None:
    if isinstance(error, bool) or not isinstance(error, int | float) or not 0 < error < 1:
        raise ConfigError(f"error must be a probability between 0 and 1, such as 0.05, got {error!r}")


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"seed must be a whole number, got {seed!r}")
