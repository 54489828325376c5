"""Every setting that a configuration reaches is part of its identity, or makes it unknown: none is overlooked."""

import collections
import contextvars
import functools
import importlib
import json
import os
import smtplib
import subprocess
import sys
import types
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from importlib.metadata import packages_distributions, version
from pathlib import Path

import httpx
import pytest
from helpers.each import each
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, FewShotPromptTemplate, PromptTemplate
from langchain_core.runnables import (
    ConfigurableField,
    RunnableBranch,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field, PrivateAttr, SecretStr

import langchain_rageval as rageval
from langchain_rageval._internal import code_identity
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import instruments_in, update_instruments
from langchain_rageval.metrics.supported import Value

HIDDEN = "never-stored-12345"


def chat(model="m", **options):
    return ChatOpenAI(model=model, api_key="sk-1", base_url="http://localhost:1/v1", **options)


class OwnModel(rageval.OfflineJudge):
    strictness: float = 0.5
    table: dict[str, list[int]] = Field(default_factory=lambda: {"a": [1]})
    _session: str = PrivateAttr(HIDDEN)


class OwnEmbeddings(Embeddings):
    def __init__(self, size):
        self.size, self.options = size, {"norm": True, "pool": ["mean"]}

    def embed_documents(self, texts):
        return [[1.0] * self.size for _ in texts]

    def embed_query(self, text):
        return [1.0] * self.size


WEIGHTS = {"length": 0.25, "nested": {"low": [0.1]}, "words": {"one", "two", "three"}}


def lowest(sample):
    return WEIGHTS["nested"]["low"][0]


def by_global(sample):
    return WEIGHTS["length"] + lowest(sample)


class Scorer:
    limit = 5
    words = {"a": 1}  # noqa: RUF012

    def __init__(self, weight):
        self.weight, self.table = weight, {"x": [1, 2]}

    def __call__(self, sample):
        return self.weight


class Rating(BaseModel):
    reason: str
    polite: bool


def closing(values):
    return lambda sample: values["v"]


def with_defaults(sample, weights=(0.1, [0.2]), *, table={"a": 1}):  # noqa: B006
    return weights[0]


def weighted(sample, weight, more):
    return weight


def of_function(function):
    return rageval.metric(reads={"answer"}, aspect="style", name="mine")(function)


def of_steps(steps):
    return Metric("mine", aspect="style", reads={"answer"}, steps=steps, reduce=lambda state: Value(0.5, "half"))


def of_chain(*parts):
    chain = ChatPromptTemplate.from_template("Rate {answer}")
    for part in parts:
        chain = chain | part
    return of_steps(rageval.Step.from_chain(chain, key="rating", reads={"answer"}, name="rate"))


def own_step(judge):
    prompts = {"en": rageval.Prompt(instruction="Rate.")}
    return rageval.Step(Rating, prompts=prompts, reads=("question", "answer"))(judge)


def with_options():
    options = {"temperature": 0.1, "top_p": 0.9, "seed": 1, "max_tokens": 5, "stop": ["x"], "logit_bias": {1: 2}}
    options |= {"frequency_penalty": 0.1, "presence_penalty": 0.1, "reasoning_effort": "low", "n": 1}
    options |= {"model_kwargs": {"a": 1}, "extra_body": {"b": {"c": 2}}, "default_query": {"version": "1"}}
    headers = {"user-agent": HIDDEN, "authorization": f"Bearer {HIDDEN}"}
    return chat(**options, disabled_params={"p": None}, default_headers=headers)


FIELD = ConfigurableField("temperature")
FEW = {"examples": [{"a": "1"}], "example_prompt": PromptTemplate.from_template("{a}"), "suffix": "{answer}"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CONFIGURATIONS = {
    "judge": lambda: rageval.faithfulness(chat(temperature=0.1)),
    "judge with options": lambda: rageval.faithfulness(with_options()),
    "Judge": lambda: rageval.faithfulness(
        rageval.Judge(chat(), mode="prompt", draws=3, layout="contexts_first", language="en")
    ),
    "own model": lambda: rageval.faithfulness(OwnModel()),
    "own model below a judge": lambda: rageval.faithfulness(rageval.Judge(OwnModel(), attempts=2)),
    "bound": lambda: rageval.faithfulness(chat().bind(seed=1, response_format={"type": "json_object"})),
    "fallbacks": lambda: rageval.faithfulness(chat().with_fallbacks([chat("b")])),
    "retry": lambda: rageval.faithfulness(chat(seed=1).with_retry()),
    "configurable field": lambda: rageval.faithfulness(chat().configurable_fields(temperature=FIELD)),
    "alternatives": lambda: rageval.faithfulness(
        chat().configurable_alternatives(ConfigurableField("llm"), default_key="a", b=chat("b"))
    ),
    "configured": lambda: rageval.faithfulness(chat().configurable_fields(temperature=FIELD)).with_config(
        configurable={"temperature": 0.5}
    ),
    "configured judge": lambda: rageval.faithfulness(
        chat().configurable_fields(temperature=FIELD).with_config(configurable={"temperature": 0.5})
    ),
    "jury": lambda: rageval.rubric(rageval.jury([chat(), chat("b"), chat(seed=2)])),
    "cascade": lambda: rageval.faithfulness(rageval.cascade(chat(), chat("b"))),
    "rubric": lambda: rageval.rubric(chat()),
    "aspect": lambda: rageval.aspect_critique(chat(), "politeness", definition="Is it polite?"),
    "correctness": lambda: rageval.answer_correctness(chat(), OpenAIEmbeddings(model="e", api_key="k")),
    "relevance": lambda: rageval.answer_relevance(chat(), OpenAIEmbeddings(model="e", api_key="k", dimensions=3)),
    "similarity": lambda: rageval.answer_similarity(OpenAIEmbeddings(model="e", api_key="k", base_url="http://h/v1")),
    "own embeddings": lambda: rageval.answer_similarity(OwnEmbeddings(3)),
    "hashing embeddings": lambda: rageval.answer_similarity(rageval.HashingEmbeddings(64)),
    "context precision": lambda: rageval.context_precision(chat()),
    "context recall": lambda: rageval.context_recall(chat()),
    "context relevance": lambda: rageval.context_relevance(chat()),
    "conversation": lambda: rageval.conversation_metrics(chat()),
    "citations": lambda: rageval.citations(chat()),
    "suite": lambda: rageval.suite(rageval.faithfulness(chat()), rageval.context_recall(chat(seed=4))),
    "exact match": lambda: rageval.exact_match(),
    "ROUGE": lambda: rageval.rouge(),
    "globals": lambda: of_function(by_global),
    "closure": lambda: of_function(closing({"v": 0.1, "w": {"z": [1]}})),
    "defaults": lambda: of_function(with_defaults),
    "partial": lambda: of_function(partial(weighted, weight=0.1, more={"a": [1]})),
    "object": lambda: of_function(Scorer(0.1)),
    "method": lambda: of_function(Scorer(0.1).__call__),
    "own step": lambda: of_steps(own_step(chat())),
    "chain": lambda: of_chain(chat(temperature=0.2)),
    "chain with a function": lambda: of_chain(chat(), StrOutputParser(), RunnableLambda(closing({"v": 1}))),
    "chain of branches": lambda: of_chain(
        RunnableParallel(a=chat(), b=RunnableBranch((closing({"v": 1}), chat()), chat(temperature=0.7)))
    ),
    "chain with a tool": lambda: of_chain(chat().bind_tools([TOOL])),
    "chain with examples": lambda: of_steps(
        rageval.Step.from_chain(
            FewShotPromptTemplate(**FEW, input_variables=["answer"]) | chat(), key="r", reads={"answer"}
        )
    ),
    "chain before a metric": lambda: (
        RunnablePassthrough.assign(answer=closing({"v": "x"})) | rageval.faithfulness(chat())
    ),
}
QUICK = ("judge with options", "own model", "own embeddings", "globals", "object", "chain with a function")
NO_SETTINGS = {
    *("cache", "verbose", "tags", "metadata", "name", "run_name", "custom_get_token_ids", "callbacks", "rate_limiter"),
    *("max_retries", "request_timeout", "stream_chunk_timeout", "max_attempt_number", "wait_exponential_jitter"),
    *("client", "async_client", "root_client", "root_async_client", "http_client", "http_async_client"),
    *("openai_api_key", "http_socket_options", "authorization", "user-agent"),  # of the connection
    *("instrument", "aspect", "direction", "result_name", "default_key", "output_version"),  # decide no answer
}
_OPAQUE = str | int | float | bytes | type | None | types.ModuleType | SecretStr


def identity(measure):
    """Return the instruments of a metric as a run that begins now has them."""
    update_instruments([measure])
    return [instrument.digests for instrument in instruments_in(measure).values()]


def held(value):
    """Yield where a value holds another one, how it is set there, and the value."""
    if isinstance(value, dict | list):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield f"[{key!r}]", None if key in NO_SETTINGS else partial(value.__setitem__, key), part
    elif isinstance(value, tuple | partial | types.MethodType | types.FunctionType):
        yield from ((name, None, part) for name, part in parts_of_function(value))
    elif not type(value).__module__.startswith(("openai", "httpx", "_thread", "langchain_rageval.prompts")):
        is_own = type(value).__module__ == __name__ and not isinstance(value, BaseModel)
        for holder in (value, type(value)) if is_own else (value,):
            for name, part in list(getattr(holder, "__dict__", {}).items()):
                if not name.startswith("_") and name not in NO_SETTINGS:
                    yield f".{name}", None if callable(part) else partial(setattr, holder, name), part


def parts_of_function(value):
    match value:
        case tuple():
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
        case partial():
            yield from ((".func", value.func), (".keywords", value.keywords))
        case types.MethodType():
            yield ".self", value.__self__
        case types.FunctionType():
            yield from ((f" of {name}", part) for name, part in code_identity.closure_values(value))
            if value.__module__ == __name__:
                yield from ((" default", part) for part in (value.__defaults__, value.__kwdefaults__))
                yield from ((f" global {name}", part) for name, part in code_identity.named_globals(value))


def settings_of(root):
    """Yield the path of every plain value that a configuration reaches, a function that sets it, and the value."""
    waiting, seen = [("", root)], {}
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, _OPAQUE) and id(value) not in seen:
            seen[id(value)] = value
            for name, put, part in held(value):
                if put and isinstance(part, str | int | float):
                    yield path + name, put, part
                waiting.append((path + name, part))


def overlooked(names):
    """Return how many settings were changed one by one, and the paths of those that left the identity equal."""
    count, found = 0, []
    for name in names:
        measure = CONFIGURATIONS[name]()
        before = identity(measure)
        assert "unknown" not in str(before), name
        for path, put, value in list(settings_of(measure)):
            try:
                put(not value if isinstance(value, bool) else value + (type(value)(1) if value != str(value) else "x"))
            except (AttributeError, TypeError, ValueError):  # it is frozen
                continue
            count += 1
            found += [f"{name}: {path}"] if identity(measure) == before else []
            put(value)
        assert identity(measure) == before, name
    return count, found


def test_every_setting_of_common_configurations_is_part_of_the_identity():
    count, found = overlooked(QUICK)
    assert (found, count >= 45) == ([], True), count


@pytest.mark.gate
def test_every_setting_of_forty_configurations_is_part_of_the_identity():
    count, found = overlooked(CONFIGURATIONS)
    assert (len(CONFIGURATIONS) >= 40, found, count >= 300) == (True, [], True), count


def test_an_upgrade_of_a_package_is_another_identity(monkeypatch):
    installed = {name: identity(build()) for name, build in CONFIGURATIONS.items()}
    later = {top: f"{found}.post1" for top, found in code_identity._distributions().items()}
    monkeypatch.setattr(code_identity, "_distributions", lambda: later)
    equal = {name for name, build in CONFIGURATIONS.items() if identity(build()) == installed[name]}
    own = {"globals", "closure", "defaults", "partial", "object", "method"}
    assert equal == {*own, "hashing embeddings", "exact match", "ROUGE"}


def test_the_distribution_of_each_module_is_the_one_that_importlib_finds():
    found = code_identity._distributions()
    for top, names in packages_distributions().items():
        if top.isidentifier():
            assert found[top] == ", ".join(sorted({f"{name} {version(name)}" for name in names}))


def test_what_is_private_or_sent_in_a_header_stands_in_no_description():
    for name in ("judge with options", "own model", "own model below a judge"):
        measure = CONFIGURATIONS[name]()
        stored = [(one.found_by, one.counted_by) for one in instruments_in(measure).values()]
        assert HIDDEN not in json.dumps(stored), name


UNREAD = {
    "a header": lambda: chat(default_headers={"x-route": HIDDEN}),
    "a header of a call": lambda: chat().bind(extra_headers={"x-model": HIDDEN}),
    "a header of a function": lambda: RunnableLambda(closing({"v": 1, "headers": {"x-route": HIDDEN}})),
    "a client of a function": lambda: RunnableLambda(closing({"v": httpx.Client(headers={"x-route": HIDDEN})})),
    "a private attribute of a part": lambda: RunnableLambda(closing({"v": smtplib.SMTP(local_hostname=HIDDEN)})),
    "a private attribute": lambda: RunnableLambda(closing({"v": types.SimpleNamespace(_session=HIDDEN)})),
}


@each("name", UNREAD)
def test_what_is_not_read_makes_a_judge_unknown_and_is_not_digested(name):
    (instrument,) = instruments_in(rageval.faithfulness(UNREAD[name]())).values()
    assert ("unknown." in instrument.digests, HIDDEN not in str(instrument), instrument.found_by) == (True, True, None)
    assert 'set Judge(model, version="1"), and change it with the model' in instrument.unknown


IN_ANOTHER_PROCESS = """
import json, sys
sys.path[:0] = sys.argv[1:]
import test_settings as t
print(json.dumps({name: t.identity(build()) for name, build in t.CONFIGURATIONS.items()}))
"""


@pytest.mark.gate
def test_equal_configurations_of_two_processes_are_equal(tmp_path):
    here, found = Path(__file__).parent, []
    for seed in ("1", "2"):
        (folder := tmp_path / seed).mkdir()
        env = {**os.environ, "PYTHONHASHSEED": seed, "OPENAI_API_KEY": f"sk-{seed}", "PYTHONPATH": str(Path.cwd())}
        command = [sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS, str(here), str(here.parent)]
        done = subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == {name: identity(build()) for name, build in CONFIGURATIONS.items()}


# Places of settings outside the objects themselves


@dataclass
class Options:
    limit: int = 1
    words: list = field(default_factory=list)


@functools.lru_cache
def cached(number):
    return WEIGHTS["length"]


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


VARIABLE = contextvars.ContextVar("variable", default=1)
PLACES = {
    "attribute of a module": ("return box.LIMIT", "box.LIMIT = 2"),
    "dict of a module": ("return box.TABLE['a']", "box.TABLE['a'] = 2"),
    "class of a module": ("return box.Inner.size", "box.Inner.size = 2"),
    "attribute of a module by its text": ("return getattr(box, 'LIMIT')", "box.LIMIT = 3"),
    "global of a function of a module": ("return box.read(sample)", "box.LIMIT = 4"),
    "global of an imported function": ("return read(sample)", "box.LIMIT = 5"),
    "module that is imported late": ("import box; return box.LIMIT", "box.LIMIT = 6"),
    "name that is imported late": ("from box import LIMIT; return LIMIT", "box.LIMIT = 7"),
    "attribute of the function": ("return mine.limit", "mine.limit = 2"),
    "attribute of another function": ("return read.limit", "read.limit = 2"),
    "global of a method that is inherited": ("return Derived().value()", "box.LIMIT = 8"),
    "global of a property": ("return Holder().value", "box.LIMIT = 9"),
    "global of an inner function": ("return (lambda: box.LIMIT)()", "box.LIMIT = 10"),
    "global of a comprehension": ("return sum(box.LIMIT for _ in [1])", "box.LIMIT = 11"),
    "any global": ("return globals()['box'].LIMIT", "box.LIMIT = 12"),
    "any module": ("return importlib.import_module('box').LIMIT", "box.LIMIT = 13"),
    "any code": ("return eval('box.LIMIT')", "box.LIMIT = 14"),
    "variable of a context": ("return VARIABLE.get()", "VARIABLE.set(2)"),
    "global of a cached function": ("return cached(1)", "WEIGHTS.update(length=WEIGHTS['length'] + 1)"),
    "default of a dataclass": ("return OPTIONS.words", "OPTIONS.words.append(1)"),
    "deque": ("return DEQUE[0]", "DEQUE.append(1)"),
    "number of another class": ("return NUMBERS.one", "NUMBERS.one = Decimal(2)"),
    "replaced method": ("return SCORER(sample)", "SCORER.weight = 7"),
}
BOX = """
LIMIT, TABLE = 1, {'a': 1}
LIMIT = 1
class Inner: size = 1
def read(sample): return LIMIT
read.limit = 1
class Base:
    def value(self): return LIMIT
class Derived(Base): pass
class Holder:
    @property
    def value(self): return LIMIT
"""


def test_a_setting_in_any_other_place_is_part_of_the_identity_or_makes_it_unknown(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "box.py").write_text(BOX, encoding="utf-8")
    found = {}
    for name, (body, change) in PLACES.items():
        sys.modules.pop("box", None)
        importlib.invalidate_caches()
        box = importlib.import_module("box")
        scope = {"box": box, "importlib": importlib, "cached": cached, "WEIGHTS": WEIGHTS, "VARIABLE": VARIABLE}
        scope |= {"Derived": box.Derived, "Holder": box.Holder, "read": box.read, "SCORER": Scorer(1)}
        scope |= {"OPTIONS": Options(), "DEQUE": collections.deque([1]), "Decimal": Decimal}
        scope |= {"NUMBERS": types.SimpleNamespace(one=Decimal(1)), "__name__": __name__}
        exec(f"def mine(sample):\n    {body}\nmine.limit = 1\n", scope)
        measure = of_function(decorated(scope["mine"]))
        before = identity(measure)
        exec(change, scope)
        after = identity(measure)
        found[name] = after != before or "unknown" in str(after)
        sys.modules.pop("box", None)
    assert [name for name, is_seen in found.items() if not is_seen] == []


def test_a_generator_of_a_chain_is_part_of_the_identity():
    def repeat(parts):
        for _ in parts:
            yield WEIGHTS["length"]

    measure = of_chain(RunnableGenerator(repeat))
    before = identity(measure)
    WEIGHTS["length"] += 1
    assert identity(measure) != before
