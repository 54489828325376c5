"""Criteria of a rubric or an aspect, and the base class of models that are hashed by their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from math import isfinite
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.code_identity import content_digest
from langchain_rageval._internal.files import load_yaml
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import ConfigError, config_error_of


class HashableModel(BaseModel):
    """Frozen pydantic model that rejects unknown fields and is hashed by its content."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the whole content of the model."""
        return content_digest(self.model_dump_json())

    def __hash__(self) -> int:
        """Return the hash of the fingerprint, because pydantic's own hash fails on lists and dicts."""
        return hash(self.fingerprint)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the field values in `update`.

        The cached fingerprint (hash of the content) is not copied; the copy computes its own fingerprint.
        """
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("fingerprint", None)
        return copied


Scale = tuple[int, int]
"""The lowest and the highest grade."""

DEFAULT_SCALE: Scale = (0, 3)
DEFAULT_LANGUAGE = "en"


def check_scale(scale: Any) -> Scale:
    """Return a scale as a pair of its lowest and its highest grade.

    Raises:
        ConfigError: if `scale` is not two whole numbers, the lower number first.
    """
    whole = isinstance(scale, Sequence) and len(scale) == 2 and all(type(end) is int for end in scale)
    if not whole or scale[0] >= scale[1]:
        raise ConfigError(
            f"scale must be the lowest and the highest grade, whole numbers such as (0, 3), got {scale!r}"
        )
    return scale[0], scale[1]


class GradedAnswer(HashableModel):
    """An example answer with its correct grade, shown to the judge.

    Attributes:
        question: question of the example.
        answer: answer to that question.
        reason: reason for the grade.
        grade: grade on the rubric's scale.
    """

    question: str
    answer: str
    reason: str = ""
    grade: int


class Criterion(HashableModel):
    """A criterion by which a rubric grades answers.

    Args:
        name: name of the criterion in the judge's reply and in the findings, in any language.
        description: description of what is graded.
        weight: weight of the grade in the metric's value; 0 for a grade that is reported but not counted.
        grades: maps a grade to the description of an answer that deserves this grade. The judge may also give grades
            without a description: on a wide scale a few descriptions suffice; on a narrow scale describe all grades.
        examples: graded answers, as mappings of `question`, `answer`, `reason` and `grade`.

    Raises:
        ConfigError: if a text is blank, the weight negative or not finite, or a grade not a whole number.
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
            raise ConfigError(f"criterion {name!r}: examples must be a list of mappings, got {type(examples).__name__}")
        fields = {
            "name": name,
            "description": description,
            "weight": weight,
            "grades": grades or {},
            "examples": [item.model_dump() if isinstance(item, GradedAnswer) else item for item in examples],
        }
        try:
            super().__init__(**without_surrogates(fields))
        except ValidationError as error:
            raise config_error_of(f"criterion {name!r}", error) from None
        texts = {"name": self.name, "description": self.description}
        texts |= {f"description of grade {grade}": text for grade, text in self.grades.items()}
        blank = [what for what, text in texts.items() if not text.strip()]
        if blank:
            raise ConfigError(f"criterion {name!r}: the {blank[0]} is blank; describe what the judge is to grade")
        if not isfinite(self.weight) or self.weight < 0:
            raise ConfigError(f"criterion {name!r}: weight must be a number of at least 0, got {weight!r}")


def criterion_key(name: str) -> str:
    """Return a criterion's name in lower case and without extra white space, to find it in a judge's reply.

    Judges sometimes write the name with other letter case or white space.
    """
    return " ".join(name.split()).casefold()


def criterion_inputs(criterion: Criterion, scale: Scale, *, with_examples: bool) -> dict[str, Any]:
    """Return a criterion as the mapping that is sent to the judge, with the keys below.

    `criterion` is the name, and `description` the description. `grades` maps each grade, as text and in ascending
    order, to its description. The lowest and the highest grade are always listed, with "" if they have no description.
    `examples` lists the graded answers, if `with_examples` is True and the criterion has any.
    """
    grades = dict.fromkeys(scale, "") | criterion.grades
    inputs: dict[str, Any] = {"criterion": criterion.name, "description": criterion.description}
    inputs["grades"] = {str(grade): grades[grade] for grade in sorted(grades)}
    if with_examples and criterion.examples:
        examples = sorted(criterion.examples, key=lambda example: example.grade)
        inputs["examples"] = [example.model_dump() for example in examples]
    return inputs


def default_criteria(scale: Scale = DEFAULT_SCALE) -> dict[str, tuple[Criterion, ...]]:
    """Return the packaged criteria (correctness, completeness, readability) by language.

    The criteria are written for the scale from 0 to 3, with one example for each grade. On another scale each grade
    keeps its relative position, and grades whose new position is not a whole number are dropped. On 0 to 6 the grades
    0, 2, 4 and 6 are described; on 1 to 5 only the grades 1 and 5.

    Args:
        scale: the lowest and the highest grade.
    """
    return {language: on_scale(criteria, scale) for language, criteria in _packaged().items()}


def on_scale(criteria: Iterable[Criterion], scale: Scale) -> tuple[Criterion, ...]:
    """Return criteria that were written for the scale 0 to 3, with their grades converted to another scale.

    Each described grade keeps its relative position: 0, 1, 2, 3 become 0, 2, 4, 6 on the scale 0 to 6. A grade whose
    new position is not a whole number is dropped, with its description and examples.
    """
    (old_low, old_high), (low, high) = DEFAULT_SCALE, scale

    def rescale(grade: int) -> int | None:
        steps, rest = divmod((grade - old_low) * (high - low), old_high - old_low)
        return None if rest else low + steps

    return tuple(
        Criterion(
            criterion.name,
            criterion.description,
            criterion.weight,
            grades={new: text for grade, text in criterion.grades.items() if (new := rescale(grade)) is not None},
            examples=[
                example.model_copy(update={"grade": new})
                for example in criterion.examples
                if (new := rescale(example.grade)) is not None
            ],
        )
        for criterion in criteria
    )


@lru_cache
def _packaged() -> Mapping[str, Sequence[Criterion]]:
    folder = files("langchain_rageval.prompts").joinpath("rubrics")
    texts = {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return {language: [Criterion(**fields) for fields in load_yaml(text)] for language, text in texts.items()}
