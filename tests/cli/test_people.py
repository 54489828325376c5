"""Labels, examined judges and anchors on the command line: `compare`, `label`, `agreement`, `qualify` and `ci`."""

import csv
import io
import json

import pytest
from helpers.reports import row, scored

from langchain_rageval import Report

OFFLINE = ["--judge", "offline", "--quiet"]


def answers_of(right):
    """Return thirty answers of which the first ones are right."""
    fact = "Касса закрывается в шесть часов вечера."
    answers = [fact if n < right else "Слоны построили мост." for n in range(30)]
    return [{"id": f"q{n}", "question": f"Q{n}?", "answer": one, "contexts": [fact]} for n, one in enumerate(answers)]


def fill_in(path, label):
    """Fill in a sheet with the label of each answer."""
    head, *lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *([*line[:-1], label(line[2])] for line in lines)])


@pytest.fixture
def runs(tmp_path):
    """Write a baseline and a better candidate, whose answers name their side."""
    paths = []
    for side, value in (("old", 0.0), ("new", 1.0)):
        rows = [row(n, scored(value), answer=f"{side} {n}") for n in range(40)]
        paths.append(tmp_path / f"{side}.jsonl")
        Report(rows).to_jsonl(paths[-1])
    return paths


@pytest.mark.parametrize(("liked", "code", "said"), [("new", 0, "confirmed"), ("old", 1, "contradicted")])
def test_labels_of_both_reports_are_drawn_filled_in_and_compared(rageval, runs, tmp_path, liked, code, said):
    old, new = runs
    sheet = tmp_path / "labels.csv"
    assert rageval("label", new, "--baseline", old, "--n", 30, "--out", sheet)[0] == 0
    fill_in(sheet, lambda answer: "yes" if answer.startswith(liked) else "no")
    with sheet.open("a", encoding="utf-8") as file:
        file.write("elsewhere,Q?,A,,,yes\n")
    words = ["compare", old, new, "--labels", sheet, "--json"]
    assert rageval(*words, "--fail-if-worse")[0] == 0  # the judge's verdict alone
    ended, out, err = rageval(*words, "--fail-if-worse", "--require", "confirmed")
    metric = json.loads(out)["metrics"]["faithfulness"]
    assert (ended, metric["verdict"], metric["confirmed"]) == (code, "better", said == "confirmed")
    assert (metric["corrected"]["labels"], "[contradicted]" in err) == (30, said == "contradicted")
    ignored = "faithfulness: ignored labels: 1; their ids are of no compared answer, such as elsewhere."
    _, out, _ = rageval(*words[:-1])
    assert (said in out, ignored in " ".join(out.split())) == (True, True)


def test_ci_demands_the_judge_that_was_examined(rageval, written, tmp_path):
    answers, judge = written(*answers_of(20)), tmp_path / "judge.json"
    words = ["ci", answers, *OFFLINE, "--fail-under", "faithfulness=0.5", "--require-judge", judge]
    out = ["--out", tmp_path / "a.report", "--junit", tmp_path / "j.xml"]
    code, _, err = rageval(*words, *out)
    assert (code, "[judge-not-examined]" in err) == (1, True)
    assert f"run `rageval qualify --judge offline --out {judge}`" in err
    assert "an examined judge" in (tmp_path / "j.xml").read_text(encoding="utf-8")
    (tmp_path / "l.csv").write_text("id,label\n" + "".join(f"q{n},{int(n < 20)}\n" for n in range(30)))
    assert rageval("agreement", tmp_path / "a.report", tmp_path / "l.csv", "--out", judge)[0] == 0
    assert json.loads(judge.read_text())["verdict"] == {"faithfulness": "fit"}
    assert rageval(*words)[0] == 0


def test_ci_asks_the_judge_again_about_rows_of_the_baseline(rageval, written, tmp_path):
    new = written(*answers_of(20))
    assert rageval("evaluate", new, *OFFLINE, "--out", tmp_path / "main.jsonl")[0] == 0
    stored = Report.load(tmp_path / "main.jsonl")
    lenient = ({"scores": {"faithfulness": scored_as(one, 1.0)}, "asked": []} for one in stored.rows)
    rows = [one.model_copy(update=update) for one, update in zip(stored.rows, lenient, strict=True)]
    Report(rows, provenance=stored.provenance).to_jsonl(tmp_path / "main.jsonl")
    words = ["ci", new, *OFFLINE, "--baseline", tmp_path / "main.jsonl"]
    code, _, err = rageval(*words)
    assert (code, "[worse]" in err) == (1, True)
    out = tmp_path / "out.jsonl"
    code, _, err = rageval(*words, "--anchors", 30, "--out", out, "--price", "OfflineJudge=1,1")
    assert (code, "[judge-shift]" in err) == (1, True)
    written = Report.load(out)
    (note,) = (one for one in written.notes if one.code == "asked-again")
    assert (note.fields["count"], note.fields["calls"]) == (30, written.asked_again.calls)
    assert written.usage == written.summary().usage + written.asked_again
    assert rageval(*words, "--anchors", 30, "--out", out, "--budget-calls", written.usage.calls - 1)[0] == 1
    less = Report.load(out)
    plan = json.loads(rageval("plan", new, *OFFLINE[:2], "--anchors", 30, "--json")[1])
    assert (plan["total"]["calls"], plan["notes"][-1][:34]) == (2 * 2 * 30, "The figures include 30 rows of the")
    assert (less.asked_again.calls < written.asked_again.calls, less.notes[-1].code) == (True, "budget-spent")
    assert rageval(*words, "--anchors", 30, "--allow", "judge-shift,worse")[0] == 0


def scored_as(one, value):
    """Return the score of a row with another value."""
    return one.scores["faithfulness"].model_copy(update={"value": value, "unscored": None})
