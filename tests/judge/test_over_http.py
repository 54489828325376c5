"""Real clients over HTTP: what each rung sends, how "auto" falls, and what stays of the user's own options.

The servers answer as OfflineJudge does, so every score must be that of the run without a network.
"""

import json
import logging
import traceback
from collections import Counter

import openai
import pytest
from helpers.doors import scores_by
from helpers.each import each
from helpers.offline import BY_LETTERS, EMBEDDED, METRICS, RICH, UNJUDGED, clean, offline, rag_samples, says_the_same
from helpers.servers.chat import Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from langchain_core.runnables import RunnableLambda

from langchain_rageval import Judge, OfflineJudge, evaluate, faithfulness, suite
from langchain_rageval.data.schema import Usage
from langchain_rageval.metrics import BUILDERS, SCORES

MODES = ["json_schema", "function_calling", "json_mode", "prompt"]
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def bodies(server):
    """The chat requests that came, as JSON."""
    return [request.body for request in server.requests if request.path.endswith("/chat/completions")]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class TestEveryRung:
    @pytest.mark.parametrize("mode", MODES)
    def test_each_request_is_one_system_and_one_user_message_and_no_stream(self, endpoint, mode):
        server = endpoint.server(offline, one_user_message=True)
        evaluate(rag_samples(3), faithfulness(Judge(endpoint.model(server), mode=mode)), progress=False)
        assert len(bodies(server)) == 6
        for body in bodies(server):
            assert [message["role"] for message in body["messages"]] == ["system", "user"]
            assert not body.get("stream")

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_streaming_model_is_asked_for_whole_replies(self, endpoint, mode):
        server = endpoint.server(offline)
        metric = faithfulness(Judge(endpoint.model(server, streaming=True), mode=mode))
        (sample,) = rag_samples(1)
        assert says_the_same(metric.invoke(sample), sample)
        events = [event async for event in metric.astream_events(sample)]
        assert says_the_same(events[-1]["data"]["output"], sample)
        assert server.refused == {}


def test_every_builder_of_the_package_is_asked_over_http():
    builders = {score: builder for builder, scores in SCORES.items() for score in scores}
    asked = {builders.get(name, name) for name in METRICS.keys() - {"conciseness", "ndcg@5"}}
    alike = {"aspect_critique", "citations"}  # citations asks what faithfulness asks
    assert asked == set(BUILDERS) - alike - {"conversation_metrics"}  # the samples are no conversations


def test_the_scores_that_are_compared_differ():
    """Or equality with the offline run would prove little."""
    for name in METRICS.keys() - {"conciseness", "abstention", "noise_sensitivity_relevant", *BY_LETTERS}:
        assert len({clean(sample, name).value for sample in [*RICH, *rag_samples(4)]}) > 1, name
    assert all(0 < clean(sample, name).value < 1 for sample in RICH for name in EMBEDDED)


LADDERS = [
    ("openai", []),
    ("openai", ["json_schema"]),
    ("openai", ["json_schema", "function_calling"]),
    ("openai", ["json_schema", "function_calling", "json_mode"]),
    ("gigachat", []),
    ("gigachat", ["function_calling"]),
]


# Rungs that the server lacks, for each mode of the judge.
WAYS = [
    *((kind, mode, []) for kind in ("openai", "gigachat") for mode in MODES),
    *((kind, "auto", lacking) for kind, lacking in LADDERS),
]


OTHERS = sorted(METRICS.keys() - {*UNJUDGED, "answer_correctness"})


class TestEveryMetric:
    """Each metric, on each rung, with the real clients: the score is that of the offline run."""

    @pytest.mark.parametrize(
        "name", ["answer_correctness", *(pytest.param(name, marks=pytest.mark.gate) for name in OTHERS)]
    )
    @pytest.mark.parametrize(("endpoint", "mode", "lacking"), WAYS, ids=str, indirect=["endpoint"])
    async def test_scores_are_those_of_the_offline_run(self, endpoint, mode, lacking, name):
        server = endpoint.server(offline, rungs=set(MODES) - set(lacking), one_user_message=True)
        metric = METRICS[name](Judge(endpoint.model(server), mode=mode), endpoint.embeddings(server))
        usage = await self.check(metric)
        assert usage.calls == server.calls
        assert usage.embedded == len(server.embedder.texts)
        assert server.refused == Counter(lacking)

    @pytest.mark.parametrize(
        ("endpoint", "options"),
        [("openai", {}), ("openai", {"model_kwargs": {"encoding_format": "float"}}), ("gigachat", {})],
        indirect=["endpoint"],
    )
    async def test_similarity_is_that_of_the_offline_run(self, endpoint, options):
        server = endpoint.server(offline)
        usage = await self.check(METRICS["answer_similarity"](None, endpoint.embeddings(server, **options)))
        assert (usage.calls, usage.embedded) == (0, 2 * (3 + 2))
        assert [len(texts) for texts in server.embedder.batches] == [1 + 2, 1 + 2, 1 + 1, 1 + 1]

    async def check(self, metric):
        """Sync and async, both samples; gives what it cost in all."""
        usage = Usage()
        for sample in RICH:
            for score in (metric.invoke(sample), await metric.ainvoke(sample)):
                assert says_the_same(score, sample)
                usage += score.usage
        return usage


class TestAuto:
    @pytest.mark.parametrize("door", ["evaluate", "aevaluate", "suite.batch", "suite.abatch"])
    async def test_sixteen_calls_wait_for_what_the_first_one_finds(self, openai_server, chat_openai, door, caplog):
        server = openai_server(offline, rungs=set(MODES) - {"json_schema"}, latency=0.03)
        samples = rag_samples(16)
        scores = await scores_by(door, samples, [faithfulness(chat_openai(server))])
        assert all(says_the_same(found["faithfulness"], sample) for found, sample in zip(scores, samples, strict=True))
        assert server.refused == {"json_schema": 1}
        assert server.calls == 1 + 2 * 16
        (told,) = warnings(caplog)
        assert "refuses json_schema; asked by function_calling" in told

    def test_what_one_metric_finds_out_serves_all_metrics_of_the_model(self, openai_server, chat_openai):
        server = openai_server(offline, rungs={"prompt"})
        model = chat_openai(server)
        both = suite(faithfulness(model), faithfulness(model, name="again"))
        evaluate(rag_samples(4), both, progress=False)
        assert server.refused == Counter(MODES[:3])


class TestTemplates:
    def test_a_refused_system_role_folds_into_the_human_message(self, endpoint, caplog):
        server = endpoint.server(offline, refuse_system=True)
        samples = rag_samples(4)
        scores = faithfulness(endpoint.model(server)).batch(samples)
        assert all(map(says_the_same, scores, samples))
        assert server.refused == {"refuse_system": 1}
        refused, *answered = bodies(server)
        system = refused["messages"][0]["content"]
        for body in answered:
            (human,) = body["messages"]
            assert human["role"] == "user"
            assert human["content"].startswith(system)
        assert len(warnings(caplog)) == 1

    @pytest.mark.parametrize("refuse_system", [False, True])
    @pytest.mark.parametrize("mode", MODES)
    def test_a_reask_alternates_between_user_and_assistant(self, endpoint, mode, refuse_system):
        faults = Faults.script([None, "malformed"] if refuse_system else ["malformed"])
        server = endpoint.server(offline, one_user_message=True, refuse_system=refuse_system, faults=faults)
        (sample,) = rag_samples(1)
        assert says_the_same(faithfulness(Judge(endpoint.model(server), mode=mode)).invoke(sample), sample)
        head = [] if refuse_system else ["system"]
        asked, again = bodies(server)[refuse_system:][:2]
        assert [message["role"] for message in asked["messages"]] == [*head, "user"]
        assert [message["role"] for message in again["messages"]] == [*head, "user", "assistant", "user"]
        assert again["messages"][: len(asked["messages"])] == asked["messages"]
        assert server.refused == ({"refuse_system": 1} if refuse_system else {})


class TestOwnOptions:
    """What the user set on the model or around it reaches the server on every rung."""

    @pytest.mark.parametrize("mode", MODES)
    async def test_of_the_constructor_and_of_bind(self, openai_server, chat_openai, mode):
        server = openai_server(offline)
        model = chat_openai(server, extra_body=THINKING_OFF, temperature=0.7, max_tokens=900, seed=5)
        await self.check(server, model, mode, {**THINKING_OFF, "temperature": 0.7, "seed": 5})
        server = openai_server(offline)
        model = chat_openai(server, temperature=0.7).bind(extra_body=THINKING_OFF, temperature=0.3, stop=["§"])
        await self.check(server, model, mode, {**THINKING_OFF, "temperature": 0.3, "stop": ["§"]})

    @pytest.mark.parametrize("mode", MODES)
    async def test_behind_retries_and_fallbacks(self, openai_server, chat_openai, mode):
        dead = openai_server(offline, faults=Faults.rates(seed=1, **{"500": 1.0}))
        server = openai_server(offline)
        twice = {"stop_after_attempt": 2, "wait_exponential_jitter": False}
        other = chat_openai(server, extra_body=THINKING_OFF, temperature=0.3)
        model = chat_openai(dead, extra_body=THINKING_OFF).with_retry(**twice).with_fallbacks([other])
        await self.check(server, model, mode, {**THINKING_OFF, "temperature": 0.3})
        assert dead.calls == 2 * server.calls

    @pytest.mark.parametrize("mode", ["auto", "function_calling", "prompt"])
    async def test_fallbacks_keep_what_is_their_own(self, openai_server, chat_openai, mode):
        dead = openai_server(offline, faults=Faults.rates(seed=1, **{"500": 1.0}))
        server = openai_server(offline)
        other = chat_openai(server, extra_body=THINKING_OFF)
        model = chat_openai(dead, extra_body={"top_k": 1}).with_fallbacks([other])
        await self.check(server, model, mode, THINKING_OFF)
        assert all(body["top_k"] == 1 for body in bodies(dead))
        assert not any("top_k" in body for body in bodies(server))

    async def test_of_gigachat(self, gigachat_server, gigachat):
        server = gigachat_server(offline)
        model = gigachat(server, temperature=0.7).bind(top_p=0.3).with_retry(stop_after_attempt=2)
        await self.check(server, model, "auto", {"temperature": 0.7, "top_p": 0.3})

    async def check(self, server, model, mode, expected):
        before = repr(model)
        (sample,) = rag_samples(1)
        metric = faithfulness(Judge(model, mode=mode))
        for score in (metric.invoke(sample), await metric.ainvoke(sample)):
            assert says_the_same(score, sample)
        assert len(bodies(server)) == 4
        for body in bodies(server):
            assert expected.items() <= body.items()
        assert repr(model) == before


class Echo(OpenAIServer):
    """Refuses each request with a message that repeats its headers."""

    def chat(self, received):
        raise Refused(401, f"wrong key: {json.dumps(dict(received.headers))} {received.path}")


@each("is_async", [False, True])
async def test_no_exception_of_a_metric_repeats_a_secret(chat_openai, is_async):
    """Wherever a model carries it: tests/_internal/test_redaction.py."""
    with Echo(offline) as server:
        metric = faithfulness(chat_openai(server, api_key="Zq7tfoobarbaz"))
        with pytest.raises(openai.AuthenticationError) as caught:
            metric.invoke(RICH[0]) if not is_async else await metric.ainvoke(RICH[0])
        texts = ["".join(traceback.format_exception(caught.value)), repr(caught.value), str(caught.value.body)]
        assert "Zq7tfoobarbaz" in json.dumps([dict(request.headers) for request in server.requests])
        assert not [text for text in texts if "Zq7tfoobarbaz" in text]
        assert "wrong key: " in str(caught.value)
        assert "***" in str(caught.value)


class TakesAnyOption(RunnableLambda):
    """As the model of `init_chat_model(configurable_fields="any")`, which takes any configurable value."""

    def invoke(self, input, config=None, **options):
        assert config.get("configurable", {}) == {"model": "m"}
        return OfflineJudge().invoke(input)


def test_a_model_that_takes_any_configurable_option_gets_those_of_the_user_only():
    metric = faithfulness(TakesAnyOption(lambda texts: texts)).with_config(configurable={"model": "m"})
    assert metric.invoke(RICH[0]).value == clean(RICH[0]).value
