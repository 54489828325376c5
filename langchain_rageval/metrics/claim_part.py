"""One number of the claim graph as a metric: which steps it takes, what it finds, and how it is had again from that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any, Literal, get_args

from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.claim_graph import FORMULAS, Claim, ClaimGraph, ClaimSource, Formula
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
    """The metric of one formula. It takes the steps that this one needs, which are the same for all of them.

    Args:
        formula: a key of `FORMULAS`.
        judge: who is asked.
        attribution: how it is known which chunks support a statement.
        verifier: verifies statements in the judge's place, if given.
        name: key of the score.

    Raises:
        ConfigError: if `attribution` or `verifier` is none there is.
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
        state_from_findings=partial(restored, formula=formula),
    )


def claim_value(state: State, *, formula: str) -> Value:
    """The number that a formula makes of the claim graph, with the findings that it needs."""
    chosen, found = FORMULAS[formula], _found(state)
    graph = claim_graph(state["sample"], found)
    findings = [finding for need in chosen.needs for finding in found[need]]
    value = chosen.value(graph)
    if isinstance(value, str):
        return Value.without(value, findings)
    return Value(value, f"{chosen.told(graph, detect_language(state['sample'].question) == 'ru')}.", findings)


def claim_graph(sample: Sample, found: Mapping[ClaimSource, Sequence[Finding]]) -> ClaimGraph:
    """The graph that findings describe.

    Args:
        sample: that they are about.
        found: what nobody looked for is empty.
    """
    verdicts, marks = [*found["answer_verdicts"], *found["reference_verdicts"]], found["classifications"]
    return ClaimGraph(
        answer=_claims("statement", verdicts, marks),
        reference=_claims("reference_statement", verdicts, marks),
        chunks=len(sample.contexts or ()),
    )


def restored(sample: Sample, score: Score, *, formula: str) -> State | None:
    """The state from the findings of a score of this formula, or of any that found as much.

    Those of answer_correctness tell of one reference only, the best, so they do with a single one.
    """
    sections = _sections(score.findings)
    several = sum(bool(reference.strip()) for reference in sample.references) > 1
    if sections is None or (several and score.aspect != "grounding"):
        return None
    known = {*sections, *_empty(sections)}
    if not score.findings and score.unscored:  # neither side states facts
        known = {*get_args(ClaimSource)}
    if not known.issuperset(FORMULAS[formula].needs):
        return None
    return {**sections, "classifications": [sections.get("classifications", [])], "sample": sample}


def _stages(formula: Formula, judge: JudgeLike, verifier: Verifier | None, by_chunk: bool) -> Iterator[Stage[State]]:
    """Twelve metrics go through the same stages: each need is gone through once for a sample."""
    judge = Judge.of(judge)
    stages: Mapping[ClaimSource, Sequence[Stage[State]]] = {
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
    for need in formula.needs:
        yield SharedSteps(stages[need], name=need, key=(id(judge), id(verifier), by_chunk))


def _found(state: State) -> dict[ClaimSource, list[Finding]]:
    return {
        "answer_verdicts": state.get("answer_verdicts", []),
        "reference_verdicts": state.get("reference_verdicts", []),
        "classifications": list(_united(state.get("classifications", []))),
    }


def _claims(kind: FindingKind, verdicts: Iterable[Finding], marks: Iterable[Finding]) -> list[Claim]:
    """The claims of one side in order. Their numbers are the same to whoever judged them."""
    judged = {finding.number: finding for finding in verdicts if finding.kind == kind}
    marked = {finding.number: finding for finding in marks if finding.kind == kind}
    return [_claim(judged.get(number), marked.get(number)) for number in sorted(judged.keys() | marked.keys())]


def _claim(judged: Finding | None, marked: Finding | None) -> Claim:
    shared = marked is not None and marked.verdict == "TP"
    if judged is None:
        return Claim(marked.text if marked else "", shared=shared)
    cited = frozenset(int(number.partition(".")[0]) for number in judged.cites)
    return Claim(judged.text, judged.verdict, cited, shared)


def _united(classifications: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """One classification from those of several references: what is shared with any of them is shared."""
    if len(classifications) == 1 and not _doubled(classifications[0]):
        yield from classifications[0]
        return
    found = [finding for findings in classifications for finding in findings]
    for kind, name in (("statement", "number"), ("reference_statement", "text")):
        marks: dict[Any, list[Finding]] = {}
        for finding in found:
            if finding.kind == kind:
                marks.setdefault(getattr(finding, name), []).append(finding)
        for number, same in enumerate(marks.values(), 1):
            decisive = [finding for finding in same if finding.verdict == "TP"] or same
            reasons = dict.fromkeys(finding.reason for finding in decisive)
            yield decisive[0].model_copy(update={"number": number, "reason": " ".join(reasons)})
    yield from (finding for finding in found if finding.kind == "agreement")


def _doubled(findings: Iterable[Finding]) -> bool:
    texts = [finding.text for finding in findings if finding.kind == "reference_statement"]
    return len(texts) > len({*texts})


def _sections(findings: Iterable[Finding]) -> dict[str, list[Finding]] | None:
    """Findings by what they are of, agreement with what it stands behind; None when some are of something else."""
    sections: dict[str, list[Finding]] = {}
    section = None
    for finding in findings:
        if finding.kind != "agreement":
            section = _SECTIONS.get((finding.kind, finding.verdict))
        if section is None:
            return None
        sections.setdefault(section, []).append(finding)
    return sections


_SECTIONS: Mapping[tuple[str, str], ClaimSource] = {
    **{("statement", label): "answer_verdicts" for label in get_args(VerdictLabel)},
    **{("reference_statement", label): "reference_verdicts" for label in get_args(VerdictLabel)},
    **{(kind, mark): "classifications" for kind in ("statement", "reference_statement") for mark in ("TP", "FP", "FN")},
}


def _empty(sections: Mapping[str, Sequence[Finding]]) -> Iterator[ClaimSource]:
    """The verdicts that are none because a side states no facts: a classification tells of both sides."""
    kinds = {finding.kind for finding in sections.get("classifications", ())}
    if kinds and "statement" not in kinds:
        yield "answer_verdicts"
    if kinds and "reference_statement" not in kinds:
        yield "reference_verdicts"
