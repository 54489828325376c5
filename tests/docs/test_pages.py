"""Every page holds: its code runs and prints what is shown, its commands parse, its links lead somewhere."""

import ast
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from helpers.each import each
from helpers.manual import BUILT, PAGES, ROOT, TEXT, blocks, command_lines, prose

from langchain_rageval.cli.main import build_parser, load_commands, run

BLOCKS = {  # pages whose code test_examples.py and tests/integrations and tests/engines run, with the number of blocks
    "how-to": {"evaluate": 2, "cost-and-budget": 1, "test-set": 5, "rubric": 1, "qualify-a-judge": 2, "gigachat": 1}
    | {"vllm": 3, "chains": 5, "production": 2, "pytest": 1, "ray": 1, "arrow": 5, "dashboards": 2},
    "reference": {"metrics": 2, "claim-metrics": 1, "ranking-metrics": 1},
}
TESTED_ELSEWHERE = {f"{folder}/{name}": number for folder, pages in BLOCKS.items() for name, number in pages.items()}
TESTED_AS_A_WHOLE = {"how-to/own-metric", "how-to/run-your-chain"}  # tests/metrics, tests/evaluation
RUN_HERE = {
    name: text
    for name, text in PAGES.items()
    if blocks(text)
    and name.removeprefix("docs/").removesuffix(".md") not in TESTED_ELSEWHERE.keys() | TESTED_AS_A_WHOLE
}
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


SOME = {"docs/how-to/own-metric.md"} & RUN_HERE.keys() or set(list(RUN_HERE)[:3])


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.gate) for name in RUN_HERE]
)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    names = {}
    for code, shown in EXAMPLE.findall(RUN_HERE[name]):
        exec(compile(code, name, "exec"), names)
        printed = capsys.readouterr().out
        assert not shown or printed == shown


def test_pages_that_other_tests_run_have_the_blocks_which_these_run():
    assert {name: len(blocks(PAGES[f"docs/{name}.md"])) for name in TESTED_ELSEWHERE} == TESTED_ELSEWHERE


@each("name", [name for name in PAGES if blocks(PAGES[name])])
def test_the_code_of_a_page_is_python(name):
    for block in blocks(PAGES[name]):
        ast.parse(block)


COMMANDS = [(name, words) for name, text in PAGES.items() for words in command_lines(text)]
RAGEVAL = [(name, words[1:]) for name, words in COMMANDS if Path(words[0]).name == "rageval"]


@each(("name", "words"), RAGEVAL, ids=[f"{name}: {' '.join(words)}" for name, words in RAGEVAL])
def test_every_rageval_command_parses(name, words):
    assert callable(build_parser().parse_args(words).run)


def test_every_command_of_the_program_is_shown():
    assert {words[0] for _, words in RAGEVAL} == load_commands().keys()


OTHER_OPTIONS = {"--dist", "--upgrade"}


def test_every_option_in_the_text_exists(capsys):
    for command in load_commands():
        with pytest.raises(SystemExit):
            run([command, "--help-all"])
    helps = capsys.readouterr().out
    named = set(re.findall(r"`?(--[a-z][a-z-]*)", prose(TEXT))) - OTHER_OPTIONS
    assert [option for option in sorted(named) if option not in helps] == []


def test_every_extra_in_the_text_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for extras in re.findall(r"(?:rageval|\.)\[([\w,]+)\]", TEXT) for extra in extras.split(",")}
    assert {"gigachat", "test", "report"} <= named <= extras.keys()


def slug(heading):
    """Return the anchor that GitHub and the site give a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


LINKS = [(name, target) for name, text in PAGES.items() for target in re.findall(r"\]\(([^)\s]+)\)", prose(text))]


@each(("name", "target"), LINKS, ids=[f"{name}: {target}" for name, target in LINKS])
def test_a_link_leads_somewhere(name, target):
    if target.startswith("http"):
        return
    path, _, anchor = target.partition("#")
    file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
    linked = file.relative_to(ROOT).as_posix()
    assert file.exists()
    assert not linked.removeprefix("docs/").startswith(BUILT), "only a build of the site has this file"
    if anchor:
        assert anchor in {slug(heading) for heading in re.findall(r"^#+ (.*)$", PAGES[linked], re.MULTILINE)}


def test_addresses_in_the_text_are_known():
    hosts = set(re.findall(r"https?://([^/\s)`\"'}]+)", TEXT))
    assert hosts <= {"localhost:8000", "localhost:8001"}


def test_every_page_is_in_a_table_of_contents():
    listed = {"index", *re.findall(r"^[\w/*-]+$", "\n".join(blocks(PAGES["docs/index.md"], "{toctree}")), re.MULTILINE)}
    listed |= {
        f"ru/{name}" for name in re.findall(r"^[\w-]+$", blocks(PAGES["docs/ru/index.md"], "{toctree}")[0], re.M)
    }
    pages = [name.removeprefix("docs/").removesuffix(".md") for name in PAGES if name.startswith("docs/")]
    assert [name for name in pages if not any(fnmatch(name, entry) for entry in listed)] == []


def test_no_page_is_a_stub():
    lists = ("index.md", "changelog.md")
    assert [name for name, text in PAGES.items() if len(text) < 400 and not name.endswith(lists)] == []


def test_the_page_about_versions_says_what_each_dependency_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"`([\w-]+)`", PAGES["docs/project/versions.md"])
    packages = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}
    assert packages | project["optional-dependencies"].keys() <= set(named)


def test_the_search_has_words_for_pages_that_exist():
    script = (ROOT / "docs" / "_static" / "scorer.js").read_text(encoding="utf-8")
    pages = re.findall(r'^  "([^"]+)": "', script, re.MULTILINE)
    assert len(pages) > 30
    files = [f"{page}.md" for page in pages]
    assert [file for file in files if f"docs/{file}" not in PAGES and not file.startswith(BUILT)] == []
