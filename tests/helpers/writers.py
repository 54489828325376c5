"""A rule-based writer and critic for test-set generation; tests replace single replies."""

import json
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from helpers.scripted import Scripted, human_of
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_rageval import HashingEmbeddings, OfflineJudge
from langchain_rageval.prompts.layout import read_inputs, read_title
from langchain_rageval.testset import Passage, TestsetGenerator

TOPICS = ("поле", "щавель", "глинозём", "кирпич", "свирель", "якорь", "мельница", "оброк", "полис", "ипотека")


class Writer:
    """Model that replies to every step by a rule; `changed` maps the title of a schema to a function that replaces it.

    The function receives the inputs and the number of earlier requests with this title; None falls back to the rule.
    """

    def __init__(self, **changed: Callable[[dict[str, Any], int], Any]) -> None:
        self.changed = changed
        self.calls = Counter[str]()
        self.model = Scripted(answer=self.answer)

    def answer(self, messages: Any) -> Any:
        human = human_of(messages)
        title, inputs = read_title(human), {**read_inputs(human), "shown": human}
        before = self.calls[title]
        self.calls[title] += 1
        given = self.changed[title](inputs, before) if title in self.changed else None
        if isinstance(given, Exception | str):
            return given
        return json.dumps(given if given is not None else RULES[title](inputs), ensure_ascii=False)

    @property
    def total(self) -> int:
        return self.calls.total()


def _question(inputs: dict[str, Any]) -> dict[str, Any]:
    if "keyphrase" in inputs:
        return {"question": f"Что известно о {inputs['keyphrase']}?"}
    if "feedback" in inputs:
        return {"question": f"{inputs['question'].rstrip('?')}, точнее?"}
    if "passages" in inputs:
        return {"question": f"{inputs['question'].rstrip('?')}, и при чём тут {inputs['passages'][-1]['text'][:20]}?"}
    return {"question": inputs["question"].replace("Что известно о", "Что такое")}


RULES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "PassageGrades": lambda _: {"reason": "ясно", "clarity": 2, "depth": 2, "structure": 2, "relevance": 2},
    "Keyphrases": lambda i: {"keyphrases": [f"{i['passage'][:20]} {n}" for n in ("раз", "два", "три")]},
    "Question": _question,
    "QuestionReview": lambda _: {"feedback": "", "standalone": True, "answerable": True},
    "FollowUp": lambda i: {
        "exchanges": [{"question": f"Расскажи {n}.", "answer": "О чём?"} for n in range(i["earlier"])],
        "question": f"А {i['question'].split()[-1]}",
    },
    "FollowUpReview": lambda _: {"feedback": "", "depends": True, "same": True, "open": True},
    "Entities": lambda i: {"entities": [i["text"].split()[0]]},
    "Personas": lambda i: {"personas": [f"Человек {n}" for n in range(i["count"])]},
    "QuestionComparison": lambda i: {"reason": "", "deeper": i["question"] != i["parent"], "broader": False},
    "NeededPassages": lambda i: {"reason": "", "passages": [p["passage"] for p in i["passages"]]},
    "ReferenceAnswer": lambda i: {"answerable": True, "answer": i["passages"][0]["text"][:40]},
    "Verdicts": lambda i: {
        "verdicts": [
            {"statement": one["statement"], "reason": "", "evidence": ["1.1"], "verdict": "supported"}
            for one in i["statements"]
        ]
    },
    "DegradedAnswer": lambda _: {"answer": "Не знаю."},
    "PaddedContext": lambda _: {"sentences": ["Погода была хорошей."]},
}


class Ring(Embeddings):
    """Embeddings with one direction per text; `same` maps a text to its class, `near` is the cosine of two classes."""

    def __init__(self, same: Callable[[str], str] = lambda text: text, near: float = 0.6) -> None:
        self.same, self.near = same, near
        self.numbers: dict[str, int] = {}
        self.batches: list[int] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(len(texts))
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        number = self.numbers.setdefault(self.same(text), len(self.numbers))
        own = (1 - self.near) ** 0.5
        vector = [0.0] * 256
        vector[0], vector[1 + number % 255] = self.near**0.5, own
        return vector

    def embed_query(self, text: str) -> list[float]:
        return self.vector(text)


def passage(number: int, text: str | None = None, source: str = "doc") -> Passage:
    """Return a passage of a document."""
    text = text or f"Отрывок {number} рассказывает о {TOPICS[number % len(TOPICS)]}."
    return Passage(text=text, source=source, start=100 * number, end=100 * number + len(text), metadata={})


def documents(count: int, sources: int = 3) -> list[Document]:
    """Return short documents of one passage each."""
    texts = [f"{TOPICS[n % len(TOPICS)].title()} номер {n}: об этом рассказано здесь подробно." for n in range(count)]
    return [Document(text, metadata={"source": f"doc-{n % sources}", "page": n}) for n, text in enumerate(texts)]


def rejecting(**shares: float) -> Writer:
    """Return a writer whose critic rejects these shares of what it sees, chosen by the text.

    The keys are passage, question, evolution and needed (no passage answers the question).
    """

    def rejects(kind: str, text: str) -> bool:
        number = int.from_bytes(blake2b(f"{kind} {text}".encode(), digest_size=4).digest())
        return number < shares.get(kind, 0.0) * 2**32

    def grades(inputs: dict[str, Any], _: int) -> dict[str, Any]:
        grade = 1 if rejects("passage", inputs["passage"]) else 3
        return {"reason": "бедный отрывок", **dict.fromkeys(("clarity", "depth", "structure", "relevance"), grade)}

    def review(inputs: dict[str, Any], _: int) -> dict[str, Any]:
        accepted = not rejects("question", inputs["question"])
        return {"feedback": "непонятно, о каком полисе речь", "standalone": accepted, "answerable": True}

    def compare(inputs: dict[str, Any], _: int) -> dict[str, Any]:
        deeper = not rejects("evolution", inputs["parent"] + inputs["question"])
        return {"reason": "не глубже прежнего", "deeper": deeper, "broader": False}

    def needed(inputs: dict[str, Any], _: int) -> dict[str, Any]:
        numbers = [] if rejects("needed", inputs["question"]) else [p["passage"] for p in inputs["passages"]]
        return {"reason": "ответа нет", "passages": numbers}

    return Writer(PassageGrades=grades, QuestionReview=review, QuestionComparison=compare, NeededPassages=needed)


def undecided() -> Writer:
    """Return a writer for which the documents do not answer an evolved question."""

    def reply(inputs: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**fields, "answerable": "при чём" not in inputs["question"]}

    return Writer(
        QuestionReview=lambda inputs, _: reply(inputs, feedback="", standalone=True),
        ReferenceAnswer=lambda inputs, _: reply(inputs, answer="Да."),
    )


class Killed(BaseException):
    """End of a process in the middle of a run."""


def dying(writer: Writer, calls: float) -> Writer:
    """Return the writer, which is killed after a number of calls; the journal identifies it by its version."""

    def answer(messages: Any) -> Any:
        if writer.total >= calls:
            raise Killed
        return writer.answer(messages)

    answer.version = "1"  # type: ignore[attr-defined]
    writer.model.answer = answer
    return writer


def generator(writer: Any, distribution: Any = None, **options: Any) -> TestsetGenerator:
    """Return a generator, by default of simple rows from passages as they are; an empty test set is no error."""
    usual = {"embeddings": Ring(), "splitter": False, "progress": False, "allow_empty": True}
    return TestsetGenerator(writer.model, distribution=distribution or {"simple": 1}, **usual | options)


def offline(distribution: Any = None, **options: Any) -> TestsetGenerator:
    """Return a generator that needs no model."""
    usual = {"embeddings": HashingEmbeddings(), "progress": False}
    return TestsetGenerator(OfflineJudge(), distribution=distribution or {"simple": 1}, **usual | options)
