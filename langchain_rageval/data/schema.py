"""The data that every layer shares, all of it frozen: Sample, Score, Finding, Failure, Usage, Row.

`None` is missing; an empty list of contexts is an answer ("the retriever found nothing").
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from langchain_rageval._internal.html import bold, counted, details, listed, paragraph, table, text
from langchain_rageval.data.field_names import read_fields, unwrap_text
from langchain_rageval.errors import SampleError

Aspect = Literal["context", "answer", "grounding", "ranking"]
Direction = Literal["higher", "lower"]
FindingKind = Literal[
    "statement", "reference_statement", "context", "sentence", "criterion", "question", "entity", "aspect", "agreement"
]

_MARKS = {
    **dict.fromkeys(("supported", "TP", "useful", "needed", "found"), "✓"),
    **dict.fromkeys(("contradicted", "FP", "not useful", "not found"), "✗"),
    **dict.fromkeys(("absent", "FN"), "?"),
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST = 100  # no encoder follows a nested value for ever


def without_surrogates(value: Any, depth: int = 0) -> Any:
    """Replace lone surrogates by U+FFFD in every string of a nested value: no encoder takes them.

    Raises:
        ValueError: if the value is nested deeper than 100 levels, as one that holds itself is.
    """
    if depth > _DEEPEST:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    match value:
        case str():
            return _cleaned(value)
        case None | int() | float() | BaseModel():
            return value
        case list() | tuple():
            return [without_surrogates(item, depth + 1) for item in value]
        case dict() | Mapping():
            return {
                without_surrogates(key) if isinstance(key, str) else key: without_surrogates(item, depth + 1)
                for key, item in value.items()
            }
        case set() | frozenset():
            return {without_surrogates(item) if isinstance(item, str) else item for item in value}
    return value


def _cleaned(text: str) -> str:
    """The same for one text; to encode it takes a tenth of what the search takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text


class _FrozenModel(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64")


class InputModel(_FrozenModel):
    """What a user may bring: free of lone surrogates at any depth."""

    @model_validator(mode="before")
    @classmethod
    def _encodable(cls, data: Any) -> Any:
        return data if isinstance(data, InputModel) else without_surrogates(data)


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else without_surrogates(unwrap_text(value))  # `Data` has seen to a str


_SampleText = Annotated[str, BeforeValidator(_text)]

# Scores are made of so many parts that each looks through its strings, not through all it is given.
_CleanText = Annotated[str, AfterValidator(_cleaned)]


class Sample(InputModel):
    """One question to a RAG system, with what came back and what should have.

    Attributes:
        id: stable name of the sample; by default a hash of everything but the metadata.
        question: what was asked.
        answer: what the system answered; None when there is no answer to judge.
        contexts: the retrieved chunks in retrieval order; `[]` when nothing was found, None when unknown.
        references: the right answers, several if several are right; `[]` when there is none.
        reference_contexts: chunks that hold the answer.
        context_ids: ids of `contexts`, in the same order.
        reference_context_ids: ids of the chunks that hold the answer.
        relevance: context id to the grade that a person gave it.
        metadata: anything else; it travels along and groups reports.
    """

    id: str = ""
    question: str
    answer: _SampleText | None = None
    contexts: list[_SampleText] | None = None
    references: list[_SampleText] = []
    reference_contexts: list[_SampleText] | None = None
    context_ids: list[str] | None = None
    reference_context_ids: list[str] | None = None
    relevance: dict[str, float] | None = None
    metadata: dict[str, Any] = {}

    def model_post_init(self, _context: Any, /) -> None:
        """Name the sample by its content when it has no id."""
        if not self.id:
            content = self.model_dump(mode="json", exclude={"id", "metadata", "relevance"})
            digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8)
            object.__setattr__(self, "id", digest.hexdigest())

    @classmethod
    def parse(cls, obj: Any, fields: Mapping[str, str] | None = None) -> Self:
        """Read a sample from whatever a RAG system or a data set calls one.

        Args:
            obj: a Sample, a mapping, or an object with such attributes, in the words of ragas, LangChain chains,
                LangSmith, openevals or LangGraph.
            fields: field of Sample to the name or dotted path under which `obj` keeps it.

        Raises:
            SampleError: if a field is missing or of the wrong type; the message names it.
        """
        if isinstance(obj, cls) and not fields:
            return obj
        try:
            found = read_fields(obj, fields)
        except RecursionError:
            raise SampleError(f"the sample is nested deeper than {_DEEPEST} levels, or holds itself: mend it") from None
        try:
            return cls(**found)
        except ValidationError as error:
            raise _sample_error(found, error) from None

    def _repr_html_(self) -> str:
        """Question, answer, contexts and references, for notebooks."""
        answer = "<em>no answer</em>" if self.answer is None else text(self.answer)
        parts = [paragraph(bold(self.question)), paragraph(answer)]
        for items, what in ((self.contexts, "context"), (self.reference_contexts, "reference context")):
            if items is not None:
                told = listed([*map(text, items)], numbered=True)
                parts.append(details(counted(len(items), what), told))
        if self.references:
            told = listed([*map(text, self.references)])
            parts.append(details(counted(len(self.references), "reference"), told))
        return "".join(parts)


def _sample_error(found: Mapping[str, Any], error: ValidationError) -> SampleError:
    """The first problem that pydantic found, and what to do about it."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    name = f"sample {found['id']!r}" if found.get("id") else "the sample"
    if problem["type"] == "missing":
        held = [*(found.keys() - {"metadata"}), *found.get("metadata", {})]
        message = f"{name} lacks a {where}, it holds {sorted(map(str, held))}: name the right one in fields={{...}}"
    else:
        came = type(problem["input"]).__name__
        place = f"{name}: {where}" if where else name
        message = f"{place}: {problem['msg']}, got {came}: mend it, or name the right one in fields={{...}}"
    return SampleError(message, str(problem["loc"][0]) if problem["loc"] else None)


class Finding(_FrozenModel):
    """One thing that decided a score.

    Attributes:
        kind: what was judged.
        number: its number in the prompt, from 1.
        text: the item itself.
        verdict: what the judge, or the arithmetic, made of it.
        reason: the judge's words.
        cites: numbers of the context sentences that decide it, such as "2.3".
    """

    kind: FindingKind
    number: int
    text: _CleanText
    verdict: _CleanText
    reason: _CleanText = ""
    cites: list[_CleanText] = Field(default_factory=list)  # a default of [] is copied deeply, which takes longer


class Failure(_FrozenModel):
    """Why there is no score: what was raised, where, and what the judge had said.

    Attributes:
        error: class name of the exception.
        message: its message, without secrets.
        step: the judge step that failed, if one did.
        raw_output: the judge's last reply, if it was the reply that could not be used.
    """

    error: _CleanText
    message: _CleanText
    step: _CleanText | None = None
    raw_output: _CleanText | None = None


class Usage(_FrozenModel):
    """What a score cost.

    Attributes:
        calls: of chat models.
        input_tokens: that they read; None when they report none.
        output_tokens: that they wrote; likewise.
        seconds: spent in these calls, added up over calls side by side.
        embedded: texts sent to be embedded.
    """

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float = 0.0
    embedded: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Cost of both together; unknown tokens count as nothing beside known ones."""
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            seconds=self.seconds + other.seconds,
            embedded=self.embedded + other.embedded,
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


class Score(_FrozenModel):
    """What a metric says of a sample: a value, or why none applies, or why it failed.

    Attributes:
        metric: name of the metric.
        aspect: what it looks at.
        direction: whether "higher" or "lower" values are better.
        value: the number; None when unscored or failed.
        reason: one readable sentence, in the sample's language where that is English or Russian.
        findings: what decided the value, in the order of the prompt.
        unscored: why no value applies, always in English so that it can be filtered by.
        failure: why there is no value though one would apply.
        usage: model calls, tokens and seconds that this score paid for.
        instrument: hash of all that could change the value except the sample: options, prompts, judge, version.
    """

    metric: _CleanText
    aspect: Aspect
    direction: Direction = "higher"
    value: float | None = None
    reason: _CleanText = ""
    findings: list[Finding] = []
    unscored: _CleanText | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    instrument: _CleanText = ""

    @model_validator(mode="after")
    def _exactly_one_outcome(self) -> Self:
        if [self.value, self.unscored, self.failure].count(None) != 2:
            raise ValueError("a score has exactly one of value, unscored and failure")
        return self

    def __float__(self) -> float:
        """The value.

        Raises:
            ValueError: if the score is unscored or failed, saying why.
        """
        if self.value is None:
            raise ValueError(f"{self.metric} has no value: {self.comment}")
        return self.value

    def __str__(self) -> str:
        """One line: metric, value, and the reason."""
        shown = "-" if self.value is None else f"{self.value:.3f}"
        return f"{self.metric} {shown}: {self.comment}" if self.comment else f"{self.metric} {shown}"

    @property
    def comment(self) -> str:
        """The reason, or why there is no value."""
        if self.failure:
            return f"{self.failure.error}: {self.failure.message}"
        return self.unscored or self.reason

    def _repr_html_(self) -> str:
        """Value, reason, and the findings with their verdicts, for notebooks."""
        shown = "–" if self.value is None else f"{self.value:.3f}"
        head = paragraph(bold(self.metric), shown, text(self.comment))
        rows = [
            (_MARKS.get(found.verdict, ""), *map(text, (found.verdict, found.text, found.reason)), _cites(found))
            for found in self.findings
        ]
        return head + (table(("", "verdict", "what", "why", "cites"), rows) if rows else "")

    def feedback(self, sample_id: str | None = None) -> dict[str, Any]:
        """The score as LangSmith and openevals take it; the score is None, never NaN, when there is no value."""
        metadata = {
            "sample": sample_id,
            "aspect": self.aspect,
            "direction": self.direction,
            "findings": [finding.model_dump() for finding in self.findings],
            "failure": self.failure and self.failure.model_dump(),
            "usage": self.usage.model_dump(),
            "instrument": self.instrument,
        }
        return {"key": self.metric, "score": self.value, "comment": self.comment, "metadata": metadata}


class Row(_FrozenModel):
    """One sample of a run with its scores.

    Attributes:
        index: place of the sample in the input, from 0.
        sample: the sample; when the input could not be read as one, what could be kept of it.
        scores: name of the metric to its score.
    """

    index: int = Field(ge=0)
    sample: Sample
    scores: dict[_CleanText, Score]

    def _repr_html_(self) -> str:
        """The sample and its scores, for notebooks."""
        return self.sample._repr_html_() + "".join(score._repr_html_() for score in self.scores.values())


def _cites(finding: Finding) -> str:
    return text(", ".join(finding.cites))
