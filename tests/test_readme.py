"""The READMEs are correct: their code runs, their commands parse, and their tables match the code."""

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
    """Return a function that runs the block under a heading with the given variables and returns all variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")

    def run(heading, **names):
        exec(compile(PYTHON[heading], f"README.md, {heading}", "exec"), names)
        return names

    return run


def test_every_python_block_has_a_test():
    titles = ["Python API", "Metrics in a chain", "Metrics", "GigaChat", "vLLM", "Custom judge function"]
    elsewhere = ["Scaling out with Ray"]  # integrations/test_ray.py
    titles += ["Test set generation", "Metrics without a model", "Agreement with human labels"]
    titles += ["Rubric grading", "Judge qualification"]
    titles += ["Ranking metrics", "Claim metrics"]
    titles += ["Production monitoring", "LangSmith", "MLflow", "pytest", "LangGraph guard"]
    titles += ["Plots and notebooks", "Your own metric", "From documents to a report"]
    assert sorted(PYTHON) == sorted([*titles, *elsewhere, "Cost estimate and budget"])
    assert len(PYTHON) == len(blocks("python"))


def test_python_api(ran, capsys):
    left = ran("Python API")
    assert left["score"].value == 0.5
    printed = capsys.readouterr().out
    assert "faithfulness 0.500" in printed
    assert "supported Мюнхен основан в 1158 году. ['1.1']" in printed
    assert "absent В нём живёт миллион слонов. []" in printed


def test_metrics(ran):
    row = ran("Metrics")["report"].rows[0]
    assert list(row.scores) == [
        "faithfulness",
        "context_precision",
        "context_recall",
        "answer_correctness",
        "politeness",
    ]
    assert all(score.value is not None for score in row.scores.values())


def table(heading):
    """Return the cells of the table under a heading, row by row."""
    section = README[README.index(f"# {heading}\n") :].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("row", table("Metrics"), ids=lambda row: row[0])
def test_the_table_of_metrics_states_calls_and_fields(row):
    built, _, reads, calls = row
    judge, embeddings = recording_judge(), HashingEmbeddings()
    metric = eval(built.strip("`"), {**PUBLIC, "judge": judge, "embeddings": embeddings})
    metric.invoke({**SAMPLE, "references": ["The town of Munich is very old."]})
    assert len(judge.asked) == int(calls)
    assert metric.reads - {"question"} == {field for field in FIELDS if field in reads.partition(";")[0].split(", ")}


def test_every_metric_is_in_both_tables():
    builders = {row[0].strip("`").partition("(")[0] for row in table("Metrics")}
    assert builders == BUILDERS.keys()
    assert not BUILDERS.keys() - set(re.findall(r"\w+", " ".join(row[1] for row in table("Migrating from ragas"))))


def test_the_number_of_shared_calls_is_true():
    judge, embeddings = recording_judge(), HashingEmbeddings()
    three = [faithfulness(judge), context_recall(judge), answer_correctness(judge, embeddings)]
    more = [answer_relevance(judge, embeddings), context_precision(judge), context_relevance(judge)]
    sample = {**SAMPLE, "references": ["Munich is very old."]}
    suite(*three).invoke(sample)
    assert len(judge.asked) == 5
    suite(*three, *more).invoke(sample)
    assert len(judge.asked) == 5 + 8
    assert "take 5 calls together, 8 with" in " ".join(README.split())


def test_every_call_of_a_report_in_the_text_works(ran, tmp_path):
    report = ran("Python API")["report"]
    names = {"report": report, "path": tmp_path / "report.jsonl"}
    calls = re.findall(r"`(report\.[^`]*)`", README)
    assert len(calls) == 15
    calls.remove("report.jsonl.part")  # a file
    again, reweighed = [call for call in calls if "rescore" in call]
    calls.remove(again)
    calls.remove(reweighed)
    graded = ran("Rubric grading")
    graded["criteria"] = [criterion.model_copy(update={"weight": 1.0}) for criterion in default_criteria()["ru"]]
    assert eval(reweighed, graded).summary()["rubric"].mean != graded["report"].summary()["rubric"].mean
    assert eval(again, ran("Metrics")).summary()["answer_correctness"].mean == pytest.approx(2 / 3)
    for call in calls:
        with pytest.raises(BelowThreshold) if "check" in call else nullcontext():
            eval(call, names)
    assert type(report).load(names["path"]) == report


def test_cost_estimate_and_budget(ran, capsys):
    left = ran("Cost estimate and budget")
    printed = capsys.readouterr().out
    assert "total 16 calls" in printed
    assert "2 scores were left out" in printed
    assert sum(metric.calls for metric in left["report"].summary().values()) == 12
    assert Report.load("report.jsonl") == left["report"]


def test_test_set_generation(ran, capsys):
    left = ran("Test set generation")
    assert left["testset"].counts == {"simple": 1, "reasoning+conditional": 1}
    assert "Test set of 2 questions" in capsys.readouterr().out


def test_own_metrics(ran):
    scores = ran("Your own metric")["report"].rows[0].scores
    assert scores["short_enough"].value == 1.0
    assert scores["politeness"].value is not None


def test_a_pipe_from_documents_to_a_report(ran):
    left = ran("From documents to a report", **ran("Test set generation"))
    assert [row.sample.answer for row in left["report"].rows] == ["Баню страхуют вместе с домом."] * 2
    assert any("Подскажите, пожалуйста" in row.sample.question for row in left["report"].rows)


def test_metrics_without_a_model(ran, capsys):
    ran("Metrics without a model")
    printed = eval(capsys.readouterr().out)
    assert printed["exact_match"] == 0.0
    assert 0.9 < printed["rouge"] < 1.0
    assert all(0.5 < printed[name] < 0.9 for name in ("bleu", "chrf"))


def test_agreement_with_human_labels(ran, tmp_path, capsys):
    report = report_of(*[scored(number % 10 / 9) for number in range(300)])
    report.to_jsonl(tmp_path / "report.jsonl")
    drawn = report.to_label(150)
    labels = [f"{row.sample.id},{'да' if float(row.scores['faithfulness']) > 0.3 else 'нет'}" for row in drawn]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *labels]), encoding="utf-8")
    ran("Agreement with human labels")
    printed = capsys.readouterr().out
    assert "Agreement with binary labels on 150 pairs" in printed
    assert "from 150 labels and 150 more scores" in printed


def test_rubric_grading(ran, capsys):
    left = ran("Rubric grading")
    assert list(left["leaderboard"](left["report"])) == ["brief", "evasive"]
    printed = capsys.readouterr().out
    assert "to the one above -0.733 [-0.880, -0.342], p < 0.001" in printed
    assert "no examples" in printed


def test_judge_qualification(ran, capsys):
    qualification = ran("Judge qualification")["qualification"]
    assert qualification.verdict["faithfulness"] == "unfit"
    assert "faithfulness" in capsys.readouterr().out
    rows = {row[0]: row[1] for row in table("Judge qualification")}
    for name, step in qualification.steps.items():
        if f"{name} (hashed words)" in rows or name in rows:
            cell = rows.get(name) or rows[f"{name} (hashed words)"]
            assert cell.startswith(f"{step.right.hits:g}/{step.right.of},"), name


def test_ranking_metrics(ran):
    scores = ran("Ranking metrics")["report"].rows[0].scores
    assert list(scores) == ["ndcg@5", "mean_grade@5", "retriever", "reranker", "gain"]
    assert [round(score.value, 2) for score in scores.values()] == [0.59, 1.33, 0.59, 1.0, 0.41]
    assert sum(score.usage.calls for score in scores.values()) == 1


def test_claim_metrics(ran, capsys):
    scores = ran("Claim metrics")["report"].rows[0].scores
    assert scores["claim_noise_irrelevant"].value == pytest.approx(1 / 3)
    assert scores["claim_hallucination"].value == pytest.approx(1 / 3)
    assert [row[0].count("`claim_") for row in table("Claim metrics")] == [
        3,
        1,
        1,
        1,
        2,
        2,
        2,
    ]


def test_production_monitoring(ran, capsys):
    stats = ran("Production monitoring")["callback"].stats()
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
        warnings.simplefilter("ignore")  # MLflow uses deprecated functions of SQLAlchemy and pandas
        assert len(ran("MLflow")["run_id"]) == 32


def test_pytest(ran):
    left = ran("pytest")
    with pytest.raises(AssertionError) as caught:
        left["test_the_answer_follows_the_policy"]()
    assert str(caught.value) in README
    left["test_one_supported_statement_of_two_gives_one_half"]()
    assert left["TestPoliteness"]().metric.name == "politeness"


def test_langgraph_guard(ran, capsys):
    ran("LangGraph guard")
    assert capsys.readouterr().out == "Не знаю: в документах этого нет.\n"


def test_plots_and_notebooks(ran, tmp_path):
    made = ran("Test set generation")["testset"]
    report = ran("Python API")["report"]
    ran("Plots and notebooks", report=report, before=report, testset=made)
    assert (tmp_path / "tree.png").exists()


def test_metrics_in_a_chain(ran):
    left = ran("Metrics in a chain")
    answered = (left["rag_chain"] | left["suite"](left["metric"])).invoke("?")
    assert answered["faithfulness"].value == 1.0


def test_gigachat(ran):
    left = ran("GigaChat")
    assert isinstance(left["metric"], Metric)
    assert left["judge"].language == "ru"
    assert [mode.rung for mode in left["judge"]._endpoint.modes] == ["function_calling", "prompt"]


def test_vllm(ran):
    left = ran("vLLM")
    assert isinstance(left["metric"], Metric)
    assert left["metric"].judges[0]._endpoint.modes[0].rung == "json_schema"
    left["model"].root_client.close()


def test_custom_judge_function(ran):
    from langchain_core.messages import HumanMessage, SystemMessage

    def call_my_model(texts):
        system, *rest = texts
        return offline_reply([SystemMessage(system), *map(HumanMessage, rest)]).text

    metric = ran("Custom judge function", call_my_model=call_my_model)["metric"]
    report = evaluate([SAMPLE], metric, progress=False)
    assert report.rows[0].scores["faithfulness"].value == 0.5


# Commands


def parts(line):
    """Return the commands of a line without the path of the environment and without options that only reduce output."""
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


def test_the_gate_runs_the_smoke_suite_on_each_supported_python():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = [words[-1] for line in classifiers if "." in (words := line.split("Python :: "))[-1]]
    assert supported
    assert f"for version in {' '.join(supported)}; do" in GATE


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```$", RUSSIAN, re.MULTILINE | re.DOTALL))
def test_every_python_block_of_the_russian_readme_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    exec(compile(block, "README.ru.md", "exec"), {})


IN_TEXT = [shlex.split(line) for line in re.findall(r"`(rageval \w+ [^`]*)`", RUSSIAN)]
SHELL = re.findall(r"^```sh\n(.*?)^```$", RUSSIAN, re.MULTILINE | re.DOTALL)
COMMANDS += [shlex.split(line) for block in SHELL for line in block.splitlines()] + IN_TEXT

RAGEVAL = [words[1:] for words in COMMANDS if words and Path(words[0]).name == "rageval"]
RAGEVAL += [words[words.index(".venv/bin/rageval") + 1 :] for words in COMMANDS if ".venv/bin/rageval" in words]


@pytest.mark.parametrize("words", RAGEVAL, ids=" ".join)
def test_every_rageval_command_parses(words):
    assert callable(main._parser().parse_args(words).run)


def test_the_readmes_show_these_commands():
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


def slug(heading):
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_link_to_a_heading_leads_to_one():
    anchors = re.findall(r"\]\((?:README\.md)?#([^)]+)\)", README + RUSSIAN)
    assert anchors
    assert set(anchors) <= {slug(heading) for heading in re.findall(r"^#+ (.*)$", README, re.MULTILINE)}
