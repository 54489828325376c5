"""GenerationPlan: estimate of the calls and tokens of a generation, step by step, without a model call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple

from langchain_rageval._internal.page import paragraph, pluralize, table, text
from langchain_rageval.data.notes import Note
from langchain_rageval.prompts.layout import lay_out
from langchain_rageval.run.budget import PlannedCosts
from langchain_rageval.run.usage import PriceList, format_money, names_of_model, tokens_in
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.candidate import EMBED, AskingStep, CandidateStep
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolutions import (
    TRIES,
    Branch,
    Evolution,
    EvolutionBranch,
    adds_passage,
    allocate_rows,
    is_searched,
    kinds_of,
    parts_of,
    simple,
)
from langchain_rageval.testset.evolve import QuestionEvolver, may_have_bridge
from langchain_rageval.testset.filters import ClosedBookFilter, EvolutionFilter, QuestionFilter
from langchain_rageval.testset.generator_steps import GeneratorSettings, steps_after, steps_before, steps_of_branch
from langchain_rageval.testset.passage_scheduler import MAX_ATTEMPTS
from langchain_rageval.testset.sampling import draw_order, passages_in_focus
from langchain_rageval.testset.user_step import UserStep, inner_runnable
from langchain_rageval.testset.writing import AnswerCheck, PassageFinder

_COUNTS = ("calls", "input_tokens", "output_tokens", "embedded", "most_calls", "most_tokens")
_HEADINGS = ("step", "calls", "tokens read", "tokens written", "texts to embed", "at most calls", "tokens")
_QUESTION = "What does the policy for a bathhouse cost in the second year of the contract?"  # of usual length
_REPLY = 30  # tokens of a usual reply
_THEME = 3  # passages that thematic adds at most
_BRIDGED = 1.5  # passages that multi_context adds, on average
_DRAWN_PASSAGE = ("grade_passage", "extract_keyphrases", "write_question")
_WITHOUT_PASSAGES = ("compress_question", "compare_questions", "answer_unaided", "review_follow_up")


@dataclass(frozen=True)
class PlannedStep:
    """Expected and greatest cost of one step over all rows.

    Attributes:
        step: name of the step.
        calls: number of chat model calls if nothing is rejected.
        input_tokens: tokens read by the models, as characters / 4; most tokenizers count more for Cyrillic.
        output_tokens: tokens written by the models in replies of usual length.
        embedded: number of texts to embed.
        most_calls: number of calls if every row uses all its attempts and every rewrite.
        most_tokens: number of tokens read and written in these calls.
        money: price of the expected calls, in the currency of the prices; None without prices, or if a model has no
            price.
        most_money: price of `most_calls` calls; None if `money` is None.
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
    """Estimated cost of a generation: mapping from the name of each step to its cost, in the order of the steps.

    Attributes:
        size: number of rows to generate.
        rehearsed: number of passages whose lengths the estimate is based on.
        notes: costs that the figures do not include.
    """

    def __init__(self, steps: Iterable[PlannedStep], size: int, rehearsed: int, notes: Sequence[str]) -> None:
        super().__init__({step.step: step for step in steps})
        self.size = size
        self.rehearsed = rehearsed
        self.notes = list(notes)

    @property
    def total(self) -> PlannedStep:
        """Sums of the expected and greatest costs over all steps; `money` is None if the price of a step is unknown."""
        sums: dict[str, Any] = {name: sum(getattr(step, name) for step in self.values()) for name in _COUNTS}
        for name in ("money", "most_money"):
            amounts = [getattr(step, name) for step in self.values()]
            sums[name] = None if None in amounts else sum(amounts)
        return PlannedStep("total", **sums)

    most_calls = property(attrgetter("total.most_calls"), doc="Upper bound of the number of calls.")
    most_tokens = property(attrgetter("total.most_tokens"), doc="Upper bound of the number of tokens.")
    most_money = property(attrgetter("total.most_money"), doc="Upper bound of the price.")

    @property
    def title(self) -> str:
        """Heading of the plan: the number of questions, and the expected calls for each."""
        return (
            f"Plan for {pluralize(self.size, 'question')}: {self.calls / self.size:.1f} calls each if none is rejected"
        )

    def __repr__(self) -> str:
        """Return the plan as text: a line for each step, the total with its upper bound, and the notes."""
        lines = [
            f"{one.step} {pluralize(one.calls, 'call')}, {one.tokens:,} tokens{_money(one.money)}, {one.embedded:,} "
            f"texts to embed, at most {one.most_calls:,} calls, {one.most_tokens:,} tokens{_money(one.most_money)}"
            for one in (*self.values(), self.total)
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the costs, for notebooks."""
        headings, lines = generation_table(self)
        rows = [map(text, line) for line in lines]
        notes = "".join(paragraph(f"<em>{text(note)}</em>") for note in self.notes)
        return paragraph(text(self.title)) + table(headings, rows) + notes


def generation_table(plan: GenerationPlan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the headings of the table of a plan, and its rows: a tuple of cells for each step, the total last.

    The cells are the name, the expected calls, tokens and texts to embed, the greatest calls and tokens and, if any
    price is known, the expected and the greatest price.
    """
    steps = (*plan.values(), plan.total)
    lines = [(step.step, *(f"{getattr(step, name):,}" for name in _COUNTS)) for step in steps]
    if all(step.most_money is None for step in steps):
        return _HEADINGS, lines
    amounts = [(format_money(step.money), format_money(step.most_money)) for step in steps]
    return (*_HEADINGS, "money", "at most"), [(*line, *own) for line, own in zip(lines, amounts, strict=True)]


def _money(amount: float | None) -> str:
    return "" if amount is None else f", {format_money(amount)} money"


def plan_generation(settings: GeneratorSettings, store: Docstore, size: int, seed: int) -> GenerationPlan:
    """Return the plan of a generation; see `TestsetGenerator.plan`."""
    rows = Counter(allocate_rows(settings.distribution, size, seed, tree=settings.tree))
    drawn = draw_order(passages_in_focus(store.passages, settings.focus), seed, settings.stratify)
    bridged = any(may_have_bridge(store, passage) for passage in drawn)
    texts = [passage.text for passage in drawn[:size]]
    costs = _Costs(PriceList.of(settings.price), texts, settings.max_rewrites, bridged, store.found_at_most)
    firsts = ceil(size / len(settings.distribution)) if settings.tree else size
    for step in steps_before(settings, store):
        costs.add(step, simple, firsts, MAX_ATTEMPTS * size)
    stages = [(steps_of_branch(settings, branch, store), branch, count) for branch, count in rows.items()]
    stages += [(steps_after(settings, store), branch, count) for branch, count in rows.items()]
    for steps, branch, count in stages:
        for step in steps:
            costs.add(step, branch, count, MAX_ATTEMPTS * count)
    searched = sum(count for branch, count in rows.items() if is_searched(branch)) if store.embeddings else 0
    embeds = (searched or (not bridged and any(map(adds_passage, rows)))) and store.vectorstore is None
    embedded = (0 if settings.dedupe is None else size) + (len(store) + searched if embeds else 0)
    free = None if settings.price is None else 0.0
    parts = [part for branch in rows for part in parts_of(branch) if _evolution_in(part) is None]
    unknown = dict.fromkeys([*settings.steps, *(part.get_name() for part in parts)])
    notes = [
        *(f"{name} cannot be planned: the model calls of your own step are unknown." for name in unknown),
        *costs.unpriced,
        "Rejected questions cost more; a critic that rejects 20% at each filter costs up to 1.5 times as much.",
        "Repeated requests after an invalid reply or a lost call are not included.",
    ]
    planned = [*costs.planned(), *([PlannedStep(EMBED, 0, 0, 0, embedded, 0, 0, free, free)] if embedded else [])]
    return GenerationPlan(planned, size, len(costs.texts), notes)


def _evolution_in(part: Any) -> Evolution | None:
    inner = inner_runnable(part.step if isinstance(part, UserStep) else part)
    return inner if isinstance(inner, Evolution) else None


class _KnownCall(NamedTuple):
    """Request of a step: how often it is sent if nothing is rejected, and at most, and how many passages it shows."""

    step: JudgeStep
    expected: int = 1
    most: int = 1
    passages: float = 1.0


def _known_calls(step: CandidateStep, branch: Branch, bridged: bool, found: int) -> Iterator[_KnownCall]:
    """Yield the requests of a step for one question of a branch; none for a step of the user.

    Args:
        step: the step.
        branch: evolutions of the question.
        bridged: True if a second passage is found over a shared entity.
        found: number of passages that a search of the corpus finds.
    """
    is_joint, answerable = adds_passage(branch), not is_searched(branch)
    own = 1 + _BRIDGED * is_joint + _THEME * any(kind.adds_theme for kind in kinds_of(branch))
    shown = own if answerable else own + found
    match step:
        case UserStep():
            if evolution := _evolution_in(step):
                yield from _known_calls(evolution.with_services(step.services), branch, bridged, found)
        case EvolutionBranch():
            for part in step.parts:
                for call in _known_calls(part, branch, bridged, found):
                    yield call._replace(most=TRIES * call.most)
        case QuestionFilter():
            yield from _reviews(step, branch, shown)
        case QuestionEvolver(entity_step=JudgeStep() as entities):
            yield _KnownCall(entities, int(bridged))
            yield _KnownCall(step.model_step, passages=own)
        case PassageFinder() | AnswerCheck() | ClosedBookFilter() if not answerable:
            return
        case AskingStep():
            left_out = isinstance(step, EvolutionFilter) and is_joint and bridged
            yield _KnownCall(step.model_step, int(not left_out), passages=shown)


def _reviews(step: QuestionFilter, branch: Branch, shown: float) -> Iterator[_KnownCall]:
    """Yield the review of a question, and its rewriting; of a follow-up only the review with its earlier turns."""
    if any(kind.writes_turns for kind in kinds_of(branch)):
        yield _KnownCall(step.turns_step)
    else:
        rewrites = 0 if step.rewrite_step is None else step.max_rewrites
        yield _KnownCall(step.model_step, 1, 1 + rewrites, shown)
        if step.rewrite_step is not None:
            yield _KnownCall(step.rewrite_step, 0, rewrites, shown)


@dataclass
class _Costs:
    """Costs by step, summed up.

    Attributes:
        prices: prices of the models; None counts no money.
        texts: passages whose length is measured; their language selects the prompts.
        neighbours: maximum number of passages that rewrites add.
        bridged: True if a second passage is found over a shared entity.
        found: number of passages that a search of the corpus finds.
        unpriced: why the money of some calls is unknown.
    """

    prices: PriceList | None
    texts: Sequence[str]
    neighbours: int
    bridged: bool
    found: int
    unpriced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Measure the passages."""
        self._passage = fmean(map(tokens_in, self.texts))
        self._sums: dict[str, defaultdict[str, float]] = {}
        self._without_money: set[str] = set()

    def add(self, step: CandidateStep, branch: Branch, times: int, most: int) -> None:
        """Add the cost of a step for a number of candidates, and for the greatest number."""
        name = step.get_name()
        for call in _known_calls(step, branch, self.bridged, self.found):
            shown = 0 if call.step.get_name() in _WITHOUT_PASSAGES else call.passages
            question = call.step.build_question({"question": _QUESTION}, None, language_from=self.texts[0])
            messages = lay_out(question.request, "contexts_first", with_schema=True)  # without passages
            prompt = tokens_in(*(message.text for message in messages))
            sums = self._sums.setdefault(name, defaultdict(float))
            grows = shown and call.step.get_name() not in _DRAWN_PASSAGE
            most_shown = shown + self.neighbours if grows else shown
            for key, count, passages in (("", times * call.expected, shown), ("most_", most * call.most, most_shown)):
                read = prompt + passages * self._passage
                money = self._price(call.step, read)
                costs = {"calls": 1, "tokens": read + _REPLY, "input_tokens": read, "money": money or 0.0}
                for what, cost in costs.items():
                    sums[f"{key}{what}"] += count * cost
                self._without_money |= {name} if money is None else set()

    def planned(self) -> Iterator[PlannedStep]:
        """Yield the cost of each step."""
        for name, sums in self._sums.items():
            calls, most_calls = round(sums["calls"]), round(sums["most_calls"])
            read, most_tokens = round(sums["input_tokens"]), ceil(sums["most_tokens"])
            money = (None, None) if name in self._without_money else (sums["money"], sums["most_money"])
            yield PlannedStep(name, calls, read, calls * _REPLY, 0, most_calls, most_tokens, *money)

    def _price(self, step: JudgeStep, read: float) -> float | None:
        if self.prices is None:
            return None
        names = names_of_model(step.judge.members[0].model)
        money = self.prices.cost(names, {"input_tokens": read, "output_tokens": _REPLY})
        if money is None:
            note = Note("money-unknown", reason=self.prices.problem(names))
            self.unpriced = list(dict.fromkeys([*self.unpriced, note]))
        return money
