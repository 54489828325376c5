"""Inputs of a step of the user: fields of the sample, or what a function of the sample returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError

Inputs = Callable[[Sample], Mapping[str, Any]]
"""Function from a sample to the inputs of a step."""


def inputs_function(step: str, reads: Iterable[str], inputs: Callable[[Sample], Any] | None) -> Callable[[Sample], Any]:
    """Return the function from a sample to the inputs of a step.

    Args:
        step: name of the step.
        reads: fields of the sample that are the inputs.
        inputs: function instead of `reads`.

    Raises:
        ConfigError: if both or none is given, or a field does not exist.
    """
    fields = sorted(reads) if isinstance(reads, AbstractSet) else [reads] if isinstance(reads, str) else list(reads)
    if bool(fields) == (inputs is not None):
        raise ConfigError(
            f'step {step} takes reads=("question", "answer"), the fields that it sends, or inputs=, a function of the '
            f"sample, got {'both' if fields else 'neither'}"
        )
    if inputs is not None:
        function = inputs.function if isinstance(inputs, NumberedInputs) else inputs
        if not callable(function):
            raise ConfigError(f"inputs of step {step} is a function of the sample, got {type(function).__name__}")
        return inputs
    if unknown := [field for field in fields if field not in Sample.model_fields]:
        raise ConfigError(f"step {step} reads {unknown}, which no sample has; use {', '.join(Sample.model_fields)}")
    return FieldsOf(tuple(fields))


class FieldsOf:
    """Function from a sample to some of its fields by name."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields

    def __call__(self, sample: Sample) -> Mapping[str, Any]:
        """Return the fields of a sample."""
        return {field: getattr(sample, field) for field in self.fields}


class NumberedInputs:
    """Function of the user from a sample to the inputs of a question to the judge, with a check of its result."""

    def __init__(self, step: str, function: Inputs) -> None:
        self.step = step
        self.function = function

    def __call__(self, sample: Sample) -> Mapping[str, Any]:
        """Return the inputs for a sample.

        Raises:
            ConfigError: if the function gives no mapping, or contexts that are not a list of texts.
        """
        inputs = self.function(sample)
        if not isinstance(inputs, Mapping):
            raise ConfigError(f"inputs of step {self.step} gave {type(inputs).__name__}: return a mapping of names")
        contexts = inputs.get("contexts")
        if contexts is not None and not (
            isinstance(contexts, list | tuple) and all(isinstance(text, str) for text in contexts)
        ):
            raise ConfigError(
                f"inputs of step {self.step} gave contexts that are not a list of texts: they are numbered for the "
                "judge; use another name for other data"
            )
        return inputs
