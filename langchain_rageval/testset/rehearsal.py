"""Rehearsal: a dry run of a generation, from which the calls and tokens of its plan are taken."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isnan, nan
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnablePassthrough

from langchain_rageval._internal.page import paragraph, pluralize, table, text
from langchain_rageval.data.notes import Note
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import answer_request
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.billing import request_texts
from langchain_rageval.run.budget import PlannedCosts
from langchain_rageval.run.embedding import EmbedBatch
from langchain_rageval.run.requests import Call
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import PriceList, UsageMeter, format_money, tokens_in
from langchain_rageval.testset.candidate import EMBED, Candidate, CandidateStep, Passage
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolutions import Branch, Evolution, compose, kinds_of, parts_of, simple
from langchain_rageval.testset.evolve import has_numbers, may_have_bridge
from langchain_rageval.testset.generator_steps import GeneratorSteps
from langchain_rageval.testset.passage_scheduler import MAX_ATTEMPTS
from langchain_rageval.testset.sampling import (
    Focus,
    allocate_rows,
    branches_of_tree,
    check_stratum,
    draw_order,
    passages_in_focus,
)
from langchain_rageval.testset.user_step import UserStep, inner_runnable, user_step
from langchain_rageval.text.words import PhraseIndex

_HEADINGS = ("step", "calls", "tokens read", "tokens written", "texts to embed", "at most calls", "tokens")


@dataclass(frozen=True)
class PlannedStep:
    """Expected and greatest cost of one step over all rows.

    Attributes:
        step: name of the step.
        calls: number of chat model calls if nothing is rejected.
        input_tokens: tokens read by the models, as characters / 4; most tokenizers count more for Cyrillic.
        output_tokens: tokens written by the models, if their replies are as short as those of the dry run.
        embedded: number of texts to embed.
        most_calls: number of calls if every row uses all its attempts and every rewrite.
        most_tokens: number of tokens read and written in these calls.
        money: price of the expected calls; None without prices, or if a model has no price.
        most_money: price of the greatest number of calls.
    """

    step: str
    calls: int
    input_tokens: int
    output_tokens: int
    embedded: int
    most_calls: int
    most_tokens: int
    money: float | None = None
    most_money: float | None = None

    @property
    def tokens(self) -> int:
        """Sum of the expected input and output tokens of this step."""
        return self.input_tokens + self.output_tokens


class GenerationPlan(PlannedCosts[PlannedStep]):
    """Mapping of the names of steps to their costs, in the order of the steps.

    Attributes:
        size: number of rows to generate.
        rehearsed: number of rows in the dry run, from which the figures are scaled up.
        notes: costs that the figures do not include.
    """

    def __init__(self, steps: Iterable[PlannedStep], size: int, rehearsed: int, notes: Sequence[str]) -> None:
        super().__init__({step.step: step for step in steps})
        self.size = size
        self.rehearsed = rehearsed
        self.notes = list(notes)

    @property
    def total(self) -> PlannedStep:
        """Cost of all steps together."""
        names = ("calls", "input_tokens", "output_tokens", "embedded", "most_calls", "most_tokens")
        sums: dict[str, Any] = {name: sum(getattr(step, name) for step in self.values()) for name in names}
        for name in ("money", "most_money"):
            amounts = [getattr(step, name) for step in self.values()]
            sums[name] = None if None in amounts else sum(amounts)
        return PlannedStep("total", **sums)

    @property
    def most_calls(self) -> int:
        """Upper bound of the number of calls."""
        return self.total.most_calls

    @property
    def most_tokens(self) -> int:
        """Upper bound of the number of tokens."""
        return self.total.most_tokens

    @property
    def most_money(self) -> float | None:
        """Upper bound of the price."""
        return self.total.most_money

    @property
    def title(self) -> str:
        """Heading of the plan: the number of questions, and the expected calls for each."""
        return (
            f"Plan for {pluralize(self.size, 'question')}: {self.calls / self.size:.1f} calls each if none is rejected"
        )

    def __repr__(self) -> str:
        """Return the plan as text: a line for each step, the total with its upper bound, and the notes."""
        lines = [
            f"{step.step} {step.calls:,} calls, {step.tokens:,} tokens{_money(step.money)}, {step.embedded:,} texts to "
            f"embed, at most {step.most_calls:,} calls, {step.most_tokens:,} tokens{_money(step.most_money)}"
            for step in (*self.values(), self.total)
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the costs, for notebooks."""
        headings, lines = generation_table(self)
        rows = [map(text, line) for line in lines]
        notes = "".join(paragraph(f"<em>{text(note)}</em>") for note in self.notes)
        return paragraph(text(self.title)) + table(headings, rows) + notes


def generation_table(plan: GenerationPlan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return headings and lines of the table of a plan, the total last; with columns for money if there are prices."""
    steps = (*plan.values(), plan.total)
    lines = [_cells(step) for step in steps]
    if all(step.most_money is None for step in steps):
        return _HEADINGS, lines
    amounts = [(format_money(step.money), format_money(step.most_money)) for step in steps]
    return (*_HEADINGS, "money", "at most"), [(*line, *own) for line, own in zip(lines, amounts, strict=True)]


def _cells(step: PlannedStep) -> tuple[str, ...]:
    expected = (step.calls, step.input_tokens, step.output_tokens, step.embedded)
    return (step.step, *(f"{number:,}" for number in (*expected, step.most_calls, step.most_tokens)))


def _money(amount: float | None) -> str:
    return "" if amount is None else f", {format_money(amount)} money"


_REHEARSED = 8
"""Maximum number of rows of each evolution in the dry run."""

_ACCEPTED: Mapping[str, Mapping[str, Any]] = {
    "PassageGrades": dict.fromkeys(("clarity", "depth", "structure", "relevance"), 3),
    "QuestionComparison": {"deeper": True},
    "FollowUpReview": dict.fromkeys(("depends", "same", "open"), True),
}
"""Fields of the answers that let every candidate pass, by the title of the schema."""

_Costs = dict[str, dict[str, float]]


def plan_generation(
    steps: GeneratorSteps,
    store: Docstore,
    distribution: Mapping[Branch, float],
    *,
    size: int,
    seed: int,
    tree: bool,
    dedupe: bool,
    focus: Focus | None,
    stratify: str,
    price: Any = None,
) -> GenerationPlan:
    """Return the plan of a generation; see `TestsetGenerator.plan`."""
    branches = branches_of_tree(distribution) if tree else []
    rows = [branches[n % len(branches)] for n in range(size)] if tree else allocate_rows(distribution, size, seed)
    rehearsal = _Rehearsal(steps, store, PriceList.of(price))
    focused = passages_in_focus(store.passages, focus)
    check_stratum(focused, stratify)
    drawn = draw_order(focused, seed, stratify)
    for branch, count in Counter(rows).items():
        passages = _suitable(drawn, branch, store)[: min(count, _REHEARSED)]
        first = ceil(size / len(branches)) * (branch == simple) if tree else count
        rehearsal.run(branch, passages, first / len(passages), count / len(passages))
    embedded = _embedded(store, rows, drawn, size if dedupe else 0)
    notes = [
        *rehearsal.notes,
        "Rejected questions cost more; a critic that rejects 20% at each filter costs up to 1.5 times as much.",
        "Repeated requests after an invalid reply or a lost call are not included.",
    ]
    rehearsed = sum(min(len(drawn), _REHEARSED, count) for count in Counter(rows).values())
    free = None if price is None else 0.0
    planned = rehearsal.planned()
    if embedded:
        planned.append(PlannedStep(EMBED, 0, 0, 0, embedded, 0, 0, free, free))
    return GenerationPlan(planned, size, rehearsed, notes)


def _suitable(drawn: Sequence[Passage], branch: Branch, store: Docstore) -> list[Passage]:
    """Return passages, those that have what an evolution needs before the others: numbers, or a shared entity."""
    needs_numbers, needs_bridge = _needs_numbers(branch), _adds_passage(branch)

    def lacks(passage: Passage) -> int:
        return (needs_numbers and not has_numbers(passage)) + (needs_bridge and not may_have_bridge(store, passage))

    return sorted(drawn, key=lacks) if needs_numbers or needs_bridge else list(drawn)


def _embedded(store: Docstore, rows: Sequence[Branch], drawn: Sequence[Passage], questions: int) -> int:
    """Return the number of texts to embed: the questions, and the passages if an evolution needs a similar one."""
    adds_passage = any(map(_adds_passage, set(rows)))
    embeds = adds_passage and store.vectorstore is None and not any(may_have_bridge(store, p) for p in drawn)
    return questions + (len(store) if embeds else 0)


def _needs_numbers(branch: Branch) -> bool:
    return any(kind.needs_numbers for kind in kinds_of(branch))


def _adds_passage(branch: Branch) -> bool:
    return any(kind.adds_passage for kind in kinds_of(branch))


class _Rehearsal:
    """Dry run of rows, with the usage of each step scaled to the whole generation.

    Attributes:
        notes: steps whose cost is unknown.
    """

    def __init__(self, steps: GeneratorSteps, store: Docstore, prices: PriceList | None) -> None:
        self._prices = prices
        passthrough = {name: user_step(RunnablePassthrough()) for name in steps.own}
        self._steps = replace(steps, own=passthrough)
        self._store = _RehearsalStore(store)
        self._expected: _Costs = {}
        self._most: _Costs = {}
        self._last = [step.get_name() for step in self._steps.after(None)]
        self.notes = [_unknown(name) for name in steps.own]

    def run(self, branch: Branch, passages: Sequence[Passage], firsts: float, rows: float) -> None:
        """Rehearse a row of a branch for each passage.

        Args:
            branch: evolution of the rows.
            passages: passages to start from.
            firsts: number of first questions to write for each rehearsed row.
            rows: number of rows for each rehearsed row.
        """
        plannable = compose(part for part in parts_of(branch) if _evolution_in(part))
        for part in parts_of(branch):
            if not _evolution_in(part) and _unknown(part.get_name()) not in self.notes:
                self.notes.append(_unknown(part.get_name()))
        answerable = all(kind.answerable for kind in kinds_of(branch))
        before = self._steps.before(self._store)
        rest = [*self._steps.of_branch(plannable, self._store), *self._steps.after(self._store)]
        for passage in passages:
            start = Candidate(passages=[passage])
            reviewed = self._rehearse(before, start, partial(_accepting, True), self._expected, firsts)
            self._rehearse(rest, reviewed, partial(_accepting, answerable), self._expected, rows)
            often, rejecting = MAX_ATTEMPTS * rows, partial(_rejecting, self._steps.max_rewrites)
            reviewed = self._rehearse(before, start, partial(rejecting, True), self._most, often)
            self._rehearse(rest, reviewed, partial(rejecting, answerable), self._most, often)

    def planned(self) -> list[PlannedStep]:
        """Return the cost of each step, in the order of the steps."""
        names = [name for name in self._most if name not in self._last] + self._last
        return [_planned_step(name, self._expected[name], self._most[name]) for name in names if self._most.get(name)]

    def _rehearse(
        self,
        steps: Sequence[CandidateStep],
        candidate: Candidate,
        replies: Callable[[], Callable[[Any], Any]],
        costs: _Costs,
        factor: float,
    ) -> Candidate:
        """Run all steps on a candidate, each with new local replies, and add their usage, times a factor, to the costs.

        A step that raises an error is noted, and the next step gets the candidate as it was.
        """
        for step in steps:
            run = Run(fake_reply=replies(), meter=UsageMeter(prices=self._prices))
            try:
                candidate = step.with_fresh_capabilities().invoke(candidate, run.into({}))
            except Exception as error:
                note = f"{step.get_name()} costs more: its dry run ended with {type(error).__name__}: {error}"
                self.notes = list(dict.fromkeys([*self.notes, note]))
            usage, cost = run.meter.usage, costs.setdefault(step.get_name(), defaultdict(float))
            cost["calls"] += usage.calls * factor
            cost["input_tokens"] += (usage.input_tokens or 0) * factor
            cost["output_tokens"] += (usage.output_tokens or 0) * factor
            cost["money"] += (nan if usage.money is None else usage.money) * factor
            unknown = [Note("money-unknown", reason=problem) for problem in run.meter.unpriced]
            self.notes = list(dict.fromkeys([*self.notes, *unknown]))
            candidate = candidate.replace(rejected=None)
        return candidate


class _RehearsalStore(Docstore):
    """Docstore whose similar passages are any others, so that nothing is embedded.

    If a passage may share an entity with another, each entity is in the first passages.
    """

    def __init__(self, store: Docstore) -> None:
        self.__dict__.update(store.__dict__, phrase_index=_RehearsalIndex(store.phrase_index))

    def similar(self, passage: Passage, *, floor: float = 0.3, ceiling: float = 0.95, k: int = 1) -> list[Passage]:
        """Return the first k other passages."""
        return [other for other in self.passages[: k + 1] if other.id != passage.id][:k]


class _RehearsalIndex(PhraseIndex):
    def __init__(self, index: PhraseIndex) -> None:
        self.__dict__.update(index.__dict__)

    def texts_with(self, phrase: str) -> list[int]:
        """Return the numbers of the first three texts, whatever the phrase is."""
        return [0, 1, 2]


def _replies(answerable: bool, changed: Callable[[str, Any], Mapping[str, Any]]) -> Callable[[Any], Any]:
    """Return a function that answers requests without a model.

    Args:
        answerable: True if the passages are meant to answer the question.
        changed: function from the title and fields of an answer that accepts everything to the fields to change.
    """

    def reply(request: Any) -> Any:
        if isinstance(request, EmbedBatch):
            return HashingEmbeddings().embed_documents(list(request.texts))
        if not isinstance(request, Call):
            return None
        human, title = next(m.text for m in request.messages if m.type == "human"), request.schema["title"]
        answer = answer_request(request.schema, human, request.offline)
        answer |= _accepted_answer(title, read_inputs(human), answer, answerable)
        answer |= changed(title, answer)
        content = json.dumps(answer, ensure_ascii=False)
        read, written = tokens_in(*request_texts(request)), tokens_in(content)
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return AIMessage(content, usage_metadata=usage)

    return reply


def _accepted_answer(title: str, inputs: Mapping[str, Any], answer: Any, answerable: bool) -> dict[str, Any]:
    """Return the fields of an answer that let the candidate pass."""
    match title:
        case "Keyphrases":
            return {"keyphrases": answer["keyphrases"] or [inputs["passage"][:20]]}
        case "Question":
            question = answer["question"].strip() or str(inputs.get("passage") or inputs["question"])[:60]
            return {"question": f"{question} –" if question == inputs.get("question") else question}
        case "QuestionReview":
            return {"standalone": True, "answerable": answerable}
        case "FollowUp":
            exchanges = answer["exchanges"] or [{"question": "–", "answer": "–"}]
            return {"exchanges": exchanges, "question": f"{answer['question']} –"}
        case "Entities":  # each is shared, see `_RehearsalIndex`
            return {"entities": [*answer["entities"], *inputs["text"].split()[:2]]}
        case "NeededPassages":
            return {"passages": [passage["passage"] for passage in inputs["passages"]]}
        case "ReferenceAnswer":
            return {"answerable": answerable, "answer": answer["answer"].strip() or "–"}
    return dict(_ACCEPTED.get(title, {}))


def _accepting(answerable: bool) -> Callable[[Any], Any]:
    return _replies(answerable, lambda *_: {})


def _rejecting(max_rewrites: int, answerable: bool) -> Callable[[Any], Any]:
    """Return replies of a critic that accepts only the last wording of a question, and finds nothing deeper."""
    reviews = 0

    def changed(title: str, answer: Any) -> Mapping[str, Any]:
        nonlocal reviews
        if title == "Question":  # equal questions would share one review
            return {"question": f"{answer['question']} {reviews}"}
        if title == "QuestionComparison":
            return {"deeper": False, "broader": False}
        if title == "FollowUpReview":
            return {"depends": False}
        if title == "Entities":  # without a shared entity, a second try may follow
            return {"entities": []}
        if title == "QuestionReview":
            reviews += 1
            if reviews % (max_rewrites + 1):
                return {"standalone": False, "answerable": not answerable}
        return {}

    return _replies(answerable, changed)


def _evolution_in(part: Any) -> bool:
    """Return True if a part of a branch is an evolution, also one with `with_retry` or so."""
    return isinstance(inner_runnable(part.step if isinstance(part, UserStep) else part), Evolution)


def _unknown(name: str) -> str:
    return f"{name} cannot be planned: the model calls of your own step are unknown."


def _planned_step(name: str, expected: Mapping[str, float], most: Mapping[str, float]) -> PlannedStep:
    costs = {key: round(expected[key]) for key in ("calls", "input_tokens", "output_tokens")}
    tokens = ceil(most["input_tokens"] + most["output_tokens"])
    money, most_money = (None if isnan(cost["money"]) else cost["money"] for cost in (expected, most))
    return PlannedStep(
        name,
        **costs,
        embedded=0,
        most_calls=ceil(most["calls"]),
        most_tokens=tokens,
        money=money,
        most_money=most_money,
    )
