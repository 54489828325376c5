"""Agreement with people: compare scores with human labels of the same samples, or with known preferences in pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, isfinite, isnan
from typing import Any, Literal, Unpack, get_args

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.inputs import AnyMetric, flatten_metrics
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, EvaluateOptions
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.people import check_range
from langchain_rageval.report.report import Report
from langchain_rageval.report.tables import Shown, interval_text, number_text
from langchain_rageval.run.run import fill_defaults
from langchain_rageval.statistics.agreement import Estimate, estimates, share

LabelKind = Literal["binary", "ordinal", "pairwise"]
Rating = Score | float | bool | None
"""A score or a label: a Score, a number or a boolean; None or NaN if it is missing."""
Ratings = Iterable[Rating] | Mapping[str, Rating]
_Clusters = Sequence[Hashable] | None

_TOLERANCE = 1e-9  # for rounding errors
_NAMES = {"accuracy", "exact", "within_one", "kappa", "weighted_kappa", "krippendorff", "spearman", "kendall", "auc"}
_NO_GRADES = "scores and labels are not whole grades on one scale: pass scale=(0, 3) with the lowest and highest grade"


@dataclass(frozen=True, repr=False)
class Agreement(Shown, Mapping[str, Estimate]):
    """Mapping from the name of a statistic to its value with a 95% interval.

    Attributes:
        kind: "binary", "ordinal" or "pairwise".
        pairs: number of samples with a score and a label.
        unscored: number of samples with a label but no score; they are excluded from all statistics.
        unlabelled: number of samples with a score but no label.
        estimates: the statistics by name.
        notes: caveats for the reader.
    """

    kind: LabelKind
    pairs: int
    unscored: int
    unlabelled: int
    estimates: Mapping[str, Estimate]
    notes: list[str] = field(default_factory=list)
    headings = ("statistic", "value", "95% interval", "note")

    def __getitem__(self, name: str) -> Estimate:
        """Return a statistic by name; value None, with a reason, if it does not apply to this kind of label."""
        if name not in self.estimates and name in _NAMES:
            return Estimate(None, reason=f"not counted for {self.kind} labels")
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the statistics."""
        return iter(self.estimates)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self.estimates)

    def lines(self) -> list[str]:
        """Return a line of text for each statistic: name, value, 95% interval, and the reason if one is missing."""
        return [f"{name} {estimate}" for name, estimate in self.items()]

    @property
    def title(self) -> str:
        """Heading of the agreement: the kind of labels and the number of pairs."""
        return f"Agreement with {self.kind} labels on {pluralize(self.pairs, 'pair')}"

    def cells(self) -> list[tuple[str, ...]]:
        """Return a table row for each statistic: name, value, 95% interval, and the reason if one is missing."""
        return [(name, number_text(one.value), one.interval or "–", one.reason) for name, one in self.items()]


def agreement(
    scores: Ratings,
    labels: Ratings,
    kind: LabelKind = "binary",
    *,
    threshold: float = 0.5,
    scale: tuple[float, float] | None = None,
    raw_grades: bool = False,
    cluster: Mapping[str, Hashable] | Sequence[Hashable] | None = None,
) -> Agreement:
    """Measure how well scores agree with human labels.

    - binary: labels are 0 or 1. accuracy, kappa and krippendorff count a score as 1 if it reaches the threshold, else
      as 0; auc, spearman and kendall (tau-b) use the score itself.
    - ordinal: labels are grades. exact, within_one, kappa, weighted_kappa and krippendorff (ordinal) of whole grades;
      spearman, kendall and pearson of any scores.
    - pairwise: scores and labels are preferences, -1, 0 or 1. exact, accuracy (over pairs whose label is not 0; a score
      of 0 counts as half right), kappa, weighted_kappa, krippendorff (ordinal), spearman and kendall.

    The weights of weighted_kappa are quadratic. The 95% intervals are Wilson's for accuracy, exact and within_one, and
    a percentile bootstrap over the pairs with a fixed seed for the rest. They hold for all samples only if the labelled
    samples are a random part, as drawn by `Report.to_label`.

    Args:
        scores: `report.scores("faithfulness")`, or one score for each sample in order.
        labels: human labels, in the same order, or by sample id as returned by `load_labels`. They have the direction
            of the metric: where lower is better, 1 is bad.
        kind: the kind of labels, see above.
        threshold: for binary labels: scores of at least this value count as 1.
        scale: for ordinal labels: the lowest and the highest grade. Scores, which must be from 0 to 1, are mapped to
            this scale and rounded to whole grades, except for rank correlations. Without it, scores must already be
            whole grades on the scale of the labels.
        raw_grades: True if the scores are grades on `scale` themselves, such as those of `mean_grade_at`; they are then
            rounded but not mapped.
        cluster: group of dependent samples that each sample belongs to, by sample id or in the order of the scores. The
            intervals count a group as one unit. By default the groups of `report.scores`: conversations, trees of a
            test set (questions about one fact), repeats of a question.

    Returns:
        The statistics by name. A statistic has a reason instead of a value if it is undefined, such as the correlation
        with a constant, or belongs to another kind of labels. Samples without a score or a label are counted and
        excluded.

    Raises:
        ConfigError: if lengths differ, a value does not fit its kind or scale, an option is out of range, or scores and
            labels have no id in common.
    """
    check_choice("kind", kind, get_args(LabelKind))
    if not isfinite(threshold):
        raise ConfigError(f"threshold is a number, got {threshold!r}")
    if scale is not None and (kind != "ordinal" or len(scale) != 2 or not scale[0] < scale[1]):
        raise ConfigError(f"scale is the least and the greatest of ordinal grades, such as (0, 3), got {scale!r}")
    if raw_grades and scale is None:
        raise ConfigError(
            "raw_grades needs the scale of the grades: pass scale=(0, 3) with the lowest and highest grade"
        )
    if not isinstance(scores, Mapping):
        scores = list(scores)
    score_values, label_values, notes = _align(scores, labels)
    units = _units(scores, cluster)
    scored = [one for one in zip(score_values, label_values, units, strict=True) if one[0] is not None]
    pairs = [(score, label, unit) for score, label, unit in scored if score is not None and label is not None]
    unscored = sum(label is not None for label in label_values) - len(pairs)
    if unscored:
        notes.append(f"Left out: {pluralize(unscored, 'labelled sample')} without a score.")
    paired_scores, paired_labels = [score for score, *_ in pairs], [label for _, label, _ in pairs]
    groups = [unit for *_, unit in pairs]
    clusters = groups if len(set(groups)) < len(groups) else None
    if scale is not None:
        paired_scores = _to_scale(paired_scores, paired_labels, scale, raw_grades)
    statistics = _STATISTICS_OF[kind](paired_scores, paired_labels, threshold, scale, clusters)
    if clusters is not None:
        notes.append(f"{len(groups)} pairs are of {len(set(groups))} independent units, which the intervals count.")
    return Agreement(kind, len(pairs), unscored, len(scored) - len(pairs), statistics, notes)


def _units(scores: Sequence[Rating] | Mapping[str, Rating], cluster: Any) -> list[Hashable]:
    """Return the unit of each score in order; a score without one is a unit by itself."""
    if cluster is None:
        cluster = getattr(scores, "units", None) or {}
    if isinstance(scores, Mapping) and isinstance(cluster, Mapping):
        return [cluster.get(name, ("sample", name)) for name in scores]
    if cluster and (isinstance(cluster, Mapping) or isinstance(scores, Mapping) or len(cluster) != len(scores)):
        raise ConfigError("pass one cluster for each score, by sample id if the scores are by id, else in their order")
    return list(cluster or range(len(scores)))


def rating_value(rating: Any) -> float | None:
    """Return a score or a label as a number; None if it is missing or NaN.

    Raises:
        ConfigError: if the rating is neither a finite number nor a boolean.
    """
    value = rating.value if isinstance(rating, Score) else rating
    if value is None:
        return None
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise ConfigError(
            f"scores and labels must be numbers, True or False, got {value!r}: load_labels converts words"
        )
    if isnan(value := float(value)):
        return None
    if not isfinite(value):
        raise ConfigError(f"scores and labels are finite numbers, got {value!r}")
    return value


def _to_scale(scores: list[float], labels: list[float], scale: tuple[float, float], raw_grades: bool) -> list[float]:
    """Return the scores on the scale of the labels.

    Raises:
        ConfigError: if a score is neither from 0 to 1 nor, with `raw_grades`, on the scale, or a label is outside it.
    """
    least, greatest = scale
    check_range(labels, scale, "labels", "pass the lowest and the highest grade of the labels as scale")
    if raw_grades:
        check_range(scores, scale, "raw grades", "pass the lowest and the highest grade as scale")
        return scores
    remedy = f"pass raw_grades=True if the scores are grades from {least:g} to {greatest:g}"
    check_range(scores, (0.0, 1.0), "scores that scale maps to grades", remedy)
    return [least + score * (greatest - least) for score in scores]


def _align(scores: Ratings, labels: Ratings) -> tuple[list[float | None], list[float | None], list[str]]:
    """Return scores and labels as two lists in the same order, and notes on samples that lack one of them."""
    if isinstance(scores, Mapping) and isinstance(labels, Mapping):
        ids = list(scores)
        unknown = [name for name in labels if name not in scores]
        if ids and len(unknown) == len(labels):
            raise ConfigError(
                "no id is in both scores and labels; "
                f"scores have {_list_ids(ids)}, labels {_list_ids(unknown) or 'none'}"
            )
        notes = [f"{len(unknown)} labels have ids without a score: {_list_ids(unknown)}."] if unknown else []
        return [rating_value(scores[name]) for name in ids], [rating_value(labels.get(name)) for name in ids], notes
    if isinstance(scores, Mapping) or isinstance(labels, Mapping):
        raise ConfigError("pass scores and labels both by sample id, or both in order: report.scores(metric) has ids")
    score_values, label_values = [rating_value(score) for score in scores], [rating_value(label) for label in labels]
    if len(score_values) != len(label_values):
        raise ConfigError(
            f"scores and labels must be of the same samples, got {len(score_values)} and {len(label_values)} values: "
            "pass both by sample id, or None for each sample without a label"
        )
    return score_values, label_values, []


def _list_ids(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids[:3])) + (", …" if len(ids) > 3 else "")


def _binary(
    scores: list[float], labels: list[float], threshold: float, _: Any, clusters: _Clusters
) -> dict[str, Estimate]:
    _check_values(labels, (0, 1), "a binary label is 0 or 1, True or False", "pass kind='ordinal' for grades")
    predictions = [float(score >= threshold - _TOLERANCE) for score in scores]
    return {
        "accuracy": share(_matches(predictions, labels), clusters),
        **estimates(predictions, labels, ("kappa", "krippendorff"), clusters=clusters),
        **estimates(scores, labels, ("auc", "spearman", "kendall"), clusters=clusters),
    }


def _ordinal(
    scores: list[float], labels: list[float], _: float, scale: tuple[float, float] | None, clusters: _Clusters
) -> dict[str, Estimate]:
    grades = [float((score + 0.5 + _TOLERANCE) // 1) for score in scores] if scale else scores  # halves up
    are_shares = bool(scores) and min(scores) >= 0 and max(scores) <= 1 < max(labels)  # 1 may mean the highest grade
    on_one_scale = scale is not None or not are_shares
    if on_one_scale and all(value.is_integer() for value in (*grades, *labels)):
        near = [float(abs(grade - label) <= 1) for grade, label in zip(grades, labels, strict=True)]
        graded = {"exact": share(_matches(grades, labels), clusters), "within_one": share(near, clusters)}
        graded |= _chance_corrected(grades, labels, clusters)
    else:
        names = ("exact", "within_one", "kappa", "weighted_kappa", "krippendorff")
        graded = dict.fromkeys(names, Estimate(None, reason=_NO_GRADES))
    return graded | estimates(scores, labels, ("spearman", "kendall", "pearson"), clusters=clusters)


def _pairwise(scores: list[float], labels: list[float], _: float, __: Any, clusters: _Clusters) -> dict[str, Estimate]:
    for values in (scores, labels):
        _check_values(values, (-1, 0, 1), "a preference is -1, 0 or 1", "take the sign of a difference")
    units = clusters or range(len(scores))
    preferred = [(score, label, unit) for score, label, unit in zip(scores, labels, units, strict=True) if label]
    points = [(score * label + 1) / 2 for score, label, _ in preferred]
    right = share(points, clusters and [unit for *_, unit in preferred])
    if scores and not preferred:
        right = Estimate(None, reason="every label is a tie")
    return {
        "exact": share(_matches(scores, labels), clusters),
        "accuracy": right,
        **_chance_corrected(scores, labels, clusters),
        **estimates(scores, labels, ("spearman", "kendall"), clusters=clusters),
    }


_STATISTICS_OF = {"binary": _binary, "ordinal": _ordinal, "pairwise": _pairwise}


def _chance_corrected(scores: list[float], labels: list[float], clusters: _Clusters) -> dict[str, Estimate]:
    found = estimates(scores, labels, ("kappa", "weighted_kappa", "krippendorff_ordinal"), clusters=clusters)
    return {name.removesuffix("_ordinal"): estimate for name, estimate in found.items()}


def _matches(scores: list[float], labels: list[float]) -> list[float]:
    return [float(score == label) for score, label in zip(scores, labels, strict=True)]


def _check_values(values: list[float], allowed: tuple[int, ...], expected: str, remedy: str) -> None:
    wrong = next((value for value in values if value not in allowed), None)
    if wrong is not None:
        raise ConfigError(f"{expected}, got {wrong:g}: {remedy}")


PairOutcome = Literal["win", "tie", "loss", "unscored"]


@dataclass(frozen=True, repr=False)
class PairwiseAgreement(Shown):
    """Agreement of a metric with known preferences between pairs of samples.

    Attributes:
        metric: name of the metric.
        wins: number of pairs in which the better sample has the better value.
        ties: number of pairs with equal values.
        losses: number of pairs in which the worse sample has the better value.
        unscored: number of pairs in which a sample has no value; they are excluded from `agreement`.
        agreement: share of the scored pairs that are wins, with ties counted half, from 0 to 1; None if all pairs are
            unscored.
        low: lower end of the 95% interval of `agreement` (Wilson); None if all pairs are unscored.
        high: upper end of the 95% interval of `agreement`; None if all pairs are unscored.
        outcomes: outcome of each pair, in order.
        notes: the unscored samples with the reasons, and the report's notes.
        report: report with a row for each sample, alternately better and worse; incomplete if the run ended early.
    """

    metric: str
    wins: int
    ties: int
    losses: int
    unscored: int
    agreement: float | None
    low: float | None
    high: float | None
    outcomes: list[PairOutcome]
    notes: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report([]))

    headings = ("agreement", "pairs")

    @property
    def title(self) -> str:
        """Heading of the result: the name of the metric."""
        return f"Agreement of {self.metric}"

    def cells(self) -> list[tuple[str, ...]]:
        """Return a list with one table row of two cells: the agreement with its interval, and the counts of pairs.

        The second cell has the numbers of wins, ties, losses and unscored pairs.
        """
        found = f"{number_text(self.agreement)} {interval_text(self.low, self.high)}".rstrip()
        return [(found, ", ".join(f"{getattr(self, name)} {name}" for name in ("wins", "ties", "losses", "unscored")))]

    def __repr__(self) -> str:
        """Return the result as text: a line with the agreement and the counts, and the notes."""
        return "\n".join([f"{self.metric}: {', '.join(self.cells()[0])}", *(f"Note: {note}" for note in self.notes)])


def pairwise_agreement(
    metric: AnyMetric, pairs: Iterable[tuple[Any, Any]], **options: Unpack[EvaluateOptions]
) -> PairwiseAgreement:
    """Count the pairs in which a metric gives the better sample the better value.

    Args:
        metric: a Runnable that returns one Score; where lower is better, the lower value wins.
        pairs: pairs of the better and the worse sample, each in any form that `Sample.parse` reads, such as a sample
            and a variant from `degrade`.
        **options: options of `evaluate`; pairs that do not fit the `budget` are unscored.

    Returns:
        The numbers of wins, ties, losses and unscored pairs, and the agreement with its interval.

    Raises:
        ConfigError: if there are no pairs, an item is not a pair, or the metric returns several scores.
        SampleError: if a sample lacks a field that the metric reads.
    """
    name, *more = [name for part in flatten_metrics(metric) for name in names_of(part)]
    if more:
        raise ConfigError(f"pairwise_agreement takes one metric, got {name}, {', '.join(more)}")
    samples = [sample for place, pair in enumerate(pairs, 1) for sample in _parse_pair(place, pair)]
    if not samples:
        raise ConfigError("pairwise_agreement takes at least one pair of a better and a worse sample, got none")
    report = evaluate(samples, metric, **fill_defaults(pairwise_agreement, options, EVALUATE_DEFAULTS))
    scores = {row.index: score for row in report.rows for score in row.scores.values()}
    outcomes = [_outcome(scores.get(place), scores.get(place + 1)) for place in range(0, len(samples), 2)]
    notes = [
        f"{sample.id} has no value: {scores[place].comment if place in scores else 'it was left out'}"
        for place, sample in enumerate(samples)
        if place not in scores or scores[place].value is None
    ]
    points = {"win": 1.0, "tie": 0.5, "loss": 0.0}
    agreed = share([points[outcome] for outcome in outcomes if outcome != "unscored"])
    return PairwiseAgreement(
        name,
        wins=outcomes.count("win"),
        ties=outcomes.count("tie"),
        losses=outcomes.count("loss"),
        unscored=outcomes.count("unscored"),
        agreement=agreed.value,
        low=agreed.low,
        high=agreed.high,
        outcomes=outcomes,
        notes=[*report.notes, *notes],
        report=report,
    )


def _parse_pair(place: int, pair: Any) -> list[Sample]:
    """Return the better and the worse sample of a pair, with distinct ids."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"pair {place}: expected a better and a worse sample, got {type(pair).__name__}")
    sides = zip(("better", "worse"), map(Sample.parse, pair), strict=True)
    return [sample.model_copy(update={"id": f"{place}.{side}@{sample.id}"}) for side, sample in sides]


def _outcome(better: Score | None, worse: Score | None) -> PairOutcome:
    if better is None or worse is None or better.value is None or worse.value is None:
        return "unscored"
    if isclose(better.value, worse.value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        return "tie"
    return "win" if (better.value > worse.value) == (better.direction == "higher") else "loss"
