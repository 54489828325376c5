"""Refresh: adapt a test set to changed documents, with model calls only for rows that a change concerns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.page import pluralize
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.testset.candidate import SIMPLE, Candidate, Passage, Reason, Trial
from langchain_rageval.testset.docstore import UNNAMED_TEXT, Docstore, sentence_hashes
from langchain_rageval.testset.evolutions import Branch, branch_of_names, kinds_of, persona
from langchain_rageval.testset.generation import Generation
from langchain_rageval.testset.row import TestsetRow, passage_fields
from langchain_rageval.testset.testset import CHANGES, Testset
from langchain_rageval.testset.writing import CHECK_ANSWER
from langchain_rageval.text.words import normalize_text, shared_share

_MIN_SHARED = 0.2  # share of the shorter text from which a passage counts as the new version of another one
_BREAK = re.compile(r"\n+|(?<=[.!?…])\s+|(?<=[。！？])")
_SHORTEST_SENTENCE = 20  # characters
_PIECE = re.compile(r"[^\W_]+|[^\w\s*`~#>|\"'«»“”„‘’]")  # words and other signs, which all count
_MARKS = r"[\s_*`~#>|\"'«»“”„‘’]*"  # what may stand between them
_MOSTLY_THE_SAME = 0.8  # share from which one passage holds what became of another
_NEAREST = 3  # passages to a question or to its answer, among which new ones concern it
_CONCERNS_QUESTION, _CONCERNS_ANSWER = 0.5, 0.4  # shares of these in new sentences, from which they concern the row
_MAX_VERSIONS = 3  # passages in which the text of one earlier passage is looked for


class RowUpdates:
    """Updates of the rows of a test set for changed documents, found by comparing texts, without a model.

    A passage is unchanged if any document holds its text; white space, quotation marks and Markdown marks do not count.
    Otherwise its new versions are the passages of the same document that share text with it or are in its place. If the
    document is gone, its new versions are passages of other documents: each contains the old passage or is contained in
    it. A passage with new sentences needs to share only four fifths of the shorter of the two texts.

    A new or changed passage concerns a row if it is among the three passages nearest to the question, and its new
    sentences (absent from the earlier documents) hold half of the words of the question, weighted by rarity. It also
    concerns the row if it is among the three nearest to the answer, and these sentences hold two fifths of the words of
    the answer. A passage that begins with a passage of the row concerns the row if new sentences follow.

    Args:
        store: new documents.
        known: hashes of the sentences of the earlier documents; None if they are unknown: then no passage counts as
            new.
    """

    def __init__(self, store: Docstore, known: Collection[int] | None) -> None:
        self._store = store
        new = frozenset() if known is None else store.sentences.difference(known)
        self._news: dict[str, str] = {}
        self._texts = list(store.texts())
        self._by_source: dict[str, list[Passage]] = defaultdict(list)
        for passage in store.passages:
            self._by_source[passage.source].append(passage)
            if new:
                sentences = sentence_hashes(passage.text).items()
                self._news[passage.id] = " ".join(sentence for number, sentence in sentences if number in new)

    def of(self, row: TestsetRow, seed: int) -> tuple[TestsetRow | None, Candidate | None]:
        """Compare a row with the documents; return the updated row, and a candidate if models must check its answer.

        Args:
            row: the row.
            seed: seed of the candidate.

        Returns:
            A tuple of two. The first value is the row: with new spans, ids and metadata if the documents hold all its
            passages; unchanged if each missing passage has a new version; None if a missing passage has none. The
            second value is a candidate for the check, with the row's question, the row's passages or their new
            versions, and the new passages that concern the row (hold much of its question or answer). The second value
            is None if no check is needed: no passage has changed and no new passage concerns the row, or the first
            value is None.
        """
        earlier = [
            Passage(id=own, text=text, source=source, start=start, end=end)
            for own, text, (source, start, end) in zip(row.passage_ids, row.contexts, row.spans, strict=True)
        ]
        found = [self._find(passage) for passage in earlier]
        if all(found):
            kept = [passage for passage in found if passage]
            moved = self.with_passages(row, kept) if kept else row
            news = self._news_for(row, kept)
            return moved, self._candidate(moved, kept, news, seed) if news else None
        versions = [[passage] if passage else self._versions(old) for passage, old in zip(found, earlier, strict=True)]
        if not all(versions):
            return None, None
        passages = {passage.id: passage for group in versions for passage in group}
        return row, self._candidate(row, list(passages.values()), self._news_for(row), seed)

    def _candidate(self, row: TestsetRow, passages: list[Passage], news: list[Passage], seed: int) -> Candidate:
        """Return the question of a row with its passages and the news; an unanswerable one reads these besides."""
        others = [new for new in news if new.id not in {passage.id for passage in passages}]
        own = [passage for passage in passages if not any(passage.text in new.text for new in others)]
        same = ("question", "chat_history", "evolution", "answerable", "reference", "evidence")
        return Candidate(
            passages=[*own, *others] if row.answerable else passages,
            nearest=[] if row.answerable else others,
            standalone=row.standalone_question if row.chat_history else "",
            seed=seed,
            **{name: getattr(row, name) for name in same},
        )

    def _news_for(self, row: TestsetRow, kept: Sequence[Passage] = ()) -> list[Passage]:
        """Return the new and changed passages that concern the question of a row; `kept` are its unchanged ones."""
        if not self._news:
            return []
        texts = {row.standalone_question: _CONCERNS_QUESTION}
        texts |= {row.reference: _CONCERNS_ANSWER} if row.answerable else {}
        index, found = self._store.phrase_index, {}
        for text, least in texts.items():
            for passage in (self._store.passages[number] for number in index.nearest(text)[:_NEAREST]):
                if index.weighted_share(text, self._news.get(passage.id, "")) >= least:
                    found[passage.id] = passage
        grown = ((new, old) for old in kept for new in self._by_source.get(old.source, ()) if self._news.get(new.id))
        found |= {new.id: new for new, old in grown if new.start == old.start and old.end < new.end}
        return list(found.values())

    def with_passages(self, row: TestsetRow, passages: Sequence[Passage]) -> TestsetRow:
        """Return a copy of the row with other passages: their texts, ids and spans, and metadata of the first."""
        fields = passage_fields(passages, self._store)
        return row.model_copy(update={**fields, "metadata": {**row.metadata, **passages[0].metadata}})

    def _find(self, passage: Passage) -> Passage | None:
        """Return the passage at its new place; None if no document holds its text.

        White space, quotation marks and marks of Markdown do not count. Its own document comes first.
        """
        if same := self._store.passage_of(passage.text):
            return same
        loose = re.compile(_MARKS.join(map(re.escape, _PIECE.findall(passage.text))))
        texts = sorted(self._texts, key=lambda item: item[0] != passage.source)
        for pattern in (re.compile(re.escape(passage.text)), loose):
            for source, start, text in texts:
                if match := pattern.search(text):
                    span = {"start": start + match.start(), "end": start + match.end()}
                    return passage.model_copy(update={"source": source, **span})
        return None

    def _versions(self, passage: Passage) -> list[Passage]:
        """Return the passages that hold what became of a changed one, the most similar first."""
        own = self._by_source.get(passage.source, [])
        if same_id := [other for other in own if other.id == passage.id]:
            return same_id
        others = own or self._with_sentences_of(passage)
        shares = [(shared_share(passage.text, other.text), other) for other in others]
        if not own and not passage.source.startswith(UNNAMED_TEXT):  # an earlier document may have the same pattern
            least = {other.id: _MOSTLY_THE_SAME if self._news.get(other.id) else 1.0 for other in others}
            shares = [(share, other) for share, other in shares if share >= least[other.id]]
        best = max((share for share, _ in shares), default=0.0)
        least_share = best if best >= _MOSTLY_THE_SAME else _MIN_SHARED
        near = [other for share, other in sorted(shares, key=lambda pair: -pair[0]) if share >= least_share]
        if not near and len({other.start for other in own}) == len(own):
            near = [other for other in own if other.start < passage.end and passage.start < other.end]
        return near[:_MAX_VERSIONS]

    def _with_sentences_of(self, passage: Passage) -> list[Passage]:
        """Return the passages that share the most lines or sentences with a passage whose document has another name.

        A document without a name is named after its text, and its new version has another one.
        """
        counts = Counter(number for sentence in _sentences(passage.text) for number in self._by_sentence[sentence])
        return [self._store.passages[number] for number, _ in counts.most_common(_MAX_VERSIONS)]

    @cached_property
    def _by_sentence(self) -> Mapping[str, list[int]]:
        """Numbers of the passages that hold a sentence."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self._store.passages):
            for sentence in _sentences(passage.text):
                numbers[sentence].append(number)
        return numbers


def _sentences(text: str) -> list[str]:
    """Return the lines and sentences of a text that are long enough to be recognized."""
    return [part.strip() for part in _BREAK.split(text) if len(part.strip()) >= _SHORTEST_SENTENCE]


@dataclass
class Refresh:
    """One run that adapts a test set to changed documents.

    Attributes:
        testset: the test set.
        generation: run of the generator over the new documents, which makes the checks in `attempts`. The run generates
            only the new rows that `plan_rows` plans, in place of rows that have to be replaced.
        attempts: checks of the rows that new or changed passages concern, in order.
        rows: mapping from the place in the test set to the current row; to None if the row has to be replaced.
        corrected: ids of the rows that got a new answer.
        failures: reason for each row that could not be checked.
    """

    testset: Testset
    generation: Generation
    rows: dict[int, TestsetRow | None] = field(init=False)
    corrected: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Compare the rows with the documents."""
        generation = self.generation
        self._updates = RowUpdates(generation.store, self.testset.known_sentences)
        find, answer, self._checking = generation.answering_steps()
        self._answering = find | answer
        updates = [self._updates.of(row, generation.seed) for row in self.testset.rows]
        self.rows = {number: row for number, (row, _) in enumerate(updates)}
        self._numbers = (number for number, (_, candidate) in enumerate(updates) if candidate)
        calls = 4  # for a row whose passages have changed: find the passages, answer, check both answers
        candidates = [candidate for _, candidate in updates if candidate]
        self.attempts = [generation.check(self._answer(one), one, "refresh", calls) for one in candidates]

    def _answer(self, state: Candidate) -> Operation[Candidate]:
        """Answer the question of a row again: two calls; if the answer differs, up to two more calls verify both.

        The result has the earlier answer if the passages support it, else the new answer if they support the new one.
        The result is rejected if they support neither, or no longer answer the question. An unanswerable question
        becomes answerable if a document answers it now.
        """
        earlier = state.reference or ""
        answered: Candidate = yield InvokeChild(self._answering, state.replace(reference=None))
        if answered.rejected == Reason.ANSWERED_BY_DOCUMENTS:
            passages = [*state.nearest, *state.passages]
            question = state.replace(answerable=True, passages=passages, nearest=[], reference=None)
            answered, earlier = (yield InvokeChild(self._answering, question)), ""
        if answered.rejected or not answered.answerable:
            return answered
        if earlier and normalize_text(earlier) == normalize_text(answered.reference or ""):
            there = {number for passage in answered.passages for number in sentence_hashes(passage.text)}
            kept = [text for text in state.evidence if sentence_hashes(text).keys() <= there]
            return answered.replace(reference=earlier, evidence=kept)
        checked: Candidate = answered.reject(Reason.UNSUPPORTED)
        if earlier:
            checked = yield InvokeChild(self._checking, answered.replace(reference=earlier))
        if checked.rejected:
            checked = yield InvokeChild(self._checking, answered)
        return checked

    @property
    def fallen(self) -> list[TestsetRow]:
        """Rows that have to be replaced, in the form of the earlier test set and in its order.

        A row has to be replaced if one of its passages has no new version in the documents, or if `record` dropped the
        row.
        """
        return [row for number, row in enumerate(self.testset.rows) if self.rows[number] is None]

    @property
    def remaining(self) -> list[TestsetRow]:
        """Rows that do not have to be replaced, with the changes so far, in the order of the test set."""
        return [row for row in self.rows.values() if row is not None]

    def plan_rows(self) -> None:
        """Plan a new row, with the same evolution, for each row that has to be replaced.

        If the replaced row is in a tree (questions about one fact), the new question is evolved from the tree's simple
        question, unless this question has to be replaced too or its passages have changed. Otherwise the new question
        is about a newly drawn passage. If the name of the evolution is neither in the generator's distribution nor made
        of names of packaged evolutions, no new row is planned.
        """
        branches: list[Branch] = list(self.generation.settings.distribution)
        named = [(row, _branch_of(row, branches)) for row in self.fallen]
        planned = [(row, branch) for row, branch in named if branch is not None]
        roots = {number: root for number, (row, _) in enumerate(planned) if (root := self._root_of(row))}
        self.generation.plan_rows([branch for _, branch in planned], self.remaining, roots)

    def result(self, replacements: Testset) -> Testset:
        """Return the refreshed test set: the rows that stay, with each new row in the place of a replaced row.

        Args:
            replacements: test set with the new rows, generated as `plan_rows` planned. Places without a new row are
                left out, and a note counts them.
        """
        by_place = dict(zip(self._places(replacements), replacements.rows, strict=True))
        rows = [row or by_place.get(number) for number, row in self.rows.items()]
        kept = [row.id for row in self.remaining if row.id not in self.corrected]
        added, dropped = [row.id for row in replacements.rows], [row.id for row in self.fallen]
        new = replace(replacements, notes=[*replacements.notes, *self._notes(len(added))])
        new = replace(new, complete=len(added) == len(dropped))
        return _next(self.testset, new, [row for row in rows if row], (kept, added, self.corrected, dropped))

    def _root_of(self, row: TestsetRow) -> Candidate | None:
        """Return the simple question about the same fact; None outside of a tree, or if that one fell, too."""
        trees = {other.tree_id: other for other in reversed(self.remaining) if other.evolution == SIMPLE}
        if not row.tree_id or (other := trees.get(row.tree_id)) is None:
            return None
        passages = [passage for text in other.contexts if (passage := self.generation.store.passage_of(text))]
        if not passages or len(passages) < len(other.contexts):
            return None
        return Candidate(passages=passages, question=other.question, tree_id=other.tree_id, seed=self.generation.seed)

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
        if self.failures:
            rows = pluralize(len(self.failures), "row")
            yield f"{rows} could not be checked against changed passages and stayed as before: {self.failures[0]}."

    def record(self, result: Candidate) -> None:
        """Keep, correct or drop the row that was checked, by the result of its check.

        An accepted result keeps the row with the passages of the result, and with the new answer if the answer has
        changed. If a call failed or the budget was spent, the row stays as it was and counts as unchecked. Any other
        rejection drops the row, which then has to be replaced.
        """
        number = next(self._numbers)
        if result.rejected is None:
            self.rows[number] = self._checked(self.testset.rows[number], result)
        elif result.rejected == Reason.BUDGET_SPENT or result.has_failed:
            self.failures.append(result.objection or result.rejected)
        else:
            self.rows[number] = None
            self.generation.rejected.append(result)

    def _checked(self, row: TestsetRow, result: Candidate) -> TestsetRow:
        """Return a row with the passages of a result; with its answer, if the earlier one does not hold."""
        checked = self._updates.with_passages(row, result.passages)
        update: dict[str, Any] = {"evidence": result.evidence, "answerable": result.answerable}
        if normalize_text(result.reference or "") != normalize_text(row.reference):
            self.corrected.append(row.id)
            trial = Trial(kind=CHECK_ANSWER, question=row.question, accepted=False, feedback=row.reference)
            update |= {"reference": result.reference or "", "history": [*row.history, trial]}
        return checked.model_copy(update=update)


def _branch_of(row: TestsetRow, branches: Sequence[Branch]) -> Branch | None:
    """Return the evolution of a row, asked by the same persona if it has one; None if nothing here has its name."""
    who = row.metadata.get("persona")
    named = [branch for branch in branches if branch.get_name() == row.evolution]
    any_named = next(iter(named), None)
    if not isinstance(who, str) or not who.strip():
        return any_named or branch_of_names(row.evolution)
    same = next((branch for branch in named if who in {kind.persona for kind in kinds_of(branch)}), None)
    return same or branch_of_names(row.evolution, {"persona": persona(who)}) or any_named


def extended(testset: Testset, addition: Testset) -> Testset:
    """Return the next version of a test set: its rows, then the rows of the test set `addition`."""
    kept, added = ([row.id for row in part.rows] for part in (testset, addition))
    return _next(testset, addition, [*testset.rows, *addition.rows], (kept, added, [], []))


def _next(earlier: Testset, new: Testset, rows: list[TestsetRow], changes: Sequence[list[str]]) -> Testset:
    """Return the next version of a test set: rows of both, with `changes` in the order of `CHANGES`."""
    return replace(
        new,
        rows=rows,
        notes=[*dict.fromkeys([*earlier.notes, *new.notes])],
        complete=earlier.complete and new.complete,
        changes=dict(zip(CHANGES, changes, strict=True)),
        number=earlier.number + 1,
    )
