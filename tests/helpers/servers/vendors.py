"""Server with the APIs of several vendors, which answers as OfflineJudge does."""

import json
import re
from typing import Any

from helpers.servers.loopback import Loopback, Received, Refused, Response

from langchain_rageval.models.offline_judge import answer_offline

_SCHEMA_IN_PROMPT = re.compile(r'^\{.*"title": "(\w+)"', re.MULTILINE)
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


class VendorServer(Loopback):
    """Serves OpenAI (chat and responses), Anthropic, Gemini and Ollama below one address.

    Args:
        refused: rungs that are answered with status 400.

    Attributes:
        rungs: the rung of each answered request, in order.
    """

    def __init__(self, refused: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.refused_rungs = refused
        self.rungs: list[str] = []
        self.dialects = {"/chat/completions": self.openai, "/responses": self.responses, "/messages": self.anthropic}
        self.dialects |= {"/api/chat": self.ollama, "enerateContent": self.gemini}

    def respond(self, received: Received) -> Response:
        path = received.path.partition("?")[0]
        with self._lock:
            self.requests.append(received)
        dialect = next(dialect for name, dialect in self.dialects.items() if name in path)
        try:
            return Response.json(dialect(received.body))
        except Refused as refusal:
            error = {
                "message": refusal.message,
                "type": "invalid_request_error",
                "code": 400,
                "status": "INVALID_ARGUMENT",
            }
            return Response.json({"type": "error", "error": error}, 400)

    def answer(self, rung: str, title: str | None, human: str) -> tuple[dict[str, Any], str]:
        """Return the answer as data and as text; refuse a rung."""
        if rung in self.refused_rungs:
            raise Refused(400, f"{rung} is not supported")
        with self._lock:
            self.rungs.append(rung)
            self.calls += 1
        data = answer_offline(title or _SCHEMA_IN_PROMPT.findall(human)[-1], human)
        return data, json.dumps(data, ensure_ascii=False)

    def openai(self, body: dict[str, Any]) -> Any:
        wanted = body.get("response_format") or {}
        rung, title = "prompt", None
        if wanted.get("type") == "json_schema":
            rung, title = "json_schema", wanted["json_schema"]["name"]
        elif "value" in wanted:  # as the client of Hugging Face writes a schema for its servers
            rung, title = "json_schema", wanted["value"]["title"]
        elif body.get("tools"):
            rung, title = "function_calling", body["tools"][0]["function"]["name"]
        elif wanted.get("type") == "json_object":
            rung = "json_mode"
        _, text = self.answer(rung, title, _human(body["messages"]))
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if rung == "function_calling":
            call = {"id": "call_000001", "type": "function", "function": {"name": title, "arguments": text}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
        reason = "tool_calls" if rung == "function_calling" else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        base = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
        return {**base, "choices": [choice], "usage": _USAGE}

    def responses(self, body: dict[str, Any]) -> Any:
        wanted = (body.get("text") or {}).get("format") or {}
        rung, title = "prompt", None
        if wanted.get("type") == "json_schema":
            rung, title = "json_schema", wanted["name"]
        elif body.get("tools"):
            rung, title = "function_calling", body["tools"][0]["name"]
        elif wanted.get("type") == "json_object":
            rung = "json_mode"
        _, text = self.answer(rung, title, _human(body["input"]))
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        if rung == "function_calling":
            item = {"type": "function_call", "id": "f", "call_id": "c", "name": title, "arguments": text}
            item["status"] = "completed"
        base = {"id": "r", "object": "response", "created_at": 0, "status": "completed", "model": "m", "tools": []}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110, **details}
        empty = {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
        choices = {"parallel_tool_calls": True, "tool_choice": "auto", "temperature": 1.0, "top_p": 1.0}
        return {**base, **empty, **choices, "output": [item], "usage": usage}

    def anthropic(self, body: dict[str, Any]) -> Any:
        wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        rung, title = "prompt", None
        if wanted.get("type") == "json_schema":
            rung, title = "json_schema", wanted["schema"].get("title")
        elif body.get("tools"):
            rung, title = "function_calling", body["tools"][0]["name"]
        data, text = self.answer(rung, title, _human(body["messages"]))
        content: dict[str, Any] = {"type": "text", "text": text}
        if rung == "function_calling":
            content = {"type": "tool_use", "id": "toolu_1", "name": title, "input": data}
        reason = "tool_use" if rung == "function_calling" else "end_turn"
        base = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [content]}
        usage = {"input_tokens": 100, "output_tokens": 10}
        return {**base, "stop_reason": reason, "stop_sequence": None, "usage": usage}

    def gemini(self, body: dict[str, Any]) -> Any:
        settings = body.get("generationConfig") or {}
        wanted = settings.get("responseSchema") or settings.get("responseJsonSchema")
        rung, title = "prompt", None
        if wanted:
            rung, title = "json_schema", wanted.get("title")
        elif body.get("tools"):
            rung, title = "function_calling", body["tools"][0]["functionDeclarations"][0]["name"]
        human = next(turn for turn in body["contents"] if turn.get("role", "user") == "user")
        data, text = self.answer(rung, title, "".join(part.get("text", "") for part in human["parts"]))
        part = {"functionCall": {"name": title, "args": data}} if rung == "function_calling" else {"text": text}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}

    def ollama(self, body: dict[str, Any]) -> Any:
        wanted = body.get("format")
        rung = "json_schema" if isinstance(wanted, dict) else "json_mode" if wanted else "prompt"
        title = wanted.get("title") if isinstance(wanted, dict) else None
        _, text = self.answer(rung, title, _human(body["messages"]))
        times = {"total_duration": 1, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1}
        counts = {"prompt_eval_count": 100, "eval_count": 10}
        end = {"done": True, "done_reason": "stop", **times, **counts}
        return {
            "model": "m",
            "created_at": "2025-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": text},
            **end,
        }


def _human(messages: list[dict[str, Any]]) -> str:
    content = next(message["content"] for message in messages if message["role"] == "user")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
