// Runs the demo's program off the page's own thread. A file of its own, as a worker begins with a script.
const program = import("./headroom-demo.js").then(async (module) => {
  await module.default({ module_or_path: new URL("headroom-demo_bg.wasm", import.meta.url) });
  return module;
});
// Thrown outside of the promise, so that the page hears of it.
program.catch((error) => setTimeout(() => { throw error; }));

// What is asked is asked one after the other, whatever it waits for: a checkpoint on another machine, for one.
let asked = program;
addEventListener("message", ({ data }) => {
  asked = asked.then(async (module) => {
    const files = data.remote ? await (await import("./remote.js")).open(data.remote) : data.files;
    module.ask(data.ask, files);
    return module;
  });
});
