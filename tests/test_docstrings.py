"""Every public name says what it takes, gives and raises."""

import ast
import dataclasses
import inspect
import re
import textwrap
from itertools import pairwise

import pytest
from pydantic import BaseModel

import langchain_rageval
from langchain_rageval import errors, testset

PACKAGE = langchain_rageval.__name__
PUBLIC = {name: getattr(langchain_rageval, name) for name in langchain_rageval.__all__ if name != "__version__"}
PUBLIC |= {f"testset.{name}": getattr(testset, name) for name in testset.__all__ if callable(getattr(testset, name))}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
RESULTS = ("Return ", "Yield ", "Embeddings ")  # a first line that names the result needs no section for it
LIKE = ("As `", "Like `")  # the same arguments as another function
ERRORS = {name for name, value in vars(errors).items() if inspect.isclass(value)}


def methods():
    """The public methods and properties that each public class defines itself, but for those that LangChain calls."""
    for name, kind in CLASSES.items():
        for own, value in vars(kind).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            foreign = any(own in vars(base) for base in kind.__mro__ if not base.__module__.startswith(PACKAGE))
            if not own.startswith("_") and inspect.isfunction(function) and not foreign:
                yield f"{name}.{own}", function


METHODS = dict(methods())


def documented(value):
    told = inspect.getdoc(value)
    assert told, "has no docstring"
    return told


def section(told, name):
    found = re.search(rf"^{name}:\n((?:[ ]+.*\n?|\n)+)", told, re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def items(told):
    return re.findall(r"^(\w+):", told, re.MULTILINE)


def taken(function):
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def raised(function):
    """The package's own errors that the body itself raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    return {ast.unparse(call.func).rpartition(".")[2] for call in calls} & ERRORS


@pytest.mark.parametrize("name", PUBLIC)
def test_it_begins_with_one_sentence(name):
    first, *rest = documented(PUBLIC[name]).split("\n")
    assert first[-1] in ".:", first
    assert len(first) <= 120
    assert not rest or rest[0] == ""


def unnamed(value):
    """What it takes and does not name, in Args or in a sentence."""
    told = documented(value)
    return [name for name in taken(value) if name not in items(section(told, "Args")) and f"`{name}`" not in told]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_names_what_it_takes_and_gives(name):
    told = documented(FUNCTIONS[name])
    if not told.startswith(LIKE):
        assert unnamed(FUNCTIONS[name]) == []
        assert (
            section(told, "Returns")
            or section(told, "Yields")
            or told.startswith((*RESULTS, "A ", "An ", "The ", "One ", "Whether "))
        )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_many_parameters_names_them(name):
    told = documented(METHODS[name])
    assert len(taken(METHODS[name])) < 3 or told.startswith(LIKE) or unnamed(METHODS[name]) == []


@pytest.mark.parametrize("name", FUNCTIONS | METHODS)
def test_nothing_is_described_that_is_not_there(name):
    parameters = inspect.signature((FUNCTIONS | METHODS)[name]).parameters
    assert set(items(section(documented((FUNCTIONS | METHODS)[name]), "Args"))) <= parameters.keys()


@pytest.mark.parametrize("name", FUNCTIONS | METHODS)
def test_what_is_raised_is_told(name):
    told = documented((FUNCTIONS | METHODS)[name])
    assert [error for error in raised((FUNCTIONS | METHODS)[name]) if error not in section(told, "Raises")] == []


def fields_of(kind):
    """Its fields, or what its own constructor takes."""
    if issubclass(kind, BaseModel):
        own = [name for name in kind.__annotations__ if name in kind.model_fields]
        return taken(kind.__init__) if "__init__" in vars(kind) else own
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [field.name for field in fields if field.init and not field.name.startswith("_")]


def told_below(kind):
    """The fields with a docstring of their own."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return [
        field.target.id
        for field, told in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(told, ast.Expr)
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_names_its_fields(name):
    told = documented(CLASSES[name])
    listed = [*items(section(told, "Args")), *items(section(told, "Attributes")), *told_below(CLASSES[name])]
    assert [field for field in fields_of(CLASSES[name]) if field not in listed and f"`{field}`" not in told] == []


def gap(a, b):
    """Raises.

    Args:
        a: one.
    """
    raise errors.ConfigError("never called")


def test_a_gap_would_be_seen():
    assert unnamed(gap) == ["b"]
    assert raised(gap) == {"ConfigError"}
    assert section(documented(gap), "Raises") == ""
