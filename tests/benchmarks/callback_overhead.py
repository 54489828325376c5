"""What the callback adds to a chain call, not sampled and sampled, beside the same chain without it in the same run.

    python tests/benchmarks/callback_overhead.py --calls 2000

The chain is retriever, prompt, model and parser, all local, over five chunks of Russian text. Its variants take turns
call by call, in an order that chance decides, so that a busy machine is busy for all of them. What is added is the
difference of medians to the chain without a callback, which is there twice: the second one shows the noise. An empty
handler shows LangChain's own share. The judge of sampled runs waits, as one behind a network does. p99 is of single
calls, the noise of the machine included.
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
    """Five chunks of about a thousand characters."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document(CHUNK * 10, id=str(number)) for number in range(5)]


def chain() -> Runnable[Any, Any]:
    """A usual one."""
    joined = RunnableLambda(lambda documents: "\n".join(document.page_content for document in documents))
    prompt = ChatPromptTemplate([("system", "Ответь по контексту: {context}"), ("human", "{question}")])
    found = {"context": Search() | joined, "question": RunnablePassthrough()}
    return found | prompt | FakeListChatModel(responses=[ANSWER * 5]) | StrOutputParser()


def waiting(_: Any) -> AIMessage:
    """A judge that takes a while and no CPU."""
    time.sleep(0.2)
    return AIMessage('{"statements": []}')


class Empty(BaseCallbackHandler):
    """What LangChain takes to tell any handler of a chain's events."""

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


async def timed(rag: Runnable[Any, Any], door: str, config: Any) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    if door == "invoke":
        rag.invoke("Как застраховать баню?", config)
    else:
        await rag.ainvoke("Как застраховать баню?", config)
    return (time.perf_counter() - started) * 1000


async def measured(door: str, calls: int) -> dict[str, list[float]]:
    """Times of every variant, taken in turns."""
    rag = chain()
    callbacks = {name: make() for name, make in VARIANTS.items()}
    configs = {name: {"callbacks": [callback] if callback else []} for name, callback in callbacks.items()}
    for config in configs.values():
        for _ in range(20):
            await timed(rag, door, config)
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
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
    """A table for each door."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    for door in ("invoke", "ainvoke"):
        times = asyncio.run(measured(door, options.calls))
        base = statistics.median(times["without"])
        print(f"{door}, {options.calls} calls each, taking turns; milliseconds")
        for name, taken in times.items():
            median, last = statistics.median(taken), statistics.quantiles(taken, n=100)[98]
            print(f"  {name:22} median {median:7.3f}  p99 {last:7.3f}  added {median - base:+7.3f}")


if __name__ == "__main__":
    main()
