"""Endpoints of OpenAI, as vLLM serves them, also streaming, and of GigaChat."""

import json
import time
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from helpers.servers.chat import Answer, ChatRequest, ChatServer, Format, Reply, Vectors
from helpers.servers.loopback import Received, Refused, Response


class OpenAIServer(ChatServer):
    """Server for `ChatOpenAI(base_url=server.url + "/v1", api_key="sk-test", model="m")`; see `ChatServer`.

    A forced tool call has any JSON answer, valid or not, as its arguments; a verbatim text is sent as content.

    Args:
        build: build of llama.cpp's server, which it sends as the fingerprint of the system; None for another server.
        number: function from the number of a call to the id of its reply.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        build: str | None = None,
        number: Callable[[int], str] = "chatcmpl-{}".format,
        **options: Any,
    ):
        super().__init__(reply, **options)
        self.build = build
        self.number = number
        self.routes = {"/v1/chat/completions": self.chat, "/v1/embeddings": self.embed}

    def schema(self, response_format: dict[str, Any]) -> Format:
        wanted = response_format["json_schema"]
        return Format("json_schema", wanted["name"], wanted["schema"])

    def function(self, body: dict[str, Any]) -> dict[str, Any] | None:
        is_forced = body.get("tools") and body.get("tool_choice") not in (None, "auto", "none")
        return body["tools"][0]["function"] if is_forced else None

    def message(self, request: ChatRequest, answer: Answer, number: int) -> tuple[dict[str, Any], str]:
        if request.rung != "function_calling" or answer.plain:
            return {"role": "assistant", "content": answer.text}, "stop"
        function = {"name": request.schema_title, "arguments": answer.text}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "stop"

    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        own = {"id": self.number(number), "system_fingerprint": self.build}
        return own | super().completion(request, answer, number)

    def embedding(self, body: dict[str, Any], texts: list[str], vectors: Vectors) -> dict[str, Any]:
        encode = _base64 if body.get("encoding_format") == "base64" else list
        data = [{"object": "embedding", "index": n, "embedding": encode(vector)} for n, vector in enumerate(vectors)]
        tokens = sum(map(len, texts)) // 4
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def error_body(self, status: int, message: str) -> object:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _base64(numbers: list[float]) -> str:
    return b64encode(array("f", numbers).tobytes()).decode()


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


TOKEN = "loopback-token"


class GigaChatServer(ChatServer):
    """Server for `GigaChat(base_url=server.url, auth_url=server.url + "/oauth", credentials=…)`; see `ChatServer`.

    `arguments` of a function call are a JSON value in this API, so an answer that is not JSON is sent as content. A
    request without the bearer token, except to `/oauth`, gets 401 and is not counted as a call.
    """

    def __init__(self, reply: Reply, **options: Any):
        super().__init__(reply, **options)
        self.routes = {
            "/oauth": self.oauth,
            "/chat/completions": self._authorized(self.chat),
            "/embeddings": self._authorized(self.embed),
            "/tokens/count": self._authorized(self.count_tokens),
        }

    def schema(self, response_format: dict[str, Any]) -> Format:
        schema = response_format["schema"]
        return Format("json_schema", schema.get("title"), schema)

    def function(self, body: dict[str, Any]) -> dict[str, Any] | None:
        call = body.get("function_call")
        if not isinstance(call, dict):
            return None
        return next(function for function in body["functions"] if function["name"] == call["name"])

    def message(self, request: ChatRequest, answer: Answer, number: int) -> tuple[dict[str, Any], str]:
        if request.rung != "function_calling" or answer.value is None:
            return {"role": "assistant", "content": answer.text}, "stop"
        call = {"name": request.schema_title, "arguments": answer.value}
        return {"role": "assistant", "content": "", "function_call": call}, "function_call"

    def oauth(self, received: Received) -> Response:
        if not received.headers.get("authorization", "").startswith("Basic "):
            raise Refused(401, "Authorization error: header is incorrect")
        if not received.body.get("scope"):
            raise Refused(400, "scope is empty")
        return Response.json({"access_token": TOKEN, "expires_at": int((time.time() + 1800) * 1000)})

    def embedding(self, body: dict[str, Any], texts: list[str], vectors: Vectors) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": vector, "usage": {"prompt_tokens": len(text) // 4}}
            for index, (text, vector) in enumerate(zip(texts, vectors, strict=False))
        ]
        return {"object": "list", "data": data, "model": body["model"]}

    def count_tokens(self, received: Received) -> Response:
        counts = [
            {"object": "tokens", "tokens": len(text) // 4, "characters": len(text)} for text in received.body["input"]
        ]
        return Response.json(counts)

    def _authorized(self, route: Callable[[Received], Response]) -> Callable[[Received], Response]:
        def guarded(received: Received) -> Response:
            if received.headers.get("authorization") != f"Bearer {TOKEN}":
                self.count(self.refused, "unauthorized")
                raise Refused(401, "Token has expired")
            return route(received)

        return guarded
