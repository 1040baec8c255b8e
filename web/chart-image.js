// Draws the memory chart as SVG and on a canvas, for export.js: a list of shapes and words, read from a copy of the chart
// with a fixed width. A canvas, because the page's policy allows no image from a `data:` or `blob:` address.
const [WIDTH, MARGIN, HEAD, FOOT, SCALE] = [1040, 20, 58, 34, 2];

// Returns a colour as six hexadecimal digits, which every SVG program reads, and its opacity.
const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const hex = (colour) => {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  const [r, g, b, alpha] = pixel.getImageData(0, 0, 1, 1).data;
  const digits = [r, g, b].map((value) => value.toString(16).padStart(2, "0")).join("");
  return { colour: `#${digits}`, alpha: alpha / 255 };
};

const outline = (shape) => {
  const number = (name) => Number(shape.getAttribute(name) ?? 0);
  if (shape.localName === "path") return shape.getAttribute("d") ?? "";
  if (shape.localName === "line") return `M${number("x1")} ${number("y1")}L${number("x2")} ${number("y2")}`;
  const [x, y, width, height] = ["x", "y", "width", "height"].map(number);
  return `M${x} ${y}h${width}v${height}h${-width}z`;
};

const shapesOf = (svg, place) => {
  const box = place(svg.getBoundingClientRect());
  const view = svg.viewBox.baseVal;
  const scale = [box.width / view.width, box.height / view.height];
  return [...svg.querySelectorAll("path, line, rect")].flatMap((shape) => {
    const d = outline(shape);
    const style = getComputedStyle(shape);
    const paint = (value) => (value === "none" ? null : hex(value));
    const [fill, stroke] = [paint(style.fill), paint(style.stroke)];
    if (!d || (!fill && !stroke)) return [];
    const dash = style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(Number.parseFloat);
    const opacity = Number(style.opacity) * Number(getComputedStyle(svg).opacity);
    return [{ d, box, scale, fill, stroke, width: Number.parseFloat(style.strokeWidth), dash, opacity }];
  });
};

// A word that its box hides is not drawn.
const isInside = (rect, node, root) => {
  for (let parent = node; parent !== root; parent = parent.parentElement) {
    if (getComputedStyle(parent).overflowX === "visible") continue;
    const box = parent.getBoundingClientRect();
    if (rect.top > box.bottom - 2 || rect.left > box.right - 2 || rect.right > box.right + 2) return false;
  }
  return true;
};

const word = (text, rect, element, place) => {
  const style = getComputedStyle(element);
  const { x, y, width, height } = place(rect);
  return { text, x, y: y + height / 2, width, size: Number.parseFloat(style.fontSize), weight: style.fontWeight, ink: hex(style.color) };
};

const wordsOf = (root, place) => {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const [words, range] = [[], document.createRange()];
  while (walker.nextNode()) {
    const [node, element] = [walker.currentNode, walker.currentNode.parentElement];
    const text = node.data.replace(/\s+/g, " ").trim();
    if (!text || element.closest("svg, .visually-hidden, .chart__tick, .chart__details") || !element.checkVisibility({ visibilityProperty: true })) continue;
    range.selectNodeContents(node);
    const rect = range.getBoundingClientRect();
    if (rect.width > 0 && isInside(rect, element, root)) words.push(word(text, rect, element, place));
  }
  // A narrow tick has a short label, which is generated content.
  for (const span of root.querySelectorAll(".chart__tick > span")) {
    const [style, rect] = [getComputedStyle(span), span.getBoundingClientRect()];
    const short = getComputedStyle(span, "::before");
    const isShort = Number.parseFloat(style.fontSize) === 0;
    const text = isShort ? JSON.parse(short.content) : span.textContent;
    if (style.display === "none" || !text) continue;
    const size = Number.parseFloat(isShort ? short.fontSize : style.fontSize);
    const { top, height } = span.parentElement.getBoundingClientRect();
    const at = word(text, { left: rect.left + 4, top, width: rect.width, height }, span, place);
    words.push({ ...at, size });
  }
  return words;
};

const platesOf = (root, place) =>
  [...root.querySelectorAll("em, .chart__card, .chart__fails, .chart__moment, .chart__tick > span")].flatMap((element) => {
    // The border of a tick is its line.
    const isTick = element.matches(".chart__tick > span");
    const style = getComputedStyle(element);
    const fill = hex(isTick ? style.borderLeftColor : style.backgroundColor);
    const rect = isTick ? element.parentElement.getBoundingClientRect() : element.getBoundingClientRect();
    if (isTick) rect.width = 1;
    if (!fill.alpha || !element.checkVisibility() || !isInside(rect, element, root)) return [];
    const { x, y, width, height } = place(rect);
    return [{ d: `M${x} ${y}h${width}v${height}h${-width}z`, fill, stroke: null, dash: [], opacity: 1 }];
  });

// Returns the chart's size, shapes and words, with the verdict and the run above it and the link below.
const read = () => {
  const copy = document.querySelector(".chart").cloneNode(true);
  const frame = document.createElement("div");
  const rules = new CSSStyleSheet();
  rules.replaceSync(`#chart-copy{position:fixed;left:-9999px;top:0;width:${WIDTH}px}#chart-copy .chart{border:0;background:none}#chart-copy button#chart-reset{display:none}`);
  document.adoptedStyleSheets.push(rules);
  frame.id = "chart-copy";
  frame.inert = true;
  frame.append(copy);
  document.body.append(frame);
  try {
    const origin = frame.getBoundingClientRect();
    const place = ({ left, top, width, height }) => ({ x: left - origin.left, y: top - origin.top + HEAD, width, height });
    const style = getComputedStyle(document.body);
    const ink = hex(style.color);
    const line = (text, y, size, weight) => ({ text, x: MARGIN, y, width: WIDTH - 2 * MARGIN, size, weight, ink });
    const textOf = (selector) => document.querySelector(selector)?.textContent.replace(/\s+/g, " ").trim() ?? "";
    const height = HEAD + origin.height + FOOT;
    const headline = document.querySelector("#verdict > :last-child").firstChild?.textContent ?? "";
    return {
      height,
      family: style.fontFamily,
      paper: hex(getComputedStyle(document.querySelector(".chart")).backgroundColor).colour,
      shapes: [...copy.querySelectorAll("svg")].flatMap((svg) => shapesOf(svg, place)).concat(platesOf(copy, place)),
      words: [
        line(headline, 24, 20, 700),
        line(textOf(".run-summary__run"), 48, 13, 400),
        ...wordsOf(copy, place),
        line(location.href.replace(/^https?:\/\//, ""), height - FOOT / 2, 12, 400),
      ],
    };
  } finally {
    frame.remove();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== rules);
  }
};

const escaped = (text) => text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
const short = (number) => Number(number.toFixed(2));

const attributes = ({ fill, stroke, width, dash, opacity }) =>
  [
    fill ? `fill="${fill.colour}"${fill.alpha < 1 ? ` fill-opacity="${short(fill.alpha)}"` : ""}` : 'fill="none"',
    stroke ? `stroke="${stroke.colour}" stroke-opacity="${short(stroke.alpha)}" stroke-width="${width}" vector-effect="non-scaling-stroke"` : "",
    dash.length ? `stroke-dasharray="${dash.join(" ")}"` : "",
    opacity < 1 ? `opacity="${short(opacity)}"` : "",
  ]
    .filter(Boolean)
    .join(" ");

// Returns the chart as the text of an SVG file.
export const svg = () => {
  const { height, family, paper, shapes, words } = read();
  const lines = shapes.map((shape) => {
    const path = `<path d="${shape.d}" ${attributes(shape)}/>`;
    if (!shape.box) return path;
    const { x, y, width, height } = shape.box;
    const [across, down] = [width / shape.scale[0], height / shape.scale[1]];
    return `<svg x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" viewBox="0 0 ${short(across)} ${short(down)}" preserveAspectRatio="none">${path}</svg>`;
  });
  const texts = words.map(
    ({ text, x, y, size, weight, ink }) =>
      `<text x="${short(x)}" y="${short(y)}" font-size="${size}" font-weight="${weight}" fill="${ink.colour}" fill-opacity="${short(ink.alpha)}">${escaped(text)}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${Math.ceil(height)}" viewBox="0 0 ${WIDTH} ${Math.ceil(height)}" font-family="${escaped(family)}" dominant-baseline="central">`,
    `<title>${escaped(words[0].text)}</title>`,
    `<rect width="100%" height="100%" fill="${paper}"/>`,
    ...lines,
    ...texts,
    "</svg>\n",
  ].join("\n");
};

// Returns the chart on a canvas with two pixels for each unit.
export const canvas = () => {
  const { height, family, paper, shapes, words } = read();
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH * SCALE, height: Math.ceil(height) * SCALE });
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, WIDTH, height);
  for (const { d, box, scale, fill, stroke, width, dash, opacity } of shapes) {
    pen.save();
    let path = new Path2D(d);
    if (box) {
      pen.beginPath();
      pen.rect(box.x, box.y, box.width, box.height);
      pen.clip();
      const placed = new Path2D();
      placed.addPath(path, new DOMMatrix([scale[0], 0, 0, scale[1], box.x, box.y]));
      path = placed;
    }
    if (fill) {
      pen.globalAlpha = opacity * fill.alpha;
      pen.fillStyle = fill.colour;
      pen.fill(path);
    }
    if (stroke) {
      pen.globalAlpha = opacity * stroke.alpha;
      pen.strokeStyle = stroke.colour;
      pen.lineWidth = width;
      pen.setLineDash(dash);
      pen.stroke(path);
    }
    pen.restore();
  }
  pen.textBaseline = "middle";
  for (const { text, x, y, width, size, weight, ink } of words) {
    pen.font = `${weight} ${size}px ${family}`;
    pen.globalAlpha = ink.alpha;
    pen.fillStyle = ink.colour;
    pen.fillText(text, x, y, Math.max(width, 8) + 2);
  }
  return canvas;
};
