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
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaged import OWN

import langchain_rageval
from langchain_rageval import language, metrics

PACKAGE = Path(langchain_rageval.__file__).parent
ROOT = PACKAGE.parent
NAME = "langchain_rageval"
PAGE = (".html", ".css", ".js")

# Lowest first. A module imports from lower lines, and on its own line from what stands before it (a package also from
# itself). Under TYPE_CHECKING it may look along its whole line, both ways, but not up.
LAYERS = """
_version per_process cached errors drawing folding language markup sentences sqlite_file stems vocabulary schema
answers trec loading statistics ranking
run
contexts prompts criteria chains progress
judge
steps
graders
translation
metrics testset
report
offline_judging offline_writing offline models
grounds finished intake tasks rehearsal planning engine evaluation trust
integrations
sinks callbacks
testing cli
__main__ __init__
"""
PLACES = {part: (at, n) for at, line in enumerate(LAYERS.split("\n")) for n, part in enumerate(line.split())}


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name within the package, "__init__" for the package itself, and the file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts), path


def imports(source: str) -> Iterator[tuple[str, bool]]:
    """What a module imports of the package, also inside functions, and whether only under TYPE_CHECKING."""

    def found(node: ast.AST, typing: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from found(child, True)
            for child in node.orelse:
                yield from found(child, typing)
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, typing) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", typing) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from found(child, typing)

    for name, typing in found(ast.parse(source), False):
        if name.partition(".")[0] == NAME:
            yield name.removeprefix(f"{NAME}."), typing


def objection(module: str, imported: str, typing: bool) -> str | None:
    """Why a module must not import something, if it must not."""
    importer, part = module.partition(".")[0], imported.partition(".")[0]
    if importer == part or importer == "__init__":
        return None
    if part not in PLACES:
        return f"{module} imports {imported} through the package's own lazy names"
    (line, place), (lower, before) = PLACES[importer], PLACES[part]
    if lower < line or (lower == line and (typing or before < place)):
        return None
    return f"{module} imports {imported}, which is above it"


def test_every_module_has_its_layer():
    assert {name.partition(".")[0] for name, _ in modules()} == PLACES.keys()


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda given: given if isinstance(given, str) else "")
def test_no_module_imports_from_above(module, path):
    found = imports(path.read_text(encoding="utf-8"))
    assert [problem for name, typing in found if (problem := objection(module, name, typing))] == []


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("from langchain_rageval.schema import Row", True),
        ("from langchain_rageval.report.report import Report", False),
        ("def f():\n    from langchain_rageval.report.report import Report", False),
        ("import langchain_rageval.cli.main", False),
        ("from langchain_rageval import evaluate", False),
        ("if TYPE_CHECKING:\n    from langchain_rageval.contexts import Line", True),
        ("if TYPE_CHECKING:\n    from langchain_rageval.judge.judge import Judge", False),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from langchain_rageval.judge.judge import Judge", False),
    ],
)
def test_an_upward_import_would_be_seen(source, allowed):
    problems = [objection("prompts.layout", name, typing) for name, typing in imports(source)]
    assert [problem is None for problem in problems] == [allowed]


def test_metrics_do_not_know_each_other():
    modules = {**metrics.BUILDERS, **metrics.RANKINGS}
    for name, builder_module in modules.items():
        source = Path(importlib.import_module(builder_module).__file__).read_text(encoding="utf-8")
        others = set(modules.values()) - {builder_module}
        assert not {f"{NAME}.{imported}".rpartition(".")[0] for imported, _ in imports(source)} & others, name


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
        assert name == "__version__" or callable(value), name
    for name in loaded:
        parent, _, own = name.rpartition(".")
        source = ast.parse(Path(importlib.import_module(parent).__file__).read_text(encoding="utf-8"))
        functions = {node.name for node in source.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert own not in functions | set(langchain_rageval.__all__ if parent == NAME else ())


def test_every_lazy_name_is_found_where_the_table_says():
    for name, home in langchain_rageval._HOME_OF.items():
        value = getattr(importlib.import_module(f"{NAME}.{home}"), name)
        assert getattr(langchain_rageval, name) is value
        assert value.__module__ == f"{NAME}.{home}"
    assert set(dir(langchain_rageval)) == set(langchain_rageval.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        langchain_rageval.evaluat  # noqa: B018


def test_type_checkers_see_the_names_that_load_lazily():
    source = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    shown = {name for name, typing in imports(source) if typing}
    assert shown == {f"{home}.{name}" for name, home in langchain_rageval._HOME_OF.items()}
    assert source.count(" as ") == len(shown)  # re-exported by name, as PEP 484 asks


def test_every_builder_is_public_and_named_as_the_command_line_has_it():
    for name, home in metrics.BUILDERS.items():
        assert getattr(langchain_rageval, name) is getattr(importlib.import_module(home), name)
    for name, home in metrics.RANKINGS.items():
        assert getattr(langchain_rageval, f"{name}_at") is getattr(importlib.import_module(home), f"{name}_at")


def test_names_that_users_type_are_where_the_contract_says():
    from langchain_rageval.errors import JudgeOutputError
    from langchain_rageval.steps import Statements, Verdicts

    assert issubclass(JudgeOutputError, langchain_rageval.RagevalError)
    assert (Statements.__name__, Verdicts.__name__) == ("Statements", "Verdicts")


# Importing


def finished(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = (
    "langchain_core",
    "langchain_openai",
    "langchain_community",
    "langchain_gigachat",
    "langchain_text_splitters",
    "langsmith",
    "matplotlib",
    "numpy",
    "openai",
    "pandas",
    "pyarrow",
    "pydantic",
    "ray",
    "razdel",
    "rich",
    "yaml",
)


def test_importing_loads_nothing_else():
    loaded = finished(f"import sys, {NAME}; print(*sys.modules)").split()
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
    assert {name for name in loaded if name.startswith(NAME)} == {NAME, f"{NAME}._version"}


def test_an_offline_run_loads_no_client():
    script = f"""
import sys
from {NAME} import OfflineJudge, evaluate, faithfulness
evaluate([{{"question": "q", "answer": "a", "contexts": []}}], faithfulness(OfflineJudge()))
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


def test_importing_sets_no_logging_up():
    told = finished(
        f"import logging, {NAME}; {NAME}.evaluate; own = logging.getLogger('{NAME}');"
        "print(logging.root.handlers, own.handlers, own.level)"
    )
    assert told == "[] [] 0\n"


# What is shipped


@pytest.fixture(scope="module")
def shipped() -> set[str]:
    """Paths in the wheel."""
    return {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}


def test_the_wheel_holds_types_prompts_and_the_demo(shipped):
    own = [
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".yaml", ".jsonl", *PAGE)
    ]
    assert set(own) <= shipped
    prompts = {f"{NAME}/prompts/{language}/{step}.yaml" for language in OWN for step in ("common", *OWN[language])}
    demo = {f"{NAME}/demo_data/samples.jsonl", f"{NAME}/demo_data/README.md"}
    assert prompts | demo | {f"{NAME}/py.typed"} <= shipped


def test_the_wheel_holds_nothing_else(shipped):
    assert {path for path in shipped if not path.startswith(f"{NAME}/")} == set()
    assert {Path(path).suffix for path in shipped} == {".py", ".yaml", ".jsonl", ".md", ".typed", *PAGE}


def repository() -> list[Path]:
    """The repository's texts: what is tracked or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix not in (".gz", ".parquet", ".png") and path.is_file()]


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
        for match in FOREIGN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(repository()) > 50
    assert found == []


@pytest.mark.parametrize(
    "text", [f"see /{'home'}/me/a", f"/{'root'}/x", "--index-url", "https://nexus.corp.example/simple"]
)
def test_such_a_name_would_be_seen(text):
    assert FOREIGN.search(text)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda given: given if isinstance(given, str) else "")
def test_nothing_that_is_read_is_ever_run(module, path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
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
    assert {"pyproject.toml", "README.md", NAME, "tests", "LICENSE", "CHANGELOG.md"} <= top
    assert (PACKAGE / "py.typed").is_file()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
