"""Answer similarity and answer relevance: arithmetic, edges, options."""

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, questions, scripted

from langchain_rageval import Judge, Sample, answer_relevance, answer_similarity

SAMPLE = Sample(question="Where?", answer="A.", references=["R."])
PLANE = {"A.": [1, 0], "R.": [0.6, 0.8], "S.": [0.8, 0.6], "T.": [-1, 0], "N.": [0, 1]}


def scored(*references, answer="A.", model=None, **options):
    sample = SAMPLE.model_copy(update={"answer": answer, "references": list(references)})
    return answer_similarity(model or Vectors(PLANE), **options).invoke(sample)


def logits(*scores):
    given_scores = iter(scores)
    return PairScores(lambda answer, reference: next(given_scores))


# Arithmetic


@each(
    ("references", "value"),
    [(["R."], 0.6), (["A."], 1.0), (["N."], 0.0), (["T."], 0.0), (["R.", "S."], 0.8), (["S.", "T.", "R."], 0.8)],
)
def test_it_is_the_clipped_cosine_with_the_nearest_reference(references, value):
    score = scored(*references)
    assert (score.value, score.usage.calls) == (pytest.approx(value), 0)


@each(("threshold", "value"), [(0.0, 1.0), (0.5, 1.0), (0.6, 1.0), (0.61, 0.0), (1, 0.0), (1.0, 0.0)])
def test_with_a_threshold_it_is_one_when_the_similarity_reaches_it(threshold, value):
    assert scored("R.", threshold=threshold).value == value


# Edges


@each("threshold", [None, 0.0])
@each("model", [Vectors({}), logits()])
def test_a_blank_answer_is_zero_and_blank_references_are_unscored_without_a_call(threshold, model):
    blank = scored("R.", answer=" ", threshold=threshold, model=model)
    unscored = scored(" ", threshold=threshold, model=model)
    assert (blank.value, unscored.unscored) == (0.0, "the references are blank")
    assert (blank.usage.embedded, unscored.usage.embedded, model.asked) == (0, 0, [])


def test_a_blank_reference_among_others_is_passed_over():
    score = scored(" ", "R.", "", "S.")
    assert score.value == pytest.approx(0.8)
    assert [(finding.number, finding.text) for finding in score.findings] == [(2, "R."), (4, "S.")]


# Cross-encoders


def test_a_cross_encoder_reads_answer_and_reference():
    model = logits(0.25, 0.75)
    assert scored("R.", "S.", model=model).value == 0.75
    assert model.asked == [[("A.", "R."), ("A.", "S.")]]


# What it tells


@each(
    ("question", "reason"),
    [
        ("Where?", "Similarity to the reference: 0.60; the threshold is 0.5."),
        ("Где?", "Сходство с эталоном: 0.60; порог 0.5."),
    ],
)
def test_the_reason_states_the_threshold(question, reason):
    sample = SAMPLE.model_copy(update={"question": question})
    assert answer_similarity(Vectors(PLANE), threshold=0.5).invoke(sample).reason == reason


ASKED = Sample(question="Where?", answer="There.")
QUESTIONS = {"Where?": [1, 0], "same": [2, 0], "near": [0.6, 0.8], "far": [0, 1], "against": [-1, 0], "Где?": [1, 0]}


def relevance_of(*replies, sample=ASKED, embeddings=None, **options):
    return answer_relevance(scripted(*replies), embeddings or Vectors(QUESTIONS), **options).invoke(sample)


# Arithmetic


@each(
    ("told", "value"),
    [
        (["same", "near", "far"], (1 + 0.6 + 0) / 3),
        (["same", "same", "same"], 1.0),
        (["same", "against"], 0.5),
        (["same", "near", "far", "against"], (1 + 0.6 + 0) / 3),
    ],
)
def test_each_cosine_is_clipped_before_the_mean(told, value):
    assert relevance_of(questions(*told)).value == pytest.approx(value)


# Calls


@each("count", [1, 3, 7])
def test_one_call_asks_for_all_questions_and_one_batch_embeds_them(count):
    judge, vectors = scripted(questions("near", "far")), Vectors(QUESTIONS)
    score = answer_relevance(judge, vectors, questions=count).invoke(ASKED)
    assert judge.inputs == [{"answer": "There.", "count": count}]
    assert vectors.asked == [["Where?", "near", "far"][: count + 1]]
    assert (score.usage.calls, score.usage.embedded) == (1, min(count, 2) + 1)


@pytest.mark.parametrize("answer", ["", " \n"])
def test_a_blank_answer_is_zero_without_any_call(answer):
    vectors = Vectors({})
    score = relevance_of(sample=ASKED.model_copy(update={"answer": answer}), embeddings=vectors)
    assert (score.value, score.usage.calls, vectors.asked) == (0.0, 0, [])


def test_draws_give_independent_questions():
    judge = scripted(questions("same"), questions("near", "far"), questions(evasive=True))
    score = answer_relevance(Judge(judge, draws=3), Vectors(QUESTIONS)).invoke(ASKED)
    assert score.value == pytest.approx((1 + 0.6 + 0) / 3)
    assert [finding.text for finding in score.findings] == ["same", "near", "far", "the answer"]
    assert score.findings[-1].reason == "2 of 3 draws"
    assert score.usage.calls == 3


def test_when_most_draws_call_the_answer_evasive_it_is_zero_and_nothing_is_embedded():
    judge, vectors = (scripted(questions(evasive=True), questions("same"), questions(evasive=True)), Vectors(QUESTIONS))
    assert answer_relevance(Judge(judge, draws=3), vectors).invoke(ASKED).value == 0.0
    assert vectors.asked == []


def test_a_cross_encoder_may_compare_the_questions():
    model = PairScores(lambda asked, other: 0.25 if other == "near" else 0.75)
    assert relevance_of(questions("near", "far"), embeddings=model).value == 0.5
    assert model.asked == [[("Where?", "near"), ("Where?", "far")]]
