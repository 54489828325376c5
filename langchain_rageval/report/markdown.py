"""Results of a run for a CI server: Markdown for a merge request, and JUnit XML of the gates."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from statistics import fmean
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from langchain_rageval._internal.page import pluralize, printable, shortened
from langchain_rageval.data.schema import Row
from langchain_rageval.report.audit import summarise_audit
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.diagnosis import diagnose_rows
from langchain_rageval.report.files import ReportData
from langchain_rageval.report.gates import Gate
from langchain_rageval.report.metric_comparison import MetricComparison
from langchain_rageval.report.pairing import grouped
from langchain_rageval.report.summary import ROUNDING, Summary, missing_scores, summarise
from langchain_rageval.report.tables import number_text

_MOST_WORST = 10
_SIGNS = {"error": "⚠️", "failed": "❌", "undecided": "⚠️", "passed": "✅"}
_LONGEST = 400  # characters of a text; GitHub refuses comments of more than 65,536
_SPECIAL = re.compile(r"([\\`*_\[\]#|~]|^[-+](?=\s)|(?<=^\d)[.)])")
_REFERENCE = re.compile(r"(?<=[@#!$%&~])(?=\w)")


def markdown_of(
    report: ReportData | None, gates: Sequence[Gate], comparison: Comparison | None, error: str = ""
) -> str:
    """Return a run as Markdown for comments and job summaries on GitHub and GitLab.

    Texts of samples are escaped, so that they create no links, mentions, tables or HTML.

    Args:
        report: the report; None if the run failed before there was one.
        gates: the gates of the run.
        comparison: comparison with the baseline, if there is one.
        error: why the run itself failed; "" if it did not.
    """
    verdicts = {gate.verdict for gate in gates}
    verdict = "error" if error else next((one for one in ("failed", "undecided") if one in verdicts), "passed")
    lines = [f"## {_SIGNS[verdict]} RAG evaluation: {verdict}", ""]
    reasons = [error] if error else list(dict.fromkeys(gate.reason for gate in gates if gate.reason))
    lines += [*(f"- {_text(reason)}" for reason in reasons), ""] if reasons else []
    if report is not None and len(report.rows):
        summary, audit = summarise(report.rows), summarise_audit(report.rows)
        audited = _table(audit.headings, ([_text(name), *cells] for name, *cells in audit.cells())) if audit else ()
        notes = [*missing_scores(report.rows), *report.notes, *(() if comparison is None else comparison.notes)]
        lines += [
            *_metrics(summary, gates, comparison),
            "",
            *_section("Audit by a strong judge", audited),
            *_section("What to check", _causes(report)),
            *_section("Worst samples", _worst(report, summary)),
            *_section("Notes", (f"- {_text(note)}" for note in notes)),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a section with its title; nothing if it has no lines."""
    own = list(lines)
    return [f"### {title}", "", *own, ""] if own else []


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of Markdown cells."""
    yield f"| {' | '.join(headings)} |"
    yield "|---" * len(headings) + "|"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


def _metrics(summary: Summary, gates: Sequence[Gate], comparison: Comparison | None) -> Iterator[str]:
    counts = ("scored", "unscored", "failed")
    required = grouped((gate.metric, f"{_SIGNS[gate.verdict]} {_named(gate)}") for gate in gates)
    rows = []
    for name, metric in summary.items():
        compared = (comparison.get(name) if comparison else None) or MetricComparison(name, metric.direction)
        by_whom = f"<br>{_text(compared.shown)}" if compared.judge else ""
        by_whom += f"<br>by people: {compared.corrected}" if compared.corrected is not None else ""
        rows.append(
            [
                _text(name) + (" ↓" if metric.direction == "lower" else ""),
                number_text(metric.mean),
                metric.interval or "–",
                "<br>".join(required.get(name, ["–"])),
                number_text(compared.baseline),
                f"{number_text(compared.difference, '+.3f')} {compared.interval}".rstrip() + by_whom,
                *(str(getattr(metric, count)) for count in counts),
            ]
        )
    yield from _table(["metric", "mean", "95% interval", "required", "baseline", "difference", *counts], rows)


def _named(gate: Gate) -> str:
    """Return the requirement of a gate, and whether it passed without being shown to hold."""
    return f"{gate.requirement}: inconclusive" if "inconclusive" in gate.codes else gate.requirement


def _causes(report: ReportData) -> Iterator[str]:
    """Yield a list of the causes of wrong answers: how many samples each has, and what to check."""
    diagnosis = diagnose_rows(report.rows)
    for cause, count in diagnosis.counts.items():
        if cause in diagnosis.remedies and cause != "cannot tell":
            yield f"- **{cause}**, {pluralize(count, 'sample')}. {_text(diagnosis.remedies[cause])}"


def _worst(report: ReportData, summary: Summary) -> Iterator[str]:
    best: Mapping[str, float] = {name: 1.0 if one.direction == "higher" else 0.0 for name, one in summary.items()}

    def quality(row: Row) -> float:
        values = [abs(best[name] - score.value) for name, score in row.scores.items() if score.value is not None]
        return -sum(values) / len(values) if values else 0.0

    typical = fmean(map(quality, report.rows)) + ROUNDING
    for row in nsmallest(_MOST_WORST, report.rows, key=lambda row: (quality(row), row.index)):
        if not quality(row) or quality(row) > typical:  # better than the mean
            break
        values = ", ".join(f"{_html(name)} {number_text(one.value, '.2f')}" for name, one in row.scores.items())
        yield f"<details><summary>{_html(row.sample.question)} ({_html(row.sample.id)}): {values}</summary>"
        yield ""
        yield f"- answer: {_text(row.sample.answer or '–')}"
        for reference in row.sample.references[:1]:
            yield f"- reference: {_text(reference)}"
        for name, score in row.scores.items():
            if score.comment and score.value != best[name]:
                yield f"- {_text(name)}: {_text(score.comment)}"
        yield ""
        yield "</details>"


def _plain(text: str) -> str:
    """Return a text of limited length that mentions no people and no issues."""
    return _REFERENCE.sub("\u200b", shortened(printable(text), _LONGEST))


def _html(text: str) -> str:
    """Return a text inside HTML: no tags, and no mentions of people or issues."""
    return html.escape(_plain(text))


def _text(text: str) -> str:
    """Return a text as Markdown that shows it as it is: no markup, no HTML, no mentions of people or issues."""
    return _SPECIAL.sub(r"\\\1", html.escape(_plain(text), quote=False))


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: str | Path, gates: Sequence[Gate], *, name: str, finished: str, error: str = "") -> None:
    """Write the gates as a JUnit XML file: a test suite with one test case for each gate.

    Args:
        path: path of the file.
        gates: the gates of the run.
        name: name of the test suite.
        finished: when the run ended, ISO 8601; "" if it is unknown.
        error: why the run itself failed; "" if it did not. A failed run adds one test case with an error.
    """
    failures = sum(gate.verdict != "passed" for gate in gates)
    counts = {"tests": str(len(gates) + bool(error)), "failures": str(failures), "errors": str(int(bool(error)))}
    suites = Element("testsuites", {"name": "rageval", **counts, "time": "0"})
    stamp = {"timestamp": finished[:19]} if finished else {}
    suite = SubElement(suites, "testsuite", {"name": _clean(name), **counts, "skipped": "0", "time": "0", **stamp})
    for gate in gates:
        case = _case(suite, gate.metric or "run", _named(gate))
        if gate.verdict != "passed":
            _problem(case, "failure", f"BelowThreshold: {gate.verdict}", gate.reason)
    if error:
        _problem(_case(suite, "run", "the run ends without an error"), "error", "RagevalError", error)
    indent(suites)
    ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def _case(suite: Element, metric: str, requirement: str) -> Element:
    names = {"classname": f"rageval.{_clean(metric)}", "name": _clean(requirement), "time": "0"}
    return SubElement(suite, "testcase", names)


def _problem(case: Element, kind: str, of_type: str, message: str) -> None:
    SubElement(case, kind, {"message": _clean(message), "type": of_type}).text = _clean(message)


def _clean(text: str) -> str:
    """Return the text without the characters that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)
