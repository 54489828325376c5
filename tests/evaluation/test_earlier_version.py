"""Journals, reports and test sets that version 0.1.0 wrote still load; what it scored is not reused."""

import json
import shutil
from pathlib import Path

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Report,
    Testset,
    TestsetGenerator,
    abstention,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    bleu,
    chrf,
    claim_metrics,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    embedding_grader,
    evaluate,
    exact_match,
    faithfulness,
    hit_rate_at,
    jury,
    label_grader,
    llm_grader,
    map_at,
    mean_grade_at,
    mrr_at,
    ndcg_at,
    noise_sensitivity,
    precision_at,
    recall_at,
    rouge,
    rubric,
    string_presence,
)

FILES = Path(__file__).parents[1] / "fixtures" / "version_0_1"
SAMPLES = [json.loads(line) for line in (FILES / "samples.jsonl").read_text(encoding="utf-8").splitlines()]


def metrics(judge, embeddings):
    """The metrics of the stored run, in its order."""
    return [
        faithfulness(judge),
        answer_relevance(judge, embeddings),
        context_precision(judge),
        context_precision(judge, weighting="plain", name="plain"),
        context_recall(judge),
        context_relevance(judge),
        answer_similarity(embeddings),
        answer_correctness(judge, embeddings),
        aspect_critique(judge, "harmfulness"),
        aspect_critique(judge, "coherence"),
        claim_metrics(judge),
        claim_metrics(judge, attribution="per_chunk", name="chunked_"),
        noise_sensitivity(judge),
        context_entity_recall(judge),
        abstention(judge),
        abstention(judge, given="contexts", name="abstention_contexts"),
        exact_match(),
        string_presence(),
        rouge(),
        bleu(),
        chrf(),
        rubric(judge),
        ndcg_at(3, llm_grader(judge)),
        mrr_at(3),
        map_at(3, label_grader()),
        recall_at(3),
        precision_at(2),
        hit_rate_at(2),
        mean_grade_at(3, embedding_grader(embeddings)),
        faithfulness(Judge(judge, draws=3, language="ru", layout="shared_instructions"), name="drawn"),
        faithfulness(jury([judge, Judge(judge, attempts=2), Judge(judge, mode="prompt")]), name="jury"),
    ]


def stored(name, tmp_path):
    return Path(shutil.copy(FILES / name, tmp_path / name))


def test_a_journal_loads_and_its_scores_are_not_reused(tmp_path):
    journal = stored("journal.sqlite", tmp_path)
    metric = faithfulness(OfflineJudge())
    first = evaluate(SAMPLES, metric, journal=journal, progress=False)
    again = evaluate(SAMPLES, metric, journal=journal, progress=False)
    scores = [score for row in first.rows for score in row.scores.values()]
    assert {score.instrument for score in scores} == {metric.instrument}
    assert sum(score.usage.calls for score in scores) > 0
    assert again.rows == first.rows
    assert first.failures() == []


def test_a_run_today_gives_the_scores_of_then():
    report = evaluate(SAMPLES, metrics(OfflineJudge(), HashingEmbeddings()), progress=False)
    before = Report.load(FILES / "report.jsonl")
    values = [{name: (score.value, score.unscored) for name, score in row.scores.items()} for row in report.rows]
    assert values == [{name: (s.value, s.unscored) for name, s in row.scores.items()} for row in before.rows]


def test_a_report_loads_and_compares_with_a_note():
    before = Report.load(FILES / "report.jsonl")
    today = evaluate(SAMPLES, faithfulness(OfflineJudge()), progress=False)
    comparison = today.compare(before)
    assert comparison["faithfulness"].difference == 0.0
    note = (
        "faithfulness: it is unknown whether the same instrument gave the scores (baseline: it was not recorded); "
        "a difference may be due to the instruments, not the systems."
    )
    assert note in comparison.notes
    (instrument,) = before.instruments()["faithfulness"]
    assert (instrument.found_by, instrument.counted_by, instrument.unknown) == (None, None, "it was not recorded")


def test_a_generation_journal_loads_and_its_steps_are_not_reused(tmp_path):
    documents = [" ".join(sample["contexts"]) for sample in SAMPLES]
    judge = OfflineJudge()
    generator = TestsetGenerator(
        writer=judge,
        critic=judge,
        embeddings=HashingEmbeddings(),
        distribution={"simple": 0.5, "reasoning": 0.5},
        journal=stored("generation.sqlite", tmp_path),
        progress=False,
    )
    testset = generator.generate(documents, size=3, seed=7)
    assert [row.question for row in testset] == [row.question for row in Testset.load(FILES / "testset.jsonl")]
    assert generator.generate(documents, size=3, seed=7).rows == testset.rows
