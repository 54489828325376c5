"""Pydantic classes of the judge's answers. The name of a class is the title of its JSON schema.

The docstring of a class is the description in that schema: it is sent to the judge and is part of the fingerprint of
scores. Fields are in the order in which a model should write them, the reason before the verdict. Items are numbered
from 1, as in the request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

from langchain_rageval.prompts.sentence_numbers import Evidence, SentenceNumbers

ITEM_KEYS = frozenset({"statement", "context", "answer", "reference", "entity", "criterion"})
"""Fields of answers that name an item of the request; other whole numbers are grades."""

VerdictLabel = Literal["supported", "contradicted", "absent"]
FactLabel = Literal["kept", "asked again", "ignored"]
NeedLabel = Literal["met", "withdrawn", "unmet"]


def _turn_numbers(value: Any) -> Any:
    """Return a list for a single number, and no numbers for null; other values unchanged."""
    return [] if value is None else [value] if isinstance(value, int | str) else value


TurnNumbers = Annotated[list[int], BeforeValidator(_turn_numbers)]
"""Numbers of turns of a conversation; none if the reply says null."""


class Statements(BaseModel):
    """Short, self-contained statements of a text."""

    statements: list[str]


class Verdict(BaseModel):
    """What the contexts say of one statement."""

    statement: int
    reason: str
    evidence: Evidence
    verdict: VerdictLabel


class Verdicts(BaseModel):
    """One verdict for each statement."""

    verdicts: list[Verdict]


class TruePositive(BaseModel):
    """An answer statement that reference statements say in full."""

    reason: str
    answer: int
    references: list[int]


class FalsePositive(BaseModel):
    """An answer statement that the reference does not say, or not in full."""

    reason: str
    answer: int


class FalseNegative(BaseModel):
    """A reference statement that the answer statements together do not say in full."""

    reason: str
    reference: int


class Classification(BaseModel):
    """Each answer statement in TP or FP; each reference statement in FN, or said in full by the TPs that name it."""

    TP: list[TruePositive]
    FP: list[FalsePositive]
    FN: list[FalseNegative]


class ContextVerdict(BaseModel):
    """Whether one chunk is useful."""

    context: int
    reason: str
    useful: bool


class ContextVerdicts(BaseModel):
    """One verdict for each chunk."""

    verdicts: list[ContextVerdict]


class RelevanceGrade(BaseModel):
    """How relevant one chunk is."""

    context: int
    reason: str
    grade: int


class RelevanceGrades(BaseModel):
    """One grade for each chunk."""

    grades: list[RelevanceGrade]


class NeededSentences(BaseModel):
    """Numbers of the context sentences that are needed to answer, such as "2.3"."""

    reason: str
    sentences: SentenceNumbers


class RegeneratedQuestions(BaseModel):
    """Questions that a text answers."""

    evasive: bool
    questions: list[str]


class AspectVerdict(BaseModel):
    """Whether an aspect applies to an answer."""

    reason: str
    verdict: bool


class Entities(BaseModel):
    """The entities that a text names."""

    entities: list[str]


class FoundEntity(BaseModel):
    """An entity that the contexts name, and the sentences that do."""

    entity: int
    evidence: Evidence


class FoundEntities(BaseModel):
    """Those of the entities that the contexts name."""

    found: list[FoundEntity]


class Abstention(BaseModel):
    """Whether a text leaves its question unanswered."""

    reason: str
    abstains: bool


class Answerable(BaseModel):
    """Whether the contexts answer a question."""

    reason: str
    answerable: bool


class RubricGrade(BaseModel):
    """The grade of an answer by one criterion."""

    criterion: str
    reason: str
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

    reason: str
    first: int
    second: int


class Contradictions(BaseModel):
    """All pairs of statements that cannot both be true."""

    contradictions: list[Contradiction]


class FactVerdict(BaseModel):
    """Verdict on whether the assistant keeps to a fact that the user stated."""

    fact: int
    reason: str
    verdict: FactLabel
    turns: TurnNumbers


class FactVerdicts(BaseModel):
    """Verdicts on facts of the user, one for each."""

    verdicts: list[FactVerdict]


class NeedVerdict(BaseModel):
    """Verdict on whether the user got what they need."""

    need: int
    reason: str
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

    reason: str
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

    reason: str
    deeper: bool
    broader: bool


class NeededPassages(BaseModel):
    """Numbers of the passages that are needed to answer a question."""

    reason: str
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
    "write_question": Question,
    "reword_question": Question,
    "evolve_reasoning": Question,
    "evolve_conditional": Question,
    "evolve_multi_context": Question,
    "evolve_conversational": Question,
    "evolve_unanswerable": Question,
    "evolve_numbers": Question,
    "evolve_off_topic": Question,
    "evolve_misspelt": Question,
    "evolve_terse": Question,
    "evolve_formal": Question,
    "evolve_angry": Question,
    "evolve_code_mixed": Question,
    "evolve_voice": Question,
    "evolve_persona": Question,
    "evolve_follow_up": FollowUp,
    "review_follow_up": FollowUpReview,
    "propose_personas": Personas,
    "compress_question": Question,
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
