"""Statements of texts: what is asked, which are kept, and the checks of each, with texts that they leave alone."""

import pytest
from helpers.each import each
from helpers.scripted import answering, scripted, statements
from helpers.stored import fixture_data
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_rageval import Judge, JudgeOutputError, PromptSet, Sample
from langchain_rageval.steps.extract_statements import (
    content_units,
    copied_statement,
    extract_statements,
    halves,
    is_placeholder,
    statement_key,
    text_parts,
    unmentioned_units,
    without_list_marks,
)

SAMPLE = Sample(question="Кто?", answer="Анна и Пётр.", references=["Анна.", " ", "Пётр."], contexts=["А."])


def extracted(judge, of, sample=SAMPLE, **options):
    return extract_statements(judge, of=of, **options).invoke({"sample": sample})


def test_each_reference_that_is_not_blank_is_asked_for():
    judge = answering(lambda messages: statements(judge.inputs[-1]["text"], "ещё"))
    state = extracted(judge, "reference")
    assert state["statements_by_reference"] == [["Анна.", "ещё"], [], ["Пётр.", "ещё"]]
    assert [inputs["text"] for inputs in judge.inputs] == ["Анна.", "Пётр."]


def test_of_both_the_answer_comes_first_and_nothing_is_mixed():
    judge = scripted(statements("Это Анна."), statements("Анна."), statements("Пётр."))
    state = extracted(judge, "both")
    assert [inputs["text"] for inputs in judge.inputs] == ["Анна и Пётр.", "Анна.", "Пётр."]
    assert (state["answer_statements"], state["reference_statements"]) == (["Это Анна."], ["Анна.", "Пётр."])
    assert state["statements_by_reference"] == [["Анна."], [], ["Пётр."]]


@each("answer", [None, "", " \n\t"])
@each("references", [[], [""], [" ", "\n"]])
def test_blank_texts_make_no_call_and_have_no_statements(answer, references):
    state = extracted(scripted(), "both", SAMPLE.model_copy(update={"answer": answer, "references": references}))
    assert (state["answer_statements"], state["reference_statements"]) == ([], [])
    assert state["statements_by_reference"] == [[]] * len(references)


@each("contexts", [None, [], [""], [" ", "\n"]])
def test_statements_for_contexts_that_hold_no_words_are_not_asked_for(contexts):
    sample = SAMPLE.model_copy(update={"contexts": contexts})
    assert extracted(scripted(), "reference", sample, for_contexts=True)["reference_statements"] == []
    judge = answering(lambda messages: statements("a"))
    assert extracted(judge, "reference", sample)["reference_statements"] == ["a"]


def test_near_verbatim_repeats_count_once_and_the_first_wording_stays():
    judge = scripted(statements(" Это Анна. ", "", "  ", "это  Анна", "- Это Анна!", "Это Пётр."))
    state = extracted(judge, "answer")
    assert state["answer_statements"] == ["Это Анна.", "Это Пётр."]
    assert state["dropped_statements"] == 2


def test_near_verbatim_repeats_of_several_references_count_once():
    judge = scripted(statements("Это Анна."), statements("это Анна", "Это Пётр."))
    state = extracted(judge, "reference")
    assert state["reference_statements"] == ["Это Анна.", "Это Пётр."]
    assert state["statements_by_reference"] == [["Это Анна."], [], ["Это Анна.", "Это Пётр."]]


@each("placeholder", ["Нет утверждений.", "-", "N/A", "No statements.", "没有陈述", "진술 없음"])
def test_a_placeholder_states_nothing(placeholder):
    state = extracted(scripted(statements(placeholder)), "answer")
    assert state["answer_statements"] == []
    assert "dropped_statements" not in state


def test_a_copied_example_is_refused_and_asked_again():
    for example in PromptSet.default("ru").get("extract_statements").examples:
        told = example.output["statements"]
        if told:
            judge = scripted(statements("Это Анна.", told[-1]), statements("Это Анна."))
            assert extracted(judge, "answer")["answer_statements"] == ["Это Анна."]
            problem = f"{told[-1]!r} is a statement of an example; list what `text` in the input says"
            assert problem in judge.asked[1][-1].text


LONG = Sample(question="What?", answer="\n".join(f"- Item {number} costs {number} euros." for number in range(8)))


def sentences_of(text):
    return [line.removeprefix("- ") for line in text.splitlines()]


def cut_above(most, metadata):
    """A judge that lists the sentences of a text, and is cut off after `most` of them."""

    def reply(messages):
        listed = sentences_of(judge.inputs[-1]["text"])
        if len(listed) <= most:
            return statements(*listed)
        return AIMessage(statements(*listed[:most]).model_dump_json()[:-2], response_metadata=metadata)

    judge = answering(reply)
    return judge


@each(
    ("metadata", "lengths"),
    [
        ({"finish_reason": "length"}, [8, 4, 2, 2, 4, 2, 2]),
        ({"stop_reason": "max_tokens"}, [8, 4, 2, 2, 4, 2, 2]),
        ({}, [8, 8, 8, 4, 4, 4, 2, 2, 4, 4, 4, 2, 2]),  # broken JSON is first asked again
    ],
)
def test_a_cut_off_list_is_asked_for_in_parts_and_never_in_fewer_words(metadata, lengths):
    judge = cut_above(3, metadata)
    assert extracted(judge, "answer", LONG)["answer_statements"] == sentences_of(LONG.answer)
    assert [len(sentences_of(inputs["text"])) for inputs in judge.inputs] == lengths
    assert not [message for messages in judge.asked for message in messages if "fewer words" in message.text]


def test_a_complete_list_at_a_length_stop_is_asked_for_in_parts():
    whole = AIMessage(statements("a").model_dump_json(), response_metadata={"finish_reason": "length"})
    judge = scripted(whole, statements("b"), statements("c"))
    sample = Sample(question="What?", answer="First one. Second one.")
    assert extracted(judge, "answer", sample)["answer_statements"] == ["b", "c"]
    assert [inputs["text"] for inputs in judge.inputs] == ["First one. Second one.", "First one.", "Second one."]


def test_a_judge_that_is_cut_off_on_every_part_fails_after_few_calls():
    judge = answering(lambda _: AIMessage('{"statements": ["a"', response_metadata={"finish_reason": "length"}))
    with pytest.raises(JudgeOutputError, match="the reply was cut off at its length limit") as caught:
        extracted(judge, "answer", LONG)
    assert caught.value.raw_output == '{"statements": ["a"'
    assert [len(sentences_of(inputs["text"])) for inputs in judge.inputs] == [8, 4, 2, 1, 1, 1]


def test_a_cut_off_reply_to_a_single_sentence_is_asked_again_for_all_its_items():
    cut = AIMessage('{"statements": ["a"', response_metadata={"finish_reason": "length"})
    judge = scripted(cut, statements("a", "b"))
    assert extracted(judge, "answer")["answer_statements"] == ["a", "b"]
    assert "without leaving out any item" in judge.asked[1][-1].text


def test_a_long_text_is_sent_in_parts_of_at_most_max_context_tokens():
    judge = answering(lambda _: statements(*sentences_of(judge.inputs[-1]["text"])))
    state = extracted(Judge(judge, max_context_tokens=20), "answer", LONG)
    assert state["answer_statements"] == sentences_of(LONG.answer)
    assert all(len(inputs["text"]) <= 80 for inputs in judge.inputs)
    assert "\n".join(inputs["text"] for inputs in judge.inputs) == LONG.answer


def test_what_no_statement_mentions_is_counted_for_each_side():
    judge = answering(lambda _: statements(sentences_of(judge.inputs[-1]["text"])[0]))
    sample = Sample(question="What?", answer=LONG.answer, references=["Reference costs 7 euros.", "Another one."])
    state = extracted(judge, "both", sample)
    assert (state["answer_unmentioned"], state["reference_unmentioned"]) == ((7, 11), (0, 5))


@each(("characters", "kept"), [(2, 10), (32, 10), (33, 11), (35, 11), (36, 12)])
def test_a_text_holds_a_statement_for_every_three_characters_and_at_least_ten(characters, kept):
    told = [f"Fact {number}." for number in range(40)]
    sample = SAMPLE.model_copy(update={"answer": "Ab" * (characters // 2) + "." * (characters % 2)})
    state = extracted(scripted(statements(*told)), "answer", sample)
    assert (state["answer_statements"], state["dropped_statements"]) == (told[:kept], 40 - kept)


# Checks

TEXTS = fixture_data("statement_checks.yaml")

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
    units = content_units("1. Press Save.\n2) It costs 45 euros, which they refund.")
    assert units == {"press", "save", "costs", "45", "euros", "refun"}
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


@each("language", ["en", "it", "ko", "ru", "zh"])
def test_a_statement_of_an_example_is_copied_unless_the_text_says_it(language):
    prompt = PromptSet.default(language).get("extract_statements")
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
