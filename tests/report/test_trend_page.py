"""The page of a trend in a real browser: curves, the alarm, and the worst samples of a period."""

import random
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import yaml
from helpers.chromium import EVIL, NEEDS_CHROMIUM, Axe, expect
from helpers.reports import row, scored
from helpers.stored import assert_stored, page_text

from langchain_rageval import ConfigError, Report, Score, trend
from langchain_rageval.report.page import read_template
from langchain_rageval.report.trend_page import _labels, _scale, trend_charts

START = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday


def stream(means, per_day=50, seed=1, question="When is the fee paid"):
    """Return a report of days with these means of faithfulness and constant noise; a day without a mean has no rows."""
    rng, rows = random.Random(seed), []
    for day, mean in enumerate(means):
        for number in range(per_day if mean is not None else 0):
            scores = [scored(float(rng.random() < mean)), scored(number % 5 / 10, "noise", direction="lower")]
            one = row(len(rows), *scores, id=f"{day}-{number}", question=f"{question}, {day} {number}?")
            when = START + timedelta(days=day, minutes=number)
            rows.append(one.model_copy(update={"time": when, "tags": {"version": "1" if day < 10 else "2"}}))
    return Report(rows)


BASELINE = stream([0.9] * 6, seed=2)
DRIFT = trend(stream([0.9] * 10 + [0.6] * 5), BASELINE)


# The chart


def charts_of(values, baseline=None, **options):
    return {chart.metric: chart for chart in trend_charts(trend(stream(values), baseline, **options))}


def test_days_without_rows_leave_a_gap_in_the_curve():
    places = [point.x for point in charts_of([0.9, 0.8, None, None, 0.7])["faithfulness"].points]
    assert places[2] - places[1] == pytest.approx(3 * (places[1] - places[0]))


def test_weeks_without_rows_leave_a_gap_in_the_curve():
    values = [0.9, *[None] * 6, 0.9, *[None] * 13, 0.9]  # weeks 45, 46 and 48
    places = [point.x for point in charts_of(values, by="week")["faithfulness"].points]
    assert places[2] - places[1] == pytest.approx(2 * (places[1] - places[0]))


def test_a_higher_mean_stands_higher_and_within_its_interval():
    low, high = charts_of([0.5, 0.9])["faithfulness"].points
    assert high.y < low.y
    for point in (low, high):
        assert 0 <= point.top < point.y < point.bottom <= 100


def test_the_baseline_stands_on_the_scale_of_the_curve():
    chart = charts_of([0.3] * 3, BASELINE)["faithfulness"]
    mean, top, bottom = chart.base
    assert 0 <= top < mean < bottom < min(point.top for point in chart.points)


def test_the_change_and_the_alarm_stand_between_the_periods_that_they_separate():
    chart = next(chart for chart in trend_charts(DRIFT) if chart.alarm)
    points = chart.points
    first = next(place for place, point in enumerate(points) if point.drifted)
    assert DRIFT.alarms["faithfulness"].since.date().isoformat() == points[first].period
    assert points[first - 1].x < chart.since < chart.raised <= 98
    assert all(point.drifted for point in points[first:])


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([5.0, 5.0], ["4.5", "5.0"]),
        ([12.0, 88.0], ["0", "20", "40", "60", "80", "100"]),
        ([-3.5, 2.5], ["-4", "-2", "0", "2", "4"]),
    ],
)
def test_the_scale_has_round_numbers_around_all_values(values, labels):
    rows = [row(n, scored(value, "grade"), id=str(n)) for n, value in enumerate(values)]
    days = [one.model_copy(update={"time": START + timedelta(days=n)}) for n, one in enumerate(rows)]
    (chart,) = trend_charts(trend(Report(days)))
    assert [label for _, label in chart.grid] == labels


def test_labels_of_the_time_axis_do_not_touch():
    for days in (1, 2, 3, 4, 7, 30, 200):
        found = trend(stream([0.9] * days, per_day=3))
        labels = next(chart for chart in trend_charts(found) if chart.metric == "noise").labels
        assert 1 <= len(labels) <= 5
        assert all(other[0] - one[0] >= 18 for one, other in pairwise(labels))


# The page


@pytest.fixture
def opened(open_file, tmp_path):
    """Open the page of a trend."""

    def open_page(found, fragment="", *, dark=False, width=1300, **options):
        found.to_html(tmp_path / "trend.html", **options)
        return open_file(tmp_path / "trend.html", fragment, dark=dark, width=width)

    return open_page


def ids(page):
    return page.locator("#table tbody th small").all_inner_texts()


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_the_page_states_the_alarm_and_marks_it_in_the_curve_of_its_metric(opened):
    page = opened(DRIFT)
    alarm = DRIFT.alarms["faithfulness"]
    expect(page.locator("h1")).to_have_text("Drift: faithfulness")
    expect(page.locator(".drift")).to_have_text(
        f"faithfulness: {alarm.mean:.3f} since {alarm.since.day} November 2026, {alarm.since:%H:%M} UTC; "
        f"{alarm.baseline:.3f} in the baseline. Raised on {alarm.raised.day} November 2026, {alarm.raised:%H:%M} UTC "
        f"after {alarm.samples} samples."
    )
    assert page.locator(".chart .point").count() == 30
    assert page.locator(".chart .whisker").count() == 30
    for mark in ("since", "raised", "after"):
        assert page.locator(f".chart .{mark}").count() == 1
    assert page.locator(".chart .base").count() == 2


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_changes_of_a_mean_are_marked_and_named_in_both_languages(opened):
    found = trend(stream([0.95] * 8 + [0.6] * 8 + [0.2] * 8))
    first, second = found.changes["faithfulness"]
    page = opened(found)
    assert page.locator(".chart .change").count() == 2
    for change in (first, second):
        text = f"mean changed (estimate) {change.before:.3f} → {change.after:.3f}, {change.since.day} November 2026"
        expect(page.locator(".legend")).to_contain_text([text])
    page = opened(found, language="ru")
    expect(page.locator(".legend")).to_contain_text(["среднее изменилось (оценка)"])


def test_a_change_stands_between_the_periods_that_it_separates():
    found = charts_of([0.95] * 6 + [0.3] * 6)["faithfulness"]
    ((place, change),) = found.changes
    period = next(number for number, point in enumerate(found.points) if point.period == f"{change.since:%Y-%m-%d}")
    assert found.points[period - 1].x < place < found.points[period + 1].x


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_without_drift_or_without_baseline_nothing_is_marked(opened):
    page = opened(trend(stream([0.9] * 5), BASELINE))
    expect(page.locator("h1")).to_have_text("No drift was found")
    assert page.locator(".chart .since, .chart .raised, .chart .after, .chart .change, .drift").count() == 0
    page = opened(trend(stream([0.9] * 5), by="version"))
    expect(page.locator("h1")).to_have_text("Means over time")
    assert page.locator(".base, .base-area").count() == 0


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_metrics_with_an_alarm_come_first(opened):
    def reversed_scores(report):
        return Report([one.model_copy(update={"scores": dict([*one.scores.items()][::-1])}) for one in report.rows])

    found = trend(reversed_scores(stream([0.5] * 8)), reversed_scores(BASELINE))
    assert (found.metrics, list(found.alarms)) == (["noise", "faithfulness"], ["faithfulness"])
    page = opened(found)
    assert page.locator(".beside h2").all_inner_texts() == ["faithfulness", "noise ↓"]
    page.locator('.chart a[href$="=3.1"] .target').click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("faithfulness")


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_the_table_has_the_means_of_the_trend(opened):
    page = opened(DRIFT)
    lines = page.locator("section:has(#periods-title) tbody tr").all_inner_texts()
    assert len(lines) == 16
    assert lines[0].split()[:3] == ["baseline", "–", f"{DRIFT.baseline['faithfulness'].mean:.3f}"]
    for line, (period, summary) in zip(lines[1:], DRIFT.items(), strict=True):
        assert line.split()[:3] == [period, "50", f"{summary['faithfulness'].mean:.3f}"]


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_a_point_leads_to_the_worst_samples_of_its_period_by_its_metric(opened):
    page = opened(DRIFT)
    page.locator('.chart a[href="#period=12.1"] .target').click()
    expect(page.locator("select[name=period]")).to_have_value("12")
    assert {one.partition("-")[0] for one in ids(page)} == {"12"}
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("noise")
    worst = [one.sample.id for one in DRIFT.rows["2026-11-14"] if float(one.scores["noise"]) == 0.4]
    assert {*ids(page)[:10]} == {*worst}


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_the_keyboard_leads_from_a_period_to_a_sample_and_back(opened):
    page = opened(DRIFT)
    page.get_by_role("link", name="2026-11-15").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#samples-title")).to_be_focused()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("faithfulness")
    assert all(one.startswith("13-") for one in ids(page))
    worst = ids(page)[0]
    assert DRIFT.rows["2026-11-15"][int(worst.partition("-")[2])].scores["faithfulness"].value == 0.0
    page.get_by_role("link", name=re.compile(rf"\b{worst}$")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sample-title")).to_be_focused()
    expect(page.locator(".facts-line")).to_contain_text("2026-11-15 00:")
    expect(page.locator(".facts-line")).to_contain_text("version: 2")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name=re.compile(rf"\b{worst}$"))).to_be_focused()


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_all_periods_are_listed_again_when_the_filter_is_cleared(opened):
    page = opened(DRIFT, "#period=0.0")
    expect(page.locator("select[name=period]")).to_have_value("0")
    shown = page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("status")).not_to_have_text(shown)
    first, everything = re.fullmatch(r"(\d+) of (\d+) samples", page.get_by_role("status").inner_text()).groups()
    assert first == everything


@pytest.mark.gate
@NEEDS_CHROMIUM
@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_texts_run_nothing_and_the_layout_holds(opened, width):
    rows = []
    for number in range(12):
        score = Score(metric=EVIL, aspect="answer", value=number % 2, reason=EVIL)
        one = row(number, score, id=f"{number}{EVIL}", question=EVIL, metadata={EVIL: EVIL})
        tags = {EVIL: f"{EVIL}{number % 3}"}
        rows.append(one.model_copy(update={"time": START + timedelta(days=number), "tags": tags}))
    page = opened(trend(Report(rows), Report(rows), by=EVIL), width=width)
    page.locator(".chart a .target").first.click()
    expect(page.locator("#table tbody th small")).to_have_count(4)
    page.locator("#table tbody a").first.click()
    expect(page.locator("#sample")).to_contain_text("window.owned = 1")
    assert page.evaluate("window.owned") is None
    assert page.locator("#overview img, #overview style, #sample img, #sample script, #sample style").count() == 0
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("Escape")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).display") != "none"


@pytest.mark.gate
@NEEDS_CHROMIUM
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_violation(opened, dark, width):
    page = opened(DRIFT, dark=dark, width=width)
    found = Axe().run(page)["violations"]
    serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.gate
@NEEDS_CHROMIUM
@pytest.mark.parametrize("width", [390, 1300])
def test_labels_of_the_chart_do_not_overlap_on_a_page(opened, width):
    page = opened(trend(stream([0.9] * 40, per_day=3)), width=width)
    boxes = page.locator(".chart > text:visible").evaluate_all(
        "texts => texts.map((text) => text.getBoundingClientRect()).map(({ left, right, top }) => [top, left, right])"
    )
    assert len(boxes) >= 2 * 3
    for (top, _, right), (other_top, left, _) in pairwise(boxes):
        assert top != other_top or right < left
    assert all(left >= 0 and right <= width for _, left, right in boxes)


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_a_metric_without_any_value_is_shown_without_a_curve(opened):
    rows = [
        row(n, scored(1.0), Score(metric="noise", aspect="answer", unscored="no facts"), id=f"r{n}") for n in range(8)
    ]
    page = opened(trend(Report([one.model_copy(update={"time": START}) for one in rows])))
    expect(page.locator("section:has(#chart-1)")).to_contain_text("No sample has a score.")
    assert page.locator(".chart").count() == 1


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_a_russian_page_has_no_english_words_of_its_own(opened):
    found = trend(stream([0.9] * 10 + [0.5] * 5, question="Когда платить"), BASELINE)
    page = opened(found)
    assert page.evaluate("document.documentElement.lang") == "ru"
    expect(page.locator("h1")).to_have_text("Дрейф: faithfulness")
    page.locator("p.note").evaluate_all("notes => notes.forEach((note) => note.remove())")
    shown = {*re.findall("[A-Za-z][A-Za-z_]+", page.locator("body").inner_text())}
    assert shown <= {"faithfulness", "noise", "RAG", "UTC", "langchain", "rageval"}


def test_notes_about_a_trend_are_translated(tmp_path):
    rows = [*stream([0.9] * 4, question="Когда платить").rows, row(999, scored(1.0), id="untimed")]
    trend(Report(rows), BASELINE).to_html(tmp_path / "trend.html")
    html = (tmp_path / "trend.html").read_text(encoding="utf-8")
    assert "Строки без времени не учтены: 1." in html
    assert "Вопросы отличаются от вопросов базового прогона: язык: " in html
    assert "The questions differ" not in html


def test_both_languages_have_the_same_words():
    words = yaml.safe_load(read_template("trend_words.yaml"))
    assert words["en"].keys() == words["ru"].keys()
    assert words["en"]["trend_headlines"].keys() == words["ru"]["trend_headlines"].keys()


def test_an_unknown_language_is_refused(tmp_path):
    with pytest.raises(ConfigError) as raised:
        DRIFT.to_html(tmp_path / "trend.html", language="fr")
    assert str(raised.value) == "language must be one of auto, en, ru, got 'fr'"


def test_the_page_holds_the_worst_samples_only(tmp_path):
    few, many = (trend(stream([0.9] * 3, per_day=count)) for count in (60, 600))
    sizes = []
    for found in (few, many):
        found.to_html(tmp_path / "trend.html")
        sizes.append((tmp_path / "trend.html").stat().st_size)
    assert sizes[1] < 1.1 * sizes[0]


def test_labels_at_the_edges_of_the_chart_do_not_stand_in_the_middle_of_their_place():
    places = {"a": 10.0, "c": 50.0, "e": 99.0}
    assert {text: anchor for _, text, anchor, _ in _labels(places)} == {"a": "start", "c": "middle", "e": "end"}
    assert [anchor for *_, anchor, _ in _labels({"b": 20.0, "d": 85.0})] == ["middle", "middle"]


def test_the_page_of_a_drift_is_as_stored(tmp_path):
    stable = stream([0.9] * 3, per_day=20, seed=2)
    values = [*[0.9] * 3, None, *[0.3] * 4]
    for by, baseline in (("day", stable), ("version", None)):
        trend(stream(values, per_day=20), baseline, by=by).to_html(tmp_path / "a.html", language="en")
        shown = page_text((tmp_path / "a.html").read_text(encoding="utf-8"), with_data=False)
        assert_stored(f"trend_by_{by}.txt", shown)


def test_the_scales_of_all_ranges_are_as_stored():
    numbers = (-250.0, -1.0, 0.0, 0.013, 0.5, 0.72, 1.0, 2.1, 3.0, 4.4, 99.0)
    pairs = [(low, high) for low in numbers for high in numbers if low <= high]
    lines = [f"{low} {high}: {[label for _, label in _scale([high, low])]}" for low, high in pairs]
    assert_stored("scales.txt", "\n".join([*lines, str(_scale([]))]) + "\n")
