"""Examined judges: files of a qualification or an agreement, and gates that demand the judge that they are about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from langchain_rageval.data.instrument import Instrument, step_digests
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import ReportData, instruments_of
from langchain_rageval.report.gates import Gate
from langchain_rageval.trust.agreement import Agreement

_REQUIREMENT = "an examined judge"
LEAST_AGREEMENT = 0.4
"""Least kappa, weighted kappa or rank correlation of a judge that is fit by its agreement with people."""


def today() -> str:
    """Return the date (UTC) in ISO 8601."""
    return datetime.now(UTC).date().isoformat()


def write_agreement(path: str | Path, found: Agreement, metric: str, report: ReportData) -> None:
    """Write an agreement as JSON, bound to the judge of the report.

    The judge is "fit" for the metric if the statistic of the kind of labels (kappa, weighted kappa, or else Spearman's
    correlation) is at least 0.4 and its interval lies above 0, and "unfit" otherwise.
    """
    names = ("kappa",) if found.kind == "binary" else ("weighted_kappa", "spearman")
    chosen = next((found[name] for name in names if found[name].value is not None), None)
    is_fit = chosen is not None and (chosen.value or 0) >= LEAST_AGREEMENT and (chosen.low or 0) > 0
    steps: dict[str, str] = {}
    for instrument in instruments_of(report).get(metric, []):
        steps |= step_digests(instrument.found_by)
    content = {
        "judge": ", ".join(name for one in instruments_of(report).get(metric, []) for name in one.judges),
        "date": today(),
        "examined": steps,
        "verdict": {metric: "fit" if is_fit else "unfit"},
        "agreement": {name: [one.value, one.low, one.high] for name, one in found.items()},
        "pairs": found.pairs,
    }
    Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class ExaminedJudge:
    """What a file of `rageval qualify --out` or `rageval agreement --out` says about a judge.

    Attributes:
        path: the file.
        date: when the judge was examined, ISO 8601.
        steps: name of a step to the digest of its judge and prompts.
        verdict: metric to "fit", "fit with care", "cannot tell" or "unfit".
    """

    path: str
    date: str
    steps: Mapping[str, str]
    verdict: Mapping[str, str]

    @classmethod
    def load(cls, path: str | Path) -> ExaminedJudge | None:
        """Read a file; None if it does not exist.

        Raises:
            ConfigError: if it is not such a file.
        """
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(str(path), str(content["date"]), dict(content["examined"]), dict(content["verdict"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{path} does not describe an examined judge: `rageval qualify --out` and `rageval agreement --out` do"
            ) from None


def judge_gates(report: ReportData, metrics: Iterable[str], path: str | Path, named: str = "…") -> list[Gate]:
    """Return a gate for each metric that asks a judge: passed if the file examined this judge with these prompts.

    Args:
        report: the run.
        metrics: metrics of the other gates.
        path: file of `rageval qualify --out` or `rageval agreement --out`.
        named: name and options of the judge on the command line, for the command that a reason gives.
    """
    examined, known = ExaminedJudge.load(path), instruments_of(report)
    gates = []
    for metric in dict.fromkeys(metrics):
        instruments = [one for one in known.get(metric, []) if one.judges or one.unknown]
        if instruments:
            code = _objection(metric, instruments, examined)
            facts = {"path": quote(str(path)), "date": examined.date if examined else "–", "named": named}
            judge = ", ".join(dict.fromkeys(name for one in instruments for name in one.judges))
            notes = [Note(code, metric=metric, judge=judge, **facts)] if code else []
            gates.append(Gate.of(metric, _REQUIREMENT, "undecided" if code else "passed", notes))
    return gates


def _objection(metric: str, instruments: Iterable[Instrument], examined: ExaminedJudge | None) -> str:
    """Return the code of what speaks against the judge of a metric; "" if nothing does."""
    if examined is None or metric not in examined.verdict:
        return "judge-not-examined"
    for instrument in instruments:
        steps = step_digests(instrument.found_by)
        if not steps or any(examined.steps.get(step) != digest for step, digest in steps.items()):
            return "another-judge"
    return "judge-unfit" if examined.verdict[metric] == "unfit" else ""
