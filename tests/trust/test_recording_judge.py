"""A witness asks as its judge does, and notes how it was answered."""

import pytest
from helpers.scripted import Scripted, absent, scripted, supported, verdicts

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.judge.voting import voters_of
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.trust.recording_judge import Notes, RecordingJudge

STATE = {
    "sample": Sample(question="q", contexts=["One. Two.", "Three."]),
    "answer_statements": ["one", "two"],
}


def noted(*replies, **options):
    notes = Notes()
    witness = RecordingJudge.of_judge(Judge(scripted(*replies), **options), notes, cached=True)
    try:
        verify_statements(witness, of="answer").invoke(STATE)
    except JudgeOutputError:
        notes.again = True
    return notes


@pytest.mark.parametrize(
    ("replies", "options", "again", "readable"),
    [
        ([verdicts(supported(1), absent(2))], {}, False, 1),
        (["no", verdicts(supported(1), absent(2))], {}, True, 1),
        ([verdicts(supported(1)), verdicts(absent(2))], {}, True, 2),
        ([verdicts(supported(1, "9.9"), absent(2)), verdicts(supported(1))], {}, True, 2),
        ([verdicts(supported(1)), verdicts(absent(2))], {"max_statements": 1}, False, 2),
        ([verdicts(supported(1), absent(2))] * 3, {"draws": 3}, False, 3),
        ([verdicts(supported(1), absent(2)), verdicts(absent(1), absent(2))], {"max_context_tokens": 6}, False, 2),
    ],
)
def test_asking_again_is_told_from_asking_in_parts(replies, options, again, readable):
    notes = noted(*replies, **options)
    assert notes.again == again
    assert notes.rungs == {"prompt": readable}


def test_it_shares_what_the_judge_knows_and_is_the_same_instrument():
    judge = Judge(scripted(), draws=3)
    witness = RecordingJudge.of_judge(judge, Notes(), cached=True)
    assert witness._endpoint.capabilities is judge._endpoint.capabilities
    assert witness.model is judge.model
    assert witness.instrument == judge.instrument
    assert [voter.judge for voter in voters_of(witness)] == [witness] * 3


def test_past_the_cache_the_model_is_a_copy_without_it():
    judge = Judge(Scripted(cache=True))
    witness = RecordingJudge.of_judge(judge, Notes(), cached=False)
    assert witness.model.cache is False
    assert judge.model.cache is True
