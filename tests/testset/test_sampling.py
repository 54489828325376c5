"""Seeded draws: rows of each evolution, the order of the passages, and those from which questions start."""

from collections import Counter

from helpers.each import each, error_of
from helpers.texts import corpus
from helpers.writers import Writer, generator
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_rageval import ConfigError
from langchain_rageval.testset import Docstore, Passage, reasoning, simple
from langchain_rageval.testset.evolutions import EVOLUTIONS, allocate_rows
from langchain_rageval.testset.sampling import draw_order, passages_in_focus

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


def test_the_seed_decides_the_order_and_nothing_else():
    shares = {simple: 0.5, reasoning: 0.5}
    one, other = allocate_rows(shares, 40, 1), allocate_rows(shares, 40, 2)
    assert one == allocate_rows(shares, 40, 1) != other
    assert Counter(one) == Counter(other)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(), st.sampled_from(["source", "topic"]))
def test_every_beginning_of_the_order_holds_each_source_or_topic_in_proportion(sizes, seed, name):
    places = [(str(stratum), f"{stratum} {n}") for stratum, size in enumerate(sizes) for n in range(size)]
    store = Docstore([Document(t, metadata={"source": t, name: stratum}) for stratum, t in places], splitter=False)
    order = draw_order(store.passages, seed, name)
    assert sorted(texts(order)) == sorted(texts(store.passages))
    seen = Counter()
    for place, passage in enumerate(order, start=1):
        seen[passage.metadata[name]] += 1
        for stratum, size in enumerate(sizes):
            share = size / len(order)
            assert abs(seen[str(stratum)] - place * share) < 1 + len(sizes) * share


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_the_documents():
    store, turned = Docstore(WIKI), Docstore(WIKI[::-1])
    first = texts(draw_order(store.passages, 7))
    assert first == texts(draw_order(store.passages, 7)) == texts(draw_order(turned.passages, 7))
    assert first != texts(draw_order(store.passages, 8))
    assert texts(store.passages) != texts(turned.passages)
    letters = [Passage(text=letter, source="a", start=0, end=1) for letter in "abcdefgh"]
    firsts = {draw_order(letters, seed)[0].text for seed in range(100)}
    assert firsts == set("abcdefgh")


BATH = {"source": "полисы/баня.txt", "topic": "дом", "tags": ["полис", "баня"], "year": 2024}
HOUSE = {"source": "полисы/дом.txt", "topic": "дом", "tags": ["полис"], "year": 2025}
FEES = {"source": "взносы.txt", "topic": "деньги", "tags": "взнос"}
BY_TEXT = {"О бане.": BATH, "О доме.": HOUSE, "О взносах.": FEES}
DOCS = [Document(text, metadata=metadata) for text, metadata in BY_TEXT.items()]


def focused(focus):
    return [passage.text for passage in passages_in_focus(Docstore(DOCS, splitter=False).passages, focus)]


@each(
    ("focus", "texts"),
    [
        (None, ["О бане.", "О доме.", "О взносах."]),
        ("взносы.txt", ["О взносах."]),
        (["взносы.txt", "полисы/дом.txt"], ["О доме.", "О взносах."]),
        ("полисы/*", ["О бане.", "О доме."]),
        ({"source": "*.txt", "topic": "дом"}, ["О бане.", "О доме."]),
        ({"tags": "полис"}, ["О бане.", "О доме."]),
        ({"tags": ["баня", "взнос"]}, ["О бане.", "О взносах."]),
        ({"year": 2025}, ["О доме."]),
        ({"tags": "полис", "year": [2024]}, ["О бане."]),
    ],
)
def test_passages_are_chosen_by_source_or_metadata(focus, texts):
    assert focused(focus) == texts


@each(
    ("focus", "message"),
    [
        ("взнсы.txt", "focus: no passage has the source 'взнсы.txt'; did you mean 'взносы.txt'?"),
        ("???", "focus: no passage has the source '???'; there are 'взносы.txt', 'полисы/баня.txt', 'полисы/дом.txt'"),
        ({"topik": "дом"}, "focus: no passage has 'topik' in its metadata; did you mean 'topic'?"),
        ({"tags": ["баня", "полиc"]}, "focus: no passage has the tags 'полиc'; did you mean 'полис'?"),
        (
            {"topic": "деньги", "year": 2024},
            "focus: no passage has all of {'topic': 'деньги', 'year': 2024}; choose fewer values",
        ),
        ([], "focus must name at least one source or value, got []"),
        ({"topic": []}, "focus must name at least one source or value, got {'topic': []}"),
    ],
)
def test_a_misspelt_focus_is_an_error_that_names_the_nearest(focus, message):
    assert str(error_of(ConfigError, focused, focus)) == message


@each(("count", "rest"), [(5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_at_most_five_values_are_listed(count, rest):
    known = [{"text": f"{n}", "source": f"[{n}].md", "metadata": {"tags": ("a", n)}} for n in range(count)]
    passages = [Passage(**one, start=0, end=1) for one in known]
    names = ", ".join(f"'[{n}].md'" for n in range(5))
    error = error_of(ConfigError, passages_in_focus, passages, "XY")
    assert str(error) == f"focus: no passage has the source 'XY'; there are {names}{rest}"
    assert texts(passages_in_focus(passages, "[1]*")) == ["1"]
    assert texts(passages_in_focus(passages, {"tags": [3, 4]})) == ["3", "4"]


def test_a_generator_asks_about_the_focus_only_and_before_any_call_refuses_a_wrong_one():
    writer = Writer()
    testset = generator(writer, focus={"topic": "дом"}).generate(DOCS, size=2)
    assert {row.contexts[0] for row in testset} == {"О бане.", "О доме."}
    before, wrong = writer.total, ({"focus": "баня.txt"}, {"stratify": "theme"})
    errors = [str(error_of(ConfigError, generator(writer, **option).generate, DOCS)) for option in wrong]
    assert errors[0].startswith("focus: no passage has the source 'баня.txt'; ")
    assert errors[1].startswith("stratify: no passage has 'theme' in its metadata; there are ")
    assert writer.total == before


def test_passages_added_to_a_question_may_come_from_outside_of_the_focus():
    texts = {"река.txt": "Изар течёт через Мюнхен.", "город.txt": "Мюнхен основали в 1158 году."}
    docs = [Document(text, metadata={"source": source}) for source, text in texts.items()]
    writer = Writer(Entities=lambda *_: {"entities": ["Мюнхен"]})
    (row,) = generator(writer, {"multi_context": 1}, focus="река.txt").generate(docs, size=1)
    assert [source for source, _, _ in row.spans] == ["река.txt", "город.txt"]
