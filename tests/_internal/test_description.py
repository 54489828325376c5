"""Descriptions of objects: what distinguishes two of them, what does not, and what has none."""

import json
import operator
import socket
import ssl
import threading
import warnings
from dataclasses import dataclass, field

import httpx
import numpy as np
import openai
import pytest
import requests
from helpers.each import each, error_of
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_gigachat import GigaChat
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field, PrivateAttr

from langchain_rageval import OfflineJudge
from langchain_rageval._internal.description import NotDescribable, describe, digest_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of langchain_community about itself
    from langchain_community.chat_models import ChatLlamaCpp, ChatYandexGPT
    from langchain_community.embeddings import BedrockEmbeddings, HuggingFaceEmbeddings, LlamaCppEmbeddings

SECRET = "super-secret-XYZ-123456"


def chat(**options):
    return ChatOpenAI(**{"model": "m", "api_key": SECRET, "base_url": "http://h/v1"} | options)


class Own(Embeddings):
    def __init__(self, path, **others):
        self.path = path
        vars(self).update(others)

    def embed_documents(self, texts):
        return [[1.0] for _ in texts]

    def embed_query(self, text):
        return [1.0]


class Local(OfflineJudge):
    path: str = ""
    _engine: object = PrivateAttr(None)
    _calls: list = PrivateAttr(default_factory=list)


def constant(number):
    return lambda messages: number


def class_with(number):
    class Inner(Own):
        def embed_query(self, text):
            return [number]

    return Inner("p")


@dataclass
class Scaled:
    scale: float
    calls: list = field(default_factory=list, init=False, compare=False)
    client: object = field(default_factory=object, init=False)
    prefix: str = field(default="", init=False)


def prefixed(prefix):
    scaled = Scaled(1.0)
    scaled.prefix = prefix
    return scaled


def constructed(kind, name, *values, **others):
    """Return models of a client that is not installed, one for each value of a field."""
    return tuple(kind.model_construct(**{name: value}, **others) for value in values)


DIFFERENT = {
    "host with a long path": (
        chat(base_url="http://h/serving/qwen-72b-instruct-awq-v2/v1"),
        chat(base_url="http://h/serving/tiny-1b-instruct-awq-v2x/v1"),
    ),
    "fallback behind a retry": (
        chat().with_fallbacks([chat(model="a")]).with_retry(),
        chat().with_fallbacks([chat(model="b")]).with_retry(),
    ),
    "GigaChat": (GigaChat(model="G", credentials=SECRET), GigaChat(model="G2", credentials=SECRET)),
    "ChatLlamaCpp": constructed(ChatLlamaCpp, "model_path", "qwen-72b.gguf", "tiny-1b.gguf"),
    "ChatYandexGPT": constructed(ChatYandexGPT, "model_uri", "gpt://f/a", "gpt://f/b", model_name=None),
    "LlamaCppEmbeddings": constructed(LlamaCppEmbeddings, "model_path", "a", "b"),
    "BedrockEmbeddings": constructed(BedrockEmbeddings, "model_id", "a", "b"),
    "HuggingFaceEmbeddings": constructed(
        HuggingFaceEmbeddings, "encode_kwargs", {"prompt": "query: "}, {}, model_name="a"
    ),
    "own embeddings with a text key": (Own("a", text_key="title"), Own("a", text_key="body")),
    "numpy state": (Own(np.array([1.0, 2.0])), Own(np.array([1.0, 3.0]))),
    "numpy objects": (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    "class in a function": (class_with(1), class_with(2)),
    "attribute that a caller cannot pass": (prefixed("a"), prefixed("b")),
    "code": (lambda messages: 1, lambda messages: 2),
    "method of a builtin": ({"a": 1}.get, {"a": 2}.get),
    "itemgetter": (operator.itemgetter("a"), operator.itemgetter("b")),
    "two and its text": (Own(2), Own("2")),
}


@each(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_may_change_an_answer_changes_the_description(one, other):
    assert describe(one) != describe(other)
    assert digest_of(describe(one)) != digest_of(describe(other))
    for value in (one, other):
        assert describe(value) == describe(value) == json.loads(json.dumps(describe(value)))
        assert SECRET not in json.dumps(describe(value))


EQUAL = {
    "secrets": (chat(), chat(api_key="another")),
    "timeouts and retries": (chat(timeout=3, max_retries=1), chat(timeout=4, max_retries=2)),
    "rate limiters": (chat(rate_limiter=InMemoryRateLimiter()), chat()),
    "labels": (chat(tags=["a"], metadata={"a": 1}, name="judge", verbose=True), chat(verbose=True)),
    "retry": (chat().with_retry(stop_after_attempt=2), chat()),
    "tags of a call": (chat().with_config(tags=["a"], run_name="x"), chat()),
    "password in the address": (chat(base_url="http://u:p@h/v1"), chat()),
    "authorization": (
        chat(default_headers={"Authorization": "Bearer abcdefgh", "User-Agent": "a", "x-api-key": "1"}),
        chat(default_headers={"Authorization": "Bearer 12345678", "Cookie": "b"}),
    ),
    "equal closures": (constant(1), constant(1)),
    "order of a mapping": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "own embeddings": (Own("a", lock=threading.Lock()), Own("a", lock=threading.Lock())),
    "password of own embeddings": (Own("a", password="x"), Own("a", password="y")),
    "dataclass": (Scaled(1.0), Scaled(1.0)),
    "class in a function": (class_with(1), class_with(1)),
    "model of a copy": (chat(), chat().model_copy()),
}


@each(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_what_changes_no_answer_does_not_change_the_description(one, other):
    assert describe(one) == describe(other)


def test_a_call_does_not_change_the_description():
    function = RunnableLambda(lambda messages: "[]")
    model = chat()
    before = describe(function), describe(model)
    function.invoke([])
    repr(function), function.deps, repr(model), model.get_name()
    assert (describe(function), describe(model)) == before


def test_a_recursive_function_and_a_cycle_of_objects_are_described():
    def depth(tree):
        return 1 + max(map(depth, tree), default=0)

    one, other = Own("a"), Own("b")
    one.next, other.next = other, one
    assert describe(depth)["closure"] == {"depth": {"cycle": 1}}
    assert describe(one)["next"]["next"] == {"cycle": 2}


class Versioned(BaseModel):
    version: str = "7"
    model: object = None
    client: object = Field(default=None, exclude=True)


UNKNOWN = {
    "client": (Own(socket.socket()), "path is a socket.socket, whose state cannot be read"),
    "plain object": (Own(object()), "path is a builtins.object, whose state cannot be read"),
    "client in a closure": (
        RunnableLambda(constant(object())),
        "func (closure).number is a builtins.object, whose state cannot be read",
    ),
    "generator": ((n for n in [1]), "the object is a builtins.generator, whose state cannot be read"),
    "too much": (Own([[number] for number in range(60_000)]), "path[24997][0] is too large to identify"),
}


@each(("value", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_object_without_readable_state_is_unknown(value, message):
    assert str(error_of(NotDescribable, describe, value)) == message


def test_a_private_attribute_and_an_excluded_field_of_a_model_are_no_settings():
    one, other = Local(path="a"), Local(path="a")
    one._calls.append("a record of a call")
    one._engine = "a session"
    assert describe(one) == describe(other)
    assert "a session" not in str(describe(one))
    assert describe(Versioned(client=object())) == describe(Versioned())


class Hidden:
    def __init__(self, **parts):
        vars(self).update(parts)


def test_an_object_with_a_private_attribute_is_unknown():
    assert describe(Hidden(path="a", _engine=None, _lock=threading.Lock())) == describe(Hidden(path="a"))
    problem = "the object has a private attribute, _session, which is not read"
    assert problem in str(error_of(NotDescribable, describe, Hidden(path="a", _session="s")))


def test_a_version_identifies_a_function_but_an_attribute_of_an_object_does_not():
    def rate(text):
        return SOCKET

    error_of(NotDescribable, describe, rate)
    rate.version = "2"
    name = test_a_version_identifies_a_function_but_an_attribute_of_an_object_does_not.__name__
    assert describe(rate) == {"function": f"{name}.<locals>.rate", "version": "2"}
    for value in (Own(object(), version="2"), Versioned(model=object())):
        error_of(NotDescribable, describe, value)
    assert describe(Own("a", version="2")) != describe(Own("b", version="2"))
    assert describe(Versioned(model="a"))["model"] == "a"


COUNTS = []


def counting(step):
    total, settings = 0, {"step": step}

    def count(text):
        nonlocal total
        total += settings["step"]
        COUNTS.append(text)
        return total

    return count


class Counter:
    def __init__(self, step):
        self.step, self.total, self.seen = step, 0, []

    def __call__(self, text):
        self.total += self.step
        self.seen.append(text)
        return self.total

    def add(self, text):
        self.total += self.step


def test_what_a_function_changes_itself_is_a_record_and_no_setting():
    by_method = Counter(1)
    for one, other in ((counting(1), counting(2)), (Counter(1), Counter(2)), (by_method.add, Counter(2).add)):
        before = describe(one)
        one("a")
        assert describe(one) == before != describe(other), one
    before = describe(Hidden(run=by_method))
    by_method.step = 3
    assert describe(Hidden(run=by_method)) != before


SOCKET = object()

data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(data)
def test_a_description_is_deterministic_and_json(value):
    described = describe(value)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert digest_of(described) == digest_of(describe(value)) == digest_of(json.loads(json.dumps(described)))
    assert len(digest_of(described)) == 16


def test_a_client_of_http_is_neither_stored_nor_digested():
    verified = httpx.Client(verify=ssl.create_default_context())
    plain = httpx.Client(timeout=1, headers={"x-route": "a"})
    one, other = (OpenAIEmbeddings(api_key="x", http_client=client) for client in (verified, plain))
    assert describe(one) == describe(other)
    for client in (plain, httpx.AsyncClient(), requests.Session(), openai.OpenAI(api_key="x")):
        with pytest.raises(NotDescribable, match=r"is a client of HTTP, .*, which is not read"):
            describe(client)


ROUTED = {
    "mapping": ({"x-route": SECRET}, "headers has the header x-route, which is not read"),
    "pairs": ([("accept", "a"), ("x-route", SECRET)], "headers has the header x-route, which is not read"),
    "line": (f"x-route: {SECRET}", "headers has the header x-route, which is not read"),
    "cookies": ({"session": SECRET}, "cookies has the header session, which is not read"),
}


@each("name", ROUTED)
def test_a_header_that_may_choose_an_answer_makes_its_owner_unknown(name):
    value, message = ROUTED[name]
    for owner in (Own("a", **{message.split()[0]: value}), {message.split()[0]: value}):
        assert str(error_of(NotDescribable, describe, owner)) == message
    assert describe({"header": "title"}) != describe({"header": "no title"})


def test_a_module_that_a_function_imports_when_it_runs_is_part_of_its_description(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_late.py").write_text("NUMBER = 1\n")

    def late():
        from imported_late import NUMBER

        return NUMBER

    one = describe(late)
    (tmp_path / "imported_late.py").write_text("NUMBER = 2\n")
    assert describe(late) != one
