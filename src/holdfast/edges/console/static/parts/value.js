// A JSON value: pretty, with parts that fold, and a search in it.

import { html, useMemo, useState } from "../vendor/preact.js";
import { Exact, parsed, pretty } from "./json.js";
import { Copy } from "./ui.js";

const MANY = 200;

const isHolder = (value) => value !== null && typeof value === "object" && !(value instanceof Exact);

function contains(value, name, needle) {
  if (name.toLowerCase().includes(needle)) return true;
  if (!isHolder(value)) return String(value).toLowerCase().includes(needle);
  return Object.entries(value).some(([inner, one]) => contains(one, Array.isArray(value) ? "" : inner, needle));
}

function Scalar({ value, needle }) {
  const text = value instanceof Exact ? value.source : JSON.stringify(value);
  const hit = needle && text.toLowerCase().includes(needle);
  const kind = value === null ? "null" : value instanceof Exact ? "number" : typeof value;
  return html`<span class=${`json-${kind}${hit ? " hit" : ""}`}>${text}</span>`;
}

function Node({ name, value, depth, needle }) {
  const many = isHolder(value) ? Object.keys(value).length : 0;
  const [open, setOpen] = useState(depth < 2 && many <= MANY);
  const [shown, setShown] = useState(MANY);
  const label = name === null ? null : html`<span class=${needle && name.toLowerCase().includes(needle) ? "json-name hit" : "json-name"}>${name}</span>: `;
  if (!isHolder(value)) return html`<div class="json-line">${label}<${Scalar} value=${value} needle=${needle} /></div>`;
  const [begin, end] = Array.isArray(value) ? "[]" : "{}";
  if (!many) return html`<div class="json-line">${label}${begin}${end}</div>`;
  const unfolded = needle ? contains(value, "", needle) : open;
  const list = Array.isArray(value);
  const entries = Object.entries(value).slice(0, shown);
  return html`<div class="json-node">
    <div class="json-line">
      <button type="button" class="fold" aria-expanded=${unfolded} onClick=${() => setOpen(!open)}>
        <span aria-hidden="true">${unfolded ? "▾" : "▸"}</span><span class="spoken">${unfolded ? "fold" : "unfold"} ${name ?? "value"}</span>
      </button>
      ${label}${begin}${!unfolded && html`<span class="muted"> ${many} ${list ? "items" : "fields"} </span>${end}`}
    </div>
    ${unfolded &&
    html`<div class="json-in">
        ${entries.map(([inner, one]) => html`<${Node} key=${inner} name=${list ? null : inner} value=${one} depth=${depth + 1} needle=${needle} />`)}
        ${many > shown && html`<button type="button" class="quiet" onClick=${() => setShown(shown + 1000)}>${many - shown} more</button>`}
      </div>
      <div class="json-line">${end}</div>`}
  </div>`;
}

/** Shows JSON text. */
export function Value({ text }) {
  const [needle, setNeedle] = useState("");
  const value = useMemo(() => parsed(text), [text]);
  const searchable = text.length > 80;
  return html`<div>
    <div class="value-bar">
      ${searchable && html`<input type="search" aria-label="Search in the value" placeholder="search in the value" value=${needle} onInput=${(event) => setNeedle(event.target.value.toLowerCase())} />`}
      <${Copy} text=${pretty(text)} label="Copy value" />
    </div>
    <div class="value json" tabindex="0" role="region" aria-label="Value"><${Node} name=${null} value=${value} depth=${0} needle=${needle} /></div>
  </div>`;
}
