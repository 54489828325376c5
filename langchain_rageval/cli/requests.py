"""`rageval requests FILE`: write the requests of an evaluation to a file, for models without network."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.html import pluralize
from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval.cli.arguments import (
    add_input_options,
    add_judge_options,
    add_quiet_option,
    check_writable,
)
from langchain_rageval.cli.inputs import load_inputs
from langchain_rageval.cli.messages import write_message
from langchain_rageval.cli.recorded_command import COMMAND, record_command
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.journal import Journal

if TYPE_CHECKING:
    from langchain_rageval.report.report import Report
    from langchain_rageval.run.batch.wave_files import WaveFile

_NO_SERVER = "http://localhost:8000/v1"
_KEY = "OPENAI_API_KEY"


def add_to(commands: Any) -> None:
    """Add the command `rageval requests` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "requests", help="write the requests of an evaluation to a file that `vllm run-batch` reads; calls no model"
    )
    parser.set_defaults(run=run)
    add_input_options(parser)
    add_judge_options(parser)
    parser.add_argument(
        "--out",
        default="wave-1.jsonl",
        metavar="FILE",
        help="file for the requests, in OpenAI's batch format (default: %(default)s)",
    )
    parser.add_argument(
        "--journal",
        default="run.db",
        metavar="FILE",
        help="SQLite file that remembers the settings, the replies and the scores, for `rageval replies` "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="write no request if a sample lacks a field that a metric reads"
    )
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Write the first wave of requests, or the next one if the journal has replies."""
    from langchain_rageval.run.batch.wave_files import WaveFile

    check_writable("--out", options.out, options.file)
    _check_journal(options)
    result = score_as_far_as_possible(options, Path(options.out))
    record_command(options)
    if not isinstance(result, WaveFile):
        write_message("no request is needed: run `rageval evaluate` with the same options")
    elif not options.quiet:
        write_message(describe_wave(result, options.journal))
    return 0


def _check_journal(options: argparse.Namespace) -> None:
    """Check that the journal does not hold the requests of another run.

    Raises:
        ConfigError: if it does.
    """
    if options.words is None or not Path(options.journal).is_file():
        return
    with closing(Journal(options.journal)) as journal:
        recorded = journal.get(COMMAND)
    words = json.loads(recorded or "{}").get("words", [])
    if words[:1] == ["requests"] and _settings(words) != _settings(
        [redact_secrets(word, word) for word in options.words]
    ):
        raise ConfigError(
            f"{options.journal} holds the requests of another run, `rageval {' '.join(words)}`; name another file with "
            "--journal"
        )


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command that its requests depend on."""
    parser = argparse.ArgumentParser(prog="rageval")
    add_to(parser.add_subparsers())
    settings = vars(parser.parse_args(words))
    return {name: value for name, value in settings.items() if name not in ("journal", "out", "quiet", "run")}


def score_as_far_as_possible(options: argparse.Namespace, path: Path | None) -> Report | WaveFile:
    """Return the report if all replies are in the journal, otherwise the file of the next requests.

    Args:
        options: options of `rageval requests`.
        path: path of the file for the next requests; None for that of the last wave with the next number.
    """
    from langchain_rageval.evaluation.from_files import evaluate_from_files

    # No server is called: its address and its key are not needed.
    options.base_url = options.base_url or (_NO_SERVER if options.judge.startswith("vllm:") else None)
    with _any_key():
        samples, metrics = load_inputs(options)
    with closing(Journal(options.journal)) as journal:
        return evaluate_from_files(samples, metrics, journal, path, strict=options.strict)


@contextmanager
def _any_key() -> Iterator[None]:
    """Let clients be built without a key."""
    is_missing = _KEY not in os.environ
    os.environ.setdefault(_KEY, "unused")
    try:
        yield
    finally:
        if is_missing:
            del os.environ[_KEY]


def describe_wave(wave: WaveFile, journal: str) -> str:
    """Return the number of requests in a file, and what to do with it."""
    outputs = [str(Path(path).with_suffix(".out.jsonl")) for path in wave.paths]
    which = "it" if len(outputs) == 1 else "each with its model"
    return (
        f"wave {wave.number}: {pluralize(len(wave.owners), 'request')} written to {wave.named}. Answer {which}, as "
        f"with `vllm run-batch -i {wave.paths[0]} -o {outputs[0]} --model MODEL`, then run `rageval replies "
        f"{' '.join(outputs)} --journal {journal}`"
    )
