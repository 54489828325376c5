"""Statements and entities of texts: what is asked, which are kept, and the checks of each."""

import re

from helpers.each import each, error_of
from helpers.scripted import answering, entities, found_in, human_of, scripted, statements
from helpers.stored import fixture_data
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_rageval import Judge, JudgeOutputError, PromptSet, Sample
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.steps.entities import extract_entities, find_entities
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


def test_near_verbatim_repeats_in_an_answer_or_in_several_references_count_once_and_the_first_wording_stays():
    judge = scripted(statements(" Это Анна. ", "", "  ", "это  Анна", "- Это Анна!", "Это Пётр."))
    state = extracted(judge, "answer")
    assert (state["answer_statements"], state["dropped_statements"]) == (["Это Анна.", "Это Пётр."], 2)
    state = extracted(scripted(statements("Это Анна."), statements("это Анна", "Это Пётр.")), "reference")
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


CUT_OFF = AIMessage('{"statements": ["a"', response_metadata={"finish_reason": "length"})
LONG = Sample(question="What?", answer="\n".join(f"- Item {number} costs {number} euros." for number in range(8)))


def sentences_of(text):
    return [line.removeprefix("- ") for line in text.splitlines()]


LENGTHS = [
    ({"finish_reason": "length"}, [8, 4, 2, 2, 4, 2, 2]),
    ({"stop_reason": "max_tokens"}, [8, 4, 2, 2, 4, 2, 2]),
    ({}, [8, 8, 8, 4, 4, 4, 2, 2, 4, 4, 4, 2, 2]),  # broken JSON is first asked again
]


@each(("metadata", "lengths"), LENGTHS)
def test_a_cut_off_list_is_asked_for_in_parts_and_never_in_fewer_words(metadata, lengths):
    def reply(messages):
        listed = sentences_of(judge.inputs[-1]["text"])
        if len(listed) <= 3:
            return statements(*listed)
        return AIMessage(statements(*listed[:3]).model_dump_json()[:-2], response_metadata=metadata)

    judge = answering(reply)
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
    judge = answering(lambda _: CUT_OFF)
    error = error_of(JudgeOutputError, extracted, judge, "answer", LONG)
    assert "the reply was cut off at its length limit" in str(error)
    assert error.raw_output == '{"statements": ["a"'
    assert [len(sentences_of(inputs["text"])) for inputs in judge.inputs] == [8, 4, 2, 1, 1, 1]


def test_a_cut_off_reply_to_a_single_sentence_is_asked_again_for_all_its_items():
    judge = scripted(CUT_OFF, statements("a", "b"))
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


def test_statements_that_differ_only_in_writing_and_not_in_a_word_a_number_or_a_sign_are_repeats():
    pairs = [*TEXTS["repeats"], *TEXTS["no_repeats"]]
    assert [[one, other] for one, other in pairs if statement_key(one) == statement_key(other)] == TEXTS["repeats"]


def test_a_placeholder_is_no_statement_but_that_something_is_not_and_an_answer_of_one_word_are():
    texts = [*TEXTS["placeholders"], *TEXTS["kept"]]
    assert [text for text in texts if is_placeholder(text, TEXT)] == TEXTS["placeholders"]
    assert not [word for word in ("No.", "Нет.", "没有。", "None.", "}}}} {{{{") if is_placeholder(word, word)]


def test_content_units_are_stems_and_numbers_without_function_words_and_list_numbers():
    units = content_units("1. Press Save.\n2) It costs 45 euros, which they refund.")
    assert units == {"press", "save", "costs", "45", "euros", "refun"}
    assert content_units("租金45元") == {*"租金元", "45"}


SAID = ["The parcel costs 4 euros.", "It arrives in Leeds in three days."]
COUNTED = [(SAID, (0, 8)), (SAID[:1], (4, 8)), ([], (8, 8))]


@each(("statements", "counted"), COUNTED)
def test_what_no_statement_mentions_is_counted_without_questions(statements, counted):
    text = " ".join([*SAID, "Shall I look elsewhere?"])
    assert unmentioned_units(text, statements) == counted


NOT_COUNTED = [
    "The documents do not say how soon it is ready, so please contact your branch.",
    "Please ask your doctor about the dose of this medicine.",
    "О сроке доставки в документах ничего не сказано.",
    "Обратитесь, пожалуйста, в ближайшее отделение банка.",
]


@each("sentence", NOT_COUNTED)
def test_a_refusal_and_the_advice_to_ask_others_are_not_counted(sentence):
    assert unmentioned_units(f"The parcel costs 4 euros. {sentence}", ["The parcel costs 4 euros."]) == (0, 4)


def test_marks_of_list_items_are_taken_from_statements():
    assert without_list_marks(["1. One.", "2) Two."]) == ["One.", "Two."]
    assert without_list_marks(["[1] One.", "[2] Two."]) == ["One.", "Two."]
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


PARTS = [
    ("aaaaaaaaaa", 4, ["aaaa", "aaaa", "aa"]),
    ("aaaaa bb cc", 6, ["aaaaa", "bb cc"]),
    ("a bbbbbbbb", 5, ["a", "bbbb", "bbbb"]),
    ("aa\tbb\ncc", 7, ["aa\tbb", "cc"]),
    ("One is. Two is.", 15, ["One is. Two is."]),
    ("One is. Two is.", 14, ["One is.", "Two is."]),
    ("One is. Two is. Three is so.", 15, ["One is. Two is.", "Three is so."]),
]


@each(("text", "most", "parts"), PARTS)
def test_parts_are_as_long_as_they_may_be(text, most, parts):
    assert text_parts(text, most) == parts


@given(st.text(max_size=200), st.integers(1, 60))
def test_parts_and_halves_hold_every_character_in_order_and_no_part_is_too_long(text, most):
    parts, both = text_parts(text, most), halves(text)
    for cut in (parts, both) if both else (parts,):
        assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts) or len(text) <= most
    assert all(both)


# Entities of the references, and those that the contexts name

FOUNDERS = Sample(question="Кто основал Мюнхен?", answer="Никто.", references=["Генрих Лев.", " ", "Лев, 1158 год."])


def found(judge, sample=FOUNDERS):
    return extract_entities(judge).invoke({"sample": sample})["reference_entities"]


def test_each_reference_that_is_not_blank_is_read_alone_and_of_spellings_of_one_entity_the_first_stays():
    judge = scripted(entities("Генрих Лев"), entities("Лев", "1158 год"))
    assert found(judge) == ["Генрих Лев", "Лев", "1158 год"]
    assert judge.inputs == [{"text": "Генрих Лев."}, {"text": "Лев, 1158 год."}]
    judge = scripted(entities("Семён Лев", " ", "СЕМЕН  ЛЕВ"), entities("семен лев ", "Изар"))
    assert found(judge) == ["Семён Лев", "Изар"]


def test_a_judge_that_repeats_itself_gives_no_more_entities_than_the_texts_can_hold():
    sample = FOUNDERS.model_copy(update={"references": ["Генрих Лев.", "Лев основал Мюнхен в 1158 году."]})
    judge = scripted(entities(*map(str, range(1_000))), entities("Лев", *["лев"] * 1_000, "1158 год"))
    state = extract_entities(judge).invoke({"sample": sample})
    assert state["reference_entities"] == [*map(str, range(10)), "Лев", "1158 год"]
    assert state["dropped_entities"] == 990


SAMPLE_OF_FIND_ENTITIES = Sample(question="Who?", answer="X.", contexts=["Anna came. Bert left.", "Carl stayed."])
NAMES = ["Anna", "Bert", "Carl", "Dora"]


def verdicts(judge, names=NAMES, sample=SAMPLE_OF_FIND_ENTITIES):
    state = {"sample": sample, "reference_entities": list(names)}
    return find_entities(judge).invoke(state)["entity_verdicts"]


def told(findings):
    return [(f.verdict, f.cites) for f in findings if f.kind == "entity"]


def test_the_judge_reads_the_numbered_entities_and_the_contexts():
    judge = scripted(found_in({1: ["1.1"], 3: ["2.1"]}))
    findings = verdicts(judge)
    assert judge.inputs == [{"entities": [{"entity": n, "text": name} for n, name in enumerate(NAMES, 1)]}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] Anna came.\n[1.2] Bert left.\n[2]\n[2.1] Carl")
    assert [(f.kind, f.number, f.text) for f in findings] == [("entity", n, name) for n, name in enumerate(NAMES, 1)]
    assert told(findings) == [("found", ["1.1"]), ("not found", []), ("found", ["2.1"]), ("not found", [])]
    assert verdicts(scripted(), names=[]) == []  # nothing is asked


def test_unknown_numbers_are_dropped_and_doubles_united():
    judge = scripted(
        '{"found": [{"entity": 1, "evidence": ["1.1"]}, {"entity": 9, "evidence": ["1.1"]},'
        '{"entity": 1, "evidence": ["[2.1]", "9.9", "1.1"]}]}'
    )
    assert told(verdicts(judge)) == [("found", ["1.1", "2.1"]), *[("not found", [])] * 3]


def test_what_is_found_nowhere_is_asked_about_again_once_alone_numbered_from_one():
    judge = scripted(found_in({1: ["1.1"], 2: ["7.7"], 4: []}), found_in({1: ["1.2"]}))
    assert told(verdicts(judge)) == [("found", ["1.1"]), ("found", ["1.2"]), ("not found", []), ("not found", [])]
    assert judge.inputs[1] == {"entities": [{"entity": 1, "text": "Bert"}, {"entity": 2, "text": "Dora"}]}
    judge = scripted(found_in({2: []}), found_in({1: ["7.7"], 2: ["1.1"]}))  # the second answer stands
    assert told(verdicts(judge))[:2] == [("not found", []), ("found", [])]
    assert len(judge.asked) == 2


def finding_by_string(messages):
    human, listed = human_of(messages), {}
    for item in read_inputs(human)["entities"]:
        if cited := re.findall(rf"^\[(\d+\.\d+)\].*{item['text']}", human, re.MULTILINE):
            listed[item["entity"]] = cited
    return found_in(listed)


def test_slices_and_windows_find_what_one_call_finds_and_their_evidence_is_united():
    whole, parts = answering(finding_by_string), answering(finding_by_string)
    expected = verdicts(whole)
    assert verdicts(Judge(parts, max_statements=3, max_context_tokens=5)) == expected
    assert [f.verdict for f in expected] == ["found", "found", "found", "not found"]
    assert (len(whole.asked), len(parts.asked)) == (1, 2 * 3)
    sample = SAMPLE_OF_FIND_ENTITIES.model_copy(update={"contexts": ["Anna came. Anna left.", "Anna stayed."]})
    (finding,) = verdicts(Judge(answering(finding_by_string), max_context_tokens=5), ["Anna"], sample)
    assert finding.cites == ["1.1", "1.2", "2.1"]


def test_each_draw_is_a_call_and_the_majority_holds_with_its_evidence():
    judge = scripted(found_in({1: ["1.1"]}), found_in({1: ["1.2"], 2: ["1.2"]}), found_in({3: ["2.1"]}))
    findings = verdicts(Judge(judge, draws=3))
    assert told(findings) == [("found", ["1.1", "1.2"]), *[("not found", [])] * 3]
    agreements = [(f.number, f.text, f.verdict) for f in findings if f.kind == "agreement"]
    assert agreements == [(1, "Anna", "0.67"), (2, "Bert", "0.67"), (3, "Carl", "0.67"), (4, "Dora", "1.00")]
