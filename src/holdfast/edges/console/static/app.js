// The console: gets the JSON of the page at this address, and shows it with the module of that page.
//
// Data reaches the document only as text and attributes. A page is a module of the same name in pages/:
// its default export is a component, and it may export `title` and `crumbs`.

import { html, render, useCallback, useEffect, useRef, useState } from "./vendor/preact.js";
import { Frame, Help, switchTheme } from "./parts/frame.js";
import { withQuery } from "./parts/format.js";
import { page as fetchPage } from "./parts/net.js";
import { Problem } from "./parts/ui.js";

const loaded = new Map();

async function moduleOf(name) {
  if (!loaded.has(name)) loaded.set(name, await import(`./pages/${name}.js`));
  return loaded.get(name);
}

const here = () => location.pathname + location.search;

const path = (href) => new URL(href, location.href).pathname;

/** An address never reveals a value, since any link could then: only a person on the page does. */
const masked = (href) => (/[?&](reveal|why)=/.test(href) ? withQuery(href, { reveal: null, why: null }) : href);

const TITLES = { 400: "Wrong address", 403: "Not allowed", 404: "Not found" };

/** A page that is refused or not there: why, who asks, and where else to go. */
function Refused({ error, href, caller, retry }) {
  const above = path(href).split("/").slice(0, -1).join("/") || "/";
  const final = error.status in TITLES;
  return html`<section class="card refused" role="alert">
    <p><strong>${error.message}</strong></p>
    <p class="muted"><code>${decoded(href)}</code>${error.code && html` <code>${error.code}</code>`}</p>
    ${error.status === 403 && caller && html`<p>You are here as <strong>${caller.owner}</strong>. Another token may be allowed to see this.</p>`}
    <div class="actions">
      ${!final && html`<button type="button" class="primary" onClick=${retry}>Try again</button>`}
      ${/^\/ui\/(kv|tables|blobs)(\/|$)/.test(above) && html`<a class="button" href=${above}>Go to ${decoded(above)}</a>`}
      <a class="button" href="/">Overview</a>
      ${error.status === 403 && caller?.kind !== "open" && html`<a class="button" href="/ui/login">Log in with another token</a>`}
    </div>
  </section>`;
}

/** An address as people write it; as it is if it can't be decoded. */
function decoded(href) {
  try {
    return decodeURI(href);
  } catch {
    return href;
  }
}

function App() {
  const [state, setState] = useState({ doc: null, module: null, error: null, href: here(), frame: null });
  const [busy, setBusy] = useState(true);
  const [help, setHelp] = useState(false);
  const [Palette, setPalette] = useState(null);
  const under = useRef(null);

  const load = useCallback(async (href, { quiet = false } = {}) => {
    under.current?.abort();
    const control = (under.current = new AbortController());
    if (!quiet) setBusy(true);
    try {
      if (href.startsWith("/ui/login")) {
        setState({ doc: null, module: await moduleOf("login"), error: null, href });
      } else {
        const doc = await fetchPage(masked(href), control.signal);
        const module = await moduleOf(doc.page);
        if (!control.signal.aborted) setState({ doc, module, error: null, href });
      }
    } catch (error) {
      if (control.signal.aborted) return;
      if (error.status === 401) {
        const module = await moduleOf("login");
        setState({ doc: null, module, error: null, href });
      } else {
        // What is shown stays if it could not be read again. Another page is not there, and nothing stands for it.
        setState((before) => {
          const again = before.doc && path(before.href) === path(href);
          const frame = error.problem?.caller ? error.problem : before.doc ?? before.frame;
          return { ...before, ...(again ? {} : { doc: null, module: null }), error, href, frame };
        });
      }
    }
    if (under.current === control) setBusy(false);
  }, []);

  const go = useCallback(
    (href, { replace = false, quiet = false } = {}) => {
      if (replace) history.replaceState(null, "", href);
      else if (href !== here()) history.pushState(null, "", href);
      return load(href, { quiet });
    },
    [load],
  );

  useEffect(() => {
    load(here());
    const back = () => load(here());
    const clicked = (event) => {
      const link = event.target.closest?.("a[href]");
      if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute("download")) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      const url = new URL(link.href);
      if (url.origin !== location.origin || !(url.pathname === "/" || url.pathname.startsWith("/ui"))) return;
      if (url.hash && url.pathname === location.pathname) return;
      event.preventDefault();
      const target = url.pathname + url.search;
      go(target).then(() => {
        if (here() !== target) return; // the person has gone on, and the focus with them
        window.scrollTo(0, 0);
        document.querySelector("h1")?.focus();
      });
    };
    addEventListener("popstate", back);
    document.addEventListener("click", clicked);
    return () => {
      removeEventListener("popstate", back);
      document.removeEventListener("click", clicked);
    };
  }, []);

  const { doc, module, error, href, frame } = state;
  const search = async () => {
    const { Palette: loaded } = await moduleOf("search");
    setPalette(() => loaded);
  };
  useKeyboard(go, () => setHelp(true), () => (doc ?? frame) && search());

  const title = error && !doc ? (TITLES[error.status] ?? "Not available") : module?.title ? module.title(doc, href) : "";
  useEffect(() => {
    document.title = title ? `${title} · Holdfast` : "Holdfast";
  }, [title]);

  const reload = useCallback((options) => load(here(), { quiet: true, ...options }), [load]);
  const Shown = module?.default;
  const plain = module?.plain;
  const inside = html`
    ${error && doc && html`<${Problem} error=${error} retry=${() => load(here())} />`}
    ${error && !doc && html`<${Refused} error=${error} href=${href} caller=${frame?.caller} retry=${() => load(here())} />`}
    ${Shown && html`<${Shown} key=${doc?.page} doc=${doc} href=${href} go=${go} reload=${reload} />`}
    ${!Shown && !error && html`<p class="muted loading">Loading…</p>`}
  `;
  if (plain) return html`<main id="main" class="plain" tabindex="-1">${inside}</main>`;
  return html`
    <${Frame} doc=${doc ?? frame} title=${title} crumbs=${module?.crumbs?.(doc, href)} busy=${busy} onHelp=${() => setHelp(true)} onSearch=${search}>
      ${inside}
    <//>
    ${Palette && html`<${Palette} doc=${doc ?? frame} go=${go} onClose=${() => setPalette(null)} />`}
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  `;
}

const SHORT = { o: "/", b: "/ui/kv", l: "/ui/live", i: "/ui/inbox" };

/** Keys that work everywhere: Ctrl-K / j k Enter ? t, and g with a letter. Rows are what has [data-row]. */
function useKeyboard(go, help, search) {
  const latest = useRef(search);
  latest.current = search;
  useEffect(() => {
    let leader = 0;
    const pressed = (event) => {
      if (event.key === "Control" || event.key === "Meta") moduleOf("search"); // so that nothing typed after K is lost
      if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (!document.querySelector("dialog[open]")) latest.current();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
      const field = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (field) {
        if (event.key === "Escape") field.blur();
        return;
      }
      if (Date.now() - leader < 1200 && SHORT[event.key]) {
        leader = 0;
        go(SHORT[event.key]);
      } else if (event.key === "g") leader = Date.now();
      else if (event.key === "/") {
        event.preventDefault();
        find(go);
      } else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
      else if (event.key === "?") help();
      else if (event.key === "t") switchTheme();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

/** Go to the filter of the page, or to that of all namespaces if the page has none. */
async function find(go) {
  if (!document.querySelector("[data-filter]")) await go("/ui/kv");
  document.querySelector("[data-filter]")?.focus();
}

function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
