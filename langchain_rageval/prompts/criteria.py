"""Criterion: what a rubric grades an answer by; and the criteria that come with the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from math import isfinite
from typing import Any

import yaml
from pydantic import ValidationError

from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import ConfigError, config_error_of
from langchain_rageval.prompts.promptset import Frozen

Scale = tuple[int, int]
"""Lowest and highest grade."""

DEFAULT_SCALE: Scale = (0, 3)
DEFAULT_LANGUAGE = "en"


class GradedAnswer(Frozen):
    """An answer with the grade that it deserves, for the judge to go by.

    Attributes:
        question: what was asked.
        answer: what came back.
        reason: why the grade is what it is.
        grade: on the rubric's scale.
    """

    question: str
    answer: str
    reason: str = ""
    grade: int


class Criterion(Frozen):
    """One thing that a rubric grades an answer by.

    Args:
        name: under which the judge gives the grade and the findings keep it, in any language.
        description: what is graded.
        weight: of the grade in the value; 0 for one that is to be graded and not to count.
        grades: grade to what deserves it. Those between described ones may be given as well, so on a wide scale a few
            will do; on a narrow one describe all.
        examples: answers with their grades, as mappings of `question`, `answer`, `reason` and `grade`.

    Raises:
        ConfigError: if a text is blank, the weight negative, or a grade no whole number.
    """

    name: str
    description: str
    weight: float = 1.0
    grades: dict[int, str]
    examples: tuple[GradedAnswer, ...] = ()

    def __init__(
        self,
        name: str,
        description: str,
        weight: float = 1.0,
        *,
        grades: Mapping[int, str] | None = None,
        examples: Iterable[GradedAnswer | Mapping[str, Any]] = (),
    ) -> None:
        if isinstance(examples, str | Mapping) or not isinstance(examples, Iterable):
            raise ConfigError(f"criterion {name!r}: examples takes a list of mappings, got {type(examples).__name__}")
        shown = [example.model_dump() if isinstance(example, GradedAnswer) else example for example in examples]
        given = {"name": name, "description": description, "weight": weight, "grades": grades or {}, "examples": shown}
        try:
            super().__init__(**without_surrogates(given))
        except ValidationError as error:
            raise config_error_of(f"criterion {name!r}", error) from None
        texts = {"name": self.name, "description": self.description}
        texts |= {f"description of grade {grade}": text for grade, text in self.grades.items()}
        blank = [what for what, text in texts.items() if not text.strip()]
        if blank:
            raise ConfigError(f"criterion {name!r}: the {blank[0]} is blank; say what the judge is to go by")
        if not isfinite(self.weight) or self.weight < 0:
            raise ConfigError(f"criterion {name!r}: weight takes a number from 0 on, got {weight!r}")

    @property
    def key(self) -> str:
        """The name as names are compared."""
        return key_of(self.name)

    def moved(self, old: Scale, new: Scale) -> Criterion:
        """The same criterion on another scale, with those grades that have a whole place there."""
        places = {grade: _place(grade, old, new) for grade in {*self.grades, *(e.grade for e in self.examples)}}
        grades = {place: self.grades[g] for g in self.grades if (place := places[g]) is not None}
        examples = [
            example.model_copy(update={"grade": place})
            for example in self.examples
            if (place := places[example.grade]) is not None
        ]
        return Criterion(self.name, self.description, self.weight, grades=grades, examples=examples)

    def shown(self, scale: Scale, *, with_examples: bool) -> dict[str, Any]:
        """What the judge reads: the grades from the lowest to the highest, these two also where nothing is said."""
        grades = dict.fromkeys(scale, "") | self.grades
        told: dict[str, Any] = {"criterion": self.name, "description": self.description}
        told["grades"] = {str(grade): grades[grade] for grade in sorted(grades)}
        if with_examples and self.examples:
            told["examples"] = [example.model_dump() for example in sorted(self.examples, key=lambda e: e.grade)]
        return told


def key_of(name: str) -> str:
    """A criterion's name as names are compared: a judge may write it with a capital."""
    return " ".join(name.split()).casefold()


def default_criteria(scale: Scale = DEFAULT_SCALE) -> dict[str, tuple[Criterion, ...]]:
    """Language to the criteria that come with the package: correctness, completeness, readability.

    They are written for 0 to 3, with an answer for each grade. On another scale each grade keeps its place between the
    ends, as far as that is a whole number: on 0 to 6 the grades 0, 2, 4 and 6 are described, on 1 to 5 the ends.
    """
    return {
        language: tuple(criterion.moved(DEFAULT_SCALE, scale) for criterion in criteria)
        for language, criteria in _packaged().items()
    }


@lru_cache
def _packaged() -> Mapping[str, Sequence[Criterion]]:
    folder = files("langchain_rageval.prompts").joinpath("rubrics")
    texts = {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return {language: [Criterion(**given) for given in yaml.safe_load(text)] for language, text in texts.items()}


def _place(grade: int, old: Scale, new: Scale) -> int | None:
    """Where a grade comes to lie, None between two grades."""
    steps, rest = divmod((grade - old[0]) * (new[1] - new[0]), old[1] - old[0])
    return None if rest else new[0] + steps
