import asyncio
import copy
import pickle
from typing import Any

import pytest
from helpers.each import each, error_of
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
    verdicts,
)
from langchain_core.caches import InMemoryCache

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    Metric,
    OfflineJudge,
    PromptSet,
    Sample,
    aevaluate,
    answer_correctness,
    answer_relevance,
    aspect_critique,
    context_recall,
    evaluate,
    faithfulness,
    jury,
    suite,
)
from langchain_rageval.prompts.layout import read_inputs

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


FIRST, SECOND, THIRD = (
    verdicts(supported(1), absent(2)),
    verdicts(supported(1), supported(2)),
    verdicts(contradicted(1), supported(2)),
)


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
    bench = jury(
        [
            judges[0],
            Judge(judges[1], language="ru", attempts=2),
            Judge(judges[2], prompts=own, layout="instruction_first"),
        ]
    )
    assert coherence(bench).invoke(SAMPLE).value == 1.0
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
        "answer": "Munich was founded in 1158. " + "Elephants live there. Lions live there. Bears live there.",
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
    samples = [MUNICH] * 3
    reports = [
        await asyncio.to_thread(evaluate, samples, metric, progress=False),
        await aevaluate(samples, metric, progress=False),
    ]
    for report in reports:
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
