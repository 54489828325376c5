"""Summaries of a report: counts, means, intervals, slices and units; its failures, worst rows and data frame."""

from statistics import fmean

import pytest
from helpers.each import each
from helpers.reports import LOST, STATEMENT, failed, report_of, row, scored, unscored
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, OfflineJudge, Report, Sample, abstention, evaluate, leaderboard, metric
from langchain_rageval.data.notes import code_of
from langchain_rageval.data.schema import Failure, Finding, Row, Usage
from langchain_rageval.report.units import Units
from langchain_rageval.statistics import bounded_mean_interval

MISSED = Finding(kind="reference_statement", number=1, text="Henry did it.", verdict="FN")
without_value = st.sampled_from([unscored(), unscored("other"), failed()])
outcomes = st.lists(st.floats(0, 1).map(scored) | without_value, min_size=1, max_size=30)


@given(outcomes)
def test_every_score_is_counted_once_and_only_values_make_the_mean(scores):
    summary = report_of(*scores).summary()["faithfulness"]
    values = [score.value for score in scores if score.value is not None]
    without = [sum(getattr(score, kind) is not None for score in scores) for kind in ("unscored", "failure")]
    assert [summary.scored, summary.unscored, summary.failed] == [len(values), *without]
    assert summary.mean == (fmean(values) if values else None)
    assert (summary.low, summary.high) == (bounded_mean_interval(values) if values else (None, None))
    assert values or summary.interval == ""


# Abstained: samples whose answer states no facts; None for metrics that do not look


@each(
    ("scores", "abstained"),
    [
        ([unscored(), unscored(), scored(1.0, findings=[STATEMENT])], 2),
        ([scored(1.0, findings=[STATEMENT])], 0),
        ([scored(1.0, findings=[STATEMENT]), scored(0.5)], 0),
        ([unscored(), scored(0.5)], 1),
        ([unscored("the answer states no facts, nor does the reference")], 1),
        ([scored(0.0, findings=[MISSED])], 1),
        ([scored(0.5, findings=[STATEMENT, MISSED])], 0),
        ([unscored()], 1),
        ([scored(0.5)], None),
        ([unscored("the reference states no facts")], None),
        ([failed()], None),
    ],
)
def test_abstained_counts_the_answers_without_facts(scores, abstained):
    assert report_of(*scores).summary()["faithfulness"].abstained == abstained


# Several metrics


def test_scores_count_under_the_name_that_the_row_has_for_them():
    both = Row(index=0, sample=Sample(question="Q?"), scores={"one": scored(1.0), "two": scored(0.5)})
    report = Report([both])
    found = [(name, metric.metric, metric.mean) for name, metric in report.summary().items()]
    assert found == [("one", "one", 1.0), ("two", "two", 0.5)]
    report.check({"two": 0.4})


def failing(number, error, message, metric="faithfulness"):
    failure = Failure(error=error, message=message, step="verify_statements")
    return row(number, failed(metric, failure=failure), id=f"sample-{number}")


def test_the_most_frequent_causes_come_first_and_the_rest_are_counted():
    rows = [failing(0, "A", "once"), *(failing(n, "B", f"no {n}\nmore") for n in (1, 2)), failing(3, "C", "c")]
    rows += [failing(4, "D", "d"), failing(5, "B", "again", "context_recall")]
    assert str(Report(rows)).splitlines()[3:] == [
        "Failed: 3 of faithfulness, context_recall: B in verify_statements, first in sample 'sample-1': no 1 more",
        "Failed: 1 of faithfulness: A in verify_statements, first in sample 'sample-0': once",
        "Failed: 1 of faithfulness: C in verify_statements, first in sample 'sample-3': c",
        "Failed: 1 for other causes",
    ]


def test_a_long_message_is_cut():
    line = str(Report([failing(0, "A", "x" * 1000)])).splitlines()[2]
    assert line.endswith(": " + "x" * 300 + "…")


def test_an_aspect_is_the_mean_of_its_metrics_of_the_range_0_to_1_with_lower_is_better_turned_round():
    others = [scored(4.0, "grade", range=(1, 5)), scored(0.0, "half", range=(0, 2)), failed("lost")]
    noise, ranks = scored(0.4, "noise", direction="lower"), unscored("nothing", "ranks", aspect="ranking")
    summary = report_of([scored(0.8), noise, scored(0.1, "similarity", aspect="answer"), ranks, *others]).summary()
    assert {aspect: (own.mean, own.metrics) for aspect, own in summary.aspects.items()} == {
        "grounding": (pytest.approx((0.8 + 0.6) / 2), ["faithfulness", "noise", "lost"]),
        "answer": (0.1, ["similarity"]),
        "ranking": (None, ["ranks"]),
    }
    assert str(summary["lost"]) == "lost no score (0 scored, 0 unscored, 1 failed; 0 calls)"


def test_money_has_a_column_only_if_it_is_known():
    free, dear = (report_of(scored(1.0, usage=Usage(calls=1, money=money))).summary() for money in (None, 0.25))
    assert (free.has_money, dear.has_money) == (False, True)
    assert (dear.headings[-1], dear.cells()[0][-1], len(dear.cells()[0])) == ("money", "0.2500", len(dear.headings))
    assert len(free.cells()[0]) == len(free.headings) == len(dear.headings) - 1
    assert dear["faithfulness"].money == dear.usage.money == 0.25
    assert "1 call, 0.2500 money" in str(dear["faithfulness"])


def audited(*pairs, **more):
    """Return the audit of rows with these values of the own and of the strong judge."""
    audits = [{"faithfulness": scored(strong, **more)} for _, strong in pairs]
    rows = [row(n, scored(own, **more), audit=audits[n]) for n, (own, _) in enumerate(pairs)]
    return Report(rows).audit["faithfulness"]


def test_judges_agree_up_to_a_tenth_whatever_the_rounding():
    tenths = [(n / 10, (n + 1) / 10) for n in range(10)]
    assert audited(*tenths).agreement == 1.0
    assert audited(*tenths, *((strong, own) for own, strong in tenths)).agreement == 1.0
    assert audited((0.0, 0.1), (0.0, 0.11), (0.5, 0.5), (0.6, 0.4)).agreement == 0.5


def test_the_audit_of_a_metric_without_a_range_has_a_mean_alone():
    found = audited(*((float(n), float(2 * n)) for n in range(20)), range=(None, None))
    assert (found.mean, found.own_mean, found.low, found.interval) == (pytest.approx(19.0), 9.5, None, "")
    assert [pair.index for pair in found.parted] == [*range(19, 9, -1)]


# Failures and the worst


def test_failures_come_with_their_rows():
    report = report_of([scored(1.0), failed("other")], [failed(), unscored("why", "other")])
    failures = [(row.index, score.metric, score.failure) for row, score in report.failures()]
    assert failures == [(0, "other", LOST), (1, "faithfulness", LOST)]


@pytest.mark.parametrize(("direction", "worst"), [("higher", [3, 0, 4]), ("lower", [2, 4, 0])])
def test_the_worst_come_first_in_the_metrics_own_direction(direction, worst):
    scores = [scored(value, direction=direction) for value in (0.5, 0.9, 1.0, 0.1, 0.6)]
    scores[1] = failed(direction=direction)
    assert [row.index for row in report_of(*scores).worst("faithfulness", 3)] == worst


# Thresholds


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_floats_of_a_mean_do_not_decide_a_gate(direction):
    """The mean of 29 times 0.01 is a hair less than 0.01."""
    for value in (percent / 100 for percent in range(1, 100)):
        report_of(*[scored(value, direction=direction)] * 29).check({"faithfulness": value})


@each(
    ("thresholds", "max_failed", "told"),
    [
        ("faithfulness", 0.05, "check takes thresholds by metric"),
        ({"faithfulness": "0.8"}, 0.05, "the threshold of faithfulness must be a number, got '0.8'"),
        ({"faithfulness": float("nan")}, 0.05, "must be a number, got nan"),
    ],
)
def test_invalid_thresholds_are_refused(thresholds, max_failed, told):
    with pytest.raises(ConfigError, match=told):
        report_of(scored(0.5)).check(thresholds, max_failed)


@pytest.mark.parametrize("ask", [lambda report: report.check({"recall": 0.5}), lambda report: report.worst("recall")])
def test_a_metric_that_is_not_there_is_named_with_those_that_are(ask):
    with pytest.raises(ConfigError, match="no metric 'recall'; it has faithfulness"):
        ask(report_of(scored(1.0)))
    with pytest.raises(ConfigError, match="it has none"):
        ask(report_of())


def test_a_metric_that_was_left_out_everywhere_is_known_and_undecided():
    report = Report([row(0, scored(0.9))], left_out=[(0, "other")])
    (gate,) = report.gates({"other": 0.0})
    assert (gate.verdict, gate.codes) == ("undecided", ["not-scored-at-all"])
    with pytest.raises(ConfigError, match="no metric 'third'"):
        report.check({"third": 0.5})


# pandas


def test_a_frame_has_a_line_for_each_sample_and_says_why_there_is_no_value():
    half = row(0, scored(0.5, reason="half"), answer="a", contexts=["c"], metadata={"split": "x"})
    frame = Report([half, row(1, unscored()), row(2, failed())]).to_pandas()
    assert list(frame["id"]) == ["q-0", "q-1", "q-2"]
    assert (frame["faithfulness"].dtype, frame["faithfulness"][0]) == (float, 0.5)
    assert frame["faithfulness"].isna().tolist() == [False, True, True]
    assert frame["faithfulness.reason"].tolist() == ["half", "", ""]
    assert frame["faithfulness.without"].isna().tolist() == [True, False, False]
    assert frame["faithfulness.without"][2] == "APIConnectionError: Connection error."
    assert (frame["metadata.split"][0], frame["contexts"][0]) == ("x", ["c"])
    assert len(report_of().to_pandas()) == 0


# Summaries by slice, and with samples that are tied together


def sliced(*given, values=None):
    """A row with the value 1, 0, 1, ... for each set of fields of the sample."""
    values = values or [1.0 - place % 2 for place in range(len(given))]
    return Report([row(place, scored(values[place]), **fields) for place, fields in enumerate(given)])


def means(found):
    return {name: summary["faithfulness"].mean for name, summary in found.items()}


def tagged(*splits):
    return sliced(*({"metadata": {} if split is None else {"split": split}} for split in splits))


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
    found = sliced(*({"metadata": given} for given in metadata)).summary(by=by)
    assert list(found) == (names or [given[by] for given in metadata])


def test_a_language_missing_in_the_metadata_is_detected_from_the_question():
    found = sliced({"question": "Когда основан Мюнхен?"}, {"question": "When was it founded?"}).summary(by="language")
    assert means(found) == {"ru": 1.0, "en": 0.0}
    found = sliced({"answer": "a"}, {"answer": "b"}, {"answer": None}).summary(by="answer")
    assert means(found) == {"a": 1.0, "b": 0.0, "(none)": 1.0}


@pytest.mark.parametrize("named", [{"by": "metadata.splt"}, {"cluster": "metadata.splt"}])
def test_a_path_that_no_sample_has_is_refused(named):
    told = "no sample has a value for 'metadata.splt'; the metadata are metadata.split"
    with pytest.raises(ConfigError, match=told):
        tagged("easy").summary(**named)
    with pytest.raises(ConfigError, match="the metadata are empty"):
        tagged(None).summary(**named)
    assert dict(tagged().summary(**named)) == {}


# Clusters


def test_each_value_stays_with_its_own_cluster_also_beside_rows_without_one():
    values, document = [1.0, 0.9, 0.8, 0.1, 0.0, 0.5, 0.6, 1.0], [1, 1, 1, 2, 2, None, None, 3]
    tied = [{} if one is None else {"document": one} for one in document]
    rows = [row(n, scored(value), metadata=tied[n]) for n, value in enumerate(values)]
    rows[2:2] = [row(20, unscored(), metadata={"document": 2}), row(21, failed(), metadata={"document": 1})]
    told = Report(rows).summary(cluster="document")["faithfulness"]
    clusters = ["1", "1", "1", "2", "2", "alone", "too", "3"]
    expected = bounded_mean_interval(values, clusters=clusters)
    assert (told.low, told.high) == expected != bounded_mean_interval(values[::-1], clusters=clusters)


def test_a_value_that_is_called_like_its_absence_loses_no_row():
    found = tagged("(none)", "easy", None, "hard").summary(by="split")
    counts = [(name, summary["faithfulness"].scored) for name, summary in found.items()]
    assert counts == [("easy", 1), ("hard", 1), ("(none)", 2)]


@pytest.mark.parametrize("given", [5, ["metadata.split", "language"]])
def test_what_is_neither_a_path_nor_a_function_is_refused(given):
    for options in ({"by": given}, {"cluster": given}):
        with pytest.raises(ConfigError, match=r"a path such as 'metadata\.split', or a function, got "):
            report_of(scored(0.5)).summary(**options)


def test_slices_by_turn_are_in_numeric_order_and_rows_without_a_turn_come_last():
    turns = [{}, *({"conversation": "a", "turn": turn} for turn in (10, 9, 1, 1))]
    found = sliced(*({"metadata": own} for own in turns)).summary(by="turn")
    assert means(found) == {"1": 0.5, "9": 1.0, "10": 0.0, "(none)": 1.0}
    assert list(found) == ["1", "9", "10", "(none)"]


# What counts as one: conversations, trees of a test set, repeats of a question; and ranges that travel with scores


NAN = float("nan")


def samples(*fields):
    usual = {"question": "When?", "answer": "Now.", "references": ["Now."]}
    return [Sample(**{"id": f"s{place}", **usual, **own}) for place, own in enumerate(fields)]


def with_metadata(*metadata):
    return samples(*({"metadata": own} for own in metadata))


@pytest.mark.parametrize(
    ("given", "units"),
    [
        (with_metadata({}, {}), None),
        (with_metadata({"conversation": "a"}, {"conversation": "b"}), None),
        (with_metadata({"conversation": "a"}, {}, {"conversation": "a"}), [0, 1, 0]),
        (with_metadata({"conversation": 7}, {"conversation": 7}, {"conversation": " "}), [0, 0, 1]),
        (with_metadata({"tree_id": "t"}, {"tree_id": "t"}, {"tree_id": ""}), [0, 0, 1]),
        (with_metadata({"tree_id": "t", "conversation": "a"}, {"tree_id": "t", "conversation": "b"}), None),
        (with_metadata({"tree_id": "x"}, {"conversation": "x"}, {"conversation": "x"}), [0, 1, 1]),
        (with_metadata({"conversation": NAN}, {"conversation": NAN}), None),
        (samples({"id": "q"}, {"id": "q-2"}, {"id": "q-10"}, {"id": "p-2"}), [0, 0, 0, 1]),
        (samples({"id": "q"}, {"id": "q-2", "question": "Why?"}), None),
        (samples({"id": "q", "references": ["1"]}, {"id": "q-2", "references": ["2"]}), None),
    ],
)
def test_a_unit_is_a_conversation_else_a_tree_else_the_repeats_of_a_question(given, units):
    assert Units(given).groups() == units
    assert Units(given, None).groups() is None


def test_another_cluster_replaces_the_rule():
    given = with_metadata({"conversation": "a", "page": 1}, {"conversation": "a", "page": 2}, {"page": 2}, {})
    pages = Units(given, "page")
    assert (pages.groups(), pages.kind(range(4))) == ([0, 1, 1, 2], "cluster")
    assert Units(given, lambda sample: sample.id).groups() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="no sample has a value for 'chapter'"):
        Units(given, "chapter").groups()


def test_samples_without_the_id_that_others_have_are_named():
    given = with_metadata(*({"conversation": "a"} if n < 6 else {} for n in range(9)))
    text = "3 of 9 samples have no metadata.conversation although others have: "
    text += "each of them counts as independent, and intervals may be too narrow."
    assert Units(given).notes()[1] == text
    report = evaluate(given, abstention(OfflineJudge()), progress=False)
    assert text in report.notes
    stored = Report(report.rows)
    assert stored.notes == [text]
    assert text in stored.summary().notes
    assert (repr(stored).count(text), repr(report).count(text)) == (1, 1)
    assert [code_of(note) for note in Units(with_metadata({"conversation": "a"}, {})).notes()] == []


@pytest.mark.parametrize(
    ("given", "places", "kind"),
    [
        (with_metadata({"conversation": "a"}, {"conversation": "a"}, {}), [0, 1, 2], "conversation"),
        (with_metadata({"conversation": "a"}, {"conversation": "a"}, {}), [0, 2], "cluster"),
        (with_metadata({"tree_id": "t"}, {"tree_id": "t"}, {"conversation": "a"}), [0, 1, 2], "tree"),
        (samples({"id": "q"}, {"id": "q-2"}), [0, 1], "question"),
        (with_metadata(*[{"tree_id": "t"}] * 2, *[{"conversation": "a"}] * 2), [0, 1, 2, 3], "unit"),
        (with_metadata(*[{"tree_id": "t"}] * 2, *[{"conversation": "a"}] * 2), [0, 2, 3], "conversation"),
    ],
)
def test_the_kind_of_the_units_is_that_of_those_with_several_samples(given, places, kind):
    units = Units(given)
    assert units.kind(places) == kind
    assert (units.groups(places) is None) == (kind == "cluster")


def test_notes_on_pairs_are_worded_for_pairs():
    given = with_metadata(*[{"conversation": "a"}] * 2, *[{"tree_id": "t"}] * 3)
    given += samples({"id": "q"}, {"id": "q-2"}, {"id": "p"})
    for paired, codes in ((False, ["conversations", "trees", "repeats"]), (True, ["paired-conversations", "trees"])):
        notes = Units(given).notes(paired=paired)
        assert [note.code for note in notes if note.code != "without-unit"] == [*codes, *["repeated-samples"] * paired]
        fields = [note.fields for note in notes if note.code != "without-unit"]
        assert fields == [{"samples": 2, "units": 1}, {"samples": 3, "units": 1}, {"samples": 3, "units": 2}]
        loose = [note.fields for note in notes if note.code == "without-unit"]
        assert loose == [{"count": 3, "samples": 8, "field": name} for name in ("conversation", "tree_id")]


@pytest.mark.parametrize(("turns", "tied"), [(1, False), (6, True)])
def test_a_leaderboard_counts_conversations(turns, tied):
    """Five conversations are too few for a comparison, however many turns they have."""
    metadata = [{"model": str(n % 2), "conversation": n // 2 // turns} for n in range(60)]
    rows = [row(n, scored(n % 2), id=f"q{n // 2}@{n % 2}", metadata=metadata[n]) for n in range(60)]
    assert leaderboard(Report(rows), "faithfulness").rows[1].tied == tied


def number_of(sample):
    """Return the number that stands in the answer."""
    return float(sample.answer)


def test_a_range_travels_with_the_scores(tmp_path):
    ranges = {"grade": (0, 3), "logit": (float("-inf"), float("inf"))}
    metrics = [metric(reads={"answer"}, range=ends, name=name)(number_of) for name, ends in ranges.items()]
    given = samples(*({"answer": str(value)} for value in [0, 1, 1, 0, 1, 1, 0, 1]))
    report = evaluate(given, metrics, out=tmp_path / "report.jsonl", progress=False)
    found = Report.load(tmp_path / "report.jsonl").summary()
    mean = found["grade"]
    assert mean.range == (0, 3)
    assert 0 < mean.low < mean.mean == 5 / 8 < mean.high
    assert mean.high > 1.2  # values that happen to be 0 and 1 say little about grades from 0 to 3
    assert (found["logit"].range, found["logit"].low) == (None, None)
    assert [score.range for score in report.rows[0].scores.values()] == [(0, 3), (None, None)]
    assert found.aspects["answer"].metrics == []


@pytest.mark.parametrize("bounds", [(0, 2), (1, 5), (-1, 0), (0, 1)])
def test_the_interval_has_the_width_of_the_range(bounds):
    shares = [0.0, 0.25, 1.0, 0.5, 0.5, 0.75]
    low, width = bounds[0], bounds[1] - bounds[0]
    rows = [row(n, scored(low + width * share, range=bounds)) for n, share in enumerate(shares)]
    found, expected = Report(rows).summary()["faithfulness"], bounded_mean_interval(shares)
    assert (found.low, found.high) == pytest.approx([low + width * end for end in expected])
    assert found.range == bounds


def test_scores_of_older_files_have_the_range_that_their_values_show():
    assert Report([row(n, scored(n % 2 + 1e-12)) for n in range(9)]).summary()["faithfulness"].range == (0, 1)
    assert Report([row(n, scored(n % 3)) for n in range(9)]).summary()["faithfulness"].interval == ""
