"""The READMEs are short, say the same, and their code prints what they show; the gate runs what they tell."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from helpers.manual import PAGES, ROOT, blocks, sections, table

README, RUSSIAN = PAGES["README.md"], PAGES["README.ru.md"]
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for block in blocks(README, "sh") for line in block.splitlines()]


def parts(line):
    """Return the commands of a line without the path of the environment."""
    joined = " ".join(Path(word).name if "/bin/" in word else word for word in line)
    return [part.strip() for part in joined.split("&&")]


def test_the_tests_are_run_as_the_readme_says():
    (line,) = (parts(words) for words in COMMANDS if "pytest" in " ".join(words))
    assert line == ["python3 -m venv .venv", "pip install -e .[test]", "pytest -n 2 --dist loadfile"]
    gate = GATE.replace('"', "").replace("--quiet ", "")
    places = [re.search(rf"^\$bin/{re.escape(command)}(?: 2>&1.*)?$", gate, re.MULTILINE) for command in line[1:]]
    assert places[0].start() < places[1].start()
    assert 'python3 -m venv "$fresh/venv"' in GATE


def test_the_main_job_is_run_as_the_readme_says():
    (line,) = (parts(words) for words in COMMANDS if words[-1] == "demo")
    assert line == ["python3 -m venv .venv", ". activate", "pip install .[gigachat,report]", "rageval demo"]
    assert '"$environment/bin/rageval" demo' in GATE


def test_the_gate_builds_the_documentation_with_warnings_as_errors():
    assert 'sphinx-build" -W' in GATE


def test_the_gate_runs_the_smoke_suite_on_each_supported_python():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = [words[-1] for line in classifiers if "." in (words := line.split("Python :: "))[-1]]
    assert supported
    assert f"for version in {' '.join(supported)}; do" in GATE


@pytest.mark.parametrize(("text", "most"), [(README, 7_000), (RUSSIAN, 12_000)], ids=["English", "Russian"])
def test_a_readme_is_short(text, most):
    assert len(text.encode()) <= most  # a Cyrillic letter takes two bytes


def test_the_first_example_has_at_most_twelve_lines():
    for text in (README, RUSSIAN):
        assert len([line for line in blocks(text)[0].splitlines() if line.strip()]) <= 12
        assert len([line for line in blocks(text)[1].splitlines() if line.strip()]) <= 10


def test_both_readmes_say_the_same():
    assert len(sections(README)) == len(sections(RUSSIAN))
    assert [language for language, _ in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)] == [
        language for language, _ in re.findall(r"^```(\w+)\n(.*?)^```$", RUSSIAN, re.M | re.S)
    ]
    names = [re.findall(r"`(\w+)`", " ".join(row[1] for row in table(section_of(text)))) for text in (README, RUSSIAN)]
    assert names[0] == names[1]


def section_of(text):
    """Return the section with the table of metrics."""
    (section,) = (section for section in sections(text).values() if "`exact_match`" in section)
    return section
