"""qualify_judge: whether a judge can be believed, before it is believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal
from weakref import WeakValueDictionary

from langchain_core.embeddings import Embeddings

from langchain_rageval.errors import ConfigError, JudgeOutputError, ModelOutputError
from langchain_rageval.judge.identity import identity, redact
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.progress import showing
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.slots import Slots
from langchain_rageval.trust.examination import EMBEDDED, EXAMINATIONS, Given, in_reverse, with_padding
from langchain_rageval.trust.fitness import STEPS_OF, judged, metric_verdict
from langchain_rageval.trust.items import Item, labelled_items
from langchain_rageval.trust.qualification import Citations, Qualification, Share, StepQualification
from langchain_rageval.trust.witness import Notes, Witness

_WORKERS_PER_SLOT = 2  # those between two tries hold no slot
_KNOWN = "The texts are public and old: a model may have read them, with their labels."

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


def qualify_judge(
    judge: JudgeLike,
    embeddings: Embeddings | None = None,
    language: str = "ru",
    *,
    repeats: int = 2,
    max_concurrency: int = 16,
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    progress: bool = True,
) -> Qualification:
    """Put labelled questions to a judge, through the steps of the metrics, and see what comes back.

    About 330 calls of a thousand tokens with two repeats. Every item is asked `repeats` times; those with chunks or
    lists of statements once more in reverse order, those with chunks once more with a needless sentence in each. What
    is asked again does not come from the model's cache. Each labelled verdict counts as one in the intervals.

    Args:
        judge: a chat model, another Runnable, or a Judge with the options that you will use.
        embeddings: examined as well, for the metrics that compare by them.
        language: of the labelled items, "ru" or "en".
        repeats: how often each question is asked as it is.
        max_concurrency: most model calls at a time.
        timeout: seconds for one model call; None waits as long as the client does.
        retry: of calls that the transport lost; by default as `evaluate` does.
        progress: show it on stderr.

    Returns:
        What was found of each step, and for each metric whether the judge is fit for it.

    Raises:
        ConfigError: if an option cannot be used, or the judge or the embeddings cannot be asked at all.
    """
    items = [item for item in labelled_items(language) if item.step != EMBEDDED or embeddings is not None]
    _check(embeddings, repeats, max_concurrency, timeout, retry)
    run = Run(slots=Slots(max_concurrency), retry=retry or RetryPolicy(), timeout=timeout)
    runs = {item.step: run.metered() for item in items}
    subjects = {step: embeddings if step == EMBEDDED else Judge.of(judge) for step in runs}
    first, *asks = [ask for item in items for ask in _asks(item, repeats)]
    with showing(len(asks) + 1, run.meter, show=progress, what="questions") as shown:

        def put(ask: Ask) -> Told:
            told = _put(ask, subjects[ask.item.step], runs[ask.item.step])
            shown.advance(bool(told.error))
            return told

        tried = put(first)
        if tried.lost:
            raise _unreachable("judge", tried.error)
        told = [tried, *run.threads.spread([partial(put, ask) for ask in asks], _WORKERS_PER_SLOT * max_concurrency)]
    steps = {step: _found(step, [one for one in told if one.ask.item.step == step], own) for step, own in runs.items()}
    if embeddings is not None and not steps[EMBEDDED].answered.of:
        raise _unreachable("embeddings", next(one.error for one in told if one.ask.item.step == EMBEDDED))
    fitness = {step: (found.verdict, found.reasons) for step, found in steps.items()}
    verdicts = {metric: metric_verdict(fitness, metric) for metric in STEPS_OF}
    return Qualification(
        judge=Judge.of(judge).identity + (f", {identity(embeddings)}" if embeddings is not None else ""),
        language=language,
        repeats=repeats,
        steps=steps,
        verdict={metric: verdict for metric, (verdict, _) in verdicts.items()},
        reasons={metric: reason for metric, (_, reason) in verdicts.items()},
        notes=[*_notes([Judge.of(judge), embeddings]), _KNOWN],
    )


def _check(embeddings: Any, repeats: Any, max_concurrency: Any, timeout: Any, retry: Any) -> None:
    for name, given in (("repeats", repeats), ("max_concurrency", max_concurrency)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ConfigError(f"{name} takes a whole number from 1 on, got {given!r}")
    if not isinstance(embeddings, Embeddings | None):
        raise ConfigError(f"embeddings takes LangChain Embeddings, got {type(embeddings).__name__}")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ConfigError(f"timeout takes seconds above 0, or None, got {timeout!r}")
    if not isinstance(retry, RetryPolicy | None):
        raise ConfigError(f"retry takes a RetryPolicy(attempts=...), got {retry!r}")


def _asks(item: Item, repeats: int) -> Iterator[Ask]:
    examination = EXAMINATIONS[item.step]
    yield from (Ask(item, time=time) for time in range(1 if item.step == EMBEDDED else repeats))
    if examination.turned:
        yield Ask(item, "reverse")
    if examination.padded:
        yield Ask(item, "padded")


def _put(ask: Ask, subject: Any, run: Run) -> Told:
    examination, item, notes = EXAMINATIONS[ask.item.step], ask.asked, Notes()
    if isinstance(subject, Judge):
        cached = ask.variant != "plain" or ask.time == 0
        subject = subject.each(lambda judge: Witness.of_judge(judge, notes, cached=cached))
    own = replace(run, held=[], flights=WeakValueDictionary())  # or two asks of one question would share an answer
    try:
        state = examination.build(subject).invoke(examination.state(item), own.into(None))
    except ConfigError:
        raise
    except Exception as error:
        told, own_fault = f"{type(error).__name__}: {error}", isinstance(error, JudgeOutputError | ModelOutputError)
        for model in _models([subject]):
            told = redact(told, model)
        return Told(ask, notes=notes, error=told, lost=not own_fault)
    given: Sequence[Given] = examination.given(state, item)
    if ask.variant == "reverse" and examination.turned:
        given = examination.turned(item, given)
    return Told(ask, given, notes)


def _found(step: str, told: Sequence[Told], run: Run) -> StepQualification:
    """The figures of a step."""
    reached = [one for one in told if not one.lost]
    answered = [one for one in reached if not one.error]
    first = {one.ask.item.id: one for one in answered if (one.ask.variant, one.ask.time) == ("plain", 0)}
    labelled = [pair for one in first.values() for pair in zip(one.ask.item.labels, one.given, strict=True)]
    labelled = [(label, given) for label, given in labelled if label.accepted]
    lost = [one.error for one in told if one.lost]
    said = Counter(given.verdict for _, given in labelled)
    figures: dict[str, Any] = {
        "right": Share.over([float(given.verdict in label.accepted) for label, given in labelled]),
        "constant": _constant(step, [label.accepted for label, _ in labelled]),
        "said": dict(said.most_common()),
        "answered": Share.over([float(not one.error) for one in reached]),
        "valid": Share.over([float(not one.error and not one.notes.again) for one in reached if step != EMBEDDED]),
        "flips": Share.over(_flips(answered)),
        "order_bias": Share.over(_changed(first, answered, "reverse")),
        "length_bias": Share.over(_changed(first, answered, "padded")),
        "citations": _citations(first),
        "lost": len(lost),
        "error": lost[0] if lost else "",
    }
    verdict, reasons = judged(**figures)
    rungs = sum((one.notes.rungs for one in answered), Counter[str]())
    usage = run.meter.usage
    reported = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return StepQualification(
        step=step,
        verdict=verdict,
        reasons=reasons,
        rung=rungs.most_common(1)[0][0] if rungs else None,
        calls=usage.calls,
        tokens=sum(reported) if reported else None,
        seconds=usage.seconds,
        **figures,
    )


def _constant(step: str, accepted: Sequence[Sequence[str]]) -> float:
    """The share of right verdicts of the best judge with only one answer, or of one who guesses."""
    chance = EXAMINATIONS[step].chance
    if chance is not None or not accepted:
        return chance or 0.0
    return max(Counter(verdict for each in accepted for verdict in each).values()) / len(accepted)


def _flips(answered: Sequence[Told]) -> list[float]:
    """Of each labelled verdict, the share of pairs of asks that do not agree on it."""
    asks: dict[str, list[Told]] = {}
    for one in answered:
        if one.ask.variant == "plain":
            asks.setdefault(one.ask.item.id, []).append(one)
    return [
        sum(one != other for one, other in pairs) / len(pairs)
        for several in asks.values()
        for place, label in enumerate(several[0].ask.item.labels)
        if label.accepted and (pairs := list(combinations([one.given[place].verdict for one in several], 2)))
    ]


def _changed(first: Mapping[str, Told], answered: Sequence[Told], variant: Variant) -> list[float]:
    """Of each labelled verdict, whether the variant changes it."""
    pairs = [
        (first[one.ask.item.id], one) for one in answered if one.ask.variant == variant and one.ask.item.id in first
    ]
    return [
        float(before.verdict != after.verdict)
        for plain, other in pairs
        for label, before, after in zip(plain.ask.item.labels, plain.given, other.given, strict=True)
        if label.accepted
    ]


def _citations(first: Mapping[str, Told]) -> Citations | None:
    """The citations of right verdicts that owe one; None where no label names any."""
    labelled = [pair for one in first.values() for pair in zip(one.ask.item.labels, one.given, strict=True)]
    due = [label.evidence for label, _ in labelled if label.evidence]
    if not due:
        return None
    owing = [
        (label.evidence, given.cites) for label, given in labelled if label.evidence and given.verdict in label.accepted
    ]
    hits = [[_decides(cite, evidence) for cite in cites] for evidence, cites in owing]
    cited = [cite for _, cites in owing for cite in cites]
    chunks = [evidence[0].partition(".")[0] for evidence, _ in owing]
    return Citations(
        precision=Share.over([sum(each) / len(each) for each in hits if each]),
        recall=Share.over([float(any(each)) for each in hits]),
        first=Share.over([float(cite.startswith("1.")) for cite in cited]),
        due_first=chunks.count("1") / max(1, len(chunks)),
    )


def _decides(cite: str, evidence: Sequence[str]) -> bool:
    return any(cite == number or cite.startswith(f"{number}.") for number in evidence)


def _models(subjects: Sequence[Any]) -> list[Any]:
    """The models behind judges and embeddings."""
    judges = [judge for subject in subjects if isinstance(subject, Judge) for judge in subject.members]
    others = [subject for subject in subjects if subject is not None and not isinstance(subject, Judge)]
    return [inner for judge in judges for inner in inner_models(judge.model)] + others


def _notes(subjects: Sequence[Any]) -> list[str]:
    """What the models themselves say of their answers."""
    return list(dict.fromkeys(note for model in _models(subjects) if (note := getattr(model, "report_note", None))))


def _unreachable(who: str, error: str) -> ConfigError:
    return ConfigError(f"the {who} could not be asked: {error}; look at its address, its key and its name")
