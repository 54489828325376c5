"""Trend: means of a run by day, week or version, and an alarm if the means fall below the means of a baseline."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise
from statistics import fmean

from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.data.schema import Row, Score
from langchain_rageval.errors import ConfigError, list_choices
from langchain_rageval.report.comparison import check_margin
from langchain_rageval.report.files import ReportData, metric_names
from langchain_rageval.report.metric_comparison import equal_rows, judge_shifts
from langchain_rageval.report.pairing import grouped, metrics_in_common
from langchain_rageval.report.summary import summarise, value_range
from langchain_rageval.report.trend_page import DriftAlarm, MeanChange, Trend
from langchain_rageval.report.units import NONE, By, Units, slices_of
from langchain_rageval.report.unpaired import mix_shifts
from langchain_rageval.statistics.sequential import DriftDetector, change_points, spread_of_groups

_FORMS = {"day": "%Y-%m-%d", "week": "%G-W%V"}
_LEAST_BASELINE = 6  # scored samples of a slice
_YEAR = 365  # days until a false alarm, on average
_LEAST_DAYS = 12  # of a history whose changes are estimated from days

Scored = tuple[Row, float, str | None]
"""Row with the value of a metric and the slice."""


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

    Without drift, at most one false alarm is raised in a year on average, over all metrics together. The number of
    checks does not matter. This assumes that the rows, in order of time, are random samples of one mix of questions. If
    the mix changes, use `adjust`: each row is then compared with the baseline's rows of the same slice. If days differ
    by more than chance, a note reports it, and a bad day raises alarms more often. Dependent samples of one day, such
    as the turns of a conversation, count as one sample with their mean value, at the time of the last sample. To end an
    alarm after a repair, pass the time of the repair as `since`: earlier rows then raise no alarm.

    The function also estimates changes of the mean, for better or worse, with or without a baseline. They are estimated
    from the means of days; in histories of less than twelve days, from the means of hours. If the means stay the same,
    the probability of finding any change is at most about `error`. With `adjust`, differences between slices do not
    count as changes.

    Args:
        report: rows with their `time`, such as `Report.load("live.db")`.
        baseline: a run that is as good as it should be, over any samples; None raises no alarm.
        by: "day" or "week" (UTC), or the name of a tag, such as "version".
        margin: accepted loss of a mean, in the units of the metric, at least 0.
        error: bound on two probabilities, between 0 and 1: that a change is found if there is none; and that the true
            mean of the baseline is below the lower end of its confidence interval. For alarms, rows are compared with
            this lower end minus `margin`.
        adjust: property of the samples that defines slices, such as "language" or "metadata.topic".
        since: time, such as "2025-03-01" (UTC), from which rows are watched; for example the time when the cause of an
            alarm was repaired.
        allow_different_instruments: True to compare scores even if judges, prompts, options or versions differ.

    Returns:
        The summaries by period, the alarms, and the changes of the means. If no slice of the baseline has six scored
        samples, nothing is watched: there are no alarms, a note says why, and `check` raises.

    Raises:
        ConfigError: if no row has a time or the tag, an option is invalid, the runs have no metric in common, or judge
            configurations differ.
    """
    if not 0 < error < 1:
        raise ConfigError(f"error must be a probability between 0 and 1, such as 0.05, got {error!r}")
    check_margin(margin)
    timed = sorted((row for row in report.rows if row.time is not None), key=lambda row: (row.time, row.index))
    if not timed:
        raise ConfigError("no row has a time: score with this version, or load the file of a SqliteSink or JsonlSink")
    periods = _periods(timed, by)
    summaries = {name: summarise(rows) for name, rows in periods.items()}
    untimed = len(report.rows) - len(timed)
    notes = [Note("rows-without-time", count=untimed)] if untimed else []
    names = metric_names(report)
    found = {name: _changes_of(name, timed, error / len(names), adjust) for name in names}
    changes = {name: own for name, (own, _) in found.items() if own}
    notes += [Note("days-differ", metric=name, spread=spread) for name, (_, spread) in found.items() if spread]
    if baseline is None:
        return Trend(summaries, periods, None, {}, by, error, notes, changes)
    shared, judges, remarks, _ = metrics_in_common(report, baseline, allow_different_instruments, timed)
    if not shared:
        raise ConfigError(
            f"the runs have no metric in common: the run has {', '.join(names)}; "
            f"the baseline has {', '.join(metric_names(baseline))}"
        )
    notes += [note for note in remarks if code_of(note) != "only-in-candidate"]  # there is no candidate
    start = None if since is None else _time_of(since)
    watched = timed if start is None else [row for row in timed if row.time is not None and row.time >= start]
    alarms, remarks = _alarms(list(shared), watched, baseline.rows, margin, error, adjust)
    notes += remarks
    alarms = {name: replace(alarm, judge=judges[name]) for name, alarm in alarms.items()}
    if adjust is None and (shifts := mix_shifts(timed, baseline.rows)):
        notes.append(Note("questions-drifted", shifts=[shift.note for shift in shifts]))
    moved = judge_shifts(equal_rows(timed, baseline.rows), [], shared)
    notes += [Note("judge-shift-found", metric=name, shift=shift) for name, shift in moved.items()]
    return Trend(summaries, periods, summarise(baseline.rows), alarms, by, error, notes, changes, moved)


def _time_of(since: datetime | str) -> datetime:
    try:
        time = datetime.fromisoformat(since) if isinstance(since, str) else since
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, AttributeError):
        raise ConfigError(f"since is a time, such as '2025-03-01' or a datetime, got {since!r}") from None


def _periods(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    periods = grouped((f"{row.time:{_FORMS[by]}}" if by in _FORMS else row.tags.get(by, NONE), row) for row in rows)
    if periods.keys() == {NONE}:
        tags = sorted({tag for row in rows for tag in row.tags})
        raise ConfigError(f"by is day, week or the name of a tag, got {by!r}; the tags are {list_choices(by, tags)}")
    return periods


def _alarms(
    metrics: Sequence[str], rows: Sequence[Row], baseline: Sequence[Row], margin: float, error: float, adjust: By | None
) -> tuple[dict[str, DriftAlarm], list[Note]]:
    """Return the alarms by metric, and notes about rows that are not watched."""
    known = {name: _scored(name, baseline, adjust) for name in metrics}
    slices = {name: _by_slice(its, _LEAST_BASELINE) for name, its in known.items()}
    if not any(slices.values()):
        return {}, [Note("nothing-watched", metrics=", ".join(metrics), least=_LEAST_BASELINE)]
    alarms, notes = {}, []
    for name, its in known.items():
        own = _scored(name, rows, adjust)
        watched = [entry for entry in own if entry[2] in slices[name]]
        score = next((row.scores[name] for row in baseline if name in row.scores), None)
        if score and watched and (alarm := _alarm(score, watched, its, margin, error, len(metrics))):
            alarms[name] = alarm
        if len(watched) < len(own):
            left = len(own) - len(watched)
            notes.append(Note("rows-of-small-slices", metric=name, count=left, least=_LEAST_BASELINE))
    return alarms, notes


def _by_slice(scored: Iterable[Scored], least: int = 0) -> dict[str | None, list[float]]:
    """Return the values of each slice that has at least `least` values."""
    slices = grouped((part, value) for _, value, part in scored)
    return {part: values for part, values in slices.items() if len(values) >= least}


def _alarm(
    score: Score, own: Sequence[Scored], its: Sequence[Scored], margin: float, error: float, metrics: int
) -> DriftAlarm | None:
    """Return the alarm about a metric, if there is one.

    Args:
        score: a score of the metric, of which direction and range are read.
        own: scored rows of the run, of slices of the baseline.
        its: scored rows of the baseline.
        margin: by how much the mean may be worse.
        error: probability that the baseline's mean is lower than assumed, for all metrics together.
        metrics: number of metrics.
    """
    numbers = [value for _, value, _ in (*own, *its)]
    low, high = value_range(score.range, numbers) or (min(0.0, *numbers), max(1.0, *numbers))

    def scaled(value: float) -> float:
        share = (value - low) / (high - low)
        return share if score.direction == "higher" else 1 - share

    known: dict[Hashable, list[float]] = {
        part: [*map(scaled, values)] for part, values in _by_slice(its, _LEAST_BASELINE).items()
    }
    detector = DriftDetector(known, error / metrics, margin=margin / (high - low), run_length=_YEAR * metrics)
    for row, value, part in own:
        if detector.add(scaled(value), part, _day(row)):
            break
    if detector.alarm is None or detector.change is None:
        return None
    raised, since = own[detector.alarm - 1][0].time, own[detector.change][0].time
    if raised is None or since is None:  # rows without a time were left out
        return None
    mean = fmean(value for _, value, _ in own[detector.change :])
    return DriftAlarm(score.metric, raised, since, mean, fmean(value for _, value, _ in its), detector.alarm)


def _changes_of(metric: str, rows: Sequence[Row], error: float, adjust: By | None) -> tuple[list[MeanChange], float]:
    """Return the changes of the mean of a metric, and the spread of the means of days between them, 0 by chance."""
    own = _scored(metric, rows, adjust)
    mean = fmean(value for _, value, _ in own) if own else 0.0
    excess = {part: fmean(values) - mean for part, values in _by_slice(own).items()}
    values = [value - excess[part] for _, value, part in own]
    days = [_day(row) for row, _, _ in own]
    hours = [f"{row.time:%Y-%m-%d %H}" for row, _, _ in own]
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


def _scored(metric: str, rows: Sequence[Row], adjust: By | None) -> list[Scored]:
    """Return each row that has a value of the metric, with the value and the slice.

    The samples of a unit on one day in a slice have one entry: the last row with the mean of the values.
    """
    slices = zip(rows, slices_of(rows, adjust), strict=True)
    found = ((row, row.scores[metric].value, part) for row, part in slices if metric in row.scores)
    scored = [(row, value, part) for row, value, part in found if value is not None]
    groups = Units(row.sample for row, _, _ in scored).groups()
    if groups is None:
        return scored
    entries: dict[Hashable, tuple[Row, list[float], str | None]] = {}
    for (row, value, part), group in zip(scored, groups, strict=True):
        key = (group, part, _day(row))
        _, earlier, _ = entries.pop(key, (row, [], part))  # the order is that of the last samples
        entries[key] = (row, [*earlier, value], part)
    return [(row, fmean(values), part) for row, values, part in entries.values()]
