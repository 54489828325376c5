"""Scheduler: which tasks a worker takes, and in which order."""

import threading
from datetime import UTC

import pytest
from helpers.each import each
from helpers.scripted import scripted

from langchain_rageval import ConfigError, Sample, Score, claim_metrics, context_precision, faithfulness
from langchain_rageval.evaluation.inputs import flatten_metrics
from langchain_rageval.evaluation.scheduler import PendingSample, Scheduler
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import CACHED

SAMPLES = [Sample(id=str(n), question="?", answer="a", contexts=["c"], references=["r"]) for n in range(6)]
JUDGE = scripted()
METRICS = [context_precision(JUDGE), faithfulness(JUDGE)]


def tasks(metrics=METRICS, slots=4):
    return Scheduler(metrics, Run(Governor(limit=slots)), True, len(metrics))


async def taken(given, door, samples):
    """What a single worker takes, by sample and metric."""
    if door == "tasks":
        found = list(given.tasks(samples, threading.Event())())
    else:
        found = [task async for task in given.atasks(samples)()]
    return [(task.pending.index, task.number) for task in found]


@each("door", ["tasks", "atasks"])
@each("samples", [iter, lambda samples: dict(enumerate(samples)).values()])  # the second has a known length
async def test_samples_that_may_take_their_time_are_not_waited_for(door, samples):
    in_order = [(index, number) for index in range(6) for number in range(2)]
    assert await taken(tasks(), door, samples(SAMPLES)) == in_order


def test_metrics_that_go_through_the_same_steps_are_one_workers():
    claims = flatten_metrics([claim_metrics(JUDGE)])
    worker = tasks([*claims, context_precision(JUDGE)]).tasks(SAMPLES[:1], threading.Event())
    first, second = worker(), worker()
    begun = [next(first).number]
    assert [task.number for task in second] == [len(claims)]
    assert begun + [task.number for task in first] == list(range(len(claims)))


@each(("slots", "workers"), [(None, 2), (1, 2), (4, 8), (16, 32), (64, 128), (128, 192), (256, 384)])
def test_there_are_more_workers_than_slots_and_no_more_than_tasks(slots, workers):
    assert tasks(slots=slots).n_workers(iter(SAMPLES)) == workers
    for count in (0, 2, 6):
        assert tasks(slots=slots).n_workers(SAMPLES[:count]) == max(1, min(workers, 2 * count))


def score_of(name):
    return {name: Score(metric=name, aspect="answer", value=0.5)}


def test_a_row_has_its_scores_in_the_order_of_the_metrics_and_those_of_an_audit_apart():
    pending = PendingSample(7, SAMPLES[0], Run().metered(), left=4, own=2)
    parts = [(3, "a"), (1, "b"), (2, "c"), (0, "a")]
    assert [pending.add(number, score_of(name)) for number, name in parts] == [False, False, False, True]
    pending.asked |= {3, 1, 0}
    row = pending.row()
    assert (row.index, row.sample, [*row.scores], [*row.audit]) == (7, SAMPLES[0], ["a", "b"], ["c", "a"])
    assert (row.asked, row.time.microsecond, row.time.tzinfo) == (["a", "b"], 0, UTC)
    pending.run.meter.count(CACHED)
    assert pending.row().asked == []
    pending.add(1, score_of("a"))
    with pytest.raises(ConfigError, match=r"two metrics are named \['a'\]"):
        pending.row()


@each(("size", "spent", "read"), [(None, False, 6), (None, True, 0), (6, True, 6)])
def test_a_source_of_unknown_length_is_read_no_further_without_a_judge(size, spent, read):
    scheduler, source = tasks(), SAMPLES if size else iter(SAMPLES)
    if spent:
        scheduler.no_judge_left.set()
    groups = list(scheduler.tasks_by_sample(source))
    assert [[task.pending.index for task in group] for group in groups] == [[n, n] for n in range(read)]
    assert scheduler.stopped_reading.is_set() == (read == 0)


def test_a_worker_that_is_stopped_takes_no_more():
    stopped = threading.Event()
    worker = tasks().tasks(SAMPLES, stopped)()
    next(worker)
    stopped.set()
    assert list(worker) == []


class Unshown:
    def __repr__(self):
        raise RuntimeError("do not look")


@each("item", ["x" * 998, "x" * 5000, Unshown], ids=["short", "long", "without a repr"])
def test_an_item_that_is_no_sample_is_kept_as_a_text_of_bounded_length(item):
    item = item if isinstance(item, str) else item()
    scheduler = Scheduler(METRICS, Run(Governor(limit=4)), False, len(METRICS))
    found = list(scheduler.tasks([SAMPLES[0], item], threading.Event())())
    unreadable = scheduler.begun[1].sample
    assert {(task.pending.index, task.unreadable is None) for task in found} == {(0, True), (1, False)}
    assert (unreadable.id, unreadable.question) == ("row-1", "")
    shown = repr(item)[:1000] if isinstance(item, str) else "a Unshown that cannot be shown"
    assert unreadable.metadata == {"unreadable": shown}


@each("door", ["tasks", "atasks"])
@each(("slots", "samples", "waiting"), [(1, 1, 1), (1, 2, 1), (2, 2, 2), (2, 3, 2), (3, 6, 3), (4, 6, 4)])
async def test_samples_in_progress_together_at_the_end_start_with_the_longest_metric(door, slots, samples, waiting):
    """Two workers for each slot, and two tasks for each sample; the longest metric has two steps in a row."""
    order = await taken(tasks(slots=slots), door, SAMPLES[:samples])
    early = [(index, number) for index in range(samples - waiting) for number in (0, 1)]
    assert order == [*early, *((index, number) for number in (1, 0) for index in range(samples - waiting, samples))]
