"""Bridges: passages joined over a shared entity, found by word stems."""

from helpers.each import each, error_of
from helpers.scripted import scripted
from helpers.writers import Ring, Writer, generator, passage
from langchain_core.documents import Document

from langchain_rageval import ConfigError
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.run import Run
from langchain_rageval.steps import Entities, NeededPassages, Question, QuestionReview
from langchain_rageval.testset import (
    Candidate,
    Docstore,
    answer,
    find_passages,
    multi_context,
    question_filter,
    thematic,
    unanswerable,
)
from langchain_rageval.testset.evolve import find_bridges
from langchain_rageval.text.words import PhraseIndex

MUNICH = "Генрих Лев основал Мюнхен в 1158 году. Мост через Изар он перенёс."
LION = "Генриха Льва лишили владений в 1180 году, и он уехал в Англию."
SALT = "Соль везли по мосту через Изар. За провоз брали два пфеннига."
GYPSUM = "Гипс добывают в карьерах открытым способом."
RIVER = "Изар берёт начало в Тирольских Альпах и впадает в Дунай."


def store_of(*texts, **options):
    return Docstore([{"text": text, "source": f"{n}.txt"} for n, text in enumerate(texts)], splitter=False, **options)


def start(store, place=0):
    return Candidate(passages=[store.passages[place]]).with_question("Кто основал Мюнхен?", "seed")


def bridged(store, *entities):
    return [(e, store.passages.index(p)) for e, p in find_bridges(store, store.passages[0], entities, 2).items()]


def test_a_phrase_is_found_in_any_of_its_forms_and_only_with_its_words_together():
    index = PhraseIndex(["Страховой полис на баню.", "По страховому полису платят.", "Полис. Он страховой.", "Бань"])
    assert index.texts_with("страховые полисы") == [0, 1]
    assert index.texts_with("баня") == [0, 3]
    assert index.texts_with("мыло") == []
    assert index.texts_with("и на") == []
    assert index.nearest("на чём держится страховой полис") == [0, 1, 2]


def test_a_passage_is_bridged_to_those_that_name_one_of_its_entities():
    assert bridged(store_of(MUNICH, GYPSUM, SALT), "Изар", "Мюнхен") == [("Изар", 2)]
    assert bridged(store_of(MUNICH, GYPSUM), "Изар", "Мюнхен") == []
    assert bridged(store_of(MUNICH, SALT, LION), "Изар", "Мюнхен") == [("Изар", 1)]


def test_the_most_related_passage_comes_first_and_each_bridge_has_its_own_entity():
    far, near = "Изар течёт на север.", "Мюнхен стоит на реке Изар в Баварии."
    assert bridged(store_of(MUNICH, far, near), "Изар", "Мюнхен") == [("Мюнхен", 2), ("Изар", 1)]
    assert bridged(store_of(MUNICH, far, RIVER), "Изар") == [("Изар", 1)]


def test_an_amount_is_no_bridge_and_neither_is_the_topic_of_the_corpus():
    many = [f"Мюнхен, запись {n} о разном." for n in range(8)]
    assert bridged(store_of(MUNICH, *many), "Мюнхен") == []
    assert bridged(store_of(MUNICH, "В 1158 году была засуха."), "1158 году") == []
    assert bridged(store_of("3D-печать дома.", GYPSUM, "Цех, где есть 3D-печать."), "3D-печать") == []


def test_a_near_duplicate_and_an_overlapping_passage_are_left_out():
    assert bridged(store_of(MUNICH, MUNICH + " Да."), "Изар") == []
    one, other = passage(0, MUNICH), passage(0, RIVER + " И далее.")
    store = store_of(MUNICH, RIVER)
    store.passages[:] = [one, other]
    assert find_bridges(store, one, ["Изар"], 2) == {}


def test_a_search_finds_passages_by_rare_words_and_by_meaning_in_turn_until_the_text_is_long_enough():
    store = store_of(MUNICH, SALT, GYPSUM, RIVER)
    question = "Добывают ли гипс на Изаре?"
    assert store.nearest_passages(question) == [store.passages[n] for n in (2, 0, 1, 3)]
    alike = Ring(same=lambda text: text if text != question else RIVER, near=0.1)
    assert drive(store_of(MUNICH, SALT, GYPSUM, RIVER, embeddings=alike).search_corpus(question), Run(), {}) == [
        store.passages[n] for n in (2, 3, 0, 1)
    ]
    for length, count in ((12, 12), (2_000, 8), (2_001, 7), (9_000, 4)):  # 8 times 2,000 characters are the limit
        many = store_of(*(f"Гипс {n} ".ljust(length, "я") for n in range(20)))
        assert (len(many.nearest_passages("Гипс")), many.found_at_most) == (count, min(count, 12))


def test_a_question_is_joined_over_a_shared_entity_without_embeddings():
    store = store_of(MUNICH, GYPSUM, SALT)
    writer = scripted(Entities(entities=["Генрих Лев", "Изар"]), Question(question="Что везли по мосту основателя?"))
    made = multi_context(writer, store).invoke(start(store))
    assert [item.text for item in made.passages] == [MUNICH, SALT]
    assert made.metadata == {"bridge": ["Изар"]}
    assert made.needed == [item.id for item in made.passages]
    assert [item["text"] for item in writer.inputs[1]["passages"]] == [MUNICH, SALT]


@each("entities", [[], ["Марс"]])
def test_without_a_shared_entity_the_nearest_passage_by_embeddings_is_added(entities):
    store = store_of(MUNICH, GYPSUM, SALT, embeddings=Ring())
    writer = scripted(Entities(entities=entities), Question(question="Что общего?"))
    made = multi_context(writer, store).invoke(start(store))
    assert (len(made.passages), made.metadata, len(made.needed)) == (2, {}, 2)


def test_two_passages_are_added_for_some_seeds_and_one_for_others():
    store, counts = store_of(MUNICH, LION, SALT), set()
    for seed in range(8):
        writer = scripted(Entities(entities=["Изар", "Генриха", "году"]), Question(question="Что общего?"))
        made = multi_context(writer, store).invoke(start(store).replace(seed=seed))
        counts.add((len(made.passages), len(made.metadata["bridge"])))
    assert counts == {(2, 1), (3, 2)}


def test_all_passages_that_were_joined_must_be_needed():
    store = store_of(MUNICH, LION, SALT)
    joined = start(store).replace(passages=list(store.passages), evolution="multi_context")
    joined = joined.replace(needed=[item.id for item in store.passages])
    two = scripted(NeededPassages(reason="Хватит двух.", passages=[1, 2]))
    assert find_passages(two).invoke(joined).rejected == "not all passages are needed"
    three = scripted(NeededPassages(reason="", passages=[1, 2, 3]))
    assert find_passages(three).invoke(joined).rejected is None


def test_a_joined_question_takes_four_calls_and_one_that_stays_the_same_is_not_sent_to_the_critic():
    store, named = store_of(MUNICH, GYPSUM, SALT), {"Entities": lambda *_: {"entities": ["Изар"]}}
    joined, same = Writer(**named), Writer(Question=lambda inputs, _: {"question": inputs["question"]}, **named)
    for writer, rejected, reviews in ((joined, None, {"QuestionReview": 1}), (same, "not evolved", {})):
        made = multi_context(writer.model, store, critic=writer.model).invoke(start(store))
        assert (made.rejected, writer.calls) == (rejected, {"Entities": 1, "Question": 2, **reviews})


def test_a_writer_that_names_no_entities_in_any_form_costs_the_bridge_only():
    store = store_of(MUNICH, GYPSUM, SALT, embeddings=Ring())
    made = multi_context(Writer(Entities=lambda *_: "{").model, store).invoke(start(store))
    assert (made.rejected, len(made.passages)) == (None, 2)


def test_a_note_says_that_no_passage_has_another_one():
    far = generator(Writer(), {"multi_context": 1}, embeddings=Ring(near=0.1), splitter=None)
    testset = far.generate(["Поле.", "Щавель."], size=2)
    assert (testset.counts, testset.yields["rejected"]) == ({"simple": 2}, {"no passage is near enough": 2})
    assert testset.notes == ["Left out where no passage suits: multi_context (no passage is near enough)."]


def test_only_passages_that_share_a_rare_word_are_drawn_for_a_joined_question():
    drawn = set()
    writer = Writer(Entities=lambda inputs, _: drawn.add(inputs["text"]) or {"entities": ["Изар"]})
    testset = generator(writer, {"multi_context": 1}, splitter=None).generate([GYPSUM, MUNICH, SALT], size=2)
    assert (drawn, testset.counts, testset.yields["rejected"]) == ({MUNICH, SALT}, {"multi_context": 2}, {})


@each("hidden", ["Соль дорожала: за провоз брали два пфеннига.", "Плата с каждого воза: два пфеннига."])
def test_an_unanswerable_question_is_checked_against_what_words_and_meaning_find_in_the_corpus(hidden):
    others = [f"Соль и провоз соли, запись {n}: сколько стоит соль, не сказано." for n in range(9)]
    question = "Сколько стоит провоз соли?"
    embeddings = Ring(same=lambda text: hidden if text == question else text, near=0.1)
    store = store_of(MUNICH, GYPSUM, *others, hidden, embeddings=embeddings)
    made = unanswerable(scripted(Question(question=question)), store).invoke(start(store))
    assert hidden in [item.text for item in made.nearest]
    assert made.passages[0] not in made.nearest
    critic = scripted(QuestionReview(feedback="Сказано.", standalone=True, answerable=True))
    rejected = [step.invoke(made).rejected for step in (question_filter(critic), answer(Writer().model))]
    assert rejected == ["the documents answer it"] * 2
    assert hidden in [item["text"] for item in critic.inputs[0]["passages"]]


@each(("size", "most"), [(3, 3), (19, 3), (20, 4)])
def test_an_entity_of_three_passages_or_a_fifth_of_the_corpus_connects(size, most):
    names = ["альфа", "бета", "гамма", "дельта", "омега", "сигма", "тета", "каппа", "ламбда", "мюон"]
    others = [f"{names[n % 10]} {names[n * 3 % 7]} {'абвгдежзиклмнопрстуфхцчшэюя'[n] * 6}." for n in range(size)]
    for count in (most, most + 1):
        if count <= size:
            texts = [MUNICH, *(f"Изар {text}" for text in others[1:count]), *others[count:]]
            assert len(texts) == size
            assert bool(bridged(store_of(*texts), "Изар")) == (count == most)


def test_passages_of_four_fifths_common_stems_are_duplicates():
    for other, count in (("альфа бета гамма сигма", 1), ("альфа бета гамма дельта", 0)):
        assert len(bridged(store_of("альфа бета гамма дельта омега", other), "альфа")) == count


def test_passages_of_one_document_connect_unless_they_overlap():
    first = Document(MUNICH, metadata={"source": "a", "start_index": 0})
    for place, count in ((len(MUNICH), 1), (len(MUNICH) - 1, 0), (0, 0)):
        other = Document(RIVER, metadata={"source": "a", "start_index": place})
        for documents in ([first, other], [other, first]):
            assert len(bridged(Docstore(documents, splitter=False), "Изар")) == count


def test_a_theme_takes_the_nearest_passages_of_its_document_first_and_needs_two_of_them():
    def of(source, *texts):
        return [Document(text, metadata={"source": source, "start_index": 99 * n}) for n, text in enumerate(texts)]

    near = [f"Изар и мост, запись {letter}." for letter in ("альфа", "бета", "гамма")]
    documents = [*of("b", *near[:2]), *of("a", MUNICH, RIVER, "Погода хороша."), *of("c", near[2])]
    store = Docstore(documents, splitter=False)
    drawn = Candidate(passages=[store.passages[2]]).with_question("Где мост?", "seed")
    made = thematic(scripted(Question(question="Что общего?")), store).invoke(drawn)
    assert [item.text for item in made.passages] == [MUNICH, RIVER, *near[:2]]
    assert (made.evolution, made.needed) == ("thematic", [])
    for numbers, rejected in (([1], "not all passages are needed"), ([2, 4], None)):
        critic = scripted(NeededPassages(reason="", passages=numbers))
        assert find_passages(critic).invoke(made).rejected == rejected
    again = thematic(scripted(Question(question="Что ещё общего?")), store).invoke(made)
    assert again.passages == made.passages
    alone = Docstore([MUNICH, GYPSUM], splitter=False)
    lost = thematic(scripted(), alone).invoke(start(alone))
    assert (lost.rejected, lost.history[-1].kind) == ("no passage is near enough", "thematic")
    assert str(error_of(ConfigError, thematic, scripted())) == (
        "thematic adds passages of the documents: pass docstore=Docstore(documents)"
    )
