"""Options of all metrics: what is refused, what the instrument tells apart, the range; and scores that are known."""

import re
from functools import partial
from math import inf, nan

import pytest
from helpers.each import each, error_of
from helpers.labelled import dialogues, whole
from helpers.offline import METRICS, RICH, own_metric
from helpers.samples import REFUSAL, SAMPLE
from helpers.scripted import PairScores, Vectors, classification, grades, scripted, statements, verdict, verdicts
from helpers.stored import assert_stored, fixture_data, told

from langchain_rageval import (
    ConfigError,
    Criterion,
    HashingEmbeddings,
    Judge,
    NliVerifier,
    OfflineJudge,
    PromptSet,
    Sample,
    Value,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    bleu,
    chrf,
    citations,
    claim_metrics,
    context_precision,
    context_relevance,
    conversation_metrics,
    cross_encoder_grader,
    embedding_grader,
    evaluate,
    exact_match,
    faithfulness,
    hit_rate_at,
    id_grader,
    label_grader,
    llm_grader,
    map_at,
    mean_grade_at,
    mrr_at,
    ndcg_at,
    noise_sensitivity,
    precision_at,
    recall_at,
    rerank_gain,
    rouge,
    rubric,
    string_presence,
    suite,
)
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.steps import NeededSentences

JUDGE, VECTORS, RATER = scripted(), Vectors({}), PairScores(lambda *_: 0.5)
PRECISION = partial(context_precision, JUDGE)
CORRECTNESS = partial(answer_correctness, JUDGE, VECTORS)
RELEVANCE = partial(answer_relevance, JUDGE, VECTORS)
CRITIQUE = partial(aspect_critique, JUDGE)
CLAIMS = partial(claim_metrics, JUDGE)
GAIN = partial(rerank_gain, label_grader(), RATER)

RUBRIC, JUDGE_GRADER = partial(rubric, JUDGE), partial(llm_grader, JUDGE)
BINARY = (mrr_at, map_at, recall_at, precision_at, hit_rate_at)
RANKINGS = (*BINARY, ndcg_at, mean_grade_at)
CUTOFF = "k must be a whole number of at least 1, the number of leading chunks that count, got"
GRADERS = (
    "grader takes llm_grader(judge), cross_encoder_grader(ce), embedding_grader(embeddings), label_grader() or "
    "id_grader(), got "
)
THRESHOLD = "threshold must be a number, the lowest grade of a relevant chunk, got"
TOO_LOW = "would make every chunk relevant; it must be a grade above 0"
FAITHFULNESS = partial(faithfulness, JUDGE)
LABELS = ("contradiction", "entailment", "neutral")
VERIFIERS = [RATER, NliVerifier(RATER, threshold=0.9), NliVerifier(RATER, labels=LABELS)]
ABC = [Criterion(name, "d") for name in "abc"]
OTHER_A = [Criterion("a", "d", 2), Criterion("a", "other"), Criterion("a", "d", grades={0: "x"})]
ADD_EMBEDDINGS = "needs embeddings for the similarity; pass them or set weights=(1, 0)"
ADD_JUDGE = "needs a judge for the facts; pass one or set weights=(0, 1)"
FROM_0_TO_1 = "threshold must be a number from 0 to 1, or None, got"
NO_SCALE = "scale must be the lowest and the highest grade"
NO_RERANKER = "reranker must be a LangChain BaseCrossEncoder or BaseDocumentCompressor"
WEIGHTS = "weights must be two numbers of at least 0, for F and for the similarity, not both 0; got"
REFUSED = [
    (PRECISION, "weighting", ["ranked", None], "weighting must be one of rank, plain, got"),
    (PRECISION, "against", ["references"], "against must be one of auto, reference, answer, question, got"),
    (CORRECTNESS, "formula", ["f1"], "formula must be one of counts, precision_recall, got"),
    (CORRECTNESS, "extra", ["half"], "extra must be one of count, ignore, got"),
    (CORRECTNESS, "beta", [0, -1, nan, inf, 1e200, 1e-200, "1", None], "beta must be a number above 0, got"),
    (CORRECTNESS, "weights", [(-1, 2), (1, -0.1), (0, 0), (0.0, 0.0), (nan, 1), (1, inf), (1e308, 1e308)], WEIGHTS),
    (CORRECTNESS, "weights", [(1,), (1, 1, 1), (), ("1", 1), None, 0.75, "ab", (None, 1)], WEIGHTS),
    (partial(answer_correctness, JUDGE), "embeddings", [None], ADD_EMBEDDINGS),
    (partial(answer_correctness, embeddings=VECTORS), "judge", [None], ADD_JUDGE),
    (partial(answer_similarity, VECTORS), "threshold", [-0.1, 1.1, nan, inf, "0.5", [0.5]], FROM_0_TO_1),
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
    *((build, "k", [0, -1, 2.0, "5", True, None], CUTOFF) for build in RANKINGS),
    *((partial(build, 5), "grader", [JUDGE, "llm", llm_grader], GRADERS) for build in RANKINGS),
    *((partial(build, 5, label_grader()), "threshold", [nan, inf, "1", True], THRESHOLD) for build in BINARY),
    *((partial(build, 5, label_grader()), "threshold", [0, -1], TOO_LOW) for build in BINARY),
    (JUDGE_GRADER, "scale", [(4, 0), (1, 1), (0.0, 4), (False, True)], NO_SCALE),
    (JUDGE_GRADER, "scale", [(0,), (0, 1, 2), "04", None], "the lowest and the highest grade"),
    (JUDGE_GRADER, "pointwise", ["yes"], "pointwise is True or False, got"),
    (partial(cross_encoder_grader, RATER), "grades", [None, "logits"], "(raw logits cannot serve as grades), got"),
    (cross_encoder_grader, "ce", [VECTORS], "cross_encoder_grader takes a LangChain BaseCrossEncoder, got Vectors"),
    (embedding_grader, "embeddings", [RATER], "embedding_grader takes LangChain Embeddings, got PairScores"),
    (embedding_grader, "embeddings", [JUDGE], "embedding_grader takes LangChain Embeddings, got Scripted"),
    (partial(rerank_gain, label_grader()), "reranker", [VECTORS, "bge", None, lambda found: found], NO_RERANKER),
    (partial(ndcg_at, 5), "gain", ["log2"], "gain must be one of exp2, linear, got"),
    (GAIN, "gain", ["log"], "gain must be one of exp2, linear, got"),
    (GAIN, "k", [0], "k must be a whole number of at least 1"),
    (rouge, "variant", ["rougeLsum", "L", None], "variant must be one of rougeL, rouge1,"),
    (rouge, "of", ["f1"], "of must be one of fmeasure, precision, recall, got"),
    (bleu, "tokenize", ["ja-mecab", "spm", None, ""], "tokenize must be one of auto, 13a, intl, zh, char, got"),
    (chrf, "word_order", [-1, 3, 1.0, "2", None], "word_order is 0 for chrF, 1, or 2 for chrF++, got"),
]


@each(
    ("build", "option", "value", "message"),
    [(build, option, value, message) for build, option, values, message in REFUSED for value in values],
)
def test_an_invalid_option_is_refused_when_the_metric_is_built(build, option, value, message):
    told = f"{message} {value!r}" if message.endswith("got") else message
    with pytest.raises(ConfigError, match=re.escape(told)):
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
    (FAITHFULNESS, [{}, *({"verifier": one} for one in VERIFIERS)]),
    (FAITHFULNESS, [{"verifier": one} for one in (RATER, PairScores(lambda *_: 0.25))]),
    (JUDGE_GRADER, [{}, {"scale": (0, 3)}, {"pointwise": True}]),
    (partial(cross_encoder_grader, RATER), [{}, {"grades": "rank_from_0"}, {"grades": "sigmoid"}]),
    (RUBRIC, [{}, {"examples": "none"}, {"scale": (1, 5)}, {"criteria": ABC}, {"criteria": ABC[::-1]}]),
    (RUBRIC, [{"criteria": [one, *ABC[1:]]} for one in (*ABC[:1], *OTHER_A)]),
]


@each(("build", "options"), APART)
def test_the_instrument_tells_the_options_of_a_metric_apart(build, options):
    assert len({repr(build(**one).instrument) for one in options}) == len(options)
    assert build(**options[0]).instrument == build(**options[0]).instrument


def test_a_name_or_a_verifier_that_is_wrapped_is_no_part_of_the_instrument():
    assert RUBRIC(name="mine").instrument == RUBRIC().instrument
    assert FAITHFULNESS(verifier=NliVerifier(RATER)).instrument == FAITHFULNESS(verifier=RATER).instrument


def test_weights_may_be_a_list_and_a_part_of_weight_0_needs_no_model():
    assert answer_correctness(None, VECTORS, weights=(0, 1)).judges == []
    assert CORRECTNESS(weights=[0.75, 0.25]).instrument == CORRECTNESS().instrument


NO_TEXT = {"kind": "statement", "text": "", "verdict": ""}
NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer, got 'one'"
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
        (inf, {"range": (0, inf)}, "inf, not a finite number from 0 to inf"),
        (nan, {"range": (-inf, inf)}, "nan, not a finite number from -inf to inf"),
    ],
)
async def test_a_value_outside_the_range_is_an_error_that_names_metric_value_and_range(number, options, found):
    message = f"own gave {found}: correct its function, or declare its range with range=(lowest, highest)"
    assert str(error_of(ConfigError, always(number, **options).invoke, SAMPLE)) == message
    with pytest.raises(ConfigError, match=re.escape(message)):
        await always(number, **options).ainvoke(SAMPLE)


def test_a_declared_range_holds_and_a_rounding_error_is_removed():
    assert always(2.5, range=(0, 4)).invoke(SAMPLE).value == 2.5
    assert always(1.0000000000000002).invoke(SAMPLE).value == 1.0
    assert (always(-1e-9).invoke(SAMPLE).value, always(1 + 1e-9).invoke(SAMPLE).value) == (0.0, 1.0)
    for beyond in (-2e-9, 1 + 2e-9):
        with pytest.raises(ConfigError, match="not a finite number from 0 to 1"):
            always(beyond).invoke(SAMPLE)


def test_a_score_holds_the_range_unless_it_is_from_0_to_1():
    stored = {(0, 1): None, (0, 2): (0, 2), (-1, 1): (-1, 1), (0, inf): (0, None), (-inf, 1): (None, 1)}
    stored |= {(-inf, inf): (None, None)}
    assert {given: always(0.5, range=given).invoke(SAMPLE).range for given in stored} == stored


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
        (label_grader(), (-inf, inf), 1.0),
        (cross_encoder_grader(BY_LENGTH), (0, inf), None),
        (cross_encoder_grader(BY_LENGTH, "rank_from_0"), (0, inf), None),
        (cross_encoder_grader(BY_LENGTH, "sigmoid"), (0, 1), 0.5),
    ],
)
def test_mean_grades_have_the_range_of_the_grader_which_tells_from_which_grade_on_a_chunk_is_relevant(
    grader, expected, relevant_from
):
    assert (mean_grade_at(3, grader).range, grader.threshold) == (expected, relevant_from)
    assert ndcg_at(3, grader).range == (0, 1)


@each("given", ["0-1", (1,), (0, "1"), (1, 0), (0, 0), (nan, 1), (0, 1, 2), None])
def test_what_is_not_a_range_is_refused(given):
    expected = "range of own is its lowest and its highest value, such as (0, 1), got"
    assert str(error_of(ConfigError, always, 0.5, range=given)) == f"{expected} {given!r}"


@each(
    ("value", "problem"),
    [
        (Value(0.5, None), "gave an invalid Value: reason: Input should be a valid string, got None"),
        (Value(0.5, "", [{**NO_TEXT, "number": "one"}]), f"gave an invalid Value: findings.0.number: {NO_INTEGER}"),
        (Value(0.5, "", (), "nothing applies"), f"gave both a number and a cause why there is none: {REMEDY}"),
        *((Value(number), f"gave Value({number!r}), not a number: {REMEDY}") for number in ("0.5", None, [1])),
        *((made, f"gave {type(made).__name__}, not a Value: {REMEDY}") for made in (0.5, None, {"value": 0.5})),
    ],
)
def test_an_invalid_value_is_an_error_that_names_the_reducer(value, problem):
    own = always(0.5).model_copy(update={"reduce": lambda _: value})
    assert str(error_of(ConfigError, own.invoke, SAMPLE)) == f"reduce of own {problem}"


# What every metric tells about small samples in English and Russian, scored offline and compared whole


OFFLINE = OfflineJudge()
RANKED = (hit_rate_at, map_at, mean_grade_at, mrr_at, ndcg_at, precision_at, recall_at)
IDS = {"context_ids": ["d1", "d2"], "reference_context_ids": ["d1", "d7"], "relevance": {"d1": 2.0, "d7": 1.0}}
BARE = Sample(**SAMPLE)
REFUSING = Sample(**REFUSAL, references=["Munich was founded in 1158."])
EMPTY = Sample(question="Why?", answer="", contexts=[], references=["It is so."])
LONG = RICH[0].model_copy(update={"answer": " ".join(f"Munich has {n} bridges." for n in range(9))})
MARKED = [
    RICH[0].model_copy(update={"answer": "Munich was founded in 1158 [1]. It lies in Asia [2][9]. It is old. [3]"}),
    RICH[1].model_copy(update={"answer": "Страховка бани покрывает пожар [1]. Кража в полис входит [2]."}),
]
SAMPLES = [*RICH, LONG, REFUSING, EMPTY, BARE]


def stored(name, samples, metrics):
    report = evaluate(samples, metrics, progress=False, strict=False)
    assert_stored(name, "\n".join(f"# {row.index}\n{told(row.scores.values())}" for row in report.rows))
    assert_counted_again(report, metrics)


def assert_counted_again(report, metrics):
    """Rescore a report, but not the F score, whose findings are those of the best of several references."""
    for part in suite(*metrics).metrics:
        if part.name != "answer_correctness":
            assert report.rescore(part).rows == report.rows, part.name


@each("name", METRICS)
def test_a_metric_tells_what_is_stored_and_again_from_its_findings(name):
    stored(f"scores_{name.replace('@', '_')}.txt", SAMPLES, [METRICS[name](OFFLINE)])
    voted = METRICS[name](Judge(OFFLINE, draws=3))
    assert_counted_again(evaluate(RICH[:1], voted, progress=False), [voted])


def test_the_metrics_of_several_scores_tell_what_is_stored():
    stored("scores_of_claims.txt", SAMPLES, [claim_metrics(OFFLINE)])
    required = citations(OFFLINE, required=True, name="must")
    stored("scores_of_citations.txt", [*MARKED, BARE], [citations(OFFLINE), required])
    talks = [whole(one) for one in (*dialogues()[:3], *dialogues()[-3:])]
    stored("scores_of_conversations.txt", talks, [conversation_metrics(OFFLINE)])


def test_options_change_what_is_stored():
    critiques = [aspect_critique(OFFLINE, aspect) for aspect in ASPECTS]
    expected = aspect_critique(OFFLINE, "coherence", expected=True, name="expected")
    other = [exact_match(), rouge(), string_presence(), rubric(OFFLINE)]
    weighed = answer_correctness(OFFLINE, HashingEmbeddings(), weights=(0.5, 0.5), beta=2.0)
    stored("scores_with_options.txt", SAMPLES, [*critiques, expected, *other, weighed])


def test_rankings_tell_what_is_stored():
    known = [sample.model_copy(update=IDS) for sample in (BARE, RICH[1])]
    graders = {"id": id_grader(), "label": label_grader(), "vector": embedding_grader(HashingEmbeddings())}
    graders |= {"judge": llm_grader(OFFLINE), "one by one": llm_grader(OFFLINE, scale=(1, 3), pointwise=True)}
    for name, grader in graders.items():
        metrics = [build(2, grader) for build in RANKED if (build, name) != (mean_grade_at, "id")]
        stored(f"scores_of_rankings_by_{name.replace(' ', '_')}.txt", known, metrics)


# Hard cases of the definitions: an obedient judge gives the value that a person gave, by a rule of its prompt


CASES = fixture_data("hard_cases.yaml")
EVERY = [(language, case) for language, cases in CASES.items() for case in cases]
OF_HARD_CASES = {build.__name__: build for build in (faithfulness, context_precision, context_relevance)}
OF_HARD_CASES["answer_correctness"] = lambda judge: answer_correctness(judge, weights=(1, 0))


def replies(case):
    """What the judge answers to the requests of the case's metric, in order."""
    match case["metric"]:
        case "faithfulness":
            said = (verdict(number, label, *cited) for number, (label, *cited) in enumerate(case["verdicts"], 1))
            return [statements(*case["statements"]), verdicts(*said)]
        case "answer_correctness":
            lists = classification(case.get("tp"), case.get("fp", ()), case.get("fn", ()), case.get("extra"))
            return [statements(*case["statements"]), statements(*case["reference"]), lists]
        case "context_precision":
            return [grades(dict(enumerate(case["useful"], 1)))]
    return [NeededSentences(reason="r", sentences=case["sentences"])]


@each(("language", "case"), EVERY)
def test_an_obedient_judge_gives_the_value_of_a_person(language, case):
    sample = Sample(**{name: case[name] for name in Sample.model_fields if name in case})
    score = OF_HARD_CASES[case["metric"]](scripted(*replies(case))).invoke(sample)
    assert score.value == pytest.approx(case["value"], abs=0.05), case["kind"]


@each(("language", "case"), EVERY)
def test_the_prompt_has_the_rule_that_decides(language, case):
    assert case["rule"] in PromptSet.default(language).get(case["step"]).instruction


def test_there_are_as_many_cases_of_each_kind_in_both_languages():
    steps = [[(case["metric"], case["step"]) for case in cases] for cases in CASES.values()]
    assert len(CASES["en"]) == len(CASES["ru"]) >= 60
    assert steps[0] == steps[1]
