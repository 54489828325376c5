"""RecordingJudge: a judge that records how its model replied to one probe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_rageval.judge.judge import Judge, RequestMode
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.work import Call

Parts = Mapping[str, Set[str]]


@dataclass
class ReplyLog:
    """Record of the replies to one probe.

    Attributes:
        rungs: number of valid replies by the rung that produced them, such as "json_schema" or "prompt".
        repeated: True if a request had to be repeated because a reply was invalid, rejected or incomplete.
    """

    rungs: Counter[str] = field(default_factory=Counter)
    repeated: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class RecordingJudge(Judge):
    """A copy of a judge that also writes a `ReplyLog`."""

    log: ReplyLog = field(default_factory=ReplyLog, kw_only=True)
    _answered: list[Parts] = field(default_factory=list, init=False)
    _requested: list[Parts] = field(default_factory=list, init=False)

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
        object.__setattr__(recorder, "capabilities", judge.capabilities)
        return recorder

    def call(self, request: RequestContent, way: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """Build the model call; log a repetition if it has a tail, or if all its parts already have a valid reply."""
        parts = _request_parts(request, draw)
        answered = any(all(parts[name] <= before.get(name, set()) for name in parts) for before in self._answered)
        self.log.repeated = self.log.repeated or bool(tail) or answered
        self._requested.append(parts)
        return super().call(request, way, tail, draw)

    def remember(self, way: RequestMode) -> None:
        """Record the rung of a valid reply."""
        self.log.rungs[way.rung] += 1
        self._answered.append(self._requested[-1])
        super().remember(way)


def _request_parts(request: RequestContent, draw: int) -> Parts:
    """Return the items of a request's lists, its other inputs and its context sentences, as sets by input name."""
    inputs = {
        name: set(map(repr, value if isinstance(value, list) else [value])) for name, value in request.inputs.items()
    }
    lines: Sequence[Any] = request.contexts.lines if request.contexts else ()
    return {**inputs, "contexts": set(map(repr, lines)), "draw": {str(draw)}}
