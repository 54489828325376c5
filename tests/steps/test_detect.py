"""Steps with one verdict: an aspect, an abstention, whether contexts answer."""

import pytest
from helpers.each import each
from helpers.scripted import abstains, answerable, answering, critique, human_of, scripted

from langchain_rageval import ConfigError, Finding, Judge, PromptSet, Sample
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.promptset import Common
from langchain_rageval.steps.detect import critique_aspect, detect_abstention, detect_answerable

SAMPLE = Sample(
    question="How?", answer="Like so.", contexts=["First. Second.", "Third."], references=["So.", " ", "I do not know."]
)


def found(judge, aspect="tone", definition="It is polite.", sample=SAMPLE):
    step = critique_aspect(judge, aspect, definition=definition)
    return step.invoke({"sample": sample})["aspect_verdict"]


def test_the_judge_reads_question_answer_aspect_definition_and_the_contexts():
    judge = scripted(critique(True, "Thanks."))
    (finding,) = found(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so.", "aspect": "tone", "definition": "It is polite."}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n\n")
    assert finding == Finding(kind="aspect", number=1, text="tone", verdict="yes", reason="Thanks.")


@each("contexts", [None, [], [""], [" ", "\n"]])
@each("most", [None, 1])
def test_without_contexts_there_is_no_block(contexts, most):
    judge = scripted(critique(False))
    (finding,) = found(Judge(judge, max_context_tokens=most), sample=SAMPLE.model_copy(update={"contexts": contexts}))
    assert finding.verdict == "no"
    assert human_of(judge.asked[0]).startswith("## Task\n")


def test_of_long_contexts_each_window_is_read_and_one_that_applies_is_enough():
    judge = scripted(critique(False), critique(True), critique(False))
    (finding,) = found(Judge(judge, max_context_tokens=4))
    assert finding.verdict == "yes"
    texts = ("[1.1] First.", "[1.2] Second.", "[2.1] Third.")
    assert [[text for text in texts if text in human_of(sent)] for sent in judge.asked] == [[text] for text in texts]


@each("language", ["en", "ru"])
@each("aspect", ASPECTS)
def test_a_built_in_aspect_is_defined_in_the_language_of_the_question(language, aspect):
    judge = scripted(critique(True))
    question = {"en": "How is it?", "ru": "Как это?"}[language]
    found(judge, aspect, None, sample=SAMPLE.model_copy(update={"question": question}))
    (inputs,) = judge.inputs
    assert inputs["definition"] == PromptSet.default(language).common.aspects[aspect]
    assert inputs["definition"].strip()


def test_prompts_of_the_users_own_that_do_not_define_the_aspect_are_refused_at_once():
    default = PromptSet.default("en")
    bare = PromptSet(common=Common(**default.common.model_dump(exclude={"aspects"})), prompts=default.prompts)
    with pytest.raises(ConfigError, match="coherence"):
        critique_aspect(Judge(scripted(), prompts=bare), "coherence", definition=None)
    found(Judge(scripted(critique(True)), prompts=bare), "coherence", "It hangs together.")


def found_of_detect_abstention(judge, of="answer", sample=SAMPLE):
    return detect_abstention(judge, of=of).invoke({"sample": sample})[f"{of}_abstention"]


def test_the_judge_reads_question_and_answer():
    judge = scripted(abstains(False, "It tells how."))
    (finding,) = found_of_detect_abstention(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so."}]
    assert finding == Finding(kind="criterion", number=1, text="the answer", verdict="answers", reason="It tells how.")


@pytest.mark.parametrize("answer", ["", " \n"])
def test_a_blank_answer_abstains_without_a_call(answer):
    for judge in (scripted(), Judge(scripted(), draws=3)):
        (finding,) = found_of_detect_abstention(judge, sample=SAMPLE.model_copy(update={"answer": answer}))
        assert (finding.kind, finding.verdict, finding.reason) == ("criterion", "abstains", "")


def test_each_reference_that_is_not_blank_is_asked_about():
    judge = scripted(abstains(False), abstains(True))
    findings = found_of_detect_abstention(judge, of="reference")
    assert [inputs["answer"] for inputs in judge.inputs] == ["So.", "I do not know."]
    assert [(f.number, f.text, f.verdict) for f in findings] == [
        (2, "the reference", "answers"),
        (4, "the reference", "abstains"),
    ]


def found_of_detect_answerable(judge, sample=SAMPLE):
    return detect_answerable(judge).invoke({"sample": sample})["answerable"]


def test_the_judge_reads_the_question_and_the_contexts_but_not_the_answer():
    judge = scripted(answerable(True, "1.1 tells."))
    (finding,) = found_of_detect_answerable(judge)
    assert judge.inputs == [{"question": "How?"}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n\n")
    assert "Like so." not in human_of(judge.asked[0])
    assert finding == Finding(kind="criterion", number=2, text="the contexts", verdict="answer", reason="1.1 tells.")


def test_one_window_that_answers_is_enough():
    judge = answering(lambda messages: answerable("Third." in human_of(messages)))
    (finding,) = found_of_detect_answerable(Judge(judge, max_context_tokens=4))
    assert (finding.verdict, len(judge.asked)) == ("answer", 3)
    (finding,) = found_of_detect_answerable(Judge(answering(lambda _: answerable(False, "no")), max_context_tokens=4))
    assert (finding.verdict, finding.reason) == ("do not answer", "no")
