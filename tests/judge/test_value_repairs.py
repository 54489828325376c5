import json
from contextlib import suppress
from typing import Literal

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import OutputParserException
from pydantic import BaseModel

from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.judge.repairs import (
    arguments_of,
    as_field,
    bare_word,
    boolean_of,
    integer_of,
    label_of,
    readings,
    respell,
)
from langchain_rageval.steps import AspectVerdict, ContextVerdicts, Statements, Verdicts

LABELS = ["supported", "contradicted", "absent", "not given"]
SCHEMA = strict_schema(Verdicts)
ITEM = {"statement": 1, "reason": "r", "evidence": ["1.1"], "verdict": "absent"}
ANSWER = {"verdicts": [ITEM]}


@each(
    "text",
    [
        *("Supported", "SUPPORTED", "supported.", " supported ", '"supported"', "**Supported**", "`supported`,"),
        *("(supported)", "[supported]", "«supported».", "\u00a0supported!"),
    ],
)  # fmt: skip
def test_a_label_may_differ_in_case_and_punctuation(text):
    assert label_of(text, LABELS) == "supported"


def test_a_label_may_differ_in_its_separator():
    assert label_of("NOT_GIVEN", LABELS) == label_of("Not-given.", LABELS) == "not given"


@each(
    "text",
    [
        *("unsupported", "not supported", "partially supported", "supported?", "support"),
        *("-supported", "!supported", "~supported", "supported/absent", "supported, absent", "supported (1.1)", ""),
        *("supported...", "1. supported", "verdict: supported", "supported: no", "подтверждено", "supported…"),
    ],
)  # fmt: skip
def test_what_is_no_label_stays_as_it_is(text):
    assert label_of(text, LABELS) == text


def test_a_label_that_two_labels_spell_is_not_chosen():
    assert label_of("YES.", ["yes", "Yes"]) == "YES."
    assert label_of("Yes", ["yes", "Yes"]) == "Yes"


@each("text", ["да", "Да.", "YES", "yes.", "是", "是。", "예", "네", "sì", "Sì!", "True", "истина", " «да» "])
def test_words_of_the_prompts_languages_are_true(text):
    assert boolean_of(text) is True


@each("text", ["нет", "Нет.", "NO", "no,", "否", "아니오", "아니요", "No.", "False", "ложь", "(нет)"])
def test_words_of_the_prompts_languages_are_false(text):
    assert boolean_of(text) is False


@each(
    "text",
    ["не", "да, но", "да/нет", "нет?", "не да", "скорее да", "no...", "yes and no", "不是", "useful", "", "да 1"],
)  # fmt: skip
def test_what_is_no_yes_or_no_stays_as_it_is(text):
    assert boolean_of(text) == text


@each(
    "text",
    [
        *("#1", "1.", "[1]", "(1)", "1)", "1:", "№1", "№ 1", "[#1]", "**1**", " 1 ", '"1"', "#1."),
        *("Statement 1", "statement #1", "statement_1", "Statement [1]"),
    ],
)  # fmt: skip
def test_a_number_may_have_a_mark(text):
    assert integer_of(text, "statement") == 1


@each(
    "text",
    [
        *("1-2", "1, 2", "1.5", "1.1", "[1.1]", "[1", "1]", "1/2", "one", "#", "", "A.1", "#1 #2", "context 1"),
        *("1st", "-1", "1 of 3", "~1", "<1", "1?", "1e3", "statement", "statement A", "١", "4/5", "1%", "[1][2]"),
    ],
)  # fmt: skip
def test_what_is_no_single_number_stays_as_it_is(text):
    assert integer_of(text, "statement") == text


def spelled(value, schema):
    return respell(value, strict_schema(schema), json.loads)


def test_values_are_respelled_where_the_schema_asks_for_them():
    item = {"statement": "#1", "reason": "#1", "evidence": ["#1"], "verdict": "Absent."}
    expected = {"statement": 1, "reason": "#1", "evidence": ["#1"], "verdict": "absent"}
    assert spelled({"verdicts": [item]}, Verdicts) == {"verdicts": [expected]}
    assert spelled({"reason": "да", "verdict": "да"}, AspectVerdict) == {"reason": "да", "verdict": True}


def test_texts_are_never_respelled():
    texts = {"statements": ["да", "#1", "[1]", '{"a": 1}', "Supported."]}
    assert spelled(texts, Statements) == texts


def test_keys_may_differ_in_case_and_spaces():
    assert spelled({"Verdicts ": [{"Statement": 1, "VERDICT": "absent"}]}, Verdicts) == {
        "verdicts": [{"statement": 1, "verdict": "absent"}]
    }


def test_a_key_in_two_spellings_with_two_values_is_refused():
    with pytest.raises(ValueError, match=r'^the key "verdict" has two values$'):
        spelled({"verdict": True, "Verdict": False}, AspectVerdict)
    assert spelled({"verdict": True, "Verdict": True}, AspectVerdict) == {"verdict": True}


def test_a_list_in_a_string_is_decoded_where_the_schema_asks_for_a_list():
    assert spelled({"statements": '["a", "[b]"]'}, Statements) == {"statements": ["a", "[b]"]}
    assert spelled({"verdicts": json.dumps([json.dumps(ITEM)])}, Verdicts) == ANSWER
    for text in ("a", '["a"', '"a"', "[a]"):
        assert spelled({"statements": text}, Statements) == {"statements": text}


def test_a_boolean_is_no_number():
    class Flag(BaseModel):
        flag: Literal[0, 1]

    assert spelled({"flag": "#1"}, Flag) == {"flag": 1}
    with pytest.raises(ValueError, match=r"^flag: a number is expected, not true$"):
        spelled({"flag": True}, Flag)
    with pytest.raises(ValueError, match=r"^context: a number is expected, not true$"):
        spelled({"verdicts": [{"context": True, "reason": "", "useful": True}]}, ContextVerdicts)


def test_an_optional_value_is_respelled_by_its_only_type():
    class Answer(BaseModel):
        useful: bool | None
        either: bool | int

    assert spelled({"useful": "да", "either": "да"}, Answer) == {"useful": True, "either": "да"}
    assert spelled({"useful": None}, Answer) == {"useful": None}


@each(
    "value",
    [
        [ANSWER],
        {"result": ANSWER},
        {"Verdicts": ANSWER},
        {"Verdicts": ANSWER, "explanation": "…"},
        {"result": [ANSWER]},
        {"Verdicts": [ITEM]},
        [ITEM],
        [ITEM, ITEM],
        json.dumps(ANSWER),
        {"Verdicts": json.dumps(ANSWER)},
        {"name": "Verdicts", "arguments": ANSWER},
        {"name": "verdicts", "parameters": ANSWER},
        [{"name": "Verdicts", "arguments": json.dumps(ANSWER), "id": "abc"}],
        {"tool_calls": [{"type": "function", "function": {"name": "Verdicts", "arguments": json.dumps(ANSWER)}}]},
        {"name": "functions.Verdicts", "arguments": ANSWER},
        {"action": "Verdicts", "action_input": ANSWER},
    ],
)
def test_the_answer_is_found_in_what_is_around_it(value):
    found = [reading for reading in readings(value, SCHEMA, json.loads) if isinstance(reading, dict)]
    assert any(reading.keys() == {"verdicts"} and ITEM in reading["verdicts"] for reading in found)


@each(
    "value",
    [
        [ANSWER, ANSWER],
        [[ANSWER]],
        {"draft": ANSWER},
        {"Example": ANSWER},
        {"a": ANSWER, "b": 1},
        {"name": "search", "arguments": ANSWER},
        {"name": "Verdicts", "arguments": ANSWER, "parameters": ANSWER},
        {"name": "Verdicts", "arguments": ANSWER, "result": {"verdicts": []}},
        {"Verdicts": ANSWER, "final": {"verdicts": []}},
        {"Verdicts": ANSWER, "final": '{"verdicts": []}'},
        [{"a": 1}, ITEM],
        [],
        [1],
        ["a"],
        "[1",
        7,
    ],
)
def test_other_values_are_not_unpacked(value):
    found = [reading for reading in readings(value, SCHEMA, json.loads) if isinstance(reading, dict)]
    assert not any(reading.get("verdicts") == [ITEM] for reading in found)


def test_only_a_list_of_objects_becomes_the_only_field():
    assert as_field([ITEM], SCHEMA, "object") == ANSWER
    for value, schema in (([], SCHEMA), (["a"], SCHEMA), ([ITEM, 1], SCHEMA), (["a"], strict_schema(Statements))):
        assert as_field(value, schema, "object") is None
    assert as_field([{"reason": "r", "verdict": True}], strict_schema(AspectVerdict), "object") is None


def test_a_bare_list_of_texts_is_the_only_field_but_not_under_another_name():
    read = StrictJsonOutputParser(Statements).parse
    assert read('["a", "b"]') == Statements(statements=["a", "b"])
    for reply in ('[{"statement": "a"}, {"text": "b"}]', '{"statements": ["a", {"statement": "b"}]}'):
        assert read(reply) == Statements(statements=["a", "b"])
    others = ('[{"error": "a"}]', '{"statements": [{"text": "a", "kind": "b"}]}', '{"statements": [{"text": ["a"]}]}')
    for reply in ('["a", 1]', "[]", '{"facts": ["a"]}', '[["a"]]', *others):
        with pytest.raises(OutputParserException):
            read(reply)


def test_what_decides_nothing_may_be_missing_or_a_list_and_what_decides_may_not():
    item = {"statement": 1, "reason": "r", "evidence": [], "verdict": "absent"}

    def read(**fields):
        kept = {name: value for name, value in {**item, **fields}.items() if value is not None}
        return StrictJsonOutputParser(Verdicts).parse(json.dumps({"verdicts": [kept]})).verdicts[0]

    assert read(reason=None).reason == ""
    assert read(evidence=None).evidence == []
    whole = StrictJsonOutputParser(AspectVerdict).parse
    for reply in ('{"verdict": true}', '{"reason": null, "verdict": true}', '{"reason": [], "verdict": true}'):
        assert whole(reply) == AspectVerdict(verdict=True)
    for reply in (
        '{"reason": "yes"}',
        '{"reason": {"verdict": true}, "verdict": true}',
        '{"reason": [1], "verdict": true}',
    ):
        with pytest.raises(OutputParserException):
            whole(reply)
    listed = read(reason=["a", "b"], evidence=[["1.1"], ["1.2"]])
    assert (listed.reason, listed.evidence) == ("a b", ["1.1", "1.2"])
    for wrong in ({"evidence": None, "verdict": "supported"}, {"reason": {"a": 1}}, {"evidence": [["1.1"], "1.2"]}):
        with pytest.raises(OutputParserException):
            read(**wrong)


def test_the_arguments_of_another_tool_are_no_answer():
    assert arguments_of({"name": "Verdicts", "args": ANSWER}, SCHEMA) is ANSWER
    assert arguments_of({"name": "Search", "args": ANSWER}, SCHEMA) is None
    assert arguments_of({"args": ANSWER}, SCHEMA) is None


@given(st.text())
def test_a_bare_word_is_part_of_the_text(text):
    assert bare_word(text) in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["да", "#1", "[1]", "{}", "Absent."]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["verdicts", "Verdicts", "name", "args", "a"]), inner)
    ),
)


@given(JSON)
def test_any_value_is_read_or_refused_with_a_value_error(value):
    for reading in readings(value, SCHEMA, json.loads):
        with suppress(ValueError):
            respell(reading, SCHEMA, json.loads)
