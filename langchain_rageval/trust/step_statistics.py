"""Figures: from what came of the asks of a step to shares with intervals; sums only, no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from langchain_rageval.data.schema import Usage
from langchain_rageval.trust.ask import Told, Variant
from langchain_rageval.trust.examination import EMBEDDED, EXAMINATIONS, Given
from langchain_rageval.trust.fitness import judged
from langchain_rageval.trust.items import Label
from langchain_rageval.trust.qualification import Citations, Share, StepQualification


def step_figures(step: str, told: Sequence[Told], words: float, usage: Usage) -> StepQualification:
    """The figures of a step, and what they say.

    Args:
        step: its name.
        told: what came of all that was asked.
        words: the share of its labelled verdicts that word overlap has right.
        usage: what it cost.
    """
    reached = [one for one in told if not one.lost]
    answered = [one for one in reached if not one.error]
    first = {one.ask.item.id: one for one in answered if (one.ask.variant, one.ask.time) == ("plain", 0)}
    labelled = labelled_verdicts(first.values())
    lost = [one.error for one in told if one.lost]
    said = Counter(given.verdict for _, given in labelled)
    figures: dict[str, Any] = {
        "right": Share.over([float(given.verdict in label.accepted) for label, given in labelled]),
        "unread": _unread(step, [label.accepted for label, _ in labelled]),
        "said": dict(said.most_common()),
        "answered": Share.over([float(not one.error) for one in reached]),
        "valid": Share.over([float(not one.error and not one.notes.again) for one in reached if step != EMBEDDED]),
        "flips": Share.over(_flips(answered)),
        "order_bias": Share.over(_changed(first, answered, "reverse")),
        "length_bias": Share.over(_changed(first, answered, "padded")),
        "citations": _citations(labelled),
        "lost": len(lost),
        "error": lost[0] if lost else "",
    }
    verdict, reasons = judged(**figures)
    rungs = sum((one.notes.rungs for one in answered), Counter[str]())
    reported = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return StepQualification(
        step=step,
        words=words,
        verdict=verdict,
        reasons=reasons,
        rung=rungs.most_common(1)[0][0] if rungs else None,
        calls=usage.calls,
        tokens=sum(reported) if reported else None,
        seconds=usage.seconds,
        **figures,
    )


def _unread(step: str, accepted: Sequence[Sequence[str]]) -> float:
    """The share of right verdicts of the best judge with only one answer, or of one who guesses."""
    chance = EXAMINATIONS[step].chance
    if chance is not None or not accepted:
        return chance or 0.0
    return max(Counter(verdict for each in accepted for verdict in each).values()) / len(accepted)


def _flips(answered: Sequence[Told]) -> list[float]:
    """Of each labelled verdict, the share of pairs of asks that do not agree on it."""
    asks: dict[str, list[Told]] = {}
    for one in answered:
        if one.ask.variant == "plain":
            asks.setdefault(one.ask.item.id, []).append(one)
    return [
        sum(one != other for one, other in pairs) / len(pairs)
        for several in asks.values()
        for place, label in enumerate(several[0].ask.item.labels)
        if label.accepted and (pairs := list(combinations([one.given[place].verdict for one in several], 2)))
    ]


def _changed(first: Mapping[str, Told], answered: Sequence[Told], variant: Variant) -> list[float]:
    """Of each labelled verdict, whether the variant changes it."""
    pairs = [
        (first[one.ask.item.id], one) for one in answered if one.ask.variant == variant and one.ask.item.id in first
    ]
    return [
        float(before.verdict != after.verdict)
        for plain, other in pairs
        for label, before, after in zip(plain.ask.item.labels, plain.given, other.given, strict=True)
        if label.accepted
    ]


def _citations(labelled: Sequence[tuple[Label, Given]]) -> Citations | None:
    """The citations of right verdicts that owe one; None where no label names any."""
    due = [(label, given) for label, given in labelled if label.evidence]
    if not due:
        return None
    owing = [(label.evidence, given.cites) for label, given in due if given.verdict in label.accepted]
    hits = [[_decides(cite, evidence) for cite in cites] for evidence, cites in owing]
    cited = [cite for _, cites in owing for cite in cites]
    chunks = [evidence[0].partition(".")[0] for evidence, _ in owing]
    return Citations(
        precision=Share.over([sum(each) / len(each) for each in hits if each]),
        recall=Share.over([float(any(each)) for each in hits]),
        first=Share.over([float(cite.startswith("1.")) for cite in cited]),
        due_first=chunks.count("1") / max(1, len(chunks)),
    )


def _decides(cite: str, evidence: Sequence[str]) -> bool:
    return any(cite == number or cite.startswith(f"{number}.") for number in evidence)


def labelled_verdicts(told: Iterable[Told]) -> list[tuple[Label, Given]]:
    """The labels that name a right verdict, each with what was given."""
    pairs = (pair for one in told for pair in zip(one.ask.item.labels, one.given, strict=True))
    return [(label, given) for label, given in pairs if label.accepted]
