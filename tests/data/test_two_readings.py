"""Records with two plausible answers, references or contexts, and exports whose fields have meanings of their own."""

import pytest

from langchain_rageval import Sample, evaluate, string_presence
from langchain_rageval.errors import SampleError

SYSTEM = {"question": "q?", "contexts": ["c"]}
ANSWER_NAMES = (
    *(
        "response",
        "prediction",
        "generated_answer",
        "model_answer",
        "output",
        "actual_output",
        "llm_answer",
        "completion",
    ),
    *(
        "completion",
        "result",
        "gpt4_answer",
        "botReply",
        "final_output",
        "GigaChat response",
        "system text",
        "chatbot_reply",
    ),
    *("ответ модели", "ответ системы", "ответ GigaChat", "ответ бота", "сгенерированный ответ", "ответ нейросети"),
)
NO_ANSWERS = ("answer_type", "response_time", "model", "answer_explanation", "answer_start", "previous_answer", "text")


def refusals(records):
    for record in records:
        try:
            yield record, Sample.parse(record)
        except SampleError as error:
            yield record, error


def test_an_answer_beside_that_of_the_system_is_refused_under_any_name():
    records = [{**SYSTEM, "answer": "gold", name: "elephants"} for name in ANSWER_NAMES]
    assert [record for record, result in refusals(records) if isinstance(result, Sample)] == []


def test_the_name_of_a_system_alone_is_its_answer():
    read = {name: Sample.parse({**SYSTEM, name: "elephants"}).answer for name in ANSWER_NAMES}
    assert [name for name, answer in read.items() if answer != "elephants"] == []


def test_names_about_an_answer_are_no_answers():
    read = {name: Sample.parse({**SYSTEM, "answer": "a", name: "one, two, three"}) for name in NO_ANSWERS}
    assert [name for name, sample in read.items() if (sample.answer, [*sample.metadata]) != ("a", [name])] == []


def rows(*contexts, **more):
    return [{"question": "q?", "answer": "a", "context": context, **more} for context in contexts]


@pytest.mark.parametrize(
    "records",
    [
        [*rows("c"), *rows("d", id="2")],
        [*rows("c"), {**rows("d")[0], "answer": "b"}],
        rows("c", "c"),
        [*rows("c", system="one"), *rows("d", system="two")],
        [*rows("c"), {"question": "q?", "answer": "a", "contexts": ["d", "e"]}],
    ],
    ids=["id", "answer", "same chunk", "another system", "two chunks"],
)
def test_rows_that_differ_in_more_than_a_chunk_are_samples(records):
    report = evaluate([{**record, "references": ["a"]} for record in records], string_presence(), progress=False)
    assert len(report) == 2


def test_a_note_counts_the_samples_that_were_joined():
    records = [{**record, "references": ["a"]} for record in rows("c", "d", "e")]
    report = evaluate(records, string_presence(), progress=False)
    assert report.rows[0].sample.contexts == ["c", "d", "e"]
    assert "1 of 1 samples were joined from rows with one context each." in report.notes
