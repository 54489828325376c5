"""What reports, comparisons and merge requests say, word for word, and what `Report.plot` draws."""

import io
import random
import re
import subprocess
import sys
from datetime import timedelta
from functools import partial
from textwrap import dedent

import numpy as np
import pytest
from helpers.each import each
from helpers.reports import START, failed, report, report_of, row, scored, unscored
from helpers.stored import assert_stored, described, plain
from matplotlib.image import imread

from langchain_rageval import ConfigError, Finding, Report, leaderboard, trend
from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.errors import BelowThreshold
from langchain_rageval.report.markdown import markdown_of


def noise(value):
    return scored(value, "noise", direction="lower", reason=f"{value} of the statements")


LATE = report_of(
    *([scored(value, reason=f"{value} is supported"), noise(1 - value)] for value in (0.5, 0.75, 1.0, 0.25, 0.5, 1.0)),
    [failed(), noise(0.5)],
    [unscored(), noise(0.0)],
    notes=["Something to know."],
)
EARLY = report_of(*([scored(value), noise(1 - value)] for value in (0.75, 1.0, 1.0, 0.75, 1.0, 1.0, 1.0, 1.0)))


def lines(text):
    return dedent(text).strip("\n").splitlines()


def test_the_text_of_a_report():
    assert str(LATE).splitlines() == lines("""
        Report of 8 samples
        faithfulness 0.667 [0.383, 0.866] (6 scored, 1 unscored, 1 failed; 0 calls)
        noise 0.312 [0.141, 0.557] (8 scored, 0 unscored, 0 failed; 0 calls)
        Failed: 1 of faithfulness: APIConnectionError in verify_statements, first in sample 'q-6': Connection error.
        Unscored: 1 of faithfulness: the answer states no facts, first in sample 'q-7'
        Note: Something to know.
    """)


def test_the_tables_of_a_notebook():
    def cells(shown):
        return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in shown.split("</tr>")[:-1]]

    assert cells(LATE._repr_html_()) == [
        ["metric", "mean", "95% interval", "scored", "unscored", "failed", "abstained", "calls", "tokens"],
        ["faithfulness", "0.667", "[0.383, 0.866]", "6", "1", "1", "1", "0", "–"],
        ["noise", "0.312", "[0.141, 0.557]", "8", "0", "0", "–", "0", "–"],
    ]
    assert cells(LATE.compare(EARLY)._repr_html_()) == [
        ["metric", "verdict", "baseline", "candidate", "difference", "95% interval", "p", "pairs", "+", "−"],
        ["faithfulness", "inconclusive", "0.917", "0.667", "-0.250", "[-0.478, +0.103]", "0.174", "6", "0", "4"],
        ["noise ↓", "inconclusive", "0.062", "0.312", "+0.250", "[-0.035, +0.435]", "0.174", "8", "0", "5"],
    ]


def test_the_markdown_of_a_run():
    gates = LATE.gates({"faithfulness": 0.5, "noise": 0.2}, 0.2, max_unscored=0.2)
    shown = markdown_of(LATE, gates, LATE.compare(EARLY))
    head, worst = shown.split("### Worst samples\n\n")
    assert head.rstrip("\n").splitlines() == lines("""
        ## ❌ RAG evaluation: failed

        - noise is 0.312 \\[0.141, 0.557\\], at most 0.2 is required \\[below-threshold\\]

        | metric | mean | 95% interval | required | baseline | difference | scored | unscored | failed |
        |---|---|---|---|---|---|---|---|---|
        | faithfulness | 0.667 | [0.383, 0.866] | ✅ mean at least 0.5 | 0.917 | -0.250 [-0.478, +0.103] | 6 | 1 | 1 |
        | noise ↓ | 0.312 | [0.141, 0.557] | ❌ mean at most 0.2 | 0.062 | +0.250 [-0.035, +0.435] | 8 | 0 | 0 |
    """)
    samples, notes = worst.split("### Notes\n\n")
    titles = re.findall(r"\((q-\d)\): faithfulness (\S+), noise ([\d.]+)<", samples)
    alike = [("q-0", "0.50", "0.50"), ("q-4", "0.50", "0.50")]
    assert titles == [("q-3", "0.25", "0.75"), *alike, ("q-6", "–", "0.50")]
    assert samples.splitlines()[:7] == lines("""
        <details><summary>When was Munich founded? (q-3): faithfulness 0.25, noise 0.75</summary>

        - answer: In 1158.
        - faithfulness: 0\\.25 is supported
        - noise: 0\\.75 of the statements

        </details>
    """)
    assert notes.splitlines() == lines("""
        - Failed: 1 of faithfulness: APIConnectionError in verify\\_statements, first in sample 'q-6': Connection error.
        - Unscored: 1 of faithfulness: the answer states no facts, first in sample 'q-7'
        - Something to know.
    """)


def month(mean, seed, *, start=0, size=60):
    """Return a report of turns of conversations in two languages, with usage and times; some scores are missing."""
    rng, rows = random.Random(seed), []
    for place in range(size):
        language = rng.choice(["en", "ru"])
        value = min(1.0, max(0.0, round(rng.gauss(mean + (language == "en") / 5, 0.2), 2)))
        paid = Usage(calls=2, input_tokens=700 + place, output_tokens=30, seconds=0.5, money=0.001, embedded=place % 2)
        first = failed() if place % 17 == 3 else unscored() if place % 11 == 4 else scored(value, usage=paid)
        rare = [scored(round(value), "rare", usage=paid)] * (place % 9 == 0)
        fields = {"id": f"q-{start + place}", "metadata": {"language": language, "conversation": f"c-{place // 3}"}}
        fields |= {"time": START + timedelta(hours=7 * place), "tags": {"language": language}}
        audit = {"faithfulness": scored(min(1.0, value + 0.1))} if place % 4 == 0 else {}
        rows.append(row(place, first, noise(round(1 - value, 2)), *rare, audit=audit, **fields))
    return Report(rows, ["Something to know."])


def language_of(one):
    return one.metadata["language"]


def test_what_follows_from_reports_is_as_stored():
    late, early, other = month(0.5, 1), month(0.7, 2), month(0.7, 3, start=100, size=45)
    told = {
        "summary": late.summary(),
        "summary, independent": late.summary(cluster=None),
        "by language": late.summary(language_of),
        "usage": late.usage.model_dump(),
        "audit": late.audit,
        "diagnosis": late.diagnose().counts,
        "compared": late.compare(early),
        "with margin": late.compare(early, 0.3, cluster=None),
        "better": early.compare(late, 0.3),
        "unpaired": late.compare(other, paired=False),
        "reweighted": late.compare(other, paired=False, reweight=language_of),
        "detectable": late.minimum_detectable_difference("noise"),
        "detectable again": late.minimum_detectable_difference("noise", 0.9, 0.01, 0.2),
        "detectable, compared": late.minimum_detectable_difference("noise", baseline=early),
        "trend": trend(late, early, by="week"),
        "trend by tag": trend(late, by="language"),
        "drift": trend(month(0.2, 4), early, margin=0.05, adjust=language_of),
        "worst": [one.sample.id for one in late.worst("faithfulness")],
        "to label": [one.sample.id for one in late.to_label(7, "noise")],
    }
    lines = [f"# {name}\n{text}\n{plain(text)}\n" for name, text in told.items()]
    problems = []
    generous = {"baseline": early, "margin": 0.5, "max_failed": 0.5, "max_unscored": 0.01}
    for options in ({}, {"baseline": early}, generous):
        try:
            late.check({"faithfulness": 0.6, "noise": 0.2, "rare": 0.99}, **options)
        except BelowThreshold as problem:
            problems.append(str(problem))
    assert_stored("report.txt", "\n".join([*lines, *problems]) + "\n")


RIGHT = scored(1.0, reason="all is right")
BAD, GOOD = (scored(value, "noise", direction="lower", reason=f"noise is {value}") for value in (0.9, 0.0))


def test_the_worst_sample_of_a_metric_where_less_is_better_has_the_most_and_good_scores_need_no_comment():
    shown = markdown_of(report_of([RIGHT, GOOD], [RIGHT, BAD]), [], None)
    worst = shown.partition("### Worst samples")[2]
    assert "(q-1)" in worst
    assert "(q-0)" not in worst
    assert "- noise: noise is 0.9" in worst
    assert "all is right" not in worst


def test_samples_that_are_better_than_the_mean_are_not_among_the_worst():
    """A sample without a value counts as a right one in the mean, and is not listed."""
    for values, listed in (((0.9, 0.1, 0.9), ["q-1"]), ((0.9, 0.9), ["q-0", "q-1"]), ((0.9, 0.5, None), ["q-1"])):
        report = report_of(*(failed() if value is None else scored(value) for value in values))
        assert re.findall(r"<summary>.*\((q-\d)\)", markdown_of(report, [], None)) == listed


# Reports of a file that others wrote, as text and as Markdown: no character commands the terminal


HOSTILE = "<b>a\x1b]0;title\x07\x1b[31m\x9b1m\u202eb\u2066c\u2028d"
FORBIDDEN = set("\x07\x1b\x9b\u202e\u2066\u2028")


@pytest.fixture
def hostile_report(tmp_path):
    finding = Finding(kind="statement", number=1, text=HOSTILE, verdict="contradicted")
    wrong = scored(0.0, HOSTILE, aspect=HOSTILE, reason=HOSTILE, findings=[finding])
    lost = failed(HOSTILE, aspect=HOSTILE, failure=Failure(error="ValueError", message=HOSTILE))
    fields = {"question": HOSTILE, "answer": HOSTILE, "metadata": {"model": HOSTILE}}
    rows = [row(n, score, id=f"{HOSTILE}{n}", **fields) for n, score in enumerate([wrong, wrong, lost])]
    path = tmp_path / "report.jsonl"
    Report(rows, [f"note {HOSTILE}"], True, []).to_jsonl(path)
    return Report.load(path)


def test_what_a_report_shows_has_no_control_characters_and_in_a_notebook_no_tags_of_others(hostile_report):
    found, compared = hostile_report.diagnose(), hostile_report.compare(hostile_report)
    results = [hostile_report, hostile_report.summary(), compared, found, leaderboard(hostile_report)]
    scores = [str(score) for row in hostile_report.rows for score in row.scores.values()]
    shown = [*map(repr, results), *map(str, found), *scores, markdown_of(hostile_report, [], compared)]
    assert [text for text in shown if FORBIDDEN & set(text)] == []
    assert all("\n" not in text for text in scores)
    pages = [result._repr_html_() for result in results]
    assert [html for html in pages if "<b>" in html] == []
    assert all("&lt;b&gt;" in html for html in (pages[0], pages[2], pages[4]))


# What `Report.plot` draws


HIGH = [0.95, 0.85, 1.0, 0.95, 0.75, 1.0, 0.95, 0.85]
LOW = [0.1, 0.2, 0.0, 0.1, 0.3, 0.0, 0.1, 0.2]


def texts(figure):
    figure.canvas.draw()
    shown = [text for axes in figure.axes for text in (*axes.texts, axes.title, *axes.get_yticklabels())]
    return [text.get_text() for text in shown] + [axes.get_title(loc="left") for axes in figure.axes]


def test_a_figure_and_a_page_compare_different_instruments_only_if_allowed(tmp_path):
    here, there = (report_of(scored(1.0, "m", instrument=instrument)) for instrument in "xy")
    for show in (here.plot, partial(here.to_html, tmp_path / "x.html")):
        with pytest.raises(ConfigError, match="different instruments"):
            show(baseline=there)
        assert not (tmp_path / "x.html").exists()
        show(baseline=there, allow_different_instruments=True)


@each("value", [None, -3.0, 0.0, 1.0, 250.0])
def test_any_value_can_be_drawn(value, tmp_path):
    score = unscored(metric="m") if value is None else scored(value, "m")
    figure = report_of(score).plot()
    figure.savefig(tmp_path / "a.png", dpi=30)
    assert ("no score" in texts(figure)) == (value is None)
    low, high = figure.axes[0].get_xlim()
    assert low <= (value or 0.0) <= high


def test_nothing_to_draw_is_said():
    with pytest.raises(ConfigError, match="the report has no scores"):
        Report([]).plot()


def test_names_are_drawn_as_they_are_and_in_cyrillic_without_a_warning(tmp_path):
    name = "верность $\\oops$ \x07\u202e"
    figure = report_of(scored(0.5, name)).plot()
    figure.savefig(tmp_path / "a.svg")
    assert "верность $\\oops$ \ufffd\n1 of 1 scored" in texts(figure)
    for length, drawn in ((30, "м" * 30), (31, "м" * 29 + "…")):
        assert f"{drawn}\n1 of 1 scored" in texts(report_of(scored(0.5, "м" * length)).plot())


def test_a_notebook_gets_a_picture():
    shades = imread(io.BytesIO(report(HIGH).plot()._repr_png_()))
    assert len(np.unique(shades.reshape(-1, shades.shape[-1]), axis=0)) > 10


@pytest.mark.gate
def test_no_display_no_pyplot_and_no_global_state():
    script = """
import sys
from helpers.reports import report
figure = report([0.5, 1.0]).plot()
figure.savefig("/dev/null", format="png")
assert "matplotlib.pyplot" not in sys.modules
"""
    environment = {"PYTHONPATH": ":".join(sys.path), "MPLBACKEND": "TkAgg"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        report(HIGH).plot()


def test_each_figure_is_drawn_as_stored():
    late, early = report(HIGH), report(LOW)
    assert_stored("plot.txt", described(late.plot()))
    rows = [row.model_copy(update={"scores": {**row.scores, "н": unscored(metric="н")}}) for row in late.rows]
    rows[0].scores["only here"] = scored(-3.0, "only here")
    assert_stored("plot_with_baseline.txt", described(Report(rows).plot(baseline=early)))
