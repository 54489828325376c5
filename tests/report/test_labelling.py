"""Labels of people: sheets to label, who is drawn, what comes back; and labels beside the verdict of a judge."""

import base64
import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from statistics import fmean

import pytest
from helpers.each import each
from helpers.manual import load_benchmark
from helpers.reports import failed, judged_as, report_of, row, scored, unscored
from helpers.stored import assert_stored, page_text
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import BelowThreshold, ConfigError, Report, Turn, calibrate
from langchain_rageval.report.labelling import describe_question, load_labels
from langchain_rageval.statistics import prediction_powered_mean

VALUES = [number / 99 for number in range(100)]
HUNDRED = report_of(*map(scored, VALUES))
FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "'=1", "＝1", "\n@x"]


def cells(path, delimiter=","):
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


# Who is drawn


def test_the_rows_are_spread_evenly_over_the_scores():
    for seed in range(5):
        values = sorted(row.scores["faithfulness"].value for row in HUNDRED.to_label(10, seed=seed))
        assert [int(value * 9.9) for value in values] == list(range(10))


@pytest.mark.gate
def test_every_row_has_the_same_chance():
    times = Counter(row.sample.id for seed in range(2000) for row in HUNDRED.to_label(7, seed=seed))
    assert len(times) == 100
    assert min(times.values()) > 95
    assert max(times.values()) < 195  # 140 on average, five deviations


def test_of_more_than_there_are_all_are_drawn_once_and_those_without_a_score_never():
    report = report_of(scored(1.0), unscored(), failed(), scored(0.5))
    sheet = report.to_label(10)
    assert [row.sample.id for row in sheet] == ["q-0", "q-3"]
    assert sheet.notes == [
        "All 2 rows with a score are included; 10 were requested.",
        "2 samples without a score of faithfulness cannot be drawn.",
    ]
    assert repr(sheet).splitlines()[0] == "2 rows to label for faithfulness"
    assert (sheet[0], sheet[-1:]) == (report.rows[0], [report.rows[3]])


def test_several_rows_with_one_id_are_all_drawn_under_the_names_of_their_scores():
    report = Report([row(number, scored(1.0), id="same", question=f"q{number}") for number in range(3)])
    assert [(row.index, row.sample.id) for row in report.to_label(3)] == [(0, "same"), (1, "same-2"), (2, "same-3")]
    assert list(report.scores()) == ["same", "same-2", "same-3"]


def test_with_several_metrics_one_is_named():
    report = report_of([scored(1.0), scored(0.0, "relevance")])
    assert report.to_label(1, "relevance").metric == "relevance"
    for asked in (lambda: report.to_label(1), report.scores):
        with pytest.raises(ConfigError, match="name the metric; the report has faithfulness, relevance"):
            asked()
    with pytest.raises(ConfigError, match="the report has no metric 'rubric'"):
        report.to_label(1, "rubric")


@each(
    ("report", "n", "problem"),
    [
        *((HUNDRED, n, "n must be the number of rows to label, at least 1, got ") for n in (0, -1, 1.5, True)),
        (report_of(failed()), 1, "no row has a score of faithfulness"),
    ],
)
def test_what_cannot_be_drawn_is_refused(report, n, problem):
    with pytest.raises(ConfigError, match=problem):
        report.to_label(n)


def test_pairs_of_which_one_answer_has_no_score_are_not_drawn():
    here, there = report_of(scored(1.0), failed(), scored(0.5), scored(0.2)), report_of(*[scored(0.0)] * 2, unscored())
    there = Report([*there.rows, row(3, scored(0.4), answer="Other.")])
    sheet = here.to_label(9, baseline=there)
    assert {one.sample.id.partition("@")[0] for one in sheet} == {"q-0", "q-3"}
    assert len(sheet) == 3  # one answer of q-0, and two of q-3


def test_a_question_is_shown_with_what_a_judge_made_of_it():
    def told(*verdicts):
        findings = [judged_as(f"{verdict}?", verdict) for verdict in verdicts]
        return describe_question(row(0, scored(1.0, findings=findings), scored(1.0, "b", findings=findings)))

    assert told("rewritten", "rewritten") == "When was Munich founded? → rewritten?"
    assert told("unchanged", "refused") == told() == "When was Munich founded?"


# The sheet


def test_a_sheet_holds_what_a_person_needs_and_not_what_the_judge_said(tmp_path):
    report = Report([row(0, scored(0.25), answer="В 1158 году.", contexts=["один", "два"], references=["1158"])])
    report.to_label(1).to_csv(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_bytes().startswith("\ufeffid,question".encode())
    assert cells(tmp_path / "labels.csv") == [
        ["id", "question", "answer", "contexts", "references", "label"],
        ["q-0", "When was Munich founded?", "В 1158 году.", "[1] один\n\n[2] два", "1158", ""],
    ]
    report.to_label(1).to_csv(tmp_path / "shown.csv", delimiter=";", show_scores=True)
    assert [line[-2:] for line in cells(tmp_path / "shown.csv", ";")] == [["faithfulness", "label"], ["0,25", ""]]


@each("text", FORMULAS)
def test_no_cell_is_a_formula(tmp_path, text):
    (tmp_path / "labels.csv").unlink(missing_ok=True)
    report = Report([row(0, scored(1.0), id=text, question=text, answer=text, contexts=[text], references=[text])])
    report.to_label(1).to_csv(tmp_path / "labels.csv")
    _, line = cells(tmp_path / "labels.csv")
    assert all(cell.startswith("'") for cell in line[:-1])
    assert line[1] == f"'{text}"


def test_a_cell_is_no_longer_than_a_spreadsheet_takes(tmp_path):
    report = Report([row(0, scored(1.0), answer="a" * 40_000, contexts=["б\0" * 40_000])])
    report.to_label(1).to_csv(tmp_path / "labels.csv")
    _, line = cells(tmp_path / "labels.csv")
    assert [len(cell) for cell in line[2:4]] == [32_767] * 2
    assert line[2].endswith("a…")
    assert "\0" not in line[3]


def test_a_sheet_that_people_may_have_filled_in_is_not_written_over_nor_with_an_unknown_delimiter(tmp_path):
    HUNDRED.to_label(1).to_csv(tmp_path / "labels.csv")
    filled_in = (tmp_path / "labels.csv").read_bytes() + b"1"
    (tmp_path / "labels.csv").write_bytes(filled_in)
    for place in (tmp_path / "labels.csv", tmp_path):
        with pytest.raises(ConfigError, match="cannot be written: File exists; choose another path"):
            HUNDRED.to_label(1).to_csv(place)
    with pytest.raises(ConfigError, match=r"delimiter is ',', ';' or a tab, got '\|'"):
        HUNDRED.to_label(1).to_csv(tmp_path / "labels.csv", delimiter="|")
    assert (tmp_path / "labels.csv").read_bytes() == filled_in


# What comes back


def saved(path, lines, *, delimiter, encoding, quoted=False):
    """The sheet as a spreadsheet saves it."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerows(lines)
    path.write_bytes(text.getvalue().encode(encoding))


SAVED = [(",", "utf-8-sig", False), (",", "utf-8", True), (";", "utf-8-sig", True), (";", "cp1251", False)]


@each(("delimiter", "encoding", "quoted"), [*SAVED, ("\t", "utf-16", False)])
def test_labels_come_back_from_every_way_to_save_a_sheet(tmp_path, delimiter, encoding, quoted):
    (tmp_path / "labels.csv").unlink(missing_ok=True)
    ids = ["007", "1-2", "q-1", "=1", "'", "е-1", "ёж; 2", " a", "b,c"]
    report = Report([row(number, scored(0.5), id=name) for number, name in enumerate(ids)])
    report.to_label(len(ids)).to_csv(tmp_path / "labels.csv")
    head, *lines = cells(tmp_path / "labels.csv")
    said = ["да", " Нет ", "YES", "no", "1", "0,5", "0.5", "", "-"]
    filled = [[*line[:-1], label] for line, label in zip(lines, said, strict=True)]
    saved(tmp_path / "filled.csv", [head, *filled], delimiter=delimiter, encoding=encoding, quoted=quoted)
    values = [1.0, 0.0, 1.0, 0.0, 1.0, 0.5, 0.5, None, 0.0]
    expected = {name: value for name, value in zip(ids, values, strict=True) if value is not None}
    assert load_labels(tmp_path / "filled.csv") == expected


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20))
def test_every_id_comes_back(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("ids") / "ids.csv"
    Report([row(0, scored(1.0), id=name)]).to_label(1).to_csv(path)
    head, line = cells(path)
    saved(path, [head, [*line[:-1], "1"]], delimiter=";", encoding="utf-8-sig")
    assert load_labels(path) == {name: 1.0}


def test_only_id_and_label_are_needed_in_any_place_and_case(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(f"Label;note; ID\n1,0;{'x' * 200_000};q-1\n;;q-2\n0;;q-3;more;cells\n")
    assert load_labels(path) == {"q-1": 1.0, "q-3": 0.0}
    path.write_text("id;a, b, c, d;label\nq-1;x, y;1\n")
    assert load_labels(path) == {"q-1": 1.0}


@each(
    ("text", "message"),
    [
        ("id,label\nq-1,maybe\n", r"line 2: 'maybe' is not a label: enter a number, yes or no \(да, нет\)"),
        ('id,note,label\nq-1,"a\nb",1\nq-2,,01.май\n', "line 4: '01.май' is not a label"),
        ("id,label\nq-1,1\nq-1,0\n", "line 3: 'q-1' has two labels, 1 and 0: keep one"),
        ("id,grade\nq-1,1\n", "expected one column 'label', got id, grade"),
        ("label,label,id\n", "expected one column 'label', got label, label, id"),
        ("", "expected one column 'id', got nothing"),
        ("id,label\nq-1,\n", "has no labels: fill in the column 'label'"),
        ("id,label\nq-1,nan\n", "'nan' is not a label"),
        ("PK\3\4", "is a workbook: save the sheet as CSV"),
    ],
)
def test_an_invalid_sheet_is_refused_with_the_line_and_the_remedy(tmp_path, text, message):
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_labels(path)
    assert str(path) in str(caught.value)


def test_a_sheet_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path} cannot be read: Is a directory")):
        load_labels(tmp_path)


# The whole way


def test_the_page_to_label_is_as_stored(tmp_path):
    told = Turn(role="user", text="Сколько стоит полис?")
    fields = {"answer": "Сто рублей.", "contexts": ["Полис: 100."], "references": ["100"], "history": [told]}
    sheet = Report([row(n, scored(n / 9), id=f"=q-{n}", **fields) for n in range(3)]).to_label(2)
    shown = []
    for options in ({}, {"scale": (1, 5), "instruction": "How polite?"}, {"scale": (0, 9), "language": "en"}):
        sheet.to_html(tmp_path / "sheet.html", **options)
        shown.append(page_text((tmp_path / "sheet.html").read_text(encoding="utf-8")))
    assert_stored("page_to_label.txt", "\n".join(shown))


def content_of(page):
    """Return the data and the words that are packed into a page, as text."""
    blocks = re.findall(r'<script type="text/plain" id="\w+">([^<]+)</script>', page.read_text(encoding="utf-8"))
    return [gzip.decompress(base64.b64decode(block)).decode() for block in blocks]


def test_a_metric_of_your_own_has_a_question_too(tmp_path):
    report_of(scored(1.0, "politeness {x}")).to_label(1).to_html(tmp_path / "labels.html")
    _, data = map(json.loads, content_of(tmp_path / "labels.html"))
    assert data["instruction"] == {
        "en": "Would you give this sample a high score for politeness {x}?",
        "ru": "Заслуживает ли этот пример высокой оценки по метрике politeness {x}?",
    }


@each("scale", [(1, 10), (-1, 3), (3, 3), (5, 1), (0.5, 1), (1, 2, 3), (True, 3)])
def test_a_scale_without_keys_is_refused(tmp_path, scale):
    with pytest.raises(ConfigError, match=r"scale is the lowest and the highest grade, from 0 to 9, as \(1, 5\); got "):
        report_of(scored(1.0)).to_label(1).to_html(tmp_path / "labels.html", scale=scale)
    assert list(tmp_path.iterdir()) == []


# Labels of people beside the verdict of a judge: pairs, slices, one mean, and the sheet of two reports


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


IN_COMMON = "but the reports have in common only faithfulness"


@each(
    ("options", "problem"),
    [
        ({"labels": {"q-1": 1.0}}, "no sample has a label of both answers: write a sheet of both reports"),
        ({"labels": {}, "metric": "recall"}, f"the labels are for 'recall', {IN_COMMON}"),
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
    judged = [scored(label if rng.random() < 0.9 else 1 - label) for label in human]
    report = Report([row(n, score, metadata={"topic": "ab"[n % 3 == 0]}) for n, score in enumerate(judged)])
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
