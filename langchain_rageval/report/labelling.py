"""Labels by people: which samples to show them, the sheet they fill in, and what they filled in.

The sheet is a CSV file that spreadsheets open and save in their own ways, and `load_labels` reads them all.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import overload

from langchain_rageval.data.loading import next_row
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

YES = ("yes", "y", "true", "да", "д", "истина", "+")
NO = ("no", "n", "false", "нет", "н", "ложь", "-")

_COLUMNS = ("id", "question", "answer", "contexts", "references")
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_LONGEST = 32_767  # characters of a cell in a spreadsheet
_DELIMITERS = (",", ";", "\t")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


@dataclass(frozen=True, repr=False)
class LabelSheet(Sequence[Row]):
    """Rows for people to label: an equal chance for every row that has a score, spread evenly over the scores.

    Attributes:
        metric: whose scores are to be compared with the labels.
        rows: in the order of the report, so that nothing can be told from a row's place.
        notes: what a reader of the labels should know.
    """

    metric: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        """One row, or a list of them."""
        return self.rows[place]

    def __repr__(self) -> str:
        """How many rows, for which metric, and the notes."""
        title = f"{len(self)} row{'' if len(self) == 1 else 's'} to label for {self.metric}"
        return "\n".join([title, *(f"Note: {note}" for note in self.notes)])

    def to_csv(self, path: str | Path, *, delimiter: str = ",", show_scores: bool = False) -> None:
        """Write a sheet with an empty column `label`, for `load_labels` to read when it is filled in.

        Whatever a cell holds, a spreadsheet shows it as text: one that it would take for a formula, and an id that it
        would take for a number or a date, has an apostrophe before it. UTF-8 with the mark that spreadsheets look for;
        a cell ends where theirs would, at 32,767 characters. A file that is there already is not written over: it may
        hold labels.

        Args:
            path: of the file.
            delimiter: ";" for a spreadsheet that takes commas for decimals, as a Russian one does; or a tab.
            show_scores: add the judge's score. People who see it tend to agree with it, and the agreement that is then
                measured is better than it is.

        Raises:
            ConfigError: if the delimiter is none of these, or the file is there already or cannot be written.
        """
        if delimiter not in _DELIMITERS:
            raise ConfigError(f"delimiter is ',', ';' or a tab, got {delimiter!r}")
        names = [*_COLUMNS, *([self.metric] if show_scores else []), "label"]
        written = io.StringIO(newline="")
        writer = csv.writer(written, delimiter=delimiter, lineterminator="\r\n")
        writer.writerow(map(_harmless, names))
        for row in self.rows:
            score = [_decimal(row.scores[self.metric].value, delimiter)] if show_scores else []
            writer.writerow([_harmless_id(row.sample.id), *map(_harmless, _texts(row)), *score, ""])
        try:
            with Path(path).open("xb") as file:
                file.write(written.getvalue().encode("utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another place") from None


def rows_to_label(rows: Sequence[Row], n: int, metric: str, seed: int) -> LabelSheet:
    """Draw the rows: in the order of their scores, at even steps from a random start.

    Of several rows with one id, which hold the same, one is drawn at most.

    Raises:
        ConfigError: if `n` is below 1, or nothing has a score.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n is how many rows to label, at least 1, got {n!r}")
    values: dict[str, tuple[float | None, int]] = {}
    for place, row in enumerate(rows):
        if metric in row.scores:
            values.setdefault(row.sample.id, (row.scores[metric].value, place))
    scored = [(value, place) for value, place in values.values() if value is not None]
    if not scored:
        raise ConfigError(f"no row has a score of {metric}: there is nothing to compare labels with")
    random = Random(seed)
    random.shuffle(scored)
    places = [place for _, place in sorted(scored, key=lambda found: found[0])]
    count = min(n, len(places))
    start, step = random.random(), len(places) / count
    drawn = sorted(places[min(int((start + number) * step), len(places) - 1)] for number in range(count))
    notes = [f"All {count} rows with a score are here, {n} were asked for."] if count < n else []
    if missing := len(values) - len(places):
        notes.append(f"{missing} samples have no score of {metric} and cannot be drawn.")
    return LabelSheet(metric, [rows[place] for place in drawn], notes)


def load_labels(path: str | Path) -> dict[str, float]:
    """Read the labels that people filled in, by sample id.

    Takes what spreadsheets make of a sheet: commas, semicolons or tabs, UTF-8, UTF-16 or Windows-1251, decimal commas.
    A label is a number, or yes or no in English or Russian (yes, y, true, +, да, истина and their opposites: 1 and 0).
    Rows without a label are left out; columns other than `id` and `label` may be gone.

    Args:
        path: of the sheet that came back.

    Returns:
        Sample id to label.

    Raises:
        ConfigError: if the file cannot be read, lacks a column, holds no label, or one that is none of these, or two
            for one id that differ; naming the line.
    """
    labels: dict[str, float] = {}
    for line, name, cell in _filled_in(Path(path)):
        value = _label(cell)
        if value is None:
            raise ConfigError(
                f"{path}, line {line}: {cell!r} is no label: write a number, or yes or no (да, нет), or leave it empty"
            )
        if labels.setdefault(name, value) != value:
            raise ConfigError(f"{path}, line {line}: {name!r} has two labels, {labels[name]:g} and {value:g}: keep one")
    if not labels:
        raise ConfigError(f"{path} holds no labels: fill in the column 'label'")
    return labels


def _texts(row: Row) -> Iterator[str]:
    sample = row.sample
    yield sample.question
    yield sample.answer or ""
    for texts in (sample.contexts or [], sample.references):
        yield "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1)) if texts[1:] else "".join(texts)


def _decimal(value: float | None, delimiter: str) -> str:
    return f"{value:g}".replace(".", "," if delimiter == ";" else ".")


def _harmless(text: str) -> str:
    text = text.replace("\0", "\ufffd")
    text = f"'{text}" if text.lstrip("' ").startswith(_FORMULA) else text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _harmless_id(name: str) -> str:
    """With an apostrophe unless it begins with a letter: 007 and 1-2 do not come back from a spreadsheet."""
    return name if name[:1].isalpha() else f"'{name}"


def _filled_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, id and label of the rows that have one."""
    text = _text(path)
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=head.count))
    try:
        names = [name.strip().lower() for name in next_row(reader) or []]
        for name in ("id", "label"):
            if names.count(name) != 1:
                raise ConfigError(f"{path}: expected one column {name!r}, got {', '.join(names) or 'nothing'}")
        places = names.index("id"), names.index("label")
        line = reader.line_num + 1
        while (cells := next_row(reader)) is not None:
            name, cell = (cells[place] if place < len(cells) else "" for place in places)
            if cell.strip():
                yield line, name.removeprefix("'"), cell.strip()
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: not CSV: {error}: save the sheet as CSV") from None


def _text(path: Path) -> str:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; name a sheet that was filled in") from None
    if found.startswith((b"\xff\xfe", b"\xfe\xff")):
        return found.decode("utf-16", errors="replace")
    if found.startswith(b"PK"):
        raise ConfigError(f"{path} is a workbook: save the sheet as CSV")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        return found.decode("cp1251", errors="replace")


def _label(cell: str) -> float | None:
    said = cell.strip().removeprefix("'").casefold()
    if said in YES or said in NO:
        return float(said in YES)
    return float(said.replace(",", ".")) if _NUMBER.fullmatch(said) else None
