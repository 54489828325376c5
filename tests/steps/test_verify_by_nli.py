"""Statements verified by a cross-encoder: what it sees, how its scores are read, and what it cites."""

import math

import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.labelled import CONTEXTS, FIRE, METEOR, QUESTION, SAMPLE, THEFT, World
from helpers.scripted import PairScores, answering, statements
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import NliVerifier, answer_correctness, claim_metrics, context_recall, faithfulness, plan, suite
from langchain_rageval.errors import ConfigError, ModelOutputError

LABELS = ("contradiction", "entailment", "neutral")


def scored(verifier, *texts, contexts=("Горит баня. Тонет дом.", "Всё цело.")):
    sample = {"question": QUESTION, "answer": " ".join(("Ответ.", *texts)), "contexts": list(contexts)}
    return faithfulness(answering(lambda _: statements(*texts)), verifier=verifier).invoke(sample)


def by_words(premise, statement):
    """1 when the premise holds every word of the statement."""
    return float({*statement.rstrip(".").lower().split()} <= {*premise.replace(".", "").lower().split()})


# What it sees and cites


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


def test_what_only_a_whole_chunk_entails_cites_all_its_sentences():
    score = scored(PairScores(by_words), "Горит дом.")
    assert (score.value, score.findings[0].cites) == (1.0, ["1.1", "1.2"])


def test_every_chunk_that_entails_a_statement_is_cited():
    score = scored(PairScores(by_words), "Пожар.", contexts=["Был пожар. Да.", "Нет.", "Снова пожар."])
    assert score.findings[0].cites == ["1.1", "3.1"]


@pytest.mark.parametrize("contexts", [[], ["", " "]])
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


# How scores are read


@each(("threshold", "verdict"), [(0.5, "supported"), (0.7, "supported"), (0.71, "absent")])
def test_the_threshold_is_reached_from_where_it_stands(threshold, verdict):
    score = scored(NliVerifier(PairScores(lambda *_: 0.7), threshold=threshold), "Кража.")
    assert score.findings[0].verdict == verdict


def test_contradicted_takes_three_scores_a_pair():
    def three(premise, statement):
        return [0.9, 0.05, 0.05] if premise == "Всё цело." else [0.1, 0.1, 0.8]

    score = scored(NliVerifier(PairScores(three), labels=LABELS), "Сгорело всё.")
    assert [(f.verdict, f.reason, f.cites) for f in score.findings] == [("contradicted", "contradiction 0.90", ["2.1"])]
    one = scored(PairScores(lambda *pair: three(*pair)[1]), "Сгорело всё.")
    assert one.findings[0].verdict == "absent"


def test_support_outweighs_contradiction_elsewhere():
    def three(premise, _):
        return [0.9, 0.0, 0.1] if premise == "Всё цело." else [0.0, 0.8, 0.2]

    assert scored(NliVerifier(PairScores(three), labels=LABELS), "Горит.").findings[0].verdict == "supported"


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


@each(
    ("answer", "options", "complaint"),
    [
        (2.5, {}, f'{NOT_FROM_0_TO_1} 2.500; {AS_LOGITS}"sigmoid")'),
        ([2, 1, 0], WITH_LABELS, f'{NOT_FROM_0_TO_1} 2.000; {AS_LOGITS}"softmax")'),
        ([0.1, 0.2, 0.7], {}, f"the cross-encoder returned three scores a pair: {SAY_LABELS}"),
        (0.5, WITH_LABELS, f"expected three scores a pair, one for each of labels, {OF_SHAPE} (4,)"),
        ([0.5, 0.5], {}, f"expected one score a pair, {OF_SHAPE} (4, 2)"),
    ],
)
def test_scores_of_another_shape_or_range_are_refused(answer, options, complaint):
    verifier = NliVerifier(PairScores(lambda *_: answer), **options)
    assert str(error_of(ConfigError, scored, verifier, "Кража.")) == complaint


class Short(PairScores):
    def score(self, text_pairs):
        return [0.5]


@each(
    ("encoder", "complaint"),
    [
        (PairScores(lambda *_: math.nan), "the cross-encoder returned the score nan, which is not a finite number"),
        (PairScores(lambda *_: "high"), "the cross-encoder returned no numbers, but ['high', 'high', 'high', 'high']"),
        (Short(None), "the cross-encoder returned scores of the shape (1,) for 4 pairs"),
    ],
)
def test_what_are_no_scores_of_all_pairs_is_an_error_of_the_model(encoder, complaint):
    assert str(error_of(ModelOutputError, scored, encoder, "Кража.")) == complaint


@each(
    ("options", "complaint"),
    [
        ({"cross_encoder": "nli"}, "a verifier is a BaseCrossEncoder, or an NliVerifier of one; got str"),
        ({"threshold": 0}, "threshold must be a number above 0 and at most 1, got 0"),
        ({"threshold": 1.5}, "threshold must be a number above 0 and at most 1, got 1.5"),
        ({"labels": ["no"]}, "labels must be entailment, neutral, contradiction in the model's order, got ['no']"),
        ({"scale": "softmax"}, "scale is None or 'sigmoid' for one score a pair; three need labels=..., got 'softmax'"),
        ({"scale": "sigmoid", "labels": LABELS}, "scale is None or 'softmax' for three scores a pair, got 'sigmoid'"),
    ],
)
def test_an_invalid_option_is_refused_when_built(options, complaint):
    assert str(error_of(ConfigError, NliVerifier, **{"cross_encoder": PairScores(None), **options})) == complaint


# In metrics


def knows(premise, statement):
    """What the world's judge would say, sentence by sentence."""
    return float(CONTEXTS.index(premise) + 1 in World().supports.get(statement, ()))


def test_it_takes_the_judges_place_wherever_statements_are_verified():
    judge, nli = World().judge(), PairScores(knows)
    metrics = [build(judge, verifier=nli) for build in (faithfulness, context_recall, claim_metrics)]
    scores = suite(*metrics, answer_correctness(judge, weights=(1, 0))).invoke(SAMPLE)
    assert len(judge.asked) == 3
    assert len(nli.asked) == 2
    judged = suite(*(claim_metrics(World().judge()), faithfulness(judge), context_recall(judge))).invoke(SAMPLE)
    assert {name: scores[name].value for name in judged} == {name: score.value for name, score in judged.items()}
    assert tuple(f.text for f in scores["faithfulness"].findings if f.verdict == "supported") == (FIRE, THEFT, METEOR)


@pytest.mark.parametrize("options", [{}, {"labels": LABELS, "scale": "softmax"}])
def test_a_plan_asks_nobody(options):
    nli = PairScores(lambda *_: pytest.fail("a plan scores nothing"))
    metrics = claim_metrics(World().judge(), verifier=NliVerifier(nli, **options))
    planned = plan([SAMPLE], metrics)
    assert (planned.calls, planned.notes) == (3, [])
