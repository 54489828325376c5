import pytest
from helpers.each import each
from helpers.scripted import abstains, answerable, scripted

from langchain_rageval import ConfigError, OfflineJudge, Sample, SampleError, abstention, evaluate, jury

SAMPLE = Sample(question="How?", answer="Like so.", references=["So."], contexts=["So it is."])
TRUTHS = [(answer, nothing) for answer in (True, False) for nothing in (True, False)]


@each(("answer", "nothing"), TRUTHS)
def test_given_the_reference_both_abstain_or_neither(answer, nothing):
    score = abstention(scripted(abstains(answer, "a"), abstains(nothing, "r"))).invoke(SAMPLE)
    assert score.value == float(answer == nothing)
    told = {True: "abstains", False: "answers"}
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in score.findings] == [
        ("criterion", 1, "the answer", told[answer], "a"),
        ("criterion", 2, "the reference", told[nothing], "r"),
    ]


@each(("answer", "nothing"), TRUTHS)
def test_given_the_contexts_the_answer_abstains_when_they_hold_none(answer, nothing):
    metric = abstention(scripted(abstains(answer), answerable(not nothing)), given="contexts")
    score = metric.invoke(SAMPLE.model_copy(update={"references": []}))
    assert score.value == float(answer == nothing)
    assert [f.text for f in score.findings] == ["the answer", "the contexts"]
    assert score.findings[1].verdict == ("do not answer" if nothing else "answer")


def test_each_outcome_has_a_reason_of_its_own_in_the_language_of_the_sample():
    reasons = set()
    for question in ("How?", "Как?"):
        for given, other in (("reference", abstains), ("contexts", lambda nothing: answerable(not nothing))):
            for answer, nothing in TRUTHS:
                metric = abstention(scripted(abstains(answer), other(nothing)), given=given)
                reason = metric.invoke(SAMPLE.model_copy(update={"question": question})).reason
                assert ("о" in reason.lower()) is (question == "Как?")
                reasons.add(reason)
    assert len(reasons) == 16
    assert "Ответа по существу нет, а в контекстах он есть." in reasons
    assert "The answer answers, but the reference abstains." in reasons


def test_a_blank_answer_abstains_without_a_call():
    blank = SAMPLE.model_copy(update={"answer": " "})
    score = abstention(scripted(abstains(True))).invoke(blank)
    assert (score.value, score.usage.calls) == (1.0, 1)
    score = abstention(scripted(answerable(True)), given="contexts").invoke(blank)
    assert (score.value, score.usage.calls) == (0.0, 1)


@pytest.mark.parametrize("contexts", [[], [" "]])
def test_nothing_retrieved_answers_nothing_without_a_call(contexts):
    nothing = SAMPLE.model_copy(update={"contexts": contexts})
    assert abstention(scripted(abstains(True)), given="contexts").invoke(nothing).value == 1.0
    blank = abstention(scripted(), given="contexts").invoke(nothing.model_copy(update={"answer": ""}))
    assert (blank.value, blank.usage.calls) == (1.0, 0)


@each(("references", "value"), [((True, False), 0.0), ((True, True), 1.0), ((False, False), 0.0)])
def test_of_several_references_one_that_answers_is_enough(references, value):
    sample = SAMPLE.model_copy(update={"references": ["a", "", "b"]})
    score = abstention(scripted(abstains(True), *map(abstains, references))).invoke(sample)
    assert (score.value, [f.number for f in score.findings]) == (value, [1, 2, 4])


def test_a_jury_votes_on_both_sides():
    judges = [scripted(abstains(n < 2, f"a{n}"), answerable(n > 1, f"c{n}")) for n in range(3)]
    score = abstention(jury(judges), given="contexts").invoke(SAMPLE)
    assert score.value == 1.0
    assert [(f.kind, f.number, f.verdict) for f in score.findings] == [
        ("criterion", 1, "abstains"),
        ("agreement", 1, "0.67"),
        ("criterion", 2, "do not answer"),
        ("agreement", 2, "0.67"),
    ]
    assert [f.reason for f in score.findings if f.kind == "criterion"] == ["a0 a1", "c0 c1"]
    assert score.usage.calls == 6


def test_blank_references_leave_it_unscored():
    score = abstention(scripted(abstains(True))).invoke(SAMPLE.model_copy(update={"references": [" "]}))
    assert (score.value, score.unscored) == (None, "the references are blank")


def test_it_reads_what_it_is_given():
    assert abstention(scripted()).reads == {"question", "answer", "references"}
    assert abstention(scripted(), given="contexts").reads == {"question", "answer", "contexts"}
    with pytest.raises(SampleError, match="contexts"):
        abstention(scripted(), given="contexts").invoke({"question": "Q?", "answer": "A.", "references": ["R."]})
    with pytest.raises(ConfigError, match="given must be one of reference, contexts, got "):
        abstention(scripted(), given="context")
    assert abstention(OfflineJudge()).instrument != abstention(OfflineJudge(), given="contexts").instrument


@pytest.mark.parametrize("given", ["reference", "contexts"])
def test_a_report_can_score_it_anew_from_its_findings_of_the_same_kind(given):
    report = evaluate([SAMPLE], abstention(OfflineJudge(), given=given), progress=False)
    again = report.rescore(abstention(scripted(), given=given))
    assert again.rows[0].scores["abstention"].value == report.rows[0].scores["abstention"].value
    other = {"reference": "contexts", "contexts": "reference"}[given]
    with pytest.raises(ConfigError):
        report.rescore(abstention(scripted(), given=other))


@each(
    ("question", "answer", "reference", "value"),
    [
        ("Что покрывает полис?", "Не знаю.", "В документах нет сведений.", 1.0),
        ("Что покрывает полис?", "Не знаю.", "Полис покрывает пожар.", 0.0),
        ("What is it?", "Munich is old.", "It is not specified.", 0.0),
        ("What is it?", "Munich is old.", "Munich is very old.", 1.0),
    ],
)
def test_refusals_are_known_offline(question, answer, reference, value):
    score = abstention(OfflineJudge()).invoke({"question": question, "answer": answer, "references": [reference]})
    assert score.value == value
