/* Order of the search results: pages of jobs first, then reference, examples and history.

   Sphinx finds only pages that have every word of a question. Here a page scores for each word that it has, more for a rare one,
   for the words with which people look for it, for the share of the words that it has, for a heading that has them all, and for the
   language. */
"use strict";

const KEYWORDS = {
  "tutorials/first-steps": "file csv excel json table columns install installation start demo score resume crash journal begin beginner quickstart tutorial clone pip spreadsheet sheet xlsx parquet import upload format fields question ground truth column names name heading headings encoding continue interrupted killed stopped checkpoint delimiter separator utf mapping map rename own data exit code getting started example options preset jsonl",
  "how-to/run-your-chain": "chain agent agents langgraph graph lcel retriever questions ask application app rag pipeline endpoint api http rest call bot answer collect function object callable цепочка агент tool tools invoke context wrap wrapper inputs outputs collected langchain adapter module retrieved documents set contexts rerun failed retry",
  "how-to/conversations": "chat chats history conversation conversations turns turn multi messages thread chatbot bot dialogue dialog message assistant memory followup session whatsapp telegram dialogs multiturn conversational bots chatbots coreference follow pronouns openai role roles",
  "how-to/compare-runs": "compare two runs prompts versions better worse difference ab comparison improved improvement improve change real chance regress deploy which prompt version embedding before after sample size significant significance paired delta detectable minimum regression regressed winner model models b тест сравнение прогонов сравнить",
  "how-to/ci-gate": "ci github gitlab actions merge pull request gate threshold baseline regression build fail failing pipeline block release deploy comment pr branch stop bad merging exit code allow minimum detectable undecided junit markdown summary artifact workflow yaml jenkins teamcity job secret missing fails status check",
  "how-to/gigachat": "gigachat certificate scope credentials sber сбер token ssl corporate yandexgpt yandex key oauth russian 401 unauthorized company server verify verification gigachain минцифры authorization 429 base url auth rate quota requests environment variable gigachat_credentials api keys",
  "how-to/vllm": "vllm llama llamacpp ollama local open model server sglang self hosted own gpu lmstudio litellm openai anthropic claude mistral qwen weak small laptop internet private endpoint probe yandexgpt connection refused port localhost gpt локальная модель сервер яндекс docker base url schema guided json truncated max tokens parse output error timeout tgi custom function wrapper api key keys variable azure embeddings any provider compatible base_url",
  "how-to/production": "production monitor monitoring online live callback fastapi streaming sampling server users log logs traffic service latency real web async alert sample watch overhead thread threads background extract redact pii fork workers gunicorn uvicorn rotate sqlite database save personal data remove percent requests slow app block blocking logging",
  "how-to/test-set": "generate test set questions synthetic documents testset dataset create make generation generator golden pdf html invent goldens rejected reject filter folder few rows qa pairs knowledge base corpus critic writer",
  "how-to/qualify-a-judge": "judge good trust human own labelled items labels label people agreement kappa qualify reliable believe wrong annotate annotation annotators annotator accuracy evaluate evaluator grader correct trustworthy calibrate calibration krippendorff gold versus check says error errors mistake mistakes судья люди разметка согласие каппа доверять надёжность lenient strict biased bias generous harsh benchmark cohen inter rater raters labeling labelling ground truth validate validation meta experts expert sheet accurate position order swap",
  "how-to/keep-a-test-set-alive": "review refresh update user users adopt edit extend diff merge change changed old outdated stale reviewer approve logs tickets support version versions save remove delete check colleague colleagues human customers customer эксперты проверка людьми approval curate curated annotators edited deleted real questions history versioning production turn bad add more grow",
  "how-to/steer-a-test-set": "persona personas style styles evolution evolutions focus multi hop table numbers harder difficult hard difficulty typo typos topic topics only tone kind kinds types complex reasoning multihop two combine documents single level levels different diverse variety evolve scenario scenarios audience spelling tables unanswerable negative conversational scope some llamaindex nodes haystack follow up refuse",
  "how-to/rank-on-generated-sets": "ranking ids chunks splitter span chunk chunking size retriever top k embeddings embedding search hybrid mismatch match zero relevant passages hit",
  "how-to/audit-a-cheap-judge": "audit cheap strong cascade probabilities logprobs cheaper save two judges second gpt compare smaller larger unsure confidence escalate small big checked prediction powered inference ppi correct mean weak jury panel first expensive then",
  "how-to/cost-and-budget": "cost price budget tokens money limit spend calls expensive pay paying much slow fast faster speed concurrency dollars dollar bill estimate cache cheaper usd spent stop requests parallel throughput forecast limits caching time long hours maximum number usage once llm rate retry retries timeout cached judge responses replies",
  "how-to/evaluate": "python report dataframe pandas unscored failure low zero nan why cause reason result results null notebook jupyter async explain bad worst failed wrong score diagnose diagnosis error sentence sentences evidence html page timeout 401 403 unauthorized forbidden debug inspect rows save load explanation missing value lowest samples csv export memory out quota requests many экспорт выгрузить результаты таблицу different metrics judges progress bar",
  "how-to/rubric": "rubric grade grades leaderboard models criteria stars star scale likert points score criterion rank ranking 5 10 style tone рубрика баллы шкала custom geval g eval pairwise arena voice several рейтинг моделей",
  "how-to/chains": "langsmith mlflow guard route langgraph lcel runnable node guardrail block answer hallucinated experiment tracking dataset hallucinations middleware self correct regenerate tracing evaluator evaluators raise below threshold edge conditional unfaithful retry faithful",
  "how-to/ray": "ray cluster workers parallel distributed scale million large big",
  "how-to/arrow": "spark dask duckdb arrow pandas pyspark polars parquet warehouse sql large big",
  "how-to/pytest": "pytest test tests unit scripted assert fixture unittest mock assertion assertions fake stub dummy regression offline calling plugin",
  "how-to/own-metric": "own custom metric function write define add new length regex business rule step python score implement plugin extend register decorator pydantic template chain reuse toxicity toxic bias safety harmful politeness polite",
  "how-to/own-language": "language prompt translate german own prompts chinese french spanish korean italian translation edit wording change instruction промпт язык перевод template templates override locale japanese polish turkish ukrainian изменить промпты перевести судьи multilingual languages",
  "how-to/migrating": "ragas deepeval migrate migration switch move replace difference langfuse openevals compare coming instead миграция перенос перейти рагас аналог",
  "how-to/stop-early": "stop early sequential enough fewer less many few peeking until decided precise save samples adaptive calls once остановить раньше",
  "how-to/batch": "batch half offline cluster airgapped night airgap internet without network file overnight discount api apis save anthropic openai jsonl requests replies queue asynchronous cheap",
  "how-to/dashboards": "grafana prometheus langfuse dashboard opentelemetry chart charts export trace traces tracing phoenix otel графана дашборд metrics scrape panel datadog splunk spans span langsmith monitor visualize",
  "how-to/trend": "trend drift alarm time week alert drop drops degrade quality over changed history falling graph weekly daily night nightly тренд динамика дрейф weeks days degradation decline regression baseline change point anomaly cusum worse monitor качество упало падает временем",
  "reference/metrics": "metrics metric choose choosing which groundedness faithfulness hallucination formula recall precision relevance list available hallucinate hallucinated hallucinations correctness similarity f1 score meaning definition formulas what measure measures match source sources support supported ground truth reference should correct compare detect groundtruth метрики формула список llm free rule based полнота точность достоверность релевантность means range explained interpret interpretation noise relevancy abstention выбрать эталона правильность документов поиска rouge bleu number контекст factual rag",
  "reference/edge-cases": "empty blank refusal missing none no answer know refuse null skipped says knows unanswerable string does whitespace nulls lists contexts field unscored refuses sample without references nothing retrieved dead unavailable times system question questions model abstain idk",
  "reference/ranking-metrics": "ndcg mrr map ranking recall trec reranker rerank retriever retrieval search rank hit rate order k precision ранжирование hits reciprocal average position поиска документов реранкер реранкера ретривер relevance grading graded качество формула cross encoder",
  "reference/claim-metrics": "claim claims ragchecker hallucination hallucinated hallucinations fact facts fine grained f1 recall utilization knowledge nli verifier entailment level",
  "explanation/intervals": "interval intervals confidence significance significant statistics sure error bars uncertainty p value noise many enough size bootstrap variance ci margin repeats cluster clustered small sample precise holm correction",
  "explanation/how-a-judge-is-asked": "prompt prompts json schema mode repair structured output invalid parse broken injection reply instruction malformed markdown fences jailbreak attack tool calling function retries fix fixed system message llm work numbered numbering look looks temperature",
  "explanation/provenance": "reproducible hash version instrument configuration same result deterministic seed reproduce temperature rerun stable fingerprint changed cached recomputed produced track",
  "project/changelog": "changelog changes history new news release notes что нового изменения",
  "project/versions": "version versions security telemetry dependencies deprecated upgrade privacy data sent leak supported python stable breaking license anywhere send confidential compatibility compatible requirements langchain pydantic gdpr private analytics packages needed версия версии",
  "ru/index": "документация руководство содержание",
  "ru/first-steps": "файл таблица начало начать установка установить скачать демо демонстрация быстрый старт csv excel эксель столбец колонка заголовок формат поля кодировка оценить ответы отчёт html запуск запустить pip ключ пример данные датасет загрузить открыть колонки русские продолжить прервался журнал набор умолчанию возобновить метрики rag какие",
  "ru/gigachat": "гигачат gigachat сбер токен ключ сертификат минцифры ssl доступ область авторизация 401 429 лимит подключение подключить адрес модель корпоративный соединение ошибка сервер модели переменная окружения таймаут api судья слабее промпты русский язык",
  "ru/own-documents": "документы вопросы генерация сгенерировать создать составить тестовый набор тест датасет синтетические эталон pdf папка персона стиль эволюция обновить изменились ретривер поиск диагноз чанк фрагменты сложные эволюции персоны разнообразие выборка отклонены неотвечаемые цепочка агент ответы причина контексты",
  "ru/own-metric": "своя собственная написать добавить создать функция критерий правило пользовательская кастомная критерии промпт шаг класс python декоратор задать вежливость вежливый тон стиль проверить токсичность",
  "ru/cheap-judge": "дешёвый сильный аудит каскад вероятность логарифм экономия дешевле два судья модель слабая маленькая большая проверяет перепроверить уверенность модели",
  "ru/conversations": "диалог чат реплика история многоходовый бот переписка сообщения уточняющий беседа ассистент мессенджер вопрос каждый ход местоимение",
  "ru/conversation-metrics": "диалог целиком противоречие противоречит переспрашивает забывает память решены разговор сессия весь чат бот ассистент диалоги многоходовый метрика согласованность",
  "ru/ci": "ci gitlab github пайплайн конвейер сборка порог мерж слияние проверка регрессия упала падает релиз блокировать junit pytest тест baseline код завершения ошибка exit красный зелёный коммит ветка автоматическая сколько вопросов",
  "ru/production": "мониторинг прод продакшен рабочая система онлайн callback колбэк сервер нагрузка доля фон тревога алерт логи трафик задержка fastapi пользователи в реальном времени поток запросы процессы воркеры sink хранить sqlite персональные выборка запросов базу сохранить коллбек замедлит замедляет тормозит",
  "ru/questions": "нет пустая ноль none nan посчиталась считается причина сбой неприменимо интервал доверительный значимость галлюцинации выдумывает врёт лучше хуже сравнить сравнение прогон разница сколько стоит цена стоимость деньги дорого бюджет токены пакет батч скидка медленно быстрее ускорить долго ragas deepeval отличие кластер сеть интернет офлайн данные конфиденциальность безопасность ошибается доверять погрешность статистика зависает скорость параллельно улучшилось ухудшилось модель отличается дешевле раза пакетные почему нету отсутствует кэш повтор таймаут достоверность",
  "explanation/against-people": "human humans people correlation judgement judgment evidence agree spearman",
  "explanation/what-is-never-claimed": "limitation limitations limits caveats truth cannot claim claimed mean true",
  "reference/cli": "командная строка терминал команды cli command commands line options option flags flag arguments usage help rageval output json result machine readable",
  "explanation/architecture": "organized organised modules architecture structure package packages layers design code folders",
};
const LATER = [[/^project\/changelog/, 0.5], [/^reference\/cli/, 0.6], [/^reference\/api/, 0.5], [/notebooks/, 0.6]];
const COMMON = ["use", "need", "want", "get", "take", "let", "tell", "put", "should", "say", "one", "my", "without", "sever", "someth", "work", "have", "оценк"]; // stems of words that
// any question may have
const KEYWORD = 16;
const MOST = 15; // of one word
const HEADING = 1.8; // share of pages with a heading that has every word of the question
const CYRILLIC = /[а-яё]/i;
const OWN_LANGUAGE = 1.5; // share of pages in the language of the question

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
  const covered = new Map();
  const numbers = [...objectTerms].filter((word) => /^\d{3}$/.test(word)); // status codes: Sphinx leaves numbers out
  const asked = [...terms, ...numbers].filter((word) => !COMMON.includes(word));
  for (const term of asked) {
    const own = new Map();
    const objects = new Set([...objectTerms].filter((word) => stemmer.stemWord(word) === term));
    for (const item of searchEveryWord(term, new Set([term]), excluded, highlighted, objects)) {
      if (item[4] > (own.get(item[0]) || 0)) own.set(item[0], Math.min(item[4], MOST));
      if (!best.has(item[0]) || item[4] > best.get(item[0])[4]) best.set(item[0], item);
    }
    const addPages = (points, matches) => {
      docnames.forEach((page, place) => {
        if (!keywords[place].some(matches)) return;
        own.set(page, (own.get(page) || 0) + points);
        if (!best.has(page)) best.set(page, [page, titles[place], "", null, 0, filenames[place], "title"]);
      });
    };
    addPages(KEYWORD, (word) => word === term);
    if (own.size === 0 && term.length > 4) addPages(KEYWORD / 2, (word) => word.slice(0, 5) === term.slice(0, 5));
    const rarity = Math.log(1 + docnames.length / Math.max(1, own.size));
    own.forEach((points, page) => {
      sums.set(page, (sums.get(page) || 0) + points * rarity);
      covered.set(page, (covered.get(page) || 0) + 1 / asked.length);
    });
  }
  const headed = new Set();
  for (const [heading, places] of Object.entries(Search._index.alltitles)) {
    const words = new Set((heading.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).map((word) => stemmer.stemWord(word)));
    if (asked.every((term) => words.has(term))) places.forEach(([place]) => headed.add(docnames[place]));
  }
  const results = [...sums].map(([page, points]) => {
    const language = CYRILLIC.test(query) === page.startsWith("ru/") ? OWN_LANGUAGE : 1;
    const share = LATER.reduce((product, [pattern, own]) => (pattern.test(page) ? product * own : product), language);
    const item = [...best.get(page)];
    item[4] = points * share * (headed.has(page) ? HEADING : 1) * (0.5 + covered.get(page) / 2);
    return item;
  });
  return results.sort((one, other) => one[4] - other[4]);
};
