"""calibrate: the mean that people would have given, from the labels of some samples and a judge's scores of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from langchain_rageval.errors import ConfigError
from langchain_rageval.report.html_table import html_table
from langchain_rageval.trust.agreement import Rating, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_LABELLED = 100
"""With fewer, the normal approximation behind the interval cannot be relied on."""


@dataclass(frozen=True, repr=False)
class Calibration:
    """What people would have said of all samples on average, and how sure that is.

    Attributes:
        mean: prediction-powered estimate, from labels and scores together.
        low: lower end of its interval.
        high: its upper end.
        level: share of such intervals that hold the true mean.
        classical_mean: of the labels alone.
        classical_low: lower end of the interval of the labels alone.
        classical_high: its upper end.
        judge_mean: of the judge's scores of all samples, right or wrong.
        labelled: samples that a person labelled and the judge scored.
        unlabelled: samples that only the judge scored.
        left_out: samples that the judge could not score, or a person did not label.
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

    def __repr__(self) -> str:
        """One line for each way to the mean."""
        lines = [f"{name} {mean} {interval}".rstrip() for name, mean, interval in self._cells()]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self._notes())])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(self.title, ("from", "mean", "interval"), self._cells(), self._notes())

    @property
    def title(self) -> str:
        """What is estimated, from how many samples."""
        return (
            f"What people would say on average, from {self.labelled} labels and "
            f"{self.unlabelled} more scores, at {self.level:.0%}"
        )

    def _cells(self) -> list[tuple[str, str, str]]:
        ends = ((self.low, self.high), (self.classical_low, self.classical_high))
        both, alone = (f"[{low:.3f}, {high:.3f}]" for low, high in ends)
        return [
            ("labels and judge", f"{self.mean:.3f}", both),
            ("labels alone", f"{self.classical_mean:.3f}", alone),
            ("judge alone", f"{self.judge_mean:.3f}", ""),
        ]

    def _notes(self) -> list[str]:
        return [f"{self.left_out} samples without a score or a label are left out."] if self.left_out else []


def calibrate(
    labelled: Iterable[tuple[Rating, Rating]], unlabelled: Iterable[Rating], level: float = 0.95
) -> Calibration:
    """Estimate the mean that people would have given, with prediction-powered inference.

    The judge's mean over all samples is corrected by what people said of some. The correction is weighed so that the
    interval is no wider, but for chance, than that of the labels alone, however bad the judge.

    Args:
        labelled: what a person and what the judge said of a sample, in this order; at least 100, drawn at random from
            all samples, such as `report.to_label(100)` gives them. Picked otherwise, they bias the mean.
        unlabelled: what the judge said of the others.
        level: share of such intervals that are to hold the true mean.

    Returns:
        The estimate with its interval.

    Raises:
        ConfigError: if there are too few, the level is out of range, a value is no number, or ppi-python is missing.

    Source: Angelopoulos et al. 2023, "Prediction-Powered Inference", doi:10.1126/science.adi6000; the weight:
        Angelopoulos, Duchi and Zrnic 2023, "PPI++", arXiv:2311.01453.
    """
    if not 0 < level < 1:
        raise ConfigError(f"the level lies between 0 and 1, such as 0.95; got {level!r}")
    given, others = [_pair(item) for item in labelled], [number(score) for score in unlabelled]
    pairs = [(human, judge) for human, judge in given if human is not None and judge is not None]
    scores = [score for score in others if score is not None]
    if len(pairs) < LEAST_LABELLED:
        raise ConfigError(
            f"calibrate takes at least {LEAST_LABELLED} labelled samples, a random part of all, got {len(pairs)}: "
            f"label {LEAST_LABELLED - len(pairs)} more, report.to_label draws them"
        )
    if len(scores) < 2:
        raise ConfigError(f"calibrate takes scores of samples that nobody labelled, at least 2, got {len(scores)}")
    if not find_spec("ppi_py"):
        raise ConfigError('calibrate computes with ppi-python: pip install "langchain-rageval[stats]"')
    left_out = len(given) - len(pairs) + len(others) - len(scores)
    return _calibrated([h for h, _ in pairs], [j for _, j in pairs], scores, level, left_out)


def _pair(item: tuple[Rating, Rating]) -> tuple[float | None, float | None]:
    if isinstance(item, str | bytes | Mapping) or not hasattr(item, "__len__") or len(item) != 2:
        raise ConfigError(f"labelled holds pairs, what a person said and what the judge said; got {item!r}")
    return number(item[0]), number(item[1])


def _calibrated(
    human: list[float], judge: list[float], others: list[float], level: float, left_out: int
) -> Calibration:
    import numpy as np
    from ppi_py import classical_mean_ci, ppi_mean_ci, ppi_mean_pointestimate

    labels, scores, more = (np.asarray(values, dtype=np.float64) for values in (human, judge, others))
    weight = 0.0 if np.ptp(np.concatenate([scores, more])) == 0 else None  # a constant says nothing
    low, high = ppi_mean_ci(labels, scores, more, alpha=1 - level, lam=weight)
    alone_low, alone_high = classical_mean_ci(labels, alpha=1 - level)
    return Calibration(
        mean=_one(ppi_mean_pointestimate(labels, scores, more, lam=weight)),
        low=_one(low),
        high=_one(high),
        level=level,
        classical_mean=float(labels.mean()),
        classical_low=_one(alone_low),
        classical_high=_one(alone_high),
        judge_mean=float(np.concatenate([scores, more]).mean()),
        labelled=len(human),
        unlabelled=len(others),
        left_out=left_out,
    )


def _one(number: Floats | float) -> float:
    import numpy as np

    return float(np.asarray(number).item())
