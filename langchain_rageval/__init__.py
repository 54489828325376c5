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

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(str(_MODULES[name])), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
