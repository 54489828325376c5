"""Evolve: rewrite a question by one kind of evolution, with one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NO_NEAR_PASSAGE, Candidate
from langchain_rageval.testset.candidate_step import (
    CandidateStep,
    drawn_text,
    numbered_passages,
    prompt_step,
    question_objection,
)
from langchain_rageval.testset.docstore import Docstore

MULTI_CONTEXT = "multi_context"


@dataclass(frozen=True)
class Kind:
    """Single kind of evolution (rewriting of a question). Journal keys contain its `repr`, so all its names are fixed.

    Attributes:
        name: name of the evolution.
        prompt: name of the packaged prompt; "" if the user supplies an instruction.
        instruction: instruction of the user; "" if there is a packaged prompt.
        adds_passage: True if the nearest passage is added before the question is rewritten.
        asks_more: True if the question must become deeper or broader, False if it is only rephrased.
        answerable: True if the documents are meant to answer the new question.
    """

    name: str
    prompt: str = ""
    instruction: str = ""
    adds_passage: bool = False
    asks_more: bool = True
    answerable: bool = True

    @property
    def own_prompt(self) -> Prompt | None:
        """Prompt with the user's instruction; None if there is a packaged prompt."""
        return None if self.prompt else Prompt(instruction=self.instruction)


class QuestionEvolver(CandidateStep):
    """Rewrites the question by one kind of evolution and keeps the old question as its parent."""

    kind: Kind
    docstore: Docstore | None

    def _option_names(self) -> Sequence[str]:
        return ["kind"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer to rewrite the question: one call; no call if a needed similar passage does not exist."""
        if self.kind.adds_passage:
            near = self.docstore.similar(state.passages[0]) if self.docstore else []
            if not near:
                trial = state.with_trial(self.kind.name, accepted=False, feedback=NO_NEAR_PASSAGE)
                return trial.reject(NO_NEAR_PASSAGE)
            state = state.replace(passages=[state.passages[0], near[0]])
        inputs = {"question": state.question, "passages": numbered_passages(state.passages)}
        answer = yield from self._ask(inputs, drawn_text(state), question_objection)
        evolved = state.with_evolution(self.kind.name).replace(
            parent=state.question, answerable=state.answerable and self.kind.answerable
        )
        return evolved.with_question(answer.question, self.kind.name)


def evolve(kind: Kind, writer: JudgeLike, docstore: Docstore | None) -> CandidateStep:
    """Return the step that rewrites a question by one kind of evolution.

    Raises:
        ConfigError: if the kind adds a passage and there is no docstore.
    """
    if kind.adds_passage and docstore is None:
        raise ConfigError(f"{kind.name} adds the nearest passage: it needs a docstore")
    step = prompt_step(kind.prompt or "evolve_reasoning", writer, kind.own_prompt)
    return QuestionEvolver(name=f"evolve_{kind.name}", model_step=step, kind=kind, docstore=docstore)
