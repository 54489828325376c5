"""Journals, reports and test sets that version 0.1.0 wrote still load; what it scored is not reused."""

import json
import shutil
from pathlib import Path

from langchain_rageval import HashingEmbeddings, OfflineJudge, Report, Testset, TestsetGenerator, evaluate, faithfulness

FILES = Path(__file__).parents[1] / "fixtures" / "version_0_1"
SAMPLES = [json.loads(line) for line in (FILES / "samples.jsonl").read_text(encoding="utf-8").splitlines()]


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
