"""Defects that were found in ragas 0.1.21 and 0.4.3, one by one: what ours does where ragas goes wrong.

They are those of the table of ten facts and of the survey of the judge metrics in the research notes about ragas, as
far as they concern the metrics of this package.
"""

import asyncio
import threading
from math import inf, nan

from helpers.each import each
from helpers.samples import SAMPLE as MUNICH
from helpers.scripted import (
    Scripted,
    Vectors,
    absent,
    answering,
    critique,
    human_of,
    offline_reply,
    questions,
    recording_judge,
    scripted,
    statements,
    supported,
    verdict,
    verdicts,
)
from helpers.waiting import PATIENCE
from langchain_core.caches import InMemoryCache

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Sample,
    aevaluate,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
)
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.steps.extract_statements import extract_statements

SAMPLE = Sample(question="What?", answer="A.", references=["R."], contexts=["First. Second.", "Third."])
FACTS_ONLY = {"weights": (1, 0)}


class Named(Scripted):
    """A judge with a model name."""

    model: str = "m"
    temperature: float = 0.7
    n: int = 1


# Wrong numbers


@each("number", ["2", "-1", "0.5", "10"])
def test_a_number_that_is_no_verdict_is_asked_again_not_taken_for_true(number):
    """Ragas: truthy integers count as supported."""
    wrong = critique(True).model_dump_json().replace("true", number)
    score = aspect_critique(scripted(wrong, critique(False)), "coherence").invoke(SAMPLE)
    assert (score.value, score.usage.calls) == (0.0, 2)


def test_one_verdict_for_four_statements_is_asked_again_for_the_other_three():
    """Ragas: the share is of what the judge returned, 1.0 here."""
    judge = scripted(statements(*"abcd"), verdicts(supported(1)), verdicts(absent(1), absent(2), absent(3)))
    assert faithfulness(judge).invoke(SAMPLE).value == 0.25
    assert [item["statement"] for item in judge.inputs[2]["statements"]] == [1, 2, 3]
    assert [item["text"] for item in judge.inputs[2]["statements"]] == ["b", "c", "d"]


def test_more_verdicts_than_statements_do_not_change_the_denominator():
    judge = scripted(statements("a", "b"), verdicts(supported(1), absent(2), *(supported(n) for n in range(3, 9))))
    assert faithfulness(judge).invoke(SAMPLE).value == 0.5


# A refusal leaves no mean


def test_failures_and_unscored_samples_are_counted_beside_the_mean():
    """Ragas: [1, NaN, NaN] is averaged to 1.0, and the NaN are shown nowhere."""
    replies = {"A.": statements("a"), "B.": "never JSON", "C.": statements()}

    def answer(messages):
        inputs = read_inputs(human_of(messages))
        return replies[inputs["text"]] if "text" in inputs else verdicts(supported(1))

    samples = [SAMPLE.model_copy(update={"id": text, "answer": text}) for text in replies]
    summary = evaluate(samples, faithfulness(answering(answer)), progress=False).summary()["faithfulness"]
    assert (summary.mean, summary.scored, summary.failed, summary.unscored) == (1.0, 1, 1, 1)


# Votes


def test_votes_are_matched_by_number_not_by_place():
    """Ragas: votes are aligned by index; in another order they count for other statements."""
    orders = [[supported(1), absent(2)], [absent(2), supported(1)], [absent(2), supported(1)]]
    judge = scripted(statements("a", "b"), *(verdicts(*order) for order in orders))
    score = faithfulness(Judge(judge, draws=3)).invoke(SAMPLE)
    assert [finding.verdict for finding in score.findings] == ["supported", "absent", "1.00", "1.00"]


def test_a_vote_that_misses_a_statement_is_completed_not_thrown_away():
    """Ragas: on unequal lengths the first run is used and the others are dropped."""
    judge = scripted(
        statements("a", "b"), verdicts(supported(1), supported(2)),
        verdicts(absent(1)), verdicts(absent(1)), verdicts(absent(1), absent(2)),
    )  # fmt: skip
    score = faithfulness(Judge(judge, draws=3)).invoke(SAMPLE)
    assert (score.value, score.usage.calls) == (0.0, 5)


def test_reasons_are_those_of_the_votes_that_won():
    """Ragas: the reasons of the first run are kept, also when it lost."""
    judge = scripted(critique(True, "lost"), critique(False, "won"), critique(False, "won too"))
    score = aspect_critique(Judge(judge, draws=3), "coherence").invoke(SAMPLE)
    assert (score.value, score.reason) == (0.0, "won won too")


def test_later_draws_do_not_come_from_the_cache():
    """Ragas: with its cache on, all samples of a vote are copies of one answer."""
    judge = Scripted(replies=[critique(True), critique(False), critique(False)], cache=InMemoryCache())
    assert aspect_critique(Judge(judge, draws=3), "coherence").invoke(SAMPLE).value == 0.0
    assert len(judge.asked) == 3


# Whose answer it is


def test_two_models_never_share_an_answer():
    """Ragas: the key of its cache names no model."""
    one, other = Named(model="one", replies=[critique(True)]), Named(model="other", replies=[critique(False)])
    metrics = [aspect_critique(judge, "coherence", name=judge.model) for judge in (one, other)]
    (row,) = evaluate([SAMPLE], metrics, progress=False).rows
    assert {name: score.value for name, score in row.scores.items()} == {"one": 1.0, "other": 0.0}
    assert metrics[0].instrument != metrics[1].instrument


async def test_twenty_calls_at_once_leave_the_users_settings_alone():
    """Ragas: it writes temperature and n on the user's own model, which 16 jobs share."""
    judge = Named(answer=offline_reply)
    samples = [{**MUNICH, "id": str(n), "answer": f"Munich was founded in 1158, case {n}."} for n in range(20)]
    metrics = [
        answer_relevance(Judge(judge, draws=draws), HashingEmbeddings(), questions=draws, name=f"by {draws}")
        for draws in (1, 3)
    ]
    await aevaluate(samples, metrics, progress=False)
    await asyncio.to_thread(evaluate, samples, metrics, progress=False)
    assert (judge.temperature, judge.n, judge.cache) == (0.7, 1, None)
    assert sorted({inputs["count"] for inputs in judge.inputs}) == [1, 3]
    assert len(judge.asked) == 2 * 20 * (1 + 3)


def test_a_sample_is_judged_the_same_a_second_time():
    """Ragas: a vote changes its own input, and a rubric grows in the prompt it is given."""
    judge = recording_judge()
    metric = faithfulness(Judge(judge, draws=3))
    first, second = metric.invoke(MUNICH), metric.invoke(MUNICH)
    assert first.findings == second.findings
    assert sorted(map(repr, judge.asked[:4])) == sorted(map(repr, judge.asked[4:]))


# Text


@each(
    "answer",
    [
        "Is it 1158? Yes, 1158!",
        "慕尼黑建于1158年。它位于伊萨尔河畔。",
        "- founded in 1158\n- lies on the Isar",
        "Founded in 1158",
        "1158; Isar",
        "Основан в 1158 г., т.е. давно…",
    ],
)
def test_no_part_of_an_answer_is_dropped_before_the_judge_reads_it(answer):
    """Ragas 0.1: only sentences that end in a full stop are kept; questions, calls, bullets and 。 are lost."""
    judge = scripted(statements("a"))
    extract_statements(judge, of="answer").invoke({"sample": SAMPLE.model_copy(update={"answer": answer})})
    assert judge.inputs == [{"question": "What?", "text": answer}]


@each("text", ["curly } brace", "curly { brace", '{"a": [1, {"b": "}"}]}', "}}}} {{{{", '\\"}'])
def test_braces_in_a_string_are_kept(text):
    """Ragas: "curly } brace" is cut to "curly }" without a word."""
    judge = scripted(statements(text), verdicts(verdict(1, "supported", "1.1", reason=text)))
    (finding,) = faithfulness(judge).invoke(SAMPLE.model_copy(update={"answer": text})).findings
    assert (finding.text, finding.reason) == (text, text)
    assert judge.inputs[1]["statements"] == [{"statement": 1, "text": text}]


def test_every_prompt_of_a_russian_sample_is_in_russian():
    """Ragas 0.1: `adapt` leaves the statement prompt of answer correctness English."""
    judge = recording_judge()
    sample = {
        "question": "Где баня?",
        "answer": "Баня у реки.",
        "references": ["У реки."],
        "contexts": ["Баня у реки."],
    }
    for metric in (
        faithfulness(judge), answer_correctness(judge, **FACTS_ONLY), context_recall(judge), context_precision(judge),
        context_relevance(judge), answer_relevance(judge, HashingEmbeddings()), aspect_critique(judge, "coherence"),
    ):  # fmt: skip
        metric.invoke(sample)
    assert len(judge.asked) == 2 + 3 + 2 + 4
    assert all("## Задание" in human_of(messages) for messages in judge.asked)


# Similarity


@each("bad", [[0, 0], [nan, 0], [inf, 1]])
def test_a_vector_without_a_direction_is_a_failure_not_nan(bad):
    """Ragas: a zero vector gives NaN."""
    vectors = Vectors({"What?": [1, 0], "A.": bad, "R.": [1, 0], "q": bad})
    metrics = [
        answer_similarity(vectors),
        answer_correctness(None, vectors, weights=(0, 1)),
        answer_relevance(scripted(questions("q")), vectors),
    ]
    (row,) = evaluate([SAMPLE], metrics, progress=False).rows
    assert [score.failure.error for score in row.scores.values()] == ["ModelOutputError"] * 3


def test_similarity_asks_for_no_judge():
    """Ragas 0.1: it demands a model that it never uses."""
    assert answer_similarity(Vectors({})).judges == []


async def test_embeddings_without_async_methods_do_not_hold_up_the_loop():
    """Ragas: it embeds synchronously on the loop."""
    turn = threading.Event()
    vectors = Vectors(answer=lambda text: [float(turn.wait(PATIENCE)), 0.0])
    waiting = asyncio.create_task(answer_similarity(vectors).ainvoke(SAMPLE))
    while not vectors.asked:
        await asyncio.sleep(0.001)
    turn.set()
    assert (await waiting).value == 1.0
