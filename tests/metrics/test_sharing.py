"""Metrics of one sample ask each question once, through every entry_point; what was asked for is paid for once."""

from collections import Counter
from typing import Any

import pytest
from helpers.scripted import (
    PairScores,
    Scripted,
    Vectors,
    answering,
    human_of,
    recording_judge,
    scripted,
    statements,
    supported,
    verdicts,
)

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Sample,
    aevaluate,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    astream_evaluate,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    jury,
    suite,
)
from langchain_rageval.prompts.layout import read_inputs

ANSWER = "Munich was founded in 1158. It lies on the Isar."
ENTRY_POINTS = [
    "suite.invoke",
    "suite.ainvoke",
    "suite.batch",
    "suite.abatch",
    "evaluate",
    "aevaluate",
    "astream_evaluate",
]
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
    return [
        *three(judge),
        answer_relevance(judge, HashingEmbeddings()),
        context_precision(judge),
        context_relevance(judge),
    ]


async def scores_of(entry_point: str, given: list[Sample], metrics: list[Any]) -> list[dict[str, Any]]:
    match entry_point:
        case "suite.invoke":
            return [suite(*metrics).invoke(sample) for sample in given]
        case "suite.ainvoke":
            return [await suite(*metrics).ainvoke(sample) for sample in given]
        case "suite.batch":
            return suite(*metrics).batch(given)
        case "suite.abatch":
            return await suite(*metrics).abatch(given)
        case "evaluate":
            return [row.scores for row in evaluate(given, metrics, progress=False).rows]
        case "aevaluate":
            return [row.scores for row in (await aevaluate(given, metrics, progress=False)).rows]
    rows = [row async for row in astream_evaluate(given, metrics)]
    return [row.scores for row in sorted(rows, key=lambda row: row.index)]


def paid(scores: list[dict[str, Any]]) -> int:
    return sum(score.usage.calls for by_name in scores for score in by_name.values())


def texts_extracted(judge: Scripted) -> list[str]:
    return [inputs["text"] for inputs in judge.inputs if "text" in inputs]


@every_entry_point
async def test_four_samples_in_flight_cost_eight_calls_each_and_score_as_each_alone(entry_point):
    judge, given = recording_judge(), samples(4)
    scores = await scores_of(entry_point, given, six(judge))
    assert len(judge.asked) == paid(scores) == 8 * 4
    assert Counter(texts_extracted(judge)) == Counter(text for s in given for text in (s.answer, *s.references))
    for sample, by_name in zip(given, scores, strict=True):
        for metric in six(recording_judge()):
            own = {"usage", "instrument"}
            assert metric.invoke(sample).model_dump(exclude=own) == by_name[metric.name].model_dump(exclude=own)


async def test_sync_and_async_send_the_very_same_messages():
    sync, asynchronous = recording_judge(), recording_judge()
    suite(*six(sync)).invoke(samples()[0])
    await suite(*six(asynchronous)).ainvoke(samples()[0])
    sent = [sorted(repr(messages) for messages in judge.asked) for judge in (sync, asynchronous)]
    assert sent[0] == sent[1]


@every_entry_point
@pytest.mark.parametrize("count", [1, 4])
async def test_each_text_is_embedded_once_for_all_metrics_of_a_sample(entry_point, count):
    judge, vectors = recording_judge(), Vectors(answer=HashingEmbeddings().embed_query)
    metrics = [
        answer_relevance(judge, vectors),
        answer_similarity(vectors),
        answer_correctness(judge, vectors, weights=(0, 1)),
    ]
    scores = await scores_of(entry_point, samples(count), metrics)
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


async def test_precision_against_the_reference_chosen_by_auto_is_the_one_asked_for():
    judge = recording_judge()
    suite(context_precision(judge), context_precision(judge, against="reference", name="other")).invoke(samples()[0])
    assert len(judge.asked) == 1


async def test_what_one_metric_had_asked_again_serves_the_other_too():
    replies = [statements("a", "b"), verdicts(supported(1)), verdicts(supported(1))]
    judge = scripted(*replies)
    scores = suite(faithfulness(judge), faithfulness(judge, name="again")).invoke(samples()[0])
    assert [score.value for score in scores.values()] == [1.0, 1.0]
    assert len(judge.asked) == paid([scores]) == 3


async def test_a_metric_that_fails_takes_none_of_the_others_with_it():
    def answer(messages: Any) -> Any:
        if "reference_statements" in read_inputs(human_of(messages)):
            return "I would rather not."
        return good.answer(messages)

    good = recording_judge()
    judge = answering(answer)
    (row,) = evaluate(samples(), six(Judge(judge, attempts=2)), progress=False).rows
    failed = [name for name, score in row.scores.items() if score.failure]
    assert failed == ["answer_correctness"]
    assert len(judge.asked) == sum(score.usage.calls for score in row.scores.values()) == 9


async def test_a_jury_and_its_first_judge_share_what_only_the_first_is_asked():
    judges = [recording_judge() for _ in range(3)]
    bench = jury(judges)
    suite(*six(bench), faithfulness(judges[0], name="alone")).invoke(samples()[0])
    # the first: two extractions, one regeneration, five votes; the others: five votes
    assert [len(judge.asked) for judge in judges] == [8, 5, 5]


async def test_metrics_with_the_same_pairs_ask_a_cross_encoder_once():
    model = PairScores(lambda one, other: 0.5)
    suite(answer_similarity(model), answer_similarity(model, threshold=0.5, name="near")).invoke(samples()[0])
    assert len(model.asked) == 1
