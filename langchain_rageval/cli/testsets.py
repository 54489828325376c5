"""`rageval generate`, `review` and `diff`: make, review and compare test sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from langchain_rageval._internal.page import pluralize, printable
from langchain_rageval.cli.inputs import build_budget, check_writable, parse_pairs, parse_prices
from langchain_rageval.cli.json_output import check_single_stdout, json_stdout, testset_object, write_json
from langchain_rageval.cli.terminal import PIPE, console, open_if_possible, shorten, show_notes, show_path, table_of
from langchain_rageval.data.documents import load_documents
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.models.loading import load_embeddings, load_judge
from langchain_rageval.testset.evolutions import branch_of_names, persona
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.review_page import reviewed_name
from langchain_rageval.testset.row import TestsetDiff
from langchain_rageval.testset.testset import Testset, usage_line

_PERSONA = "persona"
_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def run_generate(options: argparse.Namespace) -> int:
    """Check all options before the first call, then generate, write and show the test set."""
    check_single_stdout(options)
    if not Path(options.out).resolve().parent.is_dir():
        raise ConfigError(f"--out {options.out}: the folder does not exist; choose another path")
    check_documents(options.path)
    critic = _model(options, options.critic or options.writer, options.critic_temperature)
    generator = TestsetGenerator(
        _model(options, options.writer, options.writer_temperature),
        critic,
        load_embeddings(options.embeddings or "offline", base_url=options.embeddings_base_url or options.base_url),
        parse_distribution(options.distribution, options.persona),
        size=options.size,
        seed=options.seed,
        tree=options.tree,
        closed_book=critic if options.closed_book else None,
        focus=parse_focus(options.focus),
        stratify=options.stratify,
        language=options.language,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        price=parse_prices(options),
        journal=options.journal,
        budget=build_budget(options),
        progress=not options.quiet,
    )
    testset = generator.generate(list(load_documents(options.path)))
    _check_not_empty(testset)
    to_stdout = options.out == PIPE
    testset.to_jsonl(json_stdout() if to_stdout else options.out)
    if options.json:
        write_json(testset_object(testset))
    else:
        _show_testset(testset, console(stderr=to_stdout), written="" if to_stdout else options.out)
    if testset.broken_off:
        raise KeyboardInterrupt
    return 0


def _model(options: argparse.Namespace, name: str, temperature: float) -> Judge:
    return load_judge(name, base_url=options.base_url, temperature=temperature)


def check_documents(path: str) -> None:
    """Raise ConfigError if there is no file or folder of documents."""
    if not Path(path).exists():
        raise ConfigError(f"{path} is not there: name a file or a folder of documents")


def parse_distribution(text: str, personas: list[str] | None) -> list[tuple[float, Any]]:
    """Return the shares of the evolutions in the value of `--distribution`.

    Args:
        text: names and shares, such as "simple=0.5,reasoning+persona=0.5".
        personas: values of `--persona`, among which the share of each evolution with `persona` is divided.

    Raises:
        ConfigError: if a share is not a number or has no evolution, or there are personas without a share or a share
            without a persona.
    """
    people = [persona(description) for description in personas or []]
    shares: list[tuple[float, Any]] = []
    is_used = False
    for names, share in parse_pairs(text.split(","), "--distribution").items():
        try:
            number = float(share)
        except ValueError:
            raise ConfigError(f"--distribution takes NAME=SHARE, got {names}={share}") from None
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


def parse_focus(texts: list[str] | None) -> dict[str, list[str]] | None:
    """Return the values of `--focus` by name; a text without "=" is a source."""
    focus: dict[str, list[str]] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        focus.setdefault(name if equals else "source", []).append(value if equals else text)
    return focus or None


def _check_not_empty(testset: Testset) -> None:
    if not testset.rows:
        rejected = "; ".join(f"{count} {reason}" for reason, count in testset.yields["rejected"].items())
        problem = f"no question was accepted in {pluralize(testset.yields['attempts'], 'attempt')}: {rejected}."
        comments = [f"An example of {reason}: {comment}" for reason, comment in testset.rejection_examples.items()]
        raise ConfigError(" ".join([problem, *comments, *testset.notes]))


def _show_testset(testset: Testset, out: Console, *, written: str) -> None:
    """Print the numbers of questions with examples, the reasons of rejections, calls and tokens, and the notes."""
    rows = []
    for name, count in testset.counts.items():
        first = next(row for row in testset.rows if row.evolution == name)
        rows.append([name, str(count), shorten(first.question)])
    title = f"{len(testset)} questions"
    out.print(table_of(("evolution", "rows", "example"), rows, title=title, left=("example",)))
    out.print(f"{testset.yields['attempts']} attempts")
    examples = testset.rejection_examples
    for reason, count in testset.yields["rejected"].items():
        example = f" ({shorten(examples[reason])})" if reason in examples else ""
        out.print(f"  {count} rejected: {escape(printable(reason + example))}")
    out.print(usage_line(testset.usage, testset.calls_per_row))
    show_notes(testset.notes, out)
    show_path("Test set", written, out)


def run_review(options: argparse.Namespace) -> int:
    """Write the page, explain the next step, and open the page."""
    page = options.html or str(Path(options.testset).with_suffix(".html"))
    check_writable("--html", page, options.testset)
    testset = Testset.load(options.testset)
    testset.to_html(page, language=options.language)
    rows = f"{len(testset)} row{'' if len(testset) == 1 else 's'}"
    message = f"{rows} to review, written to {page}: open it in a browser; it saves {reviewed_name(page)}, a test set"
    console().print(escape(printable(message)), soft_wrap=True)
    open_if_possible(page, options)
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Compare the test sets and show the differences; with --fail-if-changed, raise BelowThreshold if there are any."""
    difference = Testset.load(options.old).diff(Testset.load(options.new))
    if options.json:
        write_json(difference.to_dict())
    else:
        _show_diff(difference)
    if options.fail_if_changed and difference:
        raise BelowThreshold(f"{options.old} and {options.new} differ: {difference.title}")
    return 0


def _show_diff(difference: TestsetDiff) -> None:
    out = console()
    out.print(f"[bold]{escape(difference.title)}[/bold]", soft_wrap=True)
    if not difference:
        return
    headings = ("", "row, then field and its change")
    rows = [[sign, printable(what)] for sign, what in difference.lines()]
    out.print(table_of(headings, rows, left=headings, colours=_COLOURS))
