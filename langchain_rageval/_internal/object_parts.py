"""Find the parts of users' objects, and those parts that may change how an object behaves.

`named_parts` is the only function that searches unknown objects. It is used to find secrets, and to find engines
(objects that run a model in this process, such as those of `llama_cpp`).
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
    """Yield the parts of a value, each with its name or key.

    The parts are the entries of a mapping, the items of a collection (with the name None), the function and the
    arguments of a partial, the function and the object of a method, the closure and the defaults of a function, and the
    attributes of any other object. An object of a subclass of these types also gives its attributes. Values that
    another thread may change are copied first.
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
    """Yield the attributes and the filled slots of an object, with names.

    A pydantic model also gives its private and extra attributes.
    """
    for name in _slot_names(type(value)):
        if not name.startswith("__") and hasattr(value, name):
            yield name, getattr(value, name)
    names = ("__dict__", "__pydantic_private__", "__pydantic_extra__")
    for name in names if isinstance(value, BaseModel) else names[:1]:
        yield from list((getattr(value, name, None) or {}).items())


def serialized_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields of a model that pydantic serializes, without LangChain's secrets."""
    secrets = getattr(model, "lc_secrets", {}) or {}
    fields = type(model).model_fields
    values = {
        name: getattr(model, name, None)
        for name, field in fields.items()
        if not field.exclude and name not in secrets and not _is_label(type(model), name)
    }
    return {**values, **(getattr(model, "__pydantic_extra__", None) or {})}


def _is_label(kind: type, name: str) -> bool:
    """Return True if a class of LangChain declares this field as a label."""
    declaring = next((part for part in kind.__mro__ if name in inspect.get_annotations(part)), kind)
    return name in LABELS and declaring.__module__.startswith("langchain_core.")


def configuration(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, except timeouts, retries, rate limiters and callbacks.

    The attributes that are left out change no result.

    Args:
        state: the attributes or options of the object, by name.
    """
    yield from ((name, part) for name, part in state.items() if not _TRANSPORT_NAME.search(name))


def has_hidden_state(kind: type) -> bool:
    """Return True if instances of a class hold more state than their attributes, as types written in C do."""
    slots = {*_slot_names(kind)} - {"__dict__", "__weakref__"}
    own = len(slots) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind is object or kind.__basicsize__ > object.__basicsize__ + own * _POINTER


def identifying_params(value: Any) -> Mapping[str, Any]:
    """Return the parameters that a LangChain model itself states as its identity."""
    try:
        params = getattr(value, "_identifying_params", None)
    except Exception:  # of the client's own property; its fields identify it
        return {}
    return {str(name): part for name, part in params.items()} if isinstance(params, Mapping) else {}


def _slot_names(kind: type) -> list[str]:
    declared = (vars(part).get("__slots__", ()) for part in kind.__mro__)
    return [name for slots in declared for name in ([slots] if isinstance(slots, str) else slots)]


def is_cached_value(kind: Any, name: str) -> bool:
    """Return True if an attribute of a class is a cached property, whose value follows from other attributes."""
    return _is_cached_property(_static_attribute(kind, name))


@lru_cache(maxsize=4096)
def _static_attribute(kind: Hashable, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


def class_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the functions and data of a class, without members that Python, pydantic and dataclasses add."""
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
