"""Answer correctness: weighted mean of an F score of shared facts and of the similarity between answer and reference.

From 0 to 1, higher is better. Source: "answer correctness" of ragas (since 0.1), including the weights and the F score;
`formula="precision_recall"` is from RAGChecker (Ru et al. 2024, arXiv:2408.08067, section 3.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial, reduce
from math import inf
from operator import or_
from typing import Literal, get_args

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import (
    BLANK_REFERENCES,
    MAX_QUOTED,
    NEITHER_FACTS,
    Value,
    answer_and_references,
    fault_notes,
    similarities_from_findings,
    similarity_findings,
)
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.stage import Stage, State

FScoreFormula = Literal["counts", "precision_recall"]
Extra = Literal["count", "ignore"]


def answer_correctness(
    judge: JudgeLike | None,
    embeddings: Embeddings | BaseCrossEncoder | None = None,
    *,
    weights: tuple[float, float] = (0.75, 0.25),
    beta: float = 1.0,
    formula: FScoreFormula = "counts",
    extra: Extra = "count",
    name: str = "answer_correctness",
) -> Metric:
    """Score how far the answer agrees with the reference: the weighted mean of F (shared facts) and a similarity.

    F compares the statements of the two texts; the similarity compares the texts as a whole. With several references,
    the highest F and the highest similarity count, also if they are from different references. `formula="counts"`
    counts TP and FP among the answer's statements and FN among the reference's statements: F = (1+β²)TP / ((1+β²)TP +
    β²FN + FP). `"precision_recall"` computes P = TP / (TP + FP) over the answer's statements and R = 1 - FN / reference
    statements; F = (1+β²)PR / (β²P + R). The formulas differ if the answer splits one fact into many statements. For
    example, six statements express one of the reference's four facts, and a seventh is wrong (TP 6, FP 1, FN 3): F is
    0.75 by counts and 0.39 by precision and recall.

    An answer statement is "extra" if it says something that the reference neither states nor contradicts. With
    `extra="count"`, an extra statement that contains reference statements is one TP and one FP, as if it were split in
    two; an extra statement that contains none is one FP. "Munich was founded in 1158 by Henry the Lion" has F = 0.67
    against "Munich was founded in 1158". With `extra="ignore"`, an extra statement that contains reference statements
    is one TP (F = 1 in the example); an extra statement that contains none is ignored.

    Args:
        judge: called once for the answer and twice for each reference; may be None if the first weight is 0.
        embeddings: embeddings or a cross-encoder; may be None if the second weight is 0.
        weights: weight of F and weight of the similarity.
        beta: weight of recall relative to precision in F, above 0.
        formula: "counts" or "precision_recall".
        extra: "count" or "ignore": whether content of the answer that goes beyond the reference lowers the score.
        name: key of the score.

    Returns:
        A metric that reads `question`, `answer` and `references`. An answer without facts has F = 0, but a refusal in
        words still has a similarity: with a similarity of 0.6 and the default weights, the score is 0.15. Unscored if
        neither the answer nor a reference states facts. Findings are the statements of the answer, then the statements
        of the reference with the highest F ("TP", "FN"), then the similarity with each reference. An answer statement
        is "TP", "FP" (wrong) or "extra"; an "extra" cites the reference statements that it contains.

    Raises:
        ConfigError: if an option is out of range, or if the judge or the embeddings are missing and have a weight above
            0.
    """
    f_weight, similarity_weight = _validate_weights(weights)
    if not (isinstance(beta, int | float) and beta > 0 and 0 < beta * beta < inf):
        raise ConfigError(f"beta must be a number above 0, got {beta!r}")
    check_choice("formula", formula, get_args(FScoreFormula))
    check_choice("extra", extra, get_args(Extra))
    stages: list[Stage[State]] = []
    if f_weight:
        if judge is None:
            raise ConfigError("answer_correctness needs a judge for the facts; pass one or set weights=(0, 1)")
        stages += [extract_statements(judge, of="both"), classify_statements(judge)]
    if similarity_weight:
        if embeddings is None:
            raise ConfigError("answer_correctness needs embeddings for the similarity; pass them or set weights=(1, 0)")
        stages.append(measure_similarity(embeddings, answer_and_references))
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer", "references"},
        steps=reduce(or_, stages),
        reduce=partial(
            weighted_correctness, weights=(f_weight, similarity_weight), beta=beta, formula=formula, extra=extra
        ),
        options={"weights": [f_weight, similarity_weight], "beta": beta, "formula": formula, "extra": extra},
        state_from_findings=partial(_state_from_findings, weights=(f_weight, similarity_weight)),
    )


def f_score(
    findings: Sequence[Finding], beta: float, formula: FScoreFormula, extra: Extra = "count"
) -> tuple[float, bool]:
    """Return the F score of the findings of one reference, from 0 to 1, and whether the reference states facts.

    TP are the answer statements with the verdict "TP", FP those with "FP". An "extra" answer statement says something
    that the reference neither states nor contradicts. It counts as TP if it cites reference statements (contains them);
    in addition it counts as FP if `extra` is "count", but not if it is "ignore". The reference statements are covered
    ("TP") or missed ("FN"). F is 0.0 without TP.

    Args:
        findings: the findings; the verdicts of both sides.
        beta: weight of recall relative to precision.
        formula: "counts", (1+β²)TP / ((1+β²)TP + β²FN + FP), or "precision_recall", (1+β²)PR / (β²P + R).
        extra: "count" or "ignore".
    """
    counts = Counter((finding.kind, finding.verdict) for finding in findings)
    tp = counts["statement", "TP"] + sum(finding.verdict == "extra" and bool(finding.cites) for finding in findings)
    fp = counts["statement", "FP"] + (counts["statement", "extra"] if extra == "count" else 0)
    covered, fn = counts["reference_statement", "TP"], counts["reference_statement", "FN"]
    weight, has_facts = beta**2, covered + fn > 0
    if not tp:
        return 0.0, has_facts
    if formula == "counts":
        hits = (1 + weight) * tp
        return hits / (hits + weight * fn + fp), has_facts
    precision, recall = tp / (tp + fp), covered / max(1, covered + fn)
    return (1 + weight) * precision * recall / (weight * precision + recall), has_facts


def weighted_correctness(
    state: State, *, weights: tuple[float, float], beta: float, formula: FScoreFormula, extra: Extra = "count"
) -> Value:
    """Return the weighted mean of the highest F score and the highest similarity that the answer has with a reference.

    A part of weight 0 is skipped. Unscored if all references are blank, or if F has a weight and neither the answer nor
    a reference states facts.
    """
    sample: Sample = state["sample"]
    if not any(reference.strip() for reference in sample.references):
        return Value.without(BLANK_REFERENCES)
    parts: list[tuple[float, float]] = []
    reasons: list[Note] = []
    findings: list[Finding] = []
    if weights[0]:
        if not state["answer_statements"] and not state["reference_statements"]:
            return Value.without(NEITHER_FACTS)
        score = partial(f_score, beta=beta, formula=formula, extra=extra)
        best = max(state["classifications"], key=score)  # of references with equal scores, one that states facts
        parts.append((weights[0], score(best)[0]))
        reasons += _reasons(best)
        findings += best
    if weights[1]:
        best_similarity = max(state["similarities"], default=0.0)
        parts.append((weights[1], best_similarity))
        reasons.append(Note("similarity", value=best_similarity))
        findings += similarity_findings(sample, state["similarities"])
    number = sum(weight * part for weight, part in parts) / sum(weights)
    reason = explain(sample.language_text, *reasons)
    return Value(number, f"{reason[:1].upper()}{reason[1:]}", findings)


def _state_from_findings(sample: Sample, score: Score, *, weights: tuple[float, float]) -> State | None:
    """Return the state from the findings of a score, or None if they do not suffice.

    Findings hold the statements of the best reference only, so they do not suffice for several references.
    """
    facts = [finding for finding in score.findings if finding.kind != "criterion"]
    statements = [finding.text for finding in facts if finding.kind == "statement"]
    references = [finding.text for finding in facts if finding.kind == "reference_statement"]
    similarities = similarities_from_findings(sample, score.findings)
    several = sum(bool(reference.strip()) for reference in sample.references) > 1
    known = all(
        f.verdict in ("TP", "FP", "extra", "FN") for f in facts if f.kind in ("statement", "reference_statement")
    )
    if weights[0] and (several or not known or not (facts or score.unscored)):
        return None
    factless = bool(weights[0]) and score.unscored == NEITHER_FACTS  # the similarities are then not stored
    if weights[1] and similarities is None and not factless:
        return None
    return {
        "sample": sample,
        "answer_statements": statements,
        "reference_statements": references,
        "classifications": [facts],
        "similarities": similarities,
    }


def _reasons(findings: Sequence[Finding]) -> list[Note]:
    answers = [finding.verdict for finding in findings if finding.kind == "statement"]
    references = [finding.verdict for finding in findings if finding.kind == "reference_statement"]
    right, wrong, more = map(answers.count, ("TP", "FP", "extra"))
    counted = [
        Note("right-statements", right=right, count=len(answers)),
        *[Note("wrong-statements", count=wrong)] * bool(wrong),
        *[Note("extra-statements", count=more)] * bool(more),
        Note("missed-statements", missed=references.count("FN"), count=len(references)),
    ]
    faults = [finding for finding in findings if finding.verdict in ("FP", "extra", "FN")]
    return [Note("listed", parts=counted), *fault_notes(faults[:MAX_QUOTED])]


def _validate_weights(weights: tuple[float, float]) -> tuple[float, float]:
    items = list(weights) if isinstance(weights, Sequence) else []
    numbers: list[float] = [w for w in items if isinstance(w, int | float) and w >= 0]
    if not (len(items) == len(numbers) == 2 and 0 < sum(numbers) < inf):
        raise ConfigError(
            f"weights must be two numbers of at least 0, for F and for the similarity, not both 0; got {weights!r}"
        )
    return numbers[0], numbers[1]
