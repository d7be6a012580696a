// A page that loses its connection all the time: the process of test_javascript.py.
// node --experimental-websocket follower.mjs <perdure.js> <plan as JSON>
// It follows everything that the plan names and sends its writes; on each line of its input, a marker, it waits until every
// conversation shows the marker and all receipts are there, and prints what it has: values, receipts, and how often it was welcome,
// was given a step of operations, or a replacement.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , module, given] = process.argv;
const { Client } = await import(pathToFileURL(module));
const { url, token, session, subjects, writes, dropMs, seed } = JSON.parse(given);

let state = seed;
const random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
};

let welcomes = 0;
const client = new Client({ url, token, name: "follower", minPause: 5, maxPause: 50, random });
client.addEventListener("welcome", () => { welcomes += 1; });
let steps = 0;
let replacements = 0;
function changed(_value, ops) {
  if (ops[0]?.[0] === "r") replacements += 1;
  else steps += 1;
}
const followings = subjects.map((subject) => client.attach({ session, ...subject }, changed));

let dropping = true;
function dropLater() {
  setTimeout(() => {
    if (!dropping) return;
    client.drop();
    dropLater();
  }, dropMs * (0.5 + random()));
}
dropLater();

const receipts = [];
for (let n = 0; n < writes; n += 1) {
  const command = { type: "write", session, conversation: 1, kind: "js.note", data: { n } };
  setTimeout(async () => receipts.push([n, (await client.command(command)).submission]), random() * writes * 4);
}

createInterface({ input: process.stdin }).on("line", async (marker) => {
  const shows = (one) => one.subject.what !== "conversation" || JSON.stringify(one.value ?? null).includes(marker);
  await new Promise((resolve) => {
    const look = () => {
      if (receipts.length === writes && followings.every(shows)) resolve();
      else setTimeout(look, 10);
    };
    look();
  });
  dropping = false;
  const error = client.error?.message ?? null;
  const values = followings.map((one) => one.value);
  process.stdout.write(JSON.stringify({ values, receipts, welcomes, steps, replacements, error }) + "\n");
  client.close();
  process.exit(0);
});
process.stdout.write("ready\n");
