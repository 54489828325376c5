"""Options of `evaluate`, `aevaluate` and `astream_evaluate`, including `Batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval.errors import check_number
from langchain_rageval.evaluation.audit import Audit
from langchain_rageval.evaluation.until import Until
from langchain_rageval.run.run import RUN_DEFAULTS, RunOptions


@dataclass(frozen=True)
class Batch:
    """Option of `evaluate`: send requests through the batch API of the judge's provider, at half the price.

    Each sample is scored until a reply is needed. The requests of all samples are then sent together as one batch, or
    as several batches if the provider limits the size. OpenAI and Anthropic answer a batch within 24 hours.

    Args:
        poll: seconds between two checks whether a batch has ended.

    Raises:
        ConfigError: if `poll` is not a positive number.
    """

    poll: float = 30.0

    def __post_init__(self) -> None:
        """Validate the seconds."""
        check_number("poll must be a number of seconds above 0", self.poll, lambda poll: poll > 0)


OnFailure = Literal["record", "raise"]


class StreamOptions(RunOptions, total=False):
    """Options of an evaluation that yields its rows.

    With a budget, a list or a file is read as a whole. Its samples are scored in random order, which is always the
    same, and reported in the input order. Samples of an iterator are scored in the order of the iterator. A score that
    does not fit the budget is left out, and so are all later scores. For a list or a file, the scores in the journal
    are still reported. For an iterator, no more samples are read.

    Attributes:
        on_failure: "record", the default, stores a failure in its score. "raise" raises the first failure.
        callbacks: LangChain callback handlers, passed to every metric.
        strict: False, the default, records a failure for a sample that lacks a field, if a metric reads the field and
            other samples have it. True raises SampleError for the first such sample, before any call if the samples are
            in a list or a file.
        fields: fields of `Sample` mapped to the names or dotted paths of their values in the samples, as in
            `{"question": "q", "contexts": "retrieval.docs"}`; None, the default, reads the names that `Sample.parse`
            knows, such as `query` and `user_input` for the question.
    """

    on_failure: OnFailure
    callbacks: list[BaseCallbackHandler] | None
    strict: bool
    fields: Mapping[str, str] | None


class EvaluateOptions(StreamOptions, total=False):
    """Options of an evaluation that returns a report.

    Attributes:
        out: Path of a file for the rows; None, the default, keeps them in memory. Each row is written when it is
            finished, to `<out>.part` until the run ends. The report reads the rows from the file, so memory does not
            grow with the number of samples.
        until: `Decided` or `Precise`, a rule that ends the run when the scored samples suffice; None, the default,
            scores all samples. All samples are read before the first call.
        audit: `Audit` with a strong judge that scores a random part of the samples; None, the default, for no audit.
            All samples are read before the first call.
        batch: `Batch()` sends the requests through the batch API of the judge's provider, OpenAI or Anthropic, at half
            the price. None, the default, calls the models at once. With a journal, the same call continues the batches
            of a run that was killed.
        canaries: True has each judge verify exactly 8 plain statements with known verdicts before the run. A judge that
            errs on one or two of them verifies 16 more. If a judge errs on at least three of the 8, or four of all 24,
            `Report.check` fails. None, the default, does this only with `until=Decided(...)`. `OfflineJudge` is never
            asked.
    """

    out: str | Path | None
    until: Until | None
    audit: Audit | None
    batch: Batch | None
    canaries: bool | None


STREAM_DEFAULTS: StreamOptions = {
    **RUN_DEFAULTS,
    "progress": False,
    "on_failure": "record",
    "callbacks": None,
    "strict": False,
    "fields": None,
}
EVALUATE_DEFAULTS: EvaluateOptions = {
    **STREAM_DEFAULTS,
    "progress": True,
    "out": None,
    "until": None,
    "audit": None,
    "batch": None,
    "canaries": None,
}
