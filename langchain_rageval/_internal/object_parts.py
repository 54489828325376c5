"""Parts of the users' objects: what an object holds, and which of its parts may change what it does.

`named_parts` is the one walk over foreign objects; searches for secrets and for engines in this process visit it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Set
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

from pydantic import BaseModel

from langchain_rageval._internal.code_identity import closure_values, default_values

_TRANSPORT_NAME = re.compile(
    r"^(?:.*_)?timeout$|^(?:max_)?retries$|^retry_(?:on|backoff)|^rate_limiter$|^callbacks$|^callback_manager$"
)
LABELS = {"cache", "verbose", "tags", "metadata", "name", "run_name", "custom_get_token_ids"}
"""Fields of LangChain's own classes that change no answer."""
_POINTER = object.__basicsize__ // 2


def named_parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a value holds: names or keys, and parts.

    These are the entries of a mapping, the items of a collection under None, the function and the arguments of a
    partial or a method, closure and defaults of a function, and the attributes of any other object or of a subclass.
    What another thread may change meanwhile is copied first.
    """
    match value:
        case dict():
            yield from list(value.items())
        case Mapping():
            yield from value.items()
        case list() | tuple():
            yield from ((None, part) for part in value)
        case deque() | Set():
            yield from ((None, part) for part in list(value))
        case partial():
            yield from (("function", value.func), ("kwargs", value.args), ("kwargs", value.keywords))
        case MethodType():
            yield from (("function", value.__func__), ("owner", value.__self__))
        case FunctionType():
            yield from (*closure_values(value), *default_values(value))
    if not isinstance(value, FunctionType | MethodType):
        yield from attributes(value)


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the slots that are set and the attributes of an object; of a pydantic model also private and extra ones."""
    for name in _slot_names(type(value)):
        if not name.startswith("__") and hasattr(value, name):
            yield name, getattr(value, name)
    names = ("__dict__", "__pydantic_private__", "__pydantic_extra__")
    for name in names if isinstance(value, BaseModel) else names[:1]:
        yield from list((getattr(value, name, None) or {}).items())


def serialized_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields that are serialized, without secrets of LangChain."""
    secrets = getattr(model, "lc_secrets", {}) or {}
    fields = type(model).model_fields
    values = {
        name: getattr(model, name, None)
        for name, field in fields.items()
        if not field.exclude and name not in secrets and not _is_label(type(model), name)
    }
    return {**values, **(getattr(model, "__pydantic_extra__", None) or {})}


def _is_label(kind: type, name: str) -> bool:
    return name in LABELS and _declaring(kind, name).__module__.startswith("langchain_core.")


def _declaring(kind: type, name: str) -> type:
    """Return the class that declares a field or private attribute."""
    for part in kind.__mro__:
        if name in inspect.get_annotations(part):
            return part
    bases = [part for part in kind.__mro__ if name in (getattr(part, "__private_attributes__", None) or ())]
    return bases[-1] if bases else kind  # a class repeats the private attributes of its bases


def configuration(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries that may change an answer."""
    yield from ((name, part) for name, part in state.items() if not _TRANSPORT_NAME.search(name))


def has_hidden_state(kind: type) -> bool:
    """Return True if instances hold more than their attributes, as those of C types do."""
    own = (
        len({*_slot_names(kind)} - {"__dict__", "__weakref__"})
        + (kind.__dictoffset__ > 0)
        + (kind.__weakrefoffset__ > 0)
    )
    return kind is object or kind.__basicsize__ > object.__basicsize__ + own * _POINTER


def identifying_params(value: Any) -> Mapping[str, Any]:
    """Return what a model of LangChain says identifies it."""
    try:
        params = getattr(value, "_identifying_params", None)
    except Exception:  # of the client's own property; its fields identify it
        return {}
    return {str(name): part for name, part in params.items()} if isinstance(params, Mapping) else {}


def _slot_names(kind: type) -> list[str]:
    declared = (vars(part).get("__slots__", ()) for part in kind.__mro__)
    return [name for slots in declared for name in ([slots] if isinstance(slots, str) else slots)]


def is_cached_value(kind: Any, name: str) -> bool:
    """Return True if an attribute is a value that a property has computed from others."""
    return _is_cached_property(_static_attribute(kind, name))


@lru_cache(maxsize=4096)
def _static_attribute(kind: Hashable, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


def class_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the functions and data of a class, without what Python, pydantic and dataclasses add."""
    added = {"_abc_impl", "model_config", "model_fields", "model_computed_fields"}
    if dataclasses.is_dataclass(kind):
        added |= {field.name for field in dataclasses.fields(kind)}
    for name, member in vars(kind).items():
        special = name.startswith("__") and name.endswith("__")
        part = _unwrapped(member)
        if isinstance(part, FunctionType):
            if not (special and part.__code__.co_filename == "<string>"):  # of a dataclass
                yield name, part
        elif not (special or name in added or inspect.ismemberdescriptor(member) or inspect.isgetsetdescriptor(member)):
            yield name, part


def _unwrapped(member: Any) -> Any:
    """Return the function of a method, or the functions of a property."""
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    if isinstance(member, property):
        return [member.fget, member.fset]
    return member.func if _is_cached_property(member) else member


def _is_cached_property(member: Any) -> bool:
    return hasattr(member, "attrname") and hasattr(member, "func")
