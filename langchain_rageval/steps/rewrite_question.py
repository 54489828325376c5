"""Rewrite the question of a conversation so that it is understood without the conversation.

The judge reads the question and the history, of which the oldest turns are left out if they exceed the judge's
`max_context_tokens`. Replaces `sample` by a copy whose question stands on its own, which all later steps judge, and
adds `standalone_question`, a StandaloneQuestion, and `question_findings`, a list of one Finding. Makes no call and adds
nothing if the sample has no history.

A rewrite is checked without a model: one that is blank, or has names or numbers that neither the question nor the
history contains, is refused. The question then stays as it is, and the finding gives the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample, Turn
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import StandaloneQuestion
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.usage_meter import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.judge_step import JudgeStep, State
from langchain_rageval.steps.question_checks import new_facts
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.normalization import normalize_text

REWRITTEN, UNCHANGED, REFUSED = "rewritten", "unchanged", "refused"


class RewriteQuestion(JudgeStep):
    """Step that replaces `sample` by one with a standalone question and adds `standalone_question`."""

    def work(self, state: State) -> Operation[State]:
        """Ask the judge once if the sample has a history."""
        sample: Sample = state["sample"]
        if not sample.history:
            return state
        judge = self.judge.members[0]
        history = recent_turns(sample.history, judge.max_context_tokens)
        question = self.build_question(
            {"history": history_data(history), "question": sample.question},
            None,
            language_from=sample.question,
            limits=AnswerLimits(),
        )
        answer: StandaloneQuestion = yield self.ask(question)
        accepted, finding = _checked(sample, answer)
        return state | {
            "sample": sample.model_copy(update={"question": accepted.question}),
            "standalone_question": accepted,
            "question_findings": [finding],
        }


def rewrite_question(judge: JudgeLike) -> JudgeStep:
    """Return the step that makes the question of a sample with a history understandable on its own."""
    return RewriteQuestion(prompt="rewrite_question", judge=Judge.of(judge), answer=StandaloneQuestion)


def history_data(history: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return turns as data of a request."""
    return [turn.model_dump() for turn in history]


def recent_turns(history: Sequence[Turn], most_tokens: int | None) -> list[Turn]:
    """Return the last turns that fit into a number of tokens, and at least the last one; all if it is None."""
    if most_tokens is None:
        return list(history)
    left = most_tokens * CHARACTERS_PER_TOKEN
    recent: list[Turn] = []
    for turn in reversed(history):
        left -= len(turn.text)
        if recent and left < 0:
            break
        recent.append(turn)
    return recent[::-1]


def _checked(sample: Sample, answer: StandaloneQuestion) -> tuple[StandaloneQuestion, Finding]:
    """Return the answer with the question to judge, and a finding: rewritten, unchanged, or refused and why."""
    question, rewrite = sample.question, answer.question.strip()
    problem = _problem(sample, rewrite)
    if problem:
        finding = _finding(question, REFUSED, problem)
        return StandaloneQuestion(reason=answer.reason, question=question), finding
    if normalize_text(rewrite) == normalize_text(question):
        return StandaloneQuestion(reason=answer.reason, question=question), _finding(question, UNCHANGED, answer.reason)
    accepted = StandaloneQuestion(reason=answer.reason, question=rewrite)
    return accepted, _finding(rewrite, REWRITTEN, answer.reason)


def _problem(sample: Sample, rewrite: str) -> str:
    """Return why a rewrite cannot be used, in the language of the question; "" if it can."""
    russian = detect_language(sample.question) == "ru"
    if not rewrite:
        return (
            "вопрос взят как есть: судья вернул пустой вопрос"
            if russian
            else ("the question was judged as it is: the judge returned an empty one")
        )
    facts = new_facts(rewrite, "\n".join([sample.question, *(turn.text for turn in sample.history)]))
    if not facts:
        return ""
    names = ", ".join(facts)
    return (
        f"вопрос взят как есть: в переписанном «{rewrite}» добавлено: {names}"
        if russian
        else f"the question was judged as it is: the rewrite {rewrite!r} adds {names}"
    )


def _finding(question: str, verdict: str, reason: str) -> Finding:
    return Finding(kind="standalone_question", number=1, text=question, verdict=verdict, reason=reason)
