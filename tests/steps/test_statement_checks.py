"""Checks of extracted statements: each rule with texts that it must leave alone."""

from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import PromptSet
from langchain_rageval.steps.extract_statements import halves, text_parts
from langchain_rageval.steps.statement_checks import (
    content_units,
    copied_statement,
    is_placeholder,
    statement_key,
    unmentioned_units,
    without_list_marks,
)

TEXT = "Полис действует год. No claims were made. It is cheap."


@each(
    ("one", "other"),
    [
        ("Полис действует год.", "полис  действует год"),
        ("Ещё год.", "еще год!"),
        ("The policy costs 5 euros.", "Policy costs 5 euros"),
        ("1. Press Save.", "Press Save"),
        ("- Press “Save”!", "Press Save."),
        ("押金在14天内退还。", "押金在14天内退还"),
    ],
)
def test_statements_that_differ_only_in_writing_are_repeats(one, other):
    assert statement_key(one) == statement_key(other)


@each(
    ("one", "other"),
    [
        ("It costs 5 euros.", "It costs 50 euros."),
        ("It costs 1.5 euros.", "It costs 15 euros."),
        ("The rate is 2,5 %.", "The rate is 25 %."),
        ("It is covered.", "It is not covered."),
        ("Полис действует.", "Полис не действует."),
        ("t = -5", "t = 5"),
        ("5 %", "5"),
        ("C++ is used.", "C is used."),
        ("A pays B.", "B pays A."),
        ("Plan A is free.", "Plan is free."),
        ("It opens at 10:30.", "It opens at 10:50."),
        ("Version 2.1 is free.", "Version 2.10 is free."),
    ],
)
def test_statements_that_differ_in_a_word_a_number_or_a_sign_are_not_repeats(one, other):
    assert statement_key(one) != statement_key(other)


@each(
    "statement",
    [
        *("-", "—", "...", "[]", "•", "N/A", "n/a.", "None.", "(none)", "null", "No statements.", "Empty list."),
        *("There are no statements in the text.", "The text states nothing.", "No factual statements were made."),
        *("No claims found.", "The text contains no factual claims.", "Nothing to list"),
        *("Нет утверждений.", "Утверждений нет", "Утверждения отсутствуют.", "Нет", "В тексте нет утверждений.", "Н/Д"),
        *("Нет фактических утверждений в тексте", "Текст ничего не утверждает.", "Пустой список", "Ничего не сказано."),
        *("没有陈述。", "无", "不适用", "空列表", "文本中没有陈述"),
        *("진술 없음", "없음", "진술이 없습니다.", "해당 없음"),
        *("Nessuna affermazione.", "Non ci sono affermazioni.", "N/D", "Il testo non afferma nulla.", "Nessuna"),
        *("The text does not contain any statements.", "The answer doesn't state anything.", "No data."),
        *("The response does not provide any factual information.", "I cannot extract any claims from the text."),
        *(
            "Ответ не содержит утверждений.",
            "Текст не содержит никаких фактов.",
            "Текст не содержит ни одного утверждения.",
            "Нет данных.",
            "Данные отсутствуют.",
        ),
        *("В ответе не содержится фактических утверждений.", "Не удалось извлечь утверждения из текста."),
        *("文本不包含任何陈述。", "텍스트에 진술이 없습니다.", "Il testo non contiene alcuna affermazione."),
    ],
)
def test_a_placeholder_is_no_statement(statement):
    assert is_placeholder(statement, TEXT)


@each(
    "statement",
    [
        *("No claims were made.", "No fee is charged.", "None of the parcels is insured.", "It contains no sugar."),
        *("Nothing is refunded after 14 days.", "No information is shared with third parties.", "It is cheap."),
        *("Нет ограничений по возрасту.", "Комиссии нет.", "Сведения не раскрываются.", "Факты изложены в отчёте."),
        *(
            "The text does not contain any spelling mistakes.",
            "The answer does not include any fees.",
            "No data plan is sold.",
        ),
        *(
            "Ответ не содержит гарантий.",
            "Нет данных о сроках хранения.",
            "Текст договора не содержит сведений о пенях.",
        ),
        *(
            "Не указано, кто платит.",
            "Не указано имя.",
            "No customer data is sold.",
            "Данные не отсутствуют.",
            "文本不包含密码。",
            "Il testo non contiene errori.",
        ),
        *("没有手续费。", "수수료는 없습니다.", "Nessuna commissione.", "Non ci sono limiti di età.", "5"),
    ],
)
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


@given(st.text(max_size=200), st.integers(1, 60))
def test_parts_hold_every_character_in_order_and_none_is_too_long(text, most):
    parts = text_parts(text, most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts) or len(text) <= most


@given(st.text(max_size=200))
def test_two_halves_hold_every_character_in_order(text):
    both = halves(text)
    assert not both or ("".join("".join(both).split()) == "".join(text.split()) and all(both))
