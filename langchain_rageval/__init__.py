"""Judge RAG systems in their own language, with the model you can afford.

Metrics are LangChain Runnables: pipe them into chains, pass them to `evaluate`, LangSmith or LangGraph. Public names
are declared in `__init__.pyi`, and each is imported on first use; importing this package reads no environment variable
and opens no connection.
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import Any

_MODULES = {
    alias.name: node.module
    for node in ast.parse(get_data(__name__, "__init__.pyi") or b"").body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

_MOVED = {"JournalError": "langchain_rageval.errors", "load_labels": "langchain_rageval.report.labelling"}
"""Names that earlier versions listed here and that still import, with the modules that have them."""
_PATHS = ("presets", "ranking", "sinks")  # modules that users import from

__all__ = sorted(name for name in _MODULES if name != "__version__")


def __getattr__(name: str) -> Any:
    """Import a public name or module on first use."""
    if name in _PATHS:
        return import_module(f"{__name__}.{name}")
    home = _MODULES.get(name) or _MOVED.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names and the version."""
    return sorted([*__all__, "__version__"])
