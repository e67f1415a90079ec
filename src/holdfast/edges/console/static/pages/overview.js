// The overview: readiness, traffic of the last hour, what needs a person, and namespaces.

import { html } from "../vendor/preact.js";
import { bytes, clock, namespaceHref, number, seconds } from "../parts/format.js";
import { Empty, Meter, Section, Tag, useEvery, When } from "../parts/ui.js";

export const title = () => "Overview";

// The figures are bounds of a histogram's buckets.
const atMost = (amount) => (amount < 0.001 ? seconds(amount) : `≤ ${seconds(amount)}`);
const rate = (point) => point.requests / point.seconds;
const perSecond = (amount) => (amount >= 10 ? number(Math.round(amount)) : number(Number(amount.toFixed(1))));

function Health({ health }) {
  const parts = ["service", "store", "nats", "audit"].filter((part) => part in health);
  return html`<ul class="health" aria-label="Readiness by part">
    ${parts.map((part) => {
      const fine = health[part] === "ok";
      return html`<li key=${part} title=${health[part]}>
        <span class=${fine ? "dot" : "dot bad"}></span>${part}
        <span class=${fine ? "muted" : "bad-text"}>${fine ? "ok" : health[part]}</span>
      </li>`;
    })}
  </ul>`;
}

const WIDE = 320;
const HIGH = 56;
const HOUR = 3600_000;
const LEAST = 600_000;

function path(points, top) {
  let text = "";
  let pen = false;
  for (const [x, y] of points) {
    if (y == null) {
      pen = false;
      continue;
    }
    const at = `${x.toFixed(1)} ${(HIGH - (y / top) * (HIGH - 4)).toFixed(1)}`;
    text += `${pen ? "L" : "M"}${at}`;
    pen = true;
  }
  return text;
}

/** A small chart of the last hour, drawn as SVG. `lines` are functions from a point to a figure or null; the first is filled. */
function Chart({ title, points, lines, show, now, value, hint }) {
  const begin = Math.max(now - HOUR, Math.min(now - LEAST, points[0]?.at ?? now));
  const placed = lines.map((line) => points.map((one) => [((one.at - begin) / (now - begin)) * WIDE, line(one)]));
  const figures = placed.flat().map(([, y]) => y).filter((y) => y != null);
  const most = figures.length ? Math.max(...figures) : 0;
  const top = most || 1;
  const first = placed[0].filter(([, y]) => y != null);
  const area = first.length > 1 ? `${path(first, top)}L${first.at(-1)[0].toFixed(1)} ${HIGH}L${first[0][0].toFixed(1)} ${HIGH}Z` : "";
  const spoken = `${title}: now ${value}, at most ${show(most)} in the last hour`;
  return html`<figure class="chart">
    <figcaption><span>${title}</span><strong>${value}</strong></figcaption>
    <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label=${spoken}>
      <path class="area" d=${area} />
      ${placed.map((line, number) => html`<path key=${number} class=${`line line-${number}`} d=${path(line, top)} />`)}
    </svg>
    <p class="chart-foot"><span>${clock(begin).slice(0, 5)}</span><span>${hint || `peak ${show(most)}`}</span><span>now</span></p>
  </figure>`;
}

function Charts({ hour, now }) {
  const last = hour.at(-1) || { requests: 0, seconds: 1, errors: 0, p50: null, p99: null, commits: 0, commands: 0, waiting: 0, lag: 0 };
  const group = (one) => (one.commits ? one.commands / one.commits : null);
  const shared = { points: hour, now };
  return html`<div class="charts">
    <${Chart} ...${shared} title="Requests / s" lines=${[rate]} show=${perSecond} value=${perSecond(rate(last))} />
    <${Chart}
      ...${shared}
      title="p50, p99"
      lines=${[(one) => one.p99, (one) => one.p50]}
      show=${seconds}
      value=${last.p99 == null ? "–" : `${atMost(last.p50)}, ${atMost(last.p99)}`}
    />
    <${Chart}
      ...${shared}
      title="Errors / s"
      lines=${[(one) => one.errors / one.seconds]}
      show=${perSecond}
      value=${perSecond(last.errors / last.seconds)}
    />
    <${Chart} ...${shared} title="Writes per commit" lines=${[group]} show=${perSecond} value=${group(last) == null ? "–" : perSecond(group(last))} />
    <${Chart} ...${shared} title="Waiting" lines=${[(one) => one.waiting]} show=${number} value=${number(last.waiting)} />
    <${Chart} ...${shared} title="Expiry lag" lines=${[(one) => one.lag]} show=${seconds} value=${seconds(last.lag)} />
  </div>`;
}

/** The instances that share the requests, if there are several. */
function Instances({ rows }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Host</th><th class="num">Process</th><th>Version</th><th>State</th><th class="num">Waiting</th><th class="num">Expiry lag</th></tr></thead>
    <tbody>
      ${rows.map(
        (one) => html`<tr key=${`${one.host} ${one.process}`}>
          <td class="key">${one.host} ${one.here && html`<${Tag}>this one<//>`}</td>
          <td class="num">${one.process}</td>
          <td>${one.version}</td>
          <td><span class=${one.state === "ok" ? "dot" : "dot bad"}></span>${one.state}</td>
          <td class="num">${number(one.waiting)}</td>
          <td class="num">${seconds(one.lag)}</td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

function Attention({ matters }) {
  if (!matters.length) return html`<p class="fine"><span class="dot"></span>Nothing needs attention.</p>`;
  return html`<ul class="matters">
    ${matters.map(
      (one, number) => html`<li key=${number}>
        <${Tag} tone="warn">${one.kind}<//>
        ${one.href ? html`<a href=${one.href}>${one.text}</a>` : html`<span>${one.text}</span>`}
      </li>`,
    )}
  </ul>`;
}

function Quota({ one }) {
  const share = one.quota_bytes ? one.kept_bytes / one.quota_bytes : null;
  if (share == null) return html`<span class="muted share">no quota</span>`;
  const label = `${Math.round(share * 100)} % of ${bytes(one.quota_bytes)}`;
  return html`<span class="share"><${Meter} share=${share} label=${label} /><span class="muted">${label}</span></span>`;
}

function Namespaces({ rows, now }) {
  if (!rows.length) {
    return html`<${Empty} title="Nothing is stored yet">
      <code>holdfast set greeting '"hello"' --plugin demo</code> stores a first entry.
    <//>`;
  }
  return html`<div class="scroll"><table class="held">
    <thead><tr><th>Namespace</th><th class="num">Keys</th><th class="num">Kept</th><th>Quota</th><th>Changed</th></tr></thead>
    <tbody>
      ${rows.map((one) => {
        const href = namespaceHref(one.namespace);
        return html`<tr key=${one.namespace}>
          <td class="key">
            ${href ? html`<a data-row href=${href}>${one.namespace}</a>` : one.namespace}
            ${one.audit && html` <${Tag}>audited<//>`}
          </td>
          <td class="num">${number(one.keys)}</td>
          <td class="num">${bytes(one.kept_bytes)}</td>
          <td><${Quota} one=${one} /></td>
          <td><${When} at=${one.changed_at} now=${now} /></td>
        </tr>`;
      })}
    </tbody>
  </table></div>`;
}

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

export default function Overview({ doc, reload }) {
  useEvery(10_000, reload);
  const operator = doc.health != null;
  return html`
    ${operator && html`<${Health} health=${doc.health} />`}
    <${Section} title="Needs a person" id="attention"><${Attention} matters=${doc.attention} /><//>
    ${operator &&
    html`<${Section} title="The last hour" id="hour" aside=${html`<span class="muted">this process, every 10 s</span>`}>
      <${Charts} hour=${doc.hour} now=${doc.now} />
    <//>`}
    <${Section}
      title="Namespaces"
      id="namespaces"
      aside=${doc.totals &&
      html`<span class="muted">${number(doc.totals.keys)} keys, ${bytes(doc.totals.kept_bytes)} in ${number(doc.totals.namespaces)}</span>`}
    >
      <${Namespaces} rows=${doc.namespaces} now=${doc.now} />
      ${doc.more_namespaces && html`<p class="muted">The largest are shown. <a href="/ui/kv">Browse all</a></p>`}
    <//>
    ${operator && doc.instances.length > 1 && html`<${Section} title="Instances" id="instances"><${Instances} rows=${doc.instances} /><//>`}
    ${operator && html`<${Section} title="Refused requests" id="errors"><${Errors} rows=${doc.errors} /><//>`}
  `;
}
