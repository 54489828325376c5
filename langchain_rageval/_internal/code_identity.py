"""Identify functions, classes and modules: those of the user by code, installed ones by name and version."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from langchain_rageval._internal.files import load_yaml

_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = {f"{Path(path)}/" for name, path in sysconfig.get_paths().items() if "lib" in name}
_NOT_OF_USERS = (*_LIBRARIES, "<frozen", f"{Path(__file__).parents[1]}/")
_INSTALLED_PARTS = ("/site-packages/", "/dist-packages/")
_STORED_NAMES: Mapping[str, str] = load_yaml((Path(__file__).parent / "stored_names.yaml").read_text())
"""Names in stored instruments of what has moved since: a score stays valid when its code moves to another file."""


def original_name(function: FunctionType) -> str:
    """Return the name under which a function was defined; a decorator does not change this name."""
    name = f"{function.__globals__.get('__name__', '')}.{function.__code__.co_qualname}"
    return _STORED_NAMES.get(name, name)


def closure_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a function's closure variables, without variables that are not assigned yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if name != "__class__":
            yield name, content


def default_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the name and the default of each parameter that has a default."""
    positional = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(positional) :], positional, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def used_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global names and values that a function reads, and the modules that it imports.

    For a module of the user, the globals that the function reads as `module.NAME` are included, unless the function
    also assigns or changes this `NAME`. Globals of the function's own module are included even if the function changes
    them; `changed_names` returns the changed names. Builtins are left out.
    """
    attributes = _attribute_names(function.__code__) - changed_by(function)
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__ and function.__globals__[name] is not function:
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType):
                yield from _module_values(name, value, attributes)
    package = str(function.__globals__.get("__package__") or "")
    for name in sorted(_imported_names(function.__code__, package)):
        yield f"import {name}", _identity_of_import(name)
        for attribute, value in _reassigned(name):
            if attribute in attributes:
                yield f"import {name}.{attribute}", value


def _module_values(name: str, module: ModuleType, attributes: Set[str]) -> Iterator[tuple[str, Any]]:
    """Yield what a module of the user has under these attributes, and so for the modules in it."""
    file = getattr(module, "__file__", None)
    for attribute in sorted(attributes & vars(module).keys()) if file and _is_users_file(file) else ():
        value = vars(module)[attribute]
        is_inner = isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{attribute}"
        yield f"{name}.{attribute}", value
        if is_inner:
            yield from _module_values(f"{name}.{attribute}", value, attributes)


def _reassigned(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names of an imported module of the user that its source assigns another constant than it has now."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and _is_users_file(file) and Path(file).is_file():
        values = vars(sys.modules[name])
        constants = _constants_of(Path(file).read_bytes())
        yield from ((one, values.get(one)) for one, first in constants.items() if values.get(one) != first)


@functools.lru_cache(maxsize=1024)
def _constants_of(source: bytes) -> Mapping[str, Any]:
    """Return the constants that a source assigns outside of functions and classes."""
    found: dict[str, Any] = {}
    with suppress(SyntaxError, ValueError):
        for node in ast.parse(source).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            with suppress(ValueError, TypeError):
                value = ast.literal_eval(getattr(node, "value", None))  # type: ignore[arg-type]
                found |= {target.id: value for target in targets if isinstance(target, ast.Name)}
    return found


UNTRACEABLE = frozenset({"globals", "eval", "exec", "__import__", "import_module"})
"""Functions whose callers may read anything."""


def untraceable_calls(function: FunctionType) -> Set[str]:
    """Return the names of `UNTRACEABLE`, such as "eval", in a function's code; calls of these may read any object."""
    return UNTRACEABLE & (_global_names(function.__code__) | _attribute_names(function.__code__))


def named_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the globals that a function may read: each global whose name its code contains.

    A name that the code contains only as an attribute, such as `x` in `obj.x`, counts, too.
    """
    names = function.__code__.co_names
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


@functools.lru_cache(maxsize=1024)  # to read the code of a large function takes milliseconds
def _instructions(code: CodeType) -> Sequence[Sequence[dis.Instruction]]:
    """Return the instructions of a code and of each code in it, without those that do nothing."""
    own = [part for part in dis.get_instructions(code) if part.opname not in ("PUSH_NULL", "CACHE")]
    return [own, *(part for inner in code.co_consts if isinstance(inner, CodeType) for part in _instructions(inner))]


def _imported_names(code: CodeType, package: str) -> Set[str]:
    """Return the names of the modules that a function imports when it runs."""
    names = set()
    for parts in _instructions(code):
        for place, part in enumerate(parts):
            if part.opname == "IMPORT_NAME":
                level = parts[place - 2].argval
                names.add(f"{'.' * level}{part.argval}" if isinstance(level, int) else part.argval)
    return {importlib.util.resolve_name(name, package) if package else name for name in names}


def _identity_of_import(name: str) -> Any:
    """Return the digest of the sources of a module of the user, or the distribution of another one; None if unknown."""
    file = _file_of_module(name)
    if file is None:
        return None  # a part of the standard library, or the import fails when the function runs
    return _sources_digest(file, name) if _is_users_file(file) else distribution_of(name)


def _file_of_module(name: str) -> str | None:
    """Return the file of a module, which is not imported for it; None if it has none or is not found."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    place, spec = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), place)
        if spec is None:
            return None
        place = spec.submodule_search_locations
    return spec.origin if spec and spec.has_location else None


def _sources_digest(file: str, name: str) -> str:
    """Return the digest of a module of the user and of all modules of the user that it imports, also in functions."""
    found: dict[str, str] = {}
    waiting = [(file, name)]
    while waiting:
        path, module = waiting.pop()
        try:
            source = Path(path).read_bytes()
        except OSError:
            continue
        found[path] = content_digest(source)
        for inner in _modules_imported(source, module if Path(path).stem == "__init__" else module.rpartition(".")[0]):
            other = _file_of_module(inner)
            if other and other not in found and _is_users_file(other):
                waiting.append((other, inner))
    return content_digest("\n".join(sorted(set(found.values()))))


@functools.lru_cache(maxsize=4096)
def _modules_imported(source: bytes, package: str) -> Set[str]:
    """Return the names of the modules that a source may import, with the packages that they are in."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue  # beyond the top of the package: the import fails
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return {".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 2)}


def distribution_of(module: str) -> str | None:
    """Return the name and version of the installed distribution that contains a module, such as "numpy 2.1.0".

    An installed module without a distribution gives the name of its package and a digest of its source. This package,
    the standard library, modules that are not installed (modules of the user) and modules without a file give None.
    """
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or _file_of_module(top)
    if top == _PACKAGE or top in sys.stdlib_module_names or not file or _is_users_file(file):
        return None
    if found := _distributions().get(top):
        return found
    own = getattr(sys.modules.get(module), "__file__", None) or file
    return f"{top} {content_digest(Path(own).read_bytes())}" if Path(own).is_file() else None


@functools.cache
def _distributions() -> dict[str, str]:
    """Return the installed distribution of each top-level module, with its version.

    As `importlib.metadata.packages_distributions`, which takes a second where hundreds of distributions are installed.
    """
    owners: dict[str, set[str]] = {}
    first: dict[str, str] = {}  # a name that is on the path twice is imported from the first place
    for found in distributions():
        metadata = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
        fields = dict(re.findall(r"^(Name|Version):\s*(.*?)\s*$", metadata.partition("\n\n")[0], re.MULTILINE))
        if fields.keys() == {"Name", "Version"}:
            key = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
            named = first.setdefault(key, f"{fields['Name']} {fields['Version']}")
            for top in _top_level_modules(found):
                owners.setdefault(top, set()).add(named)
    return {top: ", ".join(sorted(named)) for top, named in owners.items()}


def _top_level_modules(found: Distribution) -> Set[str]:
    if declared := (found.read_text("top_level.txt") or "").split():
        return set(declared)
    if (record := found.read_text("RECORD")) is None:
        record = "".join(f"{file},\n" for file in found.files or ())
    return set(re.findall(r"^([^/,.\n]+)(?:/[^,\n]*)?\.(?:[^/,\n]*\.)?(?:py|so|pyd),", record, re.MULTILINE))


_CALLED = (
    *("_generate", "_agenerate", "_stream", "_astream", "_call", "_acall", "__call__", "invoke", "ainvoke"),
    *("embed_documents", "embed_query", "aembed_documents", "aembed_query", "score"),
)
_CHANGING = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "appendleft", "pop", "clear"})


def changed_names(code: CodeType) -> Set[str]:
    """Return the globals and closure variables that a code object assigns or changes, such as a counter of calls."""
    return _changed(code, ("STORE_GLOBAL", "STORE_DEREF"), ("LOAD_GLOBAL", "LOAD_DEREF"))


def changed_attributes(kind: type) -> Set[str]:
    """Return the attributes that the methods of a class change during a call, such as a counter of calls."""
    methods = (vars(part).get(name) for part in kind.__mro__ if is_users_class(part) for name in _CALLED)
    return frozenset[str]().union(*map(changed_by, methods))


def changed_by(method: Any) -> Set[str]:
    """Return the attributes that a method assigns or changes."""
    return _changed(method.__code__, ("STORE_ATTR",), ("LOAD_ATTR",)) if isinstance(method, FunctionType) else set()


@functools.lru_cache(maxsize=4096)
def _changed(code: CodeType, stores: tuple[str, ...], loads: tuple[str, ...]) -> Set[str]:
    changed = set()
    for parts in _instructions(code):
        for place, part in enumerate(parts):
            if part.opname in stores:
                changed.add(part.argval)
            elif part.opname in loads:
                after = parts[place + 1 : place + 3]
                has_method = after and after[0].opname in ("LOAD_ATTR", "LOAD_METHOD") and after[0].argval in _CHANGING
                if has_method or (after[1:] and after[1].opname in ("STORE_SUBSCR", "COPY")):  # COPY: x[key] += 1
                    changed.add(part.argval)
    return changed


def _global_names(code: CodeType) -> Set[str]:
    return _names_of(code, ("LOAD_GLOBAL", "LOAD_NAME"))


def _attribute_names(code: CodeType) -> Set[str]:
    names = _names_of(code, ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"))
    return names | {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}


@functools.lru_cache(maxsize=4096)
def _names_of(code: CodeType, operations: tuple[str, ...]) -> Set[str]:
    return {part.argval for parts in _instructions(code) for part in parts if part.opname in operations}


@functools.lru_cache(maxsize=1024)
def code_digest(code: CodeType) -> str:
    """Return a digest of what a function does, which does not depend on line numbers."""
    return content_digest(repr(_code_parts(code)))


def _code_parts(code: CodeType) -> list[Any]:
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


def module_identity(module: ModuleType) -> Any:
    """Return the name of a module; for a module of the user, also digests of its source and of its imports."""
    file = getattr(module, "__file__", None)
    if not file or not _is_users_file(file):
        distribution = distribution_of(module.__name__)
        return {"module": module.__name__} | ({"distribution": distribution} if distribution else {})
    return {"module": module.__name__.rpartition(".")[2], "source": _sources_digest(file, module.__name__)}


def is_users_function(function: FunctionType) -> bool:
    """Return True if a function belongs neither to this package, nor an installed package, nor the standard library."""
    file = function.__code__.co_filename
    return _is_users_module(function.__module__) if file.startswith("<") else _is_users_file(file)


def is_users_class(kind: type) -> bool:
    """Return True if a class belongs neither to this package, nor an installed package, nor the standard library."""
    return kind.__module__ not in ("builtins", "_thread") and _is_users_module(kind.__module__)


def _is_users_module(name: str | None) -> bool:
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if file is None:
        return name not in sys.builtin_module_names or name in ("builtins", "__main__")
    return (name or "").partition(".")[0] != _PACKAGE and _is_users_file(file)


@functools.cache
def _is_users_file(file: str) -> bool:
    return not (file.startswith(_NOT_OF_USERS) or any(part in file for part in _INSTALLED_PARTS))


def class_name(kind: type) -> str:
    """Return the qualified name of a class.

    The name of a user's class omits the module, because the module may be run as `__main__`.
    """
    return kind.__qualname__ if is_users_class(kind) else qualified_name(kind)


def qualified_name(value: Any) -> str:
    """Return the name of a class, function or object, with the name of its module."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    full = ".".join(filter(None, (getattr(value, "__module__", None), name)))
    return _STORED_NAMES.get(full, full)


def content_digest(content: str | bytes) -> str:
    """Return 16 hexadecimal digits that identify a text or bytes."""
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]


def short_digest(content: str, size: int = 8) -> str:
    """Return a digest of a text for ids: `2 * size` hexadecimal digits."""
    return hashlib.blake2b(content.encode(), digest_size=size).hexdigest()
