// Making and keeping up DOM nodes. Text always becomes text: nothing that anybody said is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes, `on...` listeners, `data` for data-attributes; children are nodes or text. */
export function h(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

/** Make an element of a drawing. */
export function s(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "data") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/**
 * Keep the children of `parent` in step with `items`, {key, parts, make}: a child is made again only when one of its parts
 * is another object than before, so what did not change keeps its focus, selection and place.
 */
export function keep(parent, items) {
  const before = parent.kept ?? new Map();
  const after = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    let one = before.get(item.key);
    if (!one || !same(one.parts, item.parts)) {
      const node = item.make(one?.node);
      if (one && one.node !== node) {
        if (place === one.node) place = node;
        exchange(one.node, node);
      }
      one = { node, parts: item.parts };
    }
    if (one.node === place) place = place.nextSibling;
    else parent.insertBefore(one.node, place);
    after.set(item.key, one);
  }
  for (const [key, { node }] of before) if (!after.has(key)) node.remove();
  parent.kept = after;
}

/** Put a node in another's place, and leave as it was what somebody had opened, scrolled or focused in it. */
function exchange(old, node) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const opened = [...old.querySelectorAll("details")].map((one) => one.open);
  const outputs = [...old.querySelectorAll(".output")].map((one) => ({ top: one.scrollTop, end: atEnd(one, 8) }));
  old.replaceWith(node);
  node.querySelectorAll("details").forEach((one, at) => { one.open = opened[at] ?? one.open; });
  node.querySelectorAll(".output").forEach((one, at) => { one.scrollTop = outputs[at]?.end ?? true ? one.scrollHeight : outputs[at].top; });
  if (focused) focusAgain(node, focused);
}

function focusAgain(node, focused) {
  const like = [...node.querySelectorAll(focused.tagName)].find((one) => one.textContent === focused.textContent);
  if (!like) node.tabIndex = -1;
  (like ?? node).focus({ preventScroll: true });
}

/** Whether an element is scrolled to its end, give or take `slack` pixels. */
export function atEnd(element, slack) {
  return element.scrollHeight - element.scrollTop - element.clientHeight < slack;
}

function same(one, other) {
  return one.length === other.length && one.every((part, at) => part === other[at]);
}

const CITED = /(\[conversation \d+, entry \d+\])/;
const MARKS = /(`[^`\n]+`|\[conversation \d+, entry \d+\])/;

/** Text with the little markup that models like: ``` fences, `code`, and what they cite, as links that send "cite". */
export function prose(text) {
  return text.split(/^```/m).map((part, at) => (at % 2 ? fenced(part) : plain(part)));
}

function fenced(part) {
  const [language, ...lines] = part.split("\n");
  return h("pre", { tabindex: 0, "aria-label": `code ${language}`.trim() }, h("code", {}, lines.join("\n").replace(/\n$/, "")));
}

function plain(part) {
  const said = part.replace(/^\n+|\n+$/g, "");
  if (!said) return null;
  const words = said.split(MARKS).map((word, at) => (at % 2 === 0 ? word : word[0] === "`" ? h("code", {}, word.slice(1, -1)) : citation(word)));
  return h("div", { class: "prose" }, words);
}

/** Text as it is, but for links to what it cites. */
export function cited(said) {
  return said.split(CITED).map((word, at) => (at % 2 === 0 ? word : citation(word)));
}

function citation(said) {
  const [conversation, entry] = said.match(/\d+/g).map(Number);
  const cite = (event) => event.target.dispatchEvent(new CustomEvent("cite", { bubbles: true, detail: { conversation, entry } }));
  return h("button", { type: "button", class: "link", onclick: cite }, said);
}

/** The text of a message's content. */
export function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((block) => block.text ?? "").join("");
}

/** A number of milliseconds as people say it. */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
}
