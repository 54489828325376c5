"""Key phrases: find what a passage is about, and choose the subject of the question."""

from __future__ import annotations

from random import Random
from typing import Any

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NO_KEYPHRASE, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step

_MAX_PHRASES = 5


class KeyphraseExtractor(CandidateStep):
    """Adds up to five `keyphrases` and chooses one; each draw of the passage chooses another."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Choose a key phrase of the passage: one call, or none if they are known. Reject if all are used."""
        phrases = state.keyphrases
        if not phrases:
            answer = yield from self._ask({"passage": drawn_text(state)}, drawn_text(state), _objection)
            phrases = _clean(answer.keyphrases)
        if state.draw >= len(phrases):
            return state.replace(keyphrases=phrases).reject(NO_KEYPHRASE)
        shuffled = Random(f"{state.seed} {state.passages[0].id}").sample(phrases, len(phrases))
        return state.replace(keyphrases=phrases, keyphrase=shuffled[state.draw])


def keyphrases(writer: JudgeLike) -> CandidateStep:
    """Return the step that extracts the key phrases of the drawn passage and chooses one.

    Args:
        writer: model that extracts 3 to 5 key phrases; one call.
    """
    return KeyphraseExtractor(name="extract_keyphrases", model_step=prompt_step("extract_keyphrases", writer))


def _clean(phrases: list[str]) -> list[str]:
    """Return the first five distinct phrases that are not blank, without white space around them."""
    return list(dict.fromkeys(phrase.strip() for phrase in phrases if phrase.strip()))[:_MAX_PHRASES]


def _objection(answer: Any) -> str | None:
    return None if _clean(answer.keyphrases) else "there is no key phrase"
