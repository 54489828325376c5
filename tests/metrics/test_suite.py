"""Suites, whose metrics ask each question once; and presets, lists of metrics that take what a sample has."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from helpers.doors import ENTRY_POINTS, scores_by
from helpers.each import each
from helpers.offline import unfaithfulness
from helpers.samples import SAMPLE, TRUE_SAMPLE
from helpers.scripted import Scripted, Vectors, answering, broken_judge, offline_reply, recording_judge
from helpers.waiting import PATIENCE
from langchain_core.runnables import RunnableParallel

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    JudgeOutputError,
    OfflineJudge,
    Sample,
    SampleError,
    Score,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    jury,
    presets,
    suite,
)
from langchain_rageval.metrics import PRESETS
from langchain_rageval.metrics.structure import acollect_scores, collect_scores


def pair(judge: Any) -> Any:
    """Two metrics that ask the same."""
    return suite(faithfulness(judge), unfaithfulness(judge))


def values(scores: dict[str, Score]) -> dict[str, float | None]:
    return {name: score.value for name, score in scores.items()}


BOTH = {"faithfulness": 0.5, "unfaithfulness": 0.5}


@pytest.mark.parametrize("call", ["invoke", "ainvoke"])
async def test_equal_metrics_outside_a_suite_share_nothing(call):
    model = recording_judge()
    apart = RunnableParallel(one=faithfulness(model), other=unfaithfulness(model))
    apart.invoke(SAMPLE) if call == "invoke" else await apart.ainvoke(SAMPLE)
    assert len(model.asked) == 4


def test_a_suite_in_a_suite_counts_as_its_metrics():
    model = recording_judge()
    nested = suite(pair(model), faithfulness(model, name="third"))
    assert values(nested.invoke(SAMPLE)) == BOTH | {"third": 0.5}
    assert len(model.asked) == 2
    assert nested.feedback_keys == ["faithfulness", "unfaithfulness", "third"]


async def test_two_judges_do_not_wait_for_each_other():
    together = threading.Barrier(2, timeout=PATIENCE)

    def answer(messages: Any) -> Any:
        together.wait()
        return offline_reply(messages)

    side_by_side = suite(faithfulness(answering(answer)), faithfulness(answering(answer), name="other"))
    assert values(side_by_side.invoke(SAMPLE)) == {"faithfulness": 0.5, "other": 0.5}
    assert values(await asyncio.wait_for(side_by_side.ainvoke(SAMPLE), PATIENCE)) == {"faithfulness": 0.5, "other": 0.5}


async def test_a_metric_that_fails_makes_invoke_raise_and_collect_scores_record():
    mixed = suite(faithfulness(OfflineJudge()), faithfulness(broken_judge(), name="broken"))
    with pytest.raises(JudgeOutputError):
        mixed.invoke(SAMPLE)
    with pytest.raises(JudgeOutputError):
        await mixed.ainvoke(SAMPLE)
    for scores in (collect_scores(mixed, SAMPLE), await acollect_scores(mixed, SAMPLE)):
        assert values(scores) == {"faithfulness": 0.5, "broken": None}
        assert scores["broken"].failure.error == "JudgeOutputError"


@each("call", ["sync", "async"])
async def test_what_failed_is_not_asked_again_for_the_others_beyond_their_attempts(call):
    model = broken_judge()
    both = pair(Judge(model, attempts=2))
    scores = collect_scores(both, SAMPLE) if call == "sync" else await acollect_scores(both, SAMPLE)
    assert all(score.failure for score in scores.values())
    assert len(model.asked) <= 2 * 2
    assert sum(score.usage.calls for score in scores.values()) == len(model.asked)


def test_evaluate_counts_a_suite_as_its_metrics():
    model = recording_judge()
    with pytest.raises(ConfigError, match=r"two metrics are named \['faithfulness'\]"):
        evaluate([SAMPLE], [pair(model), faithfulness(model)], progress=False)


def test_a_suite_of_two_metrics_of_one_name_is_refused():
    metric = faithfulness(OfflineJudge())
    with pytest.raises(ConfigError, match="rename one of them with name="):
        suite(metric, metric)
    with pytest.raises(ConfigError, match="a suite takes metrics"):
        suite()
    with pytest.raises(ConfigError, match="got RunnableRetry; wrap the whole suite instead"):
        suite(metric.with_retry())
    with pytest.raises(ConfigError, match=r"got list; pass them as suite\(one, two\)"):
        suite([metric, metric])


ANSWER = "Munich was founded in 1158. It lies on the Isar."
every_entry_point = pytest.mark.parametrize("entry_point", ENTRY_POINTS)


def samples(count: int = 1) -> list[Sample]:
    """Different samples with five chunks and one reference each."""
    return [
        Sample(
            question=f"When was Munich founded, case {n}?",
            answer=f"{ANSWER} This is case {n}.",
            contexts=["Munich was founded in 1158.", "It lies on the Isar.", "Elephants.", "Beer.", f"Case {n}."],
            references=[f"Munich was founded in 1158 in case {n}."],
        )
        for n in range(count)
    ]


def three(judge: Any) -> list[Any]:
    return [faithfulness(judge), answer_correctness(judge, HashingEmbeddings()), context_recall(judge)]


def six(judge: Any) -> list[Any]:
    relevance = [answer_relevance(judge, HashingEmbeddings()), context_relevance(judge)]
    return [*three(judge), context_precision(judge), *relevance]


def paid(scores: list[dict[str, Any]]) -> int:
    return sum(score.usage.calls for by_name in scores for score in by_name.values())


def texts_extracted(judge: Scripted) -> list[str]:
    return [inputs["text"] for inputs in judge.inputs if "text" in inputs]


@every_entry_point
async def test_four_samples_in_flight_cost_eight_calls_each_and_score_as_each_alone(entry_point):
    judge, given = recording_judge(), samples(4)
    scores = await scores_by(entry_point, given, six(judge))
    assert len(judge.asked) == paid(scores) == 8 * 4
    assert Counter(texts_extracted(judge)) == Counter(text for s in given for text in (s.answer, *s.references))
    for sample, by_name in zip(given, scores, strict=True):
        for metric in six(recording_judge()):
            own = {"usage", "instrument"}
            assert metric.invoke(sample).model_dump(exclude=own) == by_name[metric.name].model_dump(exclude=own)


@every_entry_point
@pytest.mark.parametrize("count", [1, 4])
async def test_each_text_is_embedded_once_for_all_metrics_of_a_sample(entry_point, count):
    judge, vectors = recording_judge(), Vectors(answer=HashingEmbeddings().embed_query)
    correctness = answer_correctness(judge, vectors, weights=(0, 1))
    metrics = [answer_relevance(judge, vectors), answer_similarity(vectors), correctness]
    scores = await scores_by(entry_point, samples(count), metrics)
    embedded = [text for batch in vectors.asked for text in batch]
    assert len(embedded) == sum(score.usage.embedded for by_name in scores for score in by_name.values())
    if count == 1 or "evaluate" in entry_point:  # each sample of a suite is a run of its own
        assert set(Counter(embedded).values()) == {1}
    for sample in samples(count):
        assert embedded.count(sample.answer) == 1


async def test_a_reference_that_equals_the_answer_is_split_once():
    judge = recording_judge()
    sample = samples()[0].model_copy(update={"references": [f"{ANSWER} This is case 0."]})
    scores = suite(*three(judge)).invoke(sample)
    assert texts_extracted(judge) == [sample.answer]
    assert (len(judge.asked), paid([scores])) == (3, 3)
    assert scores["answer_correctness"].value == 1.0


async def test_with_draws_extraction_stays_one_call_and_every_verdict_is_shared():
    judge = recording_judge()
    scores = suite(*six(Judge(judge, draws=3))).invoke(samples()[0])
    # two extractions; three draws each of verify twice, classify, grade, select and regenerate
    assert len(judge.asked) == paid([scores]) == 2 + 3 * 6


async def test_metrics_that_want_other_things_of_one_step_do_not_share_it():
    judge = recording_judge()
    scores = suite(
        context_precision(judge, against="reference"),
        context_precision(judge, against="answer", name="by answer"),
        context_precision(judge, against="question", name="by question"),
        answer_relevance(judge, HashingEmbeddings()),
        answer_relevance(judge, HashingEmbeddings(), questions=1, name="one question"),
        aspect_critique(judge, "coherence"),
        aspect_critique(judge, "conciseness"),
        aspect_critique(judge, "coherence", definition="It hangs together.", name="mine"),
    ).invoke(samples()[0])
    assert len(judge.asked) == paid([scores]) == 8
    assert len(scores["one question"].findings) == 1


async def test_metrics_that_differ_in_arithmetic_alone_share_their_calls():
    judge = recording_judge()
    scores = suite(
        context_precision(judge),
        context_precision(judge, weighting="plain", name="plain"),
        answer_correctness(judge, weights=(1, 0)),
        answer_correctness(judge, weights=(1, 0), formula="precision_recall", beta=2.0, name="by precision and recall"),
        aspect_critique(judge, "coherence"),
        aspect_critique(judge, "coherence", direction="lower", name="incoherence"),
    ).invoke(samples()[0])
    assert len(judge.asked) == paid([scores]) == 1 + 3 + 1


async def test_a_jury_and_its_first_judge_share_what_only_the_first_is_asked():
    judges = [recording_judge() for _ in range(3)]
    bench = jury(judges)
    suite(*six(bench), faithfulness(judges[0], name="alone")).invoke(samples()[0])
    # the first: two extractions, one regeneration, five votes; the others: five votes
    assert [len(judge.asked) for judge in judges] == [8, 5, 5]


# Presets: lists of metrics that score each sample by the fields it has


FULL = {**TRUE_SAMPLE, "references": ["Munich was founded in 1158."]}


def test_presets_have_the_metrics_of_the_table_and_fewer_without_embeddings():
    judge = OfflineJudge()
    for name, builders in PRESETS.items():
        preset = getattr(presets, name)
        assert [metric.name for metric in preset(judge, HashingEmbeddings())] == [*builders], name
    assert [metric.name for metric in presets.core(judge)] == ["faithfulness", "context_precision", "context_recall"]


def test_one_empty_cell_drops_no_metric_and_is_counted():
    rows = [FULL, {**FULL, "question": "Q?", "contexts": None}, {"question": "R?", "answer": "It was in 1158."}]
    report = evaluate(rows, presets.core(OfflineJudge()), progress=False)
    counts = {name: (one.scored, one.unscored, one.failed) for name, one in report.summary().items()}
    assert counts == dict.fromkeys(("faithfulness", "context_precision", "context_recall"), (1, 2, 0))
    assert report.rows[1].scores["faithfulness"].unscored == "the sample lacks a field"
    note = "2 of 3 samples lack a field of faithfulness, context_precision, context_recall."
    assert note in report.notes


def test_an_optional_metric_has_the_instrument_of_the_metric_and_keeps_it_with_another_judge():
    metric = faithfulness(OfflineJudge())
    optional = metric.optional()
    assert (optional.instrument, optional.is_optional, metric.is_optional) == (metric.instrument, True, False)
    assert optional.judged_by(OfflineJudge()).is_optional
    with pytest.raises(SampleError, match=r"lacks \['contexts'\]"):
        metric.invoke({"question": "q", "answer": "a"})
    assert optional.invoke({"question": "q", "answer": "a"}).unscored == "the sample lacks a field"
