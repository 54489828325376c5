"""Read and check the inputs of an evaluation: samples and metrics in every form that users pass.

Notes say what is wrong with samples, such as retrieved ids that differ in form from the reference ids.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from langchain_core.runnables import Runnable, RunnableSequence
from pydantic import BaseModel
from pydantic.json_schema import SkipJsonSchema

from langchain_rageval.data.field_names import check_fields
from langchain_rageval.data.foreign_records import decode_row
from langchain_rageval.data.loading import SampleIds, describe_place, join_chunks, parse_record, read_samples
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.data.tables import is_table, table_rows
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.metrics.context_metrics import AGAINST, AgainstText
from langchain_rageval.metrics.grading import LabelGrader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import metrics_in, names_of, problem_of, remedy_for, stages_of
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.report.report import Report
from langchain_rageval.text.words import common_share

T = TypeVar("T")

log = logging.getLogger("langchain_rageval")


class MixedMeasures:
    """Counts, by metric, what `context_precision(against="auto")` compared chunks with.

    For each sample, the metric compares the chunks with the reference, the answer or the question. If a metric used
    more than one of the three in a run, the report gets a note.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, row: Row) -> None:
        """Count for each metric whether the chunks of a row were compared with reference, answer or question."""
        for name, score in row.scores.items():
            for finding in score.findings[-1:]:  # the choice is the last finding
                if finding.kind == "criterion" and finding.text == AGAINST and finding.verdict in get_args(AgainstText):
                    self._counts.setdefault(name, Counter())[finding.verdict] += 1

    def notes(self) -> Iterator[str]:
        """Yield a warning for each metric that used more than one of reference, answer and question in one run.

        The metric compared the chunks of some samples with one of these texts, and of other samples with another. Its
        mean therefore mixes different measures.
        """
        for name, grounds in self._counts.items():
            if len(grounds) > 1:
                counts = [Note(f"against-{ground}", count=count) for ground, count in grounds.most_common()]
                yield Note("mixed-measures", metric=name, counts=counts)

    def warn(self) -> None:
        """Log a warning for each metric that used more than one of reference, answer and question in one run."""
        for note in self.notes():
            log.warning("%s", note)


MIN_SAMPLES = 3
"""Number of samples from which ids that never meet are no coincidence, if no texts can be compared."""

_MAX_COMPARED = 50  # samples whose texts are compared
_SAME_TEXT = 0.5


def disjoint_ids(samples: Iterable[Any], metrics: Sequence[AnyMetric]) -> Note | None:
    """Return a note that retrieved ids and reference ids cannot be compared; None if they can, or if it is unknown.

    If no retrieved id of any sample is a reference id of any sample, the retriever found nothing relevant, or the two
    kinds of ids differ in form. The second is assumed, and the note is returned, in two cases:

    * A retrieved chunk has about the same text as a reference context of its sample, so one chunk has two ids.
    * No texts can be compared, because no sample has both the texts of its chunks and reference contexts, and at least
      three samples have both kinds of ids.

    Chunks that a reranker dropped count as retrieved, because dropping every relevant chunk is a valid result.

    Args:
        samples: samples of the run; other items are ignored. Nothing is read if no metric compares ids.
        metrics: metrics of the run.
    """
    stages = ((part.name, stage) for part in _direct_parts(metrics) for stage in stages_of(part))
    found = next(((name, stage) for name, stage in stages if isinstance(stage, LabelGrader)), None)
    if found is None:
        return None
    (name, grader), compared = found, list[Sample]()
    retrieved, relevant = dict[str, None](), dict[str, None]()
    for sample in (item for item in samples if isinstance(item, Sample)):
        labels = [key for key, grade in grader.labels(sample).items() if grade > grader.lowest]
        ids = [*(sample.retrieved_ids or []), *(sample.context_ids or [])]
        if not ids or not labels:
            continue
        retrieved |= dict.fromkeys(ids)
        relevant |= dict.fromkeys(labels)
        if not relevant.keys().isdisjoint(ids) or not retrieved.keys().isdisjoint(labels):
            return None
        compared.append(sample)
    with_texts = [sample for sample in compared if _chunks(sample) and sample.reference_contexts]
    pairs = (
        (chunk, reference)
        for sample in islice(with_texts, _MAX_COMPARED)
        for chunk in _chunks(sample)
        for reference in sample.reference_contexts or []
    )
    same = any(common_share(*pair) >= _SAME_TEXT for pair in pairs)
    if not same and (with_texts or len(compared) < MIN_SAMPLES):
        return None
    samples_text = "the sample" if len(compared) == 1 else f"any of the {len(compared)} samples"
    examples = {"retrieved": next(iter(retrieved)), "relevant": next(iter(relevant))}
    return Note("disjoint-ids-same-texts" if same else "disjoint-ids", metric=name, samples=samples_text, **examples)


def _chunks(sample: Sample) -> list[str]:
    """Return the chunks that the retrievers returned and those that the model read."""
    return [*(sample.retrieved or []), *(sample.contexts or [])]


Samples = Iterable[Any] | str | Path
SamplesSchema = list[Sample] | Annotated[Any, SkipJsonSchema()]
"""Input of Runnables that take samples: any form is valid, and the JSON schema names the plain one."""

AnyMetric = Runnable[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """A sample that is scored in random order, with its place in the input."""

    index: int
    item: Any


def prepare_samples(
    samples: Any, metrics: Sequence[AnyMetric], *, strict: bool = False, fields: Mapping[str, str] | None = None
) -> Any:
    """Return an iterable of samples; items of a list or DataFrame are parsed and checked against every metric.

    Args:
        samples: samples in any form.
        metrics: the metrics that will read them.
        strict: True to raise if any sample of a list or a file lacks a field that a metric reads. False to raise only
            if all samples of a list lack it.
        fields: fields of `Sample` mapped to names or dotted paths in the samples.

    Raises:
        SampleError: if an item of a list or DataFrame is invalid, if two items with different questions have the same
            id, or if all items lack a field that a metric reads. With `strict`, also if any item or record is invalid
            or lacks such a field. The message names the row.
        ConfigError: if `samples` cannot be iterated, or if the retrieved ids of a list, DataFrame or file cannot be
            compared with the reference ids; see `disjoint_ids`.
    """
    if isinstance(samples, Runnable):
        raise ConfigError(
            f"samples must be a collection, got the Runnable {samples.get_name()}: pass its output, such as "
            "generator.generate(documents).run(rag_chain), or compose "
            "generator | answered_by(rag_chain) | scored_by(metrics)"
        )
    if isinstance(samples, str | Path):
        return _prepare_file(samples, metrics, strict, fields)
    check_fields(fields or {})
    if is_table(samples):
        rows = ({str(name): cell for name, cell in row.items()} for row in table_rows(samples))
        samples = [_located(index, decode_row, row, fields or {}) for index, row in enumerate(rows)]
    if isinstance(samples, Report):
        samples = [row.sample for row in samples.rows]
    if hasattr(samples, "to_samples"):  # a Testset: its rows are not samples yet
        samples = samples.to_samples()
    _check_collection(samples)
    if not isinstance(samples, Sequence):
        return _with_fields(samples, fields) if fields else samples
    ids = SampleIds()
    places = ((index, _located(index, parse_record, item, fields)) for index, item in enumerate(samples))
    read = places if any(isinstance(item, Sample) for item in samples) else join_chunks(places)
    parsed = [ids.checked(sample, describe_place(index, sample)) for index, sample in read]
    _check_complete(parsed, metrics, strict)
    _check_ids(parsed, metrics)
    return parsed


def _check_collection(samples: Any) -> None:
    """Raise ConfigError, with the way to correct it, if the samples are no collection of samples."""
    if hasattr(type(samples), "columns") and hasattr(samples, "collect"):
        raise ConfigError(f"samples must be in memory, got {type(samples).__name__}: pass samples.collect()")
    if isinstance(samples, Mapping) and samples and all(hasattr(part, "column_names") for part in samples.values()):
        first = next(iter(samples))
        raise ConfigError(f"samples must be one data set, got {[*samples]}: pass one, as in samples[{first!r}]")
    if isinstance(samples, Mapping) or getattr(type(samples), "__iter__", None) is BaseModel.__iter__:
        raise ConfigError("samples must be a collection; put a single sample in a list, or call the metric's invoke")
    if not any(hasattr(samples, name) for name in ("__iter__", "__aiter__", "__getitem__")):
        expected = "samples must be a list, an iterator, a path, a DataFrame or a data set"
        raise ConfigError(f"{expected}, got {type(samples).__name__}")


def _prepare_file(
    path: str | Path, metrics: Sequence[AnyMetric], strict: bool, fields: Mapping[str, str] | None
) -> Any:
    for index, item in enumerate(read_samples(path, fields, scored=True) if strict else ()):
        if isinstance(item, SampleError):
            raise item
        check_complete_sample(metrics, index, item)
    if any(isinstance(stage, LabelGrader) for part in _direct_parts(metrics) for stage in stages_of(part)):
        _check_ids(read_samples(path, fields, scored=True), metrics)
    return read_samples(path, fields, scored=True)


def flatten_metrics(metrics: AnyMetric | Sequence[AnyMetric]) -> list[AnyMetric]:
    """Return the metrics as a list in which each suite is replaced by its metrics.

    Raises:
        ConfigError: if there are no metrics, one is not a Runnable, or two have the same name.
    """
    single = isinstance(metrics, Runnable) or not isinstance(metrics, Iterable)
    items: list[Any] = [metrics] if single else list(metrics)  # type: ignore[arg-type]
    if not items:
        raise ConfigError("evaluate takes at least one metric, such as faithfulness(judge)")
    for metric in items:
        if not isinstance(metric, Runnable):
            raise ConfigError(f"a metric is a Runnable, got {type(metric).__name__}{remedy_for(metric)}")
        if problem := problem_of(metric):
            raise ConfigError(problem)
    flat = [part for metric in items for part in (metric.metrics if isinstance(metric, Suite) else [metric])]
    check_unique([name for metric in flat for name in names_of(metric)])
    return flat


def check_unique(names: Sequence[str]) -> None:
    """Raise ConfigError if two metrics have the same name."""
    if len(set(names)) < len(names):
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        raise ConfigError(f"two metrics are named {repeated}; give one of them another name with name=...")


async def iterate_samples(samples: Any) -> AsyncIterator[Any]:
    """Yield the samples of an iterable or async iterable."""
    if hasattr(samples, "__aiter__"):
        async for item in samples:
            yield item
    else:
        for item in samples:
            yield item


def size_of(samples: Any) -> int | None:
    """Return the number of samples, or None if it is unknown."""
    return len(samples) if hasattr(samples, "__len__") else None


def locate_sample_error(error: SampleError, index: int, sample: Sample) -> SampleError:
    """Return an error about a missing field of a sample that also names the sample's place in the input.

    Args:
        error: the error that the metric raised.
        index: place of the sample in the input, from 0.
        sample: the sample. If the user's chain failed on its question, `metadata["error"]` is the cause, and the
            message begins with it.
    """
    return SampleError(locate_message(str(error), index, sample), error.field)


def locate_message(message: str, index: int, sample: Sample) -> str:
    """Return a message preceded by the place of its sample: "row 8 (index 7), question '...': <message>".

    If the user's chain failed on the sample, the error in `metadata["error"]` and a semicolon come before the place.
    """
    cause = sample.metadata.get("error")
    failed_call = f"{cause}; " if isinstance(cause, str) and cause.strip() else ""
    return f"{failed_call}{describe_place(index, sample)}: {message}"


def check_complete_sample(metrics: Sequence[AnyMetric], index: int, sample: Sample) -> None:
    """Raise SampleError, which names the sample's place, if the sample lacks a field that a metric reads."""
    for part in _direct_parts(metrics):
        try:
            part.read(sample)
        except SampleError as error:
            raise locate_sample_error(error, index, sample) from None


def _direct_parts(metrics: Sequence[AnyMetric]) -> list[Metric]:
    """Return the metrics that read the samples themselves; in a chain, a metric reads the output of another step."""
    return [part for metric in metrics if not isinstance(metric, RunnableSequence) for part in metrics_in(metric)]


def _located(index: int, read: Callable[..., T], *arguments: Any) -> T:
    """Read a row with a function, and add the number of the row to a SampleError about it."""
    try:
        return read(*arguments)
    except SampleError as error:
        raise SampleError(f"row {index + 1} (index {index}): {error}", error.field) from None


def _with_fields(samples: Any, fields: Mapping[str, str]) -> Any:
    """Return an iterable or async iterable of the samples read with `fields`, or of the error of each invalid one."""

    def parse(item: Any) -> Any:
        try:
            return item if isinstance(item, Exception) else parse_record(item, fields)
        except SampleError as error:
            return error

    async def parse_async() -> AsyncIterator[Any]:
        async for item in samples:
            yield parse(item)

    return parse_async() if hasattr(samples, "__aiter__") else map(parse, samples)


def _check_complete(samples: Sequence[Sample], metrics: Sequence[AnyMetric], strict: bool) -> None:
    """Raise SampleError if all samples lack a field that a metric reads, or with `strict` if one does."""
    if strict:
        for index, sample in enumerate(samples):
            check_complete_sample(metrics, index, sample)
    for part in _direct_parts(metrics):
        lacking = [part._lacking(sample) for sample in samples]
        if lacking and set.intersection(*map(set, lacking)):
            check_complete_sample([part], 0, samples[0])


def _check_ids(samples: Iterable[Any], metrics: Sequence[AnyMetric]) -> None:
    """Raise ConfigError if the ids of the retrieved chunks cannot be compared with the reference ids."""
    if problem := disjoint_ids(samples, metrics):
        raise ConfigError(problem.removesuffix("."))
