"""`Report.by_evolution`: paired differences within trees between each evolution and the simple question."""

from io import BytesIO

import pytest
from helpers.reports import failed, row, scored
from helpers.stored import assert_stored, described, plain

from langchain_rageval import ConfigError, Report


def tree_row(place, tree, evolution, *scores):
    return row(place, *scores, metadata={"tree_id": tree, "evolution": evolution}, question=f"Question {place}?")


def forest(harder=0.5, trees=8):
    """Return a report of trees in which reasoning costs `harder` of each value, and a condition nothing."""
    rows = []
    for number in range(trees):
        value = 0.5 + 0.05 * number
        for evolution, own in (("simple", value), ("reasoning", value - harder), ("conditional", value)):
            scores = [scored(own), scored(1 - own, "noise_sensitivity", direction="lower")]
            rows.append(tree_row(len(rows), f"tree-{number}", evolution, *scores))
    return Report(rows)


def test_rows_without_a_tree_and_trees_without_a_simple_question_are_noted():
    rows = [*forest().rows, row(99, scored(1.0)), tree_row(100, "tree-x", "reasoning", scored(0.0))]
    found = Report(rows).by_evolution()
    assert found.notes == ["Left out: 1 sample without a tree.", "1 trees without a simple question were left out."]
    assert (found["reasoning"]["faithfulness"].clusters, found.trees) == (8, 8)


def test_a_report_without_trees_is_refused_with_the_remedy():
    with pytest.raises(ConfigError) as error:
        Report([row(0, scored(1.0))]).by_evolution()
    assert str(error.value) == (
        "no sample has metadata.tree_id and metadata.evolution: generate the test set with "
        "TestsetGenerator(..., tree=True), and keep the metadata of its samples"
    )
    lone = Report([tree_row(0, "a", "simple", scored(1.0)), tree_row(1, "b", "reasoning", scored(1.0))])
    with pytest.raises(ConfigError, match=r"^no tree of questions .* has both a simple question and another evolution"):
        lone.by_evolution()


def test_the_comparison_is_a_table_in_html_and_pandas():
    found = forest().by_evolution()
    frame = found.to_pandas()
    assert list(frame.evolution) == ["reasoning"] * 2 + ["conditional"] * 2
    assert list(frame.trees) == [8] * 4
    assert frame.difference[0] == found["reasoning"]["faithfulness"].difference
    assert found._repr_html_().count("<tr>") == 5


@pytest.mark.parametrize(
    ("language", "title"), [("en", "What makes questions harder"), ("ru", "Что усложняет вопросы")]
)
def test_the_page_has_a_section_only_if_there_are_trees(language, title, tmp_path):
    forest().to_html(tmp_path / "r.html", language=language)
    assert title in (tmp_path / "r.html").read_text(encoding="utf-8")
    Report([row(0, scored(1.0))]).to_html(tmp_path / "plain.html", language=language)
    assert title not in (tmp_path / "plain.html").read_text(encoding="utf-8")


def test_the_figure_is_drawn_as_stored():
    more = {f"m{place}": scored(0.5, f"m{place}") for place in range(3)}
    rows = [row.model_copy(update={"scores": {**row.scores, **more}}) for row in forest(trees=7).rows]
    rows[1].scores["m1"] = scored(0.75, "m1")
    for place in range(1, len(rows), 3):
        rows[place].scores["m2"] = failed("m2")
    assert_stored("plot_of_evolutions.txt", described(Report(rows).by_evolution().plot()))
    odd = [row.model_copy(update={"scores": {"$\\oops$": scored(0.5, "$\\oops$")}}) for row in rows]
    Report(odd).by_evolution().plot().savefig(BytesIO())  # the name is no formula


def test_the_table_is_as_stored_also_of_a_report_in_a_file(tmp_path):
    found = forest(trees=7).by_evolution()
    assert_stored("evolutions.txt", f"{found}\n{plain(found.cells())}\n{plain(found)}\n{found.notes}\n")
    forest(trees=7).to_jsonl(tmp_path / "r.jsonl")
    assert repr(Report.load(tmp_path / "r.jsonl", lazy=True).by_evolution()) == repr(found)
