// The table of samples and the view of one sample of a report.

(async () => {
  const ROWS_A_PAGE = 50;
  const LONG_TITLE = 300;
  const GOOD = new Set(["supported", "TP", "useful", "needed", "found", "consistent", "kept", "met"]);
  const BAD = new Set(["contradicted", "FP", "not useful", "not found", "ignored", "asked again", "unmet"]);
  const OPEN = new Set(["absent", "FN", "extra"]);
  const ANSWER_TAGS = new Set(["p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s", "code", "hr", "small"]);
  const MARKS = { "good-verdict": "✓", "bad-verdict": "✗", "open-verdict": "?" };

  const overview = byId("overview"), sampleView = byId("sample"), table = byId("table"), status = byId("status");
  const form = byId("filters"), pages = byId("pages");

  function formatNumber(value) {
    return value === null || value === undefined ? "–" : Number(value).toFixed(3);
  }

  if (!("DecompressionStream" in window)) {
    status.textContent = JSON.parse(byId("too-old").textContent);
    return;
  }
  const words = await unpack("words");
  status.textContent = words.loading;
  const index = await unpack("index");
  const metrics = index.metrics;
  const rows = index.rows.map(([id, question, answer, cause, values, outcomes, before], place) => (
    { place, id, question, answer, cause, values, outcomes, before, period: index.periods[place], text: normalizeText([id, question, answer].join("\n")) }
  ));
  const blocks = new Map();

  function block(id) {
    if (!blocks.has(id)) blocks.set(id, unpack(id));
    return blocks.get(id);
  }

  // Return one item of a kind that is stored in blocks.
  async function itemAt(kind, place) {
    return (await block(`${kind}-${Math.floor(place / index.part)}`))[place % index.part];
  }

  async function detailsOf(place) {
    const row = await itemAt("part", place);
    const contexts = row.sample.contexts && await Promise.all(row.sample.contexts.map((chunk) => itemAt("chunks", chunk)));
    return { ...row, contexts };
  }

  // The table

  const order = { column: null, descending: false };
  let matching = rows, page = 0;

  function filterRows() {
    const filters = new FormData(form);
    const sought = normalizeText(filters.get("text")).split(/\s+/).filter(Boolean);
    const least = filters.get("least") === "" ? -Infinity : Number(filters.get("least"));
    const most = filters.get("most") === "" ? Infinity : Number(filters.get("most"));
    const metric = Number(filters.get("metric")), bounded = least !== -Infinity || most !== Infinity;
    return rows.filter((row) =>
      sought.every((word) => row.text.includes(word))
      && (!filters.get("outcome") || row.outcomes.includes(filters.get("outcome")))
      && (!filters.get("cause") || row.cause === filters.get("cause"))
      && (!filters.get("period") || row.period === Number(filters.get("period")))
      && (!bounded || (row.values[metric] !== null && row.values[metric] >= least && row.values[metric] <= most)));
  }

  function keyOf(row) {
    if (order.column === "cause") return words.causes[row.cause] ?? row.cause;
    return order.column in row ? row[order.column] : row.values[Number(order.column)];
  }

  function compareRows(one, other) {
    const [a, b] = [keyOf(one), keyOf(other)];
    if (a === null || b === null) return (a === null) - (b === null) || one.place - other.place; // no value: last
    const sign = typeof a === "string" ? a.localeCompare(b) : a - b;
    return (order.descending ? -sign : sign) || one.place - other.place;
  }

  function refresh() {
    matching = filterRows();
    if (order.column !== null) matching = [...matching].sort(compareRows);
    page = 0;
    drawTable();
  }

  function drawTable() {
    const last = Math.max(1, Math.ceil(matching.length / ROWS_A_PAGE));
    table.tBodies[0].replaceChildren(...matching.slice(page * ROWS_A_PAGE, (page + 1) * ROWS_A_PAGE).map(line));
    table.hidden = false;
    status.textContent = matching.length ? fillTemplate(words.shown, { shown: matching.length, all: rows.length }) : words.none;
    pages.hidden = last === 1;
    pages.replaceChildren(
      turner(words.previous, page > 0, -1),
      element("span", {}, fillTemplate(words.page, { page: page + 1, pages: last })),
      turner(words.next, page + 1 < last, 1),
    );
  }

  function turner(text, possible, by) {
    const button = element("button", { type: "button", disabled: !possible }, text);
    button.addEventListener("click", () => {
      page += by;
      drawTable();
      byId("samples").scrollIntoView();
      table.querySelector("tbody a")?.focus();
    });
    return button;
  }

  function line(row) {
    const cells = [
      element("th", { scope: "row", className: "sample" }, element("a", { href: `#sample=${row.place}` },
        element("span", { className: "clip", dir: "auto" }, row.question.slice(0, 300)),
        element("small", {}, bdi(row.id.slice(0, 100))))),
    ];
    if (table.querySelector('[data-column="cause"]')) cells.push(element("td", {}, words.causes[row.cause] ?? ""));
    metrics.forEach((_, n) => cells.push(valueCell(row, n)));
    return element("tr", {}, ...cells);
  }

  function valueCell(row, n) {
    const value = row.values[n], outcome = row.outcomes[n];
    if (value === null) {
      if (outcome === "failed") return element("td", { className: "number bad" }, words.failed);
      return element("td", { className: "number" }, outcome ? element("abbr", { title: words.unscored }, words.unscored_short) : "–");
    }
    const cell = element("td", { className: "number value" }, formatNumber(value));
    cell.style.setProperty("--share", Math.min(1, Math.max(0, value)));
    const before = row.before[n];
    if (before !== null && before !== undefined && before !== value) {
      cell.append(element("small", {}, ` (${value > before ? "+" : "−"}${Math.abs(value - before).toFixed(3)})`));
    }
    return cell;
  }

  function sortBy(column, descending) {
    Object.assign(order, { column, descending });
    for (const head of table.tHead.querySelectorAll("th")) head.removeAttribute("aria-sort");
    table.tHead.querySelector(`[data-column="${column}"]`)?.closest("th").setAttribute("aria-sort", descending ? "descending" : "ascending");
    refresh();
  }

  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const column = button.dataset.column;
      sortBy(column, order.column === column && !order.descending);
    });
  }
  let typing;
  form.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(refresh, 120);
  });
  form.addEventListener("reset", () => setTimeout(refresh));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;

  // The view of a sample

  const prose = (text) => foldedText(text, words.more);

  function section(title, ...children) {
    return element("section", {}, element("h3", {}, title), ...children);
  }

  function classOf(verdict) {
    if (GOOD.has(verdict)) return "good-verdict";
    if (BAD.has(verdict)) return "bad-verdict";
    return OPEN.has(verdict) ? "open-verdict" : "";
  }

  // The answer

  // Return an element for a node of the answer's tree: a text, or a tag with children. Other tags become spans.
  function answerNode(node, statements) {
    if (typeof node === "string") return document.createTextNode(node);
    const [name, start] = node[0].split(" ");
    if (name === "mark") return markedSentence(node, statements);
    const children = node.slice(1).map((child) => answerNode(child, statements));
    if (name === "pre") return element("pre", { tabIndex: 0 }, ...children);
    const tag = ANSWER_TAGS.has(name) ? name : "span";
    return element(tag, { ...(tag === name ? {} : { className: name }), ...(start ? { start: Number(start) } : {}) }, ...children);
  }

  function markedSentence([, places, ...children], statements) {
    const found = places.map((place) => statements[place]).filter(Boolean);
    const kinds = found.map((finding) => classOf(finding.verdict));
    const worst = ["bad-verdict", "open-verdict", "good-verdict"].find((kind) => kinds.includes(kind)) ?? "";
    const view = element("mark", { className: worst }, ...children.map((child) => answerNode(child, statements)));
    for (const place of places) {
      const finding = statements[place];
      if (!finding) continue;
      const kind = classOf(finding.verdict), verdict = words.verdicts[finding.verdict] ?? finding.verdict;
      const button = element("button", { type: "button", className: `ref ${kind}`, title: verdict, "aria-label": `${place + 1}: ${verdict}` }, `${MARKS[kind] ?? ""}${place + 1}`);
      lightFrom(button, finding.cites ?? [], () => noteAt(place)?.scrollIntoView({ block: "nearest" }));
      button.addEventListener("focus", () => noteAt(place)?.classList.add("noted"));
      button.addEventListener("blur", () => noteAt(place)?.classList.remove("noted"));
      view.append(button);
    }
    return view;
  }

  function noteAt(place) {
    return sampleView.querySelectorAll(".notes > li")[place];
  }

  function answerView(text, tree, statements) {
    if (text === null) return element("p", { className: "empty" }, words.no_answer);
    if (!text.trim()) return element("p", { className: "empty" }, words.empty_answer);
    if (!tree) return prose(text);
    return element("div", { className: "answer", dir: "auto" }, ...tree.map((node) => answerNode(node, statements)));
  }

  // Highlight sentences while a control has the pointer or the focus; show the first one on a click.
  function lightFrom(control, cites, onClick) {
    control.addEventListener("mouseenter", () => light(cites));
    control.addEventListener("mouseleave", () => light([]));
    control.addEventListener("focus", () => light(cites));
    control.addEventListener("blur", () => light([]));
    control.addEventListener("click", () => {
      light(cites);
      onClick?.();
      if (cites.length) sentence(cites[0])?.scrollIntoView({ block: "nearest" });
    });
  }

  function findingView(finding, named) {
    const kind = classOf(finding.verdict);
    const cites = finding.kind === "context" && !finding.text ? sentencesOf(finding.number) : finding.cites ?? [];
    const verdict = words.verdicts[finding.verdict] ?? finding.verdict;
    const label = named ? `${words.kinds[finding.kind] ?? finding.kind} ${finding.number} · ${verdict}` : verdict;
    const view = element(
      cites.length ? "button" : "p",
      { className: `finding ${kind}`, ...(cites.length ? { type: "button" } : {}) },
      element("b", {}, `${MARKS[kind] ?? "·"} ${label}`),
      element("span", { dir: "auto" }, bdi(finding.text.slice(0, LONG))),
    );
    if (finding.reason) view.append(element("small", { dir: "auto" }, finding.reason.slice(0, LONG)));
    if (!cites.length) return view;
    if (finding.kind !== "context") {
      view.append(element("small", {}, `${words.cites} ${cites.map((number) => `[${number}]`).join(" ")}`));
    }
    lightFrom(view, cites);
    return view;
  }

  function sentence(number) {
    return sampleView.querySelector(`[data-number="${CSS.escape(number)}"]`);
  }

  let counts = []; // number of sentences in each chunk of the current sample

  function sentencesOf(chunk) {
    return Array.from({ length: counts[chunk - 1] ?? 0 }, (_, n) => `${chunk}.${n + 1}`);
  }

  function light(numbers) {
    for (const lit of sampleView.querySelectorAll(".lit")) { lit.classList.remove("lit"); lit.removeAttribute("aria-current"); }
    for (const number of numbers) {
      sentence(number)?.classList.add("lit");
      sentence(number)?.setAttribute("aria-current", "true");
    }
  }

  function findings(list, named = false, numbered = false) {
    return element(numbered ? "ol" : "ul", { className: numbered ? "findings notes" : "findings" }, ...list.map((finding) => element("li", {}, findingView(finding, named))));
  }

  // Return the findings of a kind, preferably with verdicts against the contexts: those cite sentences.
  function statementsOf(scores, kind) {
    const lists = Object.values(scores).map((score) => (score.findings ?? []).filter((finding) => finding.kind === kind));
    const cited = lists.find((list) => list.some((finding) => ["supported", "contradicted", "absent"].includes(finding.verdict)));
    return cited ?? lists.find((list) => list.length) ?? [];
  }

  function contextsView(contexts, ids, sources) {
    if (contexts === null) return [element("p", { className: "empty" }, words.no_contexts)];
    if (!contexts.length) return [element("p", { className: "empty" }, words.nothing_retrieved)];
    return contexts.map((sentences, n) => element(
      "div",
      { className: "chunk" },
      element("h4", {}, `[${n + 1}] `, ...(sources?.[n] ? [bdi(sources[n])] : []), ...(ids?.[n] ? [element("small", {}, bdi(ids[n]))] : [])),
      element("ol", { className: "sentences" }, ...sentences.map((text, m) => element(
        "li", { "data-number": `${n + 1}.${m + 1}`, dir: "auto" }, element("span", { className: "at" }, `${n + 1}.${m + 1}`), text,
      ))),
    ));
  }

  function outcomeOf(score) {
    const text = score.failure ? words.failed : score.unscored ? words.unscored : formatNumber(score.value);
    return element("b", { className: score.failure ? "bad" : "" }, text);
  }

  function scoreView(name, score, before) {
    const view = element("details", {}, element("summary", {}, bdi(name), " ", outcomeOf(score)));
    if (before !== null && before !== undefined) view.firstChild.append(` (${words.baseline}: ${formatNumber(before)})`);
    if (score.reason) view.append(prose(score.reason));
    if (score.unscored) view.append(prose(score.unscored));
    if (score.failure) view.append(...failureView(score.failure));
    view.append(findings(score.findings ?? [], true));
    const { calls = 0, input_tokens, output_tokens, seconds = 0 } = score.usage ?? {};
    const tokens = input_tokens === null && output_tokens === null ? "–" : (input_tokens ?? 0) + (output_tokens ?? 0);
    const cost = fillTemplate(words.cost, { calls, tokens, seconds: seconds.toFixed(1) });
    view.append(element("p", { className: "quiet" }, `${cost} · ${words.instrument} ${score.instrument}`));
    return view;
  }

  function failureView(failure) {
    const parts = [prose(`${failure.error}: ${failure.message}`)];
    if (failure.step) parts.push(element("p", { className: "quiet" }, `${words.step}: ${failure.step}`));
    if (failure.raw_output) parts.push(element("p", { className: "quiet" }, words.raw_output), element("pre", { dir: "auto", tabIndex: 0 }, failure.raw_output));
    return parts;
  }

  function listed(texts, without) {
    return texts?.length ? texts.map(prose) : [element("p", { className: "quiet" }, without)];
  }

  // Return the conversation up to the question, which is marked as the judged turn, and how it was judged.
  function chatView(sample, standalone) {
    const turns = [...sample.history, { role: "user", text: sample.question, judged: true }].map(({ role, text, judged }) => element(
      "li",
      { className: judged ? `turn ${role} judged` : `turn ${role}`, ...(judged ? { "aria-current": "true" } : {}) },
      element("small", {}, judged ? `${words.roles[role]} · ${words.judged_turn}` : words.roles[role]),
      prose(text),
    ));
    for (const finding of standalone ?? []) {
      const label = finding.verdict === "rewritten" ? words.standalone : words.not_rewritten;
      const parts = finding.verdict === "rewritten" ? [prose(finding.text)] : [];
      if (finding.reason) parts.push(element("p", { className: "quiet", dir: "auto" }, finding.reason.slice(0, LONG)));
      turns.at(-1).append(element("div", { className: `standalone ${finding.verdict}` }, element("small", {}, label), ...parts));
    }
    return section(words.conversation, element("ol", { className: "chat" }, ...turns));
  }

  function metadataView(metadata) {
    const entries = Object.entries(metadata ?? {}).flatMap(([name, value]) => [
      element("dt", {}, bdi(name)),
      element("dd", {}, (typeof value === "string" ? value : JSON.stringify(value)).slice(0, LONG)),
    ]);
    return entries.length ? [section(words.metadata, element("dl", {}, ...entries))] : [];
  }

  async function drawSample(place) {
    const row = rows[place];
    const { sample, scores, contexts, sources, answer, standalone, statements: metric } = await detailsOf(place);
    counts = (contexts ?? []).map((sentences) => sentences.length);
    const neighbours = matching.includes(row) ? matching : rows;
    const at = neighbours.indexOf(row);
    const statements = (scores[metric]?.findings ?? []).filter((finding) => finding.kind === "statement");
    const references = statementsOf(scores, "reference_statement");
    const long = sample.question.length > LONG_TITLE;
    const title = element("h2", { id: "sample-title", tabIndex: -1, dir: "auto" }, long ? `${sample.question.slice(0, LONG_TITLE)}…` : sample.question);
    const facts = element("p", { className: "quiet facts-line" }, `${words.sample} `, bdi(sample.id));
    if (row.cause) facts.append(" · ", element("b", { className: row.cause === "nothing wrong" ? "fine" : row.cause === "cannot tell" ? "" : "bad" }, words.causes[row.cause] ?? row.cause));
    const { time, tags } = await itemAt("part", place);
    for (const part of [time && `${time.slice(0, 16).replace("T", " ")} UTC`, ...Object.entries(tags ?? {}).map((tag) => tag.join(": "))]) {
      if (part) facts.append(" · ", bdi(part.slice(0, LONG_TITLE)));
    }
    const chips = Object.entries(scores).map(([name, score]) => element("li", {}, bdi(name), " ", outcomeOf(score)));
    const top = long ? [section(words.question, prose(sample.question))] : [], more = [];
    if (sample.history?.length) top.push(chatView(sample, standalone));
    top.push(section(words.answer, answerView(sample.answer, answer, statements)));
    if (statements.length) top.push(section(words.statements, element("p", { className: "quiet" }, words.hint), findings(statements, false, true)));
    more.push(section(words.references, ...listed(sample.references, words.no_references)));
    if (references.length) more.push(section(words.reference_statements, findings(references)));
    more.push(section(words.scores, ...Object.entries(scores).map(([name, score]) => scoreView(name, score, row.before[metrics.indexOf(name)]))));
    if (sample.retrieved) more.push(section(words.retrieved, ...sample.retrieved.map(prose)));
    if (sample.reference_contexts?.length) more.push(section(words.reference_contexts, ...sample.reference_contexts.map(prose)));
    more.push(...metadataView(sample.metadata));
    const right = section(words.contexts, ...contextsView(contexts, sample.context_ids, sources));
    right.className = "contexts card";
    right.tabIndex = 0;
    sampleView.replaceChildren(
      element("nav", {}, link(words.back, "#samples", true), link(words.before, neighbours[at - 1]), link(words.after, neighbours[at + 1])),
      title,
      facts,
      element("ul", { className: "chips" }, ...chips),
      element("div", { className: "columns" }, element("div", { className: "card" }, ...top), right, element("div", { className: "card" }, ...more)),
    );
    return title;
  }

  function link(text, to, named = false) {
    if (!to) return element("span", { className: "quiet" }, text);
    return element("a", { href: named ? to : `#sample=${to.place}` }, text);
  }

  let left = null; // the row to return to

  async function follow() {
    const chosen = /^#cause=(\d+)$/.exec(location.hash);
    if (chosen && form.elements.cause) {
      form.reset();
      form.elements.cause.value = index.causes[Number(chosen[1])] ?? "";
      refresh();
      history.replaceState(null, "", "#samples");
    }
    const drilled = /^#period=(\d+)(?:\.(\d+))?$/.exec(location.hash);
    if (drilled && form.elements.period) { // the worst samples of a period first, by one metric
      const metric = Number(drilled[2] ?? 0);
      form.reset();
      form.elements.period.value = drilled[1];
      sortBy(String(metric), index.lower[metric] ?? false);
      history.replaceState(null, "", "#samples");
    }
    const match = /^#sample=(\d+)$/.exec(location.hash);
    const place = match ? Number(match[1]) : null;
    const opened = place !== null && place < rows.length;
    const title = opened ? await drawSample(place) : null;
    overview.hidden = opened;
    sampleView.hidden = !opened;
    if (opened) {
      left = place;
      scrollTo(0, 0);
      title.focus();
    } else if (chosen || drilled) {
      left = null;
      byId("samples").scrollIntoView();
      byId("samples-title").focus({ preventScroll: true });
    } else if (left !== null) {
      table.querySelector(`a[href="#sample=${left}"]`)?.focus();
      left = null;
    }
  }

  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !sampleView.hidden) location.hash = "#samples";
  });
  drawTable();
  await follow();
  document.documentElement.dataset.ready = "true";
})();
