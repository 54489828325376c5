"""Panels of judges: a jury that votes on every verdict, and a cascade of a cheap and a strong judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike, with_probabilities


class CascadeEvent(NamedTuple):
    """Event of a cascade: the cheap judge answered a request, or the request was passed on to the strong judge.

    Attributes:
        cheap: identity of the cheap judge.
        strong: identity of the strong judge.
        reason: why the request was passed on; "" if the cheap judge answered it.
    """

    cheap: str
    strong: str
    reason: str


def cascade_notes(events: Mapping[Any, int]) -> Iterator[str]:
    """Yield a note for each cascade: how many requests it passed on to the strong judge, and why.

    Args:
        events: events of a run and the number of times each occurred; events that are not of a cascade are ignored.
    """
    counts: dict[tuple[str, str], Counter[str]] = {}
    for event, count in events.items():
        if isinstance(event, CascadeEvent):
            counts.setdefault((event.cheap, event.strong), Counter())[event.reason] += count
    for (cheap, strong), by_reason in counts.items():
        passed_on = {reason: count for reason, count in by_reason.most_common() if reason}
        reasons = [f"{count} {reason}" for reason, count in passed_on.items()]
        n_passed, total = sum(passed_on.values()), by_reason.total()
        code = "cascade" if reasons else "cascade-idle"
        yield Note(code, cheap=cheap, strong=strong, count=n_passed, total=total, reasons=reasons)


@dataclass(frozen=True, repr=False, eq=False)
class Cascade(Judge):
    """Cheap judge that passes requests on to a strong judge when it is unsure. Created by `cascade(cheap, strong)`."""

    cheap: Judge = field(kw_only=True)
    strong: Judge = field(kw_only=True)
    least_probability: float = field(kw_only=True)

    def __repr__(self) -> str:
        """Return the cascade as text: its judges, without secrets."""
        return f"cascade({self.cheap!r}, {self.strong!r}, least_probability={self.least_probability:g})"

    @property
    def asked(self) -> tuple[Judge, ...]:
        """Judges whose models the cascade calls: those of the cheap judge, followed by those of the strong judge."""
        return (*self.cheap.asked, *self.strong.asked)

    @property
    def identity(self) -> str:
        """Class, name and settings of the models of both judges as text, without secrets."""
        return f"{self.cheap.identity}, then {self.strong.identity}"

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this cascade that affects its answers: `instrument` of both judges, and `least_probability`.

        The keys are "cascade" (a dict with the keys "cheap" and "strong") and "least_probability" (from 0 to 1: the
        strong judge is asked if the cheap judge gives a verdict with a lower probability).

        Raises:
            NotDescribable: if the model of a judge cannot be identified.
        """
        judges = {"cheap": self.cheap.instrument, "strong": self.strong.instrument}
        return {"cascade": judges, "least_probability": self.least_probability}


def cascade(cheap: JudgeLike, strong: JudgeLike, *, least_probability: float = 0.9) -> Judge:
    """Build a judge from two judges: the cheap judge answers first, and the strong judge if the cheap judge is unsure.

    A request is passed on to the strong judge in any of these cases: the cheap judge gives no readable reply within its
    attempts; its endpoint is down; its reply lacks items; its votes differ (`draws`, or a jury); the probability of a
    verdict is low (`probabilities=True`). The strong judge gets the same request, with the prompts of the cheap judge.
    Use an `Audit` to check whether the cheap judge is right where it is sure.

    Args:
        cheap: the judge that is asked first.
        strong: the judge that is asked when the cheap judge is unsure: one judge with one draw, or another cascade.
        least_probability: a request is passed on if a verdict has a lower probability, from 0 to 1. Without effect if
            the cheap judge returns no probabilities.

    Returns:
        A judge that can be used wherever a single judge can. The report says how many requests were passed on.

    Raises:
        ConfigError: if the strong judge has several votes, or the probability is out of range.
    """
    number = least_probability
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise ConfigError(f"least_probability must be a number from 0 to 1, such as 0.9, got {number!r}")
    last = Judge.of(strong)
    if len(last.members) > 1 or last.draws > 1:
        raise ConfigError("the strong judge of a cascade must be one judge with draws=1: its answer is final")
    return _cascade_of(Judge.of(cheap), last, float(number))


def _cascade_of(cheap: Judge, strong: Judge, least_probability: float) -> Cascade:
    first = cheap.members[0]
    options = {**_options_of(first), "draws": 1}
    built = Cascade(first.model, **options, cheap=cheap, strong=strong, least_probability=least_probability)
    object.__setattr__(built, "_endpoint", first._endpoint)
    return built


def _options_of(judge: Judge) -> dict[str, Any]:
    return {name.name: getattr(judge, name.name) for name in fields(Judge) if name.kw_only}


@dataclass(frozen=True, repr=False, eq=False)
class Jury(Judge):
    """Judges that vote on verdicts; the first judge also answers all other questions. Created by `jury([...])`."""

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
        """Judges whose models are called: those of all members."""
        return tuple(judge for member in self._members for judge in member.asked)

    @property
    def identity(self) -> str:
        """Class, name and settings of the models of all members as text, without secrets."""
        return ", ".join(member.identity for member in self._members)

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this jury that affects its verdicts: the `instrument` of each member.

        Raises:
            NotDescribable: if the model of a member cannot be identified.
        """
        return {"jury": [member.instrument for member in self._members]}


def jury(judges: Sequence[JudgeLike]) -> Judge:
    """Build a judge whose verdicts are decided by the majority of several judges, separately for each item.

    The details of a score name the judges that disagree. Only verdicts are put to the vote: the first judge alone
    extracts statements and generates questions. Each judge has as many votes as its `draws`.

    Args:
        judges: an odd number of judges, at least 3.

    Returns:
        A judge that can be used wherever a single judge can.

    Raises:
        ConfigError: if there are fewer than 3 judges, or an even number of judges.
    """
    is_list = isinstance(judges, Sequence) and not isinstance(judges, str)
    if not is_list or len(judges) < 3 or len(judges) % 2 == 0:
        got = len(judges) if is_list else type(judges).__name__
        raise ConfigError(f"a jury takes a list of 3, 5, … judges, so that there is a majority, got {got}")
    members = tuple(member for judge in judges for member in Judge.of(judge).members)
    return Jury(members[0].model, **_options_of(members[0]), _members=members)


def map_members(judge: Judge, change: Callable[[Judge], Judge]) -> Judge:
    """Return the result of a function on a judge; for a jury or cascade, a new one whose judges are the results."""
    if isinstance(judge, Jury):
        return replace(judge, _members=tuple(map_members(member, change) for member in judge.members))
    if isinstance(judge, Cascade):
        cheap, strong = (map_members(one, change) for one in (judge.cheap, judge.strong))
        return _cascade_of(cheap, strong, judge.least_probability)
    return change(judge)


def request_probabilities(judge: JudgeLike, expected: Any) -> Judge:
    """Return a judge that requests the probabilities of verdicts if `expected` is True, otherwise the judge itself.

    Raises:
        ConfigError: if `expected` is neither True nor False.
    """
    if not isinstance(expected, bool):
        raise ConfigError(f"expected must be True or False, got {expected!r}")
    return map_members(Judge.of(judge), with_probabilities) if expected else Judge.of(judge)


def with_fresh_endpoint(judge: Judge) -> Judge:
    """Return a copy of a judge, jury or cascade that starts without known capabilities of its endpoints.

    The original and the copy do not share what they learn later.
    """
    return map_members(judge, replace)
