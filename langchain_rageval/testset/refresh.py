"""Refresh: adapt a test set to changed documents, asking only about the rows whose passages have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from langchain_core.runnables import RunnableConfig

from langchain_rageval.run.budget import Cost
from langchain_rageval.run.drivers import astream_results
from langchain_rageval.run.usage_meter import tokens_in
from langchain_rageval.testset.answer_check import CHECK_ANSWER
from langchain_rageval.testset.candidate import FAILED, SIMPLE, Candidate, Trial
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.distribution import branch_of_names
from langchain_rageval.testset.evolutions import Branch, kinds_of, persona
from langchain_rageval.testset.generation import Generation
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.row_update import RowUpdate, RowUpdates
from langchain_rageval.testset.testset import CHANGES, Testset
from langchain_rageval.text.normalization import normalize_text

_CALLS = 3  # of a row whose passages have changed: find the passages, answer, check the answer
_PROMPT_TOKENS = 800  # estimate for one call, without the passages
_KIND = "refresh"  # of cost
_BUDGET_SPENT = "the budget is spent"


@dataclass
class Refresh:
    """Refresh of one test set.

    Attributes:
        testset: the test set.
        generation: run over the new documents, without rows.
        steps: the step that finds the passages of a question, and the one that answers it.
        check: step that decides whether the passages support an earlier answer.
        rows: rows by their place in the test set: the rows so far, None for one that has to be replaced.
        corrected: ids of the rows with another answer.
        unchecked: number of rows that could not be checked.
        first_failure: why the first of these could not be checked.
    """

    testset: Testset
    generation: Generation
    steps: Sequence[CandidateStep]
    check: CandidateStep
    rows: dict[int, TestsetRow | None] = field(default_factory=dict)
    corrected: list[str] = field(default_factory=list)
    unchecked: int = 0
    first_failure: str = ""

    def __post_init__(self) -> None:
        """Compare the rows with the documents."""
        generation = self.generation
        self._updates = RowUpdates(generation.store)
        self._touched: dict[int, RowUpdate] = {}
        find, answer = map(generation.journaled, self.steps)
        self._answering = find | answer
        self._checking = generation.journaled(self.check)
        for number, row in enumerate(self.testset.rows):
            update = self._updates.of(row, generation.seed)
            self.rows[number] = None if update.vanished else update.row
            if update.candidate is not None:
                self._touched[number] = update

    @property
    def fallen(self) -> list[TestsetRow]:
        """Rows that have to be replaced, in their order."""
        return [row for number, row in enumerate(self.testset.rows) if self.rows[number] is None]

    @property
    def remaining(self) -> list[TestsetRow]:
        """Rows that stay, in their order."""
        return [row for row in self.rows.values() if row is not None]

    @property
    def n_touched(self) -> int:
        """Number of rows whose passages have changed, and about which the critic and the writer are asked."""
        return len(self._touched)

    def run(self, n_workers: int, config: RunnableConfig, advance: Callable[[], None]) -> None:
        """Ask about the rows whose passages have changed, in worker threads; call `advance` for each."""
        jobs = [partial(self._ask, update, config) for update in self._touched.values()]
        with closing(self.generation.run.threads.stream(jobs, n_workers)) as results:
            for number, result in zip(self._touched, results, strict=True):
                self._record(number, result)
                advance()

    async def arun(self, config: RunnableConfig, advance: Callable[[], None]) -> None:
        """Like `run`, on the caller's event loop."""
        numbers = iter(self._touched)
        async with aclosing(astream_results([self._aask(update, config) for update in self._touched.values()])) as done:
            async for result in done:
                self._record(next(numbers), result)
                advance()

    def plan_rows(self, distribution: Iterable[Branch]) -> None:
        """Plan a new row for each row that fell, with its evolution and, if its simple question is left, in its tree.

        Args:
            distribution: evolutions of the generator.
        """
        branches = list(distribution)
        named = [(row, _branch_of(row, branches)) for row in self.fallen]
        planned = [(row, branch) for row, branch in named if branch is not None]
        roots = {number: root for number, (row, _) in enumerate(planned) if (root := self._root_of(row))}
        self.generation.continue_from(self.remaining, [branch for _, branch in planned], roots)

    def result(self, replacements: Testset) -> Testset:
        """Return the refreshed test set.

        Args:
            replacements: new rows for those that fell, in their order.
        """
        by_place = dict(zip(self._places(replacements), replacements.rows, strict=True))
        rows = [row or by_place.get(number) for number, row in self.rows.items()]
        corrected = set(self.corrected)
        kept = [row.id for row in self.remaining if row.id not in corrected]
        added, dropped = [row.id for row in replacements.rows], [row.id for row in self.fallen]
        changes = dict(zip(CHANGES, (kept, added, self.corrected, dropped), strict=True))
        return replace(
            replacements,
            rows=[row for row in rows if row is not None],
            notes=[*dict.fromkeys([*self.testset.notes, *replacements.notes, *self._notes(len(replacements.rows))])],
            complete=self.testset.complete and len(replacements.rows) == len(self.fallen),
            changes=changes,
            number=self.testset.number + 1,
        )

    def _root_of(self, row: TestsetRow) -> Candidate | None:
        """Return the simple question about the same fact; None outside of a tree, or if that one fell, too."""
        for other in self.remaining:
            if row.tree_id and other.tree_id == row.tree_id and other.evolution == SIMPLE:
                passages = [self.generation.store.passage_of(text) for text in other.contexts]
                return (
                    Candidate(
                        passages=passages, question=other.question, tree_id=other.tree_id, seed=self.generation.seed
                    )
                    if passages and all(passages)
                    else None
                )
        return None

    def _places(self, replacements: Testset) -> Iterator[int]:
        """Yield the place of each new row: that of a row that fell, with the same evolution, first of the same tree."""
        open_places = [number for number, row in self.rows.items() if row is None]
        for row in replacements.rows:
            same = [n for n in open_places if self.testset.rows[n].evolution == row.evolution]
            in_tree = (n for n in same if row.tree_id and self.testset.rows[n].tree_id == row.tree_id)
            place = next(in_tree, next(iter(same), open_places[0]))
            open_places.remove(place)
            yield place

    def _notes(self, n_replaced: int) -> Iterator[str]:
        if n_replaced < len(self.fallen):
            evolutions = ", ".join(dict.fromkeys(row.evolution for row in self.fallen))
            yield f"{n_replaced} of {len(self.fallen)} dropped rows were replaced, of the evolutions {evolutions}."
        if self.unchecked:
            rows = "1 row" if self.unchecked == 1 else f"{self.unchecked} rows"
            yield f"{rows} could not be checked against changed passages and stayed as before: {self.first_failure}."

    def _ask(self, update: RowUpdate, config: RunnableConfig) -> Candidate:
        candidate, row = _candidate_of(update), update.row
        with self._reserve(candidate, config) as own:
            if own is None:
                return candidate.reject(_BUDGET_SPENT)
            answered = self._answering.invoke(candidate, own)
            if _is_settled(answered, row):
                return answered
            checked = self._checking.invoke(answered.replace(reference=row.reference), own)
            return answered if checked.rejected else checked

    async def _aask(self, update: RowUpdate, config: RunnableConfig) -> Candidate:
        candidate, row = _candidate_of(update), update.row
        with self._reserve(candidate, config) as own:
            if own is None:
                return candidate.reject(_BUDGET_SPENT)
            answered = await self._answering.ainvoke(candidate, own)
            if _is_settled(answered, row):
                return answered
            checked = await self._checking.ainvoke(answered.replace(reference=row.reference), own)
            return answered if checked.rejected else checked

    @contextmanager
    def _reserve(self, candidate: Candidate, config: RunnableConfig) -> Iterator[RunnableConfig | None]:
        """Yield the config of the calls for one row, or None if the budget has no room for them."""
        passages = sum(tokens_in(passage.text) for passage in candidate.passages)
        guess = Cost(_CALLS, _CALLS * (_PROMPT_TOKENS + passages), 0)
        with self.generation.reserve(_KIND, guess) as own:
            yield None if own is None else own.into(config)

    def _record(self, number: int, result: Candidate) -> None:
        """Record whether the answer of a touched row still holds."""
        if result.rejected is None:
            self.rows[number] = self._checked(self._touched[number].row, result)
        elif result.rejected == _BUDGET_SPENT or result.rejected.startswith(FAILED):
            self.unchecked += 1
            reason = result.history[-1].feedback if result.history else result.rejected
            self.first_failure = self.first_failure or reason
        else:
            self.rows[number] = None
            self.generation.rejected.append(result)

    def _checked(self, row: TestsetRow, result: Candidate) -> TestsetRow:
        """Return a row with the passages of a result; with its answer, if the earlier one does not hold."""
        checked = self._updates.with_passages(row, result.passages)
        if _same(result.reference, row.reference):
            return checked
        self.corrected.append(row.id)
        trial = Trial(kind=CHECK_ANSWER, question=row.question, accepted=False, feedback=row.reference)
        return checked.model_copy(update={"reference": result.reference or "", "history": [*row.history, trial]})


def _branch_of(row: TestsetRow, branches: Sequence[Branch]) -> Branch | None:
    """Return the evolution of a row, asked by the same persona if it has one; None if nothing here has its name."""
    who = row.metadata.get("persona")
    named = [branch for branch in branches if branch.get_name() == row.evolution]
    any_named = next(iter(named), None)
    if not isinstance(who, str) or not who.strip():
        return any_named or branch_of_names(row.evolution)
    same = next((branch for branch in named if who in {kind.persona for kind in kinds_of(branch)}), None)
    return same or branch_of_names(row.evolution, {"persona": persona(who)}) or any_named


def _candidate_of(update: RowUpdate) -> Candidate:
    if update.candidate is None:
        raise TypeError("a row without changed passages cannot be asked about")
    return update.candidate


def _is_settled(answered: Candidate, row: TestsetRow) -> bool:
    """Return True if the earlier answer need not be checked: there is no new one, or it is the same."""
    return answered.rejected is not None or not row.reference or _same(answered.reference, row.reference)


def _same(one: str | None, other: str | None) -> bool:
    return normalize_text(one or "") == normalize_text(other or "")
