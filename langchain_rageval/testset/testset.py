"""Testset: questions with reference answers, each with its history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

from langchain_core.runnables import Runnable
from pydantic import Field, ValidationError

from langchain_rageval._internal.html import bold, folded, listed, paragraph, text
from langchain_rageval._version import __version__
from langchain_rageval.data.rag_chain import answered, as_chain, asked, takes_text
from langchain_rageval.data.schema import Data, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.threads import DaemonThreads
from langchain_rageval.testset.candidate import Candidate, Trial
from langchain_rageval.testset.figure import draw_testset, draw_tree

if TYPE_CHECKING:
    import pandas
    from langsmith import Client
    from langsmith.schemas import Dataset
    from matplotlib.figure import Figure

_HEAD = "rageval_testset"


class TestsetRow(Data):
    """One question of a test set.

    Attributes:
        id: stable name, a hash of question and passages.
        question: what to ask the system.
        contexts: texts of the passages that are needed to answer; for an unanswerable question, those it was made from.
        reference: the right answer; for an unanswerable question, the sentence that the documents do not say.
        evolution: names of the evolutions, joined by "+"; "simple" without any.
        answerable: whether the documents answer it.
        history: everything that was tried, in order, with the feedback.
        passage_ids: of the contexts, in their order.
        spans: source, first and last character (exclusive) of each context.
        metadata: of the first passage's document.
    """

    __test__: ClassVar[bool] = False  # or pytest would take it for a test

    id: str
    question: str
    contexts: list[str]
    reference: str
    evolution: str
    answerable: bool = True
    history: list[Trial] = Field(default_factory=list)
    passage_ids: list[str] = Field(default_factory=list)
    spans: list[tuple[str, int, int]] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """The row of an accepted candidate."""
        passages = candidate.passages
        content = json.dumps([candidate.question, [passage.id for passage in passages]])
        return cls(
            id=blake2b(content.encode(), digest_size=8).hexdigest(),
            question=candidate.question,
            contexts=[passage.text for passage in passages],
            reference=candidate.reference or "",
            evolution=candidate.evolution,
            answerable=candidate.answerable,
            history=candidate.history,
            passage_ids=[passage.id for passage in passages],
            spans=[(passage.source, passage.start, passage.end) for passage in passages],
            metadata=passages[0].metadata,
        )

    def _repr_html_(self) -> str:
        """The question with its answer and the tree it grew on, for notebooks."""
        trials = [
            " ".join(["✓" if trial.accepted else "✗", bold(trial.kind), text(trial.question)])
            + (f" <em>{text(trial.feedback)}</em>" if trial.feedback else "")
            for trial in self.history
        ]
        head = paragraph(bold(self.question), "(" + text(self.evolution) + ")")
        return head + paragraph(text(self.reference)) + folded("how it came about", listed(trials))

    def to_sample(self) -> Sample:
        """What `evaluate` reads, without an answer and contexts yet; an unanswerable question has no reference."""
        return Sample(
            id=self.id,
            question=self.question,
            references=[self.reference] if self.answerable else [],
            reference_contexts=self.contexts if self.answerable else [],
            reference_context_ids=self.passage_ids if self.answerable else [],
            metadata={**self.metadata, "evolution": self.evolution, "answerable": self.answerable},
        )


@dataclass(frozen=True, repr=False)
class Testset:
    """Questions with reference answers, in the order of the rows that were asked for.

    Attributes:
        rows: the questions.
        yields: `attempts`, how many candidates there were, and `rejected`, why the others were of no use, with counts.
        notes: what a reader should know, such as that an offline baseline wrote it.
        complete: whether as many rows came as were asked for.
        broken_off: whether Ctrl-C ended the run.
    """

    __test__: ClassVar[bool] = False

    rows: list[TestsetRow]
    yields: Mapping[str, Any] = field(default_factory=lambda: {"attempts": 0, "rejected": {}})
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    broken_off: bool = False

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[TestsetRow]:
        """The rows."""
        return iter(self.rows)

    def __getitem__(self, place: int) -> TestsetRow:
        """One row."""
        return self.rows[place]

    @property
    def counts(self) -> dict[str, int]:
        """Evolution to its number of rows."""
        names = [row.evolution for row in self.rows]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def __repr__(self) -> str:
        """How many rows of which evolution, what was rejected, and the notes."""
        plural = "" if len(self) == 1 else "s"
        kinds = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        tried = f"{self.yields['attempts']} attempts"
        rejected = "; ".join(f"{count} {reason}" for reason, count in self.yields["rejected"].items())
        lines = [f"Test set of {len(self)} question{plural}" + (f": {kinds}" if kinds else "")]
        lines.append(f"{tried}; rejected: {rejected}" if rejected else tried)
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """The first fifty questions, each with its answer and the tree it grew on, for notebooks."""
        items = listed([row._repr_html_() for row in self.rows], numbered=True)
        notes = "".join(paragraph(f"<em>{text(note)}</em>") for note in self.notes)
        return paragraph(text(repr(self).splitlines()[0])) + items + notes

    def plot(self, row: int | None = None) -> Figure:
        """Draw what the set consists of and what was rejected, or how one of its questions came about.

        Args:
            row: place of the question whose tree is to be drawn: what was tried, what was kept, and what was said.

        Returns:
            A matplotlib Figure that notebooks show and `savefig` writes; no window opens, pyplot is left alone.

        Raises:
            ConfigError: if matplotlib is not there, there is no such row, or there is nothing to draw.
        """
        if row is None:
            return draw_testset(self)
        if not -len(self) <= row < len(self):
            raise ConfigError(f"there is no row {row}: the test set has {len(self)}, counted from 0")
        return draw_tree(self.rows[row])

    def to_pandas(self) -> pandas.DataFrame:
        """One line for each row; contexts, history and the like as lists in their cells."""
        import pandas

        return pandas.DataFrame([row.model_dump() for row in self.rows], columns=list(TestsetRow.model_fields))

    def to_jsonl(self, path: str | Path | TextIO) -> None:
        """Write it as JSON lines, the first about the run; `Testset.load` gives an equal one.

        Args:
            path: of the file; or a file that is open for text, such as `sys.stdout`.

        Raises:
            ConfigError: if the place cannot be written to.
        """
        about = {"version": __version__, "yields": self.yields, "notes": self.notes, "complete": self.complete}
        about["broken_off"] = self.broken_off
        lines = [
            json.dumps({_HEAD: about}, ensure_ascii=False),
            *(row.model_dump_json(fallback=str) for row in self.rows),
        ]
        text = "\n".join([*lines, ""])
        if not isinstance(path, str | Path):
            path.write(text)
            return
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another place") from None

    @classmethod
    def load(cls, path: str | Path) -> Testset:
        """Read what `to_jsonl` wrote.

        Raises:
            ConfigError: if the file is not there, or is no test set.
        """
        try:
            first, *lines = Path(path).read_text(encoding="utf-8").split("\n")
            head = dict(json.loads(first)[_HEAD])
            rows = [TestsetRow.model_validate_json(line) for line in lines if line]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} is no test set that Testset.to_jsonl wrote: {error}") from None
        return cls(rows, head["yields"], head["notes"], head["complete"], head["broken_off"])

    def to_samples(self) -> list[Sample]:
        """Samples with question and reference, for a system's answers to be filled in; see `run`."""
        return [row.to_sample() for row in self.rows]

    def run(self, chain: Runnable[Any, Any] | Callable[[Any], Any], *, max_concurrency: int = 8) -> list[Sample]:
        """Ask a RAG chain every question.

        Args:
            chain: or a function; takes a str, or a mapping with the question as `question` and `input`; gives a text, a
                message, or a mapping in any vocabulary that `Sample.parse` reads.
            max_concurrency: questions at a time.

        Returns:
            Samples ready for `evaluate`. Where the chain failed, `answer` is None and `metadata["error"]` says why.

        Raises:
            ConfigError: if the chain is neither a Runnable nor a function.
        """
        chain = as_chain(chain)
        plain = takes_text(chain)
        given = [row.question if plain else {"question": row.question, "input": row.question} for row in self.rows]
        # Not by `batch`: behind `with_retry` it hands out one question's answer for another's.
        outputs = DaemonThreads().spread([partial(asked, chain, question) for question in given], max_concurrency)
        return [answered(row.to_sample(), output) for row, output in zip(self.rows, outputs, strict=True)]

    def to_langsmith(self, client: Client, name: str) -> Dataset:
        """Make a LangSmith data set of it: inputs `question`, outputs `answer`, contexts and evolution as metadata.

        Args:
            client: the user's own.
            name: of the data set, which must not be there yet.
        """
        from langsmith.schemas import ExampleCreate

        outputs = "reference_outputs" if "reference_outputs" in ExampleCreate.model_fields else "outputs"  # before 0.15
        dataset = client.create_dataset(name, description=repr(self).splitlines()[0])
        examples = [
            {
                "inputs": {"question": row.question},
                outputs: {"answer": row.reference},
                "metadata": {"id": row.id, "evolution": row.evolution, "contexts": row.contexts},
            }
            for row in self.rows
        ]
        client.create_examples(dataset_id=dataset.id, examples=examples)
        return dataset
