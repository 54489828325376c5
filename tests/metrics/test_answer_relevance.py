from math import nan
from statistics import fmean

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, questions, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Judge, JudgeOutputError, Sample, answer_relevance
from langchain_rageval.metrics.similarity_metrics import mean_similarity

SAMPLE = Sample(question="Where?", answer="There.")
PLANE = {"Where?": [1, 0], "same": [2, 0], "near": [0.6, 0.8], "far": [0, 1], "against": [-1, 0], "Где?": [1, 0]}


def scored(*replies, sample=SAMPLE, embeddings=None, **options):
    return answer_relevance(scripted(*replies), embeddings or Vectors(PLANE), **options).invoke(sample)


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
    score = scored(questions(*told))
    assert score.value == pytest.approx(value)
    assert (score.metric, score.aspect, score.direction) == ("answer_relevance", "answer", "higher")


def test_a_perfect_score_is_exactly_one():
    assert scored(questions("Where?", "Where?", "Where?")).value == 1.0


similarities = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def value_of(given_similarities):
    state = {
        "sample": SAMPLE,
        "evasive": False,
        "regenerated_questions": ["q"] * len(given_similarities),
        "similarities": given_similarities,
    }
    return mean_similarity(state)


@given(similarities, st.randoms())
def test_it_is_the_mean_from_0_to_1_in_any_order(given_similarities, random):
    number = value_of(given_similarities).number
    assert 0.0 <= number <= 1.0
    assert number == pytest.approx(fmean(given_similarities))
    assert value_of(random.sample(given_similarities, len(given_similarities))).number == number


# Calls


@each("count", [1, 3, 7])
def test_one_call_asks_for_all_questions_and_one_batch_embeds_them(count):
    judge, vectors = scripted(questions("near", "far")), Vectors(PLANE)
    score = answer_relevance(judge, vectors, questions=count).invoke(SAMPLE)
    assert judge.inputs == [{"answer": "There.", "count": count}]
    assert vectors.asked == [["Where?", "near", "far"][: count + 1]]
    assert (score.usage.calls, score.usage.embedded) == (1, min(count, 2) + 1)


def test_by_default_three_questions_are_asked_for():
    judge = scripted(questions("near"))
    answer_relevance(judge, Vectors(PLANE)).invoke(SAMPLE)
    assert judge.inputs[0]["count"] == 3


@pytest.mark.parametrize("told", [[], ["same"]])
def test_an_evasive_answer_is_zero_and_nothing_is_embedded(told):
    vectors = Vectors({})
    score = scored(questions(*told, evasive=True), embeddings=vectors)
    assert (score.value, score.usage.calls, score.usage.embedded, vectors.asked) == (0.0, 1, 0, [])
    assert score.findings == []


@pytest.mark.parametrize("answer", ["", " \n"])
def test_a_blank_answer_is_zero_without_any_call(answer):
    vectors = Vectors({})
    score = scored(sample=SAMPLE.model_copy(update={"answer": answer}), embeddings=vectors)
    assert (score.value, score.usage.calls, vectors.asked) == (0.0, 0, [])


def test_no_questions_and_not_evasive_is_asked_again_then_a_failure():
    assert scored(questions(), questions("same")).value == 1.0
    with pytest.raises(JudgeOutputError, match="no questions") as caught:
        scored(questions(), questions(""), questions(" "))
    assert caught.value.step == "regenerate_questions"


def test_draws_give_independent_questions():
    judge = scripted(questions("same"), questions("near", "far"), questions(evasive=True))
    score = answer_relevance(Judge(judge, draws=3), Vectors(PLANE)).invoke(SAMPLE)
    assert score.value == pytest.approx((1 + 0.6 + 0) / 3)
    assert [finding.text for finding in score.findings] == ["same", "near", "far", "the answer"]
    assert score.findings[-1].reason == "2 of 3 draws"
    assert score.usage.calls == 3


def test_when_most_draws_call_the_answer_evasive_it_is_zero_and_nothing_is_embedded():
    judge, vectors = scripted(questions(evasive=True), questions("same"), questions(evasive=True)), Vectors(PLANE)
    assert answer_relevance(Judge(judge, draws=3), vectors).invoke(SAMPLE).value == 0.0
    assert vectors.asked == []


def test_contexts_and_references_are_not_needed():
    assert answer_relevance(scripted(), Vectors({})).reads == {"question", "answer"}


def test_a_cross_encoder_may_compare_the_questions():
    model = PairScores(lambda asked, other: 0.25 if other == "near" else 0.75)
    assert scored(questions("near", "far"), embeddings=model).value == 0.5
    assert model.asked == [[("Where?", "near"), ("Where?", "far")]]


# Options


@each("count", [0, -1, 1.5, True, "3", None, nan])
def test_a_number_of_questions_that_is_none_is_refused_when_the_metric_is_built(count):
    with pytest.raises(ConfigError, match="questions must be a whole number of at least 1, got"):
        answer_relevance(scripted(), Vectors({}), questions=count)


def test_the_number_of_questions_is_keyword_only_and_part_of_the_instrument():
    judge = scripted()
    with pytest.raises(TypeError):
        answer_relevance(judge, Vectors({}), 3)
    instruments = {answer_relevance(judge, Vectors({}), questions=count).instrument for count in (1, 2, 3)}
    assert len(instruments) == 3


# What it tells


def test_findings_are_the_questions_with_their_cosines():
    score = scored(questions("same", "near", "against"))
    assert [(f.kind, f.number, f.text, float(f.verdict)) for f in score.findings] == [
        ("question", 1, "same", 1.0), ("question", 2, "near", pytest.approx(0.6)), ("question", 3, "against", 0.0),
    ]  # fmt: skip


@each(
    ("question", "reply", "reason"),
    [
        ("Where?", questions("same", "near"), "The answer would answer: «same» (1.00); «near» (0.60)."),
        ("Где?", questions("same", "near"), "Ответ отвечал бы на вопросы: «same» (1.00); «near» (0.60)."),
        ("Where?", questions(evasive=True), "The answer is blank or evasive."),
        ("Где?", questions(evasive=True), "Ответ пуст или уклончив."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, reply, reason):
    assert scored(reply, sample=SAMPLE.model_copy(update={"question": question})).reason == reason
