// The page: one session, one conversation of it at a time. Everything it knows comes from the gateway and is drawn again from
// there, so a page that was away, or a daemon that was killed, changes nothing but the moment.
//
// The address is  #token=...&session=...&conversation=...&name=...  (a fragment is never sent anywhere). The token moves into
// the tab's storage at once, so that it stays out of the history and out of links that people copy.
import { Client } from "./perdure.js";
import { drawConversations, drawInbox, drawPeople, drawUsage, drawWhence, title } from "./side.js";
import { drawTimeline } from "./timeline.js";
import { drawTranscript, stayAtEnd } from "./transcript.js";
import { drawActors, drawTree } from "./tree.js";

const find = (selector) => document.querySelector(selector);
const given = new URLSearchParams(location.hash.slice(1));
const me = {
  token: given.get("token") ?? sessionStorage.getItem("perdure.token") ?? "",
  name: given.get("name") ?? localStorage.getItem("perdure.name") ?? "",
  session: given.get("session") ?? "main",
  conversation: Number(given.get("conversation")) || null,
};
const seen = { view: null, list: { conversations: {} }, tasks: {}, people: { people: {} } };
let client = null;
let following = null;
let drawing = false;

// --- coming in

function enter(why = "") {
  const dialog = find("#enter");
  find("#why").textContent = why;
  for (const field of ["name", "session", "token"]) dialog.querySelector(`[name=${field}]`).value = me[field];
  dialog.returnValue = "";
  dialog.addEventListener("close", () => {
    find("#come-in").hidden = dialog.returnValue === "enter";
    if (dialog.returnValue !== "enter") return;
    for (const field of ["name", "session", "token"]) me[field] = dialog.querySelector(`[name=${field}]`).value.trim();
    me.conversation = null;
    start();
  }, { once: true });
  dialog.showModal();
}

function remember() {
  sessionStorage.setItem("perdure.token", me.token);
  localStorage.setItem("perdure.name", me.name);
  const address = new URLSearchParams({ session: me.session, ...(me.conversation && { conversation: me.conversation }) });
  history.replaceState(null, "", `#${address}`);
}

async function start() {
  if (!me.token || !me.name) return enter();
  client?.close();
  document.title = `${me.session} · perdure`;
  client = new Client({ url: new URL("socket", location.href), token: me.token, name: me.name });
  client.addEventListener("state", drawState);
  client.addEventListener("refused", ({ detail }) => {
    if (detail.code === "wrong_token") enter("That token is not known here.");
    else tell(detail.message);
  });
  find("#session").textContent = me.session;
  try {
    const { conversation } = await client.command({ type: "open", session: me.session });
    client.attach({ session: me.session, what: "conversations" }, (list) => take("list", list));
    client.attach({ session: me.session, what: "tasks" }, (tasks) => take("tasks", tasks));
    client.attach({ session: me.session, what: "presence" }, (people) => take("people", people));
    open(me.conversation ?? conversation);
  } catch (error) {
    if (error.code !== "closed") tell(error.message);
  }
}

/** Show a conversation, from an `entry` on if one is named; where the keyboard is goes to `focus`, if that is named. */
function open(conversation, { entry = null, focus = null } = {}) {
  following?.detach();
  me.conversation = conversation;
  me.entry = entry;
  remember();
  seen.view = null;
  find("#transcript").replaceChildren();
  find("#transcript").kept = undefined;
  find("#transcript").setAttribute("aria-live", "off"); // what was there before is not news
  following = client.attach({ session: me.session, what: "conversation", conversation }, (view) => {
    if (following?.ended) tell(`This conversation cannot be shown: ${following.ended}`);
    else take("view", view);
  });
  show("talk");
  if (focus) find(focus).focus();
  draw();
}

const goTo = (conversation, entry) => open(conversation, { entry, focus: "#talk-title" });

// --- drawing: at most once a frame, from what was seen last

function take(what, value) {
  seen[what] = value;
  draw();
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawAll();
  });
}

const drawn = new Map();

/** Draw a part of the page, unless it was drawn from the same objects before: an answer that grows touches its card alone. */
function part(name, parts, make) {
  const before = drawn.get(name);
  if (before && before.every((one, at) => one === parts[at])) return;
  drawn.set(name, parts);
  make();
}

function drawAll() {
  const { list, people, tasks, view } = seen;
  const wide = find("#room").clientWidth;
  part("list", [list, me.conversation], () => drawConversations(find("#list"), list, me.conversation, goTo));
  part("people", [people, client?.you?.id], () => drawPeople(find("#people"), people ?? { people: {} }, client?.you?.id));
  part("tree", [tasks, wide, find("#room").dataset.showing], () => drawTree(find("#tree"), tasks ?? {}, list, goTo));
  const here = list.conversations[me.conversation];
  part("here", [here, me.conversation], () => {
    find("#talk-title").textContent = here ? title(here) : "Conversation";
    drawWhence(find("#whence"), here, goTo);
  });
  if (!view) return;
  const { docs } = view;
  const { run, tools, generation } = docs["pi.live"] ?? {};
  drawTranscript(find("#transcript"), view, acts);
  part("inbox", [docs["pi.inbox"]?.items], () => drawInbox(find("#inbox"), docs["pi.inbox"]?.items ?? [], withdraw));
  part("usage", [docs["pi.usage"]], () => drawUsage(find("#usage"), docs["pi.usage"]));
  const shown = [view.entries, tools, generation?.attempt, wide, find("#room").dataset.showing];
  part("timeline", shown, () => drawTimeline(find("#timeline"), view));
  document.body.dataset.busy = run !== undefined;
  find("#abort").disabled = run === undefined;
  arrive();
}

/** What is to be done once a conversation that was opened is there: go to the entry that was asked for, and tell what comes. */
function arrive() {
  const transcript = find("#transcript");
  if (transcript.getAttribute("aria-live") === "off") requestAnimationFrame(() => transcript.setAttribute("aria-live", "polite"));
  const wanted = me.entry && transcript.querySelector(`[data-entry="${me.entry}"]`);
  me.entry = null;
  if (!wanted) return;
  wanted.tabIndex = -1;
  wanted.scrollIntoView({ block: "center" });
  wanted.focus({ preventScroll: true });
}

function drawState() {
  find("#state").textContent = { open: "connected", waiting: "connection lost, trying again" }[client.state] ?? client.state;
  find("#state").dataset.state = client.state;
}

function tell(message) {
  const notice = find("#notice");
  notice.textContent = message;
  notice.hidden = !message;
}

// --- doing

async function act(command) {
  tell("");
  try {
    return await client.command({ session: me.session, conversation: me.conversation, ...command });
  } catch (error) {
    tell(error.message);
    return null;
  }
}

const withdraw = (submission) => act({ type: "withdraw", submission });

const acts = {
  open: goTo,
  async fork(at) {
    const made = await act({ type: "fork", at });
    if (made) open(made.conversation, { focus: "#text" });
  },
  approve: (slot) => act({ type: "approve", call: slot.callId, hash: slot.approval.hash }),
  deny: (slot) => act({ type: "deny", call: slot.callId, hash: slot.approval.hash }),
};

function send() {
  const field = find("#text");
  const text = field.value.trim();
  if (!text) return;
  const mode = find("#mode input:checked").value;
  if (mode === "write") act({ type: "write", kind: "room.note", text, data: { text } });
  else act({ type: "submit", content: text, whenBusy: mode });
  field.value = "";
  client.status(me.session, null);
}

find("#composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
find("#text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
find("#text").addEventListener("input", (event) => client?.status(me.session, event.target.value ? "typing" : null));
find("#abort").addEventListener("click", () => act({ type: "abort" }));
find("#create").addEventListener("click", async () => {
  const made = await act({ type: "create", conversation: undefined });
  if (made) open(made.conversation, { focus: "#text" });
});
stayAtEnd(find("#transcript"));
find("#transcript").addEventListener("cite", ({ detail }) => goTo(detail.conversation, detail.entry));
find("#come-in").addEventListener("click", () => enter());

// --- what is shown where there is no room for all of it

function show(place) {
  find("#room").dataset.showing = place;
  for (const button of document.querySelectorAll("#places button")) {
    if (button.dataset.show === place) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  draw();
}

for (const button of document.querySelectorAll("#places button")) button.addEventListener("click", () => show(button.dataset.show));
new ResizeObserver(draw).observe(find("#room"));

// --- what no commit tells: time that passes, and what is in the daemon's memory

setInterval(() => { if (document.body.dataset.busy === "true" && !document.hidden && seen.view) drawTimeline(find("#timeline"), seen.view); }, 500);
setInterval(async () => {
  if (document.hidden || client?.state !== "open") return;
  const address = new URL(`api/inspect?${new URLSearchParams({ session: me.session })}`, location.href);
  const answer = await fetch(address, { headers: { authorization: `Bearer ${me.token}` } }).catch(() => null);
  if (answer?.ok) drawActors(find("#actors"), await answer.json());
}, 2_000);

window.perdure = { get client() { return client; } }; // for whoever looks under the bonnet, and for tests
start();
