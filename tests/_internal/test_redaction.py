"""Secrets of models, however they are passed; names of fields that hold secrets; ordinary texts that stay."""

import json
import urllib.parse
from functools import partial

import httpx
import openai
import pytest
from helpers.each import each
from langchain_core.runnables import ConfigurableField, RunnableBranch, RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from pydantic import SecretStr
from typing_extensions import TypedDict

from langchain_rageval import Judge, OfflineJudge, faithfulness, jury
from langchain_rageval._internal.description import NotDescribable
from langchain_rageval._internal.redaction import (
    cut_middle,
    find_secrets,
    is_carrier_name,
    is_secret_name,
    redact_exception,
    redact_message,
    redact_secrets,
)
from langchain_rageval.errors import without_keys

SECRET = "correct-horse-battery"
KEY = "sk-0123456789ABCDEF"
RANDOM = "QwErTyUiOp77"
URL = "http://127.0.0.1:1/v1"


def chat(**options):
    return ChatOpenAI(**{"model": "gpt-4o-mini", "api_key": "unused", "base_url": URL, **options})


class Client:
    """A client of the user that keeps its key in a slot."""

    __slots__ = ("_token",)

    def __init__(self):
        self._token = SECRET


class Lazy:
    """A client of the user that fails to look up what it does not have."""

    def __init__(self):
        self.token = SECRET

    def __getattr__(self, name):
        raise RuntimeError(name)


class Rule:
    """An object of the user with a key that is no secret, or may be one."""

    def __init__(self, key, **others):
        vars(self).update(key=key, **others)


class Model:
    """A model of the user with nested clients."""

    def __init__(self):
        self.inner = {"clients": [Client()]}


MODELS = {
    "key": lambda: chat(api_key=SECRET),
    "function that returns the key": lambda: chat(api_key=lambda: KEY),
    "headers": lambda: chat(default_headers={"x-tenant": SECRET}),
    "authorization": lambda: chat(default_headers={"X-Forwarded-Auth": f"Token {SECRET}"}),
    "cookie": lambda: chat(default_headers={"Cookie": f"session={SECRET}; Path=/"}),
    "query": lambda: chat(default_query={"sig": SECRET}),
    "user and password in the address": lambda: chat(base_url=f"http://me:{SECRET}@127.0.0.1:1/v1"),
    "signature in the address": lambda: chat(base_url=f"{URL}?sig={SECRET}"),
    "path of the address": lambda: chat(base_url=f"http://127.0.0.1:1/{KEY}/v1"),
    "extra_body": lambda: chat(extra_body={"auth": {"pwd": SECRET}}),
    "deep in extra_body": lambda: chat(extra_body={"a": [{"b": {"user_pass": SECRET}}]}),
    "key-like text in extra_body": lambda: chat(extra_body={"metadata": {"x": KEY}}),
    "random text in extra_body": lambda: chat(extra_body={"routing": {"hint": RANDOM}}),
    "random text in a list in extra_body": lambda: chat(extra_body={"routes": [{"name": "a", "value": RANDOM}]}),
    "random text in model_kwargs": lambda: chat(model_kwargs={"user_hint": RANDOM}),
    "random text bound": lambda: chat().bind(extra_body={"hint": RANDOM}),
    "random text in a closure": lambda: (lambda text: RunnableLambda(lambda messages: text))(RANDOM),
    "random segment of the address": lambda: chat(base_url=f"http://127.0.0.1:1/{RANDOM}/v1"),
    "query of a client": lambda: chat(http_client=httpx.Client(params={"code": SECRET})),
    "model_kwargs": lambda: chat(model_kwargs={"extra_headers": {"x-tenant": SECRET}}),
    "organization": lambda: chat(organization=SECRET),
    "bound headers": lambda: chat().bind(extra_headers={"x-tenant": SECRET}),
    "bound query": lambda: chat().bind(extra_query={"q": SECRET}),
    "bound user": lambda: chat().bind(user=SECRET),
    "bound twice": lambda: chat().bind(extra_headers={"x-tenant": SECRET}).bind(stop=["x"]).with_retry(),
    "client": lambda: chat(http_client=httpx.Client(headers={"x-tenant": SECRET})),
    "cookies of a client": lambda: chat(http_client=httpx.Client(cookies={"c": SECRET})),
    "fallbacks": lambda: chat().with_fallbacks([chat(default_headers={"x-tenant": SECRET})]),
    "jury": lambda: jury([OfflineJudge(), chat(default_headers={"x-tenant": SECRET}), OfflineJudge()]),
    "configurable": lambda: chat(api_key=SECRET).configurable_fields(temperature=ConfigurableField(id="t")),
    "alternatives": lambda: (
        chat()
        .configurable_alternatives(ConfigurableField(id="llm"), other=chat(api_key=SECRET))
        .with_config(configurable={"llm": "other"})
    ),
    "router": lambda: RunnableBranch((lambda _: True, chat(api_key=SECRET)), chat()),
    "chain": lambda: RunnableLambda(lambda messages: messages) | chat(default_headers={"x-tenant": SECRET}),
    "closure": lambda: (lambda key: RunnableLambda(lambda messages: key))(KEY),
    "closure over a model": lambda: (lambda m: RunnableLambda(lambda x: m.invoke(x)))(chat(api_key=SECRET)),
    "default": lambda: RunnableLambda(lambda messages, token=SECRET: token),
    "partial": lambda: RunnableLambda(partial(lambda messages, token: token, token=SECRET)),
    "constant": lambda: RunnableLambda(lambda messages: "sk-0123456789ABCDEF"),
    "own class": lambda: RunnableLambda((lambda model: lambda messages: model)(Model())),
    "key of an object of the user": lambda: RunnableLambda(partial(lambda rule, messages: rule, Rule(SECRET))),
    "SecretStr": lambda: RunnableLambda((lambda x: lambda messages: x)(SecretStr(SECRET))),
    "client of the user": lambda: RunnableLambda(
        (lambda x: lambda messages: x)(openai.OpenAI(api_key="x", default_headers={"x-tenant": SECRET}))
    ),
}
every_model = each("build", MODELS.values(), ids=MODELS)


def described(judges):
    """Text of the instruments of judges, or why one has none."""
    try:
        return str([judge.instrument for judge in judges])
    except NotDescribable as error:
        return str(error)


@every_model
def test_a_secret_appears_in_no_message_and_no_text_of_a_metric(build):
    model = build()
    metric = faithfulness(model)
    for secret in (SECRET, KEY, RANDOM):
        if secret in find_secrets(metric):
            break
    else:
        pytest.fail("the secret was not found")
    echoes = [
        f"401: you sent {secret}.",
        f"{{'x-tenant': '{secret}'}}",
        json.dumps({"headers": {"x": secret}}),
        f"GET /v1?x={urllib.parse.quote(secret)}",
        f"Bearer{secret}",
    ]
    for owner in (metric, Judge.of(model)):
        assert [echo for echo in echoes if secret in redact_secrets(echo, owner)] == []
    judges = metric.judges
    for text in (repr(metric), repr(metric.steps), repr(judges), described(judges)):
        assert secret not in text


ORDINARY_HEADERS = {
    "accept": "application/json; charset=utf-8",
    "x-a": "a",
    "x-b": "12345",
    "x-c": "search",
    "Content-Type": "application/json",
    "X-Title": "Evaluation of the help desk",
    "x-d": "true",
    "x-e": "v1.2.3",
    "x-f": "",
}
ORDINARY = [
    "The search for a banana ended after 12345 attempts; a true answer is application/json.",
    "Evaluation of the help desk, model gpt-4o-mini, httpx, keep-alive, gzip, deflate",
    "Error code: 404 - the model gpt-4o-mini does not exist at http://127.0.0.1:1/v1/chat/completions",
    "unused keys: 'key', 'token', max_tokens=100",
    "Мюнхен основан в 1158 году: <|im_end|> v1.2.3",
]


@each("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text):
    model = chat(api_key="x", default_headers=ORDINARY_HEADERS, max_tokens=100).bind(stop=["banana"], seed=12345)
    assert redact_secrets(text, faithfulness(model)) == text


def test_models_that_differ_in_a_hidden_text_or_a_header_with_their_name_differ_and_names_of_models_are_shown():
    of_name = [Judge(chat(model=name, default_headers={"x-model": name})) for name in ("gpt-4o", "gpt-4o-mini")]
    assert len({judge.identity for judge in of_name}) == 2
    one, other = (
        faithfulness(chat(extra_body={"hint": hint, "model": "GigaChat2Max9"})) for hint in (RANDOM, "Qw12ErTyUiOp")
    )
    assert one.instrument != other.instrument
    assert "GigaChat2Max9" in str(one.provenance.found_by)


def test_an_object_that_refers_to_itself_or_to_much_or_fails_to_look_up_what_it_lacks_is_searched():
    endless = {"token": SECRET}
    endless["self"] = endless
    endless["many"] = [{"x": [float(n)] * 100} for n in range(20_000)]
    assert find_secrets(endless) == find_secrets([Lazy()]) == {SECRET}


def test_an_object_that_cannot_be_read_is_passed_over():
    class Broken(dict):
        def items(self):
            raise RuntimeError("dictionary changed size during iteration")

    assert redact_secrets("text", Broken(), {"token": SECRET, "broken": Broken()}) == "text"


def test_a_message_loses_its_secrets_before_it_is_cut():
    page = "<p>" * 330 + SECRET + "<p>" * 1000
    message = redact_message(RuntimeError(page), Client())
    assert message == f"{'<p>' * 330}***{'<p>' * 1000}"[:1000] + " … " + page[-1000:]
    assert not any(SECRET[:n] in message for n in range(8, len(SECRET)))


def test_only_a_long_text_loses_its_middle():
    assert [cut_middle(text, 4) for text in ("abcd", "abcdef", "")] == ["abcd", "ab … ef", ""]


def test_the_names_of_a_graphs_states_are_no_secrets_and_the_keys_of_its_models_are():
    graph = StateGraph(TypedDict("State", {"question": str, "standalone_answer": str}))
    graph.add_node("ask", chat(api_key=SECRET))
    graph.add_edge(START, "ask")
    assert find_secrets(graph.compile()) == {SECRET}


@pytest.mark.parametrize("words", ["statement", "standalone_answer", "Вопрос клиента", "客户提出的问题"])
def test_words_in_the_key_of_an_object_stay_and_those_of_a_client_do_not(words):
    text = f"the judge gave no {words} for this sample"
    assert redact_secrets(text, {"rule": Rule(words)}, partial(print, Rule(words))) == text
    for owner in (Rule(words, base_url=URL), {"key": words}, Rule("", inner={"key": words})):
        assert words not in redact_secrets(text, owner)


def test_a_key_that_does_not_consist_of_words_is_a_secret():
    for key in (SECRET, KEY, RANDOM, "hunter22", "QwErTyUiOp", "abcdefghij" * 3):
        assert find_secrets(Rule(key)) == {key}


def test_the_address_of_a_token_stays_in_a_message_and_its_keys_do_not():
    client = {"auth_url": "https://me:hunter22@host/api/v2/oauth?sig=abc12345", "credentials": "dGVzdDp0ZXN0"}
    message = "refused (https://host/api/v2/oauth) for dGVzdDp0ZXN0"
    assert redact_secrets(message, client) == "refused (https://host/api/v2/oauth) for ***"
    assert {"hunter22", "abc12345", "dGVzdDp0ZXN0"} <= find_secrets(client)


@each("link", ["__cause__", "__context__"])
@each(
    "error", [httpx.ConnectError("failed", request=httpx.Request("POST", f"http://host/{KEY}/v1")), OSError(2, "", KEY)]
)
def test_a_cause_whose_message_cannot_be_changed_is_dropped(link, error):
    outer = RuntimeError("no answer")
    setattr(outer, link, error)
    redact_exception(outer, chat(api_key=KEY))
    assert getattr(outer, link) is None


# Names of fields, and keys in texts


SECRET_NAMES = [
    *("api_key", "OPENAI_API_KEY", "apiKey", "x-functions-key", "client_secret", "password", "credentials", "auth"),
    *("Authorization", "access_token", "cookie", "Set-Cookie", "sig", "signature", "azure_ad_token_provider"),
]
CARRIER_NAMES = ["headers", "default_headers", "extra_headers", "cookies", "default_query", "header"]


def test_names_of_secrets_and_of_headers_cookies_and_queries_are_recognised_and_others_are_not():
    others = ["max_tokens", "eos_token", "text_key", "author", "design", "tokenizer", "keyboard"]
    assert [name for name in (*SECRET_NAMES, *others) if is_secret_name(name)] == SECRET_NAMES
    assert [name for name in (*CARRIER_NAMES, "model", "heading") if is_carrier_name(name)] == CARRIER_NAMES


TEXTS = [
    ("http://user:pass@host/v1", "http://host/v1"),
    ("https://h/v1?api-version=1&sig=abc%2F&x=1", "https://h/v1?api-version=1&sig=***&x=1"),
    ("https://h/bot/a1b2c3d4e5f6g7h8i9j0k1/send", "https://h/bot/***/send"),
    ("Bearer abcdefghij", "Bearer ***"),
    ("key sk-abcdefghijklmnop1234", "key ***"),
    ("and/or, 1/2, a plain text", "and/or, 1/2, a plain text"),
]


@each(("text", "clean"), TEXTS)
def test_keys_in_texts_are_replaced(text, clean):
    assert without_keys(text) == clean
