"""Steps about questions: rewrite a question to be understood alone, and write questions from an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Turn
from langchain_rageval.judge.judge import JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, RegeneratedQuestions, StandaloneQuestion
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.votes import AGREEMENT, agreement_rates, majority
from langchain_rageval.text.language import FUNCTION_WORDS, WORDS, detect_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import normalize_text, numbers_of, stem_of, tokens_of

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_COMPOUND = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d)[\s\u00a0\u202f.,'’](?=\d{3}(?!\d))")
_VOWELS = re.compile("[аеёиоуыэюяьъйaeiouy]")
_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_GERMAN_NOUN = re.compile(
    r"\b(?i:der|die|das|den|dem|des|(?:[mds]?ein|kein|ihr|unser|euer)(?:e[mnrs]?)?|eure[mnrs]?"
    r"|(?:dies|jed|jen|welch|manch|solch|all|viel|wenig|mehrer|einig|beid)e[mnrs]?|viel|pro|zum|zur|im|am|beim|vom|ins"
    r"|\d+)\s+(?:[a-zäöüß]+e[mnrs]?\s+)*"
)
"""Determiner or number, and the adjectives after it: what stands before a noun."""
_LONGEST_ENDING = 3  # letters
_NUMBER_WORDS, _INTERCHANGEABLE = (
    [" ".join(names).split() for names in zip(*WORDS[kind].values(), strict=True)]
    for kind in ("number_words", "interchangeable")
)
_FEWEST_CONSONANTS = 2


def new_facts(question: str, source: str) -> list[str]:
    """Return the names and numbers of a question that do not occur in `source`, each once, in their order.

    Names are compared without their endings: "Льва" is a form of "Лев". The grouping of digits is ignored: "2,000" is
    "2000". A number up to 20 also matches its word ("five"), and the number 1 is always known.

    Args:
        question: the rewritten question.
        source: the conversation and the original question.
    """
    joined = {match.replace("-", "") for match in _COMPOUND.findall(source.casefold())}
    words = {*tokens_of(normalize_text(source)), *(word.casefold() for word in _WORD.findall(source)), *joined}
    words |= {word for group in _INTERCHANGEABLE if not words.isdisjoint(group) for word in group}
    in_words = {str(number) for number, names in enumerate(_NUMBER_WORDS, 1) if not words.isdisjoint(names)}
    known_numbers = {"1", *_numbers(source), *numbers_of(source), *in_words}
    numbers = [number for number in _numbers(question) if number not in known_numbers]
    stems = {stem_of(word) for word in words}

    def joined_if_known(compound: re.Match[str]) -> str:  # "Wi-Fi" beside "wifi"
        plain = compound[0].replace("-", "")
        return plain if plain.casefold() in words else compound[0]

    question = _COMPOUND.sub(joined_if_known, question)
    names = [name for name in _names(question, source) if not _is_known(name, words, stems)]
    return list(dict.fromkeys([*names, *numbers]))


def _numbers(text: str) -> list[str]:
    """Return the numbers of a text with a point before their decimals and without separators of thousands."""
    return [number.replace(",", ".") for number in _NUMBER.findall(_THOUSANDS.sub("", text))]


def _names(question: str, source: str) -> Iterator[str]:
    """Yield the words of a question that may be names."""
    is_cyrillic = bool(re.search("[а-яё]", source, re.IGNORECASE))
    is_german = detect_language(f"{question}\n{source}") == "de"
    for sentence in split_sentences(question) or [question]:
        nouns = {match.end() for match in _GERMAN_NOUN.finditer(sentence)} if is_german else set()
        for place, match in enumerate(_WORD.finditer(sentence)):
            word = match[0]
            is_foreign = is_cyrillic and word.isascii()
            is_name = place and word[0].isupper() and word.casefold() not in _FUNCTION_WORDS
            if is_foreign or (is_name and match.start() not in nouns):
                yield word


def _is_known(name: str, words: set[str], stems: set[str]) -> bool:
    """Return True if a text with these words contains a name, perhaps with another ending."""
    parts = tokens_of(normalize_text(_POSSESSIVE.sub("", name)))
    return all(stem_of(part) in stems or any(_are_forms(part, word) for word in words) for part in parts)


def _are_forms(one: str, other: str) -> bool:
    """Return True if two words may be forms of one name: "лев" and "льва", "ян" and "яна"."""
    if one[0] != other[0] or abs(len(one) - len(other)) > _LONGEST_ENDING:
        return False
    short, long = sorted((one, other), key=len)
    if len(short) > 1 and long.startswith(short):
        return True
    skeletons = sorted((_VOWELS.sub("", word) for word in (one, other)), key=len)
    return len(skeletons[0]) >= _FEWEST_CONSONANTS and skeletons[1].startswith(skeletons[0])


REWRITTEN, UNCHANGED, REFUSED = "rewritten", "unchanged", "refused"


class RewriteQuestion(JudgeStep):
    """Step that replaces the question in `sample` by one that is understandable without the history.

    It also adds `standalone_question` (an object with this question and the judge's reason) and `question_findings`, a
    list of one Finding: "rewritten", "unchanged" or "refused". A blank rewriting, or one that adds names or numbers, is
    refused: the question then stays unchanged. Without a history the step adds nothing.
    """

    def work(self, state: State) -> Operation[State]:
        """Replace the question in the state's sample by the rewritten question; no request without history."""
        sample: Sample = state["sample"]
        if not sample.history:
            return state
        history = recent_turns(sample.history, self.judge.members[0].max_context_tokens)
        inputs = {"history": history, "question": sample.question}
        answer = yield from self._answer(inputs, None, language_from=sample.language_text, limits=AnswerLimits())
        accepted, finding = _checked(sample, answer)
        return state | {
            "sample": sample.model_copy(update={"question": accepted.question}),
            "standalone_question": accepted,
            "question_findings": [finding],
        }


def rewrite_question(judge: JudgeLike) -> JudgeStep:
    """Return the step that rewrites the question of a sample so that it is understood without the history."""
    return RewriteQuestion(prompt="rewrite_question", judge=judge, answer=StandaloneQuestion)


def recent_turns(history: Sequence[Turn], most_tokens: int | None = None) -> list[dict[str, Any]]:
    """Return the last turns that fit into `most_tokens` as data for a request, at least the last turn.

    A turn has a form such as `{"role": "user", "text": "Hi"}`. Four characters count as one token. With None, all turns
    are returned.
    """
    left = inf if most_tokens is None else most_tokens * CHARACTERS_PER_TOKEN
    recent: list[dict[str, Any]] = []
    for turn in reversed(history):
        left -= len(turn.text)
        if recent and left < 0:
            break
        recent.append(turn.model_dump())
    return recent[::-1]


def _checked(sample: Sample, answer: StandaloneQuestion) -> tuple[StandaloneQuestion, Finding]:
    """Return the answer with the question to judge, and a finding: rewritten, unchanged, or refused and why."""
    question, rewrite = sample.question, answer.question.strip()
    facts = new_facts(rewrite, "\n".join([question, *(turn.text for turn in sample.history)]))
    problem = Note("rewrite-adds", rewrite=rewrite, names=facts) if facts else "" if rewrite else Note("rewrite-empty")
    is_same = normalize_text(rewrite) == normalize_text(question)
    finding = Finding(
        kind="standalone_question",
        number=1,
        text=question if problem or is_same else rewrite,
        verdict=REFUSED if problem else UNCHANGED if is_same else REWRITTEN,
        reason=explain(sample.language_text, problem, end="") if problem else answer.reason,
    )
    return StandaloneQuestion(reason=answer.reason, question=finding.text), finding


class RegenerateQuestions(JudgeStep):
    """Step that adds `evasive` (majority verdict: is the answer evasive) and the list `regenerated_questions`.

    Each vote says whether the answer is evasive, and lists questions that the answer answers. The step keeps the first
    `count` questions of each vote that does not call the answer evasive. If a vote neither calls the answer evasive nor
    lists a question, the judge is asked again. Without a majority the answer is evasive.

    Attributes:
        count: maximum number of questions from one vote.
    """

    count: int

    def work(self, state: State) -> Operation[State]:
        """Ask the judge (the first judge of a jury) for questions that the answer answers, and add them to the state.

        Makes one request per draw (repetition of the request); none for a blank answer.
        """
        sample: Sample = state["sample"]
        voters = voters_of(self.judge.members[0]) if (sample.answer or "").strip() else []
        answers: list[RegeneratedQuestions] = yield Gather([self._vote(voter, sample) for voter in voters])
        verdicts = ["evasive" if answer.evasive else "answers" for answer in answers]
        evasive = majority(verdicts or ["evasive"], tie="evasive") == "evasive"
        found = list(agreement_rates({1: "the answer"}, voters, [{1: verdict} for verdict in verdicts]))
        questions = [q for answer in answers if not answer.evasive for q in _questions(answer)[: self.count]]
        return state | {"evasive": evasive, "regenerated_questions": questions} | ({AGREEMENT: found} if found else {})

    def _vote(self, voter: Voter, sample: Sample) -> Operation[RegeneratedQuestions]:
        inputs: dict[str, Any] = {"answer": sample.answer, "count": self.count}
        step: JudgeStep = self
        if sample.history:
            inputs = {"history": recent_turns(sample.history, voter.judge.max_context_tokens), **inputs}
            step = self.model_copy(update={"prompt": "regenerate_turn_questions"})
        limits = AnswerLimits(lengths=(("questions", self.count),))
        options = {"language_from": sample.language_text, "objection": _objection, "limits": limits}
        return step._answer(inputs, None, voter, **options)


def regenerate_questions(judge: JudgeLike, *, count: int) -> JudgeStep:
    """Return the step that writes up to `count` questions from the answer."""
    return RegenerateQuestions(prompt="regenerate_questions", judge=judge, answer=RegeneratedQuestions, count=count)


def _questions(answer: RegeneratedQuestions) -> list[str]:
    return [question.strip() for question in answer.questions if question.strip()]


def _objection(answer: RegeneratedQuestions) -> str | None:
    return None if answer.evasive or _questions(answer) else "no questions, though the answer is not called evasive"
