"""The passage scheduler: which passage each row is tried with next."""

from collections import Counter

from helpers.each import each
from helpers.writers import passage
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.testset import Candidate, multi_context, numbers, reasoning, simple
from langchain_rageval.testset.passage_scheduler import MAX_ATTEMPTS, PassageScheduler


def scheduler(passages, rows, near=lambda _: True):
    evolutions = [simple] * rows if isinstance(rows, int) else rows
    return PassageScheduler([passage(number) for number in range(passages)], evolutions, 0, near)


def drawn(starts):
    return {number: start.passages[0].start // 100 for number, start in starts.items()}


def record_all(plan, starts, reason=None):
    for number, start in starts.items():
        known = start.replace(grade=2.0, keyphrases=["а", "б"])
        plan.record(number, known if reason is None else known.reject(reason))


PASSAGE, QUESTION = "passage rejected", "question rejected"


@each(
    ("passages", "rows", "rounds"),
    [
        (5, 3, [({0: 0, 1: 1, 2: 2}, {})]),  # each row starts with another passage
        (2, 5, [({0: 0, 1: 1, 2: 0, 3: 1, 4: 0}, {})]),  # all are drawn once before any is drawn again
        (5, 2, [({0: 0, 1: 1}, {1: QUESTION}), ({1: 2}, {})]),  # a row that was filled is not tried again
        # a passage that failed is drawn again when all have failed, but a rejected passage never
        (3, 1, [({0: 0}, {0: QUESTION}), ({0: 1}, {0: QUESTION}), ({0: 2}, {0: QUESTION}), ({0: 0}, {})]),
        (2, 1, [({0: 0}, {0: PASSAGE}), ({0: 1}, {0: PASSAGE}), ({}, {})]),
        (2, 3, [({0: 0, 1: 1, 2: 0}, {1: PASSAGE}), ({1: 0}, {})]),  # not even one that was put back
        (2, 2, [({0: 0, 1: 1}, {0: QUESTION}), ({0: 1}, {})]),  # one of an accepted question comes before a failed one
        (100, 1, [*(({0: n}, {0: QUESTION}) for n in range(MAX_ATTEMPTS)), ({}, {})]),  # at most eight attempts
    ],
)
def test_the_passages_of_each_round_follow_from_the_outcomes_of_earlier_ones(passages, rows, rounds):
    plan, rejected = scheduler(passages, rows), Counter()
    for places, reasons in rounds:
        starts = plan.next_round()
        assert drawn(starts) == places
        for number, start in starts.items():
            plan.record(number, start.reject(reasons[number]) if number in reasons else start)
        rejected.update(reasons.values())
    assert (plan.rejected, plan.attempts) == (rejected, sum(len(places) for places, _ in rounds))


def test_a_passage_that_is_drawn_again_keeps_its_grading_and_key_phrases_and_gives_another_of_these():
    plan = scheduler(1, 2)
    starts = plan.next_round()
    assert [start.draw for start in starts.values()] == [0, 1]
    graded = starts[0].with_trial("passage", feedback="ok").with_question("Что?", "seed")
    record_all(plan, dict.fromkeys(starts, graded), "near-duplicate")
    again = plan.next_round()[0]
    assert (again.draw, again.grade, again.keyphrases) == (2, 2.0, ["а", "б"])
    assert [(trial.kind, trial.feedback) for trial in again.history] == [("passage", "ok")]
    assert (again.question, again.rejected) == ("", None)


DUPLICATES, REJECTED = ["near-duplicate"], ["question rejected"]
NONE = "none of the last 32 questions was accepted; see `rejected`"
REPEATED = "the last 16 questions repeat accepted ones; see `rejected`"


@each(
    ("outcomes", "hopeless"),
    [
        ([], ""),
        (REJECTED * 31, ""),
        (REJECTED * 32, NONE),
        ([*REJECTED * 20, "passage rejected", *REJECTED * 12], NONE),
        ([*REJECTED * 31, None, *REJECTED * 31], ""),
        (["passage rejected", "no key phrase left"] * 20, ""),
        (DUPLICATES * 15, ""),
        (DUPLICATES * 16, REPEATED),
        ([*DUPLICATES * 8, "no key phrase left", *DUPLICATES * 8], REPEATED),
        ([*DUPLICATES * 20, *REJECTED], ""),
        ([*REJECTED, *DUPLICATES * 20], ""),
        ([*DUPLICATES * 15, None, *DUPLICATES * 15], ""),
    ],
)
def test_a_run_is_hopeless_after_many_rejected_or_repeated_questions_in_a_row(outcomes, hopeless):
    plan = scheduler(100, 100)
    for (number, start), reason in zip(plan.next_round().items(), outcomes, strict=False):
        plan.record(number, start if reason is None else start.reject(reason))
    assert plan.hopeless == hopeless


@each(
    ("evolution", "reason", "expected"),
    [
        (simple, "not evolved", ([0, 0, 1], [0, 1, 0])),
        (reasoning, "not evolved", ([0, 0, 1], [0, 1, 0])),
        (reasoning, "near-duplicate", ([0, 0, 1], [0, 1, 0])),
        (simple, "near-duplicate", ([0, 1, 2], [0, 0, 0])),
        (reasoning, "unsupported answer", ([0, 1, 2], [0, 0, 0])),
    ],
)
def test_after_a_question_that_did_not_evolve_the_passage_is_tried_once_more(evolution, reason, expected):
    plan = scheduler(3, [evolution])
    places, draws = [], []
    for _ in range(3):
        starts = plan.next_round()
        places += drawn(starts).values()
        draws.append(starts[0].draw)
        record_all(plan, starts, reason)
    assert (places, draws) == expected


@each("branches", [[simple, reasoning, numbers], [simple, numbers]])
def test_a_row_of_an_existing_tree_keeps_its_question_if_other_evolutions_suit_no_passage(branches):
    passages = [passage(n) for n in range(4)]
    root = Candidate(passages=[passages[3]], question="Что?", tree_id="t")
    plan = PassageScheduler(passages, [reasoning, simple, simple, simple], 0, lambda _: True, branches, {0: root})
    starts = plan.next_round()
    evolutions = [reasoning, simple, reasoning if reasoning in branches else simple, simple]
    assert (starts[0], [row.evolution for row in plan.rows]) == (root, evolutions)
    assert [number for number in starts if number] == [number for number in (1, 2, 3) if evolutions[number] == simple]
    assert plan.left_out == {"no numbers in the passage": ["numbers"]}


def test_a_row_over_several_passages_gets_one_that_has_another_near_it():
    plan = scheduler(4, [multi_context, simple, multi_context], lambda p: p.start >= 200)
    assert drawn(plan.next_round()) == {0: 2, 1: 0, 2: 3}


def test_where_no_passage_has_another_near_it_the_row_falls_back_and_the_yield_says_why():
    plan = scheduler(1, [multi_context | reasoning], lambda _: False)
    assert len(plan.next_round()) == 1
    assert plan.rows[0].evolution == reasoning
    assert plan.rejected == {"no passage is near enough": 1}


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_scheduling_ends_and_counts_every_attempt_whatever_is_rejected(passages, rows, data):
    plan = scheduler(passages, rows)
    reasons = ["question rejected", "passage rejected", "not evolved", "no key phrase left", None]
    rounds = 0
    while starts := plan.next_round():
        rounds += 1
        for number, start in starts.items():
            reason = data.draw(st.sampled_from(reasons))
            plan.record(number, start if reason is None else start.reject(reason))
    assert rounds <= MAX_ATTEMPTS
    filled = sum(row.accepted is not None for row in plan.rows)
    assert plan.attempts == filled + plan.rejected.total()


def test_a_tree_starts_from_a_passage_that_suits_all_its_evolutions():
    passages = [passage(n, "С 1900 по 1950." if n in (1, 2, 4) else "Построен давно.") for n in range(5)]
    branches = [simple, numbers, multi_context]
    for seed in range(10):
        plan = PassageScheduler(passages, branches, seed, lambda one: one.start >= 300, branches)
        assert drawn(plan.next_round()) == {0: 4}


@each(
    ("kind", "first", "later", "given_up", "attempts"),
    [
        ("reasoning", None, "not evolved", {}, 1 + 8),
        ("reasoning", "near-duplicate", "not evolved", {}, 8 + 8),
        ("reasoning", "no passage answers it", "not evolved", {}, 8 + 8),
        ("reasoning", "not answerable from its passages", "not evolved", {}, 8 + 8),
        ("reasoning", "known without the documents", "not evolved", {}, 8 + 8),
        ("reasoning", "not evolved", "not evolved", {reasoning: 8}, 4 + 4),
        ("reasoning", "question rejected", "question rejected", {reasoning: 8}, 4 + 4),
        ("reasoning", "failed: RuntimeError", "failed: RuntimeError", {}, 8 + 8),
        ("reasoning", "failed: RuntimeError", "not evolved", {reasoning: 9}, 5 + 5),
        ("rewrite", "question rejected", "question rejected", {}, 8 + 8),  # before the evolution
    ],
)
def test_an_evolution_is_given_up_after_eight_attempts_that_gave_no_evolved_question(
    kind, first, later, given_up, attempts
):
    plan, reason = scheduler(60, [reasoning] * 2), first
    while starts := plan.next_round():
        for number, start in starts.items():
            evolved = start.with_question("Что?", "seed").with_trial(kind)
            plan.record(number, evolved if reason is None else evolved.reject(reason))
            reason = later
    assert (plan.given_up, plan.attempts) == (given_up, attempts)


def test_a_row_without_attempts_takes_no_place_in_a_new_tree():
    branches = [simple, reasoning, numbers]
    passages = [passage(n, "С 1900 по 1950.") for n in range(9)]
    plan = PassageScheduler(passages, branches * 2, 0, lambda _: True, branches)
    plan.next_round()
    plan.rows[1].attempts, plan.given_up[reasoning] = MAX_ATTEMPTS, MAX_ATTEMPTS
    assert 4 in plan.next_round()
    assert (plan.rows[1].evolution, plan.rows[4].evolution) == (reasoning, simple)
