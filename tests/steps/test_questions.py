"""Questions: rewritten to stand alone, checked, and written back from an answer."""

import asyncio

import pytest
from helpers.each import each
from helpers.scripted import answering, human_of, questions, scripted

from langchain_rageval import Finding, Judge, JudgeOutputError, OfflineJudge, PromptSet, Sample, Turn
from langchain_rageval.steps import StandaloneQuestion
from langchain_rageval.steps.questions import new_facts, recent_turns, regenerate_questions, rewrite_question

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
    assert judge.inputs == [
        {
            "history": [{"role": "user", "text": "Кто основал Мюнхен?"}, {"role": "assistant", "text": "Генрих Лев."}],
            "question": "А когда он умер?",
        }
    ]
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
        ("Когда умер Отто?", "вопрос взят как есть: в переписанном «Когда умер Отто?» добавлено: Отто"),
        (
            "Когда Генрих Лев умер в 1195 году?",
            "вопрос взят как есть: в переписанном «Когда Генрих Лев умер в 1195 году?» добавлено: 1195",
        ),
        (" ", "вопрос взят как есть: судья вернул пустой вопрос"),
    ],
)
def test_a_rewrite_with_new_facts_is_refused_after_one_call(rewrite, problem):
    judge = scripted(StandaloneQuestion(reason="r", question=rewrite))
    state = rewritten(judge)
    assert len(judge.inputs) == 1
    assert state["sample"] == SAMPLE
    assert state["standalone_question"].question == SAMPLE.question
    assert state["question_findings"] == [finding("А когда он умер?", "refused", problem)]


def test_a_refusal_is_in_the_language_of_the_question():
    sample = Sample(question="And when did he die?", history=[Turn(role="user", text="Who was king?")])
    state = rewritten(scripted(StandaloneQuestion(reason="", question="When did Otto die?")), sample)
    assert state["question_findings"][0].reason == (
        "the question was judged as it is: the rewrite 'When did Otto die?' adds Otto"
    )


def test_no_valid_reply_is_a_failure():
    with pytest.raises(JudgeOutputError) as caught:
        rewritten(Judge(scripted("no", "no"), attempts=2))
    assert caught.value.step == "rewrite_question"


def test_sync_and_async_find_the_same():
    step = rewrite_question(scripted(STANDALONE, STANDALONE))
    assert asyncio.run(step.ainvoke({"sample": SAMPLE})) == step.invoke({"sample": SAMPLE})


def test_the_oldest_turns_are_left_out_if_the_history_is_longer_than_the_judge_reads():
    turns = [Turn(role="user", text=letter * 40) for letter in "abc"]
    assert recent_turns(turns, None) == turns
    assert recent_turns(turns, 20) == turns[1:]
    assert recent_turns(turns, 1) == turns[2:]
    judge = scripted(StandaloneQuestion(reason="", question="?"))
    rewritten(Judge(judge, max_context_tokens=1), SAMPLE.model_copy(update={"history": turns}))
    assert [turn["text"][0] for turn in judge.inputs[0]["history"]] == ["c"]


@each(
    ("history", "question", "standalone"),
    [
        (HISTORY, "А когда он умер?", "А когда он умер (Генрих Лев)?"),
        (HISTORY, "Какие музеи стоит посетить в городе Дрезден?", "Какие музеи стоит посетить в городе Дрезден?"),
        ([Turn(role="user", text="сколько стоит?")], "А за год?", "А за год?"),
        (
            [Turn(role="user", text="Is the Isar a river?")],
            "Is it long in the south?",
            "Is it long in the south (Isar)?",
        ),
    ],
)
def test_the_offline_judge_adds_the_last_name_or_changes_nothing(history, question, standalone):
    state = rewritten(OfflineJudge(), Sample(question=question, history=history))
    assert state["sample"].question == standalone


SAMPLE_OF_REGENERATE_QUESTIONS = Sample(question="When?", answer="In 1158.")


def regenerated(judge, count=3, sample=SAMPLE_OF_REGENERATE_QUESTIONS):
    state = regenerate_questions(judge, count=count).invoke({"sample": sample})
    return state["evasive"], state["regenerated_questions"]


def test_all_questions_are_asked_for_in_one_call_that_does_not_show_the_question():
    judge = scripted(questions("When was it?", "What year?", "Since when?"))
    assert regenerated(judge) == (False, ["When was it?", "What year?", "Since when?"])
    assert judge.inputs == [{"answer": "In 1158.", "count": 3}]
    assert "When?" not in human_of(judge.asked[0])


def test_the_prompt_is_in_the_language_of_the_question():
    judge = scripted(questions("?"))
    regenerated(judge, sample=Sample(question="Когда?", answer="1158"))
    assert PromptSet.default("ru").get("regenerate_questions").instruction in human_of(judge.asked[0])


@each("count", [1, 2, 3])
def test_fewer_questions_are_taken_and_more_are_cut(count):
    assert regenerated(scripted(questions("a", "b")), count) == (False, ["a", "b"][:count])


def test_blank_questions_are_dropped_before_the_rest_are_cut():
    assert regenerated(scripted(questions(" ", " a ", "", "b")), 2) == (False, ["a", "b"])


@each("none", [[], [""], [" ", "\n"]])
def test_no_questions_without_the_word_that_the_answer_is_evasive_are_asked_again(none):
    judge = scripted(questions(*none), questions("a"))
    assert regenerated(judge) == (False, ["a"])
    assert "no questions" in judge.asked[1][-1].text


def test_no_questions_after_all_attempts_are_a_failure():
    judge = scripted(questions(), questions())
    with pytest.raises(JudgeOutputError, match="no questions") as caught:
        regenerated(Judge(judge, attempts=2))
    assert caught.value.step == "regenerate_questions"
    assert len(judge.asked) == 2


@pytest.mark.parametrize("told", [[], ["a"]])
def test_an_evasive_answer_has_no_questions_whatever_the_judge_writes(told):
    assert regenerated(scripted(questions(*told, evasive=True))) == (True, [])


@each("answer", [None, "", " \n\t"])
def test_a_blank_answer_is_evasive_without_a_call(answer):
    assert regenerated(scripted(), sample=Sample(question="?", answer=answer)) == (True, [])


def test_draws_are_independent_calls_and_the_majority_says_whether_the_answer_is_evasive():
    replies = [questions("a", "b"), questions(evasive=True), questions("c")]
    judge = scripted(*replies)
    assert regenerated(Judge(judge, draws=3), 2) == (False, ["a", "b", "c"])
    assert len(judge.asked) == 3
    replies = [questions("a", "b"), questions(evasive=True), questions(evasive=True)]
    assert regenerated(Judge(scripted(*replies), draws=3), 2)[0] is True


def test_sync_and_async_find_the_same_of_regenerate_questions():
    step = regenerate_questions(Judge(answering(lambda messages: questions("a", "b", "c")), draws=3), count=2)
    assert asyncio.run(step.ainvoke({"sample": SAMPLE_OF_REGENERATE_QUESTIONS})) == step.invoke(
        {"sample": SAMPLE_OF_REGENERATE_QUESTIONS}
    )


MUNICH = "Wer gründete München?\nHeinrich der Löwe.\nWann ist er gestorben?"
TARIFF = "Was kostet Basis?\nBasis kostet 5 Euro.\nUnd Premium?"
SOURCE = "Кто основал Мюнхен?\nГенрих Лев, в 1158 году.\nА когда он умер?"


@each(
    ("question", "source"),
    [
        ("Когда умер Генрих Лев?", SOURCE),
        ("Какова дата смерти Генриха Льва?", SOURCE),
        ("Что построили в Мюнхене при Генрихе Льве?", SOURCE),
        ("Сколько лет мюнхенскому замку 1158 года?", SOURCE),
        ("Когда родилась Яна?", "Кто такие Ян и Яна?\nБрат и сестра.\nА она?"),
        ("Где живёт Яну сейчас?", "Кто такой Ян?\nА где?"),
        ("Что написал Павел?", "Книга Павла\nА что ещё?"),
        ("What does a loan of 2000 euros cost?", "I need 2,000 euros.\nAnd over ten years?"),
        ("What does a loan of 2 000 euros cost?", "I need 2000 euros.\nAnd?"),
        ("Does Home Plus pay if the Isar floods?", "home plus and the isar\nAnd then?"),
        ("Is iPhone 15 waterproof?", "Tell me about the iPhone 15.\nIs it waterproof?"),
        ("When did Henry's son die?", "Who founded Munich?\nHenry.\nWhen did his son die?"),
        (
            "How do I install Python’s asyncio on Windows?",
            "python on windows\nWhich part?\nasyncio, how do I install it?",
        ),
        ("How fast is the Wi-Fi there?", "Is there wifi?\nYes.\nHow fast is it?"),
        ("How fast is the WiFi there?", "Is there Wi-Fi?\nYes.\nHow fast is it?"),
        ("In welchem Jahr ist der Gründer Münchens, Heinrich der Löwe, gestorben?", MUNICH),
        ("Wie hoch ist der monatliche Preis für den neuen Tarif Premium?", TARIFF),
        ("Was kostet Premium pro Monat, und welche Vorteile hat das?", TARIFF),
        ("Was kosten 2 Jahre Premium?", f"{TARIFF} Für 2."),
        ("Сколько стоит номер на 3 взрослых и 1 ребёнка?", "Нас трое взрослых и ребёнок.\nСколько будет номер?"),
        ("What is the price of a room for 2 people?", "A room for two, please.\nDone.\nWhat's the price?"),
        ("Which visa does a US citizen need for Spain?", "I need a visa for Spain.\nWhich passport?\nAmerican"),
        ("What is the fee in the United States?", "What is the fee in the UK?\n10 pounds.\nand in the states?"),
        ("旅行保险要多少钱？", "1. 家庭保险。2. 旅行保险。\n第二个要多少钱？"),
    ],
)
def test_names_in_other_forms_and_numbers_in_other_groups_are_not_new(question, source):
    assert new_facts(question, source) == []


@each(
    ("question", "source", "facts"),
    [
        ("Когда умер Фридрих Барбаросса?", SOURCE, ["Фридрих", "Барбаросса"]),
        ("Когда Генрих Лев умер в 1195 году?", SOURCE, ["1195"]),
        ("Когда умерла Елена?", "Кто такой Лев?\nА она?", ["Елена"]),
        ("Когда умер Лена?", "Кто такой Лев?\nА когда?", ["Лена"]),
        ("Сколько стоит Windows в магазине?", "Сколько стоит программа?\nА там?", ["Windows"]),
        ("When did Otto die in 973?", "Who was the king?\nHenry.\nAnd when did he die?", ["Otto", "973"]),
        ("When did Otto's son die?", "Who founded Munich?\nHenry.\nWhen did his son die?", ["Otto's"]),
        ("Wann starb der letzte Kaiser Barbarossa?", MUNICH, ["Barbarossa"]),
        ("Was kostet Ultra in dem Jahr 2031?", TARIFF, ["Ultra", "2031"]),
        ("How much is a room for 3 people?", "A room for two, please.\nDone.\nHow much?", ["3"]),
        ("What is the fee in the United States?", "What is the fee in the UK?\n10.\nand there?", ["States"]),
        ("What does version 3.1 cost?", "What does version 3 cost?\nAnd the next one?", ["3.1"]),
    ],
)
def test_names_and_numbers_from_nowhere_are_found(question, source, facts):
    assert new_facts(question, source) == facts
