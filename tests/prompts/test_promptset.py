"""The packaged prompts as texts; loading, saving and replacing prompts; criteria of the rubric."""

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

from langchain_rageval import ConfigError, Criterion, Prompt, PromptSet
from langchain_rageval._internal.cached import locked_cache
from langchain_rageval.metrics.answer_verdicts import ASPECTS
from langchain_rageval.prompts import promptset
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.criteria import criterion_inputs, default_criteria
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


TEXTS = [(language, shared_texts(language)) for language in LANGUAGES]
TEXTS += [(language, step_texts(language, step)) for language in LANGUAGES for step in OWN[language]]


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
    plain = [re.sub(r"`\w+`|\{\w+\}", "", text).lower() for text in texts]  # without names of fields and gaps to fill
    words = {word for text in plain for word in re.findall(r"[^\W\d_]+", text)}
    assert [text for text in texts if re.search(OTHER_SCRIPTS[language], text)] == []
    assert detect_language(" ".join(re.findall(r"[^\W\d_]+", plain[0]))) == language
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


@each("language", LANGUAGES)
def test_a_saved_set_and_an_empty_directory_named_after_its_language_load_as_the_same_set(language, tmp_path):
    prompts, saved = PromptSet.default(language), tmp_path / f"my {language}"
    prompts.save(saved)
    assert {path.stem for path in saved.iterdir()} == {"common", *ANSWER_SCHEMAS}
    loaded = PromptSet.load(saved)
    assert (loaded, loaded.fingerprint) == (prompts, prompts.fingerprint)
    (tmp_path / language).mkdir()
    assert PromptSet.load(tmp_path / language) == prompts


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


def test_replacing_keeps_what_is_not_given_and_the_set_it_is_called_on():
    default = PromptSet.default("en")
    before = default.fingerprint
    other = default.replace("extract_statements", instruction="List them.")
    given_examples = default.get("extract_statements").examples
    assert other.get("extract_statements") == Prompt(instruction="List them.", examples=given_examples)
    assert other.get("verify_statements") is default.get("verify_statements")
    (example,) = default.replace("extract_statements", examples=[GOOD]).get("extract_statements").examples
    assert example.model_dump() == GOOD
    assert before == default.fingerprint != other.fingerprint


WRONG_REPLACEMENTS = [
    ("verify", {"instruction": "x"}, "there are answer_unaided, check_needs, check_user_facts, classify_statements"),
    ("extract_statements", {"examples": [WRONG]}, "extract_statements, output of example 1: statements: Input"),
    ("extract_statements", {"examples": [GOOD, LACKING]}, "output of example 2: statements: Field required"),
    ("extract_statements", {"examples": [{"in": 1}]}, "mappings of input and output"),
    ("extract_statements", {"examples": ["A."]}, "mappings of input and output"),
]


@each(("step", "options", "told"), WRONG_REPLACEMENTS)
def test_a_wrong_step_or_example_is_refused(step, options, told):
    assert told in str(error_of(ConfigError, PromptSet.default("en").replace, step, **options))


UNUSABLE_FILES = [
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
]


@pytest.mark.parametrize(("name", "text", "told"), UNUSABLE_FILES)
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


# Criteria: what they refuse, what the judge is shown of them, and those that come with the package


DEFAULT = default_criteria()
KIND = {"question": "?", "answer": "Here you are!", "reason": "Kind.", "grade": 3}
TONE = Criterion("tone", "Whether it is kind.", 0.5, grades={0: "Rude.", 3: "Kind."}, examples=[KIND])


@each("language", ["en", "ru"])
def test_the_packaged_criteria_describe_every_grade_in_words_of_the_language_and_show_an_answer_for_it(language):
    criteria = DEFAULT[language]
    assert [(c.name, c.weight) for c in criteria] == [("correctness", 0.6), ("completeness", 0.2), ("readability", 0.2)]
    for criterion in criteria:
        assert sorted(criterion.grades) == [example.grade for example in criterion.examples] == [0, 1, 2, 3]
        assert len({example.question for example in criterion.examples}) == 1
        assert all(example.reason for example in criterion.examples)
        assert len(set(criterion.grades.values())) == 4
        for text in (criterion.description, criterion.examples[0].question):
            assert detect_language(text) == language
        examples = [text for e in criterion.examples for text in (e.question, e.answer, e.reason)]
        words = " ".join([criterion.description, *criterion.grades.values(), *examples])
        assert any("a" <= letter.lower() <= "z" for letter in words) is (language == "en")


SCALES = [((0, 3), [0, 1, 2, 3]), ((1, 4), [1, 2, 3, 4]), ((0, 6), [0, 2, 4, 6]), ((-3, 3), [-3, -1, 1, 3])]
SCALES += [((0, 1), [0, 1]), ((1, 5), [1, 5])]


@each(("scale", "described"), SCALES)
def test_on_another_scale_grades_keep_their_place_between_the_ends(scale, described):
    for criteria in default_criteria(scale).values():
        for criterion, usual in zip(criteria, DEFAULT["en"], strict=True):
            assert sorted(criterion.grades) == [example.grade for example in criterion.examples] == described
            assert criterion.weight == usual.weight
    moved, usual = default_criteria(scale)["en"][0], DEFAULT["en"][0]
    assert (moved.grades[scale[0]], moved.grades[scale[1]]) == (usual.grades[0], usual.grades[3])
    assert moved.examples[-1].answer == usual.examples[-1].answer


def test_the_judge_reads_both_ends_of_the_scale_even_without_descriptions():
    bare = Criterion("tone", "Whether it is kind.", grades={2: "Neither."})
    inputs = criterion_inputs(bare, (1, 5), with_examples=True)
    assert inputs.keys() == {"criterion", "description", "grades"}
    assert (inputs["criterion"], inputs["description"]) == ("tone", "Whether it is kind.")
    assert list(inputs["grades"].items()) == [("1", ""), ("2", "Neither."), ("5", "")]


def test_graded_answers_are_sorted_by_grade_and_can_be_left_out():
    lower = {"question": "?", "answer": "No.", "grade": 0}
    criterion = Criterion("tone", "d", examples=[*TONE.examples, lower])
    inputs = criterion_inputs(criterion, (0, 3), with_examples=True)
    assert [example["grade"] for example in inputs["examples"]] == [0, 3]
    assert "examples" not in criterion_inputs(TONE, (0, 3), with_examples=False)


def test_a_criterion_is_frozen_and_equal_by_its_texts_in_which_lone_surrogates_are_replaced():
    assert Criterion(**TONE.model_dump()) == TONE
    assert hash(Criterion(**TONE.model_dump())) == hash(TONE)
    with pytest.raises(Exception, match="frozen"):
        TONE.weight = 1.0
    assert Criterion("tone", "d\ud800").description == "d\ufffd"


WRONG_CRITERIA = [
    ({"name": " "}, "the name is blank"),
    ({"description": ""}, "the description is blank"),
    ({"grades": {1: " "}}, "the description of grade 1 is blank"),
    ({"weight": -0.1}, "weight must be a number of at least 0, got -0.1"),
    ({"weight": float("nan")}, "weight must be a number of at least 0, got nan"),
    ({"weight": "much"}, "weight: Input should be a valid number"),
    ({"grades": {1.5: "x"}}, "valid integer"),
    ({"grades": ["x"]}, "grades: Input should be a valid dictionary"),
    ({"examples": [{"answer": "x", "grade": 1}]}, "examples.0.question: Field required"),
    ({"examples": [{"question": "?", "answer": "x", "grade": 1, "garde": 2}]}, "examples.0.garde: Extra inputs"),
    ({"examples": "x"}, "examples must be a list of mappings, got str"),
    ({"examples": 3}, "examples must be a list of mappings, got int"),
]


@each(("given", "told"), WRONG_CRITERIA)
def test_what_cannot_be_meant_is_refused(given, told):
    assert told in str(error_of(ConfigError, Criterion, **{"name": "tone", "description": "d", **given}))
