"""Fitness: verdicts on a judge from the statistics of its steps, and on a metric from its steps.

The 95% interval of each share is compared with two thresholds. The judge is "fit" if the lower end reaches `fit`, "fit
with care" if it reaches `care`, and "unfit" if the whole interval is below `care`. If the interval contains `care`, the
counts are too small: "cannot tell".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from langchain_rageval.trust.examination import EMBEDDING_STEP
from langchain_rageval.trust.qualification import Citations, Fitness, Proportion

STEPS_OF: Mapping[str, Sequence[str]] = {
    "faithfulness": ("extract_statements", "verify_statements"),
    "answer_relevance": ("regenerate_questions", EMBEDDING_STEP),
    "context_precision": ("grade_contexts",),
    "context_recall": ("extract_statements", "verify_statements"),
    "context_relevance": ("select_sentences",),
    "answer_similarity": (EMBEDDING_STEP,),
    "answer_correctness": ("extract_statements", "classify_statements", EMBEDDING_STEP),
    "claim_metrics": ("extract_statements", "verify_statements", "classify_statements"),
    "citations": ("extract_statements", "verify_statements"),
    "noise_sensitivity": ("extract_statements", "verify_statements", "classify_statements"),
    "context_entity_recall": ("extract_entities", "find_entities"),
    "abstention": ("detect_abstention", "detect_answerable"),
    "rubric": ("grade_rubric",),
    "aspect_critique": ("critique_aspect",),
    "llm_grader": ("grade_relevance",),
}
"""Name of a metric, or of the grader that rank metrics use, to the names of the steps that it depends on."""

_MOST_LOST = 0.1  # of the questions; the lost ones may be the hard ones
_ORDER: tuple[Fitness, ...] = get_args(Fitness)


@dataclass(frozen=True)
class FitnessThresholds:
    """Thresholds for the lower end of a share's 95% interval.

    Attributes:
        name: what the share counts, as in the reasons.
        fit: the judge is "fit" from here on.
        care: the judge is "fit with care" from here on.
    """

    name: str
    fit: float
    care: float


# If a share p of verdicts is right and errors go both ways, a metric that counts verdicts moves by 2p - 1 of the true
# difference: .6 at 80%; .4 at 70%, where detecting a difference between two systems takes more than six times as many
# samples. The same holds for verdicts that depend on chance, order or padding.
RIGHT = FitnessThresholds("right verdicts", 0.8, 0.7)
REPEATABLE = FitnessThresholds("verdicts unchanged when asked again", 0.8, 0.7)
ORDER_FREE = FitnessThresholds("verdicts unchanged in reverse order", 0.8, 0.7)
LENGTH_FREE = FitnessThresholds("verdicts unchanged by an irrelevant sentence", 0.8, 0.7)
# A question without an answer has no score; if more than a fifth are missing, the rest is not a fair sample.
ANSWERED = FitnessThresholds("questions answered", 0.8, 0.7)
# Citations justify a verdict; more sentences may do so than the label names.
CITATION_PRECISION = FitnessThresholds("relevant citations", 0.7, 0.5)
CITATION_RECALL = FitnessThresholds("right verdicts with a relevant citation", 0.7, 0.5)
# A repeated request only costs another call.
VALID_AT_ONCE = FitnessThresholds("replies valid at once", 0.8, 0.0)


def assess_step(
    *,
    right: Proportion,
    unread: float,
    words: float,
    said: Mapping[str, int],
    answered: Proportion,
    valid: Proportion,
    flips: Proportion,
    order_bias: Proportion,
    length_bias: Proportion,
    citations: Citations | None,
    lost: int,
    error: str,
) -> tuple[Fitness, list[str]]:
    """Return the worst verdict on a step and its reasons, worst first; see `StepQualification` for the arguments.

    `words` is 0 for embeddings, whose task word overlap can do.
    """
    verdicts: list[tuple[Fitness, str]] = [
        *_assess_right(right, unread, words, said),
        *_assess(ANSWERED, answered),
        *_assess(REPEATABLE, flips.complement),
        *_assess(ORDER_FREE, order_bias.complement),
        *_assess(LENGTH_FREE, length_bias.complement),
        *_assess(VALID_AT_ONCE, valid),
    ]
    if citations:
        verdicts += _assess(CITATION_PRECISION, citations.precision, _first_chunk_bias(citations))
        verdicts += _assess(CITATION_RECALL, citations.recall)
    questions = answered.of + lost
    if lost > _MOST_LOST * questions:
        verdicts.append(("cannot tell", f"{lost} of {questions} questions failed in transport: {error}"))
    if not right.of:
        verdicts.append(("cannot tell", "no verdict was obtained"))
    worst = min((level for level, _ in verdicts), key=_ORDER.index)
    reasons = [reason for level, reason in sorted(verdicts, key=lambda pair: _ORDER.index(pair[0])) if level != "fit"]
    return worst, reasons or [f"{RIGHT.name} {right}"]


def assess_metric(steps: Mapping[str, tuple[Fitness, Sequence[str]]], metric: str) -> tuple[Fitness, str]:
    """Return the worst verdict among a metric's steps, and the reasons; a step without statistics is "cannot tell"."""
    verdicts = {step: steps.get(step, _unexamined(step)) for step in STEPS_OF[metric]}
    worst = min((level for level, _ in verdicts.values()), key=_ORDER.index)
    ordered = sorted(verdicts.items(), key=lambda pair: _ORDER.index(pair[1][0]))
    return worst, " ".join(f"{step}: {'; '.join(reasons)}." for step, (_, reasons) in ordered)


def _unexamined(step: str) -> tuple[Fitness, Sequence[str]]:
    if step == EMBEDDING_STEP:
        return "cannot tell", ["no embeddings were examined: pass embeddings to qualify_judge"]
    return "cannot tell", ["the package has no labelled items for it: compare its scores with your own labels"]


def _assess(thresholds: FitnessThresholds, share: Proportion, detail: str = "") -> Iterator[tuple[Fitness, str]]:
    """Yield the verdict on a proportion with its reason; nothing if the proportion has no value."""
    if share.low is None or share.high is None:
        return
    if share.low >= thresholds.fit:
        level: Fitness = "fit"
    elif share.low >= thresholds.care:
        level = "fit with care"
    else:
        level = "unfit" if share.high < thresholds.care else "cannot tell"
    yield level, f"{thresholds.name} {share}{detail}"


def _assess_right(
    right: Proportion, unread: float, words: float, said: Mapping[str, int]
) -> Iterator[tuple[Fitness, str]]:
    """Yield the verdict on the share of right verdicts, compared with the shares of two judges that do not understand.

    One does not read the texts, the other compares words.
    """
    detail, limit = "", _ORDER[-1]
    if right.value is not None and right.value <= unread:
        constant = f": every verdict was {next(iter(said))!r}" if len(said) == 1 else ""
        detail, limit = f"{constant}, no better than the {unread:.0%} possible without reading the texts", _ORDER[0]
    elif right.low is not None and right.low <= unread:
        detail, limit = f", perhaps no better than the {unread:.0%} possible without reading the texts", _ORDER[1]
    elif right.value is not None and right.value <= words:
        detail, limit = f", no better than the {words:.0%} that word overlap gets right", _ORDER[1]
    for level, reason in _assess(RIGHT, right, detail):
        yield min(level, limit, key=_ORDER.index), reason


def _first_chunk_bias(citations: Citations) -> str:
    first = citations.first
    if first.low is None or first.low <= citations.due_first:
        return ""
    return f": {first.value:.0%} are of the first chunk, {citations.due_first:.0%} would be right"
