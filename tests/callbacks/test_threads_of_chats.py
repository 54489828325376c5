"""Chats as a callback sees them: turns with their history, and conversations sampled as a whole or not at all."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from helpers.chains import Agent, search
from helpers.each import each
from helpers.samples import ANSWER, CONTEXTS, DOCUMENTS, joined, sequence, watched, watching, with_callback
from helpers.scripted import answering, offline_reply
from helpers.waiting import PATIENCE
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from langchain_rageval import OfflineJudge, RagEvalCallback, aspect_critique

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
