// The frame of every page: the rail of pages, the bar with the visitor, and the help.

import { html, useEffect, useState } from "../vendor/preact.js";
import { post } from "./net.js";
import { Dialog } from "./ui.js";

/** The rail: name, address, the pages that belong to it, and whether it is for operators alone. */
export const RAIL = [
  ["Overview", "/", ["overview"], false],
  ["Browse", "/ui/kv", ["namespaces", "browse", "entry"], false],
  ["Live", "/ui/live", ["live"], false],
  ["Inbox", "/ui/inbox", ["inbox"], true],
  ["Cluster", "/ui/cluster", ["cluster"], true],
  ["Audit", "/ui/audit", ["audit"], true],
  ["Tables", "/ui/tables", ["tables", "table", "item"], false],
  ["Blobs", "/ui/blobs", ["blobs", "blob"], false],
  ["Policies", "/ui/policies", ["policies", "policy"], true],
  ["Tokens", "/ui/tokens", ["tokens"], true],
  ["Settings", "/ui/settings", ["settings"], true],
];

const KEYS = [
  ["Ctrl K", "Search namespaces, keys and pages"],
  ["/", "Go to the filter, or to Browse if there is none"],
  ["j, k", "Next, previous row"],
  ["Enter", "Open the row"],
  ["Esc", "Close a dialog, leave a field"],
  ["g, then o b l i", "Overview, Browse, Live, Inbox"],
  ["t", "Switch between light, dark and the system's colours"],
  ["?", "This help"],
];

export function Help({ onClose }) {
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <dl class="keys">
      ${KEYS.map(([key, does]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}
    </dl>
    <p class="muted">Every page is also JSON: ask for its address with <code>Accept: application/json</code>.</p>
  <//>`;
}

const NEXT = { auto: "light", light: "dark", dark: "auto" };

export function chosenTheme() {
  return document.documentElement.dataset.theme || "auto";
}

export function switchTheme() {
  const theme = NEXT[chosenTheme()];
  if (theme === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("holdfast-theme");
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("holdfast-theme", theme);
  }
  dispatchEvent(new Event("holdfast-theme"));
}

function Theme() {
  const [theme, setTheme] = useState(chosenTheme());
  useEffect(() => {
    const switched = () => setTheme(chosenTheme());
    addEventListener("holdfast-theme", switched);
    return () => removeEventListener("holdfast-theme", switched);
  }, []);
  const words = { auto: "◐ System", light: "☀ Light", dark: "☾ Dark" };
  return html`<button type="button" class="quiet" onClick=${switchTheme} title="Colours (t)">
    ${words[theme]}
  </button>`;
}

function Visitor({ caller }) {
  if (!caller) return null;
  if (caller.kind === "open") {
    return html`<span class="visitor" title="Any process on this machine may read and write everything">
      <span class="dot warn"></span>open mode, no login
    </span>`;
  }
  const limits = caller.verbs ? `, ${caller.verbs.length} verbs` : "";
  return html`<span class="visitor" title=${caller.verbs ? caller.verbs.join(", ") : "every verb"}>
    <span class="dot"></span>${caller.owner}${limits}
  </span>`;
}

/** What a visitor sets for oneself: the session and the colours. In a narrow window it is in the menu. */
function Own({ caller }) {
  const leave = async () => {
    await post("/ui/logout", {});
    location.assign("/ui/login");
  };
  const session = caller && caller.kind !== "open";
  return html`${session && html`<button type="button" class="quiet" onClick=${leave}>Log out</button>`}<${Theme} />`;
}

/** The pages that a visitor may open. The cluster is one of them if there is one, or several instances. */
export const pagesFor = (doc) => {
  const operator = !doc?.caller || doc.caller.operator;
  return RAIL.filter(([name, , , operators]) => (operator || !operators) && (name !== "Cluster" || !doc || doc.cluster_shown));
};

export function Frame({ doc, title, crumbs, busy, onHelp, onSearch, children }) {
  const [open, setOpen] = useState(false);
  const entries = pagesFor(doc);
  const current = doc ? doc.page : "";
  return html`
    <nav class=${open ? "rail open" : "rail"} aria-label="Pages">
      <a class="brand" href="/"><span class="mark" aria-hidden="true"></span>Holdfast</a>
      <button type="button" class="search-narrow quiet" onClick=${onSearch}>Search</button>
      <button type="button" class="menu quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        ${open ? "Close" : "Menu"}
      </button>
      <ul onClick=${() => setOpen(false)}>
        ${entries.map(
          ([name, href, pages]) => html`<li key=${name}>
            <a href=${href} aria-current=${pages.includes(current) ? "page" : null}>${name}</a>
          </li>`,
        )}
      </ul>
      <div class="rail-foot">
        ${doc && html`<span class="muted">v${doc.version}</span>`}
        <span class="own"><${Own} caller=${doc && doc.caller} /></span>
        <button type="button" class="quiet" onClick=${onHelp} title="Keyboard (?)">? Keys</button>
      </div>
    </nav>
    <div class="page">
      <header class="bar">
        <div class="titles">
          ${crumbs &&
          html`<p class="crumbs">
            ${crumbs.map(([name, href]) => html`<span key=${href}><a href=${href}>${name}</a> / </span>`)}
          </p>`}
          <h1 tabindex="-1" title=${title}>${title}</h1>
        </div>
        <div class="bar-end">
          <button type="button" class="search-open" onClick=${onSearch}>Search <kbd>Ctrl K</kbd></button>
          <${Visitor} caller=${doc && doc.caller} />
          <span class="own"><${Own} caller=${doc && doc.caller} /></span>
        </div>
        <div class=${busy ? "progress busy" : "progress"} aria-hidden="true"></div>
      </header>
      <main id="main" tabindex="-1" aria-busy=${busy}>${children}</main>
      <p id="announcements" class="toast" role="status" aria-live="polite"></p>
    </div>
  `;
}
