import gc
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar

import pytest
from helpers.waiting import PATIENCE, holds_in_a_fork, needs_fork, until

from langchain_rageval.run.run import Run
from langchain_rageval.run.threads import DaemonThreads

WHO = ContextVar("WHO", default="nobody")


def printed(code):
    """Return what a program prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_results_come_in_the_order_of_the_jobs():
    slow = threading.Event()

    def first():
        slow.wait(PATIENCE)
        return "first"

    def second():
        slow.set()
        return "second"

    assert DaemonThreads().gather([first, second]) == ["first", "second"]


def test_an_error_is_raised_once_every_job_has_ended():
    ended = []

    def fail():
        raise ZeroDivisionError

    def linger():
        time.sleep(0.02)
        ended.append("lingered")

    with pytest.raises(ZeroDivisionError):
        DaemonThreads().gather([fail, linger])
    assert ended == ["lingered"]


def test_a_single_job_stays_in_the_callers_thread():
    assert DaemonThreads().gather([threading.current_thread]) == [threading.current_thread()]


def test_a_job_sees_the_context_variables_of_whoever_submits_it():
    threads = DaemonThreads()
    token = WHO.set("me")
    assert threads.submit(WHO.get).result(PATIENCE) == "me"
    WHO.reset(token)
    assert threads.submit(WHO.get).result(PATIENCE) == "nobody"


def test_an_idle_thread_is_used_again_and_one_whose_job_hangs_is_not():
    threads, hang = DaemonThreads(), threading.Event()
    first = threads.submit(threading.current_thread).result(PATIENCE)
    assert threads.submit(threading.current_thread).result(PATIENCE) is first
    hanging = threads.submit(hang.wait)
    assert threads.submit(threading.current_thread).result(PATIENCE) is not first
    hang.set()
    assert hanging.result(PATIENCE)


def test_a_job_cancelled_while_it_runs_does_not_end_its_thread():
    threads, started, go_on = DaemonThreads(), threading.Event(), threading.Event()

    def job():
        started.set()
        go_on.wait(PATIENCE)

    given_up = threads.submit(job)
    started.wait(PATIENCE)
    given_up.cancel()
    go_on.set()
    until(lambda: given_up.done() and threads._idle)
    assert [threads.submit(lambda: "alive").result(PATIENCE) for _ in range(3)] == ["alive"] * 3


def test_an_idle_thread_ends_by_itself_and_later_jobs_get_a_new_one(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.01)
    threads = DaemonThreads()
    old = threads.submit(threading.current_thread).result(PATIENCE)
    until(lambda: not old.is_alive())
    assert threads.submit(threading.current_thread).result(PATIENCE) is not old


@pytest.mark.parametrize("jobs", [60, pytest.param(200, marks=pytest.mark.gate)])
def test_no_job_is_lost_while_threads_retire(monkeypatch, jobs):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.0)
    threads = DaemonThreads()
    assert [threads.submit(lambda number=number: number).result(PATIENCE) for number in range(jobs)] == list(
        range(jobs)
    )


def test_an_idle_thread_keeps_nothing_of_its_last_job_alive(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 10 * PATIENCE)

    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    threads = DaemonThreads()
    threads.submit(lambda held=held: None).result(PATIENCE)
    del held

    def collected():
        gc.collect()
        return gone() is None

    until(collected)  # sooner than an idle thread ends


@pytest.mark.gate
def test_a_hanging_call_does_not_keep_the_interpreter_alive():
    code = (
        "import time\n"
        "from langchain_rageval.run.run import Run\n"
        "try:\n"
        "    Run(timeout=0.05).call_with_timeout(lambda: time.sleep(600))\n"
        "except TimeoutError:\n"
        "    print('left behind')\n"
    )
    assert printed(code) == "left behind\n"


@pytest.mark.gate
def test_many_small_runs_share_their_threads():
    code = (
        "import threading\n"
        "from langchain_rageval import OfflineJudge, evaluate, faithfulness\n"
        "samples = [{'question': 'Q?', 'answer': f'A {n}.', 'contexts': [f'A {n}.']} for n in range(6)]\n"
        "for _ in range(160):\n"
        "    evaluate(samples, faithfulness(OfflineJudge()), progress=False, max_concurrency=4)\n"
        "print(threading.active_count() - 1)\n"
    )
    assert int(printed(code)) <= 2 * 8  # each worker may use a second thread for a call with a timeout


@needs_fork
def test_a_forked_child_has_threads_of_its_own():
    run = Run()
    run.threads.submit(time.time).result(PATIENCE)
    assert holds_in_a_fork(lambda: run.threads.submit(lambda: "in the child").result(PATIENCE) == "in the child")


def test_a_stream_yields_a_result_before_later_jobs_have_ended():
    last = threading.Event()
    results = DaemonThreads().stream([lambda: "first", lambda: last.wait(PATIENCE)], 2)
    assert next(results) == "first"
    last.set()
    assert list(results) == [True]


def test_after_a_stream_is_closed_no_waiting_job_is_started():
    started, closed = [], threading.Event()
    waiting = [lambda: closed.wait(PATIENCE), lambda: started.append("third")]
    pool = DaemonThreads()
    results = pool.stream([lambda: "first", *waiting], 1)
    assert next(results) == "first"
    results.close()
    closed.set()
    until(lambda: pool._idle)
    assert started == []


def test_while_the_interpreter_shuts_down_a_job_of_a_pool_thread_runs_in_it(monkeypatch):
    threads = DaemonThreads()
    message = "can't create new thread at interpreter shutdown"

    def start(thread):
        raise RuntimeError(message)

    def submit():
        return threading.current_thread(), threads.submit(threading.current_thread).result(0)

    go_on = threading.Event()
    outer = threads.submit(lambda: go_on.wait(PATIENCE) and submit())
    monkeypatch.setattr(threading.Thread, "start", start)
    go_on.set()
    own, used = outer.result(PATIENCE)
    assert own is used
    assert own.daemon
    until(lambda: threads._idle)
    assert threads.submit(threading.current_thread).result(PATIENCE) is own
    with pytest.raises(RuntimeError, match=message):
        DaemonThreads().submit(threading.current_thread)
    message = "can't start new thread"
    with pytest.raises(RuntimeError, match=message):
        threads.submit(lambda: DaemonThreads().submit(threading.current_thread)).result(PATIENCE)
