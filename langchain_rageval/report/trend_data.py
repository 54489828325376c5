"""Data of a trend: summaries of periods, the baseline and the alarms, without the methods of `Trend`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from langchain_rageval.data.schema import Row
from langchain_rageval.report.summary import Summary


@dataclass(frozen=True)
class DriftAlarm:
    """Alarm about one metric.

    Attributes:
        metric: its name.
        raised: time of the row after which the alarm was raised.
        since: time of the row with which the change is estimated to begin.
        mean: mean from that row on.
        baseline: mean of the baseline.
        samples: number of scored rows until the alarm; a unit, such as a conversation, counts once a day.
    """

    metric: str
    raised: datetime
    since: datetime
    mean: float
    baseline: float
    samples: int

    def __str__(self) -> str:
        """Return the alarm as a sentence."""
        return (
            f"{self.metric} has drifted: {self.mean:.3f} since {self.since:%Y-%m-%d %H:%M} UTC, {self.baseline:.3f} in "
            f"the baseline; raised on {self.raised:%Y-%m-%d %H:%M} UTC after {self.samples} samples"
        )


@dataclass(frozen=True)
class MeanChange:
    """Estimated change of the mean of one metric.

    Attributes:
        metric: its name.
        since: time of the first row after the change.
        before: mean from the change before, or the first row, to this one.
        after: mean from this change to the next one, or the last row.
    """

    metric: str
    since: datetime
    before: float
    after: float

    def __str__(self) -> str:
        """Return the change as a sentence."""
        return (
            f"{self.metric} changed from {self.before:.3f} to {self.after:.3f} on {self.since:%Y-%m-%d %H:%M} UTC "
            "(estimate)"
        )


@dataclass(frozen=True)
class TrendData:
    """Summaries of a run by periods, in order of time.

    Attributes:
        periods: summary of each period by its name.
        rows: rows of each period by its name.
        baseline: summary of the baseline; None without one.
        alarms: metric to its alarm, for the metrics that have drifted.
        by: "day", "week" or the name of a tag.
        error: probability of any change without one, over all metrics together.
        notes: what a reader should know, such as that the questions of the baseline are others.
        changes: metric to the estimated changes of its mean in order of time, for the metrics that have any.
    """

    periods: Mapping[str, Summary]
    rows: Mapping[str, Sequence[Row]]
    baseline: Summary | None
    alarms: Mapping[str, DriftAlarm]
    by: str
    error: float
    notes: Sequence[str]
    changes: Mapping[str, Sequence[MeanChange]] = field(default_factory=dict)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(dict.fromkeys(name for summary in self.periods.values() for name in summary))
