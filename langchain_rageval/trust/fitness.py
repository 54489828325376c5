"""Fitness of a judge: a verdict for each judge step from its statistics, and for each metric from its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import get_args

from langchain_rageval.data.schema import Usage
from langchain_rageval.statistics import paired_difference
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, CitedVerdict, ProbeResult, Variant
from langchain_rageval.trust.items import Label, LabelledItem
from langchain_rageval.trust.qualification import Citations, Fitness, Proportion, StepQualification

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
    "conversation_metrics": ("list_turn_facts", "find_contradictions", "check_user_facts", "check_needs"),
    "standalone_question": ("rewrite_question",),
    "critic": (
        *("grade_passage", "review_question", "compare_questions", "review_follow_up", "find_passages"),
        "answer_check",
    ),
}
"""Name of a metric, or of another task of a judge, to the names of the steps that it depends on.

Tasks: the grader that rank metrics use, rewriting the question of a conversation before it is judged, and the critic of
a test set generator.
"""

BASELINES: Mapping[str, str] = {
    "constant": "without reading the texts",
    "word_overlap": "word overlap",
    "rules": "rules about the surface of texts",
}
"""Judges that do not understand, which a judge must exceed."""

Hits = Mapping[LabelledItem, Mapping[str, Sequence[bool]]]
Labelled = tuple[Label, CitedVerdict, LabelledItem]

_NO_EMBEDDINGS = "no embeddings were examined: add embeddings (--embeddings MODEL)"
_NO_ITEMS = "no labelled item examines it: write items for it, or compare its scores with labels of people"
_LEAST_VERDICTS = 6  # a coin gets five or fewer verdicts all wrong in 3% of cases or more
_MOST_LOST = 0.1  # of the questions; the lost ones may be the hard ones
_ORDER: tuple[Fitness, ...] = get_args(Fitness)


# If a share p of verdicts is right and errors go both ways, a metric that counts verdicts moves by 2p - 1 of the true
# difference: .6 at 80%; .4 at 70%, where detecting a difference between two systems takes more than six times as many
# samples. The same holds for verdicts that depend on chance, order or padding. A question without an answer has no
# score; if more than a fifth are missing, the rest is not a fair sample.
_FIT, _CARE = 0.8, 0.7


def assess_step(step: StepQualification) -> tuple[Fitness, list[str]]:
    """Return the verdict on a judge step, which is the worst verdict on any of its statistics, and the reasons.

    The reasons are one text for each statistic whose verdict is not "fit", the worst verdict first. If all are "fit",
    the only reason is the share of right verdicts.
    """
    citations = step.citations
    found = [
        *_assess("right verdicts", step.plain if step.plain.of else step.right),
        *_assess("questions answered", step.answered),
        *_assess("verdicts unchanged when asked again", step.flips.complement),
        *_assess("verdicts unchanged in reverse order", step.order_bias.complement),
        *_assess("verdicts unchanged by an irrelevant sentence", step.length_bias.complement),
        *_assess("replies valid at once", step.valid, care=0.0),  # a repeated request only costs another call
        *_assess_lead(step.lead, step.verdicts, step.hard if step.hard.of else step.right),
    ]
    if citations:  # they justify a verdict; more sentences may do so than the label names
        first, due = citations.first, citations.due_first
        is_biased = first.low is not None and first.low > due
        bias = f": {first.value:.0%} are of the first chunk, {due:.0%} would be right" if is_biased else ""
        found += _assess("relevant citations", citations.precision, 0.7, 0.5, bias)
        found += _assess("right verdicts with a relevant citation", citations.recall, 0.7, 0.5)
    questions = step.answered.of + step.lost
    if step.lost > _MOST_LOST * questions:
        found.append(("cannot tell", f"{step.lost} of {questions} questions failed in transport: {step.error}"))
    if not step.right.of:
        found.append(("cannot tell", "no verdict was obtained"))
    found.sort(key=lambda pair: _ORDER.index(pair[0]))
    reasons = [reason for level, reason in found if level != "fit"]
    return found[0][0], reasons or [f"right verdicts {step.right}"]


def assess_metric(steps: Mapping[str, tuple[Fitness, Sequence[str]]], metric: str) -> tuple[Fitness, str]:
    """Return the verdict on a metric, which is the worst verdict on its judge steps, and one text with the reasons.

    `steps` maps the name of each examined step to its verdict and reasons. Other steps of the metric count as "cannot
    tell".
    """
    none = {step: _NO_EMBEDDINGS if step == EMBEDDING_STEP else _NO_ITEMS for step in STEPS_OF[metric]}
    verdicts = {step: steps.get(step, ("cannot tell", [reason])) for step, reason in none.items()}
    worst = min((level for level, _ in verdicts.values()), key=_ORDER.index)
    ordered = sorted(verdicts.items(), key=lambda pair: _ORDER.index(pair[1][0]))
    return worst, " ".join(f"{step}: {'; '.join(reasons)}." for step, (_, reasons) in ordered)


def _assess(
    name: str, share: Proportion, fit: float = _FIT, care: float = _CARE, detail: str = ""
) -> Iterator[tuple[Fitness, str]]:
    """Yield the verdict on a proportion with its reason; nothing if the proportion has no value.

    Args:
        name: name of the proportion in the reason.
        share: the proportion.
        fit: smallest lower end of the 95% interval at which the judge is "fit".
        care: smallest lower end at which the judge is "fit with care". With a smaller one, the judge is "unfit" only
            if the upper end of the interval is below `care`, too; otherwise the verdict remains open.
        detail: end of the reason.
    """
    if share.low is None or share.high is None:
        return
    if share.low >= fit:
        level: Fitness = "fit"
    elif share.low >= care:
        level = "fit with care"
    else:
        level = "unfit" if share.high < care else "cannot tell"
    yield level, f"{name} {share}{detail}"


def _assess_lead(
    lead: Mapping[str, tuple[float, float, float]], verdicts: Mapping[str, int], right: Proportion
) -> Iterator[tuple[Fitness, str]]:
    """Yield a verdict for each baseline, a judge that does not understand, that the judge does not clearly exceed.

    If both get everything right, the items do not tell them apart.
    """
    constant = f"every verdict was {next(iter(verdicts))!r}, " if len(verdicts) == 1 else ""
    for name, (mean, low, _) in lead.items():
        if mean <= 0 and right.value != 1 and right.of >= _LEAST_VERDICTS:
            yield "unfit", f"{constant}no better on hard items than {BASELINES[name]}"
        elif low <= 0:
            yield "cannot tell", f"perhaps no better on hard items than {BASELINES[name]}"


def step_statistics(step: str, results: Sequence[ProbeResult], hits: Hits, usage: Usage) -> StepQualification:
    """Return the statistics of a step, with the verdict whether the judge is fit for the step, and the reasons.

    Args:
        step: name of the step.
        results: results of all probes (test requests) of the step, in any order.
        hits: mapping from each item to the hits of the baselines (judges that do not understand) "word_overlap" and
            "rules": True for each scored label that the baseline gets right, else False.
        usage: model usage of all probes of the step.
    """
    reached = [result for result in results if not result.lost]
    answered = [result for result in reached if result.failure is None]
    first = {result.probe.item: result for result in answered if result.probe.is_first}
    labelled = [
        (label, answer, result.probe.item)
        for result in first.values()
        for label, answer in zip(result.probe.item.labels, result.verdicts, strict=True)
        if label.accepted
    ]
    halves = {half: [one for one in labelled if one[2].half == half] for half in ("plain", "hard")}
    lost = [result.failure for result in results if result.lost and result.failure]
    valid = [
        (float(result.failure is None and not result.log.repeated), result.probe.item.pair)
        for result in reached
        if step != EMBEDDING_STEP
    ]
    shares, lead = _leads(step, halves["hard"] or labelled, hits)
    kinds = dict.fromkeys(result.probe.item.kind for result in results)
    rungs = sum((result.log.rungs for result in answered), Counter[str]())
    found = StepQualification(
        step=step,
        verdict="cannot tell",
        reasons=[],
        output_mode=rungs.most_common(1)[0][0] if rungs else None,
        valid=Proportion.of_units(valid),
        answered=Proportion.of_units((float(result.failure is None), result.probe.item.pair) for result in reached),
        right=_right_share(labelled),
        plain=_right_share(halves["plain"]),
        hard=_right_share(halves["hard"]),
        right_by_kind={kind: _right_share([one for one in labelled if one[2].kind == kind]) for kind in kinds},
        **shares,  # of the baselines: constant, word_overlap and rules
        lead=lead,
        verdicts=dict(Counter(answer.verdict for _, answer, _ in labelled).most_common()),
        flips=Proportion.of_units(_change_rates(answered, "plain")),
        citations=_citations(labelled),
        order_bias=Proportion.of_units(_change_rates(answered, "reverse")),
        length_bias=Proportion.of_units(_change_rates(answered, "padded")),
        calls=usage.calls,
        tokens=usage.tokens,
        seconds=usage.seconds,
        lost=len(lost),
        error=lost[0].text if lost else "",
        money=usage.money,
    )
    verdict, reasons = assess_step(found)
    return replace(found, verdict=verdict, reasons=reasons)


def _right_share(labelled: Iterable[Labelled]) -> Proportion:
    """Return the share of labelled verdicts that are right."""
    return Proportion.of_units((float(answer.verdict in label.accepted), item.pair) for label, answer, item in labelled)


def _leads(
    step: str, labelled: Sequence[Labelled], hits: Hits
) -> tuple[dict[str, float], dict[str, tuple[float, float, float]]]:
    """Return the share of verdicts that each baseline gets right, and how much more often the judge is right.

    The baseline of embeddings is chance alone: word overlap can do their task.
    """
    chance = EXAMINATIONS[step].chance
    constant = Counter(verdict for label, *_ in labelled for verdict in label.accepted).most_common(1)
    baselines = {
        "constant": [chance if chance is not None else float(constant[0][0] in one.accepted) for one, *_ in labelled]
    }
    items = dict.fromkeys(item for *_, item in labelled)
    for name in ("word_overlap", "rules"):
        baselines[name] = [float(hit) for item in items for hit in hits[item][name]]
    lead = {}
    for name in baselines if labelled and chance is None else ("constant",) if labelled else ():
        differences = [
            float(answer.verdict in label.accepted) - hit
            for (label, answer, _), hit in zip(labelled, baselines[name], strict=True)
        ]
        found = paired_difference(differences, [item.pair for *_, item in labelled])
        lead[name] = (found.mean, found.low, found.high)
    return {name: sum(own) / max(1, len(own)) for name, own in baselines.items()}, lead


def _change_rates(answered: Iterable[ProbeResult], variant: Variant) -> list[tuple[float, str]]:
    """Return for each labelled verdict the share of pairs of probes of its item that disagree, with the item's pair.

    For "plain", the pairs are those of all repeats. For another variant (such as reversed chunks), it is one pair: the
    first repeat and the probe of that variant. Verdicts without a pair of answered probes are left out.
    """
    by_item: dict[LabelledItem, list[ProbeResult]] = {}
    for result in answered:
        if result.probe.variant == variant or result.probe.is_first:
            by_item.setdefault(result.probe.item, []).append(result)
    return [
        (sum(one != other for one, other in pairs) / len(pairs), results[0].probe.item.pair)
        for results in by_item.values()
        for place, label in enumerate(results[0].probe.item.labels)
        if label.accepted and (pairs := list(combinations([result.verdicts[place].verdict for result in results], 2)))
    ]


def _citations(labelled: Sequence[Labelled]) -> Citations | None:
    """Return how often right verdicts cite the labelled sentences; None if no label requires a citation."""
    required = [one for one in labelled if one[0].evidence]
    if not required:
        return None
    right = [
        (label.evidence, answer.cites, item.pair)
        for label, answer, item in required
        if answer.verdict in label.accepted
    ]
    hits = [
        ([any(f"{cite}.".startswith(f"{number}.") for number in evidence) for cite in cites], item)
        for evidence, cites, item in right
    ]
    cited = [(float(cite.startswith("1.")), item) for _, cites, item in right for cite in cites]
    chunks = [evidence[0].partition(".")[0] for evidence, *_ in right]
    return Citations(
        precision=Proportion.of_units((sum(own) / len(own), item) for own, item in hits if own),
        recall=Proportion.of_units((float(any(own)), item) for own, item in hits),
        first=Proportion.of_units(cited),
        due_first=chunks.count("1") / max(1, len(chunks)),
    )
