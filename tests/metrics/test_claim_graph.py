"""The twelve numbers against RAGChecker's own definitions, written out once more with loops over plain tables."""

import pytest
from helpers.each import each
from helpers.labelled import ragchecker
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.data.notes import explain
from langchain_rageval.metrics.claim_graph import FORMULAS, Claim, ClaimGraph

NO_FACTS = "the answer states no facts"
NO_REFERENCE_FACTS = "the reference states no facts"
NEITHER = "the answer states no facts, nor does the reference"
UNCITED = "a verdict cites no context sentence"
NOTHING_RECALLED = "the contexts support nothing of the reference"
BY_CHUNK = {"context_precision", "context_utilization", "noise_relevant", "noise_irrelevant"}


def claims(rows, shared):
    """Claims with the chunks in which a row of the table says that they are."""
    made = []
    for row, is_shared in zip(rows, shared, strict=True):
        cited = frozenset(chunk + 1 for chunk, held in enumerate(row) if held)
        made.append(Claim("c", "supported" if cited else "absent", cited, is_shared))
    return made


def values(graph):
    return {name: formula.value(graph) for name, formula in FORMULAS.items()}


@st.composite
def tables(draw):
    chunks = draw(st.integers(0, 5))
    row = st.lists(st.booleans(), min_size=chunks, max_size=chunks)
    sides = [draw(st.lists(row, min_size=1, max_size=6)) for _ in range(2)]
    shared = [draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))) for rows in sides]
    return *sides, *shared, chunks


def graph_of(answer, reference, correct, covered, chunks):
    return ClaimGraph(claims(answer, correct), claims(reference, covered), chunks)


@given(tables())
def test_they_are_ragcheckers_numbers(given_tables):
    found, expected = values(graph_of(*given_tables)), ragchecker(*given_tables)
    for name, number in expected.items():
        if name == "context_utilization" and number is None:
            assert found[name] == NOTHING_RECALLED
        elif name == "context_precision" and number is None:
            assert found[name] == 0.0  # nothing was retrieved
        else:
            assert found[name] == pytest.approx(number, abs=1e-12), name
    assert found.keys() - expected.keys() == {"contradiction"}


# Edges


def wrong(count=2):
    return [Claim("c", "supported", frozenset({1})), Claim("c", "absent")][:count]


def test_an_answer_without_facts_has_no_precision_but_misses_what_the_reference_says():
    found = values(ClaimGraph([], [Claim("c", "supported", frozenset({1})), Claim("c", "absent")], 2))
    numbers = {"recall": 0.0, "f1": 0.0, "context_recall": 0.5, "context_precision": 0.5, "context_utilization": 0.0}
    assert found == {name: numbers.get(name, NO_FACTS) for name in FORMULAS}


def test_a_reference_without_facts_leaves_the_recall_side_unscored():
    found = values(ClaimGraph(wrong(), [], 2))
    unscored = {"recall", "f1", "context_recall", "context_precision", "context_utilization"}
    assert {name for name, value in found.items() if value == NO_REFERENCE_FACTS} == unscored
    assert {name: value for name, value in found.items() if name not in unscored} == {
        "precision": 0.0,
        "noise_relevant": 0.0,
        "noise_irrelevant": 0.5,
        "hallucination": 0.5,
        "self_knowledge": 0.0,
        "faithfulness": 0.5,
        "contradiction": 0.0,
    }


def test_without_facts_on_either_side_nothing_is_scored():
    found = values(ClaimGraph([], [], 2))
    assert (found["precision"], found["recall"], found["f1"]) == (NO_FACTS, NO_REFERENCE_FACTS, NEITHER)
    assert all(isinstance(value, str) for value in found.values())


def test_nothing_retrieved_is_zero_and_what_is_wrong_is_made_up():
    found = values(ClaimGraph([Claim("c", "absent", shared=True), Claim("c", "absent")], [Claim("c", "absent")], 0))
    zero = {"faithfulness", "context_recall", "context_precision", "noise_relevant", "noise_irrelevant"}
    assert {name: found[name] for name in zero} == dict.fromkeys(zero, 0.0)
    assert found["hallucination"] == 1 - found["precision"] == 0.5
    assert found["context_utilization"] == NOTHING_RECALLED


def test_nothing_shared_is_an_f1_of_zero():
    assert values(ClaimGraph(wrong(), [Claim("c", "absent")], 1))["f1"] == 0.0


@each("verdict", ["supported", "contradicted"])
@each("side", ["answer", "reference"])
def test_a_verdict_that_cites_nothing_leaves_unscored_what_rests_on_chunks(side, verdict):
    sides = {"answer": wrong(), "reference": [Claim("c", "supported", frozenset({2}))]}
    sides[side] = [*sides[side], Claim("c", verdict)]
    found = values(ClaimGraph(**sides, chunks=2))
    assert {name for name, value in found.items() if value == UNCITED} == BY_CHUNK
    assert not any(isinstance(value, str) for name, value in found.items() if name not in BY_CHUNK)


def test_a_contradicted_statement_is_neither_supported_nor_anybodys_source():
    contradicted = Claim("c", "contradicted", frozenset({1}))
    found = values(ClaimGraph([contradicted], [contradicted], 1))
    assert (found["contradiction"], found["faithfulness"], found["hallucination"]) == (1.0, 0.0, 1.0)
    assert (found["context_recall"], found["context_precision"], found["noise_irrelevant"]) == (0.0, 0.0, 0.0)


# What is told


def test_three_statements_are_named_and_the_others_counted():
    notes = FORMULAS["hallucination"].reasons(ClaimGraph([Claim("c", "absent")] * 5, [], 0), "hallucination")
    assert explain("What?", *notes).endswith(": «c», «c», «c», and 2 more.")
    assert explain("Что?", *notes).endswith(": «c», «c», «c», и ещё 2.")
