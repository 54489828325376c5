"""One pipe from documents to a report, each part alone, and the code and commands of the guide on chains."""

import asyncio
import json
import re
import shlex
import sys
import threading
from pathlib import Path

import pytest
from helpers.chains import Agent
from helpers.each import error_of
from helpers.writers import Ring, Writer, documents
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.config import ensure_config

from langchain_rageval import (
    ConfigError,
    OfflineJudge,
    Report,
    Sample,
    SampleError,
    Testset,
    TestsetGenerator,
    aevaluate,
    answered_by,
    astream_evaluate,
    evaluate,
    exact_match,
    faithfulness,
    plan,
    scored_by,
)
from langchain_rageval.cli.main import run
from langchain_rageval.testset.row import TestsetRow

SAMPLES = [Sample(id="one", question="Что такое поле?"), Sample(id="two", question="Что такое щавель?")]


def rag(inputs):
    return {"answer": f"{inputs['question']} Да.", "contexts": ["Да."]}


def generator(**options):
    writer = Writer()
    return TestsetGenerator(writer.model, embeddings=Ring(), splitter=False, progress=False, size=3, **options)


def pipe(chain=rag, **options):
    return generator() | answered_by(chain) | scored_by(faithfulness(OfflineJudge()), progress=False, **options)


class Names(BaseCallbackHandler):
    def __init__(self):
        self.paths = {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, name=None, **_):
        self.paths[run_id] = [*self.paths.get(parent_run_id, []), name]


async def test_documents_become_a_report():
    report = pipe().invoke(documents(9))
    assert isinstance(report, Report)
    assert [row.sample.question for row in report.rows] == [row.question for row in generator().generate(documents(9))]
    assert [row.sample.answer for row in report.rows] == [f"{row.sample.question} Да." for row in report.rows]
    assert all(row.scores["faithfulness"].value is not None for row in report.rows)
    again = await pipe().ainvoke(documents(9))
    values = [row.scores["faithfulness"].value for row in report.rows]
    assert [row.scores["faithfulness"].value for row in again.rows] == values
    (streamed,) = pipe().stream(documents(9))
    assert len(streamed.rows) == 3
    assert [len(part.rows) async for part in pipe().astream(documents(9))] == [3]


async def test_the_parts_are_runnables_with_their_names_in_graph_and_trace():
    assert isinstance(answered_by(rag), Runnable)
    assert isinstance(scored_by([exact_match()]), Runnable)
    mermaid = pipe().get_graph().draw_mermaid()
    assert "check_answer --> answered_by;" in mermaid
    assert "answered_by --> scored_by;" in mermaid
    for call in ("invoke", "ainvoke"):
        names = Names()
        if call == "invoke":
            pipe().invoke(documents(9), {"callbacks": [names]})
        else:
            await pipe().ainvoke(documents(9), {"callbacks": [names]})
        tops = [path[1] for path in names.paths.values() if len(path) == 2]
        assert tops == ["TestsetGenerator", "answered_by", "scored_by"]
        under = [path[1:] for path in names.paths.values() if len(path) == 3 and path[1] != "TestsetGenerator"]
        assert sorted(under) == [["answered_by", "rag"]] * 3 + [["scored_by", "faithfulness"]] * 3


def test_the_schemas_name_samples_and_report():
    for part in (answered_by(rag), scored_by(exact_match())):
        assert part.get_input_jsonschema()["items"] == {"$ref": "#/$defs/Sample"}
        assert part.get_input_schema().model_validate(Testset([])).root == Testset([])
    assert answered_by(rag).get_output_jsonschema()["items"] == {"$ref": "#/$defs/Sample"}
    assert scored_by(exact_match()).get_output_jsonschema()["$ref"] == "#/$defs/Report"


# answered_by


async def test_samples_in_every_form_are_answered(tmp_path):
    (tmp_path / "samples.jsonl").write_text('{"id": "one", "question": "Что такое поле?"}\n', encoding="utf-8")
    testset = generator().generate(documents(9))
    mapping = {"id": "one", "question": "Что такое поле?"}
    for source in (SAMPLES[:1], iter(SAMPLES[:1]), [mapping], tmp_path / "samples.jsonl"):
        (sample,) = answered_by(rag).invoke(source)
        assert (sample.id, sample.answer, sample.contexts) == ("one", "Что такое поле? Да.", ["Да."])
    assert answered_by(rag).invoke(testset) == testset.run(rag) == await answered_by(rag).ainvoke(testset)
    assert answered_by(rag).invoke([]) == []
    (tmp_path / "bad.jsonl").write_text('{"id": "one"}\n', encoding="utf-8")
    with pytest.raises(SampleError, match="question"):
        answered_by(rag).invoke(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("most", [1, 3])
async def test_so_many_questions_are_in_flight_at_most(most):
    lock, running, peak = threading.Lock(), 0, 0

    def enter(change):
        nonlocal running, peak
        with lock:
            running += change
            peak = max(peak, running)

    def ask(_):
        enter(1)
        enter(-1)
        return "Да."

    async def aask(_):
        enter(1)
        await asyncio.sleep(0)
        enter(-1)
        return "Да."

    samples = [Sample(question=f"{number}?") for number in range(12)]
    assert len(answered_by(ask, max_concurrency=most).invoke(samples)) == 12
    assert len(await answered_by(aask, max_concurrency=most).ainvoke(samples)) == 12
    assert peak <= most


# scored_by


ANSWERED = [sample.model_copy(update={"answer": "Да.", "references": ["Да."]}) for sample in SAMPLES]


async def test_samples_are_scored_with_the_options_of_evaluate(tmp_path):
    scoring = scored_by([exact_match()], journal=tmp_path / "run.db", progress=False)
    report = scoring.invoke(ANSWERED)
    assert report.rows == evaluate(ANSWERED, exact_match(), progress=False).rows
    assert (await scoring.ainvoke(iter(ANSWERED))).rows == report.rows
    assert (tmp_path / "run.db").exists()


@pytest.mark.parametrize("on_failure", ["record", "raise"])
async def test_the_callbacks_of_the_config_and_of_the_options_see_the_metrics(on_failure):
    one, other = Names(), Names()
    scoring = scored_by(exact_match(), callbacks=[other], progress=False, on_failure=on_failure)
    for call in (scoring.invoke, scoring.ainvoke):
        result = call(ANSWERED, {"callbacks": [one]})
        _ = await result if asyncio.iscoroutine(result) else result
    shallow = sorted(path for path in one.paths.values() if len(path) < 3)
    assert shallow == [["scored_by"]] * 2 + [["scored_by", "exact_match"]] * 4
    assert [path for path in other.paths.values() if len(path) == 1] == [["exact_match"]] * 4


async def test_a_metric_gets_the_config_of_the_call():
    seen = []

    def look(sample):
        seen.append(ensure_config()["configurable"].get("tone"))
        return sample

    metric, config = RunnableLambda(look) | exact_match(), {"configurable": {"tone": "dry"}}
    scored_by(metric, progress=False).invoke(ANSWERED, config)
    await scored_by(metric, progress=False).ainvoke(ANSWERED, config)
    assert seen == ["dry"] * 4


def test_wrong_options_and_metrics_are_errors_at_once():
    error = error_of(TypeError, scored_by, exact_match(), progres=False)
    assert str(error).startswith("scored_by() got an unexpected option 'progres'; did you mean 'progress'?")
    with pytest.raises(ConfigError, match=r"^evaluate takes at least one metric"):
        scored_by([])
    with pytest.raises(ConfigError, match=r"^on_failure must be 'record' or 'raise', got 'ignore'$"):
        scored_by(exact_match(), on_failure="ignore")


# What is no sample


async def test_a_generator_or_chain_in_place_of_samples_is_an_error_that_says_what_to_do():
    given = generator()
    message = (
        r"^samples must be a collection, got the Runnable TestsetGenerator: pass its output, such as "
        r"generator\.generate\(documents\)\.run\(rag_chain\), or compose "
        r"generator \| answered_by\(rag_chain\) \| scored_by\(metrics\)$"
    )
    for call in (evaluate, plan):
        with pytest.raises(ConfigError, match=message):
            call(given, exact_match())
    with pytest.raises(ConfigError, match=message):
        await aevaluate(given, exact_match())
    with pytest.raises(ConfigError, match=message):
        await anext(astream_evaluate(given, exact_match()))
    for part in (answered_by(rag), scored_by(exact_match())):
        with pytest.raises(ConfigError, match=message):
            part.invoke(given)
    with pytest.raises(ConfigError, match=r"^samples must be a collection, got the Runnable RunnableSequence: "):
        evaluate(given | answered_by(rag), exact_match())


# docs/how-to/run-your-chain.md


GUIDE = (Path(__file__).parents[2] / "docs/how-to/run-your-chain.md").read_text(encoding="utf-8")
QUESTION = "When is the premium due?"
PREMIUM = "The premium is due on 1 March."


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the module, the questions and the test set of the guide."""
    app, *_ = blocks("python")
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    row = TestsetRow(id="q1", question=QUESTION, contexts=[PREMIUM], reference=PREMIUM, evolution="simple")
    Testset([row]).to_jsonl(tmp_path / "testset.jsonl")
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "q1", "question": QUESTION}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("app", None)
    yield tmp_path
    sys.modules.pop("app", None)


def test_every_python_block_runs(folder):
    names = {"model": Agent(), "__name__": "guide"}
    collected = []
    for block in blocks("python"):
        exec(compile(block, "run-your-chain.md", "exec"), names)
        collected += names.pop("samples", [])
    assert [sample.contexts for sample in collected] == [[PREMIUM]] * 3
    assert [sample.metadata["context_sources"] for sample in collected] == [["terms.md"]] * 3
    assert [sample.answer == PREMIUM for sample in collected] == [True, False, True]
    assert names["report"].summary()["faithfulness"].mean == 1.0


def test_every_command_runs(folder, capsys):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    (echo,) = (shlex.split(line) for line in lines if line.startswith("echo"))
    (folder / echo[-1]).write_text(echo[1], encoding="utf-8")
    commands = [shlex.split(line, comments=True) for line in lines if not line.startswith("echo")]
    assert [(words[:2], run([*words[1:]])) for words in commands] == [
        (["rageval", name], 0) for name in ("run", "evaluate", "run", "resume")
    ]
    assert "1 question asked: 1 without an error, 1 with contexts" in capsys.readouterr().out
