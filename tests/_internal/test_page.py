"""Texts on pages, terminals and in notebooks: readable, escaped, bounded, without control characters."""

import json
import re

import pytest
from helpers.each import each
from helpers.reports import Tags, sample, score

from langchain_rageval import Finding, PromptSet, Row, Sample, Score, Testset
from langchain_rageval._internal.page import printable, printable_json, printable_lines
from langchain_rageval.data.schema import Failure
from langchain_rageval.testset import TestsetRow, Trial

EVIL = "</td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;\u202e"
FINDINGS = [Finding(kind="statement", number=1, text=EVIL, verdict=EVIL, reason=EVIL, cites=[EVIL])]


def question(**fields):
    trial = Trial(kind=fields.get("evolution", "seed"), question="Как застраховать баню?", feedback="слишком легко")
    told = {"question": "Как застраховать баню?", "contexts": [], "reference": "Вместе с домом.", "evolution": "simple"}
    return TestsetRow(**{"id": "1", **told, "history": [trial], **fields})


HOSTILE = {
    "sample": Sample(question=EVIL, answer=EVIL, contexts=[EVIL], references=[EVIL], reference_contexts=[EVIL]),
    "score": Score(metric=EVIL, aspect="answer", value=1.0, reason=EVIL, findings=FINDINGS),
    "failure": Score(metric="m", aspect="answer", failure=Failure(error=EVIL, message=EVIL)),
    "unscored": Score(metric="m", aspect="answer", unscored=EVIL),
    "row": Row(index=0, sample=Sample(question=EVIL), scores={EVIL: score(0.5)}),
    "prompts": PromptSet.default("ru").replace("verify_statements", instruction=EVIL),
    "question": question(
        question=EVIL, reference=EVIL, evolution=EVIL, history=[Trial(kind=EVIL, question=EVIL, feedback=EVIL)]
    ),
    "test set": Testset([question(question=EVIL)], notes=[EVIL]),
}


@each("name", HOSTILE)
def test_foreign_text_is_escaped_all_tags_are_closed_and_no_colours_are_set(name):
    page = HOSTILE[name]._repr_html_()
    assert EVIL in " ".join(Tags(page).texts)
    assert not {"script", "img"} & {*Tags(page).opened}
    assert "\u202e" not in re.sub(r"<bdi>[^<]*</bdi>", "", page)  # turns the direction of nothing outside
    assert not re.findall(r"color|background|#[0-9a-f]{3}", page)
    assert sorted(Tags(page).opened) == sorted(Tags(page).closed)


def test_a_sample_shows_question_answer_numbered_contexts_and_references():
    page = Sample(question="Где?", answer="Тут.", contexts=["a", "b"], references=["Там."])._repr_html_()
    shown = ["Где?", "Тут.", "2 contexts", "a", "b", "1 reference", "Там."]
    assert [told for told in Tags(page).texts if told.strip()] == shown
    assert "<ol>" in page


def test_what_is_missing_is_not_what_is_empty():
    assert "no answer" in Sample(question="Q?")._repr_html_()
    assert "context" not in Sample(question="Q?")._repr_html_()
    assert "0 contexts" in Sample(question="Q?", contexts=[])._repr_html_()


@pytest.mark.parametrize(
    ("verdict", "mark"), [("supported", "✓"), ("contradicted", "✗"), ("absent", "?"), ("0.83", "")]
)
def test_a_score_shows_why_with_a_mark_for_each_verdict(verdict, mark):
    finding = Finding(
        kind="statement", number=1, text="Мюнхен старый.", verdict=verdict, reason="r", cites=["1.1", "2.3"]
    )
    found = Score(metric="m", aspect="answer", value=0.5, reason="Потому.", findings=[finding])
    texts = Tags(found._repr_html_()).texts
    for told in ("m", "Потому.", verdict, "Мюнхен старый.", "r", "1.1, 2.3"):
        assert told in texts
    assert "0.500" in "".join(texts)
    assert [told for told in texts if told in "✓✗?"] == [mark] * bool(mark)


def test_a_row_shows_its_sample_and_each_score():
    page = Row(index=0, sample=sample(0), scores={"a": score(0.25, "a"), "b": score(0.5, "b")})._repr_html_()
    assert page.startswith(sample(0)._repr_html_())
    assert "0.250" in page
    assert page.count("<b>") == 3


def test_prompts_show_the_first_line_of_each_step():
    texts = Tags(PromptSet.default("ru")._repr_html_()).texts
    prompts = PromptSet.default("ru")
    assert f"Prompts in ru: {len(prompts.prompts)} steps" in texts
    shown = list(prompts.prompts.values())[:50]  # a table in a notebook has no more rows
    assert {prompt.instruction.strip().split("\n")[0] for prompt in shown} <= set(texts)


def test_a_question_shows_how_it_came_about():
    page = question(history=[Trial(kind="seed", accepted=False, feedback="нет"), Trial(kind="rewrite")])._repr_html_()
    assert page.index("✗") < page.index("нет") < page.index("✓") < page.index("rewrite")


def test_long_texts_and_long_lists_are_cut_and_say_so():
    page = Sample(question="q" * 1_000_000, contexts=["c"] * 1_000)._repr_html_()
    assert len(page) < 20_000
    assert "[1,000,000 characters]" in page
    assert "1,000 contexts" in page
    assert "and 950 more" in page


# Texts without characters that command the terminal or reverse the writing direction


COMMANDS = "a\x1b]0;title\x07\x1b[2J\x9b1m\x1b]8;;http://h\x1b\\\\b\u202e\u2066c\u200f\u061c\u2028\rd"
FORBIDDEN = set("\x07\x1b\x9b\r\u202e\u2066\u200f\u061c\u2028")


def test_a_text_is_one_line_without_control_characters_and_marks():
    assert printable("a\x1b[31m b\n\tc\u202ed\x9b") == "a\ufffd[31m b cd\ufffd"
    assert printable_lines("a\n\x00b\u2067c") == "a\n\ufffdbc"
    assert printable("ёж, 中文, עברית, 👨‍👩‍👧 «да»") == "ёж, 中文, עברית, 👨‍👩‍👧 «да»"


def test_a_json_document_keeps_its_content():
    document = json.dumps({COMMANDS: COMMANDS}, ensure_ascii=False)
    assert not FORBIDDEN & set(printable_json(document))
    assert json.loads(printable_json(document)) == {COMMANDS: COMMANDS}
