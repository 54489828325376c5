"""Steps that judge contexts or an answer: useful chunks, grades, needed sentences, rubrics, aspects, abstentions."""

import re

from helpers.each import each, error_of
from helpers.scripted import (
    abstains,
    answerable,
    answering,
    critique,
    graded,
    grades,
    human_of,
    needed,
    relevance,
    scripted,
)
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Criterion, Finding, Judge, JudgeOutputError, PromptSet, Sample, llm_grader
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.answer_schemas import RubricGrade, RubricGrades
from langchain_rageval.prompts.criteria import default_criteria
from langchain_rageval.prompts.promptset import Common
from langchain_rageval.steps.detect import critique_aspect, detect_abstention, detect_answerable
from langchain_rageval.steps.grade_contexts import grade_contexts, select_sentences
from langchain_rageval.steps.grade_rubric import grade_rubric

CONTEXTS = ["First. Second.", "Third.", "Fourth."]


def found(judge, contexts=CONTEXTS, answer="so"):
    step = grade_contexts(judge, against=lambda sample: sample.answer)
    state = {"sample": Sample(question="What?", answer=answer, contexts=contexts)}
    return step.invoke(state)["context_verdicts"]


def useful(findings):
    return [finding.verdict == "useful" for finding in findings if finding.kind == "context"]


def block(messages):
    return human_of(messages).split("\n\n")[0].splitlines()[1:]


def test_all_chunks_go_out_in_one_call_in_retrieval_order_with_question_and_answer():
    judge = scripted(grades({1: True, 2: False, 3: True}))
    findings = found(judge)
    assert judge.inputs == [{"question": "What?", "answer": "so"}]
    numbered = "[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n[3]\n[3.1] Fourth."
    assert block(judge.asked[0]) == numbered.splitlines()
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in findings] == [
        ("context", 1, "First. Second.", "useful", "r1"),
        ("context", 2, "Third.", "not useful", "r2"),
        ("context", 3, "Fourth.", "useful", "r3"),
    ]


@each("given", [{1: True, 2: True, 3: True}, {1: True, 3: True}])
def test_a_blank_chunk_keeps_its_number_and_is_not_useful_whatever_the_judge_says(given):
    judge = scripted(grades(given))
    assert useful(found(judge, ["A.", " ", "B."])) == [True, False, True]
    assert block(judge.asked[0]) == ["[1]", "[1.1] A.", "[2]", "[3]", "[3.1] B."]


@each("word", ['"useful"', "2", "0.5", "null", '""'])
def test_a_verdict_that_is_no_boolean_is_asked_again(word):
    wrong = grades({1: True}).model_dump_json().replace("true", word)
    judge = scripted(wrong, grades({1: False}))
    assert useful(found(judge, ["A."])) == [False]
    assert len(judge.asked[1]) == 4


def test_long_contexts_go_out_in_windows_each_numbered_from_one():
    judge = answering(lambda messages: grades({int(line[1]): line == "[1.2] Second." for line in block(messages)}))
    findings = found(Judge(judge, max_context_tokens=4))
    sentences = ["[1.1] First.", "[1.2] Second.", "[1.1] Third.", "[1.1] Fourth."]
    assert [block(messages) for messages in judge.asked] == [["[1]", sentence] for sentence in sentences]
    assert useful(findings) == [True, False, False]


@each("parts", [(True, False), (False, True), (True, True), (False, False)])
def test_a_chunk_cut_by_a_window_is_useful_if_any_part_of_it_is(parts):
    replies = [grades({1: part}) for part in parts]
    assert useful(found(Judge(scripted(*replies), max_context_tokens=4), CONTEXTS[:1])) == [any(parts)]


CONTEXTS_OF_GRADE_RELEVANCE = ["First. Second.", "Third.", "Fourth.", "Fifth."]


def found_of_grade_relevance(judge, contexts=CONTEXTS_OF_GRADE_RELEVANCE, **options):
    return llm_grader(judge, **options).invoke({"sample": Sample(question="What?", contexts=contexts)})["grades"]


def grades_of(findings):
    return [int(finding.verdict) for finding in findings if finding.kind == "context"]


def chunks(messages):
    """Number to text, of chunks of one sentence."""
    return {int(n): text for n, text in re.findall(r"^\[(\d+)\.1\] (.*)$", human_of(messages), re.MULTILINE)}


def by_text(grades):
    """A judge that grades chunks by their first sentence."""
    return answering(lambda messages: relevance({n: grades[text] for n, text in chunks(messages).items()}))


BY_TEXT = {"First.": 4, "Third.": 0, "Fourth.": 2, "Fifth.": 4}


def test_all_chunks_go_out_in_one_call_with_question_and_scale():
    judge = by_text(BY_TEXT)
    findings = found_of_grade_relevance(judge)
    assert judge.inputs == [{"question": "What?", "scale": [0, 4]}]
    expected = [*zip(["context"] * 4, range(1, 5), CONTEXTS_OF_GRADE_RELEVANCE, "4024", strict=True)]
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings] == expected
    assert all(re.fullmatch(r"r\d", finding.reason) for finding in findings)


@given(st.permutations(CONTEXTS_OF_GRADE_RELEVANCE))
def test_the_prompt_is_the_same_to_the_byte_in_whatever_order_the_chunks_were_retrieved(shuffled):
    ordered, other = by_text(BY_TEXT), by_text(BY_TEXT)
    found_of_grade_relevance(ordered)
    grades = grades_of(found_of_grade_relevance(other, shuffled))
    assert [m.content for m in other.asked[0]] == [m.content for m in ordered.asked[0]]
    assert dict(zip(shuffled, grades, strict=True)) == dict(zip(CONTEXTS_OF_GRADE_RELEVANCE, [4, 0, 2, 4], strict=True))


def test_the_order_shown_is_that_of_a_hash_and_not_of_retrieval_or_of_the_alphabet():
    texts = [f"{letter} is a letter." for letter in "ABCDEFGHIJ"]
    judge = by_text(dict.fromkeys(texts, 1))
    found_of_grade_relevance(judge, texts)
    shown = list(chunks(judge.asked[0]).values())
    assert sorted(shown) == texts
    assert shown not in (texts, texts[::-1])


def test_equal_chunks_are_shown_once_and_a_blank_chunk_gets_the_lowest_grade_and_is_not_shown():
    judge = by_text(BY_TEXT)
    assert grades_of(found_of_grade_relevance(judge, ["Third.", "Fourth.", "Third.", "Fourth."])) == [0, 2, 0, 2]
    assert len(chunks(judge.asked[0])) == 2
    for lowest in (0, 1):
        findings = found_of_grade_relevance(judge, ["", "Fourth.", "  "], scale=(lowest, 4))
        assert grades_of(findings) == [lowest, 2, lowest]
        assert block(judge.asked[-1]) == ["[1]", "[1.1] Fourth."]


def test_one_chunk_at_a_time_no_other_is_seen():
    judge = by_text(BY_TEXT)
    assert grades_of(found_of_grade_relevance(judge, pointwise=True)) == [4, 0, 2, 4]
    others = [["[1]", f"[1.1] {text}"] for text in CONTEXTS_OF_GRADE_RELEVANCE[1:]]
    assert sorted(map(block, judge.asked)) == sorted([["[1]", "[1.1] First.", "[1.2] Second."], *others])


WRONG_GRADES = [{1: 3, 2: 1, 3: 0}, {1: 3, 2: 1, 3: 0, 7: 4}, {1: 3, 2: 1, 3: 0, 4: 5}, {1: 3, 2: 1, 3: 0, 4: -1}]


@each("first", WRONG_GRADES, ids=["missing", "unknown number", "above the scale", "below the scale"])
def test_a_chunk_without_a_grade_on_the_scale_is_asked_about_again_alone_numbered_from_one(first):
    judge = scripted(relevance(first), relevance({1: 2}))
    grades = grades_of(found_of_grade_relevance(judge))
    assert sorted(grades) == [0, 1, 2, 3]
    assert [list(chunks(messages)) for messages in judge.asked] == [[1, 2, 3, 4], [1]]
    assert chunks(judge.asked[1]) == {1: chunks(judge.asked[0])[4]}


@each(("votes", "median"), [((0, 3, 2), "2"), ((4, 0, 0), "0"), ((4, 3, 0), "3")])
def test_of_several_votes_the_median_grade_holds(votes, median):
    judge = Judge(scripted(*(relevance({1: grade}) for grade in votes)), draws=3)
    state = {"sample": Sample(question="q", contexts=["One."])}
    assert llm_grader(judge).invoke(state)["grades"][0].verdict == median


def test_a_chunk_cut_by_a_window_gets_the_best_grade_of_its_parts():
    judge = answering(lambda messages: relevance({1: 4 if "Six" in human_of(messages) else 1}))
    texts = ["One two three four. Five. Six seven eight nine."]
    assert grades_of(found_of_grade_relevance(Judge(judge, max_context_tokens=8), texts)) == [4]
    assert len(judge.asked) > 1


@each("scale", [(0, 1), (1, 5), (-1, 3)])
def test_any_scale_is_sent_and_held_to(scale):
    judge = scripted(relevance({1: scale[1] + 1}), relevance({1: scale[1]}))
    assert grades_of(found_of_grade_relevance(judge, ["One."], scale=scale)) == [scale[1]]
    assert judge.inputs[0]["scale"] == list(scale)


CONTEXTS_OF_SELECT_SENTENCES = ["First. Second. Third.", "Fourth."]


def found_of_select_sentences(judge, contexts=CONTEXTS_OF_SELECT_SENTENCES):
    return select_sentences(judge).invoke({"sample": Sample(question="What?", contexts=contexts)})["context_sentences"]


def chosen(findings):
    return [f.cites[0] for f in findings if f.kind == "sentence" and f.verdict == "needed"]


def test_each_sentence_has_one_finding_under_its_number():
    judge = scripted(needed("1.2", "2.1", reason="both tell"))
    findings = found_of_select_sentences(judge)
    assert judge.inputs == [{"question": "What?"}]
    assert block(judge.asked[0]) == ["[1]", "[1.1] First.", "[1.2] Second.", "[1.3] Third.", "[2]", "[2.1] Fourth."]
    assert [(f.kind, f.number, f.text, f.verdict, f.reason, f.cites) for f in findings] == [
        ("sentence", 1, "First.", "not needed", "", ["1.1"]),
        ("sentence", 2, "Second.", "needed", "both tell", ["1.2"]),
        ("sentence", 3, "Third.", "not needed", "", ["1.3"]),
        ("sentence", 4, "Fourth.", "needed", "both tell", ["2.1"]),
    ]


NO_SENTENCES = [
    "9.9", "1.4", "3.1", "1.0", "0.1", "A.1", "[B.2]", "1", "", "Second.", "1.2.1", "all", "-",
    "1.1-1.3", "1.1–1.3", "1.1—1.3", "[1.1]-[1.3]", "1.1 - 1.3", "1.1…1.3", "1.1..1.3", "1.1...1.3", "1.1 to 1.3",
    "с 1.1 по 1.3", "1.1 до 1.3", "1.1 through 1.3", "1.1~1.3", "1.1～1.3", "1.1−1.3", "1.1‑1.3", "1.1 -> 1.3",
    "1.1至1.3", "1.1부터 1.3까지", "da 1.1 a 1.3", "da [1.1] a [1.3]", "1.1:1.3", "1.1 — 1.3", "1.1-3",
]  # fmt: skip


@each("wrong", NO_SENTENCES)
def test_what_names_no_sentence_and_ranges_are_asked_again(wrong):
    judge = scripted(needed("1.2", wrong), needed("1.1"))
    assert chosen(found_of_select_sentences(judge)) == ["1.1"]
    assert repr(wrong) in judge.asked[1][-1].text
    assert "'1.1'" in judge.asked[1][-1].text


def test_long_contexts_go_out_in_windows_and_what_any_of_them_needs_is_needed():
    def answer(messages):
        own = [line[1:4] for line in block(messages) if "." in line[:4]]
        return needed(own[0], reason=own[0])

    judge = answering(answer)
    findings = found_of_select_sentences(Judge(judge, max_context_tokens=8))
    windows = [["[1]", "[1.1] First.", "[1.2] Second."], ["[1]", "[1.3] Third.", "[2]", "[2.1] Fourth."]]
    assert [block(messages) for messages in judge.asked] == windows
    assert chosen(findings) == ["1.1", "1.3"]
    assert [f.reason for f in findings if f.verdict == "needed"] == ["1.1", "1.3"]
    judge = scripted(needed("2.1"), needed("1.1"), needed())  # a sentence of another window is asked again
    assert chosen(found_of_select_sentences(Judge(judge, max_context_tokens=8))) == ["1.1"]


def test_the_majority_of_the_draws_holds_for_each_sentence_and_its_rate_is_told():
    replies = [needed("1.1", "1.2", reason="x"), needed("1.1", reason="y"), needed("1.3", reason="z")]
    findings = found_of_select_sentences(Judge(scripted(*replies), draws=3), CONTEXTS_OF_SELECT_SENTENCES[:1])
    assert chosen(findings) == ["1.1"]
    assert [finding.reason for finding in findings[:3]] == ["x y", "x", "z"]  # of a minority, too
    agreement = [("agreement", number, text, "0.67") for number, text in enumerate(("First.", "Second.", "Third."), 1)]
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings[3:]] == agreement


# A rubric

FOUNDING = Sample(question="When was Munich founded?", answer="In 1158.", contexts=["Munich was founded in 1158."])
RUSSIAN = Sample(question="Когда основан Мюнхен?", answer="В 1158 году.", references=["В 1158.", "При Генрихе Льве."])
ALL = graded(correctness=3, completeness=2, readability=1)
TWO = [Criterion("polite tone", "Whether it is kind."), Criterion("brevity", "Whether it is short.")]


def step(judge, criteria=None, scale=(0, 3)):
    by_language = {"en": criteria} if criteria else default_criteria(scale)
    return grade_rubric(judge, by_language, scale, with_examples=True)


def rubric_of(judge, sample=FOUNDING, **options):
    findings = step(judge, **options).invoke({"sample": sample})["rubric_grades"]
    return [(finding.text, finding.verdict) for finding in findings if finding.kind == "criterion"]


def test_the_judge_reads_question_answer_reference_and_criteria_beside_the_contexts():
    model = scripted(ALL)
    step(model).invoke({"sample": FOUNDING})
    (inputs,), ((_, human),) = model.inputs, model.asked
    assert list(inputs) == ["question", "answer", "reference", "criteria"]
    assert (inputs["question"], inputs["answer"], inputs["reference"]) == (FOUNDING.question, FOUNDING.answer, "")
    keys = ["criterion", "description", "grades", "examples"]
    assert [list(criterion) for criterion in inputs["criteria"]] == [keys] * 3
    assert "\n[1.1] Munich was founded in 1158.\n" in human.text
    model = scripted(ALL)  # several references are one text, and without contexts there is no block
    step(model).invoke({"sample": RUSSIAN})
    assert model.inputs[0]["reference"] == "В 1158.\nПри Генрихе Льве."
    assert "[1.1]" not in model.asked[0][1].text


def test_the_criteria_are_in_the_language_of_the_prompts_or_else_english():
    model = scripted(ALL, ALL, ALL, ALL)
    for sample, language in [(RUSSIAN, "auto"), (FOUNDING, "auto"), (FOUNDING, "ru"), (FOUNDING, "it")]:
        step(Judge(model, language=language)).invoke({"sample": sample})
    described = [inputs["criteria"][0]["description"] for inputs in model.inputs]
    english, russian = (default_criteria()[language][0].description for language in ("en", "ru"))
    assert described == [russian, english, russian, english]


def test_of_more_contexts_than_fit_the_highest_grade_of_the_windows_counts():
    replies = [{"correctness": 3, "completeness": 0}, {"correctness": 1, "completeness": 2}]
    model = scripted(*(graded(**reply, readability=1) for reply in replies))
    long = FOUNDING.model_copy(update={"contexts": ["One is long enough to fill a window.", "Two."]})
    state = step(Judge(model, max_context_tokens=10)).invoke({"sample": long})
    assert [finding.verdict for finding in state["rubric_grades"]] == ["3", "2", "1"]
    assert ["Two." in messages[1].text for messages in model.asked] == [False, True]


DOUBLED = RubricGrades(grades=[*ALL.grades, *graded(correctness=3, readability=0).grades])


@each("first", [DOUBLED, *(graded(correctness=3, completeness=2, readability=off) for off in (-1, 4))])
def test_conflicting_doubles_and_grades_off_the_scale_are_asked_for_alone_and_equal_ones_collapse(first):
    model = scripted(first, graded(readability=2))
    assert rubric_of(model) == [("correctness", "3"), ("completeness", "2"), ("readability", "2")]
    assert [criterion["criterion"] for criterion in model.inputs[1]["criteria"]] == ["readability"]


def test_unknown_criteria_are_dropped_and_a_name_may_begin_with_a_capital():
    known = [RubricGrade(criterion=name, reason="", grade=1) for name in ("Polite  Tone", " BREVITY")]
    reply = RubricGrades(grades=[*graded(beauty=9).grades, *known])
    assert rubric_of(scripted(reply), criteria=TWO) == [("polite tone", "1"), ("brevity", "1")]


def test_a_reply_without_a_single_usable_grade_is_shown_to_the_judge_with_what_is_wrong():
    model = scripted(graded(beauty=1), graded(correctness=7), ALL)
    assert rubric_of(model)[0] == ("correctness", "3")
    assert [len(messages) for messages in model.asked] == [2, 4, 4]
    assert "no single grade from 0 to 3 for correctness, completeness, readability" in model.asked[1][-1].text


INCOMPLETE = [
    ([graded(correctness=3, readability=1)] + [graded(completeness=4)] * 2, "from 0 to 3 for completeness"),
    ([graded(correctness=3), graded(completeness=3), graded(readability=9)], "from 0 to 3 for readability"),
]


@each(("replies", "told"), INCOMPLETE)
def test_after_all_attempts_it_fails_and_says_what_is_missing(replies, told):
    model = scripted(*replies)
    assert str(error_of(JudgeOutputError, rubric_of, model)) == f"grade_rubric: no single grade {told}"
    assert len(model.asked) == 3


@each("blank", ["", "  \n"])
def test_a_blank_answer_has_the_lowest_grades_without_a_call(blank):
    sample = FOUNDING.model_copy(update={"answer": blank})
    lowest = [(name, "1") for name in ("correctness", "completeness", "readability")]
    assert rubric_of(scripted(), sample=sample, scale=(1, 5)) == lowest


# Aspects, abstentions, and whether contexts answer

SAMPLE = Sample(
    question="How?", answer="Like so.", contexts=["First. Second.", "Third."], references=["So.", " ", "I do not know."]
)


BLOCK = "## Contexts\n[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n\n"


def aspect_of(judge, aspect="tone", definition="It is polite.", sample=SAMPLE):
    step = critique_aspect(judge, aspect, definition=definition)
    return step.invoke({"sample": sample})["aspect_verdict"]


def test_the_judge_reads_question_answer_aspect_definition_and_the_contexts():
    judge = scripted(critique(True, "Thanks."))
    (finding,) = aspect_of(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so.", "aspect": "tone", "definition": "It is polite."}]
    assert human_of(judge.asked[0]).startswith(BLOCK)
    assert finding == Finding(kind="aspect", number=1, text="tone", verdict="yes", reason="Thanks.")


@each("contexts", [None, [], [""], [" ", "\n"]])
@each("most", [None, 1])
def test_without_contexts_there_is_no_block(contexts, most):
    judge = scripted(critique(False))
    (finding,) = aspect_of(
        Judge(judge, max_context_tokens=most), sample=SAMPLE.model_copy(update={"contexts": contexts})
    )
    assert finding.verdict == "no"
    assert human_of(judge.asked[0]).startswith("## Task\n")


def test_of_long_contexts_each_window_is_read_and_one_that_applies_is_enough():
    judge = scripted(critique(False), critique(True), critique(False))
    (finding,) = aspect_of(Judge(judge, max_context_tokens=4))
    assert finding.verdict == "yes"
    texts = ("[1.1] First.", "[1.2] Second.", "[2.1] Third.")
    assert [[text for text in texts if text in human_of(sent)] for sent in judge.asked] == [[text] for text in texts]


@each("language", ["en", "ru"])
@each("aspect", ASPECTS)
def test_a_built_in_aspect_is_defined_in_the_language_of_the_question(language, aspect):
    judge = scripted(critique(True))
    question = {"en": "How is it?", "ru": "Как это?"}[language]
    aspect_of(judge, aspect, None, sample=SAMPLE.model_copy(update={"question": question}))
    (inputs,) = judge.inputs
    assert inputs["definition"] == PromptSet.default(language).common.aspects[aspect]
    assert inputs["definition"].strip()


def test_prompts_of_the_users_own_that_do_not_define_the_aspect_are_refused_at_once():
    default = PromptSet.default("en")
    bare = PromptSet(common=Common(**default.common.model_dump(exclude={"aspects"})), prompts=default.prompts)
    judge = Judge(scripted(), prompts=bare)
    assert "coherence" in str(error_of(ConfigError, critique_aspect, judge, "coherence", definition=None))
    aspect_of(Judge(scripted(critique(True)), prompts=bare), "coherence", "It hangs together.")


def found_of_detect_abstention(judge, of="answer", sample=SAMPLE):
    return detect_abstention(judge, of=of).invoke({"sample": sample})[f"{of}_abstention"]


def test_the_judge_reads_question_and_answer_and_each_reference_that_is_not_blank():
    judge = scripted(abstains(False, "It tells how."))
    (finding,) = found_of_detect_abstention(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so."}]
    assert finding == Finding(kind="criterion", number=1, text="the answer", verdict="answers", reason="It tells how.")
    judge = scripted(abstains(False), abstains(True))
    findings = found_of_detect_abstention(judge, of="reference")
    assert [inputs["answer"] for inputs in judge.inputs] == ["So.", "I do not know."]
    assert [(f.number, f.text, f.verdict) for f in findings] == [
        (number, "the reference", verdict) for number, verdict in ((2, "answers"), (4, "abstains"))
    ]


@each("answer", ["", " \n"])
def test_a_blank_answer_abstains_without_a_call(answer):
    for judge in (scripted(), Judge(scripted(), draws=3)):
        (finding,) = found_of_detect_abstention(judge, sample=SAMPLE.model_copy(update={"answer": answer}))
        assert (finding.kind, finding.verdict, finding.reason) == ("criterion", "abstains", "")


def found_of_detect_answerable(judge):
    return detect_answerable(judge).invoke({"sample": SAMPLE})["answerable"]


def test_the_judge_reads_the_question_and_the_contexts_but_not_the_answer():
    judge = scripted(answerable(True, "1.1 tells."))
    (finding,) = found_of_detect_answerable(judge)
    assert judge.inputs == [{"question": "How?"}]
    assert human_of(judge.asked[0]).startswith(BLOCK)
    assert "Like so." not in human_of(judge.asked[0])
    assert finding == Finding(kind="criterion", number=2, text="the contexts", verdict="answer", reason="1.1 tells.")


def test_one_window_that_answers_is_enough():
    judge = answering(lambda messages: answerable("Third." in human_of(messages)))
    (finding,) = found_of_detect_answerable(Judge(judge, max_context_tokens=4))
    assert (finding.verdict, len(judge.asked)) == ("answer", 3)
    (finding,) = found_of_detect_answerable(Judge(answering(lambda _: answerable(False, "no")), max_context_tokens=4))
    assert (finding.verdict, finding.reason) == ("do not answer", "no")
