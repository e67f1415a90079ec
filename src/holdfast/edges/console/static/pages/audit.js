// The audit: records with filters, and verifying the chain part by part.

import { html, useRef, useState } from "../vendor/preact.js";
import { Choose, Filters, More, Rows } from "../parts/actions.js";
import { number, time } from "../parts/format.js";
import { call, page } from "../parts/net.js";
import { announce, Copy, Empty, Problem, Section, Tag, When } from "../parts/ui.js";

export const title = (doc) => (doc?.namespace ? `Audit of ${doc.namespace}` : "Audit");

const FIELDS = [
  ["prefix", "Key begins with", ""],
  ["writer", "Writer", ""],
  ["purpose", "Purpose", ""],
  ["op", "Operation", "revealed"],
  ["since", "From", "2026-11-16"],
  ["until", "Until", ""],
  ["trace_id", "Trace", ""],
];

/** Verifies all records. Each call looks at up to 10,000, so that the page can say how far it is. */
function Verify({ namespace }) {
  const [state, setState] = useState({ phase: "idle" });
  const stopped = useRef(false);
  async function verify() {
    stopped.current = false;
    let part = { number: 0, signature: "", complete: false };
    try {
      const newest = await page(`/ui/audit?namespace=${encodeURIComponent(namespace)}`);
      const total = newest.records[0]?.number ?? 0;
      while (!part.complete && part.broken_at == null && !stopped.current) {
        part = await call("admin", "", "audit_verify", { namespace, after: part.number, anchor: part.signature });
        setState({ phase: "busy", part, total });
      }
    } catch (error) {
      setState({ phase: "failed", error });
      return;
    }
    const phase = part.broken_at != null ? "broken" : part.complete ? "whole" : "stopped";
    setState({ phase, part });
    announce(phase === "whole" ? "The audit is whole" : phase === "broken" ? "The audit is not whole" : "Stopped");
  }
  const { phase, part, total, error } = state;
  const anchor = part ? `${part.number}:${part.signature}` : "";
  return html`<${Section} id="verify" title="Verify" aside=${html`<span class="muted">every signature, from the first record on</span>`}>
    ${phase === "idle" && html`<p class="muted">Checks that no record was changed, removed or inserted since it was signed.</p>`}
    ${phase === "busy" && html`<p role="status">${number(part.number)} of ${number(Math.max(total, part.number))} records are whole so far…</p>
      <progress max=${Math.max(total, part.number)} value=${part.number} aria-label="Verified records"></progress>`}
    ${phase === "stopped" && html`<p>Stopped after ${number(part.number)} records, which are whole.</p>`}
    ${phase === "failed" && html`<${Problem} error=${error} />`}
    ${phase === "broken" &&
    html`<div class="problem" role="alert">
      <p><strong>The audit is not whole: record ${number(part.broken_at)} is wrong.</strong></p>
      <p>${part.reason}</p>
    </div>`}
    ${phase === "whole" &&
    html`<p class="fine"><span class="dot"></span>The audit is whole, up to record ${number(part.number)}.${part.floor > 0 ? ` Records up to ${number(part.floor)} were pruned.` : ""}</p>
      <p class="anchor">
        <span>Anchor</span> <code class="key">${anchor}</code> <${Copy} text=${anchor} label="Copy the anchor" />
      </p>
      <p class="muted">Keep it elsewhere: <code>holdfast audit verify --anchor</code> then also notices a chain that was cut off and continued.</p>`}
    <div class="actions">
      <button type="button" class="primary" disabled=${phase === "busy"} onClick=${verify}>${phase === "idle" ? "Verify all records" : "Verify again"}</button>
      ${phase === "busy" && html`<button type="button" onClick=${() => (stopped.current = true)}>Stop</button>`}
    </div>
  <//>`;
}

const TONES = { deleted: "bad", expired: "warn", revealed: "warn" };

function Record({ record, now }) {
  const [open, setOpen] = useState(false);
  return html`<tr>
      <td class="num">${number(record.number)}</td>
      <td><${When} at=${record.at} now=${now} /></td>
      <td><${Tag} tone=${TONES[record.op]}>${record.op}<//></td>
      <td class="key lead">${record.key || html`<span class="muted">the namespace</span>`}</td>
      <td class="num">${record.version_before ?? "–"} → ${record.version}</td>
      <td class="key">${record.writer}</td>
      <td>${record.purpose || html`<span class="muted">–</span>`}</td>
      <td class="buttons">
        <button type="button" class="quiet" data-row aria-expanded=${open} onClick=${() => setOpen(!open)}>
          ${open ? "Less" : "More"}<span class="unseen"> about record ${record.number}</span>
        </button>
      </td>
    </tr>
    ${open &&
    html`<tr class="details"><td colspan="8"><dl class="facts">
      ${[
        ["Time", time(record.at)],
        ["Principal", record.principal],
        ["Request", record.request_id],
        ["Trace", record.trace_id],
        ["spec_ref", record.spec_ref],
        ["Hash before", record.before],
        ["Hash after", record.after],
        ["Signed by", record.signed_by],
        ["Signature", record.signature],
        ["Previous", record.previous],
      ].map(([name, text]) => html`<div key=${name}><dt>${name}</dt><dd class="key">${text ?? "–"}</dd></div>`)}
    </dl></td></tr>`}`;
}

export default function Audit({ doc, href, go }) {
  if (doc.namespace == null) {
    return html`<${Empty} title="No namespace is audited">
      The semantic family is audited by itself. For another namespace, switch on <code>audit</code> in <a href="/ui/policies">its policy</a>.
    <//>`;
  }
  const names = [...new Set([...doc.namespaces, doc.namespace])].map((one) => [one, one]);
  return html`
    <${Filters} fields=${FIELDS} values=${doc.filters} href=${href} go=${go} reset=${{ after: null, namespace: doc.namespace }}>
      <${Choose} label="Namespace" name="namespace" value=${doc.namespace} options=${names} href=${href} go=${go} reset=${{ after: null }} />
    <//>
    <${Section} id="records" title="Records" aside=${html`<span class="muted">newest first</span>`}>
      ${!doc.records.length && html`<p class="muted">No record matches.</p>`}
      ${doc.records.length > 0 &&
      html`<${Rows}><table>
        <thead><tr><th class="num">No.</th><th>When</th><th>Operation</th><th>Key</th><th class="num">Version</th><th>Writer</th><th>Purpose</th><th><span class="unseen">Details</span></th></tr></thead>
        <tbody>${doc.records.map((record) => html`<${Record} key=${record.number} record=${record} now=${doc.now} />`)}</tbody>
      </table><//>`}
      <${More} href=${href} name="after" next=${doc.next} />
    <//>
    <${Verify} key=${doc.namespace} namespace=${doc.namespace} />
  `;
}
