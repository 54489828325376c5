"""Labels of people beside the verdict of a judge: pairs, slices, one mean, and the sheet of two reports."""

import csv
import io
import json
import random
from statistics import fmean

import pytest
from helpers.each import each
from helpers.manual import load_benchmark
from helpers.reports import failed, report_of, row, scored

from langchain_rageval import BelowThreshold, ConfigError, Report, calibrate
from langchain_rageval.report.labelling import load_labels
from langchain_rageval.statistics import prediction_powered_mean


def run(values, side, **fields):
    """Return a run whose answers name its side."""
    return Report([row(n, scored(float(value)), answer=f"{side} {n}", **fields) for n, value in enumerate(values)])


def labels_of(sheet, label):
    """Return the labels of a sheet by id, as a function of an answer gives them."""
    return {one.sample.id: label(one.sample.answer) for one in sheet}


CANDIDATE, BASELINE = run([1] * 60, "new"), run([0] * 30 + [1] * 30, "old")
BETTER, WORSE, ALIKE = (lambda answer: float(answer.startswith("new"))), (lambda answer: float("old" in answer)), None


def test_a_sheet_of_two_reports_does_not_tell_whose_answer_is_whose(tmp_path):
    sheet = CANDIDATE.to_label(25, baseline=BASELINE)
    assert len(sheet) == 50
    ids = [one.sample.id for one in sheet]
    assert ids == [one.sample.id for one in CANDIDATE.to_label(25, baseline=BASELINE)] != sorted(ids)
    assert len({name.partition("@")[0] for name in ids}) == 25
    assert not any("new" in name or "old" in name for name in ids)
    same = report_of(*[scored(1.0)] * 8)
    assert len(same.to_label(8, baseline=same)) == 8  # one answer is labelled once
    sheet.to_csv(tmp_path / "labels.csv")
    head, *lines = csv.reader(io.StringIO((tmp_path / "labels.csv").read_text(encoding="utf-8-sig")))
    filled = [[*line[:-1], "yes" if line[2].startswith("new") else "no"] for line in lines]
    with (tmp_path / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *filled])
    found = CANDIDATE.compare(BASELINE, labels=tmp_path / "labels.csv")
    assert found["faithfulness"] == CANDIDATE.compare(BASELINE, labels=labels_of(sheet, BETTER))["faithfulness"]
    assert (found.confirmed, found.corrected.labels) == (True, 25)
    assert len(load_labels(tmp_path / "labels.csv")) == 50


@each(
    ("label", "verdict", "confirmed", "gate", "codes"),
    [
        (BETTER, "better", True, "passed", []),
        (WORSE, "better", False, "failed", ["contradicted"]),
        (lambda answer: 1.0, "better", None, "undecided", ["not-confirmed"]),
    ],
)
def test_labels_confirm_or_contradict_the_verdict_of_the_judge(label, verdict, confirmed, gate, codes):
    labels = labels_of(CANDIDATE.to_label(40, baseline=BASELINE), label)
    found = CANDIDATE.compare(BASELINE, labels=labels, require="confirmed")
    metric = found["faithfulness"]
    assert (metric.verdict, metric.confirmed, found.confirmed) == (verdict, confirmed, confirmed)
    assert metric.corrected.low <= metric.corrected.difference <= metric.corrected.high
    (own,) = found.gates()
    assert (own.verdict, own.codes, own.requirement) == (gate, codes, "confirmed by people's labels")
    (judged,) = found.gates("no regression found")
    assert judged.verdict == "passed"  # without the requirement the verdict is the judge's
    shown = repr(found).splitlines()[1]
    assert shown.startswith("faithfulness contradicted by people: better") == (confirmed is False)
    assert [note.code for note in found.notes[:1]] == (["contradicted"] if confirmed is False else [])
    if codes:
        with pytest.raises(BelowThreshold, match=rf"\[{codes[0]}\]$"):
            found.check()


def test_labels_on_any_scale_are_estimated_with_the_width_of_the_scale():
    """Also if a labelled pair has no score in one report, or in none."""
    rng = random.Random(1)
    sides = [Report([*run.rows]) for run in (CANDIDATE, BASELINE)]
    sides[0].rows[3], sides[1].rows[4] = row(3, failed(), answer="new 3"), row(4, failed(), answer="old 4")
    sides[0].rows[5], sides[1].rows[5] = row(5, failed(), answer="new 5"), row(5, failed(), answer="old 5")
    shares = [{f"q-{n}": rng.choice([0.0, 0.5, 1.0]) for n in range(40)} for _ in sides]
    grades = [{name: 1 + 4 * share for name, share in own.items()} for own in shares]
    plain = sides[0].compare(sides[1], labels=tuple(shares)).corrected
    graded = sides[0].compare(sides[1], labels=tuple(grades), label_scale=(1, 5)).corrected
    judged = [None if n in (3, 4, 5) else float(n < 30) for n in range(60)]
    constant = fmean(value for value in judged if value is not None)
    own = [constant if value is None else value for value in judged[:40]]
    for labels, found, width in ((shares, plain, 1), (grades, graded, 4)):
        differences = [labels[0][name] - labels[1][name] for name in labels[0]]
        expected = prediction_powered_mean(differences, own, judged[40:], scale=(-width, width))
        assert (found.estimate, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))
    assert (graded.labels, plain.labels) == (40, 40)


def test_at_most_five_labels_without_an_answer_are_named():
    labels = {**labels_of(CANDIDATE.to_label(40, baseline=BASELINE), BETTER), **{f"x{n}": 1.0 for n in range(7)}}
    (note,) = CANDIDATE.compare(BASELINE, labels=labels).notes
    assert note.fields == {"count": 7, "ids": ["x0", "x1", "x2", "x3", "x4"]}


def test_fewer_than_twenty_labelled_pairs_say_nothing():
    labels = labels_of(CANDIDATE.to_label(19, baseline=BASELINE), BETTER)
    found = CANDIDATE.compare(BASELINE, labels=labels, require="confirmed")
    assert (found.corrected, found.confirmed) == (None, None)
    assert (found.notes[0].code, found.notes[0].fields) == ("few-labels", {"count": 19, "least": 20})
    assert [gate.verdict for gate in found.gates()] == ["undecided"]


@each(
    ("options", "problem"),
    [
        ({"labels": {"q-1": 1.0}}, "no sample has a label of both answers: write a sheet of both reports"),
        (
            {"labels": {}, "metric": "recall"},
            "the labels are for 'recall', but the reports have in common only faithfulness",
        ),
        ({"labels": ({"q-1": 4.0}, {"q-1": 0.0})}, "labels must be from -1 to 1, got 4"),
        ({"labels": {}, "paired": False}, "labels= needs paired samples"),
        ({"require": "confirmed"}, 'require="confirmed" needs labels='),
    ],
)
def test_labels_that_say_nothing_about_the_pairs_are_refused(options, problem):
    with pytest.raises(ConfigError, match=problem):
        CANDIDATE.compare(BASELINE, **options)


def test_one_label_of_two_different_answers_is_not_taken_for_both(tmp_path):
    (tmp_path / "plain.csv").write_text("id,label\n" + "".join(f"q-{n},1\n" for n in range(60)))
    with pytest.raises(ConfigError, match="no sample has a label of both answers"):
        CANDIDATE.compare(BASELINE, labels=tmp_path / "plain.csv")
    (tmp_path / "twice.csv").write_text("id,answer,label\nq-1,new 1,1\nq-1,new 1,0\n")
    with pytest.raises(ConfigError, match=r"line 3: 'q-1' already has another label: keep one"):
        CANDIDATE.compare(BASELINE, labels=tmp_path / "twice.csv")


def test_of_several_metrics_the_labelled_one_is_named():
    both = [report_of(*[[scored(value, "a"), scored(value, "b")]] * 30) for value in (1.0, 0.0)]
    labels = tuple({f"q-{n}": label for n in range(30)} for label in (1.0, 0.0))
    with pytest.raises(ConfigError, match="name the labelled metric, such as metric='a'"):
        both[0].compare(both[1], labels=labels)
    found = both[0].compare(both[1], labels=labels, metric="b", require="confirmed")
    assert (found["a"].corrected, found["b"].confirmed) == (None, True)
    assert [gate.verdict for gate in found.gates()] == ["passed", "passed"]


def test_a_mean_and_its_slices_are_corrected_by_the_code_of_calibrate():
    rng = random.Random(3)
    human = [float(rng.random() < 0.6) for _ in range(200)]
    report = Report(
        [
            row(n, scored(label if rng.random() < 0.9 else 1 - label), metadata={"topic": "ab"[n % 3 == 0]})
            for n, label in enumerate(human)
        ]
    )
    labels = {f"q-{n}": human[n] for n in range(0, 200, 2)}
    found = report.corrected(labels)["all"]
    scores = report.scores()
    others = [scores[f"q-{n}"] for n in range(1, 200, 2)]
    expected = calibrate([(label, scores[name]) for name, label in labels.items()], others)
    assert (found.mean, found.low, found.high, found.labels) == (expected.mean, expected.low, expected.high, 100)
    slices = report.corrected(labels, by="topic")
    assert list(slices) == ["b", "a"]
    assert all(one.low <= 0.6 <= one.high for one in slices.values())
    assert report.corrected({f"q-{n}": 1.0 for n in range(20)}, by="topic") == {"b": None, "a": None}
    with pytest.raises(ConfigError, match=r"no sample has a value for 'chapter'"):
        report.corrected({f"q-{n}": 1.0 for n in range(60)}, by="chapter")


@each(
    ("lines", "count"),
    [
        (["id,question,answer,label", "q-1,?,new 1,1", "q-1,?,old 1,0"], 0),  # by id
        (["id,question,answer,label", "x,When was Munich founded?,new 1,1", "x2,When was Munich founded?,old 1,0"], 0),
        (["id,question,answer,label", "q-1,?,new 1,1", "q-1,?,old 1,0", "x,?,new 1,1", "x2,?,other,1"], 2),
    ],
)
def test_labels_belong_to_a_row_by_id_or_by_question_and_answer(tmp_path, lines, count):
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    notes = CANDIDATE.compare(BASELINE, labels=tmp_path / "labels.csv").notes
    assert [note.fields["count"] for note in notes if note.code == "labels-of-no-sample"] == [count] * bool(count)
    assert [note.fields["count"] for note in notes if note.code == "few-labels"] == [1]


def test_simulated_labels_show_a_difference_as_often_as_stated():
    people = load_benchmark("judge_shift")
    assert people.labels(100, 60, 0.0)["contrary"] <= 0.05
    assert 0.1 <= people.labels(100, 60, 0.1)["shown"] <= 0.45


def write_faithbench(folder):
    """Write a file like those of FaithBench: three systems, of which people and judge prefer different ones."""
    rng, samples = random.Random(0), []
    for source in range(75):
        for system, clean, liked in (("a", 0.9, 0.5), ("b", 0.4, 0.9), ("c", 0.4, 0.5)):
            marks = [] if rng.random() < clean else [{"label": ["Unwanted"]}]
            judge = {name: float(rng.random() < liked) for name in ("gpt_4o", "gpt-4-turbo", "gpt-3.5-turbo")}
            judge |= {"trueteacher": judge["gpt_4o"], "hhem-2.1-english": judge["gpt_4o"]}
            text = {"source": f"Text {source}.", "summary": f"Text {source}."}
            samples.append({**text, "annotations": marks, "metadata": {"summarizer": system, **judge}})
    (folder / "batch_1.json").write_text(json.dumps({"samples": samples}))


@pytest.mark.gate
def test_the_tables_against_people_are_made_from_files(tmp_path, capsys):
    write_faithbench(tmp_path)
    people = load_benchmark("people")
    people.DRAWS = 5
    people.main(["--faithbench", str(tmp_path)])
    shown = capsys.readouterr().out
    names, bodies = (shown.strip().split("\n\n")[start::2] for start in (0, 1))
    tables = dict(zip(names, bodies, strict=True))
    assert list(tables) == ["faithbench", "verdicts", "calibrate"]
    (gpt,) = [line.split(" | ") for line in tables["verdicts"].splitlines() if line.startswith("| GPT-4o ")]
    decided, agree, contrary, undecided = map(int, gpt[2:6])
    assert decided == agree + contrary + undecided == 2
    assert contrary == 1  # b is worse than a, and the judge calls it better
    assert gpt[6] == "0"
