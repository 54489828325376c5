"""Juries, which vote, and cascades, whose cheap judge passes on to a strong one what it is unsure of."""

import copy
import json
import pickle
import re
from itertools import permutations
from typing import Any

import pytest
from helpers.doors import report_by
from helpers.each import DOORS, each, error_of
from helpers.offline import offline
from helpers.samples import SAMPLE as MUNICH
from helpers.scripted import (
    Scripted,
    absent,
    contradicted,
    critique,
    human_of,
    offline_reply,
    questions,
    statements,
    supported,
    token,
    verdicts,
    with_tokens,
)
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    Metric,
    OfflineJudge,
    PromptSet,
    RetryPolicy,
    Sample,
    StrictJsonOutputParser,
    answer_correctness,
    answer_relevance,
    aspect_critique,
    cascade,
    claim_metrics,
    context_precision,
    context_recall,
    evaluate,
    faithfulness,
    jury,
    rubric,
    suite,
)
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge
from langchain_rageval.judge.panels import with_fresh_endpoint
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import Verdicts
from langchain_rageval.prompts.layout import RequestContent, read_inputs

# Juries


SAMPLE = Sample(question="What?", answer="A.", references=["R."], contexts=["First. Second.", "Third."])


class Member(Scripted):
    """A judge with a name and a key."""

    model: str
    api_key: str = "sk-very-secret"


def members(*replies: list[Any]) -> list[Member]:
    """Judges A, B, C, … with the replies of each."""
    return [Member(model=name, replies=given) for name, given in zip("ABCDE", replies, strict=False)]


def alike(count: int) -> list[Member]:
    """Judges that answer as OfflineJudge does."""
    return [Member(model=name, answer=offline_reply) for name in "ABCDE"[:count]]


def agreements(score: Any) -> list[tuple[str, str]]:
    return [(finding.verdict, finding.reason) for finding in score.findings if finding.kind == "agreement"]


def facts_only(judge: Any, **options: Any) -> Metric:
    """Answer correctness without embeddings."""
    return answer_correctness(judge, weights=(1, 0), **options)


def coherence(judge: Any, **options: Any) -> Metric:
    """The critique of one aspect."""
    return aspect_critique(judge, "coherence", **options)


FIRST, SECOND = verdicts(supported(1), absent(2)), verdicts(supported(1), supported(2))
THIRD = verdicts(contradicted(1), supported(2))


# The vote


@each("door", ["invoke", "ainvoke"])
async def test_the_majority_decides_item_by_item_and_who_disagrees_is_named(door):
    judges = members([statements("a", "b"), FIRST], [SECOND], [THIRD])
    metric = faithfulness(jury(judges))
    score = metric.invoke(SAMPLE) if door == "invoke" else await metric.ainvoke(SAMPLE)
    assert (score.value, score.usage.calls) == (1.0, 4)
    assert [finding.verdict for finding in score.findings if finding.kind == "statement"] == ["supported"] * 2
    lone = "2 of 3 votes; Member(model='{}'): {}"
    assert agreements(score) == [("0.67", lone.format("C", "contradicted")), ("0.67", lone.format("A", "absent"))]
    assert [len(judge.asked) for judge in judges] == [2, 1, 1]  # the first one extracts for all


def test_only_the_first_judge_regenerates_questions():
    judges = members([questions("What?")], [], [])
    score = answer_relevance(jury(judges), HashingEmbeddings()).invoke(SAMPLE)
    assert (score.value, score.usage.calls, agreements(score)) == (1.0, 1, [])


def test_extraction_and_the_first_vote_are_shared_with_a_metric_of_the_first_judge_alone():
    judges = alike(3)
    scores = suite(faithfulness(jury(judges)), faithfulness(judges[0], name="alone")).invoke(MUNICH)
    assert [len(judge.asked) for judge in judges] == [2, 1, 1]
    assert sum(score.usage.calls for score in scores.values()) == 4
    assert scores["alone"].value == scores["faithfulness"].value == 0.5


def test_metrics_of_one_jury_share_their_votes():
    judges = alike(3)
    bench = jury(judges)
    sample = {**MUNICH, "references": ["Munich was founded in 1158."]}
    suite(faithfulness(bench), context_recall(bench), facts_only(bench)).invoke(sample)
    assert [len(judge.asked) for judge in judges] == [5, 3, 3]


def test_draws_of_a_member_are_its_votes():
    judges = members([statements("a"), *[verdicts(supported(1))] * 3], [verdicts(absent(1))], [verdicts(absent(1))])
    score = faithfulness(jury([Judge(judges[0], draws=3), *judges[1:]])).invoke(SAMPLE)
    assert score.value == 1.0
    assert agreements(score) == [("0.60", "3 of 5 votes; Member(model='B'): absent; Member(model='C'): absent")]
    assert [len(judge.asked) for judge in judges] == [4, 1, 1]


def test_a_jury_within_a_jury_counts_as_its_judges():
    judges = members(
        [statements("a"), verdicts(supported(1))], [verdicts(supported(1))], [verdicts(absent(1))],
        [verdicts(absent(1))], [verdicts(absent(1))],
    )  # fmt: skip
    nested = jury([jury(judges[:3]), *judges[3:]])
    assert nested.members == jury(judges).members
    score = faithfulness(nested).invoke(SAMPLE)
    assert (score.value, score.usage.calls, agreements(score)[0][0]) == (0.0, 6, "0.60")


def test_each_judge_is_asked_in_its_own_way():
    own = PromptSet.default("en").replace("critique_aspect", instruction="Say yes or no.")
    judges = members([critique(True)], ["not yet", critique(True)], [critique(False)])
    others = [Judge(judges[1], language="ru", attempts=2), Judge(judges[2], prompts=own, layout="instruction_first")]
    assert coherence(jury([judges[0], *others])).invoke(SAMPLE).value == 1.0
    first, second, third = (human_of(judge.asked[0]) for judge in judges)
    assert "## Контексты" in second
    assert "## Contexts" in first
    assert read_inputs(second)["definition"] == PromptSet.default("ru").common.aspects["coherence"]
    assert third.startswith("## Task\nSay yes or no.")
    assert [len(judge.asked) for judge in judges] == [1, 2, 1]


def test_each_judge_has_slices_of_its_own_size():
    judges = alike(3)
    sample = {
        **MUNICH,
        "answer": "Munich was founded in 1158. Elephants live there. Lions live there. Bears live there.",
    }
    faithfulness(jury([judges[0], Judge(judges[1], max_statements=1), judges[2]])).invoke(sample)
    assert [len(judge.asked) for judge in judges] == [2, 4, 1]


# A judge that fails


@each("number", [0, 1, 2])
def test_without_one_judges_verdict_the_score_is_a_failure_never_a_vote_of_two(number):
    replies = [[statements("a", "b"), FIRST], [SECOND], [THIRD]]
    replies[number][-1] = "I would rather not."
    judges = members(*replies)
    metric = faithfulness(jury([Judge(judge, attempts=1) for judge in judges]))
    score = evaluate([SAMPLE], metric, progress=False).rows[0].scores["faithfulness"]
    assert (score.value, score.failure.error) == (None, "JudgeOutputError")
    assert score.failure.raw_output == "I would rather not."
    assert score.usage.calls == sum(len(judge.asked) for judge in judges)


def test_an_error_of_a_members_client_is_told_without_its_key():
    judges = members([critique(True)], [ValueError("bad key sk-very-secret")], [critique(True)])
    (row,) = evaluate([SAMPLE], coherence(jury(judges)), progress=False).rows
    failure = row.scores["coherence"].failure
    assert (failure.error, failure.message) == ("ValueError", "bad key ***")


# What is refused


@each("count", [0, 1, 2, 4, 6])
@each("no_list", ["abc", None, OfflineJudge(), {1: 2}, iter([OfflineJudge()] * 3)], ids=type)
def test_an_even_number_fewer_than_three_and_what_is_no_list_are_refused(count, no_list):
    for judges, got in (([OfflineJudge()] * count, count), (no_list, type(no_list).__name__)):
        caught = error_of(ConfigError, jury, judges)
        assert str(caught) == f"a jury takes a list of 3, 5, … judges, so that there is a majority, got {got}"


def test_a_member_that_is_no_judge_is_refused():
    with pytest.raises(ConfigError, match="a judge is a chat model or another Runnable, got str"):
        jury([OfflineJudge(), "openai:small", OfflineJudge()])


# What it tells of itself


def test_it_shows_its_judges_and_no_key():
    bench = jury([Judge(judge, attempts=number) for number, judge in enumerate(members([], [], []), 1)])
    shown = repr(bench)
    assert shown.startswith("jury([Judge(Member(model='A'), ")
    assert all(f"Member(model='{name}')" in shown for name in "ABC")
    assert "attempts=3" in shown
    assert (bench.model, bench.attempts) == (bench.members[0].model, 1)
    assert bench.identity == "Member(model='A'), Member(model='B'), Member(model='C')"
    for text in (shown, str(bench), repr(faithfulness(bench)), str(bench.instrument)):
        assert "secret" not in text


def test_the_instrument_tells_juries_apart_by_their_judges_options_prompts_and_order():
    a, b, c, d = alike(4)
    own = PromptSet.default("en").replace("verify_statements", instruction="Verify.")
    benches = [
        jury([a, b, c]), jury([a, b, d]), jury([b, a, c]), jury([a, b, Judge(c, draws=3)]),
        jury([a, b, Judge(c, prompts=own)]), jury([a, b, c, d, d]), Judge(a), Judge(a, draws=3),
    ]  # fmt: skip
    assert len({faithfulness(bench).instrument for bench in benches}) == len(benches)
    assert faithfulness(jury([a, b, c])).instrument == faithfulness(jury(alike(3))).instrument


# Through every door


@pytest.mark.parametrize("copied", [lambda x: x, copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
async def test_a_jury_and_its_copies_judge_in_evaluations(copied):
    bench = jury([OfflineJudge(), Judge(OfflineJudge(), language="ru"), Judge(OfflineJudge(), draws=3)])
    metric = copied(faithfulness(bench))
    assert metric.instrument == faithfulness(bench).instrument
    for door in DOORS:
        report = await report_by(door, [MUNICH] * 3, metric)
        assert [row.scores["faithfulness"].value for row in report.rows] == [0.5] * 3
        assert {finding.reason for finding in report.rows[0].scores["faithfulness"].findings[2:]} == {"5 of 5 votes"}


class Noted(OfflineJudge):
    """A judge of which a report says something."""

    model: str

    @property
    def report_note(self) -> str:
        """What it is."""
        return f"Judged by {self.model}."


def test_a_reports_notes_are_those_of_each_judge():
    report = evaluate([MUNICH], faithfulness(jury([Noted(model=name) for name in "ABC"])), progress=False)
    assert [f"Judged by {name}." for name in "ABC"] == [note for note in report.notes if note.startswith("Judged by")]


def test_a_report_notes_by_which_rung_each_judge_was_asked(chat_openai, openai_server):
    models = [chat_openai(openai_server(offline, rungs=rungs)) for rungs in ({"json_schema"}, {"prompt"}, {"prompt"})]
    models[2].model_name = "other"
    bench = jury(models)
    report = evaluate([MUNICH], faithfulness(bench), progress=False)
    assert [member._endpoint.capabilities.mode.rung for member in bench.members] == ["json_schema", "prompt", "prompt"]
    assert report.rows[0].scores["faithfulness"].value == 0.5
    asked_by = {member.identity: member._endpoint.capabilities.mode.rung for member in bench.members}
    assert [f"{identity} was called in {rung} mode." for identity, rung in asked_by.items()] == report.notes


@each(
    "seats",
    [lambda judge: [judge] * 2, lambda judge: [Judge(judge)] * 2, lambda judge: [judge, Judge(judge, attempts=2)]],
    ids=["model", "Judge", "other options"],
)
def test_a_judge_with_several_seats_votes_anew_in_each(seats):
    judge, other = members([critique(True), critique(False)], [critique(False)])
    score = coherence(jury([*seats(judge), other])).invoke(SAMPLE)
    assert (score.value, len(judge.asked), score.usage.calls) == (0.0, 2, 3)


def test_of_several_seats_only_the_first_takes_the_reply_from_the_models_cache():
    judge = Member(model="A", answer=lambda messages: critique(True), cache=InMemoryCache())
    metric = coherence(jury([judge] * 3))
    assert [metric.invoke(SAMPLE).value for _ in range(2)] == [1.0, 1.0]
    assert len(judge.asked) == 3 + 2


# Cascades


MUSEUM = {"question": "Is it open?", "answer": "It is open. It is free."}
MUSEUM |= {"contexts": ["It is open."], "references": ["It is open."]}
STATEMENTS = '{"statements": ["It is open.", "It is free."]}'
RUN = {"progress": False, "max_concurrency": 1, "retry": RetryPolicy(attempts=1)}


def reply_of(*labels):
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
    report = evaluate([MUSEUM], faithfulness(cascade(cheap, strong, **options)), **RUN)
    notes = [re.sub(r"RunnableLambda\([^)]*\)", "judge", note) for note in report.notes if " passed " in note]
    return report.rows[0].scores["faithfulness"], notes


def counts_of(replies, strong_reply, *, least_probability=0.9, **options):
    """Return the score of a cascade, how often the cheap and the strong judge gave verdicts, and the note."""
    cheap, asked = judge_of("cheap", *replies, **options)
    strong, received = judge_of("strong", strong_reply)
    score, (note,) = run(cheap, strong, least_probability=least_probability)
    return score, (len(asked), len(received)), note.removeprefix("judge passed ")


SURE, BOTH, NEITHER = (reply_of(*labels) for labels in (("supported", "absent"), ["supported"] * 2, ["absent"] * 2))


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
        (reply_of("supported"), BOTH, 1, "incomplete"),
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


@each("replies", list(permutations([SURE, reply_of("supported"), "?"], 2)), ids=str)
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
    members = [judge_of(f"cheap {n}", reply_of("supported", label))[0] for n, label in enumerate(labels)]
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
        report = evaluate([MUSEUM], metric, **RUN)
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
    alone = evaluate([MUSEUM], [build(cheap) for build in builders], **RUN)
    together = evaluate([MUSEUM], [build(judge) for build in builders], **RUN)
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
