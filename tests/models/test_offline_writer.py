"""The offline judge as writer and critic of test sets: no measure of quality, but every step gets a usable answer."""

import json

import pytest
from helpers.each import each
from helpers.stored import fixture_data
from helpers.texts import corpus
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, OfflineJudge, PromptSet
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.docstore import Docstore

STATED = fixture_data("offline_answers.yaml")
BATH, HOUSE = STATED["texts"]["BATH"], STATED["texts"]["HOUSE"]
QUESTION = "Что известно о теме «страховая премия»?"


def passages(*texts):
    return [{"passage": number, "text": text} for number, text in enumerate(texts, start=1)]


def asked(step, /, language="auto", layout="contexts_first", **inputs):
    """What the judge answers when the step asks it as it asks any model."""
    judge = Judge(OfflineJudge(), language=language, layout=layout)
    return JudgeStep(step, judge, ANSWER_SCHEMAS[step]).invoke(inputs)[step]


# Whoever asks is known


EVOLUTIONS = {
    "evolve_reasoning": "Как «страховая премия» связано с темой «",
    "evolve_conditional": "Что изменится в теме «страховая премия», если учесть",
    "evolve_multi_context": "Что общего у тем «страховая премия» и ",
    "evolve_conversational": "а что с темой страховая премия",
    "evolve_unanswerable": "Что станет с темой «страховая премия» в 2101 году?",
}


@each("language", ["ru", "en", "zh", "auto"])
@each("layout", ["contexts_first", "instruction_first", "shared_instructions"])
def test_steps_that_read_and_answer_the_same_are_told_apart(language, layout):
    for step, begun in EVOLUTIONS.items():
        found = asked(step, language=language, layout=layout, question=QUESTION, passages=passages(BATH, HOUSE))
        assert found.question.startswith(begun)


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


def with_texts(value):
    """Return an input of a step with the stated texts in place of their names."""
    texts = [STATED["texts"].get(text, text) for text in value] if isinstance(value, list) else []
    return passages(*texts) if isinstance(value, list) else STATED["texts"].get(value, value)


@each("behaviour", STATED["answers"])
def test_every_step_of_the_writer_and_the_critic_answers_as_stated(behaviour):
    for case in STATED["answers"][behaviour]:
        inputs = {name: with_texts(value) for name, value in case["inputs"].items()}
        assert asked(case["step"], **inputs).model_dump(mode="json") == case["answer"], case["inputs"]


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


ANSWERED = [
    *("extract_keyphrases", "grade_passage", "compress_question", "answer_unaided", "write_question"),
    *("reword_question", "compare_questions", "degrade_answer", "pad_context", "review_question", "find_passages"),
    "write_answer",
]


@given(st.text(max_size=120), st.text(max_size=60), st.lists(st.text(max_size=120), max_size=3))
def test_it_answers_whatever_stands_in_a_passage_and_always_the_same(passage, text, texts):
    inputs = {"question": text, "passages": passages(*texts), "passage": passage, "keyphrase": text, "context": passage}
    inputs |= {"feedback": text, "answer": passage, "parent": passage}
    for step in [*ANSWERED, *EVOLUTIONS]:
        examples = PromptSet.default("en").get(step).examples
        given_inputs = {name: inputs[name] for name in examples[0].input}
        first = written(step, **given_inputs)
        assert first == written(step, **given_inputs)
        ANSWER_SCHEMAS[step].model_validate(first)
