/* Order of the search results: pages of jobs first, then reference, examples and history.

   Sphinx finds only pages that have every word of a question. Here a page scores for each word that it has, more for a rare one,
   and for the words with which people look for it. */
"use strict";

const KEYWORDS = {
  "tutorials/first-steps": "file csv excel json table columns install installation start demo score resume crash journal setup begin beginner quickstart tutorial clone pip spreadsheet sheet xlsx parquet import upload format fields question ground truth column names name heading headings encoding continue interrupted killed stopped",
  "how-to/run-your-chain": "chain agent agents langgraph graph lcel retriever questions ask application app rag pipeline endpoint api http rest call bot llamaindex haystack answer collect function object callable",
  "how-to/conversations": "chat chats history conversation conversations turns turn multi messages thread chatbot bot dialogue dialog message assistant memory followup session whatsapp telegram",
  "how-to/compare-runs": "compare two runs prompts versions better worse difference ab comparison improved improvement improve change real chance regress deploy which prompt version embedding before after sample size",
  "how-to/ci-gate": "ci github gitlab actions merge pull request gate threshold baseline regression build fail failing pipeline block release deploy comment pr branch jenkins stop bad merging exit code allow",
  "how-to/gigachat": "gigachat certificate scope credentials sber сбер token ssl proxy corporate yandexgpt yandex key oauth russian 401 unauthorized company server",
  "how-to/vllm": "vllm llama llamacpp ollama local open model server sglang self hosted own gpu lmstudio litellm openai anthropic claude azure mistral qwen weak small laptop internet private endpoint probe yandexgpt connection refused port localhost gpt",
  "how-to/production": "production monitor monitoring online live callback fastapi streaming sampling server users log logs traffic service latency real django flask web async alert sample watch",
  "how-to/test-set": "generate test set questions synthetic documents testset dataset create make generation generator golden pdf word docx html invent goldens",
  "how-to/qualify-a-judge": "judge good trust human own labelled items labels label people agreement kappa qualify reliable believe wrong annotate annotation annotators annotator accuracy evaluate evaluator grader correct trustworthy calibrate calibration krippendorff gold versus check says error errors mistake mistakes",
  "how-to/keep-a-test-set-alive": "review refresh update user users adopt edit extend diff merge change changed old outdated stale reviewer approve logs tickets support version versions save remove delete check colleague colleagues expert experts human customers customer",
  "how-to/steer-a-test-set": "persona personas style styles evolution evolutions focus multi hop table numbers harder difficult hard difficulty typo typos topic topics only tone kind kinds types complex reasoning multihop two combine documents single level levels different diverse variety",
  "how-to/rank-on-generated-sets": "ranking ids chunks splitter span chunk chunking size retriever top k embeddings embedding search hybrid",
  "how-to/audit-a-cheap-judge": "audit cheap strong cascade probabilities logprobs cheaper save two judges second gpt compare",
  "how-to/cost-and-budget": "cost price budget tokens money limit spend calls expensive pay paying much rate slow fast faster speed concurrency dollars dollar bill estimate 429 throttle quota cache cheaper usd spent stop timeout timeouts",
  "how-to/evaluate": "python report dataframe pandas unscored failure low zero nan why cause reason result results null notebook jupyter async explain bad worst failed wrong score diagnose diagnosis error sentence sentences evidence html page timeout 401 403 unauthorized forbidden",
  "how-to/rubric": "rubric grade grades leaderboard models criteria stars star scale likert points score criterion rank ranking 5 10 style tone",
  "how-to/chains": "langsmith mlflow guard route langgraph lcel runnable node guardrail block answer hallucinated experiment tracking dataset databricks hallucinations",
  "how-to/ray": "ray cluster workers parallel distributed scale million large big",
  "how-to/arrow": "spark dask duckdb arrow pandas pyspark polars parquet warehouse sql large big",
  "how-to/pytest": "pytest test tests unit scripted assert fixture unittest mock",
  "how-to/own-metric": "own custom metric function write define add new length regex business rule step",
  "how-to/own-language": "language prompt translate german own prompts chinese french spanish korean italian translation edit wording change instruction",
  "how-to/migrating": "ragas deepeval migrate migration trulens switch move replace difference langfuse openevals compare phoenix coming instead",
  "how-to/stop-early": "stop early sequential enough fewer less many few",
  "how-to/batch": "batch half offline cluster airgapped night airgap internet without network file overnight discount api apis save",
  "how-to/dashboards": "grafana prometheus langfuse dashboard opentelemetry chart charts export trace traces tracing phoenix datadog otel",
  "how-to/trend": "trend drift alarm time week alert drop drops degrade quality over changed history falling graph weekly daily night nightly",
  "reference/metrics": "metrics metric choose choosing which groundedness faithfulness hallucination formula recall precision relevance list available hallucinate hallucinated hallucinations correctness similarity f1 score meaning definition formulas what measure measures match source sources support supported ground truth reference should correct compare detect groundtruth",
  "reference/edge-cases": "empty blank refusal missing none no answer know refuse null skipped says knows unanswerable string does",
  "reference/ranking-metrics": "ndcg mrr map ranking recall trec reranker rerank retriever retrieval search rank hit rate order",
  "reference/claim-metrics": "claim claims ragchecker hallucination hallucinated hallucinations fact facts fine grained",
  "explanation/intervals": "interval intervals confidence significance significant statistics sure error bars uncertainty p value noise many enough size bootstrap variance",
  "explanation/how-a-judge-is-asked": "prompt prompts json schema mode repair structured output invalid parse broken injection reply instruction",
  "explanation/provenance": "reproducible hash version instrument configuration same result deterministic seed reproduce",
  "project/versions": "version versions security telemetry dependencies deprecated upgrade privacy data sent leak supported python stable breaking license anywhere send confidential",
  "ru/first-steps": "файл таблица начало установка",
  "ru/ci": "проверка ci",
};
const LATER = [[/^project\/changelog/, 0.3], [/^reference\/cli/, 0.6], [/^reference\/api/, 0.5], [/notebooks/, 0.6]];
const COMMON = ["use", "need", "want", "get", "take", "let", "tell", "put", "should", "say", "one", "my", "without", "sever", "someth", "work", "have"]; // stems of words that
// any question may have
const KEYWORD = 16;
const MOST = 15; // of one word

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 4,
  partialTerm: 1,
};

const searchEveryWord = Search._performSearch;

Search._performSearch = (query, terms, excluded, highlighted, objectTerms) => {
  const { docnames, titles, filenames } = Search._index;
  const stemmer = new Stemmer();
  const keywords = docnames.map((page) => (KEYWORDS[page] || "").split(" ").map((word) => stemmer.stemWord(word)));
  const sums = new Map();
  const best = new Map();
  for (const term of [...terms].filter((word) => !COMMON.includes(word))) {
    const own = new Map();
    const objects = new Set([...objectTerms].filter((word) => stemmer.stemWord(word) === term));
    for (const item of searchEveryWord(term, new Set([term]), excluded, highlighted, objects)) {
      if (item[4] > (own.get(item[0]) || 0)) own.set(item[0], Math.min(item[4], MOST));
      if (!best.has(item[0]) || item[4] > best.get(item[0])[4]) best.set(item[0], item);
    }
    docnames.forEach((page, place) => {
      if (!keywords[place].includes(term)) return;
      own.set(page, (own.get(page) || 0) + KEYWORD);
      if (!best.has(page)) best.set(page, [page, titles[place], "", null, 0, filenames[place], "title"]);
    });
    const rarity = Math.log(1 + docnames.length / Math.max(1, own.size));
    own.forEach((points, page) => sums.set(page, (sums.get(page) || 0) + points * rarity));
  }
  const results = [...sums].map(([page, points]) => {
    const share = LATER.reduce((product, [pattern, own]) => (pattern.test(page) ? product * own : product), 1);
    const item = [...best.get(page)];
    item[4] = points * share;
    return item;
  });
  return results.sort((one, other) => one[4] - other[4]);
};
