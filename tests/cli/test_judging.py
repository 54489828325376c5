"""People, judges and models compared: `label`, `agreement`, `qualify`, `leaderboard` and `rubric-study`."""

import csv
import io
import json

import pytest
from helpers.reports import report_of, row, scored, unscored
from helpers.screens import cells_of

from langchain_rageval import OfflineJudge, Report, Sample, agreement, evaluate, rubric
from langchain_rageval.report.labelling import load_labels


@pytest.fixture
def report(tmp_path):
    made = report_of(*[scored(value / 9) for value in range(10)], unscored())
    made.to_jsonl(tmp_path / "report.jsonl")
    return made


def test_a_sheet_is_drawn_filled_in_and_compared(rageval, report, tmp_path):
    sheet = tmp_path / "labels.csv"
    code, told, _ = rageval("label", tmp_path / "report.jsonl", "--n", 10, "--out", sheet, "--semicolons")
    assert code == 0
    assert f"10 samples to label for faithfulness, written to {sheet}: fill in the column 'label'" in told
    assert "1 sample without a score of faithfulness cannot be drawn." in told
    head, *lines = sheet.read_text(encoding="utf-8-sig").splitlines()
    said = [f"{line}{'да' if number > 2 else 'нет'}" for number, line in enumerate(lines)]
    sheet.write_text("\n".join([head, *said]), encoding="utf-8")
    code, told, _ = rageval("agreement", tmp_path / "report.jsonl", sheet)
    assert (code, "Agreement with binary labels on 10 pairs" in told) == (0, True)
    found = agreement(report.scores(), load_labels(sheet))
    assert cells_of(told) == [list(cells) for cells in found.cells()]
    sheet.write_text("id,label\n" + "".join(f"q-{number},{number // 3}\n" for number in range(10)))  # grades
    words = "agreement", tmp_path / "report.jsonl", sheet, "--metric", "faithfulness"
    code, told, _ = rageval(*words, "--kind", "ordinal", "--scale", 0, 3)
    assert (code, "within_one" in told, "–" in told) == (0, True, False)


# Labels, examined judges and anchors

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


# qualify


@pytest.mark.gate
def test_it_shows_the_steps_the_cost_and_the_verdicts(rageval, tmp_path):
    out = tmp_path / "q.json"
    code, told, complaints = rageval("qualify", "--repeats", 1, "--quiet", "--out", out)
    assert (code, complaints) == (0, "")
    shown = ["OfflineJudge(), HashingEmbeddings(size=512) in 'ru', each question asked once", "regenerate_questions"]
    shown += ["measure_similarity", "valid at once", "aspect_critique unfit", "kind of item", "injection in context"]
    shown += ["Judged offline by word overlap", "A third of the labelled items was asked, ", f"Written to {out}"]
    assert [part for part in shown if part not in told] == []
    assert "…" not in told
    assert max(map(len, told.splitlines()[1:10])) <= 120
    assert json.loads(out.read_text(encoding="utf-8"))["language"] == "ru"


def test_own_items_are_all_asked_unless_a_third_is_wanted(rageval, written):
    record = {"step": "regenerate_questions", "kind": "refusal", "answer": "I do not know that.", "gold": "evasive"}
    own = written(*({"id": f"own-{n}", **record} for n in range(6)))
    for words, asked in ((["--own", own], 6), (["--own", own, "--quick"], 2)):
        code, told, _ = rageval("qualify", *words, "--repeats", 1, "--quiet", "--json")
        assert (code, json.loads(told)["steps"]["regenerate_questions"]["right"]["of"]) == (0, asked)


def test_one_wrong_item_of_one_cannot_tell_and_other_metrics_are_only_named(rageval, written):
    texts = {"contexts": ["A card costs 40 euros."], "question": "What does a card cost?"}
    record = {"id": "own", "step": "verify_statements", "kind": "number", **texts}
    record["statements"] = [{"contradicted": "A card costs 40 euros.", "by": "A card"}]
    code, told, _ = rageval("qualify", "--own", written(record), "--language", "en", "--quiet")
    assert (code, "faithfulness cannot tell\n" in told) == (0, True)
    assert "Not examined, for lack of labelled items or of --embeddings: answer_relevance, " in told
    assert [part for part in ("rubric cannot tell", "unfit", "qualify_judge", "the package") if part in told] == []


@pytest.mark.gate
def test_all_packaged_items_are_asked_on_request_and_it_ends_with_1_only_if_a_requirement_is_not_met(rageval):
    words = ["qualify", "--language", "en", "--repeats", 1, "--quiet", "--require", "answer_similarity=care"]
    code, told, complaints = rageval(*words, "--full", "--json")
    assert (code, complaints) == (0, "")
    assert json.loads(told)["steps"]["verify_statements"]["right_by_kind"]["table"]["of"] == 16
    code, told, complaints = rageval(*words, "--require", "context_precision=fit")
    assert (code, complaints) == (1, "rageval: context_precision: required fit, got unfit\n")
    assert "grade_contexts" in told


# leaderboard

TRUTH = "Полис покрывает пожар и залив бани."
ANSWERS = {"new": TRUTH, "old": "Слоны живут в Африке."}


@pytest.fixture
def of_models():
    """Write the report of some models' answers to ten questions; the models' names where they are wanted."""

    def write(path, models, named=True):
        samples = [
            Sample(
                id=f"q{n}@{model}" if named else f"q{n}",
                question=f"Что покрывает полис {n}?",
                answer=ANSWERS[model],
                references=[TRUTH],
                metadata={"model": model} if named else {},
            )
            for model in models
            for n in range(10)
        ]
        evaluate(samples, rubric(OfflineJudge()), progress=False).to_jsonl(path)
        return path

    return write


def test_models_are_ranked_with_their_grades(rageval, of_models, tmp_path):
    code, told, _ = rageval("leaderboard", of_models(tmp_path / "r.jsonl", ["old", "new"]))
    assert code == 0
    first, second, *grades = cells_of(told)
    assert (first[:3], second[:2]) == (["1", "new", "1.000"], ["2", "old"])
    assert second[-1] == "< 0.001"
    assert [line[:2] for line in grades] == [["new", "3.00"], ["old", "0.00"]]
    assert "…" not in told
    assert "Judged offline by word overlap" in told


def test_a_report_per_model_is_named_after_its_file_or_its_path_if_several_have_the_file_name(
    rageval, of_models, tmp_path
):
    paths = [of_models(tmp_path / f"{model}.jsonl", [model], named=False) for model in ANSWERS]
    code, told, _ = rageval("leaderboard", *paths)
    assert (code, [line[1] for line in cells_of(told)[:2]]) == (0, ["new", "old"])
    assert cells_of(told)[1][-1] == "< 0.001"
    for model in ANSWERS:
        (tmp_path / model).mkdir()
    paths = [of_models(tmp_path / model / "graded.jsonl", [model], named=False) for model in ANSWERS]
    _, told, _ = rageval("leaderboard", *paths)
    assert told.startswith("2 models by rubric")


# rubric-study


@pytest.fixture
def sheets(written):
    lines = [
        {
            "id": f"q{n}@{model}",
            "question": f"Что покрывает полис {n}?",
            "answer": answer,
            "reference": TRUTH,
            "metadata": {"model": model, "people": {"correctness": grade}},
        }
        for model, answer, grade in (("new", TRUTH, 3), ("old", "Слоны живут в Африке.", 0))
        for n in range(3)
    ]
    return written(*lines)


def test_scales_and_examples_are_studied_beside_each_other(rageval, sheets, tmp_path):
    out = tmp_path / "study.jsonl"
    words = ("--scale", "0-3", "--scale", "1-5", "--labels", "people", "--price", "offline=2,10", "--out", out)
    code, told, _ = rageval("rubric-study", sheets, *words, "--quiet")
    assert code == 0
    rows = cells_of(told)
    assert [row[1] for row in rows] == ["0-3, examples", "0-3, no examples", "1-5, examples", "1-5, no examples"]
    assert [row[4] for row in rows] == ["100%", "100%", "–", "–"]
    assert all(float(row[-1]) > 0 for row in rows)
    assert "No two rows disagree on the order of the models: new > old." in told
    assert len(Report.load(out).rows[0].scores) == 4


def test_one_choice_of_examples_makes_one_row(rageval, sheets):
    _, told, _ = rageval("rubric-study", sheets, "--examples", "none", "--quiet")
    assert "0-3, no examples" in told
    assert "0-3, examples" not in told
