"""Names of other libraries, names with two meanings, and records with two plausible values of one field."""

import json

import pytest
from helpers.each import each, error_of
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import evaluate, string_presence
from langchain_rageval.data.field_names import explain_fields
from langchain_rageval.data.foreign_records import check_outputs_are_clear, decode_row
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.data.tables import guess_encoding, parse_literal
from langchain_rageval.errors import ConfigError, SampleError


def read(path, content, name="a.jsonl", encoding="utf-8", fields=None):
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    path = path / name
    path.write_bytes(text.encode(encoding))
    return list(load_samples(path, fields))


@pytest.mark.parametrize("name", ["report.jsonl", "good.rep", "report.jsonl.part"])
def test_the_rows_of_a_report_are_samples_whatever_its_name(tmp_path, name):
    sample = Sample(id="s", question="q", answer="a", contexts=["c"])
    row = {"index": 0, "sample": sample.model_dump(), "scores": {}}
    assert read(tmp_path, [{"rageval_report": {"notes": []}}, row], name) == [sample]


# Spelling


def test_the_exact_name_goes_before_another_spelling_which_stays_in_the_metadata():
    sample = Sample.parse({"Question": "other", "question": "q"})
    assert (sample.question, sample.metadata) == ("q", {"Question": "other"})


@each(("value", "text"), [(42, "42"), (42.0, "42"), (0.5, "0.5"), (True, "True"), ("42", "42"), (float("nan"), None)])
def test_a_number_is_a_text_and_nan_is_missing(value, text):
    sample = Sample.parse({"question": "q", "answer": value, "reference": value})
    assert (sample.answer, sample.references) == (text, [] if text is None else [text])


# Cells


def test_an_encoding_is_named_once_and_lines_in_another_are_refused(tmp_path, caplog):
    lines = ['{"question": "Где живут слоны?"}\n'.encode(encoding) for encoding in ("cp1251", "cp1251", "utf-8")]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    error = error_of(ConfigError, lambda: [*load_samples(tmp_path / "a.jsonl")])
    assert str(error) == "a.jsonl, line 3 is UTF-8, earlier lines are cp1251; save the file as UTF-8"
    assert caplog.messages == ["a.jsonl is not UTF-8; read as cp1251"]


@each(
    ("table", "read_as"),
    [
        ("Вопрос;Ответ;Тема\nв;о;\nв2;о2;т\n", "answer from 'Ответ'; only kept as metadata: 'Тема'"),
        ("Вопрос;Контекст 2;КОНТЕКСТ 1\nв;б;а\n", "contexts from 'КОНТЕКСТ 1' and 'Контекст 2'"),
    ],
)
def test_what_was_read_as_what_is_logged(tmp_path, caplog, table, read_as):
    caplog.set_level("INFO", "langchain_rageval")
    caplog.clear()
    read(tmp_path, table, "a.csv")
    assert caplog.messages == [f"a.csv: question from 'Вопрос', {read_as}"]


def test_a_mapped_name_that_is_in_no_record_is_logged_and_not_called_read(tmp_path, caplog):
    caplog.set_level("INFO", "langchain_rageval")
    lines = [{"question": "q", "rag": {}}, {"question": "r", "rag": {"answer": "a"}}]
    text = "\n".join(map(json.dumps, lines))
    read(tmp_path, text, "a.jsonl", fields={"answer": "rag.answer", "contexts": "rag.dcos"})
    assert caplog.messages[1:] == ["a.jsonl: no record has 'rag.dcos', which fields maps to contexts"]
    assert "dcos" not in caplog.messages[0]


# Any data

KEYS = [
    *("question", "answer", "context", "contexts", "inputs", "outputs", "messages", "trace", "info", "data", "spans"),
    *("attributes", "run_type", "child_runs", "sample", "item", "scores", "record_id", "input", "record_json", "calls"),
    *("stack", "method", "events", "record_attributes", "assessments", "expectation", "lc", "kwargs", "id", "node"),
    *("evolution", "passage_ids", "spans", "metadata", "inputs.question", "context_1", "trace_id", "expectations"),
    *("actual_output", "retrieval_context", "type", "content", "role", "request", "outputs.context", "parent_id"),
]
NAMES = st.sampled_from(KEYS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, VALUES, max_size=7))
def test_any_record_is_a_sample_or_a_sample_error(record):
    for read_record in (Sample.parse, lambda row: Sample.parse(decode_row(row, {}))):
        try:
            check_outputs_are_clear(record, ())
            read_record(record)
        except SampleError:
            pass


@given(st.text(alphabet="[]{}()'\",abN \n\\-1:#", max_size=40))
def test_any_cell_is_a_list_or_a_mapping_or_a_text(text):
    parse_literal(text)


# Encodings


@each(
    ("text", "encoding"),
    [
        ("контекст да полис договор полис там полис вопрос", "cp1251"),
        ("эксперт контекст договор на и ООО как ООО", "cp1251"),
        ("ИТОГО ПО ДОГОВОРУ СТРАХОВАНИЯ", "cp1251"),
        ("Wer? Die Universität zu Köln, natürlich.", "cp1252"),
        ("Où est-il né ? Il est né à l’hôpital.", "cp1252"),
    ],
)
def test_the_letters_of_a_text_suggest_its_encoding(text, encoding):
    assert guess_encoding(text.encode(encoding)) == encoding


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


ELEPHANTS = "Elephants founded it in 2001."


@each(
    ("names", "first", "value", "what"),
    [
        ((*ANSWER_NAMES, *MODELS), {"answer": "gold"}, ELEPHANTS, "the answer"),
        (REFERENCE_NAMES, {"reference": "r"}, "In 1158.", "the reference"),
        (CHUNK_NAMES, {}, ["d"], "contexts"),
    ],
)
def test_a_second_value_under_a_likely_name_is_refused(names, first, value, what):
    errors = {name: str(error_of(SampleError, Sample.parse, {**SYSTEM, **first, name: value})) for name in names}
    assert [name for name in names if f"could both be {what}: write fields=" not in errors[name]] == []


def test_the_only_value_under_a_likely_name_is_read():
    read = {name: Sample.parse({**SYSTEM, name: ELEPHANTS}) for name in (*ANSWER_NAMES, *MODELS, *REFERENCE_NAMES)}
    assert [name for name in (*ANSWER_NAMES, *MODELS) if read[name].answer != ELEPHANTS] == []
    assert [name for name in REFERENCE_NAMES if read[name].references != [ELEPHANTS]] == []


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
    report = evaluate(rows("c", "d", "e", references=["a"]), string_presence(), progress=False)
    assert report.rows[0].sample.contexts == ["c", "d", "e"]
    assert "1 of 1 samples were joined from rows with one context each." in report.notes
