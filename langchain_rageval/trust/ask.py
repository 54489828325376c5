"""Ask: one question of a qualification, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_rageval.errors import ConfigError, JudgeOutputError, ModelOutputError
from langchain_rageval.judge.identity import redact
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.jury import map_members
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.run import Run
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.trust.examination import EMBEDDED, EXAMINATIONS, Given, in_reverse, with_padding
from langchain_rageval.trust.items import Item
from langchain_rageval.trust.recording_judge import Notes, RecordingJudge

Variant = Literal["plain", "reverse", "padded"]


@dataclass(frozen=True)
class Ask:
    """One question to put: an item as it is for the n-th time, or a variant of it."""

    item: Item
    variant: Variant = "plain"
    time: int = 0

    @property
    def asked(self) -> Item:
        """The item as it is put."""
        if self.variant == "reverse":
            return in_reverse(self.item, EXAMINATIONS[self.item.step])
        return with_padding(self.item) if self.variant == "padded" else self.item


@dataclass(frozen=True)
class Told:
    """What came of it.

    Attributes:
        ask: the question.
        given: verdicts in the order of the item's labels; none after an error.
        notes: how it was answered.
        error: why it was not.
        lost: whether the transport is to blame for that.
    """

    ask: Ask
    given: Sequence[Given] = ()
    notes: Notes = field(default_factory=Notes)
    error: str = ""
    lost: bool = False


def asks_of(item: Item, repeats: int) -> Iterator[Ask]:
    """All that is asked about an item."""
    examination = EXAMINATIONS[item.step]
    yield from (Ask(item, time=time) for time in range(1 if item.step == EMBEDDED else repeats))
    if examination.turned:
        yield Ask(item, "reverse")
    if examination.padded:
        yield Ask(item, "padded")


def put(ask: Ask, subject: Any, run: Run) -> Told:
    """Put a question, and read what comes back; nothing of it is shared with other asks of the same.

    Args:
        ask: the question.
        subject: a Judge, or embeddings.
        run: what pays for it.

    Raises:
        ConfigError: if the judge lacks something that asking takes.
    """
    examination, item, notes = EXAMINATIONS[ask.item.step], ask.asked, Notes()
    if isinstance(subject, Judge):
        cached = ask.variant != "plain" or ask.time == 0
        subject = map_members(subject, lambda judge: RecordingJudge.of_judge(judge, notes, cached=cached))
    own = replace(run, single_flight=SingleFlight())  # or two asks of one question would share an answer
    try:
        state = examination.build(subject).invoke(examination.state(item), own.into(None))
    except ConfigError:
        raise
    except Exception as error:
        told, own_fault = f"{type(error).__name__}: {error}", isinstance(error, JudgeOutputError | ModelOutputError)
        for model in models_of([subject]):
            told = redact(told, model)
        return Told(ask, notes=notes, error=told, lost=not own_fault)
    given: Sequence[Given] = examination.given(state, item)
    if ask.variant == "reverse" and examination.turned:
        given = examination.turned(item, given)
    return Told(ask, given, notes)


def models_of(subjects: Sequence[Any]) -> list[Any]:
    """The models behind judges and embeddings."""
    judges = [judge for subject in subjects if isinstance(subject, Judge) for judge in subject.members]
    others = [subject for subject in subjects if subject is not None and not isinstance(subject, Judge)]
    return [inner for judge in judges for inner in inner_models(judge.model)] + others
