"""From figures to verdicts: intervals against bars, and the worst step decides."""

import pytest

from langchain_rageval.metrics import BUILDERS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.trust.examination import EMBEDDED, EXAMINATIONS
from langchain_rageval.trust.fitness import STEPS_OF, judged, metric_verdict
from langchain_rageval.trust.qualification import Citations, Share

NONE = Share.over([])


def share(hits, of):
    return Share.over([1.0] * hits + [0.0] * (of - hits))


def verdict(**figures):
    given = {
        "right": share(50, 50),
        "unread": 0.5,
        "said": {"yes": 25, "no": 25},
        "answered": share(50, 50),
        "valid": share(50, 50),
        "flips": share(0, 50),
        "order_bias": share(0, 50),
        "length_bias": share(0, 50),
        "citations": None,
        "lost": 0,
        "error": "",
    }
    return judged(**given | figures)


def cited(precision, recall, first=NONE, due_first=0.25):
    return Citations(precision, recall, first, due_first)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, "fit"),
        ({"right": share(47, 50)}, "fit"),
        ({"right": share(44, 50)}, "fit with care"),
        ({"right": share(38, 50)}, "cannot tell"),
        ({"right": share(27, 50)}, "unfit"),
        ({"right": share(6, 6)}, "cannot tell"),
        ({"right": NONE}, "cannot tell"),
        ({"right": share(44, 50), "unread": 0.8}, "cannot tell"),
        ({"right": share(44, 50), "unread": 0.9}, "unfit"),
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
    found, reasons = verdict(**figures)
    assert found == expected
    assert reasons


def test_a_fit_judge_is_told_its_share_and_another_one_what_is_wrong():
    assert verdict()[1] == ["right verdicts 50 of 50, 100% [93%, 100%]"]
    assert verdict(flips=share(25, 50), valid=share(5, 50))[1] == [
        "verdicts that stay when asked again 25 of 50, 50% [37%, 63%]",
        "replies valid at once 5 of 50, 10% [4%, 21%]",
    ]
    assert verdict(right=share(25, 50), said={"yes": 50})[1] == [
        "right verdicts 25 of 50, 50% [37%, 63%]: it said 'yes' to everything, no better than the 50% to be had "
        "without reading"
    ]
    first = cited(share(10, 50), share(50, 50), share(48, 50))
    assert verdict(citations=first)[1] == [
        "citations to the point 10 of 50, 20% [11%, 33%]: 96% name the first chunk, where 25% belong"
    ]
    assert "first chunk" not in verdict(citations=cited(share(10, 50), share(50, 50), share(12, 50)))[1][0]


def test_a_metric_is_as_fit_as_its_worst_step():
    steps = {"extract_statements": ("fit", ["a"]), "verify_statements": ("unfit", ["b", "c"])}
    assert metric_verdict(steps, "faithfulness") == ("unfit", "verify_statements: b; c. extract_statements: a.")
    steps["verify_statements"] = ("fit with care", ["d"])
    assert metric_verdict(steps, "faithfulness")[0] == "fit with care"
    assert metric_verdict({}, "faithfulness")[0] == "cannot tell"
    assert metric_verdict({}, "answer_similarity")[1].startswith("measure_similarity: the embeddings were not tried")


def test_the_table_names_metrics_and_steps_that_there_are():
    assert STEPS_OF.keys() <= BUILDERS.keys()
    named = {step for steps in STEPS_OF.values() for step in steps}
    unlabelled = {"critique_aspect", "detect_abstention", "detect_answerable", "extract_entities", "find_entities"}
    assert named - EXAMINATIONS.keys() == {*unlabelled, "grade_rubric"}
    assert EXAMINATIONS.keys() <= named <= ANSWER_SCHEMAS.keys() | {EMBEDDED}


def test_a_share_tells_counts_value_and_interval():
    assert str(share(45, 50)) == "45 of 50, 90% [79%, 96%]"
    assert str(share(45, 50).rest) == "5 of 50, 10% [4%, 21%]"
    assert (str(NONE), NONE.rest, NONE.value) == ("–", NONE, None)
    assert Share.over([0.5, 1.0]).hits == 1.5
