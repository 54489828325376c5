"""The labelled items of the package: labels refer to existing chunks, sentences and statements."""

import re
from collections import Counter
from pathlib import Path
from zlib import compress

import pytest

import langchain_rageval
from langchain_rageval import ConfigError
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.words import words_of
from langchain_rageval.trust.examination import EXAMINATIONS, labelled_items, pad_item, reverse_item

LANGUAGES = ("ru", "en")
WRITTEN = ("written for this set", "written for this project")
NEW_STEPS = (
    "critique_aspect",
    "detect_abstention",
    "detect_answerable",
    "extract_entities",
    "find_entities",
    "grade_relevance",
    "grade_rubric",
)
TEXT_KINDS = {
    "how-to",
    "policy",
    "list",
    "table",
    "conditional",
    "near-duplicates",
    "partial support",
    "injection in context",
}
PLACE = Path(langchain_rageval.__file__).parent / "trust" / "labelled_items"


def beginnings(text):
    """Return the first two letters of each word: Russian endings differ between a term and its text."""
    return {word[:2] for word in words_of(text)}


def items(step):
    return [item for language in LANGUAGES for item in labelled_items(language) if item.step == step]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_step_has_enough_labels_for_an_interval(language):
    labels = Counter()
    for item in labelled_items(language):
        labels[item.step] += sum(bool(label.accepted) for label in item.labels)
    assert labels.keys() == EXAMINATIONS.keys()
    assert all(24 <= count <= 150 for count in labels.values())
    assert len({item.id for item in labelled_items(language)}) == len(labelled_items(language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_items_are_written_in_their_language(language):
    for item in labelled_items(language):
        assert not item.question or detect_language(item.question) == language, item.id
        assert not item.padding or detect_language(item.padding) == language, item.id


def test_no_constant_answer_is_right_for_most_labels():
    for step in EXAMINATIONS.keys() - {"measure_similarity"}:
        accepted = Counter(verdict for item in items(step) for label in item.labels for verdict in label.accepted)
        assert max(accepted.values()) / sum(bool(label.accepted) for i in items(step) for label in i.labels) < 0.7


def test_no_two_chunks_say_the_same():
    for item in (*labelled_items("ru"), *labelled_items("en")):
        sentences = [*NumberedContexts.of(item.contexts).sentences.values()]
        assert len({*sentences}) == len(sentences), item.id


def test_the_evidence_of_statements_exists():
    for item in items("verify_statements"):
        sentences = NumberedContexts.of(item.contexts).sentences
        assert len(item.statements) == len(item.labels), item.id
        for label in item.labels:
            assert bool(label.evidence) == (label.accepted not in [("contradicted", "absent"), ("absent",)]), item.id
            assert all(any(f"{n}.".startswith(f"{e}.") for n in sentences) for e in label.evidence), item.id


def test_labels_match_how_statements_were_copied_or_changed():
    for item in items("verify_statements"):
        if not item.source.startswith("XQuAD"):
            continue
        sentences = NumberedContexts.of(item.contexts).sentences
        for statement, label in zip(item.statements, item.labels, strict=True):
            if label.accepted == ("supported",):
                assert sentences[label.evidence[0]] == statement
            elif label.accepted == ("contradicted",):
                real = sentences[label.evidence[0]]
                assert real != statement
                assert re.sub(r"\d+", "", real) == re.sub(r"\d+", "", statement)
                changed = {*re.findall(r"\d+", statement)} - {*re.findall(r"\d+", real)}
                assert len(changed) == 1
                assert not any(year in context for year in changed for context in item.contexts)
            else:
                assert not any(statement in context for context in item.contexts)


def test_the_needed_sentence_is_the_only_one_that_holds_the_answer():
    for item in items("select_sentences"):
        sentences = NumberedContexts.of(item.contexts).sentences
        needed = [label.number for label in item.labels if label.accepted == ("needed",)]
        assert [n for n, text in sentences.items() if item.references[0] in text] == needed, item.id
        assert len(item.labels) == 2
        assert all(label.number in sentences for label in item.labels)


def test_chunks_and_statements_have_a_label_each():
    for item in items("grade_contexts"):
        assert len(item.contexts) == len(item.labels) == 3
        assert Counter(label.accepted for label in item.labels)[("useful",)] == 1
    for item in items("classify_statements"):
        assert len(item.statements) + len(item.references) == len(item.labels)
    places = Counter(
        label.accepted == ("useful",) and n for i in items("grade_contexts") for n, label in enumerate(i.labels, 1)
    )
    assert min(places[n] for n in (1, 2, 3)) >= 10


@pytest.mark.parametrize("step", [step for step, examination in EXAMINATIONS.items() if examination.reverse])
def test_the_reverse_of_the_reverse_is_the_item(step):
    for item in items(step):
        turned = reverse_item(item, EXAMINATIONS[step])
        assert turned != item
        assert reverse_item(turned, EXAMINATIONS[step]) == item


def test_labels_follow_their_chunks_into_reverse_order():
    for item in items("select_sentences"):
        before, after = (
            [NumberedContexts.of(one.contexts).sentences[label.number] for label in one.labels]
            for one in (item, reverse_item(item, EXAMINATIONS[item.step]))
        )
        assert before == after
    for item in items("grade_contexts"):
        turned = reverse_item(item, EXAMINATIONS[item.step])
        assert dict(zip(item.contexts, item.labels, strict=True)) == dict(
            zip(turned.contexts, turned.labels, strict=True)
        )


def test_padding_leaves_the_numbers_of_sentences_as_they_are():
    for step in ("verify_statements", "grade_contexts", "select_sentences"):
        for item in items(step):
            before = NumberedContexts.of(item.contexts).sentences
            after = NumberedContexts.of(pad_item(item).contexts).sentences
            assert {number: after[number] for number in before} == before, item.id
            assert len(after) == len(before) + len(item.contexts), item.id


def test_a_language_without_items_is_refused():
    with pytest.raises(ConfigError, match="labelled items come in en, ru, got language='tlh'"):
        labelled_items("tlh")


def test_the_readme_of_the_items_names_sources_and_licences():
    told = (PLACE / "README.md").read_text(encoding="utf-8")
    sources = {
        source.split(":")[0]
        for item in (*labelled_items("ru"), *labelled_items("en"))
        for source in item.source.split("; ")
    }
    assert sources - {*WRITTEN} == {"TERRa", "XQuAD", "CLAPNQ", "Factcheck-GPT"}
    assert all(
        re.search(rf"^- {source}\b.*(MIT|Apache-2.0|CC BY-SA)", told, re.MULTILINE) for source in sources - {*WRITTEN}
    )
    assert all(re.search(rf"^- {source}\b.*MIT", told, re.MULTILINE) for source in WRITTEN)
    assert sum(len(compress(file.read_bytes())) for file in PLACE.iterdir()) < 250_000


# Items written for this project


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_step_of_the_judge_has_at_least_24_items(language):
    counts = Counter(item.step for item in labelled_items(language))
    assert all(counts[step] >= 24 for step in NEW_STEPS)
    assert all(count >= 16 for count in counts.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_item_has_a_kind_and_hard_kinds_are_there_for_each_step(language):
    kinds = {}
    for item in labelled_items(language):
        assert item.kind, item.id
        kinds.setdefault(item.step, set()).add(item.kind)
    for step in ("extract_statements", "verify_statements", "classify_statements", "grade_contexts", *NEW_STEPS):
        missing = TEXT_KINDS - kinds[step]
        assert not missing or step == "detect_abstention", (step, missing)
    assert {"23 statements", "injection in answer"} <= kinds["verify_statements"]
    assert {"refusal", "asks back", "off topic", "injection in answer"} <= kinds["detect_abstention"]


def test_both_languages_have_the_same_items():
    russian, english = (
        [(item.id, item.kind, item.labels) for item in labelled_items(language) if item.source == WRITTEN[1]]
        for language in LANGUAGES
    )
    assert russian == english


def test_the_item_with_23_statements_needs_several_requests():
    for item in items("verify_statements"):
        assert (len(item.statements) == 23) == (item.kind == "23 statements")
    assert sum(item.kind == "23 statements" for item in items("verify_statements")) == 2


OTHER_SPELLINGS = {
    "twelve seconds": "12 seconds",
    "June 3, 2019": "3 June 2019",
    "six months": "6 months",
    "seven euros": "7 euros",
    "2200 W": "2200 watts",
    "EUR 600": "600 euros",
    "ten days": "10 days",
    "2.4 kilometres": "2.4 km",
    "fourteen hours": "14 hours",
    "24 kilograms": "24 kg",
    "двенадцать секунд": "12 секунд",
    "03.06.2019": "3 июня 2019",
    "шесть месяцев": "6 месяцев",
    "350 руб.": "350 рублей",
    "2200 ватт": "2200 Вт",
    "шесть тысяч рублей": "6000 рублей",
    "десять дней": "10 дней",
    "2,4 километра": "2,4 км",
    "четырнадцать часов": "14 часов",
    "24 килограмма": "24 кг",
}


def test_the_evidence_of_entities_names_them():
    spelled = set()
    for item in items("find_entities"):
        for term, label in zip(item.terms, item.labels, strict=True):
            spelled |= {term} & OTHER_SPELLINGS.keys()
            words = beginnings(OTHER_SPELLINGS.get(term, term))
            found = [number for number, text in enumerate(item.contexts, 1) if words <= beginnings(text)]
            if label.accepted == ("found",):
                assert {int(number) for number in label.evidence} <= {*found}, (item.id, term)
            else:
                assert not any(term in text for text in item.contexts), (item.id, term)
    assert spelled == OTHER_SPELLINGS.keys()


def test_all_labelled_terms_occur_in_the_reference():
    for item in items("extract_entities"):
        assert {label.accepted for label in item.labels} == {("named",), ("not named",)}
        for term, _label in zip(item.terms, item.labels, strict=True):
            assert beginnings(term) <= beginnings(item.references[0]), (item.id, term)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_chunk_that_answers_is_left_out_of_unanswerable_contexts(language):
    by_step = {step: {} for step in ("grade_relevance", "detect_answerable")}
    for item in labelled_items(language):
        if item.step in by_step:
            by_step[item.step][item.id.rpartition("-")[2]] = item
    for number, item in by_step["detect_answerable"].items():
        graded = by_step["grade_relevance"][number]
        places = [place for place, label in enumerate(graded.labels) if "4" in label.accepted]
        assert len(places) == 1
        answers = graded.contexts[places[0]] in item.contexts
        assert answers == (item.labels[0].accepted == ("answer",)), item.id


def test_labels_of_answers_chunks_and_grades_are_among_the_verdicts_of_the_step():
    verdicts = {
        "critique_aspect": {"yes", "no"},
        "detect_abstention": {"abstains", "answers"},
        "detect_answerable": {"answer", "do not answer"},
        "grade_relevance": {*"01234"},
        "grade_rubric": {*"0123"},
    }
    for step, known in verdicts.items():
        for item in items(step):
            assert {verdict for label in item.labels for verdict in label.accepted} <= known, item.id
            number = {"grade_relevance": len(item.contexts), "grade_rubric": 3}.get(step, 1)
            assert len(item.labels) == number, item.id
