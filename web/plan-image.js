// Draws a plan as an image, for export.js. The words come from the page's forum text, so they are in the page's language.

const [WIDTH, HEIGHT, MARGIN] = [1200, 630, 56];
// Pixels of the image for each unit of the drawing.
const SCALE = 2;
// Size of the table's words, and the distance of lines as a multiple of the size.
const [ROW, LEADING] = [18, 1.32];
// The icon's shapes, as in icons/icon.svg.
const [LIMIT, STACK] = ["M2 3h12v2H2z", "M2 13v-3h3V7h3v2h3V7h3v6z"];
const SIGNS = { fits: ["✓", "good"], narrow: ["!", "warn"], fails: ["✕", "bad"] };

// Parses the forum text: a verdict, a table and a link.
const parse = (text) => {
  const lines = text.trim().split("\n");
  const [, headline, detail] = /^\*\*(.*?)\*\* ?(.*)$/.exec(lines[0]);
  const cells = (line) => line.slice(2, -2).split(" | ").map((cell) => cell.replaceAll("`", ""));
  const rows = lines.filter((line) => line.startsWith("| ") && !line.startsWith("| ---")).map(cells);
  const [, link] = /\]\((.*)\)$/.exec(lines.at(-1));
  return { headline, detail, rows, link: link.replace(/^https?:\/\//, "") };
};

// Reads the phases from the page's table, and the GPU's memory from its figures.
const measure = () => {
  const rows = [...document.querySelectorAll("#phases tbody tr")];
  const phases = rows.map((row) => {
    const cell = row.lastElementChild;
    return { name: row.firstElementChild.firstChild.data, bytes: Number(cell.dataset.bytes), size: cell.textContent };
  });
  const figure = document.querySelectorAll(".figures__figure")[3];
  const total = Number(figure.title.split("·")[0].replace(/\D/g, ""));
  const used = total - Number(document.querySelector("#verdict").dataset.headroomBytes);
  const outside = used - Math.max(...phases.map((phase) => phase.bytes));
  return { phases, total, outside };
};

// Returns the page's colours in its dark theme, whatever theme is chosen.
const palette = () => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.colorScheme = "dark";
  const names = ["paper", "ink", "ink-soft", "line", "surface-hover", "accent", "good", "warn", "bad", "band-others"];
  const colours = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(colours);
};

// A canvas that keeps what is written on it, as a description of the image.
const sheet = (colours) => {
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH * SCALE;
  canvas.height = HEIGHT * SCALE;
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  const family = getComputedStyle(document.body).fontFamily;
  const said = [];

  const setFont = (size, weight) => {
    pen.font = `${weight} ${size}px ${family}`;
  };
  // Lines break at spaces, and anywhere between Chinese and Japanese characters.
  const broken = (text, width) => {
    const lines = [""];
    for (const word of text.match(/[\u2e80-\uffef]|[^\s\u2e80-\uffef]+\s*|\s+/g) ?? []) {
      if (lines.at(-1) && pen.measureText((lines.at(-1) + word).trimEnd()).width > width) lines.push("");
      lines[lines.length - 1] += word;
    }
    return lines.map((line) => line.trimEnd());
  };
  const shortened = (line, width, isCut) => {
    if (!isCut && pen.measureText(line).width <= width) return line;
    let kept = line;
    while (kept && pen.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
    return `${kept}…`;
  };
  return {
    canvas,
    pen,
    colours,
    finish: () => {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", said.join("\n"));
      return canvas;
    },
    fill: (colour, x, y, width, height) => {
      pen.fillStyle = colours[colour];
      pen.fillRect(x, y, width, height);
    },
    // Writes a text with its first baseline at `y`, in at most `most` lines. Returns the last baseline.
    write: (text, { x = MARGIN, y, width = WIDTH - MARGIN - x, size, weight = 400, colour = "ink", most = 1, align = "left" }) => {
      setFont(size, weight);
      pen.fillStyle = colours[colour];
      pen.textAlign = align;
      const all = broken(text, width);
      const lines = all.slice(0, most).map((line, index) => shortened(line, width, index === most - 1 && all.length > most));
      lines.forEach((line, index) => pen.fillText(line, x, y + index * size * LEADING));
      const isWhole = lines.length === all.length && lines.every((line, index) => line === all[index]);
      said.push(isWhole ? text : lines.join(" "));
      return y + (lines.length - 1) * size * LEADING;
    },
    // Returns the largest of the sizes in which a text takes one line, or the last.
    sizeFor: (text, width, sizes, weight) =>
      sizes.find((size) => {
        setFont(size, weight);
        return pen.measureText(text).width <= width;
      }) ?? sizes.at(-1),
  };
};

const drawPhases = (page, { phases, total, outside }, top, bottom) => {
  const [left, right] = [664, WIDTH - MARGIN];
  const [bar, end] = [left + 196, right - 96];
  const pitch = Math.min(34, (bottom - top) / phases.length);
  const size = Math.min(19, pitch * 0.68);
  const all = Math.max(total, ...phases.map((phase) => outside + phase.bytes));
  const at = (bytes) => bar + (bytes / all) * (end - bar);
  phases.forEach(({ name, bytes, size: words }, index) => {
    const y = top + index * pitch;
    const used = outside + bytes;
    page.fill("surface-hover", bar, y + 3, at(total) - bar, pitch - 8);
    page.fill("band-others", bar, y + 3, at(outside) - bar, pitch - 8);
    page.fill("accent", at(outside), y + 3, at(Math.min(used, total)) - at(outside), pitch - 8);
    if (used > total) page.fill("bad", at(total), y + 3, at(used) - at(total), pitch - 8);
    const line = { y: y + pitch / 2 + size * 0.32, size };
    page.write(name, { ...line, x: left, width: bar - left - 12, colour: "ink-soft" });
    page.write(words, { ...line, x: right, width: right - end - 8, align: "right" });
  });
  page.fill("bad", at(total) - 1, top - 4, 3, phases.length * pitch + 6);
};

// Draws the plan of a forum text. The canvas has the image's words as its label.
export const draw = (text) => {
  const { headline, detail, rows, link } = parse(text);
  const [run, ...others] = rows;
  const page = sheet(palette());
  const [sign, colour] = SIGNS[document.querySelector(".verdict").dataset.outcome] ?? SIGNS.fits;
  page.fill("paper", 0, 0, WIDTH, HEIGHT);
  page.pen.save();
  page.pen.translate(MARGIN - 5, 36);
  page.pen.scale(2.5, 2.5);
  page.pen.fillStyle = page.colours.bad;
  page.pen.fill(new Path2D(LIMIT));
  page.pen.fillStyle = page.colours.ink;
  page.pen.fill(new Path2D(STACK));
  page.pen.restore();
  page.write("Headroom", { x: MARGIN + 44, y: 65, size: 26, weight: 650 });

  const indent = MARGIN + 52;
  const size = page.sizeFor(headline, WIDTH - MARGIN - indent, [50, 46, 42, 38, 34], 700);
  page.write(sign, { y: 142, size, weight: 700, colour });
  let y = page.write(headline, { x: indent, y: 142, size, weight: 700, most: 2 });
  const width = WIDTH - 2 * MARGIN;
  const small = page.sizeFor(detail, width, [22, 21, 20, 19], 400);
  y = page.write(detail, { y: y + 42, size: small, colour: "ink-soft", most: 2 });
  y = page.write(run[1], { y: y + 38, size: page.sizeFor(run[1], width, [20, 19, 18], 400), most: 2 });
  page.fill("line", MARGIN, y + 22, width, 1);

  const [top, bottom] = [y + 44, HEIGHT - 84];
  drawPhases(page, measure(), top, bottom);
  y = top + 18;
  for (const [name, value] of others) {
    if (y > bottom) break;
    const most = Math.min(4, Math.floor((bottom - y) / (ROW * LEADING)) + 1);
    const ends = [
      page.write(name, { y, width: 178, size: ROW, colour: "ink-soft", most }),
      page.write(value, { x: MARGIN + 190, y, width: 400, size: ROW, most }),
    ];
    y = Math.max(...ends) + ROW * 1.75;
  }
  page.write(link, { y: HEIGHT - 40, size: page.sizeFor(link, width, [19, 17, 15], 400), colour: "accent" });
  return page.finish();
};
