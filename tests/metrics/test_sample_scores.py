import pytest
from helpers.each import each
from helpers.samples import SAMPLE
from helpers.scripted import scripted
from langchain_core.runnables import RunnableLambda

from langchain_rageval import ConfigError, JudgeOutputError, OfflineJudge, Sample, SampleError, faithfulness, suite
from langchain_rageval.data.schema import Usage
from langchain_rageval.metrics.structure import ascore_sample, failure_scores, score_sample, scores_by_name
from langchain_rageval.prompts.answer_schemas import Statements
from langchain_rageval.run.run import Run

metric = faithfulness(OfflineJudge())
score = metric.invoke(SAMPLE)
MUNICH = Sample(**SAMPLE)


async def both(metric):
    return score_sample(metric, MUNICH, Run(), None), await ascore_sample(metric, MUNICH, Run(), None)


@each("result", [0.5, None, "good", {"faithfulness": 0.5}, [score]])
def test_any_other_result_of_a_metric_is_refused(result):
    with pytest.raises(ConfigError, match=f"a mapping of names to Scores, got {type(result).__name__}: make a metric"):
        scores_by_name(result)


async def test_the_users_own_runnable_is_scored_like_a_metric():
    own = RunnableLambda(lambda sample: {"a": metric.invoke(sample), "b": score})
    for scores in await both(own):
        assert {name: given.value for name, given in scores.items()} == {"a": 0.5, "b": 0.5}


async def test_a_failure_holds_error_step_reply_and_usage():
    broken = faithfulness(scripted("nothing", "of", "use", "nothing", "of", "use"))
    for scores in await both(broken):
        failed = scores["faithfulness"]
        assert (failed.failure.error, failed.failure.step) == ("JudgeOutputError", "extract_statements")
        assert failed.failure.raw_output == "use"
        assert failed.usage.calls == 3
        assert (failed.aspect, failed.direction, failed.instrument) == ("grounding", "higher", broken.instrument)


async def test_a_failure_names_the_step_also_for_errors_of_the_client():
    replies = [Statements(statements=["a"]), ConnectionError("reset by peer")]
    for scores in await both(faithfulness(scripted(*replies, *replies))):
        failure = scores["faithfulness"].failure
        assert (failure.error, failure.message, failure.step) == (
            "ConnectionError",
            "reset by peer",
            "verify_statements",
        )


async def test_an_interrupt_is_raised_and_not_recorded():
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    stopped = RunnableLambda(interrupt)
    with pytest.raises(KeyboardInterrupt):
        score_sample(stopped, MUNICH, Run(), None)


def test_each_name_of_a_suite_gets_the_failure_and_the_first_the_cost():
    both = suite(metric, faithfulness(OfflineJudge(), name="other"))
    scores = failure_scores(both, SampleError("no contexts", "contexts"), Usage(calls=4))
    assert {name: given.usage.calls for name, given in scores.items()} == {"faithfulness": 4, "other": 0}
    assert {given.failure.step for given in scores.values()} == {"sample"}


def test_an_error_without_a_message_is_described_by_its_class():
    assert failure_scores(metric, TimeoutError(), Usage())["faithfulness"].failure.message == "TimeoutError"
    error = JudgeOutputError("not JSON", "verify_statements", "?")
    failure = failure_scores(metric, error, Usage())["faithfulness"].failure
    assert failure.message == "verify_statements: not JSON"
    assert (failure.step, failure.raw_output) == ("verify_statements", "?")


class Unreadable(Exception):
    """An error of a client whose message cannot be read."""

    def __str__(self):
        return None


async def test_an_error_whose_message_cannot_be_read_is_raised_unchanged_and_recorded():
    error = Unreadable("no key")
    broken = faithfulness(scripted(*[error] * 4))
    with pytest.raises(Unreadable) as raised:
        broken.invoke(MUNICH)
    assert raised.value is error
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
