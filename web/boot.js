// Starts the page. A file of its own, not an inline script, so that the Content-Security-Policy can forbid inline ones.
// The build writes the hashed file names into this script element's attributes: the program's, and each language's.
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

// Before the program is there, so that a dark room stays dark. The names are also in src/browser.rs.
const query = new URLSearchParams(location.search);
const theme = query.has("host") ? query.get("theme") : kept("headroom.theme");
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

const fetchText = async (name) => {
  const answer = await fetch(at(name));
  if (!answer.ok) throw new Error(`${answer.status} ${answer.url}`);
  return answer.text();
};
// The address, then what was chosen before, then what the browser asks for.
const wanted = [query.get("lang"), query.has("host") ? null : kept("headroom.language"), ...navigator.languages];
const known = wanted.map((tag) => tag?.toLowerCase().split("-")[0]);
root.lang = known.find((code) => /^[a-z]+$/.test(code) && script.hasAttribute(`data-text-${code}`)) ?? "en";

try {
  const text = fetchText(script.getAttribute(`data-text-${root.lang}`));
  const page = await import(at(script.dataset.js));
  globalThis.headroomText = await text;
  await page.default({ module_or_path: at(script.dataset.wasm) });
} catch (error) {
  // The one state that the page itself cannot show: its program did not arrive or does not run here.
  const message = document.getElementById("loading") ?? document.body.appendChild(document.createElement("p"));
  message.setAttribute("role", "alert");
  const said = globalThis.headroomText?.split("\n", 1)[0] ?? "Headroom could not start. It needs a browser with WebAssembly; reloading may help.";
  message.textContent = `${said} (${error})`;
  throw error;
}
