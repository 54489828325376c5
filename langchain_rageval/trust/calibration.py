"""calibrate: the mean human label, estimated from a few human labels and many scores of a judge."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from langchain_rageval._internal.page import pluralize
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.people import LEAST_LABELS, check_range
from langchain_rageval.report.tables import Shown, interval_text
from langchain_rageval.statistics import bounded_mean_interval, prediction_powered_mean
from langchain_rageval.trust.agreement import Rating, rating_value


@dataclass(frozen=True, repr=False)
class Calibration(Shown):
    """Estimate of the mean human label of all samples, with its interval.

    Attributes:
        mean: prediction-powered estimate, from labels and scores together; within the scale of the labels.
        low: lower end of the interval of `mean`, within the scale.
        high: upper end of the interval of `mean`, within the scale.
        level: confidence level of the intervals, such as 0.95.
        classical_mean: mean of the labels alone.
        classical_low: lower end of the interval of the labels alone.
        classical_high: upper end of the interval of the labels alone.
        judge_mean: uncorrected mean of the judge's scores of the samples counted in `labelled` and `unlabelled`.
        labelled: number of samples in the argument `labelled` of `calibrate` that have both a label and a score.
        unlabelled: number of samples in the argument `unlabelled` that have a score.
        left_out: number of the other samples, which are not used: those in the argument `labelled` without a label or
            a score, and those in the argument `unlabelled` without a score.
    """

    mean: float
    low: float
    high: float
    level: float
    classical_mean: float
    classical_low: float
    classical_high: float
    judge_mean: float
    labelled: int
    unlabelled: int
    left_out: int = 0

    headings = ("from", "mean", "interval")

    @property
    def title(self) -> str:
        """Heading of the calibration: the numbers of labels and scores, and the confidence level."""
        return (
            f"Estimated mean human label from {pluralize(self.labelled, 'label')} and "
            f"{pluralize(self.unlabelled, 'more score')}, {self.level:.0%} intervals"
        )

    def cells(self) -> list[tuple[str, ...]]:
        """Return three table rows, each with name, value and interval of an estimate of the mean human label.

        The estimates are: by labels and judge together, by labels alone, and by the judge alone, which has no interval.
        """
        return [
            ("labels and judge", f"{self.mean:.3f}", interval_text(self.low, self.high)),
            ("labels alone", f"{self.classical_mean:.3f}", interval_text(self.classical_low, self.classical_high)),
            ("judge alone", f"{self.judge_mean:.3f}", ""),
        ]

    def lines(self) -> list[str]:
        """Return three lines of text, each with name, value and interval of an estimate of the mean human label.

        The estimates are: by labels and judge together, by labels alone, and by the judge alone, which has no interval.
        """
        return [" ".join(cells).rstrip() for cells in self.cells()]

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        """Caveats for the reader: the number of samples that are left out."""
        return [f"Left out: {pluralize(self.left_out, 'sample')} without a score or a label."] if self.left_out else []


def calibrate(
    labelled: Iterable[tuple[Rating, Rating]],
    unlabelled: Iterable[Rating],
    level: float = 0.95,
    *,
    scale: tuple[float, float] = (0.0, 1.0),
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
) -> Calibration:
    """Estimate the mean human label with prediction-powered inference.

    The human labels of some samples correct the judge's mean over all samples. The correction is weighted: a judge that
    agrees with the labels narrows the interval, and a poor judge has no effect.

    The interval is Student's t interval of the corrections and two invented corrections, the greatest and the least
    possible. Without the invented corrections, the interval would be too narrow if nearly all labels are equal.
    Coverage at 95%, simulated with 100 binary labels, 2,000 scores, means from 0.3 to 0.99 and judges that are right 70
    to 97% of the time: 92% or more.

    Args:
        labelled: pairs of a human label and the judge's score of the same sample; at least 20, drawn at random from
            all samples, as by `report.to_label(100)`. Any other selection biases the mean.
        unlabelled: the judge's scores of the other samples, at least 2.
        level: confidence level of the intervals, between 0 and 1.
        scale: the lowest and the highest possible label, such as (1, 5). The judge's scores may have another scale.
        clusters: two sequences, for the labelled and the unlabelled samples, with the group of dependent samples that
            each sample belongs to, such as `report.scores(metric).units[id]`; None if all samples are independent.

    Returns:
        The estimate with its interval, beside the means of the labels and of the judge alone. The interval of the
        labels alone is computed as in `Report.summary`.

    Raises:
        ConfigError: if there are too few samples, the level or a label is out of range, or a value is not a number.

    Source: Angelopoulos et al. 2023, "Prediction-Powered Inference", doi:10.1126/science.adi6000; the weight:
        Angelopoulos, Duchi and Zrnic 2023, "PPI++", arXiv:2311.01453; the invented corrections: as in
        `paired_difference`.
    """
    if len(scale) != 2 or not scale[0] < scale[1]:
        raise ConfigError(f"scale is the lowest and the highest possible label, such as (1, 5); got {scale!r}")
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, such as 0.95; got {level!r}")
    labelled_pairs, others = [], [rating_value(score) for score in unlabelled]
    for item in labelled:
        if isinstance(item, str | bytes | Mapping) or not hasattr(item, "__len__") or len(item) != 2:
            raise ConfigError(f"labelled must be pairs of a human label and a judge's score, got {item!r}")
        labelled_pairs.append((rating_value(item[0]), rating_value(item[1])))
    units = _units(clusters, len(labelled_pairs), len(others))
    known = zip(labelled_pairs, units[0], strict=True)
    pairs = [(human, judge, unit) for (human, judge), unit in known if human is not None and judge is not None]
    scored = [(score, unit) for score, unit in zip(others, units[1], strict=True) if score is not None]
    scores = [score for score, _ in scored]
    if len(pairs) < LEAST_LABELS:
        raise ConfigError(
            f"calibrate takes at least {LEAST_LABELS} labelled samples, a random part of all, got {len(pairs)}: "
            f"label {LEAST_LABELS - len(pairs)} more, drawn by report.to_label"
        )
    if len(scores) < 2:
        raise ConfigError(f"calibrate takes at least 2 scores of unlabelled samples, got {len(scores)}")
    human, judge = [label for label, *_ in pairs], [score for _, score, _ in pairs]
    check_range(human, scale, "labels", "pass the lowest and the highest possible label, such as scale=(1, 5)")
    groups = None if clusters is None else ([unit for *_, unit in pairs], [unit for _, unit in scored])
    powered = prediction_powered_mean(human, judge, scores, level, scale, groups)
    lowest, unit = scale[0], scale[1] - scale[0]
    alone = bounded_mean_interval([(label - lowest) / unit for label in human], level, groups and groups[0])
    return Calibration(
        mean=powered.mean,
        low=powered.low,
        high=powered.high,
        level=level,
        classical_mean=fmean(human),
        classical_low=lowest + unit * alone[0],
        classical_high=lowest + unit * alone[1],
        judge_mean=fmean([*judge, *scores]),
        labelled=len(human),
        unlabelled=len(scores),
        left_out=len(labelled_pairs) - len(pairs) + len(others) - len(scores),
    )


def _units(clusters: Any, labelled: int, others: int) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    units = (range(labelled), range(others)) if clusters is None else clusters
    if len(units) != 2 or (len(units[0]), len(units[1])) != (labelled, others):
        raise ConfigError(
            f"clusters must have one value for each of the {labelled} labelled and of the {others} other samples"
        )
    return units
