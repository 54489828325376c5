"""recording_judge: same requests as the original judge, and a log of the replies."""

from helpers.each import each
from helpers.scripted import absent, scripted, supported, verdicts

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.judge.judge import voters_of
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.trust.examination import ReplyLog, recording_judge

STATE = {"sample": Sample(question="q", contexts=["One. Two.", "Three."]), "answer_statements": ["one", "two"]}


def recorded(*replies, **options):
    log = ReplyLog()
    recorder = recording_judge(Judge(scripted(*replies), **options), log, cached=True)
    try:
        verify_statements(recorder, of="answer").invoke(STATE)
    except JudgeOutputError:
        log.repeated = True
    return log


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
    log = recorded(*replies, **options)
    assert log.repeated == repeated
    assert log.rungs == {"prompt": readable}


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
