"""Schemas of the judge's answers, and limits of the content of an answer to one request.

The name of a class is the title of its JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, model_validator


class JsonNumber(float):
    """Number in JSON that keeps its spelling, because 1.10 (sentence 10 of chunk 1) and 1.1 (sentence 1) differ.

    Args:
        literal: the number as it is written in the document.
    """

    literal: str

    def __new__(cls, literal: str) -> JsonNumber:
        """Create the number from its spelling."""
        number = super().__new__(cls, literal)
        number.literal = literal
        return number

    def __reduce__(self) -> tuple[type[JsonNumber], tuple[str]]:
        """Return how a copy is created: from the spelling."""
        return JsonNumber, (self.literal,)


def _read_sentence_numbers(value: Any) -> Any:
    """Return a list of texts for a text, such as "1.1, 2.3", for numbers, for lists in a list, and for null."""
    values = [] if value is None else [value] if isinstance(value, str | JsonNumber) else value
    if not isinstance(values, list):
        return values
    if values and all(isinstance(item, list) for item in values):
        values = [number for item in values for number in item]
    return [item.literal if isinstance(item, JsonNumber) else item for item in values]


SentenceNumbers = Annotated[list[str], BeforeValidator(_read_sentence_numbers)]
"""Sentence numbers such as "2.3", which the step compares with those of the contexts; none if the reply says null."""


ITEM_KEYS = frozenset({"statement", "context", "answer", "reference", "entity", "criterion"})
"""Fields of answers that name an item of the request; other whole numbers are grades."""

VerdictLabel = Literal["supported", "contradicted", "absent"]
ExcessKind = Literal["contradicts", "extra"]
FactLabel = Literal["kept", "asked again", "ignored", "not touched"]
NeedLabel = Literal["met", "withdrawn", "unmet"]


def _turn_numbers(value: Any) -> Any:
    """Return a list for a single number, and no numbers for null; other values unchanged."""
    return [] if value is None else [value] if isinstance(value, int | str) else value


TurnNumbers = Annotated[list[int], BeforeValidator(_turn_numbers)]
"""Numbers of turns of a conversation; none if the reply says null."""


def _read_reason(value: Any) -> Any:
    """Return one text for null and for a list of texts; other values unchanged."""
    parts = [] if value is None else value
    return " ".join(parts) if isinstance(parts, list) and all(isinstance(part, str) for part in parts) else value


Reason = Annotated[str, BeforeValidator(_read_reason)]
"""Explanation that decides nothing: a reply may lack it, or list several texts."""


class Statements(BaseModel):
    """Short, self-contained statements of a text."""

    statements: list[str]


class Verdict(BaseModel):
    """What the contexts say of one statement."""

    statement: int
    reason: Reason = ""
    evidence: SentenceNumbers
    verdict: VerdictLabel

    @model_validator(mode="before")
    @classmethod
    def _nothing_supports_what_is_absent(cls, fields: Any) -> Any:
        is_absent = isinstance(fields, dict) and str(fields.get("verdict")).strip().casefold() == "absent"
        return {"evidence": [], **fields} if is_absent else fields


class Verdicts(BaseModel):
    """One verdict for each statement."""

    verdicts: list[Verdict]


class TruePositive(BaseModel):
    """An answer statement that reference statements say in full."""

    reason: Reason = ""
    answer: int
    references: list[int]


class FalsePositive(BaseModel):
    """An answer statement that the reference does not say in full, and the reference statements that it contains."""

    reason: Reason = ""
    answer: int
    kind: ExcessKind
    references: list[int]

    @model_validator(mode="before")
    @classmethod
    def _wrong_unless_extra(cls, fields: Any) -> Any:
        """Take a statement for wrong if the reply does not say of which kind it is."""
        return {"kind": "contradicts", "references": [], **fields} if isinstance(fields, dict) else fields


class FalseNegative(BaseModel):
    """A reference statement that the answer statements together do not say in full."""

    reason: Reason = ""
    reference: int


class Classification(BaseModel):
    """Each answer statement in TP or FP; each reference statement in FN, or said in full by the TPs that name it."""

    TP: list[TruePositive]
    FP: list[FalsePositive]
    FN: list[FalseNegative]


class ContextVerdict(BaseModel):
    """Whether one chunk is useful."""

    context: int
    reason: Reason = ""
    useful: bool


class ContextVerdicts(BaseModel):
    """One verdict for each chunk."""

    verdicts: list[ContextVerdict]


class RelevanceGrade(BaseModel):
    """How relevant one chunk is."""

    context: int
    reason: Reason = ""
    grade: int


class RelevanceGrades(BaseModel):
    """One grade for each chunk."""

    grades: list[RelevanceGrade]


class NeededSentences(BaseModel):
    """Numbers of the context sentences that are needed to answer, such as "2.3"."""

    reason: Reason = ""
    sentences: SentenceNumbers


class RegeneratedQuestions(BaseModel):
    """Questions that a text answers."""

    evasive: bool
    questions: list[str]


class AspectVerdict(BaseModel):
    """Whether an aspect applies to an answer."""

    reason: Reason = ""
    verdict: bool


class Entities(BaseModel):
    """The entities that a text names."""

    entities: list[str]


class FoundEntity(BaseModel):
    """An entity that the contexts name, and the sentences that do."""

    entity: int
    evidence: SentenceNumbers


class FoundEntities(BaseModel):
    """Those of the entities that the contexts name."""

    found: list[FoundEntity]


class Abstention(BaseModel):
    """Whether a text leaves its question unanswered."""

    reason: Reason = ""
    abstains: bool


class Answerable(BaseModel):
    """Whether the contexts answer a question."""

    reason: Reason = ""
    answerable: bool


class RubricGrade(BaseModel):
    """The grade of an answer by one criterion."""

    criterion: str
    reason: Reason = ""
    grade: int


class RubricGrades(BaseModel):
    """One grade for each criterion."""

    grades: list[RubricGrade]


class TurnFact(BaseModel):
    """Statement, fact or need of one turn of a conversation."""

    turn: int
    text: str


class TurnFacts(BaseModel):
    """Statements of the assistant, facts that the user stated, and needs of the user."""

    statements: list[TurnFact]
    facts: list[TurnFact]
    needs: list[TurnFact]


class Contradiction(BaseModel):
    """Two statements that cannot both be true."""

    reason: Reason = ""
    first: int
    second: int


class Contradictions(BaseModel):
    """All pairs of statements that cannot both be true."""

    contradictions: list[Contradiction]


class FactVerdict(BaseModel):
    """Verdict on whether the assistant keeps to a fact that the user stated."""

    fact: int
    reason: Reason = ""
    verdict: FactLabel
    turns: TurnNumbers


class FactVerdicts(BaseModel):
    """Verdicts on facts of the user, one for each."""

    verdicts: list[FactVerdict]


class NeedVerdict(BaseModel):
    """Verdict on whether the user got what they need."""

    need: int
    reason: Reason = ""
    verdict: NeedLabel
    turns: TurnNumbers


class NeedVerdicts(BaseModel):
    """Verdicts on needs of the user, one for each."""

    verdicts: list[NeedVerdict]


class Keyphrases(BaseModel):
    """Three to five phrases that name what a passage is about."""

    keyphrases: list[str]


class PassageGrades(BaseModel):
    """How good a passage is as the ground of a question, each from 1 to 3."""

    reason: Reason = ""
    clarity: int
    depth: int
    structure: int
    relevance: int


class Question(BaseModel):
    """A question that somebody could ask."""

    question: str


class ChatExchange(BaseModel):
    """A question of a user in a conversation, and the answer of the assistant."""

    question: str
    answer: str


class FollowUp(BaseModel):
    """The earlier exchanges of a conversation, and its last question, which needs them to be understood."""

    exchanges: list[ChatExchange]
    question: str


class FollowUpReview(BaseModel):
    """Review of the last question of a conversation: three verdicts, each independent of the others."""

    feedback: str
    depends: bool
    same: bool
    open: bool


class Personas(BaseModel):
    """Different people who would ask about some passages, each in one sentence."""

    personas: list[str]


class QuestionReview(BaseModel):
    """Whether a question is understood without its passages, and answered by them."""

    feedback: str
    standalone: bool
    answerable: bool


class QuestionComparison(BaseModel):
    """Whether a question asks for more than the one it was made from."""

    reason: Reason = ""
    deeper: bool
    broader: bool


class NeededPassages(BaseModel):
    """Numbers of the passages that are needed to answer a question."""

    reason: Reason = ""
    passages: list[int]


class ReferenceAnswer(BaseModel):
    """The answer to a question from its passages alone."""

    answerable: bool
    answer: str


class DegradedAnswer(BaseModel):
    """An answer that is worse than the one there is."""

    answer: str


class PaddedContext(BaseModel):
    """Sentences that fit a context and do not help to answer the question."""

    sentences: list[str]


class StandaloneQuestion(BaseModel):
    """Last question of a conversation, worded so that it is understood without the conversation."""

    reason: str
    question: str


ANSWER_SCHEMAS: dict[str, type[BaseModel]] = {
    "extract_statements": Statements,
    "extract_turn_statements": Statements,
    "rewrite_question": StandaloneQuestion,
    "verify_statements": Verdicts,
    "classify_statements": Classification,
    "grade_contexts": ContextVerdicts,
    "grade_relevance": RelevanceGrades,
    "select_sentences": NeededSentences,
    "regenerate_questions": RegeneratedQuestions,
    "regenerate_turn_questions": RegeneratedQuestions,
    "critique_aspect": AspectVerdict,
    "extract_entities": Entities,
    "find_entities": FoundEntities,
    "detect_abstention": Abstention,
    "detect_answerable": Answerable,
    "grade_rubric": RubricGrades,
    "list_turn_facts": TurnFacts,
    "find_contradictions": Contradictions,
    "check_user_facts": FactVerdicts,
    "check_needs": NeedVerdicts,
    "extract_keyphrases": Keyphrases,
    "grade_passage": PassageGrades,
    **dict.fromkeys(
        (
            *("write_question", "reword_question", "compress_question", "evolve_reasoning", "evolve_conditional"),
            *("evolve_multi_context", "evolve_conversational", "evolve_unanswerable", "evolve_numbers"),
            *("evolve_off_topic", "evolve_misspelt", "evolve_terse", "evolve_formal", "evolve_angry"),
            *("evolve_code_mixed", "evolve_voice", "evolve_persona", "evolve_audience", "evolve_thematic"),
        ),
        Question,
    ),
    "evolve_follow_up": FollowUp,
    "review_follow_up": FollowUpReview,
    "propose_personas": Personas,
    "review_question": QuestionReview,
    "compare_questions": QuestionComparison,
    "find_passages": NeededPassages,
    "write_answer": ReferenceAnswer,
    "answer_unaided": DegradedAnswer,
    "degrade_answer": DegradedAnswer,
    "pad_context": PaddedContext,
}
"""Answer classes by the names of the steps."""

STEPS_WITH_HISTORY = ("rewrite_question", "extract_turn_statements", "regenerate_turn_questions")
"""Prompts that are used only if a sample has a history."""


Values = tuple[str, ...] | tuple[int, ...]

TEXT_LENGTH = 500  # characters; llama.cpp takes at most 1,999
REASON_LENGTHS = (400, 200, 100)
_GRADE = "grade"
_TOKENS_BESIDE_REASON = 40  # of one item: keys, number, evidence and verdict
_CHARACTERS_PER_TOKEN = 2  # as of languages other than English


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of the content of the answer to one request. They refer to fields of the answer class, at any depth.

    Attributes:
        items: name of a list, name of a field of the list's items, and values. The list must have one item for
            each value, in this order, with the value in the field. Example: ("verdicts", "statement", (1, 2)) for two
            numbered statements. None if there is no such list.
        values: pairs: the name of a field or of a list, and the values that it can contain.
        lengths: pairs: the name of a list, and its maximum number of items.
    """

    items: tuple[str, str, Values] | None = None
    values: tuple[tuple[str, Values], ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()

    def numbers_from_zero(self, answer: Any) -> bool:
        """Return True if an answer counts items from 0 instead of 1: it has an item 0 and lacks the last item.

        Args:
            answer: the answer as JSON-like data.
        """
        named = [self.items[1:]] if self.items else []
        for name, values in (*named, *self.values):
            if values[:1] == (1,) and name != _GRADE:
                numbers = set(_numbers_in(answer, name))
                if 0 in numbers and values[-1] not in numbers:
                    return True
        return False


def _numbers_in(answer: Any, name: str) -> Iterator[int]:
    """Yield the numbers under a name in the objects of a nested answer; lists of numbers are left out."""
    parts = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    if isinstance(answer, dict) and isinstance(answer.get(name), int):
        yield answer[name]
    for part in parts:
        if isinstance(part, dict | list):
            yield from _numbers_in(part, name)


def narrow_schema(
    schema: Mapping[str, Any], limits: AnswerLimits, output_tokens: int | None = None
) -> Mapping[str, Any]:
    """Return the schema of an answer class, restricted to the possible content of the answer to one request.

    Equal requests get the same schema object. Requests of the same shape, such as five statements about the same
    sentences, get equal schemas, so that servers find the schemas in their caches.

    Args:
        schema: the schema of the answer class.
        limits: limits of the answer's content.
        output_tokens: maximum length of a reply, in tokens. If the items of the answer would not fit, the maximum
            length of each reason (explanation of an item) is reduced from 400 to 200 or 100 characters. None for no
            maximum.
    """
    room = inf
    if output_tokens is not None:
        items = max(len(limits.items[2]) if limits.items else 1, 1)
        room = (output_tokens // items - _TOKENS_BESIDE_REASON) * _CHARACTERS_PER_TOKEN
    reason_length = next((length for length in REASON_LENGTHS if length <= room), REASON_LENGTHS[-1])
    return _narrow(json.dumps(schema), limits, reason_length)


@lru_cache(maxsize=512)
def _narrow(schema: str, limits: AnswerLimits, reason_length: int) -> Mapping[str, Any]:
    values_of, lengths, definitions = dict(limits.values), dict(limits.lengths), dict[str, Any]()

    def restrict(node: dict[str, Any], name: str) -> dict[str, Any]:
        """Return the schema of a field, or of an object, with its limits."""
        if limits.items and name == limits.items[0]:
            return one_by_one(node, *limits.items[1:])
        values = values_of.get(name)
        match node.get("type"):
            case "array":
                items = _one_of(node["items"], values) if values else restrict(node["items"], "")
                most = lengths.get(name, len(values) if values else None)
                return node | {"items": items} | ({"maxItems": most} if most else {})
            case "object":
                return node | {"properties": {key: restrict(field, key) for key, field in node["properties"].items()}}
            case "string" if "enum" not in node and not values:
                return node | {"maxLength": reason_length if name == "reason" else TEXT_LENGTH}
        return _one_of(node, values) if values else node

    def one_by_one(node: dict[str, Any], key: str, values: Values) -> dict[str, Any]:
        """Return the schema of a list with one item for each value of a field.

        The other fields are equal in all items and are defined once, which keeps schema and grammar small.
        """
        item = node.pop("items")
        fields = item["properties"]
        definitions.update({name: restrict(field, name) for name, field in fields.items() if name != key})
        references = {name: {"$ref": f"#/$defs/{name}"} for name in fields}
        items = [item | {"properties": references | {key: _one_of(fields[key], (value,))}} for value in values]
        return node | {"prefixItems": items, "minItems": len(values), "maxItems": len(values)}

    narrowed = restrict(json.loads(schema), "")
    return narrowed | ({"$defs": definitions} if definitions else {})


def _one_of(node: dict[str, Any], values: tuple[str | int, ...]) -> dict[str, Any]:
    return node | ({"const": values[0]} if len(values) == 1 else {"enum": list(values)})
