"""Compare texts by their letters and words; no model is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.text.normalization import normalize_text

Measure = Callable[[str, str], float]
Pairs = Callable[[State], tuple[str, Sequence[str]]]


class CompareTexts(Stage[State]):
    """Adds `similarities`, a list of float from 0 to 1: of one text with each of some others.

    Both are folded first. Texts that are then equal are at exactly 1.0, whatever the measure makes of them.
    """

    measure: Measure
    source: str
    pairs: Pairs

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Whose measure it is; its options are the metric's."""
        return {"step": self.get_name(), "source": self.source}

    def work(self, state: State) -> Operation[State]:
        """No request at all."""
        yield from ()
        one, others = self.pairs(state)
        one, others = normalize_text(one), [normalize_text(other) for other in others]
        return state | {"similarities": [self._compared(one, other) for other in others]}

    def _compared(self, one: str, other: str) -> float:
        return 1.0 if one == other else min(1.0, float(self.measure(one, other)))


def compare_texts(measure: Measure, pairs: Pairs, *, source: str) -> Stage[State]:
    """The stage that compares texts.

    Args:
        measure: from two folded texts to a number from 0 to 1.
        pairs: from the state to one text, and the others it is compared with.
        source: name, and version if it has one, of what measures.
    """
    return CompareTexts(measure=measure, pairs=pairs, source=source, name="compare_texts")
