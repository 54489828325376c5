"""Checks of the judges of a run: audits by a strong judge, and canaries, statements with known verdicts."""

import json
import random
from statistics import fmean

import pytest
from helpers.doors import report_by
from helpers.each import each, error_of
from helpers.offline import offline, own_metric
from helpers.reports import failed, row, scored
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from langchain_rageval import (
    Audit,
    BelowThreshold,
    Budget,
    ConfigError,
    Decided,
    Judge,
    OfflineJudge,
    Prompt,
    Report,
    Row,
    Sample,
    Score,
    Step,
    Value,
    aevaluate,
    answer_relevance,
    claim_metrics,
    context_precision,
    evaluate,
    exact_match,
    faithfulness,
    jury,
    rubric,
)
from langchain_rageval.cli.main import run
from langchain_rageval.data.notes import code_of
from langchain_rageval.evaluation.canaries import items_in
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.report.audit import summarise_audit
from langchain_rageval.testing import ScriptedJudge

# Audits: a strong judge scores a random part, and the report estimates its mean over all samples


class Grade(BaseModel):
    """Grade of an answer."""

    grade: int


GRADE = Step(Grade, prompts=Prompt(instruction="Grade the answer."), reads=("answer",))


def grades(judge, name="grade", **options):
    options = {"steps": GRADE(judge), "version": "1", **options}
    return own_metric(lambda state: Value(state["grade"].grade / 10), name, **options)


def judge_of(function, version):
    """Return a judge that grades the number in an answer, and the list of the numbers that it has graded."""
    graded = []

    def reply(messages):
        number = int(messages[-1].text.rpartition("answer number ")[2].partition('"')[0])
        graded.append(number)
        usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
        return AIMessage(f'{{"grade": {function(number)}}}', usage_metadata=usage)

    return Judge(RunnableLambda(reply), version=version), graded


TRUTH = [random.Random(number).choice([10, 10, 10, 5, 0]) for number in range(200)]
MEAN = fmean(TRUTH) / 10


def samples(count=200):
    return [Sample(id=f"s{n}", question=f"Вопрос {n}?", answer=f"answer number {n}") for n in range(count)]


def lenient(number):
    return 10 if number % 3 == 0 else TRUTH[number]


def audited(share=0.25, count=200, cheap=lenient, **options):
    own, own_graded = judge_of(cheap, "cheap")
    strong, strong_graded = judge_of(lambda number: TRUTH[number], "strong")
    audit = Audit(strong, share=share)
    report = evaluate(samples(count), grades(own), audit=audit, progress=False, **options)
    return report, own_graded, strong_graded


@pytest.fixture(scope="module")
def report():
    """A quarter of 200 samples is audited."""
    return audited()[0]


def test_a_strong_judge_scores_its_share_of_the_samples_and_the_cheap_one_scores_all():
    report, own, strong = audited()
    assert report.summary()["grade"].calls == 200  # without those of the strong judge
    assert sorted(own) == list(range(200))
    assert len(strong) == len(set(strong)) == 50
    assert {row.index for row in report.rows if row.audit} == set(strong)
    assert all(row.audit["grade"].value == TRUTH[row.index] / 10 for row in report.rows if row.audit)
    assert all(row.scores["grade"].value == lenient(row.index) / 10 for row in report.rows)


def test_the_report_estimates_the_strong_judges_mean_although_the_cheap_one_is_biased():
    report, _, _ = audited(cheap=lambda number: 10 if number % 3 else TRUTH[number])
    audit = report.audit["grade"]
    assert report.summary()["grade"].mean == pytest.approx(audit.own_mean)
    assert audit.low <= MEAN <= audit.high
    assert audit.low < audit.mean < audit.high < audit.own_mean
    pairs = [(row.scores["grade"].value, row.audit["grade"].value) for row in report.rows if row.audit]
    assert audit.agreement == fmean(own == strong for own, strong in pairs) < 1
    assert (audit.audited, audit.samples, audit.failed) == (50, 200, 0)


def with_metadata(row, metadata):
    return row.model_copy(update={"sample": row.sample.model_copy(update={"metadata": metadata})})


def test_turns_of_one_conversation_count_as_one_unit_of_the_interval(report):
    turns = [with_metadata(row, {"conversation": f"c{row.index % 20}"}) for row in report.rows]
    alone, together = report.audit["grade"], Report(turns).audit["grade"]
    assert together.agreement == alone.agreement
    assert together.mean == pytest.approx(alone.mean, abs=0.02)  # the weights are computed from other conversations
    units = {row.index % 20 for row in report.rows if row.audit}
    assert (together.units, together.unit) == (len(units), "conversation")
    assert f"50 of 200 samples audited in {together.units} conversations" in str(together)
    assert (together.low, together.high) != (alone.low, alone.high)
    same = [with_metadata(row, {}) for row in report.rows]
    assert Report(same).audit["grade"] == alone


def test_the_audit_shows_where_the_judges_part_and_what_was_saved(caplog):
    report, _, _ = audited(share=0.5)
    audit = report.audit["grade"]
    worst = audit.parted[0]
    assert (worst.value, worst.strong, worst.difference) == (1.0, 0.0, -1.0)
    assert worst.id == f"s{worst.index}"
    differences = [abs(one.difference) for one in audit.parted]
    assert differences == sorted(differences, reverse=True)
    assert (audit.usage.calls, audit.usage.input_tokens) == (100, 9000)
    assert (audit.saved.calls, audit.saved.input_tokens, audit.saved.output_tokens) == (100, 9000, 1000)
    assert audit.spared is audit.saved  # its name in 0.1
    assert "MetricAudit.spared is now saved" in caplog.text


def test_the_text_and_the_page_of_the_report_show_the_audit(report, tmp_path):
    audit = report.audit["grade"]
    line = (
        f"grade {audit.mean:.3f} [{audit.low:.3f}, {audit.high:.3f}] by the strong judge, {audit.own_mean:.3f} by its "
        f"own (50 of 200 samples audited; {audit.agreement:.0%} agree; 150 calls saved)"
    )
    assert line in repr(report).splitlines()
    assert "<td>50 of 200</td>" in report._repr_html_()
    report.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for part in ("Проверка сильным судьёй", "Где судьи расходятся", f"[{audit.low:.3f}, {audit.high:.3f}]"):
        assert part in page


def test_a_judge_that_agrees_with_itself_agrees_always_and_a_share_of_one_gives_the_strong_judges_own_mean():
    audit = audited(cheap=lambda number: TRUTH[number])[0].audit["grade"]
    assert (audit.agreement, audit.parted) == (1.0, [])
    assert audit.low < audit.mean < audit.high
    assert abs(audit.mean - audit.own_mean) < 0.05
    audit = audited(share=1)[0].audit["grade"]
    assert (audit.mean, audit.audited, audit.saved.calls) == (pytest.approx(MEAN), 200, 0)


def report_of(values):
    """Report of rows with a cheap and a strong value each: None is a failure, "-" no score at all."""

    def score(value):
        return failed("grade") if value is None else scored(value, "grade")

    return Report(
        [
            row(place, score(cheap), id=f"s{place}").model_copy(
                update={"audit": {} if strong == "-" else {"grade": score(strong)}}
            )
            for place, (cheap, strong) in enumerate(values)
        ]
    )


def audit_of(values):
    return report_of(values).audit["grade"]


def test_fewer_audited_samples_decide_nothing():
    audit = audit_of([*[(1.0, 1.0)] * 19, *[(1.0, "-")] * 181])
    assert (audit.audited, audit.decides, audit.to_dict()["decides"]) == (19, False, False)
    assert str(audit).endswith("decides nothing: 20 samples are needed, or all)")


def test_samples_that_the_cheap_judge_failed_on_take_part_with_its_mean():
    """The cheap judge is right, or fails on bad samples: without these the estimate would be 1."""
    drawn = [(1.0, 1.0)] * 16 + [(None, 0.0)] * 4
    audit = audit_of([*drawn, *[(1.0, "-")] * 160, *[(None, "-")] * 40])
    assert (audit.audited, audit.samples, audit.own_mean) == (20, 220, 1.0)
    assert audit.mean == pytest.approx(0.8)
    assert audit.low < 0.8 < audit.high < 1


def test_the_interval_covers_what_the_strong_judge_failed_on():
    drawn = [(1.0, 1.0)] * 20
    rest = [(1.0, "-")] * 80
    sure, unsure = (audit_of([*drawn, *more, *rest]) for more in ([], [(1.0, None)] * 5))
    assert (unsure.mean, unsure.failed, unsure.audited) == (1.0, 5, 20)
    assert unsure.high == 1.0
    assert unsure.low < 0.8 - 0.1 < sure.low - 0.1


async def test_aevaluate_audits_iterators_too_and_a_file_of_rows_keeps_the_audit(tmp_path):
    strong, graded = judge_of(lambda number: TRUTH[number], "strong")
    own, options = judge_of(lenient, "cheap")[0], {"audit": Audit(strong, share=0.5), "progress": False}
    report = await aevaluate(iter(samples(40)), grades(own), **options)
    assert report.audit["grade"].audited == len(graded) == 20
    report, _, _ = audited(out=tmp_path / "out.jsonl")
    assert Report.load(tmp_path / "out.jsonl").audit["grade"] == report.audit["grade"]
    assert '"audit":{}' not in (tmp_path / "out.jsonl").read_text()


def test_a_journal_keeps_the_scores_of_both_judges(tmp_path):
    first, _, _ = audited(journal=tmp_path / "run.db")
    again, own, strong = audited(journal=tmp_path / "run.db")
    assert (own, strong) == ([], [])
    assert again.audit["grade"] == first.audit["grade"]


def test_a_strong_judge_that_fails_is_counted_and_stops_no_gate_unseen():
    own, _ = judge_of(lenient, "cheap")
    mute = Judge(RunnableLambda(lambda messages: "I cannot say."), version="mute", attempts=1)
    report = evaluate(samples(20), grades(own), audit=Audit(mute, share=0.2), progress=False)
    audit = report.audit["grade"]
    assert (audit.mean, audit.low, audit.agreement, audit.audited, audit.failed) == (None, None, None, 0, 20)
    assert str(audit) == "grade: no sample has a score of the strong judge (20 failed)"
    assert error_of(BelowThreshold, report.check, {"grade": 0.5}).codes == ["nothing-audited", "incomplete"]


def test_a_gate_fails_if_the_strong_judge_failed_on_too_many_samples():
    report = report_of([(1.0, None if number % 4 == 3 else 1.0) for number in range(200)])
    error = error_of(BelowThreshold, report.check, {"grade": 0.6}, max_failed=0.2)
    assert str(error) == "the audit of grade failed on 50 of 200 samples, at most 20% may [audit-failed]"


def test_metrics_without_a_judge_are_named_and_not_audited():
    items = [{"question": "q", "answer": "a b.", "contexts": ["a b."], "references": ["a b."]}] * 3
    report = evaluate(items, [exact_match(), faithfulness(OfflineJudge())], audit=Audit(OfflineJudge()), progress=False)
    assert list(report.audit) == ["faithfulness"]
    assert "Not audited, because no other judge can be put in: exact_match." in report.notes
    error = error_of(ConfigError, evaluate, items, exact_match(), audit=Audit(OfflineJudge()), progress=False)
    assert str(error) == "nothing to audit: exact_match use no judge that can be replaced; leave out audit="


class Entails(BaseCrossEncoder):
    """Cross-encoder that finds everything supported."""

    version = "1"

    def score(self, text_pairs):
        return [1.0] * len(text_pairs)


def test_every_judge_of_every_metric_is_replaced_also_juries_and_verifiers():
    items = [
        {"question": f"Who is {n}?", "answer": f"{n} is a lamp.", "contexts": ["A cat."], "references": [f"{n}."]}
        for n in range(4)
    ]
    cheap = Judge(OfflineJudge(), language="en")
    metrics = [faithfulness(cheap, verifier=Entails()), rubric(jury([cheap] * 3)), context_precision(cheap)]
    metrics += [answer_relevance(cheap, HashingEmbeddings()), claim_metrics(cheap)]
    strong = Judge(OfflineJudge(), language="en", max_statements=7)
    report = evaluate(items, metrics, audit=Audit(strong, share=0.5), progress=False)
    assert set(report.audit) == set(report.summary())
    assert not [score for row in report.rows for score in row.audit.values() if score.failure]
    assert report.audit["faithfulness"].own_mean == 1
    assert report.audit["faithfulness"].mean < 0.5
    stored = [part for part in report.provenance.parts.values() if '"max_statements": 7' in str(part).replace("'", '"')]
    assert stored


def test_a_budget_leaves_out_scores_of_the_audit_and_says_so():
    report, own, strong = audited(count=40, budget=Budget(calls=45), max_concurrency=1)
    left_out = 60 - len(own) - len(strong)
    assert left_out > 0
    assert len(report.left_out) == 40 - len(own)
    missing = 20 - len(strong)
    note = f"Scores left out of the audit: {missing}; the budget or the judge ended first."
    assert not missing or note in report.notes


def test_a_run_that_stops_early_decides_the_strong_judges_mean():
    own, own_graded = judge_of(lambda number: 10, "cheap")
    strong, strong_graded = judge_of(lambda number: 10 if number % 10 < 3 else 0, "strong")
    rule = {"audit": Audit(strong, share=0.5), "until": Decided({"grade": 0.8})}
    report = evaluate(samples(2000), grades(own), progress=False, max_concurrency=4, **rule)
    decision = report.decisions["grade"]
    assert decision.verdict == "failed"
    assert decision.required == "at least 0.8 is required of the strong judge's mean"
    assert 0 <= decision.low <= 0.3 <= decision.high < 0.8
    assert len(own_graded) < 500
    assert len(strong_graded) == report.audit["grade"].audited < len(own_graded)


def failing_judge(fails_on):
    """Return a judge that knows the truth and fails on some numbers."""

    def grade(number):
        if fails_on(number):
            raise RuntimeError("сервер лежит")
        return TRUTH[number]

    return judge_of(grade, "strong")[0]


def decided_by(strong, cheap, threshold, **options):
    own, _ = judge_of(cheap, "cheap")
    rule = {"audit": Audit(strong, share=0.5), "until": Decided({"grade": threshold})}
    return evaluate(samples(), grades(own), progress=False, max_concurrency=1, **rule, **options)


def test_a_strong_judge_that_never_answers_decides_no_gate():
    """The breaker ends its calls after twenty failures; the samples that it then misses are unknown, too."""
    report = decided_by(failing_judge(lambda number: True), lambda number: 10, 0.5)
    decision = report.decisions["grade"]
    assert (decision.verdict, decision.low, decision.high) == ("undecided", 0, 1)
    drawn = len([row for row in report.rows if row.audit]) + int(
        next(note for note in report.notes if "left out of the audit" in note).partition(": ")[2].partition(";")[0]
    )
    assert (
        f"The strong judge gave grade no score on {drawn} samples of its audit: the interval allows for every value "
        "that it could have given."
    ) in report.notes


def test_samples_on_which_the_strong_judge_fails_do_not_raise_the_mean_that_is_decided():
    """It fails on the poor answers, so that all scores that it gives are 1, and their mean is above the threshold."""
    strong = failing_judge(lambda number: TRUTH[number] < 10)
    report = decided_by(strong, lambda number: 10, 0.9)
    assert report.audit["grade"].mean == pytest.approx(1)
    decision = report.decisions["grade"]
    assert decision.verdict == "undecided"
    assert decision.low < MEAN < 0.9 < decision.high


@each(
    ("options", "message"),
    [
        ({"share": 0}, "share must be a number above 0 and at most 1, such as 0.1, got 0"),
        ({"share": 1.01}, "share must be a number above 0 and at most 1, such as 0.1, got 1.01"),
        ({"seed": 0.5}, "seed must be a whole number, got 0.5"),
        (
            {"judge": "openai:m"},
            "the judge of an audit is a judge or a model, got str; load_judge('openai:m') loads one by its name",
        ),
    ],
)
def test_an_audit_takes_a_judge_a_share_and_a_seed(options, message):
    assert str(error_of(ConfigError, Audit, **{"judge": OfflineJudge(), **options})) == message


def test_scores_below_0_have_a_mean_of_the_audit_and_no_interval():
    def audited(own, strong):
        scores = [{"m": Score(metric="m", aspect="answer", value=value)} for value in (own, strong)]
        samples = [Sample(id=str(number), question="Q?") for number in range(12)]
        rows = [Row(index=n, sample=one, scores=scores[0], audit=scores[1]) for n, one in enumerate(samples)]
        return summarise_audit(rows)["m"]

    below = audited(-0.5, -0.25)
    assert (below.mean, below.low, below.high) == (pytest.approx(-0.25), None, None)
    within = audited(0.5, 0.25)
    assert within.low < within.mean < within.high
    assert within.decides  # by all samples, though they are under twenty


@each(
    ("share", "size", "expected"),
    [(0.1, 1000, 0.1), (0.1, 200, 0.1), (0.1, 199, 20 / 199), (0.1, 21, 20 / 21), (0.1, 20, 1.0), (0.1, 1, 1.0),
     (0.1, 0, 1.0), (0.5, 30, 20 / 30), (0.5, 1000, 0.5), (1, 1000, 1.0)],
)  # fmt: skip
def test_a_draw_has_the_share_of_the_samples_and_a_larger_one_contains_it(share, size, expected):
    audit, given = Audit(OfflineJudge(), share=share, seed=3), samples(size)
    assert audit.share_of(size) == pytest.approx(expected, abs=1e-12)
    assert len(audit.draw(given)) == round(expected * size)
    assert audit.draw(given) == audit.draw(given[::-1])
    assert share == 1.0 or size <= 20 or audit.draw(given) != Audit(OfflineJudge(), share=share, seed=4).draw(given)
    larger = Audit(OfflineJudge(), share=min(1.0, 1.5 * share), seed=3)
    assert audit.draw(given) <= larger.draw(given)
    loose = audit.draw(given, exact=False)
    assert loose <= larger.draw(given, exact=False)
    assert loose <= audit.draw(given) or audit.draw(given) <= loose


def test_samples_that_are_drawn_one_by_one_do_not_depend_on_each_other():
    audit, given = Audit(OfflineJudge(), share=0.3, seed=1), samples(3000)
    drawn = audit.draw(given, exact=False)
    assert 800 < len(drawn) < 1000  # four standard deviations of a binomial number are 100
    assert audit.draw(given[:1000], exact=False) == drawn & {sample.id for sample in given[:1000]}
    assert Audit(OfflineJudge(), share=1).draw(given, exact=False) == {sample.id for sample in given}


# Canaries, asked of the judges of a run with a gate


OFFLINE = OfflineJudge()
SAMPLES = [
    {"question": f"Когда платят взнос {n}?", "answer": "Взнос платят в марте.", "contexts": ["Взнос платят в марте."]}
    for n in range(12)
]


class Spy:
    """A judge that answers as the offline one, and calls every n-th statement supported or not at will."""

    def __init__(self, change=lambda text: text):
        self.asked = []
        self._change = change

    def judge(self):
        def answer(messages):
            self.asked.append(messages)
            return AIMessage(self._change(OFFLINE.invoke(messages).text))

        return Judge(RunnableLambda(answer), version="spy")


def supporting(text):
    return text.replace('"absent"', '"supported"').replace('"contradicted"', '"supported"')


@each("language", ["en", "ru", "de"])
def test_half_of_the_first_and_of_all_items_are_true_and_no_two_are_equal(language):
    items = items_in(language)
    assert [truth for _, truth in items] == [True, False] * 12
    assert len({sample.answer for sample, _ in items}) == 24
    assert (items == items_in("en")) == (language != "ru")


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_good_judge_is_asked_eight_and_the_report_says_so(door, tmp_path):
    spy = Spy()
    report = await report_by(door, SAMPLES, faithfulness(spy.judge()), canaries=True)
    found = report.canaries
    assert (found.asked, found.right, found.failed) == (8, 8, [])
    assert len(spy.asked) == report.usage.calls == report.summary()["faithfulness"].calls + 8
    assert "canaries-right" in map(code_of, report.notes)
    report.to_jsonl(tmp_path / "r.jsonl")
    assert Report.load(tmp_path / "r.jsonl").canaries == found
    report.check({"faithfulness": 0.8})


def test_a_judge_that_supports_everything_fails_every_gate():
    report = evaluate(SAMPLES, faithfulness(Spy(supporting).judge()), canaries=True, progress=False)
    assert (report.canaries.asked, report.canaries.right) == (8, 4)
    assert len(report.canaries.failed) == 1
    with pytest.raises(BelowThreshold, match=r"erred too often .* 4 of 8 were right\. \[canaries-failed\]") as caught:
        report.check({"faithfulness": 0.8})
    assert "canaries-failed" in caught.value.codes
    report.check({"faithfulness": 0.8}, allow={"canaries-failed", "no-citations"})


def erring_on(wrong):
    """Return a change of replies that turns the verdicts of some of the canaries, by their number."""
    texts = [sample.answer for sample, _ in items_in("ru")]

    def answer(messages):
        reply = OFFLINE.invoke(messages).text
        human = messages[-1].text
        named = (n for n, text in enumerate(texts) if f'"statement":1,"text":"{text}"' in human)
        number = next(named, None)
        if number is None or number not in wrong or "verdicts" not in reply:
            return AIMessage(reply)
        verdicts = json.loads(reply)
        for verdict in verdicts["verdicts"]:
            is_supported = verdict["verdict"] == "supported"
            verdict |= {
                "verdict": "absent" if is_supported else "supported",
                "evidence": [] if is_supported else ["1.1"],
            }
        return AIMessage(json.dumps(verdicts, ensure_ascii=False))

    return Judge(RunnableLambda(answer), version="erring", attempts=1)


@each("wrong", [(), (0,), (1, 5), (0, 1, 2), (0, 9, 12), (0, 9, 12, 20), (9, 12, 20)])
def test_two_errors_of_eight_ask_for_more_and_three_of_24_are_forgiven(wrong):
    report = evaluate(SAMPLES[:1], faithfulness(erring_on(wrong)), canaries=True, progress=False)
    n_asked = 24 if sum(number < 8 for number in wrong) in (1, 2) else 8
    errors = sum(number < n_asked for number in wrong)
    assert (report.canaries.asked, report.canaries.asked - report.canaries.right) == (n_asked, errors)
    assert bool(report.canaries.failed) == (errors > (2 if n_asked == 8 else 3))


@each(
    ("options", "asked"),
    [({}, 0), ({"canaries": False, "until": True}, 0), ({"until": True}, 8), ({"canaries": True}, 8)],
)
def test_they_are_asked_if_a_gate_is_given_to_the_run(options, asked):
    spy = Spy()
    until = Decided({"faithfulness": 0.5}) if options.get("until") else None
    report = evaluate(SAMPLES, faithfulness(spy.judge()), **{**options, "until": until}, progress=False)
    assert (report.canaries.asked if report.canaries else 0) == asked


@each("judge", [OfflineJudge(), ScriptedJudge("nothing", repeat=True)])
def test_a_judge_without_a_model_is_never_asked(judge):
    report = evaluate(SAMPLES[:1], faithfulness(judge), canaries=True, progress=False)
    assert report.canaries is None


GATE = ["--fail-under", "faithfulness=0.5"]


@pytest.mark.parametrize(("words", "asked"), [([], 0), (GATE, 8), (["--no-canaries"], 0)])
def test_the_command_line_asks_with_a_gate(words, asked, openai_server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    server = openai_server(offline)
    path, out = tmp_path / "samples.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in SAMPLES), encoding="utf-8")
    gates = GATE if words == ["--no-canaries"] else []
    judge = ["--judge", "openai:m", "--base-url", f"{server.url}/v1"]
    assert run([str(word) for word in ("evaluate", path, *judge, *gates, *words, "--quiet", "--out", out)]) == 0
    report = Report.load(out)
    assert (report.canaries.asked if report.canaries else 0) == asked
