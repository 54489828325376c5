"""`rageval run`, and the first part of `rageval ci MODULE:CHAIN QUESTIONS`: ask the user's chain the questions."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import pluralize
from langchain_rageval.chains.answering import ANSWER_DEFAULTS, Answering
from langchain_rageval.cli.inputs import notice_for, parse_pairs
from langchain_rageval.cli.recorded import record_command
from langchain_rageval.cli.selection import import_object
from langchain_rageval.cli.terminal import PIPE, console, json_stdout, pick, write_message
from langchain_rageval.data.loading import read_samples, valid_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.testset import Testset, is_testset_file


def run_run(options: argparse.Namespace) -> None:
    """Check all options, ask the chain every question, write the answers and print their number."""
    ask_chain(options, options.out)


def ask_chain(options: argparse.Namespace, out: str | None = None) -> Sequence[Sample]:
    """Ask the chain named in the options every question of the file, and return the samples with its answers.

    Args:
        options: parsed options of `rageval run`, or of `rageval ci` with a chain.
        out: path of a file for the answers, which is also written after an interruption; None for no file.

    Raises:
        ConfigError: if the chain or the questions cannot be loaded, or the chain fails on every question.
    """
    if not all(options.chain.partition(":")):
        raise ConfigError(f"name the chain as MODULE:CHAIN, such as app:chain; got {options.chain}")
    chain = import_object(options.chain, "the chain")
    if inspect.isfunction(chain) and not inspect.signature(chain).parameters:  # a builder
        chain = chain()
    samples = _load_questions(options)
    names = ["journal", "version", "resume", "retry_failed"]
    if out is not None:  # in `rageval ci` these two are about the judge
        names += ["max_concurrency", "timeout"]
    settings: Any = {**ANSWER_DEFAULTS, "progress": not options.quiet, **pick(options, *names)}
    answering = Answering(samples, chain, settings)
    record_command(options)
    try:
        answering.run()
    finally:
        if answered := answering.answered:
            if out is not None:
                _write_answers(answered, out)
            _show_answers(answered, len(samples), out)
    failed = _failed(answered)
    if len(failed) == len(answered):
        raise ConfigError(f"every question failed ({len(failed)}); first error: {_describe(failed[0])}")
    return answered


def _load_questions(options: argparse.Namespace) -> Sequence[Sample]:
    if is_testset_file(options.file):
        samples: Sequence[Sample] = Testset.load(options.file).to_samples()
    else:
        fields = parse_pairs(options.fields.split(","), "--fields")
        samples = list(valid_samples(read_samples(options.file, fields, notice=notice_for(options)), skips=False))
    if not samples:
        raise ConfigError(f"{options.file} contains no questions: pass at least one")
    return samples


def _write_answers(answered: Sequence[Sample], out: str) -> None:
    text = "".join(f"{sample.model_dump_json(fallback=str)}\n" for sample in answered)
    if out == PIPE:
        json_stdout().write(text)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}; choose another path") from None


def _show_answers(answered: Sequence[Sample], total: int, out: str | None) -> None:
    """Print the number of answers, and warn of questions on which the chain failed."""
    failed = _failed(answered)
    n_with_contexts = sum(sample.contexts is not None for sample in answered)
    asked = pluralize(total, "question") if len(answered) == total else f"{len(answered)} of {total} questions"
    counts = f"{asked} asked: {len(answered) - len(failed)} without an error, "
    stream = console(stderr=out in (None, PIPE))
    stream.print(f"{counts}{n_with_contexts} with contexts", soft_wrap=True)
    if out not in (None, PIPE):
        stream.print(f"Answers written to {out}", markup=False, soft_wrap=True)
    if failed and len(failed) < len(answered):
        write_message(f"failed questions: {len(failed)}; first error: {_describe(failed[0])}")


def _failed(answered: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in answered if "error" in sample.metadata]


def _describe(sample: Sample) -> str:
    return f"{sample.metadata['error']} (question {sample.question!r})"
