"""Tables, own field names and reports as the samples of `evaluate`."""

from contextlib import suppress
from importlib import import_module

import pandas as pd
import pytest
from helpers.each import error_of
from helpers.samples import SAMPLE

from langchain_rageval import (
    Finding,
    OfflineJudge,
    Row,
    Sample,
    Score,
    aevaluate,
    astream_evaluate,
    evaluate,
    faithfulness,
    string_presence,
)
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.inputs import MixedMeasures

FIELDS = {"question": "q", "answer": "run.text", "contexts": "run.docs"}
ROW = {"q": "Где?", "run": {"text": "Там.", "docs": ["Там."]}}


async def streamed(rows):
    for row in rows:
        yield row


def read(report):
    return [(row.sample.question, row.sample.answer, row.sample.contexts) for row in report.rows]


async def test_fields_are_read_in_every_form_of_samples(tmp_path):
    metric, options = faithfulness(OfflineJudge()), {"fields": FIELDS, "progress": False}
    reports = [evaluate(shape([ROW]), metric, **options) for shape in (list, iter, pd.DataFrame)]
    reports.append(await aevaluate(streamed([ROW]), metric, **options))
    path = tmp_path / "a.csv"
    path.write_bytes("в;о;к\nГде?;Там.;\"['Там.']\"\n".encode("utf-16"))
    reports.append(evaluate(path, metric, fields={"question": "в", "answer": "о", "contexts": "к"}, progress=False))
    assert [read(report) for report in reports] == [[("Где?", "Там.", ["Там."])]] * 5
    assert [report.rows[0].scores["faithfulness"].value for report in reports] == [1.0] * 5
    rows = [row async for row in astream_evaluate([ROW], metric, fields=FIELDS)]
    assert [row.sample.answer for row in rows] == ["Там."]


def test_the_samples_of_a_report_can_be_scored_again():
    report = evaluate([SAMPLE], faithfulness(OfflineJudge()), progress=False)
    again = evaluate(report, faithfulness(OfflineJudge(), name="second"), progress=False)
    assert [row.sample for row in again.rows] == [row.sample for row in report.rows]
    assert [[*row.scores] for row in again.rows] == [["second"]]


def frames():
    """Return tables of pandas, polars and pyarrow; those of libraries that are not installed are left out."""
    columns = {"Вопрос": ["Где?", "Как?"], "Ответ": ["Там.", None], "Контексты": [["Там."], None]}
    made = [pd.DataFrame(columns)]
    with suppress(ImportError):
        made.append(import_module("polars").DataFrame(columns))
    with suppress(ImportError):
        made.append(import_module("pyarrow").table(columns))
    return made


@pytest.mark.parametrize("table", frames(), ids=lambda table: type(table).__module__.partition(".")[0])
def test_a_table_of_any_library_is_read(table):
    report = evaluate(table, faithfulness(OfflineJudge()), progress=False)
    assert read(report) == [("Где?", "Там.", ["Там."]), ("Как?", None, None)]
    assert report.rows[0].scores["faithfulness"].value == 1


class Polars:
    """Table with the methods of one of polars."""

    columns = ("question", "answer")

    def to_dict(self, *, as_series=True):
        raise AssertionError("gives columns")

    def to_dicts(self):
        return [{"question": "Где?", "answer": "Там."}]


class Lazy:
    columns = ("question",)

    def collect(self):
        raise AssertionError("the user decides when the query runs")


class Split(list):
    column_names = ("question",)


def test_the_rows_of_polars_are_read_without_polars():
    fields = {"answer": "answer", "references": "answer"}
    (row,) = evaluate(Polars(), string_presence(), fields=fields, progress=False).rows
    assert row.sample.references == ["Там."]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (Lazy(), "samples must be in memory, got Lazy: pass samples.collect()"),
        (
            {"train": Split(), "test": Split()},
            "samples must be one data set, got ['train', 'test']: pass one, as in samples['train']",
        ),
    ],
)
def test_what_is_no_table_yet_is_refused_with_the_way_to_one(samples, message):
    assert str(error_of(ConfigError, evaluate, samples, string_presence(), progress=False)) == message


@pytest.mark.parametrize(("first", "count"), [({}, 2), (Sample(question="Кто?"), 3)])
def test_records_of_one_chunk_each_are_joined_unless_samples_are_among_them(first, count):
    chunks = [{"question": "Где?", "answer": "Там.", "contexts": [text]} for text in ("a", "b")]
    given = [first or {"question": "Кто?"}, *chunks]
    report = evaluate(given, faithfulness(OfflineJudge()), progress=False)
    contexts = [row.sample.contexts for row in report.rows]
    assert contexts == [None, *([["a", "b"]] if count == 2 else [["a"], ["b"]])]


def compared_with(*texts, kind="criterion", about="against", last=True):
    """Return rows of which each names the text that the metric `m` compared its chunks with, by one text for a row."""
    other = Finding(kind="context", number=1, text="c", verdict="supported")
    rows = []
    for place, text in enumerate(texts):
        choice = Finding(kind=kind, number=1, text=about, verdict=text)
        findings = [other, choice] if last else [choice, other]
        score = Score(metric="m", aspect="retrieval", value=1.0, findings=findings)
        rows.append(Row(index=place, sample=Sample(question="?"), scores={"m": score}))
    return rows


def test_a_metric_that_compared_chunks_with_several_texts_is_noted(caplog):
    def noted(rows):
        measures = MixedMeasures()
        for row in rows:
            measures.add(row)
        caplog.clear()
        measures.warn()
        assert caplog.messages == list(map(str, measures.notes()))
        return list(measures.notes())

    counts = [Note("against-reference", count=3), Note("against-answer", count=1)]
    mixed = ("reference", "answer", "reference", "reference")
    assert noted(compared_with(*mixed)) == [Note("mixed-measures", metric="m", counts=counts)]
    for rows in (
        compared_with("answer", "answer"),
        compared_with("answer", "unknown"),
        compared_with(*mixed, kind="statement"),
        compared_with(*mixed, about="other"),
        compared_with(*mixed, last=False),
    ):
        assert noted(rows) == []
