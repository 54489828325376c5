"""Write requests to a judge as chat messages with numbered contexts, and read inputs and schema from such messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from string import ascii_uppercase
from typing import Any, Literal, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, AnswerLimits
from langchain_rageval.prompts.promptset import Common, Prompt, PromptSet
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.text.sentences import split_sentences

_ANGLE_NAMES = (
    *("s", "bos", "eos", "pad", "unk", "mask", "cls", "sep", "sop", "eop", "eot", "eoh", "eoa", "eom", "eod"),
    *("start_of_turn", "end_of_turn", "start_of_image", "end_of_image", "image_soft_token"),
    *("unused\\d+", "reserved_\\d+"),
    *("begin_of_text", "end_of_text", "beginoftext", "endoftext", "bot", "user", "assistant", "system", "human"),
    *("think", "tool_call", "tool_calls", "tool_response", "tools", "tool", "function_call", "fim_\\w+"),
)
_SQUARE_NAMES = (
    *("INST", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "ARGS", "CALL_ID"),
    *("THINK", "MODEL_SETTINGS", "IMG", "IMG_BREAK", "IMG_END", "AUDIO", "BEGIN_AUDIO", "PREFIX", "SUFFIX", "MIDDLE"),
    *("SEP", "CLS", "MASK", "PAD", "UNK", "BOS", "EOS", "NL", "gMASK", "sMASK"),
)
_AFTER_ANGLE = (
    r"(?:[|｜][^<>\\\n]{1,64}?[|｜]>"  # <|im_start|>, <｜begin▁of▁sentence｜>
    r"|[|｜][^\s<>\\]{1,64}>|/?[^\s<>|｜/\\]{1,64}[|｜]>"  # <|turn>, <turn|>
    rf"|</?SYS>>|/?(?:{'|'.join(_ANGLE_NAMES)})>)"
)
_AFTER_SQUARE = rf"(?:\|[^\[\]\n]{{1,64}}?\|\]|/?(?:{'|'.join(_SQUARE_NAMES)})\])"
_TOKEN = re.compile(rf"<(?={_AFTER_ANGLE})|\[(?={_AFTER_SQUARE})")
_ESCAPED = re.compile(rf"(?<!\\)\\{{1,2}}u00(?:(3[cC])(?={_AFTER_ANGLE})|5[bB](?={_AFTER_SQUARE}))")


def escape_control_tokens(text: str) -> str:
    """Return a text in which a JSON escape sequence replaces the first character of each control token.

    Control tokens, such as `<|im_start|>`, have a meaning in the chat templates of models. The text may be plain text
    or a JSON document. `restore_control_tokens` reverses the change.
    """
    return _TOKEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def restore_control_tokens(text: str) -> str:
    """Return a text with each control token, such as `<|im_start|>`, as before `escape_control_tokens` changed it."""
    return _ESCAPED.sub(lambda match: "<" if match[1] else "[", text) if "\\u00" in text else text


_CITATION = re.compile(r"(?<![\w.+-])\d+\.\d+(?![\w.]*\d)")
_BETWEEN = re.compile(r"[\s\[\](),;、，；]*(?:(?:and|&|и|e|和|及|과|와|및)\s*\[?)?")  # between two numbers of a list
# Words and signs before a number that exclude it or open a range, and after it that make it the start of a range.
_EXCLUDED = re.compile(
    r"(?:\b(?:not|except|but|without|from|since|after|before|until|не|нет|кроме|без|от|с|до|после|начиная|non|tranne|"
    r"da|dal|dopo|prima|除了?|除외|不)|[<>≤≥~!¬])[\s\[(#]*\Z",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"[\s\])]*(?:\.\.|…|\+|[-–—~]\s*(?:\[?\d+(?:\.|\Z)|\Z)|ff\b|onwards?\b|and\s+(?:following|so\s+on|below)\b|et\s+seq|"
    r"etc\b|(?:to|until)\s+the\s+end\b|до\s+конца|и\s+(?:далее|ниже|следующ)|и\s+т\.?\s?[дп]|e\s+seg|及?以[后下]|이후|부터)|f\b",
    re.IGNORECASE,
)
_LONGEST_CACHED = 10_000  # characters
_LONGEST_WORD = 20


_Item = TypeVar("_Item")


class Line(NamedTuple):
    """A sentence of a chunk. `chunk` and `sentence` count from 1; `sentence` is 0 for a chunk without sentences."""

    chunk: int
    sentence: int
    text: str

    @property
    def number(self) -> str:
        """Citation number of the sentence, such as "2.3"."""
        return f"{self.chunk}.{self.sentence}"


@dataclass(frozen=True)
class NumberedContexts:
    """Contexts, or a part of the contexts, as numbered sentences. Sentences of a part keep their original numbers."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, contexts: Iterable[str]) -> NumberedContexts:
        """Return contexts, given in retrieval order, as numbered sentences."""
        chunks = tuple(contexts)
        return _cached_numbering(chunks) if sum(map(len, chunks)) <= _LONGEST_CACHED else _number_sentences(chunks)

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences in order, by numbers such as "2.3"."""
        return {line.number: line.text for line in self.lines if line.sentence}

    @cached_property
    def block(self) -> str:
        """Text of the numbered contexts, as the judge reads it."""
        return "\n".join(render_lines(self.lines))

    def resolve(self, evidence: Iterable[str]) -> list[str]:
        """Return the existing sentence numbers in a judge's citations, each once, in the order of citation.

        A citation is a text with one number or a list of numbers, such as "1.2, 2.3 and 3.1". A range ("1.2-1.5"), an
        exclusion ("not 1.2") and a text with other words between its numbers are ignored as a whole.
        """
        numbers = (number for citation in evidence for number in _listed_numbers(citation))
        return list(dict.fromkeys(number for number in numbers if number in self.sentences))

    def is_citation(self, citation: str) -> bool:
        """Return True if a judge's citation names one or several sentences, and these contexts contain all of them.

        A range ("1.2-1.5"), an exclusion ("not 1.2") and a text with words between its numbers return False.
        """
        numbers = _listed_numbers(citation)
        return bool(numbers) and all(number in self.sentences for number in numbers)

    def select(self, chunks: Container[int]) -> NumberedContexts:
        """Return the chunks with the given numbers. The chunks keep their numbers."""
        return NumberedContexts(tuple(line for line in self.lines if line.chunk in chunks))

    @property
    def chunks(self) -> list[int]:
        """Numbers of the chunks, in order."""
        return list(dict.fromkeys(line.chunk for line in self.lines))

    def numbered_from_one(self) -> NumberedContexts:
        """Return the same chunks with new numbers 1, 2, …, so that a selection, such as chunks 2 and 5, has no gaps."""
        places = {chunk: place for place, chunk in enumerate(self.chunks, 1)}
        if all(chunk == place for chunk, place in places.items()):
            return self
        return NumberedContexts(tuple(line._replace(chunk=places[line.chunk]) for line in self.lines))

    def windows(self, max_tokens: int | None) -> list[NumberedContexts]:
        """Split the contexts between sentences into windows of at most `max_tokens` (characters / 4).

        A sentence that is longer than `max_tokens` gets its own window. Windows without sentences are omitted. With
        None, the contexts are not split.
        """
        if max_tokens is None:
            return [self]
        windows = split_by_size(self.lines, lambda line: len(line.text) + len(line.number) + 4, max_tokens)
        return [NumberedContexts(tuple(lines)) for lines in windows if any(line.sentence for line in lines)]


def split_by_size(items: Iterable[_Item], characters: Callable[[_Item], int], max_tokens: float) -> list[list[_Item]]:
    """Split items into consecutive parts of at most `max_tokens` (characters / 4); a longer item gets its own part."""
    parts: list[list[_Item]] = []
    size = 0.0
    for item in items:
        tokens = characters(item) / CHARACTERS_PER_TOKEN
        if not parts or size + tokens > max_tokens:
            parts.append([])
            size = 0.0
        parts[-1].append(item)
        size += tokens
    return parts


def _listed_numbers(citation: str) -> list[str]:
    """Return the sentence numbers of a citation; none if it is a range, an exception, or has prose between numbers."""
    before, *separators = _CITATION.split(citation)
    if not separators:
        return []
    after = separators.pop()
    is_list = all(_BETWEEN.fullmatch(text) for text in separators)
    if not is_list or _EXCLUDED.search(before[-_LONGEST_WORD:]) or _RANGE.match(after):
        return []
    return _CITATION.findall(citation)


def render_lines(lines: Sequence[Line], name_chunk: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the lines of the numbered text: a header for each chunk, then its sentences.

    Args:
        lines: sentences; the sentences of one chunk must be adjacent.
        name_chunk: names of chunks 1, 2, … to use instead of their numbers (letters in the examples of prompts).
    """
    for chunk, sentences in groupby(lines, key=lambda line: line.chunk):
        name = name_chunk[chunk - 1] if name_chunk else str(chunk)
        yield f"[{name}]"
        for line in sentences:
            if line.sentence:
                yield f"[{name}.{line.sentence}] {escape_control_tokens(line.text)}"


def _number_sentences(chunks: tuple[str, ...]) -> NumberedContexts:
    return NumberedContexts(
        tuple(
            Line(chunk, number, sentence)
            for chunk, text in enumerate(chunks, 1)
            for number, sentence in list(enumerate(_sentences(text), 1)) or [(0, "")]
        )
    )


def _sentences(text: str) -> Sequence[str]:
    return _cached_sentences(text) if len(text) <= _LONGEST_CACHED else _split_text(text)


def _split_text(text: str) -> tuple[str, ...]:
    return tuple(" ".join(sentence.splitlines()) for sentence in split_sentences(without_surrogates(text)))


# All metrics of a sample number the same chunks, and neighbouring samples often share chunks. With 256 concurrent calls
# about 90 samples are in progress.
_cached_numbering = lru_cache(maxsize=128)(_number_sentences)
_cached_sentences = lru_cache(maxsize=512)(_split_text)


Layout = Literal["contexts_first", "instruction_first", "shared_instructions"]

SHARED = ("critique_aspect", "grade_contexts", "select_sentences", "verify_statements")
"""Steps whose instructions "shared_instructions" puts into the system message: those of metrics that usually run
together. Each step lengthens every request, so the other steps send their instructions themselves."""

_SEPARATOR = re.compile("[\x85\u2028\u2029]")  # line ends that JSON does not escape
_OF_SCHEMA = {"type", "properties", "anyOf", "$ref"}
_TITLE = re.compile(r'^\{.*"title": "(\w+)"', re.MULTILINE)


@dataclass(frozen=True)
class RequestContent:
    """Content of a request to the judge, before it is laid out as messages.

    Attributes:
        step: name of the step.
        prompts: prompt set that holds the headings, the system message and the prompts of all steps.
        prompt: prompt of the step.
        inputs: content of the JSON object that is sent.
        contexts: numbered contexts; None for a step that reads no contexts.
        schema: JSON schema of the answer.
        repeated: True if an earlier request held the same items (such as statements), and its reply lacked a verdict on
            them, or a citation.
        offline: function of a user's step that `OfflineJudge` calls for an answer. With None, `OfflineJudge` answers a
            step of the package by its rules, and a user's step by a fixed value that fits the schema.
        limits: limits of the answer's content; None if there are no limits beyond the schema.
    """

    step: str
    prompts: PromptSet
    prompt: Prompt
    inputs: Mapping[str, Any]
    contexts: NumberedContexts | None
    schema: Mapping[str, Any]
    repeated: bool = False
    offline: Callable[[Mapping[str, Any]], Any] | None = None
    limits: AnswerLimits | None = None

    @cached_property
    def written_inputs(self) -> str:
        """Return the inputs as JSON on one line, with line separators and control tokens as JSON escapes."""
        line = _SEPARATOR.sub(lambda match: f"\\u{ord(match[0]):04x}", str(without_surrogates(_json(self.inputs))))
        return escape_control_tokens(line)


def lay_out(
    request: RequestContent, layout: Layout, *, with_schema: bool, fold_system: bool = False
) -> list[BaseMessage]:
    """Return the messages of a request: system and human, or one human message if `fold_system` is set.

    Args:
        request: content of the request.
        layout: "contexts_first" puts the contexts before the task, so that a server with prefix caching processes the
            contexts once for all steps. "instruction_first" puts the task first. "shared_instructions" puts the
            instructions of four common steps (`SHARED`) into the system message, which is equal in all requests.
        with_schema: include the answer's schema in the human message. If the examples of a packaged step show every
            field and label, only the title and the names of the fields are included.
        fold_system: put the system message at the start of the human message, for templates without a system role.
    """
    system = _shared_system(request.prompts) if layout == "shared_instructions" else request.prompts.common.system
    human = "\n\n".join(_parts(request, layout, with_schema))
    if fold_system:
        return [HumanMessage(f"{system}\n\n{human}")]
    return [SystemMessage(system), HumanMessage(human)]


def read_inputs(human: str) -> dict[str, Any]:
    """Return the inputs in a human message: the last line that is a JSON object. Code fences are ignored.

    Raises:
        ValueError: if no line of the message is a JSON object.
    """
    line = human[human.rfind("\n{") + 1 :].split("\n", 1)[0]
    inputs = json.loads(line)
    if not isinstance(inputs, dict):
        raise ValueError("the last JSON line of the message is not an object")
    return inputs


def read_title(human: str) -> str | None:
    """Return the title of the answer's schema in a human message; None if there is no title."""
    titles = _TITLE.findall(human)
    return str(titles[-1]) if titles else None


def read_schema(human: str) -> dict[str, Any] | None:
    """Return the JSON schema that a human message states for the answer; None if it states none that has a title."""
    for line in reversed(human.split("\n")):
        if _TITLE.match(line):
            with suppress(ValueError):  # of a text that only looks like a schema
                schema: dict[str, Any] = json.loads(line)
                if "title" in schema and _OF_SCHEMA & schema.keys():
                    return schema
    return None


def _parts(request: RequestContent, layout: Layout, with_schema: bool) -> Iterator[str]:
    common = request.prompts.common
    labels = common.labels
    block = [f"{labels['contexts']}\n{request.contexts.block}"] if request.contexts is not None else []
    is_packaged = request.prompts.prompts.get(request.step) is request.prompt
    if layout == "shared_instructions" and request.step in SHARED and is_packaged:
        task = labels["named_task"].format(step=request.step)
    else:
        task = _task(labels["task"], request.prompt, common)
    yield from [task, *block] if layout == "instruction_first" else [*block, task]
    if with_schema and _shows_answer(request.prompt, ANSWER_SCHEMAS.get(request.step), request.schema.get("title")):
        fields: dict[str, Any] = {name: {} for name in request.schema["properties"]}
        yield json.dumps({"title": request.schema["title"], "properties": fields})
    elif with_schema:
        yield f"{labels['schema']}\n{json.dumps(request.schema, ensure_ascii=False)}"
    yield f"{labels['input']}\n{request.written_inputs}"


# Parts that the requests of a run share are built once.
@lru_cache(maxsize=256)
def _shows_answer(prompt: Prompt, answer: type[BaseModel] | None, title: str | None) -> bool:
    """Return True if the examples of a prompt show every field and label of a packaged answer class of this title."""
    if answer is None or answer.__name__ != title:
        return False
    schema = answer.model_json_schema()
    return _shows(schema, schema.get("$defs", {}), [example.output for example in prompt.examples])


def _shows(schema: Mapping[str, Any], definitions: Mapping[str, Any], values: Sequence[Any]) -> bool:
    """Return True if values show all parts of a schema: each property, items of each list, and each label."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "object":
        parts = schema["properties"].items()
        return all(_shows(part, definitions, [v[name] for v in values if name in v]) for name, part in parts)
    if schema.get("type") == "array":
        return _shows(schema["items"], definitions, [item for value in values for item in value])
    labels = [True, False] if schema.get("type") == "boolean" else schema.get("enum", [])
    return bool(values) and all(label in values for label in labels)


@lru_cache(maxsize=256)
def _task(heading: str, prompt: Prompt, common: Common) -> str:
    text = f"{heading}\n{prompt.instruction}"
    if not prompt.examples:
        return text
    numbered = any(_names_chunks_by_number(example.output) for example in prompt.examples)
    examples = [_example(example.input, example.output, common.labels, numbered) for example in prompt.examples]
    return f"{text}\n\n{common.labels['examples']}\n" + "\n\n".join(examples)


@lru_cache(maxsize=16)
def _shared_system(prompts: PromptSet) -> str:
    common, own = prompts.common, prompts.prompts
    rules = [_task(common.labels["rules"].format(step=step), own[step], common) for step in SHARED if step in own]
    return "\n\n".join([common.system, *rules])


def _example(inputs: Mapping[str, Any], output: Mapping[str, Any], labels: Mapping[str, str], numbered: bool) -> str:
    """Return an example as text.

    Its contexts are part of its input, so that they are not taken for those of the request. Their chunks are lettered,
    so that a citation copied from it is recognised; numbered if the answers name chunks by number.
    """
    if "contexts" in inputs:
        lines = groupby(NumberedContexts.of(inputs["contexts"]).lines, key=lambda line: line.chunk)
        names = None if numbered else ascii_uppercase
        chunks = [" ".join(list(render_lines(list(chunk), names))[1:]) for _, chunk in lines]
        inputs = {"contexts": chunks, **{name: value for name, value in inputs.items() if name != "contexts"}}
    return f"{labels['example_input']} {_json(inputs)}\n{labels['example_output']} {_json(output)}"


def _names_chunks_by_number(output: Any) -> bool:
    """Return True if an answer has items whose `context` is the number of a chunk."""
    if isinstance(output, Mapping):
        return isinstance(output.get("context"), int) or any(map(_names_chunks_by_number, output.values()))
    return isinstance(output, list) and any(map(_names_chunks_by_number, output))


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_json = json.JSONEncoder(ensure_ascii=False, default=_plain, separators=(",", ":")).encode
