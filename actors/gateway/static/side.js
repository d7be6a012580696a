// What stands around a transcript: the conversations as a tree, the people, the inbox, usage and cost.
import { h, keep, textOf } from "./dom.js";

// --- conversations

/** Draw all conversations as a tree: forks below what they fork, subagents' below the conversation that owns them. */
export function drawConversations(parent, list, current, open) {
  const all = Object.values(list.conversations);
  const below = Map.groupBy ? Map.groupBy(all, (one) => aboveOf(one, list)) : grouped(all, (one) => aboveOf(one, list));
  const branch = (above) => (below.get(above) ?? []).map((one) => {
    const children = branch(one.id);
    return h("li", {},
      h("button", { type: "button", "aria-current": one.id === current && "page", onclick: () => open(one.id) }, title(one)),
      children.length > 0 && h("ul", {}, children));
  });
  const focused = parent.contains(document.activeElement) ? document.activeElement.textContent : null;
  parent.replaceChildren(...branch(0));
  if (list.omitted) parent.prepend(h("li", { class: "quiet" }, "older ones are not listed"));
  if (focused) [...parent.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
  const shown = parent.querySelector("[aria-current]");
  if (shown && parent.dataset.current !== String(current)) { // once: nobody's scrolling is disturbed by what others create
    shown.scrollIntoView({ block: "nearest" });
    parent.dataset.current = current;
  }
}

function aboveOf(one, list) {
  const above = one.owner?.conversationId ?? one.parent?.conversationId ?? 0;
  return list.conversations[above] ? above : 0;
}

function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

export function title(one) {
  if (one.id === 1) return "Main conversation";
  if (one.owner) return `Subagent ${one.id}`;
  return one.parent ? `Fork ${one.id}, at ${one.parent.at}` : `Conversation ${one.id}`;
}

/** Say where a conversation comes from, with a way back. */
export function drawWhence(parent, one, open) {
  const above = one?.owner?.conversationId ?? one?.parent?.conversationId;
  const why = one?.owner ? "Owned by a call in " : "Forked from ";
  parent.hidden = above === undefined;
  parent.replaceChildren(...(above === undefined ? [] : [why, h("button", { type: "button", class: "link", onclick: () => open(above) }, `conversation ${above}`)]));
}

// --- people

export function drawPeople(parent, { people }, you) {
  keep(parent, Object.entries(people).map(([id, one]) => ({
    key: id,
    parts: [one, you],
    make: () => h("li", { data: { typing: one.status === "typing" }, title: `looks at ${one.conversations.join(", ") || "the list"}` },
      id === you ? `${one.name} (you)` : one.name, one.status && h("small", {}, ` ${one.status}`)),
  })));
}

// --- the inbox

const MODES = { steer: "steer", followUp: "follow-up", write: "note" };

export function drawInbox(section, items, withdraw) {
  section.hidden = items.length === 0;
  keep(section.querySelector("ul"), items.map((item) => ({
    key: item.id,
    parts: [item],
    make: () => h("li", {}, h("span", { class: "badge" }, MODES[item.mode] ?? item.mode), " ",
      item.author && h("b", {}, `${item.author}: `), textOf(item.content) || item.entry?.kind || "",
      h("button", { type: "button", onclick: () => withdraw(item.id) }, "Withdraw")),
  })));
}

// --- usage

const money = (spent) => `$${spent.toFixed(spent < 0.1 ? 4 : 2)}`;

/** Draw what a conversation has spent: the sum, and behind it each model and tool. */
export function drawUsage(details, usage) {
  const rows = [...Object.entries(usage?.models ?? {}), ...Object.entries(usage?.tools ?? {})];
  const tokens = rows.reduce((sum, [, one]) => sum + one.totalTokens, 0);
  const cost = rows.reduce((sum, [, one]) => sum + (one.cost?.total ?? 0), 0);
  const summary = details.querySelector("summary");
  summary.textContent = `${tokens.toLocaleString()} tokens · ${money(cost)}`;
  summary.setAttribute("aria-label", `Usage and cost: ${summary.textContent}`);
  const head = h("tr", {}, ["", "in", "out", "cached", "cost"].map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map(([name, one]) => h("tr", {}, h("th", { scope: "row" }, name),
    [one.input, one.output, one.cacheRead].map((count) => h("td", {}, count.toLocaleString())), h("td", {}, money(one.cost?.total ?? 0))));
  details.querySelector("div").replaceChildren(h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}
