"""Refresh of a test set: only rows whose passages have changed are asked about, all else stays."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from helpers import writers
from helpers.each import each, error_of
from helpers.writers import Writer
from langchain_core.documents import Document

from langchain_rageval import Budget, ConfigError
from langchain_rageval.testset import Docstore, Testset, TestsetRow, evolution, persona
from langchain_rageval.testset.refresh import RowUpdates
from langchain_rageval.text.words import words_of

LEFT = "остальное не изменилось, и рассказ о нём длинный и подробный"


def documents(count=40):
    return [
        Document(f"Предмет {n} стоит {n} рублей; {LEFT} {n}.", metadata={"source": f"doc-{n}"}) for n in range(count)
    ]


def answer(inputs, _):
    """Return the price, the first sentence of the passage."""
    text = inputs["passages"][0]["text"]
    return {"answerable": "рублей" in text, "answer": text.partition(";")[0]}


def verdicts(inputs, _):
    """Return the reply of a critic that supports what a passage says in the same words."""
    found = [f"{one['text'].rstrip('.')};" in inputs["shown"].partition("```json")[0] for one in inputs["statements"]]
    labels = [("supported", ["1.1"]) if there else ("absent", []) for there in found]
    reply = [{"statement": n, "reason": "", "evidence": e, "verdict": v} for n, (v, e) in enumerate(labels, 1)]
    return {"verdicts": reply}


def writer_of_prices():
    return Writer(ReferenceAnswer=answer, Verdicts=verdicts)


def generator(writer, **options):
    return writers.generator(writer, **{"distribution": {"simple": 1, "reasoning": 1}, **options})


def edited(rows, change, count=40):
    """Return new documents, with the texts of the passages of some rows changed; None removes a document."""
    changed = {row.contexts[0] for row in rows}
    texts = [(d.metadata, change(d.page_content) if d.page_content in changed else d.page_content) for d in documents()]
    return [Document(text, metadata=metadata) for metadata, text in texts if text is not None]


def by_coroutine(testset, docs, given):
    return asyncio.run(given.arefresh(testset, docs))


@pytest.fixture(params=[Testset.refresh, by_coroutine])
def refreshed(request):
    """Refresh by either door."""
    return request.param


def made(size=20, **options):
    writer = writer_of_prices()
    given = generator(writer, **options)
    testset = given.generate(documents(), size=size, seed=3)
    writer.calls = Counter()
    return writer, given, testset


def ids(rows):
    return [row.id for row in rows]


def test_another_price_updates_the_answer_and_only_the_touched_rows_are_asked_about(refreshed):
    writer, given, testset = made()
    touched = testset.rows[4:6]  # 10% of the rows
    after = refreshed(testset, edited(touched, lambda text: text.replace("рублей", "рублей и 5 копеек")), given)
    calls = {step: usage.calls for step, usage in after.usage_by_step.items()}
    assert calls == {"find_passages": 2, "write_answer": 2, "check_answer": 4, "embed": 0}
    assert (writer.total, after.calls_per_row, after.number, after.complete) == (8, None, 2, True)
    kept = ids([row for row in testset if row not in touched])
    assert after.changes == {"kept": kept, "added": [], "updated": ids(touched), "dropped": []}
    assert [row for row in after if row not in testset.rows] == after.rows[4:6]
    for before, row in zip(touched, after.rows[4:6], strict=True):
        assert (row.id, row.question, row.evolution) == (before.id, before.question, before.evolution)
        assert row.reference == before.reference.replace("рублей", "рублей и 5 копеек")
        assert row.contexts == [before.contexts[0].replace("рублей", "рублей и 5 копеек")]
        assert row.history[-1].feedback == before.reference


def test_another_wording_of_an_answer_that_the_passages_support_keeps_the_earlier_one():
    writer, _given, testset = made()
    writer.changed["ReferenceAnswer"] = lambda inputs, _: {"answerable": True, "answer": "Иначе говоря, столько же."}
    del writer.changed["Verdicts"]
    touched = testset.rows[4:6]
    after = testset.refresh(edited(touched, lambda text: text.replace("длинный", "короткий")))
    assert writer.calls == {"NeededPassages": 2, "ReferenceAnswer": 2, "Verdicts": 2}
    assert (after.changes["updated"], [row.reference for row in after]) == ([], [row.reference for row in testset])


def test_a_row_that_is_not_answered_any_more_is_replaced_by_one_of_the_same_evolution(refreshed):
    _writer, given, testset = made()
    touched = testset.rows[4:6]
    after = refreshed(testset, edited(touched, lambda text: text.replace("рублей", "много")), given)
    rejected = [(candidate.question, candidate.rejected) for candidate in after.rejected]
    assert rejected == [(row.question, "not answerable from its passages") for row in touched]
    assert (after.changes["dropped"], after.changes["added"]) == (ids(touched), ids(after.rows[4:6]))
    assert after.counts == testset.counts
    assert len({row.contexts[0] for row in after}) == 20  # from passages that no row had used
    assert [row for n, row in enumerate(after) if n not in (4, 5)] == testset.rows[:4] + testset.rows[6:]


def test_another_document_with_the_same_phrases_does_not_replace_one_that_is_gone():
    same = "осмотр дома проводит комиссия. Выплата начисляется на счёт владельца."
    docs = [Document(f"Полис {n} стоит {n} рублей; {same}", metadata={"source": f"полис-{n}"}) for n in range(9)]
    testset = generator(writer_of_prices()).generate(docs, size=3)
    after = testset.refresh([one for one in docs if one.metadata["source"] != testset[0].spans[0][0]])
    assert (after.changes["dropped"], after.changes["updated"]) == ([testset[0].id], [])


def test_unnamed_documents_are_found_by_their_sentences():
    texts = [f"Предмет {n} стоит {n} рублей;\nи {LEFT} {n}." for n in range(12)]
    testset = generator(writer_of_prices()).generate(texts, size=4)
    after = testset.refresh([text.replace("рублей", "рублей 5 копеек") for text in texts])
    assert after.changes["updated"] == ids(testset)
    assert [row.reference for row in after] == [row.reference.replace("рублей", "рублей 5 копеек") for row in testset]


def test_a_chunk_with_its_own_id_is_compared_with_its_new_version():
    chunks = [Document(f"Предмет {n} стоит {n} рублей; и всё.", id=f"c{n}") for n in range(9)]
    first, *_ = testset = generator(writer_of_prices()).generate(chunks, size=3)
    new = Document("Совсем другой текст: сто рублей; вот так.", id=first.passage_ids[0])
    after = testset.refresh([new, *(chunk for chunk in chunks if chunk.id != new.id)])
    assert after.changes["updated"] == [first.id]
    assert (after[0].passage_ids, after[0].reference) == (first.passage_ids, "Совсем другой текст: сто рублей")


def test_a_failing_critic_leaves_the_row_with_a_note():
    writer, _given, testset = made()
    writer.changed["NeededPassages"] = lambda *_: "no JSON"
    docs = edited(testset.rows[4:5], lambda text: text.replace("рублей", "рублей и 5 копеек"))
    after = testset.refresh(docs)
    assert after.rows == testset.rows
    (note,) = after.notes
    told = "1 row could not be checked against changed passages and stayed as before: "
    assert note.startswith(f"{told}JudgeOutputError")
    own = {"find_passages": lambda one: one.with_trial("own", accepted=False).reject("failed: mine")}
    assert testset.refresh(docs, generator(writer, steps=own)).notes == [f"{told}failed: mine."]


@pytest.mark.parametrize("calls", [1, 4])
def test_a_spent_budget_leaves_rows_unchecked(calls):
    writer, _given, testset = made()
    poor = generator(writer, budget=Budget(calls=calls), max_concurrency=1)
    after = testset.refresh(edited(testset.rows[:4], lambda text: text.replace("длинный", "короткий")), poor)
    left = sum("длинный" in row.contexts[0] for row in after.rows[:4])
    assert writer.total == 2 * (4 - left) <= calls
    assert left == 4 if calls == 1 else left in (2, 3)  # two rows are begun at once, and may end one after the other
    assert after.notes == [
        f"{left} rows could not be checked against changed passages and stayed as before: the budget is spent."
    ]


def test_a_journal_continues_a_refresh_that_was_killed(tmp_path):
    _, _, testset = made()
    docs = edited(testset.rows[:6], lambda text: text.replace("рублей", "много"))
    expected = testset.refresh(docs, generator(writer_of_prices(), max_concurrency=1))
    for _killed in range(99):
        writer = writer_of_prices()

        def dying(messages, writer=writer):
            if writer.total == 9:  # an evolution with its filters takes four calls and is stored as a whole
                raise KeyboardInterrupt
            return writer.answer(messages)

        writer.model.answer = dying
        with suppress(KeyboardInterrupt):
            after = testset.refresh(docs, generator(writer, journal=tmp_path / "refresh.db", max_concurrency=1))
            if not after.broken_off:
                break
    assert (after.rows, after.changes) == (expected.rows, expected.changes)
    assert _killed > 3


def test_a_loaded_test_set_needs_the_generator(tmp_path):
    writer, given, testset = made(size=4)
    testset.to_jsonl(tmp_path / "t.jsonl")
    loaded = Testset.load(tmp_path / "t.jsonl")
    errors = [str(error_of(ConfigError, loaded.refresh, documents(), *own)) for own in ((), (writer.model,))]
    missing = "refresh needs the generator, which a test set from a file does not know: "
    assert errors == [
        f"{missing}testset.refresh(documents, generator)",
        "generator must be a TestsetGenerator, got Scripted",
    ]
    assert loaded.known_sentences == testset.known_sentences
    assert len(testset.known_sentences) == 40  # one of each document
    assert loaded.refresh(documents(), given).rows == testset.rows


def test_a_text_in_place_of_all_documents_is_refused(refreshed, tmp_path):
    _, given, testset = made(size=2)
    for text in ("text", "Предмет 1 стоит 1 рублей", ""):
        errors = error_of(ConfigError, refreshed, testset, text, given), error_of(ConfigError, given.adopt, ["?"], text)
        expected = "documents must be a list of all documents, or the path of an existing file or folder"
        assert [*map(str, errors)] == [f"{expected}, got the str {text!r}; a single text goes in a list: [text]"] * 2
    (tmp_path / "all.txt").write_text(documents()[0].page_content)
    assert len(refreshed(testset, str(tmp_path), given).changes["dropped"]) == 2


def test_changes_and_number_are_in_the_file(tmp_path):
    _, _, testset = made(size=4)
    after = testset.refresh(documents())
    after.to_jsonl(tmp_path / "t.jsonl")
    loaded = Testset.load(tmp_path / "t.jsonl")
    assert (loaded, loaded.version) == (after, after.version)
    assert after.version == f"2-{testset.version.partition('-')[2]}"
    assert "4 kept; 0 added; 0 updated; 0 dropped" in repr(after).splitlines()


def trees(testset):
    found = {}
    for row in testset:
        found.setdefault(row.tree_id, []).append(row)
    return found


def test_a_tree_whose_document_is_gone_is_replaced_by_a_tree(refreshed):
    _, given, testset = made(size=8, tree=True)
    gone = testset.rows[2:4]
    after = refreshed(testset, edited(gone, lambda text: None), given)
    assert (after.changes["dropped"], after.changes["added"]) == (ids(gone), ids(after.rows[2:4]))
    assert [[row.evolution for row in tree] for tree in trees(after).values()] == [["simple", "reasoning"]] * 4
    assert after.rows[2].tree_id not in trees(testset)


def test_a_question_that_fell_is_replaced_in_its_tree_from_the_simple_question(refreshed):
    writer, given, testset = made(size=8, tree=True)
    simple, reasoning = touched = testset.rows[2:4]
    writer.changed["NeededPassages"] = lambda inputs, _: (
        {"reason": "", "passages": []} if inputs["question"] == reasoning.question else None
    )
    writer.changed["Question"] = lambda inputs, _: {"question": f"Иначе: {inputs['question']}"}
    docs = edited(touched, lambda text: text.replace("длинный", "короткий"))
    after = refreshed(testset, docs, given)
    assert (after.changes["dropped"], after.changes["added"]) == ([reasoning.id], [after.rows[3].id])
    assert (after.rows[2].id, after.rows[2].reference) == (simple.id, simple.reference)
    new, question = after.rows[3], f"Иначе: Иначе: {simple.question}"
    assert (new.tree_id, new.evolution, new.question) == (simple.tree_id, "reasoning", question)
    assert new.contexts == after.rows[2].contexts
    assert writer.calls["Question"] == 2  # to evolve and to compress; the simple question is not written again


def test_an_evolution_that_the_generator_does_not_know_is_not_replaced():
    _, given, testset = made(size=4)
    foreign = Testset([row.model_copy(update={"evolution": "my own"}) for row in testset])
    after = foreign.refresh(edited(testset.rows, lambda text: None), given)
    assert (len(after), after.complete) == (0, False)
    assert "0 of 4 dropped rows were replaced, of the evolutions my own." in after.notes


def test_a_dropped_row_is_replaced_by_its_evolution_of_the_generator_or_of_the_package():
    _, given, testset = made(size=4, distribution={"simple": 1, evolution("tale", "Перепиши."): 1})
    assert testset.counts == {"simple": 2, "tale": 2}
    evolutions = ["simple", "conditional", "tale", "tale"]
    rows = [row.model_copy(update={"evolution": own}) for row, own in zip(testset, evolutions, strict=True)]
    after = Testset(rows).refresh(edited(testset.rows, lambda text: None), given)
    assert [row.evolution for row in after] == evolutions
    assert (after.complete, len(after.changes["dropped"])) == (True, 4)


def test_a_row_of_a_persona_is_replaced_by_a_row_of_the_same_persona():
    people = ["A tenant in a hurry", "A notary", "A student"]
    _, given, testset = made(size=6, distribution={persona(who): 1 for who in people})
    asked = [row.metadata["persona"] for row in testset]
    changed = edited(testset.rows, lambda text: text.replace("рублей", "много"))
    for one in (given, generator(writer_of_prices())):  # the other one has no personas
        after = testset.refresh(changed, one)
        assert (len(after.changes["dropped"]), [row.metadata["persona"] for row in after]) == (6, asked)


# Kinds of changes


def priced(inputs, _):
    """Return the last price that the passages name; and that things are insured, if a question asks for it."""
    text = " ".join(passage["text"] for passage in inputs["passages"])
    if "страх" in inputs["question"]:
        return {"answerable": "застрахован" in text, "answer": "застрахован" if "застрахован" in text else ""}
    prices = re.findall(r"стоит ([^;]+);", text)
    return {"answerable": bool(prices), "answer": "".join(prices[-1:])}


def last_price(inputs, _):
    """Return the reply of a critic that supports the last price, and that things are insured."""
    shown = inputs["shown"].partition("```json")[0]
    said = [*re.findall(r"стоит ([^;]+);", shown)[-1:], *re.findall(r"застрахован(?=;)", shown)]
    labels = ["supported" if one["text"].rstrip(".") in said else "absent" for one in inputs["statements"]]
    return {"verdicts": [{"statement": 1, "reason": "", "evidence": ["1.1"], "verdict": label} for label in labels]}


def keyphrases(inputs, _):
    return {"keyphrases": re.findall(r"Предмет \d+", inputs["passage"])[:1]}


def page(n, end="."):
    text = f"# Предмет {n}\n\n**Предмет {n}** стоит {n} рублей; «{LEFT}» {n}{end}\n\n"
    return text + f"Вернуть предмет {n} можно за две недели.   Об этом говорит глава {n}, которую писал Иван {n}-й."


def paged(change=lambda text: text, source="{}.md", count=12):
    return [Document(change(page(n)), metadata={"source": source.format(n)}) for n in range(count)]


PARTS = [part for n in range(12) for part in page(n).rpartition("\n\n")[::2]]
HALVES = [Document(part, metadata={"source": f"half-{n}.md"}) for n, part in enumerate(PARTS)]


def added(text):
    return [*paged(), Document(text, metadata={"source": "new.md"})]


ALL_KEPT = {"kept": 6, "added": 0, "updated": 0, "dropped": 0}
ONE_UPDATED = {**ALL_KEPT, "kept": 5, "updated": 1}
CHANGED = {  # documents, changes, calls
    "nothing": (paged(), ALL_KEPT, 0),
    "another order": (paged()[::-1], ALL_KEPT, 0),
    "a paragraph put first": (paged(lambda text: f"Предисловие на одну строку.\n\n{text}"), ALL_KEPT, 0),
    "a sentence put last": (paged(lambda text: f"{text} Остальное с июня отменено."), ALL_KEPT, 6 * 2 - 1),
    "files renamed, and white space": (paged(lambda text: " ".join(text.split()), source="new/{}"), ALL_KEPT, 0),
    "bold type and quotes": (paged(lambda text: re.sub(r"[*#«»]", "", text)), ALL_KEPT, 0),
    "all in one file": ([Document("\n\n".join(map(page, range(12))), metadata={"source": "all.md"})], ALL_KEPT, 0),
    "each file copied": ([*paged(), *paged(source="copy/{}")], ALL_KEPT, 0),
    "another wording nearby": (paged(lambda text: text.replace("длинный", "короткий")), ALL_KEPT, 6 * 2 - 1),
    "each file cut in two": (HALVES, ALL_KEPT, 6 * 2 - 1),
    "prices, and files renamed": (
        paged(lambda text: text.replace("рублей", "рубля"), source="new/{}.md"),
        {**ALL_KEPT, "kept": 1, "updated": 5},
        6 * 4 - 3,
    ),
    "three files deleted": (paged()[3:], {"kept": 4, "added": 2, "updated": 0, "dropped": 2}, 2 * 7),
    "a new price": (added("С мая предмет 5 стоит 99 рублей; цена предмета 5 повышена."), ONE_UPDATED, 4),
    "an answer to an unanswerable question": (added("Предмет 7 застрахован; и от пожара тоже."), ONE_UPDATED, 4),
}


@each("kind", CHANGED)
def test_each_kind_of_change_asks_about_the_rows_that_it_concerns(kind):
    docs, changes, calls = CHANGED[kind]
    writer = Writer(ReferenceAnswer=priced, Verdicts=last_price, Keyphrases=keyphrases)
    given = generator(writer, distribution={"simple": 1}, splitter=None)
    testset = given.generate(paged(), size=1, allow_empty=True)
    rows = [
        TestsetRow(
            id=f"r{n}",
            question="Застрахован ли предмет 7 от пожара?" if n == 7 else f"Сколько стоит предмет {n}?",
            contexts=[page(n)],
            reference="В документах этого нет." if n == 7 else f"{n} рублей",
            evolution="simple",
            answerable=n != 7,
            passage_ids=[f"p{n}"],
            spans=[(f"{n}.md", 0, len(page(n)))],
        )
        for n in (1, 2, 3, 4, 5, 7)
    ]
    before = writer.total
    after = replace(testset, rows=rows).refresh(docs)
    assert ({name: len(own) for name, own in after.changes.items()}, writer.total - before) == (changes, calls)
    assert [one for one in ids(after) if one[0] == "r"] == [
        one for one in ids(rows) if one not in after.changes["dropped"]
    ]
    sources = {document.metadata["source"]: document.page_content for document in docs}
    for row in after:
        for text, (source, start, end) in zip(row.contexts, row.spans, strict=True):
            assert words_of(sources[source][start:end]) == words_of(text)
    answers = {row.id: (row.reference, row.answerable) for row in after}
    new = {"a new price": ("r5", "99 рублей"), "an answer to an unanswerable question": ("r7", "застрахован")}
    if kind in new:
        assert answers[new[kind][0]] == (new[kind][1], True)


LETTERS = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
OTHERS = "".join(map(chr, range(0x5000, 0x5000 + 400)))


def sharing(start, count, number):
    """Return a text of 100 letters with a run of the letters of the earlier passage."""
    return LETTERS[start : start + count] + OTHERS[50 * number : 50 * number + 100 - count]


def versions_of(text, source, documents):
    """Return the row of one passage, the row that the documents leave of it, and the places of the new versions."""
    known = {"id": "r", "question": "Что?", "reference": "Это.", "evolution": "simple"}
    row = TestsetRow(**known, contexts=[text], passage_ids=["p"], spans=[(source, 100, 200)])
    kept, candidate = RowUpdates(Docstore(documents, splitter=False), None).of(row, seed=0)
    texts = [document.page_content for document in documents]
    return row, kept, candidate and [texts.index(one.text) for one in candidate.passages]


@each(
    ("texts", "places", "found"),
    [
        ([sharing(0, 25, 0), sharing(0, 60, 1), sharing(0, 30, 2), sharing(60, 40, 3)], None, [1, 3, 2]),
        ([sharing(0, 80, 0), sharing(0, 90, 1), sharing(0, 60, 2)], None, [1]),
        ([sharing(0, 80, 0), sharing(0, 79, 1), sharing(20, 80, 2)], None, [0, 2]),
        ([sharing(0, 79, 0), sharing(0, 20, 1), sharing(0, 19, 2)], None, [0, 1]),
        ([sharing(0, 19, n) for n in range(4)], [0, 100, 150, 200], [1, 2]),
        ([sharing(0, 19, n) for n in range(4)], [0, 99, 199, 200], [1, 2]),
        ([sharing(0, 19, n) for n in range(4)], [0, 0, 0, 0], None),
    ],
)
def test_the_new_versions_of_a_passage_share_its_text_or_are_in_its_place(texts, places, found):
    places = places or [100 * n for n in range(len(texts))]
    documents = [
        Document(text, metadata={"source": "a", "start_index": at}) for text, at in zip(texts, places, strict=True)
    ]
    row, kept, versions = versions_of(LETTERS, "a", documents)
    assert (kept, versions) == ((row, found) if found else (None, None))


@each(("length", "found"), [(19, [1]), (18, None)])  # and a full stop
def test_a_passage_of_an_unnamed_document_is_found_by_a_sentence_of_twenty_characters(length, found):
    texts = ["Другая строка без общего.", f"{LETTERS[:length]}.\n{OTHERS[:70]}"]
    old = f"{LETTERS[:length]}.\n{OTHERS[100:170]}"
    row, kept, versions = versions_of(old, "text 0123", [Document(text) for text in texts])
    assert (kept, versions) == ((row, found) if found else (None, None))


def test_the_earlier_name_of_updated_rows_is_still_read(caplog, tmp_path):
    testset = Testset([], changes={"kept": [], "added": [], "mended": ["a"], "dropped": []})
    testset.to_jsonl(tmp_path / "t.jsonl")
    for one in (testset, Testset.load(tmp_path / "t.jsonl")):
        assert list(one.changes) == ["kept", "added", "updated", "dropped"]
        assert one.changes["mended"] == one.changes["updated"] == ["a"]
    assert caplog.messages[0].startswith('changes["mended"] is now changes["updated"]')
    with pytest.raises(KeyError):
        Testset([]).changes["mended"]
