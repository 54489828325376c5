"""The note of a report whose samples are turns of conversations."""

from langchain_rageval import OfflineJudge, Sample, abstention, evaluate

NOTE = "3 samples are turns of 2 conversations: the intervals treat conversations, not samples, as independent."


def samples(*conversations):
    metadata = [{"conversation": name} if name else {} for name in conversations]
    return [
        Sample(id=str(place), question="Why?", answer="So.", references=["So."], metadata=m)
        for place, m in enumerate(metadata)
    ]


def notes(given, **options):
    return evaluate(given, [abstention(OfflineJudge())], **options).notes


def test_a_report_says_that_its_intervals_count_conversations_of_several_samples(tmp_path):
    given = samples("a", "a", None, "b")
    assert NOTE in notes(given)
    assert NOTE in notes(given, out=tmp_path / "report.jsonl")
    assert NOTE in repr(evaluate(given, [abstention(OfflineJudge())]))
    assert not any("conversations" in note for note in notes(samples("a", "b", None)))
    assert NOTE.replace("3", "2").replace("2 conversations", "1 conversation") in notes(samples("a", "a"))
