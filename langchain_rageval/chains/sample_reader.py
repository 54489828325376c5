"""Sample reader: build the sample of a run from its inputs, outputs, retrieved Documents and thread."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import BaseModel

from langchain_rageval.chains.run_trees import RootRun, find_documents
from langchain_rageval.data.conversations import TURN, read_history, turn_number
from langchain_rageval.data.field_names import read_fields
from langchain_rageval.data.messages import CONTEXT_SOURCES as SOURCES
from langchain_rageval.data.schema import Sample, Turn
from langchain_rageval.errors import SampleError

_NAMES = ("conversation", "conversation_id", "thread_id", "session_id")


def thread_id_in(values: Mapping[str, Any] | None) -> str | None:
    """Return the id of the conversation in the metadata or the configurable values of a run; None if there is none."""
    found = (values.get(name) for name in _NAMES) if values else ()
    return next((str(value) for value in found if value is not None and str(value).strip()), None)


def enclosing_thread_id() -> str | None:
    """Return the id of the conversation in the configurable values of the run around a step that is starting.

    LangChain passes configurable values, such as the `session_id` of a `RunnableWithMessageHistory`, to the steps of a
    run and not to its callback handlers.
    """
    config = var_child_runnable_config.get()
    return thread_id_in(config.get("configurable")) if config else None


SPANS = "context_spans"
"""Name in the metadata of a sample: source and offsets of each context in its document, in their order; None for a
context whose place is unknown."""

_STRUCTURED = "structured_response"  # name in the state of an agent with a `response_format`
_ANSWER_NAMES = ("result", "generation", "output_text", "text", "final_answer")


def read_sample(root: RootRun, inputs: Any, outputs: Any) -> Sample:
    """Return the sample of a run that has ended.

    Contexts that the outputs state are what the answer was made from, for example after reranking; if there are none,
    the contexts are the retrieved Documents in the order in which the retrievers started; else those in the inputs;
    else the Documents that passed between steps last. Texts that equal a Document have its id and source.

    Args:
        root: the run.
        inputs: inputs of the run, which hold the question.
        outputs: outputs of the run, which hold the answer. The only text in a mapping without an answer is the answer.

    Raises:
        SampleError: if no question is found, or a field has the wrong type.
    """
    inputs, outputs = _convert_messages(inputs), _convert_outputs(inputs, outputs)
    fields = {"id": str(root.run_id), "inputs": inputs, "outputs": outputs, "metadata": root.metadata}
    return _with_turn(root, _read(root, fields))


def _read(root: RootRun, fields: dict[str, Any]) -> Sample:
    """Return the sample of a run with its contexts and their sources."""
    inputs, outputs = fields["inputs"], fields["outputs"]
    documents = [*(root.contexts or []), *root.documents, *_documents_in(outputs)]
    contexts = _contexts(root, inputs, outputs)
    if contexts is None:
        sample = Sample.parse(fields)
        if sample.contexts is not None and not documents:
            return sample
        contexts = sample.contexts
    if contexts is None:
        contexts = root.documents or find_documents(outputs) or None
    if contexts is None:
        return Sample.parse(fields)
    by_text = {document.page_content: document for document in documents}
    contexts = [by_text.get(item, item) if isinstance(item, str) else item for item in contexts]
    sample = Sample.parse(_stated_ids(outputs, contexts) | fields | {"contexts": contexts})
    metadata = {name: value for name, value in sample.metadata.items() if name not in (SOURCES, SPANS)}
    tools = root.tools_by_text | _named_sources(fields)
    sources = [_source_of(context) or tools.get(_text_of(context)) for context in contexts]
    places: dict[str, list[Any]] = {SOURCES: sources, SPANS: [*map(_span_of, contexts)]}
    known = {name: values for name, values in places.items() if any(values)}
    return sample.model_copy(update={"metadata": metadata | known})


def _stated_ids(outputs: Any, contexts: Sequence[Any]) -> dict[str, Any]:
    """Return the ids that the outputs state beside these contexts, as chunks that are mappings have them."""
    stated = {} if _is_text(outputs) else read_fields({"outputs": outputs})
    ids = stated.get("context_ids") if stated.get("contexts") == contexts else None
    return {} if ids is None else {"context_ids": ids}


def _named_sources(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the tool, or the source, of each context in the messages of the outputs, by the text of the context."""
    if not isinstance(fields["outputs"], Mapping):
        return {}
    try:
        sample = Sample.parse(fields)
    except SampleError:  # the contexts of the outputs are of no known kind
        return {}
    sources = sample.metadata.get(SOURCES)
    if not isinstance(sources, list) or sample.contexts is None or len(sources) != len(sample.contexts):
        return {}
    return {text: source for text, source in zip(sample.contexts, sources, strict=True) if source}


def _with_turn(root: RootRun, sample: Sample) -> Sample:
    """Return the sample of a turn with the earlier turns as its history and its number, if the run shows them."""
    update: dict[str, Any] = {}
    history = sample.history
    if not history and root.messages:
        before = read_history(root.messages, sample.question)
        history = update["history"] = [Turn.model_validate(turn) for turn in before]
    if root.thread_id is not None and (history or root.messages is not None):
        update["metadata"] = {TURN: turn_number(history), **sample.metadata}
    return sample.model_copy(update=update) if update else sample


def _contexts(root: RootRun, inputs: Any, outputs: Any) -> Sequence[Any] | None:
    """Return the contexts that the outputs state or the retrievers found; None if there are neither."""
    stated = None if _is_text(outputs) else read_fields({"outputs": outputs}).get("contexts")
    retrieved = root.contexts
    if stated is None:
        return retrieved
    found = root.documents if retrieved is None else retrieved
    texts = [document.page_content for document in found]
    if _has_joins(stated, texts):
        return found if len(stated) == 1 else _split_joined(stated, found)
    if retrieved is not None:
        has_earlier = not root.is_new_conversation and bool(texts) and set(texts) < set(stated)
        if has_earlier or stated == read_fields({"inputs": inputs}).get("contexts"):
            return retrieved  # the state of a conversation keeps the Documents of earlier turns
    return list(stated)


def _has_joins(stated: Sequence[Any], texts: Sequence[str]) -> bool:
    """Return True if the stated contexts hold the texts of all Documents, and one of them more than such a text."""
    if not texts or not all(isinstance(item, str) for item in stated):
        return False
    is_complete = all(any(text in item for item in stated) for text in texts)
    return is_complete and any(item not in texts and any(text in item for text in texts) for item in stated)


def _split_joined(stated: Sequence[str], found: Sequence[Any]) -> list[Any]:
    """Return the stated contexts with the Documents in place of each text that joins them, as tools return them."""
    by_text = {document.page_content: document for document in found}
    parts: list[Any] = []
    for item in stated:
        texts = [item] if item in by_text else sorted(filter(item.__contains__, by_text), key=item.find)
        parts += [by_text[text] for text in texts] or [item]
    return parts


def _documents_in(outputs: Any) -> list[Any]:
    """Return the Documents in outputs, also those that are mappings, as in JSON."""
    lists = outputs.values() if isinstance(outputs, Mapping) else [outputs]
    items = [item for part in lists if isinstance(part, list) for item in part if isinstance(item, Mapping)]
    return [*find_documents(outputs), *(_document(item) for item in items if isinstance(item.get("page_content"), str))]


def _document(item: Mapping[str, Any]) -> Document:
    id = None if item.get("id") is None else str(item["id"])
    return Document(item["page_content"], id=id, metadata=dict(item.get("metadata") or {}))


def _text_of(context: Any) -> str:
    return str(getattr(context, "page_content", context))


def _source_of(context: Any) -> str | None:
    metadata = getattr(context, "metadata", None)
    source = metadata.get("source") if isinstance(metadata, Mapping) else None
    return None if source is None else str(source)


def _span_of(context: Any) -> list[Any] | None:
    """Return source, first and last offset of a Document that a splitter cut with `add_start_index=True`.

    None for a page of a file: its offsets count from the beginning of the page.
    """
    source, metadata = _source_of(context), getattr(context, "metadata", None) or {}
    start = metadata.get("start_index") if isinstance(metadata, Mapping) else None
    if source is None or type(start) is not int or start < 0 or "page" in metadata:
        return None
    return [source, start, start + len(context.page_content)]


def _convert_messages(value: Any) -> Any:
    """Return inputs or outputs with messages in any form that LangChain accepts converted to message objects."""
    if hasattr(value, "to_messages"):  # a prompt value
        return value.to_messages()
    if isinstance(value, Mapping) and value.get("messages"):
        return {**value, "messages": _to_messages(value["messages"])}
    return value


def _to_messages(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    try:
        return convert_to_messages(items)
    except (ValueError, TypeError, NotImplementedError):  # the key holds something else
        return value


def _convert_outputs(inputs: Any, outputs: Any) -> Any:
    """Return outputs under known names: of a retriever, of a function that returns a pair, and of other chains."""
    if isinstance(outputs, list) and all(map(_is_context, outputs)):
        return {"documents": outputs}
    if isinstance(outputs, tuple) and len(outputs) == 2 and _is_text(outputs[0]) and isinstance(outputs[1], list):
        return {"answer": outputs[0], "contexts": outputs[1]}
    outputs = _convert_structured(inputs, _convert_messages(_convert_model(outputs)))
    fields = read_fields({"outputs": outputs}) if isinstance(outputs, Mapping) else {"answer": outputs}
    if "answer" in fields:
        return outputs
    known = [value for value in _values(inputs) if isinstance(value, str)]
    unnamed = fields["metadata"]
    texts = [name for name, text in outputs.items() if name in unnamed and _is_text(text) and text not in known]
    name = next((name for name in _ANSWER_NAMES if name in texts), texts[0] if len(texts) == 1 else None)
    return outputs if name is None else {**outputs, "answer": outputs[name]}


def _convert_structured(inputs: Any, outputs: Any) -> Any:
    """Return the state of an agent with its structured response as the answer, which is no context."""
    response = outputs.get(_STRUCTURED) if isinstance(outputs, Mapping) else None
    if response is None:
        return outputs
    fields = _convert_outputs(inputs, response)
    answer = read_fields({"outputs": fields}).get("answer") if isinstance(fields, Mapping) else None
    text = json.dumps(fields, ensure_ascii=False, default=str) if answer is None else answer
    messages = outputs.get("messages") or []
    if messages and getattr(messages[-1], "type", None) == "tool":  # the model wrote the response as a call
        return {**outputs, "answer": text, "messages": messages[:-1]}
    return {**outputs, "answer": text}


def _convert_model(outputs: Any) -> Any:
    """Return the fields of a pydantic model or a dataclass as a mapping, with the objects that they hold."""
    is_model = isinstance(outputs, BaseModel) and not isinstance(outputs, Serializable)  # of the user, not of LangChain
    if is_model or (is_dataclass(outputs) and not isinstance(outputs, type)):
        names = type(outputs).model_fields if is_model else [part.name for part in dataclass_fields(outputs)]
        return {name: getattr(outputs, name) for name in names}
    return outputs


def _values(inputs: Any) -> Iterable[Any]:
    return inputs.values() if isinstance(inputs, Mapping) else [inputs]


def _is_context(value: Any) -> bool:
    """Return True for an item of a retriever's output: a Document, a mapping of one, or a text."""
    is_mapping = isinstance(value, Mapping) and "page_content" in value
    return is_mapping or isinstance(value, str) or hasattr(value, "page_content")


def _is_text(value: Any) -> bool:
    return isinstance(value, str | BaseMessage)
