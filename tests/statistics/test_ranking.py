import math
from functools import partial

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Success, nDCG

from langchain_rageval.statistics.ranking import average_precision, hit_rate, mrr, ndcg, precision, recall

grades = st.lists(st.integers(-1, 4), max_size=12)
finite = st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=1, max_size=12)


def by_ir_measures(measure, found, ideal):
    run = {"q": {f"d{n}": float(-n) for n in range(len(found))}}
    labels = {f"d{n}": grade for n, grade in enumerate(found)}
    labels |= {f"u{n}": grade for n, grade in enumerate(ideal[len(found) :])}
    return ir_measures.calc_aggregate([measure], {"q": labels}, run)[measure]


@given(grades.filter(bool), grades, st.integers(1, 15), st.sampled_from([1, 2]))
def test_every_measure_agrees_with_ir_measures(found, others, k, least):
    ideal, relevant = found + others, sum(grade >= least for grade in found + others)
    pairs = [
        (nDCG(dcg="log2") @ k, ndcg(found, ideal, k, gain="linear")),
        (nDCG(gains={grade: 2**grade - 1 for grade in range(1, 5)}) @ k, ndcg(found, ideal, k, gain="exp2")),
        (AP(rel=least) @ k, average_precision(found, relevant, k, least)),
        (RR(rel=least) @ k, mrr(found, k, least)),
        (P(rel=least) @ k, precision(found, k, least)),
        (R(rel=least) @ k, recall(found, relevant, k, least)),
        (Success(rel=least) @ k, hit_rate(found, k, least)),
    ]
    for measure, ours in pairs:
        assert ours == pytest.approx(by_ir_measures(measure, found, ideal), abs=1e-9), measure
    for whole in (
        partial(ndcg, found, ideal),
        partial(mrr, found, threshold=least),
        partial(average_precision, found, relevant, threshold=least),
        partial(recall, found, relevant, threshold=least),
    ):
        assert whole() == whole(k=len(ideal)), whole


# Properties


@pytest.mark.parametrize("highest", [900, 5000])
def test_grades_too_high_for_a_power_of_two_still_have_their_ratio(highest):
    assert ndcg(range(highest, 0, -1)) == 1.0
    swapped = ndcg([highest - 1, highest])
    assert swapped == pytest.approx((1 / 2 + 1 / math.log2(3)) / (1 + 1 / 2 / math.log2(3)))


def test_numpy_arrays_are_taken_as_they_are():
    assert ndcg(np.array([3, 1]), np.array([1.0, 3.0])) == 1.0
    assert average_precision(np.array([True, False])) == 1.0


@given(finite, finite, st.none() | st.integers(1, 15), st.sampled_from(["exp2", "linear"]))
def test_ndcg_lies_between_0_and_1_and_the_best_order_is_exactly_1(found, others, k, gain):
    value = ndcg(found, found + others, k, gain=gain)
    assert 0.0 <= value <= 1.0
    assert value == 0.0 or any(grade > 0 for grade in found)
    best = ndcg(sorted(found, reverse=True), None, k, gain=gain)
    assert best == (1.0 if max(found) > 0 else 0.0)


def test_documents_without_gain_do_not_raise_the_best_order_above_1_by_rounding():
    rng = np.random.default_rng(1)
    for _ in range(200):
        found = np.sort(rng.random(20))[::-1]
        value = ndcg(found, [*found, *np.zeros(int(rng.integers(1, 200)))])
        assert 1 - 1e-12 <= value <= 1.0
