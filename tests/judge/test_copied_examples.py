"""A reply that equals an example of the prompt, although the inputs differ, is asked for again."""

import json
from types import SimpleNamespace

import pytest
from helpers.scripted import grades, needed, scripted
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from langchain_rageval import Prompt, PromptSet, Sample
from langchain_rageval.judge.asking import _copied_example
from langchain_rageval.steps.grade_contexts import grade_contexts, select_sentences
from langchain_rageval.steps.step import Step

SAMPLE = Sample(question="What is the price of a bus ticket?", answer="2 euros.", contexts=["A.", "B.", "C.", "D."])


def example(step, number=0):
    return PromptSet.default("en").get(step).examples[number]


def test_a_copied_example_is_asked_for_again():
    copied = json.dumps(example("grade_contexts").output)
    judge = scripted(copied, grades({1: True, 2: True, 3: True, 4: True}))
    state = grade_contexts(judge, against=lambda sample: sample.answer).invoke({"sample": SAMPLE})
    assert {finding.verdict for finding in state["context_verdicts"]} == {"useful"}
    assert "this is the reply of an example: reply to the input" in judge.asked[1][-1].text


def test_the_reply_to_the_inputs_of_an_example_may_be_that_of_the_example():
    shown = example("grade_contexts")
    sample = Sample(**{name: shown.input[name] for name in ("question", "answer", "contexts")})
    judge = scripted(json.dumps(shown.output))
    state = grade_contexts(judge, against=lambda sample: sample.answer).invoke({"sample": sample})
    assert [finding.verdict for finding in state["context_verdicts"]][:2] == ["useful", "not useful"]


def test_an_empty_answer_with_a_short_reason_is_no_copy():
    judge = scripted(needed(reason="Nothing."))
    assert select_sentences(judge).invoke({"sample": SAMPLE})


class Topic(BaseModel):
    """The topic of an answer."""

    topic: str


def test_the_labels_of_a_users_own_step_may_be_those_of_its_examples():
    label = "Insurance and other financial services for private clients"
    prompt = Prompt(instruction="Name the topic.", examples=[{"input": {"answer": "A."}, "output": {"topic": label}}])
    step = Step(Topic, prompts=prompt, reads={"answer"})(scripted(AIMessage(json.dumps({"topic": label}))))
    assert step.invoke({"sample": Sample(question="Q?", answer="B.")})["topic"].topic == label


@pytest.mark.parametrize(("length", "copied"), [(39, False), (40, True), (41, True)])
def test_an_answer_of_forty_characters_is_long_enough_to_be_a_copy(length, copied):
    output = {"topic": "x" * length}
    prompt = SimpleNamespace(examples=[SimpleNamespace(input={"answer": "A.", "contexts": ["C."]}, output=output)])
    request = SimpleNamespace(prompts=SimpleNamespace(prompts={"s": prompt}), step="s", prompt=prompt)
    for inputs, differ in (({"answer": "B."}, True), ({"answer": "A."}, False)):
        request.inputs = inputs
        assert (_copied_example(request, Topic(**output)) is not None) == (copied and differ)
