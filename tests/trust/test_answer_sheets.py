"""answer_sheets: what chains and models are given, what becomes of their answers, and of those that fail."""

import logging
import threading

import pytest
from helpers.each import each
from helpers.scripted import answering, scripted
from helpers.waiting import PATIENCE
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.runnables.base import coerce_to_runnable

from langchain_rageval import ConfigError, OfflineJudge, Sample, SampleError, answer_sheets, evaluate, rubric

QUESTION = "Когда основан Мюнхен?"
SAMPLES = [
    Sample(id="a", question=QUESTION, contexts=["В 1158 году.", "На Изаре."], answer="old", references=["В 1158."]),
    Sample(id="b", question="When was Berlin founded?", contexts=[], metadata={"split": "test"}),
]
RETURN = "return a text, a message, Documents, or a mapping with an answer"
ECHO = RunnableLambda(lambda asked: f"Ответ: {asked['question']}")


def test_every_model_answers_every_question_under_its_own_name():
    sheets = answer_sheets({"one": ECHO, "two": RunnableLambda(lambda _: AIMessage("Yes."))}, SAMPLES)
    assert [(s.id, s.metadata["model"], s.answer) for s in sheets] == [
        ("a@one", "one", f"Ответ: {QUESTION}"),
        ("b@one", "one", "Ответ: When was Berlin founded?"),
        ("a@two", "two", "Yes."),
        ("b@two", "two", "Yes."),
    ]
    for sheet, sample in zip(sheets, SAMPLES * 2, strict=True):
        assert (sheet.contexts, sheet.references) == (sample.contexts, sample.references)
        assert sheet.metadata.items() >= sample.metadata.items()


def test_a_chain_is_given_question_and_contexts_in_the_usual_names():
    given = []
    answer_sheets({"m": RunnableLambda(lambda asked: given.append(asked) or "A.")}, SAMPLES[:1])
    assert given == [
        {
            "question": QUESTION,
            "input": QUESTION,
            "contexts": ["В 1158 году.", "На Изаре."],
            "context": "В 1158 году.\n\nНа Изаре.",
        }
    ]


def test_a_prompt_over_a_model_is_a_chain_and_has_its_own_words():
    model = scripted(AIMessage("В 1158."))
    chain = ChatPromptTemplate.from_template("{context}\n---\n{question}") | model
    (sheet,) = answer_sheets({"m": chain}, SAMPLES[:1])
    assert sheet.answer == "В 1158."
    assert model.asked[0][0].text == f"В 1158 году.\n\nНа Изаре.\n---\n{QUESTION}"


def test_a_chain_that_takes_a_text_is_given_the_question():
    def ask(question: str) -> str:
        return question.upper()

    sheets = answer_sheets({"m": RunnableLambda(ask)}, SAMPLES[:1])
    assert sheets[0].answer == QUESTION.upper()


@each(
    "wrapped",
    [
        lambda m: m,
        lambda m: m.with_retry(),
        lambda m: m.bind(stop=["x"]),
        lambda m: m.with_fallbacks([m]),
        lambda m: m | StrOutputParser(),
        lambda m: m.bind(stop=["x"]) | StrOutputParser() | str.strip,
    ],
)
def test_a_bare_model_is_instructed_to_answer_from_the_contexts_in_the_language_of_the_question(wrapped):
    model = answering(lambda _: AIMessage("A."))
    first, second = answer_sheets({"m": wrapped(model)}, SAMPLES, max_concurrency=1)
    assert (first.answer, second.answer) == ("A.", "A.")
    (system, human), (english, _) = model.asked
    assert system.text.startswith("Ответь на вопрос только по контекстам")
    assert human.text == f"Контексты:\n[1] В 1158 году.\n\n[2] На Изаре.\n\nВопрос: {QUESTION}"
    assert english.text.startswith("Answer the question by the contexts alone")


def test_a_bare_model_without_contexts_is_asked_the_question_alone():
    model = scripted(AIMessage("A."))
    answer_sheets({"m": model}, [{"question": QUESTION}])
    assert [message.text for message in model.asked[0]] == ["Ответь на вопрос, на его языке.", f"Вопрос: {QUESTION}"]


@each(
    ("answering", "contexts", "ids"),
    [
        (lambda _: {"answer": "A.", "context": [Document("Own.")]}, ["Own."], None),
        (lambda _: {"answer": "A."}, SAMPLES[0].contexts, ["d1", "d2"]),
        (lambda _: "A.", SAMPLES[0].contexts, ["d1", "d2"]),
        (RunnablePassthrough.assign(answer=lambda _: "A."), SAMPLES[0].contexts, ["d1", "d2"]),
    ],
)
def test_contexts_that_a_chain_gives_replace_those_of_the_sample_with_their_ids(answering, contexts, ids):
    sample = SAMPLES[0].model_copy(update={"context_ids": ["d1", "d2"]})
    (sheet,) = answer_sheets({"m": coerce_to_runnable(answering)}, [sample])
    assert (sheet.answer, sheet.contexts, sheet.context_ids) == ("A.", contexts, ids)


def test_a_failing_call_is_reported_and_does_not_affect_the_others(caplog):
    def ask(asked):
        if "Berlin" in asked["question"]:
            raise TimeoutError("too slow")
        return "A."

    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        sheets = answer_sheets({"good": ECHO, "bad": RunnableLambda(ask)}, SAMPLES)
    assert [sheet.answer is None for sheet in sheets] == [False, False, False, True]
    assert sheets[3].metadata == {"split": "test", "model": "bad", "error": "TimeoutError: too slow"}
    assert caplog.messages == ["1 of 4 answers failed; the first, b@bad: TimeoutError: too slow"]

    report = evaluate(iter(sheets), rubric(OfflineJudge()), progress=False)
    assert [row.sample.id for row, _ in report.failures()] == ["b@bad"]


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ({"contexts": ["A."]}, "the chain returned no answer"),
        ({}, f"SampleError: the chain returned no answer in []: {RETURN}"),
        (3, f"TypeError: the chain returned int: {RETURN}"),
    ],
)
def test_a_chain_without_an_answer_has_failed(output, problem, caplog):
    (sheet,) = answer_sheets({"m": RunnableLambda(lambda _: output)}, SAMPLES[:1])
    assert (SAMPLES[0].answer, sheet.answer) == ("old", None)
    assert caplog.messages == [f"1 of 1 answers failed; the first, {sheet.id}: {problem}"]


def test_a_key_in_the_error_of_a_model_is_redacted(caplog, monkeypatch):
    from langchain_openai import ChatOpenAI

    def refuse(*_, **__):
        raise PermissionError("wrong key sk-very-secret")

    monkeypatch.setattr(ChatOpenAI, "_generate", refuse)
    (sheet,) = answer_sheets({"m": ChatOpenAI(model="m", api_key="sk-very-secret")}, SAMPLES[:1])
    assert sheet.metadata["error"] == "PermissionError: wrong key ***"
    assert "secret" not in caplog.text


async def test_chains_run_in_a_limited_number_of_threads_inside_an_event_loop():
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2, timeout=PATIENCE)

    def ask(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return "A."

    sheets = answer_sheets({"one": RunnableLambda(ask), "two": RunnableLambda(ask)}, SAMPLES, max_concurrency=2)
    assert {sheet.answer for sheet in sheets} == {"A."}
    assert most == 2


def test_samples_may_come_from_a_file(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"question": "Q?", "context": "C."}\n', encoding="utf-8")
    (sheet,) = answer_sheets({"m": ECHO}, path)
    assert (sheet.answer, sheet.contexts) == ("Ответ: Q?", ["C."])
    path.write_text('{"question": "Q?"}\n{"queston": "Q?"}\n', encoding="utf-8")
    with pytest.raises(SampleError, match="lacks a question"):
        answer_sheets({"m": ECHO}, path)


@each(
    ("models", "samples", "most", "told"),
    [
        ({}, SAMPLES, 8, "models must be a mapping"),
        ([ECHO], SAMPLES, 8, "models must be a mapping"),
        ({"m": str}, SAMPLES, 8, "models must map names to chains or chat models, got 'm': type"),
        ({" ": ECHO}, SAMPLES, 8, "models must map names"),
        ({"m": ECHO}, SAMPLES[0], 8, "samples must be a collection"),
        *(({"m": ECHO}, SAMPLES, most, "max_concurrency must be a whole number of at least 1") for most in (0, 1.5)),
    ],
)
def test_invalid_arguments_raise(models, samples, most, told):
    with pytest.raises(ConfigError, match=told):
        answer_sheets(models, samples, max_concurrency=most)
