"""Every error of the package: message, attributes, and pickling."""

import copy
import pickle

import pytest
from helpers.each import each

from langchain_rageval import (
    BelowThreshold,
    BudgetExceeded,
    ConfigError,
    JudgeOutputError,
    OfflineJudge,
    RagevalError,
    Report,
    SampleError,
    Score,
    evaluate,
    faithfulness,
    load_embeddings,
    load_judge,
    load_samples,
    plan,
)
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import JournalError, ModelOutputError, message_of, record_step, step_of

SCORE = Score(metric="faithfulness", aspect="grounding", value=0.5)


@each("sent", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@each(
    "error",
    [
        SampleError("lacks contexts", "contexts"),
        ConfigError("no such option"),
        ConfigError("the first call failed", Failure(error="ConnectError", message="gone")),
        JudgeOutputError("the reply is empty", "verify_statements", "{"),
        ModelOutputError("a zero vector"),
        BelowThreshold("too low", SCORE, 0.8),
        BudgetExceeded("spent"),
        JournalError("locked"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_copies_and_pickles_of_an_error_keep_message_and_attributes(error, sent):
    record_step(error, "extract_statements")
    twin = sent(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


@each(
    "wrong",
    [
        load_judge,
        load_embeddings,
        load_samples,
        faithfulness,
        Report.load,
        lambda address: load_judge("offline", mode=address),
        lambda address: evaluate([], faithfulness(OfflineJudge()), on_failure=address),
        lambda address: plan(address, faithfulness(OfflineJudge())),
    ],
)
def test_no_message_shows_the_secrets_in_an_address(wrong):
    with pytest.raises(RagevalError, match=r"https:/+host\.example/v1\?api_key=\*\*\*") as caught:
        wrong("https://me:password-7@host.example/v1?api_key=password-7")
    assert "password-7" not in repr(caught.value)


def test_an_output_error_names_its_step():
    error = JudgeOutputError("the reply is empty", "verify_statements", "{")
    assert str(error) == "verify_statements: the reply is empty"
    assert step_of(error) == "verify_statements"


class Unreadable(Exception):
    """An error of a client whose message cannot be read."""

    def __str__(self):
        return None


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("no key"), "no key"), (ValueError(), "ValueError"), (Unreadable("no key"), "Unreadable")],
)
def test_an_error_always_has_a_message(error, message):
    assert message_of(error) == message
