"use strict";

// What the scripts of all pages share. Content is only set as text, never as HTML.

const LONG = 4000; // characters; of a longer text this much is shown at first

const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function bdi(text) {
  return element("bdi", {}, text);
}

// Return a paragraph; a long text is cut, with a button that shows the rest.
function foldedText(text, more) {
  const paragraph = element("p", { className: text.length > LONG ? "text long" : "text", dir: "auto" }, text.slice(0, LONG));
  if (text.length <= LONG) return paragraph;
  paragraph.tabIndex = 0; // scrolls
  const button = element("button", { type: "button" }, more);
  button.addEventListener("click", () => { paragraph.textContent = text; button.remove(); });
  return element("div", {}, paragraph, button);
}

// Return the JSON data of an embedded block: gzip in base64.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function fillTemplate(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// Return a text as the search compares it.
function normalizeText(text) {
  return text.toLowerCase().replaceAll("ё", "е");
}

byId("theme").hidden = false;
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
