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


def find_bridges(store: Docstore, drawn: Passage, entities: Iterable[str]) -> list[Bridge]:
    """Return bridges to different passages over different entities, those over the rarest entities first.

    An entity that begins with a digit, such as an amount, is no bridge, nor is one that more than three and more than a
    fifth of the passages name. Of several passages, the one that shares most entities is chosen, then one of another
    document. Near-duplicates of the drawn passage and passages that overlap with it are left out.

    Args:
        store: passages to search.
        drawn: passage from which the bridges start.
        entities: entities that the drawn passage names.
    """
    candidates: dict[str, list[Passage]] = {}
    for entity in entities:
        numbers = store.phrase_index.texts_with(entity)
        if entity[:1].isdigit() or len(numbers) > _most_passages(store):
            continue
        others = [store.passages[number] for number in numbers]
        candidates[entity] = [other for other in others if not _says_the_same(drawn, other)]
    shared = [passage.id for passages in candidates.values() for passage in passages]
    bridges: list[Bridge] = []
    for entity, passages in sorted(candidates.items(), key=lambda item: len(item[1])):
        taken = [drawn, *(bridge.passage for bridge in bridges)]
        left = [other for other in passages if not any(_says_the_same(other, used) for used in taken)]
        if left:
            best = max(left, key=lambda other: (shared.count(other.id), other.source != drawn.source))
            bridges.append(Bridge(entity, best))
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
