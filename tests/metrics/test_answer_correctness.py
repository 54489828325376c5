"""Answer correctness, similarity and relevance: arithmetic, edges, and what is shown."""

from fractions import Fraction

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, classification, questions, scripted, statements
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, Sample, answer_correctness, answer_relevance, answer_similarity, evaluate
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.answer_correctness import f_score, weighted_correctness

SAMPLE = Sample(question="Where?", answer="A.", references=["R."])
PLANE = {"A.": [1, 0], "R.": [0.6, 0.8], "S.": [0.8, 0.6], "T.": [-1, 0], "N.": [0, 1], "Не знаю.": [1, 0]}
NEAR = Vectors(PLANE)
FACTS_ONLY = {"weights": (1, 0)}


def scored(*replies, sample=SAMPLE, embeddings=NEAR, **options):
    return answer_correctness(scripted(*replies), embeddings, **options).invoke(sample)


def found(tp=0, fp=0, covered=0, fn=0):
    """Findings of one reference with so many statements of each kind."""
    told = [("statement", "TP", tp), ("statement", "FP", fp)]
    told += [("reference_statement", "TP", covered), ("reference_statement", "FN", fn)]
    return [Finding(kind=kind, number=1, text="s", verdict=verdict) for kind, verdict, n in told for _ in range(n)]


def f_of(tp=0, fp=0, covered=0, fn=0, beta=1.0, formula="counts"):
    return f_score(found(tp, fp, covered, fn), beta, formula)[0]


# Arithmetic


@each(("options", "value"), [({}, 0.75 * 0.5 + 0.25 * 0.6), ({"weights": (0.1, 0.3)}, 0.25 * 0.5 + 0.75 * 0.6)])
def test_facts_and_similarity_are_weighted_three_to_one_or_as_asked(options, value):
    score = scored(statements("a", "b"), statements("c", "d"), classification({1: [1]}, fp=[2], fn=[2]), **options)
    assert (score.value, score.usage.calls, score.usage.embedded) == (pytest.approx(value), 3, 2)


def test_one_fact_told_in_six_statements_is_where_the_formulas_part():
    split = {"tp": 6, "fp": 1, "covered": 1, "fn": 3}
    assert f_of(**split) == 0.75
    assert round(f_of(**split, formula="precision_recall"), 2) == 0.39
    assert "F is 0.75 by counts and 0.39" in " ".join(answer_correctness.__doc__.split())


some = st.integers(0, 12)
betas = st.fractions("1/8", 8)


@given(some, some, some, some, betas)
def test_f_is_what_exact_fractions_say(tp, fp, covered, fn, beta):
    square = beta**2
    counts = (1 + square) * tp / ((1 + square) * tp + square * fn + fp) if tp else Fraction(0)
    assert f_of(tp, fp, covered, fn, float(beta)) == pytest.approx(float(counts))
    if tp + fp and covered + fn:
        p, r = Fraction(tp, tp + fp), 1 - Fraction(fn, covered + fn)
        f = (1 + square) * p * r / (square * p + r) if p and r else Fraction(0)
        assert f_of(tp, fp, covered, fn, float(beta), "precision_recall") == pytest.approx(float(f))


# Edges

NOTHING_SHARED = classification(fp=[1], fn=[1])
NEITHER, BLANK = "the answer states no facts, nor does the reference", "the references are blank"


@each(
    ("changes", "replies", "weights", "result", "verdicts"),
    [
        ({"answer": " \n"}, [("c", "d")], (0.75, 0.25), (0.0, None, 1), ["FN", "FN"]),
        ({"answer": ""}, [()], (0.75, 0.25), (None, NEITHER, 1), []),
        ({}, [(), ()], (0.75, 0.25), (None, NEITHER, 2), []),
        ({}, [("a",), ()], (1, 0), (0.0, None, 2), ["FP"]),
        ({"references": [" ", ""]}, [], (0, 1), (None, BLANK, 0), []),
        ({"references": [""]}, [("a",)], (0.75, 0.25), (None, BLANK, 1), []),
        ({"references": [""]}, [("a",)], (1, 0), (None, BLANK, 1), []),
        # the findings are of a reference that states facts, though nothing is shared with any
        ({"references": [" ", "R."]}, [("a",), ("c",), NOTHING_SHARED], (1, 0), (0.0, None, 3), ["FP", "FN"]),
    ],
)
def test_what_states_no_facts_or_is_blank(changes, replies, weights, result, verdicts):
    judged = [statements(*reply) if isinstance(reply, tuple) else reply for reply in replies]
    score = scored(*judged, sample=SAMPLE.model_copy(update=changes), weights=weights)
    assert (score.value, score.unscored, score.usage.calls) == result
    assert [finding.verdict for finding in score.findings] == verdicts


@pytest.mark.parametrize(("similarity_to", "value"), [("R.", 0.15), ("T.", 0.0)])
def test_a_refusal_in_words_has_no_facts_right_but_its_similarity(similarity_to, value):
    sample = {"question": "Где?", "answer": "Не знаю.", "references": [similarity_to]}
    score = scored(statements(), statements("c"), sample=sample)
    assert (score.value, score.usage.calls) == (pytest.approx(value), 2)
    assert [(f.kind, f.verdict) for f in score.findings[:1]] == [("reference_statement", "FN")]


def test_of_several_references_the_best_f_and_the_best_similarity_count():
    sample = SAMPLE.model_copy(update={"references": ["R.", "S."]})
    replies = [
        statements("a", "b"), statements("c"), statements("d", "e"),
        classification({1: [1], 2: [1]}), classification({1: [1]}, fp=[2], fn=[2]),
    ]  # fmt: skip
    judge = scripted(*replies)
    score = answer_correctness(judge, NEAR).invoke(sample)
    assert score.value == pytest.approx(0.75 * 1.0 + 0.25 * 0.8)
    assert score.usage.calls == len(judge.asked) == 5
    assert [(f.kind, f.number, f.text, f.verdict) for f in score.findings] == [
        ("statement", 1, "a", "TP"), ("statement", 2, "b", "TP"), ("reference_statement", 1, "c", "TP"),
        ("criterion", 1, "R.", repr(0.6)), ("criterion", 2, "S.", repr(0.8)),
    ]  # fmt: skip


@pytest.mark.parametrize("formula", ["counts", "precision_recall"])
def test_the_best_reference_is_the_best_by_the_formula_asked_for(formula):
    """By counts six statements of one fact win, by precision and recall the reference of which more is covered."""
    split, even = found(6, 1, 1, 3), found(4, 3, 4, 1)
    state = {"answer_statements": ["a"], "reference_statements": ["b"], "classifications": [split, even]}
    value = weighted_correctness({"sample": SAMPLE, **state}, weights=(1, 0), beta=1.0, formula=formula)
    best, number = {"counts": (split, 0.75), "precision_recall": (even, 2 * (4 / 7) * 0.8 / (4 / 7 + 0.8))}[formula]
    assert (value.findings, value.number) == (best, pytest.approx(number))


# A part of weight 0


@each("embeddings", [None, Vectors({})])
def test_without_weight_nothing_is_embedded(embeddings):
    replies = [statements("a"), statements("c"), classification({1: [1]})]
    score = scored(*replies, embeddings=embeddings, **FACTS_ONLY)
    assert (score.value, score.usage.embedded) == (1.0, 0)


def test_a_cross_encoder_may_measure_the_similarity():
    model = PairScores(lambda answer, reference: 0.5)
    assert scored(embeddings=model, weights=(0, 1)).value == 0.5
    assert model.asked == [[("A.", "R.")]]


# More than the reference says


@each(
    ("reply", "count", "ignore"),
    [
        (classification(extra={1: [1]}), 2 / 3, 1.0),  # Munich was founded in 1158 by Henry the Lion
        (classification({1: [1]}, extra={2: [], 3: []}), 2 / 4, 1.0),
        (classification({1: [1]}, fp=[2], extra={3: [1]}), 4 / 6, 4 / 5),
        (classification(fp=[1], extra={2: []}, fn=[1]), 0.0, 0.0),
    ],
)
def test_an_extra_counts_or_is_ignored(reply, count, ignore):
    answer = [str(n) for n in range(1, 1 + len(reply.TP) + len(reply.FP))]
    for formula in ("counts", "precision_recall"):
        for extra, expected in (("count", count), ("ignore", ignore)):
            replies = [statements(*answer), statements("r"), reply]
            score = scored(*replies, **FACTS_ONLY, extra=extra, formula=formula)
            assert score.value == pytest.approx(expected), (formula, extra)


def test_the_reason_tells_wrong_and_extra_apart():
    replies = [statements("a.", "b.", "c."), statements("x."), classification(fp=[1], extra={2: [1], 3: []})]
    score = scored(*replies, **FACTS_ONLY)
    assert score.reason == (
        "Right statements in the answer 0 of 3, wrong 1, beyond the reference 2, missed of the reference 0 of 1; "
        "wrong: «a»; beyond the reference: «b»; beyond the reference: «c»."
    )
    marks = [(finding.verdict, finding.cites) for finding in score.findings]
    assert marks == [("FP", []), ("extra", ["1"]), ("extra", []), ("TP", [])]


def test_extras_are_rescored_by_the_other_rule_without_a_call():
    replies = [statements("a."), statements("x."), classification(extra={1: [1]})]
    report = evaluate([SAMPLE], answer_correctness(scripted(*replies), **FACTS_ONLY), progress=False)
    again = report.rescore(answer_correctness(scripted(), **FACTS_ONLY, extra="ignore"))
    assert again.rows[0].scores["answer_correctness"].value == 1.0


def similarity_of(*references, answer="A.", model=None, **options):
    sample = SAMPLE.model_copy(update={"answer": answer, "references": list(references)})
    return answer_similarity(model or Vectors(PLANE), **options).invoke(sample)


def logits(*scores):
    given_scores = iter(scores)
    return PairScores(lambda answer, reference: next(given_scores))


# Similarity: arithmetic


@each(
    ("references", "value"),
    [(["R."], 0.6), (["A."], 1.0), (["N."], 0.0), (["T."], 0.0), (["R.", "S."], 0.8), (["S.", "T.", "R."], 0.8)],
)
def test_it_is_the_clipped_cosine_with_the_nearest_reference(references, value):
    score = similarity_of(*references)
    assert (score.value, score.usage.calls) == (pytest.approx(value), 0)


@each(("threshold", "value"), [(0.0, 1.0), (0.5, 1.0), (0.6, 1.0), (0.61, 0.0), (1, 0.0), (1.0, 0.0)])
def test_with_a_threshold_it_is_one_when_the_similarity_reaches_it(threshold, value):
    assert similarity_of("R.", threshold=threshold).value == value


# Similarity: edges


@each("threshold", [None, 0.0])
@each("model", [Vectors({}), logits()])
def test_a_blank_answer_is_zero_and_blank_references_are_unscored_without_a_call(threshold, model):
    blank = similarity_of("R.", answer=" ", threshold=threshold, model=model)
    unscored = similarity_of(" ", threshold=threshold, model=model)
    assert (blank.value, unscored.unscored) == (0.0, "the references are blank")
    assert (blank.usage.embedded, unscored.usage.embedded, model.asked) == (0, 0, [])


def test_a_blank_reference_among_others_is_passed_over():
    score = similarity_of(" ", "R.", "", "S.")
    assert score.value == pytest.approx(0.8)
    assert [(finding.number, finding.text) for finding in score.findings] == [(2, "R."), (4, "S.")]


# Similarity by cross-encoders


def test_a_cross_encoder_reads_answer_and_reference():
    model = logits(0.25, 0.75)
    assert similarity_of("R.", "S.", model=model).value == 0.75
    assert model.asked == [[("A.", "R."), ("A.", "S.")]]


# What similarity tells


def test_the_reason_states_the_threshold():
    for question, reason in {
        "Where?": "Similarity to the reference: 0.60; the threshold is 0.5.",
        "Где?": "Сходство с эталоном: 0.60; порог 0.5.",
    }.items():
        sample = SAMPLE.model_copy(update={"question": question})
        assert answer_similarity(Vectors(PLANE), threshold=0.5).invoke(sample).reason == reason


ASKED = Sample(question="Where?", answer="There.")
QUESTIONS = {"Where?": [1, 0], "same": [2, 0], "near": [0.6, 0.8], "far": [0, 1], "against": [-1, 0], "Где?": [1, 0]}


def relevance_of(*replies, sample=ASKED, embeddings=None, **options):
    return answer_relevance(scripted(*replies), embeddings or Vectors(QUESTIONS), **options).invoke(sample)


# Relevance: arithmetic


def test_each_cosine_is_clipped_before_the_mean():
    values = {"same near far": (1 + 0.6 + 0) / 3, "same same same": 1.0, "same against": 0.5}
    values["same near far against"] = (1 + 0.6 + 0) / 3
    assert {told: relevance_of(questions(*told.split())).value for told in values} == pytest.approx(values)


# Relevance: calls


@each("count", [1, 3, 7])
def test_one_call_asks_for_all_questions_and_one_batch_embeds_them(count):
    judge, vectors = scripted(questions("near", "far")), Vectors(QUESTIONS)
    score = answer_relevance(judge, vectors, questions=count).invoke(ASKED)
    assert judge.inputs == [{"answer": "There.", "count": count}]
    assert vectors.asked == [["Where?", "near", "far"][: count + 1]]
    assert (score.usage.calls, score.usage.embedded) == (1, min(count, 2) + 1)


@pytest.mark.parametrize("answer", ["", " \n"])
def test_a_blank_answer_is_zero_without_any_call(answer):
    vectors = Vectors({})
    score = relevance_of(sample=ASKED.model_copy(update={"answer": answer}), embeddings=vectors)
    assert (score.value, score.usage.calls, vectors.asked) == (0.0, 0, [])


def test_draws_give_independent_questions():
    judge = scripted(questions("same"), questions("near", "far"), questions(evasive=True))
    score = answer_relevance(Judge(judge, draws=3), Vectors(QUESTIONS)).invoke(ASKED)
    assert score.value == pytest.approx((1 + 0.6 + 0) / 3)
    assert [finding.text for finding in score.findings] == ["same", "near", "far", "the answer"]
    assert (score.findings[-1].reason, score.usage.calls) == ("2 of 3 draws", 3)


def test_when_most_draws_call_the_answer_evasive_it_is_zero_and_nothing_is_embedded():
    evasive, vectors = questions(evasive=True), Vectors(QUESTIONS)
    judge = Judge(scripted(evasive, questions("same"), evasive), draws=3)
    assert (answer_relevance(judge, vectors).invoke(ASKED).value, vectors.asked) == (0.0, [])


def test_a_cross_encoder_may_compare_the_questions():
    model = PairScores(lambda asked, other: 0.25 if other == "near" else 0.75)
    assert relevance_of(questions("near", "far"), embeddings=model).value == 0.5
    assert model.asked == [[("Where?", "near"), ("Where?", "far")]]
