"""Read the command-line options: check numbers and paths, load samples, build judge, metrics and budget."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import isfinite
from textwrap import shorten
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_rageval.cli.selection import build_grader, build_named_metrics, parse_metric_names, scorable_metrics
from langchain_rageval.cli.terminal import PIPE, pick, write_message
from langchain_rageval.data.loading import read_samples, valid_samples
from langchain_rageval.data.schema import Sample, Usage
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.audit import Audit
from langchain_rageval.judge.judge import Judge
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.models.loading import CHAT_MODELS, load_embeddings, load_judge
from langchain_rageval.models.offline_judge import OfflineJudge
from langchain_rageval.report.comparison import Require
from langchain_rageval.report.files import is_report
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import Budget

_KEYS = ("OPENAI_API_KEY", "GIGACHAT_CREDENTIALS", "ANTHROPIC_API_KEY", "YC_API_KEY")


def load_inputs(options: argparse.Namespace) -> tuple[Sequence[Sample], list[Metric]]:
    """Return the samples and the metrics that the options select; samples may come from a stored report."""
    metrics = selected_metrics(options)
    samples = selected_samples(options)
    return samples, scorable_metrics(options, metrics, samples)


def selected_metrics(options: argparse.Namespace) -> list[Metric]:
    """Return the metrics that the options select."""
    names = parse_metric_names(options.metrics)
    gated = {one.partition("=")[0].strip() for one in getattr(options, "fail_under", None) or ()}
    return build_metrics(options, names, {name for name, is_optional in names.items() if is_optional} - gated)


def selected_samples(options: argparse.Namespace) -> Sequence[Sample]:
    """Load the samples from the file or the report that the options name.

    `options.unreadable` is set to the number of lines that cannot be read.
    """
    fields = parse_pairs(options.fields.split(","), "--fields")
    skipped: list[SampleError] = []
    if options.file == PIPE and (options.qrels or options.topics):
        raise ConfigError("--qrels and --topics need a TREC run in a file; stdin is read as JSON lines")
    if options.file != PIPE and is_report(options.file) and not fields:
        samples = [row.sample for row in Report.load(options.file).rows]
    else:
        skips = options.on_error == "skip"
        items = read_samples(
            sys.stdin.buffer if options.file == PIPE else options.file,
            fields,
            number_ids=skips,
            scored=True,
            notice=notice_for(options),
            **pick(options, "qrels", "topics", "each_turn"),
        )
        samples = list(valid_samples(items, skips=skips, skipped=skipped))
    if not samples:
        raise ConfigError(f"{'stdin' if options.file == PIPE else options.file} contains no samples: pass at least one")
    options.unreadable = len(skipped)  # a gate counts them
    return samples


def describe_fields(sample: Sample) -> str:
    """Return the fields of a sample as text, each field cut to one line."""
    fields = {name: getattr(sample, name) for name in ("question", "answer", "contexts", "references")}
    parts = []
    for name, value in fields.items():
        text = value[0] if isinstance(value, list) and value else value
        cut = "none" if text is None or text == [] else repr(shorten(text, 60, placeholder=" …"))
        parts.append(f"{name} {cut}" + (f" and {len(value) - 1} more" if isinstance(value, list) and value[1:] else ""))
    return ", ".join(parts)


def notice_for(options: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that writes a message to stderr; with `--quiet`, a function that does nothing.

    The messages come from `read_samples`. They say which column of the file became which field of a sample.
    """
    return (lambda _: None) if getattr(options, "quiet", False) else write_message


def build_metrics(options: argparse.Namespace, names: Iterable[str], optional: Collection[str]) -> list[Metric]:
    """Build metrics by name, with the judge, the embeddings and the grader that the options describe.

    An optional metric whose package or embeddings are missing is left out with a warning.

    Args:
        options: parsed options. Those for the grader (source of the relevance of each retrieved chunk) are used only if
            a ranking metric, such as `ndcg@5`, is named.
        names: metric names, as returned by `parse_metric_names`.
        optional: names among `names` that the user selected only by a preset (group of metrics such as "core").

    Raises:
        ConfigError: if a metric needs embeddings and the options name none, or a model cannot be loaded.
    """

    def embeddings() -> Embeddings:
        if (found := build_embeddings(options)) is None:
            raise ConfigError(
                "no embeddings: answer_relevance, answer_similarity, answer_correctness and --grader embedding need "
                "embeddings: add --embeddings openai:MODEL, vllm:MODEL, gigachat or offline, or choose other --metrics"
            )
        return found

    judge, load = build_judge(options), cache(embeddings)
    arguments: Mapping[str, Callable[[], Any]] = {
        "judge": lambda: judge,
        "embeddings": load,
        "model": load,
        "grader": cache(lambda: build_grader(options, judge, load)),
        "gain": lambda: options.gain,
    }
    return build_named_metrics(names, arguments, optional)


@contextmanager
def no_server(options: argparse.Namespace) -> Iterator[None]:
    """Return a context in which judges and embeddings can be built without the address and the key of a server.

    These judges and embeddings must not be called.
    """
    judge = getattr(options, "writer", None) or options.judge
    options.base_url = options.base_url or ("http://localhost:8000/v1" if judge.startswith("vllm:") else None)
    earlier = {name: os.environ.get(name) for name in _KEYS if not os.environ.get(name)}
    os.environ.update(dict.fromkeys(earlier, "unused"))
    try:
        yield
    finally:
        for name, key in earlier.items():
            del os.environ[name]
            if key is not None:
                os.environ[name] = key


def build_judge(options: argparse.Namespace) -> Judge:
    """Build the judge that the options name."""
    more = pick(options, "base_url", "temperature", "language", "mode", "draws")
    return load_judge(options.judge, probe=options.judge_probe, **more)


def build_embeddings(options: argparse.Namespace) -> Embeddings | None:
    """Build the embeddings that the options name; if they name none, offline ones for the offline judge, else None."""
    if options.embeddings is None and options.judge != "offline":
        return None
    name = options.embeddings or "offline"
    return load_embeddings(name, base_url=options.embeddings_base_url or options.base_url)


def build_audit(options: argparse.Namespace) -> Audit | None:
    """Build the audit, in which a strong judge scores some samples again; None if the options name no strong judge."""
    if options.audit is None:
        if options.audit_share is not None or options.audit_base_url is not None:
            raise ConfigError("--audit-share and --audit-base-url need a strong judge; add --audit MODEL")
        return None
    judge = load_judge(options.audit, base_url=options.audit_base_url, **pick(options, "temperature", "language"))
    return Audit(judge) if options.audit_share is None else Audit(judge, share=options.audit_share)


def build_budget(options: argparse.Namespace, spent: Usage | None = None) -> Budget | None:
    """Build the budget in the options, reduced by the cost already spent; None if the options set no limit."""
    limits = {name: getattr(options, f"budget_{name}") for name in ("calls", "tokens", "embeddings")}
    if spent is not None:
        used = {"calls": spent.calls, "tokens": spent.tokens or 0, "embeddings": spent.embedded}
        limits = {name: None if most is None else max(0, most - used[name]) for name, most in limits.items()}
    return None if set(limits.values()) == {None} else Budget(**limits)


def call_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of model calls, as `evaluate` and `qualify_judge` take them."""
    more = {"price": parse_prices(options), "progress": not options.quiet}
    return pick(options, "max_concurrency", "timeout") | more


def parse_prices(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the prices in `--price` by model name, a price of "openai:x" also under "x"; None without prices."""
    prices = typed_prices(options)
    for name, price in [*prices.items()]:
        provider, _, model = name.partition(":")
        if provider in CHAT_MODELS and model and prices.setdefault(model, price) != price:
            raise ConfigError(f"--price gives the model {model} two prices; give it one")
    if "offline" in prices:
        prices.setdefault(OfflineJudge.__name__, prices["offline"])
    return prices or None


def typed_prices(options: argparse.Namespace) -> dict[str, Any]:
    """Return the prices in `--price` by model name, as the user typed the names.

    A price is a tuple of two or three numbers, in any currency: the price of a million input tokens, of a million
    output tokens and, if given, of a million cached input tokens.

    Raises:
        ConfigError: if a price does not consist of two or three finite numbers.
    """
    form = "MODEL=INPUT,OUTPUT[,CACHED], such as {name}=2.5,10"
    return parse_numbers(options.price, "--price", form, counts=(2, 3))


def parse_pairs(items: Sequence[str], option: str) -> Mapping[str, str]:
    """Parse values such as `a=1` into a mapping of names to texts; blank items are ignored.

    Args:
        items: values of the option.
        option: name of the option, for the error message.

    Raises:
        ConfigError: if an item has no name or no value, or a name has two values.
    """
    pairs: dict[str, str] = {}
    for name, sign, value in (item.partition("=") for item in items if item.strip()):
        if not (name and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, got {name + sign + value!r}")
        if pairs.setdefault(name.strip(), value.strip()) != value.strip():
            raise ConfigError(f"{option} {name.strip()} has two values, {pairs[name.strip()]} and {value.strip()}")
    return pairs


def parse_number(items: Sequence[str], option: str, form: str = "METRIC=NUMBER") -> dict[str, float]:
    """Return a mapping from names to numbers, for an option with values `name=1`; otherwise like `parse_numbers`."""
    return {name: numbers[0] for name, numbers in parse_numbers(items, option, form, counts=(1,)).items()}


def parse_numbers(
    items: Sequence[str], option: str, form: str, counts: Collection[int]
) -> dict[str, tuple[float, ...]]:
    """Return a mapping from names to tuples of numbers, for an option with values such as `name=1,2`.

    Args:
        items: values of the option.
        option: name of the option, for the error message.
        form: the form of a value, for the error message; it may contain `{name}`.
        counts: how many numbers a value may have.

    Raises:
        ConfigError: if an item does not have this form, or a number is not finite.
    """
    found = {}
    for name, text in parse_pairs(items, option).items():
        try:
            found[name] = tuple(map(float, text.split(",")))
        except ValueError:
            found[name] = ()
        if len(found[name]) not in counts or not all(map(isfinite, found[name])):
            raise ConfigError(f"{option} takes {form.format(name=name)}, got {name}={text}")
    return found


def parse_require(options: argparse.Namespace) -> Require:
    """Return the verdict that `--require` demands of a comparison; "no regression found" without the option."""
    required: dict[str, Require] = {"no-worse": "no worse", "confirmed": "confirmed"}
    return required.get(options.require, "no regression found")


def parse_allow(options: argparse.Namespace, *, lost: bool = False) -> set[str]:
    """Return the codes that gates ignore; a code names a reason why a gate does not pass, such as "missing-metric".

    The codes are those in `--allow`, and also "missing-metric" if the user typed `--metrics`. `lost` is True if the run
    has no scores of a metric that it was to score and that the baseline has; "missing-metric" is then not added.
    """
    allowed = {code.strip() for code in (options.allow or "").split(",") if code.strip()}
    return allowed | ({"missing-metric"} if "--metrics" in options.named and not lost else set())
