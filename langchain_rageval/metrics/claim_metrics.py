"""Claim metrics: twelve numbers of one claim graph that show where right and wrong answer statements come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any, Literal, get_args

from langchain_rageval.data.notes import explain
from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.claim_graph import FORMULAS, Claim, ClaimFormula, ClaimGraph, FindingSection
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.supported import Value
from langchain_rageval.prompts.answer_schemas import VerdictLabel
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.extract_statements import Side, extract_statements
from langchain_rageval.steps.stage import SharedSteps, Stage, State
from langchain_rageval.steps.verify_statements import Verifier, verify_statements

Attribution = Literal["cited", "per_chunk"]


_CLASSIFIED: FindingSection = "classifications"
_VERIFIED: Mapping[FindingKind, FindingSection] = {
    "statement": "answer_verdicts",
    "reference_statement": "reference_verdicts",
}
_SIDES: Mapping[FindingSection, Sequence[Side]] = {
    "answer_verdicts": ["answer"],
    "reference_verdicts": ["reference"],
    "classifications": ["answer", "reference"],
}


def claim_part(
    formula: str, judge: JudgeLike, *, attribution: Attribution, verifier: Verifier | None, name: str
) -> Metric:
    """Return the metric of one formula, with only the steps that the formula needs.

    Metrics of several formulas with the same judge, verifier and attribution share their steps.

    Args:
        formula: a key of `FORMULAS`.
        judge: runs the steps.
        attribution: how the chunks that support a statement are determined.
        verifier: verifies statements in place of the judge, if not None.
        name: key of the score.

    Raises:
        ConfigError: if `attribution` or `verifier` is invalid.
    """
    check_choice("attribution", attribution, get_args(Attribution))
    chosen = FORMULAS[formula]
    return Metric(
        name,
        aspect="grounding",
        reads={"question", "answer", "references", "contexts"},
        steps=reduce(or_, _stages(chosen, judge, verifier, attribution == "per_chunk")),
        reduce=partial(claim_value, formula=formula),
        direction=chosen.direction,
        options={"formula": formula, "attribution": attribution},
        state_from_findings=partial(_state_from_findings, formula=formula),
    )


def claim_value(state: State, *, formula: str) -> Value:
    """Return the value of a claim formula, such as "precision", with the findings from which it was computed.

    `formula` is a key of `FORMULAS`, the formulas of the twelve claim metrics. If the formula has no value, for example
    because the answer states no facts, the result has no number; `unscored` is then the cause.
    """
    chosen = FORMULAS[formula]
    sample: Sample = state["sample"]
    verdicts = [finding for name in chosen.reads if name != _CLASSIFIED for finding in state.get(name, [])]
    marks = list(_merge_classifications(state.get(_CLASSIFIED, []) if _CLASSIFIED in chosen.reads else []))
    answer, reference = (_claims(kind, verdicts, marks) for kind in _VERIFIED)
    graph = ClaimGraph(answer, reference, len(sample.contexts or ()))
    value, findings = chosen.value(graph), [*verdicts, *marks]
    if isinstance(value, str):
        return Value.without(value, findings)
    return Value(value, explain(sample.language_text, *chosen.reasons(graph, formula)), findings)


def _state_from_findings(sample: Sample, score: Score, *, formula: str) -> State | None:
    """Return the state from the findings of a score, or None if they lack a section that the formula reads.

    Findings of answer_correctness hold only the best reference, so they suffice for a single reference only.
    """
    sections = _sections_of_findings(score.findings)
    several = sum(bool(reference.strip()) for reference in sample.references) > 1
    if sections is None or (several and score.aspect != "grounding"):
        return None
    kinds = {finding.kind for finding in sections.get("classifications", ())}
    # A section is also known if it is empty because the classification shows no statements on its side.
    known = {*sections, *(verified for kind, verified in _VERIFIED.items() if kinds and kind not in kinds)}
    neither_side_states_facts = not score.findings and score.unscored
    if not neither_side_states_facts and not known.issuperset(FORMULAS[formula].reads):
        return None
    return {**sections, "classifications": [sections.get("classifications", [])], "sample": sample}


def _stages(
    formula: ClaimFormula, judge: JudgeLike, verifier: Verifier | None, by_chunk: bool
) -> Iterator[Stage[State]]:
    """Yield the steps of a formula; each section is determined once per sample for all metrics of these arguments."""
    judge = Judge.of(judge)
    for section in formula.reads:
        sides = _SIDES[section]
        stages: list[Stage[State]] = [extract_statements(judge, of=side) for side in sides]
        if section == "classifications":
            stages.append(classify_statements(judge))
        else:
            stages.append(verify_statements(judge, of=sides[0], verifier=verifier, by_chunk=by_chunk))
        yield SharedSteps(stages, name=section, key=(id(judge), id(verifier), by_chunk))


def _claims(kind: FindingKind, verdicts: Iterable[Finding], marks: Iterable[Finding]) -> list[Claim]:
    """Return the claims of one side in order; verdicts and marks of one statement have the same number."""
    judged = {finding.number: finding for finding in verdicts if finding.kind == kind}
    marked = {finding.number: finding for finding in marks if finding.kind == kind}
    numbers = sorted(judged.keys() | marked.keys())
    return [claim for number in numbers for claim in _claims_of(judged.get(number), marked.get(number))]


def _claims_of(judged: Finding | None, marked: Finding | None) -> list[Claim]:
    """Return the claim of a statement; two of one that contains reference statements and says more."""
    contains = marked is not None and marked.verdict == "extra" and bool(marked.cites)
    marks = [True, False] if contains else [marked is not None and marked.verdict == "TP"]
    if judged is None:
        return [Claim(marked.text if marked else "", shared=shared) for shared in marks]
    cited = frozenset(int(number.partition(".")[0]) for number in judged.cites)
    return [Claim(judged.text, judged.verdict, cited, shared) for shared in marks]


def _merge_classifications(classifications: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Yield one classification from those of several references: a statement shared with any of them is shared.

    One that contains statements of any of them does so; one that contradicts any of them is otherwise wrong.
    """
    references = [f.text for findings in classifications for f in findings if f.kind == "reference_statement"]
    texts, all_findings = list(dict.fromkeys(references)), []
    for findings in classifications:
        places = {str(f.number): str(texts.index(f.text) + 1) for f in findings if f.kind == "reference_statement"}
        all_findings += [f.model_copy(update={"cites": [places[number] for number in f.cites]}) for f in findings]
    for kind, name in (("statement", "number"), ("reference_statement", "text")):
        marks: dict[Any, list[Finding]] = {}
        for finding in all_findings:
            if finding.kind == kind:
                marks.setdefault(getattr(finding, name), []).append(finding)
        for number, group in enumerate(marks.values(), 1):
            strongest = min(map(_rank, group))
            decisive = [finding for finding in group if _rank(finding) == strongest]
            reasons = dict.fromkeys(finding.reason for finding in decisive)
            yield decisive[0].model_copy(update={"number": number, "reason": " ".join(reasons)})
    yield from (finding for finding in all_findings if finding.kind == "agreement")


def _rank(finding: Finding) -> int:
    """Return a rank that is lower for a finding that decides over others of the same statement."""
    is_extra = finding.verdict == "extra"
    return ("TP", "containing", "FP", "FN", "extra").index(
        "containing" if is_extra and finding.cites else finding.verdict
    )


def _sections_of_findings(findings: Iterable[Finding]) -> dict[str, list[Finding]] | None:
    """Return findings by section, or None if some belong to none; an agreement belongs to the section before it."""
    sections: dict[str, list[Finding]] = {}
    section = None
    for finding in findings:
        if finding.kind != "agreement":
            section = _SECTIONS.get((finding.kind, finding.verdict))
        if section is None:
            return None
        sections.setdefault(section, []).append(finding)
    return sections


_SECTIONS: Mapping[tuple[str, str], FindingSection] = {
    (kind, label): section
    for kind, verified in _VERIFIED.items()
    for labels, section in ((get_args(VerdictLabel), verified), (("TP", "FP", "extra", "FN"), _CLASSIFIED))
    for label in labels
}


def claim_metrics(
    judge: JudgeLike, *, attribution: Attribution = "cited", verifier: Verifier | None = None, name: str = "claim"
) -> Suite:
    """Score which statements of the answer are right, and which chunks support them.

    - `claim_precision`, `claim_recall`, `claim_f1`: share of the answer's statements that are right, share of the
      reference's statements that the answer contains, and their harmonic mean.
    - `claim_context_recall`, `claim_context_precision`: share of the reference's statements that the contexts support,
      and share of the chunks that support a statement of the reference.
    - `claim_context_utilization`: of the reference's statements that the contexts support, the share that the answer
      contains.
    - `claim_noise_relevant`, `claim_noise_irrelevant`: share of the answer's statements that are wrong and supported by
      a chunk. A statement counts in the first metric if at least one of the chunks that support it also supports a
      statement of the reference, else in the second metric.
    - `claim_hallucination`, `claim_self_knowledge`: share of the answer's statements that no chunk supports and that
      are wrong (hallucination) or right (self-knowledge).
    - `claim_faithfulness`, `claim_contradiction`: share of the answer's statements that the contexts support
      (faithfulness) or contradict (contradiction).

    A statement that contains reference statements and says more counts twice: as a right and as a wrong statement.
    `claim_faithfulness` and `claim_contradiction` need no reference and count it once. Without such a statement, and if
    all metrics are scored, faithfulness + hallucination + self-knowledge = 1. In any case noise (both) + hallucination
    = 1 - precision. With several references, a statement is right if any of them states it, and their statements are
    united.

    Args:
        judge: called five times per sample: to extract the statements of the answer and of the reference, to verify the
            statements of each against the contexts, and to classify which statements answer and reference share. Steps
            shared with other metrics are run once.
        attribution: how the chunks that support a statement are determined. "cited" reads them from the sentences that
            the judge cites. If the judge omits citations, metrics of chunks (context precision and utilization, noise)
            are a lower bound; if a verdict cites nothing, they are unscored. "per_chunk" verifies against each chunk
            separately, like RAGChecker. With n chunks, the statements of the answer then need n calls instead of one,
            and so do those of the reference.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in place of the judge.
        name: prefix of the names of the scores.

    Returns:
        A suite of twelve metrics that read `question`, `answer`, `references` and `contexts`. Findings of each metric
        are the statements that its number depends on: statements of the answer or the reference with verdicts and
        citations, or with "TP", "FP" or "FN".

    Raises:
        ConfigError: if an option is invalid.
    """
    if not name:
        raise ConfigError("name must be the prefix of the scores' names, got an empty string")
    part = partial(claim_part, judge=judge, attribution=attribution, verifier=verifier)
    return suite(*(part(formula, name=f"{name}_{formula}") for formula in FORMULAS))


NoiseMode = Literal["relevant", "irrelevant"]


def noise_sensitivity(
    judge: JudgeLike,
    mode: NoiseMode = "relevant",
    *,
    attribution: Attribution = "cited",
    verifier: Verifier | None = None,
    name: str | None = None,
) -> Metric:
    """Score the share of the answer's statements that repeat the contexts and are not in the reference.

    Equals `claim_noise_relevant` or `claim_noise_irrelevant` of `claim_metrics`, without the other metrics.

    Args:
        judge: called five times per sample, as for `claim_metrics`; both modes together need the same five calls.
        mode: "relevant" counts wrong statements supported by a chunk that also supports the reference; "irrelevant"
            counts wrong statements that only other chunks support.
        attribution: "cited" or "per_chunk": how the chunks that support a statement are determined; see
            `claim_metrics`.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in place of the judge.
        name: key of the score, by default "noise_sensitivity_relevant" or "noise_sensitivity_irrelevant".

    Returns:
        A metric that reads `question`, `answer`, `references` and `contexts`; unscored if the answer states no facts or
        a verdict cites nothing. `Report.rescore` computes one mode from the findings of the other mode.

    Raises:
        ConfigError: if an option is invalid.
    """
    check_choice("mode", mode, get_args(NoiseMode))
    score_name = name if name is not None else f"noise_sensitivity_{mode}"
    return claim_part(f"noise_{mode}", judge, attribution=attribution, verifier=verifier, name=score_name)
