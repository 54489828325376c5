"""`rageval`: the commands, and how they end.

0: done. 1: a gate was not passed. 2: usage, bad input, or no score could be had. 130: interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from langchain_rageval._version import __version__
from langchain_rageval.cli import (
    agreement,
    compare,
    demo,
    evaluate,
    generate,
    label,
    leaderboard,
    metrics,
    plan,
    qualify,
    report,
    resume,
    rubric_study,
)
from langchain_rageval.cli.help_texts import add_examples
from langchain_rageval.cli.printable import printable
from langchain_rageval.errors import BelowThreshold, RagevalError

COMMANDS = (
    evaluate,
    resume,
    plan,
    report,
    compare,
    leaderboard,
    rubric_study,
    label,
    agreement,
    qualify,
    generate,
    metrics,
    demo,
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: words after the program's name; by default those it was started with.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    options.words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe's encoding may lack what a sample holds
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BelowThreshold as error:
        return _ended(1, str(error))
    except RagevalError as error:
        return _ended(2, str(error))
    except KeyboardInterrupt:
        return _ended(130, "interrupted")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return 0
    except Exception as error:
        return _ended(2, f"unexpected {type(error).__name__}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rageval",
        description="Judge RAG systems with the model you can afford.",
        epilog="To begin with: rageval demo. For examples of a command: rageval COMMAND --help.",
    )
    parser.add_argument("--version", action="version", version=f"rageval {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    for name, made in commands.choices.items():
        add_examples(made, name)
    return parser


def _ended(code: int, message: str) -> int:
    sys.stderr.write(f"rageval: {printable(message)}\n")
    return code
