"""An OpenAI-compatible endpoint, as vLLM serves it: `/v1/chat/completions` and `/v1/embeddings`."""

from array import array
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from helpers.servers.chat import Brain, ChatRequest, ChatServer, Format
from helpers.servers.embedder import Vectors
from helpers.servers.faults import Answer


class OpenAIServer(ChatServer):
    """Server for `ChatOpenAI(base_url=server.url + "/v1", api_key="sk-test", model="m")`; see `ChatServer`.

    A forced tool call has any JSON answer, valid or not, as its arguments; a verbatim text is sent as content.

    Args:
        build: build of llama.cpp's server, which it sends as the fingerprint of the system; None for another server.
        number: function from the number of a call to the id of its reply.
    """

    def __init__(
        self,
        reply: Brain,
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
