"""Answers of the offline judge to the steps that write test sets, as writer and as critic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_rageval.text.language import FUNCTION_WORDS, detect_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import numbers_of, stem_of, stems_of, words_of

TEMPLATES: Mapping[str, Mapping[str, Any]] = {
    "en": {
        "write": 'What is known about "{0}"?',
        "reasoning": 'How is {0} connected with "{1}", and why?',
        "conditional": 'What becomes of {0} if "{1}" is taken into account?',
        "multi_context": 'What do {0} and "{1}" have in common?',
        "conversational": "so what about {0}",
        "unanswerable": "What will become of {0} in {1}?",
        "numbers": "Which number belongs to {0} and {1}?",
        "formal": "Please inform me: {0}",
        "angry": "Nobody answers me! {0}!!",
        "code-mixed": "{0} Por favor.",
        "voice": "um {0}",
        "persona": "Hello! {0}",
        "follow_up": "And what about it?",
        "topic": "I have a question about {0}.",
        "topic again": "It is about {0}.",
        "which": "What would you like to know?",
        "off topic": "How do I {0} {1}?",
        "verbs": ["water", "transplant", "fertilize", "prune", "graft"],
        "things": [
            "beefsteak tomatoes",
            "phalaenopsis orchids",
            "saguaro cactuses",
            "floribunda roses",
            "pelargonium geraniums",
            "everbearing strawberries",
            "gherkin cucumbers",
            "hokkaido pumpkins",
            "boskoop apples",
            "conference pears",
        ],
        "personas": [
            "A newcomer who knows no technical terms and writes long, polite messages",
            "An expert in a hurry who writes short messages on a phone",
            "A customer who is not satisfied and wants precise rules",
            "A parent who asks on behalf of the family and needs simple words",
            "An employee who must explain the rules to others",
            "A student who compares several offers",
            "An elderly person who asks step by step",
        ],
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
        "numbers": "Какое число относится к теме {0} и к {1}?",
        "formal": "Прошу сообщить: {0}",
        "angry": "Никто не отвечает! {0}!!",
        "code-mixed": "{0} Плиз.",
        "voice": "ну {0}",
        "persona": "Здравствуйте! {0}",
        "follow_up": "А что с этим?",
        "topic": "У меня вопрос на тему {0}.",
        "topic again": "Речь о теме {0}.",
        "which": "Что вы хотите узнать?",
        "off topic": "Как {0} {1}?",
        "verbs": ["подкармливать", "рассаживать", "удобрять", "подрезать", "опрыскивать"],
        "things": [
            "помидоры черри",
            "орхидею фаленопсис",
            "кактус эхинопсис",
            "розу флорибунду",
            "герань зональную",
            "клубнику ремонтантную",
            "огурцы корнишоны",
            "капусту брокколи",
            "яблоню антоновку",
            "крыжовник бесшипный",
        ],
        "personas": [
            "Новичок, который не знает терминов и пишет длинно и вежливо",
            "Специалист, который спешит и пишет коротко с телефона",
            "Недовольный клиент, который требует точных правил",
            "Родитель, который спрашивает за семью и просит простых слов",
            "Сотрудник, который должен объяснить правила другим",
            "Студент, который сравнивает несколько предложений",
            "Пожилой человек, который спрашивает по шагам",
        ],
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


_Inputs = Mapping[str, Any]

_ENOUGH = 0.6
_SOME = 0.4
_MOST_PHRASES = 5
_MOST_CANDIDATES = 50  # phrases of a text, when one that another text lacks is searched for
_LONGEST_PHRASE = 3  # words
_SHORTEST_WORD = 4  # letters of a word in a phrase
_SHORTEST_SENTENCE = 5  # words
_FIRST_YEAR = 2101

_MARKUP = re.compile(r"```.*?(?:```|\Z)|<[^<>]*>|https?://\S+", re.DOTALL)
_NOT_PROSE = ("#", "|", "==")  # beginnings of headings and tables
_IDEOGRAM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # two of them count as one word
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

_FUNCTION_WORDS = FUNCTION_WORDS["en"] | FUNCTION_WORDS["ru"]
_OWN_STEMS = stems_of(" ".join(text for own in TEMPLATES.values() for text in own.values() if isinstance(text, str)))


def pick_keyphrases(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `extract_keyphrases`: the phrases whose words are most frequent in the passage.

    Capitalized words, and phrases of several adjacent words, are preferred.
    """
    return {"keyphrases": _phrases(str(inputs["passage"]))}


def grade_prose(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `grade_passage`: four grades from 1 to 3 for the quality of a passage.

    They are computed from the number and share of prose sentences, full stops and key phrases.
    """
    text = str(inputs["passage"])
    prose = _prose_sentences(text)
    share = sum(map(len, prose)) / max(1, len(text.strip()))
    ended = sum(sentence.rstrip("»\"')").endswith((".", "!", "?", "…", ":", ";", "。")) for sentence in prose)
    return {
        "reason": f"{len(prose)} / {share:.0%} / {ended}",
        "clarity": 1 + (share >= _SOME) + (share >= _ENOUGH),
        "depth": 1 + (len(prose) > 1) + (len(prose) > _MOST_PHRASES),
        "structure": 1 + (ended > 0) + (ended > _ENOUGH * len(prose)),
        "relevance": 1 + (len(prose) > 0) + (len(_phrases(text)) >= _MOST_PHRASES),
    }


def ask_about_keyphrase(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `write_question`: a question that asks about the key phrase."""
    return {"question": fill_template(str(inputs["passage"]), "write", str(inputs["keyphrase"]))}


def reword_question(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `reword_question`: a question without words such as "this" or "in the text".

    If the passages do not answer the rest of the question, the reply is a new question about their best key phrase.
    """
    question, texts = str(inputs["question"]), passage_texts(inputs)
    direct = " ".join(_POINTING.sub(" ", question).split()).replace(" ?", "?")
    if direct != question and content_stems(direct) and _is_answerable(direct, texts):
        return {"question": direct}
    stems, old = content_stems(question), quoted_phrases(question)
    others = [phrase for text in texts for phrase in _phrases(text) if phrase not in old]
    if not others:
        return {"question": direct}
    nearest = max(others, key=lambda phrase: len(content_stems(phrase) & stems))
    return {"question": fill_template(" ".join(texts), "write", nearest)}


def join_phrase(inputs: _Inputs, *, template: str) -> dict[str, Any]:
    """Offline reply to `evolve_reasoning` and `evolve_conditional`: the question with another phrase added.

    The phrase is from the passages. The question is returned unchanged if they contain no other phrase.
    """
    question = str(inputs["question"])
    phrase = _unused_phrase(passage_texts(inputs), beyond=question)
    return {"question": fill_template(question, template, subject(question), phrase) if phrase else question}


def connect_passages(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_multi_context`: a question that needs several passages.

    A phrase that only one passage contains is added: the phrase that shares least with the question. If that passage
    covers the whole question, a phrase of the other passages is added too, so that they are needed. The question is
    returned unchanged if there are no such phrases.
    """
    question = str(inputs["question"])
    wanted = content_stems(question)
    *own, other = sorted(passage_texts(inputs) or [""], key=lambda text: -len(wanted & stems_of(text)))
    phrase = _unused_phrase([other], beyond=" ".join([question, *own]))
    parts = topics_of(question)
    if wanted <= stems_of(other):
        parts.append(_unused_phrase(own, beyond=f"{question} {other}") or "")
    if not phrase or not all(parts):
        return {"question": question}
    return {"question": fill_template(question, "multi_context", _join_quoted(question, parts), phrase)}


def make_conversational(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_conversational`: the question in lower case without quotation and end marks."""
    question = str(inputs["question"])
    return {"question": fill_template(question, "conversational", re.sub('[«»"]', "", subject(question)).lower())}


def make_unanswerable(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_unanswerable`: a question about a future year that no passage names."""
    question = str(inputs["question"])
    numbers = numbers_of(" ".join([question, *passage_texts(inputs)]))
    year = next(str(year) for year in range(_FIRST_YEAR, _FIRST_YEAR + len(numbers) + 1) if str(year) not in numbers)
    return {"question": fill_template(question, "unanswerable", subject(question), year)}


def ask_for_numbers(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_numbers`: a question about the first number of the passages."""
    question = str(inputs["question"])
    numbers = re.findall(r"\d+", " ".join(passage_texts(inputs)))
    new = [number for number in numbers if number not in numbers_of(question)]
    return {"question": fill_template(question, "numbers", subject(question), new[0]) if new else question}


def shorten_question(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `compress_question`: the question without polite phrases."""
    question = str(inputs["question"]).strip()
    short = _POLITE.sub("", question).strip(" ,")
    return {"question": short[0].upper() + short[1:] if content_stems(short) and short != question else question}


def assess_question(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `review_question`: whether a question is standalone and answerable.

    Standalone: it has no words such as "this" or "in the text". Answerable: the passages contain most of its words.
    """
    question, texts = str(inputs["question"]), passage_texts(inputs)
    standalone = bool(content_stems(question)) and not _POINTING.search(question)
    answerable = _is_answerable(question, texts)
    faults = ["not standalone"] * (not standalone) + ["not answerable"] * (not answerable)
    own = TEMPLATES[template_language(" ".join([question, *texts]))]
    feedback = " ".join(str(own[fault]) for fault in faults or ["fine"])
    return {"feedback": feedback, "standalone": standalone, "answerable": answerable}


def contrast_questions(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `compare_questions`: whether a question is broader or deeper than its parent.

    Broader if it has new words; deeper if it also asks why or how and the parent does not.
    """
    parent, question = str(inputs["parent"]), str(inputs["question"])
    fresh = content_stems(question) - content_stems(parent)
    why = len(_WHY.findall(question)) > len(_WHY.findall(parent))
    return {"reason": f"+{len(fresh)}", "deeper": bool(fresh) and why, "broader": bool(fresh)}


def select_passages(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `find_passages`: the passages that contain the words of the question.

    They are chosen one after the other; each next passage is the passage that adds most words of the question.
    """
    wanted = content_stems(str(inputs["question"]))
    shared = {int(item["passage"]): wanted & stems_of(str(item["text"])) for item in inputs["passages"]}
    selected: list[int] = []
    covered: set[str] = set()
    while shared and (best := max(shared, key=lambda number: len(shared[number] - covered))) and shared[best] - covered:
        selected.append(best)
        covered |= shared.pop(best)
    enough = bool(wanted) and len(covered) >= _ENOUGH * len(wanted)
    return {"reason": f"{len(covered)}/{len(wanted)}", "passages": sorted(selected) if enough else []}


def quote_answer(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `write_answer`: the one or two sentences that share most words with the question."""
    question, texts = str(inputs["question"]), passage_texts(inputs)
    wanted = content_stems(question)
    uncovered, quotes = wanted, []
    splitters = (_prose_sentences, split_sentences)
    sentences = [sentence for split in splitters for text in texts for sentence in split(text)]
    for _ in range(2):
        best = max(sentences, key=lambda sentence: len(uncovered & stems_of(sentence)), default="")
        if not uncovered & stems_of(best):
            break
        quotes.append(best)
        uncovered = uncovered - stems_of(best)
    enough = bool(wanted) and len(wanted - uncovered) >= _SOME * len(wanted) and _has_numbers(question, texts)
    return {"answerable": enough, "answer": " ".join(sorted(quotes, key=sentences.index)) if enough else ""}


def admit_ignorance(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `answer_unaided`: "I do not know" in the language of the question."""
    return {"answer": fill_template(str(inputs["question"]), "unknown")}


def halve_answer(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `degrade_answer`: the first half of the answer.

    Half of its sentences, or half of the words if it is a single sentence.
    """
    sentences = split_sentences(str(inputs["answer"]))
    parts = sentences if len(sentences) > 1 else " ".join(sentences).split()
    return {"answer": " ".join(parts[: len(parts) // 2])}


def write_padding(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `pad_context`: fixed sentences without information about any topic."""
    question = str(inputs["question"])
    own = TEMPLATES[template_language(str(inputs["context"]))]["padding"]
    return {"sentences": [sentence.format(subject(question)) for sentence in own]}


def fill_template(language_from: str, name: str, *parts: str) -> str:
    """Fill values into one of the question and answer templates, in the language of a text."""
    return str(TEMPLATES[template_language(language_from)][name]).format(*parts)


def template_language(text: str) -> str:
    """Return the language of the templates for a text: Russian, or else English."""
    return "ru" if detect_language(text) == "ru" else "en"


def passage_texts(inputs: _Inputs) -> list[str]:
    """Return the texts of the passages of a request."""
    return [str(item["text"]) for item in inputs["passages"]]


def content_stems(text: str) -> set[str]:
    """Return the stems (first five letters) of a question's words, except function words and words of the templates."""
    return stems_of(" ".join(word for word in words_of(text) if word not in _FUNCTION_WORDS)) - _OWN_STEMS


def _is_answerable(question: str, texts: Sequence[str]) -> bool:
    wanted, present = content_stems(_POINTING.sub(" ", question)), stems_of(" ".join(texts))
    return bool(wanted) and len(wanted & present) >= _ENOUGH * len(wanted) and _has_numbers(question, texts)


def _has_numbers(question: str, texts: Sequence[str]) -> bool:
    return numbers_of(question) <= numbers_of(" ".join(texts))


def quoted_phrases(question: str) -> list[str]:
    """Return the phrases in quotation marks of a question."""
    return [russian or other for russian, other in _QUOTED.findall(question)]


def subject(question: str) -> str:
    """Return the topics of a question as one quoted text."""
    return _join_quoted(question, topics_of(question))


def topics_of(question: str) -> list[str]:
    """Return the topics of a question: its quoted phrases, or all its content words as one phrase."""
    own = [word for word in _WORD.findall(question) if content_stems(word)]
    return quoted_phrases(question) or [" ".join(own) or question.strip(" ?")]


def _join_quoted(language_from: str, phrases: Sequence[str]) -> str:
    russian = template_language(language_from) == "ru"
    return fill_template(language_from, "and").join(f"«{phrase}»" if russian else f'"{phrase}"' for phrase in phrases)


def _unused_phrase(texts: Sequence[str], *, beyond: str) -> str | None:
    """Return the first phrase, else the first word, of the texts without a stem of the text `beyond`; None if none."""
    known = stems_of(beyond)
    phrases = [phrase for text in texts for phrase in _phrases(text, most=_MOST_CANDIDATES)]
    words = [word for phrase in phrases for word in phrase.split() if stems_of(word)]
    return next((phrase for phrase in (*phrases, *words) if not stems_of(phrase) & known), None)


def _prose_sentences(text: str) -> list[str]:
    """Return the sentences of prose in a text, without markup, headings, tables and questions."""
    sentences = (" ".join(sentence.split()) for sentence in split_sentences(_plain(text)))
    return [
        sentence
        for sentence in sentences
        if len(words_of(sentence)) + len(_IDEOGRAM.findall(sentence)) / 2 >= _SHORTEST_SENTENCE
        and not sentence.startswith(_NOT_PROSE)
        and not sentence.endswith(("?", "？"))
    ]


def _plain(text: str) -> str:
    return re.sub(r"\u0301|\*+|`+", "", _MARKUP.sub(" ", text))


def _phrases(text: str, most: int = _MOST_PHRASES) -> list[str]:
    """Return the key phrases of a text, best first; no two share a word stem.

    Only sentences of prose are used; if there are none, the whole text.
    """
    sentences = _prose_sentences(text) or [" ".join(_WORD.findall(_plain(text)))]
    times = Counter(stem_of(word) for sentence in sentences for word in words_of(sentence))
    names = {word for sentence in sentences for word in _WORD.findall(sentence)[1:] if word[0].isupper()}
    best: dict[str, float] = {}
    for sentence in sentences:
        for run in _runs(sentence):
            for phrase, score in _score_phrases(run, times, names):
                best[phrase] = max(score, best.get(phrase, 0.0))
    phrases: list[str] = []
    used: set[str] = set()
    for phrase in sorted(best, key=lambda phrase: -best[phrase]):
        if not stems_of(phrase) & used and len(phrases) < most:
            phrases.append(phrase)
            used |= stems_of(phrase)
    return phrases


def _runs(sentence: str) -> Iterator[list[str]]:
    """Yield the lists of adjacent content words of a sentence; a list may be empty."""
    run: list[str] = []
    end = -1
    for match in _WORD.finditer(sentence):
        word = match.group()
        if match.start() != end + 1:
            yield run
            run = []
        if len(word) >= _SHORTEST_WORD and content_stems(word) and not _DULL.fullmatch(word):
            run.append(word)
        else:
            yield run
            run = []
        end = match.end()
    yield run


def _score_phrases(run: Sequence[str], times: Mapping[str, int], names: set[str]) -> Iterable[tuple[str, float]]:
    """Yield each phrase of up to three adjacent words in a list of words, with its score.

    The score is the mean frequency of the words, raised for several words, for names and for the whole list.
    """
    for size in range(1, _LONGEST_PHRASE + 1):
        for at in range(len(run) - size + 1):
            words = run[at : at + size]
            frequency = sum(times[stem_of(words_of(word)[0])] for word in words) / size
            name_share = sum(word in names for word in words) / size
            whole = size == len(run)
            yield " ".join(words), frequency * (1 + 0.5 * (size > 1) + 0.5 * name_share + 0.3 * whole)
