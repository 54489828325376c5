"""TestsetRow: a question with its reference answer and history; TestsetDiff: the differences of two test sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, ClassVar

from pydantic import Field

from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval._internal.page import bold, details, item_list, paragraph, text
from langchain_rageval.data.schema import InputModel, Sample, Turn
from langchain_rageval.testset.candidate import Candidate, Passage, Trial
from langchain_rageval.testset.docstore import Docstore


class TestsetRow(InputModel):
    """A question of a test set.

    Attributes:
        id: stable identifier, a hash of question and passages.
        question: question to ask the RAG system.
        chat_history: earlier turns of the conversation that the question continues, the oldest first; `[]` for a
            question that stands alone. They are the `history` of the sample.
        contexts: texts of the passages that are needed to answer; for an unanswerable question, the texts from which
            the question was written.
        reference: reference answer; for an unanswerable question, a sentence saying that the documents do not answer
            it; "" if the step that writes it was left out.
        evolution: names of the evolutions, joined by "+"; "simple" if there are none.
        answerable: True if the documents answer the question.
        evidence: sentences of the contexts that support the reference answer, as the critic cited them.
        history: all attempts with their feedback, in order.
        passage_ids: ids of the passages, in the order of `contexts`.
        spans: source, offset of the first character and offset after the last character of each context.
        metadata: metadata of the first passage, and what evolutions add: `persona`, `style`, `bridge` (entities that
            connect the passages), `standalone_question` (a follow-up in a form that needs no earlier turns).
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
    evidence: list[str] = Field(default_factory=list)
    history: list[Trial] = Field(default_factory=list)
    passage_ids: list[str] = Field(default_factory=list)
    spans: list[tuple[str, int, int]] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    tree_id: str = ""

    @property
    def standalone_question(self) -> str:
        """Question in a form that needs no earlier turns; `question` itself if there are no earlier turns."""
        return str(self.metadata.get("standalone_question") or self.question) if self.chat_history else self.question

    def _repr_html_(self) -> str:
        """Return the tree of the question as HTML for notebooks: passages, attempts, the result with its reference."""
        spans = [f"{source} {start}–{end}: " for source, start, end in self.spans] or [""] * len(self.contexts)
        passages = [text(span + passage) for span, passage in zip(spans, self.contexts, strict=True)]
        return item_list(passages) + trial_list(self.history) + row_html(self)

    def to_sample(self) -> Sample:
        """Return the row as a Sample without `answer` and `contexts`, which a RAG system has to add.

        `references` holds the reference answer, `reference_contexts` the contexts of the row; for an unanswerable
        question both are empty. `metadata["spans"]` holds source and offsets of each context, for `span_grader`.
        """
        metadata = {**self.metadata, "evolution": self.evolution, "answerable": self.answerable}
        metadata |= {"spans": [list(span) for span in self.spans]} if self.answerable and self.spans else {}
        metadata |= {"tree_id": self.tree_id} if self.tree_id else {}
        return Sample(
            id=self.id,
            question=self.question,
            history=self.chat_history,
            references=[self.reference] if self.answerable and self.reference.strip() else [],
            reference_contexts=self.contexts if self.answerable else [],
            reference_context_ids=self.passage_ids if self.answerable else [],
            metadata=metadata,
        )


def row_id(question: str, passage_ids: Sequence[str], chat_history: Sequence[Turn]) -> str:
    """Return the id of a row: a hash of its question and passages, and of its earlier turns if there are any."""
    content: list[Any] = [question, list(passage_ids)]
    if chat_history:
        content.append([[turn.role, turn.text] for turn in chat_history])
    return short_digest(json.dumps(content))


def row_of(candidate: Candidate, store: Docstore) -> TestsetRow:
    """Return an accepted candidate as a row; `store` holds its passages."""
    fields = passage_fields(candidate.passages, store)
    standalone = {"standalone_question": candidate.standalone} if candidate.chat_history else {}
    names = ("question", "chat_history", "evolution", "answerable", "evidence", "history", "tree_id")
    return TestsetRow(
        id=row_id(candidate.question, fields["passage_ids"], candidate.chat_history),
        reference=candidate.reference or "",
        metadata={**candidate.passages[0].metadata, **candidate.metadata, **standalone},
        **fields,
        **{name: candidate[name] for name in names},
    )


def passage_fields(passages: Iterable[Passage], store: Docstore) -> dict[str, Any]:
    """Return the fields `contexts`, `passage_ids` and `spans` of a row with these passages of a Docstore.

    If the Docstore has a vector store, the ids are those of the vector store.
    """
    passages = [store.identify(passage) for passage in passages]
    return {
        "contexts": [passage.text for passage in passages],
        "passage_ids": [passage.id for passage in passages],
        "spans": [(passage.source, passage.start, passage.end) for passage in passages],
    }


def row_html(row: TestsetRow) -> str:
    """Return the earlier turns, the question and the reference answer of a row as HTML."""
    turns = [paragraph(f"<em>{text(turn.role)}</em> {text(turn.text)}") for turn in row.chat_history]
    question = paragraph(bold(row.question), "(" + text(row.evolution) + ")")
    return "".join([*turns, question, paragraph(text(row.reference))])


def trial_list(history: Sequence[Trial]) -> str:
    """Return trials (attempts at a question) as an HTML list with their feedback; rejected trials are indented."""

    def line(trial: Trial) -> str:
        feedback = f" <em>{text(trial.feedback)}</em>" if trial.feedback else ""
        shown = " ".join(["✓" if trial.accepted else "✗", bold(trial.kind), text(trial.question)]) + feedback
        return shown if trial.accepted else f'<div style="margin-left: 3em">{shown}</div>'

    return item_list([line(trial) for trial in history])


@dataclass(frozen=True, repr=False)
class TestsetDiff:
    """Differences between an earlier and a later test set; evaluates to False if there are none.

    Attributes:
        before: version of the earlier test set.
        after: version of the later test set.
        added: rows that only the later test set has.
        dropped: rows that only the earlier test set has.
        changed: mapping from the id of each changed row to the row's changed fields: a mapping from the name of the
            field to a tuple of the earlier and the later value.
        same: number of rows without a change.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class

    before: str
    after: str
    added: list[TestsetRow]
    dropped: list[TestsetRow]
    changed: Mapping[str, Mapping[str, tuple[Any, Any]]]
    same: int

    def __bool__(self) -> bool:
        """Return True if the test sets differ."""
        return bool(self.added or self.dropped or self.changed)

    def __repr__(self) -> str:
        """Return the differences as text: a line with the counts, then a line for each row and changed field."""
        return "\n".join([self.title, *(f"{sign} {what}" for sign, what in self.lines())])

    def _repr_html_(self) -> str:
        """Return the differences as HTML, for notebooks."""
        groups = {"+": "added", "-": "dropped", "~": "changed"}
        parts = [paragraph(bold(self.title))]
        for sign, name in groups.items():
            items = [text(what) for own, what in self.lines() if own == sign]
            parts += [details(f"{name} ({len(items)})", item_list(items))] if items else []
        return "".join(parts)

    @property
    def title(self) -> str:
        """Heading with both versions and the numbers of added, dropped, changed and equal rows."""
        changes = f"{len(self.added)} added, {len(self.dropped)} dropped, {len(self.changed)} changed"
        return f"{self.before} -> {self.after}: {changes}, {self.same} the same"

    def lines(self) -> list[tuple[str, str]]:
        """Return a tuple (sign, text) for each added row ("+"), dropped row ("-") and changed field ("~").

        The text holds the id and question of the row, or the id, the field and its earlier and later value.
        """
        groups = (("-", self.dropped), ("+", self.added))
        rows = [(sign, f"{row.id} {row.question}") for sign, group in groups for row in group]
        fields = [
            ("~", f"{name} {field}: {_short(before)} -> {_short(after)}")
            for name, changes in self.changed.items()
            for field, (before, after) in changes.items()
        ]
        return rows + fields

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON with the keys `before`, `after`, `added`, `dropped`, `changed` and `same`.

        `added` and `dropped` list ids of rows. `changed` maps the id of each changed row to a mapping from the changed
        fields to {"before": earlier value, "after": later value}.
        """
        changed = {
            name: {field: dict(zip(("before", "after"), pair, strict=True)) for field, pair in changes.items()}
            for name, changes in self.changed.items()
        }
        ids = {name: [row.id for row in getattr(self, name)] for name in ("added", "dropped")}
        return {"before": self.before, "after": self.after, **ids, "changed": changed, "same": self.same}


def diff_rows(before: Sequence[TestsetRow], after: Sequence[TestsetRow], versions: tuple[str, str]) -> TestsetDiff:
    """Return the differences between the rows of an earlier and a later test set; see `Testset.diff`."""
    later, earlier = {row.id: row for row in after}, {row.id for row in before}
    by_question = {row.question: row for row in after if row.id not in earlier}
    pairs = [(old, later.get(old.id) or by_question.get(old.question)) for old in before]
    found = {new.id for _, new in pairs if new is not None}
    changes = {old.id: changed_fields(old, new) for old, new in pairs if new is not None}
    changed = {name: fields for name, fields in changes.items() if fields}
    added, dropped = [row for row in after if row.id not in found], [old for old, new in pairs if new is None]
    return TestsetDiff(*versions, added, dropped, changed, same=len(changes) - len(changed))


def changed_fields(before: TestsetRow, after: TestsetRow) -> dict[str, tuple[Any, Any]]:
    """Return a mapping from each field that differs to its earlier and its later value; without `id` and `history`."""
    old, new = (row.model_dump(mode="json", fallback=str, exclude={"id", "history"}) for row in (before, after))
    return {name: (value, new.get(name)) for name, value in old.items() if value != new.get(name)}


def _short(value: Any) -> str:
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    return shorten(" | ".join(map(str, items)), 100, placeholder="…")
