"""Schemas that name what is possible for a request: which servers get them, and what they say."""

import json

import pytest
from helpers.each import each
from helpers.offline import METRICS, RICH, offline, rag_samples, says_the_same
from helpers.servers.endpoints import OpenAIServer
from helpers.stored import assert_stored

from langchain_rageval import HashingEmbeddings, Judge, faithfulness
from langchain_rageval.judge.ladder import CLIENTS
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, AnswerLimits, narrow_schema

LLAMA_CPP = {"build": "b7012-1a2b3c4d"}
VLLM = {"number": lambda number: f"chatcmpl-{number:032x}"}
SGLANG = {"number": lambda number: f"{number:032x}"}
LLAMA_CPP_PYTHON = {"number": lambda number: f"chatcmpl-{number:08x}-0000-4000-8000-000000000000"}
OPENAI = {"build": "fp_44709d6fcb", "number": lambda number: f"chatcmpl-Bq{number:027d}"}


def sent_schemas(server):
    """Return the schemas that came in requests for a JSON schema, in order."""
    formats = [request.body.get("response_format") or {} for request in server.requests]
    return [wanted["json_schema"]["schema"] for wanted in formats if wanted.get("type") == "json_schema"]


def is_plain(schema):
    return schema == json.loads(json.dumps(strict_schema(CLASSES[schema["title"]])))


CLASSES = {answer.__name__: answer for answer in ANSWER_SCHEMAS.values()}


@pytest.mark.parametrize(
    ("kind", "options", "plain"),
    [
        *((kind, {}, [True, False, False, False]) for kind in (LLAMA_CPP, {"build": "b0-unknown"}, VLLM)),
        (LLAMA_CPP, {"mode": "json_schema"}, [True, False, False, False]),
        *((kind, {}, [True] * 4) for kind in (OPENAI, SGLANG, LLAMA_CPP_PYTHON, {})),
        (OPENAI, {"grammar": True}, [False] * 4),
        (LLAMA_CPP, {"grammar": False}, [True] * 4),
    ],
    ids=[
        *("llama.cpp", "without git", "vLLM", "chosen mode", "OpenAI", "SGLang", "python", "unknown"),
        *("the user says yes", "the user says no"),
    ],
)
def test_a_server_gets_the_schemas_of_requests_once_it_is_known_to_build_grammars(
    openai_server, chat_openai, kind, options, plain
):
    server = openai_server(offline, **kind)
    metric = faithfulness(Judge(chat_openai(server), **options))
    for sample in rag_samples(2):
        assert says_the_same(metric.invoke(sample), sample)
    assert [is_plain(schema) for schema in sent_schemas(server)] == plain


def test_local_servers_are_known_to_build_a_grammar_for_each_request():
    assert {name for name, family in CLIENTS.items() if family.grammar} == {"ChatOllama", "ChatLlamaCpp"}


def test_a_server_that_refuses_the_schema_of_a_request_gets_that_of_the_answer_on_the_same_rung(chat_openai, caplog):
    class OldServer(OpenAIServer):
        def _check(self, request):
            super()._check(request)
            if "prefixItems" in json.dumps(request.schema):
                self._refuse("prefixItems", "failed to parse grammar")

    with OldServer(offline, **LLAMA_CPP) as server:
        metric = faithfulness(Judge(chat_openai(server)))
        for sample in rag_samples(3):
            assert says_the_same(metric.invoke(sample), sample)
        assert server.refused == {"prefixItems": 1}
        assert len(sent_schemas(server)) == 1 + 2 * 3
        assert caplog.records == []


@each(
    "name",
    [
        *("abstention", "answer_correctness", "answer_relevance", "claim_f1", "conciseness", "context_entity_recall"),
        *("context_precision", "context_relevance", "ndcg@5", "rubric"),
    ],
)
def test_the_answers_of_each_metric_are_possible_under_its_schemas(chat_openai, name):
    class Checking(OpenAIServer):
        def _ask(self, request):
            answer = super()._ask(request)
            check(request.schema, answer.value, request.schema.get("$defs", {}))
            return answer

    with Checking(offline, **LLAMA_CPP) as server:
        metric = METRICS[name](Judge(chat_openai(server), mode="json_schema"), HashingEmbeddings())
        for sample in RICH:
            assert says_the_same(metric.invoke(sample), sample)
        assert not all(map(is_plain, sent_schemas(server)))


def check(schema, value, definitions):
    """Assert that a value fits a schema, as far as this package uses JSON schema."""
    if "$ref" in schema:
        return check(definitions[schema["$ref"].rpartition("/")[2]], value, definitions)
    if "const" in schema or "enum" in schema:
        assert value in schema.get("enum", [schema.get("const")])
    elif schema["type"] == "object":
        assert list(value) == list(schema["properties"])
        for name, field in schema["properties"].items():
            check(field, value[name], definitions)
    elif schema["type"] == "array":
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        items = schema.get("prefixItems") or [schema["items"]] * len(value)
        for item, field in zip(value, items, strict=True):
            check(field, item, definitions)
    elif schema["type"] == "string":
        assert len(value) <= schema.get("maxLength", len(value))
    return None


def test_numbers_are_fixed_item_by_item_and_sentences_are_an_enum():
    limits = AnswerLimits(items=("verdicts", "statement", (1, 2)), values=(("evidence", ("1.1", "2.1")),))
    narrowed = narrow_schema(strict_schema(CLASSES["Verdicts"]), limits)
    assert_stored("narrowed_verdicts.json", json.dumps(narrowed, indent=1) + "\n")


def test_schemas_of_requests_of_one_shape_are_one_object():
    schema = strict_schema(CLASSES["NeededSentences"])
    one, same = (narrow_schema(schema, AnswerLimits(values=(("sentences", ("1.1", "1.2")),))) for _ in range(2))
    assert one is same
    assert one != schema


@each(("tokens", "length"), [(None, 400), (4096, 400), (1200, 400), (600, 200), (300, 100), (10, 100)])
def test_reasons_are_shorter_if_the_reply_would_be_cut_off(tokens, length):
    limits = AnswerLimits(items=("verdicts", "context", (1, 2, 3, 4)))
    narrowed = narrow_schema(strict_schema(CLASSES["ContextVerdicts"]), limits, tokens)
    assert narrowed["$defs"]["reason"] == {"type": "string", "maxLength": length}


def test_the_length_limit_of_the_model_counts(openai_server, chat_openai):
    server = openai_server(offline, **LLAMA_CPP)
    metric = METRICS["context_precision"](Judge(chat_openai(server, max_tokens=150)), HashingEmbeddings())
    metric.invoke(RICH[0])
    metric.invoke(RICH[1])
    assert sent_schemas(server)[-1]["$defs"]["reason"]["maxLength"] == 100
