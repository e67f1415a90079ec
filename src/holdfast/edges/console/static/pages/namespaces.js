// All namespaces, with a filter.

import { html, useState } from "../vendor/preact.js";
import { bytes, number } from "../parts/format.js";
import { Empty, Section, Tag, When } from "../parts/ui.js";

export const title = () => "Browse";

export default function Namespaces({ doc, href }) {
  const [filter, setFilter] = useState("");
  const rows = doc.namespaces.filter((one) => one.namespace.includes(filter));
  const next = doc.cursor && `/ui/kv?cursor=${encodeURIComponent(doc.cursor)}`;
  return html`
    <div class="row">
      <div class="grow">
        <label for="filter">Filter</label>
        <input id="filter" data-filter type="search" placeholder="part of a name   /" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      </div>
    </div>
    <${Section} title="Namespaces" id="all" aside=${html`<span class="muted">${number(rows.length)} shown</span>`}>
      ${rows.length
        ? html`<div class="scroll"><table>
            <thead><tr><th>Namespace</th><th class="num">Keys</th><th class="num">Kept</th><th>Changed</th></tr></thead>
            <tbody>
              ${rows.map(
                (one) => html`<tr key=${one.namespace}>
                  <td class="key">
                    ${one.href ? html`<a data-row href=${one.href}>${one.namespace}</a>` : one.namespace}
                    ${one.audit && html` <${Tag}>audited<//>`}
                  </td>
                  <td class="num">${number(one.keys)}</td>
                  <td class="num">${bytes(one.kept_bytes)}</td>
                  <td><${When} at=${one.changed_at} now=${doc.now} /></td>
                </tr>`,
              )}
            </tbody>
          </table></div>`
        : html`<${Empty} title=${filter ? "No name contains that" : "There are no namespaces yet"}>
            A namespace begins with its first entry.
          <//>`}
      ${next && html`<p><a href=${next}>Next page</a></p>`}
    <//>
  `;
}
