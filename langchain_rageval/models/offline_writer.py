"""What the offline judge answers to the steps that write test sets, as writer and as critic.

Its questions name phrases of the passages in quotation marks, so that the next step finds them again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_rageval.text.language import FUNCTION_WORDS, detect_language
from langchain_rageval.text.normalization import words_of
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stem_of, stems_of

Inputs = Mapping[str, Any]

_ENOUGH = 0.6
_SOME = 0.4
_MOST_PHRASES = 5
_LOOKED_AT = 50  # phrases, for one that another text does not hold
_LONGEST_PHRASE = 3  # words
_SHORTEST_WORD = 4  # letters, in a phrase
_WORDS_OF_A_SENTENCE = 5
_FIRST_YEAR = 2101

_MARKUP = re.compile(r"```.*?(?:```|\Z)|<[^<>]*>|https?://\S+", re.DOTALL)
_NO_PROSE = ("#", "|", "==")  # what headings and tables begin with
_IDEOGRAM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # two of them are about a word
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_QUOTED = re.compile(r"«([^«»]+)»|\"([^\"]+)\"")
_POINTING = re.compile(
    r"\b(?:in|from|by|according to) the (?:given |provided |above )?(?:texts?|passages?|documents?|excerpts?)\b"
    r"|\b(?:in|from) the (?:given |provided )?context\b(?! of| manager)|\b(?:this|these|those)\b"
    r"|\b(?:в|во|из) (?:\w+ )?(?:тексте|текста|отрывк\w+|документе|документа|фрагмент\w+)\b"
    r"|\b(?:согласно|судя по) (?:\w+ )?(?:тексту|отрывк\w+|документу|статье|фрагмент\w+)\b"
    r"|\b(?:это|этот|эта|эти|этого|этой|этому|этом|этим|этими|этих|эту|данный|данная|данное|данного|данной|данном)\b",
    re.IGNORECASE,
)
_DULL = re.compile(
    _POINTING.pattern
    + r"|котор\w+|явля\w+|сво(?:й|ей|его|их|им|ими|ём|ю|я|и|е|ё)|друг(?:ой|ая|ие|их|ого|ую|им)|такж\w+"
    r"|может|могут|можете|будет|some|such|other|using|used|here|there|they|them|more|most|like",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"\b(?:скажите|подскажите|расскажите|пожалуйста|не могли бы вы|могли бы вы|не подскажете ли|я хотел\w? бы знать"
    r"|на самом деле|вообще|в целом|please|kindly|could you tell me|can you tell me|could you explain"
    r"|i would like to know|i want to know|actually|in general|basically)\b[, ]*",
    re.IGNORECASE,
)
_WHY = re.compile(r"\b(?:why|how|почему|отчего|зачем|как)\b", re.IGNORECASE)

_TEMPLATES = {
    "en": {
        "write": 'What is known about "{0}"?',
        "reasoning": 'How is {0} connected with "{1}", and why?',
        "conditional": 'What becomes of {0} if "{1}" is taken into account?',
        "multi_context": 'What do {0} and "{1}" have in common?',
        "conversational": "so what about {0}",
        "unanswerable": "What will become of {0} in {1}?",
        "and": " and ",
        "unknown": "I do not know.",
        "not standalone": "Name what is meant instead of pointing at it or at a text.",
        "not answerable": "The passages do not say; ask about what they name.",
        "fine": "The passages answer it.",
        "padding": [
            "Handbooks on {0} are kept in many libraries.",
            "Many readers ask about {0}.",
            "People who know {0} well like to talk about it.",
        ],
    },
    "ru": {
        "write": "Что известно о теме «{0}»?",
        "reasoning": "Как {0} связано с темой «{1}» и почему?",
        "conditional": "Что изменится в теме {0}, если учесть тему «{1}»?",
        "multi_context": "Что общего у тем {0} и «{1}»?",
        "conversational": "а что с темой {0}",
        "unanswerable": "Что станет с темой {0} в {1} году?",
        "and": " и ",
        "unknown": "Не знаю.",
        "not standalone": "Назовите то, о чём вопрос, а не указывайте на него или на текст.",
        "not answerable": "В отрывках этого нет; спросите о том, что в них названо.",
        "fine": "Ответ есть в отрывках.",
        "padding": [
            "Справочники на тему {0} есть во многих библиотеках.",
            "Тема {0} занимает многих читателей.",
            "Знатоки темы {0} охотно о ней рассказывают.",
        ],
    },
}
_FUNCTION_WORDS = FUNCTION_WORDS["en"] | FUNCTION_WORDS["ru"]
_OWN_STEMS = stems_of(" ".join(text for own in _TEMPLATES.values() for text in own.values() if isinstance(text, str)))


def keyphrases(inputs: Inputs) -> dict[str, Any]:
    """The answer of extract_keyphrases: what its sentences repeat, capitalised or together."""
    return {"keyphrases": _phrases(str(inputs["passage"]))}


def grades(inputs: Inputs) -> dict[str, Any]:
    """The answer of grade_passage, by counts: of sentences, of what is no sentence, of marks at the end, of phrases."""
    text = str(inputs["passage"])
    told = _told(text)
    share = sum(map(len, told)) / max(1, len(text.strip()))
    ended = sum(sentence.rstrip("»\"')").endswith((".", "!", "?", "…", ":", ";", "。")) for sentence in told)
    return {
        "reason": f"{len(told)} / {share:.0%} / {ended}",
        "clarity": 1 + (share >= _SOME) + (share >= _ENOUGH),
        "depth": 1 + (len(told) > 1) + (len(told) > _MOST_PHRASES),
        "structure": 1 + (ended > 0) + (ended > _ENOUGH * len(told)),
        "relevance": 1 + (len(told) > 0) + (len(_phrases(text)) >= _MOST_PHRASES),
    }


def first_question(inputs: Inputs) -> dict[str, Any]:
    """The answer of write_question."""
    return {"question": _said(str(inputs["passage"]), "write", str(inputs["keyphrase"]))}


def rewritten(inputs: Inputs) -> dict[str, Any]:
    """The answer of rewrite_question: without what points, if the passages then answer it, else about their phrase."""
    question, texts = str(inputs["question"]), _texts(inputs)
    named = " ".join(_POINTING.sub(" ", question).split()).replace(" ?", "?")
    if named != question and _content(named) and _answerable(named, texts):
        return {"question": named}
    asked, old = _content(question), _quoted(question)
    others = [phrase for text in texts for phrase in _phrases(text) if phrase not in old]
    if not others:
        return {"question": named}
    nearest = max(others, key=lambda phrase: len(_content(phrase) & asked))
    return {"question": _said(" ".join(texts), "write", nearest)}


def evolved(kind: str) -> Callable[[Inputs], dict[str, Any]]:
    """The answer of evolve_reasoning or evolve_conditional: joins one more phrase of the passages.

    The question stays as it was when they hold no other.
    """

    def evolve(inputs: Inputs) -> dict[str, Any]:
        question = str(inputs["question"])
        phrase = _further(_texts(inputs), beyond=question)
        return {"question": _said(question, kind, _subject(question), phrase) if phrase else question}

    return evolve


def evolved_over_passages(inputs: Inputs) -> dict[str, Any]:
    """The answer of evolve_multi_context: joins a phrase that only the passage holds which shares least with it.

    If that passage names all that the question does, another phrase of the others makes them needed as well. The
    question stays as it was when there are no such phrases.
    """
    question = str(inputs["question"])
    *own, other = sorted(_texts(inputs) or [""], key=lambda text: -len(_content(question) & stems_of(text)))
    phrase = _further([other], beyond=" ".join([question, *own]))
    parts = _parts(question)
    if _content(question) <= stems_of(other):
        parts.append(_further(own, beyond=f"{question} {other}") or "")
    if not phrase or not all(parts):
        return {"question": question}
    return {"question": _said(question, "multi_context", _joined(question, parts), phrase)}


def typed(inputs: Inputs) -> dict[str, Any]:
    """The answer of evolve_conversational: lower case, no quotation marks, no mark at the end."""
    question = str(inputs["question"])
    return {"question": _said(question, "conversational", re.sub('[«»"]', "", _subject(question)).lower())}


def unanswerable(inputs: Inputs) -> dict[str, Any]:
    """The answer of evolve_unanswerable: asks for a year that no passage names."""
    question = str(inputs["question"])
    named = numbers_of(" ".join([question, *_texts(inputs)]))
    year = next(str(year) for year in range(_FIRST_YEAR, _FIRST_YEAR + len(named) + 1) if str(year) not in named)
    return {"question": _said(question, "unanswerable", _subject(question), year)}


def compressed(inputs: Inputs) -> dict[str, Any]:
    """The answer of compress_question: without what is only polite."""
    question = str(inputs["question"]).strip()
    short = _POLITE.sub("", question).strip(" ,")
    return {"question": short[0].upper() + short[1:] if _content(short) and short != question else question}


def review(inputs: Inputs) -> dict[str, Any]:
    """The answer of review_question."""
    question, texts = str(inputs["question"]), _texts(inputs)
    standalone = bool(_content(question)) and not _POINTING.search(question)
    answerable = _answerable(question, texts)
    faults = ["not standalone"] * (not standalone) + ["not answerable"] * (not answerable)
    own = _TEMPLATES[_language(" ".join([question, *texts]))]
    feedback = " ".join(str(own[fault]) for fault in faults or ["fine"])
    return {"feedback": feedback, "standalone": standalone, "answerable": answerable}


def comparison(inputs: Inputs) -> dict[str, Any]:
    """The answer of compare_questions: what is new makes it broader, and deeper when it newly asks why or how."""
    parent, question = str(inputs["parent"]), str(inputs["question"])
    fresh = _content(question) - _content(parent)
    why = len(_WHY.findall(question)) > len(_WHY.findall(parent))
    return {"reason": f"+{len(fresh)}", "deeper": bool(fresh) and why, "broader": bool(fresh)}


def needed(inputs: Inputs) -> dict[str, Any]:
    """The answer of find_passages: the one that shares most with the question, then what adds to it."""
    wanted = _content(str(inputs["question"]))
    held = {int(item["passage"]): wanted & stems_of(str(item["text"])) for item in inputs["passages"]}
    found: list[int] = []
    covered: set[str] = set()
    while held and (best := max(held, key=lambda number: len(held[number] - covered))) and held[best] - covered:
        found.append(best)
        covered |= held.pop(best)
    enough = bool(wanted) and len(covered) >= _ENOUGH * len(wanted)
    return {"reason": f"{len(covered)}/{len(wanted)}", "passages": sorted(found) if enough else []}


def reference_answer(inputs: Inputs) -> dict[str, Any]:
    """The answer of write_answer: the one or two sentences that share most with the question."""
    question, texts = str(inputs["question"]), _texts(inputs)
    wanted = _content(question)
    left, told = wanted, []
    sentences = [sentence for split in (_told, split_sentences) for text in texts for sentence in split(text)]
    for _ in range(2):
        best = max(sentences, key=lambda sentence: len(left & stems_of(sentence)), default="")
        if not left & stems_of(best):
            break
        told.append(best)
        left = left - stems_of(best)
    enough = bool(wanted) and len(wanted - left) >= _SOME * len(wanted) and _numbers_there(question, texts)
    return {"answerable": enough, "answer": " ".join(sorted(told, key=sentences.index)) if enough else ""}


def unaided(inputs: Inputs) -> dict[str, Any]:
    """The answer of answer_unaided: it knows nothing."""
    return {"answer": _said(str(inputs["question"]), "unknown")}


def degraded(inputs: Inputs) -> dict[str, Any]:
    """The answer of degrade_answer: the first half of its sentences, or of the words of a single one."""
    sentences = split_sentences(str(inputs["answer"]))
    parts = sentences if len(sentences) > 1 else " ".join(sentences).split()
    return {"answer": " ".join(parts[: len(parts) // 2])}


def padding(inputs: Inputs) -> dict[str, Any]:
    """The answer of pad_context: what holds of any topic."""
    question = str(inputs["question"])
    own = _TEMPLATES[_language(str(inputs["context"]))]["padding"]
    return {"sentences": [sentence.format(_subject(question)) for sentence in own]}


def _said(like: str, name: str, *parts: str) -> str:
    """A template filled in, in the language of a text."""
    return str(_TEMPLATES[_language(like)][name]).format(*parts)


def _language(text: str) -> str:
    return "ru" if detect_language(text) == "ru" else "en"


def _texts(inputs: Inputs) -> list[str]:
    return [str(item["text"]) for item in inputs["passages"]]


def _content(text: str) -> set[str]:
    """Stems of what a question is about: without function words and the words of the templates."""
    return stems_of(" ".join(word for word in words_of(text) if word not in _FUNCTION_WORDS)) - _OWN_STEMS


def _answerable(question: str, texts: Sequence[str]) -> bool:
    wanted, there = _content(_POINTING.sub(" ", question)), stems_of(" ".join(texts))
    return bool(wanted) and len(wanted & there) >= _ENOUGH * len(wanted) and _numbers_there(question, texts)


def _numbers_there(question: str, texts: Sequence[str]) -> bool:
    return numbers_of(question) <= numbers_of(" ".join(texts))


def _quoted(question: str) -> list[str]:
    return [russian or other for russian, other in _QUOTED.findall(question)]


def _subject(question: str) -> str:
    return _joined(question, _parts(question))


def _parts(question: str) -> list[str]:
    """What a question is about: the phrases in it that stand in quotation marks, else its own words."""
    own = [word for word in _WORD.findall(question) if _content(word)]
    return _quoted(question) or [" ".join(own) or question.strip(" ?")]


def _joined(like: str, phrases: Sequence[str]) -> str:
    russian = _language(like) == "ru"
    return _said(like, "and").join(f"«{phrase}»" if russian else f'"{phrase}"' for phrase in phrases)


def _further(texts: Sequence[str], *, beyond: str) -> str | None:
    """A phrase of some texts that shares no stem with another one."""
    known = stems_of(beyond)
    phrases = (phrase for text in texts for phrase in _phrases(text, most=_LOOKED_AT))
    return next((phrase for phrase in phrases if not stems_of(phrase) & known), None)


def _told(text: str) -> list[str]:
    """The sentences of prose in a text, without markup, headings and questions."""
    sentences = (" ".join(sentence.split()) for sentence in split_sentences(_plain(text)))
    return [
        sentence
        for sentence in sentences
        if len(words_of(sentence)) + len(_IDEOGRAM.findall(sentence)) / 2 >= _WORDS_OF_A_SENTENCE
        and not sentence.startswith(_NO_PROSE)
        and not sentence.endswith(("?", "？"))
    ]


def _plain(text: str) -> str:
    return re.sub(r"\u0301|\*+|`+", "", _MARKUP.sub(" ", text))


def _phrases(text: str, most: int = _MOST_PHRASES) -> list[str]:
    """Phrases that share no stem, the best first; those of a heap of words when there is no sentence."""
    sentences = _told(text) or [" ".join(_WORD.findall(_plain(text)))]
    times = Counter(stem_of(word) for sentence in sentences for word in words_of(sentence))
    names = {word for sentence in sentences for word in _WORD.findall(sentence)[1:] if word[0].isupper()}
    best: dict[str, float] = {}
    for sentence in sentences:
        for run in _runs(sentence):
            for phrase, score in _scored(run, times, names):
                best[phrase] = max(score, best.get(phrase, 0.0))
    chosen: list[str] = []
    taken: set[str] = set()
    for phrase in sorted(best, key=lambda phrase: -best[phrase]):
        if not stems_of(phrase) & taken and len(chosen) < most:
            chosen.append(phrase)
            taken |= stems_of(phrase)
    return chosen


def _runs(sentence: str) -> Iterator[list[str]]:
    """Words of content that stand side by side."""
    run: list[str] = []
    end = -1
    for match in _WORD.finditer(sentence):
        word = match.group()
        if match.start() != end + 1:
            yield run
            run = []
        if len(word) >= _SHORTEST_WORD and _content(word) and not _DULL.fullmatch(word):
            run.append(word)
        else:
            yield run
            run = []
        end = match.end()
    yield run


def _scored(run: Sequence[str], times: Mapping[str, int], names: set[str]) -> Iterable[tuple[str, float]]:
    """The phrases of up to three words in a run; two words tell more than one, names more than other words."""
    for size in range(1, _LONGEST_PHRASE + 1):
        for at in range(len(run) - size + 1):
            words = run[at : at + size]
            known = sum(times[stem_of(words_of(word)[0])] for word in words) / size
            named = sum(word in names for word in words) / size
            whole = size == len(run)
            yield " ".join(words), known * (1 + 0.5 * (size > 1) + 0.5 * named + 0.3 * whole)
