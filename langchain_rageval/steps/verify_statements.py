"""Verification of statements against the contexts, by a judge (all chunks, or one at a time) or a cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from numpy.typing import NDArray

from langchain_rageval._internal.description import describe
from langchain_rageval.data.schema import Finding, FindingKind, Sample, without_surrogates
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Verdicts
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.item_step import Item, Items, ItemStep, numbered_items, request_items, slices
from langchain_rageval.steps.measure_similarity import rate_pairs
from langchain_rageval.steps.stage import Stage, State

_LABELS = ("supported", "contradicted", "absent")


class VerifyStatements(ItemStep):
    """Step that adds the list `<of>_verdicts`: a Finding per statement in order, then the agreement rates of the votes.

    If windows (parts of the contexts) give different verdicts, supported outweighs contradicted, and contradicted
    outweighs absent; the evidence is combined. A statement that only two windows together support counts as absent.
    Over votes the majority decides; without a majority the verdict is "absent".

    If a verdict "supported" or "contradicted" cites no existing sentence number, the judge is asked again, once. A
    valid second verdict replaces the first, even if it cites none either.
    """

    items_name = "statements"
    number_field = "statement"
    is_proved = True
    joins_reasons = True

    of: Side

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the contexts support each statement, and add the findings to the state.

        Makes one request per slice (at most `max_statements` statements), window (part of the contexts that fits one
        request) and vote (one repetition by one judge); none if there are no statements or sentences.
        """
        sample: Sample = state["sample"]
        kind: FindingKind = "statement" if self.of == "answer" else "reference_statement"
        statements = numbered_items(state[f"{self.of}_statements"], kind, _LABELS)
        findings = yield from self.rule_on(sample, statements, NumberedContexts.of(sample.contexts or []))
        return state | {f"{self.of}_verdicts": findings}

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question, "statements": request_items("statement", items)}

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        numbers = tuple(range(1, len(items) + 1))
        return AnswerLimits(("verdicts", "statement", numbers), values=(("evidence", tuple(shown.sentences)),))

    def _cites(self, verdict: Any, item: Item, shown: Any) -> Sequence[str]:
        return shown.resolve(verdict.evidence)  # type: ignore[no-any-return]


class VerifyByChunk(VerifyStatements):
    """Step that adds the list `<of>_verdicts`, and verifies the statements against each chunk separately.

    The list holds a Finding per statement in order, then the agreement rates of the votes. If chunks give different
    verdicts, supported outweighs contradicted, and contradicted outweighs absent. Citations of all chunks with the
    final verdict are kept. A verdict without citations cites all sentences of its chunk, because the judge saw nothing
    else. The lowest agreement rate over the chunks is kept.
    """

    def rule_on(self, sample: Sample, items: Items, shown: Any = None) -> Operation[list[Finding]]:
        """Ask the judge to verify the statements against one chunk at a time, and merge the verdicts of the chunks.

        Each request shows one chunk of the contexts `shown`. The merged verdict of a statement is "supported" if any
        chunk gives it, else "contradicted" if any chunk gives it, else "absent".
        """
        chunks = [shown.select({line.chunk}) for line in shown.lines if line.sentence == 1] or [shown]
        rule_on = super().rule_on
        findings: list[list[Finding]] = yield Gather([rule_on(sample, items, chunk) for chunk in chunks])
        return list(_merge_chunks(chunks, findings))

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its verdicts: judge, prompts, schema and `"by_chunk": True`."""
        return {**super().instrument, "by_chunk": True}


def _merge_chunks(chunks: Sequence[NumberedContexts], findings: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Merge the findings of all chunks into one for each statement, then one agreement rate for each statement."""
    for by_chunk in zip(*findings, strict=True):
        if by_chunk[0].kind == "agreement":
            chunk, lowest = min(zip(chunks, by_chunk, strict=True), key=lambda pair: float(pair[1].verdict))
            yield lowest.model_copy(update={"reason": f"[{chunk.lines[0].chunk}] {lowest.reason}"})
            continue
        verdict = min((finding.verdict for finding in by_chunk), key=_LABELS.index)
        deciding = [(chunk, f) for chunk, f in zip(chunks, by_chunk, strict=True) if f.verdict == verdict]
        cites = [n for chunk, f in deciding for n in f.cites or chunk.sentences] if verdict != "absent" else []
        reasons = dict.fromkeys(finding.reason for _, finding in deciding)
        yield deciding[0][1].model_copy(update={"verdict": verdict, "reason": " ".join(reasons), "cites": cites})


NliLabel = Literal["entailment", "neutral", "contradiction"]
NliScale = Literal["sigmoid", "softmax"]
_Scores = NDArray[np.float64]

_STATEMENTS_PER_REQUEST = 10
_LARGEST_LOGIT = 500.0  # beyond it the logistic function is 0 or 1, and exp() would soon overflow


@dataclass(frozen=True)
class NliVerifier:
    """A cross-encoder for natural language inference, and the interpretation of its scores.

    The model scores pairs of a premise (a context sentence or a whole chunk) and a hypothesis (a statement). A
    statement is supported if the probability that some premise entails it reaches the threshold. Otherwise it is
    contradicted if the probability of contradiction reaches the threshold, which needs a model with three scores per
    pair. Otherwise it is absent. These models read a few hundred tokens, so in longer chunks the single sentences
    decide. They are trained on pairs about one topic, and may see contradictions between unrelated texts; a high
    threshold filters these out.

    `HuggingFaceCrossEncoder` of langchain-community returns only the second score of a pair: use it with models whose
    second label is entailment.

    Args:
        cross_encoder: model that returns one score per pair, for entailment, or three scores if `labels` are given.
        labels: order of the three scores, such as ("contradiction", "entailment", "neutral").
        threshold: smallest probability that decides, above 0 and at most 1.
        scale: "sigmoid" for one logit per pair, "softmax" for three; None if the scores are from 0 to 1.

    Raises:
        ConfigError: if an option is out of range.
    """

    cross_encoder: BaseCrossEncoder
    labels: Sequence[NliLabel] | None = None
    threshold: float = 0.5
    scale: NliScale | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError if an option of the verifier is out of range."""
        if not isinstance(self.cross_encoder, BaseCrossEncoder):
            expected = "a verifier is a BaseCrossEncoder, or an NliVerifier of one"
            raise ConfigError(f"{expected}; got {type(self.cross_encoder).__name__}")
        if self.labels is not None:
            if sorted(self.labels) != sorted(get_args(NliLabel)):
                raise ConfigError(
                    f"labels must be {', '.join(get_args(NliLabel))} in the model's order, got {self.labels!r}"
                )
            object.__setattr__(self, "labels", tuple(self.labels))
        if not (isinstance(self.threshold, int | float) and 0 < self.threshold <= 1):
            raise ConfigError(f"threshold must be a number above 0 and at most 1, got {self.threshold!r}")
        choices = (None, "softmax") if self.labels else (None, "sigmoid")
        if self.scale not in choices:
            scores = "three scores a pair" if self.labels else "one score a pair; three need labels=..."
            raise ConfigError(f"scale is None or {choices[1]!r} for {scores}, got {self.scale!r}")

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this verifier that affects its verdicts: the model and the interpretation of its scores."""
        options = {"labels": self.labels, "threshold": self.threshold, "scale": self.scale}
        return {"model": describe(self.cross_encoder), **options}

    def _probabilities(self, scores: _Scores, pairs: int) -> tuple[_Scores, _Scores]:
        """Return the probabilities of entailment and of contradiction, one of each per pair.

        Raises:
            ConfigError: if the shape or range of the scores does not match the options.
            ModelOutputError: if the number of scores differs from `pairs`.
        """
        shape = (pairs, 3) if self.labels else (pairs,)
        if scores.shape[:1] == (pairs,) and scores.shape != shape:
            if scores.shape == (pairs, 3):
                hint = 'say NliVerifier(cross_encoder, labels=("contradiction", "entailment", "neutral")) in its order'
                raise ConfigError(f"the cross-encoder returned three scores a pair: {hint}")
            expected = "three scores a pair, one for each of labels" if self.labels else "one score a pair"
            raise ConfigError(f"expected {expected}, but the cross-encoder returned scores of shape {scores.shape}")
        if scores.shape != shape:
            raise ModelOutputError(f"the cross-encoder returned scores of the shape {scores.shape} for {pairs} pairs")
        scores = self._scaled(scores)
        if self.labels is None:
            return scores, np.zeros(pairs)
        return scores[:, self.labels.index("entailment")], scores[:, self.labels.index("contradiction")]

    def _scaled(self, scores: _Scores) -> _Scores:
        match self.scale:
            case "sigmoid":
                return 1 / (1 + np.exp(-np.clip(scores, -_LARGEST_LOGIT, _LARGEST_LOGIT)))
            case "softmax":
                powers = np.exp(scores - scores.max(axis=1, keepdims=True))
                return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        outside = scores[(scores < 0) | (scores > 1)]
        if outside.size:
            scale = "softmax" if self.labels else "sigmoid"
            raise ConfigError(
                f"the cross-encoder's scores are not from 0 to 1, got {outside[0]:.3f}; if they are logits, say "
                f'NliVerifier(cross_encoder, ..., scale="{scale}")'
            )
        return scores


class _Premise(NamedTuple):
    """Text of a sentence or of a whole chunk, with the numbers of its sentences."""

    text: str
    cites: Sequence[str]


class VerifyByNli(Stage[State]):
    """Stage that adds the list `<of>_verdicts`: a Finding for each statement in order, by a cross-encoder.

    The verdict is "supported" if the probability that a sentence or a whole chunk of the contexts entails the statement
    reaches the verifier's `threshold`. Otherwise it is "contradicted" if the probability of a contradiction reaches the
    threshold, else "absent". The finding cites each sentence whose probability alone decides. If only a whole chunk
    decides, the finding cites all sentences of the chunk.

    Attributes:
        of: source of the statements, "answer" or "reference".
        verifier: the `NliVerifier`: a cross-encoder with the threshold and the meaning of its scores.
    """

    of: Side
    verifier: Any

    @property
    def models(self) -> Sequence[Any]:
        """Cross-encoder of the verifier."""
        return [self.verifier.cross_encoder]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its verdicts: its name and the verifier."""
        return {"step": self.get_name(), **self.verifier.instrument}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy for a dry run (count of the calls without a model): its verifier has the default options.

        A dry run invents one score from 0 to 1 for each pair of texts. The options `labels` and `scale`, which a model
        with three scores or logits needs, do not fit such scores.
        """
        return self.model_copy(update={"verifier": NliVerifier(self.verifier.cross_encoder)})

    def judged_by(self, judge: Judge) -> Stage[State]:
        """Return the step in which a judge, in place of the cross-encoder, verifies the statements."""
        return verify_statements(judge, of=self.of)

    def work(self, state: State) -> Operation[State]:
        """Add the cross-encoder's verdicts to the state; one request per ten statements.

        Makes no request if there are no statements or sentences.
        """
        sample: Sample = state["sample"]
        statements = dict(enumerate(without_surrogates(list(state[f"{self.of}_statements"])), 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        parts = yield Gather([self._verify(part, contexts) for part in slices(statements, _STATEMENTS_PER_REQUEST)])
        return state | {f"{self.of}_verdicts": [finding for part in parts for finding in part]}

    def _verify(self, statements: Mapping[int, str], contexts: NumberedContexts) -> Operation[list[Finding]]:
        premises = list(_premises(contexts))
        pairs = tuple((premise.text, text) for text in statements.values() for premise in premises)
        entailed = contradicted = np.zeros(0)
        if pairs:
            scores = yield from rate_pairs(self.verifier.cross_encoder, pairs)
            entailed, contradicted = self.verifier._probabilities(scores, len(pairs))
        shape = (len(statements), len(premises))
        rows = zip(statements.items(), entailed.reshape(shape), contradicted.reshape(shape), strict=True)
        return [self._finding(number, text, premises, *scores) for (number, text), *scores in rows]

    def _finding(
        self, number: int, text: str, premises: Sequence[_Premise], entailed: _Scores, contradicted: _Scores
    ) -> Finding:
        kind: FindingKind = "statement" if self.of == "answer" else "reference_statement"
        finding = Finding(kind=kind, number=number, text=text, verdict="absent", reason=_reason("entailment", entailed))
        for verdict, label, scores in (
            ("supported", "entailment", entailed),
            ("contradicted", "contradiction", contradicted),
        ):
            cites: list[str] = []
            for premise, decisive in zip(premises, scores >= self.verifier.threshold, strict=True):
                # a chunk counts as a whole only if none of its sentences decides alone
                if decisive and not set(premise.cites) & set(cites):
                    cites += premise.cites
            if cites:
                return finding.model_copy(update={"verdict": verdict, "reason": _reason(label, scores), "cites": cites})
        return finding


def _premises(contexts: NumberedContexts) -> Iterator[_Premise]:
    """Yield the sentences of each chunk, then the whole chunk if it has several sentences."""
    for _, lines in groupby((line for line in contexts.lines if line.sentence), key=lambda line: line.chunk):
        sentences = [_Premise(line.text, [line.number]) for line in lines]
        yield from sentences
        if len(sentences) > 1:
            text = " ".join(sentence.text for sentence in sentences)
            yield _Premise(text, [number for sentence in sentences for number in sentence.cites])


def _reason(label: str, scores: _Scores) -> str:
    return f"{label} {scores.max():.2f}" if scores.size else ""


Verifier = BaseCrossEncoder | NliVerifier


def verify_statements(
    judge: JudgeLike, *, of: Side, verifier: Verifier | None = None, by_chunk: bool = False
) -> Stage[State]:
    """Return the stage that verifies the statements of `extract_statements` against the contexts.

    Args:
        judge: judge to ask if there is no verifier.
        of: source of the statements, "answer" or "reference".
        verifier: cross-encoder to use instead of the judge. It must return one number from 0 to 1 for each pair of a
            context sentence, or a whole chunk, and a statement; wrap any other cross-encoder in an `NliVerifier`. None
            uses the judge.
        by_chunk: show the judge one chunk at a time.

    Raises:
        ConfigError: if `verifier` is neither a cross-encoder nor an `NliVerifier`.
    """
    if verifier is not None:
        verifier = verifier if isinstance(verifier, NliVerifier) else NliVerifier(verifier)
        return VerifyByNli(of=of, verifier=verifier, name="verify_by_nli")
    kind = VerifyByChunk if by_chunk else VerifyStatements
    return kind(prompt="verify_statements", judge=judge, answer=Verdicts, of=of)
