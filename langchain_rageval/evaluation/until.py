"""Stopping rules `Decided` and `Precise`: end an evaluation when the samples scored so far suffice."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from warnings import warn

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row, Sample, Score
from langchain_rageval.errors import ConfigError, check_number, list_choices
from langchain_rageval.evaluation.inputs import AnyMetric, Drawn
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.report.files import Bound, Decision, Outcome
from langchain_rageval.report.free_checks import is_blank
from langchain_rageval.report.gates import AGAINST_BASELINE
from langchain_rageval.report.metric_comparison import LEAST_PAIRS
from langchain_rageval.report.report import Report
from langchain_rageval.statistics.sequential import ConfidenceSequence


@dataclass(frozen=True)
class Decided:
    """Rule to stop when it is decided for every gate whether the mean over all samples reaches its threshold.

    Samples are scored in random order. After each sample, confidence sequences check whether the run may stop, so
    frequent checks do not cause wrong decisions. `report.decisions` holds the verdicts.

    Failed scores (an error prevented the value) are left out of the mean while they are at most 5% of the samples
    scored. With more failed scores, a gate passes only if the mean reaches its threshold with all of them at the worst
    value. The gate fails only if the mean does not reach the threshold with all of them at the best value. A sample is
    unscored if the metric does not apply to it. An unscored sample with a blank answer counts with the worst value,
    unless its metadata say `answerable=False`. If more than half of the samples are unscored for another reason, no
    gate passes.

    Args:
        gates: threshold of each metric, by name: the lowest accepted mean, or the highest accepted mean if lower is
            better.
        error: bound on two error probabilities, between 0 and 1: that all gates pass although one should fail, and that
            any gate fails although it should pass.
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
        _check(self.error, self.seed)
        if self._baseline is None and (not isinstance(self.gates, Mapping) or not self.gates):
            raise ConfigError(
                f'Decided takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {self.gates!r}'
            )
        for name, threshold in self.gates.items():
            check_number(f"the threshold of {name} must be a number", threshold)

    @classmethod
    def against(cls, report: Report, margin: float = 0.02, *, error: float = 0.05, seed: int = 0) -> Self:
        """Return a rule to stop when the run is known to be better, no worse or worse than a baseline.

        Samples are paired with those of the baseline by id and question. "No worse" means that the mean falls by at
        most the margin. If the mean gain so far is above the margin, a run that is known to be no worse continues until
        it is known to be better. If more than 5% of the baseline's scored samples have no partner in the run, a verdict
        must hold for every gain that these samples could have. With fewer than six pairs nothing is decided. The user
        is warned of both cases before the first call.

        Args:
            report: report of the baseline. Every metric that both runs have is compared.
            margin: largest accepted fall of a mean, in the units of the metric, at least 0.
            error: bound on two error probabilities, between 0 and 1: that all metrics are "no worse" although one is
                worse, and that any metric is wrongly called better or worse.
            seed: seed of the random order.

        Raises:
            ConfigError: if there is no report, or the margin or the error is not a number in its range.
        """
        if not isinstance(report, Report):
            raise ConfigError(f"Decided.against takes a report, got {type(report).__name__}; Report.load reads one")
        check_number("margin must be a number of at least 0, in the metrics' units", margin, lambda value: value >= 0)
        return cls({}, error, seed, report, margin)

    def _questions(self, metrics: Mapping[str, _Bounds], samples: Sequence[Any]) -> list[_Question]:
        if unknown := [name for name in self.gates if name not in metrics]:
            raise ConfigError(
                f"no metric of this run is called {unknown[0]!r}; it has {list_choices(unknown[0], metrics)}"
            )
        compared, rows = ([], []) if self._baseline is None else self._compared(self._baseline, metrics)
        errors, size = (self.error, self.error / (len(self.gates) + len(compared))), len(samples)
        gates = [_Gate(name, metrics[name], size, errors, threshold) for name, threshold in self.gates.items()]
        paired = [_PairedGate(name, metrics[name], samples, errors, self._margin, rows) for name in compared]
        for question in paired:
            if question.metric in self.gates:
                question.key = f"{question.metric}{AGAINST_BASELINE}"
        return [*gates, *paired]

    def _compared(self, baseline: Report, metrics: Mapping[str, _Bounds]) -> tuple[list[str], Sequence[Row]]:
        """Return the names of the metrics that are compared with the baseline, and its rows."""
        measured = {name for row in baseline.rows for name in row.scores}
        shared = {name: bounds for name, bounds in metrics.items() if name in measured}
        if not shared:
            found = list_choices(next(iter(metrics)), sorted(measured))
            raise ConfigError(f"the baseline has none of the metrics {', '.join(metrics)}; it has {found}")
        for name, bounds in shared.items():
            known = {bounds.instrument, *(score.instrument for score in baseline.scores(name).values())}
            if len(known) > 1 and not any("unknown" in instrument or not instrument for instrument in known):
                raise ConfigError(
                    f"another judge, prompts, options or version scored {name} in the baseline: the "
                    "difference cannot be attributed to the systems; score both in the same way"
                )
        return list(shared), baseline.rows


@dataclass(frozen=True)
class Precise:
    """Rule to stop when the confidence interval of every metric is narrow enough.

    Args:
        half_width: largest accepted half-width of an interval, in the units of the metrics.
        error: accepted probability, between 0 and 1, that the interval of any metric does not contain the metric's mean
            over all samples.
        seed: seed of the random order of the samples.

    Raises:
        ConfigError: if an option is not a number in its range.
    """

    half_width: float
    error: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the options."""
        _check(self.error, self.seed)
        check_number("half_width must be a number above 0", self.half_width, lambda width: width > 0)

    def _questions(self, metrics: Mapping[str, _Bounds], samples: Sequence[Any]) -> list[_Question]:
        error = self.error / 2 / len(metrics)
        return [_Precision(name, bounds, len(samples), error, self.half_width) for name, bounds in metrics.items()]


Until = Decided | Precise

_ENDLESS = 10**9  # samples
_STRONG = " of the strong judge's mean"
_MOST_UNKNOWN, _MOST_UNSCORED = 0.05, 0.5  # of the samples, as in `Report.check`


class _Bounds(NamedTuple):
    """Range, direction and configuration of a metric.

    Attributes:
        low: lowest value.
        high: highest value.
        direction: which values are better.
        instrument: identifies the configuration.
        reads_answer: True if the metric reads the answer, so that a blank one is bad.
        audited: share of the samples that a strong judge scores, too; None if the metric is not audited.
    """

    low: float
    high: float
    direction: Direction
    instrument: str
    reads_answer: bool
    audited: float | None

    @property
    def width(self) -> float:
        """Length of the range."""
        return self.high - self.low

    @property
    def gains(self) -> tuple[float, float]:
        """Lowest and highest value, with the sign that makes higher values better."""
        return (self.low, self.high) if self.direction == "higher" else (-self.high, -self.low)

    def gain(self, score: Score, sample: Sample) -> float | None:
        """Return the value of a score with that sign, the worst one for a blank answer; None if there is none."""
        if score.unscored and self.reads_answer and is_blank(sample):
            return self.gains[0]
        return score.value if score.value is None or self.direction == "higher" else -score.value


class _Question(ABC):
    """A question about the mean of a metric, or about its mean gain over a baseline, with the key of its decision.

    Values have the sign that makes higher ones better. Those of failed scores are unknown: one sequence leaves them
    out, one assumes the lowest value for each, and one the highest. The first decides while their share is tolerated.

    The question about an audited metric is about the strong judge's mean. A value is then the cheap judge's, corrected
    where the strong judge scored: by their difference over the share of the audit. Its expectation is the strong
    judge's mean, whatever the cheap judge's values are, so that a constant replaces those that failed. Its range is
    wider, and the values are draws from a set without end, because the strong judge's are unknown for most samples.
    Where the strong judge should have given a score and gave none, the lower end of the interval assumes the lowest
    value, and the upper end the highest one.

    Args:
        metric: name of the metric.
        bounds: its range and direction.
        size: number of samples.
        errors: error probabilities of the lower and of the upper end.
        watched: means that decide the question.
        baseline: values of the baseline by `_pair_key`, for a question about the gain; None for one about the mean.

    Attributes:
        required: text of what is to be decided.
        proofs: verdicts that rest on one end of the interval, and that end.
    """

    required = ""
    proofs: Mapping[Outcome, Bound] = MappingProxyType({})

    def __init__(
        self,
        metric: str,
        bounds: _Bounds,
        size: int,
        errors: tuple[float, float],
        watched: Sequence[float],
        baseline: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self.metric = self.key = metric
        self._bounds, self._baseline = bounds, baseline
        self._tolerated, self._whose = (_MOST_UNKNOWN, "") if bounds.audited is None else (0.0, _STRONG)
        low, high = bounds.gains
        if baseline is not None:
            low, high = -bounds.width, bounds.width
        elif bounds.audited is not None:
            width, size = bounds.width / bounds.audited, _ENDLESS
            low, high = high - width, low + width
        self._known = ConfidenceSequence(size, *errors, low=low, high=high, watched=watched)
        self._lowest = self._highest = self._known  # they differ as soon as a value is unknown
        self._asked = self._unknown = self._unscored = 0

    def add(self, row: Row, *, is_audited: bool) -> None:
        """Take the next row of the random order into account; without a score, which the budget left out, ignore it.

        A sample that is unscored, or that the baseline lacks, is taken out of the set.
        """
        if (score := row.scores.get(self.metric)) is None:
            return
        before = 0.0 if self._baseline is None else self._baseline.get(_pair_key(row.sample))
        value, gains, share = self._bounds.gain(score, row.sample), self._bounds.gains, self._bounds.audited
        self._asked += before is not None
        if before is None or (value is None and score.failure is None):
            self._unscored += before is not None
            for sequence in {self._known, self._lowest, self._highest}:
                sequence.skip()
            return
        low, high = gains if value is None else (value, value)
        if share is not None and self._baseline is None:
            value = low = high = (low + high) / 2
            if is_audited:
                strong = self._bounds.gain(row.audit[self.metric], row.sample) if self.metric in row.audit else None
                low, high = (value + (end - value) / share for end in (gains if strong is None else (strong, strong)))
        low, high = low - before, high - before  # equal if the value is known
        self._unknown += low != high
        if low != high and self._lowest is self._known:
            self._lowest, self._highest = deepcopy(self._known), deepcopy(self._known)
        if self._lowest is not self._known:
            self._lowest.add(low)
            self._highest.add(high)
        if low == high:
            self._known.add(low)
        else:
            self._known.skip()

    @property
    def sequences(self) -> tuple[ConfidenceSequence, ConfidenceSequence]:
        """The sequences of the lower and of the upper end."""
        return (self._lowest, self._highest) if self._is_widened else (self._known, self._known)

    @property
    def _is_widened(self) -> bool:
        return self._unknown > self._tolerated * self._asked

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the gain; or that of the mean, within the range of the metric and in its units."""
        lower, upper = self.sequences
        low, high = lower.interval[0], upper.interval[1]
        if self._baseline is not None:
            return low, high
        low, high = max(low, self._bounds.gains[0]), min(high, self._bounds.gains[1])
        return (low, high) if self._bounds.direction == "higher" else (0 - high, 0 - low)

    @property
    def note(self) -> Note | None:
        """Note on unknown values that widen the interval; None if there are none."""
        code = "unknown-values" if self._bounds.audited is None else "audit-without-score"
        return Note(code, metric=self.metric, count=self._unknown, asked=self._asked) if self._is_widened else None

    @property
    def is_covered(self) -> bool:
        """True if few enough samples are unscored for the mean to stand for all."""
        return self._unscored <= _MOST_UNSCORED * self._asked

    @abstractmethod
    def verdict(self) -> Outcome:
        """Return the answer."""

    def is_answered(self) -> bool:
        """Return True if no further samples are needed."""
        return self.verdict() != "undecided"


class _Gate(_Question):
    def __init__(self, metric: str, bounds: _Bounds, size: int, errors: tuple[float, float], threshold: float) -> None:
        is_higher = bounds.direction == "higher"
        self._threshold, least = (threshold, "least") if is_higher else (-threshold, "most")
        super().__init__(metric, bounds, size, errors, [self._threshold])
        self.proofs = {"passed": "low", "failed": "high"} if is_higher else {"passed": "high", "failed": "low"}
        self.required = f"at {least} {threshold:g} is required{self._whose}"

    def verdict(self) -> Outcome:
        lower, upper = self.sequences
        if lower.exceeds(self._threshold):
            return "passed" if self.is_covered else "undecided"
        return "failed" if upper.stays_below(self._threshold) else "undecided"


class _PairedGate(_Question):
    """Question about the mean gain over the baseline, which is positive if this run is better.

    Samples of the baseline without a partner are unknown, too. Their share is known before the first call, so that the
    means asked about are those that the pairs need to have for the mean over all.
    """

    proofs = MappingProxyType({"better": "low", "no worse": "low", "worse": "high"})

    def __init__(
        self,
        metric: str,
        bounds: _Bounds,
        samples: Sequence[Any],
        errors: tuple[float, float],
        margin: float,
        baseline: Sequence[Row],
    ) -> None:
        rows = [row for row in baseline if metric in row.scores]
        values = {_pair_key(row.sample): bounds.gain(row.scores[metric], row.sample) for row in rows}
        before = {key: value for key, value in values.items() if value is not None}
        ours = dict(_pair_key(sample) for sample in samples if sample is not None)  # None in the simulation of a plan
        pairs = sum(not ours or ours.get(name) == question for name, question in before)
        self._has_pairs = pairs >= LEAST_PAIRS
        missing = len(before) - pairs
        is_partial = missing > _MOST_UNKNOWN * len(before)
        self._few: Note | None = None
        if not self._has_pairs or is_partial:
            reworded = sum(name in ours for name, _ in before) - pairs
            counts = {"pairs": pairs, "samples": len(before), "reworded": reworded, "least": LEAST_PAIRS}
            self._few = Note("until-few-pairs", metric=metric, **counts)
            warn(self._few, UserWarning, stacklevel=2)
        lost, width = missing / len(before) if is_partial and pairs else 0.0, bounds.width
        self._better, self._no_worse = ((mean + lost * width) / (1 - lost) for mean in (0.0, -margin))
        self._worse = (-margin - lost * width) / (1 - lost)
        watched = [self._better, self._no_worse, self._worse]
        self._margin, self._error_of_better = margin, errors[1] / 2
        super().__init__(metric, bounds, len(samples), (errors[0], self._error_of_better), watched, before)
        self.required = f"gain over the baseline, at least {-margin:g} is no worse"

    @property
    def note(self) -> Note | None:
        """Note on missing pairs, or on unknown values; None if there are none."""
        return self._few or super().note

    def verdict(self) -> Outcome:
        lower, upper = self.sequences
        if not self._has_pairs or lower.count < LEAST_PAIRS:
            return "undecided"
        if lower.exceeds(self._no_worse):
            if not self.is_covered:
                return "undecided"
            return "better" if lower.exceeds(self._better, self._error_of_better) else "no worse"
        return "worse" if upper.stays_below(self._worse) else "undecided"

    def is_answered(self) -> bool:
        """Return False also for a run that is no worse if it may soon be known to be better."""
        verdict, mean = self.verdict(), self._known.mean
        return verdict != "undecided" and not (verdict == "no worse" and mean is not None and mean > self._margin)


class _Precision(_Question):
    def __init__(self, metric: str, bounds: _Bounds, size: int, error: float, half_width: float) -> None:
        super().__init__(metric, bounds, size, (error, error), [])
        self._half_width = half_width
        self.required = f"at most ±{half_width:g} is required{self._whose}"

    def verdict(self) -> Outcome:
        low, high = self.interval
        return "precise" if high - low <= 2 * self._half_width else "undecided"


class SequentialRun:
    """Iterator over the samples of a run in random order, until its stopping rule is satisfied.

    The rule counts rows in the order in which their samples were drawn, not in the order in which they are finished,
    because fast samples may differ from slow ones. A finished row is counted when all samples drawn before it are
    finished. The iterator waits while `lead` samples, slow ones included, are drawn but not counted.

    Args:
        until: the stopping rule.
        samples: all samples.
        metrics: metrics of the run, without the metrics of an audit.
        lead: maximum number of samples that are drawn but not counted yet, at least 1.
        audited: names of the metrics that a strong judge audits.
        share: share of the samples that the strong judge scores; None without an audit.

    Raises:
        ConfigError: if the rule names a metric that the run does not have, or a metric has no finite range.
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
        self._questions = until._questions(_bounds_of(metrics, audited, share), samples) if samples else []
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

    def add(self, row: Row, *, is_audited: bool) -> None:
        """Give a finished row to the stopping rule. The row counts when all rows drawn before it are finished.

        Args:
            row: the row.
            is_audited: True if the strong judge should have scored it.
        """
        with self._counting:
            self._waiting[self._place[row.index]] = row, is_audited
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
        """End the iteration: draw no more samples."""
        with self._counting:
            self._ended = True
            self._counting.notify_all()

    @property
    def left_out(self) -> list[tuple[int, str]]:
        """Scores of the samples not drawn before the run ended: pairs of a sample's index and a metric's name."""
        return [(index, name) for index in self._order[self._drawn :] for name in self._names]

    @property
    def decisions(self) -> dict[str, Decision]:
        """Decision of the stopping rule about each metric, by name, such as "better", "passed" or "undecided"."""
        error = self._until.error
        decisions = {}
        for question in self._questions:
            verdict, count = question.verdict(), question.sequences[0].count
            known = question.proofs.get(verdict, "")
            decisions[question.key] = Decision(verdict, *question.interval, count, error, question.required, known)
        return decisions

    @property
    def notes(self) -> list[str]:
        """Notes for the report about the stopping rule."""
        if not self._questions:
            return []
        decisions = [f"{name} {decision}" for name, decision in self.decisions.items()]
        drawn, count, error = self._drawn - self._left_out, len(self._samples), self._until.error
        code = "sequential-precise" if isinstance(self._until, Precise) else "sequential"
        first = Note(code, drawn=drawn, count=count, decisions=decisions, error=error)
        return [first, *filter(None, (question.note for question in self._questions))]


def _bounds_of(metrics: Sequence[AnyMetric], audited: Collection[str], share: float | None) -> dict[str, _Bounds]:
    """Return the range and direction of each metric; (0, 1) and "higher" for a Runnable that declares none."""
    parts = {part.name: part for metric in metrics for part in metrics_in(metric)}
    bounds = {}
    for name in (name for metric in metrics for name in names_of(metric)):
        part = parts.get(name)
        low, high = getattr(part, "range", (0.0, 1.0))
        if not (isfinite(low) and isfinite(high)):
            raise ConfigError(f"until= needs metrics with a finite range; the range of {name} is {low:g} to {high:g}")
        direction: Direction = getattr(part, "direction", "higher")
        instrument = str(getattr(part, "instrument", "unknown"))
        reads_answer = "answer" in getattr(part, "reads", {"answer"})
        bounds[name] = _Bounds(low, high, direction, instrument, reads_answer, share if name in audited else None)
    return bounds


def _pair_key(sample: Sample) -> tuple[str, str]:
    """Return the id and the question, with single spaces, that a sample and its partner have in common."""
    return sample.id, " ".join(sample.question.split())


def _check(error: Any, seed: Any) -> None:
    expected = "error must be a probability between 0 and 1, such as 0.05"
    check_number(expected, error, lambda probability: 0 < probability < 1)
    check_number("seed must be a whole number", seed, whole=True)
