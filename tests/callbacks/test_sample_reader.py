"""Question, answer and contexts that a callback reads from the runs of chains, graphs and agents, and from chats."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from helpers.chains import Agent, State, search
from helpers.doors import EVERY, SINGLE
from helpers.each import each
from helpers.samples import (
    ANSWER,
    CONTEXTS,
    DOCUMENTS,
    QUESTION,
    Search,
    joined,
    rag,
    sequence,
    watched,
    watching,
    with_callback,
)
from helpers.scripted import answering, offline_reply
from helpers.waiting import PATIENCE, auntil
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_rageval import OfflineJudge, RagEvalCallback, aspect_critique

BACKUP = [Document("Berlin lies on the Spree.", id="b")]


def told(rows):
    return [(row.sample.question, row.sample.answer, row.sample.contexts) for row in rows]


EXPECTED = (QUESTION, ANSWER, CONTEXTS)


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


# Chats: turns with their history, and conversations sampled as a whole or not at all


pytestmark = pytest.mark.filterwarnings("ignore:The class `InMemoryChatMessageHistory` was deprecated")

METRIC = aspect_critique(OfflineJudge(), "conciseness")


def replying(state: Any) -> dict[str, Any]:
    """Answer with the last message and the number of messages before it."""
    *earlier, last = state["messages"]
    return {"messages": [AIMessage(f"{last.text} after {len(earlier)}")]}


def chat_graph(reply: Any = replying) -> Any:
    return sequence(MessagesState, {"reply": reply}, InMemorySaver())


def by_messages(text):
    return {"messages": [("human", text)]}


@each("name", ["thread_id", "session_id", "conversation_id", "conversation"])
def test_a_thread_is_named_by_the_metadata_of_a_run_too(name):
    callback, rows = watching(METRIC)
    chain = RunnableLambda(lambda given: ANSWER)
    chain.invoke({"question": "Why?"}, with_callback(callback, metadata={name: 7}))
    chain.invoke({"question": "Why?", "chat_history": [("A?", "A.")]}, with_callback(callback, metadata={name: 7}))
    callback.close(None)
    assert [row.sample.metadata["conversation"] for row in rows] == ["7", "7"]
    found = [(row.sample.metadata.get("turn"), [turn.text for turn in row.sample.history]) for row in rows]
    assert found == [(None, []), (2, ["A?", "A."])]  # nothing shows whether the first one is turn 1


def test_a_message_with_nothing_but_an_image_is_no_question(caplog):
    callback, rows = watching(METRIC)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with callback:
        for content in ([image], [{"type": "text", "text": "What is it?"}, image]):
            config = with_callback(callback, configurable={"thread_id": "t"})
            chat_graph().invoke({"messages": [HumanMessage(content)]}, config)
    assert [row.sample.question for row in rows] == ["What is it?"]
    assert callback.stats()["failed"] == 1
    assert "the message of the user has no text that could be a question, only [image]" in caplog.text


def test_a_run_without_a_thread_has_no_conversation():
    _, rows = watched(RunnableLambda(lambda question: ANSWER), "Why?", METRIC)
    assert not {"conversation", "turn"} & rows[0].sample.metadata.keys()


def sampled_threads(seed):
    """Return the numbers of scored turns by thread, of 3 turns of 10 threads."""
    callback, rows = watching(METRIC, sample_rate=0.5, seed=seed)
    chat = chat_graph()
    for _ in range(3):
        for number in range(10):
            config = with_callback(callback, configurable={"thread_id": f"thread-{number}"})
            chat.invoke(by_messages(f"{number}?"), config)
    stats = callback.stats()
    callback.close(None)
    assert (stats["seen"], stats["sampled"]) == (30, len(rows))
    return Counter(row.sample.metadata["conversation"] for row in rows)


def test_a_thread_that_only_the_first_step_of_a_run_names_is_sampled_as_a_whole():
    callback, rows = watching(METRIC, sample_rate=0.5)
    chat, threads = chat_graph(), [f"thread-{number}" for number in range(10)]
    for thread in threads * 2:
        chat_of_thread = chat.with_config(configurable={"thread_id": thread})
        RunnableLambda(lambda text, chat=chat_of_thread: chat.invoke(by_messages(text))).invoke(
            "Why?", with_callback(callback)
        )
    callback.close(None)
    sampled = [thread for thread in threads if callback._is_sampled(UUID(int=0), thread)]
    assert 1 < len(sampled) < 10
    assert Counter(row.sample.metadata["conversation"] for row in rows) == dict.fromkeys(sampled, 2)
    assert callback.stats()["sampled"] == len(rows)


def test_sinks_get_the_turns_of_a_conversation_in_their_order():
    all_asked = threading.Event()

    def judge(messages):
        assert all_asked.wait(PATIENCE)
        return offline_reply(messages)

    callback, rows = watching(aspect_critique(answering(judge), "conciseness"), max_concurrency=4)
    chat = chat_graph()
    with callback:
        for number in range(6):
            for thread in ("anna", "boris"):
                config = with_callback(callback, configurable={"thread_id": thread})
                chat.invoke(by_messages(f"{thread} asks {number}?"), config)
        all_asked.set()
        assert callback.flush(PATIENCE)
    for thread in ("anna", "boris"):
        found = [row.sample for row in rows if row.sample.metadata["conversation"] == thread]
        assert [sample.metadata["turn"] for sample in found] == [1, 2, 3, 4, 5, 6]


def test_another_seed_samples_other_threads():
    first, other = sampled_threads(seed=0), sampled_threads(seed=1)
    assert {*first.values(), *other.values()} == {3}  # each as a whole
    assert first.keys() != other.keys()


@pytest.mark.gate
def test_every_process_samples_the_same_threads():
    program = (
        "from langchain_rageval import OfflineJudge, RagEvalCallback, aspect_critique\n"
        "one = RagEvalCallback(aspect_critique(OfflineJudge(), 'coherence'), sample_rate=0.5, seed=3)\n"
        "from uuid import UUID\n"
        "print([n for n in range(50) if one._is_sampled(UUID(int=n), f'thread-{n}')])"
    )
    outputs = {subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in "ab"}
    callback = RagEvalCallback(METRIC, sample_rate=0.5, seed=3)
    expected = [n for n in range(50) if callback._is_sampled(UUID(int=n), f"thread-{n}")]
    assert outputs == {f"{expected}\n".encode()}


async def test_all_sampled_threads_of_a_streaming_service_are_whole():
    barrier = asyncio.Barrier(8)  # each turn is open while the others are

    async def reply(state: Any) -> Any:
        await barrier.wait()
        return replying(state)

    async def visit(thread: str) -> None:
        for question, answer in said[thread]:
            shown = await client.get(f"/chat/{thread}", params={"text": question})
            assert shown.text.splitlines()[-1] == answer

    callback, rows = watching(METRIC, sample_rate=0.5)
    app, chat = FastAPI(), chat_graph(reply)

    @app.get("/chat/{thread}")
    async def talk(thread: str, text: str) -> StreamingResponse:
        async def words() -> Any:
            config: Any = {"configurable": {"thread_id": thread}, "callbacks": [callback]}
            async for state in chat.astream(by_messages(text), config, stream_mode="values"):
                yield f"{state['messages'][-1].text}\n"

        return StreamingResponse(words(), media_type="text/plain")

    said = {
        f"chat-{number}": [(f"{number} asks {n}?", f"{number} asks {n}? after {2 * n}") for n in range(3)]
        for number in range(8)
    }
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://chat") as client:
        await asyncio.gather(*map(visit, said))
    assert await asyncio.to_thread(callback.close, None)
    sampled = {thread for thread in said if callback._is_sampled(UUID(int=0), thread)}
    assert 1 < len(sampled) < 8
    found = [
        (one.metadata["conversation"], one.metadata["turn"], [turn.text for turn in one.history], one.question)
        for one in (row.sample for row in rows)
    ]
    assert sorted(found) == sorted(
        (thread, n + 1, [text for turn in said[thread][:n] for text in turn], said[thread][n][0])
        for thread in sampled
        for n in range(3)
    )


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"It rains in {city}."


def test_contexts_name_the_tool_and_the_call_that_returned_them():
    callback, rows = watching(METRIC)
    plain = [document.model_copy(update={"metadata": {}}) for document in DOCUMENTS]

    @tool(response_format="content_and_artifact")
    def look_up(query: str) -> Any:
        """Look something up."""
        return joined(plain), plain

    look_up.name = "search"
    create_agent(Agent(), [look_up]).invoke(by_messages("Why?"), with_callback(callback))
    create_agent(Agent(), [search]).invoke(by_messages("Why?"), with_callback(callback))
    callback.close(None)
    assert [row.sample.contexts for row in rows] == [CONTEXTS, CONTEXTS]
    assert [row.sample.metadata["context_sources"] for row in rows] == [
        ["search 1", "search 1"],
        ["munich-1.md", "munich-2.md"],
    ]
    assert [call["name"] for call in rows[0].sample.metadata["tool_calls"]] == ["search"]


def test_texts_of_tools_are_contexts_if_nothing_else_is():
    callback, rows = watching(METRIC)

    def reply(state: Any) -> Any:
        calls = [{"name": "weather", "args": {"city": city}, "id": f"call_{city}"} for city in ("Bonn", "Kiel")]
        results = [weather.invoke({**call, "type": "tool_call"}) for call in calls]
        return {"messages": [AIMessage("", tool_calls=calls), *results, AIMessage("It rains in both.")]}

    sequence(MessagesState, {"reply": reply}).invoke(by_messages("Does it rain?"), with_callback(callback))
    callback.close(None)
    (row,) = rows
    assert row.sample.contexts == ["It rains in Bonn.", "It rains in Kiel."]
    assert row.sample.metadata["context_sources"] == ["weather call_Bonn", "weather call_Kiel"]
    assert [call["id"] for call in row.sample.metadata["tool_calls"]] == ["call_Bonn", "call_Kiel"]


def test_a_trace_read_by_the_user_has_the_conversation_too():
    chat = chat_graph().with_config(configurable={"thread_id": "t9"})
    _, rows = watched(chat, by_messages("Why?"), METRIC, extract=lambda run: {"question": "Why?", "answer": "So."})
    assert rows[0].sample.metadata["conversation"] == "t9"
