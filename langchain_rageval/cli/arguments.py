"""Command-line options that several commands share, and checks of their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from langchain_rageval.cli.metric_selection import GRADERS
from langchain_rageval.errors import ConfigError

PIPE = "-"
"""File name that means stdin for input and stdout for output."""


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    """Add `--quiet`."""
    parser.add_argument("--quiet", action="store_true", help="show no progress on stderr; warnings and errors remain")


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit calls, tokens and embedded texts."""
    parser.add_argument(
        "--budget-calls", type=int, metavar="N", help="maximum number of model calls; the rest is left out"
    )
    parser.add_argument("--budget-tokens", type=int, metavar="N", help="maximum number of input and output tokens")
    parser.add_argument("--budget-embeddings", type=int, metavar="N", help="maximum number of texts to embed")


def add_audit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an audit by a strong judge."""
    parser.add_argument(
        "--audit",
        metavar="MODEL",
        help="strong judge that scores a random part of the samples, too, named as for --judge; the report estimates "
        "its mean over all samples, and --fail-under checks that mean",
    )
    parser.add_argument(
        "--audit-share",
        type=float,
        metavar="SHARE",
        help="share of the samples that --audit scores (default: 0.1)",
    )
    parser.add_argument("--audit-base-url", metavar="URL", help="address of the judge of --audit")


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the samples and the metrics."""
    parser.add_argument(
        "file",
        help="samples with question, answer, contexts and references, with the field names of any common library; or a "
        "report, to whose samples the metrics are added; - reads JSON lines from stdin",
    )
    parser.add_argument(
        "--metrics",
        default="faithfulness",
        help="comma-separated names from `rageval metrics`, or all for every metric whose fields all samples have "
        "(those of conversations if a sample has a history); "
        "MODULE:NAME for one of your own (default: %(default)s)",
    )
    parser.add_argument(
        "--grader",
        choices=GRADERS,
        help="source of the relevance grades for ranking metrics such as ndcg@K: ids of the chunks that contain the "
        "answer, their texts (spans), human labels, the judge (llm), or the cosine with the question (default: labels "
        "with --qrels, otherwise ids)",
    )
    parser.add_argument(
        "--gain",
        choices=("exp2", "linear"),
        default="exp2",
        help="gain of a grade in ndcg@K; trec_eval uses linear (default: %(default)s)",
    )
    parser.add_argument("--qrels", metavar="FILE", help="relevance judgments; the input file is then a TREC run")
    parser.add_argument(
        "--topics",
        metavar="FILE",
        help="questions of a TREC run, one line `id<TAB>text` per topic (default: the ids are the questions)",
    )
    parser.add_argument(
        "--fields",
        default="",
        metavar="FIELD=NAME,...",
        help="names or dotted paths of the fields in the input file, such as question=q,contexts=docs.text",
    )
    parser.add_argument(
        "--each-turn",
        action="store_true",
        help="make a sample of every answer of a conversation (default: of its last answer)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at a line that is not a valid sample, or skip it with a warning (default: %(default)s)",
    )


def add_judge_options(
    parser: argparse.ArgumentParser,
    *,
    language: str = "auto",
    language_help: str = "language of the prompts (default: the language of each question)",
) -> None:
    """Add the options that describe the judge, the embeddings and their calls.

    Args:
        parser: parser of a command.
        language: default of `--language`.
        language_help: help of `--language`.
    """
    parser.add_argument(
        "--judge",
        default="offline",
        help="offline, openai:MODEL, vllm:MODEL, gigachat:MODEL, or another name that load_judge accepts, "
        "such as ollama:MODEL "
        "(default: %(default)s); keys are read from the environment: OPENAI_API_KEY, GIGACHAT_CREDENTIALS, …",
    )
    parser.add_argument("--base-url", metavar="URL", help="address of the judge, such as http://localhost:8000/v1")
    parser.add_argument(
        "--embeddings",
        help="model for metrics that compare embeddings: offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL] "
        "(default: offline if the judge is offline)",
    )
    parser.add_argument(
        "--embeddings-base-url", metavar="URL", help="address of the embeddings model (default: --base-url)"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.1, help="temperature of the judge (default: %(default)s)"
    )
    parser.add_argument("--language", default=language, help=language_help)
    parser.add_argument(
        "--mode",
        default="auto",
        help="how the judge returns JSON: json_schema, function_calling, json_mode, prompt, or auto to find out "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=1,
        help="how often each verdict is requested, an odd number; the majority counts (default: %(default)s)",
    )
    add_call_options(parser)


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """Add `--max-concurrency` and `--timeout`."""
    parser.add_argument(
        "--max-concurrency",
        type=int,
        default=16,
        help="maximum number of concurrent model calls (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="timeout of a model call in seconds (default: %(default)s)"
    )


def add_price_option(parser: argparse.ArgumentParser) -> None:
    """Add `--price`."""
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="MODEL=INPUT,OUTPUT[,CACHED]",
        help="price of a million input, output and cached input tokens, in any currency; may be repeated",
    )


def parse_prices(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the prices of `--price` by name of the model; None if there are none.

    Raises:
        ConfigError: if a price is not two or three numbers.
    """
    prices: dict[str, Any] = {}
    for model, text in parse_pairs(options.price, "--price").items():
        try:
            prices[model] = tuple(map(float, text.split(",")))
        except ValueError:
            prices[model] = ()
        if len(prices[model]) not in (2, 3):
            raise ConfigError(f"--price takes MODEL=INPUT,OUTPUT[,CACHED], such as {model}=2.5,10, got {model}={text}")
    return prices or None


def parse_pairs(items: Sequence[str], option: str) -> Mapping[str, str]:
    """Parse values such as `a=1` into a mapping; blank items are ignored.

    Args:
        items: values of the option.
        option: name of the option, for the error.

    Raises:
        ConfigError: if an item has no name or no value.
    """
    pairs = [item.partition("=") for item in items if item.strip()]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, got {name + sign + value!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def check_writable(option: str, path: str | None, input_path: str) -> None:
    """Check that an output file can be written and does not replace the input file.

    Args:
        option: name of the option, for the error.
        path: value of the option; None and "-" need no check.
        input_path: path of the input file.

    Raises:
        ConfigError: if the path is a folder or the input file, or its folder is missing or not writable.
    """
    if path is None or path == PIPE:
        return
    folder = Path(path).resolve().parent
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigError(f"{option} {path} is not a file; choose another path")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(
            f"{option} {path}: the folder {folder} does not exist or is not writable; choose another path"
        )
    if Path(path).resolve() == Path(input_path).resolve():
        raise ConfigError(f"{option} {path} is the input file; choose another path")


def parse_numbers(items: Sequence[str], option: str) -> dict[str, float]:
    """Return the numbers of an option that takes METRIC=NUMBER and may be repeated.

    Raises:
        ConfigError: if an item is not METRIC=NUMBER, or the number is not finite.
    """
    numbers = {}
    for name, text in parse_pairs(items, option).items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = nan
        if not isfinite(numbers[name]):
            raise ConfigError(f"{option} takes METRIC=NUMBER, got {name}={text}")
    return numbers
