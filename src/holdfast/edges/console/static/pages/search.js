// Search over pages, namespaces and keys: a box that Ctrl-K opens, and a page with the same answer.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { entryHref, number } from "../parts/format.js";
import { pagesFor } from "../parts/frame.js";
import { page as fetchPage } from "../parts/net.js";
import { Section, useTyped } from "../parts/ui.js";

export const title = () => "Search";

/** All hits as groups of pairs of text and address. */
function groups(doc, text, found) {
  const part = text.trim().toLowerCase();
  const pages = pagesFor(doc)
    .filter(([name]) => name.toLowerCase().includes(part))
    .map(([name, href]) => ({ text: name, hint: href, href }));
  const namespaces = (found?.namespaces ?? []).map((one) => ({ text: one.namespace, hint: "namespace", href: one.href }));
  const keys = (found?.keys ?? []).map((one) => ({ text: one.name, hint: one.namespace, href: entryHref(one.family, one.owner, one.name), key: true }));
  return [
    ["Pages", pages],
    ["Namespaces", namespaces],
    ["Keys", keys],
  ].filter(([, hits]) => hits.length);
}

/** A text with the part that was looked for marked. */
function Marked({ text, part }) {
  const at = part ? text.toLowerCase().indexOf(part.toLowerCase()) : -1;
  if (at < 0) return text;
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + part.length)}</mark>${text.slice(at + part.length)}`;
}

const said = (found, count) =>
  !found ? "" : !found.whole ? "Not all keys were looked at: type more of the key, or its namespace before it." : count ? "" : "Nothing matches.";

export function Palette({ doc, go, onClose }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const [chosen, setChosen] = useState(0);
  const box = useRef();
  const list = useRef();
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.open && dialog.close();
  }, []);
  useEffect(() => {
    if (!text.trim()) {
      setFound(null);
      return undefined;
    }
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound(await fetchPage(`/ui/search?q=${encodeURIComponent(text)}`, control.signal));
      } catch (error) {
        if (!control.signal.aborted) setFound({ namespaces: [], keys: [], whole: true, error });
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [text]);
  const shown = groups(doc, text, found);
  const hits = shown.flatMap(([, part]) => part);
  const at = Math.min(chosen, hits.length - 1);
  useEffect(() => {
    list.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [at, hits.length]);
  const open = (hit) => {
    box.current.close();
    go(hit.href).then(() => document.querySelector("h1")?.focus());
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) {
      event.preventDefault();
      setChosen((at + step + hits.length) % hits.length);
    } else if (event.key === "Enter" && hits[at]) {
      event.preventDefault();
      open(hits[at]);
    }
  };
  const part = found?.text || text.trim();
  let position = -1;
  return html`<dialog ref=${box} class="palette" onClose=${onClose} aria-label="Search">
    <input
      type="search"
      role="combobox"
      aria-label="Search namespaces, keys and pages"
      aria-expanded="true"
      aria-controls="hits"
      aria-activedescendant=${hits[at] ? `hit-${at}` : null}
      placeholder="Search namespaces, keys and pages"
      autocomplete="off"
      spellcheck="false"
      value=${text}
      onInput=${(event) => {
        setText(event.target.value);
        setChosen(0);
      }}
      onKeyDown=${pressed}
    />
    <div class="hits" id="hits" role="listbox" aria-label="Hits" ref=${list}>
      ${shown.map(
        ([name, part_of]) => html`<div key=${name} role="group" aria-label=${name}>
          <h3 aria-hidden="true">${name}</h3>
          ${part_of.map((hit) => {
            position += 1;
            const here = position;
            return html`<div key=${hit.href} id=${`hit-${here}`} role="option" aria-selected=${here === at} onClick=${() => open(hit)} onPointerMove=${() => here !== at && setChosen(here)}>
              <span class=${hit.key ? "hit-text key" : "hit-text"}><${Marked} text=${hit.text} part=${part} /></span><span class="hint">${hit.hint}</span>
            </div>`;
          })}
        </div>`,
      )}
    </div>
    <p class="hits-foot" role="status">${found?.error ? found.error.message : said(found, hits.length) || "↑ ↓ choose, Enter opens, Esc closes"}</p>
  </dialog>`;
}

export default function Search({ doc, go }) {
  const [text, typed] = useTyped(doc.text, (now) => go(`/ui/search?q=${encodeURIComponent(now)}`, { replace: true, quiet: true }));
  const shown = groups(doc, doc.text, doc);
  const count = shown.reduce((sum, [, hits]) => sum + hits.length, 0);
  return html`
    <div role="search"><label for="find">Search namespaces, keys and pages</label>
      <input id="find" data-filter type="search" value=${text} onInput=${typed} spellcheck="false" autocomplete="off" /></div>
    ${shown.map(
      ([name, hits]) => html`<${Section} key=${name} id=${`found-${name}`} title=${name} aside=${html`<span class="muted">${number(hits.length)}</span>`}>
        <ul class="matters">${hits.map((hit) => html`<li key=${hit.href}><a data-row class="key" href=${hit.href}>${hit.text}</a><span class="muted">${hit.hint}</span></li>`)}</ul>
      <//>`,
    )}
    ${said(doc, count) && html`<p class="muted">${said(doc, count)}</p>`}
  `;
}
