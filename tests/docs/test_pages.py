"""Every page holds: code, commands, links, the READMEs, the reference and the drawing of the architecture."""

import ast
import importlib.util
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from helpers.each import each
from helpers.manual import BUILT, DOCS, PAGES, ROOT, TEXT, blocks, command_lines, page, prose, sections, table

import langchain_rageval
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
    russian = re.findall(r"^[\w-]+$", blocks(PAGES["docs/ru/index.md"], "{toctree}")[0], re.MULTILINE)
    listed |= {f"ru/{name}" for name in russian}
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


# The READMEs are short, say the same, and the gate runs what they tell


README, RUSSIAN = PAGES["README.md"], PAGES["README.ru.md"]
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
LINES = [shlex.split(line) for block in blocks(README, "sh") for line in block.splitlines()]


def parts(line):
    """Return the commands of a line without the path of the environment."""
    joined = " ".join(Path(word).name if "/bin/" in word else word for word in line)
    return [part.strip() for part in joined.split("&&")]


def test_the_tests_are_run_as_the_readme_says():
    (line,) = (parts(words) for words in LINES if "pytest" in " ".join(words))
    assert line == ["python3 -m venv .venv", "pip install -e .[test]", "pytest -n 2 --dist loadfile"]
    gate = GATE.replace('"', "").replace("--quiet ", "")
    places = [re.search(rf"^\$bin/{re.escape(command)}(?: 2>&1.*)?$", gate, re.MULTILINE) for command in line[1:]]
    assert places[0].start() < places[1].start()
    assert 'python3 -m venv "$fresh/venv"' in GATE


def test_the_main_job_is_run_as_the_readme_says():
    (line,) = (parts(words) for words in LINES if words[-1] == "demo")
    assert line == ["python3 -m venv .venv", ". activate", "pip install .[gigachat,report]", "rageval demo"]
    assert '"$environment/bin/rageval" demo' in GATE


def test_the_gate_builds_the_documentation_with_warnings_as_errors_and_tries_each_supported_python():
    assert 'sphinx-build" -W' in GATE
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = [words[-1] for line in classifiers if "." in (words := line.split("Python :: "))[-1]]
    assert supported
    assert f"for version in {' '.join(supported)}; do" in GATE


@each(("text", "most"), [(README, 7_000), (RUSSIAN, 12_000)], ids=["English", "Russian"])
def test_a_readme_is_short_and_its_first_example_has_at_most_twelve_lines(text, most):
    assert len(text.encode()) <= most  # a Cyrillic letter takes two bytes
    for block, lines in zip(blocks(text)[:2], (12, 10), strict=True):
        assert len([line for line in block.splitlines() if line.strip()]) <= lines


def test_both_readmes_say_the_same():
    assert len(sections(README)) == len(sections(RUSSIAN))
    languages = [re.findall(r"^```(\w+)\n.*?^```$", text, re.M | re.S) for text in (README, RUSSIAN)]
    assert languages[0] == languages[1]
    names = [re.findall(r"`(\w+)`", " ".join(row[1] for row in table(section_of(text)))) for text in (README, RUSSIAN)]
    assert names[0] == names[1]


def section_of(text):
    """Return the section with the table of metrics."""
    (section,) = (section for section in sections(text).values() if "`exact_match`" in section)
    return section


# The reference lists every public name and command


@pytest.fixture(scope="module")
def generated():
    """Module that writes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("generated_pages", DOCS / "_ext" / "generated_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_one_page(generated):
    names = [name for group in generated.public_names().values() for name in group]
    assert sorted(names) == sorted(set(langchain_rageval.__all__) - {"__version__"})


def test_every_name_of_a_public_module_has_an_entry(generated):
    for module in generated.MODULES:
        assert generated._exported(module)
        for name in generated._exported(module):
            assert generated._entry(f"{module}.{name}").startswith(".. auto")


def test_the_page_of_the_command_line_has_the_help_of_every_command(generated, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = generated.command_line()
    for name in load_commands():
        assert f"## rageval {name}\n\n```text\nusage: rageval {name} " in text


def test_the_drawing_of_the_architecture_names_every_layer():
    folders = {path.parent.name for path in (DOCS.parent / "langchain_rageval").glob("*/__init__.py")}
    drawing = (DOCS / "explanation" / "layers.svg").read_text(encoding="utf-8")
    assert set(re.findall(r'font-weight="600"[^>]*>(\w+)<', drawing)) == folders
    assert "](layers.svg)" in page("explanation/architecture")
