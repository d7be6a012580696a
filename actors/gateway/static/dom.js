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
        one.node.replaceWith(node);
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

function same(one, other) {
  return one.length === other.length && one.every((part, at) => part === other[at]);
}

/** Text with the little markup that models like: ``` fences and `code`. */
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
  const words = said.split(/(`[^`\n]+`)/).map((word) => (/^`.+`$/.test(word) ? h("code", {}, word.slice(1, -1)) : word));
  return h("div", { class: "prose" }, words);
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
