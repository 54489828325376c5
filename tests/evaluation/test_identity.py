"""Identity of a run's configuration: a changed setting gives another instrument or an unknown one, never the same."""

import importlib
import os
import subprocess
import sys

import pytest
from helpers.samples import QUESTION, SAMPLE
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ConfigurableField
from pydantic import Field, PrivateAttr

from langchain_rageval import OfflineJudge, evaluate, faithfulness, metric
from langchain_rageval.errors import ConfigError

SAMPLES = [{**SAMPLE, "question": f"{QUESTION} {n}"} for n in range(3)]


class Lax(OfflineJudge):
    lax: bool = False
    settings: dict[str, int] = Field(default_factory=dict)
    _session: str = PrivateAttr("")
    _calls: int = PrivateAttr(0)

    def _generate(self, *args, **options):
        self._calls += 1
        self._session = f"token-of-call-{self._calls}"
        result = super()._generate(*args, **options)
        if not self.lax:
            return result
        texts = [one.message.content.replace('"absent"', '"supported"') for one in result.generations]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text)) for text in texts])


def value(measure, journal=None):
    report = evaluate(SAMPLES, measure, progress=False, **({"journal": journal} if journal else {}))
    return next(iter(report.summary().values())).mean


def of_function(function, **options):
    return metric(reads={"answer"}, aspect="style", name="mine", **options)(function)


def closing_over(settings):
    return lambda sample: settings["value"]


def test_what_with_config_chooses_is_part_of_the_identity(tmp_path):
    field = ConfigurableField(id="llm")
    choice = faithfulness(Lax().configurable_alternatives(field, default_key="strict", lax=Lax(lax=True)))
    fields = faithfulness(Lax().configurable_fields(lax=ConfigurableField(id="lax")))
    for name, strict, lax in (
        ("alternative", choice, choice.with_config(configurable={"llm": "lax"})),
        ("field", fields, fields.with_config(configurable={"lax": True})),
    ):
        journal = tmp_path / name
        assert [value(strict, journal), value(lax, journal), value(lax)] == [0.5, 1.0, 1.0]
    one, other = (evaluate(SAMPLES, each_one, progress=False) for each_one in (strict, lax))
    with pytest.raises(ConfigError, match="different instruments"):
        other.compare(one)


def test_a_journal_gives_no_score_of_a_model_that_was_changed_in_place(tmp_path):
    model = Lax()
    measure = faithfulness(model)
    assert value(measure, tmp_path / "a.db") == 0.5
    model.lax = True
    assert [value(measure, tmp_path / "a.db"), value(faithfulness(model), tmp_path / "a.db")] == [1.0, 1.0]


def test_what_changes_during_a_run_is_not_given_back(tmp_path):
    settings, told = {"value": 0.1}, []

    def change():
        settings["value"] += 0.1

    def rate(sample):
        change()
        told.append(sample.id)
        return settings["value"]

    measure = of_function(rate)
    report = evaluate(SAMPLES, measure, journal=tmp_path / "a.db", progress=False)
    assert [note for note in report.notes if "mine changed during the run" in note]
    settings["value"] = 0.1  # as when the run began
    evaluate(SAMPLES, measure, journal=tmp_path / "a.db", progress=False)
    assert len(told) == 2 * len(SAMPLES)


def test_a_module_that_was_reloaded_is_another_instrument(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "reloaded_rates.py"
    path.write_text("def rate(sample): return 0.25\n", encoding="utf-8")
    import reloaded_rates

    measure = of_function(lambda sample: reloaded_rates.rate(sample))
    assert value(measure, tmp_path / "a.db") == 0.25
    path.write_text("def rate(sample): return 0.75\n", encoding="utf-8")
    importlib.invalidate_caches()
    importlib.reload(reloaded_rates)
    assert value(measure, tmp_path / "a.db") == 0.75


RUN = """
import sys; sys.path[:0] = [{folder!r}, {folder!r} + "/site-packages"]
from langchain_rageval import evaluate, metric
{code}
report = evaluate({samples!r}, mine, journal={journal!r}, progress=False)
print(report.summary()["mine"].mean)
"""
MINE = "@metric(reads={{'answer'}}, aspect='style')\ndef mine(sample):\n    {body}\n"
INSTALLED = (
    "from langchain_rageval import metric\n@metric(reads={{'answer'}}, aspect='style')\ndef mine(sample): return {v}\n"
)
PROJECTS = {
    "installed package": ({"site-packages/acme/__init__.py": INSTALLED}, "from acme import mine"),
    "submodule": (
        {"mypkg/__init__.py": "", "mypkg/scoring.py": "def rate(s): return {v}\n"},
        "import mypkg.scoring\n" + MINE.format(body="return mypkg.scoring.rate(sample)"),
    ),
    "relative import": (
        {
            "apps/__init__.py": "",
            "apps/one.py": "from . import two\ndef score(s): return two.rate(s)\n",
            "apps/two.py": "from .three import rate\n",
            "apps/three.py": "def rate(s): return {v}\n",
        },
        "from apps import one\n" + MINE.format(body="return one.score(sample)"),
    ),
    "import in a function": (
        {"five.py": "from four import rate\ndef score(s): return rate(s)\n", "four.py": "def rate(s): return {v}\n"},
        MINE.format(body="from five import score; return score(sample)"),
    ),
}


@pytest.mark.gate  # quick, in this process: the test above, and the places in _internal/test_settings.py
@pytest.mark.parametrize("name", PROJECTS)
def test_a_file_that_was_edited_between_two_processes_is_another_instrument(tmp_path, name):
    files, code = PROJECTS[name]
    got = []
    for number, v in enumerate(("0.25", "0.25", "0.75")):
        for file, text in files.items():
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(v=v), encoding="utf-8")
        script = RUN.format(folder=str(tmp_path), code=code, samples=SAMPLES, journal=str(tmp_path / "a.db"))
        env = {**os.environ, "PYTHONHASHSEED": str(number), "OPENAI_API_KEY": f"sk-{number}"}
        done = subprocess.run(
            [sys.executable, "-B", "-W", "ignore", "-c", script], capture_output=True, text=True, env=env, check=True
        )
        got.append(float(done.stdout))
    assert got == [0.25, 0.25, 0.75]


def test_compare_notes_another_code_and_refuses_other_data():
    def rate(sample):
        return len(sample.answer) / 100

    def rate_anew(sample):
        return len(sample.answer) / 101

    rate_anew.__qualname__ = rate.__qualname__
    one, other = (evaluate(SAMPLES, of_function(function), progress=False) for function in (rate, rate_anew))
    assert any("The code or an installed version behind mine" in note for note in other.compare(one).notes)
    settings = {"value": 0.1}
    first = evaluate(SAMPLES, of_function(closing_over(settings)), progress=False)
    settings["value"] = 0.2
    second = evaluate(SAMPLES, of_function(closing_over(settings)), progress=False)
    with pytest.raises(ConfigError, match="different instruments"):
        second.compare(first)
