"""Verify statements by natural language inference: a cross-encoder says whether a sentence or a chunk entails them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from numpy.typing import NDArray

from langchain_rageval.data.schema import Finding, FindingKind, Sample, without_surrogates
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation, Rate, Shared
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.step import slices

Label = Literal["entailment", "neutral", "contradiction"]
Scale = Literal["sigmoid", "softmax"]
Scores = NDArray[np.float64]

_STATEMENTS_AT_ONCE = 10
_FLAT = 500.0  # from here on the logistic curve is 0 or 1, and its powers soon overflow


@dataclass(frozen=True)
class NliVerifier:
    """A cross-encoder for natural language inference, and how its scores are read.

    It scores pairs (premise, hypothesis): a context sentence, or a whole chunk, and a statement. A statement is
    supported when some premise entails it by at least the threshold; else contradicted when some premise contradicts it
    by as much, which only a model with three scores a pair can say; else absent. Models of this kind read a few hundred
    tokens: of a longer chunk the sentences decide. They were trained on pairs about one thing, so that the
    contradictions they see between unrelated texts deserve a high threshold.

    langchain-community's `HuggingFaceCrossEncoder` passes on the second score of a pair only: use it with models whose
    second label is entailment.

    Args:
        cross_encoder: gives one score a pair, how far the premise entails the hypothesis; or, for `labels`, three.
        labels: order of three scores, such as ("contradiction", "entailment", "neutral").
        threshold: above 0 and at most 1.
        scale: "sigmoid" for one logit a pair, "softmax" for three; None when the scores are from 0 to 1.

    Raises:
        ConfigError: if an option is out of range.
    """

    cross_encoder: BaseCrossEncoder
    labels: Sequence[Label] | None = None
    threshold: float = 0.5
    scale: Scale | None = None

    def __post_init__(self) -> None:
        """Refuse options that cannot be meant."""
        if not isinstance(self.cross_encoder, BaseCrossEncoder):
            took = "a verifier is a BaseCrossEncoder, or an NliVerifier of one"
            raise ConfigError(f"{took}; got {type(self.cross_encoder).__name__}")
        if self.labels is not None:
            if sorted(self.labels) != sorted(get_args(Label)):
                raise ConfigError(
                    f"labels takes {', '.join(get_args(Label))} in the model's order, got {self.labels!r}"
                )
            object.__setattr__(self, "labels", tuple(self.labels))
        if not (isinstance(self.threshold, int | float) and 0 < self.threshold <= 1):
            raise ConfigError(f"threshold takes a number above 0, at most 1, got {self.threshold!r}")
        fitting = (None, "softmax") if self.labels else (None, "sigmoid")
        if self.scale not in fitting:
            scores = "three scores a pair" if self.labels else "one score a pair; three need labels=..."
            raise ConfigError(f"scale is None or {fitting[1]!r} for {scores}, got {self.scale!r}")

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Which model it is, and how its scores are read."""
        told = {"labels": self.labels, "threshold": self.threshold, "scale": self.scale}
        return {"model": model_identity(self.cross_encoder), **told}

    def read(self, given: Any, pairs: int) -> tuple[Scores, Scores]:
        """Probability of entailment and of contradiction, of each pair.

        Raises:
            ConfigError: if the scores are of another shape or range than the options say.
            ModelOutputError: if they are no finite numbers, or of other pairs.
        """
        scores = _numbers(given)
        shape = (pairs, 3) if self.labels else (pairs,)
        if scores.shape[:1] == (pairs,) and scores.shape != shape:
            if scores.shape == (pairs, 3):
                hint = 'say NliVerifier(cross_encoder, labels=("contradiction", "entailment", "neutral")) in its order'
                raise ConfigError(f"the cross-encoder gave three scores a pair: {hint}")
            expected = "three scores a pair, as labels say" if self.labels else "one score a pair"
            raise ConfigError(f"expected {expected}, the cross-encoder gave the shape {scores.shape}")
        if scores.shape != shape:
            raise ModelOutputError(f"the cross-encoder gave scores of the shape {scores.shape} for {pairs} pairs")
        scores = self._scaled(scores)
        if self.labels is None:
            return scores, np.zeros(pairs)
        return scores[:, self.labels.index("entailment")], scores[:, self.labels.index("contradiction")]

    def _scaled(self, scores: Scores) -> Scores:
        match self.scale:
            case "sigmoid":
                return 1 / (1 + np.exp(-np.clip(scores, -_FLAT, _FLAT)))
            case "softmax":
                powers = np.exp(scores - scores.max(axis=1, keepdims=True))
                return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        outside = scores[(scores < 0) | (scores > 1)]
        if outside.size:
            scale = "softmax" if self.labels else "sigmoid"
            raise ConfigError(
                f"the cross-encoder's scores are no numbers from 0 to 1, got {outside[0]:.3f}; if they are logits, say "
                f'NliVerifier(cross_encoder, ..., scale="{scale}")'
            )
        return scores


class Premise(NamedTuple):
    """A sentence, or a whole chunk, and the numbers that cite it."""

    text: str
    cites: Sequence[str]


class VerifyByNli(Stage[State]):
    """Adds `<of>_verdicts`, a list of Finding: one for each statement in order, as VerifyStatements does.

    Each statement is held against every sentence and every chunk of several. It cites the sentences that decide it; of
    a chunk that decides it only as a whole, all of them.
    """

    of: Side
    verifier: Any

    @property
    def models(self) -> Sequence[Any]:
        """The cross-encoder."""
        return [self.verifier.cross_encoder]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Which model it is, and how its scores are read."""
        return {"step": self.get_name(), **self.verifier.instrument}

    def with_fresh_capabilities(self) -> Self:
        """The same stage, made for the one number from 0 to 1 that a rehearsal has for each pair."""
        return self.model_copy(update={"verifier": NliVerifier(self.verifier.cross_encoder)})

    def work(self, state: State) -> Operation[State]:
        """One request for every ten statements; none when there is nothing to compare with."""
        sample: Sample = state["sample"]
        numbered = dict(enumerate(without_surrogates(list(state[f"{self.of}_statements"])), 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        parts = yield Gather([self._verified(part, contexts, sample) for part in slices(numbered, _STATEMENTS_AT_ONCE)])
        return state | {f"{self.of}_verdicts": [finding for part in parts for finding in part]}

    def _verified(
        self, numbered: Mapping[int, str], contexts: NumberedContexts, sample: Sample
    ) -> Operation[list[Finding]]:
        premises = list(_premises(contexts))
        pairs = tuple((premise.text, text) for text in numbered.values() for premise in premises)
        entailed = contradicted = np.zeros(0)
        if pairs:
            encoder = self.verifier.cross_encoder
            given = yield Shared(("nli", id(encoder), pairs), _rated(encoder, pairs))
            entailed, contradicted = self.verifier.read(given, len(pairs))
        shape = (len(numbered), len(premises))
        decided = zip(numbered.items(), entailed.reshape(shape), contradicted.reshape(shape), strict=True)
        return [self._finding(number, text, premises, *scores) for (number, text), *scores in decided]

    def _finding(
        self, number: int, text: str, premises: Sequence[Premise], entailed: Scores, contradicted: Scores
    ) -> Finding:
        kind: FindingKind = "statement" if self.of == "answer" else "reference_statement"
        found = Finding(kind=kind, number=number, text=text, verdict="absent", reason=_told("entailment", entailed))
        for verdict, label, scores in (
            ("supported", "entailment", entailed),
            ("contradicted", "contradiction", contradicted),
        ):
            cites = _deciding(premises, scores >= self.verifier.threshold)
            if cites:
                return found.model_copy(update={"verdict": verdict, "reason": _told(label, scores), "cites": cites})
        return found


def verify_by_nli(verifier: BaseCrossEncoder | NliVerifier, *, of: Side) -> VerifyByNli:
    """The stage that holds the statements of `extract_statements` against the contexts without a judge.

    Args:
        verifier: a cross-encoder that gives one number from 0 to 1 a pair; for another, an `NliVerifier` of it.
        of: the "answer" or the "reference".

    Raises:
        ConfigError: if the verifier is none.
    """
    if not isinstance(verifier, NliVerifier):
        verifier = NliVerifier(verifier)
    return VerifyByNli(of=of, verifier=verifier, name="verify_by_nli")


def _premises(contexts: NumberedContexts) -> Iterator[Premise]:
    """The sentences of each chunk, then the chunk as a whole when it has several."""
    for _, lines in groupby((line for line in contexts.lines if line.sentence), key=lambda line: line.chunk):
        sentences = [Premise(line.text, [line.number]) for line in lines]
        yield from sentences
        if len(sentences) > 1:
            yield Premise(
                " ".join(sentence.text for sentence in sentences), [n for sentence in sentences for n in sentence.cites]
            )


def _deciding(premises: Sequence[Premise], holds: Sequence[bool] | NDArray[np.bool_]) -> list[str]:
    """The numbers of the premises that hold; of a whole chunk only when no sentence of it does."""
    cites: list[str] = []
    for premise, held in zip(premises, holds, strict=True):
        if held and not set(premise.cites) & set(cites):
            cites += premise.cites
    return cites


def _told(label: str, scores: Scores) -> str:
    return f"{label} {scores.max():.2f}" if scores.size else ""


def _rated(cross_encoder: BaseCrossEncoder, pairs: Sequence[tuple[str, str]]) -> Operation[Any]:
    return (yield Rate(cross_encoder, pairs))


def _numbers(given: Any) -> Scores:
    try:
        scores = np.asarray([*given], dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelOutputError(f"the cross-encoder gave no numbers, but {str(given)[:100]}") from None
    if not np.isfinite(scores).all():
        raise ModelOutputError("the cross-encoder gave scores that are not finite")
    return scores
