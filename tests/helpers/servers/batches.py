"""Batch APIs of OpenAI and Anthropic on loopback servers, and a runner of batch files as `vllm run-batch`."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any

from helpers.servers.chat import Reply
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Received, Response
from helpers.servers.vendors import VendorServer


class BatchServer(OpenAIServer):
    """OpenAI-compatible endpoint with `/v1/files` and `/v1/batches`.

    Args:
        reply: answers chat requests.
        polls: number of questions for its state after which a batch has ended.
        outcome: function from the place of a batch, from 1, and the place of a request in it, from 0, to what becomes
            of the request: "answered", "expired", "failed", "refused" or "lost".
        status: function from the place of a batch to its final status.
        outages: number of questions for the state of a batch that are answered with HTTP 429.

    Attributes:
        batches: each batch with the parsed lines of its file, by id.
        answered: number of answers by custom id, over all batches.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        polls: int = 1,
        outcome: Callable[[int, int], str] = lambda _batch, _request: "answered",
        status: Callable[[int], str] = lambda _batch: "completed",
        outages: int = 0,
        **options: Any,
    ):
        super().__init__(reply, **options)
        self.polls, self.outcome, self.status, self.outages = polls, outcome, status, outages
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.answered: Counter[str] = Counter()
        self.on_state: Callable[[str], None] = lambda _state: None  # called before the response is sent

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The batches, in order."""
        return list(self.batches.values())

    @property
    def sent_live(self) -> list[Received]:
        """Requests for a completion or for vectors outside of batches."""
        return [request for request in self.requests if request.path in ("/v1/chat/completions", "/v1/embeddings")]

    def respond(self, received: Received) -> Response:
        path = received.path.partition("?")[0]
        with self._lock:
            self.requests.append(received)
        parts = path.strip("/").split("/")[1:]
        match parts:
            case ["files"]:
                return Response.json(self._upload(received))
            case ["files", name, "content"]:
                self.on_state("downloaded")
                return Response(200, self.files[name], "application/jsonl")
            case ["batches"] if received.body is not None:
                return Response.json(self._create(received.body))
            case ["batches"]:
                return Response.json({"object": "list", "data": list(map(_public, reversed(self.batches.values())))})
            case ["batches", _] if self.outages:
                self.outages -= 1
                return Response.json(self.error_body(429, "too many questions"), 429, {"Retry-After": "0"})
            case ["batches", name]:
                return Response.json(self._poll(name))
        response = self.routed(received)
        self.on_state("live")
        return response

    def _upload(self, received: Received) -> dict[str, Any]:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = file_in(received)
        self.on_state("uploaded")
        file = {"id": name, "object": "file", "bytes": 0, "created_at": 0, "filename": name}
        return file | {"purpose": "batch", "status": "processed"}

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        name = f"batch_{len(self.batches) + 1}"
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].decode().split("\n") if line]
        assert {line["url"] for line in lines} == {body["endpoint"]}
        assert len({line["custom_id"] for line in lines}) == len(lines)
        given = {key: body.get(key) for key in ("endpoint", "input_file_id", "completion_window", "metadata")}
        state = {"status": "in_progress", "request_counts": {"total": len(lines), "completed": 0, "failed": 0}}
        known = {"id": name, "object": "batch", "created_at": 4_000_000_000, **given, **state}
        self.batches[name] = {**known, "_lines": lines, "_polls": 0}
        self.on_state("created")
        return _public(self.batches[name])

    def _poll(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        batch["_polls"] += 1
        if batch["status"] == "in_progress" and batch["_polls"] >= self.polls:
            self._end(batch)
        self.on_state(batch["status"])
        return _public(batch)

    def _end(self, batch: dict[str, Any]) -> None:
        number = list(self.batches).index(batch["id"]) + 1
        batch["status"] = self.status(number)
        if batch["status"] == "failed":
            batch["errors"] = {
                "object": "list",
                "data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}],
            }
            return
        output, errors = [], []
        for place, line in enumerate(batch["_lines"]):
            result = self._result(self.outcome(number, place), line)
            if result is not None:
                (errors if result["error"] or result["response"]["status_code"] >= 400 else output).append(result)
        for kind, results in (("output", output), ("error", errors)):
            if results:
                file = f"{batch['id']}-{kind}"
                self.files[file] = "".join(json.dumps(result) + "\n" for result in reversed(results)).encode()
                batch[f"{kind}_file_id"] = file
        batch["request_counts"] |= {"completed": len(output), "failed": len(errors)}

    def _result(self, outcome: str, line: dict[str, Any]) -> dict[str, Any] | None:
        result = {"id": "batch_req_1", "custom_id": line["custom_id"], "response": None, "error": None}
        if outcome == "lost":
            return None
        if outcome == "expired":
            return result | {"error": {"code": "batch_expired", "message": "It could not be executed in time."}}
        errors = {"failed": (500, "failed"), "refused": (400, "refused by a filter")}
        if outcome in errors:
            status, body = errors[outcome][0], self.error_body(*errors[outcome])
        else:
            response = self.routed(Received(line["url"], {}, line["body"], json.dumps(line["body"]).encode()))
            self.count(self.answered, line["custom_id"])
            status, body = response.status, json.loads(response.content)
        return result | {"response": {"status_code": status, "request_id": "r", "body": body}}


def file_in(received: Received) -> bytes:
    """Return the uploaded file of a multipart form."""
    head = f"Content-Type: {received.headers['content-type']}\r\n\r\n".encode()
    parts = message_from_bytes(head + received.raw).get_payload()
    return next(part.get_payload(decode=True) for part in parts if part.get_filename())


def _public(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if not name.startswith("_")}


class AnthropicBatchServer(VendorServer):
    """Anthropic's messages and message batches; see `VendorServer`.

    Args:
        polls: number of questions for its state after which a batch has ended.
        outcome: function from the place of a batch, from 1, and the place of a request in it, from 0, to what becomes
            of the request: "succeeded", "errored", "invalid", "expired" or "canceled".
    """

    def __init__(self, *, polls: int = 1, outcome: Callable[[int, int], str] = lambda _batch, _place: "succeeded"):
        super().__init__()
        self.polls, self.outcome = polls, outcome
        self.batches: dict[str, dict[str, Any]] = {}
        self.answered: Counter[str] = Counter()

    def respond(self, received: Received) -> Response:
        parts = received.path.partition("?")[0].strip("/").split("/")
        if parts[:3] != ["v1", "messages", "batches"]:
            return super().respond(received)
        with self._lock:
            self.requests.append(received)
        match parts[3:]:
            case [] if received.body is not None:
                return Response.json(self._create(received.body["requests"]))
            case []:
                return Response.json({"data": list(map(_public, reversed(self.batches.values()))), "has_more": False})
            case [name]:
                return Response.json(self._poll(name))
        lines = (json.dumps(result) for result in reversed(self.batches[parts[3]]["_results"]))
        return Response(200, "\n".join(lines).encode(), "application/x-jsonl")

    def _create(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        name = f"msgbatch_{len(self.batches) + 1}"
        counts = {"processing": len(requests), **dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)}
        state = {"processing_status": "in_progress", "request_counts": counts, "results_url": None}
        times = dict.fromkeys(("created_at", "expires_at"), datetime.now(UTC).isoformat())
        known = {"id": name, "type": "message_batch", **times, **state}
        self.batches[name] = {**known, "_requests": requests, "_results": [], "_polls": 0}
        return _public(self.batches[name])

    def _poll(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        batch["_polls"] += 1
        if batch["processing_status"] == "in_progress" and batch["_polls"] >= self.polls:
            number = list(self.batches).index(name) + 1
            results = [self._result(self.outcome(number, place), item) for place, item in enumerate(batch["_requests"])]
            counted = Counter(result["result"]["type"] for result in results)
            kinds = ("processing", "succeeded", "errored", "canceled", "expired")
            batch["_results"], batch["request_counts"] = results, {kind: counted[kind] for kind in kinds}
            batch["processing_status"] = "ended"
            batch["results_url"] = f"{self.url}/v1/messages/batches/{name}/results"
        return _public(batch)

    def _result(self, outcome: str, item: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {"type": "errored" if outcome == "invalid" else outcome}
        if outcome == "succeeded":
            self.answered[item["custom_id"]] += 1
            result["message"] = self.anthropic(item["params"])
        elif outcome in ("errored", "invalid"):
            kind = "invalid_request_error" if outcome == "invalid" else "api_error"
            result["error"] = {"type": "error", "error": {"type": kind, "message": "refused by a filter"}}
        return {"custom_id": item["custom_id"], "result": result}


class BatchRunner(OpenAIServer):
    """Answers files of requests; it opens no connection.

    Args:
        reply: answers chat requests.
    """

    def __init__(self, reply):
        super().__init__(reply)
        self._server.server_close()

    def run(self, source, target, *, leave_out=(), status=200):
        lines = [json.loads(line) for line in Path(source).read_text(encoding="utf-8").splitlines()]
        with Path(target).open("w", encoding="utf-8") as file:
            for place, line in enumerate(lines):
                if place not in leave_out:
                    file.write(json.dumps(self.reply_to(line, status), ensure_ascii=False) + "\n")
        return target

    def reply_to(self, line, status):
        assert line.keys() == {"custom_id", "method", "url", "body"}
        assert line["method"] == "POST"
        body = json.loads(self.routes[line["url"]](Received(line["url"], {}, line["body"], b"")).content)
        response = {"status_code": status, "request_id": "vllm-batch", "body": body}
        return {"id": "vllm-1", "custom_id": line["custom_id"], "response": response, "error": None}
