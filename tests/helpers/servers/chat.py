"""Base of the chat and embeddings servers: parsed requests, refusals, and faults by plan.

Faults instead of an answer: `429`, `500`, `unauthorized` (its body repeats the Authorization header), `reset`, `html`.
Before the answer: `hang`. Instead of structured output: `refused_format`. Altered answers: the keys of `SPOILERS`.
Embeddings have the faults in `EMBEDDING_FAULTS`. Subclasses add the formats of their APIs.
"""

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

from helpers.servers.loopback import Loopback, ProxyPage, Received, Refused, ResetConnection, Response

from langchain_rageval import HashingEmbeddings


@dataclass(frozen=True)
class Answer:
    """Answer of the model.

    Attributes:
        text: the answer as text.
        value: the JSON value of `text`; None if it is not JSON.
        plain: True to send `text` as content even if a tool call was requested.
        finish_reason: None for the usual one.
    """

    text: str
    value: Any = None
    plain: bool = False
    finish_reason: str | None = None

    @classmethod
    def of(cls, reply: dict[str, Any] | str) -> Self:
        if isinstance(reply, str):
            return cls(reply, plain=True)
        return cls(json.dumps(reply, ensure_ascii=False), reply)


PROSE = "Sure, here is the result:\n\n```json\n{}\n```\n\nLet me know if you need anything else."


def cut(answer: Answer, finish_reason: str) -> Answer:
    return replace(answer, text=answer.text[: len(answer.text) // 2], value=None, finish_reason=finish_reason)


def wrong_type(answer: Answer) -> Answer:
    """Make valid JSON of another type: join every list of strings; if there is none, wrap the value in a list."""
    joined = _joined(answer.value)
    value = [joined] if joined == answer.value else joined
    return replace(answer, text=json.dumps(value, ensure_ascii=False), value=value)


SPOILERS: dict[str, Callable[[Answer], Answer]] = {
    "truncated": lambda answer: cut(answer, "length"),
    "truncated_silent": lambda answer: cut(answer, "stop"),
    "prose": lambda answer: replace(answer, text=PROSE.format(answer.text), value=None),
    # irreparable: without the first colon, and with the outermost brace open
    "malformed": lambda answer: replace(answer, text="{" + answer.text.replace(":", " ", 1), value=None),
    "wrong_type": wrong_type,
    "text_instead_of_tool": lambda _: Answer("I have looked at the texts and all seems to be in order.", plain=True),
}
FAULTS = {"429", "500", "unauthorized", "reset", "html", "hang", "refused_format", *SPOILERS}
EMBEDDING_FAULTS = {"429", "500", "unauthorized", "reset", "html", "hang", "misshapen", "fewer", "zero", "nan"}


class Faults:
    """Assigns faults to requests. Safe to share between threads.

    Build one with `Faults.script` or `Faults.rates`.

    Args:
        pick: returns the name of a fault or None, given the position of a request (from 0), its body and the number
            of equal bodies before it.
        retry_after: the Retry-After header of a 429.
        hang_seconds: duration of a hang, after which the answer is sent.
    """

    def __init__(self, pick: Callable[[int, bytes, int], str | None], *, retry_after: str, hang_seconds: float):
        self.retry_after = retry_after
        self.hang_seconds = hang_seconds
        self._pick = pick
        self._lock = threading.Lock()
        self._drawn = 0
        self._repeats: Counter[bytes] = Counter()

    @classmethod
    def script(cls, names: Sequence[str | None], *, retry_after: str = "0", hang_seconds: float = 120.0) -> Self:
        """Assign the n-th fault to the n-th request; None, and requests after the last one, have no fault."""
        _check(name for name in names if name is not None)

        def pick(position: int, raw: bytes, repeats: int) -> str | None:
            return names[position] if position < len(names) else None

        return cls(pick, retry_after=retry_after, hang_seconds=hang_seconds)

    @classmethod
    def rates(
        cls, *, seed: int, in_a_row: int = 99, retry_after: str = "0", hang_seconds: float = 120.0, **rates: float
    ) -> Self:
        """Assign faults at given rates, by a hash of seed, body and repeat, independent of the order of threads.

        Of requests with the same body, only the first `in_a_row` have faults.
        """
        _check(rates)
        if sum(rates.values()) > 1:
            raise ValueError(f"the rates add up to {sum(rates.values())}, expected at most 1")

        def pick(position: int, raw: bytes, repeats: int) -> str | None:
            digest = blake2b(b"%d %d " % (seed, repeats) + raw, digest_size=6).digest()
            point = int.from_bytes(digest) / 2**48  # from 0 to below 1
            for name, rate in rates.items() if repeats < in_a_row else ():
                if point < rate:
                    return name
                point -= rate
            return None

        return cls(pick, retry_after=retry_after, hang_seconds=hang_seconds)

    def draw(self, raw: bytes) -> str | None:
        """Return the fault of the next request, whose body is `raw`; None for no fault."""
        digest = blake2b(raw, digest_size=16).digest()
        with self._lock:
            position, repeats = self._drawn, self._repeats[digest]
            self._drawn += 1
            self._repeats[digest] += 1
        return self._pick(position, digest, repeats)


def _check(names: Any) -> None:
    unknown = set(names) - FAULTS - EMBEDDING_FAULTS
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}, expected some of {sorted(FAULTS | EMBEDDING_FAULTS)}")


def _joined(value: Any) -> Any:
    """Return the value with each list of strings joined into one string."""
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return [_joined(item) for item in value]


Vectors = list[Any]


VECTOR_SPOILERS: dict[str, Callable[[Vectors], Vectors]] = {
    "fewer": lambda vectors: vectors[:-1],
    "zero": lambda vectors: [[0.0] * len(vector) for vector in vectors],
    "nan": lambda vectors: [[float("nan"), *vector[1:]] for vector in vectors],
}


class Embedder:
    """Embeds the texts of a request as HashingEmbeddings does.

    Args:
        faults: the fault plan; each embeddings request takes one entry. "misshapen" is JSON without vectors.
        latency: seconds before an answer.
        refuse: returns True for a text whose requests are refused with 400.

    Attributes:
        batches: the texts of each request, including failed and refused ones.
        most: maximum number of concurrent requests.
        faulted: number of requests with a planned fault, by name of the fault.
        refused: number of requests that were refused because of one of their texts.
    """

    def __init__(
        self, *, faults: Faults | None = None, latency: float = 0.0, refuse: Callable[[str], bool] = lambda _text: False
    ) -> None:
        self.faults = faults or Faults.script([])
        self.latency = latency
        self.refuse = refuse
        self.batches: list[list[str]] = []
        self.most = 0
        self.faulted: Counter[str] = Counter()
        self.refused = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._model = HashingEmbeddings()

    @property
    def texts(self) -> list[str]:
        """All texts that were received, with repetitions."""
        return [text for batch in self.batches for text in batch]

    def vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        """Return the vectors, altered if the plan says so; None for a body without vectors."""
        with self._lock:
            self.batches.append(texts)
            self._in_flight += 1
            self.most = max(self.most, self._in_flight)
        try:
            return self._vectors(texts, received, server)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        fault = self.faults.draw(received.raw)
        if fault:
            server.count(self.faulted, fault)
            apply_fault(fault, self.faults, received, server)
        if any(map(self.refuse, texts)):
            with self._lock:
                self.refused += 1
            raise Refused(400, "This input cannot be embedded")
        server.pause(self.latency)
        if fault == "misshapen":
            return None
        vectors = self._model.embed_documents(texts)
        return VECTOR_SPOILERS[fault](vectors) if fault in VECTOR_SPOILERS else vectors


def apply_fault(fault: str, faults: Faults, received: Received, server: Loopback) -> None:
    """Raise the fault that replaces the answer, or wait."""
    match fault:
        case "429":
            raise Refused(429, "Rate limit reached", {"Retry-After": faults.retry_after})
        case "500":
            raise Refused(500, "The server had an error while processing your request")
        case "unauthorized":
            raise Refused(401, f"Incorrect credentials provided: {received.headers.get('authorization')}")
        case "reset":
            raise ResetConnection
        case "html":
            raise ProxyPage
        case "hang":
            server.pause(faults.hang_seconds)


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
            found = [one for one in objects_in(_first_user_text(messages)) if "properties" in one or "$ref" in one]
            *_, schema = None, *(one for one in found if isinstance(one.get("title"), str))
            title = schema and schema["title"]
        return cls(messages, wanted.rung, title, schema, body)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The step's inputs: the last JSON object of the first user message; empty if there is none."""
        *_, last = {}, *objects_in(_first_user_text(self.messages))
        return last


Reply = Callable[[ChatRequest], dict[str, Any] | str]


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
        reply: Reply,
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
    def schema(self, response_format: dict[str, Any]) -> Format:
        """Return the format that a request with a JSON schema asks for."""

    @abstractmethod
    def function(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the function that the model must call; None if it need not call one."""

    @abstractmethod
    def message(self, request: ChatRequest, answer: Answer, number: int) -> tuple[dict[str, Any], str]:
        """Build the message of the `number`-th reply, in the requested format, and its usual finish reason."""

    def wanted(self, body: dict[str, Any]) -> Format:
        """Return the format that a request asks for."""
        response_format = body.get("response_format") or {}
        if response_format.get("type") == "json_schema":
            return self.schema(response_format)
        if response_format.get("type") == "json_object":
            return Format("json_mode")
        function = self.function(body)
        return Format("function_calling", function["name"], function["parameters"]) if function else Format("prompt")

    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        """Build the reply to the `number`-th call."""
        message, finish_reason = self.message(request, answer, number)
        return {
            "object": "chat.completion",
            "created": 0,
            "model": request.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason or finish_reason}],
            "usage": self.usage(request, answer),
        }

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
        vectors = self.embedder.vectors(texts, received, self)
        return Response.json({"object": "list"} if vectors is None else self.embedding(received.body, texts, vectors))

    def _fault(self, request: ChatRequest, received: Received) -> str | None:
        """Return the fault of this request; raise it if it replaces the answer by an error."""
        fault = self.faults.draw(received.raw)
        if fault is None or (fault == "refused_format" and request.rung == "prompt"):
            return None
        self.count(self.faulted, fault)
        if fault == "refused_format":
            raise Refused(400, f"{request.rung} is not supported by this model")
        apply_fault(fault, self.faults, received, self)
        return fault

    def _check(self, request: ChatRequest) -> None:
        roles = [message["role"] for message in request.messages]
        turns = roles[1:] if roles[:1] == ["system"] else roles
        if request.body.get("stream"):
            self._refuse("stream", "This test server does not stream")
        if request.rung in self.failing:
            self.count(self.refused, request.rung)
            raise Refused(500, "Input should be 'text' or 'json_object'")
        if request.rung not in self.rungs:
            self._refuse(request.rung, f"{request.rung} is not supported by this model")
        if self.refuse_system and "system" in roles:
            self._refuse("refuse_system", "System role not supported")
        if self.one_user_message and any(role != ("user", "assistant")[n % 2] for n, role in enumerate(turns)):
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


def _text(content: Any) -> str:
    """Return message content as one text: it is a string, a list of parts, or None beside a tool call."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
