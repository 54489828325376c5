"""Votes of several judges or draws (repeated requests): majority, and findings that report the agreement rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from langchain_rageval.data.schema import Finding
from langchain_rageval.judge.probabilities import probabilities_of
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


def mean_probabilities(
    answers: Sequence[BaseModel], field: str, names: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Return the probabilities of the labels of a verdict, as the mean over the votes of which they are known.

    Args:
        answers: for each vote the object that holds the verdict.
        field: field of the verdict.
        names: verdicts of the findings by the labels of the judge, if they differ.
    """
    known = [found for answer in answers if (found := probabilities_of(answer, field))]
    means: dict[str, float] = {}
    for found in known:
        for label, probability in found.items():
            name = (names or {}).get(label, label)
            means[name] = means.get(name, 0.0) + probability / len(known)
    return means


def grade_probabilities(grades: Sequence[BaseModel], scale: tuple[int, int]) -> dict[str, float]:
    """Return the probabilities of the grades on a scale, as the mean over the votes of which they are known.

    Args:
        grades: for each vote the object whose field `grade` holds the grade.
        scale: the lowest and the highest grade; the judge's probability of any other number is left out.
    """
    means = mean_probabilities(grades, "grade")
    possible = {str(grade) for grade in range(scale[0], scale[1] + 1)}
    valid = {grade: probability for grade, probability in means.items() if grade in possible}
    total = sum(valid.values())
    return {grade: probability / total for grade, probability in valid.items()} if total else {}
