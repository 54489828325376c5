"""`rageval review TESTSET`: write and open the page on which a person looks through a test set."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from langchain_rageval.cli.arguments import check_writable
from langchain_rageval.cli.browser import add_no_open_option, open_if_possible


def add_to(commands: Any) -> None:
    """Add the command `rageval review` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "review", help="look through a test set in a browser: keep, edit or drop each row"
    )
    parser.set_defaults(run=run)
    parser.add_argument("testset", help="test set written by `rageval generate`")
    parser.add_argument("--html", metavar="FILE", help="page to write (default: TESTSET with the ending .html)")
    parser.add_argument(
        "--language",
        choices=("auto", "en", "ru"),
        default="auto",
        help="language of the page (default: the language of most questions)",
    )
    add_no_open_option(parser)


def run(options: argparse.Namespace) -> int:
    """Write the page, explain the next step, and open the page."""
    from rich.markup import escape

    from langchain_rageval._internal.printable import printable
    from langchain_rageval.cli.tables import console
    from langchain_rageval.testset.review_page import reviewed_name
    from langchain_rageval.testset.testset import Testset

    page = options.html or str(Path(options.testset).with_suffix(".html"))
    check_writable("--html", page, options.testset)
    testset = Testset.load(options.testset)
    testset.to_html(page, language=options.language)
    rows = f"{len(testset)} row{'' if len(testset) == 1 else 's'}"
    message = f"{rows} to review, written to {page}: open it in a browser; it saves {reviewed_name(page)}, a test set"
    console().print(escape(printable(message)), soft_wrap=True)
    open_if_possible(page, options)
    return 0
