"""Hard cases of the definitions: an obedient judge gives the value that a person gave, by a rule of its prompt."""

import pytest
from helpers.each import each
from helpers.scripted import classification, grades, scripted, statements, verdict, verdicts
from helpers.stored import fixture_data

from langchain_rageval import PromptSet, Sample, answer_correctness, context_precision, context_relevance, faithfulness
from langchain_rageval.steps import NeededSentences

CASES = fixture_data("hard_cases.yaml")
EVERY = [(language, case) for language, cases in CASES.items() for case in cases]
METRICS = {
    "faithfulness": faithfulness,
    "answer_correctness": lambda judge: answer_correctness(judge, weights=(1, 0)),
    "context_precision": context_precision,
    "context_relevance": context_relevance,
}


def replies(case):
    """What the judge answers to the requests of the case's metric, in order."""
    match case["metric"]:
        case "faithfulness":
            said = [verdict(number, label, *cited) for number, (label, *cited) in enumerate(case["verdicts"], 1)]
            return [statements(*case["statements"]), verdicts(*said)]
        case "answer_correctness":
            lists = classification(case.get("tp"), case.get("fp", ()), case.get("fn", ()), case.get("extra"))
            return [statements(*case["statements"]), statements(*case["reference"]), lists]
        case "context_precision":
            return [grades(dict(enumerate(case["useful"], 1)))]
    return [NeededSentences(reason="r", sentences=case["sentences"])]


@each(("language", "case"), EVERY)
def test_an_obedient_judge_gives_the_value_of_a_person(language, case):
    sample = Sample(**{name: case[name] for name in Sample.model_fields if name in case})
    score = METRICS[case["metric"]](scripted(*replies(case))).invoke(sample)
    assert score.value == pytest.approx(case["value"], abs=0.05), case["kind"]


@each(("language", "case"), EVERY)
def test_the_prompt_has_the_rule_that_decides(language, case):
    assert case["rule"] in PromptSet.default(language).get(case["step"]).instruction


def test_there_are_as_many_cases_of_each_kind_in_both_languages():
    steps = [[(case["metric"], case["step"]) for case in cases] for cases in CASES.values()]
    assert len(CASES["en"]) == len(CASES["ru"]) >= 60
    assert steps[0] == steps[1]
