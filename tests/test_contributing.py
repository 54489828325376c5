"""CONTRIBUTING.md names paths and layers that exist, CHANGELOG.md names importable names, and the commit hooks work."""

import importlib
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml
from helpers.each import each

import langchain_rageval

ROOT = Path(__file__).parents[1]
PACKAGE = Path(langchain_rageval.__file__).parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
CODE_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
HOOKS = {
    hook["id"]: hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repository["hooks"]
}


def paths(text):
    """Return the words in backticks that are paths: they hold a slash or end with a file name's extension."""
    words = {word for quoted in re.findall(r"`([^`\n]+)`", text) for word in quoted.split()}
    return sorted(word for word in words if re.fullmatch(r"[\w.<>/-]+(?:/|\.(?:py|pyi|md|yaml|toml))|\.ci/run", word))


def exists(path):
    """Return True if a path exists in the package or the repository; <placeholders> stand for any name."""
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return any(any(folder.glob(pattern)) for folder in (PACKAGE, ROOT))


@each("path", paths(GUIDE))
def test_every_path_in_the_guide_exists(path):
    assert exists(path)


def test_paths_are_recognized_and_missing_ones_detected():
    text = "`run/no_such_file.py`, `metrics/<name>.py`, `Step`, `reduce`, `pip install`, `tests/helpers/`, `.ci/run`"
    assert paths(text) == [".ci/run", "metrics/<name>.py", "run/no_such_file.py", "tests/helpers/"]
    assert [path for path in paths(text) if not exists(path)] == ["run/no_such_file.py"]
    assert len(paths(GUIDE)) > 50


def test_the_commands_of_the_guide_name_paths_that_exist():
    words = [word for block in CODE_BLOCKS for line in block.splitlines() for word in shlex.split(line, comments=True)]
    assert [word for word in words if word.startswith("tests/") and not exists(word)] == []
    assert ".ci/run" in words


def test_the_guide_lists_the_layers_in_the_order_that_the_tests_enforce():
    enforced = (ROOT / "tests" / "test_package.py").read_text(encoding="utf-8").partition("\nLAYERS = (")[2]
    listed = re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE)
    assert listed == re.findall(r'"(\w+)"', enforced.partition("\n)\n")[0])


def test_the_guide_is_short():
    assert len(GUIDE.encode()) <= 13_000


REMOVED = re.findall(r"^\| (`\w.*`) \| `([\w.]+)` \|$", CHANGES, re.MULTILINE)


@each(("names", "module"), REMOVED, ids=[module for _, module in REMOVED])
def test_names_that_left_the_root_are_where_the_changelog_says(names, module):
    home = importlib.import_module(module)
    for name in re.findall(r"`(\w+)`", names):
        assert hasattr(home, name), name
        assert name not in langchain_rageval.__all__


def test_the_changelog_lists_such_names():
    assert len(REMOVED) > 10


@pytest.mark.gate
@pytest.mark.parametrize("hook", HOOKS.values(), ids=list(HOOKS))
def test_the_command_of_every_hook_exists(hook):
    assert hook["language"] == "system"
    command = shlex.split(hook["entry"])[0]
    assert shutil.which(command) or shutil.which(command, path=sysconfig.get_path("scripts"))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Add a metric\n", 0),
        ("x" * 72 + "\n\nA body of any length: " + "y" * 200 + "\n", 0),
        ("x" * 73 + "\n", 1),
        ("\nNo subject\n", 1),
    ],
    ids=["short", "72 characters and a body", "73 characters", "empty subject"],
)
def test_a_commit_subject_has_at_most_72_characters(message, code, tmp_path):
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    command = [*shlex.split(HOOKS["commit-subject"]["entry"]), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr == ("the first line of a commit message has 1 to 72 characters\n" if code else "")
