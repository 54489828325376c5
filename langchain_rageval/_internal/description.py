"""Descriptions of objects as JSON-like data: what they are and how they are configured, without secrets.

Two objects with the same description behave alike. An object that cannot be described completely, such as an open
client, has no description: `describe` raises `NotDescribable`, and the caller treats the object as unknown.
"""

from __future__ import annotations

import copyreg
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import json
import logging
import math
import re
import ssl
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, GenericAlias, MethodType, ModuleType, UnionType
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.base import RunnableBinding, RunnableBindingBase
from langchain_core.runnables.retry import RunnableRetry
from pydantic import BaseModel, SecretBytes, SecretStr

_SECRET_NAME = re.compile(
    r"key$|key_id$|secret|passw|pwd$|credential|token$|token_provider$|authorization|(?:^|[_-])auth$|cookie"
    r"|signature$|(?:^|[_-])sig$|bearer",
    re.IGNORECASE,
)
_POSSIBLE_SECRET_NAME = re.compile(
    r"pass$|pwd|auth$|^auth(?!ors?$)|jwt|session_?id|csrf|otp$|pin$|api_?keys?", re.IGNORECASE
)
_SURE_SECRET_NAME = re.compile(
    r"(?:api|access|secret|private|subscription|account)[_-]?key|secret|passw|pwd|credential|authorization|bearer"
    r"|(?:access|api|auth|refresh|session|bot)[_-]?token|token_provider",
    re.IGNORECASE,
)
_NO_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|stop|special)[_-]token$"
    r"|(?:^|[_-])(?:sort|text|input|output|content|messages?|prompt|question|answer|contexts?|memory|metadata|document"
    r"|doc|label|score|reference|column|cache|partition)[_-]key$",
    re.IGNORECASE,
)
_PERSONAL_NAMES = {
    *("user", "username", "user_id", "login", "email", "organization", "openai_organization", "openai-organization"),
    *("openai-project", "safety_identifier"),
}
_CARRIER_NAME = re.compile(r"headers?$|query$|cookies$", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY_KEY = re.compile(
    r"""([?&;][\w.-]*(?:key|secret|passw\w*|pwd|credentials?|token|sig|signature|auth)=)[^&\s'"]+""", re.IGNORECASE
)
_PATH_KEY = re.compile(  # a segment of an address that looks random
    r"(?<=[^/:]/)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?=[/?#\s'\"]|$)"
)
_PATH_SEGMENT = re.compile(r"(?<=[^/:]/)[^/?#\s'\"]+")
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{12,}|[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|hf|gsk|ghp|gho|glpat|xox[abps]|AKIA|AIza|eyJ|github_pat)[\w.~+/=-]{12,}")
_MODEL_NAMES = {"model", "model_name", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id"}
_FREE_OPTIONS = {"extra_body", "model_kwargs", "kwargs", "client_kwargs", "default_request_options"}
_KEY = re.compile(
    r"\b(?:sk|hf|ghp|glpat|xox[abp])[-_][\w-]{16,}|(?<=\bBearer )[\w.~+/=-]{6,}|(?<=\bBasic )[\w+/=-]{6,}"
)

_TRANSPORT_NAME = re.compile(
    r"^(?:.*_)?timeout$|^(?:max_)?retries$|^retry_(?:on|backoff)|^rate_limiter$|^callbacks$|^callback_manager$"
)
_LABELS = {"cache", "verbose", "tags", "metadata", "name", "run_name", "custom_get_token_ids"}
_CALL_LABELS = {"tags", "metadata", "run_name", "run_id", "max_concurrency", "recursion_limit"}
_STATELESS = (
    type(threading.Lock()),
    type(threading.RLock()),
    *(threading.Condition, threading.Event, threading.Semaphore, threading.Barrier),
    logging.Logger,
)
_CLIENT_METHODS = ({"request", "headers"}, {"request", "default_headers"}, {"handle_request"}, {"handle_async_request"})
"""Members of clients of HTTP and of their transports, whatever package they come from."""
_OWN_HEADER = re.compile(r"accept.*|connection|content-type|user-agent|x-stainless-.*", re.IGNORECASE)
"""Headers that a client sends by itself; they name versions of Python and of packages."""
_CONNECTION_OPTIONS = (
    *("base_url", "headers", "params", "cookies", "default_headers", "default_query"),
    *("_transport", "handler"),  # what httpx sends a request with, and the function of its MockTransport
)
_SCALARS = (
    *(type(None), bool, str, int, float, bytes, bytearray, SecretStr, SecretBytes, re.Pattern, ModuleType),
    *(PurePath, UUID, GenericAlias, UnionType),
)
_PACKAGE = __name__.partition(".")[0]
_INSTALLED = tuple({f"{Path(path)}/" for name, path in sysconfig.get_paths().items() if "lib" in name})
_INSTALLED_PARTS = ("/site-packages/", "/dist-packages/")
_POINTER = object.__basicsize__ // 2
_LONGEST_TEXT = 2000
_MOST_PARTS = 50_000
_MOST_LEVELS = 100


class NotDescribable(TypeError):
    """A value without a stable description; the message names the part that cannot be identified."""


def describe(value: Any) -> Any:
    """Return JSON-like data that is equal for two values that are configured alike, in any process.

    Left out are secrets (SecretStr values and entries with the name of a secret; of names such as `key`, which need not
    be one, outside installed classes, there is a digest), entries that are None, timeouts, retries, rate limiters,
    callbacks, names and tags of traces, and pydantic fields declared `exclude=True`. Values of headers, cookies and
    queries, names of users and organizations, and texts in free options and closures that look like keys, are given as
    digests. Functions and classes of installed packages are
    described by name, those of the user by code, defaults, closure values and the globals that they use. A function or
    object of the user with a text attribute `version` is described by its name and that version instead.

    Args:
        value: a model, a function, a pydantic or plain object, or data.

    Returns:
        Nested dicts, lists, strings, numbers, booleans and None.

    Raises:
        NotDescribable: if a part is an object without readable state.
    """
    try:
        return _Describer().described(value, "")
    except NotDescribable:
        raise
    except Exception as error:  # of a property or comparison of a foreign class
        raise NotDescribable(f"the object of {type(value).__qualname__} cannot be read: {error}") from error


def digest_of(description: Any) -> str:
    """Return 16 hexadecimal digits that identify a description."""
    return _digest(json.dumps(description, sort_keys=True, ensure_ascii=False))


def is_secret_name(name: str) -> bool:
    """Return True if a field of this name usually holds a secret."""
    return _is_usual_secret_name(name) or _POSSIBLE_SECRET_NAME.search(name) is not None


def _is_usual_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _NO_SECRET_NAME.search(name) is None


def is_personal_name(name: str) -> bool:
    """Return True if a field of this name holds the name of a user or an organization."""
    return name.lower() in _PERSONAL_NAMES


def is_carrier_name(name: str) -> bool:
    """Return True if a field of this name holds headers, cookies or a query, whose values may be secrets."""
    return _CARRIER_NAME.search(name) is not None


def is_free_option(name: str) -> bool:
    """Return True if a field of this name holds options under names that the user chooses."""
    return name in _FREE_OPTIONS


def is_model_name(name: str) -> bool:
    """Return True if a field of this name holds the name or path of a model, which may look random."""
    return name in _MODEL_NAMES


def has_key_form(text: str) -> bool:
    """Return True if a text begins as the keys of a well-known provider do."""
    return _KEY_PREFIX.fullmatch(text) is not None


def has_random_part(text: str) -> bool:
    """Return True if a part of a text looks random, as keys do: letters and digits, at least 12, or a UUID."""
    return _RANDOM.search(text) is not None


def without_keys(text: str) -> str:
    """Return the text without user names, passwords and keys in addresses, and without keys of well-known forms."""
    return _without_keys(text, lambda _: "***")


def _without_keys(text: str, mask: Any) -> str:
    text = _KEY.sub("***", _QUERY_KEY.sub(r"\1***", _USERINFO.sub("//", text)))
    return _PATH_KEY.sub(mask, text) if "://" in text else text


class _Describer:
    """One description: the objects on the way to the current part, and the functions and classes already described."""

    def __init__(self) -> None:
        self._parts = 0
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # with the value, so that its id stays its own

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
            case enum.Enum():
                return {"enum": f"{_name(type(value))}.{value.name}", "value": self.described(value.value, place)}
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
                return {"method": self.described(value.__func__, place), "of": self.described(value.__self__, place)}
            case BuiltinFunctionType():
                owner = value.__self__
                bound = owner is not None and not isinstance(owner, ModuleType)
                return {"method": value.__name__, "of": self.described(owner, place)} if bound else _name(value)
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
            if value is None or (_is_usual_secret_name(name) and (installed or _SURE_SECRET_NAME.search(name))):
                continue
            inner = f"{place}.{name}" if place else name
            if is_secret_name(name) or is_personal_name(name):  # the name of a secret may also be a key of a mapping
                yield name, digest_of(self.described(value, inner))
            elif is_carrier_name(name):
                yield name, self._carrier(value, inner)
            elif is_free_option(name):
                yield name, _without_random_texts(self.described(value, inner))
            else:
                yield name, self.described(value, inner)

    def _carrier(self, value: Any, place: str) -> Any:
        """Return headers, cookies or a query with digests in place of values."""
        if isinstance(value, Mapping):
            fields = {str(name): part for name, part in value.items() if not is_secret_name(str(name))}
            return {name: digest_of(self.described(part, place)) for name, part in fields.items()}
        return value if isinstance(value, bool) else digest_of(self.described(value, place))

    def _object(self, value: Any, place: str) -> Any:
        kind = type(value)
        if isinstance(value, _STATELESS):
            return {"class": _name(kind)}
        if _is_connection(value):
            return self._connection(value, place)
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return self._array(value, place)
        version = getattr(value, "version", None)
        if not isinstance(version, str):
            return self._stateful(value, place)
        if is_users_class(kind) and not isinstance(value, BaseModel):
            return {"class": _class_name(kind), "version": version}
        try:
            return self._stateful(value, place)
        except NotDescribable:
            return {"class": _class_name(kind), "version": version}

    def _connection(self, value: Any, place: str) -> Any:
        """Return where a client of HTTP sends requests, without its sockets and certificates."""
        options = {name: getattr(value, name, None) for name in _CONNECTION_OPTIONS}
        options["query"] = options.pop("params")
        for name, option in options.items():
            if isinstance(option, Mapping):
                options[name] = {
                    key: part for key, part in option.items() if not _OWN_HEADER.fullmatch(str(key))
                } or None
        if options["base_url"] is not None:
            options["base_url"] = str(options["base_url"]) or None
        described = dict(self._entries(options.items(), place, installed=True))
        return {"class": self._class(type(value), place, as_value=False), **described}

    def _array(self, value: Any, place: str) -> Any:
        try:
            array = np.asarray(value)
        except Exception as error:
            raise _unreadable(value, place) from error
        if array.dtype.hasobject:
            return {"array": str(array.dtype), "items": self.described(array.tolist(), place)}
        return {"array": str(array.dtype), "shape": list(array.shape), "content": _digest(array.tobytes())}

    def _stateful(self, value: Any, place: str) -> Any:
        if type(value) is RunnableLambda:
            functions = {name: vars(value).get(name) for name in ("func", "afunc")}
            return {"class": _name(RunnableLambda), **dict(self._entries(functions.items(), place))}
        if isinstance(value, RunnableBindingBase) and _is_plain_binding(type(value)):
            return self._binding(value, place)
        if (wrapped := getattr(value, "__wrapped__", None)) is not None and callable(value):
            return {"class": _name(type(value)), "wraps": self.described(wrapped, place)}
        kind = type(value)
        if isinstance(value, BaseModel):
            state = _fields(value)
        elif dataclasses.is_dataclass(value):
            state = self._dataclass_state(value)
        elif _has_hidden_state(kind):
            return self._reduced(value, place)
        else:
            state = {**_slots(value), **getattr(value, "__dict__", {})}
        labels = _LABELS if isinstance(value, Runnable) and not is_users_class(kind) else ()
        parts = {name: part for name, part in _configuration(state) if name not in labels}
        parts = {name: part for name, part in parts.items() if not _is_cached(kind, name)}
        own = self._entries(parts.items(), place, installed=not is_users_class(kind))
        described = {"class": self._class(kind, place, as_value=False), **dict(own)}
        new = {name: part for name, part in _configuration(_identifying(value)) if name not in {*state, *_LABELS}}
        return described | _without_random_texts(dict(self._entries(new.items(), place, installed=True)))

    def _binding(self, binding: RunnableBindingBase[Any, Any], place: str) -> Any:
        """Return the bound Runnable with its options; without options, as if it was not bound."""
        options = _configuration({**binding.kwargs, **binding.config})
        described = self._mapping({name: part for name, part in options if name not in _CALL_LABELS}, place)
        described = _without_random_texts(described)
        bound = self.described(binding.bound, place)
        return {"bound": bound, "options": described} if described else bound

    def _dataclass_state(self, value: Any) -> dict[str, Any]:
        """Return fields and other attributes; of the fields that no caller sets, only public ones that are readable."""
        state = {**_slots(value), **getattr(value, "__dict__", {})}
        for field in dataclasses.fields(value):
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
        if not reduce and all(_is_inherited(type(value), name) for name in ("__reduce__", "__reduce_ex__")):
            raise _unreadable(value, place)
        try:
            reduced = reduce(value) if reduce else value.__reduce_ex__(2)
        except Exception as error:
            raise _unreadable(value, place) from error
        return reduced if isinstance(reduced, str) else {"made_by": self.described([*map(_listed, reduced)], place)}

    def _class(self, kind: type, place: str, *, as_value: bool) -> Any:
        """Return the name; for a class of the user also its code and attributes, those of its bases included."""
        own = [part for part in kind.__mro__ if is_users_class(part)]
        if not own:
            return _name(kind)
        inner = f"{place or kind.__qualname__} (class {kind.__qualname__})"
        members = [{name: self.described(part, inner) for name, part in _members(part)} for part in own]
        bases = [_name(part) for part in kind.__mro__ if part not in own and part is not object]
        content: dict[str, Any] = {"name": _class_name(kind), "code": digest_of([members, bases])}
        if as_value and issubclass(kind, BaseModel) and not issubclass(kind, Runnable):
            content["schema"] = _schema_digest(kind)
        return content

    def _function(self, function: FunctionType, place: str) -> Any:
        users = _is_users_function(function)
        name = function.__qualname__ if users else _original_name(function)
        version = getattr(function, "version", None)
        if isinstance(version, str):
            return {"function": name, "version": version}
        closure = dict(_closure(function))
        inner = place or name
        described: dict[str, Any] = {"function": name}
        if closure:
            described["closure"] = _without_random_texts(dict(self._entries(closure.items(), f"{inner} (closure)")))
        if users:
            described["code"] = _digest(repr(_code_parts(function.__code__)))
            defaults = dict(self._entries(_defaults(function), f"{inner} (defaults)"))
            described["defaults"] = _without_random_texts(defaults)
            uses = dict(self._entries(_globals_of(function), f"{inner} (global)"))
            described["uses"] = digest_of(uses) if uses else None
            wrapped = getattr(function, "__wrapped__", None)
            described["wraps"] = wrapped and digest_of(self.described(wrapped, inner))
        return {key: part for key, part in described.items() if part}


def _is_connection(value: Any) -> bool:
    """Return True for a client of HTTP, its transport or certificates, also of a class of the user that extends one."""
    if isinstance(value, ssl.SSLContext):
        return True
    installed = next(part for part in type(value).__mro__ if not is_users_class(part))
    members = {*dir(installed), *getattr(value, "__dict__", ())}
    return any(needed <= members for needed in _CLIENT_METHODS)


def _is_inherited(kind: type, name: str) -> bool:
    """Return True if a class has a method of `object`."""
    return getattr(kind, name) is getattr(object, name)


def _unreadable(value: Any, place: str) -> NotDescribable:
    return NotDescribable(f"{place or 'the object'} is a {_name(type(value))}, whose state cannot be read")


def _scalar(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case bytes() | bytearray():
            return {"bytes": _digest(bytes(value))}
        case SecretStr() | SecretBytes():
            return "***"
        case re.Pattern():
            return {"pattern": _readable(str(value.pattern)), "flags": int(value.flags)}
        case ModuleType():
            return _module(value)
    return _readable(str(value))


def _without_random_texts(description: Any) -> Any:
    """Return a description of options in which texts that look like keys are replaced by digests."""
    match description:
        case str() if has_key_form(description) or (" " not in description and has_random_part(description)):
            return _digest(description)
        case dict():
            texts = description.items()
            return {name: part if is_model_name(name) else _without_random_texts(part) for name, part in texts}
        case list():
            return [_without_random_texts(part) for part in description]
    return description


def _readable(text: str) -> str:
    """Return a text without secrets; a long one with its beginning and its digest."""
    clean = _without_keys(text, lambda match: f"***{_digest(match[0])[:8]}")
    if "://" in clean:
        clean = _PATH_SEGMENT.sub(lambda part: _digest_of_random(part[0]), clean)
    return clean if len(clean) <= _LONGEST_TEXT else f"{clean[:_LONGEST_TEXT]}… ({_digest(clean)})"


def _digest_of_random(segment: str) -> str:
    return f"***{_digest(segment)[:8]}" if has_random_part(segment) and not segment.startswith("***") else segment


def _fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields that are serialized, without secrets of LangChain, and private attributes of user classes."""
    secrets = getattr(model, "lc_secrets", {}) or {}
    fields = type(model).model_fields
    values = {
        name: getattr(model, name, None)
        for name, field in fields.items()
        if not field.exclude and name not in secrets and not _is_label(type(model), name)
    }
    private = getattr(model, "__pydantic_private__", None) or {}
    users = {
        name: part
        for name, part in private.items()
        if is_users_class(_declaring(type(model), name)) and not isinstance(part, list | dict | set)  # records of calls
    }
    return {**values, **(getattr(model, "__pydantic_extra__", None) or {}), **users}


def _is_label(kind: type, name: str) -> bool:
    return name in _LABELS and _declaring(kind, name).__module__.startswith("langchain_core.")


def _declaring(kind: type, name: str) -> type:
    """Return the class that declares a field or private attribute."""
    for part in kind.__mro__:
        if name in inspect.get_annotations(part):
            return part
    bases = [part for part in kind.__mro__ if name in (getattr(part, "__private_attributes__", None) or ())]
    return bases[-1] if bases else kind  # a class repeats the private attributes of its bases


def _is_plain_binding(kind: type[BaseModel]) -> bool:
    """Return True if a binding adds nothing to the bound Runnable but call options, or attempts."""
    if is_users_class(kind):
        return False
    return issubclass(kind, RunnableRetry) or kind.model_fields.keys() == RunnableBinding.model_fields.keys()


def _configuration(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries that may change an answer."""
    yield from ((name, part) for name, part in state.items() if not _TRANSPORT_NAME.search(name))


def _has_hidden_state(kind: type) -> bool:
    """Return True if instances hold more than their attributes, as those of C types do."""
    slots = {name for part in kind.__mro__ for name in _names(vars(part).get("__slots__", ()))}
    own = len(slots - {"__dict__", "__weakref__"}) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind is object or kind.__basicsize__ > object.__basicsize__ + own * _POINTER


def _identifying(value: Any) -> Mapping[str, Any]:
    try:
        params = getattr(value, "_identifying_params", None)
    except Exception:  # of the client's own property; its fields identify it
        return {}
    return {str(name): part for name, part in params.items()} if isinstance(params, Mapping) else {}


def _slots(value: Any) -> dict[str, Any]:
    names = [name for part in type(value).__mro__ for name in _names(vars(part).get("__slots__", ()))]
    return {name: getattr(value, name) for name in names if not name.startswith("__") and hasattr(value, name)}


def _names(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _listed(part: Any) -> Any:
    """Return an iterator of pickle's, which can be read only once, as a list."""
    return list(part) if isinstance(part, Iterator) else part


def _is_cached(kind: type, name: str) -> bool:
    """Return True if an attribute is a value that a property has computed from others."""
    member = inspect.getattr_static(kind, name, None)
    return _is_cached_property(member)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
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


def _schema_digest(kind: type[BaseModel]) -> str | None:
    try:
        return digest_of(kind.model_json_schema())
    except Exception:  # pydantic has no JSON schema for a field; the code of the class identifies it
        return None


def _original_name(function: FunctionType) -> str:
    """Return the name that a function was defined under, which a decorator does not change."""
    return f"{function.__globals__.get('__name__', '')}.{function.__code__.co_qualname}"


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the values of a closure, without those that are not assigned yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if name != "__class__":
            yield name, content


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    positional = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(positional) :], positional, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that the code reads, and the modules that it imports; builtins are left out."""
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__ and function.__globals__[name] is not function:
            yield name, function.__globals__[name]
    package = str(function.__globals__.get("__package__") or "")
    for name in sorted(_imported_names(function.__code__, package)):
        yield f"import {name}", _file_of_module(name)


def _imported_names(code: CodeType, package: str) -> set[str]:
    """Return the names of the modules that a function imports when it runs."""
    instructions = list(dis.get_instructions(code))
    names = set()
    for place, part in enumerate(instructions):
        if part.opname == "IMPORT_NAME":
            level = instructions[place - 2].argval
            names.add(f"{'.' * level}{part.argval}" if isinstance(level, int) else part.argval)
    absolute = {importlib.util.resolve_name(name, package) if package else name for name in names}
    inner = (_imported_names(constant, package) for constant in code.co_consts if isinstance(constant, CodeType))
    return absolute.union(*inner)


def _file_of_module(name: str) -> Any:
    """Return the digest of the source of a module of the user; None for another one."""
    try:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None) if module else getattr(importlib.util.find_spec(name), "origin", None)
    except (ImportError, ValueError):
        return None  # the import fails when the function runs, or not at all
    return _file_digest(file) if file and Path(file).is_file() and _is_users_file(file) else None


def _global_names(code: CodeType) -> set[str]:
    names = {part.argval for part in dis.get_instructions(code) if part.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return names.union(*inner)


def _code_parts(code: CodeType) -> list[Any]:
    """Return what a function does, without the places of its lines."""
    return [
        *(code.co_code.hex(), code.co_exceptiontable.hex(), code.co_flags),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        *(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        [_constant(constant) for constant in code.co_consts],
    ]


def _constant(constant: Any) -> Any:
    match constant:
        case CodeType():
            return _code_parts(constant)
        case tuple():
            return [_constant(item) for item in constant]
        case frozenset():
            return sorted(repr(item) for item in constant)
    return repr(constant)


def _module(module: ModuleType) -> Any:
    """Return the name of a module; for one of the user also the digest of its source."""
    file = getattr(module, "__file__", None)
    if not file or _is_installed(file) or module.__name__.partition(".")[0] == _PACKAGE:
        return {"module": module.__name__}
    return {"module": module.__name__.rpartition(".")[2], "source": _file_digest(file)}


@functools.cache
def _file_digest(file: str) -> str | None:
    try:
        return _digest(Path(file).read_bytes())
    except OSError:
        return None


@functools.cache
def _is_installed(file: str) -> bool:
    return file.startswith((*_INSTALLED, "<frozen")) or any(part in file for part in _INSTALLED_PARTS)


def _is_users_function(function: FunctionType) -> bool:
    """Return True if a function is not part of this package, an installed one, or the standard library."""
    file = function.__code__.co_filename
    return _is_users_module(function.__module__) if file.startswith("<") else _is_users_file(file)


def is_users_class(kind: type) -> bool:
    """Return True if a class is part of neither this package, an installed one, nor the standard library."""
    return kind.__module__ not in ("builtins", "_thread") and _is_users_module(kind.__module__)


def _is_users_module(name: str | None) -> bool:
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if file is None:
        return name not in sys.builtin_module_names or name in ("builtins", "__main__")
    return (name or "").partition(".")[0] != _PACKAGE and _is_users_file(file)


def _is_users_file(file: str) -> bool:
    return not _is_installed(file) and not file.startswith(_OWN_FOLDER)


_OWN_FOLDER = f"{Path(__file__).parents[1]}/"


def _class_name(kind: type) -> str:
    return kind.__qualname__ if is_users_class(kind) else _name(kind)


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    return ".".join(filter(None, (getattr(value, "__module__", None), name)))


def _digest(content: str | bytes) -> str:
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]
