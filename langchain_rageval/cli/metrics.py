"""`rageval metrics`: list the metrics."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_rageval.cli.json_output import add_json_option, write_json
from langchain_rageval.cli.own_metrics import registered_metrics
from langchain_rageval.metrics import ASPECTS, BUILDERS, RANKINGS


def add_to(commands: Any) -> None:
    """Add the command `rageval metrics` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser("metrics", help="list the metrics with a description")
    parser.set_defaults(run=run)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line per metric, which starts with its name."""
    lines = {name: _headline(module) for name, module in BUILDERS.items()}
    lines |= {
        aspect: f"aspect_critique: built-in aspect, {direction} is better" for aspect, direction in ASPECTS.items()
    }
    lines |= {f"{name}@K": _headline(module) for name, module in RANKINGS.items()}
    lines |= {name: _origin(point) for name, point in registered_metrics().items()}
    if options.json:
        write_json({"metrics": lines})
        return 0
    width = max(map(len, lines))
    for name, description in lines.items():
        sys.stdout.write(f"{name:<{width}}  {description}\n")
    return 0


def _origin(point: EntryPoint) -> str:
    """Return where an entry point is defined; the module is not imported."""
    package = f" of {point.dist.name}" if point.dist else ""
    return f"{point.value}{package}"


def _headline(module: str) -> str:
    """Return the first line of the module's docstring without the metric's name; the module is not imported."""
    spec = find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    first = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "").split("\n")[0]
    return first.split(": ", 1)[-1]
