"""Bare ChatOpenAI client that replays recorded requests: `bare_run.py OPTIONS`, a JSON object; see `compare.py`.

It sends the same messages and options in the order of arrival, with the same interface and number of slots. Replies
are not parsed and failed calls are not retried.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from measured import measured, read_lines

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
LOOP = asyncio.Runner()


class Bare:
    """Model, embeddings and a count of failures."""

    def __init__(self, url: str) -> None:
        address = {"base_url": url, "api_key": "sk-test", "max_retries": 0}
        self.model = ChatOpenAI(model="m", temperature=0, **address)
        self.embeddings = OpenAIEmbeddings(model="e", check_embedding_ctx_length=False, **address)
        self.failed = 0

    def run(self, requests: list[Any]) -> dict[str, int | None]:
        """Send all requests and return the counts; `unscored` is always 0, because there are no metrics."""
        if OPTIONS["door"] == "async":
            LOOP.run(self._side_by_side(requests))
        else:
            with ThreadPoolExecutor(OPTIONS["slots"]) as pool:
                list(pool.map(self._send, requests))
        return {"failed": self.failed, "unscored": None}

    def _send(self, request: Any) -> None:
        try:
            if isinstance(request, list):
                self.embeddings.embed_documents(request)
            else:
                self.model.invoke(*request[0], **request[1])
        except Exception as error:
            self._fail(error)

    async def _side_by_side(self, requests: list[Any]) -> None:
        waiting = iter(requests)
        await asyncio.gather(*(self._work(waiting) for _ in range(OPTIONS["slots"])))

    async def _work(self, waiting: Iterator[Any]) -> None:
        for request in waiting:
            try:
                if isinstance(request, list):
                    await self.embeddings.aembed_documents(request)
                else:
                    await self.model.ainvoke(*request[0], **request[1])
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failed += 1
        print(f"bare: {error!r}", file=sys.stderr)


def made(body: dict[str, Any]) -> Any:
    """Return the arguments of a chat call, or the texts to embed."""
    if "input" in body:
        return body["input"]
    system, human = (message["content"] for message in body["messages"])
    options = {"extra_body": {"response_format": body["response_format"]}, "stream": False}
    return ([SystemMessage(system), HumanMessage(human)],), {**options, "timeout": OPTIONS["timeout"]}


if __name__ == "__main__":
    REQUESTS = [made(body) for body in read_lines(OPTIONS["requests"])]
    measured(lambda: Bare(OPTIONS["warm_url"]).run(REQUESTS[:2]), lambda: Bare(OPTIONS["url"]).run(REQUESTS))
