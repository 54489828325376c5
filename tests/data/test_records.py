"""Records and files of many programs and people: read right at every door, or refused with a remedy that works."""

import ast
import io
import json
import re

import pandas as pd
import pytest
from helpers.each import each, error_of
from helpers.stored import FIXTURES, fixture_data

from langchain_rageval import evaluate, load_samples, string_presence
from langchain_rageval.cli.inputs import parse_pairs
from langchain_rageval.data.loading import parse_record
from langchain_rageval.data.schema import default_id
from langchain_rageval.errors import RagevalError, SampleError

CASES = fixture_data("records.yaml")
RECORDS = [case for case in CASES if "record" in case]
FILES = [case for case in CASES if "record" not in case]
DOORS = ("dict", "jsonl", "json", "csv", "xlsx", "parquet")


def shown(sample):
    """Return the fields of a sample that have a value, and its id if it is not that of its question."""
    fields = sample.model_dump(exclude_defaults=True)
    default = default_id(sample.question, sample.history)
    return {name: value for name, value in fields.items() if name != "id" or not value.startswith(default)}


def outcome(read):
    """Return the samples, or the message of a refusal without the name of the file and the row."""
    try:
        return [shown(sample) for sample in read()]
    except RagevalError as error:
        return re.sub(r"^a\.\w+, (line|item|row) \d+: ", "", str(error))


def written(record, door, folder):
    """Write a record into a file, in which the cells of tables hold lists as JSON."""
    path = folder / f"a.{door}"
    cells = {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in record.items()}
    match door:
        case "jsonl" | "json":
            path.write_text(json.dumps([record] if door == "json" else record), encoding="utf-8")
        case "csv":
            pd.DataFrame([cells]).to_csv(path, index=False)
        case "xlsx":
            pd.DataFrame([cells]).to_excel(path, index=False)
        case "parquet":
            pd.DataFrame([cells]).to_parquet(path)
    return path


def through(door, record, folder, fields=None):
    if door == "dict":
        return outcome(lambda: [parse_record(record, fields)])
    path = written(record, door, folder)
    return outcome(lambda: load_samples(path, fields))


def test_the_table_is_large():
    assert (len(RECORDS) >= 115, len(FILES) >= 75, len({case["name"] for case in CASES})) == (True, True, len(CASES))


@each("door", DOORS)
def test_every_record_is_read_as_stated_or_refused_with_the_stated_message(door, tmp_path):
    cases = [case for case in RECORDS if door in case.get("doors", DOORS)]
    found = {case["name"]: through(door, case["record"], tmp_path) for case in cases}
    expected = {case["name"]: case.get("refused") or [case["sample"]] for case in cases}
    assert {name: found[name] for name in found if found[name] != expected[name]} == {}


def test_the_remedies_of_two_readings_give_two_different_samples(tmp_path):
    for case in RECORDS:
        remedies = re.findall(r"fields=(\{.*?\})", case["refused"]) if "choices" in case else []
        typed = [ast.literal_eval(remedy) for remedy in remedies]
        read = [sample for fields in typed for sample in through("jsonl", case["record"], tmp_path, fields)]
        assert read == case.get("choices", []), case["name"]
        assert not read or read[0] != read[1], case["name"]
        for shell in re.findall(r'--fields "?([^"):;]+)', case["refused"])[: len(remedies)] if remedies else ():
            assert parse_pairs(shell.split(","), "--fields") in typed, case["name"]


def test_other_remedies_give_a_sample(tmp_path):
    for case in RECORDS:
        if remedy := case.get("remedy"):
            record = remedy.get("record", case["record"])
            assert through("jsonl", record, tmp_path, remedy.get("fields")) == [remedy["sample"]], case["name"]


@each("case", FILES, ids=lambda case: case["name"])
def test_every_file_is_read_as_stated_or_refused_with_a_remedy_that_works(case, tmp_path):
    stored = case.get("stored", "")
    if stored.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    if stored:
        assert outcome(lambda: load_samples(FIXTURES / "tables" / stored)) == case["samples"]
        return
    for step in (case, {**case, **case.get("remedy", {})}):
        path = tmp_path / step["file"]
        path.write_bytes(step["text"].encode(step.get("encoding", "utf-8")))
        if "samples" in step:
            assert outcome(lambda path=path, step=step: load_samples(path, step.get("fields"))) == step["samples"]
        else:
            error = error_of(RagevalError, lambda path=path, step=step: [*load_samples(path, step.get("fields"))])
            assert str(error).replace(f"{tmp_path}/", "") == step["refused"]


def test_every_stored_file_is_in_the_table():
    stored = {path.name for path in (FIXTURES / "tables").iterdir()} - {"make.py", "README.md"}
    assert stored == {case["stored"] for case in FILES if "stored" in case}


def test_evaluate_refuses_what_a_file_refuses(tmp_path):
    for case in RECORDS:
        if "choices" in case:
            for samples in ([case["record"]], pd.DataFrame([case["record"]])):
                error = error_of(SampleError, evaluate, samples, string_presence(), progress=False)
                assert str(error).partition(": ")[2] == case["refused"], case["name"]


def test_errors_of_samples_name_the_row_that_excel_shows(tmp_path):
    rows = 'question,answer,reference\n"p\n?",a,a\n\nq?,,a\nr?,a,a\n'
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    table = pd.read_csv(io.StringIO(rows), skip_blank_lines=False)
    table.to_excel(tmp_path / "a.xlsx", index=False)
    places = {"a.csv": "a.csv, row 4 (line 5)", "a.xlsx": "a.xlsx, row 4"}
    for name, place in places.items():
        report = evaluate(tmp_path / name, string_presence(), progress=False)
        messages = [failure.message for row in report.rows if (failure := row.scores["string_presence"].failure)]
        assert [message.partition(", question")[0] for message in messages] == [place]
