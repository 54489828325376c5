"""HTML page of a report. Notes are translated into the language of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from importlib.resources import files
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.page import PageLanguage, content_policy, cut, pack, read_page_file, shortened
from langchain_rageval._version import __version__
from langchain_rageval.data.notes import is_important, translate
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.audit import AuditSummary, summarise_audit
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.diagnosis import NOT_WRONG, REMEDIES, Cause, Diagnosis, diagnose_rows
from langchain_rageval.report.evolution_comparison import EvolutionComparison, compare_evolutions, has_trees
from langchain_rageval.report.files import ReportData, instruments_of, judge_names
from langchain_rageval.report.gates import Gate
from langchain_rageval.report.page_blocks import PART, Chunks, sample_view
from langchain_rageval.report.pairing import pair_rows
from langchain_rageval.report.plot import Histogram, values_of
from langchain_rageval.report.summary import Summary, summarise
from langchain_rageval.report.tables import number_text
from langchain_rageval.run.usage import format_money
from langchain_rageval.text.language import page_language

_IDENTITY = re.compile(r"\b[A-Z]\w*\(\w+=(?:[^()'\"]|'[^'\n]*'|\"[^\"\n]*\")*\)")
"""Class and settings of a model, as `model_identity` gives them."""
_NAME = re.compile(r"\b(?:model|model_name|deployment_name)='([^']+)'")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>),;]+", re.IGNORECASE)


def without_addresses(text: str) -> str:
    """Return a text with descriptions of models replaced by their names, and internet addresses by "…".

    A description is a class with settings: "ChatOpenAI(model='gpt-4o', temperature=0)" becomes "gpt-4o". If the
    settings contain no name, the class remains.
    """
    return _ADDRESS.sub("…", _IDENTITY.sub(_short_identity, text))


def _short_identity(match: re.Match[str]) -> str:
    name = _NAME.search(match[0])
    return name[1] if name else match[0].partition("(")[0]


_FILES = files("langchain_rageval.report") / "page_files"
_MOVED = 5
"""Number of samples listed for each metric with the greatest changes, in each direction."""
_FIRST_LOOKS = 5
"""Number of samples listed as those to look at first."""
_LONGEST_TITLE = 200


def language_of(language: PageLanguage, rows: Iterable[Row]) -> str:
    """Return the language of a page about rows: "en" or "ru"; for "auto", the language of most questions.

    Raises:
        ConfigError: if the language is invalid.
    """
    return page_language(language, (row.sample.question for row in rows))


def render_page(path: str | Path, page: Page) -> None:
    """Render a page from its template and write it as one file.

    Raises:
        ConfigError: if jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError:
        raise ConfigError("jinja2 is not installed: pip install jinja2 markdown-it-py") from None
    environment = Environment(
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number_text,
        "count": _count,
        "money": format_money,
        "percent": "{:.2f}%".format,
        "breakable": lambda name: escape(name).replace("_", Markup("_<wbr>")),
        "plain": without_addresses,
    }
    values = {"page": page, "words": page.words, "version": __version__, "remedies": REMEDIES}
    with Path(path).open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(environment.get_template(page.template).stream(values))


def read_template(name: str) -> str:
    """Return the text of a template, style sheet or script of the report pages, such as "report.html"."""
    return (_FILES / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Page:
    """Values that the template of the HTML page reads.

    Attributes:
        report: the run.
        language: language of the page's own texts, "en" or "ru".
        baseline: the baseline of the comparison, or None.
        comparison: the comparison of `report` with `baseline`, or None.
        gates: gates of the run.
        period_names: names of the periods, such as days, to which the samples belong; () for a run without periods.
        period_places: for each sample, the place of its period in `period_names`; () for a run without periods.
    """

    report: ReportData
    language: str
    baseline: ReportData | None = None
    comparison: Comparison | None = None
    gates: Sequence[Gate] = ()
    period_names: Sequence[str] = ()
    period_places: Sequence[int] = ()
    template: ClassVar[str] = "report.html"
    text_files: ClassVar[Sequence[str]] = ("words.yaml",)

    @cached_property
    def words(self) -> Mapping[str, Any]:
        """Mapping of keys to the texts of the page in its language."""
        texts = (load_yaml(read_template(name))[self.language] for name in self.text_files)
        return {key: text for own in texts for key, text in own.items()}

    def translate(self, note: str) -> str:
        """Return a note, or the reason of an unscored sample, in the language of the page if a translation exists.

        Internet addresses are removed.
        """
        return without_addresses(translate(note, self.language))

    def run_notes(self, *, important: bool) -> list[str]:
        """Return translations of the notes of the run that a reader needs to interpret the scores, or of the others.

        Important are the notes with `Note.is_important`, such as on an interrupted run, and notes that are plain texts.
        """
        return [self.translate(note) for note in self.report.notes if is_important(note) == important]

    @cached_property
    def summary(self) -> Summary:
        """Mapping of metric names to summaries: mean, interval and counts."""
        return summarise(self.report.rows)

    @cached_property
    def instruments(self) -> dict[str, list[str]]:
        """Mapping of metric names to texts on the configurations (judge, prompts, options) that gave their scores.

        The first text describes the first configuration in full. Each further text lists the differences of another
        configuration from the first one. Metrics without a readable configuration are omitted.
        """
        known = {
            name: [one for one in found if one.found_by or one.counted_by]
            for name, found in instruments_of(self.report).items()
        }
        return {
            name: [str(found[0]), *("; ".join(found[0].differences(other)) or str(other) for other in found[1:])]
            for name, found in known.items()
            if found
        }

    @cached_property
    def audit(self) -> AuditSummary:
        """Comparison of the metrics' scores with those that the strong judge of an audit gave to the same samples."""
        return summarise_audit(self.report.rows)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Mapping of the indexes of samples in the input to their positions in the page's list of samples, from 0."""
        return {row.index: place for place, row in enumerate(self.report.rows)}

    @cached_property
    def evolutions(self) -> EvolutionComparison | None:
        """Comparison of evolutions (question types) with simple questions on one fact; None if no fact has both."""
        return compare_evolutions(self.report.rows) if has_trees(self.report.rows) else None

    @property
    def headline(self) -> str:
        """Headline of the page: the number of samples in which the diagnosis found a problem.

        If no metric can show a cause of wrong answers, the headline only states how many samples were scored.
        """
        if not len(self.report):
            return str(self.words["headlines"]["empty"])
        if not self.causes:
            return str(self.words["headlines"]["scores"].format(count=_count(len(self.report))))
        kind = "wrong" if self.wrong else "fine"
        return str(self.words["headlines"][kind].format(wrong=_count(self.wrong), count=_count(len(self.report))))

    @property
    def wrong(self) -> int:
        """Number of samples in which the diagnosis found an error."""
        return sum(count for cause, count in self.causes.items() if cause not in NOT_WRONG)

    @property
    def finished(self) -> str:
        """Time when the run ended, as text with the month in words; "" if it is unknown."""
        try:
            return self.moment(datetime.fromisoformat(self.report.finished))
        except ValueError:
            return ""

    def moment(self, time: datetime) -> str:
        """Return a time (UTC) as text with the month in words."""
        return f"{time.day} {self.words['months'][time.month - 1]} {time.year}, {time:%H:%M} UTC"

    @cached_property
    def judges(self) -> list[str]:
        """Names of the judges of all metrics."""
        return [self.words["judges"].get(name, name) for name in judge_names(self.report)]

    @cached_property
    def first_looks(self) -> list[tuple[int, str, Cause, str, float | None]]:
        """Up to five samples to look at first: (position on the page, question, cause, worst metric, its value).

        They are the samples with the lowest mean of their values (1 - value for a metric where lower is better), the
        lowest first. Metrics without a confidence interval are not used. `cause` explains the wrong answer, see
        `Report.diagnose`. If the metrics can show causes, only samples with errors are listed.
        """
        looks = []
        for place, row in enumerate(self.report.rows):
            goodness = {
                name: 1 - score.value if score.direction == "lower" else score.value
                for name, score in row.scores.items()
                if score.value is not None and self.summary[name].low is not None
            }
            cause = self._diagnosis[place].cause
            if goodness and (cause not in NOT_WRONG if self.wrong else not self.causes):
                worst = min(goodness, key=lambda name: goodness[name])
                look = (place, _title(row.sample.question), cause, worst, row.scores[worst].value)
                looks.append((fmean(goodness.values()), look))
        return [look for _, look in nsmallest(_FIRST_LOOKS, looks, key=lambda look: look[0])]

    @cached_property
    def causes(self) -> Mapping[Cause, int]:
        """Mapping of the causes of wrong answers to numbers of samples; empty if no metric can show a cause."""
        counts = self._diagnosis.counts
        return {} if counts.keys() <= {"cannot tell"} else counts

    @cached_property
    def histograms(self) -> Mapping[str, Histogram]:
        """Mapping of metric names to histograms of values; metrics without values are omitted."""
        return {name: Histogram.of(values) for name, values in values_of(self.report).items() if values}

    @property
    def style(self) -> str:
        """Text of the style sheet (CSS) of the page."""
        return read_page_file("page.css") + read_template("report.css")

    @property
    def script(self) -> str:
        """Text of the script (JavaScript) of the page."""
        return read_page_file("page.js") + read_template("report.js")

    @property
    def policy(self) -> str:
        """Content-Security-Policy that allows only the script and the style of the page."""
        return content_policy(self.script, self.style)

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the data of the page in parts: pairs of an id, by which the script finds the part, and packed data.

        The data are samples, context chunks, an index of the samples, and the script's texts. They are packed as JSON,
        compressed with gzip and encoded in base64.
        """
        index: list[list[Any]] = []
        chunks = Chunks()
        rows = iter(self.report.rows)
        while part := list(islice(rows, PART)):
            yield f"part-{len(index) // PART}", pack([sample_view(row, chunks, self.translate) for row in part])
            yield from chunks.take_blocks(PART)
            index += [self._index_entry(row, place) for place, row in enumerate(part, len(index))]
        yield from chunks.take_blocks(1)
        lower = [metric.direction == "lower" for metric in self.summary.values()]
        known = {"metrics": [*self.summary], "lower": lower, "causes": [*self.causes], "periods": self.period_places}
        yield "index", pack({**known, "rows": index, "part": PART})
        yield "words", pack(self.words["script"])

    @cached_property
    def moved(self) -> Mapping[str, Sequence[tuple[int, str, float]]]:
        """Mapping of a metric to samples whose value differs from the baseline: (position, question, difference).

        The position is that on the page, from 0; the difference is value minus baseline. The order is from the
        greatest loss to the greatest gain. Of more than ten samples, only the first five and the last five are listed.
        """
        changes: dict[str, list[tuple[int, str, float]]] = {}
        for place, row in enumerate(self.report.rows):
            before = self._before.get(row.index, {})
            for name, score in row.scores.items():
                if score.value is not None and before.get(name) is not None and score.value != before[name]:
                    change = (place, _title(row.sample.question), score.value - before[name])
                    changes.setdefault(name, []).append(change)
        return {name: _ends(moves, self.summary[name].direction == "lower") for name, moves in changes.items()}

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        return diagnose_rows(self.report.rows)

    @cached_property
    def _before(self) -> Mapping[int, Mapping[str, Any]]:
        """Mapping of the index of a sample to its baseline values, by metric."""
        pairs = pair_rows(self.report.rows, self.baseline.rows).pairs if self.baseline else []
        return {ours.index: {name: score.value for name, score in theirs.scores.items()} for ours, theirs in pairs}

    def _index_entry(self, row: Row, place: int) -> list[Any]:
        """Return what the page lists of a sample: id, question, answer, cause, values, outcomes and baseline values."""
        scores = [row.scores.get(name) for name in self.summary]
        before = self._before.get(row.index, {})
        return [
            row.sample.id,
            cut(row.sample.question),
            cut(row.sample.answer or ""),
            self._diagnosis[place].cause if self.causes else "",
            [None if score is None else score.value for score in scores],
            ["" if s is None else "failed" if s.failure else "unscored" if s.unscored else "scored" for s in scores],
            [before.get(name) for name in self.summary] if self.baseline else [],
        ]


def _ends(changes: Sequence[tuple[int, str, float]], lower_is_better: bool) -> list[tuple[int, str, float]]:
    ordered = sorted(changes, key=lambda change: (-change[2] if lower_is_better else change[2], change[0]))
    return ordered if len(ordered) <= 2 * _MOVED else [*ordered[:_MOVED], *ordered[-_MOVED:]]


def _title(question: str) -> str:
    """Return a question on one line, cut after 200 characters."""
    return shortened(" ".join(question.split()), _LONGEST_TITLE)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")
