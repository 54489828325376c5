"""Measures of a ranking and the gain of a reranker: values, reasons, edges, calls, other options without a call."""

import math

import pytest
from helpers.doors import scores_by
from helpers.each import each
from helpers.scripted import PairScores, recording_judge, relevance, scripted
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import Field

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Report,
    Sample,
    SampleError,
    cross_encoder_grader,
    embedding_grader,
    evaluate,
    hit_rate_at,
    id_grader,
    label_grader,
    llm_grader,
    map_at,
    mean_grade_at,
    mrr_at,
    ndcg_at,
    precision_at,
    ranking,
    recall_at,
    rerank_gain,
    span_grader,
)
from langchain_rageval.data.messages import CONTEXT_NOTES
from langchain_rageval.errors import ModelOutputError
from langchain_rageval.metrics.ranked import _is_grade, retrieved_view

OF_RELEVANT = {"mrr": mrr_at, "map": map_at, "recall": recall_at, "precision": precision_at, "hit_rate": hit_rate_at}
BUILDERS = {"ndcg": ndcg_at, **OF_RELEVANT, "mean_grade": mean_grade_at}
BINARY = [*OF_RELEVANT]
every_ranking = each("kind", BUILDERS)


def labelled(*grades, unretrieved=(), question="Where?"):
    """A sample whose chunks have these grades."""
    labels = {f"d{n}": float(grade) for n, grade in enumerate(grades)}
    others = {f"u{n}": float(grade) for n, grade in enumerate(unretrieved)}
    return Sample(question=question, context_ids=list(labels), relevance=labels | others)


def of_labels(kind, k, *grades, unretrieved=(), **options):
    return BUILDERS[kind](k, label_grader(), **options).invoke(labelled(*grades, unretrieved=unretrieved))


# Values


LABELS = st.lists(st.integers(-1, 4), max_size=8)


@given(LABELS, st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 10))
def test_every_value_is_that_of_the_pure_measure(grades, others, k):
    everything = grades + others
    relevant = sum(grade >= 1 for grade in everything)
    expected = {
        "ndcg": ranking.ndcg(grades, everything, k),
        "mrr": ranking.mrr(grades, k),
        "map": ranking.average_precision(grades, relevant, k),
        "recall": ranking.recall(grades, relevant, k),
        "precision": ranking.precision(grades, k),
        "hit_rate": ranking.hit_rate(grades, k),
        "mean_grade": sum(grades[:k]) / len(grades[:k]) if grades else 0.0,
    }
    for kind in BUILDERS:
        assert of_labels(kind, k, *grades, unretrieved=others).value == expected[kind], kind
    linear = of_labels("ndcg", k, *grades, unretrieved=others, gain="linear").value
    assert linear == ranking.ndcg(grades, everything, k, "linear")


@each("kind", BINARY)
def test_the_threshold_says_from_which_grade_on_a_chunk_is_relevant(kind):
    assert of_labels(kind, 1, 2).value == of_labels(kind, 1, 2, threshold=2).value == 1.0
    assert of_labels(kind, 1, 2, threshold=2.5).value == 0.0


def test_ids_are_the_default_grader_and_their_number_is_known():
    sample = Sample(question="q", context_ids=["a", "b"], reference_context_ids=["b", "c", "d", "e"])
    assert recall_at(2).invoke(sample).value == 0.25


# Reasons and findings


@every_ranking
def test_nothing_relevant_is_zero_and_said_in_the_samples_language(kind):
    for question, reason in {
        "Where?": "Nothing relevant was retrieved: best grade 0, mean 0 (first 2 of 2).",
        "Где это находится?": "Ничего подходящего не найдено: лучшая оценка 0, средняя 0 (первые 2 из 2).",
    }.items():
        score = BUILDERS[kind](5, label_grader()).invoke(labelled(0, 0, question=question))
        assert (score.value, score.reason) == (0.0, reason)


# Edges


@every_ranking
def test_nothing_retrieved_is_zero_without_a_call(kind):
    ce = PairScores(lambda *_: 1 / 0)
    graders = [llm_grader(scripted()), cross_encoder_grader(ce, "sigmoid"), embedding_grader(HashingEmbeddings())]
    graders += [label_grader(), id_grader()]
    sample = {"question": "Where is it?", "contexts": [], "relevance": {"a": 1}, "reference_context_ids": ["a"]}
    for grader in graders:
        score = BUILDERS[kind](5, grader).invoke(sample)
        assert (score.value, score.reason, score.findings) == (0.0, "Nothing was retrieved.", [])
        assert score.usage.calls == 0


@pytest.mark.parametrize("ids", [["a"], []])
def test_a_question_that_no_chunk_answers_is_unscored(ids):
    sample = Sample(question="q", context_ids=ids, reference_context_ids=[], relevance={})
    for grader in (id_grader(), label_grader()):
        for kind in BUILDERS:
            metric = BUILDERS[kind](3, grader)
            score = metric.invoke(sample)
            assert (score.value, score.unscored) == (None, "no chunk is known to be relevant")
            assert metric.rescore(sample, score).unscored == score.unscored


# Names and options


@every_ranking
def test_a_metric_is_named_by_its_cutoff_and_looks_at_the_ranking(kind):
    metric = BUILDERS[kind](7, label_grader())
    assert (metric.name, metric.reads) == (f"{kind}@7", {"context_ids", "relevance"})
    assert BUILDERS[kind](7, name="mine").name == "mine"


@each("kind", BINARY)
def test_ranks_need_a_threshold_where_a_chunk_is_relevant_or_not(kind):
    grader = cross_encoder_grader(PairScores(lambda _, text: len(text)))
    told = rf"^{kind} needs threshold=\.\.\., the lowest grade of a relevant chunk: the grader has none \(rank"
    with pytest.raises(ConfigError, match=told):
        BUILDERS[kind](5, grader)
    sample = {"question": "q", "contexts": ["a", "bb"]}
    assert BUILDERS[kind](1, grader, threshold=2).invoke(sample).value == 0.0
    assert ndcg_at(5, grader).invoke(sample).value < 1.0


def test_whatever_changes_the_number_changes_the_instrument():
    judge = OfflineJudge()
    metrics = [
        *(build(5, label_grader(), name="x") for build in BUILDERS.values()),
        *(build(6, label_grader(), name="x") for build in BUILDERS.values()),
        *(BUILDERS[kind](5, label_grader(), threshold=2, name="x") for kind in BINARY),
        ndcg_at(5, label_grader(), gain="linear", name="x"),
        *(ndcg_at(5, grader, name="x") for grader in (id_grader(), llm_grader(judge), llm_grader(judge, (0, 3)))),
    ]
    assert len({metric.instrument for metric in metrics}) == len(metrics)


# One grading for all


@each("entry_point", ["suite.invoke", "evaluate", "aevaluate"])
async def test_metrics_with_one_grader_share_the_grading_call(entry_point):
    judge = recording_judge()
    ce = PairScores(lambda _, text: float(len(text)))
    own = {"llm": llm_grader(judge), "ce": cross_encoder_grader(ce, "sigmoid"), "ranks": cross_encoder_grader(ce)}
    metrics = [
        *(build(5, own["llm"]) for build in BUILDERS.values()),
        ndcg_at(3, llm_grader(judge), gain="linear", name="again"),
        *(build(5, own["ce"], name=f"ce_{kind}") for kind, build in BUILDERS.items()),
        *(ndcg_at(k, own["ranks"], name=f"ranks_{k}") for k in (1, 2, 3)),
    ]
    sample = Sample(question="When was Munich founded?", contexts=["In 1158 Munich was.", "Beer.", "Isar."])
    (scores,) = await scores_by(entry_point, [sample], metrics)
    assert len(judge.asked) == 1
    assert sum(score.usage.calls for score in scores.values()) == 1
    assert len(ce.asked) == 1


# Rescoring


def graders():
    ce = PairScores(lambda _, text: float(len(text)) - 10)
    return {
        "llm": llm_grader(Judge(OfflineJudge(), draws=3)),
        "rank": cross_encoder_grader(ce),
        "sigmoid": cross_encoder_grader(ce, "sigmoid"),
        "embedding": embedding_grader(HashingEmbeddings()),
        "labels": label_grader(),
        "ids": id_grader(),
    }


RICH = [
    Sample(
        question="Когда и кем основан Мюнхен?",
        contexts=["Город стоит на реке.", "Мюнхен основан в 1158 году.", "", "Мюнхен основан Генрихом."],
        context_ids=["a", "b", "c", "d"],
        relevance={"b": 2, "d": 4, "a": -1, "z": 4},
        reference_context_ids=["d", "z"],
    ),
    Sample(question="Where?", contexts=[], relevance={"a": 1}, reference_context_ids=["a"]),
]


@pytest.mark.parametrize("name", graders())
def test_another_cutoff_gain_or_measure_is_had_from_a_report_without_a_call(name, tmp_path):
    evaluate(RICH, ndcg_at(5, graders()[name]), progress=False).to_jsonl(tmp_path / "report.jsonl")
    report = Report.load(tmp_path / "report.jsonl")
    options = {} if graders()[name].threshold else {"threshold": 3}
    for metric in (
        ndcg_at(1, graders()[name]),
        ndcg_at(3, graders()[name], gain="linear", name="ndcg@5"),
        mean_grade_at(2, graders()[name]),
        *(BUILDERS[kind](2, graders()[name], **options) for kind in BINARY),
    ):
        fresh = evaluate(RICH, metric, progress=False)
        for row, other in zip(report.rescore(metric).rows, fresh.rows, strict=True):
            old, new = row.scores[metric.name], other.scores[metric.name]
            assert old.model_dump(exclude={"usage"}) == new.model_dump(exclude={"usage"})


def test_what_another_grader_or_metric_found_does_not_do():
    report = evaluate(RICH[:1], ndcg_at(5, embedding_grader(HashingEmbeddings())), progress=False)
    for other in (llm_grader(OfflineJudge()), label_grader(), cross_encoder_grader(PairScores(lambda *_: 0.0))):
        with pytest.raises(ConfigError, match="cannot be computed from the findings of ndcg@5"):
            report.rescore(ndcg_at(3, other))


def test_a_verdict_that_is_no_finite_number_is_no_grade():
    assert [text for text in ("0.5", "3", "relevant", "", "nan", "inf") if _is_grade(text)] == ["0.5", "3"]


# What the retrievers returned


FOUND = ["x", "a", "y", "b"]
RERANKED = {"question": "q", "contexts": ["b"], "context_ids": ["b"], "reference_context_ids": ["a", "b"]}
RERANKED |= {"retrieved": FOUND, "retrieved_ids": FOUND}


@each(
    ("build", "read", "retrieved"),
    [
        (ndcg_at, 1 / (1 + 1 / math.log2(3)), (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))),
        (mrr_at, 1.0, 1 / 2),
        (map_at, 1 / 2, (1 / 2 + 2 / 4) / 2),
        (recall_at, 1 / 2, 1.0),
        (precision_at, 1 / 5, 2 / 5),
        (hit_rate_at, 1.0, 1.0),
        (mean_grade_at, 1.0, 1 / 2),
    ],
)
def test_each_measure_is_of_what_the_model_read_or_of_what_was_retrieved(build, read, retrieved):
    metrics = [build(5), build(5, of="contexts", name="same"), build(5, of="retrieved")]
    assert metrics[0].instrument == metrics[1].instrument
    assert metrics[2].name == f"retrieved_{metrics[0].name}"
    for half in (0, 1):
        assert metrics[0].instrument.split(".")[half] != metrics[2].instrument.split(".")[half]
    values = [metric.invoke(RERANKED).value for metric in metrics]
    assert values == pytest.approx([read, read, retrieved])
    both = {name: value for name, value in RERANKED.items() if not name.startswith("retrieved")}
    assert metrics[2].invoke(both).value == pytest.approx(read)
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert metrics[2].invoke({**RERANKED, "history": chat}).value == pytest.approx(retrieved)


def test_what_was_retrieved_is_graded_by_its_text():
    gold = "Munich was founded by Henry the Lion in 1158, when he moved the bridge of the salt road."
    other = "The river Isar rises in the Karwendel range and flows through four lakes to the Danube."
    sample = {"question": "q", "contexts": [other], "retrieved": [other, gold], "reference_contexts": [gold]}
    grader = span_grader()
    assert recall_at(5, grader).invoke(sample).value == 0.0
    metric = recall_at(5, grader, of="retrieved")
    score = metric.invoke({**sample, "metadata": {"context_spans": [["a.md", 0, 5]]}})
    assert score.value == 1.0
    assert [finding.text for finding in score.findings if finding.kind == "context"] == [other, gold]
    again = recall_at(1, grader, of="retrieved").rescore(Sample.parse(sample), score)
    assert again.value == 0.0
    assert recall_at(1, grader).rescore(Sample.parse(sample), score) is None


def test_the_notes_on_the_contexts_are_not_those_of_what_was_retrieved():
    notes = dict.fromkeys(CONTEXT_NOTES, "of the contexts")
    given = Sample.parse({**RERANKED, "metadata": {**notes, "spans": [["a", 0, 9]], "user": "x"}})
    view = retrieved_view(given)
    assert (view.contexts, view.context_ids) == (given.retrieved, given.retrieved_ids)
    assert view.metadata == {"spans": [["a", 0, 9]], "user": "x"}
    unknown = given.model_copy(update={"retrieved": None, "retrieved_ids": None})
    assert retrieved_view(unknown) is unknown


def test_a_sample_without_either_list_is_refused():
    metric = mrr_at(5, of="retrieved")
    with pytest.raises(SampleError, match=r"lacks \['retrieved_ids'\]"):
        metric.invoke({"question": "q", "reference_context_ids": ["a"]})
    with pytest.raises(SampleError, match=r"lacks \['retrieved_ids'\]"):  # ids of what the model read are no answer
        metric.invoke({**RERANKED, "retrieved_ids": None})
    assert metric.invoke({**RERANKED, "retrieved": [], "retrieved_ids": None}).value == 0.0
    with pytest.raises(ConfigError, match="of must be one of contexts, retrieved, got 'output'"):
        mrr_at(5, of="output")


def test_the_lowest_grade_of_any_scale_gains_nothing():
    sample = Sample(question="Where?", contexts=["One.", "Two."])
    judges = [scripted(relevance({1: 1, 2: 1})), scripted(relevance({1: 0, 2: 0}))]
    for judge, scale in zip(judges, [(1, 5), (0, 4)], strict=True):
        score = ndcg_at(5, llm_grader(judge, scale)).invoke(sample)
        assert (score.value, score.reason.split(":")[0]) == (0.0, "Nothing relevant was retrieved")
    for scale, grades in {(1, 5): {1: 5, 2: 2}, (0, 4): {1: 4, 2: 1}, (-2, 2): {1: 2, 2: -1}}.items():
        graders = {kind: llm_grader(scripted(relevance(grades)), scale) for kind in ("ndcg", *BINARY)}
        values = {kind: BUILDERS[kind](5, grader).invoke(sample).value for kind, grader in graders.items()}
        assert values["recall"] == values["hit_rate"] == values["map"] == 1.0
        assert values["ndcg"] in (1.0, pytest.approx((1 + 15 / math.log2(3)) / (15 + 1 / math.log2(3))))


# rerank_gain: the same measure before and after a reranker


CHUNKS = {"contexts": ["useless", "useful", "very useful"], "context_ids": ["a", "b", "c"]}
THREE = Sample(question="Where?", **CHUNKS, relevance={"b": 1, "c": 3})
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


def gains(reranker, sample=THREE):
    """Return the values of the retriever, of the reranker, and of the gain."""
    return [score.value for score in rerank_gain(label_grader(), reranker).invoke(sample).values()]


def test_both_orders_are_held_against_the_same_ideal_and_the_gain_is_their_difference():
    scores = rerank_gain(label_grader(), BY_LENGTH).invoke(THREE)
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
    assert gains(compressor) == gains(BY_LENGTH)
    assert compressor.calls == ["Where?"]


def test_a_chunk_that_is_dropped_stays_in_the_ideal_and_is_told_of():
    keep = Compressor(order=lambda documents: documents[:2])
    scores = rerank_gain(label_grader(), keep).invoke(THREE)
    assert scores["reranker"].value == pytest.approx((1 / math.log2(3)) / (7 + 1 / math.log2(3)))
    assert scores["gain"].reason.endswith("as reranked; 1 of 3 chunks were dropped.")
    for compressor, told in ((keep, "; отброшено фрагментов: 1."), (BY_LENGTH, " после реранжирования.")):
        russian = rerank_gain(label_grader(), compressor).invoke({**dict(THREE), "question": "Где это находится?"})
        assert russian["gain"].reason.endswith(told)
    chunks = [finding.number for finding in scores["gain"].findings if finding.kind == "context"]
    kept = [finding.verdict for finding in scores["gain"].findings if finding.text == "kept"]
    assert (chunks, kept) == ([1, 2, 3], ["2"])


def test_dropping_the_best_chunk_costs_also_where_only_the_retrieved_ones_are_known():
    worst = Compressor(order=lambda documents: by_length(documents)[1:])
    scores = rerank_gain(cross_encoder_grader(BY_LENGTH), worst).invoke(THREE)
    best = 7 + 3 / math.log2(3) + 1 / 2
    assert scores["reranker"].value == pytest.approx((3 + 1 / math.log2(3)) / best)


def test_a_reranker_that_keeps_nothing_has_zero():
    scores = rerank_gain(label_grader(), Compressor(order=lambda documents: [])).invoke(THREE)
    assert (scores["reranker"].value, scores["reranker"].reason) == (0.0, "The reranker kept nothing.")
    assert scores["gain"].value == -scores["retriever"].value


def test_a_chunk_in_parts_stands_where_its_first_part_does():
    compressor = Compressor(order=lambda documents: [documents[2], documents[0], documents[2], documents[1]])
    assert gains(compressor) == gains(BY_LENGTH)


def test_a_document_from_elsewhere_is_an_error():
    compressor = Compressor(order=lambda documents: [Document("made up")])
    with pytest.raises(ModelOutputError, match="a document that was not retrieved: 'made up'"):
        rerank_gain(label_grader(), compressor).invoke(THREE)
    (row,) = evaluate([THREE], rerank_gain(label_grader(), compressor), progress=False).rows
    assert row.scores["retriever"].value == pytest.approx(RETRIEVED)
    assert [row.scores[name].failure.step for name in ("reranker", "gain")] == ["rerank_contexts"] * 2


def test_equal_chunks_are_told_apart_by_their_place():
    sample = THREE.model_copy(update={"contexts": ["same", "same", "same"]})
    assert gains(Compressor(order=lambda documents: documents[::-1]), sample)[1] == 1.0


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
    shortest = PairScores(lambda _, text: -float(len(text)))
    rerankers = {"longest": BY_LENGTH, "shortest": shortest}
    metrics = [rerank_gain(llm_grader(judge), reranker, name=name) for name, reranker in rerankers.items()]
    report = evaluate([THREE], metrics, progress=False)
    assert [name for name in report.summary() if name.endswith("gain")] == ["longest_gain", "shortest_gain"]
    assert len(judge.asked) == 1


def test_another_cutoff_is_had_from_a_report_without_a_call(tmp_path):
    drop = Compressor(order=lambda documents: by_length(documents)[:2])
    samples = [THREE, THREE.model_copy(update={"id": "none", "contexts": [], "context_ids": []})]
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
    scores = rerank_gain(label_grader(), BY_LENGTH, 2).invoke(THREE)
    summaries = {
        name: {f.text: float(f.verdict) for f in score.findings if f.kind == "criterion" and f.text != "kept"}
        for name, score in scores.items()
    }
    as_retrieved = {"best grade": 1.0, "mean grade": 0.5}
    as_reranked = {"best grade": 3.0, "mean grade": 1.5}
    assert summaries == {"retriever": as_retrieved, "reranker": as_reranked, "gain": as_retrieved}


def test_the_findings_of_another_grader_or_without_the_number_of_kept_chunks_do_not_do():
    gain = rerank_gain(label_grader(), BY_LENGTH).metrics[2]
    score = gain.invoke(THREE)
    assert gain.rescore(THREE, score).value == score.value
    for grader in (id_grader(), llm_grader(OfflineJudge(), (4, 5))):
        assert rerank_gain(grader, BY_LENGTH).metrics[2].rescore(THREE, score) is None
    uncounted = [finding for finding in score.findings if finding.text != "kept"]
    assert gain.rescore(THREE, score.model_copy(update={"findings": uncounted})) is None


def test_equal_scores_keep_the_retrievers_order():
    assert gains(PairScores(lambda *_: 1.0))[2] == 0.0


def test_a_reranker_is_not_called_if_nothing_was_retrieved():
    compressor = Compressor(order=by_length)
    scores = rerank_gain(llm_grader(OfflineJudge()), compressor).invoke({"question": "Where is it?", "contexts": []})
    assert {(score.value, score.reason) for score in scores.values()} == {(0.0, "Nothing was retrieved.")}
    assert compressor.calls == []


def test_the_gain_for_a_question_that_no_chunk_answers_is_unscored():
    sample = THREE.model_copy(update={"reference_context_ids": []})
    scores = rerank_gain(id_grader(), BY_LENGTH).invoke(sample)
    assert {score.unscored for score in scores.values()} == {"no chunk is known to be relevant"}
