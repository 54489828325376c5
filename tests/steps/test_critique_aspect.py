import pytest
from helpers.each import each
from helpers.scripted import critique, human_of, scripted

from langchain_rageval import ConfigError, Judge, PromptSet, Sample
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.promptset import Common
from langchain_rageval.steps.detect import critique_aspect

SAMPLE = Sample(question="How?", answer="Like so.", contexts=["First. Second.", "Third."])


def found(judge, aspect="tone", definition="It is polite.", sample=SAMPLE):
    step = critique_aspect(judge, aspect, definition=definition)
    return step.invoke({"sample": sample})["aspect_verdict"]


def test_the_judge_reads_question_answer_aspect_definition_and_the_contexts():
    judge = scripted(critique(True, "Thanks."))
    (finding,) = found(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so.", "aspect": "tone", "definition": "It is polite."}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n\n")
    assert (finding.kind, finding.number, finding.text) == ("aspect", 1, "tone")
    assert (finding.verdict, finding.reason, finding.cites) == ("yes", "Thanks.", [])


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
    blocks = [human_of(messages).partition("\n\n")[0] for messages in judge.asked]
    assert [block.splitlines()[1:] for block in blocks] == [
        ["[1]", "[1.1] First."],
        ["[1]", "[1.2] Second."],
        ["[2]", "[2.1] Third."],
    ]


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


@each("word", ['"true, mostly"', "2", "null", '""', "0.5"])
def test_a_verdict_that_is_no_boolean_is_asked_again(word):
    judge = scripted(critique(True).model_dump_json().replace("true", word), critique(False))
    assert found(judge)[0].verdict == "no"
    assert len(judge.asked[1]) == 4


def test_votes_without_a_majority_decide_nothing():
    judge = Judge(scripted(critique(True, "x"), critique(False, "y")))
    object.__setattr__(judge, "draws", 2)  # no judge or jury of the package has an even number of votes
    finding, agreement = found(judge)
    assert (finding.verdict, finding.reason) == ("no majority of the votes", "")
    assert (agreement.verdict, agreement.reason) == ("0.50", "1 of 2 draws: yes, no")
