"""Reader of TREC files: runs of a retriever and relevance judgments (qrels).

A run has six columns: topic, Q0, document, rank, score and run name. Judgments have four: topic, 0, document and grade.
Both are interpreted as in trec_eval.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from math import isfinite
from os import PathLike
from pathlib import Path

import numpy as np

from langchain_rageval.data.schema import Sample
from langchain_rageval.data.tables import read_lines
from langchain_rageval.errors import ConfigError, SampleError

SUFFIXES = (".trec", ".run")
"""Suffixes of files that are TREC runs."""

Topics = Mapping[str, str] | str | PathLike[str]
"""Questions by topic id, or the path of a file with one line `id<TAB>question` per topic."""

_Numbers = dict[str, dict[str, float]]

_LOG = logging.getLogger("langchain_rageval")


def read_trec(run: Path, qrels: Path | None, topics: Topics | None) -> Iterator[Sample | SampleError]:
    """Yield an error for each invalid line of a run, then one sample without texts for each topic.

    Args:
        run: file of the retrieved documents. They are ordered by descending score, compared as 32-bit floats, and by
            descending id for equal scores; the rank column is ignored.
        qrels: file of the relevance grades; None if there are no grades. A topic that is only in this file has no
            retrieved documents. A topic of the run that this file lacks is omitted, with a warning.
        topics: mapping of topic id to question, or a file with one line `id<TAB>question` per topic; None to use the
            ids as questions.

    Raises:
        ConfigError: if the judgments or the topics have an invalid line.
    """
    labels = None if qrels is None else _read_labels(qrels)
    questions = topics if isinstance(topics, Mapping) else {} if topics is None else _questions(Path(topics))
    retrieved: _Numbers = {}
    for number, line in _numbered_lines(run):
        try:
            _add_line(retrieved, line, "score")
        except ValueError as error:
            yield SampleError(f"{run.name}, line {number}: {error}", "context_ids")
    unjudged = [topic for topic in retrieved if labels is not None and topic not in labels]
    if unjudged:
        _LOG.warning("%s: topics without judgments are omitted: %s", run.name, ", ".join(unjudged))
    for topic in dict.fromkeys([*retrieved, *(labels or {})]):
        if topic not in unjudged:
            scores = [(np.float32(score), own.encode(), own) for own, score in retrieved.get(topic, {}).items()]
            yield Sample(
                id=topic,
                question=questions.get(topic, topic),
                context_ids=[document for *_, document in sorted(scores, reverse=True)],
                relevance=None if labels is None else labels[topic],
                metadata={"topic": topic},
            )


_COLUMNS = {
    "score": (6, 4, "a TREC run has 6 columns: topic, Q0, document, rank, score and run", "appears"),
    "grade": (4, 3, "TREC qrels has 4 columns: topic, 0, document and grade", "is judged"),
}
"""Of each number: columns of its file, place of the number among them, their names, and a verb for messages."""


def _add_line(numbers: _Numbers, line: str, column: str) -> None:
    count, place, names, verb = _COLUMNS[column]
    columns = line.split()
    if len(columns) != count:
        raise ValueError(f"a line of {names}; got {len(columns)}")
    topic, _, document, *_ = columns
    try:
        number = float(columns[place])
    except ValueError:
        raise ValueError(f"the {column} {columns[place]!r} is not a number") from None
    if not isfinite(number):
        raise ValueError(f"the {column} {columns[place]!r} is not finite")
    if document in numbers.setdefault(topic, {}):
        raise ValueError(f"document {document} {verb} twice for topic {topic}")
    numbers[topic][document] = number


def _read_labels(qrels: Path) -> _Numbers:
    labels: _Numbers = {}
    for number, line in _numbered_lines(qrels):
        try:
            _add_line(labels, line, "grade")
        except ValueError as error:
            raise ConfigError(f"{qrels.name}, line {number}: {error}: correct the judgments") from error
    return labels


def _questions(path: Path) -> dict[str, str]:
    questions = {}
    for number, line in _numbered_lines(path):
        topic, tab, text = line.rstrip("\r\n").partition("\t")
        if not (tab and topic.strip() and text.strip()):
            raise ConfigError(f"{path.name}, line {number}: expected id, tab and question, got {line.strip()[:40]!r}")
        questions[topic.strip()] = text.strip()
    return questions


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(read_lines(path), start=1) if line.strip())
