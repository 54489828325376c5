"""Functions that merge and split test sets, compare two reviews, and exchange test sets with BEIR and LangSmith."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, check_number
from langchain_rageval.statistics.agreement import statistic
from langchain_rageval.testset.candidate import Candidate, Reason
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.row import TestsetRow, changed_fields, row_id
from langchain_rageval.testset.sampling import spread

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset

REVIEW = "review"
"""Kind of the trial that the page of `rageval review` adds for a person's decision."""

Decision = Literal["kept", "dropped"]


Reviewed = tuple[Sequence[TestsetRow], Sequence[Candidate]]
"""Rows of a test set that a person reviewed, and its rejected candidates, dropped rows among them."""


def merge_rows(rows: Iterable[TestsetRow]) -> list[TestsetRow]:
    """Return the rows of several test sets without repeated ids and questions; see `Testset.merge`."""
    merged: dict[str, TestsetRow] = {}
    questions: dict[str, str] = {}
    for row in rows:
        same = merged.get(row.id)
        if same is not None and (changes := changed_fields(same, row)):
            raise ConfigError(f"two rows have the id {row.id!r} and differ in {', '.join(changes)}: rename one of them")
        question = " ".join(row.standalone_question.casefold().split())
        if questions.setdefault(question, row.id) == row.id:
            merged.setdefault(row.id, row)
    return list(merged.values())


def split_rows(rows: Sequence[TestsetRow], share: float, seed: int) -> set[str]:
    """Return the ids of the rows in the first part of a random split, about `share` (0 to 1) of all rows.

    The rows of each evolution are split in this share, and rows about one fact (of one tree) stay together. Raises
    ConfigError if `share` is not between 0 and 1.
    """
    check_number("share must be a number between 0 and 1", share, lambda n: 0 < n < 1)
    units: dict[str, list[TestsetRow]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        units.setdefault(row.tree_id or row.id, []).append(row)
    strata: dict[str, list[list[TestsetRow]]] = {}
    for unit in units.values():
        strata.setdefault("\n".join(row.evolution for row in unit), []).append(unit)
    first: set[str] = set()
    for unit in spread(strata, Random(seed)):
        if len(first) + len(unit) / 2 <= share * len(rows):
            first |= {row.id for row in unit}
    return first


@dataclass(frozen=True)
class ReviewAgreement:
    """Agreement of two reviews of one test set.

    Attributes:
        rows: number of rows that both reviewers decided about.
        same: number of these rows that both reviewers kept (edited or not) or both dropped.
        kappa: Cohen's kappa of keeping and dropping; None if it is undefined, for example if both reviewers kept all
            rows.
        disagreements: mapping from the id of a row to its question and the two decisions, for each row that only one
            reviewer dropped or that the reviewers edited differently.
    """

    rows: int
    same: int
    kappa: float | None
    disagreements: Mapping[str, tuple[str, Decision, Decision]]

    def __str__(self) -> str:
        """Return the agreement as text, such as "38 of 40 rows decided alike, kappa 0.83"."""
        kappa = "" if self.kappa is None else f", kappa {self.kappa:.2f}"
        return f"{self.same} of {self.rows} rows decided alike{kappa}"


def review_agreement(one: Reviewed, other: Reviewed) -> ReviewAgreement:
    """Return the agreement of two reviewers on one test set, by the rows about which both decided.

    Each argument holds the rows and the rejected candidates of a reviewed test set. Raises ConfigError if there is no
    row about which both decided.
    """
    first, second = _decisions(one), _decisions(other)
    both = [name for name in first if name in second]
    if not both:
        raise ConfigError("there is no row that both reviewers decided about: review copies of one test set")
    kept = [[float(reviews[name][0] != "dropped") for name in both] for reviews in (first, second)]
    rows = [{row.id: row for row in reviewed} for reviewed, _ in (one, other)]
    shared = rows[0].keys() & rows[1].keys()
    edited = {name for name in shared if changed_fields(rows[0][name], rows[1][name])}
    differ = [name for name, own, its in zip(both, *kept, strict=True) if own != its or name in edited]
    return ReviewAgreement(
        rows=len(both),
        same=sum(a == b for a, b in zip(*kept, strict=True)),
        kappa=statistic("kappa", *kept),
        disagreements={name: (first[name][1], first[name][0], second[name][0]) for name in differ},
    )


def _decisions(reviewed: Reviewed) -> dict[str, tuple[Decision, str]]:
    """Return decision and question of each reviewed row by its id."""
    rows, rejected = reviewed
    kept = [row for row in rows if any(trial.kind == REVIEW for trial in row.history)]
    found: dict[str, tuple[Decision, str]] = {row.id: ("kept", row.question) for row in kept}
    dropped = [candidate for candidate in rejected if candidate.rejected == Reason.DROPPED_BY_REVIEWER]
    return found | {_id_of(candidate): ("dropped", candidate.question) for candidate in dropped}


def _id_of(candidate: Candidate) -> str:
    own = candidate.metadata.get("id")
    ids = [passage.id for passage in candidate.passages]
    return own if isinstance(own, str) else row_id(candidate.question, ids, candidate.chat_history)


def merge_reviews(one: Reviewed, other: Reviewed) -> tuple[list[TestsetRow], list[Candidate], ReviewAgreement]:
    """Return the merged rows and rejected candidates of two reviews, and the agreement; see `Testset.merge_reviews`.

    A row on which the reviewers disagree is among the rows, without a decision.
    """
    agreement = review_agreement(one, other)
    rows, others = ({row.id: row for row in reviewed} for reviewed, _ in (one, other))
    candidates = [*one[1], *other[1]]
    dropped = {_id_of(c): c for c in candidates if c.rejected == Reason.DROPPED_BY_REVIEWER}
    merged: list[TestsetRow] = []
    for name in dict.fromkeys([*rows, *others]):
        twins = [row for row in (rows.get(name), others.get(name)) if row is not None]
        if name in agreement.disagreements:
            history = [trial for trial in twins[0].history if trial.kind != REVIEW]
            merged.append(twins[0].model_copy(update={"history": history}))
        elif name not in dropped:
            decided = [row for row in twins if any(trial.kind == REVIEW for trial in row.history)]
            merged.append([*decided, *twins][0])
    kept = [candidate for candidate in one[1] if candidate.rejected != Reason.DROPPED_BY_REVIEWER]
    kept += [candidate for name, candidate in dropped.items() if name not in agreement.disagreements]
    return merged, kept, agreement


def write_beir(folder: str | Path, rows: Sequence[TestsetRow], store: Docstore | None) -> None:
    """Write rows as a data set of BEIR; see `Testset.to_beir`."""
    passages = {
        own: (text, span[0])
        for row in rows
        for own, text, span in zip(row.passage_ids, row.contexts, row.spans, strict=True)
    }
    known = {text for text, _ in passages.values()}
    others = [passage for passage in (store.passages if store else ()) if passage.text not in known]
    passages |= {passage.id: (passage.text, passage.source) for passage in others}
    corpus = [
        {"_id": own, "title": "", "text": text, "metadata": {"source": source}}
        for own, (text, source) in passages.items()
    ]
    queries = [
        {"_id": row.id, "text": row.standalone_question, "metadata": {"evolution": row.evolution}} for row in rows
    ]
    pairs = [f"{row.id}\t{own}\t1" for row in rows if row.answerable for own in row.passage_ids]
    root = Path(folder)
    try:
        (root / "qrels").mkdir(parents=True, exist_ok=True)
        for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (root / name).write_text(text, encoding="utf-8")
        head = "query-id\tcorpus-id\tscore"
        (root / "qrels" / "test.tsv").write_text("\n".join([head, *pairs, ""]), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}; choose another folder") from None


def write_langsmith(client: Client, name: str, description: str, rows: Sequence[TestsetRow]) -> Dataset:
    """Create a LangSmith data set with an example for each row; see `Testset.to_langsmith`.

    The inputs of an example are the question and, for a follow-up, the earlier turns as messages. Fields with their
    default values are left out of the metadata.
    """
    from langsmith.schemas import ExampleCreate

    outputs = "reference_outputs" if "reference_outputs" in ExampleCreate.model_fields else "outputs"  # before 0.15
    fields = {"id", "evolution", "contexts", "answerable", "evidence", "passage_ids", "tree_id"}
    dataset = client.create_dataset(name, description=description)
    examples = []
    for row in rows:
        messages = [{"role": turn.role, "content": turn.text} for turn in row.chat_history]
        inputs = {"question": row.question, **({"chat_history": messages} if messages else {})}
        metadata = row.model_dump(mode="json", include=fields, exclude_defaults=True) | {"contexts": row.contexts}
        examples.append({"inputs": inputs, outputs: {"answer": row.reference}, "metadata": metadata})
    client.create_examples(dataset_id=dataset.id, examples=examples)
    return dataset


def read_langsmith(client: Client, name: str) -> list[TestsetRow]:
    """Return the examples of a LangSmith data set as rows; see `Testset.from_langsmith`."""
    rows = []
    for example in client.list_examples(dataset_name=name):
        known = {**(example.metadata or {})}
        record = {"id": str(example.id), "dataset_id": str(example.dataset_id), "inputs": example.inputs or {}}
        sample = Sample.parse({**record, "outputs": example.outputs or {}, "metadata": known})
        own = {field: known.pop(field) for field in TestsetRow.model_fields if field in known}
        own = {"id": sample.id, "evolution": "simple", "contexts": sample.reference_contexts or [], **own}
        given = {"question": sample.question, "chat_history": sample.history, "metadata": known}
        rows.append(TestsetRow(**{**own, **given, "reference": (sample.references or [""])[0]}))
    if not rows:
        raise ConfigError(f"the LangSmith data set {name!r} has no examples: pass the name of another data set")
    return rows
