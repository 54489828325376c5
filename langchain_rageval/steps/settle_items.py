"""Settle items: ask a judge about numbered items, and again about those without a verdict or without its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question
from langchain_rageval.judge.voting import Voter
from langchain_rageval.run.requests import Operation

_Item = TypeVar("_Item")
_Verdict = TypeVar("_Verdict")


def settle_items(
    voter: Voter,
    judge_question: JudgeQuestion[Any],
    items: Mapping[int, _Item],
    *,
    question_about: Callable[[Mapping[int, _Item]], JudgeQuestion[Any]],
    read: Callable[[Any, Mapping[int, _Item]], Mapping[int, _Verdict]],
    lacks_evidence: Callable[[_Verdict], bool],
    names: str,
) -> Operation[dict[int, _Verdict]]:
    """Ask one judge about items until each has a verdict; repeat the question for those without one.

    A verdict that lacks evidence is asked for again, once; a later verdict replaces it.

    Args:
        voter: judge, and draw of the vote.
        judge_question: question about all items.
        items: items by number.
        question_about: function from some of the items to the question about them.
        read: function from a reply and the items of its request to the verdicts by number; an item without a single
            verdict is left out.
        lacks_evidence: function that returns True for a verdict that must be proved and is not.
        names: what the items are, in the plural, for the error.

    Raises:
        JudgeOutputError: if no attempt is left for an item without a verdict.
    """
    attempts = Attempts(voter.judge.attempts)
    settled: dict[int, _Verdict] = {}
    repeated: set[int] = set()
    pending = items
    while pending and attempts.left:
        if pending is not items:
            judge_question = repeat_question(question_about(pending))
        try:
            answer = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
        except JudgeOutputError:
            if items.keys() <= settled.keys():
                break
            raise
        settled |= read(answer, pending)
        unproven = {n for n in pending if n in settled and lacks_evidence(settled[n])} - repeated
        repeated |= unproven
        pending = {n: item for n, item in items.items() if n not in settled or n in unproven}
    if missing := sorted(items.keys() - settled.keys()):
        problem = f"no single verdict for the {names} {missing}"
        raise JudgeOutputError(problem, judge_question.request.step, answer.model_dump_json())
    return settled
