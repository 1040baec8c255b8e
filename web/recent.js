// Keeps the runs that were shown on this device, and lists them. shortcuts.js loads it on pages with the button
// `#recent`, and on the start page. Nothing is sent: the list is in the browser's storage.
const KEY = "headroom.recent";
const MOST = 12;
// A run is kept after it was shown for this time, so that the steps to it are not.
const REST_MS = 5000;

const read = () => {
  try {
    const runs = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    const hasWords = (run) => ["hash", "run", "outcome"].every((key) => typeof run?.[key] === "string");
    const isRun = (run) => hasWords(run) && (typeof run.verdict === "string" || Number.isSafeInteger(run.bytes));
    return Array.isArray(runs) ? runs.filter((run) => isRun(run) && run.hash.startsWith("#1&")) : [];
  } catch {
    return []; // Storage is blocked, or another program wrote there.
  }
};
const write = (runs) => {
  try {
    if (runs.length) localStorage.setItem(KEY, JSON.stringify(runs));
    else localStorage.removeItem(KEY);
  } catch {
    // Storage is blocked or full: the list stays as it is.
  }
};

// The lines of the verdicts and of the decimal mark in the texts of the page: shared/languages/en.txt.
const LINES = { fits: 2, narrow: 3, fails: 4, decimalMark: 5 };
const sizeIn = (bytes, power, unit, decimals) => `${(bytes / 1024 ** power).toFixed(decimals)} ${unit}`;
const sizeOf = (bytes) => {
  if (bytes < 2 ** 20) return bytes < 1024 ? `${bytes} B` : sizeIn(bytes, 1, "KiB", 0);
  if (bytes < 2 ** 30) return sizeIn(bytes, 2, "MiB", bytes < 10 * 2 ** 20 ? 1 : 0);
  return bytes < 2 ** 40 ? sizeIn(bytes, 3, "GiB", 2) : sizeIn(bytes, 4, "TiB", 2);
};
const sentenceOf = (outcome, bytes) => {
  const lines = globalThis.headroomText.split("\n");
  const size = sizeOf(Math.abs(bytes)).replace(".", lines[LINES.decimalMark]);
  return (lines[LINES[outcome]] ?? "").replace("{0}", outcome !== "fails" && bytes < 0 ? `−${size}` : size);
};
// In the language of the page. A verdict that depends on changes to the code is kept in its own language, and so is one
// that an earlier version kept.
const verdictOf = ({ verdict, outcome, bytes }) => verdict ?? sentenceOf(outcome, bytes);

const wordsOf = (element) => element?.textContent.replace(/\s+/g, " ").trim() ?? "";
// The pinned moment is not a part of the run.
const hashOf = (hash) => hash.replace(/&pin=[^&]*/, "");
const shown = () => {
  const headline = document.querySelector("#verdict[data-fits]");
  const hash = hashOf(location.hash);
  if (!headline || !hash.startsWith("#1&")) return null;
  const { outcome = "" } = document.querySelector(".verdict")?.dataset ?? {};
  const verdict = headline.lastElementChild?.firstChild?.textContent ?? "";
  const bytes = Number(headline.dataset.headroomBytes);
  const words = sentenceOf(outcome, bytes) === verdict ? { bytes } : { verdict };
  return { hash, run: wordsOf(document.querySelector(".run-summary__run")), outcome, ...words };
};
// A cleared list stays empty until another run is shown.
let forgotten = "";
const current = () => {
  const run = shown();
  return run?.hash === forgotten ? null : run;
};
// Runs that the list shows alike are one run.
const isSame = (run, other) => other.hash === run.hash || (other.run === run.run && verdictOf(other) === verdictOf(run));
const keep = () => {
  const run = current();
  if (run) write([run, ...read().filter((other) => !isSame(run, other))].slice(0, MOST));
};

const STYLE =
  "#recent-list{position:fixed;inset:auto;margin:0;width:min(26rem,100vw - 2rem);max-height:min(34rem,100vh - 2rem);overflow:auto;" +
  "padding:var(--space-3);border:var(--hairline) solid var(--line-strong);border-radius:var(--radius-large);" +
  "background:var(--surface);color:inherit;box-shadow:var(--shadow)}" +
  "#recent-list .button{padding:0 var(--space-3)}" +
  "#recent-list ol{margin:var(--space-2) 0;padding:0;list-style:none}" +
  "#recent-list a{display:block;padding:var(--space-2);border-radius:var(--radius);color:inherit;text-decoration:none}" +
  "#recent-list a:is(:hover,:focus-visible){background:var(--surface-hover)}" +
  "#recent-list a span{display:block}#recent-list a span+span{color:var(--ink-soft)}" +
  '#recent-list [data-outcome="fits"]::before{content:"✓ ";color:var(--good)}' +
  '#recent-list [data-outcome="narrow"]::before{content:"! ";color:var(--warn)}' +
  '#recent-list [data-outcome="fails"]::before{content:"✕ ";color:var(--bad)}';

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const calculatorOf = ({ hash }) => (hash.includes("&trainer=") ? "trainers.html" : "calculator.html");
const row = (kept, page, close) => {
  const { hash, run, outcome } = kept;
  const href = new URL(page, location.href);
  href.search = location.search;
  href.hash = hash;
  const words = element("span", { textContent: verdictOf(kept) });
  words.dataset.outcome = outcome;
  const link = element("a", { href: href.href }, element("span", { textContent: run }), words);
  // A press with Ctrl opens another tab, and the list stays.
  link.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) close();
  });
  return element("li", {}, link);
};

// The button that clears the list.
const clearButton = (textContent, cleared) => {
  const button = element("button", { type: "button", className: "button", id: "recent-clear", textContent });
  button.addEventListener("click", () => {
    write([]);
    cleared();
  });
  return button;
};

const open = (button) => {
  // Which GPU and Compare show every run themselves.
  const isCalculator = document.documentElement.classList.contains("calculator-page");
  const pageOf = (run) => (isCalculator ? calculatorOf(run) : "");
  const list = element("div", { id: "recent-list", role: "group", ariaLabel: button.title, popover: "auto" });
  const close = () => list.hidePopover();
  const clear = clearButton(button.dataset.clear, () => {
    forgotten = shown()?.hash ?? "";
    close();
    show(button);
    button.focus();
  });
  list.append(
    element("strong", { textContent: button.title }),
    element("ol", {}, ...read().map((run) => row(run, pageOf(run), close))),
    clear,
  );
  list.addEventListener("toggle", ({ newState }) => {
    button.ariaExpanded = newState === "open";
    if (newState === "closed") list.remove();
  });
  button.after(list);
  list.showPopover();
  const { left, bottom } = button.getBoundingClientRect();
  const { width, height } = list.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  list.style.left = `${Math.max(8, Math.min(left, clientWidth - width - 8))}px`;
  list.style.top = `${Math.max(8, Math.min(bottom + 4, clientHeight - height - 8))}px`;
  list.querySelector("a")?.focus();
};

// A button that becomes disabled would lose the focus.
const show = (button) => {
  button.ariaDisabled = String(read().length === 0 && !current());
};

// Lists the runs on the start page.
export const list = (place) => {
  const show = () => {
    const runs = read();
    const rows = runs.map((run) => row(run, calculatorOf(run), () => {}));
    const clear = clearButton(place.dataset.clear, () => {
      show();
      document.getElementById("anything")?.focus();
    });
    place.replaceChildren(place.firstElementChild, element("ol", { id: "recent-rows" }, ...rows), clear);
    place.hidden = runs.length === 0;
  };
  show();
  addEventListener("storage", show);
};

export const start = (button) => {
  const rules = new CSSStyleSheet();
  rules.replaceSync(STYLE);
  document.adoptedStyleSheets.push(rules);
  button.hidden = false;
  button.ariaExpanded = "false";
  show(button);
  // The press that closes the list must not open another one.
  let wasOpen = false;
  button.addEventListener("pointerdown", () => {
    wasOpen = document.getElementById("recent-list") !== null;
  });
  button.addEventListener("click", () => {
    if (wasOpen) {
      wasOpen = false;
      return;
    }
    keep();
    if (read().length) open(button);
  });
  addEventListener("storage", () => show(button));
  addEventListener("pagehide", keep);
  // The page changes the address without an event.
  let [last, since] = ["", performance.now()];
  setInterval(() => {
    const now = shown()?.hash ?? "";
    if (now !== last) [last, since] = [now, performance.now()];
    else if (now && performance.now() - since >= REST_MS) {
      since = Infinity;
      keep();
    } else return;
    show(button);
  }, 1000);
};
