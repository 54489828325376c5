"""Compare texts by their letters and words, without a model.

Adds `similarities`, a list of float from 0 to 1: of a text with each text that it is compared with, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_rageval._internal.description import describe
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage, State, TextSelector
from langchain_rageval.text.normalization import normalize_text

TextMeasure = Callable[[str, str], float]
"""Function from two normalized texts to their similarity from 0 to 1."""


class CompareTexts(Stage[State]):
    """Stage that adds `similarities`, a list of float from 0 to 1: of a text with each of the texts to compare.

    All texts are normalized first. Texts that are equal then have the similarity 1.0, whatever the measure returns.
    """

    measure: TextMeasure
    source: str
    pairs: TextSelector

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its results: the measure and the library that it is taken from."""
        return {"step": self.get_name(), "source": self.source, "measure": describe(self.measure)}

    def work(self, state: State) -> Operation[State]:
        """Compare the texts with the measure and add `similarities` to the state; makes no request."""
        yield from ()
        one, others = self.pairs(state)
        one, others = normalize_text(one), [normalize_text(other) for other in others]
        return state | {"similarities": [self._similarity(one, other) for other in others]}

    def _similarity(self, one: str, other: str) -> float:
        return 1.0 if one == other else min(1.0, float(self.measure(one, other)))


def compare_texts(measure: TextMeasure, pairs: TextSelector, *, source: str) -> Stage[State]:
    """Return the stage that compares texts by a measure.

    Args:
        measure: function from two normalized texts to a number from 0 to 1.
        pairs: function from the state to a text and the texts that it is compared with.
        source: name, and version if there is one, of the library that measures.
    """
    return CompareTexts(measure=measure, pairs=pairs, source=source, name="compare_texts")
