"""Questions: rewritten to stand alone, checked, and written back from an answer."""

import pytest
from helpers.each import each
from helpers.scripted import human_of, questions, scripted
from helpers.stored import fixture_data

from langchain_rageval import Finding, Judge, OfflineJudge, Sample, Turn
from langchain_rageval.steps import StandaloneQuestion
from langchain_rageval.steps.questions import new_facts, recent_turns, regenerate_questions, rewrite_question

TEXTS = fixture_data("rewritten_questions.yaml")

HISTORY = [Turn(role="user", text="Кто основал Мюнхен?"), Turn(role="assistant", text="Генрих Лев.")]
SAMPLE = Sample(question="А когда он умер?", answer="В 1195 году.", history=HISTORY)
STANDALONE = StandaloneQuestion(reason="он — Генрих Лев", question="Когда умер Генрих Лев?")


def rewritten(judge, sample=SAMPLE):
    return rewrite_question(judge).invoke({"sample": sample})


def finding(text, verdict, reason):
    return Finding(kind="standalone_question", number=1, text=text, verdict=verdict, reason=reason)


def test_the_judge_reads_history_and_question_and_later_steps_get_the_standalone_question():
    judge = scripted(STANDALONE)
    state = rewritten(judge)
    history = [{"role": "user", "text": "Кто основал Мюнхен?"}, {"role": "assistant", "text": "Генрих Лев."}]
    assert judge.inputs == [{"history": history, "question": "А когда он умер?"}]
    assert state["sample"] == SAMPLE.model_copy(update={"question": "Когда умер Генрих Лев?"})
    assert state["standalone_question"] == STANDALONE
    assert state["question_findings"] == [finding("Когда умер Генрих Лев?", "rewritten", "он — Генрих Лев")]


def test_a_sample_without_history_is_not_asked_about():
    sample = SAMPLE.model_copy(update={"history": []})
    assert rewritten(scripted(), sample) == {"sample": sample}


@pytest.mark.parametrize("question", ["А когда он умер?", " а когда он  умер? "])
def test_a_question_that_is_clear_stays_as_it_was_written(question):
    state = rewritten(scripted(StandaloneQuestion(reason="ясно", question=question)))
    assert state["sample"] == SAMPLE
    assert state["question_findings"] == [finding("А когда он умер?", "unchanged", "ясно")]


@each(
    ("rewrite", "problem"),
    [
        ("Когда умер Отто?", "в переписанном «Когда умер Отто?» добавлено: Отто"),
        ("Когда он умер в 1195?", "в переписанном «Когда он умер в 1195?» добавлено: 1195"),
        (" ", "судья вернул пустой вопрос"),
    ],
)
def test_a_rewrite_with_new_facts_is_refused_after_one_call(rewrite, problem):
    judge = scripted(StandaloneQuestion(reason="r", question=rewrite))
    state = rewritten(judge)
    assert len(judge.inputs) == 1
    assert state["sample"] == SAMPLE
    assert state["standalone_question"].question == SAMPLE.question
    assert state["question_findings"] == [finding(SAMPLE.question, "refused", f"вопрос взят как есть: {problem}")]


def test_a_refusal_is_in_the_language_of_the_question():
    sample = Sample(question="And when did he die?", history=[Turn(role="user", text="Who was king?")])
    state = rewritten(scripted(StandaloneQuestion(reason="", question="When did Otto die?")), sample)
    reason = "the question was judged as it is: the rewrite 'When did Otto die?' adds Otto"
    assert state["question_findings"][0].reason == reason


def test_the_oldest_turns_are_left_out_if_the_history_is_longer_than_the_judge_reads():
    turns = [Turn(role="user", text=letter * 40) for letter in "abc"]
    for limit, kept in ((None, "abc"), (20, "bc"), (1, "c")):
        assert recent_turns(turns, limit) == [{"role": "user", "text": letter * 40} for letter in kept]
    judge = scripted(StandaloneQuestion(reason="", question="?"))
    rewritten(Judge(judge, max_context_tokens=1), SAMPLE.model_copy(update={"history": turns}))
    assert [turn["text"][0] for turn in judge.inputs[0]["history"]] == ["c"]


@each(
    ("history", "question", "standalone"),
    [
        (HISTORY, "А когда он умер?", "А когда он умер (Генрих Лев)?"),
        (HISTORY, "Какие музеи стоит посетить в городе Дрезден?", "Какие музеи стоит посетить в городе Дрезден?"),
        ([Turn(role="user", text="сколько стоит?")], "А за год?", "А за год?"),
        ([Turn(role="user", text="Is the Isar a river?")], "Is it long here?", "Is it long here (Isar)?"),
    ],
)
def test_the_offline_judge_adds_the_last_name_or_changes_nothing(history, question, standalone):
    state = rewritten(OfflineJudge(), Sample(question=question, history=history))
    assert state["sample"].question == standalone


def regenerated(judge, count=3, answer="In 1158."):
    state = regenerate_questions(judge, count=count).invoke({"sample": Sample(question="When?", answer=answer)})
    return state["evasive"], state["regenerated_questions"]


def test_all_questions_are_asked_for_in_one_call_that_does_not_show_the_question():
    judge = scripted(questions("When was it?", "What year?", "Since when?"))
    assert regenerated(judge) == (False, ["When was it?", "What year?", "Since when?"])
    assert judge.inputs == [{"answer": "In 1158.", "count": 3}]
    assert "When?" not in human_of(judge.asked[0])


@each(
    ("reply", "count", "expected"),
    [
        *((questions("a", "b"), count, (False, ["a", "b"][:count])) for count in (1, 2, 3)),
        (questions(" ", " a ", "", "b"), 2, (False, ["a", "b"])),  # blank ones are dropped before the rest are cut
        *((questions(*told, evasive=True), 3, (True, [])) for told in ([], ["a"])),
    ],
)
def test_fewer_questions_are_taken_more_are_cut_and_none_of_an_evasive_answer(reply, count, expected):
    assert regenerated(scripted(reply), count) == expected


@each("none", [[], [""], [" ", "\n"]])
def test_no_questions_without_the_word_that_the_answer_is_evasive_are_asked_again(none):
    judge = scripted(questions(*none), questions("a"))
    assert regenerated(judge) == (False, ["a"])
    assert "no questions" in judge.asked[1][-1].text


@each("answer", [None, "", " \n\t"])
def test_a_blank_answer_is_evasive_without_a_call(answer):
    assert regenerated(scripted(), answer=answer) == (True, [])


def test_draws_are_independent_calls_and_the_majority_says_whether_the_answer_is_evasive():
    replies = [questions("a", "b"), questions(evasive=True), questions("c")]
    judge = scripted(*replies)
    assert regenerated(Judge(judge, draws=3), 2) == (False, ["a", "b", "c"])
    assert len(judge.asked) == 3
    replies = [questions("a", "b"), questions(evasive=True), questions(evasive=True)]
    assert regenerated(Judge(scripted(*replies), draws=3), 2)[0] is True


@each(("question", "source"), TEXTS["known"])
def test_names_in_other_forms_and_numbers_in_other_groups_are_not_new(question, source):
    assert new_facts(question, source) == []


@each(("question", "source", "facts"), TEXTS["new"])
def test_names_and_numbers_from_nowhere_are_found(question, source, facts):
    assert new_facts(question, source) == facts
