"""The packaged prompts as texts, each in its own language; and loading, saving and replacing prompts."""

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from string import Formatter

import pytest
import yaml
from helpers.each import each, error_of
from helpers.texts import JUDGING, LANGUAGES, OWN, strings
from helpers.waiting import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Prompt, PromptSet
from langchain_rageval._internal.cached import locked_cache
from langchain_rageval.metrics.answer_verdicts import ASPECTS
from langchain_rageval.prompts import promptset
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import RequestContent, lay_out
from langchain_rageval.prompts.promptset import languages, packaged_fingerprint
from langchain_rageval.text.language import FUNCTION_WORDS, detect_language

NOT_YET_TRIED = "# Not read by a native speaker, not tried with a live judge."
LATIN_ALLOWED = {
    *("supported", "contradicted", "absent", "contradicts", "extra", "json", "true", "false", "tp", "fp", "fn"),
    *("kg", "mg", *ASPECTS),
    *("pip", "install", "app"),  # a line of code
    *("user", "assistant", "kept", "asked", "again", "ignored", "not", "touched"),  # roles, verdicts
    *("met", "unmet", "withdrawn"),
    "apply",  # in a question that mixes languages
}
ENGLISH_ONLY = FUNCTION_WORDS["en"] - FUNCTION_WORDS["it"] - {"a", "do", "no", "not", "so"}
EAST_ASIAN = re.compile("[\u3000-\u9fff\uac00-\ud7a3\uff00-\uffef]")
OTHER_SCRIPTS = {
    "en": "[^\u0000-\u00ff’“”—]",
    "it": "[^\u0000-\u00ff’“”—]",
    "ko": "[\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff]",
    "ru": "[\u3000-\u9fff\uac00-\ud7a3]",
    "zh": "[\u0400-\u04ff\u3040-\u30ff\uac00-\ud7a3]",
}
LIFE = {
    "it": ["euro", "polizza", "multa", "anagrafe"],
    "ko": ["원", "여행자보험", "전세보증금", "과태료", "주민센터", "은행", "알약"],
    "ru": [
        *("руб.", "полис", "вклад", "МФЦ", "госпошлина", "ипотек", "аблетк"),
        *("баню", "ЕГРН", "ОСАГО", "Госуслуги", "поликлиник", "пени", "управляющая компания"),
    ],
    "zh": ["元", "押金", "护照", "政务服务中心", "列车", "家财险"],
}
LABELS = PromptSet.default("en").common.labels
GOOD = {"input": {"question": "?", "text": "A."}, "output": {"statements": ["A."]}}
LACKING, WRONG = {**GOOD, "output": {}}, {**GOOD, "output": {"statements": "A."}}


def shared_texts(language):
    common = PromptSet.default(language).common
    return [common.system, *common.labels.values(), common.ask_again, *common.aspects.values()]


def step_texts(language, step):
    prompt = PromptSet.default(language).get(step)
    return [prompt.instruction, *strings([example.model_dump() for example in prompt.examples])]


def words_of(text):
    """Without the names of fields and the gaps to fill."""
    return re.findall(r"[^\W\d_]+", re.sub(r"`\w+`|\{\w+\}", "", text).lower())


TEXTS = [
    *((language, shared_texts(language)) for language in LANGUAGES),
    *((language, step_texts(language, step)) for language in LANGUAGES for step in OWN[language]),
]


def gaps(text):
    return [name for _, name, _, _ in Formatter().parse(text) if name is not None]


def test_five_languages_come_with_the_package_and_every_other_one_is_asked_in_english():
    assert languages() == set(LANGUAGES)
    assert PromptSet.default("kk") is PromptSet.default("en")


@pytest.mark.parametrize("language", ["it", "ko", "zh"])
def test_steps_without_prompts_in_a_language_are_asked_in_english_under_its_own_labels(language):
    prompts, english = PromptSet.default(language), PromptSet.default("en")
    in_english = {step for step in ANSWER_SCHEMAS if prompts.get(step) == english.get(step)}
    assert in_english == ANSWER_SCHEMAS.keys() - JUDGING
    lacking = RequestContent("write_question", prompts, prompts.get("write_question"), {"passage": "?"}, None, {})
    system, human = lay_out(lacking, "contexts_first", with_schema=False)
    assert system.text == prompts.common.system != english.common.system
    assert human.text.startswith(f"{prompts.common.labels['task']}\n{english.get('write_question').instruction}\n")


def test_a_change_to_the_english_prompt_of_a_step_is_seen_wherever_it_is_asked(tmp_path, monkeypatch):
    shutil.copytree(str(files("langchain_rageval.prompts")), tmp_path / "prompts")
    monkeypatch.setattr(promptset, "_packaged", lambda: tmp_path / "prompts")

    def fingerprints():
        monkeypatch.setattr(promptset, "_packaged_set", locked_cache(promptset._packaged_set.__wrapped__))
        packaged = packaged_fingerprint.__wrapped__
        sets = {language: PromptSet.default(language).fingerprint for language in LANGUAGES}
        return sets, packaged("write_question"), packaged("verify_statements")

    before = fingerprints()
    file = tmp_path / "prompts/en/write_question.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("Write one", "Write just one"), encoding="utf-8")
    after = fingerprints()
    changed = {language for language in LANGUAGES if before[0][language] != after[0][language]}
    assert changed == {"en", "it", "ko", "zh"}
    assert before[1] != after[1]
    assert before[2] == after[2]


@each("language", LANGUAGES)
def test_the_languages_have_the_same_labels_with_the_same_gaps_and_define_the_same_aspects(language):
    common, english = PromptSet.default(language).common, PromptSet.default("en").common
    assert list(common.labels) == list(english.labels)
    assert {name: gaps(text) for name, text in common.labels.items()} == {
        name: ["step"] if name in ("named_task", "rules") else [] for name in english.labels
    }
    assert gaps(common.ask_again) == ["problem"]
    assert common.aspects.keys() == ASPECTS.keys()
    assert len(set(common.aspects.values())) == len(ASPECTS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_that_no_native_speaker_has_read_say_so(language):
    folder = files("langchain_rageval.prompts").joinpath(language)
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    assert len(texts) == len(OWN[language]) + 1
    if language in ("en", "ru"):
        assert not any("native speaker" in text.lower() for text in texts)
    else:
        assert {text.splitlines()[0] for text in texts} == {NOT_YET_TRIED}


@each(("language", "texts"), TEXTS)
def test_a_text_is_in_the_script_and_the_words_of_its_language(language, texts):
    """Latin words are allowed in another script if they are labels; Chinese is simplified, without spaces."""
    words = {word for text in texts for word in words_of(text)}
    assert [text for text in texts if re.search(OTHER_SCRIPTS[language], text)] == []
    assert detect_language(" ".join(words_of(texts[0]))) == language
    if language == "it":
        assert words & ENGLISH_ONLY == set()
        assert words & FUNCTION_WORDS["it"]
    elif language != "en":
        assert {latin for word in words for latin in re.findall("[a-z]{2,}", word)} <= LATIN_ALLOWED
    for text in texts if language == "zh" else ():
        assert text.encode("gb2312").decode("gb2312") == text
        assert not re.search(f"{EAST_ASIAN.pattern} {EAST_ASIAN.pattern}", text)


@pytest.mark.parametrize("language", LIFE)
def test_the_examples_are_from_the_life_of_the_country(language):
    told = " ".join(text for step in OWN[language] for text in step_texts(language, step)[1:])
    assert [word for word in LIFE[language] if word not in told] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_saved_set_loads_as_the_same_set(language, tmp_path):
    prompts = PromptSet.default(language)
    prompts.save(tmp_path / "mine")
    loaded = PromptSet.load(tmp_path / "mine")
    assert {path.stem for path in (tmp_path / "mine").iterdir()} == {"common", *ANSWER_SCHEMAS}
    assert loaded == prompts
    assert loaded.fingerprint == prompts.fingerprint


encodable = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.gate
@settings(max_examples=min(settings.default.max_examples, 100))  # files are written and read
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


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("own", [None, {"coherence": "Le frasi si seguono.", "tone": "Il tono è cortese."}])
def test_aspects_of_a_directory_go_before_the_default_ones_and_may_be_left_out(language, own, tmp_path):
    default = PromptSet.default(language)
    default.save(tmp_path)
    common = yaml.safe_load((tmp_path / "common.yaml").read_text(encoding="utf-8"))
    del common["aspects"]
    text = yaml.safe_dump(common | ({"aspects": own} if own else {}), allow_unicode=True)
    (tmp_path / "common.yaml").write_text(text, encoding="utf-8")
    loaded = PromptSet.load(tmp_path)
    assert loaded.common.aspects == default.common.aspects | (own or {})
    assert own or loaded == default


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_directory_named_after_a_language_is_completed_in_that_language(language, tmp_path):
    (tmp_path / language).mkdir()
    assert PromptSet.load(tmp_path / language) == PromptSet.default(language)


def test_replacing_keeps_what_is_not_given_and_the_set_it_is_called_on():
    default = PromptSet.default("en")
    before = default.fingerprint
    other = default.replace("extract_statements", instruction="List them.")
    assert other.get("extract_statements").instruction == "List them."
    assert other.get("extract_statements").examples == default.get("extract_statements").examples
    assert other.get("verify_statements") is default.get("verify_statements")
    (example,) = default.replace("extract_statements", examples=[GOOD]).get("extract_statements").examples
    assert example.model_dump() == GOOD
    assert before == default.fingerprint != other.fingerprint


@each(
    ("step", "options", "told"),
    [
        (
            "verify",
            {"instruction": "x"},
            "there are answer_unaided, check_needs, check_user_facts, classify_statements",
        ),
        ("extract_statements", {"examples": [WRONG]}, "extract_statements, output of example 1: statements: Input"),
        ("extract_statements", {"examples": [GOOD, LACKING]}, "output of example 2: statements: Field required"),
        ("extract_statements", {"examples": [{"in": 1}]}, "mappings of input and output"),
        ("extract_statements", {"examples": ["A."]}, "mappings of input and output"),
    ],
)
def test_a_wrong_step_or_example_is_refused(step, options, told):
    assert told in str(error_of(ConfigError, PromptSet.default("en").replace, step, **options))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("extract_statements", "instruction: [", "extract_statements.yaml is not a valid prompt file"),
        ("extract_statements", "examples: []", "is not a valid prompt file: instruction: Field required, got dict"),
        ("extract_statements", "instruction: x\nexample: []", "extract_statements.yaml is not a valid prompt file"),
        ("extract_statements", b"instruction: \xff", "extract_statements.yaml is not a valid prompt file"),
        ("extract_statments", "instruction: x", "no step 'extract_statments'; there are answer_unaided, check_needs"),
        (
            "verify_statements",
            "instruction: x\nexamples: [{input: {}, output: {verdicts: [{statement: 1}]}}]",
            "verify_statements, output of example 1: verdicts.0.evidence: Field required",
        ),
        ("common", "language: en", "common.yaml is not a valid common file"),
        (
            "common",
            "{language: en, system: x, labels: {task: y}, ask_again: z}",
            f"lacks the labels {sorted(LABELS.keys() - {'task'})}; copy and translate those of another language",
        ),
        (
            "common",
            "{language: en, system: x, ask_again: 'why {what}', labels: LABELS}",
            "common.yaml: ask_again may contain {problem} and no other braces, got 'why {what}'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(name, text, told, tmp_path):
    if isinstance(text, str):
        text = text.replace("LABELS", repr(LABELS)).encode()
    (tmp_path / f"{name}.yaml").write_bytes(text)
    assert told in str(error_of(ConfigError, PromptSet.load, tmp_path))


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    error, folder = error_of(ConfigError, PromptSet.load, tmp_path / "missing"), tmp_path / "missing"
    assert str(error) == f"{folder} is not a directory; PromptSet.load takes a directory of <step>.yaml files"


def test_threads_that_ask_at_the_same_moment_get_one_set(monkeypatch):
    monkeypatch.setattr(promptset, "_packaged_set", locked_cache(promptset._packaged_set.__wrapped__))
    meeting = threading.Barrier(8)

    def asked(_number):
        meeting.wait(PATIENCE)
        return PromptSet.default("ru")

    with ThreadPoolExecutor(8) as pool:
        assert len({id(prompts) for prompts in pool.map(asked, range(8))}) == 1


def test_a_file_that_is_a_link_out_of_the_directory_is_rejected(tmp_path):
    folder, elsewhere = tmp_path / "mine", tmp_path / "secret.yaml"
    folder.mkdir()
    elsewhere.write_text("password: hunter2", encoding="utf-8")
    (folder / "extract_statements.yaml").symlink_to(elsewhere)
    message = f"extract_statements.yaml is a link out of {folder}; copy the file into the directory"
    assert str(error_of(ConfigError, PromptSet.load, folder)) == message
