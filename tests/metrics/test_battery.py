"""What holds for every metric; a new one is a line in METRICS of helpers/offline.py."""

import inspect
import json
import re
import time
from functools import cache, partial
from typing import Any

import pytest
from helpers.each import cases_of, each, rules_of
from helpers.offline import EMBEDDED, UNJUDGED, Build, claim_score, offline
from helpers.offline import METRICS as BUILDERS_BY_SCORE
from helpers.samples import ANSWER, CONTEXTS, DOCUMENTS, QUESTION, SAMPLE
from helpers.scripted import Vectors, broken_judge, human_of, recording_judge
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    JudgeOutputError,
    OfflineJudge,
    PromptSet,
    Sample,
    Score,
    aevaluate,
    aspect_critique,
    claim_metrics,
    evaluate,
    jury,
)
from langchain_rageval.metrics import ASPECTS, BUILDERS, SCORES
from langchain_rageval.metrics.structure import collect_scores
from langchain_rageval.testing import MetricTests
from langchain_rageval.testing.hostile_judges import HOSTILE, insert_everywhere
from langchain_rageval.testing.hostile_judges import SAMPLE as EVERY_FIELD

METRICS: dict[str, Build] = {
    **BUILDERS_BY_SCORE,
    "coherence": partial(aspect_critique, aspect="coherence"),
    "claim_context_precision": partial(claim_score, "claim_context_precision"),
}
"""Name of the score to what builds the metric from a judge: all builders, and two more scores of two of them."""

JUDGED = [name for name in METRICS if name not in UNJUDGED]
every_metric = each("build", METRICS.values(), ids=METRICS)
every_judged_metric = each("build", [METRICS[name] for name in JUDGED], ids=JUDGED)
with_embeddings = each("embed", [partial(METRICS[name], OfflineJudge()) for name in EMBEDDED], ids=EMBEDDED)


REFERENCE = "Munich was founded in 1158."
FULL: dict[str, Any] = {**SAMPLE, "references": [REFERENCE], "reference_contexts": CONTEXTS[:1]}
FULL |= {"context_ids": ["d1", "d2"], "reference_context_ids": ["d1"], "relevance": {"d1": 1.0}}


def what_was_found(score: Score) -> dict[str, Any]:
    """All of a score but the time it took."""
    return score.model_dump(exclude={"usage": {"seconds"}})


def test_the_battery_holds_every_metric_of_the_package():
    aspects = [name for name in METRICS if name in ASPECTS]
    assert len(aspects) >= 2
    builders = {score: builder for builder, scores in SCORES.items() for score in scores}
    others = METRICS.keys() - {*aspects, "ndcg@5"}
    elsewhere = {"aspect_critique", "citations", "conversation_metrics"}  # their samples are in tests of their own
    assert {builders.get(name, name) for name in others} | elsewhere == set(BUILDERS)
    for name, build in METRICS.items():
        assert build(OfflineJudge()).name == name
        assert build(OfflineJudge(), name="mine").invoke(FULL).metric == "mine"


# test_hostile_content_stays_data is held below, with more about the requests
OF_BATCHES = [
    "test_scores_keep_the_order_of_the_samples_when_the_first_takes_longest",
    "test_two_bad_samples_in_a_batch_do_not_affect_a_third",
]
RULES = [rule for rule in rules_of(MetricTests) if rule not in ("test_hostile_content_stays_data", *OF_BATCHES)]


def passes(rule, build):
    test = getattr(MetricTests(), rule)
    fields = {"fields": dict(EVERY_FIELD)} if "fields" in inspect.signature(test).parameters else {}
    for case in cases_of(test):
        try:
            test(build(OfflineJudge()), **fields, **case)
        except pytest.skip.Exception as reason:
            raise AssertionError(f"skipped for {case}: {reason}") from reason


@pytest.mark.parametrize("rule", RULES)
@every_metric
def test_every_metric_passes_the_public_tests(rule, build):
    passes(rule, build)


@pytest.mark.parametrize("rule", OF_BATCHES)
@each("name", ["faithfulness", "answer_correctness", "answer_similarity", "claim_f1", "ndcg@5", "rouge"])
def test_a_metric_of_each_kind_passes_the_public_tests_of_batches(rule, name):
    passes(rule, METRICS[name])


class TestClaimMetrics(MetricTests):
    """Twelve scores from one claim graph, of metrics that share steps."""

    metric = claim_metrics(OfflineJudge())


@every_judged_metric
async def test_a_judge_that_fails_raises_from_invoke_and_is_a_failure_elsewhere(build):
    metric = build(Judge(broken_judge(), attempts=2))
    with pytest.raises(JudgeOutputError):
        metric.invoke(FULL)
    with pytest.raises(JudgeOutputError):
        await metric.ainvoke(FULL)
    reports = [evaluate([FULL], metric, progress=False), await aevaluate([FULL], metric, progress=False)]
    scores = [report.rows[0].scores[metric.name] for report in reports]
    scores.append(metric.as_node().invoke(FULL)[metric.name])
    at_once = 2 if metric.name == "answer_correctness" else 1  # the answer's and the reference's statements
    for score in scores:
        assert (score.value, score.unscored, score.failure.error) == (None, None, "JudgeOutputError")
        assert score.failure.raw_output == "I would rather not."
        assert score.usage.calls in (2, 2 * at_once)
    feedback = metric(inputs={"question": QUESTION}, outputs=ANSWER, reference_outputs=REFERENCE, context=DOCUMENTS)
    assert feedback["score"] is None
    assert feedback["comment"].startswith("JudgeOutputError: ")


@with_embeddings
async def test_embeddings_that_fail_raise_from_invoke_and_are_a_failure_elsewhere(embed):
    def down(_text: str) -> Any:
        raise ConnectionError("the embedder is down")

    metric = embed(Vectors(answer=down))
    with pytest.raises(ConnectionError):
        metric.invoke(FULL)
    with pytest.raises(ConnectionError):
        await metric.ainvoke(FULL)
    score = metric.as_node().invoke(FULL)[metric.name]
    assert (score.value, score.failure.error, score.failure.step) == (None, "ConnectionError", "measure_similarity")


# Hostile content


def numbers_at_line_starts(messages: list[Any]) -> list[str]:
    return re.findall(r"^\[(\d+(?:\.\d+)?)\]", human_of(messages), re.MULTILINE)


@cache
def systems_of(build: Build) -> set[str]:
    """Return the system messages of a metric for a sample without hostile content."""
    build(judge := recording_judge()).invoke(FULL)
    return {messages[0].text for messages in judge.asked}


async def stays_data(build, text, systems):
    judge = recording_judge()
    metric, sample = build(judge), insert_everywhere(text)
    parsed = Sample(**sample)
    score = metric.invoke(sample)

    assert what_was_found(await metric.ainvoke(sample)) == what_was_found(score)
    assert score.failure is None
    assert Score.model_validate_json(score.model_dump_json()) == score
    feedback = json.dumps(score.feedback(text), ensure_ascii=False, allow_nan=False)
    assert json.loads(feedback.encode("utf-8", "replace"))

    assert systems == {messages[0].text for messages in judge.asked}
    for messages, inputs in zip(judge.asked, judge.inputs, strict=True):
        assert [message.type for message in messages] == ["system", "human"]
        assert text not in messages[0].text
        if "question" in inputs:
            assert inputs["question"] == parsed.question
        if "answer" in inputs:
            assert inputs["answer"] in (parsed.answer, *parsed.references)
        numbers = numbers_at_line_starts(messages)
        assert len(numbers) == len(set(numbers))
        assert {number.split(".")[0] for number in numbers} <= {"1", "2", "3"}
    known = {number for messages in judge.asked for number in numbers_at_line_starts(messages)}
    assert {number for finding in score.findings for number in finding.cites} <= known


@pytest.mark.parametrize(
    "names", [pytest.param([*HOSTILE][2::4], id="some"), pytest.param([*HOSTILE], id="all", marks=pytest.mark.gate)]
)
@every_metric
async def test_hostile_content_stays_data_in_every_field(build, names):
    texts = [HOSTILE[name] for name in names]
    await each("text", texts, ids=names)(stays_data)(build=build, systems=systems_of(build))


OFFLINE = [build(OfflineJudge()) for build in METRICS.values()]
ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]) | st.sampled_from('[]{}1.\n\r\u2028"`'))


@settings(max_examples=min(settings.default.max_examples, 100))  # each is scored by all metrics
@given(text=ANY_TEXT, contexts=st.lists(ANY_TEXT, max_size=3))
def test_no_text_makes_a_metric_fail(text, contexts):
    names = {"context_ids": None, "reference_context_ids": None, "relevance": None}
    sample = insert_everywhere(text) | names | {"contexts": contexts}
    for metric in OFFLINE:
        (score,) = collect_scores(metric, sample).values()
        assert score.failure is None, metric.name
        assert score.value is None or 0 <= score.value <= 1, metric.name
        assert Score.model_validate_json(score.model_dump_json()) == score


CONTEXT_METRICS = [name for name in METRICS if name.startswith("context_")]
LONG = {"abbreviations": ("т.д. ", 40_000), "brackets": ("{[1.1]} ", 40_000), "one word": ("a", 250_000)}
LONG["thousands of statements"] = ("Elephants live there.\n", 40_000)


@pytest.mark.gate
@each("name", METRICS)
@each("unit, size", LONG.values(), ids=LONG)
def test_a_long_text_takes_linear_time(name, unit, size):
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        long = {"contexts": [*CONTEXTS, text]} if name in CONTEXT_METRICS else {"answer": text}
        started = time.process_time()
        METRICS[name](OfflineJudge()).invoke({**FULL, **long})
        return time.process_time() - started

    seconds(1_000)  # what is loaded once
    # 4 when linear, 16 when quadratic
    tries = (seconds(size) < 9 * max(seconds(size // 4), 0.05) for _ in range(3))
    assert any(tries)  # a busy machine's caches may be cold in one of them


# The user's objects


def state_of(model: BaseChatModel) -> dict[str, tuple[int, str]]:
    """What a model holds, and which objects these are."""
    assert model._serialized  # LangChain's own cache, filled by the first call of any model
    held = {**model.__dict__, **(model.__pydantic_private__ or {}), "set": sorted(model.model_fields_set)}
    return {name: (id(value) if name != "set" else 0, repr(value)) for name, value in held.items()}


@pytest.mark.gate
@every_judged_metric
async def test_the_users_model_is_not_changed(build, openai_server, chat_openai, gigachat_server, gigachat):
    openai = chat_openai(openai_server(offline, rungs={"prompt"}, refuse_system=True), extra_body={"top_k": 1})
    for model in (openai, gigachat(gigachat_server(offline, rungs={"prompt"}))):
        before = state_of(model)
        metric = build(Judge(model, draws=3, attempts=2))
        metric.invoke(FULL)
        await metric.ainvoke(FULL)
        assert state_of(model) == before


@with_embeddings
async def test_the_users_embeddings_are_not_changed(embed, openai_server, openai_embeddings):
    model = openai_embeddings(openai_server(offline))
    before = {name: (id(value), repr(value)) for name, value in model.__dict__.items()}
    metric = embed(model)
    score = metric.invoke(FULL)
    assert what_was_found(await metric.ainvoke(FULL)) == what_was_found(score)
    assert score.usage.embedded
    assert {name: (id(value), repr(value)) for name, value in model.__dict__.items()} == before


@with_embeddings
def test_the_instrument_tells_embeddings_apart(embed):
    one, other = HashingEmbeddings(), HashingEmbeddings(size=64)
    assert embed(one).instrument == embed(HashingEmbeddings()).instrument != embed(other).instrument


@with_embeddings
@each("model", [None, "openai:small", OfflineJudge()], ids=["None", "str", "judge"])
def test_what_cannot_embed_is_refused_when_the_metric_is_built(embed, model):
    with pytest.raises(ConfigError, match=r"embeddings|Embeddings"):
        embed(model)


@every_metric
async def test_a_misspelt_option_is_an_error_everywhere(build):
    metric = build(OfflineJudge())
    with pytest.raises(TypeError, match="nmae"):
        build(OfflineJudge(), nmae="mine")
    with pytest.raises(TypeError, match="confg"):
        metric.invoke(FULL, confg={})
    with pytest.raises(TypeError, match="confg"):
        await metric.ainvoke(FULL, confg={})
    with pytest.raises(TypeError, match="mising"):
        metric.require(0.5, mising="pass")


@every_judged_metric
def test_a_judge_that_is_none_is_refused_when_the_metric_is_built(build):
    with pytest.raises(ConfigError, match="a judge is a chat model or another Runnable, got str"):
        build("openai:gpt-5")


# What a metric tells of itself


@every_judged_metric
def test_the_instrument_changes_with_whatever_could_change_a_score(build):
    options = [{"language": "ru"}, {"attempts": 2}, {"draws": 3}, {"layout": "shared_instructions"}, {"mode": "prompt"}]
    options += [{"max_statements": 3}, {"max_context_tokens": 100}]
    options += [{"prompts": PromptSet.default(language)} for language in ("en", "ru")]
    judges = [OfflineJudge(), *(Judge(OfflineJudge(), **one) for one in options)]
    judges += [recording_judge(), jury([OfflineJudge()] * 3)]
    assert len({build(judge).instrument for judge in judges}) == len(judges)
    assert build(OfflineJudge()).instrument == build(OfflineJudge()).instrument


@every_metric
def test_a_metric_has_a_schema_and_a_graph_that_names_its_steps(build):
    metric = build(OfflineJudge())
    assert metric.get_output_jsonschema()["title"] == "Score"
    drawn = metric.get_graph().draw_mermaid()
    steps: Runnable[Any, Any] = metric.steps
    for step in getattr(steps, "steps", [steps]):
        for stage in getattr(step, "stages", [step]):
            assert stage.get_name() in drawn
    reduce = metric.reduce.func if isinstance(metric.reduce, partial) else metric.reduce
    assert reduce.__name__ in drawn
