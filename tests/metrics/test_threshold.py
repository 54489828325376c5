from functools import partial
from typing import Any

import pytest
from helpers.each import each
from helpers.offline import unfaithfulness
from helpers.samples import ANSWER, QUESTION, REFUSAL, SAMPLE, TRUE_SAMPLE, rag_chain
from helpers.scripted import broken_judge
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableLambda

from langchain_rageval import BelowThreshold, ConfigError, OfflineJudge, SampleError, Score, faithfulness
from langchain_rageval.metrics.adapters import reaches

metric = faithfulness(OfflineJudge())  # 0.5 on SAMPLE, 1.0 on TRUE_SAMPLE, unscored on REFUSAL
broken = faithfulness(broken_judge())
KEEP = RunnableLambda(lambda given: ("kept", given), name="keep")
DROP = RunnableLambda(lambda given: ("dropped", given), name="drop")


VALUES = st.floats(0, 1)


@given(VALUES, VALUES)
def test_lower_is_better_turns_the_comparison_around(value, threshold):
    assert reaches(value, threshold, "higher") == reaches(-value, -threshold, "lower")
    assert reaches(value, value, "higher")
    assert reaches(value, value, "lower")
    assert reaches(value, threshold, "higher") or reaches(threshold, value, "higher")


@each(("threshold", "passes"), [(0.49, True), (0.5, True), (0.51, False)])
async def test_require_passes_its_input_on_when_the_threshold_is_reached(threshold, passes):
    gate = metric.require(threshold)
    if passes:
        assert gate.invoke(SAMPLE) is SAMPLE
        assert await gate.ainvoke(SAMPLE) is SAMPLE
        return
    with pytest.raises(BelowThreshold) as caught:
        gate.invoke(SAMPLE)
    with pytest.raises(BelowThreshold):
        await gate.ainvoke(SAMPLE)
    assert isinstance(caught.value.score, Score)
    assert (caught.value.score.value, caught.value.threshold) == (0.5, threshold)
    reason = metric.invoke(SAMPLE).reason
    assert str(caught.value) == f"faithfulness is 0.500, at least 0.51 is required: {reason}"


async def test_when_lower_is_better_the_threshold_is_a_ceiling():
    lower = unfaithfulness(OfflineJudge())
    assert lower.require(0.5).invoke(SAMPLE) is SAMPLE
    assert await lower.require(0.6).ainvoke(SAMPLE) is SAMPLE
    with pytest.raises(BelowThreshold, match=r"unfaithfulness is 0\.500, at most 0\.4 is required"):
        lower.require(0.4).invoke(SAMPLE)
    assert lower.route(0.4, KEEP, DROP).invoke(SAMPLE) == ("dropped", SAMPLE)


@pytest.mark.parametrize(
    ("judged", "sample", "cause"),
    [(metric, REFUSAL, "the answer states no facts"), (broken, SAMPLE, "JudgeOutputError: extract_statements")],
    ids=["unscored", "failed"],
)
async def test_without_a_value_missing_decides(judged, sample, cause):
    for gate in (judged.require(0.5), judged.route(0.5, KEEP, DROP)):
        with pytest.raises(BelowThreshold, match=rf"faithfulness has no value \({cause}.*at least 0.5"):
            gate.invoke(sample)
        with pytest.raises(BelowThreshold, match="has no value"):
            await gate.ainvoke(sample)
    assert judged.require(0.5, missing="pass").invoke(sample) is sample
    assert await judged.require(0.5, missing="pass").ainvoke(sample) is sample
    assert judged.route(0.5, KEEP, DROP, missing="pass").invoke(sample) == ("kept", sample)


async def test_route_gives_the_original_input_to_one_of_two_branches():
    ways = metric.route(0.8, KEEP, lambda given: f"dropped {given['answer']}")
    assert ways.invoke(TRUE_SAMPLE) == ("kept", TRUE_SAMPLE)
    assert ways.invoke(SAMPLE) == f"dropped {ANSWER}"
    assert await ways.ainvoke(TRUE_SAMPLE) == ("kept", TRUE_SAMPLE)
    assert await ways.ainvoke(SAMPLE) == f"dropped {ANSWER}"
    assert ways.batch([SAMPLE, TRUE_SAMPLE]) == [f"dropped {ANSWER}", ("kept", TRUE_SAMPLE)]


async def test_only_the_chosen_branch_runs_and_it_may_be_async():
    ran: list[str] = []

    def branch(name: str) -> RunnableLambda[Any, str]:
        async def arun(_: Any) -> str:
            ran.append(name)
            return name

        return RunnableLambda(arun)

    assert await metric.route(0.8, branch("then"), branch("otherwise")).ainvoke(SAMPLE) == "otherwise"
    assert ran == ["otherwise"]


def test_a_gate_shows_the_steps_of_its_metric_in_the_graph():
    for gate in (metric.require(0.5), metric.route(0.5, KEEP, DROP)):
        drawn = (rag_chain() | gate).get_graph().draw_mermaid()
        assert "extract_statements --> verify_statements" in drawn
        assert "verify_statements --> supported_share" in drawn


def test_a_gate_goes_by_the_name_of_its_metric():
    assert metric.require(0.5).get_name() == "require_faithfulness"
    assert metric.route(0.5, KEEP, DROP).get_name() == "route_faithfulness"


def test_a_sample_that_lacks_a_field_is_no_missing_value():
    with pytest.raises(
        SampleError, match=r"^faithfulness reads .* lacks \['contexts'\]: fill it in or drop the metric$"
    ):
        metric.require(0.5, missing="pass").invoke({"question": QUESTION, "answer": ANSWER})
    with pytest.raises(SampleError, match=r"the metric, or map one of \['Найдено'\] with fields={\.\.\.} or --fields$"):
        metric.invoke({"question": QUESTION, "answer": ANSWER, "Найдено": "Статья"})
    with pytest.raises(
        SampleError, match=r"lacks \['answer', 'contexts'\]: .* one of \['a', 'b', 'c', 'd'\] with"
    ) as raised:
        metric.invoke({"question": QUESTION, "d": "1", "b": "2", "a": "3", "c": "4"})
    assert raised.value.field == "answer"


@each(
    ("options", "message"),
    [
        *(({"missing": word}, f"missing must be 'raise' or 'pass', got {word!r}") for word in ("skip", None)),
        *(({"threshold": t}, f"threshold must be a finite number, got {t!r}") for t in ("0.8", None, float("nan"))),
    ],
)
def test_an_invalid_option_is_refused_at_once(options, message):
    for gate in (metric.require, partial(metric.route, then=KEEP, otherwise=DROP)):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            gate(**{"threshold": 0.5, **options})
