"""Metrics of conversations: shares, reasons, calls; and the standalone question that metrics of a turn judge."""

import json
from functools import partial

import pytest
from helpers.each import each
from helpers.labelled import dialogues, labelled_judge, whole
from helpers.offline import METRICS, UNJUDGED, own_metric
from helpers.scripted import (
    contradictions,
    fact_verdicts,
    need_verdicts,
    scripted,
    statements,
    supported,
    turn_facts,
    verdicts,
)
from pydantic import BaseModel

from langchain_rageval import (
    Budget,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Prompt,
    Report,
    Sample,
    Step,
    Turn,
    Value,
    answer_correctness,
    citations,
    claim_metrics,
    context_entity_recall,
    context_precision,
    conversation_metrics,
    evaluate,
    faithfulness,
    metric,
    plan,
    rubric,
    samples_of,
)
from langchain_rageval.steps import StandaloneQuestion
from langchain_rageval.steps.questions import rewrite_question
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
FACTS = turn_facts(
    statements=[(2, "A cat costs 5 euros."), (4, "Two cats cost 20 euros.")],
    facts=[(1, "The user has two cats.")],
    needs=[(1, "Whether cats are insured."), (3, "The price for two.")],
)
PAIRS, TOLD = contradictions((1, 2)), fact_verdicts((1, "asked again", [4]))
NEEDS = need_verdicts((1, "met", [2]), (2, "unmet", []))
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
    assert conversation_metrics(OfflineJudge(), name="chat").feedback_keys[0] == "chat_consistency"
    assert [score.value for score in found.values()] == [0.0, 0.0, 0.5]
    assert [score.reason for score in found.values()] == [
        "Statements of the assistant without a contradiction: 0 of 2; contradicted: «A cat costs 5 euros» (turns 2, 4)"
        "; contradicted: «Two cats cost 20 euros» (turns 4, 2).",
        "Facts of the user that the assistant keeps to: 0 of 1; asked again: «The user has two cats» (turns 1, 4).",
        "Needs of the user that are met: 1 of 2; unmet: «The price for two» (turn 3).",
    ]


@each(("count", "more"), [(3, "."), (5, "; and 2 more.")])
def test_the_reason_quotes_three_exceptions_and_counts_the_others(count, more):
    texts = [f"Need {number}" for number in range(1, count + 1)]
    facts = turn_facts(needs=[(3, text) for text in texts])
    unmet = need_verdicts(*((n, "unmet", []) for n in range(1, count + 1)))
    reason = scores(facts=facts, pairs=None, told=None, needs=unmet)["conversation_resolution"].reason
    quoted = "; ".join(f"unmet: «{text}» (turn 3)" for text in texts[:3])
    assert reason == f"Needs of the user that are met: 0 of {count}; {quoted}{more}"


def test_a_withdrawn_need_does_not_count():
    found = scores(needs=need_verdicts((1, "met", [2]), (2, "withdrawn", [4])))["conversation_resolution"]
    assert (found.value, found.reason) == (1.0, "Needs of the user that are met: 1 of 1.")
    assert [finding.verdict for finding in found.findings] == ["met", "withdrawn"]


def test_a_fact_that_nothing_later_touches_does_not_count():
    facts = FACTS.model_copy(update={"facts": turn_facts(facts=[(1, "Fact 1"), (1, "Fact 2")]).facts})
    told = fact_verdicts((1, "ignored", [4]), (2, "not touched", []))
    found = scores(facts=facts, told=told)["conversation_retention"]
    assert (found.value, [finding.verdict for finding in found.findings]) == (0.0, ["ignored", "not touched"])
    untouched = fact_verdicts((1, "not touched", [4]), (2, "not touched", []))
    found = scores(facts=facts, told=untouched)["conversation_retention"]
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
    found = scores(facts=turn_facts(statements=[(2, "A.")]), pairs=None, told=None, needs=None)
    reasons = ["fewer than two turns of the assistant state facts"]
    reasons += ["the user states no facts that later turns could keep to", "the user needs nothing"]
    assert [score.unscored for score in found.values()] == reasons
    withdrawn = need_verdicts((1, "withdrawn", [4]), (2, "withdrawn", [4]))
    assert scores(needs=withdrawn)["conversation_resolution"].unscored == "the user needs nothing"


def test_four_calls_at_most_score_a_conversation_and_two_score_one_metric():
    judge = ScriptedJudge(FACTS, PAIRS, TOLD, NEEDS, repeat=True)
    report = evaluate([SAMPLE], [conversation_metrics(judge)])
    assert len(judge.requests) == 4 == sum(metric.calls for metric in report.summary().values())
    for part in conversation_metrics(judge).metrics:
        before = len(judge.requests)
        evaluate([SAMPLE], [part])
        assert len(judge.requests) - before == 2


def test_a_plan_counts_no_fewer_calls_than_the_run():
    given = [RUSSIAN, SAMPLE]
    planned = plan(given, [conversation_metrics(OfflineJudge())])
    report = evaluate(given, [conversation_metrics(OfflineJudge())])
    assert planned.total.calls == sum(metric.calls for metric in report.summary().values())


every_dialogue = each("dialogue", dialogues(), ids=[dialogue["id"] for dialogue in dialogues()])


def fenced(answer):
    return f"Let me see.\n```json\n{json.dumps(answer, ensure_ascii=False, indent=1)}\n```"


def values(found):
    return {name: None if score.value is None else round(score.value, 4) for name, score in found.items()}


@pytest.mark.gate
@every_dialogue
@each("written", [json.dumps, fenced])
def test_a_judge_that_answers_by_the_labels_gives_the_labelled_scores(dialogue, written):
    found = conversation_metrics(labelled_judge(dialogue, written)).invoke(whole(dialogue))
    assert values(found) == dialogue["scores"]
    turn_of = {number: str(fact["turn"]) for number, fact in enumerate(dialogue["statements"], 1)}
    expected = {}
    for pair in dialogue["contradictions"]:
        for number in pair:
            expected.setdefault(number, set()).update(turn_of[other] for other in pair)
    consistency = found["conversation_consistency"].findings
    assert {f.number: {*f.cites} for f in consistency if f.verdict == "contradicted"} == expected
    needs = [(f.text, f.verdict, f.cites) for f in found["conversation_resolution"].findings]
    turns = [[str(turn) for turn in (need["turn"], *need["turns"])] for need in dialogue["needs"]]
    assert needs == [(need["text"], need["verdict"], own) for need, own in zip(dialogue["needs"], turns, strict=True)]


@pytest.mark.gate
@every_dialogue
@each("options", [{"max_statements": 1}, {"max_context_tokens": 60}])
def test_slices_and_windows_change_no_labelled_score(dialogue, options):
    judge = Judge(labelled_judge(dialogue), **options)
    found = conversation_metrics(judge).invoke(whole(dialogue))
    assert values(found) == dialogue["scores"]


@every_dialogue
def test_the_labelled_questions_are_accepted_as_rewrites(dialogue):
    for item in dialogue["standalone"]:
        sample = asked_at(dialogue, item["turn"])
        found = rewritten(sample, item["question"])
        assert (found.verdict, found.text) == ("rewritten", item["question"])


@every_dialogue
@each("added", [" 1307", " Zanzibar"])
def test_a_rewrite_with_a_name_or_a_number_from_nowhere_is_refused(dialogue, added):
    for item in dialogue["standalone"]:
        sample = asked_at(dialogue, item["turn"])
        found = rewritten(sample, item["question"].rstrip("?.") + added + "?")
        assert (found.verdict, found.text) == ("refused", sample.question)
        assert added.strip() in found.reason


def asked_at(dialogue, turn):
    """Return the sample of the question in a turn."""
    history, question = dialogue["turns"][: turn - 1], dialogue["turns"][turn - 1]["text"]
    return Sample(question=question, answer="", history=history)


def rewritten(sample, rewrite):
    """Return the finding about a rewrite of the question of a sample."""
    judge = scripted(json.dumps({"reason": "labelled", "question": rewrite}, ensure_ascii=False))
    (finding,) = rewrite_question(judge).invoke({"sample": sample})["question_findings"]
    return finding


# Metrics of a turn: all judge one standalone question, which costs one call


ORIGINAL, STANDALONE = "А когда он умер?", "Когда умер Генрих Лев?"
MUNICH = [("user", "Кто основал Мюнхен?"), ("assistant", "Генрих Лев.")]
MUNICH += [("user", ORIGINAL), ("assistant", "Он умер в 1195 году [1].")]
FIELDS = {"contexts": ["Генрих Лев умер в 1195 году.", "Мюнхен стоит на Изаре."], "references": ["В 1195 году."]}
FIRST, SECOND = (sample.model_copy(update=FIELDS) for sample in samples_of(MUNICH))


class Recording(OfflineJudge):
    """The offline judge, which answers with a fixed standalone question and records its requests."""

    def _generate(self, messages, *args, **kwargs):
        result = super()._generate(messages, *args, **kwargs)
        REQUESTS.append(messages[-1].text)
        if '"title": "StandaloneQuestion"' in REQUESTS[-1]:
            reply = json.dumps({"reason": "он — Генрих Лев", "question": STANDALONE}, ensure_ascii=False)
            result.generations[0].message.content = reply
        return result


REQUESTS = []


@pytest.fixture
def judge():
    REQUESTS.clear()
    yield Recording()
    REQUESTS.clear()


class Polite(BaseModel):
    """Whether an answer is polite."""

    polite: bool


PROMPT = Prompt(instruction="Is `answer` a polite answer to `question`?")


def politeness(judge, **options):
    step = Step(Polite, prompts=PROMPT, offline=lambda _: Polite(polite=True), **options)
    return own_metric(lambda state: Value(float(state["polite"].polite), "."), "politeness", steps=step(judge))


OTHERS = {*UNJUDGED, "context_entity_recall", "claim_f1"}
BUILDERS = {
    **{name: build for name, build in METRICS.items() if name not in OTHERS},
    "claim_metrics": claim_metrics,
    "citations": citations,
    "a user's metric": partial(politeness, reads=("question", "answer")),
    "a user's metric with a function": partial(politeness, inputs=lambda s: {"question": s.question, "a": s.answer}),
}


def rewrites():
    return [request for request in REQUESTS if '"title": "StandaloneQuestion"' in request]


@pytest.mark.parametrize("name", BUILDERS)
def test_a_metric_judges_the_standalone_question_and_asks_once_more(name, judge):
    evaluate([SECOND], BUILDERS[name](judge), max_concurrency=1, progress=False)
    assert len(rewrites()) == 1
    others = [request for request in REQUESTS if request not in rewrites()]
    assert others
    for request in others:
        assert ORIGINAL not in request
        assert STANDALONE in request or '"history":[{"role":"user","text":"Кто основал Мюнхен?"}' in request


def test_all_metrics_of_a_run_share_one_rewrite(judge):
    with_steps_of_users = {"answer_completeness", *(name for name in BUILDERS if name.startswith("a user's"))}
    metrics = [build(judge) for name, build in BUILDERS.items() if name not in with_steps_of_users]
    report = evaluate([SECOND], metrics, max_concurrency=4, progress=False)
    assert len(rewrites()) == 1
    assert not report.failures()
    assert all("standalone_question" in {f.kind for f in s.findings} for s in report.rows[0].scores.values())


def test_a_turn_without_history_is_judged_without_a_rewrite(judge):
    metrics = [build(judge) for name, build in BUILDERS.items() if "function" not in name]
    report = evaluate([FIRST], metrics, progress=False)
    assert rewrites() == []
    assert not any('"history"' in request for request in REQUESTS)
    assert not any(f.kind == "standalone_question" for score in report.rows[0].scores.values() for f in score.findings)


def test_metrics_that_do_not_show_the_question_to_a_judge_get_the_original(judge):
    seen = []

    @metric(reads={"question"})
    def asks(sample):
        seen.append(sample.question)
        return 1.0

    read_history = Step(Polite, prompts=PROMPT, reads=("question", "history"), offline=lambda _: Polite(polite=True))
    reads_history = {"reads": {"question", "history"}, "steps": read_history(judge)}
    whole = own_metric(lambda state: Value(float(state["sample"].question == ORIGINAL), "."), "whole", **reads_history)
    scores = evaluate([SECOND], [asks, whole, context_entity_recall(judge)], progress=False).rows[0].scores
    assert seen == [ORIGINAL]
    assert scores["whole"].value == 1.0
    assert rewrites() == []


def test_a_scripted_judge_sees_the_history_where_it_extracts_statements():
    question = StandaloneQuestion(reason="он — Генрих Лев", question=STANDALONE)
    judge = scripted(question, statements("Генрих Лев умер в 1195 году."), verdicts(supported(1)))
    score = faithfulness(judge).invoke(SECOND)
    history = [{"role": "user", "text": "Кто основал Мюнхен?"}, {"role": "assistant", "text": "Генрих Лев."}]
    assert judge.inputs == [
        {"history": history, "question": ORIGINAL},
        {"history": history, "question": STANDALONE, "text": "Он умер в 1195 году [1]."},
        {"question": STANDALONE, "statements": [{"statement": 1, "text": "Генрих Лев умер в 1195 году."}]},
    ]
    assert (score.value, score.usage.calls) == (1.0, 3)
    stated = ("statement", "Генрих Лев умер в 1195 году.")
    assert [(f.kind, f.text) for f in score.findings] == [stated, ("standalone_question", STANDALONE)]


def test_a_refused_rewrite_is_named_in_the_reason_of_the_score():
    question = StandaloneQuestion(reason="", question="Когда умер Отто?")
    judge = scripted(question, statements("Он умер в 1195 году."), verdicts(supported(1)))
    assert faithfulness(judge).invoke(SECOND).reason == (
        "Контексты подтверждают 1 из 1 утверждения; вопрос взят как есть: в переписанном «Когда умер Отто?» добавлено: "
        "Отто."
    )


def test_a_failed_rewrite_is_a_failure_of_each_metric_after_one_request():
    judge = scripted("no", "no")
    metrics = [build(Judge(judge, attempts=2)) for build in (faithfulness, rubric)]
    scores = evaluate([SECOND], metrics, max_concurrency=1, progress=False)
    assert [score.failure.step for score in scores.rows[0].scores.values()] == ["rewrite_question"] * 2
    assert len(judge.inputs) == 2


def test_plan_and_budget_count_the_rewrite():
    judge = OfflineJudge()
    metrics = [faithfulness(judge), context_precision(judge)]
    assert [planned.calls for planned in plan([FIRST], metrics).values()] == [2, 1]
    assert [planned.calls for planned in plan([SECOND], metrics).values()] == [3, 1]
    report = evaluate([SECOND], metrics, max_concurrency=1, progress=False)
    assert [score.usage.calls for score in report.rows[0].scores.values()] == [3, 1]
    short = evaluate([SECOND], metrics[0], budget=Budget(calls=2), progress=False)
    assert len(short.rows) == 0 or short.rows[0].scores["faithfulness"].value is None


def test_a_report_keeps_history_and_question_and_rescores_without_a_call(tmp_path, judge):
    report = evaluate([SECOND], [answer_correctness(judge, HashingEmbeddings()), faithfulness(judge)], progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    loaded = Report.load(tmp_path / "report.jsonl")
    assert loaded.rows[0] == report.rows[0]
    REQUESTS.clear()
    for built in (answer_correctness(judge, HashingEmbeddings()), faithfulness(judge)):
        again = loaded.rescore(built).rows[0].scores[built.name]
        assert again == report.rows[0].scores[built.name]
    assert REQUESTS == []


def test_a_journal_finds_the_score_of_a_turn_and_not_that_of_another_history(tmp_path, judge):
    path = tmp_path / "journal.db"
    run = partial(evaluate, metrics=faithfulness(judge), journal=path, max_concurrency=1, progress=False)
    first = run([SECOND])
    REQUESTS.clear()
    assert run([SECOND]).rows[0].scores["faithfulness"].value == first.rows[0].scores["faithfulness"].value
    assert REQUESTS == []
    run([SECOND.model_copy(update={"history": SECOND.history[:1]})])
    assert len(rewrites()) == 1


def test_the_reducer_gets_the_sample_with_its_own_question(judge):
    step = Step(Polite, prompts=PROMPT, reads=("question",), offline=lambda _: Polite(polite=True))
    own = own_metric(lambda s: Value(1.0, s["sample"].question), reads={"question"}, steps=step(judge))
    assert own.invoke(SECOND).reason == ORIGINAL
    assert len(rewrites()) == 1
