"""Fingerprint of a user's chain: changes if its code, prompts, models or options change, and not while it runs.

A chain holds open stores, caches and counters, so `describe` can seldom describe it completely. The fingerprint leaves
out what may change during a run: data of stores, mutable values that functions refer to, and attributes that methods
assign. It includes the text of the source files that define the functions and classes of the user.
"""

from __future__ import annotations

import dis
import functools
import inspect
import json
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Set
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import VectorStore
from pydantic import BaseModel, SecretBytes, SecretStr

from langchain_rageval._internal.secret_names import is_secret_name

_INSTALLED = tuple({f"{Path(path)}/" for name, path in sysconfig.get_paths().items() if "lib" in name})
_PACKAGE = __name__.partition(".")[0]
_STORES = ("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL")
_LABELS = {"name", "tags", "metadata", "callbacks", "cache", "verbose", "rate_limiter"}
_PARTS = ("nodes", "steps", "bound", "func", "afunc", "kwargs", "mapper")
_MOST_LEVELS = 50


def chain_fingerprint(chain: Runnable[Any, Any], configurable: Mapping[str, Any]) -> str:
    """Return a text that identifies a chain and the configurable values with which it is called.

    Args:
        chain: chain of the user.
        configurable: configurable values of its config; only texts and numbers count.
    """
    scalars = {name: value for name, value in configurable.items() if isinstance(value, str | int | float)}
    return json.dumps([_Reader().read(chain), _Reader().read(scalars)], sort_keys=True, ensure_ascii=False)


class _Reader:
    """Reader of the parts of a chain; reads each object once."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}
        self._level = 0

    def read(self, value: Any) -> Any:
        """Return JSON-like data that identifies a part."""
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value) if isinstance(value, float) else value
        if id(value) in self._seen or self._level > _MOST_LEVELS:
            return "seen"
        self._seen[id(value)] = value  # keeps the object alive, so that its id stays its own
        self._level += 1
        try:
            return self._read(value)
        finally:
            self._level -= 1

    def _read(self, value: Any) -> Any:
        match value:
            case bytes():
                return _digest(value)
            case SecretStr() | SecretBytes() | ModuleType():
                return None
            case Mapping():
                pairs = ((str(name), part) for name, part in list(value.items()))
                return {name: self.read(part) for name, part in pairs if not is_secret_name(name)}
            case list() | tuple():
                return [self.read(item) for item in value]
            case Set():
                return sorted((self.read(item) for item in value), key=str)
            case type():
                return self._class(value)
            case functools.partial():
                return [self.read(value.func), self.read(value.args), self.read(value.keywords)]
            case MethodType():
                return [self.read(value.__func__), self.read(value.__self__)]
            case FunctionType():
                return self._function(value)
        return self._object(value)

    def _object(self, value: Any) -> Any:
        kind = self._class(type(value))
        if isinstance(value, BaseLanguageModel):
            return [kind, self.read(getattr(value, "_identifying_params", None))]
        if isinstance(value, VectorStore):
            return kind
        assigned = _assigned_by(type(value))
        if isinstance(value, BaseModel):
            fields = {name: field for name, field in type(value).model_fields.items() if not field.exclude}
            names = fields.keys() - assigned - _LABELS
            return [kind, self.read({name: getattr(value, name) for name in sorted(names)})]
        if _is_users(type(value)):
            own = {name: part for name, part in vars(value).items() if name not in assigned}
            return [kind, *self._fixed(own)]
        return [kind, *(self.read(getattr(value, name, None)) for name in _PARTS)]

    def _class(self, kind: type) -> Any:
        name = f"{kind.__module__}.{kind.__qualname__}"
        return [name, _source_digest(kind)] if _is_users(kind) else name

    def _function(self, function: FunctionType) -> Any:
        assigned = set(_assigned(function.__code__))
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        parts = {name: cell.cell_contents for name, cell in cells if not _is_empty(cell)}
        is_users = _is_users(function)
        if is_users:
            used = [name for name in function.__code__.co_names if name in function.__globals__]
            parts |= {name: function.__globals__[name] for name in used}
        parts |= {str(place): part for place, part in enumerate(function.__defaults__ or ())}
        parts |= function.__kwdefaults__ or {}
        fixed = self._fixed({name: part for name, part in parts.items() if name not in assigned})
        return [f"{function.__module__}.{function.__qualname__}", _source_digest(function) if is_users else "", *fixed]

    def _fixed(self, parts: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the descriptions of those parts that do not change while the chain runs, with their names."""
        for name, part in parts.items():
            is_data = isinstance(part, dict | list | set | bytearray) or hasattr(part, "__next__")
            if not is_data and not is_secret_name(name):
                yield [name, self.read(part)]


def _assigned_by(kind: type) -> set[str]:
    """Return the attributes that the methods of a user's class assign after its construction."""
    methods = [
        part
        for base in kind.__mro__
        if _is_users(base)
        for name, part in vars(base).items()
        if isinstance(part, FunctionType) and name not in ("__init__", "__post_init__", "model_post_init")
    ]
    return {name for method in methods for name in _assigned(method.__code__)}


def _assigned(code: CodeType) -> Iterator[str]:
    """Yield the attributes and outer variables that a function assigns."""
    yield from (str(step.argval) for step in dis.get_instructions(code) if step.opname in _STORES)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _assigned(constant)


def _is_users(value: Any) -> bool:
    """Return True if a function or class is not part of this package, an installed one, or the standard library."""
    module = getattr(value, "__module__", None) or ""
    root = module.partition(".")[0]
    if root == _PACKAGE or (root in sys.stdlib_module_names and root != "__main__"):
        return False
    file = _file_of(value)
    return not file.startswith(_INSTALLED) and "-packages/" not in file


def _file_of(value: Any) -> str:
    try:
        return inspect.getsourcefile(value) or ""
    except (TypeError, OSError):  # defined in a notebook or by `exec`
        return ""


def _source_digest(value: Any) -> str:
    """Return a digest of the file that defines a function or class; without a file, of the code itself."""
    path = Path(_file_of(value) or "?")
    if path.is_file():
        return _digest(path.read_bytes())
    codes = (
        [value] if isinstance(value, FunctionType) else [f for f in vars(value).values() if isinstance(f, FunctionType)]
    )
    return _digest("".join(_code_text(function.__code__) for function in codes).encode())


def _code_text(code: CodeType) -> str:
    constants = [_code_text(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {sorted(constants)}"


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False
