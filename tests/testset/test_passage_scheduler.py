"""Which passage is tried next, and how many rows each evolution gets."""

from collections import Counter

import pytest
from helpers.writers import passage
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.testset import conditional, multi_context, reasoning, simple
from langchain_rageval.testset.draft import MOST_ATTEMPTS, Draft, dealt
from langchain_rageval.testset.evolutions import EVOLUTIONS


def draft(passages, rows, near=lambda _: True, seed=0):
    return Draft([passage(number) for number in range(passages)], [simple] * rows, seed, near)


def drawn(starts):
    return {number: start.passages[0].start // 100 for number, start in starts.items()}


def settle(plan, starts, reason=None):
    for number, start in starts.items():
        known = start.but(grade=2.0, keyphrases=["а", "б"])
        plan.settle(number, known if reason is None else known.reject(reason))


@given(
    st.integers(1, 100),
    st.dictionaries(st.sampled_from(list(EVOLUTIONS.values())), st.floats(0.01, 10), min_size=1),
    st.integers(),
)
def test_the_counts_are_exact_by_largest_remainder(size, weights, seed):
    whole = sum(weights.values())
    rows = dealt({branch: weight / whole for branch, weight in weights.items()}, size, seed)
    counts = Counter(rows)
    assert len(rows) == size
    for branch, weight in weights.items():
        assert abs(counts[branch] - size * weight / whole) < 1


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100])
def test_equal_thirds_are_equal(size):
    counts = Counter(dealt(dict.fromkeys((simple, reasoning, conditional), 1 / 3), size, 1))
    assert sum(counts.values()) == size
    assert max(counts.values()) - min(counts[b] for b in (simple, reasoning, conditional)) <= 1


def test_the_seed_decides_the_order_and_nothing_else():
    shares = {simple: 0.5, reasoning: 0.5}
    one, other = dealt(shares, 40, 1), dealt(shares, 40, 2)
    assert one == dealt(shares, 40, 1) != other
    assert Counter(one) == Counter(other)


def test_each_row_begins_with_a_passage_of_its_own():
    assert drawn(draft(5, 3).round()) == {0: 0, 1: 1, 2: 2}


def test_all_passages_are_drawn_once_before_any_is_drawn_again_with_another_key_phrase():
    plan = draft(2, 5)
    starts = plan.round()
    assert drawn(starts) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    assert [start.draw for start in starts.values()] == [0, 0, 1, 1, 2]


def test_a_row_that_was_filled_is_not_tried_again_and_one_that_was_not_gets_the_next_passage():
    plan = draft(5, 2)
    starts = plan.round()
    plan.settle(0, starts[0])
    plan.settle(1, starts[1].reject("question rejected"))
    assert drawn(plan.round()) == {1: 2}
    assert plan.rejected == {"question rejected": 1}
    assert plan.attempts == 3


def test_a_passage_that_failed_is_not_drawn_again_while_others_are_left():
    plan = draft(3, 1)
    places = []
    for _ in range(3):
        starts = plan.round()
        places += drawn(starts).values()
        settle(plan, starts, "question rejected")
    assert places == [0, 1, 2]
    starts = plan.round()  # none is left that did not
    assert drawn(starts) == {0: 0}
    assert (starts[0].draw, starts[0].grade, starts[0].keyphrases) == (1, 2.0, ["а", "б"])


def test_a_passage_that_is_no_good_is_never_drawn_again():
    plan = draft(2, 1)
    for _ in range(2):
        settle(plan, plan.round(), "passage rejected")
    assert plan.round() == {}


def test_what_did_not_evolve_goes_back_once_to_another_question_about_its_passage():
    plan = draft(3, 1)
    places, draws = [], []
    for _ in range(3):
        starts = plan.round()
        places += drawn(starts).values()
        draws.append(starts[0].draw)
        settle(plan, starts, "not evolved")
    assert (places, draws) == ([0, 0, 1], [0, 1, 0])


def test_a_row_is_tried_a_bounded_number_of_times():
    plan = draft(100, 1)
    for _ in range(MOST_ATTEMPTS):
        settle(plan, plan.round(), "question rejected")
    assert plan.round() == {}


def test_a_row_over_several_passages_gets_one_that_has_another_near_it():
    plan = Draft([passage(n) for n in range(4)], [multi_context, simple, multi_context], 0, lambda p: p.start >= 200)
    assert drawn(plan.round()) == {0: 2, 1: 0, 2: 3}


def test_where_no_passage_has_another_near_it_the_row_falls_back_and_the_yield_says_why():
    plan = Draft([passage(0)], [multi_context | reasoning], 0, lambda _: False)
    assert len(plan.round()) == 1
    assert plan.slots[0].branch == reasoning
    assert plan.rejected == {"no passage is near enough": 1}


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_whatever_is_rejected_it_ends_and_every_attempt_is_counted(passages, rows, data):
    plan = draft(passages, rows)
    reasons = ["question rejected", "passage rejected", "not evolved", "no key phrase left", None]
    rounds = 0
    while starts := plan.round():
        rounds += 1
        for number, start in starts.items():
            reason = data.draw(st.sampled_from(reasons))
            plan.settle(number, start if reason is None else start.reject(reason))
    assert rounds <= MOST_ATTEMPTS
    filled = sum(slot.filled is not None for slot in plan.slots)
    assert plan.attempts == filled + plan.rejected.total()
