"""The package as a whole: its layers, its public names, what importing it does, and what goes into the wheel."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from helpers.each import each
from helpers.texts import OWN
from helpers.waiting import PATIENCE

import langchain_rageval
from langchain_rageval import metrics
from langchain_rageval.text import language

PACKAGE = Path(langchain_rageval.__file__).parent
ROOT = PACKAGE.parent
NAME = "langchain_rageval"
PAGE = (".html", ".css", ".js")

# The folders, lowest first. A file imports from its own folder, from the folders before it, and from `errors`.
LAYERS = (
    *("_internal", "statistics", "text", "data", "run", "chains", "prompts", "judge", "models", "steps", "metrics"),
    *("testset", "report", "evaluation", "callbacks", "trust", "integrations", "testing", "cli"),
)
ROOT_MODULES = {"__init__", "__main__", "_version", "errors", "presets", "ranking", "sinks"}
PUBLIC_PATHS = {"__init__", "__main__", "presets", "ranking", "sinks"}  # of users; no file of the package imports them
STRANGERS = {("metrics", "testset"), ("testset", "metrics")}


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name within the package, "__init__" for the package itself, and the file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts), path


@cache
def nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def imports(source: str) -> list[str]:
    """Names that a module imports from the package, without the package's own name; also inside functions."""
    nodes = nodes_of(source)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [f"{node.module}.{alias.name}" for node in froms for alias in node.names]
    return [name.removeprefix(f"{NAME}.") for name in names if name.partition(".")[0] == NAME]


def objection(module: str, imported: str) -> str | None:
    """Return why a module must not import a name, or None if it may."""
    importer, folder = module.partition(".")[0], imported.partition(".")[0]
    if importer in PUBLIC_PATHS or importer == folder or folder in {"errors", "_version"}:
        return None
    if folder not in LAYERS:
        return f"{module} imports {imported} through the package's public names"
    above = importer == "errors" or LAYERS.index(folder) > LAYERS.index(importer)
    if above or (importer, folder) in STRANGERS:
        return f"{module} imports {imported}, which is above it"
    return None


def import_graph(paths: dict[str, Path]) -> dict[str, set[str]]:
    """Map each module to the modules that it imports, type-only imports included."""

    def module_of(name: str) -> str:
        return name if name in paths else name.rpartition(".")[0]

    return {
        module: {module_of(name) for name in imports(path.read_text(encoding="utf-8"))} - {module}
        for module, path in paths.items()
        if module not in PUBLIC_PATHS
    }


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other, or an empty list if the graph has no cycle."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_root_holds_folders_and_nothing_else():
    top = {name.partition(".")[0] for name, _ in modules()}
    assert top == {*LAYERS, *ROOT_MODULES}
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(LAYERS)


@each(("module", "path"), list(modules()), ids=lambda given: given if isinstance(given, str) else "")
def test_no_module_imports_from_above(module, path):
    names = imports(path.read_text(encoding="utf-8"))
    assert [problem for name in names if (problem := objection(module, name))] == []


def test_no_modules_import_each_other():
    assert circle(import_graph(dict(modules()))) == []


def test_a_circle_would_be_seen():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@each(
    ("source", "allowed"),
    [
        ("from langchain_rageval.data.schema import Row", True),
        ("from langchain_rageval.errors import ConfigError", True),
        ("from langchain_rageval.prompts.layout import Line", True),
        ("from langchain_rageval.report.report import Report", False),
        ("def f():\n    from langchain_rageval.report.report import Report", False),
        ("import langchain_rageval.cli.main", False),
        ("from langchain_rageval import evaluate", False),
        ("from langchain_rageval.sinks import JsonlSink", False),
        ("if TYPE_CHECKING:\n    from langchain_rageval.judge.judge import Judge", False),
    ],
)
def test_an_upward_import_would_be_seen(source, allowed):
    problems = [objection("prompts.layout", name) for name in imports(source)]
    assert [problem is None for problem in problems] == [allowed]
    assert objection("metrics.rubric", "testset.passage.Passage")
    assert objection("testset.generator", "metrics.metric.Metric")


def test_metrics_do_not_know_each_other():
    modules = {**metrics.BUILDERS, **metrics.RANKINGS}
    for name, builder_module in modules.items():
        source = Path(importlib.import_module(builder_module).__file__).read_text(encoding="utf-8")
        others = set(modules.values()) - {builder_module}
        assert not {f"{NAME}.{imported}".rpartition(".")[0] for imported in imports(source)} & others, name


# Public names


def submodules() -> list[str]:
    found = pkgutil.walk_packages(langchain_rageval.__path__, f"{NAME}.")
    return [info.name for info in found if not info.name.endswith("__main__")]


def test_public_names_stay_what_they_are_when_every_module_is_imported():
    """Importing a submodule sets an attribute of its parent: it would replace a function of the same name."""
    loaded = {name: importlib.import_module(name) for name in submodules()}
    for name in langchain_rageval.__all__:
        value = getattr(langchain_rageval, name)
        assert not isinstance(value, types.ModuleType), name
        assert callable(value), name
    for name in loaded:
        parent, _, own = name.rpartition(".")
        source = ast.parse(Path(importlib.import_module(parent).__file__).read_text(encoding="utf-8"))
        functions = {node.name for node in source.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert own not in functions | set(langchain_rageval.__all__ if parent == NAME else ())


def test_every_public_name_is_declared_once_and_found_in_its_module():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    declared = [(node.module, alias.name) for node in stub.body[1:] for alias in node.names]
    for home, name in declared:
        value = getattr(importlib.import_module(home), name)
        assert getattr(langchain_rageval, name) is value
        assert name == "__version__" or value.__module__ == home
    assert sorted(name for _, name in declared) == dir(langchain_rageval)
    assert langchain_rageval.__all__ == [name for name in dir(langchain_rageval) if name != "__version__"]
    assert len(langchain_rageval.__all__) <= 96
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        langchain_rageval.evaluat  # noqa: B018


@pytest.mark.parametrize(
    ("name", "home"),
    [("JournalError", "langchain_rageval.errors"), ("load_labels", "langchain_rageval.report.labelling")],
)
def test_a_name_that_moved_still_imports(name, home):
    assert getattr(langchain_rageval, name) is getattr(importlib.import_module(home), name)
    assert name not in dir(langchain_rageval)


def test_every_builder_is_public_and_named_as_the_command_line_has_it():
    for name, home in metrics.BUILDERS.items():
        assert getattr(langchain_rageval, name) is getattr(importlib.import_module(home), name)
    for name, home in metrics.RANKINGS.items():
        assert getattr(langchain_rageval, f"{name}_at") is getattr(importlib.import_module(home), f"{name}_at")


def test_names_that_users_type_are_where_the_contract_says():
    from langchain_rageval.errors import JudgeOutputError
    from langchain_rageval.steps import Statements, Verdicts

    assert issubclass(JudgeOutputError, langchain_rageval.RagevalError)
    for name in ("presets", "ranking", "sinks"):
        assert isinstance(getattr(langchain_rageval, name), types.ModuleType)
    assert (Statements.__name__, Verdicts.__name__) == ("Statements", "Verdicts")


# Importing


def finished(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = {
    *("langchain_core", "langchain_openai", "langchain_community", "langchain_gigachat", "langchain_text_splitters"),
    *("langsmith", "matplotlib", "numpy", "openai", "pandas", "pyarrow", "pydantic", "ray", "razdel", "rich", "yaml"),
}


def test_importing_loads_nothing_else():
    loaded = finished(f"import sys, {NAME}; print(*sys.modules)").split()
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
    assert {name for name in loaded if name.startswith(NAME)} == {NAME}


def test_an_offline_run_loads_no_client_and_sets_no_logging_up():
    script = f"""
import logging, sys
from {NAME} import OfflineJudge, evaluate, faithfulness
evaluate([{{"question": "q", "answer": "a", "contexts": []}}], faithfulness(OfflineJudge()))
own = logging.getLogger("{NAME}")
assert (logging.root.handlers, own.handlers, own.level) == ([], [], 0)
print(*sys.modules)
"""
    loaded = {name.partition(".")[0] for name in finished(script).split()}
    assert loaded & {"langchain_core", "langchain_rageval"}
    assert not loaded & {"langchain_openai", "langchain_community", "langchain_gigachat", "openai", "pandas", "pyarrow"}


CLOSED = f"""
import os, socket, sys

class Closed:
    def read(self, *_):
        raise AssertionError("the environment was read")
    __getattr__ = __getitem__ = __contains__ = __iter__ = __len__ = read

def closed(*_, **__):
    raise AssertionError("a socket was opened")

os.environ, os.getenv, socket.socket.__init__ = Closed(), closed, closed
import {NAME}
print({NAME}.__version__, len(dir({NAME})))
"""


def test_importing_reads_no_environment_and_opens_no_socket():
    assert finished(CLOSED).split()[0] == langchain_rageval.__version__


# What is shipped


@pytest.fixture(scope="module")
def shipped() -> set[str]:
    """Paths in the wheel."""
    return {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}


def test_the_wheel_holds_types_prompts_and_the_demo(shipped):
    own = [
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".pyi", ".yaml", ".json", ".jsonl", *PAGE)
    ]
    assert set(own) <= shipped
    prompts = {f"{NAME}/prompts/{language}/{step}.yaml" for language in OWN for step in ("common", *OWN[language])}
    demo = {f"{NAME}/cli/demo_data/samples.jsonl", f"{NAME}/cli/demo_data/README.md"}
    assert prompts | demo | {f"{NAME}/py.typed"} <= shipped


def test_the_wheel_holds_nothing_else(shipped):
    assert {path for path in shipped if not path.startswith(f"{NAME}/")} == set()
    assert {Path(path).suffix for path in shipped} == {
        ".py",
        ".pyi",
        ".yaml",
        ".json",
        ".jsonl",
        ".md",
        ".typed",
        *PAGE,
    }


def repository() -> list[Path]:
    """The repository's texts: what is tracked or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [
        path for path in paths if path.suffix not in (".gz", ".parquet", ".png", ".sqlite", ".xlsx") and path.is_file()
    ]


FOREIGN = re.compile(
    r"(?<![\w.{}])/(?:work|root|home|tmp|Users|mnt|srv|opt)/\w|\w:\\\\Users"  # somebody's machine
    r"|(?:registry|artifactory|nexus|jfrog|devpi|mirror)[\w-]*\.[\w.-]+/|index-url|pypi\.(?!org/project)"
)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone knows what belongs to the repository")
def test_no_file_names_a_machine_or_a_registry():
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in repository()
        if path != Path(__file__)
        for match in FOREIGN.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert len(repository()) > 50
    assert found == []


@pytest.mark.parametrize(
    "text", [f"see /{'home'}/me/a", f"/{'root'}/x", "--index-url", "https://nexus.corp.example/simple"]
)
def test_such_a_name_would_be_seen(text):
    assert FOREIGN.search(text)


@each(("module", "path"), list(modules()), ids=lambda given: given if isinstance(given, str) else "")
def test_nothing_that_is_read_is_ever_run(module, path):
    nodes = nodes_of(path.read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert not called & {"eval", "exec", "yaml.load", "yaml.unsafe_load"}
    if not module.startswith("testing."):  # whose battery packs metrics up to see that users can
        assert not imported & {"pickle", "marshal", "shelve"}


def test_every_language_with_prompts_is_one_that_is_detected():
    from langchain_rageval.prompts.promptset import PromptSet, languages

    assert {"en", "ru"} < languages()
    for code in languages():
        assert language.detect_language(PromptSet.default(code).common.system) == code


def test_the_repository_holds_what_the_contract_lists():
    top = {name for name in os.listdir(ROOT) if not name.startswith(".")}
    assert {"pyproject.toml", "README.md", NAME, "tests", "docs", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= top
    assert (PACKAGE / "py.typed").is_file()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_citation_names_the_package_and_no_person():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert citation["title"] == "langchain-rageval"
    assert citation["authors"] == [{"name": "The langchain-rageval authors"}]
