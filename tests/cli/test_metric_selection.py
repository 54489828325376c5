"""Metrics of ranked lists on the command line."""

import pytest
from helpers.each import each
from helpers.texts import expected, unpacked

from langchain_rageval.cli.selection import parse_metric_names
from langchain_rageval.metrics import ALIASES, BUILDERS, PRESETS

SAMPLE = {
    "question": "Когда основан Мюнхен?",
    "contexts": ["Город стоит на реке.", "Мюнхен основан в 1158 году."],
    "context_ids": ["a", "b"],
    "reference_context_ids": ["b"],
    "relevance": {"b": 4},
}


@pytest.fixture
def sample(written):
    """Return a file with a sample."""
    return written(SAMPLE)


@each(
    ("grader", "best"),
    [([], "1"), (["--grader", "ids"], "1"), (["--grader", "labels"], "4"), (["--grader", "llm"], "3")],
)
def test_the_grader_is_chosen_by_name(scored, sample, grader, best):
    scores, _ = scored(sample, "--metrics", "ndcg@5,mrr@10,mean_grade@2", *grader)
    assert list(scores) == ["ndcg@5", "mrr@10", "mean_grade@2"]
    assert scores["mrr@10"].value == 0.5
    assert next(f.verdict for f in scores["ndcg@5"].findings if f.text == "best grade") == best


def test_the_embedding_grader_compares_embeddings(scored, sample):
    assert 0 < scored(sample, "--metrics", "ndcg@5", "--grader", "embedding")[0]["ndcg@5"].value < 1


def test_a_real_judge_grades_all_metrics_by_one_call(scored, sample, judged):
    server, judge = judged()
    scores, _ = scored(sample, "--metrics", "ndcg@5,ndcg@1,recall@5,mrr@10", "--grader", "llm", *judge)
    assert [score.usage.calls for score in scores.values()].count(1) == server.calls == 1


def test_a_run_with_judgments_is_scored_as_trec_eval_does(scored, tmp_path):
    run, qrels = unpacked("run.txt", tmp_path), unpacked("qrels_graded.txt", tmp_path)
    scores, _ = scored(run, "--qrels", qrels, "--metrics", "ndcg@10,ndcg@100", "--gain", "linear")
    printed = {e["measure"]: f"{e['value']:.4f}" for e in expected() if (e["run"], e["qrels"]) == ("full", "graded")}
    assert [f"{score.value:.4f}" for score in scores.values()] == [printed["ndcg_cut_10"], printed["ndcg_cut_100"]]


def test_topics_name_the_questions_of_a_run(scored, tmp_path):
    topics = tmp_path / "topics.tsv"
    topics.write_text("301\tМеждународная преступность\n", encoding="utf-8")
    run, qrels = unpacked("run.txt", tmp_path), unpacked("qrels_graded.txt", tmp_path)
    scores, _ = scored(run, "--qrels", qrels, "--topics", topics, "--metrics", "ndcg@10")
    assert scores["ndcg@10"].reason.startswith("Лучшая оценка")


def test_a_gate_names_a_ranking(rageval, sample):
    gate = ["--metrics", "mrr@5", "--quiet", "--fail-under"]
    assert rageval("evaluate", sample, *gate, "mrr@5=0.5")[0] == 0
    assert rageval("evaluate", sample, *gate, "mrr@5=0.6")[0] == 1


def test_a_run_is_resumed(rageval, tmp_path):
    run, qrels = unpacked("run.txt", tmp_path), unpacked("qrels_graded.txt", tmp_path)
    journal = tmp_path / "run.db"
    first = rageval("evaluate", run, "--qrels", qrels, "--metrics", "ndcg@10", "--journal", journal, "--quiet")
    again = rageval("resume", journal, "--quiet")
    assert first[0] == again[0] == 0
    assert "ndcg@10" in again[1]


def test_names_of_other_libraries_lead_to_ours():
    named = parse_metric_names("groundedness, answer_relevancy,faithfulness")
    assert list(named.items()) == [("faithfulness", False), ("answer_relevance", False)]
    assert parse_metric_names("core,groundedness") == dict.fromkeys(PRESETS["core"], True) | {"faithfulness": False}
    assert set(ALIASES.values()) <= set(BUILDERS)
