// The supervision tree as a picture: conversations and tasks below their owners, and lines from who waits to what for.
import { h, s } from "./dom.js";

const ROW = 30;
const STEP = 18;

/** Put tasks and their conversations into rows, owners first. Pure. */
export function rows(tasks, list) {
  const made = [];
  const all = Object.values(tasks);
  const owned = new Set(all.flatMap((task) => task.conversations));
  const place = (row) => made.push({ ...row, at: made.length });
  const addTask = (task, depth) => {
    place({ key: `t${task.id}`, task, depth });
    for (const below of all.filter((one) => one.owner === task.id)) addTask(below, depth + 1);
    for (const conversation of task.conversations) addConversation(conversation, depth + 1);
  };
  const addConversation = (id, depth) => {
    const own = all.filter((task) => task.conversationId === id && !tasks[task.owner]);
    if (own.length === 0 && depth === 0) return;
    place({ key: `c${id}`, conversation: id, depth });
    for (const task of own) addTask(task, depth + 1);
  };
  const tops = new Set(all.map((task) => task.conversationId).filter((id) => !owned.has(id)));
  for (const id of [...tops].sort((one, other) => one - other)) addConversation(id, 0);
  return made;
}

/** Draw the tree. `open(conversation)` is what a click on a conversation does. */
export function drawTree(section, tasks, list, open) {
  const made = rows(tasks, list);
  const picture = section.querySelector(".picture");
  section.querySelector(".quiet").hidden = made.length > 0;
  const width = Math.max(picture.clientWidth, 240);
  const byTask = new Map(made.filter((row) => row.task).map((row) => [row.task.id, row]));
  const drawing = s("svg", { width, height: made.length * ROW + 8, viewBox: `0 0 ${width} ${made.length * ROW + 8}`, role: "group", "aria-label": spoken(made) },
    made.map((row) => elbow(row, made)), made.flatMap((row) => waits(row, byTask, width)), made.map((row) => node(row, open, width)));
  picture.replaceChildren(...(made.length ? [drawing] : []));
}

const x = (row) => 12 + row.depth * STEP;
const y = (row) => row.at * ROW + ROW / 2 + 4;

function elbow(row, made) {
  if (row.depth === 0) return null;
  const above = made.slice(0, row.at).reverse().find((one) => one.depth === row.depth - 1);
  return s("path", { class: "elbow", d: `M${x(above)} ${y(above) + 7} V${y(row)} H${x(row) - 7}` });
}

/** A dashed line on the right side for each task that is waited for. */
function waits(row, byTask, width) {
  const targets = (row.task?.on ?? []).map((id) => byTask.get(id)).filter(Boolean);
  return targets.map((target) => {
    const reach = Math.min(10 + 5 * Math.abs(target.at - row.at), 40);
    return s("path", { class: "waits", d: `M${width - 48} ${y(row)} C${width - 48 + reach} ${y(row)} ${width - 48 + reach} ${y(target)} ${width - 48} ${y(target)}` });
  });
}

export function statusOf(task) {
  return task.blocked ? "blocked" : task.status;
}

function label(row) {
  if (row.conversation) return row.conversation === 1 ? "main conversation" : `conversation ${row.conversation}`;
  const { task } = row;
  const more = [task.phase, task.blocked, task.abortRequested && "aborting", task.background && "background", task.restarts && `${task.restarts} restarts`];
  return `${task.kind.replace(/^pi\./, "")} ${task.id} · ${more.filter(Boolean).join(", ")}`;
}

function node(row, open, width) {
  const text = s("text", { x: x(row) + 12, y: y(row) + 4 }, clipped(label(row), (width - x(row) - 64) / 6.6));
  if (row.conversation) {
    const act = () => open(row.conversation);
    return s("g", { class: "conversation", tabindex: 0, role: "button", onclick: act, "aria-label": `open ${label(row)}`, onkeydown: (event) => { if ([" ", "Enter"].includes(event.key)) { event.preventDefault(); act(); } } },
      s("rect", { x: x(row) - 6, y: y(row) - 6, width: 12, height: 12, rx: 3 }), text);
  }
  const { task } = row;
  return s("g", { class: "task", "data-status": statusOf(task), "data-aborting": task.abortRequested || null, "data-background": task.background || null },
    s("title", {}, `${label(row)}: ${statusOf(task)}${task.blockedError ? ` (${task.blockedError})` : ""}`),
    s("circle", { cx: x(row), cy: y(row), r: 6 }), text);
}

function clipped(text, room) {
  return text.length > room ? `${text.slice(0, Math.max(4, room - 1))}…` : text;
}

function spoken(made) {
  return made.map((row) => (row.task ? `${label(row)}: ${statusOf(row.task)}` : label(row))).join("; ");
}

/** Draw what is known of the session's actors: how many live, and what was restarted. */
export function drawActors(parent, seen) {
  const flat = [];
  const walk = (actor) => { flat.push(actor); actor.children?.forEach(walk); };
  seen.actors.forEach(walk);
  const restarted = flat.filter((actor) => actor.restarts > 0).map((actor) => `${actor.id} ${actor.restarts}×`);
  const facts = {
    session: seen.givenUp ? "given up" : seen.active ? "awake" : "asleep",
    actors: String(flat.length),
    restarts: restarted.join(", ") || "none",
    "next deadline": seen.nextDeadline ? new Date(seen.nextDeadline).toLocaleString() : "none",
  };
  parent.replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
