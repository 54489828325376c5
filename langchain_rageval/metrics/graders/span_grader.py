"""Span grader: how much of a source passage of the answer is in each chunk, whatever the splitter of the chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.metrics.graders.grader import Grader, grade_findings
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.sample_reader import SPANS
from langchain_rageval.text.shared_text import common_share

_LEAST_SHARE = 0.001  # a smaller threshold, as that of NDCG, means any gain and does not say who holds a passage

REFERENCE_SPANS = "spans"
"""Name in the metadata of a sample: source and offsets of each reference context in its document."""


class SpanGrader(Grader):
    """Grader by overlap with `Sample.reference_contexts`. Build one with `span_grader()`."""

    grade_range: tuple[float, float] = (0.0, 1.0)

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: only its name, since it has no options."""
        return {"step": self.get_name()}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Measure the largest overlap of each chunk with a source passage."""
        grades = [max(overlaps, default=0.0) for overlaps in _overlaps(sample)]
        return grade_findings(sample.contexts or [], grades, self.meaning)
        yield  # a generator without requests

    def known_grades(
        self, sample: Sample, order: Sequence[Finding], threshold: float
    ) -> tuple[list[float], list[float]]:
        """Return the grades of the chunks, each passage counted once, and those of all known relevant chunks.

        A chunk that only holds a passage of chunks before it gets 0. A passage that no chunk holds counts as a chunk of
        grade 1 that was not retrieved. Passages that one chunk holds together count as one.
        """
        least = threshold if threshold >= _LEAST_SHARE else self.threshold or 0.0
        overlaps = _overlaps(sample)
        groups = _merge({number for number, share in enumerate(shares) if share >= least} for shares in overlaps)
        best = {number: 1.0 for number in range(len(sample.reference_contexts or [])) if number not in groups}
        firsts: list[float] = []
        seen: set[int] = set()
        others: list[float] = []
        for finding in order:
            grade, shares = float(finding.verdict), overlaps[finding.number - 1]
            held = next((groups[number] for number, share in enumerate(shares) if share >= least), None)
            firsts.append(0.0 if held in seen else grade)
            if held is None:
                others.append(grade)
            else:
                seen.add(held)
                best[held] = max(best.get(held, 0.0), grade)
        return firsts, [*best.values(), *others]

    def judged_grades(self, sample: Sample) -> list[float]:
        """Return a grade of 1 for each source passage; empty if no passage answers the question."""
        return [1.0] * len(sample.reference_contexts or [])


def span_grader() -> Grader:
    """Grade a chunk by its overlap with the source passages of the answer, `Sample.reference_contexts`.

    Ids are not compared, so it fits any splitter, chunk size and vector store. A chunk with a known place in its
    document (`source` and `start_index` in its metadata, as `add_start_index=True` of a splitter writes them) is
    compared by offsets with the spans of the test set; every chunk is also looked for by its text, without regard to
    white space and letter case. Texts of one pattern, such as the sheets of two products, have nothing in common.

    Returns:
        A grader that reads `contexts` and `reference_contexts`. A grade is the share, from 0 to 1, of the shorter of
        chunk and passage that both have in common; a chunk is relevant from 0.5 on. In recall, NDCG and MAP each
        passage counts once, however many chunks hold parts of it. If `reference_contexts` is empty, as for an
        unanswerable question, the metrics are unscored.
    """
    reads = frozenset({"contexts", "reference_contexts", "metadata"})
    return SpanGrader(name="compare_spans", reads=reads, threshold=0.5, meaning="overlap with a source passage")


def _overlaps(sample: Sample) -> list[list[float]]:
    """Return the overlap of each chunk with each source passage, from 0 to 1."""
    chunks, passages = sample.contexts or [], sample.reference_contexts or []
    places = _spans(sample, SPANS, len(chunks))
    sources = _spans(sample, REFERENCE_SPANS, len(passages))
    return [
        [
            max(_shared_offsets(place, source), common_share(chunk, passage))
            for passage, source in zip(passages, sources, strict=True)
        ]
        for chunk, place in zip(chunks, places, strict=True)
    ]


def _merge(groups: Iterable[set[int]]) -> dict[int, int]:
    """Return a representative of each number; numbers that occur together in a group share theirs."""
    representatives: dict[int, int] = {}
    for group in groups:
        linked = group | {n for n, own in representatives.items() if own in {representatives.get(m) for m in group}}
        representatives |= dict.fromkeys(linked, min(linked, default=0))
    return representatives


def _spans(sample: Sample, name: str, count: int) -> Sequence[Any]:
    """Return the spans in the metadata of a sample; None for each text if there are none or their number differs."""
    spans = sample.metadata.get(name)
    return spans if isinstance(spans, list) and len(spans) == count else [None] * count


def _shared_offsets(one: Any, other: Any) -> float:
    """Return the share of the shorter of two spans that lies in both; 0 if they are of different documents."""
    try:
        (source, start, end), (other_source, other_start, other_end) = one, other
        shorter = min(end - start, other_end - other_start)
        shared = min(end, other_end) - max(start, other_start)
        return min(1.0, max(0.0, shared / shorter)) if source == other_source and shorter > 0 else 0.0
    except (TypeError, ValueError):  # no span
        return 0.0
