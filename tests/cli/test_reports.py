"""`rageval report`, `compare`, `trend` and `runs`: output, exit codes and pages."""

import json
import webbrowser
from datetime import UTC, datetime, timedelta

import pytest
from helpers.each import each
from helpers.reports import failed, report, report_of, row, scored
from helpers.samples import SAMPLE, TRUE_SAMPLE
from helpers.screens import cells_of
from langchain_openai import ChatOpenAI

from langchain_rageval import Report, RetryPolicy, evaluate, faithfulness
from langchain_rageval.report.files import Decision
from langchain_rageval.sinks import SqliteSink


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    monkeypatch.setattr(webbrowser, "open", (found := []).append)
    return found


@pytest.fixture
def saved(tmp_path):
    report([1.0, 0.0, 0.5], notes=["Judged offline."]).to_jsonl(tmp_path / "report.jsonl")
    return tmp_path / "report.jsonl"


def test_no_worst_samples_are_shown_for_a_metric_with_perfect_scores(rageval, tmp_path):
    rows = []
    for one in report([1.0, 1.0]).rows:
        noise = one.scores["claim_noise"].model_copy(update={"failure": None, "unscored": None, "value": 0.0})
        rows.append(one.model_copy(update={"scores": {**one.scores, "claim_noise": noise}}))
    Report(rows).to_jsonl(tmp_path / "report.jsonl")
    _, out, _ = rageval("report", tmp_path / "report.jsonl")
    assert "claim_noise" in out
    assert "Worst by" not in out


def test_it_writes_a_page_with_a_comparison(rageval, saved, tmp_path, opened):
    report([0.5, 0.5, 0.5]).to_jsonl(tmp_path / "before.jsonl")
    page = tmp_path / "page.html"
    code, out, _ = rageval("report", saved, "--html", page, "--baseline", tmp_path / "before.jsonl", "--language", "ru")
    assert code == 0
    assert "Сравнение с прежним прогоном" in page.read_text(encoding="utf-8")
    assert str(page) in out.replace("\n", "")
    assert opened == []


def test_open_puts_the_page_beside_the_report_and_opens_it(rageval, saved, tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    Report(list(rows([1.0] * 20))).to_jsonl("live.jsonl")
    pages = {}
    for page, words in (("report", ["report", saved]), ("live", ["trend", "live.jsonl"]), ("rageval-demo", ["demo"])):
        code, pages[page], _ = rageval(*words, "--open")
        assert (code, opened[-1]) == (0, (tmp_path / f"{page}.html").as_uri())
        assert (tmp_path / f"{page}.html").exists()
    assert "rageval-demo.html" in pages["rageval-demo"]
    assert len(opened) == 3


def test_evaluate_writes_the_page_too(rageval, written, tmp_path):
    sample = {"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}
    code, out, _ = rageval("evaluate", written(sample), "--html", tmp_path / "x.html")
    assert (code, "x.html" in out.replace("\n", "")) == (0, True)
    assert "faithfulness" in (tmp_path / "x.html").read_text(encoding="utf-8")


# compare


@pytest.fixture
def files(tmp_path):
    """Write a baseline and a candidate."""

    def write(baseline, candidate):
        paths = tmp_path / "baseline.jsonl", tmp_path / "candidate.jsonl"
        for path, one in zip(paths, (baseline, candidate), strict=True):
            one.to_jsonl(path)
        return paths

    return write


GOOD, BAD = report_of(*[scored(1.0)] * 10), report_of(*[scored(0.0)] * 10)
LITTLE_WORSE, FAIR = report_of(*[scored(0.49)] * 400), report_of(*[scored(0.5)] * 400)
FEW_GAINS = report_of(*[scored(0.9)] * 50), report_of(*[scored(0.95)] * 50)


VERDICTS = [
    (BAD, GOOD, ["--fail-if-worse"], 0, "better"),
    (GOOD, BAD, [], 0, "worse"),
    (GOOD, BAD, ["--fail-if-worse"], 1, "worse"),
    (FAIR, LITTLE_WORSE, ["--fail-if-worse"], 1, "worse"),
    (FAIR, LITTLE_WORSE, ["--fail-if-worse", "--margin", "0.05"], 0, "no worse"),
    (FAIR, LITTLE_WORSE, ["--fail-if-worse", "--margin", "0.05", "--require", "no-worse"], 0, "no worse"),
    (GOOD, GOOD, ["--fail-if-worse"], 0, "inconclusive"),
    (FEW_GAINS[0], FEW_GAINS[1], [], 0, "better"),
    (report_of(scored(1.0)), report_of(scored(0.0)), [], 0, "too few pairs"),
]


@each(("baseline", "candidate", "options", "code", "verdict"), VERDICTS)
def test_the_verdict_is_shown_and_a_worse_metric_fails_on_request(
    rageval, files, baseline, candidate, options, code, verdict
):
    ended, told, complaints = rageval("compare", *files(baseline, candidate), *options)
    assert ended == code
    ((_, shown, *_),) = cells_of(told)
    assert shown == verdict
    assert complaints == ("" if code == 0 else f"rageval: {candidate.compare(baseline)['faithfulness']} [worse]\n")


def test_an_inconclusive_metric_says_how_large_a_loss_is_possible_and_what_would_decide(rageval, files):
    said = {}
    for margin in ("0", "0.02"):
        code, told, _ = rageval("compare", *files(GOOD, GOOD), "--margin", margin)
        said[margin] = " ".join(told.split())
        loss = f"a loss up to {GOOD.compare(GOOD)['faithfulness'].largest_loss:.3f} is possible"
        assert (code, f"inconclusive, {loss}, rare losses that no pair shows included." in said[margin]) == (0, True)
        least = GOOD.minimum_detectable_difference("faithfulness", baseline=GOOD)
        assert f"10 pairs detect a difference of {least:.2f} with 80% power, four times as many" in said[margin]
    assert "With --margin, the loss that you accept, the verdict is no worse as soon as" in said["0"]
    assert "at most 0.02 is lost takes at least 189 samples, also without any loss; there are 10." in said["0.02"]
    assert "is possible" not in rageval("compare", *files(GOOD, BAD))[1]


def test_the_table_holds_the_numbers(rageval, files):
    baseline, candidate = report_of(scored(0.25), scored(0.5), failed()), report_of(scored(1.0), scored(0.5))
    _, told, _ = rageval("compare", *files(baseline, candidate))
    metric = candidate.compare(baseline)["faithfulness"]
    means = ["0.375", "0.750", "+0.375"]
    assert cells_of(told) == [["faithfulness", "too few pairs", *means, metric.interval, metric.p, "2", "1", "0"]]
    assert "0 samples are only in the candidate, 1 only in the baseline, such as q-2." in told


def test_reports_of_evaluate_are_compared_and_a_note_names_other_metrics(rageval, written, tmp_path):
    lines = [{**sample, "id": f"{kind}-{n}"} for n in range(4) for kind, sample in (("s", SAMPLE), ("t", TRUE_SAMPLE))]
    samples = written(*lines)
    for out, metrics in (("old", "faithfulness"), ("new", "faithfulness,context_relevance")):
        code, *_ = rageval("evaluate", samples, "--quiet", "--metrics", metrics, "--out", tmp_path / f"{out}.jsonl")
        assert code == 0
    code, told, complaints = rageval("compare", tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert (code, complaints) == (0, "")
    assert [part for part in ("inconclusive", "Only the candidate has context_relevance.") if part not in told] == []


def test_clusters_are_read_from_the_samples(rageval, files):
    def report(value):
        return Report([row(n, scored(value), metadata={"document": n // 5}) for n in range(20)])

    paths = files(report(0.0), report(1.0))
    assert "better" in rageval("compare", *paths)[1]
    assert "too few pairs" in rageval("compare", *paths, "--cluster", "metadata.document")[1]
    code, told, complaints = rageval("compare", *paths, "--cluster", "metadata.chapter")
    assert (code, told) == (2, "")
    assert "no sample has a value for 'metadata.chapter'; the metadata are metadata.document" in complaints


def test_different_instruments_are_refused_unless_allowed(rageval, files):
    paths = files(report_of(*[scored(0.0, instrument="x")] * 8), report_of(*[scored(1.0, instrument="y")] * 8))
    code, told, complaints = rageval("compare", *paths)
    assert (code, told, "different instruments" in complaints) == (2, "", True)
    code, told, complaints = rageval("compare", *paths, "--allow-different-instruments")
    assert (code, complaints) == (0, "")
    assert [part for part in ("better", "Different instruments") if part not in told] == []


def test_runs_over_different_samples_are_compared_by_their_means(rageval, tmp_path):
    for name, values in {"dev": [1.0] * 20, "prod": [0.0] * 20}.items():
        rows = [row(n, scored(value), id=f"{name}{n}", question=f"{name} {n}?") for n, value in enumerate(values)]
        Report(rows).to_jsonl(tmp_path / f"{name}.jsonl")
    files = (tmp_path / "dev.jsonl", tmp_path / "prod.jsonl")
    code, out, err = rageval("compare", *files, "--unpaired", "--fail-if-worse")
    assert [part for part in ("20 / 20", "samples: scored samples of candidate / baseline") if part not in out] == []
    assert code == 1
    assert err == "rageval: faithfulness worse: -1.000 [-1.000, -0.772], p < 0.001 (20 and 20 samples) [worse]\n"


# runs, and compare by their names


def stored(folder, name, value, finished):
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    Report(report_of(*[scored(value)] * 10).rows, finished=finished).to_jsonl(path)


def test_reports_are_listed_the_latest_first_other_files_are_ignored_and_compare_takes_their_names(rageval, tmp_path):
    stored(tmp_path, "monday", 0.5, "2026-11-02T10:00:00+00:00")
    stored(tmp_path, "nightly/tuesday", 1.0, "2026-11-03T10:00:00+00:00")
    (tmp_path / "answers.jsonl").write_text('{"question": "?"}', encoding="utf-8")
    code, out, err = rageval("runs", tmp_path, "--json")
    assert (code, err) == (0, "")
    same = {"samples": 10, "complete": True, "judges": [], "gate": ""}
    expected = [
        {"name": "nightly/tuesday", "finished": "2026-11-03T10:00:00+00:00", "means": {"faithfulness": 1.0}, **same},
        {"name": "monday", "finished": "2026-11-02T10:00:00+00:00", "means": {"faithfulness": 0.5}, **same},
    ]
    assert json.loads(out) == {"runs": expected}
    code, out, _ = rageval("runs", tmp_path)
    assert [line.split("│")[1].strip() for line in out.splitlines() if "2026" in line] == ["nightly/tuesday", "monday"]
    code, out, _ = rageval("compare", "--runs", tmp_path, "monday", "nightly/tuesday", "--json")
    assert (code, json.loads(out)["metrics"]["faithfulness"]["verdict"]) == (0, "better")


def test_runs_are_checked_and_the_latest_decides_the_exit_code(rageval, tmp_path):
    stored(tmp_path, "monday", 1.0, "2026-11-02T10:00:00+00:00")
    stored(tmp_path, "tuesday", 0.5, "2026-11-03T10:00:00+00:00")
    code, out, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8", "--json")
    assert {one["name"]: one["gate"] for one in json.loads(out)["runs"]} == {"monday": "passed", "tuesday": "failed"}
    assert (code, err) == (1, "rageval: the latest run, tuesday, does not pass faithfulness=0.8: failed\n")
    stored(tmp_path, "wednesday", 0.9, "2026-11-04T10:00:00+00:00")
    code, out, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    assert (code, err) == (0, "")
    assert "│ passed │" in next(line for line in out.splitlines() if "wednesday" in line)


def test_the_gate_of_a_run_that_stopped_early_is_its_decision_and_lost_samples_may_leave_it_undecided(
    rageval, tmp_path
):
    decided = {"faithfulness": Decision("passed", 0.85, 1.0, 60, 0.05, "at least 0.8")}
    Report(report_of(*[scored(0.9)] * 10).rows, decisions=decided).to_jsonl(tmp_path / "early.jsonl")
    assert json.loads(rageval("runs", tmp_path, "--json")[1])["runs"][0]["gate"] == "passed"
    (tmp_path / "early.jsonl").unlink()
    report_of(*[scored(1.0)] * 14, *[failed()] * 6).to_jsonl(tmp_path / "outage.jsonl")
    code, _, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    assert (code, err) == (1, "rageval: the latest run, outage, does not pass faithfulness=0.8: undecided\n")


def test_a_damaged_report_is_named_and_does_not_hide_the_others(rageval, tmp_path):
    stored(tmp_path, "понедельник", 1.0, "2026-11-02T10:00:00+00:00")
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes((tmp_path / "понедельник.jsonl").read_bytes()[:-40])
    code, out, err = rageval("runs", tmp_path, "--json")
    assert (code, [one["name"] for one in json.loads(out)["runs"]]) == (0, ["понедельник"])
    assert err.startswith(f"rageval: left out: {cut}, line 11: not a row of a report: ")
    code, _, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    problem = "which run is the latest is unknown, because a report is damaged: repair or delete its file"
    assert (code, err.splitlines()[-1]) == (2, f"rageval: {problem}")
    (tmp_path / "понедельник.jsonl").unlink()
    code, _, err = rageval("runs", tmp_path)
    assert (code, err.startswith(f"rageval: {cut}, line 11: ")) == (2, True)


# trend

START = datetime(2026, 11, 2, tzinfo=UTC)


def rows(values, days=1):
    for number, value in enumerate(values):
        one = row(number, scored(value), id=f"r{number}", question=f"Q{number}?", metadata={"run_id": f"r{number}"})
        yield one.model_copy(update={"time": START + timedelta(days=number * days / len(values))})


def test_the_file_of_a_sink_is_shown_by_day_while_it_is_open(rageval, tmp_path):
    sink = SqliteSink(tmp_path / "live.db")
    for one in rows([1.0] * 40, days=2):
        sink(one)
    code, out, err = rageval("trend", tmp_path / "live.db")
    assert (code, err) == (0, "")
    days = [[" 2026-11-02 ", "      20 "], [" 2026-11-03 ", "      20 "]]
    assert [line.split("│")[1:3] for line in out.splitlines() if "2026" in line] == days
    sink.close()


def test_an_alarm_ends_with_1_and_is_in_the_object_and_on_the_page(rageval, tmp_path):
    Report(list(rows([1.0] * 60))).to_jsonl(tmp_path / "dev.jsonl")
    Report(list(rows([0.0] * 60))).to_jsonl(tmp_path / "live.jsonl")
    page = tmp_path / "trend.html"
    words = ["trend", tmp_path / "live.jsonl", "--baseline", tmp_path / "dev.jsonl", "--html", page]
    code, out, _ = rageval(*words)
    assert (code, out.endswith(f"\nTrend written to {page}\n")) == (1, True)
    assert '<h1 id="title">Drift: faithfulness</h1>' in page.read_text(encoding="utf-8")
    code, out, err = rageval(*words, "--language", "ru", "--json")
    assert "Дрейф: faithfulness" in page.read_text(encoding="utf-8")
    found = json.loads(out)
    assert (code, out.count("\n")) == (1, 1)
    assert list(found) == ["periods", "baseline", "alarms", "changes", "judge_shift", "notes"]
    assert found["periods"]["2026-11-02"]["faithfulness"]["mean"] == 0.0
    assert found["baseline"]["faithfulness"]["scored"] == 60
    assert found["alarms"]["faithfulness"].keys() == {"raised", "since", "mean", "baseline", "samples", "judge"}
    drift = "rageval: faithfulness has drifted: 0.000 since 2026-11-02 00:00 UTC, 1.000 in the baseline; raised on "
    assert err.startswith(drift)


def test_changes_of_a_mean_are_shown_and_in_the_object(rageval, tmp_path):
    Report(list(rows([1.0] * 60 + [0.0] * 60, days=4))).to_jsonl(tmp_path / "live.jsonl")
    code, out, _ = rageval("trend", tmp_path / "live.jsonl")
    assert code == 0
    assert "faithfulness changed from 1.000 to 0.000 on 2026-11-04 00:00 UTC (estimate)" in out
    _, out, _ = rageval("trend", tmp_path / "live.jsonl", "--json")
    change = {"since": "2026-11-04T00:00:00+00:00", "before": 1.0, "after": 0.0}
    assert json.loads(out)["changes"] == {"faithfulness": [change]}


def test_a_baseline_with_too_few_scores_is_refused_and_the_page_says_so(rageval, tmp_path):
    Report(list(rows([1.0] * 60))).to_jsonl(tmp_path / "live.jsonl")
    Report(list(rows([1.0] * 3))).to_jsonl(tmp_path / "dev.jsonl")
    files = (tmp_path / "live.jsonl", "--baseline", tmp_path / "dev.jsonl")
    page = tmp_path / "trend.html"
    code, out, err = rageval("trend", *files, "--html", page)
    problem = "the baseline has too few scores to watch faithfulness: at least 6 scored samples are needed"
    assert (code, err.startswith(f"rageval: {problem}")) == (2, True)
    assert "2026-11-02" in out
    assert problem in page.read_text(encoding="utf-8")


def test_the_name_of_a_judge_is_not_cut(rageval, tmp_path):
    model = ChatOpenAI(model="Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", api_key="unused", base_url="http://127.0.0.1:9/v1")
    report = evaluate([SAMPLE], faithfulness(model), retry=RetryPolicy(attempts=1), progress=False)
    report.to_jsonl(tmp_path / "a-candidate-of-the-night.jsonl")
    out = rageval("runs", tmp_path)[1]
    assert f" {model.model_name} " in out
    assert f" {report.finished[:16].replace('T', ' ')} " in out
