"""Which metrics `--metrics` selects: presets, all, rankings, and a user's own by module or entry point."""

import gzip
import json
import sys

import pytest
from helpers.each import each
from helpers.offline import ROWS
from helpers.samples import SAMPLE
from helpers.texts import expected, unpacked

from langchain_rageval import Report
from langchain_rageval.cli.selection import parse_metric_names
from langchain_rageval.metrics import ALIASES, ASPECTS, BUILDERS, PRESETS, RANKINGS, SCORES

SEPARATE = {"aspect_critique", "conversation_metrics"}


EVERY_SCORE = [*(score for name in BUILDERS if name not in SEPARATE for score in SCORES.get(name, [name])), *ASPECTS]


@pytest.fixture
def answers(tmp_path):
    """The 446 real answers, Russian and English."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.decompress(ROWS.read_bytes()))
    return path


@pytest.mark.parametrize("number", [30, pytest.param(None, marks=pytest.mark.gate)], ids=["some", "all"])
def test_all_metrics_of_real_answers(scored, answers, tmp_path, number):
    lines = answers.read_text(encoding="utf-8").splitlines()
    answers.write_text("\n".join(lines[:number]), encoding="utf-8")
    names, complaints = scored(answers, "--metrics", "all")
    assert [*names] == EVERY_SCORE
    assert complaints == ""
    summary = Report.load(tmp_path / "out.jsonl").summary()
    assert {metric.failed for metric in summary.values()} == {0}
    unscored = {name for name, metric in summary.items() if metric.unscored}
    claims = {*SCORES["claim_metrics"], *SCORES["noise_sensitivity"], *SCORES["citations"]}
    expected = {"faithfulness", "context_entity_recall"}
    assert unscored - claims == expected if number is None else unscored - claims <= expected


def test_all_has_the_metrics_of_conversations_if_a_sample_has_a_history(scored, written):
    chat = {**SAMPLE, "history": [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Hi."}]}
    names, _ = scored(written(chat), "--metrics", "all")
    assert {name for name in names if name.startswith("conversation_")} == {*SCORES["conversation_metrics"]}


def test_a_preset_scores_each_sample_with_the_metrics_whose_fields_it_has(scored, written, tmp_path):
    path = written(SAMPLE, {**SAMPLE, "references": ["Munich is old."]}, {"question": "Q?", "answer": "Munich is old."})
    names, _ = scored(path, "--metrics", "core")
    assert [*names] == [*PRESETS["core"]]
    report = Report.load(tmp_path / "out.jsonl")
    counts = {name: (metric.scored, metric.unscored) for name, metric in report.summary().items()}
    assert counts["faithfulness"] == (2, 1)
    assert counts["context_recall"] == counts["answer_correctness"] == (1, 2)
    assert counts["answer_relevance"] == (3, 0)
    assert [note for note in report.notes if "lack a field" in note] == [
        "1 of 3 samples lack a field of faithfulness, context_precision.",
        "2 of 3 samples lack a field of context_recall, answer_correctness.",
    ]


def test_a_preset_leaves_out_what_no_sample_can_be_scored_by(scored, written):
    names, complaints = scored(written(SAMPLE, SAMPLE | {"question": "Q?"}), "--metrics", "core")
    assert [*names] == ["faithfulness", "answer_relevance", "context_precision"]
    assert "context_recall left out: no sample has references; --fields maps other names\n" in complaints


@pytest.mark.usefixtures("default_metrics")
def test_core_is_the_default_and_a_gated_metric_of_it_is_not_optional(rageval, scored, written):
    path = written(SAMPLE, {"question": "Q?", "answer": "Munich is old."})
    assert [*scored(path)[0]] == ["faithfulness", "answer_relevance", "context_precision"]
    code, _, complaints = rageval("evaluate", path, "--judge", "offline", "--fail-under", "faithfulness=0.4")
    assert (code, "failed" in complaints) == (1, True), complaints


def test_all_metrics_without_a_scorable_sample_is_an_error(rageval, written):
    code, _, complaints = rageval("evaluate", written({"question": "Q?"}), "--metrics", "all")
    assert (code, "no metric can score these samples; add answer, contexts or references" in complaints) == (2, True)


GIVEN = [
    ("harmfulness, coherence", ["harmfulness", "coherence"]),
    ("aspect_critique", list(ASPECTS)),
    ("coherence,aspect_critique", ["coherence", *(aspect for aspect in ASPECTS if aspect != "coherence")]),
    ("faithfulness,faithfulness", ["faithfulness"]),
    ("answer_relevance,context_precision", ["answer_relevance", "context_precision"]),
]


@each(("given", "names"), GIVEN)
def test_metrics_are_named_in_any_order_and_aspects_by_their_own_names(scored, written, given, names):
    assert [*scored(written(SAMPLE), "--metrics", given)[0]] == names


def test_embeddings_are_named_when_the_judge_is_a_real_one(scored, written, judged):
    judge = ["--metrics", "answer_relevance", *judged()[1]]
    assert [*scored(written(SAMPLE), *judge, "--embeddings", "offline")[0]] == ["answer_relevance"]
    names, complaints = scored(written(SAMPLE), *judge, "--metrics", "all")
    by_judge = [*SCORES["citations"], "rubric", "answer_completeness", *ASPECTS]
    assert [*names] == ["faithfulness", "context_precision", "context_relevance", *by_judge]
    assert "answer_relevance, answer_similarity, answer_correctness left out: no embeddings" in complaints


def test_a_gate_may_name_a_score_of_claim_metrics(rageval, scored, written):
    path = written({**SAMPLE, "references": ["Munich was founded in 1158."]})
    given = ["--judge", "offline", "--metrics", "claim_metrics,noise_sensitivity"]
    names, _ = scored(path, *given, "--fail-under", "claim_hallucination=1")
    assert [*names] == [*SCORES["claim_metrics"], *SCORES["noise_sensitivity"]]
    assert rageval("evaluate", path, *given, "--fail-under", "claim_f1=1.1")[0] == 1


def test_all_leaves_out_what_is_not_installed_and_metrics_of_one_suite_in_one_line(scored, written, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    names, complaints = scored(written(SAMPLE), "--metrics", "all")
    assert {"bleu", "chrf", "faithfulness"} & {*names} == {"faithfulness"}
    assert "bleu left out: bleu needs sacrebleu: pip install sacrebleu" in complaints
    lacking = [line for line in complaints.splitlines() if "no sample has references" in line]
    assert sum("claim_" in line for line in lacking) == 1
    suites = ", ".join([*SCORES["claim_metrics"], "noise_sensitivity_relevant"])
    assert f"{suites} left out: no sample has references" in complaints


def test_metrics_lists_one_name_a_line_first(rageval):
    code, told, complaints = rageval("metrics")
    assert (code, complaints) == (0, "")
    assert [line.split()[0] for line in told.splitlines()] == [*BUILDERS, *ASPECTS, *(f"{name}@K" for name in RANKINGS)]
    assert "the share of the answer's statements that the contexts support" in told


# Metrics of ranked lists

RANKED = {"question": "Когда основан Мюнхен?", "contexts": ["Город стоит на реке.", "Мюнхен основан в 1158 году."]}
RANKED |= {"context_ids": ["a", "b"], "reference_context_ids": ["b"], "relevance": {"b": 4}}


@pytest.fixture
def sample(written):
    """Return a file with a sample."""
    return written(RANKED)


@each(
    ("grader", "best"),
    [([], "1"), (["--grader", "ids"], "1"), (["--grader", "labels"], "4"), (["--grader", "llm"], "3")],
)
def test_the_grader_is_chosen_by_name(scored, sample, grader, best):
    scores, _ = scored(sample, "--metrics", "ndcg@5,mrr@10,mean_grade@2", *grader)
    assert list(scores) == ["ndcg@5", "mrr@10", "mean_grade@2"]
    assert scores["mrr@10"].value == 0.5
    assert next(f.verdict for f in scores["ndcg@5"].findings if f.text == "best grade") == best


def test_the_embedding_grader_compares_embeddings(scored, sample):
    assert 0 < scored(sample, "--metrics", "ndcg@5", "--grader", "embedding")[0]["ndcg@5"].value < 1


def test_a_real_judge_grades_all_metrics_by_one_call(scored, sample, judged):
    server, judge = judged()
    scores, _ = scored(sample, "--metrics", "ndcg@5,ndcg@1,recall@5,mrr@10", "--grader", "llm", *judge)
    assert [score.usage.calls for score in scores.values()].count(1) == server.calls == 1


def test_a_run_with_judgments_is_scored_as_trec_eval_does_and_topics_name_its_questions(scored, tmp_path):
    run, qrels = unpacked("run.txt", tmp_path), unpacked("qrels_graded.txt", tmp_path)
    scores, _ = scored(run, "--qrels", qrels, "--metrics", "ndcg@10,ndcg@100", "--gain", "linear")
    printed = {e["measure"]: f"{e['value']:.4f}" for e in expected() if (e["run"], e["qrels"]) == ("full", "graded")}
    assert [f"{score.value:.4f}" for score in scores.values()] == [printed["ndcg_cut_10"], printed["ndcg_cut_100"]]

    (topics := tmp_path / "topics.tsv").write_text("301\tМеждународная преступность\n", encoding="utf-8")
    scores, _ = scored(run, "--qrels", qrels, "--topics", topics, "--metrics", "ndcg@10")
    assert scores["ndcg@10"].reason.startswith("Лучшая оценка")


def test_a_gate_names_a_ranking(rageval, sample):
    gate = ["--metrics", "mrr@5", "--quiet", "--fail-under"]
    assert rageval("evaluate", sample, *gate, "mrr@5=0.5")[0] == 0
    assert rageval("evaluate", sample, *gate, "mrr@5=0.6")[0] == 1


def test_a_run_is_resumed(rageval, tmp_path):
    run, qrels = unpacked("run.txt", tmp_path), unpacked("qrels_graded.txt", tmp_path)
    journal = ["--journal", tmp_path / "run.db", "--quiet"]
    assert rageval("evaluate", run, "--qrels", qrels, "--metrics", "ndcg@10", *journal)[0] == 0
    code, out, _ = rageval("resume", *journal[1:])
    assert (code, "ndcg@10" in out) == (0, True)


def test_names_of_other_libraries_lead_to_ours():
    named = parse_metric_names("groundedness, answer_relevancy,faithfulness")
    assert list(named.items()) == [("faithfulness", False), ("answer_relevance", False)]
    assert parse_metric_names("core,groundedness") == dict.fromkeys(PRESETS["core"], True) | {"faithfulness": False}
    assert set(ALIASES.values()) <= set(BUILDERS)


# Metrics of a user: MODULE:NAME, and entry points of installed packages

BAT = {"question": "What is a bat?", "answer": "An animal."}


OWN = ("helpers.own.short_enough:short_enough", "helpers.own.politeness:politeness", "helpers.own.tone:tone")


def test_they_are_evaluated_planned_gated_and_resumed_beside_those_of_the_package(rageval, scored, written, tmp_path):
    metrics = ["--metrics", ",".join(["faithfulness", *OWN])]
    samples = written({**BAT, "contexts": ["A bat is an animal."]})
    code, planned, complaints = rageval("plan", samples, *metrics, "--json")
    assert (code, complaints) == (0, "")
    calls = [json.loads(planned)["metrics"][name]["calls"] for name in ("short_enough", "politeness", "tone")]
    assert calls == [0, 1, 1]
    given = [*metrics, "--judge", "offline", "--journal", tmp_path / "j.db"]
    scores, _ = scored(samples, *given, "--fail-under", "politeness=0.5")
    assert [scores[name].value for name in ("short_enough", "politeness", "tone")] == [1.0] * 3
    assert rageval("resume", tmp_path / "j.db", "--budget-calls", "0")[0] == 0
    assert Report.load(tmp_path / "out.jsonl").rows[0].scores == scores


def test_a_module_is_found_in_the_working_directory(scored, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    source = "from langchain_rageval import metric\n\n@metric(reads={'answer'})\ndef brief(sample):\n    return True\n"
    (tmp_path / "beside_it.py").write_text(source, encoding="utf-8")
    assert scored(written(BAT), "--metrics", "beside_it:brief")[0]["brief"].value == 1.0


def test_an_entry_point_of_a_package_is_listed_and_used(rageval, scored, written, tmp_path, monkeypatch):
    info = tmp_path / "polite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[langchain_rageval.metrics]\nkindness = {OWN[1]}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    _, listed, _ = rageval("metrics")
    assert listed.splitlines()[-1].split(maxsplit=1) == ["kindness", "helpers.own.politeness:politeness of polite"]
    assert [*scored(written(BAT), "--metrics", "kindness")[0]] == ["politeness"]
