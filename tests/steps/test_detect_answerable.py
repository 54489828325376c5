from helpers.each import each
from helpers.scripted import answerable, answering, human_of, scripted

from langchain_rageval import Judge, Sample
from langchain_rageval.steps.detect import detect_answerable

SAMPLE = Sample(question="How?", answer="Like so.", contexts=["First. Second.", "Third."])


def found(judge, sample=SAMPLE):
    return detect_answerable(judge).invoke({"sample": sample})["answerable"]


def test_the_judge_reads_the_question_and_the_contexts_but_not_the_answer():
    judge = scripted(answerable(True, "1.1 tells."))
    (finding,) = found(judge)
    assert judge.inputs == [{"question": "How?"}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n\n")
    assert "Like so." not in human_of(judge.asked[0])
    assert (finding.kind, finding.number, finding.text) == ("criterion", 2, "the contexts")
    assert (finding.verdict, finding.reason) == ("answer", "1.1 tells.")


@each("contexts", [[], [""], [" ", "\n"]])
def test_without_a_sentence_nothing_is_answered_and_nobody_asked(contexts):
    sample = SAMPLE.model_copy(update={"contexts": contexts})
    assert [f.verdict for f in found(Judge(scripted(), draws=3), sample)] == ["do not answer"]


def test_one_window_that_answers_is_enough():
    def reply(messages):
        return answerable("Third." in human_of(messages), f"reason {len(human_of(messages)) % 2}")

    judge = answering(reply)
    (finding,) = found(Judge(judge, max_context_tokens=4))
    assert (finding.verdict, len(judge.asked)) == ("answer", 3)
    (finding,) = found(Judge(answering(lambda _: answerable(False, "no")), max_context_tokens=4))
    assert (finding.verdict, finding.reason) == ("do not answer", "no")
