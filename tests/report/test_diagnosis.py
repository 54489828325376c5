"""What went wrong with an answer: each cause planted, and found by the real metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from helpers.each import each
from helpers.reports import HOSTILE, Tags, failed, row
from helpers.scripted import answering, classification, human_of, statements, verdict, verdicts

from langchain_rageval import (
    Finding,
    Judge,
    Report,
    Sample,
    Score,
    answer_correctness,
    claim_metrics,
    context_recall,
    evaluate,
    faithfulness,
)
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.report.diagnosis import REMEDIES, DiagnosedRow, Diagnosis

SUPPORTED, CONTRADICTED, ABSENT = "supported", "contradicted", "absent"

WORDS = {
    "question": "When was Munich founded, and by whom?",
    "context": "Munich was founded in 1158 by Henry the Lion. It lies on the Isar.",
    "decline": "I do not know.",
    "year": "Munich was founded in 1158.",
    "this year": "The town was founded in 1158.",
    "other year": "Munich was founded in 1258.",
    "third year": "Munich was founded in 1358.",
    "founder": "Henry the Lion founded Munich.",
    "river": "Munich lies on the Isar.",
    "elephants": "A million elephants live in Munich.",
    "tigers": "Tigers guard its gates.",
}

Verdicts = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """What the judge finds: the verdict of each statement, and which of the answer's say which of the references'."""

    answer: Verdicts = field(default_factory=dict)
    reference: Verdicts = field(default_factory=dict)
    shares: Mapping[str, Sequence[str]] = field(default_factory=dict)
    contexts: Sequence[str] = ("context",)
    others: Sequence[Verdicts] = ()
    retrieved: Sequence[str] | None = None

    def sample(self) -> Sample:
        def text(given: Verdicts) -> str:
            return "\n".join(WORDS[name] for name in given) or WORDS["decline"]

        references = [text(given) for given in (self.reference, *self.others)]
        contexts = [WORDS.get(name, name) for name in self.contexts]
        found: dict[str, Any] = (
            {} if self.retrieved is None else {"retrieved": [WORDS[name] for name in self.retrieved]}
        )
        found |= {"reference_contexts": [WORDS["context"]]} if found else {}
        found |= {"contexts": contexts, "references": references}
        return Sample(question=WORDS["question"], answer=text(self.answer), **found)

    def judge(self):
        names = {text: name for name, text in WORDS.items()}
        known = {**self.answer, **self.reference}
        for other in self.others:
            known |= other

        def reply(messages):
            inputs = read_inputs(human_of(messages))
            if "text" in inputs:
                return statements(*(line for line in inputs["text"].split("\n") if line != WORDS["decline"]))
            if "statements" in inputs:
                asked = [(item["statement"], known[names[item["text"]]]) for item in inputs["statements"]]
                return verdicts(*(verdict(n, label, *([] if label == ABSENT else ["1.1"])) for n, label in asked))
            said = {names[item["text"]]: item["reference"] for item in inputs["reference_statements"]}
            right, wrong = {}, []
            for item in inputs["answer_statements"]:
                same = [said[name] for name in self.shares.get(names[item["text"]], ()) if name in said]
                right |= {item["answer"]: same} if same else {}
                wrong += [] if same else [item["answer"]]
            told = {number for same in right.values() for number in same}
            return classification(right, fp=wrong, fn=[number for number in said.values() if number not in told])

        return answering(reply)

    def report(self, metrics: str = "FRC", draws: int = 1) -> Report:
        judge = Judge(self.judge(), draws=draws)
        return evaluate([self.sample()], [METRICS[name](judge) for name in metrics], progress=False)

    def cause(self, metrics: str = "FRC") -> str:
        return shown_by(self.report(metrics))


def shown_by(report: Report) -> str:
    assert report.failures() == []
    (found,) = report.diagnose()
    return found.cause


def causes_of(case: Case) -> list[str]:
    """Return what each subset of the scores of one evaluation shows."""
    (whole,) = case.report().rows
    scores = {letter: whole.scores[name] for letter, name in zip("FRC", whole.scores, strict=True)}
    some = ({score.metric: score for letter, score in scores.items() if letter in subset} for subset in SUBSETS)
    return [shown_by(Report([whole.model_copy(update={"scores": kept})])) for kept in some]


METRICS = {"F": faithfulness, "R": context_recall, "C": partial(answer_correctness, weights=(1, 0)), "G": claim_metrics}
SUBSETS = ("F", "R", "C", "FR", "FC", "RC", "FRC")

CONTRADICTS, SUSPECT, REFUSED = "contradicts the context", "reference suspect", "wrongly refused"
LOST = "lost between retriever and model"
MISSED, ADDED, IGNORED = "retriever missed it", "unsupported addition", "retrieved but ignored"
FINE, UNKNOWN = "nothing wrong", "cannot tell"

YEAR, NOT_THERE, MADE_UP = {"year": SUPPORTED}, {"year": ABSENT}, {"elephants": ABSENT}
SAME = {"this year": ["year"]}

# What each subset of faithfulness, context_recall and answer_correctness shows: F, R, C, FR, FC, RC, FRC.
PLANTED = {
    "another number than in the contexts": (
        Case({"other year": CONTRADICTED}, YEAR),
        (CONTRADICTS, UNKNOWN, UNKNOWN, CONTRADICTS, CONTRADICTS, IGNORED, CONTRADICTS),
    ),
    "a refusal though it was there": (Case({}, YEAR), (UNKNOWN, UNKNOWN, UNKNOWN, REFUSED, UNKNOWN, REFUSED, REFUSED)),
    "a refusal because it was not there": (
        Case({}, NOT_THERE),
        (UNKNOWN, MISSED, UNKNOWN, MISSED, UNKNOWN, MISSED, MISSED),
    ),
    "a refusal because a reranker dropped it": (
        Case({}, {"year": ABSENT}, contexts=("tigers",), retrieved=("tigers", "context")),
        (UNKNOWN, LOST, UNKNOWN, LOST, UNKNOWN, LOST, LOST),
    ),
    "made up because a filter left nothing": (
        Case(MADE_UP, NOT_THERE, contexts=(), retrieved=("context",)),
        (LOST,) * 7,
    ),
    "made up because it was not there": (
        Case({"elephants": ABSENT, "tigers": ABSENT}, {"year": ABSENT}),
        (ADDED, MISSED, UNKNOWN, MISSED, ADDED, MISSED, MISSED),
    ),
    "made up beside what was there": (
        Case({"this year": SUPPORTED, "elephants": ABSENT}, YEAR, SAME),
        (ADDED, UNKNOWN, UNKNOWN, ADDED, ADDED, UNKNOWN, ADDED),
    ),
    "something else than what was there": (
        Case({"river": SUPPORTED}, YEAR),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, IGNORED, IGNORED),
    ),
    "a reference that the contexts contradict": (
        Case(YEAR, {"third year": CONTRADICTED}),
        (UNKNOWN, SUSPECT, UNKNOWN, SUSPECT, UNKNOWN, SUSPECT, SUSPECT),
    ),
    "contexts that contradict answer and reference alike": (
        Case({"this year": CONTRADICTED}, {"year": CONTRADICTED}, SAME),
        (CONTRADICTS, SUSPECT, UNKNOWN, CONTRADICTS, SUSPECT, SUSPECT, SUSPECT),
    ),
    "right, and grounded": (
        Case({"this year": SUPPORTED}, YEAR, SAME),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, FINE, UNKNOWN, FINE),
    ),
    "right, with more from the contexts": (
        Case({"this year": SUPPORTED, "river": SUPPORTED}, YEAR, SAME),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, FINE, UNKNOWN, FINE),
    ),
    "right, but known by heart": (
        Case({"this year": ABSENT}, {"year": ABSENT}, SAME),
        (ADDED, MISSED, UNKNOWN, MISSED, MISSED, MISSED, MISSED),
    ),
    "nothing was retrieved, and it is made up": (Case(MADE_UP, NOT_THERE, contexts=()), (MISSED,) * 7),
    "only blank chunks were retrieved, and it declines": (Case({}, NOT_THERE, contexts=("", " ")), (MISSED,) * 7),
    "no answer exists, and it declines": (Case({}, {}), (UNKNOWN, UNKNOWN, FINE, FINE, FINE, FINE, FINE)),
    "no answer exists, nothing was retrieved, and it declines": (
        Case({}, {}, contexts=()),
        (MISSED, MISSED, FINE, MISSED, FINE, FINE, FINE),
    ),
    "no answer exists, and it is made up": (
        Case({"elephants": ABSENT}, {}),
        (ADDED, UNKNOWN, UNKNOWN, ADDED, ADDED, UNKNOWN, ADDED),
    ),
    "no answer exists, says the reference, but the contexts have one": (Case(YEAR, {}), (UNKNOWN,) * 7),
}


@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_a_planted_cause_is_found_as_far_as_the_metrics_show_it(case, causes):
    assert dict(zip(SUBSETS, causes_of(case), strict=True)) == dict(zip(SUBSETS, causes, strict=True))


@pytest.mark.gate
@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_claim_metrics_find_every_planted_cause_alone_and_beside_others(case, causes):
    assert {case.cause(metrics) for metrics in ("G", "FRCG", "GFRC", "RCF")} == {causes[-1]}


RUSSIAN = {
    "question": "Что покрывает страховка бани и от какой суммы?",
    "context": "Полис бани покрывает пожар от 5000 рублей. Заявление подают в течение трёх дней.",
    "decline": "Я не знаю.",
    "year": "Страховка бани покрывает ущерб от 5000 рублей.",
    "this year": "Ущерб возмещают, если он не меньше 5000 рублей.",
    "other year": "Страховка бани покрывает ущерб от 7000 рублей.",
    "tigers": "Деньги выплачивают в день обращения.",
}


CONTEXTUAL = ("another number than in the contexts", "a refusal though it was there")


@each("name", [*CONTEXTUAL, "a refusal because a reranker dropped it", "right, and grounded"])
def test_a_cause_is_found_in_russian_and_the_agreement_of_draws_is_no_statement(name, monkeypatch):
    for word, text in RUSSIAN.items():
        monkeypatch.setitem(WORDS, word, text)
    case, causes = PLANTED[name]
    report = case.report(draws=3)
    assert any(f.kind == "agreement" for s in report.rows[0].scores.values() for f in s.findings)
    assert shown_by(report) == causes[-1]


# Several things wrong at once


WHOLE, HALF = {"year": SUPPORTED, "founder": SUPPORTED}, {"year": SUPPORTED, "founder": ABSENT}


@each(
    ("case", "cause", "texts"),
    [
        (Case({"other year": CONTRADICTED}, WHOLE), IGNORED, ["year", "founder"]),
        (Case({"other year": CONTRADICTED, "river": CONTRADICTED}, WHOLE), CONTRADICTS, ["other year", "river"]),
        (Case({"other year": CONTRADICTED}, {"third year": CONTRADICTED}), CONTRADICTS, ["other year"]),
        (Case({}, HALF), REFUSED, ["year"]),
        (Case({}, {"year": SUPPORTED, "founder": ABSENT, "river": ABSENT}), MISSED, ["founder", "river"]),
        (Case({"this year": SUPPORTED, **MADE_UP}, HALF, SAME), MISSED, ["founder"]),
        (
            Case({"this year": SUPPORTED, "elephants": ABSENT, "tigers": ABSENT}, HALF, SAME),
            ADDED,
            ["elephants", "tigers"],
        ),
        (Case({"river": SUPPORTED}, HALF), MISSED, ["founder"]),
        (Case({"elephants": ABSENT}, {"year": SUPPORTED}), ADDED, ["elephants"]),
        (Case({"river": SUPPORTED}, {"year": SUPPORTED, "third year": CONTRADICTED}), SUSPECT, ["third year"]),
        (Case({"elephants": ABSENT, "other year": CONTRADICTED}, {"year": ABSENT}), CONTRADICTS, ["other year"]),
    ],
)
def test_the_cause_that_explains_most_statements_holds_and_of_equals_the_first(case, cause, texts):
    (found,) = case.report().diagnose()
    assert (found.cause, [finding.text for finding in found.findings]) == (cause, [WORDS[name] for name in texts])


def test_of_several_references_the_one_that_the_answer_is_nearest_to_counts():
    case = Case({"this year": SUPPORTED}, {"founder": ABSENT}, SAME, others=[YEAR])
    assert case.cause() == FINE
    nearest = {"year": SUPPORTED, "river": SUPPORTED}
    case = Case({"this year": SUPPORTED}, {"founder": ABSENT}, SAME, others=[nearest])
    (found,) = case.report().diagnose()
    assert (found.cause, [f.text for f in found.findings]) == (IGNORED, [WORDS["river"]])
    merged = Case({"this year": SUPPORTED}, YEAR, SAME, others=[{"founder": SUPPORTED}])
    assert [merged.cause(metrics) for metrics in ("G", "GFRC")] == [IGNORED, FINE]  # claim metrics merge references


@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_a_failure_shows_nothing(case, causes):
    (whole,) = case.report().rows
    for lost, shown in zip(whole.scores, ("RC", "FC", "FR"), strict=True):
        spoilt = whole.model_copy(update={"scores": {**whole.scores, lost: failed(lost)}})
        assert Report([spoilt]).diagnose()[0].cause == causes[SUBSETS.index(shown)]


def test_statements_of_two_judges_that_do_not_match_are_not_taken_for_each_other():
    """A statement that one judge found and another called otherwise: nothing ties the two."""
    case = Case({"river": SUPPORTED}, YEAR)
    report = case.report(metrics="FR")
    other = Case({"river": SUPPORTED}, {"this year": SUPPORTED}).report(metrics="C")
    scores = {**report.rows[0].scores, **other.rows[0].scores}
    assert Report([report.rows[0].model_copy(update={"scores": scores})]).diagnose()[0].cause == UNKNOWN


# What is shown


def of(*causes: str) -> Diagnosis:
    finding = Finding(kind="statement", number=1, text=HOSTILE, verdict="absent")
    return Diagnosis(DiagnosedRow(place, f"q-{place}", cause, [finding]) for place, cause in enumerate(causes))


def test_the_most_frequent_cause_comes_first_and_what_is_none_last():
    diagnosis = of(UNKNOWN, UNKNOWN, FINE, FINE, FINE, IGNORED, MISSED, ADDED, MISSED)
    assert list(diagnosis.counts.items()) == [(MISSED, 2), (ADDED, 1), (IGNORED, 1), (FINE, 3), (UNKNOWN, 2)]
    assert list(diagnosis.remedies) == [MISSED, ADDED, IGNORED, UNKNOWN]
    assert all(diagnosis.remedies[cause] == REMEDIES[cause] for cause in diagnosis.remedies)


def test_rows_come_in_order_and_by_cause():
    diagnosis = of(MISSED, FINE, MISSED)
    assert (len(diagnosis), diagnosis[1].cause, [r.index for r in diagnosis]) == (3, FINE, [0, 1, 2])
    assert [r.id for r in diagnosis.of(MISSED)] == ["q-0", "q-2"]
    assert [r.id for r in diagnosis[1:]] == ["q-1", "q-2"]
    assert str(diagnosis[0]) == f"q-0: retriever missed it ({HOSTILE})"
    assert repr(diagnosis).splitlines() == ["Diagnosis of 3 samples", f"2 {MISSED}: {REMEDIES[MISSED]}", f"1 {FINE}"]


def test_the_table_in_a_notebook_holds_counts_causes_and_remedies_and_no_tag_of_others(monkeypatch):
    monkeypatch.setattr("langchain_rageval.report.diagnosis.REMEDIES", {**REMEDIES, MISSED: HOSTILE})
    shown = Tags(of(MISSED, FINE)._repr_html_(), attributes=())
    assert {*shown.opened} == {"p", "table", "tr", "th", "td"}
    title, *texts = shown.texts
    assert title == "Diagnosis of 2 samples"
    assert texts == ["samples", "cause", "remedy", "1", MISSED, HOSTILE, "1", FINE]


def cause_of(contexts, retrieved, **fields):
    """Return the cause and the statements that it explains, for two facts of the reference that no context holds."""
    absent = [Finding(kind="reference_statement", number=n, text=WORDS[name], verdict=ABSENT) for n, name in FACTS]
    score = Score(metric="context_recall", aspect="context", value=0.0, findings=absent)
    sample = Sample(question="?", contexts=contexts, retrieved=retrieved, **fields)
    (found,) = Report([row(0, score).model_copy(update={"sample": sample})]).diagnose()
    return found.cause, [finding.text for finding in found.findings]


FACTS = [(1, "year"), (2, "river")]
YEAR_CHUNK, RIVER_CHUNK = "The town of Munich was founded in 1158, says a chronicle.", "Munich lies on the river Isar."
BOTH = [WORDS[name] for _, name in FACTS]
GOLD = {"retrieved_ids": ["o", "g"], "reference_context_ids": ["g"]}


@each(
    ("contexts", "retrieved", "fields", "expected"),
    [
        (["Other."], None, {}, (MISSED, BOTH)),
        (["Other."], ["Other.", "Another."], {}, (MISSED, BOTH)),
        (["Other."], ["Other.", YEAR_CHUNK, RIVER_CHUNK], {}, (LOST, BOTH)),
        (["Other."], ["Other.", YEAR_CHUNK], {}, (LOST, BOTH[:1])),  # one fact each: the first cause holds
        (["Other."], ["Other.", "It is old."], {"reference_contexts": ["It is old."]}, (LOST, BOTH)),
        (["Other."], ["Other.", BOTH[1]], {}, (LOST, BOTH[1:])),  # the chunk is the statement
        (["It is old."], ["Other.", "It is old."], {"reference_contexts": ["It is old."]}, (MISSED, BOTH)),
        (["Other."], ["Other.", "It is old."], {"context_ids": ["o"], **GOLD}, (LOST, BOTH)),
        (["It is old."], ["Other.", "It is old."], {"context_ids": ["g"], **GOLD}, (MISSED, BOTH)),
        ([YEAR_CHUNK[:30]], [YEAR_CHUNK], {}, (LOST, BOTH[:1])),  # the model read a part of the chunk
    ],
)
def test_a_fact_is_lost_between_retriever_and_model_if_a_dropped_chunk_holds_it(contexts, retrieved, fields, expected):
    assert cause_of(contexts, retrieved, **fields) == expected
