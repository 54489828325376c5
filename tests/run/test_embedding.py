"""Embedding in batches: each text once, nobody waits for ever, and a text that is refused fails alone."""

import asyncio
import gc
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, auntil, until
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langchain_rageval import Budget, BudgetExceeded
from langchain_rageval.errors import ModelOutputError
from langchain_rageval.run import embedding
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.embedding import BATCH_SIZE, EmbeddingQueue
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.requests import Embed, Gather
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import UsageMeter


class Refusal(Exception):
    """What a client raises for 400."""

    status_code = 400


class Own(Embeddings):
    """Vector of a text: its length and 1. Keeps the batches, and does `before(texts)` first; no async methods.

    `reply(texts)` is what it returns instead.
    """

    def __init__(self, before=lambda texts: None, reply=lambda texts: [*map(vector, texts)]):
        self.before, self.reply = before, reply
        self.batches = []

    @property
    def texts(self):
        return [text for batch in self.batches for text in batch]

    def embed_documents(self, texts):
        self.batches.append(texts)
        self.before(texts)
        return self.reply(texts)

    def embed_query(self, text):
        raise AssertionError("texts are embedded as documents, all alike")


class Async(Own):
    """The same on the caller's loop; `before` is a coroutine function."""

    async def aembed_documents(self, texts):
        self.batches.append(texts)
        await self.before(texts)
        return [vector(text) for text in texts]


def vector(text):
    return [float(len(text)), 1.0]


def asks(embeddings, texts):
    return (yield Embed(embeddings, texts))


def embedded(run, embeddings, *texts):
    return drive(asks(embeddings, texts), run, {})


async def aembedded(run, embeddings, *texts):
    return await adrive(asks(embeddings, texts), run, {})


def refusing(*bad):
    def before(texts):
        if set(texts) & set(bad):
            raise Refusal(f"cannot embed {sorted(set(texts) & set(bad))}")

    return before


def raising(*errors):
    """Raise each error once, then none."""
    left = list(errors)

    def before(texts):
        if left:
            raise left.pop(0)

    return before


def refusal(status):
    error = Refusal("no")
    error.status_code = status
    return error


def told(vectors):
    return [list(vector) for vector in vectors]


@each("make", [Own, lambda: Async(lambda _: asyncio.sleep(0))], ids=["sync only", "async"])
def test_vectors_are_in_the_order_of_the_texts_and_equal_texts_are_sent_once(make):
    sync, own = Own(), make()
    texts = ["ccc", "a", "bb", "a"]
    runs = Run(), Run()
    both = embedded(runs[0], sync, *texts), asyncio.run(aembedded(runs[1], own, *texts))
    for run, embeddings, vectors in zip(runs, (sync, own), both, strict=True):
        assert told(vectors) == [[3.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]
        assert embeddings.batches == [["ccc", "a", "bb"]]
        assert run.meter.usage.embedded == 3


def test_a_text_is_charged_to_its_first_caller():
    run, own = Run(), Own()
    one, other = run.metered(), run.metered()
    embedded(one, own, "a", "b")
    embedded(other, own, "b", "c")
    assert (one.meter.usage.embedded, other.meter.usage.embedded, run.meter.usage.embedded) == (2, 1, 3)


@pytest.mark.parametrize("do", [embedded, lambda *a: asyncio.run(aembedded(*a))], ids=["sync", "async"])
def test_a_budget_refuses_texts_beyond_it_and_none_that_have_their_vectors(do):
    meter, own = UsageMeter(), Own()
    run = Run(Governor(Budget(embeddings=3), meter), meter=meter)
    do(run, own, "a", "bb")
    with pytest.raises(BudgetExceeded):
        do(run, own, "a", "ccc", "dddd")
    do(run, own, "ccc")
    assert told(do(run, own, "a", "bb", "ccc")) == [[1, 1], [2, 1], [3, 1]]
    assert (own.texts, meter.usage.embedded) == (["a", "bb", "ccc"], 3)


def test_objects_do_not_mix_even_if_they_are_equal_or_no_longer_used():
    class Equal(Own):
        def __eq__(self, other):
            return True

        __hash__ = None

    run = Run()
    for _ in range(50):  # each lives as long as its run, so that its id is not reused
        own = Equal()
        embedded(run, own, "a")
        assert own.batches == [["a"]]
        del own


@each(("count", "sizes"), [(64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])])
def test_a_long_list_is_sent_in_batches(count, sizes):
    own = Own()
    texts = [f"text {number}" for number in range(count)]
    assert len(embedded(Run(), own, *texts)) == count
    assert [len(batch) for batch in own.batches] == sizes
    assert own.texts == texts


@pytest.fixture
def patient(monkeypatch):
    """Nobody sends what waits only because it has waited for long."""
    monkeypatch.setattr("langchain_rageval.run.drivers.MAX_WAIT", 60.0)


def test_texts_requested_during_a_batch_are_sent_together():
    go_on = threading.Event()
    own, run = Own(lambda texts: go_on.wait(PATIENCE)), Run()
    jobs = [run.threads.submit(lambda: embedded(run, own, "first"))]
    until(lambda: own.batches)
    jobs += [run.threads.submit(lambda n=n: embedded(run, own, f"{n}", "first", f"{n}!")) for n in range(20)]
    queue = run.embedding_queues.queue_for(own)
    until(lambda: len(queue._unsent) == 40)
    go_on.set()
    assert [len(job.result(PATIENCE)) for job in jobs] == [1] + [3] * 20
    assert sorted(map(len, own.batches)) == [1, 40]


def test_a_full_batch_does_not_wait_for_the_one_under_way(patient):
    go_on = threading.Event()
    own, run = Own(lambda texts: texts == ["slow"] and go_on.wait(PATIENCE)), Run()
    slow = run.threads.submit(lambda: embedded(run, own, "slow"))
    until(lambda: own.batches)
    assert len(embedded(run, own, *map(str, range(BATCH_SIZE)))) == BATCH_SIZE
    assert not slow.done()
    go_on.set()
    assert told(slow.result(PATIENCE)) == [[4.0, 1.0]]


def test_a_late_caller_starts_a_further_worker(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.drivers.MAX_WAIT", 0.05)
    go_on = threading.Event()
    own, run = Own(lambda texts: texts == ["slow"] and go_on.wait(PATIENCE)), Run()
    slow = run.threads.submit(lambda: embedded(run, own, "slow"))
    until(lambda: own.batches)
    assert told(embedded(run, own, "a")) == [[1.0, 1.0]]
    assert not slow.done()
    go_on.set()
    slow.result(PATIENCE)


async def test_on_a_loop_a_late_caller_starts_a_further_worker(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.drivers.MAX_WAIT", 0.05)
    go_on = asyncio.Event()

    async def before(texts):
        if texts == ["slow"]:
            await go_on.wait()

    own, run = Async(before), Run()
    slow = asyncio.create_task(aembedded(run, own, "slow"))
    await auntil(lambda: own.batches)
    both = await asyncio.gather(aembedded(run, own, "a"), aembedded(run, own, "bb"))
    assert (own.batches, [told(vectors) for vectors in both]) == ([["slow"], ["a", "bb"]], [[[1.0, 1.0]], [[2.0, 1.0]]])
    assert not slow.done()
    go_on.set()
    await slow


class TestFailures:
    @each("place", [0, 31, 32, 63])
    def test_one_refused_text_is_found_by_halving_its_batch(self, place):
        own = Own(refusing("bad"))
        texts = [f"text {number}" for number in range(BATCH_SIZE)]
        texts[place] = "bad"
        self.outcomes(own, texts)
        assert len(own.batches) == 1 + 2 * 6  # the batch, and two halves on each of the levels down to a single text

    @given(st.integers(1, 150), st.data())
    def test_any_refused_texts_fail_and_all_others_have_their_vectors(self, count, data):
        bad = data.draw(st.sets(st.integers(0, count - 1), max_size=6))
        own = Own(refusing(*map(str, bad)))
        vectors, refused = self.outcomes(own, [str(number) for number in range(count)])
        assert refused == {str(number): f"cannot embed ['{number}']" for number in bad}
        assert vectors == {str(number): vector(str(number)) for number in range(count) if number not in bad}
        assert max(map(len, own.batches)) <= BATCH_SIZE

    def outcomes(self, own, texts):
        """The vectors by text, and what was raised by text."""
        queue = EmbeddingQueue(own)
        futures, _ = queue.add(texts, lambda _new: None)
        drive(queue.send_batches(), Run(), {})
        assert all(future.done() for future in futures)
        raised = {text: future.exception() for text, future in zip(texts, futures, strict=True)}
        found = {text: list(f.result()) for text, f in zip(texts, futures, strict=True) if raised[text] is None}
        return found, {text: str(error) for text, error in raised.items() if error}

    def test_only_callers_of_a_rejected_text_get_the_error(self):
        run, hold = Run(), threading.Event()
        own = Own(lambda texts: hold.wait(PATIENCE) and refusing("bad")(texts))
        first = run.threads.submit(lambda: embedded(run, own, "first"))
        until(lambda: own.batches)
        jobs = [run.threads.submit(lambda t=t: embedded(run, own, *t)) for t in (["a", "bad"], ["bad"], ["a", "b"])]
        until(lambda: len(run.embedding_queues.queue_for(own)._unsent) == 3)
        hold.set()
        assert len(first.result(PATIENCE)) == 1
        assert [isinstance(job.exception(PATIENCE), Refusal) for job in jobs] == [True, True, False]
        assert told(jobs[2].result()) == [[1.0, 1.0], [1.0, 1.0]]

    @each(
        ("error", "tries"),
        [*((refusal(status), 1) for status in (401, 403, 404)), (TimeoutError("slow"), 2), (refusal(500), 2)],
    )
    def test_a_batch_is_not_halved_after_an_error_that_no_text_caused(self, error, tries):
        own = Own(raising(*[error] * 9))
        with pytest.raises(type(error)):
            embedded(Run(retry=RetryPolicy(attempts=2, initial=0.0)), own, *"abcd")
        assert own.batches == [[*"abcd"]] * tries

    @each("status", [400, 413, 422])
    def test_a_batch_that_is_too_long_as_a_whole_is_cut_until_it_fits(self, status):
        def before(texts):
            if sum(map(len, texts)) > 100:
                raise refusal(status)

        own = Own(before)
        texts = ["y" * (10 + number) for number in range(20)]
        assert told(embedded(Run(), own, *texts)) == [vector(text) for text in texts]

    def test_failed_texts_are_not_cached(self):
        own, run = Own(raising(Refusal("once"))), Run()
        with pytest.raises(Refusal, match="once"):
            embedded(run, own, "a")
        assert told(embedded(run, own, "a")) == told(embedded(run, own, "a")) == [[1.0, 1.0]]
        assert own.batches == [["a"], ["a"]]

    @each("count", [1, 2, 5])
    def test_a_wrong_number_of_vectors_or_no_list_is_never_matched_by_place(self, count):
        for wrong, more in ((-1, []), (1, [[1.0], [1.0]])):
            odd = Own(reply=lambda texts, more=more: [*more, *map(vector, texts[1:])])
            with pytest.raises(ModelOutputError, match=f"the embeddings returned {1 + wrong} vectors for 1 texts"):
                embedded(Run(), odd, *map(str, range(count)))
        for reply in (None, 5, "ab"):
            with pytest.raises((ModelOutputError, TypeError)):
                embedded(Run(timeout=5), Own(reply=lambda texts, reply=reply: reply), "a", "b", *map(str, range(count)))

    @each("rubbish", [["not", "numbers"], {"a": 1}, [[1.0], [2.0, 3.0]], "text"])
    def test_an_invalid_vector_fails_only_its_text(self, rubbish):
        queue = EmbeddingQueue(Own(reply=lambda texts: [rubbish if text == "odd" else vector(text) for text in texts]))
        futures, _ = queue.add(["a", "odd", "b"], lambda _new: None)
        drive(queue.send_batches(), Run(), {})
        assert [type(future.exception()) for future in futures] == [type(None), ModelOutputError, type(None)]

    @each("texts", [["odd"], ["odd", "a"]])
    @each("problem", [ValueError("no embedding data"), ["not", "numbers"]])
    @each("is_lasting", [True, False])
    def test_a_text_without_a_vector_is_sent_once_more_alone(self, texts, problem, is_lasting):
        own = Own()

        def reply(sent):
            is_odd = "odd" in sent and (is_lasting or own.texts.count("odd") == 1)
            if is_odd and isinstance(problem, Exception):
                raise problem
            return [problem if is_odd and text == "odd" else vector(text) for text in sent]

        own.reply = reply
        vectors, failed = self.outcomes(own, texts)
        is_found_by_halving = is_lasting and isinstance(problem, Exception)
        assert [*failed] == ["odd"] * is_lasting
        assert vectors.keys() == {*texts} - failed.keys()
        assert own.batches.count(["odd"]) == (2 if len(texts) == 1 or is_found_by_halving else 1)

    def test_vectors_from_a_numpy_matrix_do_not_keep_it_alive(self):
        first, second = embedded(Run(), Own(reply=lambda texts: np.ones((len(texts), 3))), "a", "b")
        assert first.shape == second.shape == (3,)
        assert first.base is second.base is None

    @pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
    def test_a_base_exception_ends_all_waiting_callers(self, error, patient):
        def before(texts):
            hold.wait(PATIENCE)
            raise error

        own, run, hold = Own(before), Run(), threading.Event()
        first = run.threads.submit(lambda: embedded(run, own, "first"))
        until(lambda: own.batches)
        second = run.threads.submit(lambda: embedded(run, own, "second"))
        until(lambda: run.embedding_queues.queue_for(own)._unsent)
        hold.set()
        for job in (first, second):
            assert isinstance(
                job.exception(PATIENCE), CancelledError | SystemExit | KeyboardInterrupt | asyncio.CancelledError
            )
        own.before = lambda texts: None
        assert told(embedded(run, own, "second")) == [[6.0, 1.0]]

    async def test_a_client_that_cancels_itself_ends_all_waiting_callers(self, patient):
        async def before(texts):
            await go_on.wait()
            raise asyncio.CancelledError

        own, run, go_on = Async(before), Run(), asyncio.Event()
        both = [asyncio.create_task(aembedded(run, own, text)) for text in ("first", "second")]
        await auntil(lambda: own.batches)
        go_on.set()
        await asyncio.wait(both, timeout=PATIENCE)
        assert all(task.done() for task in both)


class TestCancelling:
    @each("is_sent", [True, False])
    async def test_a_cancelled_caller_does_not_cancel_others(self, is_sent):
        go_on = asyncio.Event()
        own, run = Async(lambda _: go_on.wait()), Run()
        tasks = [asyncio.create_task(aembedded(run, own, "a", "b"))]
        await auntil(lambda: own.batches)
        tasks += [asyncio.create_task(aembedded(run, own, text)) for text in ("c", "a", "b", "c")]
        await asyncio.sleep(0)
        cancelled = tasks.pop(0 if is_sent else 1)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        go_on.set()
        assert [vector for task in tasks for vector in told(await task)] == [[1.0, 1.0]] * (4 if is_sent else 5)
        assert own.batches == [["a", "b"], ["c"]]

    async def test_a_request_without_callers_is_cancelled(self):
        ended, complaints = [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

        async def before(texts):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(texts)
                raise

        own, run = Async(before), Run()
        tasks = [asyncio.create_task(aembedded(run, own, text)) for text in ("a", "a", "b")]
        await auntil(lambda: own.batches)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await auntil(lambda: ended and len(asyncio.all_tasks()) == 1)
        assert own.batches == ended

        own.before = lambda _: asyncio.sleep(0)
        assert told(await aembedded(run, own, "a", "b")) == [[1.0, 1.0]] * 2
        gc.collect()
        assert complaints == []

    async def test_a_caller_during_a_cancellation_has_its_text_sent_again(self):
        async def before(texts):
            if len(own.batches) == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.02)  # as a client does that closes its connection

        own, run = Async(before), Run()
        leader = asyncio.create_task(aembedded(run, own, "a"))
        await auntil(lambda: own.batches)
        leader.cancel()
        await asyncio.wait([leader])
        assert told(await aembedded(run, own, "a")) == [[1.0, 1.0]]
        assert own.batches == [["a"], ["a"]]

    async def test_a_caller_may_be_cancelled_before_the_request_starts(self):
        own, run = Async(lambda _: asyncio.sleep(0)), Run()
        task = asyncio.create_task(aembedded(run, own, "a"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert told(await asyncio.wait_for(aembedded(run, own, "a"), PATIENCE)) == [[1.0, 1.0]]

    def test_a_loop_that_ends_meanwhile_logs_no_error(self, recwarn):
        async def main():
            run = Run()
            own = Async(lambda _: asyncio.sleep(60))
            tasks = [asyncio.create_task(aembedded(run, own, text)) for text in "abc"]
            await auntil(lambda: own.batches)
            return tasks

        tasks = asyncio.run(main())
        assert all(task.cancelled() for task in tasks)
        gc.collect()
        assert list(recwarn) == []


class TestTogether:
    @pytest.mark.parametrize("latency", [0.0, 0.002])
    def test_threads_that_hammer_get_their_vectors_and_each_text_is_sent_once(self, latency):
        own, run, hurry = Own(lambda texts: time.sleep(latency)), Run(Governor(limit=4)), threading.Barrier(16)

        def hammer(who):
            hurry.wait(PATIENCE)
            for turn in range(40):
                texts = [f"{'x' * ((who * turn + place) % 97)}" for place in range(5)]
                assert told(embedded(run, own, *texts)) == [vector(text) for text in texts]

        with ThreadPoolExecutor(16) as pool:
            for job in [pool.submit(hammer, who) for who in range(16)]:
                job.result(PATIENCE)
        assert len(own.texts) == len(set(own.texts)) == run.meter.usage.embedded
        assert max(map(len, own.batches)) <= BATCH_SIZE

    async def test_a_thread_and_a_loop_share_texts(self):
        """A user's metric may call a sync one from an executor thread inside `aevaluate`."""
        go_on, sync_go_on = asyncio.Event(), threading.Event()
        own, run = Async(lambda _: go_on.wait()), Run()
        on_loop = asyncio.create_task(aembedded(run, own, "a"))
        await auntil(lambda: own.batches)
        in_thread = asyncio.create_task(asyncio.to_thread(embedded, run, own, "a", "b"))
        await auntil(lambda: run.embedding_queues.queue_for(own)._unsent)
        go_on.set()
        assert told(await on_loop) == [[1.0, 1.0]]
        assert told(await asyncio.wait_for(in_thread, PATIENCE)) == [[1.0, 1.0]] * 2
        assert own.batches == [["a"], ["b"]]

        other = Own(lambda texts: sync_go_on.wait(PATIENCE))
        in_thread = asyncio.create_task(asyncio.to_thread(embedded, run, other, "c"))
        await auntil(lambda: other.batches)
        on_loop = asyncio.create_task(aembedded(run, other, "c"))
        await asyncio.sleep(0)
        sync_go_on.set()
        assert told(await on_loop) == told(await in_thread) == [[1.0, 1.0]]
        assert other.batches == [["c"]]

    @pytest.mark.parametrize("do", [embedded, lambda *a: asyncio.run(aembedded(*a))], ids=["sync", "async"])
    def test_embedding_waits_until_a_slot_is_free(self, do):
        run, own = Run(Governor(limit=1)), Own()
        with run.governor.limiter.slot():
            job = run.threads.submit(lambda: do(run, own, "a"))
            until(lambda: run.embedding_queues.queue_for(own)._sent)
            assert own.batches == []
        assert told(job.result(PATIENCE)) == [[1.0, 1.0]]

    def test_waiting_for_a_vector_holds_no_slot(self):
        """Or 16 samples that wait for one batch would leave it no slot to be sent in."""
        run, own = Run(Governor(limit=1)), Own(lambda texts: time.sleep(0.01))
        jobs = [run.threads.submit(lambda n=n: embedded(run, own, str(n))) for n in range(8)]
        assert [len(job.result(PATIENCE)) for job in jobs] == [1] * 8

    @pytest.mark.parametrize("do", [drive, lambda *a: asyncio.run(adrive(*a))], ids=["sync", "async"])
    def test_gathered_operations_share_texts(self, do):
        own = Own()

        def work():
            return (yield Gather([asks(own, ["a", "b"]), asks(own, ["b", "a"])]))

        one, other = do(work(), Run(), {})
        assert told(one) == told(other)[::-1]
        assert own.batches == [["a", "b"]]


class TestMemory:
    def test_the_most_recently_used_texts_are_cached(self, monkeypatch):
        monkeypatch.setattr(embedding, "_MAX_CACHED", 3)
        own, run = Own(), Run()
        embedded(run, own, "a", "b", "c")
        embedded(run, own, "a")
        embedded(run, own, "d")
        embedded(run, own, "a", "c", "d")
        assert own.texts == ["a", "b", "c", "d"]
        embedded(run, own, "b")
        assert own.texts == ["a", "b", "c", "d", "b"]

    @pytest.mark.parametrize("kept", [0, 1, 64])
    def test_a_small_cache_under_load_only_sends_more_texts(self, monkeypatch, kept):
        monkeypatch.setattr(embedding, "_MAX_CACHED", kept)
        own, run, texts = Own(), Run(), ["x" * number for number in range(300)]
        assert told(embedded(Run(), Own(), *texts)) == [vector(text) for text in texts]
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(embedded, run, own, *("y" * (n % 30 + k) for k in range(4))) for n in range(200)]
            assert all(told(job.result(PATIENCE))[0] == vector("y" * (n % 30)) for n, job in enumerate(jobs))


class TestTimeout:
    def test_a_sync_request_beyond_the_timeout_is_abandoned_and_counted(self):
        hang = threading.Event()
        own, run = Own(lambda texts: hang.wait(PATIENCE)), Run(timeout=0.05)
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            embedded(run, own, "a")
        assert run.meter.abandoned == 1
        hang.set()

    async def test_embeddings_without_async_methods_are_abandoned_and_do_not_exhaust_the_loops_executor(self):
        hang = threading.Event()
        own, run = Own(lambda texts: hang.wait(PATIENCE)), Run(timeout=0.05)
        names = []
        for number in range(8):
            with pytest.raises(TimeoutError):
                await aembedded(run, own, str(number))
        own.before = lambda texts: names.append(threading.current_thread().name)
        assert told(await aembedded(replace(run, timeout=PATIENCE), own, "a")) == [[1.0, 1.0]]
        assert (names, run.meter.abandoned) == (["rageval"], 8)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), PATIENCE) == "free"
        hang.set()


def test_workers_are_counted_so_that_a_later_text_has_one():
    own = Own()
    queue = EmbeddingQueue(own)
    needs = [queue.add([text], lambda _new: None)[1] for text in ("a", "b")]
    late = [queue.add_worker_if_late([text]) for text in ("b", "c")]
    assert (needs, late) == ([True, False], [True, False])
    for _ in range(2):  # the worker of the first caller, and that of the late one
        drive(queue.send_batches(), Run(), {})
    assert not queue.add_worker_if_late(["a", "b"])
    (future,), needs_worker = queue.add(["c"], lambda _new: None)
    assert needs_worker
    drive(queue.send_batches(), Run(), {})
    assert (list(future.result(0)), own.batches) == ([1.0, 1.0], [["a", "b"], ["c"]])


def test_a_caller_whose_text_is_under_way_starts_no_further_worker(monkeypatch):
    go_on, waits = threading.Event(), []

    def waited(futures, seconds):
        outcome = wait(futures, 0)
        waits.append(seconds)
        return outcome

    monkeypatch.setattr("langchain_rageval.run.drivers.wait", waited)
    own, run = Own(lambda texts: go_on.wait(PATIENCE)), Run()
    first = run.threads.submit(lambda: embedded(run, own, "slow"))
    until(lambda: own.batches)
    second = run.threads.submit(lambda: embedded(run, own, "slow"))
    until(lambda: len(waits) == 2)
    go_on.set()
    assert told(first.result(PATIENCE)) == told(second.result(PATIENCE)) == [[4.0, 1.0]]
    queue = run.embedding_queues.queue_for(own)
    until(lambda: not queue._workers)  # or a later text would have none
    assert queue.add(["later"], lambda _new: None)[1]
