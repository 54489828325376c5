"""The page for labelling samples: one key a label, the judge's scores hidden, and a file that `load_labels` reads."""

import base64
import csv
import gzip
import io
import json
import re

import pytest
from helpers.chromium import EVIL, NEEDS_CHROMIUM, Axe, expect
from helpers.each import each
from helpers.reports import report_of, row, scored

from langchain_rageval import ConfigError, Report, Sample
from langchain_rageval.report.labelling import load_labels

IDS = ["007", "1-2", "q-1", "=1", "'", "е-1", "ёж; 2", " a", "b,c", '"quoted"', "line\nbreak"]


def sheet_of(count, **others):
    rows = [row(number, scored(number / 9), id=f"q-{number}", **others) for number in range(count)]
    return Report(rows).to_label(count)


@pytest.fixture
def opened(open_file, tmp_path):
    """Open the page of a sheet."""

    def open_page(sheet, *, dark=False, width=1300, **options):
        sheet.to_html(tmp_path / "labels.html", **options)
        return open_file(tmp_path / "labels.html", dark=dark, width=width)

    return open_page


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


def content_of(page):
    """Return the data and the words that are packed into a page, as text."""
    blocks = re.findall(r'<script type="text/plain" id="\w+">([^<]+)</script>', page.read_text(encoding="utf-8"))
    return [gzip.decompress(base64.b64decode(block)).decode() for block in blocks]


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_labels_given_by_keyboard_come_back_by_id(opened, tmp_path):
    page = opened(sheet_of(5))
    press(page, "1 0 1 u 0 j c")
    page.keyboard.type('=1+1, "sure"')
    press(page, "Enter 0")
    expect(page.locator("#progress")).to_have_text(
        "No. This is the last row of the list. Save the file. 4 of 5 labelled."
    )
    file = saved(page, tmp_path)
    assert file.name == "labels.csv"
    expect(page.locator("#progress")).to_have_text("Saved as labels.csv. Labels: 4; rows without a label: 1.")
    assert load_labels(file) == {"q-0": 1.0, "q-1": 0.0, "q-2": 0.0, "q-4": 0.0}
    lines = list(csv.reader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline="")))
    assert lines[0] == ["id", "label", "comment"]
    assert lines[5] == ["q-4", "no", '\'=1+1, "sure"']


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_every_id_comes_back(opened, tmp_path):
    rows = [row(number, scored(0.5), id=name) for number, name in enumerate(IDS)]
    page = opened(Report(rows).to_label(len(IDS)))
    press(page, " ".join(["1"] * len(IDS)))
    assert load_labels(saved(page, tmp_path)) == dict.fromkeys(IDS, 1.0)


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_grades_have_the_keys_of_their_digits(opened, tmp_path):
    page = opened(sheet_of(3), scale=(1, 5), instruction="How polite is the answer?")
    expect(page.locator("#actions .instruction")).to_have_text("How polite is the answer? Grade from 1 to 5")
    press(page, "5 1 0 9 3")
    expect(page.locator("#progress")).to_contain_text("3 of 3 labelled.")
    assert load_labels(saved(page, tmp_path)) == {"q-0": 5.0, "q-1": 1.0, "q-2": 3.0}


@pytest.mark.gate
@NEEDS_CHROMIUM
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


def test_the_page_holds_no_scores_and_no_metadata(tmp_path):
    judged = scored(0.0123).model_copy(update={"reason": "SECRET reason", "instrument": "SECRET"})
    Report([row(0, judged, metadata={"model": "SECRET"})]).to_label(1).to_html(tmp_path / "labels.html")
    content = "".join(content_of(tmp_path / "labels.html"))
    assert "When was Munich founded?" in content
    assert "SECRET" not in content
    assert "0.0123" not in content


@pytest.mark.gate
@NEEDS_CHROMIUM
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


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_the_conversation_before_a_question_is_shown(opened):
    turns = [{"role": "user", "text": "Tell me about Munich."}]
    judged = row(0, scored(1.0))
    chat = Sample(**{**judged.sample.model_dump(), "history": turns})
    page = opened(Report([judged.model_copy(update={"sample": chat})]).to_label(1))
    expect(page.locator(".head section").first).to_have_text(
        "Conversation before the questionuser: Tell me about Munich."
    )


@pytest.mark.gate
@NEEDS_CHROMIUM
@pytest.mark.parametrize("width", [390, 1300])
def test_hostile_texts_run_nothing_and_the_layout_holds(opened, width, tmp_path):
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


@pytest.mark.gate
@NEEDS_CHROMIUM
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_violation(opened, dark):
    page = opened(sheet_of(3), dark=dark, width=390 if dark else 1300)
    press(page, "1 k")
    found = Axe().run(page)["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_a_missing_answer_and_missing_contexts_are_stated(opened):
    page = opened(sheet_of(1, answer=None, contexts=[]))
    assert page.locator("#item .empty").all_inner_texts() == ["No answer.", "No contexts are recorded."]


@pytest.mark.gate
@NEEDS_CHROMIUM
def test_a_russian_page_asks_in_russian(opened):
    page = opened(sheet_of(2, question="Когда основан Мюнхен?", answer="В 1158 году.", contexts=[], references=[]))
    page.keyboard.press("1")
    expect(page.locator("#progress")).to_have_text("Да. Размечено: 1 из 2.")
    expect(page.locator("#actions .instruction")).to_have_text("Подтверждают ли контексты всё, что сказано в ответе?")
    assert set(re.findall("[A-Za-z][A-Za-z_]+", page.locator("body").inner_text())) == {"faithfulness", "English"}


def test_a_metric_of_your_own_has_a_question_too(tmp_path):
    report_of(scored(1.0, "politeness {x}")).to_label(1).to_html(tmp_path / "labels.html")
    _, data = map(json.loads, content_of(tmp_path / "labels.html"))
    assert data["instruction"] == {
        "en": "Would you give this sample a high score for politeness {x}?",
        "ru": "Заслуживает ли этот пример высокой оценки по метрике politeness {x}?",
    }


@each("scale", [(1, 10), (-1, 3), (3, 3), (5, 1), (0.5, 1), (1, 2, 3), (True, 3)])
def test_a_scale_without_keys_is_refused(tmp_path, scale):
    with pytest.raises(ConfigError, match=r"scale is the lowest and the highest grade, from 0 to 9, as \(1, 5\); got "):
        sheet_of(1).to_html(tmp_path / "labels.html", scale=scale)
    assert list(tmp_path.iterdir()) == []
