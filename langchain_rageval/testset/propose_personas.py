"""Propose personas: different people who would ask about the documents, for approval by the user."""

from __future__ import annotations

from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.run import Run
from langchain_rageval.testset.candidate import Passage, ask_step, prompt_step
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.sampling import draw_order
from langchain_rageval.text.words import normalize_text

_PASSAGES = 8  # of different documents, if there are as many
_LONGEST_TEXT = 600  # characters of a passage


def propose_personas(writer: JudgeLike, documents: Any, n: int = 5, *, seed: int = 0) -> list[str]:
    """Propose descriptions of people who would ask about the documents: one call.

    Read and edit them, then pass each to `persona`, such as `{persona(who): 1 for who in personas}`.

    Args:
        writer: model that reads the beginnings of up to eight passages, of different documents where possible.
        documents: as for `TestsetGenerator.generate`.
        n: number of personas.
        seed: random seed of the choice of passages.

    Returns:
        Different descriptions, each a sentence; fewer than n if the writer repeats itself.

    Raises:
        ConfigError: if n is not a whole number of at least 1, or the documents hold no text.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigError(f"n must be a whole number of at least 1, got {n!r}")
    store = documents if isinstance(documents, Docstore) else Docstore(documents)
    if not store.passages:
        raise ConfigError("the documents hold no text to ask about")
    texts = [passage.text[:_LONGEST_TEXT] for passage in _spread(draw_order(store.passages, seed))]
    inputs = {"count": n, "passages": [{"passage": number, "text": text} for number, text in enumerate(texts, 1)]}
    step = prompt_step("propose_personas", writer)
    answer = drive(ask_step(step, inputs, " ".join(texts), _objection), Run(), {})
    return _distinct(answer.personas)[:n]


def _spread(passages: list[Passage]) -> list[Passage]:
    """Return the first passages, one of each document before a second one of any."""
    seen: dict[str, int] = {}
    ranks = [seen[p.source] for p in passages if seen.update({p.source: seen.get(p.source, 0) + 1}) is None]
    order = sorted(range(len(passages)), key=lambda place: ranks[place])
    return [passages[place] for place in order[:_PASSAGES]]


def _distinct(personas: list[str]) -> list[str]:
    return list({normalize_text(text): text.strip() for text in reversed(personas) if text.strip()}.values())[::-1]


def _objection(answer: Any) -> str | None:
    return None if _distinct(answer.personas) else "there is no persona"
