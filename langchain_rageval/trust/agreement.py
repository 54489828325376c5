"""agreement: how far a metric's scores agree with the labels that people gave to the same samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any, Literal, get_args

from langchain_rageval.data.schema import Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.html_table import html_table
from langchain_rageval.statistics.agreement import Estimate, estimates, share

Kind = Literal["binary", "ordinal", "pairwise"]
Rating = Score | float | bool | None
"""A score or a label: a Score, a number, or a yes or no; None, or NaN as pandas has it, where there is none."""
Ratings = Iterable[Rating] | Mapping[str, Rating]

HEADINGS = ("statistic", "value", "95% interval", "note")

_SAME = 1e-9  # values that rounding has parted
_NAMES = {"accuracy", "exact", "within_one", "kappa", "weighted_kappa", "krippendorff", "spearman", "kendall", "auc"}
_GRADED = ("weighted_kappa", "krippendorff")
_RANKED = ("spearman", "kendall", "pearson")
_NO_GRADES = "scores and labels are not whole grades on one scale: say with scale=(0, 3) which the scores stand for"


@dataclass(frozen=True, repr=False)
class Agreement(Mapping[str, Estimate]):
    """Name of a statistic to its value with a 95% interval.

    Attributes:
        kind: what the labels are.
        pairs: samples that have both a score and a label.
        unscored: samples with a label to which no score could be given; they count nowhere else.
        unlabelled: samples with a score that nobody labelled.
        estimates: the statistics by name.
        notes: what a reader of the numbers should know.
    """

    kind: Kind
    pairs: int
    unscored: int
    unlabelled: int
    estimates: Mapping[str, Estimate]
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Estimate:
        """One statistic; one that is for labels of another kind has no value and says so."""
        if name not in self.estimates and name in _NAMES:
            return Estimate(None, reason=f"not counted for {self.kind} labels")
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the statistics."""
        return iter(self.estimates)

    def __len__(self) -> int:
        """Number of statistics."""
        return len(self.estimates)

    def __repr__(self) -> str:
        """One line for each statistic, and the notes."""
        lines = [f"{name} {estimate}" for name, estimate in self.items()]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(self.title, HEADINGS, self.cells(), self.notes)

    @property
    def title(self) -> str:
        """What was compared, and over how many samples."""
        return f"Agreement with {self.kind} labels on {self.pairs} pair{'' if self.pairs == 1 else 's'}"

    def cells(self) -> Iterator[tuple[str, ...]]:
        """The statistics as rows under `HEADINGS`."""
        for name, found in self.items():
            yield name, "–" if found.value is None else f"{found.value:.3f}", found.interval or "–", found.reason


def agreement(
    scores: Ratings,
    labels: Ratings,
    kind: Kind = "binary",
    *,
    threshold: float = 0.5,
    scale: tuple[float, float] | None = None,
) -> Agreement:
    """Say how far scores agree with labels that people gave.

    - binary: labels are 0 or 1, yes or no. accuracy, kappa and krippendorff of "the score reaches the threshold"; auc,
      spearman and kendall (tau-b) of the score itself.
    - ordinal: labels are grades. exact, within_one, kappa, weighted_kappa and krippendorff (ordinal) of whole grades;
      spearman, kendall and pearson of any scores.
    - pairwise: both are preferences, -1, 0 or 1. exact, accuracy (where the person prefers one; a tie of the scores is
      half right), kappa, weighted_kappa, krippendorff (ordinal), spearman and kendall.

    Weights of weighted_kappa are quadratic. Intervals are at 95%: Wilson's for accuracy, exact and within_one, a
    percentile bootstrap of the pairs with a fixed seed for the rest. They speak of all samples only where the labelled
    ones were drawn at random, as `Report.to_label` draws them.

    Args:
        scores: of a judge: `report.scores("faithfulness")`, or one for each sample in order.
        labels: of people, in the same order, or by sample id as `load_labels` gives them. A label means what the metric
            means: where lower is better, 1 is bad.
        kind: what the labels are.
        threshold: the least score that says yes, for binary labels.
        scale: least and greatest grade that scores of 0 and 1 stand for; scores are stretched to it and, but for rank
            correlations, rounded to whole grades.

    Returns:
        The statistics by name; one that is not defined, such as the correlation with a constant, or is for labels of
        another kind, has no value and says why. Samples without a score or a label are counted and left out.

    Raises:
        ConfigError: if lengths differ, a value is none of its kind, an option is out of range, or no id is in both.
    """
    _check(kind, threshold, scale)
    given, wanted, notes = _side_by_side(scores, labels)
    known = [(score, label) for score, label in zip(given, wanted, strict=True) if score is not None]
    pairs = [(score, label) for score, label in known if label is not None]
    unscored = sum(label is not None for label in wanted) - len(pairs)
    if unscored:
        notes.append(f"{unscored} of the labelled samples have no score and are left out.")
    found = _STATISTICS_OF[kind]([s for s, _ in pairs], [label for _, label in pairs], threshold, scale)
    return Agreement(kind, len(pairs), unscored, len(known) - len(pairs), found, notes)


def number(rating: Any) -> float | None:
    """A score or a label as a number.

    Raises:
        ConfigError: if it is none.
    """
    value = rating.value if isinstance(rating, Score) else rating
    if value is None:
        return None
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise ConfigError(f"scores and labels are numbers, True or False, got {value!r}: load_labels reads words")
    if isnan(value := float(value)):
        return None
    if not isfinite(value):
        raise ConfigError(f"scores and labels are finite numbers, got {value!r}")
    return value


def _check(kind: Kind, threshold: float, scale: tuple[float, float] | None) -> None:
    if kind not in get_args(Kind):
        raise ConfigError(f"kind is one of {', '.join(map(repr, get_args(Kind)))}, got {kind!r}")
    if not isfinite(threshold):
        raise ConfigError(f"threshold is a number, got {threshold!r}")
    if scale is not None and (kind != "ordinal" or len(scale) != 2 or not scale[0] < scale[1]):
        raise ConfigError(f"scale is the least and the greatest of ordinal grades, such as (0, 3), got {scale!r}")


def _side_by_side(scores: Ratings, labels: Ratings) -> tuple[list[float | None], list[float | None], list[str]]:
    """Both in one order, and notes."""
    if isinstance(scores, Mapping) and isinstance(labels, Mapping):
        ids = list(scores)
        strange = [name for name in labels if name not in scores]
        if ids and len(strange) == len(labels):
            raise ConfigError(
                f"no id is in both scores and labels; scores have {_named(ids)}, labels {_named(strange) or 'none'}"
            )
        notes = [f"{len(strange)} labels are of ids that have no score: {_named(strange)}."] if strange else []
        return [number(scores[name]) for name in ids], [number(labels.get(name)) for name in ids], notes
    if isinstance(scores, Mapping) or isinstance(labels, Mapping):
        raise ConfigError("give scores and labels both by sample id, or both in order: report.scores(metric) has ids")
    ordered, wanted = [number(score) for score in scores], [number(label) for label in labels]
    if len(ordered) != len(wanted):
        raise ConfigError(f"scores and labels are of the same samples, got {len(ordered)} and {len(wanted)}")
    return ordered, wanted, []


def _named(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids[:3])) + (", …" if len(ids) > 3 else "")


def _binary(scores: list[float], labels: list[float], threshold: float, _: Any) -> dict[str, Estimate]:
    _refuse_others(labels, (0, 1), "a binary label is 0 or 1, True or False", "grades are kind='ordinal'")
    said = [float(score >= threshold - _SAME) for score in scores]
    of_words = estimates(said, labels, ("kappa", "krippendorff"))
    return {
        "accuracy": share(_equal(said, labels)),
        **of_words,
        **estimates(scores, labels, ("auc", "spearman", "kendall")),
    }


def _ordinal(
    scores: list[float], labels: list[float], _: float, scale: tuple[float, float] | None
) -> dict[str, Estimate]:
    if scale:
        least, greatest = scale
        scores = [least + score * (greatest - least) for score in scores]
    grades = [float(_round(score)) for score in scores] if scale else scores
    if all(value.is_integer() for value in (*grades, *labels)):
        near = [float(abs(grade - label) <= 1) for grade, label in zip(grades, labels, strict=True)]
        graded = {"exact": share(_equal(grades, labels)), "within_one": share(near)}
        graded |= estimates(grades, labels, ("kappa",)) | _graded(grades, labels)
    else:
        graded = dict.fromkeys(("exact", "within_one", "kappa", *_GRADED), Estimate(None, reason=_NO_GRADES))
    return graded | estimates(scores, labels, _RANKED)


def _pairwise(scores: list[float], labels: list[float], _: float, __: Any) -> dict[str, Estimate]:
    for values in (scores, labels):
        _refuse_others(values, (-1, 0, 1), "a preference is -1, 0 or 1", "take the sign of a difference")
    preferred = [(score, label) for score, label in zip(scores, labels, strict=True) if label]
    right = share([(score * label + 1) / 2 for score, label in preferred])
    if scores and not preferred:
        right = Estimate(None, reason="every label is a tie")
    kappa = estimates(scores, labels, ("kappa",))
    ranked = estimates(scores, labels, ("spearman", "kendall"))
    return {"exact": share(_equal(scores, labels)), "accuracy": right} | kappa | _graded(scores, labels) | ranked


_STATISTICS_OF = {"binary": _binary, "ordinal": _ordinal, "pairwise": _pairwise}


def _graded(scores: list[float], labels: list[float]) -> dict[str, Estimate]:
    found = estimates(scores, labels, ("weighted_kappa", "krippendorff_ordinal"))
    return dict(zip(_GRADED, found.values(), strict=True))


def _equal(scores: list[float], labels: list[float]) -> list[float]:
    return [float(score == label) for score, label in zip(scores, labels, strict=True)]


def _round(value: float) -> int:
    """To the nearest whole number, halves up, a little that rounding took away allowed for."""
    return int((value + 0.5 + _SAME) // 1)


def _refuse_others(values: list[float], allowed: tuple[int, ...], expected: str, mend: str) -> None:
    strange = next((value for value in values if value not in allowed), None)
    if strange is not None:
        raise ConfigError(f"{expected}, got {strange:g}: {mend}")
