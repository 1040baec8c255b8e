// Embeds the calculator in any page: <headroom-calculator config="--batch_size=64" gpu="RTX 4070">. The script shows
// embed.html from its own directory in a frame. Until the calculator responds, and if it cannot, the element's content
// is shown, such as a link.
//
// The two windows exchange only two messages. Each is sent to one origin, and accepted from one window of one origin: {
// headroom: "height", value: pixels } from the frame, { headroom: "theme", value: "light" | "dark" } to it.
(() => {
  const NAME = "headroom-calculator";
  // A module has no `currentScript`. A script that is included twice runs once.
  const script = document.currentScript ?? document.querySelector(`script[src*="${NAME}.js"]`);
  if (!script || customElements.get(NAME)) return;
  const page = new URL("embed.html", script.src);
  const host = location.origin;

  // A constructed style sheet works under a policy that forbids inline styles. The heights approximate the final ones
  // (styles/embed.css), so that the layout below hardly shifts.
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

  // The state of each element that has a frame: { room, frame, first }.
  const all = new Map();
  let count = 0;

  const address = (element, first) => {
    const lang = element.closest("[lang]")?.lang ?? "";
    let hash = "#1";
    const add = (key, value) => (hash += `&${key}=${encodeURIComponent(value)}`);
    const sizes = ["vram", "others"];
    // An amount of memory alone means a GPU without a name.
    if (element.hasAttribute("vram")) add("gpu", "");
    for (const key of ["gpu", ...sizes, "config"]) {
      const value = element.getAttribute(key);
      if (value) add(key, sizes.includes(key) && !isNaN(value) ? `${value}GiB` : value);
    }
    return `${page}?${new URLSearchParams({ host, lang, theme: first })}${hash}`;
  };

  // Returns red, green, blue and alpha of any CSS colour, from 0 to 1.
  const parts = (room, colour) => {
    room.style.outlineColor = `color-mix(in srgb, ${colour}, ${colour})`;
    return getComputedStyle(room).outlineColor.match(/[\d.]+(e-\d+)?/g).map(Number);
  };

  // A page may have its own theme switch, so the theme follows the colour behind the element.
  const theme = (element, room) => {
    const asked = element.getAttribute("theme");
    if (/^(light|dark)$/.test(asked)) return asked;
    for (let at = element, last; !last; at = at.parentElement ?? at.getRootNode().host) {
      last = !at;
      const [red, green, blue, alpha] = parts(room, last ? "canvas" : getComputedStyle(at).backgroundColor);
      if (!(alpha < 0.5)) return 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 ? "dark" : "light";
    }
  };

  // Only frames that have sent a message are sent the theme; before, another page may be loaded.
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
    // A page without an origin, such as a local file, receives no height. The frame keeps its height and scrolls.
    if (host === "null") resize(room, frame, room.offsetHeight);
  };

  const resize = (room, frame, height) => {
    room.className = "on";
    frame.style.height = `${height}px`;
  };

  // Frames load shortly before they become visible.
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

  // A page's theme switch may set a class or an attribute, replace a style sheet, or follow the system. A colour may
  // fade.
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
        // Replaces the frame's address without a history entry. Only the language is not in the fragment, so nothing
        // else reloads.
        else made?.frame.contentWindow.location.replace(address(this, made.first));
      }
    },
  );
})();
