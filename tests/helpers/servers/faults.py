"""Faults of a model server, and the plan that says which request meets which one.

Instead of an answer: `429`, `500`, `unauthorized` (its body repeats the Authorization header), `reset`, `html`.
Before the answer: `hang`. In place of structured output: `refused_format`. A spoilt answer: the keys of `SPOILERS`.
Embeddings meet those of `EMBEDDING_FAULTS`.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """What the model says.

    Attributes:
        text: the words themselves.
        value: the JSON value that `text` spells, None when it spells none.
        plain: the model talks, so `text` is content even where a tool call was asked for.
        finish_reason: None stands for the usual one.
    """

    text: str
    value: Any = None
    plain: bool = False
    finish_reason: str | None = None

    @classmethod
    def of(cls, reply: dict[str, Any] | str) -> Self:
        if isinstance(reply, str):
            return cls(reply, plain=True)
        return cls(json.dumps(reply, ensure_ascii=False), reply)


def cut(answer: Answer) -> Answer:
    return replace(answer, text=answer.text[: len(answer.text) // 2], value=None)


def truncated(answer: Answer) -> Answer:
    return replace(cut(answer), finish_reason="length")


def truncated_silent(answer: Answer) -> Answer:
    return replace(cut(answer), finish_reason="stop")


def prose(answer: Answer) -> Answer:
    text = f"Sure, here is the result:\n\n```json\n{answer.text}\n```\n\nLet me know if you need anything else."
    return replace(answer, text=text, value=None)


def malformed(answer: Answer) -> Answer:
    """Broken beyond repair: the first colon is gone, the outermost brace stays open."""
    return replace(answer, text="{" + answer.text.replace(":", " ", 1), value=None)


def wrong_type(answer: Answer) -> Answer:
    """Valid JSON of another shape: every list of strings is one string; where there is none, a list is around it."""
    value = _joined(answer.value)
    if value == answer.value:
        value = [value]
    return replace(answer, text=json.dumps(value, ensure_ascii=False), value=value)


def text_instead_of_tool(answer: Answer) -> Answer:
    return Answer("I have looked at the texts and everything seems to be in order.", plain=True)


SPOILERS: dict[str, Callable[[Answer], Answer]] = {
    spoil.__name__: spoil for spoil in (truncated, truncated_silent, prose, malformed, wrong_type, text_instead_of_tool)
}
FAULTS = {"429", "500", "unauthorized", "reset", "html", "hang", "refused_format", *SPOILERS}
EMBEDDING_FAULTS = {"429", "500", "unauthorized", "reset", "html", "hang", "misshapen", "fewer", "zero", "nan"}


class Faults:
    """Decides, request by request, which fault comes; safe to share among threads.

    Build one with `Faults.script` or `Faults.rates`.

    Args:
        pick: from the position of a request (from 0), its body and the number of equal bodies before it
            to the name of a fault or None.
        retry_after: the Retry-After header of a 429.
        hang_seconds: how long a hang lasts; the answer comes after it.
    """

    def __init__(self, pick: Callable[[int, bytes, int], str | None], *, retry_after: str, hang_seconds: float):
        self.retry_after = retry_after
        self.hang_seconds = hang_seconds
        self._pick = pick
        self._lock = threading.Lock()
        self._drawn = 0
        self._repeats: Counter[bytes] = Counter()

    @classmethod
    def script(cls, names: Sequence[str | None], *, retry_after: str = "0", hang_seconds: float = 120.0) -> Self:
        """The n-th request meets the n-th fault; None and the requests after the last one are answered well."""
        _check(name for name in names if name is not None)

        def pick(position: int, raw: bytes, repeats: int) -> str | None:
            return names[position] if position < len(names) else None

        return cls(pick, retry_after=retry_after, hang_seconds=hang_seconds)

    @classmethod
    def rates(cls, *, seed: int, retry_after: str = "0", hang_seconds: float = 120.0, **rates: float) -> Self:
        """Each fault comes at its rate, by a hash of seed, body and repeat: the order of threads does not matter."""
        _check(rates)
        if sum(rates.values()) > 1:
            raise ValueError(f"the rates add up to {sum(rates.values())}, expected at most 1")

        def pick(position: int, raw: bytes, repeats: int) -> str | None:
            point = _fraction(b"%d %d " % (seed, repeats) + raw)
            for name, rate in rates.items():
                if point < rate:
                    return name
                point -= rate
            return None

        return cls(pick, retry_after=retry_after, hang_seconds=hang_seconds)

    def draw(self, raw: bytes) -> str | None:
        """The fault for the next request, whose body is `raw`."""
        digest = blake2b(raw, digest_size=16).digest()
        with self._lock:
            position, repeats = self._drawn, self._repeats[digest]
            self._drawn += 1
            self._repeats[digest] += 1
        return self._pick(position, digest, repeats)


def _check(names: Any) -> None:
    unknown = set(names) - FAULTS - EMBEDDING_FAULTS
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}, expected some of {sorted(FAULTS | EMBEDDING_FAULTS)}")


def _fraction(data: bytes) -> float:
    """From 0 to below 1, evenly spread."""
    return int.from_bytes(blake2b(data, digest_size=6).digest()) / 2**48


def _joined(value: Any) -> Any:
    """The value with each list of strings joined into one string."""
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return [_joined(item) for item in value]
