"""Entry point of `rageval`: parses the command line, runs the command and returns the exit code.

Exit codes: 0 for success; 1 if a threshold or requirement is not met; 2 for wrong usage, invalid input, or if nothing
could be scored; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval._version import __version__
from langchain_rageval.cli.commands import build_parser, named_options
from langchain_rageval.cli.terminal import printable_warnings, write_message
from langchain_rageval.errors import MAY_BE_MEANT, BelowThreshold, RagevalError


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `rageval`.

    Args:
        arguments: words of the command line after the program name; None takes those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(whole=any(word.startswith("--help-") for word in words)).parse_args(words)
    options.words = words
    options.named = named_options(options.words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the encoding of a pipe may lack characters of a sample
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        raw = _MayClose(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.stdout.encoding, "replace", line_buffering=raw.isatty()
        )
    try:
        with printable_warnings():
            options.run(options)
        sys.stdout.flush()
        return 0
    except BelowThreshold as error:
        meant = [code for code in error.codes if code in MAY_BE_MEANT]
        condition = f"if {' and '.join(meant)} {'is' if len(meant) == 1 else 'are'} meant to be so in this application"
        return _report_error(1, f"{error}; {condition}, add --allow {','.join(meant)}" if meant else str(error))
    except RagevalError as error:
        from langchain_rageval.cli.report_view import hint_for  # takes time that only failures may cost

        return _report_error(2, f"{error}{hint_for(getattr(error, 'failure', None))}")
    except KeyboardInterrupt:
        return _report_error(130, "interrupted")
    except Exception as error:
        return _report_error(2, f"unexpected {type(error).__name__}: {error}")


class _MayClose(io.FileIO):
    """Raw stream of a file descriptor that drops what is written after its reader has gone, as `head` does.

    The command goes on: files are still written, and gates still decide the exit code.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def _parser(*, whole: bool = False) -> argparse.ArgumentParser:
    parser = build_parser(
        whole=whole,
        usage="rageval [--help] [--help-all] [--version] COMMAND ...",
        description="Evaluate RAG systems with an LLM judge.",
        epilog="To start: rageval demo. Options and examples: rageval COMMAND --help. All commands: rageval --help-all",
    )
    parser.add_argument("--version", action="version", version=f"rageval {__version__}")
    return parser


def _report_error(code: int, message: str) -> int:
    write_message(redact_secrets(message, os.environ))
    return code
