"""`World`: a judge for claim metrics with a table of which chunk supports which statement; statements are lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.scripted import Scripted, answering, classification, human_of, statements, verdict, verdicts

from langchain_rageval import Sample
from langchain_rageval.prompts.layout import read_inputs

QUESTION = "Что покрывает страховка бани?"
FIRE, FLOOD, THEFT, METEOR, WAR = (
    f"Страховка бани покрывает {risk}." for risk in ("пожар", "залив", "кражу", "падение метеорита", "войну")
)
CONTEXTS = ["Полис покрывает пожар и кражу.", "Застрахован и пожар.", "Оговорено падение метеорита."]
SAMPLE = Sample(
    id="баня",
    question=QUESTION,
    answer="\n".join([FIRE, THEFT, METEOR, WAR]),
    contexts=CONTEXTS,
    references=["\n".join([FIRE, FLOOD])],
)
"""The answer has four statements: a right one, one from a relevant chunk, one from another chunk, one from none."""


@dataclass(frozen=True)
class World:
    """Numbers of the chunks that support or contradict each statement.

    Attributes:
        supports: statement to the numbers of the chunks that support it.
        contradicts: statement to the numbers of the chunks that contradict it.
        cites: maximum number of chunks that the judge cites.
    """

    supports: Mapping[str, Sequence[int]] = field(default_factory=lambda: {FIRE: [1, 2], THEFT: [1], METEOR: [3]})
    contradicts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cites: int = 100

    def reply(self, messages: Any) -> Any:
        """Return the reply to a request of any of the three steps of the claim graph."""
        human = human_of(messages)
        inputs = read_inputs(human)
        if "text" in inputs:
            return statements(*inputs["text"].split("\n"))
        if "statements" in inputs:
            shown = {int(number) for number in re.findall(r"^\[(\d+)\.1\]", human, re.MULTILINE)}
            return verdicts(*(self.verdict(item["statement"], item["text"], shown) for item in inputs["statements"]))
        references = {item["text"]: item["reference"] for item in inputs["reference_statements"]}
        answers = {item["answer"]: item["text"] for item in inputs["answer_statements"]}
        right = {number: [references[text]] for number, text in answers.items() if text in references}
        missed = [number for text, number in references.items() if text not in answers.values()]
        return classification(right, fp=[number for number in answers if number not in right], fn=missed)

    def verdict(self, number: int, text: str, shown: set[int]) -> Any:
        """Return the verdict on a statement, by the chunks that are shown."""
        for label, chunks in (("supported", self.supports), ("contradicted", self.contradicts)):
            deciding = [chunk for chunk in chunks.get(text, ()) if chunk in shown]
            if deciding:
                return verdict(number, label, *(f"{chunk}.1" for chunk in deciding[: self.cites]))
        return verdict(number, "absent")

    def judge(self) -> Scripted:
        """Return a new judge that records its requests."""
        return answering(self.reply)
