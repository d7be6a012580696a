// perdure.js: follows and steers the sessions of a perdure gateway, from a browser or from Node. No dependencies.
//
//   const client = new Client({ url: "ws://127.0.0.1:8420/socket", token, name: "Ada" });
//   client.addEventListener("state", () => console.log(client.state));          // connecting, open, waiting, closed
//   const { conversation } = await client.command({ type: "open", session: "room" });
//   const following = client.attach({ session: "room", what: "conversation", conversation }, (view, ops) => draw(view));
//   await client.command({ type: "submit", session: "room", conversation, content: "Hello" });
//   following.detach();  client.close();
//
// What is followed is held as a plain value and kept up to date: the listener is called with the value after every commit.
// Parts that no commit has touched stay the same objects (===), so a page can tell cheaply what to draw again. Never change
// them. A connection that is lost is made again, with growing pauses; everything followed begins anew with the present value,
// and commands without an answer are sent again with the same requestId, so each runs once. docs/gateway.md has the protocol.

// --- operations --------------------------------------------------------------------------------------------------

export class ChordError extends Error {
  /** code: invalid-op, unsafe-path, out-of-range or path-missing. */
  constructor(code, message) {
    super(message);
    this.name = "ChordError";
    this.code = code;
  }
}

const RESERVED = new Set(["__proto__", "constructor", "prototype"]);
const isCount = (one) => Number.isInteger(one) && one >= 0;
const isText = (one) => typeof one === "string";
const isOrder = (one) => Array.isArray(one) && one.every(isCount) && new Set(one).size === one.length
  && one.every((index) => index < one.length);

// What follows verb and path, and whether the path may lead to the root.
const SHAPES = {
  s: { args: [() => true] },
  d: { args: [] },
  a: { args: [isText] },
  t: { args: [isCount] },
  p: { args: [isCount, isCount, Array.isArray], root: true },
  m: { args: [isOrder], root: true },
};

function fail(code, op) {
  throw new ChordError(code, `${code}: ${JSON.stringify(op)?.slice(0, 160)}`);
}

function checkSegment(segment, op) {
  const fine = isText(segment) ? !RESERVED.has(segment) : isCount(segment);
  if (!fine) fail("unsafe-path", op);
}

function fits(op, args) {
  const shape = SHAPES[op[0]];
  return args.length === shape.args.length && shape.args.every((takes, at) => takes(args[at]));
}

function check(op) {
  if (!Array.isArray(op) || !isText(op[0])) fail("invalid-op", op);
  if (op[0] === "r") {
    if (op.length !== 2) fail("invalid-op", op);
    return;
  }
  if (!Object.hasOwn(SHAPES, op[0]) || !Array.isArray(op[1]) || !fits(op, op.slice(2))) fail("invalid-op", op);
  if (op[1].length === 0 && !SHAPES[op[0]].root) fail("invalid-op", op);
}

/** Apply decoded operations and return the new value. What they do not touch is shared with the old one, which stays. */
export function apply(value, ops) {
  if (!Array.isArray(ops)) fail("invalid-op", ops);
  const owned = new Set();
  for (const op of ops) {
    check(op);
    value = op[0] === "r" ? op[1] : act(value, op, owned);
  }
  return value;
}

function act(root, op, owned) {
  const [verb, path] = op;
  if (verb === "p" || verb === "m") {
    const [changed, array] = descend(root, path, op, owned);
    if (!Array.isArray(array)) fail("path-missing", op);
    if (verb === "p") splice(array, op[2], op[3], op[4]);
    else reorder(array, op);
    return changed;
  }
  const [changed, parent] = descend(root, path.slice(0, -1), op, owned);
  VERBS[verb](parent, path.at(-1), op);
  return changed;
}

function own(node, owned) {
  if (node === null || typeof node !== "object" || owned.has(node)) return node;
  const copy = Array.isArray(node) ? node.slice() : { ...node };
  owned.add(copy);
  return copy;
}

function descend(root, path, op, owned) {
  root = own(root, owned);
  let node = root;
  for (const segment of path) {
    const place = placeIn(node, segment, op);
    if (place === undefined || !Object.hasOwn(node, place)) {
      for (const each of op[1]) checkSegment(each, op);
      fail("path-missing", op);
    }
    const child = own(node[place], owned);
    put(node, place, child);
    node = child;
  }
  return [root, node];
}

// The property that a segment means on an object or an array; undefined when it can mean none there.
function placeIn(node, segment, op) {
  if (Array.isArray(node)) return indexOf(segment, op);
  if (node === null || typeof node !== "object") return undefined;
  checkSegment(segment, op);
  return String(segment);
}

function indexOf(segment, op) {
  checkSegment(segment, op);
  if (isText(segment)) fail("unsafe-path", op);
  return segment;
}

function put(node, place, value) {
  if (place !== "__proto__") node[place] = value;
  else Object.defineProperty(node, place, { value, writable: true, enumerable: true, configurable: true });
}

// The place at the end of a path; in an array, up to and including the one after its end.
function slot(parent, segment, op) {
  if (Array.isArray(parent)) {
    const index = indexOf(segment, op);
    if (index > parent.length) fail("out-of-range", op);
    return index;
  }
  checkSegment(segment, op);
  if (parent === null || typeof parent !== "object") fail("path-missing", op);
  return String(segment);
}

function textAt(parent, segment, op) {
  const place = slot(parent, segment, op);
  if (!Object.hasOwn(parent, place) || !isText(parent[place])) fail("path-missing", op);
  return place;
}

const VERBS = {
  s(parent, segment, op) {
    parent[slot(parent, segment, op)] = op[2];
  },
  d(parent, segment, op) {
    const place = slot(parent, segment, op);
    if (!Array.isArray(parent)) delete parent[place];
    else if (place === parent.length) fail("path-missing", op);
    else parent.splice(place, 1);
  },
  a(parent, segment, op) {
    parent[textAt(parent, segment, op)] += op[2];
  },
  t(parent, segment, op) {
    const place = textAt(parent, segment, op);
    parent[place] = parent[place].slice(op[2]);
  },
};

function splice(array, index, count, items) {
  const tail = array.slice(index + count); // not spread as arguments: there may be too many
  array.length = Math.min(index, array.length);
  for (const item of items) array.push(item);
  for (const item of tail) array.push(item);
}

function reorder(array, op) {
  if (op[2].length !== array.length) fail("path-missing", op);
  const before = array.slice();
  op[2].forEach((from, to) => { array[to] = before[from]; });
}

// --- the wire form -----------------------------------------------------------------------------------------------

/** Decodes the wire batches of one stream, in order: ["#", id, path] names a path, an id or nothing stands for one. */
export class Decoder {
  #paths = new Map();

  decode(wire) {
    if (!Array.isArray(wire)) fail("invalid-op", wire);
    const ops = [];
    let previous = null;
    for (const short of wire) {
      if (!Array.isArray(short) || short.length === 0) fail("invalid-op", short);
      if (short[0] === "#") {
        this.#name(short);
        continue;
      }
      const op = this.#spellOut(short, previous);
      previous = op[0] === "r" ? null : op[1];
      ops.push(op);
    }
    return ops;
  }

  #name(short) {
    if (short.length !== 3 || !isCount(short[1]) || !Array.isArray(short[2])) fail("invalid-op", short);
    this.#paths.set(short[1], checked(short[2], short));
  }

  #spellOut(short, previous) {
    const [verb] = short;
    if (verb === "r") {
      if (short.length !== 2) fail("invalid-op", short);
      this.#paths.clear();
      return short;
    }
    if (!isText(verb) || !Object.hasOwn(SHAPES, verb)) fail("invalid-op", short);
    const { args, root } = SHAPES[verb];
    const full = short.length === args.length + 2;
    if (!full && short.length !== args.length + 1) fail("invalid-op", short);
    const rest = short.slice(full ? 2 : 1);
    const path = full ? this.#path(short) : previous;
    if (!fits([verb], rest)) fail("invalid-op", short);
    if (path === null) fail("path-missing", short);
    if (path.length === 0 && !root) fail("path-missing", short);
    return [verb, path, ...rest];
  }

  #path(short) {
    const place = short[1];
    if (Array.isArray(place)) return checked(place, short);
    if (!isCount(place)) fail("invalid-op", short);
    return this.#paths.get(place) ?? fail("path-missing", short);
  }
}

function checked(path, short) {
  for (const segment of path) checkSegment(segment, short);
  return path;
}

// --- the client --------------------------------------------------------------------------------------------------

/** A command that the gateway refused for good. `code` says why. */
export class Refused extends Error {
  constructor({ code, message, retryAfter }) {
    super(message);
    this.name = "Refused";
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** A random id; crypto.randomUUID is missing on pages that came by plain HTTP from another machine. */
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const AGAIN = new Set(["rate_limited", "session_failed", "session_closed", "too_many"]); // and every storage_... error
const FATAL = new Set(["wrong_token", "foreign_origin", "foreign_host"]);

const DEFAULTS = {
  name: "somebody",
  minPause: 250,
  maxPause: 15_000,
  patience: 10_000,
  random: Math.random,
  WebSocket: globalThis.WebSocket,
};

/**
 * One connection, made again whenever it is lost. Events: "state", "welcome", "refused" (of no command), "presence".
 * Options: url (of the socket), token, name; in ms: minPause and maxPause between attempts, patience until one is given up;
 * for tests: WebSocket, random.
 */
export class Client extends EventTarget {
  state = "connecting";
  you = null;
  error = null;
  #options;
  #socket = null;
  #pause;
  #timer = null;
  #parts = "";
  #number = 0;
  #waiting = new Map();
  #followings = new Map();

  constructor({ url, ...options }) {
    super();
    const address = new URL(url);
    address.protocol = address.protocol.replace(/^http/, "ws");
    address.hash = "";
    this.#options = { ...DEFAULTS, ...options, url: address.href };
    this.#pause = this.#options.minPause;
    this.#connect();
  }

  /** Have a command carried out; resolves to its receipt. A requestId is made unless there is one. Rejects with Refused. */
  command(command) {
    const id = ++this.#number;
    const sent = { ...command, requestId: command.requestId ?? newId() };
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { command: sent, resolve, reject });
      if (this.state === "open") this.#send({ type: "command", id, command: sent });
      else if (this.state === "closed") this.#refuse(id, { code: "closed", message: "the client is closed" });
    });
  }

  /** Follow {session, what, conversation?}. `listener(value, ops)`; of "events", `listener(event)`. Gives a Following. */
  attach(subject, listener) {
    const following = new Following(this, ++this.#number, subject, listener);
    this.#followings.set(following.id, following);
    if (this.state === "open") this.#send(following.frame());
    return following;
  }

  /** Show something beside one's name to those who are in the same session; null for nothing. */
  status(session, status) {
    if (this.state === "open") this.#send({ type: "status", session, status });
  }

  /** End the connection for good. What waits for a receipt is rejected; it may have been carried out. */
  close() {
    clearTimeout(this.#timer);
    this.#enter("closed");
    this.#socket?.close();
    for (const id of [...this.#waiting.keys()]) this.#refuse(id, { code: "closed", message: "the client was closed" });
  }

  /** Lose the connection now, as a network would: for tests. */
  drop() {
    const socket = this.#socket;
    if (socket === null) return;
    this.#lost(); // not when the other side agrees: it may be gone
    socket.close();
  }

  detach(following) {
    if (this.#followings.delete(following.id) && this.state === "open") this.#send({ type: "detach", id: following.id });
  }

  #connect() {
    this.#enter("connecting");
    const socket = new this.#options.WebSocket(this.#options.url);
    this.#socket = socket;
    this.#parts = "";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.drop(), this.#options.patience); // until it is welcome
    const { token, name } = this.#options;
    socket.addEventListener("open", () => {
      if (socket === this.#socket) socket.send(JSON.stringify({ type: "hello", token, name }));
      else socket.close();
    });
    socket.addEventListener("message", (event) => { if (socket === this.#socket) this.#take(event.data); });
    socket.addEventListener("error", () => {});
    socket.addEventListener("close", () => { if (socket === this.#socket) this.#lost(); });
  }

  #lost() {
    this.#socket = null;
    clearTimeout(this.#timer);
    if (this.state === "closed") return;
    this.#enter("waiting");
    const pause = this.#pause * (0.5 + this.#options.random() / 2); // so that not all come back at once
    this.#pause = Math.min(this.#pause * 2, this.#options.maxPause);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  #take(text) {
    const frame = JSON.parse(text);
    if (frame.type === "part") {
      this.#parts += frame.text;
      if (!frame.last) return;
      const whole = this.#parts;
      this.#parts = "";
      this.#handle(JSON.parse(whole));
    } else this.#handle(frame);
  }

  #handle(frame) {
    switch (frame.type) {
      case "welcome": return this.#welcome(frame);
      case "receipt": return this.#receipt(frame);
      case "refused": return this.#refused(frame);
      case "ops":
      case "event":
      case "ended": return this.#follow(frame);
      default: return undefined; // of a newer gateway
    }
  }

  #welcome(frame) {
    clearTimeout(this.#timer);
    this.you = frame.you;
    this.#pause = this.#options.minPause;
    this.#enter("open");
    for (const following of this.#followings.values()) this.#send(following.frame());
    for (const [id, { command }] of this.#waiting) this.#send({ type: "command", id, command });
    this.dispatchEvent(new CustomEvent("welcome", { detail: frame }));
  }

  #receipt({ id, receipt }) {
    this.#waiting.get(id)?.resolve(receipt);
    this.#waiting.delete(id);
  }

  #refused({ id, error }) {
    const uncertain = AGAIN.has(error.code) || error.code.startsWith("storage_");
    const tooFast = error.code === "rate_limited" && this.#followings.has(id);
    if (tooFast || (uncertain && this.#waiting.has(id))) {
      setTimeout(() => this.#again(id), 1000 * (error.retryAfter ?? 1));
    } else if (this.#waiting.has(id)) this.#refuse(id, error);
    else if (this.#followings.has(id)) this.#follow({ type: "ended", id, reason: error.code });
    else {
      this.error = new Refused(error);
      this.dispatchEvent(new CustomEvent("refused", { detail: error }));
      if (FATAL.has(error.code)) this.close();
    }
  }

  #again(id) {
    if (this.state !== "open") return; // when it is, everything is sent again anyway
    const waiting = this.#waiting.get(id);
    const following = this.#followings.get(id);
    if (waiting) this.#send({ type: "command", id, command: waiting.command });
    else if (following) this.#send(following.frame());
  }

  #refuse(id, error) {
    this.#waiting.get(id)?.reject(new Refused(error));
    this.#waiting.delete(id);
  }

  #follow(frame) {
    const following = this.#followings.get(frame.id);
    if (!following) return; // frames that were on their way when it was detached
    if (frame.type === "ended") this.#followings.delete(frame.id);
    try {
      following.take(frame);
    } catch (error) {
      if (!(error instanceof ChordError)) throw error;
      this.error = error; // out of step: begin anew
      this.drop();
    }
  }

  #send(frame) {
    this.#socket.send(JSON.stringify(frame));
  }

  #enter(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

/** Something that is followed. `value` is what it is now (undefined before the first frame); `ended` is a reason or null. */
export class Following {
  value = undefined;
  ended = null;
  #client;
  #listener;
  #decoder = new Decoder();

  constructor(client, id, subject, listener = () => {}) {
    this.#client = client;
    this.id = id;
    this.subject = subject;
    this.#listener = listener;
  }

  /** Follow it no longer. */
  detach() {
    this.#client.detach(this);
  }

  frame() {
    this.#decoder = new Decoder();
    return { type: "attach", id: this.id, ...this.subject };
  }

  take(frame) {
    if (frame.type === "ops") {
      const ops = this.#decoder.decode(frame.ops);
      this.value = apply(this.value, ops);
      this.#listener(this.value, ops);
    } else if (frame.type === "event") {
      this.#listener(frame.event);
    } else {
      this.ended = frame.reason;
      this.#listener(this.value, []);
    }
  }
}
