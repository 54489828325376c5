"""The chunks that retrievers returned, beside those that the model read: a field of samples, files and reports."""

import json

import pandas as pd
import pytest
from langchain_core.documents import Document

from langchain_rageval import Report, Sample, SampleError, evaluate, exact_match, load_samples
from langchain_rageval.sinks import SqliteSink

FIELDS = {"question": "q", "answer": "a", "contexts": ["B"], "retrieved": ["A", "B"], "retrieved_ids": ["1", "2"]}


def test_documents_are_read_with_their_ids():
    documents = [Document("A", id="1"), {"page_content": "B", "id": 2}]
    assert Sample.parse({**FIELDS, "retrieved": documents, "retrieved_ids": None}) == Sample(**FIELDS)


def test_names_of_other_libraries_mean_what_the_model_read():
    sample = Sample.parse({"user_input": "q", "retrieved_contexts": ["A"], "retrieved_context_ids": ["1"]})
    assert (sample.contexts, sample.context_ids, sample.retrieved, sample.retrieved_ids) == (["A"], ["1"], None, None)


def test_one_text_is_refused():
    with pytest.raises(SampleError, match="retrieved: expected a list of str, got str 'A'"):
        Sample.parse({"question": "q", "retrieved": "A"})


def test_a_sample_without_them_is_written_as_before():
    written = Sample(question="q", contexts=["A"]).model_dump()
    assert not {"retrieved", "retrieved_ids"} & written.keys()


def test_files_of_samples_hold_them(tmp_path):
    (tmp_path / "a.jsonl").write_text(Sample(**FIELDS).model_dump_json() + "\n")
    pd.DataFrame([FIELDS]).map(lambda cell: json.dumps(cell) if isinstance(cell, list) else cell).to_csv(
        tmp_path / "a.csv", index=False
    )
    for name in ("a.jsonl", "a.csv"):
        assert list(load_samples(tmp_path / name)) == [Sample(**FIELDS)]


def test_reports_and_the_table_of_a_sink_hold_them(tmp_path):
    report = evaluate([{**FIELDS, "references": ["a"]}], exact_match(), progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    assert Report.load(tmp_path / "report.jsonl").rows == report.rows
    sink = SqliteSink(tmp_path / "live.db")
    sink(report.rows[0])
    assert Report.load(tmp_path / "live.db").rows[0].sample.retrieved == ["A", "B"]
