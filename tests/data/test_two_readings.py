"""Records with two plausible answers, references or contexts, and exports whose fields have meanings of their own."""

import pytest

from langchain_rageval import Sample, evaluate, string_presence
from langchain_rageval.data.field_names import explain_fields
from langchain_rageval.errors import SampleError

SYSTEM = {"question": "q?", "contexts": ["c"]}
ANSWER_NAMES = (
    *("response", "prediction", "generated_answer", "model_answer", "output", "actual_output", "llm_answer"),
    *("completion", "result", "gpt4_answer", "botReply", "final_output", "GigaChat response", "system text"),
    *("chatbot_reply", "generated", "pred", "hypothesis", "candidate", "reply", "generation", "output_text"),
    *("answer_2", "answer2", "second_answer", "student_answer", "modelOutput", "predicted_answer", "answer_llm"),
    *("decoded", "actual", "ответ модели", "ответ системы", "ответ GigaChat", "ответ бота", "ответ_ИИ"),
    *("сгенерированный ответ", "ответ нейросети", "генерация", "предсказание", "реплика"),
)
MODELS = ("gpt4", "gpt-4o", "GigaChat", "llm", "bot", "assistant", "Qwen2", "нейросеть")
REFERENCE_NAMES = (
    *("gold", "golden_answer", "gold_answers", "expected", "expected_outputs", "correct_response"),
    *("reference_text", "gt", "ground_truth_answer", "ideal_answer", "human_answer", "right_answer"),
    *("эталон ответа", "золотой ответ"),
)
CHUNK_NAMES = ("chunks", "passages", "ctxs", "retrieved_passages", "snippets", "чанки", "отрывки")
NO_NAMES = (
    *("answer_type", "response_time", "answer_explanation", "answer_start", "previous_answer", "text", "target"),
    *("label", "docs", "sources", "human", "correct", "chunk_id", "модель", "источник данных"),
)


def outcome(record):
    try:
        return Sample.parse(record)
    except SampleError as error:
        return str(error)


def test_a_second_value_under_a_likely_name_is_refused_and_the_only_one_is_read():
    elephants = "Elephants founded it in 2001."
    cases = [(name, {"answer": "gold"}, elephants, "the answer") for name in (*ANSWER_NAMES, *MODELS)]
    cases += [(name, {"reference": "r"}, "In 1158.", "the reference") for name in REFERENCE_NAMES]
    cases += [(name, {}, ["d"], "contexts") for name in CHUNK_NAMES]
    read = {name: outcome({**SYSTEM, **first, name: value}) for name, first, value, _ in cases}
    what = {name: what for name, _, _, what in cases}
    assert [name for name in read if f"could both be {what[name]}: write fields=" not in str(read[name])] == []
    alone = {name: Sample.parse({**SYSTEM, name: elephants}).answer for name in (*ANSWER_NAMES, *MODELS)}
    assert {name for name in alone if alone[name] != elephants} == set()
    assert [n for n in REFERENCE_NAMES if Sample.parse({**SYSTEM, n: elephants}).references != [elephants]] == []


def test_a_likely_name_is_named_as_the_origin_of_its_field():
    record = {"question": "q?", "llm_answer": "a", "golden_answer": "r"}
    origins = {"question": ["question"], "answer": ["llm_answer"], "references": ["golden_answer"]}
    assert explain_fields(record)[1] == origins


def test_other_names_scores_and_names_of_models_are_metadata():
    others = [(name, "one, two, three") for name in NO_NAMES] + [
        ("predicted", "0.93"),
        ("llm", "GPT-4 turbo"),
        ("gold", "d12"),
        ("ref", "d 7"),
        ("refs", ["d1"]),
        ("candidate", "system 7"),
    ]
    for name, value in others:
        sample = Sample.parse({**SYSTEM, "answer": "a", "reference": "r", name: value})
        assert (sample.answer, sample.references, sample.metadata) == ("a", ["r"], {name: value}), name


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
