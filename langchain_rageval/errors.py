"""Exceptions of the package.

RagevalError
├── SampleError         a sample lacks a required field, or a field has a value of the wrong type
├── ConfigError         an option, a name or a file is invalid; also a ValueError
├── JudgeOutputError    no valid reply of the judge within the allowed attempts
├── ModelOutputError    embeddings or a cross-encoder returned unusable numbers
├── BelowThreshold      a score is worse than the required threshold
├── BudgetExceeded      the allowed calls or tokens are spent
├── EmptyTestsetError   no question of a test set was accepted
├── JudgeUnavailable    a judge failed again and again without one valid reply, and is not called any more
└── JournalError        the journal cannot be read or written

Mistakes of the user, such as a wrong option, raise before any model is called. An error of the judge affects only one
sample.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydantic import ValidationError


class RagevalError(Exception):
    """Base class of all exceptions of langchain-rageval.

    In the message, passwords and keys in addresses are replaced by `***`.
    """

    def __init__(self, message: str = "", *details: Any) -> None:
        super().__init__(redact_addresses(str(message)), *details)


class SampleError(RagevalError):
    """A sample lacks a required field, or a field has a value of the wrong type.

    Args:
        message: what was expected, what was found, and how to fix it.
        field: name of the field in `Sample`, or None if the error concerns the sample as a whole.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(RagevalError, ValueError):
    """An option, a name or a file is invalid, or a model does not answer; the message says how to fix it.

    Args:
        message: what was expected, what was found, and how to fix it.
        failure: the `Failure` of a model that the message quotes; None if it quotes none.
    """

    def __init__(self, message: str, failure: Any = None) -> None:
        super().__init__(message)
        self.failure = failure


def check_number(expected: str, value: Any, fits: Callable[[float], bool] = isfinite, *, whole: bool = False) -> None:
    """Raise ConfigError unless the value of an option is a finite number that fulfils a condition.

    Args:
        expected: beginning of the message, such as "seed must be a whole number"; the message ends with the value.
        value: value of the option.
        fits: condition as a function of the value.
        whole: True to require a whole number.
    """
    kind = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kind) or not isfinite(value) or not fits(value):
        raise ConfigError(f"{expected}, got {value!r}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message with the nearest known name, such as "; did you mean 'ru'?"; "" if none is near."""
    from difflib import get_close_matches

    names = {one.casefold(): one for one in known}
    near = get_close_matches(str(name).casefold(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def list_choices(name: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the list of known names and the nearest known name."""
    return f"{', '.join(known) or 'none'}{did_you_mean(name, known)}"


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Raise ConfigError if the value of an option is not one of its choices."""
    if value not in choices:
        raise ConfigError(f"{option} must be one of {', '.join(choices)}, got {value!r}{did_you_mean(value, choices)}")


class JudgeOutputError(RagevalError):
    """The judge gave no valid reply to a step of a metric within the allowed attempts.

    Args:
        message: what is wrong with the last reply.
        step: name of the step, such as `verify_statements`.
        raw_output: text of the last reply, with secrets of the model removed.
        is_cut_off: True if the last reply was truncated at the model's length limit.
    """

    def __init__(self, message: str, step: str, raw_output: str, is_cut_off: bool = False) -> None:
        super().__init__(message, step, raw_output, is_cut_off)  # pickle rebuilds an exception from its args
        self.step = step
        self.raw_output = raw_output
        self.is_cut_off = is_cut_off

    def __str__(self) -> str:
        """Return the step and the problem."""
        return f"{self.step}: {self.args[0]}"


class ModelOutputError(RagevalError):
    """Embeddings or a cross-encoder returned unusable numbers: a zero vector, NaN, or too few values."""


_ANSWERS = ("html", "stack-trace", "outage", "same-answer", "no-citations")
MAY_BE_MEANT = ("missing-samples", "reworded-samples", "missing-metric", *_ANSWERS)
"""Codes of reasons that may be meant to be so in an application, and are then allowed by `allow=`."""


class BelowThreshold(RagevalError):
    """A score is worse than the required threshold, or has no value to compare.

    Args:
        message: the metric, its value and the threshold.
        score: the `Score` that was compared; None if a whole report was checked.
        threshold: the required value.
        gates: list of `Gate` (result of one requirement on a report), including the passed ones; [] if a score was
            compared.

    Attributes:
        codes: codes of the reasons why gates did not pass, such as "below-threshold".
    """

    def __init__(
        self, message: str, score: Any = None, threshold: float | None = None, gates: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.score = score
        self.threshold = threshold
        self.gates = list(gates)
        self.codes = list(dict.fromkeys(code for gate in gates if gate.verdict != "passed" for code in gate.codes))


class BudgetExceeded(RagevalError):
    """The calls, tokens or embedded texts that a budget allows are spent."""


class EmptyTestsetError(RagevalError):
    """No question of a test set was accepted.

    With `TestsetGenerator(allow_empty=True)`, the generator returns the empty test set instead of raising this error.

    Args:
        message: why no question was accepted.
        testset: the empty test set, with the rejected candidates.
    """

    def __init__(self, message: str, testset: Any = None) -> None:
        super().__init__(message, testset)
        self.testset = testset

    def __str__(self) -> str:
        """Return why the test set is empty."""
        return str(self.args[0])


class JudgeUnavailable(RagevalError):
    """A judge failed repeatedly without a single valid reply; the run does not call this judge any more."""


class JournalError(RagevalError):
    """The journal (the SQLite file of finished results, from which a run resumes) cannot be read or written."""


def config_error_of(subject: str, error: ValidationError) -> ConfigError:
    """Return a ConfigError: `subject`, such as "step 'rate'", followed by the first problem of a pydantic error."""
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    value = problem["input"]
    shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__  # others hold secrets
    return ConfigError(f"{subject}: {where}: {problem['msg']}, got {shown}")


def message_of(error: BaseException) -> str:
    """Return the message of an exception, or its class name if the message is empty or cannot be read.

    For a failed connection or a wrong address (404), the address is appended, because HTTP clients leave it out.
    """
    try:
        return (str(error) or type(error).__name__) + _address_of(error)
    except Exception:  # an error of a client whose `__str__` is wrong
        return type(error).__name__


def _address_of(error: BaseException) -> str:
    """Return the address that a client could not connect to or that does not exist, in brackets; "" for others."""
    name, text = type(error).__name__, str(error)
    if "Connect" not in name and "NotFound" not in name and "[SSL:" not in text:
        return ""
    try:
        url = error.request.url  # type: ignore[attr-defined]
        address = f"{url.scheme}://{url.host}{f':{url.port}' if url.port else ''}{url.path}"
        return "" if address in text else f" ({address})"
    except (AttributeError, RuntimeError):  # httpx raises RuntimeError if there is no request
        return ""


_USERINFO = re.compile(r"(//|\w\w:/)[^/@\s]*@")  # also in an address that was read as a path, as in https:/host
_QUERY_KEY = re.compile(
    r"""([?&;][\w.-]*(?:key|secret|passw\w*|pwd|credentials?|token|sig|signature|auth)=)[^&\s'"]+""", re.IGNORECASE
)
_PATH_KEY = re.compile(  # a segment of an address that looks random
    r"(?<=[^/:]/)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?=[/?#\s'\"]|$)"
)
_KEY = re.compile(
    r"\b(?:sk|hf|ghp|glpat|xox[abp])[-_][\w-]{16,}|(?<=\bBearer )[\w.~+/=-]{6,}|(?<=\bBasic )[\w+/=-]{6,}"
)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic) [\w.~+/=-]{6,}", re.IGNORECASE)  # also a token that the client fetched
ADDRESS = re.compile(r"([A-Za-z][\w+.-]{0,30}://[^\s'\"<>]+)")
"""Address in a text, such as https://host/path; one group, for `re.split`.

The limit of the scheme keeps the search linear in texts without spaces.
"""


def mask_keys(text: str, mask: Callable[[re.Match[str]], str]) -> str:
    """Return a text without API keys, and without user names and passwords in addresses.

    `mask` takes the match of a path segment that looks random, and returns the replacement. Other keys become `***`.
    """
    text = _KEY.sub("***", _QUERY_KEY.sub(r"\1***", _USERINFO.sub(r"\1", text)))
    return _PATH_KEY.sub(mask, text) if "://" in text else text


def without_keys(text: str) -> str:
    """Return a text without well-known forms of API keys, and without user names, passwords and keys in addresses."""
    return mask_keys(text, lambda _: "***")


def redact_addresses(text: str) -> str:
    """Return a text without API keys, and without secrets in addresses and in values of Authorization."""
    parts = ADDRESS.split(text)  # a path of a file beside an address is no address
    return _AUTHORIZATION.sub(r"\1 ***", "".join(map(without_keys, parts)))


def record_step(error: Exception, step: str) -> None:
    """Attach to an exception the name of the step in which it occurred, such as "verify_statements".

    A step is a part of a metric or test, usually one question to a judge. An exception that has a step is unchanged.
    """
    if not hasattr(error, "rageval_step"):
        error.rageval_step = step  # type: ignore[attr-defined]


def step_of(error: BaseException) -> str | None:
    """Return the name of the step in which an exception occurred, such as "verify_statements".

    A step is a part of a metric or test, usually one question to a judge. The result is None if no step is recorded.
    """
    step = getattr(error, "step", None) if isinstance(error, JudgeOutputError) else None
    return step or getattr(error, "rageval_step", None)
