"""Human labels: draw samples to label, write the sheet or page to fill in, and read the labels."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.page import PageLanguage, cut, pluralize, shortened, write_review_page
from langchain_rageval.data.loading import SampleIds
from langchain_rageval.data.schema import Finding, Row, Sample
from langchain_rageval.data.tables import find_delimiter, next_row, read_lines
from langchain_rageval.errors import ConfigError
from langchain_rageval.text.language import page_language

_SPEAKERS = {"user": "User", "assistant": "Assistant"}


def standalone_findings(row: Row) -> list[Finding]:
    """Return the versions of a row's question that judges wrote to be understood without the history of the chat.

    Each version is a finding: `text` is the question, and `verdict` is "rewritten", "unchanged" or "refused". With
    "refused", the package did not use the judge's version, because it was blank or added facts; `text` is then the
    original question. Equal versions of several metrics are returned once. The list is empty if no judge was asked to
    rewrite the question.
    """
    found = [one for score in row.scores.values() for one in score.findings if one.kind == "standalone_question"]
    return list({(finding.text, finding.verdict): finding for finding in found}.values())


def describe_question(row: Row) -> str:
    """Return the question of a row; if a judge rewrote the question, also an arrow and the rewritten question."""
    rewritten = [finding.text for finding in standalone_findings(row) if finding.verdict == "rewritten"]
    return " → ".join([row.sample.question, *rewritten])


def question_with_history(sample: Sample) -> str:
    """Return the earlier turns of the conversation, each with its speaker, followed by the question of a sample."""
    turns = [f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in sample.history]
    return "\n".join([*turns, f"{_SPEAKERS['user']}: {sample.question}"]) if turns else sample.question


_HIGHEST = 9
"""Highest grade: each has the key of its digit."""


def _item(row: Row) -> dict[str, Any]:
    """Return what a person needs to see, without scores, ids and metadata, which may name the model."""
    sample = row.sample
    return {
        "question": cut(sample.question),
        "turns": sample.model_dump(include={"history"}).get("history", []),
        "texts": [["answer", cut(sample.answer or "")], *(["references", cut(text)] for text in sample.references)],
        "passages": [{"parts": [cut(text)]} for text in sample.contexts or []],
    }


def _verdicts(scale: tuple[int, int] | None) -> list[tuple[str, str]]:
    """Return the key and the label of each verdict."""
    if scale is None:
        return [("1", "yes"), ("0", "no")]
    if not (len(scale) == 2 and all(type(grade) is int for grade in scale) and 0 <= scale[0] < scale[1] <= _HIGHEST):
        raise ConfigError(f"scale is the lowest and the highest grade, from 0 to {_HIGHEST}, as (1, 5); got {scale!r}")
    return [(str(grade), str(grade)) for grade in range(scale[0], scale[1] + 1)]


def _instruction(metric: str, instruction: str | None) -> dict[str, str]:
    if instruction is not None:
        return {"en": instruction, "ru": instruction}
    file = files("langchain_rageval.report") / "page_files" / "label_questions.yaml"
    questions = load_yaml(file.read_text(encoding="utf-8"))
    asked: dict[str, str] = questions.get(metric, questions["other"])
    return {language: text.replace("{metric}", metric) for language, text in asked.items()}


YES = ("yes", "y", "true", "да", "д", "истина", "+")
NO = ("no", "n", "false", "нет", "н", "ложь", "-")

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_LONGEST = 32_766  # and an ellipsis: a cell of a spreadsheet has at most 32,767 characters
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


@dataclass(frozen=True, repr=False)
class LabelSheet(Sequence[Row]):
    """Sheet of rows for people to label. The rows are drawn with equal chances and spread evenly over the scores.

    Attributes:
        metric: name of the metric whose scores are compared with the labels.
        rows: the rows, in the order of the report, so that the place of a row does not reveal its score.
        notes: what a reader of the labels should know.
    """

    metric: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        """Return one row to label, or a list of rows for a slice."""
        return self.rows[place]

    def __repr__(self) -> str:
        """Return the sheet as text: the number of rows, the metric, and the notes."""
        title = f"{pluralize(len(self), 'row')} to label for {self.metric}"
        return "\n".join([title, *(f"Note: {note}" for note in self.notes)])

    def to_csv(self, path: str | Path, *, delimiter: str = ",", show_scores: bool = False) -> None:
        """Write a CSV file with an empty column `label`, which `load_labels` reads when it is filled in.

        Every cell is shown as text: an apostrophe precedes a cell that a spreadsheet would read as a formula, and an id
        that a spreadsheet would read as a number or a date. The encoding is UTF-8 with a byte order mark. Cells are cut
        at 32,767 characters, the limit of spreadsheets. An existing file is not overwritten, because it may hold
        labels.

        Args:
            path: path of the file.
            delimiter: ","; or ";" for spreadsheets with decimal commas, such as Russian ones; or a tab.
            show_scores: True to add the judge's score. People who see it tend to agree with it, which overstates the
                agreement.

        Raises:
            ConfigError: if the delimiter is invalid, or the file exists or cannot be written.
        """
        if delimiter not in (",", ";", "\t"):
            raise ConfigError(f"delimiter is ',', ';' or a tab, got {delimiter!r}")
        names = ["id", "question", "answer", "contexts", "references", *([self.metric] if show_scores else []), "label"]
        decimal = "," if delimiter == ";" else "."
        written = io.StringIO(newline="")
        writer = csv.writer(written, delimiter=delimiter, lineterminator="\r\n")
        writer.writerow(map(cell_of, names))
        for row in self.rows:
            score = [f"{row.scores[self.metric].value:g}".replace(".", decimal)] if show_scores else []
            writer.writerow([_harmless_id(row.sample.id), *map(cell_of, _texts(row)), *score, ""])
        try:
            with Path(path).open("xb") as file:
                file.write(written.getvalue().encode("utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another path") from None

    def to_html(
        self,
        path: str | Path,
        *,
        scale: tuple[int, int] | None = None,
        instruction: str | None = None,
        language: PageLanguage = "auto",
    ) -> None:
        """Write an HTML page on which a person labels the rows, with one key press per label; it works offline.

        The page holds no scores and shows no ids. The labels stay in the browser until the person saves them as a CSV
        file. The file is named like the page, and `load_labels` reads it.

        Args:
            path: path of the page.
            scale: lowest and highest grade, from 0 to 9, such as (1, 5); None for yes or no.
            instruction: what the person decides about each row; by default a question that belongs to the metric.
            language: language of the page's own texts, "en" or "ru"; by default the language of most questions.

        Raises:
            ConfigError: if the scale or the language is invalid, or the file cannot be written.
        """
        data = {
            "kind": "labels",
            "file": f"{Path(path).stem}.csv",
            "items": [{**_item(row), "cell": _harmless_id(row.sample.id)} for row in self.rows],
            "verdicts": [{"key": key, "value": value} for key, value in _verdicts(scale)],
            "instruction": _instruction(self.metric, instruction),
        }
        chosen = page_language(language, (row.sample.question for row in self.rows))
        write_review_page(path, data, chosen, metric=self.metric)


def answer_id(name: str, sample: Sample) -> str:
    """Return the id of an answer in a sheet (file to label) with the answers of two reports, such as "q7@1f3a09bc".

    `name` is the id of the sample. A hash of the answer follows, so the id does not reveal the report of the answer.
    """
    return f"{name}@{hashlib.blake2b((sample.answer or '').encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def pairs_to_label(pairs: Sequence[tuple[Row, Row]], n: int, metric: str, seed: int) -> LabelSheet:
    """Draw `n` pairs of rows for labelling, spread evenly over the differences of their scores; see `rows_to_label`.

    A pair holds the rows of one sample in two reports. The sheet (file to label) lists both rows.

    Raises:
        ConfigError: if `n` is below 1, or no pair has two scores.
    """
    values = [[row.scores[metric].value if metric in row.scores else None for row in pair] for pair in pairs]
    drawn = _drawn([None if own is None or other is None else own - other for own, other in values], n, metric, seed)
    ids = SampleIds(), SampleIds()
    names = [[own.distinct(row.sample).id for own, row in zip(ids, pair, strict=True)] for pair in pairs]
    found = {answer_id(names[at][side], row.sample): row for at in drawn for side, row in enumerate(pairs[at])}
    rows = [_renamed(row, name) for name, row in sorted(found.items(), key=lambda item: item[0].partition("@")[::-1])]
    return LabelSheet(metric, rows)


def rows_to_label(rows: Sequence[Row], n: int, metric: str, seed: int) -> LabelSheet:
    """Draw rows for labelling by systematic sampling: sort by score, and take even steps from a random start.

    If several rows have the same id, the second and later rows get `-2`, `-3` and so on after the id, as in
    `Report.scores`.

    Raises:
        ConfigError: if `n` is below 1, or no row has a score.
    """
    values = [row.scores[metric].value if metric in row.scores else None for row in rows]
    drawn = _drawn(values, n, metric, seed)
    count, missing = len(drawn), sum(metric in row.scores for row in rows) - sum(value is not None for value in values)
    notes = [f"All {count} rows with a score are included; {n} were requested."] if count < n else []
    if missing:
        notes.append(f"{pluralize(missing, 'sample')} without a score of {metric} cannot be drawn.")
    ids = SampleIds()
    names = [ids.distinct(row.sample).id for row in rows]
    return LabelSheet(metric, [_renamed(rows[place], names[place]) for place in drawn], notes)


def _drawn(values: Sequence[float | None], n: int, metric: str, seed: int) -> list[int]:
    """Return the places of `n` values, spread evenly over them, in order; those without a value are not drawn."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n must be the number of rows to label, at least 1, got {n!r}")
    scored = [(value, place) for place, value in enumerate(values) if value is not None]
    if not scored:
        raise ConfigError(f"no row has a score of {metric}: there is nothing to compare labels with")
    random = Random(seed)
    random.shuffle(scored)
    places = [place for _, place in sorted(scored, key=lambda pair: pair[0])]
    count = min(n, len(places))
    start, step = random.random(), len(places) / count
    return sorted(places[min(int((start + number) * step), len(places) - 1)] for number in range(count))


def _renamed(row: Row, name: str) -> Row:
    """Return the row with this sample id."""
    if row.sample.id == name:
        return row
    return row.model_copy(update={"sample": row.sample.model_copy(update={"id": name})})


def load_labels(path: str | Path) -> dict[str, float]:
    """Return the labels that people entered in a sheet, by sample id.

    The function reads the CSV dialects of spreadsheet programs: commas, semicolons or tabs; UTF-8, UTF-16 or
    Windows-1251; decimal commas. A label is a number, or yes or no in English or Russian: yes, y, true, +, да and
    истина are 1, their opposites are 0. Rows without a label are skipped. Only the columns `id` and `label` are
    required.

    Args:
        path: path of the sheet.

    Returns:
        Mapping of sample ids to labels.

    Raises:
        ConfigError: if the file cannot be read, lacks a column, has no labels, an invalid label, or two different
            labels for one id; the message names the line.
    """
    labels: dict[str, float] = {}
    for entry in read_labels(Path(path)):
        if (known := labels.setdefault(entry.id, entry.value)) != entry.value:
            both = f"{known:g} and {entry.value:g}"
            raise ConfigError(f"{path}, line {entry.line}: {entry.id!r} has two labels, {both}: keep one")
    return labels


class SheetLabel(NamedTuple):
    """One label in a sheet, with its place.

    Attributes:
        line: number of the line in the file.
        id: id of the sample.
        value: the label.
        answer: text of the cell with the answer; None if the sheet has no such column.
        question: text of the cell with the question; None if the sheet has no such column.
    """

    line: int
    id: str
    value: float
    answer: str | None
    question: str | None


def read_labels(path: Path) -> list[SheetLabel]:
    """Return the labels in a sheet; see `load_labels`.

    Raises:
        ConfigError: if the file cannot be read, lacks a column, has no labels, or an invalid label.
    """
    labels = []
    for line, cells in _filled_in(path):
        if (value := _label(cells["label"])) is None:
            raise ConfigError(
                f"{path}, line {line}: {cells['label'].strip()!r} is not a label: enter a number, yes or no (да, нет), "
                "or leave it empty"
            )
        own_id = cells["id"].removeprefix("'")
        labels.append(SheetLabel(line, own_id, value, cells.get("answer"), cells.get("question")))
    if not labels:
        raise ConfigError(f"{path} has no labels: fill in the column 'label'")
    return labels


def _texts(row: Row) -> Iterator[str]:
    sample = row.sample
    yield question_with_history(sample)
    yield sample.answer or ""
    for texts in (sample.contexts or [], sample.references):
        yield "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1)) if texts[1:] else "".join(texts)


def cell_of(text: str) -> str:
    """Return a text as a spreadsheet cell that no spreadsheet reads as a formula."""
    text = text.replace("\0", "\ufffd")
    text = f"'{text}" if text.lstrip("' ").startswith(_FORMULA) else text
    return shortened(text, _LONGEST)


def _harmless_id(name: str) -> str:
    """Return an id with an apostrophe before it unless it begins with a letter: spreadsheets change 007 and 1-2."""
    return name if name[:1].isalpha() else f"'{name}"


def _filled_in(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number, and cells by the name of their column, for each row of a sheet that has a label."""
    text = _text(path)
    delimiter = find_delimiter(text.splitlines()[:1], lambda name: name.strip().lower() == "label")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = [name.strip().lower() for name in next_row(reader) or []]
        for name in ("id", "label"):
            if names.count(name) != 1:
                raise ConfigError(f"{path}: expected one column {name!r}, got {', '.join(names) or 'nothing'}")
        line = reader.line_num + 1
        while (cells := next_row(reader)) is not None:
            row = dict(zip_longest(names, cells, fillvalue=""))
            if row["label"].strip():
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path} is not valid CSV ({error}); save the sheet as CSV") from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; name a filled-in sheet") from None
    if content.startswith(b"PK"):
        raise ConfigError(f"{path} is a workbook: save the sheet as CSV")
    return "".join(read_lines(path, strict=False))


def _label(cell: str) -> float | None:
    text = cell.strip().removeprefix("'").casefold()
    if text in YES or text in NO:
        return float(text in YES)
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None
