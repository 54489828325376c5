"""The names that other libraries have for the fields of a sample, and how to read what goes by them.

Messages, documents, runs, arrays and pandas' missing values are known by their attributes: no library is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any
from uuid import UUID

from langchain_rageval.errors import ConfigError, SampleError

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "question": ("question", "user_input", "input", "inputs", "messages"),
    "answer": ("answer", "response", "output", "outputs", "messages"),
    "contexts": ("contexts", "retrieved_contexts", "messages", "context", "documents", "outputs", "retrieved_docs"),
    "references": ("references", "reference", "ground_truths", "ground_truth", "reference_outputs"),
    "reference_contexts": ("reference_contexts",),
    "context_ids": ("context_ids", "retrieved_context_ids"),
    "reference_context_ids": ("reference_context_ids",),
    "relevance": ("relevance",),
    "metadata": ("metadata",),
}
"""Field of Sample to the names it goes by; the first that holds the field wins, then any other name that does."""

MEANING = {name: field for field in reversed(NAMES) for name in NAMES[field]}
"""Name to the field that a bare value under it fills: the first that lists the name."""

LIST_FIELDS = frozenset({"contexts", "references", "reference_contexts", "context_ids", "reference_context_ids"})
"""Fields that take several values."""

_TEXT_FIELDS = frozenset({"question", "answer", "contexts", "references", "reference_contexts"})
_CONTAINERS = frozenset({"inputs", "outputs", "reference_outputs"})
_AS_REFERENCE = {"answer": "references", "contexts": "reference_contexts", "context_ids": "reference_context_ids"}
_SPEAKERS = {"user": "human", "assistant": "ai"} | {speaker: speaker for speaker in ("human", "ai", "tool", "system")}


def read_fields(obj: Any, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read the keyword arguments of a Sample from whatever a RAG system or a data set calls one.

    Args:
        obj: a mapping, or an object with such attributes: a pandas row, a dataclass, a LangSmith Run or Example.
        fields: field of Sample to the name or dotted path under which `obj` keeps it; goes before every known name.

    Returns:
        The fields that `obj` holds; in `metadata` what goes by no known name, or lost to a name that goes before.

    Raises:
        SampleError: if `obj` has no fields at all, or a str where a list of str belongs.
        ConfigError: if a key of `fields` is no field of Sample, or a value no name.
    """
    fields = fields or {}
    check_fields(fields)
    values = _values(obj)
    mapped = {field: _part(field, path, _follow(values, path)).get(field) for field, path in fields.items()}
    rest = {name: value for name, value in values.items() if name not in fields.values()}
    return _finished(_read(rest, mapped))


def read_run(run: Any, example: Any = None) -> dict[str, Any]:
    """Read the keyword arguments of a Sample from a LangSmith run and the example that it answered.

    Args:
        run: gives the answer, and the contexts: those of its outputs, else of the retrievers within it.
        example: gives the question, the references and the id; the run gives what the example lacks.
    """
    ran = _read(_values(run), {})
    asked = _read(_values(example), {}) if example is not None else {"metadata": {}}
    first = {field: asked[field] for field in ("id", "question", "references") if field in asked}
    return _finished(asked | ran | first | {"metadata": ran["metadata"] | asked["metadata"]})


def check_fields(fields: Mapping[str, str]) -> None:
    """Raise ConfigError if `fields` is no mapping of fields of Sample to names."""
    example = "fields maps fields of Sample to your names for them, as in {'question': 'q'}"
    for field in fields:
        if field not in NAMES:
            raise ConfigError(f"{example}; {field!r} is no field: use one of {', '.join(NAMES)}")
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{example}; got {type(fields).__name__}")
    for field, name in fields.items():
        if not isinstance(name, str):
            raise ConfigError(f"{example}; got {name!r} for {field!r}")


def unwrap_text(value: Any) -> Any:
    """The text of a document or a message; anything else as it is."""
    if isinstance(value, str):
        return value
    if _is_document(value):
        return _get(value, "page_content")
    content = _get(value, "content") if _speaker(value) else value
    if content is value or isinstance(content, str):
        return content
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return "".join(_get(block, "text") or "" for block in blocks if _get(block, "type") == "text")


def _read(values: Mapping[str, Any], mapped: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that known names hold, `mapped` ones before all; `metadata` is always among them."""
    parts = {name: _part(MEANING[name], name, value) for name, value in values.items() if name in MEANING}
    found = dict(mapped)
    for field, names in NAMES.items():
        for name in names:
            if field in parts.get(name, {}):
                found.setdefault(field, parts[name][field])
    metadata = {name: value for name, value in values.items() if name not in MEANING}
    for name, part in parts.items():
        metadata = part.get("metadata", {}) | metadata
        if part.get(MEANING[name]) is values[name] is not found[MEANING[name]]:
            metadata[name] = values[name]
        found = part | found
    return found | {"metadata": metadata | (mapped.get("metadata") or {})}


def _part(field: str, name: str, value: Any) -> dict[str, Any]:
    """What a value that goes by `name` tells: its field, or several when there are messages or a mapping in it."""
    if field == "metadata":
        return {field: value if isinstance(value, Mapping) else {name: value}}
    if field in ("question", "answer") and (messages := _messages(value)):
        return _conversation(messages)
    if field in _TEXT_FIELDS and isinstance(value, Mapping) and unwrap_text(value) is value:
        return _inside(field, name, value)
    if isinstance(value, str) and field in LIST_FIELDS - {"references"} and name != "context":
        came = f"{field}: expected a list of str, got str {value[:40]!r} under {name!r}"
        raise SampleError(f"{came}: put it into a list (in CSV, write a JSON list)", field)
    return {field: value}


def _inside(field: str, name: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """What a mapping tells that stands where `field` was looked for; under a reference, all it tells is reference."""
    values = _present(mapping)
    if len(values) == 1 and not values.keys() & MEANING.keys():
        return _part(field, name, *values.values())
    part = _read(values, {})
    if part.keys() == {"metadata"} and name not in _CONTAINERS:
        return {field: mapping}
    if field.startswith("reference"):
        return {_AS_REFERENCE.get(told, told): value for told, value in part.items()}
    return part


def _messages(value: Any) -> list[Any]:
    """The messages in a list of nothing else, some of them of a speaker whom we know; none in anything else."""
    messages = [_spelled_out(item) for item in value] if isinstance(value, list) else []
    return messages if all(map(_is_message, messages)) and any(map(_speaker, messages)) else []


def _spelled_out(item: Any) -> Any:
    """A message from a pair of role and text, and with an empty text where it only calls a tool; else the item."""
    match item:
        case [str() as role, str() as content]:
            return {"role": role, "content": content}
        case {"role": str(), "content": None} | {"role": str(), "tool_calls": _}:
            return {**item, "content": item.get("content") or ""}
    return item


def _conversation(messages: list[Any]) -> dict[str, Any]:
    """The last question in a list of messages, and the answer and the tools' documents that follow it."""
    asked = max((place for place, message in enumerate(messages) if _speaker(message) == "human"), default=-1)
    turn = messages[asked + 1 :]
    answers = [message for message in turn if _speaker(message) == "ai" and unwrap_text(message).strip()]
    artifacts = [_get(message, "artifact") for message in turn if _speaker(message) == "tool"]
    retrieved = [found for found in artifacts if isinstance(found, list) and all(map(_is_document, found))]
    part = {"question": messages[asked] if asked >= 0 else None, "answer": answers[-1] if answers else None}
    return _present(part | {"contexts": _joined(retrieved)})


def _finished(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as Sample takes them, with the ids of documents when every one has an id."""
    done = {field: _shaped(field, value) for field, value in found.items() if value is not None}
    for field, ids in (("contexts", "context_ids"), ("reference_contexts", "reference_context_ids")):
        documents = found.get(field)
        known = [_get(document, "id") for document in documents] if isinstance(documents, list) else []
        if known and None not in known:
            done.setdefault(ids, _shaped(ids, known))
    return done


def _shaped(field: str, value: Any) -> Any:
    """Texts of documents and messages, ids as str, a lone text in a list."""
    if field == "relevance" and isinstance(value, Mapping):
        return _present(value)  # Parquet pads each row with the ids of all the others
    shape = unwrap_text if field in _TEXT_FIELDS else _identifier
    if isinstance(value, list):
        return [shape(item) for item in value]
    shaped = shape(value)
    return [shaped] if field in LIST_FIELDS and isinstance(shaped, str) else shaped


def _identifier(value: Any) -> Any:
    return str(value) if isinstance(value, int | UUID) else value


def _values(obj: Any) -> dict[str, Any]:
    attributes = _attributes(obj)
    if not attributes and not isinstance(obj, Mapping):
        expected = "expected a sample: a mapping, or an object with attributes such as question"
        raise SampleError(f"{expected}; got {type(obj).__name__}: pass one sample")
    return _present(_plain(attributes))


def _attributes(obj: Any) -> Mapping[Any, Any]:
    """Public attributes of an object, items of a mapping or a pandas row, and the data of a Run or an Example."""
    if callable(getattr(obj, "items", None)):
        return dict(obj.items())
    if hasattr(obj, "_asdict"):
        return dict(obj._asdict())
    if hasattr(obj, "run_type") and hasattr(obj, "outputs"):
        told = {"id": obj.id, "metadata": (obj.extra or {}).get("metadata"), "inputs": obj.inputs}
        return told | {"outputs": obj.outputs, "retrieved_docs": _joined(_retrievals(obj))}
    if hasattr(obj, "dataset_id") and hasattr(obj, "outputs"):
        told = {"id": _get(obj, "id"), "metadata": obj.metadata, "inputs": obj.inputs}
        return told | {"reference_outputs": obj.outputs}
    own = [*getattr(obj, "__dict__", ()), *getattr(obj, "__dataclass_fields__", ())]
    names = [*own, *(getattr(obj, "model_extra", None) or ()), *MEANING]
    return {name: getattr(obj, name) for name in names if not name.startswith("_") and hasattr(obj, name)}


def _retrievals(run: Any) -> Iterator[list[Any]]:
    """What each retriever within a LangSmith run returned; retrievers that a retriever calls are its own affair."""
    for child in run.child_runs or ():
        outputs = child.outputs or {}
        documents = outputs.get("documents", outputs.get("output"))
        if child.run_type != "retriever":
            yield from _retrievals(child)
        elif isinstance(documents, list):
            yield documents


def _joined(lists: Iterable[list[Any]]) -> list[Any] | None:
    found = list(lists)
    return list(chain.from_iterable(found)) if found else None


def _plain(value: Any) -> Any:
    """The value in Python's own types: arrays as lists, models as dicts, whatever stands for "missing" as None."""
    if type(value) is str:
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    match value:
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if value != value:
            return None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    is_record = hasattr(type(value), "model_fields") or hasattr(value, "__dataclass_fields__")
    return _plain(_attributes(value)) if is_record else value


def _present(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if value is not None}


def _follow(values: Any, path: str) -> Any:
    """What a name or a dotted path leads to, through mappings and other objects; None when it leads nowhere."""
    for step in [path] if path in values else path.split("."):
        values = values.get(step) if isinstance(values, Mapping) else _part_of(values, step)
    return values


def _part_of(value: Any, name: str) -> Any:
    """What an object of any class keeps under a name; a text and a method keep nothing that is meant."""
    found = None if isinstance(value, str) else getattr(value, name, None)
    return None if callable(found) else _plain(found)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _is_document(value: Any) -> bool:
    return isinstance(_get(value, "page_content"), str)


def _is_message(value: Any) -> bool:
    """Whether the value is one of LangChain's messages, or a mapping with role or type, and content."""
    return isinstance(_role(value), str) and isinstance(_get(value, "content"), str | list)


def _speaker(value: Any) -> str | None:
    """Who speaks, if the value is a message of someone whom we know."""
    return _SPEAKERS.get(_role(value).lower().removesuffix("messagechunk")) if _is_message(value) else None


def _role(value: Any) -> Any:
    return _get(value, "role") or _get(value, "type")
