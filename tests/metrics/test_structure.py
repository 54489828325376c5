"""Metrics, judges and steps that are found in Runnables, their instruments, and the scores and failures of a sample."""

import re

import pytest
from helpers.each import each, error_of
from helpers.offline import PASS, own_metric
from helpers.samples import SAMPLE
from helpers.scripted import scripted
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    ConfigError,
    JudgeOutputError,
    OfflineJudge,
    Sample,
    SampleError,
    Value,
    answer_similarity,
    claim_metrics,
    exact_match,
    faithfulness,
    ndcg_at,
    suite,
)
from langchain_rageval.data.instrument import Instrument, split_digests
from langchain_rageval.data.schema import Usage
from langchain_rageval.metrics.structure import (
    ascore_sample,
    called_models,
    failure_scores,
    instruments_in,
    is_plannable,
    judges_of,
    metrics_in,
    names_of,
    remedy_for,
    score_sample,
    scores_by_name,
    sequential_steps,
    shared_steps_key,
    stages_of,
    steps_with_fresh_capabilities,
    update_instruments,
    with_instruments,
)
from langchain_rageval.run.run import Run

metric = faithfulness(OfflineJudge())
score = metric.invoke(SAMPLE)
OTHER = faithfulness(OfflineJudge(), name="other")
BOTH = suite(metric, OTHER)


@each(
    ("runnable", "metrics"),
    [
        (metric, [metric]),
        (metric.with_fallbacks([OTHER]), [metric, OTHER]),
        (metric.bind().with_retry().with_config(run_name="x"), [metric]),
        (BOTH.with_retry(), [metric, OTHER]),
        ((RunnableLambda(dict) | BOTH).with_config(tags=["a"]), [metric, OTHER]),
        (RunnableLambda(dict, name="mine"), []),
    ],
)
def test_metrics_names_and_judges_are_found_in_suites_chains_and_wrappers(runnable, metrics):
    assert metrics_in(runnable) == metrics
    assert names_of(runnable) == ([part.name for part in metrics] or ["mine"])
    assert judges_of(runnable) == [judge for part in metrics for judge in part.judges]


def test_models_are_listed_without_the_wrappers_around_them():
    model = OfflineJudge()
    wrapped = model.with_retry()
    assert called_models(suite(faithfulness(wrapped), exact_match())) == [model, model]


def test_a_metric_is_plannable_if_all_its_steps_are_stages():
    own = own_metric(lambda _: Value(1.0), steps=PASS | metric.steps)
    assert is_plannable(metric)
    assert not is_plannable(own)
    assert (len(sequential_steps(metric)), len(sequential_steps(own))) == (2, 3)
    assert [stage.get_name() for stage in stages_of(own)] == ["extract_statements", "verify_statements"]
    assert (len(sequential_steps(exact_match())), is_plannable(exact_match())) == (1, True)


def test_metrics_of_one_claim_graph_have_one_key_and_others_none():
    one, other = claim_metrics(OfflineJudge()), claim_metrics(OfflineJudge())
    keys = {shared_steps_key(part) for part in one.metrics}
    assert len(keys) == 1
    assert keys != {shared_steps_key(part) for part in other.metrics}
    assert keys != {None}
    assert shared_steps_key(metric) is None


def test_fresh_steps_score_the_same_with_judges_of_their_own():
    fresh = metric.model_copy(update={"steps": steps_with_fresh_capabilities(metric)})
    assert (fresh.invoke(SAMPLE).value, fresh.instrument) == (score.value, metric.instrument)
    assert all(one is not other for one, other in zip(fresh.judges, metric.judges, strict=True))


def takes_a_judge(judge):
    """Build a metric of the user's own."""


def takes_embeddings(embeddings, k=1):
    """Build a metric of the user's own."""


def takes_a_sample(sample):
    """Score a sample."""


CALL, WITH_A_JUDGE = "; call it to build the metric", "; call it with a judge"


@each(
    ("thing", "remedy"),
    [
        (faithfulness, WITH_A_JUDGE),
        (takes_a_judge, WITH_A_JUDGE),
        (takes_embeddings, CALL),
        (exact_match, CALL),
        (ndcg_at, CALL),
        (answer_similarity, CALL),
        (takes_a_sample, ": decorate it with @metric(reads=...)"),
        (dict, ": decorate it with @metric(reads=...)"),
        (metric, ""),
        ("faithfulness", ""),
        (None, ""),
    ],
)
def test_what_is_no_metric_yet_has_a_remedy(thing, remedy):
    assert remedy_for(thing) == remedy


class Longer:
    """Reducer with a limit that may change."""

    def __init__(self):
        self.limit = 1

    def __call__(self, state):
        """Return whether the answer exceeds the limit."""
        return Value(float(len(state["sample"].answer) > self.limit))


def test_a_changed_reducer_is_noticed_when_the_instruments_are_updated():
    longer = Longer()
    own = own_metric(longer)
    before = own.instrument
    longer.limit = 2
    assert own.instrument == before
    update_instruments([suite(own, exact_match()).with_retry()])
    assert own.instrument != before


@each(
    ("around", "is_covered"),
    [
        (lambda: metric, False),
        (lambda: suite(metric), False),
        (lambda: metric.with_retry().with_config(tags=["a"]), False),
        (lambda: RunnableLambda(dict) | metric, True),
        (lambda: RunnableLambda(dict) | RunnableLambda(dict) | suite(metric).with_retry(), True),
        (lambda: metric.with_config(configurable={"llm": "strict"}), True),
        (lambda: RunnableLambda(dict) | metric.with_config(configurable={"llm": "strict"}), True),
    ],
)
def test_a_score_has_the_instrument_of_all_that_surrounds_its_metric(around, is_covered):
    whole = around()
    (instrument,) = instruments_in(whole).values()
    assert (instrument.digests != metric.instrument) is is_covered
    assert split_digests(instrument.digests)[1] == split_digests(metric.instrument)[1]
    marked = with_instruments({"faithfulness": score}, whole, {"faithfulness": Instrument("found.counted")})
    assert marked["faithfulness"].instrument == ("found.counted" if is_covered else score.instrument)
    assert marked["faithfulness"].model_copy(update={"instrument": score.instrument}) == score


MUNICH = Sample(**SAMPLE)


async def both(metric):
    return score_sample(metric, MUNICH, Run(), None), await ascore_sample(metric, MUNICH, Run(), None)


@each("result", [0.5, None, "good", {"faithfulness": 0.5}, [score]])
async def test_any_other_result_of_a_metric_is_refused_and_a_failure_of_a_run(result):
    told = f"a metric returns a Score or a mapping of names to Scores, got {type(result).__name__}: make a metric of a "
    with pytest.raises(ConfigError, match=re.escape(told) + r"function with @metric\(reads=\.\.\.\)$"):
        scores_by_name(result)
    for scores in await both(RunnableLambda(lambda _: result, name="mine")):
        assert scores["mine"].failure.error == "ConfigError"


async def test_the_users_own_runnable_is_scored_like_a_metric():
    own = RunnableLambda(lambda sample: {"a": metric.invoke(sample), "b": score})
    for scores in await both(own):
        assert {name: given.value for name, given in scores.items()} == {"a": 0.5, "b": 0.5}


async def test_a_failure_holds_error_step_reply_and_usage():
    broken = faithfulness(scripted("nothing", "of", "use", "nothing", "of", "use"))
    for scores in await both(broken):
        failed = scores["faithfulness"]
        assert (failed.failure.step, failed.failure.raw_output, failed.usage.calls) == ("extract_statements", "use", 3)
        assert (failed.aspect, failed.direction, failed.instrument) == ("grounding", "higher", broken.instrument)


def test_an_interrupt_is_raised_and_not_recorded():
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_sample(RunnableLambda(interrupt), MUNICH, Run(), None)


def test_each_name_of_a_suite_gets_the_failure_and_the_first_the_cost():
    scores = failure_scores(BOTH, SampleError("no contexts", "contexts"), Usage(calls=4))
    assert {name: given.usage.calls for name, given in scores.items()} == {"faithfulness": 4, "other": 0}
    assert {given.failure.step for given in scores.values()} == {"sample"}
    silent = failure_scores(metric, TimeoutError(), Usage())["faithfulness"]
    assert silent.failure.message == "TimeoutError"  # an error without a message is described by its class


class Unreadable(Exception):
    """An error of a client whose message cannot be read."""

    def __str__(self):
        return None


async def test_an_error_whose_message_cannot_be_read_is_raised_unchanged_and_recorded():
    error = Unreadable("no key")
    broken = faithfulness(scripted(*[error] * 4))
    assert error_of(Unreadable, broken.invoke, MUNICH) is error
    with pytest.raises(Unreadable) as raised:
        await broken.ainvoke(MUNICH)
    assert raised.value is error
    for scores in await both(broken):
        failure = scores["faithfulness"].failure
        assert (failure.error, failure.message, failure.step) == ("Unreadable", "Unreadable", "extract_statements")


def test_a_huge_message_or_reply_loses_its_middle_in_a_failure():
    error = JudgeOutputError("<html>" * 1_000, "verify_statements", "ab" * 10_000)
    failure = failure_scores(metric, error, Usage())["faithfulness"].failure
    assert failure.message == ("verify_statements: " + "<html>" * 1_000)[:1_000] + " … " + ("<html>" * 1_000)[-1_000:]
    assert failure.raw_output == "ab" * 2_500 + " … " + "ab" * 2_500
