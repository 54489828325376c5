"""`rageval evaluate FILE`: score the samples of a file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.json_output import (
    PIPE,
    add_json_option,
    refuse_both,
    stdout,
    told_of_report,
    write_json,
)
from langchain_rageval.cli.metric_selection import (
    ALL,
    GRADERS,
    build,
    names_in,
    refuse_lacking,
    scorable,
    scores_of,
    with_their_packages,
    without_embeddings,
)
from langchain_rageval.cli.printable import printable
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.journal import Journal

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langchain_rageval.data.schema import Failure, Sample
    from langchain_rageval.judge.judge import Judge
    from langchain_rageval.metrics.metric import Metric
    from langchain_rageval.report.report import Report

COMMAND = "command"
"""Under which key a journal holds the words of the command that wrote it."""

_MENDS = {
    "Connect": "is the server running, and is --base-url right?",
    "Timeout": "is the server busy? Give it more --timeout, or less --max-concurrency",
    "Auth": "is the key in the environment right?",
    "Permission": "may this key use the model?",
    "Forbidden": "may this key use the model?",
    "NotFound": "is the model's name right, and --base-url?",
}


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate", help="score the samples of a .jsonl, .json, .csv or .parquet file, or a TREC run"
    )
    parser.set_defaults(run=run)
    add_input_options(parser)
    add_judge_options(parser)
    parser.add_argument("--out", help="write the report there, as JSON lines; - for stdout, with the table on stderr")
    parser.add_argument("--html", metavar="PATH", help="write it there as one HTML page that needs no network")
    parser.add_argument(
        "--fail-under",
        action="append",
        default=[],
        metavar="METRIC=NUMBER",
        help="exit 1 when the mean is worse; may be repeated",
    )
    parser.add_argument(
        "--max-failed", type=float, default=0.05, help="share of failed samples a gate lets pass (default: %(default)s)"
    )
    parser.add_argument(
        "--journal", help="keep finished scores in this SQLite file; `rageval resume` goes on after a crash or Ctrl-C"
    )
    add_budget_options(parser)
    add_json_option(parser)
    add_quiet_option(parser)


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    """Add `--quiet`."""
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr; warnings and errors stay")


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much may be spent."""
    parser.add_argument(
        "--budget-calls", type=int, metavar="N", help="most model calls; what no longer fits is left out"
    )
    parser.add_argument("--budget-tokens", type=int, metavar="N", help="most tokens read and written")
    parser.add_argument("--budget-embeddings", type=int, metavar="N", help="most texts to embed")


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is scored, by which metrics."""
    parser.add_argument(
        "file",
        help="samples: question, answer, contexts, references, in any usual vocabulary; - for JSON lines on stdin",
    )
    parser.add_argument(
        "--metrics",
        default="faithfulness",
        help="names as `rageval metrics` lists them, comma-separated, or all: those whose fields every sample has "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--grader",
        choices=GRADERS,
        help="what says how relevant a chunk is, for ndcg@K and its like: the ids of the chunks that hold the answer, "
        "people's labels, the judge, or the cosine with the question (default: labels with --qrels, else ids)",
    )
    parser.add_argument(
        "--gain", choices=("exp2", "linear"), default="exp2", help="of ndcg@K; trec_eval's is linear (default: exp2)"
    )
    parser.add_argument("--qrels", help="the file is a TREC run, and these are its judgments")
    parser.add_argument("--topics", help="questions of a TREC run, a line `id<TAB>text` each (default: the ids)")
    parser.add_argument("--fields", default="", help="where your file keeps them: question=q,contexts=docs.text")
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="what to do with a line that is no sample"
    )


def add_judge_options(
    parser: argparse.ArgumentParser,
    *,
    language: str = "auto",
    of: str = "of the prompts (default: that of each question)",
) -> None:
    """Add the options that say who judges, and how; `language` is that option's default, `of` its help."""
    parser.add_argument(
        "--judge",
        default="offline",
        help="offline, openai:MODEL, vllm:MODEL, gigachat:MODEL, or any init_chat_model name (default: %(default)s); "
        "keys come from the environment: OPENAI_API_KEY, GIGACHAT_CREDENTIALS, …",
    )
    parser.add_argument("--base-url", help="address of the judge's server, such as http://localhost:8000/v1")
    parser.add_argument(
        "--embeddings",
        help="for metrics that compare meaning: offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL] (default: offline "
        "with the offline judge)",
    )
    parser.add_argument("--embeddings-base-url", help="address of their server (default: --base-url)")
    parser.add_argument("--temperature", type=float, default=0.1, help="of the judge (default: %(default)s)")
    parser.add_argument("--language", default=language, help=of)
    parser.add_argument("--mode", default="auto", help="json_schema, function_calling, json_mode, prompt or auto")
    parser.add_argument("--draws", type=int, default=1, help="verdicts asked so often, the majority holds")
    parser.add_argument("--max-concurrency", type=int, default=16, help="model calls at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a model call (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Check everything that can be checked before the first call, then score, write and show."""
    from langchain_rageval.evaluation.api import evaluate

    refuse_both(options)
    gates, budget = _gates(options.fail_under, scores_of(names_in(options.metrics))), budget_of(options)
    if not 0 <= options.max_failed <= 1:
        raise ConfigError(f"--max-failed takes a share from 0 to 1, got {options.max_failed:g}")
    check_writable("--out", options.out, options.file)
    check_writable("--html", options.html, options.file)
    samples, metrics = asked(options)
    if options.journal:
        _note_command(options)
    report = evaluate(
        samples,
        metrics,
        journal=options.journal,
        budget=budget,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        progress=not options.quiet,
    )
    if not report.complete and not report.rows:
        raise KeyboardInterrupt
    if report.complete:
        refuse_all_failed(report)
    if options.html:
        report.to_html(options.html)
    _tell(report, options)
    warn_of_failures(report)
    if not report.complete:
        raise KeyboardInterrupt
    if gates:
        report.check(gates, max_failed=options.max_failed)
    return 0


def _tell(report: Report, options: argparse.Namespace) -> None:
    """Write the report where it was asked for, and show it where that leaves room."""
    from langchain_rageval.cli.tables import console, show_report

    piped = options.out == PIPE
    if options.out:
        report.to_jsonl(stdout() if piped else options.out)
    if options.json:
        write_json(told_of_report(report))
    else:
        places = [place for place in (options.out, options.html) if place and place != PIPE]
        show_report(report, console(stderr=piped), written=" and ".join(places))


def asked(options: argparse.Namespace) -> tuple[Sequence[Sample], list[Metric]]:
    """The samples and metrics that the options name."""
    names = names_in(options.metrics)
    samples = _samples(options)
    metrics = metrics_of(options, names, grader=grader_of(options), gain=options.gain)
    refuse_lacking(metrics, samples, grader_of(options))
    return samples, scorable(metrics, samples) if options.metrics.strip() == ALL else metrics


def budget_of(options: argparse.Namespace) -> Budget | None:
    """The budget that the options describe, if they do."""
    bounds = (options.budget_calls, options.budget_tokens, options.budget_embeddings)
    if bounds == (None, None, None):
        return None
    return Budget(calls=bounds[0], tokens=bounds[1], embeddings=bounds[2])


def _note_command(options: argparse.Namespace) -> None:
    """Keep in the journal what was asked, so that `rageval resume` can ask it again; no passwords."""
    from langchain_rageval.judge.identity import without_keys

    if options.words is not None:
        words = [without_keys(word) for word in options.words]
        command = {"words": words, "folder": str(Path.cwd())}
        Journal(options.journal).put(COMMAND, json.dumps(command))


def _samples(options: argparse.Namespace) -> Sequence[Sample]:
    from langchain_rageval.data.loading import load_samples, samples_in_lines

    fields = pairs_in(options.fields.split(","), "--fields")
    if options.file == PIPE:
        if options.qrels or options.topics:
            raise ConfigError("stdin is read as JSON lines; with --qrels and --topics give the name of a TREC run")
        samples = list(samples_in_lines(sys.stdin.buffer, "stdin", fields, options.on_error))
    else:
        trec = {"qrels": options.qrels, "topics": options.topics}
        samples = list(load_samples(options.file, fields=fields, on_error=options.on_error, **trec))
    if not samples:
        raise ConfigError(f"{'stdin' if options.file == PIPE else options.file} holds no samples")
    return samples


def judge_of(options: argparse.Namespace) -> Judge:
    """The judge that the options describe."""
    from langchain_rageval.models.loading import load_judge

    return load_judge(
        options.judge,
        base_url=options.base_url,
        temperature=options.temperature,
        language=options.language,
        mode=options.mode,
        draws=options.draws,
    )


def metrics_of(
    options: argparse.Namespace, names: Sequence[str], *, grader: str = "ids", gain: str = "exp2"
) -> list[Metric]:
    """The metrics of these names, with the judge and the embeddings that the options describe."""
    unnamed = options.embeddings is None and options.judge != "offline"
    if set(names) >= set(names_in(ALL)):
        names = with_their_packages(names)
        if unnamed:
            names, unnamed = without_embeddings(names), False
    embeddings = partial(_embeddings, options, unnamed=unnamed)
    return build(names, judge_of(options), embeddings, grader=grader, gain=gain)


def grader_of(options: argparse.Namespace) -> str:
    """What grades ranked lists: as the option says, else labels where there are judgments."""
    return options.grader or ("labels" if options.qrels else "ids")


def embeddings_of(options: argparse.Namespace) -> Embeddings | None:
    """The embeddings that the options name; None when they name none, and the judge is not offline."""
    if options.embeddings is None and options.judge != "offline":
        return None
    return _embeddings(options, unnamed=False)


def _embeddings(options: argparse.Namespace, *, unnamed: bool) -> Embeddings:
    from langchain_rageval.models.loading import load_embeddings

    if unnamed:
        raise ConfigError(
            "answer_relevance, answer_similarity, answer_correctness and --grader embedding compare by embeddings: "
            "name them with --embeddings openai:MODEL, vllm:MODEL, gigachat or offline, or choose other --metrics"
        )
    name = options.embeddings or "offline"
    return load_embeddings(name, base_url=options.embeddings_base_url or options.base_url)


def _gates(given: Sequence[str], metrics: Sequence[str]) -> dict[str, float]:
    gates: dict[str, float] = {}
    for metric, number in pairs_in(given, "--fail-under").items():
        if metric not in metrics:
            raise ConfigError(f"--fail-under {metric}: not among --metrics {','.join(metrics)}")
        try:
            gates[metric] = float(number)
        except ValueError:
            gates[metric] = nan
        if not isfinite(gates[metric]):
            raise ConfigError(f"--fail-under takes METRIC=NUMBER, got {metric}={number}")
    return gates


def pairs_in(given: Sequence[str], option: str) -> Mapping[str, str]:
    """The values by name of options such as `a=1`.

    Raises:
        ConfigError: if one has no name or no value.
    """
    pairs = [item.partition("=") for item in given if item.strip()]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, got {name + sign + value!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def check_writable(option: str, out: str | None, file: str) -> None:
    """Raise ConfigError when what an option names cannot be written, or is the file that is read."""
    if out is None or out == PIPE:
        return
    folder = Path(out).resolve().parent
    if Path(out).exists() and not Path(out).is_file():
        raise ConfigError(f"{option} {out} is no file; choose another place")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{option} {out}: {folder} is no folder that can be written to; choose another place")
    if Path(out).resolve() == Path(file).resolve():
        raise ConfigError(f"{option} {out} is the file that is read; choose another place")


def refuse_all_failed(report: Report) -> None:
    """Raise ConfigError when not one score that asked a judge could be had: a dead server, a wrong key."""
    failed = [score.failure for _, score in report.failures() if score.failure]
    paid = [score for row in report.rows for score in row.scores.values() if score.usage.calls]
    if failed and all(score.failure for score in paid):
        raise ConfigError(f"no score could be had from {len(report)} samples: {_told(failed[0])}")


def warn_of_failures(report: Report) -> None:
    """Say on stderr how many scores failed, and why the first did."""
    failed = [score.failure for _, score in report.failures() if score.failure]
    if failed:
        told = printable(_told(failed[0]))
        sys.stderr.write(f"rageval: {len(failed)} scores failed and are in no mean; the first: {told}\n")


def _told(failure: Failure) -> str:
    mend = next((mend for sign, mend in _MENDS.items() if sign in failure.error), None)
    return f"{failure.error}: {failure.message}" + (f" ({mend})" if mend else "")
