"""JUnit XML of the gates of a run, which CI servers show as tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from langchain_rageval.report.gates import GateResult

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: str | Path, results: Sequence[GateResult], *, name: str, finished: str, error: str = "") -> None:
    """Write a test suite with one test case for each gate.

    Args:
        path: path of the file.
        results: results of the gates.
        name: name of the test suite.
        finished: when the run ended, ISO 8601; "" if it is unknown.
        error: why the run itself failed; "" if it did not. It is one more test case, with an error.
    """
    failures = sum(bool(result.problem) for result in results)
    counts = {"tests": str(len(results) + bool(error)), "failures": str(failures), "errors": str(int(bool(error)))}
    suites = Element("testsuites", {"name": "rageval", **counts, "time": "0"})
    stamp = {"timestamp": finished[:19]} if finished else {}
    suite = SubElement(suites, "testsuite", {"name": _clean(name), **counts, "skipped": "0", "time": "0", **stamp})
    for result in results:
        case = _case(suite, result.metric or "run", result.requirement)
        if result.problem:
            _problem(case, "failure", "BelowThreshold", result.problem)
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
