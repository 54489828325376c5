"""Metric of one number of the claim graph: its steps, and the reducer (function from the state to the value)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any, Literal, get_args

from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.claim_graph import FORMULAS, Claim, ClaimFormula, ClaimGraph, FindingSection
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value
from langchain_rageval.prompts.answer_schemas import VerdictLabel
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.shared_steps import SharedSteps
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify import Verifier, verify
from langchain_rageval.text.language import detect_language

Attribution = Literal["cited", "per_chunk"]

_READS = frozenset({"question", "answer", "references", "contexts"})


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
    if attribution not in get_args(Attribution):
        raise ConfigError(f'attribution is "cited" or "per_chunk", got {attribution!r}')
    chosen = FORMULAS[formula]
    return Metric(
        name,
        aspect="grounding",
        reads=_READS,
        steps=reduce(or_, _stages(chosen, judge, verifier, attribution == "per_chunk")),
        reduce=partial(claim_value, formula=formula),
        direction=chosen.direction,
        options={"formula": formula, "attribution": attribution},
        state_from_findings=partial(_state_from_findings, formula=formula),
    )


def claim_value(state: State, *, formula: str) -> Value:
    """Return the value of a formula, with the findings that it reads."""
    chosen, sections = FORMULAS[formula], _sections_of_state(state)
    graph = build_claim_graph(state["sample"], sections)
    findings = [finding for section in chosen.reads for finding in sections[section]]
    value = chosen.value(graph)
    if isinstance(value, str):
        return Value.without(value, findings)
    return Value(value, f"{chosen.reason(graph, detect_language(state['sample'].question) == 'ru')}.", findings)


def build_claim_graph(sample: Sample, sections: Mapping[FindingSection, Sequence[Finding]]) -> ClaimGraph:
    """Return the claim graph that the findings of a sample describe.

    Args:
        sample: the sample that was scored.
        sections: findings by section; a section that was not determined is empty.
    """
    verdicts = [*sections["answer_verdicts"], *sections["reference_verdicts"]]
    marks = sections["classifications"]
    return ClaimGraph(
        answer=_claims("statement", verdicts, marks),
        reference=_claims("reference_statement", verdicts, marks),
        chunks=len(sample.contexts or ()),
    )


def _state_from_findings(sample: Sample, score: Score, *, formula: str) -> State | None:
    """Return the state from the findings of a score, or None if they lack a section that the formula reads.

    Findings of answer_correctness hold only the best reference, so they suffice for a single reference only.
    """
    sections = _sections_of_findings(score.findings)
    several = sum(bool(reference.strip()) for reference in sample.references) > 1
    if sections is None or (several and score.aspect != "grounding"):
        return None
    known = {*sections, *_empty_sections(sections)}
    if not score.findings and score.unscored:  # neither side states facts
        known = {*get_args(FindingSection)}
    if not known.issuperset(FORMULAS[formula].reads):
        return None
    return {**sections, "classifications": [sections.get("classifications", [])], "sample": sample}


def _stages(
    formula: ClaimFormula, judge: JudgeLike, verifier: Verifier | None, by_chunk: bool
) -> Iterator[Stage[State]]:
    """Yield the steps of a formula; each section is determined once per sample for all metrics of these arguments."""
    judge = Judge.of(judge)
    stages: Mapping[FindingSection, Sequence[Stage[State]]] = {
        "answer_verdicts": [
            extract_statements(judge, of="answer"),
            verify(judge, of="answer", verifier=verifier, by_chunk=by_chunk),
        ],
        "reference_verdicts": [
            extract_statements(judge, of="reference"),
            verify(judge, of="reference", verifier=verifier, by_chunk=by_chunk),
        ],
        "classifications": [
            extract_statements(judge, of="answer"),
            extract_statements(judge, of="reference"),
            classify_statements(judge),
        ],
    }
    for section in formula.reads:
        yield SharedSteps(stages[section], name=section, key=(id(judge), id(verifier), by_chunk))


def _sections_of_state(state: State) -> dict[FindingSection, list[Finding]]:
    return {
        "answer_verdicts": state.get("answer_verdicts", []),
        "reference_verdicts": state.get("reference_verdicts", []),
        "classifications": list(_merge_classifications(state.get("classifications", []))),
    }


def _claims(kind: FindingKind, verdicts: Iterable[Finding], marks: Iterable[Finding]) -> list[Claim]:
    """Return the claims of one side in order; verdicts and marks of one statement have the same number."""
    judged = {finding.number: finding for finding in verdicts if finding.kind == kind}
    marked = {finding.number: finding for finding in marks if finding.kind == kind}
    return [_claim(judged.get(number), marked.get(number)) for number in sorted(judged.keys() | marked.keys())]


def _claim(judged: Finding | None, marked: Finding | None) -> Claim:
    shared = marked is not None and marked.verdict == "TP"
    if judged is None:
        return Claim(marked.text if marked else "", shared=shared)
    cited = frozenset(int(number.partition(".")[0]) for number in judged.cites)
    return Claim(judged.text, judged.verdict, cited, shared)


def _merge_classifications(classifications: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Yield one classification from those of several references: a statement shared with any of them is shared."""
    if len(classifications) == 1 and not _has_duplicates(classifications[0]):
        yield from classifications[0]
        return
    all_findings = [finding for findings in classifications for finding in findings]
    for kind, name in (("statement", "number"), ("reference_statement", "text")):
        marks: dict[Any, list[Finding]] = {}
        for finding in all_findings:
            if finding.kind == kind:
                marks.setdefault(getattr(finding, name), []).append(finding)
        for number, group in enumerate(marks.values(), 1):
            decisive = [finding for finding in group if finding.verdict == "TP"] or group
            reasons = dict.fromkeys(finding.reason for finding in decisive)
            yield decisive[0].model_copy(update={"number": number, "reason": " ".join(reasons)})
    yield from (finding for finding in all_findings if finding.kind == "agreement")


def _has_duplicates(findings: Iterable[Finding]) -> bool:
    """Return True if two statements of the reference are equal."""
    texts = [finding.text for finding in findings if finding.kind == "reference_statement"]
    return len(texts) > len({*texts})


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
    **{("statement", label): "answer_verdicts" for label in get_args(VerdictLabel)},
    **{("reference_statement", label): "reference_verdicts" for label in get_args(VerdictLabel)},
    **{(kind, mark): "classifications" for kind in ("statement", "reference_statement") for mark in ("TP", "FP", "FN")},
}


def _empty_sections(sections: Mapping[str, Sequence[Finding]]) -> Iterator[FindingSection]:
    """Yield the sections that are empty because the classification shows no statements on their side."""
    kinds = {finding.kind for finding in sections.get("classifications", ())}
    if kinds and "statement" not in kinds:
        yield "answer_verdicts"
    if kinds and "reference_statement" not in kinds:
        yield "reference_verdicts"
