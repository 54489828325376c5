"""Extract the statements of the answer, of the references, or of both."""

from __future__ import annotations

from itertools import chain
from typing import Literal

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import Statements
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step

Side = Literal["answer", "reference"]


class ExtractStatements(Step):
    """Adds `answer_statements`, a list of str, or `reference_statements`, those of all references, each once; or both.

    Of the references it also adds `statements_by_reference`, a list for each reference in order.
    """

    of: Side | Literal["both"]
    for_contexts: bool = False

    def work(self, state: State) -> Operation[State]:
        """One call for each text that is not blank; none when there are no contexts to compare with but should be."""
        sample: Sample = state["sample"]
        answers = [sample.answer or ""] if self.of != "reference" else []
        references = sample.references if self.of != "answer" else []
        if self.for_contexts and not any(context.strip() for context in sample.contexts or []):
            answers = references = []
        parts = yield Gather([self._extract(sample.question, text) for text in [*answers, *references]])
        of_answers, of_references = parts[: len(answers)], parts[len(answers) :]
        if self.of != "reference":
            state = state | {"answer_statements": list(chain.from_iterable(of_answers))}
        if self.of != "answer":
            once = list(dict.fromkeys(chain.from_iterable(of_references)))
            state = state | {"reference_statements": once, "statements_by_reference": of_references}
        return state

    def _extract(self, question: str, text: str) -> Operation[list[str]]:
        if not text.strip():
            return []
        answer: Statements = yield self.asked(
            self.question({"question": question, "text": text}, None, language_from=question)
        )
        return [statement.strip() for statement in answer.statements if statement.strip()]


def extract_statements(judge: JudgeLike, *, of: Side | Literal["both"], for_contexts: bool = False) -> Step:
    """The step that finds the statements to judge.

    Args:
        judge: who is asked.
        of: the "answer", or the "reference": all of them. "both" are asked for at the same time.
        for_contexts: whether statements are of no use when the contexts hold no words.
    """
    return ExtractStatements(
        prompt="extract_statements", judge=Judge.of(judge), answer=Statements, of=of, for_contexts=for_contexts
    )
