// The policy of a namespace as a form. A trial says what it would refuse today, before it is set.

import { html, useState } from "../vendor/preact.js";
import { useAction } from "../parts/actions.js";
import { bytes, durationOf, number, secondsOf, span } from "../parts/format.js";
import { call } from "../parts/net.js";
import { Problem, Section, Tag } from "../parts/ui.js";

export const title = (doc) => (doc ? `Policy of ${doc.namespace}` : "Policy");
export const crumbs = () => [["Policies", "/ui/policies"]];

const UNITS = { number: "", bytes: "bytes", seconds: "such as 1d" };

/** The text of a field in the form, and what it stands for. A time is typed as a duration. */
const typed = (kind, value) => (value == null || value === "" ? "" : kind === "seconds" && /^[0-9]+$/.test(value) ? durationOf(Number(value)) : String(value));
const meant = (kind, text) => (kind === "seconds" ? (secondsOf(text) ?? text) : text);

function readable(field, text) {
  if (text == null || text === "") return "";
  if (field.kind === "seconds") return secondsOf(text) == null ? "" : span(secondsOf(text), 4);
  if (field.kind === "bytes") return bytes(Number(text));
  return "";
}

const worded = (text) => ({ true: "yes", false: "no", "": "default" })[text] || text;

/** A field. `now` is what the policy in force says. */
function Field({ field, value, now, fallback, onInput, wrong }) {
  const id = `policy-${field.name}`;
  const about = `${id}-help`;
  const shared = { id, name: field.name, "aria-describedby": about, "aria-invalid": wrong ? "true" : null };
  const choices = field.kind === "switch" ? ["true", "false"] : field.choices;
  const control = choices
    ? html`<select ...${shared} onChange=${onInput}>
        <option value="" selected=${value === ""}>default</option>
        ${choices.map((one) => html`<option key=${one} value=${one} selected=${value === one}>${worded(one)}</option>`)}
      </select>`
    : html`<input ...${shared} inputmode=${field.kind === "seconds" ? "text" : "numeric"} pattern=${field.kind === "seconds" ? "[0-9.smhdw]*" : "[0-9]*"} value=${value} onInput=${onInput} autocomplete="off" placeholder=${fallback == null ? "not set" : `default ${field.kind === "seconds" ? durationOf(fallback) : number(fallback)}`} />`;
  const hint = readable(field, value);
  const changed = value !== now;
  return html`<div class=${changed ? "field changed" : "field"}>
    <label for=${id}>${field.label}${UNITS[field.kind] ? html` <span class="muted">(${UNITS[field.kind]})</span>` : ""}</label>
    ${control}
    <p id=${about} class="muted hint">${field.help}${hint && html` <strong>= ${hint}</strong>`}${changed && html` <strong class="now">now: ${now === "" ? "not set" : readable(field, now) || worded(now)}</strong>`}</p>
  </div>`;
}

function Trial({ trial, label }) {
  if (trial.problem) return html`<p class="problem" role="alert">${trial.problem}</p>`;
  const scope = trial.looked
    ? `${trial.complete ? "All" : "The first"} ${number(trial.looked)} entries were looked at.`
    : "No entry had to be checked.";
  return html`<div role="status">
    ${!trial.findings.length && html`<p class="fine"><span class="dot"></span>It would refuse none of the entries stored today.</p>`}
    ${trial.findings.length > 0 &&
    html`<ul class="matters">
      ${trial.findings.map(
        (one) => html`<li key=${one.field}>
          <${Tag} tone="warn">${label(one.field)}<//>
          <span><strong>${one.field === "quota_bytes" ? bytes(one.count) : number(one.count)}</strong> ${one.text}
            ${one.examples.length > 0 && html`<span class="muted">, such as </span>${one.examples.map((key) => html`<code key=${key}>${key}</code> `)}`}
          </span>
        </li>`,
      )}
    </ul>`}
    <p class="muted">${scope} What is stored stays: only writes are judged.</p>
  </div>`;
}

export default function PolicyPage({ doc, href, go }) {
  const start = Object.fromEntries(doc.fields.map(({ name, kind }) => [name, typed(kind, doc.policy?.[name])]));
  const query = new URL(href, location.href).searchParams;
  const tried = doc.trial ? Object.fromEntries(doc.fields.map(({ name, kind }) => [name, typed(kind, query.get(name))])) : start;
  const [values, setValues] = useState(tried);
  const [run, error, busy] = useAction();
  const changed = doc.fields.some(({ name }) => values[name] !== start[name]);
  const label = (name) => doc.fields.find((field) => field.name === name).label;
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const path = new URL(href, location.href).pathname;
  const tryIt = (event) => {
    event.preventDefault();
    const filled = doc.fields.filter(({ name }) => values[name] !== "").map(({ name, kind }) => [name, meant(kind, values[name])]);
    go(`${path}?${new URLSearchParams([["try", "1"], ...filled])}`, { replace: true }).then(() => scrollTo(0, 0));
  };
  const save = async () => {
    const policy = {};
    for (const { name, kind } of doc.fields) {
      if (values[name] === "") continue;
      const text = meant(kind, values[name]);
      policy[name] = kind === "switch" ? text === "true" : kind === "choice" || !/^[0-9]+$/.test(text) ? text : Number(text);
    }
    if (await run(() => call("admin", "", "set_policy", { namespace: doc.namespace, policy }), "The policy was saved")) go(path, { replace: true });
  };
  const again = () => {
    setValues(start);
    go(path, { replace: true });
  };
  const defaults = doc.defaults || {};
  const groups = [...new Set(doc.fields.map((field) => field.group))];
  return html`
    <${Section}
      id="holds"
      title=${doc.trial ? "What this policy would refuse today" : "Today"}
      aside=${html`<span class="muted">${number(doc.holds.keys)} keys, ${bytes(doc.holds.kept_bytes)} kept</span>`}
    >
      ${doc.trial ? html`<${Trial} trial=${doc.trial} label=${label} />` : html`<p class="muted">Change a field and try it. Nothing changes until you press “Save”.</p>`}
    <//>
    <form onSubmit=${tryIt}>
      <${Section} id="fields" title="Policy">
        ${groups.map(
          (group) => html`<fieldset key=${group}>
            <legend>${group}</legend>
            <div class="fields">
              ${doc.fields
                .filter((field) => field.group === group)
                .map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} now=${start[field.name]} fallback=${defaults[field.name]} onInput=${set(field.name)} wrong=${doc.trial?.field === field.name} />`)}
            </div>
          </fieldset>`,
        )}
        ${error && html`<${Problem} error=${error} />`}
        <div class="actions foot">
          <button type="submit">Try it</button>
          ${doc.trial && html`<button type="button" onClick=${again}>Start again</button>`}
          <button type="button" class="primary" disabled=${busy || !changed} onClick=${save}>Save</button>
        </div>
      <//>
    </form>
  `;
}
