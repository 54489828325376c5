"""Conversation metrics: whether the assistant contradicts itself, respects what the user said, and meets their needs.

Each score is from 0 to 1, higher is better. The metrics judge a whole conversation, where other metrics judge one
answer. The definitions are our own. DeepEval has similar metrics: knowledge retention (here retention) and conversation
completeness (here resolution).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.supported import MAX_QUOTED, Value, and_more, quote
from langchain_rageval.steps import check_turns
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

NO_HISTORY = "the sample has no history"
ONE_STATING_TURN = "fewer than two turns of the assistant state facts"
NO_USER_FACTS = "the user states no facts that later turns could keep to"
NOTHING_TOUCHED = "no later turn touches what the user stated"
NO_NEEDS = "the user needs nothing"


def conversation_metrics(judge: JudgeLike, *, name: str = "conversation") -> Suite:
    """Score a conversation as a whole: the history, the question and the answer of a sample.

    - `conversation_consistency`: share of the assistant's statements that no statement in another turn of the assistant
      contradicts. An explicit correction is no contradiction.
    - `conversation_retention`: share of the facts stated by the user that the assistant respects: it neither asks for
      them again nor ignores them.
    - `conversation_resolution`: share of the user's needs that are met by the end, without needs that were withdrawn.

    Score only the last sample of each conversation, which contains the whole conversation.
    `samples_of(conversation)[-1]` is this sample, and `evaluate` reads it from a file. `last_turns` of
    `langchain_rageval.data.conversations` selects the last samples from the samples of many conversations.

    Args:
        judge: called up to four times per sample: to list what the turns say, which the three metrics share, and once
            for each metric. Options of the judge may add calls: each vote is a call (`draws`, or a `jury`), at most
            `max_statements` facts or needs are sent in one call, and a conversation that is longer than
            `max_context_tokens` is sent in parts.
        name: prefix of the names of the scores.

    Returns:
        A suite of three metrics that read `question`, `answer` and `history`. Findings of the kind "turn" hold the
        statements, facts or needs. Each cites the number of its turn, then the numbers of the turns that decide the
        verdict. Turns are the messages of both sides, numbered from 1. Without history all three are unscored.
        Consistency needs statements in two turns, retention a fact and resolution a need; otherwise they are unscored.
    """

    def part(kind: str, check: JudgeStep, value: Callable[[State], Value], under: str, labels: Sequence[str]) -> Metric:
        return Metric(
            f"{name}_{kind}",
            aspect="conversation",
            reads={"question", "answer", "history"},
            steps=check_turns.list_turn_facts(judge) | check,
            reduce=value,
            state_from_findings=partial(_state_from_findings, under=under, labels=frozenset(labels)),
        )

    contradictions = check_turns.find_contradictions(judge)
    facts, needs = check_turns.check_user_facts(judge), check_turns.check_needs(judge)
    return suite(
        part("consistency", contradictions, consistent_share, "consistency_verdicts", check_turns.CONSISTENCY),
        part("retention", facts, kept_share, "fact_verdicts", facts.labels),
        part("resolution", needs, met_share, "need_verdicts", needs.labels),
    )


def consistent_share(state: State) -> Value:
    """Return the share of the assistant's statements that no statement of another turn contradicts."""
    findings: Sequence[Finding] = state["consistency_verdicts"]
    turns = {finding.cites[0] for finding in _items(findings)}
    without = ONE_STATING_TURN if len(turns) < 2 else None
    return _share(state["sample"], findings, check_turns.CONSISTENT, "consistency", without)


def kept_share(state: State) -> Value:
    """Return the share of the user's facts that the assistant respects.

    A fact counts only if a later turn is about it. Unscored if no fact counts, or if the sample has no history.
    """
    findings: Sequence[Finding] = state["fact_verdicts"]
    without = None if _counted(findings) else NOTHING_TOUCHED if _items(findings) else NO_USER_FACTS
    return _share(state["sample"], findings, check_turns.KEPT, "retention", without)


def met_share(state: State) -> Value:
    """Return the share of the user's needs that are met. Needs that the user withdrew do not count."""
    findings: Sequence[Finding] = state["need_verdicts"]
    return _share(state["sample"], findings, check_turns.MET, "resolution", None if _counted(findings) else NO_NEEDS)


def _share(sample: Sample, findings: Sequence[Finding], good: str, code: str, without: str | None) -> Value:
    """Return the share of the items with the verdict `good`; unscored without history, or if `without` says why."""
    if not sample.history:
        return Value.without(NO_HISTORY)
    if without is not None:
        return Value.without(without, findings)
    counted = _counted(findings)
    right = sum(finding.verdict == good for finding in counted)
    exceptions = [finding for finding in counted if finding.verdict != good]
    notes = [Note(f"turn-{one.verdict}", text=quote(one.text), turns=one.cites) for one in exceptions[:MAX_QUOTED]]
    summary = Note(code, right=right, count=len(counted))
    reason = explain(sample.language_text, summary, *notes, *and_more(len(exceptions)))
    return Value(right / len(counted), reason, findings)


def _items(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind != "agreement"]


def _counted(findings: Sequence[Finding]) -> list[Finding]:
    uncounted = (check_turns.WITHDRAWN, check_turns.NOT_TOUCHED)
    return [finding for finding in _items(findings) if finding.verdict not in uncounted]


def _state_from_findings(sample: Sample, score: Score, *, under: str, labels: frozenset[str]) -> State | None:
    """Return the state from the findings of a score, or None if it is that of another metric."""
    items = _items(score.findings)
    if any(finding.kind != "turn" or finding.verdict not in labels or not finding.cites for finding in items):
        return None
    return {"sample": sample, under: score.findings}
