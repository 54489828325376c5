"""Cascades: a cheap judge passes on to a strong one what it is unsure of."""

import json
import pickle
import re
from itertools import permutations

from helpers.each import each, error_of
from helpers.scripted import token, with_tokens
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    ConfigError,
    Judge,
    OfflineJudge,
    PromptSet,
    RetryPolicy,
    StrictJsonOutputParser,
    aspect_critique,
    cascade,
    claim_metrics,
    context_precision,
    evaluate,
    faithfulness,
    jury,
    rubric,
)
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge
from langchain_rageval.judge.panels import with_fresh_endpoint
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import Verdicts
from langchain_rageval.prompts.layout import RequestContent

SAMPLE = {
    "question": "Is it open?",
    "answer": "It is open. It is free.",
    "contexts": ["It is open."],
    "references": ["It is open."],
}
STATEMENTS = '{"statements": ["It is open.", "It is free."]}'
RUN = {"progress": False, "max_concurrency": 1, "retry": RetryPolicy(attempts=1)}


def verdicts(*labels):
    items = [
        {"statement": n, "reason": f"{n}", "evidence": ["1.1"] if label == "supported" else [], "verdict": label}
        for n, label in enumerate(labels, 1)
    ]
    return json.dumps({"verdicts": items})


class ServerDown(Exception):
    status_code = 503


def judge_of(name, *replies, **options):
    """Return a judge with the replies to its requests for verdicts, the last one again and again, and its requests."""
    received, left = [], list(replies)

    def reply(messages):
        if '"title": "Statements"' in messages[-1].text:
            return AIMessage(STATEMENTS)
        received.append(messages)
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, AIMessage) else AIMessage(found)

    return Judge(RunnableLambda(reply), version=name, **{"attempts": 1, "language": "en", **options}), received


def with_probability(number, text):
    """Return a reply whose first verdict has a probability."""
    at = text.index('"verdict": "') + len('"verdict": "')
    end = text.index('"', at)
    other = "absent" if text[at:end] != "absent" else "supported"
    return with_tokens(text[:at], token(text[at:end], {other: 1 - number} if number < 1 else {}), text[end:])


def run(cheap, strong, **options):
    report = evaluate([SAMPLE], faithfulness(cascade(cheap, strong, **options)), **RUN)
    notes = [re.sub(r"RunnableLambda\([^)]*\)", "judge", note) for note in report.notes if " passed " in note]
    return report.rows[0].scores["faithfulness"], notes


def counts_of(replies, strong_reply, *, least_probability=0.9, **options):
    """Return the score of a cascade, how often the cheap and the strong judge gave verdicts, and the note."""
    cheap, asked = judge_of("cheap", *replies, **options)
    strong, received = judge_of("strong", strong_reply)
    score, (note,) = run(cheap, strong, least_probability=least_probability)
    return score, (len(asked), len(received)), note.removeprefix("judge passed ")


SURE, BOTH, NEITHER = (verdicts(*labels) for labels in (("supported", "absent"), ["supported"] * 2, ["absent"] * 2))


def test_a_sure_judge_is_not_doubled():
    score, asked, note = counts_of([SURE], "never")
    assert (score.value, score.usage.calls, asked) == (0.5, 2, (1, 0))
    assert note == "0 of 2 requests on to judge."


def test_split_votes_are_passed_on_and_other_questions_are_asked_once():
    score, asked, note = counts_of([SURE, BOTH, SURE], NEITHER, draws=3)
    assert (score.value, asked, score.usage.calls) == (0.0, (3, 1), 5)
    assert note == "1 of 2 requests on to judge: 1 with split votes."
    assert not [finding for finding in score.findings if finding.kind == "agreement"]


def test_votes_that_differ_in_reasons_and_order_only_agree():
    turned = json.loads(SURE)
    turned["verdicts"].reverse()
    turned["verdicts"][0]["reason"] = "another reason"
    score, asked, _ = counts_of([SURE, json.dumps(turned), SURE], "never", draws=3)
    assert (score.value, asked) == (0.5, (3, 0))


@each(
    ("reply", "strong", "attempts", "why"),
    [
        ("?", BOTH, 2, "unreadable"),
        (ServerDown(), BOTH, 1, "unanswered"),
        (verdicts("supported"), BOTH, 1, "incomplete"),
        *((reply, reply, 1, why) for reply, why in (("?", "unreadable"), (ServerDown(), "unanswered"))),
    ],
)
def test_what_the_cheap_judge_fails_on_after_its_attempts_is_passed_on(reply, strong, attempts, why):
    score, asked, note = counts_of([reply], strong, attempts=attempts)
    assert (score.value, asked) == (1.0 if strong is BOTH else None, (attempts, 1))
    assert note == f"1 of 2 requests on to judge: 1 {why}."


@each(
    ("numbers", "limit", "passed_on"),
    [
        *(([0.8], 0.9, True), ([0.8], 0.75, False), ([0.5], 0.5, False), ([0.5], 0.51, True)),
        *(([0.5], 0, False), ([1.0], 1, False), ([0.99], 1, True)),
        *(([0.95, 0.95, 0.8], 0.9, True), ([0.8, 0.95, 0.95], 0.9, True), ([0.95, 0.92, 0.91], 0.9, False)),
    ],
)
def test_a_verdict_of_low_probability_in_any_vote_is_passed_on(numbers, limit, passed_on):
    replies = [with_probability(number, SURE) for number in numbers]
    options = {"probabilities": True, "draws": len(numbers), "least_probability": limit}
    score, (_, received), note = counts_of(replies, NEITHER, **options)
    assert (score.value, received) == (0.0 if passed_on else 0.5, passed_on)
    why = ": 1 with a low probability" if passed_on else ""
    assert note == f"{int(passed_on)} of 2 requests on to judge{why}."


@each("replies", list(permutations([SURE, verdicts("supported"), "?"], 2)), ids=str)
def test_one_vote_that_lacks_an_item_or_is_unreadable_is_passed_on(replies):
    score, (_, received), note = counts_of([replies[0], *[replies[1]] * 2], BOTH, draws=3)
    assert (score.value, received) == (1.0, 1)
    assert note.endswith(" unreadable." if "?" in replies else " incomplete.")


def test_each_vote_of_each_draw_of_a_cascade_repeats_the_request_anew():
    cheap, _ = judge_of("cheap", "?", draws=3)
    judge = cascade(cheap, judge_of("strong", "?")[0])
    prompts = PromptSet.default("en")
    request = RequestContent(
        "verify_statements", prompts, prompts.get("verify_statements"), {"question": "?"}, None, strict_schema(Verdicts)
    )
    question = JudgeQuestion(request, StrictJsonOutputParser(Verdicts))
    votes = [vote for draw in range(3) for vote in next(ask_judge(judge, question, Attempts(1), draw)).operations]
    assert [next(vote).draw for vote in votes] == list(range(9))


def test_a_jury_that_disagrees_is_a_cheap_judge_too():
    labels = ["absent", "absent", "supported"]
    members = [judge_of(f"cheap {n}", verdicts("supported", label))[0] for n, label in enumerate(labels)]
    strong, received = judge_of("strong", BOTH)
    score, _ = run(jury(members), strong)
    assert (score.value, len(received)) == (1.0, 1)


def test_a_cascade_may_pass_on_to_a_cascade():
    first, _ = judge_of("first", "?")
    second, _ = judge_of("second", "?")
    third, received = judge_of("third", SURE)
    score, notes = run(first, cascade(second, third))
    assert (score.value, len(received)) == (0.5, 1)
    assert len(notes) == 2


def test_each_report_counts_its_own_requests():
    cheap, _ = judge_of("cheap", SURE)
    strong, _ = judge_of("strong", "never")
    metric = faithfulness(cascade(cheap, strong))
    for _ in range(2):
        report = evaluate([SAMPLE], metric, **RUN)
        assert [note for note in report.notes if " passed 0 of 2 requests on" in note]


def test_instrument_models_and_text_name_both_judges():
    cheap, _ = judge_of("one", "?")
    strong, _ = judge_of("two", "?")
    judge = cascade(cheap, strong)
    described = str(judge.instrument)
    assert "'version': 'one'" in described
    assert "'version': 'two'" in described
    assert judge.instrument != cascade(cheap, strong, least_probability=0.5).instrument != cheap.instrument
    assert faithfulness(judge).models == [cheap.model, strong.model] * 2
    assert judge.identity == f"{cheap.identity}, then {strong.identity}"
    assert repr(judge) == f"cascade({cheap!r}, {strong!r}, least_probability=0.9)"


def test_every_metric_takes_a_cascade_and_scores_as_its_cheap_judge():
    cheap = Judge(OfflineJudge(), language="en")
    judge = cascade(cheap, Judge(OfflineJudge(), max_statements=3))
    builders = [faithfulness, context_precision, rubric, claim_metrics, lambda one: aspect_critique(one, "coherence")]
    alone = evaluate([SAMPLE], [build(cheap) for build in builders], **RUN)
    together = evaluate([SAMPLE], [build(judge) for build in builders], **RUN)
    for name, score in alone.rows[0].scores.items():
        assert together.rows[0].scores[name].value == score.value, name
        assert together.rows[0].scores[name].findings == score.findings, name


def test_a_fresh_copy_keeps_both_judges():
    cheap, _ = judge_of("cheap", "?")
    strong, _ = judge_of("strong", "?")
    judge = cascade(cheap, strong)
    copy = with_fresh_endpoint(judge)
    assert (copy.cheap.model, copy.strong.model) == (cheap.model, strong.model)
    assert copy._endpoint is copy.cheap._endpoint is not cheap._endpoint
    assert copy.strong._endpoint is not strong._endpoint


ONE_VOTE = "the strong judge of a cascade must be one judge with draws=1: its answer is final"
RANGE = "least_probability must be a number from 0 to 1, such as 0.9, got {!r}"


@each(
    ("strong", "number", "message"),
    [
        *((OfflineJudge(), number, RANGE.format(number)) for number in (-0.1, 1.5, "0.9", True)),
        *((strong, 0.9, ONE_VOTE) for strong in (Judge(OfflineJudge(), draws=3), jury([OfflineJudge()] * 3))),
    ],
)
def test_the_strong_judge_has_one_vote_and_the_least_probability_is_one(strong, number, message):
    assert str(error_of(ConfigError, cascade, OfflineJudge(), strong, least_probability=number)) == message


def test_a_cascade_can_be_pickled():
    judge = cascade(Judge(OfflineJudge()), Judge(OfflineJudge()), least_probability=0.8)
    assert repr(pickle.loads(pickle.dumps(judge))) == repr(judge)
