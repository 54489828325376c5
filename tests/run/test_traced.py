"""Whether somebody listens: asked once for a metric, or a whole evaluation, and never missed."""

import pytest
from helpers.scripted import scripted, statements, supported, verdicts
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda

from langchain_rageval import OfflineJudge, Sample, aevaluate, context_precision, evaluate, faithfulness
from langchain_rageval.evaluation import job
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.run import run as traced

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
    if door == "evaluate":
        report = evaluate(samples, metrics, max_concurrency=1, progress=False)
    else:
        report = await aevaluate(samples, metrics, max_concurrency=1, progress=False)
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
