"""GigaChat's own API: `/oauth`, `/chat/completions`, `/embeddings`, `/tokens/count`."""

import time
from collections.abc import Callable
from typing import Any

from helpers.servers.chat import Brain, ChatRequest, ChatServer, Format
from helpers.servers.embedder import Vectors
from helpers.servers.faults import Answer
from helpers.servers.loopback import Received, Refused, Response

TOKEN = "loopback-token"


class GigaChatServer(ChatServer):
    """Server for `GigaChat(base_url=server.url, auth_url=server.url + "/oauth", credentials=…)`; see `ChatServer`.

    `arguments` of a function call are a JSON value in this API, so an answer that is not JSON is sent as content. A
    request without the bearer token, except to `/oauth`, gets 401 and is not counted as a call.
    """

    def __init__(self, reply: Brain, **options: Any):
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
