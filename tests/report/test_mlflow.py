"""A report in a real MLflow store, in a file on disk, with the network closed."""

import json
import sys
from pathlib import Path

import pytest
from helpers.each import each, error_of
from helpers.reports import FACTLESS, failed, report_of, scored, unscored

from langchain_rageval import ConfigError, Report, __version__
from langchain_rageval.metrics.adapters import mlflow_key

pytestmark = [
    pytest.mark.gate,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # what MLflow makes of SQLAlchemy and pandas is its own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in one SQLite file; to make one takes seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "false")
        patch.chdir(folder)
        yield f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture
def mlflow(store):
    """MLflow as a user's script has it set, with no run active."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store)
    yield mlflow
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


def told():
    first = [scored(1.0, instrument="a1"), scored(0.25, "ndcg@5", instrument="b1")]
    second = [scored(0.5, instrument="a1"), failed("ndcg@5")]
    third = [unscored(FACTLESS, instrument="a1"), scored(0.75, "ndcg@5", instrument="b2")]
    return report_of(first, second, third, notes=["Судья — «GigaChat»."])


def test_a_new_run_holds_summary_params_table_page_and_file(mlflow, store, tmp_path):
    report = told()
    run_id = report.to_mlflow("ночной прогон", "RAG по страхованию", store)
    run = mlflow.get_run(run_id)
    assert (run.info.run_name, run.info.status) == ("ночной прогон", "FINISHED")
    assert mlflow.get_experiment(run.info.experiment_id).name == "RAG по страхованию"

    summary = report.summary()
    for name, key in {"faithfulness": "faithfulness", "ndcg@5": "ndcg_at_5"}.items():
        for number in ("mean", "low", "high", "scored", "unscored", "failed", "calls"):
            assert run.data.metrics[f"{key}/{number}"] == getattr(summary[name], number)
    assert run.data.metrics["faithfulness/unscored"] == run.data.metrics["ndcg_at_5/failed"] == 1
    assert run.data.params == {
        "rageval.version": __version__,
        "rageval.samples": "3",
        "rageval.complete": "True",
        "rageval.notes": "Судья — «GigaChat».",
        "faithfulness.instrument": "a1",
        "ndcg_at_5.instrument": "b1, b2",
    }

    mlflow.artifacts.download_artifacts(run_id=run_id, dst_path=str(tmp_path))
    assert Report.load(tmp_path / "rageval" / "report.jsonl") == report
    assert "faithfulness" in (tmp_path / "rageval" / "report.html").read_text(encoding="utf-8")
    table = json.loads((tmp_path / "rageval" / "rows.json").read_text(encoding="utf-8"))
    values = [row[table["columns"].index("faithfulness")] for row in table["data"]]
    assert values == [1.0, 0.5, None]
    assert "mlflow.loggedArtifacts" in run.data.tags  # what MLflow's page shows as a table


def test_the_active_run_is_used_and_stays_active(mlflow):
    with mlflow.start_run(run_name="mine") as mine:
        assert told().to_mlflow(page=False, table=False) == mine.info.run_id
        assert mlflow.active_run().info.run_id == mine.info.run_id
        mlflow.log_metric("own", 1.0)
    metrics = mlflow.get_run(mine.info.run_id).data.metrics
    assert (metrics["own"], metrics["faithfulness/mean"]) == (1.0, 0.75)
    files = mlflow.MlflowClient().list_artifacts(mine.info.run_id, "rageval")
    assert [file.path for file in files] == ["rageval/report.jsonl"]


def test_one_run_holds_several_reports_under_prefixes(mlflow):
    with mlflow.start_run() as run:
        told().to_mlflow(prefix="before/", page=False)
        report_of(scored(0.125, instrument="a2")).to_mlflow(prefix="after/", page=False)
        refused = r"holds a report with another after/\S+: log this report with a prefix, such as prefix='after/'$"
        with pytest.raises(ConfigError, match=refused):
            told().to_mlflow(prefix="after/", page=False)
    found = mlflow.get_run(run.info.run_id)
    assert found.data.metrics["before/faithfulness/mean"] == 0.75
    assert found.data.metrics["after/faithfulness/mean"] == 0.125
    assert found.data.params["after/faithfulness.instrument"] == "a2"
    paths = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert {"before", "after"} <= paths


def test_a_new_run_goes_where_mlflow_is_set_to(mlflow):
    mlflow.set_experiment("chosen")
    run = mlflow.get_run(report_of(scored(1.0)).to_mlflow(page=False, table=False))
    assert mlflow.get_experiment(run.info.experiment_id).name == "chosen"
    assert run.info.status == "FINISHED"
    assert mlflow.active_run() is None


def test_options_for_a_new_run_are_refused_while_one_is_active(mlflow, store):
    refused = "the report is logged to the active run 'mine'; run_name, experiment"
    with mlflow.start_run(run_name="mine"):
        for options in ({"run_name": "other"}, {"experiment": "other"}, {"tracking_uri": store}):
            with pytest.raises(ConfigError, match=refused):
                told().to_mlflow(**options)


@pytest.mark.parametrize("named", [True, False], ids=["experiment named", "experiment set"])
def test_a_run_that_cannot_be_finished_is_marked_as_failed(mlflow, monkeypatch, named):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(mlflow.MlflowClient, "log_artifacts", full)
    with pytest.raises(OSError, match="No space left"):
        told().to_mlflow(f"broken {named}", "failing" if named else None, page=False, table=False)
    runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
    (run,) = [run for run in runs if run.info.run_name == f"broken {named}"]
    assert (run.info.status, run.data.metrics["faithfulness/mean"]) == ("FAILED", 0.75)
    assert mlflow.active_run() is None


def test_without_a_scored_sample_there_is_no_mean(mlflow):
    run = mlflow.get_run(report_of(failed()).to_mlflow(page=False, table=False))
    assert "faithfulness/mean" not in run.data.metrics
    assert run.data.metrics["faithfulness/failed"] == 1
    assert mlflow.get_run(Report([]).to_mlflow()).data.params["rageval.samples"] == "0"


def test_a_deleted_experiment_is_not_filled(mlflow, store):
    client = mlflow.MlflowClient()
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(ConfigError, match="the experiment 'gone' is deleted"):
        told().to_mlflow(experiment="gone", page=False)


@each("name", ["ndcg@5", "тон/речь", "a:b", "..", "../x", "a//b", "x" * 400, "50%", "\n", "<b>"])
def test_every_name_of_a_metric_is_one_that_mlflow_takes(mlflow, name):
    report = report_of(scored(0.5, name, instrument="a"))
    run = mlflow.get_run(report.to_mlflow(page=False, table=False))
    assert run.data.metrics[f"{mlflow_key(name)}/mean"] == 0.5


def test_two_metrics_that_would_have_one_name_are_refused_before_a_run_is_made(mlflow):
    before = len(mlflow.search_runs(search_all_experiments=True, output_format="list"))
    refused = "'ndcg@5' and 'ndcg_at_5' have the same MLflow key 'ndcg_at_5'; give one another name"
    with pytest.raises(ConfigError, match=refused):
        report_of([scored(1.0, "ndcg@5"), scored(0.0, "ndcg_at_5")]).to_mlflow()
    assert len(mlflow.search_runs(search_all_experiments=True, output_format="list")) == before


@each("prefix", ["/", "../", "a//b", "a@b/", "x" * 31, "a\n"])
def test_a_prefix_that_mlflow_would_not_take_is_refused(mlflow, prefix):
    expected = "prefix must be at most 30 letters, digits, '_', '-', '.', ' ' and '/', such as 'before/'; got "
    assert str(error_of(ConfigError, told().to_mlflow, prefix=prefix)) == f"{expected}{prefix!r}"


def test_without_mlflow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match="pip install mlflow"):
        told().to_mlflow()


def test_nothing_is_left_in_the_working_folder(mlflow, store):
    told().to_mlflow(experiment="RAG по страхованию", tracking_uri=store)
    kept = {path.name for path in Path.cwd().iterdir()}
    assert kept <= {"mlflow.db", "mlruns", "mlflow.db-wal", "mlflow.db-shm"}
