"""Check that a file belongs to a folder, with symbolic links resolved."""

from __future__ import annotations

import os
from pathlib import Path


def leaves_folder(path: Path, folder: Path) -> bool:
    """Return True if a path within a folder leads out of it through a symbolic link.

    Args:
        path: path of a file or folder that starts with `folder`; it need not exist.
        folder: path of the folder, which may be a symbolic link itself.
    """
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
