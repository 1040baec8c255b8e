// Starts the page. This is a file instead of an inline script, so that the Content-Security-Policy can forbid inline
// scripts. The build writes the hashed file names of the program and of each language into this script element's
// attributes.
const script = document.querySelector("script[data-wasm]");
const at = (name) => new URL(name, document.baseURI);
const root = document.documentElement;

const kept = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // Storage is blocked: the system's theme and the browser's language it is.
  }
};

// Set before the program loads, so that a dark page does not flash white. The names are also in src/browser.rs.
const query = new URLSearchParams(location.search);
const theme = query.has("host") ? query.get("theme") : kept("headroom.theme");
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

const fetchText = async (name) => {
  const answer = await fetch(at(name));
  if (!answer.ok) throw new Error(`${answer.status} ${answer.url}`);
  return answer.text();
};
// The order of preference: the address, the stored choice, the browser's languages.
const wanted = [query.get("lang"), query.has("host") ? null : kept("headroom.language"), ...navigator.languages];
const known = wanted.map((tag) => tag?.toLowerCase().split("-")[0]);
root.lang = known.find((code) => /^[a-z]+$/.test(code) && script.hasAttribute(`data-text-${code}`)) ?? "en";

// Browsers take seconds to lay out megabytes in one line, so a field takes the beginning of a long paste.
const LINE_LENGTH_MAX = 256;
const lengthMax = (field) => {
  if (field.maxLength > 0) return field.maxLength;
  return field instanceof HTMLInputElement ? LINE_LENGTH_MAX : Infinity;
};
const cut = (event) => {
  const field = event.target;
  const most = lengthMax(field);
  const text = (event.clipboardData ?? event.dataTransfer)?.getData("text/plain") ?? "";
  if (text.length <= most) return;
  event.preventDefault();
  field.focus();
  document.execCommand("insertText", false, text.slice(0, most));
};
for (const type of ["paste", "drop"]) addEventListener(type, cut, true);

// Loads a part of the page on demand. A failure is shown at the end of its place.
let failures = 0;
const load = async (name, place) => {
  const box = document.querySelector(place);
  box.querySelector(":scope > .notice")?.remove();
  try {
    // Chromium remembers that an address did not load, so that another attempt needs another address.
    return await import(at(name + "?".repeat(failures)));
  } catch (error) {
    failures++;
    const textContent = `${globalThis.headroomText.split("\n")[1]} (${error.message})`;
    box.append(Object.assign(document.createElement("p"), { className: "notice", role: "alert", textContent }));
  }
};
// The calculator calls these with a plan in words, and with the tensors of a moment.
globalThis.headroomExport = async (message) => (await load("export.js", ".verdict__actions"))?.show(message);
let tensors;
let latest;
globalThis.headroomTensors = async (message) => {
  latest = message;
  tensors ??= load("tensors.js", "#tensors-body");
  const part = await tensors;
  if (latest === message) part?.show(message);
};

try {
  const text = fetchText(script.getAttribute(`data-text-${root.lang}`));
  const page = await import(at(script.dataset.js));
  globalThis.headroomText = await text;
  await page.default({ module_or_path: at(script.dataset.wasm) });
  if (document.querySelector("textarea, #chart, #recording")) import(at("shortcuts.js"));
} catch (error) {
  // The program did not load or does not run here. It cannot show this itself.
  const message = document.getElementById("loading") ?? document.body.appendChild(document.createElement("p"));
  message.setAttribute("role", "alert");
  const said = globalThis.headroomText?.split("\n", 1)[0] ?? "Headroom could not start. Reload the page, or use a browser that supports WebAssembly.";
  message.textContent = `${said} (${error})`;
  throw error;
}
