"""OfflineJudge: a chat model that answers every step by word overlap, without network, key or model.

Deterministic, and used through the same steps and parser as a real model. A smoke test and a baseline, not a measure of
quality; every report made with it contains a note that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.json_schema import dereference_refs
from pydantic import BaseModel

from langchain_rageval.models import offline_conversations, offline_questions, offline_writer
from langchain_rageval.models.invented_answer import invent_answer
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import read_inputs, read_schema, restore_control_tokens
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.run.usage import tokens_in
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import NUMBERED_MARK, split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of

OfflineAnswer = Callable[[Mapping[str, Any]], Any]
"""Function from the inputs of a step of the user, its contexts as a list of str, to an answer or a mapping."""

_Inputs = Mapping[str, Any]
_Sentences = Mapping[str, str]

_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)
_EVASION = re.compile(
    r"\b(не знаю|не могу ответить|нет (?:таких )?(?:сведений|данных|информации)|не (?:сказано|указано|найден\w*)"
    r"|(?:do not|don't|does not|doesn't) (?:know|say|answer)|(?:cannot|can't) answer|no (?:answer|information)"
    r"|not (?:specified|mentioned))\b",
    re.IGNORECASE,
)
_ENOUGH = 0.6
_SOME = 0.4
_MOST_SENTENCES = 3  # of a concise answer, for one sentence of the question


class OfflineJudge(BaseChatModel):
    """A chat model that answers the steps of metrics and test sets by overlap of word stems (their first five letters).

    As a judge:

    - Statements are the sentences of the text, without questions, evasions and marks of citations such as `[1]`.
    - A statement is supported if at least 60% of its stems occur in the one or two sentences that share most of them,
      contradicted if these sentences contain other numbers, absent otherwise. Statements of answer and reference are
      compared one to one by the same measure.
    - A sentence is needed if it contains at least 40% of the question's stems; a chunk is useful if it contains as many
      of the answer's stems, or of the question's if there is no answer. The relevance grade of a chunk is the share of
      the question's stems that it contains.
    - The questions that an answer answers are its own sentences with a question mark.
    - A question with a pointing word, or of at most three words, gets the last name of the conversation before it in
      brackets; any other question of a conversation stays as it is.
    - Aspects: conciseness (at most three sentences for one of the question), correctness (no numbers that the contexts
      lack) and coherence (no repeated sentence). No other aspect applies.
    - Entities are numbers, and capitalized words within a sentence; found where all their stems occur in one sentence.
    - A text abstains if it states nothing; contexts are an answer if one sentence contains 60% of the question's stems.
    - Rubric criteria: correctness is the share of the answer's stems that occur in the reference, or else in the
      contexts (the lowest grade for an evasion, or for a number that is missing there); completeness is the share of
      the reference's stems, or else of the question's, that occur in the answer; readability is the share of distinct
      pairs of neighbouring words. Any other criterion is graded as correctness.
    - In conversations, statements contradict each other if they share 60% of the stems of the shorter one, and their
      numbers differ or one is negated; sentences in the first person are facts of the user, asked again by a
      question that overlaps; questions and wishes are needs, met if the next turn of the assistant states something.

    As a writer it asks what is known about a phrase of the passage, how that phrase is connected with, changed by or
    similar to another phrase (reasoning, conditional, multi_context), which number belongs to it (numbers), or what
    will become of it in a year that no passage names (unanswerable). Styles and personas add fixed words, leave some
    out or swap letters; a follow-up replaces the first phrase of its question by a pointing word. Its answer is the one
    or two sentences that share most with the question; without passages it knows nothing. As a critic it accepts a
    question as standalone if it contains no pointing word ("this", "in the text"), and as answerable if 60% of its
    stems and all its numbers occur in the passages; a question is broader than another if it has new stems, deeper if
    it also newly asks why or how. It writes Russian about Russian passages, English about all others.

    A step of the user is answered by its own `offline` function, else by an invented answer that fits the schema and
    means nothing; a report then has a note that names the step.

    Attributes:
        answers: functions that answer steps of the user, by the title of the schema; set by `Step`.
    """

    answers: Mapping[str, OfflineAnswer] | None = None

    @property
    def _llm_type(self) -> str:
        return "rageval-offline"

    @property
    def report_note(self) -> str:
        """Note that is added to every report made with this judge."""
        return "Judged offline by word overlap: a smoke test and a baseline to beat, not a measure of quality."

    @property
    def testset_note(self) -> str:
        """Note that is added to every test set made with this writer or critic."""
        return "Written offline by word overlap: a smoke test, not questions that users would ask."

    def invents(self, answer: type[BaseModel]) -> bool:
        """Return True if the answers of this class are invented: its step is not one of the package's."""
        return answer.__name__ not in (self.answers or {}) and not _is_packaged(answer.__name__, answer.model_fields)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[Any, Any]:
        """Return a Runnable that gives an invented answer, which fits the schema and means nothing.

        Raises:
            NotImplementedError: if `include_raw` is set.
        """
        if include_raw:
            raise NotImplementedError("OfflineJudge has no raw reply: leave out include_raw")
        written = dereference_refs(convert_to_json_schema(schema))
        is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
        parser = PydanticOutputParser(pydantic_object=schema) if is_model else JsonOutputParser()
        return self.bind(answer_schema=written) | parser

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = json.dumps(self._answer(messages, kwargs.get("answer_schema")), ensure_ascii=False)
        read, written = tokens_in(*(message.text for message in messages)), tokens_in(reply)
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply, usage_metadata=usage))])

    def _answer(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any] | None) -> Any:
        """Return the answer to a request as JSON data; invented if it is not a request of a step."""
        if schema is not None:
            return invent_answer(schema)
        human = next((message.text for message in messages if message.type == "human"), "")
        schema = read_schema(human)
        if schema is not None:
            return answer_request(schema, human, (self.answers or {}).get(schema["title"]))
        if (schema := _schema_of_parser(messages)) is not None:
            return invent_answer(schema)
        raise ValueError(
            "OfflineJudge answers only the steps of langchain_rageval, and this request is not one of them; in a chain "
            "of your own, it invents an answer for OfflineJudge().with_structured_output(schema), or if the prompt has "
            "the format instructions of a parser"
        )

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, **kwargs)


def _schema_of_parser(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """Return the JSON schema in format instructions of a parser: the last line that is one; None if there is none."""
    for line in reversed([line for message in messages for line in message.text.split("\n") if line.startswith("{")]):
        with suppress(ValueError):
            schema = json.loads(line)
            if isinstance(schema.get("properties"), dict):
                return dereference_refs(schema)
    return None


def invention_note(step: str) -> str:
    """Return the note of a report in which the answers of a step are invented."""
    return f"The offline judge invents the answers of {step}: they fit the schema and mean nothing, nor do the scores."


def answer_request(schema: Mapping[str, Any], human: str, answer: OfflineAnswer | None = None) -> Any:
    """Return an answer to a request of any step, as JSON data.

    Args:
        schema: JSON schema of the answer.
        human: human message of the request.
        answer: function of a step of the user, from its inputs to the answer; without one, the answer is that of
            `answer_offline` if the package has such a step, and else invented.
    """
    if answer is None:
        known = _is_packaged(schema["title"], schema.get("properties", {}))
        return answer_offline(schema["title"], human) if known else invent_answer(schema)
    inputs, chunks = read_inputs(human), list[list[str]]()
    for number, sentence in _SENTENCE.findall(human):
        if (chunk := int(number.partition(".")[0])) > len(chunks):
            chunks += [[] for _ in range(chunk - len(chunks))]
        chunks[chunk - 1].append(restore_control_tokens(sentence))
    result = answer(inputs | ({"contexts": [" ".join(chunk) for chunk in chunks]} if chunks else {}))
    return result.model_dump(mode="json") if isinstance(result, BaseModel) else result


def _is_packaged(title: str, fields: Collection[str]) -> bool:
    """Return True if a step of the package has answers of this title with these fields."""
    return any(
        answer.__name__ == title and answer.model_fields.keys() == set(fields) for answer in ANSWER_SCHEMAS.values()
    )


def answer_offline(title: str, human: str) -> dict[str, Any]:
    """Return the offline judge's answer to a request, as the JSON object of the answer's schema.

    Args:
        title: title of the answer's schema, such as "Verdicts".
        human: human message of the request.

    Raises:
        ValueError: if no step has an answer of this title.
    """
    inputs = read_inputs(human)
    step = _identify_step(title, inputs, human)
    if step in _WRITTEN:
        return _WRITTEN[step](inputs)
    contexts = {number: restore_control_tokens(text) for number, text in _SENTENCE.findall(human)}
    return _JUDGED[step](inputs, contexts)


def _identify_step(title: str, inputs: _Inputs, human: str) -> str:
    """Return the step that sent a request.

    Steps with the same answer class are distinguished by the keys of their inputs, then by the packaged instruction.
    With instructions of the user's own, the first step with the same keys is returned.
    """
    steps = [step for step, answer in ANSWER_SCHEMAS.items() if answer.__name__ == title]
    if not steps:
        raise ValueError(f"OfflineJudge answers {', '.join(_TITLES)}, not {title}")
    candidates = [step for step in steps if inputs.keys() in (_READS.get(step, inputs.keys()), _reads_again(step))]
    if len(candidates) < 2:
        return (candidates or steps)[0]
    sets = (PromptSet.default(language) for language in ("ru", "en", *sorted(languages())))
    matches = (step for prompts in sets for step in candidates if prompts.get(step).instruction in human)
    return next(matches, candidates[0])


def _reads_again(step: str) -> set[str]:
    """Return the inputs of the second try of an evolution, which also reads the feedback on the first one."""
    return _READS[step] | {"feedback"} if step.startswith("evolve_") and step in _READS else set()


def _assertions(text: object) -> list[str]:
    """Return the sentences of a text without questions and evasions."""
    sentences = split_sentences(str(text))
    return [s for s in sentences if words_of(s) and not s.endswith(("?", "？")) and not _EVASION.search(s)]


def _statements(inputs: _Inputs, _contexts: _Sentences) -> dict[str, Any]:
    return {"statements": _assertions(NUMBERED_MARK.sub("", str(inputs["text"])))}


def _verdicts(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    stems = {number: stems_of(sentence) for number, sentence in contexts.items()}
    return {
        "verdicts": [_verdict(item["statement"], str(item["text"]), stems, contexts) for item in inputs["statements"]]
    }


def _verdict(number: int, text: str, stems: Mapping[str, set[str]], contexts: _Sentences) -> dict[str, Any]:
    wanted = stems_of(text)
    first = _nearest(wanted, stems)
    second = _nearest(wanted - stems.get(first, set()), {n: s for n, s in stems.items() if n != first})
    cited = [n for n in (first, second) if n]
    shared = wanted & set().union(*(stems[n] for n in cited))
    share = _share(wanted, shared)
    known_numbers = numbers_of(" ".join(contexts[n] for n in cited))
    verdict = "absent" if share < _ENOUGH else "supported" if numbers_of(text) <= known_numbers else "contradicted"
    return {
        "statement": number,
        "reason": f"{len(shared)}/{len(wanted)}",
        "evidence": cited if verdict != "absent" else [],
        "verdict": verdict,
    }


def _classification(inputs: _Inputs, _contexts: _Sentences) -> dict[str, Any]:
    references = {int(item["reference"]): str(item["text"]) for item in inputs["reference_statements"]}
    hits: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    for item in inputs["answer_statements"]:
        text = str(item["text"])
        same = [number for number, reference in references.items() if _same(text, reference)]
        if same:
            hits.append({"reason": "overlap", "answer": item["answer"], "references": same})
        else:
            misses.append({"reason": "no overlap", "answer": item["answer"]})
    covered = {number for hit in hits for number in hit["references"]}
    uncovered = [{"reason": "no overlap", "reference": number} for number in references if number not in covered]
    return {"TP": hits, "FP": misses, "FN": uncovered}


def _same(one: str, other: str) -> bool:
    """Return True if two statements share 60% of the stems of the shorter statement and have no conflicting numbers."""
    stems, others = stems_of(one), stems_of(other)
    shorter = min(len(stems), len(others))
    numbers = [numbers_of(text) for text in (one, other)]
    enough = bool(shorter) and len(stems & others) / shorter >= _ENOUGH
    return enough and (numbers[0] <= numbers[1] or numbers[1] <= numbers[0])


def _chunk_verdicts(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    wanted = stems_of(str(inputs["answer"])) or stems_of(str(inputs["question"]))
    shared = {chunk: len(wanted & stems) for chunk, stems in _chunks(contexts).items()}
    return {
        "verdicts": [
            {"context": chunk, "reason": f"{n}/{len(wanted)}", "useful": bool(wanted) and n >= _SOME * len(wanted)}
            for chunk, n in shared.items()
        ]
    }


def _relevance(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    lowest, highest = inputs["scale"]
    wanted = stems_of(str(inputs["question"]))
    grades = []
    for chunk, stems in _chunks(contexts).items():
        shared = len(wanted & stems)
        grade = lowest + round((highest - lowest) * shared / max(1, len(wanted)))
        grades.append({"context": chunk, "reason": f"{shared}/{len(wanted)}", "grade": grade})
    return {"grades": grades}


def _chunks(contexts: _Sentences) -> dict[int, set[str]]:
    """Map the number of each chunk to the stems (first five letters) of its words."""
    chunks: dict[int, set[str]] = {}
    for number, sentence in contexts.items():
        chunks.setdefault(int(number.partition(".")[0]), set()).update(stems_of(sentence))
    return chunks


def _needed_sentences(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    wanted = stems_of(str(inputs["question"]))
    needed = [n for n, text in contexts.items() if wanted and len(wanted & stems_of(text)) >= _SOME * len(wanted)]
    return {"reason": f"at least {_SOME:.0%} of the question's words", "sentences": needed}


def _questions(inputs: _Inputs, _contexts: _Sentences) -> dict[str, Any]:
    assertions = _assertions(inputs["answer"])[: int(inputs["count"])]
    questions = [sentence.rstrip(".!…。！ ") + "?" for sentence in assertions]
    return {"evasive": not questions, "questions": questions}


def _aspect(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    answer, aspect = str(inputs["answer"]), str(inputs["aspect"])
    sentences = split_sentences(answer)
    russian = detect_language(str(inputs["question"])) == "ru"
    length = f"предложений: {len(sentences)}" if russian else f"{len(sentences)} sentences"
    if aspect == "conciseness":
        parts = max(1, len(split_sentences(str(inputs["question"]))))
        return {"reason": length, "verdict": len(sentences) <= _MOST_SENTENCES * parts}
    if aspect == "correctness":
        others = numbers_of(answer) - numbers_of(" ".join(contexts.values()))
        reason = f"других чисел: {len(others)}" if russian else f"{len(others)} other numbers"
        return {"reason": reason, "verdict": not (contexts and others)}
    if aspect == "coherence":
        return {"reason": length, "verdict": len(set(sentences)) == len(sentences)}
    unknown = "совпадение слов этого не покажет" if russian else "word overlap cannot tell"
    return {"reason": unknown, "verdict": False}


def _abstention(inputs: _Inputs, _contexts: _Sentences) -> dict[str, Any]:
    assertions = _assertions(inputs["answer"])
    russian = detect_language(str(inputs["question"])) == "ru"
    reason = f"утверждений: {len(assertions)}" if russian else f"{len(assertions)} statements"
    return {"reason": reason, "abstains": not assertions}


def _rubric_grades(inputs: _Inputs, contexts: _Sentences) -> dict[str, Any]:
    question, answer, reference = (str(inputs[name]) for name in ("question", "answer", "reference"))
    ground = reference or " ".join(contexts.values())
    shares = {
        "correctness": partial(_correct_share, answer, ground or question),
        "completeness": partial(_share, stems_of(reference or question), stems_of(answer)),
        "readability": partial(_distinct_share, answer),
    }
    grades = []
    for criterion in inputs["criteria"]:
        lowest, *_, highest = sorted(map(int, criterion["grades"]))
        share = shares.get(criterion["criterion"], shares["correctness"])()
        grade = lowest + round(share * (highest - lowest))
        grades.append({"criterion": criterion["criterion"], "reason": f"{share:.0%}", "grade": grade})
    return {"grades": grades}


def _correct_share(answer: str, ground: str) -> float:
    """Return the share of the answer's stems that occur in a text; 0 for an evasion or a number missing in the text."""
    if _EVASION.search(answer) or not numbers_of(answer) <= numbers_of(ground):
        return 0.0
    return _share(stems_of(answer), stems_of(ground))


def _share(wanted: set[str], present: set[str]) -> float:
    return len(wanted & present) / len(wanted) if wanted else 0.0


def _distinct_share(text: str) -> float:
    """Return the share of distinct pairs among all pairs of neighbouring words; 1 for fewer than two words."""
    pairs = [*pairwise(words_of(text))]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


def _nearest(wanted: set[str], stems: Mapping[str, set[str]]) -> str:
    """Return the number of the sentence that shares most stems with a text; "" if no sentence shares any stem."""
    best = max(stems, key=lambda number: len(wanted & stems[number]), default="")
    return best if best and wanted & stems[best] else ""


_JUDGED: Mapping[str, Callable[[_Inputs, _Sentences], dict[str, Any]]] = {
    "extract_statements": _statements,
    "extract_turn_statements": _statements,
    "rewrite_question": offline_questions.name_the_subject,
    "verify_statements": _verdicts,
    "classify_statements": _classification,
    "grade_contexts": _chunk_verdicts,
    "grade_relevance": _relevance,
    "select_sentences": _needed_sentences,
    "regenerate_questions": _questions,
    "regenerate_turn_questions": _questions,
    "critique_aspect": _aspect,
    "extract_entities": offline_questions.list_entities,
    "find_entities": offline_questions.locate_entities,
    "detect_abstention": _abstention,
    "detect_answerable": offline_questions.judge_answerability,
    "grade_rubric": _rubric_grades,
    "list_turn_facts": lambda inputs, _: offline_conversations.read_dialogue(inputs, _assertions),
    "find_contradictions": lambda inputs, _: offline_conversations.compare_claims(inputs),
    "check_user_facts": lambda inputs, _: offline_conversations.follow_facts(inputs),
    "check_needs": lambda inputs, _: offline_conversations.follow_needs(inputs, _assertions),
}
_WRITTEN: Mapping[str, Callable[[_Inputs], dict[str, Any]]] = {
    "extract_keyphrases": offline_writer.pick_keyphrases,
    "grade_passage": offline_writer.grade_prose,
    "write_question": offline_writer.ask_about_keyphrase,
    "reword_question": offline_writer.reword_question,
    "evolve_reasoning": partial(offline_writer.join_phrase, template="reasoning"),
    "evolve_conditional": partial(offline_writer.join_phrase, template="conditional"),
    "evolve_multi_context": offline_writer.connect_passages,
    "evolve_conversational": offline_writer.make_conversational,
    "evolve_unanswerable": offline_writer.make_unanswerable,
    "evolve_numbers": offline_writer.ask_for_numbers,
    "evolve_off_topic": offline_questions.ask_off_topic,
    "evolve_misspelt": offline_questions.misspell,
    "evolve_terse": offline_questions.keywords,
    "evolve_formal": partial(offline_questions.reframe, style="formal"),
    "evolve_angry": partial(offline_questions.reframe, style="angry"),
    "evolve_code_mixed": partial(offline_questions.reframe, style="code-mixed"),
    "evolve_voice": partial(offline_questions.reframe, style="voice"),
    "evolve_persona": offline_questions.speak_as_persona,
    "evolve_follow_up": offline_questions.write_conversation,
    "review_follow_up": offline_questions.assess_follow_up,
    "propose_personas": offline_questions.list_personas,
    "compress_question": offline_writer.shorten_question,
    "review_question": offline_writer.assess_question,
    "compare_questions": offline_writer.contrast_questions,
    "find_passages": offline_writer.select_passages,
    "write_answer": offline_writer.quote_answer,
    "answer_unaided": offline_writer.admit_ignorance,
    "degrade_answer": offline_writer.halve_answer,
    "pad_context": offline_writer.write_padding,
}
_TITLES = list(dict.fromkeys(answer.__name__ for answer in ANSWER_SCHEMAS.values()))
_READS: Mapping[str, set[str]] = {
    "extract_statements": {"question", "text"},
    "extract_turn_statements": {"history", "question", "text"},
    "regenerate_questions": {"answer", "count"},
    "regenerate_turn_questions": {"history", "answer", "count"},
    "write_question": {"passage", "keyphrase"},
    "reword_question": {"question", "feedback", "passages"},
    **{step: {"question", "passages"} for step in ANSWER_SCHEMAS if step.startswith("evolve_")},
    "evolve_persona": {"question", "passages", "persona"},
    "evolve_follow_up": {"question", "passages", "earlier"},
    "compress_question": {"question"},
    "answer_unaided": {"question"},
    "degrade_answer": {"question", "answer"},
}
"""Input keys of the steps that share an answer class with another step."""
