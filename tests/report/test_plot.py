"""What `Report.plot` draws."""

import io
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from helpers.each import each
from helpers.reports import report, sample, scored, unscored
from helpers.stored import assert_stored, described
from matplotlib.image import imread

from langchain_rageval import ConfigError, Report, Row, Score

LATE = [0.95, 0.85, 1.0, 0.95, 0.75, 1.0, 0.95, 0.85]
EARLY = [0.1, 0.2, 0.0, 0.1, 0.3, 0.0, 0.1, 0.2]


def one(value, metric="м", direction="higher"):
    score = Score(metric=metric, aspect="answer", direction=direction, value=value)
    return Row(index=0, sample=sample(0), scores={metric: score})


def texts(figure):
    figure.canvas.draw()
    return [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title, *axes.get_yticklabels())] + [
        axes.get_title(loc="left") for axes in figure.axes
    ]


def test_a_figure_and_a_page_compare_different_instruments_only_if_allowed(tmp_path):
    here, there = (Report([Row(index=0, sample=sample(0), scores={"m": scored(1.0, "m", instrument=i)})]) for i in "xy")
    for show in (here.plot, partial(here.to_html, tmp_path / "x.html")):
        with pytest.raises(ConfigError, match="different instruments"):
            show(baseline=there)
        assert not (tmp_path / "x.html").exists()
        show(baseline=there, allow_different_instruments=True)


@each("value", [None, -3.0, 0.0, 1.0, 250.0])
def test_any_value_can_be_drawn(value, tmp_path):
    unscored = Score(metric="m", aspect="answer", unscored="no facts")
    rows = [one(value, "m")] if value is not None else [Row(index=0, sample=sample(0), scores={"m": unscored})]
    figure = Report(rows).plot()
    figure.savefig(tmp_path / "a.png", dpi=30)
    assert ("no score" in texts(figure)) == (value is None)
    low, high = figure.axes[0].get_xlim()
    assert low <= (value or 0.0) <= high


def test_nothing_to_draw_is_said():
    with pytest.raises(ConfigError, match="the report has no scores"):
        Report([]).plot()


def test_names_are_drawn_as_they_are_and_in_cyrillic_without_a_warning(tmp_path):
    name = "верность $\\oops$ \x07\u202e"
    figure = Report([one(0.5, name)]).plot()
    figure.savefig(tmp_path / "a.svg")
    assert "верность $\\oops$ \ufffd\n1 of 1 scored" in texts(figure)
    for length, drawn in ((30, "м" * 30), (31, "м" * 29 + "…")):
        assert f"{drawn}\n1 of 1 scored" in texts(Report([one(0.5, "м" * length)]).plot())


def test_a_notebook_gets_a_picture():
    shades = imread(io.BytesIO(report(LATE).plot()._repr_png_()))
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
        report(LATE).plot()


def test_each_figure_is_drawn_as_stored():
    late, early = report(LATE), report(EARLY)
    assert_stored("plot.txt", described(late.plot()))
    rows = [row.model_copy(update={"scores": {**row.scores, "н": unscored(metric="н")}}) for row in late.rows]
    rows[0].scores["only here"] = scored(-3.0, "only here")
    assert_stored("plot_with_baseline.txt", described(Report(rows).plot(baseline=early)))
