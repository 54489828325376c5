"""`rageval evaluate --until-decided`: stops when the gates are decided, with the exit code of the decision."""

import json

import pytest


@pytest.fixture
def answers(tmp_path):
    """Write 200 samples, of which 160 contain the reference."""
    path = tmp_path / "answers.jsonl"
    lines = [
        {"question": f"Вопрос {n}?", "answer": "Да, 5 км." if n % 5 else "Нет.", "reference": "5 км"}
        for n in range(200)
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(("threshold", "code", "verdict"), [(0.4, 0, "passed"), (0.99, 1, "failed")])
def test_it_asks_about_as_many_samples_as_the_decision_needs(rageval, answers, threshold, code, verdict):
    words = [
        "--metrics",
        "string_presence",
        "--fail-under",
        f"string_presence={threshold}",
        "--until-decided",
        "--json",
    ]
    ended, told, _ = rageval("evaluate", answers, *words, "--quiet")
    found = json.loads(told)
    assert ended == code
    assert found["decisions"]["string_presence"]["verdict"] == verdict
    assert found["samples"] < 200
    assert found["samples"] + len(found["left_out"]) == 200
