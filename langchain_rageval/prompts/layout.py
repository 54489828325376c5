"""How a request is laid out: always exactly one system and one human message.

Mistral's and Gemma's chat templates refuse more. Inputs travel as one JSON object on one line, the last of the human
message, so braces, quotes and orders in a text stay data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_uppercase
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.prompts.numbered_contexts import NumberedContexts, numbered_lines
from langchain_rageval.prompts.promptset import Common, Prompt, PromptSet

Layout = Literal["contexts_first", "instruction_first", "handbook"]

HANDBOOK = ("critique_aspect", "grade_contexts", "select_sentences", "verify_statements")
"""Steps whose rules the handbook holds: those of metrics that are usually asked together. Each lengthens every request,
so the others, which read contexts as well, bring their own rules along."""

_TITLE = re.compile(r'^\{.*"title": "(\w+)"', re.MULTILINE)


@dataclass(frozen=True)
class RequestContent:
    """One question to the judge, before it is laid out.

    Attributes:
        step: the step's name.
        prompts: the language's prompts.
        prompt: the step's own.
        inputs: what the JSON object holds.
        contexts: the numbered block, for a step that reads contexts.
        schema: JSON schema of the answer.
    """

    step: str
    prompts: PromptSet
    prompt: Prompt
    inputs: Mapping[str, Any]
    contexts: NumberedContexts | None
    schema: Mapping[str, Any]

    @cached_property
    def written_inputs(self) -> str:
        """The JSON object on its one line."""
        return str(without_surrogates(_json(self.inputs)))

    @property
    def in_handbook(self) -> bool:
        """Whether the handbook holds this step's rules."""
        return self.step in HANDBOOK and self.prompts.prompts.get(self.step) is self.prompt


def lay_out(
    request: RequestContent, layout: Layout, *, with_schema: bool, fold_system: bool = False
) -> list[BaseMessage]:
    """The messages of a request.

    Args:
        request: what is asked.
        layout: "contexts_first" puts the block before the task, so that a server with prefix caching reads the contexts
            once for all steps; "instruction_first" the task before the block; "handbook" the rules of `HANDBOOK`
            into the system message, which is then the same for the whole run.
        with_schema: show the answer's schema in the human message.
        fold_system: put the system message at the head of the human one, for templates without a system role.
    """
    system = _handbook(request.prompts) if layout == "handbook" else request.prompts.common.system
    human = "\n\n".join(_parts(request, layout, with_schema))
    if fold_system:
        return [HumanMessage(f"{system}\n\n{human}")]
    return [SystemMessage(system), HumanMessage(human)]


def read_inputs(human: str) -> dict[str, Any]:
    """The inputs in a human message: the last JSON object, found by its line, never by its fence.

    Raises:
        ValueError: if there is none.
    """
    line = human[human.rfind("\n{") + 1 :].split("\n", 1)[0]
    inputs = json.loads(line)
    if not isinstance(inputs, dict):
        raise ValueError("the last JSON line of the message is no object")
    return inputs


def read_title(human: str) -> str | None:
    """Title of the answer's schema that a human message shows; None when it shows none."""
    titles = _TITLE.findall(human)
    return str(titles[-1]) if titles else None


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


# What the requests of a run have in common is put together once.
@lru_cache(maxsize=256)
def _task(prompt: Prompt, common: Common) -> str:
    return "\n\n".join([f"{common.labels['task']}\n{prompt.instruction}", *_examples(prompt, common.labels)])


@lru_cache(maxsize=16)
def _handbook(prompts: PromptSet) -> str:
    labels = prompts.common.labels
    parts = [prompts.common.system]
    held = {step: prompts.prompts[step] for step in HANDBOOK if step in prompts.prompts}
    for step, prompt in held.items():
        parts += [f"{labels['rules'].format(step=step)}\n{prompt.instruction}", *_examples(prompt, labels)]
    return "\n\n".join(parts)


def _examples(prompt: Prompt, labels: Mapping[str, str]) -> Iterator[str]:
    if prompt.examples:
        yield "\n\n".join([labels["examples"], *(_example(e.input, e.output, labels) for e in prompt.examples)])


def _example(inputs: Mapping[str, Any], output: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    lines = []
    if "contexts" in inputs:
        block = NumberedContexts.of(inputs["contexts"])
        lines += [labels["example_contexts"], *numbered_lines(block.lines, ascii_uppercase)]
    rest = {name: value for name, value in inputs.items() if name != "contexts"}
    lines += [f"{labels['example_input']} {_json(rest)}", f"{labels['example_output']} {_json(output)}"]
    return "\n".join(lines)


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_json = json.JSONEncoder(ensure_ascii=False, default=_plain).encode
