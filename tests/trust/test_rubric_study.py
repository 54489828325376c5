"""rubric_study: the numbers of its table, compared with scipy, and invalid input."""

from functools import partial
from statistics import stdev

import pytest
from helpers.each import each
from helpers.scripted import answering, graded
from langchain_core.messages import AIMessage
from scipy.stats import kendalltau, spearmanr

from langchain_rageval import ConfigError, Criterion, OfflineJudge, Sample, aspect_critique, rubric, rubric_study
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.statistics.agreement import statistic
from langchain_rageval.trust.rubric_study import RubricStudy

MODELS = ("a", "b", "c")
CELLS = [(model, n, {"model": model}) for model in MODELS for n in range(4)]
SHEETS = [Sample(id=f"q{n}@{m}", question=f"Question {n}?", answer=f"{m}{n}", metadata=own) for m, n, own in CELLS]
GRADES = "332322120101", "332321120102", "130232320301"
PEOPLE, STRONG, WEAK = ({s.id: int(grade) for s, grade in zip(SHEETS, own, strict=True)} for own in GRADES)
TONE = [Criterion("tone", "Whether it is kind.")]


def judge(grades, scale=3):
    """Gives each sheet its recorded grade, stretched to the scale that it is asked for."""

    def reply(messages):
        inputs = read_inputs(messages[1].text)
        sheet = next(s for s in SHEETS if s.answer == inputs["answer"])
        highest = max(map(int, inputs["criteria"][0]["grades"]))
        cost = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
        return AIMessage(graded(tone=grades[sheet.id] * highest // scale).model_dump_json(), usage_metadata=cost)

    return answering(reply)


def study(judges=None, rubrics=None, sheets=SHEETS, labels=None, **options):
    judges = judges or {"strong": judge(STRONG), "weak": judge(WEAK)}
    rubrics = rubrics or {"0-3": {"criteria": TONE}}
    labels = {sheet: {"tone": grade} for sheet, grade in PEOPLE.items()} if labels is None else labels
    return rubric_study(judges, rubrics, sheets, labels, progress=False, **options)


@pytest.mark.parametrize(("name", "grades"), [("strong", STRONG), ("weak", WEAK)])
def test_every_row_has_mean_spread_and_agreement_with_the_labels(name, grades):
    row = study()[name, "0-3"]
    given, people = list(grades.values()), list(PEOPLE.values())
    values = [grade / 3 for grade in given]
    assert row.mean == pytest.approx(sum(values) / 12)
    assert (row.low, row.high) == bounded_mean_interval(values)
    assert (row.spread, row.match.pairs) == (pytest.approx(stdev(values)), 12)
    assert row.match.exact == sum(a == b for a, b in zip(given, people, strict=True)) / 12
    assert row.match.within_one == sum(abs(a - b) <= 1 for a, b in zip(given, people, strict=True)) / 12
    assert row.match.kappa == pytest.approx(statistic("weighted_kappa", given, people))
    assert row.spearman == pytest.approx(spearmanr(given, people).statistic)
    assert row.by_criterion == {"tone": row.match}
    assert (row.scored, row.failed, row.calls, row.scale) == (12, 0, 12, (0, 3))
    if name == "strong":
        assert (row.match.exact, row.match.within_one) == (10 / 12, 1.0)


def test_the_order_of_the_models_and_its_stability_over_the_rows():
    found = study()
    assert [row.order for row in found] == [("a", "b", "c"), ("b", "a", "c")]
    assert found["strong", "0-3"].models == pytest.approx({"a": 11 / 12, "b": 0.5, "c": 0.25})
    means = [[row.models[model] for model in MODELS] for row in found]
    tau = kendalltau(*means).statistic
    assert [row.stability for row in found] == pytest.approx([tau, tau])
    assert found.notes[-1] == (
        "The order of the models depends on judge and rubric: a > b > c (1 of 2 rows); b > a > c (1 of 2 rows). "
        "Do not rely on a single row."
    )


def test_a_tie_does_not_contradict_an_order():
    flat = dict.fromkeys(STRONG, 2)
    found = study({"strong": judge(STRONG), "flat": judge(flat)})
    assert found["flat", "0-3"].stability is None
    assert found.notes[-1].startswith("No two rows disagree on the order of the models: ")
    found = study({"one": judge(STRONG), "two": judge(PEOPLE)})
    assert [row.stability for row in found] == [1.0, 1.0]
    assert found.notes == ["No two rows disagree on the order of the models: a > b > c."]


def test_a_judge_that_gives_one_grade_only_has_no_rank_correlation():
    row = study({"flat": judge(dict.fromkeys(STRONG, 2))})[0]
    assert (row.spearman, row.spread, row.match.kappa) == (None, 0.0, pytest.approx(0.0))
    same = study({"flat": judge(dict.fromkeys(STRONG, 2))}, labels={sheet: {"tone": 2} for sheet in STRONG})[0]
    assert (same.match.exact, same.match.kappa) == (1.0, None)


def test_grades_on_another_scale_than_the_labels_are_compared_by_rank_alone():
    found = study(rubrics={"0-3": {"criteria": TONE}, "0-6": {"criteria": TONE, "scale": (0, 6)}})
    here, there = found["strong", "0-3"], found["strong", "0-6"]
    assert (there.match.pairs, there.match.exact, there.by_criterion) == (0, None, {})
    assert (there.spearman, there.mean) == (here.spearman, here.mean)
    wide = study(rubrics={"0-6": {"criteria": TONE, "scale": (0, 6)}}, label_scale=(0, 6))["strong", "0-6"]
    assert wide.match.pairs == 12


def test_labels_of_several_criteria_are_weighted_as_in_the_rubric():
    criteria = [Criterion("tone", "Kind?", 3), Criterion("brevity", "Short?", 1)]

    def reply(messages):
        return graded(tone=int(read_inputs(messages[1].text)["answer"][1]), brevity=0)

    labels = {s.id: {"tone": 3 - int(s.answer[1]), "brevity": 3 * (s.answer[1] == "3")} for s in SHEETS}
    row = study({"j": answering(reply)}, {"r": {"criteria": criteria}}, labels=labels)[0]
    whole = [(3 * label["tone"] + label["brevity"]) / 4 for label in labels.values()]
    assert row.spearman == pytest.approx(spearmanr([int(s.answer[1]) for s in SHEETS], whole).statistic)
    assert {name: match.pairs for name, match in row.by_criterion.items()} == {"tone": 12, "brevity": 12}
    assert row.by_criterion["brevity"].exact == 0.75


def test_a_label_may_be_one_number_for_the_whole_answer():
    row = study(labels={sheet: float(grade) for sheet, grade in PEOPLE.items()})["strong", "0-3"]
    assert row.match.pairs == 0
    assert row.spearman == pytest.approx(spearmanr(list(STRONG.values()), list(PEOPLE.values())).statistic)
    bare = study(labels={})[0]
    assert (bare.match.pairs, bare.match.exact, bare.spearman) == (0, None, None)


def test_labels_of_criteria_that_the_rubric_lacks_do_not_count():
    labels = {sheet: {"tone": grade, "brevity": 3 - grade} for sheet, grade in PEOPLE.items()}
    row, plain = study(labels=labels)["strong", "0-3"], study()["strong", "0-3"]
    assert (row.match, row.by_criterion, row.spearman) == (plain.match, plain.by_criterion, plain.spearman)


def test_the_cost_follows_from_tokens_and_prices():
    found = study(price={"strong": (2.5, 10)})
    assert found["strong", "0-3"].cost == pytest.approx(12 * (1000 * 2.5 + 10 * 10) / 1_000_000)
    assert found["strong", "0-3"].tokens == 12 * 1010
    assert found["weak", "0-3"].cost is None
    silent = study({"j": answering(lambda _: graded(tone=1))}, price={"j": (1, 1)})[0]
    assert (silent.tokens, silent.cost) == (None, None)  # the model reports no tokens


def test_a_sheet_without_an_answer_fails_in_every_row_and_is_excluded():
    given = [*SHEETS[:-1], SHEETS[-1].model_copy(update={"answer": None})]
    found = study(sheets=(sheet.model_dump() for sheet in given))  # an iterator of mappings does as well
    assert [(row.scored, row.failed, row.match.pairs) for row in found] == [(11, 1, 11)] * 2


def test_a_rubric_may_be_a_function_from_a_judge_to_any_metric():
    rubrics = {"mine": partial(rubric, criteria=TONE), "other": lambda judge: aspect_critique(judge, "conciseness")}
    found = study({"offline": OfflineJudge()}, rubrics, labels={})
    assert [(row.rubric, row.scale) for row in found] == [("mine", (0, 3)), ("other", None)]
    assert list(found.report.rows[0].scores) == ["offline | mine", "offline | other"]


def test_a_journal_keeps_what_was_paid_for(tmp_path):
    judges = {"strong": judge(STRONG)}
    for _ in range(2):
        found = study(judges, journal=tmp_path / "study.db")
    assert len(judges["strong"].asked) == 12
    assert found[0].mean == pytest.approx(sum(STRONG.values()) / 36)


def test_without_models_there_is_no_order():
    sheets = [sheet.model_copy(update={"metadata": {}}) for sheet in SHEETS]
    found = study(sheets=sheets)
    assert [(row.order, row.stability) for row in found] == [((), None)] * 2
    assert found.notes == []


def test_output_as_text_html_and_frame():
    found = study(price={"strong": (2.5, 10)})
    assert isinstance(found, RubricStudy)
    lines = str(found).splitlines()
    assert lines[0] == "Study of 2 judges × 1 rubric over 12 answers"
    assert " ".join(lines[2].split()) == "strong 0-3 0.556 0.358 83% 100% 0.92 0.91 0.33 0 12 12,120 0.0312"
    assert "<td>83%</td>" in found._repr_html_()
    frame = found.to_pandas()
    assert list(frame["judge"]) == ["strong", "weak"]
    assert frame.loc[0, "tone.exact"] == found[0].match.exact
    with pytest.raises(KeyError, match="none"):
        found["none", "0-3"]


PRICES = r"price must map names of judges to \(.* output tokens\), got"
OPTIONS = "a mapping of options, or a function from a judge to a metric"


@each(
    ("given", "told"),
    [
        ({"judges": [1]}, "judges must be a mapping of names, got list"),
        ({"rubrics": [1]}, "rubrics must be a mapping of names, got list"),
        ({"rubrics": {"r": {"scal": (0, 3)}}}, r"strong \| r: invalid options of rubric: .*scal"),
        ({"rubrics": {"r": 3}}, f"rubrics must be {OPTIONS}, got int"),
        ({"rubrics": {"r": lambda judge: judge}}, "got Judge"),
        ({"labels": {"q9@z": {"tone": 1}}}, r"no label belongs to these sheets: .* such as q0@a, q0@b, q0@c"),
        ({"labels": {"q0@a": {"tone": 4}}}, "the label of 'q0@a' for tone is 4, not a grade from 0 to 3"),
        ({"labels": {"q0@a": {"tone": 1.5}}}, "is 1.5, not a grade"),
        ({"price": {"x": (1, 1)}}, "price names 'x', but the judges are strong, weak"),
        ({"price": (1, 1)}, rf"^{PRICES} \(1, 1\)$"),
        ({"price": {"strong": 1}}, f"^{PRICES} strong: 1$"),
        ({"price": {"strong": (1, 1, 0.1)}}, rf"^{PRICES} strong: \(1, 1, 0.1\)$"),
        ({"price": {"strong": (-1, 1)}}, rf"^{PRICES} strong: \(-1, 1\)$"),
    ],
)
def test_invalid_arguments_raise_before_any_call(given, told):
    judges = {name: answering(lambda _: pytest.fail("asked")) for name in ("strong", "weak")}
    with pytest.raises(ConfigError, match=told):
        study(**{"judges": judges, **given})
