// Lists the tensors that are live at a moment: searched, in groups, and as CSV. boot.js loads this file with the first
// moment. The program sends each as lines of fields: the labels first, then the tensors of the same name and shape.
const N_SHOWN = 6;
const GROUPINGS = ["none", "layer", "category", "module"];

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

let labels = {};
let lines = [];
let list;
let more;
const controls = {};
let isExpanded = false;
const opened = new Set();

// Half of the last digit is rounded to even, as the program does.
const ratio = (part, whole, decimals) => {
  const scaled = (part * 10 ** decimals) / whole;
  const isHalf = scaled % 1 === 0.5 && Math.round(scaled) % 2 === 1;
  return ((Math.round(scaled) - isHalf) / 10 ** decimals).toFixed(decimals);
};
const number = (text) => {
  const [whole, rest] = text.split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, labels.thousands), ...(rest ? [rest] : [])].join(labels.decimal);
};
const size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(bytes ? Math.floor(Math.log2(bytes) / 10) : 0, 4);
  const decimals = unit > 2 ? 2 : unit === 2 && bytes < 10 * 2 ** 20 ? 1 : 0;
  return `${number(ratio(bytes, 2 ** (10 * unit), decimals))} ${units[unit]}`;
};
const exact = (bytes) => `${number(String(bytes))} ${labels.bytes}`;

// A tensor outside of the layers has the layer "". A layer is listed once for each of its tensors.
const parsed = (text) => {
  const [name, module, layers, band, category, kind, why, shape, dtype, bytes] = text.split("\t");
  return { name, module, layers: layers.split(","), band, category, kind, why, shape, dtype, bytes: Number(bytes) };
};
const layersOf = (line) => [...new Set(line.layers)].sort((a, b) => a - b);
const layerText = (layers) => {
  const [first, last] = [layers[0], layers.at(-1)];
  if (first === last) return first;
  return last - first === layers.length - 1 ? `${first}–${last}` : layers.join(",");
};
const placed = (text, line) => text.replace("#", layerText(layersOf(line)));
const bytesOf = (line) => line.bytes * line.layers.length;
const split = (line) => layersOf(line).map((layer) => ({ ...line, layers: line.layers.filter((other) => other === layer) }));
const sum = (lines) => lines.reduce((sum, line) => sum + bytesOf(line), 0);
const bySize = (one, other) => bytesOf(other) - bytesOf(one);

const has = (text) => text.toLowerCase().includes(controls.search.value.trim().toLowerCase());
// The part of a line whose names match the search: all of it, some layers, or nothing.
const matching = (line) => {
  if (has(placed(line.name, line))) return [line];
  const layers = line.layers.filter((layer) => has(line.name.replace("#", layer)));
  return layers.length ? [{ ...line, layers }] : [];
};

const SVG = "http://www.w3.org/2000/svg";
// The bar has a part for each category.
const bar = (lines, most) => {
  const svg = document.createElementNS(SVG, "svg");
  const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { class: "tensors__bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const band of [...new Set(lines.map((line) => line.band))].sort((a, b) => a - b)) {
    const width = (sum(lines.filter((line) => line.band === band)) / most) * 100;
    const rect = document.createElementNS(SVG, "rect");
    set(rect, { class: `band-${band}`, x: x.toFixed(2), width: width.toFixed(2), height: 1 });
    svg.append(rect);
    x += width;
  }
  return svg;
};
const bytesCell = (bytes) => element("span", { className: "tensors__bytes", title: exact(bytes), textContent: size(bytes) });
const row = (line, most) => {
  const n = line.layers.length;
  const shape = `${n > 1 ? `${n} × ` : ""}${line.shape} ${line.dtype}`;
  const made = element(
    "li",
    { className: "tensors__row" },
    bar([line], most),
    element("code", { className: "tensors__name", textContent: placed(line.name, line) }),
    bytesCell(bytesOf(line)),
    element("span", { className: "tensors__shape", textContent: shape }),
    element("span", { className: "tensors__why", textContent: line.why }),
  );
  made.dataset.bytes = bytesOf(line);
  return made;
};

// The groups with a tensor or a name that matches the search: the layers in their order, others by size.
const groupsBy = (grouping) => {
  const nameOf = {
    layer: (line) => (line.layers[0] ? `${labels.layer} ${line.layers[0]}` : labels.outside),
    category: (line) => line.category,
    module: (line) => placed(line.module, line),
  }[grouping];
  const groups = new Map();
  for (const line of grouping === "category" ? lines : lines.flatMap(split)) {
    const name = nameOf(line);
    groups.set(name, [...(groups.get(name) ?? []), line]);
  }
  const found = [...groups].map(([name, lines]) => ({ name, lines: has(name) ? lines : lines.flatMap(matching) }));
  const shown = found.filter(({ lines }) => lines.length);
  const order = grouping === "layer" ? (a, b) => a.lines[0].layers[0] - b.lines[0].layers[0] : (a, b) => sum(b.lines) - sum(a.lines);
  return shown.sort(order);
};
const groupRow = ({ name, lines: members }, grouping, most) => {
  const n = members.reduce((n, line) => n + line.layers.length, 0);
  const bytes = sum(members);
  const count = n === 1 ? labels.one : labels.many.replace("#", number(String(n)));
  const share = `${number(ratio(bytes * 100, sum(lines) || 1, 1))} %`;
  const summary = element(
    "summary",
    { className: "tensors__row tensors__group" },
    bar(members, most),
    element(grouping === "module" ? "code" : "span", { className: "tensors__name", textContent: name }),
    bytesCell(bytes),
    element("span", { className: "tensors__shape", textContent: share }),
    element("span", { className: "tensors__why", textContent: count }),
  );
  summary.dataset.bytes = bytes;
  summary.dataset.group = name;
  const tensors = element("ol", {});
  const details = element("details", {}, summary, tensors);
  const key = `${grouping} ${name}`;
  // Hundreds of rows, so those of closed groups are not made.
  const fill = () => tensors.replaceChildren(...(details.open ? [...members].sort(bySize).map((line) => row(line, most)) : []));
  details.open = opened.has(key);
  fill();
  details.addEventListener("toggle", () => {
    if (details.open) opened.add(key);
    else opened.delete(key);
    if (details.open !== tensors.hasChildNodes()) fill();
  });
  return element("li", {}, details);
};

const draw = () => {
  const grouping = controls.group.value;
  const isGrouped = grouping !== "none";
  const found = isGrouped ? groupsBy(grouping) : lines.flatMap(matching).sort(bySize);
  const bytesIn = (entry) => (isGrouped ? sum(entry.lines) : bytesOf(entry));
  const most = Math.max(1, ...(isGrouped ? found : lines).map(bytesIn));
  const shown = isExpanded ? found : found.slice(0, N_SHOWN);
  const rows = shown.map((entry) => (isGrouped ? groupRow(entry, grouping, most) : row(entry, most)));
  const none = lines.length && !rows.length ? [element("li", { className: "tensors__none", textContent: labels.none })] : [];
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.group : undefined;
  list.replaceChildren(...rows, ...none);
  [...list.querySelectorAll("summary")].find((summary) => summary.dataset.group === focused)?.focus({ preventScroll: true });
  const rest = found.slice(N_SHOWN).reduce((sum, entry) => sum + bytesIn(entry), 0);
  more.classList.toggle("tensors__more--none", found.length <= N_SHOWN);
  more.ariaExpanded = String(isExpanded);
  more.textContent = isExpanded ? labels.fewer : labels.all.replace("{n}", found.length).replace("{size}", size(rest));
};

// One row for each tensor of a layer (RFC 4180).
const csv = () => {
  const quoted = (text) => (/[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cells = (line) => [
    placed(line.name, line),
    line.kind,
    line.layers[0],
    placed(line.module, line),
    String(line.layers.length),
    line.shape,
    line.dtype,
    String(bytesOf(line)),
  ];
  const head = ["name", "category", "layer", "module", "tensors", "shape", "dtype", "bytes"];
  const rows = lines.flatMap(split).sort(bySize).map(cells);
  return [head, ...rows].map((cells) => `${cells.map(quoted).join(",")}\r\n`).join("");
};

const start = (place) => {
  controls.search = element("input", {
    className: "input",
    type: "search",
    id: "tensors-search",
    autocomplete: "off",
    spellcheck: false,
    ariaLabel: labels.search,
    placeholder: labels.search,
  });
  controls.search.addEventListener("input", draw);
  const names = [labels.ungrouped, labels.layer, labels.category, labels.module];
  const options = GROUPINGS.map((value, index) => element("option", { value, textContent: names[index] }));
  controls.group = element("select", { className: "input", id: "tensors-group" }, ...options);
  controls.group.addEventListener("change", draw);
  const file = element("a", { className: "button", id: "tensors-csv", href: "data:,", download: "tensors.csv", textContent: "CSV" });
  file.addEventListener("click", () => {
    file.href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv())}`;
  });
  const group = element("label", { className: "tensors__by" }, element("span", { textContent: labels.groupBy }), controls.group);
  list = element("ol", { className: "tensors__list", id: "tensors" });
  list.setAttribute("aria-labelledby", "tensors-title");
  more = element("button", { type: "button", className: "button button--quiet tensors__more", id: "tensors-all" });
  more.setAttribute("aria-controls", "tensors");
  more.addEventListener("click", () => {
    isExpanded = !isExpanded;
    draw();
  });
  place.replaceChildren(element("div", { className: "tensors__ways" }, controls.search, group, file), list, more);
};

// Lists the tensors of a message of the program.
export const show = (message) => {
  const [texts, ...tensors] = message.split("\n");
  const names = "search groupBy ungrouped layer category module outside none fewer decimal thousands bytes one many all";
  const values = texts.split("\t");
  labels = Object.fromEntries(names.split(" ").map((name, index) => [name, values[index]]));
  lines = tensors.map(parsed);
  if (!list) start(document.getElementById("tensors-body"));
  draw();
};
