"""Bridges: passages that share an entity with a passage, found by word stems without a model call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.passage import Passage
from langchain_rageval.text.stemming import stems_of

_FEW = 3  # passages that may always share an entity, however small the corpus is
_TOPIC_SHARE = 5  # an entity of more than a fifth of the passages is their topic, and connects nothing
_DUPLICATE = 0.8  # share of common stems


@dataclass(frozen=True)
class Bridge:
    """Connection of the drawn passage with another passage.

    Attributes:
        entity: entity that both passages name.
        passage: the other passage.
    """

    entity: str
    passage: Passage


def may_have_bridge(store: Docstore, passage: Passage) -> bool:
    """Return True if a passage shares a word with a few others; without such a word it has no bridge."""
    return store.phrase_index.shares_stem(passage.text, _most_passages(store))


def find_bridges(store: Docstore, drawn: Passage, entities: Iterable[str], most: int) -> list[Bridge]:
    """Return bridges to different passages over different entities, those to the most related passages first.

    Passages that share more entities are more related; of equally related ones, those that share a rarer entity come
    first, then those of another document. An entity that begins with a digit, such as an amount, is no bridge, nor is
    one that more than three and more than a fifth of the passages name. Near-duplicates of the drawn passage and
    passages that overlap with it are left out.

    Args:
        store: passages to search.
        drawn: passage from which the bridges start.
        entities: entities that the drawn passage names.
        most: maximum number of bridges.
    """
    named = [entity for entity in entities if not entity[:1].isdigit()]
    numbers_of_entity = {entity: store.phrase_index.texts_with(entity) for entity in named}
    rarest_first = sorted(numbers_of_entity, key=lambda entity: len(numbers_of_entity[entity]))
    shared: dict[int, list[str]] = {}
    for entity in rarest_first:
        if len(numbers_of_entity[entity]) <= _most_passages(store):
            for number in numbers_of_entity[entity]:
                shared.setdefault(number, []).append(entity)

    def rank(number: int) -> tuple[int, int, bool, int]:
        rarest = len(numbers_of_entity[shared[number][0]])
        return -len(shared[number]), rarest, store.passages[number].source == drawn.source, number

    bridges: list[Bridge] = []
    for number in sorted(shared, key=rank):
        if len(bridges) == most:
            break
        passage, used = store.passages[number], [bridge.entity for bridge in bridges]
        own = next((entity for entity in shared[number] if entity not in used), None)
        taken = [drawn, *(bridge.passage for bridge in bridges)]
        if own and not any(_says_the_same(passage, other) for other in taken):
            bridges.append(Bridge(own, passage))
    return bridges


def nearest_passages(store: Docstore, text: str, without: Sequence[Passage], k: int) -> list[Passage]:
    """Return the k passages that share most words with a text, by rarity of the words, the nearest first."""
    left_out = {passage.id for passage in without}
    nearest = (store.passages[number] for number in store.phrase_index.nearest(text))
    return list(islice((passage for passage in nearest if passage.id not in left_out), k))


def _most_passages(store: Docstore) -> int:
    return max(_FEW, len(store) // _TOPIC_SHARE)


def _says_the_same(one: Passage, other: Passage) -> bool:
    """Return True for the same passage, for passages that overlap in one document, and for near-duplicates."""
    if one.id == other.id or one.text == other.text:
        return True
    if one.source == other.source and one.start < other.end and other.start < one.end:
        return True
    stems, others = stems_of(one.text), stems_of(other.text)
    return bool(stems | others) and len(stems & others) >= _DUPLICATE * len(stems | others)
