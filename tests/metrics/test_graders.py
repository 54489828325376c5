import math

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, relevance, scripted
from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval import (
    ConfigError,
    Finding,
    HashingEmbeddings,
    OfflineJudge,
    Sample,
    SampleError,
    cross_encoder_grader,
    embedding_grader,
    id_grader,
    label_grader,
    llm_grader,
    mean_grade_at,
    mrr_at,
    ndcg_at,
)
from langchain_rageval.errors import ModelOutputError
from langchain_rageval.metrics.grading import Grader


def grades(grader, **fields):
    sample = Sample(question="Where?", **fields)
    return [finding.verdict for finding in grader.invoke({"sample": sample})["grades"] if finding.kind == "context"]


def scoring(scores):
    """A cross-encoder that gives each text its score."""
    return PairScores(lambda _question, text: scores[text])


# Cross-encoders


def test_ranks_start_with_1_at_the_lowest_score_and_equal_scores_share_one():
    ce = scoring({"a": -7.5, "b": 3.0, "c": -7.5, "d": 0.1})
    assert grades(cross_encoder_grader(ce), contexts=["a", "b", "c", "d"]) == ["1", "3", "1", "2"]
    assert ce.asked == [[("Where?", text) for text in "abcd"]]


def test_one_chunk_or_equal_ones_are_the_best_there_are_since_ranks_cannot_tell_worse():
    assert grades(cross_encoder_grader(scoring({"a": -9.0})), contexts=["a"]) == ["1"]
    assert grades(cross_encoder_grader(scoring({"a": 1.0, "b": 1.0})), contexts=["a", "b"]) == ["1", "1"]


def test_ranks_may_start_at_0():
    ce = scoring({"a": -9.0, "b": 4.0, "c": -9.0, "d": -1.0})
    grader = cross_encoder_grader(ce, "rank_from_0")
    assert grades(grader, contexts=["a", "b", "c", "d"]) == ["0", "2", "0", "1"]
    assert grades(grader, contexts=["a", " "]) == ["0", "0"]
    assert grader.instrument != cross_encoder_grader(ce).instrument


@each(
    ("how", "scores", "expected"),
    [
        ("rank_from_0", [3.0, -1.0, 9.0, 2.0, 0.0], 0.76),
        ("rank_from_0", [3.0, 0.0, 9.0, -1.0, 2.0], 0.76),
        ("rank", [3.0, -1.0, 9.0, 2.0, 0.0], 0.77),
        ("rank", [3.0, 0.0, 9.0, -1.0, 2.0], 0.78),
    ],
)
def test_ranks_from_0_give_the_ndcg_of_an_article_that_uses_ranks_as_relevance(how, scores, expected):
    """The cross-encoder ranks document 3 first and document 1 second."""
    names = list("abcde")
    grader = cross_encoder_grader(scoring(dict(zip(names, scores, strict=True))), how)
    assert round(ndcg_at(5, grader).invoke(Sample(question="?", contexts=names)).value, 2) == expected


def test_a_single_chunk_has_a_gain_only_if_ranks_start_at_1():
    ce = scoring({"a": 5.0})
    sample = Sample(question="?", contexts=["a"])
    assert ndcg_at(5, cross_encoder_grader(ce)).invoke(sample).value == 1.0
    assert ndcg_at(5, cross_encoder_grader(ce, "rank_from_0")).invoke(sample).value == 0.0


def test_sigmoids_of_logits_lie_between_0_and_1_and_none_overflows():
    ce = scoring({"a": 0.0, "b": 1000.0, "c": -1000.0})
    found = grades(cross_encoder_grader(ce, "sigmoid"), contexts=["a", "b", "c"])
    assert [float(grade) for grade in found] == [0.5, 1.0, pytest.approx(0.0)]


@each("how", ["rank", "sigmoid"])
@each("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_an_error(how, bad):
    with pytest.raises(ModelOutputError, match="the cross-encoder returned the score"):
        grades(cross_encoder_grader(scoring({"a": 1.0, "b": bad}), how), contexts=["a", "b"])


@pytest.mark.parametrize("how", ["rank", "sigmoid"])
def test_a_blank_chunk_is_below_all_others_and_never_read(how):
    ce = scoring({"a": -1.0, "b": 1.0})
    found = grades(cross_encoder_grader(ce, how), contexts=["a", " ", "b"])
    assert found[1] == "0"
    assert min(float(found[0]), float(found[2])) > 0
    assert [text for _, text in ce.asked[0]] == ["a", "b"]
    assert grades(cross_encoder_grader(ce, how), contexts=["", "\n"]) == ["0", "0"]
    assert len(ce.asked) == 1


def test_too_few_scores_are_an_error():
    class Few(BaseCrossEncoder):
        def score(self, text_pairs):
            return [1.0]

    with pytest.raises(ModelOutputError, match="1 scores for 2 pairs"):
        grades(cross_encoder_grader(Few()), contexts=["a", "b"])


@each("how", [None, "logits", "softmax"])
def test_logits_are_no_grades(how):
    with pytest.raises(ConfigError, match="raw logits cannot serve as grades"):
        cross_encoder_grader(scoring({}), how)


# Embeddings


def test_a_grade_is_the_cosine_with_the_question_and_none_is_negative():
    vectors = Vectors({"Where?": [1.0, 0.0], "a": [3.0, 4.0], "b": [-1.0, 0.0], "c": [2.0, 0.0]})
    found = grades(embedding_grader(vectors), contexts=["a", "b", " ", "c"])
    assert [float(grade) for grade in found] == [pytest.approx(0.6), 0.0, 0.0, 1.0]
    assert sorted(text for batch in vectors.asked for text in batch) == ["Where?", "a", "b", "c"]


@each(
    ("build", "message"),
    [
        (lambda: embedding_grader(OfflineJudge()), "embedding_grader takes LangChain Embeddings, got OfflineJudge"),
        (lambda: embedding_grader(scoring({})), "embedding_grader takes LangChain Embeddings, got PairScores"),
        (
            lambda: cross_encoder_grader(HashingEmbeddings()),
            "takes a LangChain BaseCrossEncoder, got HashingEmbeddings",
        ),
    ],
)
def test_a_model_of_another_kind_is_refused_when_the_grader_is_built(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


# Labels and ids

LABELLED = {"context_ids": ["x", "y", "z"], "relevance": {"z": 3, "x": -1, "elsewhere": 0.5}}


def test_labels_are_grades_and_what_has_none_gets_0():
    assert grades(label_grader(), **LABELLED) == ["-1", "0", "3"]
    assert label_grader().judged_grades(Sample(question="q", **LABELLED)) == [3, -1, 0.5]


def test_ids_are_1_where_the_answer_is():
    fields = {"context_ids": ["x", "y", "z"], "reference_context_ids": ["z", "far", "far"]}
    assert grades(id_grader(), **fields) == ["0", "0", "1"]
    assert id_grader().judged_grades(Sample(question="q", **fields)) == [1, 1]


def test_a_document_that_comes_again_gains_nothing_again():
    ids = ["a", "b", "a"]
    assert grades(id_grader(), context_ids=ids, reference_context_ids=["a"]) == ["1", "0", "0"]
    assert grades(label_grader(), context_ids=ids, relevance={"a": 4}) == ["4", "0", "0"]


def test_findings_hold_the_texts_or_where_there_are_none_the_ids():
    for contexts, texts in ((["A", "B", "C"], ["A", "B", "C"]), (None, ["x", "y", "z"])):
        sample = Sample(question="q", contexts=contexts, **LABELLED)
        findings = label_grader().invoke({"sample": sample})["grades"]
        assert [(f.number, f.text, f.reason) for f in findings] == [
            (number, text, "label") for number, text in enumerate(texts, 1)
        ]


@pytest.mark.parametrize("grader", [label_grader(), id_grader()], ids=["labels", "ids"])
def test_ids_that_do_not_match_the_contexts_are_refused(grader):
    with pytest.raises(SampleError, match="has 1 contexts and 3 context_ids: give each context its id"):
        grades(grader, contexts=["one"], reference_context_ids=["x"], **LABELLED)
    with pytest.raises(SampleError, match="has 0 contexts and 3 context_ids"):
        grades(grader, contexts=[], reference_context_ids=["x"], **LABELLED)


# What grades mean


def test_a_grader_tells_from_which_grade_on_a_chunk_is_relevant():
    ce = scoring({})
    assert [
        grader.threshold
        for grader in (
            llm_grader(scripted()),
            llm_grader(scripted(), (1, 5)),
            label_grader(),
            id_grader(),
            embedding_grader(HashingEmbeddings()),
            cross_encoder_grader(ce, "sigmoid"),
            cross_encoder_grader(ce),
        )
    ] == [1.0, 2.0, 1.0, 1.0, 0.5, 0.5, None]


async def test_every_grader_is_a_stage_that_gives_the_same_sync_and_async():
    ce, embeddings = scoring({"a": 1.0, "b": 2.0}), HashingEmbeddings()
    fields = {"contexts": ["a", "b"], "context_ids": ["1", "2"], "reference_context_ids": ["2"], "relevance": {"1": 2}}
    state = {"sample": Sample(question="a?", **fields)}
    for grader in (
        llm_grader(OfflineJudge()),
        llm_grader(OfflineJudge(), pointwise=True),
        cross_encoder_grader(ce),
        cross_encoder_grader(ce, "sigmoid"),
        embedding_grader(embeddings),
        label_grader(),
        id_grader(),
    ):
        findings = grader.invoke(state)["grades"]
        assert [f.number for f in findings] == [1, 2]
        assert (await grader.ainvoke(state))["grades"] == findings
        assert all(grader.could_have_made(finding) for finding in findings)


class Lengths(Grader):
    """A grader of one's own: half the length of a chunk."""

    lowest: float = 1.0
    threshold: float = 1.5

    @property
    def instrument(self):
        return {"step": "lengths"}

    def grade(self, sample):
        return [
            Finding(kind="context", number=number, text=text, verdict=str(len(text) / 2))
            for number, text in enumerate(sample.contexts, 1)
        ]
        yield


async def test_a_grader_of_ones_own_serves_every_metric():
    sample = Sample(question="q", contexts=["ab", "abcd"])
    assert ndcg_at(5, Lengths(), gain="linear").invoke(sample).value == pytest.approx(1 / math.log2(3))
    assert (await mrr_at(5, Lengths()).ainvoke(sample)).value == 0.5
    assert mean_grade_at(5, Lengths()).invoke(sample).value == 1.5


def test_a_judges_finding_is_no_cosine_and_a_cosine_no_judges():
    sample = Sample(question="a b c?", contexts=["a b", "a x"])
    cosines = embedding_grader(HashingEmbeddings()).invoke({"sample": sample})["grades"]
    judge = llm_grader(scripted(relevance({1: 2, 2: 3})))
    graded = judge.invoke({"sample": sample})["grades"]
    assert not any(judge.could_have_made(finding) for finding in cosines)
    assert not any(embedding_grader(HashingEmbeddings()).could_have_made(finding) for finding in graded)
