"""Objects of the user by the place of their definition, such as `package.module:name`."""

from __future__ import annotations

import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from langchain_rageval.errors import ConfigError


def import_object(place: str, option: str) -> Any:
    """Return the object at a place.

    Args:
        place: "package.module:name" or "folder/module.py:name"; modules are also searched in the working directory.
        option: name of the option, for the error.

    Raises:
        ConfigError: if the module or the name cannot be imported.
    """
    module, _, name = place.partition(":")
    path = Path(module)
    search_in_folder(path.parent if path.suffix == ".py" else Path())
    try:
        return attrgetter(name)(import_module(path.stem if path.suffix == ".py" else module))
    except Exception as error:
        raise ConfigError(f"{option} {place} cannot be imported: {type(error).__name__}: {error}") from error


def search_in_folder(folder: Path) -> None:
    """Let modules be found in a folder; for an installed command, the working directory is not on the path."""
    if str(folder.resolve()) not in sys.path:
        sys.path.append(str(folder.resolve()))
