"""The range of a metric: a value outside it is an error and not a score."""

import math

import pytest
from helpers.each import each
from helpers.offline import own_metric
from helpers.samples import SAMPLE
from helpers.scripted import PairScores

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    OfflineJudge,
    Value,
    cross_encoder_grader,
    embedding_grader,
    evaluate,
    faithfulness,
    id_grader,
    label_grader,
    llm_grader,
    mean_grade_at,
    ndcg_at,
    rerank_gain,
)

REMEDY = "return Value(number, reason), or Value.without(why) if no number applies"
BY_LENGTH = PairScores(lambda _, text: len(text))


def always(number, **options):
    """Return a metric that gives every sample the same value."""
    return own_metric(lambda _: Value(number, "because"), **options)


@each(
    ("number", "options", "found"),
    [
        (1.5, {}, "1.5, not a finite number from 0 to 1"),
        (-0.1, {}, "-0.1, not a finite number from 0 to 1"),
        (5.0, {"range": (0, 4)}, "5, not a finite number from 0 to 4"),
        (math.nan, {}, "nan, not a finite number from 0 to 1"),
        (math.inf, {}, "inf, not a finite number from 0 to 1"),
        (math.inf, {"range": (0, math.inf)}, "inf, not a finite number from 0 to inf"),
        (math.nan, {"range": (-math.inf, math.inf)}, "nan, not a finite number from -inf to inf"),
    ],
)
async def test_a_value_outside_the_range_is_an_error_that_names_metric_value_and_range(number, options, found):
    message = f"own gave {found}: correct its function, or declare its range with range=(lowest, highest)"
    with pytest.raises(ConfigError) as raised:
        always(number, **options).invoke(SAMPLE)
    assert str(raised.value) == message
    with pytest.raises(ConfigError) as raised:
        await always(number, **options).ainvoke(SAMPLE)
    assert str(raised.value) == message


def test_in_a_run_it_is_a_failure_and_no_score():
    report = evaluate([SAMPLE], [always(4.0), faithfulness(OfflineJudge())])
    (row,) = report.rows
    assert (row.scores["own"].value, row.scores["own"].failure.error) == (None, "ConfigError")
    assert row.scores["own"].failure.message.startswith("own gave 4, not a finite number from 0 to 1")
    assert row.scores["faithfulness"].value is not None


def test_a_declared_range_holds_and_a_rounding_error_is_removed():
    assert always(2.5, range=(0, 4)).invoke(SAMPLE).value == 2.5
    assert always(1.0000000000000002).invoke(SAMPLE).value == 1.0
    assert always(-1e-17).invoke(SAMPLE).value == 0.0
    assert (always(-1e-9).invoke(SAMPLE).value, always(1 + 1e-9).invoke(SAMPLE).value) == (0.0, 1.0)
    for beyond in (-2e-9, 1 + 2e-9):
        with pytest.raises(ConfigError, match="not a finite number from 0 to 1"):
            always(beyond).invoke(SAMPLE)


@each(
    ("given", "stored"),
    [
        ((0, 1), None),
        ((0, 2), (0, 2)),
        ((-1, 1), (-1, 1)),
        ((0, math.inf), (0, None)),
        ((-math.inf, 1), (None, 1)),
        ((-math.inf, math.inf), (None, None)),
    ],
)
def test_a_score_holds_the_range_unless_it_is_from_0_to_1(given, stored):
    assert always(0.5, range=given).invoke(SAMPLE).range == stored


def test_the_range_is_a_public_field_and_not_part_of_the_instrument():
    def half(_):
        return Value(0.5, "half")

    usual, wide = own_metric(half), own_metric(half, range=(0, 4))
    assert (usual.range, wide.range) == ((0.0, 1.0), (0.0, 4.0))
    assert usual.instrument == wide.instrument


@each(
    ("grader", "expected", "relevant_from"),
    [
        (llm_grader(OfflineJudge()), (0, 4), 1.0),
        (llm_grader(OfflineJudge(), (1, 5)), (0, 5), 2.0),  # 0 if nothing was retrieved
        (llm_grader(OfflineJudge(), (-2, 2)), (-2, 2), -1.0),
        (embedding_grader(HashingEmbeddings()), (0, 1), 0.5),
        (id_grader(), (0, 1), 1.0),
        (label_grader(), (-math.inf, math.inf), 1.0),
        (cross_encoder_grader(BY_LENGTH), (0, math.inf), None),
        (cross_encoder_grader(BY_LENGTH, "rank_from_0"), (0, math.inf), None),
        (cross_encoder_grader(BY_LENGTH, "sigmoid"), (0, 1), 0.5),
    ],
)
def test_mean_grades_have_the_range_of_the_grader_which_tells_from_which_grade_on_a_chunk_is_relevant(
    grader, expected, relevant_from
):
    assert (mean_grade_at(3, grader).range, grader.threshold) == (expected, relevant_from)
    assert ndcg_at(3, grader).range == (0, 1)


def test_a_gain_may_be_negative():
    ranges = {metric.name: metric.range for metric in rerank_gain(llm_grader(OfflineJudge()), BY_LENGTH).metrics}
    assert ranges == {"retriever": (0, 1), "reranker": (0, 1), "gain": (-1, 1)}


@each("given", ["0-1", (1,), (0, "1"), (1, 0), (0, 0), (math.nan, 1), (0, 1, 2), None])
def test_what_is_not_a_range_is_refused(given):
    with pytest.raises(ConfigError) as raised:
        always(0.5, range=given)
    expected = "range of own is its lowest and its highest value, such as (0, 1), got"
    assert str(raised.value) == f"{expected} {given!r}"


@each(
    ("value", "problem"),
    [
        (Value(0.5, None), "gave an invalid Value: reason: Input should be a valid string, got None"),
        (
            Value(0.5, "", [{"kind": "statement", "number": "one", "text": "", "verdict": ""}]),
            "gave an invalid Value: findings.0.number: Input should be a valid integer, unable to parse string as an "
            "integer, got 'one'",
        ),
        (Value(0.5, "", (), "nothing applies"), f"gave both a number and a cause why there is none: {REMEDY}"),
        *((Value(number), f"gave Value({number!r}), not a number: {REMEDY}") for number in ("0.5", None, [1])),
        *((made, f"gave {type(made).__name__}, not a Value: {REMEDY}") for made in (0.5, None, {"value": 0.5})),
    ],
)
async def test_an_invalid_value_is_an_error_that_names_the_reducer(value, problem):
    own = always(0.5).model_copy(update={"reduce": lambda _: value})
    with pytest.raises(ConfigError) as raised:
        own.invoke(SAMPLE)
    assert str(raised.value) == f"reduce of own {problem}"
    with pytest.raises(ConfigError) as raised:
        await own.ainvoke(SAMPLE)
    assert str(raised.value) == f"reduce of own {problem}"
