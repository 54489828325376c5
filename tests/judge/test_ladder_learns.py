"""What an endpoint's failures and replies teach about the formats that it follows.

The servers do what real ones do: llama-cpp-python's fails on a JSON schema, `transformers serve` ignores each format.
"""

import pytest
from helpers.offline import offline, rag_samples, says_the_same
from helpers.servers.chat import Faults

from langchain_rageval import Judge, RetryPolicy, aevaluate, evaluate, faithfulness
from langchain_rageval.errors import JudgeOutputError

CALM = RetryPolicy(initial=0, max_wait=0)
PROSE = "I think that the answer is fine."


def in_words(request):
    """Answer as a model does whose server ignores each format: in prose, unless the prompt shows the schema."""
    return offline(request) if request.schema_title else PROSE


def scores(report):
    return [row.scores["faithfulness"] for row in report.rows]


async def through_evaluate(metric, samples, **options):
    return evaluate(samples, metric, progress=False, retry=CALM, **options)


async def through_aevaluate(metric, samples, **options):
    return await aevaluate(samples, metric, progress=False, retry=CALM, **options)


DOORS = pytest.mark.parametrize("door", [through_evaluate, through_aevaluate])


class TestServerErrors:
    @DOORS
    async def test_a_server_that_fails_on_a_json_schema_is_called_by_functions(self, openai_server, chat_openai, door):
        server = openai_server(offline, failing={"json_schema"})
        judge, samples = Judge(chat_openai(server)), rag_samples(8)
        report = await door(faithfulness(judge), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert server.calls == 2 + 2 * len(samples)
        assert report.notes == [
            f"{judge.identity} was called in function_calling mode: it answers json_schema with HTTP 500."
        ]

    @DOORS
    async def test_each_rung_is_tried(self, openai_server, chat_openai, door):
        server = openai_server(offline, failing={"json_schema", "function_calling", "json_mode"})
        samples = rag_samples(2)
        report = await door(faithfulness(chat_openai(server)), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert server.refused == {"json_schema": 2, "function_calling": 1, "json_mode": 1}

    def test_a_server_may_fail_on_one_rung_and_refuse_another(self, openai_server, chat_openai):
        server = openai_server(offline, failing={"json_schema"}, rungs={"json_schema", "json_mode", "prompt"})
        judge, samples = Judge(chat_openai(server)), rag_samples(2)
        report = evaluate(samples, faithfulness(judge), progress=False)
        assert all(map(says_the_same, scores(report), samples))
        assert judge._endpoint.capabilities.mode.rung == "json_mode"

    def test_a_passing_server_error_does_not_lower_the_rung(self, openai_server, chat_openai):
        server = openai_server(offline, faults=Faults.script(["500"]))
        judge, samples = Judge(chat_openai(server)), rag_samples(2)
        report = evaluate(samples, faithfulness(judge), progress=False, retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in json_schema mode."]

    @DOORS
    async def test_an_outage_on_all_rungs_does_not_lower_the_rung(self, openai_server, chat_openai, door):
        server = openai_server(offline, faults=Faults.script(["500"] * 8))
        judge, samples = Judge(chat_openai(server)), rag_samples(4)
        report = await door(faithfulness(judge), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in json_schema mode."]

    def test_after_a_valid_reply_a_server_error_is_retried_in_the_same_mode(self, openai_server, chat_openai):
        server = openai_server(offline, faults=Faults.script([None, "500", "500", "500"]))
        judge, samples = Judge(chat_openai(server)), rag_samples(2)
        report = evaluate(samples, faithfulness(judge), progress=False, retry=CALM, max_concurrency=1)
        assert all(map(says_the_same, scores(report), samples))
        assert judge._endpoint.capabilities.mode.rung == "json_schema"

    def test_a_server_error_after_a_rate_limit_lowers_the_rung(self, openai_server, chat_openai):
        server = openai_server(offline, failing={"json_schema"}, faults=Faults.script(["429"], retry_after="0"))
        judge, samples = Judge(chat_openai(server)), rag_samples(2)
        report = evaluate(samples, faithfulness(judge), progress=False, retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert judge._endpoint.capabilities.mode.rung == "function_calling"

    def test_a_rung_that_the_user_chose_is_retried(self, openai_server, chat_openai):
        server = openai_server(offline, faults=Faults.script(["500", "500", "500"]))
        samples = rag_samples(1)
        metric = faithfulness(Judge(chat_openai(server), mode="json_schema"))
        report = evaluate(samples, metric, progress=False, retry=CALM)
        assert all(map(says_the_same, scores(report), samples))


class TestIgnoredFormats:
    @DOORS
    async def test_a_server_that_ignores_each_format_is_shown_the_schema(self, openai_server, chat_openai, door):
        server = openai_server(in_words, ignored={"json_schema", "function_calling", "json_mode"})
        judge, samples = Judge(chat_openai(server)), rag_samples(8)
        report = await door(faithfulness(judge), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert server.calls == 2 + 2 * len(samples)
        assert report.notes == [
            f"{judge.identity} was called in json_mode mode: it ignores json_schema, ignores function_calling."
        ]

    def test_valid_json_of_another_shape_shows_that_a_schema_is_ignored(self, openai_server, chat_openai):
        def other_shape(request):
            return offline(request) if request.rung != "prompt" or request.schema_title else {"facts": ["A.", "B."]}

        server = openai_server(other_shape, ignored={"json_schema"})
        judge, samples = Judge(chat_openai(server)), rag_samples(3)
        report = evaluate(samples, faithfulness(judge), progress=False)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in function_calling mode: it ignores json_schema."]

    def test_a_server_that_fills_functions_with_anything_is_asked_in_words(self, openai_server, chat_openai):
        def anything(request):
            return offline(request) if request.rung == "prompt" and request.schema_title else {"foo": 1}

        server = openai_server(anything, ignored={"json_schema", "json_mode"})
        judge, samples = Judge(chat_openai(server), attempts=6), rag_samples(6)
        report = evaluate(samples, faithfulness(judge), progress=False)
        assert all(map(says_the_same, scores(report), samples))
        assert judge._endpoint.capabilities.mode.rung in ("json_mode", "prompt")
        assert server.calls <= 24

    def test_with_one_attempt_the_next_sample_starts_on_the_next_rung(self, openai_server, chat_openai):
        server = openai_server(in_words, ignored={"json_schema", "function_calling"})
        metric = faithfulness(Judge(chat_openai(server), attempts=1))
        samples = rag_samples(3)
        for sample in samples[:2]:
            with pytest.raises(JudgeOutputError):
                metric.invoke(sample)
        assert says_the_same(metric.invoke(samples[2]), samples[2])

    def test_a_broken_reply_does_not_show_that_the_format_is_ignored(self, openai_server, chat_openai):
        server = openai_server(offline, faults=Faults.script(["malformed"]))
        judge, (sample,) = Judge(chat_openai(server)), rag_samples(1)
        assert says_the_same(faithfulness(judge).invoke(sample), sample)
        assert judge._endpoint.capabilities.mode.rung == "json_schema"

    def test_a_called_function_with_wrong_arguments_is_asked_again_on_the_same_rung(self, openai_server, chat_openai):
        server = openai_server(
            offline, rungs={"function_calling", "prompt"}, faults=Faults.script([None, "wrong_type"])
        )
        judge, (sample,) = Judge(chat_openai(server)), rag_samples(1)
        assert says_the_same(faithfulness(judge).invoke(sample), sample)
        assert judge._endpoint.capabilities.mode.rung == "function_calling"

    def test_after_a_valid_reply_a_wrong_one_is_asked_again_in_the_same_mode(self, openai_server, chat_openai):
        server = openai_server(offline, faults=Faults.script([None, "wrong_type"]))
        judge, (sample,) = Judge(chat_openai(server)), rag_samples(1)
        assert says_the_same(faithfulness(judge).invoke(sample), sample)
        assert judge._endpoint.capabilities.mode.rung == "json_schema"


class TestFallbacks:
    @DOORS
    async def test_do_not_hide_that_the_first_model_refuses_a_format(self, openai_server, chat_openai, door):
        first = openai_server(offline, rungs={"function_calling", "prompt"})
        second = openai_server(offline)
        model = chat_openai(first, model="cheap").with_fallbacks([chat_openai(second, model="dear")])
        judge, samples = Judge(model), rag_samples(4)
        report = await door(faithfulness(judge), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert (first.calls, second.calls) == (1 + 2 * len(samples), 0)
        assert report.notes == [f"{judge.identity} was called in function_calling mode."]

    @DOORS
    async def test_answer_if_the_first_model_fails_otherwise(self, openai_server, chat_openai, door):
        first = openai_server(offline, faults=Faults.rates(seed=1, unauthorized=1.0))
        second = openai_server(offline)
        judge = Judge(chat_openai(first).with_fallbacks([chat_openai(second)]).bind(seed=1))
        samples = rag_samples(3)
        report = await door(faithfulness(judge), samples)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in json_schema mode."]
        assert second.calls == 2 * len(samples)
