"""`rageval generate PATH`: make a test set from documents."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.evaluate import add_budget_options, add_quiet_option, budget_of, pairs_in
from langchain_rageval.cli.machine import PIPE, add_json_option, refuse_both, stdout, told_of_testset, write_json
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.judge.judge import Judge
    from langchain_rageval.testset.testset import Testset


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "generate", help="make questions with reference answers from documents"
    )
    parser.set_defaults(run=run)
    parser.add_argument("path", help="file or folder of documents: text, Markdown, JSON lines; others by their loaders")
    parser.add_argument("--size", type=int, default=10, help="rows to make (default: %(default)s)")
    parser.add_argument(
        "--distribution",
        default="simple=0.5,reasoning=0.25,conditional=0.15,multi_context=0.1",
        help="evolutions with their shares; reasoning+conditional is one after the other (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: %(default)s)")
    parser.add_argument(
        "--writer",
        default="offline",
        help="model that writes, named as `rageval evaluate --judge` does (default: offline)",
    )
    parser.add_argument("--critic", help="model that reviews (default: the writer's)")
    parser.add_argument("--base-url", help="address of their server")
    parser.add_argument("--writer-temperature", type=float, default=0.7, help="(default: %(default)s)")
    parser.add_argument("--critic-temperature", type=float, default=1e-8, help="(default: %(default)s)")
    parser.add_argument("--closed-book", action="store_true", help="drop what the critic answers without the documents")
    parser.add_argument("--embeddings", help="offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL] (default: offline)")
    parser.add_argument("--embeddings-base-url", help="address of their server (default: --base-url)")
    parser.add_argument("--language", default="auto", help="of the prompts (default: that of each passage)")
    parser.add_argument(
        "--out",
        default="testset.jsonl",
        help="write the test set there; - for stdout, with the table on stderr (default: %(default)s)",
    )
    parser.add_argument("--journal", help="keep finished steps in this SQLite file; the same command goes on from it")
    add_budget_options(parser)
    parser.add_argument("--max-concurrency", type=int, default=16, help="model calls at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a model call (default: %(default)s)")
    add_json_option(parser)
    add_quiet_option(parser)


def run(options: argparse.Namespace) -> int:
    """Check everything that can be checked before the first call, then generate, write and show."""
    from langchain_rageval.cli.tables import console, show_testset
    from langchain_rageval.models.loading import load_embeddings
    from langchain_rageval.testset.generator import TestsetGenerator
    from langchain_rageval.testset.readers import load_documents

    refuse_both(options)
    if not Path(options.out).resolve().parent.is_dir():
        raise ConfigError(f"--out {options.out}: there is no such folder; choose another place")
    if not Path(options.path).exists():
        raise ConfigError(f"{options.path} is not there: name a file or a folder of documents")
    critic = _model(options, options.critic or options.writer, options.critic_temperature)
    generator = TestsetGenerator(
        _model(options, options.writer, options.writer_temperature),
        critic,
        load_embeddings(options.embeddings or "offline", base_url=options.embeddings_base_url or options.base_url),
        _distribution(options.distribution),
        size=options.size,
        seed=options.seed,
        closed_book=critic if options.closed_book else None,
        language=options.language,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        journal=options.journal,
        budget=budget_of(options),
        progress=not options.quiet,
    )
    testset = generator.generate(list(load_documents(options.path)))
    _refuse_nothing(testset)
    piped = options.out == PIPE
    testset.to_jsonl(stdout() if piped else options.out)
    if options.json:
        write_json(told_of_testset(testset))
    else:
        show_testset(testset, console(stderr=piped), written="" if piped else options.out)
    if testset.broken_off:
        raise KeyboardInterrupt
    return 0


def _model(options: argparse.Namespace, name: str, temperature: float) -> Judge:
    from langchain_rageval.models.loading import load_judge

    return load_judge(name, base_url=options.base_url, temperature=temperature)


def _distribution(given: str) -> dict[str, float]:
    shares = {}
    for name, share in pairs_in(given.split(","), "--distribution").items():
        try:
            shares[name] = float(share)
        except ValueError:
            raise ConfigError(f"--distribution takes NAME=SHARE, got {name}={share}") from None
    return shares


def _refuse_nothing(testset: Testset) -> None:
    if not testset.rows:
        rejected = "; ".join(f"{count} {reason}" for reason, count in testset.yields["rejected"].items())
        told = " ".join(
            [f"no question could be had from {testset.yields['attempts']} attempts: {rejected}.", *testset.notes]
        )
        raise ConfigError(told)
