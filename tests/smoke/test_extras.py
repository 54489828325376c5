"""The light extras: each is tested if its packages are installed, as in the run with the lowest dependencies."""

import json

import pytest

from langchain_rageval import OfflineJudge, bleu, chrf, evaluate, faithfulness, load_judge
from langchain_rageval.data.loading import load_samples
from langchain_rageval.sinks import OpenTelemetrySink

SAMPLE = {
    "question": "When was Munich founded?",
    "answer": "Munich was founded in 1158. A million elephants live there.",
    "contexts": ["Munich was founded in 1158 by Henry the Lion."],
    "references": ["Munich was founded in 1158."],
}


@pytest.fixture
def report():
    return evaluate([SAMPLE], faithfulness(OfflineJudge()), progress=False)


@pytest.mark.gate
def test_report_writes_an_html_page(report, rageval, tmp_path):
    pytest.importorskip("jinja2")
    report.to_jsonl(tmp_path / "report.jsonl")
    done = rageval("report", "report.jsonl", "--html", "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "faithfulness" in page


def test_plot_draws_a_figure(report, tmp_path):
    pytest.importorskip("matplotlib")
    report.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_pandas_holds_a_report_and_samples_in_parquet(report, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert list(report.to_pandas()["faithfulness"]) == [0.5]
    pandas.DataFrame([SAMPLE]).to_parquet(tmp_path / "samples.parquet")
    (sample,) = load_samples(tmp_path / "samples.parquet")
    assert (sample.question, list(sample.contexts)) == (SAMPLE["question"], SAMPLE["contexts"])


def test_text_computes_bleu_and_chrf():
    pytest.importorskip("sacrebleu")
    same = {**SAMPLE, "answer": SAMPLE["references"][0]}
    assert [build().invoke(same).value for build in (bleu, chrf)] == pytest.approx([1.0, 1.0])


def test_otel_records_scores(report):
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    OpenTelemetrySink(provider.get_meter("rag"))(report.rows[0])
    recorded = json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    provider.shutdown()
    (scores,) = (metric["data"]["data_points"] for metric in recorded if metric["name"] == "rageval.score")
    assert [(point["count"], point["sum"]) for point in scores] == [(1, 0.5)]


def test_gigachat_is_a_judge(monkeypatch):
    pytest.importorskip("langchain_gigachat")
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    judge = load_judge("gigachat:GigaChat-2-Max")
    assert faithfulness(judge).name == "faithfulness"
