"""Summaries by slice, and with samples that are tied together."""

import pytest
from helpers.each import each
from helpers.reports import failed, report_of, row, scored, unscored

from langchain_rageval import ConfigError, Report
from langchain_rageval.statistics import bounded_mean_interval


def report(*given, values=None):
    """A row with the value 1, 0, 1, ... for each set of fields of the sample."""
    values = values or [1.0 - place % 2 for place in range(len(given))]
    return Report([row(place, scored(values[place]), **fields) for place, fields in enumerate(given)])


def means(found):
    return {name: summary["faithfulness"].mean for name, summary in found.items()}


def tagged(*splits):
    return report(*({"metadata": {} if split is None else {"split": split}} for split in splits))


@pytest.mark.parametrize("by", ["metadata.split", "split", lambda sample: sample.metadata.get("split")])
def test_each_slice_has_its_own_summary_and_rows_without_the_key_come_last(by):
    found = tagged(None, "easy", "hard", "easy", "").summary(by=by)
    assert means(found) == {"easy": 0.0, "hard": 1.0, "(none)": 1.0}
    assert list(found) == ["easy", "hard", "(none)"]
    assert [summary["faithfulness"].scored for summary in found.values()] == [2, 1, 2]


@each(
    ("metadata", "by", "names"),
    [
        ([{"a": {"b": 1}}, {"a": {"b": 2}}], "metadata.a.b", ["1", "2"]),
        ([{"a.b": "x"}, {"a": {"b": "y"}}], "metadata.a.b", ["x", "y"]),
        ([{"a": "x"}, {"a": {"b": "y"}}], "a.b", ["y", "(none)"]),
        ([{"hard": True}, {"hard": None}], "hard", ["true", "(none)"]),
        ([{"tags": ["x", "я"]}, {"tags": []}], "tags", ['["x", "я"]', "[]"]),
        ([{"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}], "a", ['{"b": 1, "c": 2}']),
        ([{"a": {1: "x", "b": "y"}}], "a", ["{1: 'x', 'b': 'y'}"]),
        ([{"evolution": "simple"}, {"evolution": "reasoning+conditional"}], "evolution", None),
        ([{"language": "de"}, {}], "language", ["de", "en"]),
    ],
)
def test_a_value_is_found_by_its_path_and_named_as_text(metadata, by, names):
    found = report(*({"metadata": given} for given in metadata)).summary(by=by)
    assert list(found) == (names or [given[by] for given in metadata])


def test_a_language_missing_in_the_metadata_is_detected_from_the_question():
    found = report({"question": "Когда основан Мюнхен?"}, {"question": "When was it founded?"}).summary(by="language")
    assert means(found) == {"ru": 1.0, "en": 0.0}
    found = report({"answer": "a"}, {"answer": "b"}, {"answer": None}).summary(by="answer")
    assert means(found) == {"a": 1.0, "b": 0.0, "(none)": 1.0}


@pytest.mark.parametrize("named", [{"by": "metadata.splt"}, {"cluster": "metadata.splt"}])
def test_a_path_that_no_sample_has_is_refused(named):
    with pytest.raises(
        ConfigError, match=r"no sample has a value for 'metadata.splt'; the metadata are metadata.split"
    ):
        tagged("easy").summary(**named)
    with pytest.raises(ConfigError, match="the metadata are empty"):
        tagged(None).summary(**named)
    assert dict(tagged().summary(**named)) == {}


# Clusters


def test_each_value_stays_with_its_own_cluster_also_beside_rows_without_one():
    values, document = [1.0, 0.9, 0.8, 0.1, 0.0, 0.5, 0.6, 1.0], [1, 1, 1, 2, 2, None, None, 3]
    rows = [
        row(place, scored(value), metadata={} if tied is None else {"document": tied})
        for place, (value, tied) in enumerate(zip(values, document, strict=True))
    ]
    rows[2:2] = [row(20, unscored(), metadata={"document": 2}), row(21, failed(), metadata={"document": 1})]
    told = Report(rows).summary(cluster="document")["faithfulness"]
    expected = bounded_mean_interval(values, clusters=["1", "1", "1", "2", "2", "alone", "too", "3"])
    assert (told.low, told.high) == expected
    assert expected != bounded_mean_interval(values[::-1], clusters=["1", "1", "1", "2", "2", "alone", "too", "3"])


def test_a_value_that_is_called_like_its_absence_loses_no_row():
    found = tagged("(none)", "easy", None, "hard").summary(by="split")
    assert {name: summary["faithfulness"].scored for name, summary in found.items()} == {
        "easy": 1,
        "hard": 1,
        "(none)": 2,
    }
    assert list(found)[-1] == "(none)"


@pytest.mark.parametrize("given", [5, ["metadata.split", "language"]])
def test_what_is_neither_a_path_nor_a_function_is_refused(given):
    for options in ({"by": given}, {"cluster": given}):
        with pytest.raises(ConfigError, match=r"a path such as 'metadata\.split', or a function, got "):
            report_of(scored(0.5)).summary(**options)


def test_slices_by_turn_are_in_numeric_order_and_rows_without_a_turn_come_last():
    turns = [{}, *({"conversation": "a", "turn": turn} for turn in (10, 9, 1, 1))]
    found = report(*({"metadata": own} for own in turns)).summary(by="turn")
    assert means(found) == {"1": 0.5, "9": 1.0, "10": 0.0, "(none)": 1.0}
    assert list(found) == ["1", "9", "10", "(none)"]
