// Tokens: make one, see those that are valid, and revoke one.

import { html, useState } from "../vendor/preact.js";
import { Confirm, Find, Rows, useAction } from "../parts/actions.js";
import { number, secondsOf, span } from "../parts/format.js";
import { call } from "../parts/net.js";
import { Copy, Countdown, Empty, Problem, Section, Tag, When } from "../parts/ui.js";

export const title = () => "Tokens";

const KINDS = [
  ["plugin", "a plugin"],
  ["project", "a tenant's project"],
  ["operator", "operators"],
];
const owner = (token) => (token.operator ? "operators" : token.plugin || `${token.tenant}/${token.project}`);

function Make({ readers, reload }) {
  const [kind, setKind] = useState("plugin");
  const [may, setMay] = useState("read");
  const [life, setLife] = useState("30d");
  const [made, setMade] = useState(null);
  const [run, error, busy] = useAction();
  const send = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    const fields = {};
    if (kind === "plugin") fields.plugin = form.plugin.trim();
    if (kind === "project") Object.assign(fields, { tenant: form.tenant.trim(), project: form.project.trim() });
    if (kind === "operator") fields.operator = true;
    if (form.name.trim()) fields.name = form.name.trim();
    if (life.trim()) fields.ttl = secondsOf(life);
    if (may === "read") fields.verbs = readers[kind];
    if (may === "some") fields.verbs = form.verbs.split(",").map((one) => one.trim()).filter(Boolean);
    const answer = await run(() => call("admin", "", "token_create", fields), "The token was created");
    if (answer) {
      setMade(answer);
      reload();
    }
  };
  if (made) {
    return html`<${Section} id="made" title="The new token">
      <p>Copy it now: it is not shown again.</p>
      <p class="anchor"><code class="key secret">${made.token}</code> <${Copy} text=${made.token} label="Copy the token" /></p>
      <p class="muted">${made.about.name && html`<strong>${made.about.name}</strong>: `}it is for ${owner(made.about)} and allows ${made.about.verbs ? made.about.verbs.join(", ") : "every verb"}.</p>
      <div class="actions"><button type="button" onClick=${() => setMade(null)}>Done</button></div>
    <//>`;
  }
  const endless = !life.trim();
  const unfit = !endless && secondsOf(life) == null;
  return html`<${Section} id="make" title="New token">
    <form onSubmit=${send}>
      <div class="row">
        <div><label for="name">Name</label><input id="name" name="name" maxlength="100" placeholder="nightly import" autocomplete="off" /></div>
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
            <option value="read" selected=${may === "read"}>read only</option>
            <option value="all" selected=${may === "all"}>read and write</option>
            <option value="some" selected=${may === "some"}>use these verbs</option>
          </select>
        </div>
        ${may === "some" && html`<div class="grow"><label for="verbs">Verbs</label><input id="verbs" name="verbs" class="mono" required placeholder="get, list, stats" /></div>`}
        <div>
          <label for="ttl">Valid for</label>
          <input id="ttl" class="mono short" placeholder="no end" autocomplete="off" value=${life} aria-invalid=${unfit} aria-describedby="ttl-hint" onInput=${(event) => setLife(event.target.value)} />
          <span id="ttl-hint" class=${unfit ? "bad-text hint" : "muted hint"}>${unfit ? "such as 12h, 30d, 8w" : endless ? "it does not expire" : `= ${span(secondsOf(life), 4)}`}</span>
        </div>
        <button type="submit" class="primary" disabled=${busy || unfit}>Create token</button>
      </div>
      ${may === "read" && html`<p class="muted hint">It reads every value of ${{ plugin: "the plugin", project: "the project", operator: "all plugins and projects, and all tokens' names" }[kind]} and can change nothing: ${number(readers[kind].length)} verbs, such as ${readers[kind].slice(0, 4).join(", ")}. Looks that an audit records are recorded.</p>`}
      ${error && html`<${Problem} error=${error} />`}
    </form>
  <//>`;
}

function Verbs({ token }) {
  const { verbs, reads } = token;
  if (!verbs) return html`<span><${Tag} tone="warn">reads and writes<//> <span class="muted">every verb</span></span>`;
  const what = reads ? html`<${Tag} tone="good">read only<//>` : html`<${Tag} tone="warn">reads and writes<//>`;
  if (verbs.length <= 6) return html`<span>${what} ${verbs.map((one) => html`<${Tag} key=${one}>${one}<//> `)}</span>`;
  return html`<details><summary>${what} ${number(verbs.length)} verbs</summary>${verbs.join(", ")}</details>`;
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
    <${Make} readers=${doc.readers} reload=${reload} />
    <${Find} hint="part of a name, an id, a plugin or a project" href=${href} go=${go} />
    <${Section} id="tokens" title="Valid tokens" aside=${html`<${Tag}>${number(doc.tokens.length)}<//>`}>
      ${!doc.tokens.length && doc.filter && html`<p class="muted">No token matches.</p>`}
      ${!doc.tokens.length && !doc.filter && html`<${Empty} title="There are no tokens">Without a token, only processes on this machine are let in, and only in open mode.<//>`}
      ${doc.tokens.length > 0 &&
      html`<${Rows}><table>
        <thead><tr><th>Token</th><th>For</th><th>Allows</th><th>Created</th><th>Last used</th><th>Expires</th><th><span class="unseen">Revoke</span></th></tr></thead>
        <tbody>
          ${doc.tokens.map(
            (token) => html`<tr key=${token.id} data-row tabindex="-1">
              <td class="lead">${token.name && html`<strong class="block">${token.name}</strong>`}<span class="key">${token.id}</span>${doc.caller.id === token.id && html` <${Tag} tone="good">yours<//>`}</td>
              <td class="key">${token.operator ? html`<${Tag} tone="warn">operators<//>` : owner(token)}</td>
              <td><${Verbs} token=${token} /></td>
              <td><${When} at=${token.created_at} now=${doc.now} /></td>
              <td>${token.used_at ? html`<${When} at=${token.used_at} now=${doc.now} />` : html`<span class="muted" title="not over HTTP in the last 90 days">never</span>`}</td>
              <td><${Countdown} at=${token.expires_at} skew=${doc.now - Date.now()} /></td>
              <td class="buttons"><button type="button" class="danger" onClick=${() => (clear(), setDoomed(token))}>Revoke<span class="unseen"> ${token.id}</span></button></td>
            </tr>`,
          )}
        </tbody>
      </table><//>`}
    <//>
    ${doomed &&
    html`<${Confirm} title="Revoke this token?" action="Revoke" error=${error} busy=${busy} onYes=${revoke} onClose=${() => setDoomed(null)}>
      <p>${doomed.name && html`<strong>${doomed.name}</strong>, `}<code>${doomed.id}</code> for ${owner(doomed)} stops working within a second, everywhere.</p>
      ${doc.caller.id === doomed.id && html`<p class="bad-text">It is the token of this session: you will be logged out.</p>`}
    <//>`}
  `;
}
