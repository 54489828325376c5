"""Public names document their parameters, results and errors."""

import ast
import dataclasses
import inspect
import re
import textwrap
from itertools import pairwise

from helpers.each import each
from pydantic import BaseModel

import langchain_rageval
from langchain_rageval import errors, testset

PACKAGE = langchain_rageval.__name__
PUBLIC = {name: getattr(langchain_rageval, name) for name in langchain_rageval.__all__ if name != "__version__"}
PUBLIC |= {f"testset.{name}": getattr(testset, name) for name in testset.__all__ if callable(getattr(testset, name))}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
RESULTS = ("Return ", "Yield ", "Embeddings ", "A ", "An ", "The ", "One ", "Whether ")  # need no Returns section
LIKE = ("As `", "Like `")  # the same arguments as another function
ERRORS = {name for name, value in vars(errors).items() if inspect.isclass(value)}


def methods():
    """Yield the public methods and properties of public classes, except those that override LangChain's."""
    for name, kind in CLASSES.items():
        for own, value in vars(kind).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            foreign = any(own in vars(base) for base in kind.__mro__ if not base.__module__.startswith(PACKAGE))
            if not own.startswith("_") and inspect.isfunction(function) and not foreign:
                yield f"{name}.{own}", function


METHODS = dict(methods())


def documented(value):
    doc = inspect.getdoc(value)
    assert doc, "has no docstring"
    return doc


def section(doc, name):
    found = re.search(rf"^{name}:\n((?:[ ]+.*\n?|\n)+)", doc, re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def items(doc):
    return re.findall(r"^(\w+):", doc, re.MULTILINE)


def parameters_of(function):
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def raised(function):
    """Return the names of the package's errors that the body of a function raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    return {ast.unparse(call.func).rpartition(".")[2] for call in calls} & ERRORS


@each("name", PUBLIC)
def test_a_docstring_begins_with_one_sentence(name):
    first, *rest = documented(PUBLIC[name]).split("\n")
    assert first[-1] in ".:", first
    assert len(first) <= 120
    assert not rest or rest[0] == ""


def unnamed(value):
    """Return the parameters that are neither in Args nor in backquotes."""
    doc = documented(value)
    return [name for name in parameters_of(value) if name not in items(section(doc, "Args")) and f"`{name}`" not in doc]


@each("name", FUNCTIONS)
def test_a_function_documents_parameters_and_result(name):
    doc = documented(FUNCTIONS[name])
    if not doc.startswith(LIKE):
        assert unnamed(FUNCTIONS[name]) == []
        assert section(doc, "Returns") or section(doc, "Yields") or doc.startswith(RESULTS)


@each("name", METHODS)
def test_a_method_with_many_parameters_documents_them(name):
    doc = documented(METHODS[name])
    assert len(parameters_of(METHODS[name])) < 3 or doc.startswith(LIKE) or unnamed(METHODS[name]) == []


@each("name", FUNCTIONS | METHODS)
def test_only_existing_parameters_and_all_raised_errors_are_documented(name):
    function = (FUNCTIONS | METHODS)[name]
    doc = documented(function)
    assert set(items(section(doc, "Args"))) <= inspect.signature(function).parameters.keys()
    assert [error for error in raised(function) if error not in section(doc, "Raises")] == []


def fields_of(kind):
    """Return the fields of a class, or the parameters of its own constructor."""
    if issubclass(kind, BaseModel):
        own = [name for name in kind.__annotations__ if name in kind.model_fields]
        return parameters_of(kind.__init__) if "__init__" in vars(kind) else own
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [field.name for field in fields if field.init and not field.name.startswith("_")]


def documented_below(kind):
    """Return the fields that have a docstring below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return [
        field.target.id
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    ]


@each("name", CLASSES)
def test_a_class_documents_its_fields(name):
    doc = documented(CLASSES[name])
    listed = [*items(section(doc, "Args")), *items(section(doc, "Attributes")), *documented_below(CLASSES[name])]
    assert [field for field in fields_of(CLASSES[name]) if field not in listed and f"`{field}`" not in doc] == []


def gap(a, b):
    """Raises.

    Args:
        a: one.
    """
    raise errors.ConfigError("never called")


def test_missing_documentation_is_found():
    assert unnamed(gap) == ["b"]
    assert raised(gap) == {"ConfigError"}
    assert section(documented(gap), "Raises") == ""
