"""The public names of the installed package: evaluation, journal and callback, with scripted and offline judges."""

import asyncio

import pytest

import langchain_rageval
from langchain_rageval import OfflineJudge, Report, aevaluate, evaluate, faithfulness
from langchain_rageval.steps import Statements, Verdict, Verdicts
from langchain_rageval.testing import ScriptedJudge, assert_scores

SAMPLE = {
    "question": "When was Munich founded?",
    "answer": "Munich was founded in 1158. A million elephants live there.",
    "contexts": ["Munich was founded in 1158 by Henry the Lion."],
}


def scripted(**options):
    """Return a judge that finds one of two statements supported."""
    found = Verdict(statement=1, reason="stated", evidence=["1.1"], verdict="supported")
    absent = Verdict(statement=2, reason="not mentioned", evidence=[], verdict="absent")
    return ScriptedJudge(Statements(statements=["1158", "elephants"]), Verdicts(verdicts=[found, absent]), **options)


def test_every_public_name_can_be_imported():
    for name in langchain_rageval.__all__:
        getattr(langchain_rageval, name)


@pytest.mark.gate
def test_importing_the_package_leaves_stdout_and_stderr_empty(script):
    done = script("from langchain_rageval import *")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_metric_returns_value_reason_and_findings():
    judge = scripted()
    score = faithfulness(judge).invoke(SAMPLE)
    statements = [finding.verdict for finding in score.findings if finding.kind == "statement"]
    assert (score.value, statements) == (0.5, ["supported", "absent"])
    assert [request.step for request in judge.requests] == ["extract_statements", "verify_statements"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["evaluate", "aevaluate"])
def test_a_scripted_judge_scores_samples_and_failures_stay_with_theirs(asynchronous, tmp_path):
    samples = [SAMPLE, {"question": "And Rome?", "answer": "It is old."}]
    metrics = [faithfulness(scripted())]
    if asynchronous:
        report = asyncio.run(aevaluate(samples, metrics, progress=False))
    else:
        report = evaluate(samples, metrics, progress=False)
    assert report.rows[0].scores["faithfulness"].value == 0.5
    assert report.rows[1].scores["faithfulness"].failure is not None
    report.to_jsonl(tmp_path / "report.jsonl")
    assert Report.load(tmp_path / "report.jsonl") == report


def test_a_journal_spares_the_calls_of_finished_scores(tmp_path):
    first, second = scripted(), scripted()
    reports = [
        evaluate([SAMPLE], faithfulness(judge), journal=tmp_path / "run.db", progress=False)
        for judge in (first, second)
    ]
    assert reports[0].rows == reports[1].rows
    assert (len(first.requests), len(second.requests)) == (2, 0)


def test_a_threshold_that_is_missed_fails_a_test():
    assert_scores(SAMPLE, {faithfulness(OfflineJudge()): 0.5})
    with pytest.raises(AssertionError, match="miss their threshold"):
        assert_scores(SAMPLE, {faithfulness(OfflineJudge()): 0.9})


ENDINGS = {
    "end": "",
    "exit": "raise SystemExit(0)",
    "async": "asyncio.run(more())",
    "error": 'raise ValueError("of the application")',
}


@pytest.mark.gate
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_last_runs_of_a_chain_are_scored_when_the_interpreter_exits(script, tmp_path, ending):
    done = script(
        f"""
        import asyncio
        from langchain_core.runnables import RunnableLambda
        from langchain_rageval import OfflineJudge, RagEvalCallback, faithfulness
        from langchain_rageval.sinks import JsonlSink

        async def more():
            for number in range(20):
                await chain.ainvoke(f"later {{number}}", config)

        callback = RagEvalCallback(faithfulness(OfflineJudge()), 1.0, [JsonlSink("rows.jsonl")])
        chain = RunnableLambda(lambda q: {{"answer": "Munich is old. So is Rome.", "context": ["Munich is old."]}})
        config = {{"callbacks": [callback]}}
        for number in range(20):
            chain.invoke(f"question {{number}}", config)
        {ENDINGS[ending]}
        """
    )
    error = ["ValueError: of the application"] if ending == "error" else []
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1:]) == (len(error), "", error)
    rows = Report.load(tmp_path / "rows.jsonl").rows
    expected = {f"question {number}" for number in range(20)}
    if ending == "async":
        expected |= {f"later {number}" for number in range(20)}
    assert {row.sample.question for row in rows} == expected
    assert [row.scores["faithfulness"].value for row in rows] == [0.5] * len(expected)


@pytest.mark.gate
def test_a_script_that_ends_with_an_error_still_scores_its_runs(script, tmp_path):
    done = script(
        """
        from langchain_core.runnables import RunnableLambda
        from langchain_rageval import OfflineJudge, RagEvalCallback, faithfulness
        from langchain_rageval.sinks import JsonlSink

        callback = RagEvalCallback(faithfulness(OfflineJudge()), 1.0, [JsonlSink("rows.jsonl")])
        chain = RunnableLambda(lambda q: {"answer": "Munich is old.", "context": ["Munich is old."]})
        chain.invoke("question", {"callbacks": [callback]})
        raise ValueError("of the application")
        """
    )
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: of the application\n")
    assert [row.scores["faithfulness"].value for row in Report.load(tmp_path / "rows.jsonl").rows] == [1.0]
