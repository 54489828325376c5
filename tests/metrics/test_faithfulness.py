"""Faithfulness: its arithmetic, its edges, shared questions, and what it says about the extraction."""

import asyncio
import gc
import threading
import weakref

import pytest
from helpers.each import each
from helpers.scripted import absent, answering, human_of, scripted, statements, supported, verdicts
from helpers.waiting import PATIENCE, auntil, until

from langchain_rageval import OfflineJudge, Sample, faithfulness, suite
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.faithfulness import expected_share, supported_share
from langchain_rageval.metrics.supported import extraction_findings
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.run import Run

SAMPLE = Sample(question="How is a sauna insured?", answer="With the house.", contexts=["With the house. For a year."])


def both(messages):
    """A judge that finds two statements and supports the first."""
    inputs = read_inputs(human_of(messages))
    if "text" in inputs:
        return statements("a", "b")
    items = inputs["statements"]
    return verdicts(*((supported if item["text"] == "a" else absent)(item["statement"]) for item in items))


def scored(*replies, sample=SAMPLE):
    return faithfulness(scripted(*replies)).invoke(sample)


def state(labels, question="What?"):
    found = [Finding(kind="statement", number=n, text=f"s{n}.", verdict=label) for n, label in enumerate(labels, 1)]
    return {"sample": Sample(question=question), "answer_verdicts": found}


# Edges


@each(("answer", "calls"), [("Hello.", 1), ("  \n", 0)])
@each("contexts", [[], ["A."]])
def test_an_answer_without_facts_is_unscored_and_a_blank_one_without_a_call(answer, calls, contexts):
    score = scored(statements(), sample={"question": "?", "answer": answer, "contexts": contexts})
    assert (score.value, score.unscored, score.reason) == (None, "the answer states no facts", "")
    assert score.usage.calls == calls


@each("contexts", [[], [""], [" ", "\n"]])
def test_when_nothing_was_retrieved_an_answer_with_facts_scores_zero_after_one_call(contexts):
    score = scored(statements("a", "b"), sample=SAMPLE.model_copy(update={"contexts": contexts}))
    assert (score.value, score.usage.calls) == (0.0, 1)
    assert [finding.verdict for finding in score.findings] == ["absent", "absent"]


@each(
    ("probabilities", "expected"),
    [
        ([{}, {}], 1 / 2),
        ([{"supported": 0.75, "absent": 0.25}, {"supported": 0.25, "absent": 0.75}], 1 / 2),
        ([{"supported": 0.5, "absent": 0.5}, {}], 1 / 4),
        ([{}, {"supported": 0.5, "absent": 0.5}], 3 / 4),
    ],
)
def test_the_expected_share_takes_a_verdict_without_probabilities_as_certain(probabilities, expected):
    given = state(["supported", "absent"])
    pairs = zip(given["answer_verdicts"], probabilities, strict=True)
    given["answer_verdicts"] = [finding.model_copy(update={"probabilities": known}) for finding, known in pairs]
    value = expected_share(given)
    assert value.number == pytest.approx(expected)
    assert value.reason.startswith(supported_share(given).reason)
    assert (value.reason == supported_share(given).reason) is not any(probabilities)


# What it tells


MIXED = ["supported", "absent", "contradicted", "absent", "absent"]
NOT_FOUND = "not found: «s1»; not found: «s2»; not found: «s3»; and 2 more."
EXCEPTIONS = "не найдено: «s2»; противоречит: «s3»; не найдено: «s4»; и ещё 1."


@each(
    ("question", "given_labels", "reason"),
    [
        ("What?", ["absent"] * 5, f"The contexts support 0 of 5 statements; {NOT_FOUND}"),
        ("Что?", ["supported"] * 11, "Контексты подтверждают 11 из 11 утверждений."),
        ("Что?", ["supported"] * 21, "Контексты подтверждают 21 из 21 утверждения."),
        ("Что?", MIXED, f"Контексты подтверждают 1 из 5 утверждений; {EXCEPTIONS}"),
        ("Was ist das?", ["absent"], "The contexts support 0 of 1 statement; not found: «s1»."),
    ],
)
def test_the_reason_is_one_sentence_in_russian_or_else_in_english(question, given_labels, reason):
    assert supported_share(state(given_labels, question)).reason == reason


# One question is asked once


def named(judge, *names):
    return [faithfulness(judge, name=name) for name in names]


async def test_a_cancelled_leader_takes_no_other_metric_with_it():
    started, go_on = threading.Event(), threading.Event()

    def slowly(messages):
        started.set()
        go_on.wait(PATIENCE)
        return both(messages)

    judge = answering(slowly)
    run = Run()
    calls = [metric.ainvoke(SAMPLE, run.into({})) for metric in named(judge, "one", "two")]
    leader, follower = map(asyncio.create_task, calls)
    await auntil(started.is_set)
    await auntil(lambda: any(flight.waiters == 2 for flight in list(run.single_flight.calls.values())))
    leader.cancel()
    await asyncio.wait([leader])
    go_on.set()
    score = await follower
    assert leader.cancelled()
    assert (score.value, len(judge.asked)) == (0.5, 2)


@pytest.mark.parametrize("go", ["sync", "async"])
def test_what_was_shared_is_dropped_when_the_sample_ends(go):
    run = Run()
    seen = []

    def watching(messages):
        seen.extend(map(weakref.ref, list(run.single_flight.calls.values())))
        return both(messages)

    metric = suite(*named(answering(watching), "one", "two"))
    if go == "sync":
        metric.invoke(SAMPLE, run.into({}))
    else:
        asyncio.run(metric.ainvoke(SAMPLE, run.into({})))
    assert seen

    def dropped():
        gc.collect()
        return not run.single_flight.calls and not any(flight() for flight in seen)

    until(dropped)
    assert not run.single_flight.retained


@each(
    ("question", "context", "listed", "left_out", "note"),
    [
        (
            *("What does a parcel cost?", "A parcel costs 4 euros.", "A parcel of five kilos costs 4 euros."),
            "Couriers bring it within three days to every house in Leeds.",
            "incomplete extraction: no statement mentions 8 of 14 content words and numbers of the answer",
        ),
        (
            *("Сколько стоит посылка?", "Посылка стоит 4 евро.", "Посылка весом пять килограммов стоит 4 евро."),
            "Курьер приносит её за три дня в любой дом города.",
            "извлечение неполно: 4 из 11 значимых слов и чисел ответа нет в утверждениях",
        ),
    ],
)
def test_a_score_says_that_its_statements_leave_out_much_of_the_answer(question, context, listed, left_out, note):
    sample = Sample(question=question, answer=f"{listed} {left_out}", contexts=[context])
    score = faithfulness(scripted(statements(listed), verdicts(supported(1)))).invoke(sample)
    assert (score.value, score.reason.endswith(f"; {note}.")) == (1.0, True)
    item, extraction = score.findings
    assert (item.kind, extraction.kind, extraction.text) == ("statement", "extraction", "answer")
    assert (extraction.verdict, extraction.reason) == ("incomplete", note)
    assert faithfulness(OfflineJudge()).rescore(sample, score).reason == score.reason


@each(
    ("lost", "total", "said"),
    [(3, 6, True), (3, 5, False), (5, 5, False), (2, 6, False), (3, 9, False), (4, 9, True), (0, 0, False)],
)
def test_a_text_of_six_units_whose_statements_leave_out_more_than_a_third_is_incomplete(lost, total, said):
    for side in ("answer", "reference"):
        findings = extraction_findings({**state([]), f"{side}_unmentioned": (lost, total)})
        assert [(f.text, f.verdict) for f in findings] == [(side, "incomplete")] * said
