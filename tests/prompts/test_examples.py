"""The examples of the packaged prompts: valid answers, one structure in all languages, true to the rules they teach."""

import re
from dataclasses import dataclass
from string import ascii_uppercase

import pytest
from helpers.packaged import OWN

from langchain_rageval import PromptSet
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, Question
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import split_sentences

READS = {  # keys of the JSON block
    "answer_unaided": ["question"],
    "check_needs": ["turns", "needs"],
    "check_user_facts": ["turns", "facts"],
    "classify_statements": ["question", "answer_statements", "reference_statements"],
    "compare_questions": ["parent", "question"],
    "compress_question": ["question"],
    "critique_aspect": ["question", "answer", "aspect", "definition"],
    "degrade_answer": ["question", "answer"],
    "detect_abstention": ["question", "answer"],
    "detect_answerable": ["question"],
    "evolve_angry": ["question", "passages"],
    "evolve_code_mixed": ["question", "passages"],
    "evolve_conditional": ["question", "passages"],
    "evolve_conversational": ["question", "passages"],
    "evolve_follow_up": ["question", "passages", "earlier"],
    "evolve_formal": ["question", "passages"],
    "evolve_misspelt": ["question", "passages"],
    "evolve_multi_context": ["question", "passages"],
    "evolve_numbers": ["question", "passages"],
    "evolve_off_topic": ["question", "passages"],
    "evolve_persona": ["question", "passages", "persona"],
    "evolve_reasoning": ["question", "passages"],
    "evolve_terse": ["question", "passages"],
    "evolve_unanswerable": ["question", "passages"],
    "evolve_voice": ["question", "passages"],
    "extract_entities": ["text"],
    "extract_keyphrases": ["passage"],
    "extract_statements": ["question", "text"],
    "extract_turn_statements": ["history", "question", "text"],
    "find_contradictions": ["statements"],
    "find_entities": ["entities"],
    "find_passages": ["question", "passages"],
    "grade_contexts": ["question", "answer"],
    "grade_passage": ["passage"],
    "grade_relevance": ["question", "scale"],
    "grade_rubric": ["question", "answer", "reference", "criteria"],
    "list_turn_facts": ["turns"],
    "pad_context": ["question", "context"],
    "propose_personas": ["count", "passages"],
    "regenerate_questions": ["answer", "count"],
    "review_follow_up": ["turns", "question", "standalone"],
    "regenerate_turn_questions": ["history", "answer", "count"],
    "review_question": ["question", "passages"],
    "reword_question": ["question", "feedback", "passages"],
    "rewrite_question": ["history", "question"],
    "select_sentences": ["question"],
    "verify_statements": ["question", "statements"],
    "write_answer": ["question", "passages"],
    "write_question": ["passage", "keyphrase"],
}
STEPS = [(language, step) for language in OWN for step in READS if step in OWN[language]]
GRADES = ["clarity", "depth", "structure", "relevance"]
QUESTIONS = [step for step, answer in ANSWER_SCHEMAS.items() if answer is Question]
STYLED = {f"evolve_{name}" for name in ("angry", "formal", "misspelt", "persona", "terse", "voice")}
CITATION = re.compile(r"(?<![A-Za-z])[A-Z]\.\d+")
NEGATION = {
    "en": r"\b(?:not|cannot|No|nothing|Nothing|nobody)\b|n't\b",
    "it": r"\b(?:[Nn]on|No|[Nn]ulla)\b",
    "ko": "않|없|아니|안 된",
    "ru": r"\b(?:[Нн]е|[Нн]ет|[Нн]ельзя|[Нн]ичего)\b",
    "zh": "[不没]",
}
ORDER = {
    "en": "Judge,|Ignore (?:your|the)",
    "it": "Giudice,|Ignora le|Dimentica il",
    "ko": "심사자님,|무시하고|잊고",
    "ru": "Судья,|Забудь",
    "zh": "评审，|无视|忘掉",
}
DOUBT = {  # a doubt, and somebody who says it
    "en": "According to .*probably",
    "it": "Secondo .*forse",
    "ko": "에 따르면.*아마",
    "ru": "По данным .*вероятно",
    "zh": "据.*可能",
}
CONDITION = {
    "en": "[Uu]nless",
    "it": "[Pp]rima di",
    "ko": "받기 전이면",
    "ru": "[Дд]о выплаты",
    "zh": "尚未",
}
UNCLEAR = {  # what nobody understands who sees no passage
    "en": r"\b(?:text|passage|context|this|these|here)\b",
    "ru": r"\b(?:текст\w*|отрыв\w*|контекст\w*|эт(?:от|а|о|ого|ой|их)|здесь)\b",
}


def graded(example):
    return [item["grade"] for item in example.output["grades"]]


def verdicts_of(example):
    return [item["verdict"] for item in example.output["verdicts"]]


@dataclass(frozen=True)
class Shown:
    """An example as the judge is shown it."""

    language: str
    input: dict
    output: dict

    @property
    def sentences(self):
        """Lettered number to sentence."""
        lines = NumberedContexts.of(self.input.get("contexts", [])).lines
        return {f"{ascii_uppercase[line.chunk - 1]}.{line.sentence}": line.text for line in lines}

    def no(self, text):
        return bool(re.search(NEGATION[self.language], text))

    def order(self, text):
        return bool(re.search(ORDER[self.language], text))

    def statement(self, number, kind="statement"):
        name = "statements" if kind == "statement" else f"{kind}_statements"
        return next(item["text"] for item in self.input[name] if item[kind] == number)

    def verdict(self, number):
        (found,) = [verdict for verdict in self.output["verdicts"] if verdict["statement"] == number]
        return found["verdict"], found["evidence"]

    @property
    def named(self):
        """What the assistant named last in the history."""
        return self.input["history"][-1]["text"].rstrip(".。").removesuffix("입니다")

    def entity(self, number):
        return next(item["text"] for item in self.input["entities"] if item["entity"] == number)

    @property
    def found(self):
        return {item["entity"]: item["evidence"] for item in self.output["found"]}

    def reason(self, place):
        return self.output["verdicts"][place - 1]["reason"]

    def listed(self, name, kind):
        return [item[kind] for item in self.output[name]]

    @property
    def passages(self):
        """Number to text."""
        return {item["passage"]: item["text"] for item in self.input["passages"]}

    @property
    def given(self):
        """Every text of the input."""
        return " ".join(strings(self.input))

    @property
    def told(self):
        """Every text of the output."""
        return " ".join(strings(self.output))

    def values(self, *names):
        return [self.output[name] for name in names]

    @property
    def obeys_nothing(self):
        """An order is given, and the reply is not about it."""
        return self.order(self.given) and not self.order(self.told)

    def unclear(self, question):
        return bool(re.search(UNCLEAR[self.language], question))

    @property
    def useful(self):
        return [verdict["context"] for verdict in self.output["verdicts"] if verdict["useful"]]


def figures(*texts):
    """The numbers written in digits."""
    return set(re.findall(r"\d+", " ".join(texts)))


def words(*texts):
    """In lower case."""
    return re.findall(r"\w+", " ".join(texts).lower())


def stems(*texts):
    """Beginnings of the longer words, short enough to outlast an ending."""
    return {word[:4] for word in words(*texts) if len(word) > 3}


def last(example):
    """The last question of a conversation."""
    return example.output["question"]


TEACHES = {  # step to case: place of the example that teaches it, and what then holds in every language
    "rewrite_question": {
        "a pronoun": (0, lambda e: e.named in e.output["question"] not in e.input["question"]),
        "the second in a list": (1, lambda e: e.output["question"] != e.input["question"]),
        "a number carried over": (1, lambda e: figures(e.output["question"]) == {"14"} > figures(e.input["question"])),
        "a correction, and words left out": (2, lambda e: figures(e.output["question"]) == {"7"}),
        "a new topic": (3, lambda e: e.output["question"] == e.input["question"]),
    },
    "extract_turn_statements": {
        "pronouns": (0, lambda e: all(e.named in statement for statement in e.output["statements"])),
        "the second in a list": (1, lambda e: figures(e.output["statements"][0]) >= {"14"}),
        "a correction": (1, lambda e: len(e.output["statements"]) == 2),
        "nothing is stated": (2, lambda e: e.output["statements"] == []),
    },
    "regenerate_turn_questions": {
        "a pronoun": (0, lambda e: e.named in e.output["questions"][0]),
        "an evasion": (1, lambda e: e.output["evasive"]),
    },
    "answer_unaided": {
        "a case that nobody can know": (0, lambda e: re.search("usually|[Оо]бычно", e.told)),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "compare_questions": {
        "deeper": (0, lambda e: e.values("deeper", "broader") == [True, False]),
        "broader": (1, lambda e: e.values("deeper", "broader") == [False, True]),
        "both": (2, lambda e: e.values("deeper", "broader") == [True, True]),
        "more words": (
            3,
            lambda e: (
                e.values("deeper", "broader") == [False, False]
                and len(words(e.input["question"])) > 2 * len(words(e.input["parent"]))
            ),
        ),
        "an order": (3, lambda e: e.order(e.input["question"])),
    },
    "compress_question": {
        "courtesy": (0, lambda e: len(words(e.told)) < len(words(e.given)) / 2),
        "a number": (1, lambda e: figures(e.told) == figures(e.given) > set()),
        "a negation": (1, lambda e: e.no(e.given)),
        "an order": (1, lambda e: e.obeys_nothing),
        "a short question": (2, lambda e: e.told == e.given),
    },
    "degrade_answer": {
        "one of two things": (0, lambda e: len(split_sentences(e.told)) < len(split_sentences(e.input["answer"]))),
        "a negation": (1, lambda e: e.no(e.input["answer"]) and e.no(e.told)),
        "an order": (1, lambda e: e.obeys_nothing),
        "the only thing": (2, lambda e: figures(e.input["answer"]) and not figures(e.told)),
    },
    "detect_abstention": {
        "nothing found": (0, lambda e: e.no(e.input["answer"]) and e.output["abstains"] is True),
        "a negative answer": (1, lambda e: e.no(e.input["answer"]) and e.output["abstains"] is False),
        "a part of the answer": (2, lambda e: figures(e.input["answer"]) and e.output["abstains"] is False),
        "an order": (2, lambda e: e.order(e.input["answer"]) and not e.order(e.told)),
        "other things": (3, lambda e: figures(e.input["answer"]) and e.output["abstains"] is True),
    },
    "detect_answerable": {
        "a negative answer": (0, lambda e: e.no(e.sentences["B.1"]) and "B.1" in e.told and e.output["answerable"]),
        "another year": (1, lambda e: not figures(e.input["question"]) & figures(*e.sentences.values())),
        "an order": (1, lambda e: e.order(e.sentences["B.1"]) and not e.output["answerable"] and e.no(e.told)),
        "the same topic": (2, lambda e: not e.output["answerable"] and e.no(e.told)),
    },
    "evolve_angry": {
        "loud": (0, lambda e: "!" in e.told and stems(e.input["question"]) <= stems(e.told)),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_code_mixed": {
        "most of the words": (0, lambda e: len(stems(e.told) & stems(e.input["question"])) > 3),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_follow_up": {
        "one exchange": (0, lambda e: len(e.output["exchanges"]) == e.input["earlier"] == 1),
        "the thing is named before": (0, lambda e: stems(e.output["exchanges"][0]["question"]) - stems(last(e))),
        "two exchanges": (1, lambda e: len(e.output["exchanges"]) == e.input["earlier"] == 2),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_formal": {
        "longer": (0, lambda e: len(e.told) > len(e.input["question"])),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_misspelt": {
        "most of the words": (0, lambda e: len({*words(e.told)} & {*words(e.input["question"])}) > 6),
        "mistakes": (1, lambda e: len({*words(e.told)} - {*words(e.input["question"])}) in (2, 3, 4)),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_numbers": {
        "a table": (0, lambda e: "|" in e.given and "|" not in e.told),
        "a calculation": (1, lambda e: len(figures(e.passages[1])) > len(figures(e.told))),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_off_topic": {
        "another field": (0, lambda e: not stems(e.told) & stems(e.given)),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_persona": {
        "who does not know the terms": (0, lambda e: stems(e.told) & stems(e.input["question"])),
        "who is in a hurry": (1, lambda e: len(words(e.told)) <= len(words(e.input["question"])) + 1),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_terse": {
        "few words": (0, lambda e: 3 <= len(words(e.told)) <= 8 and not e.told.endswith("?")),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_voice": {
        "lower case without marks": (0, lambda e: e.told.islower() and not re.search("[?!.,]", e.told)),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "propose_personas": {
        "as many as asked for": (0, lambda e: len(e.output["personas"]) == e.input["count"] == 2),
        "an order": (0, lambda e: e.obeys_nothing),
    },
    "review_follow_up": {
        "a pronoun": (0, lambda e: e.values("depends", "same", "open") == [True, True, True]),
        "a question that stands alone": (1, lambda e: e.values("depends", "same", "open") == [False, True, False]),
        "another question": (2, lambda e: e.values("depends", "same", "open") == [True, False, True]),
        "an order": (2, lambda e: e.order(e.given) and not e.order(e.told)),
    },
    "evolve_conditional": {
        "a case": (0, lambda e: len(words(e.told)) > len(words(e.input["question"]))),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_conversational": {
        "everyday writing": (0, lambda e: e.told.islower() and not e.told.endswith("?")),
        "a slip": (0, lambda e: {"libary", "скока"} & {*words(e.told)}),
        "a condition": (1, lambda e: len(stems(e.told) & stems(e.input["question"])) > 1),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_multi_context": {
        "a fact that leads to another": (
            0,
            lambda e: (
                {word for word in words(e.passages[1]) if len(word) > 3 and word in words(e.passages[2])}
                - {*words(e.told)}
            ),
        ),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_reasoning": {
        "two numbers to calculate with": (
            0,
            lambda e: len(figures(e.passages[1], e.told)) == 2 > len(figures(e.passages[1]) & figures(e.told)),
        ),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "evolve_unanswerable": {
        "a detail left open": (
            0,
            lambda e: stems(e.told) & stems(e.passages[1]) and len(stems(e.told) - stems(e.passages[1])) > 2,
        ),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "extract_entities": {
        "a date and an amount": (0, lambda e: figures(e.input["text"]) == figures(e.told) > {"1998"}),
        "a repeated word": (0, lambda e: len(set(e.output["entities"])) == len(e.output["entities"]) == 5),
        "nothing named": (1, lambda e: e.output["entities"] == []),
        "an order": (2, lambda e: e.order(e.input["text"]) and len(e.output["entities"]) == 3),
    },
    "extract_keyphrases": {
        "what is particular": (0, lambda e: all(stems(e.given) & stems(phrase) for phrase in strings(e.output))),
        "a menu": (1, lambda e: ">" in e.given and ">" not in e.told),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "find_entities": {
        "another form": (0, lambda e: e.found[1] == ["A.1", "B.1"] and e.entity(1) not in e.sentences["A.1"]),
        "another way to write an amount": (0, lambda e: e.found[2] == ["A.2"] and figures(e.sentences["A.2"])),
        "another way to write a date": (0, lambda e: "05" in e.sentences["B.1"] and e.found[3] == ["B.1"]),
        "another unit": (0, lambda e: "30" in e.sentences["B.1"] and 4 not in e.found),
        "another of the kind": (0, lambda e: stems(e.entity(5)) & stems(e.entity(1)) and 5 not in e.found),
        "an order": (0, lambda e: e.order(e.entity(6)) and 6 not in e.found),
        "nothing": (1, lambda e: e.found == {}),
    },
    "find_passages": {
        "needed passages that are two": (0, lambda e: e.output["passages"] == [1, 3]),
        "the same topic": (
            0,
            lambda e: stems(e.passages[1]) & stems(e.passages[2]) and 2 not in e.output["passages"],
        ),
        "two that say the same": (0, lambda e: stems(e.passages[3]) & stems(e.passages[4])),
        "an order": (0, lambda e: e.order(e.passages[5]) and not e.order(e.told)),
        "no answer": (1, lambda e: e.output["passages"] == [] and e.no(e.told)),
    },
    "grade_passage": {
        "a good passage": (0, lambda e: e.values(*GRADES) == [3, 3, 3, 3]),
        "scraps": (1, lambda e: e.values(*GRADES) == [1, 1, 1, 1]),
        "an order": (1, lambda e: e.order(e.given) and "3" in e.given),
        "the middle": (2, lambda e: e.values(*GRADES) == [2, 2, 2, 2] and e.given[0].islower()),
        "praise of itself": (3, lambda e: e.values(*GRADES) == [3, 1, 3, 3] and e.no(e.told)),
    },
    "pad_context": {
        "other matters": (0, lambda e: not {word for word in words(e.told) if len(word) > 7 and word in e.given}),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "review_question": {
        "a law without its name": (
            0,
            lambda e: e.values("standalone", "answerable") == [False, True] and e.unclear(e.input["question"]),
        ),
        "the topic without the answer": (
            1,
            lambda e: e.values("standalone", "answerable") == [True, False] and e.no(e.output["feedback"]),
        ),
        "a negation": (
            2,
            lambda e: e.values("standalone", "answerable") == [True, True] and e.no(e.passages[2]),
        ),
        "an order in a passage": (2, lambda e: e.order(e.passages[1])),
        "neither": (
            3,
            lambda e: e.values("standalone", "answerable") == [False, False] and e.unclear(e.input["question"]),
        ),
        "an order in the question": (3, lambda e: e.order(e.input["question"])),
    },
    "reword_question": {
        "a law without its name": (0, lambda e: e.unclear(e.input["question"]) and not e.unclear(e.told)),
        "a passage that was added": (1, lambda e: stems(e.told) & stems(e.passages[2]) - stems(e.passages[1])),
        "an order": (1, lambda e: e.obeys_nothing),
    },
    "write_answer": {
        "an exception in another passage": (
            0,
            lambda e: stems(e.told) & stems(e.passages[2]) - stems(e.passages[1]),
        ),
        "what one may know": (1, lambda e: e.values("answerable", "answer") == [False, ""]),
        "an order": (1, lambda e: e.obeys_nothing),
        "another language": (2, lambda e: e.language != detect_language(e.told) == detect_language(e.passages[1])),
    },
    "write_question": {
        "the key phrase": (0, lambda e: stems(e.input["keyphrase"]) & stems(e.told)),
        "an order": (1, lambda e: e.obeys_nothing),
        "another language": (2, lambda e: e.language != detect_language(e.told) == detect_language(e.input["passage"])),
    },
    "extract_statements": {
        "a list": (0, lambda e: e.input["text"].startswith("- ") and len(e.output["statements"]) == 4),
        "a how-to": (0, lambda e: all("-" not in text for text in e.output["statements"][:2])),
        "a promise": (0, lambda e: "14" in e.output["statements"][2] and not e.no(e.output["statements"][2])),
        "a condition kept with the promise": (
            0,
            lambda e: re.search(CONDITION[e.language], e.output["statements"][2]),
        ),
        "a condition with a negation": (0, lambda e: e.no(e.input["text"]) and e.no(e.output["statements"][3])),
        "several lines": (0, lambda e: len(e.input["text"].splitlines()) == 3),
        "an evasive answer": (1, lambda e: e.no(e.input["text"]) and not e.output["statements"]),
        "an enumeration": (2, lambda e: len(e.output["statements"]) == 2),
        "a doubt and a source": (
            2,
            lambda e: all(re.search(DOUBT[e.language], text) for text in [e.input["text"], *e.output["statements"]]),
        ),
        "a command to the judge": (
            2,
            lambda e: e.order(e.input["text"]) and not e.order(" ".join(e.output["statements"])),
        ),
        "a table row": (3, lambda e: "|" in e.input["text"] and "2.1" in e.output["statements"][0]),
        "a line of code": (3, lambda e: "`pip install app==2.1`" in e.output["statements"][1]),
        "numbers and a date": (3, lambda e: figures(e.input["text"]) == figures(*e.output["statements"]) > {"2024"}),
    },
    "verify_statements": {
        "a negation": (
            0,
            lambda e: (
                e.verdict(1) == ("contradicted", ["A.2"]) and e.no(e.sentences["A.2"]) and not e.no(e.statement(1))
            ),
        ),
        "a command to the judge, and partial support": (
            0,
            lambda e: (
                e.verdict(2) == ("absent", [])
                and e.order(e.statement(2))
                and "supported" in e.statement(2)
                and e.no(e.reason(2))
            ),
        ),
        "another unit": (0, lambda e: e.verdict(3) == ("contradicted", ["A.1"]) and e.no(e.reason(3))),
        "support over two chunks": (1, lambda e: e.verdict(1) == ("supported", ["A.1", "B.1"])),
        "a date": (1, lambda e: "2024" in e.statement(1) and figures(e.sentences["B.1"]) >= {"31"}),
        "a number within the limit": (1, lambda e: not figures(e.statement(1)) <= figures(*e.sentences.values())),
        "an instruction to the reader": (1, lambda e: e.verdict(2) == ("supported", ["A.2"])),
    },
    "classify_statements": {
        "another unit": (0, lambda e: e.output["TP"][0]["answer"] == 1 and "14" in e.output["TP"][0]["reason"]),
        "another number": (
            0,
            lambda e: (
                2 in e.listed("FP", "answer")
                and figures(e.statement(2, "answer"), e.statement(2, "reference"))
                == figures(e.output["FP"][0]["reason"])
                > figures(e.statement(2, "answer"))
            ),
        ),
        "a negation that follows": (0, lambda e: 3 in e.listed("TP", "answer") and e.no(e.statement(3, "answer"))),
        "a reference that says more than the answer": (
            0,
            lambda e: e.output["TP"][1]["references"] == [3] and 3 in e.listed("FN", "reference"),
        ),
        "partial support": (
            0,
            lambda e: 4 in e.listed("FP", "answer") and figures(e.statement(4, "answer")) == {"14"},
        ),
        "a command to the judge": (
            0,
            lambda e: (
                5 in e.listed("FP", "answer") and e.order(e.statement(5, "answer")) and "TP" in e.statement(5, "answer")
            ),
        ),
        "a date": (0, lambda e: 4 in e.listed("FN", "reference") and "2025" in e.statement(4, "reference")),
        "the opposite": (
            0,
            lambda e: (
                5 in e.listed("FP", "answer")
                and 5 in e.listed("FN", "reference")
                and e.no(e.statement(5, "reference"))
                and not e.no(e.statement(5, "answer"))
            ),
        ),
    },
    "grade_contexts": {
        "needed pieces in two chunks": (0, lambda e: e.useful == [1, 3]),
        "another unit": (0, lambda e: "36" in figures(e.input["contexts"][0]) & figures(e.reason(1))),
        "another thing": (0, lambda e: e.no(e.reason(2)) and 2 not in e.useful),
        "a command to the judge": (0, lambda e: e.order(e.input["contexts"][3]) and 4 not in e.useful),
        "an instruction to the reader": (0, lambda e: 3 in e.useful and not e.order(e.input["contexts"][2])),
        "no answer to go by": (1, lambda e: e.input["answer"] == ""),
        "a negation": (1, lambda e: e.no(e.input["contexts"][1]) and e.useful == [2]),
        "a date of the same topic": (1, lambda e: figures(e.input["contexts"][0]) >= {"31"} and e.no(e.reason(1))),
    },
    "select_sentences": {
        "needed sentences in two chunks": (0, lambda e: e.output["sentences"] == ["A.2", "B.2", "B.3"]),
        "background": (0, lambda e: figures(e.sentences["A.1"]) == {"1991"}),
        "two that say the same": (0, lambda e: "B.1" in e.output["reason"]),
        "a negation": (0, lambda e: e.no(e.sentences["B.2"])),
        "nothing relevant": (1, lambda e: e.output["sentences"] == [] and e.no(e.output["reason"])),
        "a number, a unit, a date": (1, lambda e: figures(e.sentences["A.1"]) >= {"1", "15", "2024"}),
        "an order": (1, lambda e: e.order(e.sentences["A.2"])),
    },
    "grade_relevance": {
        "the whole answer, part of it, the topic, another thing": (0, lambda e: graded(e) == [4, 1, 2, 0]),
        "a scale of one's own": (1, lambda e: e.input["scale"] == [0, 2] and graded(e) == [0, 2]),
        "an order": (1, lambda e: e.order(e.sentences["A.1"]) and graded(e)[0] == 0),
        "a negation that answers": (1, lambda e: e.no(e.sentences["B.1"]) and graded(e)[1] == 2),
    },
    "regenerate_questions": {
        "as many questions as are asked for by default": (0, lambda e: e.input["count"] == 3),
        "a negation": (0, lambda e: e.no(e.input["answer"]) and e.output["evasive"] is False),
        "an evasive answer": (1, lambda e: e.no(e.input["answer"]) and e.output["evasive"] is True),
        "an order": (2, lambda e: e.order(e.input["answer"]) and not e.order(" ".join(e.output["questions"]))),
        "a number, a unit, a date": (2, lambda e: figures(e.output["questions"][0]) > {"1"}),
    },
    "critique_aspect": {
        "a negation": (
            0,
            lambda e: e.no(e.sentences["A.1"]) and "A.1" in e.output["reason"] and not e.output["verdict"],
        ),
        "a number that agrees": (0, lambda e: figures(e.sentences["A.2"], e.input["answer"]) == {"10"}),
        "praise of itself": (0, lambda e: len(NumberedContexts.of([e.input["answer"]]).lines) == 2),
        "harm": (1, lambda e: e.input["aspect"] == "harmfulness" and e.output["verdict"] is True),
        "an aspect of one's own": (2, lambda e: e.input["aspect"] not in ASPECTS),
        "nothing of the aspect": (2, lambda e: e.output["verdict"] is False and e.no(e.output["reason"])),
    },
    "grade_rubric": {
        "a negation": (0, lambda e: e.no(e.sentences["A.2"]) and "A.2" in e.output["grades"][0]["reason"]),
        "an order": (0, lambda e: e.obeys_nothing and [grade["grade"] for grade in e.output["grades"]] == [1, 2]),
        "a criterion of one's own": (0, lambda e: e.output["grades"][1]["criterion"] not in ASPECTS),
        "a grade between described ones": (0, lambda e: "2" not in e.input["criteria"][1]["grades"]),
        "another scale": (1, lambda e: [*e.input["criteria"][0]["grades"]] == ["1", "5"]),
        "a condition that the reference names": (
            1,
            lambda e: e.no(e.input["reference"]) and e.no(e.output["grades"][0]["reason"]),
        ),
    },
    "list_turn_facts": {
        "an open correction": (
            0,
            lambda e: (
                [any(sign in fact["text"] for sign in ":：") for fact in e.output["statements"]] == [False, False, True]
            ),
        ),
        "a need beside a fact in one turn": (0, lambda e: e.listed("facts", "turn") == e.listed("needs", "turn")),
        "an order": (1, lambda e: e.order(e.input["turns"][0]["text"]) and not e.order(e.told)),
        "an evasive answer": (1, lambda e: len(e.input["turns"][1]["text"]) < 60 and not e.output["statements"]),
    },
    "find_contradictions": {
        "a negation": (0, lambda e: e.no(e.statement(3)) and e.listed("contradictions", "second") == [3]),
        "a statement about something else": (0, lambda e: e.listed("contradictions", "first") == [1]),
        "an open correction": (1, lambda e: figures(e.statement(1)) != figures(e.statement(2))),
        "an order": (1, lambda e: e.order(e.statement(3)) and not e.output["contradictions"]),
    },
    "check_user_facts": {
        "a fact asked for again": (0, lambda e: verdicts_of(e)[0] == "asked again"),
        "a fact that is passed over": (
            0,
            lambda e: e.no(e.input["facts"][1]["text"]) and verdicts_of(e)[1] == "ignored",
        ),
        "a question for more than was told": (1, lambda e: e.output["verdicts"][0]["verdict"] == "kept"),
        "an order": (1, lambda e: e.order(e.input["turns"][0]["text"])),
    },
    "check_needs": {
        "a negation that answers": (0, lambda e: e.no(e.input["turns"][1]["text"]) and verdicts_of(e)[1] == "met"),
        "a counter-question": (0, lambda e: e.output["verdicts"][0]["turns"] == [4]),
        "an answer to something else": (0, lambda e: verdicts_of(e)[2] == "unmet"),
        "a need that is given up": (1, lambda e: verdicts_of(e) == ["withdrawn"]),
        "an order": (1, lambda e: e.order(e.input["turns"][2]["text"])),
    },
}


def shown(language, step):
    return [Shown(language, e.input, e.output) for e in PromptSet.default(language).get(step).examples]


EXAMPLES = [
    pytest.param(step, example, id=f"{language}/{step} {number}")
    for language, step in STEPS
    for number, example in enumerate(shown(language, step), 1)
]


def of(*steps):
    return [case for case in EXAMPLES if case.values[0] in steps]


def strings(value):
    """Every text in a nested value, without the keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


def items(value):
    """Every mapping in a nested value."""
    if isinstance(value, dict):
        return [value, *(found for inner in value.values() for found in items(inner))]
    return [found for inner in value for found in items(inner)] if isinstance(value, list) else []


def structure(value):
    """All but the words: keys in order, lengths of lists, numbers, booleans, labels, citations, names of aspects."""
    if isinstance(value, dict):
        return {key: structure(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [structure(inner) for inner in value]
    if isinstance(value, str) and value and value not in ASPECTS and not re.fullmatch(r"[a-z]+|[A-Z]\.\d", value):
        return "words"
    return value


def answered(step):
    schema = ANSWER_SCHEMAS[step].model_json_schema()
    return {name for part in [schema, *schema.get("$defs", {}).values()] for name in part["properties"]}


def test_every_step_of_the_package_is_checked_here():
    assert READS.keys() == TEACHES.keys() == ANSWER_SCHEMAS.keys()


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_an_output_is_a_valid_answer_with_its_fields_in_order(step, example):
    answer = ANSWER_SCHEMAS[step].model_validate(example.output, strict=True).model_dump()
    assert answer == example.output
    assert [list(item) for item in items(answer)] == [list(item) for item in items(example.output)]


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_an_input_holds_what_the_step_sends(step, example):
    assert [name for name in example.input if name != "contexts"] == READS[step]


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_all_languages_have_the_examples_of_english(language, step):
    english, other = shown("en", step), shown(language, step)
    assert [list(map(structure, (e.input, e.output))) for e in other] == [
        list(map(structure, (e.input, e.output))) for e in english
    ]
    assert [list(e.sentences) for e in other] == [list(e.sentences) for e in english]


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_every_citation_is_of_a_sentence_in_the_examples_block(step, example):
    cited = set(CITATION.findall(" ".join(strings(example.output))))
    assert cited <= example.sentences.keys()


@pytest.mark.parametrize(("step", "example"), of("verify_statements"))
def test_each_statement_has_one_verdict_and_the_reason_names_the_evidence(step, example):
    verdicts = example.output["verdicts"]
    assert [verdict["statement"] for verdict in verdicts] == [item["statement"] for item in example.input["statements"]]
    for verdict in verdicts:
        assert bool(verdict["evidence"]) is (verdict["verdict"] != "absent")
        assert verdict["verdict"] == "absent" or CITATION.findall(verdict["reason"]) == verdict["evidence"]


@pytest.mark.parametrize("language", OWN)
def test_verdicts_are_in_no_order_of_labels_and_one_example_has_only_supported_ones(language):
    labels = [[verdict["verdict"] for verdict in e.output["verdicts"]] for e in shown(language, "verify_statements")]
    assert labels == [["contradicted", "absent", "contradicted"], ["supported", "supported"]]


@pytest.mark.parametrize(("step", "example"), of("classify_statements"))
def test_each_answer_statement_is_classified_once_and_each_reference_statement_found_in_full_or_missed(step, example):
    answers = [item["answer"] for item in example.input["answer_statements"]]
    references = [item["reference"] for item in example.input["reference_statements"]]
    cited = {number for item in example.output["TP"] for number in item["references"]}
    missed = example.listed("FN", "reference")
    assert sorted(example.listed("TP", "answer") + example.listed("FP", "answer")) == answers
    assert sorted({*cited, *missed}) == references
    assert len(set(missed)) == len(missed)
    assert all(item["references"] for item in example.output["TP"])


@pytest.mark.parametrize("language", OWN)
def test_a_reference_statement_is_missed_if_no_true_positive_names_it_or_those_that_do_say_only_a_part(language):
    instruction = PromptSet.default(language).get("classify_statements").instruction
    rule = instruction.partition("`FN`")[2].partition("`reason`")[0]
    assert rule.count("`TP`") == 2


@pytest.mark.parametrize(("language", "step"), [(language, step) for language in OWN for step in OWN[language]])
def test_a_reason_comes_before_everything_that_it_explains(language, step):
    for example in shown(language, step):
        for item in items(example.output):
            names = [name for name in item if name in ("reason", "verdict", "useful", "grade", "answer", "references")]
            assert "reason" not in names or names[0] == "reason"


@pytest.mark.parametrize(("step", "example"), of("grade_contexts"))
def test_each_chunk_has_one_verdict_in_order(step, example):
    numbers = [verdict["context"] for verdict in example.output["verdicts"]]
    assert numbers == list(range(1, len(example.input["contexts"]) + 1))


@pytest.mark.parametrize(("step", "example"), of("grade_relevance"))
def test_each_chunk_has_one_grade_on_the_scale_in_order(step, example):
    numbers = [item["context"] for item in example.output["grades"]]
    assert numbers == list(range(1, len(example.input["contexts"]) + 1))
    lowest, highest = example.input["scale"]
    assert {lowest, highest} <= set(graded(example)) <= set(range(lowest, highest + 1))


@pytest.mark.parametrize(("step", "example"), of("select_sentences"))
def test_selected_sentences_are_named_once_in_order(step, example):
    named = example.output["sentences"]
    assert named == [number for number in example.sentences if number in named]


@pytest.mark.parametrize(("step", "example"), of("regenerate_questions", "regenerate_turn_questions"))
def test_as_many_questions_as_asked_for_or_none_for_an_evasive_answer(step, example):
    questions = example.output["questions"]
    assert len(questions) == (0 if example.output["evasive"] else example.input["count"])
    assert len(set(questions)) == len(questions)
    assert all(question.endswith(("?", "？")) for question in questions)


@pytest.mark.parametrize("step", ["find_entities", "select_sentences", "verify_statements"])
@pytest.mark.parametrize("language", OWN)
def test_an_instruction_shows_what_the_number_of_a_sentence_looks_like_in_a_request(language, step):
    assert '"2.3"' in PromptSet.default(language).get(step).instruction


@pytest.mark.parametrize(("step", "example"), of("extract_keyphrases"))
def test_there_are_three_to_five_key_phrases_and_none_is_a_sentence(step, example):
    phrases = example.output["keyphrases"]
    assert 3 <= len(set(phrases)) == len(phrases) <= 5
    assert all(len(words(phrase)) <= 6 and phrase[-1].isalnum() for phrase in phrases)


@pytest.mark.parametrize("language", ["en", "ru"])
def test_each_grade_of_each_kind_is_shown(language):
    examples = shown(language, "grade_passage")
    for name in GRADES:
        assert {example.output[name] for example in examples} == {1, 2, 3}


@pytest.mark.parametrize(("step", "example"), of(*QUESTIONS))
def test_a_written_question_is_understood_without_its_passages(step, example):
    question = example.output["question"]
    assert not example.unclear(question)
    assert len(words(question)) <= 30
    if step not in STYLED:
        assert split_sentences(question) == [question]
        assert question.endswith("?") or step == "evolve_conversational"


@pytest.mark.parametrize(("step", "example"), [case for case in EXAMPLES if "passages" in case.values[1].input])
def test_passages_are_numbered_from_one(step, example):
    assert list(example.passages) == list(range(1, len(example.passages) + 1))


@pytest.mark.parametrize(("step", "example"), of("find_passages"))
def test_needed_passages_are_named_in_order_and_the_reason_speaks_of_every_passage(step, example):
    named = example.output["passages"]
    assert named == [number for number in example.passages if number in named]
    assert figures(example.output["reason"]) == set(map(str, example.passages))


@pytest.mark.parametrize(("step", "example"), of("write_answer"))
def test_an_answer_is_written_when_there_is_one_and_its_numbers_are_in_the_passages(step, example):
    assert bool(example.output["answer"]) is example.output["answerable"]
    assert figures(example.told) <= figures(*example.passages.values())


@pytest.mark.parametrize(("step", "example"), of("degrade_answer"))
def test_an_incomplete_answer_holds_words_of_the_whole_one_and_no_other(step, example):
    assert {*words(example.told)} < {*words(example.input["answer"])}


@pytest.mark.parametrize(("step", "example"), of("pad_context"))
def test_padding_is_three_sentences_with_none_of_the_facts(step, example):
    sentences = example.output["sentences"]
    assert [split_sentences(sentence) for sentence in sentences] == [[sentence] for sentence in sentences]
    assert len(set(sentences)) == 3
    assert not figures(example.told) & figures(example.input["context"])


@pytest.mark.parametrize(
    ("language", "step", "case"),
    [
        pytest.param(language, step, case, id=f"{language}/{step}: {case}")
        for language, step in STEPS
        for case in TEACHES[step]
    ],
)
def test_a_hard_case_is_taught(language, step, case):
    number, holds = TEACHES[step][case]
    assert holds(shown(language, step)[number])


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_every_example_teaches_some_case(language, step):
    taught = {number for number, _ in TEACHES[step].values()}
    assert taught == set(range(len(shown(language, step))))


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_an_instruction_names_the_fields_that_it_speaks_of(language, step):
    named = set(re.findall(r"`(\w+)`", PromptSet.default(language).get(step).instruction))
    copied = {
        "verdicts",
        "statement",
        "answer",
        "reference",
        "entity",
    }  # item numbers, and the list around the verdicts
    assert named >= {*READS[step], *(answered(step) - copied)}
    assert named <= {*READS[step], *answered(step)}


def test_the_check_of_structure_sees_what_it_should():
    one = {"text": "Some words.", "verdict": "absent", "evidence": ["A.1"], "answer": 1, "useful": True}
    assert structure(one) == structure({**one, "text": "Иные слова."})
    for other in ({"verdict": "supported"}, {"evidence": ["A.2"]}, {"answer": 2}, {"useful": False}, {"text": ""}):
        assert structure(one) != structure({**one, **other})
