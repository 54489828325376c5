"""Votes on a verdict: their number, and the judge that gives each vote."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from langchain_rageval.judge.judge import Judge


@dataclass(frozen=True)
class Voter:
    """One vote on a verdict: a judge, and the number of its draw (repetition of the same request).

    Attributes:
        judge: the judge that votes.
        draw: number of the draw, from 0; draws of one judge differ only in that later ones bypass the model's cache.
    """

    judge: Judge
    draw: int


def voters_of(judge: Judge) -> list[Voter]:
    """Return the votes that decide one verdict by majority: `draws` of each member, an odd number in all.

    A member that sits on a jury several times gets new draws for each seat.
    """
    members = judge.members
    if len(members) == 1:
        return [Voter(members[0], draw) for draw in range(members[0].draws)]
    voters, seats = [], Counter[tuple[int, str]]()
    for member in members:
        seat = (id(member.model), member._fingerprint_text)
        voters += [Voter(member, seats[seat] + draw) for draw in range(member.draws)]
        seats[seat] += member.draws
    return voters
