import json

from helpers.each import each, error_of
from helpers.scripted import absent, answering, human_of, scripted, supported, verdict, verdicts
from langchain_core.messages import AIMessage

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.run import Run
from langchain_rageval.steps import Verdicts
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.verify_statements import verify_statements

CONTEXTS = ["First. Second.", "Third."]
CITES = ["1.1", "1.2", "2.1"]


def state(*texts, contexts=CONTEXTS, of="answer"):
    return {"sample": Sample(question="What?", answer="x", contexts=contexts), f"{of}_statements": list(texts)}


def found(judge, *texts, contexts=CONTEXTS):
    """The findings about statements, "a", "b", … by default as many as the first reply judges."""
    return verify_statements(judge, of="answer").invoke(state(*texts, contexts=contexts))["answer_verdicts"]


def brief(findings):
    return [(finding.number, finding.verdict, finding.cites) for finding in findings]


def numbers(inputs):
    return [item["statement"] for item in inputs["statements"]]


# What is sent, and what is found


def test_statements_go_out_numbered_from_one_beside_the_numbered_contexts():
    judge = scripted(verdicts(supported(1), absent(2)))
    found(judge, "a", "b")
    statements = [{"statement": 1, "text": "a"}, {"statement": 2, "text": "b"}]
    assert judge.inputs == [{"question": "What?", "statements": statements}]
    assert "[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n" in human_of(judge.asked[0])


# Numbers


# Attempts


def test_each_slice_has_attempts_of_its_own():
    replies = ["no", verdicts(supported(1)), "no", verdicts(supported(1))]
    judge = Judge(scripted(*replies), attempts=2, max_statements=1)
    assert [finding.verdict for finding in found(judge, "a", "b")] == ["supported", "supported"]


# Citations


@each("label", ["supported", "contradicted"])
@each("cited", [[], ["9.9"], ["A.1"], ["1"], ["text of a sentence"]])
def test_a_verdict_that_cites_nothing_there_is_asked_once_more_and_the_second_replaces_it(label, cited):
    judge = scripted(verdicts(verdict(1, label, *cited), absent(2)), verdicts(absent(1)))
    assert brief(found(judge, "a", "b")) == [(1, "absent", []), (2, "absent", [])]
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1]]


SENTENCES = {"max_context_tokens": 4}  # each is a window


def by_sentence(*labels):
    """Return replies about a window for each sentence."""
    cites = [[] if label == "absent" else [cite] for label, cite in zip(labels, CITES, strict=False)]
    return [verdicts(verdict(1, label, *cited)) for label, cited in zip(labels, cites, strict=True)]


UNPROVEN = verdicts(verdict(1, "supported"))
PROVEN = verdicts(supported(1)).model_dump_json()


@each(
    ("replies", "options", "expected"),
    [
        # a verdict without evidence is asked for again once; the second one stands, if there is one
        ([UNPROVEN, verdicts(verdict(1, "contradicted", "9.9"))], {}, "contradicted"),
        ([UNPROVEN, verdicts()], {}, "supported"),
        ([UNPROVEN, "no", "no"], {"attempts": 3}, "supported"),
        ([UNPROVEN], {"attempts": 1}, "supported"),
        ([verdicts(absent(1))], {}, "absent"),
        ([verdicts(absent(1)).model_dump_json().replace("[]", "null")], {}, "absent"),
        # unknown sentences are dropped, and doubles that agree are united
        ([verdicts(verdict(1, "supported", "9.9", "[1.2]", "1.2", "sentence 2.1"))], {}, "supported 1.2 2.1"),
        ([verdicts(supported(1, "1.1"), supported(1, "2.1", "1.1"))], {}, "supported 1.1 2.1"),
        # spellings of numbers and labels
        ([PROVEN.replace('"statement":1', '"statement":"1"')], {}, "supported 1.1"),
        *(
            ([PROVEN.replace('"supported"', f'"{label}"')], {}, "supported 1.1")
            for label in ("Supported", "SUPPORTED.", "**supported**")
        ),
        *(
            ([PROVEN.replace('"supported"', f'"{label}"'), verdicts(absent(1))], {}, "absent")
            for label in ("unsupported", "not supported", "partially supported", "supported?", "yes", "")
        ),
        # over windows, the strongest verdict decides with the evidence of all that gave it
        (by_sentence("supported", "contradicted", "absent"), SENTENCES, "supported 1.1"),
        (by_sentence("absent", "contradicted", "supported"), SENTENCES, "supported 2.1"),
        (by_sentence("absent", "contradicted", "absent"), SENTENCES, "contradicted 1.2"),
        (by_sentence(*["supported"] * 3), SENTENCES, "supported 1.1 1.2 2.1"),
        # a sentence of another window is no evidence
        ([verdicts(supported(1, "2.1")), *by_sentence("absent", "absent")], {"max_context_tokens": 8}, "absent"),
    ],
)
def test_the_verdict_on_a_statement_and_what_it_cites(replies, options, expected):
    judge = scripted(*replies)
    (finding,) = found(Judge(judge, **options), "a")
    assert " ".join([finding.verdict, *finding.cites]) == expected
    assert len(judge.asked) == len(replies)


def test_a_statement_is_asked_again_for_evidence_once_even_if_others_are_missing():
    judge = scripted(UNPROVEN, UNPROVEN, verdicts(supported(1), absent(2)))
    assert brief(found(judge, "a", "b")) == [(1, "supported", []), (2, "supported", ["1.1"])]
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1, 2], [1]]


@each(
    "cited", ["[2.1] Third, by 1.1 percent.", "1.1-2.1", "1.1 – 2.1", "1.1 to 2.1", "from 1.1", "1.1 ff", "except 2.1"]
)
def test_evidence_with_prose_between_numbers_and_ranges_are_asked_again_once(cited):
    judge = scripted(verdicts(verdict(1, "supported", cited)), verdicts(supported(1, "2.1")))
    assert brief(found(judge, "a")) == [(1, "supported", ["2.1"])]
    judge = scripted(*[verdicts(verdict(1, "supported", cited))] * 2)
    assert brief(found(judge, "a")) == [(1, "supported", [])]


@each(
    ("written", "cites"),
    [("[1.1, 1.10]", ["1.1", "1.10"]), ("1.10", ["1.10"]), ('"1.1, 1.10"', ["1.1", "1.10"]), ('"[1.10]"', ["1.10"])],
)
def test_evidence_as_json_numbers_or_as_one_text_keeps_its_digits(written, cites):
    contexts = [" ".join(f"The {letter * 4} came here." for letter in "bcdfghjklm")]
    reply = verdicts(supported(1)).model_dump_json().replace('["1.1"]', written)
    assert brief(found(scripted(reply), "a", contexts=contexts)) == [(1, "supported", cites)]


def test_numbers_of_decoded_arguments_are_no_evidence_since_their_digits_are_lost():
    arguments = '{"verdicts": [{"statement": 1, "reason": "", "evidence": [1.1], "verdict": "supported"}]}'
    call = AIMessage("", tool_calls=[{"name": "Verdicts", "args": json.loads(arguments), "id": "1"}])
    judge = scripted(call, verdicts(supported(1, "2.1")))
    assert brief(found(judge, "a")) == [(1, "supported", ["2.1"])]
    spelled = [{"id": "1", "type": "function", "function": {"name": "Verdicts", "arguments": arguments}}]
    call = call.model_copy(update={"additional_kwargs": {"tool_calls": spelled}})
    assert brief(found(scripted(call), "a")) == [(1, "supported", ["1.1"])]


# Slices and windows


def by_text(messages):
    """Vowels are supported; the reason repeats the statement."""
    judged = []
    for item in read_inputs(human_of(messages))["statements"]:
        label = ["supported", "1.1"] if item["text"] in "ae" else ["absent"]
        judged.append(verdict(item["statement"], *label, reason=item["text"]))
    return verdicts(*judged)


@each("texts", ["abcde", "ababe"])  # equal slices, too, keep their numbers
def test_many_statements_go_out_in_slices_each_numbered_from_one(texts):
    judge = answering(by_text)
    findings = found(Judge(judge, max_statements=2), *texts)
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1, 2], [1]]
    expected = [(n, text, text, "supported" if text in "ae" else "absent") for n, text in enumerate(texts, 1)]
    assert [(f.number, f.text, f.reason, f.verdict) for f in findings] == expected


def test_a_failure_of_a_later_slice_names_the_statements_by_their_numbers_in_the_answer():
    judge = Judge(scripted(verdicts(supported(1), supported(2)), verdicts(supported(2))), attempts=1, max_statements=2)
    message = "verify_statements: no single verdict for the statements [3]"
    assert str(error_of(JudgeOutputError, found, judge, *"abcd")) == message


# Draws


# Together with others


def test_the_same_question_by_a_plain_step_is_not_taken_for_this_one():
    judge = answering(lambda messages: verdicts(supported(1)))
    run = Run()
    found_here = verify_statements(judge, of="answer").invoke(state("a"), run.into({}))["answer_verdicts"]
    plain = JudgeStep("verify_statements", judge, Verdicts)
    inputs = {"question": "What?", "statements": [{"statement": 1, "text": "a"}], "contexts": CONTEXTS}
    assert plain.invoke(inputs, run.into({}))["verify_statements"] == verdicts(supported(1))
    assert brief(found_here) == [(1, "supported", ["1.1"])]


@each(
    ("by_chunk", "expected"),
    [
        (["aaa", "ssa", "sss"], ("supported", "in 2 in 3", ["2.1", "3.1"], "0.67", "[2] 2 of 3 draws")),
        (["aca", "acc", "aaa"], ("contradicted", "in 2", ["2.1"], "0.67", "[1] 2 of 3 draws")),
        (["aaa", "aaa", "aas"], ("absent", "in 1 in 2 in 3", [], "0.67", "[3] 2 of 3 draws")),
    ],
)
def test_of_chunks_the_strongest_verdict_counts_and_the_lowest_agreement(by_chunk, expected):
    labels = {"s": "supported", "c": "contradicted", "a": "absent"}
    texts = ["First chunk.", "Second chunk.", "Third chunk."]
    left = {text: iter(votes) for text, votes in zip(texts, by_chunk, strict=True)}

    def reply(messages):
        number, text = next((n, text) for n, text in enumerate(texts, 1) if text in human_of(messages))
        return verdicts(verdict(1, labels[next(left[text])], f"{number}.1", reason=f"in {number}"))

    step = verify_statements(Judge(answering(reply), draws=3), of="answer", by_chunk=True)
    found, agreement = step.invoke(state("a", contexts=texts))["answer_verdicts"]
    assert (found.verdict, found.reason, found.cites, agreement.verdict, agreement.reason) == expected
