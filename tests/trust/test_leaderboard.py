"""leaderboard: ranking, comparison of neighbours, and invalid input."""

import pytest
from helpers.reports import LOST

from langchain_rageval import ConfigError, Finding, Report, Row, Sample, Score, leaderboard
from langchain_rageval.statistics import bounded_mean_interval, paired_difference


def score(value, metric="rubric", grade=None, **more):
    findings = [] if grade is None else [Finding(kind="criterion", number=1, text="tone", verdict=str(grade))]
    outcome = {"failure": LOST} if value is None else {"value": value}
    return Score(metric=metric, aspect="answer", findings=findings, **outcome, **more)


def report_of(notes=(), **values):
    """A report of each model's values, question by question; None failed."""
    rows = []
    for model, own in values.items():
        for number, value in enumerate(own):
            given = value if isinstance(value, Score) else score(value)
            sample = Sample(id=f"q{number}@{model}", question="?", metadata={"model": model})
            rows.append(Row(index=len(rows), sample=sample, scores={given.metric: given}))
    return Report(rows, list(notes))


GOOD, FAIR, POOR = [0.9] * 10, [0.8, 0.7, 0.7, 0.6] * 2 + [0.7, 0.8], [0.1] * 10


def test_models_are_ranked_best_first_with_mean_and_interval():
    board = leaderboard(report_of(poor=POOR, good=GOOD, fair=FAIR))
    assert list(board) == ["good", "fair", "poor"]
    assert [(standing.model, standing.place) for standing in board.rows] == [("good", 1), ("fair", 2), ("poor", 3)]
    assert board["fair"].mean == pytest.approx(sum(FAIR) / 10)
    assert (board["fair"].low, board["fair"].high) == bounded_mean_interval(FAIR)
    assert (board["good"].difference, board["good"].p_value, board["good"].tied) == (None, None, False)


def test_the_difference_to_the_model_above_comes_from_the_paired_test():
    board = leaderboard(report_of(good=GOOD, fair=FAIR))
    differences = [own - above for own, above in zip(FAIR, GOOD, strict=True)]
    fair = board["fair"]
    assert fair.difference == pytest.approx(sum(differences) / 10)
    expected = paired_difference(differences)
    assert (fair.difference_low, fair.difference_high) == (expected.low, expected.high)
    assert fair.p_value == expected.p_value < 0.05
    assert (fair.pairs, fair.tied) == (10, False)


def test_p_values_are_adjusted_for_several_comparisons():
    alone = leaderboard(report_of(good=GOOD, fair=FAIR))["fair"].p_value
    board = leaderboard(report_of(good=GOOD, fair=FAIR, poor=POOR))
    assert board["fair"].p_value == alone
    assert board["poor"].p_value == pytest.approx(
        2 * paired_difference([p - f for p, f in zip(POOR, FAIR, strict=True)]).p_value
    )


def test_models_without_a_significant_difference_are_tied():
    board = leaderboard(report_of(one=[1.0, 0.0] * 5, other=[0.0, 1.0] * 5, poor=[0.0] * 10))
    assert (board["other"].tied, board["other"].p_value) == (True, 1.0)
    assert board["poor"].tied is True  # 5 of 10 differ: p = 0.0625
    assert "1.000, tied" in str(board)


def test_with_too_few_questions_models_are_tied():
    board = leaderboard(report_of(one=[1.0] * 3, other=[0.0] * 3))
    assert (board["other"].tied, board["other"].p_value, board["other"].difference) == (True, None, -1.0)
    assert "too few pairs" in str(board["other"])


def test_only_questions_that_both_have_a_value_for_are_compared():
    board = leaderboard(report_of(one=[1.0] * 10, other=[None, *[0.0] * 9]))
    assert (board["other"].pairs, board["other"].scored, board["other"].failed) == (9, 9, 1)
    assert "9 of 10 answers" in str(board["other"])
    assert board.notes == ["other: 1 of 10 answers have no value; the mean is of the rest."]


def test_a_model_with_nothing_scored_is_last_and_has_no_mean():
    board = leaderboard(report_of(none=[None, None], some=[0.0, 0.0]))
    assert list(board) == ["some", "none"]
    assert (board["none"].mean, board["none"].difference, board["none"].pairs) == (None, None, 0)
    assert str(board["none"]) == "2. none – – (0 of 2 answers)"


def test_models_with_different_questions_are_ranked_but_not_compared():
    report = report_of(one=[1.0, 1.0], other=[0.5, 0.5])
    rows = [r.model_copy(update={"sample": r.sample.model_copy(update={"id": f"x{r.index}"})}) for r in report.rows]
    board = leaderboard(rows)
    assert list(board) == ["one", "other"]
    assert board["other"].tied
    assert board.notes[0].startswith("No sample is in both reports.")


def test_where_lower_is_better_the_lowest_mean_is_first():
    values = {name: [score(value, "harmfulness", direction="lower")] * 8 for name, value in (("a", 1.0), ("b", 0.0))}
    board = leaderboard(report_of(**values))
    assert list(board) == ["b", "a"]
    assert "lower is better" in str(board)


def test_mean_grades_of_a_rubric_are_shown():
    board = leaderboard(report_of(one=[score(1.0, grade=3), score(0.5, grade=2)], other=[score(0.0, grade=0)] * 2))
    assert (board["one"].grades, board["other"].grades) == ({"tone": 2.5}, {"tone": 0.0})
    assert "<th>tone</th>" in board._repr_html_()
    assert "<td>2.50</td>" in board._repr_html_()
    assert list(board.to_pandas()["grade.tone"]) == [2.5, 0.0]


def test_different_instruments_are_noted():
    board = leaderboard(report_of(a=[score(1.0, instrument="x")] * 2, b=[score(0.0, instrument="y")] * 2))
    assert board.notes[0].startswith("Different instruments")


def test_the_metric_is_the_rubric_or_the_only_one_or_named():
    rows = report_of(a=[1.0], b=[0.0]).rows
    both = [r.model_copy(update={"scores": {**r.scores, "tone": score(1 - float(r.scores["rubric"]))}}) for r in rows]
    assert list(leaderboard(Report(both))) == ["a", "b"]
    assert list(leaderboard(Report(both), "tone")) == ["b", "a"]
    others = [r.model_copy(update={"scores": {name: score(1.0) for name in ("x", "y")}}) for r in rows]
    with pytest.raises(ConfigError, match="name the metric; the report has x, y"):
        leaderboard(Report(others))
    with pytest.raises(ConfigError, match="no metric 'z'; it has x, y"):
        leaderboard(Report(others), "z")


def test_samples_without_a_model_are_left_out_and_counted():
    report = report_of(a=[1.0])
    nameless = report.rows[0].model_copy(update={"sample": Sample(question="?")})
    assert leaderboard([*report.rows, nameless]).notes == ["Left out: 1 sample without the name of a model."]
    with pytest.raises(ConfigError, match="no sample names its model"):
        leaderboard([nameless])
