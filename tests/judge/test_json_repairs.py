import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.judge.json_repairs import (
    REPAIRS,
    CutOff,
    json_literals,
    json_spans,
    no_trailing_commas,
    out_of_list,
    out_of_wrapper,
    straight_quotes,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
CONTAINERS = st.lists(JSON) | st.dictionaries(st.text(), JSON)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text",
    [
        '<think>Может, {"a": 2}? Или "[</think>{"a": 1}',
        '{"a": 2}? Нет, не так.</think>\n{"a": 1}',
        'Пишу {"a": 2, и думаю</think>{"a": 1}',
        'Ответ. <think>ещё</think> {"a": 1}',
        '{"a": 1} <think>Верно ли [это?</think>',
        '<think>a<think>b</think> {"a": 2} </think> {"a": 1}',
    ],
)
def test_thoughts_are_skipped(text):
    assert json_spans(text) == ['{"a": 1}']


def test_a_thought_inside_a_string_is_what_the_string_says():
    assert json_spans('Ответ: {"a": "<think>x</think>"}') == ['{"a": "<think>x</think>"}']


def test_without_spans_the_text_after_the_thought_is_returned():
    assert json_spans("<think>да</think>\n 1 ") == ["1"]


@pytest.mark.parametrize(
    "text",
    [
        '<think>Может, {"a": 1}',
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("text", ["[,]", "[1,,]", "[1,,,]", "[ , ]", "[,,]", '{"a":,}', "{,}"])
def test_a_comma_in_place_of_an_item_is_not_repaired(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(no_trailing_commas(text))


def test_the_only_object_of_a_list_is_unwrapped():
    assert out_of_list([{"a": 1}]) == {"a": 1}


@pytest.mark.parametrize("value", [[], [1], [{"a": 1}, {"a": 1}], [[{"a": 1}]], {"a": 1}])
def test_other_lists_are_unchanged(value):
    assert out_of_list(value) is value


@pytest.mark.parametrize("inner", [{"a": 1}, ["a"], []])
def test_an_object_or_list_under_the_only_key_is_unwrapped(inner):
    assert out_of_wrapper({"result": inner}) is inner


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": {}, "b": {}}, "a", [{"a": {}}]])
def test_other_objects_are_unchanged(value):
    assert out_of_wrapper(value) is value


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
