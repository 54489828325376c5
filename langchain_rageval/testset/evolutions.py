"""Evolutions: ways to make a question harder, or more like a user's. `|` makes branches of several.

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
from langchain_rageval.testset.candidate_step import CandidateStep, asking, blank_question, numbered, text_of
from langchain_rageval.testset.docstore import Docstore

SIMPLE = "simple"
MULTI_CONTEXT = "multi_context"


@dataclass(frozen=True)
class Kind:
    """One way to evolve a question.

    Attributes:
        name: of the evolution.
        prompt: step whose prompt it uses; one of the user's own where that is "".
        instruction: of the user's own prompt.
        adds_passage: whether the nearest passage is added first.
        asks_more: whether the question must become deeper or broader; else it is only put in other words.
        answerable: whether the documents are to answer it.
    """

    name: str
    prompt: str = ""
    instruction: str = ""
    adds_passage: bool = False
    asks_more: bool = True
    answerable: bool = True

    @property
    def own_prompt(self) -> Prompt | None:
        """The user's own prompt, if it is one of theirs."""
        return None if self.prompt else Prompt(instruction=self.instruction)


@dataclass(frozen=True)
class Evolution:
    """A branch of the tree: no, one or several kinds after each other. `reasoning | conditional` is one of two.

    Called with a writer it is the step that rewrites the question: `reasoning(writer)`.

    Attributes:
        kinds: in the order in which the question goes through them.
    """

    kinds: tuple[Kind, ...] = ()

    @property
    def name(self) -> str:
        """Names of the kinds, joined by "+"; "simple" for none."""
        return "+".join(kind.name for kind in self.kinds) or SIMPLE

    def __or__(self, other: Evolution) -> Evolution:
        """This one, then the other."""
        if not isinstance(other, Evolution):
            return NotImplemented
        return Evolution(self.kinds + other.kinds)

    def __call__(self, writer: JudgeLike, docstore: Docstore | None = None) -> Any:
        """The Runnable that rewrites the question, without a filter after it.

        Args:
            writer: asked once for each kind.
            docstore: gives the nearest passage; needed for `multi_context`.

        Raises:
            ConfigError: if the evolution is `simple`, which does nothing, or lacks a docstore.
        """
        if not self.kinds:
            raise ConfigError("simple is no step: it leaves the question as it is")
        steps: list[Any] = [evolve(kind, writer, docstore) for kind in self.kinds]
        chain = steps[0]
        for step in steps[1:]:
            chain = chain | step
        return chain


class EvolveQuestion(CandidateStep):
    """Rewrites the question; it then has the old one for its parent."""

    kind: Kind
    docstore: Docstore | None

    def _options(self) -> Sequence[str]:
        return ["kind"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none when a passage is wanted and none is near."""
        if self.kind.adds_passage:
            found = self.docstore.similar(state.passages[0]) if self.docstore else []
            if not found:
                return state.tried(self.kind.name, accepted=False, feedback=NO_NEAR_PASSAGE).reject(NO_NEAR_PASSAGE)
            state = state.but(passages=[state.passages[0], found[0]])
        inputs = {"question": state.question, "passages": numbered(state.passages)}
        answer = yield from self._ask(inputs, text_of(state), blank_question)
        before = [] if state.evolution == SIMPLE else [state.evolution]
        evolved = state.but(
            parent=state.question,
            evolution="+".join([*before, self.kind.name]),
            answerable=state.answerable and self.kind.answerable,
        )
        return evolved.asking(answer.question, self.kind.name)


def evolve(kind: Kind, writer: JudgeLike, docstore: Docstore | None) -> CandidateStep:
    """The step that evolves a question in one way.

    Raises:
        ConfigError: if it adds a passage and there is no docstore.
    """
    if kind.adds_passage and docstore is None:
        raise ConfigError(f"{kind.name} adds the nearest passage: it needs a docstore")
    step = asking(kind.prompt or "evolve_reasoning", writer, kind.own_prompt)
    return EvolveQuestion(name=f"evolve_{kind.name}", asks=step, kind=kind, docstore=docstore)


def evolution(name: str, instruction: str, *, asks_more: bool = True) -> Evolution:
    """An evolution of the user's own.

    Args:
        name: in the distribution and in the rows.
        instruction: what the writer is told, in the language of the documents; it reads `question` and `passages` and
            answers with the new `question`.
        asks_more: whether the new question must be deeper or broader than the old one.

    Raises:
        ConfigError: if a text is blank, or the name is taken or holds a "+".
    """
    if not name.strip() or not instruction.strip():
        raise ConfigError("an evolution takes a name and an instruction that says how to rewrite `question`")
    if "+" in name or name in EVOLUTIONS:
        raise ConfigError(f"{name!r} cannot be the name of an evolution of your own; choose another, without a +")
    return Evolution((Kind(name, instruction=instruction, asks_more=asks_more),))


simple = Evolution()
reasoning = Evolution((Kind("reasoning", "evolve_reasoning"),))
conditional = Evolution((Kind("conditional", "evolve_conditional"),))
multi_context = Evolution((Kind(MULTI_CONTEXT, "evolve_multi_context", adds_passage=True),))
conversational = Evolution((Kind("conversational", "evolve_conversational", asks_more=False),))
unanswerable = Evolution((Kind("unanswerable", "evolve_unanswerable", asks_more=False, answerable=False),))

EVOLUTIONS: Mapping[str, Evolution] = {
    branch.name: branch for branch in (simple, reasoning, conditional, multi_context, conversational, unanswerable)
}
"""The evolutions of the package by name."""
