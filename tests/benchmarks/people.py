"""Measure scores against people: the tables of tests/benchmarks/results/people.md.

    python tests/benchmarks/people.py --mtrag FILE                          # agreement with three people each
    python tests/benchmarks/people.py --mtrag FILE --judge gigachat:GigaChat-2-Max   # and of our metrics by this judge
    python tests/benchmarks/people.py --faithbench FOLDER                   # verdicts of compare, juries, labels
    python tests/benchmarks/people.py --trec FOLDER                         # audits
    python tests/benchmarks/people.py --attribution FILE --ragtruth FILE    # word overlap, and the --judge
    python tests/benchmarks/people.py … --write                             # replace the tables in the page

Files: `reference_subset_with_human_evaluations.json` of IBM/mt-rag-benchmark (Apache-2.0); `data_for_release` of
vectara/FaithBench (CC BY-NC-SA 4.0); `rag25-dev-umbrela-qrels` of TREC-RAG/trec-rag-data (no licence stated);
`test_all_subset_balanced_sampled500.jsonl` of OSU-NLP-Group/AttributionBench (no licence stated);
`eval_data/ragtruth_qa.jsonl` of vectara/FaithJudge (labels of RAGTruth, MIT). None is part of this repository.
All draws have fixed seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from table_in_document import ROOT, write_between

from langchain_rageval import (
    Judge,
    OfflineJudge,
    Report,
    Row,
    Sample,
    Score,
    agreement,
    calibrate,
    evaluate,
    faithfulness,
)
from langchain_rageval.models.loading import load_judge
from langchain_rageval.report.audit import MetricAudit
from langchain_rageval.report.people import corrected
from langchain_rageval.statistics import prediction_powered_mean
from langchain_rageval.trust.agreement import Agreement

PAGE = ROOT / "tests" / "benchmarks" / "results" / "people.md"
DRAWS, AUDITS, AUDITED = 200, 10_000, 200
NOT_RUN = "not run"


def scored(name: str, samples: Sequence[Sample], values: Sequence[float]) -> Report:
    """Return a report of recorded values."""
    rows = [
        Row(index=place, sample=sample, scores={"metric": Score(metric="metric", aspect=name, value=value)})
        for place, (sample, value) in enumerate(zip(samples, values, strict=True))
    ]
    return Report(rows)


def by_judge(samples: Sequence[Sample], judge: Judge | None = None) -> list[float | None]:
    """Return the faithfulness of each sample by a judge, by default by word overlap."""
    report = evaluate(samples, faithfulness(judge or OfflineJudge()), progress=judge is not None)
    return [row.scores["faithfulness"].value for row in report.rows]


def estimate(found: Agreement, name: str) -> str:
    """Return a statistic with its interval."""
    one = found[name]
    return "–" if one.value is None else f"{one.value:.3f} {one.interval}"


# MTRAG: 159 tasks, three systems, three people each


@cache
def mtrag(path: Path) -> tuple[list[Sample], list[dict[str, Any]]]:
    """Return the answers as samples, and the recorded annotations of each."""
    data = json.loads(path.read_text(encoding="utf-8"))
    texts = {one["document_id"]: one["text"] for one in data["documents"]}
    tasks = {one["task_id"]: one for one in data["tasks"]}
    roles = {"user": "user", "agent": "assistant"}
    samples = []
    for one in data["evaluations"]:
        task = tasks[one["task_id"]]
        *before, question = task["input"]
        samples.append(
            Sample(
                id=one["task_id"],
                question=question["text"],
                history=[{"role": roles[turn["speaker"]], "text": turn["text"]} for turn in before],
                answer=one["model_response"],
                contexts=[texts[context["document_id"]] for context in task["contexts"]],
                references=[turn["text"] for turn in task["targets"]],
                metadata={"model": one["model_id"]},
            )
        )
    return samples, [one["annotations"] for one in data["evaluations"]]


@cache
def mtrag_overlap(path: Path) -> list[float | None]:
    """Return the word overlap of each answer."""
    return by_judge(mtrag(path)[0])


def recorded(annotations: Sequence[Mapping[str, Any]], name: str) -> list[float | None]:
    """Return the recorded values of an automatic score."""
    values = (next(iter(one.get(name, {}).values()), {}).get("value") for one in annotations)
    return [None if value is None else float(value) for value in values]


def grades_of(annotations: Sequence[Mapping[str, Any]], name: str = "faithfulness") -> list[list[float]]:
    """Return the grades of the people for each answer."""
    return [[float(one["value"]) for one in own[name].values()] for own in annotations]


def mtrag_agreement(path: Path, judge: Judge | None, name: str) -> Iterator[list[str]]:
    """Yield a row for each score: its correlation with the mean grade of the people."""
    samples, annotations = mtrag(path)
    grades = grades_of(annotations)
    people = [fmean(own) for own in grades]
    tasks = [sample.id for sample in samples]

    def row(what: str, values: Sequence[float | None], labels: Sequence[float], units: Sequence[str]) -> list[str]:
        found = agreement(values, labels, "ordinal", cluster=units)
        return [what, str(found.pairs), estimate(found, "spearman"), estimate(found, "pearson")]

    own = [values[place] for values in grades for place in range(len(values))]
    others = [fmean(values[:place] + values[place + 1 :]) for values in grades for place in range(len(values))]
    yield row(
        "one person, against the two others",
        own,
        others,
        [task for task, values in zip(tasks, grades, strict=True) for _ in values],
    )
    yield row("RAGAS faithfulness, recorded", recorded(annotations, "rl_f"), people, tasks)
    yield row("judge of RAD-Bench, recorded", recorded(annotations, "rb_llm"), people, tasks)
    yield row("BERT K-precision, recorded", recorded(annotations, "Bert-KPrec"), people, tasks)
    yield row("word overlap (our `OfflineJudge`)", mtrag_overlap(path), people, tasks)
    if judge is None:
        yield ["our `faithfulness` by a judge: `--judge NAME`", NOT_RUN, NOT_RUN, NOT_RUN]
        return
    yield row(f"our `faithfulness` by {name}", by_judge(samples, judge), people, tasks)


# Verdicts of compare, and what labels make of them


def clear_sign(low: float, high: float) -> int:
    """Return 1 or -1 if an interval lies on one side of 0, else 0."""
    return (low > 0) - (high < 0)


def verdicts(judged: Mapping[str, Sequence[float]], samples: Sequence[Sample]) -> dict[tuple[str, str], int]:
    """Return for each two systems whether `compare` calls the first one better (1), worse (-1) or neither (0)."""
    reports = {name: scored("answer", samples, values) for name, values in judged.items()}
    found = {}
    for one, other in combinations(reports, 2):
        verdict = reports[one].compare(reports[other])["metric"].verdict
        found[one, other] = {"better": 1, "worse": -1}.get(verdict, 0)
    return found


def with_labels(
    human: Mapping[str, Sequence[float]],
    judged: Mapping[str, Sequence[float]],
    people: Mapping[tuple[str, str], int],
    labels: int,
    width: float,
    draws: int = DRAWS,
) -> tuple[int, float]:
    """Return how many pairs of systems were ever contradicted, and the share of people's decisions confirmed.

    Args:
        human: system to its labels.
        judged: system to its scores.
        people: verdicts on all labels.
        labels: number of labelled samples in each draw.
        width: difference of the highest and the lowest label.
        draws: number of draws.
    """
    random, contradicted, confirmed = Random(0), set(), []
    for _ in range(draws):
        for pair in people:
            human_moves, judge_moves = (
                [own - its for own, its in zip(side[pair[0]], side[pair[1]], strict=True)] for side in (human, judged)
            )
            drawn = set(random.sample(range(len(human_moves)), labels))
            known = [(move if place in drawn else None) for place, move in enumerate(human_moves)]
            found = corrected(list(zip(known, judge_moves, strict=True)), (-width, width), None)
            sign = 0 if found is None else clear_sign(found.low, found.high)
            if sign * people[pair] < 0:
                contradicted.add(pair)
            if people[pair]:
                confirmed.append(sign == people[pair])
    return len(contradicted), fmean(confirmed) if confirmed else 0.0


def verdict_row(
    name: str,
    human: Mapping[str, Sequence[float]],
    judged: Mapping[str, Sequence[float]],
    samples: Sequence[Sample],
    labels: Sequence[int],
    width: float = 1.0,
) -> list[str]:
    """Return a row about the verdicts of one judge."""
    people, judges = verdicts(human, samples), verdicts(judged, samples)
    decided = [pair for pair, sign in judges.items() if sign]
    agree = sum(judges[pair] == people[pair] for pair in decided)
    contrary = sum(judges[pair] == -people[pair] for pair in decided)
    cells = [name, str(len(judges)), str(len(decided)), str(agree), str(contrary), str(len(decided) - agree - contrary)]
    for count in labels:
        against, share = with_labels(human, judged, people, count, width)
        cells += [str(against), f"{share:.0%} of {sum(map(abs, people.values()))}"]
    return cells


JUDGES = {
    "GPT-4o": "gpt_4o",
    "GPT-4-turbo": "gpt-4-turbo",
    "GPT-3.5-turbo": "gpt-3.5-turbo",
    "TrueTeacher": "trueteacher",
    "HHEM-2.1": "hhem-2.1-english",
}


@cache
def faithbench(folder: Path) -> tuple[list[Sample], dict[str, list[float]], dict[str, dict[str, list[float]]]]:
    """Return the sources as samples, people's labels by system, and recorded scores by judge and system.

    A summary is clean (1) if no annotation calls a part of it unwanted.
    """
    by_source: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        for one in json.loads(path.read_text(encoding="utf-8"))["samples"]:
            by_source.setdefault(one["source"], {})[one["metadata"]["summarizer"]] = one
    systems = sorted({name for own in by_source.values() for name in own})
    sources = [source for source, own in by_source.items() if len(own) == len(systems)]
    samples = [Sample(id=str(n), question="Summarise the text.", contexts=[text]) for n, text in enumerate(sources)]

    def is_clean(one: Mapping[str, Any]) -> float:
        return float(not any(label.startswith("Unwanted") for mark in one["annotations"] for label in mark["label"]))

    human = {name: [is_clean(by_source[source][name]) for source in sources] for name in systems}
    judged = {
        judge: {name: [float(by_source[source][name]["metadata"][key]) for source in sources] for name in systems}
        for judge, key in JUDGES.items()
    }
    judged["word overlap"] = {}
    for name in systems:
        answers = [one.model_copy(update={"answer": by_source[one.contexts[0]][name]["summary"]}) for one in samples]
        judged["word overlap"][name] = [value or 0.0 for value in by_judge(answers)]
    jury = ("GPT-4o", "GPT-4-turbo", "TrueTeacher")
    judged["jury of GPT-4o, GPT-4-turbo, TrueTeacher"] = {
        name: [float(sum(votes) > 1.5) for votes in zip(*(judged[one][name] for one in jury), strict=True)]
        for name in systems
    }
    return samples, human, judged


def flat(values: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the values of all systems in one list."""
    return [value for own in values.values() for value in own]


def faithbench_agreement(folder: Path) -> Iterator[list[str]]:
    """Yield a row for each judge: mean score, AUC and kappa against the labels of all summaries."""
    samples, human, judged = faithbench(folder)
    units = [sample.id for _ in human for sample in samples]
    labels = flat(human)
    for name, own in judged.items():
        found = agreement(flat(own), labels, cluster=units)
        yield [
            name,
            f"{fmean(flat(own)):.3f}",
            f"{fmean(labels):.3f}",
            estimate(found, "auc"),
            estimate(found, "kappa"),
        ]


def faithbench_verdicts(folder: Path) -> Iterator[list[str]]:
    """Yield a row for each judge about its verdicts on two of ten systems."""
    samples, human, judged = faithbench(folder)
    for name, own in judged.items():
        yield verdict_row(name, human, own, samples, [60])


def mtrag_verdicts(path: Path) -> Iterator[list[str]]:
    """Yield a row for each recorded score about its verdicts on two of three systems."""
    samples, annotations = mtrag(path)
    people = [fmean(own) for own in grades_of(annotations)]
    scores = {
        "RAGAS faithfulness": recorded(annotations, "rl_f"),
        "judge of RAD-Bench": recorded(annotations, "rb_llm"),
    }
    scores["word overlap"] = mtrag_overlap(path)
    systems = list(dict.fromkeys(sample.metadata["model"] for sample in samples))
    places = {name: [n for n, one in enumerate(samples) if one.metadata["model"] == name] for name in systems}
    questions = [samples[place].model_copy(update={"answer": None}) for place in places[systems[0]]]

    def of_systems(values: Sequence[float | None]) -> dict[str, list[float]]:
        mean = fmean(value for value in values if value is not None)
        by_task = {(one.id, one.metadata["model"]): value for one, value in zip(samples, values, strict=True)}
        found = {name: [by_task[question.id, name] for question in questions] for name in systems}
        return {name: [mean if value is None else value for value in own] for name, own in found.items()}

    for name, values in scores.items():
        yield verdict_row(name, of_systems(people), of_systems(values), questions, [60, 100], width=3.0)


def coverage(human: Sequence[float], judge: Sequence[float], labels: int, scale: tuple[float, float]) -> list[str]:
    """Return coverage and width of `calibrate` over draws of some labels, and the width of the labels alone."""
    random, hits, widths, alone = Random(1), [], [], []
    for _ in range(DRAWS):
        drawn = set(random.sample(range(len(human)), labels))
        known = [(human[place], judge[place]) for place in sorted(drawn)]
        found = calibrate(known, [judge[n] for n in range(len(human)) if n not in drawn], scale=scale)
        hits.append(found.low <= fmean(human) <= found.high)
        widths.append(found.high - found.low)
        alone.append(found.classical_high - found.classical_low)
    return [f"{fmean(hits):.3f}", f"{fmean(widths):.3f}", f"{fmean(widths) / fmean(alone):.2f}"]


def calibrations(folder: Path | None, path: Path | None) -> Iterator[list[str]]:
    """Yield a row for each set, judge and number of labels."""
    sets: list[tuple[str, str, Sequence[float], Sequence[float], tuple[float, float]]] = []
    if folder is not None:
        _, human, judged = faithbench(folder)
        sets += [("FaithBench", name, flat(human), flat(own), (0.0, 1.0)) for name, own in judged.items()]
    if path is not None:
        _, annotations = mtrag(path)
        people = [fmean(own) for own in grades_of(annotations)]
        for name, values in (("RAGAS", recorded(annotations, "rl_f")), ("word overlap", mtrag_overlap(path))):
            known = [(label, value) for label, value in zip(people, values, strict=True) if value is not None]
            sets.append(("MTRAG", name, [label for label, _ in known], [value for _, value in known], (1.0, 4.0)))
    for where, name, labels, values, scale in sets:
        for count in (20, 40, 100):
            yield [where, name, str(count), *coverage(labels, values, count, scale)]


# TREC RAG 2026, development set: relevance grades of three judges


def grades(path: Path) -> dict[tuple[str, str], float]:
    """Return the grades of a file of qrels by topic and document, from 0 to 1."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {(line[0], line[2]): int(line[3]) / 4 for line in lines}


def audits(folder: Path) -> Iterator[list[str]]:
    """Yield a row for each cheaper judge: how often the audit of 2,000 judgements covers the stronger judge's mean.

    The mean is that of all judgements, from which the 2,000 are drawn: an audit estimates the mean of samples like
    those of the run. The estimate is computed as `Report.audit` does, which the first draw verifies.
    """
    files = {path.name.split("umbrela-")[1].removesuffix(".qrels"): path for path in sorted(folder.rglob("*.qrels"))}
    strong = grades(next(path for name, path in files.items() if name.startswith("codex")))
    for name, path in files.items():
        if name.startswith("codex"):
            continue
        cheap = grades(path)
        keys = sorted(strong.keys() & cheap.keys())
        judges = [np.array([by[key] for key in keys]) for by in (cheap, strong)]
        mean, rng = float(judges[1].mean()), np.random.default_rng(2)
        hits, widths = [], []
        for number in range(AUDITS):
            drawn = rng.choice(len(keys), 2_000, replace=False)
            own, its = (values[drawn].tolist() for values in judges)
            found = prediction_powered_mean(its[:AUDITED], own[:AUDITED], own[AUDITED:])
            if not number:
                audit = audit_of(own, its[:AUDITED])
                assert np.allclose((found.low, found.high), (audit.low, audit.high))
            hits.append(found.low <= mean <= found.high)
            widths.append(found.high - found.low)
        error = 1.96 * (fmean(hits) * (1 - fmean(hits)) / AUDITS) ** 0.5
        shown = (f"{judges[0].mean():.3f}", f"{mean:.3f}", f"{fmean(hits):.3f} ± {error:.3f}", f"{fmean(widths):.3f}")
        yield [name, *shown]


def audit_of(values: Sequence[float], audited: Sequence[float]) -> MetricAudit:
    """Return the audit of a report of recorded values, of which the strong judge scored the first ones."""
    report = scored("ranking", [Sample(question=f"{n}?") for n in range(len(values))], values)
    strong = ({"metric": Score(metric="metric", aspect="ranking", value=value)} for value in audited)
    rows = [row.model_copy(update={"audit": next(strong, {})}) for row in report.rows]
    return Report(rows).audit["metric"]


# Word overlap on sets that ask for a model


def attribution(path: Path) -> tuple[list[Sample], list[float]]:
    """Return claims with their sources, and whether people find them attributable."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    samples = [
        Sample(id=row["id"], question=row["question"], answer=row["claim"], contexts=row["references"]) for row in rows
    ]
    return samples, [float(row["attribution_label"] == "attributable") for row in rows]


def ragtruth(path: Path) -> tuple[list[Sample], list[float]]:
    """Return answers with their passages, and whether people marked no part of them."""
    samples, labels = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for number, one in enumerate(row["responses"]):
            name, source = f"{row['source_id']}-{number}", row["source"]
            sample = {"question": source["question"], "contexts": [source["passages"]], "answer": one["response"]}
            samples.append(Sample(id=name, **sample))
            labels.append(float(not one["labels"]))
    return samples, labels


def overlap(name: str, samples: Sequence[Sample], labels: Sequence[float], judge: Judge | None) -> list[str]:
    """Return a row about word overlap and about a judge on a set of binary labels."""
    found = agreement(by_judge(samples), labels)
    live = NOT_RUN if judge is None else f"{estimate(agreement(by_judge(samples, judge), labels), 'auc')}"
    return [name, str(found.pairs), f"{fmean(labels):.3f}", estimate(found, "auc"), live]


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mtrag", "faithbench", "trec", "attribution", "ragtruth"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--judge", help="judge of our metrics, named as in `rageval evaluate --judge`")
    parser.add_argument("--base-url", help="its server, such as http://localhost:8000/v1")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(words)
    judge = load_judge(given.judge, base_url=given.base_url) if given.judge else None
    decided = "pairs of systems | judge decides | people agree | people say the contrary | people do not decide"
    labelled = "of {} labels: ever contradict people | confirm people's decisions"
    sets = (
        ("AttributionBench, test", attribution, given.attribution),
        ("RAGTruth, question answering", ragtruth, given.ragtruth),
    )
    parts: dict[str, tuple[str, Iterable[list[str]] | None]] = {
        "mtrag": (
            "score | answers | Spearman | Pearson",
            given.mtrag and mtrag_agreement(given.mtrag, judge, given.judge),
        ),
        "faithbench": (
            "judge | mean score | mean label | AUC | kappa",
            given.faithbench and faithbench_agreement(given.faithbench),
        ),
        "verdicts": (
            f"judge | {decided} | {labelled.format(60)}",
            given.faithbench and faithbench_verdicts(given.faithbench),
        ),
        "mtrag-verdicts": (
            f"score | {decided} | {labelled.format(60)} | {labelled.format(100)}",
            given.mtrag and mtrag_verdicts(given.mtrag),
        ),
        "calibrate": (
            "set | judge | labels | coverage | width | of the labels alone",
            calibrations(given.faithbench, given.mtrag) if given.faithbench or given.mtrag else None,
        ),
        "audit": ("cheaper judge | its mean | mean of GPT-5.5 | coverage | width", given.trec and audits(given.trec)),
        "overlap": (
            "set | answers | share supported | AUC of word overlap | our metrics by a judge",
            (overlap(name, *read(path), judge) for name, read, path in sets if path)
            if given.attribution or given.ragtruth
            else None,
        ),
    }
    for name, (heading, rows) in parts.items():
        if rows:
            rule = "|---" * (heading.count("|") + 1) + "|"
            markdown = "\n".join([f"| {heading} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])
            if given.write:
                write_between(PAGE, f"<!-- {name} -->", f"<!-- end of {name} -->", markdown)
            else:
                print(f"{name}\n\n{markdown}\n", flush=True)


if __name__ == "__main__":
    main()
