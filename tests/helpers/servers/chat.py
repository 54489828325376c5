"""Base of the chat servers: parsed requests, refusals and faults. Subclasses add the formats of their APIs."""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from helpers.servers.embedder import Embedder, ProxyPage, Vectors
from helpers.servers.faults import SPOILERS, Answer, Faults
from helpers.servers.loopback import Loopback, Received, Refused, ResetConnection, Response

RUNGS = frozenset({"json_schema", "function_calling", "json_mode", "prompt"})


@dataclass(frozen=True)
class Format:
    """Format of the answer that a request asks for; title and schema are None if its fields contain none."""

    rung: str
    title: str | None = None
    schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class ChatRequest:
    """Parsed chat request.

    Attributes:
        messages: mappings with role and content, the content as one text.
        rung: a member of `RUNGS`; "prompt" if the request asks for no format.
        schema_title: from the format, otherwise from the schema in the first user message; None if there is neither.
        schema: from the same place as its title.
        body: the whole request body.
    """

    messages: list[dict[str, str]]
    rung: str
    schema_title: str | None
    schema: dict[str, Any] | None
    body: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, body: dict[str, Any], wanted: Format) -> "ChatRequest":
        messages = [{"role": item["role"], "content": _text(item.get("content"))} for item in body["messages"]]
        title, schema = wanted.title, wanted.schema
        if schema is None:
            *_, schema = None, *filter(_is_schema, objects_in(_first_user_text(messages)))
            title = schema and schema["title"]
        return cls(messages, wanted.rung, title, schema, body)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The step's inputs: the last JSON object of the first user message; empty if there is none."""
        *_, last = {}, *objects_in(_first_user_text(self.messages))
        return last


PROXY_PAGE = Response(200, b"<html><body>Welcome to the proxy</body></html>", "text/html")
Brain = Callable[[ChatRequest], dict[str, Any] | str]


class ChatServer(Loopback, ABC):
    """A chat endpoint whose answers come from a function.

    Args:
        reply: function from a request to a JSON object, or to text that is sent verbatim as content.
        faults: the fault plan; each chat request takes one entry. Other endpoints are not affected.
        latency: seconds before an answer, or a function of the request; errors are sent without delay.
        rungs: the supported rungs; others are refused with 400.
        failing: rungs that the server answers with HTTP 500, as llama-cpp-python's does a JSON schema.
        ignored: rungs whose format is accepted and ignored: the reply is what `reply` says without a format.
        one_user_message: refuse with 400, as templates such as Mistral's do, messages in which user and assistant do
            not alternate or a system message is not the first one.
        refuse_system: refuse a system message with 400, as Gemma's template does.
        embedder: answers the embeddings endpoint.

    Attributes:
        tokens: sum of the usage reported in the answers.
    """

    def __init__(
        self,
        reply: Brain,
        *,
        faults: Faults | None = None,
        latency: float | Callable[[ChatRequest], float] = 0.0,
        rungs: Collection[str] = RUNGS,
        failing: Collection[str] = (),
        ignored: Collection[str] = (),
        one_user_message: bool = False,
        refuse_system: bool = False,
        embedder: Embedder | None = None,
    ) -> None:
        if set(rungs) - RUNGS:
            raise ValueError(f"unknown rungs {sorted(set(rungs) - RUNGS)}, expected some of {sorted(RUNGS)}")
        super().__init__()
        self.reply = reply
        self.faults = faults or Faults.script([])
        self.latency = latency
        self.rungs = frozenset(rungs)
        self.failing = frozenset(failing)
        self.ignored = frozenset(ignored)
        self.one_user_message = one_user_message
        self.refuse_system = refuse_system
        self.embedder = embedder or Embedder()
        self.tokens: Counter[str] = Counter()

    @abstractmethod
    def wanted(self, body: dict[str, Any]) -> Format:
        """Return the format that a request asks for."""

    @abstractmethod
    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        """Build the reply to the `number`-th call, in the requested format."""

    @abstractmethod
    def embedding(self, body: dict[str, Any], texts: list[str], vectors: Vectors) -> dict[str, Any]:
        """Build the reply to a request for embeddings."""

    def usage(self, request: ChatRequest, answer: Answer) -> dict[str, int]:
        """Return the usage, at four characters per token, and add it to `tokens`."""
        prompt = sum(len(message["content"]) for message in request.messages) // 4
        completion = len(answer.text) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        with self._lock:
            self.tokens.update(usage)
        return usage

    def chat(self, received: Received) -> Response:
        with self._lock:
            self.calls += 1
            number = self.calls
        request = ChatRequest.of(received.body, self.wanted(received.body))
        fault = self._fault(request, received)
        if fault == "html":
            return PROXY_PAGE
        self._check(request)
        if request.rung in self.ignored:
            request = ChatRequest.of(received.body, Format("prompt"))
        answer = self._ask(request)
        self.pause(self.latency(request) if callable(self.latency) else self.latency)
        answer = SPOILERS[fault](answer) if fault in SPOILERS else answer
        return Response.json(self.completion(request, answer, number))

    def embed(self, received: Received) -> Response:
        texts = received.body["input"]
        texts = [texts] if isinstance(texts, str) else texts
        try:
            vectors = self.embedder.vectors(texts, received, self)
        except ProxyPage:
            return PROXY_PAGE
        return Response.json({"object": "list"} if vectors is None else self.embedding(received.body, texts, vectors))

    def _fault(self, request: ChatRequest, received: Received) -> str | None:
        """Return the fault of this request; raise it if it replaces the answer by an error."""
        fault = self.faults.draw(received.raw)
        if fault is None or (fault == "refused_format" and request.rung == "prompt"):
            return None
        self.count(self.faulted, fault)
        match fault:
            case "429":
                raise Refused(429, "Rate limit reached", {"Retry-After": self.faults.retry_after})
            case "500":
                raise Refused(500, "The server had an error while processing your request")
            case "unauthorized":
                raise Refused(401, f"Incorrect credentials provided: {received.headers.get('authorization')}")
            case "refused_format":
                raise Refused(400, f"{request.rung} is not supported by this model")
            case "reset":
                raise ResetConnection
            case "hang":
                self.pause(self.faults.hang_seconds)
        return fault

    def _check(self, request: ChatRequest) -> None:
        roles = [message["role"] for message in request.messages]
        if request.body.get("stream"):
            self._refuse("stream", "This test server does not stream")
        if request.rung in self.failing:
            self.count(self.refused, request.rung)
            raise Refused(500, "Input should be 'text' or 'json_object'")
        if request.rung not in self.rungs:
            self._refuse(request.rung, f"{request.rung} is not supported by this model")
        if self.refuse_system and "system" in roles:
            self._refuse("refuse_system", "System role not supported")
        if self.one_user_message and not _alternate(roles):
            self._refuse("one_user_message", "Conversation roles must alternate user/assistant/user/assistant/...")

    def _refuse(self, name: str, message: str) -> None:
        self.count(self.refused, name)
        raise Refused(400, message)

    def _ask(self, request: ChatRequest) -> Answer:
        try:
            return Answer.of(self.reply(request))
        except Exception as error:
            self.record_error(error)
            raise Refused(400, f"The test's reply raised {error!r}") from error


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Return the outermost JSON objects in a text, in order."""
    found = _OBJECT_START.search(text)
    while found:
        try:
            value, end = _DECODER.raw_decode(text, found.start())
        except ValueError:
            end = found.start() + 1
        else:
            yield value
        found = _OBJECT_START.search(text, end)


_DECODER = json.JSONDecoder()
_OBJECT_START = re.compile(r"""\{\s*["}]""")


def _first_user_text(messages: list[dict[str, str]]) -> str:
    return next((message["content"] for message in messages if message["role"] == "user"), "")


def _is_schema(found: dict[str, Any]) -> bool:
    return isinstance(found.get("title"), str) and ("properties" in found or "$ref" in found)


def _text(content: Any) -> str:
    """Return message content as one text: it is a string, a list of parts, or None beside a tool call."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _alternate(roles: list[str]) -> bool:
    turns = roles[1:] if roles[:1] == ["system"] else roles
    return all(role == ("user", "assistant")[position % 2] for position, role in enumerate(turns))
