// Live: changes of all namespaces as they come. While paused they wait at the service, so that none is missed.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Choose } from "../parts/actions.js";
import { clock, entryHref, number, withQuery, zone } from "../parts/format.js";
import { page as fetchPage } from "../parts/net.js";
import { Empty, Section, Tag, useEvery, useTyped } from "../parts/ui.js";

export const title = () => "Live";

const KEPT = 1000;
const EVERY = 1000;
const AT_ONCE = 20;
const OPS = ["set", "deleted", "expired", "restored", "escalated"];
const TONES = { set: "good", deleted: "bad", expired: "warn", restored: "good", escalated: "warn" };

function Typed({ name, label, filters, href, go, first }) {
  const send = (text) => go(withQuery(href, { [name]: text, since: null }), { replace: true, quiet: true });
  const [text, typed] = useTyped(filters[name], send, 300);
  return html`<div class="grow">
    <label for=${name}>${label}</label>
    <input id=${name} class="mono" data-filter=${first ? "" : null} spellcheck="false" autocomplete="off" value=${text} onInput=${typed} />
  </div>`;
}

function Filters({ doc, href, go }) {
  const { filters, namespaces } = doc;
  // An answer to a question for what is new names only the namespaces that it has read.
  const known = useRef(new Set());
  for (const name of [...namespaces, filters.namespace]) if (name) known.current.add(name);
  const names = [["", "all"], ...[...known.current].sort().map((name) => [name, name])];
  const shared = { filters, href, go };
  return html`<div class="row filters" role="search">
    <${Choose} label="Namespace" name="namespace" value=${filters.namespace} options=${names} href=${href} go=${go} />
    <${Choose} label="Change" name="op" value=${filters.op} options=${[["", "all"], ...OPS.map((op) => [op, op])]} href=${href} go=${go} />
    <${Typed} ...${shared} name="prefix" label="Key begins with" first />
    <${Typed} ...${shared} name="writer" label="Writer contains" />
    ${Object.values(filters).some(Boolean) && html`<button type="button" onClick=${() => go(location.pathname)}>Show all</button>`}
  </div>`;
}

const MINUTE = 60;
const RECENT = 10;

/** How many changes came in each of the last seconds, as bars, and how many a second of late. */
function Rate({ counts, begun }) {
  const [now, setNow] = useState(Date.now());
  useEvery(1000, () => setNow(Date.now()));
  const second = Math.floor(now / 1000);
  const bars = Array.from({ length: MINUTE }, (_, past) => counts.current.get(second - MINUTE + past) ?? 0);
  const span = Math.max(1, Math.min(RECENT, second - Math.floor(begun.current / 1000)));
  const rate = bars.slice(-span).reduce((sum, one) => sum + one, 0) / span;
  const most = Math.max(1, ...bars);
  const text = `${rate >= 10 ? number(Math.round(rate)) : number(Number(rate.toFixed(1)))} / s`;
  return html`<span class="rate" title=${`changes a second in the last ${span} s; at most ${number(most)} in the last minute`}>
    <svg viewBox="0 0 60 16" role="img" aria-label="Changes in each second of the last minute">
      ${bars.map((one, x) => one > 0 && html`<rect key=${x} x=${x} y=${16 - (one / most) * 16} width="1" height=${(one / most) * 16} />`)}
    </svg>
    <strong>${text}</strong>
  </span>`;
}

/** The key without what all keys of a project begin with; of an item its table and key. */
function ownKey(one) {
  const [family, tenant, project] = one.namespace.split("/");
  const root = family === "semantic" ? `tenant/${tenant}/project/${project}/` : "";
  return one.key.startsWith(root) ? one.key.slice(root.length) : one.key;
}

function target(one) {
  const [family, ...owner] = one.namespace.split("/");
  if (family !== "table") return entryHref(family === "blob" ? "blobs" : family, owner.join("/"), ownKey(one));
  const item = { partition: String(one.partition_key), sort: one.sort_key == null ? null : String(one.sort_key) };
  return withQuery(`/ui/tables/${owner[0]}/${encodeURIComponent(one.table)}/item`, item);
}

export default function Live({ doc, href, go }) {
  const [rows, setRows] = useState([]);
  const [paused, setPaused] = useState(false);
  const [lost, setLost] = useState(null);
  const since = useRef(doc.since);
  const under = useRef(false);
  const counts = useRef(new Map());
  const begun = useRef(Date.now());

  const take = (answer, fresh) => {
    since.current = answer.since;
    const second = Math.floor(Date.now() / 1000);
    if (fresh) {
      counts.current = new Map();
      begun.current = Date.now();
    } else if (answer.changes.length) {
      counts.current.set(second, (counts.current.get(second) ?? 0) + answer.changes.length);
      for (const past of counts.current.keys()) if (past < second - MINUTE) counts.current.delete(past);
    }
    const gaps = answer.gaps.map((namespace) => ({ gap: true, namespace, version: `gap ${Date.now()}`, at: new Date().toISOString() }));
    setRows((before) => [...answer.changes.toReversed(), ...gaps, ...(fresh ? [] : before)].slice(0, KEPT));
  };
  useEffect(() => take(doc, true), [doc]);

  useEffect(() => {
    if (paused) return undefined;
    const control = new AbortController();
    /** Take what is new, until nothing is left or this is no longer the page to show it on. */
    const ask = async () => {
      for (let times = 0; times < AT_ONCE; times += 1) {
        const before = since.current;
        const answer = await fetchPage(withQuery(href, { since: before }), control.signal);
        if (control.signal.aborted || since.current !== before) return;
        take(answer, false);
        if (!answer.behind || answer.since === before) return;
      }
    };
    const timer = setInterval(async () => {
      if (under.current || document.visibilityState !== "visible") return;
      under.current = true;
      try {
        await ask();
        setLost(null);
      } catch (error) {
        if (!control.signal.aborted) {
          setLost(error);
          if (error.status === 401) go(href, { replace: true });
        }
      }
      under.current = false;
    }, EVERY);
    return () => {
      control.abort();
      clearInterval(timer);
    };
  }, [paused, href]);

  /** A part of a change that shows only such changes when it is pressed. */
  const only = (name, text, shown = text) =>
    doc.filters[name] === text
      ? shown
      : html`<button type="button" class="only" title=${`Show only ${text}`} onClick=${() => go(withQuery(href, { [name]: text, since: null }))}>${shown}</button>`;
  const count = `${rows.length === KEPT ? "The last " : ""}${number(rows.length)} changes`;
  const [tone, word] = lost ? ["bad", "not connected"] : paused ? ["warn", "paused"] : ["good", "live"];
  return html`
    <${Filters} doc=${doc} href=${href} go=${go} />
    <${Section}
      title=${rows.length ? count : "Changes"}
      id="changes"
      aside=${html`<span class="state"><${Rate} counts=${counts} begun=${begun} /> <${Tag} tone=${tone}>${word}<//> <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Resume" : "Pause"}</button></span>`}
    >
      ${lost && html`<p class="note-line" role="status">${lost.message} Trying again.</p>`}
      ${paused && !lost && html`<p class="note-line" role="status">Changes wait at the service. Resume shows all of them.</p>`}
      ${rows.length
        ? html`<div class="scroll"><table class="live">
            <thead><tr><th>Time (${zone()})</th><th>Change</th><th>Namespace</th><th>Key</th><th>Writer</th><th class="num">Version</th></tr></thead>
            <tbody>
              ${rows.map((one) =>
                one.gap
                  ? html`<tr key=${one.version}><td colspan="6" class="bad-text">Changes of ${one.namespace} are missing here: the journal no longer has them.</td></tr>`
                  : html`<tr key=${`${one.namespace} ${one.version}`}>
                      <td class="at" title=${one.at}>${clock(one.at)}</td>
                      <td>${only("op", one.op, html`<${Tag} tone=${TONES[one.op]}>${one.op}<//>`)}</td>
                      <td class="key muted">${only("namespace", one.namespace)}</td>
                      <td class="key what"><a data-row href=${target(one)} title=${one.key}>${ownKey(one)}</a></td>
                      <td class="key by">${one.last_writer && only("writer", one.last_writer)}</td>
                      <td class="num">${one.version}</td>
                    </tr>`,
              )}
            </tbody>
          </table></div>`
        : html`<${Empty} title="No changes yet">They appear here as they are written.<//>`}
    <//>
  `;
}
