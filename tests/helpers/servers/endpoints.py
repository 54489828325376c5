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

    def wanted(self, body: dict[str, Any]) -> Format:
        response_format = body.get("response_format") or {}
        if response_format.get("type") == "json_schema":
            wanted = response_format["json_schema"]
            return Format("json_schema", wanted["name"], wanted["schema"])
        if response_format.get("type") == "json_object":
            return Format("json_mode")
        if body.get("tools") and body.get("tool_choice") not in (None, "auto", "none"):
            function = body["tools"][0]["function"]
            return Format("function_calling", function["name"], function["parameters"])
        return Format("prompt")

    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if request.rung == "function_calling" and not answer.plain:
            function = {"name": request.schema_title, "arguments": answer.text}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {
            "id": self.number(number),
            "system_fingerprint": self.build,
            "object": "chat.completion",
            "created": 0,
            "model": request.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason or "stop"}],
            "usage": self.usage(request, answer),
        }

    def embedding(self, body: dict[str, Any], texts: list[str], vectors: Vectors) -> dict[str, Any]:
        encode = _base64 if body.get("encoding_format") == "base64" else list
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
        ]
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

    def wanted(self, body: dict[str, Any]) -> Format:
        response_format = body.get("response_format") or {}
        if response_format.get("type") == "json_schema":
            schema = response_format["schema"]
            return Format("json_schema", schema.get("title"), schema)
        if response_format.get("type") == "json_object":
            return Format("json_mode")
        call = body.get("function_call")
        if isinstance(call, dict):
            function = next(function for function in body["functions"] if function["name"] == call["name"])
            return Format("function_calling", function["name"], function["parameters"])
        return Format("prompt")

    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        finish_reason = "stop"
        if request.rung == "function_calling" and answer.value is not None:
            call = {"name": request.schema_title, "arguments": answer.value}
            message = {"role": "assistant", "content": "", "function_call": call}
            finish_reason = "function_call"
        return {
            "object": "chat.completion",
            "created": 0,
            "model": request.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason or finish_reason}],
            "usage": self.usage(request, answer),
        }

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
