"""Estimates from people's labels: a mean or a difference, made more precise by the scores of a judge."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.loading import SampleIds
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.labelling import SheetLabel, answer_id, cell_of, question_with_history, read_labels
from langchain_rageval.report.pairing import Pair
from langchain_rageval.report.tables import interval_text
from langchain_rageval.statistics import prediction_powered_mean

_TOLERANCE = 1e-9  # for rounding errors
LEAST_LABELS = 20
"""Least number of labels, or labelled pairs, that an estimate is made of."""

Labels = str | Path | Mapping[str, float]
"""Labelled sheet, or labels by the ids of a sheet."""
Labelled = tuple[float | None, float | None]
"""Label and score of a sample, or differences of both; None if there is none."""
_Answer = tuple[str, str, str, str]
"""Answer as a sheet names it: id of the sample, id of the answer, and the cells of question and answer."""


@dataclass(frozen=True)
class Corrected:
    """Prediction-powered estimate of the mean label that people would give all samples.

    Attributes:
        estimate: the estimated mean label, or mean difference of labels.
        low: lower end of the 95% interval of `estimate`.
        high: upper end of the interval.
        labels: number of labels, or of pairs of labels.
    """

    estimate: float
    low: float
    high: float
    labels: int

    @property
    def difference(self) -> float:
        """Same value as `estimate`, for labels of two reports: the estimated difference of their mean labels.

        With labels of a single report, the value is the mean label; no error is raised.
        """
        return self.estimate

    @property
    def mean(self) -> float:
        """Same value as `estimate`, for labels of a single report: the estimated mean label.

        With labels of two reports, the value is the difference of the mean labels; no error is raised.
        """
        return self.estimate

    @property
    def interval(self) -> str:
        """The 95% interval as text."""
        return interval_text(self.low, self.high, "+.3f")

    def __str__(self) -> str:
        """Return the estimate with its interval and the number of labels."""
        return f"{self.estimate:+.3f} {self.interval} from {pluralize(self.labels, 'label')}"


def corrected(
    samples: Sequence[Labelled], scale: tuple[float, float], groups: Sequence[Hashable] | None
) -> Corrected | None:
    """Estimate the mean label over all samples; return None if fewer than 20 independent units have a label.

    Args:
        samples: label and score of each sample; either may be None. The labelled samples must be a random part of all
            samples. A labelled sample without a score gets the mean score.
        scale: the lowest and the highest possible label.
        groups: independent unit of each sample, such as a conversation; None if each sample is a unit.

    Raises:
        ConfigError: if a label is outside the scale.
    """
    given = [label for label, _ in samples if label is not None]
    check_range(given, scale, "labels", "pass the lowest and the highest possible label")
    units = range(len(samples)) if groups is None else groups
    scores = [score for _, score in samples if score is not None]
    constant = fmean(scores) if scores else 0.0
    filled = [(*one, unit) for one, unit in zip(samples, units, strict=True)]
    known = [(label, constant if score is None else score, unit) for label, score, unit in filled if label is not None]
    others = [(score, unit) for label, score, unit in filled if label is None and score is not None]
    if len({unit for *_, unit in known}) < LEAST_LABELS:
        return None
    found = prediction_powered_mean(
        [label for label, *_ in known],
        [score for _, score, _ in known],
        [score for score, _ in others],
        scale=scale,
        clusters=None if groups is None else ([unit for *_, unit in known], [unit for _, unit in others]),
    )
    return Corrected(found.mean, found.low, found.high, len(known))


def check_range(values: Sequence[float], scale: tuple[float, float], what: str, remedy: str) -> None:
    """Raise `ConfigError` if a value lies outside a scale; the message names the kind of value and the remedy."""
    least, greatest = scale
    outside = next((value for value in values if not least - _TOLERANCE <= value <= greatest + _TOLERANCE), None)
    if outside is not None:
        raise ConfigError(f"{what} must be from {least:g} to {greatest:g}, got {outside:g}: {remedy}")


def answer_labels(rows: Iterable[Row], labels: Labels) -> list[float | None]:
    """Return the label of each row's answer; None for an answer without a label.

    A sheet is a CSV file in which people label answers. A label is matched to a row by the first of these that fits:
    `answer_id`, the id of an answer in a sheet of two reports; sample id and answer; question and answer; sample id
    alone, if there is no column of answers.

    Args:
        rows: rows of a report.
        labels: path of a labelled sheet; or a mapping of the ids in a sheet to labels.

    Raises:
        ConfigError: if the sheet cannot be read, or gives an answer two different labels.
    """
    return _matched(_answers(rows), _entries(labels), by_id=True)


def labelled_pairs(
    pairs: Sequence[Pair], labels: Labels | tuple[Labels, Labels]
) -> tuple[list[float | None], list[str]]:
    """Return the difference of labels, candidate minus baseline, of each pair, and the ids of labels that fit no row.

    The difference is None unless both rows have a label. A label fits a row by id, or by question and answer.

    Args:
        pairs: rows of candidate and baseline.
        labels: labels from one sheet of both reports; or a tuple of the candidate's labels and the baseline's labels.

    Raises:
        ConfigError: if no pair is labelled.
    """
    by_id = isinstance(labels, tuple)  # a sheet of two reports has two answers with one sample id
    ours, theirs = map(_entries, labels) if isinstance(labels, tuple) else [_entries(labels)] * 2
    sides = _answers(row for row, _ in pairs), _answers(row for _, row in pairs)
    own, other = _matched(sides[0], ours, by_id=by_id), _matched(sides[1], theirs, by_id=by_id)
    both = [None if one is None or two is None else one - two for one, two in zip(own, other, strict=True)]
    if all(difference is None for difference in both):
        raise ConfigError(
            "no sample has a label of both answers: write a sheet of both reports with `rageval label CANDIDATE "
            "--baseline BASELINE`, or pass labels=(labels of the candidate, labels of the baseline)"
        )
    unknown = []
    for answers, entries in zip(sides, (ours, theirs), strict=True) if by_id else [([*sides[0], *sides[1]], ours)]:
        ids, texts = {name for one in answers for name in one[:2]}, {one[2:] for one in answers}
        unknown += [one.id for one in entries if one.id not in ids and (one.question, one.answer) not in texts]
    return both, unknown


def _answers(rows: Iterable[Row]) -> list[_Answer]:
    ids = SampleIds()
    named = ((ids.distinct(row.sample).id, row.sample) for row in rows)
    return [
        (name, answer_id(name, one), cell_of(question_with_history(one)), cell_of(one.answer or ""))
        for name, one in named
    ]


def _entries(labels: Labels) -> list[SheetLabel]:
    """Return the labels of a sheet or a mapping, after checking that no answer has two different ones."""
    if isinstance(labels, Mapping):
        return [SheetLabel(0, name, float(value), None, None) for name, value in labels.items()]
    entries, known = read_labels(Path(labels)), dict[tuple[str, str | None], float]()
    for entry in entries:
        if known.setdefault((entry.id, entry.answer), entry.value) != entry.value:
            raise ConfigError(f"{labels}, line {entry.line}: {entry.id!r} already has another label: keep one")
    return entries


def _matched(answers: Sequence[_Answer], entries: Sequence[SheetLabel], *, by_id: bool) -> list[float | None]:
    """Return the label of each answer, or None; `by_id` is False to match no label by sample id alone."""
    known = {(entry.id, entry.answer): entry.value for entry in entries}
    by_name = {name: value for (name, _), value in known.items()}
    by_text = {(entry.question, entry.answer): entry.value for entry in reversed(entries)}  # the first one counts
    found = []
    for name, own_id, question, text in answers:
        own = known.get((name, None)) if by_id else None
        found.append(by_name.get(own_id, known.get((name, text), by_text.get((question, text), own))))
    return found
