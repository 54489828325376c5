"""Options of the metrics: what is refused when a metric is built, and what the instrument tells apart."""

import re
from functools import partial
from math import inf, nan

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, scripted

from langchain_rageval import (
    ConfigError,
    Criterion,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    bleu,
    chrf,
    claim_metrics,
    context_precision,
    label_grader,
    llm_grader,
    ndcg_at,
    noise_sensitivity,
    rerank_gain,
    rouge,
    rubric,
)

JUDGE, VECTORS, RATER = scripted(), Vectors({}), PairScores(lambda *_: 0.5)
PRECISION = partial(context_precision, JUDGE)
CORRECTNESS = partial(answer_correctness, JUDGE, VECTORS)
RELEVANCE = partial(answer_relevance, JUDGE, VECTORS)
CRITIQUE = partial(aspect_critique, JUDGE)
CLAIMS = partial(claim_metrics, JUDGE)
GAIN = partial(rerank_gain, label_grader(), RATER)

RUBRIC = partial(rubric, JUDGE)
ABC = [Criterion(name, "d") for name in "abc"]
OTHER_A = [Criterion("a", "d", 2), Criterion("a", "other"), Criterion("a", "d", grades={0: "x"})]
WEIGHTS = "weights must be two numbers of at least 0, for F and for the similarity, not both 0; got"
REFUSED = [
    (PRECISION, "weighting", ["ranked", None], "weighting must be one of rank, plain, got"),
    (PRECISION, "against", ["references"], "against must be one of auto, reference, answer, question, got"),
    (CORRECTNESS, "formula", ["f1"], "formula must be one of counts, precision_recall, got"),
    (CORRECTNESS, "extra", ["half"], "extra must be one of count, ignore, got"),
    (CORRECTNESS, "beta", [0, -1, nan, inf, 1e200, 1e-200, "1", None], "beta must be a number above 0, got"),
    (CORRECTNESS, "weights", [(-1, 2), (1, -0.1), (0, 0), (0.0, 0.0), (nan, 1), (1, inf), (1e308, 1e308)], WEIGHTS),
    (CORRECTNESS, "weights", [(1,), (1, 1, 1), (), ("1", 1), None, 0.75, "ab", (None, 1)], WEIGHTS),
    (
        partial(answer_correctness, JUDGE),
        "embeddings",
        [None],
        "needs embeddings for the similarity; pass them or set weights=(1, 0)",
    ),
    (
        partial(answer_correctness, embeddings=VECTORS),
        "judge",
        [None],
        "needs a judge for the facts; pass one or set weights=(0, 1)",
    ),
    (
        partial(answer_similarity, VECTORS),
        "threshold",
        [-0.1, 1.1, nan, inf, "0.5", [0.5]],
        "threshold must be a number from 0 to 1, or None, got",
    ),
    (RELEVANCE, "questions", [0, -1, 1.5, True, "3", None, nan], "questions must be a whole number of at least 1, got"),
    (CRITIQUE, "aspect", ["tone"], "'tone' is none of harmfulness, maliciousness, coherence, correctness, conciseness"),
    (partial(CRITIQUE, definition="x"), "aspect", [""], "'' is none of"),
    (partial(CRITIQUE, "tone"), "definition", [" "], "the definition of 'tone' is blank"),
    (partial(CRITIQUE, "coherence"), "definition", [""], "the definition of 'coherence' is blank"),
    (partial(CRITIQUE, "tone"), "definition", [["polite"]], "the definition of 'tone' must be a str, got list"),
    (partial(CRITIQUE, "coherence"), "direction", ["up"], 'direction is "higher" or "lower", got'),
    (CLAIMS, "attribution", ["by chunk"], "attribution must be one of cited, per_chunk, got"),
    (CLAIMS, "name", [""], "name must be the prefix of the scores' names, got an empty string"),
    (CLAIMS, "verifier", ["nli"], "a verifier is a BaseCrossEncoder, or an NliVerifier of one; got str"),
    (partial(noise_sensitivity, JUDGE), "mode", ["all"], "mode must be one of relevant, irrelevant, got"),
    (partial(ndcg_at, 5), "gain", ["log2"], "gain must be one of exp2, linear, got"),
    (GAIN, "gain", ["log"], "gain must be one of exp2, linear, got"),
    (GAIN, "k", [0], "k must be a whole number of at least 1"),
    (rouge, "variant", ["rougeLsum", "L", None], "variant must be one of rougeL, rouge1,"),
    (rouge, "of", ["f1"], "of must be one of fmeasure, precision, recall, got"),
    (bleu, "tokenize", ["ja-mecab", "spm", None, ""], "tokenize must be one of auto, 13a, intl, zh, char, got"),
    (chrf, "word_order", [-1, 3, 1.0, "2", None], "word_order is 0 for chrF, 1, or 2 for chrF++, got"),
]


@each(("build", "option", "values", "message"), REFUSED)
def test_an_invalid_option_is_refused_when_the_metric_is_built(build, option, values, message):
    for value in values:
        with pytest.raises(ConfigError, match=re.escape(message)):
            build(**{option: value})


APART = [
    (PRECISION, [{}, {"weighting": "plain"}, {"against": "reference"}, {"against": "answer"}, {"against": "question"}]),
    (CORRECTNESS, [{}, {"weights": (0.5, 0.5)}, {"beta": 2.0}, {"formula": "precision_recall"}, {"weights": (1, 0)}]),
    (CORRECTNESS, [{}, {"extra": "ignore"}]),
    (partial(answer_similarity, VECTORS), [{}, {"threshold": 0.0}, {"threshold": 0.5}]),
    (answer_similarity, [{"model": VECTORS}, {"model": RATER}, {"model": RATER, "scale": "sigmoid"}]),
    (RELEVANCE, [{"questions": 1}, {"questions": 2}, {}]),
    (CRITIQUE, [{"aspect": "coherence"}, {"aspect": "conciseness"}]),
    (partial(CRITIQUE, "coherence"), [{}, {"definition": "x"}, {"definition": "y"}]),
    (CRITIQUE, [{"aspect": name, "definition": "x"} for name in ("coherence", "tone")]),
    (rouge, [{"variant": f"rouge{n}", "of": of} for n in (*"1234", "L") for of in ("precision", "recall", "fmeasure")]),
    (partial(noise_sensitivity, JUDGE), [{}, {"mode": "irrelevant"}, {"attribution": "per_chunk"}]),
    (bleu, [{}, {"tokenize": "13a"}]),
    (chrf, [{"word_order": order} for order in (0, 1, 2)]),
    (partial(llm_grader, JUDGE), [{}, {"scale": (0, 3)}, {"pointwise": True}]),
    (RUBRIC, [{}, {"examples": "none"}, {"scale": (1, 5)}, {"criteria": ABC}, {"criteria": ABC[::-1]}]),
    (RUBRIC, [{"criteria": [one, *ABC[1:]]} for one in (*ABC[:1], *OTHER_A)]),
]


@each(("build", "options"), APART)
def test_the_instrument_tells_the_options_of_a_metric_apart(build, options):
    assert len({repr(build(**one).instrument) for one in options}) == len(options)
    assert build(**options[0]).instrument == build(**options[0]).instrument


def test_a_name_is_no_part_of_the_instrument():
    assert RUBRIC(name="mine").instrument == RUBRIC().instrument


def test_weights_may_be_a_list_and_a_part_of_weight_0_needs_no_model():
    assert answer_correctness(None, VECTORS, weights=(0, 1)).judges == []
    assert CORRECTNESS(weights=[0.75, 0.25]).instrument == CORRECTNESS().instrument
