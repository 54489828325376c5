// People decide about rows one by one: they keep, edit or drop rows of a test set, or label samples.

(async () => {
  const LONG_TITLE = 500;
  if (!("DecompressionStream" in window)) {
    byId("progress").textContent = "This browser is too old for this page. · Этот браузер слишком стар для этой страницы.";
    return;
  }
  const texts = await unpack("words"), data = await unpack("data");
  const testset = data.kind === "testset", items = data.items;
  for (const item of items) {
    item.row = item.rest ? JSON.parse(item.rest) : {};
    item.text = normalizeText([item.question, ...turnsOf(item).map(({ text }) => text), ...item.texts.map(([, text]) => text), ...item.passages.flatMap(({ parts }) => parts.join("")), item.row.id ?? ""].join("\n"));
  }
  const rejected = (data.rejected ?? []).map((line) => JSON.parse(line));
  const form = byId("filters"), view = byId("item"), entries = byId("entries"), actions = byId("actions"), help = byId("keys");

  // What is kept in the browser

  const progressKey = `rageval-review-${data.key}`, settingsKey = "rageval-review-settings";

  function load(key) {
    try { return JSON.parse(localStorage.getItem(key)) ?? {}; } catch { return {}; }
  }

  function store(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
      return true;
    } catch { // switched off, or full
      return false;
    }
  }

  const stored = load(progressKey), settings = { keys: true, ...load(settingsKey) };
  const decisions = new Map(); // from the place of a row to { verdict, question, reference, comment }
  const drafts = new Map(); // from the place of a row to the texts of an edit that is not finished
  let unsaved = false, current = 0, matching = [], editing = false, undoing = [];
  let language = Object.hasOwn(texts, stored.language) ? stored.language : data.language, words = texts[language];

  items.forEach((item, place) => {
    const last = item.history?.at(-1);
    if (last?.kind === "review" && last.accepted) decisions.set(place, { verdict: "kept", recorded: true });
  });
  const known = [undefined, ...(testset ? ["kept", "dropped"] : data.verdicts.map(({ value }) => value))];
  for (const [place, decision] of Object.entries(stored.decisions ?? {})) {
    if (items[place] && decision && known.includes(decision.verdict)) decisions.set(Number(place), decision);
  }

  function storeProgress() {
    const made = Object.fromEntries([...decisions].filter(([, { recorded }]) => !recorded));
    const kept = store(progressKey, { decisions: made, current, language });
    byId("warning").hidden = kept;
    byId("warning").textContent = kept ? "" : words.not_kept;
    return kept;
  }

  addEventListener("beforeunload", (event) => { if (unsaved && !storeProgress()) event.preventDefault(); });

  // Decisions

  const verdictOf = (place) => {
    const { verdict, question, reference } = decisions.get(place) ?? {};
    return verdict === "kept" && (question ?? reference) !== undefined ? "edited" : verdict;
  };
  const good = (verdict) => ["kept", "edited", "yes"].includes(verdict);
  const poor = (verdict) => ["dropped", "no"].includes(verdict);
  const nameIn = (names, key) => (Object.hasOwn(names, key) ? names[key] : key);
  const verdictName = (verdict) => nameIn(words.verdicts, verdict);

  function counts() {
    const made = items.map((_, place) => verdictOf(place)), number = (verdict) => made.filter((one) => one === verdict).length;
    const decided = made.filter(Boolean).length;
    return { all: items.length, decided, open: items.length - decided, kept: number("kept"), edited: number("edited"), dropped: number("dropped") };
  }

  function change(place, decision) {
    undoing.push([place, decisions.get(place)]);
    setDecision(place, decision);
  }

  function setDecision(place, decision) {
    if (decision?.verdict || decision?.comment) decisions.set(place, decision);
    else decisions.delete(place);
    unsaved = true;
    storeProgress();
    if (form.elements.verdict.value) drawList();
    else drawEntry(place);
    drawProgress();
  }

  function decide(verdict, changes = {}) {
    if (!items.length) return;
    const { comment, question, reference } = decisions.get(current) ?? {};
    const edits = verdict === "kept" ? { question, reference } : {};
    change(current, { verdict, comment, ...edits, ...changes });
    const next = matching.find((place) => place > current);
    const name = verdictName(verdictOf(current)), said = `${name[0].toUpperCase()}${name.slice(1)}. `;
    if (next === undefined) show(current);
    else show(next);
    drawProgress(said + (next === undefined ? `${words.finished} ` : ""));
  }

  function undo() {
    const last = undoing.pop();
    if (!last) return drawProgress(`${words.nothing_to_undo} `);
    const [place, before] = last;
    setDecision(place, before);
    show(place);
    drawProgress(`${words.undone} `);
  }

  function setComment(text) {
    const { comment = "", ...others } = decisions.get(current) ?? {};
    if (text.trim() === comment) return;
    const { recorded, ...made } = others;
    change(current, { ...made, comment: text.trim() || undefined });
  }

  // The list

  function optionsOf(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
  }

  function kindName(names) {
    return names.split("+").map((name) => nameIn(words.kinds, name)).join(" + ");
  }

  function matches(place) {
    const filters = new FormData(form), item = items[place];
    const sought = normalizeText(filters.get("text") ?? "").split(/\s+/).filter(Boolean);
    const verdict = filters.get("verdict"), evolution = filters.get("evolution");
    return sought.every((word) => item.text.includes(word))
      && (!verdict || (verdictOf(place) ?? "undecided") === verdict)
      && (!evolution || item.row.evolution === evolution);
  }

  function drawList() {
    matching = items.map((_, place) => place).filter(matches);
    entries.replaceChildren(...matching.map(entry));
    byId("shown").textContent = matching.length ? fillTemplate(words.shown, { shown: matching.length, all: items.length }) : words.none;
  }

  function entry(place) {
    const verdict = verdictOf(place), item = items[place];
    const sign = { kept: "✓", edited: "✎", dropped: "✗", yes: "✓", no: "✗" }[verdict] ?? verdict ?? "○";
    const link = element("a", { href: `#row=${place + 1}` },
      element("span", { className: `sign ${good(verdict) ? "good" : poor(verdict) ? "poor" : ""}`, role: "img", "aria-label": verdict ? verdictName(verdict) : words.undecided }, sign),
      element("span", { className: "clip", dir: "auto" }, questionOf(place).slice(0, 300)),
      element("small", {}, String(place + 1), ...(item.row.evolution ? [` · ${kindName(item.row.evolution)}`] : [])));
    if (place === current) link.setAttribute("aria-current", "true");
    return element("li", { "data-place": place }, link);
  }

  function drawEntry(place) {
    entries.querySelector(`[data-place="${place}"]`)?.replaceWith(entry(place));
  }

  function drawProgress(said = "") {
    const numbers = counts();
    byId("bar").max = Math.max(1, numbers.all);
    byId("bar").value = numbers.decided;
    byId("progress").textContent = said + fillTemplate(words[`progress_${data.kind}`], numbers);
  }

  // The row

  const section = (title, ...children) => element("section", {}, element("h3", {}, title), ...children);
  const prose = (text) => foldedText(text, words.more);
  const questionOf = (place) => decisions.get(place)?.question ?? items[place].question;

  // Return the text before an edit, if there was one.
  function replaced(before, after) {
    if (after === undefined || !before.trim()) return [];
    return [element("p", { className: "quiet text", dir: "auto" }, `${words.before}: `, element("del", {}, before.slice(0, LONG)))];
  }

  function factsOf(place) {
    const { row } = items[place], verdict = verdictOf(place), facts = [];
    if (verdict) facts.push(element("span", { className: good(verdict) ? "good" : poor(verdict) ? "poor" : "" }, verdictName(verdict)));
    if (row.evolution) facts.push(element("span", {}, kindName(row.evolution)));
    if (row.metadata?.persona) facts.push(element("span", { dir: "auto" }, String(row.metadata.persona).slice(0, 300)));
    if (row.answerable === false) facts.push(element("span", {}, words.not_answerable));
    return element("p", { className: "row-facts" }, `${fillTemplate(words.place, { place: place + 1, all: items.length })} `, ...facts);
  }

  function passageView({ parts, source, span, id }, number) {
    const where = [source, span && fillTemplate(words.characters, { begin: span[0], end: span[1] })].filter(Boolean);
    const texts = parts.map((text, n) => (n % 2 ? element("mark", {}, text) : text));
    const long = parts.join("").length > LONG;
    return element("div", { className: "chunk" },
      element("h4", {}, `[${number + 1}] `, bdi(where.join(", ")), ...(id ? [element("small", {}, bdi(id))] : [])),
      element("p", { className: long ? "text long" : "text", dir: "auto", ...(long ? { tabIndex: 0 } : {}) }, ...texts));
  }

  function passagesView(item) {
    const found = item.passages.map(passageView), name = testset ? "passages" : "contexts";
    if (!found.length) found.push(element("p", { className: "empty" }, words[`no_${name}`]));
    const marked = item.passages.some(({ parts }) => parts.length > 1);
    const view = section(words[name], ...(marked ? [element("p", { className: "quiet" }, words.marks[item.marks])] : []), ...found);
    view.className = "card";
    return view;
  }

  // Attempts from top to bottom; rejected ones branch off.
  function historyView(history) {
    return element("ol", { className: "history" }, ...history.map(({ kind, question, accepted, feedback }) => {
      const parts = [element("b", {}, kindName(kind))];
      if (question) parts.push(prose(question));
      if (feedback) parts.push(element("p", { className: "text feedback", dir: "auto" }, nameIn(words.reasons, feedback).slice(0, LONG)));
      return element("li", { className: accepted ? "" : "refused" }, ...parts);
    }));
  }

  function siblingsOf(place) {
    const tree = items[place].row.tree_id;
    return tree ? items.map((_, other) => other).filter((other) => other !== place && items[other].row.tree_id === tree) : [];
  }

  function originView(place) {
    const { history, row } = items[place];
    const attempts = history.length ? historyView(history) : element("p", { className: "empty" }, words.no_history);
    const parts = [section(words.history, attempts)], siblings = siblingsOf(place);
    if (siblings.length) {
      parts.push(section(words.tree, element("ul", { className: "siblings" }, ...siblings.map((other) => element("li", {},
        element("b", {}, `${kindName(items[other].row.evolution ?? "")}: `),
        element("a", { href: `#row=${other + 1}`, dir: "auto" }, questionOf(other).slice(0, 300)))))));
    }
    const entriesOf = Object.entries({ id: row.id, ...row.metadata }).flatMap(([name, value]) => [
      element("dt", {}, bdi(name)), element("dd", {}, (typeof value === "string" ? value : JSON.stringify(value) ?? "").slice(0, LONG)),
    ]);
    parts.push(element("details", {}, element("summary", {}, words.details), element("dl", {}, ...entriesOf)));
    return element("div", { className: "card" }, ...parts);
  }

  function textView([name, text], edited) {
    const shown = edited ?? text;
    return section(words[name], shown.trim() ? prose(shown) : element("p", { className: "empty" }, words[`no_${name}`] ?? "–"), ...replaced(text, edited));
  }

  // Return the turns of the conversation that the question continues.
  function turnsOf({ turns, row }) {
    return turns ?? row.chat_history ?? [];
  }

  function turnView({ role, text }) {
    const view = prose(text);
    view.prepend(element("b", {}, `${nameIn(words.roles, role)}: `));
    return view;
  }

  function commentView(place) {
    const input = element("input", { type: "text", id: "comment", value: decisions.get(place)?.comment ?? "", autocomplete: "off", dir: "auto" });
    input.addEventListener("change", () => setComment(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.stopPropagation();
      setComment(input.value);
      byId("item-title").focus();
    });
    return element("label", { className: "comment" }, words.comment, input);
  }

  function headView(place) {
    const { question, reference } = decisions.get(place) ?? {}, item = items[place], verdict = verdictOf(place);
    const shown = question ?? item.question, long = shown.length > LONG_TITLE;
    const title = element("h2", { id: "item-title", tabIndex: -1, dir: "auto" }, long ? `${shown.slice(0, LONG_TITLE)}…` : shown);
    const top = [factsOf(place), title, ...(long ? [prose(shown)] : []), ...replaced(item.question, question)];
    const turns = turnsOf(item);
    if (turns.length) top.splice(1, 0, section(words.turns, ...turns.map(turnView)));
    const parts = item.texts.map((text) => textView(text, text[0] === "reference" ? reference : undefined));
    return element("section", { className: `card head ${good(verdict) ? "good-edge" : poor(verdict) ? "poor-edge" : ""}` }, ...top, ...parts, commentView(place));
  }

  function drawItem() {
    editing = false;
    actions.hidden = !items.length;
    if (!items.length) return view.replaceChildren(element("p", { className: "empty" }, words.empty));
    const item = items[current], head = headView(current);
    if (testset) view.replaceChildren(head, element("div", { className: "columns" }, passagesView(item), originView(current)));
    else view.replaceChildren(element("div", { className: "columns label-columns" }, head, passagesView(item)));
    for (const passage of view.querySelectorAll(".chunk .long")) {
      passage.scrollTop = Math.max(0, (passage.querySelector("mark")?.offsetTop ?? 0) - passage.offsetTop - 40);
    }
  }

  function show(place, { focus = true } = {}) {
    closeRejected();
    const before = current;
    current = place;
    drawItem();
    drawEntry(before);
    drawEntry(current);
    const chosen = entries.querySelector("[aria-current]")?.closest("li");
    if (chosen) entries.scrollTop += Math.min(0, chosen.offsetTop - entries.offsetTop - entries.scrollTop) + Math.max(0, chosen.offsetTop - entries.offsetTop + chosen.offsetHeight - entries.scrollTop - entries.clientHeight);
    for (const button of actions.querySelectorAll("[data-verdict]")) button.setAttribute("aria-pressed", button.dataset.verdict === decisions.get(place)?.verdict);
    history.replaceState(null, "", `#row=${place + 1}`);
    storeProgress();
    if (!focus) return;
    scrollTo(0, 0);
    byId("list").classList.remove("open");
    byId("item-title")?.focus({ preventScroll: true });
    if (drafts.has(place)) edit();
  }

  function move(step) {
    const next = step > 0 ? matching.find((place) => place > current) : matching.findLast((place) => place < current);
    if (next !== undefined) show(next);
  }

  function nextUndecided() {
    const open = matching.filter((place) => !verdictOf(place));
    const next = open.find((place) => place > current) ?? open[0];
    if (next === undefined) drawProgress();
    else show(next);
  }

  // Editing

  function field(name, value, rows) {
    const area = element("textarea", { name, rows, dir: "auto", spellcheck: true });
    area.value = value;
    area.addEventListener("input", () => area.setCustomValidity(""));
    return [element("label", {}, words[name], area), area];
  }

  function edit() {
    if (editing || !items.length) return;
    editing = true;
    const item = items[current], { question, reference } = decisions.get(current) ?? {}, before = item.texts[0][1];
    const draft = drafts.get(current);
    const [questionLabel, questionArea] = field("question", draft?.question ?? question ?? item.question, 3);
    const [referenceLabel, referenceArea] = field("reference", draft?.reference ?? reference ?? before, 5);
    const cancel = element("button", { type: "button" }, words.cancel);
    const editor = element("form", { className: "edit" }, questionLabel, referenceLabel,
      element("div", { className: "buttons" }, element("button", { type: "submit", className: "main" }, words.apply), cancel),
      element("p", { className: "quiet" }, words.edit_help));
    const changed = (text, original) => (text.trim() === original.trim() ? undefined : text.trim());
    const stop = () => { drafts.delete(current); drawItem(); byId("item-title").focus(); };
    editor.addEventListener("input", () => drafts.set(current, { question: questionArea.value, reference: referenceArea.value }));
    editor.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!questionArea.value.trim()) {
        questionArea.setCustomValidity(words.blank_question);
        questionArea.reportValidity();
        return;
      }
      drafts.delete(current);
      decide("kept", { question: changed(questionArea.value, item.question), reference: changed(referenceArea.value, before) });
    });
    editor.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editor.requestSubmit();
      if (event.key === "Escape") stop();
    });
    cancel.addEventListener("click", stop);
    const title = byId("item-title"), head = view.querySelector(".head");
    head.replaceChildren(factsOf(current), title, editor);
    actions.hidden = true; // its keep button would discard the changes
    questionArea.focus();
  }

  // Rejected candidates

  function showRejected() {
    const reasons = new Map();
    for (const { rejected: reason } of rejected) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    const select = element("select", {}), list = element("div", {}), title = element("h2", { id: "rejected-title", tabIndex: -1 }, words.rejected);
    const name = (reason) => nameIn(words.reasons, reason);
    optionsOf(select, [["", `${words.any_reason} (${rejected.length})`], ...[...reasons].map(([reason, count]) => [reason, `${name(reason)} (${count})`])], "");
    const candidateView = ({ rejected: reason, question, history: attempts }) => {
      const text = (question || words.no_question).slice(0, 300);
      const view = element("details", {}, element("summary", {}, element("b", {}, name(reason ?? "")), element("span", { dir: "auto" }, bdi(text))));
      view.addEventListener("toggle", () => view.append(historyView(attempts ?? [])), { once: true });
      return view;
    };
    const draw = () => list.replaceChildren(...rejected.filter(({ rejected: reason }) => !select.value || reason === select.value).map(candidateView));
    select.addEventListener("change", draw);
    draw();
    const back = element("button", { type: "button" }, words.back);
    back.addEventListener("click", () => { closeRejected(); byId("item-title")?.focus(); });
    byId("rejected").replaceChildren(back, title, element("p", { className: "quiet" }, rejected.length ? words.rejected_help : words.no_rejected), element("label", {}, words.reason, select), list);
    list.className = "card";
    byId("rejected").hidden = false;
    byId("rows").hidden = actions.hidden = true;
    title.focus();
  }

  function closeRejected() {
    byId("rejected").hidden = true;
    byId("rows").hidden = false;
    actions.hidden = !items.length;
  }

  // The saved file

  function testsetFile() {
    const lines = [], dropped = [], yields = structuredClone(data.yields);
    items.forEach((item, place) => {
      const decision = decisions.get(place) ?? {}, verdict = decision.recorded ? undefined : verdictOf(place);
      const own = { question: decision.question ?? item.question, reference: decision.reference ?? item.texts[0][1], history: item.history };
      if (decision.reference !== undefined) own.evidence = []; // of the reference before; the last of two equal names counts
      if (verdict === "dropped") return dropped.push(candidateOf(item, decision));
      if (verdict) own.history = [...item.history, { kind: "review", question: own.question, accepted: true, feedback: feedbackOn(item, decision) }];
      lines.push(`${item.rest.slice(0, -1)},${JSON.stringify(own).slice(1)}`);
    });
    if (dropped.length) yields.rejected = { ...yields.rejected, [data.reason]: (yields.rejected?.[data.reason] ?? 0) + dropped.length };
    const candidates = [...data.rejected, ...dropped.map((candidate) => JSON.stringify(candidate))].join(",");
    const header = `${data.header.slice(0, -1)},"yields":${JSON.stringify(yields)},"rejected":[${candidates}]}`;
    return [`{${JSON.stringify(data.mark)}:${header}}`, ...lines, ""].join("\n");
  }

  function feedbackOn(item, { question, reference, comment }) {
    const changes = [["question", item.question, question], ["reference", item.texts[0][1], reference]];
    const told = changes.filter(([, , after]) => after !== undefined).map(([name, before]) => `${name} before: ${before}`);
    return [...told, ...(comment ? [comment] : [])].join("\n");
  }

  // Return a dropped row as the generator records the candidates that it rejects.
  function candidateOf({ question, texts: [[, reference]], history: attempts, row }, { comment }) {
    const passages = row.contexts.map((text, n) => {
      const [source, start, end] = row.spans[n] ?? ["", 0, 0];
      return { id: row.passage_ids[n] ?? "", text, source, start, end, metadata: n ? {} : row.metadata };
    });
    const trial = { kind: "review", question, accepted: false, feedback: comment ?? data.reason };
    const given = { tree_id: row.tree_id, chat_history: row.chat_history, standalone: row.metadata?.standalone_question };
    const others = Object.fromEntries(Object.entries(given).filter(([, value]) => value?.length));
    return {
      passages: passages.length ? passages : [{ text: "", source: "", start: 0, end: 0 }],
      question, reference, evolution: row.evolution, answerable: row.answerable, metadata: { id: row.id }, ...others, history: [...attempts, trial], rejected: data.reason,
    };
  }

  function labelFile() {
    const cell = (text) => `"${text.replaceAll('"', '""')}"`;
    const harmless = (text) => (/^[' ]*[=+\-@\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text); // else a spreadsheet sees a formula
    const lines = items.map((item, place) => {
      const { verdict = "", comment = "" } = decisions.get(place) ?? {};
      return [item.cell, verdict, harmless(comment)].map(cell).join(",");
    });
    return ["\ufeffid,label,comment", ...lines, ""].join("\r\n");
  }

  function save() {
    const [text, type] = testset ? [testsetFile(), "application/jsonl"] : [labelFile(), "text/csv"];
    const url = URL.createObjectURL(new Blob([text], { type }));
    element("a", { href: url, download: data.file }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    unsaved = false;
    byId("progress").textContent = fillTemplate(words[`saved_${data.kind}`], { ...counts(), file: data.file });
  }

  // Keys

  const labels = data.verdicts ?? [];
  const nameOfLabel = ({ value }) => ({ yes: words.label_yes, no: words.label_no })[value] ?? value;
  const commands = [
    ...(testset ? [
      { key: "a", verdict: "kept", name: () => words.keep, run: () => decide("kept") },
      { key: "d", verdict: "dropped", name: () => words.drop, run: () => decide("dropped") },
      { key: "e", name: () => words.edit, run: edit, main: true },
    ] : labels.map((label) => ({ key: label.key, verdict: label.value, name: () => nameOfLabel(label), run: () => decide(label.value) }))),
    { key: "u", name: () => words.undo, run: undo, main: true },
    { key: "k", keys: ["k", "←"], name: () => words.previous, run: () => move(-1), main: true },
    { key: "j", keys: ["j", "→"], name: () => words.next, run: () => move(1), main: true },
    { key: "n", name: () => words.next_undecided, run: nextUndecided },
    { key: "c", name: () => words.comment, run: () => byId("comment")?.focus() },
    { key: "/", name: () => words.search, run: () => { byId("list").classList.add("open"); form.elements.text.focus(); } },
    ...(testset ? [{ key: "r", name: () => words.rejected, run: () => (byId("rejected").hidden ? showRejected() : closeRejected()) }] : []),
    { key: "s", name: () => words.save, run: save },
    { key: "?", name: () => words.help, run: showHelp },
  ];

  function drawActions() {
    const buttons = commands.filter(({ verdict, main }) => verdict || main).map(({ key, keys = [key], verdict, name, run }) => {
      const kind = good(verdict) ? " good-verdict" : poor(verdict) ? " poor-verdict" : "";
      const button = element("button", { type: "button", className: verdict ? `verdict${kind}` : "minor" }, name(), element("kbd", { "aria-hidden": "true" }, keys[0].toUpperCase()));
      if (settings.keys) button.setAttribute("aria-keyshortcuts", key);
      if (verdict) { button.dataset.verdict = verdict; button.setAttribute("aria-pressed", "false"); }
      button.addEventListener("click", run);
      return button;
    });
    buttons.splice(commands.findLastIndex(({ verdict }) => verdict) + 1, 0, element("span", { className: "break" }));
    const instruction = data.instruction?.[language];
    const scale = labels.length && labels[0].value !== "yes" ? ` ${fillTemplate(words.grades, { lowest: labels[0].value, highest: labels.at(-1).value })}` : "";
    actions.replaceChildren(...(instruction ? [element("p", { className: "instruction", dir: "auto" }, instruction + scale)] : []), ...buttons);
  }

  function showHelp() {
    const keysOn = element("input", { type: "checkbox", checked: settings.keys });
    keysOn.addEventListener("change", () => { settings.keys = keysOn.checked; store(settingsKey, settings); draw(); });
    const close = element("button", { type: "button", className: "main" }, words.close), again = element("button", { type: "button" }, words.start_over);
    close.addEventListener("click", () => help.close());
    again.addEventListener("click", () => {
      if (!confirm(words.start_over_sure)) return;
      decisions.clear();
      undoing = [];
      drawList();
      help.close();
      show(0);
      drawProgress();
    });
    help.replaceChildren(
      element("h2", { id: "keys-title" }, words.help_title),
      element("dl", {}, ...commands.flatMap(({ key, keys = [key], name }) => [element("dt", {}, ...keys.map((one) => element("kbd", {}, one.toUpperCase()))), element("dd", {}, name())])),
      element("p", {}, element("label", {}, keysOn, ` ${words.keys_on}`)),
      element("p", { className: "quiet" }, words.private),
      element("p", { className: "quiet" }, words.start_over_help),
      element("div", { className: "buttons" }, close, again),
    );
    if (!help.open) help.showModal();
    close.focus();
  }

  // Return the key as on a Latin keyboard, so that the keys work in every layout.
  function latinKey({ key, code, shiftKey }) {
    if (key === "?" || key === "/") return key;
    if (code === "Slash") return shiftKey ? "?" : "/";
    const letter = /^Key([A-Z])$/.exec(code)?.[1], digit = /^Digit(\d)$/.exec(code)?.[1];
    if (key.length === 1 && key > "\x7f" && letter) return letter.toLowerCase();
    return !/\d/.test(key) && digit && !shiftKey ? digit : key.length === 1 ? key.toLowerCase() : key;
  }

  addEventListener("keydown", (event) => {
    if (help.open || event.altKey) return;
    const typing = event.target.matches("input, select, textarea"), key = latinKey(event);
    if (event.key === "Escape" && (typing || !byId("rejected").hidden)) {
      closeRejected();
      byId("item-title")?.focus();
      return;
    }
    if (event.ctrlKey || event.metaKey) {
      const command = { s: save, z: typing ? null : undo }[key];
      if (command) { event.preventDefault(); command(); }
      return;
    }
    if (typing || !settings.keys) return;
    const inList = entries.contains(event.target), step = { ArrowRight: 1, ArrowLeft: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
    const command = step ? { run: () => move(step) } : commands.find((one) => one.key === key);
    if (event.repeat && !step && !["j", "k"].includes(key)) return; // a key held down decides about one row only
    if (!command || (!byId("rejected").hidden && !["r", "s", "?"].includes(key))) return;
    event.preventDefault();
    command.run();
    if (step && inList) entries.querySelector("[aria-current]")?.focus();
  });

  // The page as a whole, in its language

  function draw() {
    document.documentElement.lang = language;
    document.documentElement.classList.toggle("keys-off", !settings.keys);
    for (const node of document.querySelectorAll("[data-word]")) node.textContent = words[node.dataset.word];
    byId("language").lang = language === "ru" ? "en" : "ru";
    document.title = byId("title").textContent = data.title[language];
    byId("show-rejected").hidden = !testset;
    byId("show-rejected").textContent = fillTemplate(words.rejected_count, { count: rejected.length });
    const verdicts = testset ? ["kept", "edited", "dropped"] : labels.map(({ value }) => value);
    optionsOf(form.elements.verdict, [["", words.all], ["undecided", words.undecided], ...verdicts.map((one) => [one, verdictName(one)])], form.elements.verdict.value);
    const evolutions = [...new Set(items.map(({ row }) => row.evolution).filter(Boolean))];
    byId("evolutions").hidden = evolutions.length < 2;
    optionsOf(form.elements.evolution, [["", words.any_evolution], ...evolutions.map((one) => [one, kindName(one)])], form.elements.evolution.value);
    drawActions();
    drawList();
    drawProgress();
  }

  byId("save").addEventListener("click", save);
  byId("help").addEventListener("click", showHelp);
  byId("show-rejected").addEventListener("click", showRejected);
  byId("show-list").addEventListener("click", () => {
    byId("show-list").setAttribute("aria-expanded", byId("list").classList.toggle("open"));
  });
  byId("language").addEventListener("click", () => {
    language = language === "ru" ? "en" : "ru";
    words = texts[language];
    draw();
    show(current, { focus: false });
  });
  let typing;
  form.addEventListener("input", (event) => {
    clearTimeout(typing);
    if (event.target === form.elements.text) typing = setTimeout(drawList, 120);
    else drawList();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    drawList();
    if (matching.length) show(matching.includes(current) ? current : matching[0]);
  });

  function placeInAddress() {
    const place = Number(/^#row=(\d+)$/.exec(location.hash)?.[1] ?? 0) - 1;
    return items[place] ? place : null;
  }

  addEventListener("hashchange", () => { if (placeInAddress() !== null) show(placeInAddress()); });
  draw();
  if (items.length) show(placeInAddress() ?? (items[stored.current] ? stored.current : 0), { focus: false });
  else { drawItem(); closeRejected(); }
  document.documentElement.dataset.ready = "true";
})();
