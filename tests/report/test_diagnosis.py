"""What went wrong with an answer: each cause planted, and found by the real metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from helpers.each import each
from helpers.reports import HOSTILE, Tags, failed, row
from helpers.scripted import answering, classification, human_of, statements, verdict, verdicts

from langchain_rageval import Judge, Report, answer_correctness, claim_metrics, context_recall, evaluate, faithfulness
from langchain_rageval.data.schema import Finding, Sample, Score
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
        found: dict[str, Any] = {"contexts": contexts, "references": references}
        if self.retrieved is not None:
            found["retrieved"] = [WORDS[name] for name in self.retrieved]
            found["reference_contexts"] = [WORDS["context"]]
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


def causes_of(case: Case) -> dict[str, str]:
    """Return what each subset of the scores of one evaluation shows."""
    (whole,) = case.report().rows
    scores = {letter: whole.scores[name] for letter, name in zip("FRC", whole.scores, strict=True)}
    some = {own: {scores[letter].metric: scores[letter] for letter in "FRC" if letter in own} for own in SUBSETS}
    return {own: shown_by(Report([whole.model_copy(update={"scores": kept})])) for own, kept in some.items()}


METRICS = {"F": faithfulness, "R": context_recall, "C": partial(answer_correctness, weights=(1, 0)), "G": claim_metrics}
SUBSETS = ("F", "R", "C", "FR", "FC", "RC", "FRC")

CONTRADICTS, SUSPECT, REFUSED = "contradicts the context", "reference suspect", "wrongly refused"
LOST = "lost between retriever and model"
MISSED, ADDED, IGNORED = "retriever missed it", "unsupported addition", "retrieved but ignored"
FINE, UNKNOWN = "nothing wrong", "cannot tell"

YEAR, NOT_THERE, MADE_UP = {"year": SUPPORTED}, {"year": ABSENT}, {"elephants": ABSENT}
RIGHT, SAME = {"this year": SUPPORTED}, {"this year": ["year"]}
WHOLE, HALF = {**YEAR, "founder": SUPPORTED}, {**YEAR, "founder": ABSENT}
EVERY = " ".join(SUBSETS)

# Each cause with the subsets of faithfulness, context_recall and answer_correctness that show it; others cannot tell.
TABLE = {
    "another number than in the contexts": (
        Case({"other year": CONTRADICTED}, YEAR),
        {CONTRADICTS: "F FR FC FRC", IGNORED: "RC"},
    ),
    "a refusal though it was there": (Case({}, YEAR), {REFUSED: "FR RC FRC"}),
    "a refusal because it was not there": (Case({}, NOT_THERE), {MISSED: "R FR RC FRC"}),
    "a refusal because a reranker dropped it": (
        Case({}, NOT_THERE, contexts=("tigers",), retrieved=("tigers", "context")),
        {LOST: "R FR RC FRC"},
    ),
    "made up because a filter left nothing": (
        Case(MADE_UP, NOT_THERE, contexts=(), retrieved=("context",)),
        {LOST: EVERY},
    ),
    "made up because it was not there": (
        Case({**MADE_UP, "tigers": ABSENT}, NOT_THERE),
        {ADDED: "F FC", MISSED: "R FR RC FRC"},
    ),
    "made up beside what was there": (Case({**RIGHT, **MADE_UP}, YEAR, SAME), {ADDED: "F FR FC FRC"}),
    "something else than what was there": (Case({"river": SUPPORTED}, YEAR), {IGNORED: "RC FRC"}),
    "a reference that the contexts contradict": (Case(YEAR, {"third year": CONTRADICTED}), {SUSPECT: "R FR RC FRC"}),
    "contexts that contradict answer and reference alike": (
        Case({"this year": CONTRADICTED}, {"year": CONTRADICTED}, SAME),
        {CONTRADICTS: "F FR", SUSPECT: "R FC RC FRC"},
    ),
    "right, and grounded": (Case(RIGHT, YEAR, SAME), {FINE: "FC FRC"}),
    "right, with more from the contexts": (Case({**RIGHT, "river": SUPPORTED}, YEAR, SAME), {FINE: "FC FRC"}),
    "right, but known by heart": (Case({"this year": ABSENT}, NOT_THERE, SAME), {ADDED: "F", MISSED: "R FR FC RC FRC"}),
    "nothing was retrieved, and it is made up": (Case(MADE_UP, NOT_THERE, contexts=()), {MISSED: EVERY}),
    "only blank chunks were retrieved, and it declines": (Case({}, NOT_THERE, contexts=("", " ")), {MISSED: EVERY}),
    "no answer exists, and it declines": (Case({}, {}), {FINE: "C FR FC RC FRC"}),
    "no answer exists, nothing was retrieved, and it declines": (
        Case({}, {}, contexts=()),
        {MISSED: "F R FR", FINE: "C FC RC FRC"},
    ),
    "no answer exists, and it is made up": (Case(MADE_UP, {}), {ADDED: "F FR FC FRC"}),
    "no answer exists, says the reference, but the contexts have one": (Case(YEAR, {}), {}),
}


def by_subset(shown: Mapping[str, str]) -> dict[str, str]:
    """Return what each subset of the scores shows."""
    causes = {subset: cause for cause, subsets in shown.items() for subset in subsets.split()}
    return {subset: causes.get(subset, UNKNOWN) for subset in SUBSETS}


PLANTED = {name: (case, by_subset(shown)) for name, (case, shown) in TABLE.items()}


@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_a_planted_cause_is_found_as_far_as_the_metrics_show_it(case, causes):
    assert causes_of(case) == causes


@pytest.mark.gate
@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_claim_metrics_find_every_planted_cause_alone_and_beside_others(case, causes):
    assert {case.cause(metrics) for metrics in ("G", "FRCG", "GFRC", "RCF")} == {causes["FRC"]}


RUSSIAN = {
    "question": "Что покрывает страховка бани и от какой суммы?",
    "context": "Полис бани покрывает пожар от 5000 рублей. Заявление подают в течение трёх дней.",
    "decline": "Я не знаю.",
    "year": "Страховка бани покрывает ущерб от 5000 рублей.",
    "this year": "Ущерб возмещают, если он не меньше 5000 рублей.",
    "other year": "Страховка бани покрывает ущерб от 7000 рублей.",
    "tigers": "Деньги выплачивают в день обращения.",
}


IN_RUSSIAN = ["another number than in the contexts", "a refusal though it was there", "right, and grounded"]


@each("name", [*IN_RUSSIAN, "a refusal because a reranker dropped it"])
def test_a_cause_is_found_in_russian_and_the_agreement_of_draws_is_no_statement(name, monkeypatch):
    for word, text in RUSSIAN.items():
        monkeypatch.setitem(WORDS, word, text)
    case, causes = PLANTED[name]
    report = case.report(draws=3)
    assert any(f.kind == "agreement" for s in report.rows[0].scores.values() for f in s.findings)
    assert shown_by(report) == causes["FRC"]


# Several things wrong at once


@each(
    ("case", "cause", "texts"),
    [
        (Case({"other year": CONTRADICTED}, WHOLE), IGNORED, ["year", "founder"]),
        (Case({"other year": CONTRADICTED, "river": CONTRADICTED}, WHOLE), CONTRADICTS, ["other year", "river"]),
        (Case({"other year": CONTRADICTED}, {"third year": CONTRADICTED}), CONTRADICTS, ["other year"]),
        (Case({}, HALF), REFUSED, ["year"]),
        (Case({}, {"year": SUPPORTED, "founder": ABSENT, "river": ABSENT}), MISSED, ["founder", "river"]),
        (Case({**RIGHT, **MADE_UP}, HALF, SAME), MISSED, ["founder"]),
        (Case({**RIGHT, **MADE_UP, "tigers": ABSENT}, HALF, SAME), ADDED, ["elephants", "tigers"]),
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
    case = Case(RIGHT, {"founder": ABSENT}, SAME, others=[YEAR])
    assert case.cause() == FINE
    nearest = {**YEAR, "river": SUPPORTED}
    case = Case(RIGHT, {"founder": ABSENT}, SAME, others=[nearest])
    (found,) = case.report().diagnose()
    assert (found.cause, [f.text for f in found.findings]) == (IGNORED, [WORDS["river"]])
    merged = Case(RIGHT, YEAR, SAME, others=[{"founder": SUPPORTED}])
    assert [merged.cause(metrics) for metrics in ("G", "GFRC")] == [IGNORED, FINE]  # claim metrics merge references


@each(("case", "causes"), PLANTED.values(), ids=PLANTED)
def test_a_failure_shows_nothing(case, causes):
    (whole,) = case.report().rows
    for lost, shown in zip(whole.scores, ("RC", "FC", "FR"), strict=True):
        spoilt = whole.model_copy(update={"scores": {**whole.scores, lost: failed(lost)}})
        assert Report([spoilt]).diagnose()[0].cause == causes[shown]


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
