"""step_statistics: proportions with intervals from the results of all probes (test requests) of one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from langchain_rageval.data.schema import Usage
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, CitedVerdict
from langchain_rageval.trust.fitness import assess_step
from langchain_rageval.trust.labelled_item import Label
from langchain_rageval.trust.probe import ProbeResult, Variant
from langchain_rageval.trust.qualification import Citations, Proportion, StepQualification


def step_statistics(step: str, results: Sequence[ProbeResult], words: float, usage: Usage) -> StepQualification:
    """Return the statistics of a step, with the conclusion whether the judge is fit for it, and why.

    Args:
        step: its name.
        results: results of all its probes (test requests), in any order.
        words: share of its labelled verdicts, from 0 to 1, that word overlap gets right.
        usage: model usage of all its probes.
    """
    reached = [result for result in results if not result.lost]
    answered = [result for result in reached if not result.error]
    first = {
        result.probe.item.id: result
        for result in answered
        if (result.probe.variant, result.probe.repeat) == ("plain", 0)
    }
    labelled = labelled_verdicts(first.values())
    lost = [result.error for result in results if result.lost]
    said = Counter(answer.verdict for _, answer in labelled)
    valid = [float(not result.error and not result.log.repeated) for result in reached if step != EMBEDDING_STEP]
    statistics: dict[str, Any] = {
        "right": Proportion.mean(float(answer.verdict in label.accepted) for label, answer in labelled),
        "unread": _unread_share(step, [label.accepted for label, _ in labelled]),
        "said": dict(said.most_common()),
        "answered": Proportion.mean(float(not result.error) for result in reached),
        "valid": Proportion.mean(valid),
        "flips": Proportion.mean(_flip_rates(answered)),
        "order_bias": Proportion.mean(_changes(first, answered, "reverse")),
        "length_bias": Proportion.mean(_changes(first, answered, "padded")),
        "citations": _citations(labelled),
        "lost": len(lost),
        "error": lost[0] if lost else "",
    }
    verdict, reasons = assess_step(words=0.0 if step == EMBEDDING_STEP else words, **statistics)
    kinds = dict.fromkeys(result.probe.item.kind for result in results)
    rungs = sum((result.log.rungs for result in answered), Counter[str]())
    token_counts = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return StepQualification(
        step=step,
        words=words,
        verdict=verdict,
        reasons=reasons,
        right_by_kind={kind: _right_share(first.values(), kind) for kind in kinds},
        rung=rungs.most_common(1)[0][0] if rungs else None,
        calls=usage.calls,
        tokens=sum(token_counts) if token_counts else None,
        seconds=usage.seconds,
        money=usage.money,
        **statistics,
    )


def _right_share(results: Iterable[ProbeResult], kind: str) -> Proportion:
    """Return the share of the labelled verdicts on items of a kind that are right."""
    labelled = labelled_verdicts(result for result in results if result.probe.item.kind == kind)
    return Proportion.mean(float(answer.verdict in label.accepted) for label, answer in labelled)


def _unread_share(step: str, accepted: Sequence[Sequence[str]]) -> float:
    """Return the share of right verdicts, from 0 to 1, that a judge reaches without reading the texts.

    It is the `chance` of the step, or else the share that the best constant answer gets right.
    """
    chance = EXAMINATIONS[step].chance
    if chance is not None or not accepted:
        return chance or 0.0
    return max(Counter(verdict for verdicts in accepted for verdict in verdicts).values()) / len(accepted)


def _flip_rates(answered: Sequence[ProbeResult]) -> list[float]:
    """Return for each labelled verdict the share of pairs of repeats that disagree; skip items with one repeat."""
    repeats: dict[str, list[ProbeResult]] = {}
    for result in answered:
        if result.probe.variant == "plain":
            repeats.setdefault(result.probe.item.id, []).append(result)
    return [
        sum(one != other for one, other in pairs) / len(pairs)
        for results in repeats.values()
        for place, label in enumerate(results[0].probe.item.labels)
        if label.accepted and (pairs := list(combinations([result.verdicts[place].verdict for result in results], 2)))
    ]


def _changes(first: Mapping[str, ProbeResult], answered: Sequence[ProbeResult], variant: Variant) -> list[float]:
    """Return 1 for each labelled verdict that a variant (such as reversed chunks) changes, and 0 for each other one.

    Args:
        first: id of an item to the result of its first plain probe.
        answered: results of the step without an error.
        variant: the variant to compare with the first plain probe.
    """
    pairs = [
        (first[result.probe.item.id], result)
        for result in answered
        if result.probe.variant == variant and result.probe.item.id in first
    ]
    return [
        float(before.verdict != after.verdict)
        for plain, varied in pairs
        for label, before, after in zip(plain.probe.item.labels, plain.verdicts, varied.verdicts, strict=True)
        if label.accepted
    ]


def _citations(labelled: Sequence[tuple[Label, CitedVerdict]]) -> Citations | None:
    """Return how often right verdicts cite the labelled sentences; None if no label requires a citation."""
    required = [(label, answer) for label, answer in labelled if label.evidence]
    if not required:
        return None
    right = [(label.evidence, answer.cites) for label, answer in required if answer.verdict in label.accepted]
    hits = [[_is_evidence(cite, evidence) for cite in cites] for evidence, cites in right]
    cited = [cite for _, cites in right for cite in cites]
    chunks = [evidence[0].partition(".")[0] for evidence, _ in right]
    return Citations(
        precision=Proportion.mean(sum(cite_hits) / len(cite_hits) for cite_hits in hits if cite_hits),
        recall=Proportion.mean(float(any(cite_hits)) for cite_hits in hits),
        first=Proportion.mean(float(cite.startswith("1.")) for cite in cited),
        due_first=chunks.count("1") / max(1, len(chunks)),
    )


def _is_evidence(cite: str, evidence: Sequence[str]) -> bool:
    return any(cite == number or cite.startswith(f"{number}.") for number in evidence)


def labelled_verdicts(results: Iterable[ProbeResult]) -> list[tuple[Label, CitedVerdict]]:
    """Return the scored labels of probe results, each with the verdict that the judge gave."""
    pairs = (pair for result in results for pair in zip(result.probe.item.labels, result.verdicts, strict=True))
    return [(label, answer) for label, answer in pairs if label.accepted]
