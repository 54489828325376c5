"""Contexts beyond `max_context_tokens`: a metric reads them all, or score and report say what was not read."""

import pytest

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Sample,
    abstention,
    answer_correctness,
    aspect_critique,
    citations,
    claim_metrics,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    llm_grader,
    ndcg_at,
    noise_sensitivity,
    rubric,
)

FILLER = [f"Пункт {n} говорит о другом предмете и ничего не решает." for n in range(120)]
SAMPLE = Sample(
    question="Когда основан Мюнхен?",
    answer="Мюнхен основан в 1158 году [121].",
    contexts=[*FILLER, "Мюнхен основан в 1158 году."],
    references=["Мюнхен основан в 1158 году."],
)
METRICS = {
    "faithfulness": faithfulness,
    "context_precision": context_precision,
    "context_recall": context_recall,
    "context_relevance": context_relevance,
    "context_entity_recall": context_entity_recall,
    "answer_correctness": lambda judge: answer_correctness(judge, HashingEmbeddings()),
    "claim_metrics": claim_metrics,
    "noise_sensitivity": noise_sensitivity,
    "citations": citations,
    "abstention": lambda judge: abstention(judge, given="contexts"),
    "ndcg": lambda judge: ndcg_at(200, llm_grader(judge)),
    "rubric": rubric,
    "correctness": lambda judge: aspect_critique(judge, "correctness"),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_value_does_not_depend_on_the_window_or_the_report_says_so(name):
    def scored(limit):
        return evaluate([SAMPLE], METRICS[name](Judge(OfflineJudge(), max_context_tokens=limit)), progress=False)

    whole = scored(None)
    for limit in (500, 1000, 2000):
        windowed = scored(limit)
        cut = {note.metric for note in windowed.notes if getattr(note, "code", "") == "contexts-cut"}
        for metric, score in windowed.rows[0].scores.items():
            expected = whole.rows[0].scores[metric]
            assert metric in cut or (score.value, score.unscored) == (expected.value, expected.unscored), (
                metric,
                limit,
            )
            assert (metric in cut) == any(finding.verdict == "cut" for finding in score.findings)
    assert not any(getattr(note, "code", "") == "contexts-cut" for note in whole.notes)
