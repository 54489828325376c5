"""Conversation metrics: the shares, their reasons, when they do not apply, and how many calls they make."""

import pytest
from helpers.scripted import scripted

from langchain_rageval import OfflineJudge, Sample, Turn, conversation_metrics, evaluate, plan, suite
from langchain_rageval.steps import (
    Contradiction,
    Contradictions,
    FactVerdict,
    FactVerdicts,
    NeedVerdict,
    NeedVerdicts,
    TurnFact,
    TurnFacts,
)
from langchain_rageval.testing import MetricTests, ScriptedJudge

SAMPLE = Sample(
    question="And how much is it for two?",
    history=[
        Turn(role="user", text="I have two cats. Do you insure them?"),
        Turn(role="assistant", text="Yes, for 5 euros a month each."),
    ],
    answer="For two, 20 euros a month. How many cats do you have?",
)
RUSSIAN = Sample(
    question="А за двух сколько?",
    history=[Turn(role="user", text="У меня две кошки."), Turn(role="assistant", text="Полис стоит 500 рублей.")],
    answer="За двух 2000 рублей. Сколько у вас кошек?",
)
FACTS = TurnFacts(
    statements=[TurnFact(turn=2, text="A cat costs 5 euros."), TurnFact(turn=4, text="Two cats cost 20 euros.")],
    facts=[TurnFact(turn=1, text="The user has two cats.")],
    needs=[TurnFact(turn=1, text="Whether cats are insured."), TurnFact(turn=3, text="The price for two.")],
)
PAIRS = Contradictions(contradictions=[Contradiction(reason="5 or 10 each", first=1, second=2)])
TOLD = FactVerdicts(verdicts=[FactVerdict(fact=1, reason="It asks.", verdict="asked again", turns=[4])])
NEEDS = NeedVerdicts(
    verdicts=[
        NeedVerdict(need=1, reason="Yes.", verdict="met", turns=[2]),
        NeedVerdict(need=2, reason="20.", verdict="unmet", turns=[]),
    ]
)
NAMES = ["conversation_consistency", "conversation_retention", "conversation_resolution"]


def scores(sample=SAMPLE, *, facts=FACTS, pairs=PAIRS, told=TOLD, needs=NEEDS):
    replies = [reply for reply in (facts, pairs, told, needs) if reply is not None]
    return conversation_metrics(scripted(*replies)).invoke(sample)


class TestConversationMetrics(MetricTests):
    """The suite in every interface; each call of the judge is answered alike."""

    metric = conversation_metrics(ScriptedJudge(FACTS, PAIRS, TOLD, NEEDS, repeat=True))
    sample = SAMPLE.model_dump()


def test_each_share_is_computed_from_the_verdicts_and_its_reason_names_the_turns():
    found = scores()
    assert list(found) == NAMES
    assert [score.value for score in found.values()] == [0.0, 0.0, 0.5]
    assert [score.reason for score in found.values()] == [
        "Statements of the assistant without a contradiction: 0 of 2; contradicted: «A cat costs 5 euros» (turns 2, 4)"
        "; contradicted: «Two cats cost 20 euros» (turns 4, 2).",
        "Facts of the user that the assistant keeps to: 0 of 1; asked again: «The user has two cats» (turns 1, 4).",
        "Needs of the user that are met: 1 of 2; unmet: «The price for two» (turn 3).",
    ]
    assert {score.aspect for score in found.values()} == {"conversation"}
    assert {finding.kind for score in found.values() for finding in score.findings} == {"turn"}


def test_a_russian_conversation_has_russian_reasons():
    assert [score.reason for score in scores(RUSSIAN).values()] == [
        "Утверждений ассистента без противоречий: 0 из 2; противоречит другому ответу: «A cat costs 5 euros» "
        "(реплики 2, 4); противоречит другому ответу: «Two cats cost 20 euros» (реплики 4, 2).",
        "Учтено из того, что сообщил пользователь: 0 из 1; переспрошено: «The user has two cats» (реплики 1, 4).",
        "Решено вопросов пользователя: 1 из 2; не решено: «The price for two» (реплика 3).",
    ]


def test_more_than_three_exceptions_are_counted():
    told = [TurnFact(turn=1, text=f"Fact {number}.") for number in range(5)]
    verdicts = [FactVerdict(fact=n + 1, reason="", verdict="ignored", turns=[4]) for n in range(5)]
    facts = FACTS.model_copy(update={"facts": told})
    found = scores(facts=facts, told=FactVerdicts(verdicts=verdicts))["conversation_retention"]
    assert found.reason.endswith("ignored: «Fact 2» (turns 1, 4); and 2 more.")


def test_a_withdrawn_need_does_not_count():
    verdicts = [NEEDS.verdicts[0], NeedVerdict(need=2, reason="", verdict="withdrawn", turns=[4])]
    found = scores(needs=NeedVerdicts(verdicts=verdicts))["conversation_resolution"]
    assert (found.value, found.reason) == (1.0, "Needs of the user that are met: 1 of 1.")
    assert [finding.verdict for finding in found.findings] == ["met", "withdrawn"]


def test_a_fact_that_nothing_later_touches_does_not_count():
    verdicts = [
        FactVerdict(fact=1, reason="", verdict="ignored", turns=[4]),
        FactVerdict(fact=2, reason="", verdict="not touched", turns=[]),
    ]
    facts = FACTS.model_copy(update={"facts": [TurnFact(turn=1, text=f"Fact {n}") for n in (1, 2)]})
    found = scores(facts=facts, told=FactVerdicts(verdicts=verdicts))["conversation_retention"]
    assert (found.value, [finding.verdict for finding in found.findings]) == (0.0, ["ignored", "not touched"])
    untouched = [verdict.model_copy(update={"verdict": "not touched"}) for verdict in verdicts]
    found = scores(facts=facts, told=FactVerdicts(verdicts=untouched))["conversation_retention"]
    assert (found.value, found.unscored) == (None, "no later turn touches what the user stated")


@pytest.mark.parametrize("question", ["OK", "5", "README", "А подешевле?"])
def test_the_language_is_that_of_the_whole_conversation(question):
    history = [Turn(role="user", text="Нужен тариф до 500 ₽."), Turn(role="assistant", text="Есть «Старт» за 600 ₽.")]
    sample = Sample(history=history, question=question, answer="Подключить «Мини» за 400 ₽?")
    judge = ScriptedJudge(FACTS, PAIRS, TOLD, NEEDS)
    conversation_metrics(judge).invoke(sample)
    assert all("## Задание" in request.human for request in judge.requests)


def test_without_history_the_metrics_do_not_apply_and_nothing_is_asked():
    found = conversation_metrics(scripted()).invoke(Sample(question="Why?", answer="So."))
    assert {score.unscored for score in found.values()} == {"the sample has no history"}
    assert sum(score.usage.calls for score in found.values()) == 0


def test_a_conversation_without_statements_facts_or_needs_says_which():
    found = scores(
        facts=TurnFacts(statements=FACTS.statements[:1], facts=[], needs=[]), pairs=None, told=None, needs=None
    )
    assert [score.unscored for score in found.values()] == [
        "fewer than two turns of the assistant state facts",
        "the user states no facts that later turns could keep to",
        "the user needs nothing",
    ]
    verdicts = [NeedVerdict(need=n, reason="", verdict="withdrawn", turns=[4]) for n in (1, 2)]
    assert scores(needs=NeedVerdicts(verdicts=verdicts))["conversation_resolution"].unscored == "the user needs nothing"


def test_four_calls_at_most_score_a_conversation_and_two_score_one_metric():
    judge = ScriptedJudge(FACTS, PAIRS, TOLD, NEEDS, repeat=True)
    report = evaluate([SAMPLE], [conversation_metrics(judge)])
    assert len(judge.requests) == 4 == sum(metric.calls for metric in report.summary().values())
    for metric in conversation_metrics(judge).metrics:
        before = len(judge.requests)
        evaluate([SAMPLE], [metric])
        assert len(judge.requests) - before == 2


def test_a_plan_counts_no_fewer_calls_than_the_run():
    given = [RUSSIAN, SAMPLE]
    planned = plan(given, [conversation_metrics(OfflineJudge())])
    report = evaluate(given, [conversation_metrics(OfflineJudge())])
    assert planned.total.calls == sum(metric.calls for metric in report.summary().values())


def test_scores_are_computed_again_from_their_findings_alone():
    report = evaluate([SAMPLE], [conversation_metrics(ScriptedJudge(FACTS, PAIRS, TOLD, NEEDS, repeat=True))])
    for metric in conversation_metrics(scripted()).metrics:
        again = report.rescore(metric)
        assert again.rows[0].scores[metric.name].value == report.rows[0].scores[metric.name].value


def test_names_take_a_prefix():
    assert [metric.name for metric in conversation_metrics(OfflineJudge(), name="chat").metrics] == [
        "chat_consistency",
        "chat_retention",
        "chat_resolution",
    ]
    both = suite(*conversation_metrics(OfflineJudge()).metrics)
    assert list(both.invoke(SAMPLE)) == NAMES


@pytest.mark.parametrize(
    ("history", "answer", "values"),
    [
        (
            ["Сколько стоит полис?", "Полис стоит 500 рублей в месяц."],
            "Полис стоит 700 рублей в месяц.",
            (0.0, None, 1.0),
        ),
        (["У меня полис с 2020 года.", "Хорошо, понял."], "С какого года у вас полис?", (None, 0.0, 0.0)),
    ],
)
def test_the_offline_judge_sees_other_numbers_questions_asked_again_and_missing_answers(history, answer, values):
    turns = [Turn(role=role, text=text) for role, text in zip(("user", "assistant"), history, strict=True)]
    sample = Sample(question="А сколько в итоге?", history=turns, answer=answer)
    found = conversation_metrics(OfflineJudge()).invoke(sample)
    assert tuple(score.value for score in found.values()) == values
