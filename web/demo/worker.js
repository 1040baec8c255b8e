// Runs the demo's program outside the page's main thread. This is a separate file because a worker starts from a
// script.
const program = import("./headroom-demo.js").then(async (module) => {
  await module.default({ module_or_path: new URL("headroom-demo_bg.wasm", import.meta.url) });
  return module;
});
// Thrown outside the promise, so that the page receives an error event.
program.catch((error) => setTimeout(() => { throw error; }));

// Requests are processed in order, whatever they wait for, such as a checkpoint on another machine.
let asked = program;
addEventListener("message", ({ data }) => {
  asked = asked.then(async (module) => {
    const files = data.remote ? await (await import("./remote.js")).open(data.remote) : data.files;
    module.ask(data.ask, files);
    return module;
  });
});
