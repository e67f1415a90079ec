// Live: changes of all namespaces as they come. While paused they wait at the service, so that none is missed.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { clock, entryHref, number, withQuery } from "../parts/format.js";
import { page as fetchPage } from "../parts/net.js";
import { Empty, Section, Tag } from "../parts/ui.js";

export const title = () => "Live";

const KEPT = 1000;
const EVERY = 1000;
const OPS = ["set", "deleted", "expired", "restored", "escalated"];
const TONES = { set: "good", deleted: "bad", expired: "warn", restored: "good", escalated: "warn" };

function Filters({ doc, href, go }) {
  const timer = useRef();
  const { filters } = doc;
  const change = (name, wait) => (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => go(withQuery(href, { [name]: text, since: null }), { replace: true, quiet: true }), wait);
  };
  const names = doc.namespaces.includes(filters.namespace) || !filters.namespace ? doc.namespaces : [filters.namespace, ...doc.namespaces];
  return html`<div class="row">
    <div class="grow">
      <label for="namespace">Namespace</label>
      <input id="namespace" data-filter list="namespaces" placeholder="all   /" value=${filters.namespace} onInput=${change("namespace", 400)} />
      <datalist id="namespaces">${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    </div>
    <div>
      <label for="op">Change</label>
      <select id="op" value=${filters.op} onChange=${change("op", 0)}>
        <option value="">all</option>
        ${OPS.map((op) => html`<option key=${op} value=${op}>${op}</option>`)}
      </select>
    </div>
    <div class="grow"><label for="writer">Writer contains</label><input id="writer" value=${filters.writer} onInput=${change("writer", 300)} /></div>
    <div class="grow"><label for="prefix">Key begins with</label><input id="prefix" class="mono" value=${filters.prefix} onInput=${change("prefix", 300)} /></div>
  </div>`;
}

/** The key without what all keys of a project begin with. */
function ownKey(one) {
  const [family, tenant, project] = one.namespace.split("/");
  const root = family === "semantic" ? `tenant/${tenant}/project/${project}/` : "";
  return one.key.startsWith(root) ? one.key.slice(root.length) : one.key;
}

function target(one) {
  const [family, ...owner] = one.namespace.split("/");
  return entryHref(family, owner.join("/"), ownKey(one));
}

export default function Live({ doc, href, go }) {
  const [rows, setRows] = useState([]);
  const [paused, setPaused] = useState(false);
  const [lost, setLost] = useState(null);
  const since = useRef(doc.since);
  const under = useRef(false);

  const take = (found, fresh) => {
    since.current = found.since;
    const gaps = found.gaps.map((namespace) => ({ gap: true, namespace, version: `gap ${Date.now()}`, at: new Date().toISOString() }));
    setRows((before) => [...found.changes.toReversed(), ...gaps, ...(fresh ? [] : before)].slice(0, KEPT));
  };
  useEffect(() => take(doc, true), [doc]);

  useEffect(() => {
    if (paused) return undefined;
    const timer = setInterval(async () => {
      if (under.current || document.visibilityState !== "visible") return;
      under.current = true;
      try {
        take(await fetchPage(withQuery(href, { since: since.current })), false);
        setLost(null);
      } catch (error) {
        setLost(error);
        if (error.status === 401) go(href, { replace: true });
      }
      under.current = false;
    }, EVERY);
    return () => clearInterval(timer);
  }, [paused, href]);

  const state = lost ? html`<${Tag} tone="bad">${lost.message} Trying again.<//>` : paused ? html`<${Tag} tone="warn">paused<//>` : html`<${Tag} tone="good">live<//>`;
  return html`
    <${Filters} doc=${doc} href=${href} go=${go} />
    <${Section}
      title="Changes"
      id="changes"
      aside=${html`<span>${state} <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Resume" : "Pause"}</button></span>`}
    >
      ${rows.length
        ? html`<div class="scroll"><table class="live">
            <thead><tr><th>Time</th><th>Change</th><th>Namespace</th><th>Key</th><th>Writer</th><th class="num">Version</th></tr></thead>
            <tbody>
              ${rows.map((one) =>
                one.gap
                  ? html`<tr key=${one.version}><td colspan="6" class="bad-text">Changes of ${one.namespace} are missing here: the journal no longer has them.</td></tr>`
                  : html`<tr key=${`${one.namespace} ${one.version}`}>
                      <td title=${one.at}>${clock(one.at)}</td>
                      <td><${Tag} tone=${TONES[one.op]}>${one.op}<//></td>
                      <td class="key">${one.namespace}</td>
                      <td class="key"><a data-row href=${target(one)} title=${one.key}>${ownKey(one)}</a></td>
                      <td class="key">${one.last_writer}</td>
                      <td class="num">${number(one.version)}</td>
                    </tr>`,
              )}
            </tbody>
          </table></div>`
        : html`<${Empty} title="No changes yet">They appear here as they are written.<//>`}
    <//>
  `;
}
