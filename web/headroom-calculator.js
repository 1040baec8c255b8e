// Shows the calculator in somebody's page: <headroom-calculator config="--batch_size=64" gpu="RTX 4070">. One script, for
// any page on any host; embed.html, which it shows in a frame, lies in the folder that it comes from. Until the
// calculator answers, and where it cannot, what stands inside the element is shown: a link, say.
//
// Two messages go between the two windows and no others, each sent to one origin and taken from one window of one
// origin: { headroom: "height", value: pixels } out of the frame, { headroom: "theme", value: "light" | "dark" } into it.
(() => {
  const NAME = "headroom-calculator";
  // As a module a script does not know itself. One that two parts of a page put in is still one.
  const script = document.currentScript ?? document.querySelector(`script[src*="${NAME}.js"]`);
  if (!script || customElements.get(NAME)) return;
  const page = new URL("embed.html", script.src);
  const host = location.origin;

  // Rules of a sheet made here hold under a policy without inline styles. The heights are about what will come
  // (styles/embed.css), so that the text below hardly moves.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    ":host{display:block;container-type:inline-size}" +
      "div{position:relative;min-height:700px}" +
      "@container(max-width:639px){div{min-height:1190px}}" +
      "iframe{position:absolute;width:100%;height:100%;border:0;opacity:0}" +
      ".on{min-height:0}" +
      ".on slot{display:none}" +
      ".on iframe{display:block;position:static;opacity:1}",
  );

  // What belongs to each element whose frame is made: { room, frame, first }.
  const all = new Map();
  let count = 0;

  const address = (element, first) => {
    const lang = element.closest("[lang]")?.lang ?? "";
    let hash = "#1";
    const add = (key, value) => (hash += `&${key}=${encodeURIComponent(value)}`);
    const sizes = ["vram", "others"];
    // An amount of memory alone is a card without a name.
    if (element.hasAttribute("vram")) add("gpu", "");
    for (const key of ["gpu", ...sizes, "config"]) {
      const value = element.getAttribute(key);
      if (value) add(key, sizes.includes(key) && !isNaN(value) ? `${value}GiB` : value);
    }
    return `${page}?${new URLSearchParams({ host, lang, theme: first })}${hash}`;
  };

  // Red, green, blue and alpha from 0 to 1 of a colour in any of CSS's ways to write one.
  const parts = (room, colour) => {
    room.style.outlineColor = `color-mix(in srgb, ${colour}, ${colour})`;
    return getComputedStyle(room).outlineColor.match(/[\d.]+(e-\d+)?/g).map(Number);
  };

  // A page may have a switch of its own for light and dark, so what counts is the colour behind the element.
  const theme = (element, room) => {
    const asked = element.getAttribute("theme");
    if (/^(light|dark)$/.test(asked)) return asked;
    for (let at = element, last; !last; at = at.parentElement ?? at.getRootNode().host) {
      last = !at;
      const [red, green, blue, alpha] = parts(room, last ? "canvas" : getComputedStyle(at).backgroundColor);
      if (!(alpha < 0.5)) return 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 ? "dark" : "light";
    }
  };

  // Only once the frame has spoken: before, it is another page that would be told.
  const follow = () => {
    for (const [element, { room, frame }] of all) {
      const value = theme(element, room);
      frame.style.colorScheme = value;
      if (room.className) frame.contentWindow.postMessage({ headroom: "theme", value }, page.origin);
    }
  };

  const show = (element) => {
    near.unobserve(element);
    const room = element.shadowRoot.firstChild;
    const frame = document.createElement("iframe");
    const first = theme(element, room);
    frame.title = element.title || `Headroom ${++count}`;
    frame.style.colorScheme = first;
    frame.referrerPolicy = "no-referrer";
    frame.src = address(element, first);
    room.append(frame);
    all.set(element, { room, frame, first });
    watch.observe(document.body, { attributes: true });
    // A page without an origin, as a file is one, can be told nothing: the frame keeps this height and scrolls.
    if (host === "null") resize(room, frame, room.offsetHeight);
  };

  const resize = (room, frame, height) => {
    room.className = "on";
    frame.style.height = `${height}px`;
  };

  // Frames load a little before they are seen; what is far below loads when a reader comes near.
  const margin = "400px";
  const near = new IntersectionObserver(
    (entries) => entries.forEach((entry) => entry.isIntersecting && show(entry.target)),
    { rootMargin: margin, scrollMargin: margin },
  );

  addEventListener("message", ({ origin, source, data }) => {
    if (origin !== page.origin || data?.headroom !== "height" || !(data.value > 0 && data.value < 1e4)) return;
    for (const { room, frame } of all.values()) {
      if (source === frame.contentWindow) {
        resize(room, frame, data.value);
        follow();
      }
    }
  });

  // The switch sets a class or an attribute, swaps a style sheet, or is the system's; a colour may fade to the next.
  const watch = new MutationObserver(follow);
  watch.observe(document.documentElement, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").onchange = follow;
  addEventListener("transitionend", (event) => event.propertyName.startsWith("background") && follow());
  addEventListener("load", (event) => event.target.rel && follow(), true);

  customElements.define(
    NAME,
    class extends HTMLElement {
      static observedAttributes = ["config", "gpu", "vram", "others", "lang", "theme"];

      connectedCallback() {
        const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
        root.adoptedStyleSheets = [sheet];
        const room = document.createElement("div");
        room.append(document.createElement("slot"));
        root.replaceChildren(room);
        near.observe(this);
      }

      disconnectedCallback() {
        near.unobserve(this);
        all.delete(this);
      }

      attributeChangedCallback(attribute) {
        const made = all.get(this);
        if (attribute === "theme") follow();
        // Without a step in the history. All but the language is behind the #, so nothing is fetched anew.
        else made?.frame.contentWindow.location.replace(address(this, made.first));
      }
    },
  );
})();
