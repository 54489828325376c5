"""From what came of the asks to figures, without a model."""

from collections import Counter

from langchain_rageval.data.schema import Usage
from langchain_rageval.trust.ask import Ask, Told
from langchain_rageval.trust.examination import Given
from langchain_rageval.trust.items import Item, Label
from langchain_rageval.trust.recording_judge import Notes
from langchain_rageval.trust.step_statistics import step_figures

LABELS = (
    Label(accepted=("supported",), evidence=("2",)),
    Label(accepted=("contradicted", "absent")),
    Label(accepted=()),
)
ITEM = Item(id="i", step="verify_statements", source="", labels=LABELS, contexts=("a", "b"))


def told(*verdicts, variant="plain", time=0, cites=("2.1",), **more):
    given = [Given(verdict, cites if verdict == "supported" else ()) for verdict in verdicts]
    notes = Notes(Counter(json_schema=1), again=more.pop("again", False))
    return Told(Ask(ITEM, variant, time), given, notes, **more)


def figures(*told):
    return step_figures("verify_statements", told, 0.5, Usage(calls=len(told), input_tokens=7, seconds=1.5))


def test_right_is_what_the_first_ask_has_right_of_what_is_labelled():
    found = figures(told("supported", "absent", "supported"), told("absent", "absent", "absent", time=1))
    assert (found.right.hits, found.right.of) == (2, 2)
    assert found.said == {"supported": 1, "absent": 1}
    assert found.flips.value == 0.5
    assert (found.rung, found.calls, found.tokens, found.seconds) == ("json_schema", 2, 7, 1.5)


def test_flips_are_the_pairs_of_asks_that_do_not_agree():
    asks = [
        told(verdict, "absent", "absent", time=time) for time, verdict in enumerate(["supported", "absent", "absent"])
    ]
    assert figures(*asks).flips.value == (2 / 3 + 0) / 2


def test_variants_are_compared_with_the_first_ask():
    found = figures(
        told("supported", "absent", "absent"),
        told("absent", "absent", "supported", variant="reverse"),
        told("absent", "contradicted", "absent", variant="padded"),
    )
    assert (found.order_bias.value, found.length_bias.value) == (0.5, 1.0)
    assert found.right.of == 2


def test_one_answer_for_all_may_use_any_accepted_verdict():
    assert figures(told("supported", "absent", "absent")).unread == 0.5


def test_citations_count_where_the_verdict_is_right():
    found = figures(told("supported", "absent", "absent", cites=("2.1", "1.1", "2.4", "21.1")))
    assert found.citations.precision.value == 0.5
    assert found.citations.recall.value == 1.0
    assert (found.citations.first.value, found.citations.due_first) == (0.25, 0.0)
    wrong = figures(told("absent", "absent", "absent")).citations
    assert (wrong.precision.value, wrong.recall.value) == (None, None)


def test_what_the_transport_lost_counts_for_nothing_but_itself():
    lost = Told(Ask(ITEM, time=1), error="gone", lost=True)
    refused = Told(Ask(ITEM, "padded"), error="no JSON")
    found = figures(told("supported", "absent", "absent", again=True), lost, refused)
    assert (found.answered.hits, found.answered.of, found.lost, found.error) == (1, 2, 1, "gone")
    assert (found.valid.hits, found.valid.of) == (0, 2)
    assert found.length_bias.value is None
