"""`rageval generate`, `plan`, `review` and `diff`: create, plan, review and compare test sets."""

from __future__ import annotations

import argparse
import operator
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from rich.console import Console
from rich.markup import escape

from langchain_rageval._internal.page import pluralize, printable
from langchain_rageval.cli.evaluate import parse_gates, stopping_rule
from langchain_rageval.cli.inputs import build_audit, build_budget, load_inputs, no_server, parse_number, parse_prices
from langchain_rageval.cli.selection import import_object
from langchain_rageval.cli.terminal import (
    PIPE,
    check_writable,
    console,
    fields_of,
    json_stdout,
    open_if_possible,
    pick,
    shorten,
    show_notes,
    show_or_write,
    table_of,
)
from langchain_rageval.data.documents import load_documents
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.evaluation.options import Batch
from langchain_rageval.evaluation.planning import Plan, plan, plan_table
from langchain_rageval.judge.judge import Judge
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.loading import load_embeddings, load_judge
from langchain_rageval.report.report import Report
from langchain_rageval.report.score_table import is_sqlite
from langchain_rageval.testset.evolutions import branch_of_names, persona
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.plan import GenerationPlan, generation_table
from langchain_rageval.testset.review_page import reviewed_name
from langchain_rageval.testset.row import TestsetDiff
from langchain_rageval.testset.testset import Testset, usage_line

_PERSONA = "persona"
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def run_generate(options: argparse.Namespace) -> None:
    """Check all options, generate the test set, and write and show it."""
    check_documents(options.path)
    for name in ("where", "redact"):
        if getattr(options, name) and not options.adopt:
            raise ConfigError(f"--{name} is about the questions that --adopt names: add --adopt FILE")
    chosen = _questions_to_adopt(options) if options.adopt else None
    redact = import_object(options.redact, "--redact") if options.redact else None
    writer, load = options.writer or "offline", partial(load_judge, base_url=options.base_url)
    generator = _generator(
        options,
        load(writer, temperature=options.writer_temperature),
        load(options.critic or writer, temperature=options.critic_temperature),
        load_embeddings(options.embeddings or "offline", base_url=options.embeddings_base_url or options.base_url),
        budget=build_budget(options),
        progress=not options.quiet,
        **pick(options, "max_concurrency", "timeout", "journal"),
    )
    documents = list(load_documents(options.path))
    testset = generator.generate(documents) if chosen is None else generator.adopt(chosen, documents, redact=redact)
    _check_not_empty(testset)
    to_stdout = options.out == PIPE
    testset.to_jsonl(json_stdout() if to_stdout else options.out)
    out, written = console(stderr=to_stdout), "" if to_stdout else options.out
    show_or_write(options, lambda: testset_object(testset), lambda: _show_testset(testset, out, written=written))
    if testset.broken_off:
        raise KeyboardInterrupt


def _questions_to_adopt(options: argparse.Namespace) -> Any:
    """Return the rows of a report, or of the sink of a callback, that --where selects; else the samples of a file."""
    if not options.where:
        return Report.load(options.adopt).rows if is_sqlite(options.adopt) else options.adopt
    match = re.fullmatch(r"([\w@.-]+)\s*(<=|>=|<|>)\s*(-?(?:\d+\.?\d*|\.\d+))", options.where.strip())
    if match is None:
        raise ConfigError(f"--where must be a metric, <, <=, > or >=, and a number, got {options.where!r}")
    metric, sign, number = match.groups()
    rows = Report.load(options.adopt).rows
    values = [(row, row.scores[metric].value) for row in rows if metric in row.scores]
    scored = [(row, value) for row, value in values if value is not None]
    if not scored:
        raise ConfigError(f"--where {options.where}: no row of {options.adopt} has a score of {metric}")
    return [row for row, value in scored if _SIGNS[sign](value, float(number))]


def _generator(
    options: argparse.Namespace, writer: Judge, critic: Judge, embeddings: Embeddings, **more: Any
) -> TestsetGenerator:
    focus: dict[str, list[str]] = {}  # metadata of the documents to ask about; "a" is "source=a"
    for text in options.focus or []:
        name, equals, value = text.partition("=")
        focus.setdefault(name if equals else "source", []).append(value if equals else text)
    return TestsetGenerator(
        writer,
        critic,
        embeddings,
        parse_distribution(options.distribution, options.persona),
        closed_book=critic if options.closed_book else None,
        focus=focus or None,
        price=parse_prices(options),
        allow_empty=True,
        **pick(options, "size", "seed", "tree", "stratify", "language"),
        **more,
    )


def check_documents(path: str) -> None:
    """Raise ConfigError if the path is neither a file nor a folder."""
    if not Path(path).exists():
        raise ConfigError(f"{path} does not exist: name a file or a folder of documents")


def testset_object(testset: Testset) -> dict[str, Any]:
    """Return the JSON object that `rageval generate` prints.

    Its keys are `questions`, `complete`, `evolutions`, `attempts`, `rejected`, `usage`, `steps`, `calls_per_row` and
    `notes`.
    """
    return {
        "questions": len(testset),
        "complete": testset.complete,
        "evolutions": testset.counts,
        **testset.yields,
        "usage": testset.usage.model_dump(exclude={"seconds"}),
        "steps": {name: usage.model_dump(exclude={"seconds"}) for name, usage in testset.usage_by_step.items()},
        **pick(testset, "calls_per_row", "notes"),
    }


def plan_object(plan: Plan) -> dict[str, Any]:
    """Return the JSON object that `rageval plan` prints.

    Its keys are those fields of the plan that a program reads: `samples`, `rehearsed` (samples of the estimate),
    `metrics`, `audit`, `total`, `asked`, `waves`, `no_worse` and `notes`.
    """
    return {
        **pick(plan, "samples", "rehearsed"),
        "metrics": {name: fields_of(metric, "metric") for name, metric in plan.items()},
        "audit": {name: fields_of(metric, "metric") for name, metric in plan.audit.items()},
        "total": fields_of(plan.total, "metric"),
        **pick(plan, "asked", "waves", "no_worse", "notes"),
    }


def generation_plan_object(plan: GenerationPlan) -> dict[str, Any]:
    """Return the JSON object that `rageval plan --generate` prints.

    Its keys are `questions`, `rehearsed`, `steps`, `total` and `notes`.
    """
    costs, total = {name: fields_of(step, "step") for name, step in plan.items()}, fields_of(plan.total, "step")
    return {"questions": plan.size, "rehearsed": plan.rehearsed, "steps": costs, "total": total, "notes": plan.notes}


def parse_distribution(text: str, personas: list[str] | None) -> list[tuple[float, Any]]:
    """Return pairs of share and evolution (way to change a generated question) from the value of `--distribution`.

    A share is the proportion of the test set's questions that the evolution produces; the sum of the shares need not be
    1. An evolution with `persona` is a Runnable for one persona; any other is a name.

    Args:
        text: names and shares of evolutions, such as "simple=0.5,reasoning+persona=0.5".
        personas: values of `--persona`. The share of each evolution with `persona` is divided among them.

    Raises:
        ConfigError: if a share is not a number or names no evolution, if there are personas but no share for them, or
            if there is such a share but no persona.
    """
    people = [persona(description) for description in personas or []]
    shares: list[tuple[float, Any]] = []
    is_used = False
    for names, number in parse_number(text.split(","), "--distribution", "NAME=SHARE").items():
        if _PERSONA not in map(str.strip, names.split("+")):
            shares.append((number, names))
            continue
        if not people:
            raise ConfigError(f"{names} in --distribution needs --persona, such as --persona 'A tenant in a hurry'")
        is_used = True
        shares += [(number / len(people), branch_of_names(names, {_PERSONA: who}) or names) for who in people]
    if people and not is_used:
        raise ConfigError("--persona needs a share: add persona or reasoning+persona to --distribution, as persona=0.2")
    return shares


def _check_not_empty(testset: Testset) -> None:
    if not testset.rows:
        rejected = "; ".join(f"{count} {reason}" for reason, count in testset.yields["rejected"].items())
        problem = f"no question was accepted in {pluralize(testset.yields['attempts'], 'attempt')}: {rejected}."
        comments = [f"An example of {reason}: {comment}" for reason, comment in testset.rejection_examples.items()]
        failed = next((one for one in testset.rejected if one.has_failed), None)
        raise ConfigError(" ".join([problem, *comments, *testset.notes]), failed and failed.failure)


def _show_testset(testset: Testset, out: Console, *, written: str) -> None:
    """Print the numbers of questions with examples, the reasons of rejections, calls and tokens, and the notes."""
    rows = []
    for name, count in testset.counts.items():
        first = next(row for row in testset.rows if row.evolution == name)
        rows.append([name, str(count), shorten(first.question)])
    title = pluralize(len(testset), "question")
    out.print(table_of(("evolution", "rows", "example"), rows, title=title, left=("example",)))
    out.print(pluralize(testset.yields["attempts"], "attempt"))
    examples = testset.rejection_examples
    for reason, count in testset.yields["rejected"].items():
        example = f" ({shorten(examples[reason])})" if reason in examples else ""
        out.print(f"  {count} rejected: {escape(printable(reason + example))}")
    out.print(usage_line(testset.usage, testset.calls_per_row))
    show_notes(testset.notes, out, "Test set", written)


def run_review(options: argparse.Namespace) -> None:
    """Write the review page, print the next step, and open the page.

    With --merge, first join the reviews of two people.
    """
    if options.merge or options.other:
        if not (options.merge and options.other):
            raise ConfigError("review takes one test set, or with --merge two copies that two people have reviewed")
        path = options.out or str(Path(options.testset).with_suffix(".merged.jsonl"))
        check_writable("--out", path, options.testset)
        merged = Testset.load(options.testset).merge_reviews(Testset.load(options.other))
        merged.to_jsonl(path)
        message = f"{merged.notes[-1]} Written to {path}: {len(merged)} rows"  # the note: how far the two people agree
        console().print(escape(printable(message)), soft_wrap=True)
        return
    page = options.html or str(Path(options.testset).with_suffix(".html"))
    check_writable("--html", page, options.testset)
    testset = Testset.load(options.testset)
    testset.to_html(page, language=options.language)
    rows = pluralize(len(testset), "row")
    message = f"{rows} to review, written to {page}: open it in a browser; it saves {reviewed_name(page)}, a test set"
    console().print(escape(printable(message)), soft_wrap=True)
    open_if_possible(page, options)


def run_diff(options: argparse.Namespace) -> None:
    """Compare test sets and show the differences; with --fail-if-changed, raise BelowThreshold if there are any."""
    difference = Testset.load(options.old).diff(Testset.load(options.new))
    show_or_write(options, difference.to_dict, lambda: _show_diff(difference))
    if options.fail_if_changed and difference:
        raise BelowThreshold(f"{options.old} and {options.new} differ: {difference.title}")


def _show_diff(difference: TestsetDiff) -> None:
    out = console()
    out.print(f"[bold]{escape(difference.title)}[/bold]", soft_wrap=True)
    if not difference:
        return
    headings = ("", "row, then field and its change")
    rows = [[sign, printable(what)] for sign, what in difference.lines()]
    out.print(table_of(headings, rows, left=headings, colours={"+": "green", "-": "red", "~": "yellow"}))


def run_plan(options: argparse.Namespace) -> None:
    """Estimate the cost of an evaluation or of a test set, and show it.

    Only a pilot (`--pilot N`, a run with N samples) calls the models. With `--journal`, the address of a vLLM judge is
    needed to find the scores of this judge in the journal.
    """
    if not options.generate and (options.writer or options.critic):
        raise ConfigError("--writer and --critic are for the plan of a test set: add --generate, or use --judge")
    needs_address = options.journal and options.judge.startswith("vllm:")
    with nullcontext() if options.pilot or needs_address else no_server(options):
        (_plan_generation if options.generate else _plan_evaluation)(options)


def _plan_evaluation(options: argparse.Namespace) -> None:
    if Path(options.file).is_dir():
        raise ConfigError(f"{options.file} is a folder: add --generate to estimate a test set from its documents")
    samples, metrics = load_inputs(options)
    gates = parse_gates(options)
    estimate = plan(
        samples,
        metrics,
        price=parse_prices(options),
        until=stopping_rule(options, gates),
        batch=Batch() if options.batch else None,
        audit=build_audit(options),
        **pick(options, "journal", "pilot", "no_worse", "anchors"),
    )
    show_or_write(options, lambda: plan_object(estimate), lambda: _show_plan(estimate, *plan_table(estimate)))


def _plan_generation(options: argparse.Namespace) -> None:
    for name in ("anchors", "audit", "batch", "fail_under", "journal", "no_worse", "pilot", "until_decided"):
        if getattr(options, name):
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} is for the plan of an evaluation: omit it, or omit --generate")
    check_documents(options.file)
    author = options.writer or options.judge
    writer, critic = (
        load_judge(name, **pick(options, "base_url", "temperature", "mode"))
        for name in (author, options.critic or author)
    )
    generator = _generator(options, writer, critic, HashingEmbeddings())  # no text is embedded
    found = generator.plan(list(load_documents(options.file)))
    show_or_write(options, lambda: generation_plan_object(found), lambda: _show_plan(found, *generation_table(found)))


def _show_plan(plan: Plan | GenerationPlan, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the expected cost of each metric, or of each step of a generation, and the total."""
    out = console()
    out.print(table_of(headings, rows, title=plan.title, total=True))
    show_notes(plan.notes, out)
