"""HTML page of a report: one file that works offline and is safe against hostile content in samples.

jinja2 renders the summary, with autoescape. The samples are embedded as gzip in base64, in blocks. The page's script
unpacks a block when it is shown and writes it as text only, never as HTML. A Content-Security-Policy allows this one
script and style, identified by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Row, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.report.comparison import Comparison, paired_rows
from langchain_rageval.report.data import ReportData, instruments_of
from langchain_rageval.report.diagnosis import REMEDIES, Cause, Diagnosis, diagnose_rows
from langchain_rageval.report.files import row_line
from langchain_rageval.report.histogram import Histogram
from langchain_rageval.report.summary import Summary, summarise
from langchain_rageval.text.language import detect_language

PageLanguage = Literal["auto", "en", "ru"]

_FILES = files("langchain_rageval.report") / "page_files"
_PART = 100
"""Number of samples, or chunks, in one block."""
_LONGEST = 200_000
"""Most characters of one text; a longer text is cut and its length appended."""
_MOVED = 5
"""Number of samples listed for each metric with the greatest changes, in each direction."""


def write_page(
    data: ReportData,
    path: str | Path,
    *,
    baseline: ReportData | None,
    comparison: Comparison | None,
    language: PageLanguage,
) -> None:
    """Write the page; see `Report.to_html`."""
    if language not in get_args(PageLanguage):
        raise ConfigError(f"language must be one of {', '.join(get_args(PageLanguage))}, got {language!r}")
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError:
        raise ConfigError('jinja2 is not installed: pip install "langchain-rageval[report]"') from None
    chosen = _most_common_language(data.rows) if language == "auto" else language
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "number": _number,
        "count": _count,
        "breakable": lambda name: escape(name).replace("_", Markup("_<wbr>")),
    }
    page = Page(data, baseline, comparison, yaml.safe_load(_read("words.yaml"))[chosen])
    template = environment.from_string(_read("report.html"))
    with Path(path).open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(template.stream(page=page, words=page.words, language=chosen, version=__version__))


@dataclass(frozen=True)
class Page:
    """Values that the template of the HTML page reads.

    Attributes:
        report: the run.
        baseline: the run that it is compared with, or None.
        comparison: the comparison of the two, or None.
        words: texts of the page in its language, by key.
    """

    report: ReportData
    baseline: ReportData | None
    comparison: Comparison | None
    words: Mapping[str, Any]

    @cached_property
    def summary(self) -> Summary:
        """Mapping of metric names to summaries."""
        return summarise(self.report.rows)

    @cached_property
    def instruments(self) -> dict[str, list[str]]:
        """Mapping of metric names to their recorded instruments: the first in words, each other by its differences."""
        known = {
            name: [one for one in found if one.found_by or one.counted_by]
            for name, found in instruments_of(self.report).items()
        }
        return {
            name: [str(found[0]), *("; ".join(found[0].differences(other)) or str(other) for other in found[1:])]
            for name, found in known.items()
            if found
        }

    @property
    def usage(self) -> Usage:
        """Calls, tokens and seconds of all metrics together."""
        return sum((metric.usage for metric in self.summary.values()), Usage())

    @property
    def remedies(self) -> Mapping[Cause, str]:
        """Mapping of causes to remedies."""
        return REMEDIES

    @cached_property
    def causes(self) -> Mapping[Cause, int]:
        """Mapping of causes to numbers of samples; empty if no metric can show a cause."""
        counts = self._diagnosis.counts
        return {} if counts.keys() <= {"cannot tell"} else counts

    @cached_property
    def histograms(self) -> Mapping[str, Histogram]:
        """Mapping of metric names to histograms, for the metrics that have values."""
        values: dict[str, list[float]] = {name: [] for name in self.summary}
        for row in self.report.rows:
            for name, score in row.scores.items():
                if score.value is not None:
                    values[name].append(score.value)
        return {name: Histogram.of(numbers) for name, numbers in values.items() if numbers}

    @property
    def style(self) -> str:
        """Text of the style sheet (CSS) of the page."""
        return _read("report.css")

    @property
    def script(self) -> str:
        """Text of the script (JavaScript) of the page."""
        return _read("report.js")

    @property
    def policy(self) -> str:
        """Content-Security-Policy that allows this script and this style only."""
        hashes = [
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (self.script, self.style)
        ]
        return (
            f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
            "base-uri 'none'; form-action 'none'"
        )

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the packed blocks with the ids by which the script reads them."""
        index: list[list[Any]] = []
        chunks = Chunks()
        rows = iter(self.report.rows)
        while part := list(islice(rows, _PART)):
            yield f"part-{len(index) // _PART}", _pack([_sample_view(row, chunks) for row in part])
            yield from chunks.take_blocks(_PART)
            index += [self._index_entry(row, place) for place, row in enumerate(part, len(index))]
        yield from chunks.take_blocks(1)
        yield "index", _pack({"metrics": [*self.summary], "rows": index, "part": _PART})
        yield "words", _pack(self.words["script"])

    @cached_property
    def moved(self) -> Mapping[str, Sequence[tuple[int, str, float]]]:
        """Mapping of metric names to the samples that changed most: place, id and difference; the worst first."""
        changes: dict[str, list[tuple[int, str, float]]] = {}
        for place, row in enumerate(self.report.rows):
            before = self._before.get(row.index, {})
            for name, score in row.scores.items():
                if score.value is not None and before.get(name) is not None and score.value != before[name]:
                    changes.setdefault(name, []).append((place, row.sample.id, score.value - before[name]))
        return {name: _ends(moves, self.summary[name].direction == "lower") for name, moves in changes.items()}

    @cached_property
    def _causes(self) -> Sequence[Cause]:
        return [row.cause for row in self._diagnosis]

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        return diagnose_rows(self.report.rows)

    @cached_property
    def _before(self) -> Mapping[int, Mapping[str, Any]]:
        """Mapping of the index of a sample to its baseline values, by metric."""
        pairs = paired_rows(self.report.rows, self.baseline.rows) if self.baseline else []
        return {ours.index: {name: score.value for name, score in theirs.scores.items()} for ours, theirs in pairs}

    def _index_entry(self, row: Row, place: int) -> list[Any]:
        """Return what the page lists of a sample: id, question, answer, cause, values, outcomes and baseline values."""
        scores = [row.scores.get(name) for name in self.summary]
        before = self._before.get(row.index, {})
        return [
            row.sample.id,
            _cut(row.sample.question),
            _cut(row.sample.answer or ""),
            self._causes[place] if self.causes else "",
            [None if score is None else score.value for score in scores],
            ["" if s is None else "failed" if s.failure else "unscored" if s.unscored else "scored" for s in scores],
            [before.get(name) for name in self.summary] if self.baseline else [],
        ]


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
            self._waiting.append([line.text for line in NumberedContexts.of([_cut(text)]).lines if line.sentence])
        return place

    def take_blocks(self, least: int) -> Iterator[tuple[str, str]]:
        """Yield ids and packed blocks while at least `least` chunks are not written yet."""
        while len(self._waiting) >= least:
            yield f"chunks-{self._written // _PART}", _pack(self._waiting[:_PART])
            self._written += len(self._waiting[:_PART])
            del self._waiting[:_PART]


def _sample_view(row: Row, chunks: Chunks) -> dict[str, Any]:
    """Return the data of a sample's view, with contexts as numbers of chunks."""
    view: dict[str, Any] = _cut_all(json.loads(row_line(row)))
    for finding in (finding for score in view["scores"].values() for finding in score["findings"]):
        if finding["kind"] == "context":
            finding["text"] = ""  # the page shows the chunk itself
    if row.sample.contexts is not None:
        view["sample"]["contexts"] = [chunks.place_of(text) for text in row.sample.contexts]
    return view


def _cut_all(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        return [_cut_all(item) for item in value]
    return {name: _cut_all(item) for name, item in value.items()} if isinstance(value, dict) else value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,}]"


def _pack(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def _ends(changes: Sequence[tuple[int, str, float]], lower_is_better: bool) -> list[tuple[int, str, float]]:
    ordered = sorted(changes, key=lambda change: (-change[2] if lower_is_better else change[2], change[0]))
    return ordered if len(ordered) <= 2 * _MOVED else [*ordered[:_MOVED], *ordered[-_MOVED:]]


def _most_common_language(rows: Iterable[Row]) -> str:
    """Return "ru" if most of the first 200 questions are Russian, else "en"."""
    languages = Counter(detect_language(row.sample.question) for row in islice(rows, 200))
    return "ru" if languages and languages.most_common(1)[0][0] == "ru" else "en"


def _number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
