"""Answer completeness: the share of the parts of a question with which the answer deals, rightly or wrongly.

From 0 to 1, higher is better. The judge gives one verdict for each part of the question. The metric `rubric`, in
contrast, by default gives one grade for the completeness of the whole answer. This module is also an example of a
metric that you write yourself: it defines its own prompt and its own class of the judge's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.step import Step
from langchain_rageval.text.words import stems_of, words_of

NO_PARTS = "the question asks for nothing"
COVERED, MISSING = "covered", "missing"


class QuestionPart(BaseModel):
    """One thing that the question asks for, numbered from 1, and whether the answer deals with it."""

    number: int
    part: str
    reason: str
    covered: bool


class QuestionParts(BaseModel):
    """All things that the question asks for, in its order."""

    parts: list[QuestionPart]


_PROMPTS = {
    "en": Prompt(
        instruction="List each thing that `question` asks for, as a short phrase; a question about one thing has one "
        "part. In `reason` say what `answer` states about the part. Set `covered` to true if the answer deals with the "
        "part, whether rightly or wrongly, and to false if it leaves the part open.",
        examples=[
            {
                "input": {"question": "When does the pool open, and what is a ticket?", "answer": "It opens at 7."},
                "output": {
                    "parts": [
                        {"number": 1, "part": "opening time", "reason": "7 o'clock is named", "covered": True},
                        {"number": 2, "part": "price of a ticket", "reason": "no price is named", "covered": False},
                    ]
                },
            }
        ],
    ),
    "ru": Prompt(
        instruction="Перечислите короткими фразами всё, о чём спрашивает `question`; если вопрос об одном, часть одна. "
        "В `reason` напишите, что об этой части сказано в `answer`. Поставьте в `covered` true, если ответ касается "
        "этой части, верно или неверно, и false, если он оставляет её без ответа.",
        examples=[
            {
                "input": {
                    "question": "Когда открывается бассейн и сколько стоит билет?",
                    "answer": "Он открывается в 7.",
                },
                "output": {
                    "parts": [
                        {"number": 1, "part": "время открытия", "reason": "названо 7 часов", "covered": True},
                        {"number": 2, "part": "цена билета", "reason": "цена не названа", "covered": False},
                    ]
                },
            }
        ],
    ),
}


def _answer_offline(inputs: Mapping[str, Any]) -> QuestionParts:
    """Return the words of the question as its parts, covered if the answer has a word with the same stem."""
    stated = stems_of(inputs["answer"] or "")
    words = [word for word in words_of(inputs["question"]) if stems_of(word)]
    parts = ((number, word, stems_of(word) <= stated) for number, word in enumerate(words, 1))
    return QuestionParts(
        parts=[QuestionPart(number=n, part=word, reason="", covered=is_in) for n, word, is_in in parts]
    )


list_question_parts = Step(QuestionParts, prompts=_PROMPTS, reads=("question", "answer"), offline=_answer_offline)


def answer_completeness(judge: JudgeLike, *, name: str = "answer_completeness") -> Metric:
    """Score the share of the parts of the question with which the answer deals, whether rightly or wrongly.

    Args:
        judge: called once per sample, to list the parts of the question and a verdict on each. A judge with several
            votes, `Judge(model, draws=3)` or a `jury` of judges, is called once per vote. Parts with the same number
            are compared. A part counts if more than half of the votes list it; the majority of these votes decides
            whether it is covered. If these votes are tied, the sample is unscored.
        name: key of the score.

    Returns:
        A metric that reads `question` and `answer`: covered parts / parts. A blank answer is 0; a question that asks
        for nothing is unscored. Findings of the kind "criterion" are the parts in order, "covered" or "missing".
    """
    return Metric(
        name, aspect="answer", reads={"question", "answer"}, steps=list_question_parts(judge), reduce=covered_share
    )


def covered_share(state: State) -> Value:
    """Return the share of the parts of the question that the answer covers."""
    sample: Sample = state["sample"]
    parts: list[QuestionPart] = state["question_parts"].parts
    if not (sample.answer or "").strip():
        return Value(0.0, explain(sample.language_text, Note("blank-answer")))
    if not parts:
        return Value.without(NO_PARTS)
    missing = [part.part for part in parts if not part.covered]
    findings = [
        Finding(
            kind="criterion",
            number=number,
            text=part.part,
            verdict=COVERED if part.covered else MISSING,
            reason=part.reason,
        )
        for number, part in enumerate(parts, 1)
    ]
    covered = len(parts) - len(missing)
    notes = [Note("covered-parts", covered=covered, count=len(parts))]
    notes += [Note("missing-parts", parts=missing)] if missing else []
    return Value(covered / len(parts), explain(sample.language_text, *notes), findings)
