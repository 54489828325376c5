"""Passage scheduler: selects the passage for the next attempt of each row of a test set, without calling a model.

Rows are tried in rounds. Each round makes one attempt for open rows: rows without an accepted question that have
attempts left. The result depends on the seed and the models' answers, never on the order in which the answers arrive.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from langchain_rageval._internal.plotting import single_line
from langchain_rageval.testset.candidate import Candidate, Passage, Reason
from langchain_rageval.testset.evolutions import Branch, adds_passage, compose, kinds_of, parts_of, simple
from langchain_rageval.testset.evolve import has_numbers

_LOG = logging.getLogger("langchain_rageval")
_LONGEST_LOG_LINE = 1000

MAX_ATTEMPTS = 8
"""Maximum number of attempts for one row; each uses another passage or key phrase.

An evolution is given up after as many attempts of all its rows, if none of them gave an evolved question.
"""

_MOST_REJECTED = 4 * MAX_ATTEMPTS  # questions or failures; the run ends if none of so many in a row is accepted

_UNWRITTEN = frozenset({Reason.PASSAGE_REJECTED, Reason.NO_KEYPHRASE})  # rejected before a question is written
# rejected after the question was evolved
_EVOLVED = frozenset({Reason.NOT_IN_PASSAGES, Reason.NOT_ANSWERED, Reason.KNOWN_WITHOUT_DOCUMENTS, Reason.DUPLICATE})


@dataclass
class Tree:
    """Questions about one fact, in a test set of trees.

    Attributes:
        root: candidate with the accepted simple question, from which the other rows of the tree are evolved; None until
            there is one.
    """

    root: Candidate | None = None


@dataclass
class RowState:
    """State of one row of the test set: its attempts so far, and its accepted question if there is one.

    Attributes:
        evolution: change that makes the question of the row harder, or more like a user's; `simple` for no change.
        tree: tree (questions about one fact) to which the row belongs; None if the row is in no tree.
        attempts: number of attempts so far.
        accepted: accepted candidate; None while the row is open.
        drawn: passage of the last attempt; None before the first attempt.
        retry_passage: passage to use again in the next attempt, because the evolution of the last attempt was rejected.
    """

    evolution: Branch
    tree: Tree | None = None
    attempts: int = 0
    accepted: Candidate | None = None
    drawn: Passage | None = None
    retry_passage: Passage | None = None

    @property
    def open(self) -> bool:
        """True if the row has no accepted question yet and has attempts left."""
        return self.accepted is None and self.attempts < MAX_ATTEMPTS


class PassageScheduler:
    """Selects the passage for each attempt of each row, round by round.

    Passages are drawn without replacement. When all passages are drawn, the passages that can still give a question are
    drawn again. A passage whose attempt was rejected is drawn again only if there is no other passage.

    In a test set of trees, each tree (questions about one fact) has a simple row, whose question is not evolved. The
    questions of the other rows of the tree are evolved from the question of the simple row, once the simple question is
    accepted. If the evolved question of a row is rejected, or if the tree gets no simple question, the row is moved to
    a new tree as long as it has attempts left.

    Args:
        passages: passages in the order in which they are drawn.
        evolutions: evolution of each row.
        seed: random seed of the run.
        has_similar: function that returns True if there is another passage similar to a passage.
        branches: evolutions of a tree, `simple` first; None for a test set without trees.
        roots: mapping from the number of a row to the accepted simple question of the existing tree that the row joins.

    Attributes:
        passages: the argument `passages`.
        rows: states of the rows, in order.
        attempts: number of candidates so far.
        rejected: mapping from the reason for a rejection to the number of such rejections.
        left_out: mapping from a reason, such as "no numbers in the passage", to the names of the evolutions that are
            never tried, because no passage is suitable for them.
        given_up: mapping from each evolution that is no longer tried, because none of its attempts gave an evolved
            question, to the number of these attempts.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        evolutions: Sequence[Branch],
        seed: int,
        has_similar: Callable[[Passage], bool],
        branches: Sequence[Branch] | None = None,
        roots: Mapping[int, Candidate] | None = None,
    ) -> None:
        trees = {number: Tree(root) for number, root in (roots or {}).items()}
        self.rows = [RowState(evolution, trees.get(number)) for number, evolution in enumerate(evolutions)]
        self.attempts = 0
        self.rejected: Counter[str] = Counter()
        self.left_out: dict[str, list[str]] = {}
        self.given_up: dict[Branch, int] = {}
        self.passages = passages
        self._seed = seed
        self._has_similar = has_similar
        self._branches = branches
        self._undrawn = deque(passages)
        self._draws: Counter[str] = Counter()
        self._last_candidates: dict[str, Candidate] = {}
        self._failed: set[str] = set()
        self._exhausted: set[str] = set()
        self._written = self._repeated = 0  # questions since the last accepted one, and how many of them are duplicates
        self._tries: Counter[Branch] = Counter()
        self._evolved: set[Branch] = set()
        self._plant([row for row in self.rows if row.tree is None])

    def next_round(self) -> dict[int, Candidate]:
        """Return a mapping from row numbers to the candidates to try in the next round; empty if no row can be tried.

        A candidate without a question holds the passage about which a question has to be written. A candidate with a
        question holds the accepted simple question of a tree (questions about one fact), from which the question of the
        row has to be evolved. Rows for which there is no passage are left out of the round.
        """
        self._drop_unreachable()
        wanted = {row.evolution for row in self.rows if row.open} - self._evolved
        for evolution, tries in self._tries.items():
            if tries >= MAX_ATTEMPTS and evolution in wanted:
                self.given_up.setdefault(evolution, tries)
        self._replant()
        rows = {n: row for n, row in enumerate(self.rows) if row.open and row.evolution not in self.given_up}
        roots = [n for n, row in rows.items() if row.tree and row.evolution == simple]
        drawn = {number: self._draw(rows[number]) for number in (rows if self._branches is None else roots)}
        candidates = {number: self._new_candidate(passage) for number, passage in drawn.items() if passage}
        for number, row in rows.items():
            if row.tree and row.tree.root and row.evolution != simple:
                candidates[number] = row.tree.root
        for number, candidate in candidates.items():
            self.rows[number].attempts += 1
            self.rows[number].drawn = candidate.passages[0]
        self.attempts += len(candidates)
        return dict(sorted(candidates.items()))

    @property
    def hopeless(self) -> str:
        """Reason to end the run, such as many rejected or repeated questions one after the other; "" to continue."""
        if self._written >= _MOST_REJECTED:
            return f"none of the last {self._written} questions was accepted; see `rejected`"
        if self._repeated >= 2 * MAX_ATTEMPTS and self._repeated == self._written:
            return f"the last {self._repeated} questions repeat accepted ones; see `rejected`"
        return ""

    def record(self, number: int, candidate: Candidate) -> None:
        """Record the result of an attempt: the accepted question of the row, or the reason for the rejection.

        The result is written to the log at the level debug.

        Args:
            number: number of the row.
            candidate: accepted or rejected candidate.
        """
        row = self.rows[number]
        _log(f"row {number + 1} ({row.evolution.get_name()}), attempt {row.attempts}", candidate)
        drawn = row.drawn or candidate.passages[0]
        self._last_candidates[drawn.id] = candidate
        evolves = row.evolution != simple
        first_kinds = {"passage", "seed", "rewrite", "given", "dedupe"}  # of the trials of a question not yet evolved
        kinds = {trial.kind for trial in candidate.history}
        if evolves and not candidate.has_failed and not kinds <= first_kinds:
            self._tries[row.evolution] += 1
            if candidate.rejected is None or candidate.rejected in _EVOLVED:
                self._evolved.add(row.evolution)
        if candidate.rejected is None:
            row.accepted = candidate
            self._written = self._repeated = 0
            if row.tree and not evolves:
                row.tree.root = candidate.replace(reference=None, evidence=[])
            return
        self.rejected[candidate.rejected] += 1
        self._failed.add(drawn.id)
        self._written += candidate.rejected not in _UNWRITTEN
        self._repeated += candidate.rejected == Reason.DUPLICATE
        if candidate.rejected in _UNWRITTEN:
            self._exhausted.add(drawn.id)
            self._undrawn = deque(passage for passage in self._undrawn if passage.id != drawn.id)
        if row.tree:
            row.tree = None if evolves else row.tree
            return
        suitable = candidate.rejected == Reason.NOT_EVOLVED or (evolves and candidate.rejected in _EVOLVED)
        row.retry_passage = drawn if suitable and self._draws[drawn.id] == 1 else None

    def _drop_unreachable(self) -> None:
        """Before the first attempt, leave out of the trees the evolutions that no passage suits."""
        branches = self._branches or ()
        reachable = [branch for branch in branches if self.attempts or self._is_possible(branch)]
        if len(reachable) == len(branches):
            return
        for branch in branches:
            if branch not in reachable:
                self._leave_out(branch)
        if len(reachable) > 1:
            self._branches = reachable
            self._plant([row for row in self.rows if row.tree is None or row.tree.root is None])
        else:
            self._branches = None
            for row in self.rows:
                if row.tree is None or row.tree.root is None:
                    row.tree, row.evolution = None, reachable[0]

    def _plant(self, rows: Sequence[RowState]) -> None:
        """Group rows into new trees, each with the evolutions that are not given up; the last one may lack some."""
        branches = [branch for branch in self._branches or () if branch not in self.given_up]
        if len(branches) < 2:
            return
        for place, row in enumerate(rows):
            if place % len(branches) == 0:
                tree = Tree()
            row.tree, row.evolution = tree, branches[place % len(branches)]

    def _replant(self) -> None:
        """Group the open rows that cannot be filled in their trees into new trees."""
        if self._branches is None:
            return
        ended = [row for row in self.rows if row.evolution == simple and not row.open and row.accepted is None]
        barren = {id(row.tree) for row in ended}
        rows = [row for row in self.rows if row.open and not (row.evolution == simple and row.tree)]
        self._plant([r for r in rows if r.tree is None or id(r.tree) in barren or r.evolution in self.given_up])

    def _draw(self, row: RowState) -> Passage | None:
        if row.retry_passage is not None:
            passage, row.retry_passage = row.retry_passage, None
            return passage
        if row.tree is None:
            for part in parts_of(row.evolution):
                if not self._is_possible(part):
                    self._leave_out(part)
                    row.evolution = compose(other for other in parts_of(row.evolution) if other != part)
        wanted: list[Branch] = []
        same_tree = [other.evolution for other in self.rows if other.tree is row.tree and other.open]
        for branch in same_tree if row.tree else [row.evolution]:
            wanted += [branch] if self._is_possible(*wanted, branch) else []
        for _ in range(2):
            for index, passage in enumerate(self._undrawn):
                if all(self._suits(branch, passage) for branch in wanted):
                    del self._undrawn[index]
                    return passage
            # no undrawn passage suits: draw those again that can give another question, failed ones only without others
            undrawn = {passage.id for passage in self._undrawn}
            usable = [p for p in self.passages if p.id not in self._exhausted and p.id not in undrawn]
            self._undrawn.extend([p for p in usable if p.id not in self._failed] or usable)
        return None

    def _suits(self, branch: Branch, passage: Passage) -> bool:
        """Return True if a passage has what the evolutions of a branch need: numbers, or another passage."""
        if any(kind.needs_numbers for kind in kinds_of(branch)) and not has_numbers(passage):
            return False
        return not adds_passage(branch) or self._has_similar(passage)

    def _is_possible(self, *branches: Branch) -> bool:
        """Return True if one passage has what all branches need."""
        return any(all(self._suits(branch, passage) for branch in branches) for passage in self.passages)

    def _leave_out(self, part: Branch) -> None:
        """Count an evolution that no passage suits, and note its name."""
        reason = Reason.NO_NEAR_PASSAGE if adds_passage(part) else Reason.NO_NUMBERS
        self.rejected[reason] += 1
        names = self.left_out.setdefault(reason, [])
        names += [] if part.get_name() in names else [part.get_name()]

    def _new_candidate(self, passage: Passage) -> Candidate:
        """Return a candidate with the grade and key phrases that earlier attempts found for its passage."""
        draw = self._draws[passage.id]
        self._draws[passage.id] += 1
        earlier = self._last_candidates.get(passage.id)
        candidate = Candidate(passages=[passage], draw=draw, seed=self._seed)
        if earlier is None:
            return candidate
        grading = [trial for trial in earlier.history if trial.kind == "passage"]
        return candidate.replace(grade=earlier.grade, keyphrases=earlier.keyphrases, history=grading)


def _log(place: str, candidate: Candidate) -> None:
    """Write an accepted or rejected question to the log, with the reason and the feedback."""
    if candidate.rejected is None:
        _LOG.debug("%s: accepted: %s", place, single_line(candidate.question, _LONGEST_LOG_LINE))
        return
    subject = candidate.question or f"passage {candidate.passages[0].id} of {candidate.passages[0].source}"
    comment = f" ({candidate.objection})" if candidate.objection else ""
    _LOG.debug("%s: %s", place, single_line(f"{candidate.rejected}: {subject}{comment}", _LONGEST_LOG_LINE))
