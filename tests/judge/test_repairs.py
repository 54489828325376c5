"""Repairs of JSON that is not quite valid and of values that do not quite fit, and replies of weak models."""

import json
from collections import Counter
from contextlib import suppress
from typing import Literal

import pytest
from helpers.each import each
from helpers.stored import fixture_data
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import OutputParserException
from pydantic import BaseModel

from langchain_rageval import PromptSet
from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.judge.repairs import (
    REPAIRS,
    CutOff,
    as_field,
    final_channel,
    integer_of,
    json_spans,
    label_of,
    readings,
    respell,
)
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.steps import AspectVerdict, ContextVerdicts, Statements, Verdicts

REPLIES = fixture_data("replies.yaml")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
CONTAINERS = st.lists(JSON) | st.dictionaries(st.text(), JSON)


def repaired(text):
    for repair in REPAIRS:
        text = repair(text)
    return text


IN_STRING = '{"a": "<think>x</think>"}'


@each(("text", "spans"), [*REPLIES["spans"], (f"Ответ: {IN_STRING}", [IN_STRING]), ("<think>да</think>\n 1 ", ["1"])])
def test_spans_are_found_in_fences_and_prose_and_else_it_is_the_text_after_the_thought(text, spans):
    assert json_spans(text) == spans


@each("text", REPLIES["thoughts"])
def test_thoughts_are_skipped(text):
    assert json_spans(text) == ['{"a": 1}']


@each("text", REPLIES["unclosed"])
def test_unclosed_brackets_are_cut_off(text):
    with pytest.raises(CutOff):
        json_spans(text)


@each(("text", "value"), REPLIES["quotes"] + REPLIES["comments"])
def test_quotes_become_double_quotes_and_comments_outside_of_strings_go(text, value):
    assert json.loads(repaired(text)) == value


@each(
    ("text", "value"),
    [
        (
            '{"a": True, "b": False, "c": [None], "d": "True, None"}',
            {"a": True, "b": False, "c": [None], "d": "True, None"},
        ),
        ('{"a": ["x,]", "б",\n], "c": {"d": 1 , } ,}', {"a": ["x,]", "б"], "c": {"d": 1}}),
        ('{verdicts: [{номер: 1, "b": "{c: d}"}]}', {"verdicts": [{"номер": 1, "b": "{c: d}"}]}),
        ('{\u00a0"a\u00a0b":\u20031,\u200b"c": "\u3000"}', {"a\u00a0b": 1, "c": "\u3000"}),
        (
            r'["user\_id", "2 \* 3", "a\\_b", "\$5", "100\%", "\#3", "it\'s", "a\\", "\\\'", "\u0027"]',
            ["user_id", "2 * 3", "a\\_b", "$5", "100%", "#3", "it's", "a\\", "\\'", "'"],
        ),
    ],
)
def test_a_repair_changes_what_it_is_for_and_no_string(text, value):
    assert json.loads(repaired(*json_spans(f"\ufeff{text}"))) == value


UNREPAIRED = ["commas", "remarks", "bare_words", "escapes"]  # items left out, data in comments, bare values, guesses


@each("text", [*(text for name in UNREPAIRED for text in REPLIES[name]), "[1\u00a0000]"])
def test_what_would_need_a_guess_is_not_repaired(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(repaired(text))


def test_one_brace_too_many_at_the_end_is_dropped_and_nothing_else():
    for text in ('{"a": 1}}', '```json\n{"a": 1}}\n```', '{"a": 1}\n}'):
        assert json_spans(text) == ['{"a": 1}']
    others = ('{"a": 1}}}', '{"a": 1}]', '{"a": 1}}, {"a": 2}', '{"a": 1}} and more', '</think>{"a": 1}]')
    for text in (*others, '{note} {"a": 1}]', '{"a": 1} {b} ]'):
        with pytest.raises(CutOff, match="more brackets close than open"):
            json_spans(text)


def test_of_the_harmony_format_only_the_final_channel_and_calls_are_kept():
    expected = {"harmony": ['{"a": 1}'], "no_final_channel": [""]}
    wrong = [one for key, spans in expected.items() for one in REPLIES[key] if json_spans(final_channel(one)) != spans]
    assert wrong == []
    assert [text for text in REPLIES["other_formats"] if final_channel(text) != text] == []


@pytest.mark.gate
@given(CONTAINERS)
def test_valid_json_is_one_span_that_no_repair_touches(value):
    text = json.dumps(value, ensure_ascii=False)
    assert json_spans(text) == [text]
    assert all(repair(text) == text for repair in REPAIRS)


# Python's repr uses single quotes for the first kind; for the second also double ones, then without escapes.
PYTHON_TEXTS = st.text().filter(lambda text: "'" not in text or '"' in text) | st.text("it's, }]:яй“«")


@given(st.lists(PYTHON_TEXTS | st.booleans() | st.none() | st.dictionaries(PYTHON_TEXTS, PYTHON_TEXTS)))
def test_a_python_repr_keeps_every_character(value):
    (text,) = json_spans(repr(value))
    for repair in REPAIRS:
        text = repair(text)
    assert json.loads(text) == value


LABELS = ["supported", "contradicted", "absent", "not given"]
SCHEMA = strict_schema(Verdicts)
ITEM = {"statement": 1, "reason": "r", "evidence": ["1.1"], "verdict": "absent"}
ANSWER = {"verdicts": [ITEM]}


def label(text):
    return label_of(text, LABELS)


def truth(text):
    return respell(text, {"type": "boolean"}, json.loads)


def number(text):
    return integer_of(text, "statement")


@each(
    ("read", "meant", "others"),
    [
        (label, {"supported": "supported"}, "no_labels"),
        (truth, {"true_words": True, "false_words": False}, "neither_yes_nor_no"),
        (number, {"number_1": 1}, "no_single_numbers"),
    ],
)
def test_a_value_is_read_in_its_usual_spellings_and_what_is_none_stays_as_it_is(read, meant, others):
    for name, value in meant.items():
        assert [text for text in REPLIES[name] if (read(text), type(read(text))) != (value, type(value))] == []
    assert [text for text in REPLIES[others] if read(text) is not text] == []


def test_a_number_may_follow_the_name_of_its_field():
    for form in ("Statement12", "statement 12", "STATEMENT_12", "statement: 12.", "12"):
        assert integer_of(form, "statement") == 12, form
        assert integer_of(form) == (12 if form == "12" else form)


def test_a_label_may_differ_in_its_separator_and_none_is_chosen_of_two():
    assert label_of("NOT_GIVEN", LABELS) == label_of("Not-given.", LABELS) == "not given"
    assert [label_of(text, ["yes", "Yes"]) for text in ("YES.", "Yes")] == ["YES.", "Yes"]


def spelled(value, schema):
    return respell(value, strict_schema(schema), json.loads)


class Optional(BaseModel):
    useful: bool | None
    either: bool | int


UNREAD = {"reason": "#1", "evidence": ["#1"]}
TEXTS = {"statements": ["да", "#1", "[1]", '{"a": 1}', "Supported."]}


@each(
    ("schema", "value", "expected"),
    [
        (
            *(Verdicts, {"verdicts": [{**UNREAD, "statement": "#1", "verdict": "Absent."}]}),
            {"verdicts": [{**UNREAD, "statement": 1, "verdict": "absent"}]},
        ),
        (AspectVerdict, {"reason": "да", "verdict": "да"}, {"reason": "да", "verdict": True}),
        (Optional, {"useful": "да", "either": "да"}, {"useful": True, "either": "да"}),
        (Optional, {"useful": None}, {"useful": None}),
        (Statements, TEXTS, TEXTS),
        (
            *(Verdicts, {"Verdicts ": [{"Statement": 1, "VERDICT": "absent"}]}),
            {"verdicts": [{"statement": 1, "verdict": "absent"}]},
        ),
        (Statements, {"statements": '["a", "[b]"]'}, {"statements": ["a", "[b]"]}),
        (Verdicts, {"verdicts": json.dumps([json.dumps(ITEM)])}, ANSWER),
        *((Statements, {"statements": text}, {"statements": text}) for text in ("a", '["a"', '"a"', "[a]")),
    ],
)
def test_keys_and_values_are_respelled_where_the_schema_asks_for_them_and_texts_never(schema, value, expected):
    assert spelled(value, schema) == expected


def test_a_key_that_may_mean_two_fields_is_not_respelled():
    class Two(BaseModel):
        a_b: int
        ab: int

    for value in ({"AB": 1}, {"a b": 1, "ab": 2}, {"a_b": 1, "ab": 2, "A-B": 3}):
        assert spelled(value, Two) == value


def test_a_key_in_two_spellings_with_two_values_is_refused():
    with pytest.raises(ValueError, match=r'^the key "verdict" has two values$'):
        spelled({"verdict": True, "Verdict": False}, AspectVerdict)
    assert spelled({"verdict": True, "Verdict": True}, AspectVerdict) == {"verdict": True}


def test_a_boolean_is_no_number():
    class Flag(BaseModel):
        flag: Literal[0, 1]

    assert spelled({"flag": "#1"}, Flag) == {"flag": 1}
    with pytest.raises(ValueError, match=r"^flag: a number is expected, not true$"):
        spelled({"flag": True}, Flag)
    with pytest.raises(ValueError, match=r"^context: a number is expected, not true$"):
        spelled({"verdicts": [{"context": True, "reason": "", "useful": True}]}, ContextVerdicts)


@each("value", REPLIES["wrapped"])
def test_the_answer_is_found_in_what_is_around_it(value):
    found = [reading for reading in readings(value, SCHEMA, json.loads) if isinstance(reading, dict)]
    assert any(reading.keys() == {"verdicts"} and ITEM in reading["verdicts"] for reading in found)


@each("value", REPLIES["not_wrapped"])
def test_other_values_are_not_unpacked(value):
    found = [reading for reading in readings(value, SCHEMA, json.loads) if isinstance(reading, dict)]
    assert not any(reading.get("verdicts") == [ITEM] for reading in found)


def test_only_a_list_of_objects_becomes_the_only_field():
    assert as_field([ITEM], SCHEMA, "object") == ANSWER
    for value, schema in (([], SCHEMA), (["a"], SCHEMA), ([ITEM, 1], SCHEMA), (["a"], strict_schema(Statements))):
        assert as_field(value, schema, "object") is None
    assert as_field([{"reason": "r", "verdict": True}], strict_schema(AspectVerdict), "object") is None
    assert as_field(["a", {"text": "b"}], strict_schema(Statements), "string") == {"statements": ["a", {"text": "b"}]}
    for items in (["a", 1], [1, "a"], [ITEM]):
        assert as_field(items, strict_schema(Statements), "string") is None


def test_a_bare_list_of_texts_is_the_only_field_but_not_under_another_name():
    read = StrictJsonOutputParser(Statements).parse
    assert read('["a", "b"]') == Statements(statements=["a", "b"])
    for reply in ('[{"statement": "a"}, {"text": "b"}]', '{"statements": ["a", {"statement": "b"}]}'):
        assert read(reply) == Statements(statements=["a", "b"])
    others = ('[{"error": "a"}]', '{"statements": [{"text": "a", "kind": "b"}]}', '{"statements": [{"text": ["a"]}]}')
    others = (*others, json.dumps({"statements": '["a"] // b'}), json.dumps({"statements": '// b ["a"]'}))
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
    no_reasons = ('{"reason": {"verdict": true}, "verdict": true}', '{"reason": [1], "verdict": true}')
    for reply in ('{"reason": "yes"}', *no_reasons):
        with pytest.raises(OutputParserException):
            whole(reply)
    listed = read(reason=["a", "b"], evidence=[["1.1"], ["1.2"]])
    assert (listed.reason, listed.evidence) == ("a b", ["1.1", "1.2"])
    for wrong in ({"evidence": None, "verdict": "supported"}, {"reason": {"a": 1}}, {"evidence": [["1.1"], "1.2"]}):
        with pytest.raises(OutputParserException):
            read(**wrong)


# Replies of weak models that a person can read: none is read wrongly, and few are refused


def changed(value, change, key=""):
    """A nested value with each part changed by a function of the part and its name."""
    if isinstance(value, dict):
        value = {name: changed(inner, change, name) for name, inner in value.items()}
    elif isinstance(value, list):
        value = [changed(inner, change, key) for inner in value]
    return change(value, key)


def without(name, when=lambda fields: True):
    """A change that drops a field of the items for which a condition holds."""

    def drop(value, _):
        is_item = isinstance(value, dict) and name in value and when(value)
        return {key: inner for key, inner in value.items() if key != name} if is_item else value

    return drop


WEAK = {
    "no reason in an item": without("reason"),
    "no evidence of what is absent": without("evidence", lambda fields: fields.get("verdict") == "absent"),
    "a reason in parts": lambda value, key: [value, "and more"] if key == "reason" else value,
    "citations in lists": lambda value, key: (
        [[one] for one in value] if key == "evidence" and type(value) is list else value
    ),
    "numbers as texts": lambda value, _: str(value) if type(value) is int else value,
    "truth in words": lambda value, _: {True: "yes", False: "no"}[value] if isinstance(value, bool) else value,
    "capital labels": lambda value, key: (
        value.capitalize() if key in ("verdict", "kind") and type(value) is str else value
    ),
}  # replies that are spoilt in their form: tests/fixtures/replies.yaml


def without_reasons(value):
    return changed(value, without("reason"))


def examples():
    for language in ("en", "ru"):
        for step, answer in ANSWER_SCHEMAS.items():
            for example in PromptSet.default(language).get(step).examples:
                yield step, StrictJsonOutputParser(answer), example.output


def test_a_weak_reply_is_read_as_it_is_meant_or_refused_and_few_are_refused():
    read, refused = Counter(), Counter()
    for step, parser, output in examples():
        right = without_reasons(parser.parse(json.dumps(output)).model_dump())
        for name, change in WEAK.items():
            try:
                found = without_reasons(parser.parse(json.dumps(changed(output, change))).model_dump())
            except OutputParserException:
                refused[name] += 1
            else:
                read[name] += 1
                assert found == right, (step, name)
    assert read.total() > 500
    assert refused.total() <= 0.25 * (read.total() + refused.total()), refused


def test_broken_replies_are_read_as_a_person_reads_them_or_refused():
    replies = fixture_data("weak_replies.yaml")
    read = []
    for one in replies:
        with suppress(OutputParserException):
            answer = StrictJsonOutputParser(ANSWER_SCHEMAS[one["step"]]).parse(one["reply"])
            read.append((one["reply"], without_reasons(answer.model_dump()), one["meant"]))
    assert [(reply, found) for reply, found, meant in read if found != meant] == []
    assert len(replies) >= 60
    assert len(read) >= 0.75 * len(replies)
