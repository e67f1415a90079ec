// Parts of pages that change something: a question before it, the refusal after it, and filters in the address.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { recordedBy, withQuery } from "./format.js";
import { page } from "./net.js";
import { announce, Dialog, Problem, useTyped } from "./ui.js";

/** Run calls one at a time. Returns the function that runs one, what was refused, and whether one is under way. */
export function useAction() {
  const [state, setState] = useState({ busy: false, error: null });
  async function run(work, done) {
    setState({ busy: true, error: null });
    try {
      const answer = await work();
      setState({ busy: false, error: null });
      if (done) announce(done);
      return answer ?? true;
    } catch (error) {
      setState({ busy: false, error });
      return null;
    }
  }
  return [run, state.error, state.busy, () => setState({ busy: false, error: null })];
}

/** A question before something that can't be undone, or that is `harmless`. */
export function Confirm({ title, action, error, busy, harmless, onYes, onClose, children }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${children}
    ${error && html`<${Problem} error=${error} />`}
    <div class="actions">
      <button type="button" class=${harmless ? "primary" : "danger"} disabled=${busy} onClick=${onYes}>${action}</button>
      <button type="button" onClick=${onClose}>Cancel</button>
    </div>
  <//>`;
}

/** A filter of a list, kept in the address as one types. */
export function Find({ label = "Filter", hint, href, go, children }) {
  const filter = new URL(href, location.href).searchParams.get("filter") || "";
  const send = (text) => go(withQuery(href, { filter: text, cursor: null }), { replace: true, quiet: true });
  const [text, typed] = useTyped(filter, send);
  return html`<div class="row filters" role="search">
    <div class="grow">
      <label for="find">${label}</label>
      <input id="find" data-filter type="search" placeholder=${`${hint}   /`} value=${text} onInput=${typed} spellcheck="false" autocomplete="off" />
    </div>
    ${children}
  </div>`;
}

/** A choice that is kept in the address. `options` are pairs of value and label; `first` takes the key /. */
export function Choose({ label, name, value, options, href, go, reset = {}, first }) {
  const chosen = (event) => go(withQuery(href, { ...reset, [name]: event.target.value }));
  return html`<div>
    <label for=${`choose-${name}`}>${label}</label>
    <select id=${`choose-${name}`} data-filter=${first ? "" : null} onChange=${chosen}>
      ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === (value ?? "")}>${text}</option>`)}
    </select>
  </div>`;
}

/** Filters that are kept in the address: `fields` are name, label and placeholder. */
export function Filters({ fields, values, href, go, reset = {}, children }) {
  const send = (event) => {
    event.preventDefault();
    const filters = Object.fromEntries(new FormData(event.target));
    go(withQuery(href, { ...reset, ...filters }));
  };
  return html`<form class="row filters" role="search" onSubmit=${send} key=${href}>
    ${children}
    ${fields.map(
      ([name, label, hint], position) => html`<div class="grow" key=${name}>
        <label for=${`filter-${name}`}>${label}</label>
        <input
          id=${`filter-${name}`}
          name=${name}
          class="mono"
          defaultValue=${values[name] || ""}
          placeholder=${hint || ""}
          spellcheck="false"
          autocomplete="off"
          data-filter=${position === 0 ? "" : null}
        />
      </div>`,
    )}
    <button type="submit">Filter</button>
  </form>`;
}

/**
 * Asks for a reason, and gets the page with what it hides. The address stays as it is, so that neither a link nor
 * a reload reveals anything.
 */
export function Reveal({ policy, recorded, href, onShow, what = "value", label }) {
  const [open, setOpen] = useState(false);
  const [run, error, busy] = useAction();
  if (policy === "never") {
    return html`<p class="muted">The policy of this namespace never reveals values in the console.</p>`;
  }
  const show = async (why) => {
    const doc = await run(() => page(withQuery(href, { reveal: "1", why })), `The ${what} is shown`);
    if (doc) onShow(doc, why);
  };
  const send = (event) => {
    event.preventDefault();
    setOpen(false);
    show(new FormData(event.target).get("why").trim());
  };
  const ask = () => (policy === "open" ? show("") : setOpen(true));
  return html`<div>
    ${error && html`<${Problem} error=${error} />`}
    <button type="button" class="primary" disabled=${busy} onClick=${ask}>${label || `Reveal the ${what}`}</button>
    ${open &&
    html`<${Dialog} title=${`Reveal the ${what}`} onClose=${() => setOpen(false)}>
      <form onSubmit=${send}>
        <label for="why">Why do you need to see it?</label>
        <input id="why" name="why" required maxlength="500" autocomplete="off" />
        <p class="muted">${recordedBy(recorded)}</p>
        <div class="actions">
          <button type="submit" class="primary">Reveal</button>
          <button type="button" onClick=${() => setOpen(false)}>Cancel</button>
        </div>
      </form>
    <//>`}
  </div>`;
}

/** A table whose rows become cards in a narrow window: each cell then has the heading of its column before it. */
export function Rows({ children }) {
  const box = useRef();
  useEffect(() => {
    for (const table of box.current.querySelectorAll("table")) {
      const names = [...table.tHead.rows[0].cells].map((cell) => cell.firstChild?.textContent.trim() ?? "");
      for (const row of table.tBodies[0].rows) {
        [...row.cells].forEach((cell, position) => {
          cell.dataset.label = cell.colSpan > 1 ? "" : names[position];
        });
      }
    }
  });
  return html`<div ref=${box} class="scroll cards">${children}</div>`;
}

/** The link to the next page of rows. */
export const More = ({ href, name = "cursor", next }) =>
  next == null ? null : html`<p class="more"><a class="button" href=${withQuery(href, { [name]: next })}>Next page</a></p>`;
