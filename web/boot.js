// Starts the page. A file of its own, not an inline script, so that the Content-Security-Policy can forbid inline ones.
// Trunk writes the hashed file names into this script element's attributes (Trunk.toml, pattern_script).
const names = document.querySelector("script[data-wasm]").dataset;
try {
  // Before the program is there, so that a dark room stays dark. The name is also in src/browser.rs. In somebody's page
  // the theme is theirs, and nothing is stored.
  const asked = new URLSearchParams(location.search);
  const theme = asked.has("host") ? asked.get("theme") : localStorage.getItem("headroom.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's theme it is.
}
try {
  const page = await import(new URL(names.js, document.baseURI));
  await page.default({ module_or_path: new URL(names.wasm, document.baseURI) });
} catch (error) {
  // The one state that the page itself cannot show: its program did not arrive or does not run here.
  const message = document.getElementById("loading") ?? document.body.appendChild(document.createElement("p"));
  message.setAttribute("role", "alert");
  message.textContent = `Headroom could not start: ${error}. It needs a browser with WebAssembly; reloading may help.`;
  throw error;
}
