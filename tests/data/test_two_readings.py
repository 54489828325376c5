"""Records with two plausible answers, references or contexts, and exports whose fields have meanings of their own."""

import ast
import re

import pytest

from langchain_rageval import Sample, evaluate, load_samples, string_presence
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
CLASHES = (
    {"question": "q?", "answer": "a", "ground_truth": "r", "reference": "s"},
    {"question": "q?", "answer": "a", "expected_answer": "r", "эталон": "s"},
    {"question": "q?", "answer": "a", "contexts": ["c"], "documents": ["d"]},
    {"question": "q?", "answer": "a", "retrieved_contexts": ["c"], "source_documents": ["d"]},
    {"question": "q?", "answer": "a", "context_ids": ["c"], "retrieved_context_ids": ["d"]},
    {"question": "q?", "answer": "a", "ответ": "b"},
    {"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "a"}], "answer": "b"},
)
SAME = (
    {"question": "q?", "answer": "a b", "response": " a  b"},
    {"question": "q?", "answer": "a", "prediction": None},
    {"question": "q?", "answer": "a", "prediction": ""},
    {"question": "q?", "answer": "a", "ground_truth": "r", "references": ["r"]},
    {"question": "q?", "answer": "a", "context": "c\n\nd", "source_documents": ["c", "d"]},
    {"question": "q?", "answer": 42, "response": "42"},
    {"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "a"}], "answer": "a"},
)


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


def test_the_fields_of_a_refusal_decide():
    for record, error in refusals([*CLASHES, {**SYSTEM, "answer": "gold", "llm_answer": "b"}]):
        assert isinstance(error, SampleError), record
        remedies = [ast.literal_eval(found) for found in re.findall(r"fields=(\{.*?\})", str(error))]
        assert len(remedies) == 2, error
        one, other = (Sample.parse(record, fields).model_dump() for fields in remedies)
        assert one != other, record


def test_equal_values_and_missing_ones_are_one_reading():
    assert [record for record, result in refusals(SAME) if not isinstance(result, Sample)] == []


def test_every_door_of_records_refuses(tmp_path):
    record = {**SYSTEM, "answer": "gold", "response": "b", "references": ["r"]}
    path = tmp_path / "a.csv"
    path.write_text("question,answer,response\nq?,gold,b\n", encoding="utf-8")
    for door in (lambda: [*load_samples(path)], lambda: evaluate([record], string_presence(), progress=False)):
        with pytest.raises(SampleError, match="'answer' and 'response' could both be the answer"):
            door()


EXPORTS = {
    "Phoenix": (
        {"context.span_id": "s", "input": "q?", "output": "a", "reference": "c"},
        {"contexts": ["c"], "references": []},
    ),
    "Phoenix, a span": (
        {
            "attributes.input.value": "q?",
            "attributes.output.value": "a",
            "attributes.retrieval.documents": [{"document.content": "c", "document.id": "1"}],
        },
        {"contexts": ["c"], "context_ids": ["1"]},
    ),
    "Langfuse": (
        {
            "input": {"question": "q?"},
            "output": "a",
            "observations": [
                {"id": "1", "type": "RETRIEVER", "output": [{"page_content": "c"}]},
                {"id": "2", "type": "RETRIEVER", "parentObservationId": "1", "output": ["inner"]},
                {"id": "3", "type": "GENERATION", "output": "a"},
            ],
        },
        {"contexts": ["c"]},
    ),
    "Langfuse, a data set": ({"input": "q?", "expectedOutput": "r"}, {"answer": None, "references": ["r"]}),
    "Giskard": (
        {"question": "q?", "reference_answer": "r", "reference_context": "c", "agent_answer": "a"},
        {"references": ["r"], "reference_contexts": ["c"], "contexts": None},
    ),
    "Dify": (
        {"query": "q?", "answer": "a", "retriever_resources": [{"content": "c", "score": 0.5, "document_name": "d"}]},
        {"contexts": ["c"]},
    ),
    "Dify, its API": (
        {"query": "q?", "answer": "a", "metadata": {"retriever_resources": [{"content": "c"}]}},
        {"contexts": ["c"]},
    ),
    "Braintrust": (
        {"input": "q?", "output": "a", "expected": "r", "metadata": {"contexts": ["c"]}, "scores": {"x": 1}},
        {"references": ["r"], "contexts": ["c"]},
    ),
    "promptfoo": (
        {"vars": {"question": "q?", "answer": "r", "context": "c"}, "response": {"output": "a"}},
        {"references": ["r"], "contexts": ["c"]},
    ),
    "Haystack": (
        {"question": "q?", "llm": {"replies": ["a"]}, "retriever": {"documents": [{"content": "c", "id": "1"}]}},
        {"contexts": ["c"], "context_ids": ["1"]},
    ),
    "Haystack, built answers": (
        {"answer_builder": {"answers": [{"data": "a", "query": "q?", "documents": [{"content": "c"}]}]}},
        {"contexts": ["c"]},
    ),
    "SQuAD": (
        {"question": "q?", "context": "c", "answers": {"text": ["r"], "answer_start": [0]}, "prediction": "a"},
        {"references": ["r"], "reference_contexts": ["c"], "contexts": None},
    ),
    "HotpotQA": (
        {
            "question": "q?",
            "answer": "r",
            "supporting_facts": {"title": ["A"], "sent_id": [0]},
            "context": {"title": ["A", "B"], "sentences": [["c", " d"], ["e"]]},
        },
        {"answer": None, "references": ["r"], "reference_contexts": ["c d"]},
    ),
}


def test_exports_of_other_programs_are_read():
    for name, (record, expected) in EXPORTS.items():
        sample = Sample.parse(record)
        expected = {"question": "q?", "answer": "a"} | expected
        assert {field: getattr(sample, field) for field in expected} == expected, name


def rows(*contexts, **more):
    return [{"question": "q?", "answer": "a", "context": context, **more} for context in contexts]


def test_rows_of_one_chunk_each_are_one_sample(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,context,rank\nq?,a,c,1\nq?,a,d,2\np?,b,e,1\n", encoding="utf-8")
    first, second = load_samples(path)
    assert (first.contexts, first.metadata) == (["c", "d"], {"rank": ["1", "2"], "rows": 2}), first.metadata
    assert (second.contexts, second.metadata) == (["e"], {"rank": "1"}), second.metadata


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


def test_empty_numbered_columns_mean_that_nothing_was_retrieved(tmp_path):
    path = tmp_path / "a.csv"
    cells = ["[],", ",", "[],[]", "ф,[]", "ф,х"]
    text = "".join(f"q{number}?,a,{cell}\n" for number, cell in enumerate(cells))
    path.write_text("Вопрос,Ответ,Контекст 1,Контекст 2\n" + text, encoding="utf-8")
    assert [sample.contexts for sample in load_samples(path)] == [[], [], [], ["ф"], ["ф", "х"]]
