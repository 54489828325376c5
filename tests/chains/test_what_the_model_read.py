"""Contexts are the chunks in the prompt of the model that wrote the answer, whatever retrievers and outputs hold."""

from urllib.parse import quote

import pytest
from helpers.asking_chains import CHATS, MORE, TEXTS, TURNS, say
from helpers.doors import SINGLE, batch, stream
from helpers.each import each
from helpers.reading_chains import (
    ALL,
    ANSWER,
    EXAMPLE,
    FOUND,
    GOLD,
    PROMPT,
    QUESTION,
    SEARCH,
    TABLE,
    Agent,
    Model,
    State,
    graph,
    joined,
    keep,
    rag,
    reordered,
)
from helpers.samples import Search, sequence, watched, watching, with_callback
from helpers.waiting import PATIENCE
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_rageval import (
    HashingEmbeddings,
    OfflineJudge,
    Sample,
    SampleError,
    answered_by,
    aspect_critique,
    context_recall,
    evaluate,
    faithfulness,
    hit_rate_at,
    last_turns,
    mrr_at,
    precision_at,
    recall_at,
)
from langchain_rageval.chains.chain_input import input_builder

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
CHAINS = TABLE | MORE
QUICK = ["RAG-Fusion", "pairs before the chunks", "a tool that drops all", "a graph that hides its state", "an agent"]
QUICK += ["refine of classic chains", "examples in the prompt", "cut"]


def ids(texts):
    return None if texts is None else [TEXTS.get(text, text) for text in texts]


def read(sample):
    return sample.answer, ids(sample.contexts), ids(sample.retrieved), sample.metadata["contexts_from"]


def ask(chain, **fields):
    (sample,) = answered_by(chain, progress=False).invoke([Sample(question=QUESTION, **fields)])
    return sample


async def check_asked(name):
    chain, contexts, retrieved, answer = CHAINS[name]
    expected = (answer, contexts, retrieved, "prompt")
    sample = ask(chain)
    assert read(sample) == expected
    (asynchronous,) = await answered_by(chain, progress=False).ainvoke([Sample(question=QUESTION)])
    assert read(asynchronous) == expected
    if name in TABLE and set(contexts) <= set(ALL) and name != "a reranker returns copies":
        assert sample.context_ids == contexts
        sources = {document.id: document.metadata["source"] for document in FOUND}
        assert name == "parent documents" or sample.metadata["context_sources"] == [sources[one] for one in contexts]


async def check_watched(name):
    chain, contexts, retrieved, answer = CHAINS[name]
    given = input_builder(chain)(QUESTION)
    callback, rows = watching()
    config = with_callback(callback)
    with callback:
        for door in (*SINGLE, batch):
            await door(chain, given, config)
        assert callback.flush(PATIENCE)
    assert len(rows) == 5
    for row in rows:
        assert read(row.sample) == (answer, contexts, retrieved, "prompt")
        assert (row.sample.question, row.sample.history) == (QUESTION, [])


@each("name", QUICK)
async def test_a_chain_that_is_asked_has_the_chunks_that_its_model_read(name):
    await check_asked(name)


@each("name", QUICK)
async def test_the_callback_has_them_too_however_the_chain_is_called(name):
    await check_watched(name)


@pytest.mark.gate
@each("name", CHAINS)
async def test_so_it_is_with_every_chain(name):
    await check_asked(name)
    await check_watched(name)


async def check_chat(name, door):
    build, inputs, key = CHATS[name]
    chain, given = build(), inputs()
    callback, rows = watching(aspect_critique(OfflineJudge(), "conciseness"))
    config = with_callback(callback, configurable={key: "chat"})
    with callback:
        for question in TURNS:
            await door(chain, given(question), config)
        assert callback.flush(PATIENCE)
    turns = [turn for question in TURNS for turn in (question, f"Reply to: {question}")]
    for number, row in enumerate(rows):
        sample = row.sample
        assert (sample.question, sample.answer) == (turns[2 * number], turns[2 * number + 1])
        assert [turn.text for turn in sample.history] == turns[: 2 * number]
        metadata = {"conversation": "chat", "turn": number + 1}
        assert (metadata.items() <= sample.metadata.items(), ids(sample.contexts)) == (True, ["gold"])
    (whole,) = last_turns([row.sample for row in rows])
    assert (len(rows), whole.question, len(whole.history)) == (len(TURNS), TURNS[-1], 2 * len(TURNS) - 2)


@each("name", ["a history around a function", "a graph with messages", "an entrypoint that saves messages"])
async def test_each_turn_of_a_chat_has_the_turns_before_it_and_its_chunks(name):
    await check_chat(name, stream)


@pytest.mark.gate
@each("door", SINGLE)
@each("name", CHATS)
async def test_so_it_is_with_every_memory_and_door(name, door):
    await check_chat(name, door)


def searched(question):
    store = InMemoryVectorStore(HashingEmbeddings())
    store.add_documents(FOUND)
    return (PROMPT | Model()).invoke({"context": joined(store.similarity_search(question)), "question": question}).text


def quoted(question):
    texts = quote(joined(SEARCH.invoke(question)))
    return (PROMPT | Model()).invoke({"context": texts, "question": question}).text


NOTED = {
    "a search that shows no documents": (searched, None, {"no_contexts": "no retriever ran: return the documents"}),
    "a form that is not read": (quoted, ALL, {"contexts_from": "retriever"}),
    "a function that drops all": (
        RunnableLambda(lambda question: say(f"From {joined(keep()(SEARCH.invoke(question)))} answer {question}")),
        ALL,
        {"contexts_from": "retriever"},
    ),
    "no search": (create_agent(Model(), []), None, {"no_contexts": "no retriever ran: return the documents"}),
}


@each("name", NOTED)
def test_what_cannot_be_seen_is_noted(name):
    chain, contexts, noted = NOTED[name]
    sample = ask(chain)
    assert (sample.answer, ids(sample.contexts), sample.retrieved) == (ANSWER, contexts, None)
    assert noted.items() <= sample.metadata.items()


KEEPS, DROPS, EMPTIES = keep("gold"), keep("river", "zoo"), keep()
RERANKERS = {
    "a function": lambda rerank: rag(rerank),
    "a graph that hides its state": graph,
    "a compressor": lambda rerank: rag(search=SEARCH | RunnableLambda(rerank)),
    "a function around everything": lambda rerank: RunnableLambda(
        lambda question: (PROMPT | Model()).invoke(
            {"context": joined(rerank(SEARCH.invoke(question))), "question": question}
        )
    ),
    "a chain that returns what it found": lambda rerank: RunnableParallel(
        {"answer": rag(rerank), "source_documents": SEARCH}
    ),
}


@each("kind", RERANKERS)
def test_an_a_b_test_of_rerankers_shows_what_they_do(kind):
    reference = "Munich was founded by Henry the Lion in 1158."
    metrics = [mrr_at(5), precision_at(1), recall_at(5), faithfulness(OfflineJudge()), context_recall(OfflineJudge())]
    rerankers = {KEEPS: [1, 1, 1, 1, 1], DROPS: [0] * 5, EMPTIES: [0] * 5, reordered: [1 / 2, 0, 1, 1, 1]}
    for rerank, expected in rerankers.items():
        sample = ask(RERANKERS[kind](rerank), references=[reference], reference_context_ids=["gold"])
        report = evaluate([sample.model_copy(update={"answer": reference})], metrics, progress=False)
        values = [score.value for score in report.rows[0].scores.values()]
        assert values == expected, (kind, sample.contexts)


def test_the_text_of_a_tool_beside_chunks_with_ids_has_its_call_as_its_id():
    @tool
    def search(query: str) -> str:
        """Search, and keep nothing."""
        SEARCH.invoke(query)
        return "There is no such chunk."

    sample = ask(create_agent(Agent(), [search]), reference_context_ids=["gold"])
    assert (sample.contexts, sample.context_ids) == (["There is no such chunk."], ["search 1"])
    assert sample.retrieved_ids == ALL
    report = evaluate([sample], [mrr_at(5), mrr_at(5, name="found", of="retrieved")], progress=False)
    assert [score.value for score in report.rows[0].scores.values()] == [0, 1 / 3]


def test_without_a_prompt_contexts_are_what_the_output_states_or_what_was_retrieved_and_the_row_says_so():
    hidden = RunnableLambda(lambda question: SEARCH.invoke(question) and ANSWER)  # its model is not one of LangChain
    assert read(ask(hidden)) == (ANSWER, ALL, None, "retriever")
    stated = RunnableLambda(lambda question: {"answer": ANSWER, "context": SEARCH.invoke(question)[2:]})
    assert read(ask(stated)) == (ANSWER, ["gold"], ALL, "output")
    empty = ask(rag(search=Search(documents=[])))
    assert (empty.contexts, empty.retrieved, empty.metadata["contexts_from"]) == ([], None, "retriever")


def test_contexts_that_the_chain_was_given_count_as_far_as_the_model_read_them():
    answering = PROMPT | Model()

    def run(rerank):
        chain = RunnableLambda(
            lambda given: answering.invoke({"context": joined(rerank(given["context"])), "question": given["question"]})
        )
        _, rows = watched(chain, {"question": QUESTION, "context": FOUND})
        return rows[0].sample

    assert read(run(KEEPS)) == (ANSWER, ["gold"], None, "prompt")
    assert read(run(keep())) == (ANSWER, ALL, None, "given")


def test_a_search_that_shows_no_documents_is_an_error_of_a_metric_that_reads_them():
    sample = ask(searched)
    assert sample.metadata == NOTED["a search that shows no documents"][2]
    with pytest.raises(SampleError, match="no retriever ran: return the documents"):
        evaluate([sample], faithfulness(OfflineJudge()), progress=False)
    assert "no_contexts" not in ask(rag(), metadata=sample.metadata).metadata


def test_a_part_of_a_chunk_has_its_place_in_the_document():
    chunk = Document(GOLD.page_content, id="gold", metadata={"source": "munich.md", "start_index": 100})
    middle = "founded by Henry the Lion in 1158, when he moved the bridge of the"
    assert middle in chunk.page_content
    sample = ask(rag(search=Search(documents=[chunk]), form=lambda found: f"… {middle} …"))
    start = 100 + chunk.page_content.index(middle)
    assert sample.contexts == [middle]
    assert sample.metadata["context_spans"] == [["munich.md", start, start + len(middle)]]


def test_a_graph_keeps_documents_of_earlier_turns_as_contexts_only_if_the_model_reads_them():
    def run(context):
        chain = PROMPT | Model()
        nodes = {
            "retrieve": lambda state: {"documents": [*state["documents"], *KEEPS(SEARCH.invoke("?"))]},
            "write": lambda state: {"answer": chain.invoke({**state, "context": context(state)}).text},
        }
        _, rows = watched(sequence(State, nodes), {"question": QUESTION, "documents": [EXAMPLE]})
        return ids(rows[0].sample.contexts)

    assert run(lambda state: joined(state["documents"])) == ["ex", "gold"]
    assert run(lambda state: joined(state["documents"][1:])) == ["gold"]


def test_a_report_counts_the_chunks_and_says_which_answers_have_other_contexts():
    hidden = RunnableLambda(lambda question: SEARCH.invoke(question) and ANSWER)
    kept, unread, missing = (
        ask(chain, id=f"{n}", reference_context_ids=["gold"])
        for n, chain in enumerate((rag(KEEPS), hidden, lambda question: ANSWER))
    )
    report = evaluate([kept, unread, missing], hit_rate_at(1), progress=False)
    notes = {note.code: str(note) for note in report.notes}
    retrieved = "are what the retrievers returned: no prompt of a model that holds them was seen."
    missing = "have no contexts, since no retriever ran: let the chain return the documents."
    assert {code: notes[code] for code in ("chunks-read", "unread-contexts", "no-contexts")} == {
        "chunks-read": "Chunks: 6 retrieved, 4 read by the model, in 2 samples.",
        "unread-contexts": f"Contexts of 1 of 3 answers {retrieved}",
        "no-contexts": f"1 of 3 answers {missing}",
    }
    given = [Sample(question=QUESTION, answer=ANSWER, contexts=["a"], context_ids=["a"], reference_context_ids=["a"])]
    assert evaluate(given, hit_rate_at(1), progress=False).notes == []


def test_a_chunk_that_a_step_has_cut_or_marked_keeps_its_id():
    changes = {"gold": lambda text: f"[1] {text}", "river gold": lambda text: text[:80]}
    for kept, change in changes.items():
        chunks = [one for one in FOUND if one.id in kept.split()]
        changed = [Document(change(one.page_content), metadata=one.metadata) for one in chunks]
        sample = ask(rag(lambda found, changed=changed: changed))
        assert sample.context_ids == kept.split()
        assert sample.contexts == [one.page_content for one in changed]
    mostly_new = ask(rag(lambda found: [Document(f"{found[0].page_content} {'It is told again. ' * 20}")]))
    assert (len(mostly_new.contexts), mostly_new.context_ids) == (1, None)
    compressed = ask(TABLE["compression"][0])
    assert (compressed.context_ids, compressed.metadata["context_sources"]) == (["gold"], ["munich.md"])
