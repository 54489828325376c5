"""Labelled items: requests to a judge whose right verdicts are known.

The package ships Russian and English items; `labelled_items/README.md` gives the source of each text and label.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from langchain_rageval.data.schema import InputModel
from langchain_rageval.errors import ConfigError

_FOLDER = files("langchain_rageval") / "trust" / "labelled_items"


class Label(InputModel):
    """The right verdicts for one statement, chunk, sentence or answer of a labelled item.

    Attributes:
        accepted: the verdicts that are right; empty if the verdict on this element is not scored.
        evidence: numbers of chunks or sentences, such as "2" or "2.3", of which a right verdict must cite one; empty if
            no citation is required.
        number: number of the labelled sentence, such as "2.3"; "" if the label is not about a sentence.
    """

    accepted: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    number: str = ""

    def reversed(self, chunks: int) -> Label:
        """Return the label for chunks in reverse order: chunk n of `chunks` chunks becomes chunk `chunks` + 1 - n."""
        evidence = tuple(_reverse_number(number, chunks) for number in self.evidence)
        number = self.number and _reverse_number(self.number, chunks)
        return self.model_copy(update={"evidence": evidence, "number": number})


class LabelledItem(InputModel):
    """Request to the judge, or three texts to compare by embeddings, with the right verdicts.

    Attributes:
        id: its name.
        step: name of the judge step that is run.
        kind: what makes the item hard, such as "table" or "injection in context"; "plain prose" for an excerpt.
        source: where the texts come from.
        labels: one for each statement, chunk, sentence, term or criterion that the step judges, in order, or one for
            the answer.
        question: as in a sample.
        answer: as in a sample.
        contexts: as in a sample.
        references: as in a sample; for `classify_statements`, the statements of the reference.
        statements: the statements of the answer that the step receives.
        terms: the entities that are looked for, or the terms of a reference that are entities or are not.
        aspect: name of the aspect that is judged.
        padding: a sentence about another topic.
        text: the text that is compared.
        near: a text that means nearly the same as `text`.
        far: a text that does not.
    """

    id: str
    step: str
    kind: str
    source: str
    labels: tuple[Label, ...]
    question: str = ""
    answer: str | None = None
    contexts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    aspect: str = ""
    padding: str = ""
    text: str = ""
    near: str = ""
    far: str = ""


@cache
def labelled_items(language: str) -> tuple[LabelledItem, ...]:
    """Return the labelled items of a language, grouped by step.

    Raises:
        ConfigError: if the package has none in this language.
    """
    known = sorted(file.name.removesuffix(".jsonl") for file in _FOLDER.iterdir() if file.name.endswith(".jsonl"))
    if language not in known:
        raise ConfigError(f"labelled items come in {', '.join(known)}, got language={language!r}: choose one of them")
    lines = (_FOLDER / f"{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(LabelledItem.model_validate_json(line) for line in lines)


def _reverse_number(number: str, chunks: int) -> str:
    chunk, dot, sentence = number.partition(".")
    return f"{chunks + 1 - int(chunk)}{dot}{sentence}"
