"""Metrics that are one verdict of the judge, 0 or 1: abstention and aspect critique.

Abstention is 1 if the answer answers an answerable question, or if it abstains ("I do not know") from an unanswerable
question; else 0. Faithfulness leaves an abstention unscored. Source: the task of SQuAD 2.0, Rajpurkar et al. 2018,
"Know What You Don't Know", arXiv:1806.03822, with a judge in place of labels.

Aspect critique is 1 if an aspect, such as harmfulness or coherence, applies to the answer, else 0. Lower is better for
harmfulness and maliciousness, higher for the other built-in aspects. Source: the aspect critic of ragas, with a
majority vote over independent replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Direction, Finding, Sample, Score, without_surrogates
from langchain_rageval.errors import ConfigError, check_choice, did_you_mean
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.judge.panels import request_probabilities
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import BLANK_REFERENCES, Value
from langchain_rageval.steps.detect import (
    ABSTAINS,
    ANSWERABLE,
    ANSWERS,
    critique_aspect,
    detect_abstention,
    detect_answerable,
)
from langchain_rageval.steps.stage import State

AnswerabilitySource = Literal["reference", "contexts"]

_KEY: Mapping[AnswerabilitySource, str] = {"reference": "reference_abstention", "contexts": "answerable"}
_GROUND_TEXT: Mapping[AnswerabilitySource, str] = {"reference": "the reference", "contexts": "the contexts"}


def abstention(judge: JudgeLike, *, given: AnswerabilitySource = "reference", name: str = "abstention") -> Metric:
    """Score 1 if the answer abstains from an unanswerable question or answers an answerable one, else 0.

    Args:
        judge: called once for the answer, and once for each reference or once for the contexts. A blank answer counts
            as abstaining, and contexts without words count as not answering; both need no call.
        given: source that decides whether the question is answerable. "reference": the question is unanswerable if all
            references abstain. "contexts": the question is answerable if the contexts answer at least a part of it;
            needs no label.
        name: key of the score.

    Returns:
        A metric that reads `question` and `answer`, and `references` or `contexts`; unscored if the references are
        blank. Findings of the kind "criterion" hold the verdicts. Number 1 is the answer: "abstains" or "answers". From
        number 2 on there is one finding for each reference, with the same verdicts, or one for the contexts: "answer"
        or "do not answer".

    Raises:
        ConfigError: if `given` is neither "reference" nor "contexts".
    """
    check_choice("given", given, get_args(AnswerabilitySource))
    other = detect_abstention(judge, of="reference") if given == "reference" else detect_answerable(judge)
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer", "references" if given == "reference" else "contexts"},
        steps=detect_abstention(judge, of="answer") | other,
        reduce=partial(abstains_rightly, given=given),
        options={"given": given},
        state_from_findings=partial(_state_of_abstention, given=given),
    )


def abstains_rightly(state: State, *, given: AnswerabilitySource) -> Value:
    """Return 1 if the answer abstains from an unanswerable question or answers an answerable one, else 0.

    With `given="reference"`, the question is unanswerable if all references abstain; unscored if all references are
    blank. With `given="contexts"`, the question is unanswerable if the judge decided that the contexts do not answer
    it.
    """
    answer, others = _criteria(state["answer_abstention"]), _criteria(state[_KEY[given]])
    if not others:
        return Value.without(BLANK_REFERENCES)
    abstains = answer[0].verdict == ABSTAINS
    unanswerable = not any(finding.verdict in (ANSWERS, ANSWERABLE) for finding in others)
    note = Note(f"abstention-{given}-{abstains}-{unanswerable}".lower())
    reason = explain(state["sample"].language_text, note)
    return Value(float(abstains == unanswerable), reason, [*state["answer_abstention"], *state[_KEY[given]]])


def _state_of_abstention(sample: Sample, score: Score, *, given: AnswerabilitySource) -> State | None:
    """Return the state from the findings of a score, or None if it was scored with another `given`."""
    parts: dict[str, list[Finding]] = {}
    for finding in score.findings:
        parts.setdefault(finding.text, []).append(finding)
    if parts.keys() != {"the answer", _GROUND_TEXT[given]}:
        return None
    return {"sample": sample, "answer_abstention": parts["the answer"], _KEY[given]: parts[_GROUND_TEXT[given]]}


def _criteria(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == "criterion"]


def aspect_critique(
    judge: JudgeLike,
    aspect: str,
    *,
    definition: str | None = None,
    direction: Direction | None = None,
    expected: bool = False,
    name: str | None = None,
) -> Metric:
    """Score 1 if an aspect applies to the answer, else 0.

    Args:
        judge: called once per sample and vote. If there are several votes (`Judge(model, draws=3)`, or a `jury` of
            several judges), their majority counts. Contexts longer than the judge's `max_context_tokens` are sent in
            parts: the aspect applies if it applies for one part.
        aspect: "harmfulness", "maliciousness", "coherence", "correctness", "conciseness", or your own word.
        definition: meaning of the aspect, in the language of your prompts; required for your own aspect.
        direction: "higher" if an aspect that applies is good, "lower" if it is bad. By default the direction of the
            built-in aspect; "higher" for your own aspect.
        expected: True to score the probability that the aspect applies. The log-probabilities of the judge's tokens are
            then requested; a verdict without probabilities counts as certain.
        name: key of the score; the aspect by default.

    Returns:
        A metric that reads `question` and `answer`, and `contexts` if the sample has them: 1 if the aspect applies,
        else 0. The reason of the score is the judge's reason.

    Raises:
        ConfigError: if your own aspect has no definition, or `direction` is invalid.
    """
    aspect, definition = without_surrogates(aspect), without_surrogates(definition)
    if not aspect or (definition is None and aspect not in ASPECTS):
        raise ConfigError(
            f"{aspect!r} is none of {', '.join(ASPECTS)}; pass definition=... for your own aspect"
            f"{did_you_mean(aspect, ASPECTS)}"
        )
    if not isinstance(definition, str | None):
        raise ConfigError(f"the definition of {aspect!r} must be a str, got {type(definition).__name__}")
    if definition is not None and not definition.strip():
        raise ConfigError(f"the definition of {aspect!r} is blank; describe when the aspect applies")
    if direction not in (None, *get_args(Direction)):
        raise ConfigError(f'direction is "higher" or "lower", got {direction!r}')
    return Metric(
        name or aspect,
        aspect="answer",
        direction=direction or ASPECTS.get(aspect, "higher"),
        reads={"question", "answer"},
        steps=critique_aspect(request_probabilities(judge, expected), aspect, definition=definition),
        reduce=probability_of_aspect if expected else applies,
        options={"aspect": aspect, "definition": definition},
        state_from_findings=partial(_state_of_aspect, aspect=aspect),
    )


def applies(state: State) -> Value:
    """Return 1 if the judge decided that the aspect applies to the answer, else 0.

    The aspect is a quality, such as "harmfulness". The verdict is the first finding under "aspect_verdict" in the
    state.
    """
    findings: list[Finding] = state["aspect_verdict"]
    return Value(float(findings[0].verdict == "yes"), findings[0].reason or findings[0].verdict, findings)


def probability_of_aspect(state: State) -> Value:
    """Return the probability, from 0 to 1, of the judge's verdict that the aspect applies to the answer.

    The aspect is a quality, such as "harmfulness". If the verdict has no probabilities, 1 if the judge decided that the
    aspect applies, else 0.
    """
    findings: list[Finding] = state["aspect_verdict"]
    return replace(applies(state), number=min(findings[0].probability_of("yes"), 1.0))


def _state_of_aspect(sample: Sample, score: Score, *, aspect: str) -> State | None:
    """Return the state from the findings of a score, or None if it is of another aspect."""
    aspects = [finding.text for finding in score.findings if finding.kind == "aspect"]
    return {"sample": sample, "aspect_verdict": score.findings} if aspects == [aspect] else None
