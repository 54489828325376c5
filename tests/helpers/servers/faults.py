"""Faults of a model server, and the plan that assigns them to requests.

Instead of an answer: `429`, `500`, `unauthorized` (its body repeats the Authorization header), `reset`, `html`.
Before the answer: `hang`. Instead of structured output: `refused_format`. Altered answers: the keys of `SPOILERS`.
Embeddings have the faults in `EMBEDDING_FAULTS`.
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
    """Answer of the model.

    Attributes:
        text: the answer as text.
        value: the JSON value of `text`; None if it is not JSON.
        plain: True to send `text` as content even if a tool call was requested.
        finish_reason: None for the usual one.
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
    """Make the JSON irreparable: remove the first colon and leave the outermost brace open."""
    return replace(answer, text="{" + answer.text.replace(":", " ", 1), value=None)


def wrong_type(answer: Answer) -> Answer:
    """Make valid JSON of another type: join every list of strings; if there is none, wrap the value in a list."""
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
    """Assigns faults to requests. Safe to share between threads.

    Build one with `Faults.script` or `Faults.rates`.

    Args:
        pick: returns the name of a fault or None, given the position of a request (from 0), its body and the number
            of equal bodies before it.
        retry_after: the Retry-After header of a 429.
        hang_seconds: duration of a hang, after which the answer is sent.
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
        """Assign the n-th fault to the n-th request; None, and requests after the last one, have no fault."""
        _check(name for name in names if name is not None)

        def pick(position: int, raw: bytes, repeats: int) -> str | None:
            return names[position] if position < len(names) else None

        return cls(pick, retry_after=retry_after, hang_seconds=hang_seconds)

    @classmethod
    def rates(cls, *, seed: int, retry_after: str = "0", hang_seconds: float = 120.0, **rates: float) -> Self:
        """Assign faults at given rates, by a hash of seed, body and repeat, independent of the order of threads."""
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
        """Return the fault of the next request, whose body is `raw`; None for no fault."""
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
    """Hash data to a number from 0 to below 1, uniformly distributed."""
    return int.from_bytes(blake2b(data, digest_size=6).digest()) / 2**48


def _joined(value: Any) -> Any:
    """Return the value with each list of strings joined into one string."""
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return [_joined(item) for item in value]
