"""Votes of several judges or draws (repeated requests): majority, and findings that report the agreement rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from langchain_rageval.data.schema import Finding
from langchain_rageval.judge.voting import Voter

_Vote = TypeVar("_Vote", str, bool)


def majority(votes: Sequence[_Vote], tie: _Vote) -> _Vote:
    """Return the most frequent vote; the value of `tie` if two votes are equally frequent."""
    if len(votes) == 1:
        return votes[0]
    ranked = Counter(votes).most_common(2)
    return tie if len(ranked) == 2 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def agreement_rates(
    items: Mapping[int, str], voters: Sequence[Voter], votes: Sequence[Mapping[int, str]]
) -> Iterator[Finding]:
    """Yield a finding for each item with the share of votes for the majority, and the judges that disagree.

    Yields nothing if there is only one voter.

    Args:
        items: texts of the items by their numbers.
        voters: judge and draw (index of a repeated request) of each vote.
        votes: for each voter, its votes by the numbers of the items.
    """
    if len(voters) < 2:
        return
    judges = list(dict.fromkeys(voter.judge for voter in voters))
    for number, text in items.items():
        labels = [vote[number] for vote in votes]
        winner, count = majority(labels, tie=""), max(Counter(labels).values())
        reason = f"{count} of {len(labels)} {'draws' if len(judges) == 1 else 'votes'}"
        if len(judges) > 1:
            pairs = zip(voters, labels, strict=True)
            dissent = [(voter.judge.identity, vote) for voter, vote in pairs if vote != winner]
            reason += "".join(f"; {judge}: {vote}" for judge, vote in dict.fromkeys(dissent))
        yield Finding(kind="agreement", number=number, text=text, verdict=f"{count / len(labels):.2f}", reason=reason)
