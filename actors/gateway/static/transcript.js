// A conversation's view as cards: what people said, answers, thoughts, calls with their output and results, summaries.
import { atEnd, cited, duration, h, keep, prose, textOf } from "./dom.js";

/** Draw a view into `parent`. `act` is what buttons do: fork(entry), approve(slot), deny(slot), open(conversation). */
export function drawTranscript(parent, view, act) {
  const bottom = atEnd(parent, 60);
  keep(parent, cards(view, act));
  if (bottom) toEnd(parent);
}

const toEnd = (parent) => { parent.scrollTop = parent.scrollHeight; };

/** Stay at the end when a picture has come, for whoever was there. */
export function stayAtEnd(parent) {
  parent.addEventListener("load", ({ target }) => { if (atEnd(parent, target.height + 60)) toEnd(parent); }, true);
}

/** Name the results of calls, and what is shown of calls that run, by call id. */
function gather(view) {
  const results = new Map();
  for (const entry of view.entries) {
    for (const message of entry.model ?? []) if (message.role === "toolResult") results.set(message.toolCallId, entry);
  }
  const slots = new Map((view.docs["pi.live"]?.tools ?? []).map((slot) => [slot.callId, slot]));
  return { results, slots };
}

function cards(view, act) {
  const found = gather(view);
  const made = view.entries.flatMap((entry) => card(entry, found, act) ?? []);
  const { generation, compactions } = view.docs["pi.live"] ?? {};
  if (generation) made.push({ key: "generation", parts: [generation], make: (node) => generating(generation, node, act) });
  for (const one of compactions ?? []) made.push({ key: `c${one.taskId}`, parts: [one], make: () => compacting(one) });
  return made;
}

function card(entry, found, act) {
  const key = `e${entry.id}`;
  const [message] = entry.model ?? [];
  if (entry.kind === "pi.tool-result") return null;
  if (entry.kind === "pi.system") return { key, parts: [entry], make: () => prompt(entry) };
  if (entry.kind === "pi.user") return { key, parts: [entry], make: () => input(entry, act) };
  if (entry.kind !== "pi.assistant") return { key, parts: [entry], make: () => other(entry, act) };
  const calls = message.content.filter((block) => block.type === "toolCall");
  const about = calls.flatMap(({ id }) => [found.results.get(id), found.slots.get(id)]);
  return { key, parts: [entry, ...about], make: () => answer(entry, message, found, act) };
}

// --- people

function input(entry, act) {
  const [message] = entry.model;
  const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  return article("user", entry, entry.data?.author ?? "user", message.timestamp, blocks.map(shown), forkButton(entry, act));
}

function article(role, entry, who, at, ...children) {
  const time = at && h("time", { datetime: new Date(at).toISOString() }, new Date(at).toLocaleTimeString());
  return h("article", { class: role, data: { entry: entry?.id ?? "" }, "aria-label": who },
    h("header", {}, h("b", {}, who), " ", time), children);
}

function forkButton(entry, act) {
  return h("button", { type: "button", class: "fork", onclick: () => act.fork(entry.id) }, "Fork from here");
}

function shown(block) {
  if (block.type === "text") return prose(block.text);
  if (block.type === "image" && /^image\/(png|jpeg|gif|webp)$/.test(block.mimeType)) {
    return h("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: "a picture that was sent", loading: "lazy" });
  }
  return h("em", {}, `[${block.type}]`);
}

// --- answers

function answer(entry, message, found, act) {
  const spent = message.usage?.totalTokens ? `${message.usage.totalTokens.toLocaleString()} tokens` : "";
  const took = message.durationMs === undefined ? "" : duration(message.durationMs);
  const footer = h("footer", {}, [message.model, took, spent].filter(Boolean).join(" · "), " ", forkButton(entry, act));
  return article("assistant", entry, "assistant", message.timestamp,
    message.content.map((block) => part(block, found, act)), trouble(message), footer);
}

function part(block, found, act) {
  if (block.type === "thinking") return thought(block);
  if (block.type === "toolCall") return call(block, found.slots.get(block.id), found.results.get(block.id), act);
  return shown(block);
}

function thought(block) {
  const said = block.thinking || "(not shown by the provider)";
  return h("details", { class: "thinking" }, h("summary", {}, "Thinking"), h("div", { class: "prose" }, said));
}

function trouble(message) {
  if (!["error", "aborted", "length"].includes(message.stopReason)) return null;
  const why = { aborted: "stopped", length: "cut off: the model's limit was reached" }[message.stopReason];
  return h("p", { class: "trouble" }, why ?? `failed: ${message.error?.message ?? message.errorMessage ?? "unknown"}`);
}

/** The answer that is being written. Only its text grows, so the card stays and assistive technology is told at the end. */
function generating(generation, node, act) {
  const { message, attempt, retry, deferred } = generation;
  const none = { slots: new Map(), results: new Map() };
  const state = retry ? waiting("Trying again", retry) : deferred ? waiting("Waiting for the provider", deferred) : null;
  const body = [
    attempt > 1 && h("p", { class: "trouble" }, `attempt ${attempt}`),
    (message?.content ?? []).map((block) => part(block, none, act)),
    state ?? h("p", { class: "working" }, h("span", {}, message ? "writing" : "thinking")),
  ];
  const card = node ?? h("article", { class: "assistant live", "aria-busy": "true", "aria-label": "assistant, writing" });
  card.replaceChildren(h("header", {}, h("b", {}, "assistant")), ...body.flat(3).filter(Boolean));
  return card;
}

function waiting(what, { at, error }) {
  const when = at ? ` at ${new Date(at).toLocaleTimeString()}` : "";
  return h("p", { class: "trouble" }, `${what}${when}${error ? `: ${typeof error === "string" ? error : error.message}` : ""}`);
}

// --- calls

function call(block, slot, entry, act) {
  const result = entry?.model?.find((message) => message.toolCallId === block.id);
  const state = result ? (result.isError ? "failed" : "done") : slot?.approval ? "approval" : slot?.status ?? "pending";
  const details = result?.details ?? slot?.details;
  const remarks = entry?.data?.diagnostics ?? slot?.diagnostics;
  const output = result ? withoutRemarks(textOf(result.content), remarks) : slot?.output ?? "";
  const took = result?.durationMs === undefined ? "" : ` · ${duration(result.durationMs)}`;
  const told = remarks?.some((one) => one.code === "interrupted") ? "interrupted by a crash" : STATES[state] ?? state;
  return h("section", { class: "call", data: { state, call: block.id }, "aria-label": `call of ${block.name}` },
    h("header", {}, h("b", {}, block.name), " ", h("span", { class: "badge" }, `${told}${took}`)),
    h("details", {}, h("summary", {}, "Arguments"), json(block.arguments)),
    slot?.approval && !result && approval(slot, act),
    output && h("pre", { class: "output", tabindex: 0, "aria-label": "output" }, cited(output)),
    diagnostics(remarks),
    child(details, act));
}

/** What a tool has said, without the remarks that the model reads at its end: they are shown beside it. */
function withoutRemarks(output, remarks) {
  return remarks?.length ? output.replace(/\n*<harness>\n(?:(?!<harness>)[\s\S])*<\/harness>\s*$/, "") : output;
}

const STATES = { approval: "waits for approval", pending: "about to run" };

function json(value) {
  return h("pre", { tabindex: 0, "aria-label": "JSON" }, JSON.stringify(value, null, 2));
}

function approval(slot, act) {
  return h("div", { class: "approval", role: "group", "aria-label": `approve ${slot.name}?` },
    h("p", {}, "May this run, with exactly these arguments?"), json(slot.approval.arguments),
    h("button", { type: "button", onclick: () => act.approve(slot) }, "Approve"),
    h("button", { type: "button", class: "deny", onclick: () => act.deny(slot) }, "Deny"));
}

function diagnostics(list) {
  if (!list?.length) return null;
  const lines = list.map((one) => h("li", { data: { severity: one.severity } }, `${one.severity ?? one.level ?? one.code ?? "note"}: ${one.message ?? JSON.stringify(one)}`));
  return h("ul", { class: "diagnostics", "aria-label": "diagnostics" }, lines);
}

/** A link to the conversation of a subagent, from the call that owns it. */
function child(details, act) {
  const id = details?.conversationId;
  return Number.isInteger(id) && h("button", { type: "button", class: "child", onclick: () => act.open(id) }, `Open the subagent's conversation ${id}`);
}

// --- the rest

function prompt(entry) {
  const [message] = entry.model ?? [];
  const tools = (message?.toolsAdded ?? []).map((tool) => tool.name);
  const what = tools.length ? `Prompt and tools: ${tools.join(", ")}` : "Prompt";
  return h("details", { class: "system", data: { entry: entry.id } }, h("summary", {}, what), h("div", { class: "prose" }, message?.content ?? ""));
}

const TITLES = {
  "pi.compaction": "Summary of what came before", "perdure.lookup": "Looked up as scheduled", "room.note": "Note",
};

function other(entry, act) {
  const said = (entry.model ?? []).map((message) => textOf(message.content)).join("\n");
  const title = TITLES[entry.kind] ?? entry.kind.replace(/^pi\./, "");
  if (entry.head !== undefined) return h("details", { class: "head", data: { entry: entry.id } }, h("summary", {}, title), prose(said));
  const who = entry.data?.author ? `${entry.data.author} · ${title}` : title;
  return article("note", entry, who, undefined, said ? prose(said) : json(entry.data ?? {}), child(entry.data, act));
}

function compacting(one) {
  const state = one.retry ? waiting("Summarizing is tried again", one.retry) : h("p", { class: "working" }, h("span", {}, "summarizing what came before"));
  return h("article", { class: "note" }, state);
}
