"""Instruments of scores: what the journal stores, what a report lists, and what is compared."""

import pytest
from helpers.each import error_of
from helpers.samples import QUESTION, SAMPLE
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import Judge, Metric, OfflineJudge, Report, Value, evaluate, faithfulness
from langchain_rageval.data.instrument import differences
from langchain_rageval.errors import ConfigError
from langchain_rageval.steps.extract_statements import extract_statements

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
