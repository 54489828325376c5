from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pandas as pd
import pytest
from helpers.each import each
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langsmith.schemas import Example, Run
from pydantic import BaseModel, ConfigDict

from langchain_rageval.data.field_names import read_fields, read_run
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError

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


def test_inputs_and_outputs_may_be_bare_texts():
    found = read_fields({"inputs": "q", "outputs": "a", "reference_outputs": "r", "context": "c"})
    assert found == {"question": "q", "answer": "a", "references": ["r"], "contexts": ["c"], "metadata": {}}


def test_a_dict_of_one_unknown_key_gives_its_value():
    found = read_fields({"inputs": {"text": "q"}, "outputs": {"generation": "a"}, "reference_outputs": {"gold": "r"}})
    assert found == {"question": "q", "answer": "a", "references": ["r"], "metadata": {}}


def test_all_fields_in_reference_outputs_are_references():
    outputs = {"answer": "r", "contexts": [PARIS]}
    found = read_fields({"question": "q", "reference_outputs": outputs})
    assert found["references"] == ["r"]
    assert found["reference_contexts"] == [PARIS.page_content]
    assert found["reference_context_ids"] == ["d1"]
    assert "contexts" not in found


def test_outputs_without_any_known_name_go_to_the_metadata():
    found = read_fields({"question": "q", "outputs": {"label": 1, "split": "x"}})
    assert found == {"question": "q", "metadata": {"label": 1, "split": "x"}}


@pytest.mark.parametrize("messages", [[("Anna", "Hi."), ("Ivan", "Hi.")], [{"role": "critic", "content": "no"}], ["q"]])
def test_a_list_without_any_known_role_is_not_a_conversation(messages):
    with pytest.raises(SampleError, match="question"):
        Sample.parse({"messages": messages})


def test_messages_without_a_question_still_hold_the_answer():
    found = read_fields({"question": "q", "outputs": {"messages": [AIMessage("a")]}})
    assert (found["question"], found["answer"]) == ("q", "a")


def test_an_ai_message_before_the_last_question_is_no_answer():
    assert "answer" not in read_fields({"messages": [HumanMessage("1?"), AIMessage("1."), HumanMessage("2?")]})


@pytest.mark.parametrize("name", ["context", "documents"])
def test_langgraph_state_gives_the_contexts_when_no_tool_returned_documents(name):
    found = read_fields({"messages": [HumanMessage("q"), AIMessageChunk("a")], name: [PARIS]})
    assert (found["answer"], found["contexts"]) == ("a", [PARIS.page_content])


def test_documents_of_tools_go_before_those_of_the_state():
    messages = [HumanMessage("q"), ToolMessage("", tool_call_id="1", artifact=[PARIS]), AIMessage("a")]
    assert read_fields({"messages": messages, "context": [LYON]})["contexts"] == [PARIS.page_content]


def test_a_tool_that_found_no_documents_is_an_answer_and_no_tool_is_none():
    empty = [HumanMessage("q"), ToolMessage("", tool_call_id="1", artifact=[]), AIMessage("a")]
    assert read_fields({"messages": empty})["contexts"] == []
    assert "contexts" not in read_fields({"messages": [HumanMessage("q"), AIMessage("a")]})


def test_a_run_gives_question_answer_and_contexts():
    run = a_run({"question": "q"}, {"answer": "a", "context": [PARIS]}, extra={"metadata": {"model": "m"}})
    assert read_fields(run) == {
        "id": str(run.id),
        "question": "q",
        "answer": "a",
        "contexts": [PARIS.page_content],
        "context_ids": ["d1"],
        "metadata": {"model": "m"},
    }


def test_a_run_of_a_runnable_target_is_unwrapped():
    assert read_fields(a_run({"input": {"question": "q"}, "config": None}))["question"] == "q"
    assert read_fields(a_run({"input": {"text": "q"}, "config": None}))["question"] == "q"
    assert read_fields(a_run({"input": "q"}))["question"] == "q"


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
    run = a_run(
        {"input": {"question": "wrapped"}, "config": None},
        {"answer": "a", "context": [PARIS]},
        extra={"metadata": {"split": "?", "model": "m"}},
    )
    example = an_example({"question": "plain"}, {"answer": "r"}, metadata={"split": "test"})
    assert read_run(run, example) == {
        "id": str(example.id),
        "question": "plain",
        "answer": "a",
        "contexts": [PARIS.page_content],
        "context_ids": ["d1"],
        "references": ["r"],
        "metadata": {"split": "test", "model": "m"},
    }


def test_the_run_gives_the_question_when_there_is_no_example_or_it_has_none():
    run = a_run({"question": "q"}, {"answer": "a"})
    assert read_run(run)["question"] == "q"
    assert read_run(run, an_example({"topic": "x", "level": 1}))["question"] == "q"


@dataclass(slots=True)
class Answered:
    question: str
    answer: str
    contexts: list[str]
    topic: str = "t"


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


@pytest.mark.parametrize(
    ("obj", "metadata"),
    [
        (Answered("q", "a", ["c"]), {"topic": "t"}),
        (Record(user_input="q", response="a", topic="t"), {"topic": "t"}),
        (Bare(), {}),
        (Pair("q", "a", "t"), {"topic": "t"}),
        (pd.Series({"question": "q", "answer": "a", "topic": "t"}), {"topic": "t"}),
    ],
)
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
    expected = [
        {"id": "1", "question": "q", "contexts": ["c", "d"], "metadata": {}},
        {
            "id": "2",
            "question": "r",
            "answer": "a",
            "references": ["r"],
            "metadata": {"seen": pd.Timestamp("2026-01-01"), "level": 0.5},
        },
    ]
    assert [read_fields(row) for _, row in frame.iterrows()] == expected
    assert [read_fields(row) for row in frame.itertuples(index=False)] == expected
    assert [read_fields(row) for row in frame.to_dict("records")] == expected
    for row in frame.itertuples(index=False):
        Sample.parse(row).model_dump_json()


@each("missing", [None, float("nan"), np.float32("nan"), np.datetime64("NaT", "s"), pd.NaT, pd.NA])
def test_none_nan_and_their_like_are_missing(missing):
    assert read_fields({"question": "q", "answer": missing, "topic": missing}) == {"question": "q", "metadata": {}}


def test_unknown_keys_go_to_the_metadata_beside_what_is_there():
    found = read_fields({"question": "q", "topic": "t", "metadata": {"level": 1}, "empty": None})
    assert found["metadata"] == {"topic": "t", "level": 1}


def test_question_wins_over_input_which_is_kept_as_metadata():
    assert read_fields({"input": "i", "question": "q"}) == {"question": "q", "metadata": {"input": "i"}}
    assert read_fields({"input": "i", "question": None}) == {"question": "i", "metadata": {}}


def test_documents_in_the_metadata_become_data_that_can_be_written():
    sample = Sample.parse({"question": "q", "events": [AIMessage("\ud800")], "scores": {"d": np.float64(0.5)}})
    assert sample.metadata["events"][0]["content"] == "\ufffd"
    assert Sample.model_validate_json(sample.model_dump_json()) == sample


def test_a_str_under_context_is_one_context_and_a_document_is_one_anywhere():
    assert read_fields({"question": "q", "context": "c"})["contexts"] == ["c"]
    assert read_fields({"question": "q", "contexts": PARIS})["contexts"] == [PARIS.page_content]


def test_ids_are_taken_from_documents_only_if_all_have_one():
    assert "context_ids" not in read_fields({"question": "q", "context": [PARIS, ANONYMOUS]})
    assert "context_ids" not in read_fields({"question": "q", "context": []})
    told = read_fields({"question": "q", "context": [PARIS], "context_ids": [7]})
    assert told["context_ids"] == ["7"]


def test_an_id_may_be_an_int_or_a_uuid():
    assert read_fields({"id": 7, "question": "q"})["id"] == "7"
    assert read_fields({"id": UUID(int=1), "question": "q"})["id"] == str(UUID(int=1))


def test_grades_that_are_missing_are_left_out():
    relevance = {1: 2, "d2": None, "d3": np.int64(0)}
    assert read_fields({"question": "q", "relevance": relevance})["relevance"] == {"1": 2, "d3": 0}


def test_fields_map_names_and_dotted_paths_before_all_known_names():
    row = {"q": "q", "question": "title", "run": {"docs": [PARIS], "out": {"text": "a"}}, "a.b": "r"}
    fields = {"question": "q", "contexts": "run.docs", "answer": "run.out.text", "references": "a.b"}
    found = read_fields(row, fields)
    assert found["metadata"].pop("run")
    assert found == {
        "question": "q",
        "answer": "a",
        "contexts": [PARIS.page_content],
        "context_ids": ["d1"],
        "references": ["r"],
        "metadata": {"question": "title"},
    }


def test_dotted_paths_lead_through_objects_of_any_class():
    result = SimpleNamespace(nodes=SimpleNamespace(found=np.array(["c"])), text="a", score=float("nan"))
    fields = {"contexts": "result.nodes.found", "answer": "result.text", "references": "result.score"}
    found = read_fields(SimpleNamespace(question="q", result=result), fields)
    assert (found["contexts"], found["answer"]) == (["c"], "a")
    assert "references" not in found


@pytest.mark.parametrize("path", ["question.title", "result.text.upper", "result.nodes", "result.run", "nodes.0.text"])
def test_a_path_through_a_text_or_to_a_method_leads_nowhere(path):
    result = SimpleNamespace(text="a", run=lambda: "a")
    assert "answer" not in read_fields({"question": "q", "result": result, "nodes": []}, {"answer": path})


def test_two_fields_may_be_mapped_to_one_name():
    found = read_fields({"question": "q", "docs": ["c"]}, {"contexts": "docs", "reference_contexts": "docs"})
    assert found["contexts"] == found["reference_contexts"] == ["c"]


def test_a_mapped_name_that_is_absent_is_missing_whatever_other_names_hold():
    assert "answer" not in read_fields({"question": "q", "response": "other"}, {"answer": "run.text"})


def test_a_mapped_str_is_no_list_of_contexts():
    with pytest.raises(SampleError, match="under 'docs'"):
        read_fields({"question": "q", "docs": "c"}, {"contexts": "docs"})


def test_fields_map_paths_within_a_run():
    found = read_fields(
        a_run({"q": "q", "k": 4}, {"text": "a", "n": 1}), {"question": "inputs.q", "answer": "outputs.text"}
    )
    assert (found["question"], found["answer"]) == ("q", "a")


@pytest.mark.parametrize(
    ("fields", "got"),
    [({"question": None}, "None for 'question'"), ({"answer": 2}, "2 for 'answer'"), (["id"], "list")],
)
def test_fields_without_names_are_refused(fields, got):
    with pytest.raises(ConfigError, match=rf"as in {{'question': 'q'}}; got {got}"):
        read_fields({"q": "q"}, fields)


def test_an_unknown_field_in_fields_is_rejected_with_a_list_of_all_fields():
    example = "fields maps fields of Sample to your names for them, as in {'question': 'q'}"
    with pytest.raises(ConfigError) as caught:
        read_fields({"q": "q"}, {"q": "question"})
    assert str(caught.value) == f"{example}; 'q' is not a field: use one of {', '.join(Sample.model_fields)}"


@pytest.mark.parametrize("obj", ["text", 7, None, ["q"]])
def test_an_object_without_fields_is_rejected(obj):
    expected = "expected a sample: a mapping, or an object with attributes such as question"
    with pytest.raises(SampleError, match=f"^{expected}; got {type(obj).__name__}: pass one sample$"):
        read_fields(obj)
