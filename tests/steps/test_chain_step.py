"""Step.from_chain: a user's chain as a step of a metric, under the limits of a run."""

import asyncio
import threading
import time

import pytest
from helpers.doors import scores_by
from helpers.each import DOORS, each, error_of
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from langchain_rageval import Budget, Metric, RetryPolicy, Sample, Step, Value, evaluate, plan
from langchain_rageval.errors import ConfigError, JudgeOutputError
from langchain_rageval.evaluation.dry_run import dry_run_context
from langchain_rageval.run.run import Run
from langchain_rageval.steps.stage import Stage
from langchain_rageval.steps.step import ChainStep

SAMPLE = Sample(question="How?", answer="Thank you {name}!", contexts=["First."])
SAMPLES = [{"question": f"{number}?", "answer": "Yes."} for number in range(6)]
UNREADABLE = threading.local()
PROMPT = ChatPromptTemplate.from_messages([("system", "Rate {answer}"), ("human", "Now")])
CALLS = [ChainStep.invoke, lambda step, state: asyncio.run(step.ainvoke(state))]
each_door = pytest.mark.parametrize("door", DOORS)


def saying(*replies):
    """Return a chat model that gives these replies in order."""
    return GenericFakeChatModel(messages=iter(replies))


def message(text, **usage):
    """Return a reply with usage."""
    return AIMessage(text, usage_metadata={"input_tokens": 7, "output_tokens": 2, "total_tokens": 9, **usage})


def out_of(state):
    """Return the output of the chain as a value."""
    return Value(float(state["out"]), "out")


def mine(chain, name="mine", **options):
    """Return a metric of a chain whose output is a number."""
    step = Step.from_chain(chain, **{"reads": ("answer",), "key": "out", **options})
    return Metric(name, aspect="style", reads={"answer"}, steps=step, reduce=out_of)


@each("call", CALLS)
def test_the_output_of_the_chain_is_added_under_the_key_and_one_that_the_parser_rejects_is_a_failure(call):
    step = Step.from_chain(PROMPT | saying("good") | StrOutputParser(), reads=("answer",), key="tone")
    assert call(step, {"sample": SAMPLE, "before": 1}) == {"sample": SAMPLE, "before": 1, "tone": "good"}
    assert step.get_name() == "tone"
    step = Step.from_chain(PROMPT | saying("no json") | JsonOutputParser(), reads=("answer",), key="out")
    error = error_of(JudgeOutputError, call, step, {"sample": SAMPLE})
    assert (error.step, error.raw_output, type(error.__cause__)) == ("out", "no json", OutputParserException)


def test_the_inputs_are_the_fields_or_what_a_function_gives():
    seen = []
    Step.from_chain(seen.append, reads=("answer", "contexts"), key="out").invoke({"sample": SAMPLE})
    Step.from_chain(seen.append, inputs=lambda sample: sample.question, key="out").invoke({"sample": SAMPLE})
    assert seen == [{"answer": "Thank you {name}!", "contexts": ["First."]}, "How?"]


@each_door
async def test_model_calls_and_tokens_are_counted(door):
    both = RunnableParallel(a=PROMPT | saying(message("1")), b=PROMPT | saying(message("1", input_tokens=3)))
    metric = mine(both | (lambda _: 1))
    (scores,) = await scores_by(door, SAMPLES[:1], metric)
    usage = scores["mine"].usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (2, 10, 4)
    assert usage.seconds > 0


def test_a_cached_reply_is_no_call_and_a_model_without_usage_is_estimated():
    run = Run()
    cached = mine(PROMPT | saying(message("1", total_cost=0)) | StrOutputParser())
    assert cached.invoke(SAMPLES[0]).usage.calls == 0
    mine(PROMPT | saying("1") | StrOutputParser()).invoke(SAMPLES[0], run.into({}))
    assert (run.meter.usage.calls, run.meter.usage.input_tokens, run.meter.unreported) == (1, None, 3)


@each_door
async def test_the_limit_on_concurrent_calls_holds(door):
    under_way, most = [], []

    def slow(_):
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.02)
        return under_way.pop()

    scores = await scores_by(door, SAMPLES, mine(slow), max_concurrency=2)
    assert [score["mine"].value for score in scores] == [1.0] * 6
    assert max(most) <= 2


@each_door
async def test_transport_errors_are_retried_and_count_as_calls(door):
    tries = []

    def flaky(prompt):
        tries.append(prompt)
        if len(tries) < 3:
            raise ConnectionResetError("reset")
        return AIMessage("1")

    metric = mine(PROMPT | flaky | StrOutputParser())
    retry = RetryPolicy(attempts=5, initial=0.001, max_wait=0.002)
    (scores,) = await scores_by(door, SAMPLES[:1], metric, retry=retry)
    assert (scores["mine"].value, len(tries)) == (1.0, 3)


@each_door
async def test_a_chain_that_hangs_is_ended_by_the_timeout(door):
    released = threading.Event()
    metric = mine(RunnableLambda(lambda _: released.wait(30)))
    (scores,) = await scores_by(door, SAMPLES[:1], metric, timeout=0.05, retry=RetryPolicy(attempts=1))
    released.set()
    assert (scores["mine"].failure.error, scores["mine"].failure.step) == ("TimeoutError", "out")


def test_the_budget_bounds_its_calls():
    metric = mine(PROMPT | saying(*[message("1")] * 6) | StrOutputParser())
    report = evaluate(SAMPLES, metric, budget=Budget(calls=2), max_concurrency=1, progress=False)
    assert (report.summary()["mine"].scored, report.summary()["mine"].calls, len(report.left_out)) == (2, 2, 4)


def test_the_plan_counts_its_models_and_formats_its_prompt_without_a_call():
    model = saying()
    metric = mine(PROMPT | model | RunnableLambda(str) | PROMPT | model.with_retry())
    planned = plan(SAMPLES, metric)
    assert (planned.calls, planned.notes) == (12, [])
    assert planned["mine"].input_tokens == 12 * (len("System: Rate Yes.\nHuman: Now") // 4)
    no_prompt = plan(SAMPLES[:1], mine(RunnableLambda(lambda _: 1)))
    assert (no_prompt.calls, no_prompt["mine"].input_tokens) == (1, len("{'answer': 'Yes.'}") // 4)
    step = Step.from_chain(PROMPT | model, reads=("answer",), key="out")
    assert step.invoke({"sample": SAMPLE}, dry_run_context().into({}))["out"] is None


def test_two_metrics_of_one_step_invoke_the_chain_once():
    seen = []
    step = Step.from_chain(lambda inputs: seen.append(inputs) or 1, reads=("answer",), key="out")
    metrics = [Metric(name, aspect="style", reads={"answer"}, steps=step, reduce=out_of) for name in ("one", "two")]
    evaluate(SAMPLES[:2], metrics, progress=False)
    assert len(seen) == 2


def test_the_trace_shows_the_chain_under_the_step_and_the_run_stays_out_of_it():
    seen = []

    def chain(_, config):
        seen.append(config["configurable"])
        return 1

    step = RunnableLambda(chain)
    tracer = RunCollectorCallbackHandler()
    mine(step).invoke(SAMPLES[0], {"callbacks": [tracer], "configurable": {"thread_id": "7"}})
    (root,) = tracer.traced_runs
    assert [root.name, root.child_runs[0].name, root.child_runs[0].child_runs[0].name] == ["mine", "out", "chain"]
    assert seen == [{"thread_id": "7"}]


MISTAKES = [
    ({"key": "sample"}, "key of step sample must not be 'sample': the state holds the sample under it"),
    ({"chain": 3}, "step tone takes a Runnable or a function, got int"),
    ({"key": ""}, "key and name of a chain's step must not be empty, got '' and ''"),
]


@each(("options", "text"), MISTAKES)
def test_a_mistake_is_an_error_at_once(options, text):
    given = {"chain": PROMPT, "reads": ("answer",), "key": "tone", **options}
    assert str(error_of(ConfigError, Step.from_chain, **given)) == text


def test_its_identity_is_that_of_the_chain_and_its_inputs():
    def identity(chain, **options):
        return mine(chain, **options).instrument.partition(".")[0]

    identities = {
        identity(ChatPromptTemplate.from_messages([("human", "{answer}")])),
        identity(PROMPT, reads=("answer", "question")),
        identity(PROMPT | RunnableLambda(lambda text: text)),
        identity(PROMPT | RunnableLambda(lambda text: str(text))),
    }
    assert len({identity(PROMPT), *identities}) == 5
    assert len({identity(PROMPT), identity(PROMPT)}) == 1
    assert identity(RunnableLambda(lambda _: UNREADABLE.value)) == "unknown"


class Doubled(Stage):
    """Stage without a model that doubles the output of a chain."""

    @property
    def instrument(self):
        return {"step": "doubled"}

    def work(self, state):
        yield from ()
        return state | {"out": 2 * state["out"]}


def test_a_chain_before_another_stage_is_not_invoked_again_to_rescore():
    asked = []
    chain = RunnableLambda(lambda inputs: asked.append(inputs) or 0.25)
    steps = Step.from_chain(chain, reads=("answer",), key="out") | Doubled(name="doubled")
    metric = Metric("mine", aspect="style", reads={"answer"}, steps=steps, reduce=out_of)
    report = evaluate(SAMPLES[:1], metric, progress=False)
    assert report.rows[0].scores["mine"].value == 0.5
    error_of(ConfigError, report.rescore, metric)
    assert len(asked) == 1
