"""OpenAI-compatible server that streams word by word on request."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from helpers.servers.loopback import Received, Response
from helpers.servers.openai_server import OpenAIServer


class StreamingServer(OpenAIServer):
    """Like `OpenAIServer`; a request with `stream` is answered by server-sent events."""

    def chat(self, received: Received) -> Response:
        response = super().chat(replace(received, body={**received.body, "stream": False}))
        if not received.body.get("stream") or response.status != 200:
            return response
        lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(json.loads(response.content)))
        return Response(200, f"{lines}data: [DONE]\n\n".encode(), "text/event-stream")


def chunks(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a completion in chunks, the last of which contains the finish reason."""
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    text = completion["choices"][0]["message"]["content"]
    for word in text.split(" "):
        yield head | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": word + " "}}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
