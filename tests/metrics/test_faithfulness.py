import asyncio
import gc
import threading
import weakref

import pytest
from helpers.each import each
from helpers.scripted import absent, answering, contradicted, human_of, scripted, supported, verdict, verdicts
from helpers.waiting import PATIENCE, auntil, until
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, JudgeOutputError, Sample, SampleError, evaluate, faithfulness, suite
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.faithfulness import supported_share
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.run import Run
from langchain_rageval.steps import Statements

SAMPLE = Sample(question="How is a sauna insured?", answer="With the house.", contexts=["With the house. For a year."])


def statements(*texts):
    return Statements(statements=list(texts))


def both(messages):
    """A judge that finds two statements and supports the first."""
    inputs = read_inputs(human_of(messages))
    if "text" in inputs:
        return statements("a", "b")
    return verdicts(
        *(
            supported(item["statement"]) if item["text"] == "a" else absent(item["statement"])
            for item in inputs["statements"]
        )
    )


def scored(*replies, sample=SAMPLE):
    return faithfulness(scripted(*replies)).invoke(sample)


def state(labels, question="What?"):
    found = [Finding(kind="statement", number=n, text=f"s{n}.", verdict=label) for n, label in enumerate(labels, 1)]
    return {"sample": Sample(question=question), "answer_verdicts": found}


# Arithmetic


def test_one_unsupported_statement_of_two_scores_one_half():
    score = scored(statements("a", "b"), verdicts(supported(1), absent(2)))
    assert (score.value, score.aspect, score.direction, score.metric) == (0.5, "grounding", "higher", "faithfulness")


def test_a_contradicted_statement_is_not_supported():
    assert scored(statements("a", "b"), verdicts(supported(1), contradicted(2))).value == 0.5


@each("count", [1, 3, 7, 10, 49])
def test_a_perfect_score_is_exactly_one(count):
    assert supported_share(state(["supported"] * count)).number == 1.0


labels = st.lists(st.sampled_from(["supported", "contradicted", "absent"]), min_size=1, max_size=60)


@given(labels)
def test_the_score_is_the_share_of_supported_statements(given_labels):
    number = supported_share(state(given_labels)).number
    assert number == given_labels.count("supported") / len(given_labels)
    assert 0.0 <= number <= 1.0
    assert (number == 1.0) is (set(given_labels) == {"supported"})


@given(labels, st.randoms())
def test_the_order_of_the_statements_does_not_matter(given_labels, random):
    shuffled = random.sample(given_labels, len(given_labels))
    assert supported_share(state(shuffled)).number == supported_share(state(given_labels)).number


@given(st.permutations([supported(1), contradicted(2), absent(3)]))
def test_the_order_of_the_judges_reply_does_not_matter(shuffled):
    expected = scored(statements("a", "b", "c"), verdicts(supported(1), contradicted(2), absent(3)))
    own = {"usage", "instrument"}  # the judges differ in their replies
    assert scored(statements("a", "b", "c"), verdicts(*shuffled)).model_dump(exclude=own) == expected.model_dump(
        exclude=own
    )


def test_rates_of_agreement_do_not_count_as_statements():
    judge = Judge(scripted(statements("a"), *[verdicts(supported(1))] * 3), draws=3)
    score = faithfulness(judge).invoke(SAMPLE)
    assert score.value == 1.0
    assert [finding.kind for finding in score.findings] == ["statement", "agreement"]


# Edges


def test_an_answer_that_states_no_facts_is_unscored_and_its_call_is_counted():
    score = scored(statements())
    assert (score.value, score.unscored, score.reason) == (None, "the answer states no facts", "")
    assert score.usage.calls == 1


@each("answer", ["", "  \n"])
@each("contexts", [[], ["A."]])
def test_a_blank_answer_is_unscored_without_a_call(answer, contexts):
    score = scored(sample={"question": "?", "answer": answer, "contexts": contexts})
    assert score.unscored == "the answer states no facts"
    assert score.usage.calls == 0


@each("contexts", [[], [""], [" ", "\n"]])
def test_when_nothing_was_retrieved_an_answer_with_facts_scores_zero_after_one_call(contexts):
    score = scored(statements("a", "b"), sample=SAMPLE.model_copy(update={"contexts": contexts}))
    assert (score.value, score.usage.calls) == (0.0, 1)
    assert [finding.verdict for finding in score.findings] == ["absent", "absent"]


def test_when_nothing_was_retrieved_a_refusal_is_unscored():
    score = scored(statements(), sample=SAMPLE.model_copy(update={"contexts": []}))
    assert score.unscored == "the answer states no facts"


@pytest.mark.parametrize("field", ["contexts", "answer"])
def test_a_missing_field_raises_before_any_call(field):
    metric = faithfulness(scripted())
    sample = SAMPLE.model_copy(update={field: None, "id": "q-17"})
    wanted = (
        rf"faithfulness reads \['answer', 'contexts', 'question'\]; sample 'q-17' lacks \['{field}'\]: "
        "fill it in or drop the metric"
    )
    for attempt in (metric.invoke, lambda given: asyncio.run(metric.ainvoke(given))):
        with pytest.raises(SampleError, match=wanted) as caught:
            attempt(sample)
        assert caught.value.field == field


def test_in_an_evaluation_that_judge_is_a_failure_not_a_zero():
    metric = faithfulness(Judge(scripted(statements("a"), "no"), attempts=1))
    (row,) = evaluate([SAMPLE], metric, progress=False).rows
    score = row.scores["faithfulness"]
    assert (score.value, score.failure.error, score.failure.step) == (None, "JudgeOutputError", "verify_statements")
    assert (score.failure.raw_output, score.usage.calls) == ("no", 2)


# What it tells


def test_findings_are_the_statements_in_order_with_their_evidence():
    score = scored(statements("a", "b"), verdicts(absent(2), verdict(1, "supported", "1.2", reason="said so")))
    assert [(f.kind, f.number, f.text, f.verdict, f.cites) for f in score.findings] == [
        ("statement", 1, "a", "supported", ["1.2"]), ("statement", 2, "b", "absent", []),
    ]  # fmt: skip
    assert score.findings[0].reason == "said so"


@each(
    ("question", "given_labels", "reason"),
    [
        ("What?", ["supported"], "The contexts support 1 of 1 statement."),
        (
            "What?",
            ["supported", "absent", "contradicted"],
            "The contexts support 1 of 3 statements; not found: «s2»; contradicted: «s3».",
        ),
        (
            "What?",
            ["absent"] * 5,
            "The contexts support 0 of 5 statements; not found: «s1»; not found: «s2»; not found: «s3»; and 2 more.",
        ),
        ("Что?", ["supported"], "Контексты подтверждают 1 из 1 утверждения."),
        ("Что?", ["supported"] * 2, "Контексты подтверждают 2 из 2 утверждений."),
        ("Что?", ["supported"] * 11, "Контексты подтверждают 11 из 11 утверждений."),
        ("Что?", ["supported"] * 21, "Контексты подтверждают 21 из 21 утверждения."),
        (
            "Что?",
            ["supported", "absent", "contradicted", "absent", "absent"],
            "Контексты подтверждают 1 из 5 утверждений; не найдено: «s2»; противоречит: «s3»; "
            "не найдено: «s4»; и ещё 1.",
        ),
        ("Was ist das?", ["absent"], "The contexts support 0 of 1 statement; not found: «s1»."),
    ],
)
def test_the_reason_is_one_sentence_in_russian_or_else_in_english(question, given_labels, reason):
    assert supported_share(state(given_labels, question)).reason == reason


def test_why_there_is_no_value_is_told_in_english_also_for_a_russian_sample():
    score = scored(statements(), sample={"question": "Что это?", "answer": "Не знаю.", "contexts": ["А."]})
    assert (score.unscored, score.reason) == ("the answer states no facts", "")


# How it asks


@each("layout", ["contexts_first", "instruction_first", "shared_instructions"])
@each("question", ["How?", "Как застраховать баню?"])
def test_every_request_is_one_system_and_one_human_message_with_one_system_for_both_steps(layout, question):
    judge = answering(both)
    score = faithfulness(Judge(judge, layout=layout)).invoke(SAMPLE.model_copy(update={"question": question}))
    assert score.value == 0.5
    assert [[message.type for message in messages] for messages in judge.asked] == [["system", "human"]] * 2
    assert len({messages[0].text for messages in judge.asked}) == 1


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
    leader, follower = (
        asyncio.create_task(metric.ainvoke(SAMPLE, run.into({}))) for metric in named(judge, "one", "two")
    )
    await auntil(started.is_set)
    await auntil(lambda: any(flight.waiters == 2 for flight in list(run.single_flight.calls.values())))
    leader.cancel()
    await asyncio.wait([leader])
    go_on.set()
    score = await follower
    assert leader.cancelled()
    assert (score.value, len(judge.asked)) == (0.5, 2)


def test_a_failure_is_not_kept():
    judge = Judge(scripted("no", statements("a"), verdicts(supported(1))), attempts=1)
    run = Run()
    one, two = named(judge, "one", "two")
    with pytest.raises(JudgeOutputError):
        one.invoke(SAMPLE, run.into({}))
    assert two.invoke(SAMPLE, run.into({})).value == 1.0


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


# Through other entry points it is the same


@each("options", [{}, {"max_statements": 1}, {"draws": 3}, {"max_context_tokens": 5}])
async def test_sync_and_async_score_alike(options):
    metric = faithfulness(Judge(answering(both), **options))
    one, other = metric.invoke(SAMPLE), await metric.ainvoke(SAMPLE)
    assert one.model_dump(exclude={"usage"}) == other.model_dump(exclude={"usage"})
    assert one.usage.calls == other.usage.calls
