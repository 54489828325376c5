"""Reports with all kinds of scores and findings, for tests of pages, plots and tables."""

from html.parser import HTMLParser

from helpers.reports import INSTRUMENT

from langchain_rageval import Finding, Report, Row, Sample, Score
from langchain_rageval.data.schema import Failure

HOSTILE = "<script>alert('1')</script> & \"quotes\" <img src=x onerror=y>"

CONTEXTS = ["Munich is the capital of Bavaria. It lies on the Isar.", "The Elbe flows through Dresden.", ""]


def statement(number, text, verdict, cites=(), kind="statement"):
    return Finding(kind=kind, number=number, text=text, verdict=verdict, reason=f"why {verdict}", cites=list(cites))


FINDINGS = [
    statement(1, "Munich lies on the Isar.", "supported", ["1.2"]),
    statement(2, "It lies in Saxony.", "contradicted", ["1.1", "2.1"]),
    statement(3, "It is old.", "absent"),
]


def sample(number, **others):
    defaults = {"id": f"sample-{number}", "question": f"Question {number}?", "answer": f"Answer {number} with Ёлка"}
    return Sample(**defaults | {"contexts": CONTEXTS, "references": ["It is on the Isar."]} | others)


def score(value, metric="faithfulness", **others):
    defaults = {"aspect": "grounding", "reason": "1 of 3.", "findings": FINDINGS, "instrument": INSTRUMENT}
    return Score(metric=metric, value=value, **defaults | others)


def report(values, **others):
    """Return a report with a row for each value; claim_noise fails in row 0 and is unscored in row 1."""
    rows = []
    for place, value in enumerate(values):
        noise = {"metric": "claim_noise", "aspect": "grounding", "direction": "lower", "instrument": INSTRUMENT}
        if place == 0:
            failure = Failure(
                error="JudgeOutputError", message="no JSON", step="verify_statements", raw_output="<oops>"
            )
            other = Score(**noise, failure=failure)
        else:
            other = Score(**noise, unscored="the answer states no facts") if place == 1 else Score(**noise, value=0.25)
        rows.append(Row(index=place, sample=sample(place), scores={"faithfulness": score(value), "claim_noise": other}))
    return Report(rows, **others)


class Tags(HTMLParser):
    """Tags and texts of HTML, whose tags have no attributes."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not attrs

    def handle_data(self, data):
        self.texts.append(data)
