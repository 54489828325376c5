"""Evolutions: rewritings that make a question harder, or more like a question of a user. `|` composes them.

Source of the idea: Xu et al. 2023, "WizardLM: Empowering Large Language Models to Follow Complex Instructions",
arXiv:2304.12244, section 3 (Evol-Instruct).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

SIMPLE = "simple"
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


@dataclass(frozen=True)
class Evolution:
    """Sequence of evolution kinds (rewritings of a question); an empty sequence leaves the question unchanged.

    `reasoning | conditional` is the sequence of both. Called with a writer, an evolution builds the step that rewrites
    the question: `reasoning(writer)`.

    Attributes:
        kinds: kinds in the order in which they are applied.
    """

    kinds: tuple[Kind, ...] = ()

    @property
    def name(self) -> str:
        """Name of the evolution: the names of its kinds, joined by "+"; "simple" if there are no kinds."""
        return "+".join(kind.name for kind in self.kinds) or SIMPLE

    def __or__(self, other: Evolution) -> Evolution:
        """Return the evolution that applies this evolution, then the other one."""
        if not isinstance(other, Evolution):
            return NotImplemented
        return Evolution(self.kinds + other.kinds)

    def __call__(self, writer: JudgeLike, docstore: Docstore | None = None) -> Any:
        """Return the Runnable that rewrites the question, without filters after it.

        Args:
            writer: model that rewrites; one call for each kind.
            docstore: source of the nearest passage; required for `multi_context`.

        Raises:
            ConfigError: if the evolution is `simple`, or needs a docstore and there is none.
        """
        if not self.kinds:
            raise ConfigError("simple leaves the question as it is, so it has no step: call another evolution")
        steps: list[Any] = [evolve(kind, writer, docstore) for kind in self.kinds]
        chain = steps[0]
        for step in steps[1:]:
            chain = chain | step
        return chain


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
        earlier = [] if state.evolution == SIMPLE else [state.evolution]
        evolved = state.replace(
            parent=state.question,
            evolution="+".join([*earlier, self.kind.name]),
            answerable=state.answerable and self.kind.answerable,
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


def evolution(name: str, instruction: str, *, asks_more: bool = True) -> Evolution:
    """Return an evolution with an instruction of your own.

    Args:
        name: name in distributions and rows.
        instruction: instruction for the writer, in the language of the documents. The writer reads `question` and
            `passages` and returns the new `question`.
        asks_more: True if the new question must be deeper or broader than the old one.

    Raises:
        ConfigError: if a text is blank, or the name is taken or contains "+".
    """
    if not name.strip() or not instruction.strip():
        raise ConfigError("evolution(name, instruction) needs a name, and an instruction how to rewrite the question")
    if "+" in name or name in EVOLUTIONS:
        raise ConfigError(f"an evolution cannot be named {name!r}: choose a name that is not taken and contains no +")
    return Evolution((Kind(name, instruction=instruction, asks_more=asks_more),))


simple = Evolution()
reasoning = Evolution((Kind("reasoning", "evolve_reasoning"),))
conditional = Evolution((Kind("conditional", "evolve_conditional"),))
multi_context = Evolution((Kind(MULTI_CONTEXT, "evolve_multi_context", adds_passage=True),))
conversational = Evolution((Kind("conversational", "evolve_conversational", asks_more=False),))
unanswerable = Evolution((Kind("unanswerable", "evolve_unanswerable", asks_more=False, answerable=False),))

EVOLUTIONS: Mapping[str, Evolution] = {
    evolution.name: evolution
    for evolution in (simple, reasoning, conditional, multi_context, conversational, unanswerable)
}
"""Packaged evolutions by name."""
