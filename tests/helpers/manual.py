"""The documentation as text: both READMEs and the pages of `docs/`, with their sections, blocks and commands."""

import re
import shlex
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILT = ("_build", "reference/api/", "reference/cli.md", "tutorials/notebooks/")  # written by a build of the site
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _pages():
    files = [ROOT / "README.md", ROOT / "README.ru.md", *sorted(DOCS.rglob("*.md"))]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    return {
        name: file.read_text(encoding="utf-8")
        for name, file in zip(names, files, strict=True)
        if not name.removeprefix("docs/").startswith(BUILT)
    }


PAGES = _pages()
TEXT = "\n".join(PAGES.values())


def page(name):
    """Return the text of a page by its path in `docs/`, without the suffix."""
    return PAGES[f"docs/{name}.md"]


def blocks(text, language="python"):
    """Return the fenced blocks of a language, in order."""
    return [block for name, block in FENCE.findall(text) if name == language]


def sections(text):
    """Return the text of each section by heading, without its subsections."""
    headings = list(re.finditer(r"^#+ (.*)$", FENCE.sub(lambda fence: re.sub(r"(?m)^#", "·", fence[0]), text), re.M))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {heading[1]: text[heading.end() : end] for heading, end in zip(headings, ends, strict=True)}


def prose(text):
    """Return a text without its fenced blocks."""
    return FENCE.sub("", text)


def table(text):
    """Return the cells of the first table of a text, row by row, without the heading."""
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def command_lines(text):
    """Return the shell commands of a text as lists of words: blocks, `rageval` in backticks, and steps of CI files."""
    lines = [line for block in blocks(text, "sh") for line in block.replace("\\\n", " ").splitlines()]
    lines += [code for code in re.findall(r"`(rageval [\w-]+ [^`]*)`", prose(text)) if "…" not in code]
    for block in blocks(text, "yaml"):
        lines += [line for script in _scripts(yaml.safe_load(block)) for line in script.splitlines()]
    return [words for line in lines for words in _parts(shlex.split(line, comments=True)) if words]


def _parts(words):
    """Split a line at `&&`, pipes and redirections."""
    parts = [[]]
    for word in words:
        if word in ("&&", "|", "||"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part[: next((n for n, word in enumerate(part) if word.startswith(">")), None)] for part in parts]


def _scripts(value):
    """Yield the scripts of a CI configuration: texts under `run` and `script`."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("run", "script"):
                yield from [part] if isinstance(part, str) else part
            else:
                yield from _scripts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _scripts(part)


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load_benchmark(name: str) -> ModuleType:
    """Import a benchmark from its file; other packages install a top-level module `benchmarks`."""
    spec = spec_from_file_location(f"rageval_{name}", BENCHMARKS / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(BENCHMARKS))  # as for a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module
