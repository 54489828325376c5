"""Abstention: whether the answer abstains exactly when it should.

0 or 1, higher is better: 1 for an answer to what can be answered, and for "I do not know" where nothing is known.
Faithfulness leaves such an answer unscored. Source: the question of SQuAD 2.0, Rajpurkar et al. 2018, "Know What You
Don't Know", arXiv:1806.03822, put to a judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import BLANK_REFERENCES, Value
from langchain_rageval.steps.detect_abstention import ABSTAINS, ANSWERS, detect_abstention
from langchain_rageval.steps.detect_answerable import ANSWERABLE, detect_answerable
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

Given = Literal["reference", "contexts"]

_READS: Mapping[Given, set[str]] = {"reference": {"references"}, "contexts": {"contexts"}}
_KEY: Mapping[Given, str] = {"reference": "reference_abstention", "contexts": "answerable"}
_OTHER_SIDE: Mapping[Given, str] = {"reference": "the reference", "contexts": "the contexts"}
_HOLDS_AN_ANSWER = {ANSWERS, ANSWERABLE}
_REASONS: Mapping[str, Mapping[Given, Mapping[tuple[bool, bool], str]]] = {  # (answer abstains, nothing answers)
    "en": {
        "reference": {
            (True, True): "The answer abstains, as the reference does.",
            (True, False): "The answer abstains, but the reference answers.",
            (False, True): "The answer answers, but the reference abstains.",
            (False, False): "The answer answers, as the reference does.",
        },
        "contexts": {
            (True, True): "The answer abstains, and the contexts hold no answer.",
            (True, False): "The answer abstains, but the contexts hold an answer.",
            (False, True): "The answer answers, but the contexts hold no answer.",
            (False, False): "The answer answers, and the contexts hold an answer.",
        },
    },
    "ru": {
        "reference": {
            (True, True): "Ответа по существу нет, как и в эталоне.",
            (True, False): "Ответа по существу нет, а в эталоне он есть.",
            (False, True): "Ответ дан, а в эталоне ответа по существу нет.",
            (False, False): "Ответ дан, как и в эталоне.",
        },
        "contexts": {
            (True, True): "Ответа по существу нет, и в контекстах его нет.",
            (True, False): "Ответа по существу нет, а в контекстах он есть.",
            (False, True): "Ответ дан, а в контекстах ответа нет.",
            (False, False): "Ответ дан, и в контекстах он есть.",
        },
    },
}


def abstention(judge: JudgeLike, *, given: Given = "reference", name: str = "abstention") -> Metric:
    """Score whether the answer abstains when it should, and only then.

    Args:
        judge: asked once about the answer, not when it is blank (it then abstains); and once about each reference, or
            once about the contexts, not when they hold no words (they then do not answer).
        given: what says whether there is an answer: the "reference", which abstains when all of several do, or the
            "contexts", for questions without a label.
        name: key of the score.

    Returns:
        A metric reading `question` and `answer`, and `references` or `contexts`; unscored when the references are
        blank. Findings of the kind "criterion" hold the verdicts: number 1 of the answer ("abstains" or "answers"),
        from 2 on of each reference (likewise), or 2 of the contexts ("answer" or "do not answer").

    Raises:
        ConfigError: if `given` is neither.
    """
    if given not in get_args(Given):
        raise ConfigError(f'given is "reference" or "contexts", got {given!r}')
    other = detect_abstention(judge, of="reference") if given == "reference" else detect_answerable(judge)
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer", *_READS[given]},
        steps=detect_abstention(judge, of="answer") | other,
        reduce=partial(abstains_rightly, given=given),
        options={"given": given},
        state_from_findings=partial(restored, given=given),
    )


def abstains_rightly(state: State, *, given: Given) -> Value:
    """1 when the answer abstains and nothing else answers, or it answers and something else does; 0 otherwise."""
    answer, others = _criteria(state["answer_abstention"]), _criteria(state[_KEY[given]])
    if not others:
        return Value.without(BLANK_REFERENCES)
    abstains = answer[0].verdict == ABSTAINS
    nothing = not any(finding.verdict in _HOLDS_AN_ANSWER for finding in others)
    language = "ru" if detect_language(state["sample"].question) == "ru" else "en"
    reason = _REASONS[language][given][abstains, nothing]
    return Value(float(abstains == nothing), reason, [*state["answer_abstention"], *state[_KEY[given]]])


def restored(sample: Sample, score: Score, *, given: Given) -> State | None:
    """The state from the findings of a score, if the same was given."""
    parts: dict[str, list[Finding]] = {}
    for finding in score.findings:
        parts.setdefault(finding.text, []).append(finding)
    known = {"the answer", _OTHER_SIDE[given]}
    if parts.keys() != known:
        return None
    return {"sample": sample, "answer_abstention": parts["the answer"], _KEY[given]: parts[_OTHER_SIDE[given]]}


def _criteria(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == "criterion"]
