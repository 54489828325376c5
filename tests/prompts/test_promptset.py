import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import human_of

from langchain_rageval import ConfigError, Prompt, PromptSet
from langchain_rageval.answers import ANSWERS
from langchain_rageval.contexts import CHARACTERS_PER_TOKEN, NumberedContexts
from langchain_rageval.prompts.layout import Request, lay_out
from langchain_rageval.prompts.promptset import languages

LANGUAGES = sorted(languages())
STEPS = [(language, step) for language in LANGUAGES for step in sorted(ANSWERS)]
EXAMPLES = [
    pytest.param(step, example, id=f"{language}/{step} {number}")
    for language, step in STEPS
    for number, example in enumerate(PromptSet.default(language).get(step).examples, 1)
]
LATIN_ALLOWED = {"supported", "contradicted", "absent", "json"}
GOOD = {"input": {"question": "?", "text": "A."}, "output": {"statements": ["A."]}}


def strings(value):
    """Every text in a nested value, without the keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


def shape(value):
    """Keys in order, and the kinds of what they hold; lists of any length are alike."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return type(value).__name__


def latin_words(text):
    """Latin words of four or more letters outside of back-ticks."""
    return {word.lower() for word in re.findall(r"[A-Za-z]{4,}", re.sub(r"`[^`]*`", "", text))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_step(language):
    assert PromptSet.default(language).common.language == language
    assert PromptSet.default(language).prompts.keys() == ANSWERS.keys()


def test_english_and_russian_come_with_the_package_and_other_languages_are_asked_in_english():
    assert {"en", "ru"} <= set(LANGUAGES)
    assert PromptSet.default("kk") is PromptSet.default("en")


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_an_examples_output_is_a_valid_answer_with_its_fields_in_order(step, example):
    answer = ANSWERS[step].model_validate(example.output, strict=True)
    assert shape(answer.model_dump()) == shape(example.output)
    assert answer.model_dump() == example.output


@pytest.mark.parametrize(("step", "example"), [case for case in EXAMPLES if case.values[0] == "verify_statements"])
def test_an_example_of_verdicts_keeps_the_rules_that_it_teaches(step, example):
    block = NumberedContexts.of(example.input["contexts"])
    lettered = {f"{chr(64 + line.chunk)}.{line.sentence}" for line in block.lines}
    verdicts = example.output["verdicts"]
    assert [item["statement"] for item in verdicts] == [item["statement"] for item in example.input["statements"]]
    assert {verdict["verdict"] for verdict in verdicts} == {"supported", "contradicted", "absent"}
    for verdict in verdicts:
        assert set(verdict["evidence"]) <= lettered
        assert bool(verdict["evidence"]) is (verdict["verdict"] != "absent")


@pytest.mark.parametrize("step", sorted(ANSWERS))
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_languages_have_one_structure(language, step):
    english, other = PromptSet.default("en").get(step), PromptSet.default(language).get(step)
    assert [shape(example.input) for example in other.examples] == [shape(e.input) for e in english.examples]
    assert other.reads_contexts is english.reads_contexts
    assert set(re.findall(r"`(\w+)`", english.instruction)) == set(re.findall(r"`(\w+)`", other.instruction))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_languages_have_the_same_labels_with_the_same_gaps(language):
    def gaps(common):
        return {
            name: re.findall(r"\{\w*\}", text) for name, text in [*common.labels.items(), ("ask", common.ask_again)]
        }

    assert gaps(PromptSet.default(language).common) == gaps(PromptSet.default("en").common)


@pytest.mark.parametrize("step", sorted(ANSWERS))
def test_a_russian_prompt_is_russian(step):
    prompt = PromptSet.default("ru").get(step)
    texts = [prompt.instruction, *(text for example in prompt.examples for text in strings(example.model_dump()))]
    assert {word for text in texts for word in latin_words(text)} <= LATIN_ALLOWED


def test_what_the_russian_steps_share_is_russian():
    common = PromptSet.default("ru").common
    texts = [common.system, *common.labels.values(), common.ask_again]
    assert {word for text in texts for word in latin_words(re.sub(r"\{\w+\}", "", text))} <= LATIN_ALLOWED


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_an_instruction_and_its_examples_stay_under_600_tokens(language, step):
    prompts = PromptSet.default(language)
    messages = lay_out(Request(step, prompts, prompts.get(step), {}, None, {}), "contexts_first", with_schema=False)
    assert len(human_of(messages)) / CHARACTERS_PER_TOKEN < 600


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_saved_set_loads_as_the_same_set(language, tmp_path):
    prompts = PromptSet.default(language)
    prompts.save(tmp_path / "mine")
    loaded = PromptSet.load(tmp_path / "mine")
    assert loaded == prompts
    assert loaded.fingerprint == prompts.fingerprint


encodable = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None, max_examples=50)  # files are written and read
@given(instruction=encodable, text=encodable)
def test_any_text_survives_saving_and_loading(instruction, text, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "any"
    given_examples = [{"input": {"question": text, "text": text}, "output": {"statements": [text]}}]
    prompts = PromptSet.default("en").replace("extract_statements", instruction=instruction, examples=given_examples)
    prompts.save(folder)
    assert PromptSet.load(folder) == prompts


def test_a_directory_needs_only_the_steps_that_differ(tmp_path):
    (tmp_path / "extract_statements.yaml").write_text("instruction: Перечисли.\n", encoding="utf-8")
    prompts = PromptSet.load(tmp_path)
    assert prompts.get("extract_statements") == Prompt(instruction="Перечисли.")
    assert prompts.get("verify_statements") == PromptSet.default("en").get("verify_statements")


def test_a_directory_named_after_a_language_is_completed_in_that_language(tmp_path):
    (tmp_path / "ru").mkdir()
    assert PromptSet.load(tmp_path / "ru") == PromptSet.default("ru")


def test_replacing_keeps_what_is_not_given_and_the_set_it_is_called_on():
    default = PromptSet.default("en")
    before = default.fingerprint
    other = default.replace("extract_statements", instruction="List them.")
    assert other.get("extract_statements").instruction == "List them."
    assert other.get("extract_statements").examples == default.get("extract_statements").examples
    assert other.get("verify_statements") is default.get("verify_statements")
    assert (
        default.replace("extract_statements", examples=[GOOD]).get("extract_statements").examples[0].input
        == GOOD["input"]
    )
    assert before == default.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda prompts: prompts.replace("verify", instruction="x"), "there are extract_statements, verify_statements"),
        (lambda prompts: prompts.get("verify"), "there are extract_statements, verify_statements"),
        (
            lambda prompts: prompts.replace("extract_statements", examples=[{**GOOD, "output": {"statements": "A."}}]),
            "extract_statements, output of example 1: statements",
        ),
        (
            lambda prompts: prompts.replace("extract_statements", examples=[GOOD, {**GOOD, "output": {}}]),
            "output of example 2: statements: Field required",
        ),
        (lambda prompts: prompts.replace("extract_statements", examples=[{"in": 1}]), "mappings of input and output"),
        (lambda prompts: prompts.replace("extract_statements", examples=["A."]), "mappings of input and output"),
    ],
)
def test_a_wrong_step_or_example_is_refused(wrong, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        wrong(PromptSet.default("en"))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("extract_statements.yaml", "instruction: [", "extract_statements.yaml is no prompt file"),
        ("extract_statements.yaml", "examples: []", "extract_statements.yaml is no prompt file"),
        ("extract_statements.yaml", "instruction: x\nexample: []", "extract_statements.yaml is no prompt file"),
        ("extract_statements.yaml", b"instruction: \xff", "extract_statements.yaml is no prompt file"),
        ("extract_statments.yaml", "instruction: x", "no step 'extract_statments'; there are extract_statements"),
        (
            "verify_statements.yaml",
            "instruction: x\nexamples: [{input: {}, output: {verdicts: [{statement: 1}]}}]",
            "verify_statements, output of example 1: verdicts.0.reason",
        ),
        ("common.yaml", "language: en", "common.yaml is no common file"),
        (
            "common.yaml",
            "{language: en, system: x, labels: {task: y}, ask_again: z}",
            "common.yaml lacks the labels",
        ),
        (
            "common.yaml",
            "{language: en, system: x, ask_again: 'why {what}', labels: LABELS}",
            "common.yaml: ask_again",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(name, text, told, tmp_path):
    if isinstance(text, str):
        text = text.replace("LABELS", repr(PromptSet.default("en").common.labels)).encode()
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError, match=re.escape(told)):
        PromptSet.load(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is no directory"):
        PromptSet.load(tmp_path / "missing")
