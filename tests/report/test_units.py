"""What counts as one: conversations, trees of a test set, repeats of a question; and ranges that travel with scores."""

import pytest
from helpers.reports import row, scored

from langchain_rageval import ConfigError, OfflineJudge, Report, Sample, abstention, evaluate, leaderboard, metric
from langchain_rageval.data.notes import code_of
from langchain_rageval.report.units import Units
from langchain_rageval.statistics import bounded_mean_interval

NAN = float("nan")


def samples(*fields):
    return [
        Sample(**{"id": f"s{place}", "question": "When?", "answer": "Now.", "references": ["Now."], **own})
        for place, own in enumerate(fields)
    ]


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
    text = (
        "3 of 9 samples have no metadata.conversation although others have: each of them counts as independent, and "
        "intervals may be too narrow."
    )
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
    rows = [
        row(n, scored(n % 2), id=f"q{n // 2}@{n % 2}", metadata={"model": str(n % 2), "conversation": n // 2 // turns})
        for n in range(60)
    ]
    assert leaderboard(Report(rows), "faithfulness").rows[1].tied == tied


@metric(reads={"answer"}, range=(0, 3), name="grade")
def grade(sample):
    """Return the grade that stands in the answer."""
    return float(sample.answer)


@metric(reads={"answer"}, range=(float("-inf"), float("inf")), name="logit")
def logit(sample):
    """Return the number that stands in the answer."""
    return float(sample.answer)


def test_a_range_travels_with_the_scores(tmp_path):
    given = samples(*({"answer": str(value)} for value in [0, 1, 1, 0, 1, 1, 0, 1]))
    report = evaluate(given, [grade, logit], out=tmp_path / "report.jsonl", progress=False)
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
