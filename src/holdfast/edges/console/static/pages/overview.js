// The overview: readiness, what needs attention, traffic, and namespaces. On the first run it says how to begin.

import { html, useEffect, useState } from "../vendor/preact.js";
import { Charts, Ranges } from "../parts/charts.js";
import { bytes, number, withQuery } from "../parts/format.js";
import { call } from "../parts/net.js";
import { announce, Held, Problem, Section, Tag, useEvery } from "../parts/ui.js";

export const title = () => "Overview";

function Health({ health, instances }) {
  const parts = ["service", "store", "nats", "audit"].filter((part) => part in health);
  const gone = instances.filter((one) => one.state !== "ok").length;
  return html`<ul class="health" aria-label="Readiness by part">
    ${parts.map((part) => {
      const fine = health[part] === "ok";
      return html`<li key=${part} title=${health[part]}>
        <span class=${fine ? "dot" : "dot bad"}></span>${part}
        <span class=${fine ? "muted" : "bad-text"}>${fine ? "ok" : health[part]}</span>
      </li>`;
    })}
    ${instances.length > 1 &&
    html`<li><span class=${gone ? "dot bad" : "dot"}></span><a href="/ui/cluster">${number(instances.length)} instances</a>
      <span class=${gone ? "bad-text" : "muted"}>${gone ? `${number(gone)} not ok` : "ok"}</span></li>`}
  </ul>`;
}

/** Do the requests of all dead letters of a namespace again, and say what became of them. */
async function retry({ namespace }) {
  const { letters } = await call("admin", "", "deadletters", { namespace, limit: 1000 });
  let refusal = null;
  let done = 0;
  for (const { number: letter } of letters) {
    try {
      await call("admin", "", "deadletter_retry", { namespace, number: letter });
      done += 1;
    } catch (error) {
      refusal = error;
    }
  }
  const left = letters.length - done;
  if (refusal) throw new Error(`${number(done)} of ${number(letters.length)} were done; ${number(left)} were refused again: ${refusal.message}`);
  return `${number(done)} ${done === 1 ? "request was" : "requests were"} done`;
}

/** What a button does. Each returns what to say when it is done. */
const DOES = {
  reload: async () => "Checked again",
  sweep: async () => `${number((await call("admin", "", "sweep")).removed)} expired entries were removed`,
  retry,
};

function Attention({ matters, reload }) {
  const [state, setState] = useState({ busy: false, error: null });
  const act = async (action) => {
    setState({ busy: true, error: null });
    try {
      announce(await DOES[action.does](action.fields));
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error });
    }
    reload();
  };
  return html`
    ${!matters.length && html`<p class="fine"><span class="dot"></span>Nothing needs attention.</p>`}
    <ul class="attention">
      ${matters.map(
        (one) => html`<li key=${one.text} class=${one.severity}>
          <${Tag} tone=${one.severity === "critical" ? "bad" : "warn"}>${one.severity}<//>
          <span class="what">${one.href ? html`<a href=${one.href}>${one.text}</a>` : one.text}</span>
          <span class="does">
            ${one.actions.map((action) =>
              action.href
                ? html`<a class="button" key=${action.label} href=${action.href}>${action.label}</a>`
                : html`<button type="button" key=${action.label} disabled=${state.busy} onClick=${() => act(action)}>${action.label}</button>`,
            )}
          </span>
        </li>`,
      )}
    </ul>
    ${state.error && html`<div class="attention-told"><${Problem} error=${state.error} /></div>`}
  `;
}

const counted = (matters) =>
  ["critical", "warning"]
    .map((severity) => [severity, matters.filter((one) => one.severity === severity).length])
    .filter(([, many]) => many)
    .map(([severity, many]) => `${number(many)} ${severity}${severity === "warning" && many > 1 ? "s" : ""}`)
    .join(", ");

function Errors({ rows }) {
  if (!rows.length) return html`<p class="fine"><span class="dot"></span>No request was refused since the start.</p>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>Code</th><th>Plugin</th><th class="num">Count</th></tr></thead>
    <tbody>
      ${rows.map(
        (one) => html`<tr key=${one.plugin + one.code}>
          <td><code>${one.code}</code></td><td class="key">${one.plugin}</td><td class="num">${number(one.count)}</td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

/** What the first run shows; it is loaded only then. */
function useWelcome(first) {
  const [Welcome, setWelcome] = useState(null);
  useEffect(() => {
    if (first) import("../parts/welcome.js").then((loaded) => setWelcome(() => loaded.Welcome));
  }, [first]);
  return first && Welcome;
}

export default function Overview({ doc, href, go, reload }) {
  useEvery(10_000, reload);
  const operator = doc.health != null;
  const first = doc.namespaces.every((one) => one.version === 0);
  const Welcome = useWelcome(first);
  const choose = (range) => go(withQuery(href, { range: range === "hour" ? null : range }), { replace: true, quiet: true });
  return html`
    ${operator && html`<${Health} health=${doc.health} instances=${doc.instances} />`}
    ${Welcome && html`<${Welcome} doc=${doc} go=${go} reload=${reload} />`}
    ${(!first || doc.attention.length > 0) &&
    html`<${Section} title="Needs attention" id="attention" aside=${doc.attention.length > 0 && html`<span class="muted">${counted(doc.attention)}</span>`}>
      <${Attention} matters=${doc.attention} reload=${reload} />
    <//>`}
    ${operator &&
    !first &&
    html`<${Section} title="Traffic" id="traffic" aside=${html`<${Ranges} recent=${doc.recent} choose=${choose} />`}>
      <${Charts} recent=${doc.recent} now=${doc.now} />
    <//>`}
    ${!first &&
    html`<${Section}
      title="Namespaces"
      id="namespaces"
      aside=${html`<span class="muted">${number(doc.totals.keys)} keys, ${bytes(doc.totals.kept_bytes)} in ${number(doc.totals.namespaces)}</span>`}
    >
      <${Held} rows=${doc.namespaces} now=${doc.now} />
      ${doc.more_namespaces && html`<p class="muted">The largest are shown. <a href="/ui/kv">Browse all</a></p>`}
    <//>`}
    ${operator && !first && html`<${Section} title="Refused requests" id="errors"><${Errors} rows=${doc.errors} /><//>`}
  `;
}
