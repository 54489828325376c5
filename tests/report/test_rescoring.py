"""Other options from what was found before: the same as evaluated anew, and nothing is asked."""

from dataclasses import replace
from functools import partial

import pytest
from helpers.each import each
from helpers.offline import RICH, rag_samples
from helpers.reports import failed, row, scored
from helpers.scripted import PairScores, Vectors, answering, human_of, offline_reply

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    Metric,
    OfflineJudge,
    Report,
    Row,
    Sample,
    SampleError,
    Score,
    Value,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    exact_match,
    faithfulness,
    rouge,
    rubric,
    suite,
)
from langchain_rageval.report.rescoring import join_reports

EMBEDDINGS = HashingEmbeddings()
WORDS = PairScores(lambda one, other: len({*one.split()} & {*other.split()}) / len({*one.split(), *other.split()}))
LOGITS = PairScores(lambda one, other: len(one) - len(other))

FULL = RICH[1].model_dump(exclude={"id"})
EDGES = [
    Sample(**{**FULL, "id": name, **given})
    for name, given in {
        "blank answer": {"answer": " "},
        "refusal": {"answer": "Я не знаю."},
        "refusal that is right": {"answer": "Не знаю.", "references": ["В договоре не указано."]},
        "nothing retrieved": {"contexts": []},
        "blank contexts": {"contexts": ["", " \n"]},
        "blank reference": {"references": [" "]},
        "blank reference first": {"references": ["", *FULL["references"]]},
        "blank reference first, nothing shared": {"references": ["", "Реки впадают в море."]},
        "reference without facts": {"references": ["Не указано."]},
        "all equal": {"answer": FULL["references"][0], "contexts": FULL["references"]},
        "English": {"question": "What does it cover?", "answer": "It covers fire."},
    }.items()
]
SEVERAL = [
    Sample(**{**FULL, "id": "several", "references": ["Страховка бани покрывает кражу.", *FULL["references"]]}),
    Sample(**{**FULL, "id": "several, one blank", "references": [" ", *FULL["references"], "Полис покрывает кражу."]}),
]
ONE_REFERENCE = [*RICH[1:], *EDGES, *(s for s in rag_samples(6) if len(s.references) == 1)]
ALL = [*RICH, *EDGES, *SEVERAL, *rag_samples(6)]


def forbidden(*_):
    raise AssertionError("rescoring asks nobody")


NOBODY = answering(forbidden)
NO_VECTORS = Vectors(answer=forbidden)
NO_PAIRS = PairScores(forbidden)


def told(report):
    """All that the scores say but what they cost, and by whom."""
    return [{n: s.model_dump(exclude={"usage", "instrument"}) for n, s in row.scores.items()} for row in report.rows]


def scores_of(samples, *metrics, **options):
    return evaluate(samples, list(metrics), progress=False, **options)


def similarity(model, **fixed):
    return lambda _, **options: answer_similarity(model, **fixed, **options)


WITH_BOTH, OF_FACTS = partial(answer_correctness, embeddings=EMBEDDINGS), {"weights": (1, 0)}
FORMULAS = [{"weights": (0.5, 0.5)}, {"weights": (1, 0)}, {"beta": 2.0}]
FORMULAS += [{**one, "formula": "precision_recall"} for one in ({"weights": (3, 1)}, {"beta": 0.5})]
OTHER_FORMULAS = [{**OF_FACTS, "beta": 3.0}, {**OF_FACTS, "formula": "precision_recall"}]
OF_SIMILARITY = partial(answer_correctness, embeddings=WORDS)
AGAINST_ANSWER, COHERENCE = partial(context_precision, against="answer"), partial(aspect_critique, aspect="coherence")
CHANGES = {
    "faithfulness": (faithfulness, {}, [{}], ALL),
    "context_recall": (context_recall, {}, [{}], ALL),
    "context_relevance": (context_relevance, {}, [{}], ALL),
    "context_precision": (context_precision, {}, [{"weighting": "plain"}, {"weighting": "rank"}], ALL),
    "context_precision, one ground": (AGAINST_ANSWER, {"weighting": "plain"}, [{"weighting": "rank"}], ALL),
    "conciseness": (partial(aspect_critique, aspect="conciseness"), {}, [{}], ALL),
    "coherence": (COHERENCE, {}, [{"direction": "lower"}, {"direction": "higher"}], ALL),
    "answer_relevance": (partial(answer_relevance, embeddings=EMBEDDINGS), {}, [{}], ALL),
    "answer_similarity": (similarity(EMBEDDINGS), {}, [{"threshold": t} for t in (0, 0.3, 0.7, 1)], ALL),
    "answer_similarity, threshold": (similarity(EMBEDDINGS), {"threshold": 0.5}, [{}, {"threshold": 0.9}], ALL),
    "answer_similarity of a cross-encoder": (similarity(WORDS), {}, [{"threshold": 0.2}], ALL),
    "answer_similarity of logits": (similarity(LOGITS, scale="sigmoid"), {}, [{"threshold": 0.5}], ALL),
    "answer_correctness": (WITH_BOTH, {}, FORMULAS, ONE_REFERENCE),
    "answer_correctness of facts": (answer_correctness, OF_FACTS, OTHER_FORMULAS, ONE_REFERENCE),
    "answer_correctness of similarity": (OF_SIMILARITY, {"weights": (0, 1)}, [{"weights": (0, 2)}], ALL),
}
CASES = [(build, before, after, samples) for build, before, afters, samples in CHANGES.values() for after in afters]
NAMES = [f"{name} {before} to {after}" for name, (_, before, afters, _) in CHANGES.items() for after in afters]


@pytest.mark.gate
@pytest.mark.parametrize("draws", [3, pytest.param(1, marks=pytest.mark.gate)])
@each(("build", "before", "after", "samples"), CASES, ids=NAMES)
def test_it_is_as_if_evaluated_anew(build, before, after, samples, draws):
    judge = Judge(OfflineJudge(), draws=draws)
    anew = build(judge, **after)
    report = scores_of(samples, build(judge, **before))
    rescored = report.rescore(anew)

    assert told(rescored) == told(scores_of(samples, anew))
    assert rescored.notes == report.notes
    scores = [score for row in rescored.rows for score in row.scores.values()]
    assert {score.counted_by for score in scores} == {anew.instrument.partition(".")[2]}
    found = [finding.kind for score in scores for finding in score.findings]
    asks_for_verdicts = any(judge.draws > 1 for judge in anew.judges)
    assert ("agreement" in found) == asks_for_verdicts
    assert [row.sample for row in rescored.rows] == samples


@each(
    ("build", "after"),
    [
        (lambda judge, _, **o: faithfulness(judge, **o), {}),
        (lambda judge, _, **o: context_precision(judge, **o), {"weighting": "plain"}),
        (answer_correctness, {"beta": 2.0}),
        (answer_relevance, {}),
        (lambda _, embeddings, **o: answer_similarity(embeddings, **o), {"threshold": 0.5}),
    ],
    ids=["faithfulness", "context_precision", "answer_correctness", "answer_relevance", "answer_similarity"],
)
def test_rescoring_calls_no_model(build, after):
    report = scores_of(ONE_REFERENCE, build(OfflineJudge(), EMBEDDINGS))
    rescored = report.rescore(build(NOBODY, NO_VECTORS, **after))
    assert told(rescored) == told(scores_of(ONE_REFERENCE, build(OfflineJudge(), EMBEDDINGS, **after)))
    assert NOBODY.asked == [] == NO_VECTORS.asked


# What is kept


def test_what_is_replaced_keeps_its_cost_and_its_place_and_the_report_its_notes():
    report = scores_of(ONE_REFERENCE, faithfulness(OfflineJudge()), context_precision(OfflineJudge()))
    rescored = report.rescore(context_precision(NOBODY, weighting="plain"))
    assert [list(row.scores) for row in rescored.rows] == [["faithfulness", "context_precision"]] * len(report)
    for before, after in zip(report.rows, rescored.rows, strict=True):
        assert after.scores["context_precision"].usage == before.scores["context_precision"].usage
        assert after.scores["faithfulness"] == before.scores["faithfulness"]
    assert rescored.notes == report.notes != []
    part = replace(report, left_out=[(9, "faithfulness")], complete=False).rescore(context_precision(NOBODY))
    assert (part.left_out, part.complete) == ([(9, "faithfulness")], False)
    assert rescored.summary()["context_precision"].calls == report.summary()["context_precision"].calls > 0
    assert report.rows[0].scores["context_precision"].aspect == "ranking"
    assert rescored.rows[0].scores["context_precision"].aspect == "context"


def test_what_is_added_costs_nothing_and_replaces_nothing():
    report = scores_of(ONE_REFERENCE, context_precision(OfflineJudge()))
    rescored = report.rescore(context_precision(NOBODY, weighting="plain", name="share"))
    for before, after in zip(report.rows, rescored.rows, strict=True):
        assert after.scores["context_precision"] == before.scores["context_precision"]
        share = after.scores["share"]
        assert (share.metric, share.usage.calls, share.usage.seconds, share.usage.embedded) == ("share", 0, 0.0, 0)
    assert rescored.summary()["share"].calls == 0


@pytest.mark.parametrize("name", ["faithfulness", "again"])
def test_a_failure_stays_one_under_the_new_name_and_instrument(name):
    judge = answering(lambda messages: "prose" if "Munich" in human_of(messages) else offline_reply(messages))
    report = scores_of(RICH, faithfulness(judge))
    assert [row.scores["faithfulness"].failure is None for row in report.rows] == [False, True]
    metric = faithfulness(NOBODY, name=name)
    before, after = (r.rows[0].scores[n] for r, n in ((report, "faithfulness"), (report.rescore(metric), name)))
    assert after.failure == before.failure
    assert (after.metric, after.counted_by, after.value) == (name, metric.instrument.partition(".")[2], None)
    assert after.usage.calls == (before.usage.calls if name == "faithfulness" else 0)


def test_both_sides_of_a_comparison_can_be_rescored():
    samples = rag_samples(12)
    baseline = scores_of(samples, context_precision(OfflineJudge()))
    worse = [s.model_copy(update={"contexts": ["Bread is good.", *s.contexts]}) for s in samples]
    candidate = scores_of(worse, context_precision(OfflineJudge()))
    plain = context_precision(OfflineJudge(), weighting="plain")
    with pytest.raises(ConfigError, match="instruments"):
        candidate.rescore(plain).compare(baseline)
    found = candidate.rescore(plain).compare(baseline.rescore(plain))["context_precision"]
    anew = scores_of(worse, plain).compare(scores_of(samples, plain))["context_precision"]
    assert (found.difference, found.p_value, found.verdict) == (anew.difference, anew.p_value, anew.verdict)
    assert found.difference < 0


def test_rescored_twice_is_rescored_once():
    report = scores_of(ONE_REFERENCE, answer_correctness(OfflineJudge(), EMBEDDINGS))
    there = report.rescore(answer_correctness(NOBODY, NO_VECTORS, beta=2.0))
    back = there.rescore(answer_correctness(OfflineJudge(), EMBEDDINGS))
    assert back == report


# By whose findings


def test_two_that_would_do_are_as_good_as_one_if_they_agree_in_every_row():
    same, other = Sample(**{**FULL, "id": "same", "answer": FULL["references"][0]}), RICH[1]
    both = [answer_similarity(EMBEDDINGS), answer_similarity(WORDS, name="by_words")]
    passed = answer_similarity(NO_PAIRS, threshold=0.5, name="passed")
    one, two = scores_of([same], *both), scores_of([same, other], *both)
    assert one.rescore(passed).rows[0].scores["passed"].value == 1.0
    first, second = two.rows
    spoilt = [first, second.model_copy(update={"scores": {"by_words": second.scores["by_words"]}})]
    failing = {**second.scores, "by_words": failed("by_words")}
    lost = [one.rows[0], second.model_copy(update={"scores": failing})]
    told = r"^passed could be computed from the findings of answer_similarity and by_words, with different values: "
    for rows in (two.rows, spoilt, lost):
        with pytest.raises(ConfigError, match=told):
            Report(list(rows)).rescore(passed)


def refused(report, metric):
    with pytest.raises(ConfigError, match=r"cannot be computed from the findings of .*: score it with evaluate$"):
        report.rescore(metric)


@each(
    ("made", "asked"),
    [
        (faithfulness(OfflineJudge()), context_recall(NOBODY)),
        (context_recall(OfflineJudge()), faithfulness(NOBODY)),
        (faithfulness(OfflineJudge()), answer_correctness(NOBODY, weights=(1, 0))),
        (answer_correctness(OfflineJudge(), weights=(1, 0)), answer_correctness(NOBODY, NO_VECTORS)),
        (answer_correctness(None, EMBEDDINGS, weights=(0, 1)), answer_correctness(NOBODY, NO_VECTORS)),
        (answer_correctness(OfflineJudge(), weights=(1, 0)), answer_similarity(NO_VECTORS)),
        (answer_correctness(OfflineJudge(), weights=(1, 0)), faithfulness(NOBODY)),
        (aspect_critique(OfflineJudge(), "conciseness"), aspect_critique(NOBODY, "coherence")),
        (aspect_critique(OfflineJudge(), "conciseness"), aspect_critique(NOBODY, "coherence", name="conciseness")),
        (context_precision(OfflineJudge()), context_precision(NOBODY, against="question")),
        (context_precision(OfflineJudge(), against="question"), context_precision(NOBODY)),
        (context_precision(OfflineJudge(), against="reference"), context_precision(NOBODY, against="answer")),
        (answer_relevance(OfflineJudge(), EMBEDDINGS), answer_relevance(NOBODY, NO_VECTORS, questions=1)),
        (context_relevance(OfflineJudge()), context_precision(NOBODY)),
        (context_precision(OfflineJudge()), context_relevance(NOBODY)),
        (answer_relevance(OfflineJudge(), EMBEDDINGS), answer_similarity(NO_VECTORS)),
        (answer_similarity(EMBEDDINGS), context_precision(NOBODY)),
        (rubric(OfflineJudge()), context_precision(NOBODY)),
        (exact_match(), answer_similarity(NO_VECTORS)),
        (rouge(), answer_correctness(None, NO_VECTORS, weights=(0, 1))),
    ],
)
def test_what_was_never_found_is_refused(made, asked):
    refused(scores_of(RICH[1:], made), asked)


def test_several_references_are_refused_because_only_the_best_is_kept():
    refused(scores_of(RICH[:1], answer_correctness(OfflineJudge(), EMBEDDINGS)), answer_correctness(NOBODY, NO_VECTORS))


def stated(value, **more):
    score = Score(metric="own", aspect="answer", value=value, **more)
    return Report([Row(index=0, sample=RICH[1], scores={"own": score})])


def test_a_number_that_nothing_decided_is_not_turned_into_another():
    for build in (faithfulness, context_recall, context_relevance, context_precision):
        refused(stated(0.7), build(NOBODY, name="own"))


def test_a_metric_of_ones_own_is_rescored_if_it_says_how():
    def reduce(state):
        return Value(1.0, "reason")

    own = Metric("own", aspect="answer", reads={"question"}, steps=faithfulness(NOBODY).steps, reduce=reduce)
    refused(stated(0.7), own)
    able = own.model_copy(update={"state_from_findings": lambda sample, score: {"sample": sample}})
    assert stated(0.0).rescore(able).rows[0].scores["own"].value == 1.0


def test_a_sample_that_lacks_what_the_metric_reads_is_named():
    answers = {"q-7": "I do not know.", "q-8": "So."}
    bare = [Sample(id=name, question="Why?", answer=text) for name, text in answers.items()]
    report = scores_of(bare, answer_relevance(OfflineJudge(), EMBEDDINGS))
    with pytest.raises(SampleError, match="q-7"):
        report.rescore(context_recall(NOBODY))


@each("given", [faithfulness, suite(faithfulness(NOBODY)), "faithfulness", None])
def test_what_is_no_metric_is_refused(given):
    report = scores_of(RICH[1:], faithfulness(OfflineJudge()))
    with pytest.raises(ConfigError, match="rescore takes a metric"):
        report.rescore(given)


def test_a_factless_pair_stays_unscored_though_its_similarity_was_not_measured():
    sample = next(s for s in EDGES if s.id == "refusal that is right")
    report = scores_of([sample, *RICH[1:]], answer_correctness(OfflineJudge(), EMBEDDINGS))
    assert report.rows[0].scores["answer_correctness"].unscored == "the answer states no facts, nor does the reference"
    rescored = report.rescore(answer_correctness(NOBODY, NO_VECTORS, beta=2.0))
    assert rescored.rows[0].scores["answer_correctness"].unscored
    refused(report, answer_correctness(None, NO_VECTORS, weights=(0, 1)))


def test_only_the_audit_of_the_rescored_metric_is_computed_anew():
    metrics = [faithfulness(OfflineJudge()), context_recall(OfflineJudge())]
    (row,) = evaluate(rag_samples(1), metrics, progress=False).rows
    row = row.model_copy(update={"audit": dict(row.scores)})
    (found,) = Report([row]).rescore(faithfulness(OfflineJudge())).rows
    assert found.audit == row.scores


def test_scores_of_a_later_run_replace_earlier_ones_and_their_audits():
    audits = {name: scored(0.5, name) for name in ("a", "b")}
    first = row(7, scored(0.1, "a"), scored(0.2, "b"), audit=audits, asked=["a", "b"])
    later = row(0, scored(0.3, "a"), scored(0.4, "c"), asked=["c"])
    earlier = Report([first, row(9, scored(0.6, "b"))], left_out=[(9, "a")])
    joined = join_reports(earlier, Report([later], left_out=[(1, "c")]))
    values = [{name: score.value for name, score in one.scores.items()} for one in joined.rows]
    assert values == [{"a": 0.3, "b": 0.2, "c": 0.4}, {"b": 0.6}]
    assert [list(one.audit) for one in joined.rows] == [["b"], []]
    assert [one.asked for one in joined.rows] == [["b", "c"], []]
    assert [one.index for one in joined.rows] == [7, 9]
    assert sorted(joined.left_out) == [(9, "a"), (9, "c")]
