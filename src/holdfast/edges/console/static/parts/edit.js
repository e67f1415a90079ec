// Safe edits: every write has the version that was read, and a conflict shows both sides and lets one choose.
//
// A subject is what is edited, an entry or an item: `noun`, `name`, `version`, `reveal` (the policy), `keepsTtl` (whether
// a write may set a deadline), `fields` (its key), `family` and `owner`, `removes` (the verb that removes it), and
// `write(text, fields)`.

import { html, useState } from "../vendor/preact.js";
import { Diff } from "./diff.js";
import { ago, secondsOf, span, time } from "./format.js";
import { parsed, pretty } from "./json.js";
import { call, requestId, WRITER, write } from "./net.js";
import { announce, Dialog, Problem } from "./ui.js";

/** What a refused write met, with its numbers as they are written; null if there is nothing. */
const met = (refusal) => parsed(refusal.text).current ?? null;

/** An entry as a subject of edits. */
export const entryOf = (doc) => ({
  noun: "entry",
  name: doc.name,
  version: doc.entry ? doc.entry.version : 0,
  reveal: doc.reveal,
  keepsTtl: true,
  family: doc.family,
  owner: doc.owner,
  fields: { key: doc.key },
  removes: "delete",
  write: (text, fields) =>
    write(doc.family, doc.owner, "set", "value", text, { key: doc.key, ...fields, ...(doc.entry?.semantics ? { semantics: doc.entry.semantics } : {}) }),
});

/** An item of a table as a subject of edits. */
export const itemOf = (doc) => ({
  noun: "item",
  name: Object.values(doc.item.key).join(" · "),
  version: doc.item.version,
  reveal: doc.reveal,
  keepsTtl: false,
  family: "table",
  owner: doc.plugin,
  fields: { table: doc.table.table, ...doc.key },
  removes: "delete_item",
  check: (text) => keyProblem(doc, text),
  write: (text, fields) => write("table", doc.plugin, "put_item", "item", text, { table: doc.table.table, ...fields }),
});

/** What is wrong with the key in the text of an item that is edited; null if nothing is. */
function keyProblem(doc, text) {
  const item = parsed(text);
  if (item === null || typeof item !== "object" || Array.isArray(item)) return "An item is an object.";
  const other = Object.entries(doc.item.key).find(([name, part]) => String(item[name]) !== String(part));
  return other ? `${other[0]} is part of the key, which can't be changed. Create another item instead.` : null;
}

/** What is wrong with JSON text; null if nothing is. */
export function wrong(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

/** What is wrong with a text, as JSON and by the rule of its subject. */
const problemOf = (text, check) => wrong(text) ?? check?.(text) ?? null;

/** A field for JSON text. */
export function Field({ text, setText, label, check }) {
  const problem = text.trim() ? problemOf(text, check) : null;
  return html`<label for="value">${label}</label>
    <textarea id="value" rows="14" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} aria-invalid=${Boolean(problem)} aria-describedby="value-problem"></textarea>
    <p id="value-problem" class="bad-text small">${problem}</p>`;
}

/** A choice of TTL. `choice` is keep, none or a duration as text. */
export function Ttl({ choice, setChoice, keep }) {
  const after = choice !== "keep" && choice !== "none";
  const seconds = after ? secondsOf(choice) : null;
  const chosen = (event) => setChoice(event.target.value === "after" ? "1h" : event.target.value);
  return html`<div class="row">
    <div>
      <label for="ttl">Expires</label>
      <select id="ttl" value=${after ? "after" : choice} onChange=${chosen}>
        ${keep && html`<option value="keep">as now</option>`}
        <option value="none">never, or as the policy says</option>
        <option value="after">after a time</option>
      </select>
    </div>
    ${after &&
    html`<div>
      <label for="after">After</label>
      <input id="after" class="mono short" required autocomplete="off" value=${choice} aria-invalid=${seconds == null} aria-describedby="after-hint" onInput=${(event) => setChoice(event.target.value)} />
      <span id="after-hint" class=${seconds == null ? "bad-text hint" : "muted hint"}>${seconds == null ? "such as 90s, 30m, 1h30m, 1d, 2w" : `= ${span(seconds, 4)}`}</span>
    </div>`}
  </div>`;
}

/** The fields of a write for a choice of TTL; null if the duration has no meaning. */
export function ttlFields(choice) {
  if (choice === "keep") return { keep_ttl: true };
  if (choice === "none") return {};
  const ttl = secondsOf(choice);
  return ttl == null ? null : { ttl };
}

/** Who wrote a version meanwhile, as far as it is known. */
const author = ({ version, last_writer: writer, updated_at: at }, now) =>
  `Version ${version} was written${writer ? ` by ${writer}` : ""}${at ? ` ${ago(at, now)}` : " meanwhile"}.`;

/** What another has written meanwhile, beside one's own text. Their value is null if it may not be shown. */
function Conflict({ noun, base, mine, current, now, choose }) {
  const theirs = current?.text == null ? null : pretty(current.text);
  return html`<div class="conflict" role="alert">
    <p>
      <strong>${current ? author(current, now) : `The ${noun} was deleted meanwhile.`}</strong>
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
      <button type="button" class="danger" onClick=${() => choose("mine")}>${current ? `Save mine over version ${current.version}` : `Save mine as a new ${noun}`}</button>
      ${theirs != null && html`<button type="button" onClick=${() => choose("on")}>Continue from theirs</button>`}
      <button type="button" onClick=${() => choose("theirs")}>Keep theirs</button>
    </div>
  </div>`;
}

/**
 * Edit a value. `seen` has its text and version and the reason of the reveal, and is null without one. `look` reveals
 * again, so that the audit also has who saw the value of a conflict.
 */
export function Edit({ subject, seen, look, onClose, done }) {
  const [base, setBase] = useState(seen && pretty(seen.text));
  const [mine, setMine] = useState(base ?? "");
  const [version, setVersion] = useState(seen ? seen.version : subject.version);
  const [ttl, setTtl] = useState("keep");
  const [other, setOther] = useState(undefined);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);

  async function save(expected) {
    setBusy(true);
    setError(null);
    const fields = { expected_version: expected, request_id: requestId(), last_writer: WRITER };
    try {
      const stored = await subject.write(mine, { ...fields, ...(subject.keepsTtl ? ttlFields(ttl) : {}) });
      announce(`Version ${stored.version} was saved`);
      onClose();
      done({ text: mine, version: stored.version });
    } catch (refusal) {
      if (refusal.code === "VERSION_CONFLICT") setOther(await theirs(met(refusal)));
      else setError(refusal);
    }
    setBusy(false);
  }

  /** What was met, with its value if the person has revealed the one before, or needs no reason. */
  async function theirs(current) {
    if (!current || (!seen && subject.reveal !== "open")) return current;
    try {
      return await look(seen?.why);
    } catch {
      return current;
    }
  }

  function choose(side) {
    if (side === "mine") {
      save(other ? other.version : 0);
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
    save(version);
  };
  const unfit = !mine.trim() || problemOf(mine, subject.check) || ttlFields(ttl) == null;
  return html`<${Dialog} wide title=${`Edit ${subject.name}`} onClose=${onClose}>
    ${other !== undefined
      ? html`<${Conflict} noun=${subject.noun} base=${base} mine=${mine} current=${other} now=${Date.now()} choose=${choose} />`
      : html`<form onSubmit=${submit}>
          ${base == null && html`<p class="muted">The value is hidden. What you save replaces all of it.</p>`}
          <${Field} text=${mine} setText=${setMine} label=${subject.noun === "item" ? "Item as JSON" : "Value as JSON"} check=${subject.check} />
          ${subject.keepsTtl && html`<${Ttl} choice=${ttl} setChoice=${setTtl} keep />`}
          ${base != null && mine !== base && !unfit && html`<details><summary>What you change</summary><${Diff} before=${base} after=${mine} label="What you change" /></details>`}
          ${error && html`<${Problem} error=${error} />`}
          <div class="actions">
            <button type="submit" class="primary" disabled=${busy || unfit}>Save</button>
            <button type="button" onClick=${onClose}>Cancel</button>
            <span class="muted aside">over version ${version}, and no other</span>
          </div>
        </form>`}
  <//>`;
}

/** A new entry, which must not exist. Where the place has no owner yet, the person names the plugin. */
export function NewEntry({ doc, onClose, done }) {
  const [owner, setOwner] = useState(doc.owner ?? "demo");
  const [key, setKey] = useState(doc.prefix);
  const [text, setText] = useState("");
  const [ttl, setTtl] = useState("none");
  const [purpose, setPurpose] = useState("");
  const [error, setError] = useState(null);
  const semantic = doc.family === "semantic";

  async function save(event) {
    event.preventDefault();
    setError(null);
    const fields = { key: doc.root + key, expected_version: 0, request_id: requestId(), last_writer: WRITER, ...ttlFields(ttl) };
    if (purpose) fields.semantics = { purpose };
    try {
      const stored = await write(doc.family, owner, "set", "value", text, fields);
      announce(`Version ${stored.version} was saved`);
      onClose();
      done(key, owner);
    } catch (refusal) {
      setError(refusal.code === "VERSION_CONFLICT" ? new Error("There is an entry with this key already.") : refusal);
    }
  }

  return html`<${Dialog} wide title=${doc.owner == null ? "New entry" : `New entry in ${doc.namespace}`} onClose=${onClose}>
    <form onSubmit=${save}>
      <div class="row">
        ${doc.owner == null && html`<div><label for="owner">Plugin</label><input id="owner" class="mono" required spellcheck="false" value=${owner} onInput=${(event) => setOwner(event.target.value)} /></div>`}
        <div class="grow"><label for="key">Key</label><input id="key" class="mono" required spellcheck="false" value=${key} onInput=${(event) => setKey(event.target.value)} /></div>
        <div><label for="purpose">Purpose${!semantic && " (optional)"}</label><input id="purpose" required=${semantic} placeholder="config" value=${purpose} onInput=${(event) => setPurpose(event.target.value)} /></div>
      </div>
      <${Field} text=${text} setText=${setText} label="Value as JSON" />
      <${Ttl} choice=${ttl} setChoice=${setTtl} />
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class="primary" disabled=${!text.trim() || wrong(text) || ttlFields(ttl) == null}>Save</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}

/** One step that needs no text: its deadline, deleting it, restoring it. */
export function Step({ subject, kind, trashed, onClose, done }) {
  const [ttl, setTtl] = useState("1h");
  const [other, setOther] = useState(undefined);
  const [error, setError] = useState(null);
  const [expected, setExpected] = useState(subject.version);
  const words = {
    ttl: ["Change when it expires", "Save"],
    delete: [`Delete this ${subject.noun}`, `Delete version ${expected}`],
    restore: ["Restore from the trash", "Restore"],
  }[kind];

  async function act(event) {
    event.preventDefault();
    setError(null);
    const fields = { ...subject.fields, expected_version: expected, request_id: requestId(), last_writer: WRITER };
    const verb = kind === "ttl" ? (ttl === "none" ? "remove_ttl" : "set_ttl") : kind === "delete" ? subject.removes : kind;
    if (verb === "set_ttl") fields.ttl_seconds = secondsOf(ttl);
    try {
      await call(subject.family, subject.owner, verb, fields);
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

  const unfit = other === null || (kind === "ttl" && ttlFields(ttl) == null);
  return html`<${Dialog} title=${words[0]} onClose=${onClose}>
    <form onSubmit=${act}>
      <p class="key">${subject.name}</p>
      ${kind === "ttl" && html`<${Ttl} choice=${ttl} setChoice=${setTtl} />`}
      ${kind === "restore" && html`<p>It was ${trashed.op} by ${trashed.by} at ${time(trashed.at)}, and gets a new version.</p>`}
      ${other !== undefined &&
      html`<p class="problem" role="alert">
        ${other ? `${author(other, Date.now())} Press again to act on that version.` : `The ${subject.noun} is gone: it was deleted or has expired.`}
      </p>`}
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class=${kind === "delete" ? "danger" : "primary"} disabled=${unfit}>${words[1]}</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}
