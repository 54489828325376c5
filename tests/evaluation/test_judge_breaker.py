"""A judge that never answers ends its part of the run after a bounded number of calls."""

import threading
import time
from itertools import count

import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.samples import town
from helpers.scripted import offline_reply
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    Judge,
    OfflineJudge,
    RetryPolicy,
    Score,
    astream_evaluate,
    cascade,
    context_recall,
    evaluate,
    faithfulness,
    noise_sensitivity,
)
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import JudgeUnavailable

SAMPLES = [town(number) for number in range(60)]


class Rejected(Exception):
    def __init__(self, status):
        super().__init__(f"rejected with {status}")
        self.status_code = status


class BadJudge:
    """A judge that fails in one way, from the call number `first` on."""

    def __init__(self, reply, first=0):
        self.calls, self._lock, self.failed = 0, threading.Lock(), threading.Event()
        self._reply, self._first = reply, first
        self.model = RunnableLambda(self._answer)

    def _answer(self, messages):
        with self._lock:
            self.calls += 1
            number = self.calls
        if number <= self._first:
            return offline_reply(messages)
        self.failed.set()
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


@pytest.mark.parametrize(
    ("door", "reply", "attempts"),
    [
        ("evaluate", Rejected(401), 1),
        ("evaluate", "I cannot help with this request.", 3),
        ("aevaluate", ConnectionRefusedError("refused"), 3),
        ("aevaluate", Rejected(429), 3),
    ],
)
async def test_the_run_ends_after_about_twenty_failures_beyond_concurrency(door, reply, attempts):
    judge, quick = BadJudge(reply), RetryPolicy(attempts=3, initial=0.0, max_wait=0.0)
    metrics = [faithfulness(judge.model), context_recall(judge.model)]
    report = await report_by(door, SAMPLES, metrics, retry=quick, max_concurrency=4)
    workers = 8
    assert 20 <= judge.calls <= (20 + workers) * attempts
    assert not report.complete
    assert report.notes[0].startswith("The run was stopped: RunnableLambda")
    assert "failed 20 times in a row without a valid reply; last failure: " in report.notes[0]
    assert len(report.left_out) + len(report.failures()) == 120
    assert {score.failure.error for _, score in report.failures()}.isdisjoint({"JudgeUnavailable"})


def test_the_metrics_of_another_judge_go_on():
    judge = BadJudge(Rejected(401))
    report = evaluate(SAMPLES, [faithfulness(judge.model), context_recall(OfflineJudge())], progress=False)
    assert sum("context_recall" in row.scores for row in report.rows) == 60
    assert {name for _, name in report.left_out} == {"faithfulness"}
    assert not report.complete
    assert report.notes[0].startswith("A judge is not called any more: RunnableLambda")
    assert report.notes[0].endswith("in a row without a valid reply; last failure: Rejected: rejected with 401")


def test_a_judge_that_was_never_asked_is_not_said_to_have_failed():
    judge = BadJudge(Rejected(401))
    report = evaluate(SAMPLES, faithfulness(cascade(judge.model, OfflineJudge())), progress=False)
    stopped = [note for note in report.notes if note.startswith("The run was stopped: ")]
    assert len(stopped) == 1
    assert stopped[0].startswith("The run was stopped: RunnableLambda")


def test_a_judge_that_has_answered_once_is_asked_to_the_end():
    judge = BadJudge(Rejected(401), first=1)

    def one_by_one():
        yield SAMPLES[0]
        assert judge.failed.wait(60)  # the second call about the first sample: the first reply has been read
        yield from SAMPLES[1:]

    report = evaluate(one_by_one(), faithfulness(judge.model), progress=False)
    assert judge.calls == 61
    assert report.complete
    assert report.left_out == []


def test_replies_to_canaries_are_no_replies_about_samples():
    judge = BadJudge(Rejected(401), first=8)
    report = evaluate(SAMPLES, faithfulness(judge.model), progress=False, canaries=True, max_concurrency=1)
    assert report.canaries.right == 8
    assert judge.calls == 8 + 20
    assert report.notes[0].startswith("The run was stopped: RunnableLambda")


def test_a_judge_with_other_options_on_the_same_model_is_counted_separately():
    judge = BadJudge(Rejected(401))

    def reply(messages):
        is_about_references = "Henry founded town" in str(messages[-1].content)
        return judge._answer(messages) if is_about_references else offline_reply(messages)

    model = RunnableLambda(reply)
    metrics = [faithfulness(Judge(model)), context_recall(Judge(model, attempts=2))]
    report = evaluate(SAMPLES, metrics, progress=False, max_concurrency=1)
    assert judge.calls == 20
    assert sum("faithfulness" in row.scores for row in report.rows) == 60
    assert {name for _, name in report.left_out} == {"context_recall"}


async def test_a_failed_call_that_two_metrics_share_counts_once():
    for door in ("evaluate", "aevaluate"):
        judge = BadJudge(Rejected(401))
        slow = RunnableLambda(lambda _: time.sleep(0.02)) | judge.model  # so that the other metric can join the call
        shared = Judge(slow)
        report = await report_by(door, SAMPLES, [faithfulness(shared), noise_sensitivity(shared)], max_concurrency=1)
        assert judge.calls >= 20
        assert len(report.failures()) > judge.calls


def test_an_error_of_a_metric_is_not_the_judges():
    def broken(_sample):
        raise ValueError("a mistake of the metric")

    report = evaluate(SAMPLES, [RunnableLambda(broken, name="own"), faithfulness(OfflineJudge())], progress=False)
    assert report.complete
    assert len(report.failures()) == 60


def test_an_endless_source_is_read_no_further():
    judge = BadJudge(Rejected(401))
    report = evaluate(map(town, count()), faithfulness(judge.model), progress=False)
    assert not report.complete
    assert judge.calls < 60


async def test_a_stream_raises_after_its_last_row():
    judge = BadJudge(Rejected(401))
    rows = []

    async def read():
        async for row in astream_evaluate(SAMPLES, faithfulness(judge.model)):
            rows.append(row)

    with pytest.raises(JudgeUnavailable, match=r"^The run was stopped: .* last failure: Rejected: rejected with 401$"):
        await read()
    assert 20 <= len(rows) < 60


UNAVAILABLE = JudgeUnavailable.__name__


@each(
    ("errors", "kept"),
    [({}, True), ({"b": UNAVAILABLE}, True), (dict.fromkeys("ab", UNAVAILABLE), False),
     ({"a": "TimeoutError", "b": UNAVAILABLE}, False), (dict.fromkeys("ab", "TimeoutError"), True)],
)  # fmt: skip
def test_scores_that_all_failed_are_left_out_if_a_judge_was_given_up(errors, kept):
    def score(name):
        lost = {"failure": Failure(error=errors[name], message="down", step="rate")} if name in errors else {}
        return Score(**{"metric": name, "aspect": "answer", **(lost or {"value": 1.0})})

    both = RunnableLambda(lambda _: {name: score(name) for name in "ab"}, name="both")
    report = evaluate(SAMPLES[:1], both, progress=False)
    assert [[*row.scores] for row in report.rows] == [["a", "b"]] * kept
    assert report.left_out == ([] if kept else [(0, "both")])


def test_one_failed_score_ends_the_reading_of_no_source():
    def reply(messages):
        return "no JSON" if "town 0000 " in str(messages) else offline_reply(messages)

    metric = faithfulness(RunnableLambda(reply))
    report = evaluate(iter(SAMPLES[:12]), metric, progress=False, max_concurrency=1)
    assert (len(report.rows), len(report.failures()), report.left_out, report.complete) == (12, 1, [], True)
