// Offers a plan as an image, its chart as SVG and PNG, and the page as a printed report. boot.js loads this file when the
// user presses the button.
import { draw } from "./plan-image.js";

const STYLE =
  "#export-dialog{width:min(76rem,100vw - 2rem,(100vh - 9rem)*1.9);min-width:min(18rem,100vw - 1rem);padding:var(--space-4);border:var(--hairline) solid var(--line);" +
  "border-radius:var(--radius-large);background:var(--surface);color:inherit;box-shadow:var(--shadow);margin:auto}" +
  "#export-dialog::backdrop{background:rgb(0 0 0/50%)}" +
  "#export-dialog canvas{display:block;width:100%;height:auto;border-radius:var(--radius)}" +
  "#export-dialog div{display:flex;flex-wrap:wrap;gap:var(--space-2);margin-top:var(--space-3)}" +
  "#export-dialog div>:last-child{margin-left:auto}";
// A policy that forbids inline styles accepts a constructed style sheet.
const rules = new CSSStyleSheet();
rules.replaceSync(STYLE);
document.adoptedStyleSheets.push(rules);

const element = (name, properties) => Object.assign(document.createElement(name), properties);

const saved = (blob, name) => {
  const href = URL.createObjectURL(blob);
  element("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60000);
};

const png = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

const saveChart = async (kind) => {
  const chart = await import("./chart-image.js");
  const blob = kind === "svg" ? new Blob([chart.svg()], { type: "image/svg+xml" }) : await png(chart.canvas());
  saved(blob, `headroom-chart.${kind}`);
};

// Shows the dialog for a forum text. The labels come before it, one in each line.
export const show = async (message) => {
  const [title, download, copy, copied, notCopied, close, chartSvg, chartPng, print, ...text] = message.split("\n");
  const canvas = draw(text.join("\n"));
  const blob = await png(canvas);
  const dialog = element("dialog", { id: "export-dialog", ariaLabel: title });
  const actions = element("div", {});
  const add = (id, label, act, kind = "") => {
    const button = element("button", { className: `button ${kind}`, id, type: "button", textContent: label });
    button.addEventListener("click", () => act(button));
    actions.append(button);
  };
  add("export-download", download, () => saved(blob, "headroom.png"), "button--primary");
  // Browsers offer the clipboard to secure pages only.
  if (navigator.clipboard?.write && globalThis.ClipboardItem) {
    add("export-copy", copy, async (button) => {
      const isCopied = navigator.clipboard.write([new ClipboardItem({ [blob.type]: blob })]).then(() => true, () => false);
      button.textContent = (await isCopied) ? copied : notCopied;
      setTimeout(() => (button.textContent = copy), 1600);
    });
  }
  add("export-svg", chartSvg, () => saveChart("svg"));
  add("export-png", chartPng, () => saveChart("png"));
  add("export-print", print, () => {
    dialog.close();
    document.dispatchEvent(new CustomEvent("report"));
  });
  add("export-close", close, () => dialog.close());
  dialog.append(canvas, actions);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
};
