// Tokens: make one, see those that are valid, and revoke one.

import { html, useState } from "../vendor/preact.js";
import { Confirm, Find, Rows, useAction } from "../parts/actions.js";
import { number } from "../parts/format.js";
import { call } from "../parts/net.js";
import { Copy, Countdown, Empty, Problem, Section, Tag, When } from "../parts/ui.js";

export const title = () => "Tokens";

const KINDS = [
  ["plugin", "a plugin"],
  ["project", "a tenant's project"],
  ["operator", "operators"],
];
const LIVES = [
  ["3600", "1 hour"],
  ["86400", "1 day"],
  ["2592000", "30 days"],
  ["31536000", "1 year"],
  ["", "no end"],
];

const owner = (token) => (token.operator ? "operators" : token.plugin || `${token.tenant}/${token.project}`);

/** The names of verbs that a kind of token can be for: all, or those that only read. */
function readers(verbs, kind) {
  const families = { plugin: ["kv", "table", "blob"], project: ["semantic"], operator: Object.keys(verbs) }[kind];
  return [...new Set(families.flatMap((one) => verbs[one].filter((verb) => !verb.writes).map((verb) => verb.name)))].sort();
}

function Make({ verbs, reload }) {
  const [kind, setKind] = useState("plugin");
  const [may, setMay] = useState("read");
  const [made, setMade] = useState(null);
  const [run, error, busy] = useAction();
  const send = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    const fields = {};
    if (kind === "plugin") fields.plugin = form.plugin.trim();
    if (kind === "project") Object.assign(fields, { tenant: form.tenant.trim(), project: form.project.trim() });
    if (kind === "operator") fields.operator = true;
    if (form.ttl) fields.ttl = Number(form.ttl);
    if (may === "read") fields.verbs = readers(verbs, kind);
    if (may === "some") fields.verbs = form.verbs.split(",").map((one) => one.trim()).filter(Boolean);
    const answer = await run(() => call("admin", "", "token_create", fields), "The token was made");
    if (answer) {
      setMade(answer);
      reload();
    }
  };
  if (made) {
    return html`<${Section} id="made" title="The new token">
      <p>Copy it now: it is not shown again.</p>
      <p class="anchor"><code class="key secret">${made.token}</code> <${Copy} text=${made.token} label="Copy the token" /></p>
      <p class="muted">It is for ${owner(made.about)} and allows ${made.about.verbs ? made.about.verbs.join(", ") : "every verb"}.</p>
      <div class="actions"><button type="button" onClick=${() => setMade(null)}>Done</button></div>
    <//>`;
  }
  return html`<${Section} id="make" title="New token">
    <form onSubmit=${send}>
      <div class="row">
        <div>
          <label for="kind">For</label>
          <select id="kind" onChange=${(event) => setKind(event.target.value)}>
            ${KINDS.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === kind}>${text}</option>`)}
          </select>
        </div>
        ${kind === "plugin" && html`<div><label for="plugin">Plugin</label><input id="plugin" name="plugin" class="mono" required /></div>`}
        ${kind === "project" &&
        html`<div><label for="tenant">Tenant</label><input id="tenant" name="tenant" class="mono" required /></div>
          <div><label for="project">Project</label><input id="project" name="project" class="mono" required /></div>`}
        <div>
          <label for="may">It may</label>
          <select id="may" onChange=${(event) => setMay(event.target.value)}>
            <option value="read" selected=${may === "read"}>only read</option>
            <option value="all" selected=${may === "all"}>read and write</option>
            <option value="some" selected=${may === "some"}>use these verbs</option>
          </select>
        </div>
        ${may === "some" && html`<div class="grow"><label for="verbs">Verbs</label><input id="verbs" name="verbs" class="mono" required placeholder="get, list, stats" /></div>`}
        <div>
          <label for="ttl">Valid for</label>
          <select id="ttl" name="ttl">${LIVES.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === "2592000"}>${text}</option>`)}</select>
        </div>
        <button type="submit" class="primary" disabled=${busy}>Make the token</button>
      </div>
      ${error && html`<${Problem} error=${error} />`}
    </form>
  <//>`;
}

function Verbs({ verbs }) {
  if (!verbs) return html`<span class="muted">every verb</span>`;
  if (verbs.length <= 6) return html`<span>${verbs.map((one) => html`<${Tag} key=${one}>${one}<//> `)}</span>`;
  return html`<details><summary>${number(verbs.length)} verbs</summary>${verbs.join(", ")}</details>`;
}

export default function Tokens({ doc, href, go, reload }) {
  const [doomed, setDoomed] = useState(null);
  const [run, error, busy, clear] = useAction();
  const revoke = async () => {
    if (await run(() => call("admin", "", "token_revoke", { id: doomed.id }), "The token was revoked")) {
      setDoomed(null);
      reload();
    }
  };
  return html`
    <${Make} verbs=${doc.verbs} reload=${reload} />
    <${Find} hint="part of an id, a plugin or a project" href=${href} go=${go} />
    <${Section} id="tokens" title="Valid tokens" aside=${html`<${Tag}>${number(doc.tokens.length)}<//>`}>
      ${!doc.tokens.length && doc.filter && html`<p class="muted">No token matches.</p>`}
      ${!doc.tokens.length && !doc.filter && html`<${Empty} title="There are no tokens">Without a token, only processes on this machine are let in, and only in open mode.<//>`}
      ${doc.tokens.length > 0 &&
      html`<${Rows}><table>
        <thead><tr><th>Id</th><th>For</th><th>Allows</th><th>Made</th><th>Expires</th><th><span class="unseen">Revoke</span></th></tr></thead>
        <tbody>
          ${doc.tokens.map(
            (token) => html`<tr key=${token.id} data-row tabindex="-1">
              <td class="key lead">${token.id}${doc.caller.id === token.id && html` <${Tag} tone="good">yours<//>`}</td>
              <td class="key">${token.operator ? html`<${Tag} tone="warn">operators<//>` : owner(token)}</td>
              <td><${Verbs} verbs=${token.verbs} /></td>
              <td><${When} at=${token.created_at} now=${doc.now} /></td>
              <td><${Countdown} at=${token.expires_at} skew=${doc.now - Date.now()} /></td>
              <td class="buttons"><button type="button" class="danger" onClick=${() => (clear(), setDoomed(token))}>Revoke<span class="unseen"> ${token.id}</span></button></td>
            </tr>`,
          )}
        </tbody>
      </table><//>`}
    <//>
    ${doomed &&
    html`<${Confirm} title="Revoke this token?" action="Revoke" error=${error} busy=${busy} onYes=${revoke} onClose=${() => setDoomed(null)}>
      <p><code>${doomed.id}</code> for ${owner(doomed)} stops working within a second, everywhere.</p>
      ${doc.caller.id === doomed.id && html`<p class="bad-text">It is the token of this session: you will be logged out.</p>`}
    <//>`}
  `;
}
