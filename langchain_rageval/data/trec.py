"""TREC files: what a retriever found for each topic, and the grades that people gave.

A run file has six columns: topic, Q0, document, rank, score, name of the run; a file of judgments (qrels) four: topic,
0, document, grade. Read as trec_eval reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from os import PathLike
from pathlib import Path

import numpy as np

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError

SUFFIXES = (".trec", ".run")
Topics = Mapping[str, str] | str | PathLike[str]
Read = Callable[[Path], Iterable[str]]
Labels = dict[str, dict[str, float]]

_LOG = logging.getLogger("langchain_rageval")


def read_trec(run: Path, qrels: Path | None, topics: Topics | None, read: Read) -> Iterator[Sample | SampleError]:
    """One sample for each topic, without texts; before them an error for each line of the run that is none.

    Args:
        run: what was found. Documents stand by score, the highest first, those of equal score by id, the last first;
            the column of ranks does not count, and scores are compared as 32-bit floats.
        qrels: the grades. A topic that only it has is one for which nothing was found; one that it lacks is left out,
            with a warning. None for no grades.
        topics: id to question, or a file with a line `id<TAB>question` for each; by default the id is the question.
        read: gives the lines of a file.

    Raises:
        ConfigError: if the judgments or the topics are not what they should be.
    """
    labels = None if qrels is None else _labels(qrels, read)
    questions = topics if isinstance(topics, Mapping) else {} if topics is None else _questions(Path(topics), read)
    found: dict[str, dict[str, float]] = {}
    for number, line in _numbered(run, read):
        try:
            _enter(found, line)
        except ValueError as error:
            yield SampleError(f"{run.name}, line {number}: {error}", "context_ids")
    unjudged = [topic for topic in found if labels is not None and topic not in labels]
    if unjudged:
        _LOG.warning("%s: topics without judgments are left out: %s", run.name, ", ".join(unjudged))
    for topic in dict.fromkeys([*found, *(labels or {})]):
        if topic not in unjudged:
            yield Sample(
                id=topic,
                question=questions.get(topic, topic),
                context_ids=_ranked(found.get(topic, {})),
                relevance=None if labels is None else labels[topic],
                metadata={"topic": topic},
            )


def _enter(found: dict[str, dict[str, float]], line: str) -> None:
    columns = line.split()
    if len(columns) != 6:
        raise ValueError(f"expected topic, Q0, document, rank, score and run, got {len(columns)} columns")
    topic, _, document, _, told, _ = columns
    score = _number(told, "score")
    if document in found.setdefault(topic, {}):
        raise ValueError(f"document {document} is there already for topic {topic}")
    found[topic][document] = score


def _labels(qrels: Path, read: Read) -> Labels:
    labels: Labels = {}
    for number, line in _numbered(qrels, read):
        columns = line.split()
        try:
            if len(columns) != 4:
                raise ValueError(f"expected topic, 0, document and grade, got {len(columns)} columns")
            topic, _, document, grade = columns
            if document in labels.setdefault(topic, {}):
                raise ValueError(f"document {document} is judged already for topic {topic}")
            labels[topic][document] = _number(grade, "grade")
        except ValueError as error:
            raise ConfigError(f"{qrels.name}, line {number}: {error}: mend the judgments") from error
    return labels


def _questions(path: Path, read: Read) -> dict[str, str]:
    questions = {}
    for number, line in _numbered(path, read):
        topic, tab, text = line.rstrip("\r\n").partition("\t")
        if not (tab and topic.strip() and text.strip()):
            raise ConfigError(f"{path.name}, line {number}: expected id, tab and question, got {line.strip()[:40]!r}")
        questions[topic.strip()] = text.strip()
    return questions


def _ranked(scores: Mapping[str, float]) -> list[str]:
    def place(document: str) -> tuple[np.float32, bytes]:
        return np.float32(scores[document]), document.encode()

    return sorted(scores, key=place, reverse=True)


def _number(told: str, what: str) -> float:
    try:
        number = float(told)
    except ValueError:
        raise ValueError(f"the {what} {told!r} is no number") from None
    if not isfinite(number):
        raise ValueError(f"the {what} {told!r} is not finite")
    return number


def _numbered(path: Path, read: Read) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(read(path), start=1) if line.strip())
