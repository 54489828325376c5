"""Asking a chain: concurrency, timeout, progress, journal and resume; what makes stored answers unusable."""

import asyncio
import sys
import threading
from concurrent.futures import Future
from textwrap import dedent
from types import SimpleNamespace

import pytest
from helpers.chains import FOUND
from helpers.munich import ANSWER, CONTEXTS
from helpers.waiting import PATIENCE
from helpers.watched import Search, Words, rag
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_rageval import ConfigError, HashingEmbeddings, answered_by
from langchain_rageval.errors import JournalError
from langchain_rageval.run.chain_fingerprint import chain_fingerprint
from langchain_rageval.run.progress import PlainProgress
from langchain_rageval.run.threads import shared_threads
from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow

QUESTIONS = ["1?", "2?", "3?"]
TESTSET = Testset([TestsetRow(id=q, question=q, contexts=[], reference="r", evolution="simple") for q in QUESTIONS])


class Chain:
    """A chain that counts its questions and fails on some of them."""

    def __init__(self, fails_on=()):
        self.asked = []
        self.fails_on = list(fails_on)

    def ask(self, question: str):
        self.asked.append(question)
        if question in self.fails_on:
            raise ConnectionError("no index")
        return {"answer": f"to {question}", "contexts": FOUND}

    async def aask(self, question: str):
        await asyncio.sleep(0)
        return self.ask(question)


def answers(samples):
    return [sample.answer for sample in samples]


# Journal


def test_the_same_call_asks_only_what_the_journal_lacks(tmp_path):
    chain, journal = Chain(fails_on=["2?"]), tmp_path / "answers.db"
    first = TESTSET.run(chain.ask, journal=journal, progress=False)
    assert answers(first) == ["to 1?", None, "to 3?"]
    assert first[1].metadata["error"] == "ConnectionError: no index"
    chain.asked.clear()
    chain.fails_on.clear()
    second = TESTSET.run(chain.ask, journal=journal, progress=False)
    assert chain.asked == ["2?"]
    assert second == TESTSET.run(chain.ask, progress=False)
    assert second[0] == first[0]
    assert (second[1].contexts, second[1].context_ids) == (CONTEXTS, ["m1", "m2"])
    assert second[1].metadata["context_sources"] == ["munich-1.md", "munich-2.md"]


async def test_answered_by_shares_the_journal_of_run_on_both_ways(tmp_path):
    chain, journal = Chain(), tmp_path / "answers.db"
    first = TESTSET.run(chain.ask, journal=journal, progress=False)
    asking = answered_by(chain.ask, journal=journal, progress=False)
    assert await asking.ainvoke(TESTSET) == asking.invoke(TESTSET) == first
    assert sorted(chain.asked) == QUESTIONS


def test_a_run_that_was_interrupted_goes_on(tmp_path):
    chain, journal = Chain(), tmp_path / "answers.db"

    def interrupted(question: str):
        if question == "3?":
            raise KeyboardInterrupt
        return chain.ask(question)

    with pytest.raises(KeyboardInterrupt):
        TESTSET.run(interrupted, journal=journal, progress=False, max_concurrency=1)
    assert chain.asked == ["1?", "2?"]
    with pytest.raises(KeyboardInterrupt):
        TESTSET.run(interrupted, journal=journal, progress=False)
    assert chain.asked == ["1?", "2?"]


def test_a_journal_that_holds_something_else_is_an_error(tmp_path):
    (tmp_path / "answers.db").write_text("no journal " * 100, encoding="utf-8")
    with pytest.raises(JournalError, match=r"answers\.db is damaged or not a journal"):
        TESTSET.run(Chain().ask, journal=tmp_path / "answers.db", progress=False)


MODULE = """
    from langchain_core.runnables import RunnableLambda

    WORDS = {"answer": "yes"}

    def chain(question):
        return WORDS["answer"]
"""


def imported(folder, monkeypatch, source, name):
    (folder / f"{name}.py").write_text(dedent(source), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop(name, None)
    return __import__(name).chain


def test_an_edit_of_the_module_of_the_chain_makes_its_answers_unusable(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    journal = tmp_path / "answers.db"
    for source, expected in ((MODULE, "yes"), (MODULE.replace("yes", "no, not"), "no, not"), (MODULE, "yes")):
        chain = imported(tmp_path, monkeypatch, source, "my_chain")
        assert answers(TESTSET.run(chain, journal=journal, progress=False)) == [expected] * 3


def lcel(words="{context} {question}", k=2, responses=("a",), embeddings=None, **options):
    store = InMemoryVectorStore(embeddings or HashingEmbeddings())
    store.add_documents(FOUND)
    found = {"context": store.as_retriever(search_kwargs={"k": k}), "question": RunnablePassthrough()}
    model = FakeListChatModel(responses=list(responses), **options)
    return found | ChatPromptTemplate([("human", words)]) | model


def fingerprint(chain, **configurable):
    return chain_fingerprint(chain, configurable)


def test_prompt_model_options_and_configurable_values_are_part_of_the_fingerprint():
    same = fingerprint(lcel())
    others = [
        fingerprint(lcel("{question} {context}")),
        fingerprint(lcel(k=1)),
        fingerprint(lcel(responses=("b",))),
        fingerprint(lcel().with_retry()),
        fingerprint(lcel().with_config(configurable={"tone": "dry"})),
        fingerprint(lcel(), tone="dry"),
        fingerprint(Search()),
    ]
    assert same == fingerprint(lcel())
    assert len({same, *others}) == 1 + len(others)


def test_what_a_chain_does_does_not_change_its_fingerprint():
    count = 0

    def ask(question):
        nonlocal count
        count += 1
        return ANSWER

    service = Chain()
    for chain, question in ((lcel(), "1?"), (RunnableLambda(ask), "1?"), (RunnableLambda(service.ask), "1?")):
        before = fingerprint(chain)
        chain.invoke(question)
        assert fingerprint(chain) == before
    assert count == len(service.asked) == 1


def test_values_that_a_function_refers_to_are_part_of_the_fingerprint_and_keys_are_not():
    def build(k, api_key="sk-1"):
        return RunnableLambda(lambda question: f"{k} {api_key}")

    assert fingerprint(build(1)) == fingerprint(build(1, "sk-2")) != fingerprint(build(2))


def test_an_agent_has_a_stable_fingerprint_that_names_its_prompt():
    from langchain.agents import create_agent
    from langchain_core.tools import create_retriever_tool

    def agent(system):
        return create_agent(Words(), [create_retriever_tool(Search(), "search", "Search.")], system_prompt=system)

    assert fingerprint(agent("Be brief.")) == fingerprint(agent("Be brief.")) != fingerprint(agent("Be long."))


# Concurrency, timeout, progress


@pytest.mark.gate
@pytest.mark.parametrize(
    "chain", ["sync", *(pytest.param(kind, marks=pytest.mark.gate) for kind in ("async", "async, on this loop"))]
)  # each waits for the whole timeout
async def test_a_question_that_takes_too_long_is_recorded_and_the_others_are_answered(chain):
    release = threading.Event()

    def hangs(question: str):
        return "late" if question == "2?" and release.wait(PATIENCE) else f"to {question}"

    async def ahangs(question: str):
        if question == "2?":
            await asyncio.sleep(PATIENCE)
        return f"to {question}"

    options = {"timeout": 2.5, "progress": False}
    try:
        if chain == "async, on this loop":
            samples = await answered_by(ahangs, **options).ainvoke(TESTSET)
        else:
            samples = TESTSET.run(hangs if chain == "sync" else ahangs, **options)
        assert answers(samples) == ["to 1?", None, "to 3?"]
        assert samples[1].metadata["error"] == "TimeoutError: the chain did not answer within 2.5 s"
    finally:
        release.set()


async def test_a_timeout_within_the_chain_keeps_its_own_message():
    def raises(question: str):
        raise TimeoutError("the index is slow")

    for sample in (
        *TESTSET.run(raises, timeout=PATIENCE, progress=False),
        *await answered_by(raises, timeout=PATIENCE, progress=False).ainvoke(TESTSET),
    ):
        assert sample.metadata["error"] == "TimeoutError: the index is slow"


async def test_an_async_chain_is_asked_from_sync_code_on_one_loop_also_within_a_loop():
    loops = set()

    async def ask(question: str):
        loops.add(asyncio.get_running_loop())
        return f"to {question}"

    assert answers(TESTSET.run(ask, progress=False)) == ["to 1?", "to 2?", "to 3?"]
    assert len(loops) == 1
    assert asyncio.get_running_loop() not in loops


def test_the_progress_counts_questions_and_failures(capsys, monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.progress._SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("langchain_rageval.run.progress._supports_live_line", lambda: False)
    TESTSET.run(Chain(fails_on=["3?"]).ask, max_concurrency=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("rageval: 1/3 questions, 0 failed")
    assert lines[-1] == "rageval: 3/3 questions, 1 failed"
    TESTSET.run(Chain().ask, progress=False)
    assert capsys.readouterr().err == ""
    assert PlainProgress(None, None, "questions").status_line() == "0 questions, 0 failed"


def test_wrong_options_are_errors_before_the_chain_is_asked():
    chain = Chain()
    with pytest.raises(TypeError) as error:
        TESTSET.run(chain.ask, max_concurency=1)
    assert str(error.value) == (
        "run() got an unexpected option 'max_concurency'; did you mean 'max_concurrency'? "
        "Its options: chain, max_concurrency, timeout, journal, progress"
    )
    with pytest.raises(ConfigError, match=r"^timeout must be a number of seconds above 0, or None, got 0$"):
        answered_by(chain.ask, timeout=0)
    with pytest.raises(ConfigError, match=r"^max_concurrency must be a whole number of at least 1, got 0$"):
        TESTSET.run(chain.ask, max_concurrency=0)
    assert chain.asked == []


def test_the_trace_of_the_caller_sees_the_chain():
    from langchain_core.callbacks import BaseCallbackHandler

    names = []

    class Names(BaseCallbackHandler):
        def on_chain_start(self, serialized, inputs, *, name=None, **_):
            names.append(name)

    outer = RunnableLambda(lambda _: TESTSET.run(rag().with_config(run_name="rag"), progress=False))
    outer.invoke(0, {"callbacks": [Names()]})
    assert names.count("rag") == 3


async def test_a_question_that_meets_a_connection_of_a_closed_loop_is_asked_again():
    errors = [RuntimeError("Event loop is closed")] * 3

    async def ask(question: str):
        if errors:
            raise errors.pop()
        return f"to {question}"

    assert answers(await answered_by(ask, progress=False).ainvoke(TESTSET)) == ["to 1?", "to 2?", "to 3?"]


def test_an_answer_that_ends_with_the_time_limit_is_an_answer(monkeypatch):
    class Late(Future):
        def result(self, timeout=None):
            found = super().result()
            if timeout is not None:
                raise TimeoutError  # at the very end of the limit
            return found

    def submit(call):
        future = Late()
        future.set_result(call())
        return future

    threads = SimpleNamespace(submit=submit, spread=shared_threads().spread)
    monkeypatch.setattr("langchain_rageval.run.answering.shared_threads", lambda: threads)
    (sample,) = answered_by(RunnableLambda(lambda _: "Да."), progress=False, timeout=60.0).invoke([{"question": "1?"}])
    assert (sample.answer, sample.metadata.get("error")) == ("Да.", None)
