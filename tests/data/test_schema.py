import json
import math
from typing import Any

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from pydantic import ValidationError

from langchain_rageval import Report, evaluate, exact_match
from langchain_rageval.data.schema import Failure, Finding, Row, Sample, Score, Usage, without_surrogates
from langchain_rageval.errors import SampleError
from langchain_rageval.sinks import SqliteSink

SURROGATES = st.characters(categories=["Cs"])
ANY_TEXT = st.text(st.characters() | SURROGATES)
TEXTS = st.lists(ANY_TEXT, max_size=3)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
COUNTS = st.integers(0, 9)
SAMPLES = st.builds(
    Sample,
    id=ANY_TEXT,
    question=ANY_TEXT,
    answer=st.none() | ANY_TEXT,
    references=TEXTS,
    relevance=st.none() | st.dictionaries(ANY_TEXT, NUMBERS, max_size=3),
    metadata=st.dictionaries(ANY_TEXT, JSON, max_size=3),
    **dict.fromkeys(("contexts", "reference_contexts", "context_ids", "reference_context_ids"), st.none() | TEXTS),
)
USAGES = st.builds(Usage, calls=COUNTS, input_tokens=st.none() | COUNTS, output_tokens=st.none() | COUNTS)
FAILURE = Failure(error="TimeoutError", message="no reply in 30 s", step="verify_statements")
FOUND = Finding(kind="statement", number=1, text="t", verdict="supported", cites=["1.1"])


def score(**outcome: Any) -> Score:
    return Score(metric="faithfulness", aspect="grounding", **outcome)


@given(SAMPLES)
def test_a_sample_comes_back_from_json_and_from_parse_as_it_was(sample):
    assert Sample.model_validate_json(sample.model_dump_json()) == sample
    assert Sample.parse(sample.model_dump()) == sample
    assert Sample.parse(json.loads(sample.model_dump_json())) == sample


def test_a_sample_is_parsed_to_itself_unless_fields_are_mapped():
    sample = Sample(question="q", references=["r"], metadata={"other": "a"})
    assert Sample.parse(sample) is sample
    assert Sample.parse(sample, {"answer": "metadata.other"}).answer == "a"


@given(JSON)
def test_only_surrogates_are_replaced(value):
    clean = without_surrogates(value)
    json.dumps(clean, ensure_ascii=False).encode()
    assert without_surrogates(clean) == clean


def test_text_that_can_be_encoded_is_kept_as_it_is():
    text = "naïve — 北京 🚀\x00\x1b\u202eabc{braces}e\u0301"
    assert Sample(question=text, contexts=[text]).contexts == [text]


def test_surrogates_in_documents_and_messages_do_not_break_writing():
    sample = Sample.parse({"question": "q\ud800", "context": [Document("c\udfff")], "answer": AIMessage("a\ud800")})
    assert (sample.question, sample.contexts, sample.answer) == ("q\ufffd", ["c\ufffd"], "a\ufffd")
    sample.model_dump_json()


@each(
    "other",
    [{"metadata": {"run": 2}}, {"relevance": {"d1": 1}}, {"answer": "b"}, {"answer": None}, {"contexts": []}]
    + [{name: ["1"]} for name in ("references", "reference_contexts", "context_ids", "reference_context_ids")],
)
def test_the_id_is_made_of_the_question_alone_unless_it_is_given(other):
    assert Sample(id="s1", question="q").id == "s1"
    assert Sample(**{"question": "q", **other}).id == Sample(question="q", answer="a").id
    assert Sample(**{"question": "other", **other}).id != Sample(question="q", answer="a").id


def test_a_sample_is_frozen_and_strict_about_names():
    with pytest.raises(ValidationError, match="frozen"):
        Sample(question="q").question = "other"
    with pytest.raises(ValidationError, match="forbidden"):
        Sample(question="q", anwser="a")


INVALID = [
    ({"question": 7}, "question", "the sample: question: .* valid string, got int: correct it, or map another"),
    ({"question": "q", "contexts": ["c", 7]}, "contexts", r"contexts\.1: .* got int"),
    ({"question": "q", "relevance": {"d": float("inf")}}, "relevance", "finite number, got float"),
    ({"question": "q", "id": "s1", "answer": ["a"]}, "answer", "sample 's1': answer"),
    ({}, "question", r"^the sample lacks a question, it has \[\]: map the right name with fields={...} or"),
]


@pytest.mark.parametrize(("obj", "field", "message"), INVALID)
def test_the_error_of_an_invalid_sample_names_field_and_type(obj, field, message):
    with pytest.raises(SampleError, match=message) as caught:
        Sample.parse(obj)
    assert caught.value.field == field


@pytest.mark.parametrize("outcome", [{"value": 0.0}, {"unscored": "the answer states no facts"}, {"failure": FAILURE}])
def test_a_score_has_one_outcome(outcome):
    assert Score.model_validate_json(score(**outcome).model_dump_json()) == score(**outcome)


ONE = "exactly one of value, unscored and failure"


NO_OUTCOMES = [
    *[(one, ONE) for one in ({}, {"value": 1.0, "unscored": "no facts"}, {"value": 1.0, "failure": FAILURE})],
    ({"unscored": "", "failure": FAILURE}, ONE),
    *[({"value": value}, "finite") for value in (math.nan, math.inf)],
]


@each(("outcome", "problem"), NO_OUTCOMES)
def test_a_score_with_no_outcome_or_two_or_without_a_finite_value_is_refused(outcome, problem):
    with pytest.raises(ValidationError, match=problem):
        score(**outcome)


@each(("outcome", "why"), [({"unscored": "no facts"}, "no facts"), ({"failure": FAILURE}, FAILURE.text)])
def test_float_and_feedback_of_a_score_without_value_say_why_there_is_none(outcome, why):
    with pytest.raises(ValueError, match=f"faithfulness has no value: .*{why}"):
        float(score(**outcome))
    feedback = json.loads(json.dumps(score(**outcome).feedback()))
    assert (feedback["score"], why in feedback["comment"]) == (None, True)


def test_feedback_has_the_shape_that_langsmith_takes():
    feedback = score(value=0.5, reason="one of two", findings=[FOUND], instrument="i").feedback("s1")
    metadata = {"sample": "s1", "aspect": "grounding", "direction": "higher", "failure": None, "instrument": "i"}
    metadata |= {"findings": [FOUND.model_dump()], "usage": Usage().model_dump()}
    assert feedback == {"key": "faithfulness", "score": 0.5, "comment": "one of two", "metadata": metadata}


def test_a_score_is_shown_on_one_line():
    assert str(score(value=0.5, reason="one of two")) == "faithfulness 0.500: one of two"
    assert str(score(value=0.5)) == "faithfulness 0.500"
    assert str(score(unscored="no facts")) == "faithfulness -: no facts"


@given(ANY_TEXT)
def test_surrogates_anywhere_in_a_row_do_not_break_writing(text):
    finding = Finding(kind="statement", number=1, text=text, verdict=text, reason=text, cites=[text])
    failure = Failure(error=text, message=text, step=text, raw_output=text)
    scores = {text: score(value=1, reason=text, findings=[finding]), text + "!": score(failure=failure)}
    scores[text + "?"] = Score(metric=text, aspect="answer", unscored=text, instrument=text)
    row = Row(index=0, sample=Sample(question=text, metadata={text: [text]}), scores=scores)
    assert Row.model_validate_json(row.model_dump_json()) == row


@given(USAGES, USAGES)
def test_usage_adds_up_and_unknown_tokens_count_as_nothing_beside_known_ones(one, other):
    both = one + other
    assert both == other + one
    assert both.calls == one.calls + other.calls
    assert one + Usage() == one
    assert (both.input_tokens is None) == (one.input_tokens is None and other.input_tokens is None)


def test_a_computed_verdict_is_shown_with_three_decimals_and_stored_in_full():
    cosine = Finding(kind="question", number=1, text="Where?", verdict="0.6172133998483678", cites=[])
    grade = Finding(kind="criterion", number=2, text="correctness", verdict="3", cites=[])
    shown = score(value=0.6, findings=[cosine, grade])
    assert "<bdi>0.617</bdi>" in shown._repr_html_()
    assert "<bdi>3</bdi>" in shown._repr_html_()
    assert "0.6172133998483678" not in shown._repr_html_()
    assert "0.6172133998483678" in shown.model_dump_json()


FIELDS = {"question": "q", "answer": "a", "contexts": ["B"], "retrieved": ["A", "B"], "retrieved_ids": ["1", "2"]}


def test_documents_are_read_with_their_ids():
    documents = [Document("A", id="1"), {"page_content": "B", "id": 2}]
    assert Sample.parse({**FIELDS, "retrieved": documents, "retrieved_ids": None}) == Sample(**FIELDS)


def test_a_sample_without_them_and_without_history_is_written_as_before():
    written = Sample(question="q", contexts=["A"])
    assert written.id == "6b85754bada345a0"
    assert not {"retrieved", "retrieved_ids", "history"} & written.model_dump().keys()
    chat = Sample(question="q", history=[("user", "h")])
    assert chat.model_dump()["history"] == [{"role": "user", "text": "h"}]
    assert chat.id != written.id
    assert Sample.model_validate_json(chat.model_dump_json()) == chat


def test_reports_and_the_table_of_a_sink_hold_them(tmp_path):
    report = evaluate([{**FIELDS, "references": ["a"]}], exact_match(), progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    assert Report.load(tmp_path / "report.jsonl").rows == report.rows
    sink = SqliteSink(tmp_path / "live.db")
    sink(report.rows[0])
    assert Report.load(tmp_path / "live.db").rows[0].sample.retrieved == ["A", "B"]
