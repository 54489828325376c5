"""OfflineJudge: a chat model that answers the requests of this package by word overlap, without network, key or model.

The answers are deterministic. Metrics and test sets send the same requests as to a real model, and parse the answers in
the same way. Use the judge for smoke tests and as a baseline, not to measure quality. Every report made with it
contains a note that says so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
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

from langchain_rageval.data.notes import Note
from langchain_rageval.models import offline_verdicts as verdicts
from langchain_rageval.models import offline_writer as writer
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import read_inputs, read_schema, restore_control_tokens
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.run.usage import tokens_in

OfflineAnswer = Callable[[Mapping[str, Any]], Any]
"""Function from the inputs of a step of the user, its contexts as a list of str, to an answer or a mapping."""

_Inputs = Mapping[str, Any]
_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)
_STEPS: dict[str, list[str]] = {}  # by the title of their answers
for _step, _answer in ANSWER_SCHEMAS.items():
    _STEPS.setdefault(_answer.__name__, []).append(_step)


class OfflineJudge(BaseChatModel):
    """A chat model that answers the steps of metrics and test sets by overlap of word stems (their first five letters).

    A step is a question to a model, such as "which statements do the contexts support?". As a judge:

    - Statements are the sentences of the text, without questions, evasions and marks of citations such as `[1]`.
    - A statement is compared with the one or two sentences that share most stems with it. If these sentences contain at
      least 60% of its stems, the statement is supported, or contradicted if the sentences lack a number of the
      statement. Otherwise the statement is absent. Statements of answer and reference are compared one to one by the
      same measure.
    - A context sentence is needed to answer the question if it contains at least 40% of the question's stems. A chunk
      is useful if it contains at least 40% of the answer's stems, or of the question's stems if there is no answer. The
      relevance grade of a chunk is the share of the question's stems that it contains.
    - The questions generated from an answer are the sentences of the answer with a question mark added.
    - A question of a conversation with at most three words, or with a word such as "it" or "this", gets the last name
      that the conversation mentioned before, in brackets. Any other question stays as it is.
    - Aspects of an answer: conciseness (at most three sentences for each sentence of the question), correctness (no
      number that the contexts lack) and coherence (no repeated sentence). Any other aspect does not hold.
    - Entities are numbers, and capitalized words within a sentence. An entity is found if all its stems occur in one
      sentence.
    - A text abstains if it contains no statement. Contexts answer a question if one sentence contains 60% of its stems.
    - Rubric criteria: correctness is the share of the answer's stems that occur in the reference (without a reference,
      in the contexts), with the lowest grade for an evasion or for a number missing there. Completeness is the share of
      the reference's stems (without a reference, of the question's stems) that occur in the answer. Readability is the
      share of distinct pairs of neighbouring words. Any other criterion is graded as correctness.
    - In conversations, two statements contradict each other if they share 60% of the stems of the shorter statement,
      and their numbers differ or one statement is negated. The user's sentences in the first person are facts; the
      assistant asks for a fact again if its question overlaps with the fact. The user's questions and wishes are needs;
      a need is met if the assistant's next turn contains a statement.

    As a writer, the model asks what is known about a phrase of the passage, how the phrase is connected with, changed
    by or similar to another phrase (reasoning, conditional, multi_context), which number belongs to the phrase
    (numbers), or what will become of it in a year that no passage names (unanswerable). The style or persona of a
    question adds fixed words to the question, omits words (terse) or swaps letters (misspelt); a follow-up replaces the
    first phrase of its question by a pronoun. The answer is the one or two sentences that share most with the question;
    without passages there is no answer. As a critic (reviewer of generated questions), the model accepts a question as
    standalone if it contains no words such as "this" or "in the text", and as answerable if 60% of its stems and all
    its numbers occur in the passages. A question is broader than another if it has new stems, and deeper if it also
    newly asks why or how. Questions about Russian passages are in Russian, all other questions in English.

    A step that the user defined as a `Step` is answered by its own `offline` function. Without that function, the
    answer is invented: it fits the schema and has no meaning. The report then has a note that names the step.

    Attributes:
        answers: functions that answer the user's own steps, by the title of the schema; set by `Step`.
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
        """Return True if answers of this class are invented, because neither user nor package gave a rule for them."""
        return answer.__name__ not in (self.answers or {}) and not _is_packaged(answer.__name__, answer.model_fields)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[Any, Any]:
        """Return a Runnable that returns an invented answer, which fits the schema and has no meaning.

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
        if (schema := read_schema(human)) is not None:
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
    """Return the offline answer to a request, as JSON data.

    Args:
        schema: JSON schema of the answer.
        human: human message of the request.
        answer: `offline` function of a step (question to a model) that the user defined, from the step's inputs to the
            answer. None uses `answer_offline` if the package has a rule for the schema, and otherwise invents an
            answer.
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
    return any(ANSWER_SCHEMAS[step].model_fields.keys() == set(fields) for step in _STEPS.get(title, ()))


def answer_offline(title: str, human: str) -> dict[str, Any]:
    """Return the offline judge's answer to a request of the package's metrics and test sets, as a JSON object.

    Args:
        title: title of the answer's schema, such as "Verdicts".
        human: human message of the request.

    Raises:
        ValueError: if the package has no answer class with this title.
    """
    inputs = read_inputs(human)
    step = _identify_step(title, inputs, human)
    function, reads = _REPLIES[step]
    answer = function(*(_read(name, inputs, human) for name in reads.split() if not name.startswith("-")))
    return answer if isinstance(answer, dict) else {next(iter(ANSWER_SCHEMAS[step].model_fields)): answer}


def _read(name: str, inputs: _Inputs, human: str) -> Any:
    """Return the value of a name among the inputs in `_REPLIES`."""
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
    if not (steps := _STEPS.get(title)):
        raise ValueError(f"OfflineJudge answers {', '.join(_STEPS)}, not {title}")
    # the second try of an evolution also reads the feedback on the first one
    again = {"feedback"} if title == "Question" else set[str]()
    candidates = [step for step in steps if inputs.keys() in (_inputs_of(step), _inputs_of(step) | again)]
    if len(candidates) < 2:
        return (candidates or steps)[0]
    sets = (PromptSet.default(language) for language in ("ru", "en", *sorted(languages())))
    matches = (step for prompts in sets for step in candidates if prompts.get(step).instruction in human)
    return next(matches, candidates[0])


_EVOLVED = "question texts"
_RESTYLED = "question -passages"
_REPLIES: Mapping[str, tuple[Callable[..., Any], str]] = {
    "extract_statements": (verdicts.list_statements, "text -question"),
    "extract_turn_statements": (verdicts.list_statements, "text -question -history"),
    "rewrite_question": (verdicts.name_the_subject, "question history"),
    "verify_statements": (verdicts.find_evidence, "statements sentences"),
    "classify_statements": (verdicts.classify, "reference_statements answer_statements"),
    "grade_contexts": (verdicts.grade_chunks, "question answer sentences"),
    "grade_relevance": (verdicts.grade_by_question, "question scale sentences"),
    "select_sentences": (verdicts.list_needed, "question sentences"),
    "regenerate_questions": (verdicts.turn_into_questions, "answer count"),
    "regenerate_turn_questions": (verdicts.turn_into_questions, "answer count -history"),
    "critique_aspect": (verdicts.critique, "question answer aspect sentences"),
    "extract_entities": (verdicts.list_entities, "text"),
    "find_entities": (verdicts.locate_entities, "entities sentences"),
    "detect_abstention": (verdicts.assess_abstention, "question answer"),
    "detect_answerable": (verdicts.judge_answerability, "question sentences"),
    "grade_rubric": (verdicts.grade_criteria, "question answer reference criteria sentences"),
    "list_turn_facts": (verdicts.read_dialogue, "turns"),
    "find_contradictions": (verdicts.compare_claims, "statements"),
    "check_user_facts": (verdicts.follow_facts, "facts turns"),
    "check_needs": (verdicts.follow_needs, "needs turns"),
    "extract_keyphrases": (writer.key_phrases, "passage"),
    "grade_passage": (writer.grade_prose, "passage"),
    "write_question": (partial(writer.fill_template, "write"), "passage keyphrase"),
    "reword_question": (writer.reword_question, f"{_EVOLVED} -feedback"),
    "evolve_reasoning": (partial(writer.join_phrase, "reasoning"), _EVOLVED),
    "evolve_conditional": (partial(writer.join_phrase, "conditional"), _EVOLVED),
    "evolve_multi_context": (writer.connect_passages, _EVOLVED),
    "evolve_thematic": (writer.connect_passages, _EVOLVED),
    "evolve_conversational": (writer.make_conversational, _RESTYLED),
    "evolve_unanswerable": (writer.make_unanswerable, _EVOLVED),
    "evolve_numbers": (writer.ask_for_numbers, _EVOLVED),
    "evolve_off_topic": (writer.ask_off_topic, _EVOLVED),
    "evolve_misspelt": (writer.misspell, _RESTYLED),
    "evolve_terse": (lambda question: " ".join(writer.topics_of(question)), _RESTYLED),
    **{
        f"evolve_{style}": (partial(writer.reframe, style), _RESTYLED)
        for style in ("formal", "angry", "code_mixed", "voice")
    },
    "evolve_persona": (partial(writer.reframe, "persona"), f"{_RESTYLED} -persona"),
    "evolve_audience": (partial(writer.reframe, "audience"), f"{_RESTYLED} -persona -style -words"),
    "evolve_follow_up": (writer.write_conversation, "question earlier -passages"),
    "review_follow_up": (writer.assess_follow_up, "standalone question turns"),
    "propose_personas": (writer.list_personas, "texts count"),
    "compress_question": (writer.shorten_question, "question"),
    "review_question": (writer.assess_question, "question texts"),
    "compare_questions": (writer.contrast_questions, "parent question"),
    "find_passages": (writer.select_passages, "question passages"),
    "write_answer": (writer.quote_answer, "question texts"),
    "answer_unaided": (partial(writer.fill_template, "unknown"), "question"),
    "degrade_answer": (writer.halve_answer, "answer -question"),
    "pad_context": (writer.write_padding, "question context"),
}
"""Offline answer of each step: the function that answers, and the inputs of a request.

Inputs are lists, or else texts; "texts" stands for those of the passages, "sentences" for those of the contexts by
their numbers; the function does not read those after a hyphen. A function that returns no mapping gives the only field
of the answer.
"""


@cache
def _inputs_of(step: str) -> set[str]:
    """Return the names of the inputs of a step as its requests name them."""
    names = {name.removeprefix("-") for name in _REPLIES[step][1].split()} - {"sentences"}
    return {"passages" if name == "texts" else name for name in names}


# Invented answers: values that fit a JSON schema and mean nothing, for steps that the offline judge does not know.

_TEXTS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00",
    "duration": "P1D",
    "email": "offline@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def invent_answer(schema: Mapping[str, Any]) -> Any:
    """Return a fixed value that fits a JSON schema without `$ref`.

    The value is the first or the smallest allowed value. Lists have one item unless the schema requires more; booleans
    are true. The value may violate the `pattern` of a text, and conditions of validators that the schema does not show.
    """
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return invent_answer(schema[name][0])
    if "allOf" in schema:
        return invent_answer({key: part for one in schema["allOf"] for key, part in one.items()})
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(kind[0] if isinstance(kind, list) else kind, schema)


def _of_type(kind: str, schema: Mapping[str, Any]) -> Any:
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: invent_answer(properties.get(name, {})) for name in schema.get("required", properties)}
        case "array" if "prefixItems" in schema:
            return [invent_answer(item) for item in schema["prefixItems"]]
        case "array":
            count = min(max(1, schema.get("minItems", 1)), schema.get("maxItems", 1_000))
            items = schema.get("items", {})
            choices = items.get("enum") or [invent_answer(items)]  # of several allowed values another one for each item
            return [choices[number % len(choices)] for number in range(count)]
        case "integer":
            return int(_number(schema, 1))
        case "number":
            return _number(schema, 0.5)
        case "string":
            text = _TEXTS.get(schema.get("format", ""), "offline")
            return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
        case "boolean":
            return True
        case "null":
            return None
    raise ValueError(f"{kind!r} is no JSON type: use object, array, string, integer, number, boolean or null")


def _number(schema: Mapping[str, Any], usual: float) -> float:
    """Return a number that a schema allows: the usual one if it does, else one at or near a bound."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
    high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    unit = schema.get("multipleOf", 1 if schema.get("type") == "integer" else 0)
    bounds = [number for number in (low, high, low + usual, high - usual, (low + high) / 2) if math.isfinite(number)]
    candidates = [usual, *bounds, *(math.ceil(bound / unit) * unit for bound in bounds if unit), unit]
    for number in candidates:
        within = schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf)
        inside = schema.get("exclusiveMinimum", -math.inf) < number < schema.get("exclusiveMaximum", math.inf)
        if within and inside and not (unit and number % unit):
            return float(number)
    return usual
