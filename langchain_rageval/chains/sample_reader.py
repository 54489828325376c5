"""Sample reader: build a sample from a run's inputs, outputs, prompts, retrieved Documents and conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import BaseModel

from langchain_rageval.chains.prompt_search import Chunk, ModelCall, Part, find_read, find_writer
from langchain_rageval.chains.run_trees import RootRun, find_documents, record_fields
from langchain_rageval.data.conversations import CONVERSATION_IDS, TURN, read_history, turn_number
from langchain_rageval.data.field_names import chunk_id, read_fields
from langchain_rageval.data.foreign_records import flatten_record
from langchain_rageval.data.messages import (
    CONTEXT_NOTES,
    CONTEXTS_FROM,
    NO_CONTEXTS,
    SPANS,
    media_of,
    source_of,
    unwrap_text,
)
from langchain_rageval.data.messages import CONTEXT_SOURCES as SOURCES
from langchain_rageval.data.schema import Sample, Turn, without_surrogates
from langchain_rageval.errors import SampleError


def thread_id_in(values: Mapping[str, Any] | None) -> str | None:
    """Return the conversation id in the metadata or configurable values of a run; None if there is no id."""
    found = (values.get(name) for name in CONVERSATION_IDS) if values else ()
    return next((str(value) for value in found if value is not None and str(value).strip()), None)


def enclosing_thread_id() -> str | None:
    """Return the conversation id in the configurable values of the run that is starting a step; None without id.

    LangChain passes configurable values, such as the `session_id` of a `RunnableWithMessageHistory`, only to the steps
    of a run. Callback handlers do not receive them.
    """
    config = var_child_runnable_config.get()
    return thread_id_in(config.get("configurable")) if config else None


_MOSTLY = 0.8  # share of a text

_NO_RETRIEVER = "no retriever ran: return the documents"

_EXAMPLE_HEADING = re.compile(
    r"(?:^|[\W_])(?:examples?|few[- _]?shots?|demonstrations?|shots|примеры?|образцы?|образец)(?![^\W_])[^.]{0,60}$",
    re.I,
)
_CONTEXT_HEADING = re.compile(
    r"context|docs|document|passage|source|excerpt|faq|knowledge|контекст|документ|фрагмент|выдержк|источник|справк|база",
    re.I,
)
_SURE_EXAMPLES = re.compile(r"few_?shot|selector|demonstration|router", re.IGNORECASE)
_PAIR = re.compile(
    r"\W*(?:q|в|(?:question|input|user|human|customer|query|вопрос|запрос|клиент|пользователь|ввод)\b[^:\n]{0,12}):.+"
    r"(?:^|[\W_])(?:a|о|(?:answer|output|assistant|ai|agent|response|reply|topic|ответ|вывод|тема)\b[^:\n]{0,12}):",
    re.IGNORECASE | re.DOTALL,
)
_STRUCTURED = "structured_response"  # name in the state of an agent with a `response_format`
_ANSWER_NAMES = ("result", "generation", "output_text", "text", "final_answer")


def snapshot(value: Any) -> Any:
    """Return a copy of inputs or outputs that is safe from later changes of the original.

    The lists, mappings, Documents and messages inside are copied.
    """
    match value:
        case dict():
            return {name: snapshot(part) for name, part in value.items()}
        case list():
            return [*map(snapshot, value)]
        case Document():
            return value.model_copy(update={"metadata": dict(value.metadata)})
        case BaseMessage() | BaseModel():
            return value.model_copy()
    return value


def read_chain_run(root: RootRun, inputs: Any, outputs: Any) -> Sample:
    """Return the sample of a run that has ended.

    Call this function outside the thread of the chain, because prompts may be large.

    The contexts are taken from the first of these sources that has any: the chunks in the prompt of the model that
    wrote the answer; the contexts in the outputs; the retrieved Documents, in the order in which the retrievers
    started; the contexts in the inputs; the Documents that were passed between steps last. A text that equals a
    Document gets the id and source of the Document.

    Args:
        root: the run.
        inputs: inputs of the run, which hold the question.
        outputs: outputs of the run, which hold the answer. If a mapping has no answer field, its only text is the
            answer.

    Raises:
        SampleError: if no question is found, as in a message that holds only an image, or if a field has the wrong
            type.
    """
    inputs, outputs = _convert_messages(inputs), _convert_outputs(inputs, outputs)
    fields = {"id": str(root.run_id), "inputs": inputs, "outputs": outputs, "metadata": root.metadata}
    tools = root.tools_by_text | _named_sources(fields)
    sample = _read(root, fields, tools)
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else inputs
    if not sample.question.strip() and isinstance(messages, list) and messages and (media := media_of(messages[-1])):
        raise SampleError(f"the message of the user has no text that could be a question, only {media}")
    chunks = _chunks_of(root, sample, tools)
    calls = [*root.calls.values()]  # a step that was abandoned may go on
    parts: list[Part] = []
    if sample.answer is not None:
        alone = [chunk for chunk in chunks if chunk.id is not None or not _joins(chunk, chunks)]
        queries = [(text, time) for query, time in root.queries for text in _values(query) if isinstance(text, str)]
        parts = find_read(sample.answer, sample.question, alone, calls, queries, root.examples)
    if found := _example_runs(root, parts):
        root.examples_by_run |= dict.fromkeys(found, "few_shot")
        sample = _read(root, fields, tools)
    sample, examples = _with_turn(root, sample), _examples_of(root)
    parts = [part for part in parts if part.chunk.text not in examples]
    if parts:
        parts = [part._replace(chunk=_origin(part.chunk, chunks)) for part in parts]
        columns = _columns(part.chunk._replace(text=part.text) for part in parts)
        sources = [part.chunk.source for part in parts]
        sample = _with_places(sample, "prompt", *columns, sources, [*map(_span_of_part, parts)])
    elif _has_read_nothing(root, sample, chunks, calls):
        sample = _with_places(sample, "prompt", [], [], [], [])
    elif sample.contexts is None and sample.answer is not None:
        sample = sample.model_copy(update={"metadata": {NO_CONTEXTS: _NO_RETRIEVER} | sample.metadata})
    texts, ids = (None, None) if root.contexts is None else _columns(map(_chunk, root.contexts))
    if texts is None or texts == sample.contexts:
        return sample
    return sample.model_copy(update={"retrieved": texts, "retrieved_ids": ids})


def _read(root: RootRun, fields: dict[str, Any], tools: Mapping[str, str]) -> Sample:
    """Return the sample of a run with its contexts and their sources, without regard to prompts."""
    inputs, outputs = fields["inputs"], fields["outputs"]
    documents = [*(root.contexts or []), *root.documents, *_documents_in(outputs)]
    contexts, origin = _contexts(root, inputs, outputs)
    if contexts is None:
        sample = Sample.parse(fields)
        given = {_text_of(item) for value in _values(inputs) if isinstance(value, list) for item in value}
        contexts = sample.contexts
        origin = "given" if contexts and given.issuperset(contexts) else "output"
        if contexts is not None and not documents:
            return sample.model_copy(update={"metadata": {**sample.metadata, CONTEXTS_FROM: origin}})
    if contexts is None:
        passed = root.documents or find_documents(outputs)
        contexts, origin = [one for one in passed if _may_be_context(root, one)] or None, "retriever"
    if contexts is None:
        return Sample.parse(fields)
    by_text = {document.page_content: document for document in documents}
    contexts = [by_text.get(item, item) if isinstance(item, str) else item for item in contexts]
    stated = {} if _is_text(outputs) else read_fields({"outputs": outputs})
    ids = stated.get("context_ids") if stated.get("contexts") == contexts else None
    sample = Sample.parse(({} if ids is None else {"context_ids": ids}) | fields | {"contexts": contexts})
    sources = [source_of(context) or tools.get(_text_of(context)) for context in contexts]
    return _with_places(sample, origin, sample.contexts, sample.context_ids, sources, [*map(_span_of, contexts)])


def _with_places(sample: Sample, origin: str, texts: Any, ids: Any, sources: Any, spans: Any) -> Sample:
    """Return a sample with contexts and their ids, and with their origin, sources and places in its metadata."""
    metadata = {name: value for name, value in sample.metadata.items() if name not in CONTEXT_NOTES}
    metadata |= {name: values for name, values in ((SOURCES, sources), (SPANS, spans)) if any(values)}
    metadata[CONTEXTS_FROM] = origin
    return sample.model_copy(update={"contexts": texts, "context_ids": ids, "metadata": metadata})


def _chunk(document: Any, tools: Mapping[str, str] | None = None, seen: int = 0) -> Chunk:
    """Return the chunk of a Document, or of an object like one."""
    text, id = _text_of(document), chunk_id(document)
    source = source_of(document) or (tools or {}).get(text)
    return Chunk(text, None if id is None else str(id), source, _span_of(document), seen)


def _columns(chunks: Iterable[Chunk]) -> tuple[list[str], list[str] | None]:
    """Return the texts of chunks, and their ids; None for these unless all have one."""
    chunks = list(chunks)
    ids = [chunk.id for chunk in chunks if chunk.id is not None]
    return without_surrogates([chunk.text for chunk in chunks]), ids if len(ids) == len(chunks) else None


def _chunks_of(root: RootRun, sample: Sample, tools: Mapping[str, str]) -> list[Chunk]:
    """Return all chunks that a run has handled: its Documents, and the contexts of its sample; each text once."""
    chunks: dict[str, Chunk] = {}
    for document, time in [*root.seen.values()]:
        chunk = _chunk(document, tools, time)
        known = chunks.setdefault(chunk.text, chunk)
        if known.id is None and chunk.id is not None:
            chunks[chunk.text] = chunk._replace(seen=known.seen)
    contexts = sample.contexts or []
    columns = (sample.context_ids or [], sample.metadata.get(SOURCES) or [], sample.metadata.get(SPANS) or [])
    ids, sources, spans = (column if len(column) == len(contexts) else [] for column in columns)
    for text, id, source, span in zip_longest(contexts, ids, sources, spans):
        chunks.setdefault(text, Chunk(text, id, source, span))
    return [*chunks.values()]


def _example_runs(root: RootRun, parts: Sequence[Part]) -> set[UUID]:
    """Return the retrievals of examples (few-shot), beside another retrieval, that a prompt shows to be that.

    Their first chunk has such a heading; or all their Documents are pairs of question and answer, no Document of the
    other retrievals is one, and no heading says that they are contexts.
    """
    runs = {run_id: [*map(_text_of, documents)] for run_id, documents in root.retrieved.items() if documents}
    pairs = {run_id: [bool(_PAIR.match(text)) for text in texts] for run_id, texts in runs.items()}
    of_text = {text: run_id for run_id, texts in runs.items() for text in texts}
    headings: dict[Any, str] = {}
    for part in parts:
        headings.setdefault(of_text.get(part.chunk.text), part.heading)
    found = set()
    for run_id in headings.keys() & runs.keys():
        heading = headings[run_id]
        others = [is_pair for other, of_run in pairs.items() if other != run_id for is_pair in of_run]
        has_form = all(pairs[run_id]) and others and not any(others)
        if not _CONTEXT_HEADING.search(heading) and (_EXAMPLE_HEADING.search(heading) or has_form):
            found.add(run_id)
    return found if found < runs.keys() else set()


def _examples_of(root: RootRun) -> set[str]:
    """Return the texts of retrievals of examples and routes, as the names of their retrievers say.

    A name such as "code_examples" says so only beside another retrieval.
    """
    runs = {run_id: [*map(_text_of, documents)] for run_id, documents in root.retrieved.items() if documents}
    is_alone = root.examples_by_run.keys() >= runs.keys()
    named = [run_id for run_id, name in root.examples_by_run.items() if not is_alone or _SURE_EXAMPLES.search(name)]
    return {text for run_id in named for text in runs.get(run_id, ())}


def _may_be_context(root: RootRun, document: Any) -> bool:
    """Return False for a Document, or a text, of a retrieval of examples or routes, and for a named example."""
    text = _text_of(document)
    return text not in _examples_of(root) and not any(text in example for example in root.examples)


def _has_read_nothing(root: RootRun, sample: Sample, chunks: Sequence[Chunk], calls: Sequence[ModelCall]) -> bool:
    """Return True if it is certain that the model which wrote an answer was given no chunk, since a step dropped all.

    Either each chunk that the run handled before was given to a step that returned nothing, or the prompt was filled
    with nothing but the question. A chunk in a form that is not recognized, such as a translation, may be read.
    """
    writer = None if sample.answer is None else find_writer(sample.answer, calls)
    if writer is None:
        return False
    known = {chunk.text for chunk in chunks if 0 < chunk.seen < writer.started and _may_be_context(root, chunk.text)}
    dropped = {_text_of(one) for items, time in root.dropped if time < writer.started for one in items}
    is_filled_alone = any(
        [message.content for message in output.to_messages()] == [content for content, _ in writer.prompt]
        and not any(_may_hold_chunk(value, output.to_string(), sample.question) for value in _values(inputs))
        for inputs, output in root.filled
    )
    return bool(known) and (known <= dropped or is_filled_alone)


def _may_hold_chunk(value: Any, prompt: str, question: str) -> bool:
    """Return True if a value with which a prompt was filled may hold a chunk in any form."""
    if isinstance(value, list) and value and all(isinstance(item, BaseMessage) for item in value):
        return any(not isinstance(item, AIMessage) and unwrap_text(item).strip() not in question for item in value)
    text = str(value).strip()
    return bool(value) and bool(text) and text not in question and text in prompt


def _joins(chunk: Chunk, others: Sequence[Chunk]) -> bool:
    """Return True if most of a chunk is the texts of several other ones, as if a formatter had joined them."""
    parts = [other.text for other in others if len(other.text) < len(chunk.text) and other.text in chunk.text]
    return len(parts) > 1 and sum(map(len, parts)) >= _MOSTLY * len(chunk.text)


def _origin(chunk: Chunk, others: Sequence[Chunk]) -> Chunk:
    """Return the chunk with an id that a chunk without one was cut from, or mostly consists of; else the chunk.

    The text of a tool, which is no Document, has the tool and the id of its call as its id if other chunks have ids.
    """
    if chunk.id is not None or not chunk.text.strip():
        return chunk
    text = chunk.text.strip()
    wholes = (other for other in others if other.id is not None and text in other.text)
    cores = (one for one in others if one.id is not None and one.text in text and len(one.text) >= _MOSTLY * len(text))
    found = next(wholes, next(cores, None))
    if found is None and not chunk.seen and chunk.source and any(other.id is not None for other in others):
        return chunk._replace(id=chunk.source)
    return found or chunk


def _span_of_part(part: Part) -> list[Any] | None:
    """Return the span of the part of a chunk that was read; None if it is unknown or of several parts."""
    offset = part.chunk.text.find(part.text)
    if part.chunk.span is None or offset < 0:
        return None
    source, start, _ = part.chunk.span
    return [source, start + offset, start + offset + len(part.text)]


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
        history = update["history"] = [*map(Turn.model_validate, read_history(root.messages, sample.question))]
    if root.thread_id is not None and (history or root.messages is not None):
        update["metadata"] = {TURN: turn_number(history), **sample.metadata}
    return sample.model_copy(update=update) if update else sample


def _contexts(root: RootRun, inputs: Any, outputs: Any) -> tuple[Sequence[Any] | None, str]:
    """Return the contexts that the outputs state or the retrievers found, and which; None if there are neither."""
    stated = None if _is_text(outputs) else read_fields({"outputs": outputs}).get("contexts")
    retrieved = None if root.contexts is None else [one for one in root.contexts if _may_be_context(root, one)]
    if stated is None:
        return (None if root.contexts and not retrieved else retrieved), "retriever"
    found = root.documents if retrieved is None else retrieved
    texts = [document.page_content for document in found]
    if _has_joins(stated, texts):
        return (found if len(stated) == 1 else _split_joined(stated, found)), "output"
    if retrieved is not None:
        has_earlier = not root.is_new_conversation and bool(texts) and set(texts) < set(stated)
        if has_earlier or stated == read_fields({"inputs": inputs}).get("contexts"):
            return retrieved, "retriever"  # the state of a conversation keeps the Documents of earlier turns
    return list(stated), "output"


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
    documents = find_documents(outputs)
    for item in items:
        if isinstance(text := item.get("page_content"), str):
            id = None if item.get("id") is None else str(item["id"])
            documents.append(Document(text, id=id, metadata=dict(item.get("metadata") or {})))
    return documents


def _text_of(context: Any) -> str:
    return str(getattr(context, "page_content", context))


def _span_of(context: Any) -> list[Any] | None:
    """Return source, first and last offset of a Document that a splitter cut with `add_start_index=True`.

    None for a page of a file: its offsets count from the beginning of the page.
    """
    source, metadata = source_of(context), getattr(context, "metadata", None) or {}
    start = metadata.get("start_index") if isinstance(metadata, Mapping) else None
    if source is None or type(start) is not int or start < 0 or "page" in metadata:
        return None
    return [source, start, start + len(context.page_content)]


def _convert_messages(value: Any) -> Any:
    """Return inputs or outputs with messages in any form that LangChain accepts converted to message objects."""
    if hasattr(value, "to_messages"):  # a prompt value
        return value.to_messages()
    if isinstance(value, Mapping) and (items := value.get("messages")):
        with suppress(ValueError, TypeError, NotImplementedError):  # the key holds something else
            return {**value, "messages": convert_to_messages(items if isinstance(items, list | tuple) else [items])}
    return value


def _convert_outputs(inputs: Any, outputs: Any) -> Any:
    """Return outputs under known names: of a retriever, of a function that returns a pair, and of other chains."""
    if isinstance(outputs, list) and all(map(_is_context, outputs)):
        return {"documents": outputs}
    if isinstance(outputs, tuple) and len(outputs) == 2 and _is_text(outputs[0]) and isinstance(outputs[1], list):
        return {"answer": outputs[0], "contexts": outputs[1]}
    outputs = _convert_structured(inputs, _convert_messages(record_fields(outputs)))
    outputs = flatten_record(outputs) if isinstance(outputs, Mapping) else outputs
    fields = read_fields({"outputs": outputs}) if isinstance(outputs, Mapping) else {"answer": outputs}
    if "answer" in fields:
        return outputs
    parts = (part for part in map(record_fields, outputs.values()) if isinstance(part, Mapping))
    answers = [part["answer"] for part in parts if _is_text(part.get("answer"))]
    if len(answers) == 1:
        return {**outputs, "answer": answers[0]}
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


def _values(inputs: Any) -> Iterable[Any]:
    return inputs.values() if isinstance(inputs, Mapping) else [inputs]


def _is_context(value: Any) -> bool:
    """Return True for an item of a retriever's output: a Document, a mapping of one, or a text."""
    is_mapping = isinstance(value, Mapping) and "page_content" in value
    return is_mapping or isinstance(value, str) or hasattr(value, "page_content")


def _is_text(value: Any) -> bool:
    return isinstance(value, str | BaseMessage)
