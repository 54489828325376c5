"""Samples in files: lines, tables, records of other programs, and runs of TREC; errors name the place."""

import ast
import csv
import gc
import io
import json
import logging
import re
from pathlib import Path

import pandas as pd
import pytest
from helpers.each import each, error_of
from helpers.stored import FIXTURES, fixture_data
from helpers.texts import expected, unpacked

import langchain_rageval.data.loading as loading
from langchain_rageval import evaluate, label_grader, string_presence
from langchain_rageval.cli.inputs import parse_pairs
from langchain_rageval.data.loading import load_samples, parse_record
from langchain_rageval.data.schema import Sample, default_id
from langchain_rageval.errors import ConfigError, RagevalError, SampleError
from langchain_rageval.metrics.ranked import hit_rate_at, map_at, mrr_at, ndcg_at, precision_at, recall_at

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


@each("newline", ["\n", "\r\n"])
@each("mark", ["", "\ufeff"])
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


@each("name", ["a.jsonl", "a.json", "a.csv"])
def test_an_empty_file_of_lines_holds_no_samples(tmp_path, name):
    content = "[]" if name == "a.json" else ""
    assert list(load_samples(written(tmp_path / name, content))) == []


INVALID_FILES = [
    ("answers.jsonl", '{"question": "q"}\n{"q": 1}\n', r"answers.jsonl, line 2: the sample lacks a question"),
    ("answers.jsonl", '{"question": "q"}\n"text"\n', "answers.jsonl, line 2: expected a sample.*got str"),
    ("answers.jsonl", '{"question": "q"}\n' + "[" * 100_000, "answers.jsonl, line 2: "),
    ("answers.json", '[{"question": "q"}, {}]', "answers.json, item 2: the sample lacks"),
]


@each(("name", "content", "message"), INVALID_FILES)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    path = written(tmp_path / name, content)
    samples = load_samples(path)
    next(samples)
    with pytest.raises(SampleError, match=message):
        next(samples)


def test_errors_name_the_row_and_the_field_of_parquet(tmp_path):
    path = tmp_path / "answers.parquet"
    pd.DataFrame({"question": ["q", "r"], "answer": [None, "a"], "contexts": ["c", "d"]}).to_parquet(path)
    error = error_of(SampleError, lambda: [*load_samples(path)])
    assert ("answers.parquet, row 1: contexts" in str(error), error.field) == (True, "contexts")


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
    error = error_of(ConfigError, load_samples, written(tmp_path / "a.parquet", ""))
    assert str(error).endswith("reading Parquet needs pyarrow: pip install pyarrow")


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
    path = written(tmp_path / "a.jsonl", lines(*({"id": "1", "question": one} for one in ("A?", "B?", "A?"))))
    problem = "a.jsonl, line 2: two different samples have the id '1'"
    assert [sample.id for sample in load_samples(path, on_error="skip")] == ["1", "1-2", "1-3"]
    assert caplog.messages == [f"{problem}; renamed to '1-2'"]


def test_samples_without_ids_that_share_a_question_are_numbered(tmp_path):
    path = written(tmp_path / "a.jsonl", lines(*({"question": "A?", "answer": one} for one in "xy")))
    name = Sample(question="A?").id
    assert [sample.id for sample in load_samples(path)] == [name, f"{name}-2"]


# Records of many programs and people: read right at every door, or refused with a remedy that works

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


def file_with(record, door, folder):
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
    path = file_with(record, door, folder)
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


# Runs of TREC

METRICS = {
    "ndcg_cut": lambda k, _: ndcg_at(k, label_grader(), gain="linear"),
    "map_cut": lambda k, least: map_at(k, label_grader(), threshold=least),
    "P": lambda k, least: precision_at(k, label_grader(), threshold=least),
    "recall": lambda k, least: recall_at(k, label_grader(), threshold=least),
    "success": lambda k, least: hit_rate_at(k, label_grader(), threshold=least),
    "recip_rank": lambda k, least: mrr_at(k, label_grader(), threshold=least),
}
METRICS |= {name: METRICS[f"{name}_cut"] for name in ("ndcg", "map")}


@pytest.fixture
def lined(tmp_path):
    return lambda name, *lines: written(tmp_path / name, "".join(f"{line}\n" for line in lines))


def ids(sample):
    return sample.context_ids


def test_metrics_of_a_run_are_what_trec_eval_prints(tmp_path):
    whole = (
        e | {"measure": e["measure"] if e["measure"][-1].isdigit() else f"{e['measure']}_1000"} for e in expected()
    )
    cases = [(e, *e["measure"].rpartition("_")[::2]) for e in whole]
    assert len(cases) > 100
    for run, qrels in {(e["run"], e["qrels"]) for e, _, _ in cases}:
        name = "run.txt" if run == "full" else f"run_{run}.txt"
        (sample,) = load_samples(unpacked(name, tmp_path), qrels=unpacked(f"qrels_{qrels}.txt", tmp_path))
        for e, measure, k in cases:
            if (e["run"], e["qrels"]) == (run, qrels):
                value = METRICS[measure](int(k), e["rel_threshold"]).invoke(sample).value
                assert f"{value:.4f}" == f"{e['value']:.4f}", e


def test_documents_are_ordered_by_descending_score_then_id_and_the_rank_is_ignored(lined):
    lines = ("q1 Q0 b 1 0.5 me", "q2 Q0 x 1 -3 me", "q1 Q0 a 2 0.5 me", "q1 Q0 c 3 2 me", "", "q2 Q0 y 2 -2 me")
    ties = ("q3 Q0 a 1 0.10000000002 me", "q3 Q0 b 2 0.1 me", "q3 Q0 я 3 0.1 me")  # equal as 32-bit floats
    path = lined("a.run", *lines, "q1\tQ0\td\t4\t1e-3\tme", *ties)
    assert [(s.id, s.question, ids(s), s.relevance, s.contexts) for s in load_samples(path)] == [
        ("q1", "q1", ["c", "b", "a", "d"], None, None),
        ("q2", "q2", ["y", "x"], None, None),
        ("q3", "q3", ["я", "b", "a"], None, None),
    ]


def test_a_topic_without_documents_counts_and_one_without_judgments_is_omitted(lined, caplog):
    run = lined("run.txt", "q1 Q0 a 1 1 me", "q2 Q0 a 1 1 me")
    qrels = lined("qrels.txt", "q1 0 a 2", "q1 0 b -1", "q3 0 c 1")
    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        samples = list(load_samples(run, qrels=qrels))
    assert [(s.id, ids(s), s.relevance) for s in samples] == [("q1", ["a"], {"a": 2, "b": -1}), ("q3", [], {"c": 1})]
    assert "run.txt: topics without judgments are omitted: q2" in caplog.text
    scores = [ndcg_at(5, label_grader()).invoke(sample) for sample in samples]
    assert [score.value for score in scores] == [1.0, 0.0]
    assert scores[1].reason == "Nothing was retrieved."


def test_topics_give_the_questions(lined):
    run = lined("a.trec", "1 Q0 a 1 1 me", "2 Q0 a 1 1 me")
    topics = lined("topics.tsv", "1\tКак застраховать баню?")
    for given in ({"1": "Как застраховать баню?"}, topics, str(topics)):
        found = [(s.question, s.metadata) for s in load_samples(run, topics=given)]
        assert found == [("Как застраховать баню?", {"topic": "1"}), ("2", {"topic": "2"})]


INVALID_LINES = [
    ("q Q0 a 1 1", "a line of a TREC run has 6 columns: topic, Q0, document, rank, score and run; got 5"),
    ("q Q0 a 1 high me", "the score 'high' is not a number"),
    ("q Q0 a 1 nan me", "the score 'nan' is not finite"),
    ("q Q0 b 1 2 me", "document b appears twice for topic q"),
]


@each(("line", "problem"), INVALID_LINES)
def test_an_invalid_line_is_reported_with_its_number_or_skipped(lined, caplog, line, problem):
    run = lined("a.run", "q Q0 b 1 1 me", line)
    error = error_of(SampleError, lambda: [*load_samples(run)])
    assert str(error) == f"a.run, line 2: {problem}"
    assert [ids(sample) for sample in load_samples(run, on_error="skip")] == [["b"]]
    assert caplog.messages[-1] == f"skipped {error}"


INVALID_JUDGMENTS = [
    ("q a 1", "a line of TREC qrels has 4 columns: topic, 0, document and grade; got 3"),
    ("q 0 a good", "the grade 'good' is not a number"),
    ("q 0 b 2", "document b is judged twice for topic q"),
]


@each(("line", "problem"), INVALID_JUDGMENTS)
def test_invalid_judgments_are_rejected(lined, line, problem):
    run, qrels = lined("a.run", "q Q0 b 1 1 me"), lined("qrels.txt", "q 0 b 1", line)
    error = error_of(ConfigError, lambda: [*load_samples(run, qrels=qrels)])
    assert str(error) == f"qrels.txt, line 2: {problem}: correct the judgments"


def test_options_that_do_not_fit_the_file_are_rejected_at_the_call(lined, tmp_path):
    run, samples = lined("a.run", "q Q0 b 1 1 me"), lined("a.jsonl", '{"question": "q"}')
    topics = lined("topics.tsv", "no tab")
    only = "qrels and topics apply only to TREC runs; put relevance and question into the samples"
    for path, options, message in (
        (samples, {"qrels": run}, only),
        (samples, {"topics": {"q": "?"}}, only),
        (run, {"fields": {"question": "q"}}, "fields do not apply to TREC runs, whose columns are fixed; omit them"),
        (run, {"qrels": tmp_path / "nowhere"}, "nowhere does not exist: pass the path of an existing file"),
        (run, {"topics": tmp_path}, "is a directory: pass the path of an existing file"),
    ):
        assert str(error_of(ConfigError, load_samples, path, **options)).endswith(message)
    error = error_of(ConfigError, lambda: [*load_samples(run, topics=topics)])
    assert str(error) == "topics.tsv, line 1: expected id, tab and question, got 'no tab'"
