import asyncio
import threading
from dataclasses import replace

import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, auntil
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough

from langchain_rageval.chains.run_trees import _tool_source
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import UsageMeter


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


def test_tokens_stay_unknown_while_no_model_reports_any():
    meter = UsageMeter()
    meter.add(calls=1)
    assert (meter.usage.input_tokens, meter.usage.output_tokens) == (None, None)


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


def test_without_a_timeout_a_call_stays_in_its_thread():
    assert Run(timeout=None).call_with_timeout(threading.current_thread) is threading.current_thread()


def test_the_source_of_a_tools_documents_is_its_name_and_the_id_of_its_call():
    message = ToolMessage("found", name="search", tool_call_id="c1")
    assert _tool_source(message) == "search c1"
    assert _tool_source(ToolMessage("found", tool_call_id="c1")) == "c1"
    assert _tool_source("found") is None
