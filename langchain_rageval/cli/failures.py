"""Messages about scores that failed, with hints for common causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_rageval.cli.messages import write_message
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Failure
    from langchain_rageval.report.report import Report

_HINTS = {
    "Connect": "is the server running, and is --base-url right?",
    "Timeout": "the server may be overloaded: increase --timeout or reduce --max-concurrency",
    "Auth": "is the key in the environment right?",
    "Permission": "does this key have access to the model?",
    "Forbidden": "does this key have access to the model?",
    "NotFound": "are the model's name and --base-url right?",
}
"""Hints by part of the exception's name."""


def check_not_all_failed(report: Report) -> None:
    """Check that not all scores failed, and that at least one score with a model call succeeded, if there were calls.

    Raises:
        ConfigError: if all of them failed, for example because the server is unreachable or the key is wrong.
    """
    scores = [score for row in report.rows for score in row.scores.values()]
    failures = [score.failure for score in scores if score.failure]
    called = [score for score in scores if score.usage.calls]
    if failures and all(score.failure for score in called or scores):
        raise ConfigError(f"every score failed (samples: {len(report)}); first failure: {_describe(failures[0])}")


def warn_about_failures(report: Report) -> None:
    """Write the number of failed scores and the first failure to stderr, if there are any."""
    failed = report.failures()
    failures = [score.failure for _, score in failed if score.failure]
    if failures:
        first = _describe(failures[0])
        incomplete = len({row.index for row, score in failed if score.failure and score.failure.step == "sample"})
        count = f"{len(failures)} ({incomplete} samples lack a field)" if incomplete else str(len(failures))
        write_message(f"failed scores: {count}, excluded from the means; first failure: {first}")
    of_audit = [score.failure for row in report.rows for score in row.audit.values() if score.failure]
    if of_audit:
        count = str(len(of_audit))
        write_message(f"failed scores of the audit: {count}; first failure: {_describe(of_audit[0])}")


def _describe(failure: Failure) -> str:
    hint = next((hint for part, hint in _HINTS.items() if part in failure.error), None)
    return f"{failure.error}: {failure.message}" + (f" ({hint})" if hint else "")
