// Safe edits: every write has the version that was read, and a conflict shows both sides and lets one choose.

import { html, useState } from "../vendor/preact.js";
import { Diff } from "./diff.js";
import { ago, time } from "./format.js";
import { parsed, pretty } from "./json.js";
import { call, requestId, set } from "./net.js";
import { announce, Dialog, Problem } from "./ui.js";

const WRITER = "console:edit";

/** The entry that a refused write met, with its numbers as they are written; null if there is none. */
const met = (refusal) => parsed(refusal.text).current ?? null;

/** What is wrong with JSON text; null if nothing is. */
function wrong(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

function Field({ text, setText, label }) {
  const problem = text.trim() ? wrong(text) : null;
  return html`<label for="value">${label}</label>
    <textarea id="value" rows="14" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} aria-invalid=${Boolean(problem)} aria-describedby="value-problem"></textarea>
    <p id="value-problem" class="bad-text small">${problem}</p>`;
}

/** A choice of TTL. `choice` is keep, none or a number of seconds as text. */
function Ttl({ choice, setChoice, keep }) {
  const seconds = choice !== "keep" && choice !== "none";
  return html`<div class="row">
    <div>
      <label for="ttl">Expires</label>
      <select id="ttl" value=${seconds ? "seconds" : choice} onChange=${(event) => setChoice(event.target.value === "seconds" ? "3600" : event.target.value)}>
        ${keep && html`<option value="keep">as now</option>`}
        <option value="none">never, or as the policy says</option>
        <option value="seconds">after seconds</option>
      </select>
    </div>
    ${seconds && html`<div><label for="seconds">Seconds</label><input id="seconds" type="number" min="1" required value=${choice} onInput=${(event) => setChoice(event.target.value)} /></div>`}
  </div>`;
}

/** What another has written meanwhile, beside one's own text. Their value is null if it may not be shown. */
function Conflict({ base, mine, current, now, choose }) {
  const theirs = current?.text == null ? null : pretty(current.text);
  return html`<div class="conflict" role="alert">
    <p>
      <strong>${current ? `Version ${current.version} was written by ${current.last_writer} ${ago(current.updated_at, now)}.` : "The entry was deleted meanwhile."}</strong>
      ${" "}Nothing of yours was written.
      ${current && theirs == null && " Their value stays hidden: keep it and reveal it to see it."}
    </p>
    ${theirs == null &&
    html`<div><h3>Yours</h3><pre class="value" tabindex="0" role="region" aria-label="Yours">${mine}</pre></div>`}
    ${theirs != null &&
    html`<div class="sides">
      <div><h3>What they changed</h3>${base == null ? html`<pre class="value" tabindex="0" role="region" aria-label="Theirs">${theirs}</pre>` : html`<${Diff} before=${base} after=${theirs} label="What they changed" />`}</div>
      <div><h3>Theirs to yours</h3><${Diff} before=${theirs} after=${mine} label="Theirs to yours" /></div>
    </div>`}
    <div class="actions">
      <button type="button" class="danger" onClick=${() => choose("mine")}>${current ? `Write mine over version ${current.version}` : "Write mine as a new entry"}</button>
      ${theirs != null && html`<button type="button" onClick=${() => choose("on")}>Continue from theirs</button>`}
      <button type="button" onClick=${() => choose("theirs")}>Keep theirs</button>
    </div>
  </div>`;
}

/**
 * Edit a value. `seen` has the text and the reason of the reveal, and is null without one. `look` reveals again, so
 * that the audit also has who saw the value of a conflict.
 */
export function Edit({ doc, seen, look, onClose, done }) {
  const [base, setBase] = useState(seen && pretty(seen.text));
  const [mine, setMine] = useState(base ?? "");
  const [version, setVersion] = useState(seen ? seen.version : doc.entry.version);
  const [ttl, setTtl] = useState("keep");
  const [other, setOther] = useState(undefined);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);

  async function write(expected) {
    setBusy(true);
    setError(null);
    const fields = { key: doc.key, expected_version: expected, request_id: requestId(), last_writer: WRITER };
    if (doc.entry.semantics) fields.semantics = doc.entry.semantics;
    if (ttl === "keep") fields.keep_ttl = true;
    else if (ttl !== "none") fields.ttl = Number(ttl);
    try {
      const stored = await set(doc.family, doc.owner, mine, fields);
      announce(`Version ${stored.version} was written`);
      onClose();
      done({ text: mine, version: stored.version });
    } catch (refusal) {
      if (refusal.code === "VERSION_CONFLICT") setOther(await theirs(met(refusal)));
      else setError(refusal);
    }
    setBusy(false);
  }

  /** The entry that was met, with its value if the person has revealed the one before, or needs no reason. */
  async function theirs(current) {
    if (!current || (!seen && doc.reveal !== "open")) return current;
    try {
      return (await look(seen?.why)).entry;
    } catch {
      return current;
    }
  }

  function choose(side) {
    if (side === "mine") {
      write(other ? other.version : 0);
    } else if (side === "theirs") {
      onClose();
      done(null);
    } else {
      setBase(pretty(other.text));
      setMine(pretty(other.text));
    }
    if (other) setVersion(other.version);
    setOther(undefined);
  }

  const submit = (event) => {
    event.preventDefault();
    write(version);
  };
  const unfit = !mine.trim() || wrong(mine);
  return html`<${Dialog} wide title=${`Edit ${doc.name}`} onClose=${onClose}>
    ${other !== undefined
      ? html`<${Conflict} base=${base} mine=${mine} current=${other} now=${Date.now()} choose=${choose} />`
      : html`<form onSubmit=${submit}>
          ${base == null && html`<p class="muted">The value is hidden. What you write replaces all of it.</p>`}
          <${Field} text=${mine} setText=${setMine} label="Value as JSON" />
          <${Ttl} choice=${ttl} setChoice=${setTtl} keep />
          ${base != null && mine !== base && !unfit && html`<details><summary>What you change</summary><${Diff} before=${base} after=${mine} label="What you change" /></details>`}
          ${error && html`<${Problem} error=${error} />`}
          <div class="actions">
            <button type="submit" class="primary" disabled=${busy || unfit}>Write over version ${version}</button>
            <button type="button" onClick=${onClose}>Cancel</button>
          </div>
        </form>`}
  <//>`;
}

/** A new entry, which must not exist. */
export function NewEntry({ doc, onClose, done }) {
  const [key, setKey] = useState(doc.prefix);
  const [text, setText] = useState("");
  const [ttl, setTtl] = useState("none");
  const [purpose, setPurpose] = useState("");
  const [error, setError] = useState(null);
  const semantic = doc.family === "semantic";

  async function write(event) {
    event.preventDefault();
    setError(null);
    const fields = { key: doc.root + key, expected_version: 0, request_id: requestId(), last_writer: WRITER };
    if (ttl !== "none") fields.ttl = Number(ttl);
    if (purpose) fields.semantics = { purpose };
    try {
      const stored = await set(doc.family, doc.owner, text, fields);
      announce(`Version ${stored.version} was written`);
      onClose();
      done(key);
    } catch (refusal) {
      setError(refusal.code === "VERSION_CONFLICT" ? new Error("There is an entry with this key already.") : refusal);
    }
  }

  return html`<${Dialog} wide title=${`New entry in ${doc.namespace}`} onClose=${onClose}>
    <form onSubmit=${write}>
      <div class="row">
        <div class="grow"><label for="key">Key</label><input id="key" class="mono" required spellcheck="false" value=${key} onInput=${(event) => setKey(event.target.value)} /></div>
        <div><label for="purpose">Purpose${!semantic && " (optional)"}</label><input id="purpose" required=${semantic} placeholder="config" value=${purpose} onInput=${(event) => setPurpose(event.target.value)} /></div>
      </div>
      <${Field} text=${text} setText=${setText} label="Value as JSON" />
      <${Ttl} choice=${ttl} setChoice=${setTtl} />
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class="primary" disabled=${!text.trim() || wrong(text)}>Create the entry</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}

/** One step that needs no text: its deadline, deleting it, restoring it. */
export function Step({ doc, kind, onClose, done }) {
  const [ttl, setTtl] = useState("3600");
  const [other, setOther] = useState(undefined);
  const [error, setError] = useState(null);
  const [expected, setExpected] = useState(doc.entry ? doc.entry.version : 0);
  const words = {
    ttl: ["Change when it expires", "Set"],
    delete: ["Delete this entry", `Delete version ${expected}`],
    restore: ["Restore from the trash", "Restore"],
  }[kind];

  async function act(event) {
    event.preventDefault();
    setError(null);
    const fields = { key: doc.key, expected_version: expected, request_id: requestId(), last_writer: WRITER };
    const verb = kind === "ttl" ? (ttl === "none" ? "remove_ttl" : "set_ttl") : kind;
    if (verb === "set_ttl") fields.ttl_seconds = Number(ttl);
    try {
      await call(doc.family, doc.owner, verb, fields);
      announce("Done");
      onClose();
      done();
    } catch (refusal) {
      if (refusal.code === "VERSION_CONFLICT") {
        const current = met(refusal);
        setOther(current);
        if (current) setExpected(current.version);
      } else setError(refusal);
    }
  }

  return html`<${Dialog} title=${words[0]} onClose=${onClose}>
    <form onSubmit=${act}>
      <p class="key">${doc.name}</p>
      ${kind === "ttl" && html`<${Ttl} choice=${ttl} setChoice=${setTtl} />`}
      ${kind === "restore" && html`<p>It was ${doc.trashed.op} by ${doc.trashed.by} at ${time(doc.trashed.at)}, and gets a new version.</p>`}
      ${other !== undefined &&
      html`<p class="problem" role="alert">
        ${other ? `Version ${other.version} was written by ${other.last_writer} meanwhile. Press again to act on that version.` : "The entry is gone: it was deleted or has expired."}
      </p>`}
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class=${kind === "delete" ? "danger" : "primary"} disabled=${other === null}>${words[1]}</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}
