"""HostileJudgeTests: the standard test suite for a metric whose judge misbehaves.

If a metric passes: errors and invalid replies of a judge never become a number, every run ends, and no API key is
published.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Failure, Row, Sample, Score
from langchain_rageval.errors import message_of
from langchain_rageval.evaluation.api import aevaluate, evaluate
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import metrics_in, scores_by_name
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.models.offline_judge import OfflineJudge
from langchain_rageval.report.report import Report
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.threads import shared_threads
from langchain_rageval.testing.hostile_judges import (
    ALL_BEHAVIOURS,
    BEHAVIOURS,
    ENDINGS,
    HANG,
    HUGE_REPLIES,
    KEY,
    MOST_CALLS,
    SAMPLE,
    Allowed,
    CallLimitReached,
    HostileJudge,
    vary_sample,
)

AnyMetric = Metric | Suite | Runnable[Any, Any]
AnySample = dict[str, Any] | Sample
BuildMetric = Callable[[BaseChatModel], AnyMetric]

_MOST_SECONDS = 300.0  # of a run and of its calls, on a machine however busy
_HANG_SECONDS = 60.0  # of a run with a judge that hangs
_TIMEOUT = 0.05  # of a call to that judge
_MARKER = "case 0"  # in each text of the first variant of a sample
_OTHER = "another_metric"
_CRASHES = (AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError, ZeroDivisionError)
_NAMES_OF_CRASHES = {error.__name__ for error in (*_CRASHES, IndexError, KeyError, UnboundLocalError)}
_CHECK_THE_REPLY = "read replies with a Step or StrictJsonOutputParser, and let their errors pass"
_ENTRY_POINTS = ("invoke", "ainvoke", "evaluate", "aevaluate")
_RUNS = ("evaluate", "aevaluate")


class HostileJudgeTests:
    """Tests for a metric whose judge misbehaves; subclass it in a test module and define `build_metric`.

        class TestPolitenessWithHostileJudges(HostileJudgeTests):
            def build_metric(self, judge):
                return aspect_critique(judge, "politeness", definition="The answer is polite.")

    The judges raise errors of all kinds, hang, repeat their API key, repeat themselves, and reply with prose, refusals,
    megabytes, control characters and JSON of the wrong shape. A run must end within a bounded number of calls; an error
    or an invalid reply must be a failure with a message, not a number and not an unscored sample; other samples and
    metrics must not be affected; the API key must not appear in scores, files, logs or errors.

    Most hostile replies are made from a valid reply. OfflineJudge gives a valid reply to every `Step` (a question to
    the judge, with the class of the answer). If the metric calls the judge through a chain of the user, as with
    `Step.from_chain(prompt | judge | parser, key=...)`, the subclass must also define `judge`, for example as
    `ScriptedJudge(reply, repeat=True)`. To skip a test, override it.

    Attributes:
        judge: judge whose replies are valid; by default OfflineJudge.
        sample: the sample that the metric scores; by default one with every field.
    """

    def build_metric(self, judge: BaseChatModel) -> AnyMetric:
        """Return the metric under test, which calls `judge`; define this method or a fixture `build_metric`."""
        raise NotImplementedError(f"{type(self).__name__} must define `build_metric(self, judge)`")

    @property
    def judge(self) -> JudgeLike:
        """The judge whose replies are valid."""
        return OfflineJudge()

    @property
    def sample(self) -> AnySample:
        """The sample that the metric scores."""
        return SAMPLE

    # pytest collects fixtures in alphabetical order: with the underscore, a subclass's own fixtures override these.

    @pytest.fixture(name="build_metric")
    def _default_build_metric(self) -> BuildMetric:
        return self.build_metric

    @pytest.fixture(name="judge")
    def _default_judge(self) -> JudgeLike:
        return self.judge

    @pytest.fixture(name="sample")
    def _default_sample(self) -> AnySample:
        return self.sample

    @pytest.fixture
    def battery(self, build_metric: BuildMetric, judge: JudgeLike, sample: AnySample) -> _Runs:
        """Return the values that all tests share: the metric's builder, the valid judge and the sample."""
        return _Runs(build_metric, judge, Sample.parse(sample))

    def test_a_valid_judge_gives_a_score(self, battery: _Runs) -> None:
        """Check that the metric calls the judge and does not fail; otherwise the other tests would show nothing."""
        outcome, judge = battery.run("evaluate", "")
        assert outcome.error is None, f"the metric ended the run with {_describe(outcome.error)}"
        for score in outcome.scores:
            assert score.failure is None, (
                f"{score.metric} fails with the judge whose replies are valid ({score.comment}): define `judge`, a "
                "judge that answers this metric, such as ScriptedJudge(..., repeat=True)"
            )
        assert judge.titles, (
            "the metric did not call the judge that `build_metric` received: pass it to the steps, or define `sample`, "
            "a sample that needs a judge"
        )

    @pytest.mark.parametrize("behaviour", BEHAVIOURS)
    def test_no_error_and_no_invalid_reply_becomes_a_number(self, battery: _Runs, behaviour: str) -> None:
        """Check that a hostile judge leads to a failure with a reason or to the valid score, after bounded calls.

        First, every reply is hostile, and the metric is called in each way, such as `invoke` and `evaluate`. Then only
        the replies to one of the later requests are hostile.
        """
        for entry_point in _ENTRY_POINTS:
            _assert_none(f"by {entry_point}, {problem}" for problem in battery.problems(entry_point, behaviour))
        for title in battery.titles[1:]:
            problems = battery.problems("evaluate", behaviour, title=title)
            _assert_none(f"after a hostile reply to the request for {title}, {problem}" for problem in problems)

    @pytest.mark.parametrize("behaviour", HUGE_REPLIES)
    def test_a_huge_reply_leaves_a_small_score(self, battery: _Runs, behaviour: str) -> None:
        """Check that a reply of one megabyte leads to a failure, and that the report does not contain the reply."""
        outcome, judge = battery.run("evaluate", behaviour)
        _assert_none(battery.problems_of(outcome, judge))
        for score in outcome.scores:
            size = len(score.model_dump_json())
            assert size <= 100_000, f"{score.metric} has {size:,} characters: cut the texts that a score quotes"

    @pytest.mark.parametrize("entry_point", _RUNS)
    @pytest.mark.parametrize("behaviour", ["500 to every call", "prose", "missing item"])
    def test_other_samples_and_metrics_are_not_affected(self, battery: _Runs, behaviour: str, entry_point: str) -> None:
        """Check that one bad sample does not change the scores of others, nor those of another metric."""
        expected, _ = battery.run_many(entry_point, "")
        outcome, judge = battery.run_many(entry_point, behaviour)
        assert outcome.error is None, (
            f"a hostile reply for one sample ended the run with {_describe(outcome.error)}: raise an Exception, which "
            "the run records as a failure of that sample"
        )
        assert judge.hostile_replies, f"no request contains {_MARKER!r}, which is in every text of the first sample"
        for row, valid in zip(outcome.rows, expected.rows, strict=True):
            for name, score in row.scores.items():
                affected = name != _OTHER and row.index == 0
                assert affected or _content(score) == _content(valid.scores[name]), (
                    f"after a hostile reply for sample 0, sample {row.index} has {score}; without it, "
                    f"{valid.scores[name]}: keep no state between samples"
                )

    @pytest.mark.parametrize("entry_point", _ENTRY_POINTS)
    @pytest.mark.parametrize("error", ENDINGS)
    def test_an_error_that_is_no_exception_gives_no_score(self, battery: _Runs, error: str, entry_point: str) -> None:
        """Check that a run ends if a judge raises an error not derived from Exception, and that Ctrl-C ends a run."""
        outcome, _ = battery.run(entry_point, error)
        for score in outcome.scores:
            assert score.failure or battery.is_independent(score), (
                f"{score.metric} {_outcome_in_words(score)}, although the judge raised {error}: catch Exceptions only, "
                "and do not use `except:` without a class"
            )
        if error == KeyboardInterrupt.__name__:
            ended = isinstance(outcome.error, KeyboardInterrupt) or (
                outcome.report is not None and not outcome.report.complete
            )
            assert ended, (
                "the metric caught KeyboardInterrupt, so that Ctrl-C does not end a run: catch Exceptions only"
            )

    @pytest.mark.parametrize("entry_point", _RUNS)
    def test_a_judge_that_hangs_is_abandoned(self, battery: _Runs, entry_point: str) -> None:
        """Check that the timeout of a run ends a call that is never answered."""
        _assert_none(battery.problems(entry_point, HANG, timeout=_TIMEOUT))

    @pytest.mark.parametrize("entry_point", _ENTRY_POINTS)
    @pytest.mark.parametrize("behaviour", [name for name in BEHAVIOURS if "API key" in name])
    def test_the_api_key_appears_nowhere(
        self,
        battery: _Runs,
        behaviour: str,
        entry_point: str,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        """Check that no score, report, file, log, output, name or error contains the key that the judge repeats.

        One exception: the client's own error may contain the key, because `invoke` raises that error unchanged.
        """
        caplog.set_level(logging.DEBUG)
        files = {"journal": tmp_path / "run.db", "out": tmp_path / "report.jsonl"} if entry_point in _RUNS else {}
        outcome, judge = battery.run(entry_point, behaviour, files=files)
        texts = {
            "a score": " ".join(score.model_dump_json() + repr(score) for score in outcome.scores),
            "the report": repr(outcome.report) + outcome.report._repr_html_() if outcome.report else "",
            "an error of the metric": "" if judge.raised(outcome.error) else _describe(outcome.error),
            "repr(metric)": repr(battery.build_metric(judge)),
            "the log": caplog.text,
            "the output": "".join(capfd.readouterr()),
            **{path.name: path.read_bytes().decode("utf-8", "replace") for path in tmp_path.iterdir()},
        }
        for where, text in texts.items():
            assert KEY not in text, (
                f"{where} contains the API key, which the judge repeated: do not copy the text of an error or of an "
                "invalid reply; raise the error, and the run records it without keys"
            )


@dataclass(frozen=True)
class _Outcome:
    """Result of a run: its scores and its report, or the error that ended it."""

    scores: list[Score]
    report: Report | None = None
    error: BaseException | None = None

    @property
    def rows(self) -> list[Row]:
        """Rows of the report; none without a report."""
        return list(self.report.rows) if self.report else []


@dataclass(frozen=True)
class _Runs:
    """Runs of one metric with hostile judges.

    Attributes:
        build_metric: function that builds the metric from a judge.
        judge: judge whose replies are valid.
        sample: the sample to score.
    """

    build_metric: BuildMetric
    judge: JudgeLike
    sample: Sample

    @cached_property
    def titles(self) -> list[str | None]:
        """Titles of the answer schemas that the metric requests for the sample, in order."""
        return list(dict.fromkeys(self.run("evaluate", "")[1].titles))

    def run(
        self,
        entry_point: str,
        behaviour: str,
        *,
        title: str | None = None,
        timeout: float = _MOST_SECONDS,
        files: Mapping[str, Path] | None = None,
    ) -> tuple[_Outcome, HostileJudge]:
        """Score the sample by one of the entry points; return the outcome and the judge."""
        judge = self._hostile_judge(behaviour, title=title)
        metric = self.build_metric(judge)
        return _run(entry_point, metric, [self.sample], judge, timeout=timeout, **(files or {})), judge

    def run_many(self, entry_point: str, behaviour: str) -> tuple[_Outcome, HostileJudge]:
        """Score three samples, the first with hostile replies, by the metric and another one."""
        judge = self._hostile_judge(behaviour, marker=_MARKER)
        samples = list(islice(vary_sample(self.sample.model_dump(exclude={"id"}, exclude_none=True)), 3))
        other: Runnable[Any, Score] = RunnableLambda(
            lambda _: Score(metric=_OTHER, aspect="answer", value=1.0), name=_OTHER
        )
        metrics = [self.build_metric(judge), other]
        return _run(entry_point, metrics, samples, judge, timeout=_MOST_SECONDS), judge

    def problems(self, entry_point: str, behaviour: str, **options: Any) -> Iterator[str]:
        """Yield what is wrong with the outcome of a run with a hostile judge."""
        yield from self.problems_of(*self.run(entry_point, behaviour, **options))

    def problems_of(self, outcome: _Outcome, judge: HostileJudge) -> Iterator[str]:
        """Yield what is wrong with an outcome, given the judge."""
        if isinstance(outcome.error, CallLimitReached):
            yield (
                f"the metric called the judge more than {MOST_CALLS} times for one sample: limit the attempts, drop "
                "repeated items, and bound their number by the length of the text"
            )
        elif outcome.error is not None:
            yield from _problems_of_error(outcome.error, judge)
        elif not outcome.scores:
            yield "the metric returned no score: return a Score, or raise an Exception that says why there is none"
        allowed, failed = ALL_BEHAVIOURS[judge.behaviour].allowed, any(score.failure for score in outcome.scores)
        for score in outcome.scores:
            if score.failure is not None:
                yield from _problems_of_failure(score.metric, score.failure, judge)
            elif judge.hostile_replies and not (failed and self.is_independent(score)):
                yield from self._problems_of_value(score, allowed)

    def is_independent(self, score: Score) -> bool:
        """Return True if a score of a suite equals that with valid replies: its metric may not use the hostile ones."""
        valid = [*map(_content, self._valid_scores)]
        return len(valid) > 1 and _content(score) in valid

    def _hostile_judge(self, behaviour: str, *, title: str | None = None, marker: str = "") -> HostileJudge:
        return HostileJudge(judge=Judge.of(self.judge).model, behaviour=behaviour, title=title, marker=marker)

    def _problems_of_value(self, score: Score, allowed: Allowed) -> Iterator[str]:
        """Yield what is wrong with a score that has a value or is unscored."""
        if allowed == "failure":
            yield (
                f"{score.metric} {_outcome_in_words(score)}, although the judge gave no usable reply: that is a "
                f"failure; {_CHECK_THE_REPLY}"
            )
        elif allowed == "valid reply" and _content(score) not in map(_content, self._valid_scores):
            yield (
                f"{score.metric} {_outcome_in_words(score)} after an invalid reply, but another value or none after a "
                f"valid one: content was guessed; {_CHECK_THE_REPLY}"
            )
        parts = metrics_in(self.build_metric(self._hostile_judge("")))
        low, high = next((part.range for part in parts if part.name == score.metric), (-math.inf, math.inf))
        if score.value is not None and not low <= score.value <= high:
            yield f"{score.metric} {_outcome_in_words(score)}, outside of its range from {low:g} to {high:g}"

    @cached_property
    def _valid_scores(self) -> list[Score]:
        return self.run("evaluate", "")[0].scores


def _run(entry_point: str, metric: Any, samples: list[Any], judge: HostileJudge, **options: Any) -> _Outcome:
    """Score samples in another thread, so that neither a hanging run nor a SystemExit ends the test session."""
    retry = RetryPolicy(attempts=2, initial=0.0, max_wait=0.0)
    calls: dict[str, Callable[[], Any]] = {
        "invoke": lambda: metric.invoke(samples[0]),
        "ainvoke": lambda: asyncio.run(metric.ainvoke(samples[0])),
        "evaluate": lambda: evaluate(samples, metric, progress=False, retry=retry, **options),
        "aevaluate": lambda: asyncio.run(aevaluate(samples, metric, progress=False, retry=retry, **options)),
    }
    future = shared_threads().submit(calls[entry_point])
    seconds = _HANG_SECONDS if judge.behaviour == HANG else _MOST_SECONDS
    try:
        ended = wait([future], seconds).done
    finally:
        judge.release()
    assert ended, (
        f"{entry_point} did not end within {seconds:g} s: limit the attempts, and call the judge in a Step, or in "
        "Step.from_chain, to which the timeout of the run applies"
    )
    if (error := future.exception()) is not None:
        return _Outcome([], error=error)
    result = future.result()
    if not isinstance(result, Report):
        return _Outcome(list(scores_by_name(result).values()))
    return _Outcome([score for row in result.rows for score in row.scores.values()], result)


def _problems_of_error(error: BaseException, judge: HostileJudge) -> Iterator[str]:
    """Yield what is wrong with an error that a metric raised."""
    if judge.raised(error):
        return
    if not isinstance(error, Exception) or isinstance(error, _CRASHES):
        yield f"the metric raised {_describe(error)}, which does not say what the judge did wrong: {_CHECK_THE_REPLY}"
    elif message_of(error) == type(error).__name__:
        yield f"the metric raised {type(error).__name__} without a message: say what the judge did wrong"


def _problems_of_failure(metric: str, failure: Failure, judge: HostileJudge) -> Iterator[str]:
    """Yield what is wrong with a failure that a run recorded."""
    shown = f"{failure.error}: {failure.message[:200]}"
    if failure.error in _NAMES_OF_CRASHES and failure.error not in judge.names_of_errors:
        yield f"{metric} failed with {shown}, which does not say what the judge did wrong: {_CHECK_THE_REPLY}"
    if not failure.message.strip():
        yield f"{metric} failed with {failure.error} without a message: say what the judge did wrong"


def _content(score: Score) -> dict[str, Any]:
    """Return what must not depend on the behaviour of a judge that gives a valid reply."""
    failure = score.failure and score.failure.error
    return {"metric": score.metric, "value": score.value, "unscored": score.unscored, "failure": failure}


def _outcome_in_words(score: Score) -> str:
    return f"is unscored ({score.unscored})" if score.value is None else f"has the value {score.value:g}"


def _describe(error: BaseException | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {message_of(error)}"


def _assert_none(problems: Iterator[str]) -> None:
    __tracebackhide__ = True
    found = list(dict.fromkeys(problems))
    if found:
        raise AssertionError("\n".join(found))
