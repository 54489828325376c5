"""Seeded draws of a generation: the evolution of each row, and the order of the passages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.evolutions import Branch, simple
from langchain_rageval.testset.focus import stratum_of
from langchain_rageval.testset.passage import Passage


def allocate_rows(shares: Mapping[Branch, float], size: int, seed: int) -> list[Branch]:
    """Return the evolution of each row: exact counts by the largest remainder method, in random order.

    Args:
        shares: share of each evolution; all above 0, with sum 1.
        size: number of rows.
        seed: random seed of the order.
    """
    quotas = [(evolution, share * size) for evolution, share in shares.items()]
    counts = {evolution: int(quota + 1e-9) for evolution, quota in quotas}
    by_remainder = sorted(quotas, key=lambda pair: counts[pair[0]] - pair[1])
    for evolution, _ in by_remainder[: size - sum(counts.values())]:
        counts[evolution] += 1
    rows = [evolution for evolution, count in counts.items() for _ in range(count)]
    Random(seed).shuffle(rows)
    return rows


def branches_of_tree(shares: Mapping[Branch, float]) -> list[Branch]:
    """Return the evolutions of each tree (questions about one fact): those of a distribution, `simple` first.

    Raises:
        ConfigError: if the distribution lacks `simple`, or has no other evolution.
    """
    if simple not in shares or len(shares) < 2:
        raise ConfigError(
            "tree=True compares evolutions with the simple question about the same fact: the distribution needs "
            f"'simple' and at least one other evolution, got {', '.join(branch.get_name() for branch in shares)}"
        )
    return [simple, *(branch for branch in shares if branch != simple)]


def draw_order(passages: Iterable[Passage], seed: int, stratify: str = "source") -> list[Passage]:
    """Return passages in random order, stratified: each prefix holds about its share of every document or topic.

    Args:
        passages: passages of all documents.
        seed: random seed; the same seed gives the same order on every machine, whatever the order of the documents.
        stratify: name of the metadata that divides the passages into strata, such as "topic".
    """
    random = Random(seed)
    strata: dict[str, list[Passage]] = {}
    for passage in passages:
        strata.setdefault(passage.source if stratify == "source" else stratum_of(passage, stratify), []).append(passage)
    places: list[tuple[float, str, Passage]] = []
    for stratum, own in sorted(strata.items()):
        random.shuffle(own)
        offset = random.random()
        places += [((index + offset) / len(own), stratum, passage) for index, passage in enumerate(own)]
    return [passage for _, _, passage in sorted(places, key=lambda place: place[:2])]
