// One entry: its facts, its value (at once where the policy is open, else once it is revealed), its history, and how to ask for it elsewhere.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { Diff } from "../parts/diff.js";
import { Edit, entryOf, Step } from "../parts/edit.js";
import { bytes, number, recordedBy, time, withQuery } from "../parts/format.js";
import { parsed, pretty } from "../parts/json.js";
import { Exact, page as fetchPage } from "../parts/net.js";
import { Copy, Countdown, Dialog, Empty, Problem, Section, Tag, useEvery, Version, When } from "../parts/ui.js";

export const title = (doc) => doc?.name || "Entry";
export const crumbs = (doc) =>
  doc && [
    ["Browse", "/ui/kv"],
    [doc.namespace, `/ui/${doc.family}/${doc.owner}`],
  ];

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same request in other words, each of which runs as it is. A token is taken from the environment. */
function ways(doc) {
  const open = doc.caller.kind === "open";
  const { origin } = location;
  const [tenant, project] = doc.owner.split("/");
  const semantic = doc.family === "semantic";
  const whose = semantic ? `--tenant ${tenant} --project ${project}` : `--plugin ${doc.owner}`;
  const url = open ? origin : `"${origin}?token=$HOLDFAST_TOKEN"`;
  const handle = semantic ? `semantic(${JSON.stringify(tenant)}, ${JSON.stringify(project)})` : `kv(${JSON.stringify(doc.owner)})`;
  const body = quoted(JSON.stringify({ key: doc.key }));
  return [
    ["CLI", `holdfast get ${whose} --url ${url} -- ${quoted(doc.key)}`],
    [
      "Python",
      `${open ? "" : "import os\n"}import holdfast.sync

with holdfast.sync.open(${open ? JSON.stringify(origin) : `"${origin}?token=" + os.environ["HOLDFAST_TOKEN"]`}) as store:
    print(store.${handle}.get(${JSON.stringify(doc.key)}))`,
    ],
    ["curl", `curl ${open ? "" : '-H "Authorization: Bearer $HOLDFAST_TOKEN" '}--json ${body} ${origin}/v1/${doc.family}/${doc.owner}:get`],
    ["NATS", `nats request ${doc.subject} ${body}`],
  ];
}

function CopyAs({ doc, onClose }) {
  return html`<${Dialog} wide title="Copy as" onClose=${onClose}>
    ${doc.caller.kind !== "open" && html`<p class="muted">Put your token into the variable <code>HOLDFAST_TOKEN</code> first.</p>`}
    <dl class="ways">
      ${ways(doc).map(([name, text]) => html`<div key=${name}><dt>${name} <${Copy} text=${text} /></dt><dd><pre class="value">${text}</pre></dd></div>`)}
    </dl>
  <//>`;
}

function Facts({ doc, skew }) {
  const { entry } = doc;
  const meaning = entry.semantics || {};
  const rows = [
    ["Key", html`<span class="key">${doc.name}</span> <${Copy} text=${doc.name} />`],
    ["Version", html`<${Version} version=${entry.version} />`],
    ["Writer", html`<span class="key">${entry.last_writer}</span>`],
    ["Purpose", meaning.purpose && html`<${Tag} tone="good">${meaning.purpose}<//>`],
    ["Producer", meaning.producer],
    ["For", (meaning.consumer_hints || []).join(", ")],
    ["spec_ref", entry.spec_ref && html`<span class="key">${entry.spec_ref}</span>`],
    ["Request", entry.request_id && html`<span class="key">${entry.request_id}</span>`],
    ["Created", html`<span title=${entry.created_at}>${time(entry.created_at)}</span>`],
    ["Updated", html`<span title=${entry.updated_at}>${time(entry.updated_at)}</span>`],
    ["Expires", html`<${Countdown} at=${entry.expires_at} skew=${skew} />`],
    ["Stored size", `${bytes(entry.size)}, ${entry.kind}`],
  ];
  return html`<dl class="facts">
    ${rows.filter(([, shown]) => shown).map(([name, shown]) => html`<div key=${name}><dt>${name}</dt><dd>${shown}</dd></div>`)}
  </dl>`;
}

function Masked({ doc, onReveal, error, busy }) {
  const [why, setWhy] = useState("");
  if (doc.reveal === "never") return html`<p class="masked">The policy of ${doc.namespace} says that values are never shown here.</p>`;
  if (!doc.may.includes("reveal")) return html`<p class="masked">Your token does not allow the verb <code>reveal</code>.</p>`;
  const asks = doc.reveal === "audited";
  const submit = (event) => {
    event.preventDefault();
    onReveal(why);
  };
  return html`<form class="masked" onSubmit=${submit}>
    <p class="bullets" aria-hidden="true">•••••••• ••••• ••••••••••</p>
    <p>The value is hidden: ${bytes(doc.entry.size)}, ${doc.entry.kind}.${asks && ` ${recordedBy(doc.recorded)}`}</p>
    <div class="row">
      ${asks && html`<div class="grow"><label for="why">Why do you need to see it?</label><input id="why" required maxlength="500" placeholder="OPS-12: wrong price on the page" value=${why} onInput=${(event) => setWhy(event.target.value)} /></div>`}
      <button type="submit" class="primary" disabled=${busy}>Reveal</button>
    </div>
    ${error && html`<${Problem} error=${error} />`}
  </form>`;
}

const TONES = { set: "good", deleted: "bad", expired: "warn", restored: "good", escalated: "warn" };

function History({ doc }) {
  if (doc.history == null) return html`<p class="muted">Your token does not allow the verb <code>history</code>.</p>`;
  if (!doc.history.length) return html`<p class="muted">The journal has no change of this key.</p>`;
  return html`<div class="scroll"><table class="history">
    <thead><tr><th class="num">Version</th><th>Change</th><th>Writer</th><th>When</th><th>Request</th></tr></thead>
    <tbody>
      ${doc.history.map(
        (one) => html`<tr key=${one.version}>
          <td class="num">${one.version}</td>
          <td><${Tag} tone=${TONES[one.op]}>${one.op}<//>${one.version === doc.entry?.version && html` <span class="muted">now</span>`}</td>
          <td class="key">${one.last_writer}</td>
          <td><${When} at=${one.at} now=${doc.now} /></td>
          <td class="key muted">${one.request_id}</td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

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

/** Shows JSON text with parts that fold, and a search in it. */
function Value({ text }) {
  const [needle, setNeedle] = useState("");
  const value = useMemo(() => parsed(text), [text]);
  const searchable = text.length > 80;
  return html`<div>
    ${searchable && html`<div class="value-bar"><input type="search" aria-label="Search in the value" placeholder="search in the value" value=${needle} onInput=${(event) => setNeedle(event.target.value.toLowerCase())} /></div>`}
    <div class="value json" tabindex="0" role="region" aria-label="Value"><${Node} name=${null} value=${value} depth=${0} needle=${needle} /></div>
  </div>`;
}

/** The value that the page shows unasked, with its version; null where a person has to reveal it. */
const unmasked = ({ entry, trashed }) =>
  entry?.text == null ? null : { text: entry.text, version: entry.version, trashed: trashed?.text };

export default function Entry({ doc, href, reload }) {
  const [revealed, setRevealed] = useState(null);
  const [before, setBefore] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  useEvery(5000, () => !dialog && reload());
  const open = unmasked(doc);
  const shown = open ?? revealed;
  const last = useRef(null);
  useEffect(() => {
    setRevealed(null);
    setBefore(null);
    last.current = null;
  }, [doc.namespace, doc.key]);
  useEffect(() => {
    if (last.current && open && open.version !== last.current.version) setBefore(last.current);
    last.current = open;
  }, [doc.namespace, doc.key, open?.version]);

  const look = (why) => fetchPage(withQuery(href, { reveal: "1", why }));

  async function reveal(why) {
    setBusy(true);
    setError(null);
    try {
      const looked = await look(why);
      if (shown) setBefore(shown);
      setRevealed(looked.entry && { ...unmasked(looked), why });
    } catch (refusal) {
      setError(refusal);
    }
    setBusy(false);
  }

  /** Show what was just written: the one who wrote it knows it. What another wrote is revealed again. */
  function edited(written) {
    if (written && revealed) {
      setBefore(revealed);
      setRevealed({ ...written, why: revealed.why });
    } else if (revealed) reveal(revealed.why);
    reload();
  }

  /** Edit what is there now: a value that was revealed before the last write is revealed again. */
  async function edit() {
    if (stale) await reveal(shown.why);
    setDialog("edit");
  }

  const { entry } = doc;
  const may = (verb) => doc.may.includes(verb);
  const skew = doc.now - Date.now();
  const stale = entry && shown && shown.version !== entry.version;
  const changed = before && shown && before.version !== shown.version;
  return html`
    <div class="actions top">
      ${entry && may("set") && html`<button type="button" class="primary" onClick=${edit}>Edit</button>`}
      ${entry && may("set_ttl") && html`<button type="button" onClick=${() => setDialog("ttl")}>Expiry</button>`}
      ${!entry && doc.trashed && may("restore") && html`<button type="button" class="primary" onClick=${() => setDialog("restore")}>Restore</button>`}
      <button type="button" onClick=${() => setDialog("copy")}>Copy as…</button>
      ${entry && may("delete") && html`<button type="button" class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
    </div>
    ${!entry &&
    html`<div class="card"><${Empty} title="There is no entry with this key">
      ${doc.trashed ? `It was ${doc.trashed.op} by ${doc.trashed.by}, and can be restored until ${time(doc.trashed.purged_at)}.` : "It may have been deleted or have expired."}
    <//></div>`}
    ${entry &&
    html`<div class="entry">
      <${Section}
        title="Value"
        id="value-card"
        aside=${shown && html`<span><span class="muted">version ${shown.version}</span> <${Copy} text=${pretty(shown.text)} label="Copy value" />${!open && html` <button type="button" class="quiet" onClick=${() => setRevealed(null)}>Hide</button>`}</span>`}
      >
        ${stale &&
        html`<p class="note-line" role="status">
          Version ${entry.version} was written by ${entry.last_writer}.${" "}
          <button type="button" class="quiet" onClick=${() => reveal(shown.why)}>Show it</button>
        </p>`}
        ${shown ? html`<${Value} key=${shown.version} text=${shown.text} />` : html`<${Masked} doc=${doc} onReveal=${reveal} error=${error} busy=${busy} />`}
      <//>
      <${Section} title="Entry" id="facts-card"><${Facts} doc=${doc} skew=${skew} /><//>
    </div>`}
    ${changed &&
    html`<${Section} title=${`What changed from version ${before.version} to ${shown.version}`} id="changed">
      <${Diff} before=${pretty(before.text)} after=${pretty(shown.text)} label="What changed since you looked" />
    <//>`}
    ${shown?.trashed != null &&
    html`<${Section} title=${`From the trash (version ${doc.trashed?.version}) to now`} id="trash-diff">
      <${Diff} before=${pretty(shown.trashed)} after=${pretty(shown.text)} label="From the trash to now" />
    <//>`}
    <${Section} title="History" id="history-card"><${History} doc=${doc} /><//>
    ${dialog === "edit" && html`<${Edit} subject=${entryOf(doc)} seen=${shown} look=${async (why) => (await look(why)).entry} onClose=${close} done=${edited} />`}
    ${["ttl", "delete", "restore"].includes(dialog) && html`<${Step} subject=${entryOf(doc)} trashed=${doc.trashed} kind=${dialog} onClose=${close} done=${reload} />`}
    ${dialog === "copy" && html`<${CopyAs} doc=${doc} onClose=${close} />`}
  `;
}
