"""Conversation metrics over 60 labelled dialogues: parser, arithmetic and offline baseline."""

import json
from collections import Counter

import pytest
from helpers.each import each
from helpers.labelled import dialogues, labelled_judge, whole
from helpers.scripted import scripted

from langchain_rageval import Judge, OfflineJudge, Sample, conversation_metrics, evaluate
from langchain_rageval.steps.questions import rewrite_question
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.words import numbers_of

every_dialogue = each("dialogue", dialogues(), ids=[dialogue["id"] for dialogue in dialogues()])


def fenced(answer):
    return f"Let me see.\n```json\n{json.dumps(answer, ensure_ascii=False, indent=1)}\n```"


def values(found):
    return {name: None if score.value is None else round(score.value, 4) for name, score in found.items()}


def test_there_are_thirty_dialogues_in_each_language_and_half_of_them_are_held_out():
    counts = Counter((dialogue["language"], dialogue["split"]) for dialogue in dialogues())
    assert counts == {(language, split): 15 for language in ("ru", "en") for split in ("open", "held_out")}
    assert len({dialogue["domain"] for dialogue in dialogues()}) == 7
    assert len({dialogue["id"] for dialogue in dialogues()}) == 60


@every_dialogue
def test_labels_name_turns_that_exist_and_questions_bring_no_new_numbers(dialogue):
    turns = dict(enumerate(dialogue["turns"], 1))
    assert detect_language(" ".join(turn["text"] for turn in turns.values())) == dialogue["language"]
    assert [turn["role"] for turn in turns.values()] == ["user", "assistant"] * (len(turns) // 2)
    for item in dialogue["standalone"]:
        assert turns[item["turn"]]["role"] == "user"
        before = " ".join(turns[number]["text"] for number in range(1, item["turn"] + 1))
        assert numbers_of(item["question"]) <= numbers_of(before)
    assert {turns[item["turn"]]["role"] for item in dialogue["wrong"]} <= {"assistant"}


@pytest.mark.gate
@every_dialogue
@each("written", [json.dumps, fenced])
def test_a_judge_that_answers_by_the_labels_gives_the_labelled_scores(dialogue, written):
    found = conversation_metrics(labelled_judge(dialogue, written)).invoke(whole(dialogue))
    assert values(found) == dialogue["scores"]
    pairs = [{*pair} for pair in dialogue["contradictions"]]
    turn_of = {number: str(fact["turn"]) for number, fact in enumerate(dialogue["statements"], 1)}
    contradicted = {
        finding.number: {*finding.cites}
        for finding in found["conversation_consistency"].findings
        if finding.verdict == "contradicted"
    }
    assert contradicted == {
        number: {turn_of[other] for pair in pairs if number in pair for other in pair} for number in set().union(*pairs)
    }
    needs = [(f.text, f.verdict, f.cites) for f in found["conversation_resolution"].findings]
    assert needs == [
        (need["text"], need["verdict"], [str(turn) for turn in (need["turn"], *need["turns"])])
        for need in dialogue["needs"]
    ]


@pytest.mark.gate
@every_dialogue
@each("options", [{"max_statements": 1}, {"max_context_tokens": 60}])
def test_slices_and_windows_change_no_labelled_score(dialogue, options):
    judge = Judge(labelled_judge(dialogue), **options)
    found = conversation_metrics(judge).invoke(whole(dialogue))
    assert values(found) == dialogue["scores"]


@every_dialogue
def test_the_labelled_questions_are_accepted_as_rewrites(dialogue):
    for item in dialogue["standalone"]:
        sample = asked_at(dialogue, item["turn"])
        found = rewritten(sample, item["question"])
        assert (found.verdict, found.text) == ("rewritten", item["question"])


@every_dialogue
@each("added", [" 1307", " Zanzibar"])
def test_a_rewrite_with_a_name_or_a_number_from_nowhere_is_refused(dialogue, added):
    for item in dialogue["standalone"]:
        sample = asked_at(dialogue, item["turn"])
        found = rewritten(sample, item["question"].rstrip("?.") + added + "?")
        assert (found.verdict, found.text) == ("refused", sample.question)
        assert added.strip() in found.reason


def asked_at(dialogue, turn):
    """Return the sample of the question in a turn."""
    history, question = dialogue["turns"][: turn - 1], dialogue["turns"][turn - 1]["text"]
    return Sample(question=question, answer="", history=history)


def rewritten(sample, rewrite):
    """Return the finding about a rewrite of the question of a sample."""
    judge = scripted(json.dumps({"reason": "labelled", "question": rewrite}, ensure_ascii=False))
    (finding,) = rewrite_question(judge).invoke({"sample": sample})["question_findings"]
    return finding


BASELINE = {  # dialogues with a labelled score below 1, those of them found, and false alarms, by split
    "conversation_consistency": {"open": (7, 0, 0), "held_out": (6, 1, 2)},
    "conversation_retention": {"open": (10, 0, 1), "held_out": (10, 0, 0)},
    "conversation_resolution": {"open": (10, 2, 0), "held_out": (10, 0, 1)},
}


def test_the_offline_baseline_finds_as_few_as_its_table_says():
    counted = {name: {"open": [0, 0, 0], "held_out": [0, 0, 0]} for name in BASELINE}
    for dialogue in dialogues():
        for name, score in conversation_metrics(OfflineJudge()).invoke(whole(dialogue)).items():
            is_low, seems_low = (value is not None and value < 1 for value in (dialogue["scores"][name], score.value))
            counts = counted[name][dialogue["split"]]
            counts[0] += is_low
            counts[1] += is_low and seems_low
            counts[2] += seems_low and not is_low
    assert {name: {split: tuple(c) for split, c in splits.items()} for name, splits in counted.items()} == BASELINE


def test_the_offline_baseline_scores_every_dialogue_and_each_time_alike():
    samples = [whole(dialogue) for dialogue in dialogues()]
    report = evaluate(samples, [conversation_metrics(OfflineJudge())], max_concurrency=1)
    again = evaluate(samples, [conversation_metrics(OfflineJudge())], max_concurrency=1)
    assert report.failures() == []
    first, second = (
        [{name: score.value for name, score in row.scores.items()} for row in run.rows] for run in (report, again)
    )
    assert first == second
