"""What an endpoint's failures and replies teach about the formats that it follows.

The servers do what real ones do: llama-cpp-python's fails on a JSON schema, `transformers serve` ignores each format.
"""

import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.offline import offline, rag_samples, says_the_same
from helpers.servers.chat import Faults

from langchain_rageval import Judge, RetryPolicy, evaluate, faithfulness
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.ladder import RUNGS

CALM = RetryPolicy(initial=0, max_wait=0)
PROSE = "I think that the answer is fine."


def in_words(request):
    """Answer as a model does whose server ignores each format: in prose, unless the prompt shows the schema."""
    return offline(request) if request.schema_title else PROSE


def scores(report):
    return [row.scores["faithfulness"] for row in report.rows]


DOORS = pytest.mark.parametrize("door", ["evaluate", "aevaluate"])


def other_shape(request):
    return offline(request) if request.rung != "prompt" or request.schema_title else {"facts": ["A.", "B."]}


FORMATS = {"json_schema", "function_calling", "json_mode"}
FAILS = "answers {} with HTTP 500"
CASES = {  # options of the server, faults in order, number of samples, number of calls, and what the note says
    "it fails on a JSON schema": ({"failing": {"json_schema"}}, [], 8, 18, "function_calling", [FAILS]),
    "it fails on each format": ({"failing": FORMATS}, [], 2, 8, "prompt", [FAILS] * 3),
    "it fails on one rung and refuses another": (
        *({"failing": {"json_schema"}, "rungs": {"json_schema", "json_mode", "prompt"}}, [], 2, 7),
        *("json_mode", [FAILS]),
    ),
    "a passing server error": ({}, ["500"], 2, 5, "json_schema", []),
    "an outage on all rungs": ({}, ["500"] * 8, 4, None, "json_schema", []),
    "server errors after a valid reply": ({}, [None, "500", "500", "500"], 2, 7, "json_schema", []),
    "a server error after a rate limit": ({"failing": {"json_schema"}}, ["429"], 2, 9, "function_calling", [FAILS]),
    "it ignores each format": (
        *({"reply": in_words, "ignored": FORMATS}, [], 8, 18),
        *("json_mode", ["ignores {}", "ignores {}"]),
    ),
    "valid JSON of another shape": (
        *({"reply": other_shape, "ignored": {"json_schema"}}, [], 3, 7),
        *("function_calling", ["ignores {}"]),
    ),
    "a broken reply": ({}, ["malformed"], 1, 3, "json_schema", []),
    "a called function with wrong arguments": (
        *({"rungs": {"function_calling", "prompt"}}, [None, "wrong_type"], 1, 4),
        *("function_calling", []),
    ),
    "a broken reply after a valid one": ({}, [None, "malformed"], 1, 3, "json_schema", []),
}


@DOORS
@each("name", CASES)
async def test_an_endpoint_is_asked_in_the_best_way_that_it_follows(openai_server, chat_openai, door, name):
    options, faults, count, calls, rung, reasons = CASES[name]
    server = openai_server(**{"reply": offline, **options}, faults=Faults.script(faults, retry_after="0"))
    judge, samples = Judge(chat_openai(server)), rag_samples(count)
    report = await report_by(door, samples, faithfulness(judge), retry=CALM, max_concurrency=1)
    assert all(map(says_the_same, scores(report), samples))
    left = ", ".join(reason.format(one) for reason, one in zip(reasons, RUNGS, strict=False))
    assert report.notes == [f"{judge.identity} was called in {rung} mode{f': it {left}' if left else ''}."]
    assert server.calls == calls or calls is None


def test_a_rung_that_the_user_chose_is_retried(openai_server, chat_openai):
    server = openai_server(offline, faults=Faults.script(["500", "500", "500"]))
    samples = rag_samples(1)
    report = evaluate(samples, faithfulness(Judge(chat_openai(server), mode="json_schema")), progress=False, retry=CALM)
    assert all(map(says_the_same, scores(report), samples))


class TestIgnoredFormats:
    def test_with_one_attempt_the_next_sample_starts_on_the_next_rung(self, openai_server, chat_openai):
        server = openai_server(in_words, ignored={"json_schema", "function_calling"})
        metric = faithfulness(Judge(chat_openai(server), attempts=1))
        samples = rag_samples(3)
        for sample in samples[:2]:
            with pytest.raises(JudgeOutputError):
                metric.invoke(sample)
        assert says_the_same(metric.invoke(samples[2]), samples[2])


class TestFallbacks:
    @DOORS
    async def test_do_not_hide_that_the_first_model_refuses_a_format(self, openai_server, chat_openai, door):
        first = openai_server(offline, rungs={"function_calling", "prompt"})
        second = openai_server(offline)
        model = chat_openai(first, model="cheap").with_fallbacks([chat_openai(second, model="dear")])
        judge, samples = Judge(model), rag_samples(4)
        report = await report_by(door, samples, faithfulness(judge), retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert (first.calls, second.calls) == (1 + 2 * len(samples), 0)
        assert report.notes == [f"{judge.identity} was called in function_calling mode."]

    @DOORS
    async def test_answer_if_the_first_model_fails_otherwise(self, openai_server, chat_openai, door):
        first = openai_server(offline, faults=Faults.rates(seed=1, unauthorized=1.0))
        second = openai_server(offline)
        judge = Judge(chat_openai(first).with_fallbacks([chat_openai(second)]).bind(seed=1))
        samples = rag_samples(3)
        report = await report_by(door, samples, faithfulness(judge), retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in json_schema mode."]
        assert second.calls == 2 * len(samples)
