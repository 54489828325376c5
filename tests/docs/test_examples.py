"""The examples of the documentation give the results that their pages state, and the tables of pages match the code."""

import re
import warnings
from contextlib import nullcontext

import pytest
from helpers.each import each
from helpers.manual import TEXT, blocks, page, prose, sections, table
from helpers.reports import report_of, scored
from helpers.scripted import offline_reply, recording_judge
from langsmith.utils import get_env_var

import langchain_rageval
from langchain_rageval import BelowThreshold, HashingEmbeddings, Metric, Report, evaluate, faithfulness, suite
from langchain_rageval.metrics import BUILDERS
from langchain_rageval.metrics.answer_correctness import answer_correctness
from langchain_rageval.metrics.context_metrics import context_precision, context_recall, context_relevance
from langchain_rageval.metrics.similarity_metrics import answer_relevance
from langchain_rageval.prompts.criteria import default_criteria

SAMPLE = {"question": "Q?", "answer": "Munich is old. Berlin is new.", "contexts": ["Munich is old."]}
PUBLIC = {name: getattr(langchain_rageval, name) for name in BUILDERS}
FIELDS = ("answer", "contexts", "references", "history")
TALK = [{"role": "user", "text": "I live in Munich. Is it old?"}, {"role": "assistant", "text": "Munich is a town."}]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Return a function that runs a block of a page or section, by default the first, and returns all variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")

    def run(name, section=None, block=0, **names):
        text = sections(page(name))[section] if section else page(name)
        exec(compile(blocks(text)[block], name, "exec"), names)
        return names

    return run


def test_evaluation_in_python(ran, capsys):
    left = ran("how-to/evaluate")
    assert left["score"].value == 0.5
    printed = capsys.readouterr().out
    ran("how-to/evaluate", "Scores without a number")
    assert capsys.readouterr().out == blocks(page("how-to/evaluate"), "text")[0]
    shown = ["supported Мюнхен основан в 1158 году. ['1.1']", "absent В нём живёт миллион слонов. []"]
    shown += ["faithfulness 0.500"]
    assert [part for part in shown if part not in printed] == []


def test_metrics(ran):
    scores = ran("reference/metrics")["report"].rows[0].scores
    names = ("faithfulness", "context_precision", "context_recall", "answer_correctness", "politeness")
    assert (*scores,) == names
    assert all(score.value is not None for score in scores.values())


@each("row", table(page("reference/metrics")), ids=lambda row: row[0])
def test_the_table_of_metrics_states_calls_and_fields(row):
    built, _, reads, calls = row
    judge, embeddings = recording_judge(), HashingEmbeddings()
    metric = eval(built.strip("`"), {**PUBLIC, "judge": judge, "embeddings": embeddings})
    history = {"history": TALK} if "history" in metric.reads else {}
    metric.invoke({**SAMPLE, "references": ["The town of Munich is very old."], **history})
    assert len(judge.asked) == int(calls)
    assert metric.reads - {"question"} == {field for field in FIELDS if field in reads.partition(";")[0].split(", ")}


def test_every_metric_is_in_both_tables():
    builders = {row[0].strip("`").partition("(")[0] for row in table(page("reference/metrics"))}
    assert builders == BUILDERS.keys()
    migrated = " ".join(row[1] for row in table(page("how-to/migrating")))
    assert not BUILDERS.keys() - set(re.findall(r"\w+", migrated))


def test_the_number_of_shared_calls_is_true():
    judge, embeddings = recording_judge(), HashingEmbeddings()
    three = [faithfulness(judge), context_recall(judge), answer_correctness(judge, embeddings)]
    more = [answer_relevance(judge, embeddings), context_precision(judge), context_relevance(judge)]
    sample = {**SAMPLE, "references": ["Munich is very old."]}
    suite(*three).invoke(sample)
    assert len(judge.asked) == 5
    suite(*three, *more).invoke(sample)
    assert len(judge.asked) == 5 + 8
    assert "take 5 calls together, 8 with" in " ".join(page("reference/metrics").split())


def test_every_call_of_a_report_in_the_text_works(ran, tmp_path):
    left = ran("how-to/evaluate")
    more = [left["samples"][0], {**left["samples"][0], "question": "?", "answer": "Мюнхен основан в 1158 году."}]
    for turn, evolution in enumerate(("simple", "reasoning")):
        place = {"document": evolution, "tree_id": "tree", "evolution": evolution, "turn": turn + 1}
        more[turn] = {**more[turn], "metadata": place}
    report = evaluate(more, faithfulness(left["OfflineJudge"]()), progress=False)
    names = {"report": report, "path": tmp_path / "report.jsonl", "labels": {report.rows[0].sample.id: 1.0}}
    calls = set(re.findall(r"`(report\.[^`]*)`", prose(TEXT))) - {"report.jsonl.part", "report.jsonl", "report.html"}
    again, reweighed = sorted(call for call in calls if "rescore(" in call)
    calls -= {again, reweighed}
    assert len(calls) >= 11
    graded = ran("how-to/rubric")
    graded["criteria"] = [criterion.model_copy(update={"weight": 1.0}) for criterion in default_criteria()["ru"]]
    assert eval(reweighed, graded).summary()["rubric"].mean != graded["report"].summary()["rubric"].mean
    assert eval(again, ran("reference/metrics")).summary()["answer_correctness"].mean == pytest.approx(2 / 3)
    for call in calls:
        with pytest.raises(BelowThreshold) if "check" in call else nullcontext():
            eval(call, names)
    assert type(report).load(names["path"]) == report


def test_cost_estimate_and_budget(ran, capsys):
    left = ran("how-to/cost-and-budget")
    printed = capsys.readouterr().out
    assert [part for part in ("total 16 calls", "2 scores were left out") if part not in printed] == []
    assert sum(metric.calls for metric in left["report"].summary().values()) == 12
    assert Report.load("report.jsonl") == left["report"]


def test_a_test_set_that_one_can_look_into_price_and_grow_as_trees(ran, capsys):
    made = ran("how-to/test-set")
    assert made["testset"].counts == {"simple": 1, "reasoning+conditional": 1}
    assert "Test set of 2 questions" in capsys.readouterr().out
    ran("how-to/test-set", "Why questions are rejected", **made)
    ran("how-to/test-set", "What it costs", **made)
    assert "Plan for 50 questions: 11.0 calls each if none is rejected" in capsys.readouterr().out
    left = ran("how-to/test-set", "One fact, several difficulties", **made)
    assert left["testset"].counts == {"simple": 2, "reasoning": 2, "conversational": 2}
    assert "Evolved minus simple question about the same fact, 2 trees" in capsys.readouterr().out


def test_a_pipe_from_documents_to_a_report(ran):
    left = ran("how-to/test-set", "From documents to a report", **ran("how-to/test-set"))
    assert [row.sample.answer for row in left["report"].rows] == ["Баню страхуют вместе с домом."] * 2
    assert any("Подскажите, пожалуйста" in row.sample.question for row in left["report"].rows)


def test_metrics_without_a_model(ran, capsys):
    ran("reference/metrics", "Metrics without a model")
    printed = eval(capsys.readouterr().out)
    assert printed["exact_match"] == 0.0
    assert 0.9 < printed["rouge"] < 1.0
    assert all(0.5 < printed[name] < 0.9 for name in ("bleu", "chrf"))


def test_agreement_with_human_labels(ran, tmp_path, capsys):
    report = report_of(*[scored(number % 10 / 9) for number in range(300)])
    report.to_jsonl(tmp_path / "report.jsonl")
    drawn = report.to_label(150)
    labels = [f"{row.sample.id},{'да' if float(row.scores['faithfulness']) > 0.3 else 'нет'}" for row in drawn]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *labels]), encoding="utf-8")
    ran("how-to/qualify-a-judge", "Compare it with people")
    printed = capsys.readouterr().out
    shown = ("Agreement with binary labels on 150 pairs", "from 150 labels and 150 more scores")
    assert [part for part in shown if part not in printed] == []


def test_rubric_grading(ran, capsys):
    left = ran("how-to/rubric")
    assert list(left["leaderboard"](left["report"])) == ["brief", "evasive"]
    printed = capsys.readouterr().out
    shown = ("to the one above -0.733 [-0.880, -0.342], p < 0.001", "no examples")
    assert [part for part in shown if part not in printed] == []


@pytest.mark.gate
def test_judge_qualification(ran, capsys):
    qualification = ran("how-to/qualify-a-judge")["qualification"]
    assert qualification.verdict["faithfulness"] == "unfit"
    assert "faithfulness" in capsys.readouterr().out
    rows = table(sections(page("how-to/qualify-a-judge"))["Qualify it"])
    assert {row[0].partition(" ")[0] for row in rows} <= qualification.steps.keys()


def test_ranking_metrics(ran):
    scores = ran("reference/ranking-metrics")["report"].rows[0].scores
    assert list(scores) == ["ndcg@5", "mean_grade@5", "retriever", "reranker", "gain"]
    assert [round(score.value, 2) for score in scores.values()] == [0.59, 1.33, 0.59, 1.0, 0.41]
    assert sum(score.usage.calls for score in scores.values()) == 1


def test_claim_metrics(ran, capsys):
    scores = ran("reference/claim-metrics")["report"].rows[0].scores
    assert scores["claim_noise_irrelevant"].value == pytest.approx(1 / 3)
    assert scores["claim_hallucination"].value == pytest.approx(1 / 3)
    assert [row[0].count("`claim_") for row in table(page("reference/claim-metrics"))] == [3, 1, 1, 1, 2, 2, 2]


def test_production_monitoring(ran, capsys):
    stats = ran("how-to/production")["callback"].stats()
    assert (stats["sampled"], stats["scored"], stats["dropped"], stats["sink_errors"]) == (1, 1, 0, 0)
    assert "[('faithfulness', 1.0)]" in capsys.readouterr().out
    ran("how-to/production", "Sinks")
    assert capsys.readouterr().out == blocks(page("how-to/production"), "text")[0]


@pytest.mark.filterwarnings("ignore:'upload_\\w+' parameter is in beta")
def test_langsmith(ran, capsys, monkeypatch):
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    get_env_var.cache_clear()
    ran("how-to/chains", "LangSmith")
    assert "{'faithfulness': 1.0, 'context_recall': 1.0}" in capsys.readouterr().out


@pytest.mark.gate
def test_mlflow(ran, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    for name in ("MLFLOW_DISABLE_TELEMETRY", "LITELLM_LOCAL_MODEL_COST_MAP"):
        monkeypatch.setenv(name, "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    before = mlflow.get_tracking_uri()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow uses deprecated functions of SQLAlchemy and pandas
        left = ran("how-to/chains", "MLflow")
        assert len(left["run_id"]) == 32
        try:
            scored = ran("how-to/chains", "MLflow", 1, **left)["result"].metrics
        finally:
            mlflow.set_tracking_uri(before)
    assert scored == {"faithfulness/mean": 1.0, "exact_match/mean": 0.0}


@pytest.mark.gate
def test_dashboards(ran, capsys, monkeypatch):
    served = []
    monkeypatch.setattr("prometheus_client.start_http_server", lambda port, addr: served.append((port, addr)))
    left = ran("how-to/dashboards")
    ran("how-to/dashboards", "Events on traces", **left)
    left["provider"].shutdown()
    assert served == [(9464, "127.0.0.1")]
    assert left["callback"].stats()["scored"] == 1


def test_pytest(ran):
    left = ran("how-to/pytest")
    with pytest.raises(AssertionError) as caught:
        left["test_the_answer_follows_the_policy"]()
    assert str(caught.value) in page("how-to/pytest")
    left["test_one_supported_statement_of_two_gives_one_half"]()


def test_langgraph_guard(ran, capsys):
    ran("how-to/chains", "LangGraph")
    assert capsys.readouterr().out == "Не знаю: в документах этого нет.\n"


def test_metrics_in_a_chain(ran):
    left = ran("how-to/chains")
    answered = (left["rag_chain"] | left["suite"](left["metric"])).invoke("?")
    assert answered["faithfulness"].value == 1.0


def test_gigachat(ran):
    left = ran("how-to/gigachat")
    assert isinstance(left["metric"], Metric)
    judge = left["judge"]
    assert (judge.language, judge._endpoint.rungs) == ("ru", ["function_calling", "prompt"])


def test_vllm(ran, capsys):
    ran("how-to/vllm", "Weak models")
    assert capsys.readouterr().out == blocks(page("how-to/vllm"), "text")[0]
    left = ran("how-to/vllm")
    assert isinstance(left["metric"], Metric)
    assert left["metric"].judges[0]._endpoint.rungs[0] == "json_schema"
    left["model"].root_client.close()


def test_custom_judge_function(ran):
    from langchain_core.messages import HumanMessage, SystemMessage

    def call_my_model(texts):
        system, *rest = texts
        return offline_reply([SystemMessage(system), *map(HumanMessage, rest)]).text

    metric = ran("how-to/vllm", "Any function", call_my_model=call_my_model)["metric"]
    report = evaluate([SAMPLE], metric, progress=False)
    assert report.rows[0].scores["faithfulness"].value == 0.5


EDGES = {"the answer is blank": {"answer": ""}, "the answer states no facts": {"answer": "I do not know."}}
EDGES |= {"`contexts` is empty": {"contexts": []}, "the references are blank": {"references": [""]}}
MUNICH = {"question": "When was Munich founded?", "answer": "Munich was founded in 1158 [1]."}
MUNICH |= {"contexts": ["Munich was founded in 1158 by Henry."], "references": ["It was founded in 1158."]}


@each("row", table(page("reference/edge-cases")), ids=lambda row: row[0])
def test_the_table_of_edge_cases_is_true(row):
    name, *cells = row
    judge, embeddings = recording_judge(), HashingEmbeddings()
    calls = [row[0].strip("`") for row in table(page("reference/metrics"))]
    (call,) = (call for call in calls if call.startswith(name.strip("`") + "("))
    metric = eval(call, {**PUBLIC, "judge": judge, "embeddings": embeddings})
    assert f"| metric | {' | '.join(EDGES)} |" in page("reference/edge-cases")
    history = {"history": TALK} if "history" in metric.reads else {}
    for cell, edge in zip(cells, EDGES.values(), strict=True):
        result = metric.invoke({**MUNICH, **edge, **history})
        score = next(iter(result.values())) if isinstance(result, dict) else result
        assert score.failure is None
        if cell.startswith("unscored"):
            assert score.value is None
        elif cell == "—":
            assert score.value is not None
        else:
            assert score.value == float(cell)


def test_every_metric_has_its_edge_cases():
    assert {row[0].strip("`") for row in table(page("reference/edge-cases"))} == BUILDERS.keys() - {"claim_metrics"}
