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
from typing import Any, NamedTuple

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.json_schema import dereference_refs
from pydantic import BaseModel

from langchain_rageval.data.notes import Note
from langchain_rageval.models import offline_conversations, offline_questions, offline_writer
from langchain_rageval.models.invented_answer import invent_answer
from langchain_rageval.models.offline_overlap import ENOUGH, SOME, cover, stem_share, tally
from langchain_rageval.models.offline_writer import fill_template
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import read_inputs, read_schema, restore_control_tokens
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.run.usage import tokens_in
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import NUMBERED_MARK, assertions, is_evasive, split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of

OfflineAnswer = Callable[[Mapping[str, Any]], Any]
"""Function from the inputs of a step of the user, its contexts as a list of str, to an answer or a mapping."""

_Inputs = Mapping[str, Any]
_Items = Sequence[_Inputs]
_Sentences = Mapping[str, str]

_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)
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
        return Note("offline-judge")

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
    reply = _REPLIES[_identify_step(title, inputs, human)]
    answer = reply.function(*(_read(name, inputs, human) for name in reply.reads.split()))
    return {reply.field: answer} if reply.field else answer


def _read(name: str, inputs: _Inputs, human: str) -> Any:
    """Return the value of a name in `_Reply.reads`."""
    if name == "sentences":
        return {number: restore_control_tokens(text) for number, text in _SENTENCE.findall(human)}
    if name == "texts":
        return [str(item["text"]) for item in inputs["passages"]]
    return inputs[name] if isinstance(inputs[name], list) else str(inputs[name])


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


def _verdicts(statements: _Items, sentences: _Sentences) -> list[dict[str, Any]]:
    stems = {number: stems_of(sentence) for number, sentence in sentences.items()}
    return [_verdict(item["statement"], str(item["text"]), stems, sentences) for item in statements]


def _verdict(number: int, text: str, stems: Mapping[str, set[str]], sentences: _Sentences) -> dict[str, Any]:
    wanted = stems_of(text)
    cited, present = cover(wanted, stems, most=2)
    known_numbers = numbers_of(" ".join(sentences[n] for n in cited))
    stated = "supported" if numbers_of(text) <= known_numbers else "contradicted"
    is_absent = stem_share(wanted, present) < ENOUGH
    return {
        "statement": number,
        "reason": tally(wanted, present),
        "evidence": [] if is_absent else cited,
        "verdict": "absent" if is_absent else stated,
    }


def _classification(reference_statements: _Items, answer_statements: _Items) -> dict[str, Any]:
    references = {int(item["reference"]): str(item["text"]) for item in reference_statements}
    hits: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    for item in answer_statements:
        text = str(item["text"])
        same = [number for number, reference in references.items() if _same(text, reference)]
        if same:
            hits.append({"reason": "overlap", "answer": item["answer"], "references": same})
        else:
            kind = "contradicts" if any(_same_but_numbers(text, one) for one in references.values()) else "extra"
            misses.append({"reason": "no overlap", "answer": item["answer"], "kind": kind, "references": []})
    covered = {number for hit in hits for number in hit["references"]}
    uncovered = [{"reason": "no overlap", "reference": number} for number in references if number not in covered]
    return {"TP": hits, "FP": misses, "FN": uncovered}


def _same(one: str, other: str) -> bool:
    """Return True if two statements share 60% of the stems of the shorter statement and have no conflicting numbers."""
    numbers = [numbers_of(text) for text in (one, other)]
    return _same_but_numbers(one, other) and (numbers[0] <= numbers[1] or numbers[1] <= numbers[0])


def _same_but_numbers(one: str, other: str) -> bool:
    shorter, longer = sorted(map(stems_of, (one, other)), key=len)
    return stem_share(shorter, longer) >= ENOUGH


def _chunk_verdicts(question: str, answer: str, sentences: _Sentences) -> list[dict[str, Any]]:
    wanted = stems_of(answer) or stems_of(question)
    return [
        {"context": chunk, "reason": tally(wanted, stems), "useful": stem_share(wanted, stems) >= SOME}
        for chunk, stems in _chunks(sentences).items()
    ]


def _relevance(question: str, scale: Sequence[int], sentences: _Sentences) -> list[dict[str, Any]]:
    lowest, highest = scale
    wanted = stems_of(question)
    grades = []
    for chunk, stems in _chunks(sentences).items():
        grade = lowest + round((highest - lowest) * len(wanted & stems) / max(1, len(wanted)))
        grades.append({"context": chunk, "reason": tally(wanted, stems), "grade": grade})
    return grades


def _chunks(sentences: _Sentences) -> dict[int, set[str]]:
    """Map the number of each chunk to the stems (first five letters) of its words."""
    chunks: dict[int, set[str]] = {}
    for number, sentence in sentences.items():
        chunks.setdefault(int(number.partition(".")[0]), set()).update(stems_of(sentence))
    return chunks


def _needed_sentences(question: str, sentences: _Sentences) -> dict[str, Any]:
    wanted = stems_of(question)
    needed = [number for number, text in sentences.items() if stem_share(wanted, stems_of(text)) >= SOME]
    return {"reason": f"at least {SOME:.0%} of the question's words", "sentences": needed}


def _questions(answer: str, count: str) -> dict[str, Any]:
    questions = [sentence.rstrip(".!…。！ ") + "?" for sentence in assertions(str(answer))[: int(count)]]
    return {"evasive": not questions, "questions": questions}


def _aspect(question: str, answer: str, aspect: str, sentences: _Sentences) -> dict[str, Any]:
    parts = split_sentences(answer)
    russian = detect_language(question) == "ru"
    length = f"предложений: {len(parts)}" if russian else f"{len(parts)} sentences"
    if aspect == "conciseness":
        asked = max(1, len(split_sentences(question)))
        return {"reason": length, "verdict": len(parts) <= _MOST_SENTENCES * asked}
    if aspect == "correctness":
        others = numbers_of(answer) - numbers_of(" ".join(sentences.values()))
        reason = f"других чисел: {len(others)}" if russian else f"{len(others)} other numbers"
        return {"reason": reason, "verdict": not (sentences and others)}
    if aspect == "coherence":
        return {"reason": length, "verdict": len(set(parts)) == len(parts)}
    unknown = "совпадение слов этого не покажет" if russian else "word overlap cannot tell"
    return {"reason": unknown, "verdict": False}


def _abstention(question: str, answer: str) -> dict[str, Any]:
    count = len(assertions(answer))
    reason = f"утверждений: {count}" if detect_language(question) == "ru" else f"{count} statements"
    return {"reason": reason, "abstains": not count}


def _rubric_grades(
    question: str, answer: str, reference: str, criteria: _Items, sentences: _Sentences
) -> list[dict[str, Any]]:
    ground = reference or " ".join(sentences.values()) or question
    shares = {
        "correctness": partial(_correct_share, answer, ground),
        "completeness": partial(stem_share, stems_of(reference or question), stems_of(answer)),
        "readability": partial(_distinct_share, answer),
    }
    grades = []
    for criterion in criteria:
        lowest, *_, highest = sorted(map(int, criterion["grades"]))
        found = shares.get(criterion["criterion"], shares["correctness"])()
        grade = lowest + round(found * (highest - lowest))
        grades.append({"criterion": criterion["criterion"], "reason": f"{found:.0%}", "grade": grade})
    return grades


def _correct_share(answer: str, ground: str) -> float:
    """Return the share of the answer's stems that occur in a text; 0 for an evasion or a number missing in the text."""
    if is_evasive(answer) or not numbers_of(answer) <= numbers_of(ground):
        return 0.0
    return stem_share(stems_of(answer), stems_of(ground))


def _distinct_share(text: str) -> float:
    """Return the share of distinct pairs among all pairs of neighbouring words; 1 for fewer than two words."""
    pairs = [*pairwise(words_of(text))]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


class _Reply(NamedTuple):
    """Offline answer of a step.

    Attributes:
        reads: arguments of the function: names of inputs, which are lists or else texts; "texts" for those of the
            passages, "sentences" for those of the contexts by their numbers.
        function: function that answers.
        field: the only field of the answer; "" if the function returns all fields.
    """

    reads: str
    function: Callable[..., Any]
    field: str = ""


def _new_question(reads: str, function: Callable[..., str]) -> _Reply:
    return _Reply(reads, function, "question")


_STATEMENTS = _Reply("text", lambda text: assertions(NUMBERED_MARK.sub("", text)), "statements")
_REPLIES: Mapping[str, _Reply] = {
    **dict.fromkeys(("extract_statements", "extract_turn_statements"), _STATEMENTS),
    "rewrite_question": _Reply("question history", offline_questions.name_the_subject),
    "verify_statements": _Reply("statements sentences", _verdicts, "verdicts"),
    "classify_statements": _Reply("reference_statements answer_statements", _classification),
    "grade_contexts": _Reply("question answer sentences", _chunk_verdicts, "verdicts"),
    "grade_relevance": _Reply("question scale sentences", _relevance, "grades"),
    "select_sentences": _Reply("question sentences", _needed_sentences),
    **dict.fromkeys(("regenerate_questions", "regenerate_turn_questions"), _Reply("answer count", _questions)),
    "critique_aspect": _Reply("question answer aspect sentences", _aspect),
    "extract_entities": _Reply("text", offline_questions.list_entities, "entities"),
    "find_entities": _Reply("entities sentences", offline_questions.locate_entities, "found"),
    "detect_abstention": _Reply("question answer", _abstention),
    "detect_answerable": _Reply("question sentences", offline_questions.judge_answerability),
    "grade_rubric": _Reply("question answer reference criteria sentences", _rubric_grades, "grades"),
    "list_turn_facts": _Reply("turns", offline_conversations.read_dialogue),
    "find_contradictions": _Reply("statements", offline_conversations.compare_claims, "contradictions"),
    "check_user_facts": _Reply("facts turns", offline_conversations.follow_facts, "verdicts"),
    "check_needs": _Reply("needs turns", offline_conversations.follow_needs, "verdicts"),
    "extract_keyphrases": _Reply("passage", offline_writer.key_phrases, "keyphrases"),
    "grade_passage": _Reply("passage", offline_writer.grade_prose),
    "write_question": _new_question("passage keyphrase", partial(fill_template, "write")),
    "reword_question": _new_question("question texts", offline_writer.reword_question),
    "evolve_reasoning": _new_question("question texts", partial(offline_writer.join_phrase, "reasoning")),
    "evolve_conditional": _new_question("question texts", partial(offline_writer.join_phrase, "conditional")),
    "evolve_multi_context": _new_question("question texts", offline_writer.connect_passages),
    "evolve_conversational": _new_question("question", offline_writer.make_conversational),
    "evolve_unanswerable": _new_question("question texts", offline_writer.make_unanswerable),
    "evolve_numbers": _new_question("question texts", offline_writer.ask_for_numbers),
    "evolve_off_topic": _new_question("question texts", offline_questions.ask_off_topic),
    "evolve_misspelt": _new_question("question", offline_questions.misspell),
    "evolve_terse": _new_question("question", lambda question: " ".join(offline_writer.topics_of(question))),
    **{
        f"evolve_{style}": _new_question("question", partial(offline_questions.reframe, style))
        for style in ("formal", "angry", "code_mixed", "voice", "persona")
    },
    "evolve_follow_up": _Reply("question earlier", offline_questions.write_conversation),
    "review_follow_up": _Reply("standalone question turns", offline_questions.assess_follow_up),
    "propose_personas": _Reply("texts count", offline_questions.list_personas, "personas"),
    "compress_question": _new_question("question", offline_writer.shorten_question),
    "review_question": _Reply("question texts", offline_writer.assess_question),
    "compare_questions": _Reply("parent question", offline_writer.contrast_questions),
    "find_passages": _Reply("question passages", offline_writer.select_passages),
    "write_answer": _Reply("question texts", offline_writer.quote_answer),
    "answer_unaided": _Reply("question", partial(fill_template, "unknown"), "answer"),
    "degrade_answer": _Reply("answer", offline_writer.halve_answer, "answer"),
    "pad_context": _Reply("question context", offline_writer.write_padding, "sentences"),
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
