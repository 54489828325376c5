"""Extract the statements of the answer, or of the references."""

from __future__ import annotations

from typing import Literal

from langchain_rageval.answers import Statements
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.work import Together, Work
from langchain_rageval.schema import Sample
from langchain_rageval.steps.step import State, Step

Side = Literal["answer", "reference"]


class ExtractStatements(Step):
    """Adds `<of>_statements`, a list of str: of the answer, or of all references together, each once.

    Of the references it also adds `statements_by_reference`, a list for each reference in order.
    """

    of: Side
    for_contexts: bool = False

    def work(self, state: State) -> Work[State]:
        """One call for each text that is not blank; none when there are no contexts to compare with but should be."""
        sample: Sample = state["sample"]
        texts = [sample.answer or ""] if self.of == "answer" else sample.references
        if self.for_contexts and not any(context.strip() for context in sample.contexts or []):
            texts = []
        parts = yield Together([self._extract(sample.question, text) for text in texts])
        statements = [statement for part in parts for statement in part]
        if self.of == "answer":
            return state | {"answer_statements": statements}
        return state | {"reference_statements": list(dict.fromkeys(statements)), "statements_by_reference": parts}

    def _extract(self, question: str, text: str) -> Work[list[str]]:
        if not text.strip():
            return []
        answer: Statements = yield self.asked(
            self.question({"question": question, "text": text}, None, language_from=question)
        )
        return [statement.strip() for statement in answer.statements if statement.strip()]


def extract_statements(judge: JudgeLike, *, of: Side, for_contexts: bool = False) -> Step:
    """The step that finds the statements to judge.

    Args:
        judge: who is asked.
        of: the "answer", or the "reference": all of them.
        for_contexts: whether statements are of no use when the contexts hold no words.
    """
    return ExtractStatements(
        prompt="extract_statements", judge=Judge.of(judge), answer=Statements, of=of, for_contexts=for_contexts
    )
