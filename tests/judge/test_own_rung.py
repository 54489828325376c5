"""A mode of the user's own: a function from the answer's schema to options of the call."""

import asyncio
import logging

import pytest
from helpers.each import error_of
from helpers.samples import SAMPLE
from helpers.scripted import Scripted, supported
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI

from langchain_rageval import ConfigError, Judge, evaluate, faithfulness, jury
from langchain_rageval.judge.ladder import client_family, with_own_rung
from langchain_rageval.steps import Statements, Verdicts


def guided_json(schema):
    """Ask vLLM for a grammar."""
    return {"extra_body": {"guided_json": schema}}


def other_grammar(schema):
    """Ask for it in another way."""
    return {"grammar": schema["title"]}


class Recording(Scripted):
    """Records the options of each call."""

    options: list = []  # noqa: RUF012

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        self.options.append(kwargs)
        return super()._generate(messages, stop, run_manager, **kwargs)


def judge(mode, **options):
    """Return a judge in a mode, and its model."""
    model = Recording(Statements(statements=["Munich is old."]), Verdicts(verdicts=[supported(1)]))
    model.options = []
    return Judge(model, mode=mode, **options), model


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_its_options_are_sent_with_each_call_and_the_schema_stays_in_the_prompt(method):
    asked, model = judge(guided_json)
    metric = faithfulness(asked)
    score = metric.invoke(SAMPLE) if method == "invoke" else asyncio.run(metric.ainvoke(SAMPLE))
    assert score.value == 1.0
    titles = [options["extra_body"]["guided_json"]["title"] for options in model.options]
    assert titles == ["Statements", "Verdicts"]
    assert [request.schema for request in model.requests] == titles


@pytest.mark.parametrize(("given", "kind"), [(None, "NoneType"), ("grammar", "str")])
def test_a_mode_that_returns_no_options_is_an_error_that_names_it(given, kind):
    def grammar(_schema):
        return given

    raised = error_of(ConfigError, faithfulness(judge(grammar)[0]).invoke, SAMPLE)
    assert str(raised) == f"the function grammar of mode= must return a mapping of call options, got {kind}"


def test_a_bound_extra_body_is_kept():
    family = with_own_rung(client_family(ChatOpenAI(model="m", api_key="x")), guided_json)
    options = family.options("guided_json", {"title": "A"}, {"extra_body": {"top_k": 1}})
    assert options == {"extra_body": {"top_k": 1, "guided_json": {"title": "A"}}}


def test_the_report_and_the_repr_name_the_function(caplog):
    asked, _ = judge(guided_json)
    with caplog.at_level(logging.WARNING):
        report = evaluate([SAMPLE], faithfulness(asked), progress=False)
    assert f"{asked.identity} was called in guided_json mode." in report.notes
    assert "mode='guided_json'" in repr(asked)
    assert caplog.records == []


def test_its_code_is_part_of_the_instrument():
    same = [faithfulness(judge(guided_json)[0]).instrument for _ in range(2)]
    other = faithfulness(judge(other_grammar)[0]).instrument
    assert same[0] == same[1] != other
    assert "unknown" not in "".join([*same, other])
    assert faithfulness(jury([judge(guided_json)[0]] * 3)).instrument != same[0]
