"""What a run takes, and what it checks before the first call: tables, ids, context windows and options."""

import inspect
import json
import re
from contextlib import suppress
from importlib import import_module
from typing import get_type_hints

import pandas as pd
import pytest
from helpers.each import each, error_of
from helpers.samples import SAMPLE
from helpers.scripted import PairScores, scripted
from helpers.texts import corpus
from helpers.writers import Writer
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_rageval import (
    ConfigError,
    Finding,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    RagEvalCallback,
    RetryPolicy,
    Row,
    Sample,
    Score,
    TestsetGenerator,
    aevaluate,
    astream_evaluate,
    evaluate,
    exact_match,
    faithfulness,
    hit_rate_at,
    id_grader,
    label_grader,
    ndcg_at,
    qualify_judge,
    recall_at,
    span_grader,
    string_presence,
)
from langchain_rageval.data.notes import Note
from langchain_rageval.evaluation.dry_run import context_window, estimated_tokens, local_reply
from langchain_rageval.evaluation.inputs import MixedMeasures
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, STREAM_DEFAULTS, EvaluateOptions, StreamOptions
from langchain_rageval.run.requests import Call, Invoke, Rate
from langchain_rageval.run.run import CALL_DEFAULTS, RUN_DEFAULTS, CallOptions, RunOptions, build_run

# Tables, own field names and reports


FIELDS = {"question": "q", "answer": "run.text", "contexts": "run.docs"}
ROW = {"q": "Где?", "run": {"text": "Там.", "docs": ["Там."]}}


async def streamed(rows):
    for row in rows:
        yield row


def read(report):
    return [(row.sample.question, row.sample.answer, row.sample.contexts) for row in report.rows]


async def test_fields_are_read_in_every_form_of_samples(tmp_path):
    metric, options = faithfulness(OfflineJudge()), {"fields": FIELDS, "progress": False}
    reports = [evaluate(shape([ROW]), metric, **options) for shape in (list, iter, pd.DataFrame)]
    reports.append(await aevaluate(streamed([ROW]), metric, **options))
    path = tmp_path / "a.csv"
    path.write_bytes("в;о;к\nГде?;Там.;\"['Там.']\"\n".encode("utf-16"))
    reports.append(evaluate(path, metric, fields={"question": "в", "answer": "о", "contexts": "к"}, progress=False))
    assert [read(report) for report in reports] == [[("Где?", "Там.", ["Там."])]] * 5
    assert [report.rows[0].scores["faithfulness"].value for report in reports] == [1.0] * 5
    rows = [row async for row in astream_evaluate([ROW], metric, fields=FIELDS)]
    assert [row.sample.answer for row in rows] == ["Там."]


def test_the_samples_of_a_report_can_be_scored_again():
    report = evaluate([SAMPLE], faithfulness(OfflineJudge()), progress=False)
    again = evaluate(report, faithfulness(OfflineJudge(), name="second"), progress=False)
    assert [row.sample for row in again.rows] == [row.sample for row in report.rows]
    assert [[*row.scores] for row in again.rows] == [["second"]]


def frames():
    """Return tables of pandas, polars and pyarrow; those of libraries that are not installed are left out."""
    columns = {"Вопрос": ["Где?", "Как?"], "Ответ": ["Там.", None], "Контексты": [["Там."], None]}
    made = [pd.DataFrame(columns)]
    with suppress(ImportError):
        made.append(import_module("polars").DataFrame(columns))
    with suppress(ImportError):
        made.append(import_module("pyarrow").table(columns))
    return made


@pytest.mark.parametrize("table", frames(), ids=lambda table: type(table).__module__.partition(".")[0])
def test_a_table_of_any_library_is_read(table):
    report = evaluate(table, faithfulness(OfflineJudge()), progress=False)
    assert read(report) == [("Где?", "Там.", ["Там."]), ("Как?", None, None)]
    assert report.rows[0].scores["faithfulness"].value == 1


class Polars:
    """Table with the methods of one of polars."""

    columns = ("question", "answer")

    def to_dict(self, *, as_series=True):
        raise AssertionError("gives columns")

    def to_dicts(self):
        return [{"question": "Где?", "answer": "Там."}]


class Lazy:
    columns = ("question",)

    def collect(self):
        raise AssertionError("the user decides when the query runs")


class Split(list):
    column_names = ("question",)


def test_the_rows_of_polars_are_read_without_polars():
    fields = {"answer": "answer", "references": "answer"}
    (row,) = evaluate(Polars(), string_presence(), fields=fields, progress=False).rows
    assert row.sample.references == ["Там."]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (Lazy(), "samples must be in memory, got Lazy: pass samples.collect()"),
        (
            {"train": Split(), "test": Split()},
            "samples must be one data set, got ['train', 'test']: pass one, as in samples['train']",
        ),
    ],
)
def test_what_is_no_table_yet_is_refused_with_the_way_to_one(samples, message):
    assert str(error_of(ConfigError, evaluate, samples, string_presence(), progress=False)) == message


@pytest.mark.parametrize(("first", "count"), [({}, 2), (Sample(question="Кто?"), 3)])
def test_records_of_one_chunk_each_are_joined_unless_samples_are_among_them(first, count):
    chunks = [{"question": "Где?", "answer": "Там.", "contexts": [text]} for text in ("a", "b")]
    given = [first or {"question": "Кто?"}, *chunks]
    report = evaluate(given, faithfulness(OfflineJudge()), progress=False)
    contexts = [row.sample.contexts for row in report.rows]
    assert contexts == [None, *([["a", "b"]] if count == 2 else [["a"], ["b"]])]


def compared_with(*texts, kind="criterion", about="against", last=True):
    """Return rows of which each names the text that the metric `m` compared its chunks with, by one text for a row."""
    other = Finding(kind="context", number=1, text="c", verdict="supported")
    rows = []
    for place, text in enumerate(texts):
        choice = Finding(kind=kind, number=1, text=about, verdict=text)
        findings = [other, choice] if last else [choice, other]
        score = Score(metric="m", aspect="retrieval", value=1.0, findings=findings)
        rows.append(Row(index=place, sample=Sample(question="?"), scores={"m": score}))
    return rows


def test_a_metric_that_compared_chunks_with_several_texts_is_noted(caplog):
    def noted(rows):
        measures = MixedMeasures()
        for row in rows:
            measures.add(row)
        caplog.clear()
        measures.warn()
        assert caplog.messages == list(map(str, measures.notes()))
        return list(measures.notes())

    counts = [Note("against-reference", count=3), Note("against-answer", count=1)]
    mixed = ("reference", "answer", "reference", "reference")
    assert noted(compared_with(*mixed)) == [Note("mixed-measures", metric="m", counts=counts)]
    for texts in (("answer", "answer"), ("answer", "unknown")):
        assert noted(compared_with(*texts)) == []
    for other in ({"kind": "statement"}, {"about": "other"}, {"last": False}):
        assert noted(compared_with(*mixed, **other)) == []


# Ids that never meet are refused; a generated set is scored whatever the splitter of the retriever


TEXT = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе."


def sample(number, found=("d1", "d2"), relevant=("x1",), **fields):
    return Sample(question=f"Вопрос {number}?", context_ids=list(found), reference_context_ids=list(relevant), **fields)


def mean(samples, metric):
    return evaluate(samples, metric, progress=False).summary()[metric.name].mean


def problem(samples, metric=None):
    with pytest.raises(ConfigError) as caught:
        evaluate(samples, metric or recall_at(3), progress=False)
    return str(caught.value)


def test_ids_that_never_meet_in_three_samples_are_refused_before_a_call_and_noted_of_an_iterator(tmp_path):
    given, path = [sample(n) for n in range(3)], tmp_path / "samples.jsonl"
    path.write_text("\n".join(one.model_dump_json() for one in given), encoding="utf-8")
    told = (
        "recall@3 compares ids that never meet: no retrieved id, such as 'd1', is among the reference ids, such as "
        "'x1', of any of the 3 samples: give both from one index, or compare reference_contexts with span_grader(), "
        "or --grader spans"
    )
    assert problem(given) == problem(str(path)) == problem(str(path), [recall_at(3), exact_match()]) == told
    assert evaluate(iter(given), recall_at(3, id_grader()), progress=False).notes == [f"{told}."]


def test_one_sample_is_enough_if_a_retrieved_text_is_that_of_a_reference():
    given = sample(1, contexts=["Другое.", TEXT[5:]], reference_contexts=[TEXT])
    assert problem([given], hit_rate_at(2)) == (
        "hit_rate@2 compares ids that never meet: no retrieved id, such as 'd1', is among the reference ids, such as "
        "'x1', of the sample, although texts agree: compare the texts with span_grader(), or --grader spans"
    )
    assert mean([given], hit_rate_at(2, span_grader())) == 1.0


SHEETS = [f"Полис {n} стоит {n}0 рублей в год и действует в пределах области {n}." for n in range(4)]


@each(
    "given",
    [
        [sample(n, contexts=["Про погоду.", "Про слонов."], reference_contexts=[TEXT]) for n in range(10)],
        [sample(n, contexts=[SHEETS[n + 1], "Другое."], reference_contexts=[SHEETS[n]]) for n in range(3)],
        [sample(1), sample(2)],
        [sample(1), sample(2, found=["d9"], relevant=["d1"]), sample(3)],
        [sample(1, relevant=["d9"]), sample(2, found=["d9"]), sample(3)],
    ],
    ids=["texts differ", "words of the right chunks", "too few samples", "an id of another", "a reference of another"],
)
def test_a_retriever_that_finds_nothing_right_scores_zero(given):
    assert mean(given, recall_at(3)) == 0.0


@pytest.mark.parametrize("fields", [{"found": []}, {"relevant": []}])
def test_samples_without_ids_are_no_evidence(fields):
    without = [sample(n, **fields) for n in range(5)]
    evaluate(without, recall_at(3), progress=False)
    assert "of any of the 3 samples" in problem([*without, *(sample(n) for n in range(7, 10))])


def test_labels_that_never_meet_the_ids_are_refused_too():
    labelled = [Sample(question=f"{n}?", context_ids=["a"], relevance={"b": 1.0, "a": 0.0}) for n in range(3)]
    assert problem(labelled, ndcg_at(3, label_grader())).startswith(
        "ndcg@3 compares ids that never meet: no retrieved id, such as 'a', is among the reference ids, such as 'b'"
    )


def test_a_retriever_with_its_own_ids_and_splitter_is_scored_as_by_hand():
    documents = corpus("ru_wiki")
    testset = TestsetGenerator(
        Writer().model, embeddings=HashingEmbeddings(), distribution={"simple": 1}, dedupe=None, progress=False
    ).generate(documents, size=12, seed=5)
    splitter = RecursiveCharacterTextSplitter(chunk_size=300, chunk_overlap=50, add_start_index=True)
    store = InMemoryVectorStore(HashingEmbeddings())
    chunks = splitter.split_documents(documents)
    store.add_documents(chunks, ids=[f"mine-{n}" for n in range(len(chunks))])
    samples = testset.run(store.as_retriever(search_kwargs={"k": 4}), progress=False)
    assert all(name.startswith("mine-") for name in samples[0].context_ids)

    places = {chunk.page_content: chunk for chunk in chunks}
    texts = {document.metadata["source"]: document.page_content for document in documents}

    def holds(text, row):
        chunk, (source, start, end) = places[text], row.spans[0]
        begin = chunk.metadata["start_index"]
        assert texts[chunk.metadata["source"]][begin : begin + len(text)] == text
        shared = min(begin + len(text), end) - max(begin, start)
        return chunk.metadata["source"] == source and shared >= 0.5 * min(len(text), end - start)

    by_hand = [any(holds(text, row) for text in s.contexts) for s, row in zip(samples, testset, strict=True)]
    assert sum(by_hand) > 0
    assert mean(samples, recall_at(4, span_grader())) == pytest.approx(sum(by_hand) / len(by_hand))


def test_a_reranker_that_drops_every_relevant_chunk_scores_zero():
    dropped = [sample(n, relevant=[f"x{n}"], retrieved_ids=["d1", "d2", f"x{n}"]) for n in range(3)]
    assert mean(dropped, recall_at(3)) == 0.0
    assert mean(dropped, recall_at(3, of="retrieved")) == 1.0
    assert "'d7'" in problem([sample(n, retrieved_ids=["d7"]) for n in range(3)])


@each(("place", "is_compared"), [(0, True), (49, True), (50, False)])
def test_the_texts_of_the_first_fifty_samples_are_compared(place, is_compared):
    same = {"contexts": [TEXT, "Другое."], "reference_contexts": [TEXT]}
    other = {"contexts": ["Про погоду.", "Другое."], "reference_contexts": [TEXT]}
    given = [sample(n, **(same if n == place else other)) for n in range(51)]
    if is_compared:
        assert "of any of the 51 samples, although texts agree" in problem(given)
    else:
        assert mean(given, recall_at(3)) == 0.0


# Requests that exceed the known context window of their model


SHORT = {"id": "short", "question": "What?", "answer": "It is 5.", "contexts": ["It is 5."], "references": ["5"]}
LONG = {**SHORT, "id": "long", "contexts": ["It is 5 and fine. " * 1_000]}


class Windowed(OfflineJudge):
    """An offline judge with a known context window."""

    window: int

    def __init__(self, window):
        super().__init__(window=window, profile={"max_input_tokens": window})


def test_a_request_that_does_not_fit_is_reported_before_the_first_call():
    model = scripted()  # without replies: a call would fail
    model.profile = {"max_input_tokens": 4096}
    with pytest.warns(UserWarning, match="context window") as caught:
        report = evaluate([SHORT, LONG], [exact_match(), faithfulness(model)], progress=False)
    (warning,) = caught
    assert str(warning.message) == (
        "faithfulness: a request about sample 'long' has about 6,794 tokens, more than the context window of "
        f"4,096 tokens of {Judge(model).identity}: use Judge(model, max_context_tokens=...), "
        'layout="contexts_first" or a model with a larger window'
    )
    assert len(report.failures()) > 0


async def test_requests_that_fit_or_whose_window_is_unknown_and_other_sources_than_lists_are_not_reported():
    for judge in (Windowed(100_000), OfflineJudge(), Judge(Windowed(4_096), max_context_tokens=500)):
        assert evaluate([SHORT, LONG], faithfulness(judge), progress=False).failures() == []
    assert len(evaluate(iter([LONG]), faithfulness(Windowed(4_096)), progress=False).rows) == 1
    with pytest.warns(UserWarning, match="more than the context window of 4,096 tokens"):
        await aevaluate([LONG], faithfulness(Windowed(4_096)), progress=False)


def test_the_window_is_that_of_the_profile_or_of_num_ctx_and_the_smallest_of_several():
    openai = ChatOpenAI(api_key="x", model="m", profile={"max_input_tokens": 8_192})
    assert context_window(openai) == context_window(openai.bind(top_p=0.5).with_retry()) == 8_192
    assert context_window(openai.bind(num_ctx=4_096)) == 4_096
    assert context_window(Windowed(2_048).with_fallbacks([openai])) == 2_048
    assert context_window(RunnableLambda(str)) is None
    assert context_window(scripted()) is None


def test_russian_text_is_estimated_at_more_tokens_than_english():
    assert estimated_tokens("abcd" * 100) == 100
    assert estimated_tokens("абвг" * 100, "abcd") == 161


def test_a_request_as_long_as_the_window_fits_and_a_longer_one_does_not():
    given = [{**LONG, "contexts": ["It is 5."]}]
    with pytest.warns(UserWarning, match="context window") as caught:
        evaluate(given, faithfulness(Windowed(100)), progress=False)
    assert caught[0].filename == __file__
    tokens = int(re.search(r"about ([\d,]+) tokens", str(caught[0].message))[1].replace(",", ""))
    evaluate(given, faithfulness(Windowed(tokens)), progress=False)
    with pytest.warns(UserWarning, match=f"about {tokens:,} tokens, more than the context window of {tokens - 1:,}"):
        evaluate(given, faithfulness(Windowed(tokens - 1)), progress=False)


@each(("window", "expected"), [(1, 1), (0, None), (-1, None), (8192, 8192)])
def test_a_window_is_a_whole_number_of_at_least_one(window, expected):
    assert context_window(OfflineJudge().bind(num_ctx=window)) == expected
    assert context_window(OfflineJudge(profile={"max_input_tokens": window})) == expected


def test_a_dry_run_replies_with_the_tokens_that_were_read_and_written():
    prompt = ChatPromptTemplate([("human", "{question}")])
    one, two = prompt | OfflineJudge(), prompt | OfflineJudge().with_fallbacks([OfflineJudge()])
    for chain, count in ((one, 1), (two, 2), (RunnableLambda(str), 1)):
        given = {"question": "a" * 393}  # with "Human: ", 400 characters
        replies = local_reply(Invoke(chain, given))
        read = len(str(given)) // 4 if count == 1 and chain is not one else 100
        usage = {"input_tokens": read, "output_tokens": 0, "total_tokens": read}
        assert [(reply.text, reply.usage_metadata) for reply in replies] == [("", usage)] * count
    given = HumanMessage(json.dumps({"q": "a" * 31}))
    reply = local_reply(Call(OfflineJudge(), [given], offline=lambda _: {"b": "ц" * 31}))
    assert reply.text == '{"b": "' + "ц" * 31 + '"}'
    assert reply.usage_metadata == {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    assert local_reply(Rate(PairScores(lambda *_: 1.0), [("a", "b")] * 3)) == [0.5] * 3


# Options: one declaration, one set of default values, one check of names and values


DECLARED = [
    (CallOptions, CALL_DEFAULTS),
    (RunOptions, RUN_DEFAULTS),
    (StreamOptions, STREAM_DEFAULTS),
    (EvaluateOptions, EVALUATE_DEFAULTS),
]
NAMES = "max_concurrency, timeout, retry, price, journal, budget, progress, on_failure, callbacks, strict, fields"


def test_each_option_is_described_once():
    docs = [inspect.getdoc(declared).partition("Attributes:")[2] for declared, _ in DECLARED]
    assert re.findall(r"^    (\w+): ", "\n".join(docs), re.MULTILINE) == list(get_type_hints(EvaluateOptions))


@each(("declared", "defaults"), DECLARED)
def test_each_option_has_a_default_value(declared, defaults):
    assert list(defaults) == list(get_type_hints(declared))


@each(
    ("function", "defaults"),
    [(evaluate, EVALUATE_DEFAULTS), (qualify_judge, CALL_DEFAULTS), (TestsetGenerator, RUN_DEFAULTS),
     (RagEvalCallback, {"max_concurrency": 4, "timeout": 60.0})],
)  # fmt: skip
def test_the_docstring_lists_each_option_with_its_default(function, defaults):
    listed = dict(re.findall(r"`(\w+)=([^`]+)`", inspect.getdoc(function)))
    assert listed == {name: repr(value).replace("'", '"') for name, value in defaults.items()}


EVALUATED = f"samples, metrics, {NAMES}, out, until, audit, batch, canaries"
STREAMED = f"samples, metrics, {NAMES}"


@each(
    ("function", "given", "option", "more"),
    [
        (evaluate, (None, None), "max_concurency", f"; did you mean 'max_concurrency'? Its options: {EVALUATED}"),
        (astream_evaluate, (None, None), "zzz", f". Its options: {STREAMED}"),
        (qualify_judge, (OfflineJudge(),), "timout", "; did you mean 'timeout'"),
        (RagEvalCallback, (faithfulness(OfflineJudge()),), "sample_rte", "; did you mean 'sample_rate'"),
        (TestsetGenerator, (OfflineJudge(), None, HashingEmbeddings()), "timout", "; did you mean 'timeout'"),
    ],
)
def test_a_misspelled_option_raises_before_anything_is_read(function, given, option, more):
    with pytest.raises(TypeError) as caught:
        function(*given, **{option: 5})
    message = f"{function.__name__}() got an unexpected option {option!r}{more}"
    assert str(caught.value).startswith(message)
    assert "Its options" not in more or str(caught.value) == message


@each(
    ("options", "message"),
    [
        ({"callbacks": BaseCallbackHandler()}, "callbacks must be a list of handlers, got BaseCallbackHandler"),
        ({"until": 0.8}, "until must be Decided(...) or Precise(...), got float"),
        ({"audit": OfflineJudge()}, "audit must be Audit(judge, share=0.1), got OfflineJudge"),
        ({"batch": True}, "batch must be Batch(), got bool"),
        ({"canaries": "yes"}, "canaries must be True, False or None, got 'yes'"),
        ({"strict": 1}, "strict must be True or False, got 1"),
        ({"out": 5}, "out must be the path of a file, got int"),
    ],
)
def test_an_option_of_another_kind_is_refused(options, message):
    error = error_of(ConfigError, evaluate, [SAMPLE], faithfulness(OfflineJudge()), **{"progress": False, **options})
    assert str(error) == message


def test_a_run_has_the_default_values_of_missing_options():
    run = build_run({})
    assert (run.governor.limiter.limit, run.timeout, run.retry) == (16, 60.0, RetryPolicy())
