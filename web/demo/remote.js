// A run's checkpoint on another machine as files for the worker's program, and what the program tells as plain words for
// the page of a rig. In this language, as the program has no room for more: the bar of `cargo xtask size` stands.

// Bytes that are asked for at once, where so many follow: a model has parameters of few bytes, and a request takes its
// time. Within what an agent lets a token ask in a second, that is 80 MB of it.
const PART_BYTES = 4 * 1024 * 1024;
// How often a part is asked for again, each time after twice the pause: half a minute in all, in which a laptop finds its
// network again.
const RETRIES_MAX = 5;
const RETRY_MILLIS = 1000;
// The longest header of a safetensors file, as kernels/src/weights/header.rs has it.
const HEADER_BYTES_MAX = 100_000_000;

// Marks of messages are in shared/src/demo/plain.rs.
const post = postMessage.bind(globalThis);

// Opens the checkpoint at an address of the agent's: an object that is read as a chosen file is, and beside it GPT-2's
// tokenizer where that is the checkpoint's. `words` is the address of the texts of what is told from now on.
export const open = async ({ address, token, words }) => {
  const texts = await fetch(words).catch(() => null);
  post(`t${texts?.ok ? await texts.text() : ""}`);
  let failed = "";
  globalThis.postMessage = speaker(() => failed);

  let tag = "";
  let size = 0;
  // Where the weights end; nothing behind them is asked for.
  let end = 0;
  let part = { first: 0, bytes: new Uint8Array() };
  // What failed for good is not asked for again.
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
  // A failure here is told by the program, to which the file is then one of no bytes.
  try {
    const prefix = new DataView(await read(0, 8));
    const header = Number(prefix.getBigUint64(0, true));
    if (header <= Math.min(HEADER_BYTES_MAX, size - 8)) {
      const about = JSON.parse(new TextDecoder().decode(await read(8, 8 + header)));
      const { __metadata__: metadata = {}, ...tensors } = about;
      // The optimizer's moments and the checksums are behind the weights, and nobody writes with them.
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

// Tries until it is there, or refused for good.
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

// An answer of that status. What is for good is thrown as a kind and words; all else may come yet.
const answered = async (address, token, status, more) => {
  const answer = await fetch(address, { headers: { authorization: `Bearer ${token}`, ...more } });
  if (answer.status === status) return answer;
  const said = `${answer.status} ${answer.statusText}`;
  // The whole file is not read: it may be gigabytes.
  if (answer.status === 200) throw ["no-parts", said];
  if (answer.status === 412) throw ["replaced", said];
  // The rig is busy, or starts anew behind its proxy.
  if ([429, 502, 503, 504].includes(answer.status)) throw new Error(said);
  const refusal = await answer.json().catch(() => ({}));
  throw ["refused", refusal.message ?? said];
};

// Bytes `first` to `last`, of the file that `tag` names, or of whichever is there where it is empty.
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

// GPT-2's tokenizer, of the same agent: a checkpoint has its name alone. The browser keeps it for the next one.
const tryTokenizer = async (address, token) => {
  const answer = await answered(new URL("../../tokenizers/gpt2", address), token, 200);
  return new File([await answer.blob()], "tokenizer.json");
};

// In the place of what posts the program's messages: the same as marks and words. A page that shows words alone needs no
// code that reads what the demo's page is told. `failed` is what failed before the program saw that something did.
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
      // The first ones say more of the prompt.
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
