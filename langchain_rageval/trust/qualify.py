"""qualify_judge: whether a judge can be believed, before it is believed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Unpack

from langchain_core.embeddings import Embeddings

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.identity import identity
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge
from langchain_rageval.run.options import CALL_DEFAULTS, CallOptions, build_run, fill_defaults
from langchain_rageval.run.progress import show_progress
from langchain_rageval.run.run import Run
from langchain_rageval.trust.ask import Ask, Told, asks_of, models_of, put
from langchain_rageval.trust.examination import EMBEDDED
from langchain_rageval.trust.fitness import STEPS_OF, metric_verdict
from langchain_rageval.trust.items import labelled_items
from langchain_rageval.trust.qualification import Qualification
from langchain_rageval.trust.step_statistics import labelled_verdicts, step_figures

_WORKERS_PER_SLOT = 2  # those between two tries hold no slot
_KNOWN = "The texts are public and old: a model may have read them, with their labels."


def qualify_judge(
    judge: JudgeLike,
    embeddings: Embeddings | None = None,
    language: str = "ru",
    *,
    repeats: int = 2,
    progress: bool = True,
    **options: Unpack[CallOptions],
) -> Qualification:
    """Put labelled questions to a judge, through the steps of the metrics, and see what comes back.

    About 360 calls of a thousand tokens with two repeats. Every item is asked `repeats` times; those with chunks or
    lists of statements once more in reverse order, those with chunks once more with a needless sentence in each. What
    is asked again does not come from the model's cache. Each labelled verdict counts as one in the intervals.

    Args:
        judge: a chat model, another Runnable, or a Judge with the options that you will use.
        embeddings: examined as well, for the metrics that compare by them.
        language: of the labelled items, "ru" or "en".
        repeats: how often each question is asked as it is.
        progress: show it on stderr.
        **options: of the model calls, described in `CallOptions`: `max_concurrency=16`, `timeout=60.0`, `retry=None`.

    Returns:
        What was found of each step, and for each metric whether the judge is fit for it.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option cannot be used, or the judge or the embeddings cannot be asked at all.
    """
    chosen = fill_defaults(qualify_judge, options, CALL_DEFAULTS)
    items = [item for item in labelled_items(language) if item.step != EMBEDDED or embeddings is not None]
    _check(embeddings, repeats)
    run = build_run(chosen)
    asked = Judge.of(judge)
    runs = {item.step: run.metered() for item in items}
    asks = [ask for item in items for ask in asks_of(item, repeats)]
    counting = threading.Lock()
    with show_progress(len(asks), run.meter, show=progress, unit="questions") as shown:

        def answer(ask: Ask) -> Told:
            told = put(ask, embeddings if ask.item.step == EMBEDDED else asked, runs[ask.item.step])
            with counting:
                shown.advance(bool(told.error))
            return told

        told = _answers(asks, answer, run, _WORKERS_PER_SLOT * chosen["max_concurrency"])
    words = _by_words(language)
    steps = {
        step: step_figures(step, [one for one in told if one.ask.item.step == step], words[step], own.meter.usage)
        for step, own in runs.items()
    }
    fitness = {step: (found.verdict, found.reasons) for step, found in steps.items()}
    verdicts = {metric: metric_verdict(fitness, metric) for metric in STEPS_OF}
    return Qualification(
        judge=asked.identity + (f", {identity(embeddings)}" if embeddings is not None else ""),
        language=language,
        repeats=repeats,
        steps=steps,
        verdict={metric: verdict for metric, (verdict, _) in verdicts.items()},
        reasons={metric: reason for metric, (_, reason) in verdicts.items()},
        notes=[*_notes([asked, embeddings]), _KNOWN],
    )


def _check(embeddings: Any, repeats: Any) -> None:
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise ConfigError(f"repeats takes a whole number from 1 on, got {repeats!r}")
    if not isinstance(embeddings, Embeddings | None):
        raise ConfigError(f"embeddings takes LangChain Embeddings, got {type(embeddings).__name__}")


def _answers(asks: Sequence[Ask], answer: Callable[[Ask], Told], run: Run, at_once: int) -> list[Told]:
    """What comes of the first question to the judge and to the embeddings; if they can be asked, of all others."""
    firsts = {"embeddings" if ask.item.step == EMBEDDED else "judge": ask for ask in reversed(asks)}
    tried = {who: answer(ask) for who, ask in firsts.items()}
    for who, told in tried.items():
        if told.lost:
            raise ConfigError(f"the {who} could not be asked: {told.error} (look at the address, the key and the name)")
    others = [ask for ask in asks if ask not in firsts.values()]
    return [*tried.values(), *run.threads.spread([partial(answer, ask) for ask in others], at_once)]


@cache
def _by_words(language: str) -> dict[str, float]:
    """Step to the share of its labelled verdicts that word overlap has right."""
    judge, embeddings, run = Judge(OfflineJudge()), HashingEmbeddings(), Run()
    right: dict[str, list[bool]] = {}
    for item in labelled_items(language):
        told = put(Ask(item), embeddings if item.step == EMBEDDED else judge, run)
        verdicts = [given.verdict in label.accepted for label, given in labelled_verdicts([told])]
        right.setdefault(item.step, []).extend(verdicts)
    return {step: sum(each) / len(each) for step, each in right.items()}


def _notes(subjects: Sequence[Any]) -> list[str]:
    """What the models themselves say of their answers."""
    return list(dict.fromkeys(note for model in models_of(subjects) if (note := getattr(model, "report_note", None))))
