"""A budget through evaluate, aevaluate and astream_evaluate: it holds, and what it had no room for is told."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.offline import METRICS, UNJUDGED, offline
from helpers.samples import town
from helpers.scripted import PairScores, Vectors, answering, offline_reply
from helpers.servers.chat import Faults
from helpers.waiting import auntil
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    Budget,
    BudgetExceeded,
    ConfigError,
    HashingEmbeddings,
    Judge,
    JudgeOutputError,
    OfflineJudge,
    Report,
    RetryPolicy,
    Score,
    aevaluate,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    astream_evaluate,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    suite,
)
from langchain_rageval.data.notes import code_of
from langchain_rageval.run.usage import tokens_in

SAMPLES = [town(number) for number in range(40)]


def drawn_order(size):
    """Return the places of that many samples in the order in which a run with a budget asks about them."""
    return random.Random(0).sample(range(size), size)


@dataclass
class Result:
    """What a door gave: rows by index, and what the budget left out, or None where only an error tells."""

    rows: dict = field(default_factory=dict)
    left_out: list | None = None
    told: str = ""
    report: Report | None = None

    @property
    def scored(self):
        return {(index, name) for index, row in self.rows.items() for name in row.scores}


@pytest.fixture(
    params=["evaluate", *(pytest.param(door, marks=pytest.mark.gate) for door in ("aevaluate", "astream_evaluate"))]
)
def run(request):
    """Each door in turn: `await run(samples, metrics, **options)`."""

    async def evaluated(samples, metrics, **options):
        if request.param == "astream_evaluate":
            found = Result()
            try:
                async for row in astream_evaluate(samples, metrics, **options):
                    found.rows[row.index] = row
            except BudgetExceeded as error:
                found.told = str(error)
            return found
        report = await report_by(request.param, samples, metrics, **options)
        return Result({row.index: row for row in report.rows}, report.left_out, " ".join(report.notes), report)

    return evaluated


def nothing_is_lost(found, samples, *names):
    """Every score is there or left out, never both; a row without a score is not there."""
    pairs = {(index, name) for index in range(len(samples)) for name in names}
    assert all(row.scores for row in found.rows.values())
    assert found.scored <= pairs
    if found.left_out is None:
        assert (f"{len(pairs - found.scored)} scores were left out" in found.told) or pairs == found.scored
    else:
        assert len(found.left_out) == len(set(found.left_out))
        assert set(found.left_out) == pairs - found.scored
        assert found.left_out == sorted(found.left_out)


def failures(found):
    return [score.failure for row in found.rows.values() for score in row.scores.values() if score.failure]


every_door = pytest.mark.parametrize(
    "run", ["evaluate", "astream_evaluate", pytest.param("aevaluate", marks=pytest.mark.gate)], indirect=True
)


# It holds


async def check_calls(run, openai_server, chat_openai, name, samples):
    server = openai_server(offline)
    metric = METRICS[name](Judge(chat_openai(server), mode="json_schema"), HashingEmbeddings())
    calls = METRICS[name](OfflineJudge(), HashingEmbeddings()).invoke(town(0)).usage.calls
    bound = int(0.33 * calls * len(samples))
    found = await run(samples, metric, budget=Budget(calls=bound))
    assert server.calls <= bound
    assert server.calls > bound - calls
    assert len(found.rows) == server.calls // calls == bound // calls
    assert failures(found) == []
    nothing_is_lost(found, samples, name)


@pytest.mark.parametrize("run", ["evaluate"], indirect=True)
@each("name", [name for name in METRICS if name not in UNJUDGED])
async def test_calls_of_every_metric_never_exceed_it(run, openai_server, chat_openai, name):
    await check_calls(run, openai_server, chat_openai, name, SAMPLES[:12])


@every_door
async def test_calls_that_cost_alike_never_exceed_it(run, openai_server, chat_openai):
    await check_calls(run, openai_server, chat_openai, "faithfulness", SAMPLES)


async def test_more_calls_for_a_score_than_steps_are_foreseen(run, openai_server, chat_openai):
    """Draws, slices of statements and windows of contexts: they do not fit into a call for each step."""
    server = openai_server(offline)
    model = chat_openai(server)
    judge = Judge(model, mode="json_schema", draws=3, max_statements=1, max_context_tokens=15)
    given = [town(n, answer=f"Town {n:04} was founded in 1158. Town {n:04} is old.") for n in range(40)]
    calls = 1 + 3 * 2 * 2
    found = await run(given, faithfulness(judge), budget=Budget(calls=100))
    assert server.calls == 100 // calls * calls
    nothing_is_lost(found, given, "faithfulness")


@each("rung", ["json_schema", "function_calling"])
async def test_tokens_that_cost_alike_never_exceed_it(run, openai_server, chat_openai, rung):
    server = openai_server(offline)
    metric = faithfulness(Judge(chat_openai(server), mode=rung))
    found = await run(SAMPLES, metric, budget=Budget(tokens=20_000))
    assert server.tokens["total_tokens"] <= 20_000
    assert found.rows
    assert server.tokens["total_tokens"] > 12_000  # this server does not charge for the tools that it is shown
    nothing_is_lost(found, SAMPLES, "faithfulness")


async def test_texts_to_embed_that_cost_alike_never_exceed_it(run):
    embeddings = Vectors(answer=lambda text: [float(len(text)), 1.0])
    metrics = [answer_relevance(OfflineJudge(), embeddings), answer_similarity(embeddings)]
    found = await run(SAMPLES, metrics, budget=Budget(embeddings=50))
    assert 46 < sum(map(len, embeddings.asked)) <= 50
    nothing_is_lost(found, SAMPLES, "answer_relevance", "answer_similarity")


async def test_a_budget_that_suffices_leaves_nothing_out(run):
    judge = answering(offline_reply)
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(calls=80))
    assert len(judge.asked) == 80
    assert (len(found.rows), found.left_out or [], found.told) == (40, [], found.told)
    assert "budget" not in found.told
    assert "order" not in found.told


@every_door
async def test_a_budget_of_nothing_sends_nothing(run):
    judge = answering(offline_reply)
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(calls=0))
    assert judge.asked == []
    assert found.rows == {}
    assert "The budget of 0 calls is spent: 40 scores were left out." in found.told
    nothing_is_lost(found, SAMPLES, "faithfulness")


@every_door
@each("kind", ["list", "file", "iterator"])
async def test_what_is_done_is_the_head_of_the_random_order_or_of_an_iterator(run, tmp_path, kind):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(given) + "\n" for given in SAMPLES))
    given = {"list": SAMPLES, "file": path, "iterator": iter(SAMPLES)}[kind]
    judge = answering(offline_reply)
    found = await run(given, faithfulness(judge), budget=Budget(calls=31), max_concurrency=4)
    assert len(found.rows) == 15
    order = range(len(SAMPLES)) if kind == "iterator" else drawn_order(len(SAMPLES))
    assert {*found.rows} <= {*order[: 15 + 2 * 4]}  # workers, of which one may be let in before another
    assert all(row.sample.id == f"q-{index}" for index, row in found.rows.items())
    if found.report is not None:
        codes = {code_of(note) for note in found.report.notes}
        assert codes & {"random-order", "file-order"} == {"file-order" if kind == "iterator" else "random-order"}
        assert [*found.rows] == sorted(found.rows)


async def test_repeated_ids_of_a_list_and_a_file_are_numbered_in_the_order_of_the_input(run, tmp_path):
    repeated = [{**town(n // 2), "answer": f"Town {n // 2:04} was founded in {1158 + n % 2}."} for n in range(20)]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(given) + "\n" for given in [*repeated, {"no": "sample"}]))
    for given in (repeated, path):
        found = await run(given, faithfulness(answering(offline_reply)), budget=Budget(calls=30))
        for index, row in found.rows.items():
            if index < 20:
                assert row.sample.id == f"q-{index // 2}" + "-2" * (index % 2)


async def test_samples_that_cost_nothing_do_not_make_others_seem_free(run):
    judge = answering(offline_reply)
    given = [town(n, answer="") for n in range(10)] + SAMPLES[10:]
    found = await run(given, faithfulness(judge), budget=Budget(calls=8), max_concurrency=8)
    assert len(judge.asked) == 8
    assert sum(row.scores["faithfulness"].usage.calls > 0 for row in found.rows.values()) == 4
    nothing_is_lost(found, given, "faithfulness")
    embeddings = Vectors(answer=lambda text: [float(len(text)), 1.0])
    given = [town(n, answer="I do not know.") for n in range(10)] + SAMPLES[10:]
    await run(given, answer_relevance(OfflineJudge(), embeddings), budget=Budget(embeddings=9), max_concurrency=8)
    assert sum(map(len, embeddings.asked)) == 8


async def test_scores_that_cost_more_than_expected_do_not_exceed_it(run):
    judge = answering(offline_reply)
    long = " ".join(f"Fact {number} is in the book." for number in range(120))
    first = drawn_order(20)[:10]
    given = [town(n) if n in first else town(n, answer=long) for n in range(20)]
    found = await run(given, faithfulness(judge), budget=Budget(calls=30), max_concurrency=2)
    assert len(judge.asked) <= 30
    assert {failure.error for failure in failures(found)} == {"BudgetExceeded"}
    assert {failure.message for failure in failures(found)} == {
        "the budget of 30 calls is spent; the score was begun and cannot be finished"
    }
    nothing_is_lost(found, given, "faithfulness")


@each("text", ["The city has a river.", "Elephant number {} lives there."])
async def test_a_judge_in_a_repetition_loop_costs_tens_of_calls(run, text):
    def loop(messages):
        reply = offline_reply(messages)
        if "statements" in json.loads(reply.text):
            return AIMessage(json.dumps({"statements": [text.format(number) for number in range(3000)]}))
        return reply

    judge = answering(loop)
    found = await run([town(0)], faithfulness(judge))
    assert len(judge.asked) < 20
    score = found.rows[0].scores["faithfulness"]
    assert score.value is not None
    assert "; repeated or surplus statements of the judge dropped: " in score.reason


# What counts


async def test_calls_that_are_lost_count(run, openai_server, chat_openai):
    server = openai_server(offline, faults=Faults.rates(seed=3, **{"500": 0.4}))
    metric = faithfulness(Judge(chat_openai(server), mode="json_schema"))
    quick = RetryPolicy(attempts=10, initial=0.001, max_wait=0.01)
    found = await run(SAMPLES, metric, budget=Budget(calls=60), retry=quick, max_concurrency=2)
    assert {failure.error for failure in failures(found)} <= {"BudgetExceeded"}
    assert len(found.rows) < 30  # as many as would have fitted if nothing had been lost
    assert sum(row.scores["faithfulness"].usage.calls for row in found.rows.values()) == server.calls
    assert server.calls <= 60
    nothing_is_lost(found, SAMPLES, "faithfulness")


@every_door
async def test_what_is_asked_again_counts(run):
    asked = Counter()

    def answer(messages):
        text = messages[-1].text
        asked[text] += 1
        return "no JSON" if len(messages) < 4 else offline_reply(messages)

    judge = answering(answer)
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(calls=60), max_concurrency=2)
    assert {failure.error for failure in failures(found)} <= {"BudgetExceeded"}
    assert 10 <= len(found.rows) <= 17  # at four calls each, and those that could not be finished
    assert len(judge.asked) <= 60
    nothing_is_lost(found, SAMPLES, "faithfulness")


@each("reply", ["text", "tool call"])
async def test_a_model_that_reports_no_tokens_is_bounded_by_characters(run, reply):
    letters = []

    def answer(messages):
        written = offline_reply(messages).text
        letters.append(tokens_in(*(message.text for message in messages), written))
        if reply == "text":
            return AIMessage(written)
        call = {"name": "Statements" if "statements" in written else "Verdicts", "args": json.loads(written), "id": "1"}
        return AIMessage("", tool_calls=[call])

    judge = answering(answer)
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(tokens=15_000))
    assert 10_000 < sum(letters) <= 15_000 + len(letters)
    assert 0 < len(found.rows) < len(SAMPLES)
    assert all(row.scores["faithfulness"].usage.input_tokens is None for row in found.rows.values())
    nothing_is_lost(found, SAMPLES, "faithfulness")


async def test_a_silent_model_is_charged_for_the_tools_it_is_shown_and_the_arguments_it_writes():
    from langchain_rageval.run.drivers import drive
    from langchain_rageval.run.requests import Call
    from langchain_rageval.run.run import Run

    run = Run()
    reply = AIMessage("", tool_calls=[{"name": "f", "args": {"x": "y" * 392}, "id": "1"}])
    shown = {"tools": [{"function": {"description": "d" * 4000}}]}

    def work():
        yield Call(RunnableLambda(lambda _messages, **_: reply), [], dict(shown))

    drive(work(), run, {})
    assert run.meter.unreported == tokens_in(json.dumps(shown["tools"]), json.dumps({"x": "y" * 392}))


# What costs nothing


@every_door
async def test_metrics_that_cost_nothing_go_on(run):
    judge = answering(offline_reply)
    own = RunnableLambda(lambda _: Score(metric="own", aspect="answer", value=1.0), name="own")
    rated = answer_similarity(PairScores(lambda _one, _other: 0.5))
    found = await run(SAMPLES, [faithfulness(judge), own, rated], budget=Budget(calls=11))
    names = [sorted(row.scores) for row in found.rows.values()]
    assert names.count(["answer_similarity", "faithfulness", "own"]) == 5
    assert names.count(["answer_similarity", "own"]) == 35
    nothing_is_lost(found, SAMPLES, "faithfulness", "own", "answer_similarity")


# Every kind of metric


BOTH = ("context_recall", "context_relevance")


@each(
    ("names", "build", "least"),
    [
        (["mine"], lambda judge: faithfulness(judge, name="mine").with_retry().with_config(tags=["x"]), 20),
        # bounded by a call for each step
        (["faithfulness"], lambda judge: RunnableLambda(lambda given: given) | faithfulness(judge), 20),
        (BOTH, lambda judge: suite(context_recall(judge), context_relevance(judge)), 18),  # left out one by one
    ],
)
async def test_what_is_around_a_metric_changes_neither_name_nor_bound(run, names, build, least):
    judge = answering(offline_reply)
    found = await run(SAMPLES, build(judge), budget=Budget(calls=20))
    assert least <= len(judge.asked) <= 20
    nothing_is_lost(found, SAMPLES, *names)


async def test_metrics_that_share_steps_stay_within_it_together(run):
    judge = answering(offline_reply)
    metrics = [faithfulness(judge), answer_correctness(judge, HashingEmbeddings())]
    found = await run(SAMPLES, metrics, budget=Budget(calls=60))
    under_way = 16  # who of two pays for what they share is chance, so one may cost more than its kind as a rule
    assert len(judge.asked) <= 60 + under_way
    # Both extract the statements of the answer, and one pays: never fewer than if each paid, and the next did not fit.
    assert len(found.scored) >= 2 * (60 - 3) / (2 + 3)
    nothing_is_lost(found, SAMPLES, "faithfulness", "answer_correctness")


@every_door
async def test_the_first_failure_still_raises_if_asked(run):
    judge = answering(lambda _: "no JSON")
    with pytest.raises(JudgeOutputError):
        await run(SAMPLES, faithfulness(judge), budget=Budget(calls=30), on_failure="raise", max_concurrency=2)
    judge = answering(offline_reply)
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(calls=30), on_failure="raise")
    assert len(judge.asked) == 30
    nothing_is_lost(found, SAMPLES, "faithfulness")


@every_door
async def test_a_sample_that_cannot_be_scored_costs_nothing_and_is_a_failure(run):
    judge = answering(offline_reply)
    given = iter([{"question": "Q?"}, *SAMPLES[:3], "no sample"])
    found = await run(given, faithfulness(judge), budget=Budget(calls=6))
    failed = [bool(row.scores["faithfulness"].failure) for _, row in sorted(found.rows.items())]
    assert failed == [True, False, False, False, True]
    assert len(judge.asked) == 6


def test_a_sample_that_lacks_a_field_is_a_failure_also_if_the_budget_is_nothing():
    report = evaluate(iter([{"question": "Q?"}]), faithfulness(OfflineJudge()), budget=Budget(calls=0), progress=False)
    assert [score.failure.error for _, score in report.failures()] == ["SampleError"]
    assert report.left_out == []


# Samples without an end


@every_door
async def test_an_endless_iterator_ends(run):
    judge, read = answering(offline_reply), []

    def endless():
        for number in count():
            read.append(number)
            yield town(number)

    found = await run(endless(), faithfulness(judge), budget=Budget(calls=20), max_concurrency=2)
    assert len(judge.asked) == 20
    assert len(found.rows) == 10
    assert len(read) <= 10 + 2 * 2 + 2
    assert max(found.rows) < len(read)
    assert "on, and later samples were not read." in found.told


async def test_an_endless_async_iterator_ends_and_is_closed():
    judge, closed = answering(offline_reply), []

    async def endless():
        try:
            for number in count():
                yield town(number)
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    report = await aevaluate(endless(), faithfulness(judge), budget=Budget(calls=20), progress=False)
    assert (len(report.rows), len(judge.asked)) == (10, 20)
    await auntil(lambda: closed)


# With a journal


@pytest.mark.parametrize("kind", ["list", "iterator"])
async def test_run_after_run_goes_on_and_all_together_pay_what_one_would(run, tmp_path, kind):
    judge, runs = answering(offline_reply), []
    for _ in range(4):
        before = len(judge.asked)
        given = SAMPLES if kind == "list" else iter(SAMPLES)
        found = await run(given, faithfulness(judge), budget=Budget(calls=30), journal=tmp_path / "run.db")
        runs.append((len(judge.asked) - before, len(found.rows)))
    assert runs == [(30, 15), (30, 30), (20, 40), (0, 40)]
    whole = evaluate(SAMPLES, faithfulness(OfflineJudge()), progress=False)
    values = {row.index: row.scores["faithfulness"].value for row in whole.rows}
    assert {index: row.scores["faithfulness"].value for index, row in found.rows.items()} == values


@every_door
async def test_what_a_journal_holds_is_in_the_report_even_behind_what_is_left_out(run, tmp_path):
    judge = answering(offline_reply)
    evaluate(SAMPLES[30:], faithfulness(judge), progress=False, journal=tmp_path / "run.db")
    found = await run(SAMPLES, faithfulness(judge), budget=Budget(calls=10), journal=tmp_path / "run.db")
    assert set(found.rows) > set(range(30, 40))
    assert len(found.rows) == 5 + 10
    nothing_is_lost(found, SAMPLES, "faithfulness")


# What the report says


async def test_a_row_with_some_of_its_scores_is_in_the_report():
    metrics = [context_relevance(OfflineJudge()), faithfulness(OfflineJudge())]
    report = evaluate(SAMPLES, metrics, progress=False, budget=Budget(calls=4), max_concurrency=1)
    one, two = sorted(sorted(row.scores) for row in report.rows)
    assert (one, two) == (["context_relevance"], ["context_relevance", "faithfulness"])
    begun = drawn_order(len(SAMPLES))[:2]
    assert {row.index: len(row.scores) for row in report.rows} == dict(zip(begun, (2, 1), strict=True))
    assert (begun[1], "faithfulness") in report.left_out
    assert report.summary()["faithfulness"].scored == 1


# Mistakes


@each("budget", [5, "5", {"calls": 5}, 0, Budget])
async def test_what_is_no_budget_is_refused_before_any_call(run, budget):
    judge = answering(offline_reply)
    with pytest.raises(ConfigError, match=r"budget must be a Budget\(calls=..., tokens=...\), got"):
        await run(SAMPLES, faithfulness(judge), budget=budget)
    assert judge.asked == []


# Metrics whose cost no dry run shows


@each(
    ("metric", "least"),
    [
        (faithfulness, {"tokens": 2 * (800 + tokens_in(*(SAMPLES[0][name] for name in ("question", "answer")),
                                                       *SAMPLES[0]["contexts"], *SAMPLES[0]["references"]))}),
        (faithfulness, {"calls": 2}),
        (lambda judge: answer_similarity(HashingEmbeddings()), {"embeddings": 2}),
    ],
)  # fmt: skip
def test_a_chain_is_admitted_if_a_call_for_each_step_fits(metric, least):
    """Expected are 800 tokens and the texts of the sample for a call, and two texts to embed."""
    [(kind, bound)] = least.items()
    for missing, rows in ((0, 1), (1, 0)):
        chain = RunnableLambda(lambda given: given) | metric(OfflineJudge())
        report = evaluate(SAMPLES[:1], chain, budget=Budget(**{kind: bound - missing}), progress=False)
        assert len(report.rows) == rows
