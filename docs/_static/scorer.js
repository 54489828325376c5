/* Order of the search results: pages of jobs first, then reference, examples and history.
   Each page of a job has the words with which people look for it. */
"use strict";

const KEYWORDS = {
  "tutorials/first-steps": "file csv excel json table columns install installation start demo score resume crash journal",
  "how-to/run-your-chain": "chain agent agents langgraph graph lcel retriever questions ask",
  "how-to/conversations": "chat chats history conversation conversations turns turn multi messages thread",
  "how-to/compare-runs": "compare two runs prompts versions better worse difference ab",
  "how-to/ci-gate": "ci github gitlab actions merge pull request gate threshold baseline regression",
  "how-to/gigachat": "gigachat certificate scope credentials sber",
  "how-to/vllm": "vllm llama llamacpp ollama local open model server sglang",
  "how-to/production": "production monitor monitoring online live callback fastapi streaming sampling",
  "how-to/test-set": "generate test set questions synthetic documents testset dataset",
  "how-to/qualify-a-judge": "judge good trust human own labelled items labels label people agreement kappa qualify",
  "how-to/keep-a-test-set-alive": "review refresh update user users adopt edit extend diff merge",
  "how-to/steer-a-test-set": "persona personas style styles evolution evolutions focus multi hop table numbers",
  "how-to/rank-on-generated-sets": "ranking ids chunks splitter span",
  "how-to/audit-a-cheap-judge": "audit cheap strong cascade probabilities logprobs",
  "how-to/cost-and-budget": "cost price budget tokens money limit spend calls",
  "how-to/evaluate": "python report dataframe pandas unscored failure",
  "how-to/rubric": "rubric grade grades leaderboard models criteria",
  "how-to/chains": "langsmith mlflow guard route langgraph",
  "how-to/ray": "ray cluster workers",
  "how-to/arrow": "spark dask duckdb arrow pandas",
  "how-to/pytest": "pytest test tests unit scripted",
  "how-to/own-metric": "own custom metric function",
  "how-to/own-language": "language prompt translate german own prompts",
  "how-to/migrating": "ragas deepeval migrate migration trulens",
  "how-to/stop-early": "stop early sequential",
  "how-to/batch": "batch half offline cluster airgapped",
  "how-to/dashboards": "grafana prometheus langfuse dashboard opentelemetry",
  "how-to/trend": "trend drift alarm time week",
  "reference/metrics": "metrics metric choose choosing which groundedness faithfulness hallucination formula recall precision relevance",
  "reference/edge-cases": "empty blank refusal missing",
  "reference/ranking-metrics": "ndcg mrr map ranking recall trec reranker rerank",
  "reference/claim-metrics": "claim claims ragchecker hallucination",
  "explanation/intervals": "interval intervals confidence significance significant statistics",
  "explanation/how-a-judge-is-asked": "prompt prompts json schema mode repair",
  "explanation/provenance": "reproducible hash version instrument configuration",
  "project/versions": "version versions security telemetry dependencies deprecated",
  "ru/first-steps": "файл таблица начало установка",
  "ru/ci": "проверка ci",
};
const LATER = [[/^project\/changelog/, 20], [/^reference\/cli/, 6], [/^reference\/api/, 3], [/notebooks/, 4]];

var Scorer = {
  score: ([page, , , , score]) => {
    const query = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/[^\p{L}\d]+/u);
    const known = (KEYWORDS[page] || "").split(" ");
    const lost = LATER.filter(([pattern]) => pattern.test(page)).reduce((sum, [, points]) => sum + points, 0);
    return score + 8 * query.filter((word) => word && known.includes(word)).length - lost;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
