"""Notes on the HTML page: in its language, with models by their names and without addresses."""

import re

import yaml
from helpers.each import each

from langchain_rageval import HashingEmbeddings, Judge, OfflineJudge, evaluate, faithfulness
from langchain_rageval.evaluation.engine import STOPPED
from langchain_rageval.metrics import citations, claim_graph, ranked, supported
from langchain_rageval.models.offline_judge import invention_note
from langchain_rageval.report import page
from langchain_rageval.report.page import PageNotes, without_addresses
from langchain_rageval.report.unpaired import MixShift

TEMPLATES = yaml.safe_load(page.read_template("notes.yaml"))
RUSSIAN, ENGLISH = PageNotes(TEMPLATES, "ru"), PageNotes(TEMPLATES, "en")
IDENTITY = "ChatOpenAI(model='qwen3', base_url='http://10.0.0.7:8000/v1', temperature=0.0)"


def test_every_note_has_a_translation_without_other_fields():
    for template in TEMPLATES:
        assert set(re.findall(r"\{(\w+)\}", template["ru"])) <= set(re.findall(r"\{(\w+)\}", template["en"]))
        assert re.search("[а-яё]", template["ru"])


@each(
    "note",
    [
        OfflineJudge().report_note,
        HashingEmbeddings().report_note,
        f"{invention_note('tone')} Step(..., offline=function) answers instead.",
        *(f"{start}{IDENTITY} failed 20 times in a row without a valid reply; last failure: no" for start in STOPPED),
        *(getattr(module, name) for module in (citations, claim_graph, ranked, supported) for name in vars(module)
          if name.isupper() and name.startswith(("NO_", "NEITHER", "BLANK", "UNCITED", "NOTHING"))),
    ],
)  # fmt: skip
def test_what_the_package_writes_is_translated(note):
    translated = RUSSIAN.translate(note)
    assert re.search("[а-яё]", translated)
    assert "10.0.0.7" not in translated


def test_a_model_is_named_without_its_settings_and_address():
    note = f"{IDENTITY} was called in json_schema mode."
    assert ENGLISH.translate(note) == "qwen3 was called in json_schema mode."
    assert RUSSIAN.translate(note) == "Режим вызова qwen3: json_schema."
    assert without_addresses("failed at https://judge.corp.local:8443/v1/chat, twice") == "failed at …, twice"


SHIFTS = [
    MixShift("length of the question", {"long": (0.5, 0.2), "very long": (0.1, 0.4)}, 0.3, 0.001),
    MixShift("language", {"ru": (0.8, 0.5)}, 0.3, 0.001),
    MixShift("metadata.size", {"long": (0.8, 0.5)}, 0.3, 0.001),
]


@each(
    ("note", "translation"),
    [
        (
            f"The questions differ from those of the baseline: {'; '.join(map(str, SHIFTS))}. Adjust for a property if "
            "a change of the means may be due to it.",
            "Вопросы отличаются от вопросов базового прогона: длина вопроса: длинные 50% (в базовом прогоне 20%), "
            "очень длинные 10% (в базовом прогоне 40%); язык: ru 80% (в базовом прогоне 50%); metadata.size: long 80% "
            "(в базовом прогоне 50%). Если изменение средних может объясняться этим, сделайте поправку на свойство.",
        ),
        (
            "context_precision judged 3 against the reference, 2 against the answer, 1 against the question: its mean "
            "mixes different measures; set against=... to use one of them.",
            "context_precision: фрагменты сравнивались с разными текстами (с эталоном — 3, с ответом — 2, с вопросом — "
            "1), и среднее смешивает разные величины; выберите один в against=...",
        ),
        (
            "3 samples are turns of 1 conversation: the intervals treat conversations, not samples, as independent.",
            "Примеров из диалогов: 3, диалогов: 1; в интервалах независимыми считаются диалоги, а не примеры.",
        ),
        (
            "18 pairs are turns of 6 conversations, and each conversation is one cluster.",
            "Пар из диалогов: 18, диалогов: 6; каждый диалог считается одним кластером.",
        ),
    ],
)
def test_the_parts_of_a_note_are_translated_and_the_words_of_the_user_are_not(note, translation):
    assert RUSSIAN.translate(note) == translation
    assert ENGLISH.translate(note) == note


def test_an_unknown_note_stays_as_it_is_and_stands_at_the_head():
    assert RUSSIAN.translate("Mind the gap (really).") == "Mind the gap (really)."
    assert RUSSIAN.important(["Mind the gap."]) == ["Mind the gap."]
    assert RUSSIAN.others(["Mind the gap.", f"{IDENTITY} was called in prompt mode."]) == [
        "Режим вызова qwen3: prompt."
    ]


def test_the_notes_of_a_run_are_translated():
    made = evaluate(
        [{"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}], faithfulness(Judge(OfflineJudge()))
    )
    assert made.notes
    assert all(re.search("[а-яё]", RUSSIAN.translate(note)) for note in made.notes)
