"""`score_batch`: a table of scores for a table of samples, whatever the judge does."""

import json

import pyarrow
import pytest
from helpers.each import each, error_of
from helpers.offline import RICH, rag_samples
from helpers.scripted import Refusal, answering, offline_reply

from langchain_rageval import ConfigError, OfflineJudge, context_recall, evaluate, faithfulness
from langchain_rageval.integrations.arrow import report_of_tables, score_batch
from langchain_rageval.testing import ScriptedJudge

FIELDS = ("question", "answer", "contexts", "references")
ROWS = [sample.model_dump(include={*FIELDS}) for sample in [*RICH, *rag_samples(6)]]
UNREADABLE = dict.fromkeys(FIELDS) | {"answer": "To a question that nobody asked."}


def two_metrics():
    return [faithfulness(OfflineJudge()), context_recall(OfflineJudge())]


def table(rows):
    return pyarrow.Table.from_pylist(rows)


def test_the_scores_are_those_of_evaluate_in_the_same_order_and_columns():
    scored = score_batch(table(ROWS), two_metrics)
    local = evaluate(ROWS, two_metrics(), progress=False)
    assert scored["faithfulness"].to_pylist() == [row.scores["faithfulness"].value for row in local.rows]
    assert scored["question"].to_pylist() == [row["question"] for row in ROWS]
    assert scored["asked"].to_pylist() == [row.asked for row in local.rows]
    assert [row.asked for row in report_of_tables([scored]).rows] == [row.asked for row in local.rows]
    assert any(row.asked for row in local.rows)
    earlier = report_of_tables([scored.drop_columns(["asked", "time", "run"])])  # of an earlier version
    assert (len(earlier.rows), earlier.finished) == (len(ROWS), "")
    halves = [score_batch(table(part), two_metrics) for part in (ROWS[:3], ROWS[3:])]
    report = report_of_tables(halves)
    assert report.instruments() == local.instruments()
    assert (report.version, report.finished > "2026") == (local.version, True)
    assert all(row.time for row in report.rows)
    assert {name: metric.mean for name, metric in report.summary().items()} == {
        name: metric.mean for name, metric in local.summary().items()
    }
    empty = score_batch(table(ROWS[:1]).slice(0, 0), two_metrics)
    assert (len(empty), empty.schema) == (0, scored.schema)


def test_what_cannot_be_read_or_is_twice_there_is_a_row_too():
    same = {**ROWS[0], "id": "a"}
    scored = score_batch(table([same, {**UNREADABLE, "id": "b"}, {**ROWS[1], "id": "a"}]), two_metrics)
    assert scored["id"].to_pylist()[::2] == ["a", "a"]
    failures = scored["faithfulness_failure"].to_pylist()
    assert [bool(failure) for failure in failures] == [False, True, False]
    assert "lacks a question" in failures[1]


def test_a_judge_that_never_answers_makes_failures_that_name_the_cause_and_is_not_called_again():
    judge = ScriptedJudge(Refusal("Incorrect API key", 401), repeat=True)

    def make_metrics():
        return faithfulness(judge)

    rows = [{**ROWS[0], "question": f"{number}?"} for number in range(60)]
    for _ in range(2):
        scored = score_batch(table(rows), make_metrics, max_concurrency=2)
        failures = scored["faithfulness_failure"].to_pylist()
        assert len(failures) == 60
        assert all("Incorrect API key" in failure for failure in failures)
        assert scored["faithfulness"].null_count == 60
        assert not report_of_tables([scored]).complete
    assert len(judge.requests) < 40


def test_the_metrics_are_built_once_for_equal_arguments_and_the_journal_keeps_their_scores(tmp_path):
    built, judge = [], answering(offline_reply)

    def make_metrics():
        built.append(judge)
        return faithfulness(judge)

    for _ in range(2):
        score_batch(table(ROWS[:2]), make_metrics, journal=tmp_path / "run.db")
    asked = len(judge.asked)
    assert (len(built), asked) == (1, 4)
    score_batch(table(ROWS[:2]), make_metrics, journal=tmp_path / "run.db", timeout=7.0)
    assert (len(built), len(judge.asked)) == (2, asked)


def test_a_price_is_counted_and_an_index_column_is_no_part_of_the_sample():
    rows = [{**row, "place": place + 5} for place, row in enumerate(ROWS[:3])]
    scored = score_batch(table(rows), two_metrics, index="place", price=(1.0, 2.0))
    assert scored["index"].to_pylist() == [5, 6, 7]
    assert all("place" not in json.loads(metadata) for metadata in scored["metadata"].to_pylist())
    assert report_of_tables([scored]).usage.money > 0


@each(
    ("options", "message"),
    [
        ({"make_metrics": faithfulness(OfflineJudge())}, "make_metrics must be a function .*, got Metric"),
        ({"make_metrics": None}, "make_metrics must be a function that builds the metrics in a worker, got NoneType"),
        ({"journal": 5}, "journal must be the path of a file, got int"),
        ({"max_concurrency": 0}, "max_concurrency must be a whole number of at least 1, got 0"),
        ({"fields": {"frage": "q"}}, "'frage' is not a field"),
    ],
)
def test_invalid_arguments_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        score_batch(table(ROWS[:1]), **{"make_metrics": two_metrics, **options})


def test_a_damaged_row_makes_no_report():
    scored = score_batch(table([ROWS[0] | {"id": "a"}]), two_metrics)
    damaged = scored.set_column(scored.schema.get_field_index("scores"), "scores", [["{}}"]])
    error = error_of(ConfigError, report_of_tables, [damaged])
    assert str(error).startswith("row 'a' does not come from a table of scores: ")


def test_a_table_of_other_columns_makes_no_report():
    assert "the rows lack context_ids, id, index" in str(error_of(ConfigError, report_of_tables, [table(ROWS[:1])]))
