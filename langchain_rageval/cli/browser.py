"""Opening HTML pages in the default browser."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path

_ALWAYS_WITH_DISPLAY = ("darwin", "win32")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def add_no_open_option(parser: argparse.ArgumentParser) -> None:
    """Add `--no-open`."""
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def open_page(path: str) -> None:
    """Open an HTML file in the default browser."""
    webbrowser.open(Path(path).resolve().as_uri())


def open_if_possible(path: str, options: argparse.Namespace) -> None:
    """Open an HTML file, unless `--no-open` is set, stdout is not a terminal, or there is no display."""
    has_display = sys.platform in _ALWAYS_WITH_DISPLAY or any(map(os.environ.get, _DISPLAYS))
    if not options.no_open and sys.stdout.isatty() and has_display:
        open_page(path)
