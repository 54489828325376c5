"""The run in a config: what it counts, its timeouts, whether a callback handler listens, and its progress."""

import asyncio
import io
import os
import pty
import re
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.offline import offline, rag_samples
from helpers.scripted import broken_judge, scripted, statements, supported, verdicts
from helpers.servers.chat import Faults
from helpers.waiting import PATIENCE, auntil
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough

from langchain_rageval import (
    HashingEmbeddings,
    OfflineJudge,
    RetryPolicy,
    Sample,
    context_precision,
    evaluate,
    faithfulness,
)
from langchain_rageval.data.schema import Usage
from langchain_rageval.evaluation import job
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.run import progress
from langchain_rageval.run import run as traced
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import UsageMeter, model_label


def seen(_input: object, config: RunnableConfig) -> Run:
    return Run.of(config)


SEEN = RunnableLambda(seen)


@each(
    "wrapped",
    [
        SEEN,
        SEEN.with_retry(),
        SEEN.with_fallbacks([SEEN]),
        SEEN.with_config(configurable={"other": 1}),
        RunnableLambda(lambda _: SEEN),
        RunnableParallel(found=SEEN) | (lambda found: found["found"]),
        RunnablePassthrough.assign(found=SEEN) | (lambda found: found["found"]),
    ],
    ids=["bare", "retry", "fallbacks", "config", "lambda", "parallel", "assign"],
)
async def test_the_run_reaches_a_step_through_any_wrapper(wrapped):
    run = Run()
    config = run.into({"configurable": {"user": "me"}})
    assert wrapped.invoke({}, config) is run
    assert await wrapped.ainvoke({}, config) is run
    assert config["configurable"]["user"] == "me"


def test_a_config_without_a_run_makes_a_new_one_each_time():
    assert Run.of({}) is not Run.of({})


def test_a_metered_run_charges_its_parent_too():
    run = Run()
    part = run.metered()
    part.meter.add(calls=1, input_tokens=5, seconds=0.5)
    run.metered().meter.add(calls=2, output_tokens=3)
    assert part.meter.usage == Usage(calls=1, input_tokens=5, seconds=0.5)
    assert run.meter.usage == Usage(calls=3, input_tokens=5, output_tokens=3, seconds=0.5)
    assert part.single_flight.calls is run.single_flight.calls


def test_a_sample_has_its_own_list_of_retained_results_in_the_same_table():
    run = Run()
    sample = run.for_sample()
    assert sample.single_flight.calls is run.single_flight.calls
    assert sample.single_flight.retained is not run.single_flight.retained
    assert sample.meter is run.meter


def test_a_call_beyond_the_timeout_is_abandoned_and_counted():
    run, hang = Run(timeout=0.02), threading.Event()
    part = run.metered()
    with pytest.raises(TimeoutError, match=r"^the model did not answer within 0\.02 s$"):
        part.call_with_timeout(lambda: hang.wait(PATIENCE))
    assert (part.meter.abandoned, run.meter.abandoned) == (1, 1)
    hang.set()
    assert replace(part, timeout=PATIENCE).call_with_timeout(lambda: "next") == "next"


async def test_an_async_caller_abandons_a_sync_call_and_the_next_one_still_runs():
    run, hang = Run(timeout=0.2), threading.Event()
    with pytest.raises(TimeoutError, match=r"^the model did not answer within 0\.2 s$"):
        await run.acall_with_timeout(lambda: hang.wait(PATIENCE))
    assert run.meter.abandoned == 1
    hang.set()
    await auntil(lambda: run.threads._idle)
    patient = replace(run, timeout=PATIENCE)
    assert [await patient.acall_with_timeout(lambda: "next") for _ in range(3)] == ["next"] * 3


def test_a_timeout_error_of_the_client_is_raised_unchanged():
    def impatient():
        raise TimeoutError("the client's own")

    run = Run(timeout=5)
    with pytest.raises(TimeoutError, match="the client's own"):
        run.call_with_timeout(impatient)
    with pytest.raises(TimeoutError, match="the client's own"):
        asyncio.run(run.acall_with_timeout(impatient))
    assert run.meter.abandoned == 0


def test_a_result_that_comes_with_the_end_of_the_timeout_is_a_result(monkeypatch):
    class Late(Future):
        def result(self, timeout=None):
            if timeout is not None:
                raise TimeoutError
            return super().result()

    async def late(awaitable, timeout):
        await awaitable
        raise TimeoutError

    def submit(function):
        future = Late()
        future.set_result(function())
        return future

    monkeypatch.setattr("langchain_rageval.run.run.shared_threads", lambda: SimpleNamespace(submit=submit))
    run = Run(timeout=60)
    assert run.call_with_timeout(lambda: "paid for") == "paid for"
    monkeypatch.setattr(asyncio, "wait_for", late)
    assert asyncio.run(run.acall_with_timeout(lambda: "paid for")) == "paid for"
    assert run.meter.abandoned == 0


def test_without_a_timeout_a_call_stays_in_its_thread():
    assert Run(timeout=None).call_with_timeout(threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize("max_retries", [0, 2])
@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_failed_score_says_which_model_did_not_answer_within_how_many_seconds(endpoint, door, max_retries):
    server = endpoint.server(offline, faults=Faults.script(["hang"] * 9))
    metric = faithfulness(endpoint.model(server, max_retries=max_retries))
    report = await report_by(door, rag_samples(1), metric, timeout=0.3, retry=RetryPolicy(attempts=1))
    failure = report.rows[0].scores["faithfulness"].failure
    name = {"openai": "ChatOpenAI m", "gigachat": "GigaChat GigaChat-2"}[endpoint.name]
    assert (failure.error, failure.message) == ("TimeoutError", f"{name} did not answer within 0.3 s")


def test_a_label_names_the_models_behind_wrappers(openai_server, chat_openai):
    server = openai_server(offline)
    model, other = chat_openai(server), chat_openai(server, model="https://key@host/m2")

    def ask(messages):
        return ""

    assert model_label(model.bind(stop=["x"]).with_retry()) == "ChatOpenAI m"
    assert model_label(model.with_fallbacks([other])) == "ChatOpenAI m or ChatOpenAI https://host/m2"
    assert model_label(RunnablePassthrough() | model) == "RunnablePassthrough | ChatOpenAI m"
    assert model_label(RunnableLambda(ask)) == "ask"
    assert model_label(HashingEmbeddings()) == "HashingEmbeddings"
    assert model_label(None) == "the model"


SAMPLE = Sample(question="?", answer="A.", contexts=["A."])


class Listener(BaseCallbackHandler):
    """Keeps the names of the runs that it sees begin."""

    run_inline = True

    def __init__(self):
        self.names = []

    def on_chain_start(self, *_, name=None, **__):
        self.names.append(name)


@pytest.fixture
def asked(monkeypatch):
    """How often it was asked who listens."""
    times = []
    has_callbacks = traced.has_callbacks
    for module in (traced, job):
        monkeypatch.setattr(module, "has_callbacks", lambda config: times.append(config) or has_callbacks(config))
    return times


def metric():
    return faithfulness(scripted(statements("a"), verdicts(supported(1, "1.1"))))


async def scores(door):
    return metric().invoke(SAMPLE) if door == "invoke" else await metric().ainvoke(SAMPLE)


@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
async def test_without_callbacks_on_a_metric_its_steps_do_not_look_for_them(asked, door):
    assert (await scores(door)).value == 1
    assert len(asked) == 1


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_without_callbacks_on_an_evaluation_its_metrics_do_not_look_for_them(asked, door):
    samples = [SAMPLE.model_copy(update={"id": str(number)}) for number in range(20)]
    metrics = [faithfulness(OfflineJudge()), context_precision(OfflineJudge())]
    report = await report_by(door, samples, metrics, max_concurrency=1)
    assert [of.scored for of in report.summary().values()] == [20, 20]
    assert 1 <= len(asked) <= 2  # by the first of its workers


def test_a_callback_around_an_evaluation_sees_its_metrics():
    listener = Listener()
    chain = RunnableLambda(lambda _: evaluate([SAMPLE], metric(), progress=False))
    chain.invoke(1, {"callbacks": [listener]})
    assert listener.names == ["RunnableLambda", "faithfulness", "extract_statements", "verify_statements"]


def test_a_callback_that_a_users_step_adds_sees_its_child_runs():
    listener = Listener()
    steps = metric().steps
    own = RunnableLambda(lambda state, config: steps.invoke(state, {**config, "callbacks": [listener]}), name="own")
    mine = Metric("mine", aspect="answer", reads=set(), steps=own, reduce=lambda state: Value(1))
    assert mine.invoke(SAMPLE).value == 1
    assert listener.names[-2:] == ["extract_statements", "verify_statements"]


@each(
    ("error", "timeout", "is_ours"),
    [
        *((httpx.ReadTimeout("slow"), 5, True), (httpx.ReadTimeout("slow"), None, False)),
        *((TimeoutError("own"), 5, False), (ValueError("no"), 5, False)),
    ],
)
def test_a_timeout_of_the_client_names_the_model_and_any_other_error_is_unchanged(error, timeout, is_ours):
    with (
        pytest.raises(type(error) if not is_ours else TimeoutError) as caught,
        Run(timeout=timeout).timeout_of_client(HashingEmbeddings()),
    ):
        raise error
    assert str(caught.value) == ("HashingEmbeddings did not answer within 5 s" if is_ours else str(error))


async def test_an_awaited_call_that_fails_as_it_is_cancelled_has_taken_too_long():
    async def closes_badly():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("closed") from None

    async def fails(error):
        raise error

    with pytest.raises(TimeoutError, match=r"^the chain did not answer within 0 s$"):
        await Run(timeout=0).await_with_timeout(closes_badly(), "the chain")
    for error in (TimeoutError("own"), ValueError("no")):
        with pytest.raises(type(error), match=f"^{error}$"):
            await Run(timeout=PATIENCE).await_with_timeout(fails(error), None)


# Progress


SAMPLES = [SAMPLE] * 5
OFFLINE = faithfulness(OfflineJudge())


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_short_run_says_nothing_and_progress_can_be_turned_off(capsys, monkeypatch, door):
    await report_by(door, SAMPLES, OFFLINE, progress=True)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    await report_by(door, SAMPLES, OFFLINE, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_away_from_a_terminal_it_is_plain_lines_on_stderr(capsys, monkeypatch, door):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    await report_by(door, SAMPLES, OFFLINE, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert "\x1b" not in told.err
    *_, last = told.err.splitlines()
    assert re.fullmatch(r"rageval: 5/5 samples, \d+ calls, [\d,]+ tokens, 0 failed", last)


@each(
    ("total", "passed", "rows", "line"),
    [
        (None, 60.0, 1, "1 samples, 7 calls, 1,534 tokens, 1 failed"),  # of an iterator the total is not known
        (400, 10.0, 1, "1/400 samples, 7 calls, 1,534 tokens, 1 failed, about 66 min left"),
        (400, 20.0, 399, "399/400 samples, 7 calls, 1,534 tokens, 1 failed, about 0 s left"),
        *(
            (5, passed, 1, f"1/5 samples, 7 calls, 1,534 tokens, 1 failed, about {left} left")
            for passed, left in ((22.0, "88 s"), (22.25, "89 s"), (22.5, "2 min"), (30.0, "2 min"), (60.0, "4 min"))
        ),
    ],
)
def test_it_tells_the_time_left_and_counts_calls_tokens_and_failures(clock, total, passed, rows, line):
    meter = UsageMeter()
    with progress.show_progress(total, meter, show=False) as shown:
        meter.add(calls=7, input_tokens=1500, output_tokens=34)
        clock.now += passed
        for number in range(rows):
            shown.advance(number == 0)
        assert shown.status_line() == line


def test_the_last_line_comes_even_when_the_run_breaks_off(capsys, clock):
    def broken_off():
        with progress.show_progress(9, UsageMeter(), show=True) as shown:
            clock.now += 6
            shown.advance()
            shown.advance()
            raise LookupError

    with pytest.raises(LookupError):
        broken_off()
    assert len(capsys.readouterr().err.splitlines()) == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_it_is_a_live_line_that_is_taken_away(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    evaluate(SAMPLES, faithfulness(broken_judge()), progress=True)
    assert "5/5 samples" in terminal.getvalue()
    assert "5 failed" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


PRINTS = """
import sys
from langchain_core.runnables import RunnableLambda
from langchain_rageval import Score, evaluate

def own(sample):
    sys.stdout.write("mine\\n")  # print writes the end of the line apart
    return Score(metric="own", aspect="answer", value=1.0)

evaluate([{"question": "q"}] * 3, RunnableLambda(own), max_concurrency=1)
"""


@pytest.mark.gate
def test_what_a_users_metric_prints_stays_on_stdout_beside_a_live_line():
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE, stderr=theirs, timeout=PATIENCE)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.stdout == b"mine\n" * 3


def test_a_line_is_printed_exactly_five_seconds_after_the_last_and_none_twice(capsys, clock):
    with progress.show_progress(9, None, show=True) as shown:
        for seconds in (4.75, 0.25, 4.75, 0.25):
            clock.now += seconds
            shown.advance()
    rows = [line.split(" samples")[0] for line in capsys.readouterr().err.splitlines()]
    assert rows == ["rageval: 2/9", "rageval: 4/9"]


def test_a_state_is_shown_after_the_counts_and_an_outcome_in_place_of_the_failures(capsys, clock):
    with progress.show_progress(2, None, show=True, outcome=lambda: "undecided") as shown:
        clock.now += 5
        shown.show("wave 1")
        clock.now += 5
        shown.show("wave 1")  # nothing new
        shown.advance()
        shown.advance()
    assert capsys.readouterr().err.splitlines() == [
        "rageval: 0/2 samples, undecided; wave 1",
        "rageval: 1/2 samples, undecided, about 10 s left; wave 1",
        "rageval: 2/2 samples, undecided; wave 1",
    ]
