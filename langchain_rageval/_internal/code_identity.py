"""Identity of functions, classes and modules: those of the user by their code, installed ones by their names."""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Set
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_INSTALLED = tuple({f"{Path(path)}/" for name, path in sysconfig.get_paths().items() if "lib" in name})
_INSTALLED_PARTS = ("/site-packages/", "/dist-packages/")
_OWN_FOLDER = f"{Path(__file__).parents[1]}/"
_MOVED = {
    "claim_metrics": ["claim_part.claim_value", "claim_part._state_from_findings"],
    "grading": [
        *("graders.cross_encoder_grader.RankGrader", "graders.embedding_grader.SimilarityGrader"),
        *("graders.embedding_grader.question_and_chunks", "graders.id_grader.IdGrader"),
        *("graders.label_grader.LabelGrader", "graders.llm_grader.LlmGrader", "graders.span_grader.SpanGrader"),
    ],
    "ranked": [f"{name}_at.{name}_of" for name in ("hit_rate", "map", "mean_grade", "mrr", "precision", "recall")],
    "text_overlap": [
        *("bleu.sentence_bleu", "chrf.sentence_chrf", "exact_match._equality_reason", "exact_match.equality"),
        *("overlap.best_overlap", "overlap.nearest_reference_reason", "rouge.shared_words"),
        *("string_presence._presence_reason", "string_presence.presence"),
    ],
}
_RENAMED = {"_equality_reason": "_reason", "_presence_reason": "_reason"}
_STORED_NAMES = {
    f"{_PACKAGE}.metrics.{now}.{name}": f"{_PACKAGE}.metrics.{file}.{_RENAMED.get(name, name)}"
    for now, names in _MOVED.items()
    for file, _, name in (then.rpartition(".") for then in names)
}
"""Names in stored instruments of what has moved since: a score stays valid when its code moves to another file."""


def original_name(function: FunctionType) -> str:
    """Return the name that a function was defined under, which a decorator does not change."""
    name = f"{function.__globals__.get('__name__', '')}.{function.__code__.co_qualname}"
    return _STORED_NAMES.get(name, name)


def closure_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the values of a closure, without those that are not assigned yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if name != "__class__":
            yield name, content


def default_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the parameters with a default, and their defaults."""
    positional = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(positional) :], positional, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def used_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that the code reads, and the modules that it imports; builtins are left out."""
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__ and function.__globals__[name] is not function:
            yield name, function.__globals__[name]
    package = str(function.__globals__.get("__package__") or "")
    for name in sorted(_imported_names(function.__code__, package)):
        yield f"import {name}", _file_of_module(name)


def named_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals whose names stand in the code, also where they name an attribute."""
    names = function.__code__.co_names
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


@functools.lru_cache(maxsize=1024)  # to read the code of a large function takes milliseconds
def _imported_names(code: CodeType, package: str) -> Set[str]:
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


@functools.lru_cache(maxsize=1024)
def _global_names(code: CodeType) -> Set[str]:
    names = {part.argval for part in dis.get_instructions(code) if part.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return names.union(*inner)


def code_parts(code: CodeType) -> list[Any]:
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
            return code_parts(constant)
        case tuple():
            return [_constant(item) for item in constant]
        case frozenset():
            return sorted(repr(item) for item in constant)
    return repr(constant)


def module_identity(module: ModuleType) -> Any:
    """Return the name of a module; for one of the user also the digest of its source."""
    file = getattr(module, "__file__", None)
    if not file or _is_installed(file) or module.__name__.partition(".")[0] == _PACKAGE:
        return {"module": module.__name__}
    return {"module": module.__name__.rpartition(".")[2], "source": _file_digest(file)}


@functools.cache
def _file_digest(file: str) -> str | None:
    try:
        return content_digest(Path(file).read_bytes())
    except OSError:
        return None


@functools.cache
def _is_installed(file: str) -> bool:
    return file.startswith((*_INSTALLED, "<frozen")) or any(part in file for part in _INSTALLED_PARTS)


def is_users_function(function: FunctionType) -> bool:
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


def class_name(kind: type) -> str:
    """Return the name of a class; for one of the user without its module, which may be run as `__main__`."""
    return kind.__qualname__ if is_users_class(kind) else qualified_name(kind)


def qualified_name(value: Any) -> str:
    """Return the name of a class, function or object with its module."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    full = ".".join(filter(None, (getattr(value, "__module__", None), name)))
    return _STORED_NAMES.get(full, full)


def content_digest(content: str | bytes) -> str:
    """Return 16 hexadecimal digits that identify a text or bytes."""
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]
