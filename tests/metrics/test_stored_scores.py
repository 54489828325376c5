"""What every metric tells about small samples in English and Russian, scored offline and compared whole."""

from helpers.each import each
from helpers.labelled import dialogues, whole
from helpers.offline import METRICS, RICH
from helpers.samples import REFUSAL, SAMPLE
from helpers.stored import assert_stored, told

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Sample,
    answer_correctness,
    aspect_critique,
    citations,
    claim_metrics,
    conversation_metrics,
    embedding_grader,
    evaluate,
    exact_match,
    hit_rate_at,
    id_grader,
    label_grader,
    llm_grader,
    map_at,
    mean_grade_at,
    mrr_at,
    ndcg_at,
    precision_at,
    recall_at,
    rouge,
    rubric,
    string_presence,
    suite,
)
from langchain_rageval.metrics import ASPECTS

JUDGE = OfflineJudge()
RANKINGS = (hit_rate_at, map_at, mean_grade_at, mrr_at, ndcg_at, precision_at, recall_at)
IDS = {"context_ids": ["d1", "d2"], "reference_context_ids": ["d1", "d7"], "relevance": {"d1": 2.0, "d7": 1.0}}
BARE = Sample(**SAMPLE)
REFUSED = Sample(**REFUSAL, references=["Munich was founded in 1158."])
EMPTY = Sample(question="Why?", answer="", contexts=[], references=["It is so."])
LONG = RICH[0].model_copy(update={"answer": " ".join(f"Munich has {n} bridges." for n in range(9))})
MARKED = [
    RICH[0].model_copy(update={"answer": "Munich was founded in 1158 [1]. It lies in Asia [2][9]. It is old. [3]"}),
    RICH[1].model_copy(update={"answer": "Страховка бани покрывает пожар [1]. Кража в полис входит [2]."}),
]
SAMPLES = [*RICH, LONG, REFUSED, EMPTY, BARE]


def stored(name, samples, metrics):
    report = evaluate(samples, metrics, progress=False, strict=False)
    assert_stored(name, "\n".join(f"# {row.index}\n{told(row.scores.values())}" for row in report.rows))
    assert_counted_again(report, metrics)


def assert_counted_again(report, metrics):
    """Rescore a report, but not the F score, whose findings are those of the best of several references."""
    for part in suite(*metrics).metrics:
        if part.name != "answer_correctness":
            assert report.rescore(part).rows == report.rows, part.name


@each("name", METRICS)
def test_a_metric_tells_what_is_stored_and_again_from_its_findings(name):
    stored(f"scores_{name.replace('@', '_')}.txt", SAMPLES, [METRICS[name](JUDGE)])
    voted = METRICS[name](Judge(JUDGE, draws=3))
    assert_counted_again(evaluate(RICH[:1], voted, progress=False), [voted])


def test_the_metrics_of_several_scores_tell_what_is_stored():
    stored("scores_of_claims.txt", SAMPLES, [claim_metrics(JUDGE)])
    stored("scores_of_citations.txt", [*MARKED, BARE], [citations(JUDGE), citations(JUDGE, required=True, name="must")])
    talks = [whole(one) for one in (*dialogues()[:3], *dialogues()[-3:])]
    stored("scores_of_conversations.txt", talks, [conversation_metrics(JUDGE)])


def test_options_change_what_is_stored():
    critiques = [aspect_critique(JUDGE, aspect) for aspect in ASPECTS]
    expected = aspect_critique(JUDGE, "coherence", expected=True, name="expected")
    other = [exact_match(), rouge(), string_presence(), rubric(JUDGE)]
    weighed = answer_correctness(JUDGE, HashingEmbeddings(), weights=(0.5, 0.5), beta=2.0)
    stored("scores_with_options.txt", SAMPLES, [*critiques, expected, *other, weighed])


def test_rankings_tell_what_is_stored():
    known = [sample.model_copy(update=IDS) for sample in (BARE, RICH[1])]
    graders = {"id": id_grader(), "label": label_grader(), "vector": embedding_grader(HashingEmbeddings())}
    graders |= {"judge": llm_grader(JUDGE), "one by one": llm_grader(JUDGE, scale=(1, 3), pointwise=True)}
    for name, grader in graders.items():
        metrics = [build(2, grader) for build in RANKINGS if (build, name) != (mean_grade_at, "id")]
        stored(f"scores_of_rankings_by_{name.replace(' ', '_')}.txt", known, metrics)
