// The head of a namespace's page: what it holds, its rules, and where else to look at it.

import { html, useRef, useState } from "../vendor/preact.js";
import { bytes, number, withQuery } from "./format.js";
import { parsed } from "./json.js";
import { Refusal } from "./net.js";
import { announce, Copy, Dialog, Problem, Quota, Tag, When } from "./ui.js";

const MOST_BYTES = 200_000_000;
const ABSENT = { expires_at: null, semantics: null, request_id: null, spec_ref: null }; // an import wants each field

/** The entries of a namespace as JSON text, with all numbers as they are stored. */
async function* pages(family, owner, signal) {
  let cursor = null;
  do {
    const body = JSON.stringify({ values: true, limit: 1000, ...(cursor ? { cursor } : {}) });
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    const response = await fetch(`/v1/${family}/${owner}:list`, { method: "POST", headers, body, signal, redirect: "error" });
    const text = await response.text();
    if (!response.ok) throw new Refusal(response.status, JSON.parse(text), text);
    const page = parsed(text);
    yield [page.entries, text.length];
    cursor = page.cursor;
  } while (cursor);
}

/** The lines of an export, as `holdfast export` writes and `holdfast import` reads them. */
async function exported(head, { family, owner, signal, progress }) {
  const lines = [];
  let size = 0;
  for await (const [entries, length] of pages(family, owner, signal)) {
    for (const entry of entries) lines.push([entry.version, JSON.stringify({ ...ABSENT, ...entry })]);
    size += length;
    if (size > MOST_BYTES) throw new Error(`There are more than ${bytes(MOST_BYTES)}. Use the command, which writes to a file as it reads.`);
    progress(lines.length);
  }
  lines.sort(([a], [b]) => a - b);
  const policy = Object.keys(head.policy).length ? { policy: head.policy } : {};
  const first = { holdfast: 1, namespace: head.namespace, exported_at: new Date().toISOString(), ...policy };
  return [JSON.stringify(first), ...lines.map(([, line]) => line)].map((line) => `${line}\n`);
}

function save(lines, name) {
  const href = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  const link = Object.assign(document.createElement("a"), { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** Export a namespace: as a file where values may be shown, and with a command in any case. */
function Export({ doc, head, onClose }) {
  const [count, setCount] = useState(null);
  const [error, setError] = useState(null);
  const control = useRef(null);
  const [family, ...rest] = head.namespace.split("/");
  const owner = rest.join("/");
  const file = `${head.namespace.replaceAll("/", "-")}.jsonl`;
  const whose = family === "semantic" ? `--tenant ${rest[0]} --project ${rest[1]}` : `--plugin ${owner}`;
  const url = doc.caller.kind === "open" ? location.origin : `"${location.origin}?token=$HOLDFAST_TOKEN"`;
  const command = `holdfast export ${family === "table" ? "--tables " : ""}${whose} --url ${url} --out ${file}`;
  const direct = family !== "table" && head.reveal === "open" && doc.may.includes("list");
  const run = async () => {
    control.current = new AbortController();
    setError(null);
    setCount(0);
    try {
      const lines = await exported(head, { family, owner, signal: control.current.signal, progress: setCount });
      save(lines, file);
      announce(`${number(lines.length - 1)} entries were exported`);
      onClose();
    } catch (refusal) {
      if (!control.current.signal.aborted) setError(refusal);
      setCount(null);
    }
  };
  return html`<${Dialog} wide title=${`Export ${head.namespace}`} onClose=${() => (control.current?.abort(), onClose())}>
    ${direct && html`<p>A file with a line of JSON for each entry (${number(head.keys)} now), which <code>holdfast import</code> reads.</p>`}
    ${!direct && family !== "table" && html`<p>Looking at values here needs a reason for each, so the console exports none. A caller who may read them can use the command.</p>`}
    ${family === "table" && html`<p>The command writes all tables of the plugin with their definitions, indexes and items.</p>`}
    <p class="label">Command <${Copy} text=${command} /></p>
    <pre class="value" tabindex="0" role="region" aria-label="Command">${command}</pre>
    ${error && html`<${Problem} error=${error} />`}
    ${count != null && html`<p role="status">${number(count)} of about ${number(head.keys)} entries…</p>`}
    <div class="actions">
      ${direct && html`<button type="button" class="primary" disabled=${count != null} onClick=${run}>Download</button>`}
      <button type="button" onClick=${() => (control.current?.abort(), onClose())}>${direct ? "Cancel" : "Close"}</button>
    </div>
  <//>`;
}

/** The head. `counted` names what the namespace holds, and `lives` says that it has live changes. */
export function NamespaceHead({ doc, counted = "Keys", lives, exports }) {
  const [exporting, setExporting] = useState(false);
  const { head } = doc;
  if (!head) return null; // the token does not allow stats
  const { operator } = doc.caller;
  const rules = Object.keys(head.policy).length;
  const policy = rules ? `${rules} ${rules === 1 ? "rule" : "rules"}` : "defaults";
  const at = (path) => withQuery(path, { namespace: head.namespace });
  return html`<section class="card namespace-head" aria-label=${`About ${head.namespace}`}>
    <dl>
      <div><dt>${counted}</dt><dd>${number(head.keys)}</dd></div>
      <div><dt>Stored size</dt><dd>${bytes(head.kept_bytes)}</dd></div>
      <div><dt>Quota</dt><dd><${Quota} quota=${head.quota} /></dd></div>
      <div><dt>Policy</dt><dd>${operator ? html`<a href=${`/ui/policies/${head.namespace}`}>${policy}</a>` : policy}</dd></div>
      <div><dt>Audit</dt><dd>${head.audit ? (operator ? html`<a href=${at("/ui/audit")}>on</a>` : html`<${Tag} tone="good">on<//>`) : html`<span class="muted">off</span>`}</dd></div>
      <div><dt>Updated</dt><dd><${When} at=${head.changed_at} now=${doc.now} /></dd></div>
    </dl>
    <div class="row">
      ${lives && html`<a class="button" href=${at("/ui/live")}>Live</a>`}
      ${exports && html`<button type="button" onClick=${() => setExporting(true)}>Export</button>`}
    </div>
  </section>
  ${exporting && html`<${Export} doc=${doc} head=${head} onClose=${() => setExporting(false)} />`}`;
}
