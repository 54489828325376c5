"""Pages made from the package when the documentation is built: API, command line, notebooks, `llms.txt`.

The API pages hold what users import: the names of `langchain_rageval/__init__.pyi`, grouped by folder, and the public
modules. The pages of the command line hold what `--help-all` prints. All are written beside the pages in the
repository and ignored by git.
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
PAGES = {  # title of a page: folders whose root names it has, and public modules
    "Data": (("data",), ()),
    "Evaluation and trust": (("evaluation", "run", "trust"), ("langchain_rageval.integrations.ray",)),
    "Judges, prompts and steps": (("judge", "models", "prompts", "steps", "text"), ("langchain_rageval.steps",)),
    "Metrics": (("metrics",), ("langchain_rageval.ranking",)),
    "Reports and statistics": (("report",), ("langchain_rageval.statistics",)),
    "Test sets": (("testset",), ("langchain_rageval.testset",)),
    "Production": (("callbacks",), ("langchain_rageval.sinks", "langchain_rageval.integrations.langsmith")),
    "Errors and testing": (("errors",), ("langchain_rageval.testing",)),
}
MODULES = tuple(module for _, modules in PAGES.values() for module in modules)


def write_pages(source: Path) -> None:
    """Write the generated pages into the folder of the sources."""
    _write_api(source / "reference" / "api")
    (source / "reference" / "cli.md").write_text(command_line(), encoding="utf-8")
    tutorials = source / "tutorials" / "notebooks"
    shutil.rmtree(tutorials, ignore_errors=True)
    tutorials.mkdir(parents=True)
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(notebook, tutorials)


def link_sources(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to the notebooks to their copies in the site, and name the address of the repository."""
    text = source[0].replace("<repository>", app.config.repository)
    source[0] = re.sub(r"\]\(\.\./\.\./notebooks/(\w+\.ipynb\))", r"](../tutorials/notebooks/\1", text)


def write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """Write `llms.txt`, a list of all pages with their titles for language models, into the built site."""
    if error or app.builder.name != "html":
        return
    from sphinx.addnodes import toctree  # the tests import this file without Sphinx

    lines = ["# langchain-rageval", "", f"> {langchain_rageval.__doc__.splitlines()[0]}"]
    for tree in app.env.get_doctree("index").findall(toctree):
        lines += ["", f"## {tree['caption']}", ""]
        lines += [f"- [{app.env.titles[page].astext()}]({page}.html)" for page in tree["includefiles"]]
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
        for title, (group, _) in PAGES.items()
    }


def _write_api(folder: Path) -> None:
    """Write the pages of the names that users import: from the root, then from public modules."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for title, names in public_names().items():
        parts = [_heading(title, "="), *_entries("langchain_rageval", names)]
        for module in PAGES[title][1]:
            parts += [_heading(f"``{module}``", "-"), *_entries(module, _exported(module))]
        (folder / f"{_slug(title)}.rst").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _heading(title: str, mark: str) -> str:
    return f"{title}\n{mark * len(title)}"


def _entries(module: str, names: list[str]) -> list[str]:
    """Return the import statement of a module, and the directives that document its names."""
    return [f"Import from ``{module}``.", *(_entry(f"{module}.{name}") for name in names)]


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
    return title.lower().replace(",", "").replace(" ", "-")


def command_line() -> str:
    """Return the page of the command line: what `--help-all` prints for the program and for each command."""
    os.environ["COLUMNS"] = "100"
    parser = main.build_parser(whole=True)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    lines = ["# Command line", "", COMMAND_LINE, "```text", parser.format_help().rstrip(), "```", ""]
    for name, command in commands.choices.items():
        lines += [f"## rageval {name}", "", "```text", command.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


COMMAND_LINE = """Examples and conventions: [score a file](../tutorials/first-steps.md).
"""
