"""Prompt search: find the chunks that a model read, by looking for their text in the model's prompt.

The search begins at the model call whose text is the answer. An answer may be refined, translated or checked, so that
the prompt of this call holds the output of an earlier call. The prompt of the earlier call is then searched too, and so
on. Because a formatter may number, escape, join and cut chunks, words are compared, and a long part of a chunk
suffices.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.messages import get, role_of, unwrap_text
from langchain_rageval.text.words import TOKEN

_GRAM = 3  # words that are looked up together
_LONG = 8  # words in a row that show that a chunk was read in part
_LONG_TEXT = 16  # and their characters: in Chinese, each is a word
_SHARE = 0.6  # share of a chunk's words that shows it, too
_WHOLE = 0.9  # share from which on a chunk counts as read completely
_SHORTEST = 5  # words; a shorter text must be found as a whole
_LARGE, _STRIDE = 2_000, 8  # words of a text from which on only each eighth place is looked up
_MOST_PLACES = 16  # of one gram in all chunks, which bounds the time for texts that repeat themselves
_MOST_GAP = 3  # words that a formatter may insert, such as the number of a line
_NO_TEXTS = ("type", "id", "url", "base64", "mime_type", "media_type", "image_url", "tool_use_id")  # of a block
_ELLIPSIS = " … "
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,200}>|&#?\w{1,8};")  # whose words count neither in a chunk nor in a prompt
_LINE_NUMBER = re.compile(r"^[^\S\n]*\d+[^\S\n]*[:.)|\]]?[^\S\n]+", re.MULTILINE)
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\x[0-9a-fA-F]{2}|\\[\\/\"'bfnrt]")
_ESCAPED = {**dict.fromkeys("bfnrt", "\n"), "\\": "\\", "/": "/", '"': '"', "'": "'"}

_Places = list[tuple[int, int]]
"""Places of a text in another one: pairs of the first and the last offset."""


class Chunk(NamedTuple):
    """Chunk that occurred in a run of the chain.

    Attributes:
        text: text of the chunk.
        id: id of the chunk; None if the chunk has no id.
        source: source of the document, or the tool that returned the document; None if unknown.
        span: source, first offset and last offset of the chunk in its document; None if unknown.
        seen: time at which the chunk first occurred, counted in events of the run.
    """

    text: str
    id: str | None = None
    source: str | None = None
    span: list[Any] | None = None
    seen: float = 0


@dataclass(eq=False, slots=True)
class ModelCall:
    """Call of a chat model or a language model in a run, recorded from callback events.

    Attributes:
        started: time of the start, counted in events of the run.
        prompt: contents of the messages or texts sent to the model. Each content is paired with True if it comes from
            an AI message, which the model wrote earlier, and otherwise with False.
        ended: time of the end; infinite if the call failed or has not ended.
        result: the model's result, an `LLMResult`; None without a result.
    """

    started: int
    prompt: Sequence[tuple[Any, bool]]
    ended: float = inf
    result: Any = None

    def end(self, time: int, result: Any) -> None:
        """Record the result and the time of the end, counted in events of the run.

        If `result` is None, the call failed and nothing is recorded.
        """
        if result is not None:
            self.ended, self.result = time, result

    @property
    def output(self) -> str:
        """Text of the reply, followed by the arguments of its tool calls."""
        generations = get(self.result, "generations") or [[]]
        generation = generations[0][0] if generations[0] else None
        message = get(generation, "message")
        text = get(generation, "text") if message is None else unwrap_text(message)
        calls = [str(get(call, "args")) for call in get(message, "tool_calls") or []]
        return "\n".join([text if isinstance(text, str) else "", *calls]).strip()


def prompt_of(messages: Iterable[Any]) -> list[tuple[Any, bool]]:
    """Return the content of each message or text of a prompt, paired with True if a model wrote it (an AI message)."""
    return [(item, False) if isinstance(item, str) else (item.content, role_of(item) == "ai") for item in messages]


class _Words:
    """Text with its words, which are compared without regard to letter case, and their places."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _spans(self) -> _Places:
        text = (
            _MARKUP.sub(lambda tag: " " * len(tag[0]), self.text) if "<" in self.text or "&" in self.text else self.text
        )
        return [match.span() for match in TOKEN.finditer(text)]

    @cached_property
    def words(self) -> list[str]:
        """Words in order; found when they are needed, since most chunks are found by their text."""
        found = (self.text[start:end] for start, end in self._spans)  # NFKC folds, for example, full width
        return [word.lower() if word.isascii() else unicodedata.normalize("NFKC", word).casefold() for word in found]

    @cached_property
    def joined(self) -> str:
        """Words with single spaces between and around them."""
        return f" {' '.join(self.words)} "

    def may_share(self, text: _Words) -> bool:
        """Return False if this text and another one certainly have no three words in a row in common."""
        if max(len(self.words), len(text.words)) >= _LARGE:  # whose grams would take much memory
            return True
        return not self._grams.isdisjoint(text._grams)

    @cached_property
    def _grams(self) -> frozenset[tuple[str, ...]]:
        words = self.words
        return frozenset(zip(words, words[1:], words[2:], strict=False))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last offset in the text of some of the words, of which there are any."""
        return self._spans[start][0], self._spans[end - 1][1]


class _Stretch(NamedTuple):
    """Words that a text and a prompt have in common: the first word in the text, the number of words, the offsets."""

    first: int
    size: int
    start: int
    end: int


class _Block(NamedTuple):
    """Stretch of a prompt that is something else than a chunk, or another chunk.

    Attributes:
        start: first offset.
        end: last offset.
        whole: a chunk that was first seen before this time and is in the stretch as a whole does not count.
        part: the same for a part of a chunk.
    """

    start: int
    end: int
    whole: float = inf
    part: float = inf


class Part(NamedTuple):
    """Part of a chunk that a model read in its prompt.

    Attributes:
        chunk: the whole chunk.
        text: text of the part.
        heading: line of the prompt before the part.
    """

    chunk: Chunk
    text: str
    heading: str = ""


def find_read(
    answer: str,
    question: str,
    chunks: Sequence[Chunk],
    calls: Iterable[ModelCall],
    queries: Iterable[tuple[str, float]],
    examples: Sequence[str] = (),
) -> list[Part]:
    """Return the parts of chunks in the prompt of the model that wrote an answer, in the prompt's order, each once.

    If the prompt holds a draft (output of an earlier call), the prompt of the earlier call is searched, too.

    Args:
        answer: the answer.
        question: the question. A chunk that occurs only inside it does not count as read.
        chunks: chunks that occurred in the run, in any order.
        calls: all model calls of the run.
        queries: queries sent to retrievers and tools, each with the time at which it was sent, counted in events of the
            run. The output of a model call that mostly wrote such queries does not count as a draft.
        examples: examples of questions and answers in prompts. A chunk that occurs only inside them does not count as
            read.

    Returns:
        The parts of chunks that were read; `[]` if no call wrote the answer, or no prompt holds a chunk.
    """
    run = _Run(question, chunks, _outputs_of(calls), [*queries], examples)
    first = _writers_of(answer, run.outputs) if chunks else []
    attempts = ((_SHORTEST, False), (1, False), (1, True))
    return next((parts for shortest, is_own in attempts if (parts := run.read(first, shortest, is_own=is_own))), [])


def find_writer(answer: str, calls: Iterable[ModelCall]) -> ModelCall | None:
    """Return the model call that wrote an answer; None if no call or several calls did."""
    writers = _writers_of(answer, _outputs_of(calls))
    return writers[0] if len(writers) == 1 else None


def _outputs_of(calls: Iterable[ModelCall]) -> dict[ModelCall, _Words]:
    """Return the outputs of the calls that have ended, in the order of their starts."""
    finished = sorted((call for call in calls if call.ended < inf), key=lambda call: call.started)
    return {call: _Words(call.output) for call in finished}


@dataclass(eq=False)
class _Run:
    """A run of a chain: what its prompts may hold.

    Args:
        question: the question.
        chunks: chunks that the run has handled.
        outputs: outputs of its model calls, in the order of their starts.
        queries: what retrievers and tools were asked for, and when.
        examples: examples in prompts.
    """

    question: str
    chunks: Sequence[Chunk]
    outputs: Mapping[ModelCall, _Words]
    queries: Sequence[tuple[str, float]]
    examples: Sequence[str]

    def __post_init__(self) -> None:
        """Split the texts into words, and find the outputs that may be drafts."""
        self._asked, self._texts = _Words(self.question), [_Words(chunk.text.strip()) for chunk in self.chunks]
        others = ((query, time) for query, time in self.queries if query.strip() != self.question.strip())
        self._queries = [(_Words(query), time) for query, time in others]
        self._drafts = {call for call in self.outputs if self._is_draft(call)}

    def read(self, first: Sequence[ModelCall], shortest: int, *, is_own: bool) -> list[Part]:
        """Return the chunks in the prompts of calls, and of the calls whose outputs these hold, in order of the calls.

        Args:
            first: the calls to begin with.
            shortest: number of words from which on an output in a prompt counts.
            is_own: True to read messages of the model itself, too, into which an application may put chunks.
        """
        pending = [*first]
        results: dict[ModelCall, list[Part]] = {}
        while pending:
            call = pending.pop()
            held, results[call] = self._read_prompt(call, is_own=is_own)
            held = [draft for draft in held if len(self.outputs[draft].words) >= shortest]
            pending += [draft for draft in held if draft not in results and draft not in pending]
        longest: dict[str, Part] = {}
        for call in sorted(results, key=lambda call: call.started):
            for part in results[call]:
                known = longest.setdefault(part.chunk.text, part)
                if len(part.text) > len(known.text):
                    longest[part.chunk.text] = part
        return list(longest.values())

    def _is_draft(self, call: ModelCall) -> bool:
        """Return True unless an output is the question, a chunk, or mostly what retrievers or tools were asked for."""
        output = self.outputs[call]
        if not output.words or output.words == self._asked.words:
            return False
        if any(chunk.seen > call.ended and chunk.text.strip() == output.text for chunk in self.chunks):
            return False
        later = {query.joined: len(query.words) for query, time in self._queries if time > call.ended and query.words}
        return 2 * sum(size for query, size in later.items() if query in output.joined) < len(output.words)

    def _read_prompt(self, call: ModelCall, *, is_own: bool) -> tuple[list[ModelCall], list[Part]]:
        """Return the calls whose drafts a prompt holds, and the chunks that it holds, in their order.

        A prompt with escapes is also read without them. The form that holds more counts.
        """
        forms = [(*form, [_exact(form[0].text, text.text) for text in self._texts]) for form in _forms(call)]
        most = max((sum(map(bool, exact)) for *_, exact in forms), default=0)
        earlier = {one: words for one, words in self.outputs.items() if one.ended < call.started and words.words}
        best: tuple[int, list[ModelCall], list[Part]] = (-1, [], [])
        for prompt, own, exact in forms:
            blocked = [] if is_own else own
            if sum(map(bool, exact)) < most:
                continue
            whole = [
                [place for chunk, at in zip(self.chunks, exact, strict=True) if chunk.seen < one.ended for place in at]
                for one in earlier
            ]
            places = dict(zip(earlier, _places(prompt, [*earlier.values()], whole), strict=True))
            for one, found in places.items():
                blocked += [_Block(*place, one.ended, one.ended) for place in found]
            for query, time in self._queries:
                blocked += [_Block(*place, time) for place in _exact(prompt.text, query.text.strip())]
            for text in (self._asked.text, *self.examples):
                blocked += [_Block(*place) for place in _exact(prompt.text, text.strip())]
            held = [one for one, found in places.items() if found and one in self._drafts]
            parts = _place(prompt, blocked, self.chunks, self._texts, exact)
            size = sum(len(part.text) for part in parts) + sum(len(earlier[draft].text) for draft in held)
            if size > best[0]:
                best = size, held, parts
        return best[1], best[2]


def _writers_of(answer: str, outputs: Mapping[ModelCall, _Words]) -> list[ModelCall]:
    """Return the last call whose output is the answer, else holds it; else all calls whose outputs the answer holds."""
    wanted = _Words(answer)
    forms = {call: [output, *map(_Words, _unescaped(output.text))] for call, output in outputs.items()}
    equal = [call for call in outputs if any(form.words == wanted.words for form in forms[call])]
    if not wanted.words:
        equal = [call for call in outputs if outputs[call].text.strip() == answer.strip()]
    inside = equal or [call for call in outputs if any(wanted.joined in form.joined for form in forms[call])]
    if inside:
        return inside[-1:]
    parts = [call for call, output in outputs.items() if output.words and output.joined in wanted.joined]
    if any(len(outputs[call].words) >= _SHORTEST for call in parts):
        return [call for call in parts if len(outputs[call].words) >= _SHORTEST]
    placed = ((call, _runs(form, [wanted])[0]) for call in outputs for form in forms[call])
    similar = [(_covered(runs), call.started, call) for call, runs in placed if _suffices(runs, len(wanted.words))]
    return [max(similar)[2]] if similar else parts[-1:]


def _forms(call: ModelCall) -> Iterator[tuple[_Words, list[_Block]]]:
    """Yield the prompt of a call as it is, then without its escapes, layer by layer, and without numbers of lines.

    Each form has a list of the messages that the model wrote itself.
    """
    texts = [(content if isinstance(content, str) else _text_of(content), own) for content, own in call.prompt]
    while texts:
        blocked, size = [], 0
        for text, own in texts:
            if own:
                blocked.append(_Block(size, size + len(text)))
            size += len(text) + 1
        yield _Words("\n".join(text for text, _ in texts)), blocked
        decoded = [(next(_unescaped(text), text), own) for text, own in texts]
        if decoded == texts:
            decoded = [(_LINE_NUMBER.sub("", text), own) for text, own in texts]
        texts = decoded if decoded != texts else []


def _text_of(content: Any) -> str:
    """Return the texts in the blocks of a message's content, also in those of the results of tools and documents."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return "\n".join(_text_of(value) for name, value in content.items() if name not in _NO_TEXTS)
    return "\n".join(map(_text_of, content)) if isinstance(content, list | tuple) else ""


def _unescaped(text: str) -> Iterator[str]:
    r"""Yield a text without the escapes of JSON and HTML, such as \u0416, if it has any."""
    decoded = _ESCAPE.sub(_decode, text) if "\\" in text else text
    decoded = html.unescape(decoded) if "&" in decoded else decoded
    if decoded != text:
        yield decoded


def _decode(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] == "x":
        return chr(int(escape[2:], 16))
    if escape[1] != "u":
        return _ESCAPED[escape[1]]
    units = b"".join(int(code, 16).to_bytes(2, "big") for code in escape.split("\\u")[1:])
    return units.decode("utf-16-be", errors="replace")


def _place(
    prompt: _Words, taken: list[_Block], chunks: Sequence[Chunk], texts: Sequence[_Words], exact: Sequence[_Places]
) -> list[Part]:
    """Return the chunks that a prompt holds, in their order. Each stretch of it counts for one chunk, the longest.

    Args:
        prompt: the prompt.
        taken: stretches of the prompt that are no chunks; those of the returned chunks are added.
        chunks: the chunks.
        texts: their texts.
        exact: places of each text in the prompt.
    """
    others = [number for number, places in enumerate(exact) if not places]
    runs = dict(zip(others, _runs(prompt, [texts[number] for number in others]), strict=True))
    sizes: dict[int, float] = {number: len(texts[number].text) for number, places in enumerate(exact) if places}
    for number, found in runs.items():
        if found:  # each word once, also if it occurs in several places
            most = len(texts[number].text) * _covered(found) / len(texts[number].words)
            sizes[number] = min(most, sum(run.end - run.start for run in found))
    parts: list[tuple[int, int, Part]] = []
    for number in sorted(sizes, key=lambda number: -sizes[number]):
        chunk, text = chunks[number], texts[number]
        barred = [block for block in taken if chunk.seen < block.whole]
        free = [place for place in exact[number] if not any(b.start <= place[0] and place[1] <= b.end for b in barred)]
        if free:
            places, part = free, Part(chunk, chunk.text)
        else:
            barred = [block for block in taken if chunk.seen < block.part]
            left = _once([run for run in runs.get(number, ()) if not _is_barred(run, barred)], len(text.words))
            if not _suffices(left, len(text.words)):
                continue
            places, part = [(run.start, run.end) for run in left], _part(chunk, text, left)
        taken += [_Block(*place) for place in places]
        parts.append((min(places)[0], max(place[1] for place in places), part))
    parts.sort(key=lambda placed: placed[0])
    ends = [0, *(end for _, end, _ in parts)]
    between = [prompt.text[end:start].rstrip() for end, (start, _, _) in zip(ends, parts, strict=False)]
    return [
        part._replace(heading=text[text.rfind("\n") + 1 :]) for text, (_, _, part) in zip(between, parts, strict=True)
    ]


def _once(runs: Sequence[_Stretch], size: int) -> list[_Stretch]:
    """Return the runs that show words of a text which no longer run shows; of equal ones that near the longest.

    A heading that all chunks have occurs in a prompt several times, but each chunk has only one of these places.
    """
    longest = max(runs, key=lambda run: run.size, default=None)
    covered, kept = bytearray(size), list[_Stretch]()
    for run in sorted(runs, key=lambda run: (-run.size, abs(run.start - longest.start) if longest else 0)):
        words = slice(run.first, run.first + run.size)
        if 2 * covered[words].count(1) < run.size:
            covered[words] = b"\1" * run.size
            kept.append(run)
    return kept


def _is_barred(run: _Stretch, barred: Sequence[_Block]) -> bool:
    """Return True if more than half of a run lies in stretches of the prompt that are no chunk or another one."""
    overlap, end = 0, run.start
    for block in sorted(barred):
        overlap += max(0, min(run.end, block.end) - max(end, block.start))
        end = max(end, block.end)
    return 2 * overlap > run.end - run.start


def _part(chunk: Chunk, text: _Words, runs: Sequence[_Stretch]) -> Part:
    """Return the part of a chunk that was read; the whole chunk if only a few of its words are missing."""
    size = len(text.words)
    missing = size - _covered(runs)
    if missing <= (1 - _WHOLE) * size or (missing < _GRAM and size > _LONG):
        return Part(chunk, chunk.text)
    stretches: list[list[int]] = []
    for run in sorted(runs):
        if stretches and run.first <= stretches[-1][1] + _MOST_GAP:
            stretches[-1][1] = max(stretches[-1][1], run.first + run.size)
        else:
            stretches.append([run.first, run.first + run.size])
    spans = [text.span(start, end) for start, end in stretches]
    if stretches[-1][1] == size:  # with the punctuation after the last word
        spans[-1] = spans[-1][0], len(text.text)
    return Part(chunk, _ELLIPSIS.join(text.text[start:end] for start, end in spans))


def _exact(prompt: str, text: str) -> _Places:
    """Return the places of a text in a prompt that begin and end with whole words."""
    places = []
    at = prompt.find(text) if text else -1
    while at >= 0:
        end = at + len(text)
        before, after = prompt[max(0, at - 1) : at], prompt[end : end + 1]
        is_cut = (before and (before + text[0]).isalnum()) or (after and (text[-1] + after).isalnum())
        if not is_cut:
            places.append((at, end))
        at = prompt.find(text, at + 1 if is_cut else end)
    return places


def _places(prompt: _Words, texts: Sequence[_Words], chunks: Sequence[_Places]) -> list[_Places]:
    """Return the place in a prompt of each text, or the places of enough of it.

    What stands there again is not taken for the text: a chunk may be equal to a draft that was made of it.

    Args:
        prompt: the prompt.
        texts: the texts.
        chunks: for each text, places of chunks that it may quote. Quotations of larger chunks are not counted.
    """

    def is_quoted(number: int, start: int, end: int) -> bool:
        return any(first <= start and end <= last and end - start < last - first for first, last in chunks[number])

    places = [
        [place for place in _exact(prompt.text, text.text) if not is_quoted(number, *place)][:1]
        for number, text in enumerate(texts)
    ]
    others = [number for number, found in enumerate(places) if not found]
    for number, runs in zip(others, _runs(prompt, [texts[number] for number in others]), strict=True):
        runs = [run for run in runs if not is_quoted(number, run.start, run.end)]
        if _suffices(runs, len(texts[number].words)):
            places[number] = [(run.start, run.end) for run in runs]
    return places


def _runs(prompt: _Words, texts: Sequence[_Words]) -> list[list[_Stretch]]:
    """Return for each text the longest runs of at least three words that it has in common with a prompt."""
    index: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for number, text in enumerate(texts):
        words = text.words if prompt.may_share(text) else ()
        for place in range(0, len(words) - _GRAM + 1, 1 if len(words) < _LARGE else _STRIDE):
            places = index.setdefault(tuple(words[place : place + _GRAM]), [])
            if len(places) < _MOST_PLACES:
                places.append((number, place))
    runs: list[list[_Stretch]] = [[] for _ in texts]
    if not index:
        return runs
    given = prompt.words
    ends: dict[tuple[int, int], int] = {}  # of the last run of a text at this distance from its place in the prompt
    explained = [0] * len(texts)  # end of the last long run of each text, before which no other run begins
    for at, gram in enumerate(zip(given, given[1:], given[2:], strict=False)):
        longest: dict[int, tuple[int, int, int]] = {}
        for number, place in index.get(gram, ()):
            if at >= max(explained[number], ends.get((number, at - place), 0)):
                first, last = _extended(texts[number].words, given, place, at)
                ends[number, at - place] = at - place + last
                longest[number] = max(longest.get(number, (0, 0, 0)), (last - first, first, at - place))
        for number, (size, first, shift) in longest.items():
            runs[number].append(_Stretch(first, size, *prompt.span(shift + first, shift + first + size)))
            if size >= _LONG:
                explained[number] = shift + first + size
    return runs


def _extended(words: Sequence[str], given: Sequence[str], place: int, at: int) -> tuple[int, int]:
    """Return the ends of the longest run of words around a place that stands at a place of the given words, too."""
    first, last, shift = place, place + _GRAM, at - place
    while first and shift + first and words[first - 1] == given[shift + first - 1]:
        first -= 1
    while last < len(words) and shift + last < len(given) and words[last] == given[shift + last]:
        last += 1
    return first, last


def _covered(runs: Iterable[_Stretch]) -> int:
    """Return the number of words of a text in runs."""
    covered = end = 0
    for run in sorted(runs):
        covered += max(0, run.first + run.size - max(run.first, end))
        end = max(end, run.first + run.size)
    return covered


def _suffices(runs: Sequence[_Stretch], size: int) -> bool:
    """Return True if runs show that a text of so many words was read: they hold most of it, or a long stretch."""
    share = _SHARE if size >= _SHORTEST else 1.0
    is_long = any(run.size >= _LONG and run.end - run.start >= _LONG_TEXT for run in runs)
    return bool(runs) and (is_long or _covered(runs) >= share * size)
