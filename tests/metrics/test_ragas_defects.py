"""Defects that were found in ragas 0.1.21 and 0.4.3, one by one: what ours does where ragas goes wrong.

They are those of the table of ten facts and of the survey of the judge metrics in the research notes about ragas, as
far as they concern the metrics of this package.
"""

import asyncio
import threading
from math import inf, nan

import pytest
from helpers.each import each
from helpers.samples import SAMPLE as MUNICH
from helpers.scripted import (
    PairScores,
    Scripted,
    Vectors,
    absent,
    answering,
    classification,
    contradicted,
    critique,
    entities,
    found_in,
    grades,
    human_of,
    needed,
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
    JudgeOutputError,
    OfflineJudge,
    Sample,
    aevaluate,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    bleu,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    exact_match,
    faithfulness,
    rouge,
    string_presence,
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


def test_a_refusal_is_not_fully_correct():
    """Ragas: no statements on either side gives an F of 1.0."""
    score = answer_correctness(scripted(statements(), statements("c")), **FACTS_ONLY).invoke(SAMPLE)
    assert score.value == 0.0


def test_a_reference_without_facts_makes_no_answer_correct():
    """Ragas collections: either side empty gives 1.0."""
    score = answer_correctness(scripted(statements("a"), statements()), **FACTS_ONLY).invoke(SAMPLE)
    assert score.value == 0.0


def test_two_sides_without_facts_are_unscored_not_one():
    """Ragas: both empty gives 1.0."""
    score = answer_correctness(scripted(statements(), statements()), **FACTS_ONLY).invoke(SAMPLE)
    assert (score.value, score.unscored) == (None, "the answer states no facts, nor does the reference")


def test_two_replies_that_cannot_be_read_are_a_failure_not_an_empty_list():
    """Ragas 0.1: a parse failure is an empty list, so two of them score 1.0."""
    judge = Judge(scripted("no", "no"), attempts=1)
    with pytest.raises(JudgeOutputError, match="extract_statements"):
        answer_correctness(judge, **FACTS_ONLY).invoke(SAMPLE)


def test_a_recall_over_reference_statements_counts_reference_statements():
    """Ragas: TP counts answer statements and FN reference statements, 9 of 9 and 0 of 1 is a recall of 0.9."""
    judge = scripted(statements(*"abcdefghi"), statements("r"), classification({n: [1] for n in range(1, 10)}, fn=[1]))
    score = answer_correctness(judge, **FACTS_ONLY, formula="precision_recall").invoke(SAMPLE)
    assert score.value == 0.0


def test_a_useful_chunk_counts_once_whatever_number_the_judge_writes():
    """Ragas collections: a verdict of 2 gives a context precision of 2.0."""
    two = grades({1: True}).model_dump_json().replace("true", "2")
    sample = SAMPLE.model_copy(update={"contexts": ["A."]})
    score = context_precision(scripted(two, grades({1: True}))).invoke(sample)
    assert (score.value, score.usage.calls) == (1.0, 2)


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


def test_one_verdict_for_four_statements_is_a_failure_when_the_others_never_come():
    judge = scripted(statements(*"abcd"), *[verdicts(supported(4)), verdicts(), verdicts()])
    with pytest.raises(JudgeOutputError, match=r"\[1, 2, 3\]"):
        faithfulness(judge).invoke(SAMPLE)


def test_more_verdicts_than_statements_do_not_change_the_denominator():
    judge = scripted(statements("a", "b"), verdicts(supported(1), absent(2), *(supported(n) for n in range(3, 9))))
    assert faithfulness(judge).invoke(SAMPLE).value == 0.5


def test_a_perfect_ranking_is_exactly_one():
    """Ragas: an epsilon in the denominator makes it 0.99999999998."""
    judge = scripted(grades({1: True, 2: True}))
    assert context_precision(judge).invoke(SAMPLE).value == 1.0


def test_nothing_useful_is_exactly_zero():
    assert context_precision(scripted(grades({1: False, 2: False}))).invoke(SAMPLE).value == 0.0


def test_plain_precision_tells_one_useful_chunk_among_ten_from_ten_useful_ones():
    """Ragas: one relevant chunk at rank 1 among nine useless ones scores 1.0, and there is no other measure."""
    judge = answering(lambda messages: grades({1: True} | dict.fromkeys(range(2, 11), False)))
    sample = SAMPLE.model_copy(update={"contexts": [f"{n}." for n in range(1, 11)]})
    assert context_precision(judge).invoke(sample).value == 1.0
    assert context_precision(judge, weighting="plain").invoke(sample).value == 0.1


def test_a_statement_in_two_lists_is_asked_again():
    """Ragas: nothing checks that each statement stands in exactly one list."""
    judge = scripted(statements("a"), statements("r"), classification({1: [1]}, fp=[1]), classification(fp=[1], fn=[1]))
    assert answer_correctness(judge, **FACTS_ONLY).invoke(SAMPLE).value == 0.0


def test_an_empty_chunk_recalls_nothing_without_a_call():
    """Ragas: real judges gave contexts of [""] a recall from 0.2 to 1.0."""
    score = context_recall(scripted()).invoke(SAMPLE.model_copy(update={"contexts": [""]}))
    assert (score.value, score.usage.calls) == (0.0, 0)


def test_what_is_recalled_is_split_by_one_step_and_judged_by_another():
    """Ragas: one call both splits the reference and judges it, so the denominator varies."""
    judge = scripted(statements("a", "b", "c"), verdicts(supported(1), absent(2), absent(3)))
    assert context_recall(judge).invoke(SAMPLE).value == pytest.approx(1 / 3)
    assert [list(inputs) for inputs in judge.inputs] == [["question", "text"], ["question", "statements"]]


def test_needed_sentences_come_from_the_contexts_and_are_counted_by_number():
    """Ragas 0.1: the judge copies sentences as text, which nothing checks, and a wordy reply is cut to 1."""
    judge = scripted(needed("First. Second. Third. Fourth."), needed("1.1", "1.1"))
    assert context_relevance(judge).invoke(SAMPLE).value == pytest.approx(1 / 3)


# A refusal leaves no mean


def test_a_refusal_stays_in_the_means_of_the_metrics_that_can_tell():
    """Ragas: a refusal without statements is NaN, so the worst answers leave the mean."""
    refusal = {**MUNICH, "answer": "I do not know.", "references": ["Munich was founded in 1158."]}
    judge, embeddings = OfflineJudge(), HashingEmbeddings()
    metrics = [faithfulness(judge), answer_correctness(judge, **FACTS_ONLY), answer_relevance(judge, embeddings)]
    (row,) = evaluate([refusal], metrics, progress=False).rows
    assert row.scores["faithfulness"].unscored == "the answer states no facts"
    assert row.scores["answer_correctness"].value == row.scores["answer_relevance"].value == 0.0


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


@pytest.mark.parametrize("draws", [3, 5])
def test_as_many_votes_as_were_asked_for_are_cast_and_counted(draws):
    """Ragas: `strictness` of the aspect critic makes one call, whatever it says."""
    judge = scripted(*[critique(n >= draws // 2) for n in range(draws)])
    score = aspect_critique(Judge(judge, draws=draws), "coherence").invoke(SAMPLE)
    assert (score.value, len(judge.asked)) == (1.0, draws)


def test_votes_on_chunks_that_are_paid_for_are_counted():
    """Ragas 0.1: context precision pays for the votes and takes the first."""
    judge = scripted(grades({1: True, 2: True}), grades({1: False, 2: False}), grades({1: False, 2: True}))
    score = context_precision(Judge(judge, draws=3), weighting="plain").invoke(SAMPLE)
    assert (score.value, score.usage.calls) == (0.5, 3)


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


@each(
    "dress",
    ["<think>{{}}</think>{}", "```json\n{}\n```", "Here you are: {}", "[{}]"],
    ids=["thoughts", "fence", "prose", "list around"],
)
def test_what_surrounds_a_reply_costs_no_second_call(dress):
    """Ragas: thoughts and a list around the object cannot be read."""
    reply = dress.format(critique(True).model_dump_json())
    assert aspect_critique(scripted(reply), "coherence").invoke(SAMPLE).usage.calls == 1


def test_a_list_that_was_cut_off_is_asked_again():
    """Ragas collections: 1024 tokens cut long lists, and rows are lost."""
    whole = statements("a", "b").model_dump_json()
    judge = scripted(whole[:-6], whole, verdicts(supported(1), absent(2)))
    assert faithfulness(judge).invoke(SAMPLE).value == 0.5


def test_chunks_are_shown_one_by_one_so_that_evidence_can_be_told():
    """Ragas: contexts are joined into one string."""
    judge = scripted(statements("a"), verdicts(contradicted(1, "2.1")))
    (finding,) = faithfulness(judge).invoke(SAMPLE).findings
    assert "[2]\n[2.1] Third." in human_of(judge.asked[1])
    assert finding.cites == ["2.1"]


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


def test_no_similarity_is_negative():
    """Ragas: the raw cosine of answer relevance can be negative, and so can the mean."""
    vectors = Vectors({"What?": [1, 0], "A.": [-1, 0], "R.": [1, 0], "q": [-1, 0], "r": [1, 0]})
    assert answer_similarity(vectors).invoke(SAMPLE).value == 0.0
    assert answer_relevance(scripted(questions("q", "r")), vectors).invoke(SAMPLE).value == 0.5


def test_one_evasive_draw_of_three_does_not_make_an_answer_evasive_nor_do_two_of_three_pass():
    """Ragas 0.1: any makes it 0; 0.4: only all do."""
    one = [questions("q"), questions(evasive=True), questions("q")]
    two = [questions(evasive=True), questions("q"), questions(evasive=True)]
    vectors = Vectors({"What?": [1, 0], "q": [1, 0]})
    values = [answer_relevance(Judge(scripted(*r), draws=3), vectors).invoke(SAMPLE).value for r in (one, two)]
    assert values == [1.0, 0.0]


def test_one_call_and_one_batch_serve_all_regenerated_questions():
    """Ragas collections: as many calls as questions, one after the other."""
    vectors = Vectors({"What?": [1, 0], "q": [1, 0], "r": [1, 0]})
    score = answer_relevance(scripted(questions("q", "r", "q")), vectors).invoke(SAMPLE)
    assert (score.usage.calls, len(vectors.asked)) == (1, 1)


def test_a_threshold_of_zero_is_one():
    """Ragas: `if self.threshold:` takes 0.0 for none."""
    vectors = Vectors({"A.": [1, 0], "R.": [0.6, 0.8]})
    assert answer_similarity(vectors, threshold=0.0).invoke(SAMPLE).value == 1.0


def test_similarity_asks_for_no_judge():
    """Ragas 0.1: it demands a model that it never uses."""
    assert answer_similarity(Vectors({})).judges == []


async def test_a_cross_encoder_works_in_async():
    """Ragas: NotImplementedError."""
    assert (await answer_similarity(PairScores(lambda answer, reference: 0.5)).ainvoke(SAMPLE)).value == 0.5


async def test_embeddings_without_async_methods_do_not_hold_up_the_loop():
    """Ragas: it embeds synchronously on the loop."""
    turn = threading.Event()
    vectors = Vectors(answer=lambda text: [float(turn.wait(PATIENCE)), 0.0])
    waiting = asyncio.create_task(answer_similarity(vectors).ainvoke(SAMPLE))
    while not vectors.asked:
        await asyncio.sleep(0.001)
    turn.set()
    assert (await waiting).value == 1.0


def test_the_statements_of_an_answer_are_judged_side_by_side_in_one_call_for_all_chunks():
    """Ragas: one call for each chunk in context precision, one after the other."""
    judge = scripted(grades(dict.fromkeys(range(1, 8), True)))
    sample = SAMPLE.model_copy(update={"contexts": [f"{n}." for n in range(1, 8)]})
    assert context_precision(judge).invoke(sample).usage.calls == 1


TWO_SENTENCES = "The policy lasts a year. It covers fire and theft."


def test_bleu_reads_every_sentence():
    """Ragas: `corpus_bleu` over `split(". ")` scores the first sentence alone."""
    sample = {"question": "?", "answer": "The policy lasts a year. Bears eat honey now.", "references": [TWO_SENTENCES]}
    assert 0.3 < bleu().invoke(sample).value < 0.7
    assert bleu().invoke({**sample, "answer": TWO_SENTENCES}).value == 1.0


def test_rouge_reads_russian():
    """Ragas: the tokenizer drops what is not ASCII, and identical Russian texts score 0."""
    for variant in ("rouge1", "rouge2", "rougeL"):
        sample = {"question": "?", "answer": "Полис действует год.", "references": ["Полис действует год."]}
        assert rouge(variant=variant).invoke(sample).value == 1.0


def test_a_match_is_not_a_matter_of_case_or_spaces_and_nothing_stands_nowhere():
    """Ragas: `==` and `in`, so "Munich " is not "munich" and an empty reference stands in every answer."""
    assert exact_match().invoke({"question": "?", "answer": "Munich ", "references": ["munich"]}).value == 1.0
    empty = string_presence().invoke({"question": "?", "answer": "Munich", "references": [""]})
    assert (empty.value, empty.unscored) == (None, "the references are blank")


def test_entities_are_looked_for_by_the_judge_and_none_is_not_zero():
    """Ragas: two lists of strings are intersected letter by letter, doubles count, and no entities score 0."""
    judge = scripted(entities("Генрих Лев", "ГЕНРИХ ЛЕВ"), found_in({1: ["1.1"]}))
    sample = SAMPLE.model_copy(update={"contexts": ["Основан Генрихом Львом."]})
    assert context_entity_recall(judge).invoke(sample).value == 1.0
    assert context_entity_recall(scripted(entities())).invoke(sample).value is None


def test_a_score_says_why():
    """Ragas: the judge's reasons are thrown away."""
    judge = scripted(grades({1: True, 2: False}))
    score = context_precision(judge, against="question").invoke(SAMPLE)
    assert score.reason
    assert [finding.reason for finding in score.findings if finding.kind == "context"] == ["r1", "r2"]
