"""Conversation metrics over 60 labelled dialogues: parser, arithmetic and offline baseline."""

import json
from collections import Counter

import pytest
from helpers.dialogues import dialogues, labelled_judge, whole

from langchain_rageval import Judge, OfflineJudge, conversation_metrics, evaluate
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.stemming import numbers_of

every_dialogue = pytest.mark.parametrize("dialogue", dialogues(), ids=[dialogue["id"] for dialogue in dialogues()])


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


@every_dialogue
@pytest.mark.parametrize("written", [json.dumps, fenced])
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


@every_dialogue
@pytest.mark.parametrize("options", [{"max_statements": 1}, {"max_context_tokens": 60}])
def test_slices_and_windows_change_no_labelled_score(dialogue, options):
    judge = Judge(labelled_judge(dialogue), **options)
    found = conversation_metrics(judge).invoke(whole(dialogue))
    assert values(found) == dialogue["scores"]


def test_the_offline_baseline_scores_every_dialogue_and_each_time_alike():
    samples = [whole(dialogue) for dialogue in dialogues()]
    report = evaluate(samples, [conversation_metrics(OfflineJudge())], max_concurrency=1)
    again = evaluate(samples, [conversation_metrics(OfflineJudge())], max_concurrency=1)
    assert report.failures() == []
    first, second = (
        [{name: score.value for name, score in row.scores.items()} for row in run.rows] for run in (report, again)
    )
    assert first == second
