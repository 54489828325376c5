"""Step and JudgeStep: a user's question to the judge, with prompts, inputs and an offline answer."""

import asyncio
import pickle
import re
from itertools import permutations
from typing import Literal

import pytest
from helpers.each import each, error_of
from helpers.offline import own_metric
from helpers.own.politeness import PROMPTS, Politeness, rate, share
from helpers.own.politeness import politeness as politeness_by
from helpers.scripted import Refusal, answering, human_of, scripted
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field

from langchain_rageval import Judge, Metric, OfflineJudge, Prompt, PromptSet, Sample, Step, Value, evaluate, jury, plan
from langchain_rageval import steps as public_steps
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts import answer_schemas
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.run import Run
from langchain_rageval.steps.judge_step import JudgeStep, list_length, most_items
from langchain_rageval.testing import ScriptedJudge

KIND, RUDE = Politeness(reason="Thanks.", polite=True), Politeness(reason="An order.", polite=False)
SAMPLE = Sample(question="How?", answer="Thank you {name}!", contexts=["First. Second.", "Third."])
RUSSIAN = Sample(question="Как застраховать баню?", answer="Спасибо за вопрос!")
GERMAN = Sample(question="Wann wurde die Stadt gegründet und von wem?", answer="Danke der Nachfrage!")
ONE = Prompt(instruction="Rate it.")
MANY = {"de": Prompt(instruction="Bewerte sie."), **PROMPTS}


class Parts(BaseModel):
    """Parts of an answer."""

    parts: list[str]


def answer_of(step, judge, sample=SAMPLE):
    """Return what a step adds to the state of a sample."""
    state = step(judge).invoke({"sample": sample})
    assert state["sample"] is sample
    return state[step.key]


def message_of(step, sample=SAMPLE, reply=KIND, **options):
    """Return the human message that a step sends."""
    judge = scripted(reply)
    answer_of(step, Judge(judge, **options), sample)
    return human_of(judge.asked[0])


def test_it_adds_the_typed_answer_under_the_name_of_the_class_in_snake_case_or_under_the_given_key():
    assert answer_of(rate, scripted(KIND)) == KIND
    assert asyncio.run(rate(scripted(RUDE)).ainvoke({"sample": SAMPLE}))["politeness"] == RUDE
    for title, name in (("ToneOfVoice", "tone_of_voice"), ("HTMLTags", "html_tags"), ("GPT4Tone", "gpt4_tone")):
        step = Step(type(title, (Parts,), {}), prompts=ONE, reads=["answer"])
        assert (step.name, step.key) == (name, name)
    step = Step(Politeness, prompts=ONE, reads=("answer",), name="rate", key="tone")
    assert step(scripted(KIND)).invoke({"sample": SAMPLE}) == {"sample": SAMPLE, "tone": KIND}
    assert step(scripted()).get_name() == "rate"
    assert Step(Politeness, prompts=ONE, reads=("answer",), name="rate").key == "rate"


def test_a_step_without_its_judge_is_no_step_of_a_metric():
    assert str(error_of(ConfigError, Metric, "m", aspect="style", reads={"answer"}, steps=rate, reduce=len)) == (
        "steps of m is a Runnable, got Step(Politeness, name='politeness'): call a Step with a judge, as rate(judge)"
    )


def test_the_request_has_fields_or_the_output_of_a_function_as_json_numbered_contexts_and_examples():
    human = message_of(Step(Politeness, prompts=ONE, reads=("question", "contexts", "answer")))
    assert list(read_inputs(human).items()) == [("question", "How?"), ("answer", "Thank you {name}!")]
    assert "[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third." in human
    counting = {"inputs": lambda sample: {"words": len(sample.answer.split()), "contexts": ["Only. This."]}}
    human = message_of(Step(Politeness, prompts=ONE, **counting))
    assert read_inputs(human) == {"words": 3}
    assert "[1]\n[1.1] Only.\n[1.2] This.\n\n" in human
    example = {"input": {"answer": "Go away."}, "output": {"reason": "An order.", "polite": False}}
    shown = Prompt(instruction="Rate.", examples=[example])
    assert '"An order."' in message_of(Step(Politeness, prompts=shown, reads=("answer",)))


SHOWN = [
    ({"reads": ("question", "answer")}, True),
    ({"reads": ("question", "history")}, False),
    ({"reads": ("answer",)}, False),
    ({"inputs": lambda sample: {"answer": sample.answer}}, True),
]


@each(("options", "shows"), SHOWN)
def test_the_judge_is_shown_the_question_unless_the_fields_say_otherwise(options, shows):
    assert Step(Politeness, prompts=ONE, **options)(scripted()).shows_question is shows


LANGUAGES = [
    (PROMPTS, SAMPLE, {}, "Say whether"),
    (PROMPTS, RUSSIAN, {}, "Определите"),
    (PROMPTS, SAMPLE, {"language": "ru"}, "Определите"),
    ({"ru": PROMPTS["ru"]}, SAMPLE, {}, "Определите"),
    ({"ru": PROMPTS["ru"], "en": PROMPTS["en"]}, SAMPLE, {"language": "zh"}, "Say whether"),
    (PROMPTS["ru"], SAMPLE, {}, "Определите"),
    (MANY, GERMAN, {}, "Bewerte"),
    (MANY, GERMAN, {"language": "ru"}, "Определите"),
    (MANY, Sample(question="¿Dónde está el río más largo?", answer="Aquí."), {}, "Say whether"),
    (MANY, SAMPLE, {"prompts": PromptSet.default("ru")}, "Определите"),
    ("critique_aspect", RUSSIAN, {}, PromptSet.default("ru").get("critique_aspect").instruction),
]


@each(("prompts", "sample", "options", "instruction"), LANGUAGES)
def test_the_prompt_is_in_the_language_of_the_question_or_the_judge_or_the_one_there_is(
    prompts, sample, options, instruction
):
    assert instruction in message_of(Step(Politeness, prompts=prompts, reads=("answer",)), sample, **options)


READS_OR_INPUTS = (
    'step politeness takes reads=("question", "answer"), the fields that it sends, or inputs=, a function '
)
READS_OR_INPUTS += "of the sample"
PROMPT_OR_PROMPTS = 'prompts of step politeness is a Prompt, {"en": Prompt(...), ...}, or the name of a packaged prompt'


TEXT = "Is it polite?"
WRONG = Prompt(instruction="Rate.", examples=[{"input": {}, "output": {"reason": "?"}}])


class Selfish(BaseModel):
    """A class that holds itself."""

    inner: "list[Selfish]"


MISTAKES = [
    (
        {"answer": Prompt(instruction="?")},
        "a step takes the pydantic class of its answer, got Prompt(instruction='?', examples=[])",
    ),
    ({"reads": ()}, f"{READS_OR_INPUTS}, got neither"),
    ({"inputs": dict}, f"{READS_OR_INPUTS}, got both"),
    (
        {"reads": ("answr",)},
        f"step politeness reads ['answr'], which no sample has; use {', '.join(Sample.model_fields)}",
    ),
    ({"reads": (), "inputs": "answer"}, "inputs of step politeness is a function of the sample, got str"),
    ({"prompts": TEXT}, f"{PROMPT_OR_PROMPTS}, got {TEXT!r}: write Prompt(instruction={TEXT!r})"),
    ({"prompts": {}}, f"{PROMPT_OR_PROMPTS}, got {{}}"),
    ({"prompts": {"en": "Rate it."}}, f"{PROMPT_OR_PROMPTS}, got a mapping to str"),
    ({"prompts": {"en": WRONG}}, "politeness, output of example 1: polite: Field required"),
    ({"prompts": {"RU": ONE}}, "prompts of step politeness: 'RU' is no ISO 639-1 code of a language, such as 'ru'"),
    ({"key": ""}, "name and key of the step for Politeness must not be empty"),
    ({"name": "", "key": "polite"}, "name and key of the step for Politeness must not be empty"),
    ({"reducer": "most"}, 'reducer is "majority", "median", "mean" or a function of the answers, got \'most\''),
    ({"windows": 3}, "windows is a function from the answers about parts of the contexts, got 3"),
    ({"key": "sample"}, "key of step politeness must not be 'sample': the state holds the sample under it"),
    ({"answer": Selfish}, "step selfish: Selfish cannot be written as a strict schema: Selfish holds itself"),
]


@each(("options", "message"), MISTAKES)
def test_a_mistake_in_the_description_is_an_error_that_names_step_and_remedy(options, message):
    given = {"answer": Politeness, "prompts": ONE, "reads": ("answer",), **options}
    assert str(error_of(ConfigError, Step, **given)) == message


NO_INPUTS = [
    (lambda sample: sample.answer, "returned str: it must return a mapping"),
    (
        lambda _: {"contexts": "text"},
        "gave contexts that are not a list of texts: they are numbered for the judge; use another name for other data",
    ),
]


@each(("inputs", "message"), NO_INPUTS)
def test_inputs_that_cannot_be_sent_are_an_error_that_names_the_step(inputs, message):
    step = Step(Politeness, prompts=ONE, inputs=inputs)
    assert str(error_of(ConfigError, answer_of, step, scripted())) == f"inputs of step politeness {message}"


# Votes


class Level(BaseModel):
    reason: str
    level: Literal["low", "middle", "high"]


class Grade(BaseModel):
    reason: str
    grade: int


def voted(*replies, **options):
    """The answer, and the findings, of a step that each order of a jury gives alike."""
    step = Step(type(replies[0]), prompts=ONE, reads=("answer",), name="voted", **options)
    states = []
    for order in permutations(replies):
        members = [ScriptedJudge(reply, repeat=True) for reply in order]
        states.append(step(jury(members)).invoke({"sample": SAMPLE}))
    decided = [state["voted"] for state in states]
    assert len({re.sub(r"reason='.*?'", "", repr(one)) for one in decided}) == 1
    return decided[0], states[0].get("agreement") or states[0]["undecided"]


def test_the_votes_decide_whatever_their_order_and_the_text_is_from_a_vote_that_agrees():
    decided, findings = voted(*(Grade(reason=str(n), grade=n) for n in (2, 7, 9)))
    assert (decided.grade, decided.reason) == (7, "7")
    assert [(f.text, f.verdict) for f in findings] == [("grade", "0.33")]


def test_without_a_strict_majority_there_is_no_answer_but_the_votes_are_found():
    replies = [Level(reason="", level=one) for one in ("low", "middle", "high")]
    decided, (finding,) = voted(*replies)
    assert decided is None
    assert finding.reason.count("ScriptedJudge") == 3
    step = Step(Level, prompts=ONE, reads=("answer",))(Judge(ScriptedJudge(*replies), draws=3))
    score = Metric("m", aspect="a", reads={"answer"}, steps=step, reduce=lambda state: Value(1.0)).invoke(SAMPLE)
    assert (score.value, score.unscored) == (None, "no majority of the votes")
    assert score.findings[0].reason == "1 of 3 draws: low, middle, high"


def test_a_reducer_decides_numbers_or_everything():
    grades = [Grade(reason="", grade=n) for n in (2, 2, 9)]
    assert voted(*grades, reducer="mean")[0].grade == pytest.approx(13 / 3)
    assert voted(*grades, reducer="majority")[0].grade == 2
    assert voted(*[Grade(reason="", grade=n) for n in (1, 2, 3)], reducer="majority")[0] is None
    assert voted(*grades, reducer=lambda votes: max(votes, key=lambda vote: vote.grade))[0].grade == 9
    mean, majority = (Step(Grade, prompts=ONE, reads=("answer",), reducer=name) for name in ("mean", "majority"))
    one, bench = ScriptedJudge(), jury([ScriptedJudge() for _ in range(3)])
    assert mean(one).instrument == majority(one).instrument
    assert mean(bench).instrument != majority(bench).instrument
    message = "reducer of the votes returned int: it must return one Grade for a list of them"
    assert str(error_of(ConfigError, voted, *grades, reducer=len)) == message


def test_two_steps_of_one_key_or_name_are_refused():
    first, other = (Step(Politeness, prompts=ONE, reads=("answer",)) for _ in range(2))
    judge = scripted(KIND)
    options = {"aspect": "a", "reads": {"answer"}, "steps": first(judge) | other(judge), "reduce": share}
    assert "two steps of m have the key 'politeness'" in str(error_of(ConfigError, Metric, "m", **options))
    error = error_of(ConfigError, PromptSet.default, "en", steps=[first, other])
    assert "two steps have the name 'politeness'" in str(error)


def test_contexts_that_the_judge_does_not_read_are_found():
    judge = scripted(KIND)
    step = Step(Politeness, prompts=ONE, reads=("answer", "contexts"))(Judge(judge, max_context_tokens=4))
    metric = Metric("m", aspect="a", reads={"answer"}, steps=step, reduce=lambda state: Value(1.0, "Kind."))
    score = metric.invoke(SAMPLE)
    assert [one for one in ("First.", "Second.", "Third.") if one in human_of(*judge.asked)] == ["First."]
    read = "the judge read 1 of 3 sentences of the contexts (max_context_tokens)."
    assert score.reason == f"Kind; {read}"
    assert [(finding.kind, finding.verdict) for finding in score.findings] == [("extraction", "cut")]
    for limits in ([4, None, None], [None, None, 4], [4, 9, 9], [9, 4, 9]):  # the least that a member of a jury reads
        bench = jury([Judge(ScriptedJudge(KIND, repeat=True), max_context_tokens=most) for most in limits])
        assert metric.judged_by(bench).invoke(SAMPLE).reason.endswith(read)
    report = evaluate([SAMPLE], metric.judged_by(Judge(scripted(KIND), max_context_tokens=4)), progress=False)
    assert "contexts-cut" in [getattr(note, "code", "") for note in report.notes]


def test_an_answer_of_texts_alone_is_asked_for_once():
    class Rewritten(BaseModel):
        text: str

    judge = scripted(Rewritten(text="Bye."))
    step = Step(Rewritten, prompts=ONE, reads=("answer",))
    assert answer_of(step, Judge(judge, draws=3)) == Rewritten(text="Bye.")
    assert len(judge.asked) == 1


# Sharing, identity, prompt sets


def identity_of(step):
    """Return what identifies the facts that a step finds."""
    return Metric("m", aspect="style", reads={"answer"}, steps=step(OfflineJudge()), reduce=len).instrument[:16]


def test_prompts_inputs_and_answer_class_are_part_of_the_instrument():
    class Other(Politeness):
        grade: int = Field(ge=0)

    first = identity_of(rate)
    assert first == identity_of(Step(Politeness, prompts=PROMPTS, reads=("question", "answer")))
    others = [
        Step(Politeness, prompts=PROMPTS["en"], reads=("question", "answer")),
        Step(Politeness, prompts=PROMPTS, reads=("answer",)),
        Step(Politeness, prompts=PROMPTS, inputs=lambda sample: {"answer": sample.answer}),
        Step(Politeness, prompts=PROMPTS, inputs=lambda sample: {"answer": sample.answer[:9]}),
        Step(Other, prompts=PROMPTS, reads=("question", "answer"), name="politeness"),
    ]
    assert len({first, *map(identity_of, others)}) == 6
    assert "unkn" not in first


def test_its_prompts_are_saved_loaded_and_edited_in_a_prompt_set(tmp_path):
    folder = tmp_path / "ru"
    PromptSet.default("ru", steps=[rate]).save(folder)
    file = folder / "politeness.yaml"
    assert file.read_text(encoding="utf-8").splitlines()[0] == "instruction: Определите, вежлив ли ответ `answer`."
    file.write_text("instruction: Вежлив ли `answer`?\n", encoding="utf-8")
    prompts = PromptSet.load(folder, steps=[rate])
    assert "Вежлив ли `answer`?" in message_of(rate, prompts=prompts)
    shorter = prompts.replace("politeness", instruction="Вежлив ли ответ?")
    assert "Вежлив ли ответ?" in message_of(rate, prompts=shorter)
    remedy = "or pass a step of your own as PromptSet.load(directory, steps=[step])"
    assert str(error_of(ConfigError, PromptSet.load, folder)).endswith(remedy)
    file.write_text("instruction: '?'\nexamples: [{input: {}, output: {polite: 1}}]\n", encoding="utf-8")
    error = error_of(ConfigError, PromptSet.load, folder, steps=[rate])
    assert str(error) == "politeness, output of example 1: reason: Field required"


# The offline judge


def polite_if_thankful(inputs):
    """Answer without a model."""
    return {"reason": f"{len(inputs['contexts'])} contexts", "polite": "Thank" in inputs["answer"]}


@pytest.mark.parametrize("wrap", [lambda judge: judge, lambda judge: jury([judge] * 3)])
def test_the_steps_own_offline_answer_is_used_by_the_offline_judge(wrap):
    step = Step(Politeness, prompts=PROMPTS, reads=("answer", "contexts"), offline=polite_if_thankful)
    assert answer_of(step, wrap(OfflineJudge())) == Politeness(reason="2 contexts", polite=True)
    mine = Metric("mine", aspect="style", reads={"answer"}, steps=step(OfflineJudge()), reduce=share)
    report = evaluate([SAMPLE], mine, progress=False)
    assert report.notes == [OfflineJudge().report_note]
    assert pickle.loads(pickle.dumps(mine)).invoke(SAMPLE).value == 1.0


def test_without_one_the_report_names_the_step_whose_answers_are_invented():
    report = evaluate([SAMPLE], politeness_by(OfflineJudge()), progress=False)
    assert report.rows[0].scores["politeness"].value == 1.0
    assert report.notes == [
        OfflineJudge().report_note,
        "The offline judge invents the answers of politeness: they fit the schema and mean nothing, nor do the scores. "
        "Step(..., offline=function) answers instead.",
    ]


def test_a_dry_run_uses_the_offline_answer_in_place_of_any_judge():
    split = Step(Parts, prompts=ONE, reads=("answer",), offline=lambda inputs: Parts(parts=inputs["answer"].split()))

    class EachPart(type(rate(scripted()))):
        """Asks about each part."""

        def work(self, state):
            for _ in state["parts"].parts:
                state = yield from super().work(state)
            return state

    fields = {"prompt": ONE, "answer": Politeness, "name": "politeness", "definition": rate}
    steps = split(scripted()) | EachPart(judge=Judge(scripted()), **fields)
    mine = Metric("mine", aspect="style", reads={"answer"}, steps=steps, reduce=len)
    planned = plan([SAMPLE], mine)
    assert (planned.calls, planned.notes) == (2, [])  # the equal questions about the three parts are one call


def test_every_answer_class_is_importable_from_steps():
    kinds = [kind for kind in vars(answer_schemas).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    names = {kind.__name__ for kind in kinds} - {"BaseModel"}
    assert {name for name in public_steps.__all__ if hasattr(public_steps, name)} >= names


def test_a_prompt_set_in_a_language_of_the_users_takes_the_steps_prompt_in_it(tmp_path):
    step = Step(Politeness, prompts=MANY, reads=("answer",))
    assert PromptSet.default("de", steps=[step]).get("politeness").instruction == "Bewerte sie."
    PromptSet.default("de").save(tmp_path / "de")
    (tmp_path / "de" / "common.yaml").unlink()
    prompts = PromptSet.load(tmp_path / "de", steps=[step])
    assert "Bewerte sie." in message_of(step, SAMPLE, prompts=prompts)


# The step of a judge

TONE = PROMPTS["en"]
POLITE = Politeness(reason="Thanks.", polite=True)
STATE = {"question": "How?", "answer": "Thank you {name}!", "contexts": ["First. Second.", "Third."]}


def test_an_error_of_the_client_keeps_its_type_and_says_where_it_came_up():
    step = JudgeStep(TONE, scripted(Refusal()), Politeness, name="tone")
    assert error_of(Refusal, step.invoke, STATE).rageval_step == "tone"


NO_OPTIONS = [
    ({"direction": "up"}, "direction: Input should be 'higher' or 'lower', got 'up'"),
    ({"steps": None}, "steps: Input should be an instance of Runnable, got None"),
    ({"reduce": 0.5}, "reduce: Input should be callable, got 0.5"),
]


@each(("options", "told"), NO_OPTIONS)
def test_a_metric_of_the_users_own_is_refused_when_an_option_is_none(options, told):
    given = {"aspect": "answer", "reads": {"answer"}, "steps": JudgeStep(TONE, scripted(), Politeness), "reduce": len}
    assert f"metric 'politeness': {told}" in str(error_of(ConfigError, Metric, "politeness", **{**given, **options}))


def test_a_reducer_that_reads_what_no_step_adds_is_told_what_there_is():
    metric = own_metric(lambda state: Value(state["tone"]), "length")
    report = evaluate([{"question": "How?", "answer": "Thanks."}], metric, progress=False)
    failure = report.rows[0].scores["length"].failure
    assert failure.message == "reduce of length reads 'tone', which no step adds: the state has 'sample'"
    assert failure.step == "reduce of length"


def test_a_prompt_that_does_not_exist_and_a_chain_of_the_user_among_the_steps_are_refused_at_once():
    error = error_of(ConfigError, JudgeStep, "tone", scripted(), Politeness)
    assert str(error).startswith("no prompt for the step 'tone'; there are ")
    chain = ChatPromptTemplate.from_template("{question}") | scripted(POLITE)
    error = error_of(ConfigError, Metric, "tone", aspect="answer", reads={"answer"}, steps=chain, reduce=len)
    assert str(error) == (
        "steps of tone contains a ChatPromptTemplate, which takes no state: "
        "write steps=Step.from_chain(chain, key=..., reads=...)"
    )


def test_equal_questions_in_one_run_are_asked_once_and_others_are_not():
    judge = answering(lambda messages: POLITE)
    step, run = JudgeStep(TONE, judge, Politeness), Run()
    for state in (STATE, STATE, {**STATE, "answer": "Other."}, {**STATE, "contexts": ["Other."]}):
        step.invoke(state, run.into({}))
    assert len(judge.asked) == 3
    step.invoke(STATE)
    assert len(judge.asked) == 4


def test_steps_that_ask_otherwise_share_nothing():
    judge = answering(lambda messages: POLITE)
    others = {
        "prompt": JudgeStep(TONE.model_copy(update={"instruction": "Other."}), judge, Politeness),
        "language": JudgeStep(TONE, Judge(judge, language="ru"), Politeness),
        "layout": JudgeStep(TONE, Judge(judge, layout="instruction_first"), Politeness),
        "model": JudgeStep(TONE, scripted(POLITE), Politeness),
    }
    for difference, other in others.items():
        config = Run().into({})
        JudgeStep(TONE, judge, Politeness).invoke(STATE, config)
        run = Run.of(config).metered()
        other.invoke(STATE, run.into({}))
        assert run.meter.usage.calls == 1, difference


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
