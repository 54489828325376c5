"""Samples of a page, packed as gzip in base64."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_rageval._internal.page import cut, pack
from langchain_rageval.chains.sample_reader import SPANS
from langchain_rageval.data.messages import CONTEXT_SOURCES as SOURCES
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.metrics.grading import REFERENCE_SPANS
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.report.answer_tree import build_answer_tree
from langchain_rageval.report.files import row_line
from langchain_rageval.report.labelling import standalone_findings

PART = 100
"""Number of samples, or chunks, in one block."""

_AGAINST_CONTEXTS = {"supported", "contradicted", "absent"}


class Chunks:
    """Distinct chunks of the report as lists of sentences, collected into packed blocks."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._waiting: list[list[str]] = []
        self._written = 0

    def place_of(self, text: str) -> int:
        """Return the number of a chunk, from 0; a chunk that is not in the collection is added to it."""
        place = self._places.setdefault(hashlib.blake2b(text.encode(), digest_size=16).digest(), len(self._places))
        if place == self._written + len(self._waiting):
            self._waiting.append([line.text for line in NumberedContexts.of([cut(text)]).lines if line.sentence])
        return place

    def take_blocks(self, least: int) -> Iterator[tuple[str, str]]:
        """Yield ids and packed blocks while at least `least` chunks are not written yet."""
        while len(self._waiting) >= least:
            yield f"chunks-{self._written // PART}", pack(self._waiting[:PART])
            self._written += len(self._waiting[:PART])
            del self._waiting[:PART]


def sample_view(row: Row, chunks: Chunks, translate: Callable[[str], str]) -> dict[str, Any]:
    """Return the data of a sample's view.

    Contexts are numbers of chunks. `statements` names the metric whose statements the page lists, `answer` is the tree
    of the answer if it has one, `sources` are the sources of the contexts if they are known, and `standalone` the
    findings about the question of a conversation.

    Args:
        row: the sample with its scores.
        chunks: collection that receives the contexts.
        translate: returns the reason why a sample is unscored in the language of the page.
    """
    view: dict[str, Any] = _cut_all(json.loads(row_line(row.model_copy(update={"asked": []}))))
    questions = standalone_findings(row)
    if questions:
        view["standalone"] = [_cut_all(finding.model_dump()) for finding in questions]
    for score in view["scores"].values():
        score["findings"] = [f for f in score["findings"] if f["kind"] != "standalone_question"]
        if score["unscored"]:
            score["unscored"] = translate(score["unscored"])
        for finding in score["findings"]:
            place, contexts = finding["number"] - 1, row.sample.contexts or []
            if finding["kind"] == "context" and finding["text"] in [*map(cut, contexts[place : place + 1])]:
                finding["text"] = ""  # the page shows the chunk itself
    if row.sample.contexts is not None:
        view["sample"]["contexts"] = [chunks.place_of(text) for text in row.sample.contexts]
    sources = _sources_of(row.sample)
    if sources:
        view["sources"] = [None if source is None else cut(source) for source in sources]
        view["sample"]["metadata"].pop(SOURCES, None)
    view["sample"]["metadata"].pop(SPANS, None)
    view["sample"]["metadata"].pop(REFERENCE_SPANS, None)
    metric = _metric_with_statements(row)
    if metric:
        view["statements"] = metric
    statements = [f.text for f in row.scores[metric].findings if f.kind == "statement"] if metric else []
    tree = build_answer_tree(row.sample.answer or "", statements)
    if tree is not None:
        view["answer"] = tree
    return view


def _metric_with_statements(row: Row) -> str:
    """Return the metric whose statements of the answer are shown, preferably with verdicts against the contexts."""
    verdicts = {
        name: {finding.verdict for finding in score.findings if finding.kind == "statement"}
        for name, score in row.scores.items()
    }
    cited = (name for name, found in verdicts.items() if found & _AGAINST_CONTEXTS)
    return next(cited, next((name for name, found in verdicts.items() if found), ""))


def _sources_of(sample: Sample) -> Sequence[str | None]:
    """Return the source of each context, or [] if none is known."""
    sources = sample.metadata.get(SOURCES)
    if not isinstance(sources, list) or len(sources) != len(sample.contexts or ()):
        return []
    return [None if source is None else str(source) for source in sources]


def _cut_all(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_cut_all(item) for item in value]
    return {name: _cut_all(item) for name, item in value.items()} if isinstance(value, Mapping) else value
