"""A reader of stdout that goes away, such as `head`, does not hide a failed gate."""

import os
import subprocess
import sys

import pytest


@pytest.mark.gate
@pytest.mark.parametrize(("threshold", "code", "more"), [(0.8, 1, []), (0.0, 0, []), (0.8, 1, ["--json"])])
def test_the_gate_decides_the_exit_code_although_nobody_reads_stdout(written, tmp_path, threshold, code, more):
    written(*({"question": f"{number}?", "answer": "no", "reference": "5 km"} for number in range(20)))
    words = ["evaluate", "samples.jsonl", "--metrics", "string_presence", "--out", "report.jsonl", "--quiet", *more]
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-m", "langchain_rageval", *words, "--fail-under", f"string_presence={threshold}"],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))},
    )
    os.close(writer)
    assert run.returncode == code
    assert ("at least 0.8 is required" in run.stderr) == bool(code)
    assert "Traceback" not in run.stderr
    assert (tmp_path / "report.jsonl").exists()
