// Runs the demo's program off the page's own thread. A file of its own, as a worker begins with a script.
const program = import("./headroom-demo.js").then(async (module) => {
  await module.default({ module_or_path: new URL("headroom-demo_bg.wasm", import.meta.url) });
  return module;
});
// Thrown outside of the promise, so that the page hears of it.
program.catch((error) => setTimeout(() => { throw error; }));

addEventListener("message", async ({ data }) => (await program).ask(data.ask, data.files));
