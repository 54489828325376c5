"""Judges, replies, embeddings and cross-encoders for tests: scripted or computed, with a record of the requests."""

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage

from langchain_rageval import OfflineJudge
from langchain_rageval.metrics.answer_completeness import list_question_parts
from langchain_rageval.prompts import answer_schemas as schemas
from langchain_rageval.testing.scripted_judge import Reply, ScriptedJudge, ScriptedRequest


class Scripted(ScriptedJudge):
    """A `ScriptedJudge` that can also compute its replies with `answer`, a function of the messages."""

    answer: Callable[[list[BaseMessage]], Any] | None = None
    _agenerate = BaseChatModel._agenerate  # an answer may wait for others, so it must not block the event loop

    @property
    def asked(self) -> list[list[BaseMessage]]:
        """The messages of every call so far."""
        return [list(request.messages) for request in self.requests]

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The JSON inputs of every call so far."""
        return [request.inputs for request in self.requests]

    def _reply(self, request: ScriptedRequest) -> Any:
        return self.answer(list(request.messages)) if self.answer else super()._reply(request)


def scripted(*replies: Reply) -> Scripted:
    """Return a judge that gives these replies in order."""
    return Scripted(*replies)


def answering(answer: Callable[[list[BaseMessage]], Any]) -> Scripted:
    """Return a judge that computes its replies from the messages."""
    return Scripted(answer=answer)


def human_of(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the first human message."""
    return next(message.text for message in messages if message.type == "human")


def verdict(number: int, label: schemas.VerdictLabel, *evidence: str, reason: str = "because") -> schemas.Verdict:
    """Return a verdict on the statement with this number."""
    return schemas.Verdict(statement=number, reason=reason, evidence=list(evidence), verdict=label)


def supported(number: int, *evidence: str) -> schemas.Verdict:
    """Return the verdict "supported", by default by sentence 1.1."""
    return verdict(number, "supported", *(evidence or ("1.1",)))


def contradicted(number: int, *evidence: str) -> schemas.Verdict:
    """Return the verdict "contradicted", by default by sentence 1.1."""
    return verdict(number, "contradicted", *(evidence or ("1.1",)))


def absent(number: int) -> schemas.Verdict:
    """Return the verdict "absent"."""
    return verdict(number, "absent")


def verdicts(*given: schemas.Verdict) -> schemas.Verdicts:
    """Return a reply of verify_statements."""
    return schemas.Verdicts(verdicts=list(given))


def statements(*texts: str) -> schemas.Statements:
    """Return a reply of extract_statements."""
    return schemas.Statements(statements=list(texts))


def classification(
    tp: Mapping[int, Sequence[int]] | None = None,
    fp: Sequence[int] = (),
    fn: Sequence[int] = (),
    extra: Mapping[int, Sequence[int]] | None = None,
) -> schemas.Classification:
    """Return a reply of classify_statements.

    Args:
        tp: answer statements, with the reference statements that say them.
        fp: answer statements that are wrong.
        fn: reference statements that the answer lacks.
        extra: answer statements that say more, with the reference statements that they contain.
    """
    wrong = [schemas.FalsePositive(answer=n, reason=f"fp{n}", kind="contradicts", references=[]) for n in fp]
    more = [
        schemas.FalsePositive(answer=n, reason=f"extra{n}", kind="extra", references=list(contained))
        for n, contained in (extra or {}).items()
    ]
    return schemas.Classification(
        TP=[schemas.TruePositive(answer=n, references=list(said), reason=f"tp{n}") for n, said in (tp or {}).items()],
        FP=wrong + more,
        FN=[schemas.FalseNegative(reference=n, reason=f"fn{n}") for n in fn],
    )


def grades(useful: Mapping[int, bool]) -> schemas.ContextVerdicts:
    """Return a reply of grade_contexts."""
    found = [schemas.ContextVerdict(context=n, reason=f"r{n}", useful=u) for n, u in useful.items()]
    return schemas.ContextVerdicts(verdicts=found)


def relevance(given: Mapping[int, int]) -> schemas.RelevanceGrades:
    """Return a reply of grade_relevance."""
    found = [schemas.RelevanceGrade(context=n, reason=f"r{n}", grade=g) for n, g in given.items()]
    return schemas.RelevanceGrades(grades=found)


def needed(*numbers: str, reason: str = "because") -> schemas.NeededSentences:
    """Return a reply of select_sentences."""
    return schemas.NeededSentences(reason=reason, sentences=list(numbers))


def questions(*texts: str, evasive: bool = False) -> schemas.RegeneratedQuestions:
    """Return a reply of regenerate_questions."""
    return schemas.RegeneratedQuestions(evasive=evasive, questions=list(texts))


def critique(applies: bool, reason: str = "because") -> schemas.AspectVerdict:
    """Return a reply of critique_aspect."""
    return schemas.AspectVerdict(reason=reason, verdict=applies)


def entities(*texts: str) -> schemas.Entities:
    """Return a reply of extract_entities."""
    return schemas.Entities(entities=list(texts))


def found_in(evidence: Mapping[int, Sequence[str]]) -> schemas.FoundEntities:
    """Return a reply of find_entities, from the number of each found entity to its citations."""
    found = [schemas.FoundEntity(entity=n, evidence=list(cited)) for n, cited in evidence.items()]
    return schemas.FoundEntities(found=found)


def abstains(yes: bool, reason: str = "because") -> schemas.Abstention:
    """Return a reply of detect_abstention."""
    return schemas.Abstention(reason=reason, abstains=yes)


def answerable(yes: bool, reason: str = "because") -> schemas.Answerable:
    """Return a reply of detect_answerable."""
    return schemas.Answerable(reason=reason, answerable=yes)


def graded(**given: int) -> schemas.RubricGrades:
    """Return a reply of grade_rubric, from criterion to grade; "_" in a name stands for a space."""
    names = {name: name.replace("_", " ") for name in given}
    found = [schemas.RubricGrade(criterion=names[n], reason=f"{n} {g}", grade=g) for n, g in given.items()]
    return schemas.RubricGrades(grades=found)


def token(text: str | bytes, others: Mapping[str, float] | None = None) -> Any:
    """Return a token of a reply in OpenAI's format; `others` maps the alternatives to their probabilities."""
    shares = {text if isinstance(text, bytes) else text.encode(): 1 - sum((others or {}).values())}
    shares |= {other.encode(): share for other, share in (others or {}).items()}
    top = [
        {"token": content.decode(errors="replace"), "bytes": list(content), "logprob": log(share)}
        for content, share in shares.items()
    ]
    return {**top[0], "top_logprobs": top}


def with_tokens(*tokens: Any) -> AIMessage:
    """Return a reply with log-probabilities, from its tokens or, for tokens without alternatives, their texts."""
    items = [item if isinstance(item, dict) else token(item) for item in tokens]
    text = b"".join(bytes(item["bytes"]) for item in items).decode()
    return AIMessage(text, response_metadata={"logprobs": {"content": items, "refusal": None}})


class Refusal(Exception):
    """An error with a status, as clients raise it when the endpoint rejects a request."""

    def __init__(self, message: str = "no", status_code: int | None = 400) -> None:
        super().__init__(message)
        self.status_code = status_code


def turn_facts(**lists: Sequence[tuple[int, str]]) -> schemas.TurnFacts:
    """Return a reply of list_turn_facts, from pairs of the number of a turn and a text in each of its lists."""
    said = {name: [schemas.TurnFact(turn=n, text=text) for n, text in items] for name, items in lists.items()}
    return schemas.TurnFacts(**{name: said.get(name, []) for name in schemas.TurnFacts.model_fields})


def contradictions(*numbers: tuple[int, int], reason: str = "r") -> schemas.Contradictions:
    """Return a reply of find_contradictions, from pairs of statements."""
    pairs = [schemas.Contradiction(reason=reason, first=a, second=b) for a, b in numbers]
    return schemas.Contradictions(contradictions=pairs)


def fact_verdicts(*given: tuple[int, Any, Sequence[int]], reason: str = "r") -> schemas.FactVerdicts:
    """Return a reply of check_user_facts, from number, verdict and turns of each fact."""
    found = [schemas.FactVerdict(fact=n, reason=reason, verdict=v, turns=[*t]) for n, v, t in given]
    return schemas.FactVerdicts(verdicts=found)


def need_verdicts(*given: tuple[int, Any, Sequence[int]], reason: str = "r") -> schemas.NeedVerdicts:
    """Return a reply of check_needs, from number, verdict and turns of each need."""
    found = [schemas.NeedVerdict(need=n, reason=reason, verdict=v, turns=[*t]) for n, v, t in given]
    return schemas.NeedVerdicts(verdicts=found)


class Vectors(Embeddings):
    """Embeddings from a table of vectors, or computed by `answer`; records the batches."""

    def __init__(
        self, vectors: Mapping[str, Sequence[float]] | None = None, answer: Callable[[str], Any] | None = None
    ) -> None:
        self.answer = answer or (vectors or {}).__getitem__
        self.asked: list[list[str]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors in order."""
        self.asked.append(texts)
        return [self.answer(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Fail: both sides of a comparison must be embedded as documents."""
        raise AssertionError(f"embed_query was asked for {text!r}")


class PairScores(BaseCrossEncoder):
    """Cross-encoder that scores each pair by `answer`; records the pairs."""

    def __init__(self, answer: Callable[[str, str], float]) -> None:
        self.answer = answer
        self.asked: list[list[tuple[str, str]]] = []

    def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
        """Return the scores in order."""
        self.asked.append(text_pairs)
        return [self.answer(one, other) for one, other in text_pairs]


def offline_reply(messages: list[BaseMessage]) -> BaseMessage:
    """Return the reply of OfflineJudge, for judges with additional behaviour."""
    judge = OfflineJudge(answers={"QuestionParts": list_question_parts.offline})
    return judge._generate(messages).generations[0].message  # without a run that callbacks would see


def recording_judge() -> Scripted:
    """Return a judge that replies like OfflineJudge and records its requests."""
    return answering(offline_reply)


def broken_judge(reply: Any = "I would rather not.") -> Scripted:
    """Return a judge with a constant reply or exception; by default prose that cannot be parsed."""
    return answering(lambda _: reply)
