"""Immutable data types shared by all layers: Sample, Score, Finding, Failure, Usage and Row.

`None` means that a value is missing; an empty list is a value: `contexts=[]` means that the retriever found nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval._internal.page import (
    bold,
    details,
    item_list,
    paragraph,
    pluralize,
    printable_lines,
    table,
    text,
)
from langchain_rageval.data.field_names import read_fields
from langchain_rageval.data.instrument import split_digests
from langchain_rageval.data.messages import read_turns, unwrap_text
from langchain_rageval.data.vocabulary import NAMES
from langchain_rageval.errors import SampleError, did_you_mean

Aspect = str
"""What a metric evaluates: "context", "answer", "grounding" (the answer's support in the contexts), "ranking", or
another word of the user's own."""

Direction = Literal["higher", "lower"]
"""Which values of a metric are better."""

FindingKind = Literal[
    "statement",
    "reference_statement",
    "context",
    "sentence",
    "criterion",
    "question",
    "entity",
    "aspect",
    "agreement",
    "extraction",
    "standalone_question",
    "turn",
]
"""Kind of item that a finding is about."""

_MARKS = {
    **dict.fromkeys(("supported", "TP", "useful", "needed", "found", "consistent", "kept", "met"), "✓"),
    **dict.fromkeys(("contradicted", "FP", "not useful", "not found", "ignored", "asked again", "unmet"), "✗"),
    **dict.fromkeys(("absent", "FN", "extra"), "?"),
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST = 100  # encoders fail on deeper values


def without_surrogates(value: Any, depth: int = 0) -> Any:
    """Replace lone surrogates, which cannot be encoded, by U+FFFD in every string of a nested value.

    Args:
        value: a string, a container of any depth, or any other value, which is returned unchanged.
        depth: number of containers around the value; 0 for the outermost value.

    Returns:
        The same data, with tuples as lists and mappings as dicts.

    Raises:
        ValueError: if the value is nested deeper than 100 levels, for example because it contains itself.
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
            items = ((_cleaned(key) if isinstance(key, str) else key, item) for key, item in value.items())
            return {key: without_surrogates(item, depth + 1) for key, item in items}
        case set() | frozenset():
            return {_cleaned(item) if isinstance(item, str) else item for item in value}
    return value


def _cleaned(text: str) -> str:
    """Return a text with its lone surrogates replaced by U+FFFD."""
    try:
        text.encode()  # ten times faster than the search
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text


class _FrozenModel(BaseModel):
    """Base class of the data types: immutable, and strict about field names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64")


def _omitting(*names: str) -> Any:
    """Return a serializer that omits fields with their default: early versions did not have them.

    So files, and keys of journals, stay the same.
    """

    def serialize(self: BaseModel, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields, known = handler(self), type(self).model_fields
        return {name: part for name, part in fields.items() if name not in names or part != known[name].default}

    return model_serializer(mode="wrap")(serialize)


class InputModel(_FrozenModel):
    """Base class of user input; replaces lone surrogates in all nested strings."""

    @model_validator(mode="before")
    @classmethod
    def _encodable(cls, data: Any) -> Any:
        return data if isinstance(data, InputModel) else without_surrogates(data)


_SampleText = Annotated[  # InputModel has cleaned a str
    str, BeforeValidator(lambda value: value if isinstance(value, str) else without_surrogates(unwrap_text(value)))
]

# Scores have many parts: it is faster if each validates its own strings than if `InputModel` searches all nested data.
_CleanText = Annotated[str, AfterValidator(_cleaned)]


class Turn(InputModel):
    """Message of a user or of an assistant in a conversation.

    Immutable. Messages of the system and of tools are no turns.

    Attributes:
        role: who wrote the message.
        text: text of the message.
    """

    role: Literal["user", "assistant"]
    text: _SampleText


class Sample(InputModel):
    """Question to a RAG system with the system's answer and the expected results.

    Immutable. Documents and messages are accepted wherever a text is expected. Lone surrogates in any string are
    replaced by U+FFFD. `Sample.parse` reads the field names of other libraries.

    Attributes:
        id: stable name of the sample, which pairs it with the same sample in another report; by default a hash of the
            question and its history, so that a changed answer keeps it. If several samples in a list, file or iterator
            have the same id and question, `-2`, `-3` and so on are appended to the ids of the second and later samples.
        question: text of the question; the only required field.
        history: messages of the user and the assistant before the question, oldest first; `[]` if there are none.
        answer: text of the system's answer; None if it is missing. A blank answer is a value.
        contexts: chunks that the answering model has read, in the order of reading; `[]` if the retriever found
            nothing, None if the chunks are unknown.
        retrieved: chunks as the retrievers returned them, if they differ from `contexts`, as before a reranker; None
            otherwise. Not the `retrieved_contexts` of ragas, which are `contexts` here.
        references: correct answers, one or several; `[]` if none is known.
        reference_contexts: texts of the chunks that contain the answer; None if they are unknown.
        context_ids: ids of the chunks in `contexts`, in their order; None if they are unknown.
        retrieved_ids: ids of the chunks in `retrieved`, in their order; None if they are unknown.
        reference_context_ids: ids of the chunks that contain the answer; None if they are unknown.
        relevance: human relevance grades by chunk id, 0 or less for irrelevant chunks; None if nothing was graded.
        metadata: any other values by name; kept in reports, where `by="metadata.NAME"` groups samples.
    """

    id: str = ""
    question: str
    history: Annotated[list[Turn], BeforeValidator(read_turns)] = []
    answer: _SampleText | None = None
    contexts: list[_SampleText] | None = None
    retrieved: list[_SampleText] | None = None
    references: list[_SampleText] = []
    reference_contexts: list[_SampleText] | None = None
    context_ids: list[str] | None = None
    retrieved_ids: list[str] | None = None
    reference_context_ids: list[str] | None = None
    relevance: dict[str, float] | None = None
    metadata: dict[str, Any] = {}

    def model_post_init(self, _context: Any, /) -> None:
        """Set the id to a hash of the question and its history if the id is empty."""
        if not self.id:
            object.__setattr__(self, "id", default_id(self.question, self.history))

    _serialize = _omitting("history", "retrieved", "retrieved_ids")

    @classmethod
    def parse(cls, obj: Any, fields: Mapping[str, str] | None = None) -> Self:
        """Read a sample from an object with the field names of this or another library.

        Args:
            obj: a `Sample`, a mapping, or an object with attributes, such as a pandas row, a dataclass, a LangSmith Run
                or Example; with the field names of ragas, LangChain chains, LangSmith, openevals or LangGraph.
            fields: fields of `Sample` mapped to the name or dotted path of their value in `obj`, as in
                `{"contexts": "retrieval.docs"}`; takes precedence over all known names.

        Returns:
            The sample; values under unknown names are in `metadata`. A `Sample` is returned unchanged if no `fields`
            are given.

        Raises:
            SampleError: if a field is missing or has the wrong type; the message names it.
            ConfigError: if `fields` does not map fields of `Sample` to names.
        """
        if isinstance(obj, cls) and not fields:
            return obj
        try:
            values = read_fields(obj, fields)
        except RecursionError:
            problem = f"the sample is nested deeper than {_DEEPEST} levels, or contains itself"
            raise SampleError(f"{problem}: flatten its values") from None
        try:
            return cls(**values)
        except ValidationError as error:
            raise _sample_error(values, error) from None

    @property
    def language_text(self) -> str:
        """Text that decides the language of prompts and reasons: the question or, in a conversation, all turns."""
        if not self.history:
            return self.question
        return "\n".join([*(turn.text for turn in self.history), self.question, self.answer or ""])

    def _repr_html_(self) -> str:
        """Return the sample as HTML, for notebooks: question, answer, contexts and references."""
        answer = "<em>no answer</em>" if self.answer is None else text(self.answer)
        parts = [paragraph(bold(self.question)), paragraph(answer)]
        if self.history:
            turns = [text(f"{turn.role}: {turn.text}") for turn in self.history]
            parts.insert(0, details(pluralize(len(turns), "earlier turn"), item_list(turns, numbered=True)))
        lists = ((self.contexts, "context"), (self.retrieved, "retrieved chunk"))
        for items, what in (*lists, (self.reference_contexts, "reference context")):
            if items is not None:
                parts.append(details(pluralize(len(items), what), item_list([*map(text, items)], numbered=True)))
        if self.references:
            references = item_list([*map(text, self.references)])
            parts.append(details(pluralize(len(self.references), "reference"), references))
        return "".join(parts)


def default_id(question: str, history: Sequence[Turn] = ()) -> str:
    """Return the default id of a sample: a hash of its question and of its history, if it has one."""
    return id_of(question, [encode_turn(turn) for turn in history])


def encode_turn(turn: Turn) -> str:
    """Return a turn as the JSON text of [role, text], which `id_of` hashes."""
    return json.dumps([turn.role, turn.text])


def id_of(question: str, encoded_history: Sequence[str]) -> str:
    """Return the default id of a sample: a hash of its question and of the earlier turns of its conversation.

    `encoded_history` contains the earlier turns (messages), each encoded by `encode_turn`. Each turn is in the history
    of all later samples of a conversation; the caller can encode the turn once and pass the text for each sample.
    """
    history = f', "history": [{", ".join(encoded_history)}]' if encoded_history else ""
    content = f'{{"question": {json.dumps(question)}{history}}}'
    return short_digest(content)


def _sample_error(values: Mapping[str, Any], error: ValidationError) -> SampleError:
    """Return the first problem of a pydantic ValidationError, with the way to fix it."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    name = f"sample {values['id']!r}" if values.get("id") else "the sample"
    if problem["type"] == "missing":
        present = sorted(map(str, [*(values.keys() - {"metadata"}), *values.get("metadata", {})]))
        message = f"{name} lacks a {where}, it has {present}: map the right name with fields={{...}} or --fields"
        near = next((own for own in present if did_you_mean(own, NAMES[where])), None)
        if near is not None:
            message += f"; did you mean fields={{{where!r}: {near!r}}}, or --fields {where}={near}?"
        elif present == ["contexts"]:
            message += "; if cells are merged, write the question and the answer into each row"
    else:
        place = f"{name}: {where}" if where else name
        found = f"{place}: {problem['msg']}, got {type(problem['input']).__name__}"
        message = f"{found}: correct it, or map another name with fields={{...}} or --fields"
    return SampleError(message, str(problem["loc"][0]) if problem["loc"] else None)


class Finding(_FrozenModel):
    """Judged item that a score was computed from, such as a statement, with the verdict on the item.

    Immutable.

    Attributes:
        kind: kind of the item: "statement", "reference_statement", "context", "sentence", "criterion", "question",
            "entity", "aspect", "agreement" of votes, "extraction" for a problem with the list of statements,
            "standalone_question" for the question of a conversation in the form that was judged, or "turn" for the
            content of a turn of a conversation.
        number: number of the item in the prompt, from 1.
        text: the item itself, such as the statement.
        verdict: the judge's verdict or the computed result, such as "supported", "useful" or a grade.
        reason: the judge's explanation; "" if it gave none.
        cites: numbers of the context sentences that support the verdict, as "chunk.sentence", such as "2.3"; `[]` if
            none were cited. For an "extra" statement: numbers of the reference statements that it contains. For the
            kind "turn": the number of the turn itself and the numbers of the turns that decide the verdict, such as
            "2".
        probabilities: probability of each possible verdict, which add up to 1; empty if they are unknown. See
            `Judge(model, probabilities=True)`.
    """

    kind: FindingKind
    number: int
    text: _CleanText
    verdict: _CleanText
    reason: _CleanText = ""
    cites: list[_CleanText] = Field(default_factory=list)  # faster than a default of [], which is deep-copied
    probabilities: dict[_CleanText, float] = Field(default_factory=dict)

    @property
    def probability(self) -> float | None:
        """Probability of the verdict; None if it is unknown."""
        return self.probabilities.get(self.verdict, 0.0) if self.probabilities else None

    def probability_of(self, verdict: str) -> float:
        """Return the probability of a verdict; without probabilities, 1 for the finding's verdict, else 0."""
        return self.probabilities.get(verdict, 0.0) if self.probabilities else float(verdict == self.verdict)


class Failure(_FrozenModel):
    """Description of an error that prevented a score.

    Immutable.

    Attributes:
        error: class name of the exception.
        message: message of the exception, without API keys; beyond 2,000 characters, the middle part is left out.
        step: name of the step in which it occurred, such as "verify_statements"; None if it occurred outside a step.
        raw_output: last reply of the judge if no reply was valid; beyond 10,000 characters, the middle part is left
            out. None otherwise.
    """

    error: _CleanText
    message: _CleanText
    step: _CleanText | None = None
    raw_output: _CleanText | None = None

    @property
    def text(self) -> str:
        """Class name and message of the exception as one text."""
        return f"{self.error}: {self.message}"


class Usage(_FrozenModel):
    """Model calls, tokens and time that a score cost; `+` adds two of them.

    Immutable.

    Attributes:
        calls: number of chat model calls.
        input_tokens: tokens read by the models; None if they report no numbers.
        output_tokens: tokens written by the models; None if they report no numbers.
        seconds: total duration of the calls, in seconds; concurrent calls are added up.
        embedded: number of texts sent to the embedding model.
        money: what the calls cost by the option `price`, in its currency; None without prices, or if the price or the
            tokens of a call are unknown.
    """

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float = 0.0
    embedded: int = 0
    money: float | None = None

    @property
    def tokens(self) -> int | None:
        """Number of tokens read and written; None if the models report none."""
        return _sum(self.input_tokens, self.output_tokens)

    _serialize = _omitting("money")

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two usages; unknown token numbers count as 0 unless both are unknown.

        Money is unknown if that of one with calls is.
        """
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            seconds=self.seconds + other.seconds,
            embedded=self.embedded + other.embedded,
            money=_sum_money(self, other),
        )


def _shorten_number(verdict: str) -> str:
    """Return a computed verdict, such as a similarity, with three decimals; any other verdict unchanged."""
    return f"{float(verdict):.3f}" if re.fullmatch(r"-?\d+\.\d{4,}", verdict) else verdict


def _sum_money(one: Usage, other: Usage) -> float | None:
    for free, paid in ((one, other), (other, one)):
        if free.money is None and not free.calls and free.input_tokens is None:
            return paid.money
    return None if one.money is None or other.money is None else one.money + other.money


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


class Score(_FrozenModel):
    """Result of one metric for one sample: a value, or the reason why none applies, or a failure.

    Immutable. Exactly one of `value`, `unscored` and `failure` is not None. `float(score)` returns the value.

    Attributes:
        metric: name of the metric.
        aspect: what the metric evaluates: "context", "answer", "grounding", "ranking" or another word.
        direction: "higher" if higher values are better, "lower" if lower values are.
        value: the number, never NaN or infinite; None if the sample is unscored or the metric failed.
        reason: one sentence that explains the value, in the language of the sample if that is English or Russian; ""
            if there is no value.
        findings: items that the value was computed from, in the order of the prompt; `[]` if the metric has none.
        unscored: why the metric does not apply to the sample, always one of a fixed set of English phrases, so that
            scores can be filtered by it; None if it applies.
        failure: error that prevented a value; None if there was none.
        usage: calls, tokens and seconds paid for this score. Calls shared by several metrics are counted in the score
            whose metric started them.
        instrument: digests of the configuration that found the facts and of the configuration that computed the number,
            "<found_by>.<counted_by>"; each digest has 16 hexadecimal digits, or is "unknown". Version 0.1.0 wrote a
            single hash.
        range: lowest and highest possible value, each None if there is no such limit. `range` itself is None if the
            limits are 0 and 1, or unknown, as in files of version 0.1.0.
        answers: answers of the user's steps by their keys, as values of JSON, from which `Report.rescore` computes the
            score again; `{}` if the metric has none.
    """

    metric: _CleanText
    aspect: _CleanText
    direction: Direction = "higher"
    value: float | None = None
    reason: _CleanText = ""
    findings: list[Finding] = []
    unscored: _CleanText | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    instrument: _CleanText = ""
    range: tuple[float | None, float | None] | None = None
    answers: dict[str, Any] = {}

    _serialize = _omitting("answers")

    @model_validator(mode="after")
    def _exactly_one_outcome(self) -> Self:
        if [self.value, self.unscored, self.failure].count(None) != 2:
            raise ValueError("a score has exactly one of value, unscored and failure")
        return self

    @property
    def found_by(self) -> str:
        """Digest of the judges, prompts and step options that produced `findings`: 16 hexadecimal digits.

        "unknown" if one of them cannot be identified, or if version 0.1.0 wrote the score.
        """
        return split_digests(self.instrument)[0]

    @property
    def counted_by(self) -> str:
        """Digest of the configuration that computes the number (function and options of the metric), or "unknown"."""
        return split_digests(self.instrument)[1]

    def __float__(self) -> float:
        """Return the value of the score.

        Raises:
            ValueError: if there is no value; the message contains the reason.
        """
        if self.value is None:
            raise ValueError(f"{self.metric} has no value: {self.comment}")
        return self.value

    def __str__(self) -> str:
        """Return the score as one line: metric, value and comment."""
        value = "-" if self.value is None else f"{self.value:.3f}"
        return printable_lines(f"{self.metric} {value}: {self.comment}" if self.comment else f"{self.metric} {value}")

    @property
    def comment(self) -> str:
        """Explanation of the value, or the reason why there is no value."""
        if self.failure:
            return self.failure.text
        return self.unscored or self.reason

    def _repr_html_(self) -> str:
        """Return the score as HTML, for notebooks: value, reason and findings."""
        value = "–" if self.value is None else f"{self.value:.3f}"
        head = paragraph(bold(self.metric), value, text(self.comment))
        cells = [(_shorten_number(one.verdict), one.text, one.reason, ", ".join(one.cites)) for one in self.findings]
        rows = [(_MARKS.get(verdict, ""), *map(text, (verdict, *others))) for verdict, *others in cells]
        return head + (table(("", "verdict", "what", "why", "cites"), rows) if rows else "")

    def feedback(self, sample_id: str | None = None) -> dict[str, Any]:
        """Return the score as feedback for LangSmith and openevals.

        Args:
            sample_id: id of the sample, for the metadata.

        Returns:
            A dict with "key" (the metric), "score" (the value, or None, never NaN), "comment" and "metadata".
        """
        names = ("aspect", "direction", "findings", "failure", "usage", "instrument")
        fields = self.model_dump(include={*names})
        metadata = {"sample": sample_id, **{name: fields[name] for name in names}}
        return {"key": self.metric, "score": self.value, "comment": self.comment, "metadata": metadata}


_all_but_time = attrgetter("index", "sample", "scores", "audit", "tags")


class Row(_FrozenModel):
    """Sample of a report with its scores.

    Immutable.

    Attributes:
        index: position of the sample in the input, from 0.
        sample: the sample; if the input was not a valid sample, a substitute with the fields that could be read.
        scores: scores by metric name, in the order of the metrics.
        audit: scores that the strong judge of an audit gave the sample, by metric name; empty if it was not audited.
        time: when the last score was finished, UTC, to the second; None if it is unknown.
        tags: tags of the production callback, such as the version of the application.
        asked: names of the scores that come only from new model calls, not from a journal or a cache; empty if this is
            unknown, as in files of earlier versions.
    """

    index: int = Field(ge=0)
    sample: Sample
    scores: dict[_CleanText, Score]
    audit: dict[_CleanText, Score] = {}
    time: datetime | None = None
    tags: dict[_CleanText, _CleanText] = Field(default_factory=dict)
    asked: list[_CleanText] = []

    @field_validator("time")
    @classmethod
    def _in_utc(cls, time: datetime | None) -> datetime | None:
        """Return a time of another zone as UTC; a time without a zone is taken for UTC."""
        return time and (time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC))

    def __eq__(self, other: object) -> bool:
        """Return True if all but `time` and `asked` is equal, in which rows of a resumed run differ."""
        if not isinstance(other, Row):
            return NotImplemented
        return _all_but_time(self) == _all_but_time(other)

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        """Return the sample and its scores as HTML, for notebooks."""
        return self.sample._repr_html_() + "".join(score._repr_html_() for score in self.scores.values())
