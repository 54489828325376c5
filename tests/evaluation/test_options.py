"""Options of a run: one declaration, one set of default values, one check of names and values."""

import inspect
import re
from typing import get_type_hints

import pytest
from helpers.each import each, error_of
from helpers.samples import SAMPLE
from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    OfflineJudge,
    RagEvalCallback,
    RetryPolicy,
    TestsetGenerator,
    astream_evaluate,
    evaluate,
    faithfulness,
    qualify_judge,
)
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, STREAM_DEFAULTS, EvaluateOptions, StreamOptions
from langchain_rageval.run.run import CALL_DEFAULTS, RUN_DEFAULTS, CallOptions, RunOptions, build_run

DECLARED = [
    (CallOptions, CALL_DEFAULTS),
    (RunOptions, RUN_DEFAULTS),
    (StreamOptions, STREAM_DEFAULTS),
    (EvaluateOptions, EVALUATE_DEFAULTS),
]
NAMES = "max_concurrency, timeout, retry, price, journal, budget, progress, on_failure, callbacks, strict, fields"


def test_each_option_is_described_once():
    docs = [inspect.getdoc(declared).partition("Attributes:")[2] for declared, _ in DECLARED]
    assert re.findall(r"^    (\w+): ", "\n".join(docs), re.MULTILINE) == list(get_type_hints(EvaluateOptions))


@each(("declared", "defaults"), DECLARED)
def test_each_option_has_a_default_value(declared, defaults):
    assert list(defaults) == list(get_type_hints(declared))


@each(
    ("function", "defaults"),
    [(evaluate, EVALUATE_DEFAULTS), (qualify_judge, CALL_DEFAULTS), (TestsetGenerator, RUN_DEFAULTS),
     (RagEvalCallback, {"max_concurrency": 4, "timeout": 60.0})],
)  # fmt: skip
def test_the_docstring_lists_each_option_with_its_default(function, defaults):
    listed = dict(re.findall(r"`(\w+)=([^`]+)`", inspect.getdoc(function)))
    assert listed == {name: repr(value).replace("'", '"') for name, value in defaults.items()}


EVALUATED = f"samples, metrics, {NAMES}, out, until, audit, batch, canaries"
STREAMED = f"samples, metrics, {NAMES}"


@each(
    ("function", "given", "option", "more"),
    [
        (evaluate, (None, None), "max_concurency", f"; did you mean 'max_concurrency'? Its options: {EVALUATED}"),
        (astream_evaluate, (None, None), "zzz", f". Its options: {STREAMED}"),
        (qualify_judge, (OfflineJudge(),), "timout", "; did you mean 'timeout'"),
        (RagEvalCallback, (faithfulness(OfflineJudge()),), "sample_rte", "; did you mean 'sample_rate'"),
        (TestsetGenerator, (OfflineJudge(), None, HashingEmbeddings()), "timout", "; did you mean 'timeout'"),
    ],
)
def test_a_misspelled_option_raises_before_anything_is_read(function, given, option, more):
    with pytest.raises(TypeError) as caught:
        function(*given, **{option: 5})
    message = f"{function.__name__}() got an unexpected option {option!r}{more}"
    assert str(caught.value).startswith(message)
    assert "Its options" not in more or str(caught.value) == message


@each(
    ("options", "message"),
    [
        ({"callbacks": BaseCallbackHandler()}, "callbacks must be a list of handlers, got BaseCallbackHandler"),
        ({"until": 0.8}, "until must be Decided(...) or Precise(...), got float"),
        ({"audit": OfflineJudge()}, "audit must be Audit(judge, share=0.1), got OfflineJudge"),
        ({"batch": True}, "batch must be Batch(), got bool"),
        ({"canaries": "yes"}, "canaries must be True, False or None, got 'yes'"),
        ({"strict": 1}, "strict must be True or False, got 1"),
        ({"out": 5}, "out must be the path of a file, got int"),
    ],
)
def test_an_option_of_another_kind_is_refused(options, message):
    error = error_of(ConfigError, evaluate, [SAMPLE], faithfulness(OfflineJudge()), **{"progress": False, **options})
    assert str(error) == message


def test_a_run_has_the_default_values_of_missing_options():
    run = build_run({})
    assert (run.governor.limiter.limit, run.timeout, run.retry) == (16, 60.0, RetryPolicy())
