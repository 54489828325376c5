"""last_turns: the last sample of each conversation."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_rageval.data.conversations import CONVERSATION, TURN
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError


def last_turns(samples: Iterable[Sample]) -> list[Sample]:
    """Return the last sample of each conversation, whose history, question and answer are the whole conversation.

    Args:
        samples: samples in any order; `metadata.conversation` names the conversation of each, and `metadata.turn` the
            turn. Without a turn, the later of two samples is the last one.

    Returns:
        The samples in the order of the first sample of each conversation. A sample of no conversation is its own.

    Raises:
        SampleError: if an item is not a Sample.
    """
    last: dict[object, Sample] = {}
    for place, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise SampleError(
                f"last_turns expected samples, got {type(sample).__name__} at index {place}: pass those of "
                "samples_of(conversation) or load_samples(path, each_turn=True), or Sample.parse(record)"
            )
        name = sample.metadata.get(CONVERSATION)
        key: object = ("", place) if name is None else str(name)
        if key not in last or _turn(sample) >= _turn(last[key]):
            last[key] = sample
    return list(last.values())


def _turn(sample: Sample) -> float:
    """Return the number of a turn; the length of the history if the sample has none."""
    try:
        return float(sample.metadata[TURN])
    except (KeyError, TypeError, ValueError):
        return len(sample.history) / 2 + 1
