"""Data of the samples on an HTML page, packed as gzip in base64, and answers as trees of Markdown elements."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.page import cut, pack
from langchain_rageval.data.messages import CONTEXT_SOURCES as SOURCES
from langchain_rageval.data.messages import SPANS
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.metrics.grading import REFERENCE_SPANS
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.report.files import row_line
from langchain_rageval.report.labelling import standalone_findings
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import content_words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode


PART = 100
"""Number of samples, or chunks, in one block."""

_AGAINST_CONTEXTS = {"supported", "contradicted", "absent"}


class Chunks:
    """Collection of the distinct context chunks of a report, in the form in which the HTML page stores them.

    Each chunk is a list of its sentences. A block is a text that holds up to 100 chunks as compressed JSON; the script
    of the page unpacks it.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._waiting: list[list[str]] = []
        self._written = 0

    def place_of(self, text: str) -> int:
        """Return the number of a chunk, from 0. A new chunk is added to the collection."""
        place = self._places.setdefault(hashlib.blake2b(text.encode(), digest_size=16).digest(), len(self._places))
        if place == self._written + len(self._waiting):
            self._waiting.append([line.text for line in NumberedContexts.of([cut(text)]).lines if line.sentence])
        return place

    def take_blocks(self, least: int) -> Iterator[tuple[str, str]]:
        """Yield pairs of an id and a packed block of up to 100 chunks, while `least` chunks or more are in no block.

        Fewer chunks stay in the collection for a later call. The page's script finds a block by its id: "chunks-0",
        "chunks-1" and so on.
        """
        while len(self._waiting) >= least:
            yield f"chunks-{self._written // PART}", pack(self._waiting[:PART])
            self._written += len(self._waiting[:PART])
            del self._waiting[:PART]


def sample_view(row: Row, chunks: Chunks, translate: Callable[[str], str]) -> dict[str, Any]:
    """Return a dict with the data from which the page shows a sample.

    The dict has the fields of the row, but each context is replaced by its number in `chunks`. The dict also has these
    keys, if their values are known: `statements` is the name of the metric whose statements the page lists.
    `answer` is the Markdown tree of the answer, see `build_answer_tree`. `sources` are the sources of the contexts.
    `standalone` are the rewritten questions of a conversation.

    Args:
        row: the sample with its scores.
        chunks: collection that receives the contexts.
        translate: function that translates the reason of an unscored sample into the language of the page.
    """
    view: dict[str, Any] = _cut_all(json.loads(row_line(row.model_copy(update={"asked": []}))))
    if questions := standalone_findings(row):
        view["standalone"] = [_cut_all(finding.model_dump()) for finding in questions]
    for score in view["scores"].values():
        score["findings"] = [f for f in score["findings"] if f["kind"] != "standalone_question"]
        if score["unscored"]:
            score["unscored"] = translate(score["unscored"])
        for finding in score["findings"]:
            place, contexts = finding["number"] - 1, row.sample.contexts or []
            if finding["kind"] == "context" and finding["text"] in [*map(cut, contexts[place : place + 1])]:
                finding["text"] = ""  # the page shows the chunk itself
    if row.sample.contexts is not None:
        view["sample"]["contexts"] = [chunks.place_of(text) for text in row.sample.contexts]
    if sources := _sources_of(row.sample):
        view["sources"] = [None if source is None else cut(source) for source in sources]
        view["sample"]["metadata"].pop(SOURCES, None)
    view["sample"]["metadata"].pop(SPANS, None)
    view["sample"]["metadata"].pop(REFERENCE_SPANS, None)
    if metric := _metric_with_statements(row):
        view["statements"] = metric
    statements = [f.text for f in row.scores[metric].findings if f.kind == "statement"] if metric else []
    if (tree := build_answer_tree(row.sample.answer or "", statements)) is not None:
        view["answer"] = tree
    return view


def _metric_with_statements(row: Row) -> str:
    """Return the metric whose statements of the answer are shown, preferably with verdicts against the contexts."""
    verdicts = {
        name: {finding.verdict for finding in score.findings if finding.kind == "statement"}
        for name, score in row.scores.items()
    }
    cited = (name for name, found in verdicts.items() if found & _AGAINST_CONTEXTS)
    return next(cited, next((name for name, found in verdicts.items() if found), ""))


def _sources_of(sample: Sample) -> Sequence[str | None]:
    """Return the source of each context, or [] if none is known."""
    sources = sample.metadata.get(SOURCES)
    if not isinstance(sources, list) or len(sources) != len(sample.contexts or ()):
        return []
    return [None if source is None else str(source) for source in sources]


def _cut_all(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_cut_all(item) for item in value]
    return {name: _cut_all(item) for name, item in value.items()} if isinstance(value, Mapping) else value


Node = Any
"""A text, or a list of a tag and its children."""

_LONGEST = 20_000
"""Most characters of an answer that is parsed."""
_DEEPEST = 50
"""Most levels of emphasis in each other; the tree is built recursively."""
_LEAST_SHARE = 0.5
"""Share of a statement's words, weighted by rarity, that the sentence that holds it exceeds."""
_LEAST_LETTERS = 0.8
"""Least share of an answer's letters and digits that its tree must contain."""
_INLINE = {"strong": "strong", "em": "em", "s": "s", "link": "link"}


@dataclass
class _Block:
    """Text of a paragraph, a heading or a cell, as runs that share their formatting.

    Attributes:
        runs: texts with the tags around them, outermost first.
    """

    runs: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.runs)

    def spans(self) -> list[tuple[int, int]]:
        """Return begin and end of each sentence."""
        text, at, spans = self.text.replace("\n", " "), 0, []
        for sentence in split_sentences(text):
            begin = text.find(sentence, at)
            if begin >= 0:
                at = begin + len(sentence)
                spans.append((begin, at))
        return spans

    def nodes(self, begin: int = 0, end: int | None = None) -> Iterator[Node]:
        """Yield the nodes of a part of the text."""
        at = 0
        for text, tags in self.runs:
            node: Node = text[max(0, begin - at) : None if end is None else max(0, end - at)]
            at += len(text)
            if node:
                for tag in reversed(tags):
                    node = [tag, node]
                yield node


def build_answer_tree(answer: str, statements: Sequence[str]) -> list[Node] | None:
    """Return an answer as Markdown nodes; None for plain text without a marked sentence.

    The result is also None for an answer that is very long, or emphasised in very many levels.

    Args:
        answer: the answer, as plain text or Markdown.
        statements: statements of the answer. For each statement, the sentence that shares most words with it is marked,
            if it shares enough words.
    """
    from markdown_it.tree import SyntaxTreeNode

    if len(answer) > _LONGEST:
        return None
    blocks: list[_Block] = []
    tokens = _markdown().parse(answer)
    if any(inner.level > _DEEPEST for token in tokens for inner in token.children or ()):
        return None  # such as thousands of asterisks of a model that repeats itself
    root: list[Node] = ["root", *_elements(SyntaxTreeNode(tokens).children, blocks)]
    if _letters(root) < _LEAST_LETTERS * sum(map(str.isalnum, answer)):
        return None  # the parser drops what is nested too deeply
    spans = [(block, span) for block in blocks for span in block.spans()]
    marks = _marked_sentences([block.text[begin:end] for block, (begin, end) in spans], statements)
    by_block: dict[int, list[tuple[int, int, list[int]]]] = {}
    for place, (block, (begin, end)) in enumerate(spans):
        if place in marks:
            by_block.setdefault(id(block), []).append((begin, end, marks[place]))
    nodes = [_finished(node, by_block) for node in root[1:]]
    return None if nodes == [["p", answer.strip()]] else nodes


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    rules = ["code", "lheading", "reference", "html_block", "html_inline"]  # misread plain text, or are not wanted
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(rules)


def _elements(nodes: Iterable[SyntaxTreeNode], blocks: list[_Block]) -> Iterator[Node]:
    """Yield the elements of nodes of a syntax tree, with each text as a block, which is also added to `blocks`."""
    for node in nodes:
        if node.type == "inline":
            blocks.append(_Block(list(_runs(node.children))))
            yield blocks[-1]
        elif node.type in ("fence", "hr"):
            yield ["pre", node.content] if node.type == "fence" else ["hr"]
        elif node.hidden:
            yield from _elements(node.children, blocks)
        else:
            start = f" {node.attrs['start']}" if "start" in node.attrs else ""
            tag = "heading" if node.type == "heading" else f"{node.tag}{start}"
            yield [tag, *_elements(node.children, blocks)]


def _runs(nodes: Iterable[SyntaxTreeNode], tags: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in nodes:
        if node.type in _INLINE:
            yield from _runs(node.children, (*tags, _INLINE[node.type]))
            if node.type != "link":
                continue
            label = "".join(one.content for one in node.walk() if one.type in ("text", "code_inline"))
            if (address := node.attrs.get("href", "")) not in (label, f"mailto:{label}"):
                yield f" ({address})", (*tags, "small")
        elif node.type in ("softbreak", "hardbreak"):
            yield "\n", tags
        elif node.type == "image":
            yield node.content, (*tags, "em")
            yield f" ({node.attrs.get('src', '')})", (*tags, "small")
        else:
            yield node.content, (*tags, "code") if node.type == "code_inline" else tags


def _finished(node: Node, marks: dict[int, list[tuple[int, int, list[int]]]]) -> Node:
    """Return an element with its blocks replaced by nodes and their marked sentences."""
    if not isinstance(node, list):
        return node
    children: list[Node] = []
    for child in node[1:]:
        if not isinstance(child, _Block):
            children.append(_finished(child, marks))
            continue
        at = 0
        for begin, end, places in marks.get(id(child), ()):
            children += child.nodes(at, begin)
            children.append(["mark", places, *child.nodes(begin, end)])
            at = end
        children += child.nodes(at)
    groups = groupby(children, key=lambda child: isinstance(child, str))  # texts that follow each other are one text
    return [node[0], *(one for is_text, own in groups for one in (["".join(own)] if is_text else own))]


def _letters(node: Node) -> int:
    """Return the number of letters and digits in a node, whose blocks are not finished."""
    if isinstance(node, list):
        return sum(map(_letters, node[1:]))
    return sum(map(str.isalnum, node.text if isinstance(node, _Block) else node))


def _marked_sentences(sentences: Sequence[str], statements: Sequence[str]) -> dict[int, list[int]]:
    """Return the places of the statements that each sentence holds, by the place of the sentence."""
    words = [content_words(sentence) for sentence in sentences]
    frequency = Counter(word for found in words for word in found)
    marks: dict[int, list[int]] = {}
    for place, statement in enumerate(statements):
        weights = {word: 1 / max(1, frequency[word]) for word in content_words(statement)}
        total = sum(weights.values())
        shares = [sum(weights[word] for word in found & weights.keys()) for found in words]
        best = max(range(len(shares)), key=lambda n: (shares[n], -len(words[n])), default=None)
        if best is not None and total and shares[best] > _LEAST_SHARE * total:
            marks.setdefault(best, []).append(place)
    return marks
