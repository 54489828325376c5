"""step_statistics: from probe results to statistics, without a model."""

from collections import Counter

from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.trust.examination import CitedVerdict, Probe, ProbeResult, ReplyLog
from langchain_rageval.trust.fitness import step_statistics
from langchain_rageval.trust.items import Label, LabelledItem

LABELS = (
    Label(accepted=("supported",), evidence=("2",)),
    Label(accepted=("contradicted", "absent")),
    Label(accepted=()),
)
ITEM = LabelledItem(
    id="i", pair="i", step="verify_statements", kind="table", source="", labels=LABELS, contexts=("a", "b")
)


def result(*verdicts, variant="plain", repeat=0, cites=("2.1",), **more):
    given = [CitedVerdict(verdict, cites if verdict == "supported" else ()) for verdict in verdicts]
    notes = ReplyLog(Counter(json_schema=1), repeated=more.pop("repeated", False))
    return ProbeResult(Probe(ITEM, variant, repeat), given, notes, **more)


def statistics(*results):
    scored = {one.probe.item: sum(bool(label.accepted) for label in one.probe.item.labels) for one in results}
    hits = {item: dict.fromkeys(("word_overlap", "rules"), [True, False][:count]) for item, count in scored.items()}
    return step_statistics("verify_statements", results, hits, Usage(calls=len(results), input_tokens=7, seconds=1.5))


def test_right_counts_the_labelled_verdicts_of_the_first_repeat():
    found = statistics(result("supported", "absent", "supported"), result("absent", "absent", "absent", repeat=1))
    assert (found.right.hits, found.right.of) == (2, 2)
    assert found.verdicts == {"supported": 1, "absent": 1}
    assert found.flips.value == 0.5
    assert (found.output_mode, found.calls, found.tokens, found.seconds) == ("json_schema", 2, 7, 1.5)


def test_flips_are_the_pairs_of_repeats_that_disagree():
    asks = [
        result(verdict, "absent", "absent", repeat=repeat)
        for repeat, verdict in enumerate(["supported", "absent", "absent"])
    ]
    assert statistics(*asks).flips.value == (2 / 3 + 0) / 2


def test_variants_are_compared_with_the_first_repeat():
    found = statistics(
        result("supported", "absent", "absent"),
        result("absent", "absent", "supported", variant="reverse"),
        result("absent", "contradicted", "absent", variant="padded"),
    )
    assert (found.order_bias.value, found.length_bias.value) == (0.5, 1.0)
    assert found.right.of == 2


def test_the_constant_answer_is_the_verdict_that_the_most_labels_accept():
    probe = Probe(ITEM.model_copy(update={"labels": (LABELS[1], Label(accepted=("absent",)))}))
    assert statistics(ProbeResult(probe, [CitedVerdict("supported")] * 2)).constant == 1


def test_only_citations_of_right_verdicts_count():
    found = statistics(result("supported", "absent", "absent", cites=("2.1", "1.1", "2.4", "21.1")))
    assert found.citations.precision.value == 0.5
    assert found.citations.recall.value == 1.0
    assert (found.citations.first.value, found.citations.due_first) == (0.25, 0.0)
    wrong = statistics(result("absent", "absent", "absent")).citations
    assert (wrong.precision.value, wrong.recall.value) == (None, None)


def test_different_items_with_one_id_are_counted_apart():
    other = ITEM.model_copy(update={"labels": LABELS[:1]})
    twice = [ProbeResult(Probe(other, repeat=repeat), [CitedVerdict("absent")]) for repeat in (0, 1)]
    found = statistics(result("supported", "absent", "absent"), *twice)
    assert (found.right.hits, found.right.of, found.flips.of) == (2, 3, 1)


def test_transport_errors_count_only_as_lost():
    lost = ProbeResult(Probe(ITEM, repeat=1), failure=Failure(error="ConnectError", message="gone"), lost=True)
    refused = ProbeResult(Probe(ITEM, "padded"), failure=Failure(error="JudgeOutputError", message="no JSON"))
    found = statistics(result("supported", "absent", "absent", repeated=True), lost, refused)
    assert (found.answered.hits, found.answered.of, found.lost, found.error) == (1, 2, 1, "ConnectError: gone")
    assert (found.valid.hits, found.valid.of) == (0, 2)
    assert found.length_bias.value is None


def test_right_verdicts_are_counted_by_kind_of_item():
    other = ITEM.model_copy(update={"id": "j", "kind": "how-to"})
    lost = ITEM.model_copy(update={"id": "k", "kind": "list"})
    found = statistics(
        result("supported", "absent", "absent"),
        ProbeResult(Probe(other), [CitedVerdict("absent"), CitedVerdict("absent"), CitedVerdict("absent")]),
        ProbeResult(Probe(lost), failure=Failure(error="ConnectError", message="gone"), lost=True),
    )
    shares = {kind: (share.hits, share.of, share.value) for kind, share in found.right_by_kind.items()}
    assert shares == {"table": (2, 2, 1.0), "how-to": (1, 2, 0.5), "list": (0, 0, None)}
    assert [kind for kind, _ in found.weakest_kinds] == ["list", "how-to", "table"]


def test_the_hard_half_is_compared_with_each_baseline_by_pairs():
    found = statistics(
        result("supported", "absent", "absent"),
        *(
            ProbeResult(Probe(ITEM.model_copy(update={"id": name, "pair": "p", "half": "hard"})), verdicts)
            for name, verdicts in {
                "a": [CitedVerdict("supported"), CitedVerdict("absent"), CitedVerdict("absent")],
                "b": [CitedVerdict("supported"), CitedVerdict("supported"), CitedVerdict("absent")],
            }.items()
        ),
    )
    assert (found.plain.hits, found.plain.of, found.hard.hits, found.hard.of, found.hard.units) == (2, 2, 3, 4, 1)
    assert (found.right.of, found.constant, found.word_overlap, found.rules) == (6, 0.5, 0.5, 0.5)
    assert found.lead.keys() == {"constant", "word_overlap", "rules"}
    assert {mean for mean, *_ in found.lead.values()} == {0.25}
    assert all(low < 0.25 < high for _, low, high in found.lead.values())
    plain_only = statistics(result("supported", "absent", "absent"))
    assert (plain_only.hard.of, {mean for mean, *_ in plain_only.lead.values()}) == (0, {0.5})
