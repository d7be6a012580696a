// Runs the chord vectors through perdure.js: the process of test_javascript.py.
// node vectors.mjs <perdure.js> <apply.jsonl> <wire.jsonl>   prints {"cases": n, "wrong": [id, ...]}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual } from "node:util";

const [, , module, applyFile, wireFile] = process.argv;
const { ChordError, Decoder, apply } = await import(pathToFileURL(module));
const load = (file) => readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const same = (one, other) => isDeepStrictEqual(plain(one), plain(other));
const plain = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value), zero));
const zero = (_, value) => (Object.is(value, -0) ? 0 : value);

function outcome(work) {
  try {
    return [work(), null];
  } catch (error) {
    if (!(error instanceof ChordError)) throw error;
    return [undefined, error.code];
  }
}

function applies(one) {
  const base = structuredClone(one.base);
  const [result, error] = outcome(() => apply(base, structuredClone(one.ops)));
  const allowed = [one.error ?? null, one.immutable?.error ?? one.error ?? null];
  return allowed.includes(error) && (error !== null || same(result, one.result)) && same(base, one.base);
}

function decodes(one) {
  const decoder = new Decoder();
  const batches = [];
  let error = null;
  for (const wire of one.wire) {
    const [batch, failed] = outcome(() => decoder.decode(wire));
    error = failed;
    if (failed !== null) break;
    batches.push(batch);
  }
  return error === (one.error ?? null) && batches.length === (one.error_batch ?? one.wire.length) && same(batches, one.batches);
}

const applied = load(applyFile);
const decoded = load(wireFile);
const wrong = [...applied.filter((one) => !applies(one)), ...decoded.filter((one) => !decodes(one))].map((one) => one.id);
console.log(JSON.stringify({ cases: applied.length + decoded.length, wrong }));
