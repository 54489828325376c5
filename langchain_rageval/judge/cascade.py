"""Cascade: a cheap judge that passes on to a strong one what it is unsure of."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.endpoint import Endpoint
from langchain_rageval.judge.judge import Judge, JudgeLike


class CascadeCounts:
    """Number of requests that a cascade answered, and of those that it passed on, by reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def record(self, reason: str) -> None:
        """Count a request; the reason is "" if the cheap judge answered it."""
        with self._lock:
            self._counts[reason] += 1

    @property
    def so_far(self) -> Counter[str]:
        """Numbers of requests by reason, a copy."""
        with self._lock:
            return Counter(self._counts)


@dataclass(frozen=True, repr=False, eq=False)
class Cascade(Judge):
    """Cheap judge that passes on to a strong one what it is unsure of. Created by `cascade(cheap, strong)`."""

    cheap: Judge = field(kw_only=True)
    strong: Judge = field(kw_only=True)
    least_probability: float = field(kw_only=True)
    _counts: PerProcess[CascadeCounts] = field(kw_only=True)

    def __repr__(self) -> str:
        """Return the cascade as text: its judges, without secrets."""
        return f"cascade({self.cheap!r}, {self.strong!r}, least_probability={self.least_probability:g})"

    @property
    def counts(self) -> CascadeCounts:
        """Number of requests of this process, shared with copies of the cascade."""
        return self._counts.value

    @property
    def asked(self) -> tuple[Judge, ...]:
        """Judges whose models the cascade calls: those of the cheap judge, then those of the strong one."""
        return (*self.cheap.asked, *self.strong.asked)

    @cached_property
    def identity(self) -> str:
        """Identity of the cascade: class, name and settings of the models of both judges, without secrets."""
        return f"{self.cheap.identity}, then {self.strong.identity}"

    @cached_property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this cascade that affects its answers: the `instrument` of both judges, and the limit.

        Raises:
            NotDescribable: if the model of a judge cannot be identified.
        """
        judges = {"cheap": self.cheap.instrument, "strong": self.strong.instrument}
        return {"cascade": judges, "least_probability": self.least_probability}

    def with_judges(self, change: Callable[[Judge], Judge]) -> Cascade:
        """Return a cascade of what a function returns for both judges, with the same counts."""
        return _cascade_of(change(self.cheap), change(self.strong), self.least_probability, self._counts)

    @property
    def cascades(self) -> tuple[Judge, ...]:
        """This cascade, and those that it consists of."""
        return (self, *self.cheap.cascades, *self.strong.cascades)

    def note_since(self, before: Counter[str]) -> str | None:
        """Return a sentence about the requests since an earlier value of `counts.so_far`; None if there were none."""
        counts = self.counts.so_far - before
        total = counts.total()
        if not total:
            return None
        passed_on = total - counts[""]
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common() if reason)
        return (
            f"{self.cheap.identity} passed {passed_on} of {total} requests on to {self.strong.identity}"
            f"{f': {reasons}' if reasons else ''}."
        )


def cascade(cheap: JudgeLike, strong: JudgeLike, *, least_probability: float = 0.9) -> Judge:
    """Build a judge of two: the cheap one is asked first, the strong one about what the cheap one is unsure of.

    A request is passed on if the cheap judge has no readable reply after its attempts, if its reply lacks items, if its
    votes differ (`draws`, or a jury), or if the probability of one of its verdicts is low (`probabilities=True`). The
    strong judge gets the same request, with the prompts of the cheap one. Whether the cheap judge is right where it is
    sure, an `Audit` shows.

    Args:
        cheap: the judge that is asked first.
        strong: the judge that is asked when the first one is unsure: one judge with one draw, or another cascade.
        least_probability: lowest probability of each verdict that is not passed on, from 0 to 1; without effect if the
            cheap judge has no probabilities.

    Returns:
        A judge that is accepted wherever a single one is. The report says how many requests were passed on.

    Raises:
        ConfigError: if the strong judge has several votes, or the probability is out of range.
    """
    number = least_probability
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise ConfigError(f"least_probability must be a number from 0 to 1, such as 0.9, got {number!r}")
    last = Judge.of(strong)
    if len(last.members) > 1 or last.draws > 1:
        raise ConfigError("the strong judge of a cascade is one judge with draws=1: its word is final")
    return _cascade_of(Judge.of(cheap), last, float(number), PerProcess(CascadeCounts))


def _cascade_of(cheap: Judge, strong: Judge, least_probability: float, counts: PerProcess[CascadeCounts]) -> Cascade:
    first = cheap.members[0]
    built = Cascade(
        first.model,
        language=first.language,
        prompts=first.prompts,
        mode=first.mode,
        attempts=first.attempts,
        layout=first.layout,
        max_statements=first.max_statements,
        max_context_tokens=first.max_context_tokens,
        max_concurrency=first.max_concurrency,
        probabilities=first.probabilities,
        cheap=cheap,
        strong=strong,
        least_probability=least_probability,
        _counts=counts,
    )
    endpoint: Endpoint = first._endpoint
    object.__setattr__(built, "_endpoint", endpoint)
    return built
