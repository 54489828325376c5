"""A report as an MLflow run: its summary as metrics, its rows as a table, the page and the file as artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from langchain_rageval._version import __version__
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from langchain_rageval.report.report import Report

_FOLDER = "rageval"
_REFUSED = re.compile(r"[^\w.\- ]")
_NUMBERS = ("mean", "low", "high", "scored", "unscored", "failed", "abstained")
_COSTS = ("calls", "input_tokens", "output_tokens", "seconds")
_LONGEST_NAME = 200  # MLflow takes 250 characters, the prefix and "/output_tokens" among them
_LONGEST_PREFIX = 30
_LONGEST_PARAM = 6000


def write_run(
    report: Report,
    *,
    run_name: str | None,
    experiment: str | None,
    tracking_uri: str | None,
    prefix: str,
    table: bool,
    page: bool,
) -> str:
    """Write the run; see `Report.to_mlflow`."""
    try:
        import mlflow
    except ImportError:
        raise ConfigError('MLflow is not there: pip install "langchain-rageval[mlflow]"') from None
    _check_prefix(prefix)
    metrics, params = dict(_metrics(report, prefix)), dict(_params(report, prefix))
    active = mlflow.active_run()
    if active is not None and (run_name, experiment, tracking_uri) != (None, None, None):
        raise ConfigError(
            f"the report goes into the run that is active, {active.info.run_name!r}: run_name, experiment and "
            "tracking_uri are for a new one; leave them out, or end the run first"
        )
    with TemporaryDirectory() as folder:
        report.to_jsonl(Path(folder) / "report.jsonl")
        if page:
            report.to_html(Path(folder) / "report.html")
        client = mlflow.MlflowClient(tracking_uri)
        with _run(mlflow, client, run_name, experiment, tracking_uri) as run:
            run_id = str(run.info.run_id)
            _log(client, client.get_run(run_id), metrics, params)
            if table:
                frame = report.to_pandas().astype(object)  # as it is, pandas warns of what MLflow asks of its columns
                client.log_table(run_id, frame, f"{prefix}{_FOLDER}/rows.json")
            client.log_artifacts(run_id, folder, f"{prefix}{_FOLDER}")
    return run_id


def metric_key(name: str) -> str:
    """A metric's name as MLflow takes it: "ndcg@5" is "ndcg_at_5", and what it refuses is "_"."""
    key = _REFUSED.sub("_", name.replace("@", "_at_")).strip(". ")[:_LONGEST_NAME]
    return key or "_"


def _check_prefix(prefix: str) -> None:
    parts = prefix.removesuffix("/").split("/") if prefix else []
    if len(prefix) > _LONGEST_PREFIX or not all(re.fullmatch(r"[\w\- ][\w.\- ]*", part) for part in parts):
        raise ConfigError(
            f"prefix is put before MLflow's names, such as 'before/': letters, digits, '_', '-', '.', ' ' and '/', at "
            f"most {_LONGEST_PREFIX} of them; got {prefix!r}"
        )


def _metrics(report: Report, prefix: str) -> Iterator[tuple[str, float]]:
    """Key to number; a mean or an interval that is not there is left out, since MLflow knows no missing number.

    Raises:
        ConfigError: if two metrics would have one key.
    """
    named: dict[str, str] = {}
    for name, metric in report.summary().items():
        key = metric_key(name)
        if key in named:
            raise ConfigError(f"MLflow would have {named[key]!r} and {name!r} both for {key!r}; give one another name")
        named[key] = name
        for number in (*_NUMBERS, *_COSTS):
            value = getattr(metric, number)
            if value is not None:
                yield f"{prefix}{key}/{number}", float(value)


def _params(report: Report, prefix: str) -> Iterator[tuple[str, str]]:
    """What the numbers were made with."""
    instruments: dict[str, dict[str, None]] = {}
    for row in report.rows:
        for name, score in row.scores.items():
            if score.instrument:
                instruments.setdefault(name, {})[score.instrument] = None
    yield f"{prefix}rageval.version", __version__
    yield f"{prefix}rageval.samples", str(len(report))
    yield f"{prefix}rageval.complete", str(report.complete)
    if report.left_out:
        yield f"{prefix}rageval.left_out", str(len(report.left_out))
    if report.notes:
        yield f"{prefix}rageval.notes", "\n".join(report.notes)[:_LONGEST_PARAM]
    for name, hashes in instruments.items():
        yield f"{prefix}{metric_key(name)}.instrument", ", ".join(hashes)[:_LONGEST_PARAM]


@contextmanager
def _run(
    mlflow: Any, client: MlflowClient, run_name: str | None, experiment: str | None, tracking_uri: str | None
) -> Iterator[Run]:
    """The active run, which stays so; else a new one, ended when all is in it, as failed when it is not."""
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
    """Of the experiment, which is made if it is not there."""
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage != "active":
        raise ConfigError(f"the experiment {name!r} is deleted; restore it, or name another")
    return str(found.experiment_id if found is not None else client.create_experiment(name))


def _log(client: MlflowClient, run: Run, metrics: Mapping[str, float], params: Mapping[str, str]) -> None:
    """Write the params and metrics.

    Raises:
        ConfigError: if the run holds other params already, as after another report; they are written once.
    """
    changed = sorted(key for key, value in params.items() if run.data.params.get(key, value) != value)
    if changed:
        raise ConfigError(
            f"the run {run.info.run_name!r} already holds a report whose {changed[0]} differs: give this one a prefix "
            "of its own, prefix='after/'"
        )
    for key, param in params.items():
        client.log_param(run.info.run_id, key, param)
    for key, number in metrics.items():
        client.log_metric(run.info.run_id, key, number)
