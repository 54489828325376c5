"""The page of a trend as a file: curves, the alarm, and the worst samples of a period."""

from functools import partial

import pytest
import yaml
from helpers.reports import START, row, scored, stream
from helpers.stored import assert_stored, page_text

from langchain_rageval import Report, trend
from langchain_rageval.report.page import read_template
from langchain_rageval.report.trend_page import _labels, _scale, trend_charts

live = partial(stream, noise=True, question="When is the fee paid")


BASELINE = live([0.9] * 6, seed=2)


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
    assert not any(
        point["drifted"] for one in trend_charts(found) if one["metric"] == "noise" for point in one["points"]
    )


# The page


def test_notes_about_a_trend_are_translated(tmp_path):
    rows = [*live([0.9] * 4, question="Когда платить").rows, row(999, scored(1.0), id="untimed")]
    trend(Report(rows), BASELINE).to_html(tmp_path / "trend.html")
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
