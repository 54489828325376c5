"""Checks of extracted statements: each rule with texts that it must leave alone."""

from pathlib import Path

import yaml
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import PromptSet
from langchain_rageval.steps.extract_statements import (
    content_units,
    copied_statement,
    halves,
    is_placeholder,
    statement_key,
    text_parts,
    unmentioned_units,
    without_list_marks,
)

TEXTS = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "statement_checks.yaml").read_text(encoding="utf-8"))

TEXT = "Полис действует год. No claims were made. It is cheap."


@each(("one", "other"), TEXTS["repeats"])
def test_statements_that_differ_only_in_writing_are_repeats(one, other):
    assert statement_key(one) == statement_key(other)


@each(("one", "other"), TEXTS["no_repeats"])
def test_statements_that_differ_in_a_word_a_number_or_a_sign_are_not_repeats(one, other):
    assert statement_key(one) != statement_key(other)


@each("statement", TEXTS["placeholders"])
def test_a_placeholder_is_no_statement(statement):
    assert is_placeholder(statement, TEXT)


@each("statement", TEXTS["kept"])
def test_a_statement_that_something_is_not_is_kept(statement):
    assert not is_placeholder(statement, TEXT)


@each("word", ["No.", "Нет.", "没有。", "None.", "}}}} {{{{"])
def test_an_answer_of_one_word_is_kept(word):
    assert not is_placeholder(word, word)


def test_content_units_are_stems_and_numbers_without_function_words_and_list_numbers():
    assert content_units("1. Press Save.\n2) It costs 45 euros, which they refund.") == {
        *("press", "save", "costs", "45", "euros", "refun")
    }
    assert content_units("租金45元") == {*"租金元", "45"}


@each(
    ("statements", "counted"),
    [
        (["The parcel costs 4 euros.", "It arrives in Leeds in three days."], (0, 8)),
        (["The parcel costs 4 euros."], (4, 8)),
        ([], (8, 8)),
    ],
)
def test_what_no_statement_mentions_is_counted_without_questions(statements, counted):
    text = "The parcel costs 4 euros. It arrives in Leeds in three days. Shall I look elsewhere?"
    assert unmentioned_units(text, statements) == counted


@each(
    "sentence",
    [
        "The documents do not say how soon it is ready, so please contact your branch.",
        "Please ask your doctor about the dose of this medicine.",
        "О сроке доставки в документах ничего не сказано.",
        "Обратитесь, пожалуйста, в ближайшее отделение банка.",
    ],
)
def test_a_refusal_and_the_advice_to_ask_others_are_not_counted(sentence):
    assert unmentioned_units(f"The parcel costs 4 euros. {sentence}", ["The parcel costs 4 euros."]) == (0, 4)


def test_marks_of_list_items_are_taken_from_statements():
    assert without_list_marks(["1. One.", "2) Two."]) == ["One.", "Two."]
    assert without_list_marks(["- One.", "• Two.", "-5 °C is cold."]) == ["One.", "Two.", "-5 °C is cold."]
    for kept in (["1. FC Köln won."], ["3. Mai is a holiday.", "It is in spring."], ["2. One.", "7. Two."]):
        assert without_list_marks(kept) == kept


def extraction_prompt(language):
    return PromptSet.default(language).get("extract_statements")


@each("language", ["en", "it", "ko", "ru", "zh"])
def test_a_statement_of_an_example_is_copied_unless_the_text_says_it(language):
    prompt = extraction_prompt(language)
    for example in prompt.examples:
        for statement in example.output["statements"]:
            assert copied_statement(["1.", statement], prompt, "?", "Мюнхен — город.") == statement
            said = f"{statement} 42"
            assert copied_statement([statement], prompt, "?", said) is None
            given = example.input
            assert copied_statement([statement], prompt, given["question"], given["text"]) is None


def test_parts_end_where_sentences_end_and_keep_lines_as_they_are():
    text = "Open the app.\n- One.\n- Two.\n\nThe price is 5. It is low."
    assert text_parts(text, 100) == [text]
    assert text_parts(text, 30) == ["Open the app.\n- One.\n- Two.", "The price is 5. It is low."]
    assert halves(text) == ["Open the app.\n- One.\n- Two.", "The price is 5. It is low."]
    assert halves("One sentence only.") == []
    assert halves("第一句话。第二句话。") == text_parts("第一句话。第二句话。", 5) == ["第一句话。", "第二句话。"]


@each(
    ("text", "most", "parts"),
    [
        ("aaaaaaaaaa", 4, ["aaaa", "aaaa", "aa"]),
        ("aaaaa bb cc", 6, ["aaaaa", "bb cc"]),
        ("a bbbbbbbb", 5, ["a", "bbbb", "bbbb"]),
        ("aa\tbb\ncc", 7, ["aa\tbb", "cc"]),
        ("One is. Two is.", 15, ["One is. Two is."]),
        ("One is. Two is.", 14, ["One is.", "Two is."]),
        ("One is. Two is. Three is so.", 15, ["One is. Two is.", "Three is so."]),
    ],
)
def test_parts_are_as_long_as_they_may_be(text, most, parts):
    assert text_parts(text, most) == parts


@given(st.text(max_size=200), st.integers(1, 60))
def test_parts_hold_every_character_in_order_and_none_is_too_long(text, most):
    parts = text_parts(text, most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts) or len(text) <= most


@given(st.text(max_size=200))
def test_two_halves_hold_every_character_in_order(text):
    both = halves(text)
    assert not both or ("".join("".join(both).split()) == "".join(text.split()) and all(both))
