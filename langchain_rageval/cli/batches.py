"""`rageval requests` and `rageval replies`: evaluate by files that users copy to and from a judge without network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import pluralize
from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval.cli.evaluate import EndedRun, checked_gates, finish, parse_gates
from langchain_rageval.cli.inputs import load_inputs, no_server
from langchain_rageval.cli.main import build_parser
from langchain_rageval.cli.recorded import record_command, recorded_command, repeated_options
from langchain_rageval.cli.report_view import check_not_all_failed
from langchain_rageval.cli.terminal import PIPE, json_stdout, write_json, write_message
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.api import evaluate_from_files
from langchain_rageval.report.report import Report
from langchain_rageval.run.batch.wave_files import RepliesRead, WaveFile, read_replies
from langchain_rageval.run.journal import Journal


def run_requests(options: argparse.Namespace) -> None:
    """Write the next requests to the judge to a file.

    Without replies in the journal, these are the requests of the first steps of the metrics. Otherwise these are the
    requests of later steps, which are built from the replies, and requests without a reply.

    Raises:
        ConfigError: if the journal holds the requests of another run.
    """
    if options.words is not None and Path(options.journal).is_file():
        words = recorded_command(options.journal).get("words", [])
        own = [redact_secrets(word, word) for word in options.words]
        if words[:1] == ["requests"] and _settings(words) != _settings(own):
            raise ConfigError(
                f"{options.journal} holds the requests of another run, `rageval {' '.join(words)}`; name another file "
                "with --journal"
            )
    result = _score_as_far_as_possible(options, Path(options.out))
    record_command(options)
    if not isinstance(result, WaveFile):
        write_message("no request is needed: run `rageval evaluate` with the same options")
    elif not options.quiet:
        write_message(_describe_wave(result, options.journal))


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command that its requests depend on."""
    settings = vars(build_parser(["requests"]).parse_args(words))
    return {name: value for name, value in settings.items() if name not in ("journal", "out", "quiet", "run")}


def _score_as_far_as_possible(options: argparse.Namespace, path: Path | None) -> Report | WaveFile:
    """Return the report if all replies are in the journal, otherwise the file of the next requests.

    Args:
        options: options of `rageval requests`.
        path: path of the file for the next requests; None for that of the last wave with the next number.
    """
    with no_server(options):
        samples, metrics = load_inputs(options)
    with closing(Journal(options.journal)) as journal:
        return evaluate_from_files(samples, metrics, journal, path, strict=options.strict)


def _describe_wave(wave: WaveFile, journal: str) -> str:
    """Return the number of requests in a file, and what to do with it."""
    outputs = [str(Path(path).with_suffix(".out.jsonl")) for path in wave.paths]
    which = "it" if len(outputs) == 1 else "each with its model"
    return (
        f"wave {wave.number}: {pluralize(len(wave.owners), 'request')} written to {wave.named}. Answer {which}, as "
        f"with `vllm run-batch -i {wave.paths[0]} -o {outputs[0]} --model MODEL`, then run `rageval replies "
        f"{' '.join(outputs)} --journal {journal}`"
    )


def run_replies(options: argparse.Namespace) -> None:
    """Read the judge's replies from files, then write the next requests to the judge, or write and show the report.

    The next requests are requests without a reply, and those of the later steps (questions to the judge) of the
    metrics. The requests of a later step are built from the replies to earlier steps. The report is shown when no
    request is left.
    """
    command = recorded_command(options.journal, "`rageval requests --journal`")
    if command.get("words", [""])[0] != "requests":
        raise ConfigError(
            f"{options.journal} was not written by `rageval requests`; pass the file that was given to its --journal"
        )
    repeated = repeated_options(command, options.journal)
    options.metrics = repeated.metrics
    parse_gates(options)  # raises before the replies are read
    with closing(Journal(options.journal)) as journal:
        _warn_about(read_replies(list(map(Path, options.files)), journal), " and ".join(options.files))
    result = _score_as_far_as_possible(repeated, Path(options.out) if options.out else None)
    if isinstance(result, WaveFile):
        if options.json:
            write_json({"wave": result.number, "requests": len(result.owners), "files": result.paths})
        elif not options.quiet:
            write_message(_describe_wave(result, options.journal))
        return
    report = replace(result, name=Path(repeated.file).stem)
    check_not_all_failed(report)
    options.out = options.report
    if options.out:
        report.to_jsonl(json_stdout() if options.out == PIPE else options.out)
    finish(options, EndedRun(report), checked_gates(EndedRun(report), options))


def _warn_about(read: RepliesRead, file: str) -> None:
    """Write to stderr how many requests have no reply."""
    total, again = pluralize(len(read.wave.owners), "request"), "they are asked again in the next wave"
    remedy = "If the file was cut off on the way, copy it again and repeat the command"
    missing, failed = f"have no line in {file}; {again}. {remedy}", f"failed on the server; {again}"
    for count, problem in ((read.missing, missing), (read.failed, failed)):
        if count:
            write_message(f"{count:,} of the {total} of wave {read.wave.number} {problem}")
