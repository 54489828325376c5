"""A metric of the user that fails on some samples: the others keep their scores, the gate decides."""

import pytest

METRICS = """
from langchain_rageval import metric

@metric(reads={"answer"}, aspect="style")
def short(sample):
    if sample.answer == "boom":
        raise ValueError("boom")
    return True
"""


@pytest.mark.parametrize(("failing", "code"), [(1, 0), (50, 1), (100, 2)])
def test_only_failures_of_every_sample_end_with_2(rageval, written, tmp_path, monkeypatch, failing, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_short_metric.py").write_text(METRICS, encoding="utf-8")
    answers = ["boom"] * failing + ["fine"] * (100 - failing)
    samples = written(*({"question": f"{number}?", "answer": answer} for number, answer in enumerate(answers)))
    words = ["--metrics", "own_short_metric:short", "--fail-under", "short=0.8", "--quiet"]
    ended, _, complaints = rageval("evaluate", samples, *words)
    assert ended == code
    assert ("every score failed" in complaints) == (failing == 100)
