"""Additions to the help of a command: examples, and the keys of `--json`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from textwrap import TextWrapper

from langchain_rageval.cli.json_output import KEYS

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "evaluate": (
        "rageval evaluate samples.jsonl --metrics all --html report.html",
        "rageval evaluate samples.csv --judge gigachat:GigaChat-2-Max --out r.jsonl",
        "rageval evaluate samples.csv --fail-under faithfulness=0.8 --until-decided",
        "rageval evaluate samples.csv --judge openai:gpt-4o-mini --audit openai:gpt-4o",
        "rageval evaluate samples.csv --judge openai:MODEL --batch --journal run.db",
        "rageval evaluate - --judge vllm:MODEL --base-url http://localhost:8000/v1",
    ),
    "resume": ("rageval resume run.db", "rageval resume run.db --max-concurrency 4"),
    "requests": ("rageval requests answers.jsonl --judge vllm:MODEL --out wave-1.jsonl",),
    "replies": (
        "rageval replies wave-1.out.jsonl --journal run.db",
        "rageval replies wave-2.out.jsonl --report r.jsonl --html report.html",
    ),
    "plan": (
        "rageval plan samples.jsonl --metrics faithfulness,context_recall --draws 3",
        "rageval plan s.csv --judge openai:gpt-4o-mini --price gpt-4o-mini=0.15,0.6",
        "rageval plan documents/ --generate --size 50",
    ),
    "report": ("rageval report report.jsonl --open", "rageval report report.jsonl --json"),
    "compare": ("rageval compare before.jsonl after.jsonl --margin 0.02 --fail-if-worse",),
    "ci": (
        "rageval ci answers.jsonl --fail-under faithfulness=0.8 --markdown summary.md",
        "rageval ci answers.jsonl --baseline main.jsonl --junit rageval.xml",
    ),
    "trend": ("rageval trend live.db --baseline dev.jsonl --by week", "rageval trend live.db --by version"),
    "runs": ("rageval runs reports/", "rageval runs reports/ --fail-under faithfulness=0.8"),
    "leaderboard": ("rageval leaderboard model-a.jsonl model-b.jsonl --metric faithfulness",),
    "rubric-study": ("rageval rubric-study answers.jsonl --judge openai:gpt-4o-mini --scale 0-3",),
    "qualify": (
        "rageval qualify --judge gigachat:GigaChat-2-Max --require faithfulness=care",
        "rageval qualify --judge offline --repeats 1",
    ),
    "label": (
        "rageval label report.jsonl --metric faithfulness --out labels.csv",
        "rageval label report.jsonl --metric faithfulness --html labels.html",
    ),
    "agreement": ("rageval agreement report.jsonl labels.csv --metric faithfulness",),
    "generate": (
        "rageval generate documents/ --size 50 --out testset.jsonl",
        "rageval generate documents/ --writer gigachat:GigaChat-2-Max --seed 7",
    ),
    "diff": ("rageval diff testset-1.jsonl testset-2.jsonl --fail-if-changed",),
    "review": ("rageval review testset.jsonl", "rageval review testset.jsonl --html page.html --no-open"),
    "run": (
        "rageval run app:chain testset.jsonl --out answers.jsonl",
        "rageval run app:chain testset.jsonl --journal answers.db --timeout 120",
    ),
    "metrics": ("rageval metrics", "rageval metrics --json"),
    "demo": ("rageval demo", "rageval demo --open"),
}
"""Example command lines of each command."""


def add_examples(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the examples of a command and the keys of its `--json` below the options."""
    lines = [f"  {example}" for example in EXAMPLES[command]]
    if command in KEYS:
        wrapper = TextWrapper(78, initial_indent="  ", subsequent_indent="    ")
        lines += ["", "keys of --json:", *(line for key in KEYS[command] for line in wrapper.wrap(key))]
    parser.epilog = "\n".join(["example:" if len(EXAMPLES[command]) == 1 else "examples:", *lines])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
