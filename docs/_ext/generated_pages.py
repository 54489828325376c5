"""Pages made from the package when the documentation is built: API, command line, notebooks, `llms.txt`.

The API pages hold what users import: the names of `langchain_rageval/__init__.pyi`, grouped by folder, and the public
modules. The pages of the command line hold what `--help` prints. Both are written beside the pages in the repository
and ignored by git.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import langchain_rageval
from langchain_rageval.cli import main

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
GROUPS = {
    "Data": ("data",),
    "Evaluation": ("evaluation", "run"),
    "Judges and models": ("judge", "models"),
    "Metrics": ("metrics",),
    "Prompts and steps": ("prompts", "steps", "text"),
    "Reports": ("report",),
    "Test sets": ("testset",),
    "Trust": ("trust",),
    "Production": ("callbacks",),
    "Errors": ("errors",),
}
MODULES = (
    "langchain_rageval.steps",
    "langchain_rageval.testset",
    "langchain_rageval.sinks",
    "langchain_rageval.ranking",
    "langchain_rageval.statistics",
    "langchain_rageval.testing",
    "langchain_rageval.integrations.langsmith",
    "langchain_rageval.integrations.ray",
)


def write_pages(source: Path) -> None:
    """Write the generated pages into the folder of the sources."""
    _write_api(source / "reference" / "api")
    (source / "reference" / "cli.md").write_text(command_line(), encoding="utf-8")
    tutorials = source / "tutorials" / "notebooks"
    shutil.rmtree(tutorials, ignore_errors=True)
    tutorials.mkdir()
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(notebook, tutorials)


def link_notebooks(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to the notebooks of the repository to their copies in the site."""
    source[0] = re.sub(r"\]\(\.\./\.\./notebooks/(\w+\.ipynb\))", r"](../tutorials/notebooks/\1", source[0])


def write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """Write `llms.txt`, a list of all pages with their titles for language models, into the built site."""
    if error or app.builder.name != "html":
        return
    titles = {page: node.astext() for page, node in app.env.titles.items()}
    lines = ["# langchain-rageval", "", f"> {langchain_rageval.__doc__.splitlines()[0]}"]
    folder = None
    for page in sorted(titles, key=lambda page: (page.count("/") > 0, page)):
        if "/" in page and page.split("/")[0] != folder:
            folder = page.split("/")[0]
            lines += ["", f"## {titles[f'{folder}/index']}", ""]
        lines.append(f"- [{titles[page]}]({page}.html)")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def public_names() -> dict[str, list[str]]:
    """Return the names of the package root by title of the page that describes them."""
    stub = ast.parse(Path(langchain_rageval.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    folders = {
        alias.name: str(node.module).split(".")[1]
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {
        title: sorted((name for name in folders if folders[name] in group), key=str.lower)
        for title, group in GROUPS.items()
    }


def _write_api(folder: Path) -> None:
    """Write one page per group of root names and one per public module."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pages = {title: [f"langchain_rageval.{name}" for name in names] for title, names in public_names().items()}
    for module in MODULES:
        pages[module] = [f"{module}.{name}" for name in _exported(module)]
    for title, names in pages.items():
        entries = "\n\n".join(_entry(name) for name in names)
        text = f"{title}\n{'=' * len(title)}\n\n{_introduction(title)}{entries}\n"
        (folder / f"{_slug(title)}.rst").write_text(text, encoding="utf-8")


def _introduction(title: str) -> str:
    """Return the import statement of a public module, or of the package root."""
    module = title if title.startswith("langchain_rageval") else "langchain_rageval"
    return f"Import from ``{module}``.\n\n"


def _exported(module: str) -> list[str]:
    """Return the exported names of a module: `__all__`, or the public functions and classes that it defines."""
    loaded = importlib.import_module(module)
    defined = [name for name, value in vars(loaded).items() if getattr(value, "__module__", None) == module]
    names = getattr(loaded, "__all__", [name for name in defined if not name.startswith("_")])
    return [name for name in names if not (module.endswith("testset") and name in langchain_rageval.__all__)]


def _entry(path: str) -> str:
    """Return the directive that documents a name."""
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, type):
        return f".. autoclass:: {path}\n   :exclude-members: model_config, model_fields, model_post_init"
    if callable(value) and hasattr(value, "__name__"):
        return f".. autofunction:: {path}"
    return f".. autodata:: {path}\n   :no-value:"  # an object that is called, such as an evolution


def _slug(title: str) -> str:
    """Return the file name of a page."""
    return title.lower().replace(" ", "-").removeprefix("langchain_rageval.")


def command_line() -> str:
    """Return the page of the command line: what `--help` prints for the program and for each command."""
    os.environ["COLUMNS"] = "100"
    parser = main._parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    lines = ["# Command line", "", COMMAND_LINE, "```text", parser.format_help().rstrip(), "```", ""]
    for name, command in commands.choices.items():
        lines += [f"## rageval {name}", "", "```text", command.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


COMMAND_LINE = """Examples and conventions: [use the command line](../how-to/command-line.md).
"""
