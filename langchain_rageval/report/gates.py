"""Gates: decide whether a run meets a requirement, such as a lowest mean, or whether unknown values leave it open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isclose, isfinite, isnan
from typing import Any, Literal

from langchain_rageval.data.loading import original_ids
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.data.schema import Direction, Sample, Score
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.metrics.adapters import reaches
from langchain_rageval.report.audit import LEAST_AUDITED, MetricAudit, summarise_audit
from langchain_rageval.report.files import Decision, ReportData, check_metric
from langchain_rageval.report.free_checks import FreeChecks, is_blank
from langchain_rageval.report.summary import MetricSummary, summarise
from langchain_rageval.report.tables import interval_text

LEAST_SCORED = 5
"""Least number of scored samples for a threshold; in a set of fewer than ten samples, half of them."""

GateVerdict = Literal["passed", "failed", "undecided"]
Ends = tuple[float, float]


@dataclass(frozen=True)
class Gate:
    """Result of one requirement on a run: passed, failed or undecided.

    Attributes:
        metric: name of the metric; "" for a requirement on the run as a whole.
        requirement: what is required, such as "mean at least 0.8".
        verdict: "passed"; "failed"; or "undecided" if unknown values could change the result. A CI job should continue
            only after "passed".
        reason: reasons for the verdict as one text, each followed by its code in brackets; "" without reasons.
        codes: the codes of the reasons, for the option `allow=`.
    """

    metric: str
    requirement: str
    verdict: GateVerdict
    reason: str = ""
    codes: Sequence[str] = field(default_factory=list)

    @classmethod
    def of(cls, metric: str, requirement: str, verdict: GateVerdict, reasons: Sequence[Note] = ()) -> Gate:
        """Build a gate; its `reason` joins the texts of the reasons, and its `codes` are their codes."""
        text = "; ".join(f"{reason} [{reason.code}]" for reason in reasons)
        return cls(metric, requirement, verdict, text, [reason.code for reason in reasons])

    def to_dict(self) -> dict[str, Any]:
        """Return the gate as a dict for JSON: `metric`, `requirement`, `verdict`, `reason` and `codes` (a list)."""
        return {**vars(self), "codes": list(self.codes)}


@dataclass
class Values:
    """Totals of the values of a metric over all input samples of a run.

    Attributes:
        total: sum of the known values; a blank answer without a value counts as the worst one.
        count: number of known values.
        unscored: number of samples to which the metric does not apply; a gate's mean excludes these samples.
        unknown: mapping of a cause to the number of samples whose value is unknown for this cause: "failed" (an error
            prevented the score), "left-out" (the run did not compute the score, such as for lack of budget) or
            "unreadable" (the input record is not a valid sample).
        low: least possible value of a sample.
        high: greatest possible value of a sample.
        direction: "higher" or "lower", whichever is better.
        different: number of different samples with a known value; repeats of a sample count once.
        blank: number of known values that are the worst one because the answer is blank.
    """

    total: float = 0.0
    count: int = 0
    unscored: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    low: float = 0.0
    high: float = 1.0
    direction: Direction = "higher"
    different: int = 0
    blank: int = 0

    @property
    def n_unknown(self) -> int:
        """Number of samples whose value is unknown."""
        return sum(self.unknown.values())

    @property
    def expected(self) -> int:
        """Number of input samples of the run."""
        return self.count + self.unscored + self.n_unknown

    def ends(self) -> tuple[float, float]:
        """Return the mean with every unknown value set to the worst value, and the mean with the best value."""
        worst, best = (self.low, self.high) if self.direction == "higher" else (self.high, self.low)
        among = self.count + self.n_unknown
        return (self.total + self.n_unknown * worst) / among, (self.total + self.n_unknown * best) / among


def decide(values: Values, threshold: float, max_unknown: float) -> GateVerdict:
    """Return "passed" or "failed": whether a mean reaches its threshold; "undecided" if unknown values could change it.

    Args:
        values: the values of the metric.
        threshold: lowest accepted mean; the highest accepted mean if lower is better.
        max_unknown: highest share of samples with an unknown value, from 0 to 1, at which the mean of the known values
            decides. Above this share, the mean must give the same verdict with the worst and with the best value in
            place of each unknown value; otherwise the verdict is "undecided".
    """
    if not values.count:
        return "undecided" if values.n_unknown else "failed"
    if values.n_unknown <= max_unknown * values.expected + 1e-9:
        return "passed" if _reaches(values.total / values.count, threshold, values.direction) else "failed"
    worst, best = values.ends()
    return _by_interval(min(worst, best), max(worst, best), threshold, values.direction)


def value_of(sample: Sample, score: Score | None) -> float | None:
    """Return the value of a score; None if there is no value. A blank answer without a value gets the worst value.

    Exception: metrics of contexts and rankings do not measure the answer, so a blank answer has no value for them.
    """
    if score is None or score.value is not None:
        return None if score is None else score.value
    of_answer = score.aspect not in ("context", "ranking") and (score.failure is None or score.failure.step == "sample")
    worst = worst_of(score)
    return worst if of_answer and is_blank(sample) and isfinite(worst) else None


def range_of(score: Score) -> tuple[float, float]:
    """Return the least and the greatest possible value of a score: 0 and 1 if its metric declares no range."""
    low, high = score.range or (0.0, 1.0)
    return -inf if low is None else low, inf if high is None else high


def worst_of(score: Score) -> float:
    """Return the worst possible value of a score; infinite if the range has no worst value."""
    low, high = range_of(score)
    return low if score.direction == "higher" else high


def values_of_metric(data: ReportData, metric: str) -> Values:
    """Return the sum of a metric's known values, and the numbers of known and unknown ones, over all input samples."""
    values, ranges, scored = Values(unknown={"unreadable": data.unreadable}), set(), []
    for row in data.rows:
        if (score := row.scores.get(metric)) is None:
            continue
        ranges.add(range_of(score))
        values.direction = score.direction
        if (value := value_of(row.sample, score)) is not None:
            values.total += value
            values.blank += score.value is None
            scored.append((row.sample.id, row.sample.question))
        elif score.failure is not None:
            values.unknown["failed"] = values.unknown.get("failed", 0) + 1
        else:
            values.unscored += 1
    values.count, values.different = len(scored), len(set(original_ids(scored)))
    if ranges:
        values.low, values.high = min(low for low, _ in ranges), max(high for _, high in ranges)
    if left_out := sum(name == metric for _, name in data.left_out):
        values.unknown["left-out"] = left_out
    return values


@dataclass(frozen=True)
class Limits:
    """Limits of a gate: which shares of the samples, from 0 to 1, may lack a value, and which reasons to ignore.

    Attributes:
        failed: highest accepted share of samples with an unknown value: failed, unreadable or left out.
        unscored: highest accepted share of samples to which the metric does not apply, such as refusals.
        allow: codes of reasons to ignore, because they are intended.
    """

    failed: float = 0.05
    unscored: float = 0.5
    allow: Collection[str] = ()


def threshold_gates(data: ReportData, thresholds: Mapping[str, float], limits: Limits) -> list[Gate]:
    """Return a gate for each threshold: whether the mean of the metric reaches the threshold; see `Report.gates`.

    `thresholds` maps names of metrics to the lowest accepted mean, or to the highest if lower is better. `limits` has
    the largest accepted shares, such as that of failed scores, above which a gate does not pass.

    Raises:
        ConfigError: if the report has no such metric, a threshold is not a number, or a share in `limits` is not from 0
            to 1.
    """
    if not isinstance(thresholds, Mapping):
        raise ConfigError(f'check takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {thresholds!r}')
    for name, threshold in thresholds.items():
        if not isinstance(threshold, int | float) or isnan(threshold):
            raise ConfigError(f"the threshold of {name} must be a number, got {threshold!r}")
    for option, share in (("max_failed", limits.failed), ("max_unscored", limits.unscored)):
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"{option} must be a share from 0 to 1, got {share!r}")
    left_out = {name for _, name in data.left_out}
    for metric in thresholds:
        if metric not in left_out:
            check_metric(data, metric)
    summary, audit = summarise(data.rows), summarise_audit(data.rows)
    return [
        _gate(data, metric, threshold, summary.get(metric), audit.get(metric), limits)
        for metric, threshold in thresholds.items()
    ]


_OF_THE_RUN = ("one-vector", "canaries-failed")
"""Codes of the notes of a run that fail its gates."""


def run_gates(data: ReportData, limits: Limits) -> list[Gate]:
    """Return a list with one failed gate if the answers, a judge or the embeddings of the run do not work; else [].

    The reasons are the problems of `FreeChecks`, such as HTML pages as answers; a judge that erred too often on test
    statements with known verdicts; and embeddings that gave different texts the same vector.
    """
    reasons = FreeChecks(data.rows).problems(limits.failed, limits.allow)
    reasons += [note for note in data.notes if isinstance(note, Note) and note.code in {*_OF_THE_RUN} - {*limits.allow}]
    return [Gate.of("", "answers, judge and embeddings that work", "failed", reasons)] if reasons else []


def _gate(
    data: ReportData,
    metric: str,
    threshold: float,
    summary: MetricSummary | None,
    audit: MetricAudit | None,
    limits: Limits,
) -> Gate:
    values = values_of_metric(data, metric)
    required = f"at {'most' if values.direction == 'lower' else 'least'} {threshold:g}"
    if (decision := data.decisions.get(metric)) is not None and decision.verdict in ("passed", "failed", "undecided"):
        # The other verdicts of decisions compare with a baseline.
        ends, outside = (decision.low, decision.high), ["unreadable"]  # the stopping rule knows the other samples
        verdict = _by_interval(*ends, threshold, values.direction)
        reasons = [Note("decision", metric=metric, decision=decision, required=required)] * (verdict != "passed")
    elif audit is not None:
        ends, outside = _audited_ends(audit, values), ["unreadable", "left-out"]
        verdict, reasons = _by_audit(metric, audit, ends, threshold, required, limits)
    else:
        verdict, reasons = _by_values(metric, values, summary, threshold, required, limits)
        ends, outside = (0.0, 0.0), []
    unknown = _unknown_outside(metric, values, ends, outside, threshold, required, limits)
    verdict, reasons = ("undecided", unknown) if verdict == "passed" and unknown else (verdict, reasons)
    few = _few_scored(metric, values) if audit is None and verdict != "undecided" else None
    if few is not None and few.code not in limits.allow:
        verdict, reasons = "undecided", [few]
    known = values.count + values.unscored
    if values.count and values.unscored > limits.unscored * known:
        facts = {"unscored": values.unscored, "count": known, "most": limits.unscored}
        reasons = [*reasons, Note("unscored", metric=metric, **facts)]
    if any(code_of(note) == "budget-spent-unread" for note in data.notes):  # the number of samples is not known
        reasons = [*reasons, Note("not-read", metric=metric)]
    elif not data.complete:
        reasons = [*reasons, Note("incomplete", metric=metric)]
    kept = [reason for reason in reasons if reason.code not in limits.allow]
    if not kept:
        return Gate(metric, f"mean {required}", "passed")
    if verdict == "passed":
        verdict = "undecided" if {one.code for one in kept} <= {"not-read", "incomplete", "few-scored"} else "failed"
    return Gate.of(metric, f"mean {required}", verdict, kept)


def _unknown_outside(
    metric: str, values: Values, ends: Ends, outside: Collection[str], threshold: float, required: str, limits: Limits
) -> list[Note]:
    """Return the reason why unknown values that an interval does not cover leave a gate undecided; [] if they do not.

    `ends` are those of the interval, and `outside` the causes of the unknown values, such as "unreadable".
    """
    causes = {why: count for why, count in values.unknown.items() if why in outside and count}
    share = (unknown := sum(causes.values())) / (values.expected or 1)
    low, high = ((1 - share) * ends[0] + share * values.low, (1 - share) * ends[1] + share * values.high)
    if share <= limits.failed or _by_interval(low, high, threshold, values.direction) == "passed":
        return []
    notes = [Note(f"unknown-{why}", count=count) for why, count in causes.items()]
    facts = {"unknown": unknown, "expected": values.expected, "causes": notes, "low": low, "high": high}
    return [Note("not-scored", metric=metric, required=required, **facts)]


def _by_values(
    metric: str, values: Values, summary: MetricSummary | None, threshold: float, required: str, limits: Limits
) -> tuple[GateVerdict, list[Note]]:
    verdict = decide(values, threshold, limits.failed)
    causes = [Note(f"unknown-{why}", count=count) for why, count in values.unknown.items() if count]
    counts = {"unknown": values.n_unknown, "expected": values.expected, "causes": causes}
    if not values.count:
        code = "not-scored-at-all" if causes else "nothing-scored"
        return verdict, [Note(code, metric=metric, required=required, **counts)]
    if verdict == "undecided":
        low, high = sorted(values.ends())
        return verdict, [Note("not-scored", metric=metric, low=low, high=high, required=required, **counts)]
    if verdict == "failed":
        has_blanks = summary is None or summary.scored < values.count  # the interval is that of the others
        interval = "" if summary is None or has_blanks else summary.interval
        found = f"{values.total / values.count:.3f} {interval}".rstrip()
        return verdict, [Note("below-threshold", metric=metric, found=found, required=required)]
    return verdict, []


def _audited_ends(audit: MetricAudit, values: Values) -> Ends:
    """Return the interval of the strong judge's mean, with the worst value for blank answers, which no judge scores."""
    ends = (audit.mean or 0.0,) * 2 if audit.low is None or audit.high is None else (audit.low, audit.high)
    worst, share = values.low if values.direction == "higher" else values.high, values.blank / (values.count or 1)
    return (ends[0] + share * (worst - ends[0]), ends[1] + share * (worst - ends[1])) if share else ends


def _by_audit(
    metric: str, audit: MetricAudit, ends: Ends, threshold: float, required: str, limits: Limits
) -> tuple[GateVerdict, list[Note]]:
    """Return the verdict by the interval of the strong judge's mean, with its `ends`."""
    asked = audit.audited + audit.failed
    if audit.mean is None:
        return "undecided", [Note("nothing-audited", metric=metric, required=required)]
    if not audit.decides and "few-audited" not in limits.allow:
        facts = {"audited": audit.audited, "samples": audit.samples, "least": LEAST_AUDITED, "required": required}
        return "undecided", [Note("few-audited", metric=metric, **facts)]
    reasons = []
    if audit.failed > limits.failed * asked:
        reasons = [Note("audit-failed", metric=metric, failed=audit.failed, asked=asked, most=limits.failed)]
    verdict = _by_interval(*ends, threshold, audit.direction)
    has_blanks = ends not in ((audit.low, audit.high), (audit.mean, audit.mean))
    found = interval_text(*ends) if has_blanks else f"{audit.mean:.3f} {audit.interval}".rstrip()
    own = "–" if audit.own_mean is None else f"{audit.own_mean:.3f}"
    if verdict != "passed":
        code = "below-threshold-by-audit" if verdict == "failed" else "undecided-by-audit"
        facts = {"found": found, "audited": audit.audited, "own": own, "required": required}
        reasons.insert(0, Note(code, metric=metric, **facts))
    return "undecided" if reasons and verdict == "passed" else verdict, reasons


def _by_interval(low: float, high: float, threshold: float, direction: Direction) -> GateVerdict:
    worst, best = (low, high) if direction == "higher" else (high, low)
    if _reaches(worst, threshold, direction):
        return "passed"
    return "undecided" if _reaches(best, threshold, direction) else "failed"


def _reaches(value: float, threshold: float, direction: Direction) -> bool:
    return reaches(value, threshold, direction) or isclose(value, threshold, abs_tol=1e-9)


def _few_scored(metric: str, values: Values) -> Note | None:
    """Return a reason if fewer different samples have a value than a gate needs."""
    least, scored = min(LEAST_SCORED, ceil(values.expected / 2)), values.different
    if not 0 < scored < least:
        return None
    different = "different " if scored < values.count else ""
    return Note("few-scored", metric=metric, scored=scored, different=different, expected=values.expected, least=least)


def check_gates(gates: Sequence[Gate], threshold: float | None = None) -> None:
    """Raise BelowThreshold unless all gates passed; the message names every reason once.

    `threshold` does not affect the check; it becomes the attribute `threshold` of the error.
    """
    if reasons := dict.fromkeys(gate.reason for gate in gates if gate.verdict != "passed"):
        raise BelowThreshold("; ".join(reasons), threshold=threshold, gates=gates)


def decided_gates(
    decisions: Mapping[str, Decision], thresholds: Collection[str], requirement: str, allow: Collection[str]
) -> dict[str, Gate]:
    """Return, by metric name, the gates for the decisions about a baseline that a run with a stopping rule made.

    A run with a stopping rule (`until=`) makes decisions about thresholds and about a baseline. Only the decisions
    about the baseline give gates here: "better" and "no worse" pass, "worse" fails, "undecided" stays undecided.

    Args:
        decisions: decisions by key. If the metric has no threshold, the key is its name. If it has one, the name is the
            key of the decision about the threshold, and the name followed by `AGAINST_BASELINE` is the key of the
            decision about the baseline.
        thresholds: names of the metrics with a threshold.
        requirement: the requirement against the baseline as text, for the gates.
        allow: codes of reasons to ignore. If it contains "decision", every gate passes, even after "worse".
    """
    gates = {}
    for key, decision in decisions.items():
        metric = key.removesuffix(AGAINST_BASELINE)
        if metric == key and (key in thresholds or decision.verdict in ("passed", "failed", "precise")):
            continue
        verdict = _VERDICTS[decision.verdict]
        note = Note("decision", metric=metric, decision=decision, required=requirement)
        passed = verdict == "passed" or note.code in allow
        gates[metric] = Gate(metric, requirement, "passed") if passed else Gate.of(metric, requirement, verdict, [note])
    return gates


AGAINST_BASELINE = " against the baseline"
"""End of the key of a decision about the baseline, if the metric has a threshold, too."""

_VERDICTS: Mapping[str, GateVerdict] = {
    "better": "passed",
    "no worse": "passed",
    "worse": "failed",
    "undecided": "undecided",
}
