"""Metrics of a turn: all judge one standalone question, which costs one call."""

import json
from functools import partial

import pytest
from helpers.offline import METRICS, UNJUDGED, own_metric
from helpers.scripted import human_of, scripted
from pydantic import BaseModel

from langchain_rageval import (
    Budget,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Prompt,
    Report,
    Step,
    Value,
    answer_correctness,
    citations,
    claim_metrics,
    context_entity_recall,
    context_precision,
    evaluate,
    faithfulness,
    metric,
    plan,
    rubric,
    samples_of,
)
from langchain_rageval.steps import StandaloneQuestion, Statements, Verdict, Verdicts

MUNICH = [
    ("user", "Кто основал Мюнхен?"),
    ("assistant", "Генрих Лев."),
    ("user", "А когда он умер?"),
    ("assistant", "Он умер в 1195 году [1]."),
]
ORIGINAL, STANDALONE = "А когда он умер?", "Когда умер Генрих Лев?"
FIELDS = {"contexts": ["Генрих Лев умер в 1195 году.", "Мюнхен стоит на Изаре."], "references": ["В 1195 году."]}
FIRST, SECOND = (sample.model_copy(update=FIELDS) for sample in samples_of(MUNICH))


class Recording(OfflineJudge):
    """The offline judge, which answers with a fixed standalone question and records its requests."""

    def _generate(self, messages, *args, **kwargs):
        result = super()._generate(messages, *args, **kwargs)
        REQUESTS.append(human_of(messages))
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
    report = evaluate(
        [FIRST], [build(judge) for name, build in BUILDERS.items() if "function" not in name], progress=False
    )
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
    whole = own_metric(
        lambda state: Value(float(state["sample"].question == ORIGINAL), "."),
        "whole",
        reads={"question", "history"},
        steps=read_history(judge),
    )
    scores = evaluate([SECOND], [asks, whole, context_entity_recall(judge)], progress=False).rows[0].scores
    assert seen == [ORIGINAL]
    assert scores["whole"].value == 1.0
    assert rewrites() == []


def test_a_scripted_judge_sees_the_history_where_it_extracts_statements():
    judge = scripted(
        StandaloneQuestion(reason="он — Генрих Лев", question=STANDALONE),
        Statements(statements=["Генрих Лев умер в 1195 году."]),
        Verdicts(verdicts=[Verdict(statement=1, reason="", evidence=["1.1"], verdict="supported")]),
    )
    score = faithfulness(judge).invoke(SECOND)
    history = [{"role": "user", "text": "Кто основал Мюнхен?"}, {"role": "assistant", "text": "Генрих Лев."}]
    assert judge.inputs == [
        {"history": history, "question": ORIGINAL},
        {"history": history, "question": STANDALONE, "text": "Он умер в 1195 году [1]."},
        {"question": STANDALONE, "statements": [{"statement": 1, "text": "Генрих Лев умер в 1195 году."}]},
    ]
    assert (score.value, score.usage.calls) == (1.0, 3)
    assert [(f.kind, f.text) for f in score.findings] == [
        ("statement", "Генрих Лев умер в 1195 году."),
        ("standalone_question", STANDALONE),
    ]


def test_a_refused_rewrite_is_named_in_the_reason_of_the_score():
    judge = scripted(
        StandaloneQuestion(reason="", question="Когда умер Отто?"),
        Statements(statements=["Он умер в 1195 году."]),
        Verdicts(verdicts=[Verdict(statement=1, reason="", evidence=["1.1"], verdict="supported")]),
    )
    assert faithfulness(judge).invoke(SECOND).reason == (
        "Контексты подтверждают 1 из 1 утверждения; вопрос взят как есть: в переписанном «Когда умер Отто?» добавлено: "
        "Отто."
    )


def test_a_failed_rewrite_is_a_failure_of_each_metric_after_one_request():
    judge = scripted("no", "no")
    scores = evaluate(
        [SECOND],
        [faithfulness(Judge(judge, attempts=2)), rubric(Judge(judge, attempts=2))],
        max_concurrency=1,
        progress=False,
    )
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
