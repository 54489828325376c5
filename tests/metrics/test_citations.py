"""Citations: what counts as one, which statement it stands behind, and what precision and recall make of them."""

from helpers.each import each
from helpers.samples import SAMPLE
from helpers.scripted import recording_judge, scripted, supported, verdict
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Sample, citations, evaluate, faithfulness, plan, suite
from langchain_rageval.metrics.citations import _markers, cited_parts
from langchain_rageval.steps import Statements, Verdicts
from langchain_rageval.testing import MetricTests, ScriptedJudge

CONTEXTS = ["Munich was founded in 1158.", "Munich lies on the Isar.", "Elephants live in Africa."]
FOUNDED, RIVER = "Munich was founded in 1158.", "Munich lies on the Isar."
QUESTION = "What is Munich?"
CITED = "Munich was founded in 1158 [1]. It lies on the Isar [3]."


def of(answer, **fields):
    """Return a sample with three contexts."""
    return Sample(**{"question": QUESTION, "answer": answer, "contexts": CONTEXTS, **fields})


def found(answer, **fields):
    """Return the parts of an answer with the chunks that they cite."""
    parts = cited_parts(of(answer, **fields))
    return [(text.strip(), [sorted(citation) for citation in cites]) for text, cites in parts]


def scores(answer, statements, verdicts, *, question=QUESTION, contexts=CONTEXTS, **options):
    """Return precision and recall of an answer with these statements and verdicts."""
    judge = scripted(Statements(statements=statements), Verdicts(verdicts=verdicts))
    return citations(judge, **options).invoke({"question": question, "answer": answer, "contexts": contexts})


BOTH = [supported(1, "1.1"), supported(2, "2.1")]


class TestCitations(MetricTests):
    """The suite in every interface; each call of the judge is answered alike."""

    judge = ScriptedJudge(Statements(statements=["Munich is old."]), Verdicts(verdicts=[supported(1)]), repeat=True)
    metric = citations(judge)
    sample = {**SAMPLE, "answer": "Munich is old [1]."}  # noqa: RUF012


@each(
    ("marker", "numbers"),
    [
        ("[1]", [[1]]),
        ("[2][3]", [[2], [3]]),
        ("[1, 3]", [[1], [3]]),
        ("[1; 2 and 3]", [[1], [2], [3]]),
        ("[1-3]", [[1], [2], [3]]),
        ("[1–3]", [[1], [2], [3]]),
        ("[3-1]", [[3], [1]]),
        ("[^2]", [[2]]),
        ("[7]", [[7]]),
        ("²", [[2]]),
        ("¹²", [[1], [2]]),
        ("【2†source】", [[2]]),
        ("(source 2)", [[2]]),
        ("(источник 2)", [[2]]),
        ("(см. источники 1, 3)", [[1], [3]]),
        ("[документ №2]", [[2]]),
        ("[1][1]", [[1]]),
        ("(2)", []),
        ("[2020]", []),
        ("[sic]", []),
    ],
)
def test_forms_of_citations(marker, numbers):
    ((_, before),) = found(f"Munich lies on the Isar {marker}.")
    ((_, after),) = found(f"Munich lies on the Isar.{marker}")
    assert before == after == numbers


@each("text", ["Its area is 310 км².", "It has 10³ houses.", "Here x² holds.", "An area of 5 m² is small."])
def test_powers_and_units_are_no_citations(text):
    assert found(text) == [(text, [])]


@each("marker", ["(tariffs.pdf)", "[tariffs.pdf, p. 3]", "(см. Tariffs.pdf)", "«tariffs.pdf»"])
def test_the_id_of_a_chunk_in_brackets_cites_all_chunks_of_that_source(marker):
    ids = ["tariffs.pdf", "rules.pdf", "tariffs.pdf"]
    assert found(f"The fee is 5 {marker}.", context_ids=ids)[0][1] == [[1, 3]]
    assert found("The fee is in tariffs.pdf.", context_ids=ids)[0][1] == []
    assert found("The fee is 5 (1).", context_ids=["1", "2", "3"])[0][1] == []


@each(
    ("answer", "parts"),
    [
        ("One is. [1] Two is [2]. Three is.", [("One is.", [[1]]), ("Two is .", [[2]]), ("Three is.", [])]),
        ("One is [1], and two is [2][3].", [("One is", [[1]]), (", and two is .", [[2], [3]])]),
        ("One is[1], and two is[2].", [("One is", [[1]]), (", and two is.", [[2]])]),
        ("[1] One is. Two is.", [("One is.", [[1]]), ("Two is.", [])]),
        ("- One is [1]\n- Two is [2]", [("- One is", [[1]]), ("- Two is", [[2]])]),
        ("", []),
    ],
)
def test_a_citation_stands_behind_the_text_that_it_follows(answer, parts):
    assert found(answer) == parts


@given(st.text(alphabet="ab1.[]() ²«»,-источник\n", max_size=60))
def test_no_character_of_the_answer_is_lost_or_doubled(answer):
    parts = "".join(text for text, _ in cited_parts(of(answer, context_ids=["ab.1", "b1b", "aba"])))
    rest = iter("".join(answer.split()))
    assert all(character in rest for character in "".join(parts.split()))


def test_precision_counts_citations_and_recall_supported_statements():
    precision, recall = scores(CITED, [FOUNDED, RIVER], BOTH).values()
    assert (precision.value, recall.value) == (0.5, 1.0)
    assert precision.reason == "1 of 2 citations support their statement; not: «Munich lies on the Isar» [3]."
    assert recall.reason == "2 of 2 supported statements carry a citation."


def test_the_reason_of_recall_is_russian_for_a_russian_question():
    answer = "Мюнхен основан в 1158 году [2]. Он стоит на Изаре."
    statements = ["Мюнхен основан в 1158 году.", "Мюнхен стоит на Изаре."]
    _, recall = scores(answer, statements, BOTH, question="Что такое Мюнхен?").values()
    assert recall.reason == "Ссылка есть у 1 из 2 подтверждённых утверждений; нет у: «Мюнхен стоит на Изаре»."


@each(
    ("answer", "verdicts", "expected"),
    [
        ("Munich was founded in 1158 [1]. It lies on the Isar.", BOTH, (1.0, 0.5)),
        ("Munich was founded in 1158 [1][2]. It lies on the Isar [2].", BOTH, (2 / 3, 1.0)),
        (CITED, [verdict(1, "contradicted", "1.1"), supported(2, "3.1")], (0.5, 1.0)),
        (CITED, [verdict(1, "absent"), verdict(2, "absent")], (0.0, None)),
        ("Munich was founded in 1158 [9]. It lies on the Isar [2].", BOTH, (0.5, 1.0)),
    ],
)
def test_numbers(answer, verdicts, expected):
    assert tuple(score.value for score in scores(answer, [FOUNDED, RIVER], verdicts).values()) == expected


def why(scores):
    """Return why precision and recall have no value."""
    return [score.unscored for score in scores.values()]


def test_what_cites_nothing_is_unscored_unless_citations_were_required():
    plain = "Munich was founded in 1158. It lies on the Isar."
    assert why(scores(plain, [FOUNDED, RIVER], BOTH)) == ["the answer cites nothing"] * 2
    precision, recall = scores(plain, [FOUNDED, RIVER], BOTH, required=True).values()
    assert (precision.unscored, recall.value) == ("the answer cites nothing", 0.0)
    assert recall.reason == (
        "0 of 2 supported statements carry a citation; without one: «Munich was founded in 1158», «Munich lies on the "
        "Isar»."
    )


def test_what_else_is_unscored():
    judge = scripted(Statements(statements=[]))
    no_facts = citations(judge).invoke({"question": QUESTION, "answer": "Hello [1]!", "contexts": CONTEXTS})
    assert why(no_facts) == ["the answer states no facts"] * 2
    nothing_right = scores(CITED, [FOUNDED], [verdict(1, "absent")])
    assert why(nothing_right) == [None, "the contexts support no statement of the answer"]
    elsewhere = scores(f"{FOUNDED} Hello [1]!", [FOUNDED], [supported(1, "1.1")])
    assert why(elsewhere) == ["no statement of the answer carries a citation", None]
    silent = Verdicts(verdicts=[supported(1).model_copy(update={"evidence": []})])
    judge = scripted(Statements(statements=[FOUNDED]), silent, silent)
    assert why(citations(judge).invoke(of(f"{FOUNDED} [1]"))) == ["a verdict names no context sentence", None]


def test_beside_faithfulness_it_makes_no_further_call():
    judge = recording_judge()
    suite(faithfulness(judge), citations(judge)).invoke({**SAMPLE, "answer": "Munich is old [1]."})
    assert len(judge.asked) == 2
    planned = plan([SAMPLE], [faithfulness(judge), citations(judge)])
    assert [metric.calls for metric in planned.values()] == [2, 0, 0]


def test_it_is_computed_from_the_findings_of_faithfulness():
    judge = scripted(Statements(statements=[FOUNDED, RIVER]), Verdicts(verdicts=BOTH))
    report = evaluate([of(CITED)], faithfulness(judge), progress=False)
    for metric in citations(judge).metrics:
        report = report.rescore(metric)
    assert [score.value for score in report.rows[0].scores.values()] == [1.0, 0.5, 1.0]


def test_two_small_digits_are_one_number_if_there_are_so_many_chunks():
    many = [f"Fact {number}." for number in range(12)]
    assert found("Munich is old¹².", contexts=many) == [("Munich is old.", [[12]])]
    assert found("Munich is old¹².") == [("Munich is old.", [[1], [2]])]


def test_names_of_three_letters_are_citations_and_shorter_ones_are_not():
    for name, found in (("ab", []), ("abc", [{1}]), ("123", [])):
        sample = Sample(question="Why?", answer=f"So it is ({name}).", contexts=["So it is."], context_ids=[name])
        assert [set(cite) for _, _, cites in _markers(sample.answer, sample) for cite in cites] == found
