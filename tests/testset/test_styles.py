"""Styles and personas: evolutions that only rephrase, and the metadata of their rows."""

import re
from itertools import product

from helpers.each import each, error_of
from helpers.scripted import scripted
from helpers.writers import Writer, documents, generator, passage

from langchain_rageval import ConfigError, OfflineJudge, evaluate, faithfulness
from langchain_rageval.steps import Personas, Question
from langchain_rageval.testset import (
    Candidate,
    audience,
    conversational,
    evolution,
    persona,
    propose_personas,
    reasoning,
    style,
)
from langchain_rageval.testset import numbers as by_numbers

ASKED = Candidate(passages=[passage(0)]).with_question("Что такое поле?", "seed")
STYLES = ["misspelt", "terse", "formal", "angry", "code-mixed", "voice"]
TENANT = "Арендатор, который не знает терминов"


@each("name", STYLES)
def test_a_style_rephrases_the_question_and_is_metadata_of_the_row(name):
    writer = Writer()
    (row,) = generator(writer, {style(name): 1}, size=1).generate(documents(9))
    assert (row.evolution, row.metadata["style"]) == (name, name)
    assert writer.total == 9
    assert row.to_sample().metadata["style"] == name
    assert [trial.kind for trial in row.history] == ["passage", "seed", name]


def test_several_styles_are_joined_and_a_persona_is_kept_beside_them():
    branch = style("angry") | persona(TENANT) | style("code_mixed")
    (row,) = generator(Writer(), {branch: 1}, size=1).generate(documents(9))
    assert (row.metadata["style"], row.metadata["persona"]) == ("angry+code-mixed", TENANT)
    assert row.evolution == "angry+persona+code-mixed"


def test_a_style_of_ones_own_needs_an_instruction():
    writer = scripted(Question(question="Что такое поле, о мудрейший?"))
    made = style("fairy_tale", "Перепиши `question` как сказку.")(writer).invoke(ASKED)
    assert (made.evolution, made.metadata) == ("fairy_tale", {"style": "fairy_tale"})
    kinds = [style("fairy_tale", "Rewrite it.").kind, style("terse", "").kind]
    assert [(one.style, one.asks_more) for one in kinds] == [("fairy_tale", False), ("terse", False)]


def test_the_persona_is_read_by_the_writer():
    writer = scripted(Question(question="подскажите, поле это что?"))
    made = persona(f" {TENANT} ")(writer).invoke(ASKED)
    shown = [{"passage": 1, "text": passage(0).text}]
    assert writer.inputs == [{"question": "Что такое поле?", "passages": shown, "persona": TENANT}]
    assert (made.question, made.metadata) == ("подскажите, поле это что?", {"persona": TENANT})


def test_a_share_of_the_rows_for_each_persona_gives_scores_by_persona():
    people = propose_personas(OfflineJudge(), documents(9), n=3)
    given = generator(Writer(), {persona(who): 1 for who in people}, size=6)
    testset = given.generate(documents(9))
    assert sorted(row.metadata["persona"] for row in testset) == sorted(people * 2)
    samples = [sample.model_copy(update={"answer": "Поле.", "contexts": ["Поле."]}) for sample in testset.to_samples()]
    report = evaluate(samples, [faithfulness(OfflineJudge())], progress=False)
    assert report.summary(by="persona").keys() == set(people)


def test_each_question_of_an_audience_is_asked_by_a_person_in_a_style_and_length():
    choices = {"persona": ["Новичок", "Юрист"], "style": ["вежливо"], "length": ["short", "medium", "long"]}
    words = {"short": 6, "medium": 15, "long": 35}
    by_audience, seen = audience(*choices.values()), set()
    for n in range(30):
        start = Candidate(passages=[passage(n)], seed=7).with_question("Что это?", "seed")
        writer, again = scripted(Question(question="А что это?")), scripted(Question(question="А что это?"))
        made = by_audience(writer).invoke(start)
        drawn = made.metadata
        assert drawn.keys() == choices.keys()
        assert by_audience(again).invoke(start).metadata == drawn
        shown = {name: writer.inputs[0][name] for name in ("persona", "style", "words")}
        assert shown == {"persona": drawn["persona"], "style": drawn["style"], "words": words[drawn["length"]]}
        seen.add(tuple(drawn.values()))
    assert seen == {*product(*choices.values())}
    branch = audience(["Новичок"], lengths=["long"]) | style("terse")
    (row,) = generator(Writer(), {branch: 1}).generate(documents(9), size=1)
    assert row.evolution == "audience+terse"
    joined = {"persona": "Новичок", "style": "as this person writes+terse", "length": "long"}
    assert {name: row.metadata[name] for name in joined} == joined


NO_PERSONA = "persona(description) needs a sentence that says who asks"
NO_LIST = "audience needs a list of texts for each"
NO_STYLE = f"there is no style 'solemn'; choose from {', '.join(STYLES)}, or pass an instruction: style(name, instructi"
NO_PARTS = "evolution(name, instruction) needs a name, and an instruction how to rewrite the question"


@each(
    ("build", "arguments", "message"),
    [
        *((persona, (one,), f"{NO_PERSONA}, got {one!r}") for one in ("", "  ", None, 3)),
        *((audience, (one,), f"{NO_LIST} persona, got {one!r}") for one in ([], "Новичок", ["Новичок", " "])),
        (audience, (["a"], [3]), f"{NO_LIST} style, got [3]"),
        (audience, (["a"], [], []), f"{NO_LIST} length, got []"),
        (audience, (["a"], [], ["huge"]), "a length must be one of short, medium, long, got 'huge'"),
        (style, ("solemn", ""), NO_STYLE),
        (style, ("simple", ""), "there is no style 'simple'; choose from "),
        (style, ("terse", "Write less."), "an evolution cannot be named 'terse': choose a name that is not taken"),
        *((evolution, one, NO_PARTS) for one in (("", "x"), ("x", " "))),
        *((evolution, (one, "x"), f"an evolution cannot be named {one!r}: choose a") for one in ("a+b", "simple")),
    ],
)
def test_evolutions_of_ones_own_without_texts_or_with_a_taken_name_are_refused(build, arguments, message):
    assert str(error_of(ConfigError, build, *arguments)).startswith(message)


# Review


def test_a_rejected_style_is_tried_again_from_the_plain_question_with_the_feedback():
    no = {"feedback": "Непонятно, о каком поле.", "standalone": False, "answerable": True}
    writer = Writer(
        Question=lambda inputs, _: {"question": "полле чо" if "feedback" not in inputs else "полле ржаное чо"},
        QuestionReview=lambda _, before: no if before == 0 else None,
    )
    made = style("misspelt")(writer.model, critic=writer.model).invoke(ASKED)
    assert (made.question, made.parent, made.evolution) == ("полле ржаное чо", "Что такое поле?", "misspelt")
    assert [(trial.question, trial.accepted, trial.feedback) for trial in made.history[1:]] == [
        ("полле чо", False, "Непонятно, о каком поле."),
        ("полле ржаное чо", True, ""),
    ]
    assert writer.calls == {"Question": 2, "QuestionReview": 2}


@each("kind", [style("voice"), conversational, persona(TENANT)])
def test_a_rephrased_question_is_rejected_after_two_tries_and_never_rewritten(kind):
    writer = Writer(QuestionReview=lambda *_: {"feedback": "Нет.", "standalone": False, "answerable": True})
    made = kind(writer.model, critic=writer.model).invoke(ASKED)
    assert made.rejected == "question rejected"
    assert writer.calls == {"Question": 2, "QuestionReview": 2}


# Other evolutions


def test_a_question_about_numbers_starts_from_a_passage_with_numbers():
    texts = ["Поле без чисел.", "Полис стоит 4 рубля, а с пристройкой 7.", "Щавель без чисел."]
    (row,) = generator(Writer(), {"numbers": 1}, size=1).generate(texts)
    assert (row.evolution, row.contexts) == ("numbers", [texts[1]])
    testset = generator(Writer(), {by_numbers | reasoning: 1}, size=1).generate([texts[0]])
    assert testset.counts == {"reasoning": 1}
    assert testset.notes == ["Left out where no passage suits: numbers (no numbers in the passage)."]
    made = by_numbers(scripted()).invoke(ASKED)
    assert made.rejected == "no numbers in the passage"


# Personas


def test_personas_are_proposed_from_passages_of_different_documents_with_one_call():
    writer = scripted(Personas(personas=["Новичок", " новичок ", "", "Знаток", "Лишний"]))
    given = [*documents(7, sources=7), *documents(40, sources=1)[7:]]
    assert propose_personas(writer, given, n=2) == ["Новичок", "Знаток"]
    (inputs,) = writer.inputs
    assert inputs["count"] == 2
    shown = {item["text"] for item in inputs["passages"]}
    assert len(inputs["passages"]) == len(shown) == 8
    assert shown >= {document.page_content for document in given[1:7]}  # each of another source than the 34 others


def test_no_persona_is_requested_again_and_wrong_arguments_are_errors():
    writer = scripted(Personas(personas=[" "]), Personas(personas=["Новичок"]))
    assert propose_personas(writer, ["Поле."]) == ["Новичок"]
    assert "there is no persona" in writer.asked[1][-1].text
    errors = [error_of(ConfigError, propose_personas, writer, *rest) for rest in ((["Поле."], 0), ([],))]
    assert [*map(str, errors)] == [
        "n must be a whole number of at least 1, got 0",
        "the documents hold no text to ask about",
    ]


@each(("text", "language"), [("Баню страхуют вместе с домом.", "ru"), ("A bath is insured.", "en")])
def test_offline_personas_are_in_the_language_of_the_documents(text, language):
    people = propose_personas(OfflineJudge(), [text], n=3)
    assert len(set(people)) == 3
    assert all(bool(re.search("[а-я]", who)) == (language == "ru") for who in people)


# Resume


def test_the_steps_of_two_personas_are_different_journal_entries(tmp_path):
    questions = []
    for who in ("Новичок", "Знаток", "Новичок"):
        writer = Writer(Question=lambda i, _: {"question": f"{i['persona']}: поле?"} if "persona" in i else None)
        given = generator(writer, {persona(who): 1}, size=1, journal=tmp_path / "run.db")
        questions += [row.question for row in given.generate(["Поле."])]
    assert (questions, writer.total) == (["Новичок: поле?", "Знаток: поле?", "Новичок: поле?"], 0)
