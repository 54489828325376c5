import json
from contextlib import suppress

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.judge.repairs import (
    REPAIRS,
    CutOff,
    final_channel,
    json_literals,
    json_spans,
    no_escaped_marks,
    no_trailing_commas,
    plain_spaces,
    quoted_keys,
    straight_quotes,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
CONTAINERS = st.lists(JSON) | st.dictionaries(st.text(), JSON)


def repaired(text):
    for repair in REPAIRS:
        text = repair(text)
    return text


@each(
    ("text", "spans"),
    [
        ('```json\n{"verdict": 1}\n```', ['{"verdict": 1}']),
        ('Вот ответ: {"вывод": "да"}. Надеюсь, помог!', ['{"вывод": "да"}']),
        ('{"a": 1} {"a": [2, {"b": 3}]}', ['{"a": 1}', '{"a": [2, {"b": 3}]}']),
        ('Множество {a, b} и [черновик: дальше {"a": 1}', ['{"a": 1}']),
        ('{"a": "скобка } и \\"кавычка\\" ]"} готово', ['{"a": "скобка } и \\"кавычка\\" ]"}']),
        ("{'a': 'it's } here'}", ["{'a': 'it's } here'}"]),
        ("{«a»: «скобка } внутри»}", ["{«a»: «скобка } внутри»}"]),
        ('{verdicts: [{"a": 1}]}', ['{verdicts: [{"a": 1}]}']),
        ('names["question"] is read; {"a": 1}', ['{"a": 1}']),
    ],
)
def test_spans_are_found_in_fences_and_prose(text, spans):
    assert json_spans(text) == spans


@each(
    "text",
    [
        '<think>Может, {"a": 2}? Или "[</think>{"a": 1}',
        '{"a": 2}? Нет, не так.</think>\n{"a": 1}',
        'Пишу {"a": 2, и думаю</think>{"a": 1}',
        'Ответ. <think>ещё</think> {"a": 1}',
        '{"a": 1} <think>Верно ли [это?</think>',
        '<think>a<think>b</think> {"a": 2} </think> {"a": 1}',
        '<thinking>Может, {"a": 2}?</thinking>{"a": 1}',
        '<Thought>{"a": 2}</thought>\n{"a": 1}',
        '[THINK]{"a": 2}[/THINK]{"a": 1}',
        '◁think▷{"a": 2}◁/think▷{"a": 1}',
        '<|START_THINKING|>{"a": 2}<|END_THINKING|>{"a": 1}',
        '{"a": 2}</reasoning>{"a": 1}',
    ],
)
def test_thoughts_are_skipped(text):
    assert json_spans(text) == ['{"a": 1}']


def test_a_thought_inside_a_string_is_what_the_string_says():
    assert json_spans('Ответ: {"a": "<think>x</think>"}') == ['{"a": "<think>x</think>"}']


def test_without_spans_the_text_after_the_thought_is_returned():
    assert json_spans("<think>да</think>\n 1 ") == ["1"]


@each(
    "text",
    [
        '<think>Может, {"a": 1}',
        '<thinking>Может, {"a": 1}</think>',
        '[THINK]{"a": 1}',
        '{"a": 1} и {"a": [2, 3',
        '[{"a": 1}, {"a": 2}',
        "['a', 'b",
        '{"a": 1} {',
        '{verdicts: [{"a": 1}], ',
        '["знак "] лишний", "b"]',
    ],
)
def test_unclosed_brackets_are_cut_off(text):
    with pytest.raises(CutOff):
        json_spans(text)


@each(
    ("text", "value"),
    [
        ("{'вывод': 'да'}", {"вывод": "да"}),
        ("{“вывод”: “да”}", {"вывод": "да"}),
        ("{„вывод“: „да“}", {"вывод": "да"}),
        ("{„a”: „b”}", {"a": "b"}),
        ("{«вывод»: «договор «Каско» продлён»}", {"вывод": "договор «Каско» продлён"}),
        ("{‘a’: ‘don’t’}", {"a": "don’t"}),
        ("['don't', 'it's']", ["don't", "it's"]),
        (r"['don\'t', 'a\\', 'tab\t', '\xa0', '\U0001f600']", ["don't", "a\\", "tab\t", "\xa0", "\U0001f600"]),
        ("""['он сказал "да"']""", ['он сказал "да"']),
        ("""["'a', 'b'", 'c']""", ["'a', 'b'", "c"]),
    ],
)
def test_other_quotes_become_double_quotes(text, value):
    assert json.loads(straight_quotes(text)) == value


def test_python_literals_become_json_literals():
    assert json.loads(json_literals('{"a": True, "b": False, "c": [None], "d": "True, None"}')) == {
        "a": True,
        "b": False,
        "c": [None],
        "d": "True, None",
    }


def test_trailing_commas_are_removed():
    assert json.loads(no_trailing_commas('{"a": ["x,]", "б",\n], "c": {"d": 1 , } ,}')) == {
        "a": ["x,]", "б"],
        "c": {"d": 1},
    }


@each("text", ["[,]", "[1,,]", "[1,,,]", "[ , ]", "[,,]", '{"a":,}', "{,}"])
def test_a_comma_in_place_of_an_item_is_not_repaired(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(no_trailing_commas(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n "b": [2 /* two */, 3]}', {"a": 1, "b": [2, 3]}),
        ('{ // it\'s [1.1]\n"a": "http://x/*y*/"}', {"a": "http://x/*y*/"}),
        ("{'a': 'http://x', // one\n}", {"a": "http://x"}),
    ],
)
def test_comments_are_removed_outside_of_strings(text, value):
    (span,) = json_spans(text)
    assert json.loads(repaired(span)) == value


@pytest.mark.parametrize(
    "text", ['{"a": 1 /* {"a": 2} */}', '{"a": 1 // "a": 2\n}', '{"a": 1 /* open }', '{"a": 1 # one\n}', '{"a": 1 / 2}']
)
def test_comments_that_may_hold_data_and_other_remarks_are_not_removed(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(repaired(text))


def test_bare_keys_are_quoted():
    assert json.loads(quoted_keys('{verdicts: [{номер: 1, "b": "{c: d}"}]}')) == {
        "verdicts": [{"номер": 1, "b": "{c: d}"}]
    }


@each("text", ["{a: да}", "{the key: 1}", "{a b}", "{1a: 1}", "[a: 1]", "{a: 1, b}"])
def test_bare_values_and_other_bare_words_are_not_quoted(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(repaired(text))


def test_no_break_spaces_between_tokens_are_spaces_and_those_in_strings_stay():
    text = '\ufeff{\u00a0"a\u00a0b":\u20031,\u200b"c": "\u3000"}'
    (span,) = json_spans(text)
    assert json.loads(plain_spaces(span)) == {"a\u00a0b": 1, "c": "\u3000"}


def test_a_no_break_space_within_a_number_is_not_removed():
    with pytest.raises(json.JSONDecodeError):
        json.loads(plain_spaces("[1\u00a0000]"))


def test_escaped_marks_of_markdown_are_the_marks():
    text = r'["user\_id", "2 \* 3", "a\\_b", "\$5", "100\%", "\#3", "it\'s", "a\\", "\\\'", "\u0027"]'
    marks = ["user_id", "2 * 3", "a\\_b", "$5", "100%", "#3", "it's", "a\\", "\\'", "'"]
    assert json.loads(no_escaped_marks(text)) == marks


def test_one_brace_too_many_at_the_end_is_dropped_and_nothing_else():
    for text in ('{"a": 1}}', '```json\n{"a": 1}}\n```', '{"a": 1}\n}'):
        assert json_spans(text) == ['{"a": 1}']
    for text in ('{"a": 1}}}', '{"a": 1}]', '{"a": 1}}, {"a": 2}', '{"a": 1}} and more'):
        with pytest.raises(CutOff, match="more brackets close than open"):
            json_spans(text)


@pytest.mark.parametrize("text", [r'["\d"]', r'["C:\docs"]', r'["\x"]', r'{"a": \'b\'}'])
def test_other_unknown_escapes_are_not_guessed(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(repaired(text))


@each(
    "text",
    [
        '<|channel|>analysis<|message|>{"a": 2}?<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}<|return|>',
        '<|start|>assistant to=functions.A<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        'analysis<|message|>{"a": 2}?<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}',
        '<|start|>assistant<|channel|>commentary to=functions.A <|constrain|>json<|message|>{"a": 1}<|call|>',
        '<|channel|>analysis<|message|>[draft<|end|><|channel|>final <|constrain|>json<|message|>{"a": 1}',
        'analysisMaybe {"a": 2}? No.assistantfinal{"a": 1}',
        'analysisUse the tool.assistantcommentary to=functions.A json{"a": 1}',
    ],
)
def test_of_the_harmony_format_only_the_final_channel_and_calls_are_kept(text):
    assert json_spans(final_channel(text)) == ['{"a": 1}']


@pytest.mark.parametrize(
    "text", ['<|channel|>analysis<|message|>{"a": 2}', "analysisassistantfinal", 'analysisMaybe {"a": 2}?']
)
def test_without_a_final_channel_nothing_is_left(text):
    assert json_spans(final_channel(text)) == [""]


@pytest.mark.parametrize("text", ['{"a": "<|channel|>"}', 'analysis: {"a": 1}', 'See <|channel|> {"a": 1}'])
def test_texts_in_other_formats_are_unchanged(text):
    assert final_channel(text) == text


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


@given(st.text())
def test_any_text_is_repaired_or_cut_off(text):
    for repair in REPAIRS:
        repair(text)
    with suppress(CutOff):
        assert json_spans(text)
