"""Notes: facts with a text in each language."""

import copy
import json
import pickle
import re
from pathlib import Path
from string import Formatter

from helpers.each import each, error_of

from langchain_rageval import HashingEmbeddings, Judge, OfflineJudge, Report, evaluate, faithfulness
from langchain_rageval.data import notes
from langchain_rageval.data.notes import Note, code_of, is_important, note_of, translate
from langchain_rageval.metrics import citations, claim_graph, ranked, supported
from langchain_rageval.report.page import Page, without_addresses
from langchain_rageval.report.unpaired import MixShift

TEMPLATES = notes._templates()
IDENTITY = "ChatOpenAI(model='qwen3', base_url='http://10.0.0.7:8000/v1', temperature=0.0)"


def fields_of(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_every_code_has_a_translation_with_no_other_fields():
    for code, template in TEMPLATES.items():
        assert template.keys() <= {"en", "ru", "important"}, code
        assert fields_of(template["ru"]) <= fields_of(template["en"]), code
        translated = re.search("[а-яё]", template["ru"])
        assert translated or not re.search("[a-z]{2}", re.sub(r"{.*?}", "", template["en"])), code


def test_every_code_is_written_once():
    texts = [(Path(notes.__file__).parent / name).read_text(encoding="utf-8") for name in notes._FILES]
    codes = [code for text in texts for code in re.findall(r"^([a-z][\w -]*):", text, re.MULTILINE)]
    assert sorted(codes) == sorted(TEMPLATES)


SHIFTS = [
    MixShift("length of the question", {"long": (0.5, 0.2), "very long": (0.1, 0.4)}, 0.3, 0.001),
    MixShift("language", {"ru": (0.8, 0.5)}, 0.3, 0.001),
    MixShift("metadata.size", {"long": (0.8, 0.5)}, 0.3, 0.001),
]
AGAINST_ANSWER = Note("against-answer", count=2)
MODE = Note("request-mode", judge=IDENTITY, mode="prompt")
RUSSIAN, ENGLISH = (Page(Report([], ["Mind the gap.", MODE]), language) for language in ("ru", "en"))
NOTES = {
    "shifts": (
        Note("questions-drifted", shifts=[shift.note for shift in SHIFTS]),
        "The questions differ from those of the baseline: length of the question: long 50% (baseline 20%), very long "
        "10% (baseline 40%); language: ru 80% (baseline 50%); metadata.size: long 80% (baseline 50%). Adjust for a "
        "property if a change of the means may be due to it.",
        "Вопросы отличаются от вопросов базового прогона: длина вопроса: длинные 50% (в базовом прогоне 20%), "
        "очень длинные 10% (в базовом прогоне 40%); язык: ru 80% (в базовом прогоне 50%); metadata.size: long 80% "
        "(в базовом прогоне 50%). Если изменение средних может объясняться этим, сделайте поправку на свойство.",
    ),
    "measures": (
        Note("mixed-measures", metric="cp", counts=[AGAINST_ANSWER, Note("against-question", count=1)]),
        "cp judged 2 against the answer, 1 against the question: its mean mixes different measures; set against=... "
        "to use one of them.",
        "cp: фрагменты сравнивались с разными текстами (с ответом — 2, с вопросом — 1), и среднее смешивает разные "
        "величины; выберите один в against=...",
    ),
    "one conversation": (
        Note("conversations", samples=3, units=1),
        "3 samples are turns of 1 conversation: the intervals treat conversations, not samples, as independent.",
        "Примеров из диалогов: 3, диалогов: 1; в интервалах независимыми считаются диалоги, а не примеры.",
    ),
    "batches": (
        Note("sent-in-batches", providers=["A", "B"], sent=1200, waves=2, live=3),
        "Requests sent through the batch API of A and B: 1,200 in 2 waves; 3 sent live.",
        "Запросы отправлены пакетами (A, B): 1200; сразу отправлено — 3.",
    ),
    "words of the user in braces": (
        Note("unknown-instrument", metric="own {x}", reason="{0} %s"),
        "The instrument of own {x} is unknown: {0} %s.",
        "own {x}: неизвестно, чем получены оценки: {0} %s.",
    ),
}  # fmt: skip


COPIES = {
    "itself": lambda note: note,
    "copy": copy.deepcopy,
    "pickle": lambda note: pickle.loads(pickle.dumps(note)),
    "JSON": lambda note: note_of(json.loads(json.dumps(note.to_json()))),
}


@each("name", NOTES)
@each("copied", COPIES)
def test_a_note_and_its_copies_are_a_text_in_each_language_and_have_the_facts(name, copied):
    note, english, russian = NOTES[name]
    made = COPIES[copied](note)
    assert (made, made.code, made.metric) == (english, note.code, note.metric)
    assert (made.in_language("en"), made.in_language("de")) == (english, english)
    assert made.in_language("ru") == russian == RUSSIAN.translate(made)


def test_a_note_of_a_later_version_shows_the_text_that_it_came_with():
    note = note_of({"code": "from-the-future", "text": "Something new.", "fields": {"n": 1}})
    assert (note, note.code, note.in_language("ru")) == ("Something new.", "from-the-future", "Something new.")
    error_of(KeyError, Note, "from-the-future")


def test_a_text_of_an_earlier_version_stays_and_counts_as_important():
    text = note_of("Mind the gap (really).")
    assert (type(text), code_of(text), is_important(text), translate(text, "ru")) == (str, "", True, text)
    assert RUSSIAN.run_notes(important=True) == ["Mind the gap."]
    assert RUSSIAN.run_notes(important=False) == ["Режим вызова qwen3: prompt."]


@each(
    "reason",
    [
        getattr(module, name)
        for module in (citations, claim_graph, ranked, supported)
        for name in vars(module)
        if name.isupper() and name.startswith(("NO_", "NEITHER", "BLANK", "UNCITED", "NOTHING"))
    ],
)
def test_reasons_of_unscored_samples_are_translated(reason):
    assert re.search("[а-яё]", RUSSIAN.translate(reason))
    assert ENGLISH.translate(reason) == reason


def test_a_page_names_a_model_without_its_settings_and_address():
    note = Note("run-stopped", judge=IDENTITY, count=20, failure="at https://judge.corp.local:8443/v1/chat, twice")
    told = "qwen3 failed 20 times in a row without a valid reply; last failure: at …, twice"
    assert ENGLISH.translate(note) == f"The run was stopped: {told}"
    assert "10.0.0.7" not in RUSSIAN.translate(note)
    told = "Asked FakeChat(temperature=0.1) at https://judge/v1, twice."
    assert without_addresses(told) == "Asked FakeChat at …, twice."


def test_the_notes_of_a_run_have_codes_that_its_file_keeps(tmp_path):
    sample = {"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}
    report = evaluate([sample], faithfulness(Judge(OfflineJudge())), progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    loaded = Report.load(tmp_path / "report.jsonl")
    assert [code_of(note) for note in loaded.notes] == [code_of(note) for note in report.notes] == ["offline-judge"]
    assert loaded.notes == report.notes == [OfflineJudge().report_note]
    assert is_important(HashingEmbeddings().report_note)
