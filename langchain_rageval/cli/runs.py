"""`rageval runs DIR`: list the reports in a folder with their dates, judges and means."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import parse_numbers
from langchain_rageval.cli.json_output import add_json_option, write_json
from langchain_rageval.cli.messages import write_message
from langchain_rageval.errors import BelowThreshold, ConfigError, RagevalError

if TYPE_CHECKING:
    from langchain_rageval.report.report import Report


@dataclass(frozen=True)
class StoredRun:
    """A report in a folder.

    Attributes:
        name: path of the file in the folder, without `.jsonl`.
        finished: when the run ended, UTC, ISO 8601; "" if it is unknown.
        samples: number of samples.
        complete: False if the run was interrupted.
        judges: names of the judges.
        means: metric to its mean; None if nothing is scored.
        gate: "passed" or "failed" by the thresholds; without thresholds, what a run with `until=` decided; "" if there
            are neither.
    """

    name: str
    finished: str
    samples: int
    complete: bool
    judges: list[str]
    means: dict[str, float | None]
    gate: str


def add_to(commands: Any) -> None:
    """Add the command `rageval runs` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "runs", help="list the reports in a folder; `rageval compare --runs FOLDER` takes their names"
    )
    parser.set_defaults(run=run)
    parser.add_argument("folder", help="folder with reports that `rageval evaluate --out` wrote, at any depth")
    parser.add_argument(
        "--fail-under",
        action="append",
        default=[],
        metavar="METRIC=NUMBER",
        help="show which runs reach the number (metrics of noise: stay at or below it); exit with code 1 if the latest "
        "does not",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the reports, the latest first.

    Raises:
        BelowThreshold: if the latest does not pass the thresholds.
        ConfigError: if the folder has no reports, or it is unknown whether the latest passes the thresholds.
    """
    folder = Path(options.folder)
    thresholds = parse_numbers(options.fail_under, "--fail-under")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name the one with the reports")
    runs, damaged = stored_runs(folder, thresholds)
    found = sorted(runs, key=lambda one: (one.finished, one.name), reverse=True)
    if damaged and not found:
        raise ConfigError("; ".join(damaged))
    for problem in damaged:
        write_message(f"left out: {problem}")
    if not found:
        raise ConfigError(f"{folder} has no reports; `rageval evaluate --out {folder}/NAME.jsonl` writes one")
    metrics = list(dict.fromkeys(name for one in found for name in one.means))
    if unknown := [name for name in thresholds if name not in metrics]:
        raise ConfigError(f"--fail-under {unknown[0]}: no run has this metric; the runs have {', '.join(metrics)}")
    if options.json:
        write_json({"runs": [asdict(one) for one in found]})
    else:
        _show(found)
    if thresholds and damaged:
        raise ConfigError("which run is the latest is unknown, because a report is damaged: repair or delete its file")
    if thresholds and found[0].gate == "failed":
        raise BelowThreshold(f"the latest run, {found[0].name}, does not pass {' '.join(options.fail_under)}")
    return 0


def stored_runs(folder: Path, thresholds: Mapping[str, float]) -> tuple[list[StoredRun], list[str]]:
    """Return the reports in a folder and its subfolders, and what is wrong with those that cannot be read."""
    from langchain_rageval.report.files import is_report
    from langchain_rageval.report.report import Report

    found: list[StoredRun] = []
    damaged: list[str] = []
    for path in sorted(folder.rglob("*.jsonl")):
        if not is_report(path):
            continue
        try:
            found.append(_stored_run(Report.load(path, lazy=True), path.relative_to(folder), thresholds))
        except ConfigError as error:
            damaged.append(str(error))
    return found, damaged


def _stored_run(report: Report, path: Path, thresholds: Mapping[str, float]) -> StoredRun:
    judges = (name for found in report.instruments().values() for one in found for name in one.judges)
    return StoredRun(
        name=path.with_suffix("").as_posix(),
        finished=report.finished,
        samples=len(report),
        complete=report.complete,
        judges=list(dict.fromkeys(judges)),
        means={name: metric.mean for name, metric in report.summary().items()},
        gate=_gate(report, thresholds),
    )


def _gate(report: Report, thresholds: Mapping[str, float]) -> str:
    if thresholds:
        try:
            report.check(thresholds)
        except RagevalError:
            return "failed"
        return "passed"
    verdicts = [decision.verdict for decision in report.decisions.values()]
    return next((one for one in ("failed", "worse", "undecided", "passed") if one in verdicts), "")


def path_of_run(name: str, folder: str | None) -> str:
    """Return the path of a report: the name itself, or that of a report in the folder of runs."""
    if folder is None:
        return name
    path = Path(folder) / name
    return str(path if path.suffix == ".jsonl" else path.with_name(f"{path.name}.jsonl"))


def _show(found: list[StoredRun]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console

    gate = ("gate",) if any(one.gate for one in found) else ()
    metrics = list(dict.fromkeys(name for one in found for name in one.means))
    table = Table(title="Runs, the latest first", title_justify="left", title_style="bold")
    for number, heading in enumerate(("run", "finished", "judge", "samples", *gate, *metrics)):
        table.add_column(escape(heading), justify="left" if number < 3 else "right")
    for one in found:
        means = ["–" if (mean := one.means.get(name)) is None else f"{mean:.3f}" for name in metrics]
        when = one.finished[:16].replace("T", " ") or "–"
        samples = f"{one.samples}" + ("" if one.complete else " (interrupted)")
        cells = (one.name, when, ", ".join(one.judges) or "–", samples, *([one.gate or "–"] if gate else []), *means)
        table.add_row(*map(escape, cells))
    console().print(table)
