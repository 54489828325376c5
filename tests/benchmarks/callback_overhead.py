"""Overhead of the callback per chain call, sampled and not sampled, relative to the chain without it in the same run.

    python tests/benchmarks/callback_overhead.py --calls 2000

The chain is retriever, prompt, model and parser, all local, over five chunks of Russian text: of a thousand characters,
then, in fewer calls, of 1.2 million. The variants alternate call by call in random order, so that load on the machine
affects all of them. The overhead is the difference of medians to the chain without a callback, which is measured twice:
the second one shows the noise. CPU is that of the chain's thread. An empty handler shows LangChain's own part. The
judge of sampled runs waits, like one behind a network. p99 is of single calls, including the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from langchain_rageval import OfflineJudge, RagEvalCallback, faithfulness

CHUNK = "Баню страхуют вместе с домом, отдельный полис на неё не выдают. Взнос платят раз в год, до первого марта. "
ANSWER = "Баню страхуют только вместе с домом. Взнос платят раз в год. Слона застраховать нельзя. "


class Search(BaseRetriever):
    """Return five chunks."""

    texts: list[str]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document(text, id=str(number)) for number, text in enumerate(self.texts)]


def chain(characters: int) -> Runnable[Any, Any]:
    """Return a typical chain: retriever, prompt, model, parser."""
    texts = [f"{number}. {CHUNK * (characters // len(CHUNK))}" for number in range(5)]
    joined = RunnableLambda(lambda documents: "\n".join(document.page_content for document in documents))
    prompt = ChatPromptTemplate([("system", "Ответь по контексту: {context}"), ("human", "{question}")])
    found = {"context": Search(texts=texts) | joined, "question": RunnablePassthrough()}
    return found | prompt | FakeListChatModel(responses=[ANSWER * 5]) | StrOutputParser()


def waiting(_: Any) -> AIMessage:
    """Return a judge that waits without using CPU."""
    time.sleep(0.2)
    return AIMessage('{"statements": []}')


class Empty(BaseCallbackHandler):
    """Empty handler: measures what LangChain itself needs to dispatch the events of a chain."""

    run_inline = True
    ignore_llm = ignore_chat_model = ignore_retry = ignore_custom_event = True


VARIANTS: dict[str, Callable[[], BaseCallbackHandler | None]] = {
    "without": lambda: None,
    "without again": lambda: None,
    "empty handler": Empty,
    "not sampled": lambda: RagEvalCallback(faithfulness(OfflineJudge()), 0.0),
    "sampled, judge waits": lambda: RagEvalCallback(faithfulness(RunnableLambda(waiting)), 1.0, max_pending=10**6),
    "sampled, queue full": lambda: RagEvalCallback(faithfulness(RunnableLambda(waiting)), 1.0, max_pending=1),
}


async def timed(rag: Runnable[Any, Any], door: str, config: Any) -> tuple[float, float]:
    """Return the milliseconds of one call, and those of CPU in this thread."""
    started, cpu = time.perf_counter(), time.thread_time()
    if door == "invoke":
        rag.invoke("Как застраховать баню?", config)
    else:
        await rag.ainvoke("Как застраховать баню?", config)
    return (time.perf_counter() - started) * 1000, (time.thread_time() - cpu) * 1000


async def measured(door: str, calls: int, characters: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of every variant, measured in random order call by call."""
    rag = chain(characters)
    callbacks = {name: make() for name, make in VARIANTS.items()}
    configs = {name: {"callbacks": [callback] if callback else []} for name, callback in callbacks.items()}
    for config in configs.values():
        for _ in range(min(20, calls)):
            await timed(rag, door, config)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    turns, order = list(configs.items()), random.Random(7)
    for _ in range(calls):
        order.shuffle(turns)
        for name, config in turns:
            times[name].append(await timed(rag, door, config))
    for callback in callbacks.values():
        if isinstance(callback, RagEvalCallback):
            callback.close(0)
    return times


def main() -> None:
    """Print a table for the sync and the async interface."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    for door in ("invoke", "ainvoke"):
        for characters, calls in ((1000, options.calls), (1_200_000, max(10, options.calls // 50))):
            times = asyncio.run(measured(door, calls, characters))
            walls, cpus = ({name: [one[kind] for one in taken] for name, taken in times.items()} for kind in (0, 1))
            base, cpu_base = statistics.median(walls["without"]), statistics.median(cpus["without"])
            print(f"{door}, 5 chunks of {characters:,} characters, {calls} calls each, taking turns; milliseconds")
            for name in VARIANTS:
                median, p99 = statistics.median(walls[name]), statistics.quantiles(walls[name], n=100)[98]
                cpu = statistics.median(cpus[name]) - cpu_base
                print(f"  {name:22} median {median:8.3f}  p99 {p99:8.3f}  added {median - base:+7.3f}  CPU {cpu:+7.3f}")


if __name__ == "__main__":
    main()
