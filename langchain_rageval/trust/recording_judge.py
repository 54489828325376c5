"""RecordingJudge: a judge that records how its model replied to one probe (test request of a qualification)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_rageval.judge.endpoint import Endpoint, RequestMode
from langchain_rageval.judge.judge import Judge
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.requests import Call


@dataclass
class ReplyLog:
    """Record of the replies to one probe (test request of a qualification).

    Attributes:
        rungs: number of valid replies by the way structured output was requested, such as "json_schema" or "prompt".
        repeated: True if a request had to be repeated because a reply was invalid, rejected or incomplete.
    """

    rungs: Counter[str] = field(default_factory=Counter)
    repeated: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class RecordingJudge(Judge):
    """Copy of a judge that also records its replies in a `ReplyLog`."""

    log: ReplyLog = field(default_factory=ReplyLog, kw_only=True)

    @classmethod
    def of_judge(cls, judge: Judge, log: ReplyLog, *, cached: bool) -> RecordingJudge:
        """Build a recording copy of a judge, with the same knowledge of the endpoint's capabilities.

        Args:
            judge: the judge to copy.
            log: receives the records.
            cached: False bypasses the model's own cache.
        """
        options = {option.name: getattr(judge, option.name) for option in fields(Judge) if option.init}
        if not cached and isinstance(judge.model, BaseChatModel):
            options["model"] = judge.model.model_copy(update={"cache": False})
        recorder = cls(**options, log=log)
        object.__setattr__(recorder, "_endpoint", _RecordingEndpoint(recorder, judge._endpoint, log))
        return recorder


class _RecordingEndpoint(Endpoint):
    """Endpoint of a recording judge, with the capabilities that are already known."""

    def __init__(self, judge: Judge, known: Endpoint, log: ReplyLog) -> None:
        super().__init__(judge.model, judge.mode, judge.layout, known.capabilities)
        self.log = log
        self._known = known

    @property
    def gates(self) -> Sequence[AdaptiveLimiter]:
        """Limits of calls to the model, shared with the judge that was copied."""
        return self._known.gates

    def call(self, request: RequestContent, mode: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """Build the model call of a request, and log whether the request repeats an earlier one.

        It does if it has a `tail` (messages of earlier tries), or if its items had no usable reply before.
        """
        self.log.repeated = self.log.repeated or bool(tail) or request.repeated
        return super().call(request, mode, tail, draw)

    def record_success(self, mode: RequestMode) -> None:
        """Record which request mode (such as JSON schema or tool call) led to a valid reply."""
        self.log.rungs[mode.rung] += 1
        super().record_success(mode)
