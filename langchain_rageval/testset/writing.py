"""Steps that choose a key phrase, write a question, shorten it, answer it and check the answer.

`propose_personas` proposes descriptions of people who would ask about the documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, check_number
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.run import Run
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.testset.candidate import AskingStep, Candidate, Objection, Reason, ask_step, prompt_step
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolve import MULTI_CONTEXT, THEMATIC
from langchain_rageval.testset.objections import objection_to_answer, objection_to_question
from langchain_rageval.testset.sampling import draw_order
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import normalize_text, words_of

_MAX_PHRASES = 5


class KeyphraseExtractor(AskingStep):
    """Step that adds up to five `keyphrases` of the drawn passage and chooses one for the question.

    Each candidate from the same passage gets another key phrase; a candidate is rejected if there is none left.
    """

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Choose a key phrase that no earlier candidate from the same passage had: one call.

        No call if the candidate already has `keyphrases`, which an earlier candidate from the passage extracted. The
        candidate is rejected if all key phrases are used.
        """
        phrases = state.keyphrases
        if not phrases:
            inputs = {"passage": state.drawn_text}
            answer = yield from ask_step(self.model_step, inputs, state.drawn_text, _keyphrase_objection)
            phrases = _clean(answer.keyphrases)
        if state.draw >= len(phrases):
            return state.replace(keyphrases=phrases).reject(Reason.NO_KEYPHRASE)
        shuffled = Random(f"{state.seed} {state.passages[0].id}").sample(phrases, len(phrases))
        return state.replace(keyphrases=phrases, keyphrase=shuffled[state.draw])


def keyphrases(writer: JudgeLike) -> AskingStep:
    """Return the step that extracts the key phrases of the drawn passage and chooses one.

    Args:
        writer: model that extracts 3 to 5 key phrases; one call.
    """
    return KeyphraseExtractor.of("extract_keyphrases", writer)


def _keyphrase_objection(answer: Any) -> str | None:
    return None if _clean(answer.keyphrases) else "there is no key phrase"


def _clean(phrases: list[str]) -> list[str]:
    """Return the first five distinct phrases that are not blank, without white space around them."""
    return list(dict.fromkeys(phrase.strip() for phrase in phrases if phrase.strip()))[:_MAX_PHRASES]


class SeedQuestionWriter(AskingStep):
    """Step that writes a question about the key phrase, which the drawn passage must answer."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer for a question about the key phrase: one call."""
        keyphrase = state.keyphrase or next(iter(state.keyphrases), "")
        inputs = {"passage": state.drawn_text, "keyphrase": keyphrase}
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text, objection_to_question(state))
        refused = isinstance(answer, Objection)
        return state.refuse("seed", answer) if refused else state.with_question(answer.question, "seed")


def seed_question(writer: JudgeLike) -> AskingStep:
    """Return the step that writes a question about the key phrase of the drawn passage.

    The prompt states the rules of the WikiEval questions. The passage must answer the question fully, from a part that
    is not trivial. The question must be of moderate difficulty and clear without the passage. The answer must contain
    no links. Source: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation", arXiv:2309.15217,
    section 4.

    Args:
        writer: model that writes the question; one call.
    """
    return SeedQuestionWriter.of("write_question", writer)


class QuestionCompressor(AskingStep):
    """Step that replaces the question by a shorter question."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer to shorten the question: one call. If the short form is unusable, the question is kept."""
        inputs = {"question": state.question}
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text, objection_to_question(state))
        return state if isinstance(answer, Objection) else state.with_question(answer.question, "compress")


def compress(writer: JudgeLike) -> AskingStep:
    """Return the step that shortens a question.

    Args:
        writer: model that shortens the question; one call.
    """
    return QuestionCompressor.of("compress_question", writer)


class PassageFinder(AskingStep):
    """Step that keeps only the passages that the question needs, or rejects the question.

    It rejects a question that no passage answers. It rejects a question of the evolution `multi_context` unless the
    question needs the first passage and all passages that the evolution added. It rejects a question of the evolution
    `thematic` if one passage is enough.
    """

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic which passages the question needs, and drop the other passages: one call.

        The question is rejected if it needs no passage, or not all passages that `multi_context` or `thematic`
        requires. An unanswerable question keeps all its passages, without a call.
        """
        if not state.answerable:
            return state
        inputs = {"question": state.standalone_question, "passages": state.shown()}
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text)
        needed = [p for number, p in enumerate(state.passages, 1) if number in answer.passages]
        is_joint = not {MULTI_CONTEXT, THEMATIC}.isdisjoint(state.evolution.split("+"))
        some_are_spare = (is_joint and len(needed) < 2) or not {*state.needed} <= {passage.id for passage in needed}
        if needed and not some_are_spare:
            return state.replace(passages=needed)
        trial = state.with_trial("find_passages", accepted=False, feedback=answer.reason)
        return trial.reject(Reason.NOT_ALL_NEEDED if needed else Reason.NOT_IN_PASSAGES)


def find_passages(critic: JudgeLike) -> AskingStep:
    """Return the step that keeps the passages that are needed to answer the question.

    A question is rejected if no passage answers it. A question of the evolution `multi_context` is also rejected
    unless it needs the first passage and all passages that the evolution added. A question of the evolution `thematic`
    is also rejected if it needs only one passage.

    Args:
        critic: model that selects the passages; one call.
    """
    return PassageFinder.of("find_passages", critic)


NOT_IN_THE_DOCUMENTS: Mapping[str, str] = {"en": "The documents do not say.", "ru": "В документах этого нет."}
"""Reference answer of an unanswerable question, by language; other languages use English."""


class AnswerWriter(AskingStep):
    """Step that adds the reference answer; for an unanswerable question, a sentence saying there is no answer."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer for the reference answer: one call.

        The candidate is rejected if the writer disagrees with `answerable`. For an unanswerable question the writer
        also reads the `nearest` passages.
        """
        inputs = {"question": state.standalone_question, "passages": state.shown(state.nearest)}
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text, objection_to_answer(state))
        if isinstance(answer, Objection):
            return state.refuse(self.get_name(), answer)
        if answer.answerable != state.answerable:
            trial = state.with_trial(self.get_name(), accepted=False, feedback=answer.answer)
            return trial.reject(Reason.NOT_ANSWERED if state.answerable else Reason.ANSWERED_BY_DOCUMENTS)
        if state.answerable:
            return state.replace(reference=answer.answer.strip())
        language = detect_language(state.drawn_text)
        return state.replace(reference=NOT_IN_THE_DOCUMENTS.get(language, NOT_IN_THE_DOCUMENTS["en"]))


def answer(writer: JudgeLike) -> AskingStep:
    """Return the step that writes the reference answer and rejects questions that the passages do not answer.

    A question that is meant to be unanswerable is rejected if the passages do answer it.

    Args:
        writer: model that answers the question; one call.
    """
    return AnswerWriter.of("write_answer", writer)


CHECK_ANSWER = "check_answer"
_YES_OR_NO = frozenset(("yes", "no", "да", "нет"))  # a statement with the question alone


class AnswerCheck(AskingStep):
    """Step that rejects a candidate unless its passages support each sentence of its reference answer."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic whether the passages support each sentence of the answer; reject the candidate if not.

        One call; no call for an unanswerable question. The sentences of the passages that the critic cites become the
        `evidence`.
        """
        question, sentences = state.standalone_question, split_sentences(state.reference or "")
        said = [sentence for sentence in sentences if any(map(str.isalnum, sentence))]
        statements = [f"{question} {s}" if {*words_of(s)} <= _YES_OR_NO else s for s in said]
        if not state.answerable or not statements:
            return state
        sample = Sample(question=question, contexts=[passage.text for passage in state.passages])
        result = yield from self.model_step.work({"sample": sample, "answer_statements": statements})
        verdicts = result["answer_verdicts"][: len(statements)]
        unsupported = next((verdict for verdict in verdicts if verdict.verdict != "supported"), None)
        if unsupported is not None:
            feedback = f"{unsupported.text}: {unsupported.reason}".removesuffix(": ")
            return state.with_trial(CHECK_ANSWER, accepted=False, feedback=feedback).reject(Reason.UNSUPPORTED)
        numbered = NumberedContexts.of(sample.contexts or []).sentences
        cited = dict.fromkeys(number for verdict in verdicts for number in verdict.cites)
        return state.replace(evidence=[text for number, text in numbered.items() if number in cited])


def check_answer(critic: JudgeLike) -> AskingStep:
    """Return the step that verifies each sentence of the reference answer against the passages.

    One unsupported sentence rejects the candidate; else its `evidence` lists the supporting passage sentences.

    Args:
        critic: model that verifies the answer; one call.
    """
    return AnswerCheck(name=CHECK_ANSWER, model_step=verify_statements(critic, of="answer"))


_MOST_PASSAGES = 8  # of different documents, if there are as many
_LONGEST_TEXT = 600  # characters of a passage


def propose_personas(writer: JudgeLike, documents: Any, n: int = 5, *, seed: int = 0) -> list[str]:
    """Propose descriptions of people who would ask about the documents: one call.

    Read and edit the descriptions, then pass each to `persona`. The distribution
    `{persona(who): 1 for who in personas}` gives each person the same share of the rows.

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
    check_number("n must be a whole number of at least 1", n, lambda n: n >= 1, whole=True)
    store = documents if isinstance(documents, Docstore) else Docstore(documents)
    if not store.passages:
        raise ConfigError("the documents hold no text to ask about")
    ranked, seen = [], Counter[str]()
    for passage in draw_order(store.passages, seed):
        ranked.append((seen[passage.source], passage.text[:_LONGEST_TEXT]))
        seen[passage.source] += 1
    ranked.sort(key=lambda pair: pair[0])  # one passage of each document before a second one of any
    texts = [text for _, text in ranked[:_MOST_PASSAGES]]
    inputs = {"count": n, "passages": [{"passage": number, "text": text} for number, text in enumerate(texts, 1)]}
    step = prompt_step("propose_personas", writer)
    answer = drive(ask_step(step, inputs, " ".join(texts), _persona_objection), Run(), {})
    return _distinct(answer.personas)[:n]


def _persona_objection(answer: Any) -> str | None:
    return None if _distinct(answer.personas) else "there is no persona"


def _distinct(personas: list[str]) -> list[str]:
    return list({normalize_text(text): text.strip() for text in reversed(personas) if text.strip()}.values())[::-1]
