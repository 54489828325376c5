"""Instruments of scores: what the journal stores, what a report lists and what is compared, also of version 0.1.0."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.each import error_of
from helpers.samples import QUESTION, SAMPLE
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ConfigurableField, RunnableLambda
from pydantic import Field, PrivateAttr

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Metric,
    OfflineJudge,
    Report,
    Testset,
    TestsetGenerator,
    Value,
    evaluate,
    faithfulness,
    metric,
)
from langchain_rageval.data.instrument import differences
from langchain_rageval.errors import ConfigError
from langchain_rageval.steps.extract_statements import extract_statements

# What a report lists


SAMPLES = [{**SAMPLE, "question": f"{QUESTION} {n}"} for n in range(8)]
OFFLINE = OfflineJudge()


class Warm(OfflineJudge):
    temperature: float = 0.9


def counting(reduce, judge=OFFLINE, **options):
    steps = extract_statements(judge, of="answer")
    return Metric("mine", aspect="answer", reads={"answer"}, steps=steps, reduce=reduce, **options)


def means(report):
    return {name: metric.mean for name, metric in report.summary().items()}


def constant(number, client=None):
    return lambda state: Value(number, f"constant {client}")


def holding(client):
    return lambda state: Value(0.5, str(client))


def test_two_functions_in_place_of_a_model_do_not_share_a_journal(tmp_path):
    strict = RunnableLambda(lambda messages: OFFLINE.invoke(messages))
    lax = RunnableLambda(lambda messages: AIMessage(OFFLINE.invoke(messages).text.replace('"absent"', '"supported"')))
    journal = tmp_path / "journal"
    first = evaluate(SAMPLES, faithfulness(strict), journal=journal, progress=False)
    second = evaluate(SAMPLES, faithfulness(lax), journal=journal, progress=False)
    assert (means(first), means(second)) == ({"faithfulness": 0.5}, {"faithfulness": 1.0})
    with pytest.raises(ConfigError, match=r"scored faithfulness \(judge func code differs\)"):
        second.compare(first)


def test_a_judge_that_counts_its_calls_is_not_asked_again(tmp_path):
    calls = []

    class Counting(OfflineJudge):
        count: int = 0

        def _generate(self, messages, stop=None, run_manager=None, **options):
            self.count += 1
            calls.append(self.count)
            return super()._generate(messages, stop, run_manager, **options)

    one, journal = faithfulness(Counting()), tmp_path / "journal"
    first = evaluate(SAMPLES, one, journal=journal, progress=False)
    paid = len(calls)
    assert means(evaluate(SAMPLES, one, journal=journal, progress=False)) == means(first)
    assert len(calls) == paid > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [(lambda state: Value(1.0, "a"), lambda state: Value(0.0, "a")), (constant(1.0), constant(0.0))],
    ids=["code", "closure"],
)
def test_an_edited_reducer_is_counted_anew(tmp_path, one, other):
    journal = tmp_path / "journal"
    reports = [evaluate(SAMPLES, counting(reduce), journal=journal, progress=False) for reduce in (one, other)]
    assert [means(report) for report in reports] == [{"mine": 1.0}, {"mine": 0.0}]
    first, second = (report.rows[0].scores["mine"] for report in reports)
    assert first.found_by == second.found_by
    assert first.counted_by != second.counted_by


def test_a_metric_that_cannot_be_identified_is_not_journalled_and_the_report_says_why(tmp_path):
    journal = tmp_path / "journal"
    report = evaluate(SAMPLES, counting(holding(object())), journal=journal, progress=False)
    reason = (
        "its reduce function <lambda> cannot be identified (holding.<locals>.<lambda> (closure).client is a "
        'builtins.object, whose state cannot be read): pass version="1" to the metric, and change it with the function'
    )
    assert f"mine is not stored in the journal: {reason}." in report.notes
    without_journal = evaluate(SAMPLES, counting(holding(object())), progress=False)
    assert f"The instrument of mine is unknown: {reason}." in without_journal.notes
    score = report.rows[0].scores["mine"]
    assert score.counted_by == "unknown"
    assert len(score.found_by) == 16
    (instrument,) = report.instruments()["mine"]
    assert instrument.unknown == reason
    comparison = report.compare(report)
    assert comparison.notes == [
        f"mine: it is unknown whether the same instrument gave the scores (candidate: {reason}; baseline: {reason}); "
        "a difference may be due to the instruments, not the systems."
    ]


def test_a_version_identifies_a_reducer():
    one, other = (counting(holding(object()), version=version) for version in ("1", "2"))
    assert one.instrument == counting(holding(object()), version="1").instrument
    assert one.provenance.unknown == ""
    assert one.instrument != other.instrument


def test_a_version_identifies_a_model():
    client = object()

    def ask(messages):
        return str(client)

    unknown = faithfulness(Judge(RunnableLambda(ask)))
    assert unknown.instrument.startswith("unknown.")
    assert unknown.provenance.unknown == (
        "the judge's model RunnableLambda cannot be identified (func (closure).client is a builtins.object, whose "
        'state cannot be read): set Judge(model, version="1"), and change it with the model'
    )
    one, other = (faithfulness(Judge(RunnableLambda(ask), version=version)) for version in ("1", "2"))
    assert one.provenance.unknown == other.provenance.unknown == ""
    assert one.instrument != other.instrument
    assert str(error_of(ConfigError, Judge, OFFLINE, version=1)) == "version must be a text, got int"


@pytest.mark.parametrize("front", [False, True])
def test_a_function_before_the_steps_or_before_the_metric_is_part_of_what_is_found(front):
    def metric(number):
        change = RunnableLambda(lambda state: state if number else dict(state))
        plain = counting(constant(1.0))
        steps = change | plain.steps
        within = Metric("mine", aspect="answer", reads={"answer"}, steps=steps, reduce=plain.reduce)
        return change | plain if front else within

    reports = [evaluate(SAMPLES, metric(number), progress=False) for number in (1, 2)]
    with pytest.raises(ConfigError, match="closure number of RunnableLambda: 1 != 2"):
        reports[0].compare(reports[1])


def test_a_rescored_metric_keeps_what_found_its_facts():
    one, other = (evaluate(SAMPLES, faithfulness(judge), progress=False) for judge in (OFFLINE, Warm()))
    message = "different instruments (judge, prompts, options or version) scored faithfulness (judge class: "
    assert str(error_of(ConfigError, one.compare, other)).startswith(message)
    rescored = one.rescore(faithfulness(Warm()))
    assert str(error_of(ConfigError, rescored.compare, other)).startswith(message)
    assert rescored.compare(one)["faithfulness"].difference == 0.0
    assert rescored.instruments() == one.instruments()


def test_a_report_lists_its_instruments_also_when_loaded(tmp_path):
    report = evaluate(SAMPLES, [faithfulness(OFFLINE)], out=tmp_path / "report.jsonl", progress=False)
    (instrument,) = report.instruments()["faithfulness"]
    assert instrument.digests == report.rows[0].scores["faithfulness"].instrument == faithfulness(OFFLINE).instrument
    assert [step["step"] for step in instrument.found_by["steps"]] == ["extract_statements", "verify_statements"]
    assert instrument.counted_by["reduce"] == {"function": "langchain_rageval.metrics.faithfulness.supported_share"}
    assert str(instrument) == "OfflineJudge; extract_statements → verify_statements"
    report.to_jsonl(tmp_path / "copy.jsonl")
    for name in ("report.jsonl", "copy.jsonl"):
        assert Report.load(tmp_path / name).instruments() == report.instruments()


def test_differences_are_given_in_words():
    one, other = (
        {"steps": [{"step": "verify_statements", "judge": {"model": {"model_name": model}}, "prompts": [prompts]}]}
        for model, prompts in (("gpt-4o", "a"), ("gpt-4o-mini", "b"))
    )
    assert differences(one, other) == [
        "judge model_name: 'gpt-4o' != 'gpt-4o-mini'",
        "prompts of verify_statements differ",
    ]


# What changes the identity of a configuration


THREE = [{**SAMPLE, "question": f"{QUESTION} {n}"} for n in range(3)]


class Lax(OfflineJudge):
    lax: bool = False
    settings: dict[str, int] = Field(default_factory=dict)
    _session: str = PrivateAttr("")
    _calls: int = PrivateAttr(0)

    def _generate(self, *args, **options):
        self._calls += 1
        self._session = f"token-of-call-{self._calls}"
        result = super()._generate(*args, **options)
        if not self.lax:
            return result
        texts = [one.message.content.replace('"absent"', '"supported"') for one in result.generations]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text)) for text in texts])


def value(measure, journal=None):
    report = evaluate(THREE, measure, progress=False, **({"journal": journal} if journal else {}))
    return next(iter(report.summary().values())).mean


def of_function(function, **options):
    return metric(reads={"answer"}, aspect="style", name="mine", **options)(function)


def closing_over(settings):
    return lambda sample: settings["value"]


def test_what_with_config_chooses_is_part_of_the_identity(tmp_path):
    field = ConfigurableField(id="llm")
    choice = faithfulness(Lax().configurable_alternatives(field, default_key="strict", lax=Lax(lax=True)))
    fields = faithfulness(Lax().configurable_fields(lax=ConfigurableField(id="lax")))
    for name, strict, lax in (
        ("alternative", choice, choice.with_config(configurable={"llm": "lax"})),
        ("field", fields, fields.with_config(configurable={"lax": True})),
    ):
        journal = tmp_path / name
        assert [value(strict, journal), value(lax, journal), value(lax)] == [0.5, 1.0, 1.0]
    one, other = (evaluate(THREE, each_one, progress=False) for each_one in (strict, lax))
    with pytest.raises(ConfigError, match="different instruments"):
        other.compare(one)


def test_a_journal_gives_no_score_of_a_model_that_was_changed_in_place(tmp_path):
    model = Lax()
    measure = faithfulness(model)
    assert value(measure, tmp_path / "a.db") == 0.5
    model.lax = True
    assert [value(measure, tmp_path / "a.db"), value(faithfulness(model), tmp_path / "a.db")] == [1.0, 1.0]


def test_what_changes_during_a_run_is_not_given_back(tmp_path):
    settings, told = {"value": 0.1}, []

    def change():
        settings["value"] += 0.1

    def rate(sample):
        change()
        told.append(sample.id)
        return settings["value"]

    measure = of_function(rate)
    report = evaluate(THREE, measure, journal=tmp_path / "a.db", progress=False)
    assert [note for note in report.notes if "mine changed during the run" in note]
    settings["value"] = 0.1  # as when the run began
    evaluate(THREE, measure, journal=tmp_path / "a.db", progress=False)
    assert len(told) == 2 * len(THREE)


def test_a_module_that_was_reloaded_is_another_instrument(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "reloaded_rates.py"
    path.write_text("def rate(sample): return 0.25\n", encoding="utf-8")
    import reloaded_rates

    measure = of_function(lambda sample: reloaded_rates.rate(sample))
    assert value(measure, tmp_path / "a.db") == 0.25
    path.write_text("def rate(sample): return 0.75\n", encoding="utf-8")
    importlib.invalidate_caches()
    importlib.reload(reloaded_rates)
    assert value(measure, tmp_path / "a.db") == 0.75


RUN = """
import sys; sys.path[:0] = [{folder!r}, {folder!r} + "/site-packages"]
from langchain_rageval import evaluate, metric
{code}
report = evaluate({samples!r}, mine, journal={journal!r}, progress=False)
print(report.summary()["mine"].mean)
"""
MINE = "@metric(reads={{'answer'}}, aspect='style')\ndef mine(sample):\n    {body}\n"
INSTALLED = (
    "from langchain_rageval import metric\n@metric(reads={{'answer'}}, aspect='style')\ndef mine(sample): return {v}\n"
)
PROJECTS = {
    "installed package": ({"site-packages/acme/__init__.py": INSTALLED}, "from acme import mine"),
    "submodule": (
        {"mypkg/__init__.py": "", "mypkg/scoring.py": "def rate(s): return {v}\n"},
        "import mypkg.scoring\n" + MINE.format(body="return mypkg.scoring.rate(sample)"),
    ),
    "relative import": (
        {
            "apps/__init__.py": "",
            "apps/one.py": "from . import two\ndef score(s): return two.rate(s)\n",
            "apps/two.py": "from .three import rate\n",
            "apps/three.py": "def rate(s): return {v}\n",
        },
        "from apps import one\n" + MINE.format(body="return one.score(sample)"),
    ),
    "import in a function": (
        {"five.py": "from four import rate\ndef score(s): return rate(s)\n", "four.py": "def rate(s): return {v}\n"},
        MINE.format(body="from five import score; return score(sample)"),
    ),
}


@pytest.mark.gate  # quick, in this process: the test above, and the places in _internal/test_settings.py
@pytest.mark.parametrize("name", PROJECTS)
def test_a_file_that_was_edited_between_two_processes_is_another_instrument(tmp_path, name):
    files, code = PROJECTS[name]
    got = []
    for number, v in enumerate(("0.25", "0.25", "0.75")):
        for file, text in files.items():
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(v=v), encoding="utf-8")
        script = RUN.format(folder=str(tmp_path), code=code, samples=THREE, journal=str(tmp_path / "a.db"))
        env = {**os.environ, "PYTHONHASHSEED": str(number), "OPENAI_API_KEY": f"sk-{number}"}
        done = subprocess.run(
            [sys.executable, "-B", "-W", "ignore", "-c", script], capture_output=True, text=True, env=env, check=True
        )
        got.append(float(done.stdout))
    assert got == [0.25, 0.25, 0.75]


def test_compare_notes_another_code_and_refuses_other_data():
    def rate(sample):
        return len(sample.answer) / 100

    def rate_anew(sample):
        return len(sample.answer) / 101

    rate_anew.__qualname__ = rate.__qualname__
    one, other = (evaluate(THREE, of_function(function), progress=False) for function in (rate, rate_anew))
    assert any("The code or an installed version behind mine" in note for note in other.compare(one).notes)
    settings = {"value": 0.1}
    first = evaluate(THREE, of_function(closing_over(settings)), progress=False)
    settings["value"] = 0.2
    second = evaluate(THREE, of_function(closing_over(settings)), progress=False)
    with pytest.raises(ConfigError, match="different instruments"):
        second.compare(first)


# Files of version 0.1.0: they load, and what it scored is not reused


FILES = Path(__file__).parents[1] / "fixtures" / "version_0_1"
STORED = [json.loads(line) for line in (FILES / "samples.jsonl").read_text(encoding="utf-8").splitlines()]


def stored(name, tmp_path):
    return Path(shutil.copy(FILES / name, tmp_path / name))


def test_a_journal_loads_and_its_scores_are_not_reused(tmp_path):
    journal = stored("journal.sqlite", tmp_path)
    metric = faithfulness(OfflineJudge())
    first = evaluate(STORED, metric, journal=journal, progress=False)
    again = evaluate(STORED, metric, journal=journal, progress=False)
    scores = [score for row in first.rows for score in row.scores.values()]
    assert {score.instrument for score in scores} == {metric.instrument}
    assert sum(score.usage.calls for score in scores) > 0
    assert again.rows == first.rows
    assert first.failures() == []


def test_a_report_loads_and_compares_with_a_note():
    before = Report.load(FILES / "report.jsonl")
    today = evaluate(STORED, faithfulness(OfflineJudge()), progress=False)
    comparison = today.compare(before)
    assert comparison["faithfulness"].difference == 0.0
    note = (
        "faithfulness: it is unknown whether the same instrument gave the scores (baseline: it was not recorded); "
        "a difference may be due to the instruments, not the systems."
    )
    assert note in comparison.notes
    (instrument,) = before.instruments()["faithfulness"]
    assert (instrument.found_by, instrument.counted_by, instrument.unknown) == (None, None, "it was not recorded")


def test_a_generation_journal_loads_and_its_steps_are_not_reused(tmp_path):
    documents = [" ".join(sample["contexts"]) for sample in STORED]
    judge = OfflineJudge()
    options = {"distribution": {"simple": 0.5, "reasoning": 0.5}, "journal": stored("generation.sqlite", tmp_path)}
    generator = TestsetGenerator(judge, judge, HashingEmbeddings(), **options, progress=False)
    testset = generator.generate(documents, size=3, seed=7)
    assert [row.question for row in testset] == [row.question for row in Testset.load(FILES / "testset.jsonl")]
    assert generator.generate(documents, size=3, seed=7).rows == testset.rows
