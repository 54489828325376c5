import threading
from math import inf, nan

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Sample, answer_similarity, evaluate
from langchain_rageval.metrics.similarity_metrics import greatest_similarity

SAMPLE = Sample(question="Where?", answer="A.", references=["R."])
PLANE = {"A.": [1, 0], "R.": [0.6, 0.8], "S.": [0.8, 0.6], "T.": [-1, 0], "N.": [0, 1]}


def scored(*references, answer="A.", model=None, **options):
    sample = SAMPLE.model_copy(update={"answer": answer, "references": list(references)})
    return answer_similarity(model or Vectors(PLANE), **options).invoke(sample)


def logits(*scores):
    given_scores = iter(scores)
    return PairScores(lambda answer, reference: next(given_scores))


# Arithmetic


@each(
    ("references", "value"),
    [(["R."], 0.6), (["A."], 1.0), (["N."], 0.0), (["T."], 0.0), (["R.", "S."], 0.8), (["S.", "T.", "R."], 0.8)],
)
def test_it_is_the_clipped_cosine_with_the_nearest_reference(references, value):
    score = scored(*references)
    assert score.value == pytest.approx(value)
    assert (score.metric, score.aspect, score.direction) == ("answer_similarity", "answer", "higher")
    assert score.usage.calls == 0


@each(("threshold", "value"), [(0.0, 1.0), (0.5, 1.0), (0.6, 1.0), (0.61, 0.0), (1, 0.0), (1.0, 0.0)])
def test_with_a_threshold_it_is_one_when_the_similarity_reaches_it(threshold, value):
    assert scored("R.", threshold=threshold).value == value


def test_equal_texts_reach_a_threshold_of_one():
    assert scored("A.", threshold=1).value == 1.0


unit = st.floats(0, 1)


def value_of(similarities, threshold):
    state = {
        "sample": SAMPLE.model_copy(update={"references": ["r"] * len(similarities)}),
        "similarities": similarities,
    }
    return greatest_similarity(state, threshold=threshold).number


@given(st.lists(unit, min_size=1, max_size=6), st.none() | unit, st.randoms())
def test_the_best_reference_counts_in_whatever_order(similarities, threshold, random):
    expected = max(similarities) if threshold is None else float(max(similarities) >= threshold)
    assert value_of(similarities, threshold) == expected
    assert value_of(random.sample(similarities, len(similarities)), threshold) == expected


# Edges


@each("answer", ["", " \n"])
@each("threshold", [None, 0.0, 0.5])
@each("model", [Vectors({}), logits()])
def test_a_blank_answer_is_zero_without_a_call(answer, threshold, model):
    score = scored("R.", answer=answer, threshold=threshold, model=model)
    assert (score.value, score.usage.embedded, model.asked) == (0.0, 0, [])


def test_blank_references_are_unscored_without_a_call():
    model = Vectors({})
    assert scored(" ", "", model=model).unscored == "the references are blank"
    assert model.asked == []


def test_a_blank_reference_among_others_is_passed_over():
    score = scored(" ", "R.", "", "S.")
    assert score.value == pytest.approx(0.8)
    assert [(finding.number, finding.text) for finding in score.findings] == [(2, "R."), (4, "S.")]


# Cross-encoders


def test_a_cross_encoder_reads_answer_and_reference():
    model = logits(0.25, 0.75)
    assert scored("R.", "S.", model=model).value == 0.75
    assert model.asked == [[("A.", "R."), ("A.", "S.")]]


async def test_a_cross_encoder_works_in_async_too_off_the_loop():
    threads = []
    model = PairScores(lambda answer, reference: threads.append(threading.current_thread()) or 0.75)
    assert (await answer_similarity(model).ainvoke(SAMPLE)).value == 0.75
    assert threads != [threading.main_thread()]


@each(("logit", "value"), [(0, 0.5), (20, pytest.approx(1, abs=1e-8)), (-20, pytest.approx(0, abs=1e-8))])
def test_logits_are_mapped_by_the_sigmoid(logit, value):
    assert scored("R.", model=logits(logit), scale="sigmoid").value == value


@each("score", [7.5, -0.1, 1.01])
def test_scores_outside_0_to_1_are_an_error_that_names_the_scale(score):
    with pytest.raises(ConfigError, match='say scale="sigmoid"'):
        scored("R.", model=logits(score))


@each("scale", [None, "sigmoid"])
@each("score", [nan, inf])
def test_scores_that_are_not_finite_are_a_failure(scale, score):
    metric = answer_similarity(PairScores(lambda answer, reference: score), scale=scale)
    (row,) = evaluate([SAMPLE], metric, progress=False).rows
    assert row.scores["answer_similarity"].failure.error == "ModelOutputError"


# Options


@each("threshold", [-0.1, 1.1, nan, inf, "0.5", [0.5]])
def test_a_threshold_out_of_range_is_refused_when_the_metric_is_built(threshold):
    with pytest.raises(ConfigError, match="threshold must be a number from 0 to 1, or None, got"):
        answer_similarity(Vectors({}), threshold=threshold)


@each(
    ("model", "scale", "message"),
    [
        (Vectors({}), "sigmoid", "scale is for a cross-encoder's scores"),
        (logits(), "softmax", "scale is None or \"sigmoid\", got 'softmax'"),
        (scripted(), None, "got Scripted"),
        (None, None, "got NoneType"),
        ("openai:small", None, "got str"),
    ],
)
def test_a_model_or_scale_of_no_use_is_refused_when_the_metric_is_built(model, scale, message):
    with pytest.raises(ConfigError, match=message):
        answer_similarity(model, scale=scale)


def test_the_instrument_tells_the_options_apart():
    one, other = Vectors({}), logits()
    built = [
        answer_similarity(one), answer_similarity(one, threshold=0.0), answer_similarity(one, threshold=0.5),
        answer_similarity(other), answer_similarity(other, scale="sigmoid"),
    ]  # fmt: skip
    assert len({metric.instrument for metric in built}) == len(built)


# What it tells


def test_findings_hold_the_similarity_with_each_reference():
    (first, second) = scored("R.", "T.").findings
    assert (first.kind, first.number, first.text, first.reason) == ("criterion", 1, "R.", "similarity")
    assert (float(first.verdict), float(second.verdict)) == (pytest.approx(0.6), 0.0)


@each(
    ("question", "options", "reason"),
    [
        ("Where?", {}, "Similarity to the reference: 0.60."),
        ("Где?", {}, "Сходство с эталоном: 0.60."),
        ("Where?", {"threshold": 0.5}, "Similarity to the reference: 0.60; the threshold is 0.5."),
        ("Где?", {"threshold": 0.5}, "Сходство с эталоном: 0.60; порог 0.5."),
        ("Where?", {"answer": " "}, "The answer is blank."),
        ("Где?", {"answer": " "}, "Ответ пуст."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, options, reason):
    answer = options.pop("answer", "A.")
    sample = SAMPLE.model_copy(update={"question": question, "answer": answer})
    assert answer_similarity(Vectors(PLANE), **options).invoke(sample).reason == reason
