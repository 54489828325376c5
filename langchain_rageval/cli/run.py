"""`rageval run MODULE:CHAIN TESTSET`: ask a RAG chain the questions of a test set."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.html import pluralize
from langchain_rageval.cli.arguments import PIPE, add_quiet_option, check_writable, parse_pairs
from langchain_rageval.cli.imported_object import import_object
from langchain_rageval.cli.inputs import notice_for
from langchain_rageval.cli.json_output import json_stdout
from langchain_rageval.cli.messages import write_message
from langchain_rageval.cli.recorded_command import record_command
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Sample


def add_to(commands: Any) -> None:
    """Add the command `rageval run` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser("run", help="ask a RAG chain the questions of a test set")
    parser.set_defaults(run=run)
    parser.add_argument(
        "chain",
        metavar="MODULE:CHAIN",
        help="chain, agent, graph, retriever or function, as package.module:name or folder/module.py:name; a function "
        "without parameters is called to build it",
    )
    parser.add_argument(
        "file", metavar="TESTSET", help="test set from `rageval generate`, or samples as for `rageval evaluate`"
    )
    parser.add_argument(
        "--out",
        default="answers.jsonl",
        metavar="FILE",
        help="write the samples with their answers as JSON lines; - writes them to stdout (default: %(default)s)",
    )
    parser.add_argument(
        "--fields",
        default="",
        metavar="FIELD=NAME,...",
        help="names or dotted paths of the fields in a file of samples, such as question=q",
    )
    parser.add_argument(
        "--max-concurrency", type=int, default=8, help="maximum number of questions at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=float, help="timeout of a question in seconds (default: as long as the chain takes)"
    )
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="SQLite file for the answers; after a crash or Ctrl-C `rageval resume FILE` asks the rest, after failures "
        "the failed questions",
    )
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Check all options before the first call, then ask every question, write the answers and show their number."""
    from langchain_rageval.run.answering import Answering

    check_writable("--out", options.out, options.file)
    chain, samples = _load_chain(options.chain), _load_questions(options)
    answering = Answering(
        samples,
        chain,
        {
            "max_concurrency": options.max_concurrency,
            "timeout": options.timeout,
            "journal": options.journal,
            "progress": not options.quiet,
        },
    )
    record_command(options)
    try:
        answering.run()
    finally:
        answered = answering.answered
        if answered:
            _write(answered, options.out)
            _show(answered, len(samples), options.out)
    _check_not_all_failed(answered)
    return 0


def _load_chain(place: str) -> Any:
    if not all(place.partition(":")):
        raise ConfigError(f"name the chain as MODULE:CHAIN, such as app:chain; got {place}")
    chain = import_object(place, "the chain")
    is_builder = inspect.isfunction(chain) and not inspect.signature(chain).parameters
    return chain() if is_builder else chain


def _load_questions(options: argparse.Namespace) -> Sequence[Sample]:
    from langchain_rageval.data.loading import load_with_notice
    from langchain_rageval.testset.testset import Testset, is_testset_file

    if is_testset_file(options.file):
        samples: Sequence[Sample] = Testset.load(options.file).to_samples()
    else:
        fields = parse_pairs(options.fields.split(","), "--fields")
        samples = list(load_with_notice(options.file, fields, notice=notice_for(options)))
    if not samples:
        raise ConfigError(f"{options.file} contains no questions")
    return samples


def _write(answered: Sequence[Sample], out: str) -> None:
    text = "".join(f"{sample.model_dump_json(fallback=str)}\n" for sample in answered)
    if out == PIPE:
        json_stdout().write(text)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}; choose another path") from None


def _show(answered: Sequence[Sample], total: int, out: str) -> None:
    """Print the number of answers, and warn of questions on which the chain failed."""
    from langchain_rageval.cli.tables import console

    failed = _failed(answered)
    n_with_contexts = sum(sample.contexts is not None for sample in answered)
    asked = pluralize(total, "question") if len(answered) == total else f"{len(answered)} of {total} questions"
    counts = f"{asked} asked: {len(answered) - len(failed)} without an error, "
    stream = console(stderr=out == PIPE)
    stream.print(f"{counts}{n_with_contexts} with contexts", soft_wrap=True)
    if out != PIPE:
        stream.print(f"Answers written to {out}", markup=False, soft_wrap=True)
    if failed and len(failed) < len(answered):
        write_message(f"failed questions: {len(failed)}; first error: {_describe(failed[0])}")


def _check_not_all_failed(answered: Sequence[Sample]) -> None:
    failed = _failed(answered)
    if len(failed) == len(answered):
        raise ConfigError(f"every question failed ({len(failed)}); first error: {_describe(failed[0])}")


def _failed(answered: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in answered if "error" in sample.metadata]


def _describe(sample: Sample) -> str:
    return f"{sample.metadata['error']} (question {sample.question!r})"
