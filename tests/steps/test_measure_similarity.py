"""Similarity of texts by a model or by a measure of their words."""

import asyncio
import math
import threading

import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.scripted import PairScores, Vectors, scripted
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langchain_rageval import ConfigError
from langchain_rageval.errors import ModelOutputError
from langchain_rageval.steps.measure_similarity import compare_texts, measure_similarity

PLANE = {"east": [1, 0], "north": [0, 2], "west": [-3, 0], "north-east": [1, 1], "east again": [7, 0]}


def pairs(state):
    return state["one"], state["others"]


def similarities(model, one, *others, scale=None):
    return measure_similarity(model, pairs, scale=scale).invoke({"one": one, "others": others})["similarities"]


def test_all_texts_go_out_together_each_once():
    vectors = Vectors(PLANE)
    assert similarities(vectors, "east", "north", "east", "north") == [0.0, 1.0, 0.0]
    assert vectors.asked == [["east", "north"]]


@pytest.mark.parametrize("model", [Vectors({}), PairScores(lambda one, other: 0.5)])
def test_without_others_no_model_is_called(model):
    assert similarities(model, "east") == []
    assert model.asked == []


finite = st.floats(-1e300, 1e300, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-100)
vectors_of_three = arrays(float, 3, elements=finite).filter(lambda vector: np.any(vector))


@given(vectors_of_three, vectors_of_three)
def test_any_two_vectors_have_a_similarity_from_0_to_1_that_has_no_order(one, other):
    (forth,) = similarities(Vectors({"a": one, "b": other}), "a", "b")
    (back,) = similarities(Vectors({"a": one, "b": other}), "b", "a")
    assert forth == back
    assert 0.0 <= forth <= 1.0


@given(vectors_of_three)
def test_equal_vectors_are_exactly_1(vector):
    assert similarities(Vectors({"a": vector, "b": list(vector)}), "a", "b") == [1.0]


@given(arrays(float, 4, elements=st.floats(-1, 1)), arrays(float, 4, elements=st.floats(-1, 1)))
def test_it_is_the_cosine(one, other):
    lengths = math.hypot(*one) * math.hypot(*other)
    if lengths > 1e-6:
        expected = max(0.0, math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths)
        assert similarities(Vectors({"a": one, "b": other}), "a", "b") == [pytest.approx(expected, abs=1e-9)]


NOT_FINITE = "numbers that are not finite"


@each(
    ("bad", "problem"),
    [
        ([0.0, 0.0], "a zero vector"),
        ([], "a zero vector"),
        *((vector, NOT_FINITE) for vector in ([math.nan, 1.0], [math.inf, 1.0], [-math.inf, 0.0], [0.0, math.nan])),
    ],
)
@each("place", ["a", "b"])
def test_a_vector_without_a_direction_is_an_error_that_names_the_text(bad, problem, place):
    model = Vectors({"a": [1.0, 2.0], "b": [1.0, 2.0], place: bad})
    stage, state = measure_similarity(model, pairs), {"one": "a", "others": ["b"]}
    for call in (stage.invoke, lambda state: asyncio.run(stage.ainvoke(state))):
        error = error_of(ModelOutputError, call, state)
        assert str(error) == f"the embeddings returned {problem} for '{place}'"
        assert error.rageval_step == "measure_similarity"


def test_vectors_of_different_lengths_are_an_error():
    with pytest.raises(ModelOutputError, match="lengths 2 and 3"):
        similarities(Vectors({"a": [1, 2], "b": [1, 2, 3]}), "a", "b")


def test_lone_surrogates_reach_no_model():
    vectors = Vectors(answer=lambda text: [1.0])
    assert similarities(vectors, "half \ud83d", "half \ud83e") == [1.0]
    assert vectors.asked == [["half \ufffd"]]


# Cross-encoders


async def test_a_cross_encoder_does_not_hold_up_the_event_loop():
    own = threading.current_thread()
    model = PairScores(lambda *_: float(threading.current_thread() is not own))
    made = await measure_similarity(model, pairs).ainvoke({"one": "a", "others": ["b"]})
    assert made["similarities"] == [1.0]


def test_a_cross_encoder_reads_the_pairs_in_order():
    model = PairScores(lambda one, other: {"b": 0.25, "c": 1, "d": 0}[other])
    assert similarities(model, "a", "b", "c", "d") == [0.25, 1.0, 0.0]
    assert model.asked == [[("a", "b"), ("a", "c"), ("a", "d")]]


@each(
    ("logit", "expected"),
    [(0, 0.5), (math.log(3), 0.75), (-math.log(3), 0.25), (1000, 1.0), (-1000, 0.0), (745.2, 1.0)],
)
def test_sigmoid_maps_logits_to_0_to_1(logit, expected):
    assert similarities(PairScores(lambda one, other: logit), "a", "b", scale="sigmoid") == [pytest.approx(expected)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_sigmoid_takes_any_logit(logit):
    (similarity,) = similarities(PairScores(lambda one, other: logit), "a", "b", scale="sigmoid")
    assert 0.0 <= similarity <= 1.0


@each("score", [-0.01, 1.001, 7.5, -11.2])
def test_scores_outside_0_to_1_are_refused_with_the_option_for_logits(score):
    assert str(error_of(ConfigError, similarities, PairScores(lambda one, other: score), "a", "b")) == (
        f"the cross-encoder's scores are not from 0 to 1, got {score:.3f}; if they are logits, "
        'say scale="sigmoid" (an option of answer_similarity)'
    )


@each("scale", [None, "sigmoid"])
@each("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_an_error(scale, score):
    error = error_of(ModelOutputError, similarities, PairScores(lambda one, other: score), "a", "b", scale=scale)
    assert str(error) == f"the cross-encoder returned the score {score}, which is not a finite number"


def test_fewer_scores_than_pairs_are_an_error():
    class Short(PairScores):
        def score(self, text_pairs):
            return super().score(text_pairs)[1:]

    with pytest.raises(ModelOutputError, match=r"1 scores for 2 pairs"):
        similarities(Short(lambda one, other: 1), "a", "b", "c")


# What is refused


NO_MODEL = "similarity takes LangChain Embeddings or a BaseCrossEncoder, got"


@each(
    ("model", "scale", "message"),
    [
        (None, None, f"{NO_MODEL} NoneType"),
        ("openai:small", None, f"{NO_MODEL} str"),
        (scripted(), None, f"{NO_MODEL} Scripted"),
        (PairScores(None), "log", """scale is None or "sigmoid", got 'log'"""),
        (Vectors({}), "sigmoid", "scale is for a cross-encoder's scores; cosines need none"),
    ],
)
def test_what_cannot_compare_texts_and_a_scale_that_does_not_fit_are_refused(model, scale, message):
    assert str(error_of(ConfigError, measure_similarity, model, pairs, scale=scale)) == message


def test_the_cosine_of_vectors_that_are_nearly_equal_is_never_above_1():
    rng = np.random.default_rng(0)
    one = rng.normal(size=7)
    others = {str(number): one * (1 + rng.normal(size=7) * 1e-15) for number in range(300)}
    assert max(similarities(Vectors({"one": one, **others}), "one", *others)) == 1.0


def found(measure, one, *others):
    stage = compare_texts(measure, lambda state: (one, others), source="mine 1")
    sync, later = stage.invoke({}), asyncio.run(stage.ainvoke({}))
    assert sync == later
    return sync["similarities"]


def test_both_sides_are_folded_and_nothing_is_above_one():
    asked = set()
    assert found(lambda *pair: asked.add(pair) or 1.0000000004, "  ЁЖ ", "Кот\nи ёж") == [1.0]
    assert asked == {("еж", "кот и еж")}


def test_what_is_equal_is_one_whatever_the_measure_says():
    assert found(lambda *_: 0.2, "ЁЖ", "еж", "уж") == [1.0, 0.2]
    assert found(lambda *_: 0.2, "ЁЖ") == []


def test_the_source_is_part_of_the_instrument():
    stages = [compare_texts(max, lambda _: ("", []), source=source) for source in ("mine 1", "mine 2")]
    assert stages[0].instrument != stages[1].instrument
    assert list(stages[0].models) == list(stages[0].judges) == []
