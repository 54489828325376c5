"""Loading: samples from files and records in any of the forms that users have, with distinct ids."""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

from langchain_rageval.data.conversations import CONVERSATION, last_answer_in, read_conversation
from langchain_rageval.data.field_names import check_fields, explain_fields
from langchain_rageval.data.foreign_records import check_outputs_are_clear, decode_row
from langchain_rageval.data.json_records import OWN_HEADS, line_records, records_of_json, records_of_lines
from langchain_rageval.data.schema import Sample, default_id
from langchain_rageval.data.tables import WORKBOOKS, IsHead, Records, decode_lines, table_records
from langchain_rageval.data.trec import SUFFIXES, Topics, read_trec
from langchain_rageval.data.vocabulary import CONVERSATIONS, NAMES, folded, known_name, metadata_name
from langchain_rageval.errors import ConfigError, SampleError, did_you_mean

ROWS = "rows"
"""Key of the metadata under which a sample that was joined from rows of one chunk each has their number."""

_PLACE = "_place"  # of a sample in its file; an attribute that is neither compared nor written
_SAME_IN_CHUNKS = Sample.model_fields.keys() - {"contexts", "context_ids", "metadata"}
_ABOUT_CHUNK = re.compile(
    "rank|score|chunk|context|doc|source|page|title|position|distance|similarity|url|file|ранг|стр|источник|фрагмент"
)
_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+(e[-+]?\d+)?", re.IGNORECASE)
REPEAT_NUMBER = re.compile(r"(?<=.)-[1-9][0-9]*\Z", re.DOTALL)
"""Number at the end of an id that may mark a repeat, as in "q1-2"."""


class DuplicateIdError(SampleError):
    """Error for two samples with different questions and the same id; unlike other sample errors, it ends a run."""


class _Hashes:
    """Set of hashes that takes about nine bytes for each; a set of Python takes eighty, too many for long streams."""

    def __init__(self) -> None:
        self._buckets = [array("q") for _ in range(1024)]

    def __contains__(self, value: Hashable) -> bool:
        number = hash(value)
        return number in self._buckets[number % len(self._buckets)]

    def add(self, value: Hashable) -> None:
        """Add the hash of a value that the set does not contain."""
        number = hash(value)
        self._buckets[number % len(self._buckets)].append(number)


class SampleIds:
    """Ids of the samples read so far, as hashes; a repeated id gets a number, so that all ids are distinct."""

    def __init__(self) -> None:
        self._seen = _Hashes()  # ids, and pairs of an id and its question unless the id is the hash of the question
        self._numbers: dict[str, int] = {}  # repeated id to the last number appended to it

    def clashes(self, sample: Sample) -> bool:
        """Return True if an earlier sample has the same id and another question."""
        return sample.id in self._seen and not _is_default(sample) and _identity(sample) not in self._seen

    def distinct(self, sample: Sample) -> Sample:
        """Return the sample, or a copy with a numbered id if its id occurred before."""
        if sample.id not in self._seen:
            self._add(sample)
            return sample
        number = self._numbers.get(sample.id, 1) + 1
        while f"{sample.id}-{number}" in self._seen:
            number += 1
        self._numbers[sample.id] = number
        numbered = sample.model_copy(update={"id": f"{sample.id}-{number}"})
        self._add(numbered)
        return numbered

    def _add(self, sample: Sample) -> None:
        self._seen.add(sample.id)
        if not _is_default(sample):
            self._seen.add(_identity(sample))

    def checked(self, sample: Sample, place: str) -> Sample:
        """Return the sample with a distinct id.

        Args:
            sample: the next sample.
            place: place of the sample in its input, for the error message.

        Raises:
            DuplicateIdError: if an earlier sample has the same id and another question.
        """
        if self.clashes(sample):
            raise DuplicateIdError(f"{place}: {describe_clash(sample)}; give each its own, or leave the ids out", "id")
        return self.distinct(sample)


def _is_default(sample: Sample) -> bool:
    return sample.id == default_id(sample.question, sample.history)


def _identity(sample: Sample) -> Hashable:
    """Return the id of a sample with what it must not be shared by: the question, and the history if it has one."""
    history = tuple((turn.role, turn.text) for turn in sample.history)
    return (sample.id, sample.question, history) if history else (sample.id, sample.question)


def describe_clash(sample: Sample) -> str:
    """Return the error text for a sample whose id an earlier sample with another question has."""
    return f"two different samples have the id {sample.id!r}"


def describe_place(index: int, sample: Sample) -> str:
    """Return the place and the question of a sample as a text, such as "row 8 (index 7), question '...'".

    The place is the sample's place in a file, if the sample was read from a file. Otherwise `index` gives the place.
    """
    place = vars(sample).get(_PLACE) or f"row {index + 1} (index {index})"
    return f"{place}, question {sample.question!r}"


def parse_record(record: Any, fields: Mapping[str, str] | None = None) -> Sample:
    """Return the sample to score in a record of the user, like `Sample.parse`; check the outputs first.

    If a conversation ends with a message of the user that has no answer, the sample is the last answer before it.

    Raises:
        SampleError: as by `Sample.parse`, or if the record has `inputs` and `outputs`, and it is unclear whether the
            outputs are the answer, as in a run of LangSmith, or the reference, as in a data set of LangSmith.
    """
    check_outputs_are_clear(record, (fields or {}).values())
    return last_answer_in(record, Sample.parse(record, fields), fields or {})


def original_ids(samples: Sequence[tuple[str, Hashable]]) -> list[str]:
    """Return each sample's id without the number that marks a repeat; repeats of a sample share this id.

    Args:
        samples: pairs of the id and the question of each sample; in place of the question, any value that tells apart
            samples with one id.
    """
    known = set(samples)
    return [base if ((base := REPEAT_NUMBER.sub("", name)), question) in known else name for name, question in samples]


Fields = Mapping[str, str]
"""Fields of `Sample` mapped to the name or dotted path of their value in a file."""

Notice = Callable[[str], None]
"""Function that receives a message about how a file was read."""

_LOG = logging.getLogger("langchain_rageval")
_MOST_SHAPES = 1000  # sets of names, after which those of further records are not described


def load_samples(
    path: str | PathLike[str],
    fields: Fields | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    *,
    qrels: str | PathLike[str] | None = None,
    topics: Topics | None = None,
    each_turn: bool = False,
) -> Iterator[Sample]:
    """Read samples from a file.

    Args:
        path: a `.jsonl`, `.ndjson`, `.json`, `.csv`, `.tsv`, `.xlsx` or `.parquet` file, or a report or test set of
            this package, whose samples are read. Text files are in UTF-8, UTF-16 or a single-byte encoding such as
            Windows-1251, which a warning names. A `.json` file contains a list, an object with one list, or columns. In
            a table, the delimiter and the header are recognised, an empty cell or `NaN` means missing, and lists are
            written as JSON or as Python prints them. Columns and keys are recognised by their usual English or Russian
            names, such as `question`, `user_input` or `вопрос`, in any letter case; `fields` is for other names. A
            `.trec` or `.run` file, or with `qrels` a file of any other suffix, is a TREC run: one sample per topic,
            with the document ids by descending score and, for equal scores, by descending id, as in trec_eval.
        fields: fields of `Sample` mapped to the name or dotted path of their value in the file.
        on_error: "raise" to stop at the first record that is invalid, or that has the id of a sample with another
            question. "skip" to omit an invalid record, and to number a repeated id, as in `a-2`; the logger
            "langchain_rageval" warns of each case.
        qrels: file of relevance judgments for a TREC run. A topic that is only in this file becomes a sample with no
            retrieved documents; a topic without judgments is omitted, with a warning.
        topics: questions of a TREC run: a mapping of topic id to text, or a file with one line `id<TAB>text` per topic.
            By default the topic id is used as the question.
        each_turn: True to read each record as a conversation, with a sample for each of its answers, as `samples_of`
            does; False for one sample per record, which for a conversation is its last turn, also if it has no answer.

    Returns:
        Iterator over the samples in file order. Files are read line by line; `.json` files, workbooks and TREC runs at
        once. At the end, a message of level INFO in the log "langchain_rageval" lists which name was read as which
        field.

    Raises:
        ConfigError: at the call, if an argument is invalid or the file cannot be used; during iteration, if the content
            does not match the suffix.
        SampleError: during iteration, with file and line, if a record is not a valid sample and `on_error` is "raise".
    """
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    skips = on_error == "skip"
    items = read_samples(path, fields, qrels=qrels, topics=topics, each_turn=each_turn, number_ids=skips)
    return valid_samples(items, skips=skips)


def valid_samples(
    items: Iterable[Sample | SampleError], *, skips: bool, skipped: list[SampleError] | None = None
) -> Iterator[Sample]:
    """Yield the valid samples of `read_samples`; raise the first error or, with `skips`, log all errors.

    Logged errors are added to `skipped`.
    """
    for item in items:
        if isinstance(item, Sample):
            yield item
        elif not skips:
            raise item
        else:
            _LOG.warning("skipped %s", item)
            if skipped is not None:
                skipped.append(item)


def read_samples(
    path: str | PathLike[str] | Iterable[bytes],
    fields: Fields | None = None,
    *,
    qrels: str | PathLike[str] | None = None,
    topics: Topics | None = None,
    each_turn: bool = False,
    number_ids: bool = False,
    scored: bool = False,
    notice: Notice = _LOG.info,
) -> Iterator[Sample | SampleError]:
    """Yield the samples in a file or in stdin, with a SampleError in the place of each record that is no valid sample.

    Args:
        path: path of a file in one of the formats of `load_samples`, or the JSON lines of stdin as bytes.
        fields: fields of `Sample` mapped to the name or dotted path of their value in the file; None for usual names.
        qrels: file of relevance judgments for a TREC run (ranking of documents per topic).
        topics: questions of a TREC run: a mapping of topic id to text, or a file with a line `id<TAB>text` per topic.
        each_turn: True for a sample per answer in the conversation of a record; False for one sample per record.
        number_ids: True to number an id that an earlier sample with another question has, with a warning; False to
            yield an error.
        scored: True to read the last answer of a conversation that ends with a question; False to read the question.
        notice: function that is called after the last record, once for each message. The messages list which name in
            the file was read as which field.

    Raises:
        ConfigError: at the call, if an argument is invalid or the file cannot be used; during iteration, if the content
            does not match the suffix.
    """
    fields = fields or {}
    check_fields(fields)
    reading = _FieldReading(fields, each_turn, scored)
    if not isinstance(path, str | PathLike):
        return _parsed(line_records(decode_lines(path, "stdin")), "stdin", reading, number_ids, notice)
    path = Path(path)
    judgments = None if qrels is None else Path(qrels)
    topics_file = Path(topics) if isinstance(topics, str | PathLike) else None
    for file in (path, judgments, topics_file):
        if file and (file.is_dir() or not file.exists()):
            problem = "is a directory" if file.is_dir() else "does not exist"
            raise ConfigError(f"{file} {problem}: pass the path of an existing file")
    suffix = _suffix(path)
    if suffix in _FORMATS and (judgments or topics is not None):
        problem = f"{path}: qrels and topics apply only to TREC runs"
        raise ConfigError(f"{problem}; put relevance and question into the samples")
    if suffix in SUFFIXES or judgments:
        if fields:
            raise ConfigError(f"{path}: fields do not apply to TREC runs, whose columns are fixed; omit them")
        return read_trec(path, judgments, topics)
    if suffix not in _FORMATS:
        known = [*_FORMATS, *SUFFIXES]
        remedy = "save it as .xlsx or .csv" if suffix in (".xls", ".ods", ".xlsb") else "convert the file"
        problem = f"{path}: expected one of {', '.join(known)}, got {suffix!r}"
        raise ConfigError(f"{problem}: {remedy}{did_you_mean(suffix, known)}")
    files, package = _PACKAGES.get(suffix, ("", ""))
    if package and not find_spec(package):
        raise ConfigError(f"{path}: reading {files} needs {package}: pip install {package}")
    reading.is_table = suffix in (".csv", ".tsv", *WORKBOOKS, ".parquet")
    return _parsed(_FORMATS[suffix](path, _is_head(fields)), path.name, reading, number_ids, notice)


def _suffix(path: Path) -> str:
    """Return the suffix in lower case; ".jsonl" for a report or a test set with any other suffix."""
    suffix = path.suffix.lower()
    if suffix in _FORMATS or suffix in SUFFIXES:
        return suffix
    with path.open("rb") as file:
        start = file.read(40)
    return ".jsonl" if any(start.startswith(f'{{"{head}":'.encode()) for head in OWN_HEADS) else suffix


def _is_head(fields: Fields) -> IsHead:
    """Return a function that recognises the names of a question, or if `fields` has one, of that."""
    wanted = {name.partition(".")[0] for name in fields.values()} | {*fields.values()}
    spelled = {folded(name) for name in wanted}

    def is_head(name: str) -> bool:
        known = known_name(name) or known_name(name.partition(".")[0])
        return known in NAMES["question"] or name in wanted or (bool(folded(name)) and folded(name) in spelled)

    return is_head


def _parsed(
    records: Records, name: str, reading: _FieldReading, number_ids: bool, notice: Notice
) -> Iterator[Sample | SampleError]:
    """Yield a sample with a distinct id, or an error, for each record; the arguments are those of `read_samples`."""
    ids = SampleIds()
    for place, item in join_chunks(_samples_read(records, reading)):
        where, is_renamed = f"{name}, {place}", False
        try:
            if isinstance(item, Exception):
                raise SampleError(f"{where}: {item}", getattr(item, "field", None)) from item
            is_renamed = number_ids and ids.clashes(item)
            sample = ids.distinct(item) if is_renamed else ids.checked(item, where)
        except SampleError as error:
            yield error
            continue
        vars(sample)[_PLACE] = where
        if is_renamed:
            _LOG.warning("%s: %s; renamed to %r", where, describe_clash(item), sample.id)
        yield sample
    reading.report(name, notice)


def _samples_read(records: Records, reading: _FieldReading) -> Iterator[tuple[str, Sample | Exception]]:
    """Yield the samples in the records, or the error of a record that is not one, each with its place."""
    for place, record in records:
        try:
            if isinstance(record, SampleError):
                raise record
            for sample in reading.samples(record):
                yield place, sample
        except (SampleError, ValueError, RecursionError) as error:
            yield place, error


T = TypeVar("T")


def join_chunks(items: Iterable[tuple[T, Any]]) -> Iterator[tuple[T, Any]]:
    """Yield items; join adjacent samples that are equal except for their chunk, such as rows of a table of chunks.

    Each of these samples has one context. The ids of the contexts may differ, and so may metadata about the chunk, such
    as its source, and numbers in the metadata, such as a rank. A joined sample has the place of the first sample, and
    `metadata["rows"]` is the number of joined samples. If a value of the metadata differs, the joined sample has the
    list of all values.

    Args:
        items: pairs of a place (any value that locates a sample in its input, such as "line 7") and a sample; a pair
            with any other value instead of a sample is yielded unchanged.
    """
    held: list[tuple[T, Any]] = []
    for place, item in items:
        if held and not _is_next_chunk([sample for _, sample in held], item):
            yield held[0][0], _joined([sample for _, sample in held])
            held = []
        held.append((place, item))
    if held:
        yield held[0][0], _joined([sample for _, sample in held])


def _is_next_chunk(held: Sequence[Any], sample: Any) -> bool:
    first = held[0]
    if not (isinstance(sample, Sample) and isinstance(first, Sample) and sample.question == first.question):
        return False
    if any(one.contexts is None or len(one.contexts) != 1 for one in (first, sample)):
        return False
    if sample.contexts in [one.contexts for one in held] or sample.metadata.keys() != first.metadata.keys():
        return False
    equal = all(getattr(sample, name) == getattr(first, name) for name in _SAME_IN_CHUNKS)
    return equal and all(
        value == first.metadata[name] or _NUMBER.fullmatch(str(value)) or _ABOUT_CHUNK.search(name)
        for name, value in sample.metadata.items()
    )


def _joined(samples: Sequence[Any]) -> Any:
    first = samples[0]
    if len(samples) == 1:
        return first
    metadata = {
        name: value if all(one.metadata[name] == value for one in samples) else [one.metadata[name] for one in samples]
        for name, value in first.metadata.items()
    }
    ids = [one for sample in samples for one in sample.context_ids or []]
    update = {
        "contexts": [context for sample in samples for context in sample.contexts],
        "context_ids": ids if len(ids) == len(samples) else None,
        "metadata": {**metadata, ROWS: len(samples)},
    }
    return first.model_copy(update=update)


class _FieldReading:
    """Samples of the records of a file, and which name each field was read from."""

    def __init__(self, fields: Fields, each_turn: bool, scored: bool) -> None:
        self._origins: dict[str, dict[str, None]] = {}  # field to the names that it was read from
        self._fields = fields
        self._each_turn = each_turn
        self._parse = parse_record if scored else Sample.parse
        self._named: dict[str, int] = {}  # conversation without an id of its own to the number of its repeats
        self._conversations = self._turns = 0
        self._others: dict[str, None] = {}
        self._shapes: set[frozenset[str]] = set()
        self._unfound = dict(fields)
        self.is_table = False  # whose cells may hold lists as text

    def samples(self, record: Any) -> list[Sample]:
        """Return the sample in a record, or one for each turn of its conversation."""
        record = decode_row(record, self._fields) if self.is_table else record
        record = {"messages": record} if isinstance(record, list) else record
        check_outputs_are_clear(record, self._fields.values())
        samples = self._turns_of(record) if self._each_turn else [self._parse(record, self._fields)]
        if samples:
            self._describe(record, samples[-1])
        for field in {field for sample in samples for field in sample.model_fields_set & self._unfound.keys()}:
            del self._unfound[field]
        return samples

    def _turns_of(self, record: Any) -> list[Sample]:
        """Return a sample for each turn of a conversation; equal conversations without ids get numbers.

        Only then is the id of the conversation that of its last sample: a hash.
        """
        samples = read_conversation(record, self._fields)
        name = samples[-1].metadata[CONVERSATION] if samples else ""
        if not samples or samples[-1].id != name:
            return samples
        number = self._named[name] = self._named.get(name, 0) + 1
        if number == 1:
            return samples
        changed = {CONVERSATION: f"{name}-{number}"}
        return [sample.model_copy(update={"metadata": sample.metadata | changed}) for sample in samples]

    def _describe(self, record: Any, sample: Sample) -> None:
        """Record the names that a sample was read from, and whether it is the last turn of a conversation."""
        is_whole = any(isinstance(record[name], list) for name in record if known_name(str(name)) in CONVERSATIONS)
        if is_whole and sample.history:
            self._conversations += 1
            self._turns += sum(turn.role == "assistant" for turn in sample.history) + (sample.answer is not None)
        shape = frozenset(str(name) for name, value in record.items() if value is not None)
        if shape not in self._shapes and len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(shape)
            for field, names in explain_fields(record, self._fields)[1].items():
                self._origins.setdefault(field, {}).update(dict.fromkeys(names))
            self._others |= {str(name): None for name in record if metadata_name(str(name)) in sample.metadata}

    def report(self, name: str, notice: Notice) -> None:
        """Report which name was read as which field, unless all are names of fields, and which turns are samples.

        Log a warning for each name in `fields` that no record has.
        """
        if self._others or any(names.keys() != {field} for field, names in self._origins.items()):
            found = [(field, self._origins[field]) for field in NAMES if field in self._origins]
            read = ", ".join(f"{field} from {' and '.join(map(repr, names))}" for field, names in found)
            rest = f"; only kept as metadata: {', '.join(map(repr, self._others))}" if self._others else ""
            notice(f"{name}: {read}{rest}")
        if self._conversations and not self._each_turn:
            whole = f"conversations: {self._conversations}, answers in them: {self._turns}"
            option = "each_turn=True or --each-turn makes a sample of every answer"
            notice(f"{name}: {whole}; a sample is the last answer, the turns before are its history; {option}")
        for field, path in self._unfound.items() if self._shapes else ():
            near = did_you_mean(path, self._others)
            _LOG.warning("%s: no record has %r, which fields maps to %s%s", name, path, field, near)


def _parquet_rows(path: Path, _: IsHead) -> Records:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise ConfigError(f"{path.name}: not Parquet: {error}") from error
    with file:
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"row {number}", row


_FORMATS: Mapping[str, Callable[[Path, IsHead], Records]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), records_of_lines),
    ".json": records_of_json,
    **dict.fromkeys((".csv", ".tsv", *WORKBOOKS), table_records),
    ".parquet": _parquet_rows,
}
_PACKAGES = {".parquet": ("Parquet", "pyarrow"), **dict.fromkeys(WORKBOOKS, ("workbooks", "openpyxl"))}
"""By suffix the kind of the files, and the package that reads them."""
