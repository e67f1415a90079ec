// One item of a table: its key and attributes, masked until it is revealed where the policy wants that.

import { html, useState } from "../vendor/preact.js";
import { Reveal, useAction } from "../parts/actions.js";
import { Diff } from "../parts/diff.js";
import { Edit, itemOf, Step } from "../parts/edit.js";
import { bytes, time, withQuery } from "../parts/format.js";
import { page as fetchPage } from "../parts/net.js";
import { Copy, Countdown, Problem, Section, Tag, Version, When } from "../parts/ui.js";

const root = (doc) => `/ui/tables/${encodeURIComponent(doc.plugin)}`;
const tableHref = (doc) => `${root(doc)}/${encodeURIComponent(doc.table.table)}`;

export const title = (doc) => (doc ? Object.values(doc.item.key).join(" · ") : "Item");
export const crumbs = (doc) =>
  doc && [
    ["Tables", "/ui/tables"],
    [doc.plugin, root(doc)],
    [doc.table.table, tableHref(doc)],
  ];

const TONES = { set: "good", deleted: "bad", expired: "warn" };

/** What a change did to the item, where the journal keeps images of it. */
function Changed({ change, before }) {
  const old = change.old ?? before?.new;
  if (change.new === undefined && change.old === undefined) return null;
  return html`<tr class="details"><td colspan="5">
    <${Diff} before=${old ?? ""} after=${change.new ?? ""} label=${`What version ${change.version} changed`} />
  </td></tr>`;
}

function History({ doc }) {
  if (doc.history == null) return html`<p class="muted">Your token does not allow the verb <code>changes</code>.</p>`;
  if (!doc.history.length) return html`<p class="muted">The journal has no recent change of this item.</p>`;
  return html`<div class="scroll"><table class="history">
    <thead><tr><th class="num">Version</th><th>Change</th><th>Writer</th><th>When</th><th>Request</th></tr></thead>
    <tbody>
      ${doc.history.map(
        (one, position) => html`<tr key=${one.version}>
            <td class="num">${one.version}</td>
            <td><${Tag} tone=${TONES[one.op]}>${one.op}<//>${one.version === doc.item.version && html` <span class="muted">now</span>`}</td>
            <td class="key">${one.last_writer}</td>
            <td><${When} at=${one.at} now=${doc.now} /></td>
            <td class="key muted">${one.request_id}</td>
          </tr>
          <${Changed} change=${one} before=${doc.history[position + 1]} />`,
      )}
    </tbody>
  </table></div>`;
}

export default function Item({ doc: masked, href, go, reload }) {
  const [shown, setShown] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [run, error] = useAction();
  const doc = (!masked.revealed && shown) || masked;
  const { item } = doc;
  const text = item.text || "";
  const may = (verb) => doc.may.includes(verb);
  const close = () => setDialog(null);
  const why = shown?.why;
  const last = doc.history?.find((one) => one.version === item.version); // the journal may have forgotten it

  const look = (reason) => fetchPage(withQuery(href, { reveal: "1", why: reason }));
  const show = (revealed, reason) => setShown({ ...revealed, why: reason });

  /** The item as an edit of it needs it: its text, and who wrote it last as far as the journal has that. */
  async function theirs(reason) {
    const { item: now, history } = await look(reason);
    const last = history?.find((one) => one.version === now.version);
    return { text: now.text, version: now.version, last_writer: last?.last_writer, updated_at: last?.at };
  }

  /** Get what is there now. Where a look needs a reason, this one has the reason of the one before. */
  async function renew() {
    await reload();
    return shown ? run(async () => show(await look(why), why)) : true;
  }

  const edit = async () => (await renew()) && setDialog("edit");

  return html`
    <div class="actions top">
      ${may("put_item") && html`<button type="button" class="primary" onClick=${edit}>Edit</button>`}
      ${doc.table.ttl_attribute && may("set_ttl") && html`<button type="button" onClick=${() => setDialog("ttl")}>Expiry</button>`}
      ${may("delete_item") && html`<button type="button" class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
    </div>
    ${error && html`<${Problem} error=${error} />`}
    <${Section} id="facts" title="Item">
      <dl class="facts">
        ${Object.entries(item.key).map(([name, part]) => html`<div key=${name}><dt>${name}</dt><dd class="key">${String(part)}</dd></div>`)}
        <div><dt>Version</dt><dd><${Version} version=${item.version} /></dd></div>
        ${last && html`<div><dt>Writer</dt><dd class="key">${last.last_writer}</dd></div><div><dt>Updated</dt><dd>${time(last.at)}</dd></div>`}
        <div><dt>Stored size</dt><dd>${bytes(item.size)}</dd></div>
        <div><dt>Expires</dt><dd><${Countdown} at=${item.expires_at} skew=${doc.now - Date.now()} /></dd></div>
      </dl>
    <//>
    <${Section} id="value-card" title="Value" aside=${doc.revealed && html`<${Copy} text=${text} />`}>
      ${doc.revealed
        ? html`<pre class="json" tabindex="0">${text}</pre>`
        : html`<table>
              <thead><tr><th>Attribute</th><th>Type</th><th class="num">Size</th></tr></thead>
              <tbody>
                ${Object.entries(item.attributes).map(
                  ([name, held]) => html`<tr key=${name}>
                    <td class="key">${name}</td><td>${held.kind}</td><td class="num">${bytes(held.bytes)}</td>
                  </tr>`,
                )}
              </tbody>
            </table>
            <div class="actions"><${Reveal} policy=${doc.reveal} recorded=${doc.recorded} href=${href} onShow=${show} what="item" /></div>`}
    <//>
    <${Section} id="history" title="History" aside=${!doc.revealed && html`<span class="muted">a reveal also shows what changed</span>`}>
      <${History} doc=${doc} />
    <//>
    ${dialog === "edit" &&
    html`<${Edit} subject=${itemOf(doc)} seen=${doc.revealed ? { text, version: item.version, why } : null} look=${theirs} onClose=${close} done=${renew} />`}
    ${["ttl", "delete"].includes(dialog) &&
    html`<${Step} subject=${itemOf(doc)} kind=${dialog} onClose=${close} done=${dialog === "delete" ? () => go(tableHref(doc), { replace: true }) : renew} />`}
  `;
}
