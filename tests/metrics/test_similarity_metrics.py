"""Answer similarity and answer relevance: arithmetic, edges, options."""

from statistics import fmean

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, questions, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, Sample, answer_relevance, answer_similarity
from langchain_rageval.metrics.similarity_metrics import greatest_similarity, mean_similarity

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
    assert score.value == pytest.approx(value)
    assert (score.metric, score.aspect, score.direction) == ("answer_similarity", "answer", "higher")
    assert score.usage.calls == 0


@each(("threshold", "value"), [(0.0, 1.0), (0.5, 1.0), (0.6, 1.0), (0.61, 0.0), (1, 0.0), (1.0, 0.0)])
def test_with_a_threshold_it_is_one_when_the_similarity_reaches_it(threshold, value):
    assert scored("R.", threshold=threshold).value == value


unit = st.floats(0, 1)


def value_of(similarities, threshold):
    state = {
        "sample": SAMPLE.model_copy(update={"references": ["r"] * len(similarities)}),
        "similarities": similarities,
    }
    return greatest_similarity(state, threshold=threshold).number


@given(st.lists(unit, min_size=1, max_size=6), st.none() | unit, st.randoms())
def test_the_best_reference_counts_in_whatever_order(similarities, threshold, random):
    expected = max(similarities) if threshold is None else float(max(similarities) >= threshold)
    assert value_of(similarities, threshold) == expected
    assert value_of(random.sample(similarities, len(similarities)), threshold) == expected


# Edges


@each("answer", ["", " \n"])
@each("threshold", [None, 0.0, 0.5])
@each("model", [Vectors({}), logits()])
def test_a_blank_answer_is_zero_without_a_call(answer, threshold, model):
    score = scored("R.", answer=answer, threshold=threshold, model=model)
    assert (score.value, score.usage.embedded, model.asked) == (0.0, 0, [])


def test_blank_references_are_unscored_without_a_call():
    model = Vectors({})
    assert scored(" ", "", model=model).unscored == "the references are blank"
    assert model.asked == []


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
    ("question", "options", "reason"),
    [
        ("Where?", {}, "Similarity to the reference: 0.60."),
        ("Где?", {}, "Сходство с эталоном: 0.60."),
        ("Where?", {"threshold": 0.5}, "Similarity to the reference: 0.60; the threshold is 0.5."),
        ("Где?", {"threshold": 0.5}, "Сходство с эталоном: 0.60; порог 0.5."),
        ("Where?", {"answer": " "}, "The answer is blank."),
        ("Где?", {"answer": " "}, "Ответ пуст."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, options, reason):
    answer = options.pop("answer", "A.")
    sample = SAMPLE.model_copy(update={"question": question, "answer": answer})
    assert answer_similarity(Vectors(PLANE), **options).invoke(sample).reason == reason


ASKED = Sample(question="Where?", answer="There.")
QUESTIONS = {"Where?": [1, 0], "same": [2, 0], "near": [0.6, 0.8], "far": [0, 1], "against": [-1, 0], "Где?": [1, 0]}


def relevance_of(*replies, sample=ASKED, embeddings=None, **options):
    return answer_relevance(scripted(*replies), embeddings or Vectors(QUESTIONS), **options).invoke(sample)


# Arithmetic


@each(
    ("told", "value"),
    [
        (["same", "near", "far"], (1 + 0.6 + 0) / 3),
        (["same"], 1.0),
        (["same", "same", "same"], 1.0),
        (["near", "near"], 0.6),
        (["far", "far"], 0.0),
        (["against"], 0.0),
        (["same", "against"], 0.5),
        (["same", "near", "far", "against"], (1 + 0.6 + 0) / 3),
    ],
)
def test_each_cosine_is_clipped_before_the_mean(told, value):
    score = relevance_of(questions(*told))
    assert score.value == pytest.approx(value)
    assert (score.metric, score.aspect, score.direction) == ("answer_relevance", "answer", "higher")


similarities = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def mean_of(given_similarities):
    state = {
        "sample": ASKED,
        "evasive": False,
        "regenerated_questions": ["q"] * len(given_similarities),
        "similarities": given_similarities,
    }
    return mean_similarity(state)


@given(similarities, st.randoms())
def test_it_is_the_mean_from_0_to_1_in_any_order(given_similarities, random):
    number = mean_of(given_similarities).number
    assert 0.0 <= number <= 1.0
    assert number == pytest.approx(fmean(given_similarities))
    assert mean_of(random.sample(given_similarities, len(given_similarities))).number == number


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
