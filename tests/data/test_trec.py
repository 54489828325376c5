import logging
import re

import pytest
from helpers.each import each, error_of
from helpers.texts import expected, unpacked

from langchain_rageval import (
    ConfigError,
    SampleError,
    hit_rate_at,
    label_grader,
    load_samples,
    map_at,
    mrr_at,
    ndcg_at,
    precision_at,
    recall_at,
)

METRICS = {
    "ndcg_cut": lambda k, _: ndcg_at(k, label_grader(), gain="linear"),
    "map_cut": lambda k, least: map_at(k, label_grader(), threshold=least),
    "P": lambda k, least: precision_at(k, label_grader(), threshold=least),
    "recall": lambda k, least: recall_at(k, label_grader(), threshold=least),
    "success": lambda k, least: hit_rate_at(k, label_grader(), threshold=least),
    "recip_rank": lambda k, least: mrr_at(k, label_grader(), threshold=least),
}
METRICS |= {name: METRICS[f"{name}_cut"] for name in ("ndcg", "map")}


@pytest.fixture
def written(tmp_path):
    def write(name, *lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def ids(sample):
    return sample.context_ids


def test_metrics_of_a_run_are_what_trec_eval_prints(tmp_path):
    whole = (
        e | {"measure": e["measure"] if e["measure"][-1].isdigit() else f"{e['measure']}_1000"} for e in expected()
    )
    cases = [(e, *e["measure"].rpartition("_")[::2]) for e in whole]
    assert len(cases) > 100
    for run, qrels in {(e["run"], e["qrels"]) for e, _, _ in cases}:
        name = "run.txt" if run == "full" else f"run_{run}.txt"
        (sample,) = load_samples(unpacked(name, tmp_path), qrels=unpacked(f"qrels_{qrels}.txt", tmp_path))
        for e, measure, k in cases:
            if (e["run"], e["qrels"]) == (run, qrels):
                value = METRICS[measure](int(k), e["rel_threshold"]).invoke(sample).value
                assert f"{value:.4f}" == f"{e['value']:.4f}", e


def test_documents_are_ordered_by_descending_score_then_id_and_the_rank_is_ignored(written):
    lines = ("q1 Q0 b 1 0.5 me", "q2 Q0 x 1 -3 me", "q1 Q0 a 2 0.5 me", "q1 Q0 c 3 2 me", "", "q2 Q0 y 2 -2 me")
    ties = ("q3 Q0 a 1 0.10000000002 me", "q3 Q0 b 2 0.1 me", "q3 Q0 я 3 0.1 me")  # equal as 32-bit floats
    path = written("a.run", *lines, "q1\tQ0\td\t4\t1e-3\tme", *ties)
    assert [(s.id, s.question, ids(s), s.relevance, s.contexts) for s in load_samples(path)] == [
        ("q1", "q1", ["c", "b", "a", "d"], None, None),
        ("q2", "q2", ["y", "x"], None, None),
        ("q3", "q3", ["я", "b", "a"], None, None),
    ]


def test_a_topic_without_documents_counts_and_one_without_judgments_is_omitted(written, caplog):
    run = written("run.txt", "q1 Q0 a 1 1 me", "q2 Q0 a 1 1 me")
    qrels = written("qrels.txt", "q1 0 a 2", "q1 0 b -1", "q3 0 c 1")
    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        samples = list(load_samples(run, qrels=qrels))
    assert [(s.id, ids(s), s.relevance) for s in samples] == [("q1", ["a"], {"a": 2, "b": -1}), ("q3", [], {"c": 1})]
    assert "run.txt: topics without judgments are omitted: q2" in caplog.text
    scores = [ndcg_at(5, label_grader()).invoke(sample) for sample in samples]
    assert [score.value for score in scores] == [1.0, 0.0]
    assert scores[1].reason == "Nothing was retrieved."


def test_topics_give_the_questions(written):
    run = written("a.trec", "1 Q0 a 1 1 me", "2 Q0 a 1 1 me")
    topics = written("topics.tsv", "1\tКак застраховать баню?")
    for given in ({"1": "Как застраховать баню?"}, topics, str(topics)):
        found = [(s.question, s.metadata) for s in load_samples(run, topics=given)]
        assert found == [("Как застраховать баню?", {"topic": "1"}), ("2", {"topic": "2"})]


@each(
    ("line", "problem"),
    [
        ("q Q0 a 1 1", "a line of a TREC run has 6 columns: topic, Q0, document, rank, score and run; got 5"),
        ("q Q0 a 1 high me", "the score 'high' is not a number"),
        ("q Q0 a 1 nan me", "the score 'nan' is not finite"),
        ("q Q0 b 1 2 me", "document b appears twice for topic q"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number_or_skipped(written, caplog, line, problem):
    run = written("a.run", "q Q0 b 1 1 me", line)
    error = error_of(SampleError, lambda: [*load_samples(run)])
    assert str(error) == f"a.run, line 2: {problem}"
    assert [ids(sample) for sample in load_samples(run, on_error="skip")] == [["b"]]
    assert caplog.messages[-1] == f"skipped {error}"


@each(
    ("line", "problem"),
    [
        ("q a 1", "a line of TREC qrels has 4 columns: topic, 0, document and grade; got 3"),
        ("q 0 a good", "the grade 'good' is not a number"),
        ("q 0 b 2", "document b is judged twice for topic q"),
    ],
)
def test_invalid_judgments_are_rejected(written, line, problem):
    run, qrels = written("a.run", "q Q0 b 1 1 me"), written("qrels.txt", "q 0 b 1", line)
    error = error_of(ConfigError, lambda: [*load_samples(run, qrels=qrels)])
    assert str(error) == f"qrels.txt, line 2: {problem}: correct the judgments"


def test_options_that_do_not_fit_the_file_are_rejected_at_the_call(written, tmp_path):
    run, samples = written("a.run", "q Q0 b 1 1 me"), written("a.jsonl", '{"question": "q"}')
    topics = written("topics.tsv", "no tab")
    only = "qrels and topics apply only to TREC runs; put relevance and question into the samples"
    for path, options, message in (
        (samples, {"qrels": run}, only),
        (samples, {"topics": {"q": "?"}}, only),
        (run, {"fields": {"question": "q"}}, "fields do not apply to TREC runs, whose columns are fixed; omit them"),
        (run, {"qrels": tmp_path / "nowhere"}, "nowhere does not exist: pass the path of an existing file"),
        (run, {"topics": tmp_path}, "is a directory: pass the path of an existing file"),
    ):
        with pytest.raises(ConfigError, match=f"{re.escape(message)}$"):
            load_samples(path, **options)
    error = error_of(ConfigError, lambda: [*load_samples(run, topics=topics)])
    assert str(error) == "topics.tsv, line 1: expected id, tab and question, got 'no tab'"
