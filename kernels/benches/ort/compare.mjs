// Times the decoding of one token in single-threaded WebAssembly with SIMD: Headroom's decoder and onnxruntime-web
// alternate in one process. See README.md in this directory.
//
//   node compare.mjs OUR.wasm FOLDER_OF_GRAPHS [tiny|tiny-50257|gpt2 …]
//
// FOLDER_OF_GRAPHS contains the output of graphs.py, and node_modules with onnxruntime-web.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [wasm, folder, ...names] = process.argv.slice(2);
const require = createRequire(join(resolve(folder), "package.json"));
// The build for WebAssembly only. The default build supports suspending and is slower.
const ort = require("onnxruntime-web/wasm");
ort.env.wasm.numThreads = 1;
ort.env.wasm.simd = true;

const SHAPES = {
  tiny: { n_layer: 4, n_head: 4, n_embd: 128, block_size: 256, vocab_size: 96 },
  "tiny-50257": { n_layer: 4, n_head: 4, n_embd: 128, block_size: 256, vocab_size: 50257 },
  gpt2: { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50257 },
};
// Number of cached tokens before the first timed one.
const CACHED = 64;
// Number of timed tokens. An eighth as many precede them untimed, while the engines compile hot code.
const TOKENS = { tiny: 400, "tiny-50257": 160, gpt2: 32 };
// Number of tokens after which a text starts over at CACHED.
const TEXT = 64;

async function open(name, shape) {
  const path = join(folder, `${name}.onnx`);
  const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all" };
  const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(path)), options);
  const hs = shape.n_embd / shape.n_head;
  const empty = (n) => {
    const past = {};
    for (let i = 0; i < shape.n_layer; i++) {
      const zeros = () => new Float32Array(shape.n_embd * n).fill(0.01);
      past[`past_k.${i}`] = new ort.Tensor("float32", zeros(), [1, shape.n_head, hs, n]);
      past[`past_v.${i}`] = new ort.Tensor("float32", zeros(), [1, shape.n_head, n, hs]);
    }
    return past;
  };
  const int64 = (n) => new ort.Tensor("int64", BigInt64Array.from([BigInt(n)]), [1]);
  let past;
  return {
    begin: () => void (past = empty(CACHED)),
    token: async (i) => {
      const out = await session.run({ token: int64(i), position: int64(CACHED + i), ...past });
      past = {};
      for (let l = 0; l < shape.n_layer; l++) {
        past[`past_k.${l}`] = out[`k.${l}`];
        past[`past_v.${l}`] = out[`v.${l}`];
      }
    },
  };
}

async function openOurs(shape, int16) {
  const { instance } = await WebAssembly.instantiate(readFileSync(wasm), {});
  const { open, reset, prefill, step, next } = instance.exports;
  const { n_layer, n_head, n_embd, block_size, vocab_size } = shape;
  if (!open(n_layer, n_head, n_embd, block_size, vocab_size, int16)) throw new Error("the model does not fit");
  const must = (good) => {
    if (!good) throw new Error("a token was refused");
  };
  const begin = () => {
    reset();
    must(prefill(CACHED) === CACHED);
  };
  return {
    step: { begin, token: (i) => must(step(i) !== 0) },
    next: { begin, token: (i) => must(next(i) < vocab_size) },
    prompt: { begin: () => {}, token: begin },
  };
}

// Wall time and CPU time per token in milliseconds.
async function time(engine, i) {
  const [start, cpu] = [performance.now(), process.cpuUsage()];
  await engine.token(i);
  const wall = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return { wall, cpu: (user + system) / 1000 };
}

const sorted = (times, key) => times.map((time) => time[key]).sort((a, b) => a - b);
const least = (times) => sorted(times, "wall")[0];
const median = (times) => sorted(times, "cpu")[times.length >> 1];

for (const name of names.length ? names : Object.keys(SHAPES)) {
  const shape = SHAPES[name];
  const [f32, int16] = [await openOurs(shape, 0), await openOurs(shape, 1)];
  const engines = {
    "onnxruntime-web": await open(name, shape),
    "ours, f32": f32.step,
    "ours, int16": int16.step,
    "ours, int16, with the choice of the token": int16.next,
  };
  const times = Object.fromEntries(Object.keys(engines).map((engine) => [engine, []]));
  for (const [label, engine] of Object.entries(engines)) {
    // Each engine has its own texts, because the two variants of int16 share a cache.
    for (let i = 0; i < TOKENS[name] / 8; i++) {
      if (i % TEXT === 0) engine.begin();
      await engine.token(i % TEXT);
    }
    times[label].length = 0;
  }
  // The engines alternate every eighth of a text, so that other load on the machine affects all of them.
  const turn = Math.min(8, TOKENS[name]);
  for (let done = 0; done < TOKENS[name]; done += turn) {
    for (const [label, engine] of Object.entries(engines)) {
      engine.begin();
      for (let i = 0; i < turn; i++) times[label].push(await time(engine, i));
    }
  }
  const prompts = [];
  for (let i = 0; i < 6; i++) prompts.push(await time(int16.prompt, i));
  const base = times["onnxruntime-web"];
  console.log(`${name}: ms a token after ${CACHED} cached, of ${TOKENS[name]}: least wall time, median processor time`);
  for (const [label, of] of Object.entries(times)) {
    const ratios = `${(least(of) / least(base)).toFixed(3)} and ${(median(of) / median(base)).toFixed(3)}`;
    console.log(`  ${label}: ${least(of).toFixed(3)}, ${median(of).toFixed(3)}; ${ratios} of onnxruntime-web's`);
  }
  console.log(`  ours, int16, a token of a prompt of ${CACHED}: ${(least(prompts) / CACHED).toFixed(3)}`);
}
