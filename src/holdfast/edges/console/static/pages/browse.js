// The keys of a namespace: a tree of their parts, and a list that stays smooth with a million of them.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Bulk, ChosenBar, Pick, PickAll, useChosen } from "../parts/bulk.js";
import { ago, bytes, entryHref, number, span, withQuery } from "../parts/format.js";
import { call, page as fetchPage, requestId, WRITER } from "../parts/net.js";
import { announce, Dialog, Empty, Problem, Section, Tag, useEvery, useTyped } from "../parts/ui.js";
import { NamespaceHead } from "../parts/namespace.js";
import { NewEntry } from "../parts/edit.js";

export const title = (doc) => doc?.namespace || "Browse";
export const crumbs = () => [["Browse", "/ui/kv"]];

const ROW = 34;
const TWO_LINES = 54; // with the value below the key, in a narrow window
const NARROW = matchMedia("(max-width: 760px)");
const SORTS = [
  ["key", "Key"],
  ["size", "Largest"],
  ["age", "Oldest"],
  ["deadline", "Expires first"],
];

/** The parts of a prefix, each with the prefix up to it. */
function steps(prefix) {
  const parts = [];
  for (const part of prefix.matchAll(/[^:/.]*[:/.]?/g)) {
    if (part[0]) parts.push([part[0], prefix.slice(0, part.index + part[0].length)]);
  }
  return parts;
}

function Tree({ doc, href }) {
  const { branches, leaves, whole } = doc.tree;
  return html`<nav class="tree card" aria-label="Parts of keys">
    <p class="tree-path">
      <a href=${withQuery(href, { prefix: null, cursor: null })}>all</a>
      ${steps(doc.prefix).map(
        ([name, prefix]) => html`<a key=${prefix} href=${withQuery(href, { prefix, cursor: null })}>${name}</a>`,
      )}
    </p>
    <ul>
      ${branches.map(
        (one) => html`<li key=${one.prefix}>
          <a href=${withQuery(href, { prefix: one.prefix, cursor: null })}>
            <span class="key">${one.name}</span>
            <span class="count">${one.more ? `${number(Math.floor(one.count / 1000) * 1000)}+` : number(one.count)}</span>
          </a>
        </li>`,
      )}
    </ul>
    ${leaves > 0 && html`<p class="muted small">${leaves === 1 ? "1 key has" : `${number(leaves)}${whole ? "" : "+"} keys have`} no further part</p>`}
    ${!branches.length && !leaves && html`<p class="muted small">no keys</p>`}
  </nav>`;
}

function Row({ one, doc, now, picks }) {
  const left = one.expires_at && (Date.parse(one.expires_at) - now) / 1000;
  return html`<div role="listitem" class=${one.text == null ? "key-row" : "key-row valued"} key=${one.key}>
    ${picks && html`<${Pick} picks=${picks} row=${one} label=${one.name} />`}
    <span class="key named"><a data-row href=${entryHref(doc.family, doc.owner, one.name)} title=${one.key}>${one.name}</a>${one.purpose && html` <${Tag}>${one.purpose}<//>`}</span>
    ${one.text != null && html`<span class="key-text" title=${one.text}>${one.text}</span>`}
    <span class="key-meta">
      <span class="writer" title=${`written by ${one.last_writer}`}>${one.last_writer}</span>
      <span class="num size" title="size of the value">${bytes(one.size)}</span>
      <span class="num" title=${`version ${one.version}`}>${ago(one.updated_at, now)}</span>
      <span class=${left != null && left < 3600 ? "num warn-text" : "num"}>
        ${left == null ? "never" : left > 0 ? `in ${span(left)}` : "expired"}
      </span>
    </span>
  </div>`;
}

const SPARE = 8;

/** A list of any length that draws only the rows in view. `row` draws one; all have the same height. `more` is called near the end, and may return a promise. */
function VirtualList({ rows, height, row, more, label }) {
  const box = useRef();
  const asking = useRef(false);
  const [view, setView] = useState({ top: 0, high: 600 });

  const measure = () => {
    const rect = box.current.getBoundingClientRect();
    setView({ top: Math.max(0, -rect.top), high: innerHeight });
  };
  useLayoutEffect(measure, [rows.length]);
  useEffect(() => {
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / height) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.high) / height) + SPARE);
  useEffect(() => {
    if (!more || asking.current || last < rows.length - 20) return;
    asking.current = true;
    Promise.resolve(more()).finally(() => {
      asking.current = false;
    });
  }, [last, rows.length, more]);

  return html`<div ref=${box} class="virtual" role="list" aria-label=${label} style=${{ height: `${rows.length * height}px` }}>
    <div style=${{ transform: `translateY(${first * height}px)` }}>
      ${rows.slice(first, last).map((one, number) => row(one, first + number))}
    </div>
  </div>`;
}

/** Whether the window is narrow. */
function useNarrow() {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** Counts all keys below a prefix, part by part, when the person asks for it. */
function useCount(href, begun) {
  const [state, setState] = useState({ count: 0, counting: begun, error: null });
  useEffect(() => {
    if (!begun) return undefined;
    const control = new AbortController();
    (async () => {
      let cursor = null;
      let count = 0;
      try {
        do {
          const part = await fetchPage(withQuery(href, { count: "1", cursor, filter: null, sort: null }), control.signal);
          count += part.count;
          cursor = part.cursor;
          setState({ count, counting: Boolean(cursor), error: null });
        } while (cursor);
      } catch (error) {
        if (!control.signal.aborted) setState({ count, counting: false, error });
      }
    })();
    return () => control.abort();
  }, [href, begun]);
  return state;
}

/** How many keys are below the prefix: as the tree has counted them, and all of them on demand. */
function Below({ doc, href }) {
  const [begun, setBegun] = useState(false);
  const { count, counting, error } = useCount(href, begun);
  useEffect(() => setBegun(false), [href]);
  if (!doc.prefix && doc.held) return html` of ${number(doc.held.keys)}`;
  if (!doc.tree) return null;
  if (begun && !error) return html` of ${number(count)}${counting ? "…" : ""} below <code>${doc.prefix}</code>`;
  const { branches, leaves, whole } = doc.tree;
  const known = branches.reduce((sum, one) => sum + one.count, leaves);
  const exact = whole && !branches.some((one) => one.more);
  return html` of ${number(known)}${exact ? "" : "+"}${doc.prefix && html` below <code>${doc.prefix}</code>`}
    ${!exact && html` <button type="button" class="quiet" onClick=${() => setBegun(true)}>Count</button>`}`;
}

/** Deletes all keys below a prefix: first the count, then the prefix typed by hand. */
function PrefixDelete({ doc, href, onClose, done }) {
  const { count, counting, error: uncounted } = useCount(href, true);
  const [typed, setTyped] = useState("");
  const [gone, setGone] = useState(null);
  const [error, setError] = useState(null);

  async function remove(event) {
    event.preventDefault();
    setError(null);
    let removed = 0;
    let cursor = null;
    setGone(0);
    try {
      do {
        const fields = { prefix: doc.root + doc.prefix, limit: 1000 };
        if (cursor) fields.cursor = cursor;
        const part = await call(doc.family, doc.owner, "delete_prefix", fields);
        removed += part.count;
        cursor = part.cursor;
        setGone(removed);
      } while (cursor);
      announce(`${number(removed)} keys were deleted`);
      onClose();
      done();
    } catch (refusal) {
      setError(refusal);
      setGone(null);
    }
  }

  return html`<${Dialog} title="Delete all keys below a prefix" onClose=${onClose}>
    <form onSubmit=${remove}>
      <p>
        <strong>${number(count)}${counting && "…"} keys</strong> of <code>${doc.namespace}</code> begin with
        ${" "}<code>${doc.prefix}</code>. ${counting && "Still counting."}
      </p>
      ${uncounted && html`<${Problem} error=${uncounted} />`}
      <label for="typed">Type the prefix to delete them</label>
      <input id="typed" class="mono" autocomplete="off" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class="danger" disabled=${counting || uncounted || typed !== doc.prefix || gone != null}>
          ${gone == null ? `Delete ${number(count)} keys` : `${number(gone)} deleted…`}
        </button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}

const LOOK = 5000;

/**
 * The time of the store, and whether the namespace has changed since the page was read. If it has, the page is read
 * again, unless that would take rows away that someone has scrolled to or chosen: `still` is false then.
 */
function useFresh(doc, { still, reload }) {
  const read = useRef(Date.now());
  const [past, setPast] = useState(0);
  const [stale, setStale] = useState(false);
  useEffect(() => {
    read.current = Date.now();
    setPast(0);
    setStale(false);
  }, [doc]);
  useEvery(1000, () => setPast(Date.now() - read.current));
  useEvery(LOOK, async () => {
    if (!doc.held) return; // the token does not allow stats
    try {
      const { version } = await call(doc.family, doc.owner, "stats");
      if (version === doc.held.version) return;
    } catch {
      return; // the age says how old the page is
    }
    if (still && doc.tree?.whole) reload();
    else setStale(true);
  });
  return { now: doc.now + past, stale, refresh: () => reload() };
}

export default function Browse({ doc, href, go, reload }) {
  const [rows, setRows] = useState(doc.rows);
  const [cursor, setCursor] = useState(doc.cursor);
  const [looked, setLooked] = useState(doc.looked);
  const [failed, setFailed] = useState(null);
  const [dialog, setDialog] = useState(null);
  const chosen = useChosen(rows, (one) => one.key);
  const narrow = useNarrow();
  const picks = doc.may?.includes("delete") ? chosen : null;

  useEffect(() => {
    setRows(doc.rows);
    setCursor(doc.cursor);
    setLooked(doc.looked);
    setFailed(null);
    announce(`${doc.rows.length}${doc.cursor ? " or more" : ""} keys`, { quiet: true });
  }, [doc]);

  const more = useCallback(async () => {
    try {
      const next = await fetchPage(withQuery(href, { cursor }));
      setRows((before) => [...before, ...next.rows]);
      setCursor(next.cursor);
      setLooked((before) => before + next.looked);
    } catch (error) {
      setFailed(error);
    }
  }, [href, cursor]);

  const { now, stale, refresh } = useFresh(doc, { still: !dialog && !chosen.chosen.length && rows.length === doc.rows.length, reload });

  const find = (text) => go(withQuery(href, { filter: text, cursor: null }), { replace: true, quiet: true });
  const [filter, typed] = useTyped(doc.filter, find);
  const sorted = (event) => go(withQuery(href, { sort: event.target.value === "key" ? null : event.target.value, cursor: null }), { replace: true });
  const filtering = Boolean(doc.filter);
  const automatic = cursor && !filtering ? more : null;

  return html`
    <${NamespaceHead} doc=${doc} lives=${doc.may?.includes("changes")} exports />
    <div class="row">
      <div class="grow">
        <label for="filter">Filter keys${doc.prefix && html` below <code>${doc.prefix}</code>`}</label>
        <input id="filter" data-filter type="search" placeholder="part of a key   /" value=${filter} onInput=${typed} />
      </div>
      <div>
        <label for="sort">Sort</label>
        <select id="sort" value=${doc.sort} onChange=${sorted}>
          ${SORTS.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}
        </select>
      </div>
      ${doc.may?.includes("set") && html`<button type="button" onClick=${() => setDialog("new")}>New entry</button>`}
      ${doc.prefix && doc.may?.includes("delete_prefix") &&
      html`<button type="button" class="danger" onClick=${() => setDialog("prefix")}>Delete below ${doc.prefix}</button>`}
    </div>
    <div class="browse">
      ${doc.tree && html`<${Tree} doc=${doc} href=${href} />`}
      <${Section}
        title="Keys"
        id="keys"
        aside=${html`<span class="muted age">
          <span>${number(rows.length)} shown${!filtering && html`<${Below} doc=${doc} href=${href} />`}</span>
          <span class=${stale ? "warn-text" : ""}>${stale ? "changed since it was read" : "read"} ${ago(doc.now, now)}</span>
          <button type="button" class="quiet" onClick=${refresh}>Refresh</button>
        </span>`}
      >
        ${picks && html`<${ChosenBar} picks=${picks} actions=${[["Delete", () => setDialog(picks.chosen), true]]} />`}
        ${doc.partial && html`<p class="note-line">Only the first ${number(doc.looked)} keys were sorted. Narrow the prefix to sort all of them.</p>`}
        ${rows.length
          ? html`<div class="key-row key-head">
                ${picks && html`<${PickAll} picks=${picks} label="keys" />`}
                <span class="key">Key</span>
                ${rows[0].text != null && html`<span class="key-text">Value</span>`}
                <span class="key-meta">
                  <span class="writer">Writer</span><span class="num size">Stored size</span><span class="num">Updated</span><span class="num">Expires</span>
                </span>
              </div>
              <${VirtualList} rows=${rows} height=${narrow && rows[0].text != null ? TWO_LINES : ROW} label="Keys" more=${automatic} row=${(one) => html`<${Row} key=${one.key} one=${one} doc=${doc} now=${now} picks=${picks} />`} />`
          : html`<${Empty} title=${filtering ? "No key matches" : "There are no keys here"}>
              ${cursor ? `${number(looked)} keys were searched so far.` : filtering ? "Try another part of a key." : "Write one with set, or choose another prefix."}
            <//>`}
        ${failed && html`<${Problem} error=${failed} retry=${more} />`}
        ${cursor && filtering && html`<p class="actions"><button type="button" onClick=${more}>Keep searching after ${number(looked)} keys</button></p>`}
        ${cursor && !filtering && html`<p class="muted small">More keys load as you scroll.</p>`}
      <//>
    </div>
    ${dialog === "new" && html`<${NewEntry} doc=${doc} onClose=${() => setDialog(null)} done=${(key) => go(entryHref(doc.family, doc.owner, key))} />`}
    ${Array.isArray(dialog) &&
    html`<${Bulk}
      action="Delete"
      noun="key"
      destroys
      rows=${dialog}
      nameOf=${(one) => one.name}
      act=${(one) => call(doc.family, doc.owner, "delete", { key: one.key, expected_version: one.version, request_id: requestId(), last_writer: WRITER })}
      onClose=${() => setDialog(null)}
      done=${reload}
    >
      <p>A key that was written since this list was read is left as it is.</p>
    <//>`}
    ${dialog === "prefix" && html`<${PrefixDelete} doc=${doc} href=${href} onClose=${() => setDialog(null)} done=${reload} />`}
  `;
}
