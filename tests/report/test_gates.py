"""Gates are red when the evaluated application does not work: by `check`, by `compare` and on the command line."""

import json
import re
from dataclasses import replace
from statistics import fmean

import pytest
from helpers.each import each, error_of
from helpers.manual import load_benchmark
from helpers.reports import LOST, failed, report_of, row, scored, unscored
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import BelowThreshold, ConfigError, OfflineJudge, Report, evaluate, faithfulness
from langchain_rageval.cli.main import run
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.report.files import Decision
from langchain_rageval.report.gates import decided_gates

PLACES = ["Munich", "Berlin", "Hamburg", "Cologne", "Dresden", "Leipzig", "Bremen", "Essen", "Bonn", "Kiel"]
REFUSAL = "I do not know: the documents do not say."


def good(number):
    fact = f"{PLACES[number]} was founded in {1100 + number} by a duke."
    return {"question": f"When was {PLACES[number]} founded?", "answer": fact, "contexts": [fact]}


GOOD = [good(number) for number in range(10)]
DEAD = {
    "refuses everything": [{**sample, "answer": REFUSAL} for sample in GOOD],
    "dead retriever": [{**sample, "contexts": []} for sample in GOOD],
    "swapped contexts": [{**s, "contexts": GOOD[n - 1]["contexts"]} for n, s in enumerate(GOOD)],
    "empty answers": [{**sample, "answer": ""} for sample in GOOD],
    "one sample repeated": [GOOD[0]] * 10,
}


def scored_report(samples):
    return evaluate(samples, faithfulness(OfflineJudge()), progress=False)


def command(*words):
    return run([str(word) for word in words])


def gated(path, out):
    """Return the exit code of `rageval evaluate` with a threshold."""
    return command("evaluate", path, "--judge", "offline", "--fail-under", "faithfulness=0.8", "--out", out, "--quiet")


@pytest.fixture
def written(tmp_path):
    def write(name, samples):
        path = tmp_path / name
        path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        return path

    return write


def test_a_working_application_passes_every_gate(written):
    report = scored_report(GOOD)
    report.compare(scored_report(GOOD)).check()
    report.check({"faithfulness": 0.8}, baseline=scored_report(GOOD))
    path, out = written("good.jsonl", GOOD), written("report.jsonl", [])
    assert gated(path, out) == 0
    assert command("compare", out, out, "--fail-if-worse") == 0


@pytest.mark.parametrize("samples", DEAD.values(), ids=DEAD)
def test_a_dead_application_fails_every_gate(written, samples):
    report, baseline = scored_report(samples), scored_report(GOOD)
    gates = [report.gates({"faithfulness": 0.8}), report.gates({}, baseline=baseline), report.compare(baseline).gates()]
    assert all(any(gate.verdict != "passed" for gate in own) for own in gates)
    before, after = written("before", []), written("after", [])
    baseline.to_jsonl(before)
    path = written("samples.jsonl", samples)
    assert gated(path, after) == 1
    assert command("compare", before, after, "--fail-if-worse") == 1


def test_shuffled_ids_are_paired_by_question_and_other_questions_are_no_pairs(written):
    baseline = scored_report([{**sample, "id": str(n)} for n, sample in enumerate(GOOD)])
    shuffled = scored_report([{**sample, "id": str((n + 3) % 10)} for n, sample in enumerate(GOOD)])
    unrelated = scored_report([{**sample, "question": f"Why {n}?", "id": str(n)} for n, sample in enumerate(GOOD)])
    found = shuffled.compare(baseline)
    assert (found["faithfulness"].pairs, found["faithfulness"].verdict) == (10, "inconclusive")
    assert code_of(found.notes[0]) == "paired-by-question"
    found = unrelated.compare(baseline)
    assert [code_of(note) for note in found.notes] == ["no-common-sample", "reworded"]
    assert found.notes[1].fields["count"] == 10
    with pytest.raises(ConfigError, match="nothing was compared: "):
        found.check()
    before, after = written("before", []), written("after", [])
    baseline.to_jsonl(before)
    unrelated.to_jsonl(after)
    assert command("compare", before, after, "--fail-if-worse") == 2


def test_one_id_repeated_fails_every_gate():
    report = scored_report([{**GOOD[0], "id": "0"}] * 10)
    told = r"^faithfulness scored 1 different of 10 samples, at least 5 are needed to"
    with pytest.raises(BelowThreshold, match=told):
        report.check({"faithfulness": 0.8})
    told = r"faithfulness too few pairs, by .* in 1 cluster, .*: at least 6 are needed \[too-few-pairs\]$"
    with pytest.raises(BelowThreshold, match=told):
        report.compare(report).check()
    with pytest.raises(ConfigError, match=r"^nothing was compared: "):
        report.compare(scored_report(GOOD)).check()


@each(
    ("candidate", "baseline", "reason"),
    [
        (Report([]), Report([]), "the candidate and the baseline have no samples."),
        (Report([]), report_of(scored(1.0)), "the candidate has no samples."),
        (report_of(scored(1.0)), Report([]), "the baseline has no samples."),
    ],
)
def test_a_comparison_with_nothing_has_a_note_and_fails(candidate, baseline, reason):
    comparison = candidate.compare(baseline)
    assert comparison.notes[-1] == f"Nothing was compared: {reason}"
    with pytest.raises(ConfigError, match=r"^nothing was compared: "):
        comparison.check()


def test_few_scores_do_not_pass_and_the_message_says_so():
    report = report_of(scored(1.0), *[unscored()] * 29)
    error = error_of(BelowThreshold, report.check, {"faithfulness": 0.8})
    few = "faithfulness scored 1 of 30 samples, at least 5 are needed to pass [few-scored]"
    many = "faithfulness is unscored for 29 of 30 samples, at most 50% may [unscored]"
    assert (str(error), error.codes) == (f"{few}; {many}", ["few-scored", "unscored"])
    assert (error.threshold, error.score) == (0.8, None)
    assert str(error_of(BelowThreshold, report.check, {"faithfulness": 0.8}, max_unscored=1.0)) == few
    report_of(*[scored(1.0)] * 5, *[unscored()] * 20).check({"faithfulness": 0.8}, max_unscored=0.8)
    report_of(scored(1.0), unscored()).check({"faithfulness": 0.8})


# What is not known


@each(
    ("scores", "left_out", "unreadable", "verdict", "codes"),
    [
        ([scored(1.0)] * 6, [(n, "faithfulness") for n in range(6, 1000)], 0, "undecided", ["not-scored"]),
        ([scored(1.0)] * 6, [], 54, "undecided", ["not-scored"]),
        ([scored(1.0)] * 2, [], 0, "passed", []),
        ([scored(1.0)] * 2 + [unscored()] * 9, [], 0, "undecided", ["few-scored", "unscored"]),
        ([scored(1.0)] * 3 + [failed()] * 27, [], 0, "undecided", ["not-scored"]),
        ([scored(0.0)] * 20 + [failed()] * 2, [], 0, "failed", ["below-threshold"]),
        ([scored(1.0)] * 20 + [failed()] * 2, [], 1, "passed", []),
        ([scored(1.0)] * 20 + [unscored()] * 10, [], 0, "passed", []),
        ([failed()] * 9, [], 0, "undecided", ["not-scored-at-all"]),
        ([unscored()] * 9, [], 0, "failed", ["nothing-scored"]),
    ],
)
def test_a_gate_asks_about_every_sample_that_the_run_was_given(scores, left_out, unreadable, verdict, codes, tmp_path):
    report = replace(report_of(*scores), left_out=left_out, unreadable=unreadable)
    report.to_jsonl(tmp_path / "r.jsonl")
    for one in (report, Report.load(tmp_path / "r.jsonl")):
        (gate,) = one.gates({"faithfulness": 0.8})
        assert (gate.verdict, gate.codes) == (verdict, codes)
        assert gate.reason.count("[") >= len(codes)


@each(("answer", "verdict"), [("", "failed"), ("\u200b", "failed"), ("—", "failed"), ("👍", "passed")])
@each("answerable", [None, False])
def test_blank_answers_count_as_the_worst_value_from_the_first_on(answer, verdict, answerable):
    more = {"answer": answer, "metadata": {} if answerable is None else {"answerable": answerable}}
    rows = [*(row(n, scored(0.8)) for n in range(19)), row(19, unscored(), **more)]
    (gate,) = Report(rows).gates({"faithfulness": 0.8})
    assert gate.verdict == ("passed" if answerable is False else verdict)
    ranked = [row(n, scored(0.8, aspect="ranking")) for n in range(19)]
    silent = row(19, unscored("no chunk is known to be relevant", aspect="ranking"), answer="")
    assert Report([*ranked, silent]).gates({"faithfulness": 0.8})[0].verdict == "passed"


def test_a_run_that_ended_early_is_undecided():
    whole = report_of(*[scored(1.0)] * 9)
    (gate,) = replace(whole, complete=False).gates({"faithfulness": 0.8})
    assert (gate.verdict, gate.codes) == ("undecided", ["incomplete"])
    spent = replace(whole, notes=[Note("budget-spent-unread", budget="9 calls", count=3, first=9)])
    (gate,) = spent.gates({"faithfulness": 0.8})
    assert (gate.verdict, gate.codes) == ("undecided", ["not-read"])


RANGES = {"share": (0.0, 1.0), "grade": (1.0, 5.0), "loss": (-2.0, 0.0)}


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, None, "failed", "blank", "unscored"]), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.2, 0.25, 0.5, 0.75, 1.0]),
    st.sampled_from(["higher", "lower"]),
    st.sampled_from([*RANGES]),
    st.integers(0, 3),
)
def test_a_gate_passes_if_the_unknown_values_can_be_anything(kinds, share, direction, name, unreadable):
    """The oracle puts the least and the greatest value in place of the unknown ones, in each combination."""
    low, high = RANGES[name]
    threshold, more = low + share * (high - low), {"direction": direction, "range": RANGES[name]}
    rows, left_out, known, unknown = [], [], [], unreadable
    for n, kind in enumerate(kinds):
        if kind is None:
            left_out.append((n, "faithfulness"))
            unknown += 1
        elif kind == "failed":
            rows.append(row(n, failed(**more)))
            unknown += 1
        elif kind == "blank":
            rows.append(row(n, unscored(**more), answer=""))
            known.append(low if direction == "higher" else high)
        elif kind == "unscored":
            rows.append(row(n, unscored(**more)))
        else:
            known.append(low + kind * (high - low))
            rows.append(row(n, scored(known[-1], **more)))
    if not rows:
        return
    report = Report(rows, left_out=left_out, unreadable=unreadable)
    ends = [[*known, *[low] * n, *[high] * (unknown - n)] for n in range(unknown + 1)]
    sign = 1 if direction == "higher" else -1
    for max_failed, possible in ((0.0, ends), (1.0, [known])):
        reached = [sign * (fmean(values) - threshold) >= -1e-9 for values in possible if known] or [bool(unknown)]
        verdict = "undecided" if any(reached) else "failed"
        if known and all(reached):
            verdict = "passed"
        (gate,) = report.gates({"faithfulness": threshold}, max_failed, allow={"few-scored"}, max_unscored=1.0)
        assert (gate.verdict, bool(gate.reason)) == (verdict, verdict != "passed")


@each(("size", "least"), [(1, 1), (2, 1), (3, 2), (8, 4), (9, 5), (10, 5), (30, 5)])
def test_half_of_the_samples_or_five_are_scored(size, least):
    for count, verdict in ((least, "passed"), (least - 1, "undecided")):
        if count:
            report = report_of(*[scored(1.0)] * count, *[unscored()] * (size - count))
            (gate,) = report.gates({"faithfulness": 0.5}, max_unscored=1.0)
            assert (gate.verdict, gate.codes) == (verdict, [] if verdict == "passed" else ["few-scored"])


def test_the_message_names_what_is_unknown_and_what_it_could_make_of_the_mean():
    grade = {"metric": "grade", "range": (1, 5)}
    report = report_of(*[scored(5.0, **grade)] * 8, *[failed(**grade)] * 2)
    report = replace(report, left_out=[(10, "grade"), (11, "grade"), (12, "other")], unreadable=4)
    (gate,) = report.gates({"grade": 4.0})
    assert gate.reason == (
        "8 of 16 samples have no value of grade (4 unreadable, 2 failed, 2 left out): its mean may be anything from "
        "3.000 to 5.000, at least 4 is required; score them, with a larger budget if it was spent [not-scored]"
    )
    assert gate.to_dict() == {**vars(gate), "codes": ["not-scored"]}


@each(
    ("last", "reason"),
    [
        (row(9, scored(0.5)), r"^faithfulness is 0\.500 \[0\.\d{3}, 0\.\d{3}\], at least 0\.8 is required \["),
        # no interval of nine
        (row(9, unscored(), answer=" "), r"^faithfulness is 0\.450, at least 0\.8 is required \["),
        (row(9, failed(failure=LOST.model_copy(update={"step": "sample"})), answer=""), r"^faithfulness is 0\.450, "),
        (row(9, failed(), answer=""), r"^faithfulness is 0\.500 \["),
        (row(9, unscored(aspect="context"), answer=""), r"^faithfulness is 0\.500 \["),
        (row(9, unscored(range=(None, 1)), answer=""), r"^faithfulness is 0\.500"),  # there is no worst value
    ],
)
def test_the_mean_of_a_gate_counts_blank_answers_only_where_the_answer_is_measured(last, reason):
    (gate,) = Report([*(row(n, scored(0.5)) for n in range(9)), last]).gates({"faithfulness": 0.8})
    assert re.match(reason, gate.reason), gate.reason


@each(
    ("own", "strong", "broken", "threshold", "allow", "verdict", "codes"),
    [
        (0.5, [1.0] * 40, 0, 0.9, (), "passed", []),  # the strong judge decides
        (1.0, [0.0] * 40, 0, 0.9, (), "failed", ["below-threshold-by-audit"]),
        (0.5, [1.0] * 20 + [0.0] * 20, 0, 0.5, (), "undecided", ["undecided-by-audit"]),
        (1.0, [1.0] * 19, 0, 0.5, (), "undecided", ["few-audited"]),
        (1.0, [1.0] * 19, 0, 0.5, {"few-audited"}, "passed", []),
        (1.0, [0.0] * 19, 0, 0.9, {"few-audited"}, "failed", ["below-threshold-by-audit"]),
        (1.0, [1.0] * 20, 0, 0.5, (), "passed", []),
        (1.0, [], 20, 0.5, (), "undecided", ["nothing-audited"]),
        (1.0, [1.0] * 38, 2, 0.2, (), "passed", []),  # exactly a twentieth failed
        (1.0, [1.0] * 37, 3, 0.2, (), "undecided", ["audit-failed"]),
        (1.0, [1.0] * 37, 3, 0.2, {"audit-failed"}, "passed", []),
        (1.0, [0.0] * 37, 3, 0.9, (), "failed", ["below-threshold-by-audit", "audit-failed"]),
    ],
)
def test_an_audit_decides_by_the_interval_of_the_strong_judge(own, strong, broken, threshold, allow, verdict, codes):
    audits = [*map(scored, strong), *[failed()] * broken]
    audits += [None] * (60 - len(audits))
    audits = [{} if audit is None else {"faithfulness": audit} for audit in audits]
    rows = [row(n, scored(own), audit=audit) for n, audit in enumerate(audits)]
    (gate,) = Report(rows).gates({"faithfulness": threshold}, allow=allow)
    assert (gate.verdict, gate.codes) == (verdict, codes)


def test_an_audit_counts_blank_answers_as_the_worst_and_what_it_has_not_seen_as_unknown():
    heard = [row(n, scored(1.0), audit={"faithfulness": scored(1.0)}) for n in range(60)]
    silent = [row(n, unscored(), answer="—", audit={"faithfulness": unscored()}) for n in range(60, 100)]
    (gate,) = Report([*heard, *silent]).gates({"faithfulness": 0.8})
    assert (gate.verdict, gate.codes) == ("failed", ["below-threshold-by-audit"])
    rest = [(n, "faithfulness") for n in range(60, 90)]
    for report in (replace(Report(heard), unreadable=30), replace(Report(heard), left_out=rest)):
        (gate,) = report.gates({"faithfulness": 0.8})
        assert (gate.verdict, gate.codes) == ("undecided", ["not-scored"])
    assert replace(Report(heard), unreadable=3).gates({"faithfulness": 0.8})[0].verdict == "passed"


# Decisions that were paid for


@each(("unreadable", "verdict"), [(0, "passed"), (1, "passed"), (10, "undecided")])
def test_records_that_no_rule_could_read_are_unknown_beside_its_decision(unreadable, verdict):
    decided = {"faithfulness": Decision("passed", 0.81, 1.0, 30, 0.05)}
    report = replace(report_of(*[scored(1.0)] * 30), decisions=decided, unreadable=unreadable)
    (gate,) = report.gates({"faithfulness": 0.8})
    assert (gate.verdict, gate.codes) == (verdict, [] if verdict == "passed" else ["not-scored"])


@each(("verdict", "low", "high"), [("passed", 0.81, 1.0), ("failed", 0.1, 0.5), ("undecided", 0.6, 0.9)])
def test_the_decision_of_a_run_is_the_answer_of_its_gate(verdict, low, high):
    decided = {"faithfulness": Decision(verdict, low, high, 30, 0.05)}
    report = replace(report_of(*[scored(0.82)] * 30), decisions=decided)
    (gate,) = report.gates({"faithfulness": 0.8})
    assert (gate.verdict, gate.codes) == (verdict, [] if verdict == "passed" else ["decision"])


def test_decisions_about_thresholds_are_no_decisions_about_the_baseline():
    decided = {
        "a": Decision("passed", 0.9, 1.0, 30, 0.05),
        "b": Decision("undecided", -0.2, 0.1, 30, 0.05),
        "b against the baseline": Decision("worse", -0.2, -0.1, 30, 0.05),
        "c": Decision("precise", 0.9, 1.0, 30, 0.05),
        "d": Decision("better", 0.1, 0.2, 30, 0.05),
        "e": Decision("no worse", 0.0, 0.2, 30, 0.05),
        "f": Decision("undecided", -0.2, 0.1, 30, 0.05),
    }
    gates = decided_gates(decided, {"a", "b"}, "no worse", ())
    verdicts = {name: gate.verdict for name, gate in gates.items()}
    assert verdicts == {"b": "failed", "d": "passed", "e": "passed", "f": "undecided"}
    assert gates["b"].requirement == "no worse"
    assert decided_gates(decided, {"a", "b"}, "no worse", {"decision"})["b"].verdict == "passed"


def test_the_decision_of_a_run_stands_for_the_comparison_and_else_nothing_in_common_is_refused():
    report = report_of(*[scored(1.0)] * 8)
    decided = replace(report, decisions={"faithfulness": Decision("worse", -0.2, 0.1, 30, 0.05)})
    assert [(gate.verdict, gate.codes) for gate in decided.gates({}, baseline=report)] == [("failed", ["decision"])]
    other = Report([row(n, scored(1.0, "other"), id=f"x{n}", question=f"Q{n}?") for n in range(8)])
    with pytest.raises(ConfigError, match=r"^nothing was compared: "):
        report.gates({}, baseline=other)
    assert [gate.codes for gate in decided.gates({}, baseline=other)] == [["missing-metric"]]


def test_a_metric_that_only_the_baseline_has_is_lost_unless_it_is_allowed_or_was_left_out():
    report, baseline = report_of(*[scored(1.0)] * 8), report_of(*[[scored(1.0), scored(1.0, "old")]] * 8)
    with pytest.raises(BelowThreshold, match=r"^only the baseline has old: .* \[missing-metric\]$") as caught:
        report.check({}, baseline=baseline)
    assert [gate.verdict for gate in caught.value.gates] == ["passed", "failed"]
    report.check({}, baseline=baseline, allow={"missing-metric"})
    left_out = replace(report, left_out=[(n, "old") for n in range(8)])
    gates = left_out.gates({}, baseline=baseline, allow={"missing-metric"})
    assert [(gate.verdict, gate.codes) for gate in gates][1:] == [("undecided", ["metric-left-out"])]


def test_accepted_shares_go_from_0_to_1():
    report = report_of(*[scored(1.0)] * 10)
    for option in ("max_failed", "max_unscored"):
        for share in (0, 0.0, 1, 1.0):
            report.check({"faithfulness": 0.5}, **{option: share})
        for share in (-0.01, 1.01, "1"):
            with pytest.raises(ConfigError, match=f"^{option} must be a share from 0 to 1, got {share!r}$"):
                report.check({"faithfulness": 0.5}, **{option: share})


@pytest.mark.gate
def test_runs_of_an_unchanged_system_are_rarely_red():
    red, count = load_benchmark("healthy_runs").shares(216)["all"]
    assert red / count < 0.05 + 1.96 * (0.05 * 0.95 / count) ** 0.5
