"""The HTML page in a real browser: what a reader can do with it, and that nothing that samples hold ever runs."""

import csv
import io
import re
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from helpers.reports import (
    FINDINGS,
    QUESTION,
    STANDALONE,
    START,
    judged_as,
    over,
    report,
    row,
    sample,
    score,
    scored,
    stream,
    turn_row,
)
from helpers.screens import EVIL, NEEDS_CHROMIUM, Axe, expect

from langchain_rageval import Finding, Report, Row, Score, trend
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Failure
from langchain_rageval.report.labelling import load_labels

pytestmark = [pytest.mark.gate, NEEDS_CHROMIUM]


@pytest.fixture
def opened(open_file, tmp_path):
    """Open the page of a report, a trend or a sheet to label."""

    def open_page(told, fragment="", *, dark=False, width=1300, **options):
        told.to_html(tmp_path / "page.html", **options)
        return open_file(tmp_path / "page.html", fragment, dark=dark, width=width)

    return open_page


def ids(page):
    return [name.removeprefix("sample-") for name in page.locator("#table tbody th small").all_inner_texts()]


def test_the_table_sorts_both_ways_with_what_has_no_value_last(opened):
    page = opened(report([0.5, 1.0, 0.0, 0.75]))
    head = page.get_by_role("button", name="faithfulness")
    head.click()
    assert ids(page) == ["2", "0", "3", "1"]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("faithfulness")
    head.click()
    assert ids(page) == ["1", "3", "0", "2"]
    page.get_by_role("button", name="claim_noise").click()
    assert ids(page) == ["2", "3", "0", "1"]


def test_it_searches_and_filters(opened):
    page = opened(report([0.5, 1.0, 0.0, 0.75]))
    page.fill("input[name=text]", "елка ANSWER 3")
    expect(page.get_by_role("status")).to_contain_text("1 of 4")
    assert ids(page) == ["3"]
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("status")).to_contain_text("4 of 4")
    page.select_option("select[name=outcome]", "failed")
    expect(page.get_by_role("status")).to_contain_text("1 of 4")
    assert ids(page) == ["0"]
    page.select_option("select[name=outcome]", "")
    page.fill("input[name=least]", "0.5")
    page.fill("input[name=most]", "0.8")
    expect(page.get_by_role("status")).to_contain_text("2 of 4")
    assert ids(page) == ["0", "3"]
    page.fill("input[name=text]", "no such thing")
    expect(page.get_by_role("status")).to_contain_text("No sample")


@pytest.mark.parametrize(
    ("colour", "verdicts"),
    [
        ("good", ["supported", "TP", "useful", "needed", "found", "consistent", "kept", "met"]),
        ("bad", ["contradicted", "FP", "not useful", "not found", "ignored", "asked again", "unmet"]),
        ("open", ["absent", "FN"]),
    ],
)
def test_each_verdict_has_its_colour(opened, colour, verdicts):
    findings = [Finding(kind="entity", number=n, text="Isar", verdict=verdict) for n, verdict in enumerate(verdicts, 1)]
    scored = score(1.0, findings=findings)
    page = opened(Report([Row(index=0, sample=sample(0), scores={"faithfulness": scored})]), "#sample=0")
    expect(page.locator(f"#sample .{colour}-verdict")).to_have_count(len(verdicts))


def test_many_samples_come_in_pages(opened):
    page = opened(report([0.5] * 120))
    assert len(ids(page)) == 50
    page.get_by_role("button", name="Next page").click()
    page.get_by_role("button", name="Next page").click()
    assert ids(page) == [str(n) for n in range(100, 120)]
    assert page.get_by_role("button", name="Next page").is_disabled()
    assert "page 3 of 3" in page.locator("#pages").inner_text()


def test_the_keyboard_opens_a_sample_whose_statements_light_what_they_cite_and_returns_to_its_line(opened):
    page = opened(report([0.5, 1.0]))
    page.get_by_role("link", name="sample-1").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sample-title")).to_be_focused()
    statements = page.locator(".findings").first.locator("li")
    for place, finding in enumerate(FINDINGS):
        expect(statements.nth(place)).to_contain_text(f"{finding.verdict}{finding.text}")
    page.locator("button.finding").nth(1).focus()
    assert page.locator(".lit").all_inner_texts() == [
        "1.1Munich is the capital of Bavaria.",
        "2.1The Elbe flows through Dresden.",
    ]
    page.locator("button.finding").nth(0).focus()
    assert page.locator(".lit").all_inner_texts() == ["1.2It lies on the Isar."]
    page.locator("button.finding").nth(0).blur()
    assert page.locator(".lit").count() == 0
    page.locator("button.finding").nth(0).hover()
    assert page.locator(".lit").count() == 1
    page.keyboard.press("Escape")
    expect(page.locator("#sample")).to_be_hidden()
    expect(page.get_by_role("link", name="sample-1")).to_be_focused()


def test_a_failure_shows_the_judges_reply_and_a_sample_its_neighbours(opened):
    page = opened(report([0.5, 1.0]), "#sample=0")
    page.locator("#sample summary", has_text="claim_noise").click()
    shown = page.locator("#sample").inner_text()
    assert "JudgeOutputError: no JSON" in shown
    assert "<oops>" in shown
    page.get_by_role("link", name="Next sample").click()
    expect(page.locator("#sample-title")).to_have_text("Question 1?")


def test_a_missing_answer_and_missing_or_empty_contexts_are_said(opened):
    rows = [
        Row(index=0, sample=sample(0, answer=None, contexts=None, references=[]), scores={"f": score(1.0, "f")}),
        Row(index=1, sample=sample(1, contexts=[]), scores={}),
    ]
    page = opened(Report(rows), "#sample=0")
    shown = page.locator("#sample").inner_text()
    assert "No answer." in shown
    assert "No contexts were recorded." in shown
    assert "No reference." in shown
    expect(page.locator("ol.chat")).to_have_count(0)
    page.get_by_role("link", name="Next sample").click()
    expect(page.locator("#sample")).to_contain_text("Nothing was retrieved.")


def test_a_comparison_shows_what_a_sample_scored_before(opened):
    page = opened(report([0.2] * 3 + [0.9] * 7), baseline=report([0.2] * 10))
    assert "(+0.700)" in page.locator("#table tbody tr").nth(5).inner_text()
    page.goto(page.url + "#sample=5")
    expect(page.locator("#sample")).to_contain_text("baseline: 0.200")


def evil_report():
    finding = Finding(kind="statement", number=1, text=EVIL, verdict=EVIL, reason=EVIL, cites=["1.1", '"]*{', EVIL])
    evil = sample(
        0,
        id=EVIL,
        question=EVIL,
        answer=EVIL,
        contexts=[EVIL, f"[1.1] {EVIL}"],
        context_ids=[EVIL, EVIL],
        references=[EVIL],
        reference_contexts=[EVIL],
        metadata={EVIL: EVIL, "nested": {EVIL: [EVIL]}},
    )
    failure = Failure(error=EVIL, message=EVIL, step=EVIL, raw_output=EVIL)
    scores = {
        EVIL: Score(metric=EVIL, aspect="answer", value=1.0, reason=EVIL, findings=[finding], instrument=EVIL),
        "unscored": Score(metric="unscored", aspect="answer", unscored=EVIL),
        "failed": Score(metric="failed", aspect="answer", failure=failure),
    }
    long = sample(1, question="q" * 1_000_000, answer="ы" * 1_000_000, contexts=["x" * 1_000_000])
    rows = [Row(index=0, sample=evil, scores=scores), Row(index=1, sample=long, scores=scores)]
    return Report(rows, notes=[EVIL])


@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_samples_run_nothing_and_the_layout_holds(opened, width):
    told = evil_report()
    page = opened(told, width=width, baseline=told)
    for fragment in ("", "#sample=0", "#sample=1"):
        page.evaluate(f"location.hash = {fragment!r}")
        expect(page.locator("#sample")).to_be_visible(visible=bool(fragment))
        for summary in page.locator("details > summary").all():
            summary.evaluate("summary => summary.parentElement.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).display") != "none"
    assert page.evaluate("window.owned") is None
    page.evaluate("location.hash = '#sample=0'")
    expect(page.locator("#sample")).to_contain_text("window.owned = 1")
    assert page.locator("#sample img, #sample script, #sample style, #sample svg").count() == 0


def test_the_theme_can_be_turned(opened):
    page = opened(report([1.0]))
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(colour) != light


def test_the_answer_shows_its_statements_in_place_and_their_numbers_light_the_evidence(opened):
    answer = "**Munich** lies on the Isar.\n\n- It lies in Saxony.\n- It is old."
    row = Row(index=0, sample=sample(0, answer=answer), scores={"faithfulness": score(0.5)})
    page = opened(Report([row]), "#sample=0")
    marks = page.locator(".answer mark")
    assert [mark.get_attribute("class") for mark in marks.all()] == ["good-verdict", "bad-verdict", "open-verdict"]
    assert marks.all_inner_texts() == ["Munich lies on the Isar.✓1", "It lies in Saxony.✗2", "It is old.?3"]
    expect(page.locator(".answer strong")).to_have_text("Munich")
    page.get_by_role("button", name="2: contradicted").focus()
    assert page.locator(".lit .at").all_inner_texts() == ["1.1", "2.1"]
    expect(page.locator(".noted")).to_contain_text("It lies in Saxony.")


def test_a_chunk_shows_its_source_and_its_id(opened):
    metadata = {"context_sources": ["cities.pdf", None, "notes.md"]}
    told = sample(0, context_ids=["c-1", "c-2", "c-3"], metadata=metadata)
    page = opened(Report([Row(index=0, sample=told, scores={})]), "#sample=0")
    parts = page.locator(".chunk h4").evaluate_all(
        "heads => heads.map((head) => [...head.children].map((one) => one.innerText))"
    )
    assert parts == [["cities.pdf", "c-1"], ["c-2"], ["notes.md", "c-3"]]


def test_a_chat_marks_the_judged_turn_and_shows_the_question_as_it_was_judged(opened):
    page = opened(Report([turn_row(judged_as(STANDALONE))]), "#sample=0", language="ru")
    turns = page.locator("ol.chat > li")
    assert [text.split() for text in turns.all_inner_texts()[:2]] == [
        ["Пользователь", "Кто", "основал", "Мюнхен?"],
        ["Ассистент", "Генрих", "Лев."],
    ]
    judged = page.locator("ol.chat > li[aria-current=true]")
    expect(judged).to_have_count(1)
    assert [line for line in judged.inner_text().split("\n") if line] == [
        "Пользователь · оценённая реплика",
        QUESTION,
        "Оценено как",
        STANDALONE,
        "он — это Генрих Лев",
    ]
    expect(page.locator("#sample")).not_to_contain_text("standalone_question")


def test_a_chat_says_why_its_question_was_judged_as_it_stands(opened):
    refusal = "the question was judged as it is: the rewrite 'Who is Otto?' adds Otto"
    page = opened(Report([turn_row(judged_as(QUESTION, "refused", refusal))]), "#sample=0", language="en")
    judged = page.locator("ol.chat > li[aria-current=true]")
    assert [line for line in judged.inner_text().split("\n") if line] == [
        "User · judged turn",
        QUESTION,
        "Judged as it stands",
        refusal,
    ]


@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_turns_of_a_chat_run_nothing_and_the_layout_holds(opened, width):
    history = [(role, text) for text in (EVIL, "ы" * 10_000, "q " * 150_000) for role in ("user", "assistant")]
    row = turn_row(judged_as(EVIL, reason=EVIL), question=EVIL, history=history)
    page = opened(Report([row]), "#sample=0", width=width)
    expect(page.locator("ol.chat > li")).to_have_count(7)
    assert page.evaluate("window.owned") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_cause_leads_to_its_samples(opened):
    page = opened(report([0.5, 1.0, 0.0]))
    page.get_by_role("link", name="contradicts the context").click()
    expect(page.locator("select[name=cause]")).to_have_value("contradicts the context")
    expect(page.get_by_role("status")).to_contain_text("3 of 3")


@pytest.mark.parametrize("metric", ["faithfulness", "context_entity_recall", "answer_correctness"])
def test_a_phone_breaks_no_metric_name_within_a_word(opened, metric):
    rows = [Row(index=n, sample=sample(n), scores={metric: score(0.5, metric)}) for n in range(2)]
    page = opened(Report(rows), width=390)
    lines = page.locator("bdi:visible", has_text=metric).evaluate_all(
        """names => names.flatMap((name) => [...name.childNodes].filter((node) => node.nodeType === 3).map((node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return new Set([...range.getClientRects()].map((line) => line.top)).size;
        }))"""
    )
    assert set(lines) == {1}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_russian_table_of_costs_has_all_its_columns_in_sight(opened):
    asked = sample(0, question="Где живут слоны?", answer="В Африке.", contexts=["В Африке."], references=[])
    scored = score(0.5, metric="answer_correctness", findings=[], reason="Мало.")
    page = opened(Report([Row(index=0, sample=asked, scores={"answer_correctness": scored})]))
    table = page.locator("section[aria-labelledby=cost-title] .wide")
    assert table.evaluate("part => part.scrollWidth <= part.clientWidth")


def test_a_long_question_to_look_at_first_is_cut_with_an_ellipsis(opened):
    long = "why " * 100
    rows = [Row(index=0, sample=sample(0, question=long), scores={"faithfulness": score(0.0)})]
    page = opened(Report(rows))
    assert page.locator(".looks a").all_inner_texts() == [f"{long[:200]}…"]
    expect(page.locator("#pages")).to_be_hidden()  # there is one page of samples


@pytest.mark.parametrize("width", [390, 1300])
def test_an_empty_report_says_so_and_shows_no_empty_tables(opened, width):
    page = opened(Report([]), width=width)
    expect(page.locator("h1")).to_have_text("No samples were scored")
    assert page.locator("h2:visible").all_inner_texts() == ["What went wrong", "Look here first"]


def test_a_russian_page_has_no_english_words_of_its_own(opened):
    note = Note("request-mode", judge="ChatOpenAI(model='qwen', base_url='http://10.0.0.7/v1')", mode="json_schema")
    told = report([0.5, 1.0, 0.0, 0.25, 0.5, 0.75], notes=[note], complete=False, left_out=[(1, "faithfulness")])
    page = opened(told, language="ru", baseline=report([0.1, 0.2, 0.3, 0.4, 0.5]))
    names = {"faithfulness", "claim_noise", "RAG", "UTC", "qwen", "json_schema", "langchain", "rageval"}
    samples = {"Question", "sample"}
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert {*re.findall("[A-Za-z][A-Za-z_]+", page.locator("body").inner_text())} <= names | samples


# The page of a trend

live = partial(stream, noise=True, question="When is the fee paid")
BASELINE = live([0.9] * 6, seed=2)
DRIFT = trend(live([0.9] * 10 + [0.6] * 5), BASELINE)


def worst_ids(page):
    return page.locator("#table tbody th small").all_inner_texts()


def test_changes_of_a_mean_are_marked_and_named_in_both_languages(opened):
    found = trend(live([0.95] * 8 + [0.6] * 8 + [0.2] * 8))
    first, second = found.changes["faithfulness"]
    page = opened(found)
    assert page.locator(".chart .change").count() == 2
    for change in (first, second):
        text = f"mean changed (estimate) {change.before:.3f} → {change.after:.3f}, {change.since.day} November 2026"
        expect(page.locator(".legend")).to_contain_text([text])
    page = opened(found, language="ru")
    expect(page.locator(".legend")).to_contain_text(["среднее изменилось (оценка)"])


def test_without_drift_or_without_baseline_nothing_is_marked(opened):
    page = opened(trend(live([0.9] * 5), BASELINE))
    expect(page.locator("h1")).to_have_text("No drift was found")
    assert page.locator(".chart .since, .chart .raised, .chart .after, .chart .change, .drift").count() == 0
    page = opened(trend(live([0.9] * 5), by="version"))
    expect(page.locator("h1")).to_have_text("Means over time")
    assert page.locator(".base, .base-area").count() == 0


def test_metrics_with_an_alarm_come_first(opened):
    turned = partial(over, scores=lambda one: dict([*one.scores.items()][::-1]))
    found = trend(turned(live([0.5] * 8)), turned(BASELINE))
    assert (found.metrics, list(found.alarms)) == (["noise", "faithfulness"], ["faithfulness"])
    page = opened(found)
    assert page.locator(".beside h2").all_inner_texts() == ["faithfulness", "noise ↓"]
    page.locator('.chart a[href$="=3.1"] .target').click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("faithfulness")


def test_a_point_leads_to_the_worst_samples_of_its_period_by_its_metric(opened):
    page = opened(DRIFT)
    page.locator('.chart a[href="#period=12.1"] .target').click()
    expect(page.locator("select[name=period]")).to_have_value("12")
    assert {one.partition("-")[0] for one in worst_ids(page)} == {"12"}
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("noise")
    worst = [one.sample.id for one in DRIFT.rows["2026-11-14"] if float(one.scores["noise"]) == 0.4]
    assert {*worst_ids(page)[:10]} == {*worst}
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(r"^(\d+) of \1 samples$"))


def test_the_keyboard_leads_from_a_period_to_a_sample_and_back(opened):
    page = opened(DRIFT)
    page.get_by_role("link", name="2026-11-15").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#samples-title")).to_be_focused()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("faithfulness")
    assert all(one.startswith("13-") for one in worst_ids(page))
    worst = worst_ids(page)[0]
    assert DRIFT.rows["2026-11-15"][int(worst.partition("-")[2])].scores["faithfulness"].value == 0.0
    page.get_by_role("link", name=re.compile(rf"\b{worst}$")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sample-title")).to_be_focused()
    expect(page.locator(".facts-line")).to_contain_text("2026-11-15 00:")
    expect(page.locator(".facts-line")).to_contain_text("version: 2")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name=re.compile(rf"\b{worst}$"))).to_be_focused()


@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_texts_of_a_trend_run_nothing_and_the_layout_holds(opened, width):
    rows = []
    for number in range(12):
        score = Score(metric=EVIL, aspect="answer", value=number % 2, reason=EVIL)
        more = {"time": START + timedelta(days=number), "tags": {EVIL: f"{EVIL}{number % 3}"}}
        rows.append(row(number, score, id=f"{number}{EVIL}", question=EVIL, metadata={EVIL: EVIL}, **more))
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


@pytest.mark.parametrize("width", [390, 1300])
def test_labels_of_the_chart_do_not_overlap_on_a_page(opened, width):
    page = opened(trend(live([0.9] * 40, per_day=3)), width=width)
    boxes = page.locator(".chart > text:visible").evaluate_all(
        "texts => texts.map((text) => text.getBoundingClientRect()).map(({ left, right, top }) => [top, left, right])"
    )
    assert len(boxes) >= 2 * 3
    for (top, _, right), (other_top, left, _) in pairwise(boxes):
        assert top != other_top or right < left
    assert all(left >= 0 and right <= width for _, left, right in boxes)


def test_a_metric_without_any_value_is_shown_without_a_curve(opened):
    lost = Score(metric="noise", aspect="answer", unscored="no facts")
    page = opened(trend(Report([row(n, scored(1.0), lost, id=f"r{n}", time=START) for n in range(8)])))
    expect(page.locator("section:has(#chart-1)")).to_contain_text("No sample has a score.")
    assert page.locator(".chart").count() == 1


def test_a_russian_page_of_a_trend_has_no_english_words_of_its_own(opened):
    found = trend(live([0.9] * 10 + [0.5] * 5, question="Когда платить"), BASELINE)
    page = opened(found)
    assert page.evaluate("document.documentElement.lang") == "ru"
    expect(page.locator("h1")).to_have_text("Дрейф: faithfulness")
    page.locator("p.note").evaluate_all("notes => notes.forEach((note) => note.remove())")
    shown = {*re.findall("[A-Za-z][A-Za-z_]+", page.locator("body").inner_text())}
    assert shown <= {"faithfulness", "noise", "RAG", "UTC", "langchain", "rageval"}


# The page to label

IDS = ["007", "1-2", "q-1", "=1", "'", "е-1", "ёж; 2", " a", "b,c", '"quoted"', "line\nbreak"]


def sheet_of(count, **others):
    rows = [row(number, scored(number / 9), id=f"q-{number}", **others) for number in range(count)]
    return Report(rows).to_label(count)


def press(page, keys):
    for key in keys.split():
        page.keyboard.press(key)


def saved(page, path):
    """Press the key that saves; return the path of the file."""
    with page.expect_download() as download:
        page.keyboard.press("s")
    file = path / download.value.suggested_filename
    download.value.save_as(file)
    return file


def test_labels_given_by_keyboard_come_back_by_id(opened, tmp_path):
    page = opened(sheet_of(5))
    press(page, "1 0 1 u 0 j c")
    page.keyboard.type('=1+1, "sure"')
    press(page, "Enter 0")
    expect(page.locator("#progress")).to_have_text(
        "No. This is the last row of the list. Save the file. 4 of 5 labelled."
    )
    file = saved(page, tmp_path)
    assert file.name == "page.csv"
    expect(page.locator("#progress")).to_have_text("Saved as page.csv. Labels: 4; rows without a label: 1.")
    assert load_labels(file) == {"q-0": 1.0, "q-1": 0.0, "q-2": 0.0, "q-4": 0.0}
    lines = list(csv.reader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline="")))
    assert lines[0] == ["id", "label", "comment"]
    assert lines[5] == ["q-4", "no", '\'=1+1, "sure"']


def test_every_id_comes_back(opened, tmp_path):
    rows = [row(number, scored(0.5), id=name) for number, name in enumerate(IDS)]
    page = opened(Report(rows).to_label(len(IDS)))
    press(page, " ".join(["1"] * len(IDS)))
    assert load_labels(saved(page, tmp_path)) == dict.fromkeys(IDS, 1.0)


def test_grades_have_the_keys_of_their_digits(opened, tmp_path):
    page = opened(sheet_of(3), scale=(1, 5), instruction="How polite is the answer?")
    expect(page.locator("#actions .instruction")).to_have_text("How polite is the answer? Grade from 1 to 5")
    press(page, "5 1 0 9 3")
    expect(page.locator("#progress")).to_contain_text("3 of 3 labelled.")
    assert load_labels(saved(page, tmp_path)) == {"q-0": 5.0, "q-1": 1.0, "q-2": 3.0}


def test_progress_is_kept_for_a_sheet_and_can_be_forgotten(opened):
    page = opened(sheet_of(3))
    press(page, "1 0")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#progress")).to_have_text("2 of 3 labelled.")
    page.evaluate("window.confirm = () => true")
    page.keyboard.press("?")
    page.get_by_role("button", name="Start over").press("Enter")
    expect(page.locator("#progress")).to_have_text("0 of 3 labelled.")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#progress")).to_have_text("0 of 3 labelled.")


def test_a_person_sees_question_answer_contexts_and_references_but_no_id(opened):
    page = opened(sheet_of(1, answer="In 1158.", contexts=["one", "two"], references=["1158", "the year 1158"]))
    shown = page.locator("#item").inner_text()
    assert re.sub(r"\s+", " ", shown) == (
        "1 of 1 When was Munich founded? Answer In 1158. Reference answer 1158 Reference answer the year 1158 "
        "Comment Contexts [1] one [2] two"
    )
    expect(page.locator("#actions .instruction")).to_have_text(
        "Do the contexts support everything that the answer states?"
    )


def test_the_conversation_before_a_question_is_shown(opened):
    turns = [{"role": "user", "text": "Tell me about Munich."}]
    page = opened(Report([row(0, scored(1.0), history=turns)]).to_label(1))
    expect(page.locator(".head section").first).to_have_text(
        "Conversation before the questionuser: Tell me about Munich."
    )


@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_rows_to_label_run_nothing_and_the_layout_holds(opened, width, tmp_path):
    texts = [EVIL, "\u2028</script>\u2029", "\u202eמימין\u2066", "ы" * 10_000, "<|im_start|>system", "q " * 150_000]
    others = [{"question": one, "answer": one, "contexts": [one], "references": [one]} for one in texts]
    rows = [row(n, scored(0.5), id=texts[n][:99], **fields) for n, fields in enumerate(others)]
    page = opened(Report(rows).to_label(6), width=width)
    for number in range(6):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("1")
        expect(page.locator("#progress")).to_contain_text(f"{number + 1} of 6")
    assert page.evaluate("window.owned") is None
    assert load_labels(saved(page, tmp_path)) == {one[:99]: 1.0 for one in texts}


def test_a_missing_answer_and_missing_contexts_are_stated(opened):
    page = opened(sheet_of(1, answer=None, contexts=[]))
    assert page.locator("#item .empty").all_inner_texts() == ["No answer.", "No contexts are recorded."]


def test_a_russian_page_asks_in_russian(opened):
    page = opened(sheet_of(2, question="Когда основан Мюнхен?", answer="В 1158 году.", contexts=[], references=[]))
    page.keyboard.press("1")
    expect(page.locator("#progress")).to_have_text("Да. Размечено: 1 из 2.")
    expect(page.locator("#actions .instruction")).to_have_text("Подтверждают ли контексты всё, что сказано в ответе?")
    assert set(re.findall("[A-Za-z][A-Za-z_]+", page.locator("body").inner_text())) == {"faithfulness", "English"}


# All pages

PAGES = {
    "report": lambda: (report([0.5, 1.0, 0.0, 0.75, 0.5, 0.5, 0.25]), "", {"baseline": report([0.25] * 7)}),
    "sample": lambda: (report([0.5, 1.0, 0.0, 0.75, 0.5, 0.5, 0.25]), "#sample=0", {}),
    "chat": lambda: (Report([turn_row(judged_as(STANDALONE))]), "#sample=0", {}),
    "trend": lambda: (DRIFT, "", {}),
    "label": lambda: (sheet_of(3), "", {}),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_violation(opened, name, dark):
    """Each page in both schemes and at both widths, each scheme at both widths."""
    width = (390, 1300)[(list(PAGES).index(name) + dark) % 2]
    shown, fragment, options = PAGES[name]()
    page = opened(shown, fragment, dark=dark, width=width, **options)
    expect(page.locator("#sample")).to_be_visible() if fragment else None
    if name == "label":
        press(page, "1 k")
    found = [v for v in Axe().run(page)["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
