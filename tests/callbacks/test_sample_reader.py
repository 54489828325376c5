"""Question, answer and contexts that a callback reads from the runs of chains, graphs and agents."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict
from uuid import UUID, uuid4

import pytest
from helpers.doors import EVERY, SINGLE
from helpers.each import each
from helpers.samples import ANSWER, CONTEXTS, DOCUMENTS, QUESTION, Search, rag, sequence, watched, watching
from helpers.waiting import PATIENCE, auntil
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

BACKUP = [Document("Berlin lies on the Spree.", id="b")]


def told(rows):
    return [(row.sample.question, row.sample.answer, row.sample.contexts) for row in rows]


EXPECTED = (QUESTION, ANSWER, CONTEXTS)


class State(TypedDict, total=False):
    question: str
    context: list[Document]
    answer: str


def found_by_search(state: State) -> State:
    return {"context": Search().invoke(state["question"])}


GRAPH = sequence(State, {"retrieve": found_by_search, "answer": lambda state: {"answer": ANSWER}})


def store_search(_: Any) -> list[Document]:
    """As `similarity_search` of a vector store: there is no event of a retriever."""
    return DOCUMENTS


class Answer(BaseModel):
    answer: str
    context: list[str]


class Merged(Search):
    """A retriever that asks another one, whose documents it does not return."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        Search(documents=BACKUP).invoke(query, {"callbacks": run_manager.get_child()})
        return list(self.documents)


MANY = [*BACKUP, *DOCUMENTS]


CHAINS = {
    "a retriever's run": (rag(), QUESTION),
    "a retriever called inside a function": (
        RunnableLambda(lambda question: Search().invoke(question) and ANSWER),
        QUESTION,
    ),
    "documents in the output": (
        RunnableLambda(lambda given: {**given, "context": store_search(given), "answer": ANSWER}),
        {"input": QUESTION},
    ),
    "documents in the input": (RunnableLambda(lambda _: ANSWER), {"question": QUESTION, "context": DOCUMENTS}),
    "documents that a function hands to a step": (
        RunnableLambda(lambda question: RunnableLambda(repr).invoke(store_search(question)) and ANSWER),
        QUESTION,
    ),
    "assigned, with a message for an answer": (
        RunnablePassthrough.assign(context=store_search)
        | RunnablePassthrough.assign(answer=lambda _: AIMessage(ANSWER)),
        {"question": QUESTION},
    ),
    "a model of pydantic's": (RunnableLambda(lambda _: Answer(answer=ANSWER, context=CONTEXTS)), QUESTION),
    "a history beside the question": (
        RunnableLambda(lambda given: Search().invoke(given["input"]) and AIMessage(ANSWER)),
        {"input": QUESTION, "chat_history": [HumanMessage("Hello"), AIMessage("Hello!")]},
    ),
    "a graph": (GRAPH, {"question": QUESTION}),
    "a retriever within a retriever": (rag(Merged()), QUESTION),
    "documents that were filtered after a search": (
        RunnableLambda(lambda _: MANY) | RunnableLambda(lambda found: found[1:]) | RunnableLambda(lambda _: ANSWER),
        QUESTION,
    ),
}


@pytest.mark.parametrize("door", EVERY)
@each("name", CHAINS)
async def test_question_answer_and_contexts_are_found_whatever_the_chain_and_the_door(name, door):
    chain, given = CHAINS[name]
    callback, rows = watching()
    with callback:
        await door(chain, given, {"callbacks": [callback]})
        assert callback.flush(PATIENCE)
    assert told(rows) == [EXPECTED]
    assert rows[0].scores["faithfulness"].value == 0.5
    assert callback.stats()["running"] == 0


def test_the_run_is_named_in_the_metadata_as_the_users_config_has_it():
    metadata = {"customer": "k-17", "run_id": "forged"}
    _, (row,) = watched(rag().with_config(run_name="bot", tags=["live"], metadata=metadata))
    assert row.sample.id == row.sample.metadata["run_id"] == str(UUID(row.sample.id))
    assert row.sample.metadata["seconds"] > 0
    kept = {name: row.sample.metadata[name] for name in ("run_name", "tags", "customer")}
    assert kept == {"run_name": "bot", "tags": ["live"], "customer": "k-17"}


def test_two_retrievers_give_their_documents_in_the_order_in_which_they_were_asked():
    chain = RunnableLambda(lambda q: Search(documents=BACKUP).invoke(q) and Search().invoke(q) and ANSWER)
    _, rows = watched(chain)
    assert rows[0].sample.contexts == [BACKUP[0].page_content, *CONTEXTS]
    assert rows[0].sample.context_ids is None  # not all have one


def test_a_retriever_that_found_nothing_gives_empty_contexts_and_a_failed_one_is_ignored():
    class Broken(Search):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            raise TimeoutError("no")

    callback, rows = watching()
    with callback:
        rag(Search(documents=[])).invoke(QUESTION, {"callbacks": [callback]})
        rag(Broken().with_fallbacks([Search()])).invoke(QUESTION, {"callbacks": [callback]})
    assert [row.sample.contexts for row in rows] == [[], CONTEXTS]


def test_only_the_root_of_nested_chains_is_scored():
    inner = rag()
    outer = RunnableLambda(lambda question: inner.invoke(question)) | RunnablePassthrough()
    callback, rows = watching()
    with callback:
        outer.with_config(callbacks=[callback]).invoke(QUESTION, {"callbacks": [callback]})  # given twice, too
    assert told(rows) == [EXPECTED]
    assert callback.stats()["seen"] == 1


async def test_a_chain_with_callbacks_of_its_own_within_a_watched_one_is_no_root():
    callback, rows = watching()
    inner = rag().with_config(callbacks=[callback])  # LangChain tells no parent of it
    outer = RunnableLambda(lambda question: inner.invoke(question), inner.ainvoke)
    with callback:
        outer.invoke(QUESTION, {"callbacks": [callback]})
        await outer.ainvoke(QUESTION, {"callbacks": [callback]})
    assert told(rows) == [EXPECTED] * 2
    assert callback.stats()["seen"] == 2


@pytest.mark.parametrize("sampled", [0.0, 1.0])
def test_the_part_of_a_chain_that_the_callback_was_given_to_is_a_root_of_its_own(sampled):
    callback, rows = watching(sample_rate=sampled)
    part = rag().with_config(callbacks=[callback])
    with callback:
        (RunnableLambda(lambda given: given["q"]) | part | RunnableLambda(str.upper)).invoke({"q": QUESTION})
    assert told(rows) == ([EXPECTED] if sampled else [])
    assert callback.stats()["seen"] == 1


def test_a_graph_that_waits_for_a_person_is_scored_when_it_has_answered():
    nodes = {"search": found_by_search, "answer": lambda _: {"answer": interrupt("May I?")}}
    app = sequence(State, nodes, InMemorySaver())
    callback, rows = watching()
    config = {"callbacks": [callback], "configurable": {"thread_id": "t"}}
    with callback:
        app.invoke({"question": QUESTION}, config)
        app.invoke(Command(resume=ANSWER), config)
    assert told(rows)[-1] == EXPECTED


async def test_runs_side_by_side_keep_their_own_documents():
    def chain(number: int) -> Runnable[Any, Any]:
        return rag(Search(documents=[Document(f"Town {number} is old.")]))

    callback, rows = watching(max_concurrency=8)
    config = {"callbacks": [callback]}
    with callback:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: chain(number).invoke(f"q{number}", config), range(20)))
        await asyncio.gather(*(chain(number).ainvoke(f"q{number}", config) for number in range(20, 40)))
        assert callback.flush(PATIENCE)
    assert {(row.sample.question, *row.sample.contexts) for row in rows} == {
        (f"q{number}", f"Town {number} is old.") for number in range(40)
    }


# Runs that do not end well


@pytest.mark.parametrize("door", SINGLE)
async def test_a_chain_that_raises_is_counted_and_not_scored(door):
    callback, rows = watching()
    with callback, pytest.raises(ZeroDivisionError):
        await door(rag() | RunnableLambda(lambda _: 1 / 0), QUESTION, {"callbacks": [callback]})
    stats = callback.stats()
    assert (rows, stats["sampled"], stats["failed"], stats["broken_off"], stats["running"]) == ([], 1, 1, 1, 0)


@each(("chain", "given", "chunks"), [(rag(), QUESTION, 1), (rag(), QUESTION, 3), (GRAPH, {"question": QUESTION}, 1)])
async def test_a_stream_that_is_left_half_way_is_not_scored(chain, given, chunks):
    callback, rows = watching()
    config = {"callbacks": [callback]}
    with callback:
        left, aleft = chain.stream(given, config), chain.astream(given, config)
        for _ in range(chunks):
            next(left)
            await anext(aleft)
        left.close()
        await aleft.aclose()
        forgotten = chain.stream(given, config)
        next(forgotten)
        del forgotten
        gc.collect()
        await auntil(lambda: not callback.stats()["running"])  # the loop closes what is within the stream later
    stats = callback.stats()
    assert (rows, stats["sampled"], stats["broken_off"], stats["running"]) == ([], 3, 3, 0)


async def test_a_cancelled_task_is_not_scored_and_what_its_thread_still_does_is_no_new_run():
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(question: str) -> str:
        begun.set()
        go_on.wait(PATIENCE)
        late = (RunnableLambda(lambda _: "late") | RunnablePassthrough()).invoke(question)
        done.set()
        return late

    callback, rows = watching()
    with callback:
        task = asyncio.create_task((rag() | RunnableLambda(slow)).ainvoke(QUESTION, {"callbacks": [callback]}))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await auntil(done.is_set)
    stats = callback.stats()
    assert (rows, stats["seen"], stats["broken_off"], stats["running"]) == ([], 1, 1, 0)


def test_runs_that_never_end_are_dropped_when_too_many_are_open(monkeypatch):
    monkeypatch.setattr("langchain_rageval.chains.run_trees._MAX_OPEN", 50)
    callback, rows = watching()
    with callback:
        for _ in range(60):
            callback.on_chain_start({}, {"input": QUESTION}, run_id=uuid4())
        rag().invoke(QUESTION, {"callbacks": [callback]})
    stats = callback.stats()
    assert len(callback._open) <= 50
    assert told(rows) == [EXPECTED]
    assert stats["sampled"] == 61 == stats["running"] + stats["dropped"] + stats["scored"]
