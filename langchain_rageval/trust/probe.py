"""Probe: one test request to a judge, made from a labelled item (request with known right verdicts), and its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.errors import ConfigError, JudgeOutputError, ModelOutputError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.jury import map_members
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.run import Run
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, CitedVerdict, pad_item, reverse_item
from langchain_rageval.trust.labelled_item import LabelledItem
from langchain_rageval.trust.recording_judge import RecordingJudge, ReplyLog

Variant = Literal["plain", "reverse", "padded"]


@dataclass(frozen=True)
class Probe:
    """Test request to a judge: a repeat or a variant of a labelled item (request with known right verdicts).

    Attributes:
        item: the labelled item.
        variant: "plain" for the item unchanged, "reverse" for its chunks or statements in reverse order, "padded" for
            an irrelevant sentence at the end of each chunk.
        repeat: number of the repeat of a plain item, from 0.
    """

    item: LabelledItem
    variant: Variant = "plain"
    repeat: int = 0

    @property
    def varied_item(self) -> LabelledItem:
        """The labelled item after the changes of the variant, such as chunks in reverse order."""
        if self.variant == "reverse":
            return reverse_item(self.item, EXAMINATIONS[self.item.step])
        return pad_item(self.item) if self.variant == "padded" else self.item


@dataclass(frozen=True)
class ProbeResult:
    """Verdicts of the judge on a probe (test request), or the error that the probe ended with.

    Attributes:
        probe: the request.
        verdicts: one for each label of the plain item, in the order of the labels; empty after an error.
        log: how the judge replied.
        error: type and message of the error; "" if the probe was answered.
        lost: True if the error is a transport error, not an invalid reply.
    """

    probe: Probe
    verdicts: Sequence[CitedVerdict] = ()
    log: ReplyLog = field(default_factory=ReplyLog)
    error: str = ""
    lost: bool = False


def list_probes(item: LabelledItem, repeats: int) -> Iterator[Probe]:
    """Yield the probes of a labelled item: its repeats (one for embeddings), then the variants that its step allows."""
    examination = EXAMINATIONS[item.step]
    yield from (Probe(item, repeat=repeat) for repeat in range(1 if item.step == EMBEDDING_STEP else repeats))
    if examination.reverse:
        yield Probe(item, "reverse")
    if examination.padded:
        yield Probe(item, "padded")


def run_probe(probe: Probe, subject: Any, run: Run) -> ProbeResult:
    """Send a probe to the judge and read the verdicts; each of several equal probes gets its own reply.

    Args:
        probe: the request.
        subject: a Judge, or embeddings.
        run: supplies concurrency, retries and the usage meter.

    Raises:
        ConfigError: if the judge lacks something that the step needs.
    """
    examination, item, log = EXAMINATIONS[probe.item.step], probe.varied_item, ReplyLog()
    if isinstance(subject, Judge):
        cached = probe.variant != "plain" or probe.repeat == 0
        subject = map_members(subject, lambda judge: RecordingJudge.of_judge(judge, log, cached=cached))
    unshared_run = replace(run, single_flight=SingleFlight())  # repeats must not share a call in flight
    try:
        state = examination.build(subject, item).invoke(examination.initial_state(item), unshared_run.into(None))
    except ConfigError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {redact_message(error, subject)}"
        lost = not isinstance(error, JudgeOutputError | ModelOutputError)
        return ProbeResult(probe, log=log, error=message, lost=lost)
    verdicts: Sequence[CitedVerdict] = examination.read_verdicts(state, item)
    if probe.variant == "reverse" and examination.reverse:
        verdicts = examination.reverse(item, verdicts)
    return ProbeResult(probe, verdicts, log)


def find_models(subjects: Sequence[Any]) -> list[Any]:
    """Return the models of the judges and embeddings in a list; embeddings are returned unchanged, None is skipped."""
    judges = [judge for subject in subjects if isinstance(subject, Judge) for judge in subject.members]
    others = [subject for subject in subjects if subject is not None and not isinstance(subject, Judge)]
    return [inner for judge in judges for inner in inner_models(judge.model)] + others
