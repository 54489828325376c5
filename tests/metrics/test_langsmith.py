"""A metric as an evaluator of LangSmith experiments, with the real client and nothing uploaded."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import requests
from helpers.samples import ANSWER, CONTEXTS, QUESTION, Search
from helpers.scripted import answering, human_of, offline_reply, recording_judge
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tracers.evaluation import EvaluatorCallbackHandler
from langsmith import Client, aevaluate, evaluate, tracing_context
from langsmith.run_helpers import get_current_run_tree, get_tracing_context
from langsmith.run_trees import RunTree
from langsmith.schemas import Example
from langsmith.utils import get_env_var

from langchain_rageval import Metric, OfflineJudge, faithfulness, suite
from langchain_rageval.integrations.langsmith import summary_evaluator
from langchain_rageval.metrics.suite import Suite

pytestmark = pytest.mark.filterwarnings("ignore:'upload_\\w+' parameter is in beta")

OUR_RUNS = {"faithfulness", "other", "extract_statements", "verify_statements", "Scripted", "OfflineJudge"}


class Session(requests.Session):
    """Answers every request and keeps the names of the runs that were posted."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[str] = []

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        body = json.loads(options.get("data") or "{}")
        if method == "POST" and "run_type" in body:
            self.posted.append(body["name"])
        response = requests.Response()
        response.status_code, response._content = 202, b"{}"
        return response


@pytest.fixture
def session() -> Iterator[Session]:
    get_env_var.cache_clear()
    with Session() as session:
        yield session
    get_env_var.cache_clear()


@pytest.fixture
def client(session: Session) -> Client:
    return Client(api_url="http://127.0.0.1:9", api_key="x", session=session, auto_batch_tracing=False, info={})


def answers_alone() -> Runnable[Any, str]:
    """A chain whose output is the answer: its contexts are to be found in the run of its retriever."""
    retrieve = {"context": Search(), "question": RunnablePassthrough()}
    return RunnableLambda(lambda inputs: inputs["question"]) | retrieve | RunnableLambda(lambda _: ANSWER)


def examples(*questions: str) -> list[Example]:
    fields = {"dataset_id": uuid4(), "outputs": {"answer": "1158"}, "created_at": datetime.now(UTC)}
    return [Example(id=uuid4(), inputs={"question": question}, **fields) for question in questions]


async def experiment(
    entry_point: str, client: Client, target: Any, evaluator: Metric | Suite, data: list[Example]
) -> list[list[Any]]:
    """The feedback on each example, in the order of the examples, of an experiment that is not uploaded."""
    options: dict[str, Any] = {"data": data, "evaluators": [evaluator], "client": client, "upload_results": False}
    if entry_point == "evaluate":
        rows: list[Any] = list(evaluate(target, **options))
    else:
        rows = [row async for row in await aevaluate(target, **options)]
    by_id = {row["example"].id: row["evaluation_results"]["results"] for row in rows}
    return [by_id[example.id] for example in data]


both_entry_points = pytest.mark.parametrize("entry_point", ["evaluate", "aevaluate"])


@both_entry_points
async def test_a_metric_is_an_evaluator_that_finds_the_contexts_in_the_retrievers_run(entry_point, client):
    judge, data = recording_judge(), examples(QUESTION)
    ((feedback,),) = await experiment(entry_point, client, answers_alone(), faithfulness(judge), data)
    assert (feedback.key, feedback.score) == ("faithfulness", 0.5)
    assert feedback.comment.startswith("The contexts support 1 of 2 statements")
    assert feedback.metadata["sample"] == str(data[0].id)
    assert [finding["verdict"] for finding in feedback.metadata["findings"]] == ["supported", "absent"]
    assert [inputs["question"] for inputs in judge.inputs] == [QUESTION, QUESTION]
    assert f"[1.1] {CONTEXTS[0]}\n[2]\n[2.1] {CONTEXTS[1]}" in human_of(judge.asked[1])


class Crashing(Metric):
    """Fails outside of the judge's calls."""

    def read(self, input: Any) -> Any:
        raise ZeroDivisionError("a bug")


@both_entry_points
async def test_even_a_crash_leaves_a_record_without_a_score_under_the_metrics_name(entry_point, client):
    good = faithfulness(OfflineJudge())
    bad = Crashing("faithfulness", aspect="grounding", reads=good.reads, steps=good.steps, reduce=good.reduce)
    ((feedback,),) = await experiment(entry_point, client, answers_alone(), bad, examples(QUESTION))
    assert (feedback.key, feedback.score) == ("faithfulness", None)
    assert "a bug" in feedback.comment


@pytest.mark.filterwarnings("ignore:Creating feedback for a run without session_id")  # LangChain's handler does that
def test_a_metric_scores_behind_a_chain_as_langchains_own_evaluator_callback(client, session):
    handler = EvaluatorCallbackHandler([faithfulness(OfflineJudge())], client=client, max_concurrency=0)
    chain = RunnableLambda(lambda _: {"answer": ANSWER, "contexts": CONTEXTS})
    chain.invoke({"question": QUESTION}, {"callbacks": [handler]})
    handler.wait_for_futures()
    ((results),) = handler.logged_eval_results.values()
    assert [(result.key, result.score) for result in results] == [("faithfulness", 0.5)]


@both_entry_points
async def test_a_judge_that_fails_leaves_no_score_but_the_cause_on_its_row_alone(entry_point, client):
    def moody(messages: list[BaseMessage]) -> Any:
        return ConnectionError("reset by peer") if "Berlin" in human_of(messages) else offline_reply(messages)

    data = examples(QUESTION, "When was Berlin founded?", QUESTION + " Please.")
    rows = await experiment(entry_point, client, answers_alone(), faithfulness(answering(moody)), data)
    assert [feedback.score for (feedback,) in rows] == [0.5, None, 0.5]
    assert rows[1][0].comment == "ConnectionError: reset by peer"
    assert rows[1][0].metadata["failure"]["step"] == "extract_statements"


@both_entry_points
@pytest.mark.parametrize("several", [False, True], ids=["metric", "suite"])
async def test_a_missing_field_stays_on_its_row(entry_point, several, client):
    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"answer": ANSWER} if "Berlin" in inputs["question"] else {"answer": ANSWER, "contexts": CONTEXTS}

    metric = faithfulness(OfflineJudge())
    evaluator = suite(metric, faithfulness(OfflineJudge(), name="other")) if several else metric
    data = examples("When was Berlin founded?", QUESTION)
    rows = await experiment(entry_point, client, RunnableLambda(target), evaluator, data)
    assert [[part.key for part in feedback] for feedback in rows] == [evaluator.feedback_keys, evaluator.feedback_keys]
    assert [[part.score for part in feedback] for feedback in rows] == [[None] * len(rows[0]), [0.5] * len(rows[0])]
    for part in rows[0]:
        assert "lacks ['contexts']: fill it in or drop the metric" in part.comment
        assert (part.metadata["failure"]["error"], part.metadata["failure"]["step"]) == ("SampleError", "sample")


@both_entry_points
@pytest.mark.parametrize("tracing", [None, "true"], ids=["untraced process", "traced process"])
async def test_without_upload_no_call_of_the_judge_is_traced(entry_point, tracing, client, session, monkeypatch):
    if tracing:
        monkeypatch.setenv("LANGSMITH_TRACING", tracing)
    seen: list[tuple[Any, Any]] = []  # what LangSmith would make of each call of the judge

    def watching(messages: list[BaseMessage]) -> BaseMessage:
        seen.append((get_tracing_context()["enabled"], get_current_run_tree()))
        return offline_reply(messages)

    both = suite(faithfulness(answering(watching)), faithfulness(OfflineJudge(), name="other"))
    ((feedback, _),) = await experiment(entry_point, client, answers_alone(), both, examples(QUESTION))
    assert feedback.score == 0.5
    assert seen == [(False, None), (False, None)]
    assert "Search" in session.posted  # LangSmith itself posts the target's runs
    assert OUR_RUNS.isdisjoint(session.posted)


@both_entry_points
async def test_whoever_traces_the_process_sees_the_judges_calls(entry_point, client, session, monkeypatch):
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    traced = RunTree(name="rag", inputs={}, outputs={"answer": ANSWER, "contexts": CONTEXTS}, ls_client=client)
    metric, (example,) = faithfulness(recording_judge()), examples(QUESTION)
    with tracing_context(enabled=True, client=client):
        if entry_point == "evaluate":
            feedback = metric.evaluate_run(traced, example)
        else:
            feedback = await metric.aevaluate_run(traced, example)
    assert feedback.score == 0.5
    assert session.posted == ["faithfulness", "extract_statements", "Scripted", "verify_statements", "Scripted"]


@both_entry_points
async def test_a_summary_evaluator_gives_the_mean_of_an_experiment_untraced(entry_point, client, session):
    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"answer": ANSWER if inputs["question"] == QUESTION else "1158 in Munich.", "contexts": CONTEXTS}

    metrics = suite(faithfulness(OfflineJudge()), faithfulness(OfflineJudge(), name="other"))
    evaluators = [summary_evaluator(metrics.metrics[0]), summary_evaluator(metrics)]
    options: dict[str, Any] = {"data": examples(QUESTION, "And when?"), "summary_evaluators": evaluators}
    options |= {"upload_results": False, "client": client}
    chain = RunnableLambda(target)
    done: Any = evaluate(chain, **options) if entry_point == "evaluate" else await aevaluate(chain, **options)
    if entry_point == "aevaluate":
        assert len([row async for row in done]) == 2
    means = [(result.key, result.score) for result in done._summary_results["results"]]
    assert means == [("faithfulness", 0.75), ("faithfulness", 0.75), ("other", 0.75)]
    assert OUR_RUNS.isdisjoint(session.posted)
