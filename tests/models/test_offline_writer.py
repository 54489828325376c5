"""The offline judge as writer and critic of test sets: no measure of quality, but every step gets a usable answer."""

import json
import re

import pytest
from helpers.each import each
from helpers.texts import corpus
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, OfflineJudge, PromptSet
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.docstore import Docstore

BATH = (
    "Полис «Дачник» страхует баню от пожара. Страховая премия составляет 3000 рублей в год. "
    "Возмещение выплачивает компания в течение 30 дней. Осмотр постройки проводит эксперт компании."
)
HOUSE = "Ипотеку на загородный дом банк выдаёт под залог земли. Оценку залога делает независимый оценщик за 5 дней."
INSPECTION = "Осмотр постройки проводит эксперт компании. Осмотр постройки эксперт проводит летом."
FASTAPI = (
    "Static files are served by the StaticFiles application. You mount it under a path of the main application. "
    "Mounting means adding a complete independent application under a path, which then handles all sub paths."
)
QUESTION = "Что известно о теме «страховая премия»?"


def passages(*texts):
    return [{"passage": number, "text": text} for number, text in enumerate(texts, start=1)]


def asked(step, /, language="auto", layout="contexts_first", **inputs):
    """What the judge answers when the step asks it as it asks any model."""
    judge = Judge(OfflineJudge(), language=language, layout=layout)
    return JudgeStep(step, judge, ANSWER_SCHEMAS[step]).invoke(inputs)[step]


def question(step, /, **inputs):
    return asked(step, **inputs).question


def review(question, *texts):
    found = asked("review_question", question=question, passages=passages(*texts))
    return found.standalone, found.answerable


def needed(question, *texts):
    return asked("find_passages", question=question, passages=passages(*texts)).passages


# Whoever asks is known


EVOLUTIONS = {
    "evolve_reasoning": "Как «страховая премия» связано с темой «Полис Дачник»",
    "evolve_conditional": "Что изменится в теме «страховая премия», если учесть",
    "evolve_multi_context": "Что общего у тем «страховая премия» и",
    "evolve_conversational": "а что с темой страховая премия",
    "evolve_unanswerable": "Что станет с темой «страховая премия» в 2101 году?",
}


@each("language", ["ru", "en", "zh", "auto"])
@each("layout", ["contexts_first", "instruction_first", "handbook"])
def test_steps_that_read_and_answer_the_same_are_told_apart(language, layout):
    told = {step: words.split()[:3] for step, words in EVOLUTIONS.items()}
    for step, begun in told.items():
        found = asked(step, language=language, layout=layout, question=QUESTION, passages=passages(BATH, HOUSE))
        assert found.question.split()[:3] == begun, step


@pytest.mark.parametrize("language", ["ru", "en"])
def test_steps_that_answer_the_same_are_told_apart_by_what_they_read(language):
    polite = "Подскажите, пожалуйста, сколько составляет страховая премия?"
    assert asked("write_question", language, passage=BATH, keyphrase="баня").question == "Что известно о теме «баня»?"
    assert asked("compress_question", language, question=polite).question == "Сколько составляет страховая премия?"
    rewritten = asked("reword_question", language, question="Что в тексте?", feedback="Где?", passages=passages(BATH))
    assert rewritten.question.startswith("Что известно о теме «")
    assert asked("answer_unaided", language, question=QUESTION).answer == "Не знаю."
    assert asked("degrade_answer", language, question=QUESTION, answer="Да. Нет.").answer == "Да."


def test_an_instruction_of_the_users_own_is_answered_like_the_first_that_reads_the_same():
    prompt = PromptSet.default("ru").get("evolve_unanswerable").model_copy(update={"instruction": "Сделай по-своему."})
    inputs = {"question": QUESTION, "passages": passages(BATH)}
    found = JudgeStep(prompt, OfflineJudge(), ANSWER_SCHEMAS["evolve_unanswerable"], name="mine").invoke(inputs)["mine"]
    assert found == asked("evolve_reasoning", **inputs)


def test_every_step_of_the_package_is_answered():
    """With the inputs of its own examples, in both languages."""
    for language in ("ru", "en"):
        prompts = PromptSet.default(language)
        for step, answer in ANSWER_SCHEMAS.items():
            for example in prompts.get(step).examples:
                rest = {name: value for name, value in example.input.items() if name != "contexts"}
                block = "[1]\n[1.1] a" if "contexts" in example.input else ""
                human = f"{prompts.get(step).instruction}\n{block}\n{json.dumps(rest, ensure_ascii=False)}"
                assert answer.model_validate(answer_offline(answer.__name__, human))


# Writing


def test_key_phrases_are_names_and_what_is_repeated_and_share_no_word():
    found = asked("extract_keyphrases", passage=BATH).keyphrases
    assert len(found) == 5
    assert all(phrase in BATH for phrase in found)
    assert any("компани" in phrase for phrase in found)
    stems = [word[:5].lower() for phrase in found for word in phrase.split()]
    assert len(stems) == len(set(stems))
    assert asked("extract_keyphrases", passage="# Баня\n\nМю́нхен").keyphrases == ["Баня Мюнхен"]
    assert asked("extract_keyphrases", passage="12 … 13").keyphrases == []


def test_code_links_and_headings_give_no_key_phrases():
    page = f"# Heading of many other words here\n\n```python\nimport fancything\n```\n<a href='https://x.y/z'>{FASTAPI}</a>"
    found = " ".join(asked("extract_keyphrases", passage=page).keyphrases)
    assert "StaticFiles" in found
    assert not re.search("Heading|fancything|href", found)
    short = asked("extract_keyphrases", passage="# Old town halls beside rivers\n\nMunich lies on the Isar in Bavaria.")
    assert not re.search("town|rivers", " ".join(short.keyphrases))


@each(
    ("passage", "low", "high"),
    [
        (BATH, 2.0, 3.0),
        (FASTAPI, 2.0, 3.0),
        ("静态文件由应用程序提供给用户。您可以把它挂载到一个路径上。挂载之后它处理所有的子路径。", 2.0, 3.0),
        ("| a | b |\n| 1 | 2 |", 1.0, 1.5),
        ("См. также: Баня", 1.0, 1.9),
        ("", 1.0, 1.0),
    ],
)
def test_passages_of_prose_are_graded_well_and_others_are_not(passage, low, high):
    found = asked("grade_passage", passage=passage)
    grades = [found.clarity, found.depth, found.structure, found.relevance]
    assert all(grade in (1, 2, 3) for grade in grades)
    assert low <= sum(grades) / 4 <= high


def test_a_question_names_its_key_phrase_in_the_language_of_the_passage():
    assert question("write_question", passage=FASTAPI, keyphrase="main application") == (
        'What is known about "main application"?'
    )
    assert question("write_question", passage=BATH, keyphrase="FastAPI") == "Что известно о теме «FastAPI»?"


def test_a_question_is_mended_by_naming_what_the_passages_hold():
    def mended(question_):
        return question("reword_question", question=question_, feedback="…", passages=passages(BATH))

    assert mended("Сколько составляет эта страховая премия в тексте?") == "Сколько составляет страховая премия?"
    assert "премия" in mended("Какова премия футболиста за сезон?")
    for phrase in asked("extract_keyphrases", passage=BATH).keyphrases:
        first = question("write_question", passage=BATH, keyphrase=phrase)
        assert mended(first) != first
    assert review(mended("О чём говорится в этом отрывке?"), BATH) == (True, True)


def test_an_evolved_question_joins_a_phrase_that_its_parent_has_not():
    for step in ("evolve_reasoning", "evolve_conditional"):
        evolved = question(step, question=QUESTION, passages=passages(BATH))
        assert "«страховая премия»" in evolved
        assert review(evolved, BATH) == (True, True)
        further = question("evolve_conditional", question=evolved, passages=passages(BATH))
        assert len(re.findall("«", further)) == 3
        assert question(step, question=QUESTION, passages=passages("Страховая премия.")) == QUESTION
    english = question("evolve_reasoning", question='What is known about "StaticFiles"?', passages=passages(FASTAPI))
    assert english.startswith('How is "StaticFiles" connected with "')
    plain = question("evolve_conditional", question="Сколько составляет страховая премия?", passages=passages(BATH))
    assert plain.startswith("Что изменится в теме «составляет страховая премия», если учесть тему «")


def test_a_question_over_two_passages_needs_both():
    for texts in (
        (BATH, HOUSE),
        (HOUSE, BATH),
        (BATH, f"Страховая премия не нужна. {HOUSE}"),
        (BATH, f"{INSPECTION} {HOUSE}"),
    ):
        evolved = question("evolve_multi_context", question=QUESTION, passages=passages(*texts))
        assert evolved.startswith("Что общего у тем «страховая премия» и «")
        assert needed(evolved, *texts) == [1, 2]
        assert review(evolved, *texts) == (True, True)
    assert question("evolve_multi_context", question=QUESTION, passages=passages(BATH, BATH)) == QUESTION
    assert question("evolve_multi_context", question=QUESTION, passages=passages(BATH)) != ""


def test_a_question_over_two_passages_in_the_same_words_names_what_only_one_has():
    texts = [f"Город {town} основан князем на реке {river}." for town, river in (("Тверь", "Волга"), ("Орёл", "Ока"))]
    evolved = question("evolve_multi_context", question="Что известно о теме «Тверь»?", passages=passages(*texts))
    assert evolved == "Что общего у тем «Тверь» и «Орёл»?"
    assert needed(evolved, *texts) == [1, 2]


def test_a_question_without_an_answer_asks_for_a_year_that_is_not_there():
    texts = [BATH, "В 2101 году откроют баню. В 2103 году её закроют."]
    assert question("evolve_unanswerable", question=QUESTION, passages=passages(*texts)) == (
        "Что станет с темой «страховая премия» в 2102 году?"
    )
    assert review("Что станет с темой «страховая премия» в 2102 году?", *texts) == (True, False)


@each(
    ("given_question", "short"),
    [
        ("Не могли бы вы подсказать, где баня?", "Подсказать, где баня?"),
        ("Could you tell me, please, where StaticFiles is mounted?", "Where StaticFiles is mounted?"),
        ("Где баня?", "Где баня?"),
        ("Пожалуйста?", "Пожалуйста?"),
    ],
)
def test_compressing_drops_what_is_only_polite(given_question, short):
    assert question("compress_question", question=given_question) == short


def test_an_answer_is_the_sentences_that_share_most_with_the_question_in_their_order():
    def answer(question_, *texts):
        found = asked("write_answer", question=question_, passages=passages(*texts))
        assert found.answerable == bool(found.answer)
        return found.answer

    assert (
        answer("Сколько составляет страховая премия?", HOUSE, BATH) == "Страховая премия составляет 3000 рублей в год."
    )
    assert answer("Кто выдаёт ипотеку и кто проводит осмотр постройки?", BATH, HOUSE) == (
        "Осмотр постройки проводит эксперт компании. Ипотеку на загородный дом банк выдаёт под залог земли."
    )
    assert answer("Под залог чего банк выдаёт ипотеку и кто проводит осмотр постройки?", BATH, HOUSE) == (
        "Осмотр постройки проводит эксперт компании. Ипотеку на загородный дом банк выдаёт под залог земли."
    )
    assert answer("Кто написал «Евгения Онегина»?", BATH, HOUSE) == ""
    assert answer("Сколько составляет страховая премия за 2019 год?", BATH) == ""
    assert answer("Что?", BATH) == ""


def test_a_degraded_answer_is_the_first_half_and_padding_is_of_the_topic_without_facts():
    assert asked("degrade_answer", question="?", answer="Один. Два. Три. Четыре.").answer == "Один. Два."
    assert asked("degrade_answer", question="?", answer="раз два три").answer == "раз"
    assert asked("degrade_answer", question="?", answer="Да").answer == ""
    assert asked("answer_unaided", question="Where is it?").answer == "I do not know."
    padded = asked("pad_context", question=QUESTION, context=BATH).sentences
    assert len(padded) == 3
    assert all("«страховая премия»" in sentence and not re.search(r"\d", sentence) for sentence in padded)
    assert "«StaticFiles»" not in str(asked("pad_context", question='What is "StaticFiles"?', context=FASTAPI))


# Judging


@each(
    ("asked_question", "standalone", "answerable"),
    [
        ("Сколько составляет страховая премия?", True, True),
        ("Сколько составляет страховая премия в тексте?", False, True),
        ("Какую премию платят по этому полису?", False, True),
        ("Согласно документу, кто проводит осмотр?", False, True),
        ("Кто изобрёл паровую машину?", True, False),
        ("Какой была страховая премия в 1999 году?", True, False),
        ("Что это такое?", False, False),
        ("?", False, False),
    ],
)
def test_a_question_is_reviewed_by_what_it_points_at_and_what_the_passages_hold(asked_question, standalone, answerable):
    assert review(asked_question, BATH) == (standalone, answerable)
    feedback = asked("review_question", question=asked_question, passages=passages(BATH)).feedback
    assert ("Назовите" in feedback) is not standalone
    assert ("спросите" in feedback) is not answerable


@each(
    ("asked_question", "standalone"),
    [
        ("What does this application serve?", False),
        ("According to the text, what are static files?", False),
        ("Which static files are named in the given passage?", False),
        ("How is a static application mounted in the context of a main application?", True),
        ("Which static documents of an application are served?", True),
    ],
)
def test_english_that_points_is_seen(asked_question, standalone):
    assert review(asked_question, FASTAPI)[0] is standalone


@each(
    ("asked_question", "deeper", "broader"),
    [
        ("Как «страховая премия» связано с темой «баня» и почему?", True, True),
        ("Сколько составляет страховая премия для бани?", False, True),
        ("Скажите, пожалуйста, что известно о страховой премии?", False, False),
        (QUESTION, False, False),
        ("Как?", False, False),
    ],
)
def test_a_question_is_broader_for_new_words_and_deeper_for_new_reasons(asked_question, deeper, broader):
    parent = "Сколько составляет страховая премия?"
    found = asked("compare_questions", parent=parent, question=asked_question.replace("Скажите, пожалуйста, ", ""))
    assert (found.deeper, found.broader) == (deeper, broader)


def test_the_passages_that_are_needed_are_found_and_no_other():
    assert needed("Сколько составляет страховая премия?", HOUSE, BATH, HOUSE) == [2]
    assert needed("Чем страховая премия отличается от залога земли?", BATH, HOUSE) == [1, 2]
    assert needed("Кто изобрёл паровую машину?", BATH, HOUSE) == []
    assert needed("?", BATH) == []
    assert needed(QUESTION) == []


# On real documents


@pytest.mark.parametrize("name", ["ru_wiki", "fastapi"])
def test_most_real_passages_get_questions_that_are_accepted(name):
    store = Docstore(corpus(name))
    good = [p for p in store.passages if sum(grade(p.text)) / 4 >= 2]
    assert len(good) >= 0.7 * len(store)
    accepted = [kept for passage in good for kept in trial(passage.text)]
    assert sum(accepted) >= 0.9 * len(accepted) > 0


def grade(text):
    found = written("grade_passage", passage=text)
    return [found[name] for name in ("clarity", "depth", "structure", "relevance")]


def trial(text):
    """Whether a passage's question, and the two that come of it, are accepted on their way."""
    phrases = written("extract_keyphrases", passage=text)["keyphrases"]
    parent = written("write_question", passage=text, keyphrase=phrases[0])["question"]
    yield accepted(parent, text)
    for step in ("evolve_reasoning", "evolve_conditional"):
        child = written(step, question=parent, passages=passages(text))["question"]
        compared = written("compare_questions", parent=parent, question=child)
        yield accepted(child, text) and (compared["deeper"] or compared["broader"])


def accepted(question_, text):
    given = {"question": question_, "passages": passages(text)}
    reviewed, answered = written("review_question", **given), written("write_answer", **given)
    found = written("find_passages", **given)["passages"]
    return reviewed["standalone"] and reviewed["answerable"] and answered["answerable"] and found == [1]


def written(step, /, **inputs):
    human = f"{PromptSet.default('ru').get(step).instruction}\n{json.dumps(inputs, ensure_ascii=False)}"
    return answer_offline(ANSWER_SCHEMAS[step].__name__, human)


@given(st.text(max_size=120), st.text(max_size=60), st.lists(st.text(max_size=120), max_size=3))
def test_it_answers_whatever_stands_in_a_passage_and_always_the_same(passage, text, texts):
    inputs = {"question": text, "passages": passages(*texts), "passage": passage, "keyphrase": text, "context": passage}
    inputs |= {"feedback": text, "answer": passage, "parent": passage}
    reads = {
        "extract_keyphrases": "passage",
        "grade_passage": "passage",
        "write_question": "passage keyphrase",
        "reword_question": "question feedback passages",
        "compress_question": "question",
        "compare_questions": "parent question",
        "answer_unaided": "question",
        "degrade_answer": "question answer",
        "pad_context": "question context",
    }
    for step in [*reads, *EVOLUTIONS, "review_question", "find_passages", "write_answer"]:
        given_inputs = {name: inputs[name] for name in reads.get(step, "question passages").split()}
        first = written(step, **given_inputs)
        assert first == written(step, **given_inputs)
        ANSWER_SCHEMAS[step].model_validate(first)
