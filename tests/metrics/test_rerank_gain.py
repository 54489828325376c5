import math

import pytest
from helpers.doors import scores_by
from helpers.each import each
from helpers.scripted import PairScores, recording_judge
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import Field

from langchain_rageval import (
    OfflineJudge,
    Report,
    Sample,
    cross_encoder_grader,
    evaluate,
    id_grader,
    label_grader,
    llm_grader,
    ndcg_at,
    rerank_gain,
)
from langchain_rageval.errors import ModelOutputError

LABELLED = Sample(
    question="Where?",
    contexts=["useless", "useful", "very useful"],
    context_ids=["a", "b", "c"],
    relevance={"b": 1, "c": 3},
)
BY_LENGTH = PairScores(lambda _, text: float(len(text)))
RETRIEVED = (0 + 1 / math.log2(3) + 7 / 2) / (7 + 1 / math.log2(3))


class Compressor(BaseDocumentCompressor):
    """Gives what `order` makes of the documents, and counts its calls."""

    order: object
    calls: list = Field(default_factory=list)

    def compress_documents(self, documents, query, callbacks=None):
        self.calls.append(query)
        return self.order(list(documents))


def by_length(documents):
    return sorted(documents, key=lambda document: -len(document.page_content))


def values(scores):
    return [score.value for score in scores.values()]


def test_both_orders_are_held_against_the_same_ideal_and_the_gain_is_their_difference():
    scores = rerank_gain(label_grader(), BY_LENGTH).invoke(LABELLED)
    assert list(scores) == ["retriever", "reranker", "gain"]
    assert scores["retriever"].value == pytest.approx(RETRIEVED)
    assert scores["reranker"].value == pytest.approx((7 + 0 / math.log2(3) + 1 / 2) / (7 + 1 / math.log2(3)))
    assert scores["gain"].value == scores["reranker"].value - scores["retriever"].value
    assert scores["gain"].reason == "NDCG@5 is 0.541 as retrieved, 0.983 as reranked."
    assert [finding.number for finding in scores["reranker"].findings if finding.kind == "context"] == [3, 1, 2]


@each(
    "change",
    [
        lambda document: document,
        lambda document: Document(document.page_content, metadata={**document.metadata, "relevance_score": 0.5}),
        lambda document: Document(document.page_content),
        lambda document: Document(f"Only {document.page_content}", metadata=document.metadata),
    ],
    ids=["as they are", "copied with a score", "without metadata", "rewritten"],
)
def test_a_document_compressor_ranks_by_the_order_in_which_it_gives_the_documents(change):
    compressor = Compressor(order=lambda documents: list(map(change, by_length(documents))))
    scores = rerank_gain(label_grader(), compressor).invoke(LABELLED)
    assert values(scores) == values(rerank_gain(label_grader(), BY_LENGTH).invoke(LABELLED))
    assert compressor.calls == ["Where?"]


def test_a_chunk_that_is_dropped_stays_in_the_ideal_and_is_told_of():
    keep = Compressor(order=lambda documents: documents[:2])
    scores = rerank_gain(label_grader(), keep).invoke(LABELLED)
    assert scores["reranker"].value == pytest.approx((1 / math.log2(3)) / (7 + 1 / math.log2(3)))
    assert scores["gain"].reason.endswith("as reranked; 1 of 3 chunks were dropped.")
    for compressor, told in ((keep, "; отброшено фрагментов: 1."), (BY_LENGTH, " после реранжирования.")):
        russian = rerank_gain(label_grader(), compressor).invoke({**dict(LABELLED), "question": "Где это находится?"})
        assert russian["gain"].reason.endswith(told)
    chunks = [finding.number for finding in scores["gain"].findings if finding.kind == "context"]
    kept = [finding.verdict for finding in scores["gain"].findings if finding.text == "kept"]
    assert (chunks, kept) == ([1, 2, 3], ["2"])


def test_dropping_the_best_chunk_costs_also_where_only_the_retrieved_ones_are_known():
    worst = Compressor(order=lambda documents: by_length(documents)[1:])
    scores = rerank_gain(cross_encoder_grader(BY_LENGTH), worst).invoke(LABELLED)
    best = 7 + 3 / math.log2(3) + 1 / 2
    assert scores["reranker"].value == pytest.approx((3 + 1 / math.log2(3)) / best)


def test_a_reranker_that_keeps_nothing_has_zero():
    scores = rerank_gain(label_grader(), Compressor(order=lambda documents: [])).invoke(LABELLED)
    assert (scores["reranker"].value, scores["reranker"].reason) == (0.0, "The reranker kept nothing.")
    assert scores["gain"].value == -scores["retriever"].value


def test_a_chunk_in_parts_stands_where_its_first_part_does():
    compressor = Compressor(order=lambda documents: [documents[2], documents[0], documents[2], documents[1]])
    scores = rerank_gain(label_grader(), compressor).invoke(LABELLED)
    assert values(scores) == values(rerank_gain(label_grader(), BY_LENGTH).invoke(LABELLED))


def test_a_document_from_elsewhere_is_an_error():
    compressor = Compressor(order=lambda documents: [Document("made up")])
    with pytest.raises(ModelOutputError, match="a document that was not retrieved: 'made up'"):
        rerank_gain(label_grader(), compressor).invoke(LABELLED)
    (row,) = evaluate([LABELLED], rerank_gain(label_grader(), compressor), progress=False).rows
    assert row.scores["retriever"].value == pytest.approx(RETRIEVED)
    assert [row.scores[name].failure.step for name in ("reranker", "gain")] == ["rerank_contexts"] * 2


def test_equal_chunks_are_told_apart_by_their_place():
    sample = LABELLED.model_copy(update={"contexts": ["same", "same", "same"]})
    scores = rerank_gain(label_grader(), Compressor(order=lambda documents: documents[::-1])).invoke(sample)
    assert scores["reranker"].value == 1.0


@each("entry_point", ["suite.invoke", "aevaluate"])
async def test_chunks_are_graded_once_and_reranked_once(entry_point):
    judge, compressor = recording_judge(), Compressor(order=by_length)
    metric = rerank_gain(llm_grader(judge), compressor, 3)
    sample = {"question": "When was Munich founded?", "contexts": ["Beer.", "Munich was founded in 1158.", "Isar."]}
    (scores,) = await scores_by(entry_point, [sample], [metric])
    assert list(scores) == ["retriever", "reranker", "gain"]
    assert (len(judge.asked), len(compressor.calls)) == (1, 1)
    assert scores["gain"].value > 0


def test_two_rerankers_stand_side_by_side_under_names_of_their_own():
    judge = recording_judge()
    metrics = [
        rerank_gain(llm_grader(judge), BY_LENGTH, name="longest"),
        rerank_gain(llm_grader(judge), PairScores(lambda _, text: -float(len(text))), name="shortest"),
    ]
    report = evaluate([LABELLED], metrics, progress=False)
    assert [name for name in report.summary() if name.endswith("gain")] == ["longest_gain", "shortest_gain"]
    assert len(judge.asked) == 1


def test_another_cutoff_is_had_from_a_report_without_a_call(tmp_path):
    drop = Compressor(order=lambda documents: by_length(documents)[:2])
    samples = [LABELLED, LABELLED.model_copy(update={"id": "none", "contexts": [], "context_ids": []})]
    evaluate(samples, rerank_gain(label_grader(), drop), progress=False).to_jsonl(tmp_path / "report.jsonl")
    report, asked = Report.load(tmp_path / "report.jsonl"), len(drop.calls)
    for metric in rerank_gain(label_grader(), drop, 1, gain="linear").metrics:
        fresh = evaluate(samples, metric, progress=False)
        for row, other in zip(report.rescore(metric).rows, fresh.rows, strict=True):
            old, new = row.scores[metric.name], other.scores[metric.name]
            own = {"usage", "instrument"}  # the compressor counts its calls
            assert old.model_dump(exclude=own) == new.model_dump(exclude=own)
            assert old.counted_by == new.counted_by
    assert len(drop.calls) == asked + 2  # of the fresh ones
    reranked = report.rescore(ndcg_at(1, label_grader(), name="retriever"))
    assert reranked.rows[0].scores["retriever"].value == 0.0


def test_each_score_holds_the_best_and_the_mean_grade_of_its_own_order():
    scores = rerank_gain(label_grader(), BY_LENGTH, 2).invoke(LABELLED)
    summaries = {
        name: {f.text: float(f.verdict) for f in score.findings if f.kind == "criterion" and f.text != "kept"}
        for name, score in scores.items()
    }
    as_retrieved = {"best grade": 1.0, "mean grade": 0.5}
    as_reranked = {"best grade": 3.0, "mean grade": 1.5}
    assert summaries == {"retriever": as_retrieved, "reranker": as_reranked, "gain": as_retrieved}


def test_the_findings_of_another_grader_or_without_the_number_of_kept_chunks_do_not_do():
    gain = rerank_gain(label_grader(), BY_LENGTH).metrics[2]
    score = gain.invoke(LABELLED)
    assert gain.rescore(LABELLED, score).value == score.value
    for grader in (id_grader(), llm_grader(OfflineJudge(), (4, 5))):
        assert rerank_gain(grader, BY_LENGTH).metrics[2].rescore(LABELLED, score) is None
    uncounted = [finding for finding in score.findings if finding.text != "kept"]
    assert gain.rescore(LABELLED, score.model_copy(update={"findings": uncounted})) is None


def test_equal_scores_keep_the_retrievers_order():
    scores = rerank_gain(label_grader(), PairScores(lambda *_: 1.0)).invoke(LABELLED)
    assert scores["gain"].value == 0.0


def test_nothing_retrieved_is_zero_without_a_call():
    compressor = Compressor(order=by_length)
    scores = rerank_gain(llm_grader(OfflineJudge()), compressor).invoke({"question": "Where is it?", "contexts": []})
    assert {(score.value, score.reason) for score in scores.values()} == {(0.0, "Nothing was retrieved.")}
    assert compressor.calls == []


def test_a_question_that_no_chunk_answers_is_unscored():
    sample = LABELLED.model_copy(update={"reference_context_ids": []})
    scores = rerank_gain(id_grader(), BY_LENGTH).invoke(sample)
    assert {score.unscored for score in scores.values()} == {"no chunk is known to be relevant"}
