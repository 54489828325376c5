"""Jury: several judges that vote on every verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.cascade import Cascade
from langchain_rageval.judge.judge import Judge, JudgeLike, with_probabilities


@dataclass(frozen=True, repr=False, eq=False)
class Jury(Judge):
    """Judges that vote on verdicts; the first judge also answers everything else. Created by `jury([...])`."""

    _members: tuple[Judge, ...] = field(kw_only=True)

    def __repr__(self) -> str:
        """Return the jury as text: its judges, without secrets."""
        return f"jury([{', '.join(map(repr, self._members))}])"

    @property
    def members(self) -> tuple[Judge, ...]:
        """Judges of the jury, which vote on verdicts."""
        return self._members

    @property
    def asked(self) -> tuple[Judge, ...]:
        """Judges whose models are called: those of the members."""
        return tuple(judge for member in self._members for judge in member.asked)

    @property
    def identity(self) -> str:
        """Identity of the jury: class, name and settings of the models of its judges, without secrets."""
        return ", ".join(member.identity for member in self._members)

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this jury that affects its verdicts: the `instrument` of each member.

        Raises:
            NotDescribable: if the model of a member cannot be identified.
        """
        return {"jury": [member.instrument for member in self._members]}


def jury(judges: Sequence[JudgeLike]) -> Judge:
    """Build a judge whose verdicts are the majority of several judges', item by item.

    The findings name the judges that disagree. Only verdicts are put to the vote: the first judge extracts statements
    and regenerates questions for all. Each judge has as many votes as `draws`.

    Args:
        judges: an odd number of judges, at least 3.

    Returns:
        A judge that is accepted wherever a single one is.

    Raises:
        ConfigError: if there are fewer, or an even number.
    """
    is_list = isinstance(judges, Sequence) and not isinstance(judges, str)
    if not is_list or len(judges) < 3 or len(judges) % 2 == 0:
        got = len(judges) if is_list else type(judges).__name__
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


def map_members(judge: Judge, change: Callable[[Judge], Judge]) -> Judge:
    """Apply a function to a judge and return the result; for a jury or a cascade, apply it to each of its judges."""
    if isinstance(judge, Jury):
        return replace(judge, _members=tuple(map_members(member, change) for member in judge.members))
    if isinstance(judge, Cascade):
        return judge.with_judges(lambda one: map_members(one, change))
    return change(judge)


def request_probabilities(judge: JudgeLike, expected: Any) -> Judge:
    """Return a judge that requests the probabilities of verdicts if `expected` is True, else the judge itself.

    Raises:
        ConfigError: if `expected` is neither True nor False.
    """
    if not isinstance(expected, bool):
        raise ConfigError(f"expected must be True or False, got {expected!r}")
    return map_members(Judge.of(judge), with_probabilities) if expected else Judge.of(judge)


def with_fresh_endpoint(judge: Judge) -> Judge:
    """Return a copy of a judge or jury that does not know or share the capabilities of its endpoint."""
    return map_members(judge, replace)
