"""Help, version, wrong usage and bad input of all commands; exit code 2 and a message with the remedy."""

import argparse
import json
import re
import shlex
import sys

import pytest
from helpers.each import each
from helpers.reports import report_of, row, scored
from helpers.samples import SAMPLE
from helpers.stored import assert_stored

from langchain_rageval import Report
from langchain_rageval._version import __version__
from langchain_rageval.cli.main import build_parser, load_commands
from langchain_rageval.testset import Testset, TestsetRow


def test_the_version(rageval):
    assert rageval("--version") == (0, f"rageval {__version__}\n", "")


def test_an_unexpected_error_ends_in_one_line(rageval, monkeypatch):
    def broken(*_, **__):
        raise LookupError("what is\nthis \x1b[31m?")

    monkeypatch.setattr("langchain_rageval.cli.demo.evaluate", broken)
    code, _, complaints = rageval("demo")
    assert (code, complaints) == (2, "rageval: unexpected LookupError: what is this \ufffd[31m?\n")


# `--help` has examples, and they are real

EXAMPLES = {name: command["examples"] for name, command in load_commands().items()}
HELPS = ("--help", "--help-all")


def commands():
    (found,) = (part for part in build_parser()._actions if isinstance(part, argparse._SubParsersAction))
    return found.choices


def test_every_command_has_examples():
    assert commands().keys() == EXAMPLES.keys()


@each("command", EXAMPLES)
def test_its_examples_are_shown_whole_and_parse(rageval, command):
    code, told, _ = rageval(command, "--help")
    assert code == 0
    for line in EXAMPLES[command]:
        assert f"\n  {line}\n" in told
        assert len(line) <= 78
        name, *words = shlex.split(line)
        assert name == "rageval"
        assert words[0] == command
        assert callable(build_parser().parse_args(words).run)


def test_the_first_screen_has_the_daily_commands_and_names_the_others(rageval):
    code, short, _ = rageval("--help")
    assert code == 0
    assert len(short.splitlines()) <= 24
    described = {line.split()[0] for line in short.splitlines() if line.startswith("  ") and line[2].isalpha()}
    assert described == {"evaluate", "run", "compare", "ci", "generate"}
    whole = rageval("--help-all")[1]
    for name, command in load_commands().items():
        assert re.search(rf"\b{name}\b", short)
        assert command["help"].split()[0] in whole.partition(f"\n  {name} ")[2].splitlines()[0]


def test_rare_options_and_keys_are_shown_by_help_all_alone(rageval):
    parser = commands()["evaluate"]
    options = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    short, whole = (re.findall(r"^  (?:-h, )?(--[a-z-]+)", rageval("evaluate", how)[1], re.M) for how in HELPS)
    assert set(short) < set(whole) == options
    assert len(short) <= 25
    titles = ["samples and metrics:", "judge:", "results:", "gates:", "cost:"]
    for how in HELPS:
        lines = rageval("evaluate", how)[1].splitlines()
        assert [line for line in lines if line in titles] == titles
        assert ("keys of --json:" in lines) == (how == "--help-all")


# Wrong usage and bad input, command by command

TRUTH = {"reference": "Munich is old.", "metadata": {"model": "new", "people": {"correctness": 3}}}
FILES = {
    "samples.jsonl": [SAMPLE],
    "bare.jsonl": [{"question": "q", "answer": "a"}],
    "empty.jsonl": [],
    "numbers.jsonl": [{"question": 7}],
    "broken.jsonl": [SAMPLE, "{oops"],
    "ranked.jsonl": [{**SAMPLE, "context_ids": ["a", "b"], "reference_context_ids": ["b"]}],
    "sheets.jsonl": [{**SAMPLE, **TRUTH}],
    "samples.txt": ["{oops"],
    "found.jsonl": [{**SAMPLE, "context_ids": ["a", "b"]}],
    "errors_app.py": ["chain, number = len, 5", "def build(judge, depth): return judge"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory, with files of every kind."""
    for name, lines in FILES.items():
        texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (tmp_path / "labels.csv").write_text("id,label\nq-0,3\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "munich.txt").write_text("Munich was founded in 1158 by Henry the Lion.", encoding="utf-8")
    (tmp_path / "none").mkdir()
    report_of(*[scored(1.0)] * 3).to_jsonl(tmp_path / "report.jsonl")
    Report([row(0, scored(1.0, "other"))]).to_jsonl(tmp_path / "other.jsonl")
    Testset([TestsetRow(id="a", question="Why?", contexts=[], reference="So.", evolution="simple")]).to_jsonl(
        tmp_path / "testset.jsonl"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


LINES = r"""
# Metrics
evaluate samples.jsonl --metrics faithfullness
evaluate samples.jsonl --metrics groundednes
evaluate samples.jsonl --metrics ,
evaluate samples.jsonl --metrics ndcg
evaluate samples.jsonl --metrics mrr@0
evaluate samples.jsonl --metrics dcg@5
evaluate samples.jsonl --metrics context_recall
evaluate found.jsonl --metrics ndcg@5
evaluate samples.jsonl --metrics ndcg@5 --grader people
evaluate ranked.jsonl --metrics ndcg@5 --grader embedding --judge vllm:m --base-url http://127.0.0.1:9/v1
evaluate ranked.jsonl --metrics ndcg@5 --qrels x
evaluate - --qrels samples.jsonl
evaluate samples.jsonl --metrics no_such:metric
evaluate samples.jsonl --metrics helpers.own.tone:tune
evaluate samples.jsonl --metrics helpers.samples:SAMPLE
evaluate samples.jsonl --metrics helpers.own.politeness:rate
evaluate samples.jsonl --metrics helpers.own.tone:friendly
evaluate samples.jsonl --metrics errors_app:build
# Samples
evaluate nowhere.jsonl
evaluate samples.txt
evaluate bare.jsonl
evaluate numbers.jsonl
evaluate broken.jsonl
evaluate empty.jsonl
evaluate samples.jsonl --fields frage=q
evaluate samples.jsonl --fields question
evaluate samples.jsonl --metric x --colour blue
# Judges and embeddings
evaluate samples.jsonl --judge ofline
evaluate samples.jsonl --judge openai:m
evaluate samples.jsonl --judge gigachat:m
evaluate samples.jsonl --judge vllm:m
evaluate samples.jsonl --judge openai
evaluate samples.jsonl --metrics answer_relevance --embeddings nonsense
evaluate samples.jsonl --metrics answer_relevance --embeddings openai:m
evaluate samples.jsonl --metrics answer_relevance --judge vllm:m --base-url http://127.0.0.1:9/v1
evaluate samples.jsonl --mode xml
evaluate samples.jsonl --draws 2
evaluate samples.jsonl --max-concurrency 0 --journal j
evaluate samples.jsonl --timeout -1 --journal j
evaluate samples.jsonl --audit-share 0.2 --journal j
evaluate samples.jsonl --audit-base-url http://x
evaluate samples.jsonl --audit offline --audit-share 0 --journal j
evaluate samples.jsonl --budget-calls=-1
evaluate samples.jsonl --budget-tokens many
evaluate samples.jsonl --batch
requests samples.jsonl
replies out.jsonl
resume nowhere.db
# Addresses with a secret
evaluate https://me:password-7@host/v1?api_key=password-7
evaluate samples.jsonl --judge https://me:password-7@host/v1?api_key=password-7
evaluate samples.jsonl --base-ulr https://me:password-7@host/v1?api_key=password-7
evaluate samples.jsonl --temperature https://me:password-7@host/v1?api_key=password-7
# Gates
ci samples.jsonl --baseline report.jsonl --metrics faithfulness
evaluate samples.jsonl --fail-under faithfulness=0.5
evaluate samples.jsonl --fail-under faithfulness=high
evaluate samples.jsonl --fail-under faithfulness=nan
evaluate samples.jsonl --fail-under recall=0.5
evaluate samples.jsonl --fail-under faithfullness=1
evaluate samples.jsonl --metrics helpers.own.politeness:politeness --fail-under polite=1
evaluate samples.jsonl --max-failed few
evaluate samples.jsonl --max-failed 5
evaluate samples.jsonl --until-decided
# Files
evaluate samples.jsonl --out /no/such/folder/x.jsonl
evaluate samples.jsonl --out /dev
evaluate samples.jsonl --out samples.jsonl
evaluate samples.jsonl --json --out -
evaluate samples.jsonl --json --out /dev/stdout
evaluate samples.jsonl --html -
label report.jsonl --out /dev/stdout
agreement report.jsonl labels.csv --out /dev/stdout
rubric-study sheets.jsonl --out -
qualify --out -
# A plan
plan samples.jsonl --language de
plan samples.jsonl --journal .
plan samples.jsonl --judge openai:m --price openai:m=1,1 --price vllm:m=9,9
plan samples.jsonl --writer openai:w
plan docs
plan docs --generate --audit offline
plan docs --generate --batch
plan docs --generate --fail-under faithfulness=1
plan docs --generate --journal j.db
plan docs --generate --pilot 3
# Chains
run errors_app testset.jsonl
run errors_app:nothing testset.jsonl
run errors_app:number testset.jsonl
run errors_app:chain empty.jsonl --journal answers.db
run errors_app:chain testset.jsonl --max-concurrency 0 --journal answers.db
ci samples.jsonl
ci samples.jsonl --fail-under faithfulness=0.8 --out -
ci samples.jsonl --fail-under faithfulness=1 --labels labels.csv
ci samples.jsonl --judge offline --baseline report.jsonl --require confirmed
# Reports
report none.jsonl
report report.jsonl --html report.jsonl
report report.jsonl --baseline report.jsonl
compare report.jsonl samples.jsonl
compare report.jsonl other.jsonl
compare report.jsonl report.jsonl --margin nan
compare report.jsonl report.jsonl --require confirmed
compare report.jsonl
trend report.jsonl --baseline other.jsonl --html other.jsonl
runs none
runs nowhere
runs . --fail-under faithfulnes=0.8
# Labels
label report.jsonl --n 0
label report.jsonl --metric rubric
label report.jsonl --scale 0 3
label report.jsonl --html --scale 0 30
agreement report.jsonl nowhere.csv
agreement report.jsonl labels.csv --threshold 0.9
rubric-study sheets.jsonl --scale three
rubric-study sheets.jsonl --scale 3-0
rubric-study sheets.jsonl --label-scale x
rubric-study sheets.jsonl --labels none
rubric-study sheets.jsonl --price offline=1
rubric-study sheets.jsonl --price other=1,2
rubric-study sheets.jsonl --judge nobody:
rubric-study empty.jsonl
# Test sets
generate nowhere
generate none
generate docs --focus saana.md
generate docs --focus topic=x
generate docs --distribution clever=1
generate docs --distribution simple=much
generate docs --distribution reasoning+persona=1
generate docs --persona 'A tenant'
generate docs --persona ' ' --distribution persona=1
generate docs --persona 'A tenant' --distribution clever+persona=1
generate docs --stratify topic
generate docs --size 0
generate docs --language tlh
generate docs --where 'faithfulness < 1'
generate docs --adopt report.jsonl --where 'faithfulness ~ 1' --writer nonsense
generate docs --adopt report.jsonl --where 'faithfulness < 0.5.5' --writer nonsense
generate docs --adopt report.jsonl --where 'b < 1' --writer nonsense
review nowhere.jsonl
review report.jsonl
review testset.jsonl --html testset.jsonl
review testset.jsonl testset.jsonl
review --merge testset.jsonl
diff testset.jsonl samples.txt
# Judges under test
qualify --quick --full
qualify --own nowhere.jsonl
qualify --language zh
qualify --repeats 0
qualify --require faithfulness=great
qualify --require beauty=fit
"""
"""Wrong command lines, by subject."""


def test_wrong_usage_is_one_message_and_nothing_is_written(rageval, folder):
    """The messages are in tests/fixtures/outputs/errors.txt."""
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    told, faults = [], []
    for line in filter(None, LINES.splitlines()):
        if line.startswith("# "):
            told.append(line)
            continue
        code, out, complaints = rageval(*shlex.split(line))
        *usage, message = complaints.splitlines()
        shape = ["usage: rageval "] if ": error: " in message else []
        if (code, out, [one[:15] for one in usage]) != (2, "", shape):
            faults.append(f"{line}: {code} {out}{complaints}")
        if {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} != before:
            faults.append(f"{line}: files were written")
        message = re.sub(r" \(choose from .*\)|(?<=LangChain can build: ).*", "", message)  # of other packages
        told += [f"$ rageval {line}", message.replace(str(folder), "FOLDER")]
    assert faults == []
    assert_stored("errors.txt", "\n".join(told) + "\n")


@pytest.mark.parametrize("words", [[], ["appraise"], ["evaluate"]])
def test_an_unknown_command_shows_the_usage(rageval, words):
    code, told, complaints = rageval(*words)
    assert (code, told) == (2, "")
    assert "usage: rageval" in complaints
