"""Turns of a conversation with their numbers, as the steps about whole conversations send them to the judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from langchain_rageval.data.schema import Sample
from langchain_rageval.run.usage_meter import CHARACTERS_PER_TOKEN

_CHARACTERS_BESIDE_TEXT = 40  # of a turn in JSON: keys, number and role


class NumberedTurn(NamedTuple):
    """Message of the user or the assistant; numbers count from 1 over the whole conversation."""

    number: int
    role: str
    text: str


def numbered_turns(sample: Sample) -> list[NumberedTurn]:
    """Return the conversation up to and including a sample: its history, its question and its answer."""
    said = [(turn.role, turn.text) for turn in sample.history]
    said += [("user", sample.question), ("assistant", sample.answer or "")]
    return [NumberedTurn(number, role, text) for number, (role, text) in enumerate(said, 1)]


def request_turns(turns: Sequence[NumberedTurn]) -> list[dict[str, Any]]:
    """Return turns as the items of a request. They keep their numbers, also in a part of a conversation."""
    return [{"turn": turn.number, "role": turn.role, "text": turn.text} for turn in turns]


def turn_windows(turns: Sequence[NumberedTurn], max_tokens: int | None) -> list[list[NumberedTurn]]:
    """Split a conversation between turns into windows of at most `max_tokens` (characters / 4).

    A turn that is longer than that gets its own window. None does not split.
    """
    if max_tokens is None:
        return [list(turns)]
    windows: list[list[NumberedTurn]] = []
    size = 0.0
    for turn in turns:
        tokens = (len(turn.text) + _CHARACTERS_BESIDE_TEXT) / CHARACTERS_PER_TOKEN
        if not windows or size + tokens > max_tokens:
            windows.append([])
            size = 0.0
        windows[-1].append(turn)
        size += tokens
    return windows
