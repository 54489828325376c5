"""Rows of a conversation whose question was rewritten, for tests of pages and of the command line."""

from helpers.pages import sample, score

from langchain_rageval import Finding, Row

HISTORY = [("user", "Кто основал Мюнхен?"), ("assistant", "Генрих Лев.")]
QUESTION = "А когда он умер?"
STANDALONE = "Когда умер Генрих Лев?"


def judged_as(text, verdict="rewritten", reason="он — это Генрих Лев"):
    """Return the finding about the question of a conversation."""
    return Finding(kind="standalone_question", number=1, text=text, verdict=verdict, reason=reason)


def turn_row(*findings, question=QUESTION, history=HISTORY, reason="1 of 3."):
    """Return a row with a history whose two scores have these findings."""
    names = ("faithfulness", "answer_relevance")
    scores = {name: score(0.5, name, findings=list(findings), reason=reason) for name in names}
    return Row(index=0, sample=sample(0, question=question, history=history), scores=scores)
