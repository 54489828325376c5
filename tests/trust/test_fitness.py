"""Fitness: thresholds decide on intervals, and a metric is as fit as its worst step."""

from types import SimpleNamespace

from helpers.each import each

from langchain_rageval.metrics import BUILDERS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, assess_step
from langchain_rageval.trust.qualification import Citations, Proportion

NONE = Proportion.of_units([])


def share(hits, of):
    return Proportion.of_units((float(item < hits), item) for item in range(of))


def verdict(**figures):
    given = {
        "right": share(90, 100),
        "plain": share(50, 50),
        "hard": share(40, 50),
        "lead": {"constant": (0.4, 0.2, 0.6), "word_overlap": (0.3, 0.1, 0.5), "rules": (0.5, 0.3, 0.7)},
        "verdicts": {"yes": 25, "no": 25},
        "answered": share(50, 50),
        "valid": share(50, 50),
        "flips": share(0, 50),
        "order_bias": share(0, 50),
        "length_bias": share(0, 50),
        "citations": None,
        "lost": 0,
        "error": "",
    }
    return assess_step(SimpleNamespace(**given | figures))


def cited(precision, recall, first=NONE, due_first=0.25):
    return Citations(precision, recall, first, due_first)


@each(
    ("figures", "expected"),
    [
        ({}, "fit"),
        ({"plain": share(47, 50)}, "fit"),
        ({"plain": share(44, 50)}, "fit with care"),
        ({"plain": share(38, 50)}, "cannot tell"),
        ({"plain": share(27, 50)}, "unfit"),
        ({"plain": share(6, 6)}, "cannot tell"),
        ({"plain": NONE, "right": share(27, 50)}, "unfit"),
        ({"right": NONE, "plain": NONE, "hard": NONE, "lead": {}}, "cannot tell"),
        ({"lead": {"constant": (0.2, -0.1, 0.5)}}, "cannot tell"),
        ({"lead": {"word_overlap": (0.2, 0.1, 0.3), "rules": (0.0, -0.1, 0.1)}}, "unfit"),
        ({"lead": {"word_overlap": (0.0, -0.1, 0.1)}, "hard": share(50, 50)}, "cannot tell"),
        ({"lead": {}}, "fit"),
        ({"flips": share(5, 50)}, "fit with care"),
        ({"flips": share(25, 50)}, "unfit"),
        ({"flips": NONE, "order_bias": NONE, "length_bias": NONE}, "fit"),
        ({"order_bias": share(25, 50)}, "unfit"),
        ({"length_bias": share(10, 50)}, "cannot tell"),
        ({"answered": share(30, 50)}, "cannot tell"),
        ({"answered": share(20, 50)}, "unfit"),
        ({"valid": share(5, 50)}, "fit with care"),
        ({"citations": cited(share(45, 50), share(45, 50))}, "fit"),
        ({"citations": cited(share(35, 50), share(50, 50))}, "fit with care"),
        ({"citations": cited(share(10, 50), share(50, 50))}, "unfit"),
        ({"citations": cited(share(50, 50), share(10, 50))}, "unfit"),
        ({"lost": 5}, "fit"),
        ({"lost": 6, "error": "gone"}, "cannot tell"),
    ],
)
def test_the_interval_decides_and_the_worst_figure_counts(figures, expected):
    level, reasons = verdict(**figures)
    assert level == expected
    assert len(reasons) == 1


def test_reasons_give_the_share_of_right_verdicts_or_all_that_is_wrong():
    assert verdict()[1] == ["right verdicts 90 of 100, 90% [83%, 94%]"]
    assert verdict(flips=share(25, 50), valid=share(5, 50))[1] == [
        "verdicts unchanged when asked again 25 of 50, 50% [37%, 63%]",
        "replies valid at once 5 of 50, 10% [4%, 21%]",
    ]
    assert verdict(lead={"constant": (0.0, -0.1, 0.1), "rules": (0.1, -0.1, 0.3)}, verdicts={"yes": 50})[1] == [
        "every verdict was 'yes', no better on hard items than without reading the texts",
        "perhaps no better on hard items than rules about the surface of texts",
    ]
    first = cited(share(10, 50), share(50, 50), share(48, 50))
    assert verdict(citations=first)[1] == [
        "relevant citations 10 of 50, 20% [11%, 33%]: 96% are of the first chunk, 25% would be right"
    ]
    assert "first chunk" not in verdict(citations=cited(share(10, 50), share(50, 50), share(12, 50)))[1][0]


def test_a_metric_is_as_fit_as_its_worst_step():
    steps = {"extract_statements": ("fit", ["a"]), "verify_statements": ("unfit", ["b", "c"])}
    assert assess_metric(steps, "faithfulness") == ("unfit", "verify_statements: b; c. extract_statements: a.")
    steps["verify_statements"] = ("fit with care", ["d"])
    assert assess_metric(steps, "faithfulness")[0] == "fit with care"
    missing = "no labelled item examines it: write items for it, or compare its scores with labels of people"
    assert assess_metric({}, "rubric") == ("cannot tell", f"grade_rubric: {missing}.")
    assert assess_metric({}, "answer_similarity") == (
        "cannot tell",
        "measure_similarity: no embeddings were examined: add embeddings (--embeddings MODEL).",
    )


def test_the_table_names_metrics_and_steps_that_there_are():
    assert STEPS_OF.keys() <= BUILDERS.keys() | {"llm_grader", "standalone_question", "critic"}
    named = {step for steps in STEPS_OF.values() for step in steps}
    assert EXAMINATIONS.keys() == named <= ANSWER_SCHEMAS.keys() | {EMBEDDING_STEP, "answer_check"}


def test_a_proportion_shows_counts_value_and_interval():
    assert str(share(45, 50)) == "45 of 50, 90% [79%, 96%]"
    assert str(share(45, 50).complement) == "5 of 50, 10% [4%, 21%]"
    assert (str(NONE), NONE.complement, NONE.value) == ("–", NONE, None)
    assert Proportion.of_units([(0.5, 0), (1.0, 1)]).hits == 1.5
