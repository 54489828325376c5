"""Summaries by slice, and with samples that are tied together."""

from dataclasses import replace

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


def test_what_the_samples_do_have_is_named_whichever_has_it():
    told = report({"metadata": {"split": "a"}}, {"metadata": {"level": 1}}, {})
    with pytest.raises(ConfigError, match=r"the metadata are metadata\.level, metadata\.split"):
        told.summary(by="splt")
    assert report_of().summary(by="metadata.split") == dict(report_of().summary(cluster="metadata.split")) == {}


# Clusters


def test_a_slice_that_lacks_the_cluster_counts_each_of_its_samples_alone():
    rows = [{"metadata": {"split": "a", "document": place % 3}} for place in range(9)]
    told = report(*rows, *[{"metadata": {"split": "b"}}] * 9)
    tied, plain = told.summary(by="split", cluster="document"), told.summary(by="split")
    assert tied["a"]["faithfulness"].low < plain["a"]["faithfulness"].low - 0.05
    assert tied["b"]["faithfulness"].low == pytest.approx(plain["b"]["faithfulness"].low, abs=0.05)
    assert tied["b"]["faithfulness"].low < plain["b"]["faithfulness"].low  # Student's t


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


def turns(*conversations, values=None):
    """A report whose samples are turns of these conversations, by the id of each; None for a sample alone."""
    seen: dict[object, int] = {}
    metadata = []
    for name in conversations:
        seen[name] = seen.get(name, 0) + 1
        metadata.append({} if name is None else {"conversation": name, "turn": seen[name]})
    return report(*({"id": str(place), "metadata": one} for place, one in enumerate(metadata)), values=values)


def test_turns_of_one_conversation_count_as_one_unless_clusters_are_turned_off():
    values = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    told = turns("a", "a", "a", "b", "b", None, "c", values=values)
    given, alone = told.summary()["faithfulness"], told.summary(cluster=None)["faithfulness"]
    groups = ["a", "a", "a", "b", "b", "alone", "c"]
    assert (given.low, given.high) == bounded_mean_interval(values, clusters=groups)
    assert (alone.low, alone.high) == bounded_mean_interval(values)
    assert (given.units, given.unit, given.counted) == (4, "conversation", "7 in 4 conversations")
    assert replace(given, unit="cluster") == told.summary(cluster="conversation")["faithfulness"]
    assert given != alone


def test_slices_by_turn_are_in_numeric_order_and_their_samples_independent():
    told = turns(*["a"] * 11, "b", "b", values=[1.0] * 10 + [0.0, 0.0, 1.0])
    found = told.summary(by="turn")
    assert list(found) == [str(turn) for turn in range(1, 12)]
    assert means(found)["1"] == 0.5
    assert (found["1"]["faithfulness"].low, found["1"]["faithfulness"].high) == bounded_mean_interval([1.0, 0.0])
    assert list(turns(None, "b", "b", "b").summary(by="turn")) == ["1", "2", "3", "(none)"]
