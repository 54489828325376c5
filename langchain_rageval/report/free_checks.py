"""Checks of a run's rows for broken or repeated answers, unread contexts and verdicts without citations.

The checks call no model. A broken answer is an HTML page, a stack trace or a message about an outage. Contexts count as
unread if no recorded prompt to a model contained them; they are then known only from the retriever's output.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from langchain_rageval.data.loading import ROWS
from langchain_rageval.data.messages import CONTEXTS_FROM, NO_CONTEXTS
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.metrics.supported import LACKS_FIELD, NEITHER_FACTS, NO_FACTS
from langchain_rageval.text.words import has_content

_BEGINNINGS = {
    "html": re.compile(
        r"""\s*(?: <!doctype\b | <html\b
        | (?:<h1>\s*)? (?:error\s+)? (?:403|429|50[0-4])\s+ (?:forbidden | too\ many\ requests | internal\ server\ error
            | bad\ gateway | service\ (?:temporarily\ )?unavailable | gateway\ time-?out)
        | (?:internal\ server\ error | bad\ gateway | gateway\ time-?out)\s*$)""",
        re.IGNORECASE | re.VERBOSE,
    ),
    "stack-trace": re.compile(
        r"""\s*(?: Traceback\ \(most\ recent\ call\ last\) | Exception\ in\ thread[ ] | panic:[ ]
        | Unhandled\ (?:exception|rejection)
        | (?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b | (?:Uncaught\ )?[A-Z]\w*Error:\ .*\n\s+at\ )""",
        re.VERBOSE,
    ),
    "outage": re.compile(
        r"""\s*(?: (?: (?:we\ are\ |we're\ |i'm\ |i\ am\ )?(?:so\ |very\ )?sorry | (?:we\ )?apologi[sz]e\w*
            | unfortunately | oops
            | извините | простите | к\ сожалению | приносим\ извинения
            | entschuldigung | leider | es\ tut\ (?:mir|uns)\ leid) [\s,.:!–—-]* )?
        (?: (?:but|our|the|this|но|наш|этот|ist|das|die|der|dieser|unser)\s+ )*
        (?: service | server | system | assistant | сервис | сервер | система | dienst )\b [^.!?]{0,50}
        (?: unavailable | not\ available | overloaded | \bdown\b | недоступ | перегружен | не\ отвечает
            | nicht\ verfügbar | nicht\ erreichbar | überlastet )""",
        re.IGNORECASE | re.VERBOSE,
    ),
}
"""By code, how an answer begins that no working application gives."""

MOST_ALIKE = 0.2
"""Share of the answers that may have one text, and of the supported statements that may cite nothing."""
_LEAST_ALIKE = 5
_LEAST_WORDS = 8
_LONGEST_APOLOGY = 60  # words; a longer answer says more than that the service is down


def is_blank(sample: Sample) -> bool:
    """Return True if the answer of a sample is missing or blank, and the question is not marked as unanswerable.

    An answer that shows nothing, or only punctuation such as a dash, is blank, too. Returns False for every sample
    whose `metadata.answerable` is False: a blank answer is then no fault.
    """
    return not has_content(sample.answer or "") and sample.metadata.get("answerable") is not False


class FreeChecks:
    """Counts of suspicious answers and verdicts over the rows of a run; `notes` reports the problems."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._samples = self._supported = self._uncited = 0
        self._answered = False
        self._counts: Counter[str] = Counter()
        self._chunks: Counter[str] = Counter()
        self._windows: Counter[tuple[str, str]] = Counter()  # by verdict and metric
        self._incomplete: Counter[str] = Counter()  # samples that lack a field of a metric
        self._answers = array("q")  # hashes of each long answer: alone, with the question, with the references
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Check the answer, the contexts and the verdicts of a row, and add the problems to the counts."""
        self._samples += 1
        answer = row.sample.answer or ""
        self._answered = self._answered or bool(answer.strip())
        if is_blank(row.sample) and any(score.aspect not in ("context", "ranking") for score in row.scores.values()):
            self._counts["none" if row.sample.answer is None else "blank"] += 1
        words = len(answer.split(maxsplit=_LONGEST_APOLOGY))
        for code, beginning in _BEGINNINGS.items():
            if (code != "outage" or words < _LONGEST_APOLOGY) and beginning.match(answer):
                self._counts[code] += 1
                break
        if words >= _LEAST_WORDS and not any(s.unscored in (NO_FACTS, NEITHER_FACTS) for s in row.scores.values()):
            text = " ".join(answer.split())
            self._answers.extend(map(hash, (text, (text, row.sample.question), (text, *row.sample.references))))
        self._add_contexts(row.sample)
        for name, score in row.scores.items():
            self._incomplete[name] += score.unscored == LACKS_FIELD
            verdicts = {one.verdict for one in score.findings if one.kind == "extraction"}
            self._windows.update((code, name) for code in ("cut", "windows") if code in verdicts)
            if score.usage.calls:  # a verifier without a judge has no citations
                supported = [one for one in score.findings if one.kind == "statement" and one.verdict == "supported"]
                self._supported += len(supported)
                self._uncited += sum(not one.cites for one in supported)

    def _add_contexts(self, sample: Sample) -> None:
        """Count where the contexts of an answer are from, and the chunks that were retrieved and read."""
        origin, has_answer = sample.metadata.get(CONTEXTS_FROM), bool((sample.answer or "").strip())
        self._counts["unread-contexts"] += has_answer and origin == "retriever" and bool(sample.contexts)
        self._counts["no-contexts"] += has_answer and NO_CONTEXTS in sample.metadata
        self._counts["joined-rows"] += isinstance(sample.metadata.get(ROWS), int) and len(sample.contexts or ()) > 1
        if sample.contexts is not None and (origin or sample.retrieved is not None):
            retrieved = sample.contexts if sample.retrieved is None else sample.retrieved
            is_changed = sample.retrieved is not None
            self._chunks.update(retrieved=len(retrieved), read=len(sample.contexts), samples=1, changed=is_changed)

    def notes(self) -> Iterator[Note]:
        """Yield a note for each kind of problem in the rows, with the number of cases."""
        missing = self._counts["none"] if self._answered else 0  # a run without answers asks about something else
        for code in ("blank", *_BEGINNINGS, "unread-contexts", "no-contexts", "joined-rows"):
            if count := self._counts[code] + missing * (code == "blank"):
                yield Note(code, count=count, total=self._samples)
        if self._chunks["changed"]:
            retrieved, read, samples = (self._chunks[name] for name in ("retrieved", "read", "samples"))
            yield Note("chunks-read", retrieved=retrieved, read=read, samples=samples)
        for (code, name), count in self._windows.items():
            yield Note(f"contexts-{code}", metric=name, count=count)
        for count in dict.fromkeys(filter(None, self._incomplete.values())):
            metrics = [name for name, number in self._incomplete.items() if number == count]
            yield Note("lack-fields", metrics=metrics, count=count, total=self._samples)
        # Different questions with one answer, although their references differ.
        texts, *pairs = np.array(self._answers).reshape(-1, 3).T
        distinct = (np.unique(pair, return_index=True)[1] for pair in pairs)
        questions, references = (np.unique(texts[places], return_counts=True)[1] for places in distinct)
        alike = max(questions[references > 1].tolist(), default=0)
        if alike >= _LEAST_ALIKE:
            yield Note("same-answer", count=alike, total=self._samples)
        if self._uncited:
            yield Note("no-citations", count=self._uncited, total=self._supported)

    def problems(self, max_failed: float, allow: Collection[str]) -> list[Note]:
        """Return the notes on problems that are frequent enough to fail a gate.

        Broken answers (HTML pages, stack traces, messages about an outage) fail a gate if their share of the samples is
        above `max_failed` (from 0 to 1). Two other problems need at least five cases. Different questions with one and
        the same answer fail a gate if there are more of them than a fifth of the number of samples. Supported
        statements without a citation fail it if they are more than a fifth of all supported statements. Blank answers
        are excluded, because a gate already counts each as the worst value. Notes with a code in `allow` are omitted.
        """
        limits = {**dict.fromkeys(_BEGINNINGS, max_failed), "same-answer": MOST_ALIKE, "no-citations": MOST_ALIKE}
        return [
            note
            for note in self.notes()
            if note.code in limits.keys() - set(allow)
            and note.fields["count"] > limits[note.code] * note.fields["total"]
            and (note.code in _BEGINNINGS or note.fields["count"] >= _LEAST_ALIKE)
        ]
