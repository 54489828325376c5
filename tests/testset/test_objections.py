"""Objections without a model, and the verification of reference answers, against writers that make mistakes."""

import json

import pytest
from helpers.each import each
from helpers.scripted import Scripted, human_of, scripted
from helpers.texts import corpus
from helpers.writers import RULES, Writer, documents, generator, offline, passage

from langchain_rageval import HashingEmbeddings
from langchain_rageval.models.offline_judge import answer_request
from langchain_rageval.prompts.layout import read_inputs, read_schema, read_title
from langchain_rageval.steps import Question, ReferenceAnswer, Verdicts
from langchain_rageval.testset import Candidate, answer, check_answer, compress, seed_question
from langchain_rageval.testset.candidate import Objection
from langchain_rageval.testset.evolutions import DISTRIBUTION
from langchain_rageval.testset.objections import answer_objection, question_objection
from langchain_rageval.text.language import detect_language

BATH = passage(0, "Баню страхуют только вместе с домом. Взнос составляет 4 500 руб. в год. Платят до первого марта.")
FUNDS = passage(
    1, "The library in Static Street lends books for 30 days. A loan can be extended twice, by 15 days each time."
)
LONG = passage(2, "The tax office sends each notice by registered letter within thirty days of the decision. " * 9)

TWO_THOUSAND = "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))
FOUR_HUNDRED, TWO_HUNDRED = TWO_THOUSAND[:400], TWO_THOUSAND[:200]


@each(
    ("question", "where", "problem"),
    [
        ("Сколько стоит полис на баню?", BATH, None),
        ("For how many days does the library lend books?", FUNDS, None),
        ("Что такое FastAPI?", BATH, None),
        ("Static Street", BATH, "the question is in another script than the passages: write it in their language"),
        ("Question: What is lent?", FUNDS, "there is a label or an announcement: return the question alone"),
        ("Вопрос 3: Сколько стоит?", BATH, "there is a label or an announcement: return the question alone"),
        ("OK, here is the question 10:", FUNDS, "there is a label or an announcement: return the question alone"),
        ("What is lent?\n\nIt asks for books.", FUNDS, "the question has several lines: return the question alone"),
        ("What is lent? And for how long?", FUNDS, "these are several questions: ask one"),
        ("What is lent, and how long does a loan last?", FUNDS, None),
        ("What is lent, and how long, and where?", FUNDS, "these are several questions: ask one"),
        ("What is lent? Books, I think.", FUNDS, "something follows the question: return the question alone"),
        ("Static", passage(3, "Абв где жзи s"), None),  # a tenth of the letters is Latin
        ("Static", passage(3, "Абв где жзик s"), "the question is in another script than the passages"),
        (TWO_HUNDRED[:120], passage(3, TWO_HUNDRED), "the question repeats a passage: ask in other words"),
        (f"{TWO_HUNDRED[:119]}!", passage(3, TWO_HUNDRED), None),
        (f"{TWO_HUNDRED[:120]}!", passage(3, TWO_HUNDRED), "the question repeats a passage: ask in other words"),
        (f"!{TWO_HUNDRED[:119]}!", passage(3, TWO_HUNDRED), None),
        ("1158 + 42 = ?", FUNDS, None),  # of no script
        ("books for 30 days. a", FUNDS, "the question repeats a passage: ask in other words"),  # five words
        ("books for 30 days.", FUNDS, None),
        ("According to the text above, what is lent?", FUNDS, "the question points at a text"),
        ("Что в этом отрывке сказано о бане?", BATH, "the question points at a text"),
        ("Сколько платят согласно приведённому тексту?", BATH, "the question points at a text"),
        ("Что сказано в тексте договора о бане?", BATH, None),
        (LONG.text[:200] + "?", LONG, "the question repeats a passage: ask in other words"),
    ],
)
def test_a_question_that_cannot_be_right_is_objected_to(question, where, problem):
    found = question_objection(question, [where]) or Objection("question rejected", "None", question)
    assert (found.reason, found.problem.startswith(str(problem))) == ("question rejected", True)


@each(
    ("text", "where", "reason"),
    [
        ("4500 руб. в год", BATH, None),
        ("Только вместе с домом.", BATH, None),
        ("FastAPI", FUNDS, None),
        ("В отрывке об этом ничего не говорится.", BATH, "refusal"),
        ("I'm sorry, but the context does not mention it.", FUNDS, "refusal"),
        ("It lends books. The passages do not say more.", FUNDS, None),
        ("How long are books lent?", FUNDS, "unsupported answer"),
        ("这是一个答案。", FUNDS, "other language"),
        ("It costs 4,711 dollars since 1823.", FUNDS, "unsupported answer"),
        (LONG.text, LONG, "copied answer"),
        (FOUR_HUNDRED[:360], passage(3, FOUR_HUNDRED), "copied answer"),
        (FOUR_HUNDRED[:359], passage(3, FOUR_HUNDRED), None),
        (FOUR_HUNDRED[:360] + "z" * 40, passage(3, FOUR_HUNDRED), "copied answer"),
        (FOUR_HUNDRED[:359] + "z" * 41, passage(3, FOUR_HUNDRED), None),
        (FOUR_HUNDRED[:300], passage(3, FOUR_HUNDRED[:300]), None),
        (FOUR_HUNDRED[:301], passage(3, FOUR_HUNDRED[:301]), "copied answer"),
        ("How long? For 30 days.", FUNDS, None),
        ("How long are books lent", FUNDS, "unsupported answer"),
        ("For how many days?", FUNDS, "unsupported answer"),
        (TWO_THOUSAND[:1200], passage(3, TWO_THOUSAND), None),
        (TWO_THOUSAND[:1201], passage(3, TWO_THOUSAND), "copied answer"),
        (FUNDS.text, FUNDS, None),
    ],
)
def test_an_answer_that_cannot_be_right_is_objected_to(text, where, reason):
    found = answer_objection(text, "How long are books lent?", [where], plain=True)
    assert (found and found.reason) == reason
    assert answer_objection("At most 60 days.", "How long?", [FUNDS], plain=False) is None


STEPS = [f"Шаг {n}: жилец подаёт заявление в контору номер {n} и ждёт ответа не дольше {n} дней." for n in range(1, 41)]


@each(
    ("chunks", "answer", "reason"),
    [
        ([STEPS[:6]], STEPS[:5], None),
        ([STEPS[:6]], STEPS[:6], "copied answer"),
        ([STEPS[:3]], STEPS[:3], None),  # short
        ([STEPS[:6], STEPS[6:16]], STEPS[:6], "copied answer"),
        ([STEPS[:6], STEPS[6:16]], STEPS[4:9], None),
        ([STEPS], STEPS[:24], "copied answer"),
        ([STEPS], STEPS[:14], None),
        ([STEPS[:24]], ["Их шесть, и каждый длится дольше прежнего:", *STEPS[:12]], None),
    ],
)
def test_an_answer_may_repeat_what_it_needs_of_a_chunk_but_not_the_chunk(chunks, answer, reason):
    passages = [passage(n, " ".join(chunk)) for n, chunk in enumerate(chunks)]
    found = answer_objection(" ".join(answer), "Из каких шагов состоит обмен?", passages, plain=True)
    assert (found and found.reason) == reason


def test_a_writer_may_try_again_and_is_then_rejected_with_the_problem():
    asked = Candidate(passages=[FUNDS]).with_question("How long are books lent?", "seed")
    refused = ReferenceAnswer(answerable=True, answer="The passages do not say.")
    judge = scripted(refused, ReferenceAnswer(answerable=True, answer="For 30 days."))
    assert answer(judge).invoke(asked).reference == "For 30 days."
    assert "this is no answer, but `answerable` is true" in judge.asked[1][-1].text
    rejected = answer(scripted(*[refused] * 3)).invoke(asked)
    problem = rejected.objection.partition(":")[0]
    assert (rejected.rejected, problem) == ("refusal", "this is no answer, but `answerable` is true")
    two = Question(question="What is lent? For how long?")
    lost = seed_question(scripted(*[two] * 3)).invoke(asked.replace(question="", history=[], keyphrase="loan"))
    (trial,) = lost.history
    assert (lost.rejected, trial.kind, trial.question) == ("question rejected", "seed", two.question)
    assert compress(scripted(*[two] * 3)).invoke(asked) == asked  # a short form that cannot be right is left out


def verdict(label, *evidence):
    return Verdicts(verdicts=[{"statement": 1, "reason": "so", "evidence": [*evidence], "verdict": label}])


def test_the_sentences_that_a_critic_cites_become_the_evidence():
    asked = Candidate(passages=[FUNDS]).with_question("How long?", "seed").replace(reference="30 days.")
    critic = scripted(verdict("supported", "1.1"), verdict("absent"), verdict("supported", "1.1"))
    made, lost = check_answer(critic).invoke(asked), check_answer(critic).invoke(asked)
    assert (made.rejected, made.evidence) == (None, ["The library in Static Street lends books for 30 days."])
    assert (lost.rejected, lost.objection) == ("unsupported answer", "30 days.: so")
    check_answer(critic).invoke(asked.replace(reference="Yes."))
    assert critic.inputs[2]["statements"] == [{"statement": 1, "text": "How long? Yes."}]
    silent = scripted()
    assert check_answer(silent).invoke(asked.replace(answerable=False)).rejected is None
    assert silent.asked == []


def test_every_row_of_a_set_has_evidence_from_its_contexts_in_exports_too(tmp_path):
    testset = offline(DISTRIBUTION).generate(corpus("ru_wiki"), size=8, seed=7)
    for row in testset:
        texts = " ".join(" ".join(text.split()) for text in row.contexts)
        assert row.evidence
        assert all(" ".join(sentence.split()) in texts for sentence in row.evidence)
    assert testset.to_pandas()["evidence"].tolist() == [row.evidence for row in testset]


def test_a_writer_that_repeats_itself_stops_early():
    writer = Writer(Question=lambda inputs, _: {"question": "Что это?"} if "keyphrase" in inputs else None)
    testset = generator(writer, embeddings=HashingEmbeddings()).generate(documents(40), size=10)
    assert (len(testset), testset.yields["rejected"]) == (1, {"near-duplicate": 18})
    assert writer.total == 10 * 7 + 9 * 3
    assert testset.notes == ["1 of 10 rows were generated: the last 18 questions repeat accepted ones; see `rejected`."]


WRONG_ANSWERS = {
    "invented": lambda inputs: "It costs 4,711 dollars since 1823.",
    "a refusal": lambda inputs: "The passages do not say anything about this.",
    "the question": lambda inputs: inputs["question"],
    "another script": lambda inputs: "这是一个答案。",
    "the whole passage": lambda inputs: " ".join(one["text"] for one in inputs["passages"]),
}
WRONG_QUESTIONS = {
    "the text above": lambda asked, passage, n: f"According to the text above, {asked[0].lower()}{asked[1:]}",
    "a copied stretch": lambda asked, passage, n: passage[:400],
    "another script": lambda asked, passage, n: f"关于主题 {n} 您知道什么？",
    "three questions": lambda asked, passage, n: f"{asked} And also, {asked} Who wrote it?",
    "an announcement": lambda asked, passage, n: f"OK, here is the question {n}:",
    "heading and explanation": lambda asked, passage, n: f"Question: {asked}\n\nExplanation: this asks for {n}.",
    "an example with one other word": lambda asked, passage, n: (
        "When can a loan from the village library not be extended on the website?"
        if detect_language(passage) == "en"
        else "Как печь, сложенная без чертежа, влияет на страхование бани?"
    ),
}
AGREES = ("PassageGrades", "QuestionReview", "NeededPassages", "Verdicts")  # to everything: a critic by rules


class Adversary:
    """The offline writer, which makes one kind of mistake, and a critic: the offline one, or one that always agrees."""

    def __init__(self, answer=None, question=None, agrees=False):
        self.wrong_answer, self.wrong_question, self.agrees, self.asked = answer, question, agrees, 0
        self.model = Scripted(answer=self.answer)

    def answer(self, messages):
        human = human_of(messages)
        title, inputs = read_title(human), read_inputs(human)
        agreed = self.agrees and title in AGREES
        reply = RULES[title](inputs) if agreed else answer_request(read_schema(human), human, None)
        if title == "ReferenceAnswer" and self.wrong_answer:
            reply = {"answerable": True, "answer": self.wrong_answer(inputs)}
        elif title == "ReferenceAnswer" and self.agrees:
            reply = {"answerable": True, "answer": reply.get("answer") or "Some answer."}
        elif title == "Question" and self.wrong_question:
            self.asked += 1
            text = inputs.get("passage") or " ".join(one["text"] for one in inputs.get("passages", []))
            reply = {**reply, "question": self.wrong_question(reply["question"], text, self.asked)}
        return json.dumps(reply, ensure_ascii=False)


@pytest.mark.gate
@pytest.mark.parametrize(("name", "language"), [("ru_wiki", "ru"), ("fastapi", "en")])
@pytest.mark.parametrize("agrees", [False, True])
def test_of_twelve_kinds_of_bad_gold_none_becomes_a_row(name, language, agrees):
    accepted = {}
    docs = [document for document in corpus(name) if detect_language(document.page_content) == language][:20]
    ways = {"answer": WRONG_ANSWERS, "question": WRONG_QUESTIONS}
    for kind, way, change in ((kind, *way) for kind, changes in ways.items() for way in changes.items()):
        given = generator(Adversary(**{kind: change}, agrees=agrees), embeddings=HashingEmbeddings(), splitter=None)
        accepted[kind, way] = len(given.generate(docs, size=10, seed=1))
    assert len(accepted) == 12
    assert {way: count for way, count in accepted.items() if count} == {}
