"""Qualification: the result of `qualify_judge`, files of examined judges, and gates that require an examined judge."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Literal

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.instrument import Instrument, step_digests
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import ReportData, instruments_of
from langchain_rageval.report.gates import Gate
from langchain_rageval.report.tables import Renamed, html_table, number_text
from langchain_rageval.run.usage import format_money
from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.trust.agreement import Agreement

Fitness = Literal["unfit", "cannot tell", "fit with care", "fit"]

STEP_HEADINGS = ("step", "verdict", "plain", "hard", "baselines", "cited", "shown", "flips", "order", "length")
_COST_HEADINGS = ("step", "output mode", "valid at once", "answered", "calls", "tokens", "seconds")
KIND_HEADINGS = ("step", "kind of item", "right", "share", "interval")
METRIC_HEADINGS = ("metric", "verdict", "why")
LEGEND = (
    "Plain, hard: right verdicts on plain items and on minimal pairs, with 95% intervals. Baselines: share of the hard "
    "ones that the best constant answer, word overlap and surface rules get right. Cited: relevant citations. Shown: "
    "right verdicts with a relevant citation. Flips, order, length: verdicts that change when asked again, in reverse "
    "order, with an irrelevant sentence in each chunk."
)
KIND_TITLE = "Right verdicts by kind of item, the weakest kind of each step first"
_NONE = "–"


@dataclass(frozen=True)
class Proportion:
    """A proportion (mean of values from 0 to 1) with its 95% interval.

    Attributes:
        hits: sum of the values; fractional if values are averages over repeats.
        of: number of values.
        value: `hits` divided by `of`, from 0 to 1; None if there are no values.
        low: lower end of the interval; None without a value.
        high: upper end of the interval; None without a value.
        units: number of independent units, such as pairs of labelled items; None if each value is its own unit.
    """

    hits: float
    of: int
    value: float | None
    low: float | None
    high: float | None
    units: int | None = None

    @classmethod
    def of_units(cls, values: Iterable[tuple[float, Hashable]]) -> Proportion:
        """Return the mean of values from 0 to 1 as a proportion.

        Args:
            values: pairs of a value and the unit that it belongs to. Only values of different units are independent.
        """
        pairs = list(values)
        if not pairs:
            return cls(0, 0, None, None, None)
        numbers, units = [value for value, _ in pairs], [unit for _, unit in pairs]
        shared = len(set(units)) if len(set(units)) < len(units) else None
        low, high = bounded_mean_interval(numbers, clusters=units if shared else None)
        return cls(sum(numbers), len(numbers), sum(numbers) / len(numbers), low, high, shared)

    def __str__(self) -> str:
        """Return the proportion as text, such as "45 of 50 in 20 items, 90% [79%, 96%]"; "–" without a value."""
        items = "" if self.units is None else f" in {pluralize(self.units, 'item')}"
        return _NONE if self.value is None else f"{self.hits:.3g} of {self.of}{items}, {self.percent} {self.interval}"

    @property
    def percent(self) -> str:
        """The proportion in percent without its interval, such as "90%"; "–" if it has no value."""
        return _NONE if self.value is None else f"{self.value:.0%}"

    @property
    def interval(self) -> str:
        """The 95% interval of the proportion in percent; "–" if it has no value."""
        return _NONE if self.low is None else f"[{self.low:.0%}, {self.high:.0%}]"

    @property
    def short(self) -> str:
        """Hits and number of values, and the interval, such as "45/50 79–96%"; "–" if there are no values."""
        return _NONE if self.low is None else f"{self.hits:.0f}/{self.of} {100 * self.low:.0f}–{self.high:.0%}"

    @property
    def complement(self) -> Proportion:
        """The proportion `1 - value`, with the interval from `1 - high` to `1 - low`; unchanged without a value."""
        if self.value is None or self.low is None or self.high is None:
            return self
        return Proportion(self.of - self.hits, self.of, 1 - self.value, 1 - self.high, 1 - self.low, self.units)


@dataclass(frozen=True)
class Citations:
    """Quality of the citations of right verdicts.

    Attributes:
        precision: share of the cited sentences that are evidence for the verdict; a mean over verdicts.
        recall: share of the right verdicts, among those that require a citation, that cite some evidence.
        first: share of the cited sentences that are in the first chunk.
        due_first: share of the right verdicts whose evidence is in the first chunk, from 0 to 1.
    """

    precision: Proportion
    recall: Proportion
    first: Proportion
    due_first: float


@dataclass(frozen=True)
class StepQualification(Renamed):
    """Statistics of a judge on one judge step. A proportion that does not apply to the step has no value.

    Attributes:
        step: name of the step.
        verdict: "fit", "fit with care", "unfit" or "cannot tell"; the worst verdict on any of the statistics.
        reasons: the statistics that decided the verdict, worst first.
        output_mode: way of requesting structured output that gave most valid replies, such as "json_schema"; None for
            embeddings.
        valid: valid rate: share of the probes (test requests: each repeat and each variant of an item) whose first
            reply was valid and complete; transport errors are not counted; without a value for embeddings.
        answered: share of the probes that were finally answered; transport errors are not counted.
        right: right rate: share of the labelled verdicts of the first repeat that are right.
        plain: right rate on the plain items; without a value if there are none.
        hard: right rate on the hard items, most of which are minimal pairs; without a value if there are none.
        right_by_kind: mapping from a kind of item, such as "table", to the share of right verdicts on its items;
            without a value if no item of the kind was answered.
        constant: share of the hard verdicts, from 0 to 1, that the best constant answer gets right (for embeddings, a
            guess). If no item is hard, this and the next two shares are of all verdicts.
        word_overlap: share of the same verdicts that `OfflineJudge` gets right, which decides by word overlap, without
            a model; for embeddings, the share that `HashingEmbeddings` get right.
        rules: share of the same verdicts that rules about lengths, overlaps, numbers and negations get right.
        lead: mapping from each baseline to the judge's share of right verdicts on the hard items minus the baseline's
            share: the difference and the ends of its 95% interval, in which a pair of items is one unit.
        verdicts: mapping from each verdict to its count among the labelled verdicts of the first repeat.
        flips: flip rate: share of the pairs of repeats that disagree, a mean over verdicts; without a value for a
            single repeat.
        citations: quality of the citations; None if the step cites nothing.
        order_bias: position bias: share of the verdicts that change if chunks or statements are in reverse order.
        length_bias: share of the verdicts that change if an irrelevant sentence is added to each chunk.
        calls: number of model calls.
        tokens: input and output tokens; None if the model reports none.
        money: what the calls cost; None without prices, or if the model has no price or reports no tokens.
        seconds: total duration of the calls; concurrent calls are added up.
        lost: number of probes that ended with a transport error.
        error: the first of these transport errors; "" if there is none.
    """

    old_names: ClassVar = {"rung": "output_mode", "unread": "constant", "words": "word_overlap", "said": "verdicts"}

    step: str
    verdict: Fitness
    reasons: Sequence[str]
    output_mode: str | None
    valid: Proportion
    answered: Proportion
    right: Proportion
    plain: Proportion
    hard: Proportion
    right_by_kind: Mapping[str, Proportion]
    constant: float
    word_overlap: float
    rules: float
    lead: Mapping[str, tuple[float, float, float]]
    verdicts: Mapping[str, int]
    flips: Proportion
    citations: Citations | None
    order_bias: Proportion
    length_bias: Proportion
    calls: int
    tokens: int | None
    seconds: float
    lost: int = 0
    error: str = ""
    money: float | None = None

    @property
    def weakest_kinds(self) -> list[tuple[str, Proportion]]:
        """The kinds of item with their shares of right verdicts: unanswered kinds, then the lowest share first."""
        return sorted(self.right_by_kind.items(), key=lambda item: -1.0 if item[1].value is None else item[1].value)


@dataclass(frozen=True)
class Qualification:
    """Trustworthiness of a judge in one language, by step and by metric.

    Attributes:
        judge: identity of the judge, and of the embeddings if they were examined.
        language: language of the labelled items.
        layout: order of the parts of each request, such as "contexts_first". If the judges of a jury have different
            layouts, the names of all layouts, separated by ", ".
        repeats: how often each unchanged item was run.
        steps: mapping from the name of a step to its statistics.
        verdict: mapping from each metric to "fit", "fit with care", "unfit" or "cannot tell": the worst verdict on a
            step of the metric.
        reasons: mapping from each metric to the statistics that decided the verdict.
        notes: caveats for the reader.
        date: when the judge was examined (UTC), in ISO 8601; "" if it is unknown.
        examined: mapping from the name of a step to the digest of the examined judge and prompts.
    """

    judge: str
    language: str
    layout: str
    repeats: int
    steps: Mapping[str, StepQualification]
    verdict: Mapping[str, Fitness]
    reasons: Mapping[str, str]
    notes: Sequence[str] = field(default_factory=list)
    date: str = ""
    examined: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Heading of the qualification: judge, language, number of repeats, and layout of the requests."""
        times = "once" if self.repeats == 1 else f"{self.repeats} times"
        return f"{self.judge} in {self.language!r}, each question asked {times}, layout {self.layout}"

    def step_cells(self) -> Iterator[list[str]]:
        """Yield a table row for each judge step: verdict, right verdicts, baselines, citations, flips and biases.

        The row has a cell for each column of `STEP_HEADINGS`; `LEGEND` explains the columns.
        """
        for step in self.steps.values():
            citations = step.citations
            yield [
                step.step,
                step.verdict,
                *(half.short for half in (step.plain, step.hard)),
                f"{100 * step.constant:.0f} {100 * step.word_overlap:.0f} {step.rules:.0%}",
                citations.precision.percent if citations else _NONE,
                citations.recall.percent if citations else _NONE,
                *(share.percent for share in (step.flips, step.order_bias, step.length_bias)),
            ]

    def kind_cells(self) -> Iterator[list[str]]:
        """Yield a table row for each judge step and kind of item, with count, share and interval of right verdicts."""
        for step in self.steps.values():
            for kind, right in step.weakest_kinds:
                yield [step.step, kind, f"{right.hits:.0f}/{right.of}", right.percent, right.interval]

    @property
    def cost_headings(self) -> Sequence[str]:
        """Headings of the table of costs of the judge steps; the last is "money" if the cost of any step is known.

        The others: "step", "output mode", "valid at once" and "answered" (shares of requests), "calls", "tokens",
        "seconds".
        """
        return [*_COST_HEADINGS, "money"] if self._has_money else _COST_HEADINGS

    @property
    def _has_money(self) -> bool:
        return any(step.money is not None for step in self.steps.values())

    def cost_cells(self) -> Iterator[list[str]]:
        """Yield a table row for each judge step: calls, tokens, seconds and money that its test requests took.

        `cost_headings` holds the heading of each cell.
        """
        for step in self.steps.values():
            money = [format_money(step.money)] if self._has_money else []
            shares = (step.valid.percent, step.answered.percent)
            counts = (str(step.calls), number_text(step.tokens, ","), f"{step.seconds:.1f}")
            yield [step.step, step.output_mode or _NONE, *shares, *counts, *money]

    def metric_cells(self) -> Iterator[list[str]]:
        """Yield a table row for each metric: its name, the verdict on the judge and the reasons for the verdict."""
        yield from ([metric, verdict, self.reasons[metric]] for metric, verdict in self.verdict.items())

    def __str__(self) -> str:
        """Return the qualification as text.

        The title, a line for each metric with verdict and reasons, a line for each step with its shares of right
        verdicts by kind of item, and the notes.
        """
        lines = [f"{metric}: {verdict}. {reason}" for metric, verdict, reason in self.metric_cells()]
        kinds = [
            f"{step.step}: " + "; ".join(f"{kind} {right}" for kind, right in step.weakest_kinds)
            for step in self.steps.values()
        ]
        return "\n".join([self.title, *lines, f"{KIND_TITLE}:", *kinds, *self.notes])

    def _repr_html_(self) -> str:
        """Return the tables of steps, kinds of item, costs and metrics as HTML, for notebooks."""
        steps = html_table(self.title, STEP_HEADINGS, self.step_cells(), [LEGEND])
        cost = html_table("Replies and cost", self.cost_headings, self.cost_cells())
        kinds = html_table(KIND_TITLE, KIND_HEADINGS, self.kind_cells())
        return steps + kinds + cost + html_table("Fit for", METRIC_HEADINGS, self.metric_cells(), self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of all fields by name, such as `steps` and `verdict`, that can be written as JSON.

        Statistics and proportions in the fields are dictionaries of their own fields.
        """
        return asdict(self)

    def to_json(self, path: str | Path) -> None:
        """Write all fields of the qualification to a JSON file."""
        save_json(path, self.to_dict())


LEAST_AGREEMENT = 0.4
"""Least kappa, weighted kappa or rank correlation of a judge that is fit by its agreement with people."""


def save_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write data to a JSON file with indented lines."""
    Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def today() -> str:
    """Return the date (UTC) in ISO 8601."""
    return datetime.now(UTC).date().isoformat()


def write_agreement(path: str | Path, found: Agreement, metric: str, report: ReportData) -> None:
    """Write an agreement and the identity of the report's judge to a JSON file.

    The verdict is based on kappa for binary labels, else on weighted kappa, or on Spearman's correlation if weighted
    kappa has no value. The judge is "fit" for the metric if this statistic is at least 0.4 and its interval lies above
    0; otherwise the judge is "unfit".
    """
    names = ("kappa",) if found.kind == "binary" else ("weighted_kappa", "spearman")
    chosen = next((found[name] for name in names if found[name].value is not None), None)
    is_fit = chosen is not None and (chosen.value or 0) >= LEAST_AGREEMENT and (chosen.low or 0) > 0
    steps: dict[str, str] = {}
    for instrument in instruments_of(report).get(metric, []):
        steps |= step_digests(instrument.found_by)
    content = {
        "judge": ", ".join(name for one in instruments_of(report).get(metric, []) for name in one.judges),
        "date": today(),
        "examined": steps,
        "verdict": {metric: "fit" if is_fit else "unfit"},
        "agreement": {name: [one.value, one.low, one.high] for name, one in found.items()},
        "pairs": found.pairs,
    }
    save_json(path, content)


@dataclass(frozen=True)
class ExaminedJudge:
    """Result of an earlier test of a judge, from a file of `rageval qualify --out` or `rageval agreement --out`.

    Attributes:
        path: the file.
        date: when the judge was examined, ISO 8601.
        steps: mapping from the name of a judge step to the digest of the judge and the prompts.
        verdict: mapping from each metric to "fit", "fit with care", "cannot tell" or "unfit".
    """

    path: str
    date: str
    steps: Mapping[str, str]
    verdict: Mapping[str, str]

    @classmethod
    def load(cls, path: str | Path) -> ExaminedJudge | None:
        """Read the result from a file; return None if the file does not exist.

        Raises:
            ConfigError: if the file cannot be read, is not JSON, or does not hold the result of a test of a judge.
        """
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(str(path), str(content["date"]), dict(content["examined"]), dict(content["verdict"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{path} does not describe an examined judge: `rageval qualify --out` and `rageval agreement --out` do"
            ) from None


def judge_gates(report: ReportData, metrics: Iterable[str], path: str | Path, named: str = "…") -> list[Gate]:
    """Return a gate (a requirement on the run, with its verdict) for each metric that uses a judge.

    A gate passes if the file shows that this judge was examined with these prompts and is not "unfit" for the metric.
    Otherwise the gate is undecided; no gate fails. The `reason` of an undecided gate suggests a command that examines
    the judge; for a judge that is "unfit", it also advises another judge or better prompts.

    Args:
        report: the run.
        metrics: names of the metrics to check, such as those for which the run has a threshold.
        path: file of `rageval qualify --out` or `rageval agreement --out`.
        named: name and options of the judge on the command line, to be inserted into the suggested command.
    """
    examined, known = ExaminedJudge.load(path), instruments_of(report)
    gates = []
    for metric in dict.fromkeys(metrics):
        instruments = [one for one in known.get(metric, []) if one.judges or one.unknown]
        if instruments:
            code = _objection(metric, instruments, examined)
            facts = {"path": quote(str(path)), "date": examined.date if examined else "–", "named": named}
            judge = ", ".join(dict.fromkeys(name for one in instruments for name in one.judges))
            notes = [Note(code, metric=metric, judge=judge, **facts)] if code else []
            gates.append(Gate.of(metric, "an examined judge", "undecided" if code else "passed", notes))
    return gates


def _objection(metric: str, instruments: Iterable[Instrument], examined: ExaminedJudge | None) -> str:
    """Return the code of what speaks against the judge of a metric; "" if nothing does."""
    if examined is None or metric not in examined.verdict:
        return "judge-not-examined"
    for instrument in instruments:
        steps = step_digests(instrument.found_by)
        if not steps or any(examined.steps.get(step) != digest for step, digest in steps.items()):
            return "another-judge"
    return "judge-unfit" if examined.verdict[metric] == "unfit" else ""
