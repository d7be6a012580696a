// A run as a picture: a lane for the model, one for each tool, bars for what took time, marks for what happened.
import { duration, s } from "./dom.js";

const LANE = 26;
const LEFT = 92;

/** Find the bars and marks of the last run. Pure: a view and the time now in, {bars, marks, begin, end} out. */
export function lastRun(view, now) {
  const said = (entry) => entry.kind === "pi.user";
  const first = view.entries.findLastIndex((entry) => said(entry) && entry.byTaskId === undefined);
  const begin = first < 0 ? view.entries.findIndex(said) : first; // a summary may have taken the place of the first input
  if (begin < 0) return null;
  const bars = [];
  const marks = [];
  const calls = new Map();
  for (const entry of view.entries.slice(begin)) for (const message of entry.model ?? []) note(entry, message, bars, marks, calls);
  running(view, now, bars, calls);
  const ended = Math.max(...bars.map((bar) => bar.to));
  const during = marks.filter((mark) => mark.what !== "note" || mark.at <= ended); // what was said while it was idle is no part
  const times = [...bars.flatMap((bar) => [bar.from, bar.to]), ...during.map((mark) => mark.at)];
  return { bars, marks: during, begin: Math.min(...times), end: Math.max(...times) };
}

function note(entry, message, bars, marks, calls) {
  const { role, timestamp: at, durationMs: took } = message;
  if (role === "user") marks.push({ at, what: told(entry) });
  else if (role === "assistant") {
    const failed = ["error", "aborted"].includes(message.stopReason);
    bars.push({ lane: "model", from: at, to: at + (took ?? 0), state: failed ? "failed" : "done", what: failed ? `failed: ${message.stopReason}` : "answer" });
    for (const block of message.content) if (block.type === "toolCall") calls.set(block.id, { name: block.name, from: at + (took ?? 0) });
  } else if (role === "toolResult") {
    const interrupted = (entry.data?.diagnostics ?? []).some((one) => one.code === "interrupted");
    const state = interrupted ? "crashed" : message.isError ? "failed" : "done";
    bars.push({ lane: message.toolName, from: took === undefined ? calls.get(message.toolCallId)?.from ?? at : at - took, to: at, state, what: interrupted ? "interrupted by a crash" : state });
    if (interrupted) marks.push({ at, what: "crash" });
    calls.delete(message.toolCallId);
  }
}

function told(entry) {
  if (entry.kind !== "pi.user") return entry.kind === "pi.compaction" ? "summary" : "note";
  return entry.byTaskId === undefined ? "input" : "steer";
}

function running(view, now, bars, calls) {
  const live = view.docs["pi.live"] ?? {};
  const { generation } = live;
  if (generation) {
    const from = generation.message?.timestamp ?? Math.max(...bars.map((bar) => bar.to), 0);
    const state = generation.retry || generation.deferred ? "waiting" : "running";
    bars.push({ lane: "model", from: from || now, to: now, state, what: generation.retry ? `attempt ${generation.attempt}, waiting` : "answering" });
  }
  for (const slot of live.tools ?? []) {
    const call = calls.get(slot.callId);
    if (call) bars.push({ lane: slot.name, from: call.from, to: now, state: slot.approval ? "waiting" : "running", what: slot.approval ? "waits for approval" : "running" });
  }
}

/** Draw the last run. */
export function drawTimeline(section, view) {
  const run = lastRun(view, Date.now());
  const picture = section.querySelector(".picture");
  section.querySelector(".quiet").hidden = run !== null;
  if (run === null) return picture.replaceChildren();
  const lanes = [...new Set(["model", ...run.bars.map((bar) => bar.lane)])];
  const width = Math.max(picture.clientWidth, 240);
  const span = Math.max(run.end - run.begin, 1);
  const at = (time) => LEFT + ((time - run.begin) / span) * (width - LEFT - 12);
  const height = lanes.length * LANE + 40;
  const drawing = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(run) },
    lanes.map((lane, index) => s("g", { class: "lane" },
      s("text", { x: 4, y: index * LANE + 34 }, lane.length > 13 ? `${lane.slice(0, 12)}…` : lane),
      s("line", { x1: LEFT, x2: width - 8, y1: index * LANE + 30, y2: index * LANE + 30 }))),
    run.bars.map((bar) => s("rect", { class: "bar", "data-state": bar.state, x: at(bar.from), y: lanes.indexOf(bar.lane) * LANE + 22, width: Math.max(at(bar.to) - at(bar.from), 3), height: 16, rx: 4 },
      s("title", {}, `${bar.lane}: ${bar.what}, ${duration(bar.to - bar.from)}`))),
    run.marks.map((mark) => s("g", { class: "mark", "data-what": mark.what },
      s("line", { x1: at(mark.at), x2: at(mark.at), y1: 14, y2: lanes.length * LANE + 18 }),
      s("text", { x: Math.min(at(mark.at) + 3, width - 40), y: 11 }, mark.what))),
    s("text", { class: "scale", x: LEFT, y: height - 6 }, "0"),
    s("text", { class: "scale", x: width - 8, y: height - 6, "text-anchor": "end" }, duration(span)));
  return picture.replaceChildren(drawing);
}

function spoken(run) {
  const told = run.bars.map((bar) => `${bar.lane}: ${bar.what}, ${duration(bar.to - bar.from)}`);
  return `Timeline of ${duration(run.end - run.begin)}. ${told.join("; ")}`;
}
