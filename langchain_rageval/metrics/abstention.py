"""Abstention: whether the answer abstains exactly when it should.

0 or 1, higher is better: 1 if the answer answers an answerable question, or abstains ("I do not know") from an
unanswerable one, which faithfulness leaves unscored. Source: the task of SQuAD 2.0, Rajpurkar et al. 2018, "Know What
You Don't Know", arXiv:1806.03822, with a judge in place of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import check_choice
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import BLANK_REFERENCES, Value
from langchain_rageval.steps.detect import ABSTAINS, ANSWERABLE, ANSWERS, detect_abstention, detect_answerable
from langchain_rageval.steps.stage import State

AnswerabilitySource = Literal["reference", "contexts"]

_READS: Mapping[AnswerabilitySource, set[str]] = {"reference": {"references"}, "contexts": {"contexts"}}
_KEY: Mapping[AnswerabilitySource, str] = {"reference": "reference_abstention", "contexts": "answerable"}
_GROUND_TEXT: Mapping[AnswerabilitySource, str] = {"reference": "the reference", "contexts": "the contexts"}
_ANSWERING = {ANSWERS, ANSWERABLE}


def abstention(judge: JudgeLike, *, given: AnswerabilitySource = "reference", name: str = "abstention") -> Metric:
    """Score whether the answer abstains when it should, and only then.

    Args:
        judge: called once for the answer, and once for each reference or once for the contexts. A blank answer counts
            as abstaining and contexts without words as not answering, both without a call.
        given: source that decides whether the question is answerable: "reference", where the question is unanswerable
            if all references abstain, or "contexts", for questions without a label; contexts that answer a part of
            the question count as answering.
        name: key of the score.

    Returns:
        A metric that reads `question` and `answer`, and `references` or `contexts`; unscored if the references are
        blank. Findings of the kind "criterion" hold the verdicts: number 1 for the answer ("abstains" or "answers");
        then from 2 on one for each reference (likewise), or 2 for the contexts ("answer" or "do not answer").

    Raises:
        ConfigError: if `given` is neither "reference" nor "contexts".
    """
    check_choice("given", given, get_args(AnswerabilitySource))
    other = detect_abstention(judge, of="reference") if given == "reference" else detect_answerable(judge)
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer", *_READS[given]},
        steps=detect_abstention(judge, of="answer") | other,
        reduce=partial(abstains_rightly, given=given),
        options={"given": given},
        state_from_findings=partial(_state_from_findings, given=given),
    )


def abstains_rightly(state: State, *, given: AnswerabilitySource) -> Value:
    """Return 1 if the answer abstains from an unanswerable question or answers an answerable one, else 0."""
    answer, others = _criteria(state["answer_abstention"]), _criteria(state[_KEY[given]])
    if not others:
        return Value.without(BLANK_REFERENCES)
    abstains = answer[0].verdict == ABSTAINS
    unanswerable = not any(finding.verdict in _ANSWERING for finding in others)
    note = Note(f"abstention-{given}-{abstains}-{unanswerable}".lower())
    reason = explain(state["sample"].language_text, note)
    return Value(float(abstains == unanswerable), reason, [*state["answer_abstention"], *state[_KEY[given]]])


def _state_from_findings(sample: Sample, score: Score, *, given: AnswerabilitySource) -> State | None:
    """Return the state from the findings of a score, or None if it was scored with another `given`."""
    parts: dict[str, list[Finding]] = {}
    for finding in score.findings:
        parts.setdefault(finding.text, []).append(finding)
    expected = {"the answer", _GROUND_TEXT[given]}
    if parts.keys() != expected:
        return None
    return {"sample": sample, "answer_abstention": parts["the answer"], _KEY[given]: parts[_GROUND_TEXT[given]]}


def _criteria(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == "criterion"]
