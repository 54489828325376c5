"""`rageval evaluate --until-decided`: stops when the gates are decided, with the exit code of the decision."""

import json

import pytest


@pytest.mark.parametrize(("threshold", "code", "verdict"), [(0.4, 0, "passed"), (0.99, 1, "failed")])
def test_it_asks_about_as_many_samples_as_the_decision_needs(rageval, written, threshold, code, verdict):
    answers = ("Да, 5 км." if n % 5 else "Нет." for n in range(200))
    samples = written(*({"question": f"{n}?", "answer": one, "reference": "5 км"} for n, one in enumerate(answers)))
    words = ["--metrics", "string_presence", "--fail-under", f"string_presence={threshold}", "--until-decided"]
    ended, told, _ = rageval("evaluate", samples, *words, "--json", "--quiet")
    found = json.loads(told)
    assert ended == code
    assert found["decisions"]["string_presence"]["verdict"] == verdict
    assert found["samples"] < 200
    assert found["samples"] + len(found["left_out"]) == 200
