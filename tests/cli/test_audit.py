"""`rageval evaluate --audit` and the same options of `rageval plan`."""

import json

import pytest
from helpers.offline import offline

from langchain_rageval import Report


def strict(request):
    """Answer as the offline judge, but find no statement supported."""
    answer = offline(request)
    for verdict in answer.get("verdicts", ()):
        verdict |= {"verdict": "absent", "evidence": []}
    return answer


@pytest.fixture
def samples(written):
    """A file of eighty samples with supported answers."""
    facts = [f"Товар {n} — лампа." for n in range(80)]
    given = ({"answer": fact, "contexts": [fact]} for fact in facts)
    return written(*({"question": f"Что такое товар {n}?", **one} for n, one in enumerate(given)))


@pytest.fixture
def audit(judged):
    """A server, and the words that name it as the strong judge."""
    server, _ = judged(strict)
    return server, ["--audit", "openai:strong", "--audit-base-url", f"{server.url}/v1", "--audit-share", "0.25"]


def test_the_table_shows_the_strong_judges_mean_and_the_gate_takes_it(rageval, samples, audit, tmp_path):
    server, words = audit
    out = tmp_path / "report.jsonl"
    code, told, complaints = rageval(
        "evaluate", samples, *words, "--quiet", "--out", out, "--fail-under", "faithfulness=0.5"
    )
    assert code == 1
    found = Report.load(out).audit["faithfulness"]
    assert (found.mean, found.own_mean, found.audited, found.agreement) == (0.0, 1.0, 20, 0.0)
    assert complaints.splitlines()[-1] == (
        f"rageval: faithfulness is 0.000 [0.000, {found.high:.3f}] by the audit of 20 samples (1.000 by its own "
        "judge), at least 0.5 is required [below-threshold-by-audit]"
    )
    assert "Audit by strong, 95% intervals" in told
    assert "20 of 80" in told
    assert server.calls == 40


def test_json_has_the_audit_and_a_resumed_run_keeps_it(rageval, samples, audit, tmp_path):
    server, words = audit
    journal = tmp_path / "run.db"
    code, told, _ = rageval("evaluate", samples, *words, "--quiet", "--json", "--journal", journal)
    found = json.loads(told)["audit"]["faithfulness"]
    assert code == 0
    assert (found["mean"], found["own_mean"], found["agreement"], found["audited"]) == (0.0, 1.0, 0.0, 20)
    assert (found["calls"], found["calls_saved"]) == (40, 120)
    assert [one["strong"] for one in found["parted"]] == [0.0] * 10
    calls = server.calls
    assert json.loads(rageval("resume", journal)[1])["audit"] == {"faithfulness": found}
    assert server.calls == calls


def test_a_merge_request_shows_the_strong_judges_mean_and_its_gate(rageval, samples, audit, tmp_path):
    _, words = audit
    page = tmp_path / "summary.md"
    code, _, _ = rageval("ci", samples, *words, "--quiet", "--fail-under", "faithfulness=0.5", "--markdown", page)
    assert code == 1
    lines = page.read_text(encoding="utf-8").splitlines()
    place = lines.index("### Audit by a strong judge")
    assert lines[place + 2] == (
        "| metric | strong judge | 95% interval | own judge | agree | audited | calls | calls saved |"
    )
    cells = lines[place + 4].split(" | ")
    assert cells[:2] == ["| faithfulness", "0.000"]
    assert cells[3:] == ["1.000", "0%", "20 of 80", "40", "120 |"]
    assert any("❌ mean at least 0.5" in line for line in lines)


def test_a_strong_judge_that_fails_is_reported_on_stderr(rageval, samples, audit):
    server, words = audit
    server.reply = lambda request: "I cannot say." if "Товар 7" in str(request) else strict(request)
    code, _, complaints = rageval("evaluate", samples, *words, "--quiet")
    assert code == 0
    assert complaints.startswith("rageval: failed scores of the audit: 2; first failure: JudgeOutputError: ")


def test_plan_shows_audit_waves_and_the_samples_that_a_pilot_expects(rageval, samples, audit):
    _, words = audit
    code, told, _ = rageval("plan", samples, *words, "--batch", "--json")
    found = json.loads(told)
    assert (code, found["audit"]["faithfulness"]["calls"], found["total"]["calls"]) == (0, 40, 200)
    assert (found["waves"], found["asked"]) == (2, 80)
    gate = ["--fail-under", "faithfulness=0.5", "--until-decided"]
    found = json.loads(rageval("plan", samples, *gate, "--pilot", "5", "--json")[1])
    assert found["asked"] <= 80
    assert "audit of faithfulness" in rageval("plan", samples, *words)[1]
