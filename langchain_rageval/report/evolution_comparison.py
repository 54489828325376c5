"""Comparison of question types (evolutions) of a generated test set with the simple questions about the same facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.comparison import PAIRED_HEADINGS, Comparison, comparison_cells
from langchain_rageval.report.metric_comparison import compare_metric, with_verdicts
from langchain_rageval.report.pairing import Pair, scores_by_metric
from langchain_rageval.report.plot import draw_evolutions
from langchain_rageval.report.tables import Analysis, Shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SIMPLE = "simple"
"""Evolution with which the others are compared."""


class EvolutionComparison(Analysis[Comparison]):
    """Mapping of each evolution (question type) to its comparison with the simple questions about the same facts.

    A tree is a simple question and its evolved questions about one fact; it counts as one observation.
    `comparison["reasoning"]["faithfulness"].difference` is a mean over the trees: value of the evolved question minus
    value of the simple question. Its interval is `low` to `high`. The verdict "worse" means that the evolution makes
    the questions harder for the chain.

    Attributes:
        trees: number of trees with a simple question.
        notes: remarks for the reader, such as on rows without a tree.
    """

    headings = (
        "evolution",
        *({"baseline": SIMPLE, "candidate": "evolved", "pairs": "trees"}.get(name, name) for name in PAIRED_HEADINGS),
    )

    def __init__(self, evolutions: Mapping[str, Comparison], trees: int, notes: Sequence[str] = ()) -> None:
        super().__init__(evolutions, notes)
        self.trees = trees

    @property
    def title(self) -> str:
        """Heading of the table: difference (evolved minus simple question), number of trees, kind of interval.

        A tree is a simple question and its evolved questions about one fact.
        """
        trees = pluralize(self.trees, "tree")
        return f"Evolved minus simple question about the same fact, {trees}, 95% intervals, p Holm-adjusted"

    lines = Shown.lines

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows, one for each evolution (question type, such as "reasoning") and metric.

        A row is a tuple with a text for each column of `headings`.
        """
        return [
            (evolution, *comparison_cells(replace(metric, pairs=metric.clusters or 0)))
            for evolution, comparison in self.items()
            for metric in comparison.values()
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row for each evolution (question type, such as "reasoning") and metric.

        The columns are `evolution`, `metric`, `direction`, `simple` and `evolved` (means), `difference`, `low`, `high`,
        `p_value`, `verdict` and `trees` (number of facts).
        """
        import pandas

        names = {"metric": "metric", "direction": "direction", "simple": "baseline", "evolved": "mean"}
        names |= {name: name for name in ("difference", "low", "high", "p_value", "verdict")} | {"trees": "clusters"}
        return pandas.DataFrame(
            [
                {"evolution": evolution, **{name: getattr(metric, field) for name, field in names.items()}}
                for evolution, comparison in self.items()
                for metric in comparison.values()
            ]
        )

    def plot(self) -> Figure:
        """Draw the differences, evolved minus simple question, as points with their 95% intervals.

        Each metric has a panel. In the panel, each evolution (question type, such as "reasoning") has a row.

        Returns:
            A matplotlib Figure that notebooks show and `savefig` writes. No window opens, and pyplot is not used.

        Raises:
            ConfigError: if matplotlib is not installed.
        """
        return draw_evolutions(self)


def compare_evolutions(rows: Iterable[Row]) -> EvolutionComparison:
    """Compare each evolution (question type, such as "reasoning") with the simple questions about the same facts.

    The rows must be of a test set with trees (a simple question and its evolved questions about one fact); otherwise
    ConfigError is raised. See `Report.by_evolution`.
    """
    trees, loose = _by_tree(rows)
    if not trees:
        raise ConfigError(
            "no sample has metadata.tree_id and metadata.evolution: generate the test set with "
            "TestsetGenerator(..., tree=True), and keep the metadata of its samples"
        )
    roots = {tree: next((row for row in own if _evolution(row) == SIMPLE), None) for tree, own in trees.items()}
    pairs: dict[str, list[tuple[str, Pair]]] = {}
    for tree, own in trees.items():
        for row in own:
            if (root := roots[tree]) is not None and _evolution(row) != SIMPLE:
                pairs.setdefault(_evolution(row), []).append((tree, (row, root)))
    if not pairs:
        raise ConfigError(
            "no tree of questions (samples of one metadata.tree_id) has both a simple question and another evolution: "
            "keep all samples of a tree in the report"
        )
    scores = scores_by_metric([row for own in trees.values() for row in own])
    directions = {name: own[0].direction for name, own in scores.items()}
    compared = {
        (evolution, name): compare_metric(name, direction, [pair for _, pair in own], [tree for tree, _ in own])
        for evolution, own in pairs.items()
        for name, direction in directions.items()
    }
    verdicts = dict(zip(compared, with_verdicts(list(compared.values()), 0.0), strict=True))
    evolutions = {evolution: Comparison([verdicts[evolution, name] for name in directions]) for evolution in pairs}
    rootless = sum(root is None for root in roots.values())
    notes = [f"Left out: {pluralize(loose, 'sample')} without a tree."] if loose else []
    notes += [f"{rootless} trees without a simple question were left out."] if rootless else []
    return EvolutionComparison(evolutions, len(roots) - rootless, notes)


def has_trees(rows: Iterable[Row]) -> bool:
    """Return True if a tree (the rows with one `metadata.tree_id`) has a simple question and one of another type."""
    trees, _ = _by_tree(rows)
    evolutions = ({_evolution(row) for row in own} for own in trees.values())
    return any(SIMPLE in own and len(own) > 1 for own in evolutions)


def _by_tree(rows: Iterable[Row]) -> tuple[dict[str, list[Row]], int]:
    """Return the rows of each tree, and the number of rows without one."""
    trees: dict[str, list[Row]] = {}
    loose = 0
    for row in rows:
        tree = row.sample.metadata.get("tree_id")
        if tree and _evolution(row):
            trees.setdefault(str(tree), []).append(row)
        else:
            loose += 1
    return trees, loose


def _evolution(row: Row) -> str:
    return str(row.sample.metadata.get("evolution") or "")
