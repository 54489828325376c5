"""Layout of requests: the messages of a request, and the inputs and the schema title read back from a message.

A request has exactly one system and one human message, because the chat templates of Mistral and Gemma accept no more.
The inputs are one JSON object on one line, the last JSON object of the human message, so that braces, quotes, line
separators, control tokens and instructions inside a text remain data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_uppercase
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.control_tokens import escape_control_tokens
from langchain_rageval.prompts.numbered_contexts import NumberedContexts, render_lines
from langchain_rageval.prompts.promptset import Common, Prompt, PromptSet

Layout = Literal["contexts_first", "instruction_first", "handbook"]

HANDBOOK = ("critique_aspect", "grade_contexts", "select_sentences", "verify_statements")
"""Steps whose instructions the handbook contains: those of metrics that usually run together. Each step lengthens every
request, so the other steps send their instructions themselves."""

_SEPARATOR = re.compile("[\x85\u2028\u2029]")  # line ends that JSON does not escape
_OF_SCHEMA = {"type", "properties", "anyOf", "$ref"}
_TITLE = re.compile(r'^\{.*"title": "(\w+)"', re.MULTILINE)


@dataclass(frozen=True)
class RequestContent:
    """Content of a request to the judge, before it is laid out as messages.

    Attributes:
        step: name of the step.
        prompts: prompt set of the language.
        prompt: prompt of the step.
        inputs: content of the JSON object.
        contexts: numbered contexts; None for a step that reads no contexts.
        schema: JSON schema of the answer.
        repeated: True if the items were sent before, and their reply was not usable.
        offline: function that gives an answer without a model; None for a step of the package.
        limits: what an answer to this request can contain; None if nothing is known beyond the schema.
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

    @property
    def in_handbook(self) -> bool:
        """True if the handbook, a system message shared by several steps, contains the instruction of this step."""
        return self.step in HANDBOOK and self.prompts.prompts.get(self.step) is self.prompt


def lay_out(
    request: RequestContent, layout: Layout, *, with_schema: bool, fold_system: bool = False
) -> list[BaseMessage]:
    """Return the messages of a request: system and human, or one human message if the system message is folded.

    Args:
        request: content of the request.
        layout: "contexts_first" puts the contexts before the task, so that a server with prefix caching processes the
            contexts once for all steps; "instruction_first" puts the task first; "handbook" puts the instructions of
            all `HANDBOOK` steps into the system message, which is then the same for the whole run.
        with_schema: include the answer's schema in the human message.
        fold_system: put the system message at the start of the human one, for templates without a system role.
    """
    system = _handbook(request.prompts) if layout == "handbook" else request.prompts.common.system
    human = "\n\n".join(_parts(request, layout, with_schema))
    if fold_system:
        return [HumanMessage(f"{system}\n\n{human}")]
    return [SystemMessage(system), HumanMessage(human)]


def read_inputs(human: str) -> dict[str, Any]:
    """Return the inputs in a human message: the last line that is a JSON object; code fences are ignored.

    Raises:
        ValueError: if the message contains no JSON object on a line.
    """
    line = human[human.rfind("\n{") + 1 :].split("\n", 1)[0]
    inputs = json.loads(line)
    if not isinstance(inputs, dict):
        raise ValueError("the last JSON line of the message is not an object")
    return inputs


def read_title(human: str) -> str | None:
    """Return the title of the answer's schema in a human message; None if the message contains no schema."""
    titles = _TITLE.findall(human)
    return str(titles[-1]) if titles else None


def read_schema(human: str) -> dict[str, Any] | None:
    """Return the answer's schema, which has a title, in a human message; None if there is no such schema."""
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
    if layout == "handbook" and request.in_handbook:
        task = labels["named_task"].format(step=request.step)
    else:
        task = _task(request.prompt, common)
    yield from [task, *block] if layout == "instruction_first" else [*block, task]
    if with_schema:
        yield f"{labels['schema']}\n{_json(request.schema)}"
    yield f"{labels['input']}\n```json\n{request.written_inputs}\n```"


# Parts that the requests of a run share are built once.
@lru_cache(maxsize=256)
def _task(prompt: Prompt, common: Common) -> str:
    return "\n\n".join([f"{common.labels['task']}\n{prompt.instruction}", *_examples(prompt, common.labels)])


@lru_cache(maxsize=16)
def _handbook(prompts: PromptSet) -> str:
    labels = prompts.common.labels
    parts = [prompts.common.system]
    for step, prompt in ((step, prompts.prompts[step]) for step in HANDBOOK if step in prompts.prompts):
        parts += [f"{labels['rules'].format(step=step)}\n{prompt.instruction}", *_examples(prompt, labels)]
    return "\n\n".join(parts)


def _examples(prompt: Prompt, labels: Mapping[str, str]) -> Iterator[str]:
    if prompt.examples:
        numbered = any(_names_chunks_by_number(example.output) for example in prompt.examples)
        examples = [_example(example.input, example.output, labels, numbered) for example in prompt.examples]
        yield "\n\n".join([labels["examples"], *examples])


def _example(inputs: Mapping[str, Any], output: Mapping[str, Any], labels: Mapping[str, str], numbered: bool) -> str:
    """Return an example as text.

    Its chunks are lettered, so that a citation copied from it is recognised. If the answers name chunks by number, the
    chunks are numbered as in a request, and indented: only lines of the request's own contexts start with a number.
    """
    lines = []
    if "contexts" in inputs:
        block = NumberedContexts.of(inputs["contexts"]).lines
        example_lines = (
            [f"  {line}" for line in render_lines(block)] if numbered else render_lines(block, ascii_uppercase)
        )
        lines += [labels["example_contexts"], *example_lines]
    rest = {name: value for name, value in inputs.items() if name != "contexts"}
    lines += [f"{labels['example_input']} {_json(rest)}", f"{labels['example_output']} {_json(output)}"]
    return "\n".join(lines)


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


_json = json.JSONEncoder(ensure_ascii=False, default=_plain).encode
