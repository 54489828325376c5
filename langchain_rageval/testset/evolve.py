"""Evolve: the step that rewrites a question, and the search for other passages that share an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from langchain_rageval.data.schema import Sample, Turn
from langchain_rageval.errors import ConfigError, JudgeOutputError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.entities import extract_entities
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.candidate import AskingStep, Candidate, Objection, Passage, Reason, ask_step
from langchain_rageval.testset.docstore import Docstore, embed_passages
from langchain_rageval.testset.objections import blank_objection, objection_to_question
from langchain_rageval.text.words import normalize_text, numbers_of, stems_of

_FEW = 3  # passages that may always share an entity, however small the corpus is
_TOPIC_SHARE = 5  # an entity of more than a fifth of the passages is their topic, and connects nothing
_DUPLICATE = 0.8  # share of common stems


def may_have_bridge(store: Docstore, passage: Passage) -> bool:
    """Return True if a passage shares a rare word with another passage; False if it does not.

    Only a passage that shares a rare word can have a bridge (another passage that names the same entity). A word is
    rare if at most three, or at most a fifth, of all passages contain its stem.
    """
    return store.phrase_index.shares_stem(passage.text, _most_passages(store))


def find_bridges(store: Docstore, drawn: Passage, entities: Iterable[str], most: int) -> dict[str, Passage]:
    """Return bridges from a passage: a mapping from entities to other passages, the most related passage first.

    A bridge leads from the drawn passage to another passage that names the same entity. Passages that share more
    entities are more related. Among equally related passages, a rarer shared entity comes first, then a passage of
    another document. Two kinds of entity give no bridge: an entity that begins with a digit, such as an amount, and an
    entity that is too frequent: more than three passages name it, and these are more than a fifth of all passages.
    Near-duplicates of the drawn passage and passages that overlap with the drawn passage are left out.

    Args:
        store: passages to search.
        drawn: passage from which the bridges start.
        entities: entities that the drawn passage names.
        most: maximum number of bridges.
    """
    named = [entity for entity in entities if not entity[:1].isdigit()]
    numbers_of_entity = {entity: store.phrase_index.texts_with(entity) for entity in named}
    shared: dict[int, list[str]] = {}
    for entity, numbers in sorted(numbers_of_entity.items(), key=lambda item: len(item[1])):  # the rarest first
        for number in numbers if len(numbers) <= _most_passages(store) else ():
            shared.setdefault(number, []).append(entity)

    def rank(number: int) -> tuple[int, int, bool, int]:
        rarest = len(numbers_of_entity[shared[number][0]])
        return -len(shared[number]), rarest, store.passages[number].source == drawn.source, number

    bridges: dict[str, Passage] = {}
    for number in sorted(shared, key=rank):
        if len(bridges) == most:
            break
        passage = store.passages[number]
        own = next((entity for entity in shared[number] if entity not in bridges), None)
        if own and not any(_says_the_same(passage, other) for other in [drawn, *bridges.values()]):
            bridges[own] = passage
    return bridges


def _most_passages(store: Docstore) -> int:
    return max(_FEW, len(store) // _TOPIC_SHARE)


def _says_the_same(one: Passage, other: Passage) -> bool:
    """Return True for the same passage, for passages that overlap in one document, and for near-duplicates."""
    overlap = one.source == other.source and one.start < other.end and other.start < one.end
    if one.id == other.id or one.text == other.text or overlap:
        return True
    stems, others = stems_of(one.text), stems_of(other.text)
    return bool(stems | others) and len(stems & others) >= _DUPLICATE * len(stems | others)


LENGTHS = {"short": 6, "medium": 15, "long": 35}
"""Words of a question of each length."""

MULTI_CONTEXT, THEMATIC = "multi_context", "thematic"

_MOST_EXCHANGES = 3  # questions with their answers before the last question of a follow-up
_MOST_OF_THEME = 3  # passages besides the drawn one
_MOST_BRIDGES = 2  # passages besides the drawn one


@dataclass(frozen=True)
class Kind:
    """What an evolution does with a question: its prompt, what it adds, and what it requires.

    Journal keys contain the `repr` of a kind, so the names of the class and its attributes must not change.

    Attributes:
        name: name of the evolution.
        prompt: name of the packaged prompt for the writer; "" if the user supplies an instruction.
        instruction: instruction of the user; "" if there is a packaged prompt.
        adds_passage: True if passages that share an entity with the drawn passage (from which the question started) are
            added before the rewriting.
        adds_theme: True if up to three passages that share words with the drawn passage are added before the rewriting,
            those of the same document first; the new question must need several passages.
        asks_more: True if the question must become deeper or broader, False if it is only rephrased.
        answerable: True if the documents are meant to answer the new question.
        needs_numbers: True if the drawn passage must contain at least two different numbers.
        writes_turns: True if the writer adds earlier turns, so that the question becomes the last of a conversation.
        persona: description of the person who asks, for the writer and the row's metadata; "" for no persona.
        style: name of the style for the row's metadata; "" for no style.
        audience: pairs of a name ("persona", "style", "length") and the values from which one is drawn for each row.
            The row's metadata holds the drawn values; empty for no audience.
    """

    name: str
    prompt: str = ""
    instruction: str = ""
    adds_passage: bool = False
    adds_theme: bool = False
    asks_more: bool = True
    answerable: bool = True
    needs_numbers: bool = False
    writes_turns: bool = False
    persona: str = ""
    style: str = ""
    audience: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def label(self, metadata: Mapping[str, Any], drawn: Mapping[str, str]) -> dict[str, Any]:
        """Return the `metadata` of a question, with persona and style of this evolution and the `drawn` values added.

        `drawn` maps names in `audience` to the values that the caller has drawn. If `metadata` already has a value
        under one of the names, the new value is appended to the old value, as in "novice+lawyer".
        """
        own = {name: text for name, text in (("persona", self.persona), ("style", self.style), *drawn.items()) if text}
        joined = {name: f"{metadata[name]}+{text}" if name in metadata else text for name, text in own.items()}
        return {**metadata, **joined}


class QuestionEvolver(AskingStep):
    """Step that rewrites the question by one kind of evolution; the old question becomes `parent` of the candidate.

    `docstore` supplies the passages that the evolution adds, and those that must not answer an unanswerable question.
    `entity_step` lists the entities of the drawn passage (from which the question started); a passage that names one of
    these entities can be added. Each of the two is None if the evolution does not need it.
    """

    kind: Kind
    docstore: Docstore | None
    entity_step: JudgeStep | None = None

    @property
    def judges(self) -> Sequence[Judge]:
        """List of the models that the step calls: the writer and, with an `entity_step`, the model of that step."""
        return [*super().judges, *(self.entity_step.judges if self.entity_step else ())]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Mapping with the configurations of this step, of the evolution ("kind") and of `entity_step` ("entities").

        A journal (store of finished steps) reuses a stored result only if this configuration is the same.
        """
        entities = {} if self.entity_step is None else {"entities": self.entity_step.description}
        return {**super().instrument, "kind": self.kind, **entities}

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer to rewrite the question: one call, or two if the evolution adds passages that share an entity.

        The additional call lists the entities of the drawn passage (from which the question started), by which other
        passages are found. The candidate is rejected without a request to rewrite if the evolution needs numbers and
        the drawn passage lacks them, or if the evolution needs another passage and none is found.
        """
        if self.kind.needs_numbers and not has_numbers(state.passages[0]):
            return self._reject(state, Reason.NO_NUMBERS)
        if self.kind.adds_passage and not state.needed:
            state = yield from self._add_passages(state)
        if self.kind.adds_theme and len(state.passages) == 1:
            state = self._add_theme(state)
        if state.rejected:
            return state
        earlier = Random(f"{state.seed} {state.passages[0].id} turns").randint(1, _MOST_EXCHANGES)
        inputs: dict[str, Any] = {"question": state.question, "passages": state.shown()}
        choice = Random(f"{state.seed} {state.passages[0].id} audience")
        drawn = {name: choice.choice(choices) for name, choices in self.kind.audience}
        if drawn:
            inputs |= {"persona": drawn["persona"], "style": drawn["style"], "words": LENGTHS[drawn["length"]]}
        inputs |= {"persona": self.kind.persona} if self.kind.persona else {}
        inputs |= {"earlier": earlier} if self.kind.writes_turns else {}
        was_rejected = state.objection and state.history[-1].kind == self.kind.name
        inputs |= {"feedback": state.objection} if was_rejected else {}
        objection = objection_to_question(state, strict=self.kind.asks_more)
        turns_objection = partial(_follow_up_objection, state.question)
        objection = turns_objection if self.kind.writes_turns else objection
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text, objection)
        if isinstance(answer, Objection):
            return state.refuse(self.kind.name, answer)
        evolved = state.with_evolution(self.kind.name).replace(
            parent=state.question,
            answerable=state.answerable and self.kind.answerable,
            metadata=self.kind.label(state.metadata, drawn),
        )
        if self.kind.writes_turns:
            pairs = [(("user", exchange.question), ("assistant", exchange.answer)) for exchange in answer.exchanges]
            turns = [Turn(role=role, text=text.strip()) for pair in pairs for role, text in pair]
            evolved = evolved.replace(chat_history=turns, standalone=state.standalone_question)
        if not evolved.answerable and self.docstore is not None:
            found = yield from self.docstore.search_corpus(answer.question)
            own = {passage.text for passage in state.passages}
            evolved = evolved.replace(nearest=[passage for passage in found if passage.text not in own])
        evolved = evolved.with_question(answer.question, self.kind.name)
        if self.kind.adds_passage and normalize_text(evolved.question) == normalize_text(state.question):
            return evolved.with_verdict(False, "the question is the same as before").reject(Reason.NOT_EVOLVED)
        return evolved

    def _add_passages(self, state: Candidate) -> Operation[Candidate]:
        """Add one or two passages that share an entity with the drawn one, or else the nearest one by embeddings.

        Two are added in half of the cases where there are two. Reject the candidate if there is no passage.
        """
        store, drawn = self.docstore, state.passages[0]
        if store is None:
            return self._reject(state, Reason.NO_NEAR_PASSAGE)
        entities = yield from self._entities(state, store)
        count = Random(f"{state.seed} {drawn.id} bridges").randint(1, _MOST_BRIDGES)
        bridges = find_bridges(store, drawn, entities, count)
        added, metadata = list(bridges.values()), state.metadata
        if added:
            metadata = {**metadata, "bridge": list(bridges)}
        elif store.embeddings is not None or store.vectorstore is not None:
            yield from embed_passages(store)
            added = store.similar(drawn)
        if not added:
            return self._reject(state, Reason.NO_NEAR_PASSAGE)
        passages = [drawn, *added]
        return state.replace(passages=passages, needed=[passage.id for passage in passages], metadata=metadata)

    def _add_theme(self, state: Candidate) -> Candidate:
        """Add up to three passages of the document of the drawn one, or else of others, the most related first."""
        store, drawn = self.docstore, state.passages[0]
        nearest = [store.passages[number] for number in store.phrase_index.nearest(drawn.text)] if store else []
        others = [passage for passage in nearest if not _says_the_same(passage, drawn)]
        added = sorted(others, key=lambda passage: passage.source != drawn.source)[:_MOST_OF_THEME]
        return state.replace(passages=[drawn, *added]) if added else self._reject(state, Reason.NO_NEAR_PASSAGE)

    def _entities(self, state: Candidate, store: Docstore) -> Operation[list[str]]:
        """Return the entities of the drawn passage: one call; no call if no other passage can share one."""
        drawn = state.passages[0]
        if self.entity_step is None or not may_have_bridge(store, drawn):
            return []
        sample = Sample(question=state.question, references=[drawn.text])
        try:
            found = yield from self.entity_step.work({"sample": sample})
        except JudgeOutputError:
            return []
        entities: list[str] = found["reference_entities"]
        return entities

    def _reject(self, state: Candidate, reason: str) -> Candidate:
        return state.with_trial(self.kind.name, accepted=False, feedback=reason).reject(reason)


def evolve(kind: Kind, writer: JudgeLike, docstore: Docstore | None) -> AskingStep:
    """Return the step that rewrites a question by one kind of evolution.

    Raises:
        ConfigError: if the kind adds passages and `docstore` is None.
    """
    if (kind.adds_passage or kind.adds_theme) and docstore is None:
        raise ConfigError(f"{kind.name} adds passages of the documents: pass docstore=Docstore(documents)")
    return QuestionEvolver.of(
        kind.prompt or "evolve_reasoning",
        writer,
        None if kind.prompt else Prompt(instruction=kind.instruction),
        name=f"evolve_{kind.name}",
        kind=kind,
        docstore=docstore,
        entity_step=extract_entities(writer) if kind.adds_passage else None,
    )


def has_numbers(passage: Passage) -> bool:
    """Return True if a passage contains at least two different numbers."""
    return len(numbers_of(passage.text)) > 1


def _follow_up_objection(standalone: str, answer: Any) -> str | None:
    """Return the problem with a conversation that the model wrote, or None if there is none."""
    texts = [text for exchange in answer.exchanges for text in (exchange.question, exchange.answer)]
    if not 1 <= len(answer.exchanges) <= _MOST_EXCHANGES:
        return f"`exchanges` holds 1 to {_MOST_EXCHANGES} exchanges, not {len(answer.exchanges)}"
    if not all(text.strip() for text in texts):
        return "a question or an answer of `exchanges` is blank"
    if normalize_text(answer.question) == normalize_text(standalone):
        return "the last question is the old one: leave out what the earlier turns say already"
    return blank_objection(answer)
