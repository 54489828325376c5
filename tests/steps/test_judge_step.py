"""A user's own step, from a prompt and the class of its answer."""

import pytest
from helpers.each import each, error_of
from helpers.offline import own_metric
from helpers.own.politeness import PROMPTS, Politeness
from helpers.scripted import Refusal, answering, human_of, scripted
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate

from langchain_rageval import ConfigError, Judge, Metric, PromptSet, Value, evaluate
from langchain_rageval.run.run import Run
from langchain_rageval.steps.judge_step import JudgeStep, list_length, most_items

TONE = PROMPTS["en"]
POLITE = Politeness(reason="Thanks.", polite=True)
STATE = {"question": "How?", "answer": "Thank you {name}!", "contexts": ["First. Second.", "Third."]}


def test_an_error_of_the_client_keeps_its_type_and_says_where_it_came_up():
    step = JudgeStep(TONE, scripted(Refusal()), Politeness, name="tone")
    assert error_of(Refusal, step.invoke, STATE).rageval_step == "tone"


def test_a_prompt_that_does_not_exist_is_refused_at_once():
    error = error_of(ConfigError, JudgeStep, "tone", scripted(), Politeness)
    assert str(error).startswith("no prompt for the step 'tone'; there are ")


@each(
    ("options", "told"),
    [
        ({"direction": "up"}, "direction: Input should be 'higher' or 'lower', got 'up'"),
        ({"steps": None}, "steps: Input should be an instance of Runnable, got None"),
        ({"reduce": 0.5}, "reduce: Input should be callable, got 0.5"),
    ],
)
def test_a_metric_of_the_users_own_is_refused_when_an_option_is_none(options, told):
    given = {"aspect": "answer", "reads": {"answer"}, "steps": JudgeStep(TONE, scripted(), Politeness), "reduce": len}
    with pytest.raises(ConfigError, match=f"metric 'politeness': {told}"):
        Metric("politeness", **{**given, **options})


def test_a_reducer_that_reads_what_no_step_adds_is_told_what_there_is():
    metric = own_metric(lambda state: Value(state["tone"]), "length")
    report = evaluate([{"question": "How?", "answer": "Thanks."}], metric, progress=False)
    failure = report.rows[0].scores["length"].failure
    assert failure.message == "reduce of length reads 'tone', which no step adds: the state has 'sample'"
    assert failure.step == "reduce of length"


def test_a_chain_of_the_user_among_the_steps_is_refused_with_the_way_to_use_it():
    chain = ChatPromptTemplate.from_template("{question}") | scripted(POLITE)
    error = error_of(ConfigError, Metric, "tone", aspect="answer", reads={"answer"}, steps=chain, reduce=len)
    assert str(error) == (
        "steps of tone contains a ChatPromptTemplate, which takes no state: "
        "write steps=Step.from_chain(chain, key=..., reads=...)"
    )


def test_equal_questions_in_one_run_are_asked_once_and_others_are_not():
    judge = answering(lambda messages: POLITE)
    step, run = JudgeStep(TONE, judge, Politeness), Run()
    config = run.into({})
    step.invoke(STATE, config)
    step.invoke(STATE, config)
    assert len(judge.asked) == 1
    step.invoke({**STATE, "answer": "Other."}, config)
    step.invoke({**STATE, "contexts": ["Other."]}, config)
    step.invoke(STATE)
    assert len(judge.asked) == 4


@each(
    "other",
    [
        lambda judge: JudgeStep(TONE.model_copy(update={"instruction": "Other."}), judge, Politeness),
        lambda judge: JudgeStep(TONE, Judge(judge, language="ru"), Politeness),
        lambda judge: JudgeStep(TONE, Judge(judge, layout="instruction_first"), Politeness),
        lambda judge: JudgeStep(TONE, scripted(POLITE), Politeness),
    ],
    ids=["prompt", "language", "layout", "model"],
)
def test_steps_that_ask_otherwise_share_nothing(other):
    judge = answering(lambda messages: POLITE)
    config = Run().into({})
    JudgeStep(TONE, judge, Politeness).invoke(STATE, config)
    run = Run.of(config).metered()
    other(judge).invoke(STATE, run.into({}))
    assert run.meter.usage.calls == 1


def test_a_step_shows_its_name_and_no_secret():
    class Keyed(type(scripted())):
        api_key: str = "sk-very-secret"

    step = JudgeStep(TONE, Keyed(replies=[AIMessage("x")]), Politeness, name="tone")
    assert repr(step).startswith("tone(Judge(")
    assert "sk-very-secret" not in repr(step) + str(step) + repr(step.judge)


def test_what_surrounds_a_users_prompt_is_in_the_language_of_the_question():
    judge = scripted(POLITE)
    JudgeStep(TONE, judge, Politeness).invoke({**STATE, "question": "Как застраховать баню?"})
    assert human_of(judge.asked[0]).startswith("## Контексты\n")
    assert judge.asked[0][0].text == PromptSet.default("ru").common.system


@each(
    ("length", "most", "rounded"),
    [(0, 10, 10), (32, 10, 10), (33, 11, 20), (62, 20, 20), (63, 21, 40), (999, 333, 640)],
)
def test_a_list_may_hold_what_its_text_holds_rounded_up_to_10_20_40_and_so_on(length, most, rounded):
    assert (most_items("a" * length), list_length("a" * length)) == (most, rounded)
