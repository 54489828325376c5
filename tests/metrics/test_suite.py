import asyncio
import threading
from typing import Any

import pytest
from helpers.samples import REFUSAL, SAMPLE
from helpers.scripted import answering, broken_judge, offline_reply, recording_judge
from helpers.waiting import PATIENCE
from langchain_core.runnables import RunnableParallel

from langchain_rageval import (
    ConfigError,
    Judge,
    JudgeOutputError,
    Metric,
    OfflineJudge,
    Score,
    Value,
    evaluate,
    faithfulness,
    suite,
)
from langchain_rageval.metrics.structure import acollect_scores, collect_scores


def unfaithfulness(judge: Any) -> Metric:
    """Another metric over the steps of faithfulness."""
    metric = faithfulness(judge)
    return Metric(
        "unfaithfulness",
        aspect="grounding",
        reads=metric.reads,
        steps=metric.steps,
        reduce=lambda state: Value(1 - (metric.reduce(state).number or 0.0)),
        direction="lower",
    )


def pair(judge: Any) -> Any:
    """Two metrics that ask the same."""
    return suite(faithfulness(judge), unfaithfulness(judge))


def values(scores: dict[str, Score]) -> dict[str, float | None]:
    return {name: score.value for name, score in scores.items()}


BOTH = {"faithfulness": 0.5, "unfaithfulness": 0.5}


@pytest.mark.parametrize("call", ["invoke", "ainvoke"])
async def test_steps_that_metrics_share_are_asked_once(call):
    model = recording_judge()
    both = pair(model)
    scores = both.invoke(SAMPLE) if call == "invoke" else await both.ainvoke(SAMPLE)
    assert values(scores) == BOTH
    assert len(model.asked) == 2
    assert sum(score.usage.calls for score in scores.values()) == 2


async def test_every_entry_point_of_a_suite_gives_all_scores_and_pays_for_each_sample_once():
    model = recording_judge()
    both = pair(model)
    assert [values(scores) for scores in both.batch([SAMPLE, SAMPLE])] == [BOTH, BOTH]
    assert [values(scores) for scores in await both.abatch([SAMPLE, SAMPLE])] == [BOTH, BOTH]
    assert [values(scores) for scores in both.stream(SAMPLE)] == [BOTH]
    assert [values(scores) async for scores in both.astream(SAMPLE)] == [BOTH]
    assert len(model.asked) == 2 * 6


@pytest.mark.parametrize("call", ["invoke", "ainvoke"])
async def test_equal_metrics_outside_a_suite_share_nothing(call):
    model = recording_judge()
    apart = RunnableParallel(one=faithfulness(model), other=unfaithfulness(model))
    apart.invoke(SAMPLE) if call == "invoke" else await apart.ainvoke(SAMPLE)
    assert len(model.asked) == 4


def test_a_suite_in_a_suite_counts_as_its_metrics():
    model = recording_judge()
    nested = suite(pair(model), faithfulness(model, name="third"))
    assert values(nested.invoke(SAMPLE)) == BOTH | {"third": 0.5}
    assert len(model.asked) == 2
    assert nested.feedback_keys == ["faithfulness", "unfaithfulness", "third"]


def test_judges_that_are_asked_otherwise_do_not_share():
    model = recording_judge()
    apart = suite(faithfulness(model), faithfulness(Judge(model, language="ru"), name="in Russian"))
    apart.invoke(SAMPLE)
    assert len(model.asked) == 4


async def test_two_judges_do_not_wait_for_each_other():
    together = threading.Barrier(2, timeout=PATIENCE)

    def answer(messages: Any) -> Any:
        together.wait()
        return offline_reply(messages)

    side_by_side = suite(faithfulness(answering(answer)), faithfulness(answering(answer), name="other"))
    assert values(side_by_side.invoke(SAMPLE)) == {"faithfulness": 0.5, "other": 0.5}
    assert values(await asyncio.wait_for(side_by_side.ainvoke(SAMPLE), PATIENCE)) == {"faithfulness": 0.5, "other": 0.5}


async def test_a_metric_that_fails_makes_invoke_raise_and_collect_scores_record():
    mixed = suite(faithfulness(OfflineJudge()), faithfulness(broken_judge(), name="broken"))
    with pytest.raises(JudgeOutputError):
        mixed.invoke(SAMPLE)
    with pytest.raises(JudgeOutputError):
        await mixed.ainvoke(SAMPLE)
    for scores in (collect_scores(mixed, SAMPLE), await acollect_scores(mixed, SAMPLE)):
        assert values(scores) == {"faithfulness": 0.5, "broken": None}
        assert scores["broken"].failure.error == "JudgeOutputError"


@pytest.mark.parametrize("call", ["sync", "async"])
async def test_what_failed_is_not_asked_again_for_the_others_beyond_their_attempts(call):
    model = broken_judge()
    both = pair(Judge(model, attempts=2))
    scores = collect_scores(both, SAMPLE) if call == "sync" else await acollect_scores(both, SAMPLE)
    assert all(score.failure for score in scores.values())
    assert len(model.asked) <= 2 * 2
    assert sum(score.usage.calls for score in scores.values()) == len(model.asked)


def test_an_unscored_metric_stays_in_the_result():
    scores = suite(faithfulness(OfflineJudge())).invoke(REFUSAL)
    assert scores["faithfulness"].unscored == "the answer states no facts"


def test_evaluate_takes_a_suite_for_its_metrics():
    model = recording_judge()
    report = evaluate([SAMPLE], pair(model), progress=False)
    assert values(report.rows[0].scores) == BOTH
    assert len(model.asked) == 2
    with pytest.raises(ConfigError, match=r"two metrics are named \['faithfulness'\]"):
        evaluate([SAMPLE], [pair(model), faithfulness(model)], progress=False)


def test_a_suite_of_two_metrics_of_one_name_is_refused():
    metric = faithfulness(OfflineJudge())
    with pytest.raises(ConfigError, match="rename one of them with name="):
        suite(metric, metric)
    with pytest.raises(ConfigError, match="a suite takes metrics"):
        suite()
    with pytest.raises(ConfigError, match="got RunnableRetry; wrap the whole suite instead"):
        suite(metric.with_retry())
    with pytest.raises(ConfigError, match=r"got list; pass them as suite\(one, two\)"):
        suite([metric, metric])


def test_a_suite_has_schemas_and_shows_its_metrics():
    both = suite(faithfulness(OfflineJudge()), faithfulness(OfflineJudge(), name="other"))
    assert both.get_input_jsonschema()
    assert both.get_output_jsonschema()["additionalProperties"]
    assert repr(both).startswith("suite(faithfulness(Judge(")
