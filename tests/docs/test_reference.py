"""The reference lists every public name and command; the drawing of the architecture names every layer."""

import importlib.util
import re

import pytest
from helpers.manual import DOCS, page

import langchain_rageval
from langchain_rageval.cli.main import load_commands


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
