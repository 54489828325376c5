"""Baselines: scores of the offline judge and embeddings, which use word overlap, on public data sets.

    python tests/benchmarks/baselines.py --data DIR

DIR holds the folders wikieval, clapnq, terra_ru, xquad_en_ru_zh and ru_wiki_rag. Every set runs through `evaluate` with
all metrics whose fields it has. Intervals are Wilson's at 95%; they take items for independent, so those over several
questions of one paragraph, or sentences of one passage, are too narrow. Word stems do not work in Chinese, which puts
no spaces between words: its figures say what the baseline cannot see, nothing about the language.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import mannwhitneyu

from langchain_rageval import (
    HashingEmbeddings,
    OfflineJudge,
    Report,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
)
from langchain_rageval.statistics import bounded_mean_interval

LANGUAGES = ("en", "ru", "zh")
ABSTENTIONS = (
    "I don't know.",
    "The retrieved passages do not say.",
    "Sorry, I could not find an answer to that.",
    "The passage does not provide this information.",
    "There is no information about this in the documents.",
    "This question cannot be answered from the given context.",
    "The context is insufficient.",
    "Unfortunately, that is not stated anywhere.",
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One line of the table: mean and interval of `values`, from 0 to 1, or the text `told` if there are none."""

    measure: str
    values: Sequence[float] = ()
    told: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        if not self.values:
            return self.measure, "", "", self.told
        low, high = bounded_mean_interval(self.values)
        whole = all(value in (0, 1) for value in self.values)
        count = f"{int(sum(self.values))}/{len(self.values)}" if whole else f"n={len(self.values)}"
        return self.measure, f"{fmean(self.values):.3f}", f"[{low:.3f}, {high:.3f}]", f"{count} {self.told}".strip()


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def fitting(samples: Iterable[Row]) -> list[Any]:
    """Return the eight metrics, or those of them whose fields every sample has."""
    judge, embeddings = OfflineJudge(), HashingEmbeddings()
    metrics = [
        faithfulness(judge),
        answer_relevance(judge, embeddings),
        context_precision(judge, weighting="plain"),
        context_recall(judge),
        context_relevance(judge),
        answer_similarity(embeddings),
        answer_correctness(judge, embeddings),
        aspect_critique(judge, "correctness"),
    ]
    there = set.intersection(*({name for name, value in sample.items() if value} for sample in samples))
    return [metric for metric in metrics if metric.reads <= there]


def judged(samples: list[Row], *more: Any, only: Sequence[str] = ()) -> Report:
    """Score samples with all fitting metrics, or with those of `only`, and with `more`; raise if a score fails."""
    fit = [metric for metric in fitting(samples) if not only or metric.name in only]
    report = evaluate(samples, [*fit, *more], progress=False)
    failures = report.failures()
    assert not failures, failures[0][1].failure
    return report


def values(report: Report, metric: str) -> list[float | None]:
    return [row.scores[metric].value for row in report.rows]


def means(report: Report, prefix: str = "") -> list[Figure]:
    """Return a line for each metric with the unscored counts; skip metrics that compare an answer with itself."""
    figures = []
    itself = all(row.sample.answer in row.sample.references for row in report.rows)
    for name, summary in report.summary().items():
        why = Counter(row.scores[name].unscored for row in report.rows if row.scores[name].unscored)
        told = "; ".join(f"{count} unscored: {text}" for text, count in why.items())
        if itself and name in ("answer_similarity", "answer_correctness"):
            assert summary.mean == 1.0, "an answer equal to a reference is exactly 1"
            continue
        figures.append(Figure(f"{prefix}{name}", [v for v in values(report, name) if v is not None], told))
        assert summary.failed == 0
    return figures


# WikiEval

Scorer = Callable[[Row, str, str], float]


def wikieval_samples(rows: list[Row]) -> dict[str, list[Row]]:
    """Return samples of the grounded answer and of each contrast, with the grounded answer as reference."""
    variants = {
        "answer": ("answer", "context_v1"),
        "ungrounded_answer": ("ungrounded_answer", "context_v1"),
        "poor_answer": ("poor_answer", "context_v1"),
        "context_v2": ("answer", "context_v2"),
    }
    return {
        name: [
            {
                "id": row["id"],
                "question": row["question"],
                "answer": row[answer],
                "contexts": [row[context]],
                "references": [row["answer"]],
            }
            for row in rows
        ]
        for name, (answer, context) in variants.items()
    }


def tokens(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def overlap(text: str, other: str) -> float:
    """Return the share of the tokens of `text` that occur in `other`, from 0 to 1."""
    return len(tokens(text) & tokens(other)) / max(1, len(tokens(text)))


def contest(measure: str, better: Sequence[float | None], worse: Sequence[float | None]) -> Figure:
    """Return 1 for each win of the better one, 0.5 for a tie and 0 for a loss."""
    pairs = [(b, w) for b, w in zip(better, worse, strict=True) if b is not None and w is not None]
    points = [1.0 if b > w else 0.5 if b == w else 0.0 for b, w in pairs]
    left = len(better) - len(pairs)
    told = f"win-tie-loss {points.count(1.0)}-{points.count(0.5)}-{points.count(0.0)}"
    return Figure(measure, points, told + (f", {left} unscored" if left else ""))


def wikieval(folder: Path) -> Iterable[Figure]:
    rows = read(folder / "wikieval" / "wikieval.jsonl")
    reports = {name: judged(samples) for name, samples in wikieval_samples(rows).items()}
    for metric, worse in (
        ("faithfulness", "ungrounded_answer"),
        ("answer_relevance", "poor_answer"),
        ("context_relevance", "context_v2"),
    ):
        better = "context_v1" if worse == "context_v2" else "answer"
        both = (values(reports[name], metric) for name in ("answer", worse))
        yield contest(f"{metric}: {better} > {worse}", *both)
    for measure, score, fields in (
        (
            "trivial: token overlap of answer with context",
            lambda row, field: overlap(row[field], row["context_v1"]),
            ("answer", "ungrounded_answer"),
        ),
        (
            "trivial: overlap of question with answer",
            lambda row, field: overlap(row["question"], row[field]),
            ("answer", "poor_answer"),
        ),
        ("trivial: shorter context", lambda row, field: 1 / len(row[field]), ("context_v1", "context_v2")),
    ):
        yield contest(measure, *([score(row, field) for row in rows] for field in fields))
    for name, report in reports.items():
        yield from means(report, f"{name}: ")


# CLAPNQ


def squeezed(text: str) -> str:
    return "".join(text.split())


def gold_of_ours(ours: Sequence[str], gold: Sequence[str], relevant: set[int]) -> list[bool]:
    """Return for each of our sentences whether relevant gold sentences contain half its non-space characters."""
    marks = [place in relevant for place, text in enumerate(gold) for _ in squeezed(text)]
    ends = [0, *accumulate(len(squeezed(text)) for text in ours)]
    assert ends[-1] == len(marks), "both splits hold the same characters"
    return [2 * sum(marks[start:end]) >= end - start for start, end in pairwise(ends)]


def clapnq_samples(rows: list[Row], answer: Callable[[Row], str]) -> list[Row]:
    return [
        {
            "id": row["id"],
            "question": row["question"],
            "answer": answer(row),
            "contexts": [row["passage"]],
            "references": [given["answer"] for given in row["answers"]],
        }
        for row in rows
    ]


@dataclass(frozen=True)
class Selection:
    """Return for the sentences of all passages: selected by the metric, gold, and token overlap with the question."""

    selected: list[bool]
    gold: list[bool]
    overlaps: list[float]
    gold_sentences: int

    @classmethod
    def of(cls, report: Report, rows: list[Row]) -> "Selection":
        selected, gold, overlaps = [], [], []
        for row, scored in zip(rows, report.rows, strict=True):
            sentences = scored.scores["context_relevance"].findings
            relevant = {number for answer in row["answers"] for number in answer["relevant_sentence_ids"]}
            gold += gold_of_ours([sentence.text for sentence in sentences], row["sentences"], relevant)
            selected += [sentence.verdict == "needed" for sentence in sentences]
            overlaps += [overlap(row["question"], sentence.text) for sentence in sentences]
        return cls(selected, gold, overlaps, sum(len(row["sentences"]) for row in rows))

    def figures(self) -> Iterable[Figure]:
        pairs = list(zip(self.selected, self.gold, strict=True))
        yield Figure("sentences", told=f"{len(pairs)} ours, {self.gold_sentences} gold; {sum(self.gold)} relevant")
        yield Figure("trivial: every sentence selected, precision", [float(g) for _, g in pairs])
        yield Figure("selected sentences: precision", [float(g) for s, g in pairs if s])
        yield Figure("selected sentences: recall", [float(s) for s, g in pairs if g])
        hit, false = (fmean(s for s, g in pairs if g == gold) for gold in (True, False))
        yield Figure("AUC of the selection", told=f"{(1 + hit - false) / 2:.3f} (yes or no, no score behind it)")
        yield Figure("trivial: AUC of token overlap with question", told=f"{auc(self.overlaps, self.gold):.3f}")


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    yes, no = ([s for s, label in zip(scores, labels, strict=True) if label is kind] for kind in (True, False))
    return float(mannwhitneyu(yes, no).statistic) / (len(yes) * len(no))


def clapnq(folder: Path) -> Iterable[Figure]:
    rows = read(folder / "clapnq" / "clapnq_dev.jsonl")
    answerable, unanswerable = ([row for row in rows if row["answerable"] is kind] for kind in (True, False))
    report = judged(clapnq_samples(answerable, lambda row: row["answers"][0]["answer"]))
    yield from means(report, "human answers: ")
    yield from Selection.of(report, answerable).figures()
    many = [row for row in answerable if any(answer["answer"] for answer in row["answers"][1:])]
    samples = clapnq_samples(many, lambda row: row["answers"][0]["answer"])
    others = judged([sample | {"references": sample["references"][1:]} for sample in samples])
    yield from (f for f in means(others, "against other annotators: ") if "answer_" in f.measure)
    for kind, given in (("answerable", answerable), ("unanswerable", unanswerable)):
        refusals = judged(
            [
                sample | {"references": []}
                for sample in clapnq_samples(given, lambda _row: "The retrieved passages do not say.")
            ]
        )
        yield from means(refusals, f"{kind}, a refusal: ")
    declined = judged(
        [
            sample | {"references": ["The passage does not say."]}
            for sample in clapnq_samples(unanswerable, lambda _row: "The retrieved passages do not say.")
        ]
    )
    on_references = re.compile("context_recall|answer_correctness")
    yield from (f for f in means(declined, "unanswerable, refusal as reference: ") if on_references.search(f.measure))
    # By what the judge says of them: answer_relevance is 0 for any two texts that share no word.
    wordings = [{"id": text, "question": "Who?", "answer": text, "contexts": ["A fact."]} for text in ABSTENTIONS]
    known = [row.scores["faithfulness"].unscored is not None for row in judged(wordings).rows]
    missed = "; ".join(text for text, seen in zip(ABSTENTIONS, known, strict=True) if not seen)
    yield Figure("our wordings of a refusal, recognised", [float(seen) for seen in known], f"missed: {missed}")


# TERRa


def terra_samples(rows: list[Row]) -> list[Row]:
    """Build a sample with the hypothesis as answer and reference, and a placeholder that stands for the question."""
    return [
        {
            "id": row["id"],
            "question": "Что из этого следует?",
            "answer": row["hypothesis"],
            "contexts": [row["premise"]],
            "references": [row["hypothesis"]],
        }
        for row in rows
    ]


def terra(folder: Path) -> Iterable[Figure]:
    rows = read(folder / "terra_ru" / "terra_train.jsonl")
    report = judged(terra_samples(rows), only=("faithfulness", "context_recall"))
    entailed = [row["label"] == "entailment" for row in rows]
    verdicts = [[f.verdict for f in row.scores["faithfulness"].findings] for row in report.rows]
    assert {len(given) for given in verdicts} == {1}, "a hypothesis is one statement"
    supported = [given == ["supported"] for given in verdicts]
    yield Figure("supported = entailment", [float(s == e) for s, e in zip(supported, entailed, strict=True)])
    yield Figure("trivial: always not entailment", [float(not e) for e in entailed])
    counts = Counter((row["label"], verdict) for row, (verdict,) in zip(rows, verdicts, strict=True))
    for label in ("entailment", "not_entailment"):
        told = ", ".join(f"{verdict} {counts[label, verdict]}" for verdict in ("supported", "contradicted", "absent"))
        yield Figure(f"verdicts on {label}", told=told)
    yield Figure("sensitivity", [float(s) for s, e in zip(supported, entailed, strict=True) if e])
    yield Figure("specificity", [float(not s) for s, e in zip(supported, entailed, strict=True) if not e])
    ratios = [row.scores["faithfulness"].findings[0].reason.split("/") for row in report.rows]
    shares = [int(shared) / max(1, int(wanted)) for shared, wanted in ratios]
    yield Figure("AUC of the share of stems in the reason", told=f"{auc(shares, entailed):.3f}")
    overlaps = [overlap(row["hypothesis"], row["premise"]) for row in rows]
    yield Figure("trivial: AUC of token overlap", told=f"{auc(overlaps, entailed):.3f}")
    same = sum(a == b for a, b in zip(values(report, "faithfulness"), values(report, "context_recall"), strict=True))
    yield Figure("context_recall of it as reference", told=f"equals faithfulness on {same} of {len(rows)}")
    yield from means(report)


# XQuAD


def xquad_samples(questions: list[Row], contexts: list[Row], language: str) -> list[Row]:
    """Build a sample for each question with its own paragraph, the next one and one of another article, in rotation."""
    texts = {context["id"]: context["context"][language] for context in contexts}
    samples = []
    for turn, question in enumerate(questions):
        chunks = neighbours(contexts, question["context_id"])
        order = [*chunks][turn % len(chunks) :] + [*chunks][: turn % len(chunks)]
        asked, answer = question["question"][language], question["answer"][language]
        samples.append(
            {
                "id": f"{question['id']}-{language}",
                "question": asked,
                "answer": answer,
                "contexts": [texts[chunks[kind]] for kind in order],
                "references": [f"{asked.rstrip('?？ ')}: {answer}"],
                "metadata": {"order": order},
            }
        )
    return samples


def neighbours(contexts: list[Row], own: str) -> dict[str, str]:
    """Return the ids of the paragraph, of the next one of its article, and of the first one of the next article."""
    ids = [context["id"] for context in contexts]
    article = {context["id"]: context["article"] for context in contexts}
    after = [*ids[ids.index(own) + 1 :], *ids[: ids.index(own)]]
    siblings = [other for other in after if article[other] == article[own]]
    strangers = [other for other in after if article[other] != article[own]]
    return {"own": own} | {kind: ids[0] for kind, ids in (("sibling", siblings), ("stranger", strangers)) if ids}


def useful(report: Report, metric: str) -> Mapping[str, list[float]]:
    """Return for each kind of paragraph whether each one was graded useful."""
    kinds: dict[str, list[float]] = {"own": [], "sibling": [], "stranger": []}
    for row in report.rows:
        verdicts = [f.verdict for f in row.scores[metric].findings if f.kind == "context"]
        for kind, verdict in zip(row.sample.metadata["order"], verdicts, strict=True):
            kinds[kind].append(float(verdict == "useful"))
    return kinds


def xquad(folder: Path) -> Iterable[Figure]:
    questions, contexts = (read(folder / "xquad_en_ru_zh" / f"{name}.jsonl") for name in ("questions", "contexts"))
    against = [
        context_precision(OfflineJudge(), weighting="plain", against=ground, name=f"against_{ground}")
        for ground in ("question", "answer", "reference")
    ]
    reports = {}
    for language in LANGUAGES:
        samples = xquad_samples(questions, contexts, language)
        report = reports[language] = judged(samples, *against)
        for metric in against:
            for kind, verdicts in useful(report, metric.name).items():
                yield Figure(f"{language}: context_precision {metric.name}, {kind} useful", verdicts)
        for kind in ("own", "sibling", "stranger"):
            alone = [
                sample | {"contexts": [sample["contexts"][sample["metadata"]["order"].index(kind)]]}
                for sample in samples
                if kind in sample["metadata"]["order"]
            ]
            recalled = values(evaluate(alone, context_recall(OfflineJudge()), progress=False), "context_recall")
            yield Figure(f"{language}: context_recall, {kind}", [v for v in recalled if v is not None])
    yield from language_gap(reports)


def language_gap(reports: Mapping[str, Report]) -> Iterable[Figure]:
    """Score the same items in each language and return mean differences from English."""
    for name in reports["en"].summary():
        given = {lang: [v for v in values(report, name) if v is not None] for lang, report in reports.items()}
        assert {len(scored) for scored in given.values()} == {len(reports["en"])}, "every item is scored in all"
        told = [" ".join(f"{language} {fmean(scored):.3f}" for language, scored in given.items())]
        for language in LANGUAGES[1:]:
            halves = [(1 + other - english) / 2 for other, english in zip(given[language], given["en"], strict=True)]
            mean, low, high = (2 * half - 1 for half in (fmean(halves), *bounded_mean_interval(halves)))
            told.append(f"{language}-en {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
        yield Figure(f"language gap: {name}", told="; ".join(told))


# RuBQ


def ru_wiki_samples(rows: list[Row]) -> list[Row]:
    return [
        {
            "id": row["id"],
            "question": row["question"],
            "answer": row["answer"],
            "contexts": [rows[at - 1]["context"], row["context"]],
            "references": [f"{row['question'].rstrip('? ')}: {row['answer']}"],
            "metadata": {"order": ["stranger", "own"]},
        }
        for at, row in enumerate(rows)
    ]


def ru_wiki(folder: Path) -> Iterable[Figure]:
    report = judged(
        ru_wiki_samples(read(folder / "ru_wiki_rag" / "qa.jsonl")),
        context_precision(OfflineJudge(), weighting="plain", against="question", name="against_question"),
    )
    for kind, verdicts in useful(report, "against_question").items():
        if verdicts:
            yield Figure(f"context_precision against_question, {kind} useful", verdicts)
    yield from means(report)


SETS: Mapping[str, Callable[[Path], Iterable[Figure]]] = {
    "wikieval": wikieval,
    "clapnq": clapnq,
    "terra_ru": terra,
    "xquad": xquad,
    "ru_wiki_rag": ru_wiki,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    print("OfflineJudge and HashingEmbeddings: word overlap, a baseline to beat, not a measure of quality.")
    print(f"{'set':<12} {'measure':<62} {'mean':<5} {'95% interval':<14} counts")
    for name in options.sets:
        for figure in SETS[name](options.data):
            measure, mean, interval, told = figure.cells()
            print(f"{name:<12} {measure:<62} {mean:<5} {interval:<14} {told}".rstrip())


if __name__ == "__main__":
    main()
