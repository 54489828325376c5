"""Extract the statements of the answer, of the references, or of both.

The judge reads the question and one text. Adds `answer_statements`, a list of str, and for the references
`reference_statements`, a list of the distinct statements of all references, and `statements_by_reference`, one list for
each reference; all in order of appearance. Makes no call for blank texts, nor for any text if `for_contexts` is set and
all contexts are blank; the lists are then empty. Repeated statements are dropped, and so are those beyond the number
that the text can hold; `dropped_statements` is their number, if there are any.
"""

from __future__ import annotations

from itertools import chain
from typing import Literal

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import Statements
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step, most_items

Side = Literal["answer", "reference"]


class ExtractStatements(Step):
    """Step that adds `answer_statements`, or `reference_statements` and `statements_by_reference`, or all three."""

    of: Side | Literal["both"]
    for_contexts: bool = False

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for the statements of each text: one request per text that is not blank.

        Makes no call if `for_contexts` is set and all contexts are blank.
        """
        sample: Sample = state["sample"]
        answers = [sample.answer or ""] if self.of != "reference" else []
        references = sample.references if self.of != "answer" else []
        if self.for_contexts and not any(context.strip() for context in sample.contexts or []):
            answers = references = []
        results = yield Gather([self._extract(sample.question, text) for text in [*answers, *references]])
        parts = [kept for kept, _ in results]
        dropped = sum(n_dropped for _, n_dropped in results)
        if dropped:
            state = state | {"dropped_statements": state.get("dropped_statements", 0) + dropped}
        of_answers, of_references = parts[: len(answers)], parts[len(answers) :]
        if self.of != "reference":
            state = state | {"answer_statements": list(chain.from_iterable(of_answers))}
        if self.of != "answer":
            distinct = list(dict.fromkeys(chain.from_iterable(of_references)))
            state = state | {"reference_statements": distinct, "statements_by_reference": of_references}
        return state

    def _extract(self, question: str, text: str) -> Operation[tuple[list[str], int]]:
        """Return the statements of a text, and how many were dropped."""
        if not text.strip():
            return [], 0
        answer: Statements = yield self.ask(
            self.build_question({"question": question, "text": text}, None, language_from=question)
        )
        statements = [statement.strip() for statement in answer.statements if statement.strip()]
        kept = list(dict.fromkeys(statements))[: most_items(text)]
        return kept, len(statements) - len(kept)


def extract_statements(judge: JudgeLike, *, of: Side | Literal["both"], for_contexts: bool = False) -> Step:
    """Return the step that extracts statements.

    Args:
        judge: judge to ask.
        of: "answer", "reference" (all references) or "both", which is extracted concurrently.
        for_contexts: skip the extraction if all contexts are blank, because there is nothing to verify against.
    """
    return ExtractStatements(
        prompt="extract_statements", judge=Judge.of(judge), answer=Statements, of=of, for_contexts=for_contexts
    )
