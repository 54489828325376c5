"""The README is true: its blocks run, its commands are real ones and those that the gate runs."""

import re
import shlex
import tomllib
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.munich import offline_reply, recording_judge
from helpers.reports import report_of, scored
from langsmith.utils import get_env_var

import langchain_rageval
from langchain_rageval import (
    BelowThreshold,
    HashingEmbeddings,
    Metric,
    Report,
    answer_correctness,
    answer_relevance,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    suite,
)
from langchain_rageval.cli import main
from langchain_rageval.metrics import BUILDERS
from langchain_rageval.prompts.criteria import default_criteria

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUSSIAN = (ROOT / "README.ru.md").read_text(encoding="utf-8")
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def title(block):
    return re.findall(r"^#+ (.*)$", README[: README.index(block)], re.MULTILINE)[-1]


PYTHON = {title(block): block for block in blocks("python")}
COMMANDS = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
SAMPLE = {"question": "Q?", "answer": "Munich is old. Berlin is new.", "contexts": ["Munich is old."]}
PUBLIC = {name: getattr(langchain_rageval, name) for name in BUILDERS}
FIELDS = ("answer", "contexts", "references")


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Run the block under a heading, with `names` there already; gives the names it leaves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")

    def run(heading, **names):
        exec(compile(PYTHON[heading], f"README.md, {heading}", "exec"), names)
        return names

    return run


def test_every_block_is_tried_below():
    titles = ["In Python", "In a chain", "The metrics", "With GigaChat", "With vLLM", "Your own function as a judge"]
    elsewhere = ["On more machines"]  # integrations/test_ray.py
    titles += ["Questions from your documents", "Without a model", "Does the judge agree with people"]
    titles += ["Grades instead of fractions", "Whether a judge can be believed"]
    titles += ["A retriever without labels", "Where right and wrong statements come from"]
    titles += ["In production", "LangSmith", "MLflow", "pytest", "A guard in LangGraph"]
    titles.append("Figures and notebooks")
    assert sorted(PYTHON) == sorted([*titles, *elsewhere, "What it costs, and no more than that"])
    assert len(PYTHON) == len(blocks("python"))


def test_in_python(ran, capsys):
    left = ran("In Python")
    assert left["score"].value == 0.5
    told = capsys.readouterr().out
    assert "faithfulness 0.500" in told
    assert "supported Мюнхен основан в 1158 году. ['1.1']" in told
    assert "absent В нём живёт миллион слонов. []" in told


def test_the_metrics(ran):
    row = ran("The metrics")["report"].rows[0]
    assert list(row.scores) == [
        "faithfulness",
        "context_precision",
        "context_recall",
        "answer_correctness",
        "politeness",
    ]
    assert all(score.value is not None for score in row.scores.values())


def table(heading):
    """The cells of the table under a heading, row by row."""
    section = README[README.index(f"# {heading}\n") :].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("row", table("The metrics"), ids=lambda row: row[0])
def test_the_table_of_metrics_tells_the_calls_and_fields(row):
    built, _, reads, calls = row
    judge, embeddings = recording_judge(), HashingEmbeddings()
    metric = eval(built.strip("`"), {**PUBLIC, "judge": judge, "embeddings": embeddings})
    metric.invoke({**SAMPLE, "references": ["The town of Munich is very old."]})
    assert len(judge.asked) == int(calls)
    assert metric.reads - {"question"} == {field for field in FIELDS if field in reads.partition(";")[0].split(", ")}


def test_every_metric_is_in_both_tables():
    builders = {row[0].strip("`").partition("(")[0] for row in table("The metrics")}
    assert builders == BUILDERS.keys()
    assert not BUILDERS.keys() - set(re.findall(r"\w+", " ".join(row[1] for row in table("Coming from ragas"))))


def test_what_is_said_of_shared_calls_is_so():
    judge, embeddings = recording_judge(), HashingEmbeddings()
    three = [faithfulness(judge), context_recall(judge), answer_correctness(judge, embeddings)]
    more = [answer_relevance(judge, embeddings), context_precision(judge), context_relevance(judge)]
    sample = {**SAMPLE, "references": ["Munich is very old."]}
    suite(*three).invoke(sample)
    assert len(judge.asked) == 5
    suite(*three, *more).invoke(sample)
    assert len(judge.asked) == 5 + 8
    assert "take 5 calls together, 8 with" in " ".join(README.split())


def test_what_is_said_of_the_report_is_there(ran, tmp_path):
    report = ran("In Python")["report"]
    names = {"report": report, "path": tmp_path / "report.jsonl"}
    calls = re.findall(r"`(report\.[^`]*)`", README)
    assert len(calls) == 14
    calls.remove("report.jsonl.part")  # a file
    again, reweighed = [call for call in calls if "rescore" in call]
    calls.remove(again)
    calls.remove(reweighed)
    graded = ran("Grades instead of fractions")
    graded["criteria"] = [criterion.model_copy(update={"weight": 1.0}) for criterion in default_criteria()["ru"]]
    assert eval(reweighed, graded).summary()["rubric"].mean != graded["report"].summary()["rubric"].mean
    assert eval(again, ran("The metrics")).summary()["answer_correctness"].mean == pytest.approx(2 / 3)
    for call in calls:
        with pytest.raises(BelowThreshold) if "check" in call else nullcontext():
            eval(call, names)
    assert type(report).load(names["path"]) == report


def test_what_it_costs_and_no_more_than_that(ran, capsys):
    left = ran("What it costs, and no more than that")
    told = capsys.readouterr().out
    assert "total 16 calls" in told
    assert "2 scores were left out" in told
    assert sum(metric.calls for metric in left["report"].summary().values()) == 12
    assert Report.load("report.jsonl") == left["report"]


def test_questions_from_your_documents(ran, capsys):
    left = ran("Questions from your documents")
    assert left["testset"].counts == {"simple": 1, "reasoning+conditional": 1}
    assert "Test set of 2 questions" in capsys.readouterr().out


def test_without_a_model(ran, capsys):
    ran("Without a model")
    told = eval(capsys.readouterr().out)
    assert told["exact_match"] == 0.0
    assert 0.9 < told["rouge"] < 1.0
    assert all(0.5 < told[name] < 0.9 for name in ("bleu", "chrf"))


def test_does_the_judge_agree_with_people(ran, tmp_path, capsys):
    report = report_of(*[scored(number % 10 / 9) for number in range(300)])
    report.to_jsonl(tmp_path / "report.jsonl")
    drawn = report.to_label(150)
    labels = [f"{row.sample.id},{'да' if float(row.scores['faithfulness']) > 0.3 else 'нет'}" for row in drawn]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *labels]), encoding="utf-8")
    ran("Does the judge agree with people")
    told = capsys.readouterr().out
    assert "Agreement with binary labels on 150 pairs" in told
    assert "from 150 labels and 150 more scores" in told


def test_grades_instead_of_fractions(ran, capsys):
    left = ran("Grades instead of fractions")
    assert list(left["leaderboard"](left["report"])) == ["brief", "evasive"]
    told = capsys.readouterr().out
    assert "to the one above -0.733 [-0.756, -0.344], p 0.002" in told
    assert "no examples" in told


def test_whether_a_judge_can_be_believed(ran, capsys):
    qualification = ran("Whether a judge can be believed")["qualification"]
    assert qualification.verdict["faithfulness"] == "cannot tell"
    assert "faithfulness" in capsys.readouterr().out
    rows = {row[0]: row[1] for row in table("Whether a judge can be believed")}
    for name, step in qualification.steps.items():
        if f"{name} (hashed words)" in rows or name in rows:
            told = rows.get(name) or rows[f"{name} (hashed words)"]
            assert told.startswith(f"{step.right.hits:g}/{step.right.of},"), name


def test_a_retriever_without_labels(ran):
    scores = ran("A retriever without labels")["report"].rows[0].scores
    assert list(scores) == ["ndcg@5", "mean_grade@5", "retriever", "reranker", "gain"]
    assert [round(score.value, 2) for score in scores.values()] == [0.59, 1.33, 0.59, 1.0, 0.41]
    assert sum(score.usage.calls for score in scores.values()) == 1


def test_where_right_and_wrong_statements_come_from(ran, capsys):
    scores = ran("Where right and wrong statements come from")["report"].rows[0].scores
    assert scores["claim_noise_irrelevant"].value == pytest.approx(1 / 3)
    assert scores["claim_hallucination"].value == pytest.approx(1 / 3)
    assert [row[0].count("`claim_") for row in table("Where right and wrong statements come from")] == [
        3,
        1,
        1,
        1,
        2,
        2,
        2,
    ]


def test_in_production(ran, capsys):
    stats = ran("In production")["callback"].stats()
    assert (stats["sampled"], stats["scored"], stats["dropped"], stats["sink_errors"]) == (1, 1, 0, 0)
    assert "[('faithfulness', 1.0)]" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
def test_langsmith(ran, capsys, monkeypatch):
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    get_env_var.cache_clear()
    ran("LangSmith")
    assert "{'faithfulness': 1.0, 'context_recall': 1.0}" in capsys.readouterr().out


def test_mlflow(ran, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what MLflow makes of SQLAlchemy and pandas is its own
        assert len(ran("MLflow")["run_id"]) == 32


def test_pytest(ran):
    left = ran("pytest")
    with pytest.raises(AssertionError) as caught:
        left["test_the_answer_keeps_to_the_policy"]()
    assert str(caught.value) in README
    left["test_one_statement_of_two_is_one_half"]()
    assert left["TestPoliteness"]().metric.name == "politeness"


def test_a_guard_in_langgraph(ran, capsys):
    ran("A guard in LangGraph")
    assert capsys.readouterr().out == "Не знаю: в документах этого нет.\n"


def test_figures_and_notebooks(ran, tmp_path):
    made = ran("Questions from your documents")["testset"]
    report = ran("In Python")["report"]
    ran("Figures and notebooks", report=report, before=report, testset=made)
    assert (tmp_path / "tree.png").exists()


def test_in_a_chain(ran):
    left = ran("In a chain")
    answered = (left["rag_chain"] | left["suite"](left["metric"])).invoke("?")
    assert answered["faithfulness"].value == 1.0


def test_with_gigachat(ran):
    left = ran("With GigaChat")
    assert isinstance(left["metric"], Metric)
    assert left["judge"].language == "ru"
    assert [way.rung for way in left["judge"].ways] == ["function_calling", "prompt"]


def test_with_vllm(ran):
    left = ran("With vLLM")
    assert isinstance(left["metric"], Metric)
    assert left["metric"].judges[0].ways[0].rung == "json_schema"
    left["model"].root_client.close()


def test_your_own_function_as_a_judge(ran):
    from langchain_core.messages import HumanMessage, SystemMessage

    def call_my_model(texts):
        system, *rest = texts
        return offline_reply([SystemMessage(system), *map(HumanMessage, rest)]).text

    metric = ran("Your own function as a judge", call_my_model=call_my_model)["metric"]
    report = evaluate([SAMPLE], metric, progress=False)
    assert report.rows[0].scores["faithfulness"].value == 0.5


# Commands


def parts(line):
    """The commands of a line, without the folder of the environment and without what only makes it quieter."""
    words = [Path(word).name if "/bin/" in word else word for word in line]
    quiet = ("--quiet", "--disable-pip-version-check")
    joined = " ".join(word for word in words if word not in quiet)
    return [part.strip() for part in joined.split("&&")]


GATE_COMMANDS = [
    " ".join(parts(shlex.split(line.replace("$bin/", "x/bin/").split("2>&1")[0].split(">")[0].strip("() "))))
    for line in GATE.splitlines()
    if "$bin/" in line and not line.startswith("bin=") and "-m build" not in line
]


def test_the_tests_are_run_as_the_readme_says():
    (line,) = (parts(words) for words in COMMANDS if "pytest" in " ".join(words))
    assert line == ["python3 -m venv .venv", "pip install -e .[test]", "pytest -n 2 --dist loadfile"]
    assert [command for command in GATE_COMMANDS if command in line] == line[1:]
    assert 'python3 -m venv "$fresh/venv"' in GATE


def test_the_main_job_is_run_as_the_readme_says():
    (line,) = (parts(words) for words in COMMANDS if words[-1] == "demo")
    assert line == ["python3 -m venv .venv", "pip install .", "rageval demo"]
    assert any(command.endswith("rageval demo") for command in GATE_COMMANDS)


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```$", RUSSIAN, re.MULTILINE | re.DOTALL))
def test_every_block_of_the_russian_readme_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    exec(compile(block, "README.ru.md", "exec"), {})


IN_TEXT = [shlex.split(line) for line in re.findall(r"`(rageval \w+ [^`]*)`", RUSSIAN)]
SHELL = re.findall(r"^```sh\n(.*?)^```$", RUSSIAN, re.MULTILINE | re.DOTALL)
COMMANDS += [shlex.split(line) for block in SHELL for line in block.splitlines()] + IN_TEXT

RAGEVAL = [words[1:] for words in COMMANDS if words and Path(words[0]).name == "rageval"]
RAGEVAL += [words[words.index(".venv/bin/rageval") + 1 :] for words in COMMANDS if ".venv/bin/rageval" in words]


@pytest.mark.parametrize("words", RAGEVAL, ids=" ".join)
def test_every_rageval_line_parses(words):
    assert callable(main._parser().parse_args(words).run)


def test_there_are_such_lines():
    assert {words[0] for words in RAGEVAL} == {
        "demo",
        "evaluate",
        "generate",
        "label",
        "leaderboard",
        "qualify",
        "report",
        "resume",
        "rubric-study",
    }


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`?(--[a-z][a-z-]*)", README + RUSSIAN))))
def test_every_option_in_the_text_exists(option, capsys):
    for command in main.COMMANDS:
        with pytest.raises(SystemExit):
            main.run([command.__name__.rpartition(".")[2].replace("_", "-"), "--help"])
    assert option in capsys.readouterr().out


def test_every_extra_in_the_text_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r'(?:rageval|\.)\[(\w+)\]"', README + RUSSIAN))
    assert {"gigachat", "test"} <= named <= extras.keys()


def test_every_link_into_the_repository_leads_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", README + RUSSIAN)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
