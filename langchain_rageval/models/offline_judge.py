"""The offline default: a judge and embeddings that need no network, no key and no model.

Deterministic word overlap, through the very same steps and parser as a real model. A smoke test and a baseline to beat,
never a measure of quality; every report made with it says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_rageval.models import offline_entities, offline_writer
from langchain_rageval.prompts.answer_schemas import ANSWERS
from langchain_rageval.prompts.layout import read_inputs, read_title
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.run.usage_meter import tokens_in
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.normalization import words_of
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stem_of, stems_of

Inputs = Mapping[str, Any]
Sentences = Mapping[str, str]

_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)
_EVASION = re.compile(
    r"\b(не знаю|не могу ответить|нет (?:таких )?(?:сведений|данных|информации)|не (?:сказано|указано|найден\w*)"
    r"|(?:do not|don't|does not|doesn't) (?:know|say|answer)|(?:cannot|can't) answer|no (?:answer|information)"
    r"|not (?:specified|mentioned))\b",
    re.IGNORECASE,
)
_ENOUGH = 0.6
_SOME = 0.4
_MOST_SENTENCES = 3


class OfflineJudge(BaseChatModel):
    """A chat model that answers every judge step by overlap of word stems (the first five letters of each word).

    Statements are the sentences of the text, without questions and evasions. A statement is supported when at least 60%
    of its stems stand in the one or two sentences that share most of them, contradicted when those sentences hold other
    numbers than it does, absent otherwise; statements of answer and reference are shared by the same measure, one with
    one. A sentence is needed when it holds at least 40% of the question's stems, a chunk useful when it holds as many
    of the answer's, or of the question's where there is no answer; its grade is the share of the question's stems that
    it holds. The questions that an answer would answer are its own sentences with a question mark. Of the aspects it
    knows conciseness (at most three sentences for one of the question's), correctness (no other numbers than in the
    contexts) and coherence (no sentence said twice); no other applies. Entities are numbers and words with a capital
    letter within a sentence, found where all their stems stand in one sentence. A text abstains when it states nothing;
    contexts answer when a sentence holds 60% of the question's stems. By a rubric it grades what can be counted: as
    correctness the share of the answer's stems that stand in the reference, or else the contexts (the lowest grade for
    an evasion, or a number that is not there); as completeness the share of the reference's stems, or else the
    question's, that stand in the answer; as readability the share of word pairs that are not said twice; any other
    criterion as correctness.

    As a writer it asks what is known about a phrase of the passage; how that is connected with, changed by or like
    another phrase (reasoning, conditional, multi_context); what becomes of it in a year that no passage names
    (unanswerable). It answers with the one or two sentences that share most with the question, and knows nothing
    without them. As a critic it takes a question to be standalone when nothing in it points ("this", "in the text"),
    answerable when 60% of its stems and all its numbers stand in the passages, broader than another when it has other
    stems, deeper when it newly asks why or how as well. It writes Russian about Russian passages, else English.
    """

    @property
    def _llm_type(self) -> str:
        return "rageval-offline"

    @property
    def report_note(self) -> str:
        """What every report made with this judge says."""
        return "Judged offline by word overlap: a smoke test and a baseline to beat, not a measure of quality."

    @property
    def testset_note(self) -> str:
        """What every test set made with this writer or critic says."""
        return "Written offline by word overlap: a smoke test, no questions that anybody would ask."

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        human = next(message for message in messages if message.type == "human").text
        title = read_title(human)
        if title is None:
            raise ValueError("OfflineJudge answers the steps of langchain_rageval only; this is no request of theirs")
        reply = json.dumps(answer_offline(title, human), ensure_ascii=False)
        read, written = tokens_in(*(message.text for message in messages)), tokens_in(reply)
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply, usage_metadata=usage))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, **kwargs)


class HashingEmbeddings(Embeddings):
    """Unit vectors of hashed word stems: texts that share words are near. A baseline, like `OfflineJudge`.

    Args:
        size: length of the vectors.
    """

    def __init__(self, size: int = 512) -> None:
        self.size = size

    @property
    def report_note(self) -> str:
        """What every report made with these embeddings says."""
        return "Embedded offline by hashed words: similarities are a baseline to beat, not a measure of meaning."

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector of length 1 for each text; of length 0 for a blank one."""
        return [self._embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self._embed(text)

    def _embed(self, text: str) -> list[float]:
        vector = np.zeros(self.size)
        for stem in _features(text):
            digest = int.from_bytes(hashlib.blake2b(stem.encode(), digest_size=8).digest(), "big")
            vector[digest % self.size] += 1.0 if digest >> 63 else -1.0
        if not vector.any() and text.strip():
            vector[len(text) % self.size] = 1.0  # its words cancel out
        norm = float(np.linalg.norm(vector))
        return [float(x) for x in (vector / norm if norm else vector)]


def answer_offline(title: str, human: str) -> dict[str, Any]:
    """The offline judge's answer to a request.

    Args:
        title: of the answer's schema, such as "Verdicts".
        human: the request's human message.

    Raises:
        ValueError: if there is no step with such an answer.
    """
    inputs = read_inputs(human)
    step = _step(title, inputs, human)
    if step in _WRITTEN:
        return _WRITTEN[step](inputs)
    return _JUDGED[step](inputs, dict(_SENTENCE.findall(human)))


def _step(title: str, inputs: Inputs, human: str) -> str:
    """The step that asks: by its answer, else by what it reads, else by the package's own instruction.

    With instructions of somebody else's, the first of those that read the same.
    """
    steps = [step for step, answer in ANSWERS.items() if answer.__name__ == title]
    if not steps:
        raise ValueError(f"OfflineJudge answers {', '.join(_TITLES)}, not {title}")
    reading = [step for step in steps if _READS.get(step, inputs.keys()) == inputs.keys()]
    if len(reading) < 2:
        return (reading or steps)[0]
    sets = (PromptSet.default(language) for language in ("ru", "en", *sorted(languages())))
    named = (step for prompts in sets for step in reading if prompts.get(step).instruction in human)
    return next(named, reading[0])


def _statements(inputs: Inputs, _contexts: Sentences) -> dict[str, Any]:
    sentences = split_sentences(str(inputs["text"]))
    stated = [s for s in sentences if words_of(s) and not s.endswith(("?", "？")) and not _EVASION.search(s)]
    return {"statements": stated}


def _verdicts(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    stems = {number: stems_of(sentence) for number, sentence in contexts.items()}
    return {
        "verdicts": [_verdict(item["statement"], str(item["text"]), stems, contexts) for item in inputs["statements"]]
    }


def _verdict(number: int, text: str, stems: Mapping[str, set[str]], contexts: Sentences) -> dict[str, Any]:
    wanted = stems_of(text)
    first = _nearest(wanted, stems)
    second = _nearest(wanted - stems.get(first, set()), {n: s for n, s in stems.items() if n != first})
    cited = [n for n in (first, second) if n]
    shared = wanted & set().union(*(stems[n] for n in cited))
    share = len(shared) / len(wanted) if wanted else 0.0
    numbers = numbers_of(text)
    there = numbers_of(" ".join(contexts[n] for n in cited))
    verdict = "absent" if share < _ENOUGH else "supported" if numbers <= there else "contradicted"
    return {
        "statement": number,
        "reason": f"{len(shared)}/{len(wanted)}",
        "evidence": cited if verdict != "absent" else [],
        "verdict": verdict,
    }


def _classification(inputs: Inputs, _contexts: Sentences) -> dict[str, Any]:
    references = {int(item["reference"]): str(item["text"]) for item in inputs["reference_statements"]}
    hits: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    for item in inputs["answer_statements"]:
        text = str(item["text"])
        same = [number for number, reference in references.items() if _same(text, reference)]
        place = {"answer": item["answer"], "reason": "overlap" if same else "no overlap"}
        (hits if same else misses).append({**place, "references": same} if same else place)
    told = {number for hit in hits for number in hit["references"]}
    lost = [{"reference": number, "reason": "no overlap"} for number in references if number not in told]
    return {"TP": hits, "FP": misses, "FN": lost}


def _same(one: str, other: str) -> bool:
    """Whether two statements share enough stems of the shorter one, and their numbers."""
    stems, others = stems_of(one), stems_of(other)
    shorter = min(len(stems), len(others))
    numbers = [numbers_of(text) for text in (one, other)]
    enough = bool(shorter) and len(stems & others) / shorter >= _ENOUGH
    return enough and (numbers[0] <= numbers[1] or numbers[1] <= numbers[0])


def _chunk_verdicts(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    wanted = stems_of(str(inputs["answer"])) or stems_of(str(inputs["question"]))
    shared = {chunk: len(wanted & stems) for chunk, stems in _chunks(contexts).items()}
    return {
        "verdicts": [
            {"context": chunk, "reason": f"{n}/{len(wanted)}", "useful": bool(wanted) and n >= _SOME * len(wanted)}
            for chunk, n in shared.items()
        ]
    }


def _relevance(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    lowest, highest = inputs["scale"]
    wanted = stems_of(str(inputs["question"]))
    grades = []
    for chunk, stems in _chunks(contexts).items():
        shared = len(wanted & stems)
        grade = lowest + round((highest - lowest) * shared / max(1, len(wanted)))
        grades.append({"context": chunk, "reason": f"{shared}/{len(wanted)}", "grade": grade})
    return {"grades": grades}


def _chunks(contexts: Sentences) -> dict[int, set[str]]:
    """Number of each chunk to the stems in it."""
    chunks: dict[int, set[str]] = {}
    for number, sentence in contexts.items():
        chunks.setdefault(int(number.partition(".")[0]), set()).update(stems_of(sentence))
    return chunks


def _needed_sentences(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    wanted = stems_of(str(inputs["question"]))
    needed = [n for n, text in contexts.items() if wanted and len(wanted & stems_of(text)) >= _SOME * len(wanted)]
    return {"reason": f"at least {_SOME:.0%} of the question's words", "sentences": needed}


def _questions(inputs: Inputs, _contexts: Sentences) -> dict[str, Any]:
    stated = _statements({"text": inputs["answer"]}, {})["statements"]
    questions = [sentence.rstrip(".!…。！ ") + "?" for sentence in stated[: int(inputs["count"])]]
    return {"evasive": not questions, "questions": questions}


def _aspect(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    answer, aspect = str(inputs["answer"]), str(inputs["aspect"])
    sentences = split_sentences(answer)
    russian = detect_language(str(inputs["question"])) == "ru"
    length = f"предложений: {len(sentences)}" if russian else f"{len(sentences)} sentences"
    if aspect == "conciseness":
        asked = max(1, len(split_sentences(str(inputs["question"]))))
        return {"reason": length, "verdict": len(sentences) <= _MOST_SENTENCES * asked}
    if aspect == "correctness":
        others = numbers_of(answer) - numbers_of(" ".join(contexts.values()))
        told = f"других чисел: {len(others)}" if russian else f"{len(others)} other numbers"
        return {"reason": told, "verdict": not (contexts and others)}
    if aspect == "coherence":
        return {"reason": length, "verdict": len(set(sentences)) == len(sentences)}
    unknown = "совпадение слов этого не покажет" if russian else "word overlap cannot tell"
    return {"reason": unknown, "verdict": False}


def _abstention(inputs: Inputs, _contexts: Sentences) -> dict[str, Any]:
    stated = _statements({"text": inputs["answer"]}, {})["statements"]
    russian = detect_language(str(inputs["question"])) == "ru"
    told = f"утверждений: {len(stated)}" if russian else f"{len(stated)} statements"
    return {"reason": told, "abstains": not stated}


def _rubric_grades(inputs: Inputs, contexts: Sentences) -> dict[str, Any]:
    question, answer, reference = (str(inputs[name]) for name in ("question", "answer", "reference"))
    ground = reference or " ".join(contexts.values())
    told = {
        "correctness": partial(_share_that_is_right, answer, ground or question),
        "completeness": partial(_share, stems_of(reference or question), stems_of(answer)),
        "readability": partial(_share_said_once, answer),
    }
    grades = []
    for criterion in inputs["criteria"]:
        lowest, *_, highest = sorted(map(int, criterion["grades"]))
        share = told.get(criterion["criterion"], told["correctness"])()
        grade = lowest + round(share * (highest - lowest))
        grades.append({"criterion": criterion["criterion"], "reason": f"{share:.0%}", "grade": grade})
    return {"grades": grades}


def _share_that_is_right(answer: str, ground: str) -> float:
    if _EVASION.search(answer) or not numbers_of(answer) <= numbers_of(ground):
        return 0.0
    return _share(stems_of(answer), stems_of(ground))


def _share(wanted: set[str], there: set[str]) -> float:
    return len(wanted & there) / len(wanted) if wanted else 0.0


def _share_said_once(text: str) -> float:
    words = words_of(text)
    pairs = [*pairwise(words)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


def _nearest(wanted: set[str], stems: Mapping[str, set[str]]) -> str:
    """Number of the sentence that shares most stems, "" when none shares any."""
    best = max(stems, key=lambda number: len(wanted & stems[number]), default="")
    return best if best and wanted & stems[best] else ""


def _features(text: str) -> set[str]:
    """What a vector is made of: the stems of the words, of any length; the characters when there is no word."""
    return {stem_of(word) for word in words_of(text)} or set(text.split())


_JUDGED: Mapping[str, Callable[[Inputs, Sentences], dict[str, Any]]] = {
    "extract_statements": _statements,
    "verify_statements": _verdicts,
    "classify_statements": _classification,
    "grade_contexts": _chunk_verdicts,
    "grade_relevance": _relevance,
    "select_sentences": _needed_sentences,
    "regenerate_questions": _questions,
    "critique_aspect": _aspect,
    "extract_entities": offline_entities.entities,
    "find_entities": offline_entities.found,
    "detect_abstention": _abstention,
    "detect_answerable": offline_entities.answerable,
    "grade_rubric": _rubric_grades,
}
_WRITTEN: Mapping[str, Callable[[Inputs], dict[str, Any]]] = {
    "extract_keyphrases": offline_writer.keyphrases,
    "grade_passage": offline_writer.grades,
    "write_question": offline_writer.first_question,
    "rewrite_question": offline_writer.rewritten,
    "evolve_reasoning": offline_writer.evolved("reasoning"),
    "evolve_conditional": offline_writer.evolved("conditional"),
    "evolve_multi_context": offline_writer.evolved_over_passages,
    "evolve_conversational": offline_writer.typed,
    "evolve_unanswerable": offline_writer.unanswerable,
    "compress_question": offline_writer.compressed,
    "review_question": offline_writer.review,
    "compare_questions": offline_writer.comparison,
    "find_passages": offline_writer.needed,
    "write_answer": offline_writer.reference_answer,
    "answer_unaided": offline_writer.unaided,
    "degrade_answer": offline_writer.degraded,
    "pad_context": offline_writer.padding,
}
_TITLES = list(dict.fromkeys(answer.__name__ for answer in ANSWERS.values()))
_READS: Mapping[str, set[str]] = {
    "write_question": {"passage", "keyphrase"},
    "rewrite_question": {"question", "feedback", "passages"},
    **{step: {"question", "passages"} for step in ANSWERS if step.startswith("evolve_")},
    "compress_question": {"question"},
    "answer_unaided": {"question"},
    "degrade_answer": {"question", "answer"},
}
"""What steps read whose answers are of one class."""
