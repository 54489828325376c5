"""Judge RAG systems in their own language, with the model you can afford.

Metrics are LangChain Runnables: pipe them into chains, hand them to `evaluate`, LangSmith or LangGraph. Public names
load when they are used; importing this package reads no environment and opens no connection.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_rageval._version import __version__

if TYPE_CHECKING:
    from langchain_rageval.callbacks.callback import RagEvalCallback as RagEvalCallback
    from langchain_rageval.criteria import Criterion as Criterion
    from langchain_rageval.errors import BelowThreshold as BelowThreshold
    from langchain_rageval.errors import BudgetExceeded as BudgetExceeded
    from langchain_rageval.errors import ConfigError as ConfigError
    from langchain_rageval.errors import JournalError as JournalError
    from langchain_rageval.errors import JudgeOutputError as JudgeOutputError
    from langchain_rageval.errors import ModelOutputError as ModelOutputError
    from langchain_rageval.errors import RagevalError as RagevalError
    from langchain_rageval.errors import SampleError as SampleError
    from langchain_rageval.evaluation import aevaluate as aevaluate
    from langchain_rageval.evaluation import astream_evaluate as astream_evaluate
    from langchain_rageval.evaluation import evaluate as evaluate
    from langchain_rageval.graders.cross_encoder_grader import cross_encoder_grader as cross_encoder_grader
    from langchain_rageval.graders.embedding_grader import embedding_grader as embedding_grader
    from langchain_rageval.graders.grader import Grader as Grader
    from langchain_rageval.graders.id_grader import id_grader as id_grader
    from langchain_rageval.graders.label_grader import label_grader as label_grader
    from langchain_rageval.graders.llm_grader import llm_grader as llm_grader
    from langchain_rageval.integrations.langsmith import summary_evaluator as summary_evaluator
    from langchain_rageval.judge.judge import Judge as Judge
    from langchain_rageval.judge.jury import jury as jury
    from langchain_rageval.judge.parser import StrictJsonOutputParser as StrictJsonOutputParser
    from langchain_rageval.loading import load_samples as load_samples
    from langchain_rageval.metrics.abstention import abstention as abstention
    from langchain_rageval.metrics.answer_correctness import answer_correctness as answer_correctness
    from langchain_rageval.metrics.answer_relevance import answer_relevance as answer_relevance
    from langchain_rageval.metrics.answer_similarity import answer_similarity as answer_similarity
    from langchain_rageval.metrics.aspect_critique import aspect_critique as aspect_critique
    from langchain_rageval.metrics.bleu import bleu as bleu
    from langchain_rageval.metrics.chrf import chrf as chrf
    from langchain_rageval.metrics.claim_metrics import claim_metrics as claim_metrics
    from langchain_rageval.metrics.context_entity_recall import context_entity_recall as context_entity_recall
    from langchain_rageval.metrics.context_precision import context_precision as context_precision
    from langchain_rageval.metrics.context_recall import context_recall as context_recall
    from langchain_rageval.metrics.context_relevance import context_relevance as context_relevance
    from langchain_rageval.metrics.exact_match import exact_match as exact_match
    from langchain_rageval.metrics.faithfulness import faithfulness as faithfulness
    from langchain_rageval.metrics.hit_rate_at import hit_rate_at as hit_rate_at
    from langchain_rageval.metrics.map_at import map_at as map_at
    from langchain_rageval.metrics.mean_grade_at import mean_grade_at as mean_grade_at
    from langchain_rageval.metrics.metric import Metric as Metric
    from langchain_rageval.metrics.mrr_at import mrr_at as mrr_at
    from langchain_rageval.metrics.ndcg_at import ndcg_at as ndcg_at
    from langchain_rageval.metrics.noise_sensitivity import noise_sensitivity as noise_sensitivity
    from langchain_rageval.metrics.precision_at import precision_at as precision_at
    from langchain_rageval.metrics.recall_at import recall_at as recall_at
    from langchain_rageval.metrics.rerank_gain import rerank_gain as rerank_gain
    from langchain_rageval.metrics.rouge import rouge as rouge
    from langchain_rageval.metrics.rubric import rubric as rubric
    from langchain_rageval.metrics.string_presence import string_presence as string_presence
    from langchain_rageval.metrics.suite import suite as suite
    from langchain_rageval.metrics.value import Value as Value
    from langchain_rageval.models import load_embeddings as load_embeddings
    from langchain_rageval.models import load_judge as load_judge
    from langchain_rageval.offline import HashingEmbeddings as HashingEmbeddings
    from langchain_rageval.offline import OfflineJudge as OfflineJudge
    from langchain_rageval.planning import Plan as Plan
    from langchain_rageval.planning import PlannedMetric as PlannedMetric
    from langchain_rageval.planning import plan as plan
    from langchain_rageval.prompts.promptset import Prompt as Prompt
    from langchain_rageval.prompts.promptset import PromptSet as PromptSet
    from langchain_rageval.report.comparison import Comparison as Comparison
    from langchain_rageval.report.comparison import MetricComparison as MetricComparison
    from langchain_rageval.report.diagnosis import Diagnosis as Diagnosis
    from langchain_rageval.report.labelling import LabelSheet as LabelSheet
    from langchain_rageval.report.labelling import load_labels as load_labels
    from langchain_rageval.report.report import Report as Report
    from langchain_rageval.run.budget import Budget as Budget
    from langchain_rageval.run.retry import RetryPolicy as RetryPolicy
    from langchain_rageval.run.run import Run as Run
    from langchain_rageval.schema import Failure as Failure
    from langchain_rageval.schema import Finding as Finding
    from langchain_rageval.schema import Row as Row
    from langchain_rageval.schema import Sample as Sample
    from langchain_rageval.schema import Score as Score
    from langchain_rageval.schema import Usage as Usage
    from langchain_rageval.sentences import split_sentences as split_sentences
    from langchain_rageval.sinks.jsonl import JsonlSink as JsonlSink
    from langchain_rageval.sinks.langsmith import LangSmithSink as LangSmithSink
    from langchain_rageval.sinks.logs import LoggingSink as LoggingSink
    from langchain_rageval.sinks.opentelemetry import OpenTelemetrySink as OpenTelemetrySink
    from langchain_rageval.sinks.sqlite import SqliteSink as SqliteSink
    from langchain_rageval.statistics.agreement import Estimate as Estimate
    from langchain_rageval.steps.step import Step as Step
    from langchain_rageval.steps.verify_by_nli import NliVerifier as NliVerifier
    from langchain_rageval.testset.answer_unaided import closed_book_filter as closed_book_filter
    from langchain_rageval.testset.candidate import Candidate as Candidate
    from langchain_rageval.testset.candidate import Trial as Trial
    from langchain_rageval.testset.compare_questions import evolution_filter as evolution_filter
    from langchain_rageval.testset.docstore import Docstore as Docstore
    from langchain_rageval.testset.evolutions import Evolution as Evolution
    from langchain_rageval.testset.generator import TestsetGenerator as TestsetGenerator
    from langchain_rageval.testset.grade_passage import passage_filter as passage_filter
    from langchain_rageval.testset.needed_passages import find_passages as find_passages
    from langchain_rageval.testset.passage import Passage as Passage
    from langchain_rageval.testset.readers import load_documents as load_documents
    from langchain_rageval.testset.review_question import question_filter as question_filter
    from langchain_rageval.testset.rows import Testset as Testset
    from langchain_rageval.testset.rows import TestsetRow as TestsetRow
    from langchain_rageval.testset.write_question import seed_question as seed_question
    from langchain_rageval.translation import translate_prompts as translate_prompts
    from langchain_rageval.trust.agreement import Agreement as Agreement
    from langchain_rageval.trust.agreement import agreement as agreement
    from langchain_rageval.trust.answer_sheets import answer_sheets as answer_sheets
    from langchain_rageval.trust.calibration import Calibration as Calibration
    from langchain_rageval.trust.calibration import calibrate as calibrate
    from langchain_rageval.trust.degrading import degrade as degrade
    from langchain_rageval.trust.leaderboard import Leaderboard as Leaderboard
    from langchain_rageval.trust.leaderboard import Standing as Standing
    from langchain_rageval.trust.leaderboard import leaderboard as leaderboard
    from langchain_rageval.trust.pairwise import PairwiseAgreement as PairwiseAgreement
    from langchain_rageval.trust.pairwise import pairwise_agreement as pairwise_agreement
    from langchain_rageval.trust.qualification import Qualification as Qualification
    from langchain_rageval.trust.qualify import qualify_judge as qualify_judge
    from langchain_rageval.trust.rubric_study import RubricStudy as RubricStudy
    from langchain_rageval.trust.rubric_study import StudyRow as StudyRow
    from langchain_rageval.trust.rubric_study import rubric_study as rubric_study

_HOMES = {
    "callbacks.callback": ("RagEvalCallback",),
    "criteria": ("Criterion",),
    "errors": (
        "BelowThreshold",
        "BudgetExceeded",
        "ConfigError",
        "JournalError",
        "JudgeOutputError",
        "ModelOutputError",
        "RagevalError",
        "SampleError",
    ),
    "evaluation": ("aevaluate", "astream_evaluate", "evaluate"),
    "graders.cross_encoder_grader": ("cross_encoder_grader",),
    "graders.embedding_grader": ("embedding_grader",),
    "graders.grader": ("Grader",),
    "graders.id_grader": ("id_grader",),
    "graders.label_grader": ("label_grader",),
    "graders.llm_grader": ("llm_grader",),
    "integrations.langsmith": ("summary_evaluator",),
    "judge.judge": ("Judge",),
    "judge.jury": ("jury",),
    "judge.parser": ("StrictJsonOutputParser",),
    "loading": ("load_samples",),
    "metrics.abstention": ("abstention",),
    "metrics.answer_correctness": ("answer_correctness",),
    "metrics.answer_relevance": ("answer_relevance",),
    "metrics.answer_similarity": ("answer_similarity",),
    "metrics.aspect_critique": ("aspect_critique",),
    "metrics.bleu": ("bleu",),
    "metrics.chrf": ("chrf",),
    "metrics.claim_metrics": ("claim_metrics",),
    "metrics.context_entity_recall": ("context_entity_recall",),
    "metrics.context_precision": ("context_precision",),
    "metrics.context_recall": ("context_recall",),
    "metrics.context_relevance": ("context_relevance",),
    "metrics.exact_match": ("exact_match",),
    "metrics.faithfulness": ("faithfulness",),
    "metrics.hit_rate_at": ("hit_rate_at",),
    "metrics.map_at": ("map_at",),
    "metrics.mean_grade_at": ("mean_grade_at",),
    "metrics.metric": ("Metric",),
    "metrics.mrr_at": ("mrr_at",),
    "metrics.ndcg_at": ("ndcg_at",),
    "metrics.noise_sensitivity": ("noise_sensitivity",),
    "metrics.precision_at": ("precision_at",),
    "metrics.recall_at": ("recall_at",),
    "metrics.rerank_gain": ("rerank_gain",),
    "metrics.rouge": ("rouge",),
    "metrics.rubric": ("rubric",),
    "metrics.string_presence": ("string_presence",),
    "metrics.suite": ("suite",),
    "metrics.value": ("Value",),
    "models": ("load_embeddings", "load_judge"),
    "offline": ("HashingEmbeddings", "OfflineJudge"),
    "planning": ("Plan", "PlannedMetric", "plan"),
    "prompts.promptset": ("Prompt", "PromptSet"),
    "report.comparison": ("Comparison", "MetricComparison"),
    "report.diagnosis": ("Diagnosis",),
    "report.labelling": ("LabelSheet", "load_labels"),
    "report.report": ("Report",),
    "run.budget": ("Budget",),
    "run.retry": ("RetryPolicy",),
    "run.run": ("Run",),
    "schema": ("Failure", "Finding", "Row", "Sample", "Score", "Usage"),
    "sentences": ("split_sentences",),
    "sinks.jsonl": ("JsonlSink",),
    "sinks.langsmith": ("LangSmithSink",),
    "sinks.logs": ("LoggingSink",),
    "sinks.opentelemetry": ("OpenTelemetrySink",),
    "sinks.sqlite": ("SqliteSink",),
    "statistics.agreement": ("Estimate",),
    "steps.step": ("Step",),
    "steps.verify_by_nli": ("NliVerifier",),
    "testset.answer_unaided": ("closed_book_filter",),
    "testset.candidate": ("Candidate", "Trial"),
    "testset.compare_questions": ("evolution_filter",),
    "testset.docstore": ("Docstore",),
    "testset.evolutions": ("Evolution",),
    "testset.generator": ("TestsetGenerator",),
    "testset.grade_passage": ("passage_filter",),
    "testset.needed_passages": ("find_passages",),
    "testset.passage": ("Passage",),
    "testset.readers": ("load_documents",),
    "testset.review_question": ("question_filter",),
    "testset.rows": ("Testset", "TestsetRow"),
    "testset.write_question": ("seed_question",),
    "translation": ("translate_prompts",),
    "trust.agreement": ("Agreement", "agreement"),
    "trust.answer_sheets": ("answer_sheets",),
    "trust.calibration": ("Calibration", "calibrate"),
    "trust.degrading": ("degrade",),
    "trust.leaderboard": ("Leaderboard", "Standing", "leaderboard"),
    "trust.pairwise": ("PairwiseAgreement", "pairwise_agreement"),
    "trust.qualification": ("Qualification",),
    "trust.qualify": ("qualify_judge",),
    "trust.rubric_study": ("RubricStudy", "StudyRow", "rubric_study"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
