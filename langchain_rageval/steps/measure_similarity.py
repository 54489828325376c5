"""Measure how similar texts are: cosine of their embeddings, or a cross-encoder's score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, frexp, isfinite, sqrt
from typing import Any, Literal

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.run.embedding import Vector
from langchain_rageval.run.requests import Embed, Operation
from langchain_rageval.steps.rate_pairs import rate_pairs
from langchain_rageval.steps.stage import Stage, State

_LEAST, _MOST = 1e-200, 1e200  # squares of lengths in which nothing was lost
_ALMOST_EQUAL = 0.999

Scale = Literal["sigmoid"]
Pairs = Callable[[State], tuple[str, Sequence[str]]]
Similarity = Embeddings | BaseCrossEncoder


class MeasureSimilarity(Stage[State]):
    """Adds `similarities`, a list of float from 0 to 1: of one text with each of some others.

    Embeddings are asked by `embed_documents` for all texts alike, since both sides are of one kind; equal texts of a
    run are embedded once, in batches. Negative cosines count as 0.
    """

    model: Any
    scale: Scale | None
    pairs: Pairs

    @property
    def models(self) -> Sequence[Any]:
        """The embeddings or the cross-encoder."""
        return [self.model]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Which model it is, and how its numbers are scaled."""
        return {"step": self.get_name(), "model": model_identity(self.model), "scale": self.scale}

    def work(self, state: State) -> Operation[State]:
        """One request, none when there is nothing to compare."""
        one, others = self.pairs(state)
        one, others = without_surrogates(one), without_surrogates(list(others))
        similarities: list[float] = []
        if others and isinstance(self.model, BaseCrossEncoder):
            scores = yield from rate_pairs(self.model, one, others)
            similarities = [self._scaled(score) for score in scores]
        elif others:
            vectors = yield Embed(self.model, [one, *others])
            units = [_unit(vector, text) for vector, text in zip(vectors, [one, *others], strict=True)]
            similarities = [_cosine(units[0], unit) for unit in units[1:]]
        return state | {"similarities": similarities}

    def _scaled(self, score: float) -> float:
        if self.scale == "sigmoid":
            return 1 / (1 + exp(-score)) if score >= 0 else exp(score) / (1 + exp(score))
        if not 0 <= score <= 1:
            raise ConfigError(
                f"the cross-encoder's scores are no numbers from 0 to 1, got {score:.3f}; if they are logits, "
                'say scale="sigmoid" (answer_similarity takes it)'
            )
        return score


def measure_similarity(model: Similarity | None, pairs: Pairs, *, scale: Scale | None = None) -> Stage[State]:
    """The stage that compares texts.

    Args:
        model: embeddings or a cross-encoder.
        pairs: from the state to one text, and the others it is compared with.
        scale: "sigmoid" maps a cross-encoder's logits to 0..1; None takes its scores as they are.

    Raises:
        ConfigError: if `model` is neither, or `scale` is none that it can have.
    """
    if not isinstance(model, Embeddings | BaseCrossEncoder):
        raise ConfigError(f"similarity takes LangChain Embeddings or a BaseCrossEncoder, got {type(model).__name__}")
    if scale not in (None, "sigmoid"):
        raise ConfigError(f'scale is None or "sigmoid", got {scale!r}')
    if scale and isinstance(model, Embeddings):
        raise ConfigError("scale is for a cross-encoder's scores; cosines are from 0 to 1 as they are")
    return MeasureSimilarity(model=model, scale=scale, pairs=pairs, name="measure_similarity")


def _unit(vector: Vector, text: str) -> Vector:
    """The vector at length 1.

    Raises:
        ModelOutputError: if it has no direction.
    """
    with np.errstate(over="ignore"):
        square = vector @ vector
    if not _LEAST < square < _MOST:
        largest = float(np.abs(vector).max()) if vector.size else 0.0
        if not isfinite(largest) or largest == 0:
            what = "a zero vector" if largest == 0 else "numbers that are not finite"
            raise ModelOutputError(f"the embeddings gave {what} for {text[:100]!r}")
        vector = np.ldexp(vector, -frexp(largest)[1])  # by a power of two: nothing is rounded
        square = vector @ vector
    unit: Vector = vector / sqrt(square)
    return unit


def _cosine(one: Vector, other: Vector) -> float:
    """From 0 to 1; exactly 1.0 for equal vectors."""
    if one.shape != other.shape:
        raise ModelOutputError(f"the embeddings gave vectors of the lengths {one.size} and {other.size}")
    cosine = float(one @ other)
    if cosine > _ALMOST_EQUAL:
        return 1.0 if np.array_equal(one, other) else min(cosine, 1.0)
    return max(cosine, 0.0)
