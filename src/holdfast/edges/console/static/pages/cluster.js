// The cluster: the quorum of its servers, its nodes with their roles and lag, and the instances of the service.

import { html } from "../vendor/preact.js";
import { Rows } from "../parts/actions.js";
import { bytes, number, seconds, span } from "../parts/format.js";
import { Section, Tag, useEvery } from "../parts/ui.js";

export const title = (doc) => (doc?.cluster ? `Cluster ${doc.cluster.name}` : "Cluster");

const State = ({ state }) => html`<span><span class=${state === "ok" ? "dot" : ["behind", "lags", "silent"].includes(state) ? "dot warn" : "dot bad"}></span> ${state}</span>`;

const messages = (amount) => (amount === 1 ? "1 message" : `${number(amount)} messages`);

function Quorum({ quorum }) {
  const { servers, there, needed } = quorum;
  const spare = there - needed;
  const tone = spare < 0 ? "bad" : spare === 0 && servers > 1 ? "warn" : "good";
  const words =
    spare < 0
      ? "Writes are refused until one is back."
      : spare === 0
        ? servers === 1
          ? "The log is kept by one server: if it goes, writes wait for it."
          : "Not one more may go, or writes are refused."
        : `${number(spare)} more may go before writes are refused.`;
  return html`<p class="quorum">
    <span class="seats" aria-hidden="true">${Array.from({ length: servers }, (_, seat) => html`<span key=${seat} class=${seat < there ? "seat" : "seat gone"}></span>`)}</span>
    <strong>${number(there)} of ${number(servers)} servers are there</strong>
    <${Tag} tone=${tone}>${spare < 0 ? "no quorum" : "quorum"}<//>
    <span class="muted">A write needs ${number(needed)}. ${words}</span>
  </p>`;
}

function Servers({ rows }) {
  const addressed = rows.some((one) => one.address);
  return html`<${Rows}><table>
    <thead><tr><th>Server</th><th>Role</th><th>State</th><th class="num">Behind</th>${addressed && html`<th>Address</th>`}</tr></thead>
    <tbody>
      ${rows.map(
        (one) => html`<tr key=${one.name} class=${one.state === "gone" ? "gone-row" : ""}>
          <td class="key lead">${one.name}</td>
          <td>${one.state === "gone" ? "–" : one.role}</td>
          <td><${State} state=${one.state} /></td>
          <td class="num">${one.state === "gone" ? "–" : messages(one.lag)}</td>
          ${addressed && html`<td class="key">${one.address ?? "–"}</td>`}
        </tr>`,
      )}
    </tbody>
  </table><//>`;
}

/** What a node does for the shards of the store. */
function role(node) {
  const writes = node.shards.filter((one) => one.role === "writes").map((one) => one.shard);
  if (!node.shards.length) return "–";
  if (!writes.length) return "follows";
  return node.shards.length === 1 ? "writes" : `writes shard ${writes.join(", ")}`;
}

const clockOf = (node) => (node.clock_ms == null ? "–" : `${node.clock_ms > 0 ? "+" : ""}${number(node.clock_ms)} ms`);

function Nodes({ rows }) {
  return html`<${Rows}><table>
    <thead><tr><th>Node</th><th>Process</th><th>Role</th><th>State</th><th class="num">Behind</th><th class="num">Replica</th><th class="num">Clock</th><th>Version</th></tr></thead>
    <tbody>
      ${rows.map((one, position) => {
        const gone = one.state === "gone" || one.state === "silent";
        return html`<tr key=${position} class=${gone ? "gone-row" : ""}>
          <td class="key lead">${one.host}</td>
          <td>${one.process}</td>
          <td>${role(one)}</td>
          <td><${State} state=${one.state} />${one.silent_seconds != null && html` <span class="muted">for ${span(one.silent_seconds)}</span>`}</td>
          <td class="num">${gone ? "–" : messages(one.shards.reduce((most, shard) => Math.max(most, shard.behind), 0))}</td>
          <td class="num">${gone ? "–" : bytes(one.shards.reduce((sum, shard) => sum + shard.bytes, 0))}</td>
          <td class="num">${clockOf(one)}</td>
          <td>${one.version ?? "–"}</td>
        </tr>`;
      })}
    </tbody>
  </table><//>`;
}

function Instances({ rows }) {
  return html`<${Rows}><table>
    <thead><tr><th>Host</th><th>Process</th><th>State</th><th class="num">Waiting</th><th class="num">Expiry lag</th><th class="num">Heard</th><th>Version</th></tr></thead>
    <tbody>
      ${rows.map(
        (one, position) => html`<tr key=${position} class=${one.state === "gone" ? "gone-row" : ""}>
          <td class="key lead">${one.host} ${one.here && html`<${Tag}>this one<//>`}</td>
          <td>${one.process}</td>
          <td><${State} state=${one.state} /></td>
          <td class="num">${number(one.waiting)}</td>
          <td class="num">${seconds(one.lag)}</td>
          <td class="num">${one.here ? "–" : `${span(one.heard_seconds_ago)} ago`}</td>
          <td>${one.version}</td>
        </tr>`,
      )}
    </tbody>
  </table><//>`;
}

const Troubles = ({ texts }) => html`<ul class="attention">${texts.map((text) => html`<li key=${text} class="critical"><span class="what">${text}</span></li>`)}</ul>`;

export default function Cluster({ doc, reload }) {
  useEvery(5000, reload);
  const { cluster, trouble, instances } = doc;
  return html`
    ${trouble && html`<${Section} title="Quorum" id="quorum"><p class="quorum"><${Tag} tone="bad">no quorum<//><span>${trouble}</span></p><//>`}
    ${!cluster && !trouble && html`<p class="muted">This service is no node of a cluster. Its instances share one store.</p>`}
    ${cluster &&
    html`<${Section} title="Quorum" id="quorum" aside=${html`<span class="muted">log ${bytes(cluster.log.bytes)}, up to message ${number(cluster.log.last)}</span>`}>
        <${Quorum} quorum=${cluster.quorum} />
      <//>
      ${cluster.troubles.length > 0 && html`<${Section} title="What is wrong" id="troubles"><${Troubles} texts=${cluster.troubles} /><//>`}
      <${Section} title="Servers of the log" id="servers"><${Servers} rows=${cluster.servers} /><//>
      <${Section} title="Nodes" id="nodes"><${Nodes} rows=${cluster.nodes} /><//>`}
    <${Section} title="Instances" id="instances"><${Instances} rows=${instances} /><//>
  `;
}
