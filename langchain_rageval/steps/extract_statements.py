"""Extract the statements of the answer, or of the references."""

from __future__ import annotations

from typing import Literal

from langchain_rageval.answers import Statements
from langchain_rageval.judge.asking import Attempts, ask, shared
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.work import Together, Work
from langchain_rageval.schema import Sample
from langchain_rageval.steps.step import State, Step

Side = Literal["answer", "reference"]


class ExtractStatements(Step):
    """Adds `<of>_statements`, a list of str: of the answer, or of all references together."""

    of: Side

    def work(self, state: State) -> Work[State]:
        """One call for each text that is not blank."""
        sample: Sample = state["sample"]
        texts = [sample.answer or ""] if self.of == "answer" else sample.references
        parts = yield Together([self._extract(sample.question, text) for text in texts if text.strip()])
        return state | {f"{self.of}_statements": [statement for part in parts for statement in part]}

    def _extract(self, question: str, text: str) -> Work[list[str]]:
        asked = self.question({"question": question, "text": text}, None, language_from=question)
        answer: Statements = yield shared(self.judge, asked, 0, ask(self.judge, asked, Attempts(self.judge.attempts)))
        return [statement.strip() for statement in answer.statements if statement.strip()]


def extract_statements(judge: JudgeLike, *, of: Side) -> Step:
    """The step that finds the statements to judge."""
    return ExtractStatements(prompt="extract_statements", judge=Judge.of(judge), answer=Statements, of=of)
