"""Witness: a judge that notes which rung it is asked by, and whether a first reply was not enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_rageval.judge.endpoint import Endpoint, RequestMode
from langchain_rageval.judge.judge import Judge
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.requests import Call

Parts = Mapping[str, Set[str]]


@dataclass
class Notes:
    """What was noted of one question and all that came of it.

    Attributes:
        rungs: by which the readable replies came.
        again: whether anything was asked again: a reply could not be read, was objected to, or left something out.
    """

    rungs: Counter[str] = field(default_factory=Counter)
    again: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class RecordingJudge(Judge):
    """Asks as the judge does that it was made of, and takes notes."""

    notes: Notes = field(default_factory=Notes, kw_only=True)

    @classmethod
    def of_judge(cls, judge: Judge, notes: Notes, *, cached: bool) -> RecordingJudge:
        """A witness in the place of a judge.

        Args:
            judge: who is asked, with all that it knows of its endpoint.
            notes: where it notes what it sees.
            cached: whether the model's own cache may answer.
        """
        options = {own.name: getattr(judge, own.name) for own in fields(Judge) if own.init}
        if not cached and isinstance(judge.model, BaseChatModel):
            options["model"] = judge.model.model_copy(update={"cache": False})
        made = cls(**options, notes=notes)
        object.__setattr__(made, "_endpoint", _RecordingEndpoint(made, judge._endpoint, notes))
        return made


class _RecordingEndpoint(Endpoint):
    """The endpoint of a judge that takes notes, with all that is known of it."""

    def __init__(self, judge: Judge, known: Endpoint, notes: Notes) -> None:
        super().__init__(judge.model, judge.mode, judge.layout, known.capabilities)
        self.notes = notes
        self._answered: list[Parts] = []
        self._asked: list[Parts] = []

    def call(self, request: RequestContent, mode: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """The model call; a tail, or a question within one that was answered before, is asking again."""
        parts = _parts(request, draw)
        within = any(all(parts[name] <= before.get(name, set()) for name in parts) for before in self._answered)
        self.notes.again = self.notes.again or bool(tail) or within
        self._asked.append(parts)
        return super().call(request, mode, tail, draw)

    def record_success(self, mode: RequestMode) -> None:
        """Note the rung of a readable reply."""
        self.notes.rungs[mode.rung] += 1
        self._answered.append(self._asked[-1])
        super().record_success(mode)


def _parts(request: RequestContent, draw: int) -> Parts:
    """What a request asks about: the items of its lists, its other inputs, the sentences of its contexts."""
    inputs = {
        name: set(map(repr, given if isinstance(given, list) else [given])) for name, given in request.inputs.items()
    }
    lines: Sequence[Any] = request.contexts.lines if request.contexts else ()
    return {**inputs, "contexts": set(map(repr, lines)), "draw": {str(draw)}}
