"""Similarity of texts by embeddings, cross-encoders or words, and statements verified by a cross-encoder."""

import asyncio
import math
import threading

import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.labelled import CONTEXTS, FIRE, METEOR, QUESTION, SAMPLE, THEFT, World
from helpers.scripted import PairScores, Vectors, answering, scripted, statements
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langchain_rageval import NliVerifier, answer_correctness, claim_metrics, context_recall, faithfulness, plan, suite
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.steps.measure_similarity import compare_texts, measure_similarity

PLANE = {"east": [1, 0], "north": [0, 2], "west": [-3, 0], "north-east": [1, 1], "east again": [7, 0]}


def pairs(state):
    return state["one"], state["others"]


def similarities(model, one, *others, scale=None):
    return measure_similarity(model, pairs, scale=scale).invoke({"one": one, "others": others})["similarities"]


def test_all_texts_go_out_together_each_once():
    vectors = Vectors(PLANE)
    assert similarities(vectors, "east", "north", "east", "north") == [0.0, 1.0, 0.0]
    assert vectors.asked == [["east", "north"]]


@pytest.mark.parametrize("model", [Vectors({}), PairScores(lambda one, other: 0.5)])
def test_without_others_no_model_is_called(model):
    assert similarities(model, "east") == []
    assert model.asked == []


finite = st.floats(-1e300, 1e300, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-100)
vectors_of_three = arrays(float, 3, elements=finite).filter(lambda vector: np.any(vector))


@given(vectors_of_three, vectors_of_three)
def test_any_two_vectors_have_a_similarity_from_0_to_1_that_has_no_order_and_equal_ones_exactly_1(one, other):
    model = Vectors({"a": one, "b": other, "equal": list(one)})
    (forth, equal), (back,) = similarities(model, "a", "b", "equal"), similarities(model, "b", "a")
    assert (forth, equal) == (back, 1.0)
    assert 0.0 <= forth <= 1.0


@given(arrays(float, 4, elements=st.floats(-1, 1)), arrays(float, 4, elements=st.floats(-1, 1)))
def test_it_is_the_cosine(one, other):
    lengths = math.hypot(*one) * math.hypot(*other)
    if lengths > 1e-6:
        expected = max(0.0, math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths)
        assert similarities(Vectors({"a": one, "b": other}), "a", "b") == [pytest.approx(expected, abs=1e-9)]


NOT_FINITE = "numbers that are not finite"


NO_DIRECTION = [
    ([0.0, 0.0], "a zero vector"),
    ([], "a zero vector"),
    *((vector, NOT_FINITE) for vector in ([math.nan, 1.0], [math.inf, 1.0], [-math.inf, 0.0], [0.0, math.nan])),
]


@each(("bad", "problem"), NO_DIRECTION)
@each("place", ["a", "b"])
def test_a_vector_without_a_direction_is_an_error_that_names_the_text(bad, problem, place):
    model = Vectors({"a": [1.0, 2.0], "b": [1.0, 2.0], place: bad})
    stage, state = measure_similarity(model, pairs), {"one": "a", "others": ["b"]}
    for call in (stage.invoke, lambda state: asyncio.run(stage.ainvoke(state))):
        error = error_of(ModelOutputError, call, state)
        assert str(error) == f"the embeddings returned {problem} for '{place}'"
        assert error.rageval_step == "measure_similarity"


def test_vectors_of_different_lengths_are_an_error():
    model = Vectors({"a": [1, 2], "b": [1, 2, 3]})
    assert "lengths 2 and 3" in str(error_of(ModelOutputError, similarities, model, "a", "b"))


def test_lone_surrogates_reach_no_model():
    vectors = Vectors(answer=lambda text: [1.0])
    assert similarities(vectors, "half \ud83d", "half \ud83e") == [1.0]
    assert vectors.asked == [["half \ufffd"]]


# Cross-encoders


async def test_a_cross_encoder_does_not_hold_up_the_event_loop():
    own = threading.current_thread()
    model = PairScores(lambda *_: float(threading.current_thread() is not own))
    made = await measure_similarity(model, pairs).ainvoke({"one": "a", "others": ["b"]})
    assert made["similarities"] == [1.0]


def test_a_cross_encoder_reads_the_pairs_in_order():
    model = PairScores(lambda one, other: {"b": 0.25, "c": 1, "d": 0}[other])
    assert similarities(model, "a", "b", "c", "d") == [0.25, 1.0, 0.0]
    assert model.asked == [[("a", "b"), ("a", "c"), ("a", "d")]]


@each(
    ("logit", "expected"),
    [(0, 0.5), (math.log(3), 0.75), (-math.log(3), 0.25), (1000, 1.0), (-1000, 0.0), (745.2, 1.0)],
)
def test_sigmoid_maps_logits_to_0_to_1(logit, expected):
    assert similarities(PairScores(lambda one, other: logit), "a", "b", scale="sigmoid") == [pytest.approx(expected)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_sigmoid_takes_any_logit(logit):
    (similarity,) = similarities(PairScores(lambda one, other: logit), "a", "b", scale="sigmoid")
    assert 0.0 <= similarity <= 1.0


@each("score", [-0.01, 1.001, 7.5, -11.2])
def test_scores_outside_0_to_1_are_refused_with_the_option_for_logits(score):
    assert str(error_of(ConfigError, similarities, PairScores(lambda one, other: score), "a", "b")) == (
        f"the cross-encoder's scores are not from 0 to 1, got {score:.3f}; if they are logits, "
        'say scale="sigmoid" (an option of answer_similarity)'
    )


@each("scale", [None, "sigmoid"])
@each("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_an_error(scale, score):
    error = error_of(ModelOutputError, similarities, PairScores(lambda one, other: score), "a", "b", scale=scale)
    assert str(error) == f"the cross-encoder returned the score {score}, which is not a finite number"


class Short(PairScores):
    """Model that returns one score for any number of pairs."""

    def score(self, text_pairs):
        return [0.5]


def test_fewer_scores_than_pairs_are_an_error():
    assert "1 scores for 2 pairs" in str(error_of(ModelOutputError, similarities, Short(None), "a", "b", "c"))


NO_MODEL = "similarity takes LangChain Embeddings or a BaseCrossEncoder, got"


NOT_COMPARABLE = [
    (None, None, f"{NO_MODEL} NoneType"),
    ("openai:small", None, f"{NO_MODEL} str"),
    (scripted(), None, f"{NO_MODEL} Scripted"),
    (PairScores(None), "log", """scale is None or "sigmoid", got 'log'"""),
    (Vectors({}), "sigmoid", "scale is for a cross-encoder's scores; cosines need none"),
]


@each(("model", "scale", "message"), NOT_COMPARABLE)
def test_what_cannot_compare_texts_and_a_scale_that_does_not_fit_are_refused(model, scale, message):
    assert str(error_of(ConfigError, measure_similarity, model, pairs, scale=scale)) == message


def test_the_cosine_of_vectors_that_are_nearly_equal_is_never_above_1():
    rng = np.random.default_rng(0)
    one = rng.normal(size=7)
    others = {str(number): one * (1 + rng.normal(size=7) * 1e-15) for number in range(300)}
    assert max(similarities(Vectors({"one": one, **others}), "one", *others)) == 1.0


def found(measure, one, *others):
    stage = compare_texts(measure, lambda state: (one, others), source="mine 1")
    sync, later = stage.invoke({}), asyncio.run(stage.ainvoke({}))
    assert sync == later
    return sync["similarities"]


def test_both_sides_are_folded_what_is_equal_is_one_and_nothing_is_above_one():
    asked = set()
    assert found(lambda *pair: asked.add(pair) or 1.0000000004, "  ЁЖ ", "Кот\nи ёж") == [1.0]
    assert asked == {("еж", "кот и еж")}
    assert found(lambda *_: 0.2, "ЁЖ", "еж", "уж") == [1.0, 0.2]
    assert found(lambda *_: 0.2, "ЁЖ") == []


def test_the_source_is_part_of_the_instrument():
    stages = [compare_texts(max, lambda _: ("", []), source=source) for source in ("mine 1", "mine 2")]
    assert stages[0].instrument != stages[1].instrument
    assert list(stages[0].models) == list(stages[0].judges) == []


# Statements verified by a cross-encoder: what it sees, how its scores are read, and what it cites

LABELS = ("contradiction", "entailment", "neutral")


def scored(verifier, *texts, contexts=("Горит баня. Тонет дом.", "Всё цело.")):
    sample = {"question": QUESTION, "answer": " ".join(("Ответ.", *texts)), "contexts": list(contexts)}
    return faithfulness(answering(lambda _: statements(*texts)), verifier=verifier).invoke(sample)


def by_words(premise, statement):
    """1 when the premise holds every word of the statement."""
    return float({*statement.rstrip(".").lower().split()} <= {*premise.replace(".", "").lower().split()})


def test_each_statement_is_held_against_every_sentence_and_every_chunk_of_several():
    nli = PairScores(by_words)
    score = scored(nli, "Горит баня.", "Кража.")
    premises = ["Горит баня.", "Тонет дом.", "Горит баня. Тонет дом.", "Всё цело."]
    assert nli.asked == [[(premise, text) for text in ("Горит баня.", "Кража.") for premise in premises]]
    assert [(f.kind, f.number, f.text, f.verdict, f.reason, f.cites) for f in score.findings] == [
        ("statement", 1, "Горит баня.", "supported", "entailment 1.00", ["1.1"]),
        ("statement", 2, "Кража.", "absent", "entailment 0.00", []),
    ]
    assert (score.value, score.usage.calls) == (0.5, 1)


def test_every_chunk_that_entails_a_statement_is_cited_with_all_its_sentences_if_none_entails_it_alone():
    score = scored(PairScores(by_words), "Горит дом.")
    assert (score.value, score.findings[0].cites) == (1.0, ["1.1", "1.2"])
    score = scored(PairScores(by_words), "Пожар.", contexts=["Был пожар. Да.", "Нет.", "Снова пожар."])
    assert score.findings[0].cites == ["1.1", "3.1"]


@each("contexts", [[], ["", " "]])
def test_without_contexts_nothing_is_scored_and_nothing_supported(contexts):
    nli = PairScores(by_words)
    assert scored(nli, "Кража.", contexts=contexts).value == 0.0
    assert nli.asked == []


def test_many_statements_go_in_tens():
    nli = PairScores(by_words)
    score = scored(nli, *(f"Случай {n}." for n in range(23)), contexts=["Случай 7."])
    assert [len(pairs) for pairs in nli.asked] == [10, 10, 3]
    assert [f.number for f in score.findings if f.verdict == "supported"] == [8]
    assert [f.number for f in score.findings] == list(range(1, 24))


@each(("threshold", "verdict"), [(0.5, "supported"), (0.7, "supported"), (0.71, "absent")])
def test_the_threshold_is_reached_from_where_it_stands(threshold, verdict):
    score = scored(NliVerifier(PairScores(lambda *_: 0.7), threshold=threshold), "Кража.")
    assert score.findings[0].verdict == verdict


def test_contradicted_takes_three_scores_a_pair_and_support_elsewhere_outweighs_it():
    def three(premise, statement):
        return [0.9, 0.05, 0.05] if premise == "Всё цело." else [0.1, 0.1, 0.8]

    score = scored(NliVerifier(PairScores(three), labels=LABELS), "Сгорело всё.")
    assert [(f.verdict, f.reason, f.cites) for f in score.findings] == [("contradicted", "contradiction 0.90", ["2.1"])]
    one = scored(PairScores(lambda *pair: three(*pair)[1]), "Сгорело всё.")
    assert one.findings[0].verdict == "absent"
    both = PairScores(lambda premise, _: [0.9, 0.0, 0.1] if premise == "Всё цело." else [0.0, 0.8, 0.2])
    assert scored(NliVerifier(both, labels=LABELS), "Горит.").findings[0].verdict == "supported"


def test_labels_may_be_a_list():
    encoder = PairScores(None)
    assert NliVerifier(encoder, labels=[*LABELS]) == NliVerifier(encoder, labels=tuple(LABELS))


@given(st.lists(st.floats(-800, 800), min_size=3, max_size=3), st.permutations(LABELS))
def test_three_logits_are_read_by_their_labels_in_any_order(logits, labels):
    verifier = NliVerifier(PairScores(None), labels=labels, scale="softmax")
    entailed, contradicted = verifier._probabilities(np.array([logits]), 1)
    powers = {label: math.exp(logit - max(logits)) for label, logit in zip(labels, logits, strict=True)}
    assert entailed[0] == pytest.approx(powers["entailment"] / sum(powers.values()))
    assert contradicted[0] == pytest.approx(powers["contradiction"] / sum(powers.values()))


@given(st.floats(-1e6, 1e6))
def test_one_logit_is_read_by_the_logistic_curve(logit):
    (entailed,), (contradicted,) = NliVerifier(PairScores(None), scale="sigmoid")._probabilities(np.array([logit]), 1)
    assert 0 <= entailed <= 1
    assert (entailed >= 0.5) == (logit >= 0) or abs(logit) < 1e-12
    assert contradicted == 0


NOT_FROM_0_TO_1 = "the cross-encoder's scores are not from 0 to 1, got"
AS_LOGITS = "if they are logits, say NliVerifier(cross_encoder, ..., scale="
SAY_LABELS = 'say NliVerifier(cross_encoder, labels=("contradiction", "entailment", "neutral")) in its order'
OF_SHAPE = "but the cross-encoder returned scores of shape"
WITH_LABELS = {"labels": LABELS}


WRONG_SCORES = [
    (2.5, {}, f'{NOT_FROM_0_TO_1} 2.500; {AS_LOGITS}"sigmoid")'),
    ([2, 1, 0], WITH_LABELS, f'{NOT_FROM_0_TO_1} 2.000; {AS_LOGITS}"softmax")'),
    ([0.1, 0.2, 0.7], {}, f"the cross-encoder returned three scores a pair: {SAY_LABELS}"),
    (0.5, WITH_LABELS, f"expected three scores a pair, one for each of labels, {OF_SHAPE} (4,)"),
    ([0.5, 0.5], {}, f"expected one score a pair, {OF_SHAPE} (4, 2)"),
]


@each(("answer", "options", "complaint"), WRONG_SCORES)
def test_scores_of_another_shape_or_range_are_refused(answer, options, complaint):
    verifier = NliVerifier(PairScores(lambda *_: answer), **options)
    assert str(error_of(ConfigError, scored, verifier, "Кража.")) == complaint


NO_SCORES = [
    (PairScores(lambda *_: math.nan), "the cross-encoder returned the score nan, which is not a finite number"),
    (PairScores(lambda *_: "high"), "the cross-encoder returned no numbers, but ['high', 'high', 'high', 'high']"),
    (Short(None), "the cross-encoder returned scores of the shape (1,) for 4 pairs"),
]


@each(("encoder", "complaint"), NO_SCORES)
def test_what_are_no_scores_of_all_pairs_is_an_error_of_the_model(encoder, complaint):
    assert str(error_of(ModelOutputError, scored, encoder, "Кража.")) == complaint


WRONG_OPTIONS = [
    ({"cross_encoder": "nli"}, "a verifier is a BaseCrossEncoder, or an NliVerifier of one; got str"),
    ({"threshold": 0}, "threshold must be a number above 0 and at most 1, got 0"),
    ({"threshold": 1.5}, "threshold must be a number above 0 and at most 1, got 1.5"),
    ({"labels": ["no"]}, "labels must be entailment, neutral, contradiction in the model's order, got ['no']"),
    ({"scale": "softmax"}, "scale is None or 'sigmoid' for one score a pair; three need labels=..., got 'softmax'"),
    ({"scale": "sigmoid", "labels": LABELS}, "scale is None or 'softmax' for three scores a pair, got 'sigmoid'"),
]


@each(("options", "complaint"), WRONG_OPTIONS)
def test_an_invalid_option_is_refused_when_built(options, complaint):
    assert str(error_of(ConfigError, NliVerifier, **{"cross_encoder": PairScores(None), **options})) == complaint


# In metrics


def test_it_takes_the_judges_place_wherever_statements_are_verified():
    def knows(premise, statement):
        """What the world's judge would say, sentence by sentence."""
        return float(CONTEXTS.index(premise) + 1 in World().supports.get(statement, ()))

    judge, nli = World().judge(), PairScores(knows)
    metrics = [build(judge, verifier=nli) for build in (faithfulness, context_recall, claim_metrics)]
    scores = suite(*metrics, answer_correctness(judge, weights=(1, 0))).invoke(SAMPLE)
    assert len(judge.asked) == 3
    assert len(nli.asked) == 2
    judged = suite(*(claim_metrics(World().judge()), faithfulness(judge), context_recall(judge))).invoke(SAMPLE)
    assert {name: scores[name].value for name in judged} == {name: score.value for name, score in judged.items()}
    assert tuple(f.text for f in scores["faithfulness"].findings if f.verdict == "supported") == (FIRE, THEFT, METEOR)


@each("options", [{}, {"labels": LABELS, "scale": "softmax"}])
def test_a_plan_asks_nobody(options):
    nli = PairScores(lambda *_: pytest.fail("a plan scores nothing"))
    metrics = claim_metrics(World().judge(), verifier=NliVerifier(nli, **options))
    planned = plan([SAMPLE], metrics)
    assert (planned.calls, planned.notes) == (3, [])
