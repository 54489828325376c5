"""`rageval qualify`: output and exit codes."""

import json

import pytest


@pytest.mark.gate
def test_it_shows_the_steps_the_cost_and_the_verdicts(rageval, tmp_path):
    out = tmp_path / "q.json"
    code, told, complaints = rageval("qualify", "--repeats", 1, "--quiet", "--out", out)
    assert (code, complaints) == (0, "")
    assert "OfflineJudge(), HashingEmbeddings(size=512) in 'ru', each question asked once" in told
    for name in (
        "regenerate_questions",
        "measure_similarity",
        "valid at once",
        "aspect_critique unfit",
        "kind of item",
        "injection in context",
    ):
        assert name in told
    assert "…" not in told
    assert max(map(len, told.splitlines()[1:10])) <= 120
    assert "Judged offline by word overlap" in told
    assert "A third of the labelled items was asked, " in told
    assert f"Written to {out}" in told
    assert json.loads(out.read_text(encoding="utf-8"))["language"] == "ru"


def test_own_items_are_all_asked_unless_a_third_is_wanted(rageval, written):
    record = {"step": "regenerate_questions", "kind": "refusal", "answer": "I do not know that.", "gold": "evasive"}
    own = written(*({"id": f"own-{n}", **record} for n in range(6)))
    for words, asked in ((["--own", own], 6), (["--own", own, "--quick"], 2)):
        code, told, _ = rageval("qualify", *words, "--repeats", 1, "--quiet", "--json")
        assert (code, json.loads(told)["steps"]["regenerate_questions"]["right"]["of"]) == (0, asked)


def test_one_wrong_item_of_one_cannot_tell_and_other_metrics_are_only_named(rageval, written):
    texts = {"contexts": ["A card costs 40 euros."], "question": "What does a card cost?"}
    record = {"id": "own", "step": "verify_statements", "kind": "number", **texts}
    record["statements"] = [{"contradicted": "A card costs 40 euros.", "by": "A card"}]
    code, told, _ = rageval("qualify", "--own", written(record), "--language", "en", "--quiet")
    assert code == 0
    assert "faithfulness cannot tell\n" in told
    assert "rubric cannot tell" not in told
    assert "Not examined, for lack of labelled items or of --embeddings: answer_relevance, " in told
    for word in ("unfit", "qualify_judge", "the package"):
        assert word not in told


@pytest.mark.gate
def test_all_packaged_items_are_asked_on_request(rageval):
    code, told, complaints = rageval("qualify", "--language", "en", "--full", "--repeats", 1, "--quiet", "--json")
    assert (code, complaints) == (0, "")
    assert json.loads(told)["steps"]["verify_statements"]["right_by_kind"]["table"]["of"] == 16


@pytest.mark.gate
def test_it_ends_with_1_only_if_a_requirement_is_not_met(rageval):
    words = ["qualify", "--language", "en", "--repeats", 1, "--quiet", "--require", "answer_similarity=care"]
    assert rageval(*words)[0] == 0
    code, told, complaints = rageval(*words, "--require", "context_precision=fit")
    assert (code, complaints) == (1, "rageval: context_precision: required fit, got unfit\n")
    assert "grade_contexts" in told
