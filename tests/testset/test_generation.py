"""A run of the generator: what it keeps of rejected candidates, what it costs, and when it ends."""

import asyncio
import logging
import random
from math import cos, radians, sin

import numpy as np
import pytest
from helpers.each import each
from helpers.writers import Writer, documents, generator, passage, rejecting

from langchain_rageval import ConfigError, evaluate, faithfulness, plan
from langchain_rageval.testset import Candidate, Testset
from langchain_rageval.testset.accepted_questions import AcceptedQuestions

DEFAULT = {"simple": 0.5, "reasoning": 0.25, "conditional": 0.15, "multi_context": 0.1}


# Rejected candidates


def test_rejected_candidates_are_kept_with_question_step_and_feedback():
    no = {"feedback": "НЕПОНЯТНО, О КАКОМ ПОЛИСЕ РЕЧЬ", "standalone": False, "answerable": True}
    writer = Writer(QuestionReview=lambda *_: no)
    testset = generator(writer, {"simple": 1}, max_rewrites=1).generate(documents(1), size=1)
    first = testset.rejected[0]
    assert first.rejected == "question rejected"
    assert [(trial.kind, trial.accepted, trial.feedback) for trial in first.history] == [
        ("passage", True, "ясно"),
        ("seed", False, no["feedback"]),
        ("rewrite", False, no["feedback"]),
    ]
    assert first.history[2].question == f"{first.history[1].question.rstrip('?')}, точнее?"
    assert len(testset.rejected) == testset.yields["attempts"] == sum(testset.yields["rejected"].values())
    assert no["feedback"] in testset._repr_html_()


@each(
    ("kind", "feedback"),
    [
        ("passage", "бедный отрывок"),
        ("question", "непонятно, о каком полисе речь"),
        ("evolution", "не глубже прежнего"),
        ("needed", "ответа нет"),
    ],
)
def test_the_words_of_every_filter_are_in_the_rejected_candidates_and_in_the_file(kind, feedback, tmp_path):
    testset = generator(rejecting(**{kind: 1}), {"reasoning": 1}).generate(documents(3), size=1)
    assert {candidate.objection for candidate in testset.rejected if candidate.objection} == {feedback}
    testset.to_jsonl(tmp_path / "t.jsonl")
    assert Testset.load(tmp_path / "t.jsonl").rejected == testset.rejected


def test_a_duplicate_names_the_question_that_it_repeats():
    writer = Writer(Question=lambda inputs, _: {"question": "Что это?"})
    testset = generator(writer, {"simple": 1}).generate(documents(2), size=2)
    trials = [candidate.history[-1] for candidate in testset.rejected if candidate.rejected == "near-duplicate"]
    assert {(trial.kind, trial.feedback) for trial in trials} == {("dedupe", "Что это?")}


@each("threshold", [0.5, 0.95, None])
def test_a_question_repeats_the_first_accepted_one_that_is_equal_or_near_but_not_of_its_tree(threshold):
    chance = random.Random(1)
    found, accepted = AcceptedQuestions(threshold), []
    candidates = []
    for _ in range(400):
        text, turns, tree = chance.choice("абвгд") * chance.choice((1, 9)), chance.choice("xyz"), chance.choice("  tu")
        asked = {"chat_history": [{"role": "user", "text": turns}], "standalone": f"{text} {chance.randrange(40)}"}
        fields = {**(asked if chance.random() < 0.5 else {}), "tree_id": tree.strip()}
        candidates.append(Candidate(passages=[passage(0)], question=f"{text}{chance.randrange(60)}", **fields))
    angles = [chance.choice([None, *range(0, 360, 7)]) for _ in candidates]
    units = [None if a is None else [cos(radians(a)), sin(radians(a)), 0.0] for a in angles]
    units[:2] = [[1.0, 0.0, 0.0], [0.5, 0.0, 0.75**0.5]]
    expected = []
    for own, unit in zip(candidates, units, strict=True):
        for other, its in accepted:
            equal = other.standalone_question.casefold() == own.standalone_question.casefold()
            as_asked = (other.question.casefold(), other.chat_history) == (own.question.casefold(), own.chat_history)
            is_near = threshold is not None and unit and its and np.dot(unit, its) >= threshold - 1e-9
            if as_asked if own.tree_id and own.tree_id == other.tree_id else equal or is_near:
                expected.append(other.question)
                break
        else:
            expected.append("")
            accepted.append((own, unit))
    assert found.add_new(candidates, units) == expected
    assert len(found) == len(accepted) > 10
    for place, (own, _) in enumerate(accepted):
        assert (found.first(own, place), found.first(own, place + 1)) == ("", own.question)


def test_the_log_names_each_outcome_at_the_level_debug(caplog):
    caplog.set_level(logging.DEBUG, "langchain_rageval")
    writer = rejecting(evolution=1)
    testset = generator(writer, {"simple": 1, "reasoning": 1}, max_concurrency=1).generate(documents(4), size=2, seed=1)
    messages = [message for message in caplog.messages if message.startswith("row ")]
    assert len(messages) == testset.yields["attempts"]
    assert f"attempt 1: not evolved: {testset.rejected[0].question} (не глубже прежнего)" in messages[0]
    assert any(message.endswith(f"accepted: {testset[0].question}") for message in messages)


def test_the_progress_names_rejections_and_the_last_feedback(monkeypatch, capsys):
    monkeypatch.setattr("langchain_rageval.run.progress._SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("langchain_rageval.run.progress._supports_live_line", lambda: False)
    for writer, size in ((rejecting(needed=1), 1), (Writer(), 2)):
        testset = generator(writer, {"simple": 1}, progress=True).generate(documents(2), size=size)
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith(f"rageval: {len(testset)}/{size} rows, {writer.total} calls, 0 tokens, ")
        reasons = ", ".join(f"{number} {reason}" for reason, number in testset.yields["rejected"].items())
        assert f"{len(testset.rejected)} rejected{': ' if reasons else ''}{reasons}" in line


@pytest.mark.parametrize("live", [True, False])
def test_a_feedback_of_markup_and_control_characters_does_not_disturb_the_progress_and_the_log(
    live, monkeypatch, capsys, caplog
):
    caplog.set_level(logging.DEBUG, "langchain_rageval")
    monkeypatch.setattr("langchain_rageval.run.progress._SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("langchain_rageval.run.progress._supports_live_line", lambda: live)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then draws as in a terminal
    monkeypatch.setenv("TERM", "xterm")
    no = {"feedback": "[/b] [red]{нет}\n\x1b[2J\u202eточки", "standalone": False, "answerable": True}
    writer = Writer(QuestionReview=lambda *_: no)
    generator(writer, {"simple": 1}, progress=True, max_rewrites=0).generate(documents(4), size=1)
    shown = capsys.readouterr().err
    printed = "[/b] [red]{нет} \ufffd[2Jточки"
    assert live or f"last: {printed}" in shown
    rejections = [message for message in caplog.messages if "question rejected" in message]
    assert {message.endswith(f"{printed})") for message in rejections} == {True}


# Usage


async def test_usage_counts_every_call_by_step():
    writer = rejecting(question=0.3)
    testset = await asyncio.to_thread(generator(writer, DEFAULT).generate, documents(40), size=10)
    assert (testset.usage.calls, testset.calls_per_row) == (writer.total, writer.total / 10)
    calls = {step: usage.calls for step, usage in testset.usage_by_step.items()}
    steps = ["grade_passage", "extract_keyphrases", "write_question", "review_question"]
    evolutions = ["reasoning", "conditional", "multi_context"]
    assert list(calls) == [*steps, *evolutions, "find_passages", "write_answer", "check_answer", "embed"]
    assert calls["grade_passage"] == writer.calls["PassageGrades"]
    assert testset.usage_by_step["embed"].embedded == testset.usage.embedded
    other = await generator(rejecting(question=0.3), DEFAULT).agenerate(documents(40), size=10)
    assert {step: usage.calls for step, usage in other.usage_by_step.items()} == calls


def test_usage_is_kept_in_the_file_and_shown(tmp_path):
    testset = generator(Writer(), {"simple": 1}).generate(documents(4), size=2)
    testset.to_jsonl(tmp_path / "t.jsonl")
    loaded = Testset.load(tmp_path / "t.jsonl")
    assert loaded == testset
    assert loaded.usage == testset.usage.model_copy(update={"seconds": 0.0})
    assert repr(loaded).splitlines()[2] == "14 calls, unknown tokens; 7.0 calls per question"


def test_a_resumed_run_has_the_usage_and_the_file_of_an_undisturbed_one(tmp_path):
    for name in ("a", "b"):
        made = generator(rejecting(question=0.3), DEFAULT, journal=tmp_path / "run.db").generate(documents(40), size=10)
        made.to_jsonl(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# What rejections cost


ALL = ["passage", "question", "evolution", "needed"]


@pytest.mark.gate
@each(
    ("kinds", "distribution"),
    [*((kinds, share) for kinds in ALL for share in (DEFAULT, {"reasoning": 1})), (",".join(ALL), DEFAULT)],
)
def test_a_critic_that_rejects_a_fifth_costs_at_most_half_more_calls(kinds, distribution):
    writer = rejecting(**dict.fromkeys(kinds.split(","), 0.2))
    testset = generator(writer, distribution).generate(documents(300, 20), size=50, seed=7)
    assert len(testset) == 50
    assert writer.total <= 1.5 * sum(7 if row.evolution == "simple" else 11 for row in testset)


@each(
    "writer",
    [
        *(rejecting(**{kind: 1}) for kind in ("question", "needed", "evolution")),
        Writer(ReferenceAnswer=lambda *_: {"answerable": True, "answer": "The documents are silent."}),
    ],
)
def test_a_run_of_which_everything_is_rejected_ends_after_a_bounded_number_of_calls(writer):
    testset = generator(writer, {"reasoning": 1}).generate(documents(200), size=40)
    assert (len(testset), testset.yields["attempts"]) == (0, 40)
    reason = "none of the last 40 questions was accepted; see `rejected`"
    assert testset.notes == [f"0 of 40 rows were generated: {reason}."]


# Not samples


@each("run", [plan, evaluate])
def test_a_generator_in_place_of_samples_is_refused(run):
    writer = Writer()
    with pytest.raises(ConfigError, match="samples must be a collection, got the Runnable TestsetGenerator"):
        run(generator(writer, DEFAULT), faithfulness(writer.model))
    assert writer.total == 0
