"""The HTML page of a report: one file that needs no network and is safe against whatever the samples hold.

jinja2 writes the summary, with autoescape. The samples travel as gzip in base64, in parts that the page's own script
unpacks when they are looked at and writes as text only, never as HTML. A Content-Security-Policy allows that one script
and style, known by their hashes, and nothing else.
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
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.report.comparison import paired_rows
from langchain_rageval.report.diagnosis import REMEDIES, Cause
from langchain_rageval.report.files import row_line
from langchain_rageval.report.histogram import Histogram
from langchain_rageval.report.summary import Summary
from langchain_rageval.text.language import detect_language

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Row
    from langchain_rageval.report.comparison import Comparison
    from langchain_rageval.report.report import Report

PageLanguage = Literal["auto", "en", "ru"]

_FILES = files("langchain_rageval.report") / "page_files"
_PART = 100
"""Samples, or chunks, that are unpacked together."""
_LONGEST = 200_000
"""Characters of one text that the page shows; a longer one is cut, and says so."""
_MOVED = 5
"""Samples of each metric that moved most, up and down."""


def write_page(
    report: Report, path: str | Path, *, baseline: Report | None, comparison: Comparison | None, language: PageLanguage
) -> None:
    """Write the page; see `Report.to_html`."""
    if language not in get_args(PageLanguage):
        raise ConfigError(f"language is one of {', '.join(get_args(PageLanguage))}, got {language!r}")
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError:
        raise ConfigError('the page is written by jinja2: pip install "langchain-rageval[report]"') from None
    chosen = _spoken(report.rows) if language == "auto" else language
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "number": _number,
        "count": _count,
        "breakable": lambda name: escape(name).replace("_", Markup("_<wbr>")),
    }
    page = Page(report, baseline, comparison, yaml.safe_load(_read("words.yaml"))[chosen])
    template = environment.from_string(_read("report.html"))
    with Path(path).open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(template.stream(page=page, words=page.words, language=chosen, version=__version__))


@dataclass(frozen=True)
class Page:
    """What the template asks for.

    Attributes:
        report: the run.
        baseline: the run before it, None when nothing is compared.
        comparison: of the two.
        words: what the page says in its own voice, by key.
    """

    report: Report
    baseline: Report | None
    comparison: Comparison | None
    words: Mapping[str, Any]

    @cached_property
    def summary(self) -> Summary:
        """Metric to its summary."""
        return self.report.summary()

    @cached_property
    def instruments(self) -> dict[str, list[str]]:
        """Return the instruments of each metric in words; of metrics whose instrument was recorded."""
        known = {
            name: [str(one) for one in found if one.found_by or one.counted_by]
            for name, found in self.report.instruments().items()
        }
        return {name: words for name, words in known.items() if words}

    @property
    def usage(self) -> Usage:
        """What the run cost."""
        return sum((metric.usage for metric in self.summary.values()), Usage())

    @property
    def remedies(self) -> Mapping[Cause, str]:
        """Cause to what to look at."""
        return REMEDIES

    @cached_property
    def causes(self) -> Mapping[str, int]:
        """Cause to the number of samples that have it; empty when no metric can show one."""
        counts = self._diagnosis.counts
        return {} if counts.keys() <= {"cannot tell"} else counts

    @cached_property
    def histograms(self) -> Mapping[str, Histogram]:
        """Metric to how its values are spread, for the metrics that have values."""
        values: dict[str, list[float]] = {name: [] for name in self.summary}
        for row in self.report.rows:
            for name, score in row.scores.items():
                if score.value is not None:
                    values[name].append(score.value)
        return {name: Histogram.of(found) for name, found in values.items() if found}

    @property
    def style(self) -> str:
        """The style sheet."""
        return _read("report.css")

    @property
    def script(self) -> str:
        """The script."""
        return _read("report.js")

    @property
    def policy(self) -> str:
        """The Content-Security-Policy: this script, this style, and nothing from anywhere."""
        hashes = [
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (self.script, self.style)
        ]
        return (
            f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
            "base-uri 'none'; form-action 'none'"
        )

    def parts(self) -> Iterator[tuple[str, str]]:
        """The packed blocks under the ids by which the script asks for them."""
        index: list[list[Any]] = []
        chunks = Chunks()
        rows = iter(self.report.rows)
        while part := list(islice(rows, _PART)):
            yield f"part-{len(index) // _PART}", _packed([_shown(row, chunks) for row in part])
            yield from chunks.filled(_PART)
            index += [self._indexed(row, place) for place, row in enumerate(part, len(index))]
        yield from chunks.filled(1)
        yield "index", _packed({"metrics": [*self.summary], "rows": index, "part": _PART})
        yield "words", _packed(self.words["script"])

    @cached_property
    def moved(self) -> Mapping[str, Sequence[tuple[int, str, float]]]:
        """Metric to the samples that moved most: place, id, and value minus the baseline's; the worst first."""
        found: dict[str, list[tuple[int, str, float]]] = {}
        for place, row in enumerate(self.report.rows):
            before = self._before.get(row.index, {})
            for name, score in row.scores.items():
                if score.value is not None and before.get(name) is not None and score.value != before[name]:
                    found.setdefault(name, []).append((place, row.sample.id, score.value - before[name]))
        return {name: _ends(changes, self.summary[name].direction == "lower") for name, changes in found.items()}

    @cached_property
    def _diagnosis(self) -> Any:
        return self.report.diagnose()

    @cached_property
    def _before(self) -> Mapping[int, Mapping[str, Any]]:
        """Place of a sample in the input to the baseline's values, by metric."""
        pairs = paired_rows(self.report.rows, self.baseline.rows) if self.baseline else []
        return {ours.index: {name: score.value for name, score in theirs.scores.items()} for ours, theirs in pairs}

    def _indexed(self, row: Row, place: int) -> list[Any]:
        """Id, question, answer, cause, values, outcomes, and the baseline's values of one sample."""
        scores = [row.scores.get(name) for name in self.summary]
        before = self._before.get(row.index, {})
        return [
            row.sample.id,
            _cut(row.sample.question),
            _cut(row.sample.answer or ""),
            self._diagnosis[place].cause if self.causes else "",
            [None if score is None else score.value for score in scores],
            ["" if s is None else "failed" if s.failure else "unscored" if s.unscored else "scored" for s in scores],
            [before.get(name) for name in self.summary] if self.baseline else [],
        ]


class Chunks:
    """The chunks of the report as their sentences, each once, however many samples hold it; in blocks like these."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._waiting: list[list[str]] = []
        self._written = 0

    def place_of(self, text: str) -> int:
        """Which chunk this is, counted from 0."""
        place = self._places.setdefault(hashlib.blake2b(text.encode(), digest_size=16).digest(), len(self._places))
        if place == self._written + len(self._waiting):
            self._waiting.append([line.text for line in NumberedContexts.of([_cut(text)]).lines if line.sentence])
        return place

    def filled(self, least: int) -> Iterator[tuple[str, str]]:
        """The blocks for which at least so many chunks wait, packed under their ids."""
        while len(self._waiting) >= least:
            yield f"chunks-{self._written // _PART}", _packed(self._waiting[:_PART])
            self._written += len(self._waiting[:_PART])
            del self._waiting[:_PART]


def _shown(row: Row, chunks: Chunks) -> dict[str, Any]:
    """What the page of a sample shows, its contexts as places of chunks."""
    shown: dict[str, Any] = _cut_all(json.loads(row_line(row)))
    for finding in (finding for score in shown["scores"].values() for finding in score["findings"]):
        if finding["kind"] == "context":
            finding["text"] = ""  # stands beside it, and the page shows which
    if row.sample.contexts is not None:
        shown["sample"]["contexts"] = [chunks.place_of(text) for text in row.sample.contexts]
    return shown


def _cut_all(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        return [_cut_all(item) for item in value]
    return {name: _cut_all(item) for name, item in value.items()} if isinstance(value, dict) else value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,}]"


def _packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def _ends(changes: Sequence[tuple[int, str, float]], lower_is_better: bool) -> list[tuple[int, str, float]]:
    ordered = sorted(changes, key=lambda change: (-change[2] if lower_is_better else change[2], change[0]))
    return ordered if len(ordered) <= 2 * _MOVED else [*ordered[:_MOVED], *ordered[-_MOVED:]]


def _spoken(rows: Iterable[Row]) -> str:
    """The page's language: that of most questions, English when it has none of theirs."""
    found = Counter(detect_language(row.sample.question) for row in islice(rows, 200))
    return "ru" if found and found.most_common(1)[0][0] == "ru" else "en"


def _number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
