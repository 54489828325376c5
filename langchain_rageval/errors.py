"""Every error that this package raises of its own.

RagevalError
├── SampleError         a sample lacks a field, or holds something else than the field takes
├── ConfigError         an option, a name or a file that cannot be used; also a ValueError
├── JudgeOutputError    the judge's replies could not be read after all attempts
├── ModelOutputError    embeddings or a cross-encoder gave numbers that mean nothing
├── BelowThreshold      a score did not reach the asked threshold
├── BudgetExceeded      the calls or tokens that were granted are spent
└── JournalError        the journal cannot be read or written

A user's mistake raises before any model is called. A judge's mistake stays in its own sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

    from langchain_rageval.schema import Score


class RagevalError(Exception):
    """Root of the errors of langchain-rageval."""


class SampleError(RagevalError):
    """A sample lacks a field that is needed, or holds something that the field does not take.

    Args:
        message: what was expected, what came, what to do.
        field: the field's name in `Sample`, if one field is at fault.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(RagevalError, ValueError):
    """An option, a name or a file that cannot be used; the message names the mend."""


class JudgeOutputError(RagevalError):
    """The judge's replies to one step could not be read after all attempts.

    Args:
        message: what was wrong with the last reply.
        step: the step's name, such as `verify_statements`.
        raw_output: the last reply as it came.
    """

    def __init__(self, message: str, step: str, raw_output: str) -> None:
        super().__init__(message, step, raw_output)  # all three: an error that is pickled is made again from these
        self.step = step
        self.raw_output = raw_output

    def __str__(self) -> str:
        """The step and what was wrong."""
        return f"{self.step}: {self.args[0]}"


class ModelOutputError(RagevalError):
    """Embeddings or a cross-encoder gave numbers that mean nothing: a zero vector, NaN, too few of them."""


class BelowThreshold(RagevalError):
    """A score is worse than the threshold, or there is no value to compare with it.

    Args:
        message: which metric, which value, which threshold.
        score: the score that was compared; None when a whole report was checked.
        threshold: the number that was to be reached.
    """

    def __init__(self, message: str, score: Score | None = None, threshold: float | None = None) -> None:
        super().__init__(message)
        self.score = score
        self.threshold = threshold


class BudgetExceeded(RagevalError):
    """The calls or tokens that were granted are spent."""


class JournalError(RagevalError):
    """The journal cannot be read or written."""


def unusable(what: str, error: ValidationError) -> ConfigError:
    """The first problem that pydantic found in how something was to be built."""
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    return ConfigError(f"{what}: {where}: {problem['msg']}, got {problem['input']!r}")


def blame(error: Exception, step: str) -> None:
    """Note on an exception of the model's client in which step it came up; its type stays the user's to catch."""
    if not hasattr(error, "rageval_step"):
        error.rageval_step = step  # type: ignore[attr-defined]


def step_at_fault(error: BaseException) -> str | None:
    """The step in which an error came up, if it came up in one."""
    step = getattr(error, "step", None) if isinstance(error, JudgeOutputError) else None
    return step or getattr(error, "rageval_step", None)
