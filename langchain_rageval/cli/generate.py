"""`rageval generate PATH`: generate a test set from documents."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.html import pluralize
from langchain_rageval.cli.arguments import (
    PIPE,
    add_budget_options,
    add_call_options,
    add_price_option,
    add_quiet_option,
    parse_pairs,
    parse_prices,
)
from langchain_rageval.cli.inputs import build_budget
from langchain_rageval.cli.json_output import (
    add_json_option,
    check_single_stdout,
    json_stdout,
    testset_object,
    write_json,
)
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.judge.judge import Judge
    from langchain_rageval.testset.testset import Testset

_PERSONA = "persona"


def add_to(commands: Any) -> None:
    """Add the command `rageval generate` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "generate", help="generate questions with reference answers from documents"
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "path",
        help="file or folder of documents: text, Markdown or JSON lines; other formats need their LangChain loader",
    )
    add_row_options(parser)
    parser.add_argument(
        "--writer",
        default="offline",
        help="model that writes questions and answers, named as in `rageval evaluate --judge` (default: %(default)s)",
    )
    parser.add_argument("--critic", help="model that reviews them (default: the same as --writer)")
    parser.add_argument("--base-url", metavar="URL", help="address of writer and critic")
    parser.add_argument(
        "--writer-temperature", type=float, default=0.7, help="temperature of the writer (default: %(default)s)"
    )
    parser.add_argument(
        "--critic-temperature", type=float, default=1e-8, help="temperature of the critic (default: %(default)s)"
    )
    parser.add_argument("--embeddings", help="offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL] (default: offline)")
    parser.add_argument(
        "--embeddings-base-url", metavar="URL", help="address of the embeddings model (default: --base-url)"
    )
    parser.add_argument(
        "--language", default="auto", help="language of the prompts (default: the language of each passage)"
    )
    parser.add_argument(
        "--out",
        default="testset.jsonl",
        metavar="FILE",
        help="write the test set as JSON lines; - writes it to stdout and the table to stderr (default: %(default)s)",
    )
    parser.add_argument(
        "--journal", metavar="FILE", help="SQLite file for finished steps; the same command continues from it"
    )
    add_budget_options(parser)
    add_call_options(parser)
    add_price_option(parser)
    add_json_option(parser)
    add_quiet_option(parser)


def add_row_options(parser: Any) -> None:
    """Add the options that decide which rows are generated, to a parser or a group of options."""
    parser.add_argument("--size", type=int, default=10, help="number of questions (default: %(default)s)")
    parser.add_argument(
        "--distribution",
        default="simple=0.5,reasoning=0.25,conditional=0.15,multi_context=0.1",
        help="share of each evolution; reasoning+conditional applies both in turn (default: %(default)s)",
    )
    parser.add_argument(
        "--persona",
        action="append",
        metavar="TEXT",
        help="who asks, in a sentence; may be repeated: the share of `persona` in --distribution is divided among them",
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help="ask about each fact with every evolution of --distribution; the questions about one fact share tree_id",
    )
    parser.add_argument(
        "--focus",
        action="append",
        metavar="SOURCE|NAME=VALUE",
        help="start questions from these documents only: a source, in which * stands for any characters, or a value in "
        "the metadata; may be repeated (default: all documents)",
    )
    parser.add_argument(
        "--stratify",
        default="source",
        metavar="NAME",
        help="name in the metadata whose values each get their share of the questions, such as topic "
        "(default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices (default: %(default)s)")
    parser.add_argument(
        "--closed-book", action="store_true", help="drop questions that the critic can answer without the documents"
    )


def run(options: argparse.Namespace) -> int:
    """Check all options before the first call, then generate, write and show the test set."""
    from langchain_rageval.cli.tables import console, show_testset
    from langchain_rageval.models.loading import load_embeddings
    from langchain_rageval.testset.generator import TestsetGenerator
    from langchain_rageval.testset.readers import load_documents

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
        show_testset(testset, console(stderr=to_stdout), written="" if to_stdout else options.out)
    if testset.broken_off:
        raise KeyboardInterrupt
    return 0


def _model(options: argparse.Namespace, name: str, temperature: float) -> Judge:
    from langchain_rageval.models.loading import load_judge

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
    from langchain_rageval.testset.distribution import branch_of_names
    from langchain_rageval.testset.evolutions import persona

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
