"""Jury: several judges that vote on every verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter


@dataclass(frozen=True, repr=False, eq=False)
class Jury(Judge):
    """Judges that vote; the first of them does all else that is asked. Make one with `jury([...])`."""

    _members: tuple[Judge, ...] = field(kw_only=True)

    def __repr__(self) -> str:
        """The judges, without secrets."""
        return f"jury([{', '.join(map(repr, self._members))}])"

    @property
    def members(self) -> tuple[Judge, ...]:
        """The judges."""
        return self._members

    def with_fresh_capabilities(self) -> Judge:
        """The same jury of forgetful judges."""
        return self.map_members(Judge.with_fresh_capabilities)

    def map_members(self, change: Callable[[Judge], Judge]) -> Judge:
        """The jury with each of its judges changed."""
        return replace(self, _members=tuple(map(change, self._members)))

    @property
    def voters(self) -> list[Voter]:
        """The votes of all judges; one who has several seats votes anew in each."""
        voters, seen = [], Counter[tuple[int, str]]()
        for member in self._members:
            voter = (id(member.model), repr(member.instrument))
            voters += [Voter(member, seen[voter] + draw) for draw in range(member.draws)]
            seen[voter] += member.draws
        return voters

    @cached_property
    def identity(self) -> str:
        """Which models these are, without secrets."""
        return ", ".join(member.identity for member in self._members)

    @cached_property
    def instrument(self) -> dict[str, Any]:
        """All that could change an answer of any of them."""
        return {"jury": [member.instrument for member in self._members]}


def jury(judges: Sequence[JudgeLike]) -> Judge:
    """A judge whose verdicts are the majority of several judges', item by item; the findings tell who disagreed.

    Only verdicts are put to the vote: the first judge extracts statements and regenerates questions for all. Each
    judge's `draws` are its votes.

    Args:
        judges: an odd number of them, 3 or more.

    Raises:
        ConfigError: if there are fewer, or an even number.
    """
    listed = isinstance(judges, Sequence) and not isinstance(judges, str)
    if not listed or len(judges) < 3 or len(judges) % 2 == 0:
        got = len(judges) if listed else type(judges).__name__
        raise ConfigError(f"a jury takes a list of 3, 5, … judges, so that there is a majority, got {got}")
    members = tuple(member for judge in judges for member in Judge.of(judge).members)
    lead = members[0]
    return Jury(
        lead.model,
        language=lead.language,
        prompts=lead.prompts,
        mode=lead.mode,
        attempts=lead.attempts,
        draws=lead.draws,
        layout=lead.layout,
        max_statements=lead.max_statements,
        max_context_tokens=lead.max_context_tokens,
        _members=members,
    )
