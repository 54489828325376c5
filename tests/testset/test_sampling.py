"""Seeded draws: the number of rows for each evolution, and the order of the passages."""

from collections import Counter

from helpers.each import each
from helpers.texts import corpus
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_rageval.testset import Docstore, Passage, conditional, reasoning, simple
from langchain_rageval.testset.evolutions import EVOLUTIONS, allocate_rows
from langchain_rageval.testset.sampling import draw_order

WIKI = corpus("ru_wiki")


def texts(passages):
    return [passage.text for passage in passages]


@given(
    st.integers(1, 100),
    st.dictionaries(st.sampled_from(list(EVOLUTIONS.values())), st.floats(0.01, 10), min_size=1),
    st.integers(),
)
def test_the_counts_are_exact_by_largest_remainder(size, weights, seed):
    whole = sum(weights.values())
    rows = allocate_rows({evolution: weight / whole for evolution, weight in weights.items()}, size, seed)
    counts = Counter(rows)
    assert len(rows) == size
    rounded_up, rounded_down = [1.0], [0.0]  # remainders of the quotas
    for evolution, weight in weights.items():
        quota = size * weight / whole
        assert abs(counts[evolution] - quota) < 1
        if abs(quota - round(quota)) > 1e-6:
            (rounded_up if counts[evolution] > quota else rounded_down).append(quota % 1)
    assert min(rounded_up) >= max(rounded_down) - 1e-6


@each(("size", "expected"), [(10, [5, 3, 2]), (7, [3, 2, 2]), (3, [1, 1, 1]), (1, [1, 0, 0])])
def test_the_largest_remainders_get_the_rows_that_are_left(size, expected):
    counts = Counter(allocate_rows({simple: 0.45, reasoning: 0.33, conditional: 0.22}, size, 1))
    assert [counts[evolution] for evolution in (simple, reasoning, conditional)] == expected


def test_the_seed_decides_the_order_and_nothing_else():
    shares = {simple: 0.5, reasoning: 0.5}
    one, other = allocate_rows(shares, 40, 1), allocate_rows(shares, 40, 2)
    assert one == allocate_rows(shares, 40, 1) != other
    assert Counter(one) == Counter(other)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers())
def test_every_beginning_of_the_order_holds_each_source_in_proportion(sizes, seed):
    documents = [Document(f"{s} {n}", metadata={"source": str(s)}) for s, size in enumerate(sizes) for n in range(size)]
    store = Docstore(documents, splitter=False)
    order = draw_order(store.passages, seed)
    assert sorted(texts(order)) == sorted(texts(store.passages))
    seen = Counter()
    for place, passage in enumerate(order, start=1):
        seen[passage.source] += 1
        for source, size in enumerate(sizes):
            share = size / len(order)
            assert abs(seen[str(source)] - place * share) < 1 + len(sizes) * share


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_the_documents():
    store, turned = Docstore(WIKI), Docstore(WIKI[::-1])
    first = texts(draw_order(store.passages, 7))
    assert first == texts(draw_order(store.passages, 7)) == texts(draw_order(turned.passages, 7))
    assert first != texts(draw_order(store.passages, 8))
    assert texts(store.passages) != texts(turned.passages)
    letters = [Passage(text=letter, source="a", start=0, end=1) for letter in "abcdefgh"]
    firsts = {draw_order(letters, seed)[0].text for seed in range(100)}
    assert firsts == set("abcdefgh")
