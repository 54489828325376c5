"""Metrics of a user, from the documentation alone: what works for the package's metrics works for them."""

from pathlib import Path

import pytest
from helpers.each import each, error_of
from helpers.own import politeness as politeness_module
from helpers.own import short_enough as short_enough_module
from helpers.own import tone as tone_module
from helpers.own.politeness import politeness
from helpers.own.short_enough import short_enough
from helpers.own.tone import tone
from helpers.samples import sequence
from langchain_core.runnables import RunnableLambda
from typing_extensions import TypedDict

from langchain_rageval import Budget, ConfigError, OfflineJudge, RagEvalCallback, Report, Value, evaluate, plan
from langchain_rageval.testing import MetricTests

OWN = {
    "short_enough": lambda: short_enough,
    "politeness": lambda: politeness(OfflineJudge()),
    "tone": lambda: tone(OfflineJudge()),
}
CALLS = {"short_enough": 0, "politeness": 1, "tone": 1}
GUIDE = Path(__file__).parents[2] / "docs/how-to/own-metric.md"
ASKED = {"question": "What is a bat?", "answer": "An animal."}

every_one = pytest.mark.parametrize("name", OWN)


class TestPoliteness(MetricTests):
    """The judged metric."""

    metric = politeness(OfflineJudge())


class TestTone(MetricTests):
    """The metric from a chain."""

    metric = tone(OfflineJudge())


@each("module", [short_enough_module, politeness_module, tone_module])
def test_the_documentation_shows_them_as_they_are_tested(module):
    code = Path(module.__file__).read_text(encoding="utf-8").split('"""\n\n', 1)[1].rstrip()
    assert f"```python\n{code}\n```" in GUIDE.read_text(encoding="utf-8")


@every_one
def test_the_plan_counts_its_calls_without_making_one(name):
    planned = plan([ASKED] * 3, OWN[name]())
    assert (planned.calls, planned.notes) == (3 * CALLS[name], [])


@every_one
def test_the_journal_resumes_it_without_a_call(name, tmp_path):
    first, second = (
        evaluate([ASKED], OWN[name](), journal=tmp_path / "scores.db", budget=budget, progress=False)
        for budget in (None, Budget(calls=0))
    )
    assert second.rows == first.rows
    assert (first.rows[0].scores[name].value, second.left_out) == (1.0, [])
    assert not [note for note in first.notes if "journal" in note]


@every_one
def test_a_report_with_it_is_saved_shown_and_compared(name, tmp_path):
    report = evaluate([{**ASKED, "question": f"{n}?"} for n in range(8)], OWN[name](), progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    report.to_html(tmp_path / "report.html")
    assert Report.load(tmp_path / "report.jsonl").rows == report.rows
    assert name in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert report.compare(report)[name].difference == 0.0
    assert report.summary().aspects["style"].mean == 1.0


def halved(metric):
    """Return a metric with half of its values, whose steps must not be asked."""
    return metric.model_copy(update={"reduce": lambda state: Value(metric.reduce(state).number / 2)})


@every_one
def test_it_is_rescored_from_the_answers_in_a_file(name, tmp_path):
    evaluate([ASKED], OWN[name](), progress=False).to_jsonl(tmp_path / "report.jsonl")
    report = Report.load(tmp_path / "report.jsonl")
    before, again = (one.rows[0].scores[name] for one in (report, report.rescore(OWN[name]())))
    assert (again.value, again.usage, again.reason) == (before.value, before.usage, before.reason)
    if name != "short_enough":  # a function is called again
        assert report.rescore(halved(OWN[name]())).rows[0].scores[name].value == before.value / 2


def test_a_report_of_an_earlier_version_has_no_answers_to_rescore():
    report = evaluate([ASKED], OWN["politeness"](), progress=False)
    (row,) = report.rows
    earlier = {"politeness": row.scores["politeness"].model_copy(update={"answers": {}})}
    error = error_of(ConfigError, Report([row.model_copy(update={"scores": earlier})]).rescore, OWN["politeness"]())
    place = f"the findings of politeness for sample {row.sample.id!r}"
    assert str(error) == f"politeness cannot be computed from {place}: score it with evaluate"


@every_one
def test_the_callback_and_a_graph_score_with_it(name):
    rows = []
    callback = RagEvalCallback([OWN[name]()], sample_rate=1.0, sinks=[rows.append])
    RunnableLambda(lambda _: {"answer": "An animal."}).invoke({"question": "What is a bat?"}, {"callbacks": [callback]})
    assert callback.flush(30)
    callback.close()
    assert [row.scores[name].value for row in rows] == [1.0]

    graph = sequence(
        TypedDict("State", {"question": str, "answer": str, name: object}), {"judge": OWN[name]().as_node()}
    )
    assert graph.invoke(ASKED)[name].value == 1.0
