"""Public names: each top-level function or class of the package has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

import langchain_rageval

PACKAGE = Path(langchain_rageval.__file__).parent
SHARED = {
    "add_to": "cli",  # each command adds itself to the parser,
    "run": "cli",  # and runs
    "answer": "presets.py",  # a preset is named as the command line names it
}
"""Name that several files of a folder define, to that folder, or that a file may have beside another."""


def definitions(source):
    """Return the names of the public top-level functions and classes of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.parse(source).body if isinstance(node, kinds) and not node.name.startswith("_")}


def shared_names(sources):
    """Return the names that several modules define, with the modules, except `SHARED` names in their folder."""
    modules = defaultdict(list)
    for module, source in sources.items():
        for name in definitions(source):
            if SHARED.get(name) != module.partition("/")[0]:
                modules[name].append(module)
    return {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}


def test_no_two_public_functions_or_classes_share_a_name():
    paths = PACKAGE.rglob("*.py")
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    assert shared_names(sources) == {}


def test_a_shared_name_is_found_unless_it_is_private_or_excepted():
    sources = {"cli/a.py": "class One: ...\ndef _two(): ...\ndef run(): ...", "cli/b.py": "def run(): ..."}
    assert shared_names(sources) == {}
    sources["run/c.py"] = "async def One(): ...\ndef _two(): ...\ndef run(): ..."
    assert shared_names(sources) == {"One": ["cli/a.py", "run/c.py"]}
