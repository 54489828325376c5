import pytest
from helpers.each import each, error_of
from helpers.scripted import scripted
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langchain_gigachat import GigaChat
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from langchain_rageval import ConfigError, Judge, PromptSet, jury
from langchain_rageval.judge.judge import in_language
from langchain_rageval.prompts.answer_schemas import Statements
from langchain_rageval.steps.judge_step import JudgeStep

SECRET = "sk-very-secret-1234"
OPENAI = ChatOpenAI(model="m", api_key=SECRET, base_url="http://127.0.0.1:1/v1", temperature=0.1)
GIGACHAT = GigaChat(model="GigaChat-2", credentials=SECRET, base_url="http://127.0.0.1:1")
AZURE = AzureChatOpenAI(azure_endpoint="http://127.0.0.1:1", api_key=SECRET, api_version="1", azure_deployment="d")


# Options


@each(
    ("options", "message"),
    [
        ({"mode": "yaml"}, "mode must be one of auto, json_schema, function_calling, json_mode, prompt, got 'yaml'"),
        (
            {"layout": "last"},
            "layout must be one of auto, contexts_first, instruction_first, shared_instructions, got 'last'",
        ),
        *(
            ({name: value}, f"{name} must be a whole number of at least 1, got {value!r}")
            for name in ("attempts", "draws", "max_statements", "max_context_tokens", "max_concurrency")
            for value in (0, True, "3", 1.5)
        ),
        ({"draws": 2}, "draws must be an odd number, so that there is a majority, got 2"),
        ({"prompts": "my_prompts"}, "prompts must be a PromptSet, such as PromptSet.load(directory), got str"),
        ({"prompts": {}}, "prompts must be a PromptSet, such as PromptSet.load(directory), got dict"),
        ({"grammar": "gbnf"}, "grammar must be True, False or None, got 'gbnf'"),
    ],
)
def test_an_invalid_option_is_rejected(options, message):
    assert str(error_of(ConfigError, Judge, scripted(), **options)) == message


def test_a_function_is_a_judge_with_options():
    def reply(messages):
        return ""

    assert Judge(reply, attempts=1).instrument == Judge(RunnableLambda(reply), attempts=1).instrument


@each("given", [None, 3, Judge, "openai:gpt"])
def test_what_is_no_judge_is_rejected_at_once_and_a_name_can_be_loaded(given):
    loads = f"; load_judge({given!r}) loads one by its name" if isinstance(given, str) else ""
    message = f"a judge is a chat model or another Runnable, got {type(given).__name__}{loads}"
    for error in (error_of(ConfigError, Judge, given), error_of(ConfigError, JudgeStep, "verify", given, Statements)):
        assert str(error) == message


def test_a_judge_stays_itself_and_a_model_is_wrapped_once():
    model, judge = scripted(), Judge(scripted())
    assert Judge.of(judge) is judge
    assert Judge.of(model).model is model
    assert Judge.of(model) is Judge.of(model)


def test_options_cannot_be_changed_afterwards():
    for judge in (Judge(scripted()), jury([scripted()] * 3)):
        with pytest.raises(AttributeError):
            judge.attempts = 5


def test_the_layout_under_its_old_name_is_the_same_configuration(caplog):
    old, new = (Judge(scripted(), layout=name) for name in ("handbook", "shared_instructions"))
    assert old.layout == new.layout == "shared_instructions"
    assert [record.message for record in caplog.records] == ["layout='handbook' is now layout='shared_instructions'"]


@pytest.mark.parametrize(
    ("language", "question", "used"),
    [
        ("auto", "Как застраховать баню?", "ru"),
        ("auto", "How do I insure a sauna?", "en"),
        ("auto", "今天天气怎么样？", "zh"),
        ("auto", "보험은 무엇을 보장하나요?", "ko"),
        ("auto", "Che cosa copre la polizza?", "it"),
        ("auto", "Бүгін ауа райы қандай?", "en"),
        ("ru", "How do I insure a sauna?", "ru"),
    ],
)
def test_prompts_are_in_the_questions_language_unless_the_user_chose_one(language, question, used):
    assert Judge(scripted(), language=language).prompt_set(question).common.language == used


def test_a_language_without_prompts_is_refused_unless_the_user_brings_them():
    caught = error_of(ConfigError, Judge, scripted(), language="russian")
    message = "language must be one of auto, en, it, ko, ru, zh, got 'russian'; for another language, pass prompts="
    assert str(caught) == message
    own = PromptSet.default("ru")
    assert Judge(scripted(), language="tt", prompts=own).prompt_set("Нәрсә?") is own


# The ladder, as a table


@pytest.mark.parametrize("mode", ["json_schema", "function_calling", "json_mode", "prompt"])
def test_a_chosen_rung_is_the_only_one_and_those_a_client_lacks_become_the_prompt(mode):
    assert Judge(OPENAI, mode=mode)._endpoint.rungs == [mode]
    assert Judge(scripted(), mode=mode)._endpoint.rungs == ["prompt"]
    lacking = mode == "json_mode"
    assert Judge(GIGACHAT, mode=mode)._endpoint.rungs == ["prompt" if lacking else mode]


# Who the judge is


MODELS = {  # others: tests/_internal/test_redaction.py
    "azure": AZURE,
    "gigachat": GIGACHAT,
    "gigachat password": GigaChat(user="me", password=SECRET, base_url="http://127.0.0.1:1"),
}


@each("model", MODELS.values(), ids=MODELS)
def test_no_secret_appears_in_the_texts_of_a_judge(model):
    judge = Judge(model)
    step = JudgeStep("extract_statements", judge, Statements)
    for told in (repr(judge), str(judge), judge.identity, repr(judge.instrument), repr(step), repr(step.instrument)):
        assert SECRET not in told


def test_the_identity_of_a_judge_contains_its_model_and_settings():
    known = "ChatOpenAI(model='m', openai_api_base='http://127.0.0.1:1/v1', temperature=0.1)"
    assert Judge(OPENAI).identity == known  # the model once, though the client has two names for it
    for told in ("'m'", "temperature=0.1", "http://127.0.0.1:1/v1"):
        assert told in Judge(OPENAI).identity
    assert "'temperature': 0.7" in Judge(OPENAI.bind(temperature=0.7)).identity
    assert "GigaChat-2" in Judge(GIGACHAT).identity
    assert "test_the_identity_of_a_judge" in Judge(RunnableLambda(lambda messages: "")).identity
    assert "attempts=5" in repr(Judge(OPENAI, attempts=5))


@each(
    "options",
    [
        *({"language": "ru"}, {"mode": "prompt"}, {"attempts": 2}, {"draws": 3}, {"layout": "instruction_first"}),
        *({"max_statements": 5}, {"max_context_tokens": 100}),
    ],
)
def test_every_option_that_could_change_an_answer_is_part_of_the_instrument(options):
    assert Judge(OPENAI, **options).instrument != Judge(OPENAI).instrument


def test_the_same_model_and_options_are_the_same_instrument():
    again = ChatOpenAI(model="m", api_key="another key", base_url="http://127.0.0.1:1/v1", temperature=0.1)
    assert Judge(again).instrument == Judge(OPENAI).instrument


def test_prompts_of_the_users_own_are_part_of_a_steps_instrument():
    own = PromptSet.default("en").replace("extract_statements", instruction="List them.")
    other = own.replace("extract_statements", instruction="Name them.")
    instruments = [
        repr(JudgeStep("extract_statements", Judge(OPENAI, prompts=prompts), Statements).instrument)
        for prompts in (None, own, other)
    ]
    assert len(set(instruments)) == 3


def test_the_contexts_come_first_unless_another_layout_is_chosen():
    judge = Judge(OPENAI)
    assert (judge.layout, judge._endpoint.layout) == ("auto", "contexts_first")
    for layout in ("shared_instructions", "instruction_first"):
        assert Judge(OPENAI, layout=layout)._endpoint.layout == layout
    assert judge.instrument == Judge(OPENAI, layout="contexts_first").instrument


def test_a_judge_in_its_language_or_with_prompts_of_its_own_stays_itself():
    model = FakeListChatModel(responses=[])
    russian, own = Judge(model, language="ru"), Judge(model, prompts=PromptSet.default("en"))
    assert in_language(russian, "ru") is russian
    assert in_language(own, "ru") is own
    assert in_language(russian, "en").language == "en"
