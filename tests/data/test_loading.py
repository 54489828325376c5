import csv
import gc
import json
import logging
from pathlib import Path

import pandas as pd
import pytest
from helpers.each import each, error_of

import langchain_rageval.data.loading as loading
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError

ROWS = [
    {"id": "1", "question": "Где?", "answer": "Там.", "contexts": ["a", "b"], "ground_truth": "r", "topic": "geo"},
    {"id": "2", "question": "q", "answer": None, "contexts": [], "ground_truth": None, "topic": "x"},
]
SAMPLES = [Sample.parse(row) for row in ROWS]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_a_suffix_may_be_in_capitals_and_the_path_a_text(tmp_path):
    for name in ("a.ndjson", "a.JSONL"):
        assert list(load_samples(str(written(tmp_path / name, lines(*ROWS))))) == SAMPLES


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_mark_blank_lines_and_any_line_ends_are_fine(tmp_path, newline, mark):
    text = mark + newline + newline.join(lines(*ROWS).splitlines()[:1]) + newline * 3 + lines(ROWS[1]).strip()
    assert list(load_samples(written(tmp_path / "a.jsonl", text))) == SAMPLES
    table = mark + newline.join(["question,answer", "", "q,a", "", "r,b"])
    assert [sample.question for sample in load_samples(written(tmp_path / "a.csv", table))] == ["q", "r"]


def test_reading_is_lazy_and_closes_a_file_that_is_not_read_to_its_end(tmp_path):
    samples = load_samples(written(tmp_path / "a.jsonl", lines(ROWS[0]) + "not JSON\n"))
    assert next(samples) == SAMPLES[0]
    del samples
    gc.collect()  # an open file would be a ResourceWarning, and a warning is an error


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_an_empty_file_of_lines_holds_no_samples(tmp_path, name):
    content = "[]" if name == "a.json" else ""
    assert list(load_samples(written(tmp_path / name, content))) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("answers.jsonl", '{"question": "q"}\n{"q": 1}\n', r"answers.jsonl, line 2: the sample lacks a question"),
        ("answers.jsonl", '{"question": "q"}\n"text"\n', "answers.jsonl, line 2: expected a sample.*got str"),
        ("answers.jsonl", '{"question": "q"}\n' + "[" * 100_000, "answers.jsonl, line 2: "),
        ("answers.json", '[{"question": "q"}, {}]', "answers.json, item 2: the sample lacks"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    path = written(tmp_path / name, content)
    samples = load_samples(path)
    next(samples)
    with pytest.raises(SampleError, match=message):
        next(samples)


def test_errors_name_the_row_and_the_field_of_parquet(tmp_path):
    path = tmp_path / "answers.parquet"
    pd.DataFrame({"question": ["q", "r"], "answer": [None, "a"], "contexts": ["c", "d"]}).to_parquet(path)
    with pytest.raises(SampleError, match=r"answers\.parquet, row 1: contexts") as caught:
        next(load_samples(path))
    assert caught.value.field == "contexts"


def test_skipped_lines_are_logged_one_warning_each(tmp_path, caplog):
    path = written(tmp_path / "answers.jsonl", "{\n" + lines(ROWS[0], {"answer": "a"}, ROWS[1]))
    with caplog.at_level(logging.WARNING, logger="langchain_rageval"):
        assert list(load_samples(path, on_error="skip")) == SAMPLES
    assert {record.name for record in caplog.records} == {"langchain_rageval"}
    first, second = caplog.messages
    assert first.startswith("skipped answers.jsonl, line 1: not valid JSON")
    assert second.startswith("skipped answers.jsonl, line 3: the sample lacks a question")


def test_csv_cells_of_a_megabyte_are_read_and_the_limit_of_csv_stays(tmp_path):
    limit = csv.field_size_limit()
    answer = "a" * 1_000_000
    samples = load_samples(written(tmp_path / "a.csv", f"question,answer\nq,{answer}\nq,b\n"))
    assert next(samples).answer == answer
    assert csv.field_size_limit() == limit


def test_arguments_and_the_file_are_checked_at_the_call(tmp_path):
    path = written(tmp_path / "a.jsonl", "")
    for given, options, message in (
        (path, {"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'$"),
        (path, {"fields": {"q": "question"}}, "'q' is not a field: use one of id, "),
        (tmp_path / "b.jsonl", {}, r"b\.jsonl does not exist: pass the path of an existing file$"),
        (tmp_path, {}, "is a directory: pass the path of an existing file$"),
        (written(tmp_path / "a.txt", ""), {}, r"expected one of \.jsonl, .*, got '\.txt': convert the file$"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_samples(given, **options)


def test_parquet_without_pyarrow_is_rejected_at_the_call_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"reading Parquet needs pyarrow: pip install pyarrow$"):
        load_samples(written(tmp_path / "a.parquet", ""))


@each(
    ("name", "content", "message"),
    [
        ("a.jsonl", "где".encode() + b"\n" + "где".encode("cp1251"), "a.jsonl, line 2 is not valid UTF-8"),
        ("a.parquet", b"not parquet", "a.parquet: not Parquet"),
    ],
)
def test_a_file_that_is_not_what_its_suffix_says_is_refused_even_when_skipping(tmp_path, name, content, message):
    error = error_of(ConfigError, lambda: [*load_samples(written(tmp_path / name, content), on_error="skip")])
    assert str(error).startswith(message)


def test_an_id_of_two_questions_is_numbered_with_a_warning_when_skipping(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "1", "question": "A?"}\n{"id": "1", "question": "B?"}\n{"id": "1", "question": "A?"}\n')
    problem = "a.jsonl, line 2: two different samples have the id '1'"
    assert [sample.id for sample in load_samples(path, on_error="skip")] == ["1", "1-2", "1-3"]
    assert caplog.messages == [f"{problem}; renamed to '1-2'"]


def test_samples_without_ids_that_share_a_question_are_numbered(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "A?", "answer": "x"}\n{"question": "A?", "answer": "y"}\n')
    name = Sample(question="A?").id
    assert [sample.id for sample in load_samples(path)] == [name, f"{name}-2"]
