// Zooms and moves the memory chart by wheel, touch, double click and keys, and gives undo and redo their keys. boot.js
// loads it after the page, so that it does not delay the first answer. It reads the shown part of the run from
// `data-range`, and sends another as an event.
const MIN_COLUMNS = 8;
// Pixels of the wheel that double the shown part.
const DOUBLING = 240;
const LINE_PIXELS = 16;
const KEYS = { w: [0.5, 0], s: [2, 0], a: [1, -0.25], d: [1, 0.25] };

const limit = (x, low, high) => Math.min(Math.max(x, low), high);
const rangeOf = (plot) => plot.dataset.range.split(" ").map(Number);
const columnsOf = (plot) => Number(plot.ariaValueMax) + 1;

const show = (plot, start, end) => {
  const detail = start <= 0 && end >= 1 ? [0, 1] : [Math.max(start, 0), Math.min(end, 1)];
  plot.dispatchEvent(new CustomEvent("chart-range", { bubbles: true, detail }));
};

// Changes the width of the shown part by a factor, and moves it by a share of its width. The moment at `place`, a share
// of the chart's width, keeps its place.
const change = (plot, place, factor, share) => {
  const [start, end] = rangeOf(plot);
  const width = limit((end - start) * factor, MIN_COLUMNS / columnsOf(plot), 1);
  const from = limit(start + place * (end - start - width) + share * width, 0, 1 - width);
  show(plot, from, from + width);
};

const placeOf = (plot, event) => {
  const { left, width } = plot.getBoundingClientRect();
  return limit((event.clientX - left) / width, 0, 1);
};

// Pinching a touchpad is a wheel event with the control key.
const wheel = (plot, event) => {
  const pixels = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : LINE_PIXELS;
  const [x, y] = [event.deltaX * pixels, event.deltaY * pixels];
  if (event.ctrlKey || event.metaKey) {
    const factor = 2 ** (y / DOUBLING);
    change(plot, placeOf(plot, event), factor, 0);
  } else if (event.shiftKey || Math.abs(x) > Math.abs(y)) {
    change(plot, 0, 1, (event.shiftKey ? x + y : x) / DOUBLING / 4);
  } else {
    return; // The page scrolls.
  }
  event.preventDefault();
};

const key = (plot, event) => {
  const step = KEYS[event.key.toLowerCase()];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const [start, end] = rangeOf(plot);
  const now = (Number(plot.ariaValueNow) + 0.5) / columnsOf(plot);
  change(plot, limit((now - start) / (end - start), 0, 1), ...step);
};

// Shows the phase at the pointer, or the whole run if there is only that phase.
const phase = (plot, event) => {
  const { left, width } = plot.getBoundingClientRect();
  const ticks = [...document.querySelectorAll(".chart__ticks--phases > *")].map((tick) => tick.getBoundingClientRect());
  const tick = ticks.find((tick) => tick.left <= event.clientX && event.clientX < tick.right);
  if (!tick) return;
  if (ticks.length === 1) return show(plot, 0, 1);
  const [start, end] = rangeOf(plot);
  const [from, to] = [tick.left, tick.right].map((x) => start + ((x - left) / width) * (end - start));
  // The ends are the middles of the first and the last column.
  const half = 0.5 / columnsOf(plot);
  show(plot, from + half, to - half);
};

// Two fingers keep the moments that they touch.
const fingers = new Map();
const touch = (plot, event) => {
  if (event.type === "pointerup" || event.type === "pointercancel") return fingers.delete(event.pointerId);
  const place = placeOf(plot, event);
  if (event.type === "pointerdown" && event.pointerType === "touch") {
    const [start, end] = rangeOf(plot);
    fingers.set(event.pointerId, { place, moment: start + place * (end - start) });
    // The page's own drag of one finger ends where the second one begins.
    if (fingers.size === 2) plot.dispatchEvent(new PointerEvent("pointercancel", { pointerId: -1 }));
  }
  const finger = fingers.get(event.pointerId);
  if (fingers.size !== 2 || !finger) return;
  event.stopImmediatePropagation();
  finger.place = place;
  const [one, two] = fingers.values();
  const width = (two.moment - one.moment) / (two.place - one.place);
  const start = one.moment - one.place * width;
  if (width > 0) show(plot, start, start + width);
};

// A recording that is opened or dropped on any page opens its own page. src/browser/files.rs reads it there.
const openRecording = async (event, file) => {
  if (!file?.name.endsWith(".headroom") || document.querySelector("#recording")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  let binary = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) binary += String.fromCharCode(byte);
  try {
    sessionStorage.setItem("headroom.recording", `${file.name}\n${btoa(binary)}`);
  } catch {
    // Storage is blocked or full: that page takes the file again.
  }
  const language = new URLSearchParams(location.search).get("lang");
  location.assign(`./replay.html${language ? `?lang=${language}` : ""}`);
};
addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
addEventListener("drop", (event) => openRecording(event, event.dataTransfer?.files[0]), true);
addEventListener("change", (event) => openRecording(event, event.target.files?.[0]), true);

const listen = (types, act, capture) => {
  const hear = (event) => {
    const plot = event.target.closest?.("#chart");
    if (plot) act(plot, event);
  };
  for (const type of types) addEventListener(type, hear, { capture, passive: false });
};
listen(["wheel"], wheel, false);
listen(["keydown"], key, false);
listen(["dblclick"], phase, false);
listen(["pointerdown", "pointermove", "pointerup", "pointercancel"], touch, true);

// The heading names the gestures on hover, because the drawing shows the details of a moment there.
const plot = document.getElementById("chart");
const heading = document.getElementById("chart-title")?.parentElement;
if (heading) heading.title = plot.getAttribute("aria-description");

// A text field has its own undo.
const TEXT = "textarea, input:not([type=range], [type=checkbox], [type=radio])";
addEventListener("keydown", (event) => {
  const pressed = event.key.toLowerCase();
  const isKey = (event.ctrlKey || event.metaKey) && !event.altKey && (pressed === "z" || pressed === "y");
  const button = document.getElementById(pressed === "y" || event.shiftKey ? "redo" : "undo");
  if (!isKey || !button || event.target.closest?.(TEXT)) return;
  event.preventDefault();
  button.click();
});

// Compare has two runs, and therefore no list of recent ones.
const recent = document.querySelector(":is(.budget, .gpus) #recent");
if (recent) import("./recent.js").then(({ start }) => start(recent));
const runs = document.getElementById("recent-runs");
if (runs) import("./recent.js").then(({ list }) => list(runs));

// A printed calculator is a report: in the light theme, with all tensors and the address of the run.
const root = document.documentElement;
let restore = null;
const prepare = () => {
  if (restore) return;
  const { theme } = root.dataset;
  root.dataset.theme = "light";
  const all = document.getElementById("tensors-all");
  const isExpanded = all?.ariaExpanded === "true";
  if (!isExpanded) all?.click();
  const foot = Object.assign(document.createElement("p"), { className: "report", textContent: `Headroom · ${location.href}` });
  document.querySelector(".budget").append(foot);
  restore = () => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    if (!isExpanded) all?.click();
    foot.remove();
    restore = null;
  };
};
if (document.querySelector(".budget__answer")) {
  const href = new URL("print.css", document.baseURI);
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", media: "print", href }));
  addEventListener("beforeprint", prepare);
  addEventListener("afterprint", () => restore?.());
  document.addEventListener("report", () => {
    prepare();
    // The list grows in the next frame.
    requestAnimationFrame(() => requestAnimationFrame(() => print()));
  });
}
