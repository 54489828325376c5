"""Extract the statements of the answer, of the references, or of both.

The judge reads the question and one text, in a conversation also the history. For the answer the step adds
`answer_statements`, a list of str. For the references it adds `reference_statements`, a list of the distinct statements
of all references, and `statements_by_reference`, one list for each reference. All are in order of appearance. Makes no
call for a blank text, which has no statements. The option `for_contexts` is for statements that are then verified
against the contexts: if all contexts are blank, the step makes no call at all, and all lists are empty.

A reply is checked without a model. Verbatim and near-verbatim repeats are dropped, and so are statements beyond the
number that the text can hold (one for every three characters, and at least ten); `dropped_statements` is the number of
dropped statements, if there are any. Placeholders such as "No statements" are removed. If a statement was copied from
an example of the prompt, the judge is asked again. A text is sent in parts if it is longer than the judge's
`max_context_tokens`, or if the reply to it was cut off.

The content units of a text are the stems of its content words, and its numbers. In scripts without spaces between
words, single characters take the place of stems. `answer_unmentioned` and `reference_unmentioned` are pairs of numbers:
the content units of the texts that no statement mentions, and all content units of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.asking import JudgeQuestion
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.judge.reply import CutOffReply
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Statements
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.judge_step import JudgeStep, list_length, most_items
from langchain_rageval.steps.questions import recent_turns
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import FUNCTION_WORDS, WORDS
from langchain_rageval.text.sentences import assertions, split_sentences
from langchain_rageval.text.words import UNSPACED, normalize_text, stem_of, tokens_of

_MOST_HALVINGS = 4  # of a text whose reply is cut off again and again, as that of a judge in a repetition loop

Side = Literal["answer", "reference"]


@dataclass(frozen=True)
class _Extraction:
    """Statements of one text, the number of dropped ones, and its content units: those unmentioned, and all."""

    statements: list[str]
    dropped: int = 0
    unmentioned: int = 0
    units: int = 0


class ExtractStatements(JudgeStep):
    """Step that adds the statements of the answer, of the references, or of both, as `of` selects.

    "answer" adds `answer_statements`; "reference" adds `reference_statements` and `statements_by_reference`. With
    `for_contexts`, no statement is extracted if all contexts are blank.
    """

    of: Side | Literal["both"]
    for_contexts: bool = False

    def work(self, state: State) -> Operation[State]:
        """Add the statements that the judge extracts; one request per part of each text that is not blank.

        Makes no request if `for_contexts` is set and all contexts are blank.
        """
        sample: Sample = state["sample"]
        answers = [sample.answer or ""] if self.of != "reference" else []
        references = sample.references if self.of != "answer" else []
        if self.for_contexts and not any(context.strip() for context in sample.contexts or []):
            answers = references = []
        results: list[_Extraction] = yield Gather([self._extract(sample, text) for text in [*answers, *references]])
        of_answers, of_references = results[: len(answers)], results[len(answers) :]
        dropped = sum(result.dropped for result in results)
        if dropped:
            state = state | {"dropped_statements": state.get("dropped_statements", 0) + dropped}
        if self.of != "reference":
            state = _with_unmentioned(state, "answer", of_answers)
            state = state | {"answer_statements": list(chain.from_iterable(part.statements for part in of_answers))}
        if self.of != "answer":
            state = _with_unmentioned(state, "reference", of_references)
            first: dict[str, str] = {}  # wording of near-verbatim repeats in several references
            by_reference = [[first.setdefault(statement_key(s), s) for s in part.statements] for part in of_references]
            distinct = list(dict.fromkeys(chain.from_iterable(by_reference)))
            state = state | {"reference_statements": distinct, "statements_by_reference": by_reference}
        return state

    def _extract(self, sample: Sample, text: str) -> Operation[_Extraction]:
        """Return the statements of a text, each once."""
        if not text.strip():
            return _Extraction([])
        most_tokens = self.judge.members[0].max_context_tokens
        most_characters = len(text) if most_tokens is None else most_tokens * CHARACTERS_PER_TOKEN
        shares = text_parts(text, most_characters)
        parts: list[list[str]] = yield Gather([self._extract_part(sample, one, _MOST_HALVINGS) for one in shares])
        listed = [statement.strip() for part in parts for statement in without_list_marks(part)]
        listed = [statement for statement in listed if statement and not is_placeholder(statement, text)]
        distinct: dict[str, str] = {}
        for statement in listed:
            distinct.setdefault(statement_key(statement), statement)
        kept = list(distinct.values())[: most_items(text)]
        return _Extraction(kept, len(listed) - len(kept), *unmentioned_units(text, kept))

    def _extract_part(self, sample: Sample, text: str, halvings: int) -> Operation[list[str]]:
        """Return the statements of a part of a text; of its halves if the reply to the whole part is cut off.

        The question about a single sentence is repeated instead, as after any invalid reply; a judge with one attempt
        is asked about the whole part only.
        """
        asked = self._question(sample, text)
        known = "\n".join([sample.question, *(turn.text for turn in sample.history)])

        def objection(answer: Statements) -> str | None:
            copied = copied_statement(answer.statements, asked.request.prompt, known, text)
            return copied and f"{copied!r} is a statement of an example; list what `text` in the input says"

        def is_divisible() -> bool:
            return halvings > 0 and self.judge.members[0].attempts > 1 and bool(halves(text))

        try:
            reply: Statements = yield self.ask(JudgeQuestion(asked.request, asked.parser, objection, is_divisible))
        except CutOffReply:
            statements: list[str] = []
            # one after the other: a judge that is cut off on every part fails after few calls
            for part in halves(text):
                statements += yield from self._extract_part(sample, part, halvings - 1)
            return statements
        return reply.statements

    def _question(self, sample: Sample, text: str) -> JudgeQuestion[Statements]:
        """Return the question about a part of a text; in a conversation, with the history, which explains pronouns."""
        inputs: dict[str, Any] = {"question": sample.question, "text": text}
        limits = AnswerLimits(lengths=(("statements", list_length(text)),))
        step: JudgeStep = self
        if sample.history:
            inputs = {"history": recent_turns(sample.history, self.judge.members[0].max_context_tokens), **inputs}
            step = self.model_copy(update={"prompt": "extract_turn_statements"})
        return step.build_question(inputs, None, language_from=sample.language_text, limits=limits)


def _with_unmentioned(state: State, side: Side, results: Sequence[_Extraction]) -> State:
    counts = (sum(result.unmentioned for result in results), sum(result.units for result in results))
    return state | {f"{side}_unmentioned": counts}


def extract_statements(judge: JudgeLike, *, of: Side | Literal["both"], for_contexts: bool = False) -> JudgeStep:
    """Return the step that extracts statements.

    Args:
        judge: judge to ask.
        of: text to extract from: "answer", "reference" (all references) or "both" (concurrently).
        for_contexts: skip the extraction if all contexts are blank, because no context can support a statement.
    """
    return ExtractStatements(
        prompt="extract_statements", judge=judge, answer=Statements, of=of, for_contexts=for_contexts
    )


_NOT_SPACE = re.compile(r"\S")


def text_parts(text: str, most_characters: int) -> list[str]:
    """Return consecutive parts of a text of at most `most_characters`, without white space at their ends.

    A sentence that is longer is split between words; a word that is longer is split within. All non-space characters
    are kept, in order.
    """
    if len(text) <= most_characters:
        return [text]
    parts: list[str] = []
    start = boundary = 0
    for end in _sentence_ends(text):
        if end - start > most_characters and boundary > start:
            parts.append(text[start:boundary])
            start = boundary
        while end - start > most_characters:
            limit = start + most_characters
            space = max(text.rfind(space, start + 1, limit) for space in " \n\t")
            cut = space if space > start else limit  # within a long word
            parts.append(text[start:cut])
            start = cut
        boundary = end
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def halves(text: str) -> list[str]:
    """Return a text split at the sentence end nearest to its middle; an empty list if it is one sentence."""
    ends = [end for end in _sentence_ends(text) if text[end:].strip()]
    if not ends:
        return []
    middle = min(ends, key=lambda end: abs(end - len(text) // 2))
    return [text[:middle].strip(), text[middle:].strip()]


def _sentence_ends(text: str) -> Iterator[int]:
    """Yield the position after each sentence. The sentences hold every non-space character of the text in order."""
    positions = [match.start() for match in _NOT_SPACE.finditer(text)]
    seen = 0
    for sentence in split_sentences(text):
        seen += len("".join(sentence.split()))
        yield positions[seen - 1] + 1


_SHORTEST_CONTENT_WORD = 4  # letters
_SAID = 0.6  # share of a statement's content units that a text must contain to say it

_LIST_MARK = re.compile(r"^\s*(?:[-*+•◦▪‣·–—]|\(?\d{1,3}[.)](?=\s))\s*")
_NUMBERED = re.compile(r"^\s*[(\[]?(\d{1,3})[.)\]]\s+(?=\S)")
_BULLET = re.compile(r"^\s*[-*+•◦▪‣·–—]\s+(?=\S)")
_SEPARATOR = re.compile(r"[\"'«»“”„‘’`\[\](){}…!?;:。！？；：、，]|[.,](?!\d)|(?<!\S)[-–—](?=\s|$)")
_ARTICLE = re.compile(r"\b(?:an|the)\b ")  # "a" may be a name, as in "plan A"
_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_ADVICE = re.compile(
    r"\b(?:(?:contact|ask|consult) (?:your|our|the|an?)|обратитесь|спросите|уточните|проконсультируйтесь)\b",
    re.IGNORECASE,
)
_ONE_CHARACTER = re.compile(f"[{UNSPACED}]")

_NO_ANSWER = frozenset(
    [
        *("n/a", "n.a", "n/d", "n.d", "nil", "null", "tbd", "not applicable", "н/д", "не применимо", "неприменимо"),
        *("不适用", "해당없음", "해당 없음", "non applicabile"),
    ]
)
"""Words that fill an empty field, normalized as by `statement_key`."""

_STATES_NOTHING = re.compile("|".join(chain(*WORDS["nothing"].values())))


@lru_cache(maxsize=4096)
def statement_key(statement: str) -> str:
    """Return a key that is equal for statements that are near-verbatim repeats of each other.

    Case, punctuation, quotation marks, list marks, white space, English articles and the difference of ё and е are
    removed. Words, their order, numbers, signs and units are kept.
    """
    text = normalize_text(_LIST_MARK.sub("", statement))
    return " ".join(_ARTICLE.sub("", _SEPARATOR.sub(" ", text)).split())


def without_list_marks(statements: Sequence[str]) -> list[str]:
    """Return statements without list marks: "- " at the beginning, or "1. " if all statements are numbered."""
    numbers = [_NUMBERED.match(statement) for statement in statements]
    counted = [int(match[1]) for match in numbers if match]
    if len(counted) > 1 and counted == list(range(counted[0], counted[0] + len(statements))):
        return [_NUMBERED.sub("", statement) for statement in statements]
    return [_BULLET.sub("", statement) for statement in statements]


def is_placeholder(statement: str, text: str) -> bool:
    """Return True if a statement only says that there are no statements, such as "No statements.", "-" or "N/A".

    A sentence that the text itself contains, such as "No claims were made.", is not a placeholder.
    """
    key = statement_key(statement)
    if key in _NO_ANSWER:
        return True
    if any(map(str.isalnum, key)):
        return bool(_STATES_NOTHING.fullmatch(key)) and key not in map(statement_key, [text, *split_sentences(text)])
    return statement.strip() not in [text.strip(), *split_sentences(text)]


def content_units(text: str) -> set[str]:
    """Return the stems of the content words of a text, and its numbers, except the numbers of list items."""
    lines = [_LIST_MARK.sub("", line) for line in text.splitlines()]
    return {stem_of(token) for token in tokens_of(normalize_text("\n".join(lines))) if _is_content(token)}


def _is_content(token: str) -> bool:
    if token in _FUNCTION_WORDS:
        return False
    return len(token) >= _SHORTEST_CONTENT_WORD or any(map(str.isdigit, token)) or bool(_ONE_CHARACTER.fullmatch(token))


def unmentioned_units(text: str, statements: Iterable[str]) -> tuple[int, int]:
    """Return how many content units (word stems and numbers) of a text no statement mentions, and how many it has.

    Sentences that state nothing are left out: questions, "the documents do not say" and advice to ask somebody else.
    """
    units = content_units("\n".join(sentence for sentence in assertions(text) if not _ADVICE.search(sentence)))
    return len(units - content_units("\n".join(statements))), len(units)


def copied_statement(statements: Sequence[str], prompt: Prompt, question: str, text: str) -> str | None:
    """Return a statement that was copied from an example of the prompt, or None if there is none.

    A statement whose content is in the question or the text is not a copy.
    """
    examples = _example_keys(prompt)
    for statement in statements:
        key = statement_key(statement)
        if any(key in shown and statement_key(text) != example_text for example_text, shown in examples):
            units = content_units(statement)
            if len(units & content_units(f"{question}\n{text}")) < _SAID * len(units):
                return statement
    return None


@lru_cache(maxsize=64)
def _example_keys(prompt: Prompt) -> list[tuple[str, frozenset[str]]]:
    """Return the keys of the text and of the statements of each example."""
    return [
        (
            statement_key(str(example.input.get("text", ""))),
            frozenset(map(statement_key, example.output.get("statements", []))),
        )
        for example in prompt.examples
    ]
