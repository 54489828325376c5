"""Names of fields: those of other libraries, names with two meanings, and two plausible values of one field."""

import json
from collections import namedtuple
from dataclasses import make_dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pandas as pd
from helpers.each import each, error_of
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langsmith.schemas import Example, Run
from pydantic import BaseModel, ConfigDict

from langchain_rageval import evaluate, string_presence
from langchain_rageval.data.field_names import explain_fields, read_fields, read_run
from langchain_rageval.data.foreign_records import check_outputs_are_clear, decode_row
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.data.tables import guess_encoding, parse_literal
from langchain_rageval.errors import ConfigError, SampleError

# Names of other libraries

PARIS = Document("Paris is the capital of France.", id="d1", metadata={"source": "atlas"})
LYON = Document("Lyon is on the Rhône.", id="d2")
ANONYMOUS = Document("Nice is by the sea.")


def a_run(
    inputs: dict[str, Any] | None = None, outputs: dict[str, Any] | None = None, run_type: str = "chain", **more: Any
) -> Run:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    known = {"id": uuid4(), "name": "rag", "start_time": now, "trace_id": uuid4(), "run_type": run_type}
    return Run(**known, inputs=inputs or {}, outputs=outputs, **more)


def an_example(inputs: dict[str, Any], outputs: dict[str, Any] | None = None, **more: Any) -> Example:
    return Example(id=uuid4(), dataset_id=uuid4(), inputs=inputs, outputs=outputs, **more)


TOLD = [HumanMessage("q"), AIMessage("a")]
FOUND = [HumanMessage("q"), ToolMessage("", tool_call_id="1", artifact=[PARIS]), AIMessage("a")]
NOT_FOUND = [HumanMessage("q"), ToolMessage("", tool_call_id="1", artifact=[]), AIMessage("a")]
TWO = [HumanMessage("1?"), AIMessage("1."), HumanMessage("q")]
WITH_ID = {"contexts": [PARIS.page_content], "context_ids": ["d1"]}
AS_REFERENCE = {"reference_contexts": [PARIS.page_content], "reference_context_ids": ["d1"]}


FIELDS = [
    ({"inputs": "q", "outputs": "a", "context": "c"}, {"answer": "a", "contexts": ["c"]}),
    ({"inputs": "q", "reference_outputs": "r"}, {"references": ["r"]}),
    ({"inputs": {"text": "q"}, "outputs": {"generation": "a"}}, {"answer": "a"}),
    ({"question": "q", "reference_outputs": {"gold": "r"}}, {"references": ["r"]}),
    ({"question": "q", "reference_outputs": {"contexts": [PARIS]}}, AS_REFERENCE),
    ({"question": "q", "outputs": {"label": 1, "split": "x"}}, {"metadata": {"label": 1, "split": "x"}}),
    ({"question": "q", "outputs": {"messages": [AIMessage("a")]}}, {"answer": "a"}),
    ({"messages": TWO}, {"history": [{"role": "user", "text": "1?"}, {"role": "assistant", "text": "1."}]}),
    ({"messages": [HumanMessage("q"), AIMessageChunk("a")], "context": [PARIS]}, {"answer": "a", **WITH_ID}),
    ({"messages": TOLD, "documents": [PARIS]}, {"answer": "a", **WITH_ID}),
    ({"messages": NOT_FOUND}, {"answer": "a", "contexts": []}),
    ({"question": "q", "metadata": {"level": 1}, "t": 2, "empty": None}, {"metadata": {"t": 2, "level": 1}}),
    ({"input": "i", "question": "q"}, {"metadata": {"input": "i"}}),
    ({"input": "q", "question": None}, {}),
    ({"question": "q", "contexts": PARIS}, {"contexts": [PARIS.page_content]}),
    ({"question": "q", "context": [LYON, ANONYMOUS]}, {"contexts": [LYON.page_content, ANONYMOUS.page_content]}),
    ({"question": "q", "context": [PARIS], "context_ids": [7]}, {**WITH_ID, "context_ids": ["7"]}),
    ({"id": 7, "question": "q"}, {"id": "7"}),
    ({"id": UUID(int=1), "question": "q"}, {"id": str(UUID(int=1))}),
    ({"question": "q", "relevance": {1: 2, "2": None, "3": np.int64(0)}}, {"relevance": {"1": 2, "3": 0}}),
]


@each(("record", "fields"), FIELDS)
def test_fields_are_read_under_the_names_of_other_libraries(record, fields):
    assert read_fields(record) == {"question": "q", "metadata": {}, **fields}


def test_documents_of_tools_precede_those_of_the_state():
    assert read_fields({"messages": FOUND, "context": [LYON]})["contexts"] == [PARIS.page_content]


@each("messages", [[("Anna", "Hi."), ("Ivan", "Hi.")], [{"role": "critic", "content": "no"}], ["q"]])
def test_a_list_without_any_known_role_is_not_a_conversation(messages):
    assert "question" in str(error_of(SampleError, Sample.parse, {"messages": messages}))


def test_a_run_gives_question_answer_and_contexts():
    run = a_run({"question": "q"}, {"answer": "a", "context": [PARIS]}, extra={"metadata": {"model": "m"}})
    expected = {"id": str(run.id), "question": "q", "answer": "a", **WITH_ID, "metadata": {"model": "m"}}
    assert read_fields(run) == expected


@each("given", [{"input": {"question": "q"}, "config": None}, {"input": {"text": "q"}, "config": None}, {"input": "q"}])
def test_a_run_of_a_runnable_target_is_unwrapped(given):
    assert read_fields(a_run(given))["question"] == "q"


def test_the_outermost_retrievers_within_a_run_give_the_contexts_its_outputs_lack():
    inner = a_run(run_type="retriever", outputs={"documents": [ANONYMOUS]})
    outer = a_run(run_type="retriever", outputs={"documents": [PARIS]}, child_runs=[inner])
    traced = a_run(run_type="retriever", outputs={"output": [LYON.model_dump()]})
    failed = a_run(run_type="retriever", error="timeout")
    run = a_run({"input": "q"}, {"answer": "a"}, child_runs=[a_run(child_runs=[outer]), traced, failed])
    assert read_fields(run)["contexts"] == [PARIS.page_content, LYON.page_content]
    assert read_fields(run)["context_ids"] == ["d1", "d2"]

    told = a_run({"input": "q"}, {"answer": "a", "contexts": ["own"]}, child_runs=[outer])
    assert read_fields(told)["contexts"] == ["own"]


def test_an_example_gives_references_where_a_mapping_gives_an_answer():
    example = an_example({"question": "q"}, {"answer": "r"}, metadata={"split": "test"})
    expected = {"id": str(example.id), "question": "q", "references": ["r"], "metadata": {"split": "test"}}
    assert read_fields(example) == expected
    assert read_fields({"inputs": {"question": "q"}, "outputs": {"answer": "a"}})["answer"] == "a"


def test_a_run_and_its_example_are_read_together():
    inputs, metadata = {"input": {"question": "wrapped"}, "config": None}, {"split": "?", "model": "m"}
    run = a_run(inputs, {"answer": "a", "context": [PARIS]}, extra={"metadata": metadata})
    example = an_example({"question": "plain"}, {"answer": "r"}, metadata={"split": "test"})
    shared = {"answer": "a", "references": ["r"], "metadata": {"split": "test", "model": "m"}}
    assert read_run(run, example) == {"id": str(example.id), "question": "plain", **WITH_ID, **shared}
    assert read_run(run)["question"] == "wrapped"
    assert read_run(run, an_example({"topic": "x", "level": 1}))["question"] == "wrapped"


Answered = make_dataclass("Answered", ["question", "answer", "contexts", "topic"], slots=True)


class Record(BaseModel):
    model_config = ConfigDict(extra="allow")
    user_input: str
    response: str | None = None


class Bare:
    def __init__(self):
        self.question, self._secret = "q", "s"

    @property
    def answer(self):
        return "a"


Pair = namedtuple("Pair", "question answer topic")


OBJECTS = [
    (Answered("q", "a", ["c"], "t"), {"topic": "t"}),
    (Record(user_input="q", response="a", topic="t"), {"topic": "t"}),
    (Bare(), {}),
    (Pair("q", "a", "t"), {"topic": "t"}),
    (pd.Series({"question": "q", "answer": "a", "topic": "t"}), {"topic": "t"}),
]


@each(("obj", "metadata"), OBJECTS)
def test_objects_are_read_by_their_public_attributes(obj, metadata):
    found = read_fields(obj)
    assert (found["question"], found["answer"], found["metadata"]) == ("q", "a", metadata)


def test_rows_of_a_data_frame_are_read_and_all_its_missing_values_are_missing():
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "question": ["q", "r"],
            "answer": [float("nan"), "a"],
            "contexts": [np.array(["c", "d"], dtype=object), None],
            "reference": [pd.NA, "r"],
            "seen": [pd.NaT, pd.Timestamp("2026-01-01")],
            "level": [np.float32("nan"), np.float32(0.5)],
        }
    )
    metadata = {"seen": pd.Timestamp("2026-01-01"), "level": 0.5}
    expected = [
        {"id": "1", "question": "q", "contexts": ["c", "d"], "metadata": {}},
        {"id": "2", "question": "r", "answer": "a", "references": ["r"], "metadata": metadata},
    ]
    assert [read_fields(row) for _, row in frame.iterrows()] == expected
    assert [read_fields(row) for row in frame.itertuples(index=False)] == expected
    assert [read_fields(row) for row in frame.to_dict("records")] == expected
    for row in frame.itertuples(index=False):
        Sample.parse(row).model_dump_json()


@each("missing", [None, float("nan"), np.float32("nan"), np.datetime64("NaT", "s"), pd.NaT, pd.NA])
def test_none_nan_and_their_like_are_missing(missing):
    assert read_fields({"question": "q", "answer": missing, "topic": missing}) == {"question": "q", "metadata": {}}


def test_documents_in_the_metadata_become_data_that_can_be_written():
    sample = Sample.parse({"question": "q", "events": [AIMessage("\ud800")], "scores": {"d": np.float64(0.5)}})
    assert sample.metadata["events"][0]["content"] == "\ufffd"
    assert Sample.model_validate_json(sample.model_dump_json()) == sample


def test_fields_map_names_and_dotted_paths_before_all_known_names():
    row = {"q": "q", "question": "title", "run": {"docs": [PARIS], "out": {"text": "a"}}, "a.b": "r"}
    fields = {"question": "q", "contexts": "run.docs", "answer": "run.out.text", "references": "a.b"}
    found = read_fields(row, fields)
    assert found["metadata"].pop("run")
    metadata = {"question": "title"}
    assert found == {"question": "q", "answer": "a", **WITH_ID, "references": ["r"], "metadata": metadata}


def test_dotted_paths_lead_through_objects_of_any_class():
    result = SimpleNamespace(nodes=SimpleNamespace(found=np.array(["c"])), text="a", score=float("nan"))
    fields = {"contexts": "result.nodes.found", "answer": "result.text", "references": "result.score"}
    found = read_fields(SimpleNamespace(question="q", result=result), fields)
    assert (found["contexts"], found["answer"]) == (["c"], "a")
    assert "references" not in found


NESTED = {"question": "q", "result": SimpleNamespace(text="a", run=lambda: "a"), "nodes": []}
NOWHERE = ("question.title", "result.text.upper", "result.nodes", "result.run", "nodes.0.text")


MAPPED = [
    ({"question": "q", "docs": ["c"]}, dict.fromkeys(("contexts", "reference_contexts"), "docs"), ["c"]),
    ({"question": "q", "response": "other"}, {"answer": "run.text"}, None),
    (a_run({"q": "a", "k": 4}, {"text": "a", "n": 1}), {"question": "inputs.q", "answer": "outputs.text"}, "a"),
    *((NESTED, {"answer": path}, None) for path in NOWHERE),  # through a text, to a method or through a list
]


@each(("obj", "fields", "expected"), MAPPED)
def test_mapped_names_and_paths_have_the_value_at_their_end_or_none(obj, fields, expected):
    found = read_fields(obj, fields)
    assert {field: found.get(field) for field in fields} == dict.fromkeys(fields, expected)


def test_a_mapped_str_is_no_list_of_contexts():
    error = error_of(SampleError, read_fields, {"question": "q", "docs": "c"}, {"contexts": "docs"})
    assert "under 'docs'" in str(error)


WRONG_FIELDS = [
    ({"question": None}, "got None for 'question'"),
    (["id"], "got list"),
    ({"q": "question"}, f"'q' is not a field: use one of {', '.join(Sample.model_fields)}"),
]


@each(("fields", "problem"), WRONG_FIELDS)
def test_fields_without_names_and_unknown_fields_are_refused(fields, problem):
    example = "fields maps fields of Sample to your names for them, as in {'question': 'q'}"
    assert str(error_of(ConfigError, read_fields, {"q": "q"}, fields)) == f"{example}; {problem}"


@each("obj", ["text", 7, None, ["q"]])
def test_an_object_without_fields_is_rejected(obj):
    expected = "expected a sample: a mapping, or an object with attributes such as question"
    assert str(error_of(SampleError, read_fields, obj)) == f"{expected}; got {type(obj).__name__}: pass one sample"


# Spellings, names with two meanings, cells and encodings


def read(path, content, name="a.jsonl", encoding="utf-8", fields=None):
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    path = path / name
    path.write_bytes(text.encode(encoding))
    return list(load_samples(path, fields))


@each("name", ["report.jsonl", "good.rep", "report.jsonl.part"])
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


ENCODINGS = [
    ("контекст да полис договор полис там полис вопрос", "cp1251"),
    ("эксперт контекст договор на и ООО как ООО", "cp1251"),
    ("ИТОГО ПО ДОГОВОРУ СТРАХОВАНИЯ", "cp1251"),
    ("Wer? Die Universität zu Köln, natürlich.", "cp1252"),
    ("Où est-il né ? Il est né à l’hôpital.", "cp1252"),
]


@each(("text", "encoding"), ENCODINGS)
def test_the_letters_of_a_text_suggest_its_encoding(text, encoding):
    assert guess_encoding(text.encode(encoding)) == encoding


SYSTEM = {"question": "q?", "contexts": ["c"]}
ANSWER_NAMES = (
    *("response", "prediction", "generated_answer", "model_answer", "output", "actual_output", "llm_answer"),
    *("completion", "result", "gpt4_answer", "botReply", "final_output", "GigaChat response", "system text"),
    *("chatbot_reply", "generated", "pred", "hypothesis", "candidate", "reply", "generation", "output_text"),
    *("answer_2", "answer2", "second_answer", "student_answer", "modelOutput", "predicted_answer", "answer_llm"),
    *("decoded", "actual", "ответ модели", "ответ системы", "ответ GigaChat", "ответ бота", "ответ_ИИ"),
    *("actual_answer", "answer_v2", "итоговый ответ", "решение модели", "результат модели", "ответ_РАГ"),
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


SECOND_VALUES = [
    ((*ANSWER_NAMES, *MODELS), {"answer": "gold"}, ELEPHANTS, "the answer"),
    (REFERENCE_NAMES, {"reference": "r"}, "In 1158.", "the reference"),
    (CHUNK_NAMES, {}, ["d"], "contexts"),
]


@each(("names", "first", "value", "what"), SECOND_VALUES)
def test_a_second_value_under_a_likely_name_is_refused(names, first, value, what):
    errors = {name: str(error_of(SampleError, Sample.parse, {**SYSTEM, **first, name: value})) for name in names}
    assert [name for name in names if f"could both be {what}: write fields=" not in errors[name]] == []


@each(
    "other",
    [
        {"outputs": {"output": ELEPHANTS}},
        {"question": "q?", "output": {"text": ELEPHANTS}},
        {"turns": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": ELEPHANTS}]},
        {"переписка": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": ELEPHANTS}]},
    ],
)
def test_a_second_answer_in_outputs_or_a_conversation_is_refused(other):
    record = {"answer": "gold", **other}
    if "outputs" in other:
        record = {"inputs": {"question": "q?"}, **record}
        inner = {"inputs": {"question": "q?"}, "outputs": {"answer": "gold", "response": ELEPHANTS}}
        message = str(error_of(SampleError, Sample.parse, inner))
        assert "'outputs.answer' and 'outputs.response' could both be the answer" in message
        assert Sample.parse(inner, {"answer": "outputs.response"}).answer == ELEPHANTS
    assert "could both be the answer: write fields=" in str(error_of(SampleError, Sample.parse, record))
    equal = json.loads(json.dumps(record, ensure_ascii=False).replace(ELEPHANTS, "gold"))
    assert Sample.parse(equal).answer == "gold"


def test_the_answers_in_a_conversation_beside_a_question_are_earlier_ones():
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": ELEPHANTS}]
    assert Sample.parse({"question": "When?", "answer": "In 1158.", "turns": turns}).answer == "In 1158."


def test_the_only_value_under_a_likely_name_is_read():
    read = {name: Sample.parse({**SYSTEM, name: ELEPHANTS}) for name in (*ANSWER_NAMES, *MODELS, *REFERENCE_NAMES)}
    assert [name for name in (*ANSWER_NAMES, *MODELS) if read[name].answer != ELEPHANTS] == []
    assert [name for name in REFERENCE_NAMES if read[name].references != [ELEPHANTS]] == []


def test_a_likely_name_is_named_as_the_origin_of_its_field():
    record = {"question": "q?", "llm_answer": "a", "golden_answer": "r"}
    origins = {"question": ["question"], "answer": ["llm_answer"], "references": ["golden_answer"]}
    assert explain_fields(record)[1] == origins


def test_other_names_scores_and_names_of_models_are_metadata():
    others = {"predicted": "0.93", "llm": "GPT-4 turbo", "gold": "d12", "ref": "d 7", "refs": ["d1"]}
    others |= {"candidate": "system 7", **dict.fromkeys(NO_NAMES, "one, two, three")}
    for name, value in others.items():
        sample = Sample.parse({**SYSTEM, "answer": "a", "reference": "r", name: value})
        assert (sample.answer, sample.references, sample.metadata) == ("a", ["r"], {name: value}), name


def rows(*contexts, **more):
    return [{"question": "q?", "answer": "a", "context": context, **more} for context in contexts]


DIFFERENT_ROWS = [
    [*rows("c"), *rows("d", id="2")],
    [*rows("c"), {**rows("d")[0], "answer": "b"}],
    rows("c", "c"),
    [*rows("c", system="one"), *rows("d", system="two")],
    [*rows("c"), {"question": "q?", "answer": "a", "contexts": ["d", "e"]}],
]


@each("records", DIFFERENT_ROWS, ids=["id", "answer", "same chunk", "another system", "two chunks"])
def test_rows_that_differ_in_more_than_a_chunk_are_samples(records):
    report = evaluate([{**record, "references": ["a"]} for record in records], string_presence(), progress=False)
    assert len(report) == 2


def test_rows_with_another_id_of_their_context_are_one_sample():
    chunks = [{**record, "context_id": f"d{n}"} for n, record in enumerate(rows("c", "d", references=["a"]))]
    (only,) = evaluate(chunks, string_presence(), progress=False).rows
    assert (only.sample.contexts, only.sample.metadata["context_id"]) == (["c", "d"], ["d0", "d1"])


def test_a_note_counts_the_samples_that_were_joined():
    report = evaluate(rows("c", "d", "e", references=["a"]), string_presence(), progress=False)
    assert report.rows[0].sample.contexts == ["c", "d", "e"]
    assert "1 of 1 samples were joined from rows with one context each." in report.notes
