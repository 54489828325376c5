"""Sheets to label: who is drawn, what a spreadsheet may make of them, and what comes back."""

import base64
import csv
import gzip
import io
import json
import re
from collections import Counter

import pytest
from helpers.each import each
from helpers.reports import failed, report_of, row, scored, unscored
from helpers.stored import assert_stored, page_text
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Finding, Report, Turn
from langchain_rageval.report.labelling import describe_question, load_labels

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
        findings = [
            Finding(kind="standalone_question", number=1, text=f"{verdict}?", verdict=verdict) for verdict in verdicts
        ]
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


@each(
    ("delimiter", "encoding", "quoted"),
    [
        (",", "utf-8-sig", False),
        (";", "utf-8-sig", True),
        (";", "cp1251", False),
        ("\t", "utf-16", False),
        (",", "utf-8", True),
    ],
)
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
