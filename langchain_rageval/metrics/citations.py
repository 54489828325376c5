"""Citations: whether the chunks that an answer cites support its statements, and whether its statements are cited.

Both scores are from 0 to 1, higher is better. Source: Gao et al. 2023, "Enabling Large Language Models to Generate Text
with Citations" (ALCE), arXiv:2305.14627, section 3. ALCE checks sentences; this module checks the statements that the
judge extracts from the answer, as for `faithfulness`. Recall counts supported statements only, so an unsupported
statement lowers faithfulness but not recall.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.supported import MAX_QUOTED, NO_FACTS, Value, quote, verdicts_from_findings
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.verify_statements import Verifier, verify_statements
from langchain_rageval.text.sentences import NUMBERED_MARK, split_sentences
from langchain_rageval.text.words import stems_of

Citation = frozenset[int]
"""Numbers of the chunks that one citation names, from 1: one chunk, or all chunks of a source."""

NO_CITATIONS = "the answer cites nothing"
NO_CITED_STATEMENTS = "no statement of the answer carries a citation"
NO_SUPPORTED_STATEMENTS = "the contexts support no statement of the answer"
UNCITED_VERDICT = "a verdict names no context sentence"

_RANGE = re.compile(r"(\d+)\s*[–—-]\s*(\d+)|(\d+)")
_SUPERSCRIPT = re.compile(r"[⁰¹²³⁴-⁹]+")
_POWER = re.compile(r"\d$|(?:^|[\W\d_])(?:[^\W\d_]|мм|см|дм|км|mm|cm|dm|km|ft|in|yd)$")  # of 10³, x², м²
_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_IN_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|«[^«»]*»|【[^【】]*】")
_SHORTEST_NAME = 3


def citations(
    judge: JudgeLike, *, required: bool = False, verifier: Verifier | None = None, name: str = "citation"
) -> Suite:
    """Score the citations of an answer that names its sources.

    - `citation_precision`: share of the citations whose chunk supports the cited statement.
    - `citation_recall`: of the statements that the contexts support, the share that carries a citation.

    A citation is the number of a chunk, as in `[1]`, `[2][3]`, `[1, 4-6]`, superscripts, `(source 2)` or
    `(источник 2)`. It may also be the id of a chunk in `context_ids`, in brackets, as in `(tariffs.pdf)`. A citation
    belongs to the sentence that it ends or follows. With several citations in one sentence, each belongs to the text
    since the previous citation. The judge's verdict names the chunks that support a statement: if it does not name all
    of them, precision is a lower bound.

    Args:
        judge: called twice per sample, as for `faithfulness`. In one run with `faithfulness`, no call is added.
        required: True if the model was asked to cite its sources: an answer without citations then has recall 0. With
            False, such an answer is unscored.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in place of the judge.
        name: prefix of the names of the scores.

    Returns:
        A suite of two metrics that read `question`, `answer` and `contexts`. Both are unscored if the answer states no
        facts or, except for recall with `required=True`, cites nothing. Findings are those of `faithfulness`, from
        which `Report.rescore` computes either metric.
    """

    def part(kind: str, value: Callable[..., Value]) -> Metric:
        return Metric(
            f"{name}_{kind}",
            aspect="grounding",
            reads={"question", "answer", "contexts"},
            steps=extract_statements(judge, of="answer") | verify_statements(judge, of="answer", verifier=verifier),
            reduce=partial(value, required=required),
            state_from_findings=partial(verdicts_from_findings, kind="statement", under="answer_verdicts"),
        )

    return suite(part("precision", citation_precision), part("recall", citation_recall))


def citation_precision(state: State, *, required: bool) -> Value:
    """Return the share of the citations whose chunk supports the cited statement; `required` has no effect here.

    Unscored if the answer states no facts, if no statement has a citation, or if the verdict on a cited and supported
    statement names no chunk.
    """
    verdicts, cited, obstacle = _read(state)
    if obstacle:
        return Value.without(obstacle, verdicts)
    if any(finding.verdict == "supported" and cites and not finding.cites for finding, cites in cited):
        return Value.without(UNCITED_VERDICT, verdicts)
    pairs = [(finding, citation) for finding, cites in cited for citation in cites]
    if not pairs:
        return Value.without(NO_CITED_STATEMENTS, verdicts)
    wrong = [(finding, citation) for finding, citation in pairs if not _supporting_chunks(finding) & citation]
    texts = [f"{quote(finding.text)} {sorted(citation) or '[?]'}" for finding, citation in wrong]
    right, count = len(pairs) - len(wrong), len(pairs)
    return Value(right / count, _reason("citation-precision", state, right, count, texts), verdicts)


def citation_recall(state: State, *, required: bool) -> Value:
    """Return the share of the supported statements that carry a citation.

    If the answer has no citation, the share is 0 if `required` is True, else the sample is unscored. The sample is also
    unscored if the answer states no facts or the contexts support none of its statements.
    """
    verdicts, cited, obstacle = _read(state)
    if obstacle and not (required and obstacle == NO_CITATIONS):
        return Value.without(obstacle, verdicts)
    supported = [(finding, cites) for finding, cites in cited if finding.verdict == "supported"]
    if not supported:
        return Value.without(NO_SUPPORTED_STATEMENTS, verdicts)
    texts = [quote(finding.text) for finding, cites in supported if not cites]
    right, count = len(supported) - len(texts), len(supported)
    return Value(right / count, _reason("citation-recall", state, right, count, texts), verdicts)


def cited_parts(sample: Sample) -> list[tuple[str, list[Citation]]]:
    """Return the parts of the answer in order, each with its citations.

    A part is a sentence without its citation marks. A sentence with citations in several places is divided: each part
    is the text up to one of these places.
    """
    text, marks = _without_markers(sample)
    sentences = split_sentences(text)
    parts: list[tuple[str, list[Citation]]] = []
    start = 0
    for index, sentence in enumerate(sentences):
        end = start + len("".join(sentence.split()))
        inside = {at - start: found for at, found in marks.items() if start < at <= end or (at == 0 and index == 0)}
        places = sorted(inside)
        cites = [inside[place] for place in places] or [[]]
        # The sentence is cut after these numbers of non-space characters.
        ends = [0, *(index + 1 for index, character in enumerate(sentence) if not character.isspace())]
        cuts = [0, *(ends[place] for place in places[:-1]), len(sentence)]
        parts += zip((sentence[cut:after] for cut, after in pairwise(cuts)), cites, strict=True)
        start = end
    return parts


def _read(state: State) -> tuple[Sequence[Finding], list[tuple[Finding, list[Citation]]], str]:
    """Return the verdicts, each statement with its citations, and why no value applies, or ""."""
    verdicts: Sequence[Finding] = state["answer_verdicts"]
    statements = [finding for finding in verdicts if finding.kind != "agreement"]
    parts = [(stems_of(text), cites) for text, cites in cited_parts(state["sample"])]
    cited = [(finding, _citations_of(finding.text, parts)) for finding in statements]
    if not statements:
        return verdicts, cited, NO_FACTS
    return verdicts, cited, "" if any(cites for _, cites in parts) else NO_CITATIONS


def _citations_of(statement: str, parts: Sequence[tuple[set[str], list[Citation]]]) -> list[Citation]:
    """Return the citations behind the part of the answer that shares most stems with a statement."""
    stems = stems_of(statement)
    nearest, cites = max(parts, key=lambda part: len(stems & part[0]), default=(set(), []))
    return cites if stems & nearest else []


def _supporting_chunks(finding: Finding) -> set[int]:
    """Return the numbers of the chunks that support a statement."""
    return {int(cite.partition(".")[0]) for cite in finding.cites} if finding.verdict == "supported" else set()


def _without_markers(sample: Sample) -> tuple[str, Mapping[int, list[Citation]]]:
    """Return the answer without markers, and the citations by the number of its non-space characters before them."""
    answer, pieces, place = sample.answer or "", list[str](), 0
    marks: dict[int, list[Citation]] = {}
    before = 0
    for start, end, cites in _markers(answer, sample):
        pieces.append(answer[place:start])
        before += len("".join(pieces[-1].split()))
        found = marks.setdefault(before, [])
        found += [citation for citation in cites if citation not in found]
        place = end
    return "".join([*pieces, answer[place:]]), marks


def _markers(answer: str, sample: Sample) -> Iterator[tuple[int, int, list[Citation]]]:
    """Yield start, end and citations of each marker, in order."""
    count = len(sample.contexts or [])
    found = [(*match.span(), _numbered(next(filter(None, match.groups())))) for match in NUMBERED_MARK.finditer(answer)]
    for match in _SUPERSCRIPT.finditer(answer):
        if not _POWER.search(answer[max(0, match.start() - 4) : match.start()]):
            digits = match[0].translate(_DIGITS)
            numbers = [digits] if int(digits) <= count else list(digits)
            found.append((*match.span(), [frozenset({int(number)}) for number in numbers]))
    names: dict[str, set[int]] = {}
    for number, name in enumerate(sample.context_ids or [], 1):
        if len(name) >= _SHORTEST_NAME and not name.isdigit():
            names.setdefault(name.casefold(), set()).add(number)
    for match in _IN_BRACKETS.finditer(answer) if names else ():
        inner = match[0].casefold()
        cites = [
            frozenset(numbers)
            for name, numbers in names.items()
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", inner)
        ]
        found += [(*match.span(), cites)] if cites else []
    last = 0
    for start, end, cites in sorted(found, key=lambda marker: marker[:2]):
        if start >= last:
            yield start, end, cites
            last = end


def _numbered(text: str) -> list[Citation]:
    """Return the citations of numbers and ranges, such as "1, 3-5"; a reversed range is two numbers."""
    numbers: list[int] = []
    for first, last, single in _RANGE.findall(text):
        bounds = [int(single)] if single else [int(first), int(last)]
        numbers += range(bounds[0], bounds[1] + 1) if len(bounds) == 2 and bounds[0] <= bounds[1] else bounds
    return [frozenset({number}) for number in dict.fromkeys(numbers)]


def _reason(code: str, state: State, right: int, count: int, texts: Sequence[str]) -> str:
    shown = [*texts[:MAX_QUOTED], *["…"] * (len(texts) > MAX_QUOTED)]
    faults = [Note(f"{code}-faults", texts=shown)] if texts else []
    return explain(state["sample"].language_text, Note(code, right=right, count=count), *faults)
