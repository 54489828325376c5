"""Public functions, classes and methods with their defaults: a change of one is a change for users."""

import importlib
import inspect

from helpers.stored import assert_stored

import langchain_rageval

MODULES = ("ranking", "sinks", "testset", "testing", "steps")


def signatures(name, thing):
    """Yield the signature of a function, or of the methods of a class, without annotations."""
    if inspect.isclass(thing):
        for base in (one for one in thing.__mro__ if one.__module__.startswith("langchain_rageval")):
            for part, value in vars(base).items():
                if part == "__init__" or not part.startswith("_"):
                    yield from signatures(f"{name}.{part}", getattr(value, "__func__", value))
        for part, field in getattr(thing, "model_fields", {}).items():
            if not field.is_required() and field.default_factory is None:
                yield f"{name}.{part} = {field.default!r}"
        config = getattr(thing, "model_config", {})
        yield from (f"{name} {key} {value}" for key, value in config.items() if isinstance(value, bool))
    elif inspect.isfunction(thing):
        given = inspect.signature(thing).parameters.values()
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in given]
        yield f"{name}{inspect.Signature(bare)}"


def test_the_public_signatures_are_as_stored():
    lines = set()
    for module in ("", *MODULES):
        package = importlib.import_module(f"langchain_rageval.{module}".rstrip("."))
        for name in package.__all__:
            lines |= {line for line in signatures(name, getattr(package, name)) if " at 0x" not in line}
    assert len(lines) > len(langchain_rageval.__all__)
    assert_stored("signatures.txt", "\n".join(sorted(lines)) + "\n")
