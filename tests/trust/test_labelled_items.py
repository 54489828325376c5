"""The labelled items of the package: labels refer to existing chunks, sentences and statements."""

import re
from collections import Counter
from pathlib import Path

import pytest

import langchain_rageval
from langchain_rageval import ConfigError
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.text.language import detect_language
from langchain_rageval.trust.examination import EXAMINATIONS, pad_item, reverse_item
from langchain_rageval.trust.labelled_item import labelled_items

LANGUAGES = ("ru", "en")
PLACE = Path(langchain_rageval.__file__).parent / "trust" / "labelled_items"


def items(step):
    return [item for language in LANGUAGES for item in labelled_items(language) if item.step == step]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_step_has_enough_labels_for_an_interval(language):
    labels = Counter()
    for item in labelled_items(language):
        labels[item.step] += sum(bool(label.accepted) for label in item.labels)
    assert labels.keys() == EXAMINATIONS.keys()
    assert all(30 <= count <= 70 for count in labels.values())
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
        assert len(item.statements) + len(item.references) == len(item.labels) == 10
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
    assert sources - {"written for this set"} == {"TERRa", "XQuAD", "CLAPNQ", "Factcheck-GPT"}
    assert all(
        re.search(rf"^- {source}\b.*(MIT|Apache-2.0|CC BY-SA)", told, re.MULTILINE)
        for source in sources - {"written for this set"}
    )
    assert sum(file.stat().st_size for file in PLACE.iterdir()) < 500_000
