// Makes a run's checkpoint on another machine available to the worker as files, and converts the worker's messages to
// plain text for the rig page. This is JavaScript because the program has reached the size limit of `cargo xtask size`.

// Number of bytes per request, if that many remain. Models have small parameters, and every request has a latency.
// Within the agent's limit of requests per second and token, this is 80 MB per second.
const PART_BYTES = 4 * 1024 * 1024;
// Number of retries per part. The delay doubles after each; half a minute in total, enough for a laptop to reconnect.
const RETRIES_MAX = 5;
const RETRY_MILLIS = 1000;
// Maximum length of a safetensors header, as in kernels/src/weights/header.rs.
const HEADER_BYTES_MAX = 100_000_000;

// The first characters of messages are defined in shared/protocol/src/demo/plain.rs.
const post = postMessage.bind(globalThis);

// Opens a checkpoint at the agent's `address`. Returns an object that is read like a selected file, and GPT-2's
// tokenizer if the checkpoint uses it. `words` is the address of the texts for the messages sent from now on.
export const open = async ({ address, token, words }) => {
  const texts = await fetch(words).catch(() => null);
  post(`t${texts?.ok ? await texts.text() : ""}`);
  let failed = "";
  globalThis.postMessage = speaker(() => failed);

  let tag = "";
  let size = 0;
  // The end of the weights. Nothing after it is requested.
  let end = 0;
  let part = { first: 0, bytes: new Uint8Array() };
  // A permanent failure is not retried.
  const got = async (attempt) => {
    if (failed) throw new Error(failed);
    try {
      return await again(attempt);
    } catch ([kind, said]) {
      failed = `x${kind} ${said}`;
      throw new Error(said);
    }
  };
  const fetchPart = async (first, last) => {
    const { bytes, ...about } = await got(() => tryPart(address, token, tag, first, last));
    ({ tag, size } = about);
    part = { first, bytes };
  };
  const read = async (first, behind) => {
    const isThere = () => first >= part.first && behind <= part.first + part.bytes.length;
    if (!isThere()) {
      await fetchPart(first, Math.max(behind, Math.min(first + PART_BYTES, end)) - 1);
      if (end > 0) post(`p${Math.min(100, Math.floor((part.first + part.bytes.length) * 100 / end))}`);
    }
    return part.bytes.slice(first - part.first, behind - part.first).buffer;
  };

  const clamp = (at) => Math.min(at, size);
  const slice = (first, behind) => ({ arrayBuffer: () => read(clamp(first), clamp(behind)) });
  const files = [{ name: "ckpt.safetensors", get size() { return size; }, slice }];
  // After a failure here the file has no bytes, and the program reports the error.
  try {
    const prefix = new DataView(await read(0, 8));
    const header = Number(prefix.getBigUint64(0, true));
    if (header <= Math.min(HEADER_BYTES_MAX, size - 8)) {
      const about = JSON.parse(new TextDecoder().decode(await read(8, 8 + header)));
      const { __metadata__: metadata = {}, ...tensors } = about;
      // The optimizer's moments and the checksums follow the weights and are not needed to generate text.
      const weights = Object.entries(tensors).filter(([name]) => !/^(exp_avg|exp_avg_sq|headroom)\./.test(name));
      end = 8 + header + Math.max(...weights.map(([, tensor]) => tensor.data_offsets[1]));
      const { iter_num: iter } = JSON.parse(metadata.state ?? "{}");
      if (Number.isInteger(iter)) post(`i${iter}`);
      if (metadata.tokenizer === '"gpt2"') files.push(await got(() => tryTokenizer(address, token)));
    }
  } catch {
    end = 0;
  }
  return files;
};

// Repeats a request until it succeeds or fails permanently.
const again = async (attempt) => {
  for (let retries = 0, millis = RETRY_MILLIS; ; retries += 1, millis *= 2) {
    try {
      return await attempt();
    } catch (error) {
      if (Array.isArray(error)) throw error;
      if (retries === RETRIES_MAX) throw ["broken", error.message];
      await new Promise((resolve) => setTimeout(resolve, millis));
    }
  }
};

// Requests an answer with a given status. A permanent failure is thrown as a pair of kind and text; others may be
// retried.
const answered = async (address, token, status, more) => {
  const answer = await fetch(address, { headers: { authorization: `Bearer ${token}`, ...more } });
  if (answer.status === status) return answer;
  const said = `${answer.status} ${answer.statusText}`;
  // The body is not read, because the whole file may have gigabytes.
  if (answer.status === 200) throw ["no-parts", said];
  if (answer.status === 412) throw ["replaced", said];
  // The rig is busy, or restarting behind its proxy.
  if ([429, 502, 503, 504].includes(answer.status)) throw new Error(said);
  const refusal = await answer.json().catch(() => ({}));
  throw ["refused", refusal.message ?? said];
};

// Fetches the bytes `first` to `last` of the file whose ETag is `tag`, or of any version if `tag` is empty.
const tryPart = async (address, token, tag, first, last) => {
  const condition = tag ? { "if-match": tag } : {};
  const answer = await answered(address, token, 206, { range: `bytes=${first}-${last}`, ...condition });
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const found = answer.headers.get("etag");
  const place = /^bytes (\d+)-\d+\/(\d+)$/.exec(answer.headers.get("content-range") ?? "");
  const size = Number(place?.[2]);
  const isWhole = Number(place?.[1]) === first && bytes.length === Math.min(last + 1, size) - first;
  if (!found || !isWhole || (tag && found !== tag)) throw ["not-whole", `${first}-${last}`];
  return { bytes, tag: found, size };
};

// Fetches GPT-2's tokenizer from the same agent, because a checkpoint contains only its name. The browser caches it.
const tryTokenizer = async (address, token) => {
  const answer = await answered(new URL("../../tokenizers/gpt2", address), token, 200);
  return new File([await answer.blob()], "tokenizer.json");
};

// Replaces `postMessage` for the program and converts its messages to plain text, so that the rig page needs no code to
// parse the demo's messages. `failed` returns a failure that occurred before the program detected one.
const speaker = (failed) => {
  let why = "";
  let n = 0;
  const plain = {
    Opened: (opened) => { why = opened.why; },
    Ready: ({ way, device }) => {
      post(`d${device}`);
      post(`${way.startsWith("WebGpu") ? "g" : "c"}${why}`);
    },
    Began: ({ tokens }) => post(`b${tokens.join("")}`),
    Wrote: ({ tokens, n_tokens, micros }) => {
      n = n_tokens;
      post(`a${tokens.map((token) => token.adds).join("")}`);
      // The rate of the first tokens depends mostly on the prompt.
      if (n >= 8 && micros > 0) post(`s${Math.floor(n * 1e7 / micros)}`);
    },
    Ended: (end) => post(`${end === "Length" ? "l" : "e"}${n}`),
    Failed: ({ kind, text, hint }) => {
      if (failed()) return post(failed());
      if (hint) post(`h${hint}`);
      post(`${kind === "Prompt" ? "q" : "f"}${text}`);
    },
  };
  return (json) => {
    const [[kind, told]] = Object.entries(JSON.parse(json));
    plain[kind]?.(told);
  };
};
