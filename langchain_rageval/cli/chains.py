"""`rageval run`: ask a RAG chain the questions of a test set."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import pluralize
from langchain_rageval.chains.answering import Answering
from langchain_rageval.cli.evaluate import record_command
from langchain_rageval.cli.inputs import check_writable, notice_for, parse_pairs
from langchain_rageval.cli.json_output import json_stdout
from langchain_rageval.cli.selection import import_object
from langchain_rageval.cli.terminal import PIPE, console, write_message
from langchain_rageval.data.loading import load_with_notice
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.testset import Testset, is_testset_file


def run_run(options: argparse.Namespace) -> int:
    """Check all options before the first call, then ask every question, write the answers and show their number."""
    check_writable("--out", options.out, options.file)
    chain, samples = _load_chain(options.chain), _load_questions(options)
    answering = Answering(
        samples,
        chain,
        {
            "max_concurrency": options.max_concurrency,
            "timeout": options.timeout,
            "journal": options.journal,
            "version": options.version,
            "resume": options.resume,
            "retry_failed": options.retry_failed,
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
