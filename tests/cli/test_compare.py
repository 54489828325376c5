"""`rageval compare`: output and exit codes."""

import pytest
from helpers.each import each
from helpers.reports import failed, report_of, row, scored
from helpers.samples import SAMPLE, TRUE_SAMPLE
from helpers.screens import cells_of

from langchain_rageval import Report


@pytest.fixture
def files(tmp_path):
    """Write a baseline and a candidate."""

    def write(baseline, candidate):
        paths = tmp_path / "baseline.jsonl", tmp_path / "candidate.jsonl"
        for path, report in zip(paths, (baseline, candidate), strict=True):
            report.to_jsonl(path)
        return paths

    return write


GOOD, BAD = report_of(*[scored(1.0)] * 10), report_of(*[scored(0.0)] * 10)
LITTLE_WORSE, FAIR = report_of(*[scored(0.49)] * 400), report_of(*[scored(0.5)] * 400)
FEW_GAINS = report_of(*[scored(0.9)] * 50), report_of(*[scored(0.95)] * 50)


@each(
    ("baseline", "candidate", "options", "code", "verdict"),
    [
        (BAD, GOOD, ["--fail-if-worse"], 0, "better"),
        (GOOD, BAD, [], 0, "worse"),
        (GOOD, BAD, ["--fail-if-worse"], 1, "worse"),
        (FAIR, LITTLE_WORSE, ["--fail-if-worse"], 1, "worse"),
        (FAIR, LITTLE_WORSE, ["--fail-if-worse", "--margin", "0.05"], 0, "no worse"),
        (FAIR, LITTLE_WORSE, ["--fail-if-worse", "--margin", "0.05", "--require", "no-worse"], 0, "no worse"),
        (GOOD, GOOD, ["--fail-if-worse"], 0, "inconclusive"),
        (FEW_GAINS[0], FEW_GAINS[1], [], 0, "better"),
        (report_of(scored(1.0)), report_of(scored(0.0)), [], 0, "too few pairs"),
    ],
)
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
    assert "inconclusive" in told
    assert "Only the candidate has context_relevance." in told


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
    assert (code, told) == (2, "")
    assert "different instruments" in complaints
    code, told, complaints = rageval("compare", *paths, "--allow-different-instruments")
    assert (code, complaints) == (0, "")
    assert "better" in told
    assert "Different instruments" in told


def test_runs_over_different_samples_are_compared_by_their_means(rageval, tmp_path):
    for name, values in {"dev": [1.0] * 20, "prod": [0.0] * 20}.items():
        rows = [row(n, scored(value), id=f"{name}{n}", question=f"{name} {n}?") for n, value in enumerate(values)]
        Report(rows).to_jsonl(tmp_path / f"{name}.jsonl")
    files = (tmp_path / "dev.jsonl", tmp_path / "prod.jsonl")
    code, out, err = rageval("compare", *files, "--unpaired", "--fail-if-worse")
    assert code == 1
    assert "20 / 20" in out
    assert "samples: scored samples of candidate / baseline" in out
    assert err == ("rageval: faithfulness worse: -1.000 [-1.000, -0.772], p < 0.001 (20 and 20 samples) [worse]\n")
