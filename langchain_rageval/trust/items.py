"""Labelled items: questions that are put to a judge, and the verdicts that would be right.

They come with the package, Russian and English; the README beside them says where each text and each label comes from.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from langchain_rageval.data.schema import InputModel
from langchain_rageval.errors import ConfigError

_PLACE = files("langchain_rageval") / "trust" / "labelled_items"


class Label(InputModel):
    """What is known of one thing that an item asks about.

    Attributes:
        accepted: the verdicts that are right; none when it is there for company.
        evidence: chunks or sentences of which a right verdict cites one, such as "2" or "2.3"; none when it need not.
        number: of the sentence that is labelled, where sentences are.
    """

    accepted: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    number: str = ""

    def turned(self, chunks: int) -> Label:
        """The same label when so many chunks stand in reverse order."""
        evidence = tuple(_turned(number, chunks) for number in self.evidence)
        return self.model_copy(update={"evidence": evidence, "number": self.number and _turned(self.number, chunks)})


class Item(InputModel):
    """One question to the judge, or three texts for the embeddings, with its labels.

    Attributes:
        id: its name.
        step: the judge step that asks it.
        source: where the texts come from.
        labels: of the statements, chunks or sentences that it asks about, in order; of the answer where there is one.
        question: as in a sample, and so on.
        statements: that the step is given, of the answer.
        padding: a sentence about something else.
        text: what is compared, with a text that means nearly the same and one that does not.
    """

    id: str
    step: str
    source: str
    labels: tuple[Label, ...]
    question: str = ""
    answer: str | None = None
    contexts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    padding: str = ""
    text: str = ""
    near: str = ""
    far: str = ""


@cache
def labelled_items(language: str) -> tuple[Item, ...]:
    """The items of a language, step by step.

    Raises:
        ConfigError: if there are none in it.
    """
    known = sorted(file.name.removesuffix(".jsonl") for file in _PLACE.iterdir() if file.name.endswith(".jsonl"))
    if language not in known:
        raise ConfigError(f"labelled items come in {', '.join(known)}, got language={language!r}: choose one of them")
    lines = (_PLACE / f"{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Item.model_validate_json(line) for line in lines)


def _turned(number: str, chunks: int) -> str:
    chunk, dot, sentence = number.partition(".")
    return f"{chunks + 1 - int(chunk)}{dot}{sentence}"
