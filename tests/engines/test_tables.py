"""The page on Spark, Dask, DuckDB and pandas: its blocks run, each where its engine is installed."""

import sys
from importlib.util import find_spec

import pandas as pd
import pytest
from helpers.manual import ROOT, blocks
from helpers.offline import rag_samples

from langchain_rageval import OfflineJudge, evaluate, faithfulness

FIRST, *REST = blocks((ROOT / "docs/how-to/arrow.md").read_text(encoding="utf-8"))
ENGINES = dict(zip(("pyarrow", "duckdb", "dask", "pyspark"), REST, strict=True))
pytestmark = [pytest.mark.gate, pytest.mark.filterwarnings("ignore")]  # of engines about themselves


@pytest.mark.parametrize("engine", ENGINES)
def test_the_scores_are_those_of_evaluate(engine, tmp_path, monkeypatch):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    samples = [sample.model_dump(include={"question", "answer", "contexts"}) for sample in rag_samples(12)]
    report = evaluate(samples, faithfulness(OfflineJudge()), progress=False)
    expected = {row.sample.question: row.scores["faithfulness"].value for row in report.rows}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    answers = pd.DataFrame(samples)
    answers.to_parquet("answers.parquet")
    names = {"answers": answers}
    for code in (FIRST, ENGINES[engine]):
        exec(compile(code, f"arrow.md, {engine}", "exec"), names)
    frame = {"pyarrow": lambda: names["frame"], "duckdb": lambda: pd.read_parquet("scores.parquet")}
    scored = frame.get(engine, lambda: names["scores"])()
    found = dict(zip(scored["question"], scored["faithfulness"], strict=True))
    assert {name: None if pd.isna(value) else value for name, value in found.items()} == expected
    if engine == "pyspark":
        names["spark"].stop()
