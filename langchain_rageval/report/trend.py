"""Trend: means of a run by day, week or version, and an alarm if they fall below those of a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from math import isfinite
from pathlib import Path
from statistics import fmean

from langchain_rageval._internal.page import PageLanguage, printable_lines
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.report.comparison import check_instruments, scores_by_metric
from langchain_rageval.report.files import ReportData, metric_names
from langchain_rageval.report.page_blocks import html_table
from langchain_rageval.report.summary import Summary, summarise, value_range
from langchain_rageval.report.trend_data import DriftAlarm, MeanChange, TrendData
from langchain_rageval.report.trend_page import write_trend_page
from langchain_rageval.report.units import NONE, By, Slicer, units_of
from langchain_rageval.report.unpaired import mix_shifts
from langchain_rageval.statistics.drift import DriftDetector, change_points, spread_of_groups

_FORMS = {"day": "%Y-%m-%d", "week": "%G-W%V"}
_LEAST_BASELINE = 6  # scored samples of a slice
_YEAR = 365  # days until a false alarm, on average
_LEAST_DAYS = 12  # of a history whose changes are estimated from days


@dataclass(frozen=True, repr=False)
class Trend(TrendData, Mapping[str, Summary]):
    """Mapping of periods to summaries, in order of time; the attributes are those of `TrendData`."""

    def __getitem__(self, period: str) -> Summary:
        """Return the summary of a period."""
        return self.periods[period]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the periods."""
        return iter(self.periods)

    def __len__(self) -> int:
        """Return the number of periods."""
        return len(self.periods)

    def to_html(self, path: str | Path, *, language: PageLanguage = "auto") -> None:
        """Write the trend as one HTML page that works offline: a curve for each metric, and the worst samples.

        The page holds the ten worst samples of each period and metric with their evidence. A point of a curve leads to
        those of its period.

        Args:
            path: path of the file.
            language: language of the page's own texts, "en" or "ru"; by default that of most questions.

        Raises:
            ConfigError: if jinja2 is not installed, or the language is invalid.
        """
        write_trend_page(self, path, language=language)

    def check(self) -> None:
        """Raise BelowThreshold if a metric has drifted; the message names each."""
        if self.alarms:
            raise BelowThreshold("; ".join(map(str, self.alarms.values())))

    def __repr__(self) -> str:
        """Return the trend as text: one line for each period, the alarms and the notes."""
        lines = [" · ".join(filter(None, cells)) for cells in self.cells()]
        lines += [*self.findings, *(f"Note: {note}" for note in self.notes)]
        return printable_lines("\n".join(lines))

    def _repr_html_(self) -> str:
        """Return the trend as an HTML table, for notebooks."""
        notes = [*self.findings, *self.notes]
        return html_table("Trend", ("period", "samples", *self.metrics), self.cells(), notes)

    @property
    def findings(self) -> list[str]:
        """A sentence for each alarm and each change of a mean."""
        changes = (change for found in self.changes.values() for change in found)
        return [*map(str, self.alarms.values()), *map(str, changes)]

    def cells(self) -> list[tuple[str, ...]]:
        """Return a tuple of texts for each period, and for the baseline: name, samples, and the mean of each metric."""
        named = dict(self.periods) if self.baseline is None else {"baseline": self.baseline, **self.periods}
        counts = {name: max((one.scored for one in summary.values()), default=0) for name, summary in named.items()}
        return [
            (name, str(counts[name]), *(_mean(summary, metric) for metric in self.metrics))
            for name, summary in named.items()
        ]


def trend(
    report: ReportData,
    baseline: ReportData | None = None,
    by: str = "day",
    *,
    margin: float = 0.0,
    error: float = 0.05,
    adjust: By | None = None,
    since: datetime | str | None = None,
    allow_different_instruments: bool = False,
) -> Trend:
    """Summarise a run by periods, and raise an alarm for each metric that falls below a baseline.

    Without drift, one alarm is raised in a year on average, at the most, over all metrics together and however often
    one looks. This assumes that the rows, in order of time, are like random samples of one mix of questions; `adjust`
    compares each row with the baseline's rows of its own slice. If days differ by more than chance, a note says so:
    a bad day then raises alarms more often. The samples of a unit, such as a conversation, on one day count as one
    with the mean of their values, known at the last of them. An alarm ends with `since`.

    The changes are estimated from the means of days, better and worse alike, also without a baseline; in histories of
    less than twelve days from those of hours. The probability of any in a run whose means stay the same is about
    `error` at most. With `adjust`, differences between slices are none.

    Args:
        report: rows with their `time`, such as `Report.load("live.db")`.
        baseline: a run that is as good as it should be, over any samples; None raises no alarm.
        by: "day" or "week" (UTC), or the name of a tag, such as "version".
        margin: by how much a mean may be worse, in the units of the metric, at least 0.
        error: see above, between 0 and 1; also the probability that the baseline's mean is lower than assumed.
        adjust: property of the samples, such as "language" or "metadata.topic".
        since: watch only rows from this time on, such as "2025-03-01" (UTC), after what raised an alarm was repaired.
        allow_different_instruments: compare also what different judges, prompts, options or versions have scored.

    Returns:
        The summaries by period, the alarms, and the changes of the means.

    Raises:
        ConfigError: if no row has a time or the tag, an option is invalid, the runs have no metric in common, or
            instruments differ.
    """
    if not 0 < error < 1:
        raise ConfigError(f"error must be a probability between 0 and 1, such as 0.05, got {error!r}")
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
        raise ConfigError(f"margin must be a number of at least 0, in the metrics' units, got {margin!r}")
    timed = sorted((row for row in report.rows if row.time is not None), key=lambda row: (row.time, row.index))
    if not timed:
        raise ConfigError("no row has a time: score with this version, or load the file of a SqliteSink or JsonlSink")
    periods = _periods(timed, by)
    summaries = {name: summarise(rows) for name, rows in periods.items()}
    untimed = len(report.rows) - len(timed)
    notes = [Note("rows-without-time", count=untimed)] if untimed else []
    changes, remarks = _changes(metric_names(report), timed, error, adjust)
    notes += remarks
    if baseline is None:
        return Trend(summaries, periods, None, {}, by, error, notes, changes)
    shared = [name for name in metric_names(report) if name in metric_names(baseline)]
    if not shared:
        raise ConfigError(
            f"the runs have no metric in common: {', '.join(metric_names(report))}; {', '.join(metric_names(baseline))}"
        )
    ours, theirs = scores_by_metric(timed), scores_by_metric(baseline.rows)
    known = (report.provenance, baseline.provenance)
    notes += check_instruments(ours, theirs, shared, allow_different_instruments, known)
    start = None if since is None else _time_of(since)
    watched = timed if start is None else [row for row in timed if row.time is not None and row.time >= start]
    alarms, remarks = _alarms(shared, watched, baseline.rows, margin, error, adjust)
    notes += remarks
    if adjust is None and (shifts := mix_shifts(timed, baseline.rows)):
        notes.append(Note("questions-drifted", shifts=[shift.note for shift in shifts]))
    return Trend(summaries, periods, summarise(baseline.rows), alarms, by, error, notes, changes)


def _time_of(since: datetime | str) -> datetime:
    try:
        time = datetime.fromisoformat(since) if isinstance(since, str) else since
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, AttributeError):
        raise ConfigError(f"since is a time, such as '2025-03-01' or a datetime, got {since!r}") from None


def _periods(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    periods: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row.time:{_FORMS[by]}}" if by in _FORMS else row.tags.get(by, NONE)
        periods.setdefault(name, []).append(row)
    if periods.keys() == {NONE}:
        tags = sorted({tag for row in rows for tag in row.tags})
        raise ConfigError(f"by is day, week or the name of a tag, got {by!r}; the tags are {', '.join(tags) or 'none'}")
    return periods


def _alarms(
    metrics: Sequence[str], rows: Sequence[Row], baseline: Sequence[Row], margin: float, error: float, adjust: By | None
) -> tuple[dict[str, DriftAlarm], list[Note]]:
    """Return the alarms by metric, and notes about rows that are not watched.

    Raises:
        ConfigError: if the baseline has too few scores for any alarm.
    """
    if not any(_parts_to_watch(name, baseline, adjust) for name in metrics):
        raise ConfigError(
            f"the baseline has too few scores to watch {', '.join(metrics)}: at least {_LEAST_BASELINE} scored "
            "samples are needed, of one slice if there is adjust"
        )
    alarms, notes = {}, []
    for name in metrics:
        alarm, ignored = _alarm(name, rows, baseline, margin, error, len(metrics), adjust)
        if alarm is not None:
            alarms[name] = alarm
        if ignored:
            notes.append(Note("rows-of-small-slices", metric=name, count=ignored, least=_LEAST_BASELINE))
    return alarms, notes


def _alarm(
    metric: str,
    rows: Sequence[Row],
    baseline: Sequence[Row],
    margin: float,
    error: float,
    metrics: int,
    adjust: By | None,
) -> tuple[DriftAlarm | None, int]:
    """Return the alarm about a metric, if there is one, and the number of rows without a baseline of their slice."""
    own, its = _scored(metric, rows, adjust), _scored(metric, baseline, adjust)
    direction: Direction = next(row.scores[metric].direction for row in baseline if metric in row.scores)
    numbers = [value for _, value, _ in (*own, *its)]
    if not own or not its:
        return None, 0
    declared = next((row.scores[metric].range for row in baseline if metric in row.scores), None)
    low, high = value_range(declared, numbers) or (min(0.0, *numbers), max(1.0, *numbers))

    def scaled(value: float) -> float:
        share = (value - low) / (high - low)
        return share if direction == "higher" else 1 - share

    slices: dict[Hashable, list[float]] = {}
    for _, value, part in its:
        slices.setdefault(part, []).append(scaled(value))
    slices = {part: values for part, values in slices.items() if len(values) >= _LEAST_BASELINE}
    if not slices:
        return None, len(own)
    detector = DriftDetector(slices, error / metrics, margin=margin / (high - low), run_length=_YEAR * metrics)
    counted = [(row, value) for row, value, part in own if part in slices]
    for row, value, part in own:
        if detector.add(scaled(value), part, _day(row)):
            break
    ignored = len(own) - len(counted)
    if detector.alarm is None or detector.change is None:
        return None, ignored
    raised, since = counted[detector.alarm - 1][0].time, counted[detector.change][0].time
    if raised is None or since is None:  # rows without a time were left out
        return None, ignored
    mean = fmean(value for _, value in counted[detector.change :])
    return DriftAlarm(metric, raised, since, mean, fmean(value for _, value, _ in its), detector.alarm), ignored


def _changes(
    metrics: Sequence[str], rows: Sequence[Row], error: float, adjust: By | None
) -> tuple[dict[str, list[MeanChange]], list[Note]]:
    """Return the changes of the mean of each metric that has any, and notes on metrics whose days differ."""
    changes, notes = {}, []
    for metric in metrics:
        found, spread = _changes_of(metric, rows, error / len(metrics), adjust)
        if found:
            changes[metric] = found
        if spread:
            notes.append(Note("days-differ", metric=metric, spread=spread))
    return changes, notes


def _changes_of(metric: str, rows: Sequence[Row], error: float, adjust: By | None) -> tuple[list[MeanChange], float]:
    """Return the changes of the mean of a metric, and the spread of the means of days between them, 0 by chance."""
    own = _scored(metric, rows, adjust)
    slices: dict[str | None, list[float]] = {}
    for _, value, part in own:
        slices.setdefault(part, []).append(value)
    mean = fmean(value for _, value, _ in own) if own else 0.0
    excess = {part: fmean(values) - mean for part, values in slices.items()}
    values = [value - excess[part] for _, value, part in own]
    days = [_day(row) for row, _, _ in own]
    hours = [row.time and row.time.replace(minute=0, second=0, microsecond=0) for row, _, _ in own]
    blocks = _starts(days if len(set(days)) >= _LEAST_DAYS else hours)
    block_means = [fmean(values[start:end]) for start, end in pairwise([*blocks, len(values)])]
    places = [blocks[place] for place in change_points(block_means, error)]
    parts = list(pairwise([0, *places, len(values)]))
    means = [fmean(values[start:end]) for start, end in parts if end]
    times = [time for place in places if (time := own[place][0].time) is not None]
    residuals = [value - mean for (start, end), mean in zip(parts, means, strict=False) for value in values[start:end]]
    groups = [residuals[start:end] for start, end in pairwise([*_starts(days), len(values)])]
    changes = [MeanChange(metric, *change) for change in zip(times, means, means[1:], strict=False)]
    return changes, spread_of_groups(groups, len(parts))


def _day(row: Row) -> date | None:
    return row.time.date() if row.time else None


def _starts(names: Sequence[Hashable]) -> list[int]:
    """Return the places at which a series of names begins or changes."""
    return [place for place, name in enumerate(names) if not place or name != names[place - 1]]


def _parts_to_watch(metric: str, baseline: Sequence[Row], adjust: By | None) -> set[str | None]:
    """Return the slices of which the baseline has enough scores for an alarm."""
    counts = Counter(part for _, _, part in _scored(metric, baseline, adjust))
    return {part for part, count in counts.items() if count >= _LEAST_BASELINE}


def _scored(metric: str, rows: Iterable[Row], adjust: By | None) -> list[tuple[Row, float, str | None]]:
    """Return each row that has a value of the metric, with the value and the slice; one row for each unit of a day."""
    slicer = None if adjust is None else Slicer(adjust)
    found = []
    for row in rows:
        part = slicer.slice_of(row.sample) if slicer else None
        if metric in row.scores and (value := row.scores[metric].value) is not None:
            found.append((row, value, part))
    if slicer is not None:
        slicer.check_known()
    return _one_per_unit(found)


def _one_per_unit(scored: Sequence[tuple[Row, float, str | None]]) -> list[tuple[Row, float, str | None]]:
    """Return one entry for the samples of a unit on one day in a slice: the last row with the mean of the values."""
    groups = units_of(row.sample for row, _, _ in scored)
    if groups is None:
        return list(scored)
    entries: dict[Hashable, tuple[Row, list[float], str | None]] = {}
    for (row, value, part), group in zip(scored, groups, strict=True):
        key = (group, part, _day(row))
        _, earlier, _ = entries.pop(key, (row, [], part))  # the order is that of the last samples
        entries[key] = (row, [*earlier, value], part)
    return [(row, fmean(values), part) for row, values, part in entries.values()]


def _mean(summary: Summary, metric: str) -> str:
    if metric not in summary or summary[metric].mean is None:
        return "–"
    return f"{summary[metric].mean:.3f} {summary[metric].interval}".rstrip()
