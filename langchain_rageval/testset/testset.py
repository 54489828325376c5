"""Testset: questions with reference answers, each with the attempts that led to it."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TextIO, Unpack

from langchain_core.runnables import Runnable
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema

from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval._internal.page import PageLanguage, bold, details, item_list, paragraph, pluralize, text
from langchain_rageval._version import __version__
from langchain_rageval.chains.answering import ANSWER_DEFAULTS, Answering, AnswerOptions
from langchain_rageval.data.loading import SampleIds, describe_place
from langchain_rageval.data.schema import Sample, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.run import fill_defaults
from langchain_rageval.run.usage import format_money
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.review_page import write_testset_page
from langchain_rageval.testset.row import TestsetDiff, TestsetRow, diff_rows, row_html, trial_list
from langchain_rageval.testset.sharing import (
    ReviewAgreement,
    merge_reviews,
    merge_rows,
    read_langsmith,
    review_agreement,
    split_rows,
    write_beir,
    write_langsmith,
)

if TYPE_CHECKING:
    import pandas
    from langsmith import Client
    from langsmith.schemas import Dataset

_HEADER = "rageval_testset"
_OWN_QUESTIONS = "ask a chain questions of your own with answered_by(chain).invoke({})"

CHANGES = ("kept", "added", "updated", "dropped")
"""Kinds of change by `refresh`: rows whose answer still holds, new rows, rows with another answer than before, and rows
that the documents no longer answer."""

_LOG = logging.getLogger("langchain_rageval")


class Changes(dict[str, list[str]]):
    """Mapping from each kind of change ("kept", "added", "updated", "dropped") to a list of row ids.

    "mended", the earlier name of the key "updated", still works, with a warning in the log.
    """

    def __init__(self, changes: Mapping[str, list[str]]) -> None:
        super().__init__({"updated" if kind == "mended" else kind: ids for kind, ids in changes.items()})

    def __missing__(self, kind: str) -> list[str]:
        """Return the ids under the earlier name, with a note in the log."""
        if kind != "mended" or "updated" not in self:
            raise KeyError(kind)
        _LOG.warning('changes["mended"] is now changes["updated"]; the next version does not know the earlier name')
        return self["updated"]


@dataclass(frozen=True)
class Origin:
    """Generator and passages from which a test set was generated; kept in memory, but not saved to a file.

    Attributes:
        generator: the generator that made the test set.
        store: the passages from which the generator drew.
    """

    generator: Any
    store: Docstore


@dataclass(frozen=True, repr=False)
class Testset:
    """Questions with reference answers, in the order of the planned rows.

    Attributes:
        rows: the questions.
        yields: mapping with two keys: `attempts`, the number of candidates, and `rejected`, a mapping from each reason
            to the number of candidates rejected for it.
        notes: remarks for the reader, such as the reason why rows are missing.
        complete: True if the test set has the requested size.
        broken_off: True if Ctrl-C ended the run.
        rejected: all rejected candidates, in the order of the attempts; `history` of each holds every question, step
            and feedback, and `rejected` the reason.
        usage_by_step: mapping from each step to its calls and tokens, those for rejected candidates included. A result
            from a journal counts with its usage at the time when it was stored. Texts that were embedded to find
            similar passages and near-duplicate questions count as the step "embed".
        changes: after `refresh` or `extend`, a mapping from "kept", "added", "updated" (with another answer) and
            "dropped" to ids of rows; otherwise empty. After these two methods, `yields`, `rejected` and `usage_by_step`
            describe that call only.
        number: number of the version: 1 at first, plus 1 for each `refresh` and `extend`.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class

    rows: list[TestsetRow]
    yields: Mapping[str, Any] = field(default_factory=lambda: {"attempts": 0, "rejected": {}})
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    broken_off: bool = False
    rejected: list[Candidate] = field(default_factory=list)
    usage_by_step: Mapping[str, Usage] = field(default_factory=dict, compare=False)
    changes: Mapping[str, list[str]] = field(default_factory=dict, kw_only=True)
    number: int = field(default=1, kw_only=True)
    _known: Annotated[frozenset[int] | None, SkipJsonSchema()] = field(
        default=None, kw_only=True, repr=False, compare=False
    )
    _origin: Annotated[Origin | None, SkipJsonSchema()] = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if a row is no row of a test set, such as a dict."""
        object.__setattr__(self, "changes", Changes(self.changes))
        if other := next((row for row in self.rows if not isinstance(row, TestsetRow)), None):
            problem = f"a Testset holds rows that a generator wrote, got {type(other).__name__}"
            raise ConfigError(f"{problem}; {_OWN_QUESTIONS.format('[...]')}")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[TestsetRow]:
        """Iterate over the rows (questions with their answers)."""
        return iter(self.rows)

    def __getitem__(self, index: int) -> TestsetRow:
        """Return the row (question with its answer) at an index."""
        return self.rows[index]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the generator and its documents."""
        return {**self.__dict__, "_known": self.known_sentences, "_origin": None}

    @property
    def known_sentences(self) -> frozenset[int] | None:
        """Hashes of the sentences of the documents, by which `refresh` finds new sentences.

        None if the test set has no record of its documents, such as one that was read from LangSmith.
        """
        return self._known if self._origin is None else self._origin.store.sentences

    @property
    def version(self) -> str:
        """Number of the version and hash of the questions, answers and contexts, such as "2-5f0c9a1e"."""
        fields = {"id", "question", "contexts", "reference", "evolution", "answerable"}
        content = json.dumps([row.model_dump(mode="json", include=fields) for row in self.rows], sort_keys=True)
        return f"{self.number}-{short_digest(content, 4)}"

    @property
    def counts(self) -> dict[str, int]:
        """Mapping from the name of each evolution to its number of rows."""
        return dict(Counter(row.evolution for row in self.rows))

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds, embedded texts and money of all steps together."""
        return sum(self.usage_by_step.values(), Usage())

    @property
    def rejection_examples(self) -> dict[str, str]:
        """Mapping from each reason for rejection to the feedback on the last candidate rejected for this reason.

        Candidates that were rejected because a call failed, or without feedback, are left out.
        """
        judged = [one for one in self.rejected if one.objection and not one.has_failed]
        return {str(candidate.rejected): candidate.objection for candidate in judged}

    @property
    def calls_per_row(self) -> float | None:
        """Model calls per row of the test set; the calls for rejected candidates are included.

        None if there are no questions. None after `refresh` and `extend`, because their calls concern only some
        questions.
        """
        return self.usage.calls / len(self) if self.rows and not self.changes else None

    def __repr__(self) -> str:
        """Return the test set as text: numbers of questions, attempts, rejections and calls, and the notes."""
        return "\n".join([*self._head(), *(f"Note: {note}" for note in self.notes)])

    def _head(self) -> list[str]:
        evolutions = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        attempts = pluralize(self.yields["attempts"], "attempt")
        rejected = "; ".join(f"{count} {reason}" for reason, count in self.yields["rejected"].items())
        lines = [f"Test set of {pluralize(len(self), 'question')}" + (f": {evolutions}" if evolutions else "")]
        lines.append(f"{attempts}; rejected: {rejected}" if rejected else attempts)
        if self.changes:
            lines.append("; ".join(f"{len(ids)} {change}" for change, ids in self.changes.items()))
        lines += [usage_line(self.usage, self.calls_per_row)] if self.usage.calls else []
        return lines

    def _repr_html_(self) -> str:
        """Return the first fifty questions and rejected candidates as HTML for notebooks, with their histories."""
        items = [row_html(row) + details("history", trial_list(row.history)) for row in self.rows]
        head = [paragraph(text(line)) for line in self._head()]
        notes = [paragraph(f"<em>{text(note)}</em>") for note in self.notes]
        rejected = [
            paragraph(bold(candidate.rejected or ""), text(candidate.question)) + trial_list(candidate.history)
            for candidate in self.rejected
        ]
        title = pluralize(len(rejected), "rejected candidate")
        shown = [details(title, item_list(rejected))] if rejected else []
        return "".join([*head, item_list(items, numbered=True), *shown, *notes])

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with one line for each row, and one column for each field of `TestsetRow`.

        Cells of fields with several values, such as `contexts`, `chat_history`, `passage_ids` and `spans`, hold lists.
        """
        import pandas

        return pandas.DataFrame([row.model_dump() for row in self.rows], columns=list(TestsetRow.model_fields))

    def to_jsonl(self, path: str | Path | TextIO) -> None:
        """Write the test set as JSON lines, with a header line about the run. `Testset.load` reads it back.

        Args:
            path: path of the file, or a text file that is open for writing, such as `sys.stdout`.

        Raises:
            ConfigError: if the file cannot be written.
        """
        names = ("yields", "notes", "complete", "broken_off", "number", *(("changes",) if self.changes else ()))
        header = {"version": __version__, **{name: getattr(self, name) for name in names}}
        if self.known_sentences is not None:
            packed = b"".join(number.to_bytes(4) for number in sorted(self.known_sentences))
            header["sentences"] = b64encode(packed).decode()
        header["rejected"] = [json.loads(candidate.model_dump_json(fallback=str)) for candidate in self.rejected]
        header["usage_by_step"] = {
            step: usage.model_dump(mode="json", exclude={"seconds"}, exclude_defaults=True)
            for step, usage in self.usage_by_step.items()
        }
        lines = [row.model_dump_json(fallback=str) for row in self.rows]
        text = "\n".join([json.dumps({_HEADER: header}, ensure_ascii=False), *lines, ""])
        if not isinstance(path, str | Path):
            path.write(text)
            return
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another path") from None

    def to_html(self, path: str | Path, *, language: PageLanguage = "auto") -> None:
        """Write one HTML page on which a person reviews the test set; the page works offline and needs no server.

        The page shows each question with its history (rejected attempts and feedback included), the other questions
        about the same fact (those with the same `tree_id`), and the passages with the words of the reference marked. It
        also shows the rejected candidates. Rows are kept, edited or dropped with the keyboard; decisions stay in the
        browser until they are saved as a file that `load` reads.

        Args:
            path: path of the file.
            language: language of the labels on the page, "en" or "ru"; by default the language of most questions.

        Raises:
            ConfigError: if the language is unknown or the file cannot be written.
        """
        lines = StringIO()
        self.to_jsonl(lines)
        write_testset_page(path, self.rows, lines.getvalue().partition("\n")[0], language)

    @classmethod
    def load(cls, path: str | Path) -> Testset:
        """Read a test set from a file that `to_jsonl` wrote.

        Raises:
            ConfigError: if the file cannot be read or is not a test set.
        """
        try:
            first, *lines = Path(path).read_text(encoding="utf-8").split("\n")
            header = dict(json.loads(first)[_HEADER])
            rows = [TestsetRow.model_validate_json(line) for line in lines if line]
            rejected = [Candidate.model_validate(candidate) for candidate in header.get("rejected", [])]
            usage = {step: Usage(**counts) for step, counts in header.get("usage_by_step", {}).items()}
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            detail = f"its first line has no {error}" if isinstance(error, KeyError) else error
            problem = (
                f"{path} is not a test set that Testset.to_jsonl wrote: {detail}; make one of its questions with "
                f"`rageval generate DOCUMENTS --adopt {path}`, or"
            )
            raise ConfigError(f"{problem} {_OWN_QUESTIONS.format(f'load_samples({str(path)!r})')}") from None
        run = (header["yields"], header["notes"], header["complete"], header["broken_off"])
        later = {name: header[name] for name in ("changes", "number") if name in header}  # absent before 0.3
        if packed := header.get("sentences"):
            content = b64decode(packed)
            later["_known"] = frozenset(int.from_bytes(content[at : at + 4]) for at in range(0, len(content), 4))
        return cls(rows, *run, rejected, usage, **later)

    def refresh(self, documents: Any, generator: Any = None) -> Testset:
        """Adapt the test set to changed documents; models check only the rows that the changes concern.

        A row, answerable or not, is kept without a call if the documents still hold the texts of its passages, at any
        place, and no new sentences concern it. New sentences concern a row if one of the three passages nearest to the
        question holds new sentences with half of the words of the question, or if one of the three passages nearest to
        the reference answer holds new sentences with two fifths of the words of this answer. For any other row, the
        generator finds the passages again and answers the question. If the earlier answer still holds, the row is kept
        with the new passages. If the answer differs, the row gets the new passages and the new answer. If the documents
        no longer answer the question, the row is dropped, and a new row with the same evolution is added.

        Args:
            documents: all documents as they are now, in any form that `TestsetGenerator.generate` takes.
            generator: generator whose models check the rows; by default the generator that made this test set. Required
                for a test set that was loaded from a file.

        Returns:
            A new test set. Its `changes` maps "kept", "added", "updated" and "dropped" to ids of rows. Ids and
            questions of rows that stay are the same, and new rows take the places of dropped rows.

        Raises:
            ConfigError: if there is no generator, the documents hold no text, or they are a str that names no file or
                folder.
            JournalError: if the journal of the generator cannot be read or written.
        """
        if generator is None and self._origin is None:
            raise ConfigError(
                "refresh needs the generator, which a test set from a file does not know: "
                "testset.refresh(documents, generator)"
            )
        generator = generator or (self._origin and self._origin.generator)
        if not hasattr(generator, "refresh"):
            raise ConfigError(f"generator must be a TestsetGenerator, got {type(generator).__name__}")
        refreshed: Testset = generator.refresh(self, documents)
        return refreshed

    def diff(self, other: Testset) -> TestsetDiff:
        """Return what changes from this test set to another one: rows added, dropped, and changed fields.

        Rows are paired by id. A row whose id the other test set lacks is paired by question. Histories are not
        compared.

        Args:
            other: the later test set.
        """
        return diff_rows(self.rows, other.rows, (self.version, other.version))

    def merge(self, *others: Testset) -> Testset:
        """Return one test set with the rows of this and other test sets, without repeated rows.

        If rows have equal ids or equal questions, the first of them is kept.

        Args:
            *others: test sets, for instance of other generators, of `adopt`, or of other people.

        Raises:
            ConfigError: if two rows have one id but differ in a field other than `history`.
        """
        sets = [self, *others]
        if other := next((one for one in sets if not isinstance(one, Testset)), None):
            raise ConfigError(f"merge takes test sets as separate arguments, got {type(other).__name__}")
        rejected = sum((Counter(one.yields["rejected"]) for one in sets), Counter[str]())
        known = [one.known_sentences for one in sets]
        return replace(
            self,
            rows=merge_rows(row for one in sets for row in one.rows),
            yields={"attempts": sum(one.yields["attempts"] for one in sets), "rejected": dict(rejected)},
            notes=list(dict.fromkeys(note for one in sets for note in one.notes)),
            complete=all(one.complete for one in sets),
            broken_off=any(one.broken_off for one in sets),
            rejected=[candidate for one in sets for candidate in one.rejected],
            usage_by_step={
                name: sum((one.usage_by_step.get(name, Usage()) for one in sets), Usage())
                for name in dict.fromkeys(name for one in sets for name in one.usage_by_step)
            },
            changes={},
            number=max(one.number for one in sets),
            _known=None if None in known else frozenset[int]().union(*(one for one in known if one)),
            _origin=None,
        )

    def filter(self, function: Callable[[TestsetRow], bool]) -> Testset:
        """Return a test set with only the rows for which a function returns True.

        Raises:
            ConfigError: if `function` is no function.
        """
        if not callable(function):
            expected = "filter takes a function from a row to True or False, such as lambda row: row.answerable"
            raise ConfigError(f"{expected}; got {type(function).__name__}")
        return replace(self, rows=[row for row in self.rows if function(row)])

    def split(self, share: float, seed: int = 0) -> tuple[Testset, Testset]:
        """Split the rows at random into two test sets, for example to tune a chain and to evaluate it.

        The rows of every evolution are divided in the same proportion, and rows about one fact (of one tree) stay
        together.

        Args:
            share: approximate share of the rows in the first test set, between 0 and 1.
            seed: random seed.

        Returns:
            The first test set, and a second test set with the other rows.

        Raises:
            ConfigError: if the share is not between 0 and 1.
        """
        first = split_rows(self.rows, share, seed)
        return self.filter(lambda row: row.id in first), self.filter(lambda row: row.id not in first)

    def agreement(self, other: Testset) -> ReviewAgreement:
        """Return the agreement of two reviewers who both reviewed this test set on the page of `to_html`.

        Args:
            other: the other reviewed test set.

        Raises:
            ConfigError: if there is no row that both decided about.
        """
        return review_agreement((self.rows, self.rejected), (other.rows, other.rejected))

    def merge_reviews(self, other: Testset) -> Testset:
        """Return one reviewed test set with the decisions of both reviewers, this test set's and the other's.

        If only one reviewer decided about a row, the row has this decision. If their decisions differ, the row stays
        without a decision, for a third review; a note counts such rows.

        Args:
            other: the other reviewed test set.

        Raises:
            ConfigError: if there is no row that both decided about.
        """
        rows, rejected, agreement = merge_reviews((self.rows, self.rejected), (other.rows, other.rejected))
        note = f"Two reviews: {agreement}; {len(agreement.disagreements)} decided differently and left open."
        return replace(self, rows=rows, rejected=rejected, notes=[*self.notes, note])

    def to_beir(self, folder: str | Path) -> None:
        """Write a data set of BEIR: `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, for retrieval benchmarks.

        The corpus holds the contexts of the rows. It also holds all other passages of the documents, unless the test
        set was loaded, copied or merged: such a test set does not know its documents. Questions that the documents do
        not answer have no judgments.

        Args:
            folder: folder to write to.

        Raises:
            ConfigError: if the folder cannot be written.
        """
        write_beir(folder, self.rows, None if self._origin is None else self._origin.store)

    @classmethod
    def from_langsmith(cls, client: Client, name: str) -> Testset:
        """Read a LangSmith data set: one that `to_langsmith` created, or any with a question and an answer.

        Args:
            client: LangSmith client.
            name: name of the data set.

        Raises:
            ConfigError: if the data set has no examples.
            SampleError: if an example has no question.
        """
        return cls(read_langsmith(client, name))

    def to_samples(self) -> list[Sample]:
        """Return one sample for each row, with question and reference but without an answer; `run` adds answers.

        If later rows have the id and the question of an earlier row, the ids of their samples end in `-2`, `-3` and so
        on.

        Raises:
            SampleError: if rows with different questions have one id.
        """
        ids, samples = SampleIds(), [row.to_sample() for row in self.rows]
        return [ids.checked(sample, describe_place(n, sample)) for n, sample in enumerate(samples)]

    def run(self, chain: Runnable[Any, Any] | Callable[[Any], Any], **options: Unpack[AnswerOptions]) -> list[Sample]:
        """Ask a RAG chain every question, and return its answers as samples.

        Args:
            chain: Runnable or function, sync or async, of any shape: a chain that ends in a text, an agent, a LangGraph
                graph, a retriever. The chain receives the question as its input schema requires: as a str, as a
                message, or in a mapping under the names of the schema, else under `question` and `input`. The contexts
                come from the output of the chain, else from its retrievers and tools.
            **options: described in `AnswerOptions`: `max_concurrency=8`, `timeout=None`, `journal=None`,
                `version=None`, `resume=False`, `retry_failed=False`, `progress=True`.

        Returns:
            Samples ready for `evaluate`. `metadata["context_sources"]` holds the sources of the contexts, if they have
            any. If the chain failed, `answer` is None and `metadata["error"]` holds the error.

        Raises:
            TypeError: if an option does not exist.
            ConfigError: if `chain` is neither a Runnable nor a function, an option is invalid, or the journal holds
                another run.
            JournalError: if the journal cannot be read or written.
        """
        complete = fill_defaults(self.run, options, ANSWER_DEFAULTS)
        return Answering(self.to_samples(), chain, complete).run()

    def to_langsmith(self, client: Client, name: str) -> Dataset:
        """Create a LangSmith dataset with inputs `question`, outputs `answer`, and id, evolution, contexts as metadata.

        A follow-up also has the input `chat_history`: its earlier turns as messages with `role` and `content`.

        Args:
            client: LangSmith client.
            name: name of the dataset, which must not exist yet.

        Returns:
            The new dataset.
        """
        return write_langsmith(client, name, repr(self).splitlines()[0], self.rows)


def usage_line(usage: Usage, calls_per_row: float | None) -> str:
    """Return calls, tokens and money of a test set as text: "57 calls, 12,345 tokens; 5.7 calls per question"."""
    tokens = None if usage.input_tokens is None else usage.input_tokens + (usage.output_tokens or 0)
    total = f"{pluralize(usage.calls, 'call')}, {'unknown' if tokens is None else f'{tokens:,}'} tokens"
    total += "" if usage.money is None else f", {format_money(usage.money)} money"
    return total if calls_per_row is None else f"{total}; {calls_per_row:.1f} calls per question"


def is_testset_file(path: str | Path) -> bool:
    """Return True if a file begins like a file that `Testset.to_jsonl` wrote."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return _HEADER in json.loads(file.readline())
    except (OSError, ValueError, TypeError):
        return False
