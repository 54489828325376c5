"""Descriptions of objects as JSON-like data: what they are and how they are configured, without secrets.

Two objects with the same description behave alike. An object that cannot be described completely, such as an open
client, has no description: `describe` raises `NotDescribable`, and the caller treats the object as unknown.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
import json
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import PydanticUndefined

_PACKAGE = __name__.partition(".")[0]
_INSTALLED = tuple({str(Path(path)) for name, path in sysconfig.get_paths().items() if "lib" in name})

_SECRET_NAME = re.compile(
    r"key$|key_id$|secret|passw|pwd$|credential|token$|authorization|^auth$|cookie|signature$|^sig$|bearer",
    re.IGNORECASE,
)
_CARRIER_NAME = re.compile(r"headers?$|query$|cookies$", re.IGNORECASE)
_TRANSPORT = {
    *("timeout", "request_timeout", "default_request_timeout", "max_retries", "rate_limiter", "cache", "verbose"),
    *("callbacks", "callback_manager", "tags", "metadata", "name"),
}
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY_KEY = re.compile(
    r"""([?&;][\w.-]*(?:key|secret|passw\w*|pwd|credentials?|token|sig|signature|auth)=)[^&\s'"]+""", re.IGNORECASE
)
_PATH_KEY = re.compile(
    r"(?<=/)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?=[/?\s'\"]|$)"
)  # a path segment that looks random
_MOST_PARTS = 20_000
_MOST_LEVELS = 30


class NotDescribable(TypeError):
    """A value without a stable description; the message names its place."""


def describe(value: Any) -> Any:
    """Return JSON-like data that is equal for two values if they are configured alike.

    Secrets are left out: SecretStr values and entries with the name of a secret. Values of headers, cookies and queries
    are given as digests. Timeouts, retries, callbacks and tags are left out, since they change no answer. Pydantic
    fields that have their default, or that are declared `exclude=True`, are left out, too. Functions and classes of the
    user are described by their code, defaults and closure values, those of installed packages by name. An object with
    an attribute `version` is described by its class and that version.

    Args:
        value: a model, a function, a pydantic or plain object, or data.

    Returns:
        Nested dicts, lists, strings, numbers, booleans and None.

    Raises:
        NotDescribable: if a part is an object without readable state.
    """
    return _Describer().described(value, "")


def digest_of(description: Any) -> str:
    """Return 16 hexadecimal digits that identify a description."""
    return _digest(json.dumps(description, sort_keys=True, ensure_ascii=False))


def is_secret_name(name: str) -> bool:
    """Return True if a field of this name usually holds a secret."""
    return _SECRET_NAME.search(name) is not None


def is_carrier_name(name: str) -> bool:
    """Return True if a field of this name holds headers, cookies or a query, whose values may be secrets."""
    return _CARRIER_NAME.search(name) is not None


def without_keys(text: str) -> str:
    """Return the text without user names, passwords and keys in addresses."""
    text = _QUERY_KEY.sub(r"\1***", _USERINFO.sub("//", text))
    return _PATH_KEY.sub("***", text) if "://" in text else text


class _Describer:
    def __init__(self) -> None:
        self._parts = 0
        self._levels = 0

    def described(self, value: Any, place: str) -> Any:
        self._parts += 1
        if self._parts > _MOST_PARTS or self._levels > _MOST_LEVELS:
            raise NotDescribable(f"{place} is too large to describe")
        self._levels += 1
        try:
            return self._described(value, place)
        finally:
            self._levels -= 1

    def _described(self, value: Any, place: str) -> Any:  # noqa: C901 - a table of types
        match value:
            case enum.Enum():
                return f"{_name(type(value))}.{value.name}"
            case None | bool() | int() | float():
                return value
            case str():
                return without_keys(value)
            case bytes() | bytearray():
                return _digest(bytes(value))
            case SecretStr() | SecretBytes():
                return "***"
            case PurePath() | UUID() | re.Pattern() | ModuleType() | BuiltinFunctionType():
                return _name(value) if isinstance(value, ModuleType | BuiltinFunctionType) else str(value)
            case Mapping():
                return dict(self._entries(value.items(), place))
            case list() | tuple():
                return [self.described(item, f"{place}[{index}]") for index, item in enumerate(value)]
            case Set():
                return sorted((self.described(item, place) for item in value), key=repr)
            case type():
                return self._class(value, place)
            case partial():
                parts = (("function", value.func), ("args", value.args), ("keywords", value.keywords))
                return {name: self.described(part, place) for name, part in parts}
            case MethodType():
                return {"method": self.described(value.__func__, place), "of": self.described(value.__self__, place)}
            case FunctionType():
                return self._function(value, place)
        return self._object(value, place)

    def _entries(self, pairs: Iterable[tuple[Any, Any]], place: str) -> Iterator[tuple[str, Any]]:
        for key, value in pairs:
            name = str(key)
            if value is None or is_secret_name(name):
                continue
            if is_carrier_name(name) and isinstance(value, Mapping):
                yield name, {str(field): _digest(repr(part)) for field, part in value.items()}
            else:
                yield name, self.described(value, f"{place}.{name}" if place else name)

    def _object(self, value: Any, place: str) -> Any:
        kind = type(value)
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):
            return {"array": [str(value.dtype), list(value.shape), _digest(value.tobytes())]}
        version = getattr(value, "version", None)
        if isinstance(version, str) and not isinstance(value, BaseModel):
            return {"class": _name(kind), "version": version}
        if isinstance(value, BaseModel):
            state = _fields(value)
        elif dataclasses.is_dataclass(value):
            state = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif getattr(kind, "__module__", "") not in ("builtins", "_thread") and hasattr(value, "__dict__"):
            state = vars(value)
        else:
            raise NotDescribable(f"{place or 'the object'} is a {_name(kind)}, whose state cannot be read")
        parts = {name: part for name, part in state.items() if name not in _TRANSPORT}
        description = {"class": self._class(kind, place), **dict(self._entries(parts.items(), place))}
        identifying = getattr(value, "_identifying_params", None)
        if isinstance(identifying, Mapping):
            new = {name: part for name, part in identifying.items() if name not in {*parts, *_TRANSPORT}}
            description |= dict(self._entries(new.items(), place))
        return description

    def _class(self, kind: type, place: str) -> Any:
        """Name, and for a class of the user its code, that of its bases included."""
        own = [part for part in kind.__mro__ if _is_users(part)]
        if not own:
            return _name(kind)
        members = [member for part in own for member in vars(part).values()]
        functions = [f for member in members for f in _functions_of(member)]
        return {"name": _name(kind), "code": _digest(json.dumps([self._function(f, place) for f in functions]))}

    def _function(self, function: FunctionType, place: str) -> Any:
        version = getattr(function, "version", None)
        if isinstance(version, str):
            return {"function": _name(function), "version": version}
        if not _is_users(function):
            return _name(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if not _is_empty(cell) and name != "__class__"}
        defaults = [function.__defaults__, function.__kwdefaults__]
        description = {"function": function.__qualname__, "code": _digest(repr(list(_code_parts(function.__code__))))}
        if closure:
            description["closure"] = dict(self._entries(closure.items(), f"{place or function.__qualname__} (closure)"))
        if any(defaults):
            description["defaults"] = self.described(defaults, f"{place or function.__qualname__} (defaults)")
        return description


def _fields(model: BaseModel) -> dict[str, Any]:
    """The fields that are serialized and differ from their defaults, without secrets of LangChain."""
    secrets = getattr(model, "lc_secrets", {})
    values = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name, None)
        default = field.get_default(call_default_factory=not field.default_factory_takes_validated_data)
        if not field.exclude and name not in secrets and (default is PydanticUndefined or not _equal(value, default)):
            values[name] = value
    return {**values, **(model.model_extra or {})}


def _equal(value: Any, other: Any) -> bool:
    try:
        return bool(type(value) is type(other) and value == other)
    except Exception:  # of a foreign class's comparison, such as an array's
        return False


def _is_users(value: Any) -> bool:
    """Return True if a class or function belongs to neither this package, an installed one, nor the standard library."""
    module = inspect.getmodule(value)
    if (value.__module__ or "").partition(".")[0] in (_PACKAGE, "builtins"):
        return False
    file = getattr(module, "__file__", None)
    return file is None or not str(Path(file)).startswith(_INSTALLED)


def _functions_of(member: Any) -> list[FunctionType]:
    if isinstance(member, property):
        return [part for part in (member.fget, member.fset) if isinstance(part, FunctionType)]
    member = getattr(member, "__func__", member)
    return [member] if isinstance(member, FunctionType) else []


def _code_parts(code: CodeType) -> Iterator[Any]:
    """What a function does, without the places of its lines."""
    yield from (code.co_code.hex(), code.co_names, code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield list(_code_parts(constant))
        else:
            yield repr(sorted(constant, key=repr)) if isinstance(constant, frozenset) else repr(constant)


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _name(value: Any) -> str:
    return ".".join(filter(None, (getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))))


def _digest(content: str | bytes) -> str:
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]
