// Tables: the plugins that have some, and the tables of one of them.

import { html } from "../vendor/preact.js";
import { Find, Rows } from "../parts/actions.js";
import { number } from "../parts/format.js";
import { NamespaceHead } from "../parts/namespace.js";
import { Plugins } from "../parts/plugins.js";
import { Empty, Section, Tag, When } from "../parts/ui.js";

export const title = (doc) => (doc?.plugin ? `Tables of ${doc.plugin}` : "Tables");
export const crumbs = (doc) => (doc?.plugin ? [["Tables", "/ui/tables"]] : null);

const typed = (key) => (key ? html`<span><span class="key">${key.name}</span> <span class="muted">${key.type}</span></span>` : html`<span class="muted">–</span>`);

function All({ doc, href, go }) {
  if (!doc.plugins.length && !doc.filter) {
    return html`<${Empty} title="There are no tables">
      <code>holdfast table create scores --plugin demo --partition-key game:string</code> makes a first one.
    <//>`;
  }
  return html`<${Plugins} doc=${doc} path="/ui/tables" counted="Items" href=${href} go=${go} />`;
}

export default function Tables({ doc, href, go }) {
  if (!doc.plugin) return html`<${All} doc=${doc} href=${href} go=${go} />`;
  if (!doc.tables.length && !doc.filter) return html`<${Empty} title="This plugin has no table">Its last table may have been dropped.<//>`;
  const root = `/ui/tables/${encodeURIComponent(doc.plugin)}`;
  return html`<${NamespaceHead} doc=${doc} counted="Items" lives=${doc.may.includes("changes")} exports />
  <${Find} hint="part of a name" href=${href} go=${go} />
  <${Section} id="tables" title="Tables" aside=${html`<${Tag}>${number(doc.tables.length)}${doc.more ? "+" : ""}<//>`}>
    ${!doc.tables.length && html`<p class="muted">No table matches.</p>`}
    ${doc.tables.length > 0 && html`<${Rows}><table>
      <thead><tr><th>Table</th><th>Partition key</th><th>Sort key</th><th>Indexes</th><th>Expires by</th><th>Created</th></tr></thead>
      <tbody>
        ${doc.tables.map(
          (one) => html`<tr key=${one.table}>
            <td class="key lead"><a data-row href=${`${root}/${encodeURIComponent(one.table)}`}>${one.table}</a></td>
            <td>${typed(one.partition_key)}</td>
            <td>${typed(one.sort_key)}</td>
            <td>
              ${one.indexes.map((index) => html`<${Tag} key=${index.name} tone=${index.state === "ready" ? "" : "warn"}>${index.name}<//> `)}
              ${!one.indexes.length && html`<span class="muted">–</span>`}
            </td>
            <td class="key">${one.ttl_attribute || html`<span class="muted">–</span>`}</td>
            <td><${When} at=${one.created_at} now=${doc.now} /></td>
          </tr>`,
        )}
      </tbody>
    </table><//>`}
  <//>`;
}
