"""Votes: several draws or several judges decide each item by majority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from langchain_rageval.data.schema import Finding
from langchain_rageval.judge.voting import Voter

V = TypeVar("V", str, bool)


def majority(votes: Sequence[V], tie: V) -> V:
    """The most frequent vote; `tie` when two are equally frequent."""
    if len(votes) == 1:
        return votes[0]
    ranked = Counter(votes).most_common(2)
    return tie if len(ranked) == 2 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def agreement(
    items: Mapping[int, str], voters: Sequence[Voter], votes: Sequence[Mapping[int, str]]
) -> Iterator[Finding]:
    """How far the votes on each item agree, and which judges are not of the majority; nothing when there is one vote.

    Args:
        items: number of each item to its text.
        voters: who voted.
        votes: number of each item to the vote, for each ballot.
    """
    if len(voters) < 2:
        return
    judges = list(dict.fromkeys(voter.judge for voter in voters))
    for number, text in items.items():
        given = [vote[number] for vote in votes]
        winner, most = majority(given, tie=""), max(Counter(given).values())
        reason = f"{most} of {len(given)} {'draws' if len(judges) == 1 else 'votes'}"
        if len(judges) > 1:
            against = [(b.judge.identity, vote) for b, vote in zip(voters, given, strict=True) if vote != winner]
            reason += "".join(f"; {judge}: {vote}" for judge, vote in dict.fromkeys(against))
        yield Finding(kind="agreement", number=number, text=text, verdict=f"{most / len(given):.2f}", reason=reason)
