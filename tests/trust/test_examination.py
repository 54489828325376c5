"""Labelled items: form, numbers, pairs, labels that follow from sources; and the judge that records its replies."""

import json
import re
from collections import Counter
from pathlib import Path
from zlib import compress

import pytest
import yaml
from helpers.each import each
from helpers.item_checks import COMPLETE, problems
from helpers.scripted import absent, scripted, supported, verdicts

import langchain_rageval
from langchain_rageval import ConfigError, Judge, JudgeOutputError, Sample
from langchain_rageval.judge.judge import voters_of
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.trust.examination import EXAMINATIONS, Probe, ReplyLog, recording_judge, reverse_item
from langchain_rageval.trust.items import expand_record, labelled_items, load_items, read_items

LANGUAGES = ("ru", "en")
PLACE = Path(langchain_rageval.__file__).parent / "trust" / "labelled_items"
README = (PLACE / "README.md").read_text(encoding="utf-8")


def items(step):
    return [item for language in LANGUAGES for item in labelled_items(language) if item.step == step]


@pytest.mark.parametrize("language", LANGUAGES)
def test_items_have_the_form_that_the_readme_describes(language):
    assert problems(labelled_items(language), language, complete=language in COMPLETE) == []


def test_the_readme_has_a_valid_example_for_each_step():
    world, *examples = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
    written = [item for records in examples for record in records for item in expand_record(record, world)]
    assert problems(written, "en", complete=False) == []
    assert {item.step for item in written} == EXAMINATIONS.keys() - {"measure_similarity"}


def test_a_record_expands_to_both_members_with_chunks_in_a_drawn_order():
    fields = {"pair": "p", "step": "verify_statements", "kind": "number", "question": "Q?", "chunks": ["one", "two"]}
    record = {
        **fields,
        "a": {"statements": [{"supported": "Dogs pay.", "by": "They pay"}, {"contradicted|absent": "Cats pay."}]},
        "b": {"statements": [{"unscored": "Dogs pay."}, {"absent": "Cats pay."}], "half": "plain"},
    }
    world = {"chunks": {"one": "No dogs.\n", "two": "They pay. They do."}, "padding": "Rain."}
    first, second = expand_record(record, world)
    assert (first.id, first.pair, first.half, second.id, second.half) == ("p-a", "p", "hard", "p-b", "plain")
    assert {*first.contexts} == {"No dogs.", "They pay. They do."}
    assert (first.contexts, first.padding) == (second.contexts, "Rain.")
    place = first.contexts.index("They pay. They do.") + 1
    labels = [(label.accepted, label.evidence) for label in first.labels]
    assert labels == [(("supported",), (f"{place}.1",)), (("contradicted", "absent"), ())]
    assert [label.accepted for label in second.labels] == [(), ("absent",)]


@each(
    ("change", "problem"),
    [
        ({"chunks": ["one"]}, "chunks are only for packaged items"),
        ({"gold": {"1": "useful", "3": "useful"}}, "gold names 3, which are not among 1, 2"),
        ({"gold": {"rest": "useful"}, "beauty": 3}, "beauty"),
        ({"statements": [{"supported": "A.", "by": "Nowhere"}]}, "'Nowhere' occurs in 0 sentences"),
        ({"kind": None}, "kind"),
    ],
)
def test_a_record_that_is_not_in_the_form_is_refused_with_its_place(change, problem):
    record = {"id": "i", "step": "grade_contexts", "kind": "list", "question": "Q?", "contexts": ["A.", "B."]}
    with pytest.raises(ConfigError, match=r"mine: record 2 is no labelled item: ") as raised:
        read_items([{**record, "gold": {"rest": "useful"}}, {**record, **change}], "mine")
    assert problem in str(raised.value)


@pytest.mark.parametrize("suffix", ["jsonl", "yaml"])
def test_own_items_are_read_from_json_lines_and_yaml(tmp_path, suffix):
    record = {"id": "i", "step": "regenerate_questions", "kind": "refusal", "answer": "Who knows?", "gold": "evasive"}
    file = tmp_path / f"own.{suffix}"
    file.write_text(json.dumps(record) + "\n\n" if suffix == "jsonl" else yaml.safe_dump([record]))
    assert load_items(file) == [*expand_record(record)]
    file.write_text("{")
    with pytest.raises(ConfigError, match="labelled items could not be read"):
        load_items(file)


@pytest.mark.parametrize("step", [step for step, examination in EXAMINATIONS.items() if examination.reverse])
def test_labels_follow_their_chunks_and_statements_into_reverse_order(step):
    for item in items(step):
        turned = reverse_item(item)
        assert turned != item
        assert reverse_item(turned) == item
        before, after = (
            [NumberedContexts.of(one.contexts).sentences.get(label.number) for label in one.labels]
            for one in (item, turned)
        )
        assert before == after
        if step in ("grade_contexts", "find_passages"):
            assert (item.contexts, item.labels) == (turned.contexts[::-1], turned.labels[::-1])
            assert len(item.contexts) == len(item.labels)


def test_padding_leaves_the_numbers_of_sentences_as_they_are():
    for step in (step for step, examination in EXAMINATIONS.items() if examination.padded):
        for item in items(step):
            before = NumberedContexts.of(item.contexts).sentences
            after = NumberedContexts.of(Probe(item, "padded").varied_item.contexts).sentences
            assert {number: after[number] for number in before} == before, item.id
            assert len(after) == len(before) + len(item.contexts), item.id


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


def test_the_readme_of_the_items_names_sources_and_licences():
    parts = {part for language in LANGUAGES for i in labelled_items(language) for part in i.source.split("; ")}
    sources = {part.split(":")[0] for part in parts}
    unnamed = [s for s in sources if not re.search(rf"^- {s}\b.*(MIT|Apache-2.0|CC BY-SA)", README, re.MULTILINE)]
    assert unnamed == []
    assert sum(len(compress(file.read_bytes())) for file in PLACE.iterdir()) < 700_000


def test_singles_that_were_written_for_this_project_have_the_same_labels_in_both_languages():
    russian, english = (
        {i.id: (i.kind, i.labels) for i in labelled_items(language) if i.source == "written for this project"}
        for language in LANGUAGES
    )
    both = russian.keys() & english.keys()
    assert len(both) > 100
    assert {name: russian[name] for name in both} == {name: english[name] for name in both}
    assert Counter(len(item.statements) == 23 for item in items("verify_statements"))[True] == 2


# recording_judge: same requests as the original judge, and a log of the replies


STATE = {"sample": Sample(question="q", contexts=["One. Two.", "Three."]), "answer_statements": ["one", "two"]}


@each(
    ("replies", "options", "repeated", "readable"),
    [
        ([verdicts(supported(1), absent(2))], {}, False, 1),
        (["no", verdicts(supported(1), absent(2))], {}, True, 1),
        ([verdicts(supported(1)), verdicts(absent(1))], {}, True, 2),
        ([verdicts(supported(1, "9.9"), absent(2)), verdicts(supported(1))], {}, True, 2),
        ([verdicts(supported(1)), verdicts(absent(1))], {"max_statements": 1}, False, 2),
        ([verdicts(supported(1), absent(2))] * 3, {"draws": 3}, False, 3),
        ([verdicts(supported(1), absent(2)), verdicts(absent(1), absent(2))], {"max_context_tokens": 6}, False, 2),
    ],
)
def test_repeated_requests_are_distinguished_from_partial_requests(replies, options, repeated, readable):
    log = ReplyLog()
    recorder = recording_judge(Judge(scripted(*replies), **options), log, cached=True)
    try:
        verify_statements(recorder, of="answer").invoke(STATE)
    except JudgeOutputError:
        log.repeated = True
    assert (log.repeated, log.rungs) == (repeated, {"prompt": readable})


def test_it_shares_the_capabilities_and_the_instrument_of_the_judge():
    judge = Judge(scripted(), draws=3)
    recorder = recording_judge(judge, ReplyLog(), cached=True)
    assert recorder._endpoint.capabilities is judge._endpoint.capabilities
    assert recorder.model is judge.model
    assert recorder.instrument == judge.instrument
    assert [voter.judge for voter in voters_of(recorder)] == [recorder] * 3


def test_recorders_of_one_judge_describe_its_model_once(monkeypatch):
    described = []
    monkeypatch.setattr("langchain_rageval.judge.judge.describe", lambda model: described.append(model) or {"m": 1})
    judge = Judge(scripted())
    recorders = [recording_judge(judge, ReplyLog(), cached=cached) for cached in (True, False, True)]
    assert {recorder._fingerprint_text for recorder in recorders} == {judge._fingerprint_text}
    assert len(described) == 1
