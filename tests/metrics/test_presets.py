"""Presets: lists of metrics that score each sample by the fields it has."""

import pytest

from langchain_rageval import HashingEmbeddings, OfflineJudge, evaluate, faithfulness, presets
from langchain_rageval.errors import SampleError
from langchain_rageval.metrics import PRESETS

FULL = {
    "question": "When was Munich founded?",
    "answer": "Munich was founded in 1158.",
    "contexts": ["Munich was founded in 1158 by Henry the Lion."],
    "references": ["Munich was founded in 1158."],
}


def test_presets_have_the_metrics_of_the_table_and_fewer_without_embeddings():
    judge = OfflineJudge()
    for name, builders in PRESETS.items():
        preset = getattr(presets, name)
        assert [metric.name for metric in preset(judge, HashingEmbeddings())] == [*builders], name
    assert [metric.name for metric in presets.core(judge)] == ["faithfulness", "context_precision", "context_recall"]


def test_one_empty_cell_drops_no_metric_and_is_counted():
    rows = [FULL, {**FULL, "question": "Q?", "contexts": None}, {"question": "R?", "answer": "It was in 1158."}]
    report = evaluate(rows, presets.core(OfflineJudge()), progress=False)
    counts = {name: (one.scored, one.unscored, one.failed) for name, one in report.summary().items()}
    assert counts == dict.fromkeys(("faithfulness", "context_precision", "context_recall"), (1, 2, 0))
    assert report.rows[1].scores["faithfulness"].unscored == "the sample lacks a field"
    note = "2 of 3 samples lack a field of faithfulness, context_precision, context_recall."
    assert note in report.notes


def test_an_optional_metric_has_the_instrument_of_the_metric_and_keeps_it_with_another_judge():
    metric = faithfulness(OfflineJudge())
    optional = metric.optional()
    assert (optional.instrument, optional.is_optional, metric.is_optional) == (metric.instrument, True, False)
    assert optional.judged_by(OfflineJudge()).is_optional
    with pytest.raises(SampleError, match=r"lacks \['contexts'\]"):
        metric.invoke({"question": "q", "answer": "a"})
    assert optional.invoke({"question": "q", "answer": "a"}).unscored == "the sample lacks a field"
