"""Metrics as scorers of `mlflow.genai.evaluate`, in a real MLflow store on disk."""

import sys
from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.samples import CONTEXTS, Search
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from langchain_rageval import ConfigError, OfflineJudge, exact_match, faithfulness, recall_at, suite
from langchain_rageval.metrics.adapters import _fields, mlflow_key
from langchain_rageval.testing import ScriptedJudge

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own use of SQLAlchemy, pandas and Pydantic
QUESTION = "На какой реке стоит Мюнхен?"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    """MLflow with a store in a new folder."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_DISABLE_TELEMETRY", "LITELLM_LOCAL_MODEL_COST_MAP"):
            patch.setenv(name, "true")
        patch.setenv("MLFLOW_GENAI_EVAL_SKIP_TRACE_VALIDATION", "true")
        for name in ("MLFLOW_ENABLE_ASYNC_LOGGING", "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"):
            patch.setenv(name, "false")
        patch.chdir(folder)
        mlflow = pytest.importorskip("mlflow")

        patch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
        patch.setattr("mlflow.tracking.fluent._active_experiment_id", None)  # another test's, of another store
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        yield mlflow
        mlflow.set_tracking_uri(before)


def assessments(result):
    """Return the assessments of the scorers in the first row, by name."""
    found = result.result_df.iloc[0]["assessments"]
    return {one["assessment_name"]: one for one in found if "feedback" in one}


@pytest.mark.gate
def test_the_fields_of_a_data_set_become_an_assessment_with_a_rationale(mlflow):
    answered = {"answer": "Мюнхен стоит на реке Изар.", "contexts": ["Мюнхен стоит на реке Изар."]}
    data = {"inputs": {"question": QUESTION}, "outputs": answered}
    data |= {"expectations": {"expected_response": "На Изаре."}}
    metrics = suite(faithfulness(OfflineJudge()), exact_match())
    result = mlflow.genai.evaluate(data=[data], scorers=[metrics.as_mlflow()])
    assert result.metrics == {"faithfulness/mean": 1.0, "exact_match/mean": 0.0}
    found = assessments(result)
    assert found["faithfulness"]["rationale"] == "Контексты подтверждают 1 из 1 утверждения."
    assert found["faithfulness"]["source"] == {"source_type": "LLM_JUDGE", "source_id": "langchain-rageval"}
    assert found["exact_match"]["source"]["source_type"] == "CODE"
    assert found["faithfulness"]["metadata"]["direction"] == "higher"


@pytest.mark.gate
def test_contexts_come_from_the_retriever_spans_of_a_chain(mlflow):
    found = {"d2": CONTEXTS[1], "d1": "Мюнхен стоит на реке Изар."}
    shelf = Search(documents=[Document(text, metadata={"doc_uri": uri}) for uri, text in found.items()])
    answer = RunnableLambda(lambda given: f"Мюнхен стоит на реке Изар. ({len(given['found'])})")
    chain = RunnablePassthrough.assign(found=RunnableLambda(lambda given: given["question"]) | shelf) | answer
    data = [{"inputs": {"question": QUESTION}, "expectations": {"expected_retrieved_context": [{"doc_uri": "d1"}]}}]
    mlflow.langchain.autolog()
    try:
        scorers = [recall_at(1).as_mlflow(), recall_at(2).as_mlflow()]
        ask = lambda question: chain.invoke({"question": question})  # noqa: E731
        result = mlflow.genai.evaluate(data=data, predict_fn=ask, scorers=scorers)
    finally:
        mlflow.langchain.autolog(disable=True)
    assert result.metrics == {"recall_at_1/mean": 0.0, "recall_at_2/mean": 1.0}


@pytest.mark.gate
def test_a_failed_judge_and_a_missing_field_are_errors_of_the_assessment(mlflow):
    data = [{"inputs": {"question": QUESTION}, "outputs": {"answer": "На Изаре.", "contexts": ["Изар."]}}]
    broken = faithfulness(ScriptedJudge("not JSON", repeat=True), name="broken")
    result = mlflow.genai.evaluate(data=data, scorers=[broken.as_mlflow(), exact_match().as_mlflow()])
    assert result.metrics == {}
    found = assessments(result)
    assert found["broken"]["feedback"]["error"]["error_code"] == "JudgeOutputError"
    assert "exact_match" in found["exact_match"]["feedback"]["error"]["error_message"]


@each(
    ("failing", "source"),
    [([], {"faithfulness": "judge", "exact_match": "code"}), (["faithfulness"], {"faithfulness": "judge"})],
)
def test_an_assessment_has_the_value_or_the_error_and_says_who_made_it(monkeypatch, failing, source):
    kinds = SimpleNamespace(CODE="code", LLM_JUDGE="judge")
    made = {"AssessmentError": dict, "AssessmentSource": dict, "Feedback": dict, "AssessmentSourceType": kinds}
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(**made))
    scorers = SimpleNamespace(scorer=lambda name: lambda function: function)
    monkeypatch.setitem(sys.modules, "mlflow.genai.scorers", scorers)
    judge = ScriptedJudge("not JSON", repeat=True) if failing else OfflineJudge()
    metrics = suite(faithfulness(judge), exact_match())
    outputs = {"answer": CONTEXTS[0], "contexts": CONTEXTS}
    found = {one["name"]: one for one in metrics.as_mlflow()({"question": QUESTION}, outputs, CONTEXTS[0])}
    assert {name: one["source"]["source_type"] for name, one in found.items()} == source | {"exact_match": "code"}
    assert [name for name, one in found.items() if one["error"]] == failing
    assert [name for name, one in found.items() if one["value"] is None] == failing
    assert all(found[name]["error"]["error_code"] == "JudgeOutputError" for name in failing)
    assert (found["exact_match"]["value"], found["exact_match"]["metadata"]["aspect"]) == (1.0, "answer")


def test_names_are_valid_keys():
    keys = {"recall@5": "recall_at_5", "a/b: c": "a_b_ c", " .a. ": "a", "...": "_"}
    keys |= {"a" * 200: "a" * 200, "a" * 201: "a" * 200}
    assert {name: mlflow_key(name) for name in keys} == keys


def test_mlflow_has_to_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.genai.scorers", None)
    with pytest.raises(ConfigError, match=r"^MLflow is not installed: pip install mlflow$"):
        exact_match().as_mlflow()


def span(number, parent=None, kind="RETRIEVER", outputs=()):
    return SimpleNamespace(span_id=number, parent_id=parent, span_type=kind, outputs=list(outputs))


def test_the_arguments_of_a_scorer_become_fields_without_mlflow():
    inner, outer = [{"page_content": "no"}], [{"page_content": "yes", "metadata": {"doc_uri": "d1"}}, "text"]
    spans = [span("1", kind="CHAIN"), span("2", "1", outputs=outer), span("3", "2", "TOOL")]
    spans += [span("4", "3", outputs=inner), span("5", "1", "TOOL", inner)]
    trace = SimpleNamespace(data=SimpleNamespace(spans=spans))
    found = [{"doc_uri": "d1"}, {"content": "c"}, {"doc_uri": ""}, "x"]
    expected = {"answer": "a", "expected_retrieved_context": found}
    asked = {"inputs": {"question": QUESTION}, "outputs": "On the Isar."}
    assert _fields(*asked.values(), expected, trace) == {
        **asked,
        "reference_outputs": {"answer": "a"},
        "reference_context_ids": ["d1"],
        "reference_contexts": ["c"],
        "contexts": [{**outer[0], "id": "d1"}, "text"],
    }
    assert _fields(*asked.values(), "a", None) == {**asked, "reference_outputs": "a"}
    assert _fields(*asked.values(), None, SimpleNamespace(data=SimpleNamespace(spans=[]))) == asked
    told = {"response": "On the Isar.", "contexts": ["own"]}
    assert "contexts" not in _fields(asked["inputs"], told, {}, trace)
