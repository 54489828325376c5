"""Configuration of the documentation: `sphinx-build -W -b html docs docs/_build`. Builds without a network."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import docstrings
import generated_pages
import search_language

import langchain_rageval

project = "langchain-rageval"
author = copyright = "the langchain-rageval authors"
release = version = langchain_rageval.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "jupyter_execute", ".jupyter_cache"]
suppress_warnings = ["mystnb.unknown_mime_type"]

repository = "<URL of the repository>"  # what pages and their installation commands name; `-D repository=...` sets it

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_title = "langchain-rageval"
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
html_show_sphinx = html_use_index = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 120

napoleon_use_ivar = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88


def write_inline_formula(translator, node) -> None:
    """Write a formula as MathML, which browsers render without a script."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_formula(translator, node) -> None:
    """Write a formula on a line of its own as MathML."""
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    raise nodes.SkipNode


def name_language(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """State the language of a Russian page, for screen readers and hyphenation."""
    if page.startswith("ru/"):
        context["language"] = "ru"


def setup(app: Sphinx) -> None:
    """Register what the extensions lack."""
    app.add_html_math_renderer("mathml", (write_inline_formula, None), (write_formula, None))
    app.connect("autodoc-process-docstring", docstrings.translate_docstring, priority=100)
    app.add_config_value("repository", "", "env", [str])
    app.add_search_language(search_language.SearchEnglishAndRussian)
    app.connect("source-read", generated_pages.link_sources)
    app.connect("html-page-context", name_language)
    generated_pages.write_pages(Path(app.srcdir))
    app.connect("build-finished", generated_pages.write_llms_txt)
