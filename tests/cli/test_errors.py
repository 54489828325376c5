"""Wrong usage and bad input, command by command: exit code 2, a message with the remedy, and nothing is written."""

import json
import shlex
import sys

import pytest
from helpers.each import each
from helpers.reports import report_of, row, scored
from helpers.samples import SAMPLE

from langchain_rageval import Report
from langchain_rageval.testset import Testset, TestsetRow

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
    "errors_app.py": ["chain, number = len, 5"],
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


ERRORS = {
    # Metrics
    "evaluate samples.jsonl --metrics faithfullness": "or MODULE:NAME; did you mean 'faithfulness'?",
    "evaluate samples.jsonl --metrics groundednes": "did you mean 'groundedness'?",
    "evaluate samples.jsonl --metrics ,": "comma-separated names, or core, retrieval, answer, all; use one of fa",
    "evaluate samples.jsonl --metrics ndcg": "'ndcg' needs a cutoff, a whole number of at least 1, as in ndcg@5",
    "evaluate samples.jsonl --metrics mrr@0": "'mrr@0' needs a cutoff, a whole number of at least 1, as in mrr@5",
    "evaluate samples.jsonl --metrics map@ten": "'map@ten' needs a cutoff, a whole number of at least 1, as in map@5",
    "evaluate samples.jsonl --metrics dcg@5": "unknown metric 'dcg@5'",
    "evaluate samples.jsonl --metrics context_recall": "lacks ['references']: fill it in or drop the metric",
    "evaluate found.jsonl --metrics ndcg@5": "lacks ['reference_context_ids']: fill it in or drop the metric; or use "
    "--grader labels or --grader llm or --grader embedding or --grader spans",
    "evaluate samples.jsonl --metrics ndcg@5 --grader people": "argument --grader: invalid choice: 'people'",
    "evaluate ranked.jsonl --metrics ndcg@5 --qrels x": "x does not exist: pass the path of an existing file",
    "evaluate - --qrels samples.jsonl": "--qrels and --topics need a TREC run in a file; stdin is read as JSON lines",
    "evaluate samples.jsonl --metrics no_such:metric": "--metrics no_such:metric cannot be imported: "
    "ModuleNotFoundError: No module named 'no_such'",
    "evaluate samples.jsonl --metrics helpers.own.tone:tune": "helpers.own.tone:tune cannot be imported: "
    "AttributeError: module 'helpers.own.tone' has no attribute 'tune'; did you mean 'tone'?",
    "evaluate samples.jsonl --metrics helpers.samples:SAMPLE": "helpers.samples:SAMPLE is not a metric but dict",
    "evaluate samples.jsonl --metrics helpers.own.politeness:rate": "helpers.own.politeness:rate built no metric: the "
    "step politeness is not a metric: write Metric(name, aspect=..., reads=..., steps=step, reduce=...)",
    "evaluate samples.jsonl --metrics helpers.own.tone:friendly": "helpers.own.tone:friendly is a function of (state): "
    "decorate it with @metric(reads=...), or let a builder take some of judge, embeddings",
    # Samples
    "evaluate nowhere.jsonl": "does not exist: pass the path of an existing file",
    "evaluate samples.txt": "expected one of .jsonl",
    "evaluate bare.jsonl": "lacks ['contexts']: fill it in or drop the metric",
    "evaluate numbers.jsonl": "got int: correct it, or map another name with fields={...} or --fields",
    "evaluate broken.jsonl": "broken.jsonl, line 2: not valid JSON",
    "evaluate empty.jsonl": "empty.jsonl contains no samples: pass at least one",
    "evaluate samples.jsonl --fields frage=q": "'frage' is not a field: use one of id, question",
    "evaluate samples.jsonl --fields question": "--fields takes NAME=VALUE, got 'question'",
    "evaluate samples.jsonl --on-error ignore": "invalid choice: 'ignore'",
    "evaluate samples.jsonl --metric x --colour blue": "unrecognized arguments: --colour blue",
    # Judges and embeddings
    "evaluate samples.jsonl --judge ofline": "llamacpp:PATH; did you mean 'offline'?",
    "evaluate samples.jsonl --judge gigachatt": "llamacpp:PATH; did you mean 'gigachat'?",
    "evaluate samples.jsonl --judge openai:m": "openai needs a key in the environment: set OPENAI_API_KEY",
    "evaluate samples.jsonl --judge gigachat:m": "gigachat needs a key in the environment: set GIGACHAT_CREDENTIALS",
    "evaluate samples.jsonl --judge vllm:m": "--base-url http://HOST:8000/v1",
    "evaluate samples.jsonl --judge openai": "use offline, openai:MODEL",
    "evaluate samples.jsonl --metrics answer_relevance --embeddings nonsense": "'nonsense' names no embeddings; use "
    "offline",
    "evaluate samples.jsonl --metrics answer_relevance --embeddings openai:m": "openai needs a key in the environment",
    "evaluate samples.jsonl --mode xml": "mode must be one of auto, json_schema",
    "evaluate samples.jsonl --draws 2": "draws must be an odd number",
    "evaluate samples.jsonl --max-concurrency 0 --journal j": "max_concurrency must be a whole number of at least 1",
    "evaluate samples.jsonl --timeout -1 --journal j": "timeout must be a number of seconds above 0",
    "evaluate samples.jsonl --audit-share 0.2 --journal j": "--audit-share and --audit-base-url need a strong judge; "
    "add --audit MODEL",
    "evaluate samples.jsonl --audit-base-url http://x": "--audit-share and --audit-base-url need a strong judge; add "
    "--audit MODEL",
    "evaluate samples.jsonl --audit offline --audit-share 0 --journal j": "share must be a number above 0 and at most "
    "1, such as 0.1, got 0.0",
    "evaluate samples.jsonl --budget-calls=-1": "a budget's calls must be a whole number of at least 0",
    "evaluate samples.jsonl --budget-tokens many": "argument --budget-tokens: invalid int value: 'many'",
    "evaluate samples.jsonl --budget-embeddings 1.5": "argument --budget-embeddings: invalid int value: '1.5'",
    "evaluate samples.jsonl --batch": "OfflineJudge has no supported batch API: batch= takes judges of ChatOpenAI and "
    "ChatAnthropic, such as openai:MODEL and anthropic:MODEL; leave it out for other judges",
    "requests samples.jsonl": "OfflineJudge has no supported batch API: requests are written for models of ChatOpenAI, "
    "such as vllm:MODEL and openai:MODEL",
    "replies out.jsonl": "run.db is not a file; pass the file that was given to `rageval requests --journal`",
    # Gates
    "evaluate samples.jsonl --fail-under faithfulness": "--fail-under takes NAME=VALUE",
    "evaluate samples.jsonl --fail-under faithfulness=high": "--fail-under takes METRIC=NUMBER, got faithfulness=high",
    "evaluate samples.jsonl --fail-under faithfulness=nan": "--fail-under takes METRIC=NUMBER, got faithfulness=nan",
    "evaluate samples.jsonl --fail-under recall=0.5": "--fail-under recall: not among --metrics faithfulness; add it",
    "evaluate samples.jsonl --fail-under claim_f1=1": "--fail-under claim_f1: not among --metrics faithfulness",
    "evaluate samples.jsonl --fail-under faithfullness=1": "--metrics faithfulness; did you mean 'faithfulness'?",
    "evaluate samples.jsonl --metrics helpers.own.politeness:politeness --fail-under polite=1": "--fail-under polite: "
    "not among --metrics politeness",
    "evaluate samples.jsonl --max-failed few": "invalid float value: 'few'",
    "evaluate samples.jsonl --max-failed 5": "--max-failed must be a share from 0 to 1, got 5",
    "evaluate samples.jsonl --until-decided": "--until-decided needs a gate to decide; add --fail-under METRIC=NUMBER",
    # Files
    "evaluate samples.jsonl --out /no/such/folder/x.jsonl": "the folder /no/such/folder does not exist or is not "
    "writable; choose another path",
    "evaluate samples.jsonl --out /dev": "--out /dev is not a file; choose another path",
    "evaluate samples.jsonl --out samples.jsonl": "--out samples.jsonl is the input file; choose another path",
    "evaluate samples.jsonl --json --out -": "--json and --out - both write to stdout; use --out with a file name",
    "generate docs --json --out -": "--json and --out - both write to stdout; use --out with a file name",
    # A plan
    "plan samples.jsonl --language de": "language must be one of",
    "plan samples.jsonl --journal .": "journal",
    "plan samples.jsonl --until-decided": "--until-decided needs a gate to decide; add --fail-under METRIC=NUMBER",
    "plan samples.jsonl --judge openai:m --price openai:m=1,1 --price vllm:m=9,9": "--price gives the model m two "
    "prices; give it one",
    "plan samples.jsonl --writer openai:w": "--writer and --critic are for the plan of a test set: add --generate, or "
    "use --judge",
    "plan docs": "docs is a folder: add --generate to estimate a test set from its documents",
    "plan nowhere --generate": "nowhere does not exist: name a file or a folder of documents",
    **{
        f"plan docs --generate {words}": f"{words.split()[0]} is for the plan of an evaluation: omit it, or omit "
        "--generate"
        for words in ("--audit offline", "--batch", "--fail-under faithfulness=1", "--journal j.db", "--pilot 3")
    },
    # Chains
    "run errors_app testset.jsonl": "name the chain as MODULE:CHAIN, such as app:chain; got errors_app",
    "run errors_app:nothing testset.jsonl": "the chain errors_app:nothing cannot be imported: AttributeError: module "
    "'errors_app' has no attribute 'nothing'",
    "run no_app:chain testset.jsonl": "the chain no_app:chain cannot be imported: ModuleNotFoundError: No module named "
    "'no_app'",
    "run errors_app:number testset.jsonl": "a chain must be a Runnable or a function of the question, got int",
    "run errors_app:chain nowhere.jsonl": "nowhere.jsonl does not exist: pass the path of an existing file",
    "run errors_app:chain empty.jsonl --journal answers.db": "empty.jsonl contains no questions: pass at least one",
    "run errors_app:chain testset.jsonl --out testset.jsonl": "--out testset.jsonl is the input file; choose another "
    "path",
    "run errors_app:chain testset.jsonl --max-concurrency 0 --journal answers.db": "max_concurrency must be a whole "
    "number of at least 1, got 0",
    "ci samples.jsonl": "rageval ci needs a gate: add --fail-under METRIC=NUMBER or --baseline REPORT",
    "ci samples.jsonl --fail-under faithfulness=0.8 --out -": "rageval ci writes the report to a file; name it with "
    "--out FILE",
    "ci samples.jsonl --fail-under faithfulness=1 --labels labels.csv": "--labels needs two reports to compare: add "
    "--baseline REPORT",
    "ci samples.jsonl --judge offline --baseline report.jsonl --require confirmed": "--require confirmed needs "
    "--labels FILE, a sheet that people labelled: write one with `rageval label CANDIDATE --baseline BASELINE`",
    # Reports
    "report none.jsonl": "cannot be read",
    "report report.jsonl --html report.jsonl": "is the input file; choose another path",
    "report report.jsonl --html no/x.html": "does not exist or is not writable; choose another path",
    "report report.jsonl --baseline report.jsonl": "--baseline needs --html or --open; to compare in the terminal, use "
    "rageval compare",
    "compare nowhere.jsonl report.jsonl": "nowhere.jsonl cannot be read",
    "compare report.jsonl samples.jsonl": "samples.jsonl is not a report",
    "compare report.jsonl other.jsonl": "in common: report.jsonl has faithfulness, other.jsonl has other; score both",
    "compare report.jsonl report.jsonl --margin nan": "margin must be a number of at least 0",
    "compare report.jsonl report.jsonl --margin wide": "invalid float value",
    "compare report.jsonl report.jsonl --require confirmed": 'require="confirmed" needs labels=',
    "compare report.jsonl": "the following arguments are required: candidate",
    "trend report.jsonl --margin nan": "margin must be a number of at least 0, in the metrics' units, got nan",
    "trend report.jsonl --html report.jsonl": "--html report.jsonl is the input file; choose another path",
    "trend report.jsonl --baseline other.jsonl --html other.jsonl": "--html other.jsonl is the input file; choose",
    "runs none": "none has no reports; `rageval evaluate --out none/NAME.jsonl` writes one",
    "runs nowhere": "nowhere is not a folder; name the folder with the reports",
    "runs . --fail-under faithfulnes=0.8": "--fail-under faithfulnes: no run has this metric; the runs have ",
    "leaderboard report.jsonl --metric tone": "the report has no metric 'tone'; it has faithfulness",
    "leaderboard nowhere.jsonl": "nowhere.jsonl cannot be read",
    # Labels
    "label report.jsonl --n 0": "at least 1, got 0",
    "label report.jsonl --metric rubric": "the report has no metric 'rubric'",
    "label report.jsonl --scale 0 3": "--scale and --instruction apply only to the HTML page: add --html",
    "label report.jsonl --instruction Fine?": "--scale and --instruction apply only to the HTML page: add --html",
    "label report.jsonl --html --scale 0 30": "scale is the lowest and the highest grade, from 0 to 9, as (1, 5); got "
    "(0, 30)",
    "agreement report.jsonl nowhere.csv": "nowhere.csv cannot be read",
    "agreement report.jsonl labels.csv --threshold 0.9": "a binary label is 0 or 1",
    "label report.jsonl --out report.jsonl": "--out report.jsonl is the input file; choose another path",
    "agreement report.jsonl labels.csv --out labels.csv": "--out labels.csv is the input file; choose another path",
    "rubric-study sheets.jsonl --out none": "--out none is not a file; choose another path",
    "rubric-study sheets.jsonl --scale three": "--scale takes LOW-HIGH, such as 0-3, got 'three'",
    "rubric-study sheets.jsonl --scale 3-0": "scale must be the lowest and the highest grade",
    "rubric-study sheets.jsonl --label-scale x": "--label-scale takes LOW-HIGH, such as 0-3, got 'x'",
    "rubric-study sheets.jsonl --labels none": "--labels none: no sample has a value under this key in its metadata",
    "rubric-study sheets.jsonl --price offline=1": "--price takes MODEL=INPUT,OUTPUT[,CACHED], such as offline=2.5,10, "
    "got offline=1",
    "rubric-study sheets.jsonl --price other=1,2": "price names 'other'",
    "rubric-study sheets.jsonl --judge nobody:": "names no judge",
    "rubric-study empty.jsonl": "empty.jsonl contains no samples: pass at least one",
    # Test sets
    "generate nowhere": "nowhere does not exist: name a file or a folder of documents",
    "generate none": "the documents hold no text to ask about",
    "generate docs --focus saana.md": "focus: no passage has the source 'saana.md'; ",
    "generate docs --focus topic=x": "focus: no passage has 'topic' in its metadata; ",
    "generate docs --distribution clever=1": "there is no evolution 'clever'",
    "generate docs --distribution simple": "--distribution takes NAME=VALUE",
    "generate docs --distribution simple=much": "--distribution takes NAME=SHARE",
    "generate docs --distribution reasoning+persona=1": "reasoning+persona in --distribution needs --persona",
    "generate docs --persona 'A tenant'": "--persona needs a share: add persona",
    "generate docs --persona ' ' --distribution persona=1": "persona(description) needs a sentence that says who asks",
    "generate docs --persona 'A tenant' --distribution clever+persona=1": "there is no evolution 'clever+persona'",
    "generate docs --stratify topic": "stratify: no passage has 'topic' in its metadata",
    "generate docs --size 0": "size must be a whole number",
    "generate docs --out /nowhere/at/all/t.jsonl": "--out /nowhere/at/all/t.jsonl: the folder /nowhere/at/all does not "
    "exist or is not writable; choose another path",
    "generate docs --writer vllm:m": "vllm needs the address",
    "generate docs --language tlh": "language must be one of",
    "generate docs --where 'faithfulness < 1'": "add --adopt FILE",
    "review nowhere.jsonl": "nowhere.jsonl cannot be read: No such file or directory",
    "review report.jsonl": "is not a test set that Testset.to_jsonl wrote",
    "review testset.jsonl --html testset.jsonl": "is the input file; choose another path",
    "review testset.jsonl testset.jsonl": "review takes one test set, or with --merge two copies",
    "review --merge testset.jsonl": "review takes one test set, or with --merge two copies",
    "diff testset.jsonl nowhere.jsonl": "nowhere.jsonl ",
    "diff testset.jsonl samples.txt": "samples.txt ",
    # Judges under test
    "qualify --quick --full": "--quick and --full exclude each other",
    "qualify --own nowhere.jsonl": "nowhere.jsonl: labelled items could not be read",
    "qualify --language tlh": "language must be one of",
    "qualify --language zh": "labelled items come in en, ru",
    "qualify --repeats 0": "repeats must be a whole number",
    "qualify --require faithfulness": "--require takes NAME=VALUE",
    "qualify --require faithfulness=great": "--require takes METRIC=fit (the judge must be fit) or METRIC=care (fit, "
    "or fit with care), got ",
    "qualify --require beauty=fit": "--require beauty: unknown metric; use one of faithfulness",
    "qualify --out /nowhere/at/all/q.json": "/nowhere/at/all does not exist or is not writable; choose another path",
    "qualify --out .": "--out . is not a file; choose another path",
    "qualify --judge vllm:m": "vllm needs the address",
}
"""Messages by command line."""


@each("line", ERRORS)
def test_wrong_usage_is_one_message_and_nothing_is_written(rageval, folder, line):
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    code, told, complaints = rageval(*shlex.split(line))
    assert (code, told) == (2, "")
    assert ERRORS[line] in complaints
    if not complaints.startswith("usage: rageval "):
        assert (complaints.startswith("rageval: "), complaints.count("\n")) == (True, 1)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


@pytest.mark.parametrize("words", [[], ["appraise"], ["evaluate"]])
def test_an_unknown_command_shows_the_usage(rageval, words):
    code, told, complaints = rageval(*words)
    assert (code, told) == (2, "")
    assert "usage: rageval" in complaints
