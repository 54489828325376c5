"""`rageval ci`: exit codes, Markdown and JUnit XML, also of runs that fail; applications that are broken are red."""

import re
from xml.etree import ElementTree

import pytest
from helpers.servers.chat import Faults

from langchain_rageval import Report

QUESTIONS = [f"Когда закрывается касса номер {number}?" for number in range(12)]
CONTEXT = "Касса закрывается в шесть часов вечера."


def answered(answer):
    return [{"question": one, "answer": answer, "contexts": [CONTEXT]} for one in QUESTIONS]


@pytest.fixture
def good(written):
    """Write good answers."""
    return written(*answered(CONTEXT))


@pytest.fixture
def baseline(rageval, good, tmp_path):
    """Write the report of a good run."""
    assert rageval("evaluate", good, "--out", tmp_path / "main.jsonl", "--quiet")[0] == 0
    return tmp_path / "main.jsonl"


OFFLINE = ["--judge", "offline"]


def outputs(tmp_path):
    return ["--markdown", tmp_path / "m.md", "--junit", tmp_path / "j.xml", "--quiet"]


# Jenkins' schema junit-10: the attributes that an element must and may have, and its children
COUNTS = {"name", "tests", "failures", "errors"}
SCHEMA = {
    "testsuites": (set(), COUNTS | {"time"}, {"testsuite"}),
    "testsuite": (COUNTS, COUNTS | {"time", "skipped", "timestamp", "hostname", "id", "package"}, {"testcase"}),
    "testcase": ({"name"}, {"name", "time", "classname", "group"}, {"failure", "error", "skipped"}),
    **dict.fromkeys(("failure", "error"), (set(), {"type", "message"}, set())),
}


def junit(tmp_path):
    """Return the problem of each test case by class and name, after a check of the file against the schema."""
    suites = ElementTree.parse(tmp_path / "j.xml").getroot()
    for element in suites.iter():
        required, allowed, children = SCHEMA[element.tag]
        assert required <= set(element.keys()) <= allowed
        assert {child.tag for child in element} <= children
        assert re.fullmatch(r"\d*(\.\d*)?", element.get("time", ""))
    (suite,) = suites
    problems = [[(part.tag, part.get("message")) for part in case] for case in suite]
    cases = {(case.get("classname"), case.get("name")): found for case, found in zip(suite, problems, strict=True)}
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    assert int(suite.get("tests")) == len(cases)
    assert int(suite.get("failures")) + int(suite.get("errors")) == sum(map(bool, cases.values()))
    return cases


def test_a_good_run_passes_and_writes_every_file(rageval, tmp_path, good, baseline):
    files = [*outputs(tmp_path), "--html", tmp_path / "p.html", "--out", tmp_path / "new.jsonl"]
    gates = ["--fail-under", "faithfulness=0.8", "--baseline", baseline]
    code, _, err = rageval("ci", *OFFLINE, good, *gates, *files)
    assert (code, [line for line in err.splitlines() if "from" not in line]) == (0, [])
    gates = ("mean at least 0.8", "no regression found: inconclusive")
    assert junit(tmp_path) == {("rageval.faithfulness", gate): [] for gate in gates}
    markdown = (tmp_path / "m.md").read_text(encoding="utf-8")
    said = "inconclusive, by OfflineJudge"
    told = f"faithfulness {said}: +0.000 \\[-0.065, +0.065\\], p = 1.000 (12 pairs, 0 better, 0 worse)"
    assert markdown.startswith(f"## ✅ RAG evaluation: passed\n\n- {told}")
    gated = "✅ mean at least 0.8<br>✅ no regression found: inconclusive"
    difference = f"+0.000 [-0.065, +0.065]<br>{said}"
    means = f"| faithfulness | 1.000 | [0.758, 1.000] | {gated} | 1.000 | {difference} | 12 | 0 | 0 |"
    assert means in markdown
    assert len(Report.load(tmp_path / "new.jsonl")) == 12
    assert "</bdi> неясно, по оценке OfflineJudge</span>" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_a_broken_application_is_red(rageval, tmp_path, written, baseline):
    """More ways to be broken stand before more gates in tests/report/test_broken_runs.py."""
    answers = written(*answered("Слоны платят по понедельникам."))
    for gates in (["--fail-under", "faithfulness=0.8"], ["--baseline", baseline]):
        assert rageval("ci", *OFFLINE, answers, *gates, *outputs(tmp_path))[0] == 1
        assert any(junit(tmp_path).values())
        assert (tmp_path / "m.md").read_text(encoding="utf-8").startswith("## ❌ RAG evaluation: failed\n\n- ")


def test_only_a_report_that_is_kept_is_named(rageval, tmp_path, good):
    words = ["ci", *OFFLINE, good, "--fail-under", "faithfulness=0.8"]
    assert "written to" not in rageval(*words)[1]
    assert f"Report written to {tmp_path}/new.jsonl" in rageval(*words, "--out", tmp_path / "new.jsonl")[1]


def test_a_run_that_ends_with_an_error_is_in_the_files(rageval, tmp_path, written):
    path = written(*[{"question": "Когда?", "answer": "В шесть."}] * 6)
    gates = ["--fail-under", "faithfulness=0.8", "--strict"]
    code, _, err = rageval("ci", *OFFLINE, path, *gates, *outputs(tmp_path))
    assert code == 2
    problem = err.splitlines()[-1].removeprefix("rageval: ")
    assert junit(tmp_path) == {("rageval.run", "the run ends without an error"): [("error", problem)]}
    assert (tmp_path / "m.md").read_text(encoding="utf-8").startswith("## ⚠️ RAG evaluation: error\n\n- ")


def test_a_report_of_an_earlier_run_is_not_taken_for_this_one(rageval, tmp_path, baseline):
    files = [*outputs(tmp_path), "--out", baseline]
    code, _, _ = rageval("ci", *OFFLINE, tmp_path / "missing.jsonl", "--fail-under", "faithfulness=0.8", *files)
    assert code == 2
    assert "| metric |" not in (tmp_path / "m.md").read_text(encoding="utf-8")
    assert len(Report.load(baseline)) == 12


def test_texts_of_samples_make_no_markup_and_no_mentions(rageval, tmp_path, written):
    hostile = "<script>alert(1)</script> @admin closes #12 | `x` **bold** [a](https://example.org) \x00 </details>"
    rageval("ci", *OFFLINE, written(*answered(hostile)), "--fail-under", "faithfulness=0.8", *outputs(tmp_path))
    markdown = (tmp_path / "m.md").read_text(encoding="utf-8")
    assert [part for part in ("<script", "@admin", "#12") if part in markdown] == []
    assert markdown.replace("\\](https", "").count("](https") == 0
    assert markdown.count("</details>") == markdown.count("<details>")
    assert len(markdown) < 65_536
    junit(tmp_path)


@pytest.mark.gate
def test_a_run_stops_when_the_baseline_and_the_gates_are_decided(rageval, tmp_path, written):
    given = [{"contexts": [CONTEXT], "answer": CONTEXT if n < 280 else "На Луне."} for n in range(300)]
    answers = written(*({"question": f"Когда закрывается касса номер {n}?", **one} for n, one in enumerate(given)))
    rageval("evaluate", answers, "--out", tmp_path / "main.jsonl", "--quiet")
    options = ["--baseline", tmp_path / "main.jsonl", "--margin", "0.1", "--until-decided", *outputs(tmp_path)]
    gate = ["--fail-under", "faithfulness=0.6", "--out", tmp_path / "r.jsonl"]
    assert rageval("ci", *OFFLINE, answers, *options, *gate)[0] == 0
    report = Report.load(tmp_path / "r.jsonl")
    verdicts = {"faithfulness": "passed", "faithfulness against the baseline": "no worse"}
    assert {key: decision.verdict for key, decision in report.decisions.items()} == verdicts
    assert len(report.rows) < 300


def test_without_a_baseline_the_files_say_how_to_go_on(rageval, tmp_path, good):
    gone = tmp_path / "gone.jsonl"
    words = ["ci", *OFFLINE, good, "--baseline", gone, "--html", tmp_path / "p.html", *outputs(tmp_path)]
    code, _, err = rageval(*words)
    assert code == 2
    problem = "does not exist [missing-baseline]: name the report of an earlier run, or add --allow missing-baseline"
    assert f"{gone} {problem}" in err
    assert "--allow missing-baseline" in (tmp_path / "m.md").read_text(encoding="utf-8")
    assert [kind for problems in junit(tmp_path).values() for kind, _ in problems] == ["error"]
    assert "missing-baseline" in (tmp_path / "p.html").read_text(encoding="utf-8")
    code, _, err = rageval(*words, "--allow", "missing-baseline", "--fail-under", "faithfulness=0.5")
    assert (code, f"{gone} does not exist, so nothing is compared" in err) == (0, True)


def test_a_baseline_that_is_too_small_to_show_no_worse_is_named(rageval, good, baseline):
    words = ["--baseline", baseline, "--margin", "0.02", "--require", "no-worse", "--quiet"]
    code, _, err = rageval("ci", *OFFLINE, good, *words)
    assert code == 1
    assert "takes at least 189 samples, also without any loss; there are 12." in err.splitlines()[0]


# Changes of a healthy system: what is red names its way out

TILLS = "АБВГДЕЖЗИКЛМНОП"


def till(number, **changed):
    fact = f"Касса {TILLS[number]} закрывается в {8 + number} часов {11 + number} минут вечера."
    question = f"Когда закрывается касса {TILLS[number]}?"
    told = {"id": TILLS[number], "question": question, "answer": fact, "contexts": [fact], "references": [fact]}
    return told | changed


ALL = [till(number) for number in range(15)]
PAGES = [one | {"answer": f"<html><body>{one['answer']}</body></html>"} for one in ALL]
BARE = [{name: value for name, value in one.items() if name != "references"} for one in ALL]
BOTH = ["--metrics", "faithfulness,context_recall"]
STORIES = {
    "nothing changed": (ALL, ALL, BOTH, None),
    "a question was reworded": (ALL, [till(0, question="Когда открыто?"), *ALL[1:]], BOTH, "reworded-samples"),
    "a metric is left out by name": (ALL, ALL, ["--metrics", "faithfulness"], None),
    "a metric is forgotten": (ALL, ALL, [], "missing-metric"),
    "a preset finds no references": (ALL, BARE, ["--metrics", "core"], "missing-metric"),
    "the assistant writes HTML": (PAGES, PAGES, BOTH, "html"),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_healthy_system_is_green_or_the_message_names_the_way_out(rageval, tmp_path, written, story):
    before, after, words, code = STORIES[story]
    rageval("evaluate", written(*before), *OFFLINE, *BOTH, "--out", tmp_path / "main.jsonl", "--quiet")
    ci = ["ci", written(*after), *OFFLINE, "--baseline", tmp_path / "main.jsonl", "--quiet", *words]
    exit_code, out, err = rageval(*ci)
    assert exit_code == (0 if code is None else 1)
    is_dropped = story in ("a metric is left out by name", "a metric is forgotten", "a preset finds no references")
    assert ("Only the baseline has context_recall." in out) == is_dropped
    if code is not None:
        assert f"[{code}]" in err
        assert f"; if {code} is meant to be so in this application, add --allow {code}\n" in err
        assert rageval(*ci, "--allow", code)[0] == 0


def test_two_thresholds_of_one_metric_are_refused(rageval, good):
    words = ["--fail-under", "faithfulness=0.8", "--fail-under", "faithfulness=0"]
    code, _, err = rageval("ci", *OFFLINE, good, *words)
    assert (code, "--fail-under faithfulness has two values, 0.8 and 0" in err) == (2, True)


def test_one_lost_call_among_fifteen_questions_is_green_and_named(rageval, tmp_path, written, judged):
    answers, (server, judge) = written(*ALL), judged()
    judge += ["--metrics", "faithfulness", "--quiet"]
    rageval("evaluate", answers, *judge, "--out", tmp_path / "main.jsonl")
    server.faults = Faults.script([*[None] * 14, "unauthorized"])
    words = ["--no-canaries", "--baseline", tmp_path / "main.jsonl"]
    code, _, err = rageval("ci", answers, *judge, *words, *outputs(tmp_path), "--out", tmp_path / "new.jsonl")
    report = Report.load(tmp_path / "new.jsonl")
    assert (code, report.summary()["faithfulness"].failed) == (0, 1), err
    assert "a loss up to" in (tmp_path / "m.md").read_text(encoding="utf-8")
