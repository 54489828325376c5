"""Output of a report to an MLflow run: metrics, params, and artifacts (rows, HTML page, report file)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from langchain_rageval._version import __version__
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.adapters import mlflow_key
from langchain_rageval.report.files import ReportData, head_of, instruments_of, to_data_frame, write_report
from langchain_rageval.report.page import Page, language_of, render_page
from langchain_rageval.report.summary import summarise

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_FOLDER = "rageval"
_NUMBERS = ("mean", "low", "high", "scored", "unscored", "failed", "abstained")
_COSTS = ("calls", "input_tokens", "output_tokens", "seconds", "money")
_LONGEST_PREFIX = 30
_LONGEST_PARAM = 6000


def write_run(
    data: ReportData,
    run_name: str | None,
    experiment: str | None,
    tracking_uri: str | None,
    *,
    prefix: str,
    table: bool,
    page: bool,
) -> str:
    """Log the report to MLflow and return the id of the MLflow run; see `Report.to_mlflow`."""
    try:
        import mlflow
    except ImportError:
        raise ConfigError("MLflow is not installed: pip install mlflow") from None
    _check_prefix(prefix)
    metrics, params = dict(_metrics(data, prefix)), dict(_params(data, prefix))
    active = mlflow.active_run()
    if active is not None and (run_name, experiment, tracking_uri) != (None, None, None):
        raise ConfigError(
            f"the report is logged to the active run {active.info.run_name!r}; run_name, experiment and tracking_uri "
            "are for a new run: omit them, or end the active run first"
        )
    with TemporaryDirectory() as folder:
        write_report(Path(folder) / "report.jsonl", data.rows, head_of(data))
        if page:
            render_page(Path(folder) / "report.html", Page(data, language_of("auto", data.rows)))
        client = mlflow.MlflowClient(tracking_uri)
        with _run(mlflow, client, run_name, experiment, tracking_uri) as run:
            run_id = str(run.info.run_id)
            _log(client, client.get_run(run_id), metrics, params)
            if table:
                frame = to_data_frame(data.rows).astype(object)  # other types make pandas warn about MLflow's own code
                client.log_table(run_id, frame, f"{prefix}{_FOLDER}/rows.json")
            client.log_artifacts(run_id, folder, f"{prefix}{_FOLDER}")
    return run_id


def _check_prefix(prefix: str) -> None:
    parts = prefix.removesuffix("/").split("/") if prefix else []
    if len(prefix) > _LONGEST_PREFIX or not all(re.fullmatch(r"[\w\- ][\w.\- ]*", part) for part in parts):
        raise ConfigError(
            f"prefix must be at most {_LONGEST_PREFIX} letters, digits, '_', '-', '.', ' ' and '/', such as 'before/'; "
            f"got {prefix!r}"
        )


def _metrics(data: ReportData, prefix: str) -> Iterator[tuple[str, float]]:
    """Yield key and number; a missing mean or interval is omitted, since MLflow has no missing numbers.

    Raises:
        ConfigError: if two metrics have the same key.
    """
    names: dict[str, str] = {}
    for name, metric in summarise(data.rows).items():
        key = mlflow_key(name)
        if key in names:
            raise ConfigError(f"{names[key]!r} and {name!r} have the same MLflow key {key!r}; give one another name")
        names[key] = name
        for number in (*_NUMBERS, *_COSTS):
            if (value := getattr(metric, number)) is not None:
                yield f"{prefix}{key}/{number}", float(value)


def _params(data: ReportData, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield key and text: package version, number of samples, notes, and the instruments of each metric."""
    yield f"{prefix}rageval.version", __version__
    yield f"{prefix}rageval.samples", str(len(data))
    yield f"{prefix}rageval.complete", str(data.complete)
    if data.left_out:
        yield f"{prefix}rageval.left_out", str(len(data.left_out))
    if data.notes:
        yield f"{prefix}rageval.notes", "\n".join(data.notes)[:_LONGEST_PARAM]
    for name, instruments in instruments_of(data).items():
        if hashes := ", ".join(one.digests for one in instruments if one.digests):
            yield f"{prefix}{mlflow_key(name)}.instrument", hashes[:_LONGEST_PARAM]


@contextmanager
def _run(
    mlflow: Any, client: MlflowClient, run_name: str | None, experiment: str | None, tracking_uri: str | None
) -> Iterator[Run]:
    """Yield the active run; without one, start a new run, and end it as finished or, after an error, as failed."""
    if mlflow.active_run() is not None:
        yield mlflow.active_run()
    elif experiment is None and tracking_uri is None:
        with mlflow.start_run(run_name=run_name) as run:
            yield run
    else:
        run = client.create_run(_experiment_id(client, experiment or "Default"), run_name=run_name)
        try:
            yield run
        except BaseException:
            client.set_terminated(run.info.run_id, "FAILED")
            raise
        client.set_terminated(run.info.run_id)


def _experiment_id(client: MlflowClient, name: str) -> str:
    """Return the id of the experiment; create it if it does not exist."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None and experiment.lifecycle_stage != "active":
        raise ConfigError(f"the experiment {name!r} is deleted; restore it, or name another")
    return str(experiment.experiment_id if experiment is not None else client.create_experiment(name))


def _log(client: MlflowClient, run: Run, metrics: Mapping[str, float], params: Mapping[str, str]) -> None:
    """Log the params and metrics of a report to the MLflow run.

    Raises:
        ConfigError: if the run already holds other values of the params, as after another report.
    """
    changed = sorted(key for key, value in params.items() if run.data.params.get(key, value) != value)
    if changed:
        raise ConfigError(
            f"the run {run.info.run_name!r} already holds a report with another {changed[0]}: log this report with "
            "a prefix, such as prefix='after/'"
        )
    for key, param in params.items():
        client.log_param(run.info.run_id, key, param)
    for key, number in metrics.items():
        client.log_metric(run.info.run_id, key, number)
