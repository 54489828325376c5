"""Descriptions of objects as JSON-like data: identity and configuration, without secrets.

Two objects with the same description behave alike. Some objects, such as an open client, cannot be described
completely. `describe` then raises `NotDescribable`, and the caller treats the object as unknown.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import json
import logging
import math
import re
import ssl
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, GenericAlias, MethodType, ModuleType, UnionType
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.base import RunnableBinding, RunnableBindingBase
from langchain_core.runnables.retry import RunnableRetry
from pydantic import BaseModel, SecretBytes, SecretStr

from langchain_rageval._internal.code_identity import (
    changed_attributes,
    changed_by,
    changed_names,
    class_name,
    closure_values,
    code_digest,
    content_digest,
    default_values,
    distribution_of,
    is_users_class,
    is_users_function,
    module_identity,
    original_name,
    qualified_name,
    untraceable_calls,
    used_globals,
)
from langchain_rageval._internal.object_parts import (
    LABELS,
    attributes,
    class_members,
    configuration,
    has_hidden_state,
    identifying_params,
    is_cached_value,
    serialized_fields,
)
from langchain_rageval._internal.redaction import (
    FREE_OPTIONS,
    MODEL_NAMES,
    has_key_form,
    has_random_part,
    is_carrier_name,
    is_certain_secret_name,
    is_personal_name,
    is_secret_name,
    is_usual_secret_name,
    mask_random_segments,
)
from langchain_rageval.errors import mask_keys

_CALL_LABELS = {"tags", "metadata", "run_name", "run_id", "max_concurrency", "recursion_limit"}
_STATELESS = (
    type(threading.Lock()),
    type(threading.RLock()),
    *(threading.Condition, threading.Event, threading.Semaphore, threading.Barrier),
    logging.Logger,
)
_CLIENT_METHODS = ({"request", "headers"}, {"request", "default_headers"}, {"handle_request"}, {"handle_async_request"})
"""Members of clients of HTTP and of their transports, whatever package they come from."""
_OWN_HEADER = re.compile(
    r"accept.*|connection|content-.*|host|user-agent|x-stainless-.*|anthropic-version|(?:http-)?referer|origin|x-title",
    re.IGNORECASE,
)
"""Headers that choose no answer; a client sends most of them by itself."""
_HEADERS = re.compile(r"headers?$|cookies$", re.IGNORECASE)
_HEADER_LINE = re.compile(r"[\w-]+: *\S")
_SCALARS = (
    *(type(None), bool, str, int, float, bytes, bytearray, SecretStr, SecretBytes, re.Pattern, ModuleType),
    *(PurePath, UUID, GenericAlias, UnionType),
)
_LONGEST_TEXT = 2000
_MOST_PARTS = 50_000
_MOST_LEVELS = 100


class NotDescribable(TypeError):
    """Error about a value without a stable description; the message names the part that cannot be identified."""


class Description(dict[str, Any]):
    """Finished description of an object. `describe` keeps a Description unchanged, even within another value."""


def describe(value: Any) -> Any:
    """Return JSON-like data that are equal for two values with the same configuration, in any process.

    These are left out: secrets (SecretStr values, and entries with the name of a secret, such as `api_key`), entries
    that are None, timeouts, retries, rate limiters, callbacks, names and tags of traces, pydantic fields declared
    `exclude=True`, private attributes of pydantic models, and HTTP clients in fields of installed pydantic classes. A
    name such as `key` need not name a secret. An entry with such a name is left out in objects of installed classes;
    elsewhere its value is given as a digest. Values of queries, and names of users and organizations, are also given as
    digests.

    Functions and classes of installed packages are described by name and distribution. A function or class of the user
    is described by its code, defaults, closure values, the globals that it uses, and the sources of the modules that it
    imports. Lists and counters that a function itself changes are not part of its description. A function with a text
    attribute `version` is described by its name and this version instead. These cannot be described: an object with
    private attributes that is not a pydantic model, an HTTP client that is not in a field of an installed pydantic
    class, and headers that may affect an answer.

    Args:
        value: a model, a function, a pydantic or plain object, or data.

    Returns:
        Nested dicts, lists, strings, numbers, booleans and None.

    Raises:
        NotDescribable: if a part is an object without readable state.
    """
    try:
        found = _Describer().described(value, "")
        return Description(found) if type(found) is dict else found
    except NotDescribable:
        raise
    except Exception as error:  # of a property or comparison of a foreign class
        raise NotDescribable(f"the object of {type(value).__qualname__} cannot be read: {error}") from error


def digest_of(description: Any) -> str:
    """Return a digest of a description: 16 hexadecimal digits."""
    return content_digest(json.dumps(description, sort_keys=True, ensure_ascii=False))


class _Describer:
    """Writer of one description. It knows the enclosing objects, and the functions and classes already described."""

    def __init__(self) -> None:
        self._parts = 0
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # with the value, so that its id stays its own
        self._changed: dict[int, set[str]] = {}  # attributes that a method in this description changes, by its object

    def described(self, value: Any, place: str) -> Any:
        """Return the description of a part."""
        if value is None or isinstance(value, bool | str):
            return self._described(value, place)
        self._parts += 1
        if self._parts > _MOST_PARTS or len(self._open) > _MOST_LEVELS:
            raise NotDescribable(f"{place or 'the object'} is too large to identify")
        if id(value) in self._open:
            return {"cycle": len(self._open) - self._open[id(value)]}
        if id(value) in self._known:
            return self._known[id(value)][1]
        self._open[id(value)] = len(self._open)
        try:
            description = self._described(value, place)
        finally:
            del self._open[id(value)]
        if isinstance(value, FunctionType | type):
            self._known[id(value)] = (value, description)
        return description

    def _described(self, value: Any, place: str) -> Any:
        match value:
            case Description():
                return value
            case enum.Enum():
                name = f"{qualified_name(type(value))}.{value.name}"
                return {"enum": name, "value": self.described(value.value, place)}
            case _ if isinstance(value, _SCALARS):
                return _scalar(value)
            case Mapping():
                return self._mapping(value, place)
            case list() | tuple():
                return [self.described(item, f"{place}[{index}]") for index, item in enumerate(value)]
            case Set():
                return sorted((self._apart().described(item, place) for item in value), key=digest_of)
            case type():
                return self._class(value, place, as_value=True)
            case functools.partial() | MethodType() | BuiltinFunctionType() | FunctionType():
                return self._callable(value, place)
        return self._object(value, place)

    def _callable(self, value: Any, place: str) -> Any:
        match value:
            case functools.partial():
                parts = (("partial", value.func), ("args", value.args), ("keywords", value.keywords))
                return {name: self.described(part, place) for name, part in parts}
            case MethodType():
                self._changed.setdefault(id(value.__self__), set()).update(changed_by(value.__func__))
                return {"method": self.described(value.__func__, place), "of": self.described(value.__self__, place)}
            case BuiltinFunctionType():
                owner = value.__self__
                if owner is None or isinstance(owner, ModuleType):
                    return qualified_name(value)
                return {"method": value.__name__, "of": self.described(owner, place)}
        return self._function(value, place)

    def _apart(self) -> _Describer:
        """Return a describer for a part whose description must not depend on what was described before it."""
        apart = _Describer()
        apart._open = dict(self._open)
        return apart

    def _mapping(self, mapping: Mapping[Any, Any], place: str) -> dict[str, Any]:
        pairs = []
        for key, value in mapping.items():
            if not isinstance(key, str) or isinstance(key, enum.Enum):
                key = f"({json.dumps(self._apart().described(key, place), sort_keys=True, ensure_ascii=False)})"
            pairs.append((str(key), value))
        return dict(self._entries(pairs, place))

    def _entries(
        self, pairs: Iterable[tuple[str, Any]], place: str, *, installed: bool = False
    ) -> Iterator[tuple[str, Any]]:
        for name, value in pairs:
            inner = f"{place}.{name}" if place else name
            if _HEADERS.search(name) and (headers := _headers_of(value)) is not None:
                if headers:
                    raise NotDescribable(f"{inner} has the header {min(headers)}, which is not read")
                continue
            if value is None or (is_usual_secret_name(name) and (installed or is_certain_secret_name(name))):
                continue
            if is_secret_name(name) or is_personal_name(name):  # the name of a secret may also be a key of a mapping
                yield name, digest_of(self.described(value, inner))
            elif is_carrier_name(name):
                yield name, self._carrier(value, inner)
            elif name in FREE_OPTIONS:
                yield name, _without_random_texts(self.described(value, inner))
            else:
                yield name, self.described(value, inner)

    def _carrier(self, value: Any, place: str) -> Any:
        """Return a query with digests in place of values."""
        if isinstance(value, Mapping):
            fields = {str(name): part for name, part in value.items() if not is_secret_name(str(name))}
            return {name: digest_of(self.described(part, place)) for name, part in fields.items()}
        return value if isinstance(value, bool) else digest_of(self.described(value, place))

    def _object(self, value: Any, place: str) -> Any:
        kind = type(value)
        if isinstance(value, _STATELESS):
            return {"class": qualified_name(kind)}
        if _is_client(value):
            name = qualified_name(kind)
            raise NotDescribable(f"{place or 'the object'} is a client of HTTP, {name}, which is not read")
        if not (hasattr(value, "dtype") and hasattr(value, "shape")):
            return self._stateful(value, place)
        try:
            array = np.asarray(value)
        except Exception as error:
            raise _unreadable(value, place) from error
        if array.dtype.hasobject:
            return {"array": str(array.dtype), "items": self.described(array.tolist(), place)}
        return {"array": str(array.dtype), "shape": list(array.shape), "content": content_digest(array.tobytes())}

    def _stateful(self, value: Any, place: str) -> Any:
        if type(value) is RunnableLambda:
            functions = {name: vars(value).get(name) for name in ("func", "afunc")}
            return {"class": qualified_name(RunnableLambda), **dict(self._entries(functions.items(), place))}
        if isinstance(value, RunnableBindingBase) and _is_plain_binding(type(value)):
            return self._binding(value, place)
        if (wrapped := getattr(value, "__wrapped__", None)) is not None and callable(value):
            return {"class": qualified_name(type(value)), "wraps": self.described(wrapped, place)}
        kind = type(value)
        if isinstance(value, BaseModel):
            state = serialized_fields(value)
            if not is_users_class(kind):  # whose other fields say where its client sends requests
                state = {name: part for name, part in state.items() if not _is_client(part)}
        elif not dataclasses.is_dataclass(value) and has_hidden_state(kind):
            return self._reduced(value, place)
        else:
            state = _without_private(value, self._state(value), place)
        left_out = changed_attributes(kind) | self._changed.get(id(value), set())
        if isinstance(value, Runnable) and not is_users_class(kind):
            left_out |= LABELS
        parts = (one for one in configuration(state) if one[0] not in left_out and not is_cached_value(kind, one[0]))
        own = self._entries(parts, place, installed=not is_users_class(kind))
        described = {"class": self._class(kind, place, as_value=False), **_distributions_of(kind), **dict(own)}
        new = {name: part for name, part in configuration(identifying_params(value)) if name not in {*state, *LABELS}}
        return described | _without_random_texts(dict(self._entries(new.items(), place, installed=True)))

    def _binding(self, binding: RunnableBindingBase[Any, Any], place: str) -> Any:
        """Return the bound Runnable with its options; without options, as if it was not bound."""
        options = configuration({**binding.kwargs, **binding.config})
        described = self._mapping({name: part for name, part in options if name not in _CALL_LABELS}, place)
        described = _without_random_texts(described)
        bound = self.described(binding.bound, place)
        return {"bound": bound, "options": described} if described else bound

    def _state(self, value: Any) -> dict[str, Any]:
        """Return attributes; of the fields of a dataclass that no caller sets, only public ones that are readable."""
        state = dict(attributes(value))
        for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
            state.setdefault(field.name, getattr(value, field.name, None))
            if not field.init and not self._is_readable(field, state[field.name]):
                del state[field.name]
        return state

    def _is_readable(self, field: dataclasses.Field[Any], part: Any) -> bool:
        if field.name.startswith("_") or field.compare is False:
            return False
        try:
            self.described(part, field.name)
        except NotDescribable:
            return False
        return True

    def _reduced(self, value: Any, place: str) -> Any:
        """Return what pickle would store of an object of a C type, such as a date or an itemgetter."""
        reduce = copyreg.dispatch_table.get(type(value))
        kind, names = type(value), ("__reduce__", "__reduce_ex__")
        if not reduce and all(getattr(kind, name) is getattr(object, name) for name in names):
            raise _unreadable(value, place)
        try:
            reduced = reduce(value) if reduce else value.__reduce_ex__(2)
        except Exception as error:
            raise _unreadable(value, place) from error
        if isinstance(reduced, str):
            return reduced
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]  # can be read only once
        return {"made_by": self.described(parts, place)}

    def _class(self, kind: type, place: str, *, as_value: bool) -> Any:
        """Return the name; for a class of the user also its code and attributes, those of its bases included."""
        own = [part for part in kind.__mro__ if is_users_class(part)]
        if not own:
            distribution = _distributions_of(kind) if as_value else {}
            return {"name": qualified_name(kind), **distribution} if distribution else qualified_name(kind)
        inner = f"{place or kind.__qualname__} (class {kind.__qualname__})"
        members = [{name: self.described(part, inner) for name, part in class_members(part)} for part in own]
        bases = [qualified_name(part) for part in kind.__mro__ if part not in own and part is not object]
        data = [{name: one for name, one in part.items() if not _is_code(one)} for part in members]
        content: dict[str, Any] = {"name": class_name(kind), "code": digest_of([members, bases])}
        if any(data):
            content["attributes"] = digest_of(data)
        if as_value and issubclass(kind, BaseModel) and not issubclass(kind, Runnable):
            content["schema"] = _schema_digest(kind)
        return content

    def _function(self, function: FunctionType, place: str) -> Any:
        users = is_users_function(function)
        name = function.__qualname__ if users else original_name(function)
        version = getattr(function, "version", None)
        if isinstance(version, str):
            return {"function": name, "version": version}
        records = changed_names(function.__code__)  # what a function changes itself is no setting
        closure = {name: part for name, part in closure_values(function) if name not in records}
        inner = place or name
        described: dict[str, Any] = {"function": name}
        if not users and (distribution := distribution_of(function.__module__ or "")):
            described["distribution"] = distribution
        if closure:
            described["closure"] = _without_random_texts(dict(self._entries(closure.items(), f"{inner} (closure)")))
        if users:
            if dynamic := untraceable_calls(function):
                raise NotDescribable(f"{inner} calls {min(dynamic)}, so that it may read anything")
            changed = changed_by(function)
            own = {name: part for name, part in vars(function).items() if name[:2] != "__" and name not in changed}
            described["attributes"] = own and digest_of(dict(self._entries(own.items(), f"{inner} (attributes)")))
            described["code"] = code_digest(function.__code__)
            defaults = dict(self._entries(default_values(function), f"{inner} (defaults)"))
            described["defaults"] = _without_random_texts(defaults)
            globals_ = ((name, part) for name, part in used_globals(function) if name not in records)
            uses = dict(self._entries(globals_, f"{inner} (global)"))
            calls = {name: part for name, part in uses.items() if _is_code(part) or name.startswith("import ")}
            described["uses"] = digest_of({name: uses[name] for name in uses.keys() - calls}) if uses else None
            described["calls"] = digest_of(calls) if calls else None
            wrapped = getattr(function, "__wrapped__", None)
            described["wraps"] = wrapped and digest_of(self.described(wrapped, inner))
        return {key: part for key, part in described.items() if part}


def _is_client(value: Any) -> bool:
    """Return True for a client of HTTP, its transport or certificates, also of a class of the user that extends one."""
    if isinstance(value, ssl.SSLContext):
        return True
    installed = next(part for part in type(value).__mro__ if not is_users_class(part))
    members = _members_of(installed).union(getattr(value, "__dict__", ()))
    return any(needed <= members for needed in _CLIENT_METHODS)


@functools.lru_cache(maxsize=1024)
def _members_of(kind: Hashable) -> frozenset[str]:
    return frozenset(dir(kind))


def _headers_of(value: Any) -> list[str] | None:
    """Return the names of headers that may choose an answer; None if a value under the name of headers is none.

    A header is neither stored nor digested, since it may be a secret: secrets, names of users and headers that a client
    sends by itself choose no answer.
    """
    if isinstance(value, str):
        return [value.partition(":")[0]] if _HEADER_LINE.match(value) else None
    pairs = value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Iterable):
        return None
    names = [str(pair[0]) if isinstance(pair, tuple | list) and len(pair) == 2 else None for pair in pairs]
    known = [name for name in names if name is not None]
    if len(known) < len(names):
        return None
    others = (name for name in known if not _OWN_HEADER.fullmatch(name))
    return [name for name in others if not (is_secret_name(name) or is_personal_name(name))]


def _without_private(value: Any, state: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the state of an object without private attributes, which may be a session as well as a setting.

    Raises:
        NotDescribable: if one has a value; its meaning cannot be known. Runnables of LangChain keep functions in them.
    """
    if isinstance(value, Runnable) and not is_users_class(type(value)):
        return state
    for name, part in state.items():
        is_cached = is_cached_value(type(value), name)
        if name.startswith("_") and not (part is None or is_cached or isinstance(part, _STATELESS)):
            raise NotDescribable(f"{place or 'the object'} has a private attribute, {name}, which is not read")
    return {name: part for name, part in state.items() if not name.startswith("_")}


def _distributions_of(kind: type) -> dict[str, str]:
    """Return the distribution of a class, or of the first installed class that a class of the user extends."""
    installed = next(part for part in kind.__mro__ if not is_users_class(part))
    distribution = distribution_of(installed.__module__)
    return {"distribution": distribution} if distribution else {}


def _is_code(description: Any) -> bool:
    """Return True for the description of a function, a class or a module."""
    if isinstance(description, list):
        return bool(description) and all(map(_is_code, description))
    return isinstance(description, dict) and not description.keys().isdisjoint(("function", "code", "module", "method"))


def _unreadable(value: Any, place: str) -> NotDescribable:
    return NotDescribable(f"{place or 'the object'} is a {qualified_name(type(value))}, whose state cannot be read")


def _scalar(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case bytes() | bytearray():
            return {"bytes": content_digest(bytes(value))}
        case SecretStr() | SecretBytes():
            return "***"
        case re.Pattern():
            return {"pattern": _readable(str(value.pattern)), "flags": int(value.flags)}
        case ModuleType():
            return module_identity(value)
    return _readable(str(value))


def _without_random_texts(description: Any) -> Any:
    """Return a description of options in which texts that look like keys are replaced by digests."""
    match description:
        case str() if has_key_form(description) or (" " not in description and has_random_part(description)):
            return content_digest(description)
        case dict():
            texts = description.items()
            return {name: part if name in MODEL_NAMES else _without_random_texts(part) for name, part in texts}
        case list():
            return [_without_random_texts(part) for part in description]
    return description


def _readable(text: str) -> str:
    """Return a text without secrets; a long one with its beginning and its digest."""
    clean = mask_random_segments(text, lambda segment: f"***{content_digest(segment)[:8]}")
    clean = mask_keys(clean, lambda match: f"***{content_digest(match[0])[:8]}")
    return clean if len(clean) <= _LONGEST_TEXT else f"{clean[:_LONGEST_TEXT]}… ({content_digest(clean)})"


def _is_plain_binding(kind: type[BaseModel]) -> bool:
    """Return True if a binding adds nothing to the bound Runnable but call options, or attempts."""
    if is_users_class(kind):
        return False
    return issubclass(kind, RunnableRetry) or kind.model_fields.keys() == RunnableBinding.model_fields.keys()


def _schema_digest(kind: type[BaseModel]) -> str | None:
    try:
        return digest_of(kind.model_json_schema())
    except Exception:  # pydantic has no JSON schema for a field; the code of the class identifies it
        return None
