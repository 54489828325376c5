"""Fitness: what the figures of a step say of the judge, and what the steps say of a metric.

Each share is held against two numbers, by its 95% interval: from `fit` on the judge is fit, from `care` on fit with
care, wholly below `care` unfit; where the interval lies on both sides of `care`, the counts are too few to tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from langchain_rageval.trust.examination import EMBEDDED
from langchain_rageval.trust.qualification import Citations, Fitness, Share

STEPS_OF: Mapping[str, Sequence[str]] = {
    "faithfulness": ("extract_statements", "verify_statements"),
    "answer_relevance": ("regenerate_questions", EMBEDDED),
    "context_precision": ("grade_contexts",),
    "context_recall": ("extract_statements", "verify_statements"),
    "context_relevance": ("select_sentences",),
    "answer_similarity": (EMBEDDED,),
    "answer_correctness": ("extract_statements", "classify_statements", EMBEDDED),
    "claim_metrics": ("extract_statements", "verify_statements", "classify_statements"),
    "noise_sensitivity": ("extract_statements", "verify_statements", "classify_statements"),
    "context_entity_recall": ("extract_entities", "find_entities"),
    "abstention": ("detect_abstention", "detect_answerable"),
    "rubric": ("grade_rubric",),
    "aspect_critique": ("critique_aspect",),
}
"""Metric to the steps that it stands on."""

_LOST = 0.1  # of the questions; what was lost may be what is hard
_ORDER: tuple[Fitness, ...] = get_args(Fitness)


@dataclass(frozen=True)
class Bar:
    """What a share is held against.

    Attributes:
        what: the share is called.
        fit: lower end of the interval from which on the judge is fit.
        care: that from which on it is fit with care.
    """

    what: str
    fit: float
    care: float


# With a share p of right verdicts, errors to both sides, a metric that counts them moves by 2p - 1 of what it should:
# .6 at 80%, .4 at 70%, where a difference between two systems needs more than six times the samples to be seen. The
# same holds for verdicts that chance, order or padding decide.
RIGHT = Bar("right verdicts", 0.8, 0.7)
STEADY = Bar("verdicts that stay when asked again", 0.8, 0.7)
ORDERLY = Bar("verdicts that stay in reverse order", 0.8, 0.7)
UNMOVED = Bar("verdicts that stay beside a needless sentence", 0.8, 0.7)
# Without an answer there is no score; with more than a fifth of them gone, those left are no fair sample.
ANSWERED = Bar("questions answered", 0.8, 0.7)
# Citations show a verdict; there may be more sentences that do than the label names.
PRECISE = Bar("citations to the point", 0.7, 0.5)
SHOWN = Bar("right verdicts with a citation to the point", 0.7, 0.5)
# What is asked again costs a call, no more.
AT_ONCE = Bar("replies valid at once", 0.8, 0.0)


def judged(
    *,
    right: Share,
    unread: float,
    said: Mapping[str, int],
    answered: Share,
    valid: Share,
    flips: Share,
    order_bias: Share,
    length_bias: Share,
    citations: Citations | None,
    lost: int,
    error: str,
) -> tuple[Fitness, list[str]]:
    """What the figures of a step say, with the reasons, the worst first."""
    found: list[tuple[Fitness, str]] = [
        *_against_unread(right, unread, said),
        *_held(ANSWERED, answered),
        *_held(STEADY, flips.rest),
        *_held(ORDERLY, order_bias.rest),
        *_held(UNMOVED, length_bias.rest),
        *_held(AT_ONCE, valid),
    ]
    if citations:
        found += [*_held(PRECISE, citations.precision, _first(citations)), *_held(SHOWN, citations.recall)]
    asked = answered.of + lost
    if lost > _LOST * asked:
        found.append(("cannot tell", f"{lost} of {asked} questions were lost on the way: {error}"))
    if not right.of:
        found.append(("cannot tell", "no verdict could be had"))
    worst = min((level for level, _ in found), key=_ORDER.index)
    reasons = [reason for level, reason in sorted(found, key=lambda pair: _ORDER.index(pair[0])) if level != "fit"]
    return worst, reasons or [f"{RIGHT.what} {right}"]


def metric_verdict(steps: Mapping[str, tuple[Fitness, Sequence[str]]], metric: str) -> tuple[Fitness, str]:
    """What its steps say of a metric: the worst of them; of a step that was not examined there is no telling."""
    told = {step: steps.get(step, _unexamined(step)) for step in STEPS_OF[metric]}
    worst = min((level for level, _ in told.values()), key=_ORDER.index)
    ordered = sorted(told.items(), key=lambda pair: _ORDER.index(pair[1][0]))
    return worst, " ".join(f"{step}: {'; '.join(reasons)}." for step, (_, reasons) in ordered)


def _unexamined(step: str) -> tuple[Fitness, Sequence[str]]:
    if step == EMBEDDED:
        return "cannot tell", ["the embeddings were not tried: hand some to qualify_judge"]
    return "cannot tell", ["no labelled items come with the package: compare it with labels of your own"]


def _held(bar: Bar, share: Share, beside: str = "") -> Iterator[tuple[Fitness, str]]:
    """A share against its bar; nothing when it does not apply."""
    if share.low is None or share.high is None:
        return
    if share.low >= bar.fit:
        level: Fitness = "fit"
    elif share.low >= bar.care:
        level = "fit with care"
    else:
        level = "unfit" if share.high < bar.care else "cannot tell"
    yield level, f"{bar.what} {share}{beside}"


def _against_unread(right: Share, unread: float, said: Mapping[str, int]) -> Iterator[tuple[Fitness, str]]:
    """The right verdicts against their bar, and against what is right without reading the texts."""
    beside, level = "", _ORDER[-1]
    if right.value is not None and right.value <= unread:
        always = f": it said {next(iter(said))!r} to everything" if len(said) == 1 else ""
        beside, level = f"{always}, no better than the {unread:.0%} to be had without reading", _ORDER[0]
    elif right.low is not None and right.low <= unread:
        beside, level = f", perhaps no better than the {unread:.0%} to be had without reading", _ORDER[1]
    for held, reason in _held(RIGHT, right, beside):
        yield min(held, level, key=_ORDER.index), reason


def _first(citations: Citations) -> str:
    first = citations.first
    if first.low is None or first.low <= citations.due_first:
        return ""
    return f": {first.value:.0%} name the first chunk, where {citations.due_first:.0%} belong"
