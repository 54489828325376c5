"""TestsetRow: a question with its reference answer and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from langchain_rageval._internal.html import bold, details, item_list, paragraph, text
from langchain_rageval.data.schema import InputModel, Sample, Turn
from langchain_rageval.testset.candidate import Trial


class TestsetRow(InputModel):
    """A question of a test set.

    Attributes:
        id: stable identifier, a hash of question and passages.
        question: question to ask the RAG system.
        chat_history: earlier turns of the conversation that the question continues, the oldest first; `[]` for a
            question that stands alone. They are the `history` of the sample.
        contexts: texts of the passages that are needed to answer; for an unanswerable question, the texts it was
            written from.
        reference: reference answer; for an unanswerable question, the sentence that the documents do not say; "" if
            the step that writes it was left out.
        evolution: names of the evolutions, joined by "+"; "simple" if there are none.
        answerable: True if the documents answer the question.
        history: all attempts with their feedback, in order.
        passage_ids: ids of the passages, in the order of `contexts`.
        spans: source, offset of the first character and offset after the last character of each context.
        metadata: metadata of the first passage, and what evolutions add: `persona`, `style`, `bridge` (entities that
            connect the passages), `standalone_question` (a follow-up as understood without its turns).
        tree_id: id that the questions about one fact share, in a test set of trees; "" otherwise.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class

    id: str
    question: str
    chat_history: list[Turn] = Field(default_factory=list)
    contexts: list[str]
    reference: str
    evolution: str
    answerable: bool = True
    history: list[Trial] = Field(default_factory=list)
    passage_ids: list[str] = Field(default_factory=list)
    spans: list[tuple[str, int, int]] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    tree_id: str = ""

    @property
    def tree(self) -> dict[str, str]:
        """The id of the tree as metadata; empty outside of a tree."""
        return {"tree_id": self.tree_id} if self.tree_id else {}

    @property
    def standalone_question(self) -> str:
        """Question as understood without earlier turns; for a question without them, the question."""
        return str(self.metadata.get("standalone_question") or self.question) if self.chat_history else self.question

    def _repr_html_(self) -> str:
        """Return question, reference answer and history as HTML for notebooks."""
        turns = "".join(paragraph(f"<em>{text(turn.role)}</em> {text(turn.text)}") for turn in self.chat_history)
        head = turns + paragraph(bold(self.question), "(" + text(self.evolution) + ")")
        return head + paragraph(text(self.reference)) + details("history", trial_list(self.history))

    def to_sample(self) -> Sample:
        """Return a Sample without answer and contexts; without references if there is no answer to the question.

        `metadata["spans"]` holds source and offsets of each reference context, for `span_grader`.
        """
        spans = {"spans": [list(span) for span in self.spans]} if self.answerable and self.spans else {}
        return Sample(
            id=self.id,
            question=self.question,
            history=self.chat_history,
            references=[self.reference] if self.answerable and self.reference.strip() else [],
            reference_contexts=self.contexts if self.answerable else [],
            reference_context_ids=self.passage_ids if self.answerable else [],
            metadata={
                **self.metadata,
                "evolution": self.evolution,
                "answerable": self.answerable,
                **spans,
                **self.tree,
            },
        )


def trial_list(history: Sequence[Trial]) -> str:
    """Return trials (attempts of a question) as an HTML list, each with its feedback."""
    return item_list(
        [
            " ".join(["✓" if trial.accepted else "✗", bold(trial.kind), text(trial.question)])
            + (f" <em>{text(trial.feedback)}</em>" if trial.feedback else "")
            for trial in history
        ]
    )
