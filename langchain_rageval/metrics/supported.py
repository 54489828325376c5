"""Define Value, the result of a reducer (function that computes a score), and functions that several metrics share.

The functions compute shares of supported statements, store similarities as findings, and write reasons of scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

from langchain_rageval._internal.page import shortened
from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.prompts.answer_schemas import VerdictLabel
from langchain_rageval.steps.questions import REFUSED, rewrite_question
from langchain_rageval.steps.stage import SharedSteps, Stage, State

NO_FACTS = "the answer states no facts"
NO_REFERENCE_FACTS = "the reference states no facts"
NEITHER_FACTS = f"{NO_FACTS}, nor does the reference"
BLANK_REFERENCES = "the references are blank"
LACKS_FIELD = "the sample lacks a field"
"""Cause of a missing value of an optional metric, as those of a preset are."""
NO_REFERENCE_ENTITIES = "the reference names no entities"

SIMILARITY = "similarity"
OVERLAP = "overlap"


@dataclass(frozen=True)
class Value:
    """Result of a reducer (function that computes a score from the state): a number, or why there is none.

    Attributes:
        number: the value, or None if no value applies.
        reason: one sentence, in Russian for a Russian question, else in English.
        findings: facts from which the number was computed.
        unscored: cause in English if no number applies; None if there is a number.
    """

    number: float | None
    reason: str = ""
    findings: Sequence[Finding] = ()
    unscored: str | None = None

    @classmethod
    def without(cls, unscored: str, findings: Sequence[Finding] = ()) -> Self:
        """Return a Value without a number.

        Args:
            unscored: cause, in English.
            findings: findings to keep.
        """
        return cls(None, findings=findings, unscored=unscored)


def quote(text: str) -> str:
    """Return a statement in quotation marks, without its full stop, cut after 160 characters."""
    return f"«{shortened(text.rstrip('.'), 160)}»"


def nothing_retrieved(question: str) -> Value:
    """Return the value 0 of a sample without contexts; the reason is in the language of the question."""
    return Value(0.0, explain(question, Note("nothing-retrieved")))


MAX_QUOTED = 3


def share_of_supported(verdicts: Sequence[Finding], question: str, without: str) -> Value:
    """Return the share of the statements that the contexts support.

    Args:
        verdicts: findings of `verify_statements`.
        question: decides the language of the reason.
        without: cause to report if there are no statements; the sample is then unscored.
    """
    statements = [finding for finding in verdicts if finding.kind != "agreement"]
    if not statements:
        return Value.without(without)
    unsupported = [finding for finding in statements if finding.verdict != "supported"]
    count, right = len(statements), len(statements) - len(unsupported)
    reason = explain(question, Note("supported-share", right=right, count=count), *fault_notes(unsupported))
    return Value(right / count, reason, verdicts)


def fault_notes(findings: Sequence[Finding]) -> list[Note]:
    """Return a note that quotes each of the first `MAX_QUOTED` findings, and a note that counts the rest."""
    notes = [Note(f"fault-{finding.verdict}", text=quote(finding.text)) for finding in findings[:MAX_QUOTED]]
    return [*notes, *and_more(len(findings))]


def and_more(count: int) -> list[Note]:
    """Return a list of one note with the number of items that are not quoted, or [] if all are quoted.

    `count` is the number of all items; the first `MAX_QUOTED` (3) are quoted.
    """
    return [Note("and-more", count=count - MAX_QUOTED)] if count > MAX_QUOTED else []


def verdicts_from_findings(
    sample: Sample, score: Score, *, kind: FindingKind, under: str, labels: Collection[str] = get_args(VerdictLabel)
) -> dict[str, Any] | None:
    """Return the state of a metric that counts verdicts, such as context recall, rebuilt from an earlier score.

    Args:
        sample: the sample that was scored.
        score: the earlier score of the sample.
        kind: kind of the findings that the metric counts, such as "statement".
        under: key of the findings in the state.
        labels: verdicts that such a finding can have.

    Returns:
        A mapping of "sample" to the sample and of `under` to the findings. None if a finding is not of the kind `kind`
        or has a verdict that is not in `labels`; findings of the kind "agreement" are not checked.
    """
    statements = [finding for finding in score.findings if finding.kind != "agreement"]
    if any(finding.kind != kind or finding.verdict not in labels for finding in statements):
        return None
    return {"sample": sample, under: score.findings}


def answer_and_references(state: State) -> tuple[str, Sequence[str]]:
    """Return the answer, and the references that are not blank; the list is empty if the answer is blank."""
    sample: Sample = state["sample"]
    answer = sample.answer or ""
    return answer, [reference for reference in sample.references if answer.strip() and reference.strip()]


def blank_value(sample: Sample) -> Value | None:
    """Return the value of a sample whose answer or references are blank, or None if neither is blank.

    Blank references leave the sample unscored; a blank answer is 0.
    """
    if not any(reference.strip() for reference in sample.references):
        return Value.without(BLANK_REFERENCES)
    if not (sample.answer or "").strip():
        return Value(0.0, explain(sample.language_text, Note("blank-answer")))
    return None


def similarity_findings(sample: Sample, similarities: Sequence[float], *, reason: str = SIMILARITY) -> list[Finding]:
    """Return a finding for each reference that is not blank; the verdict is its similarity to the answer.

    The number of a finding is the number of the reference among all references, from 1, including blank ones.

    Args:
        sample: has the references.
        similarities: similarity of the answer to each reference that is not blank, in order; empty if the answer is
            blank, and no finding is then returned.
        reason: reason of each finding: "similarity" or "overlap".
    """
    numbered = [(number, text) for number, text in enumerate(sample.references, 1) if text.strip()]
    return [
        Finding(kind="criterion", number=number, text=text, verdict=repr(similarity), reason=reason)
        for (number, text), similarity in zip(numbered, similarities, strict=bool(similarities))
    ]


def similarities_from_findings(sample: Sample, findings: Sequence[Finding]) -> list[float] | None:
    """Return the similarities that `similarity_findings` stored; None if they do not fit the sample.

    They do not fit if a needed similarity is missing, or if there is one although the answer or the references are
    blank.
    """
    similarities = [
        float(finding.verdict) for finding in findings if (finding.kind, finding.reason) == ("criterion", SIMILARITY)
    ]
    expected = bool((sample.answer or "").strip()) and any(reference.strip() for reference in sample.references)
    return similarities if bool(similarities) == expected else None


MOST_UNMENTIONED = 1 / 3
"""Share of the content words and numbers of a text that its statements may leave out before the score says so."""

KIND = "standalone_question"
"""Kind of the finding that holds the question of a conversation as it was judged."""

_HOW = ("extraction", KIND)
_FEWEST_UNITS = 6  # content words and numbers; of fewer, a share says little


def extraction_findings(state: State) -> list[Finding]:
    """Return findings about problems with the extraction of the statements in a state.

    Returns:
        Findings of kind "extraction". The verdict "dropped" means that statements of the judge were left out: repeats,
        or more statements than the text can hold (one for every three characters, at least ten). The verdict
        "incomplete" means that the statements of one text (the answer, or all references) leave out more than a third
        (`MOST_UNMENTIONED`) of the content words and numbers of that text, if it has at least six of them. The reasons
        contain the counts.
    """
    found: list[tuple[str, str, Note]] = []
    if dropped := state.get("dropped_statements"):
        found.append(("dropped", "statements", Note("statements-dropped", count=dropped)))
    for side in ("answer", "reference"):
        lost, total = state.get(f"{side}_unmentioned", (0, 0))
        if total >= _FEWEST_UNITS and lost > MOST_UNMENTIONED * total:
            found.append(("incomplete", side, Note(f"incomplete-{side}", lost=lost, total=total)))
    return [
        Finding(
            kind="extraction",
            number=number,
            text=text,
            verdict=verdict,
            reason=explain(state["sample"].language_text, note, end=""),
        )
        for number, (verdict, text, note) in enumerate(found, 1)
    ]


def rewriting_of(sample: Sample, reads: frozenset[str], stages: Iterable[Stage[State]]) -> SharedSteps | None:
    """Return the step that makes a sample's question understandable without the history; None if no step is needed.

    No step is needed if the sample has no history, if the metric reads the history itself, or if no stage shows the
    question to a judge.
    """
    if not sample.history or "history" in reads:
        return None
    judge = next((judge for stage in stages if stage.shows_question for judge in stage.judges), None)
    if judge is None:
        return None
    key = (id(judge.model), judge._fingerprint_text)
    return SharedSteps([rewrite_question(judge)], name="rewrite_question", key=key)


def split_extraction(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return two lists of findings: those about items, such as statements, and those about how the items were obtained.

    The second list holds the kinds "extraction" (a problem when the judge extracted statements from a text) and
    "standalone_question" (the question of a conversation, rewritten to be understandable without the history).
    """
    items = [finding for finding in findings if finding.kind not in _HOW]
    return items, [finding for finding in findings if finding.kind in _HOW]


def with_extraction(score: Score, found: Sequence[Finding]) -> Score:
    """Return a copy of a score with findings about how statements were extracted or the question was rewritten.

    The copy's reason also names the problems that the findings describe.
    """
    if not found:
        return score
    update: dict[str, object] = {"findings": [*score.findings, *found]}
    if score.value is not None:
        problems = (finding.reason for finding in found if finding.kind != KIND or finding.verdict == REFUSED)
        reason = "; ".join(filter(None, (score.reason.removesuffix("."), *problems)))
        update["reason"] = f"{reason}." if score.reason.endswith(".") else reason
    return score.model_copy(update=update)
