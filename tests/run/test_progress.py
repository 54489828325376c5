import io
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.samples import SAMPLE
from helpers.scripted import broken_judge
from helpers.waiting import PATIENCE

from langchain_rageval import OfflineJudge, evaluate, faithfulness
from langchain_rageval.run import progress
from langchain_rageval.run.usage import UsageMeter

SAMPLES = [SAMPLE] * 5
metric = faithfulness(OfflineJudge())


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_short_run_says_nothing_and_progress_can_be_turned_off(capsys, monkeypatch, door):
    await report_by(door, SAMPLES, metric, progress=True)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    await report_by(door, SAMPLES, metric, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_away_from_a_terminal_it_is_plain_lines_on_stderr(capsys, monkeypatch, door):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    await report_by(door, SAMPLES, metric, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert "\x1b" not in told.err
    *_, last = told.err.splitlines()
    assert re.fullmatch(r"rageval: 5/5 samples, \d+ calls, [\d,]+ tokens, 0 failed", last)


@each(
    ("total", "passed", "rows", "line"),
    [
        (None, 60.0, 1, "1 samples, 7 calls, 1,534 tokens, 1 failed"),  # of an iterator the total is not known
        (400, 10.0, 1, "1/400 samples, 7 calls, 1,534 tokens, 1 failed, about 66 min left"),
        (400, 20.0, 399, "399/400 samples, 7 calls, 1,534 tokens, 1 failed, about 0 s left"),
        *(
            (5, passed, 1, f"1/5 samples, 7 calls, 1,534 tokens, 1 failed, about {left} left")
            for passed, left in ((22.0, "88 s"), (22.25, "89 s"), (22.5, "2 min"), (30.0, "2 min"), (60.0, "4 min"))
        ),
    ],
)
def test_it_tells_the_time_left_and_counts_calls_tokens_and_failures(clock, total, passed, rows, line):
    meter = UsageMeter()
    with progress.show_progress(total, meter, show=False) as shown:
        meter.add(calls=7, input_tokens=1500, output_tokens=34)
        clock.now += passed
        for number in range(rows):
            shown.advance(number == 0)
        assert shown.status_line() == line


def test_the_last_line_comes_even_when_the_run_breaks_off(capsys, clock):
    def broken_off():
        with progress.show_progress(9, UsageMeter(), show=True) as shown:
            clock.now += 6
            shown.advance()
            shown.advance()
            raise LookupError

    with pytest.raises(LookupError):
        broken_off()
    assert len(capsys.readouterr().err.splitlines()) == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_it_is_a_live_line_that_is_taken_away(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    evaluate(SAMPLES, faithfulness(broken_judge()), progress=True)
    assert "5/5 samples" in terminal.getvalue()
    assert "5 failed" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


PRINTS = """
import sys
from langchain_core.runnables import RunnableLambda
from langchain_rageval import Score, evaluate

def own(sample):
    sys.stdout.write("mine\\n")  # print writes the end of the line apart
    return Score(metric="own", aspect="answer", value=1.0)

evaluate([{"question": "q"}] * 3, RunnableLambda(own), max_concurrency=1)
"""


@pytest.mark.gate
def test_what_a_users_metric_prints_stays_on_stdout_beside_a_live_line():
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE, stderr=theirs, timeout=PATIENCE)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.stdout == b"mine\n" * 3


def test_a_line_is_printed_exactly_five_seconds_after_the_last_and_none_twice(capsys, clock):
    with progress.show_progress(9, None, show=True) as shown:
        for seconds in (4.75, 0.25, 4.75, 0.25):
            clock.now += seconds
            shown.advance()
    rows = [line.split(" samples")[0] for line in capsys.readouterr().err.splitlines()]
    assert rows == ["rageval: 2/9", "rageval: 4/9"]


def test_a_state_is_shown_after_the_counts_and_an_outcome_in_place_of_the_failures(capsys, clock):
    with progress.show_progress(2, None, show=True, outcome=lambda: "undecided") as shown:
        clock.now += 5
        shown.show("wave 1")
        clock.now += 5
        shown.show("wave 1")  # nothing new
        shown.advance()
        shown.advance()
    assert capsys.readouterr().err.splitlines() == [
        "rageval: 0/2 samples, undecided; wave 1",
        "rageval: 1/2 samples, undecided, about 10 s left; wave 1",
        "rageval: 2/2 samples, undecided; wave 1",
    ]
