"""Trends: alarms, changes of a mean, days and hours, what is refused, and the page as a file."""

import random
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from statistics import fmean

import pytest
import yaml
from helpers.each import each, error_of
from helpers.reports import START, failed, over, report_of, row, scored, stream
from helpers.stored import assert_stored, page_text

from langchain_rageval import ConfigError, Report, trend
from langchain_rageval.data.notes import code_of
from langchain_rageval.errors import BelowThreshold
from langchain_rageval.report.page import read_template
from langchain_rageval.report.trend_page import _labels, _scale, trend_charts

BASELINE = stream([0.9] * 6, seed=2)


def test_a_fall_raises_an_alarm_that_says_since_when():
    found = trend(stream([0.9] * 10 + [0.6] * 10), BASELINE)
    alarm = found.alarms["faithfulness"]
    assert abs(alarm.since - (START + timedelta(days=10))) <= timedelta(days=1)
    assert alarm.since < alarm.raised < START + timedelta(days=14)
    assert 0.5 < alarm.mean < 0.7
    assert str(error_of(BelowThreshold, found.check)) == str(alarm)
    assert all(str(alarm) in shown for shown in (repr(found), found._repr_html_()))


def test_changes_are_dated_both_ways_and_differences_between_slices_are_none_if_adjusted_for():
    live = stream([0.95] * 12 + [0.3] * 12 + [0.95] * 12, per_day=20)
    first, second = trend(live).changes["faithfulness"]
    assert (first.since, second.since) == (START + timedelta(days=12), START + timedelta(days=24))
    assert first.before > 0.8 > 0.4 > first.after == second.before
    assert second.after > 0.8
    hard = over(live, metadata=lambda one: {"hard": first.since <= one.time < second.since})
    assert trend(hard, adjust="hard").changes == {}


def with_days(spread, days=30, seed=0):
    """A month whose long-run mean is 0.85, with days that differ."""
    rng = random.Random(seed)
    return stream([min(1.0, max(0.0, 0.85 + rng.gauss(0, spread))) for _ in range(days)], per_day=40, seed=seed + 500)


@pytest.mark.gate
def test_days_that_differ_are_no_changes_but_a_note():
    months = [trend(with_days(0.1, seed=seed)) for seed in range(30)]
    assert sum(bool(month.changes) for month in months) <= 3
    notes = [note for month in months for note in month.notes]
    assert {code_of(note) for note in notes} == {"days-differ"}
    assert len(notes) >= 28
    assert fmean(note.fields["spread"] for note in notes) == pytest.approx(0.1, abs=0.03)
    assert not any(trend(with_days(0, seed=seed)).notes for seed in range(20))


def test_hours_are_the_blocks_of_a_history_of_a_few_days():
    times = [START + timedelta(minutes=15 * number) for number in range(4 * 24)]
    rows = [row(n, scored(float(n < 48 or n % 4 == 0)), id=str(n), time=time) for n, time in enumerate(times)]
    (change,) = trend(Report(rows)).changes["faithfulness"]
    assert change.since == START + timedelta(hours=12)


def test_rows_are_read_in_the_order_of_their_times():
    later = {"time": lambda one: one.time + timedelta(days=9), "index": lambda one: 1000 + one.index}
    rows = [*over(stream([0.7] * 2, version="2"), **later).rows, *stream([0.9]).rows]
    assert list(trend(Report(rows), by="version")) == ["1", "2"]


def test_an_alarm_ends_with_since():
    rows = stream([0.9] * 10 + [0.3] * 3 + [0.9] * 10)
    assert trend(rows, BASELINE).alarms
    for since in ("2026-11-15", START + timedelta(days=13), datetime(2026, 11, 15, 3)):
        assert trend(rows, BASELINE, since=since).alarms == {}
    start = START + timedelta(days=10)
    for since, left_out in ((start, 0), (start + timedelta(seconds=1), 1)):
        alarm = trend(rows, BASELINE, since=since).alarms["faithfulness"]
        assert alarm.samples == sum(start <= one.time <= alarm.raised for one in rows.rows) - left_out
    assert trend(rows, BASELINE, since="2026-11-14").alarms
    assert list(trend(rows, BASELINE, since="2027-01-01")) == list(trend(rows))
    with pytest.raises(ConfigError, match=r"^since is a time, such as '2025-03-01' or a datetime, got 'yesterday'$"):
        trend(rows, BASELINE, since="yesterday")


@each(("low", "width", "bounds"), [(1, 4, (1, 5)), (0, 10, None), (0, 1, (None, None))])
def test_an_alarm_does_not_depend_on_the_scale_of_the_values(low, width, bounds):
    """Without a range, the scale is that from 0 to the greatest value, or to 1."""

    def grade(one):
        return {"g": scored(low + width * one.scores["faithfulness"].value, "g", range=bounds)}

    graded = partial(over, scores=grade)
    live, baseline = stream([0.9] * 2 + [0.4] * 4, per_day=20), stream([0.9] * 4, seed=2, per_day=30)
    plain = trend(live, baseline, margin=0.05).alarms["faithfulness"]
    found = trend(graded(live), graded(baseline), margin=0.05 * width).alarms["g"]
    assert (found.raised, found.since, found.samples) == (plain.raised, plain.since, plain.samples)
    assert (found.mean, found.baseline) == pytest.approx((low + width * plain.mean, low + width * plain.baseline))


def test_rows_and_baselines_without_values_leave_dashes():
    rows = [*stream([0.9]).rows, row(99, id="x", time=START + timedelta(days=2))]
    found = trend(Report(rows), report_of(*[failed()] * 9))
    assert [cells[:2] for cells in found.cells()] == [("baseline", "0"), ("2026-11-02", "50"), ("2026-11-04", "0")]
    assert [cells[2] for cells in found.cells()][::2] == ["–", "–"]
    (chart,) = trend_charts(found)
    assert (chart["base"], chart["alarm"], len(chart["points"])) == (None, None, 1)
    with pytest.raises(ConfigError, match="the baseline has too few scores to watch faithfulness"):
        found.check()


def test_days_are_those_of_utc_whatever_zone_a_row_has():
    east, naive = timezone(timedelta(hours=3)), datetime(2026, 11, 2, 1)
    times = [datetime(2026, 11, 2, 1, tzinfo=east), datetime(2026, 11, 2, 1, tzinfo=UTC), naive]
    rows = [row(n, scored(1.0), time=time) for n, time in enumerate(times)]
    assert {day: len(found) for day, found in trend(Report(rows)).rows.items()} == {"2026-11-01": 1, "2026-11-02": 2}
    assert all(one.time.tzinfo is UTC for one in rows)


OTHER = "1111111111111111.2222222222222222"
NO_TIME = "no row has a time: score with this version, or load the file of a SqliteSink or JsonlSink"
NO_METRIC = "the runs have no metric in common: the run has faithfulness; the baseline has recall"
MARGIN = "margin must be a number of at least 0, in the metrics' units, got"
INSTRUMENTS = (
    "different instruments (judge, prompts, options or version) scored faithfulness (found_by 0123456789abcdef != "
    "1111111111111111; counted_by fedcba9876543210 != 2222222222222222): the difference cannot be attributed to the "
    "systems; score both runs with the same instruments, or set allow_different_instruments=True"
)


@each(
    ("live", "options", "problem"),
    [
        (report_of(scored(1.0)), {}, NO_TIME),
        (stream([0.9]), {"by": "tenant"}, "by is day, week or the name of a tag, got 'tenant'; the tags are version"),
        (stream([0.9]), {"error": 2}, "error must be a probability between 0 and 1, such as 0.05, got 2"),
        (stream([0.9]), {"margin": -1}, f"{MARGIN} -1"),
        (stream([0.9]), {"margin": float("nan")}, f"{MARGIN} nan"),
        (stream([0.9]), {"baseline": report_of(scored(1.0, "recall"))}, NO_METRIC),
        (stream([0.9]), {"baseline": report_of(scored(1.0, instrument=OTHER))}, INSTRUMENTS),
    ],
)
def test_what_cannot_be_shown_is_refused(live, options, problem):
    assert str(error_of(ConfigError, trend, live, **options)) == problem


def test_a_metric_that_no_row_with_a_time_has_is_not_watched():
    live = Report([*stream([0.9] * 3).rows, row(999, scored(1.0, "other"), id="untimed")])
    found = trend(live, over(BASELINE, scores=lambda one: {**one.scores, "other": scored(1.0, "other")}))
    assert [code_of(note) for note in found.notes] == ["rows-without-time", "only-in-baseline"]
    assert found.alarms == {}


def test_rows_of_slices_with_few_baseline_samples_are_counted_in_a_note():
    def about(report, topic):
        return over(report, metadata={"topic": topic}).rows

    baseline = Report([*about(BASELINE, "old"), *about(stream([1.0], per_day=5), "new")])
    live = Report([*about(stream([0.9] * 3), "old"), *about(stream([0.9], per_day=7), "new")])
    found = trend(live, baseline, adjust="metadata.topic")
    assert found.notes == ["faithfulness: 7 rows of slices with under 6 baseline samples are ignored."]


live = partial(stream, noise=True, question="When is the fee paid")


STABLE = live([0.9] * 6, seed=2)


# The chart


def test_weeks_without_rows_leave_a_gap_in_the_curve():
    values = [0.9, *[None] * 6, 0.9, *[None] * 13, 0.9]  # weeks 45, 46 and 48
    chart = next(one for one in trend_charts(trend(live(values), by="week")) if one["metric"] == "faithfulness")
    places = [point["x"] for point in chart["points"]]
    assert places[2] - places[1] == pytest.approx(2 * (places[1] - places[0]))


def test_a_curve_is_drawn_where_its_numbers_are():
    """Heights follow the scale of the grid, and times lie within their period."""
    found = trend(live([0.9] * 7 + [0.3] * 7), live([0.9] * 3, per_day=20, seed=2), by="day")
    chart = next(one for one in trend_charts(found) if one["metric"] == "faithfulness")
    heights = {float(label): height for height, label in chart["grid"]}
    low, high = min(heights), max(heights)
    top, bottom = heights[high], heights[low]

    def value_at(height):
        return high - (height - top) / (bottom - top) * (high - low)

    assert 0 < top < bottom < 100
    for value, height in heights.items():
        assert value_at(height) == pytest.approx(value)
    for point, summary in zip(chart["points"], found.values(), strict=True):
        mean = summary["faithfulness"]
        ends = (value_at(point["y"]), value_at(point["bottom"]), value_at(point["top"]))
        assert ends == pytest.approx((mean.mean, mean.low, mean.high))
        assert point["metric"] == mean
    base = found.baseline["faithfulness"]
    assert [value_at(height) for height in chart["base"]] == pytest.approx([base.mean, base.high, base.low])
    width = chart["points"][1]["x"] - chart["points"][0]["x"]
    assert [point["x"] for point in chart["points"]] == pytest.approx([9 + width * (n + 0.5) for n in range(14)])
    assert 9 + 14 * width == pytest.approx(98)
    alarm, (change,) = found.alarms["faithfulness"], found.changes["faithfulness"]
    marks = ((chart["since"], alarm.since), (chart["raised"], alarm.raised), (chart["changes"][0][0], change.since))
    for x, time in marks:
        rows = [one.time for one in found.rows[f"{time:%Y-%m-%d}"]]
        place = (time - START).days + rows.index(time) / len(rows)
        assert x == pytest.approx(9 + width * place)
    first = (alarm.since - START).days
    assert [point["drifted"] for point in chart["points"]] == [n >= first for n in range(14)]
    noise = next(one for one in trend_charts(found) if one["metric"] == "noise")
    assert not any(point["drifted"] for point in noise["points"])


# The page


def test_notes_about_a_trend_are_translated(tmp_path):
    rows = [*live([0.9] * 4, question="Когда платить").rows, row(999, scored(1.0), id="untimed")]
    trend(Report(rows), STABLE).to_html(tmp_path / "trend.html")
    html = (tmp_path / "trend.html").read_text(encoding="utf-8")
    assert "Строки без времени не учтены: 1." in html
    assert "Вопросы отличаются от вопросов базового прогона: язык: " in html
    assert "The questions differ" not in html


def test_both_languages_have_the_same_words():
    words = yaml.safe_load(read_template("trend_words.yaml"))
    assert words["en"].keys() == words["ru"].keys()
    assert words["en"]["trend_headlines"].keys() == words["ru"]["trend_headlines"].keys()


def test_labels_at_the_edges_of_the_chart_do_not_stand_in_the_middle_of_their_place():
    places = {"a": 10.0, "c": 50.0, "e": 99.0}
    assert {text: anchor for _, text, anchor, _ in _labels(places)} == {"a": "start", "c": "middle", "e": "end"}
    assert [anchor for *_, anchor, _ in _labels({"b": 20.0, "d": 85.0})] == ["middle", "middle"]


def test_the_page_of_a_drift_is_as_stored(tmp_path):
    stable = live([0.9] * 3, per_day=20, seed=2)
    values = [*[0.9] * 3, None, *[0.3] * 4]
    for by, baseline in (("day", stable), ("version", None)):
        trend(live(values, per_day=20), baseline, by=by).to_html(tmp_path / "a.html", language="en")
        shown = page_text((tmp_path / "a.html").read_text(encoding="utf-8"), with_data=False)
        assert_stored(f"trend_by_{by}.txt", shown)


def test_the_scales_of_all_ranges_are_as_stored():
    numbers = (-250.0, -1.0, 0.0, 0.013, 0.5, 0.72, 1.0, 2.1, 3.0, 4.4, 99.0)
    pairs = [(low, high) for low in numbers for high in numbers if low <= high]
    lines = [f"{low} {high}: {[label for _, label in _scale([high, low])]}" for low, high in pairs]
    assert_stored("scales.txt", "\n".join([*lines, str(_scale([]))]) + "\n")
