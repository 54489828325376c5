"""Key phrases: what the questions about a passage are about."""

from __future__ import annotations

from random import Random
from typing import Any

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NO_KEYPHRASE, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, text_of

_MOST = 5


class ExtractKeyphrases(CandidateStep):
    """Adds `keyphrases`, at most five, and takes one; another each time the passage is drawn."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none when the passage's key phrases are known."""
        phrases = state.keyphrases
        if not phrases:
            answer = yield from self._ask({"passage": text_of(state)}, text_of(state), _objection)
            phrases = _meant(answer.keyphrases)
        if state.draw >= len(phrases):
            return state.but(keyphrases=phrases).reject(NO_KEYPHRASE)
        shuffled = Random(f"{state.seed} {state.passages[0].id}").sample(phrases, len(phrases))
        return state.but(keyphrases=phrases, keyphrase=shuffled[state.draw])


def keyphrases(writer: JudgeLike) -> CandidateStep:
    """The step that finds the key phrases of the drawn passage and takes one.

    Args:
        writer: asked once, for 3 to 5 of them.
    """
    return ExtractKeyphrases(name="extract_keyphrases", asks=asking("extract_keyphrases", writer))


def _meant(given: list[str]) -> list[str]:
    return list(dict.fromkeys(phrase.strip() for phrase in given if phrase.strip()))[:_MOST]


def _objection(answer: Any) -> str | None:
    return None if _meant(answer.keyphrases) else "there is no key phrase"
